//! Ops that are a step of their own where an engine has it: written out for engines that do not.

use super::Copier;
use super::inline::compose_at;
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::entity::{Inst, Value};
use crate::fp::Fp;
use crate::function::Function;
use crate::op::{Body, Composition};

/// Which attention an engine has a step for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttentionSteps {
    /// None: it is composed of other ops.
    None,
    /// All, on `f32` or `f64`, in the order that defines it: that of 16-bit floats is widened.
    Defined,
    /// In strict mode and `reproducible` that of `f32`, in the order that defines it; in strict mode also that of 16-bit floats,
    /// which are widened. In `reproducible` and `fast` that of 16-bit floats, whose weights are rounded to their type before values
    /// are multiplied.
    ByMode {
        /// In the defined order.
        defined: StepElements,
        /// Where weights are rounded.
        rounded: StepElements,
    },
}

/// Elements of a query and of a value that a step takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepElements {
    /// The most.
    pub most: u64,
    /// What they are a multiple of.
    pub multiple: u64,
}

impl StepElements {
    fn has(self, n: u64) -> bool {
        n > 0 && n <= self.most && n.is_multiple_of(self.multiple)
    }
}

impl AttentionSteps {
    /// Whether there is a step for queries of `depth` elements and values of `width`, in a mode. 16-bit floats that are widened
    /// have one.
    pub fn has(self, fp: Fp, dtype: DType, depth: u64, width: u64) -> bool {
        match self {
            AttentionSteps::None => false,
            AttentionSteps::Defined => true,
            AttentionSteps::ByMode { defined, rounded } => {
                let (has_type, elements) = match (fp, dtype.is_narrow_float()) {
                    (Fp::Strict, _) => (dtype.compute() == DType::F32, defined),
                    (Fp::Reproducible, false) => (dtype == DType::F32, defined),
                    (Fp::Fast, false) => (false, defined),
                    (Fp::Reproducible | Fp::Fast, true) => (true, rounded),
                };
                has_type && elements.has(depth) && elements.has(width)
            }
        }
    }

    /// Whether the engine with these steps multiplies windows of `f32` where they are: on matrix units, which round operands in
    /// `fast` as this attention does.
    pub fn multiplies_windows(self, fp: Fp) -> bool {
        fp == Fp::Fast && matches!(self, AttentionSteps::ByMode { .. })
    }

    /// Whether the engine with these steps gains by norms that are folded into weights: where a further kernel costs little.
    pub fn folds_norms(self, fp: Fp) -> bool {
        fp != Fp::Strict && self == AttentionSteps::Defined
    }

    /// Whether the engine with these steps has products of 16-bit floats that read the operands of several terms where they are.
    pub fn multiplies_terms(self, fp: Fp) -> bool {
        fp != Fp::Strict && matches!(self, AttentionSteps::ByMode { .. })
    }

    /// Whether steps may be of this type, as it is, in some mode.
    pub fn has_type(self, dtype: DType) -> bool {
        match self {
            AttentionSteps::None => false,
            AttentionSteps::Defined => !dtype.is_narrow_float(),
            AttentionSteps::ByMode { .. } => dtype.is_narrow_float() || dtype == DType::F32,
        }
    }

    /// What becomes of an instruction that may be a step of its own. Composed, it has the bits of its definition in strict
    /// mode, and all scores at once in other modes.
    pub fn lowering(self, fp: Fp, f: &Function, i: Inst) -> StepLowering {
        let kept = |f: &Function| {
            let [q, _, v, ..] = f.args(i) else { return None };
            let last = |v: Value| f.ty(v).dims()?.last().copied();
            Some(self.has(fp, f.ty(*q).dtype, last(*q)?, last(*v)?))
        };
        match fp {
            _ if self == AttentionSteps::Defined => StepLowering::Widened,
            Fp::Strict if kept(f) == Some(true) => StepLowering::Widened,
            _ if kept(f) == Some(true) => StepLowering::Kept,
            Fp::Strict => StepLowering::Composed(Composition::Defined),
            Fp::Reproducible | Fp::Fast => StepLowering::Composed(Composition::Other),
        }
    }
}

/// What becomes of an op that may be a step of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepLowering {
    /// It stays.
    Kept,
    /// It stays, and works on the type that 16-bit floats are computed in.
    Widened,
    /// This composition of it.
    Composed(Composition),
}

/// The function with each op that may be a step of its own in the form that is asked for, those in regions too.
///
/// # Errors
/// Where a composition needs extents that are not known.
pub fn with_steps(
    f: Function,
    form: &dyn Fn(&Function, Inst) -> StepLowering,
) -> Result<Function, Diagnostic> {
    let mut found = false;
    f.walk(&mut |f, i| found |= matches!(f.op(i).def().body, Body::Step(_)));
    if !found {
        return Ok(f);
    }
    Copier::new(&f).rebuild(&mut |copier, b, i| place(copier, b, i, form))
}

fn place(
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
    form: &dyn Fn(&Function, Inst) -> StepLowering,
) -> Result<(), Diagnostic> {
    let f = copier.from();
    if let Body::Step(step) = f.op(i).def().body {
        let narrow = |&v: &Value| f.ty(v).dtype.is_narrow_float();
        let follow = |b: &mut Builder| {
            b.set_phase(f.inst(i).phase);
            b.follow(f, i);
        };
        match form(f, i) {
            StepLowering::Composed(which) => {
                follow(b);
                compose_at(copier, b, i, step.composition(which));
                return Ok(());
            }
            StepLowering::Widened if f.args(i).first().is_some_and(narrow) => {
                follow(b);
                widened(copier, b, i);
                return Ok(());
            }
            StepLowering::Widened | StepLowering::Kept => {}
        }
    }
    copier.inst_with(b, i, &mut |copier, b, i| place(copier, b, i, form))?;
    Ok(())
}

/// The op on operands of the type that 16-bit floats are computed in. Its definition widens operands first and rounds results
/// last, so no bit changes.
fn widened(copier: &mut Copier<'_>, b: &mut Builder, i: Inst) {
    let f = copier.from();
    let args: Vec<Value> = f.args(i).iter().map(|&v| copier.get(b, v)).collect();
    let wide: Vec<Value> = args.iter().map(|&v| b.converted(v, b.ty(v).dtype.compute())).collect();
    let found = b.inst(f.op(i), &wide, f.attrs(i).clone(), None);
    let old = f.inst_results(i);
    let results: Vec<Value> =
        found.iter().zip(old).map(|(&v, &old)| b.converted(v, f.ty(old).dtype)).collect();
    copier.stand_for(b, old, &results);
}
