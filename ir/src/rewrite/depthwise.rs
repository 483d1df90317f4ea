//! Convolutions of few rows a group, such as those by channel, as elementwise products and their sums.
//!
//! A product of one row multiplies each element of its other operand once, so that units for matrices gain nothing, and its tiles are
//! nearly empty. As elementwise work it is fused with what is before and after it, and each window is read out of the cache.

use super::pattern::{Match, Pattern};
use super::product_axes::axes_of_product;
use super::rule::{Exactness, Rule, Site, When};
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::op::Op;
use crate::types::Dim;

/// Products of few rows a group, with windows, as elementwise products.
pub(super) const DEPTHWISE: Rule = Rule {
    name: "depthwise",
    doc: "A product in two or more groups, of `f32`, `bf16` or `f16` with a result of the same type, becomes elementwise products and their sum in two cases: one \
          operand has at most four rows a group, the other is windows, and each sum has at most 32 terms or the windows have at most 32 rows a group; or each sum has one \
          term, as in the gradient of such a convolution.",
    exactness: Exactness::Real,
    pattern: Pattern::AnyOf(&[Op::DotGeneral]),
    then: &When { condition: found, build: GroupProduct::elementwise },
};

/// Steps of a window at most: folds of more are not written out.
const STEPS: u64 = 32;
/// Rows of a group at most: of the gradient of windows that are two apart along two axes there are four.
const ROWS: u64 = 4;
/// Groups of a product at least.
const GROUPS: u64 = 2;
/// Views between a product and its windows at most.
const REACH: usize = 6;

/// A product in groups.
struct GroupProduct {
    product: Inst,
    /// Axes of each operand: of the groups, of its rows or columns, and those that are summed over.
    axes: [[Vec<usize>; 3]; 2],
}

fn found(m: &Match<'_>) -> Option<GroupProduct> {
    let (f, product) = (m.f, m.root.inst);
    let args = f.args(product);
    let plain = matches!(m.root.ty.dtype, DType::F32 | DType::BF16 | DType::F16);
    if !plain || args.iter().any(|&v| f.ty(v).dtype != m.root.ty.dtype) {
        return None;
    }
    let (batch, contracted) = (f.attrs(product).pair("batch"), f.attrs(product).pair("contract"));
    let listed = |list: &[i64]| list.iter().map(|&a| a as usize).collect::<Vec<usize>>();
    let free = axes_of_product(f, product).into_iter().skip(batch.0.len());
    let free: Vec<(usize, usize)> = free.collect();
    let of = |side: usize| free.iter().filter(|at| at.0 == side).map(|at| at.1).collect();
    let axes = [
        [listed(batch.0), of(0), listed(contracted.0)],
        [listed(batch.1), of(1), listed(contracted.1)],
    ];
    let extent = |side: usize, kind: usize| {
        let dims = f.ty(args[side]).dims()?;
        axes[side][kind].iter().try_fold(1u64, |n: u64, &a| n.checked_mul(*dims.get(a)?))
    };
    let (groups, depth) = (extent(0, 0)?, extent(0, 2)?);
    let rows = [extent(0, 1)?, extent(1, 1)?];
    let one_term = depth == 1 && groups >= GROUPS;
    let windows = (0..2).any(|side| {
        rows[1 - side] <= ROWS
            && groups >= GROUPS
            && depth.min(rows[side]) <= STEPS
            && is_windows(f, args[side])
    });
    (one_term || windows).then_some(GroupProduct { product, axes })
}

/// Whether a value is windows of another one, through views.
fn is_windows(f: &Function, mut v: Value) -> bool {
    for _ in 0..REACH {
        let ValueDef::Inst(i, _) = f.def(v) else { return false };
        match f.op(i) {
            Op::Skew => return true,
            Op::Reshape | Op::Transpose | Op::ConvertElementType => v = f.args(i)[0],
            _ => return false,
        }
    }
    false
}

impl GroupProduct {
    /// Elements of both operands side by side, multiplied and summed in `f32`.
    fn elementwise(site: &mut Site<'_, '_>, own: GroupProduct) -> Value {
        let f = site.f;
        let out = f.ty(f.inst_results(own.product)[0]).clone();
        let args = f.args(own.product);
        let extents = |side: usize, kind: usize| {
            own.axes[side][kind].iter().map(move |&a| f.ty(args[side]).shape[a])
        };
        // Groups, rows, columns, terms.
        let parts: [Vec<Dim>; 4] =
            [(0, 0), (0, 1), (1, 1), (0, 2)].map(|(side, kind)| extents(side, kind).collect());
        let first = |part: usize| parts[..part].iter().map(Vec::len).sum::<usize>();
        let mut all = out.with_dtype(DType::F32);
        all.shape = parts.iter().flatten().copied().collect();
        let spread = [0, 1].map(|side| {
            let given = site.get(args[side]);
            let mut dims = vec![0; f.ty(args[side]).rank()];
            for (kind, part) in [0, 1 + side, 3].into_iter().enumerate() {
                for (k, &a) in own.axes[side][kind].iter().enumerate() {
                    dims[a] = first(part) + k;
                }
            }
            spread_to(site.b, given, &dims, &all.shape)
        });
        // One term is rounded once, whether it is added to nothing or not.
        let one_term = parts[3].iter().all(|&n| n == Dim::Const(1));
        let wide = if one_term { out.dtype } else { DType::F32 };
        let [left, right] = spread.map(|v| site.b.converted(v, wide));
        let products = site.b.op_with(Op::Mul, &[left, right], Attrs::none());
        if one_term {
            let ty = out.clone();
            return site.b.op_as(Op::Reshape, &[products], Attrs::none(), &ty);
        }
        let axes = first(3)..all.shape.len();
        let attrs = Attrs::none().with_ints("axes", axes.map(|a| a as i64));
        let sums = site.b.op_with(Op::ReduceSum, &[products], attrs);
        site.b.converted(sums, out.dtype)
    }
}

/// A value along axes of a larger array: its axis `a` is `dims[a]` there.
fn spread_to(b: &mut Builder, v: Value, dims: &[usize], shape: &[Dim]) -> Value {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|&a| dims[a]);
    let turned = match order.iter().enumerate().all(|(k, &a)| k == a) {
        true => v,
        false => {
            let perm = Attrs::none().with_ints("perm", order.iter().map(|&a| a as i64));
            b.op_with(Op::Transpose, &[v], perm)
        }
    };
    let mut ty = b.ty(v).clone();
    ty.shape = shape.iter().copied().collect();
    let attrs = Attrs::none().with_ints("dims", order.iter().map(|&a| dims[a] as i64));
    b.op_as(Op::BroadcastInDim, &[turned], attrs, &ty)
}
