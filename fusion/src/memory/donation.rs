//! Donation: results and temporaries in the memory of inputs that the caller donates.
//!
//! An input is live up to the last step that reads it. From the next step on its bytes are free; at that step itself
//! they are free for values that may be written in place ([`in_place`]). A result of the same size takes the memory for
//! good, and the caller finds the result in the input. Temporaries share what is left, one after the other.

use super::size::{bytes, first_reading};
use crate::plan::options::Effort;
use adfuse_ir::kernel::{Buffer, BufferData, Lives, Program, Role, Space, Storage, in_place};
use cranelift_entity::{EntitySet, SecondaryMap};
use std::cmp::Reverse;

/// A donated input.
struct DonatedInput {
    input: Buffer,
    bytes: u64,
    /// The last step that reads it; `None` where none does.
    last: Option<usize>,
    /// Whether a result has it.
    taken: bool,
    /// When temporaries are there: the first step and the last.
    there: Vec<(usize, usize)>,
}

/// For each buffer the input in whose memory it is, if it is in one's.
pub(crate) type DonorOf = SecondaryMap<Buffer, Option<Buffer>>;

/// Where results are, and where results and temporaries are: what is in the memory of inputs. With
/// [`Effort::Off`] nothing is.
pub(crate) fn placed(
    program: &Program,
    lives: &Lives,
    effort: Effort,
    reads_again: &[bool],
) -> (DonorOf, DonorOf) {
    let mut found = DonorOf::new();
    if effort == Effort::Off {
        return (found.clone(), found);
    }
    let mut given: Vec<DonatedInput> = Vec::new();
    for (b, data) in program.buffers.iter() {
        // An input that is a result, too, is the caller's.
        let free = data.role == Role::Input && data.donated && !program.outputs.contains(&b);
        if let Some(bytes) = bytes(data).filter(|_| free && is_dense(data)) {
            let last = lives[b].map(|(_, last)| last);
            given.push(DonatedInput { input: b, bytes, last, taken: false, there: Vec::new() });
        }
    }
    if given.is_empty() {
        return (found.clone(), found);
    }
    let results: Vec<Buffer> = results(program).collect();
    let mut ours: EntitySet<Buffer> = EntitySet::new();
    ours.extend(given.iter().map(|g| g.input));
    // In place first: nothing else may be written at that step.
    for n in first_reading(program, reads_again) {
        let dies = |b: Buffer| ours.contains(b) && lives[b].is_some_and(|(_, last)| last == n);
        let made = |b: Buffer| {
            results.contains(&b) && found[b].is_none() && lives[b].is_some_and(|(at, _)| at == n)
        };
        let fit = in_place(program, n, &dies, &made);
        for pair in fit {
            if let Some(g) = given.iter_mut().find(|g| g.input == pair.parent && !g.taken) {
                g.taken = true;
                found[pair.child] = Some(pair.parent);
            }
        }
    }
    for &b in &results {
        let Some((from, _)) = lives[b].filter(|_| found[b].is_none()) else { continue };
        let size = bytes(&program.buffers[b]);
        let fits = |g: &&mut DonatedInput| {
            !g.taken && Some(g.bytes) == size && g.last.is_none_or(|l| l < from)
        };
        if let Some(g) = given.iter_mut().find(fits) {
            g.taken = true;
            found[b] = Some(g.input);
        }
    }
    let results = found.clone();
    temporaries(program, lives, &mut given, &mut found);
    (results, found)
}

/// Results that are one buffer each, and handed over once.
fn results(program: &Program) -> impl Iterator<Item = Buffer> + '_ {
    program.outputs.iter().copied().filter(|b| {
        let data = &program.buffers[*b];
        let once = program.outputs.iter().filter(|o| *o == b).count() == 1;
        data.role == Role::Output && once && is_dense(data)
    })
}

/// Finds room for temporaries, the largest first.
fn temporaries(program: &Program, lives: &Lives, given: &mut [DonatedInput], found: &mut DonorOf) {
    let temp = |(b, data): (Buffer, &BufferData)| {
        let here = data.role == Role::Temp && data.space == Space::Device;
        let (from, last) = lives[b].filter(|_| here)?;
        Some((bytes(data)?, from, last, b))
    };
    let mut temps: Vec<(u64, usize, usize, Buffer)> =
        program.buffers.iter().filter_map(temp).filter(|t| t.0 > 0).collect();
    temps.sort_by_key(|&(size, from, _, b)| (Reverse(size), from, b));
    for (size, from, last, b) in temps {
        let fits = |g: &&mut DonatedInput| {
            let before = g.last.is_none_or(|l| l < from);
            let apart = g.there.iter().all(|&(f, l)| l < from || last < f);
            !g.taken && size <= g.bytes && before && apart
        };
        // The smallest that will do.
        if let Some(g) = given.iter_mut().filter(fits).min_by_key(|g| (g.bytes, g.input)) {
            g.there.push((from, last));
            found[b] = Some(g.input);
        }
    }
}

fn is_dense(data: &BufferData) -> bool {
    data.storage == Storage::Plain && data.strides.is_none() && data.space == Space::Device
}
