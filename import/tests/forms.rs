//! Pretty and generic forms, what is refused and how it is told, names and places.

use adfuse_import::{ImportError, ImportOptions, Imported, coverage, is_stablehlo, stablehlo};

fn imported(text: &str) -> Imported {
    stablehlo(text, &ImportOptions::default()).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// A function of `params` with one result.
fn function(params: &str, result: &str, body: &str) -> String {
    format!("func.func public @main({params}) -> {result} {{\n{body}\n}}")
}

fn ir_of(text: &str) -> String {
    imported(text).module.to_string()
}

/// The pretty and the generic form of an instruction give the same program.
#[test]
fn both_forms_are_one_program() {
    let x = "%x: tensor<4x6xf32>";
    for (params, result, pretty, generic) in [
        (
            x,
            "tensor<4x6xf32>",
            "stablehlo.add %x, %x : tensor<4x6xf32>",
            "\"stablehlo.add\"(%x, %x) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>",
        ),
        (
            x,
            "tensor<2x3xf32>",
            "stablehlo.slice %x [0:4:2, 1:4] : (tensor<4x6xf32>) -> tensor<2x3xf32>",
            "\"stablehlo.slice\"(%x) <{start_indices = array<i64: 0, 1>, limit_indices = array<i64: 4, 4>, strides = array<i64: 2, 1>}> : (tensor<4x6xf32>) -> tensor<2x3xf32>",
        ),
        (
            x,
            "tensor<4x6xi1>",
            "stablehlo.compare LT, %x, %x, FLOAT : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>",
            "\"stablehlo.compare\"(%x, %x) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>",
        ),
        (
            x,
            "tensor<4x4xf32>",
            "stablehlo.dot_general %x, %x, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>",
            "\"stablehlo.dot_general\"(%x, %x) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}> : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>",
        ),
        (
            x,
            "tensor<6x4xf32>",
            "stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>",
            "\"stablehlo.transpose\"(%x) {permutation = dense<[1, 0]> : tensor<2xi64>} : (tensor<4x6xf32>) -> tensor<6x4xf32>",
        ),
        (
            x,
            "tensor<4x6xf32>",
            "stablehlo.reverse %x, dims = [0] : tensor<4x6xf32>",
            "\"stablehlo.reverse\"(%x) <{dimensions = array<i64: 0>}> : (tensor<4x6xf32>) -> tensor<4x6xf32>",
        ),
        (
            "%x: tensor<f32>",
            "tensor<2x3xf32>",
            "stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<2x3xf32>",
            "\"stablehlo.broadcast_in_dim\"(%x) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x3xf32>",
        ),
        (
            x,
            "tensor<3xi16>",
            "stablehlo.constant dense<[1, -2, 3]> : tensor<3xi16>",
            "\"stablehlo.constant\"() <{value = dense<[1, -2, 3]> : tensor<3xi16>}> : () -> tensor<3xi16>",
        ),
    ] {
        let program =
            |inst: &str| function(params, result, &format!("%0 = {inst}\nreturn %0 : {result}"));
        assert_eq!(ir_of(&program(pretty)), ir_of(&program(generic)), "{pretty}");
    }
}

#[test]
fn a_reduction_is_one_in_all_forms() {
    let params = "%x: tensor<4x6xf32>";
    let zero = "%z = stablehlo.constant dense<0.0> : tensor<f32>\n";
    let end = "\nreturn %0 : tensor<4xf32>";
    let types = ": (tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>";
    let forms = [
        format!(
            "%0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] {types}"
        ),
        format!(
            "%0 = stablehlo.reduce(%x init: %z) across dimensions = [1] {types}\n reducer(%a: tensor<f32>, %b: tensor<f32>) {{\n%1 = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %1 : tensor<f32>\n}}"
        ),
        format!(
            "%0 = \"stablehlo.reduce\"(%x, %z) <{{dimensions = array<i64: 1>}}> ({{\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%1 = stablehlo.add %b, %a : tensor<f32>\n\"stablehlo.return\"(%1) : (tensor<f32>) -> ()\n}}) {types}"
        ),
    ];
    let texts: Vec<String> = forms
        .iter()
        .map(|f| ir_of(&function(params, "tensor<4xf32>", &format!("{zero}{f}{end}"))))
        .collect();
    assert!(texts[0].contains("reduce_sum %x {axes = [1]} : f32[4]"), "{}", texts[0]);
    assert!(texts.iter().all(|t| *t == texts[0]), "{texts:#?}");
}

#[test]
fn generic_modules_are_modules() {
    let text = r#""builtin.module"() <{sym_name = "m"}> ({
      "func.func"() <{function_type = (tensor<2xf32>) -> tensor<2xf32>, sym_name = "main", sym_visibility = "public"}> ({
      ^bb0(%x: tensor<2xf32>):
        %0 = "func.call"(%x) <{callee = @g}> : (tensor<2xf32>) -> tensor<2xf32>
        "func.return"(%0) : (tensor<2xf32>) -> ()
      }) : () -> ()
      "func.func"() <{function_type = (tensor<2xf32>) -> tensor<2xf32>, sym_name = "g", sym_visibility = "private"}> ({
      ^bb0(%x: tensor<2xf32>):
        %0 = "stablehlo.sine"(%x) : (tensor<2xf32>) -> tensor<2xf32>
        "func.return"(%0) : (tensor<2xf32>) -> ()
      }) : () -> ()
    }) {mhlo.num_partitions = 1 : i32} : () -> ()"#;
    assert!(is_stablehlo(text));
    let ir = ir_of(text);
    assert!(ir.contains("call %x {func = @g}") && ir.contains("sin %x"), "{ir}");
}

#[test]
fn texts_are_told_apart_by_what_they_begin_with() {
    for text in [
        "module @m {",
        "// a comment\n\nmodule {\n}",
        "func.func @f() {",
        "#loc = loc(unknown)\nmodule {",
    ] {
        assert!(is_stablehlo(text), "{text}");
    }
    for text in
        ["", "func @f() -> () { return }", "// module\nfunc @module() -> () { return }", "modules"]
    {
        assert!(!is_stablehlo(text), "{text}");
    }
}

/// What cannot be imported is listed whole, each reason once with its number.
#[test]
fn all_refusals_are_told_with_their_places() {
    let text = function(
        "%x: tensor<2xf32>, %c: tensor<2xcomplex<f32>>, %n: tensor<2xf8E4M3FN>",
        "tensor<2xf32>",
        "%0 = stablehlo.tanh %c : tensor<2xcomplex<f32>>
         %1 = stablehlo.custom_call @mine(%x) : (tensor<2xf32>) -> tensor<2xf32>
         %2 = stablehlo.custom_call @mine(%1) : (tensor<2xf32>) -> tensor<2xf32>
         %3 = stablehlo.custom_call @mine(%x) : (tensor<2xf32>) -> tensor<2xf32>
         %4 = stablehlo.add %2, %x : tensor<2xf32>
         %5 = stablehlo.sine %x {mode = 3 : i32} : tensor<2xf32>
         %6 = stablehlo.cosine %x : tensor<2xi32>
         return %4 : tensor<2xf32>",
    );
    let error = stablehlo(&text, &ImportOptions::default()).expect_err("is refused");
    let told: Vec<String> = error.diagnostics().iter().map(|d| d.message.clone()).collect();
    assert_eq!(
        told,
        [
            "`func.func` cannot be imported: elements of type f8E4M3FN",
            "`stablehlo.tanh` cannot be imported: complex numbers",
            "`stablehlo.custom_call @mine` cannot be imported: a custom call that is not known (3 times)",
            "`stablehlo.sine` cannot be imported: the attribute `mode`",
            "`stablehlo.cosine` cannot be imported: a result of type f32[2] where the text says i32[2]",
        ]
    );
    let first = error.diagnostics()[2].at.span.expect("a place");
    assert!(
        text[first.start as usize..first.end as usize]
            .starts_with("%1 = stablehlo.custom_call @mine(%x)")
    );
    let table = coverage(&text, &ImportOptions::default()).expect("a table").to_string();
    assert!(
        table.contains("stablehlo.custom_call @mine")
            && table.lines().next().is_some_and(|l| l.starts_with("op")),
        "{table}"
    );
}

#[test]
fn syntax_errors_have_places() {
    for (text, at, message) in [
        ("module {\n  oops\n}", "oops", "expected `module` or `func.func`"),
        ("func.func @f(%x tensor<2xf32>) { return }", "tensor", "expected `:`"),
        (
            "func.func @f(%x: tensor<2yf32>) { return }",
            "tensor<2yf32>",
            "an extent needs an `x` behind it",
        ),
        ("func.func @f() { %0 = a.b \"open", "\"", "this string does not end"),
        ("func.func @f() { a.b : tensor<2xf32", "<", "this `<` is not closed"),
        ("module attributes] {", "]", "expected an opening bracket"),
    ] {
        let Err(ImportError::Syntax(error)) = stablehlo(text, &ImportOptions::default()) else {
            panic!("{text}")
        };
        let start = error.at.span.expect("a place").start as usize;
        assert!(text[start..].starts_with(at), "{text}: {error} at {start}");
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn names_and_places_of_the_source_are_kept() {
    let text = function(
        "%x: tensor<2xf32>",
        "tensor<2xf32>",
        "%hidden = stablehlo.tanh %x : tensor<2xf32>\nreturn %hidden : tensor<2xf32>",
    );
    let imported = imported(&text);
    let f = imported.module.find("main").expect("main");
    assert!(imported.module.to_string().contains("%hidden = tanh %x"));
    let span = f.span(f.body_insts()[0]).expect("a place");
    assert_eq!(
        &text[span.start as usize..span.end as usize],
        "%hidden = stablehlo.tanh %x : tensor<2xf32>"
    );
}

/// Texts that JAX writes with `debug_info` have the lines of Python and the names of arguments.
#[test]
fn lines_and_arguments_of_python_are_kept() {
    let text = "#loc1 = loc(\"params['w'][0]\")
    module @jit_loss {
      func.func public @main(%arg0: tensor<2xf32> loc(#loc1), %arg1: tensor<2xf32> loc(\"x\")) -> tensor<2xf32> {
        %0 = stablehlo.multiply %arg0, %arg1 : tensor<2xf32> loc(#loc4)
        %1 = call @tanh(%0) : (tensor<2xf32>) -> tensor<2xf32> loc(#loc3)
        %2 = \"stablehlo.negate\"(%1) : (tensor<2xf32>) -> tensor<2xf32> loc(\"/home/ada/net/src/model.py\":9:4)
        return %2 : tensor<2xf32> loc(#loc)
      } loc(#loc)
      func.func private @tanh(%arg0: tensor<2xf32> loc(unknown)) -> tensor<2xf32> {
        %0 = stablehlo.tanh %arg0 : tensor<2xf32> loc(unknown)
        return %0 : tensor<2xf32> loc(#loc)
      } loc(#loc)
    } loc(#loc)
    #loc = loc(unknown)
    #loc2 = loc(\"/home/ada/net/src/model.py\":7:12 to :20)
    #loc3 = loc(\"/home/ada/net/src/model.py\":8:4 to :20)
    #loc4 = loc(\"jit(loss)/mul\"(#loc5))
    #loc5 = loc(callsite(#loc2 at #loc3))\n";
    let imported = imported(text);
    let f = imported.module.find("main").expect("main");
    let text = f.to_string();
    assert!(text.contains("@main(%params.w.0: f32[2], %x: f32[2])"), "{text}");
    let lines: Vec<Option<String>> =
        f.body_insts().iter().map(|&i| f.source_line(i).map(ToString::to_string)).collect();
    let of = |line: &str| Some(format!("net/src/model.py:{line}"));
    assert_eq!(lines, [of("7:12"), of("8:4"), of("9:4")], "{text}");
}

#[test]
fn shardings_annotations_and_locations_are_left_out() {
    let text = "#loc = loc(unknown)
    module @m attributes {mhlo.num_partitions = 1 : i32} {
      sdy.mesh @mesh = <[\"x\"=2]>
      func.func public @main(%x: tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, {}]>} loc(\"x\")) -> (tensor<2x4xf32> {jax.result_info = \"\"}) {
        %0 = sdy.sharding_constraint %x <@mesh, [{\"x\"}, {}]> : tensor<2x4xf32> loc(#loc)
        %1 = stablehlo.custom_call @Sharding(%0) {backend_config = \"\", mhlo.sharding = \"{devices=[2,1]}\"} : (tensor<2x4xf32>) -> tensor<2x4xf32> loc(callsite(\"a\" at \"b\"))
        %2 = stablehlo.custom_call @LayoutConstraint(%1) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([k, l]) {i=2, j=4, k=2, l=4}>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
        return %2 : tensor<2x4xf32> loc(#loc)
      } loc(#loc)
    } loc(#loc)
    #loc1 = loc(\"f.py\":3:4)\n";
    assert_eq!(ir_of(text), "func @main(%x: f32[2,4]) -> f32[2,4] {\n  return %x\n}\n");
}

/// A complex value is two, with the name of the source and what part each is.
#[test]
fn complex_values_are_pairs() {
    let text = "func.func public @main(%z: tensor<2xcomplex<f32>>, %p: tensor<i1>) -> (tensor<2xcomplex<f32>>, tensor<2xf32>) {
      %c = stablehlo.constant dense<[(1.0, 2.0), (3.0, -4.0)]> : tensor<2xcomplex<f32>>
      %w = \"stablehlo.if\"(%p) ({
        %s = stablehlo.multiply %z, %c : tensor<2xcomplex<f32>>
        stablehlo.return %s : tensor<2xcomplex<f32>>
      }, {
        stablehlo.return %c : tensor<2xcomplex<f32>>
      }) : (tensor<i1>) -> tensor<2xcomplex<f32>>
      %a = stablehlo.abs %w : (tensor<2xcomplex<f32>>) -> tensor<2xf32>
      return %w, %a : tensor<2xcomplex<f32>>, tensor<2xf32>
    }";
    let ir = ir_of(text);
    let head = "func @main(%z.re: f32[2], %z.im: f32[2], %p: bool[]) -> (f32[2], f32[2], f32[2])";
    for wanted in
        [head, "%w.re, %w.im = cond %p : f32[2], f32[2]", "dense [1.0, 3.0]", "dense [2.0, -4.0]"]
    {
        assert!(ir.contains(wanted), "no `{wanted}` in\n{ir}");
    }
    adfuse_ir::text::parse(&ir).unwrap_or_else(|e| panic!("{ir}\n{e:#?}"));
}

/// Dynamic ops whose extents are constants are the ops without them.
#[test]
fn dynamic_ops_of_constants_are_static() {
    let text = "func.func public @main(%x: tensor<4xf32>) -> tensor<3xf32> {
      %a = stablehlo.constant dense<1> : tensor<1xi64>
      %b = stablehlo.constant dense<3> : tensor<1xi64>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %s = \"stablehlo.real_dynamic_slice\"(%x, %a, %b, %a) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2xf32>
      %n = stablehlo.constant dense<0> : tensor<1xi64>
      %y = \"stablehlo.dynamic_pad\"(%s, %z, %a, %n, %n) : (tensor<2xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<3xf32>
      return %y : tensor<3xf32>
    }";
    let ir = ir_of(text);
    assert!(
        ir.contains("start = [1], limit = [3]") && ir.contains("low = [1], high = [0]"),
        "{ir}"
    );
    let other = text
        .replace("%x, %a, %b, %a", "%x, %a, %b, %m")
        .replace("(%x: tensor<4xf32>)", "(%x: tensor<4xf32>, %m: tensor<1xi64>)");
    let error = stablehlo(&other, &ImportOptions::default()).expect_err("is refused").to_string();
    assert!(error.contains("operand 3 that is no constant"), "{error}");
}

/// Extents that are not written are symbols where operands say which, and refused with a place where these do not express them.
#[test]
fn extents_are_symbols_or_are_refused() {
    let of =
        |body: &str, result: &str| function("%x: tensor<?x4xf32>, %y: tensor<?xf32>", result, body);
    let twice = of(
        "%n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
         %m = stablehlo.add %n, %n : tensor<i32>
         %s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
         %z = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
         return %z : tensor<?xf32>",
        "tensor<?xf32>",
    );
    let error = stablehlo(&twice, &ImportOptions::default()).expect_err("a sum of extents");
    let [first] = &error.diagnostics()[..] else { panic!("{error}") };
    assert!(first.message.contains("an extent that is computed from others"), "{error}");
    let at = first.at.span.expect("a place");
    assert!(twice[at.start as usize..].starts_with("%z = stablehlo.dynamic_iota"));
    let fixed = stablehlo(&twice, &ImportOptions::default().extent("d0", 3)).expect("known");
    assert!(fixed.module.to_string().contains("f32[6]"));
    let error = stablehlo(&twice, &ImportOptions::default().extent("d7", 3)).expect_err("no d7");
    assert!(error.to_string().contains("no extent of a parameter is called `d7`"), "{error}");
    let other = of(
        "%z = stablehlo.add %x, %y : tensor<?x4xf32>\n return %z : tensor<?x4xf32>",
        "tensor<?x4xf32>",
    );
    assert!(stablehlo(&other, &ImportOptions::default()).is_err());
    let slice = of(
        "%z = stablehlo.slice %x [0:1, 0:4] : (tensor<?x4xf32>) -> tensor<1x4xf32>
         return %z : tensor<1x4xf32>",
        "tensor<1x4xf32>",
    );
    let error = stablehlo(&slice, &ImportOptions::default()).expect_err("part of an axis");
    assert!(error.to_string().contains("part of an axis whose extent is a symbol"), "{error}");
    let columns = of(
        "%n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
         %k = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
         %c = stablehlo.constant dense<3> : tensor<1xi32>
         %l = stablehlo.concatenate %k, %c, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
         %s = stablehlo.constant dense<[0, 1]> : tensor<2xi32>
         %t = stablehlo.constant dense<1> : tensor<2xi32>
         %z = stablehlo.real_dynamic_slice %x, %s, %l, %t : (tensor<?x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x2xf32>
         return %z : tensor<?x2xf32>",
        "tensor<?x2xf32>",
    );
    assert!(ir_of(&columns).contains("f32[d0,2]"), "{}", ir_of(&columns));
}

/// Running sums of many elements are an op; few are added in the order of the text.
#[test]
fn running_sums_are_an_op_where_they_are_long() {
    let sums = |n: u64| {
        ir_of(&function(
            &format!("%x: tensor<{n}xf32>"),
            &format!("tensor<{n}xf32>"),
            &format!(
                "%c = stablehlo.constant dense<0.0> : tensor<f32>
                 %0 = \"stablehlo.reduce_window\"(%x, %c) <{{padding = dense<[[{}, 0]]> : tensor<1x2xi64>, window_dimensions = array<i64: {n}>}}> ({{
                 ^bb0(%a: tensor<f32>, %b: tensor<f32>):
                   %1 = stablehlo.add %a, %b : tensor<f32>
                   stablehlo.return %1 : tensor<f32>
                 }}) : (tensor<{n}xf32>, tensor<f32>) -> tensor<{n}xf32>
                 return %0 : tensor<{n}xf32>",
                n - 1
            ),
        ))
    };
    assert!(sums(17).contains("cumsum") && !sums(16).contains("cumsum"), "{}", sums(17));
    assert_eq!(sums(16).matches("= add").count(), 15);
}

/// Sums of up to sixteen floats are added in the order of the window, as few others are; hostile windows are refused.
#[test]
fn small_windows_are_summed_in_order() {
    let text = |window: &str, element: &str, result: &str, dilation: &str| {
        let body = format!(
            "%z = stablehlo.constant dense<0{}> : tensor<{element}>
            %0 = \"stablehlo.reduce_window\"(%x, %z) <{{window_dimensions = array<i64: {window}>, window_dilations = array<i64: {dilation}, 1>}}> ({{
            ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
              %s = stablehlo.add %a, %b : tensor<{element}>
              stablehlo.return %s : tensor<{element}>
            }}) : (tensor<8x8x{element}>, tensor<{element}>) -> tensor<{result}x{element}>
            return %0 : tensor<{result}x{element}>",
            if element == "f32" { ".0" } else { "" }
        );
        function(
            &format!("%x: tensor<8x8x{element}>"),
            &format!("tensor<{result}x{element}>"),
            &body,
        )
    };
    for (window, element, result, adds, pads) in [
        ("3, 3", "f32", "6x6", 8, 1),
        ("2, 2", "f32", "7x7", 3, 1),
        ("4, 4", "f32", "5x5", 15, 1),
        ("5, 4", "f32", "4x5", 0, 0),
        ("3, 3", "i32", "6x6", 0, 0),
    ] {
        let ir = ir_of(&text(window, element, result, "1"));
        assert_eq!(ir.matches(" = add ").count(), adds, "{ir}");
        assert_eq!(ir.matches(" = pad ").count(), pads, "{ir}");
        assert_eq!(ir.contains("reduce_window_sum"), adds == 0, "{ir}");
    }
    for dilation in ["9223372036854775807", "0", "-1", "8"] {
        let text = text("3, 3", "f32", "6x6", dilation);
        assert!(stablehlo(&text, &ImportOptions::default()).is_err(), "{text}");
    }
}

/// Functions of JAX called `relu` and `relu6` are told from other functions of the same ops, which have other derivatives where the operand is a bound.
#[test]
fn rectifiers_of_jax_are_told_by_name() {
    let text = |name: &str, bound: &str| {
        format!(
            "func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
              %0 = call @{name}(%x) : (tensor<3xf32>) -> tensor<3xf32>
              return %0 : tensor<3xf32>
            }}
            func.func private @{name}(%x: tensor<3xf32>) -> tensor<3xf32> {{
              %c = stablehlo.constant dense<{bound}> : tensor<3xf32>
              %0 = stablehlo.maximum %x, %c : tensor<3xf32>
              return %0 : tensor<3xf32>
            }}"
        )
    };
    for (name, bound, rectifies) in [
        ("relu", "0.0", true),
        ("relu_12", "0.0", true),
        ("relu6", "0.0", true),
        ("relu", "1.0", false),
        ("relu_of", "0.0", false),
        ("clip", "0.0", false),
    ] {
        let ir = ir_of(&text(name, bound));
        assert_eq!(ir.contains("= relu %x"), rectifies, "{ir}");
    }
}

/// What a text for adfuse says that StableHLO has no op for, and formats with more bits than the operand.
#[test]
fn calls_and_formats_that_leave_values_as_they_are() {
    for (op, wanted) in [
        (
            "stablehlo.custom_call @adfuse.stop_gradient(%x) : (tensor<3xf32>) -> tensor<3xf32>",
            "stop_gradient %x",
        ),
        ("stablehlo.reduce_precision %x, format = e11m52 : tensor<3xf32>", "return %"),
    ] {
        let ir = ir_of(&function(
            "%x: tensor<3xf32>",
            "tensor<3xf32>",
            &format!("%0 = {op}\nreturn %0 : tensor<3xf32>"),
        ));
        assert!(ir.contains(wanted) && !ir.contains("and "), "{ir}");
    }
}
