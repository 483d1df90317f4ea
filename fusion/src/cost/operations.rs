//! Operations of a scalar program, and the number of values that are live at once.

use super::footprint::IterationSpace;
use adfuse_ir::DType;
use adfuse_ir::kernel::{Param, Sink, Stage};
use adfuse_ir::scalar::{Func, SInst, SOp, SVal, ScalarProgram, expand};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// Words of a register file that a value of a type takes.
fn words(dtype: DType) -> u32 {
    if dtype.bytes() > 4 { 2 } else { 1 }
}

/// What a program does at its places.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct OperationCounts {
    /// Operations.
    pub(super) ops: Ops,
    /// The time they take, in operations on `f32`: 64-bit ones count twice.
    pub(super) slots: u64,
    /// Operations beyond one for each set of values they depend on.
    pub(super) recomputed: u64,
    /// Words of the values held at once.
    pub(super) registers: u32,
}

impl OperationCounts {
    /// Adds what another program does, whose values are held at another time.
    pub(super) fn join(&mut self, other: &OperationCounts) {
        self.ops.join(&other.ops);
        self.slots = self.slots.saturating_add(other.slots);
        self.recomputed = self.recomputed.saturating_add(other.recomputed);
        self.registers = self.registers.max(other.registers);
    }

    /// One operation of a type at each of `points`.
    pub(super) fn each(&mut self, dtype: DType, points: u64) {
        let kind = if dtype.is_int() { &mut self.ops.integer } else { &mut self.ops.simple };
        *kind = kind.saturating_add(points);
        self.slots = self.slots.saturating_add(points.saturating_mul(words(dtype).into()));
    }

    /// A function at each of `points`.
    pub(super) fn function(&mut self, f: Func, dtype: DType, points: u64) {
        let long = written(f, dtype);
        self.ops.special = self.ops.special.saturating_add(points.saturating_mul(long.ops));
        self.slots = self.slots.saturating_add(points.saturating_mul(long.slots));
    }
}

/// The instructions of a program with its functions written out: parameters that are read, and primitives.
pub(super) fn length(program: &ScalarProgram) -> u64 {
    let of = |inst: &SInst| match inst.op {
        SOp::Func(f) => written(f, inst.dtype).ops,
        SOp::Const(_) => 0,
        SOp::Param(_) | SOp::Prim(_) => 1,
    };
    program.insts.values().map(of).fold(0, u64::saturating_add)
}

/// A function written out in primitives.
#[derive(Clone, Copy, Default)]
struct PrimitiveCounts {
    ops: u64,
    slots: u64,
    /// The most words held at once, operands and result among them, where nothing else reads the
    /// operands; and where something does.
    peak: u32,
    peak_kept: u32,
}

/// How long a function is; made once for each type.
fn written(f: Func, dtype: DType) -> PrimitiveCounts {
    static ALL: [[OnceLock<PrimitiveCounts>; 2]; Func::ALL.len()] =
        [const { [const { OnceLock::new() }; 2] }; Func::ALL.len()];
    let wide = dtype == DType::F64;
    let float = if wide { DType::F64 } else { DType::F32 };
    let make = || {
        let mut program = ScalarProgram::default();
        let mut args: SmallVec<[SVal; 3]> = SmallVec::new();
        for k in (0..).take(f.arity()) {
            program.params.push(float);
            let op = SOp::Param(k);
            args.push(program.insts.push(SInst { op, args: SmallVec::new(), dtype: float }));
        }
        let result = program.insts.push(SInst { op: SOp::Func(f), args, dtype: float });
        program.outputs.push(result);
        let mut program = expand(&program);
        let prims = || program.insts.values().filter(|i| matches!(i.op, SOp::Prim(_)));
        let ops = prims().count() as u64;
        let slots = prims().map(|i| slots(&program, i)).sum();
        let peak = held(&program, &needed(&program));
        let params = program.insts.iter().filter(|(_, i)| matches!(i.op, SOp::Param(_)));
        let params: Vec<SVal> = params.map(|(v, _)| v).collect();
        program.outputs.extend(params);
        let peak_kept = held(&program, &needed(&program));
        PrimitiveCounts { ops, slots, peak, peak_kept }
    };
    // The table has a place for every function.
    match f.index().and_then(|k| ALL.get(k)) {
        Some(of) => *of[usize::from(wide)].get_or_init(make),
        None => make(),
    }
}

/// The time of a primitive in operations on `f32`: that of the widest type it touches.
fn slots(program: &ScalarProgram, inst: &SInst) -> u64 {
    let of = |&a: &SVal| program.insts.get(a).map_or(1, |i| words(i.dtype));
    inst.args.iter().map(of).fold(words(inst.dtype), u32::max).into()
}

/// For each value, the last instruction that reads it; `None` where no output needs the value, the
/// value itself where only an output does.
type Last = SmallVec<[Option<u32>; 64]>;

fn needed(program: &ScalarProgram) -> Last {
    let mut last: Last = program.insts.values().map(|_| None).collect();
    let rank = |v: SVal| v.as_u32() as usize;
    for &o in &program.outputs {
        if let Some(place) = last.get_mut(rank(o)) {
            // Kept to the end where the output is a parameter: it is nowhere computed.
            let param = matches!(program.insts.get(o).map(|i| i.op), Some(SOp::Param(_)));
            *place = Some(if param { u32::MAX } else { o.as_u32() });
        }
    }
    for (v, inst) in program.insts.iter().rev() {
        if last[rank(v)].is_none() {
            continue;
        }
        for &a in &inst.args {
            if let Some(place) = last.get_mut(rank(a)) {
                *place = Some(place.map_or(v.as_u32(), |p| p.max(v.as_u32())));
            }
        }
    }
    last
}

/// The most words held at once, going through the program in its order. Parameters are read where
/// they are first needed, constants are part of the instructions, and an output is gone when it is
/// computed unless something else reads it.
fn held(program: &ScalarProgram, last: &Last) -> u32 {
    let mut begun: SmallVec<[bool; 64]> = program.insts.values().map(|_| false).collect();
    let (mut now, mut most) = (0u32, 0u32);
    for (v, inst) in program.insts.iter() {
        let Some(own_last) = last[v.as_u32() as usize] else { continue };
        if matches!(inst.op, SOp::Param(_) | SOp::Const(_)) {
            continue;
        }
        // Operands, each once.
        let (mut operands, mut dying) = (0u32, 0u32);
        for (k, &a) in inst.args.iter().enumerate() {
            let Some(arg) = program.insts.get(a) else { continue };
            if matches!(arg.op, SOp::Const(_)) || inst.args[..k].contains(&a) {
                continue;
            }
            let size = words(arg.dtype);
            let at = a.as_u32() as usize;
            if let Some(begun) = begun.get_mut(at)
                && !std::mem::replace(begun, true)
            {
                now = now.saturating_add(size);
            }
            operands = operands.saturating_add(size);
            let dies = last.get(at).is_some_and(|&l| l == Some(v.as_u32()));
            dying = dying.saturating_add(if dies { size } else { 0 });
        }
        if let SOp::Func(f) = inst.op {
            let long = written(f, inst.dtype);
            let inside = if dying == operands { long.peak } else { long.peak_kept };
            most = most.max(now.saturating_sub(operands).saturating_add(inside));
        }
        most = most.max(now);
        now = now.saturating_sub(dying).saturating_add(words(inst.dtype));
        begun[v.as_u32() as usize] = true;
        most = most.max(now);
        if own_last == v.as_u32() {
            now = now.saturating_sub(words(inst.dtype));
        }
    }
    // A program that only hands parameters on holds one at a time.
    let handed = program.outputs.iter().filter_map(|&o| program.insts.get(o));
    handed.map(|i| words(i.dtype)).fold(most, u32::max)
}

/// Registers of one lane that a program takes, in 32-bit words.
pub(crate) fn registers(program: &ScalarProgram) -> u32 {
    held(program, &needed(program))
}

/// What a program does, read at `places` from these parameters.
pub(super) fn program(
    program: &ScalarProgram,
    params: &[Param],
    places: &IterationSpace,
) -> OperationCounts {
    let masks = places.params(params);
    let points = places.points();
    let last = needed(program);
    let mut work =
        OperationCounts { registers: held(program, &last), ..OperationCounts::default() };
    // Which coordinates each value depends on.
    let mut depends: SmallVec<[u64; 64]> = SmallVec::new();
    for (v, inst) in program.insts.iter() {
        let mask = match inst.op {
            SOp::Param(k) => masks.get(k as usize).copied().unwrap_or(0),
            _ => {
                let of = |a: &SVal| depends.get(a.as_u32() as usize).copied().unwrap_or(0);
                inst.args.iter().fold(0, |m, a| m | of(a))
            }
        };
        depends.push(mask);
        if last[v.as_u32() as usize].is_none() {
            continue;
        }
        let mut one = OperationCounts::default();
        match inst.op {
            SOp::Param(_) | SOp::Const(_) => continue,
            SOp::Prim(_) => {
                let from = inst.args.iter().filter_map(|&a| program.insts.get(a));
                let int = inst.dtype.is_int() || from.map(|i| i.dtype).any(DType::is_int);
                let kind = if int { &mut one.ops.integer } else { &mut one.ops.simple };
                *kind = points;
                one.slots = points.saturating_mul(slots(program, inst));
            }
            SOp::Func(f) => one.function(f, inst.dtype, points),
        }
        let again = points.saturating_sub(places.product(mask));
        let each = match inst.op {
            SOp::Func(f) => written(f, inst.dtype).ops,
            _ => 1,
        };
        one.recomputed = again.saturating_mul(each);
        work.join(&one);
    }
    work
}

/// What a stage does: its program, and one operation an element for each fold.
pub(super) fn stage(stage: &Stage, places: &IterationSpace) -> OperationCounts {
    let mut work = program(&stage.program, &stage.params, places);
    for (k, sink) in stage.sinks.iter().enumerate() {
        let monoid = match sink {
            Sink::Reduce { monoid, .. } | Sink::Fold { monoid, .. } | Sink::Scan { monoid, .. } => {
                monoid
            }
            Sink::Store { .. } | Sink::Keep(_) | Sink::Leave(_) => continue,
        };
        let value = stage.program.outputs.get(k).and_then(|&v| stage.program.insts.get(v));
        let dtype = value.map_or(DType::F32, |v| v.dtype);
        work.each(dtype, places.points());
        // The result so far, and its place.
        let place = if monoid.is_arg() { words(DType::I32) } else { 0 };
        work.registers = work.registers.saturating_add(words(dtype)).saturating_add(place);
        if let Sink::Fold { runs, then, .. } = sink {
            work.join(&self::stage(then, &places.after(runs)));
        }
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::scalar::Recorder;

    fn of(p: &ScalarProgram) -> u32 {
        held(p, &needed(p))
    }

    #[test]
    fn values_held_are_those_that_something_still_reads() {
        let f = |n| vec![DType::F32; n];
        // Each parameter is read where it is needed, and its register taken over by the sum.
        let sum = Recorder::record_any(&f(4), |x| x[0] + x[1] + x[2] + x[3]);
        assert_eq!(of(&sum), 2);
        // A tree of sums waits for its other half.
        let tree = Recorder::record_any(&f(4), |x| (x[0] + x[1]) * (x[2] + x[3]));
        assert_eq!(of(&tree), 3);
        // x is read again at the end.
        let again = Recorder::record_any(&f(2), |x| (x[0] + x[1]) * x[0]);
        assert_eq!(of(&again), 2);
        assert_eq!(of(&Recorder::record_any(&[DType::F64], |x| x[0] * x[0])), 2);
        assert_eq!(of(&Recorder::record_any(&f(1), |x| x[0])), 1);
    }

    #[test]
    fn functions_hold_what_their_expansion_holds() {
        for &f in Func::ALL {
            for dtype in [DType::F32, DType::F64] {
                // The function of one parameter beside two others that wait.
                let program = Recorder::record_any(&[dtype; 3], |x| {
                    let both = x[1] * x[2];
                    let one = match f.arity() {
                        1 => both.shape(f),
                        _ => return both.pow(x[0]) + x[0] * x[1],
                    };
                    one * x[0] + x[1]
                });
                let (short, long) = (of(&program), of(&expand(&program)));
                assert!(short.abs_diff(long) <= 2, "{}: {short}, expanded {long}", f.name());
            }
        }
    }

    /// Any function of one operand, as a method.
    trait Shape {
        fn shape(self, f: Func) -> Self;
    }

    impl Shape for adfuse_ir::scalar::S<'_> {
        fn shape(self, f: Func) -> Self {
            match f {
                Func::Sin => self.sin(),
                Func::Tanh => self.tanh(),
                Func::Erf => self.erf(),
                Func::Log => self.log(),
                _ => self.exp(),
            }
        }
    }

    #[test]
    fn functions_count_as_their_expansion() {
        for &f in Func::ALL {
            let (short, wide) = (written(f, DType::F32), written(f, DType::F64));
            assert!(short.ops > 1 && wide.slots > wide.ops, "{}", f.name());
            assert!(short.peak_kept >= short.peak && short.peak > 0, "{}", f.name());
        }
    }
}

/// Operations by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ops {
    /// Primitives on floats and truth values, folds among them.
    pub simple: u64,
    /// Primitives that functions such as `exp` are written out in.
    pub special: u64,
    /// Multiply-adds of contractions whose sums are `f32`.
    pub contract_f32: u64,
    /// Multiply-adds of contractions of 16-bit floats whose sums are `f32`.
    pub contract_f16: u64,
    /// Multiply-adds of contractions whose sums are `f64`.
    pub contract_f64: u64,
    /// Primitives on integers, and multiply-adds of integers.
    pub integer: u64,
}

impl Ops {
    /// Operations on floats; a multiply-add is two.
    pub fn flops(&self) -> u64 {
        let contracted = [self.contract_f32, self.contract_f16, self.contract_f64];
        let multiply_adds = contracted.into_iter().fold(0, u64::saturating_add);
        self.simple.saturating_add(self.special).saturating_add(multiply_adds.saturating_mul(2))
    }

    fn join(&mut self, other: &Ops) {
        self.add_times(other, 1);
    }

    /// Adds operations that are done this many times.
    pub(super) fn add_times(&mut self, other: &Ops, times: u64) {
        let Ops { simple, special, contract_f32, contract_f16, contract_f64, integer } = self;
        for (mine, theirs) in [
            (simple, other.simple),
            (special, other.special),
            (contract_f32, other.contract_f32),
            (contract_f16, other.contract_f16),
            (contract_f64, other.contract_f64),
            (integer, other.integer),
        ] {
            *mine = mine.saturating_add(theirs.saturating_mul(times));
        }
    }
}
