//! Exponentials whose last bits nobody sees, in the mode `fast`: 2 to the power of `x log2(e)`, without what the rounding of that
//! product leaves. The relative error grows with the operand, by less than 2^-23 for each unit of it.
//!
//! Those are seen rounded to 16 bits alone, or as terms of the sum of a softmax. The largest term of such a sum is 1, and a
//! term with a large operand is small beside it: the sum's relative error is the mean of the terms', weighed by the terms, and
//! so is less than 2^-23 ln(n) for n of them.

use adfuse_ir::DType;
use adfuse_ir::kernel::{Kernel, Param, Sink, Stage};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{Func, Prim, SInst, SOp, SVal, ScalarProgram};

/// Whether nobody sees the last bits of an exponential of a program, some of whose outputs are terms of [sums](softmax_terms).
pub(super) fn is_rough(program: &ScalarProgram, inst: &SInst, terms: &[bool]) -> bool {
    let mut same = program.insts.iter().filter(|(_, other)| *other == inst);
    same.all(|(v, _)| {
        let mut outputs = program.outputs.iter().enumerate().filter(|(_, o)| **o == v);
        outputs.all(|(k, _)| terms.get(k) == Some(&true)) && is_seen_rounded(program, v)
    })
}

/// Whether all that instructions make of a value is rounded to 16 bits, by way of what keeps its relative error.
fn is_seen_rounded(program: &ScalarProgram, v: SVal) -> bool {
    let hides = |(user, inst): (SVal, &SInst)| {
        let SOp::Prim(prim) = inst.op else { return false };
        if prim == Prim::Convert {
            return matches!(inst.dtype, DType::BF16 | DType::F16);
        }
        let at: Vec<usize> = (0..inst.args.len()).filter(|&k| inst.args[k] == v).collect();
        let keeps = match (prim, at.as_slice()) {
            (Prim::Mul, [_]) | (Prim::Neg | Prim::Div, [0]) | (Prim::Select, [1 | 2]) => true,
            (Prim::Add | Prim::Sub, &[k]) => is_unit(program, inst.args[1 - k]),
            (Prim::Fma, [0 | 1]) => is_unit(program, inst.args[2]),
            _ => false,
        };
        keeps && !program.outputs.contains(&user) && is_seen_rounded(program, user)
    };
    program.insts.iter().filter(|(_, inst)| inst.args.contains(&v)).all(hides)
}

/// Whether a value is 0, 1 or -1. A sum of such a number and an exponential is small only where the exponential is near 1. Its operand
/// is near 0 there, and so is its error.
fn is_unit(program: &ScalarProgram, v: SVal) -> bool {
    let inst = &program.insts[v];
    let of = |k: usize| is_unit(program, inst.args[k]);
    match inst.op {
        SOp::Const(c) => [0.0, 1.0].contains(&c.to_f64().abs()),
        SOp::Prim(Prim::Convert) => program.source(inst) == DType::Bool,
        SOp::Prim(Prim::Neg) => of(0),
        SOp::Prim(Prim::Select) => of(1) && of(2),
        _ => false,
    }
}

/// Which outputs of a stage are terms of the sum of a softmax: `e^(x - m)`, summed over the axes over which `m` is the greatest `x`.
pub(super) fn softmax_terms(kernel: &Kernel, stage: usize) -> Vec<bool> {
    let terms = |(k, sink): (usize, &Sink)| {
        let is_sum = matches!(sink, Sink::Reduce { monoid: Monoid::Sum, .. });
        is_sum && is_below_maximum(kernel, stage, k).is_some()
    };
    kernel.stages[stage].sinks.iter().enumerate().map(terms).collect()
}

/// `Some` where an output of a stage is an exponential of what is 0 at most, and is 0 somewhere.
fn is_below_maximum(kernel: &Kernel, stage: usize, output: usize) -> Option<()> {
    let program = &kernel.stages[stage].program;
    let exp = &program.insts[*program.outputs.get(output)?];
    if exp.op != SOp::Func(Func::Exp) {
        return None;
    }
    let difference = &program.insts[exp.args[0]];
    if difference.op != SOp::Prim(Prim::Sub) {
        return None;
    }
    let most = StagedValue { stage, value: difference.args[1] }.origin(kernel);
    let ValueOrigin::Maximum(of) = most else { return None };
    let is_same_row = kernel.stages[of.stage].axes == kernel.stages[stage].axes;
    let x = StagedValue { stage, value: difference.args[0] };
    (is_same_row && are_equal(kernel, of, x)).then_some(())
}

/// A value of a stage.
#[derive(Clone, Copy)]
struct StagedValue {
    stage: usize,
    value: SVal,
}

/// What computes a value.
enum ValueOrigin<'k> {
    /// The instruction of a stage, which is no row or tile of an earlier one.
    Inst(StagedValue, &'k SInst),
    /// The greatest of the values of a stage.
    Maximum(StagedValue),
    /// Another fold, or a scan.
    Other,
}

impl StagedValue {
    /// What computes it, in the stage that left it.
    fn origin(self, kernel: &Kernel) -> ValueOrigin<'_> {
        let stage = &kernel.stages[self.stage];
        let inst = &stage.program.insts[self.value];
        let SOp::Param(k) = inst.op else { return ValueOrigin::Inst(self, inst) };
        let leaves: &dyn Fn(&Sink) -> bool = match &stage.params[k as usize] {
            Param::Row(row) => &move |sink| match sink {
                Sink::Leave(into) | Sink::Reduce { into, .. } => into == row,
                _ => false,
            },
            Param::Tile(tile) => &move |sink| match sink {
                Sink::Keep(into) | Sink::Scan { into, .. } => into == tile,
                _ => false,
            },
            _ => return ValueOrigin::Inst(self, inst),
        };
        let earlier = kernel.stages.iter().enumerate().take(self.stage);
        let found = earlier.rev().find_map(|(number, stage)| {
            let sink = stage.sinks.iter().position(leaves)?;
            let left = StagedValue { stage: number, value: stage.program.outputs[sink] };
            Some((left, &stage.sinks[sink]))
        });
        match found {
            Some((left, Sink::Leave(_) | Sink::Keep(_))) => left.origin(kernel),
            Some((left, Sink::Reduce { monoid: Monoid::Max, .. })) => ValueOrigin::Maximum(left),
            _ => ValueOrigin::Other,
        }
    }
}

/// Whether two values are equal at each coordinate of stages with the same axes.
fn are_equal(kernel: &Kernel, a: StagedValue, b: StagedValue) -> bool {
    let (ValueOrigin::Inst(a, x), ValueOrigin::Inst(b, y)) = (a.origin(kernel), b.origin(kernel))
    else {
        return false;
    };
    let stage = |of: StagedValue| -> &Stage { &kernel.stages[of.stage] };
    if let (SOp::Param(j), SOp::Param(k)) = (x.op, y.op) {
        return stage(a).params[j as usize] == stage(b).params[k as usize];
    }
    let args = || x.args.iter().zip(&y.args);
    let under = |(&p, &q): (&SVal, &SVal)| {
        let (p, q) = (StagedValue { value: p, ..a }, StagedValue { value: q, ..b });
        are_equal(kernel, p, q)
    };
    x.op == y.op && x.dtype == y.dtype && x.args.len() == y.args.len() && args().all(under)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::Step;
    use adfuse_ir::kernel::text::parse;
    use adfuse_ir::scalar::{Recorder, S};

    #[test]
    fn exponentials_are_rough_where_they_are_seen_rounded_to_16_bits() {
        type Body = for<'r> fn(S<'r>, S<'r>) -> S<'r>;
        let cases: [(Body, bool); 12] = [
            (|e, _| e.convert(DType::BF16), true),
            (|e, _| e, false),
            (|e, y| (e * y).convert(DType::F16), true),
            (|e, y| (-e / y).convert(DType::BF16), true),
            (|e, y| (y / e).convert(DType::BF16), false),
            (|e, _| (e - 1.0).convert(DType::BF16), true),
            (|e, y| (e * y - y.gt(0.0).convert(DType::F32)).convert(DType::BF16), true),
            (|e, y| y.gt(0.0).select(e, y).convert(DType::BF16), true),
            // A difference may be small beside the exponential.
            (|e, y| (e - y).convert(DType::BF16), false),
            (|e, _| (e - 0.5).convert(DType::BF16), false),
            (|e, _| (e * e).convert(DType::BF16), false),
            (|e, _| e.convert(DType::F64), false),
        ];
        let exp_of = |program: &ScalarProgram, terms: &[bool]| {
            let exp = program.insts.values().find(|inst| inst.op == SOp::Func(Func::Exp));
            is_rough(program, exp.expect("an exponential"), terms)
        };
        for (n, (body, due)) in cases.into_iter().enumerate() {
            let program = Recorder::record_any(&[DType::F32; 2], |x| body(x[0].exp(), x[1]));
            assert_eq!(exp_of(&program, &[]), due, "{n}: {program:?}");
            let program = adfuse_ir::scalar::contracted(&program);
            assert_eq!(exp_of(&program, &[false]), due, "{n}, joined: {program:?}");
        }
        let alone = Recorder::record_any(&[DType::F32], |x| x[0].exp());
        assert!(exp_of(&alone, &[true]) && !exp_of(&alone, &[false]));
    }

    /// Two stages of a softmax of rows: a fold of this kind of what one expression gives, and a sum of exponentials of what
    /// another gives, with the fold taken off.
    fn rows(fold: &str, folded: &str, summed: &str) -> Kernel {
        let text = format!(
            "program @f {{ input %x: bf16[8, 512] input %z: bf16[8, 512] output %y: f32[8]
             kernel @k [8] {{ row r0: f32 row r1: f32 row r2: f32 tile t0: bf16[512]
               stage [512] {{ p0 = load %x[d0, d1] p1 = load %z[d0, d1]
                 s0 = param.bf16 0 s1 = convert.f32 s0 s2 = param.bf16 1 s3 = convert.f32 s2
                 r0 = reduce.{fold} {folded} lane(d1) t0 = keep s0 }}
               stage [] {{ p0 = r0 s0 = param.f32 0 r1 = leave s0 }}
               stage [512] {{ p0 = t0 p1 = r1 p2 = load %z[d0, d1]
                 s0 = param.bf16 0 s1 = convert.f32 s0 s2 = param.bf16 2 s3 = convert.f32 s2
                 s4 = param.f32 1 s5 = sub.f32 {summed} s4 s6 = exp.f32 s5
                 r2 = reduce.sum s6 lane(d1) }}
               stage [] {{ p0 = r2 s0 = param.f32 0 %y[d0] = store s0 }} }} return %y }}"
        );
        let program = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
        match program.steps.into_iter().next() {
            Some(Step::Kernel(kernel)) => kernel,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn terms_of_a_softmax_are_below_the_greatest_of_their_own_row() {
        let cases = [
            ("max", "s1", "s1", true),
            ("max", "s3", "s3", true),
            ("max", "s3", "s1", false),
            ("max", "s1", "s3", false),
            ("min", "s1", "s1", false),
            ("sum", "s1", "s1", false),
        ];
        for (fold, folded, summed, due) in cases {
            let kernel = rows(fold, folded, summed);
            assert_eq!(softmax_terms(&kernel, 2), [due], "{fold} {folded} {summed}");
            assert_eq!(softmax_terms(&kernel, 0), [false, false]);
        }
    }
}
