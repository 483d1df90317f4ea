//! Measured times of products: for each form of a product, the seconds that each way to multiply it takes on a machine.

use crate::{DType, Fp};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// A way to multiply a product on a GPU, with everything that is done to its operands and its sums.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProductWay {
    /// By a library, with kernels before and after it for what it does not do itself.
    Library,
    /// As one kernel of warpgroups, with these tiles.
    Warpgroups(WarpgroupWay),
}

/// The tiles of a product by warpgroups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WarpgroupWay {
    /// Rows and columns of a tile of sums.
    pub side: [i64; 2],
    /// Whether the warpgroups of a block take tiles in turn, in place of sharing each.
    pub pingpong: bool,
    /// Blocks that bring the columns' operand together: 1 or 2.
    pub cluster: i64,
    /// Whether the depth of all tiles is cut into equal parts, one for each multiprocessor.
    pub split: bool,
}

impl WarpgroupWay {
    /// Shapes of tiles that kernels have: rows, columns, and whether warpgroups take them in turn.
    pub const SHAPES: [([i64; 2], bool); 5] = [
        ([128, 256], false),
        ([256, 128], false),
        ([128, 192], false),
        ([128, 128], true),
        ([128, 128], false),
    ];

    /// Whether a product of this many rows has tiles for each block of a cluster: where it has not, half of the blocks would
    /// have nothing to do.
    pub fn fits(&self, rows: i64) -> bool {
        self.cluster == 1 || rows > self.side[0]
    }

    /// Whether kernels have such tiles.
    pub fn is_known(&self) -> bool {
        let alone = self.cluster == 1;
        let shared = self.cluster == 2 && self.side[1] % 128 == 0;
        WarpgroupWay::SHAPES.contains(&(self.side, self.pingpong))
            && (alone || shared)
            && !(self.split && (self.pingpong || !alone))
    }
}

impl fmt::Display for ProductWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProductWay::Library => f.write_str("library"),
            ProductWay::Warpgroups(WarpgroupWay {
                side: [rows, cols],
                pingpong,
                cluster,
                split,
            }) => {
                let order = if *pingpong { "pingpong" } else { "cooperative" };
                let split = if *split { " split" } else { "" };
                write!(f, "{rows}x{cols} {order} cluster {cluster}{split}")
            }
        }
    }
}

/// A text that names no [`ProductWay`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownWay;

impl FromStr for ProductWay {
    type Err = UnknownWay;

    fn from_str(text: &str) -> Result<ProductWay, UnknownWay> {
        if text == "library" {
            return Ok(ProductWay::Library);
        }
        let words: Vec<&str> = text.split(' ').collect();
        let (words, split) = match words.as_slice() {
            [words @ .., "split"] => (words, true),
            words => (words, false),
        };
        let &[side, order, "cluster", cluster] = words else { return Err(UnknownWay) };
        let (rows, cols) = side.split_once('x').ok_or(UnknownWay)?;
        let number = |text: &str| text.parse::<i64>().map_err(|_| UnknownWay);
        let pingpong = match order {
            "pingpong" => true,
            "cooperative" => false,
            _ => return Err(UnknownWay),
        };
        let (side, cluster) = ([number(rows)?, number(cols)?], number(cluster)?);
        let way = WarpgroupWay { side, pingpong, cluster, split };
        // What is read is what would be written.
        let found = Some(ProductWay::Warpgroups(way)).filter(|_| way.is_known());
        found.filter(|found| found.to_string() == text).ok_or(UnknownWay)
    }
}

/// The rows of the product of a form, which is a mode, a type, `batch x rows x columns x depth` and a hash; each extent is a
/// product of axes, such as `16*1024`, and empty where there is no axis. `None` for what is no form.
pub fn rows_of_form(form: &str) -> Option<i64> {
    let words: Vec<&str> = form.split(' ').collect();
    let &[mode, dtype, extents, hash] = words.as_slice() else { return None };
    let is_mode = Fp::ALL.iter().any(|(_, name)| *name == mode);
    let is_hash = !hash.is_empty() && hash.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_mode || !is_hash || dtype.parse::<DType>().is_err() {
        return None;
    }
    let extents: Option<Vec<i64>> = extents.split('x').map(extent_of_form).collect();
    let &[_, rows, _, _] = extents?.as_slice() else { return None };
    Some(rows)
}

/// The product of the axes that an extent of a form lists.
fn extent_of_form(axes: &str) -> Option<i64> {
    let axis = |n: &str| n.parse::<i64>().ok().filter(|_| n.bytes().all(|b| b.is_ascii_digit()));
    let mut axes = axes.split('*').filter(|_| !axes.is_empty());
    axes.try_fold(1i64, |all, n| all.checked_mul(axis(n)?))
}

/// Seconds of each way in which a product was multiplied.
pub type WayTimes = BTreeMap<ProductWay, f64>;

/// For each form of a product, the seconds of each way in which it was multiplied. Clones share the table.
#[derive(Clone, Default)]
pub struct ProductTimes {
    forms: Arc<BTreeMap<String, WayTimes>>,
    /// Of forms, ways and seconds.
    digest: u64,
}

impl ProductTimes {
    /// A table; forms without a way are left out.
    pub fn new(forms: BTreeMap<String, WayTimes>) -> ProductTimes {
        let forms: BTreeMap<_, _> =
            forms.into_iter().filter(|(_, ways)| !ways.is_empty()).collect();
        let mut digest = Fnv(0xcbf2_9ce4_8422_2325);
        for (form, ways) in &forms {
            form.hash(&mut digest);
            for (way, seconds) in ways {
                (way, seconds.to_bits()).hash(&mut digest);
            }
        }
        let digest = if forms.is_empty() { 0 } else { digest.finish() };
        ProductTimes { forms: Arc::new(forms), digest }
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// The forms that were measured, with the times of each, in the order of their names.
    pub fn forms(&self) -> impl Iterator<Item = (&str, &WayTimes)> {
        self.forms.iter().map(|(form, ways)| (form.as_str(), ways))
    }

    /// The times of a form.
    pub fn of(&self, form: &str) -> Option<&WayTimes> {
        self.forms.get(form)
    }

    /// The fastest of those ways of a form that are `allowed`, and its seconds; the first of equally fast ones.
    pub fn fastest(
        &self,
        form: &str,
        allowed: impl Fn(ProductWay) -> bool,
    ) -> Option<(ProductWay, f64)> {
        let ways = self.of(form)?.iter().map(|(&way, &seconds)| (way, seconds));
        ways.filter(|&(way, _)| allowed(way)).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// These and others; where both have a form, the others' times of it.
    #[must_use]
    pub fn and(&self, others: &ProductTimes) -> ProductTimes {
        let mut forms = (*self.forms).clone();
        forms.extend(others.forms.iter().map(|(form, ways)| (form.clone(), ways.clone())));
        ProductTimes::new(forms)
    }
}

impl PartialEq for ProductTimes {
    fn eq(&self, other: &ProductTimes) -> bool {
        self.digest == other.digest
            && (Arc::ptr_eq(&self.forms, &other.forms) || self.forms == other.forms)
    }
}

// Seconds of a file or a clock are finite, so no table holds a NaN, which would not equal itself.
impl Eq for ProductTimes {}

impl Hash for ProductTimes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for ProductTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = format_args!("{:016x}", self.digest);
        f.debug_struct("ProductTimes")
            .field("forms", &self.forms.len())
            .field("digest", &digest)
            .finish()
    }
}

/// FNV-1a, for keys within a process.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_read_back_and_others_are_refused() {
        for (side, pingpong) in WarpgroupWay::SHAPES {
            for (cluster, split) in [(1, false), (1, true), (2, false), (2, true)] {
                let way = WarpgroupWay { side, pingpong, cluster, split };
                let text = ProductWay::Warpgroups(way).to_string();
                let read = text.parse::<ProductWay>();
                assert_eq!(
                    read.ok(),
                    way.is_known().then_some(ProductWay::Warpgroups(way)),
                    "{text}"
                );
            }
        }
        assert_eq!("library".parse(), Ok(ProductWay::Library));
        for wrong in [
            "",
            "Library",
            "128x256",
            "128x256 cooperative",
            "128x256 cooperative cluster 3",
            "128x192 cooperative cluster 2",
            "0128x256 cooperative cluster 1",
            "64x64 cooperative cluster 1",
            "128x256 alone cluster 1",
            "128x256 cooperative cluster 2 split",
            "128x128 pingpong cluster 1 split",
            "128x256 cooperative cluster 1 split split",
            "split",
        ] {
            assert_eq!(wrong.parse::<ProductWay>(), Err(UnknownWay), "{wrong}");
        }
    }

    #[test]
    fn clusters_want_rows_for_two_tiles() {
        let way = |text: &str| match text.parse() {
            Ok(ProductWay::Warpgroups(way)) => way,
            other => panic!("{text}: {other:?}"),
        };
        for (text, rows, fits) in [
            ("128x256 cooperative cluster 2", 129, true),
            ("128x256 cooperative cluster 2", 128, false),
            ("256x128 cooperative cluster 2", 256, false),
            ("256x128 cooperative cluster 1", 1, true),
        ] {
            assert_eq!(way(text).fits(rows), fits, "{text} {rows}");
        }
        for (form, rows) in [
            ("fast bf16 1x16384x3072x768 ad4902d30d14", Some(16384)),
            ("fast bf16 1x16*1024x3072x12*64 ad4902d30d14", Some(16384)),
            ("fast bf16 1x-4x3072x768 ad4902d30d14", None),
            ("fast bf16 1x9223372036854775807*2x1x1 ad4902d30d14", None),
            ("fast bf16 1x16384x3072 ad4902d30d14", None),
            // A vector has no rows.
            ("strict f32 1xx64x64 0", Some(1)),
            ("fast bf16 1x64x64x64x64 0", None),
            ("fast bf16 1x64x64x6.4 0", None),
            ("fast bf16 1x64x64x+64 0", None),
            ("fast bf16 1x64x64x8* 0", None),
            ("loose bf16 1x64x64x64 0", None),
            ("fast bf17 1x64x64x64 0", None),
            ("fast bf16 1x64x64x64 hash", None),
            ("fast bf16 1x64x64x64 ", None),
            ("bf16 1x64x64x64", None),
            ("junk", None),
            ("", None),
        ] {
            assert_eq!(rows_of_form(form), rows, "{form}");
        }
    }

    #[test]
    fn the_fastest_allowed_way_is_found() {
        let own = "128x128 pingpong cluster 2".parse().expect("a way");
        let ways = |a: f64, b: f64| WayTimes::from([(ProductWay::Library, a), (own, b)]);
        let table = |forms: &[(&str, WayTimes)]| {
            ProductTimes::new(forms.iter().map(|(f, w)| ((*f).to_owned(), w.clone())).collect())
        };
        let times = table(&[("a", ways(2.0, 1.0)), ("b", ways(1.0, 2.0)), ("c", WayTimes::new())]);
        assert_eq!(times.fastest("a", |_| true), Some((own, 1.0)));
        assert_eq!(
            times.fastest("a", |way| way == ProductWay::Library),
            Some((ProductWay::Library, 2.0))
        );
        assert_eq!(times.fastest("b", |_| true), Some((ProductWay::Library, 1.0)));
        assert_eq!((times.fastest("c", |_| true), times.of("c")), (None, None));
        // Other times are another table, and an empty table is the default.
        let other = table(&[("a", ways(2.0, 1.5)), ("b", ways(1.0, 2.0))]);
        assert_ne!(times, other);
        assert_eq!(times.and(&other), other);
        assert_eq!(table(&[("c", WayTimes::new())]), ProductTimes::default());
    }
}
