//! Transformations of transformations: second derivatives in every order of the modes, Jacobians,
//! Hessians, linear functions turned around, and rules that keep their meaning.

mod nothing;
mod roots;
mod rules;

use crate::common::programs::decode;
use crate::common::random::programs;
use adfuse::autodiff::{
    Batching, Derived, Random, grad, hessian, hvp, jacfwd, jacrev, jvp, linear_transpose, vjp, vmap,
};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::widen;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Diagnostic, Function, Kind, Literal, Module, Op, TensorType, verify};
use adfuse::sample::{rng, sample};
use approx::{abs_diff_eq, assert_abs_diff_eq};

pub(crate) fn first(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

pub(crate) fn program(text: &str) -> Module {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(&module).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    module
}

/// Runs a function that calls nothing, once it is a program that prints as it parses.
pub(crate) fn evaluate(f: &Function, args: &[Array]) -> Result<Vec<Array>, String> {
    let module = Module::single(f.clone());
    verify(&module).map_err(|e| format!("{}\n{f}", e[0]))?;
    let text = module.to_string();
    let again = parse(&text).map_err(|e| format!("{e:?}\n{text}"))?;
    if again.to_string() != text {
        return Err(format!("does not print as it parses:\n{text}"));
    }
    run(&module, f, args, &mut Silent).map_err(|d| format!("{d}\n{f}"))
}

fn draw(t: &TensorType, seed: u64) -> Array {
    sample(t, Domain::Uniform(-0.9, 0.9), &mut rng(seed, 0)).expect("small")
}

pub(crate) fn numbers(arrays: &[Array]) -> Vec<f64> {
    arrays.iter().flat_map(Array::to_f64s).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Whether two vectors agree to 1e-8 of their size; where one is not finite nothing is compared.
fn near(a: &[f64], b: &[f64]) -> bool {
    let size = a.iter().chain(b).fold(1f64, |m, x| m.max(x.abs()));
    let close = |(x, y): (&f64, &f64)| {
        abs_diff_eq!(x, y, epsilon = 1e-8 * size) || !(x.is_finite() && y.is_finite())
    };
    a.len() == b.len() && a.iter().zip(b).all(close)
}

/// The Hessian of `<ct, f(x)>` times `t`, in all four orders of the modes.
#[test]
fn the_four_second_order_compositions_agree() {
    programs(7, 60, |steps| {
        let f = decode(&steps[..steps.len().min(8)], DType::F64);
        let module = widen(&Module::single(f)).map_err(|d| d.to_string())?;
        let f = module.find("random").ok_or("no function")?;
        let fail = |d: Diagnostic| format!("{d}\n{f}");
        let (n, m) = (f.params().len(), f.results().len());
        let base: Vec<Array> = f.param_types().iter().zip(1..).map(|(t, k)| draw(t, k)).collect();
        let cts: Vec<Array> = f.result_types().iter().zip(11..).map(|(t, k)| draw(t, k)).collect();
        let (t, u) = (draw(&f.param_types()[0], 21), draw(&f.param_types()[0], 22));
        let with =
            |parts: &[&[Array]]| -> Vec<Array> { [&[base.as_slice()], parts].concat().concat() };
        let zeros: Vec<Array> = cts
            .iter()
            .map(|c| Array::splat(c.dims(), Literal::zero(DType::F64)).expect("small"))
            .collect();

        let pulled = vjp(&module, f, &[0]).map_err(fail)?;
        let pushed = jvp(&module, f, &[0]).map_err(fail)?;
        let (of_pulled, of_pushed) =
            (Module::single(pulled.clone()), Module::single(pushed.clone()));
        // (x, y, z, ct, t) -> (.., gradient, tangents of results, H t)
        let forward_reverse = jvp(&of_pulled, &pulled, &[0]).map_err(fail)?;
        let a = evaluate(&forward_reverse, &with(&[&cts, std::slice::from_ref(&t)]))?;
        let a = a.last().ok_or("no result")?.to_f64s();
        // (x, y, z, ct, u for results, t for the gradient) -> (.., H t)
        let reverse_reverse = vjp(&of_pulled, &pulled, &[0]).map_err(fail)?;
        let b = evaluate(&reverse_reverse, &with(&[&cts, &zeros, std::slice::from_ref(&t)]))?;
        let b = b.last().ok_or("no result")?.to_f64s();
        // (x, y, z, t, u for results, ct for tangents) -> (.., H t)
        let reverse_forward = vjp(&of_pushed, &pushed, &[0]).map_err(fail)?;
        let c = evaluate(&reverse_forward, &with(&[std::slice::from_ref(&t), &zeros, &cts]))?;
        let c = c.last().ok_or("no result")?.to_f64s();
        // (x, y, z, t, u) -> (.., second tangents): <ct, them> = <u, H t>
        let forward_forward = jvp(&of_pushed, &pushed, &[0]).map_err(fail)?;
        let both = [t.clone(), u.clone()];
        let d = evaluate(&forward_forward, &with(&[&both]))?;
        let d = dot(&numbers(&d[3 * m..]), &numbers(&cts));
        if n + 2 != forward_forward.params().len() {
            return Err("parameters".into());
        }
        for (name, found) in [("reverse of reverse", &b), ("reverse of forward", &c)] {
            if !near(&a, found) {
                return Err(format!("{name}: {found:?}, forward of reverse: {a:?}\n{f}"));
            }
        }
        let due = dot(&a, &u.to_f64s());
        if near(&[due], &[d]) {
            Ok(())
        } else {
            Err(format!("forward of forward: {d}, not {due}\n{f}"))
        }
    });
}

/// Both Jacobians agree, and with the tangents of single directions; `hvp` with the Hessian.
#[test]
fn jacobians_agree_with_each_other_and_with_products() {
    programs(8, 40, |steps| {
        let f = decode(&steps[..steps.len().min(8)], DType::F64);
        let module = widen(&Module::single(f)).map_err(|d| d.to_string())?;
        let f = module.find("random").ok_or("no function")?;
        let fail = |d: Diagnostic| format!("{d}\n{f}");
        let wrt = [0, 2];
        let args: Vec<Array> = f.param_types().iter().zip(1..).map(|(t, k)| draw(t, k)).collect();
        let forward = evaluate(&jacfwd(&module, f, &wrt).map_err(fail)?, &args)?;
        let reverse = evaluate(&jacrev(&module, f, &wrt).map_err(fail)?, &args)?;
        let results = f.result_types();
        for (k, (a, b)) in forward.iter().zip(&reverse).enumerate() {
            let due: Vec<_> = results[k / 2]
                .shape
                .iter()
                .chain(&f.param_types()[wrt[k % 2]].shape)
                .copied()
                .collect();
            if a.dims() != b.dims()
                || a.ty() != TensorType::new(DType::F64, due)
                || !near(&a.to_f64s(), &b.to_f64s())
            {
                return Err(format!("block {k}: {a:?} and {b:?}\n{f}"));
            }
        }
        let pushed = jvp(&module, f, &wrt).map_err(fail)?;
        let tangents = [draw(&f.param_types()[0], 5), draw(&f.param_types()[2], 6)];
        let out = evaluate(&pushed, &[args.as_slice(), &tangents].concat())?;
        for (r, due) in out[results.len()..].iter().enumerate() {
            let mut found = vec![0.0; due.len()];
            for (j, t) in tangents.iter().enumerate() {
                let (block, t) = (forward[2 * r + j].to_f64s(), t.to_f64s());
                for (x, row) in found.iter_mut().zip(block.chunks(t.len().max(1))) {
                    *x += dot(row, &t);
                }
            }
            if !near(&found, &due.to_f64s()) {
                return Err(format!("result {r}: {found:?}, not {due:?}\n{f}"));
            }
        }
        // A loss of both results.
        let (mut b, ct) = (adfuse::ir::Builder::new("loss"), adfuse::ir::Attrs::none());
        let mut copier = adfuse::ir::rewrite::Copier::new(f);
        copier.params(&mut b);
        for &i in f.body_insts() {
            copier.inst(&mut b, i);
        }
        let y = f.results()[0];
        let v = copier.get(&mut b, y);
        let v = b.materialize(v);
        let square = b.op(Op::Square, &[v]);
        let axes = ct.with_ints("axes", 0..f.ty(y).rank() as i64);
        let loss = b.op_with(Op::ReduceSum, &[square], axes);
        b.set_results(&[loss]);
        let loss = b.finish().map_err(|d| d.to_string())?;
        let module = Module::single(loss.clone());
        let blocks = evaluate(&hessian(&module, &loss, &wrt).map_err(fail)?, &args)?;
        let products = evaluate(
            &hvp(&module, &loss, &wrt).map_err(fail)?,
            &[args.as_slice(), &tangents].concat(),
        )?;
        for (r, due) in products.iter().enumerate() {
            let mut found = vec![0.0; due.len()];
            for (j, t) in tangents.iter().enumerate() {
                let (block, t) = (blocks[2 * r + j].to_f64s(), t.to_f64s());
                for (x, row) in found.iter_mut().zip(block.chunks(t.len().max(1))) {
                    *x += dot(row, &t);
                }
            }
            if !near(&found, &due.to_f64s()) {
                return Err(format!("product {r}: {found:?}, not {due:?}\n{loss}"));
            }
        }
        Ok(())
    });
}

pub(crate) fn scalar(x: f64) -> Array {
    Array::from_f64s(DType::F64, &[], &[x]).expect("a scalar")
}

#[test]
fn blocks_have_their_closed_form() {
    let form = program(
        "func @f(%x: f64[2], %a: f64[2,2]) -> f64[] {
        %0 = dot_general %a, %x {contract = [1] x [0]} : f64[2]
        %1 = dot_general %x, %0 {contract = [0] x [0]} : f64[]
        return %1 }",
    );
    let x = Array::from_f64s(DType::F64, &[2], &[0.3, -2.0]).expect("two");
    let a = Array::from_f64s(DType::F64, &[2, 2], &[1.0, 2.0, 5.0, 7.0]).expect("four");
    let h = hessian(&form, first(&form), &[0]).expect("differentiates");
    let found = evaluate(&h, &[x.clone(), a.clone()]).expect("runs");
    assert_eq!(found[0].to_f64s(), [2.0, 7.0, 7.0, 14.0]);
    // Blocks of pairs: x x, x a, a x, a a.
    let h = hessian(&form, first(&form), &[0, 1]).expect("differentiates");
    let found = evaluate(&h, &[x, a]).expect("runs");
    let dims: Vec<&[u64]> = found.iter().map(Array::dims).collect();
    assert_eq!(dims, [&[2, 2][..], &[2, 2, 2], &[2, 2, 2], &[2, 2, 2, 2]]);
    assert_eq!(found[3].to_f64s(), [0.0; 16]);
    assert_eq!(found[1].to_f64s(), mixed());

    let squares = program(
        "func @f() -> f64[4] {
        %0 = iota {axis = 0} : f64[4]
        %1 = square %0 : f64[4]
        return %1 }
        func @g(%x: f64[4]) -> f64[4] {
        %0 = square %x : f64[4]
        return %0 }",
    );
    let g = squares.find("g").expect("there");
    let x = Array::from_f64s(DType::F64, &[4], &[0.0, 1.0, 2.0, 3.0]).expect("four");
    for jacobian in [jacrev, jacfwd] {
        let j = jacobian(&squares, g, &[0]).expect("differentiates");
        let found = evaluate(&j, std::slice::from_ref(&x)).expect("runs");
        let due: Vec<f64> =
            (0..16).map(|k| if k % 5 == 0 { 2.0 * (k / 5) as f64 } else { 0.0 }).collect();
        assert_eq!(found[0].to_f64s(), due);
    }
    let pow =
        program("func @f(%x: f64[], %y: f64[]) -> f64[] { %0 = pow %x, %y : f64[] return %0 }");
    let h = hessian(&pow, first(&pow), &[0, 1]).expect("differentiates");
    let found = numbers(&evaluate(&h, &[scalar(4.0), scalar(0.0)]).expect("runs"));
    let log = 4f64.ln();
    for (x, due) in found.iter().zip([0.0, 0.25, 0.25, log * log]) {
        assert!(abs_diff_eq!(*x, due, epsilon = 1e-12), "{found:?}");
    }
    let inverse = program("func @f(%x: f64[]) -> f64[] { %0 = div 1.0, %x : f64[] return %0 }");
    let mut chain = Derived::new(&inverse, first(&inverse));
    for k in 0..6 {
        // Either mode at every order: forward takes its tangent as one more parameter.
        chain =
            if k % 2 == 0 { chain.grad(&[0]) } else { chain.jacfwd(&[0]) }.expect("differentiates");
    }
    let sixth = chain.finish().expect("closes");
    assert_eq!(evaluate(&sixth, &[scalar(4.0)]).expect("runs")[0].to_f64s(), [0.0439453125]);
}

/// d/dx_i d/da_jk of x'Ax at x = (0.3, -2): x_k where i = j, and x_j where i = k.
fn mixed() -> Vec<f64> {
    let x = [0.3, -2.0];
    let mut out = Vec::new();
    for i in 0..2 {
        for j in 0..2 {
            for k in 0..2 {
                let left = if i == j { x[k] } else { 0.0 };
                out.push(left + if i == k { x[j] } else { 0.0 });
            }
        }
    }
    out
}

/// Blocks of a parameter whose extent is a symbol, where it has one axis.
#[test]
fn a_basis_may_be_symbolic() {
    let module = program(
        "func @f<n>(%x: f64[n], %y: f64[n,2]) -> f64[n] {
        %s = sin %x : f64[n]
        %0 = mul %s, %x : f64[n]
        return %0 }",
    );
    let f = first(&module);
    for jacobian in [jacfwd, jacrev] {
        let j = jacobian(&module, f, &[0]).expect("differentiates");
        assert_eq!(j.result_types()[0].to_string(), "f64[n,n]");
        verify(&Module::single(j.clone())).unwrap_or_else(|e| panic!("{}\n{j}", e[0]));
    }
    let d = jacfwd(&module, f, &[1]).expect_err("two axes, one a symbol");
    assert_eq!(
        (d.kind, d.to_string().contains("basis of f64[n,2]")),
        (Kind::Unsupported, true),
        "{d}"
    );
}

#[test]
fn linear_functions_turn_around() {
    let module = program(
        "func @f(%x: f64[3], %s: f64[2], %w: f64[3,2]) -> (f64[2], f64[5]) {
        %a = dot_general %x, %w {contract = [0] x [0]} : f64[2]
        %b = mul %a, %s : f64[2]
        %c = broadcast_in_dim 0.0 {dims = []} : f64[2]
        %d = concatenate %x, %c {axis = 0} : f64[5]
        return %b, %d }
        func @g(%x: f64[3], %k: f64[], %z: f64[3]) -> f64[3] {
        %a = cumsum %x {axis = 0} : f64[3]
        %s = broadcast_in_dim %k {dims = []} : f64[3]
        %b = mul %s, %z : f64[3]
        %c = sub %a, %b : f64[3]
        return %c }",
    );
    let f = first(&module);
    for (f, wrt) in [(f, vec![0]), (module.find("g").expect("there"), vec![2, 0])] {
        let types = f.param_types();
        let turned = linear_transpose(&module, f, &wrt).expect("linear");
        let args: Vec<Array> = types.iter().zip(1..).map(|(t, k)| draw(t, k)).collect();
        let cts: Vec<Array> = f.result_types().iter().zip(7..).map(|(t, k)| draw(t, k)).collect();
        let fixed: Vec<Array> =
            (0..3).filter(|k| !wrt.contains(k)).map(|k| args[k].clone()).collect();
        let left = dot(&numbers(&evaluate(f, &args).expect("runs")), &numbers(&cts));
        let back = evaluate(&turned, &[fixed, cts].concat()).expect("runs");
        let moved: Vec<Array> = wrt.iter().map(|&k| args[k].clone()).collect();
        assert_abs_diff_eq!(left, dot(&numbers(&back), &numbers(&moved)), epsilon = 1e-12);
    }
    for (body, part) in [
        ("%y = sin %x : f64[3]", "`sin` is not linear"),
        ("%y = mul %x, %x : f64[3]", "not linear"),
        ("%y = add %x, 1.0 : f64[3]", "not linear"),
        ("%y = add %x, %k : f64[3]", "not linear"),
        (
            "%c = convert_element_type %x : i32[3] %y = convert_element_type %c : f64[3]",
            "another kind of number",
        ),
        ("%y = pad %x, 1.0 {low = [0], high = [0], interior = [0]} : f64[3]", "acts by itself"),
        ("%r = rev %x {axes = [0]} : f64[3] %y = exp %k : f64[3]", "does not depend on"),
        ("%p = gt %x, 0.0 : bool[3] %y = select_n %p, 0.0, %x : f64[3]", "not linear"),
        ("%y = abs %x : f64[3]", "not linear"),
    ] {
        let module =
            program(&format!("func @f(%x: f64[3], %k: f64[3]) -> f64[3] {{ {body} return %y }}"));
        let d = linear_transpose(&module, first(&module), &[0]).expect_err(body);
        assert!(d.kind == Kind::Derivative && d.message.contains(part), "{body}: {d}");
    }
    let d = linear_transpose(&module, f, &[0, 2]).expect_err("bilinear");
    assert!(d.message.contains("not linear"), "{d}");
}

#[test]
fn stopped_gradients_stay_stopped() {
    let module = program(
        "func @f(%x: f64[3]) -> f64[] {
        %s = stop_gradient %x : f64[3]
        %p = mul %s, %x : f64[3]
        %q = mul %p, %x : f64[3]
        %0 = reduce_sum %q {axes = [0]} : f64[]
        return %0 }",
    );
    let f = first(&module);
    let x = Array::from_f64s(DType::F64, &[3], &[1.0, 2.0, 3.0]).expect("three");
    // x is stopped in s x^2, whose derivatives are 2 s x and 2 s; in the first s moves again.
    let g = grad(&module, f, &[0]).expect("differentiates");
    assert_eq!(numbers(&evaluate(&g, std::slice::from_ref(&x)).expect("runs")), [2.0, 8.0, 18.0]);
    let h = hessian(&module, f, &[0]).expect("differentiates");
    let due = [2.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 6.0];
    assert_eq!(numbers(&evaluate(&h, std::slice::from_ref(&x)).expect("runs")), due);
    let batched = vmap(&module, f, &Batching::new(1, [Some(0)])).expect("maps");
    let g = vjp(&Module::single(batched.clone()), &batched, &[0]).expect("differentiates");
    let row = Array::from_f64s(DType::F64, &[1, 3], &[1.0, 2.0, 3.0]).expect("three");
    let one = Array::from_f64s(DType::F64, &[1], &[1.0]).expect("one");
    assert_eq!(numbers(&evaluate(&g, &[row, one]).expect("runs"))[1..], [2.0, 8.0, 18.0]);
}

/// Per-example gradients by the front door: a batched program like any other.
#[test]
fn gradients_of_examples_are_a_batched_program() {
    let module = program(
        "func @loss(%w: f64[3], %x: f64[3], %seed: i64[]) -> f64[] {
        %p = dot_general %w, %x {contract = [0] x [0]} : f64[]
        %bits = rng_bits %seed, %seed : u32[1]
        %noise = convert_element_type %bits : f64[1]
        %n = reshape %noise : f64[]
        %q = mul %n, 0.0 : f64[]
        %e = add %p, %q : f64[]
        %0 = square %e : f64[]
        return %0 }",
    );
    let batching = Batching::new(2, [None, Some(0), None]).random(Random::Same);
    let chain = Derived::new(&module, first(&module)).grad(&[0]).and_then(|g| g.vmap(&batching));
    let each = chain.and_then(Derived::finish).expect("differentiates");
    assert_eq!(each.result_types()[0].to_string(), "f64[2,3]");
    let w = Array::from_f64s(DType::F64, &[3], &[1.0, 2.0, 3.0]).expect("three");
    let x = Array::from_f64s(DType::F64, &[2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 1.0]).expect("six");
    let seed = Array::from_i64s(DType::I64, &[], &[7]).expect("a scalar");
    let found = evaluate(&each, &[w, x, seed]).expect("runs");
    assert_eq!(found[0].to_f64s(), [2.0, 0.0, 0.0, 0.0, 10.0, 10.0]);
}
