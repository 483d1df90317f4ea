//! The verifier's rules: those that text cannot break, on functions built by hand, and that every
//! message of the verifier is expected by some test.

use crate::common::messages::{fits, messages};
use adfuse::ir::attrs::Attr;
use adfuse::ir::diag::Kind;
use adfuse::ir::text::print_function;
use adfuse::ir::verify::{MAX_ERRORS, verify_function};
use adfuse::ir::{
    Attrs, Builder, DType, Diagnostic, Dim, Function, Literal, Module, NewInst, Op, Operand, Phase,
    Symbol, TensorType, Value, verify,
};
use std::path::{Path, PathBuf};

/// A broken module, and the error it must give: class and a part of the message.
struct Broken {
    name: &'static str,
    module: Module,
    kind: Kind,
    part: &'static str,
}

fn f32s(dims: &[u64]) -> TensorType {
    TensorType::of(DType::F32, dims)
}

/// An instruction of the primal, without regions.
fn primal<'a>(op: Op, args: &'a [Value], attrs: Attrs, results: &'a [TensorType]) -> NewInst<'a> {
    NewInst { op, args, attrs, results, regions: &[], phase: Phase::PRIMAL }
}

/// A function of `%x: f32[2]` with one unchecked instruction, whose results it returns.
fn unchecked(op: Op, attrs: Attrs, results: &[TensorType]) -> Function {
    let mut f = Function::new("f");
    let body = f.body();
    let x = f.add_param(body, f32s(&[2]));
    let n = match op.def().arity {
        adfuse::ir::op::Arity::Exactly(n) | adfuse::ir::op::Arity::AtLeast(n) => n,
    };
    let i = f.add_inst(body, primal(op, &vec![x; n], attrs, results));
    f.region_mut(body).results = f.inst_results(i).to_vec();
    f
}

/// Every rule that text cannot break, since reading it reports the same before.
fn by_hand() -> Vec<Broken> {
    let mut all = Vec::new();
    let mut add = |name, module, kind, part| all.push(Broken { name, module, kind, part });
    let single = Module::single;

    let f = unchecked(Op::Neg, Attrs::none(), &[f32s(&[2])]);
    let mut twice = single(f.clone());
    twice.funcs.push(f.clone());
    add("two functions of one name", twice, Kind::Redefinition, "function @f is defined twice");

    let mut g = f.clone();
    let n = Symbol::new("n").expect("a symbol");
    g.symbols = vec![n, n];
    add("a symbol twice", single(g), Kind::Redefinition, "symbol `n` is declared twice");

    let mut g = Function::new("f");
    let body = g.body();
    let p = g.add_param(body, TensorType::new(DType::F32, [Dim::Sym(n)]));
    g.region_mut(body).results = vec![p];
    add(
        "a symbol of a parameter",
        single(g),
        Kind::UnknownName,
        "symbol `n` of f32[n] is not declared",
    );

    let mut g = Function::new("f");
    let body = g.body();
    let p = g.add_param(body, TensorType::of(DType::F32, &[1; 17]));
    g.region_mut(body).results = vec![p];
    add("too many axes", single(g), Kind::Limit, "17 axes, the limit is 16");

    let mut g = Function::new("f");
    let body = g.body();
    let p = g.add_param(body, TensorType::of(DType::Token, &[2]));
    g.region_mut(body).results = vec![p];
    add("a token with axes", single(g), Kind::Limit, "a token has no axes");

    let sym = TensorType::new(DType::F32, [Dim::Sym(n)]);
    let g = unchecked(Op::Neg, Attrs::none(), &[sym]);
    add(
        "a symbol of a result",
        single(g),
        Kind::UnknownName,
        "symbol `n` of f32[n] is not declared",
    );

    let mut g = Function::new("f");
    let body = g.body();
    let x = g.add_param(body, f32s(&[]));
    let first = g.add_inst(body, primal(Op::Neg, &[x], Attrs::none(), &[f32s(&[])]));
    let v = g.inst_results(first)[0];
    let second = g.add_inst(body, primal(Op::Neg, &[v], Attrs::none(), &[f32s(&[])]));
    let w = g.inst_results(second)[0];
    g.region_mut(body).results = vec![w];
    let mut swapped = g.clone();
    swapped.region_mut(body).insts.swap(0, 1);
    add(
        "used before it is defined",
        single(swapped),
        Kind::Dominance,
        "used before it is defined, or out of its region",
    );
    let mut missing = g.clone();
    missing.region_mut(body).insts.pop();
    add(
        "a result that is not defined",
        single(missing),
        Kind::Dominance,
        "a result is not defined in its region",
    );

    let g = unchecked(Op::ReduceSum, Attrs::none(), &[f32s(&[])]);
    add("a missing attribute", single(g), Kind::Attribute, "attribute `axes` is missing");
    let g = unchecked(Op::Neg, Attrs::none().with_int("axis", 0), &[f32s(&[2])]);
    add("an attribute too many", single(g), Kind::Attribute, "no attribute `axis` here");
    let g = unchecked(Op::ReduceSum, Attrs::none().with_int("axes", 0), &[f32s(&[])]);
    add(
        "an attribute of another kind",
        single(g),
        Kind::Attribute,
        "`axes` is a list of integers, found 0",
    );

    let values = vec![Literal::from_f64(DType::F64, 1.0); 2];
    let attrs = Attrs::none().with("values", Attr::Literals(values.into()));
    let g = unchecked(Op::Constant, attrs, &[f32s(&[2])]);
    add("values of another type", single(g), Kind::DType, "value 1.0:f64 in f32[2]");

    let mut g = Function::new("f");
    let body = g.body();
    let x = g.add_param(body, f32s(&[2]));
    let wide = g.add_literal(f32s(&[3]), Literal::one(DType::F32));
    let i = g.add_inst(body, primal(Op::Add, &[x, wide], Attrs::none(), &[f32s(&[2])]));
    g.region_mut(body).results = g.inst_results(i).to_vec();
    add(
        "a literal of another type",
        single(g),
        Kind::Literal,
        "a literal of type f32[3] where f32[2] is due",
    );

    let mut g = Function::new("f");
    let body = g.body();
    let p = g.add_param(body, TensorType::scalar(DType::Bool));
    g.add_inst(body, primal(Op::Cond, &[p], Attrs::none(), &[]));
    add("missing regions", single(g), Kind::Arity, "`cond` has the regions then, else");
    all
}

fn errors(module: &Module) -> Vec<Diagnostic> {
    verify(module).expect_err("broken")
}

#[test]
fn rules_that_text_cannot_break_are_checked() {
    for broken in by_hand() {
        let found = errors(&broken.module);
        let expected = |d: &&Diagnostic| d.kind == broken.kind && d.message.contains(broken.part);
        assert!(found.iter().any(|d| expected(&d)), "{}: {found:#?}", broken.name);
        assert!(
            found.iter().all(|d| d.at.func.as_deref() == Some("f")),
            "{}: {found:#?}",
            broken.name
        );
    }
}

#[test]
fn values_of_another_region_are_not_visible() {
    // An instruction of one branch reads a value of the other.
    let mut b = Builder::new("f");
    let p = b.param(TensorType::scalar(DType::Bool), Some("p"));
    let x = b.param(f32s(&[]), Some("x"));
    let then = b.open_region();
    let inner = b.op(Op::Neg, &[x]);
    b.close_region(&[inner]);
    let other = b.open_region();
    b.close_region(&[inner]);
    let i = b
        .try_inst(Op::Cond, &[Operand::Value(p)], Attrs::none(), Some(&[f32s(&[])]), &[then, other])
        .expect("types fit");
    let result = b.func().inst_results(i)[0];
    b.set_results(&[result]);
    let f = b.finish().expect("built");
    let found = verify_function(&f).expect_err("broken");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].kind, Kind::Dominance);
}

#[test]
fn the_builder_gives_the_same_errors() {
    let mut b = Builder::new("f");
    let x = Operand::Value(b.param(f32s(&[2]), None));
    let kind = |b: &mut Builder, op, args: &[Operand], attrs| {
        b.try_inst(op, args, attrs, None, &[]).expect_err("does not fit").kind
    };
    assert_eq!(kind(&mut b, Op::Neg, &[x, x], Attrs::none()), Kind::Arity);
    assert_eq!(kind(&mut b, Op::Reshape, &[x], Attrs::none()), Kind::Arity);
    assert_eq!(kind(&mut b, Op::ConvertElementType, &[x], Attrs::none()), Kind::Arity);
    assert_eq!(
        kind(&mut b, Op::Call, &[x], Attrs::none().with("func", Attr::Func("g".into()))),
        Kind::Arity
    );
    assert_eq!(kind(&mut b, Op::ReduceSum, &[x], Attrs::none()), Kind::Attribute);
    assert_eq!(
        kind(&mut b, Op::ReduceSum, &[x], Attrs::none().with_ints("axes", [1])),
        Kind::Attribute
    );
    let regions = b.open_region();
    b.close_region(&[]);
    let e = b.try_inst(Op::Neg, &[x], Attrs::none(), None, &[regions]).expect_err("has no region");
    assert_eq!((e.kind, e.message.as_str()), (Kind::Arity, "`neg` has no regions, found 1"));
    // Infallible building keeps the first error.
    let mut b = Builder::new("f");
    let x = b.param(f32s(&[2]), None);
    let y = b.param(f32s(&[3]), None);
    b.op(Op::Add, &[x, y]);
    b.op(Op::Exp, &[x, y]);
    let first = b.finish().expect_err("an error");
    assert_eq!(first.kind, Kind::Internal);
    assert!(first.message.contains("expected f32[2], found f32[3]"), "{first}");
}

#[test]
fn errors_are_bounded() {
    let mut f = Function::new("f");
    let body = f.body();
    let x = f.add_param(body, f32s(&[2]));
    for _ in 0..2 * MAX_ERRORS {
        f.add_inst(body, primal(Op::Neg, &[x], Attrs::none(), &[f32s(&[3])]));
    }
    assert_eq!(errors(&Module::single(f.clone())).len(), MAX_ERRORS);
    assert!(print_function(&f).lines().count() > MAX_ERRORS);
}

/// The classes of errors that the verifier and the rules of inference name.
const KINDS: &[Kind] = &[
    Kind::Limit,
    Kind::UnknownName,
    Kind::Redefinition,
    Kind::Arity,
    Kind::Attribute,
    Kind::DType,
    Kind::Shape,
    Kind::Literal,
    Kind::Dominance,
    Kind::Effect,
    Kind::CustomRule,
    Kind::Unsupported,
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// `KIND message` of every error that a filetest of this folder expects.
fn expected(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("reads");
        let lines = text.lines().filter_map(|l| l.strip_prefix("// error: "));
        found.extend(lines.filter_map(|l| l.split_once(' ')).map(|(_, e)| e.to_string()));
    }
    found
}

fn all_expected() -> Vec<String> {
    let by_hand = by_hand();
    let by_hand = by_hand.iter().flat_map(|b| errors(&b.module));
    let mut all = expected(&folder("tests/filetests/errors/verify"));
    all.extend(by_hand.map(|d| format!("{:?} {}", d.kind, d.message)));
    all
}

#[test]
fn every_class_of_errors_has_a_program() {
    let all = all_expected();
    for kind in KINDS {
        let word = format!("{kind:?} ");
        assert!(all.iter().any(|e| e.starts_with(&word)), "no program gives {kind:?}");
    }
    for source in SOURCES {
        let text = std::fs::read_to_string(folder(source)).expect("a source");
        // Not those of `AttrKind`.
        let whole = |at: usize| !text[..at].ends_with(char::is_alphanumeric);
        for (at, word) in text.match_indices("Kind::").filter(|(at, _)| whole(*at)) {
            let name = text[at + word.len()..].chars().take_while(char::is_ascii_alphanumeric);
            let name: String = name.collect();
            let known = name == "Internal" || KINDS.iter().any(|k| format!("{k:?}") == name);
            assert!(known, "{source} names Kind::{name}");
        }
    }
}

/// Where the verifier's messages are written.
const SOURCES: &[&str] = &[
    "ir/src/verify.rs",
    "ir/src/infer.rs",
    "ir/src/types.rs",
    "ir/src/op/view.rs",
    "ir/src/op/skew.rs",
    "ir/src/op/composed.rs",
    "ir/src/op/composed/convolution.rs",
    "ir/src/op/composed/quantize.rs",
    "ir/src/op/composed/running.rs",
    "ir/src/op/composed/tile.rs",
    "ir/src/op/composed/window.rs",
    "ir/src/op/reduce.rs",
    "ir/src/op/contract.rs",
    "ir/src/op/indirect.rs",
    "ir/src/op/source.rs",
    "ir/src/op/control.rs",
];

/// Texts in those files that are no message, or one that only a rule's own mistake can give.
const NOT_MESSAGES: &[&str] = &[
    "a transposition has a cotangent",
    "take {p:?} and return {r:?}",
    "take {p:?} and return {tangents:?}",
    "take {params:?} and return {results:?}, then residuals",
    "did you mean @{n}?",
    "batch and contract",
    // Asked of a composed op alone.
    "`{op}` is not composed of others",
    // Asked of an op that may be a step.
    "`{op}` is no step of its own",
    // Reading asks for the type first; the builder's tests have these.
    "the result type must be written, as `: f32[2]`",
    "the result types must be written, as `: f32[2]`",
];

#[test]
fn every_message_has_a_program() {
    let all = all_expected();
    let mut missing = Vec::new();
    let mut count = 0;
    for source in SOURCES {
        let text = std::fs::read_to_string(folder(source)).expect("a source");
        for message in messages(&text) {
            count += 1;
            let known = NOT_MESSAGES.contains(&message.as_str());
            if !known && !all.iter().any(|e| fits(&message, e)) {
                missing.push(format!("{source}: {message}"));
            }
        }
    }
    assert!(missing.is_empty(), "no program gives\n{}", missing.join("\n"));
    assert!(count > 60, "{count} messages");
}

#[test]
fn chains_of_calls_are_bounded() {
    let chain = |n: u32| {
        let mut text = "func @f0(%x: f32[]) -> f32[] {\n  return %x\n}\n".to_string();
        for k in 1..=n {
            let call = format!("  %0 = call %x {{func = @f{}}} : f32[]\n", k - 1);
            text += &format!("func @f{k}(%x: f32[]) -> f32[] {{\n{call}  return %0\n}}\n");
        }
        adfuse::ir::text::parse(&text).expect("well-formed text")
    };
    let limit = adfuse::ir::verify::MAX_CALL_DEPTH;
    assert!(adfuse::ir::verify(&chain(limit - 1)).is_ok());
    let errors = adfuse::ir::verify(&chain(limit + 5)).expect_err("too deep");
    assert_eq!((errors.len(), errors[0].kind), (1, adfuse::ir::Kind::Limit), "{errors:?}");
}

#[test]
fn inlining_is_bounded() {
    let mut text = "func @f0(%x: f32[]) -> f32[] {\n  return %x\n}\n".to_string();
    for k in 1..=40 {
        let call = |r, a| format!("  %{r} = call %{a} {{func = @f{}}} : f32[]\n", k - 1);
        let body = call("a", "x") + &call("b", "a");
        text += &format!("func @f{k}(%x: f32[]) -> f32[] {{\n{body}  return %b\n}}\n");
    }
    let module = adfuse::ir::text::parse(&text).expect("well-formed text");
    let f = module.find("f40").expect("the last");
    let e = adfuse::ir::rewrite::inline(&module, f, &|_| true).expect_err("2^40 instructions");
    assert_eq!(e.kind, adfuse::ir::Kind::Limit);
}
