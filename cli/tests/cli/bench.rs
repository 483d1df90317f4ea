//! `bench` and the stages that show code: figures, files, and refusals.

use crate::folder::Folder;
use crate::plan::models;
use serde_json::Value;

const SUM: &str = "func @f<n>(%x: f32[n], %i: i32[n]) -> f32[] {
  %0 = sin %x : f32[n]
  %s = reduce_sum %0 {axes = [0]} : f32[]
  return %s
}
";

fn sums() -> Folder {
    let d = models(&["layer_norm"]);
    d.file("sum.ir", SUM);
    d
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key}: {value}"))
}

#[test]
fn json_has_the_figures() {
    let d = sums();
    let bench = "bench sum.ir --dim n=4096 --grad --wrt x --threads 1 --min-seconds 0.02 --json";
    let all = json(&d.good(&format!("{bench} --kernels --fp strict --seed 3")));
    for key in [
        "median_ms",
        "min_ms",
        "p10_ms",
        "p90_ms",
        "compile_ms",
        "peak_bytes",
        "planned_peak_bytes",
        "launches",
        "steps",
        "bytes",
        "gbs",
        "copy_gbs",
        "copy_bytes",
        "gflops",
        "code_bytes",
        "samples",
    ] {
        assert!(number(&all, key) > 0.0, "{key}: {all}");
    }
    for (key, value) in [
        ("name", "f_grad"),
        ("engine", "cpu"),
        ("device", "cpu"),
        ("fp", "strict"),
        ("effort", "default"),
    ] {
        assert_eq!(all[key], value);
    }
    assert_eq!((&all["threads"], &all["seed"]), (&1.into(), &3.into()));
    let ordered = ["min_ms", "p10_ms", "median_ms", "p90_ms"].map(|k| number(&all, k));
    assert!(ordered.is_sorted(), "{ordered:?}");
    let phases: Vec<&String> = all["phases"].as_object().unwrap().keys().collect();
    assert_eq!(phases, ["parse_ms", "ad_ms", "plan_ms", "memory_ms", "codegen_ms"]);
    let sum: f64 = phases.iter().map(|p| number(&all["phases"], p)).sum();
    assert!((sum - number(&all, "compile_ms")).abs() < 1e-6, "{all}");
    // The figures of the plan, with what this engine needs beside the buffers.
    let plan = json(&d.good("plan sum.ir --dim n=4096 --grad --wrt x --fp strict --json"));
    assert_eq!((&all["launches"], &all["bytes"]), (&plan["launches"], &plan["bytes_moved"]));
    let planned = number(&all, "planned_peak_bytes");
    assert_eq!(planned, number(&all, "peak_bytes"), "{all}");
    // Inputs, a gradient and a sum are there; what is beside is little.
    let (peak, least) = (number(&all, "peak_bytes"), 3.0 * 4096.0 * 4.0 + 4.0);
    assert!((least..least + 4096.0).contains(&peak), "{peak}");
    let kernels = all["kernels"].as_array().unwrap();
    assert_eq!(Some(kernels.len() as u64), all["steps"].as_u64());
    let shares: f64 = kernels.iter().map(|k| number(k, "share")).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{all}");
    for kernel in kernels {
        assert!(number(kernel, "median_ms") > 0.0 && number(kernel, "gbs") > 0.0, "{kernel}");
        let generator = kernel["generator"].as_str().unwrap();
        assert!(["wide", "cranelift"].iter().any(|by| generator.starts_with(by)), "{kernel}");
        let narrow = kernel["not_wide"].as_array().unwrap();
        assert!(narrow.is_empty() || generator.contains("cranelift"), "{kernel}");
    }
    let plain = json(&d.good(bench));
    assert!(plain.get("kernels").is_none() && plain.get("compare").is_none());
    assert_eq!(plain["fp"], "strict");
}

#[test]
fn plans_are_compared_side_by_side() {
    let d = sums();
    let all = json(
        &d.good("bench layer_norm.ir --grad --compare off --min-seconds 0 --json --effort quick"),
    );
    assert_eq!((&all["effort"], &all["compare"]["effort"]), (&"quick".into(), &"off".into()));
    assert_eq!(all["samples"], 5);
    let other = &all["compare"];
    assert!(number(other, "launches") > number(&all, "launches"), "{all}");
    assert!(number(other, "compile_ms") > number(&other["phases"], "parse_ms"), "{all}");
    let ratio = number(other, "median_ms") / number(&all, "median_ms");
    assert!((ratio - number(other, "ratio")).abs() < 1e-9 * ratio, "{all}");
    let pairs = ["ratio_p10", "ratio_median", "ratio_p90"].map(|k| number(other, k));
    assert!(pairs[0] > 0.0 && pairs.is_sorted(), "{pairs:?}");
    let text = d.good("bench layer_norm.ir --grad --compare off --min-seconds 0 --kernels");
    for part in
        ["effort default  ", "effort off", "median ms", "planned peak", "codegen", "a copy of"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("effort off takes ") && text.contains("generator"), "{text}");
    // A plan from a file is measured as it is.
    d.good("plan layer_norm.ir --grad --save it.plan");
    let all = json(&d.good("bench layer_norm.ir --grad --plan it.plan --min-seconds 0 --json"));
    assert_eq!(all["effort"], "replayed");
}

#[test]
fn a_trace_has_steps_and_tasks() {
    let d = sums();
    d.good("bench layer_norm.ir --grad --threads 2 --min-seconds 0 --trace out.json");
    let all = json(&d.text("out.json"));
    let events = all["traceEvents"].as_array().unwrap();
    let of = |kind: &str| events.iter().filter(|e| e["cat"] == kind).count();
    let steps = d.good("emit layer_norm.ir --grad --stage asm").matches("// step ").count();
    assert_eq!(of("step"), steps);
    assert!(of("task") >= steps);
    for event in events {
        assert_eq!(event["ph"], "X");
        assert!(number(event, "ts") >= 0.0 && number(event, "dur") >= 0.0, "{event}");
        let thread = event["tid"].as_u64().unwrap();
        assert!(thread < 2 && (event["cat"] == "task" || thread == 0), "{event}");
    }
    // Tasks are within their steps.
    let span = |e: &Value| (number(e, "ts"), number(e, "ts") + number(e, "dur"));
    for task in events.iter().filter(|e| e["cat"] == "task") {
        let step = events.iter().find(|e| e["cat"] == "step" && e["args"] == task["args"]).unwrap();
        let ((a, b), (c, d)) = (span(step), span(task));
        assert!(a <= c && d <= b + 1e-3, "{task} {step}");
    }
}

#[test]
fn code_is_shown_step_by_step() {
    let d = sums();
    let program = d.good("emit layer_norm.ir --grad --stage program");
    // Cranelift is given every function where vectors are no wider than its own.
    let stages = [("clif --vectors 128", "function u0:0(i64, i64, i64)"), ("asm", "ret")];
    for (stage, inside) in stages {
        let text = d.good(&format!("emit layer_norm.ir --grad --stage {stage}"));
        let mut steps = 0;
        for line in text.lines().filter_map(|l| l.strip_prefix("// step ")) {
            let (number, rest) = line.split_once(": ").unwrap();
            assert_eq!(number, steps.to_string());
            let name = rest.split(' ').next().unwrap();
            assert!(program.contains(&format!("@{name} ")), "{name}");
            steps += 1;
        }
        assert!(steps > 0 && text.contains(inside), "{text}");
        // What is done beside the functions is said.
        assert!(text.contains("is folded by sum over") || text.contains("are joined by sum over"));
        assert!(text.contains(": reads ") && text.contains("; writes "), "{text}");
    }
    let text = d.good("emit sum.ir --stage clif --dim n=5");
    assert!(text.contains("// sin_reduce_sum.0, "), "{text}");
    assert!(text.contains("for sin_reduce_sum.folded"), "{text}");
}

/// What is measured is what is given: this many steps are within the limit, and one more is not.
#[test]
fn inputs_are_those_that_are_given() {
    let d = Folder::new();
    let steps = "func @count(%n: f32[]) -> f32[] {
  %x = while %n : f32[] cond(%c: f32[]) {
    %0 = gt %c, 0.0 : bool[]
    yield %0
  } body(%c: f32[]) {
    %1 = sub %c, 1.0 : f32[]
    yield %1
  }
  return %x
}
";
    d.file("count.ir", steps);
    let bench = "bench count.ir --min-seconds 0 --max-trips 5";
    d.good(&format!("{bench} --input n=5"));
    let ran = d.run(&format!("{bench} --input n=6"));
    assert!(ran.code != 0 && ran.err.contains("more than 5 steps"), "{}", ran.err);
}

#[test]
fn what_cannot_be_measured_is_said() {
    let d = sums();
    for (args, code, said) in [
        ("sum.ir", 2, "add --dim n=4"),
        ("sum.ir --dim n=4 --wrt x", 2, "--wrt needs --grad"),
        ("sum.ir --dim n=4 --func g", 2, "no function @g"),
        ("sum.ir --dim n=4 --vectors 96", 2, "--vectors is 128, 256 or 512, found 96"),
        ("sum.ir --dim n=4 --threads 0", 2, "a whole number from 1 to 256"),
        ("sum.ir --dim n=4 --threads 999", 2, "a whole number from 1 to 256"),
        ("sum.ir --dim n=4 --engine reference", 2, "bench measures the engines cpu and gpu"),
        ("sum.ir --dim n=4 --compare on", 2, "invalid value 'on'"),
        ("sum.ir --dim n=4 --fp exact", 2, "invalid value 'exact'"),
        ("sum.ir --dim n=4 --effort full", 2, "invalid value 'full'"),
        ("sum.ir --dim n=4 --device tpu", 2, "no device `tpu`"),
        ("sum.ir --dim n=4 --plan none.plan", 2, "cannot read `none.plan`"),
        ("sum.ir --dim n=4 --seed x", 2, "a whole number from 0 on"),
        ("sum.ir --dim n=4 --min-seconds soon", 2, "seconds from 0 to 3600"),
        ("sum.ir --dim n=4 --min-seconds=-1", 2, "seconds from 0 to 3600"),
        ("sum.ir --dim n=4 --min-seconds nan", 2, "seconds from 0 to 3600"),
        ("sum.ir --dim n=4 --min-seconds 0 --trace none/t.json", 2, "cannot write `none/t.json`"),
        ("sum.ir --dim n=4 --min-seconds 0 --trace .", 2, "not a regular file"),
        ("sum.ir --dim n=4 --input y=1", 2, "@f has no input `y`"),
        ("sum.ir --dim n=4 --input x=1 --input x=2", 2, "--input x is given twice"),
        ("sum.ir --dim n=4 --input x=[1,2]", 2, "input x: %x is f32[4], the list is f32[2]"),
        ("sum.ir --dim n=4 --input x=none.npy", 2, "cannot read `none.npy`"),
        ("none.ir", 2, "cannot read `none.ir`"),
    ] {
        let ran = d.run(&format!("bench {args}"));
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
    }
    for stage in ["clif", "asm"] {
        let ran = d.run(&format!("emit sum.ir --dim n=4 --stage {stage} --json"));
        let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(json["stage"], stage, "{}", ran.err);
    }
}
