//! Sorts the entries of a line: numbers with a position each. Short lines are sorted by ranks, long ones by the digits of their numbers,
//! and what is between or longer by comparisons.

/// Entries that are sorted by ranks, at most: each is compared with all.
const RANKED: usize = 32;

/// Entries that are sorted by digits: below, the counts of digits take longer than the entries, and beyond, so does memory.
const DIGITS: [usize; 2] = [256, 1 << 16];

/// Bits of a digit.
const BITS: u32 = 8;

/// Digits of a number.
const COUNT: usize = (32 / BITS) as usize;

/// A number above a position of 32 bits. No two entries of a line are equal.
pub(super) trait SortEntry: Ord + Copy {
    /// The shortest and the longest lines that are sorted by digits, by way of as many further entries; none where there are
    /// none.
    const BY_DIGITS: Option<[usize; 2]>;

    /// Puts entries in order. They come in the order of their positions; there is room for [`further_entries`] of them.
    fn sort(entries: &mut [Self], room: &mut [Self]);

    /// The position.
    fn place(self) -> u32;
}

/// How many further entries a line of this length has room for while it is sorted, of which this many first ones are wanted.
pub(super) fn further_entries<T: SortEntry>(long: i64, count: i64) -> i64 {
    let lengths = T::BY_DIGITS.filter(|_| count >= long);
    let sorts = |[least, most]: [usize; 2]| (least as i64..=most as i64).contains(&long);
    if lengths.is_some_and(sorts) { long } else { 0 }
}

impl SortEntry for u64 {
    const BY_DIGITS: Option<[usize; 2]> = Some(DIGITS);

    fn sort(entries: &mut [u64], room: &mut [u64]) {
        match entries.len() {
            0..=RANKED => by_ranks(entries),
            n if n >= DIGITS[0] && room.len() >= n => by_digits(entries, &mut room[..n]),
            _ => entries.sort_unstable(),
        }
    }

    fn place(self) -> u32 {
        self as u32
    }
}

impl SortEntry for u128 {
    const BY_DIGITS: Option<[usize; 2]> = None;

    fn sort(entries: &mut [u128], _: &mut [u128]) {
        entries.sort_unstable();
    }

    fn place(self) -> u32 {
        self as u32
    }
}

/// Each entry goes to as many places behind the first as there are smaller ones. No comparison decides where to go on.
fn by_ranks(entries: &mut [u64]) {
    // Whole groups of eight, so that loops have no rest.
    let (n, mut all, mut sorted) = (entries.len(), [u64::MAX; RANKED], [0; RANKED]);
    all[..n].copy_from_slice(entries);
    let others = &all[..n.next_multiple_of(8)];
    for &x in entries.iter() {
        let smaller: usize = others.iter().map(|&y| usize::from(y < x)).sum();
        sorted[smaller] = x;
    }
    entries.copy_from_slice(&sorted[..n]);
}

/// By the lowest digit of the numbers first, each pass keeping the order of the one before. Digits that all have in common are left out, and
/// positions are in order from the beginning.
fn by_digits(entries: &mut [u64], room: &mut [u64]) {
    let digit = |x: u64, d: usize| (x >> (32 + BITS * d as u32) & ((1 << BITS) - 1)) as usize;
    let mut counts = [[0u32; 1 << BITS]; COUNT];
    let (first, mut varying) = (entries.first().copied().unwrap_or(0), 0);
    for &x in entries.iter() {
        varying |= x ^ first;
        for (d, counts) in counts.iter_mut().enumerate() {
            counts[digit(x, d)] += 1;
        }
    }
    let mut is_moved = false;
    for (d, next) in counts.iter_mut().enumerate() {
        if digit(varying, d) == 0 {
            continue;
        }
        let mut begin = 0;
        for count in next.iter_mut() {
            (*count, begin) = (begin, begin + *count);
        }
        let (from, to) = match is_moved {
            false => (&*entries, &mut *room),
            true => (&*room, &mut *entries),
        };
        for &x in from {
            let next = &mut next[digit(x, d)];
            to[*next as usize] = x;
            *next += 1;
        }
        is_moved = !is_moved;
    }
    if is_moved {
        entries.copy_from_slice(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of every length near the limits, of many equal numbers and of few.
    #[test]
    fn lines_are_sorted() {
        let mut state = 9u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 32
        };
        let lengths = (0..70).chain(250..262).chain([1000, DIGITS[1], DIGITS[1] + 1]);
        for n in lengths {
            for mask in [0, 3, 0xff00, 0xffff_0000, 0xffff_ffff] {
                let entries: Vec<u64> =
                    (0..n as u64).map(|k| (random() & mask) << 32 | k).collect();
                let (mut found, mut wanted) = (entries.clone(), entries);
                u64::sort(
                    &mut found,
                    &mut vec![0; further_entries::<u64>(n as i64, n as i64) as usize],
                );
                wanted.sort_unstable();
                assert_eq!(found, wanted, "{n} numbers of {mask:x}");
            }
        }
    }
}
