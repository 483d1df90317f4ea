//! `--mem-budget` and `--frontier`, on every command that accepts them.

use crate::folder::Folder;
use crate::plan::models;
use crate::programs;
use serde_json::Value;

fn json(d: &Folder, args: &str) -> Value {
    serde_json::from_str(&d.good(args)).unwrap()
}

fn number(v: &Value, key: &str) -> u64 {
    v[key].as_u64().unwrap_or_else(|| panic!("{key}: {v:#}"))
}

#[test]
fn a_frontier_has_peaks_that_rise_and_times_that_fall() {
    let d = models(&["deep_mlp"]);
    let all = json(&d, "plan deep_mlp.ir --grad --frontier 1000 --json");
    let points = all["points"].as_array().unwrap();
    assert_eq!(points.len() as u64, number(&all, "plans"));
    assert!(points.len() > 4, "{all:#}");
    for pair in points.windows(2) {
        assert!(number(&pair[0], "peak_bytes") < number(&pair[1], "peak_bytes"));
        assert!(pair[0]["predicted_ms"].as_f64() > pair[1]["predicted_ms"].as_f64());
    }
    assert_eq!(points.last().unwrap()["slower_percent"], 0.0);
    assert!(!points[0]["again"].as_array().unwrap().is_empty());
    // Some of them are the first, the last, and others between.
    let some = json(&d, "plan deep_mlp.ir --grad --frontier 3 --json");
    let some = some["points"].as_array().unwrap();
    assert_eq!((some.len(), &some[0], &some[2]), (3, &points[0], points.last().unwrap()));
    let one = json(&d, "plan deep_mlp.ir --grad --frontier 1 --json");
    assert_eq!(one["points"].as_array().unwrap()[..], points[points.len() - 1..]);
    let text = d.good("plan deep_mlp.ir --grad --frontier 3");
    assert!(text.starts_with("@deep_mlp_grad on cpu, fp strict, effort default: 3 of "));
    assert!(text.contains(" %h0 (") && text.ends_with(" nothing\n"), "{text}");
    // Machines without an engine have a frontier too, and unfused programs a point.
    json(&d, "plan deep_mlp.ir --grad --device h200 --frontier 2 --json");
    let off = json(&d, "plan deep_mlp.ir --grad --effort off --frontier 9 --json");
    assert_eq!(off["points"].as_array().unwrap().len(), 1);
}

#[test]
fn a_budget_is_kept_by_plan_run_bench_and_emit() {
    let d = models(&["deep_mlp", "transformer_block"]);
    for name in ["deep_mlp", "transformer_block"] {
        let f = format!("{name}.ir --grad --fp strict");
        let all = json(&d, &format!("plan {f} --frontier 1000 --json"));
        let points = all["points"].as_array().unwrap();
        let fastest = number(points.last().unwrap(), "peak_bytes");
        let recurs = |p: &&Value| p["again"].as_array().is_some_and(|a| !a.is_empty());
        let point = points.iter().rev().find(recurs).expect("a plan computes something again");
        let budget = number(point, "peak_bytes") + 3;
        let within = format!("{f} --mem-budget {budget}");
        let plan = json(&d, &format!("plan {within} --json --save tight.plan"));
        for key in [
            "peak_bytes",
            "predicted_ms",
            "compile_ms",
            "code_bytes",
            "saved_bytes",
            "plan",
            "again",
        ] {
            assert_eq!(plan[key], point[key], "{name} {key}");
        }
        assert_eq!(number(&plan["budget"], "mem_budget"), budget);
        assert_eq!(number(&plan["budget"], "fastest_peak_bytes"), fastest);
        assert_eq!(plan["budget"]["slower_percent"], point["slower_percent"]);
        let text = d.good(&format!("plan {within}"));
        assert!(text.contains(&format!(" ({budget} bytes): ")), "{text}");
        assert!(text.contains("\ncomputed again: %"), "{text}");
        // The plan is one like any other, as text and as JSON.
        assert_eq!(d.good(&format!("emit {within} --stage plan")), d.text("tight.plan"));
        d.file("tight.json", d.good(&format!("emit {within} --stage plan --json")));
        let program = d.good(&format!("emit {within} --stage program"));
        let kernels = d.good(&format!("emit {within} --stage kernels"));
        let steps = plan["groups"].as_array().unwrap().len();
        assert_eq!(kernels.matches("\nprogram @").count(), steps);
        // What is computed again heads several steps.
        let first = point["again"][0]["value"].as_str().unwrap();
        let heads = kernels.lines().filter(|l| l.starts_with("// step "));
        let word = |l: &&str| l.split([' ', ',']).any(|w| w == first);
        assert!(heads.filter(word).count() > 1, "{first}: {kernels}");
        d.good(&format!("emit {within} --stage clif"));
        let expected = d.good(&format!("run {name}.ir --grad --digest"));
        for file in ["tight.plan", "tight.json"] {
            let replay = format!("{name}.ir --grad --plan {file}");
            assert_eq!(d.good(&format!("emit {replay} --stage program")), program);
            let again = json(&d, &format!("plan {replay} --json"));
            assert_eq!((&again["plan"], &again["again"]), (&plan["plan"], &plan["again"]));
            assert_eq!(again["effort"], "replayed");
            assert_eq!(d.good(&format!("run {replay} --digest")), expected);
            d.good(&format!("plan {replay} --candidates"));
        }
        let last = plan["groups"].as_array().unwrap().last().unwrap()["computes"][0].clone();
        let pair = format!("{first} {}", last.as_str().unwrap());
        let why =
            d.good(&format!("plan {name}.ir --grad --plan tight.plan --explain-fusion {pair}"));
        assert!(why.contains(&format!("  {first}: computed in groups ")), "{why}");
        let run = format!("run {name}.ir --grad --digest --mem-budget {budget}");
        assert_eq!(d.good(&run), expected);
        let bench = json(&d, &format!("bench {within} --min-seconds 0 --json"));
        assert_eq!(number(&bench, "mem_budget"), budget);
        assert!(number(&bench, "peak_bytes") <= budget, "{bench:#}");
        assert_eq!(bench["peak_bytes"], point["peak_bytes"]);
    }
}

/// The engine is that of all cores; bits are the same.
#[test]
fn plans_for_one_core_are_run() {
    let d = models(&["recurrent"]);
    let expected = d.good("run recurrent.ir --grad --digest");
    d.good("plan recurrent.ir --grad --device cpu1 --save one.plan");
    for threads in [1, 2] {
        let run = format!("run recurrent.ir --grad --digest --plan one.plan --threads {threads}");
        assert_eq!(d.good(&run), expected);
    }
    let gpu = d.run("run recurrent.ir --grad --plan one.plan --engine gpu");
    assert!(gpu.err.contains("the plan is for the device `cpu1`, not `h200`"), "{}", gpu.err);
}

/// What runs here is counted as it runs here, whatever machine it is planned for.
#[test]
fn a_budget_is_kept_by_bench_for_another_device() {
    let d = models(&["recurrent"]);
    let f = "recurrent.ir --grad --device h200";
    let all = json(&d, &format!("plan {f} --frontier 1000 --json"));
    let least = number(&all["points"][0], "peak_bytes");
    let ran = d.run(&format!("bench {f} --mem-budget {least} --min-seconds 0"));
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    let word = ran.err.split("the least takes ").nth(1).and_then(|s| s.split(',').next());
    let here: u64 = word.unwrap().parse().unwrap();
    assert!(here > least);
    let bench = json(&d, &format!("bench {f} --mem-budget {here} --min-seconds 0 --json"));
    assert!(number(&bench, "peak_bytes") <= here, "{bench:#}");
}

#[test]
fn a_budget_for_which_there_is_no_plan_names_the_least() {
    let d = models(&["deep_mlp"]);
    let all = json(&d, "plan deep_mlp.ir --grad --frontier 1000 --json");
    let least = number(&all["points"][0], "peak_bytes");
    for command in ["plan", "run", "bench", "emit --stage program"] {
        let of = |budget: u64| format!("{command} deep_mlp.ir --grad --mem-budget {budget}");
        let ran = d.run(&of(least - 1));
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{command}: {}", ran.err);
        let said = format!(
            "no plan within {} bytes was found: the least takes {least}, and `%",
            least - 1
        );
        assert!(ran.err.contains(&said), "{}", ran.err);
        assert!(ran.err.contains("@deep_mlp"), "{}", ran.err);
        d.good(&of(least));
    }
    assert_eq!(d.run("plan deep_mlp.ir --mem-budget 0").code, 1);
    // Without a step all is there all the time.
    d.file("same.ir", "func @same(%x: f32[4]) -> f32[4] {\n  return %x\n}\n");
    let ran = d.run("plan same.ir --mem-budget 0");
    assert!(ran.err.contains("`%x` is the largest buffer"), "{}", ran.err);
    let ran =
        d.run(&format!("plan deep_mlp.ir --grad --mem-budget {} --save none.plan", least - 1));
    assert_eq!((ran.code, d.names().contains(&"none.plan".into())), (1, false));
}

#[test]
fn what_does_not_go_with_a_budget_is_said() {
    let d = programs();
    d.good("plan loss.ir --save loss.plan");
    d.good("plan loss.ir --device h200 --save gpu.plan");
    d.file("other.toml", "base = \"cpu\"\nname = \"other\"\nparallel = 3\n");
    d.good("plan loss.ir --device other.toml --save other.plan");
    for (args, said) in [
        ("plan loss.ir --mem-budget -5", "not below 0"),
        ("plan loss.ir --mem-budget 16EiB", "below 2^64"),
        ("plan loss.ir --mem-budget 64Mbit", "`Mbit` is no unit"),
        ("plan loss.ir --mem-budget 0.5", "a whole number of bytes"),
        ("plan loss.ir --mem-budget", "a value is required"),
        ("run loss.ir --mem-budget many", "such as 1024, 64MiB or 16GB"),
        ("plan loss.ir --plan loss.plan --mem-budget 1GiB", "cannot be used with"),
        ("emit loss.ir --stage plan --plan loss.plan --mem-budget 1GiB", "cannot be used with"),
        ("bench loss.ir --plan loss.plan --mem-budget 1GiB", "cannot be used with"),
        ("run loss.ir --plan loss.plan --mem-budget 1GiB", "cannot be used with"),
        ("run loss.ir --plan loss.plan --effort quick", "cannot be used with"),
        ("plan loss.ir --frontier 0", "a whole number from 1 to 1000"),
        ("plan loss.ir --frontier 1001", "a whole number from 1 to 1000"),
        ("plan loss.ir --frontier 3 --mem-budget 1GiB", "--frontier is about every budget"),
        ("plan loss.ir --frontier 3 --plan loss.plan", "cannot be used with"),
        ("plan loss.ir --frontier 3 --candidates", "cannot be used with"),
        ("plan loss.ir --frontier 3 --save a.plan", "cannot be used with"),
        ("plan loss.ir --mem-budget 1GiB --cache here --no-cache", "cannot be used with"),
        ("emit loss.ir --stage dce --mem-budget 1GiB", "comes before plans and budgets"),
        (
            "run loss.ir --engine reference --mem-budget 1GiB",
            "are for --engine evaluator, cpu, gpu",
        ),
        ("check loss.ir --engine reference --fp fast", "are for --engine evaluator, cpu, gpu"),
        ("check loss.ir --plan loss.plan", "unexpected argument '--plan'"),
        ("run loss.ir --engine reference --plan loss.plan", "are for --engine evaluator, cpu, gpu"),
        ("run loss.ir --plan none.plan", "cannot read `none.plan`"),
        ("run loss.ir --plan loss.plan --fp fast", "the plan is for --fp `strict`"),
        ("run loss.ir --plan gpu.plan", "the plan is for the device `h200`, not `cpu`"),
        ("run loss.ir --plan other.plan", "the plan is for the device `other #"),
        ("run loss.ir --grad --plan loss.plan", "of another function than this @loss_grad"),
        ("cache", "Usage"),
        ("cache empty", "unrecognized subcommand"),
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
    }
    d.good("run loss.ir --plan loss.plan");
}

/// Budgets that a frontier prints, and peaks that a plan does, are budgets that are kept.
#[test]
fn what_is_printed_as_a_budget_is_one() {
    let d = Folder::new();
    d.file(
        "f.ir",
        "func @f(%x: f32[512,512], %w: f32[512,512], %v: f32[512,512]) -> f32[] {
  %a = dot_general %x, %w {contract = [1] x [0]} : f32[512,512]
  %e = square %a : f32[512,512]
  %b = add %e, 1.0 : f32[512,512]
  %y = log %b : f32[512,512]
  %c = dot_general %y, %v {contract = [1] x [0]} : f32[512,512]
  %q = sin %b : f32[512,512]
  %d = dot_general %q, %v {contract = [1] x [0]} : f32[512,512]
  %g = mul %c, %d : f32[512,512]
  %s = reduce_sum %g {axes = [0, 1]} : f32[]
  return %s
}
",
    );
    let plan = "plan f.ir --grad --no-cache";
    let shown = d.good(&format!("{plan} --frontier"));
    let rows: Vec<Vec<&str>> =
        shown.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.len() > 2, "{shown}");
    for row in rows {
        let budget = format!("{}{}", row[0], row[1]);
        let made = d.good(&format!("{plan} --mem-budget {budget} --json"));
        let made: serde_json::Value = serde_json::from_str(&made).unwrap();
        let peak = made["peak_bytes"].as_u64().expect("a peak");
        assert!(peak <= made["budget"]["mem_budget"].as_u64().expect("a budget"), "{shown}");
    }
    let free = d.good(plan);
    let peak = free.lines().find(|line| line.starts_with("peak ")).expect("a peak");
    let words: Vec<&str> = peak.split_whitespace().collect();
    d.good(&format!("{plan} --mem-budget {}{}", words[1], words[2]));
}

/// What a plan is compared with is the plan of effort off without a budget, whatever a budget has later phases recover or
/// compute again.
#[test]
fn plans_within_all_budgets_are_compared_with_one() {
    let d = models(&["attention"]);
    let plan = "plan attention.ir --grad --fp fast --no-cache";
    let mut off = json(&d, &format!("{plan} --effort off --json"));
    let due = off["off"].take();
    for (key, own) in due.as_object().unwrap() {
        assert_eq!(&off[key], own, "{key}");
    }
    let note = "effort off: one kernel for each instruction, without a budget\n";
    assert!(!d.good(plan).contains(note));
    for budget in ["", "--mem-budget 90%", "--mem-budget 80%", "--compile-budget 10s"] {
        assert_eq!(json(&d, &format!("{plan} {budget} --json"))["off"], due, "{budget}");
        assert_eq!(d.good(&format!("{plan} {budget}")).contains(note), !budget.is_empty());
    }
}

/// What `plan` says that less memory costs is what a budget of it costs at most.
#[test]
fn less_memory_costs_at_most_what_is_said() {
    let d = models(&["attention", "transformer_block", "softmax"]);
    for name in ["attention", "transformer_block", "softmax"] {
        let plan = format!("plan {name}.ir --grad --no-cache");
        let text = d.good(&plan);
        let line =
            text.lines().find_map(|line| line.strip_prefix("less memory: with --mem-budget "));
        let words: Vec<&str> = line.unwrap_or_else(|| panic!("{text}")).split([' ', ',']).collect();
        let bytes: u64 = words[0].parse().unwrap();
        let most = words.windows(2).find(|pair| pair[0] == "most").expect("at most")[1];
        let most: f64 = most.parse().unwrap();
        let within = json(&d, &format!("{plan} --mem-budget {bytes} --json"));
        assert!(number(&within, "peak_bytes") <= bytes, "{within:#}");
        assert!(within["predicted_ms"].as_f64().unwrap() <= most, "{text}{within:#}");
    }
}
