//! Which shapes combine, and what the errors say where they do not.

use super::{asked_for, error};
use adfuse::prelude::*;
use proptest::prelude::*;

/// NumPy's shape of two, where no axis of the one of higher rank is stretched.
fn joined(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let extent = |x: &[u64], d: usize| (d + x.len()).checked_sub(rank).map(|at| x[at]);
    (0..rank)
        .map(|d| match (extent(a, d), extent(b, d)) {
            (Some(n), None) | (None, Some(n)) => Some(n),
            (Some(n), Some(m)) if n == m => Some(n),
            (Some(n), Some(1)) if a.len() >= b.len() => Some(n),
            (Some(1), Some(n)) if b.len() >= a.len() => Some(n),
            _ => None,
        })
        .collect()
}

/// The element of an operand that stands at a place of the result.
fn element(x: &[u64], shape: &[u64], mut place: usize) -> usize {
    let (mut at, mut stride) = (0, 1);
    for d in (0..shape.len()).rev() {
        let coordinate = place % shape[d] as usize;
        place /= shape[d] as usize;
        if let Some(mine) = (d + x.len()).checked_sub(shape.len()) {
            if x[mine] > 1 {
                at += coordinate * stride;
            }
            stride *= x[mine] as usize;
        }
    }
    at
}

fn numbers(dims: &[u64], step: f64) -> Array {
    let n: u64 = dims.iter().product();
    let values: Vec<f64> = (0..n).map(|k| k as f64 * step + 1.0).collect();
    Array::from_f64s(DType::F64, dims, &values).expect("numbers")
}

proptest! {
    #[test]
    fn shapes_combine_by_the_rule(
        a in proptest::collection::vec(1u64..4, 0..4),
        b in proptest::collection::vec(1u64..4, 0..4),
    ) {
        let made = evaluate(|t| t.constant(&numbers(&a, 1.0)) - t.constant(&numbers(&b, 10.0)));
        match (joined(&a, &b), made) {
            (Some(shape), Ok(y)) => {
                prop_assert_eq!(y.dims(), &shape[..]);
                let (left, right) = (numbers(&a, 1.0).to_f64s(), numbers(&b, 10.0).to_f64s());
                for (k, y) in y.to_f64s().into_iter().enumerate() {
                    let due = left[element(&a, &shape, k)] - right[element(&b, &shape, k)];
                    prop_assert_eq!(y, due);
                }
            }
            (None, Err(e)) => prop_assert_eq!(e.kind, Kind::Shape),
            (due, made) => prop_assert!(false, "{:?} and {:?}: {:?}, not {:?}", a, b, made, due),
        }
    }
}

#[test]
fn errors_show_the_shapes_the_axis_and_the_line() {
    let mut line = 0;
    let d = error(|t| {
        let (x, y) = (t.input("x", f32s([4, 3])), t.input("y", f32s([4])));
        line = line!() + 1;
        x + y
    });
    let message = "`add`: f32[4,3] and f32[4] do not combine: axis -1 has the extents 3 and 4";
    assert_eq!((d.kind, d.message.as_str()), (Kind::Shape, message));
    asked_for(&d, line);
    // What NumPy would make a [4,4] of.
    let d = error(|t| t.input("x", f32s([4, 1])) - t.input("y", f32s([4])));
    assert!(d.message.contains("f32[4,1] and f32[4] do not combine"), "{d}");
    let d = error(|t| t.input("x", f32s([4])) * t.input("y", f64s([4])));
    assert_eq!(d.kind, Kind::DType);
    assert!(d.message.contains("f32[4] and f64[4] have two element types"), "{d}");
    assert!(d.message.contains("`.convert(DType::F32)`"), "{d}");
    let d = error(|t| t.input("n", i32s([4])) * t.input("y", f32s([4])));
    assert!(d.message.contains("`.convert(DType::F32)`"), "{d}");
    let d = error(|t| t.input("n", i32s([4])) * 0.5);
    assert!(d.message.contains("0.5 is no i32: convert the tensor, `.convert(DType::F32)`"), "{d}");
    let d = error(|t| t.input("n", i32s([4])).mean(..));
    assert!(d.message.contains("`mean` takes a float type, found i32[4]"), "{d}");
    // What `main` prints of an error is what people read.
    assert_eq!(format!("{d:?}"), d.to_string());
}

#[test]
fn axes_may_be_negative_and_are_checked() {
    let y = evaluate(|t| t.zeros(f32s([2, 3, 4])).sum([-1, 0])).expect("axes");
    assert_eq!(y.dims(), [3]);
    let y = evaluate(|t| t.zeros(f32s([2, 3, 4])).sum(keep([-1, 0]))).expect("axes");
    assert_eq!(y.dims(), [1, 3, 1]);
    for (message, d) in [
        (
            "f32[2,3] has no axis 2: it has 0 to 1, or -2 to -1",
            error(|t| t.zeros(f32s([2, 3])).sum(2)),
        ),
        ("f32[2,3] has no axis -3", error(|t| t.zeros(f32s([2, 3])).rev(-3))),
        ("f32[] has no axis 0: it has none", error(|t| t.zeros(f32s([])).argmax(0))),
        ("axis -1 of f32[2,3] twice", error(|t| t.zeros(f32s([2, 3])).mean([1, -1]))),
        ("f32[2,3] has no axis 4", error(|t| t.zeros(f32s([2, 3])).layer_norm(4, 0.1))),
        ("f32[2] has no axis -2", error(|t| t.zeros(f32s([2])).t())),
    ] {
        assert_eq!(d.kind, Kind::Shape, "{d}");
        assert!(d.message.contains(message), "{d}");
    }
}

#[test]
fn numbers_stand_on_both_sides_and_in_assignments() {
    let y = evaluate(|t| {
        let mut x = t.constant([1.0f32, 2.0]);
        x += 1;
        x *= 2.0f32;
        x -= t.constant(1.0f32);
        x /= 2i64;
        (1.0 - &x).abs() + (3 * &x).sqrt() * 0.0
    });
    assert_eq!(y.expect("it runs").to_f64s(), [0.5, 1.5]);
    let y = evaluate(|t| {
        let n = t.constant([12u8, 5]);
        ((&n & 4) | 1) ^ (n >> 1 << 2)
    });
    assert_eq!(y.expect("it runs").to_f64s(), [29.0, 13.0]);
    let y = evaluate(|t| {
        let mask = t.constant([true, false]);
        (!&mask | true) & mask
    });
    assert_eq!(y.expect("it runs").to_f64s(), [1.0, 0.0]);
}

#[test]
fn tensors_sum_up() {
    let y = evaluate(|t| (1..=3).map(|k| t.constant([1.0, f64::from(k)])).sum::<Tensor>());
    assert_eq!(y.expect("it runs").to_f64s(), [3.0, 6.0]);
    let y = evaluate(|t| [t.constant(1.0), t.constant(2.0)].iter().sum());
    assert_eq!(y.expect("it runs").to_f64s(), [3.0]);
    let d = error(|t| t.input("x", f32s([2])) + Vec::<Tensor>::new().into_iter().sum::<Tensor>());
    assert_eq!(d.kind, Kind::Usage, "{d}");
}

#[test]
fn choices_and_comparisons_broadcast() {
    let y = evaluate(|t| {
        let x = t.constant([[1.0, -2.0], [-3.0, 4.0]]);
        x.gt(t.constant([0.0, 5.0])).where_(t.constant(9.0), &x)
    });
    assert_eq!(y.expect("it runs").to_f64s(), [9.0, -2.0, -3.0, 4.0]);
    let y = evaluate(|t| t.constant([[true, false]]).where_(1.0, t.constant([[5.0], [6.0]])));
    assert_eq!(y.expect("it runs").to_f64s(), [1.0, 5.0, 1.0, 6.0]);
    let d = error(|t| t.constant([1.0]).select(1.0, t.constant(2.0)));
    assert!(d.message.contains("`select` chooses by a bool tensor, found f64[1]"), "{d}");
}

/// An error inside of a method names the line that called the method.
#[test]
fn composed_methods_name_the_line_of_their_caller() {
    type Method = fn(&Tensor) -> Tensor;
    let bad: &[(&str, Method)] = &[
        ("gelu", |x| x.gelu()),
        ("silu", |x| x.silu()),
        ("elu", |x| x.elu(0.5)),
        ("softmax", |x| x.softmax(-1)),
        ("log_softmax", |x| x.log_softmax(-1)),
        ("logsumexp", |x| x.logsumexp(-1)),
        ("mean", |x| x.mean(..)),
        ("var", |x| x.var(..)),
        ("std", |x| x.std(..)),
        ("layer_norm", |x| x.layer_norm(-1, 0.1)),
        ("rms_norm", |x| x.rms_norm(-1, 0.1)),
        ("cross_entropy", |x| x.cross_entropy(x)),
        ("mse", |x| x.mse(&x.sum(-1))),
        ("huber", |x| x.huber(x, 0.5)),
        ("matmul", |x| x.matmul(x)),
        ("t", |x| x.sum(0).t()),
        ("swap_axes", |x| x.swap_axes(0, 9)),
        ("reshape", |x| x.reshape([5, -1])),
        ("flatten", |x| x.flatten([0, 5])),
        ("squeeze", |x| x.squeeze(0)),
        ("expand_dims", |x| x.expand_dims(7)),
        ("slice", |x| x.slice(5..9)),
        ("concat", |x| Tensor::concat(&[x, &x.sum(0)], 0)),
        ("stack", |x| Tensor::stack(&[x, &x.sum(0)], 0)),
        ("pad", |x| x.pad(&[(1, 1)], 0)),
        ("take", |x| x.take(&x.convert(DType::F32), 0)),
        ("gather", |x| x.gather(x)),
        ("scatter_add", |x| x.scatter_add(x, x)),
        ("one_hot", |x| x.convert(DType::F32).one_hot(3, DType::F32)),
        ("conv2d", |x| x.conv2d(x, &Conv::same())),
        ("max_pool2d", |x| x.max_pool2d(2)),
        ("glu", |x| x.glu(-1)),
        ("einsum", |x| x.tracer().einsum("ij,jk->ik", &[x, x])),
        ("dropout", |x| x.dropout(&Key::new(&x.tracer().constant(1i64)), 0.5)),
        ("normal", |x| Key::new(&x.tracer().constant(1i64)).normal(x.ty())),
        ("key", |x| Key::new(x).normal(f32s([2]))),
        ("linspace", |x| x.tracer().linspace(0.0..=1.0, 3, DType::I32)),
        ("quantize", |x| x.quantize(1, 0)),
        ("clamp", |x| x.clamp(0.5, 1)),
    ];
    for (name, method) in bad {
        let d = error(|t| method(&t.input("x", i32s([2, 3]))));
        let hint = d.hint.as_deref().unwrap_or_default();
        assert!(hint.starts_with(&format!("asked for at {}:", file!())), "{name}: {d}");
    }
}
