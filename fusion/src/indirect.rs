//! Access by index values: loads through clamped data, and scatters.

use crate::lower::Lower;
use crate::step::{axes, choice, last, load, piece, pointwise};
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Extents, Operand, Param, Piece, Scatter, Step};
use adfuse_ir::op::Indirect;
use adfuse_ir::scalar::Recorder;
use adfuse_ir::{DType, Inst, Literal, Value};
use smallvec::SmallVec;

/// An op that moves elements by index values. `None` where it needs a buffer and has a literal.
pub(crate) fn indirect(l: &Lower<'_>, i: Inst, which: Indirect) -> Option<Vec<Step>> {
    match which {
        Indirect::Gather => gather(l, i),
        Indirect::ScatterAdd => scatter_add(l, i),
        Indirect::DynamicSlice => dynamic_slice(l, i),
        Indirect::DynamicUpdateSlice => dynamic_update_slice(l, i),
    }
}

/// How windows of a big operand are found.
struct Windows<'a> {
    /// Axes of the windowed tensor that walk inside a window.
    inside: &'a [i64],
    /// Axes of the big operand that windows do not have.
    missing: &'a [i64],
    start_map: &'a [i64],
    /// Window extents, for each axis of the big operand.
    sizes: Extents,
    /// Extents of the big operand.
    dims: Extents,
    clip: bool,
}

impl Windows<'_> {
    /// Reads of the start indices, in the order of the start map.
    fn starts(&self, indices: Operand, rank: usize) -> Vec<Param> {
        let batch = (0..rank).filter(|&d| !self.inside.contains(&(d as i64)));
        let batch: SmallVec<[IndexExpr; 4]> = batch.map(IndexExpr::axis).collect();
        let start = |k: usize| {
            let mut index = batch.clone();
            index.push(IndexExpr::Const(k as i64));
            load(indices, index)
        };
        (0..self.start_map.len()).map(start).collect()
    }

    /// The big operand's coordinates, and what must hold for the window to fit.
    fn place(&self) -> (SmallVec<[IndexExpr; 4]>, SmallVec<[Guard; 2]>) {
        let mut within = self.inside.iter();
        let mut index: SmallVec<[IndexExpr; 4]> = SmallVec::new();
        for d in 0..self.dims.len() as i64 {
            let walks = (!self.missing.contains(&d)).then(|| within.next()).flatten();
            index.push(walks.map_or(IndexExpr::Const(0), |&w| IndexExpr::axis(w as usize)));
        }
        let mut guards = SmallVec::new();
        for (k, &d) in self.start_map.iter().enumerate() {
            let d = d as usize;
            let most = self.dims[d] - self.sizes[d];
            let offset = std::mem::replace(&mut index[d], IndexExpr::Const(0));
            index[d] = offset.sum(IndexExpr::data(k, 0, most));
            if !self.clip {
                let expr = IndexExpr::data(k, -1, most.saturating_add(1));
                guards.push(Guard { expr, range: 0..most.saturating_add(1) });
            }
        }
        (index, guards)
    }
}

fn gather(l: &Lower<'_>, i: Inst) -> Option<Vec<Step>> {
    let (f, attrs) = (l.f, l.f.attrs(i));
    let (x, indices) = (f.args(i)[0], f.args(i)[1]);
    let out = l.results_of(i).next()?;
    let mode = attrs.word("mode");
    let windows = Windows {
        inside: attrs.ints("offset_dims"),
        missing: attrs.ints("collapsed"),
        start_map: attrs.ints("start_map"),
        sizes: Extents::from_slice(attrs.ints("sizes")),
        dims: l.dims(x).ok()?,
        clip: !matches!(mode, "fill" | "zero"),
    };
    let mut params = windows.starts(l.operand(indices), l.extents(out).len());
    let (index, guards) = windows.place();
    let inside = Piece { guards, ..piece(l.operand(x), index) };
    let outside = piece(Operand::Literal(outside(mode, f.ty(x).dtype)), SmallVec::new());
    params.push(choice([inside, outside]));
    Some(vec![moved(l, i, params, &[indices], windows.start_map.len())?])
}

/// What a gather reads outside of its operand.
fn outside(mode: &str, dtype: DType) -> Literal {
    match dtype {
        d if mode == "zero" => Literal::zero(d),
        d if d.is_float() => Literal::from_f64(d, f64::NAN),
        DType::Bool => Literal::one(DType::Bool),
        // Saturation gives the type's own bounds.
        d => Literal::from_f64(d, if d.is_signed_int() { f64::MIN } else { f64::MAX }),
    }
}

/// The kernel that stores its last parameter; the `starts` before it have the types of `indices`,
/// whose last stands for all that follow.
fn moved(
    l: &Lower<'_>,
    i: Inst,
    params: Vec<Param>,
    indices: &[Value],
    starts: usize,
) -> Option<Step> {
    let out = l.results_of(i).next()?;
    let of = |k: usize| indices.get(k).or(indices.last()).map(|&v| l.f.ty(v).dtype);
    let mut dtypes: SmallVec<[DType; 4]> = (0..starts).filter_map(of).collect();
    dtypes.push(l.program.buffers[out].dtype);
    let kernel = pointwise(l, l.f.op(i).name(), out, params, last(&dtypes));
    Some(Step::Kernel(kernel))
}

fn scatter_add(l: &Lower<'_>, i: Inst) -> Option<Vec<Step>> {
    let (f, attrs) = (l.f, l.f.attrs(i));
    let &[x, indices, updates] = f.args(i) else { return None };
    let domain = l.dims(updates).ok()?;
    let dims = l.dims(x).ok()?;
    let inserted = attrs.ints("inserted");
    let mut walked = attrs.ints("window_dims").iter();
    let size = |d: i64| match inserted.contains(&d) {
        true => 1,
        false => walked.next().map_or(1, |&w| domain[w as usize]),
    };
    let windows = Windows {
        inside: attrs.ints("window_dims"),
        missing: inserted,
        start_map: attrs.ints("start_map"),
        sizes: (0..dims.len() as i64).map(size).collect(),
        dims,
        clip: attrs.word("mode") != "drop",
    };
    let mut params = windows.starts(l.operand(indices), domain.len());
    let mut dtypes: SmallVec<[DType; 4]> = params.iter().map(|_| f.ty(indices).dtype).collect();
    params.push(load(l.operand(updates), axes(0, domain.len())));
    let dtype = f.ty(x).dtype;
    dtypes.push(dtype);
    let program = Recorder::record_any(&dtypes, |p| p[p.len() - 1].convert(dtype.compute()));
    let (index, guards) = windows.place();
    let out = l.results_of(i).next()?;
    let from = l.operand(x);
    Some(vec![Step::Scatter(Scatter { from, out, domain, params, program, index, guards })])
}

fn dynamic_slice(l: &Lower<'_>, i: Inst) -> Option<Vec<Step>> {
    let f = l.f;
    let (x, starts) = (f.args(i)[0], &f.args(i)[1..]);
    let (dims, sizes) = (l.dims(x).ok()?, l.extents(l.results_of(i).next()?).clone());
    let mut params: Vec<Param> =
        starts.iter().map(|&v| load(l.operand(v), SmallVec::new())).collect();
    let at = |d: usize| IndexExpr::axis(d).sum(IndexExpr::data(d, 0, dims[d] - sizes[d]));
    params.push(load(l.operand(x), (0..dims.len()).map(at).collect()));
    Some(vec![moved(l, i, params, starts, starts.len())?])
}

fn dynamic_update_slice(l: &Lower<'_>, i: Inst) -> Option<Vec<Step>> {
    let f = l.f;
    let (x, update, starts) = (f.args(i)[0], f.args(i)[1], &f.args(i)[2..]);
    let (dims, sizes) = (l.dims(x).ok()?, l.dims(update).ok()?);
    let mut params: Vec<Param> =
        starts.iter().map(|&v| load(l.operand(v), SmallVec::new())).collect();
    let within = |d: usize| {
        let start = IndexExpr::data(d, 0, dims[d] - sizes[d]);
        IndexExpr::axis(d).sum(start.times(-1))
    };
    let index: SmallVec<[IndexExpr; 4]> = (0..dims.len()).map(within).collect();
    let guards: SmallVec<[Guard; 2]> =
        index.iter().zip(&sizes).map(|(e, &n)| Guard { expr: e.clone(), range: 0..n }).collect();
    let inside = Piece { guards, ..piece(l.operand(update), index) };
    params.push(choice([inside, piece(l.operand(x), axes(0, dims.len()))]));
    Some(vec![moved(l, i, params, starts, starts.len())?])
}
