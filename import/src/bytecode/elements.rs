//! Elements of tensors as text: `dense<..>`, and lists of integers.

use super::decode::DecodedType;
use super::vhlo::bits;

/// More elements are written as their bytes in hexadecimal.
const MOST_LISTED: u64 = 100;

/// The elements of a tensor: bytes, low ones first, of each or of one that stands for all.
pub(super) struct TensorElements<'e> {
    dims: &'e [i64],
    element: &'e str,
    /// The type of each part of a complex number, or of the element.
    part: &'e str,
    /// The bytes of an element, 1 for truth values, and of its parts.
    width: usize,
    part_width: usize,
    count: u64,
    bytes: &'e [u8],
}

impl<'e> TensorElements<'e> {
    /// The elements; `None` where the bytes are not those of a tensor of this type.
    pub(super) fn of(ty: &'e DecodedType, bytes: &'e [u8]) -> Option<TensorElements<'e>> {
        let (dims, element) = ty.tensor.as_ref()?;
        let extents = dims.iter().map(|&d| u64::try_from(d).ok());
        let count = extents.into_iter().try_fold(1u64, |n, d| n.checked_mul(d?))?;
        let part =
            element.strip_prefix("complex<").map_or(element.as_str(), |e| e.trim_end_matches('>'));
        let part_width = bits(part)?.div_ceil(8) as usize;
        let width = if part == element { part_width } else { 2 * part_width };
        let made = TensorElements { dims, element, part, width, part_width, count, bytes };
        let given = bytes.len() as u64;
        let each = count.checked_mul(width as u64)? == given;
        let packed = element == "i1" && count.div_ceil(8) == given;
        (each || packed || given == width as u64).then_some(made)
    }

    /// Whether truth values are eight to a byte. One that stands for all is a byte with all bits set, or none.
    fn is_packed(&self) -> bool {
        let given = self.bytes.len() as u64;
        let packed = given == self.count.div_ceil(8) && given != self.count;
        self.element == "i1" && packed && !matches!(self.bytes, [0x00 | 0xff])
    }

    /// Whether one element stands for all.
    fn is_splat(&self) -> bool {
        self.bytes.len() == self.width && !self.is_packed()
    }

    /// The bits of part `k`.
    fn bits_at(&self, k: usize) -> u64 {
        let mut wide = [0; 8];
        let at = k * self.part_width;
        let part = self.bytes.get(at..at + self.part_width).unwrap_or_default();
        wide[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(wide)
    }

    fn truth(&self, k: usize) -> bool {
        match self.is_packed() {
            true => self.bytes.get(k / 8).is_some_and(|b| b >> (k % 8) & 1 == 1),
            false => self.bytes.get(k).is_some_and(|&b| b != 0),
        }
    }

    /// Element `k` as it is written.
    fn element(&self, k: usize) -> String {
        match self.element {
            "i1" => self.truth(k).to_string(),
            _ if self.width == self.part_width => number(self.part, self.bits_at(k)),
            _ => {
                let [re, im] = [0, 1].map(|n| number(self.part, self.bits_at(2 * k + n)));
                format!("({re}, {im})")
            }
        }
    }

    /// What stands between the angle brackets of `dense<..>`.
    pub(super) fn write(&self, out: &mut String) {
        match self.count {
            0 => {}
            _ if self.is_splat() => out.push_str(&self.element(0)),
            n if n <= MOST_LISTED => self.list(n as usize, out),
            n => {
                out.push_str("\"0x");
                if self.element == "i1" && !self.is_packed() {
                    let byte = |k| (0..8).fold(0, |b, i| b | u8::from(self.truth(8 * k + i)) << i);
                    let packed: Vec<u8> = (0..n.div_ceil(8) as usize).map(byte).collect();
                    hexadecimal(&packed, out);
                } else {
                    hexadecimal(self.bytes, out);
                }
                out.push('"');
            }
        }
    }

    /// A list of lists, as deep as there are axes.
    fn list(&self, count: usize, out: &mut String) {
        // How many elements a list of each depth has, the innermost first.
        let extents = self.dims.iter().rev();
        let sizes: Vec<usize> = extents
            .scan(1, |n, &d| Some(std::mem::replace(n, *n * d as usize) * d as usize))
            .collect();
        for k in 0..count {
            if k > 0 {
                out.push_str(", ");
            }
            sizes.iter().filter(|&&n| k % n == 0).for_each(|_| out.push('['));
            out.push_str(&self.element(k));
            sizes.iter().filter(|&&n| (k + 1) % n == 0).for_each(|_| out.push(']'));
        }
    }

    /// The elements as integers, where they are integers or truth values, and few.
    pub(super) fn integers(&self) -> Option<Vec<i64>> {
        let unsigned = self.part.starts_with("ui");
        let is_integer = unsigned || self.part.starts_with('i');
        if !is_integer || self.count > MOST_LISTED || self.width != self.part_width {
            return None;
        }
        let one = |k: usize| match self.element {
            "i1" => i64::from(self.truth(k)),
            _ if unsigned => self.bits_at(k) as i64,
            _ => extended(self.bits_at(k), 8 * self.part_width as u32),
        };
        Some((0..self.count as usize).map(|k| one(if self.is_splat() { 0 } else { k })).collect())
    }
}

/// Bits of this width as a number with its sign.
fn extended(bits: u64, width: u32) -> i64 {
    let shift = 64 - width.clamp(1, 64);
    (bits << shift) as i64 >> shift
}

/// A number of this type. A float is written as its bits where a decimal might not read back to them.
pub(super) fn number(ty: &str, value: u64) -> String {
    let width = bits(ty).unwrap_or(64);
    let low = if width == 64 { value } else { value & ((1 << width) - 1) };
    let float = match ty {
        "f32" => Some(f64::from(f32::from_bits(low as u32))),
        "f64" => Some(f64::from_bits(low)),
        _ => None,
    };
    match float.filter(|x| x.is_finite()) {
        Some(_) if ty == "f32" => format!("{:?}", f32::from_bits(low as u32)),
        Some(x) => format!("{x:?}"),
        None if ty.starts_with("ui") => low.to_string(),
        None if ty.starts_with('i') => extended(low, width).to_string(),
        None => format!("0x{low:0digits$X}", digits = width.div_ceil(4) as usize),
    }
}

fn hexadecimal(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.reserve(2 * bytes.len());
    for b in bytes {
        out.push(char::from(DIGITS[usize::from(b >> 4)]));
        out.push(char::from(DIGITS[usize::from(b & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(element: &str, dims: &[i64], bytes: &[u8]) -> Option<String> {
        let tensor = Some((dims.to_vec(), element.to_string()));
        let ty = DecodedType { text: String::new(), tensor, results: None };
        let mut out = String::new();
        TensorElements::of(&ty, bytes)?.write(&mut out);
        Some(out)
    }

    #[test]
    fn elements_are_written_as_they_are_read() {
        let f = |x: f32| x.to_le_bytes();
        for (element, dims, bytes, wanted) in [
            ("f32", &[2, 1][..], [f(1.5), f(f32::NAN)].concat(), "[[1.5], [0x7FC00000]]"),
            ("f32", &[3], f(-0.0).to_vec(), "-0.0"),
            ("f32", &[], f(1e-7).to_vec(), "1e-7"),
            ("i8", &[2], vec![0xff, 5], "[-1, 5]"),
            ("ui8", &[2], vec![0xff, 5], "[255, 5]"),
            ("i4", &[2], vec![0xf9, 5], "[-7, 5]"),
            ("ui64", &[1], vec![0xff; 8], "18446744073709551615"),
            ("bf16", &[1], vec![0x80, 0x3f], "0x3F80"),
            ("i1", &[3], vec![0b101], "[true, false, true]"),
            ("i1", &[9], vec![0xff], "true"),
            ("i1", &[3], vec![1, 0, 1], "[true, false, true]"),
            ("i64", &[0, 4], vec![], ""),
            (
                "complex<f32>",
                &[1, 2],
                [f(1.0), f(2.0), f(3.0), f(4.0)].concat(),
                "[[(1.0, 2.0), (3.0, 4.0)]]",
            ),
            ("i8", &[101], (0..101).collect(), ""),
        ] {
            let got = dense(element, dims, &bytes).expect("elements");
            match dims {
                [101] => assert!(got.starts_with("\"0x000102") && got.ends_with("64\"")),
                _ => assert_eq!(got, wanted, "{element}"),
            }
        }
        assert_eq!(dense("f32", &[3], &[0; 8]), None);
        assert_eq!(dense("f32", &[i64::MAX, 4], &[0; 8]), None);
        assert_eq!(dense("!stablehlo.token", &[1], &[0]), None);
    }
}
