//! Attention that is written out becomes the op: the forms that the rule knows, and similar ones that it leaves alone.

use crate::common::random::inputs;
use adfuse::autodiff::value_and_grad_has_aux;
use adfuse::backends::reference::{Silent, run};
use adfuse::fusion::Fp;
use adfuse::ir::Op;
use adfuse::ir::op::{AttentionReach, Domain};
use adfuse::ir::rewrite::{AttentionSteps, StepElements, with_attention};
use adfuse::ir::text::parse;
use adfuse::ir::verify::verify_function;

/// The softmax of `%s` along the last axis, of a type and of its rows, and what reads it.
fn weighed(of: &str, rows: &str, axis: usize, contract: &str) -> String {
    let dims: Vec<String> = (0..axis).map(|d| d.to_string()).collect();
    let dims = dims.join(", ");
    let operands = if contract.starts_with('%') { "" } else { "%p, %v " };
    format!(
        "%m = reduce_max %s {{axes = [{axis}]}} : {rows}
         %mb = broadcast_in_dim %m {{dims = [{dims}]}} : {of}
         %d = sub %s, %mb : {of}
         %e = exp %d : {of}
         %z = reduce_sum %e {{axes = [{axis}]}} : {rows}
         %zb = broadcast_in_dim %z {{dims = [{dims}]}} : {of}
         %p = div %e, %zb : {of}
         %y = dot_general {operands}{contract}"
    )
}

/// Parameters, instructions to `%s`, the types of scores, rows and results, their last axis, and the attributes of the second
/// contraction.
type Form = (&'static str, &'static str, [&'static str; 3], usize, &'static str);

const HEADS: &str = "%q: f64[2,3,9,4], %k: f64[2,3,130,4], %v: f64[2,3,130,5]";
const PRODUCTS: &str =
    "%t = dot_general %q, %k {batch = [0, 1] x [0, 1], contract = [3] x [3]} : f64[2,3,9,130]";
const TYPES: [&str; 3] = ["f64[2,3,9,130]", "f64[2,3,9]", "f64[2,3,9,5]"];
const VALUES: &str = "{batch = [0, 1] x [0, 1], contract = [3] x [2]}";

/// `%h` holds where causality shows a key, of places `%i`, from the end on `%i2`, and `%j`.
macro_rules! causal {
    () => {
        "%i = iota {axis = 0} : i32[9,130]
             %i2 = add %i, 121 : i32[9,130]
             %j = iota {axis = 1} : i32[9,130]
             %h = ge %i2, %j : bool[9,130]
             "
    };
}

/// What makes `%s` of the products of heads, with the attributes of the op that comes of each.
const FORMS: &[(&str, &str)] = &[
    ("", "%s = mul %t, 0.5 : f64[2,3,9,130]"),
    ("", "%s = div %t, 2.0 : f64[2,3,9,130]"),
    (
        "bias",
        "%i = iota {axis = 0} : f64[130]
             %b = broadcast_in_dim %i {dims = [3]} : f64[2,3,9,130]
             %s = add %t, %b : f64[2,3,9,130]",
    ),
    (
        "mask",
        "%i = iota {axis = 1} : i32[9,130]
             %r = rem %i, 3 : i32[9,130]
             %h = eq %r, 1 : bool[9,130]
             %b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, %t, -inf : f64[2,3,9,130]",
    ),
    (
        "causal",
        concat!(
            causal!(),
            "%b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,9,130]
             %f = mul %t, 0.25 : f64[2,3,9,130]
             %s = select_n %b, -inf, %f : f64[2,3,9,130]"
        ),
    ),
    // Windows: of the keys up to a place, to both sides of it, and hidden by two masks.
    (
        "window [20, 0]",
        concat!(
            causal!(),
            "%ij = sub %i2, %j : i32[9,130]
             %w = lt %ij, 21 : bool[9,130]
             %x = and %h, %w : bool[9,130]
             %b = broadcast_in_dim %x {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, -1e30, %t : f64[2,3,9,130]"
        ),
    ),
    (
        "window [7, 7]",
        "%i = iota {axis = 2} : i64[2,3,9,130]
             %j = iota {axis = 3} : i64[2,3,9,130]
             %ij = sub %j, %i : i64[2,3,9,130]
             %o = sub %ij, 121 : i64[2,3,9,130]
             %a = abs %o : i64[2,3,9,130]
             %b = gt %a, 7 : bool[2,3,9,130]
             %s = select_n %b, %t, -inf : f64[2,3,9,130]",
    ),
    (
        "window [40, 3]",
        "%i = iota {axis = 0} : i32[9,130]
             %j = iota {axis = 1} : i32[9,130]
             %i2 = add %i, 125 : i32[9,130]
             %h = le %i2, %j : bool[9,130]
             %b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,9,130]
             %u = select_n %b, %t, -inf : f64[2,3,9,130]
             %jm = add %j, -81 : i32[9,130]
             %g = lt %jm, %i : bool[9,130]
             %n = not %g : bool[9,130]
             %c = broadcast_in_dim %n {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %c, -inf, %u : f64[2,3,9,130]",
    ),
    // A choice between truth values, and a mask that places do not make: an iota of one element that is repeated is no place.
    (
        "window [30, 0]",
        concat!(
            causal!(),
            "%l = select_n %h, false, true : bool[9,130]
             %ij = sub %i2, %j : i32[9,130]
             %g = gt %ij, 30 : bool[9,130]
             %u = select_n %g, true, false : bool[9,130]
             %n = and %l, %u : bool[9,130]
             %b = broadcast_in_dim %n {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, -inf, %t : f64[2,3,9,130]"
        ),
    ),
    (
        "mask",
        "%i = iota {axis = 0} : i32[1,130]
             %i2 = add %i, 129 : i32[1,130]
             %ib = broadcast_in_dim %i2 {dims = [0, 1]} : i32[9,130]
             %j = iota {axis = 1} : i32[9,130]
             %h = ge %ib, %j : bool[9,130]
             %b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, -inf, %t : f64[2,3,9,130]",
    ),
    // Rows that see nothing of what a number hides are means of all values, and masks that leave every key hide nothing.
    ("mask", HIDDEN),
    ("mask", EMPTY),
    (
        "",
        "%h = broadcast_in_dim true {dims = []} : bool[9,130]
             %g = not %h : bool[9,130]
             %b = broadcast_in_dim %g {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, %t, -1e30 : f64[2,3,9,130]",
    ),
    // Numbers that are chosen by places, and compared with another; and numbers that are added.
    (
        "causal",
        concat!(
            causal!(),
            "%l = select_n %h, 0.0, 1.0 : f64[9,130]
             %g = eq %l, 0.0 : bool[9,130]
             %b = broadcast_in_dim %g {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, %t, -1e9 : f64[2,3,9,130]"
        ),
    ),
    (
        "causal",
        concat!(
            causal!(),
            "%l = convert_element_type %h : f64[9,130]
             %g = gt %l, 0.5 : bool[9,130]
             %x = select_n %g, -1e10, 0.0 : f64[9,130]
             %b = broadcast_in_dim %x {dims = [2, 3]} : f64[2,3,9,130]
             %s = add %t, %b : f64[2,3,9,130]"
        ),
    ),
    // A number that is added where a row sees nothing leaves its scores apart: a bias.
    (
        "bias",
        "%i = iota {axis = 1} : i32[9,130]
             %h = ge %i, 3 : bool[9,130]
             %x = select_n %h, -1e9, 0.0 : f64[9,130]
             %b = broadcast_in_dim %x {dims = [2, 3]} : f64[2,3,9,130]
             %s = add %b, %t : f64[2,3,9,130]",
    ),
    // A scale that is one element.
    (
        "",
        "%n = reduce_sum %q {axes = [0, 1, 2, 3]} : f64[]
             %c = reshape %n : f64[1,1]
             %b = broadcast_in_dim %c {dims = [2, 3]} : f64[2,3,9,130]
             %s = div %t, %b : f64[2,3,9,130]",
    ),
    // Another diagonal is a mask like others.
    (
        "mask",
        "%i = iota {axis = 2} : i32[2,3,9,130]
             %j = iota {axis = 3} : i32[2,3,9,130]
             %b = ge %i, %j : bool[2,3,9,130]
             %s = select_n %b, -inf, %t : f64[2,3,9,130]",
    ),
];

/// Forms of their own products.
const OTHERS: &[(&str, Form)] = &[
    // One head, and keys with their elements first.
    (
        "",
        (
            "%q: f64[9,4], %k: f64[4,130], %v: f64[130,5]",
            "%s = dot_general %q, %k {contract = [1] x [0]} : f64[9,130]",
            ["f64[9,130]", "f64[9]", "f64[9,5]"],
            1,
            "{contract = [1] x [0]}",
        ),
    ),
    // Heads after rows, as one product leaves queries, keys and values; a number as small as it gets hides what causality does.
    (
        "causal",
        (
            "%q: f64[2,130,3,4], %k: f64[2,130,3,4], %v: f64[2,130,3,5]",
            "%t = dot_general %q, %k {batch = [0, 2] x [0, 2], contract = [3] x [3]} : f64[2,3,130,130]
             %i = iota {axis = 0} : i32[130,130]
             %j = iota {axis = 1} : i32[130,130]
             %h = lt %i, %j : bool[130,130]
             %b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,130,130]
             %s = select_n %b, %t, -1e30 : f64[2,3,130,130]",
            ["f64[2,3,130,130]", "f64[2,3,130]", "f64[2,3,130,5]"],
            3,
            "{batch = [0, 1] x [0, 2], contract = [3] x [1]}",
        ),
    ),
    // Values first, as an `einsum` that gives rows before heads has them; keys first too.
    (
        "",
        (
            "%q: f64[2,9,3,4], %k: f64[2,130,3,4], %v: f64[2,130,3,5]",
            "%t = dot_general %k, %q {batch = [0, 2] x [0, 2], contract = [3] x [3]} : f64[2,3,130,9]
             %s = transpose %t {perm = [0, 1, 3, 2]} : f64[2,3,9,130]",
            ["f64[2,3,9,130]", "f64[2,3,9]", "f64[2,3,5,9]"],
            3,
            "%v, %p {batch = [0, 2] x [0, 1], contract = [1] x [3]}",
        ),
    ),
    // An axis of extent 1 that goes around scores, and heads that are not next to batches.
    (
        "causal",
        (
            "%q: f64[2,130,3,1,4], %k: f64[2,130,3,4], %v: f64[2,130,3,5]",
            "%t = dot_general %q, %k {batch = [0, 2] x [0, 2], contract = [4] x [3]} : f64[2,3,130,1,130]
             %u = transpose %t {perm = [3, 1, 0, 2, 4]} : f64[1,3,2,130,130]
             %i = iota {axis = 0} : i32[130,130]
             %j = iota {axis = 1} : i32[130,130]
             %h = lt %i, %j : bool[130,130]
             %b = broadcast_in_dim %h {dims = [3, 4]} : bool[1,3,2,130,130]
             %s = select_n %b, %u, -inf : f64[1,3,2,130,130]",
            ["f64[1,3,2,130,130]", "f64[1,3,2,130]", "f64[3,2,1,130,5]"],
            4,
            "{batch = [1, 2] x [2, 0], contract = [4] x [1]}",
        ),
    ),
    // Two heads share keys.
    (
        "",
        (
            "%q: f64[3,2,9,4], %k: f64[3,130,4], %v: f64[3,130,5]",
            "%s = dot_general %q, %k {batch = [0] x [0], contract = [3] x [2]} : f64[3,2,9,130]",
            ["f64[3,2,9,130]", "f64[3,2,9]", "f64[3,2,9,5]"],
            3,
            "{batch = [0] x [0], contract = [3] x [1]}",
        ),
    ),
];

fn text((params, scores, [of, rows, result], axis, values): Form, own: bool) -> String {
    let products = if own { "" } else { PRODUCTS };
    let rest = weighed(of, rows, axis, values);
    format!(
        "func @f({params}) -> {result} {{ {products}\n {scores}\n {rest} : {result}\n return %y }}"
    )
}

/// The form with these scores of the products of heads.
fn of_heads(scores: &'static str) -> Form {
    (HEADS, scores, TYPES, 3, VALUES)
}

#[test]
fn known_forms_become_attention() {
    let all = FORMS.iter().map(|&(kind, scores)| (kind, of_heads(scores), false));
    let all = all.chain(OTHERS.iter().map(|&(kind, form)| (kind, form, true)));
    for (kind, form, own) in all {
        let text = text(form, own);
        let module = parse(&text).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let f = module.funcs.values().next().expect("one");
        let (new, fired) = with_attention(f, AttentionSteps::Defined, Fp::Fast)
            .unwrap_or_else(|d| panic!("{d}\n{text}"));
        assert_eq!(fired.len(), 1, "{text}");
        verify_function(&new).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let made = &new;
        let is = |op: Op| made.body_insts().iter().copied().find(|&i| made.op(i) == op);
        let found = is(Op::Attention).expect("attention");
        assert!(is(Op::Exp).is_none(), "{text}");
        let reach = AttentionReach::of(new.attrs(found)).to_string();
        let is_mask = matches!(kind, "bias" | "mask");
        assert_eq!(reach.trim(), if is_mask { "" } else { kind }, "{text}");
        let extra = if is_mask { 4 } else { 3 };
        assert_eq!(new.args(found).len(), extra, "{text}");
        let args = inputs(f, &[Domain::Normal]);
        let [old, new] = [f, made].map(|f| run(&module, f, &args, &mut Silent).expect("runs"));
        let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-12 * (1.0 + y.abs());
        assert!(old[0].to_f64s().iter().zip(&new[0].to_f64s()).all(close), "{text}");
        let (_, again) = with_attention(made, AttentionSteps::Defined, Fp::Fast)
            .unwrap_or_else(|d| panic!("{d}\n{text}"));
        assert!(again.is_empty(), "{text}");
    }
}

/// Rows that a number hides have equal weights: nothing flows back to their queries, and each value has its part of theirs.
#[test]
fn rows_that_a_number_hides_have_the_gradients_of_what_is_written() {
    for scores in [HIDDEN, EMPTY, ROWS_HIDDEN] {
        let text = text(of_heads(scores), false);
        let text = text.replace("-> f64[2,3,9,5]", "-> f64[]").replace(
            "return %y",
            "%w = iota {axis = 2} : f64[2,3,9,5]
             %yw = mul %y, %w : f64[2,3,9,5]
             %l = reduce_sum %yw {axes = [0, 1, 2, 3]} : f64[]
             return %l",
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let f = module.funcs.values().next().expect("one");
        let (new, fired) = with_attention(f, AttentionSteps::Defined, Fp::Fast)
            .unwrap_or_else(|d| panic!("{d}\n{text}"));
        assert_eq!(fired.len(), 1, "{text}");
        let args = inputs(f, &[Domain::Normal]);
        let [old, new] = [f, &new].map(|f| {
            let g = value_and_grad_has_aux(&module, f, &[0, 1, 2]).expect("a gradient");
            run(&module, &g, &args, &mut Silent).expect("runs")
        });
        let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-9 * (1.0 + y.abs());
        for (k, (old, new)) in old.iter().zip(&new).enumerate() {
            let same = old.to_f64s().iter().zip(&new.to_f64s()).all(close);
            assert!(same, "result {k} of {text}");
        }
    }
}

/// A number hides all of two rows, and all but the first keys of others.
const ROWS_HIDDEN: &str = "%i = iota {axis = 0} : i32[9,130]
             %j = iota {axis = 1} : i32[9,130]
             %r = rem %i, 4 : i32[9,130]
             %n = mul %r, 10 : i32[9,130]
             %h = lt %j, %n : bool[9,130]
             %b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, -1e9, %t : f64[2,3,9,130]";

/// A mask by a number, which may hide all of a row.
const HIDDEN: &str = "%i = iota {axis = 1} : i32[9,130]
             %h = ge %i, 3 : bool[9,130]
             %b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, %t, -1e30 : f64[2,3,9,130]";

/// Causality by a number, of keys of which a mask hides the first ones.
const PADDED: &str = "%i = iota {axis = 0} : i32[9,130]
             %j = iota {axis = 1} : i32[9,130]
             %i2 = add %i, 121 : i32[9,130]
             %g = lt %j, 125 : bool[9,130]
             %c = broadcast_in_dim %g {dims = [2, 3]} : bool[2,3,9,130]
             %u = select_n %c, %t, -inf : f64[2,3,9,130]
             %h = ge %i2, %j : bool[9,130]
             %b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, -1e30, %u : f64[2,3,9,130]";

/// A mask by a number, of scores of which causality hides some by -inf.
const OVER_CAUSAL: &str = "%i = iota {axis = 0} : i32[9,130]
             %j = iota {axis = 1} : i32[9,130]
             %i2 = add %i, 121 : i32[9,130]
             %h = ge %i2, %j : bool[9,130]
             %b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,9,130]
             %u = select_n %b, -inf, %t : f64[2,3,9,130]
             %g = lt %j, 125 : bool[9,130]
             %c = broadcast_in_dim %g {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %c, %u, -1e30 : f64[2,3,9,130]";

/// A window that begins after a row's own place, which the first rows see nothing of.
const EMPTY: &str = "%i = iota {axis = 0} : i32[9,130]
             %j = iota {axis = 1} : i32[9,130]
             %i2 = add %i, 130 : i32[9,130]
             %h = lt %j, %i2 : bool[9,130]
             %b = broadcast_in_dim %h {dims = [2, 3]} : bool[2,3,9,130]
             %s = select_n %b, %t, -1e30 : f64[2,3,9,130]";

/// Naive code of 16-bit floats: scores are rounded, the softmax is of `f32`, weights are rounded.
const ROUNDED: &str =
    "func @f(%q: bf16[3,9,8], %k: bf16[3,130,8], %v: bf16[3,130,8]) -> bf16[3,9,8] {
  %t = dot_general %q, %k {batch = [0] x [0], contract = [2] x [2]} : bf16[3,9,130]
  %u = mul %t, 0.5 : bf16[3,9,130]
  %s = convert_element_type %u : f32[3,9,130]
  %m = reduce_max %s {axes = [2]} : f32[3,9]
  %mb = broadcast_in_dim %m {dims = [0, 1]} : f32[3,9,130]
  %d = sub %s, %mb : f32[3,9,130]
  %e = exp %d : f32[3,9,130]
  %z = reduce_sum %e {axes = [2]} : f32[3,9]
  %zb = broadcast_in_dim %z {dims = [0, 1]} : f32[3,9,130]
  %w = div %e, %zb : f32[3,9,130]
  %p = convert_element_type %w : bf16[3,9,130]
  %y = dot_general %p, %v {batch = [0] x [0], contract = [2] x [1]} : bf16[3,9,8]
  return %y
}";

/// It becomes attention where an engine has a step for that, and in the modes in which it has one.
#[test]
fn attention_of_16_bit_floats_is_known() {
    let module = parse(ROUNDED).unwrap_or_else(|e| panic!("{}", e[0]));
    let f = module.funcs.values().next().expect("one");
    let of = |most: u64, multiple: u64| StepElements { most, multiple };
    let rounded = AttentionSteps::ByMode { defined: of(128, 4), rounded: of(128, 8) };
    let cases = [
        (AttentionSteps::Defined, Fp::Reproducible, 1),
        (rounded, Fp::Fast, 1),
        (rounded, Fp::Reproducible, 1),
        (AttentionSteps::ByMode { defined: of(128, 4), rounded: of(4, 4) }, Fp::Fast, 0),
        (AttentionSteps::None, Fp::Fast, 0),
    ];
    for (steps, fp, times) in cases {
        let (new, fired) = with_attention(f, steps, fp).unwrap_or_else(|d| panic!("{d}"));
        assert_eq!(fired.len(), times, "{steps:?} {fp:?}");
        verify_function(&new).unwrap_or_else(|e| panic!("{}\n{new}", e[0]));
        let args = inputs(f, &[Domain::Small]);
        let [old, new] = [f, &new].map(|f| run(&module, f, &args, &mut Silent).expect("runs"));
        // Scores and weights are not rounded on the way: a part in 32, of what is rounded to 8 bits.
        let close = |(x, y): (&f64, &f64)| (x - y).abs() <= (1.0 + y.abs()) / 32.0;
        assert!(old[0].to_f64s().iter().zip(&new[0].to_f64s()).all(close), "{steps:?} {fp:?}");
    }
}

#[test]
fn other_forms_stay() {
    let base = text(of_heads(FORMS[0].1), false);
    let changed = [
        // Few keys, a softmax that is read elsewhere too, one along another axis, a scale that is no number.
        base.replace("130", "60"),
        base.replace("-> f64[2,3,9,5]", "-> (f64[2,3,9,5], f64[2,3,9,130])")
            .replace("return %y", "return %y, %p"),
        base.replace("f64[2,3,9]", "f64[2,3,130]")
            .replace("{axes = [3]}", "{axes = [2]}")
            .replace("{dims = [0, 1, 2]}", "{dims = [0, 1, 3]}"),
        base.replace("mul %t, 0.5", "mul %t, %t"),
        // Causality by a number, of keys of which a mask hides all that it shows: the number is greater than -inf.
        base.replace("%s = mul %t, 0.5 : f64[2,3,9,130]", PADDED),
        // A number chosen in place of what causality hid: rows whose keys are all hidden weigh them too.
        base.replace("%s = mul %t, 0.5 : f64[2,3,9,130]", OVER_CAUSAL),
    ];
    for text in changed {
        let module = parse(&text).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let f = module.funcs.values().next().expect("one");
        let (_, fired) =
            with_attention(f, AttentionSteps::Defined, Fp::Fast).unwrap_or_else(|d| panic!("{d}"));
        assert!(fired.is_empty(), "{text}");
    }
}
