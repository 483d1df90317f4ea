//! A program for each rule of the verifier that breaks it.

use adfuse_ir::kernel::text::parse;
use adfuse_ir::kernel::verify;
use adfuse_ir::{Diagnostic, Kind};

/// A program of one kernel over `[4, 6]` with this stage, or of these steps.
fn with(steps: &str) -> String {
    format!(
        "program @f {{
  input %x: f32[4, 6]
  input %i: i32[4]
  input %h: bf16[4]
  constant %k: f32[2] = [1.0, 2.0]
  temp %t: f32[4, 6]
  output %y: f32[4, 6]
{steps}
  return %y
}}
"
    )
}

pub(crate) fn stage(lines: &str) -> String {
    with(&format!(
        "kernel @t [4, 6] {{ stage [] {{ s0 = const.f32 0.0 %t[d0, d1] = store s0 }} }}
kernel @k [4, 6] {{ stage [] {{ {lines} }} }}"
    ))
}

fn kernel(lines: &str) -> String {
    with(&format!(
        "kernel @t [4, 6] {{ stage [] {{ s0 = const.f32 0.0 %t[d0, d1] = store s0 }} }}
kernel @k [4] {{ {lines} }}"
    ))
}

pub(crate) const COPY: &str = "s0 = param.f32 0 %y[d0, d1] = store s0";
const STORE: &str = "s0 = const.f32 0.0 %y[d0, d1] = store s0";
const ALL: &str = "stage [6] { s0 = const.f32 0.0 %y[d0, d1] = store s0 }";

/// Programs that break one rule each, with the kind of the error and a part of its text.
fn wrong() -> Vec<(String, Kind, &'static str)> {
    let load = |what: &str| stage(&format!("p0 = load {what} {COPY}"));
    let simple = |declared: &str, returned: &str| {
        format!("program @f {{ input %x: f32[2] {declared} return {returned} }}")
    };
    let contract = |what: &str| {
        format!(
            "program @f {{ input %a: f32[2, 3] input %b: f32[3, 4] input %p: bool[3]
               input %d: f64[3] output %y: f32[2, 4] %y = contract {what} return %y }}"
        )
    };
    let scatter = |what: &str| {
        format!(
            "program @f {{ input %a: f32[4] input %i: i32[3] input %e: f32[5] output %y: f32[4]
               %y = scatter {what} return %y }}"
        )
    };
    vec![
        // Loads stay in bounds.
        (load("%x[d0 + 1, d1]"), Kind::Bounds, "`d0 + 1` may be 1 to 4"),
        (load("%x[d0, d1 - 1]"), Kind::Bounds, "`d1 - 1` may be -1 to 4"),
        (load("%x[d0, d1 * 2]"), Kind::Bounds, "may be 0 to 10"),
        (load("%x[d0, (d0 * 6 + d1) / 3]"), Kind::Bounds, "may be 0 to 7"),
        (load("%x[d0, (d0 * 6 + d1) % 7]"), Kind::Bounds, "may be 0 to 6"),
        (load("%x[d0, d1 + 1] when d1 in [0, 6) else f32(0.0)"), Kind::Bounds, "1 to 6"),
        (load("%x[d0, d1 + 1] when d0 in [0, 3) else f32(0.0)"), Kind::Bounds, "1 to 6"),
        (load("f32(0.0) when d1 in [0, 3) else %x[d0, d1 - 4]"), Kind::Bounds, "-1 to 1"),
        (load("%x[d0, d1] when d1 in [0, 3)"), Kind::Bounds, "last piece"),
        (load("%x[d0, d1] else f32(0.0)"), Kind::Bounds, "last piece"),
        (load("%x[d0, d1 / 0]"), Kind::Bounds, "divides by 0"),
        (load("%x[d0, d1 % -2]"), Kind::Bounds, "divides by -2"),
        (load("%x[d0, d2]"), Kind::UnknownName, "no axis d2"),
        (load("%x[d0]"), Kind::Arity, "1 index expressions for 2 axes"),
        (load("%x[d0, d1 * 4611686018427387904]"), Kind::Limit, "62 bits"),
        // Data is read before it is used, is an integer, and is clamped into the buffer.
        (
            stage(&format!("p0 = load %x[d0, clamp(p0, 0, 5)] {COPY}")),
            Kind::Dominance,
            "p0 is not read before",
        ),
        (
            stage(
                "p0 = load %x[d0, d1] p1 = load %x[d0, clamp(p0, 0, 5)]
                 s0 = param.f32 1 %y[d0, d1] = store s0",
            ),
            Kind::DType,
            "p0 is f32, not an integer",
        ),
        (
            stage(
                "p0 = load %i[d0] p1 = load %x[d0, clamp(p0, 0, 6)]
                 s0 = param.f32 1 %y[d0, d1] = store s0",
            ),
            Kind::Bounds,
            "may be 0 to 6",
        ),
        (
            stage(
                "p0 = load %i[d0] p1 = load %x[d0, clamp(p0, 5, 0)]
                 s0 = param.f32 1 %y[d0, d1] = store s0",
            ),
            Kind::Bounds,
            "has no values",
        ),
        // Writes are in bounds, disjoint and complete, and go where writing is allowed.
        (stage("s0 = const.f32 0.0 %y[d0, d1 + 1] = store s0"), Kind::Bounds, "1 to 6"),
        (stage("s0 = const.f32 0.0 %y[d0, d0] = store s0"), Kind::Overlap, "same element"),
        (stage("s0 = const.f32 0.0 %y[d0, d1 % 6] = store s0"), Kind::Overlap, "not affine"),
        (
            stage("s0 = const.f32 0.0 %y[d0, clamp(p0, 0, 5)] = store s0"),
            Kind::Dominance,
            "p0 is not read",
        ),
        (
            kernel("stage [5] { s0 = const.f32 0.0 %y[d0, d1] = store s0 }"),
            Kind::Overlap,
            "20 elements are written, the buffer has 24",
        ),
        (
            stage("s0 = const.f32 0.0 %y[d0, d1] = store s0 %y[d0, d1] = store s0"),
            Kind::Overlap,
            "%y is written already",
        ),
        (stage("s0 = const.f32 0.0 %t[d0, d1] = store s0"), Kind::Overlap, "%t is written already"),
        (stage("s0 = const.f32 0.0 %x[d0, d1] = store s0"), Kind::Overlap, "%x is an input"),
        (
            with(&format!(
                "kernel @k [2] {{ stage [] {{ s0 = const.f32 0.0 %k[d0] = store s0 }} }}
                 kernel @y [4, 6] {{ stage [] {{ {STORE} }} }}
                 kernel @t [4, 6] {{ stage [] {{ s0 = const.f32 0.0 %t[d0, d1] = store s0 }} }}"
            )),
            Kind::Overlap,
            "%k is a constant",
        ),
        // Buffers are written, and before they are read.
        (with(""), Kind::Dominance, "no step writes"),
        (
            with(&format!("kernel @k [4, 6] {{ stage [] {{ p0 = load %t[d0, d1] {COPY} }} }}")),
            Kind::Dominance,
            "%t is read before",
        ),
        (stage(&format!("p0 = load %y[d0, d1] {COPY}")), Kind::Dominance, "%y is read before"),
        // Rows and tiles are left once, by an earlier stage, with the extents of the stage.
        (
            kernel(&format!(
                "row r0: f32 {ALL} stage [6] {{ p0 = r0 s0 = param.f32 0 r0 = reduce.sum s0 lane(d1) }}"
            )),
            Kind::Dominance,
            "r0 is read before",
        ),
        (
            kernel(&format!(
                "tile t0: f32[6] {ALL} stage [6] {{ p0 = t0 s0 = param.f32 0 t0 = keep s0 }}"
            )),
            Kind::Dominance,
            "t0 is read before",
        ),
        (kernel(&format!("row r0: f32 {ALL}")), Kind::Dominance, "no stage leaves r0"),
        (
            kernel(&format!(
                "row r0: f32 {ALL} stage [6] {{ s0 = const.f32 0.0
                 r0 = reduce.sum s0 lane(d1) r0 = reduce.max s0 lane(d1) }}"
            )),
            Kind::Overlap,
            "r0 is written already",
        ),
        (
            kernel(&format!(
                "tile t0: f32[5] {ALL} stage [6] {{ s0 = const.f32 0.0 t0 = keep s0 }}"
            )),
            Kind::Shape,
            "t0 has extents [5]",
        ),
        (
            kernel(&format!(
                "tile t0: f32[6] {ALL} stage [6] {{ s0 = const.f32 0.0 t0 = keep s0 }}
                 stage [] {{ p0 = t0 }}"
            )),
            Kind::Shape,
            "t0 has extents [6]",
        ),
        // Runs name the axes that fold.
        (
            kernel(&format!(
                "row r0: f32 {ALL} stage [6] {{ s0 = const.f32 0.0 r0 = reduce.sum s0 }}"
            )),
            Kind::Shape,
            "runs of a reduction",
        ),
        (
            kernel(&format!(
                "row r0: f32 {ALL} stage [6, 2] {{ s0 = const.f32 0.0
                 r0 = reduce.sum s0 chain(d1) lane(d2) }}"
            )),
            Kind::Shape,
            "runs of a reduction",
        ),
        // Types.
        (
            stage("p0 = load %i[d0] s0 = param.i32 0 %y[d0, d1] = store s0"),
            Kind::DType,
            "i32 into %y",
        ),
        (load("%x[d0, d1] when d1 in [0, 2) else f64(0.0)"), Kind::DType, "differ in type"),
        (
            stage("p0 = load %x[d0, d1] s0 = param.f64 0 %y[d0, d1] = store s0"),
            Kind::DType,
            "not defined on",
        ),
        (
            stage("s0 = const.f32 1.0 s1 = and.f32 s0 s0 %y[d0, d1] = store s1"),
            Kind::DType,
            "not defined on (f32, f32)",
        ),
        (
            kernel(&format!(
                "row r0: bf16 {ALL} stage [6] {{ p0 = load %h[d0] s0 = param.bf16 0
                 r0 = reduce.sum s0 lane(d1) }}"
            )),
            Kind::DType,
            "do not fold",
        ),
        (
            kernel(&format!(
                "row r0: f32 {ALL} stage [6] {{ s0 = const.f32 0.0 r0 = reduce.argmax s0 lane(d1) }}"
            )),
            Kind::DType,
            "i32 into r0",
        ),
        (
            kernel(&format!(
                "tile t0: i32[6] {ALL} stage [6] {{ s0 = const.f32 0.0 t0 = scan.argmax s0 d1 }}"
            )),
            Kind::DType,
            "do not fold",
        ),
        // Buffers.
        (simple("temp %t: f32[2]", "%t"), Kind::UnknownName, "no temporary"),
        (simple("output %t: f32[0]", "%x"), Kind::Dominance, "no step writes"),
        (simple("input %n: f32[-2]", "%x"), Kind::Shape, "negative"),
        (simple("input %n: token[]", "%x"), Kind::DType, "token"),
        (simple("input %n: f32[4611686018427387904, 8]", "%x"), Kind::Limit, "larger"),
        (simple("constant %n: f32[3] = [1.0]", "%x"), Kind::Shape, "1 values"),
        (
            simple(
                "output %y: f32[0] kernel @k [4611686018427387904, 0] { stage [3] { s0 = const.f32 0.0 %y[d1] = store s0 } }",
                "%y",
            ),
            Kind::Limit,
            "2^46",
        ),
        (
            simple(
                "output %y: f32[0] kernel @k [-1] { stage [] { s0 = const.f32 0.0 %y[d0] = store s0 } }",
                "%y",
            ),
            Kind::Shape,
            "negative",
        ),
        // Contractions.
        (
            contract("%a, %b {batch = [] x [], contract = [0] x [0]}"),
            Kind::Shape,
            "do not contract",
        ),
        (
            contract("%a, %b {batch = [] x [], contract = [1, 1] x [0, 1]}"),
            Kind::Shape,
            "named twice",
        ),
        (contract("%a, %b {batch = [] x [], contract = [1] x []}"), Kind::Arity, "pairs 1"),
        (contract("%a, %d {batch = [] x [], contract = [1] x [0]}"), Kind::DType, "differ in type"),
        (contract("%p, %p {batch = [] x [], contract = [0] x [0]}"), Kind::DType, "sum products"),
        (
            contract("%y, %b {batch = [] x [], contract = [1] x [0]}"),
            Kind::Dominance,
            "read before",
        ),
        // Scatters.
        (
            scatter("%a [3] { p0 = load %i[d0] s0 = const.f32 1.0 [clamp(p0, 0, 4)] = add s0 }"),
            Kind::Bounds,
            "0 to 4",
        ),
        (scatter("%e [3] { s0 = const.f32 1.0 [d0] = add s0 }"), Kind::Shape, "differ in extents"),
        (scatter("f64(0.0) [3] { s0 = const.f32 1.0 [d0] = add s0 }"), Kind::DType, "f64 into %y"),
        (scatter("%a [3] { s0 = const.f64 1.0 [d0] = add s0 }"), Kind::DType, "f64 into %y"),
        (
            scatter("%a [3] { p0 = r0 s0 = const.f32 1.0 [d0] = add s0 }"),
            Kind::Dominance,
            "keeps no row",
        ),
    ]
}

#[test]
fn each_rule_has_a_program_that_breaks_it() {
    let mut failures = Vec::new();
    for (text, kind, part) in wrong() {
        let errors = match parse(&text) {
            Ok(program) => verify(program).err().unwrap_or_default(),
            Err(d) => vec![d],
        };
        let found = |d: &Diagnostic| d.kind == kind && d.message.contains(part);
        if !errors.iter().any(found) || errors.iter().any(|d| d.at.inst.is_none()) {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            failures.push(format!("{kind:?} `{part}` is not among {errors:#?}\n{text}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
