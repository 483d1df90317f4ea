//! Views: where the elements of a result come from, found once for each instruction.

use super::axes::{LoopAxes, TensorAxes};
use super::facts::Facts;
use adfuse_ir::index::{IndexExpr, ViewMap};
use adfuse_ir::kernel::Extents;
use adfuse_ir::op::{Body, ViewCx};
use adfuse_ir::{Inst, Op};
use smallvec::SmallVec;

/// A view.
pub(crate) struct View {
    /// The places of its elements.
    map: ViewMap,
    axes: ViewAxes,
}

/// Where the operand of a view lies, by where its result lies.
enum ViewAxes {
    /// Each axis of the operand is an axis of the result, or has extent 1.
    Of(SmallVec<[Option<u8>; 4]>),
    /// The row-major order is kept: a reshape, whatever it is called.
    Reshaped,
    /// That is no matter of axes alone: slices, padding, reversal.
    Shifted,
}

impl View {
    /// Of an instruction, by the extents of its operands and of its result; `None` for what is no view.
    pub(crate) fn of(facts: &Facts<'_>, i: Inst) -> Option<View> {
        let f = facts.f;
        let Body::View(index) = f.op(i).def().body else { return None };
        let args: Vec<Extents> = f.args(i).iter().map(|&v| facts.dims[v].clone()).collect();
        let out = &facts.dims[f.inst_results(i)[0]];
        let cx = ViewCx { args: &args, out, result: 0, attrs: f.attrs(i) };
        let map = index(&cx);
        let axes = ViewAxes::of(&map, &cx);
        Some(View { map, axes })
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
            IndexExpr::Axis(d) if cx.out[*d as usize] == n => Some(Some(*d as u8)),
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

impl Facts<'_> {
    /// The index map of a view.
    pub(crate) fn view(&self, i: Inst) -> Option<&ViewMap> {
        self.views[i].as_ref().map(|view| &view.map)
    }

    /// Where the operand of a view lies when its result lies at `place`; `None` where that is no
    /// matter of axes alone (slices, padding, reversal).
    pub(crate) fn through(
        &self,
        axes: &mut LoopAxes,
        i: Inst,
        place: &TensorAxes,
    ) -> Option<TensorAxes> {
        match &self.views[i].as_ref()?.axes {
            ViewAxes::Of(of) => {
                let axis = |d: &Option<u8>| d.map(|d| place[usize::from(d)].clone());
                Some(of.iter().map(|d| axis(d).unwrap_or_default()).collect())
            }
            ViewAxes::Reshaped => {
                let flat: SmallVec<[_; 8]> = place.iter().flatten().copied().collect();
                axes.split_flat(&flat, &self.dims[self.f.args(i)[0]])
            }
            ViewAxes::Shifted => None,
        }
    }
}
