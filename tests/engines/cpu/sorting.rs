//! Argsorts of every type, with many equal elements, along every axis, of lines longer and shorter than those of a
//! task.

use super::{read, same, special};
use adfuse::backends::Array;
use adfuse::fusion::Effort;
use adfuse::ir::kernel::verify;
use adfuse::ir::{DType, Literal};

/// Elements of which a third are equal to others, and some are zeros of both signs, infinite or NaN.
fn keys(dtype: DType, dims: &[u64], seed: u64) -> Array {
    let n: u64 = dims.iter().product();
    let mut state = seed;
    let number = |k: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(k | 1);
        match state >> 60 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => -0.0,
            3 => 0.0,
            4..8 => ((state >> 40) % 7) as f64 - 3.0,
            // Upper halves of 64 bits that differ, each with many lower ones.
            8 if dtype.bytes() == 8 => {
                ((state >> 40) % 5) as f64 * 2f64.powi(32) + (state >> 33) as f64
            }
            _ => (state >> 33) as f64 - f64::from(1u32 << 30),
        }
    };
    let bits: Vec<u64> = (0..n).map(number).map(|x| Literal::from_f64(dtype, x).bits()).collect();
    Array::from_bits(dtype, dims, &bits).expect("small")
}

#[test]
fn every_type_along_every_axis() {
    let shapes: &[(&[u64], usize)] =
        &[(&[7], 0), (&[0, 3], 0), (&[3, 0], 0), (&[3, 5, 4], 0), (&[3, 5, 4], 1), (&[3, 5, 4], 2)];
    for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Token) {
        for (turn, (dims, axis)) in shapes.iter().enumerate() {
            let unusual = special(dtype, dims, turn);
            for x in [keys(dtype, dims, turn as u64), unusual] {
                orders(&x, *axis);
            }
        }
    }
}

#[test]
fn long_and_many_lines() {
    let shapes: &[(&[u64], usize)] = &[
        (&[150_000], 0),
        (&[3, 50_000], 1),
        (&[40_000, 3], 0),
        (&[9000, 5], 1),
        (&[300, 17, 9], 1),
    ];
    for (dims, axis) in shapes {
        for dtype in [DType::F32, DType::I64, DType::Bool] {
            orders(&keys(dtype, dims, 5), *axis);
        }
    }
}

/// Whole orders and first places of both directions, from plain, packed and strided memory.
fn orders(x: &Array, axis: usize) {
    let n = x.dims()[axis];
    let list = |dims: &[u64]| dims.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let shape = list(x.dims());
    let across: Vec<u64> =
        (0..x.dims().len()).map(|d| x.dims()[..d].iter().product::<u64>().max(1)).collect();
    let layouts = match x.dtype() {
        DType::Bool => vec![String::new(), " as b1".into()],
        DType::U8 => vec![String::new(), " as u4".into()],
        _ => vec![String::new(), format!(" strides [{}]", list(&across))],
    };
    for layout in layouts {
        for count in [n, n.min(3), n / 2] {
            for word in ["", " descending"] {
                let mut first = x.dims().to_vec();
                first[axis] = count;
                let text = format!(
                    "program @f {{ input %x: {}[{shape}]{layout} output %y: i32[{}]
                    %y = argsort %x axis {axis}{word} return %y }}",
                    x.dtype(),
                    list(&first)
                );
                let program = verify(read(&text).expect("reads")).expect("verifies");
                let args = std::slice::from_ref(x);
                same(&program, Effort::Default, args).unwrap_or_else(|why| panic!("{why}"));
            }
        }
    }
}
