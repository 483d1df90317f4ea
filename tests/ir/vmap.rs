//! Functions over batches: a loop, to the bit, whatever is mapped and how often.

use crate::common::batch::{Side, agrees, bits, stack};
use crate::common::programs::decode;
use crate::common::random::programs;
use adfuse::autodiff::{Batching, Derived, Random, differentiable, grad, vjp, vmap};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Diagnostic, Function, Module, TensorType, verify};
use adfuse::sample::{rng, sample};
use approx::abs_diff_eq;

fn evaluate(f: &Function, args: &[Array]) -> Vec<Array> {
    let module = Module::single(f.clone());
    verify(&module).unwrap_or_else(|e| panic!("{}\n{f}", e[0]));
    run(&module, f, args, &mut Silent).unwrap_or_else(|d| panic!("{d}\n{f}"))
}

fn first(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

fn program(text: &str) -> Module {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(&module).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    module
}

#[test]
fn random_programs_over_a_batch_are_a_loop() {
    programs(11, 60, |steps| {
        let f = decode(steps, DType::F32);
        let module = Module::single(f.clone());
        for set in 0..1usize << f.params().len() {
            let side = if set % 2 == 0 { Side::First } else { Side::Last };
            let mut rng = rng(13, set as u64);
            let mapped = |k: usize| set >> k & 1 == 1;
            let mut draw =
                |_: usize, t: &TensorType| sample(t, Domain::Normal, &mut rng).expect("small");
            agrees(&module, &f, 3, &mapped, side, &mut draw)?;
        }
        Ok(())
    });
}

/// A batch of batches, the inner one on another axis.
#[test]
fn a_batch_of_batches_is_a_loop_over_loops() {
    programs(12, 30, |steps| {
        let f = decode(&steps[..steps.len().min(10)], DType::F32);
        let inner = Batching::new(2, [Some(1), None, Some(0)]).random(Random::Same);
        let g = vmap(&Module::single(f.clone()), &f, &inner).map_err(|d| format!("{d}\n{f}"))?;
        let mut rng = rng(17, 0);
        let mut draw =
            |_: usize, t: &TensorType| sample(t, Domain::Normal, &mut rng).expect("small");
        agrees(&Module::single(g.clone()), &g, 3, &|k| k != 2, Side::Last, &mut draw)
    });
}

/// The gradient over a batch is the gradient of each example, and the gradient of a sum over a batch
/// is their sum where a parameter is shared.
#[test]
fn gradients_and_batches_commute() {
    programs(13, 40, |steps| {
        let f = decode(&steps[..steps.len().min(12)], DType::F32);
        let module = Module::single(f.clone());
        let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
        let fail = |d: Diagnostic| format!("{d}\n{f}");
        // Gradients of examples: to the bit.
        let g = vjp(&module, &f, &wrt).map_err(fail)?;
        let single = Module::single(g.clone());
        let mut draws = rng(19, 0);
        let mut draw = |_: usize, t: &TensorType| {
            sample(t, Domain::Uniform(-0.9, 0.9), &mut draws).expect("small")
        };
        agrees(&single, &g, 3, &|k| k != 1, Side::First, &mut draw)?;
        // Gradients of a batch: mapped parameters get those of their own.
        let batching = Batching::new(3, f.params().iter().map(|_| Some(0))).random(Random::Same);
        let batched = vmap(&module, &f, &batching).map_err(fail)?;
        let of_batch = vjp(&Module::single(batched.clone()), &batched, &wrt).map_err(fail)?;
        let cts = g.params().len() - f.params().len();
        let batching = Batching::new(3, (0..f.params().len() + cts).map(|_| Some(0)));
        let of_each = vmap(&single, &g, &batching.random(Random::Same)).map_err(fail)?;
        let mut draws = rng(23, 0);
        let args: Vec<Array> = of_batch
            .param_types()
            .iter()
            .map(|t| sample(t, Domain::Uniform(-0.9, 0.9), &mut draws).expect("small"))
            .collect();
        let (a, b) = (evaluate(&of_batch, &args), evaluate(&of_each, &args));
        for (x, y) in a.iter().zip(&b) {
            let most = y.to_f64s().iter().fold(1f64, |m, v| m.max(v.abs()));
            let near = |(x, y): (&f64, &f64)| {
                abs_diff_eq!(x, y, epsilon = 1e-5 * most)
                    || x.is_nan() == y.is_nan() && (x == y || !x.is_finite())
            };
            if !x.to_f64s().iter().zip(&y.to_f64s()).all(near) {
                return Err(format!("{x:?} is not {y:?} for\n{f}{of_batch}{of_each}"));
            }
        }
        Ok(())
    });
}

const RANDOM: &str = "func @f(%seed: i64[], %offset: i64[]) -> u32[2,3] {
    %bits = rng_bits %seed, %offset : u32[2,3]
    return %bits }";

fn integers(values: &[i64]) -> Array {
    Array::from_i64s(DType::I64, &[values.len() as u64], values).expect("as many")
}

/// Seeds and offsets of their own give the bits that each element would draw alone.
#[test]
fn random_bits_follow_seed_and_offset() {
    let module = program(RANDOM);
    let values = [0, 1, -1, i64::MAX, i64::MIN, 0x1234_5678_9abc_def0, -77];
    for set in 1..4usize {
        let mut next = 0;
        let mut draw = |k: usize, _: &TensorType| {
            next += 1;
            let v = values[(next * (k + 1)) % values.len()];
            Array::from_i64s(DType::I64, &[], &[v]).expect("a scalar")
        };
        agrees(&module, first(&module), 7, &|k| set >> k & 1 == 1, Side::First, &mut draw)
            .unwrap_or_else(|e| panic!("{e}"));
    }
    let f = first(&module);
    let shared = Batching::new(3, [None, None]);
    let refused = vmap(&module, f, &shared).expect_err("shared bits").to_string();
    assert!(
        refused.contains("all elements of the batch would share") && refused.contains("rng_bits"),
        "{refused}"
    );
    let same = vmap(&module, f, &shared.random(Random::Same)).expect("asked for");
    let seed = Array::from_i64s(DType::I64, &[], &[5]).expect("a scalar");
    let all = evaluate(&same, &[seed.clone(), seed.clone()]);
    let one = evaluate(f, &[seed.clone(), seed]);
    assert_eq!(all[0], stack(&[one[0].clone(), one[0].clone(), one[0].clone()], 0));
    let own = vmap(&module, f, &Batching::new(3, [None, Some(0)])).expect("offsets of their own");
    let drawn = evaluate(
        &own,
        &[Array::from_i64s(DType::I64, &[], &[5]).expect("a scalar"), integers(&[0, 1, 2])],
    );
    let words = bits(&drawn[0]);
    assert!(words[..6] != words[6..12] && words[6..12] != words[12..], "{words:?}");
}

const INDIRECT: &[&str] = &[
    "func @f(%x: f32[5,3], %u: f32[2,2], %i: u8[], %j: i64[]) -> (f32[5,3], f32[2,2]) {
        %0 = dynamic_update_slice %x, %u, %i, %j : f32[5,3]
        %1 = dynamic_slice %x, %i, %j {sizes = [2, 2]} : f32[2,2]
        return %0, %1 }",
    "func @f(%x: bool[4], %u: bool[2], %i: i32[]) -> (bool[4], bool[4]) {
        %0 = dynamic_update_slice %x, %u, %i : bool[4]
        %1 = dynamic_update_slice %x, %x, %i : bool[4]
        return %0, %1 }",
    "func @f(%x: f32[5], %i: i8[3,1], %u: f32[3]) -> (f32[3], f32[5], f32[3]) {
        %0 = gather %x, %i {offset_dims = [], collapsed = [0], start_map = [0], sizes = [1], mode = fill} : f32[3]
        %1 = scatter_add %x, %i, %u {window_dims = [], inserted = [0], start_map = [0], mode = drop} : f32[5]
        %2 = gather %x, %i {offset_dims = [], collapsed = [0], start_map = [0], sizes = [1], mode = zero} : f32[3]
        return %0, %1, %2 }",
];

/// Places of their own, in and out of bounds, of narrow types, negative zeros overwritten and kept.
#[test]
fn places_of_their_own_move_what_they_move_alone() {
    for text in INDIRECT {
        let module = program(text);
        let f = first(&module);
        for set in 0..1usize << f.params().len() {
            for size in [3, 200] {
                let mut draws = rng(29, set as u64);
                let mut draw = |_: usize, t: &TensorType| {
                    let domain =
                        if t.dtype.is_float() { Domain::Normal } else { Domain::Ints(-2, 7) };
                    let a = sample(t, domain, &mut draws).expect("small");
                    // Some zeros, of either sign.
                    let zero = |x: f64| if x.abs() < 1.0 { 0.0 * x } else { x };
                    let values: Vec<f64> = a.to_f64s().into_iter().map(zero).collect();
                    if t.dtype.is_float() {
                        Array::from_f64s(t.dtype, a.dims(), &values).expect("as many")
                    } else {
                        a
                    }
                };
                agrees(&module, f, size, &|k| set >> k & 1 == 1, Side::First, &mut draw)
                    .unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}

const BRANCHES: &str =
    "func @f(%p: bool[], %q: bool[], %x: f32[3], %y: f32[3]) -> (f32[3], f32[], f32[3], bool[]) {
    %0, %1, %2, %3 = cond %p : f32[3], f32[], f32[3], bool[] then {
        %root = sqrt %x : f32[3]
        %sum = reduce_sum %x {axes = [0]} : f32[]
        %in = cond %q : f32[3] then {
            %up = add %y, 1.0 : f32[3]
            yield %up
        } else { yield %y }
        yield %root, %sum, %in, %q
    } else {
        %out = neg %y : f32[3]
        yield %out, 2.0, %y, false
    }
    return %0, %1, %2, %3 }";

#[test]
fn branches_are_taken_or_selected() {
    let module = program(BRANCHES);
    let f = first(&module);
    for set in 0..16usize {
        for seed in 0..4 {
            let mut draws = rng(31, seed);
            let mut draw =
                |_: usize, t: &TensorType| sample(t, Domain::Normal, &mut draws).expect("small");
            agrees(&module, f, 5, &|k| set >> k & 1 == 1, Side::First, &mut draw)
                .unwrap_or_else(|e| panic!("{e}"));
        }
    }
    // A predicate of all is still a branch; one of each is not.
    let shared = vmap(&module, f, &Batching::new(2, [None, None, Some(0), None])).expect("maps");
    assert!(shared.to_string().contains("cond %p"), "{shared}");
    let own = vmap(&module, f, &Batching::new(2, [Some(0), None, Some(0), None])).expect("maps");
    assert!(!own.to_string().contains("cond %p"), "{own}");
}

/// An infinite derivative of the branch that an element does not take is none of its own, mapped or shared.
#[test]
fn gradients_of_branches_not_taken_are_not_nan() {
    let module = program(
        "func @f(%x: f64[], %w: f64[]) -> f64[] {
        %p = gt %x, 0.0 : bool[]
        %y = cond %p : f64[] then {
            %r = sqrt %x : f64[]
            %s = sqrt %w : f64[]
            %m = mul %r, %s : f64[]
            yield %m
        } else {
            %i = div 1.0, %x : f64[]
            %e = rsqrt %w : f64[]
            %m = add %x, %x : f64[]
            yield %m
        }
        return %y }",
    );
    let f = first(&module);
    let chain = |x: &[f64], w: f64| {
        let n = x.len() as u64;
        let batched = Derived::new(&module, f).vmap(&Batching::new(n, [Some(0), None]));
        let g = batched.and_then(|g| g.vjp(&[0, 1])).and_then(Derived::finish).expect("pulls");
        let x = Array::from_f64s(DType::F64, &[n], x).expect("as many");
        let w = Array::from_f64s(DType::F64, &[], &[w]).expect("one");
        let ones = Array::from_f64s(DType::F64, &[n], &vec![1.0; n as usize]).expect("as many");
        let out = evaluate(&g, &[x, w, ones]);
        (out[1].to_f64s(), out[2].to_f64s())
    };
    assert_eq!(chain(&[0.0, 4.0], 1.0), (vec![2.0, 0.25], vec![1.0]));
    assert_eq!(chain(&[0.0, -4.0], 0.0), (vec![2.0, 2.0], vec![0.0]));
}

/// What does not depend on the batch is computed once.
#[test]
fn what_is_shared_stays_shared() {
    let module = program(
        "func @f(%x: f32[3], %w: f32[3,3]) -> (f32[3], f32[3,3], f32[]) {
        %e = exp %w : f32[3,3]
        %y = dot_general %e, %x {contract = [1] x [0]} : f32[3]
        %z = add %y, 1.0 : f32[3]
        return %z, %e, 2.0 }",
    );
    let f = first(&module);
    let batching = Batching::new(7, [Some(0), None]).results([Some(1), None, None]);
    let g = vmap(&module, f, &batching).expect("maps");
    let due = "func @f_vmap(%x: f32[7,3], %w: f32[3,3]) -> (f32[3,7], f32[3,3], f32[]) {
  %e = exp %w : f32[3,3]
  %y = dot_general %x, %e {contract = [1] x [1]} : f32[7,3]
  %z = add %y, 1.0 : f32[7,3]
  %0 = transpose %z {perm = [1, 0]} : f32[3,7]
  return %0, %e, 2.0
}
";
    assert_eq!(g.to_string(), due);
}

/// Batches of unknown extent map to programs of that symbol.
#[test]
fn a_batch_may_be_a_symbol() {
    let text =
        "func @f<n>(%x: f32[n,4], %w: f32[4], %i: i32[]) -> (f32[n], f32[2], f32[2], f32[4]) {
        %y = dot_general %x, %w {contract = [1] x [0]} : f32[n]
        %s = slice %w {start = [1], limit = [4], stride = [2]} : f32[2]
        %c = slice %w {start = [1], limit = [3], stride = [1]} : f32[2]
        %d = dynamic_update_slice %w, %c, %i : f32[4]
        return %y, %s, %c, %d }";
    let module = program(text);
    let f = first(&module);
    let size = adfuse::ir::Symbol::new("batch").expect("a name");
    let g = vmap(&module, f, &Batching::new(adfuse::ir::Dim::Sym(size), [Some(0), Some(0), None]))
        .expect("maps");
    verify(&Module::single(g.clone())).unwrap_or_else(|e| panic!("{}\n{g}", e[0]));
    let extents = g.symbols.iter().copied().zip([5, 3]).collect();
    let known = adfuse::ir::rewrite::specialize(&g, &extents).expect("specializes");
    let extents = f.symbols.iter().copied().zip([5]).collect();
    let f = adfuse::ir::rewrite::specialize(f, &extents).expect("specializes");
    let plain = vmap(&module, &f, &Batching::new(3, [Some(0), Some(0), None])).expect("maps");
    let mut draws = rng(37, 0);
    let args: Vec<Array> = plain
        .param_types()
        .iter()
        .map(|t| sample(t, Domain::Normal, &mut draws).expect("small"))
        .collect();
    assert_eq!(evaluate(&known, &args), evaluate(&plain, &args));
}

/// What cannot be batched says so, where it is.
#[test]
fn what_cannot_be_batched_is_refused() {
    let print = "func @f(%t: token, %x: f32[3]) -> token {
        %0 = debug_print %t, %x {label = \"x\"} : token
        return %0 }";
    let scatter = "func @f(%x: f32[4], %i: i32[], %n: f32[]) -> f32[2] {
        %0 = dynamic_slice %x, %i {sizes = [2]} : f32[2]
        return %0 }";
    let large = "func @f(%x: f32[65536,65536]) -> f32[65536,65536] {
        %0 = exp %x : f32[65536,65536]
        return %0 }";
    let n = adfuse::ir::Dim::Sym(adfuse::ir::Symbol::new("n").expect("a name"));
    let table: Vec<(&str, Batching, &str)> = vec![
        (print, Batching::new(2, [None, None]).results([None]), "`debug_print` is an effect"),
        (print, Batching::new(2, [None, Some(0)]).results([None]), "`debug_print` is an effect"),
        (print, Batching::new(2, [Some(0), None]), "is a token"),
        (
            scatter,
            Batching::new(n, [Some(0), Some(0), None]),
            "`dynamic_slice` needs a batch of known extent",
        ),
        (scatter, Batching::new(2, [Some(0), None]), "2 axes for 3 parameters"),
        (scatter, Batching::new(2, [Some(2), None, None]), "cannot have the batch as axis 2"),
        (scatter, Batching::new(2, [Some(0), None, None]).results([None]), "it needs an axis"),
        (scatter, Batching::new(2, [Some(0), None, None]).results([]), "0 axes for 1 results"),
        (large, Batching::new(1 << 20, [Some(0)]), "larger than"),
    ];
    for (text, batching, part) in table {
        let module = program(text);
        let d = vmap(&module, first(&module), &batching).expect_err(part).to_string();
        assert!(d.contains(part), "{d} does not say: {part}");
    }
}

const ROUNDED: &str = "func @f(%x: f32[3], %w: f32[3]) -> f32[] {
    %y = call %x, %w {func = @step} : f32[3]
    %s = reduce_sum %y {axes = [0]} : f32[]
    return %s }
func @step(%x: f32[3], %w: f32[3]) -> f32[3] RULE {
    %r = round %x : f32[3]
    %y = mul %r, %w : f32[3]
    return %y }
func @step.jvp(%x: f32[3], %w: f32[3], %dx: f32[3], %dw: f32[3]) -> (f32[3], f32[3]) {
    %y = call %x, %w {func = @step} : f32[3]
    %a = mul %dx, %w : f32[3]
    %b = mul %dw, %x : f32[3]
    %dy = add %a, %b : f32[3]
    return %y, %dy }
func @step.fwd(%x: f32[3], %w: f32[3]) -> (f32[3], f32[3], f32[3]) {
    %y = call %x, %w {func = @step} : f32[3]
    return %y, %x, %w }
func @step.bwd(%x: f32[3], %w: f32[3], %ct: f32[3]) -> (f32[3], f32[3]) {
    %a = mul %ct, %w : f32[3]
    %b = mul %ct, %x : f32[3]
    return %a, %b }";

/// Custom rules survive being batched: the derivative of the batch is that of the rule, summed where
/// the parameter is shared.
#[test]
fn rules_are_batched_with_their_functions() {
    for rule in ["custom_jvp(@step.jvp)", "custom_vjp(@step.fwd, @step.bwd)"] {
        let module = program(&ROUNDED.replace("RULE", rule));
        let f = first(&module);
        for axes in [[Some(0), None], [Some(0), Some(0)], [None, Some(1)], [None, None]] {
            let batching = Batching::new(2, axes);
            let chain = Derived::new(&module, f).vmap(&batching).expect("maps");
            let of_batch = chain.vjp(&[0, 1]).expect("differentiates").finish().expect("closes");
            let each = grad(&module, f, &[0, 1]).expect("differentiates");
            let mut draws = rng(41, 0);
            let mut parts: Vec<Vec<Array>> = Vec::new();
            for t in f.param_types() {
                parts.push(
                    (0..2)
                        .map(|_| sample(&t, Domain::Normal, &mut draws).expect("small"))
                        .collect(),
                );
            }
            let pick = |k: usize, n: usize| parts[k][if axes[k].is_some() { n } else { 0 }].clone();
            let mut args: Vec<Array> = (0..2)
                .map(|k| match axes[k] {
                    Some(axis) => stack(&parts[k], axis),
                    None => parts[k][0].clone(),
                })
                .collect();
            args.push(Array::from_f64s(DType::F32, &[2], &[1.0, 1.0]).expect("two"));
            let found = evaluate(&of_batch, &args);
            let grads: Vec<Vec<Array>> =
                (0..2).map(|n| evaluate(&each, &[pick(0, n), pick(1, n)])).collect();
            for k in 0..2 {
                let due = match axes[k] {
                    Some(axis) => stack(&[grads[0][k].clone(), grads[1][k].clone()], axis),
                    None => {
                        let sum = grads[0][k]
                            .to_f64s()
                            .iter()
                            .zip(grads[1][k].to_f64s())
                            .map(|(a, b)| (*a as f32 + b as f32) as f64)
                            .collect::<Vec<_>>();
                        Array::from_f64s(DType::F32, &[3], &sum).expect("three")
                    }
                };
                assert_eq!(found[1 + k], due, "{rule} {axes:?}\n{of_batch}");
            }
        }
    }
}
