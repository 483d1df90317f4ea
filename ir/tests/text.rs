//! The text form: canonical text is a fixpoint, and every error is data with a place.

use adfuse_ir::text::{parse, parse_example, print_function, print_inst, print_module};
use adfuse_ir::{Builder, DType, Diagnostic, Kind, Module, Op, TensorType};

const CANONICAL: &str = include_str!("data/canonical.ir");

fn errors(source: &str) -> Vec<Diagnostic> {
    parse(source).expect_err(source)
}

fn reads(source: &str) -> Module {
    parse(source).unwrap_or_else(|e| panic!("{source}\n{e:#?}"))
}

/// Prints, reads back and prints again: both texts must agree.
fn assert_fixpoint(m: &Module) -> String {
    let once = print_module(m);
    let twice = print_module(&reads(&once));
    assert_eq!(once, twice);
    once
}

/// Line and column, from 1, of the start of the error.
fn place(source: &str, d: &Diagnostic) -> (usize, usize) {
    let start = d.at.span.expect("every error has a place").start as usize;
    let before = &source[..start];
    (before.matches('\n').count() + 1, before.len() - before.rfind('\n').map_or(0, |i| i + 1) + 1)
}

#[test]
fn canonical_text_is_printed_as_it_was_read() {
    assert_eq!(print_module(&reads(CANONICAL)), CANONICAL);
    assert_eq!(reads(CANONICAL).to_string(), CANONICAL);
    assert_eq!(print_module(&reads("// nothing\n")), "");
}

#[test]
fn other_spellings_become_canonical() {
    let source = "// c\nfunc@f  <n> ( %x:f32[n, 2],%007:f32[2] )->(f32[n,2])\n{ // c\n\
        %12=neg %x%q = neg %12{}:f32[n,2]@p0 %z = add 1, %q return %z }";
    let wanted = "func @f<n>(%x: f32[n,2], %0: f32[2]) -> f32[n,2] {\n  %1 = neg %x : f32[n,2]\n  \
        %q = neg %1 : f32[n,2]\n  %z = add 1.0, %q : f32[n,2]\n  return %z\n}\n";
    assert_eq!(print_module(&reads(source)), wanted);
    // Regions may begin on lines of their own.
    let source = "func @f(%p: bool[]) -> f32[] {\n%0 = cond %p : f32[]\nthen\n{ yield 1 }\nelse {\n\
        yield 2.0 }\nreturn %0 }";
    assert_eq!(
        print_module(&reads(source)),
        "func @f(%p: bool[]) -> f32[] {\n  %0 = cond %p : f32[] then {\n    yield 1.0\n  } else {\n    \
         yield 2.0\n  }\n  return %0\n}\n"
    );
}

#[test]
fn every_example_of_the_table_is_a_fixpoint() {
    let mut count = 0;
    for op in Op::ALL {
        for example in op.def().examples {
            let m = parse_example(example).unwrap_or_else(|e| panic!("{example}\n{e:#?}"));
            let f = m.find("example").expect("its name");
            let inst = *f.body_insts().last().expect("an instruction");
            assert_eq!(f.op(inst), *op, "{example}");
            assert_eq!(f.results(), f.inst_results(inst), "{example}");
            let text = assert_fixpoint(&m);
            let (params, written) = example.split_once("|").expect("a bar");
            assert!(text.contains(&format!("({})", params.trim())), "{example}\n{text}");
            // What stands before the first region.
            let first = op.def().regions.first().map(|name| format!(" {name}"));
            let ends = first.and_then(|name| {
                [format!("{name} {{"), format!("{name}(")]
                    .iter()
                    .filter_map(|n| written.find(n))
                    .min()
            });
            let head = written[..ends.unwrap_or(written.len())].trim();
            assert!(text.contains(head), "{head}\n{text}");
            count += 1;
        }
    }
    assert!(count > 30, "only {count} examples");
}

#[test]
fn an_example_in_error_is_an_error() {
    for (text, kind) in [
        ("%x: f32[2] neg %x", Kind::Syntax),
        ("%x: f32[2] | %y = neg %x", Kind::Syntax),
        ("%x: f32[2] | neg %x neg %x", Kind::Syntax),
        ("%x: f32[2] | nge %x", Kind::UnknownOp),
        ("", Kind::Syntax),
    ] {
        assert_eq!(parse_example(text).expect_err(text)[0].kind, kind, "{text}");
    }
}

#[test]
fn every_kind_of_error_has_its_place_and_message() {
    let body = |line: &str| {
        format!(
            "func @f<n>(%x: f32[2,3], %p: bool[], %v: f32[n]) -> f32[2,3] {{\n  {line}\n  return %x\n}}\n"
        )
    };
    let table: &[(&str, Kind, (usize, usize), &str)] = &[
        // Grammar.
        ("%0 = ", Kind::Syntax, (3, 3), "an op"),
        ("%0 = neg %x,", Kind::Syntax, (3, 3), "expected an operand, found `return`"),
        ("%0 = add %x %x", Kind::Syntax, (2, 15), "`,` between operands"),
        ("%0 neg %x", Kind::Syntax, (2, 6), "`=` or `,`"),
        ("%0 = neg %x : f32[2,3] {y = 1}", Kind::Syntax, (2, 26), "found `{`"),
        ("%0 = neg %x : f32", Kind::Syntax, (2, 17), "without extents"),
        ("%0 = neg %x : f32[2,3", Kind::Syntax, (3, 3), "`,` or `]`"),
        ("%0 = neg %x @q", Kind::Syntax, (2, 15), "a phase"),
        ("%0 = neg %x @p256", Kind::Syntax, (2, 15), "a phase"),
        ("%0 = neg § %x", Kind::Syntax, (2, 12), "character `§`"),
        ("%0 = neg % x", Kind::Syntax, (2, 12), "without a name"),
        ("%0 = neg 1.2.3", Kind::Syntax, (2, 12), "malformed number"),
        ("%t = create_token {label = \"x", Kind::Syntax, (2, 30), "closing"),
        ("%t = create_token {label = \"\\q\"}", Kind::Syntax, (2, 30), "no escape `\\q`"),
        ("yield %x", Kind::Syntax, (2, 3), "expected `return`"),
        ("return %x\n  %0 = neg %x", Kind::Syntax, (3, 3), "after `return`"),
        // Names.
        ("%0 = ngeg %x", Kind::UnknownOp, (2, 8), "no op `ngeg`"),
        ("%0 = neg %y", Kind::UnknownName, (2, 12), "no value `%y`"),
        ("%x = neg %x", Kind::Redefinition, (2, 3), "`%x` is defined already"),
        ("%a, %a = split %x {sizes = [1, 1], axis = 0}", Kind::Redefinition, (2, 7), "`%a`"),
        ("%0 = neg %x : f32[m,3]", Kind::UnknownName, (2, 21), "symbol `m`"),
        ("%0 = neg %1\n  %1 = neg %x", Kind::Dominance, (2, 12), "`%1` is not defined here"),
        ("%0 = neg %0", Kind::Dominance, (2, 12), "own definition"),
        // Counts.
        ("%0 = neg %x, %x", Kind::Arity, (2, 3), "takes 1 operand, found 2"),
        ("%0, %1 = neg %x", Kind::Arity, (2, 3), "1 results here, 2 are named"),
        ("neg %x", Kind::Arity, (2, 3), "1 results here, 0 are named"),
        ("%0 = reshape %x", Kind::Arity, (2, 3), "needs its result type written"),
        ("%0 = constant {values = dense [1]} : ()", Kind::Arity, (2, 3), "needs its result type"),
        ("%0 = constant {values = dense [1]}", Kind::Arity, (2, 3), "needs its result type"),
        ("%0 = cond %p : f32[] then { yield 1.0 }", Kind::Arity, (2, 3), "`then`, `else`"),
        ("%0 = neg %x then { yield %x }", Kind::Arity, (2, 15), "no region, found region `then`"),
        // Attributes.
        ("%0 = reduce_sum %x", Kind::Attribute, (2, 3), "needs attribute `axes`"),
        ("%0 = reduce_sum %x {axis = [0]}", Kind::Attribute, (2, 23), "no attribute `axis`"),
        (
            "%0 = reduce_sum %x {axes = 0}",
            Kind::Attribute,
            (2, 30),
            "a list of integers, found `0`",
        ),
        ("%0 = reduce_sum %x {axes = [2]}", Kind::Attribute, (2, 3), "no axis 2"),
        ("%0 = rev %x {axes = [0], axes = [1]}", Kind::Attribute, (2, 28), "twice"),
        ("%0 = rev %x {axes = [99999999999999999999]}", Kind::Literal, (2, 24), "64 bits"),
        // Types and shapes.
        ("%0 = neg %p", Kind::DType, (2, 12), "operand 0: expected a number type, found bool[]"),
        ("%0 = neg %x : f64[2,3]", Kind::DType, (2, 17), "is f32[2,3], not f64[2,3]"),
        ("%0 = neg %x : f32[3,2]", Kind::Shape, (2, 17), "is f32[2,3], not f32[3,2]"),
        ("%0 = neg %x : flot32[2]", Kind::DType, (2, 17), "no element type `flot32`"),
        ("%0 = add %x, %v", Kind::Shape, (2, 16), "operand 1: expected f32[2,3], found f32[n]"),
        ("%0 = neg %x : f32[-1]", Kind::Shape, (2, 21), "not negative"),
        ("%0 = iota {axis = 0} : token[2]", Kind::Shape, (2, 26), "a token has no axes"),
        // Literals.
        ("%0 = add %x, true", Kind::Literal, (2, 16), "true is no f32"),
        ("%0 = neg 1.0", Kind::Literal, (2, 3), "write the result type"),
        ("%0 = add %x, 1e999", Kind::Literal, (2, 16), "too large"),
        ("%0 = add %x, 99999999999999999999", Kind::Literal, (2, 16), "64 bits"),
        ("%0 = constant {values = dense [1, 300]} : u8[2]", Kind::Literal, (2, 37), "300 is no u8"),
        (
            "%0 = cond %p : i32[] then { yield 1.5 } else { yield 1 }",
            Kind::Literal,
            (2, 37),
            "1.5 is no i32",
        ),
        // Limits.
        ("%0 = iota {axis = 0} : f32[1000000000,1000000000]", Kind::Limit, (2, 26), "larger than"),
        (
            "%0 = iota {axis = 0} : f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
            Kind::Limit,
            (2, 62),
            "too many axes",
        ),
    ];
    for (line, kind, at, message) in table {
        let source = body(line);
        let found = errors(&source);
        let first = &found[0];
        assert_eq!((first.kind, place(&source, first)), (*kind, *at), "{line}\n{found:#?}");
        assert!(first.message.contains(message), "{line}\n{found:#?}");
        assert_eq!(first.at.func.as_deref(), Some("f"), "{line}");
        assert_eq!(found.len(), 1, "one mistake, one error: {line}\n{found:#?}");
    }
}

#[test]
fn headers_and_modules_have_errors_of_their_own() {
    let table: &[(&str, Kind, (usize, usize), &str)] = &[
        ("neg", Kind::Syntax, (1, 1), "expected `func`"),
        ("func f() -> () { return }", Kind::Syntax, (1, 6), "the function's name"),
        ("func @f() { return }", Kind::Syntax, (1, 11), "`->`"),
        ("func @f(%x) -> () { return }", Kind::Syntax, (1, 11), "`:`"),
        ("func @f() -> () rule { return }", Kind::Syntax, (1, 17), "custom_jvp"),
        ("func @f() -> () custom_vjp(@a) { return }", Kind::Syntax, (1, 30), "`,`"),
        ("func @f() -> () {", Kind::Syntax, (1, 17), "never closed"),
        ("func @f() -> () { }", Kind::Syntax, (1, 19), "an instruction or `return`"),
        ("func @f<n, n>() -> () { return }", Kind::Redefinition, (1, 12), "symbol `n`"),
        ("func @f<abcdefghijklmnop>() -> () { return }", Kind::Syntax, (1, 9), "no symbol"),
        ("func @f(%x: f32[], %x: f32[]) -> () { return }", Kind::Redefinition, (1, 20), "`%x`"),
        ("func @f(%x: f32[]) -> f64[] { return %x }", Kind::DType, (1, 38), "declares f64[]"),
        ("func @f(%x: f32[]) -> f32[1] { return %x }", Kind::Shape, (1, 39), "declares f32[1]"),
        ("func @f(%x: f32[]) -> () { return %x }", Kind::Arity, (1, 28), "has 1 values"),
        ("func @f() -> u8[] { return -1 }", Kind::Literal, (1, 28), "-1 is no u8"),
        ("func @f() -> token { return 1 }", Kind::Literal, (1, 29), "1 is no token"),
        (
            "func @f() -> () { return }\nfunc @f() -> () { return }",
            Kind::Redefinition,
            (2, 6),
            "`@f`",
        ),
    ];
    for (source, kind, at, message) in table {
        let found = errors(source);
        let first = &found[0];
        assert_eq!((first.kind, place(source, first)), (*kind, *at), "{source}\n{found:#?}");
        assert!(first.message.contains(message), "{source}\n{found:#?}");
    }
}

#[test]
fn near_names_are_suggested() {
    let hint = |body: &str| {
        let source = format!("func @f<rows>(%weights: f32[2]) -> () {{\n{body}\nreturn\n}}");
        errors(&source)[0].hint.clone().unwrap_or_default()
    };
    for (body, wanted) in [
        ("%0 = logistc %weights", "`logistic`"),
        ("%0 = neg %wieghts", "`%weights`"),
        ("%0 = rev %weights {axs = [0]}", "`axes`"),
        ("%0 = rev %weights {direction = 1}", "it has `axes`"),
        ("%0 = neg %weights : fl32[2]", "`f32`"),
        ("%0 = neg %weights : f32[row]", "`rows`"),
        ("%0 = neg %weights : f32[elephant]", "@f<elephant>"),
        ("%0 = neg %weights : f32", "`f32[]`"),
        (
            "%0 = cond true : f32[] then { %q = neg 1.0 : f32[] yield %q } else { yield %q }",
            "later",
        ),
    ] {
        assert!(hint(body).contains(wanted), "{body}: {:?}", hint(body));
    }
}

#[test]
fn one_run_reports_independent_errors_once() {
    let source = "\
func @a(%x: f32[2], %bad: f31[2]) -> f32[2] {
  %0 = nge %x : f32[2]
  %1 = add %0, %0 : f32[2]
  %2 = add %x %x
  %3 = neg %2 : f32[3]
  %4 = exp %missing : f32[2]
  %5 = exp %missing : f32[2]
  %6 = neg %bad : f32[2]
  %7 = cond %x : f32[2 then {
    yield %x
  } else {
    yield %x
  }
  %8 = reduce_sum %x {axes = [0 : f32[]
  %9 = neg %x : f64[2]
  return %1
}
func @b(%x f32[2]) -> f32[2] {
  return %y
}
func @c(%x: f32[2]) -> f32[2] {
  %0 = cond true : f32[2] then {
    %1 = nge %x : f32[2]
    yield %1
  } else {
    yield %1
  }
  return %0
}
";
    let found = errors(source);
    let lines: Vec<usize> = found.iter().map(|d| place(source, d).0).collect();
    assert_eq!(lines, [1, 2, 4, 6, 9, 14, 15, 18, 23, 26], "{found:#?}");
    let funcs: Vec<&str> = found.iter().filter_map(|d| d.at.func.as_deref()).collect();
    assert_eq!(funcs, ["a", "a", "a", "a", "a", "a", "a", "b", "c", "c"]);
}

#[test]
fn regions_see_out_and_are_not_seen() {
    let cond = |inside: &str, after: &str| {
        format!(
            "func @f(%x: f32[], %p: bool[]) -> f32[] {{\n  %r = cond %p : f32[] then {{\n    {inside}\n  \
             }} else {{\n    yield %x\n  }}\n  {after}\n}}\n"
        )
    };
    reads(&cond("%y = neg %x\n    yield %y", "return %r"));
    let first = |inside, after| errors(&cond(inside, after))[0].kind;
    assert_eq!(first("%y = neg %x\n    yield %y", "return %y"), Kind::Dominance);
    assert_eq!(first("%x = neg %x\n    yield %x", "return %r"), Kind::Redefinition);
    assert_eq!(first("%r = neg %x\n    yield %r", "return %r"), Kind::Redefinition);
    assert_eq!(first("%y = neg %r\n    yield %y", "return %r"), Kind::Dominance);
}

#[test]
fn names_are_made_unique_and_legal() {
    let ty = TensorType::of(DType::F32, &[2]);
    let mut b = Builder::new("f");
    let long = "a".repeat(300);
    let names = ["x", "x", "x_1", "x", "", "12", "1a", "a b§c", &long, &long];
    let params: Vec<_> = names.iter().map(|n| b.param(ty.clone(), Some(n))).collect();
    let sum = b.op(Op::Add, &[params[0], params[1]]);
    b.set_results(&[sum]);
    let f = b.finish().expect("well-formed");
    let text = print_function(&f);
    let head = "func @f(%x: f32[2], %x_1: f32[2], %x_1_1: f32[2], %x_2: f32[2], %0: f32[2], \
        %1: f32[2], %_1a: f32[2], %a_b_c: f32[2], %aaa";
    assert!(text.starts_with(head), "{text}");
    assert_eq!(assert_fixpoint(&Module::single(f)), text);
}

#[test]
fn one_instruction_prints_on_one_line() {
    let m = reads(CANONICAL);
    let f = m.find("several").expect("defined");
    let lines: Vec<String> = f.body_insts().iter().map(|&i| print_inst(f, i)).collect();
    assert_eq!(lines[2], "%1 = cumsum %0 {axis = 0, reverse = true} : f32[2,3]");
    assert_eq!(lines[3], "%2, %c = cond %p : f32[2,2], f32[2,3] then {..} else {..}");
    let span = f.span(f.body_insts()[2]).expect("a place");
    assert_eq!(&CANONICAL[span.start as usize..span.end as usize], lines[2]);
}

#[test]
fn the_documented_programs_are_canonical() {
    let page = include_str!("../../docs/text-format.md");
    let programs: Vec<&str> =
        page.split("```ir\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(programs.len() >= 6);
    for program in programs {
        assert_eq!(print_module(&reads(program)), program);
    }
}
