//! `--plan`: what a plan says of its function, and what it says wrongly.

use crate::plan::models;

/// What a plan says of its function is followed, or refused with its place.
#[test]
fn lines_of_a_plan_that_do_not_hold_are_shown() {
    let d = models(&["softmax"]);
    d.file("loop.ir", LOOP).file("gate.ir", GATE);
    d.good("plan softmax.ir --save plain.plan --no-cache");
    d.good("plan loop.ir --grad --save loop.plan --no-cache");
    d.good("plan gate.ir --grad --fp fast --save gate.plan --no-cache");
    let [plain, looped, gate] = ["plain", "loop", "gate"].map(|n| d.text(&format!("{n}.plan")));
    let decided = looped.lines().find(|line| line.starts_with("  loop ")).expect("a loop");
    let recovered = gate.lines().find(|line| line.starts_with("  inverse ")).expect("an inverse");
    let (decided, recovered) = (format!("{decided}\n"), format!("{recovered}\n"));
    let after = |text: &str, line: &str| {
        let at = text.find("  fp ").and_then(|at| Some(at + text[at..].find('\n')? + 1));
        let (head, tail) = text.split_at(at.expect("a mode"));
        format!("{head}{line}{tail}")
    };
    let no_inverse = "does not follow from";
    for (program, text, place, said) in [
        ("softmax.ir", after(&plain, "  inverse %sum from %max\n"), "5:3", no_inverse),
        ("softmax.ir", after(&plain, "  inverse %nothing from %more\n"), "5:3", no_inverse),
        ("softmax.ir", after(&plain, "  inverse %sum\n"), "5:3", "expected `inverse %value from"),
        (
            "softmax.ir",
            after(&plain, "  loop stack\n"),
            "5:3",
            "the plan has 1 line `loop`, and @softmax has no way back over a loop",
        ),
        (
            "softmax.ir",
            plain.replace("@softmax", "@other"),
            "1:1",
            "a plan of @other, not of @softmax",
        ),
        (
            "softmax.ir",
            format!("\n{}", plain.replace("@softmax", "@other")),
            "2:1",
            "a plan of @other",
        ),
        (
            "loop.ir --grad",
            looped.replace(&decided, ""),
            "1:1",
            "the plan has no line `loop`, and @f_grad has 1 way back over a loop",
        ),
        ("loop.ir --grad", after(&looped, &decided), "6:3", "the plan has 2 lines `loop`"),
        (
            "loop.ir --grad",
            looped.replace(&decided, "  loop pile\n"),
            "5:3",
            "`pile` is no decision about a loop",
        ),
        // All but one line are right.
        (
            "gate.ir --grad",
            after(&gate, "  inverse %a from %l\n"),
            "5:3",
            "%a does not follow from %l",
        ),
        ("gate.ir --grad", after(&gate, &recovered), "6:3", no_inverse),
    ] {
        d.file("wrong.plan", &text);
        for command in ["plan", "run"] {
            let ran = d.run(&format!("{command} {program} --plan wrong.plan"));
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{text}{}", ran.err);
            assert!(ran.err.contains(&format!("--> wrong.plan:{place}\n")), "{text}{}", ran.err);
            assert!(ran.err.contains(said), "{text}{}", ran.err);
        }
    }
    // A plan of another function is told as such, whatever it says of loops.
    let ran = d.run("plan softmax.ir --plan loop.plan");
    assert!(ran.code == 2 && ran.err.contains("of another function"), "{}", ran.err);
}

const LOOP: &str = "func @f(%x: f32[8], %xs: f32[6,8]) -> f32[] {
  %y = scan %x, %xs {carry = 1} : f32[8] body(%c: f32[8], %z: f32[8]) {
    %e = mul %c, %z : f32[8]
    %d = sin %e : f32[8]
    yield %d
  }
  %s = reduce_sum %y {axes = [0]} : f32[]
  return %s
}
";

const GATE: &str = "func @f(%x: f32[256,256], %w: f32[256,256], %v: f32[256,256]) -> f32[] {
  %a = dot_general %x, %w {contract = [1] x [0]} : f32[256,256]
  %e = exp %a : f32[256,256]
  %p = add %e, 1.0 : f32[256,256]
  %l = log %p : f32[256,256]
  %b = dot_general %l, %v {contract = [1] x [0]} : f32[256,256]
  %s = reduce_sum %b {axes = [0, 1]} : f32[]
  return %s
}
";
