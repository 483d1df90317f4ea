//! What all launches have in common: their text, their places on the device, loops and ends.

use super::address::{Vars, resolved, value};
use super::asm::{Asm, Class, Reg};
use super::emit::{At, Emit, EmitArg};
use super::{isel, operands};
use crate::gpu::launches::{Arg, Launch, TensorMap};
use crate::gpu::schedule::grid::Grid;
use crate::gpu::schedule::index::range;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::shape::internal;
use crate::gpu::schedule::work::Home;
use crate::gpu::target::GpuTarget;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Param, Sink, Stage};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::Table;
use adfuse_ir::{At as Where, DType, Diagnostic, Kind};
use cranelift_entity::SecondaryMap;
use std::sync::Arc;

/// The text and the launches of one step after the other.
pub(crate) struct Out {
    pub(crate) text: String,
    pub(crate) launches: Vec<Launch>,
    pub(crate) target: GpuTarget,
    /// What entry points of the step are called.
    pub(crate) prefix: String,
    /// Entry points so far.
    pub(crate) entries: usize,
    /// Whether some entry point reads the table of the bits of 2/pi.
    pub(crate) table: bool,
    /// The modules of users' kernels.
    pub(crate) users: Vec<Arc<str>>,
    /// Whether there is text. Launches are the same without it.
    pub(crate) writes: bool,
}

impl Out {
    pub(crate) fn new(target: GpuTarget, writes: bool) -> Out {
        Out {
            writes,
            text: String::new(),
            launches: Vec::new(),
            target,
            prefix: String::new(),
            entries: 0,
            table: false,
            users: Vec::new(),
        }
    }

    /// The number of a module of a user's; equal ones have one.
    pub(crate) fn user_module(&mut self, text: &Arc<str>) -> usize {
        let known = self.users.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            self.users.push(Arc::clone(text));
            self.users.len() - 1
        })
    }

    /// The module of all entry points; nothing where no text is written.
    pub(crate) fn module(self) -> String {
        if !self.writes {
            return String::new();
        }
        let GpuTarget { name, ptx, warpgroups, .. } = self.target;
        let mut text = format!("//\n// Made by adfuse.\n//\n.version {ptx}\n");
        text.push_str(&format!(".target {name}\n.address_size 64\n\n"));
        // What tensor maps bring repeats its pattern of banks every 1024 bytes.
        let align = if warpgroups { 1024 } else { 16 };
        text.push_str(&format!(".extern .shared .align {align} .b8 dynamic[];\n\n"));
        if self.table {
            let entries = Table::TwoOverPi.entries();
            let list: Vec<String> = entries.iter().map(|x| format!("0x{x:016X}")).collect();
            let list = list.join(", ");
            text.push_str(&format!(
                ".const .align 8 .b64 two_over_pi[{}] = {{{list}}};\n\n",
                entries.len()
            ));
        }
        text.push_str(&self.text);
        text
    }

    /// Ends an entry point, and launches this many blocks of a grid, with this many bytes of dynamic shared memory.
    pub(crate) fn launch(
        &mut self,
        homes: &SecondaryMap<Buffer, Home>,
        emit: Emit<'_>,
        blocks: i64,
        grid: Grid,
        shared: u32,
    ) -> Result<(), Diagnostic> {
        let Some(blocks) = u32::try_from(blocks).ok().filter(|n| (1..1 << 31).contains(n)) else {
            let m = format!("a launch of {blocks} blocks is more than a grid has");
            return Err(Diagnostic::new(Where::default(), Kind::Limit, m));
        };
        let entry = format!("{}_{}", self.prefix, self.entries);
        self.entries += 1;
        self.table |= emit.asm.table;
        let buffer = |b: Buffer| place(homes, b);
        let arg = |arg: &EmitArg| match *arg {
            EmitArg::Position => Arg::Position,
            EmitArg::Buffer(b) => buffer(b),
        };
        let args: Vec<Arg> = emit.args.iter().map(arg).collect();
        let maps: Vec<TensorMap> = emit.maps.iter().map(|map| map.at(&buffer)).collect();
        // What the driver refuses is found here, on any host.
        if let Some(map) = maps.iter().find(|map| !map.has_tile()) {
            return Err(internal(&format!("`{entry}` has no tile of {:?} elements", map.tile)));
        }
        self.written(emit.asm, entry, (args, maps), (blocks, grid, shared));
        Ok(())
    }

    /// Adds the text of an entry point and its launch.
    pub(crate) fn written(
        &mut self,
        asm: Asm,
        entry: String,
        (args, maps): (Vec<Arg>, Vec<TensorMap>),
        (blocks, grid, shared): (u32, Grid, u32),
    ) {
        let threads = u32::try_from(grid.threads).unwrap_or(u32::MAX);
        let params = (args.len(), maps.len());
        if self.writes {
            self.text.push_str(&asm.finish(&entry, params, threads, grid.resident));
            self.text.push('\n');
        }
        let launch = Launch::new(entry, [blocks, 1, 1], threads);
        self.launches.push(Launch { shared, args, maps, ..launch });
    }
}

/// Where a buffer of a schedule's program is.
pub(crate) fn place(homes: &SecondaryMap<Buffer, Home>, b: Buffer) -> Arg {
    match homes[b] {
        Home::Given => Arg::Buffer(b),
        Home::Caller(b) => Arg::Caller(b),
        Home::Scratch(offset) => Arg::Scratch { offset },
    }
}

/// Starts an entry point.
pub(crate) fn begun<'s>(s: &'s GpuSchedule, out: &Out) -> Emit<'s> {
    let mut emit = Emit { bindings: Some(&s.bindings), ..Emit::new(&s.program, s.fp) };
    emit.asm.pairs = s.target.pairs;
    emit.asm.writes = out.writes;
    emit
}

/// A place, or the last one where it would be past that.
pub(crate) struct Below {
    pub(crate) place: IndexExpr,
    /// The same in a register.
    pub(crate) number: Reg,
    /// Whether it is the place itself, where it may not be.
    pub(crate) valid: Option<Reg>,
}

/// A loop that is being written.
pub(crate) struct PtxLoop {
    label: String,
    counter: Reg,
    times: i64,
}

impl Emit<'_> {
    /// The number of this thread among all, as a number below `total`, and whether it is one; threads
    /// past the end have the number of the last.
    pub(crate) fn thread(&mut self, total: i64, threads: i64, clamp: bool) -> (Reg, Option<Reg>) {
        let (block, own) = (self.asm.special("ctaid.x"), self.asm.special("tid.x"));
        let whole = total % threads == 0;
        if total < 1 << 30 {
            let args = format!("{block}, {threads}, {own}");
            let id = self.asm.pure(Class::Word, "mad.lo.s32", args);
            if whole {
                return (id, None);
            }
            let live = self.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{id}, {total}"));
            if !clamp {
                return (id, Some(live));
            }
            let id = self.asm.pure(Class::Word, "min.s32", format_args!("{id}, {}", total - 1));
            return (id, Some(live));
        }
        let own = self.asm.pure(Class::Long, "cvt.u64.u32", own);
        let args = format!("{block}, {threads}, {own}");
        let id = self.asm.pure(Class::Long, "mad.wide.u32", args);
        let live = self.asm.pure(Class::Pred, "setp.lt.s64", format_args!("{id}, {total}"));
        match clamp {
            false => (id, Some(live)),
            true => {
                let most = total - 1;
                (self.asm.pure(Class::Long, "min.s64", format_args!("{id}, {most}")), Some(live))
            }
        }
    }

    /// Leaves the entry point where the condition does not hold.
    pub(crate) fn leave_unless(&mut self, live: Option<Reg>) {
        if let Some(live) = live {
            self.asm.emit(format_args!("@!{live} ret"));
        }
    }

    /// Begins what is done this many times: the number of the turn.
    pub(crate) fn repeat(&mut self, times: i64) -> (PtxLoop, Reg) {
        let zero = self.asm.word(0);
        let counter = self.asm.copied(zero);
        let label = self.asm.label();
        self.asm.turn(&label);
        self.asm.open();
        (PtxLoop { label, counter, times }, counter)
    }

    /// Ends it.
    pub(crate) fn again(&mut self, l: PtxLoop) {
        self.asm.close();
        let p = self.asm.fresh(Class::Pred);
        self.asm.emit(format_args!("add.s32 {0}, {0}, 1", l.counter));
        self.asm.emit(format_args!("setp.lt.s32 {p}, {}, {}", l.counter, l.times));
        self.asm.emit(format_args!("@{p} bra {}", l.label));
    }

    /// A place as one below an extent.
    pub(crate) fn below(&mut self, vars: &mut Vars, place: &IndexExpr, extent: i64) -> Below {
        let e = resolved(place, &self.same(vars), vars);
        let (_, most) = range(&e, &vars.extents);
        let number = value(&mut self.asm, &e, vars, &[]);
        if most < i128::from(extent) {
            return Below { place: e, number, valid: None };
        }
        let s = if number.class == Class::Long { "s64" } else { "s32" };
        let test = format!("setp.lt.{s}");
        let valid = self.asm.pure(Class::Pred, &test, format_args!("{number}, {extent}"));
        let last = format!("{number}, {}", extent - 1);
        let number = self.asm.pure(number.class, &format!("min.{s}"), last);
        Below { place: vars.push(number, extent), number, valid: Some(valid) }
    }

    /// Does something only where a condition holds.
    pub(crate) fn when(&mut self, p: Option<Reg>, does: impl FnOnce(&mut Self)) {
        let Some(p) = p else { return does(self) };
        let label = self.asm.label();
        self.asm.emit(format_args!("@!{p} bra {label}"));
        self.asm.open();
        does(self);
        self.asm.close();
        self.asm.place(&label);
    }

    /// Both conditions, where there are any.
    pub(crate) fn all(&mut self, p: Option<Reg>, q: Option<Reg>) -> Option<Reg> {
        match (p, q) {
            (Some(p), Some(q)) => Some(operands::both(&mut self.asm, p, q)),
            (p, q) => p.or(q),
        }
    }

    /// Two values of a monoid as one.
    pub(crate) fn combine(&mut self, monoid: Monoid, dtype: DType, x: Reg, y: Reg) -> Reg {
        let program = monoid.combine(dtype);
        let params: Vec<Option<Reg>> = vec![Some(x), Some(y)];
        isel::outputs(&mut self.asm, &program, &params).first().copied().unwrap_or(x)
    }

    /// A value from the thread whose number in the warp differs in these bits.
    pub(crate) fn exchanged(&mut self, x: Reg, bits: u32) -> Reg {
        let swap = |asm: &mut crate::gpu::ptx::asm::Asm, word: Reg| {
            let to = asm.fresh(Class::Word);
            asm.emit(format_args!("shfl.sync.bfly.b32 {to}, {word}, {bits}, 31, 0xffffffff"));
            to
        };
        let asm = &mut self.asm;
        match x.class {
            Class::Word => swap(asm, x),
            Class::Single => {
                let word = asm.fresh(Class::Word);
                asm.emit(format_args!("mov.b32 {word}, {x}"));
                let word = swap(asm, word);
                let to = asm.fresh(Class::Single);
                asm.emit(format_args!("mov.b32 {to}, {word}"));
                to
            }
            Class::Long | Class::Double => {
                let (low, high) = (asm.fresh(Class::Word), asm.fresh(Class::Word));
                asm.emit(format_args!("mov.b64 {{{low}, {high}}}, {x}"));
                let (low, high) = (swap(asm, low), swap(asm, high));
                let to = asm.fresh(x.class);
                asm.emit(format_args!("mov.b64 {to}, {{{low}, {high}}}"));
                to
            }
            Class::Pred => {
                let word = asm.fresh(Class::Word);
                asm.emit(format_args!("selp.b32 {word}, 1, 0, {x}"));
                let word = swap(asm, word);
                let to = asm.fresh(Class::Pred);
                asm.emit(format_args!("setp.ne.s32 {to}, {word}, 0"));
                to
            }
            Class::Half => x,
        }
    }

    /// What follows a sum: a stage without axes, whose results are stored.
    pub(crate) fn follow(&mut self, then: &Stage, sum: Reg, at: &At<'_>) {
        let program = self.written(&then.program);
        let values = self.outputs(then, &program, at, &mut |_, _, param| {
            matches!(param, Param::Sum).then_some(sum)
        });
        for (sink, value) in then.sinks.iter().zip(values) {
            if let Sink::Store { buffer, index } = sink {
                self.store(*buffer, index, value, at, None);
            }
        }
    }
}

/// One variable alone, which is the place among some extents.
pub(crate) fn single(reg: Reg, total: i64) -> (Vars, IndexExpr) {
    let mut vars = Vars::default();
    let place = vars.push(reg, total);
    (vars, place)
}
