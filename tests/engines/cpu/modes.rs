//! Modes other than the strict one: the same bits run after run, and values that differ by rounding.

use super::layout;
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use adfuse::backends::Array;
use adfuse::backends::cpu::{CpuExecutable, CpuOptions};
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module};
use std::cell::Cell;

/// Plans and compiles a function for a mode, and runs it twice on one thread and on two; the bits are the
/// same every time.
fn steady(f: &Function, args: &[Array], fp: Fp) -> Result<Vec<Array>, String> {
    let options = fusion::PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp };
    let compiled = compile(&Module::single(f.clone()), f, &options).map_err(|d| d.to_string())?;
    let program = verify(compiled.program).map_err(|e| e[0].to_string())?;
    let layout = layout(&program, Effort::Default)?;
    let mut found: Option<Vec<Array>> = None;
    for threads in [1, 2] {
        let made = CpuExecutable::compile(
            &program,
            &layout,
            CpuOptions { threads, fp, ..CpuOptions::default() },
        );
        let made = made.map_err(|d| d.to_string())?;
        for _ in 0..2 {
            let results = made.run(args).map_err(|d| d.to_string())?;
            if found.as_ref().is_some_and(|f| *f != results) {
                return Err(format!("other bits at {threads} threads:\n{}", *program));
            }
            found = Some(results);
        }
    }
    found.ok_or_else(|| "no run".to_owned())
}

/// The largest difference, in units of the larger of 1 and the largest number; results that are not
/// finite must be the same.
fn apart(x: &[Array], y: &[Array]) -> f64 {
    let mut most = 0.0f64;
    for (x, y) in x.iter().zip(y) {
        let (x, y) = (x.to_f64s(), y.to_f64s());
        let finite = |v: &&f64| v.is_finite();
        let scale = y.iter().filter(finite).fold(1.0f64, |m, v| m.max(v.abs()));
        for (x, y) in x.iter().zip(&y) {
            let same = x.to_bits() == y.to_bits() || x == y || x.is_nan() && y.is_nan();
            most = most.max(if same { 0.0 } else { (x - y).abs() / scale });
        }
    }
    most
}

/// Whether this host joins products with sums.
pub(crate) fn joins() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return true;
}

/// Other modes round less often, and no run differs from another. In `f64`, since choices between numbers
/// that are almost equal fall the same way there.
#[test]
fn other_modes_differ_by_rounding() {
    for fp in [Fp::Reproducible, Fp::Fast] {
        let changed = Cell::new(0);
        random::programs(29, 100, |steps| {
            let f = decode(steps, DType::F64);
            let args = inputs(&f, &[Domain::Normal]);
            let (strict, found) = (steady(&f, &args, Fp::Strict)?, steady(&f, &args, fp)?);
            changed.set(changed.get() + usize::from(strict != found));
            match apart(&found, &strict) {
                d if d <= 1e-10 => Ok(()),
                d => Err(format!("{d} apart: {found:?}\n{strict:?}\n{f}")),
            }
        });
        let joins = joins();
        let changed = changed.get();
        assert_eq!(changed > 0, joins, "{fp:?}: {changed} programs have other bits");
    }
}

/// Against the same function in `f64`: within 4e-6 of the largest result, as the strict mode is.
#[test]
fn other_modes_are_near_exact_values() {
    let bodies = [
        "%a = mul %x, %y : T\n%b = add %a, %z : T\n%c = mul %b, %b : T\n%r = sub %c, %a : T",
        "%a = mul %x, 0.7 : T\n%e = erf %a : T\n%p = add %e, 1.0 : T\n%h = mul %x, 0.5 : T
         %g = mul %h, %p : T\n%k = mul %g, %y : T\n%r = add %k, %z : T",
        "%a = tanh %x : T\n%b = mul %a, %a : T\n%c = sub 1.0, %b : T\n%d = mul %c, %y : T
         %r = sub %z, %d : T",
        "%a = mul %x, %y : T\n%b = mul %y, %z : T\n%c = sub %a, %b : T\n%d = exp %c : T
         %k = mul %d, 0.125 : T\n%r = sub %k, %x : T",
    ];
    for body in bodies {
        let of = |dtype: &str| {
            let text = format!("func @f(%x: T, %y: T, %z: T) -> T {{\n{body}\nreturn %r\n}}");
            let text = text.replace(": T", &format!(": {dtype}[531]"));
            let module = parse(&text.replace("> T", &format!("> {dtype}[531]")));
            let module = module.unwrap_or_else(|e| panic!("{e:?}"));
            module.funcs.values().next().expect("a function").clone()
        };
        let (f, exact) = (of("f32"), of("f64"));
        let numbers: Vec<Vec<f64>> =
            inputs(&f, &[Domain::Uniform(-2.0, 2.0)]).iter().map(Array::to_f64s).collect();
        let args = |dtype| -> Vec<Array> {
            let array = |v: &Vec<f64>| Array::from_f64s(dtype, &[531], v).expect("fits");
            numbers.iter().map(array).collect()
        };
        let exact = steady(&exact, &args(DType::F64), Fp::Strict).expect("runs");
        for fp in [Fp::Strict, Fp::Reproducible, Fp::Fast] {
            let found = steady(&f, &args(DType::F32), fp).expect("runs");
            let d = apart(&found, &exact);
            assert!(d <= 4e-6, "{fp:?}: {d} apart\n{f}");
        }
    }
}
