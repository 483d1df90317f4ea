//! Decompositions and Fourier transforms, of lengths within a block and over several: they solve what they should, and in strict
//! mode the CPU engine has the reference engine's bits. So do gradients.

use adfuse::autodiff::forward_and_backward;
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions};
use adfuse::ir::op::{Domain, Op};
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module, TensorType};
use adfuse::sample::{rng, sample};

/// A function whose results come in pairs that are equal but for rounding.
struct Identity {
    name: &'static str,
    text: fn(u64) -> String,
    domain: Domain,
    sizes: &'static [u64],
}

const SIZES: &[u64] = &[1, 2, 5, 31, 32, 33, 70];
const FEW: &[u64] = &[1, 2, 5, 12];
const LENGTHS: &[u64] = &[1, 2, 7, 32, 33, 36, 37, 64, 210, 1024];

const IDENTITIES: &[Identity] = &[
    Identity { name: "solve", text: solve, domain: Domain::Definite, sizes: SIZES },
    Identity { name: "solve_right", text: solve_right, domain: Domain::Definite, sizes: SIZES },
    Identity { name: "cholesky", text: cholesky, domain: Domain::Definite, sizes: SIZES },
    Identity { name: "lu", text: lu, domain: Domain::Uniform(-1.0, 1.0), sizes: SIZES },
    Identity { name: "qr", text: qr, domain: Domain::Uniform(-1.0, 1.0), sizes: SIZES },
    Identity { name: "wide_qr", text: wide_qr, domain: Domain::Uniform(-1.0, 1.0), sizes: FEW },
    Identity { name: "eigh", text: eigh, domain: Domain::Uniform(-1.0, 1.0), sizes: FEW },
    Identity { name: "svd", text: svd, domain: Domain::Uniform(-1.0, 1.0), sizes: FEW },
    Identity { name: "wide_svd", text: wide_svd, domain: Domain::Uniform(-1.0, 1.0), sizes: FEW },
    Identity { name: "fft", text: fft, domain: Domain::Uniform(-1.0, 1.0), sizes: LENGTHS },
    Identity { name: "rfft", text: rfft, domain: Domain::Uniform(-1.0, 1.0), sizes: LENGTHS },
];

/// Products of batches of matrices.
const PRODUCT: &str = "batch = [0] x [0], contract = [2] x [1]";

fn solve(n: u64) -> String {
    format!(
        "func @f(%a: f64[2,{n},{n}], %b: f64[2,{n},3]) -> (f64[2,{n},3], f64[2,{n},3]) {{
            %l = cholesky %a : f64[2,{n},{n}]
            %x = triangular_solve %l, %b : f64[2,{n},3]
            %y = dot_general %l, %x {{{PRODUCT}}} : f64[2,{n},3]
            return %y, %b }}"
    )
}

fn solve_right(n: u64) -> String {
    format!(
        "func @f(%a: f64[2,{n},{n}], %b: f64[2,3,{n}]) -> (f64[2,3,{n}], f64[2,3,{n}]) {{
            %u = cholesky %a {{upper = true}} : f64[2,{n},{n}]
            %x = triangular_solve %u, %b {{upper = true, right = true, transpose = true}} : f64[2,3,{n}]
            %t = transpose %u {{perm = [0, 2, 1]}} : f64[2,{n},{n}]
            %y = dot_general %x, %t {{{PRODUCT}}} : f64[2,3,{n}]
            return %y, %b }}"
    )
}

fn cholesky(n: u64) -> String {
    format!(
        "func @f(%a: f64[2,{n},{n}]) -> (f64[2,{n},{n}], f64[2,{n},{n}]) {{
            %l = cholesky %a : f64[2,{n},{n}]
            %u = cholesky %a {{upper = true}} : f64[2,{n},{n}]
            %y = dot_general %l, %u {{{PRODUCT}}} : f64[2,{n},{n}]
            return %y, %a }}"
    )
}

fn lu(n: u64) -> String {
    format!(
        "func @f(%a: f64[2,{n},{n}], %b: f64[2,{n},{n}]) -> (f64[2,{n},{n}], f64[2,{n},{n}]) {{
            %p, %e, %o = lu %a : f64[2,{n},{n}], i32[2,{n}], i32[2,{n}]
            %x = triangular_solve %p, %b {{unit_diagonal = true}} : f64[2,{n},{n}]
            %y = triangular_solve %p, %x {{upper = true}} : f64[2,{n},{n}]
            %c = dot_general %a, %y {{{PRODUCT}}} : f64[2,{n},{n}]
            %i = broadcast_in_dim %o {{dims = [0, 1]}} : i32[2,{n},{n}]
            %k, %v = sort_key_val %i, %b {{axis = 1}} : i32[2,{n},{n}], f64[2,{n},{n}]
            return %c, %v }}"
    )
}

fn qr(n: u64) -> String {
    let m = n + 2;
    format!(
        "func @f(%a: f64[2,{m},{n}]) -> (f64[2,{m},{n}], f64[2,{m},{n}], f64[2,{m},{n}], f64[2,{m},{n}]) {{
            %q, %r = qr %a : f64[2,{m},{n}], f64[2,{n},{n}]
            %y = dot_general %q, %r {{{PRODUCT}}} : f64[2,{m},{n}]
            %p, %t = householder %a : f64[2,{m},{n}], f64[2,{n}]
            %o = householder_product %p, %t : f64[2,{m},{n}]
            return %y, %a, %o, %q }}"
    )
}

fn wide_qr(n: u64) -> String {
    let m = n + 2;
    format!(
        "func @f(%a: f64[2,{n},{m}]) -> (f64[2,{n},{m}], f64[2,{n},{m}]) {{
            %q, %r = qr %a : f64[2,{n},{n}], f64[2,{n},{m}]
            %y = dot_general %q, %r {{{PRODUCT}}} : f64[2,{n},{m}]
            return %y, %a }}"
    )
}

fn eigh(n: u64) -> String {
    format!(
        "func @f(%x: f64[2,{n},{n}]) -> (f64[2,{n},{n}], f64[2,{n},{n}]) {{
            %t = transpose %x {{perm = [0, 2, 1]}} : f64[2,{n},{n}]
            %a = add %x, %t : f64[2,{n},{n}]
            %w, %v = eigh %a : f64[2,{n}], f64[2,{n},{n}]
            %s = broadcast_in_dim %w {{dims = [0, 2]}} : f64[2,{n},{n}]
            %y = mul %v, %s : f64[2,{n},{n}]
            %z = dot_general %a, %v {{{PRODUCT}}} : f64[2,{n},{n}]
            return %y, %z }}"
    )
}

fn svd(n: u64) -> String {
    let m = n + 2;
    format!(
        "func @f(%a: f64[2,{m},{n}]) -> (f64[2,{m},{n}], f64[2,{m},{n}], f64[2,{n},{n}], f64[2,{n},{n}]) {{
            %u, %s, %v = svd %a : f64[2,{m},{n}], f64[2,{n}], f64[2,{n},{n}]
            %b = broadcast_in_dim %s {{dims = [0, 2]}} : f64[2,{m},{n}]
            %w = mul %u, %b : f64[2,{m},{n}]
            %y = dot_general %w, %v {{{PRODUCT}}} : f64[2,{m},{n}]
            %p = dot_general %u, %u {{batch = [0] x [0], contract = [1] x [1]}} : f64[2,{n},{n}]
            %q = dot_general %v, %v {{batch = [0] x [0], contract = [2] x [2]}} : f64[2,{n},{n}]
            return %y, %a, %p, %q }}"
    )
}

fn wide_svd(n: u64) -> String {
    let m = n + 2;
    format!(
        "func @f(%a: f64[2,{n},{m}]) -> (f64[2,{n},{m}], f64[2,{n},{m}]) {{
            %u, %s, %v = svd %a {{full = true}} : f64[2,{n},{n}], f64[2,{n}], f64[2,{m},{m}]
            %b = broadcast_in_dim %s {{dims = [0, 2]}} : f64[2,{n},{n}]
            %w = mul %u, %b : f64[2,{n},{n}]
            %k = slice %v {{start = [0, 0, 0], limit = [2, {n}, {m}], stride = [1, 1, 1]}} : f64[2,{n},{m}]
            %y = dot_general %w, %k {{{PRODUCT}}} : f64[2,{n},{m}]
            return %y, %a }}"
    )
}

/// The transform and its inverse, and the sum of squares of both sides.
fn fft(n: u64) -> String {
    format!(
        "func @f(%r: f64[3,{n}], %i: f64[3,{n}]) -> (f64[3,{n}], f64[3,{n}], f64[3,{n}], f64[3,{n}]) {{
            %a, %b = fft %r, %i {{axis = 1}} : f64[3,{n}], f64[3,{n}]
            %x, %y = fft %a, %b {{axis = 1, inverse = true}} : f64[3,{n}], f64[3,{n}]
            return %x, %r, %y, %i }}"
    )
}

fn rfft(n: u64) -> String {
    let half = n / 2 + 1;
    format!(
        "func @f(%x: f64[3,{n}]) -> (f64[3,{n}], f64[3,{n}], f64[3,{half}], f64[3,{half}]) {{
            %a, %b = rfft %x {{axis = 1}} : f64[3,{half}], f64[3,{half}]
            %y = irfft %a, %b {{axis = 1, length = {n}}} : f64[3,{n}]
            %z = sub %x, %x : f64[3,{n}]
            %c, %d = fft %x, %z {{axis = 1}} : f64[3,{n}], f64[3,{n}]
            %e = slice %d {{start = [0, 0], limit = [3, {half}], stride = [1, 1]}} : f64[3,{half}]
            return %y, %x, %b, %e }}"
    )
}

fn module(text: &str) -> Module {
    parse(text).unwrap_or_else(|e| panic!("{text}\n{e:#?}"))
}

fn first(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

fn arguments(f: &Function, domain: Domain) -> Vec<Array> {
    let mut rng = rng(3, 0);
    let domain = |ty: &TensorType| match domain {
        Domain::Definite if ty.shape[ty.rank() - 1] != ty.shape[ty.rank() - 2] => Domain::Normal,
        d => d,
    };
    f.param_types().iter().map(|ty| sample(ty, domain(ty), &mut rng).expect("samples")).collect()
}

fn both(m: &Module, args: &[Array], what: &str) -> Vec<Array> {
    let defined = run(m, first(m), args, &mut Silent).unwrap_or_else(|d| panic!("{what}: {d}"));
    let plan = PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };
    let engine = Cpu { plan, ..Cpu::default() };
    let executable = engine.compile(m, first(m)).unwrap_or_else(|d| panic!("{what}: {d}"));
    let found = executable.run(args).unwrap_or_else(|d| panic!("{what}: {d}"));
    for (k, (x, y)) in found.iter().zip(&defined).enumerate() {
        assert!(x.iter().eq(y.iter()), "{what}: result {k} has other bits");
    }
    defined
}

fn close(x: &Array, y: &Array, what: &str) {
    let (x, y) = (x.to_f64s(), y.to_f64s());
    let size = y.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
    let apart = x.iter().zip(&y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    assert!(apart <= 1e-11 * size, "{what}: {apart:e} apart, of {size}");
}

#[test]
fn identities_hold_and_engines_agree() {
    for Identity { name, text, domain, sizes } in IDENTITIES {
        for &n in *sizes {
            let m = module(&text(n));
            let what = format!("{name} of {n}");
            let args = arguments(first(&m), *domain);
            let results = both(&m, &args, &what);
            for pair in results.chunks(2) {
                close(&pair[0], &pair[1], &what);
            }
        }
    }
}

/// Gradients by the rules have the reference engine's bits, and read no stacks of the loops.
#[test]
fn gradients_have_the_same_bits() {
    for Identity { name, text, domain, .. } in IDENTITIES {
        let m = module(&text(4));
        let f = first(&m);
        let results = f.results().to_vec();
        let wrt: Vec<usize> = (0..f.params().len()).collect();
        let g = forward_and_backward(&m, f, &wrt).unwrap_or_else(|d| panic!("{name}: {d}"));
        let mut args = arguments(f, *domain);
        let cotangents = g.param_types().split_off(args.len());
        assert_eq!(cotangents.len(), results.len(), "{name}");
        let mut loops = 0;
        g.walk(&mut |g, i| loops += usize::from(g.op(i) == Op::Adjoint));
        assert_eq!(loops, usize::from(*name == "qr") * 2, "{name}: loops whose steps are kept");
        let mut rng = rng(5, 0);
        args.extend(
            cotangents.iter().map(|t| sample(t, Domain::Normal, &mut rng).expect("samples")),
        );
        both(&Module::single(g), &args, name);
    }
}

/// A matrix that is not positive definite has NaN from the column that shows it on.
#[test]
fn what_is_not_definite_is_not_a_number() {
    let m = module("func @f(%a: f64[2,2]) -> f64[2,2] { %l = cholesky %a : f64[2,2] return %l }");
    let a = Array::from_f64s(DType::F64, &[2, 2], &[4.0, 2.0, 2.0, 0.5]).expect("small");
    let l = both(&m, &[a], "indefinite")[0].to_f64s();
    assert_eq!(l[..3], [2.0, 0.0, 1.0]);
    assert!(l[3].is_nan());
}

/// Matrices that lack rank, are 0, or have elements whose squares are no numbers have orthonormal vectors all the same.
#[test]
fn singular_vectors_are_orthonormal_where_values_are_0() {
    let m = module(
        "func @f(%a: f32[4,4,3]) -> (f32[4,4,4], f32[4,3], f32[4,3,3]) {
            %u, %s, %v = svd %a {full = true} : f32[4,4,4], f32[4,3], f32[4,3,3]
            return %u, %s, %v }",
    );
    let rank_one: Vec<f64> = (0..12).map(|k| f64::from((k / 3 + 1) * (k % 3 + 1))).collect();
    let equal: Vec<f64> = (0..12).map(|k| f64::from(u8::from(k % 4 == 0))).collect();
    let parts =
        [vec![0.0; 12], rank_one.clone(), equal, rank_one.iter().map(|x| x * 1e-30).collect()];
    let a = Array::from_f64s(DType::F32, &[4, 4, 3], &parts.concat()).expect("small");
    let [u, s, v] = &both(&m, &[a], "degenerate")[..] else { panic!("three results") };
    let values = s.to_f64s();
    let largest = (30.0f64 * 14.0).sqrt();
    for (k, wanted, size) in [
        (0, 0.0, 0.0),
        (3, largest, largest),
        (4, 0.0, largest),
        (6, 1.0, 1.0),
        (8, 1.0, 1.0),
        (9, largest * 1e-30, largest * 1e-30),
    ] {
        assert!((values[k] - wanted).abs() <= 1e-6 * size, "{k}: {}", values[k]);
    }
    for (x, n) in [(u, 4), (v, 3)] {
        let x = x.to_f64s();
        for (of, i, j) in (0..4 * n * n).map(|k| (k / (n * n), k / n % n, k % n)) {
            let at = |row: usize, column: usize| x[(of * n + row) * n + column];
            let product: f64 = (0..n).map(|r| at(r, i) * at(r, j)).sum();
            let wanted = f64::from(u8::from(i == j));
            assert!((product - wanted).abs() < 2e-6, "matrix {of}: columns {i}, {j}: {product}");
        }
    }
}

/// What only `full` has of vectors is no function of the matrix; the space that they span is, and its derivative is right.
#[test]
fn the_space_beyond_singular_vectors_moves_as_differences_say() {
    let m = module(
        "func @f(%a: f64[3,5], %c: f64[5,5]) -> f64[] {
            %u, %s, %v = svd %a {full = true} : f64[3,3], f64[3], f64[5,5]
            %o = slice %v {start = [3, 0], limit = [5, 5], stride = [1, 1]} : f64[2,5]
            %p = dot_general %o, %o {batch = [] x [], contract = [0] x [0]} : f64[5,5]
            %w = mul %p, %c : f64[5,5]
            %l = reduce_sum %w {axes = [0, 1]} : f64[]
            return %l }",
    );
    let args = arguments(first(&m), Domain::Uniform(-1.0, 1.0));
    let g = adfuse::autodiff::value_and_grad(&m, first(&m), &[0]).expect("a gradient");
    let g = both(&Module::single(g), &args, "projector")[1].to_f64s();
    let at = |k: usize, by: f64| {
        let mut a = args[0].to_f64s();
        a[k] += by;
        let moved = Array::from_f64s(DType::F64, &[3, 5], &a).expect("small");
        run(&m, first(&m), &[moved, args[1].clone()], &mut Silent).expect("runs")[0].to_f64s()[0]
    };
    for (k, g) in g.iter().enumerate() {
        let difference = (at(k, 1e-5) - at(k, -1e-5)) / 2e-5;
        assert!((g - difference).abs() < 1e-7, "element {k}: {g}, not {difference}");
    }
}
