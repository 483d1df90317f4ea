//! Translates loop programs: loops and branches as blocks, integers and elements as values.

use super::state::{Quad, flags};
use super::unit::FunctionEmitter;
use crate::cpu::codegen::loop_program::{
    GroupShape, LoopBlock, LoopCond, LoopOp, LoopProgram, LoopStmt, LoopVal,
};
use crate::cpu::codegen::vectorize::QUAD;
use adfuse_ir::scalar::{SOp, SVal};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, types};
use cranelift_entity::EntityRef;
use cranelift_module::Module;

/// A program that is translated, and the values that are known.
pub(crate) struct LoopScope<'a> {
    pub(crate) p: &'a LoopProgram,
    /// The table of pointers.
    pub(crate) table: Value,
    values: Vec<Option<ScopeValue>>,
    /// The values of the body that do not change along a line.
    still: Vec<Option<Value>>,
    /// Those of them that groups read, in all lanes.
    pub(crate) spread: Vec<Option<Quad>>,
}

/// A value; each use of a number makes its own: the code generator would keep it in memory otherwise.
#[derive(Clone, Copy)]
enum ScopeValue {
    Number(i64),
    There(Value),
}

impl LoopScope<'_> {
    fn define(&mut self, v: LoopVal, value: ScopeValue) {
        let k = v.0 as usize;
        if self.values.len() <= k {
            self.values.resize(k + 1, None);
        }
        self.values[k] = Some(value);
    }

    pub(crate) fn set(&mut self, v: LoopVal, value: Value) {
        self.define(v, ScopeValue::There(value));
    }
}

impl FunctionEmitter<'_, '_> {
    /// Emits the whole function; `None` where the body holds what no expanded program does.
    pub(crate) fn build(mut self, p: &LoopProgram, constants: i64) -> Option<()> {
        let entry = self.b.create_block();
        self.b.append_block_params_for_function_params(entry);
        self.b.switch_to_block(entry);
        self.b.seal_block(entry);
        let given = self.b.block_params(entry);
        let (&table, &begin, &end) = (given.first()?, given.get(1)?, given.get(2)?);
        self.constant_base = self.long(constants);
        let (values, still, spread) = (Vec::new(), Vec::new(), Vec::new());
        let mut s = LoopScope { p, table, values, still, spread };
        s.set(LoopVal::BEGIN, begin);
        s.set(LoopVal::END, end);
        self.block(&mut s, &p.code)?;
        self.b.ins().return_(&[]);
        let config = self.module.target_config();
        self.b.finalize(config);
        Some(())
    }

    /// A value.
    pub(crate) fn get(&mut self, s: &LoopScope<'_>, v: LoopVal) -> Option<Value> {
        match s.values.get(v.0 as usize).copied().flatten()? {
            ScopeValue::Number(x) => Some(self.long(x)),
            ScopeValue::There(v) => Some(v),
        }
    }

    pub(crate) fn block(&mut self, s: &mut LoopScope<'_>, block: &LoopBlock) -> Option<()> {
        block.iter().try_for_each(|stmt| self.stmt(s, stmt))
    }

    fn begin(&mut self, block: cranelift_codegen::ir::Block) {
        self.b.switch_to_block(block);
        self.recent.clear();
    }

    fn branch(
        &mut self,
        s: &mut LoopScope<'_>,
        all: &[LoopCond],
        [then, otherwise]: [&LoopBlock; 2],
        results: &[(LoopVal, LoopVal, LoopVal)],
    ) -> Option<()> {
        let (yes, no, after) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let mut holds: Option<Value> = None;
        for cond in all {
            let one = self.cond(s, cond)?;
            holds = Some(match holds {
                Some(before) => self.b.ins().band(before, one),
                None => one,
            });
        }
        match holds {
            Some(holds) => self.b.ins().brif(holds, yes, &[], no, &[]),
            None => self.b.ins().jump(yes, &[]),
        };
        self.b.seal_block(yes);
        self.b.seal_block(no);
        for (block, stmts, first) in [(yes, then, true), (no, otherwise, false)] {
            self.begin(block);
            self.block(s, stmts)?;
            let mut given: Vec<BlockArg> = Vec::new();
            for &(_, a, b) in results {
                let value = self.get(s, if first { a } else { b })?;
                if first {
                    let ty = self.b.func.dfg.value_type(value);
                    self.b.append_block_param(after, ty);
                }
                given.push(value.into());
            }
            self.b.ins().jump(after, &given);
        }
        self.b.seal_block(after);
        self.begin(after);
        let found = self.b.block_params(after).to_vec();
        results.iter().zip(found).for_each(|(&(r, ..), value)| s.set(r, value));
        Some(())
    }

    fn turns(
        &mut self,
        s: &mut LoopScope<'_>,
        carried: &[(LoopVal, LoopVal)],
        below: LoopVal,
        body: &LoopBlock,
        next: &[LoopVal],
    ) -> Option<()> {
        let (head, inside, after) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let mut begin: Vec<BlockArg> = Vec::new();
        for &(now, first) in carried {
            begin.push(self.get(s, first)?.into());
            let param = self.b.append_block_param(head, types::I64);
            s.set(now, param);
        }
        self.b.ins().jump(head, &begin);
        self.begin(head);
        let more = self.cond(s, &LoopCond::Less(carried.first()?.0, below))?;
        self.b.ins().brif(more, inside, &[], after, &[]);
        self.b.seal_block(inside);
        self.begin(inside);
        self.block(s, body)?;
        let mut then: Vec<BlockArg> = Vec::new();
        for &n in next {
            then.push(self.get(s, n)?.into());
        }
        self.b.ins().jump(head, &then);
        self.b.seal_block(head);
        self.b.seal_block(after);
        self.begin(after);
        Some(())
    }

    fn stmt(&mut self, s: &mut LoopScope<'_>, stmt: &LoopStmt) -> Option<()> {
        match stmt {
            LoopStmt::Let(v, LoopOp::Int(x)) => s.define(*v, ScopeValue::Number(*x)),
            LoopStmt::Let(v, op) => {
                let value = self.op(s, op)?;
                s.set(*v, value);
            }
            LoopStmt::If { all, then, otherwise, results } => {
                self.branch(s, all, [then, otherwise], results)?;
            }
            LoopStmt::While { carried, below, body, next } => {
                self.turns(s, carried, *below, body, next)?;
            }
            LoopStmt::Groups { last, from, to, shapes, .. } => {
                let (from, to) = (self.get(s, *from)?, self.get(s, *to)?);
                let end = self.groups(s, [from, to], shapes.first()?)?;
                s.set(*last, end);
            }
            // Lowering makes none for groups that are whole.
            LoopStmt::Line { .. } | LoopStmt::Partial { .. } | LoopStmt::Transpose { .. } => {
                return None;
            }
            LoopStmt::Invariants { params } => self.invariants(s, params)?,
            LoopStmt::Element { params, results } => self.element(s, params, results)?,
            LoopStmt::Store { dtype, canonical, at, value } => {
                let (at, value) = (self.get(s, *at)?, self.get(s, *value)?);
                let value = if *canonical { self.canonical(*dtype, value) } else { value };
                self.b.ins().store(flags(), value, at, 0);
            }
            LoopStmt::StoreBits { dtype, bits, at, shift, value } => {
                let (at, shift) = (self.get(s, *at)?, self.get(s, *shift)?);
                let value = self.get(s, *value)?;
                self.store_bits(*dtype, *bits, [at, shift, value]);
            }
            LoopStmt::Combine { output, at, value } => {
                let fold = s.p.writes.get(*output)?.fold()?;
                let (at, value) = (self.get(s, *at)?, self.get(s, *value)?);
                self.combine_element(&fold, at, value)?;
            }
            LoopStmt::FillColumns { output, at, .. } => {
                let at = self.get(s, *at)?;
                self.fill_columns(s, *output, at)?;
            }
            LoopStmt::FillLanes { output } => self.fill_lanes(s, *output)?,
            LoopStmt::JoinLanes { output, to } => {
                let to = self.get(s, *to)?;
                self.join_lanes(s, *output, to)?;
            }
        }
        Some(())
    }

    /// Whole groups from a coordinate while they fit below another; gives where they ended.
    fn groups(
        &mut self,
        s: &mut LoopScope<'_>,
        [from, to]: [Value; 2],
        shape: &GroupShape,
    ) -> Option<Value> {
        if shape.held {
            return self.held_groups(s, [from, to], shape);
        }
        // Only groups that hold lanes have several rounds.
        (shape.rounds == 1).then_some(())?;
        let step = i64::from(shape.copies * QUAD);
        let body = |unit: &mut Self, d, _: &[Value]| {
            unit.quads(s, d, shape.copies)?;
            Some(Vec::new())
        };
        self.looped(from, to, step, &[], body).map(|(d, _)| d)
    }

    /// A loop from `from` in steps while a whole one fits below `to`, with further values that a turn hands to the
    /// next; gives where it ended, and the last of them.
    pub(crate) fn looped(
        &mut self,
        from: Value,
        to: Value,
        step: i64,
        begin: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Option<Vec<Value>>,
    ) -> Option<(Value, Vec<Value>)> {
        let (head, inside, after) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let d = self.b.append_block_param(head, types::I64);
        let mut now = Vec::new();
        for &x in begin {
            let ty = self.b.func.dfg.value_type(x);
            now.push(self.b.append_block_param(head, ty));
        }
        let handed = |d: Value, all: &[Value]| -> Vec<BlockArg> {
            std::iter::once(d).chain(all.iter().copied()).map(BlockArg::from).collect()
        };
        self.b.ins().jump(head, &handed(from, begin));
        self.b.switch_to_block(head);
        let step = self.long(step);
        let next = self.b.ins().iadd(d, step);
        let fits = self.b.ins().icmp(IntCC::SignedLessThanOrEqual, next, to);
        self.b.ins().brif(fits, inside, &[], after, &[]);
        self.b.seal_block(inside);
        self.b.switch_to_block(inside);
        let then = body(self, d, &now)?;
        self.b.ins().jump(head, &handed(next, &then));
        self.b.seal_block(head);
        self.b.seal_block(after);
        self.b.switch_to_block(after);
        Some((d, now))
    }

    /// The values of the body that do not change along a line, and, where there are groups, in all lanes.
    fn invariants(&mut self, s: &mut LoopScope<'_>, params: &[(usize, LoopVal)]) -> Option<()> {
        let p = s.p;
        let mut known = vec![None; p.reads.len()];
        for &(k, v) in params {
            *known.get_mut(k)? = Some(self.get(s, v)?);
        }
        let mut moves = vec![false; p.body.insts.len()];
        p.order.iter().for_each(|v| moves[v.index()] = true);
        let mut values: Vec<Option<Value>> = Vec::new();
        for (v, inst) in p.body.insts.iter() {
            let value = match inst.op {
                SOp::Param(k) => known.get(k as usize).copied().flatten(),
                SOp::Const(_) => None,
                _ if moves[v.index()] => None,
                _ => match self.arguments(p, &inst.args, &values) {
                    Some(args) => {
                        let from = p.body.source(inst);
                        Some(self.scalar(inst, from, &args)?)
                    }
                    // Something that it needs changes: nobody asks for it.
                    None => None,
                },
            };
            values.push(value);
        }
        s.still = values;
        if p.lanes > 1 {
            self.spread_line(s);
        }
        Some(())
    }

    /// The values of the body that do not change.
    pub(crate) fn still(&self, s: &LoopScope<'_>, v: SVal) -> Option<Value> {
        s.still.get(v.index()).copied().flatten()
    }

    /// Operands, constants among them made anew; `None` where one is not known.
    fn arguments(
        &mut self,
        p: &LoopProgram,
        args: &[SVal],
        values: &[Option<Value>],
    ) -> Option<Vec<Value>> {
        args.iter()
            .map(|&a| {
                let known = values.get(a.index()).copied().flatten();
                known.or_else(|| Some(self.literal(p.body.constant(a)?)))
            })
            .collect()
    }

    /// The body at one coordinate.
    fn element(
        &mut self,
        s: &mut LoopScope<'_>,
        params: &[(usize, LoopVal)],
        results: &[LoopVal],
    ) -> Option<()> {
        let p = s.p;
        let mut known = vec![None; p.reads.len()];
        for &(k, v) in params {
            *known.get_mut(k)? = Some(self.get(s, v)?);
        }
        let mut values = s.still.clone();
        for &v in &p.order {
            let inst = &p.body.insts[v];
            values[v.index()] = match inst.op {
                SOp::Param(k) => known.get(k as usize).copied().flatten(),
                _ => {
                    let args = self.arguments(p, &inst.args, &values)?;
                    let from = p.body.source(inst);
                    Some(self.scalar(inst, from, &args)?)
                }
            };
        }
        let outputs = self.arguments(p, &p.body.outputs, &values)?;
        results.iter().zip(outputs).for_each(|(&r, value)| s.set(r, value));
        Some(())
    }
}
