//! The loops of a sweep: over lines of the innermost axis, and along each line.
//!
//! Loop invariants of a line come first: coordinates, pointers, parameters and values. Then come interleaved vectors,
//! single vectors, and single elements.

use super::state::{Interleaving, LANES, LineValues, LoopInvariants, PointValues, accesses, flags};
use super::unit::FunctionEmitter;
use crate::cpu::codegen::loop_ir::{LoopNest, VectorAccess};
use adfuse_ir::scalar::SOp;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlagsData, Value, types};
use cranelift_entity::EntityRef;
use cranelift_module::Module;

/// Bodies of more instructions are not copied: the code would outgrow its cache.
const MOST_COPIED: usize = 300;

impl FunctionEmitter<'_, '_> {
    /// Emits the whole function; `None` where the body holds what no expanded program does.
    pub(crate) fn build(mut self, p: &LoopNest, constants: i64) -> Option<()> {
        let entry = self.b.create_block();
        self.b.append_block_params_for_function_params(entry);
        self.b.switch_to_block(entry);
        self.b.seal_block(entry);
        let given = self.b.block_params(entry);
        let (&table, &begin, &end) = (given.first()?, given.get(1)?, given.get(2)?);
        self.constant_base = self.long(constants);
        let bases = self.bases(p, table);
        let (head, body, exit) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let place = self.b.append_block_param(head, types::I64);
        self.b.ins().jump(head, &[begin.into()]);
        self.b.switch_to_block(head);
        let more = self.b.ins().icmp(IntCC::SignedLessThan, place, end);
        self.b.ins().brif(more, body, &[], exit, &[]);
        self.b.switch_to_block(body);
        self.b.seal_block(body);

        let n = *p.walk.extents.last()?;
        let length = self.long(n);
        let (line, low) = match p.walk.extents.len() {
            1 => (self.long(0), place),
            _ => {
                let line = self.b.ins().udiv(place, length);
                let start = self.b.ins().imul(line, length);
                (line, self.b.ins().isub(place, start))
            }
        };
        let rest = self.b.ins().isub(length, low);
        let left = self.b.ins().isub(end, place);
        let short = self.b.ins().icmp(IntCC::SignedLessThan, left, rest);
        let count = self.b.ins().select(short, left, rest);
        let high = self.b.ins().iadd(low, count);
        let outer = self.outer(p, line);
        let mut line = self.line(p, bases, outer)?;
        self.walk(p, &mut line, low, high)?;
        let next = self.b.ins().iadd(place, count);
        self.b.ins().jump(head, &[next.into()]);
        self.b.seal_block(head);
        self.b.seal_block(exit);
        self.b.switch_to_block(exit);
        self.b.ins().return_(&[]);
        let config = self.module.target_config();
        self.b.finalize(config);
        Some(())
    }

    /// The pointers of the table that are asked for.
    fn bases(&mut self, p: &LoopNest, table: Value) -> Vec<(u32, Value)> {
        let mut bases: Vec<(u32, Value)> = Vec::new();
        for a in accesses(p) {
            if bases.iter().all(|(k, _)| *k != a.at) {
                let offset = i32::try_from(u64::from(a.at) * 8).unwrap_or_default();
                let base = self.b.ins().load(types::I64, MemFlagsData::trusted(), table, offset);
                bases.push((a.at, base));
            }
        }
        bases
    }

    /// The coordinates of a line.
    fn outer(&mut self, p: &LoopNest, line: Value) -> Vec<Value> {
        let mut rest = line;
        let mut outer = Vec::new();
        for (k, &n) in p.walk.extents.iter().enumerate().take(p.inner()).rev() {
            if k == 0 {
                outer.push(rest);
                continue;
            }
            let n = self.long(n);
            let quotient = self.b.ins().udiv(rest, n);
            let product = self.b.ins().imul(quotient, n);
            outer.push(self.b.ins().isub(rest, product));
            rest = quotient;
        }
        outer.reverse();
        outer
    }

    /// Everything that does not change along a line.
    fn line(
        &mut self,
        p: &LoopNest,
        bases: Vec<(u32, Value)>,
        outer: Vec<Value>,
    ) -> Option<LineValues> {
        let mut fixed = LoopInvariants { bases, ..LoopInvariants::default() };
        let zero = self.long(0);
        let mut at = outer.clone();
        at.push(zero);
        fixed.forms = p.forms.iter().map(|_| None).collect();
        fixed.params = p.reads.iter().map(|_| None).collect();
        // In order: data is read before what it names.
        for (k, read) in p.reads.iter().enumerate() {
            if !p.varies[k] {
                let here = PointValues { at: &at, params: &fixed.params };
                let value = self.read(p, read, p.types[k], &fixed, &here);
                fixed.params[k] = Some(value);
            }
        }
        for (form, _) in p.forms.iter().enumerate() {
            let here = PointValues { at: &at, params: &fixed.params };
            let part = self.fixed_part(p, form, &here);
            fixed.forms[form] = Some(part);
        }
        for a in accesses(p) {
            if a.packed.is_none()
                && p.affine(a.form)
                && let Some(part) = fixed.forms[a.form]
            {
                let base = self.base(&fixed, a.at);
                let offset = self.times(part, a.dtype.bytes() as i64);
                let start = self.b.ins().iadd(base, offset);
                fixed.starts.push((a.form, start));
            }
        }
        let mut values: Vec<Option<Value>> = Vec::new();
        for (v, inst) in p.body.insts.iter() {
            let value = match inst.op {
                SOp::Param(k) => fixed.params.get(k as usize).copied().flatten(),
                _ if p.moves[v.index()] => None,
                // Each use makes its own: the code generator would keep it in memory otherwise.
                SOp::Const(_) => None,
                _ => {
                    let args = self.arguments(p, &inst.args, &values)?;
                    let from = inst.args.first().map_or(inst.dtype, |&a| p.body.insts[a].dtype);
                    Some(self.scalar(inst, from, &args)?)
                }
            };
            values.push(value);
        }
        let (spread, sources, folds) = (Vec::new(), Vec::new(), Vec::new());
        Some(LineValues { fixed, outer, values, spread, sources, folds })
    }

    /// Operands, constants among them made anew.
    fn arguments(
        &mut self,
        p: &LoopNest,
        args: &[adfuse_ir::scalar::SVal],
        values: &[Option<Value>],
    ) -> Option<Vec<Value>> {
        args.iter()
            .map(|a| match (values.get(a.index()).copied().flatten(), p.body.insts[*a].op) {
                (Some(v), _) => Some(v),
                (None, SOp::Const(l)) => Some(self.literal(l)),
                _ => None,
            })
            .collect()
    }

    /// The loops along a line, from coordinate `low` to `high`.
    fn walk(&mut self, p: &LoopNest, line: &mut LineValues, low: Value, high: Value) -> Option<()> {
        let copies = self.copies(p);
        if copies.is_some() {
            self.spread_line(p, line);
        }
        self.fold_line(p, line, low, high)?;
        let cut = p.packed() || p.loads.contains(&VectorAccess::Guarded);
        if p.lanes().is_some() || copies.is_some() && cut {
            return self.segments(p, line, low, high, copies);
        }
        self.segment(p, line, [low, high, high], copies)
    }

    /// Vectors from a coordinate while they fit below another, then elements up to the last.
    pub(crate) fn segment(
        &mut self,
        p: &LoopNest,
        line: &LineValues,
        [mut from, vectors_to, to]: [Value; 3],
        copies: Option<Interleaving>,
    ) -> Option<()> {
        let n = p.walk.extents.last().copied().unwrap_or(1);
        if let Some(copies) = copies {
            let mut numbers = vec![copies.most, copies.least];
            if p.order.len() > MOST_COPIED {
                numbers.remove(0);
            } else if self.lanes_held(p, line, copies) {
                from = self.held_lanes(p, line, [from, vectors_to])?;
                numbers.remove(0);
            }
            numbers.dedup();
            for many in numbers {
                let step = i64::from(LANES * many);
                if n >= step {
                    let body = |unit: &mut Self, d| unit.quads(p, line, d, many);
                    from = self.looped(from, vectors_to, step, body)?;
                }
            }
        }
        self.looped(from, to, 1, |unit, d| unit.element(p, line, d))?;
        Some(())
    }

    /// A loop from `from` in steps while a whole one fits below `to`; gives where it ended.
    pub(crate) fn looped(
        &mut self,
        from: Value,
        to: Value,
        step: i64,
        body: impl FnOnce(&mut Self, Value) -> Option<()>,
    ) -> Option<Value> {
        let body = |unit: &mut Self, d, _: &[Value]| body(unit, d).map(|()| Vec::new());
        self.looped_with(from, to, step, &[], body).map(|(d, _)| d)
    }

    /// The same with further values that a turn hands to the next; gives the last of them, too.
    pub(crate) fn looped_with(
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

    /// The element that a parameter reads at a coordinate.
    pub(crate) fn element_of(
        &mut self,
        p: &LoopNest,
        line: &LineValues,
        k: usize,
        at: &[Value],
        params: &[Option<Value>],
    ) -> Option<Value> {
        let (read, dtype) = (p.reads.get(k)?, *p.types.get(k)?);
        if let Some(chosen) = line.sources.get(k).copied().flatten() {
            return Some(self.chosen_element(&chosen, *at.last()?, dtype));
        }
        Some(self.read(p, read, dtype, &line.fixed, &PointValues { at, params }))
    }

    /// One element: parameters, body, outputs.
    fn element(&mut self, p: &LoopNest, line: &LineValues, d: Value) -> Option<()> {
        let mut at = line.outer.clone();
        at.push(d);
        let mut params = line.fixed.params.clone();
        for k in 0..p.reads.len() {
            if p.varies[k] {
                params[k] = Some(self.element_of(p, line, k, &at, &params)?);
            }
        }
        let mut values = line.values.clone();
        for (v, inst) in p.body.insts.iter() {
            if values[v.index()].is_none() {
                values[v.index()] = match inst.op {
                    SOp::Param(k) => params.get(k as usize).copied().flatten(),
                    SOp::Const(_) => None,
                    _ => {
                        let args = self.arguments(p, &inst.args, &values)?;
                        let from = inst.args.first().map_or(inst.dtype, |&a| p.body.insts[a].dtype);
                        Some(self.scalar(inst, from, &args)?)
                    }
                };
            }
        }
        let outputs = self.arguments(p, &p.body.outputs, &values)?;
        let here = PointValues { at: &at, params: &params };
        for (k, (a, value)) in p.writes.iter().zip(outputs).enumerate() {
            match &p.folds[k] {
                Some(fold) => self.fold_element(fold, line, k, value, d)?,
                None => self.store(p, a, value, &line.fixed, &here),
            }
        }
        if let Some((form, guards, places)) = &p.target {
            let mut place = self.form(p, *form, &line.fixed, &here);
            if let Some(holds) = self.guards(p, guards, &line.fixed, &here) {
                let none = self.long(-1);
                place = self.b.ins().select(holds, place, none);
            }
            let address = self.address(p, places, &line.fixed, &here);
            self.b.ins().store(flags(), place, address, 0);
        }
        Some(())
    }
}
