//! Visits the buffers that a step reads and writes; every analysis uses this.

use super::block::{Block, BlockInput, Carry, Loop, LoopTrips};
use super::buffer::{Buffer, Extents};
use super::program::{DebugPrint, Feed, Member, Step};
use super::stage::{Kernel, Operand, Param, Sink, Stage};
use crate::attrs::Attr;
use crate::op::Op;
use hashbrown::HashSet;
use smallvec::SmallVec;
use std::fmt;

/// The buffers that a visit meets, each once, in the order in which it meets them first.
fn each_once(visit: impl FnOnce(&mut dyn FnMut(Buffer))) -> smallvec::IntoIter<[Buffer; 8]> {
    let mut list: SmallVec<[Buffer; 8]> = SmallVec::new();
    let mut seen = HashSet::new();
    visit(&mut |b| {
        if seen.insert(b) {
            list.push(b);
        }
    });
    list.into_iter()
}

impl Kernel {
    /// The buffers it reads, each once, in the order in which its text names them first.
    pub fn reads(&self) -> impl Iterator<Item = Buffer> + use<> {
        each_once(|met| self.stages.iter().for_each(|s| stage_reads(s, met)))
    }

    /// The buffers it writes, each once, in the order in which its text names them first.
    pub fn writes(&self) -> impl Iterator<Item = Buffer> + use<> {
        each_once(|met| self.stages.iter().for_each(|s| stage_writes(s, met)))
    }
}

impl Step {
    /// The buffers it reads, each once, in the order in which its text names them first.
    pub fn reads(&self) -> impl Iterator<Item = Buffer> + use<> {
        each_once(|met| self.visit_reads(met))
    }

    /// The buffers it writes, each once, in the order in which its text names them first.
    pub fn writes(&self) -> impl Iterator<Item = Buffer> + use<> {
        each_once(|met| self.visit_writes(met))
    }

    /// How often it names a buffer.
    pub fn mentions(&self, buffer: Buffer) -> usize {
        let mut count = 0;
        let mut met = |b: Buffer| count += usize::from(b == buffer);
        self.visit_reads(&mut met);
        self.visit_writes(&mut met);
        count
    }

    fn visit_reads(&self, met: &mut dyn FnMut(Buffer)) {
        match self {
            Step::Kernel(k) => k.stages.iter().for_each(|s| stage_reads(s, met)),
            Step::Bundle(b) => {
                b.kernels.iter().flat_map(|k| &k.stages).for_each(|s| stage_reads(s, met));
            }
            Step::Contract(c) => {
                for m in &c.members {
                    m.feeds().iter().for_each(|(_, f, _)| params_reads(&f.params, met));
                    stage_reads(&m.then, met);
                }
            }
            Step::Attend(a) => a.inputs.iter().copied().for_each(met),
            Step::Scatter(s) => {
                operand_reads(&s.from, met);
                params_reads(&s.params, met);
            }
            Step::Argsort(a) => met(a.from),
            Step::Library(l) => l.inputs.iter().copied().for_each(met),
            Step::Transfer(t) => met(t.from),
            Step::Exchange(e) => e.from.iter().copied().for_each(met),
            Step::Print(p) => met(p.from),
            Step::Loop(l) => {
                l.trips.bounds().into_iter().for_each(&mut *met);
                l.all_carries().for_each(|c| operand_reads(&c.from, met));
                l.blocks().flat_map(Block::reads).for_each(met);
            }
            Step::Branch(branch) => {
                met(branch.selector);
                branch.blocks.iter().flat_map(Block::reads).for_each(met);
            }
        }
    }

    fn visit_writes(&self, met: &mut dyn FnMut(Buffer)) {
        match self {
            Step::Kernel(k) => k.stages.iter().for_each(|s| stage_writes(s, met)),
            Step::Bundle(b) => {
                b.kernels.iter().flat_map(|k| &k.stages).for_each(|s| stage_writes(s, met));
            }
            Step::Contract(c) => c.members.iter().for_each(|m| stage_writes(&m.then, met)),
            Step::Attend(a) => a.outputs.iter().copied().for_each(met),
            Step::Scatter(s) => met(s.out),
            Step::Argsort(a) => met(a.out),
            Step::Library(l) => l.outputs.iter().copied().for_each(met),
            Step::Transfer(t) => met(t.to),
            Step::Exchange(e) => met(e.to),
            Step::Print(_) => {}
            Step::Loop(l) => {
                l.all_carries().for_each(|c| met(c.to));
                l.all_stacks().for_each(met);
            }
            Step::Branch(branch) => branch.outputs.iter().copied().for_each(met),
        }
    }

    /// Visits every mention of a buffer, in an order that depends on nothing but the step's structure. Buffers inside
    /// of the programs that it runs are those programs' own, and not visited.
    pub fn buffers_mut(&mut self, visit: &mut dyn FnMut(&mut Buffer)) {
        match self {
            Step::Kernel(k) => k.stages.iter_mut().for_each(|s| stage_mut(s, visit)),
            Step::Bundle(b) => {
                let stages = b.kernels.iter_mut().flat_map(|k| &mut k.stages);
                stages.for_each(|s| stage_mut(s, visit));
            }
            Step::Print(print) => visit(&mut print.from),
            Step::Contract(c) => {
                for m in &mut c.members {
                    params_mut(&mut m.lhs.params, visit);
                    params_mut(&mut m.rhs.params, visit);
                    stage_mut(&mut m.then, visit);
                }
            }
            Step::Attend(a) => a.inputs.iter_mut().chain(&mut a.outputs).for_each(visit),
            Step::Scatter(s) => {
                operand_mut(&mut s.from, visit);
                params_mut(&mut s.params, visit);
                visit(&mut s.out);
            }
            Step::Argsort(a) => [&mut a.from, &mut a.out].into_iter().for_each(visit),
            Step::Library(l) => l.inputs.iter_mut().chain(&mut l.outputs).for_each(visit),
            Step::Transfer(t) => [&mut t.from, &mut t.to].into_iter().for_each(visit),
            Step::Exchange(e) => e.from.iter_mut().chain([&mut e.to]).for_each(visit),
            Step::Loop(l) => loop_mut(l, visit),
            Step::Branch(branch) => {
                visit(&mut branch.selector);
                branch.blocks.iter_mut().for_each(|block| block_mut(block, visit));
                branch.outputs.iter_mut().for_each(visit);
            }
        }
    }

    /// The word that it begins with in text; what it does, where that is no word.
    pub fn kind(&self) -> &'static str {
        match self {
            Step::Kernel(_) => "kernel",
            Step::Contract(_) => "contract",
            Step::Attend(a) => a.op().name(),
            Step::Scatter(_) => "scatter",
            Step::Argsort(_) => "argsort",
            Step::Library(_) => "library",
            Step::Transfer(_) => "transfer",
            Step::Exchange(e) => e.op().name(),
            Step::Print(_) => Op::DebugPrint.name(),
            Step::Loop(_) => "loop",
            Step::Branch(_) => "branch",
            Step::Bundle(_) => "bundle",
        }
    }

    /// Its name; its kind where it has none.
    pub fn name(&self) -> &str {
        match self {
            Step::Kernel(k) => &k.name,
            Step::Contract(c) => &c.name,
            Step::Library(l) => &l.function,
            Step::Loop(l) => &l.name,
            Step::Branch(branch) => &branch.name,
            Step::Bundle(bundle) => &bundle.name,
            Step::Attend(_)
            | Step::Scatter(_)
            | Step::Argsort(_)
            | Step::Transfer(_)
            | Step::Exchange(_)
            | Step::Print(_) => self.kind(),
        }
    }

    /// What people know it by: its word and, where it has one, its name.
    pub fn title(&self) -> impl fmt::Display + '_ {
        Title(self)
    }
}

fn operand_reads(operand: &Operand, met: &mut dyn FnMut(Buffer)) {
    if let Operand::Buffer(b) = operand {
        met(*b);
    }
}

fn params_reads(params: &[Param], met: &mut dyn FnMut(Buffer)) {
    for param in params {
        if let Param::Load(pieces) = param {
            pieces.iter().for_each(|piece| operand_reads(&piece.from, met));
        }
    }
}

/// What a stage reads, and what follows its folds.
fn stage_reads(stage: &Stage, met: &mut dyn FnMut(Buffer)) {
    params_reads(&stage.params, met);
    for sink in &stage.sinks {
        if let Sink::Fold { then, .. } = sink {
            stage_reads(then, met);
        }
    }
}

fn stage_writes(stage: &Stage, met: &mut dyn FnMut(Buffer)) {
    for sink in &stage.sinks {
        match sink {
            Sink::Store { buffer, .. } => met(*buffer),
            Sink::Fold { then, .. } => stage_writes(then, met),
            Sink::Reduce { .. } | Sink::Scan { .. } | Sink::Keep(_) | Sink::Leave(_) => {}
        }
    }
}

fn operand_mut(operand: &mut Operand, visit: &mut dyn FnMut(&mut Buffer)) {
    if let Operand::Buffer(b) = operand {
        visit(b);
    }
}

fn params_mut(params: &mut [Param], visit: &mut dyn FnMut(&mut Buffer)) {
    for param in params {
        if let Param::Load(pieces) = param {
            pieces.iter_mut().for_each(|piece| operand_mut(&mut piece.from, visit));
        }
    }
}

fn stage_mut(stage: &mut Stage, visit: &mut dyn FnMut(&mut Buffer)) {
    params_mut(&mut stage.params, visit);
    for sink in &mut stage.sinks {
        match sink {
            Sink::Store { buffer, .. } => visit(buffer),
            Sink::Fold { then, .. } => stage_mut(then, visit),
            Sink::Reduce { .. } | Sink::Scan { .. } | Sink::Keep(_) | Sink::Leave(_) => {}
        }
    }
}

fn block_mut(block: &mut Block, visit: &mut dyn FnMut(&mut Buffer)) {
    for input in &mut block.inputs {
        if let BlockInput::Element(b) | BlockInput::Whole(b) = input {
            visit(b);
        }
    }
}

fn loop_mut(step: &mut Loop, visit: &mut dyn FnMut(&mut Buffer)) {
    match &mut step.trips {
        LoopTrips::Known(_) => {}
        LoopTrips::Count(n) => visit(n),
        LoopTrips::Range(from, to) => [from, to].into_iter().for_each(&mut *visit),
        LoopTrips::While { test, .. } => block_mut(test, visit),
    }
    let carries = |carries: &mut [Carry], visit: &mut dyn FnMut(&mut Buffer)| {
        for carry in carries {
            operand_mut(&mut carry.from, visit);
            visit(&mut carry.to);
        }
    };
    carries(&mut step.carries, visit);
    block_mut(&mut step.step, visit);
    step.stacks.iter_mut().for_each(&mut *visit);
    if let Some(back) = &mut step.back {
        carries(&mut back.carries, visit);
        block_mut(&mut back.step, visit);
        back.stacks.iter_mut().for_each(visit);
    }
}

struct Title<'s>(&'s Step);

impl fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            step @ (Step::Attend(_)
            | Step::Scatter(_)
            | Step::Argsort(_)
            | Step::Transfer(_)
            | Step::Exchange(_)) => f.write_str(step.kind()),
            Step::Print(print) => write!(f, "{} {}", self.0.kind(), print.quoted()),
            step => write!(f, "{} @{}", step.kind(), step.name()),
        }
    }
}

impl DebugPrint {
    /// The label as text has it.
    pub(super) fn quoted(&self) -> impl fmt::Display + '_ {
        Attr::Str(self.label.clone())
    }
}

impl Member {
    /// Extents of the result: what `then` runs over.
    pub fn result(&self) -> Extents {
        joined(&[&self.batch, &self.rows, &self.cols])
    }

    /// Its operands by name, each with the extents that it is read over.
    pub fn feeds(&self) -> [(&'static str, &Feed, Extents); 2] {
        [
            ("lhs", &self.lhs, joined(&[&self.batch, &self.rows, &self.depth])),
            ("rhs", &self.rhs, joined(&[&self.batch, &self.cols, &self.depth])),
        ]
    }
}

/// Extents one after the other.
fn joined(parts: &[&Extents]) -> Extents {
    parts.iter().flat_map(|p| p.iter().copied()).collect()
}
