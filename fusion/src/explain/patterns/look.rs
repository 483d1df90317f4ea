//! The uses and definitions of values, for pattern matching.

use adfuse_ir::op::Body;
use adfuse_ir::{Function, Inst, Op, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// The most instructions of a pattern, and of a search.
const MOST: usize = 64;

/// A function with what reads each value.
pub(crate) struct UseMap<'f> {
    pub(crate) f: &'f Function,
    pub(crate) users: SecondaryMap<Value, SmallVec<[Inst; 4]>>,
    position: SecondaryMap<Inst, u32>,
}

/// The most readers of a value that is projected.
const MOST_READERS: usize = 64;

impl<'f> UseMap<'f> {
    pub(crate) fn new(f: &'f Function) -> UseMap<'f> {
        let mut users: SecondaryMap<Value, SmallVec<[Inst; 4]>> =
            SecondaryMap::with_capacity(f.value_count());
        let mut position = SecondaryMap::with_capacity(f.inst_count());
        for (n, &i) in f.body_insts().iter().enumerate() {
            position[i] = n as u32;
            for &v in f.args(i) {
                if users[v].last() != Some(&i) {
                    users[v].push(i);
                }
            }
        }
        UseMap { f, users, position }
    }

    pub(crate) fn made(&self, v: Value) -> Option<Inst> {
        match self.f.def(v) {
            ValueDef::Inst(i, _) => Some(i),
            _ => None,
        }
    }

    /// What a value is under views, conversions and held gradients.
    pub(crate) fn clear(&self, v: Value) -> Value {
        let mut v = v;
        for _ in 0..MOST {
            let Some(i) = self.made(v) else { break };
            let passes = matches!(self.f.op(i), Op::ConvertElementType | Op::StopGradient)
                || matches!(self.f.op(i).def().body, Body::View(_));
            match self.f.args(i) {
                &[x] if passes => v = x,
                _ => break,
            }
        }
        v
    }

    /// The instruction of this op that makes a value, under views and conversions.
    pub(crate) fn by(&self, v: Value, op: Op) -> Option<Inst> {
        self.made(self.clear(v)).filter(|&i| self.f.op(i) == op)
    }

    /// The operand of the instruction of this op that makes a value.
    pub(crate) fn under(&self, v: Value, op: Op) -> Option<Value> {
        self.f.args(self.by(v, op)?).first().copied()
    }

    pub(crate) fn same(&self, a: Value, b: Value) -> bool {
        self.clear(a) == self.clear(b)
    }

    pub(crate) fn number(&self, v: Value) -> Option<f64> {
        self.f.literal(self.clear(v)).map(|l| l.to_f64())
    }

    /// The operands of an instruction of this op, one way and the other.
    pub(crate) fn pair(&self, i: Inst, op: Op) -> SmallVec<[(Value, Value); 2]> {
        match self.f.args(i) {
            &[a, b] if self.f.op(i) == op => SmallVec::from_slice(&[(a, b), (b, a)]),
            _ => SmallVec::new(),
        }
    }

    /// What a value is a reciprocal of.
    pub(crate) fn reciprocal(&self, v: Value) -> Option<Value> {
        if let Some(i) = self.by(v, Op::Div) {
            let args = self.f.args(i);
            return (self.number(args[0]) == Some(1.0)).then_some(args[1]);
        }
        let i = self.by(v, Op::IntegerPow)?;
        (self.f.attrs(i).int("y") == -1).then(|| self.f.args(i)[0])
    }

    /// What a value is divided by and what of it is: a quotient, or a product with a reciprocal.
    pub(crate) fn quotient(&self, i: Inst) -> Option<(Value, Value)> {
        if let (Op::Div, &[a, b]) = (self.f.op(i), self.f.args(i)) {
            return Some((a, b));
        }
        let pairs = self.pair(i, Op::Mul);
        pairs.into_iter().find_map(|(a, b)| Some((a, self.reciprocal(b)?)))
    }

    /// What a value is the mean of, over the last axis at least.
    pub(crate) fn mean(&self, v: Value) -> Option<Value> {
        let i = self.made(self.clear(v))?;
        let (a, b) = match (self.f.op(i), self.f.args(i)) {
            (Op::Div | Op::Mul, &[a, b]) if self.number(b).is_some() => (a, b),
            (Op::Mul, &[a, b]) if self.number(a).is_some() => (b, a),
            _ => return None,
        };
        self.number(b)?;
        let sum = self.by(a, Op::ReduceSum)?;
        let x = *self.f.args(sum).first()?;
        // Over rows: over other axes it is another norm.
        let last = self.f.ty(x).rank() as i64 - 1;
        self.f.attrs(sum).ints("axes").contains(&last).then_some(x)
    }

    /// What a value is the square of.
    pub(crate) fn square(&self, v: Value) -> Option<Value> {
        let i = self.made(self.clear(v))?;
        match (self.f.op(i), self.f.args(i)) {
            (Op::Square, &[x]) => Some(x),
            (Op::IntegerPow, &[x]) if self.f.attrs(i).int("y") == 2 => Some(x),
            (Op::Mul, &[a, b]) if self.same(a, b) => Some(a),
            _ => None,
        }
    }

    /// What exponentials are taken of, without the maximum that is taken off it.
    pub(crate) fn unshifted(&self, v: Value) -> Value {
        let shift = self.by(v, Op::Sub).map(|i| self.f.args(i));
        match shift {
            Some(&[x, m]) if self.under(m, Op::ReduceMax).is_some() => self.clear(x),
            _ => self.clear(v),
        }
    }

    /// What a value is the logarithm of a sum of exponentials of.
    pub(crate) fn log_sum(&self, v: Value) -> Option<Value> {
        if let Some(sum) = self.under(v, Op::Log) {
            let e = self.under(sum, Op::ReduceSum)?;
            return Some(self.unshifted(self.under(e, Op::Exp)?));
        }
        let i = self.by(v, Op::Add)?;
        let shifted = |(a, b): (Value, Value)| {
            self.under(b, Op::ReduceMax)?;
            let e = self.under(self.under(a, Op::Log)?, Op::ReduceSum)?;
            Some(self.unshifted(self.under(e, Op::Exp)?))
        };
        self.pair(i, Op::Add).into_iter().find_map(shifted)
    }

    /// Whether a value has fewer elements under the views that repeat it.
    pub(crate) fn is_spread(&self, v: Value) -> bool {
        let x = self.clear(v);
        self.f.literal(x).is_none() && self.f.ty(x).rank() < self.f.ty(v).rank()
    }

    /// Visits what elementwise instructions and views make a value of, down to the first that `stop`
    /// names; whether it was all seen.
    pub(crate) fn visit(&self, v: Value, stop: &mut dyn FnMut(Value) -> bool) -> bool {
        let (mut stack, mut seen) = (vec![v], EntitySet::<Value>::new());
        let mut count = 0;
        while let Some(v) = stack.pop() {
            if self.f.literal(v).is_some() || !seen.insert(v) || stop(v) {
                continue;
            }
            let Some(i) = self.made(v) else { return false };
            count += 1;
            if count > MOST {
                return false;
            }
            stack.extend(self.f.args(i));
        }
        true
    }

    /// Whether a value is made of `x`, literals and elementwise instructions alone.
    pub(crate) fn is_of(&self, v: Value, x: Value) -> bool {
        let x = self.clear(x);
        let mut met = false;
        let mut stop = |v: Value| {
            met |= v == x;
            v == x || self.made(v).is_some_and(|i| !matches!(self.f.op(i).def().body, Body::Map(_)))
        };
        self.visit(v, &mut stop) && met
    }

    /// The instructions from which the inputs are taken to the last one.
    pub(crate) fn between(&self, last: Inst, inputs: &[Value]) -> Option<Vec<Inst>> {
        let mut insts = Vec::new();
        let mut stop = |v: Value| {
            let ends = inputs.contains(&v) || self.made(v).is_none();
            if let (false, Some(i)) = (ends, self.made(v)) {
                insts.push(i);
            }
            ends
        };
        if !self.visit(self.f.inst_results(last)[0], &mut stop) {
            return None;
        }
        insts.sort_unstable_by_key(|&i| self.position[i]);
        Some(insts)
    }

    /// Three or more contractions that read one operand alike, or slices of one that does it for all;
    /// `i` is the last of them.
    pub(crate) fn projections(&self, i: Inst) -> Option<Vec<Inst>> {
        let alike = |j: &Inst| {
            let of = |k: Inst| {
                (self.f.op(k), self.f.inst(k).attrs, self.f.type_id(self.f.inst_results(k)[0]))
            };
            of(*j) == of(i) && self.f.args(*j)[0] == self.f.args(i)[0]
        };
        let &x = self.f.args(i).first()?;
        // What very many read is no input of projections, and not worth going through each time.
        if self.users[x].len() > MOST_READERS {
            return None;
        }
        match self.f.op(i) {
            Op::DotGeneral => {
                let found: Vec<Inst> = self.users[x].iter().copied().filter(alike).collect();
                (found.len() >= 3 && found.last() == Some(&i)).then_some(found)
            }
            Op::Slice => {
                let extent = self.f.type_id(self.f.inst_results(i)[0]);
                let same = |j: &Inst| {
                    self.f.op(*j) == Op::Slice
                        && self.f.type_id(self.f.inst_results(*j)[0]) == extent
                };
                let slices: Vec<Inst> = self.users[x].iter().copied().filter(same).collect();
                let from = match self.by(x, Op::Add) {
                    Some(add) => self.f.args(add).iter().find_map(|&a| self.by(a, Op::DotGeneral)),
                    None => self.by(x, Op::DotGeneral),
                }?;
                if slices.len() != 3 || slices.last() != Some(&i) {
                    return None;
                }
                let mut insts = self.between(i, self.f.args(from))?;
                insts.extend(slices.into_iter().filter(|&s| s != i));
                insts.sort_unstable_by_key(|&i| self.position[i]);
                Some(insts)
            }
            _ => None,
        }
    }
}
