//! Unrolls short folds: the fold of a window becomes an expression of its elements.
//!
//! A kernel that folds a few neighbours for every element of its result should be vectorized along the result. Each
//! element of a window is a view of the operand. So the fold is unrolled over views, in the order that strict mode
//! defines, and keeps its bits. Folds along rows are not unrolled: their elements are contiguous. Windows side by side, whose
//! axes a reshape made, are two runs of axes with kept axes between them.

use adfuse_ir::attrs::Attrs;
use adfuse_ir::kernel::{Order, Run, strict_runs};
use adfuse_ir::op::{Body, Monoid};
use adfuse_ir::rewrite::{Exactness, Pattern, Reads, Rule, RuleTable, Site, When, rewrite};
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Literal, Op, TensorType, Value, ValueDef};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The most elements of a fold that is written out: the lanes of the strict order, each of which has one.
const MOST: u64 = 32;
/// The least elements of a result that is worth it.
const RESULT: u64 = 64;
/// How many instructions may lie between a fold and the windows under it.
const DEPTH: u32 = 12;

/// The function with the folds of windows written out.
pub(crate) fn windows_written_out(f: &Function) -> Result<Function, Diagnostic> {
    Ok(rewrite(f, &WINDOWS, Exactness::Exact)?.0)
}

/// The folds of windows, written out.
pub(crate) static WINDOWS: RuleTable = RuleTable {
    name: "windows",
    doc: "Before planning, after algebra.",
    reads: Reads::Source,
    regions: false,
    rules: &[
        Rule {
            name: "unroll-windows",
            doc: "A fold of at most 32 elements of a window, or of axes that a reshape made with kept axes between, becomes an expression of its elements, in strict order; the place of an extremum too.",
            exactness: Exactness::Exact,
            pattern: Pattern::Class(|body| matches!(body, Body::Reduce(_))),
            then: &When {
                condition: |m| short(m.f, m.root.inst),
                build: |s, fold: Short| fold.write(s),
            },
        },
        Rule {
            name: "crop-windows",
            doc: "What is cut off a fold of at most 32 windows that are put back in place, such as the gradient of padding, is cut off each of them.",
            exactness: Exactness::Exact,
            pattern: Pattern::AnyOf(&[Op::Pad]),
            then: &When {
                condition: |m| cropped(m.f, m.root.inst),
                build: |s, fold: Short| fold.write(s),
            },
        },
    ],
};

/// How elements fold.
#[derive(Clone, Copy)]
enum FoldedBy {
    Op(Op),
    /// To the place of the first that no other beats.
    Place(Beats),
}

/// Which of two elements beats the other: the one that compares so, and a NaN every number.
#[derive(Clone, Copy)]
struct Beats(Op);

/// A fold of few elements.
struct Short {
    /// What folds.
    operand: Value,
    /// The places that are added before and after the result along each axis, none above 0.
    crop: Option<[Vec<i64>; 2]>,
    join: FoldedBy,
    /// The axes that it folds, ascending, and how many elements each has.
    axes: Vec<usize>,
    extents: Vec<u64>,
    /// The order of the elements, the run of the fastest axes first.
    runs: SmallVec<[Run; 2]>,
}

/// What a fold is, if it is short and of windows.
fn short(f: &Function, i: Inst) -> Option<Short> {
    let Body::Reduce(monoid) = f.op(i).def().body else { return None };
    let join = match monoid {
        Monoid::Sum => FoldedBy::Op(Op::Add),
        Monoid::Prod => FoldedBy::Op(Op::Mul),
        Monoid::Max => FoldedBy::Op(Op::Max),
        Monoid::Min => FoldedBy::Op(Op::Min),
        Monoid::And => FoldedBy::Op(Op::And),
        Monoid::Or => FoldedBy::Op(Op::Or),
        Monoid::ArgMax => FoldedBy::Place(Beats(Op::Gt)),
        Monoid::ArgMin => FoldedBy::Place(Beats(Op::Lt)),
    };
    let x = f.args(i)[0];
    let dims = f.ty(x).dims()?;
    let mut axes: Vec<usize> = match join {
        FoldedBy::Op(_) => f.attrs(i).ints("axes").iter().map(|&a| a as usize).collect(),
        FoldedBy::Place(_) => vec![f.attrs(i).int("axis") as usize],
    };
    axes.sort_unstable();
    let extents: Vec<u64> = axes.iter().map(|&a| dims.get(a).copied()).collect::<Option<_>>()?;
    let n = extents.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
    let kept = f.ty(f.inst_results(i)[0]).elements()?;
    if !(2..=MOST).contains(&n) || kept < RESULT {
        return None;
    }
    let marks: Vec<bool> = (0..dims.len()).map(|a| axes.contains(&a)).collect();
    let sizes: Vec<i64> = dims.iter().map(|&n| i64::try_from(n)).collect::<Result<_, _>>().ok()?;
    let runs = strict_runs(&sizes, &marks);
    // One run may be a row.
    let found = of_windows(f, x, DEPTH) || (runs.len() > 1 && of_split_axes(f, x, DEPTH));
    found.then_some(Short { operand: x, crop: None, join, axes, extents, runs })
}

/// What a fold is of which nothing but a part is read, if it is short and of windows that are put back in place.
fn cropped(f: &Function, pad: Inst) -> Option<Short> {
    let attrs = f.attrs(pad);
    let crop = ["low", "high"].map(|side| attrs.ints(side).to_vec());
    let none = |n: &i64| *n == 0;
    let cuts = crop.iter().flatten().all(|&n| n <= 0) && !crop.iter().flatten().all(none);
    if !cuts || !attrs.ints("interior").iter().all(none) {
        return None;
    }
    let x = f.args(pad)[0];
    let ValueDef::Inst(i, _) = f.def(x) else { return None };
    let fold = short(f, i)?;
    let ValueDef::Inst(of, _) = f.def(fold.operand) else { return None };
    let in_place = f.op(of) == Op::Unskew && fold.places(f, of);
    (in_place && is_read_once(f, x)).then(|| Short { crop: Some(crop), ..fold })
}

fn is_read_once(f: &Function, v: Value) -> bool {
    let mut n = f.results().iter().filter(|&&r| r == v).count();
    f.walk(&mut |f, i| n += f.args(i).iter().filter(|&&a| a == v).count());
    n == 1
}

/// Whether a value is made of windows, through views and arithmetic.
fn of_windows(f: &Function, v: Value, depth: u32) -> bool {
    let ValueDef::Inst(i, _) = f.def(v) else { return false };
    match f.op(i).def().body {
        _ if depth == 0 => false,
        Body::View(_) if matches!(f.op(i), Op::Skew | Op::Unskew | Op::Transpose) => true,
        Body::View(_) => of_windows(f, f.args(i)[0], depth - 1),
        Body::Map(_) => f.args(i).iter().any(|&a| of_windows(f, a, depth - 1)),
        _ => false,
    }
}

/// Whether a value has axes that a reshape divided others into, through arithmetic.
fn of_split_axes(f: &Function, v: Value, depth: u32) -> bool {
    let ValueDef::Inst(i, _) = f.def(v) else { return false };
    let rank = |v: Value| f.ty(v).shape.len();
    match f.op(i).def().body {
        _ if depth == 0 => false,
        Body::View(_) => f.op(i) == Op::Reshape && rank(v) > rank(f.args(i)[0]),
        Body::Map(_) => f.args(i).iter().any(|&a| of_split_axes(f, a, depth - 1)),
        _ => false,
    }
}

impl Short {
    fn write(&self, s: &mut Site<'_, '_>) -> Value {
        let (f, i) = (s.f, s.root.inst);
        let out = f.ty(f.inst_results(i)[0]).clone();
        let elements: Vec<Value> = coordinates(&self.extents)
            .iter()
            .map(|at| {
                let mut pull = Pull { f, fold: self, at, known: BTreeMap::new() };
                pull.value(s, self.operand, DEPTH)
            })
            .collect();
        match self.join {
            FoldedBy::Op(op) => self.folded(s.b, op, elements, &out),
            FoldedBy::Place(beats) => beats.first_place(s.b, &elements, &out),
        }
    }

    /// Whether windows that are put back in place were computed, and lie along folded axes in axes that stay.
    fn places(&self, f: &Function, i: Inst) -> bool {
        let folded = |d: &i64| self.axes.contains(&(*d as usize));
        let ValueDef::Inst(of, _) = f.def(f.args(i)[0]) else { return false };
        let is_map = matches!(f.op(of).def().body, Body::Map(_));
        let attrs = f.attrs(i);
        is_map && attrs.ints("along").iter().all(folded) && !attrs.ints("axes").iter().any(folded)
    }

    /// The elements folded, in strict order.
    fn folded(&self, b: &mut Builder, op: Op, elements: Vec<Value>, out: &TensorType) -> Value {
        // 16-bit floats fold in `f32` and are rounded once.
        let wide = out.with_dtype(out.dtype.compute());
        let convert = |b: &mut Builder, v: Value, to: &TensorType| {
            if b.ty(v) == to { v } else { b.op_as(Op::ConvertElementType, &[v], Attrs::none(), to) }
        };
        let mut parts: Vec<Value> = elements.into_iter().map(|v| convert(b, v, &wide)).collect();
        let join = |b: &mut Builder, l: Value, r: Value| b.op_as(op, &[l, r], Attrs::none(), &wide);
        for run in &self.runs {
            let n: u64 = run.axes.iter().map(|&k| self.extents[usize::from(k)]).product();
            let each = parts.chunks(n as usize).map(|parts| match run.order {
                Order::Chain => parts.iter().copied().reduce(|l, r| join(b, l, r)),
                Order::Lane => lanes(parts.to_vec(), |l, r| join(b, l, r)),
            });
            parts = each.flatten().collect();
        }
        let folded = parts.first().copied();
        let folded = folded.expect("a fold of two elements or more");
        convert(b, folded, out)
    }
}

impl Beats {
    /// The place among elements of the first that no other beats.
    fn first_place(self, b: &mut Builder, elements: &[Value], out: &TensorType) -> Value {
        let mut best = elements[0];
        let mut place = b.literal(out, Literal::zero(out.dtype));
        for (k, &x) in elements.iter().enumerate().skip(1) {
            let mut beats = b.op(self.0, &[x, best]);
            if b.ty(x).dtype.is_float() {
                let (is_nan, was_number) = (b.op(Op::Ne, &[x, x]), b.op(Op::Eq, &[best, best]));
                let beyond = b.op(Op::Or, &[beats, is_nan]);
                beats = b.op(Op::And, &[beyond, was_number]);
            }
            let here = b.literal(out, Literal::from_i64(out.dtype, k as i64));
            place = b.op(Op::SelectN, &[beats, place, here]);
            best = b.op(Op::SelectN, &[beats, best, x]);
        }
        place
    }
}

/// One element in each lane; the upper half of the lanes folds into the lower.
fn lanes(mut parts: Vec<Value>, mut join: impl FnMut(Value, Value) -> Value) -> Option<Value> {
    let mut half = MOST as usize / 2;
    while half > 0 {
        let upper = parts.split_off(half.min(parts.len()));
        for (l, r) in parts.iter_mut().zip(upper) {
            *l = join(*l, r);
        }
        half /= 2;
    }
    parts.first().copied()
}

/// Coordinates below the extents, row-major.
fn coordinates(extents: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    for &n in extents {
        all = all.iter().flat_map(|p| (0..n).map(|k| [p.as_slice(), &[k]].concat())).collect();
    }
    all
}

/// Values at one place of the folded axes.
struct Pull<'a> {
    f: &'a Function,
    fold: &'a Short,
    at: &'a [u64],
    known: BTreeMap<Value, Value>,
}

impl Pull<'_> {
    /// The type of a value without the folded axes.
    fn kept(&self, ty: &TensorType) -> TensorType {
        let kept = |(a, _): &(usize, _)| !self.fold.axes.contains(a);
        let shape = ty.shape.iter().enumerate().filter(kept).map(|(_, n)| *n);
        TensorType::new(ty.dtype, shape)
    }

    /// A value at the place: arithmetic is done there, everything else is cut there.
    fn value(&mut self, s: &mut Site<'_, '_>, v: Value, depth: u32) -> Value {
        if let Some(&known) = self.known.get(&v) {
            return known;
        }
        let f = self.f;
        let ty = self.kept(f.ty(v));
        let made = match f.def(v) {
            ValueDef::Literal(l) => s.b.literal(&ty, l),
            ValueDef::Inst(i, _) if depth > 0 && matches!(f.op(i).def().body, Body::Map(_)) => {
                let args: Vec<Value> =
                    f.args(i).iter().map(|&a| self.value(s, a, depth - 1)).collect();
                s.b.op_as(f.op(i), &args, f.attrs(i).clone(), &ty)
            }
            ValueDef::Inst(i, _) if f.op(i) == Op::BroadcastInDim && self.repeats(i) => {
                self.repeated(s, i, &ty)
            }
            ValueDef::Inst(i, _)
                if depth > 0 && f.op(i) == Op::Unskew && self.fold.places(f, i) =>
            {
                self.placed(s, i, &ty, depth)
            }
            _ => {
                let x = s.get(v);
                self.slice_window(s.b, x, f.ty(v), &ty)
            }
        };
        self.known.insert(v, made);
        made
    }

    /// Whether a broadcast repeats along all folded axes.
    fn repeats(&self, i: Inst) -> bool {
        let folded = |d: i64| self.fold.axes.contains(&(d as usize));
        self.f.attrs(i).ints("dims").iter().all(|&d| !folded(d))
    }

    fn repeated(&self, s: &mut Site<'_, '_>, i: Inst, ty: &TensorType) -> Value {
        let x = s.get(self.f.args(i)[0]);
        if s.b.ty(x) == ty {
            return x;
        }
        let behind = |d: i64| self.fold.axes.iter().filter(|&&a| a < d as usize).count() as i64;
        let dims = self.f.attrs(i).ints("dims").iter().map(|&d| d - behind(d));
        s.b.op_as(Op::BroadcastInDim, &[x], Attrs::none().with_ints("dims", dims), ty)
    }

    /// What is put back in place: an element of each window, as far apart as the windows begin.
    fn placed(&mut self, s: &mut Site<'_, '_>, i: Inst, ty: &TensorType, depth: u32) -> Value {
        let (f, attrs) = (self.f, self.f.attrs(i));
        let elements = self.value(s, f.args(i)[0], depth - 1);
        let filler = s.get(f.args(i)[1]);
        let rank = ty.shape.len();
        let [mut low, mut high, mut interior] = [(); 3].map(|()| vec![0i64; rank]);
        let [from, to] = [s.b.ty(elements), ty].map(|ty| ty.dims().unwrap_or_default());
        let each = attrs.ints("axes").iter().zip(attrs.ints("along"));
        let by = attrs.ints("strides").iter().zip(attrs.ints("dilation"));
        for ((&axis, &along), (&stride, &dilation)) in each.zip(by) {
            let place = self.fold.axes.iter().position(|&a| a == along as usize);
            let k = place.map_or(0, |k| self.at[k]) as i64;
            let d = axis as usize - self.fold.axes.iter().filter(|&&a| a < axis as usize).count();
            low[d] = k * dilation;
            interior[d] = stride - 1;
            let span = if from[d] == 0 { 0 } else { (from[d] as i64 - 1) * stride + 1 };
            high[d] = to[d] as i64 - low[d] - span;
        }
        let crop = self.fold.crop.as_ref().filter(|_| f.inst_results(i)[0] == self.fold.operand);
        if let Some([before, after]) = crop {
            low.iter_mut().zip(before).for_each(|(low, cut)| *low += cut);
            high.iter_mut().zip(after).for_each(|(high, cut)| *high += cut);
        }
        let attrs = Attrs::none()
            .with_ints("low", low)
            .with_ints("high", high)
            .with_ints("interior", interior);
        s.b.op_with(Op::Pad, &[elements, filler], attrs)
    }

    fn slice_window(&self, b: &mut Builder, x: Value, from: &TensorType, to: &TensorType) -> Value {
        let dims = from.dims().unwrap_or_default();
        let place = |d: usize| self.fold.axes.iter().position(|&a| a == d);
        let at = |d: usize| place(d).and_then(|k| self.at.get(k)).copied();
        let attrs = Attrs::none()
            .with_ints("start", (0..dims.len()).map(|d| at(d).unwrap_or(0) as i64))
            .with_ints("limit", (0..dims.len()).map(|d| at(d).map_or(dims[d], |k| k + 1) as i64))
            .with_ints("stride", dims.iter().map(|_| 1));
        let piece = b.op_with(Op::Slice, &[x], attrs);
        b.op_as(Op::Reshape, &[piece], Attrs::none(), to)
    }
}
