//! Value numbering through regions: values of one number have the same bits. What is computed twice is computed once.
//!
//! The number of an instruction follows from its op, its attributes and the numbers of what it reads; that of an
//! instruction with regions from the numbers of what its regions end with, where a region parameter is numbered by
//! its place. So two loops have one number if their bodies compute the same, in whatever order.

use adfuse_ir::control::{LoopRoles, Trips, captures};
use adfuse_ir::entity::{AttrsId, TypeId};
use adfuse_ir::op::Control;
use adfuse_ir::rewrite::dce;
use adfuse_ir::{Dim, Function, Inst, Op, Phase, Region, Value, ValueDef};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, SecondaryMap};
use hashbrown::HashMap;
use smallvec::SmallVec;

type Numbers = SmallVec<[u32; 4]>;

/// What a value is, in the numbers of other values.
#[derive(PartialEq, Eq, Hash)]
enum ValueKey {
    /// Nothing is known of it.
    Unknown(Value),
    /// A parameter of a region: how deep the region is, and what it is entered with.
    Param(u32, RegionInput, TypeId),
    /// A result of an instruction.
    Result {
        op: Op,
        attrs: AttrsId,
        args: Numbers,
        types: SmallVec<[TypeId; 2]>,
        /// What each region ends with.
        regions: SmallVec<[Numbers; 2]>,
        result: usize,
    },
    /// A result of a loop without a way back.
    Recurrence {
        steps: StepCount,
        reverse: bool,
        /// The carries that it follows from: parameter, initial value, next value.
        carries: Vec<[u32; 3]>,
        /// The parameter of the carry that it is, or what its stack consists of.
        own: (bool, u32),
        ty: TypeId,
    },
}

/// What a parameter of a region stands for.
#[derive(PartialEq, Eq, Hash)]
enum RegionInput {
    /// What is at this place.
    Place(usize),
    /// The position of the step.
    Index,
    /// A carry with this initial value, and its place among those.
    Carry(u32, usize),
    /// An element of this value.
    Element(u32),
}

/// How many steps a loop takes.
#[derive(Clone, PartialEq, Eq, Hash)]
enum StepCount {
    Extent(Dim),
    Range(u32, u32),
}

/// The numbers of a function's values.
pub(super) struct Numbering<'f> {
    f: &'f Function,
    table: HashMap<ValueKey, u32>,
    numbers: SecondaryMap<Value, Option<u32>>,
    next: u32,
    depth: u32,
}

impl<'f> Numbering<'f> {
    /// No value has a number yet.
    pub(super) fn new(f: &'f Function) -> Numbering<'f> {
        let (table, numbers) = (HashMap::new(), SecondaryMap::new());
        Numbering { f, table, numbers, next: 0, depth: 0 }
    }

    /// The number of a value: its own, where nothing was found out about it.
    pub(super) fn of(&mut self, v: Value) -> u32 {
        match self.numbers[v] {
            Some(n) => n,
            None => {
                let n = self.intern(ValueKey::Unknown(v));
                self.numbers[v] = Some(n);
                n
            }
        }
    }

    /// Declares that a value has the bits of those of this number.
    pub(super) fn set(&mut self, v: Value, number: u32) {
        self.numbers[v] = Some(number);
    }

    /// Numbers what the function's body computes, from the numbers of its parameters.
    pub(super) fn body(&mut self) {
        for &i in self.f.body_insts() {
            self.inst(i);
        }
    }

    fn intern(&mut self, key: ValueKey) -> u32 {
        let next = &mut self.next;
        *self.table.entry(key).or_insert_with(|| {
            *next += 1;
            *next - 1
        })
    }

    fn enter(&mut self, p: Value, input: RegionInput) {
        let n = self.intern(ValueKey::Param(self.depth, input, self.f.type_id(p)));
        self.set(p, n);
    }

    /// Numbers each result of a loop by the carries that it follows from, so that it does not depend on what else the
    /// loop computes.
    fn steps(&mut self, i: Inst, roles: &LoopRoles) {
        let f = self.f;
        let (args, results) = (f.args(i), f.inst_results(i));
        let steps = match roles.trips(f, i) {
            Trips::Length(n) => StepCount::Extent(n),
            Trips::Range(from, to) => StepCount::Range(self.of(from), self.of(to)),
            Trips::Count(n) => StepCount::Range(self.of(n), self.of(n)),
        };
        let region = f.inst(i).regions[0];
        let entered = roles.step(f, region);
        let initial: Vec<u32> = args[roles.carry_args()].iter().map(|&v| self.of(v)).collect();
        let scanned: Vec<u32> = args[roles.xs_args()].iter().map(|&v| self.of(v)).collect();
        self.depth += 1;
        if let Some(p) = entered.index {
            self.enter(p, RegionInput::Index);
        }
        for (k, &p) in entered.carry.iter().enumerate() {
            let place = initial[..k].iter().filter(|&&n| n == initial[k]).count();
            self.enter(p, RegionInput::Carry(initial[k], place));
        }
        for (&p, &n) in entered.xs.iter().zip(&scanned) {
            self.enter(p, RegionInput::Element(n));
        }
        for &i in &f.region(region).insts {
            self.inst(i);
        }
        self.depth -= 1;
        let ends = &f.region(region).results;
        let uses: Vec<EntitySet<Value>> =
            entered.carry.iter().map(|&p| users(f, region, p)).collect();
        for (k, &v) in results.iter().enumerate() {
            let is_carry = k < roles.carry;
            let first = if is_carry { vec![k] } else { carries_of(&uses, ends[k]) };
            let mut carries = Vec::new();
            for c in closure(first, |c| carries_of(&uses, ends[c])) {
                carries.push([self.of(entered.carry[c]), initial[c], self.of(ends[c])]);
            }
            carries.sort_unstable();
            let own = if is_carry { self.of(entered.carry[k]) } else { self.of(ends[k]) };
            let (own, ty) = ((is_carry, own), f.type_id(v));
            let (steps, reverse) = (steps.clone(), roles.reverse);
            let n = self.intern(ValueKey::Recurrence { steps, reverse, carries, own, ty });
            self.set(v, n);
        }
    }

    fn region(&mut self, region: Region) -> Numbers {
        let f = self.f;
        self.depth += 1;
        for (k, &p) in f.region(region).params.iter().enumerate() {
            self.enter(p, RegionInput::Place(k));
        }
        for &i in &f.region(region).insts {
            self.inst(i);
        }
        self.depth -= 1;
        f.region(region).results.iter().map(|&v| self.of(v)).collect()
    }

    fn inst(&mut self, i: Inst) {
        let f = self.f;
        if let Some(same) = identity(f, i) {
            let n = self.of(same);
            self.set(f.inst_results(i)[0], n);
            return;
        }
        if matches!(f.op(i).control(), Some(Control::Loop(row)) if !row.returns) && !f.has_effect(i)
        {
            self.steps(i, &LoopRoles::at(f, i));
            return;
        }
        let regions: SmallVec<[Numbers; 2]> =
            f.inst(i).regions.iter().map(|&r| self.region(r)).collect();
        if f.has_effect(i) || f.op(i) == Op::Call {
            // A call may be of a function with a rule, which later passes still look at.
            for &v in f.inst_results(i) {
                let n = self.intern(ValueKey::Unknown(v));
                self.set(v, n);
            }
            return;
        }
        let args: Numbers = f.args(i).iter().map(|&v| self.of(v)).collect();
        let types: SmallVec<[TypeId; 2]> =
            f.inst_results(i).iter().map(|&v| f.type_id(v)).collect();
        for (result, &v) in f.inst_results(i).iter().enumerate() {
            let (args, types, regions) = (args.clone(), types.clone(), regions.clone());
            let (op, attrs) = (f.op(i), f.inst(i).attrs);
            let n = self.intern(ValueKey::Result { op, attrs, args, types, regions, result });
            self.set(v, n);
        }
    }
}

/// What an instruction reads of the values around it: its operands and what its regions capture.
pub(super) fn reads(f: &Function, i: Inst) -> Vec<Value> {
    let mut all: Vec<Value> =
        f.args(i).iter().copied().filter(|&v| f.literal(v).is_none()).collect();
    for &r in &f.inst(i).regions {
        all.extend(captures(f, r));
    }
    all
}

/// The phase of the instruction that computes a value; the first, where none does.
pub(super) fn phase_of(f: &Function, v: Value) -> Phase {
    match f.def(v) {
        ValueDef::Inst(i, _) => f.inst(i).phase,
        ValueDef::Param(..) | ValueDef::Literal(_) => Phase::PRIMAL,
    }
}

/// The values of a region that depend on one of them.
fn users(f: &Function, region: Region, v: Value) -> EntitySet<Value> {
    let mut found = EntitySet::new();
    found.insert(v);
    for &i in &f.region(region).insts {
        if f.reads(i, &|v| found.contains(v)) {
            found.extend(f.inst_results(i).iter().copied());
        }
    }
    found
}

/// The carries that a value depends on, from the users of each.
fn carries_of(uses: &[EntitySet<Value>], v: Value) -> Vec<usize> {
    (0..uses.len()).filter(|&c| uses[c].contains(v)).collect()
}

/// All that follows from the first numbers.
fn closure(first: Vec<usize>, next: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut all = first;
    let mut at = 0;
    while at < all.len() {
        let more = next(all[at]);
        all.extend(more.iter().filter(|k| !all.contains(k)).copied().collect::<Vec<_>>());
        at += 1;
    }
    all
}

/// The operand whose bits an instruction hands on: that of an integer sum with 0, and of a conversion to its own type.
fn identity(f: &Function, i: Inst) -> Option<Value> {
    let &[y] = f.inst_results(i) else { return None };
    let zero = |v: Value| f.literal(v).is_some_and(|l| l.dtype().is_int() && l.is_zero());
    let same = match (f.op(i), f.args(i)) {
        (Op::Add, &[a, b]) if zero(a) => b,
        (Op::Add, &[a, b]) if zero(b) => a,
        (Op::ConvertElementType, &[a]) => a,
        _ => return None,
    };
    (f.type_id(same) == f.type_id(y)).then_some(same)
}

/// Replaces what an earlier instruction of the same region or an enclosing one computes too, instructions with
/// regions among them, and removes what is dead.
pub(super) fn merge_equal(f: &mut Function) {
    let mut numbering = Numbering::new(f);
    numbering.body();
    let params = f.params().to_vec();
    params.iter().for_each(|&p| {
        numbering.of(p);
    });
    let numbers = numbering.numbers;
    let mut pass = EqualValues { numbers, known: HashMap::new(), replaced: SecondaryMap::new() };
    pass.region(f, f.body());
    dce(f);
}

struct EqualValues {
    numbers: SecondaryMap<Value, Option<u32>>,
    /// The first value of each number that is in scope.
    known: HashMap<u32, Value>,
    replaced: SecondaryMap<Value, PackedOption<Value>>,
}

impl EqualValues {
    fn define(&mut self, v: Value, added: &mut Vec<u32>) {
        if let Some(n) = self.numbers[v] {
            self.known.entry(n).or_insert_with(|| {
                added.push(n);
                v
            });
        }
    }

    /// The earlier values that are equal to the results of an instruction.
    fn earlier(&self, f: &Function, i: Inst) -> Option<SmallVec<[Value; 2]>> {
        if f.inst_results(i).is_empty() || f.has_effect(i) {
            return None;
        }
        let known = |&v: &Value| self.known.get(&self.numbers[v]?).copied();
        let same: SmallVec<[Value; 2]> =
            f.inst_results(i).iter().map(known).collect::<Option<_>>()?;
        let phase = f.inst(i).phase;
        let in_time = |&v: &Value| match f.def(v) {
            // What a checkpoint region computes again is not kept from before.
            ValueDef::Inst(first, _) if f.path(first).is_again() != f.path(i).is_again() => false,
            // What the earlier one reads may be of a later phase, where it has results that this one has not.
            ValueDef::Inst(first, _) if f.inst(first).phase > phase => {
                reads(f, first).into_iter().all(|a| phase_of(f, a) <= phase)
            }
            _ => true,
        };
        same.iter().all(in_time).then_some(same)
    }

    fn region(&mut self, f: &mut Function, region: Region) {
        let mut added = Vec::new();
        for p in f.region(region).params.clone() {
            self.define(p, &mut added);
        }
        for k in 0..f.region(region).insts.len() {
            let i = f.region(region).insts[k];
            for slot in 0..f.args(i).len() {
                if let Some(v) = self.replaced[f.args(i)[slot]].expand() {
                    f.set_arg(i, slot, v);
                }
            }
            if let Some(same) = self.earlier(f, i) {
                for (k, &v) in same.iter().enumerate() {
                    let old = f.inst_results(i)[k];
                    self.replaced[old] = v.into();
                    if f.name_of(v).is_none() {
                        let name = f.name_of(old).map(str::to_string);
                        f.set_name(v, name.as_deref());
                    }
                    if let ValueDef::Inst(first, _) = f.def(v) {
                        // The operands are the same, so what the later one may read the earlier may too.
                        lower_phase(f, first, i);
                        let path = f.path(first).common(f.path(i));
                        f.set_path(first, path);
                    }
                }
                continue;
            }
            for r in f.inst(i).regions.clone() {
                self.region(f, r);
            }
            for v in f.inst_results(i).to_vec() {
                self.define(v, &mut added);
            }
        }
        let results = f.region(region).results.clone();
        f.region_mut(region).results =
            results.iter().map(|&v| self.replaced[v].expand().unwrap_or(v)).collect();
        if region != f.body() {
            for n in added {
                self.known.remove(&n);
            }
        }
    }
}

/// Gives an instruction and what is in its regions the phase of an equal one, where that is earlier.
fn lower_phase(f: &mut Function, first: Inst, equal: Inst) {
    let phase = f.inst(first).phase.min(f.inst(equal).phase);
    at_most(f, first, phase);
}

fn at_most(f: &mut Function, i: Inst, phase: Phase) {
    let own = f.inst(i).phase.min(phase);
    f.set_phase(i, own);
    for r in f.inst(i).regions.clone() {
        for inner in f.region(r).insts.clone() {
            at_most(f, inner, phase);
        }
    }
}
