//! Indirect access: loads at clamped data, scatters and argsorts.

use super::emit::{EmitContext, StageEmitter, guarded};
use super::stage_places::ElementRef;
use crate::analysis::facts::Facts;
use crate::analysis::index_columns::{Index, IndexColumn, columns};
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Argsort, Buffer, Extents, Operand, Param, Piece, Scatter};
use adfuse_ir::op::{Body, Indirect};
use adfuse_ir::scalar::SVal;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{DType, Diagnostic, Inst, Kind, Literal, Value};
use smallvec::SmallVec;

/// How windows of a big operand are found.
struct IndirectWindows<'a> {
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

/// Where a window begins along an axis.
enum Start {
    /// At a coordinate.
    Axis(IndexExpr),
    /// At the value of a parameter.
    Data(usize),
}

impl IndirectWindows<'_> {
    /// Reads the start indices, in the order of the start map.
    fn starts(
        &self,
        e: &mut StageEmitter<'_>,
        indices: Value,
        at: &ElementRef,
    ) -> Result<Vec<Start>, Diagnostic> {
        let coordinates = e.index(at);
        let walks = |d: &usize| self.inside.contains(&(*d as i64));
        let batch: Index =
            (0..coordinates.len()).filter(|d| !walks(d)).map(|d| coordinates[d].clone()).collect();
        let facts = e.cx.facts;
        // Scatters read all their places from the buffer, as do gathers of places that are computed.
        let kept = |v| facts.free(v).is_none();
        let columns = match facts.forced[indices] {
            true => None,
            false => columns(facts.f, indices, &kept),
        };
        let mut starts = Vec::new();
        for k in 0..self.start_map.len() {
            let (v, index) = match columns.as_ref().map(|c| &c[k]) {
                Some(&IndexColumn::Axis(a)) => {
                    starts.push(Start::Axis(batch[a].clone()));
                    continue;
                }
                Some(IndexColumn::Data(v, index)) => {
                    (*v, index.iter().map(|e| e.compose(&batch)).collect())
                }
                _ => {
                    let mut index = batch.clone();
                    index.push(IndexExpr::Const(k as i64));
                    (indices, index)
                }
            };
            starts.push(Start::Data(e.integer(v, &ElementRef::Index(index, guards(at)))?));
        }
        Ok(starts)
    }

    /// The big operand's coordinates, and what must hold for the window to fit.
    fn place(&self, coordinates: &Index, starts: &[Start]) -> (Index, SmallVec<[Guard; 2]>) {
        let mut within = self.inside.iter();
        let mut index = Index::new();
        for d in 0..self.dims.len() as i64 {
            let walks = (!self.missing.contains(&d)).then(|| within.next()).flatten();
            let at = walks.map(|&w| coordinates[w as usize].clone());
            index.push(at.unwrap_or(IndexExpr::Const(0)));
        }
        let mut guards = SmallVec::new();
        for (start, &d) in starts.iter().zip(self.start_map) {
            let d = d as usize;
            let most = self.dims[d] - self.sizes[d];
            let offset = std::mem::replace(&mut index[d], IndexExpr::Const(0));
            let p = match start {
                Start::Axis(e) => {
                    index[d] = offset.sum(e.clone());
                    continue;
                }
                Start::Data(p) => *p,
            };
            index[d] = offset.sum(IndexExpr::data(p, 0, most));
            if !self.clip {
                let expr = IndexExpr::data(p, -1, most.saturating_add(1));
                guards.push(Guard { expr, range: 0..most.saturating_add(1) });
            }
        }
        (index, guards)
    }
}

fn guards(at: &ElementRef) -> SmallVec<[Guard; 2]> {
    match at {
        ElementRef::Place(_) => SmallVec::new(),
        ElementRef::Index(_, guards) => guards.clone(),
    }
}

impl StageEmitter<'_> {
    /// An element of an instruction that moves elements by index values.
    pub(crate) fn indirect(&mut self, i: Inst, at: &ElementRef) -> Result<SVal, Diagnostic> {
        let f = self.cx.facts.f;
        match f.op(i).def().body {
            Body::Indirect(Indirect::Gather) => gather(self, i, at),
            Body::Indirect(Indirect::DynamicSlice) => dynamic_slice(self, i, at),
            Body::Indirect(Indirect::DynamicUpdateSlice) => dynamic_update_slice(self, i, at),
            _ => Err(Diagnostic::new(at_inst(f, i), Kind::Internal, "an element of a scatter")),
        }
    }
}

fn gather(e: &mut StageEmitter<'_>, i: Inst, at: &ElementRef) -> Result<SVal, Diagnostic> {
    let facts = e.cx.facts;
    let (f, attrs) = (facts.f, facts.f.attrs(i));
    let (x, indices) = (f.args(i)[0], f.args(i)[1]);
    let mode = attrs.word("mode");
    let windows = IndirectWindows {
        inside: attrs.ints("offset_dims"),
        missing: attrs.ints("collapsed"),
        start_map: attrs.ints("start_map"),
        sizes: Extents::from_slice(attrs.ints("sizes")),
        dims: facts.dims[x].clone(),
        clip: !matches!(mode, "fill" | "zero"),
    };
    let starts = windows.starts(e, indices, at)?;
    let (index, fits) = windows.place(&e.index(at), &starts);
    let dtype = f.ty(x).dtype;
    let from = e.operand(x)?;
    let index = if let Operand::Literal(_) = from { Index::new() } else { index };
    let outer = guards(at);
    let inside = outer.iter().cloned().chain(fits).collect();
    let mut pieces: SmallVec<[Piece; 1]> = SmallVec::new();
    pieces.push(Piece { from, index, guards: inside });
    if !pieces[0].guards.is_empty() {
        let from = Operand::Literal(outside(mode, dtype));
        pieces.push(Piece { from, index: Index::new(), guards: SmallVec::new() });
    }
    Ok(e.numbered(Param::Load(pieces), dtype).0)
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

/// Reads scalars; the numbers of their parameters.
fn scalars(
    e: &mut StageEmitter<'_>,
    values: &[Value],
    at: &ElementRef,
) -> Result<Vec<usize>, Diagnostic> {
    let everywhere = ElementRef::Index(Index::new(), guards(at));
    values.iter().map(|&v| Ok(e.load(v, &everywhere)?.1)).collect()
}

fn dynamic_slice(e: &mut StageEmitter<'_>, i: Inst, at: &ElementRef) -> Result<SVal, Diagnostic> {
    let facts = e.cx.facts;
    let f = facts.f;
    let (x, starts) = (f.args(i)[0], &f.args(i)[1..]);
    let (dims, sizes) = (&facts.dims[x], &facts.dims[f.inst_results(i)[0]]);
    let starts = scalars(e, starts, at)?;
    let index = (e.index(at).into_iter().enumerate())
        .map(|(d, c)| c.sum(IndexExpr::data(starts[d], 0, dims[d] - sizes[d])))
        .collect();
    Ok(e.load(x, &ElementRef::Index(index, guards(at)))?.0)
}

fn dynamic_update_slice(
    e: &mut StageEmitter<'_>,
    i: Inst,
    at: &ElementRef,
) -> Result<SVal, Diagnostic> {
    let facts = e.cx.facts;
    let f = facts.f;
    let (x, update, starts) = (f.args(i)[0], f.args(i)[1], &f.args(i)[2..]);
    let (dims, sizes) = (&facts.dims[x], &facts.dims[update]);
    let starts = scalars(e, starts, at)?;
    let coordinates = e.index(at);
    let within = |(d, c): (usize, &IndexExpr)| {
        let start = IndexExpr::data(starts[d], 0, dims[d] - sizes[d]);
        c.clone().sum(start.times(-1))
    };
    let index: Index = coordinates.iter().enumerate().map(within).collect();
    let inside = index.iter().zip(sizes).map(|(e, &n)| Guard { expr: e.clone(), range: 0..n });
    let outer = guards(at);
    let dtype = f.ty(x).dtype;
    let piece = |from: Operand, index: &Index, guards: SmallVec<[Guard; 2]>| {
        let index = if let Operand::Literal(_) = from { Index::new() } else { index.clone() };
        Piece { from, index, guards }
    };
    let mut pieces: SmallVec<[Piece; 1]> = SmallVec::new();
    let both = outer.iter().cloned().chain(inside).collect::<SmallVec<[Guard; 2]>>();
    let always = both.is_empty();
    pieces.push(piece(e.operand(update)?, &index, both));
    if !always {
        pieces.extend(guarded(piece(e.operand(x)?, &coordinates, outer), dtype));
    }
    Ok(e.numbered(Param::Load(pieces), dtype).0)
}

/// The step of a scatter; everything it reads is in buffers.
pub(crate) fn scatter(
    e: &mut StageEmitter<'_>,
    i: Inst,
    out: Buffer,
) -> Result<Scatter, Diagnostic> {
    let facts: &Facts<'_> = e.cx.facts;
    let (f, attrs) = (facts.f, facts.f.attrs(i));
    let (&[x, indices, updates], Body::Indirect(Indirect::Scatter(joins))) =
        (f.args(i), f.op(i).def().body)
    else {
        let m = "a scatter takes three operands";
        return Err(Diagnostic::new(at_inst(f, i), Kind::Internal, m));
    };
    let domain = facts.dims[updates].clone();
    let dims = facts.dims[x].clone();
    let inserted = attrs.ints("inserted");
    let mut walked = attrs.ints("window_dims").iter();
    let size = |d: i64| match inserted.contains(&d) {
        true => 1,
        false => walked.next().map_or(1, |&w| domain[w as usize]),
    };
    let windows = IndirectWindows {
        inside: attrs.ints("window_dims"),
        missing: inserted,
        start_map: attrs.ints("start_map"),
        sizes: (0..dims.len() as i64).map(size).collect(),
        dims,
        clip: attrs.word("mode") != "drop",
    };
    let coordinates: Index = (0..domain.len()).map(IndexExpr::axis).collect();
    let at = ElementRef::Index(coordinates.clone(), SmallVec::new());
    let starts = windows.starts(e, indices, &at)?;
    let update = e.load(updates, &at)?.0;
    let update = e.convert(update, f.ty(x).dtype.compute());
    e.program.outputs.push(update);
    let (index, guards) = windows.place(&coordinates, &starts);
    let from = match facts.splat(x) {
        Some(l) => Operand::Literal(l),
        None => e.operand(x)?,
    };
    let (params, program) = (std::mem::take(&mut e.params), std::mem::take(&mut e.program));
    Ok(Scatter { update: joins, from, out, domain, params, program, index, guards })
}

/// The step of an order; what it orders is in a buffer.
pub(crate) fn argsort(cx: &EmitContext<'_>, i: Inst, out: Buffer) -> Result<Argsort, Diagnostic> {
    let f = cx.facts.f;
    let (attrs, x) = (f.attrs(i), f.args(i)[0]);
    let (Some(from), Ok(axis)) = (cx.buffers[x], u8::try_from(attrs.int("axis"))) else {
        return Err(Diagnostic::new(
            at_inst(f, i),
            Kind::Internal,
            "an order of what is in no buffer",
        ));
    };
    Ok(Argsort { from, out, axis, descending: attrs.flag("descending") })
}
