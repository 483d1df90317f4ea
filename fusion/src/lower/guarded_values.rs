//! Computed values under guards: what they are where the guards do not hold, and indices that guards make simpler.

use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Operand, Param};
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal, ScalarProgram, eval_one};
use adfuse_ir::{DType, Literal};
use smallvec::SmallVec;

/// The most instructions that are looked at to find what a value is where guards do not hold.
const MOST_LOOKED_AT: usize = 48;

/// Whether a value is this constant wherever one of the guards does not hold, so that no choice between the two is needed:
/// `max(x, 0)` is 0 where `x` is read as 0 there.
pub(super) fn falls_to(
    (program, params): (&ScalarProgram, &[Param]),
    x: SVal,
    guards: &[Guard],
    rest: Literal,
) -> bool {
    let mut known = KnownOutside { program, params, guards, seen: SmallVec::new() };
    known.value(x) == Some(rest)
}

/// Values where one of some guards does not hold, as far as they are known.
struct KnownOutside<'a> {
    program: &'a ScalarProgram,
    params: &'a [Param],
    guards: &'a [Guard],
    seen: SmallVec<[(SVal, Option<Literal>); 16]>,
}

impl KnownOutside<'_> {
    fn value(&mut self, x: SVal) -> Option<Literal> {
        if let Some(&(_, known)) = self.seen.iter().find(|(v, _)| *v == x) {
            return known;
        }
        if self.seen.len() >= MOST_LOOKED_AT {
            return None;
        }
        // Before it is known, it counts as looked at.
        let at = self.seen.len();
        self.seen.push((x, None));
        let found = self.computed(x);
        self.seen[at].1 = found;
        found
    }

    fn computed(&mut self, x: SVal) -> Option<Literal> {
        let inst = &self.program.insts[x];
        match inst.op {
            SOp::Const(l) => Some(l),
            SOp::Param(k) => self.loaded(self.params.get(k as usize)?),
            SOp::Func(_) => None,
            SOp::Prim(Prim::Select) => {
                let [which, on, off] = inst.args[..] else { return None };
                match self.value(which) {
                    Some(l) if l == Literal::zero(DType::Bool) => self.value(off),
                    Some(_) => self.value(on),
                    None => {
                        let on = self.value(on)?;
                        (self.value(off) == Some(on)).then_some(on)
                    }
                }
            }
            SOp::Prim(_) => {
                let args: Option<SmallVec<[Literal; 3]>> =
                    inst.args.iter().map(|&a| self.value(a)).collect();
                Some(applied(inst, &args?))
            }
        }
    }

    /// What a load gives: the constant of its last piece, if all others are under the guards.
    fn loaded(&self, param: &Param) -> Option<Literal> {
        let Param::Load(pieces) = param else { return None };
        let (last, others) = pieces.split_last()?;
        let Operand::Literal(l) = last.from else { return None };
        let under = others.iter().all(|p| self.guards.iter().all(|g| p.guards.contains(g)));
        (last.guards.is_empty() && under).then_some(l)
    }
}

/// A primitive of constants.
fn applied(inst: &SInst, args: &[Literal]) -> Literal {
    let mut program = ScalarProgram::default();
    let mut values: SmallVec<[SVal; 3]> = SmallVec::new();
    for l in args {
        let (op, dtype) = (SOp::Const(*l), l.dtype());
        values.push(program.insts.push(SInst { op, args: SmallVec::new(), dtype }));
    }
    let made = program.insts.push(SInst { args: values, ..inst.clone() });
    program.outputs.push(made);
    eval_one(&program, &[])
}

/// An index where some guards hold. The guards of a padding between elements say that quotients have no remainder there:
/// `x / 2 * 2` is `x` where `x % 2` is 0.
pub(super) fn exact<'a>(
    e: &IndexExpr,
    guards: impl Iterator<Item = &'a Guard> + Clone,
) -> IndexExpr {
    let whole = |x: &IndexExpr, n: i64| {
        guards.clone().any(|g| {
            matches!(&g.expr, IndexExpr::Mod(y, m) if *m == n && **y == *x) && g.range == (0..1)
        })
    };
    match e {
        IndexExpr::Mul(quotient, k) => match &**quotient {
            IndexExpr::FloorDiv(x, n) if k % n == 0 && whole(x, *n) => {
                exact(x, guards.clone()).times(k / n)
            }
            x => exact(x, guards.clone()).times(*k),
        },
        IndexExpr::Add(a, b) => exact(a, guards.clone()).sum(exact(b, guards.clone())),
        IndexExpr::FloorDiv(a, c) => exact(a, guards.clone()).floor_div(*c),
        IndexExpr::Mod(a, c) => exact(a, guards.clone()).modulo(*c),
        IndexExpr::Axis(_) | IndexExpr::Const(_) | IndexExpr::Data { .. } => e.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::{Buffer, Piece};
    use cranelift_entity::EntityRef;

    #[test]
    fn an_exact_index_is_the_same_place_where_its_guards_hold() {
        for (n, times, low) in [(2, 2, 0), (2, 2, -2), (3, 6, -1), (2, 3, 0), (4, 2, -1)] {
            let x = IndexExpr::axis(0).plus(low);
            let guard = Guard { expr: x.clone().modulo(n), range: 0..1 };
            let e = x.floor_div(n).times(times).sum(IndexExpr::axis(1)).plus(1);
            let found = exact(&e, [&guard].into_iter());
            assert_eq!(found != e, times % n == 0, "{e}");
            for (i, j) in (0..24).map(|k| (k, k % 5)) {
                if guard.range.contains(&guard.expr.eval(&[i, j], &[])) {
                    assert_eq!(found.eval(&[i, j], &[]), e.eval(&[i, j], &[]), "{e}: {found}");
                }
            }
            // Without a guard, and with one that leaves a remainder, a quotient stays one.
            assert_eq!(exact(&e, [].into_iter()), e);
            let other = Guard { range: 0..2, ..guard };
            assert_eq!(exact(&e, [&other].into_iter()), e);
        }
    }

    #[test]
    fn what_is_read_as_a_constant_may_give_one() {
        let guard = Guard { expr: IndexExpr::axis(0), range: 1..7 };
        let load = |guards: &[Guard]| {
            let at = |from, guards: &[Guard]| Piece {
                from,
                index: SmallVec::from_iter([IndexExpr::axis(0)]),
                guards: guards.iter().cloned().collect(),
            };
            let none = at(Operand::Literal(Literal::zero(DType::F32)), &[]);
            let there = at(Operand::Buffer(Buffer::new(0)), guards);
            Param::Load(SmallVec::from_vec(vec![there, none]))
        };
        // The first is under the guard, the second is not.
        let params = [load(std::slice::from_ref(&guard)), load(&[])];
        let mut program = ScalarProgram::default();
        let mut push = |op, args: &[SVal], dtype| {
            program.insts.push(SInst { op, args: args.iter().copied().collect(), dtype })
        };
        let (f32, bool) = (DType::F32, DType::Bool);
        let (x, y) = (push(SOp::Param(0), &[], f32), push(SOp::Param(1), &[], f32));
        let zero = push(SOp::Const(Literal::zero(f32)), &[], f32);
        let one = push(SOp::Const(Literal::one(f32)), &[], f32);
        let largest = push(SOp::Prim(Prim::Max), &[x, zero], f32);
        let equal = push(SOp::Prim(Prim::Eq), &[y, zero], bool);
        let either = push(SOp::Prim(Prim::Select), &[equal, x, zero], f32);
        let sum = push(SOp::Prim(Prim::Add), &[x, one], f32);
        let other = push(SOp::Prim(Prim::Add), &[x, y], f32);
        let negative = push(SOp::Prim(Prim::Neg), &[x], f32);
        let falls = |v, rest| falls_to((&program, &params), v, std::slice::from_ref(&guard), rest);
        let zero = Literal::zero(f32);
        let table = [(x, true), (largest, true), (either, true), (sum, false), (other, false)];
        for (v, holds) in table {
            assert_eq!(falls(v, zero), holds, "{v}");
        }
        assert!(falls(sum, Literal::one(f32)));
        // The other zero is another number.
        assert!(!falls(negative, zero));
        assert!(!falls(y, zero));
    }
}
