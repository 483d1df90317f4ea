//! `plan --cost-graph`: rematerialization within a budget.

use crate::folder::Folder;
use serde_json::{Value, json};

/// Three operations, of which the first is read again at the end.
fn graph() -> Value {
    json!({
        "inputs": [{"name": "x", "bytes": 8}],
        "operations": [
            {"name": "a", "time": 5, "bytes": 64, "inputs": ["x"]},
            {"name": "b", "time": 5, "bytes": 64, "inputs": ["a"]},
            {"name": "c", "time": 5, "bytes": 64, "inputs": ["b"]},
            {"name": "db", "time": 5, "bytes": 8, "inputs": ["b", "c"], "phase": 1},
            {"name": "da", "time": 5, "bytes": 8, "inputs": ["a", "db"], "phase": 1, "output": true},
        ],
    })
}

#[test]
fn the_fastest_schedule_within_a_budget_is_shown() {
    let d = Folder::new();
    d.file("g.json", graph().to_string());
    let text = d.good("plan --cost-graph g.json --mem-budget 150B --frontier 5");
    assert_eq!(
        text,
        "5 operations, within 150 B\n\n           peak  time  overhead  saved\nsave all  208 B    25    \
         0.00 %  192 B\nleast     144 B    30   20.00 %  128 B\nchosen    144 B    30   20.00 %  128 \
         B\n\nno schedule within 150 B is faster than 30: the gap is at most 0.00 %\ncomputed again: a\n\
         \n peak  time  overhead  saved\n144 B    30   20.00 %  128 B\n208 B    25    0.00 %  192 B\n"
    );
    let printed = d.good("plan --cost-graph g.json --mem-budget 150B --json --frontier 1");
    let report: Value = serde_json::from_str(&printed).unwrap();
    let least = json!({"peak_bytes": 144, "time": 30, "saved_bytes": 128});
    assert_eq!(
        report,
        json!({
            "operations": 5,
            "mem_budget": 150,
            "save_all": {"peak_bytes": 208, "time": 25},
            "least": least,
            "chosen": least,
            "overhead_percent": 20.0,
            "least_time": 30,
            "gap_percent": 0.0,
            "recomputed": [{"name": "a", "times": 1}],
            "schedule": ["a", "b", "c", "db", "a", "da"],
            "frontier": [{"peak_bytes": 208, "time": 25, "saved_bytes": 192}],
        })
    );
    // Without a budget nothing is computed again; standard input serves too.
    let ran = d.pipe("plan --cost-graph -", graph().to_string().as_bytes());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(
        ran.out.contains("chosen    208 B") && !ran.out.contains("computed again"),
        "{}",
        ran.out
    );
}

#[test]
fn what_cannot_be_planned_says_why() {
    let d = Folder::new();
    d.file("g.json", graph().to_string()).file("bad.json", "{\"operations\": [{}]}");
    d.file("loop.json", "{\"operations\": [{\"name\": \"a\", \"time\": 1, \"inputs\": [\"a\"]}]}");
    d.file("x.ir", "");
    for (args, said) in [
        (
            "--cost-graph g.json --mem-budget 143",
            "error[limit]: no schedule within 143 bytes was found: the least takes 144, and the largest value at its peak",
        ),
        (
            "--cost-graph bad.json",
            "error[syntax]: `bad.json` is no cost graph: missing field `name` at line 1 column 18",
        ),
        ("--cost-graph loop.json", "`a` is computed from itself: a reads a"),
    ] {
        let ran = d.run(&format!("plan {args}"));
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
    }
    for (args, said) in [
        ("--cost-graph none.json", "cannot read `none.json`"),
        ("--cost-graph g.json --mem-budget many", "expected bytes, such as 1024, 64MiB or 16GB"),
        ("--cost-graph g.json --frontier 0", "a whole number from 1 to 1000"),
        ("--cost-graph g.json x.ir", "cannot be used with"),
        ("--cost-graph g.json --grad", "cannot be used with"),
        ("--cost-graph g.json --candidates", "cannot be used with"),
        ("--cost-graph g.json --save p.txt", "cannot be used with"),
        ("--cost-graph g.json --no-cache", "cannot be used with"),
        ("x.ir --mem-budget 1GiB --frontier 3", "--frontier is about every budget"),
        ("", "<FILE>"),
    ] {
        let ran = d.run(&format!("plan {args}"));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
    }
}

#[test]
fn frontiers_of_loops_have_stacks_and_checkpoints() {
    let d = Folder::new();
    d.file(
        "chain.ir",
        "func @chain(%h: f32[4], %w: f32[4]) -> f32[] {
  %c = scan %h {carry = 1, length = 200} : f32[4] body(%s: f32[4]) {
    %a = mul %s, %w : f32[4]
    %n = tanh %a : f32[4]
    yield %n
  }
  %r = reduce_sum %c {axes = [0]} : f32[]
  return %r
}
",
    );
    let told = d.good("plan chain.ir --grad --frontier 50 --json");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let points = told["points"].as_array().expect("points");
    let loops: Vec<&str> = points.iter().filter_map(|p| p["loops"][0].as_str()).collect();
    assert_eq!(loops.len(), points.len());
    assert_eq!(loops.first(), Some(&"checkpoints 1"));
    assert!(loops.last().is_some_and(|last| last.starts_with("stack")), "{loops:?}");
    assert!(loops.len() > 4, "{loops:?}");
    let run = "run chain.ir --grad --digest --seed 1";
    let expected = d.good(&format!("{run} --engine reference"));
    for point in points {
        let budget = point["peak_bytes"].as_u64().expect("bytes");
        assert_eq!(d.good(&format!("{run} --mem-budget {budget} --no-cache")), expected);
    }
}

#[test]
fn one_is_told_as_one_and_more_as_how_many() {
    let d = Folder::new();
    d.file("one.json", "{\"operations\": [{\"name\": \"a\", \"time\": 1, \"bytes\": 8}]}");
    assert!(d.good("plan --cost-graph one.json").starts_with("1 operation\n"));
    // A chain of large values, of which the way back reads each one.
    let mut operations = Vec::new();
    for k in 0..4 {
        let input = if k == 0 { "x".into() } else { format!("a{}", k - 1) };
        operations
            .push(json!({"name": format!("a{k}"), "time": 1, "bytes": 64, "inputs": [input]}));
    }
    operations.push(json!({"name": "d4", "time": 1, "bytes": 8, "inputs": ["a3"]}));
    for k in (0..4).rev() {
        let input = if k == 0 { "x".into() } else { format!("a{}", k - 1) };
        let inputs = [format!("d{}", k + 1), input];
        operations.push(json!({
            "name": format!("d{k}"), "time": 1, "bytes": 8, "inputs": inputs, "phase": 1, "output": k == 0,
        }));
    }
    let graph = json!({"inputs": [{"name": "x", "bytes": 8}], "operations": operations});
    d.file("chain.json", graph.to_string());
    let text = d.good("plan --cost-graph chain.json --mem-budget 144");
    assert!(text.starts_with("9 operations, within"), "{text}");
    assert!(text.contains("\ncomputed again: a0 (2 times), a1\n"), "{text}");
}
