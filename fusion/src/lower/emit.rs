//! Emits the scalar program of a stage: the value at a point in terms of what the stage reads.

use super::coordinates::Coordinates;
use super::stage_places::{ElementRef, PlaceNumber, StagePlaces};
use crate::analysis::axes::{LoopAxes, TensorAxes};
use crate::analysis::facts::Facts;
use crate::analysis::index_columns::Index;
use adfuse_ir::affine::simplified;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Buffer, Operand, Param, Piece};
use adfuse_ir::op::Body;
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal, ScalarProgram};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{DType, Diagnostic, Inst, Kind, Literal, Value, ValueDef};
use cranelift_entity::{EntityRef, SecondaryMap};
use hashbrown::hash_table::{Entry, HashTable};
use hashbrown::{DefaultHashBuilder, HashMap};
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::rc::Rc;

/// What stages stand on: the function, where its values are, and the nest.
pub(crate) struct EmitContext<'a> {
    pub(crate) facts: &'a Facts<'a>,
    /// The buffers of the values that have one.
    pub(crate) buffers: &'a SecondaryMap<Value, Option<Buffer>>,
    /// Whether an instruction's value is computed in this part where it is asked for.
    pub(crate) listed: &'a dyn Fn(Inst) -> bool,
    /// Whether every op rounds its result to its type.
    pub(crate) strict: bool,
}

/// The most values of one stage: plans of our own have a few thousand.
const MOST_VALUES: usize = 100_000;

/// Values of most stages: tables have room for these at once, rather than grow three times.
const EXPECTED: usize = 28;

/// The program of one stage, as it grows.
pub(crate) struct StageEmitter<'a> {
    pub(crate) cx: &'a EmitContext<'a>,
    axes: &'a mut LoopAxes,
    numbers: &'a Coordinates,
    /// What earlier stages left, by value and place.
    kept: &'a HashMap<(Value, TensorAxes), (Param, DType)>,
    pub(crate) program: ScalarProgram,
    pub(crate) params: Vec<Param>,
    places: StagePlaces,
    values: HashMap<(Value, PlaceNumber), SVal>,
    /// The instructions of the program, and the numbers of the parameters, by what they are.
    known: HashTable<SVal>,
    numbers_of: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

type EmittedStage = Result<SVal, Diagnostic>;

impl<'a> StageEmitter<'a> {
    /// An empty program.
    pub(crate) fn new(
        cx: &'a EmitContext<'a>,
        axes: &'a mut LoopAxes,
        numbers: &'a Coordinates,
        kept: &'a HashMap<(Value, TensorAxes), (Param, DType)>,
    ) -> StageEmitter<'a> {
        StageEmitter {
            cx,
            axes,
            numbers,
            kept,
            program: ScalarProgram::default(),
            params: Vec::new(),
            places: StagePlaces::default(),
            values: HashMap::with_capacity(EXPECTED),
            known: HashTable::with_capacity(EXPECTED),
            numbers_of: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// The coordinates of a place, an axis each.
    pub(crate) fn index(&self, at: &ElementRef) -> Index {
        match at {
            ElementRef::Place(place) => {
                let number = |a| self.numbers.get(&a).copied().unwrap_or_default();
                place.iter().map(|run| self.axes.coordinate(run, number)).collect()
            }
            ElementRef::Index(index, _) => index.clone(),
        }
    }

    /// The value at a point, in its own type.
    pub(crate) fn value(&mut self, v: Value, at: ElementRef) -> EmittedStage {
        if let Some(l) = self.cx.facts.f.literal(v) {
            return Ok(self.constant(l));
        }
        let at = match at {
            ElementRef::Place(p) => ElementRef::Place(self.axes.resolve(&p)),
            at => at,
        };
        let at = self.places.number(at);
        self.value_at(v, at)
    }

    /// As [`StageEmitter::value`], at a place that has a number.
    pub(crate) fn value_at(&mut self, v: Value, at: PlaceNumber) -> EmittedStage {
        let facts = self.cx.facts;
        if let Some(l) = facts.f.literal(v) {
            return Ok(self.constant(l));
        }
        // Under a shifted view, what is not shifted itself is the same value as elsewhere, and there for all coordinates.
        let unshifted = match &**self.places.at(at) {
            ElementRef::Index(index, _) => self.numbers.place(index, &facts.dims[v]),
            ElementRef::Place(_) => None,
        };
        let at = match unshifted {
            Some(place) => self.places.number(ElementRef::Place(self.axes.resolve(&place))),
            None => at,
        };
        let key = (v, at);
        if let Some(&s) = self.values.get(&key) {
            return Ok(s);
        }
        if self.values.len() >= MOST_VALUES {
            let m = format!("a kernel would compute more than {MOST_VALUES} values at each point");
            let at = match facts.f.def(v) {
                ValueDef::Inst(i, _) => at_inst(facts.f, i),
                _ => Default::default(),
            };
            return Err(Diagnostic::new(at, Kind::Limit, m));
        }
        let s = self.fresh(v, at)?;
        self.values.insert(key, s);
        Ok(s)
    }

    fn fresh(&mut self, v: Value, at: PlaceNumber) -> EmittedStage {
        let facts = self.cx.facts;
        let dtype = facts.f.ty(v).dtype;
        if !self.kept.is_empty()
            && let ElementRef::Place(place) = &**self.places.at(at)
            && let Some((param, kept)) = self.kept.get(&(v, place.clone()))
        {
            let s = self.numbered(param.clone(), *kept).0;
            return Ok(self.convert(s, dtype));
        }
        match facts.f.def(v) {
            ValueDef::Inst(i, _) if (self.cx.listed)(i) => self.computed(v, i, at),
            _ => {
                let at = Rc::clone(self.places.at(at));
                Ok(self.load(v, &at)?.0)
            }
        }
    }

    /// Reads a value from its buffer; the number of the parameter too.
    pub(crate) fn load(&mut self, v: Value, at: &ElementRef) -> Result<(SVal, usize), Diagnostic> {
        let dtype = self.cx.facts.f.ty(v).dtype;
        let from = self.operand(v)?;
        let index = match from {
            Operand::Buffer(_) => self.index(at),
            Operand::Literal(_) => Index::new(),
        };
        let guards = match at {
            ElementRef::Index(_, guards) => guards.clone(),
            ElementRef::Place(_) => SmallVec::new(),
        };
        let pieces = guarded(Piece { from, index, guards }, dtype);
        Ok(self.numbered(Param::Load(pieces), dtype))
    }

    /// The number of a parameter with an integer, read from its buffer.
    pub(crate) fn integer(&mut self, v: Value, at: &ElementRef) -> Result<usize, Diagnostic> {
        Ok(self.load(v, at)?.1)
    }

    /// The buffer or the literal that a value is.
    pub(crate) fn operand(&self, v: Value) -> Result<Operand, Diagnostic> {
        let facts = self.cx.facts;
        match (self.cx.buffers[v], facts.f.def(v)) {
            (_, ValueDef::Literal(l)) => Ok(Operand::Literal(l)),
            (Some(b), _) => Ok(Operand::Buffer(b)),
            (None, def) => {
                let at = match def {
                    ValueDef::Inst(i, _) => at_inst(facts.f, i),
                    _ => Default::default(),
                };
                let m = "a value is read that no group stores";
                Err(Diagnostic::new(at, Kind::Internal, m))
            }
        }
    }

    fn computed(&mut self, v: Value, i: Inst, number: PlaceNumber) -> EmittedStage {
        let at = &*Rc::clone(self.places.at(number));
        let facts = self.cx.facts;
        let f = facts.f;
        let wrong = |m: &str| Err(Diagnostic::new(at_inst(f, i), Kind::Internal, m));
        match f.op(i).def().body {
            Body::Map(_) => {
                let mut args: SmallVec<[SVal; 4]> = SmallVec::new();
                for &a in f.args(i) {
                    args.push(self.value_at(a, number)?);
                }
                self.inline(i, &args)
            }
            Body::Source(_) => {
                let index = self.index(at);
                let dims = &facts.dims[v];
                let mut linear = IndexExpr::Const(0);
                for (e, &n) in index.iter().zip(dims) {
                    linear = linear.times(n).sum(e.clone());
                }
                let axis = usize::try_from(f.attrs(i).int("axis")).unwrap_or(0);
                let along = index.get(axis).cloned().unwrap_or(IndexExpr::Const(0));
                let mut args: SmallVec<[SVal; 4]> = SmallVec::new();
                args.push(self.coord(linear));
                args.push(self.coord(along));
                for &a in f.args(i) {
                    // Single numbers, the same everywhere.
                    args.push(self.value(a, ElementRef::Place(TensorAxes::new()))?);
                }
                self.inline(i, &args)
            }
            Body::View(_) => self.view(i, at),
            Body::Indirect(_) => self.indirect(i, at),
            Body::Scan(_) if facts.scans_nothing(i) => self.value_at(f.args(i)[0], number),
            Body::Reduce(m) if facts.folds_nothing(i) => {
                if m.is_arg() {
                    return Ok(self.constant(Literal::zero(DType::I32)));
                }
                let x = f.args(i)[0];
                let folded = crate::analysis::facts::folded(facts, i);
                let at = match at {
                    ElementRef::Place(kept) => {
                        ElementRef::Place(spread(kept, &folded, Default::default()))
                    }
                    ElementRef::Index(kept, guards) => {
                        let zero = IndexExpr::Const(0);
                        ElementRef::Index(spread(kept, &folded, zero), guards.clone())
                    }
                };
                self.value(x, at)
            }
            _ => wrong("a fold is read where it is not done"),
        }
    }

    fn view(&mut self, i: Inst, at: &ElementRef) -> EmittedStage {
        let facts = self.cx.facts;
        if let ElementRef::Place(place) = at {
            let mark = self.axes.begin();
            let under = facts.through(self.axes, i, place);
            // The nest is fixed by now: where it would have to be divided, coordinates will do.
            let divided = self.axes.undo(mark);
            if let Some(under) = under
                && !divided
            {
                return self.value(facts.f.args(i)[0], ElementRef::Place(under));
            }
        }
        let Some(map) = facts.view(i) else {
            let m = "a view without a map";
            return Err(Diagnostic::new(at_inst(facts.f, i), Kind::Internal, m));
        };
        let (of_place, index, outer): (Index, &Index, &[Guard]);
        match at {
            ElementRef::Index(known, guards) => (index, outer) = (known, guards),
            ElementRef::Place(_) => {
                of_place = self.index(at);
                (index, outer) = (&of_place, &[]);
            }
        }
        // Guards speak of expressions as they are written; one that has nothing in common with them may be a
        // simpler one.
        let mut guarded: Vec<IndexExpr> = outer.iter().map(|g| g.expr.clone()).collect();
        let inner = map.pieces.iter().flat_map(|p| &p.guards);
        guarded.extend(inner.map(|g| g.expr.compose(index)));
        let simple = |e: IndexExpr| match guarded.iter().any(|g| e.shares(g)) {
            false => simplified(&e, &self.numbers.extents),
            true => e,
        };
        let mut pieces: Vec<(Value, Index, SmallVec<[Guard; 2]>)> = Vec::new();
        for p in &map.pieces {
            let mut v = facts.f.args(i)[p.operand as usize];
            let mut at: Index = p.index.iter().map(|e| simple(e.compose(index))).collect();
            // A view of what is in memory is another place in it.
            while let ValueDef::Inst(j, _) = facts.f.def(v)
                && (self.cx.listed)(j)
                && let Some(under) = facts.view(j)
                && let [whole] = under.pieces.as_slice()
                && whole.guards.is_empty()
            {
                at = whole.index.iter().map(|e| simple(e.compose(&at))).collect();
                v = facts.f.args(j)[whole.operand as usize];
            }
            let guard = |g: &Guard| Guard { expr: g.expr.compose(index), range: g.range.clone() };
            pieces.push((v, at, p.guards.iter().map(guard).collect()));
        }
        let simple = |v: Value| match facts.f.def(v) {
            ValueDef::Inst(j, _) => !(self.cx.listed)(j),
            _ => true,
        };
        if pieces.iter().all(|(v, ..)| simple(*v)) {
            return self.choice(i, pieces, outer);
        }
        // Computed pieces: each where its guards hold, and a choice between the results.
        let mut result: Option<SVal> = None;
        for (v, index, guards) in pieces.into_iter().rev() {
            let all = outer.iter().cloned().chain(guards.iter().cloned()).collect();
            let x = self.value(v, ElementRef::Index(index, all))?;
            result = Some(match result {
                None => x,
                // What is read is that already where the guards do not hold.
                Some(rest) if self.falls_to(x, &guards, rest) => x,
                Some(rest) => {
                    let holds = self.holds(&guards);
                    let dtype = self.program.insts[x].dtype;
                    self.prim(Prim::Select, &[holds, x, rest], dtype)
                }
            });
        }
        result.ok_or_else(|| {
            Diagnostic::new(at_inst(facts.f, i), Kind::Internal, "a view without pieces")
        })
    }

    /// One load through the first piece whose guards hold.
    fn choice(
        &mut self,
        i: Inst,
        pieces: Vec<(Value, Index, SmallVec<[Guard; 2]>)>,
        outer: &[Guard],
    ) -> EmittedStage {
        let facts = self.cx.facts;
        let dtype = facts.f.ty(facts.f.inst_results(i)[0]).dtype;
        let mut kept: SmallVec<[Piece; 1]> = SmallVec::new();
        let last = pieces.len().saturating_sub(1);
        for (k, (v, index, mut guards)) in pieces.into_iter().enumerate() {
            let from = self.operand(v)?;
            let index = if let Operand::Literal(_) = from { Index::new() } else { index };
            // At every coordinate some piece applies: where no other does, the last. Where all stand
            // under further guards, that the others failed does not say which guard did.
            if k == last && outer.is_empty() {
                guards.clear();
            }
            let always = guards.is_empty();
            let guards = outer.iter().cloned().chain(guards).collect();
            kept.push(Piece { from, index, guards });
            if always {
                break;
            }
        }
        if !outer.is_empty() {
            let from = Operand::Literal(Literal::zero(dtype));
            kept.push(Piece { from, index: Index::new(), guards: SmallVec::new() });
        }
        Ok(self.numbered(Param::Load(kept), dtype).0)
    }

    /// Whether a value is a load that gives a constant wherever one of these guards does not hold.
    fn falls_to(&self, x: SVal, guards: &[Guard], rest: SVal) -> bool {
        let (SOp::Param(k), SOp::Const(rest)) =
            (self.program.insts[x].op, self.program.insts[rest].op)
        else {
            return false;
        };
        let Some(Param::Load(pieces)) = self.params.get(k as usize) else { return false };
        let Some((last, others)) = pieces.split_last() else { return false };
        last.guards.is_empty()
            && matches!(last.from, Operand::Literal(l) if l == rest)
            && others.iter().all(|p| guards.iter().all(|g| p.guards.contains(g)))
    }

    /// Whether all guards hold.
    fn holds(&mut self, guards: &[Guard]) -> SVal {
        let mut all: Option<SVal> = None;
        for g in guards {
            let e = self.coord(g.expr.clone());
            let lo = self.constant(Literal::from_i64(DType::I64, g.range.start));
            let hi = self.constant(Literal::from_i64(DType::I64, g.range.end));
            let above = self.prim(Prim::Ge, &[e, lo], DType::Bool);
            let below = self.prim(Prim::Lt, &[e, hi], DType::Bool);
            let both = self.prim(Prim::And, &[above, below], DType::Bool);
            all = Some(all.map_or(both, |a| self.prim(Prim::And, &[a, both], DType::Bool)));
        }
        all.unwrap_or_else(|| self.constant(Literal::one(DType::Bool)))
    }

    /// The program of an instruction on these operands.
    fn inline(&mut self, i: Inst, args: &[SVal]) -> EmittedStage {
        let facts = self.cx.facts;
        let Some((program, _)) = facts.program(i) else {
            let m = "an elementwise op without a program";
            return Err(Diagnostic::new(at_inst(facts.f, i), Kind::Internal, m));
        };
        // Most programs are one primitive of their parameters.
        let computed = program.insts.values().filter(|inst| !matches!(inst.op, SOp::Param(_)));
        let live = (computed.count() > 1).then(|| program.live());
        let mut map: SmallVec<[SVal; 8]> = SmallVec::with_capacity(program.insts.len());
        for (v, inst) in program.insts.iter() {
            let s = match inst.op {
                // A value that nothing reads is given one that is there.
                _ if live.as_ref().is_some_and(|live| !live[v.index()]) => SVal::from_u32(0),
                SOp::Param(k) => args[k as usize],
                SOp::Prim(Prim::Convert) => {
                    let x = map[inst.args[0].index()];
                    self.convert(x, inst.dtype)
                }
                op => {
                    let args = inst.args.iter().map(|a| map[a.index()]).collect();
                    self.push(SInst { op, args, dtype: inst.dtype })
                }
            };
            map.push(s);
        }
        Ok(map[program.outputs[0].index()])
    }

    /// The same number in another type. Outside of strict mode what was just narrowed to 16 bits is
    /// taken as it was before.
    pub(crate) fn convert(&mut self, x: SVal, to: DType) -> SVal {
        let inst = &self.program.insts[x];
        if inst.dtype == to {
            return x;
        }
        if !self.cx.strict
            && inst.op == SOp::Prim(Prim::Convert)
            && inst.dtype.is_narrow_float()
            && let Some(&wide) = inst.args.first()
            && self.program.insts[wide].dtype == to
            && to == inst.dtype.compute()
        {
            return wide;
        }
        self.prim(Prim::Convert, &[x], to)
    }

    /// A constant.
    pub(crate) fn constant(&mut self, l: Literal) -> SVal {
        self.push(SInst { op: SOp::Const(l), args: SmallVec::new(), dtype: l.dtype() })
    }

    /// An expression of the coordinates.
    fn coord(&mut self, e: IndexExpr) -> SVal {
        match e {
            IndexExpr::Const(c) => self.constant(Literal::from_i64(DType::I64, c)),
            e => self.numbered(Param::Coord(e), DType::I64).0,
        }
    }

    fn prim(&mut self, prim: Prim, args: &[SVal], dtype: DType) -> SVal {
        self.push(SInst { op: SOp::Prim(prim), args: args.iter().copied().collect(), dtype })
    }

    fn push(&mut self, inst: SInst) -> SVal {
        let (insts, hasher) = (&mut self.program.insts, &self.hasher);
        let hash = hasher.hash_one(&inst);
        let of = |s: &SVal| hasher.hash_one(&insts[*s]);
        match self.known.entry(hash, |s| insts[*s] == inst, of) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let s = insts.next_key();
                new.insert(s);
                insts.push(inst)
            }
        }
    }

    /// A parameter, and its number.
    pub(crate) fn numbered(&mut self, param: Param, dtype: DType) -> (SVal, usize) {
        let (params, hasher) = (&mut self.params, &self.hasher);
        let hash = hasher.hash_one(&param);
        let of = |k: &usize| hasher.hash_one(&params[*k]);
        let k = match self.numbers_of.entry(hash, |k| params[*k] == param, of) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let k = *new.insert(params.len()).get();
                params.push(param);
                self.program.params.push(dtype);
                k
            }
        };
        let op = SOp::Param(k as u32);
        (self.push(SInst { op, args: SmallVec::new(), dtype }), k)
    }
}

/// A piece, and what is given where its guards do not hold.
pub(crate) fn guarded(piece: Piece, dtype: DType) -> SmallVec<[Piece; 1]> {
    let mut pieces: SmallVec<[Piece; 1]> = SmallVec::new();
    let always = piece.guards.is_empty();
    pieces.push(piece);
    if !always {
        let from = Operand::Literal(Literal::zero(dtype));
        pieces.push(Piece { from, index: Index::new(), guards: SmallVec::new() });
    }
    pieces
}

/// What is kept with something in place of what is folded.
fn spread<T: Clone, A: smallvec::Array<Item = T>>(
    kept: &SmallVec<A>,
    folded: &[bool],
    instead: T,
) -> SmallVec<A> {
    let mut kept = kept.iter().cloned();
    folded
        .iter()
        .map(|&f| if f { instead.clone() } else { kept.next().unwrap_or_else(|| instead.clone()) })
        .collect()
}
