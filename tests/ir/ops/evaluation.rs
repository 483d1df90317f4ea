//! What the reference engine gives: 16-bit floats, random bits.

use super::cases::{arguments, dtypes, map_case, signature};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Literal, Module, Op};
use adfuse::sample::rng;

fn first(module: &Module, args: &[Array]) -> Vec<Array> {
    let f: &Function = module.funcs.values().next().expect("a function");
    run(module, f, args, &mut Silent).unwrap_or_else(|d| panic!("{d}\n{f}"))
}

/// A 16-bit float op is the `f32` op rounded once, at sampled and at special elements.
#[test]
fn sixteen_bit_ops_round_the_f32_result_once() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -3.5,
        1e-8,
        -1e-40,
        250.0,
        -1000.0,
        65000.0,
        3e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    for &op in Op::ALL {
        let Some(sig) = signature(op).filter(|_| !op.def().declared) else { continue };
        for half in [DType::BF16, DType::F16].into_iter().filter(|&d| sig.t.contains(d)) {
            let narrow = map_case(op, half, &[64]);
            let wide = map_case(op, DType::F32, &[64]);
            let mut args = arguments(narrow.f(), &narrow.domains(), &mut rng(1, 0));
            for (k, a) in args.iter_mut().enumerate().filter(|(_, a)| a.dtype().is_float()) {
                let mut values = a.to_f64s();
                // Each pair of special elements meets.
                for (i, v) in values.iter_mut().enumerate().skip(if k == 0 { 32 } else { 16 }) {
                    *v = special[(i * (2 * k + 1) + k) % special.len()];
                }
                *a = Array::from_f64s(half, a.dims(), &values).expect("same size");
            }
            let widened: Vec<Array> = args
                .iter()
                .map(|a| if a.dtype() == half { a.convert(DType::F32) } else { a.clone() })
                .collect();
            let got = &first(&narrow.module, &args)[0];
            let exact = &first(&wide.module, &widened)[0];
            let due = if exact.dtype() == DType::F32 { exact.convert(half) } else { exact.clone() };
            for (i, (g, d)) in got.iter().zip(due.iter()).enumerate() {
                let at: Vec<Literal> = args.iter().map(|a| a.get(i)).collect();
                assert_eq!(g, d, "`{op}` of {at:?}");
            }
        }
    }
}

/// Every pair of element types converts as `Literal::convert` says, with one rounding.
#[test]
fn conversions_round_once() {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        1.00390625,
        1.003_906_26,
        1.000_488_281_25,
        1.000_488_3,
        65519.999,
        65520.0,
        16_777_217.0,
        2_147_483_648.0,
        4.3e9,
        -129.0,
        255.5,
        1e300,
        1e-320,
        f64::INFINITY,
        f64::NAN,
    ];
    let all = DType::ALL.into_iter().filter(|&d| d != DType::Token);
    for from in all.clone() {
        for to in all.clone() {
            let n = values.len();
            let text = format!(
                "func @f(%x: {from}[{n}]) -> {to}[{n}] {{ %0 = convert_element_type %x : {to}[{n}] return %0 }}"
            );
            let x = Array::from_f64s(from, &[n as u64], &values).expect("fits");
            let got = &first(&parse(&text).expect("parses"), std::slice::from_ref(&x))[0];
            for (a, g) in x.iter().zip(got.iter()) {
                assert_eq!(g, a.convert(to), "{a:?} to {to}");
            }
        }
    }
}

/// Philox-4x32-10, written again from the paper.
fn philox(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
        }
        let product = |m: u32, x: u32| {
            let p = u64::from(m) * u64::from(x);
            ((p >> 32) as u32, p as u32)
        };
        let (high0, low0) = product(0xD251_1F53, c[0]);
        let (high1, low1) = product(0xCD9E_8D57, c[2]);
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0];
    }
    c
}

#[test]
fn random_bits_are_philox() {
    // The known answers of the Random123 library.
    assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    let ones = philox([u32::MAX; 4], [u32::MAX; 2]);
    assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    let pi =
        philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
    assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    let text =
        "func @f(%s: i64[], %o: i64[]) -> u32[3,7] { %0 = rng_bits %s, %o : u32[3,7] return %0 }";
    let module = parse(text).expect("parses");
    for (seed, offset) in
        [(0, 0), (1, 2), (-1, -1), (i64::MIN, i64::MAX), (0x1234_5678_9abc_def0, 1 << 40)]
    {
        let scalar = |x| Array::from_i64s(DType::I64, &[], &[x]).expect("a scalar");
        let got = &first(&module, &[scalar(seed), scalar(offset)])[0];
        let words = |x: i64| [x as u32, (x as u64 >> 32) as u32];
        for (i, g) in got.iter().enumerate() {
            let [low, high] = words(offset);
            let block = philox([i as u32 / 4, 0, low, high], words(seed));
            assert_eq!(
                g.bits(),
                u64::from(block[i % 4]),
                "element {i} of seed {seed}, offset {offset}"
            );
        }
    }
}

/// Empty tensors, scalars and one element: every elementwise row gives as many elements.
#[test]
fn every_row_runs_on_every_type_and_shape() {
    for &op in Op::ALL {
        let Some(sig) = signature(op).filter(|_| !op.def().declared) else { continue };
        for dtype in dtypes(&sig) {
            for dims in [&[0][..], &[], &[1], &[129], &[2, 0, 3]] {
                let case = map_case(op, dtype, dims);
                let args = arguments(case.f(), &case.domains(), &mut rng(2, 0));
                let out = first(&case.module, &args);
                assert_eq!(out[0].dims(), dims, "`{op}` on {dtype}");
            }
        }
    }
}
