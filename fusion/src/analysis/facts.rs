//! What the planner knows about a function before it decides anything.

use super::axes::{LoopAxes, TensorAxes};
pub(crate) use super::class::{InstClass, is_in_no_group};
use super::index_columns::{IndexColumn, columns};
use super::recomputation::{awaited, is_kept};
use super::shifts::Shifts;
use super::weight::weight;
use crate::plan::blocks::{is_control, whole};
use crate::plan::lossy::{copied, read_back};
use adfuse_ir::control::reads;
use adfuse_ir::index::{IndexExpr, ViewMap};
use adfuse_ir::kernel::Extents;
use adfuse_ir::op::{Body, Effect, Indirect, ViewCx};
use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{At, DType, Diagnostic, Function, Inst, Kind, Literal, Op, Value, ValueDef};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// The scalar program of some instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Recorded(u32);
entity_impl!(Recorded, "program");

/// What a scalar program is recorded from: op, attributes, types of operands and result.
type Recording = (Op, u32, SmallVec<[DType; 4]>, DType);

/// Facts about a function.
pub(crate) struct Facts<'f> {
    pub(crate) f: &'f Function,
    /// Known extents of every value.
    pub(crate) dims: SecondaryMap<Value, Extents>,
    pub(crate) elements: SecondaryMap<Value, i64>,
    pub(crate) users: SecondaryMap<Value, SmallVec<[Inst; 4]>>,
    /// Whether a value must be in a buffer: results, and operands that are found by address.
    pub(crate) forced: SecondaryMap<Value, bool>,
    /// Whether a block of a loop or a branch reads or writes a value that is no stack of elements: it is stored as it
    /// is.
    pub(crate) bound: SecondaryMap<Value, bool>,
    /// Whether a loop or a branch reads or writes a value.
    stack: SecondaryMap<Value, bool>,
    /// What an instruction that computes again waits for.
    pub(crate) after: SecondaryMap<Inst, Option<Value>>,
    pub(crate) class: SecondaryMap<Inst, InstClass>,
    /// Whether a view is a matter of axes alone.
    aligned: SecondaryMap<Inst, bool>,
    /// Primitives that an element takes by itself.
    pub(crate) weight: SecondaryMap<Inst, u32>,
    recorded: SecondaryMap<Inst, Option<Recorded>>,
    programs: PrimaryMap<Recorded, ScalarProgram>,
    weights: SecondaryMap<Recorded, u32>,
}

impl<'f> Facts<'f> {
    /// Gathers the facts. With `apart` every instruction is in a group of its own.
    ///
    /// # Errors
    /// For symbolic extents and calls: the error names the symbol or the instruction.
    pub(crate) fn of(f: &'f Function, apart: bool) -> Result<Facts<'f>, Diagnostic> {
        let mut facts = Facts {
            f,
            dims: SecondaryMap::with_capacity(f.value_count()),
            elements: SecondaryMap::with_default(1),
            users: SecondaryMap::with_capacity(f.value_count()),
            forced: SecondaryMap::with_capacity(f.value_count()),
            bound: SecondaryMap::new(),
            stack: SecondaryMap::new(),
            after: SecondaryMap::new(),
            class: SecondaryMap::with_capacity(f.inst_count()),
            aligned: SecondaryMap::with_capacity(f.inst_count()),
            weight: SecondaryMap::with_capacity(f.inst_count()),
            recorded: SecondaryMap::with_capacity(f.inst_count()),
            programs: PrimaryMap::new(),
            weights: SecondaryMap::new(),
        };
        facts.shapes()?;
        facts.record()?;
        facts.align();
        facts.after = awaited(f);
        for &v in f.results() {
            facts.forced[v] = true;
        }
        for &i in f.body_insts() {
            facts.demands(i);
        }
        facts.classify(apart);
        Ok(facts)
    }

    fn shapes(&mut self) -> Result<(), Diagnostic> {
        let f = self.f;
        let place = |d: Diagnostic| Diagnostic {
            at: At { func: Some(f.name.clone()), ..At::default() },
            ..d
        };
        for &v in f.params().iter().chain(f.results()) {
            self.shape(v).map_err(place)?;
        }
        for &i in f.body_insts() {
            let read = reads(f, i);
            for &v in read.iter().chain(f.inst_results(i)) {
                self.shape(v).map_err(|d| Diagnostic { at: at_inst(f, i), ..d })?;
            }
            for v in read {
                if self.users[v].last() != Some(&i) {
                    self.users[v].push(i);
                }
            }
        }
        Ok(())
    }

    fn shape(&mut self, v: Value) -> Result<(), Diagnostic> {
        let ty = self.f.ty(v);
        let fail = |m: String| Err(Diagnostic::new(At::default(), Kind::Unsupported, m));
        let mut dims = Extents::new();
        for d in &ty.shape {
            match d.known().and_then(|n| i64::try_from(n).ok()) {
                Some(n) => dims.push(n),
                None => {
                    return fail(format!("the extent `{d}` of {ty} must be known before lowering"));
                }
            }
        }
        self.elements[v] = dims.iter().product();
        self.dims[v] = dims;
        Ok(())
    }

    /// Records the scalar programs, equal ones once.
    fn record(&mut self) -> Result<(), Diagnostic> {
        let f = self.f;
        let mut known: HashMap<Recording, Recorded> = HashMap::new();
        for &i in f.body_insts() {
            let op = f.op(i);
            let body = op.def().body;
            let unsupported = || {
                let m = format!("`{op}` has no lowering to kernels");
                Diagnostic::new(at_inst(f, i), Kind::Unsupported, m)
            };
            let has_blocks = is_control(f, i) && !f.inst_results(i).is_empty();
            if matches!(body, Body::Composed(_)) || matches!(body, Body::Region(_)) && !has_blocks {
                return Err(unsupported());
            }
            if !matches!(body, Body::Map(_) | Body::Source(_)) {
                continue;
            }
            let dtypes: SmallVec<[DType; 4]> = f.args(i).iter().map(|&v| f.ty(v).dtype).collect();
            let result = f.ty(f.inst_results(i)[0]).dtype;
            let attrs = f.inst(i).attrs.index() as u32;
            let key = (op, attrs, dtypes, result);
            let id = match known.get(&key) {
                Some(&id) => id,
                None => {
                    let dtypes = &key.2;
                    let program = op
                        .scalar_program(dtypes, result, f.attrs(i))
                        .or_else(|| op.source_program(dtypes, result))
                        .ok_or_else(unsupported)?;
                    let weight = weight(&program);
                    let id = self.programs.push(program);
                    self.weights[id] = weight;
                    known.insert(key, id);
                    id
                }
            };
            self.recorded[i] = Some(id);
        }
        Ok(())
    }

    /// Marks operands that must be in buffers.
    fn demands(&mut self, i: Inst) {
        let f = self.f;
        if is_kept(f, i) {
            f.inst_results(i).iter().for_each(|&v| self.forced[v] = true);
        }
        match f.op(i).def().body {
            Body::Indirect(Indirect::Scatter(_)) => {
                for (k, &v) in f.args(i).iter().enumerate() {
                    // Sums may begin with one value everywhere.
                    self.forced[v] |= k > 0 || self.splat(v).is_none();
                }
            }
            Body::Indirect(Indirect::Gather) => {
                self.forced[f.args(i)[0]] = true;
                match columns(f, f.args(i)[1], &|_| false).filter(|c| self.reach(i, c)) {
                    None => self.forced[f.args(i)[1]] = true,
                    Some(columns) => {
                        for c in columns {
                            if let IndexColumn::Data(v, _) = c {
                                self.forced[v] = true;
                            }
                        }
                    }
                }
            }
            Body::Indirect(_) | Body::Opaque => {
                for &v in f.args(i) {
                    self.forced[v] = true;
                }
            }
            // They read and leave dense arrays.
            Body::Step(_) | Body::Collective(_) => {
                for &v in f.args(i).iter().chain(f.inst_results(i)) {
                    self.forced[v] = true;
                    self.bound[v] = true;
                }
            }
            // The host reads it as it is.
            Body::Effect(Effect::Print) => {
                let v = f.args(i)[1];
                self.forced[v] = true;
                self.bound[v] = true;
            }
            Body::Region(_) => {
                for v in reads(f, i).into_iter().chain(f.inst_results(i).iter().copied()) {
                    self.forced[v] = true;
                    self.stack[v] = true;
                }
                for v in whole(f, i) {
                    self.bound[v] = true;
                }
            }
            Body::Contract => {
                for &v in f.args(i) {
                    let base = self.base(v);
                    // What is read back from a narrower copy is converted on its way.
                    let copy = match f.def(base) {
                        ValueDef::Inst(j, _) => read_back(f, j),
                        _ => None,
                    };
                    self.forced[copy.unwrap_or(base)] = true;
                }
            }
            // A copy that is not in memory saves nothing.
            Body::Map(_) if copied(f, i).is_some() => self.forced[f.inst_results(i)[0]] = true,
            _ => {}
        }
    }

    /// Whether the windows of a gather fit wherever it counts their places itself.
    fn reach(&self, i: Inst, columns: &[IndexColumn]) -> bool {
        let (f, attrs) = (self.f, self.f.attrs(i));
        let (x, indices) = (&self.dims[f.args(i)[0]], &self.dims[f.args(i)[1]]);
        let fits = |(k, c): (usize, &IndexColumn)| match c {
            IndexColumn::Axis(a) => {
                let d = attrs.ints("start_map")[k] as usize;
                indices[*a] <= x[d] - attrs.ints("sizes")[d] + 1
            }
            IndexColumn::Data(..) => true,
        };
        columns.iter().enumerate().all(fits)
    }

    /// The value that a contraction reads where it asks for this one: what lies under views that are
    /// steps along axes.
    pub(crate) fn base(&self, v: Value) -> Value {
        let mut v = v;
        while let ValueDef::Inst(i, _) = self.f.def(v)
            && matches!(self.f.op(i).def().body, Body::View(_))
            && self.is_strided(i)
        {
            v = self.f.args(i)[0];
        }
        v
    }

    /// The one value that all elements have, where that is known from views of a literal.
    pub(crate) fn splat(&self, v: Value) -> Option<Literal> {
        let mut v = v;
        loop {
            match self.f.def(v) {
                ValueDef::Literal(l) => return Some(l),
                ValueDef::Inst(i, _)
                    if matches!(self.f.op(i).def().body, Body::View(_))
                        && self.f.args(i).len() == 1 =>
                {
                    v = self.f.args(i)[0];
                }
                _ => return None,
            }
        }
    }

    /// Whether a view is a matter of axes alone.
    pub(crate) fn is_aligned(&self, i: Inst) -> bool {
        self.aligned[i]
    }

    fn align(&mut self) {
        for &i in self.f.body_insts() {
            if matches!(self.f.op(i).def().body, Body::View(_)) {
                let mut axes = LoopAxes::default();
                axes.begin();
                let place = axes.place(&self.dims[self.f.inst_results(i)[0]]);
                self.aligned[i] = self.through(&mut axes, i, &place).is_some();
            }
        }
    }

    /// Whether readers find a view's elements in equal steps, without a guard.
    pub(crate) fn is_strided(&self, i: Inst) -> bool {
        if self.splat(self.f.inst_results(i)[0]).is_some() || self.is_aligned(i) {
            return true;
        }
        let Some(map) = self.view(i) else { return false };
        let [piece] = map.pieces.as_slice() else { return false };
        piece.guards.is_empty() && piece.index.iter().all(is_affine)
    }

    fn classify(&mut self, apart: bool) {
        let f = self.f;
        let mut spread: SecondaryMap<Value, bool> = SecondaryMap::with_capacity(f.value_count());
        for &i in f.body_insts().iter().rev() {
            let v = f.inst_results(i)[0];
            let spreads = |&u: &Inst| {
                let to = f.inst_results(u)[0];
                match f.op(u).def().body {
                    // What is only put beside other things is not repeated.
                    Body::View(_) => {
                        self.elements[to] > self.elements[v] && self.is_aligned(u) || spread[to]
                    }
                    Body::Map(_) => spread[to],
                    _ => false,
                }
            };
            spread[v] =
                !self.forced[v] && !self.users[v].is_empty() && self.users[v].iter().all(spreads);
        }
        let mut shifted: SecondaryMap<Value, Shifts> = SecondaryMap::new();
        for &i in f.body_insts() {
            let v = f.inst_results(i)[0];
            let shifts = self.shifts(i, &shifted);
            let free = !apart && !self.forced[v] && shifts.are_few(1);
            self.class[i] = match f.op(i).def().body {
                Body::View(_) | Body::Source(_) if free => InstClass::Free,
                Body::Map(_)
                    if free && (read_back(f, i).is_some() || self.is_light(i, spread[v])) =>
                {
                    InstClass::Free
                }
                Body::Map(_) | Body::View(_) | Body::Source(_) => InstClass::Point,
                Body::Reduce(m) => InstClass::Reduce(m),
                // Along an axis of extent 1 nothing folds: each element is its own result.
                Body::Scan(_) if self.scans_nothing(i) => InstClass::Point,
                Body::Scan(m) => InstClass::Scan(m),
                Body::Contract => InstClass::Contract,
                Body::Indirect(Indirect::Scatter(_)) => InstClass::Scatter,
                Body::Indirect(Indirect::Argsort) => InstClass::Argsort,
                // Elements that are found, not computed, are found again as well.
                Body::Indirect(_) if free && self.users[v].len() <= 2 => InstClass::Free,
                Body::Indirect(_) => InstClass::Point,
                Body::Opaque => InstClass::Opaque,
                Body::Step(_) => InstClass::Attention,
                body if is_in_no_group(body) => InstClass::Constant,
                Body::Collective(_) => InstClass::Exchange,
                Body::Region(_) => InstClass::Control,
                Body::Effect(_) => InstClass::Effect,
                // Composed ones were refused when programs were recorded.
                Body::Constant | Body::Composed(_) => InstClass::Point,
            };
            if self.class[i] == InstClass::Free {
                shifted[v] = shifts;
            }
            self.weight[i] = self.program(i).map_or(0, |(_, w)| w);
        }
    }

    /// The first instruction that would be written out through more shifted views than any plan of
    /// ours has: index expressions double with each.
    pub(crate) fn too_deep(&self) -> Option<Inst> {
        self.inlined_shifts().err()
    }

    /// The shifted views that lie under what is inlined.
    ///
    /// # Errors
    /// The first instruction under which there are too many.
    pub(crate) fn inlined_shifts(&self) -> Result<SecondaryMap<Value, Shifts>, Inst> {
        let mut shifted: SecondaryMap<Value, Shifts> = SecondaryMap::new();
        for &i in self.f.body_insts() {
            let shifts = self.shifts(i, &shifted);
            if self.class[i] == InstClass::Free {
                shifted[self.f.inst_results(i)[0]] = shifts;
            }
            if shifts.are_too_deep() {
                return Err(i);
            }
        }
        Ok(shifted)
    }

    /// Whether a value may be packed in this many bits an element: where it is a stack of elements, each begins with a
    /// word.
    pub(crate) fn packs(&self, v: Value, bits: u8) -> bool {
        let element: i64 = self.dims[v].iter().skip(1).product();
        !self.bound[v] && (!self.stack[v] || element % (32 / i64::from(bits)) == 0)
    }

    /// Marks instructions to be inlined wherever they are used.
    pub(crate) fn set_free(&mut self, i: Inst) {
        self.class[i] = InstClass::Free;
    }

    /// Whether a scan's axis has extent 1.
    pub(crate) fn scans_nothing(&self, i: Inst) -> bool {
        let axis = self.f.attrs(i).int("axis") as usize;
        matches!(self.f.op(i).def().body, Body::Scan(_)) && self.dims[self.f.args(i)[0]][axis] == 1
    }

    /// Whether a reduction's axes all have extent 1.
    pub(crate) fn folds_nothing(&self, i: Inst) -> bool {
        let dims = &self.dims[self.f.args(i)[0]];
        dims.iter().zip(folded(self, i)).all(|(&n, folded)| n == 1 || !folded)
    }

    /// The scalar program of an elementwise or generated instruction, and its primitives.
    pub(crate) fn program(&self, i: Inst) -> Option<(&ScalarProgram, u32)> {
        self.recorded[i].map(|id| (&self.programs[id], self.weights[id]))
    }

    /// The instruction that makes a value, when it is free.
    pub(crate) fn free(&self, v: Value) -> Option<Inst> {
        match self.f.def(v) {
            ValueDef::Inst(i, _) if self.class[i] == InstClass::Free => Some(i),
            _ => None,
        }
    }

    /// The index map of a view.
    pub(crate) fn view(&self, i: Inst) -> Option<ViewMap> {
        let Body::View(index) = self.f.op(i).def().body else { return None };
        let args: Vec<Extents> = self.f.args(i).iter().map(|&v| self.dims[v].clone()).collect();
        let out = &self.dims[self.f.inst_results(i)[0]];
        Some(index(&ViewCx { args: &args, out, result: 0, attrs: self.f.attrs(i) }))
    }

    /// Where the operand of a view lies when its result lies at `place`; `None` where that is no
    /// matter of axes alone (slices, padding, reversal).
    pub(crate) fn through(
        &self,
        axes: &mut LoopAxes,
        i: Inst,
        place: &TensorAxes,
    ) -> Option<TensorAxes> {
        let map = self.view(i)?;
        let [piece] = map.pieces.as_slice() else { return None };
        if !piece.guards.is_empty() || piece.operand != 0 {
            return None;
        }
        let dims = &self.dims[self.f.args(i)[0]];
        let mut at = TensorAxes::new();
        for (e, &n) in piece.index.iter().zip(dims) {
            match e {
                _ if n == 1 => at.push(Default::default()),
                IndexExpr::Axis(d) => at.push(place[*d as usize].clone()),
                _ => break,
            }
        }
        let whole =
            |at: &TensorAxes| at.iter().zip(dims).all(|(r, &n)| n == 1 || axes.points(r) == n);
        if at.len() == dims.len() && whole(&at) {
            return Some(at);
        }
        // The row-major order kept: a reshape, whatever it is called.
        let out = &self.dims[self.f.inst_results(i)[0]];
        let Body::View(reshape) = Op::Reshape.def().body else { return None };
        let args = [dims.clone()];
        let same = reshape(&ViewCx { args: &args, out, result: 0, attrs: self.f.attrs(i) });
        if same != map {
            return None;
        }
        let flat: SmallVec<[_; 8]> = place.iter().flatten().copied().collect();
        axes.split_flat(&flat, dims)
    }
}

/// Whether an index is a sum of coordinates times constants.
pub(crate) fn is_affine(e: &IndexExpr) -> bool {
    match e {
        IndexExpr::Axis(_) | IndexExpr::Const(_) => true,
        IndexExpr::Add(a, b) => is_affine(a) && is_affine(b),
        IndexExpr::Mul(a, _) => is_affine(a),
        IndexExpr::FloorDiv(..) | IndexExpr::Mod(..) | IndexExpr::Data { .. } => false,
    }
}

/// The value whose axes an instruction runs along.
pub(crate) fn space(facts: &Facts<'_>, i: Inst) -> Value {
    match facts.class[i] {
        InstClass::Reduce(_) | InstClass::Scan(_) => facts.f.args(i)[0],
        _ => facts.f.inst_results(i)[0],
    }
}

/// Which axes of its operand a reduction folds.
pub(crate) fn folded(facts: &Facts<'_>, i: Inst) -> SmallVec<[bool; 8]> {
    let attrs = facts.f.attrs(i);
    let rank = facts.dims[facts.f.args(i)[0]].len() as i64;
    match facts.class[i] {
        InstClass::Reduce(m) if m.is_arg() => (0..rank).map(|d| d == attrs.int("axis")).collect(),
        _ => (0..rank).map(|d| attrs.ints("axes").contains(&d)).collect(),
    }
}
