//! Layouts: the offsets of a program's temporaries, and the check that no two live values share a byte.
//!
//! Machine code and user functions rely on it: no one else accesses the memory that a step writes while it runs. A
//! layout is plain data that anyone can make, so executables check it.

use adfuse_ir::kernel::{
    Buffer, DonorSlice, Lives, Program, Role, SpacedSteps, in_place, is_donor, lives, misplaced,
    spaced_lives, spaced_until,
};
use adfuse_ir::{At, Diagnostic, Kind};
use adfuse_memplan::{BufferId, BufferSpec, Offset, Problem, Violation, check_offsets};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use std::collections::BTreeMap;
use std::ops::Range;

/// The offsets of a program's temporaries in the arena.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ArenaLayout {
    /// Bytes of the arena.
    pub bytes: u64,
    /// The offset of each temporary, a multiple of 64; the engine finds room outside the arena for those
    /// without.
    pub offsets: SecondaryMap<Buffer, Option<u64>>,
    /// For each step, the offset of its scratch memory, a multiple of 64, and how many bytes
    /// ([`scratch`](super::backend::Prepared::scratch) says how many it needs); the engine finds room beside the arena where
    /// there is nothing, or not enough.
    pub scratch: Vec<Option<(u64, u64)>>,
    /// For results and temporaries that are in arrays of the caller, where. Of an input the program says that the
    /// caller gives it up; runs are then those of
    /// [`Executable::run_donating`](super::backend::Executable::run_donating). In the array of a result there may be
    /// temporaries until it is written.
    pub in_donor: SecondaryMap<Buffer, Option<DonorSlice>>,
    /// Steps that may run at the same time, in the order of the program: what each of them uses is used for nothing else for
    /// some steps more.
    pub apart: Vec<SpacedSteps>,
}

/// The owner of bytes in a layout.
#[derive(Clone, Copy)]
enum Tenant {
    /// A buffer, in the arena or in an array of the caller.
    Buffer(Buffer),
    /// The scratch memory of a step.
    Scratch(usize),
}

/// Errs unless whatever a layout puts in the same bytes is in use at different times, or is written in place
/// ([`in_place`]). `reads_again` says of each step whether it reads again what it has read when it has begun to
/// write; steps that are not listed read first.
///
/// # Errors
/// [`Kind::Usage`] with the names of the two, at the step at which both are in use; also for the offset of what
/// is no temporary.
pub fn check(
    program: &Program,
    layout: &ArenaLayout,
    reads_again: &[bool],
) -> Result<(), Diagnostic> {
    let residents = Residents::of(program, layout)?;
    let problem = residents.with_pairs(program, reads_again);
    let wrong = |tenant: Tenant, m: String, step: Option<usize>| misfit(program, tenant, &m, step);
    match check_offsets(&problem, &residents.offsets) {
        Ok(_) => Ok(()),
        Err(Violation::Overlap { a, b, time, .. }) => {
            let [a, b] = [a, b].map(|id| residents.tenants[id]);
            let step = usize::try_from(time.start.saturating_sub(FIRST)).ok();
            let m = format!("has bytes that {} has at the same time", name(program, b));
            Err(wrong(a, m, step))
        }
        Err(Violation::Overflow { buffer, .. }) => {
            Err(wrong(residents.tenants[buffer], "is outside".into(), None))
        }
        Err(other) => {
            let m = format!("the layout of the arena does not fit: {other}");
            Err(Diagnostic::new(at(program, None), Kind::Usage, m))
        }
    }
}

/// The time of the first step; inputs are live before it.
const FIRST: u64 = 1;

/// All tenants of a layout as a problem of the memory planner.
struct Residents {
    problem: Problem,
    offsets: PrimaryMap<BufferId, Offset>,
    tenants: PrimaryMap<BufferId, Tenant>,
}

impl Residents {
    fn of(program: &Program, layout: &ArenaLayout) -> Result<Residents, Diagnostic> {
        let lives = spaced_lives(lives(program), &layout.apart);
        let starts = starts(program, layout)?;
        let mut found = Residents {
            problem: Problem::new(),
            offsets: PrimaryMap::new(),
            tenants: PrimaryMap::new(),
        };
        for (b, data) in program.buffers.iter() {
            let at = match (layout.in_donor[b], layout.offsets[b]) {
                (Some(slice), _) => {
                    let wrong = |m: &str| misfit(program, Tenant::Buffer(b), m, None);
                    if let Some(m) = misplaced(program, b, slice) {
                        return Err(wrong(m));
                    }
                    let start = starts[slice.donor].ok_or_else(|| wrong(NOT_THERE))?;
                    start.checked_add(slice.at).ok_or_else(|| wrong("is outside"))?
                }
                (None, Some(_)) if data.role != Role::Temp => {
                    return Err(misfit(program, Tenant::Buffer(b), "is no temporary", None));
                }
                (None, Some(at)) => at,
                (None, None) => match starts[b] {
                    Some(start) => start,
                    // The engine finds room beside the arena, or the caller has it and nothing else is there.
                    None => continue,
                },
            };
            if let Some(live) = live(program, &lives, b) {
                found.push(Tenant::Buffer(b), live, at, data.bytes());
            }
        }
        for n in 0..program.steps.len() {
            if let Some((at, bytes)) = layout.scratch.get(n).copied().flatten() {
                let last = spaced_until(&layout.apart, n) as u64 + FIRST;
                found.push(Tenant::Scratch(n), n as u64 + FIRST..last + 1, at, bytes);
            }
        }
        Ok(found)
    }

    fn push(&mut self, tenant: Tenant, live: Range<u64>, at: u64, bytes: u64) {
        self.problem.push(BufferSpec::new(live, bytes));
        self.offsets.push(Offset(at));
        self.tenants.push(tenant);
    }

    /// The question, with the pairs that begin at one place and may be in place.
    fn with_pairs(&self, program: &Program, reads_again: &[bool]) -> Problem {
        // By where they begin and when they are last in use.
        let mut dying: BTreeMap<(Offset, u64), Vec<(BufferId, Buffer)>> = BTreeMap::new();
        for (id, &tenant) in &self.tenants {
            if let Tenant::Buffer(b) = tenant {
                let key = (self.offsets[id], self.problem.buffers[id].live.end);
                dying.entry(key).or_default().push((id, b));
            }
        }
        let mut problem = self.problem.clone();
        for (id, &tenant) in &self.tenants {
            let Tenant::Buffer(child) = tenant else { continue };
            let born = self.problem.buffers[id].live.start;
            let Some(n) = born.checked_sub(FIRST).and_then(|n| usize::try_from(n).ok()) else {
                continue;
            };
            if n >= program.steps.len() || reads_again.get(n) == Some(&true) {
                continue;
            }
            let parents = dying.get(&(self.offsets[id], born + 1)).map_or(&[][..], Vec::as_slice);
            for &(of, parent) in parents {
                let before = self.problem.buffers[of].live.start < born;
                if before && !in_place(program, n, &|b| b == parent, &|b| b == child).is_empty() {
                    problem.may_share(id, of);
                }
            }
        }
        problem
    }
}

/// When a buffer is in use: the caller's from before the first step on, and what is handed over to the end.
fn live(program: &Program, lives: &Lives, b: Buffer) -> Option<Range<u64>> {
    let is_handed = program.outputs.contains(&b);
    let end = program.steps.len() as u64 + FIRST + 1;
    let (first, last) = match lives[b] {
        Some((first, last)) => (first as u64 + FIRST, last as u64 + FIRST + 1),
        None if is_handed => (end, end),
        None => return None,
    };
    let first = if program.buffers[b].role == Role::Input { 0 } else { first };
    Some(first..if is_handed { end } else { last })
}

/// What is wrong with a result in whose array something is to be, and which is in the memory of an input itself.
const NOT_THERE: &str = "is in the array of a result that is in the memory of an input";

/// Where each array that a buffer is put into begins, were they all behind the arena.
fn starts(
    program: &Program,
    layout: &ArenaLayout,
) -> Result<SecondaryMap<Buffer, Option<u64>>, Diagnostic> {
    let mut used: SecondaryMap<Buffer, bool> = SecondaryMap::new();
    let slices = program.buffers.keys().filter_map(|b| layout.in_donor[b]);
    slices.for_each(|slice| used[slice.donor] = true);
    let mut starts = SecondaryMap::new();
    let mut next = layout.bytes;
    for (b, data) in program.buffers.iter() {
        if used[b] && is_donor(program, b) && layout.in_donor[b].is_none() {
            starts[b] = Some(next);
            let end = next.checked_add(data.bytes());
            next = end.ok_or_else(|| misfit(program, Tenant::Buffer(b), "is outside", None))?;
        }
    }
    Ok(starts)
}

fn name(program: &Program, tenant: Tenant) -> String {
    match tenant {
        Tenant::Buffer(b) => format!("%{}", program.buffers[b].name),
        Tenant::Scratch(n) => format!("the scratch of step {n}"),
    }
}

fn misfit(program: &Program, tenant: Tenant, why: &str, step: Option<usize>) -> Diagnostic {
    let m = format!("the layout of the arena does not fit: {} {why}", name(program, tenant));
    Diagnostic::new(at(program, step), Kind::Usage, m)
}

fn at(program: &Program, step: Option<usize>) -> At {
    let step = step.and_then(|n| Some((n, program.steps.get(n)?)));
    let inst = step.map(|(n, step)| format!("step {n}: {}", step.title()));
    At { func: Some(program.name.clone()), inst: inst.map(Into::into), ..At::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::{text::parse, verify};

    #[test]
    fn in_place_is_for_steps_that_read_first() {
        let text = "program @f {
          input %x: f32[40]
          temp %t: f32[40]
          temp %u: f32[40]
          output %y: f32[40]
          kernel @a [40] { stage [] { p0 = load %x[d0] s0 = param.f32 0 %t[d0] = store s0 } }
          kernel @b [40] { stage [] { p0 = load %t[d0] s0 = param.f32 0 %u[d0] = store s0 } }
          kernel @c [40] { stage [] { p0 = load %u[d0] s0 = param.f32 0 %y[d0] = store s0 } }
          return %y
        }";
        let program = verify(parse(text).expect("reads")).expect("verifies");
        let mut layout = ArenaLayout { bytes: 192, ..ArenaLayout::default() };
        let temps = program.buffers.iter().filter(|(_, data)| data.role == Role::Temp);
        temps.for_each(|(b, _)| layout.offsets[b] = Some(0));
        for (reads_again, fits) in [
            (&[][..], true),
            (&[true, false, true], true),
            (&[false, true, false], false),
            (&[true, true], false),
        ] {
            let found = check(&program, &layout, reads_again);
            assert_eq!(found.is_ok(), fits, "{reads_again:?}: {found:?}");
        }
        layout.bytes = u64::MAX;
        layout.scratch = vec![Some((u64::MAX - 63, 128))];
        assert_eq!(check(&program, &layout, &[]).expect_err("too far").kind, Kind::Usage);
    }
}
