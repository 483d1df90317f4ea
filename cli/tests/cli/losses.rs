//! `--lossy` and `--donate`: planned, explained, written to a plan and run from it.

use crate::plan::models;
use serde_json::Value;

/// Digests of results by name.
fn digests(text: &str) -> Vec<(String, String)> {
    let split = |l: &str| l.rsplit_once(' ').map(|(a, b)| (a.trim().to_owned(), b.to_owned()));
    text.lines().filter_map(split).collect()
}

#[test]
fn what_is_kept_with_losses_is_named_planned_and_run_again() {
    let d = models(&["deep_mlp"]);
    let plain: Value =
        serde_json::from_str(&d.good("plan deep_mlp.ir --grad --fp strict --json")).unwrap();
    let lossy = "deep_mlp.ir --grad --fp strict --lossy bf16";
    let made = d.good(&format!("plan {lossy} --json --save lossy.plan"));
    let made: Value = serde_json::from_str(&made).unwrap();
    assert!(made["saved_bytes"].as_u64() < plain["saved_bytes"].as_u64(), "{made:#}");
    assert_eq!(made["lossy"][0]["as"], "bf16", "{made:#}");
    let shown = d.good(&format!("plan {lossy}"));
    let told = format!("kept with losses: {} as bf16", made["lossy"][0]["value"].as_str().unwrap());
    assert!(shown.contains(&told), "{shown}");
    let text = d.text("lossy.plan");
    let lines: Vec<&str> = text.lines().filter_map(|l| l.trim().strip_prefix("lossy ")).collect();
    assert!(!lines.is_empty(), "{text}");
    for line in lines {
        let (name, form) = line.split_once(" as ").unwrap();
        assert_eq!(form, "bf16");
        let told = d.good(&format!("plan {lossy} --explain {name}"));
        assert!(told.contains("kept as bf16") && told.contains("3.90625e-3"), "{told}");
    }
    // Run from the plan, the bits are those of the option; results of the forward pass are exact.
    let exact = digests(&d.good("run deep_mlp.ir --grad --fp strict --digest"));
    let run = digests(&d.good(&format!("run {lossy} --digest")));
    let again = digests(&d.good("run deep_mlp.ir --grad --plan lossy.plan --digest"));
    assert_eq!(run, again);
    assert_eq!(run[0], exact[0]);
    assert_ne!(run, exact);
    let json = d.good(&format!("emit {lossy} --stage plan --json"));
    d.file("lossy.json", json);
    assert_eq!(digests(&d.good("run deep_mlp.ir --grad --plan lossy.json --digest")), run);
    for (args, why) in [
        ("--lossy i8", "types are bf16 and f16"),
        ("--lossy bf16 --lossy f16", "one type"),
        ("--lossy %nothing=bf16", "no value %nothing"),
        ("--lossy %x=bf16", "nothing computes it"),
    ] {
        let ran = d.run(&format!("plan deep_mlp.ir --grad {args}"));
        assert!(ran.code == 2 && ran.err.contains(why), "{args}: {} {}", ran.code, ran.err);
    }
}

#[test]
fn what_is_given_up_is_in_the_plan_and_must_be_given_up() {
    let d = models(&["deep_mlp"]);
    let json = |args: &str| -> Value { serde_json::from_str(&d.good(args)).unwrap() };
    let plain = json("plan deep_mlp.ir --grad --fp strict --json");
    let given = "deep_mlp.ir --grad --fp strict --donate %x,w1";
    let made = json(&format!("plan {given} --json --save given.plan"));
    assert!(made["peak_bytes"].as_u64() < plain["peak_bytes"].as_u64(), "{made:#}");
    assert_eq!(made["donated"], serde_json::json!(["%x", "%w1"]), "{made:#}");
    let shown = d.good(&format!("plan {given}"));
    assert!(shown.contains("donated: %x, %w1\n"), "{shown}");
    let exact = d.good("run deep_mlp.ir --grad --fp strict --digest");
    assert_eq!(d.good(&format!("run {given} --digest")), exact);
    assert_eq!(d.good("run deep_mlp.ir --grad --plan given.plan --donate x,w1 --digest"), exact);
    let followed = "plan deep_mlp.ir --grad --plan given.plan --donate";
    let again = json(&format!("{followed} x,w1 --json"));
    // Who gives up more gives up enough.
    assert_eq!(json(&format!("{followed} x,w1,w2 --json")), again);
    assert_eq!((&again["plan"], &again["donated"]), (&made["plan"], &made["donated"]));
    assert_eq!(again["peak_bytes"], made["peak_bytes"]);
    for (args, why) in [
        ("run deep_mlp.ir --grad --plan given.plan", "the memory of %x, which is not donated"),
        ("plan deep_mlp.ir --grad --plan given.plan", "the memory of %x, which is not donated"),
        (
            "emit deep_mlp.ir --grad --stage program --plan given.plan --donate x",
            "the memory of %w1, which is not donated",
        ),
        ("run deep_mlp.ir --donate %nothing", "no parameter %nothing"),
        ("bench deep_mlp.ir --donate %x", "again and again"),
    ] {
        let ran = d.run(args);
        assert!(ran.code == 2 && ran.err.contains(why), "{args}: {} {}", ran.code, ran.err);
    }
}

/// One layer: few elements are kept for the backward pass.
const ONE: &str = "func @linear(%x: f32[2,16], %w: f32[16,8]) -> f32[] {
  %h = dot_general %x, %w {contract = [1] x [0]} : f32[2,8]
  %t = tanh %h : f32[2,8]
  %l = reduce_sum %t {axes = [0, 1]} : f32[]
  return %l
}
";

#[test]
fn where_no_copy_pays_that_is_said() {
    let d = models(&["deep_mlp"]);
    d.file("linear.ir", ONE);
    for (args, why) in [
        // What is kept is short.
        ("plan linear.ir --grad --fp strict --lossy bf16", "nothing is kept as bf16: %"),
        ("plan linear.ir --grad --fp strict --lossy f16 --frontier 2", "nothing is kept as f16: %"),
        ("run linear.ir --grad --lossy bf16 --digest", "nothing is kept as bf16: %"),
        // There is no later pass.
        ("plan linear.ir --lossy f16", "nothing is kept as f16: no value is kept for a later pass"),
    ] {
        let ran = d.run(args);
        assert!(ran.code == 0 && ran.err.contains(why), "{args}: {} {}", ran.code, ran.err);
    }
    let ran = d.run("plan deep_mlp.ir --grad --fp strict --lossy bf16");
    assert!(ran.code == 0 && ran.err.is_empty(), "{}", ran.err);
}
