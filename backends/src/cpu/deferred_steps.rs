//! Steps of a loop's block that are deferred: what only adds to something that is carried, such as the outer products of a way back
//! that are gradients of weights, is done for several turns at once.
//!
//! An element is then read and written once in several turns, and goes through the same operations in the same order. What
//! such a step reads of a turn is kept until then: elements of stacks are in memory anyway, and temporaries of the block are
//! written to a row of an array for each turn. What is carried so stays in one place.

use crate::runtime::legalize::Legalized;
use adfuse_ir::kernel::{
    Block, BlockInput, Buffer, BufferData, Kernel, Loop, LoopTrips, Program, Role, Step, Storage,
    several_steps, unrolled,
};
use cranelift_entity::EntityRef;

/// How many turns are done at once, if there is room for what they read.
const TURNS: [u64; 2] = [16, 8];

/// The most bytes of temporaries that are kept meanwhile.
const ROOM: u64 = 64 << 10;

/// Steps of a block that are done for several turns at once.
pub(super) struct DeferredSteps {
    /// This many turns.
    pub(super) turns: u64,
    pub(super) steps: Vec<DeferredStep>,
    /// Inputs that are elements of arrays around the loop, with what stands for those of all the turns.
    pub(super) elements: Vec<(Buffer, Buffer)>,
    /// Temporaries, with the array of all the turns.
    pub(super) kept: Vec<(Buffer, Buffer)>,
}

/// A step that is deferred.
pub(super) struct DeferredStep {
    /// Its number among the block's.
    pub(super) step: usize,
    /// What does the turns at once.
    pub(super) kernels: Vec<Kernel>,
    /// What is carried, by position.
    pub(super) carries: Vec<usize>,
}

/// What a kernel that may be deferred changes.
struct CarryChange {
    carry: usize,
    /// Where it is read, and where the next value is written.
    through: [Buffer; 2],
}

impl DeferredSteps {
    /// The steps of a loop's block that may be deferred, if there are any. Buffers that these need are added to the block's program.
    pub(super) fn of(l: &Loop, low: &mut Legalized) -> Option<DeferredSteps> {
        let LoopTrips::Known(trips) = l.trips else { return None };
        if l.back.is_some() {
            return None;
        }
        TURNS.into_iter().find_map(|turns| {
            if trips < 2 * turns { None } else { DeferredSteps::for_turns(l, low, turns) }
        })
    }

    fn for_turns(l: &Loop, low: &mut Legalized, turns: u64) -> Option<DeferredSteps> {
        let program = &low.program;
        let found = candidates(&l.step, program);
        let read: Vec<Buffer> =
            found.iter().flat_map(|(_, all)| all).flat_map(|(k, _)| k.reads()).collect();
        let mut stacked: Vec<(Buffer, bool)> = Vec::new();
        for (b, input) in l.step.bindings() {
            if matches!(input, BlockInput::Element(_)) && read.contains(&b) {
                stacked.push((b, true));
            }
        }
        for (b, data) in program.buffers.iter() {
            if data.role == Role::Temp && read.contains(&b) {
                stacked.push((b, false));
            }
        }
        let kept: u64 = stacked
            .iter()
            .filter(|(_, element)| !element)
            .map(|&(b, _)| program.buffers[b].bytes().saturating_mul(turns))
            .fold(0, u64::saturating_add);
        if found.is_empty() || kept > ROOM {
            return None;
        }
        // Nothing is added before all is known to be possible.
        let first = program.buffers.len();
        let stands = |b: Buffer| {
            let k = stacked.iter().position(|&(one, _)| one == b)?;
            Some(Buffer::new(first + k))
        };
        let rows: Vec<i64> = match l.reverse {
            false => (0..turns as i64).collect(),
            true => (0..turns as i64).rev().collect(),
        };
        let mut steps = Vec::new();
        for (step, all) in found {
            let made: Option<Vec<Kernel>> = all
                .iter()
                .map(|(kernel, change)| several_steps(kernel, change.through, &rows, &stands))
                .collect();
            let Some(kernels) = made else { continue };
            let carries = all.iter().map(|(_, change)| change.carry).collect();
            steps.push(DeferredStep { step, kernels, carries });
        }
        if steps.is_empty() {
            return None;
        }
        let mut deferred = DeferredSteps { turns, steps, elements: Vec::new(), kept: Vec::new() };
        for (b, element) in stacked {
            let one = &low.program.buffers[b];
            let role = if element { Role::Input } else { Role::Temp };
            let mut all = BufferData { role, ..one.clone() };
            all.name = format!("{}.turns{}", one.name, low.program.buffers.len());
            all.dims.insert(0, turns as i64);
            let all = low.program.buffers.push(all);
            if element {
                deferred.elements.push((b, all));
            } else {
                low.temps.push((all, None));
                deferred.kept.push((b, all));
            }
        }
        Some(deferred)
    }
}

/// The steps of a block of which each kernel only changes a carry of its own, with their numbers.
fn candidates(block: &Block, program: &Program) -> Vec<(usize, Vec<(Kernel, CarryChange)>)> {
    let mut found = Vec::new();
    for (n, step) in program.steps.iter().enumerate() {
        let kernels = match step {
            Step::Kernel(kernel) => vec![kernel.clone()],
            Step::Bundle(bundle) => bundle.kernels.clone(),
            Step::Contract(c) => {
                let all: Option<Vec<Kernel>> =
                    c.members.iter().map(|m| unrolled(&c.name, m)).collect();
                all.unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let changes: Option<Vec<CarryChange>> =
            kernels.iter().map(|kernel| change(kernel, block, program)).collect();
        let Some(changes) = changes.filter(|all| !all.is_empty()) else { continue };
        let reads = |b: Buffer| kernels.iter().filter(|k| k.reads().any(|r| r == b)).count();
        if changes.iter().all(|change| reads(change.through[0]) == 1) {
            found.push((n, kernels.into_iter().zip(changes).collect()));
        }
    }
    found
}

/// What a kernel changes, if that is one carry of the loop, which nothing else reads, and all else that it reads is there when several
/// turns are over.
fn change(kernel: &Kernel, block: &Block, program: &Program) -> Option<CarryChange> {
    let mut writes = kernel.writes();
    let (next, None) = (writes.next()?, writes.next()) else { return None };
    let carries = |b: Buffer| {
        block.bindings().find_map(|(own, input)| match input {
            BlockInput::Carry(k) if own == b => Some(k),
            _ => None,
        })
    };
    let carry = kernel.reads().find_map(|b| {
        let k = carries(b)?;
        (program.outputs.get(k) == Some(&next)).then_some((k, b))
    });
    let (carry, from) = carry?;
    let plain = |b: Buffer| {
        let data = &program.buffers[b];
        data.storage == Storage::Plain && data.strides.is_none()
    };
    let lasts = kernel.reads().filter(|&b| b != from).all(|b| {
        let role = &program.buffers[b].role;
        let input = block.bindings().find(|(own, _)| *own == b).map(|(_, input)| input);
        plain(b)
            && match input {
                Some(BlockInput::Whole(_) | BlockInput::Element(_)) => true,
                Some(_) => false,
                None => matches!(role, Role::Temp | Role::Constant(_)),
            }
    });
    let times = |b: Buffer| {
        let reads = program.steps.iter().filter(|step| step.reads().any(|read| read == b)).count();
        reads + program.outputs.iter().filter(|&&output| output == b).count()
    };
    // The step itself reads what is carried, and the loop the next value.
    let alone = times(from) == 1 && times(next) == 1 && program.buffers[next].role == Role::Output;
    (plain(from) && plain(next) && lasts && alone)
        .then_some(CarryChange { carry, through: [from, next] })
}
