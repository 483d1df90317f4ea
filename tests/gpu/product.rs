//! Products without a library: to the bit in strict mode, near it in the others, and the same every time.

use crate::common::kernels::arguments;
use crate::common::products::{
    GRADIENTS, Product, STACKED, WHOLE_GRADIENTS, head_products, shared_operand, stacked_heads,
    stacked_terms, table, weight_gradients,
};
use crate::near::distance;
use crate::trials::Skipped;
use crate::{Outcome, all, gpu};
use adfuse::engine::{Cpu, Gpu};
use adfuse::fusion::Fp;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::verify;
use adfuse::ir::{DType, Kind};

/// How far results may be apart, against their norm.
fn most(fp: Fp, dtype: DType) -> f64 {
    match (fp, dtype) {
        (Fp::Strict, _) => 0.0,
        // Results are rounded to the type of the operands.
        (_, DType::BF16) => 1e-2,
        (_, DType::F16) => 2e-3,
        // Operands lose 13 bits.
        (Fp::Fast, DType::F32) => 2e-3,
        (_, DType::F32) => 1e-5,
        _ => 1e-13,
    }
}

fn check(gpu: &Gpu, product: &Product, fp: Fp) -> Outcome {
    check_text(gpu, &product.text(), product.dtype, fp)
}

fn check_text(gpu: &Gpu, text: &str, dtype: DType, fp: Fp) -> Outcome {
    let program = verify(read(text).unwrap_or_else(|e| panic!("{e:?}\n{text}")));
    let program = program.unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
    let args = arguments(&program);
    // Its strict bits are the evaluator's, and it is not as slow.
    let expected = match Cpu::default().of_program(program.clone()) {
        Ok(made) => made.executable.run(&args).expect("runs"),
        Err(d) => return Outcome::Wrong(format!("the other engine: {d}\n{text}")),
    };
    let mut gpu = gpu.clone();
    (gpu.plan.fp, gpu.library) = (fp, false);
    let made = match gpu.of_program(program) {
        Ok(made) => made.executable,
        Err(d) if d.kind == Kind::Unsupported => return Outcome::Refused(d),
        Err(d) => return Outcome::Wrong(format!("{d}\n{text}")),
    };
    let found = made.run(&args).expect("runs");
    if made.run(&args).expect("runs") != found {
        return Outcome::Wrong(format!("{fp:?}: other bits in another run\n{text}"));
    }
    for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let (apart, most) = (distance(found, expected), most(fp, dtype));
        let well = if most == 0.0 { found == expected } else { apart <= most };
        if !well {
            let what = format!("{fp:?}: result {k} is {apart:e} apart, not {most:e}");
            return Outcome::Wrong(format!("{what}\n{text}"));
        }
    }
    Outcome::Same
}

pub(crate) fn products_without_a_library() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let modes = [Fp::Strict, Fp::Reproducible, Fp::Fast];
    let cases: Vec<(Product, Fp)> =
        table().into_iter().flat_map(|p| modes.map(|fp| (p, fp))).collect();
    all("products_without_a_library", &cases, |(product, fp)| check(&gpu, product, *fp));
    Ok(())
}

/// Operands whose lines or depth are several axes: what projections around attention read.
pub(crate) fn products_of_heads() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let cases: Vec<_> = head_products()
        .into_iter()
        .flat_map(|p| [Fp::Strict, Fp::Fast].map(|fp| (p, fp)))
        .collect();
    all("products_of_heads", &cases, |(p, fp)| match check_text(&gpu, &p.text(), p.dtype, *fp) {
        Outcome::Wrong(why) => Outcome::Wrong(format!("{p:?} {why}")),
        outcome => outcome,
    });
    Ok(())
}

/// Products that share an operand have the sums that each has alone, whether they share a grid or not.
pub(crate) fn products_that_share_an_operand() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let columns = [
        &[256, 256, 256][..],
        &[256, 128, 128],
        &[128, 128, 256],
        &[192, 192, 192, 192, 192],
        &[1024, 1024, 1024],
    ];
    let cases: Vec<_> =
        columns.into_iter().flat_map(|c| [Fp::Strict, Fp::Fast].map(|fp| (c, fp))).collect();
    all("products_that_share_an_operand", &cases, |(columns, fp)| {
        match check_text(&gpu, &shared_operand(columns), DType::BF16, *fp) {
            Outcome::Wrong(why) => Outcome::Wrong(format!("{columns:?} {why}")),
            outcome => outcome,
        }
    });
    Ok(())
}

/// The terms of a sum of products add up, in each mode.
pub(crate) fn sums_of_products() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let heads = [(2, [2, 4, 256, 256]), (3, [1, 2, 320, 64])];
    let heads = heads.map(|(terms, size)| stacked_heads(terms, size));
    let texts = STACKED.map(|(terms, size)| stacked_terms(terms, size)).into_iter().chain(heads);
    let cases: Vec<_> =
        texts.flat_map(|t| [Fp::Strict, Fp::Fast].map(|fp| (t.clone(), fp))).collect();
    all("sums_of_products", &cases, |(text, fp)| check_text(&gpu, text, DType::BF16, *fp));
    Ok(())
}

/// Gradients of weights, whose depth blocks share in runs, and others of whole tiles: on whole numbers whose sums are exact, the bits of the strict order, and
/// sums of their squares near it.
pub(crate) fn depths_in_runs() -> Result<(), Skipped> {
    use adfuse::backends::Array;
    let gpu = gpu()?;
    let cases = [&GRADIENTS[..], &WHOLE_GRADIENTS].concat();
    all("depths_in_runs", &cases, |&(products, size)| {
        let text = weight_gradients(products, size);
        match check_text(&gpu, &text, DType::BF16, Fp::Fast) {
            Outcome::Same => {}
            outcome => return outcome,
        }
        let program = verify(read(&text).expect("reads")).expect("verifies");
        let types: Vec<_> = program.inputs().filter_map(|b| program.buffers[b].ty()).collect();
        let args: Vec<Array> = (0u64..)
            .zip(&types)
            .map(|(n, ty)| {
                let dims = ty.dims().expect("known");
                let count = dims.iter().product::<u64>();
                // From -2 to 2, without a pattern that tiles or steps have.
                let number = |k: u64| (k.wrapping_mul(2_654_435_761).wrapping_add(n) >> 7) % 5;
                let all: Vec<f64> = (0..count).map(|k| number(k) as f64 - 2.0).collect();
                Array::from_f64s(ty.dtype, &dims, &all).expect("fits")
            })
            .collect();
        let expected = Cpu::default().of_program(program.clone()).expect("compiles");
        let expected = expected.executable.run(&args).expect("runs");
        let mut gpu = gpu.clone();
        (gpu.plan.fp, gpu.library) = (Fp::Fast, false);
        let found = gpu.of_program(program).expect("compiles").executable.run(&args).expect("runs");
        // Squares outgrow what an f32 counts.
        let square = |k: usize| k == 1 || k > 2 && k.is_multiple_of(2);
        let wrong = found.iter().zip(&expected).enumerate().find(|(k, (found, expected))| {
            if square(*k) { distance(found, expected) > 1e-6 } else { found != expected }
        });
        match wrong {
            None => Outcome::Same,
            Some((k, _)) => Outcome::Wrong(format!("{products} {size:?}: result {k} differs")),
        }
    });
    Ok(())
}

/// Sums that underflow from below are -0 in the strict order; what stands past the end of the depth, and what
/// sums of parts are added to, must not make them +0.
pub(crate) fn zeros_below_zero_stay() -> Result<(), Skipped> {
    use adfuse::backends::Array;
    let gpu = gpu()?;
    let cases: Vec<([u64; 4], [bool; 2])> =
        [[1, 33, 65, 37], [1, 40, 72, 9000], [120, 72, 70, 1041]]
            .into_iter()
            .flat_map(|size| [[false, true], [true, false]].map(|turned| (size, turned)))
            .collect();
    all("zeros_below_zero_stay", &cases, |&(size, turned)| {
        let product = table()[0];
        let product = Product { size, turned, ..product };
        let program = verify(read(&product.text()).expect("reads")).expect("verifies");
        let types: Vec<_> = program.inputs().filter_map(|b| program.buffers[b].ty()).collect();
        let args: Vec<Array> = types
            .iter()
            .zip([-1e-30, 1e-30])
            .map(|(ty, x)| {
                let dims = ty.dims().expect("known");
                let n = dims.iter().product::<u64>() as usize;
                Array::from_f64s(ty.dtype, &dims, &vec![x; n]).expect("fits")
            })
            .collect();
        let expected = Cpu::default().of_program(program.clone()).expect("compiles");
        let expected = expected.executable.run(&args).expect("runs");
        assert!(expected[0].to_f64s().iter().all(|x| *x == 0.0 && x.is_sign_negative()));
        let found = gpu.of_program(program).expect("compiles").executable.run(&args).expect("runs");
        match found == expected {
            true => Outcome::Same,
            false => Outcome::Wrong(format!("{product:?}: some sums are +0")),
        }
    });
    Ok(())
}
