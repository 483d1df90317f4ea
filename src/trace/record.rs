//! Recording of an op: its types are inferred, and what does not fit is an error that names the line that asked.

use super::{SharedTrace, Tensor, Tracer, each_live, own_all, record_all};
use crate::ir::infer::InferError;
use crate::ir::{Attrs, DType, Kind, Op, TensorType, Value};
use std::panic::Location;

impl Tracer {
    /// Any op of one result on any operands; the type of the result where it is not inferred.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.apply(Op::Exp, &[&t.constant([0.0])], Attrs::none(), None))?;
    /// assert_eq!(y.to_f64s(), [1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn apply(&self, op: Op, args: &[&Tensor], attrs: Attrs, ty: Option<&TensorType>) -> Tensor {
        apply(&self.state, op, args, attrs, ty)
    }

    /// As [`Tracer::apply`], for ops of any number of results, such as [`Op::Split`]: all of them.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let attrs = Attrs::none().with_ints("sizes", [1, 1]).with_int("axis", 0);
    ///     t.apply_all(Op::Split, &[&t.constant([1.0, 2.0])], attrs, None).remove(1)
    /// })?;
    /// assert_eq!(y.to_f64s(), [2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn apply_all(
        &self,
        op: Op,
        args: &[&Tensor],
        attrs: Attrs,
        types: Option<&[TensorType]>,
    ) -> Vec<Tensor> {
        apply_all(&self.state, op, args, attrs, types)
    }
}

/// One result of an op on tensors of this trace.
#[track_caller]
pub(super) fn apply(
    shared: &SharedTrace,
    op: Op,
    args: &[&Tensor],
    attrs: Attrs,
    ty: Option<&TensorType>,
) -> Tensor {
    let place = Location::caller();
    let mut out = apply_all(shared, op, args, attrs, ty.map(std::slice::from_ref));
    if out.len() != 1 {
        let m = format!("`{op}` has {} results: ask for all of them", out.len());
        each_live([shared], |s| s.fail(place, Kind::Usage, m.clone()));
    }
    match out.is_empty() {
        true => stand_in(shared, args),
        false => out.swap_remove(0),
    }
}

fn stand_in(shared: &SharedTrace, args: &[&Tensor]) -> Tensor {
    let ty = args.first().map_or_else(|| TensorType::scalar(DType::F32), |t| t.ty.clone());
    Tensor { state: shared.clone(), value: Value::from_u32(0), ty }
}

/// The results of an op on tensors of this trace.
#[track_caller]
pub(super) fn apply_all(
    shared: &SharedTrace,
    op: Op,
    args: &[&Tensor],
    attrs: Attrs,
    types: Option<&[TensorType]>,
) -> Vec<Tensor> {
    let place = Location::caller();
    let own = own_all(shared, args, place, &format!("`{op}`"));
    let known = || args.iter().map(|t| Some(t.ty.clone())).collect();
    // What the results would be: stand-ins have these types, so that one error does not cause others.
    let expected = match attrs.clone().conform(op.def().attrs) {
        Ok(attrs) => op.infer(known(), &attrs, types).map(|(_, results)| results.to_vec()),
        Err(m) => Err(InferError::attr(m)),
    };
    let due = match (&expected, types) {
        (Ok(results), _) => results.clone(),
        (Err(_), Some(types)) => types.to_vec(),
        (Err(_), None) => {
            let count = if op == Op::Split { attrs.ints("sizes").len() } else { 1 };
            vec![stand_in(shared, args).ty; count]
        }
    };
    record_all(shared, &due, |s| {
        let admitted = types.unwrap_or_default().iter().all(|ty| s.admit(place, ty));
        let known = op != Op::Call || s.knows(place, &attrs);
        if !admitted || !known || !own || s.error.is_some() {
            return None;
        }
        let values: Vec<Value> = args.iter().map(|t| t.value).collect();
        let phase = s.phase(args);
        s.b.set_phase(phase);
        let out = s.b.inst(op, &values, attrs, types);
        if let Some(d) = s.b.error() {
            let message = format!("`{op}`: {}", d.message);
            let limit = matches!(&expected, Err(e) if e.kind == Kind::Limit);
            s.fail(place, if limit { Kind::Limit } else { Kind::Usage }, message);
        }
        Some(out.to_vec())
    })
}
