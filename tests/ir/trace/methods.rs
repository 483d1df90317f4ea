//! Every op has a method, or a function of the tracer, that makes it.

use adfuse::ir::Op;
use adfuse::prelude::*;
use adfuse::trace::{OpaqueFunction, RankAxis};

/// Ops that no closure makes, with what does.
const MADE_ELSEWHERE: &[(Op, &str)] = &[
    (Op::Adjoint, "reverse mode makes it of loops"),
    (Op::AttentionGrad, "reverse mode makes it of attention"),
];

/// What makes an op, of an `f64[2,3]`, an `i32[2,3]` and a `bool[2,3]`.
type Make = fn(&Tracer, &Tensor, &Tensor, &Tensor) -> Vec<Tensor>;

macro_rules! one {
    ($($op:ident: $x:ident $n:ident $b:ident => $made:expr;)*) => {
        &[$((Op::$op, |_, $x, $n, $b| {
            let _ = ($x, $n, $b);
            vec![$made]
        })),*]
    };
}

const ELEMENTWISE: &[(Op, Make)] = one! {
    Add: x _n _b => x + x;
    Sub: x _n _b => x - 1.0;
    Mul: x _n _b => x * x;
    Div: x _n _b => x / 2.0;
    Rem: x _n _b => x % 2.0;
    Neg: x _n _b => -x;
    Abs: x _n _b => x.abs();
    Sign: x _n _b => x.sign();
    Square: x _n _b => x.square();
    IntegerPow: x _n _b => x.powi(3);
    Fma: x _n _b => x.fma(x, x);
    Max: x _n _b => x.max(x);
    Min: x _n _b => x.min(x);
    Clamp: x _n _b => x.clamp(0.0, 1.0);
    Relu: x _n _b => x.relu();
    Floor: x _n _b => x.floor();
    Ceil: x _n _b => x.ceil();
    Round: x _n _b => x.round();
    RoundNearestEven: x _n _b => x.round_nearest_even();
    Trunc: x _n _b => x.trunc();
    Exp: x _n _b => x.exp();
    Exp2: x _n _b => x.exp2();
    Expm1: x _n _b => x.expm1();
    Log: x _n _b => x.log();
    Log1p: x _n _b => x.log1p();
    Sqrt: x _n _b => x.sqrt();
    Rsqrt: x _n _b => x.rsqrt();
    Cbrt: x _n _b => x.cbrt();
    Logaddexp: x _n _b => x.logaddexp(x);
    Xlogy: x _n _b => x.xlogy(x);
    Pow: x _n _b => x.pow(x);
    Logistic: x _n _b => x.logistic();
    Erf: x _n _b => x.erf();
    Erfc: x _n _b => x.erfc();
    ErfInv: x _n _b => x.erf_inv();
    Lgamma: x _n _b => x.lgamma();
    Digamma: x _n _b => x.digamma();
    Polygamma: x _n _b => x.polygamma(1);
    Sin: x _n _b => x.sin();
    Cos: x _n _b => x.cos();
    Tan: x _n _b => x.tan();
    Asin: x _n _b => x.asin();
    Acos: x _n _b => x.acos();
    Atan: x _n _b => x.atan();
    Atan2: x _n _b => x.atan2(x);
    Sinh: x _n _b => x.sinh();
    Cosh: x _n _b => x.cosh();
    Tanh: x _n _b => x.tanh();
    Asinh: x _n _b => x.asinh();
    Acosh: x _n _b => x.acosh();
    Atanh: x _n _b => x.atanh();
    Eq: x _n _b => x.eq(x);
    Ne: x _n _b => x.ne(x);
    Lt: x _n _b => x.lt(x);
    Le: x _n _b => x.le(x);
    Gt: x _n _b => x.gt(x);
    Ge: x _n _b => x.ge(x);
    IsFinite: x _n _b => x.is_finite();
    SelectN: x _n b => b.select(x, 0.0);
    And: _x n b => (n & 4).ne(0).select(b & true, b);
    Or: _x n _b => n | 4;
    Xor: _x n _b => n ^ 4;
    Not: _x n b => (!n).ne(0).select(!b, b);
    ShiftLeft: _x n _b => n << 1;
    ShiftRightLogical: _x n _b => n.shift_right_logical(1);
    ShiftRightArithmetic: _x n _b => n >> 1;
    PopulationCount: _x n _b => n.population_count();
    Clz: _x n _b => n.clz();
    StopGradient: x _n _b => x.stop_gradient();
    ConvertElementType: x _n _b => x.convert(DType::F32);
    BitcastConvert: _x n _b => n.bitcast(DType::F32);
};

const OTHERS: &[(Op, Make)] = &[
    (Op::BroadcastInDim, |_, x, _, _| vec![x.broadcast(&[1, 2], &[4u64, 2, 3].map(Dim::Const))]),
    (Op::Reshape, |_, x, _, _| vec![x.reshape([3, -1])]),
    (Op::Transpose, |_, x, _, _| vec![x.t()]),
    (Op::Slice, |_, x, _, _| vec![x.slice((.., 1..))]),
    (Op::Pad, |_, x, _, _| vec![x.pad(&[(1, 0), (0, 1)], 0.0)]),
    (Op::Concatenate, |_, x, _, _| vec![Tensor::concat(&[x, x], -1)]),
    (Op::Split, |_, x, _, _| x.split(&[1, 2], -1)),
    (Op::Rev, |_, x, _, _| vec![x.rev(-1)]),
    (Op::Skew, |t, _, _, _| vec![t.zeros(f64s([6, 3])).skew(0, 1, &[1], &[1])]),
    (Op::Unskew, |_, x, _, _| vec![x.unskew((0, 1), (&[1], &[1]), &[4], 0.0)]),
    (Op::Tile, |_, x, _, _| vec![x.tile(&[2, 1])]),
    (Op::Windows, |_, x, _, _| vec![x.windows(-1, &[2], &[], &[])]),
    (Op::ReduceWindowSum, |_, x, _, _| vec![x.reduce_window_sum(&pairs())]),
    (Op::ReduceWindowMax, |_, x, _, _| vec![x.reduce_window_max(&pairs())]),
    (Op::ReduceWindowMin, |_, x, _, _| vec![x.reduce_window_min(&pairs())]),
    (Op::SelectAndScatterAdd, |t, x, _, _| {
        vec![t.ones(f64s([2, 2])).select_and_scatter_add(x, &pairs(), true)]
    }),
    (Op::ConvGeneralDilated, |t, _, _, _| {
        let (x, w) = (t.ones(f64s([1, 1, 4, 4])), t.ones(f64s([1, 1, 2, 2])));
        vec![x.conv2d(&w, &Conv::same())]
    }),
    (Op::ReduceSum, |_, x, _, _| vec![x.sum(-1)]),
    (Op::ReduceProd, |_, x, _, _| vec![x.prod(..)]),
    (Op::ReduceMax, |_, x, _, _| vec![x.max_over([0, 1])]),
    (Op::ReduceMin, |_, x, _, _| vec![x.min_over(0..1)]),
    (Op::ReduceAnd, |_, _, n, b| vec![b.all(-1), n.all(0)]),
    (Op::ReduceOr, |_, _, _, b| vec![b.any(1..)]),
    (Op::Argmax, |_, x, _, _| vec![x.argmax(-1)]),
    (Op::Argmin, |_, x, _, _| vec![x.argmin(-1)]),
    (Op::Cumsum, |_, x, _, _| vec![x.cumsum(-1)]),
    (Op::Cumprod, |_, x, _, _| vec![x.reverse_cumprod(-1)]),
    (Op::Cummax, |_, x, _, _| vec![x.cummax(-1)]),
    (Op::Cummin, |_, x, _, _| vec![x.cummin(-1)]),
    (Op::Cumlogsumexp, |_, x, _, _| vec![x.cumlogsumexp(-1)]),
    (Op::DotGeneral, |_, x, _, _| vec![x.matmul(&x.t())]),
    (Op::Gather, |_, x, n, _| vec![x.take(n, 0)]),
    (Op::ScatterAdd, |t, x, _, _| vec![x.scatter_add(&t.constant([[1], [0]]), x)]),
    (Op::Scatter, |t, x, _, _| vec![x.scatter(&t.constant([[1], [0]]), x)]),
    (Op::ScatterMax, |t, x, _, _| vec![x.scatter_max(&t.constant([[1], [0]]), x)]),
    (Op::ScatterMin, |t, x, _, _| vec![x.scatter_min(&t.constant([[1], [0]]), x)]),
    (Op::DynamicSlice, |t, x, _, _| {
        let i = t.constant(1);
        vec![x.dynamic_slice(&[&i, &i], &[1, 2])]
    }),
    (Op::DynamicUpdateSlice, |t, x, _, _| {
        let i = t.constant(1);
        vec![x.dynamic_update_slice(&t.zeros(f64s([1, 1])), &[&i, &i])]
    }),
    (Op::Argsort, |_, x, _, _| vec![x.argsort(-1)]),
    (Op::Attention, |_, x, _, _| {
        let x = x.reshape([1, 2, 3]);
        vec![x.attention(&x, &x, AttentionMask::default()).0]
    }),
    (Op::Sort, |_, x, _, _| vec![x.sort(-1)]),
    (Op::SortKeyVal, |_, x, n, _| vec![x.sort_key_val(n, -1).1]),
    (Op::TopK, |_, x, _, _| vec![x.top_k(1).0]),
    (Op::TriangularSolve, |_, x, _, _| vec![x.matmul(&x.t()).solve_lower(x)]),
    (Op::Cholesky, |_, x, _, _| vec![x.matmul(&x.t()).cholesky()]),
    (Op::Lu, |_, x, _, _| vec![x.matmul(&x.t()).lu().0]),
    (Op::Qr, |_, x, _, _| vec![x.qr().0]),
    (Op::Householder, |_, x, _, _| vec![x.householder().0]),
    (Op::HouseholderProduct, |_, x, _, _| vec![x.t().householder_product(&x.sum(1))]),
    (Op::Eigh, |_, x, _, _| vec![x.matmul(&x.t()).eigh().0]),
    (Op::Svd, |_, x, _, _| vec![x.svd().0, x.full_svd().1]),
    (Op::Fft, |_, x, _, _| vec![x.fft(x, -1).0, x.ifft(x, -1).0]),
    (Op::Rfft, |_, x, _, _| vec![x.rfft(-1).0]),
    (Op::Irfft, |_, x, _, _| vec![x.irfft(x, 5, -1)]),
    (Op::Constant, |t, _, _, _| vec![t.constant([1.0, 2.0])]),
    (Op::Iota, |t, _, _, _| vec![t.iota(f64s([2]), -1)]),
    (Op::RngBits, |t, _, _, _| vec![Key::new(&t.constant(7i64)).bits([3])]),
    (Op::Quantize, |_, x, _, _| vec![x.quantize(0.5, 0)]),
    (Op::Dequantize, |t, x, _, _| vec![x.quantize(0.5, 0).dequantize(&t.constant(0.5), 0)]),
    (Op::Cond, |t, x, _, _| vec![t.cond(&x.sum(..).gt(0.0), || x.clone(), || -x)]),
    (Op::Switch, |t, x, _, _| vec![t.switch(&t.constant(1), &[&|| x.clone(), &|| -x])]),
    (Op::Scan, |t, x, _, _| vec![t.scan(t.zeros(f64s([3])), x.clone(), |c, x| (c + x, ())).0]),
    (Op::Fori, |t, x, _, _| vec![t.fori(0..3, x.clone(), |_, x| x * 2.0)]),
    (Op::While, |t, x, _, _| vec![t.while_loop(x.clone(), |x| x.sum(..).lt(9.0), |x| x + 1.0)]),
    (Op::Call, |t, x, _, _| {
        let inner = trace("inner", |t| {
            let x = t.input("x", f64s([2, 3]));
            t.custom_root(x.clone(), |x| x, |y| y - &x)
        });
        t.call(&inner.expect("the closure is right"), &[x])
    }),
    (Op::Opaque, |t, x, _, _| t.opaque(&OpaqueFunction::new("mine"), &[x], &[x.ty()])),
    (Op::AllReduce, |_, x, _, _| vec![x.all_reduce(&ranks())]),
    (Op::AllReduceMax, |_, x, _, _| vec![x.all_reduce_max(&ranks())]),
    (Op::AllReduceMin, |_, x, _, _| vec![x.all_reduce_min(&ranks())]),
    (Op::AllGather, |_, x, _, _| vec![x.all_gather(&ranks(), -1)]),
    (Op::ReduceScatter, |_, x, _, _| vec![x.reduce_scatter(&ranks(), 0)]),
    (Op::AllToAll, |_, x, _, _| vec![x.all_to_all(&ranks(), 0, 1)]),
    (Op::Broadcast, |_, x, _, _| vec![x.from_rank(&ranks(), 1)]),
    (Op::AxisIndex, |t, _, _, _| vec![t.axis_index(&ranks())]),
    (Op::CreateToken, |t, _, _, _| vec![t.create_token()]),
    (Op::DebugPrint, |t, x, _, _| vec![x.debug_print(&t.create_token(), "x")]),
];

/// An axis of two ranks.
fn ranks() -> RankAxis {
    RankAxis::new("ranks", 2)
}

/// Windows of two along the last of two axes.
fn pairs() -> ReduceWindow {
    ReduceWindow { window: vec![1, 2], ..ReduceWindow::default() }
}

#[test]
fn every_op_has_a_method() {
    let makes: Vec<(Op, Make)> = ELEMENTWISE.iter().chain(OTHERS).copied().collect();
    for &op in Op::ALL {
        let elsewhere = MADE_ELSEWHERE.iter().any(|(other, _)| *other == op);
        let Some((_, make)) = makes.iter().find(|(other, _)| *other == op) else {
            assert!(elsewhere, "no method makes `{op}`: add one, and its row here");
            continue;
        };
        assert!(!elsewhere, "`{op}` has a method");
        let f = trace("f", |t| {
            let x = t.input("x", f64s([2, 3]));
            let n = t.input("n", i32s([2, 3]));
            let b = t.input("b", TensorType::of(DType::Bool, &[2, 3]));
            make(t, &x, &n, &b)
        });
        let f = f.unwrap_or_else(|e| panic!("`{op}`: {e}"));
        let mut found = false;
        f.walk(&mut |f, i| found |= f.op(i) == op);
        assert!(found, "what should make `{op}` does not:\n{f}");
    }
    assert_eq!(makes.len() + MADE_ELSEWHERE.len(), Op::ALL.len());
}
