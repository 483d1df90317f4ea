//! A record of each compiled function: its step, its size and, on request, its text.

use super::loop_ir::{Sweep, SweepOutput, SweepRole};
use super::loop_program::LoopProgram;
use super::vector_width::{Emitter, Unsupported};
use adfuse_ir::kernel::{Operand, Param};
use cranelift_codegen::Context;
use std::time::{Duration, Instant};

/// Keeps what is known of functions while they are made.
#[derive(Default)]
pub(crate) struct Listing {
    /// Whether to keep texts: they take longer than the functions do.
    pub(crate) texts: bool,
    /// The step whose sweeps are made.
    step: usize,
    title: String,
    /// The functions so far.
    pub(crate) noted: Vec<ListingEntry>,
}

/// What is known of a function.
#[derive(Clone, Debug)]
pub(crate) struct ListingEntry {
    /// The number of its step, among those that run.
    pub(crate) step: usize,
    /// The step's name and what the function is there for.
    pub(crate) name: String,
    /// What made it.
    pub(crate) emitter: Emitter,
    /// Bytes of its code; none where it shares another's.
    pub(crate) bytes: usize,
    /// How long it took to make.
    pub(crate) took: Duration,
    /// What it reads and writes, its loop program, its CLIF, its instructions.
    pub(crate) texts: Option<[String; 4]>,
}

/// A function that is being made.
pub(crate) struct OpenEntry {
    at: Instant,
    loops: String,
    clif: Option<String>,
}

impl Listing {
    /// The sweeps that follow belong to this step.
    pub(crate) fn begin(&mut self, step: usize, title: &str) {
        self.step = step;
        self.title = title.into();
    }

    /// What made the functions from a number on, each emitter once.
    pub(crate) fn emitters(&self, first: usize) -> Vec<&'static str> {
        let mut found = Vec::new();
        for noted in self.noted.iter().skip(first) {
            if !found.contains(&noted.emitter.name()) {
                found.push(noted.emitter.name());
            }
        }
        found
    }

    /// A function is about to be made.
    pub(crate) fn clock(&self) -> OpenEntry {
        OpenEntry { at: Instant::now(), loops: String::new(), clif: None }
    }

    /// It is lowered to a loop program.
    pub(crate) fn lowered(&self, begun: &mut OpenEntry, program: &LoopProgram) {
        if self.texts {
            begun.loops = program.to_string();
        }
    }

    /// Its instructions are there, and are about to become machine code.
    pub(crate) fn emitted(&self, begun: &mut OpenEntry, context: &mut Context) {
        if self.texts {
            begun.clif = Some(context.func.display().to_string());
            context.set_disasm(true);
        }
    }

    /// Cranelift has made it.
    pub(crate) fn made(
        &mut self,
        mut begun: OpenEntry,
        sweep: &Sweep<'_>,
        why: Option<Unsupported>,
        context: &Context,
    ) {
        let code = context.compiled_code();
        let bytes = code.map_or(0, |c| c.code_info().total_size as usize);
        let clif = begun.clif.take().unwrap_or_default();
        let texts = || [clif, code.and_then(|c| c.vcode.clone()).unwrap_or_default()];
        self.noted(begun, sweep, Emitter::Cranelift(why), bytes, texts);
    }

    /// Cranelift has made a loop's function.
    pub(crate) fn made_loop(&mut self, mut begun: OpenEntry, context: &Context) {
        let code = context.compiled_code();
        let bytes = code.map_or(0, |c| c.code_info().total_size as usize);
        let took = begun.at.elapsed();
        let texts = self.texts.then(|| {
            let clif = begun.clif.take().unwrap_or_default();
            let asm = code.and_then(|c| c.vcode.clone()).unwrap_or_default();
            let loops =
                "// a loop over scalars has no loop program: its blocks become CLIF\n".into();
            ["all steps of a loop over scalars".into(), loops, clif, asm]
        });
        let (name, emitter) = (self.title.clone(), Emitter::Cranelift(None));
        self.noted.push(ListingEntry { step: self.step, name, emitter, bytes, took, texts });
    }

    /// It is made; its CLIF and its instructions are asked for if texts are kept.
    pub(crate) fn noted(
        &mut self,
        begun: OpenEntry,
        sweep: &Sweep<'_>,
        emitter: Emitter,
        bytes: usize,
        texts: impl FnOnce() -> [String; 2],
    ) {
        let took = begun.at.elapsed();
        let texts = self.texts.then(|| {
            let [clif, asm] = texts();
            [accesses(sweep), begun.loops, clif, asm]
        });
        let name = self.name(&sweep.part);
        self.noted.push(ListingEntry { step: self.step, name, emitter, bytes, took, texts });
    }

    /// A function that was noted before its instructions were there is made.
    pub(crate) fn finished(
        &mut self,
        entry: usize,
        bytes: usize,
        took: Duration,
        asm: impl FnOnce() -> String,
    ) {
        let Some(noted) = self.noted.get_mut(entry) else { return };
        noted.bytes = bytes;
        noted.took += took;
        if let Some([.., text]) = &mut noted.texts {
            *text = asm();
        }
    }

    /// A sweep shares the function of another, which is one of those so far.
    pub(crate) fn shared(&mut self, with: usize, sweep: &Sweep<'_>) {
        let Some(first) = self.noted.get(with) else { return };
        let (emitter, name) = (first.emitter, self.name(&sweep.part));
        let (bytes, took, texts) = (0, Duration::ZERO, None);
        self.noted.push(ListingEntry { step: self.step, name, emitter, bytes, took, texts });
    }

    /// `softmax.1`; what a step has twice gets a number.
    fn name(&self, part: &SweepRole) -> String {
        let first = format!("{}.{part}", self.title);
        let mut name = first.clone();
        let taken = |name: &String| {
            self.noted.iter().rev().take_while(|n| n.step == self.step).any(|n| n.name == *name)
        };
        for k in 2.. {
            if !taken(&name) {
                break;
            }
            name = format!("{first}.{k}");
        }
        name
    }
}

impl std::fmt::Display for SweepRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SweepRole::Stage(k) => write!(f, "{k}"),
            SweepRole::Folded => f.write_str("folded"),
            SweepRole::Then => f.write_str("then"),
            SweepRole::Operand => f.write_str("operand"),
            SweepRole::Begin => f.write_str("begin"),
            SweepRole::Updates => f.write_str("updates"),
            SweepRole::Finish => f.write_str("finish"),
        }
    }
}

/// Where a sweep walks, what it reads and what it writes.
fn accesses(sweep: &Sweep<'_>) -> String {
    let mut reads: Vec<String> = Vec::new();
    let mut add = |what: String| {
        if !reads.contains(&what) {
            reads.push(what);
        }
    };
    for param in sweep.params {
        match param {
            Param::Load(pieces) => {
                for piece in pieces {
                    if let Operand::Buffer(b) = piece.from {
                        add(format!("%{}", sweep.program.buffers[b].name));
                    }
                }
            }
            Param::Coord(_) => add("coordinates".into()),
            Param::Row(r) => add(r.to_string()),
            Param::Tile(t) => add(t.to_string()),
            Param::Sum => add("sums".into()),
        }
    }
    let put = |put: &SweepOutput<'_>| {
        let (slot, other) = match put {
            SweepOutput::Store(b, _) => return format!("%{}", sweep.program.buffers[*b].name),
            SweepOutput::Point(slot) | SweepOutput::Place(slot) => (slot, "an array"),
            SweepOutput::Fold(fold) => (&fold.parts, "parts"),
        };
        let find = |all: &[u32]| all.iter().position(|s| s == slot);
        match (find(&sweep.slots.rows), find(&sweep.slots.tiles)) {
            (Some(r), _) => format!("r{r}"),
            (_, Some(t)) => format!("t{t}"),
            _ => other.into(),
        }
    };
    let mut writes: Vec<String> = sweep.puts.iter().map(put).collect();
    if sweep.target.is_some() {
        writes.push("places".into());
    }
    let said = |all: Vec<String>| if all.is_empty() { "nothing".into() } else { all.join(", ") };
    format!("over {:?}: reads {}; writes {}", sweep.extents.as_slice(), said(reads), said(writes))
}
