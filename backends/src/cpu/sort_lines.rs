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

/// Equal numbers of at least this many entries are put in order like a line, and fewer by comparisons.
const RUN: usize = 64;

/// A number above a position of 32 bits. No two entries of a line are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub(super) struct SortEntry(u64);

impl SortEntry {
    /// The entry of a number at a position.
    #[inline(always)]
    pub(super) fn of(number: u32, position: i64) -> SortEntry {
        SortEntry(u64::from(number) << 32 | position as u64)
    }

    fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The position.
    pub(super) fn place(self) -> u32 {
        self.0 as u32
    }
}

/// How many further entries a line of this length has room for while it is sorted, of which this many first ones are wanted.
pub(super) fn further_entries(long: i64, count: i64) -> i64 {
    let [least, most] = DIGITS.map(|n| n as i64);
    if count >= long && (least..=most).contains(&long) { long } else { 0 }
}

/// Puts the entries of a line in order, which come in that of their positions; there is room for [`further_entries`] of them.
/// Among equal numbers a lower half decides, where positions have that. Entries are then known by their positions alone.
pub(super) fn in_order(
    entries: &mut [SortEntry],
    room: &mut [SortEntry],
    lower: Option<impl Fn(i64) -> u32>,
) {
    sort(entries, room);
    let Some(lower) = lower else { return };
    let mut begin = 0;
    while begin < entries.len() {
        let end = begin + equal_numbers(&entries[begin..]);
        let run = &mut entries[begin..end];
        if run.len() > 1 {
            by_lower_halves(run, &lower);
            // They are in the order of their positions.
            if run.len() < RUN { run.sort_unstable() } else { sort(run, room) }
        }
        begin = end;
    }
}

/// Puts the first ones of a line in order, this many, which is fewer than all.
pub(super) fn first_in_order(
    entries: &mut [SortEntry],
    count: usize,
    lower: Option<impl Fn(i64) -> u32>,
) {
    entries.select_nth_unstable(count - 1);
    let Some(lower) = lower else { return entries[..count].sort_unstable() };
    let last = entries[count - 1].number();
    // Entries with the last number that is wanted may be among the first ones or not, by their lower halves.
    let mut end = count;
    for k in count..entries.len() {
        if entries[k].number() == last {
            entries.swap(k, end);
            end += 1;
        }
    }
    entries[..count].sort_unstable();
    let same = entries[..count].partition_point(|e| e.number() < last);
    in_order(&mut entries[..same], &mut [], Some(&lower));
    let run = &mut entries[same..end];
    by_lower_halves(run, &lower);
    let wanted = count - same;
    if wanted < run.len() {
        run.select_nth_unstable(wanted - 1);
    }
    run[..wanted].sort_unstable();
}

/// How many entries from the first on have its number.
fn equal_numbers(entries: &[SortEntry]) -> usize {
    let number = entries.first().map(|e| e.number());
    entries.iter().take_while(|e| Some(e.number()) == number).count()
}

/// Entries of equal numbers have lower halves in their place.
fn by_lower_halves(run: &mut [SortEntry], lower: &impl Fn(i64) -> u32) {
    for e in run {
        *e = SortEntry::of(lower(e.place().into()), e.place().into());
    }
}

/// Puts entries in order, which come in that of their positions.
fn sort(entries: &mut [SortEntry], room: &mut [SortEntry]) {
    match entries.len() {
        0..=RANKED => by_ranks(entries),
        n if n >= DIGITS[0] && room.len() >= n => by_digits(entries, &mut room[..n]),
        _ => entries.sort_unstable(),
    }
}

/// Each entry goes to as many places behind the first as there are smaller ones. No comparison decides where to go on.
fn by_ranks(entries: &mut [SortEntry]) {
    // Whole groups of eight, so that loops have no rest.
    let (n, mut all, mut sorted) =
        (entries.len(), [SortEntry(u64::MAX); RANKED], [SortEntry(0); RANKED]);
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
fn by_digits(entries: &mut [SortEntry], room: &mut [SortEntry]) {
    let digit = |x: u32, d: usize| (x >> (BITS * d as u32) & ((1 << BITS) - 1)) as usize;
    let mut counts = [[0u32; 1 << BITS]; COUNT];
    let (first, mut varying) = (entries.first().map_or(0, |e| e.number()), 0);
    for &x in entries.iter() {
        varying |= x.number() ^ first;
        for (d, counts) in counts.iter_mut().enumerate() {
            counts[digit(x.number(), d)] += 1;
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
            let next = &mut next[digit(x.number(), d)];
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

    fn random() -> impl FnMut() -> u64 {
        let mut state = 9u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state ^ state >> 32
        }
    }

    /// Lines of every length near the limits.
    fn lengths() -> impl Iterator<Item = usize> {
        (0..70).chain(250..262).chain([1000, DIGITS[1], DIGITS[1] + 1])
    }

    fn room(n: usize, count: usize) -> Vec<SortEntry> {
        vec![SortEntry(0); further_entries(n as i64, count as i64) as usize]
    }

    /// Of many equal numbers and of few.
    #[test]
    fn lines_are_sorted() {
        let mut random = random();
        for n in lengths() {
            for mask in [0, 3, 0xff00, 0xffff_0000, 0xffff_ffff] {
                let entries: Vec<SortEntry> =
                    (0..n as i64).map(|k| SortEntry::of(random() as u32 & mask, k)).collect();
                let (mut found, mut wanted) = (entries.clone(), entries);
                in_order(&mut found, &mut room(n, n), None::<fn(i64) -> u32>);
                wanted.sort_unstable();
                assert_eq!(found, wanted, "{n} numbers of {mask:x}");
            }
        }
    }

    /// Of upper halves that are equal, in part or never, all of a line or the first ones.
    #[test]
    fn lines_of_numbers_of_64_bits_are_sorted() {
        let mut random = random();
        for n in lengths().filter(|&n| n > 0) {
            for mask in [0, 3, 0xff00_0000, 7 << 31, 0x1f << 30, 0xff << 32 | 1, u64::MAX] {
                let numbers: Vec<u64> = (0..n).map(|_| random() & mask).collect();
                let mut wanted: Vec<(u64, u32)> = numbers.iter().copied().zip(0..).collect();
                wanted.sort_unstable();
                let lower = || Some(|k: i64| numbers[k as usize] as u32);
                let entries: Vec<SortEntry> = numbers
                    .iter()
                    .zip(0..)
                    .map(|(x, k)| SortEntry::of((x >> 32) as u32, k))
                    .collect();
                for count in [n, n.div_ceil(2), n - 1, 1].into_iter().filter(|&c| c > 0) {
                    let mut found = entries.clone();
                    match count < n {
                        true => first_in_order(&mut found, count, lower()),
                        false => in_order(&mut found, &mut room(n, n), lower()),
                    }
                    let found = found[..count].iter().map(|e| e.place());
                    assert!(
                        found.eq(wanted[..count].iter().map(|w| w.1)),
                        "{count} of {n}, {mask:x}"
                    );
                }
            }
        }
    }
}
