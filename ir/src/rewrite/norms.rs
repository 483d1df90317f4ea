//! Norms by known statistics, folded into the products that they follow: outside of training a batch norm is a scale and a shift for each channel, and
//! the scale is as well one of the channel's weights.
//!
//! A product of little depth has few operations for each element, and those of the norm are a part of them that shows. The weights are scaled in
//! each run, so that this is for many rows.

use super::pattern::{Match, Pattern};
use super::product_axes::axes_of_product;
use super::product_sums::{is_parameter, uses};
use super::rule::{Exactness, Reads, Rule, RuleTable, Site, When, rewrite};
use super::stable::shape::{REACH, Spread};
use crate::attrs::Attrs;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::literal::Literal;
use crate::op::{Body, Op};
use crate::types::{Dim, TensorType};
use smallvec::SmallVec;

/// Products with scaled weights in place of norms.
pub static FOLDED_NORMS: RuleTable = RuleTable {
    name: "folded norms",
    doc: "Norms by known statistics after products of little depth; not in strict mode, on a CPU.",
    reads: Reads::Source,
    regions: false,
    rules: &[Rule {
        name: "folded-norm",
        doc: "Sums, differences, products and quotients of a product or a convolution of `f32` or `f64` with parameters of its channels become one sum: the \
              weights of a channel are scaled, and its shift is added. At most 256 terms are multiplied for an element, the weights are a parameter and few beside \
              the elements, and nothing else reads what is in between, as the statistics of a batch do in training.",
        exactness: Exactness::Real,
        pattern: Pattern::AnyOf(STEPS),
        then: &When { condition: found, build: FoldedNorm::folded },
    }],
};

const STEPS: &[Op] = &[Op::Add, Op::Sub, Op::Mul, Op::Div];

/// The function with norms by known statistics in the weights of products.
///
/// # Errors
/// Only if a rule builds an instruction that does not fit, which is a defect of the rule.
pub fn with_folded_norms(f: &Function) -> Result<Function, Diagnostic> {
    let (mut new, fired) = rewrite(f, &FOLDED_NORMS, Exactness::Real)?;
    if !fired.is_empty() {
        super::dce(&mut new);
    }
    Ok(new)
}

/// Terms of a product for each element at most: of more, the steps that are saved are less than a hundredth.
const DEEP: u64 = 256;
/// What scaling a weight costs, in steps of an element, and what one more kernel does.
const WEIGHT: u64 = 16;
const KERNEL: u64 = 1 << 16;

/// A number for each channel, or one for all.
#[derive(Clone, Copy)]
enum ByChannel {
    Literal(Literal),
    /// A value with no other axis longer than 1; whether it has that of the channels.
    Value(Value, bool),
}

/// A norm: what is done to a product, from the product on.
struct FoldedNorm {
    steps: SmallVec<[(Op, ByChannel); 4]>,
    /// Transpositions and reshapes between, the outermost first.
    views: SmallVec<[Inst; 2]>,
    product: Inst,
    /// The axis of the channels in what the steps see.
    channel: usize,
    channels: Dim,
    /// The operand with the weights, its axes of channels, and their extents.
    side: usize,
    axes: SmallVec<[i64; 2]>,
    extents: SmallVec<[Dim; 2]>,
}

fn found(m: &Match<'_>) -> Option<FoldedNorm> {
    let f = m.f;
    if !matches!(m.root.ty.dtype, DType::F32 | DType::F64) {
        return None;
    }
    let (mut steps, mut between) = (SmallVec::new(), SmallVec::<[Value; 8]>::new());
    let mut channel = None;
    let (mut op, mut args) = (m.root.op, m.root.args);
    let last = loop {
        let (inner, by, along) = step(f, op, args)?;
        match (channel, along) {
            (Some(known), Some(axis)) if known != axis => return None,
            (_, axis) => channel = channel.or(axis),
        }
        steps.push((op, by));
        between.push(inner);
        let ValueDef::Inst(i, 0) = f.def(inner) else { return None };
        if steps.len() > REACH || !STEPS.contains(&f.op(i)) {
            break i;
        }
        (op, args) = (f.op(i), f.args(i));
    };
    let channel = channel?;
    let mut at: SmallVec<[usize; 2]> = SmallVec::from_iter([channel]);
    let (mut views, mut product) = (SmallVec::new(), last);
    while views.len() < REACH && f.op(product) != Op::DotGeneral {
        at = below(f, product, &at)?;
        views.push(product);
        let inner = f.args(product)[0];
        between.push(inner);
        let ValueDef::Inst(i, 0) = f.def(inner) else { return None };
        product = i;
    }
    let (side, axes) = weight_axes(f, product, &at)?;
    let ty = f.ty(f.inst_results(product)[0]);
    steps.reverse();
    let norm = FoldedNorm {
        extents: at.iter().map(|&a| ty.shape[a]).collect(),
        channels: m.root.ty.shape[channel],
        steps,
        views,
        product,
        channel,
        side,
        axes,
    };
    let single = || between.iter().all(|&v| uses(f, v) == 1);
    (norm.pays(f)? && single()).then_some(norm)
}

/// An operand, a number for each channel that an op combines it with, and the axis of the channels if the number has one.
fn step(f: &Function, op: Op, args: &[Value]) -> Option<(Value, ByChannel, Option<usize>)> {
    let &[a, b] = args else { return None };
    let commutes = matches!(op, Op::Add | Op::Mul);
    let one_way = |inner: Value, by: Value| {
        let ValueDef::Inst(..) = f.def(inner) else { return None };
        if let Some(l) = f.literal(by) {
            return Some((inner, ByChannel::Literal(l), None));
        }
        let spread = Spread::of(f, by);
        let mut long = spread.along.iter().flatten();
        let axis = long.next().copied();
        // What is no longer than its channels is no operand that could be a product's.
        let fits = long.next().is_none() && spread.value != by && is_known(f, spread.value, REACH);
        fits.then_some((inner, ByChannel::Value(spread.value, axis.is_some()), axis))
    };
    one_way(a, b).or_else(|| if commutes { one_way(b, a) } else { None })
}

/// Whether a value is made of parameters alone, element by element.
fn is_known(f: &Function, v: Value, reach: usize) -> bool {
    match f.def(v) {
        ValueDef::Inst(i, _) => {
            let plain = matches!(f.op(i).def().body, Body::Map(_) | Body::View(_));
            plain && reach > 0 && f.args(i).iter().all(|&v| is_known(f, v, reach - 1))
        }
        _ => true,
    }
}

/// The axes of a view's operand that are these of its result; of a reshape, one axis that it joins of neighbours.
fn below(f: &Function, view: Inst, at: &[usize]) -> Option<SmallVec<[usize; 2]>> {
    let (&operand, &result) = (f.args(view).first()?, f.inst_results(view).first()?);
    match f.op(view) {
        Op::Transpose => {
            let perm = f.attrs(view).ints("perm");
            at.iter().map(|&a| usize::try_from(*perm.get(a)?).ok()).collect()
        }
        Op::Reshape => {
            let &[at] = at else { return None };
            let (inner, outer) = (&f.ty(operand).shape, &f.ty(result).shape);
            let joined = (inner.len() + 1).checked_sub(outer.len())?;
            let own = inner.get(at..at + joined)?;
            let product = own.iter().map(|d| d.known()).product::<Option<u64>>()?;
            let fits = inner[..at] == outer[..at]
                && inner[at + joined..] == outer[at + 1..]
                && Some(product) == outer[at].known();
            fits.then(|| (at..at + joined).collect())
        }
        _ => None,
    }
}

/// The operand of a product that has these axes of its result, and where. Axes of a batch are in both.
fn weight_axes(f: &Function, product: Inst, at: &[usize]) -> Option<(usize, SmallVec<[i64; 2]>)> {
    let all = axes_of_product(f, product);
    let batch = f.attrs(product).pair("batch");
    let free = |&a: &usize| a >= batch.0.len();
    let side = all.get(*at.iter().find(|a| free(a))?)?.0;
    let axes = at.iter().map(|a| match free(a) {
        true => all.get(*a).filter(|(s, _)| *s == side).map(|&(_, axis)| axis as i64),
        false => [batch.0, batch.1][side].get(*a).copied(),
    });
    let axes: SmallVec<[i64; 2]> = axes.collect::<Option<_>>()?;
    axes.is_sorted().then_some((side, axes))
}

impl FoldedNorm {
    /// Whether the steps that are saved are more than what the weights cost.
    fn pays(&self, f: &Function) -> Option<bool> {
        let scales = self.steps.iter().any(|(op, _)| matches!(op, Op::Mul | Op::Div));
        let shifts = self.steps.iter().any(|(op, _)| matches!(op, Op::Add | Op::Sub));
        let saved = self.steps.len() as u64 - u64::from(shifts);
        let weight = f.args(self.product)[self.side];
        let elements = f.ty(f.inst_results(self.product)[0]).elements()?;
        let weights = f.ty(weight).elements()?;
        let depth = weights / self.channels.known()?.max(1);
        let cost = WEIGHT.checked_mul(weights)?.checked_add(KERNEL)?;
        let pays = scales && depth <= DEEP && saved.checked_mul(elements)? >= cost;
        Some(pays && is_parameter(f, weight))
    }

    /// A sum of the product with scaled weights.
    fn folded(site: &mut Site<'_, '_>, norm: FoldedNorm) -> Value {
        let f = site.f;
        let outer = site.root.ty.clone();
        let ty = TensorType::new(outer.dtype, [norm.channels]);
        let (mut scale, mut shift): (Option<Value>, Option<Value>) = (None, None);
        for &(op, by) in &norm.steps {
            let by = by_channel(site, by, &ty);
            let mut join = |before: Option<Value>, alone: f64| {
                let before = before
                    .unwrap_or_else(|| site.b.literal(&ty, Literal::from_f64(ty.dtype, alone)));
                Some(site.b.op(op, &[before, by]))
            };
            match op {
                Op::Add if shift.is_none() => shift = Some(by),
                Op::Add | Op::Sub => shift = join(shift, 0.0),
                Op::Mul if scale.is_none() => scale = Some(by),
                _ => scale = join(scale, 1.0),
            }
            if matches!(op, Op::Mul | Op::Div) && shift.is_some() {
                shift = Some(site.b.op(op, &[shift.unwrap_or(by), by]));
            }
        }
        let mut operands: SmallVec<[Value; 2]> =
            f.args(norm.product).iter().map(|&v| site.get(v)).collect();
        if let Some(scale) = scale {
            let own = TensorType::new(outer.dtype, norm.extents.iter().copied());
            let scale = site.b.reshaped(scale, &own);
            let weight = operands[norm.side];
            let to = site.b.ty(weight).clone();
            let dims = Attrs::none().with_ints("dims", norm.axes.iter().copied());
            let scale = site.b.op_as(Op::BroadcastInDim, &[scale], dims, &to);
            operands[norm.side] = site.b.op(Op::Mul, &[weight, scale]);
        }
        let made = site.b.op_with(Op::DotGeneral, &operands, f.attrs(norm.product).clone());
        let made = norm.views.iter().rev().fold(made, |v, &i| {
            let ty = f.ty(f.inst_results(i)[0]);
            site.b.op_as(f.op(i), &[v], f.attrs(i).clone(), ty)
        });
        let Some(shift) = shift else { return made };
        let dims = Attrs::none().with_ints("dims", [norm.channel as i64]);
        let shift = site.b.op_as(Op::BroadcastInDim, &[shift], dims, &outer);
        site.b.op(Op::Add, &[made, shift])
    }
}

/// A number for each channel as a value of one axis.
fn by_channel(site: &mut Site<'_, '_>, by: ByChannel, ty: &TensorType) -> Value {
    match by {
        ByChannel::Literal(l) => site.b.literal(ty, l),
        ByChannel::Value(v, true) => {
            let v = site.get(v);
            site.b.reshaped(v, ty)
        }
        ByChannel::Value(v, false) => {
            let v = site.get(v);
            let one = site.b.reshaped(v, &TensorType::scalar(ty.dtype));
            site.b.op_as(Op::BroadcastInDim, &[one], Attrs::none().with_ints("dims", []), ty)
        }
    }
}
