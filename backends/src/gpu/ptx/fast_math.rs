//! Functions of `f32` as the chip has them, for the mode `fast`: exponentials, reciprocals and roots of its special
//! unit, with what keeps their errors small. `docs/fp.md` says how large they are.
//!
//! Nothing is flushed that a caller sees but results of exponentials below the normal numbers: elsewhere `.ftz` stands only
//! where those are lost beside others, or cannot be.

use super::asm::{Asm, Class, Reg};
use super::operands::{class, constant, select, spelled};
use super::rough_exp::is_rough;
use adfuse_ir::scalar::math::{ERF_32, ERF_TAIL_32};
use adfuse_ir::scalar::{Func, Prim, SInst, SOp, SVal, ScalarProgram};
use adfuse_ir::{DType, Literal};
use std::f64::consts::{LN_2, LOG2_E};

/// A function that the chip [has](has), of an instruction of a program.
pub(crate) fn function(
    asm: &mut Asm,
    (program, inst): (&ScalarProgram, &SInst),
    func: Func,
    x: Reg,
) -> Reg {
    let is_rough = func == Func::Exp && is_rough(program, inst, &asm.terms);
    let mut f = Fast { asm };
    match func {
        Func::Exp if is_rough => f.rough_exp(x),
        Func::Exp2 => f.one("ex2.approx.f32", x),
        Func::Rsqrt => f.one("rsqrt.approx.f32", x),
        Func::Logistic => f.logistic(x),
        Func::Tanh if is_beside_one(program, inst) => f.tanh_beside_one(x),
        Func::Tanh => f.tanh(x),
        Func::Erf => f.erf(x),
        _ => f.exp(x),
    }
}

/// A quotient or a root that need not be rounded correctly.
pub(crate) fn primitive(asm: &mut Asm, p: Prim, a: &[Reg]) -> Option<Reg> {
    let mut f = Fast { asm };
    match p {
        Prim::Sqrt => Some(f.one("sqrt.approx.f32", a[0])),
        Prim::Div => Some(f.two("div.full.f32", a[0], a[1])),
        _ => None,
    }
}

/// A quotient with a constant, without a division. By a power of two it is a product in every mode, with
/// the same bits. Where quotients may be near, so it is by every constant that is a normal number and has a normal
/// reciprocal, and 1 / x is a reciprocal of the chip.
pub(crate) fn quotient(
    asm: &mut Asm,
    program: &ScalarProgram,
    inst: &SInst,
    a: &[Reg],
) -> Option<Reg> {
    if inst.op != SOp::Prim(Prim::Div) || !inst.dtype.is_float() {
        return None;
    }
    let d = inst.dtype;
    let near = asm.near && d == DType::F32;
    let constant_at = |k: usize| match program.insts[*inst.args.get(k)?].op {
        SOp::Const(c) => Some(c.to_f64()),
        _ => None,
    };
    if let Some(by) = constant_at(1).and_then(|by| reciprocal(d, by, near)) {
        let by = constant(asm, by);
        let op = format!("mul.rn.{}", spelled(d));
        return Some(asm.pure(class(d), &op, format_args!("{}, {by}", a[0])));
    }
    (near && constant_at(0) == Some(1.0)).then(|| Fast { asm }.one("rcp.approx.f32", a[1]))
}

/// What a product has in place of a divisor; `None` where it is no quotient, nor `near` one.
fn reciprocal(d: DType, divisor: f64, near: bool) -> Option<Literal> {
    let found = Literal::from_f64(d, 1.0 / divisor);
    let smallest = if d == DType::F32 { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE };
    let normal = |x: f64| x.abs() >= smallest && x.is_finite();
    // The significand of a power of two has no bits but the first.
    let exact = divisor.to_bits() << 12 == 0;
    ((exact || near) && normal(divisor) && normal(found.to_f64())).then_some(found)
}

/// Whether the result of an instruction is seen in sums with numbers of magnitude 1 or more alone: such a sum has the errors of the
/// number, so those of small results do not count. Squares beside 1 are no such sums: a kernel of a gradient that has both takes more
/// registers for a shorter text, and was slower on an H100.
fn is_beside_one(program: &ScalarProgram, inst: &SInst) -> bool {
    let large = |v: SVal| match program.insts[v].op {
        SOp::Const(c) => c.to_f64().abs() >= 1.0,
        _ => false,
    };
    let hides = |v: SVal| {
        let mut uses = program.insts.values().filter(|inst| inst.args.contains(&v));
        let hidden = |inst: &SInst| match (&inst.op, inst.args.as_slice()) {
            (SOp::Prim(Prim::Add | Prim::Sub), &[a, b]) => large(if a == v { b } else { a }),
            _ => false,
        };
        !program.outputs.contains(&v) && uses.all(hidden)
    };
    let mut same = program.insts.iter().filter(|(_, other)| *other == inst);
    same.all(|(v, _)| hides(v))
}

/// Writes instructions on numbers of `f32`.
struct Fast<'a> {
    asm: &'a mut Asm,
}

impl Fast<'_> {
    fn one(&mut self, op: &str, x: Reg) -> Reg {
        self.asm.pure(Class::Single, op, x)
    }

    fn two(&mut self, op: &str, x: Reg, y: Reg) -> Reg {
        self.asm.pure(Class::Single, op, format_args!("{x}, {y}"))
    }

    fn fma(&mut self, x: Reg, y: Reg, z: Reg) -> Reg {
        self.asm.pure(Class::Single, "fma.rn.f32", format_args!("{x}, {y}, {z}"))
    }

    fn lit(&mut self, x: f64) -> Reg {
        constant(self.asm, Literal::from_f64(DType::F32, x))
    }

    /// `coefficients[0] + z * (coefficients[1] + z * ..)`
    fn poly(&mut self, z: Reg, coefficients: &[f64]) -> Reg {
        let mut all = coefficients.iter().rev();
        let mut y = self.lit(all.next().copied().unwrap_or(0.0));
        for &c in all {
            let c = self.lit(c);
            y = self.fma(y, z, c);
        }
        y
    }

    /// `p ? x : y` where p says that the magnitude of `a` is below `edge`.
    fn below(&mut self, a: Reg, edge: f64, x: Reg, y: Reg) -> Reg {
        let edge = self.lit(edge);
        let below = self.asm.pure(Class::Pred, "setp.lt.f32", format_args!("{a}, {edge}"));
        select(self.asm, below, x, y)
    }

    /// The magnitude of `y` with the sign of `x`.
    fn signed(&mut self, y: Reg, x: Reg) -> Reg {
        self.two("copysign.f32", x, y)
    }

    /// e^x. No power of 2 that the chip has is beyond all numbers: w makes up for what is left of x.
    fn exp(&mut self, x: Reg) -> Reg {
        // The number next below 128.
        const MOST: f64 = 127.999_992_370_605_47;
        let most = self.lit(MOST);
        self.exp_of(x, Some(most))
    }

    /// e^x as 2^t alone.
    fn rough_exp(&mut self, x: Reg) -> Reg {
        let scale = self.lit(LOG2_E);
        let t = self.two("mul.rn.f32", x, scale);
        self.one("ex2.approx.ftz.f32", t)
    }

    /// e^x as 2^t (1 + w), with t = x log2(e) rounded and w = x - t ln 2; t is at most `most`. What is below the normal
    /// numbers is 0.
    fn exp_of(&mut self, x: Reg, most: Option<Reg>) -> Reg {
        // 2^t is 0 there, and w is finite.
        let low = self.lit(-104.0);
        let x = self.two("max.NaN.f32", x, low);
        let scale = self.lit(LOG2_E);
        let mut t = self.two("mul.rn.f32", x, scale);
        if let Some(most) = most {
            // NaN comes back by w.
            t = self.two("min.f32", t, most);
        }
        let e = self.one("ex2.approx.ftz.f32", t);
        let head = f64::from(LN_2 as f32);
        let (head, tail) = (self.lit(-head), self.lit(head - LN_2));
        let w = self.fma(t, head, x);
        let w = self.fma(t, tail, w);
        self.fma(e, w, e)
    }

    /// 1 / (1 + e^-x), as e^x / (1 + e^x) on the left.
    fn logistic(&mut self, x: Reg) -> Reg {
        let a = self.one("abs.f32", x);
        let a = self.one("neg.f32", a);
        let e = self.exp_of(a, None);
        let one = self.lit(1.0);
        let sum = self.two("add.rn.f32", e, one);
        let right = self.one("rcp.approx.ftz.f32", sum);
        let left = self.two("mul.rn.f32", e, right);
        self.below(x, 0.0, left, right)
    }

    /// 1 - 2 / (e^2|x| + 1), and a polynomial near 0.
    fn tanh(&mut self, x: Reg) -> Reg {
        let a = self.one("abs.f32", x);
        let twice = self.lit(2.0 * LOG2_E);
        let t = self.two("mul.rn.f32", a, twice);
        let e = self.one("ex2.approx.ftz.f32", t);
        let (one, minus) = (self.lit(1.0), self.lit(-2.0));
        let sum = self.two("add.rn.f32", e, one);
        // Of a sum that has no normal reciprocal it is 0, which nobody sees beside 1.
        let r = self.one("rcp.approx.ftz.f32", sum);
        let large = self.fma(r, minus, one);
        let z = self.two("mul.rn.f32", a, a);
        let p = self.poly(z, &TANH);
        let cube = self.two("mul.rn.f32", a, z);
        let small = self.fma(cube, p, a);
        // The sign comes last: a sum loses that of zero.
        let y = self.below(a, TANH_SMALL, small, large);
        self.signed(y, x)
    }

    /// 1 - 2 / (e^2x + 1), which is as near as the numbers next to 1 are to each other.
    fn tanh_beside_one(&mut self, x: Reg) -> Reg {
        let twice = self.lit(2.0 * LOG2_E);
        let t = self.two("mul.rn.f32", x, twice);
        let e = self.one("ex2.approx.ftz.f32", t);
        let (one, minus) = (self.lit(1.0), self.lit(-2.0));
        let sum = self.two("add.rn.f32", e, one);
        let r = self.one("rcp.approx.ftz.f32", sum);
        self.fma(r, minus, one)
    }

    /// An odd polynomial up to 1, and 1 - e^-Q(|x|) beyond.
    fn erf(&mut self, x: Reg) -> Reg {
        let a = self.one("abs.f32", x);
        let z = self.two("mul.rn.f32", x, x);
        let p = self.poly(z, &ERF_32);
        let small = self.fma(p, x, x);
        // From here on the result rounds to 1; NaN stays what it is.
        let end = self.lit(4.0);
        let held = self.two("min.NaN.f32", a, end);
        let q = self.poly(held, &ERF_TAIL_32.map(|c| -c * LOG2_E));
        let e = self.one("ex2.approx.ftz.f32", q);
        let one = self.lit(1.0);
        let large = self.two("sub.rn.f32", one, e);
        let large = self.signed(large, x);
        self.below(a, 1.0, small, large)
    }
}

/// Where [`TANH`] ends.
const TANH_SMALL: f64 = 0.55;

/// (tanh x - x) / x^3 in z = x^2 up to [`TANH_SMALL`], relative to tanh x. Error 2^-27.8.
const TANH: [f64; 5] = [-0.33333316, 0.13332586, -0.053852309, 0.021071678, -0.0062742378];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tangent_is_rough_only_where_sums_hide_it() {
        use adfuse_ir::scalar::{Recorder, S};
        use smallvec::smallvec;
        type Body = for<'r> fn(S<'r>, S<'r>) -> smallvec::SmallVec<[S<'r>; 1]>;
        let cases: [(Body, bool); 10] = [
            (|t, _| smallvec![t + 1.0], true),
            (|t, _| smallvec![t.lit(1.0) - t * t], false),
            (|t, x| smallvec![(t + 1.0) * x, t.lit(2.0) - t], true),
            (|t, _| smallvec![t.fma(-t, t.lit(1.0))], false),
            (|t, _| smallvec![t], false),
            (|t, _| smallvec![t + 0.5], false),
            (|t, x| smallvec![t + x], false),
            (|t, _| smallvec![t + 1.0, t * 2.0], false),
            (|t, _| smallvec![t * t], false),
            (|t, x| smallvec![t.fma(x, t.lit(1.0))], false),
        ];
        for (n, (body, due)) in cases.into_iter().enumerate() {
            let program = Recorder::record(
                &[DType::F32],
                &vec![DType::F32; if n == 2 || n == 7 { 2 } else { 1 }],
                |_, x| body(x[0].tanh(), x[0]),
            );
            let tanh = program.insts.values().find(|inst| inst.op == SOp::Func(Func::Tanh));
            assert_eq!(is_beside_one(&program, tanh.expect("a tangent")), due, "{n}: {program:?}");
        }
    }

    #[test]
    fn quotients_by_powers_of_two_are_products() {
        let by = |d, x, near| reciprocal(d, x, near).map(Literal::to_f64);
        assert_eq!(by(DType::F32, 4096.0, false), Some(1.0 / 4096.0));
        assert_eq!(by(DType::F32, -0.25, false), Some(-4.0));
        assert_eq!(by(DType::F64, 2f64.powi(-1022), false), Some(2f64.powi(1022)));
        // Reciprocals below the normal numbers lose bits of what they multiply, or have none.
        for x in [2f64.powi(127), 2f64.powi(-127), 0.0, f64::INFINITY, f64::NAN] {
            assert_eq!(by(DType::F32, x, true), None, "{x}");
        }
        assert_eq!(by(DType::F32, 3.0, false), None);
        assert_eq!(by(DType::F32, 3.0, true), Some(f64::from(1f32 / 3.0)));
        assert_eq!(by(DType::F64, 3.0, true).map(|x| x * 3.0), Some(1.0));
        // As quotients they are the same numbers.
        for k in -40i32..40 {
            let x = f32::from_bits(0x3f12_3456u32.wrapping_mul((k as u32) | 1) & 0x7f7f_ffff);
            let divisor = 2f32.powi(k);
            let by = reciprocal(DType::F32, divisor.into(), false).expect("a power of two");
            assert_eq!((x / divisor).to_bits(), (x * by.to_f64() as f32).to_bits(), "{x} {k}");
        }
    }
}
