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

/// Buffers in the order in which they were met first.
#[derive(Default)]
struct SeenBuffers {
    list: SmallVec<[Buffer; 8]>,
    seen: HashSet<Buffer>,
}

impl SeenBuffers {
    fn add(&mut self, b: Buffer) {
        if self.seen.insert(b) {
            self.list.push(b);
        }
    }

    fn operand(&mut self, o: &Operand) {
        if let Operand::Buffer(b) = o {
            self.add(*b);
        }
    }

    /// What a stage reads, and what follows its folds.
    fn stage(&mut self, stage: &Stage) {
        self.params(&stage.params);
        for sink in &stage.sinks {
            if let Sink::Fold { then, .. } = sink {
                self.stage(then);
            }
        }
    }

    fn params(&mut self, params: &[Param]) {
        for param in params {
            if let Param::Load(pieces) = param {
                pieces.iter().for_each(|p| self.operand(&p.from));
            }
        }
    }

    fn sinks(&mut self, stage: &Stage) {
        for sink in &stage.sinks {
            match sink {
                Sink::Store { buffer, .. } => self.add(*buffer),
                Sink::Fold { then, .. } => self.sinks(then),
                Sink::Reduce { .. } | Sink::Scan { .. } | Sink::Keep(_) | Sink::Leave(_) => {}
            }
        }
    }
}

impl Kernel {
    /// The buffers it reads, each once, in the order in which its text names them first.
    pub fn reads(&self) -> impl Iterator<Item = Buffer> + use<> {
        let mut met = SeenBuffers::default();
        self.stages.iter().for_each(|s| met.stage(s));
        met.list.into_iter()
    }

    /// The buffers it writes, each once, in the order in which its text names them first.
    pub fn writes(&self) -> impl Iterator<Item = Buffer> + use<> {
        let mut met = SeenBuffers::default();
        self.stages.iter().for_each(|s| met.sinks(s));
        met.list.into_iter()
    }
}

impl Step {
    /// The buffers it reads, each once, in the order in which its text names them first.
    pub fn reads(&self) -> impl Iterator<Item = Buffer> + use<> {
        let mut met = SeenBuffers::default();
        match self {
            Step::Kernel(k) => k.stages.iter().for_each(|s| met.stage(s)),
            Step::Bundle(b) => b.kernels.iter().flat_map(|k| &k.stages).for_each(|s| met.stage(s)),
            Step::Contract(c) => {
                for m in &c.members {
                    m.feeds().iter().for_each(|(_, f, _)| met.params(&f.params));
                    met.stage(&m.then);
                }
            }
            Step::Attend(a) => a.inputs.iter().for_each(|&b| met.add(b)),
            Step::Scatter(s) => {
                met.operand(&s.from);
                met.params(&s.params);
            }
            Step::Argsort(a) => met.add(a.from),
            Step::Library(l) => l.inputs.iter().for_each(|&b| met.add(b)),
            Step::Transfer(t) => met.add(t.from),
            Step::Exchange(e) => e.from.into_iter().for_each(|b| met.add(b)),
            Step::Print(p) => met.add(p.from),
            Step::Loop(l) => {
                l.trips.bounds().into_iter().for_each(|b| met.add(b));
                l.all_carries().for_each(|c| met.operand(&c.from));
                l.blocks().flat_map(Block::reads).for_each(|b| met.add(b));
            }
            Step::Branch(branch) => {
                met.add(branch.selector);
                branch.blocks.iter().flat_map(Block::reads).for_each(|b| met.add(b));
            }
        }
        met.list.into_iter()
    }

    /// The buffers it writes, each once, in the order in which its text names them first.
    pub fn writes(&self) -> impl Iterator<Item = Buffer> + use<> {
        let mut met = SeenBuffers::default();
        match self {
            Step::Kernel(k) => k.stages.iter().for_each(|s| met.sinks(s)),
            Step::Bundle(b) => b.kernels.iter().flat_map(|k| &k.stages).for_each(|s| met.sinks(s)),
            Step::Contract(c) => c.members.iter().for_each(|m| met.sinks(&m.then)),
            Step::Attend(a) => a.outputs.iter().for_each(|&b| met.add(b)),
            Step::Scatter(s) => met.add(s.out),
            Step::Argsort(a) => met.add(a.out),
            Step::Library(l) => l.outputs.iter().for_each(|&b| met.add(b)),
            Step::Transfer(t) => met.add(t.to),
            Step::Exchange(e) => met.add(e.to),
            Step::Print(_) => {}
            Step::Loop(l) => {
                l.all_carries().for_each(|c| met.add(c.to));
                l.all_stacks().for_each(|b| met.add(b));
            }
            Step::Branch(branch) => branch.outputs.iter().for_each(|&b| met.add(b)),
        }
        met.list.into_iter()
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
