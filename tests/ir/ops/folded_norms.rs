//! Norms by known statistics become scaled weights: the forms that the rule knows, and similar ones that it leaves alone.

use crate::common::random::inputs;
use adfuse::backends::reference::{Silent, run};
use adfuse::fusion::Fp;
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::{AttentionSteps, inline, with_folded_norms};
use adfuse::ir::text::parse;
use adfuse::ir::verify::verify_function;
use adfuse::ir::{Function, Op};
use adfuse::pipeline::prepared_with;

/// A product with 8 channels in an axis of its result, of a type.
struct Product {
    params: &'static str,
    /// Instructions that give `%y` of type `T`.
    text: &'static str,
    ty: &'static str,
    channel: usize,
}

const DENSE: Product = Product {
    params: "%x: D[6000,24], %w: D[24,8]",
    text: "%y = dot_general %x, %w {contract = [1] x [0]} : T",
    ty: "D[6000,8]",
    channel: 1,
};

const TURNED: Product = Product {
    params: "%x: D[6000,24], %w: D[24,8]",
    text: "%z = dot_general %w, %x {contract = [0] x [1]} : D[8,6000]
           %y = transpose %z {perm = [1, 0]} : T",
    ty: "D[6000,8]",
    channel: 1,
};

const IMAGES: Product = Product {
    params: "%x: D[1,3,80,80], %w: D[8,3,3,3]",
    text: "%y = conv_general_dilated %x, %w {low = [1, 1], high = [1, 1]} : T",
    ty: "D[1,8,80,80]",
    channel: 1,
};

const CHANNELS_LAST: Product = Product {
    params: "%x: D[1,80,80,3], %w: D[3,3,3,8]",
    text: "%y = conv_general_dilated %x, %w {low = [1, 1], high = [1, 1], lhs_spec = [0, 3, 1, 2], rhs_spec = [3, 2, 0, 1], out_spec = [0, 3, 1, 2]} : T",
    ty: "D[1,80,80,8]",
    channel: 3,
};

const DEPTHWISE: Product = Product {
    params: "%x: D[1,8,80,80], %w: D[8,1,3,3]",
    text: "%y = conv_general_dilated %x, %w {low = [1, 1], high = [1, 1], feature_group_count = 8} : T",
    ty: "D[1,8,80,80]",
    channel: 1,
};

const GROUPS: Product = Product {
    params: "%x: D[1,6,80,80], %w: D[8,3,3,3]",
    text: "%y = conv_general_dilated %x, %w {low = [1, 1], high = [1, 1], feature_group_count = 2} : T",
    ty: "D[1,8,80,80]",
    channel: 1,
};

/// As many terms for an element as are too many.
const DEEP: Product = Product { params: "%x: D[8000,264], %w: D[264,8]", ty: "D[8000,8]", ..DENSE };

/// As few rows as are too few.
const FEW_ROWS: Product =
    Product { params: "%x: D[4000,24], %w: D[24,8]", ty: "D[4000,8]", ..DENSE };

const COMPUTED: Product = Product {
    params: "%x: D[6000,24], %w0: D[24,8]",
    text: "%w = tanh %w0 : D[24,8]
           %y = dot_general %x, %w {contract = [1] x [0]} : T",
    ty: "D[6000,8]",
    channel: 1,
};

/// `(y - mean) / sqrt(var + eps) * gamma + beta`.
const NAIVE: &str = "%v = add %var, 1e-5 : C  %s = sqrt %v : C  SPREAD mean  SPREAD s  SPREAD gamma  SPREAD beta
    %c = sub %y, %mean_ : T  %q = div %c, %s_ : T  %g = mul %q, %gamma_ : T  %r = add %g, %beta_ : T";
/// `(y - mean) * (rsqrt(var + eps) * gamma) + beta`, with the sum the other way around.
const SCALED: &str = "%v = add %var, 1e-5 : C  %i = rsqrt %v : C  %s = mul %i, %gamma : C  SPREAD mean  SPREAD s  SPREAD beta
    %c = sub %y, %mean_ : T  %g = mul %c, %s_ : T  %r = add %beta_, %g : T";
/// A scale without a shift, twice.
const SCALES: &str = "SPREAD gamma  %a = mul %gamma_, %y : T  %r = div %a, 3.0 : T";
/// A shift and a scale by one number.
const ONE: &str = "SPREAD beta  %o = broadcast_in_dim %k {dims = []} : T
    %a = add %y, %beta_ : T  %b = mul %a, %o : T  %r = sub %b, 0.5 : T";
/// Shifts alone.
const SHIFTS: &str = "SPREAD mean  SPREAD beta  %c = sub %y, %mean_ : T  %r = add %c, %beta_ : T";
/// The statistics are of what is normalized, as in training.
const TRAINING: &str = "%sum = reduce_sum %y {axes = OTHERS} : C  %m = mul %sum, 1e-3 : C  SPREAD m  SPREAD gamma  SPREAD beta
    %c = sub %y, %m_ : T  %g = mul %c, %gamma_ : T  %r = add %g, %beta_ : T";
/// Something else reads the product.
const READ: &str = "SPREAD mean  SPREAD gamma  %c = sub %y, %mean_ : T  %g = mul %c, %gamma_ : T  %r = max %g, %y : T";
/// Something else reads what is in between.
const READ_LATER: &str =
    "SPREAD mean  SPREAD gamma  SPREAD beta  %c = sub %y, %mean_ : T  %g = mul %c, %gamma_ : T
    %h = add %g, %beta_ : T  %r = max %h, %c : T";
/// The statistics are computed from other data.
const DATA: &str = "%m = cumsum %mean {axis = 0} : C  SPREAD m  SPREAD gamma  %c = sub %y, %m_ : T  %r = mul %c, %gamma_ : T";
/// A number over a shifted product is no scale of it.
const OVER: &str = "SPREAD mean  SPREAD gamma  %c = sub %y, %mean_ : T  %r = div %gamma_, %c : T";

/// The program, with `D`, `T`, `C` and spreads written out.
fn text(product: &Product, norm: &str, dtype: &str) -> String {
    let rank = product.ty.matches(',').count() + 1;
    let others: Vec<String> =
        (0..rank).filter(|&k| k != product.channel).map(|k| k.to_string()).collect();
    let mut body = format!("{}\n{norm}", product.text);
    for name in ["mean", "s", "gamma", "beta", "m"] {
        let spread =
            format!("%{name}_ = broadcast_in_dim %{name} {{dims = [{}]}} : T", product.channel);
        body = body.replace(&format!("SPREAD {name}  "), &format!("{spread}\n"));
        body = body.replace(&format!("SPREAD {name}\n"), &format!("{spread}\n"));
    }
    let body = body
        .replace("OTHERS", &format!("[{}]", others.join(", ")))
        .replace(": T", &format!(": {}", product.ty))
        .replace(": C", ": D[8]");
    let params =
        format!("{}, %mean: D[8], %var: D[8], %gamma: D[8], %beta: D[8], %k: D[]", product.params);
    let text = format!("func @f({params}) -> {} {{\n{body}\nreturn %r\n}}\n", product.ty);
    text.replace(": D[", &format!(": {dtype}[")).replace("-> D[", &format!("-> {dtype}["))
}

/// Instructions of these ops that compute as many elements as a type has.
fn large(f: &Function, ops: &[Op]) -> usize {
    let elements = f.ty(f.results()[0]).elements();
    let of = |i: &&adfuse::ir::Inst| {
        ops.contains(&f.op(**i)) && f.ty(f.inst_results(**i)[0]).elements() == elements
    };
    f.body_insts().iter().filter(of).count()
}

#[test]
fn norms_by_known_statistics_are_in_the_weights() {
    // The sums and products that are left of the norm.
    for (name, product, norm, dtype, left) in [
        ("dense", &DENSE, NAIVE, "f32", 1),
        ("dense", &DENSE, SCALED, "f64", 1),
        ("turned", &TURNED, NAIVE, "f64", 1),
        ("images", &IMAGES, SCALED, "f32", 1),
        ("images", &IMAGES, NAIVE, "f64", 1),
        ("channels last", &CHANNELS_LAST, NAIVE, "f64", 1),
        ("depthwise", &DEPTHWISE, SCALED, "f64", 1),
        ("groups", &GROUPS, NAIVE, "f64", 1),
        ("scales", &DENSE, SCALES, "f64", 0),
        ("one number", &IMAGES, ONE, "f64", 1),
        // What is left alone.
        ("deep", &DEEP, SCALED, "f64", 3),
        ("few rows", &FEW_ROWS, SCALED, "f64", 3),
        ("computed weights", &COMPUTED, SCALED, "f64", 3),
        ("shifts", &DENSE, SHIFTS, "f64", 2),
        ("training", &IMAGES, TRAINING, "f64", 3),
        ("read elsewhere", &DENSE, READ, "f64", 2),
        ("read in between", &DENSE, READ_LATER, "f64", 3),
        ("statistics of data", &DENSE, DATA, "f64", 2),
        ("a quotient", &DENSE, OVER, "f64", 2),
        ("16 bits", &DENSE, SCALED, "bf16", 3),
    ] {
        let text = text(product, norm, dtype);
        let module = parse(&text).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let f = module.funcs.values().next().expect("one");
        let inlined = inline(&module, f, &|_| true).unwrap_or_else(|d| panic!("{d}"));
        let new = with_folded_norms(&inlined).unwrap_or_else(|d| panic!("{d}\n{inlined}"));
        verify_function(&new).unwrap_or_else(|e| panic!("{}\n{new}", e[0]));
        let steps = large(&new, &[Op::Add, Op::Sub, Op::Mul, Op::Div]);
        assert_eq!(steps, left, "{name}\n{text}\n{new}");
        let args = inputs(f, &[Domain::Uniform(0.25, 2.0)]);
        let [old, new] = [f, &new].map(|f| run(&module, f, &args, &mut Silent).expect("runs"));
        let [old, new] = [&old[0], &new[0]].map(|all| all.to_f64s());
        let top = old.iter().fold(0f64, |m, x| m.max(x.abs()));
        let share = if dtype == "f64" { 1e-13 } else { 1e-5 };
        for (a, b) in old.iter().zip(&new) {
            assert!((a - b).abs() <= share * top || a == b, "{name}: {a} and {b}\n{text}");
        }
    }
}

/// A CPU's engine has it in the modes that are not strict; a GPU's does not.
#[test]
fn norms_are_folded_where_that_gains() {
    let text = text(&IMAGES, NAIVE, "f32");
    let module = parse(&text).unwrap_or_else(|e| panic!("{}", e[0]));
    let f = module.funcs.values().next().expect("one");
    let gpu = adfuse::pipeline::attention_steps(true);
    for (steps, fp, left) in [
        (AttentionSteps::Defined, Fp::Strict, 4),
        (AttentionSteps::Defined, Fp::Reproducible, 1),
        (AttentionSteps::Defined, Fp::Fast, 1),
        (gpu, Fp::Reproducible, 4),
        (gpu, Fp::Fast, 4),
    ] {
        let made = prepared_with(&module, f, (steps, fp)).unwrap_or_else(|d| panic!("{d}"));
        assert_eq!(large(&made, &[Op::Add, Op::Sub, Op::Mul, Op::Div]), left, "{fp:?}\n{made}");
    }
}
