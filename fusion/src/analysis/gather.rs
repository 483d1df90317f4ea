//! How facts are gathered: from a function alone, or for a function of instances from those of the function that it was
//! made of.

use super::axes::LoopAxes;
use super::class::{InstClass, is_in_no_group};
use super::facts::{Facts, FixedFacts, Recorded, RecordedPrograms};
use super::index_columns::{IndexColumn, columns};
use super::recomputation::{awaited, is_kept};
use super::shifts::Shifts;
use super::views::ViewOrigins;
use super::weight::weight;
use crate::plan::blocks::{is_control, whole};
use crate::plan::lossy::{copied, read_back};
use adfuse_ir::control::reads;
use adfuse_ir::kernel::Extents;
use adfuse_ir::op::{Body, Effect, Indirect};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{At, DType, Diagnostic, Function, Inst, Kind, Op, Value, ValueDef};
use cranelift_entity::{EntityRef, SecondaryMap};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// What a scalar program is recorded from: op, attributes, types of operands and result.
type Recording = (Op, u32, SmallVec<[DType; 4]>, DType);

impl<'f> Facts<'f> {
    /// Gathers the facts. With `apart` every instruction is in a group of its own.
    ///
    /// # Errors
    /// For symbolic extents and calls: the error names the symbol or the instruction.
    pub(crate) fn of(f: &'f Function, apart: bool) -> Result<Facts<'f>, Diagnostic> {
        let mut facts = Facts::empty(f);
        facts.shapes(|_| None)?;
        facts.record()?;
        facts.align();
        facts.conclude(apart);
        Ok(facts)
    }

    /// As [`Facts::of`], for a function whose instructions are instances of those of another, of which the facts are
    /// known: `origin` says of which value each is an instance. What follows from an instruction alone is not found again.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn of_instances(
        f: &'f Function,
        apart: bool,
        (known, origin): (&Facts<'_>, &SecondaryMap<Value, Option<Value>>),
    ) -> Result<Facts<'f>, Diagnostic> {
        let of = |i: Inst| match known.f.def(origin[f.inst_results(i)[0]]?) {
            ValueDef::Inst(j, _) => Some(j),
            _ => None,
        };
        if f.body_insts().iter().any(|&i| of(i).is_none()) {
            return Facts::of(f, apart);
        }
        let mut facts = Facts::empty(f);
        facts.shapes(|v| origin[v].map(|v| (known.elements[v], known.dims[v].clone())))?;
        let fixed = facts.own();
        fixed.programs = Arc::clone(&known.programs);
        for &i in f.body_insts() {
            if let Some(j) = of(i) {
                fixed.recorded[i] = known.recorded[j];
                fixed.aligned[i] = known.aligned[j];
                fixed.views[i] = known.views[j].clone();
            }
        }
        facts.conclude(apart);
        Ok(facts)
    }

    fn empty(f: &'f Function) -> Facts<'f> {
        let (values, insts) = (f.value_count(), f.inst_count());
        let fixed = FixedFacts {
            dims: SecondaryMap::with_capacity(values),
            elements: SecondaryMap::with_default(1),
            users: SecondaryMap::with_capacity(values),
            forced: SecondaryMap::with_capacity(values),
            operand: SecondaryMap::with_capacity(values),
            views: SecondaryMap::with_capacity(insts),
            aligned: SecondaryMap::with_capacity(insts),
            weight: SecondaryMap::with_capacity(insts),
            recorded: SecondaryMap::with_capacity(insts),
            ..FixedFacts::default()
        };
        Facts { f, class: SecondaryMap::with_capacity(insts), fixed: Arc::new(fixed) }
    }

    /// What is fixed, while nothing else has it.
    fn own(&mut self) -> &mut FixedFacts {
        Arc::get_mut(&mut self.fixed).expect("nothing else has facts that are being gathered")
    }

    /// What follows from extents, programs and views.
    fn conclude(&mut self, apart: bool) {
        let f = self.f;
        self.own().after = awaited(f);
        for &v in f.results() {
            self.own().forced[v] = true;
        }
        for &i in f.body_insts() {
            self.demands(i);
            let weight = self.program(i).map_or(0, |(_, w)| w);
            self.own().weight[i] = weight;
        }
        self.classify(apart);
    }

    /// The facts of the same function as they are before anything is decided; `apart` as in [`Facts::of`].
    pub(crate) fn undecided(&self, apart: bool) -> Facts<'f> {
        Facts::with(self.f, Arc::clone(&self.fixed), apart)
    }

    /// Facts of a function, of which those are known that no decision changes.
    pub(crate) fn with(f: &'f Function, fixed: Arc<FixedFacts>, apart: bool) -> Facts<'f> {
        let mut facts = Facts { f, class: SecondaryMap::with_capacity(f.inst_count()), fixed };
        facts.classify(apart);
        facts
    }

    /// Those that no decision changes.
    pub(crate) fn fixed(&self) -> &Arc<FixedFacts> {
        &self.fixed
    }

    /// Finds extents and users; `known` has extents that need not be found.
    fn shapes(
        &mut self,
        known: impl Fn(Value) -> Option<(i64, Extents)>,
    ) -> Result<(), Diagnostic> {
        let f = self.f;
        let place = |d: Diagnostic| Diagnostic {
            at: At { func: Some(f.name.clone()), ..At::default() },
            ..d
        };
        for &v in f.params().iter().chain(f.results()) {
            self.shape(v, &known).map_err(place)?;
        }
        for &i in f.body_insts() {
            let read = reads(f, i);
            for &v in read.iter().chain(f.inst_results(i)) {
                self.shape(v, &known).map_err(|d| Diagnostic { at: at_inst(f, i), ..d })?;
            }
            for v in read {
                let users = &mut self.own().users[v];
                if users.last() != Some(&i) {
                    users.push(i);
                }
            }
        }
        Ok(())
    }

    fn shape(
        &mut self,
        v: Value,
        known: &impl Fn(Value) -> Option<(i64, Extents)>,
    ) -> Result<(), Diagnostic> {
        if let Some((elements, dims)) = known(v) {
            let fixed = self.own();
            (fixed.elements[v], fixed.dims[v]) = (elements, dims);
            return Ok(());
        }
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
        let fixed = self.own();
        fixed.elements[v] = dims.iter().product();
        fixed.dims[v] = dims;
        Ok(())
    }

    /// Records the scalar programs, equal ones once.
    fn record(&mut self) -> Result<(), Diagnostic> {
        let f = self.f;
        let mut known: HashMap<Recording, Recorded> = HashMap::new();
        let mut all = RecordedPrograms::default();
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
                    let id = all.programs.push(program);
                    all.weights[id] = weight;
                    known.insert(key, id);
                    id
                }
            };
            self.own().recorded[i] = Some(id);
        }
        self.own().programs = Arc::new(all);
        Ok(())
    }

    /// Marks operands that must be in buffers, and those of contractions.
    fn demands(&mut self, i: Inst) {
        let f = self.f;
        if is_kept(f, i) {
            f.inst_results(i).iter().for_each(|&v| self.own().forced[v] = true);
        }
        match f.op(i).def().body {
            Body::Indirect(Indirect::Scatter(_)) => {
                for (k, &v) in f.args(i).iter().enumerate() {
                    // Sums may begin with one value everywhere.
                    let demanded = k > 0 || self.splat(v).is_none();
                    self.own().forced[v] |= demanded;
                }
            }
            Body::Indirect(Indirect::Gather) => {
                self.own().forced[f.args(i)[0]] = true;
                match columns(f, f.args(i)[1], &|_| false).filter(|c| self.reach(i, c)) {
                    None => self.own().forced[f.args(i)[1]] = true,
                    Some(columns) => {
                        for c in columns {
                            if let IndexColumn::Data(v, _) = c {
                                self.own().forced[v] = true;
                            }
                        }
                    }
                }
            }
            Body::Indirect(_) | Body::Opaque => {
                for &v in f.args(i) {
                    self.own().forced[v] = true;
                }
            }
            // They read and leave dense arrays.
            Body::Step(_) | Body::Collective(_) => {
                for &v in f.args(i).iter().chain(f.inst_results(i)) {
                    self.own().forced[v] = true;
                    self.own().bound[v] = true;
                }
            }
            // The host reads it as it is.
            Body::Effect(Effect::Print) => {
                let v = f.args(i)[1];
                self.own().forced[v] = true;
                self.own().bound[v] = true;
            }
            Body::Region(_) => {
                for v in reads(f, i).into_iter().chain(f.inst_results(i).iter().copied()) {
                    self.own().forced[v] = true;
                    self.own().stack[v] = true;
                }
                for v in whole(f, i) {
                    self.own().bound[v] = true;
                }
            }
            Body::Contract => {
                let operands = f.args(i).iter().enumerate();
                let terms = operands.flat_map(|operand| stacked_terms(self, (f, i), operand));
                for &v in &terms.collect::<SmallVec<[&Value; 4]>>() {
                    let base = self.base(*v);
                    // What is read back from a narrower copy is converted on its way.
                    let copy = match f.def(base) {
                        ValueDef::Inst(j, _) => read_back(f, j),
                        _ => None,
                    };
                    self.own().operand[copy.unwrap_or(base)] = true;
                }
            }
            // A copy that is not in memory saves nothing.
            Body::Map(_) if copied(f, i).is_some() => {
                self.own().forced[f.inst_results(i)[0]] = true
            }
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

    fn align(&mut self) {
        for &i in self.f.body_insts() {
            if let Some(view) = ViewOrigins::of(self.f, i, &self.dims) {
                self.own().views[i] = Some(Arc::new(view));
                let mut axes = LoopAxes::default();
                axes.begin();
                let place = axes.place(&self.dims[self.f.inst_results(i)[0]]);
                let aligned = self.through(&mut axes, i, &place).is_some();
                self.own().aligned[i] = aligned;
            }
        }
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
                !self.is_held(v) && !self.users[v].is_empty() && self.users[v].iter().all(spreads);
        }
        let mut shifted: SecondaryMap<Value, Shifts> = SecondaryMap::new();
        for &i in f.body_insts() {
            let v = f.inst_results(i)[0];
            let shifts = self.shifts(i, &shifted);
            let free = !apart && !self.is_held(v) && shifts.are_few(1);
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
        }
    }
}

/// An operand of a contraction, or the operands that it stacks along the first axis, which is summed over: each term is read where
/// it is. A stack that others read too is in memory.
fn stacked_terms<'f>(
    facts: &Facts<'_>,
    (f, i): (&'f Function, Inst),
    (operand, v): (usize, &'f Value),
) -> &'f [Value] {
    let whole = std::slice::from_ref(v);
    let ValueDef::Inst(j, _) = f.def(*v) else { return whole };
    let narrow = f.ty(*v).dtype.is_narrow_float();
    if f.op(j) != Op::Concatenate || !narrow || facts.users[*v].len() != 1 {
        return whole;
    }
    let contract = f.attrs(i).pair("contract");
    let first = f.attrs(j).int("axis") == 0;
    let summed = first && [contract.0, contract.1][operand].first() == Some(&0);
    let one = |v: &Value| f.ty(*v).dims().is_some_and(|dims| dims.first() == Some(&1));
    let parts = f.args(j);
    if summed && parts.iter().all(one) { parts } else { whole }
}
