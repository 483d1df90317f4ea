//! Donation: results in the memory of inputs that the caller donates.
//!
//! An input is live up to the last step that reads it. From the next step on its bytes are free; at that step itself
//! they are free for values that may be written in place ([`in_place`]). A result of the same size takes the memory for
//! good, and the caller finds the result in the input. What is free before and after is for temporaries
//! ([`super::donors`]).

use super::arena::ArenaRequest;
use super::layout::DonorOf;
use super::size::{bytes, first_reading};
use adfuse_ir::kernel::{Buffer, DonorSlice, Program, Role, is_donor, misplaced};
use cranelift_entity::EntitySet;

/// A donated input.
struct DonatedInput {
    input: Buffer,
    bytes: u64,
    /// The last step that reads it; `None` where none does.
    last: Option<usize>,
    /// Whether a result has it.
    taken: bool,
}

/// Which results are in the memory of donated inputs.
pub(super) fn results_in_inputs(wanted: &ArenaRequest<'_>) -> DonorOf {
    let ArenaRequest { program, uses, lives, reads_again, .. } = *wanted;
    let mut found = DonorOf::new();
    let mut given: Vec<DonatedInput> = Vec::new();
    for (b, data) in program.buffers.iter() {
        if let Some(bytes) =
            bytes(data).filter(|_| data.role == Role::Input && is_donor(program, b))
        {
            let last = lives[b].map(|(_, last)| last);
            given.push(DonatedInput { input: b, bytes, last, taken: false });
        }
    }
    if given.is_empty() {
        return found;
    }
    let results: Vec<Buffer> = results(program).collect();
    let mut ours: EntitySet<Buffer> = EntitySet::new();
    ours.extend(given.iter().map(|g| g.input));
    // In place first: nothing else may be written at that step.
    for n in first_reading(uses, reads_again) {
        let dies = |b: Buffer| ours.contains(b) && lives[b].is_some_and(|(_, last)| last == n);
        let made = |b: Buffer| {
            results.contains(&b) && found[b].is_none() && lives[b].is_some_and(|(at, _)| at == n)
        };
        let fit = uses.in_place(n, &dies, &made);
        for pair in fit {
            let slice = DonorSlice::start(pair.parent);
            let g = given.iter_mut().find(|g| g.input == pair.parent && !g.taken);
            if let Some(g) = g.filter(|_| misplaced(program, pair.child, slice).is_none()) {
                g.taken = true;
                found[pair.child] = Some(slice);
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
            found[b] = Some(DonorSlice::start(g.input));
        }
    }
    found
}

/// Results that are one buffer each, and handed over once.
fn results(program: &Program) -> impl Iterator<Item = Buffer> + '_ {
    program.outputs.iter().copied().filter(|&b| {
        let once = program.outputs.iter().filter(|&&o| o == b).count() == 1;
        program.buffers[b].role == Role::Output && once && is_donor(program, b)
    })
}
