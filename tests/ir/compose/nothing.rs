//! What does not move: integers have no gradient, and zeros are no tensors.

use super::{first, program};
use adfuse::autodiff::{
    differentiable, forward_and_backward, grad, hessian, hvp, jacfwd, jacrev, jvp,
    linear_transpose, vjp,
};
use adfuse::ir::op::Body;
use adfuse::ir::{Diagnostic, Function, Kind, Literal, Module, Op};

/// Integers and truth values have no gradient, in every transformation that differentiates.
#[test]
fn integers_have_no_gradient() {
    let module = program(
        "func @f(%i: i32[3], %p: bool[3], %x: f32[3]) -> f32[3] {
        %y = convert_element_type %i : f32[3]
        %z = select_n %p, %x, %y : f32[3]
        return %z }",
    );
    let f = first(&module);
    for (name, due) in
        [("i", "%i is i32[3]: only float types"), ("p", "%p is bool[3]: only float types")]
    {
        let d = differentiable(f, Some(&[name.to_string()])).expect_err(name);
        assert!(d.kind == Kind::Derivative && d.message.contains(due), "{d}");
    }
    type Transform = fn(&Module, &Function, &[usize]) -> Result<Function, Diagnostic>;
    let all: [Transform; 9] =
        [jvp, vjp, grad, forward_and_backward, hvp, jacfwd, jacrev, hessian, linear_transpose];
    for transform in all {
        for k in [0, 1, 3] {
            let d = transform(&module, f, &[k]).expect_err("no float");
            assert_eq!(d.kind, Kind::Usage, "{d}");
        }
        let d = transform(&module, f, &[2, 2]).expect_err("twice");
        assert_eq!(d.kind, Kind::Usage, "{d}");
    }
    let all = differentiable(f, None).expect("one");
    assert_eq!(all, [2]);
}

/// How often zeros become tensors: views of zero, and sums and products that read one. What a scatter or an
/// update writes into is no zero that something depends on, but where its result begins.
fn zeros_made(f: &Function) -> usize {
    let mut begun = Vec::new();
    f.walk(&mut |f, i| {
        if matches!(f.op(i), Op::ScatterAdd | Op::DynamicUpdateSlice) {
            begun.push(f.args(i)[0]);
        }
    });
    let mut count = 0;
    f.walk(&mut |f, i| {
        let zero = |k: usize| f.literal(f.args(i)[k]).is_some_and(Literal::is_zero);
        let sums = [Op::Add, Op::Sub, Op::Mul, Op::Neg, Op::ReduceSum, Op::DotGeneral];
        let around = matches!(f.op(i), Op::Pad | Op::Unskew);
        let views = matches!(f.op(i).def().body, Body::View(_)) && !around;
        let reads = (0..f.args(i).len()).any(zero);
        let begins = f.inst_results(i).iter().all(|v| begun.contains(v));
        count += usize::from((sums.contains(&f.op(i)) || views) && reads && !begins);
    });
    count
}

/// Tangents and cotangents that are zero are no tensors, in any derivative of any model.
#[test]
fn zeros_stay_symbolic() {
    let models = crate::common::models::all();
    assert!(models.len() >= 20, "{} models", models.len());
    for (name, module, f) in models {
        let wrt = differentiable(&f, None).unwrap_or_else(|d| panic!("{name}: {d}"));
        let before =
            zeros_made(&adfuse::ir::rewrite::inline(&module, &f, &|_| true).expect("inlines"));
        let fail = |d: Diagnostic| -> Function { panic!("{name}: {d}") };
        let one = &wrt[..1];
        for (what, g) in [
            ("grad", forward_and_backward(&module, &f, &wrt).unwrap_or_else(fail)),
            ("grad of one", forward_and_backward(&module, &f, one).unwrap_or_else(fail)),
            ("jvp", jvp(&module, &f, &wrt).unwrap_or_else(fail)),
            ("jvp of one", jvp(&module, &f, one).unwrap_or_else(fail)),
        ] {
            let made = zeros_made(&g);
            assert!(made <= before, "{name}: {what} makes {made} zeros of {before}\n{g}");
        }
    }
    // The count sees what it is for.
    let bad =
        program("func @f() -> f32[3] { %0 = broadcast_in_dim 0.0 {dims = []} : f32[3] return %0 }");
    assert_eq!(zeros_made(first(&bad)), 1);
}
