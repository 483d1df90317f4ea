//! `grad --order`, `hvp`, `jacobian`, `hessian`, `vmap`: programs that later commands take.

use crate::folder::Folder;

/// The result is the sum of `x^3`, times `w`.
const CUBES: &str = "func @cubes(%x: f64[2], %w: f64[]) -> f64[] {
  %c = integer_pow %x {y = 3} : f64[2]
  %s = reduce_sum %c {axes = [0]} : f64[]
  %loss = mul %s, %w : f64[]
  return %loss
}
";

const INVERSE: &str = "func @inverse(%x: f64[]) -> f64[] {
  %y = div 1.0, %x : f64[]
  return %y
}
";

const ROW: &str = "func @row<n>(%x: f32[n], %i: i32[], %seed: i64[]) -> (f32[n], f32[]) {
  %y = sin %x : f32[n]
  %bits = rng_bits %seed, %seed : u32[]
  %u = convert_element_type %bits : f32[]
  %k = convert_element_type %i : f32[]
  %z = mul %u, %k : f32[]
  return %y, %z
}
";

fn folder() -> Folder {
    let d = Folder::new();
    d.file("cubes.ir", CUBES).file("inverse.ir", INVERSE).file("row.ir", ROW);
    d
}

/// Without blanks and line ends, which lay out matrices.
fn packed(text: &str) -> String {
    text.split_whitespace().collect()
}

/// The output of a command, piped into another that must be well.
fn through(d: &Folder, make: &str, then: &str) -> String {
    let made = d.good(make);
    let ran = d.pipe(then, made.as_bytes());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{make} | {then}\n{made}{}", ran.out);
    ran.out
}

#[test]
fn second_derivatives_are_programs() {
    let d = folder();
    let at = "--input x=[1,2] --input w=10";
    for (make, more, due) in [
        ("hvp cubes.ir --wrt x", "--input x_t=[1,1]", "f64[2]\n[60.0, 120.0]\n"),
        ("hessian cubes.ir --wrt x", "", "f64[2,2]\n[[60.0, 0.0], [0.0, 120.0]]\n"),
        ("jacobian cubes.ir --wrt x,w --mode fwd", "", "f64[2]\n[30.0, 120.0]\n"),
        ("jacobian cubes.ir --wrt x,w --mode rev", "", "f64[2]\n[30.0, 120.0]\n"),
        ("jacobian cubes.ir --wrt x", "", "f64[2]\n[30.0, 120.0]\n"),
    ] {
        let out = through(&d, make, &format!("run - {at} {more}"));
        assert!(packed(&out).contains(&packed(due)), "{make}: {out}");
        assert!(through(&d, make, "check -").contains("ok"), "{make}");
    }
    for (order, due) in [(1, "-0.0625"), (2, "0.03125"), (6, "0.043945312")] {
        let make = format!("grad inverse.ir --no-value --order {order}");
        let out = through(&d, &make, "run - --input x=4");
        assert!(out.ends_with(&format!("f64[] = {due}\n")), "{make}: {out}");
    }
    let both = through(&d, "grad inverse.ir --order 2", "run - --input x=4");
    assert!(both.contains("= -0.0625\n") && both.contains("= 0.03125\n"), "{both}");
}

#[test]
fn batches_are_programs() {
    let d = folder();
    for (args, header) in [
        (
            "--size 3 --same-bits",
            "func @row_vmap<n>(%x: f32[3,n], %i: i32[3], %seed: i64[3]) -> (f32[3,n], f32[3]) {",
        ),
        (
            "--size 3 --in-axes x=-1,seed=0 --out-axes 1,0",
            "func @row_vmap<n>(%x: f32[n,3], %i: i32[], %seed: i64[3]) -> (f32[n,3], f32[3]) {",
        ),
        (
            "--size m --in-axes x=0,i=none --out-axes 0,none --same-bits",
            "func @row_vmap<n, m>(%x: f32[m,n], %i: i32[], %seed: i64[]) -> (f32[m,n], f32[]) {",
        ),
        (
            "--size 2 --dim n=4 --in-axes x=1 --same-bits",
            "func @row_vmap(%x: f32[4,2], %i: i32[], %seed: i64[]) -> (f32[2,4], f32[2]) {",
        ),
    ] {
        let made = d.good(&format!("vmap row.ir {args}"));
        assert_eq!(made.lines().next(), Some(header), "{args}");
        through(&d, &format!("vmap row.ir {args}"), "check -");
        through(&d, &format!("vmap row.ir {args}"), "fmt -");
    }
    // The gradient of each of three points.
    let gradient = d.good("grad cubes.ir --wrt x --no-value");
    let ran = d.pipe("vmap - --size 3 --in-axes x=0", gradient.as_bytes());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let ran = d.pipe("run - --input w=1 --input x=[[1,2],[3,4],[0,1]]", ran.out.as_bytes());
    let rows = "[[3.0,12.0],[27.0,48.0],[0.0,3.0]]";
    assert!(packed(&ran.out).ends_with(rows), "{}{}", ran.out, ran.err);
}

#[test]
fn what_does_not_fit_is_said() {
    let d = folder();
    for (args, code, part) in [
        ("vmap row.ir", 2, "--size"),
        ("vmap row.ir --size 1.5", 2, "expected an extent or a name"),
        ("vmap row.ir --size 3 --in-axes y=0", 2, "no parameter %y"),
        ("vmap row.ir --size 3 --in-axes sed=0", 2, "did you mean %seed?"),
        ("vmap row.ir --size 3 --in-axes x=0,x=1", 2, "names %x twice"),
        ("vmap row.ir --size 3 --in-axes x", 2, "expected NAME=AXIS"),
        ("vmap row.ir --size 3 --in-axes x=first", 2, "expected an axis or `none`"),
        ("vmap row.ir --size 3 --in-axes x=2", 2, "cannot have the batch as axis 2"),
        ("vmap row.ir --size 3 --in-axes x=-3", 2, "cannot have the batch as axis -3"),
        ("vmap row.ir --size 3 --out-axes 0", 2, "--out-axes has 1 axes, @row has 2 results"),
        ("vmap row.ir --size 3 --out-axes none,0 --same-bits", 2, "it needs an axis"),
        ("vmap row.ir --size 3 --in-axes x=0", 1, "would share what `rng_bits` draws"),
        ("hessian row.ir --wrt i", 2, "only float types"),
        ("grad inverse.ir --order 0", 2, "a whole number from 1 to 16"),
        ("jacobian cubes.ir --mode both", 2, "[possible values: fwd, rev]"),
        ("hvp inverse.ir --wrt y", 2, "no parameter %y"),
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains(part), "{args}: {}", ran.err);
    } // Derivatives share what is drawn: the function is the same along every direction.
    d.good("jacobian row.ir --wrt x --mode fwd");
}
