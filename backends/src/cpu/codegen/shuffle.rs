//! Which loads and permutations give a vector whose elements are in a pattern in memory. Vectors are those of AVX-512, with
//! lanes of 32 bits. Offsets are in elements, from the first lane's element on.

use super::loop_program::GridSteps;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// A gather takes about as long as this many other instructions.
const GATHER: usize = 14;

/// Instructions that make the mask of a load where only some lanes are there: one reads which lanes it is for, and one joins the two masks.
const MASK: usize = 2;

/// How the lanes that are wanted are loaded.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Shuffle {
    /// The same element for all.
    Broadcast(i64),
    /// Vectors at offsets, of each of which these lanes are kept.
    Blend(Vec<(i64, u16)>),
    /// Vectors, permuted.
    Permute(Vec<PermutedVector>),
    /// Element by element.
    Gather,
}

/// A vector of neighbours that several lanes have elements of.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct PermutedVector {
    /// Where it begins.
    pub(crate) from: i64,
    /// Which of its elements are read: no others are accessed.
    pub(crate) read: u16,
    /// The lanes that have them.
    pub(crate) lanes: u16,
    /// Which element each of these lanes has.
    pub(crate) places: [u8; LANES],
}

/// Which of the wanted lanes are there at run time. Of two masks together, the later variant holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RuntimeLanes {
    /// All of them.
    Full,
    /// All or none.
    Whole,
    /// Of lanes that have the same element, all or none.
    Elements,
    /// Any.
    Lanes,
}

impl RuntimeLanes {
    /// What the mask of a guard is like for elements at such steps.
    // The x86 emitter asks.
    #[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
    pub(crate) fn of_guard(guard: &GridSteps, steps: &GridSteps) -> RuntimeLanes {
        let lanes = || (0..LANES as i64).map(|l| (steps.offset(l), guard.offset(l)));
        if lanes().all(|(_, value)| value == 0) {
            return RuntimeLanes::Whole;
        }
        let alike = |(at, value)| lanes().all(|(other, v)| other != at || v == value);
        if lanes().all(alike) { RuntimeLanes::Elements } else { RuntimeLanes::Lanes }
    }
}

impl PermutedVector {
    /// Vectors of lane numbers. The first names for each element one lane that has it, and each further one the next such
    /// lane. Where there are no more, the last lane is named again.
    // The x86 emitter asks.
    #[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
    pub(crate) fn lanes_of_elements(&self, mask: RuntimeLanes) -> Vec<[u8; LANES]> {
        let mut found = vec![[0; LANES]; self.sharing(mask)];
        let mut count = [0; LANES];
        for l in lanes_of(self.lanes) {
            let place = usize::from(self.places[l]);
            for lanes in found.iter_mut().skip(count[place]) {
                lanes[place] = l as u8;
            }
            count[place] += 1;
        }
        found
    }

    /// How many lanes must be asked whether an element is accessed.
    fn sharing(&self, mask: RuntimeLanes) -> usize {
        let all = || lanes_of(self.lanes);
        let of = |place: u8| all().filter(|&l| self.places[l] == place).count();
        match mask {
            RuntimeLanes::Full | RuntimeLanes::Whole => 0,
            RuntimeLanes::Elements => 1,
            RuntimeLanes::Lanes => all().map(|l| of(self.places[l])).max().unwrap_or(1),
        }
    }
}

impl Shuffle {
    /// The instructions that it takes beyond a load, for lanes that are all there.
    pub(crate) fn extra(&self) -> u32 {
        let count = match self {
            Shuffle::Broadcast(_) => 1,
            Shuffle::Blend(vectors) => vectors.len(),
            Shuffle::Permute(windows) => permuted(windows),
            Shuffle::Gather => GATHER,
        };
        count.saturating_sub(1) as u32
    }

    /// For lanes at offsets, of which some are wanted, and of those some are there at run time.
    pub(crate) fn of(offsets: &[i64; LANES], wanted: u16, mask: RuntimeLanes) -> Shuffle {
        let all = || lanes_of(wanted);
        let Some(first) = all().next().map(|l| offsets[l]) else {
            return Shuffle::Blend(Vec::new());
        };
        if all().all(|l| offsets[l] == first) {
            return Shuffle::Broadcast(first);
        }
        let mut blend: Vec<(i64, u16)> = Vec::new();
        for l in all() {
            let at = offsets[l].wrapping_sub(l as i64);
            match blend.iter_mut().find(|(a, _)| *a == at) {
                Some((_, lanes)) => *lanes |= 1 << l,
                None => blend.push((at, 1 << l)),
            }
        }
        let windows = windows(offsets, wanted);
        // Instructions that make masks. A vector of a blend and a gather each have one of lanes, which joins those that are wanted with
        // those that are there; windows have masks of elements, made of masks of lanes.
        let (of_lanes, of_elements) = match mask {
            RuntimeLanes::Full => (0, 0),
            RuntimeLanes::Whole => (MASK, windows.len() * MASK),
            RuntimeLanes::Elements | RuntimeLanes::Lanes => {
                (MASK, 1 + windows.iter().map(|w| 2 * w.sharing(mask) + 1).sum::<usize>())
            }
        };
        let permuted = of_elements + permuted(&windows);
        let blended = blend.len() * (1 + of_lanes);
        let gathered = GATHER + of_lanes;
        match blended {
            n if n <= permuted.min(gathered) => Shuffle::Blend(blend),
            _ if permuted <= gathered => Shuffle::Permute(windows),
            _ => Shuffle::Gather,
        }
    }
}

/// The lanes of a mask.
fn lanes_of(mask: u16) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |l| mask >> l & 1 != 0)
}

/// How many instructions load and permute: one permutation takes one vector or two, and each further vector takes one more.
fn permuted(windows: &[PermutedVector]) -> usize {
    if windows.len() == 1 { 2 } else { 2 * windows.len() - 1 }
}

/// The fewest vectors of neighbours that have the elements of all wanted lanes.
fn windows(offsets: &[i64; LANES], wanted: u16) -> Vec<PermutedVector> {
    let mut left = wanted;
    let mut found = Vec::new();
    let next = |left: u16| lanes_of(left).map(|l| offsets[l]).min();
    while let Some(from) = next(left) {
        let mut window = PermutedVector { from, read: 0, lanes: 0, places: [0; LANES] };
        for l in lanes_of(left) {
            let place = offsets[l].wrapping_sub(from);
            if (0..LANES as i64).contains(&place) {
                window.places[l] = place as u8;
                window.read |= 1 << place;
                window.lanes |= 1 << l;
            }
        }
        left &= !window.lanes;
        found.push(window);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u16 = u16::MAX;

    fn pattern(of: impl Fn(i64) -> i64) -> [i64; LANES] {
        std::array::from_fn(|l| of(l as i64))
    }

    /// What each lane has, as offsets; each vector is accessed where the lanes' elements are and nowhere else.
    fn loaded(shuffle: &Shuffle, offsets: &[i64; LANES]) -> [Option<i64>; LANES] {
        let mut lanes = [None; LANES];
        match shuffle {
            Shuffle::Broadcast(at) => lanes = [Some(*at); LANES],
            Shuffle::Blend(vectors) => {
                for (at, kept) in vectors {
                    for l in lanes_of(*kept) {
                        lanes[l] = Some(at + l as i64);
                    }
                }
            }
            Shuffle::Permute(windows) => {
                for w in windows {
                    for l in lanes_of(w.lanes) {
                        assert_ne!(w.read >> w.places[l] & 1, 0, "an element that is not read");
                        lanes[l] = Some(w.from + i64::from(w.places[l]));
                    }
                    let used: u16 = lanes_of(w.lanes).fold(0, |bits, l| bits | 1 << w.places[l]);
                    assert_eq!(w.read, used, "an element that nobody wants");
                }
            }
            Shuffle::Gather => lanes = offsets.map(Some),
        }
        lanes
    }

    #[test]
    fn lanes_have_their_elements() {
        let patterns: [fn(i64) -> i64; 8] = [
            |l| l,
            |_| 7,
            |l| 2 * l,
            |l| -l,
            |l| l / 4 * 16 + l % 4 * 2,
            |l| l / 8 * 30 + l % 8,
            |l| l / 2,
            |l| 1000 * l,
        ];
        for (k, of) in patterns.iter().enumerate() {
            let offsets = pattern(of);
            for wanted in [ALL, 0x00ff, 0x7777, 1, 0] {
                for mask in [
                    RuntimeLanes::Full,
                    RuntimeLanes::Whole,
                    RuntimeLanes::Elements,
                    RuntimeLanes::Lanes,
                ] {
                    let shuffle = Shuffle::of(&offsets, wanted, mask);
                    let found = loaded(&shuffle, &offsets);
                    for l in lanes_of(wanted) {
                        assert_eq!(found[l], Some(offsets[l]), "{k} {wanted:x} {shuffle:?}");
                    }
                    if let (RuntimeLanes::Lanes, Shuffle::Permute(windows)) = (mask, &shuffle) {
                        for (w, l) in windows.iter().flat_map(|w| (0..LANES).map(move |l| (w, l))) {
                            let place = usize::from(w.places[l]);
                            let asked = w.lanes_of_elements(mask);
                            let asked = asked.iter().any(|lanes| usize::from(lanes[place]) == l);
                            assert!(w.lanes >> l & 1 == 0 || asked, "lane {l} is not asked");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_cheapest_is_taken() {
        use RuntimeLanes::{Elements, Full, Lanes, Whole};
        let vectors = |of: fn(i64) -> i64, mask| match Shuffle::of(&pattern(of), ALL, mask) {
            Shuffle::Broadcast(_) => "broadcast".into(),
            Shuffle::Blend(all) => format!("blend {}", all.len()),
            Shuffle::Permute(all) => format!("permute {}", all.len()),
            Shuffle::Gather => "gather".into(),
        };
        assert_eq!(vectors(|_| 3, Lanes), "broadcast");
        assert_eq!(vectors(|l| l, Lanes), "blend 1");
        assert_eq!(vectors(|l| l / 8 * 30 + l % 8, Full), "blend 2");
        assert_eq!(vectors(|l| l / 2, Full), "permute 1");
        assert_eq!(vectors(|l| l / 2, Elements), "permute 1");
        assert_eq!(vectors(|l| l / 2, Lanes), "permute 1");
        assert_eq!(vectors(|l| l / 8, Lanes), "gather");
        assert_eq!(vectors(|l| 2 * l, Full), "permute 2");
        assert_eq!(vectors(|l| 2 * l, Whole), "permute 2");
        assert_eq!(vectors(|l| 2 * l, Lanes), "permute 2");
        assert_eq!(vectors(|l| l / 4 * 16 + l % 4 * 2, Full), "permute 4");
        assert_eq!(vectors(|l| l / 4 * 16 + l % 4 * 2, Lanes), "gather");
        assert_eq!(vectors(|l| 1000 * l, Full), "gather");
        // A mask for each vector takes more than the instruction that gathers.
        assert_eq!(vectors(|l| l / 2 * 20 + l % 2, Full), "blend 8");
        assert_eq!(vectors(|l| l / 2 * 20 + l % 2, Whole), "gather");
        assert_eq!(vectors(|l| l / 8 * 30 + l % 8, Whole), "blend 2");
    }
}
