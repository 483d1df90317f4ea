//! Slices, products, windows and indices against plain loops and NumPy's rules.
// Ranges that end before they begin are what is tested, and ends that count from the end.
#![allow(clippy::reversed_empty_ranges)]

use super::composed::{Case, holds};
use super::error;
use adfuse::prelude::*;

fn arange(dims: &[u64]) -> Array {
    let n: u64 = dims.iter().product();
    let values: Vec<f64> = (0..n).map(|k| k as f64).collect();
    Array::from_f64s(DType::F64, dims, &values).expect("numbers")
}

#[test]
fn slices_follow_ranges() {
    let cut = |f: fn(&Tensor) -> Tensor| {
        let y = evaluate(|t| f(&t.constant(&arange(&[4, 5])))).expect("it runs");
        (y.dims().to_vec(), y.to_f64s())
    };
    assert_eq!(cut(|x| x.slice(1..3)).0, [2, 5]);
    assert_eq!(cut(|x| x.slice((-1, 1..=3))), (vec![3], vec![16.0, 17.0, 18.0]));
    assert_eq!(cut(|x| x.slice((.., -1))), (vec![4], vec![4.0, 9.0, 14.0, 19.0]));
    assert_eq!(cut(|x| x.slice((0, ..-2))), (vec![3], vec![0.0, 1.0, 2.0]));
    assert_eq!(cut(|x| x.slice((0, -2..))), (vec![2], vec![3.0, 4.0]));
    assert_eq!(cut(|x| x.slice((0, (0..5).step_by(2)))), (vec![3], vec![0.0, 2.0, 4.0]));
    assert_eq!(cut(|x| x.slice((0, (1..=4).step_by(3)))), (vec![2], vec![1.0, 4.0]));
    assert_eq!(cut(|x| x.slice((0, (1..5).step_by(9)))), (vec![1], vec![1.0]));
    assert_eq!(cut(|x| x.slice((0, ..=-2))), (vec![4], vec![0.0, 1.0, 2.0, 3.0]));
    assert_eq!(cut(|x| x.slice((2..2, ..))).0, [0, 5]);
    assert_eq!(cut(|x| x.slice((3, 4))), (vec![], vec![19.0]));
    for (message, d) in [
        ("1..9 is not in axis 0 of f64[4,5]", error(|t| t.zeros(f64s([4, 5])).slice(1..9))),
        ("place -5 is not in axis 0", error(|t| t.zeros(f64s([4, 5])).slice(-5))),
        ("3..2 is not in axis 1", error(|t| t.zeros(f64s([4, 5])).slice((.., 3..2)))),
        ("3 ranges for the axes of f64[4,5]", error(|t| t.zeros(f64s([4, 5])).slice((0, 0, 0)))),
        ("steps along axis 0", error(|t| t.zeros(f64s([4])).slice((1..-1).step_by(2)))),
    ] {
        assert!(d.message.contains(message), "{d}");
    }
}

/// Where an axis has a symbol for its extent, the others can be cut.
#[test]
fn symbols_stay_whole() {
    let n = Dim::Sym(Symbol::new("n").expect("a name"));
    let f = trace("f", |t| {
        let x = t.input("x", TensorType::new(DType::F64, [n, Dim::Const(5)]));
        [
            x.slice((.., 1..-1)).sum(1),
            x.slice((.., -1)),
            x.reshape([n, Dim::Const(5)]).flatten(..1).sum(1),
        ]
    })
    .expect("the axis that is cut is known");
    let module = Module::single(f.clone());
    let out = run(&module, &f, &[arange(&[2, 5])], &mut Silent).expect("it runs");
    assert_eq!(out[0].to_f64s(), [6.0, 21.0]);
    assert_eq!(out[1].to_f64s(), [4.0, 9.0]);
    let d = error(|t| t.input("x", TensorType::new(DType::F64, [n])).slice(1..));
    assert!(d.message.contains("takes axis 0 of f64[n] whole"), "{d}");
    let d = error(|t| t.input("x", TensorType::new(DType::F64, [n, 5.into()])).flatten(..));
    assert!(d.message.contains("no symbol is the product"), "{d}");
}

#[test]
fn shapes_follow_numpy() {
    let dims = |f: fn(&Tensor) -> Tensor| {
        evaluate(|t| f(&t.zeros(f32s([2, 3, 4])))).expect("it runs").dims().to_vec()
    };
    assert_eq!(dims(|x| x.reshape([-1, 4])), [6, 4]);
    assert_eq!(dims(|x| x.reshape(vec![24u64])), [24]);
    assert_eq!(dims(|x| x.sum(..).reshape(())).len(), 0);
    assert_eq!(dims(|x| x.flatten(..)), [24]);
    assert_eq!(dims(|x| x.flatten(1..)), [2, 12]);
    assert_eq!(dims(|x| x.flatten(0..2)), [6, 4]);
    assert_eq!(dims(|x| x.expand_dims([0, -1])), [1, 2, 3, 4, 1]);
    assert_eq!(dims(|x| x.expand_dims(1).squeeze(1)), [2, 3, 4]);
    assert_eq!(dims(|x| x.swap_axes(0, -1)), [4, 3, 2]);
    assert_eq!(dims(|x| x.move_axis(0, -1)), [3, 4, 2]);
    assert_eq!(dims(|x| x.transpose([-1, 0, 1])), [4, 2, 3]);
    assert_eq!(dims(|x| x.t()), [2, 4, 3]);
    assert_eq!(dims(|x| x.repeat(5, 1)), [2, 15, 4]);
    assert_eq!(dims(|x| Tensor::stack(&[x, x], -1)), [2, 3, 4, 2]);
    assert_eq!(dims(|x| x.unstack(1)[0].clone()), [2, 4]);
}

/// Batches of matrices with plain loops.
fn product(a: &[f64], b: &[f64], (m, k, n): (usize, usize, usize)) -> Vec<f64> {
    (0..m * n).map(|p| (0..k).map(|q| a[p / n * k + q] * b[q * n + p % n]).sum()).collect()
}

#[test]
fn matmul_follows_numpy() {
    let dims = |a: &[u64], b: &[u64]| {
        let y = evaluate(|t| t.constant(&arange(a)).matmul(&t.constant(&arange(b))));
        y.expect("it runs").dims().to_vec()
    };
    assert_eq!(dims(&[3], &[3]).len(), 0);
    assert_eq!(dims(&[3], &[3, 4]), [4]);
    assert_eq!(dims(&[3], &[5, 3, 4]), [5, 4]);
    assert_eq!(dims(&[2, 3], &[3]), [2]);
    assert_eq!(dims(&[5, 2, 3], &[3]), [5, 2]);
    assert_eq!(dims(&[5, 2, 3], &[3, 4]), [5, 2, 4]);
    assert_eq!(dims(&[2, 3], &[5, 3, 4]), [5, 2, 4]);
    assert_eq!(dims(&[5, 2, 3], &[5, 3, 4]), [5, 2, 4]);
    assert_eq!(dims(&[5, 1, 2, 3], &[6, 3, 4]), [5, 6, 2, 4]);
    assert_eq!(dims(&[1, 2, 3], &[7, 6, 3, 4]), [7, 6, 2, 4]);
    let d = error(|t| t.zeros(f32s([5, 2, 3])).matmul(&t.zeros(f32s([6, 3, 4]))));
    assert!(d.message.contains("the batches of f32[5,2,3] and f32[6,3,4] do not combine"), "{d}");
    holds(&Case {
        name: "matmul",
        shapes: &[&[2, 3, 2], &[2, 2, 4]],
        body: |_, x| x[0].matmul(&x[1]),
        due: |x| {
            let pairs = x[0].chunks(6).zip(x[1].chunks(8));
            pairs.flat_map(|(a, b)| product(a, b, (3, 2, 4))).collect()
        },
    });
    holds(&Case {
        name: "matmul_of_a_batch_by_one",
        shapes: &[&[3, 2], &[2, 2, 4]],
        body: |_, x| x[0].matmul(&x[1]),
        due: |x| x[1].chunks(8).flat_map(|b| product(&x[0], b, (3, 2, 4))).collect(),
    });
}

#[test]
fn einsum_sums_products() {
    holds(&Case {
        name: "products",
        shapes: &[&[2, 3], &[3, 4]],
        body: |t, x| t.einsum("ij, jk -> ki", &[&x[0], &x[1]]),
        due: |x| {
            let y = product(&x[0], &x[1], (2, 3, 4));
            (0..8).map(|p| y[p % 2 * 4 + p / 2]).collect()
        },
    });
    holds(&Case {
        name: "three",
        shapes: &[&[2, 3], &[3, 2], &[3]],
        body: |t, x| t.einsum("ij,jk,j->", &[&x[0], &x[1], &x[2]]),
        due: |x| {
            let mut sum = 0.0;
            for i in 0..2 {
                for j in 0..3 {
                    for k in 0..2 {
                        sum += x[0][3 * i + j] * x[1][2 * j + k] * x[2][j];
                    }
                }
            }
            vec![sum]
        },
    });
    holds(&Case {
        name: "diagonals",
        shapes: &[&[3, 3, 2]],
        body: |t, x| t.einsum("iij->ji", &[&x[0].square()]),
        due: |x| (0..6).map(|p| x[0][(p % 3) * 8 + p / 3].powi(2)).collect(),
    });
    holds(&Case {
        name: "batches",
        shapes: &[&[2, 3, 2], &[2, 2, 4]],
        body: |t, x| t.einsum("...ij,...jk", &[&x[0], &x[1]]),
        due: |x| {
            let pairs = x[0].chunks(6).zip(x[1].chunks(8));
            pairs.flat_map(|(a, b)| product(a, b, (3, 2, 4))).collect()
        },
    });
    for (message, equation) in [
        ("the text has 1 operands, there are 2", "ij"),
        ("does not name the 2 axes of f32[2,3]", "ijk,jk->i"),
        ("axis 'j' has the extents 3 and 2", "ij,jk->ik"),
        ("no operand has the axis 'z' of the result", "ij,ik->z"),
        ("the result has 'i' twice", "ij,ik->ii"),
        ("'1' is no letter of an axis", "1j,1k->jk"),
    ] {
        let d = error(|t| {
            let x = t.input("x", f32s([2, 3]));
            t.einsum(equation, &[&x, &x])
        });
        assert!(d.message.contains(message), "{d}");
    }
}

/// A convolution by plain loops: one batch, `c` channels in groups, square images and kernels.
fn convolution(
    x: &[f64],
    w: &[f64],
    (c, n): (usize, usize),
    (o, k): (usize, usize),
    how: [usize; 4],
) -> Vec<f64> {
    let [stride, low, dilation, groups] = how;
    let high = low;
    let places = (n + low + high - (k - 1) * dilation - 1) / stride + 1;
    let (inner, outer) = (c / groups, o / groups);
    let mut y = Vec::new();
    for f in 0..o {
        for p in 0..places * places {
            let mut sum = 0.0;
            for g in 0..inner {
                for q in 0..k * k {
                    let row = (p / places * stride + q / k * dilation).wrapping_sub(low);
                    let column = (p % places * stride + q % k * dilation).wrapping_sub(low);
                    if row < n && column < n {
                        let channel = f / outer * inner + g;
                        sum += x[(channel * n + row) * n + column] * w[(f * inner + g) * k * k + q];
                    }
                }
            }
            y.push(sum);
        }
    }
    y
}

#[test]
fn convolutions() {
    holds(&Case {
        name: "strided",
        shapes: &[&[1, 2, 5, 5], &[4, 1, 3, 3]],
        body: |_, x| x[0].conv2d(&x[1], &Conv::padded(1).stride(2).groups(2)),
        due: |x| convolution(&x[0], &x[1], (2, 5), (4, 3), [2, 1, 1, 2]),
    });
    holds(&Case {
        name: "dilated",
        shapes: &[&[1, 2, 6, 6], &[1, 2, 2, 2]],
        body: |_, x| x[0].conv2d(&x[1], &Conv::valid().dilation([2, 2])),
        due: |x| convolution(&x[0], &x[1], (2, 6), (1, 2), [1, 0, 2, 1]),
    });
    holds(&Case {
        name: "same",
        shapes: &[&[1, 1, 5, 5], &[2, 1, 3, 3]],
        body: |_, x| x[0].conv2d(&x[1], &Conv::same()),
        due: |x| convolution(&x[0], &x[1], (1, 5), (2, 3), [1, 1, 1, 1]),
    });
    let dims = |conv: Conv| {
        let y = evaluate(|t| t.ones(f32s([2, 3, 9, 8])).conv2d(&t.ones(f32s([4, 3, 3, 2])), &conv));
        y.expect("it runs").dims().to_vec()
    };
    assert_eq!(dims(Conv::same()), [2, 4, 9, 8]);
    assert_eq!(dims(Conv::same().stride(2)), [2, 4, 5, 4]);
    assert_eq!(
        dims(Conv::new(Padding::Explicit(vec![(0, 1), (1, 1)])).stride([1, 3])),
        [2, 4, 8, 3]
    );
    let d = error(|t| t.zeros(f32s([2, 3, 9])).conv2d(&t.zeros(f32s([2, 3, 3])), &Conv::valid()));
    assert!(d.message.contains("`conv2d` takes 4 axes, found f32[2,3,9] and f32[2,3,3]"), "{d}");
}

#[test]
fn pools() {
    holds(&Case {
        name: "max",
        shapes: &[&[1, 1, 4, 4]],
        body: |_, x| x[0].max_pool2d(2),
        due: |x| windows(&x[0], |w| w.iter().copied().fold(f64::MIN, f64::max)),
    });
    holds(&Case {
        name: "mean",
        shapes: &[&[1, 1, 4, 4]],
        body: |_, x| x[0].square().avg_pool2d([2, 2]),
        due: |x| windows(&x[0], |w| w.iter().map(|x| x * x).sum::<f64>() / 4.0),
    });
    let y = evaluate(|t| {
        t.ones(f32s([1, 2, 3, 3])).avg_pool2d(Pool::new(3).stride(1).padding(Padding::Same))
    });
    assert_eq!(y.expect("it runs").to_f64s(), [1.0; 18]);
}

/// A fold of each of four windows of a 4 by 4 image.
fn windows(x: &[f64], fold: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let window = |p: usize| {
        let at = p / 2 * 8 + p % 2 * 2;
        fold(&[x[at], x[at + 1], x[at + 4], x[at + 5]])
    };
    (0..4).map(window).collect()
}

#[test]
fn indices() {
    holds(&Case {
        name: "take",
        shapes: &[&[2, 3, 2]],
        body: |t, x| x[0].take(&t.constant([[2, 0], [1, 2]]), 1).square(),
        due: |x| {
            let at = |i: usize, k: usize, j: usize| x[0][6 * i + 2 * k + j].powi(2);
            let mut y = Vec::new();
            for i in 0..2 {
                for k in [2, 0, 1, 2] {
                    y.extend([at(i, k, 0), at(i, k, 1)]);
                }
            }
            y
        },
    });
    holds(&Case {
        name: "take_along_axis",
        shapes: &[&[2, 3]],
        body: |t, x| x[0].take_along_axis(&t.constant([[2, 0], [1, 1]]), -1).square(),
        due: |x| [2, 0, 4, 4].iter().map(|&k| x[0][k].powi(2)).collect(),
    });
    holds(&Case {
        name: "scatter_add",
        shapes: &[&[3, 2], &[2, 2]],
        body: |t, x| x[0].scatter_add(&t.constant([[2], [2]]), &x[1]).square(),
        due: |x| {
            let (a, u) = (&x[0], &x[1]);
            let y = [a[0], a[1], a[2], a[3], a[4] + u[0] + u[2], a[5] + u[1] + u[3]];
            y.iter().map(|y| y * y).collect()
        },
    });
    let y = evaluate(|t| t.constant([1.0, 2.0]).take(&t.constant([0, 7, -1]), 0)).expect("it runs");
    assert!(y.get(0).to_f64() == 1.0 && y.get(1).to_f64().is_nan() && y.get(2).to_f64().is_nan());
}
