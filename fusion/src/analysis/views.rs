//! Views: where the elements of a result come from, found once for each instruction.

use super::axes::{AtomRun, LoopAxes, TensorAxes};
use adfuse_ir::index::{IndexExpr, ViewMap};
use adfuse_ir::kernel::Extents;
use adfuse_ir::op::{Body, ViewCx};
use adfuse_ir::{Function, Inst, Op, Value};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// Where the elements of a view come from.
pub(crate) struct ViewOrigins {
    /// By their coordinates.
    pub(super) map: ViewMap,
    axes: ViewAxes,
}

/// Where the operand of a view lies, by where its result lies.
enum ViewAxes {
    /// Each axis of the operand is an axis of the result, or has extent 1.
    Of(SmallVec<[Option<u8>; 4]>),
    /// The row-major order is kept: a reshape, whatever it is called.
    Reshaped,
    /// That does not depend on axes alone: slices, padding, reversal.
    Shifted,
}

impl ViewOrigins {
    /// Of an instruction, by the extents of its operands and of its result; `None` for what is no view.
    pub(crate) fn of(
        f: &Function,
        i: Inst,
        dims: &SecondaryMap<Value, Extents>,
    ) -> Option<ViewOrigins> {
        let Body::View(index) = f.op(i).def().body else { return None };
        let args: Vec<Extents> = f.args(i).iter().map(|&v| dims[v].clone()).collect();
        let out = &dims[f.inst_results(i)[0]];
        let cx = ViewCx { args: &args, out, result: 0, attrs: f.attrs(i) };
        let map = index(&cx);
        let axes = ViewAxes::of(&map, &cx);
        Some(ViewOrigins { map, axes })
    }

    /// Where the operand, of these extents, lies when the result lies at `place`; `None` where that does not depend on axes
    /// alone (slices, padding, reversal).
    pub(super) fn through(
        &self,
        axes: &mut LoopAxes,
        place: &TensorAxes,
        dims: &[i64],
    ) -> Option<TensorAxes> {
        match &self.axes {
            ViewAxes::Of(of) => {
                let mut under = TensorAxes::new();
                for d in of {
                    let run = d.map(|d| AtomRun::from_slice(&place[usize::from(d)]));
                    under.push(run.unwrap_or_default());
                }
                Some(under)
            }
            ViewAxes::Reshaped => {
                let flat: SmallVec<[_; 8]> = place.iter().flatten().copied().collect();
                axes.split_flat(&flat, dims)
            }
            ViewAxes::Shifted => None,
        }
    }
}

impl ViewAxes {
    fn of(map: &ViewMap, cx: &ViewCx<'_>) -> ViewAxes {
        let [piece] = map.pieces.as_slice() else { return ViewAxes::Shifted };
        if !piece.guards.is_empty() || piece.operand != 0 {
            return ViewAxes::Shifted;
        }
        let dims = &cx.args[0];
        let axis = |(e, &n): (&IndexExpr, &i64)| match e {
            _ if n == 1 => Some(None),
            IndexExpr::Axis(d) if cx.out[*d as usize] == n => Some(Some(*d)),
            _ => None,
        };
        if piece.index.len() == dims.len()
            && let Some(axes) = piece.index.iter().zip(dims).map(axis).collect()
        {
            return ViewAxes::Of(axes);
        }
        let Body::View(reshape) = Op::Reshape.def().body else { return ViewAxes::Shifted };
        let args = [dims.clone()];
        match reshape(&ViewCx { args: &args, ..*cx }) == *map {
            true => ViewAxes::Reshaped,
            false => ViewAxes::Shifted,
        }
    }
}
