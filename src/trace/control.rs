//! Control flow in traces: closures become the regions of `cond`, `switch`, `scan`, `fori` and `while`.
//!
//! ```
//! use adfuse::prelude::*;
//!
//! let f = trace("cumulative", |t| {
//!     let h = t.input("h", f32s([3]));
//!     let xs = t.input("xs", f32s([10, 3]));
//!     let (last, all) = t.scan(h, xs, |h, x| {
//!         let h = (h * 0.9 + x).tanh();
//!         (h.clone(), h)
//!     });
//!     [last, all]
//! })?;
//! assert_eq!(f.function().results().len(), 2);
//! # Ok::<(), adfuse::ir::Diagnostic>(())
//! ```

use super::{Tensor, TraceState, Tracer, own_all, record_all};
use crate::ir::control::{element, stacked};
use crate::ir::{
    Attr, Attrs, DType, Dim, Kind, Literal, Op, Phase, Region, TensorType, Value, ValueDef,
};
use crate::tree::{Params, leaves, rebuild};
use std::ops::Range;
use std::panic::Location;

/// The integers a loop goes over.
pub trait LoopBounds {
    /// The first, and the one after the last.
    fn bounds(&self, t: &Tracer) -> [Tensor; 2];
}

impl LoopBounds for Range<i64> {
    fn bounds(&self, t: &Tracer) -> [Tensor; 2] {
        [self.start, self.end].map(|n| {
            let ty = TensorType::scalar(DType::I64);
            record_all(&t.state, std::slice::from_ref(&ty), |s| {
                Some(vec![s.b.literal(&ty, Literal::from_i64(DType::I64, n))])
            })
            .remove(0)
        })
    }
}

impl LoopBounds for Range<&Tensor> {
    fn bounds(&self, _: &Tracer) -> [Tensor; 2] {
        [self.start.clone(), self.end.clone()]
    }
}

/// How a scan goes.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// From the last element to the first.
    pub reverse: bool,
    /// The number of steps, where nothing is scanned.
    pub length: Option<u64>,
    /// Steps that are written out at a time.
    pub unroll: u32,
}

impl Default for ScanOptions {
    fn default() -> ScanOptions {
        ScanOptions { reverse: false, length: None, unroll: 1 }
    }
}

impl Tracer {
    /// One of two closures, by a scalar truth value. Both are traced; one runs. Their results have the same types.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let x = t.constant(-2.0);
    ///     t.cond(&x.lt(0.0), || -&x, || x.sqrt())
    /// })?;
    /// assert_eq!(y.to_f64s(), [2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn cond<R: Params<Tensor>>(
        &self,
        predicate: &Tensor,
        then: impl FnOnce() -> R,
        otherwise: impl FnOnce() -> R,
    ) -> R {
        let place = Location::caller();
        let (yes, first) = self.traced(then);
        let (no, second) = self.traced(otherwise);
        self.branch(place, (Op::Cond, predicate), vec![yes, no], vec![first, second])
    }

    /// The closure of this number, the first where it is negative, the last where it is too large. All are traced; one
    /// runs. Their results have the same types.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let x = t.constant(2.0);
    ///     t.switch(&t.constant(1), &[&|| x.exp(), &|| x.square()])
    /// })?;
    /// assert_eq!(y.to_f64s(), [4.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    ///
    /// # Panics
    /// If there is no closure.
    #[track_caller]
    pub fn switch<R: Params<Tensor>>(&self, index: &Tensor, cases: &[&dyn Fn() -> R]) -> R {
        let place = Location::caller();
        let (regions, ends) = cases.iter().map(|case| self.traced(case)).unzip();
        self.branch(place, (Op::Switch, index), regions, ends)
    }

    /// Repeats a closure over the elements of `xs` along their first axes: it is given what the step before handed
    /// over, at first `init`, and an element of each of `xs`; it gives what it hands over and what is stacked. The
    /// result is what the last step handed over, and the stacks.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let xs = t.constant([1.0, 2.0, 3.0]);
    ///     t.scan(t.constant(0.0), xs, |sum, x| (&sum + x, sum)).1
    /// })?;
    /// assert_eq!(y.to_f64s(), [0.0, 1.0, 3.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn scan<C: Params<Tensor>, X: Params<Tensor>, Y: Params<Tensor>>(
        &self,
        init: C,
        xs: X,
        body: impl FnOnce(C, X) -> (C, Y),
    ) -> (C, Y) {
        self.scan_with(ScanOptions::default(), init, xs, body)
    }

    /// As [`Tracer::scan`], in another order or of a given length.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// use adfuse::trace::ScanOptions;
    /// let y = evaluate(|t| {
    ///     let options = ScanOptions { length: Some(3), ..ScanOptions::default() };
    ///     t.scan_with(options, t.constant(1.0), (), |x, ()| (x * 2.0, ())).0
    /// })?;
    /// assert_eq!(y.to_f64s(), [8.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn scan_with<C: Params<Tensor>, X: Params<Tensor>, Y: Params<Tensor>>(
        &self,
        options: ScanOptions,
        init: C,
        xs: X,
        body: impl FnOnce(C, X) -> (C, Y),
    ) -> (C, Y) {
        let place = Location::caller();
        let (given, scanned) = (leaves(&init), leaves(&xs));
        let own = self.owns(place, Op::Scan, &[given.as_slice(), &scanned]);
        let lengths: Vec<Option<Dim>> =
            scanned.iter().map(|x| x.ty.shape.first().copied()).collect();
        let asked = options.length.map(Dim::Const);
        let length = asked.or(lengths.first().copied().flatten());
        if own && (length.is_none() || lengths.iter().any(|&n| n != length)) {
            let types: Vec<TensorType> = scanned.iter().map(|x| x.ty.clone()).collect();
            let m = match length {
                None => {
                    "`scan` has no number of steps: scan a tensor, or give `length`".to_string()
                }
                Some(n) => format!("`scan` takes {n} steps, and scans {types:?}"),
            };
            self.fail(place, Kind::Shape, m);
        }
        let length = length.unwrap_or(Dim::Const(0));
        let types: Vec<TensorType> = given
            .iter()
            .map(|t| t.ty.clone())
            .chain(scanned.iter().map(|t| element(&t.ty)))
            .collect();
        let (region, mut params) = self.opened(&types);
        let inner = rebuild(&init, &mut params);
        let x = rebuild(&xs, &mut params);
        let (next, ys) = self.in_loop(|| body(inner, x));
        let (ends, stacks) = (leaves(&next), leaves(&ys));
        self.same(place, "scan", &given, &ends);
        self.owns(place, Op::Scan, &[ends.as_slice(), &stacks]);
        self.closed(region, &[ends, stacks.clone()].concat());
        let stack_types: Vec<TensorType> = stacks.iter().map(|y| stacked(&y.ty, length)).collect();
        let results: Vec<TensorType> =
            given.iter().map(|t| t.ty.clone()).chain(stack_types).collect();
        let args: Vec<Value> = given.iter().chain(&scanned).map(|t| t.value).collect();
        let told = !scanned.is_empty() || !stacks.is_empty();
        let steps = if told { 0 } else { length.known().unwrap_or(0) as i64 };
        let attrs = Attrs::none()
            .with_int("carry", given.len() as i64)
            .with_int("length", steps)
            .with("reverse", Attr::Bool(options.reverse))
            .with_int("unroll", i64::from(options.unroll));
        let mut out = self.placed((Op::Scan, attrs), &args, &results, &[region]);
        (rebuild(&init, &mut out), rebuild(&ys, &mut out))
    }

    /// Repeats a closure for each integer of a range, of numbers or of scalar tensors: it is given the integer and
    /// what the step before handed over, at first `init`.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.fori(0..3, t.constant(0), |i, sum| sum + i.convert(DType::I32)))?;
    /// assert_eq!(y.to_f64s(), [3.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn fori<C: Params<Tensor>>(
        &self,
        range: impl LoopBounds,
        init: C,
        body: impl FnOnce(Tensor, C) -> C,
    ) -> C {
        let place = Location::caller();
        let bounds = range.bounds(self);
        let given = leaves(&init);
        self.owns(place, Op::Fori, &[bounds.as_slice(), &given]);
        let types: Vec<TensorType> =
            bounds[..1].iter().chain(&given).map(|t| t.ty.clone()).collect();
        let (region, mut params) = self.opened(&types);
        let index = rebuild(&bounds[0], &mut params);
        let inner = rebuild(&init, &mut params);
        let next = leaves(&self.in_loop(|| body(index, inner)));
        self.same(place, "fori", &given, &next);
        self.closed(region, &next);
        let args: Vec<Value> = bounds.iter().chain(&given).map(|t| t.value).collect();
        let mut out = self.placed((Op::Fori, Attrs::none()), &args, &types[1..], &[region]);
        rebuild(&init, &mut out)
    }

    /// Repeats a closure as long as another gives true of what the step before handed over, at first `init`. A
    /// gradient counts the steps and goes back over as many.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.while_loop(t.constant(1.0), |x| x.lt(100.0), |x| x * 3.0))?;
    /// assert_eq!(y.to_f64s(), [243.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn while_loop<C: Params<Tensor>>(
        &self,
        init: C,
        condition: impl FnOnce(C) -> Tensor,
        body: impl FnOnce(C) -> C,
    ) -> C {
        let place = Location::caller();
        let given = leaves(&init);
        self.owns(place, Op::While, &[given.as_slice()]);
        let types: Vec<TensorType> = given.iter().map(|t| t.ty.clone()).collect();
        let (test, mut params) = self.opened(&types);
        let holds = condition(rebuild(&init, &mut params));
        if holds.ty != TensorType::scalar(DType::Bool) {
            let m = format!("the condition of `while` is a bool[], found {}", holds.ty);
            self.fail(place, Kind::Shape, m);
        }
        self.closed(test, &[holds]);
        let (region, mut params) = self.opened(&types);
        let inner = rebuild(&init, &mut params);
        let next = leaves(&self.in_loop(|| body(inner)));
        self.same(place, "while", &given, &next);
        self.closed(region, &next);
        let args: Vec<Value> = given.iter().map(|t| t.value).collect();
        let attrs = Attrs::none().with_int("max_trips", 0);
        let mut out = self.placed((Op::While, attrs), &args, &types, &[test, region]);
        rebuild(&init, &mut out)
    }

    pub(super) fn fail(&self, place: &Location<'_>, kind: Kind, message: String) {
        if let Some(s) = self.state.borrow_mut().as_mut() {
            s.fail(place, kind, message);
        }
    }

    fn owns(&self, place: &Location<'_>, op: Op, lists: &[&[Tensor]]) -> bool {
        let all: Vec<&Tensor> = lists.iter().flat_map(|list| list.iter()).collect();
        own_all(&self.state, &all, place, &format!("`{op}`"))
    }

    /// Opens a region with parameters of these types.
    #[track_caller]
    pub(super) fn opened(
        &self,
        types: &[TensorType],
    ) -> (Option<Region>, impl Iterator<Item = Tensor> + use<>) {
        let region = self.state.borrow_mut().as_mut().map(|s| s.b.open_region());
        let params = record_all(&self.state, types, |s| {
            Some(types.iter().map(|ty| s.b.param(ty.clone(), None)).collect())
        });
        (region, params.into_iter())
    }

    pub(super) fn closed(&self, region: Option<Region>, ends: &[Tensor]) {
        if let (Some(s), Some(_)) = (self.state.borrow_mut().as_mut(), region) {
            let values: Vec<Value> = ends.iter().map(|t| t.value).collect();
            s.b.close_region(&values);
        }
    }

    /// A closure as a region without parameters.
    #[track_caller]
    fn traced<R>(&self, body: impl FnOnce() -> R) -> (Option<Region>, R)
    where
        R: Params<Tensor>,
    {
        let (region, _) = self.opened(&[]);
        let ends = body();
        self.closed(region, &leaves(&ends));
        (region, ends)
    }

    /// What a step hands over has the types that it was given.
    fn same(&self, place: &Location<'_>, op: &str, given: &[Tensor], next: &[Tensor]) {
        let types = |list: &[Tensor]| list.iter().map(|t| t.ty.clone()).collect::<Vec<_>>();
        let (before, after) = (types(given), types(next));
        let wrong = before.iter().zip(&after).position(|(a, b)| a != b);
        let m = match wrong {
            Some(k) => {
                format!(
                    "what `{op}` carries changes its type: value {k} is {} at first and {} after a step",
                    before[k], after[k]
                )
            }
            None if before.len() != after.len() => {
                format!("`{op}` carries {} values, a step gives {}", before.len(), after.len())
            }
            None => return,
        };
        self.fail(place, Kind::Shape, m);
    }

    #[track_caller]
    fn branch<R: Params<Tensor>>(
        &self,
        place: &Location<'_>,
        (op, selector): (Op, &Tensor),
        regions: Vec<Option<Region>>,
        ends: Vec<R>,
    ) -> R {
        let first = &ends[0];
        let types: Vec<TensorType> = leaves(first).iter().map(|t| t.ty.clone()).collect();
        self.owns(place, op, &[std::slice::from_ref(selector)]);
        for (k, other) in ends.iter().enumerate().skip(1) {
            let found: Vec<TensorType> = leaves(other).iter().map(|t| t.ty.clone()).collect();
            if found != types {
                let m = format!("branch {k} of `{op}` gives {found:?}, the first {types:?}");
                self.fail(place, Kind::Shape, m);
            }
        }
        let scalar = selector.ty.rank() == 0
            && match op {
                Op::Cond => selector.ty.dtype == DType::Bool,
                _ => selector.ty.dtype.is_int(),
            };
        if !scalar {
            let due = if op == Op::Cond { DType::Bool } else { DType::I32 };
            let m = format!("`{op}` cannot select by {}: it takes {due}[]", selector.ty);
            self.fail(place, Kind::Shape, m);
        }
        let mut out = self.placed((op, Attrs::none()), &[selector.value], &types, &regions);
        rebuild(first, &mut out)
    }

    /// Records an instruction with regions.
    #[track_caller]
    fn placed(
        &self,
        (op, attrs): (Op, Attrs),
        args: &[Value],
        results: &[TensorType],
        regions: &[Option<Region>],
    ) -> impl Iterator<Item = Tensor> + use<> {
        let out = record_all(&self.state, results, |s| {
            if s.error.is_some() {
                return None;
            }
            let regions: Option<Vec<Region>> = regions.iter().copied().collect();
            let phase = latest(s, args, regions.as_deref()?);
            s.b.set_phase(phase);
            let i = s.b.place(op, args, attrs, results, &regions?);
            Some(s.b.func().inst_results(i).to_vec())
        });
        out.into_iter()
    }
}

/// The latest phase of operands and of what regions hold.
fn latest(s: &TraceState, args: &[Value], regions: &[Region]) -> Phase {
    let f = s.b.func();
    let of = |v: &Value| match f.def(*v) {
        ValueDef::Inst(i, _) => f.inst(i).phase,
        _ => Phase::PRIMAL,
    };
    let mut phase = args.iter().map(of).max().unwrap_or(Phase::PRIMAL);
    let mut open = regions.to_vec();
    while let Some(r) = open.pop() {
        let data = f.region(r);
        phase = data.results.iter().map(of).fold(phase, Phase::max);
        for &i in &data.insts {
            phase = phase.max(f.inst(i).phase);
            open.extend(f.inst(i).regions.iter().copied());
        }
    }
    phase
}
