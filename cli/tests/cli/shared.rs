//! The flags that every command takes, completions, and the manual.

use crate::folder::Folder;
use crate::plan::models;
use crate::programs;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn what_is_printed_can_be_written() {
    let d = programs();
    for args in [
        "grad loss.ir",
        "run ints.ir --input x=[1,2,3]",
        "run ints.ir --json",
        "check loss.ir",
        "fmt loss.ir",
        "plan loss.ir --grad",
        "emit loss.ir --stage ad --grad",
        "emit --rules",
        "completions zsh",
        "vmap loss.ir --size 2",
    ] {
        let printed = d.good(args);
        assert_eq!(d.good(&format!("{args} -o made.txt")), "", "{args}");
        assert_eq!(d.text("made.txt"), printed, "{args}");
        // Nothing is written where the command fails.
        let ran = d.run(&format!("{args} -o none.txt --no-such-flag"));
        assert_eq!((ran.code, d.names().contains(&"none.txt".into())), (2, false), "{args}");
    }
    d.file("made.npy", "");
    for args in ["grad loss.ir -o loss.ir", "run loss.ir --input x=made.npy -o ./made.npy"] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}");
        assert!(ran.err.contains("would replace"), "{args}: {}", ran.err);
    }
    assert_eq!(d.run("grad ints.ir -o none.txt").code, 1);
    assert!(!d.names().contains(&"none.txt".into()));
}

#[test]
fn tables_and_errors_are_json_too() {
    let d = programs();
    d.file("wrong.ir", "func @f(%x: f32[2]) -> f32[2] {\n  %0 = sigmoid %x\n  return %0\n}\n");
    assert!(json(&d.good("emit --stages --json")).as_array().is_some_and(|a| a.len() > 20));
    assert!(json(&d.good("emit --rules --json"))[0]["rules"].is_array());
    d.good("plan loss.ir --mem-budget 1MiB");
    let cache = json(&d.good("cache list --json"));
    assert!(cache["plans"][0]["graph"].is_string(), "{cache:#}");
    assert!(
        !d.good("cache list").contains("graph") && d.good("cache list --hashes").contains("graph")
    );
    assert_eq!(json(&d.good("cache clear --json"))["plans"], 1);
    let plan = d.good("plan loss.ir");
    let hash = json(&d.good("plan loss.ir --json"))["graph"].as_str().unwrap().to_string();
    assert!(!plan.contains(&hash) && d.good("plan loss.ir --hashes").contains(&hash));
    for (args, code, class, line) in [
        ("check wrong.ir --json", 1, "unknown-op", Value::from(2)),
        ("grad wrong.ir --json", 1, "unknown-op", Value::from(2)),
        ("run none.ir --json", 2, "usage", Value::Null),
        ("run loss.ir --json --nothing", 2, "usage", Value::Null),
        ("plan loss.ir --json --mem-budget 1", 1, "limit", Value::Null),
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}");
        let error = &json(&ran.err)["errors"][0];
        assert_eq!((error["class"].as_str(), &error["line"]), (Some(class), &line), "{args}");
        assert!(error["message"].is_string(), "{args}");
    }
}

/// A way to run each command so that it ends well.
const EACH: [(&str, &str); 20] = [
    ("grad", "loss.ir"),
    ("jvp", "loss.ir"),
    ("hvp", "loss.ir"),
    ("jacobian", "loss.ir --mode bwd"),
    ("hessian", "loss.ir"),
    ("vmap", "loss.ir --size 2"),
    ("run", "loss.ir --grad --digest"),
    ("launch", "-n 1 -- adfuse run loss.ir --json"),
    ("check", "two.ir --func first"),
    ("bench", "loss.ir --min-seconds 0"),
    ("emit", "loss.ir --stage program"),
    ("fmt", "loss.ir two.ir"),
    ("import", "m.mlir"),
    ("plan", "--frontier loss.ir"),
    ("report", "loss.ir --no-frontier"),
    ("pack", "b.csv"),
    ("cache", "list"),
    ("tune", "--each 1"),
    ("completions", "zsh"),
    ("man", "pages"),
];

/// What `--json` gives is JSON, of every command, and so is what a command says beside it.
#[cfg(unix)]
#[test]
fn every_command_prints_json() {
    let d = programs();
    d.file("b.csv", "id,lower,upper,size\na,0,3,4\n");
    d.file("m.mlir", "module {\n  func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n    return %a : tensor<2xf32>\n  }\n}\n");
    let known: Vec<&str> = EACH.iter().map(|(command, _)| *command).collect();
    assert_eq!(commands(&d), known, "a command is missing here");
    for (command, args) in EACH {
        // To measure the machine takes a while, and prints through what the others print through.
        if command == "tune" {
            continue;
        }
        let ran = d.shell(&format!("adfuse {command} --json {args}"));
        assert_eq!(ran.code, 0, "{command}: {}", ran.err);
        json(&ran.out);
        assert!(ran.err.is_empty() || json(&ran.err)["notes"].is_array(), "{command}: {}", ran.err);
        // Flags that all take are refused by none, but where there is nothing to write.
        let ran = d.shell(&format!("adfuse {command} --json=yes {args}"));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{command}");
        assert_eq!(json(&ran.err)["errors"][0]["class"], "usage", "{command}");
    }
    let digest = json(&d.good("run loss.ir --digest --json"));
    let text = d.good("run loss.ir --digest");
    assert!(text.contains(digest["outputs"][0]["sha256"].as_str().unwrap()), "{digest:#}");
    assert_eq!(json(&d.good("grad loss.ir --json"))["text"], d.good("grad loss.ir"));
    assert_eq!(json(&d.good("fmt loss.ir --json"))["files"][0]["text"], d.good("fmt loss.ir"));
    // The data of a page take its place.
    d.good("report loss.ir --no-frontier --json -o page.json");
    assert_eq!(json(&d.text("page.json"))["function"], "loss");
    // What programs print and what commands note are one object.
    let ran = d.run("run prints.ir --json");
    json(&ran.out);
    assert!(
        json(&ran.err)["printed"][0].as_str().is_some_and(|line| line.contains("seen")),
        "{}",
        ran.err
    );
}

#[test]
fn colors_are_used_where_they_are_asked_for() {
    let d = programs();
    let colored = |args: &str| d.run(args).err.contains('\x1b');
    assert!(colored("grad ints.ir --color always") && colored("--color always grad ints.ir"));
    assert!(colored("grad ints.ir --color=always --nothing"));
    assert!(!colored("grad ints.ir") && !colored("grad ints.ir --color never"));
    assert!(!d.with("NO_COLOR", "1", "grad ints.ir").err.contains('\x1b'));
}

#[test]
fn what_programs_print_cannot_drive_a_terminal() {
    let d = Folder::new();
    d.file(
        "print.ir",
        "func @f(%x: f32[2]) -> f32[2] {\n  %t = create_token : token\n  %u = debug_print %t, %x \
         {label = \"a\x1b[31m\"} : token\n  return %x\n}\n",
    );
    for args in ["run print.ir", "run print.ir --engine reference", "run print.ir --nothing"] {
        assert!(!d.run(args).err.contains('\x1b'), "{args}");
    }
}

/// Half of the peak is the same budget in bytes, whatever the command.
#[test]
fn a_budget_may_be_a_part_of_the_peak() {
    let d = models(&["deep_mlp"]);
    let f = "deep_mlp.ir --grad";
    let of = |args: &str| json(&d.good(args));
    let free = of(&format!("plan {f} --json"))["peak_bytes"].as_u64().unwrap();
    let half = of(&format!("plan {f} --json --mem-budget 75%"));
    let bytes = half["budget"]["mem_budget"].as_u64().unwrap();
    assert_eq!(bytes, free / 4 * 3 + free % 4 * 3 / 4);
    assert!(half["peak_bytes"].as_u64().unwrap() <= bytes);
    for command in ["plan", "run --digest", "emit --stage plan", "bench --min-seconds 0 --json"] {
        let (name, flags) = command.split_once(' ').unwrap_or((command, ""));
        let within = |budget: &str| d.good(&format!("{name} {f} {flags} --mem-budget {budget}"));
        let (part, whole) = (within("75%"), within(&bytes.to_string()));
        match name {
            "bench" => assert_eq!(json(&part)["mem_budget"], json(&whole)["mem_budget"]),
            _ => assert_eq!(part, whole, "{command}"),
        }
    }
    d.good("check deep_mlp.ir --mem-budget 100%");
    assert_eq!(d.run("check deep_mlp.ir --mem-budget 0%").code, 1);
    assert_eq!(d.run(&format!("run {f} --mem-budget 0% --digest")).code, 1);
}

/// The commands that `--help` lists.
fn commands(d: &Folder) -> Vec<String> {
    let help = d.good("--help");
    let listed = help.lines().skip_while(|l| *l != "Commands:").skip(1);
    let names = listed.take_while(|l| !l.is_empty()).filter_map(|l| l.split_whitespace().next());
    names.filter(|c| *c != "help").map(str::to_string).collect()
}

#[test]
fn completions_and_the_manual_name_all_commands() {
    let d = Folder::new();
    let commands = commands(&d);
    assert!(commands.len() >= 19, "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = d.good(&format!("completions {shell}"));
        assert!(commands.iter().all(|c| text.contains(c.as_str())), "{shell}");
    }
    d.good("man pages");
    for command in &commands {
        let page = d.text(&format!("pages/adfuse-{command}.1"));
        assert!(page.starts_with(".ie") && page.contains("json"), "{page}");
    }
    assert!(d.text("pages/adfuse.1").contains("adfuse"));
}
