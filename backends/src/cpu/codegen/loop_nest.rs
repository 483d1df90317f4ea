//! Builds the loop nest of a sweep: its accesses as affine forms over merged axes.

use super::affine_form::{AffineForm, WalkedAxes, mentions};
use super::computed_places::{ComputedPlaces, computed_places, is_placed};
use super::loop_ir::{
    Access, FoldOutput, FormRanges, GuardedSource, LoadSource, LoopNest, ParamRead, Sweep,
    SweepOutput, WalkedFold,
};
use super::loop_order::order;
use super::scalar_form::written;
use super::short_axes::may_be_grids;
use super::spread_sources::{SpreadSources, spread_around, spread_sources};
use crate::runtime::strides::row_major;
use adfuse_ir::DType;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Buffer, BufferData, Operand, Order, Param, Storage};
use adfuse_ir::scalar::{SOp, ScalarProgram};
use cranelift_entity::EntityRef;

/// What lines of the innermost axis are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineForm {
    /// For vectors without masks.
    Plain,
    /// Lanes may be left out of a read.
    Masked,
    /// The same, and lines may go over several short axes, for vectors of this many lanes.
    Merged { lanes: i64 },
}

struct NestPlanner<'a> {
    sweep: &'a Sweep<'a>,
    forms: Vec<AffineForm>,
}

impl NestPlanner<'_> {
    fn form(&mut self, form: AffineForm) -> usize {
        self.forms.push(form);
        self.forms.len() - 1
    }

    fn rank(&self) -> usize {
        self.sweep.extents.len()
    }

    fn slot(&self, slot: u32) -> u32 {
        (self.sweep.program.buffers.len() as u32).saturating_add(slot)
    }

    fn element(&mut self, b: Buffer, index: &[IndexExpr]) -> Access {
        let data: &BufferData = &self.sweep.program.buffers[b];
        let form = AffineForm::element(index, data, self.rank());
        let packed = match data.storage {
            Storage::Plain => None,
            Storage::Packed(bits) => Some(bits),
        };
        Access {
            at: b.index() as u32,
            form: self.form(form),
            dtype: data.dtype,
            packed,
            buffer: true,
        }
    }

    /// An element of a slot at the place, or at the point.
    fn local(&mut self, slot: u32, dtype: DType, outer: usize) -> Access {
        let form = AffineForm::place(&self.sweep.extents, outer);
        Access { at: self.slot(slot), form: self.form(form), dtype, packed: None, buffer: false }
    }

    /// The part of the first block, and how it folds.
    fn fold(&mut self, fold: &FoldOutput, dtype: DType) -> (Access, WalkedFold) {
        let extents = &self.sweep.extents;
        let [first, end] = fold.axes;
        let (size, apart) = fold.extents(extents);
        let blocks = size.saturating_add(fold.order.block() as i64 - 1) / fold.order.block() as i64;
        let mut part = AffineForm::place(extents, 0);
        for (step, outer) in part.steps.iter_mut().zip(row_major(&extents[..first])) {
            *step = outer.wrapping_mul(blocks).wrapping_mul(apart);
        }
        part.steps[end..].copy_from_slice(&row_major(&extents[end..]));
        let mut place = AffineForm::place(extents, 0);
        place.steps[first..end].copy_from_slice(&row_major(&extents[first..end]));
        let write = Access {
            at: self.slot(fold.parts),
            form: self.form(part),
            dtype,
            packed: None,
            buffer: false,
        };
        let lanes = (fold.order == Order::Lane).then(|| self.local(fold.lanes, dtype, 0));
        let FoldOutput { monoid, order, .. } = *fold;
        let place = self.form(place);
        (write, WalkedFold { monoid, order, dtype, place, size, apart, lanes })
    }

    fn guards(&mut self, guards: &[Guard]) -> FormRanges {
        let rank = self.rank();
        guards.iter().map(|g| (self.form(AffineForm::of(&g.expr, rank)), g.range.clone())).collect()
    }

    fn read(&mut self, param: &Param, dtype: DType) -> ParamRead {
        let (rank, domain) = (self.rank(), self.sweep.domain);
        let whole = |from| ParamRead::Guarded(vec![GuardedSource { from, guards: Vec::new() }]);
        let number = |all: &[u32], k: usize| all.get(k).copied().unwrap_or_default();
        match param {
            Param::Coord(e) => ParamRead::Coord(self.form(AffineForm::of(e, rank))),
            Param::Row(r) => {
                let slot = number(&self.sweep.slots.rows, r.index());
                whole(LoadSource::Array(self.local(slot, dtype, domain)))
            }
            Param::Tile(t) => {
                let slot = number(&self.sweep.slots.tiles, t.index());
                whole(LoadSource::Array(self.local(slot, dtype, rank)))
            }
            Param::Sum => {
                let slot = self.sweep.slots.sums.map_or(0, |(s, _)| s);
                whole(LoadSource::Array(self.local(slot, dtype, rank)))
            }
            Param::Load(pieces) => {
                let mut sources = Vec::new();
                for piece in pieces {
                    let guards = self.guards(&piece.guards);
                    let from = match piece.from {
                        Operand::Literal(l) => LoadSource::Literal(l),
                        Operand::Buffer(b) => LoadSource::Array(self.element(b, &piece.index)),
                    };
                    sources.push(GuardedSource { from, guards });
                }
                ParamRead::Guarded(sources)
            }
        }
    }
}

impl LoopNest {
    /// `contract` says whether products may be joined with sums.
    pub(crate) fn new(sweep: &Sweep<'_>, contract: bool, lines: LineForm) -> LoopNest {
        let spread = (lines != LineForm::Plain).then(|| spread_sources(sweep)).flatten();
        match &spread {
            Some(SpreadSources { params, body }) => {
                LoopNest::of(&Sweep { params, ..sweep.clone() }, written(body, contract), lines)
            }
            None => LoopNest::of(sweep, written(sweep.body, contract), lines),
        }
    }

    /// One that reads each of several arrays that lie one after the other along an axis around the lines; `None` where nothing is read so.
    pub(crate) fn with_spread_sources(
        sweep: &Sweep<'_>,
        contract: bool,
        lines: LineForm,
    ) -> Option<LoopNest> {
        let SpreadSources { params, body } = spread_around(sweep)?;
        let sweep = Sweep { params: &params, ..sweep.clone() };
        Some(LoopNest::of(&sweep, written(&body, contract), lines))
    }

    /// One whose body computes the places that are not in equal steps along lines; `None` where there are none, or that is not done.
    pub(crate) fn with_places(sweep: &Sweep<'_>, contract: bool) -> Option<LoopNest> {
        let ComputedPlaces { params, body, puts } = computed_places(sweep, contract)?;
        let sweep = Sweep { params: &params, puts, target: None, ..sweep.clone() };
        Some(LoopNest::of(&sweep, body, LineForm::Masked))
    }

    fn of(sweep: &Sweep<'_>, body: ScalarProgram, lines: LineForm) -> LoopNest {
        let mut p = NestPlanner { sweep, forms: Vec::new() };
        let types: Vec<DType> = body.params.to_vec();
        let reads: Vec<ParamRead> =
            sweep.params.iter().zip(&types).map(|(param, &d)| p.read(param, d)).collect();
        let (mut writes, mut folds) = (Vec::new(), Vec::new());
        for (put, &v) in sweep.puts.iter().zip(&body.outputs) {
            let dtype = body.insts[v].dtype;
            let (write, fold) = match put {
                SweepOutput::Store(b, index) => (p.element(*b, index), None),
                SweepOutput::Point(slot) => (p.local(*slot, dtype, sweep.domain), None),
                SweepOutput::Place(slot) => (p.local(*slot, dtype, sweep.extents.len()), None),
                SweepOutput::Fold(fold) => {
                    let (write, folded) = p.fold(fold, dtype);
                    (write, Some(folded))
                }
            };
            writes.push(write);
            folds.push(fold);
        }
        let target = sweep.target.map(|(b, index, guards, slot)| {
            let element = p.element(b, index);
            let guards = p.guards(guards);
            (element.form, guards, p.local(slot, DType::I64, sweep.extents.len()))
        });
        let mut forms = p.forms;
        // Whether a place is row-major over what is walked does not change by merging, so that the
        // range of places means the same.
        let whole = &mut AffineForm::place(&sweep.extents, sweep.extents.len());
        let mut grids = may_be_grids(&reads, &forms, &sweep.extents);
        grids.push(false);
        // Lanes that are idle are not stored. They would fold, and packed elements begin with bytes.
        let arrays = reads.iter().flat_map(ParamRead::sources).filter_map(|w| w.from.array());
        let mut arrays = arrays.chain(&writes);
        let idle = folds.iter().all(Option::is_none) && arrays.all(|a| a.packed.is_none());
        let walk = {
            let mut all: Vec<&mut AffineForm> = forms.iter_mut().chain([whole]).collect();
            let mut walk = WalkedAxes::new(&sweep.extents, &mut all);
            if let LineForm::Merged { lanes } = lines {
                walk.merge_short(&mut all, &grids, (lanes, idle));
            }
            walk
        };
        let mut planned = LoopNest {
            walk,
            forms,
            reads,
            types,
            body,
            writes,
            folds,
            target,
            varies: Vec::new(),
            moves: Vec::new(),
            loads: Vec::new(),
            stores: Vec::new(),
            needs: Vec::new(),
            breaks: Vec::new(),
            order: Vec::new(),
            alive: 0,
        };
        planned.classify();
        planned.reach(lines != LineForm::Plain);
        (planned.order, planned.alive) = order(&planned.body, &planned.moves);
        planned
    }

    pub(crate) fn inner(&self) -> usize {
        self.walk.extents.len() - 1
    }

    /// Elements of a line.
    pub(crate) fn line_length(&self) -> i64 {
        self.walk.extents.last().copied().unwrap_or(1)
    }

    fn classify(&mut self) {
        for k in 0..self.reads.len() {
            let varies = !self.fixed(&self.reads[k]) || self.placed(k);
            self.varies.push(varies);
        }
        for inst in self.body.insts.values() {
            let moves = match inst.op {
                SOp::Param(k) => self.varies.get(k as usize).copied().unwrap_or(true),
                _ => inst.args.iter().any(|a| self.moves.get(a.index()).copied().unwrap_or(true)),
            };
            self.moves.push(moves);
        }
    }

    /// Whether the body computes where a parameter is read.
    pub(crate) fn placed(&self, k: usize) -> bool {
        self.body.insts.values().any(|i| i.op == SOp::Param(k as u32) && is_placed(i))
    }

    /// The changing parameters that are read to know where a read is, each after those that it needs.
    pub(crate) fn named(&self, read: &ParamRead, found: &mut Vec<usize>) {
        let mut forms: Vec<usize> = Vec::new();
        match read {
            ParamRead::Coord(f) => forms.push(*f),
            ParamRead::Guarded(sources) => {
                for w in sources {
                    forms.extend(w.from.array().map(|a| a.form));
                    forms.extend(w.guards.iter().map(|(f, _)| *f));
                }
            }
        }
        let rest = forms.iter().flat_map(|&f| &self.forms[f].rest);
        let mut named: Vec<usize> = Vec::new();
        for (e, _) in rest {
            data(e, &mut named);
        }
        for k in named {
            if self.data(k as u32) && !found.contains(&k) {
                // What is named comes before, so that this ends.
                if let Some(read) = self.reads.get(k) {
                    self.named(read, found);
                }
                found.push(k);
            }
        }
    }

    /// The fold in the order of lanes whose place says where blocks are; all of a sweep agree.
    pub(crate) fn lanes(&self) -> Option<&WalkedFold> {
        self.folds.iter().flatten().find(|f| f.order == Order::Lane)
    }

    /// Whether a read is the same all along the innermost axis.
    fn fixed(&self, read: &ParamRead) -> bool {
        match read {
            ParamRead::Coord(f) => self.still(*f),
            ParamRead::Guarded(sources) => sources.iter().all(|w| {
                w.from.array().is_none_or(|a| self.still(a.form))
                    && w.guards.iter().all(|(f, _)| self.still(*f))
            }),
        }
    }

    /// Whether data changes along the innermost axis.
    pub(crate) fn data(&self, k: u32) -> bool {
        self.varies.get(k as usize).copied().unwrap_or(true)
    }

    fn still(&self, form: usize) -> bool {
        self.forms[form].fixed_along(self.inner(), &|k| self.data(k))
    }

    /// Whether what a form adds to its steps is the same all along the innermost axis.
    pub(crate) fn affine(&self, form: usize) -> bool {
        self.forms[form].rest_fixed(self.inner(), &|k| self.data(k))
    }

    /// Whether an expression changes along the innermost axis.
    pub(crate) fn changes(&self, e: &IndexExpr) -> bool {
        mentions(e, &|a| a == self.inner(), &|k| self.data(k))
    }

    /// The step of a form along the innermost axis.
    pub(crate) fn step(&self, form: usize) -> i64 {
        self.forms[form].steps[self.inner()]
    }
}

/// The parameters that an expression names.
fn data(e: &IndexExpr, found: &mut Vec<usize>) {
    match e {
        IndexExpr::Axis(_) | IndexExpr::Const(_) => {}
        IndexExpr::Add(a, b) => {
            data(a, found);
            data(b, found);
        }
        IndexExpr::Mul(a, _) | IndexExpr::FloorDiv(a, _) | IndexExpr::Mod(a, _) => data(a, found),
        IndexExpr::Data { param, .. } => found.push(*param as usize),
    }
}
