//! Reflections that make no more than Q and R are raised to `qr`, whose derivative has a closed form: JAX writes `qr` as calls of
//! LAPACK's `geqrf` and `orgqr`, and reads R as a triangle of what the first gives.

use crate::known::KnownValues;
use adfuse_ir::rewrite::{Copier, dce};
use adfuse_ir::{Attrs, Builder, DType, Diagnostic, Function, Inst, Op, TensorType, Value};
use std::collections::HashMap;

/// The instructions that `qr` gives the results of.
#[derive(Default)]
struct QrFound {
    /// Those whose result is Q or R, with the reflections that they are of.
    parts: HashMap<Inst, (Inst, QrPart)>,
    /// Q and R, by their reflections.
    made: HashMap<Inst, [Value; 2]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum QrPart {
    Q = 0,
    R = 1,
}

/// The function with its reflections raised, and what they no longer need removed.
pub(crate) fn raise_qr(f: &Function) -> Result<Function, Diagnostic> {
    let mut reflections = Vec::new();
    f.walk(&mut |f, i| reflections.extend((f.op(i) == Op::Householder).then_some(i)));
    if reflections.is_empty() {
        return Ok(f.clone());
    }
    let users = users(f);
    let mut found = QrFound::default();
    for i in reflections {
        for (user, part) in parts(f, i, &users).unwrap_or_default() {
            found.parts.insert(user, (i, part));
        }
    }
    if found.parts.is_empty() {
        return Ok(f.clone());
    }
    let mut raised = Copier::new(f).rebuild(&mut |copier, b, i| each(&mut found, copier, b, i))?;
    dce(&mut raised);
    Ok(raised)
}

fn each(
    found: &mut QrFound,
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
) -> Result<(), Diagnostic> {
    let f = copier.from();
    if let Some(&(of, part)) = found.parts.get(&i)
        && let Some(made) = found.made.get(&of)
    {
        copier.stand_for(b, f.inst_results(i), &[made[part as usize]]);
        return Ok(());
    }
    copier.inst_with(b, i, &mut |c, b, i| each(found, c, b, i))?;
    if found.parts.values().any(|&(of, _)| of == i) {
        // The reflections themselves are read no longer.
        let a = copier.get(b, f.args(i)[0]);
        let types = result_types(f.ty(f.args(i)[0]));
        let made = b.place(Op::Qr, &[a], Attrs::none(), &types, &[]);
        let made = b.func().inst_results(made);
        found.made.insert(i, [made[0], made[1]]);
    }
    Ok(())
}

/// The types of Q and R.
fn result_types(a: &TensorType) -> [TensorType; 2] {
    let (mut q, mut r) = (a.clone(), a.clone());
    let last = a.rank() - 1;
    let least = a.shape[last].min(a.shape[last - 1]);
    q.shape[last] = least;
    r.shape[last - 1] = least;
    [q, r]
}

/// What uses each value: instructions, and `None` for the results of a region.
type Users = HashMap<Value, Vec<Option<Inst>>>;

fn users(f: &Function) -> Users {
    let mut users = Users::new();
    f.walk(&mut |f, i| {
        for &v in f.args(i) {
            users.entry(v).or_default().push(Some(i));
        }
        for &region in &f.inst(i).regions {
            for &v in &f.region(region).results {
                users.entry(v).or_default().push(None);
            }
        }
    });
    for &v in f.results() {
        users.entry(v).or_default().push(None);
    }
    users
}

/// The instructions that give Q and R of reflections; `None` where something else is made of them.
fn parts(f: &Function, i: Inst, users: &Users) -> Option<Vec<(Inst, QrPart)>> {
    let [packed, scales] = *f.inst_results(i) else { return None };
    let [of_q, of_r] = result_types(f.ty(f.args(i)[0]));
    let of = |v: Value| users.get(&v).map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    let mut known = KnownValues::default();
    // What reads the whole, and what reads the first rows or columns of it.
    let mut open = vec![packed];
    while let Some(v) = open.pop() {
        for &user in of(v) {
            let user = user?;
            let made = *f.inst_results(user).first()?;
            match f.op(user) {
                Op::Slice if v == packed && is_first(f, user) => open.push(made),
                Op::HouseholderProduct if f.args(user) == [v, scales] && *f.ty(made) == of_q => {
                    found.push((user, QrPart::Q));
                }
                Op::SelectN if *f.ty(made) == of_r && is_triangle(f, user, v, &mut known) => {
                    found.push((user, QrPart::R));
                }
                _ => return None,
            }
        }
    }
    let whole = |user: &Option<Inst>| user.is_some_and(|i| found.contains(&(i, QrPart::Q)));
    of(scales).iter().all(whole).then_some(found)
}

/// Whether a slice begins at the first element of each axis, and leaves none out between.
fn is_first(f: &Function, slice: Inst) -> bool {
    let attrs = f.attrs(slice);
    let starts = attrs.ints("start").iter().all(|&n| n == 0);
    starts && attrs.ints("stride").iter().all(|&n| n == 1)
}

/// Whether a choice keeps the elements of `x` that are not below the diagonal, and has 0 for the others.
fn is_triangle(f: &Function, choice: Inst, x: Value, known: &mut KnownValues) -> bool {
    let [below, no, yes] = *f.args(choice) else { return false };
    let (kept_where, other) = if no == x { (0, yes) } else { (1, no) };
    if (no == x) == (yes == x) {
        return false;
    }
    let mut all = |v: Value| known.value(f, v).and_then(|t| t.literals());
    let (Some(below), Some(zeros)) = (all(below), all(other)) else { return false };
    let Some(dims) = f.ty(x).dims() else { return false };
    let [.., rows, columns] = dims[..] else { return false };
    let zero = |dtype: DType, l: &adfuse_ir::Literal| *l == adfuse_ir::Literal::zero(dtype);
    let dtype = f.ty(x).dtype;
    zeros.iter().all(|l| zero(dtype, l))
        && below.iter().enumerate().all(|(k, l)| {
            let (row, column) = (k as u64 / columns % rows, k as u64 % columns);
            let kept = row <= column;
            (l.bits() == kept_where) == kept
        })
}
