//! Rules in traces: closures become a function with a `custom_jvp` or a `custom_vjp`, and the functions of the rule.

use super::callee::named;
use super::closure::{ClosedRegion, ParamSlot};
use super::{Tensor, TraceState, Tracer, record_all};
use crate::ir::control::reads;
use crate::ir::{
    At, CustomRule, Diagnostic, Function, Kind, Literal, Op, Phase, TensorType, Value, ValueDef,
};
use crate::tree::{Params, leaves, rebuild, replace};
use std::collections::BTreeSet;
use std::panic::Location;

/// A closure, and those of its rule: `jvp`, or `fwd` and `bwd`.
struct RuledRegions {
    body: ClosedRegion,
    rule: Vec<ClosedRegion>,
}

fn floats(tensors: Vec<Tensor>) -> Vec<Tensor> {
    tensors.into_iter().filter(|t| t.ty.dtype.is_float()).collect()
}

fn types(tensors: &[Tensor]) -> Vec<TensorType> {
    tensors.iter().map(|t| t.ty.clone()).collect()
}

impl Tracer {
    /// A call of a closure whose derivative is another: of the argument and its tangent, the results and theirs.
    pub(crate) fn custom_jvp<A: Params<Tensor>, R: Params<Tensor>>(
        &self,
        place: &'static Location<'static>,
        x: &A,
        f: impl FnOnce(&A) -> R,
        jvp: impl FnOnce(&A, &A) -> (R, R),
    ) -> R {
        let given = leaves(x);
        let own = self.holds(place, "`custom_jvp`", &given);
        let (body, out) = self.separate_region(place, (x, &types(&given)), |x| {
            let out = f(&x);
            let ends = leaves(&out);
            (out, ends)
        });
        let moving = floats(given.clone());
        let entered = [types(&given), types(&moving)].concat();
        let both = (rebuild(x, []), moving);
        let (jvp, ()) = self.separate_region(place, (&both, &entered), |(x, moving)| {
            let (y, dy) = jvp(&x, &self.with_zeros(&x, moving));
            self.alike(place, "the value that the `custom_jvp` gives", &out, &y);
            self.alike(place, "the tangent that the `custom_jvp` gives", &out, &dy);
            ((), [leaves(&y), floats(leaves(&dy))].concat())
        });
        self.ruled_call(
            place,
            (&given, own),
            body.zip(jvp).map(|(body, jvp)| (body, vec![jvp])),
            &out,
        )
    }

    /// A call of a closure whose derivative is made by two others: `fwd` gives the results and what `bwd` reads, `bwd` of
    /// that and of the cotangents of the results the gradient.
    pub(crate) fn custom_vjp<A: Params<Tensor>, R: Params<Tensor>, S: Params<Tensor>>(
        &self,
        place: &'static Location<'static>,
        x: &A,
        f: impl FnOnce(&A) -> R,
        (fwd, bwd): (impl FnOnce(&A) -> (R, S), impl FnOnce(&S, &R) -> A),
    ) -> R {
        let given = leaves(x);
        let own = self.holds(place, "`custom_vjp`", &given);
        let (body, out) = self.separate_region(place, (x, &types(&given)), |x| {
            let out = f(&x);
            let ends = leaves(&out);
            (out, ends)
        });
        let (fwd, kept) = self.separate_region(place, (x, &types(&given)), |x| {
            let (y, kept) = fwd(&x);
            self.alike(place, "the value that `fwd` gives", &out, &y);
            let ends = [leaves(&y), leaves(&kept)].concat();
            (kept, ends)
        });
        let moving = floats(leaves(&out));
        let entered = [types(&leaves(&kept)), types(&moving)].concat();
        let (bwd, ()) =
            self.separate_region(place, (&(kept, moving), &entered), |(kept, moving)| {
                let gradient = bwd(&kept, &self.with_zeros(&out, moving));
                self.alike(place, "the gradient that `bwd` gives", x, &gradient);
                ((), floats(leaves(&gradient)))
            });
        let regions = body.zip(fwd.zip(bwd)).map(|(body, (fwd, bwd))| (body, vec![fwd, bwd]));
        self.ruled_call(place, (&given, own), regions, &out)
    }

    #[track_caller]
    fn ruled_call<R: Params<Tensor>>(
        &self,
        place: &'static Location<'static>,
        (given, own): (&[Tensor], bool),
        regions: Option<(ClosedRegion, Vec<ClosedRegion>)>,
        out: &R,
    ) -> R {
        let results = types(&leaves(out));
        let made = record_all(&self.state, &results, |s| {
            if !own || s.error.is_some() {
                return None;
            }
            let (body, rule) = regions?;
            let regions = RuledRegions { body, rule };
            if let Err(d) = s.reads_constants(&regions.body) {
                s.refuse(place, d);
                return None;
            }
            Some(s.ruled(given, &results, &regions))
        });
        rebuild(out, made)
    }

    /// The tree with these at its leaves of float types, and zeros at the others.
    pub(crate) fn with_zeros<R: Params<Tensor>>(
        &self,
        like: &R,
        moving: impl IntoIterator<Item = Tensor>,
    ) -> R {
        let mut moving = moving.into_iter();
        replace(like, |_, t| {
            let next = t.ty.dtype.is_float().then(|| moving.next()).flatten();
            next.unwrap_or_else(|| self.zeros(t.ty.clone()))
        })
    }
}

impl TraceState {
    /// Errs where a function with a rule reads a tensor around it that a derivative may flow to: the rule says nothing of it.
    fn reads_constants(&self, body: &ClosedRegion) -> Result<(), Diagnostic> {
        let f = self.b.func();
        let mut seen = BTreeSet::new();
        let Some(&v) = body.outlined.captures.iter().find(|&&v| moves(f, v, &mut seen)) else {
            return Ok(());
        };
        let name = f.name_of(v).map_or_else(|| "a tensor".into(), |name| format!("%{name}"));
        let m = format!(
            "a function with a rule reads {name}, {}, from around it, and its rule gives that no derivative",
            f.ty(v)
        );
        let at = At { func: Some(f.name.clone()), ..At::default() };
        let hint = "hand it over in the argument, or read its `stop_gradient()`";
        Err(Diagnostic::new(at, Kind::CustomRule, m).hint(hint))
    }

    /// A call of the function of the first region, which comes along with its rule.
    fn ruled(
        &mut self,
        given: &[Tensor],
        results: &[TensorType],
        regions: &RuledRegions,
    ) -> Vec<Value> {
        let mut around = regions.body.outlined.captures.clone();
        for v in regions.rule.iter().flat_map(|r| &r.outlined.captures) {
            if !around.contains(v) {
                around.push(*v);
            }
        }
        let name = self.fresh(&format!("{}.ruled", self.b.func().name));
        let f = self.b.func();
        let captured = |region: &ClosedRegion| -> Vec<ParamSlot> {
            around.iter().map(|&v| region.captured(f, v)).collect()
        };
        let whole = |name: &str, region: &ClosedRegion| {
            let slots: Vec<ParamSlot> =
                region.entered().into_iter().chain(captured(region)).collect();
            region.function(name, &slots, |_| Vec::new())
        };
        let mut body = whole(&name, &regions.body);
        let rule = match regions.rule.as_slice() {
            [jvp] => {
                let made = jvp_function(&format!("{name}.jvp"), jvp, captured(jvp), given.len());
                body.rule = Some(CustomRule::Jvp(made.name.clone()));
                vec![made]
            }
            [fwd, bwd] => {
                let read = &bwd.outlined.captures;
                let at: Vec<usize> =
                    read.iter().flat_map(|v| around.iter().position(|a| a == v)).collect();
                let slots: Vec<ParamSlot> =
                    fwd.entered().into_iter().chain(captured(fwd)).collect();
                let forward = fwd.function(&format!("{name}.fwd"), &slots, |b| {
                    at.iter().map(|k| b.func().params()[given.len() + k]).collect()
                });
                let backward = bwd_function(&format!("{name}.bwd"), bwd, (f, &around), results);
                body.rule = Some(CustomRule::Vjp(forward.name.clone(), backward.name.clone()));
                vec![forward, backward]
            }
            _ => Vec::new(),
        };
        let args: Vec<Value> = given.iter().map(|t| t.value).chain(around.clone()).collect();
        let attrs = named(&body);
        self.callees.push(body);
        self.callees.extend(rule);
        let of = |v: &Value| match self.b.func().def(*v) {
            ValueDef::Inst(i, _) => self.b.func().inst(i).phase,
            _ => Phase::PRIMAL,
        };
        let phase = args.iter().map(of).max().unwrap_or(Phase::PRIMAL);
        self.b.set_phase(phase);
        self.b.inst(Op::Call, &args, attrs, Some(results)).to_vec()
    }
}

/// The rule `(x.., around.., dx.., d_around..) -> (y.., dy..)` of a region that is entered with `x..` and `dx..`.
fn jvp_function(name: &str, jvp: &ClosedRegion, around: Vec<ParamSlot>, given: usize) -> Function {
    let mut slots = jvp.entered();
    let tangents = slots.split_off(given.min(slots.len()));
    let still: Vec<ParamSlot> = around
        .iter()
        .filter(|slot| slot.ty.dtype.is_float())
        .map(|slot| ParamSlot::unread(slot.ty.clone()))
        .collect();
    slots.extend(around);
    slots.extend(tangents);
    slots.extend(still);
    jvp.function(name, &slots, |_| Vec::new())
}

/// The rule `(kept.., captures.., ct..) -> (x_ct.., 0..)` of a region that is entered with `kept..` and `ct..`: what lies
/// around the function has no derivative.
fn bwd_function(
    name: &str,
    bwd: &ClosedRegion,
    (f, around): (&Function, &[Value]),
    results: &[TensorType],
) -> Function {
    let mut slots = bwd.entered();
    let cotangents = results.iter().filter(|ty| ty.dtype.is_float()).count();
    let cotangents = slots.split_off(slots.len().saturating_sub(cotangents));
    slots.extend(bwd.outlined.captures.iter().map(|&v| bwd.captured(f, v)));
    slots.extend(cotangents);
    bwd.function(name, &slots, |b| {
        b.set_phase(Phase::PRIMAL);
        let moving = around.iter().map(|&v| f.ty(v)).filter(|ty| ty.dtype.is_float());
        moving
            .map(|ty| {
                let zero = b.literal(ty, Literal::zero(ty.dtype));
                b.materialize(zero)
            })
            .collect()
    })
}

/// Whether a derivative may flow to a value: whether it depends on a parameter through float types alone, and not through
/// a `stop_gradient`.
fn moves(f: &Function, v: Value, seen: &mut BTreeSet<Value>) -> bool {
    let mut open = vec![v];
    while let Some(v) = open.pop() {
        if !f.ty(v).dtype.is_float() || f.literal(v).is_some() || !seen.insert(v) {
            continue;
        }
        match f.def(v) {
            ValueDef::Inst(i, _) if f.op(i) == Op::StopGradient => {}
            ValueDef::Inst(i, _) => open.extend(reads(f, i)),
            _ => return true,
        }
    }
    false
}
