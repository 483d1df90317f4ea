//! Builds loop programs: blocks, integers computed once in a block, and structured loops and branches.

use super::loop_ir::LoopNest;
use super::loop_program::{
    GroupRead, GroupWrite, LoopBlock, LoopCond, LoopOp, LoopStmt, LoopVal, TransposedTile,
};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::{DType, Literal};
use hashbrown::HashMap;

/// A sweep that becomes a loop program.
pub(crate) struct ProgramBuilder<'a> {
    pub(crate) p: &'a LoopNest,
    /// Elements of a group; 1 where there are only single ones.
    pub(crate) lanes: u32,
    /// How far a group is from the one before.
    pub(crate) apart: u32,
    /// Blocks that are open, the innermost last.
    pub(crate) open: Vec<OpenBlock>,
    /// Of each value, by its number.
    pub(crate) values: Vec<ValueFacts>,
    /// How many blocks are open around the loop of lines, while that is built: what does not change in it is defined there.
    pub(crate) preheader: Option<usize>,
    /// What is known in the line.
    pub(crate) line: LineState,
    pub(crate) reads: Vec<GroupRead>,
    pub(crate) writes: Vec<GroupWrite>,
    pub(crate) tiles: Vec<TransposedTile>,
    /// Of each parameter, the tile that it is read from, if it is.
    pub(crate) tile_of: Vec<Option<usize>>,
}

/// What the code of a line has computed.
#[derive(Default)]
pub(crate) struct LineState {
    /// Coordinates of all axes but the innermost.
    pub(crate) outer: Vec<LoopVal>,
    /// The parameters that do not change.
    pub(crate) params: Vec<Option<LoopVal>>,
    /// Of each parameter that is read through guards, where the source of the segment is, and which bits of the
    /// coordinate count.
    pub(crate) chosen: Vec<Option<(LoopVal, LoopVal)>>,
    /// Its number among the lines of a block, where tiles have that.
    pub(crate) in_tile: Option<LoopVal>,
}

/// What is known of a value.
#[derive(Clone, Copy)]
pub(crate) struct ValueFacts {
    /// The number that it is.
    number: Option<i64>,
    /// How many blocks are open where it is defined.
    pub(crate) depth: usize,
}

#[derive(Default)]
pub(crate) struct OpenBlock {
    stmts: LoopBlock,
    /// What has been computed here.
    known: HashMap<LoopOp, LoopVal>,
}

impl<'a> ProgramBuilder<'a> {
    pub(crate) fn new(p: &'a LoopNest, lanes: u32) -> ProgramBuilder<'a> {
        ProgramBuilder {
            p,
            lanes,
            apart: lanes,
            open: vec![OpenBlock::default()],
            values: vec![ValueFacts { number: None, depth: 1 }; LoopVal::GIVEN as usize],
            preheader: None,
            line: LineState::default(),
            reads: p.reads.iter().map(|_| GroupRead::Element).collect(),
            writes: p.writes.iter().map(|_| GroupWrite::Element).collect(),
            tiles: Vec::new(),
            tile_of: vec![None; p.reads.len()],
        }
    }

    /// A value that something else than an operation defines.
    pub(crate) fn fresh(&mut self) -> LoopVal {
        self.defined_in(self.open.len())
    }

    /// A value that is defined where this many blocks are open.
    fn defined_in(&mut self, depth: usize) -> LoopVal {
        self.values.push(ValueFacts { number: None, depth });
        LoopVal(self.values.len() as u32 - 1)
    }

    pub(crate) fn push(&mut self, s: LoopStmt) {
        if let Some(block) = self.open.last_mut() {
            block.stmts.push(s);
        }
    }

    /// The value of an operation: one that is there already, where memory does not decide.
    pub(crate) fn op(&mut self, op: LoopOp) -> LoopVal {
        let reads = matches!(op, LoopOp::Load(..) | LoopOp::LoadBits(..));
        let there = self.open.iter().rev().find_map(|b| b.known.get(&op)).filter(|_| !reads);
        if let Some(&there) = there {
            return there;
        }
        let depth = self.block_of(&op);
        let v = self.defined_in(depth);
        if let LoopOp::Int(x) = op {
            self.values[v.0 as usize].number = Some(x);
        }
        if let Some(block) = self.open.get_mut(depth - 1) {
            block.stmts.push(LoopStmt::Let(v, op));
            block.known.insert(op, v);
        }
        v
    }

    fn number(&self, v: LoopVal) -> Option<i64> {
        self.values.get(v.0 as usize)?.number
    }

    pub(crate) fn int(&mut self, x: i64) -> LoopVal {
        self.op(LoopOp::Int(x))
    }

    pub(crate) fn add(&mut self, a: LoopVal, b: LoopVal) -> LoopVal {
        match (self.number(a), self.number(b)) {
            (Some(x), Some(y)) => self.int(x.wrapping_add(y)),
            (Some(0), None) => b,
            (None, Some(0)) => a,
            (Some(_), None) => self.op(LoopOp::Add(b, a)),
            _ => self.op(LoopOp::Add(a, b)),
        }
    }

    pub(crate) fn plus(&mut self, a: LoopVal, x: i64) -> LoopVal {
        let x = self.int(x);
        self.add(a, x)
    }

    pub(crate) fn sub(&mut self, a: LoopVal, b: LoopVal) -> LoopVal {
        match (self.number(a), self.number(b)) {
            (Some(x), Some(y)) => self.int(x.wrapping_sub(y)),
            (None, Some(0)) => a,
            (None, Some(y)) => self.plus(a, y.wrapping_neg()),
            _ => self.op(LoopOp::Sub(a, b)),
        }
    }

    pub(crate) fn mul(&mut self, a: LoopVal, x: i64) -> LoopVal {
        match (self.number(a), x) {
            (Some(a), _) => self.int(a.wrapping_mul(x)),
            (None, 0) => self.int(0),
            (None, 1) => a,
            _ => self.op(LoopOp::Mul(a, x)),
        }
    }

    /// Quotient by a number above 0, rounded down.
    pub(crate) fn floor_div(&mut self, a: LoopVal, by: i64) -> LoopVal {
        match self.number(a) {
            _ if by <= 1 => a,
            Some(a) => self.int(a.div_euclid(by)),
            None => self.op(LoopOp::FloorDiv(a, by)),
        }
    }

    pub(crate) fn rem(&mut self, a: LoopVal, by: i64) -> LoopVal {
        match self.number(a) {
            _ if by <= 1 => self.int(0),
            Some(a) => self.int(a.rem_euclid(by)),
            None => self.op(LoopOp::Rem(a, by)),
        }
    }

    /// Quotient of what is not below 0.
    pub(crate) fn div(&mut self, a: LoopVal, by: i64) -> LoopVal {
        match self.number(a) {
            _ if by <= 1 => a,
            Some(a) => self.int(a.div_euclid(by)),
            None => self.op(LoopOp::Div(a, by)),
        }
    }

    pub(crate) fn min(&mut self, a: LoopVal, b: LoopVal) -> LoopVal {
        match (self.number(a), self.number(b)) {
            (Some(x), Some(y)) => self.int(x.min(y)),
            _ if a == b => a,
            _ => self.op(LoopOp::Min(a, b)),
        }
    }

    pub(crate) fn max(&mut self, a: LoopVal, b: LoopVal) -> LoopVal {
        match (self.number(a), self.number(b)) {
            (Some(x), Some(y)) => self.int(x.max(y)),
            _ if a == b => a,
            _ => self.op(LoopOp::Max(a, b)),
        }
    }

    /// `at` where it lies between `from` and `to`, else `to`.
    pub(crate) fn bound(&mut self, from: LoopVal, at: LoopVal, to: LoopVal) -> LoopVal {
        self.op(LoopOp::Bound(from, at, to))
    }

    pub(crate) fn literal(&mut self, l: Literal) -> LoopVal {
        self.op(LoopOp::Literal(l))
    }

    /// What is emitted into a block of its own.
    pub(crate) fn block<T>(&mut self, emit: impl FnOnce(&mut Self) -> T) -> (LoopBlock, T) {
        self.open.push(OpenBlock::default());
        let given = emit(self);
        let block = self.open.pop().map_or_else(Vec::new, |b| b.stmts);
        (block, given)
    }

    /// A branch without results.
    pub(crate) fn when(&mut self, all: Vec<LoopCond>, then: impl FnOnce(&mut Self)) {
        let (then, ()) = self.block(then);
        self.push(LoopStmt::If { all, then, otherwise: Vec::new(), results: Vec::new() });
    }

    /// A branch with results.
    pub(crate) fn choose<const N: usize>(
        &mut self,
        all: Vec<LoopCond>,
        then: impl FnOnce(&mut Self) -> [LoopVal; N],
        otherwise: impl FnOnce(&mut Self) -> [LoopVal; N],
    ) -> [LoopVal; N] {
        let (then, yes) = self.block(then);
        let (otherwise, no) = self.block(otherwise);
        let found = [(); N].map(|()| self.fresh());
        let results = (0..N).map(|k| (found[k], yes[k], no[k])).collect();
        self.push(LoopStmt::If { all, then, otherwise, results });
        found
    }

    /// A loop while the first of the values is less than an end; gives the values at which it ended.
    pub(crate) fn turns<const N: usize>(
        &mut self,
        begin: [LoopVal; N],
        below: LoopVal,
        body: impl FnOnce(&mut Self, [LoopVal; N]) -> [LoopVal; N],
    ) -> [LoopVal; N] {
        let inside = self.open.len() + 1;
        let now = [(); N].map(|()| self.defined_in(inside));
        let (body, next) = self.block(|b| body(b, now));
        let carried = now.iter().copied().zip(begin).collect();
        self.push(LoopStmt::While { carried, below, body, next: next.to_vec() });
        now
    }

    /// All statements.
    pub(crate) fn finish(&mut self) -> LoopBlock {
        self.open.pop().map_or_else(Vec::new, |b| b.stmts)
    }

    /// The value of an index expression at a coordinate of the innermost axis; 0 where there is none.
    fn expr(
        &mut self,
        e: &IndexExpr,
        inner: Option<LoopVal>,
        params: &[Option<LoopVal>],
    ) -> LoopVal {
        match e {
            IndexExpr::Axis(a) => {
                let a = usize::from(*a);
                match (self.line.outer.get(a).copied(), inner) {
                    (Some(v), _) => v,
                    (None, Some(v)) if a == self.p.inner() => v,
                    _ => self.int(0),
                }
            }
            IndexExpr::Const(c) => self.int(*c),
            IndexExpr::Add(a, b) => {
                let (a, b) = (self.expr(a, inner, params), self.expr(b, inner, params));
                self.add(a, b)
            }
            IndexExpr::Mul(a, c) => {
                let a = self.expr(a, inner, params);
                self.mul(a, *c)
            }
            IndexExpr::FloorDiv(a, c) => {
                let a = self.expr(a, inner, params);
                self.floor_div(a, *c)
            }
            IndexExpr::Mod(a, c) => {
                let a = self.expr(a, inner, params);
                self.rem(a, *c)
            }
            IndexExpr::Data { param, lo, hi } => {
                let k = *param as usize;
                let dtype = self.p.types.get(k).copied().unwrap_or(DType::I64);
                let value = match params.get(k).copied().flatten() {
                    Some(v) if dtype == DType::I64 => v,
                    Some(v) => self.op(LoopOp::Widen(dtype, v)),
                    None => self.int(0),
                };
                let (lo, hi) = (self.int(*lo), self.int(*hi));
                let value = self.max(value, lo);
                self.min(value, hi)
            }
        }
    }

    /// The sum of a value and those terms of a form that do not change along the line. The constant of the form is left out.
    fn fixed_sum(&mut self, begin: LoopVal, form: usize, times: i64) -> LoopVal {
        let p = self.p;
        let f = &p.forms[form];
        let mut sum = begin;
        for (a, &step) in f.steps.iter().enumerate().take(p.inner()) {
            if step != 0 {
                let at = self.line.outer[a];
                let term = self.mul(at, step.wrapping_mul(times));
                sum = self.add(sum, term);
            }
        }
        let params = std::mem::take(&mut self.line.params);
        for (e, factor) in f.rest.iter().filter(|(e, _)| !p.changes(e)) {
            let value = self.expr(e, None, &params);
            let term = self.mul(value, factor.wrapping_mul(times));
            sum = self.add(sum, term);
        }
        self.line.params = params;
        sum
    }

    /// What of a form does not change along the line.
    pub(crate) fn fixed_form(&mut self, form: usize) -> LoopVal {
        let zero = self.int(0);
        let sum = self.fixed_sum(zero, form, 1);
        self.plus(sum, self.p.forms[form].constant)
    }

    /// The value of a form at a coordinate.
    pub(crate) fn form(
        &mut self,
        form: usize,
        inner: Option<LoopVal>,
        params: &[Option<LoopVal>],
    ) -> LoopVal {
        let p = self.p;
        let mut sum = self.fixed_form(form);
        if let Some(at) = inner {
            let term = self.mul(at, p.step(form));
            sum = self.add(sum, term);
        }
        for (e, factor) in p.forms[form].rest.iter().filter(|(e, _)| p.changes(e)) {
            let value = self.expr(e, inner, params);
            let term = self.mul(value, *factor);
            sum = self.add(sum, term);
        }
        sum
    }

    /// Where the element of coordinate 0 is, of elements of this many bytes. Pointers that differ by a number share
    /// the rest.
    pub(crate) fn pointer(&mut self, at: u32, form: usize, bytes: i64) -> LoopVal {
        let base = self.op(LoopOp::Pointer(at));
        let pointer = match self.preheader {
            // A pointer to the first of the lines is computed before their loop.
            Some(_) => self.fixed_sum(base, form, bytes),
            // Arrays that are gone through alike share what is added.
            None => {
                let zero = self.int(0);
                let along = self.fixed_sum(zero, form, bytes);
                self.add(base, along)
            }
        };
        self.plus(pointer, self.p.forms[form].constant.wrapping_mul(bytes))
    }
}
