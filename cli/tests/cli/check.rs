//! `adfuse check`: what it compares, what it cannot, and how it says so.

use crate::folder::Folder;

#[test]
fn a_program_without_functions_passes_no_check() {
    let d = Folder::new();
    d.file("empty.ir", "// nothing\n");
    for args in ["check empty.ir", "check empty.ir --json", "grad empty.ir"] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{args}");
        assert!(ran.err.contains("`empty.ir` has no functions"), "{}", ran.err);
    }
    // What a failing command leaves for the next in a pipe.
    assert_eq!(d.pipe("check -", b"").code, 1);
}

#[test]
fn what_a_transformation_says_is_kept() {
    // The last phase there is leaves none for a backward pass. First, no instruction shows it alone.
    let d = Folder::new();
    d.file(
        "whole.ir",
        "func @f(%x: f64[]) -> (f64[], bool[]) {\n  %y = sin %x : f64[]\n  \
         %p = gt %x, 0.0 : bool[] @p255\n  return %y, %p\n}\n",
    );
    d.file(
        "one.ir",
        "func @f(%x: f32[]) -> f32[] {\n  %y = sin %x : f32[] @p255\n  return %y\n}\n",
    );
    let says = "an instruction of @f is of phase 255";
    let ran = d.run("check whole.ir");
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains(says), "{}", ran.out);
    let ran = d.run("check one.ir");
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("at fault: %y = sin %x : f32[] @p255: "), "{}", ran.out);
    assert!(ran.out.contains(says), "{}", ran.out);
}

#[test]
fn a_gradient_stopped_in_a_region_is_no_fault() {
    let d = Folder::new();
    d.file(
        "nested.ir",
        "func @f(%x: f64[], %p: bool[]) -> f64[] {
  %y = cond %p : f64[] then {
    %0 = stop_gradient %x : f64[]
    %1 = mul %0, %x : f64[]
    yield %1
  } else {
    %2 = stop_gradient %x : f64[]
    %3 = mul %2, %x : f64[]
    yield %3
  }
  return %y
}
",
    );
    let ran = d.run("check nested.ir");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let text = d.good("check nested.ir --engine reference");
    assert_eq!(ran.out, text);
    assert!(text.contains("a `stop_gradient` inside of a region"), "{text}");
    assert!(text.ends_with("2 checks, none failed, 1 unsupported\n"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&d.good("check nested.ir --json --engine reference")).unwrap();
    assert_eq!((&json["passed"], &json["unsupported"]), (&true.into(), &1.into()));
    // At the top, values are held and all is compared.
    d.file(
        "top.ir",
        "func @f(%x: f64[]) -> f64[] {\n  %0 = stop_gradient %x : f64[]\n  \
         %1 = mul %0, %x : f64[]\n  return %1\n}\n",
    );
    assert!(d.good("check top.ir").ends_with("2 checks, none failed\n"));
}

#[test]
fn the_instruction_at_fault_is_shown_as_it_was_written() {
    let d = Folder::new();
    // The rule says 3 where the function has 2.
    d.file(
        "bad.ir",
        "func @main<n>(%x: f32[n]) -> f32[n] {
  %half = constant {values = dense [0.5]} : f32[1]
  %h = reduce_sum %half {axes = [0]} : f32[]
  %s = mul %x, 0.5 : f32[n]
  %y = call %s {func = @twice} : f32[n]
  return %y
}

func @twice<n>(%x: f32[n]) -> f32[n] custom_jvp(@rule) {
  %y = mul %x, 2.0 : f32[n]
  return %y
}

func @rule<n>(%x: f32[n], %t: f32[n]) -> (f32[n], f32[n]) {
  %y = mul %x, 2.0 : f32[n]
  %b = mul %t, 3.0 : f32[n]
  return %y, %b
}
",
    );
    let ran = d.run("check bad.ir");
    assert_eq!(ran.code, 1);
    let expected = "    at fault: %y = call %s {func = @twice} : f32[n]\n";
    assert!(ran.out.contains(expected), "{}{}", ran.out, ran.err);
}

#[test]
fn smaller_integers_are_tried_where_the_usual_ones_give_nothing_finite() {
    let d = Folder::new();
    // The logarithm of something positive only where each of many integers is small enough.
    for (from, code) in [("1.5", 0), ("0.5", 0), ("-0.5", 1)] {
        d.file(
            "ints.ir",
            format!(
                "func @f(%x: f64[32], %k: i32[32]) -> (f64[32], f64[32]) {{
  %0 = convert_element_type %k : f64[32]
  %1 = sub {from}, %0 : f64[32]
  %2 = log %1 : f64[32]
  %s = sin %x : f64[32]
  %y = mul %2, %s : f64[32]
  return %s, %y
}}
"
            ),
        );
        let ran = d.run("check ints.ir");
        assert_eq!(ran.code, code, "{from}: {}{}", ran.out, ran.err);
        let says = "no inputs were found where all results are finite: result 1, %y, is not";
        assert_eq!(ran.out.contains(says), code == 1, "{from}: {}", ran.out);
    }
}

#[test]
fn cotangents_have_inputs_of_their_own() {
    let d = Folder::new();
    d.file(
        "ct.ir",
        "func @f(%ct0: f32[2]) -> f32[2] {\n  %0 = mul %ct0, %ct0 : f32[2]\n  return %0\n}\n",
    );
    let ran = d.run("run ct.ir --grad --input ct0=[1,2]");
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "out0: f32[2]\n[1.0, 4.0]\ngrad_ct0: f32[2]\n[2.0, 4.0]\n")
    );
    assert_eq!(ran.err, "note: %ct0 is a parameter; the cotangent's input is ct0_1\n");
    let ran = d.run("run ct.ir --grad --input ct0=[1,2] --input ct0_1=[1,10]");
    assert!(ran.out.ends_with("[ 2.0, 40.0]\n"), "{}", ran.out);
    // The same name as in the gradient's text.
    assert!(d.good("grad ct.ir").starts_with("func @f_grad(%ct0: f32[2], %ct0_1: f32[2])"));
}
