//! A scan taken out of its function: what it is entered with, and its body as a function of its own.

use super::numbering::{merge_equal, phase_of};
use super::trips::{constant, known_trips};
use adfuse_ir::control::{LoopBuilder, LoopRoles, outline};
use adfuse_ir::op::{Bounds, Control};
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{
    Attr, Attrs, Builder, DType, Diagnostic, Dim, Function, Inst, Literal, Op, Phase, TensorType,
    Value, ValueDef,
};
use cranelift_entity::EntitySet;

/// What each step of a loop sees one element of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScannedInput {
    /// The elements of a value along its first axis.
    Elements(Value),
    /// The position of the step, `i64`.
    Position,
}

/// A loop that scans forwards or in reverse, with a known number of steps.
#[derive(Clone)]
pub(super) struct ScanBody {
    /// The values around the loop that its body reads.
    pub(super) captures: Vec<Value>,
    /// Initial values of the carries.
    pub(super) carry: Vec<Value>,
    pub(super) xs: Vec<ScannedInput>,
    /// Parameters: captures, carries, elements of `xs`. Results: next carries, then stacks.
    pub(super) body: Function,
    pub(super) trips: u64,
    pub(super) reverse: bool,
    pub(super) unroll: i64,
    /// The phase it belongs to, unless what it reads is of a later one.
    pub(super) phase: Phase,
}

impl ScanBody {
    /// The loop of an instruction: a `scan`, or a `fori` between constants, without effects.
    pub(super) fn of(f: &Function, i: Inst) -> Option<ScanBody> {
        let Some(Control::Loop(row)) = f.op(i).control() else { return None };
        let trips = known_trips(f, i)?;
        let roles = LoopRoles::at(f, i);
        if roles.returns() || f.has_effect(i) {
            return None;
        }
        let args = f.args(i);
        let outlined = outline(f, f.inst(i).regions[0]);
        let carry = args[roles.carry_args()].to_vec();
        let input = |&v: &Value| {
            if is_position(f, v) { ScannedInput::Position } else { ScannedInput::Elements(v) }
        };
        let mut xs: Vec<ScannedInput> = args[roles.xs_args()].iter().map(input).collect();
        let mut body = outlined.func;
        if row.bounds == Bounds::Range {
            let first = constant(f, args[0])?;
            body = by_position(&body, outlined.captures.len(), first)?;
            xs.push(ScannedInput::Position);
        }
        let unroll = if roles.index() { 1 } else { f.attrs(i).int("unroll") };
        let (captures, reverse) = (outlined.captures, roles.reverse);
        let phase = f.inst(i).phase;
        Some(ScanBody { captures, carry, xs, body, trips, reverse, unroll, phase })
    }

    /// The number of stacks.
    pub(super) fn stacks(&self) -> usize {
        self.body.results().len() - self.carry.len()
    }

    /// Parameters of the body: captures, carries, elements.
    pub(super) fn params(&self) -> [&[Value]; 3] {
        let (captures, rest) = self.body.params().split_at(self.captures.len());
        let (carry, xs) = rest.split_at(self.carry.len());
        [captures, carry, xs]
    }

    /// Leaves out captures and scanned operands that nothing reads, and keeps each of the others once.
    pub(super) fn tidied(self) -> Result<ScanBody, Diagnostic> {
        let f = &self.body;
        let mut read: EntitySet<Value> = EntitySet::new();
        read.extend(f.results().iter().copied());
        f.walk(&mut |f, i| {
            read.extend(f.args(i).iter().copied());
            for &r in &f.inst(i).regions {
                read.extend(f.region(r).results.iter().copied());
            }
        });
        let mut b = Builder::new(f.name.clone());
        b.func_mut().symbols = f.symbols.clone();
        let mut copier = Copier::new(f);
        let [captures, carry, elements] = self.params();
        let (mut outside, mut xs): (Vec<Value>, Vec<ScannedInput>) = (Vec::new(), Vec::new());
        let mut placed: Vec<Value> = Vec::new();
        for (&v, &p) in self.captures.iter().zip(captures).filter(|(_, p)| read.contains(**p)) {
            let k = outside.iter().position(|&o| o == v).unwrap_or_else(|| {
                outside.push(v);
                placed.push(b.param(f.ty(p).clone(), f.name_of(p)));
                placed.len() - 1
            });
            copier.set(p, placed[k]);
        }
        carry.iter().for_each(|&p| copier.param(&mut b, p));
        placed.clear();
        for (&x, &p) in self.xs.iter().zip(elements).filter(|(_, p)| read.contains(**p)) {
            let k = xs.iter().position(|&o| o == x).unwrap_or_else(|| {
                xs.push(x);
                placed.push(b.param(f.ty(p).clone(), f.name_of(p)));
                placed.len() - 1
            });
            copier.set(p, placed[k]);
        }
        for &i in f.body_insts() {
            copier.inst(&mut b, i);
        }
        let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
        b.set_results(&results);
        let mut body = b.finish()?;
        merge_equal(&mut body);
        Ok(ScanBody { captures: outside, xs, body, ..self })
    }

    /// The earliest phase in which what it reads is there.
    pub(super) fn place_phase(&self, f: &Function) -> Phase {
        let elements = self.xs.iter().filter_map(|x| match *x {
            ScannedInput::Elements(v) => Some(v),
            ScannedInput::Position => None,
        });
        let read = self.captures.iter().chain(&self.carry).copied().chain(elements);
        read.map(|v| phase_of(f, v)).max().unwrap_or(Phase::PRIMAL)
    }

    /// Appends the loop; its carries, then its stacks.
    pub(super) fn place(&self, b: &mut Builder) -> Vec<Value> {
        if self.body.results().is_empty() {
            return Vec::new();
        }
        let phase = self.place_phase(b.func()).max(self.phase);
        let attrs = Attrs::none()
            .with("reverse", Attr::Bool(self.reverse))
            .with_int("unroll", self.unroll.max(1));
        let mut new = LoopBuilder::new(Op::Scan, attrs, Dim::Const(self.trips));
        new.carry = self.carry.clone();
        for x in &self.xs {
            let v = match *x {
                ScannedInput::Elements(v) => v,
                ScannedInput::Position => {
                    b.set_phase(Phase::PRIMAL);
                    positions(b, self.trips)
                }
            };
            new.xs.push(v);
        }
        b.set_phase(phase);
        let entered = new.open_step(b);
        let mut copier = Copier::new(&self.body);
        let [captures, carry, xs] = self.params();
        for (&old, &v) in captures.iter().zip(&self.captures) {
            copier.set(old, v);
        }
        for (&old, &v) in carry.iter().zip(&entered.carry).chain(xs.iter().zip(&entered.xs)) {
            b.func_mut().set_name(v, self.body.name_of(old));
            copier.set(old, v);
        }
        for &i in self.body.body_insts() {
            let at = copier.inst(b, i);
            all_of_phase(b.func_mut(), at, phase);
        }
        let ends: Vec<Value> = self.body.results().iter().map(|&v| copier.get(b, v)).collect();
        let (next, stacks) = ends.split_at(self.carry.len());
        new.close_step(b, next, stacks);
        b.set_phase(phase);
        let placed = new.place(b);
        b.func().inst_results(placed).to_vec()
    }
}

/// Whether a value is the positions along its one axis, `i64`.
fn is_position(f: &Function, v: Value) -> bool {
    let ValueDef::Inst(i, 0) = f.def(v) else { return false };
    f.op(i) == Op::Iota && f.ty(v).rank() == 1 && f.ty(v).dtype == DType::I64
}

fn positions(b: &mut Builder, trips: u64) -> Value {
    let ty = TensorType::of(DType::I64, &[trips]);
    b.op_as(Op::Iota, &[], Attrs::none().with_int("axis", 0), &ty)
}

/// The body of a `fori`, entered with the position of the step in place of its first parameter after the captures,
/// which becomes the last parameter. The index of the first step is `first`.
fn by_position(f: &Function, captures: usize, first: i64) -> Option<Function> {
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    let index = f.params()[captures];
    f.params().iter().filter(|&&p| p != index).for_each(|&p| copier.param(&mut b, p));
    let mut at = b.param(TensorType::scalar(DType::I64), f.name_of(index));
    let ty = f.ty(index).clone();
    if ty.dtype != DType::I64 {
        at = b.op_as(Op::ConvertElementType, &[at], Attrs::none(), &ty);
    }
    let lower = b.literal(&ty, Literal::from_i64(ty.dtype, first));
    let at = b.op_as(Op::Add, &[lower, at], Attrs::none(), &ty);
    copier.set(index, at);
    for &i in f.body_insts() {
        copier.inst(&mut b, i);
    }
    let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    b.finish().ok()
}

/// Gives an instruction and all in its regions a phase.
pub(super) fn all_of_phase(f: &mut Function, i: Inst, phase: Phase) {
    f.set_phase(i, phase);
    for r in f.inst(i).regions.clone() {
        for inner in f.region(r).insts.clone() {
            all_of_phase(f, inner, phase);
        }
    }
}
