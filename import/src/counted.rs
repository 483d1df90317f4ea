//! Facts of `while` loops that count: the counter, its bound, carries that do not change, and the slices that a step
//! reads and writes at the counter's place.

use adfuse_ir::{Function, Inst, Op, Region, Value, ValueDef};
use std::collections::BTreeSet;

/// Levels of sums that an index is made of.
const MOST_LEVELS: usize = 8;

/// A loop that goes on while a counter is below a bound.
pub(crate) struct CountedLoop {
    /// The carry that the condition compares.
    pub(crate) counter: usize,
    /// Carries that begin and go on as the counter does, itself among them.
    twins: Vec<bool>,
    /// What it is compared with, where that is no carry.
    pub(crate) bound: Value,
    /// The carry that it is compared with, which does not change.
    pub(crate) bound_carry: Option<usize>,
    /// Carries that every step hands on as they are.
    pub(crate) invariant: Vec<bool>,
    /// The number of steps, where the counter begins with 0 and the bound is a constant; else 0.
    pub(crate) trips: u64,
    body: Region,
}

/// Whether places go up with the counter, or down from the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowDirection {
    Forward,
    Backward,
}

impl RowDirection {
    pub(crate) fn is_backward(self) -> bool {
        self == RowDirection::Backward
    }
}

/// A slice that a step reads.
pub(crate) struct SliceRead {
    pub(crate) inst: Inst,
    pub(crate) direction: RowDirection,
}

/// A slice that a step writes into a carry.
pub(crate) struct SliceWrite {
    pub(crate) inst: Inst,
    pub(crate) carry: usize,
    pub(crate) direction: RowDirection,
}

/// The slices of a loop's steps.
pub(crate) struct LoopSlices {
    pub(crate) reads: Vec<SliceRead>,
    pub(crate) writes: Vec<SliceWrite>,
    /// Whether anything else reads the counter.
    pub(crate) reads_counter: bool,
    live: BTreeSet<u32>,
}

fn defined_by(f: &Function, v: Value, op: Op) -> Option<Inst> {
    match f.def(v) {
        ValueDef::Inst(i, _) if f.op(i) == op => Some(i),
        _ => None,
    }
}

fn integer(f: &Function, v: Value) -> Option<i64> {
    f.literal(v).filter(|l| l.dtype().is_int()).map(|l| l.to_i64())
}

impl CountedLoop {
    /// The facts of a `while` that counts by ones.
    pub(crate) fn of(f: &Function, i: Inst) -> Option<CountedLoop> {
        let [test, body] = f.inst(i).regions[..] else { return None };
        let (test, data, args) = (f.region(test), f.region(body), f.args(i));
        let &[p] = &test.results[..] else { return None };
        if data.results.len() != args.len() || data.params.len() != args.len() {
            return None;
        }
        // Anything else in the condition is read by nothing.
        let less = defined_by(f, p, Op::Lt)?;
        let &[at, bound] = f.args(less) else { return None };
        let counter = test.params.iter().position(|&v| v == at)?;
        let invariant: Vec<bool> =
            data.results.iter().zip(&data.params).map(|(r, p)| r == p).collect();
        let bound_carry = test.params.iter().position(|&v| v == bound);
        let outer = match f.def(bound) {
            ValueDef::Literal(_) => true,
            ValueDef::Inst(b, _) => !test.insts.contains(&b),
            ValueDef::Param(region, _) => region != f.inst(i).regions[0],
        };
        if !(outer || bound_carry.is_some_and(|k| invariant[k]))
            || !f.ty(at).dtype.is_int()
            || f.ty(at).rank() != 0
        {
            return None;
        }
        let steps = |k: usize| {
            let next = defined_by(f, data.results[k], Op::Add);
            next.is_some_and(|add| match f.args(add) {
                &[a, b] => {
                    a == data.params[k] && integer(f, b) == Some(1)
                        || b == data.params[k] && integer(f, a) == Some(1)
                }
                _ => false,
            })
        };
        if !steps(counter) {
            return None;
        }
        let twins: Vec<bool> = (0..args.len())
            .map(|k| {
                k == counter || args[k] == args[counter] && f.literal(args[k]).is_some() && steps(k)
            })
            .collect();
        let trips = match (integer(f, args[counter]), integer(f, bound)) {
            (Some(0), Some(n)) if n > 0 => n as u64,
            _ => 0,
        };
        Some(CountedLoop { counter, twins, bound, bound_carry, invariant, trips, body })
    }

    /// Whether a carry counts as the counter does.
    pub(crate) fn is_counter(&self, k: usize) -> bool {
        self.twins[k]
    }

    /// Whether steps change a carry otherwise than by counting.
    pub(crate) fn carries(&self, k: usize) -> bool {
        !self.is_counter(k) && !self.invariant[k]
    }

    /// The index `factor * counter + offset` that a value is.
    fn affine(&self, f: &Function, v: Value, levels: usize) -> Option<(i64, i64)> {
        if let Some(n) = integer(f, v) {
            return Some((0, n));
        }
        match f.def(v) {
            ValueDef::Param(region, k) if region == self.body && self.is_counter(k as usize) => {
                Some((1, 0))
            }
            ValueDef::Inst(i, _) if levels > 0 && matches!(f.op(i), Op::Add | Op::Sub) => {
                let (a, b) = (
                    self.affine(f, f.args(i)[0], levels - 1)?,
                    self.affine(f, f.args(i)[1], levels - 1)?,
                );
                let sign = if f.op(i) == Op::Add { 1 } else { -1 };
                Some((a.0.checked_add(sign * b.0)?, a.1.checked_add(b.1.checked_mul(sign)?)?))
            }
            _ => self.wrapped(f, v, levels),
        }
    }

    /// An index that is brought into range where it is negative, which it never is.
    fn wrapped(&self, f: &Function, v: Value, levels: usize) -> Option<(i64, i64)> {
        let choice = defined_by(f, v, Op::SelectN).filter(|_| levels > 0)?;
        let &[p, plain, _] = f.args(choice) else { return None };
        let less = defined_by(f, p, Op::Lt)?;
        let &[index, zero] = f.args(less) else { return None };
        let at = self
            .affine(f, plain, levels - 1)
            .filter(|_| index == plain && integer(f, zero) == Some(0))?;
        self.direction(at).map(|_| at)
    }

    fn direction(&self, at: (i64, i64)) -> Option<RowDirection> {
        match at {
            (1, 0) => Some(RowDirection::Forward),
            (-1, last) if last + 1 == self.trips as i64 => Some(RowDirection::Backward),
            _ => None,
        }
    }

    /// The direction of indices that are the counter's place on the first axis, and 0 on the others.
    fn along(&self, f: &Function, indices: &[Value]) -> Option<RowDirection> {
        let (&first, others) = indices.split_first()?;
        let rest = others.iter().all(|&v| integer(f, v) == Some(0));
        self.direction(self.affine(f, first, MOST_LEVELS)?).filter(|_| rest)
    }

    /// Whether a slice of these extents is one row of the tensor, which has a row for each step.
    fn is_row(&self, f: &Function, whole: Value, slice: &[u64]) -> bool {
        let dims = f.ty(whole).dims().unwrap_or_default();
        dims.first() == Some(&self.trips) && slice.first() == Some(&1) && dims[1..] == slice[1..]
    }

    /// The slices of a loop of a known number of steps; `None` where there are none.
    pub(crate) fn slices(&self, f: &Function) -> Option<LoopSlices> {
        if self.trips == 0 {
            return None;
        }
        let data = f.region(self.body);
        let inside: BTreeSet<u32> = data.insts.iter().map(|i| i.as_u32()).collect();
        let mut slices = LoopSlices {
            reads: Vec::new(),
            writes: Vec::new(),
            reads_counter: false,
            live: BTreeSet::new(),
        };
        for &inst in &data.insts {
            let args = f.args(inst);
            match f.op(inst) {
                Op::DynamicSlice => {
                    let outer = match f.def(args[0]) {
                        ValueDef::Param(region, k) if region == self.body => {
                            self.invariant[k as usize]
                        }
                        ValueDef::Inst(made, _) => !inside.contains(&made.as_u32()),
                        _ => true,
                    };
                    let dims = f.ty(f.inst_results(inst)[0]).dims().unwrap_or_default();
                    let direction = self.along(f, &args[1..]);
                    if let (true, true, Some(direction)) =
                        (outer, self.is_row(f, args[0], &dims), direction)
                    {
                        slices.reads.push(SliceRead { inst, direction });
                    }
                }
                Op::DynamicUpdateSlice => {
                    let dims = f.ty(args[1]).dims().unwrap_or_default();
                    let carry = data.params.iter().position(|&p| p == args[0]);
                    let direction = self.along(f, &args[2..]);
                    if let (Some(carry), true, Some(direction)) =
                        (carry, self.is_row(f, args[0], &dims), direction)
                    {
                        let result = f.inst_results(inst)[0];
                        let alone = |v: Value| {
                            let readers =
                                data.insts.iter().filter(|&&j| f.reads(j, &|x| x == v)).count();
                            (readers, data.results.iter().filter(|&&r| r == v).count())
                        };
                        if alone(args[0]) == (1, 0)
                            && alone(result) == (0, 1)
                            && data.results[carry] == result
                            && f.args(inst)[1] != args[0]
                        {
                            slices.writes.push(SliceWrite { inst, carry, direction });
                        }
                    }
                }
                _ => {}
            }
        }
        if slices.reads.is_empty() && slices.writes.is_empty() {
            return None;
        }
        self.mark_live(f, &mut slices);
        Some(slices)
    }

    /// Which instructions the steps still need, and whether they need the counter.
    fn mark_live(&self, f: &Function, slices: &mut LoopSlices) {
        let data = f.region(self.body);
        let mut needed: BTreeSet<u32> = BTreeSet::new();
        for (k, &v) in data.results.iter().enumerate() {
            if self.carries(k) && slices.stack_of(k).is_none() {
                needed.insert(v.as_u32());
            }
        }
        needed.extend(slices.writes.iter().map(|w| f.args(w.inst)[1].as_u32()));
        let counters: Vec<Value> = (0..data.params.len())
            .filter(|&k| self.is_counter(k))
            .map(|k| data.params[k])
            .collect();
        for (n, &inst) in data.insts.iter().enumerate().rev() {
            let wanted = f.inst_results(inst).iter().any(|v| needed.contains(&v.as_u32()))
                || f.has_effect(inst);
            if !wanted || slices.replaces(inst) {
                continue;
            }
            slices.live.insert(inst.as_u32());
            needed.extend(f.args(inst).iter().map(|v| v.as_u32()));
            if !f.inst(inst).regions.is_empty() {
                let before =
                    data.insts[..n].iter().flat_map(|&j| f.inst_results(j)).chain(&data.params);
                needed.extend(before.filter(|&&v| f.reads(inst, &|x| x == v)).map(|v| v.as_u32()));
            }
        }
        slices.reads_counter = counters.iter().any(|v| needed.contains(&v.as_u32()));
    }
}

impl LoopSlices {
    /// The stack that takes the place of a carry.
    pub(crate) fn stack_of(&self, carry: usize) -> Option<usize> {
        self.writes.iter().position(|w| w.carry == carry)
    }

    /// Whether an instruction reads or writes one of these slices.
    pub(crate) fn replaces(&self, inst: Inst) -> bool {
        self.reads.iter().any(|r| r.inst == inst) || self.writes.iter().any(|w| w.inst == inst)
    }

    /// Whether a step still needs an instruction.
    pub(crate) fn live(&self, inst: Inst) -> bool {
        self.live.contains(&inst.as_u32())
    }

    /// Whether the scan goes from the last element to the first: where all slices do.
    pub(crate) fn reverse(&self) -> bool {
        let mut all =
            self.reads.iter().map(|r| r.direction).chain(self.writes.iter().map(|w| w.direction));
        all.all(RowDirection::is_backward)
    }
}
