//! Expected groups: one pass over large tensors where possible, shared operands read once, and nothing stored that can
//! be computed where it is used.

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::{Effort, Fp, LoweredFunction, MachineModel, Ops, PlanOptions, compile, cost};
use adfuse::ir::Module;
use adfuse::ir::index::IndexExpr;
use adfuse::ir::kernel::{Param, Program, Role, Run, Sink, Step, Storage, verify};
use adfuse::ir::text::parse;

/// A function's program, with gradients or without, for every device and every effort that groups.
pub(crate) fn compiled(text: &str, grad: bool) -> Vec<(PlanOptions, LoweredFunction)> {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function").clone();
    let (module, f) = match grad {
        true => {
            let wrt = differentiable(&f, None).expect("has floats");
            let g = forward_and_backward(&module, &f, &wrt).expect("differentiates");
            (Module::single(g.clone()), g)
        }
        false => (module, f),
    };
    let mut all = Vec::new();
    for device in [MachineModel::cpu(), MachineModel::h200()] {
        for effort in [Effort::Quick, Effort::Default] {
            for fp in [Fp::Strict, Fp::Reproducible] {
                let options = PlanOptions { device: device.clone(), effort, fp };
                let compiled = compile(&module, &f, &options).expect("compiles");
                let verified = verify(compiled.program.clone());
                assert!(verified.is_ok(), "{:?}\n{}", verified.err(), compiled.program);
                all.push((options, compiled));
            }
        }
    }
    all
}

const GELU: &str = "func @gelu(%x: f32[96,256], %b: f32[96,256], %w: f32[96,256]) -> f32[] {
  %u = add %x, %b : f32[96,256]
  %u2 = mul %u, %u : f32[96,256]
  %u3 = mul %u2, %u : f32[96,256]
  %c = mul %u3, 0.044715 : f32[96,256]
  %s = add %u, %c : f32[96,256]
  %k = mul %s, 0.7978846 : f32[96,256]
  %t = tanh %k : f32[96,256]
  %p = add %t, 1.0 : f32[96,256]
  %h = mul %u, 0.5 : f32[96,256]
  %y = mul %h, %p : f32[96,256]
  %wy = mul %w, %y : f32[96,256]
  %loss = reduce_sum %wy {axes = [0, 1]} : f32[]
  return %loss
}
";

const LAYER_NORM: &str =
    "func @layer_norm(%x: f32[300,256], %g: f32[256], %b: f32[256], %w: f32[300,256]) -> f32[] {
  %s = reduce_sum %x {axes = [1]} : f32[300]
  %m = mul %s, 0.00390625 : f32[300]
  %mb = broadcast_in_dim %m {dims = [0]} : f32[300,256]
  %c = sub %x, %mb : f32[300,256]
  %cc = mul %c, %c : f32[300,256]
  %ss = reduce_sum %cc {axes = [1]} : f32[300]
  %v = mul %ss, 0.00390625 : f32[300]
  %ve = add %v, 0.00001 : f32[300]
  %r = rsqrt %ve : f32[300]
  %rb = broadcast_in_dim %r {dims = [0]} : f32[300,256]
  %n = mul %c, %rb : f32[300,256]
  %gb = broadcast_in_dim %g {dims = [1]} : f32[300,256]
  %ng = mul %n, %gb : f32[300,256]
  %bb = broadcast_in_dim %b {dims = [1]} : f32[300,256]
  %y = add %ng, %bb : f32[300,256]
  %wy = mul %w, %y : f32[300,256]
  %loss = reduce_sum %wy {axes = [0, 1]} : f32[]
  return %loss
}
";

const L2_NORM: &str = "func @l2_norm(%x: f32[300,500], %w: f32[300,500]) -> f32[] {
  %xx = mul %x, %x : f32[300,500]
  %s = reduce_sum %xx {axes = [1]} : f32[300]
  %r = sqrt %s : f32[300]
  %rb = broadcast_in_dim %r {dims = [0]} : f32[300,500]
  %y = div %x, %rb : f32[300,500]
  %wy = mul %w, %y : f32[300,500]
  %loss = reduce_sum %wy {axes = [0, 1]} : f32[]
  return %loss
}
";

const SOFTMAX: &str = "func @softmax(%x: f32[300,1030], %w: f32[300,1030]) -> f32[] {
  %m = reduce_max %x {axes = [1]} : f32[300]
  %mb = broadcast_in_dim %m {dims = [0]} : f32[300,1030]
  %d = sub %x, %mb : f32[300,1030]
  %e = exp %d : f32[300,1030]
  %s = reduce_sum %e {axes = [1]} : f32[300]
  %sb = broadcast_in_dim %s {dims = [0]} : f32[300,1030]
  %y = div %e, %sb : f32[300,1030]
  %wy = mul %w, %y : f32[300,1030]
  %loss = reduce_sum %wy {axes = [0, 1]} : f32[]
  return %loss
}
";

/// The mean of a row's log-sum-exp minus the logit of its label, which is picked by a mask.
const CROSS_ENTROPY: &str = "func @cross_entropy(%x: f32[300,1000], %label: i32[300]) -> f32[] {
  %m = reduce_max %x {axes = [1]} : f32[300]
  %c = stop_gradient %m : f32[300]
  %cb = broadcast_in_dim %c {dims = [0]} : f32[300,1000]
  %d = sub %x, %cb : f32[300,1000]
  %e = exp %d : f32[300,1000]
  %s = reduce_sum %e {axes = [1]} : f32[300]
  %l = log %s : f32[300]
  %i = iota {axis = 1} : i32[300,1000]
  %lb = broadcast_in_dim %label {dims = [0]} : i32[300,1000]
  %hit = eq %i, %lb : bool[300,1000]
  %z = select_n %hit, 0.0, %d : f32[300,1000]
  %p = reduce_sum %z {axes = [1]} : f32[300]
  %n = sub %l, %p : f32[300]
  %sum = reduce_sum %n {axes = [0]} : f32[]
  %loss = div %sum, 300.0 : f32[]
  return %loss
}
";

/// The same, picked by a gather.
const CROSS_ENTROPY_GATHER: &str =
    "func @cross_entropy(%x: f32[300,1000], %label: i32[300]) -> f32[] {
  %m = reduce_max %x {axes = [1]} : f32[300]
  %c = stop_gradient %m : f32[300]
  %cb = broadcast_in_dim %c {dims = [0]} : f32[300,1000]
  %d = sub %x, %cb : f32[300,1000]
  %e = exp %d : f32[300,1000]
  %s = reduce_sum %e {axes = [1]} : f32[300]
  %l = log %s : f32[300]
  %lse = add %l, %c : f32[300]
  %r = iota {axis = 0} : i32[300,1]
  %k = reshape %label : i32[300,1]
  %at = concatenate %r, %k {axis = 1} : i32[300,2]
  %p = gather %x, %at {offset_dims = [], collapsed = [0, 1], start_map = [0, 1], sizes = [1, 1], mode = clip} : f32[300]
  %n = sub %lse, %p : f32[300]
  %sum = reduce_sum %n {axes = [0]} : f32[]
  %loss = div %sum, 300.0 : f32[]
  return %loss
}
";

#[test]
fn forward_and_backward_are_one_pass() {
    for text in [GELU, LAYER_NORM, L2_NORM, SOFTMAX, CROSS_ENTROPY] {
        for (options, compiled) in compiled(text, true) {
            let cost = cost(&compiled.program, &options.device);
            let what = format!("{options:?}\n{}", compiled.program);
            assert_eq!(compiled.program.steps.len(), 1, "{what}");
            assert_eq!(cost.bytes_moved, cost.least_bytes, "{what}");
        }
    }
}

#[test]
fn a_label_that_is_gathered_costs_its_element_beside_the_one_pass() {
    for (options, compiled) in compiled(CROSS_ENTROPY_GATHER, true) {
        let cost = cost(&compiled.program, &options.device);
        assert_eq!(compiled.program.steps.len(), 1, "{}", compiled.program);
        // The picked logits, and the labels in the stage that spreads them.
        assert!(cost.bytes_moved <= cost.least_bytes + 2 * 300 * 4, "{}", compiled.program);
    }
}

/// Equal gradients are one buffer that is handed out twice.
#[test]
fn equal_gradients_are_one_buffer() {
    for (_, compiled) in compiled(GELU, true) {
        let outputs = &compiled.program.outputs;
        assert_eq!(outputs[1], outputs[2], "{}", compiled.program);
    }
}

fn temps(compiled: &LoweredFunction) -> usize {
    compiled.program.buffers.values().filter(|b| b.role == Role::Temp).count()
}

#[test]
fn a_stack_of_elementwise_ops_keeps_nothing() {
    let mut text = String::from("func @stack(%x: f32[100,333]) -> f32[] {\n");
    let mut last = "x".to_string();
    for k in 0..8 {
        for (name, op) in [
            ("s", format!("mul %{last}, 1.1")),
            ("a", format!("add %s{k}, 0.1")),
            ("r", format!("relu %a{k}")),
            ("l", format!("logistic %{last}")),
            ("t", format!("tanh %{last}")),
            ("m", format!("mul %r{k}, %l{k}")),
            ("y", format!("add %m{k}, %t{k}")),
        ] {
            text += &format!("  %{name}{k} = {op} : f32[100,333]\n");
        }
        last = format!("y{k}");
    }
    text +=
        &format!("  %loss = reduce_sum %{last} {{axes = [0, 1]}} : f32[]\n  return %loss\n}}\n");
    for (_, compiled) in compiled(&text, true) {
        assert_eq!(compiled.program.steps.len(), 1, "{}", compiled.program);
        assert_eq!(temps(&compiled), 0, "{}", compiled.program);
    }
}

#[test]
fn reductions_of_one_input_over_different_axes_read_it_once() {
    let text = "func @two(%x: f32[130,70]) -> (f32[130], f32[70]) {
  %a = reduce_sum %x {axes = [1]} : f32[130]
  %b = reduce_max %x {axes = [0]} : f32[70]
  return %a, %b
}
";
    for (options, compiled) in compiled(text, false) {
        let cost = cost(&compiled.program, &options.device);
        assert_eq!(compiled.program.steps.len(), 1, "{}", compiled.program);
        assert_eq!(cost.bytes_moved, cost.least_bytes, "{}", compiled.program);
    }
}

#[test]
fn sine_and_cosine_of_one_input_are_one_kernel() {
    let text = "func @two(%x: f32[1000]) -> (f32[1000], f32[1000]) {
  %a = sin %x : f32[1000]
  %b = cos %x : f32[1000]
  return %a, %b
}
";
    for (options, compiled) in compiled(text, false) {
        let cost = cost(&compiled.program, &options.device);
        assert_eq!(compiled.program.steps.len(), 1, "{}", compiled.program);
        assert_eq!(cost.bytes_moved, cost.least_bytes, "{}", compiled.program);
    }
}

/// A bias, an activation and its mask follow a contraction in its step; the update of a weight follows
/// the contraction that makes its gradient.
#[test]
fn contractions_take_what_follows_them() {
    let text = "func @dense(%x: f32[40,30], %w: f32[30,20], %b: f32[20], %t: f32[40,20]) -> (f32[30,20], f32[20]) {
  %z = dot_general %x, %w {contract = [1] x [0]} : f32[40,20]
  %bb = broadcast_in_dim %b {dims = [1]} : f32[40,20]
  %zb = add %z, %bb : f32[40,20]
  %y = relu %zb : f32[40,20]
  %m = gt %zb, 0.0 : bool[40,20]
  %d = sub %y, %t : f32[40,20]
  %g = select_n %m, 0.0, %d : f32[40,20]
  %dw = dot_general %x, %g {contract = [0] x [0]} : f32[30,20]
  %step = mul %dw, 0.01 : f32[30,20]
  %new = sub %w, %step : f32[30,20]
  %db = reduce_sum %g {axes = [0]} : f32[20]
  return %new, %db
}
";
    for (_, compiled) in compiled(text, false) {
        let program = &compiled.program;
        assert_eq!(program.steps.len(), 2, "{program}");
        assert_eq!(temps(&compiled), 1, "{program}");
        let folds = |s: &Step| match s {
            Step::Contract(c) => {
                c.members.iter().flat_map(|m| &m.then.sinks).any(|s| matches!(s, Sink::Fold { .. }))
            }
            _ => false,
        };
        assert!(folds(&program.steps[0]), "{program}");
    }
}

/// A transposed operand is read where it lies.
#[test]
fn transpositions_fold_into_contractions() {
    let text = "func @f(%x: f32[2,7,3,5], %y: f32[2,9,3,5]) -> f32[2,7,3,9] {
  %a = transpose %x {perm = [0, 2, 1, 3]} : f32[2,3,7,5]
  %b = transpose %y {perm = [0, 2, 3, 1]} : f32[2,3,5,9]
  %s = dot_general %a, %b {batch = [0, 1] x [0, 1], contract = [3] x [2]} : f32[2,3,7,9]
  %t = transpose %s {perm = [0, 2, 1, 3]} : f32[2,7,3,9]
  return %t
}
";
    for (_, compiled) in compiled(text, false) {
        assert_eq!(compiled.program.steps.len(), 1, "{}", compiled.program);
    }
}

/// Layer norm, the scale of each row and the quantized row are one kernel.
#[test]
fn a_row_is_normalised_and_quantized_in_one_kernel() {
    let text = std::fs::read_to_string("tests/models/quantized_layer_norm.ir").expect("a model");
    for (_, compiled) in compiled(&text, false) {
        assert_eq!(compiled.program.steps.len(), 1, "{}", compiled.program);
    }
}

/// Random bits are made where they are used, and cost no memory.
#[test]
fn a_dropout_mask_is_never_stored() {
    let text = "func @dropout(%x: f32[64,100], %w: f32[64,100]) -> f32[] {
  %bits = rng_bits 7, 0 : u32[64,100]
  %keep = lt %bits, 3000000000 : bool[64,100]
  %y = select_n %keep, 0.0, %x : f32[64,100]
  %wy = mul %w, %y : f32[64,100]
  %loss = reduce_sum %wy {axes = [0, 1]} : f32[]
  return %loss
}
";
    for (_, compiled) in compiled(text, true) {
        assert_eq!(compiled.program.steps.len(), 1, "{}", compiled.program);
        assert_eq!(temps(&compiled), 0, "{}", compiled.program);
    }
}

/// However many operands a program has, no kernel asks more than a few of them for an element, and none has more
/// than a bounded number of results: the code of all kernels grows with the program, and no faster.
#[test]
fn kernels_stay_small_in_wide_programs() {
    let wide = |n: usize, made: bool| {
        let param = |k: usize| format!("%x{k}: f32[4]");
        let params: Vec<String> = (0..if made { 1 } else { n }).map(param).collect();
        let mut text = format!("func @f({}) -> f32[{}] {{\n", params.join(", "), 4 * n);
        let name = if made { "%y" } else { "%x" };
        for k in 0..if made { n } else { 0 } {
            text += &format!("  %y{k} = mul %x0, {k}.5 : f32[4]\n");
        }
        let operands: Vec<String> = (0..n).map(|k| format!("{name}{k}")).collect();
        text += &format!("  %z = concatenate {} {{axis = 0}}\n", operands.join(", "));
        text + "  return %z\n}\n"
    };
    let work = |text: &str, grad: bool| {
        let module = parse(text).expect("parses");
        let f = module.funcs.values().next().expect("a function");
        let g = adfuse::autodiff::vjp(&module, f, &differentiable(f, None).expect("floats"));
        let f = if grad { g.expect("differentiates") } else { f.clone() };
        let options =
            PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };
        let made = compile(&module, &f, &options).expect("compiles");
        verify(made.program.clone()).expect("verifies");
        let mut total = 0;
        for step in &made.program.steps {
            let Step::Kernel(kernel) = step else { continue };
            for stage in &kernel.stages {
                let pieces = stage.params.iter().map(|p| match p {
                    Param::Load(pieces) => pieces.len(),
                    _ => 1,
                });
                let most = pieces.clone().max().unwrap_or(0);
                assert!(most <= 16, "{most} ways of reading one parameter");
                assert!(stage.sinks.len() <= 257, "{} results", stage.sinks.len());
                total += pieces.sum::<usize>() + stage.sinks.len();
            }
        }
        total
    };
    for made in [false, true] {
        for grad in [false, true] {
            let [less, more] = [256, 1024].map(|n| work(&wide(n, made), grad));
            // What is computed may be written out where it is read, if there is little of it.
            let less = less.max(2 * 256);
            assert!(more <= 5 * less && more < 12 * 1024, "{less} and {more}: {made} {grad}");
        }
    }
    // Just beyond the most operands of one kernel.
    for n in [16, 17, 28, 29, 33] {
        work(&wide(n, false), true);
    }
}

/// Operations of all steps.
fn operations(program: &Program) -> u64 {
    let of = |o: &Ops| o.simple + o.special + o.integer;
    cost(program, &MachineModel::cpu()).steps.iter().map(|s| of(&s.ops)).sum()
}

fn strict(text: &str, grad: bool) -> LoweredFunction {
    let module = parse(text).expect("parses");
    let f = module.funcs.values().next().expect("a function").clone();
    let wrt = || differentiable(&f, None).expect("has floats");
    let f = match grad {
        true => forward_and_backward(&module, &f, &wrt()).expect("differentiates"),
        false => f,
    };
    let options =
        PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };
    compile(&Module::single(f.clone()), &f, &options).expect("compiles")
}

/// What is computed of a slice is not computed again for every other slice.
#[test]
fn gradients_of_slices_are_linear_in_their_number() {
    let sliced = |n: usize| {
        let mut text = format!("func @s(%x: f32[{n},8,16]) -> f32[] {{\n");
        for k in 0..n {
            text += &format!(
                "  %s{k} = slice %x {{start = [{k}, 0, 0], limit = [{}, 8, 16], stride = [1, 1, 1]}} : f32[1,8,16]
  %r{k} = reshape %s{k} : f32[8,16]
  %t{k} = tanh %r{k} : f32[8,16]\n",
                k + 1
            );
            text += &match k {
                0 => "  %h0 = tanh %t0 : f32[8,16]\n".into(),
                k => format!(
                    "  %a{k} = add %h{}, %t{k} : f32[8,16]\n  %h{k} = tanh %a{k} : f32[8,16]\n",
                    k - 1
                ),
            };
        }
        let last = format!("%h{}", n - 1);
        text + &format!("  %y = reduce_sum {last} {{axes = [0, 1]}} : f32[]\n  return %y\n}}\n")
    };
    let [less, more] = [64, 256].map(|n| {
        let made = strict(&sliced(n), true);
        (operations(&made.program), cost(&made.program, &MachineModel::cpu()).bytes_moved)
    });
    assert!(more.0 <= 5 * less.0 && more.1 <= 6 * less.1, "{less:?} and {more:?}");
}

/// Max pooling of something that is computed: its elements are not computed again for each element of a window, rows
/// are folded in the order in which they are computed, and accesses are affine.
#[test]
fn pools_of_computed_values_are_computed_once() {
    let text = "func @f(%x: f32[16,8,8,8], %g: f32[8], %b: f32[8]) -> f32[] {
  %s = reduce_sum %x {axes = [0, 2, 3]} : f32[8]
  %m = mul %s, 0.0009765625 : f32[8]
  %mb = broadcast_in_dim %m {dims = [1]} : f32[16,8,8,8]
  %c = sub %x, %mb : f32[16,8,8,8]
  %sq = square %c : f32[16,8,8,8]
  %vs = reduce_sum %sq {axes = [0, 2, 3]} : f32[8]
  %r = rsqrt %vs : f32[8]
  %rg = mul %r, %g : f32[8]
  %rgb = broadcast_in_dim %rg {dims = [1]} : f32[16,8,8,8]
  %n = mul %c, %rgb : f32[16,8,8,8]
  %bb = broadcast_in_dim %b {dims = [1]} : f32[16,8,8,8]
  %y = add %n, %bb : f32[16,8,8,8]
  %h = relu %y : f32[16,8,8,8]
  %p = reduce_window_max %h {window = [1, 1, 2, 2], strides = [1, 1, 2, 2]} : f32[16,8,4,4]
  %q = pad %p, 0.0 {low = [0, 0, 1, 1], high = [0, 0, 1, 1], interior = [0, 0, 0, 0]} : f32[16,8,6,6]
  %w = square %q : f32[16,8,6,6]
  %l = reduce_sum %w {axes = [0, 1, 2, 3]} : f32[]
  return %l
}
";
    let made = strict(text, true);
    let (points, ops) = (16 * 8 * 8 * 8, operations(&made.program));
    assert!(ops < 64 * points, "{} operations for each element of x", ops / points);
    let divides = |e: &IndexExpr| e.to_string().contains(['/', '%']);
    for step in &made.program.steps {
        let Step::Kernel(kernel) = step else { continue };
        for stage in &kernel.stages {
            for (param, k) in stage.params.iter().zip(0..) {
                let Param::Load(pieces) = param else { continue };
                let affine = pieces.iter().all(|p| !p.index.iter().any(divides));
                assert!(affine, "p{k} of\n{}", made.program);
            }
            for sink in &stage.sinks {
                let (Sink::Reduce { runs, .. } | Sink::Fold { runs, .. }) = sink else { continue };
                let ascends = |r: &Run| r.axes.windows(2).all(|w| w[0] < w[1]);
                assert!(runs.iter().all(ascends), "{}", made.program);
            }
        }
    }
}

/// A mask of random bits that forward and backward read is made once and kept as bits.
#[test]
fn random_bits_are_drawn_once() {
    let text = "func @f(%x: f32[64,256], %w: f32[256,256], %s: i64[]) -> f32[] {
  %bits = rng_bits %s, 0 : u32[64,256]
  %keep = lt %bits, 3000000000 : bool[64,256]
  %d = select_n %keep, 0.0, %x : f32[64,256]
  %t = tanh %d : f32[64,256]
  %y = dot_general %t, %w {contract = [1] x [0]} : f32[64,256]
  %e = select_n %keep, 0.0, %y : f32[64,256]
  %q = square %e : f32[64,256]
  %l = reduce_sum %q {axes = [0, 1]} : f32[]
  return %l
}
";
    let made = strict(text, true);
    let drawn = made.program.to_string().matches("mulhi.u32").count();
    let once = strict(
        "func @g(%s: i64[]) -> u32[64,256] {
  %bits = rng_bits %s, 0 : u32[64,256]
  return %bits
}
",
        false,
    );
    assert_eq!(drawn, once.program.to_string().matches("mulhi.u32").count(), "{}", made.program);
    assert!(made.program.buffers.values().any(|b| b.storage == Storage::Packed(1)));
}
