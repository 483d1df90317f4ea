//! How operands of a product come to shared memory: elements of a buffer as they are past the registers, some
//! steps ahead; whatever else feeds compute through registers, one step ahead.

use super::address::{Vars, resolved, value};
use super::asm::{Class, Reg, guard_prefix};
use super::convert::convert;
use super::emit::{At, Emit};
use super::isel::outputs;
use super::operands::{constant, select};
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::operand_path::{OperandPath, feed, whole};
use crate::gpu::schedule::tiling::{ProductTiling, StagedOperand};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Member, volume};
use adfuse_ir::{DType, Literal};

/// Where a thread's elements of a step are: the first of them, and from turn to turn.
struct Walk {
    line: IndexExpr,
    deep: IndexExpr,
    /// Lines and depth from turn to turn.
    by: [i64; 2],
    turns: i64,
    /// Threads that have any, where that is not all.
    threads: Option<i64>,
}

impl Walk {
    /// Threads next to each other have neighbours, this many elements each, along the depth or across it.
    fn new(cut: &ProductTiling, side: usize, thread: &IndexExpr, along: bool, wide: i64) -> Walk {
        let long = cut.side[side];
        let near = if along { cut.deep } else { long } / wide;
        let (fast, slow) =
            (thread.clone().modulo(near).times(wide), thread.clone().floor_div(near));
        let all = long * cut.deep / wide;
        let by = cut.threads / near;
        let (line, deep, by) = match along {
            true => (slow, fast, [by, 0]),
            false => (fast, slow, [0, by]),
        };
        let turns = (all / cut.threads).max(1);
        Walk { line, deep, by, turns, threads: (all < cut.threads).then_some(all) }
    }

    /// Lines and depth of a turn beyond the first.
    fn beyond(&self, turn: i64) -> [i64; 2] {
        self.by.map(|by| by * turn)
    }
}

impl StagedOperand {
    /// Bytes into shared memory of something this many lines and so deep.
    fn bytes(&self, size: i64, [line, deep]: [i64; 2]) -> i64 {
        match self.along {
            true => line * self.pitch + deep * size,
            false => deep * self.pitch + line * size,
        }
    }

    fn place(&self, size: i64, line: &IndexExpr, deep: &IndexExpr) -> IndexExpr {
        let (line, deep) = (line.clone(), deep.clone());
        match self.along {
            true => line.times(self.pitch).sum(deep.times(size)),
            false => deep.times(self.pitch).sum(line.times(size)),
        }
        .plus(self.offset)
    }
}

/// What the operands of a launch are computed from.
pub(crate) struct Place<'p> {
    pub(crate) m: &'p Member,
    pub(crate) cut: &'p ProductTiling,
    pub(crate) vars: &'p Vars,
    pub(crate) thread: &'p IndexExpr,
    pub(crate) batch: &'p IndexExpr,
    /// The first line of the tile, of each operand.
    pub(crate) first: &'p [IndexExpr; 2],
    /// The first step of the depth.
    pub(crate) from: &'p IndexExpr,
}

/// An operand on its way.
pub(crate) struct Feeding {
    side: usize,
    walk: Walk,
    /// Where the thread's first element goes in the first stage.
    to: Reg,
    /// Where the next element is read that is copied.
    from: Option<Reg>,
    /// The thread's first line, and the place along the depth of what is copied next, where some are
    /// past the end.
    line: Option<Reg>,
    deep: Option<Reg>,
}

/// Elements in registers that go to shared memory later, and where.
pub(crate) type Held = Vec<(Reg, Reg, i64)>;

impl Feeding {
    /// Gets an operand ready, before the first step.
    pub(crate) fn new(emit: &mut Emit<'_>, p: &Place<'_>, side: usize) -> Feeding {
        let cut = p.cut;
        let operand = &cut.operands[side];
        let wide = match operand.path {
            OperandPath::Copied { bytes, .. } => bytes / cut.size,
            OperandPath::Computed { .. } => 1,
        };
        let walk = Walk::new(cut, side, p.thread, operand.path.along(), wide);
        let number = |emit: &mut Emit<'_>, e: &IndexExpr| {
            let e = resolved(e, &emit.same(p.vars), p.vars);
            value(&mut emit.asm, &e, p.vars, &[])
        };
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let x = number(emit, &operand.place(cut.size, &walk.line, &walk.deep));
        let to = emit.asm.pure(Class::Word, "add.s32", format_args!("{x}, {base}"));
        let mut made = Feeding { side, walk, to, from: None, line: None, deep: None };
        let OperandPath::Copied { buffer, steps, .. } = operand.path else { return made };
        let (feed, axes) = feed(p.m, side);
        let Some((_, piece)) = whole(emit.program, feed, cut.held) else { return made };
        let line = p.first[side].clone().sum(made.walk.line.clone());
        let deep = p.from.clone().times(cut.deep).sum(made.walk.deep.clone());
        let mut coords = coordinates(p.batch, &p.m.batch);
        coords.resize(p.m.batch.len() + axes.len() + p.m.depth.len(), IndexExpr::Const(0));
        let at = At { vars: p.vars, coords: &coords };
        let element = emit.element(buffer, &piece.index, &at);
        let element = element.sum(line.clone().times(steps[0])).sum(deep.clone().times(steps[1]));
        let element = resolved(&element, &emit.same(p.vars), p.vars);
        let address = emit.address(buffer, &element, cut.held.bytes(), p.vars, &[]);
        made.from = Some(emit.moving(&address));
        if volume(axes) % cut.side[side] != 0 {
            made.line = Some(number(emit, &line));
        }
        if volume(&p.m.depth) % cut.deep != 0 {
            let deep = number(emit, &deep);
            made.deep = Some(emit.asm.copied(deep));
        }
        made
    }

    /// Whether it is copied past the registers.
    pub(crate) fn is_copied(&self) -> bool {
        self.from.is_some()
    }

    /// Begins to copy the next step, to a stage that is this many bytes in.
    pub(crate) fn copy(&self, emit: &mut Emit<'_>, p: &Place<'_>, stage: Reg) {
        let cut = p.cut;
        let operand = &cut.operands[self.side];
        let (OperandPath::Copied { steps, bytes, .. }, Some(from)) = (operand.path, self.from)
        else {
            return;
        };
        let size = cut.size;
        let (_, axes) = feed(p.m, self.side);
        let to = emit.asm.fresh(Class::Word);
        emit.asm.emit(format_args!("add.s32 {to}, {}, {stage}", self.to));
        let has = self.walk.threads.map(|n| {
            let thread = emit.asm.special("tid.x");
            emit.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{thread}, {n}"))
        });
        let kind = if bytes == 16 { "cg" } else { "ca" };
        let below = |emit: &mut Emit<'_>, x: Option<Reg>, bound: i64| {
            let x = x?;
            let p = emit.asm.fresh(Class::Pred);
            let s = if x.class == Class::Long { "s64" } else { "s32" };
            emit.asm.emit(format_args!("setp.lt.{s} {p}, {x}, {bound}"));
            Some(p)
        };
        for turn in 0..self.walk.turns {
            let [line, deep] = self.walk.beyond(turn);
            let place = operand.bytes(size, [line, deep]);
            let inside = below(emit, self.line, volume(axes) - line);
            let within = below(emit, self.deep, volume(&p.m.depth) - deep);
            let when = emit.all(has, inside);
            let both = emit.all(when, within);
            let prefix = guard_prefix(both);
            let apart = line.saturating_mul(steps[0]).saturating_add(deep.saturating_mul(steps[1]));
            let ahead = apart.saturating_mul(size);
            let source = match i32::try_from(ahead) {
                Ok(ahead) => format!("{from}+{ahead}"),
                Err(_) => {
                    let far = emit.asm.fresh(Class::Long);
                    emit.asm.emit(format_args!("add.s64 {far}, {from}, {ahead}"));
                    far.to_string()
                }
            };
            emit.asm.emit(format_args!(
                "{prefix}cp.async.{kind}.shared.global [{to}+{place}], [{source}], {bytes}"
            ));
            if let Some(within) = within {
                let pad = constant(&mut emit.asm, pad(cut.held, self.side));
                let past = crate::gpu::ptx::operands::not(&mut emit.asm, within);
                let past = emit.all(Some(past), has).unwrap_or(past);
                emit.pad(past, pad, to, place, bytes);
            }
        }
        let on = cut.deep.saturating_mul(steps[1]).saturating_mul(size);
        emit.asm.emit(format_args!("add.s64 {from}, {from}, {on}"));
        if let Some(deep) = self.deep {
            let s = if deep.class == Class::Long { "s64" } else { "s32" };
            emit.asm.emit(format_args!("add.{s} {deep}, {deep}, {}", cut.deep));
        }
    }

    /// Computes the elements of a step.
    pub(crate) fn compute(
        &self,
        emit: &mut Emit<'_>,
        p: &Place<'_>,
        vars: &Vars,
        step: &IndexExpr,
        held: &mut Held,
    ) {
        let (m, cut) = (p.m, p.cut);
        let (feed, axes) = feed(m, self.side);
        let depth = volume(&m.depth);
        let program = emit.written(&feed.program);
        let from = program.outputs.first().map_or(m.sum, |&v| program.insts[v].dtype);
        for turn in 0..self.walk.turns {
            let [line, deep] = self.walk.beyond(turn);
            let mut own = vars.clone();
            let row = p.first[self.side].clone().sum(self.walk.line.clone().plus(line));
            let row = emit.below(&mut own, &row, volume(axes)).place;
            let place = step.clone().times(cut.deep).sum(self.walk.deep.clone().plus(deep));
            let here = emit.below(&mut own, &place, depth);
            let mut coords = coordinates(p.batch, &m.batch);
            coords.extend(coordinates(&row, axes));
            coords.extend(coordinates(&here.place, &m.depth));
            let at = At { vars: &own, coords: &coords };
            let (regs, _) = emit.params(&feed.params, &program, &at, &mut |_, _, _| None);
            let Some(&found) = outputs(&mut emit.asm, &program, &regs).first() else { continue };
            let mut found = convert(&mut emit.asm, found, from, cut.held);
            if let Some(valid) = here.valid {
                let pad = constant(&mut emit.asm, pad(cut.held, self.side));
                found = select(&mut emit.asm, valid, found, pad);
            }
            held.push((found, self.to, cut.operands[self.side].bytes(cut.size, [line, deep])));
        }
    }
}

/// What is past the end of the depth: -0 times +0 is -0, which changes no sum.
fn pad(held: DType, side: usize) -> Literal {
    let zero = if side == 0 && held.is_float() { -0.0 } else { 0.0 };
    Literal::from_f64(held, zero)
}

impl Emit<'_> {
    /// Puts elements that were computed into a stage that is this many bytes in.
    pub(crate) fn put(&mut self, held: &Held, stage: Reg) {
        for (value, to, offset) in held {
            let at = self.asm.pure(Class::Word, "add.s32", format_args!("{to}, {stage}"));
            let moved = value.class.moved();
            self.asm.emit(format_args!("st.shared.{moved} [{at}+{offset}], {value}"));
        }
    }

    /// Fills this many bytes of shared memory with an element, under a condition.
    fn pad(&mut self, when: Reg, pad: Reg, to: Reg, place: i64, bytes: i64) {
        let moved = pad.class.moved();
        match (pad.class, bytes) {
            // Both zeros do for sums without an order.
            (Class::Half, _) => self
                .asm
                .emit(format_args!("@{when} st.shared.v4.b32 [{to}+{place}], {{0, 0, 0, 0}}")),
            (Class::Single | Class::Word, 16) => self.asm.emit(format_args!(
                "@{when} st.shared.v4.{moved} [{to}+{place}], {{{pad}, {pad}, {pad}, {pad}}}"
            )),
            (Class::Double | Class::Long, 16) => self.asm.emit(format_args!(
                "@{when} st.shared.v2.{moved} [{to}+{place}], {{{pad}, {pad}}}"
            )),
            _ => self.asm.emit(format_args!("@{when} st.shared.{moved} [{to}+{place}], {pad}")),
        }
    }
}

/// Where the elements of an operand's step are in a stage, by line and depth: what all threads copy or compute.
#[cfg(test)]
pub(crate) fn each_element(cut: &ProductTiling, side: usize) -> hashbrown::HashMap<[i64; 2], i64> {
    let operand = &cut.operands[side];
    let wide = match operand.path {
        OperandPath::Copied { bytes, .. } => bytes / cut.size,
        OperandPath::Computed { .. } => 1,
    };
    let along = operand.path.along();
    let walk = Walk::new(cut, side, &IndexExpr::axis(0), along, wide);
    let mut found = hashbrown::HashMap::new();
    for thread in 0..walk.threads.unwrap_or(cut.threads) {
        let of = |e: &IndexExpr| e.eval(&[thread], &[]);
        let first = of(&operand.place(cut.size, &walk.line, &walk.deep));
        for turn in 0..walk.turns {
            let [line, deep] = walk.beyond(turn);
            for k in 0..wide {
                let (right, down) = if along { (0, k) } else { (k, 0) };
                let at = [of(&walk.line) + line + right, of(&walk.deep) + deep + down];
                let place = first + operand.bytes(cut.size, [line, deep]) + k * cut.size;
                assert_eq!(found.insert(at, place), None, "{at:?} twice");
            }
        }
    }
    found
}
