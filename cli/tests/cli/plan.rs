//! `plan`, and the stages of `emit` that show one.

use crate::folder::{Folder, Ran};
use crate::programs;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A folder with models of `tests/models`.
pub(crate) fn models(names: &[&str]) -> Folder {
    let d = Folder::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/models");
    for name in names {
        let name = format!("{name}.ir");
        d.file(&name, fs::read(from.join(&name)).unwrap());
    }
    d
}

fn json(d: &Folder, args: &str) -> Value {
    serde_json::from_str(&d.good(args)).unwrap()
}

/// A run that fails with this status, says this and prints nothing.
fn fails(d: &Folder, args: &str, code: i32, said: &str) -> Ran {
    let ran = d.run(args);
    assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}: {}", ran.err);
    assert!(ran.err.contains(said), "{args}: {}", ran.err);
    ran
}

const FIGURES: [&str; 9] = [
    "launches",
    "bytes_moved",
    "least_bytes",
    "arena_bytes",
    "peak_bytes",
    "saved_bytes",
    "predicted_ms",
    "compile_ms",
    "code_bytes",
];

#[test]
fn a_plan_is_shown_beside_the_unfused_program() {
    let d = models(&["softmax"]);
    let strict = d.good("plan softmax.ir");
    assert!(strict.starts_with("@softmax on cpu, fp strict, effort default\n\n "), "{strict}");
    let text = d.good("plan softmax.ir --fp reproducible");
    assert!(text.starts_with("@softmax on cpu, fp reproducible, effort default\n\n "), "{text}");
    let row = |name: &str| -> Vec<String> {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().map(String::from).collect()
    };
    // One kernel for nine instructions. Folds over many points of a kernel take two launches.
    assert_eq!(row("launches"), ["1", "12", "0.083"]);
    assert_eq!(row("least possible")[4], "1.000", "{text}");
    for name in [
        "bytes moved",
        "arena",
        "peak",
        "saved for backward",
        "predicted ms",
        "to compile, ms",
        "code",
    ] {
        assert!(!row(name).is_empty(), "{text}");
    }
    assert!(text.contains("\npatterns: softmax at %p\n"), "{text}");
    assert!(text.contains("      %loss <- %x, %w\n"), "{text}");
    assert!(text.contains(" kernel  [3] "), "{text}");
}

#[test]
fn json_has_the_figures_and_does_not_change() {
    let d = models(&["transformer_block"]);
    let args = "plan transformer_block.ir --grad --json";
    let text = d.good(args);
    assert_eq!(text, d.good(args));
    let plan: Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<&str> = plan.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = vec!["function", "device", "fp", "effort", "plan", "graph"];
    expected.extend(FIGURES);
    expected.extend(["off", "leanest", "recognised", "patterns", "groups"]);
    assert_eq!(keys, expected);
    // Fused kernels differ more than those of single instructions, which share code.
    for key in FIGURES.into_iter().filter(|key| *key != "code_bytes") {
        let (mine, off) = (plan[key].as_f64().unwrap(), plan["off"][key].as_f64().unwrap());
        assert!(mine <= off, "{key}: {mine}, {off}");
    }
    for key in ["launches", "bytes_moved", "predicted_ms"] {
        let (mine, off) = (plan[key].as_f64().unwrap(), plan["off"][key].as_f64().unwrap());
        assert!(mine < off / 2.0, "{key}: {mine}, {off}");
    }
    let groups = plan["groups"].as_array().unwrap();
    let total = |key: &str| groups.iter().map(|g| g[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(plan["launches"], total("launches"));
    // Buffers have the names of the values they hold.
    for g in groups {
        let computes = g["computes"].as_array().unwrap();
        assert!(g["writes"].as_array().unwrap().iter().all(|w| computes.contains(w)), "{g:#}");
    }
    assert_eq!(plan["bytes_moved"], total("read_bytes") + total("written_bytes"));
    let off = json(&d, "plan transformer_block.ir --grad --json --effort off");
    assert_eq!(off["effort"], "off");
    for key in FIGURES {
        assert_eq!((&off[key], &off["off"][key]), (&plan["off"][key], &plan["off"][key]), "{key}");
    }
    assert!(
        off["groups"]
            .as_array()
            .unwrap()
            .iter()
            .all(|g| g["computes"].as_array().unwrap().len() == 1)
    );
}

#[test]
fn options_reach_the_planner() {
    let d = models(&["conv_as_slices", "naive_softmax", "mlp_relu"]);
    d.file(
        "slow.toml",
        "base = \"cpu\"\nname = \"slow\"\nmemory_bytes_per_s = 1e6\ncache_bytes_per_s = 1e6\n",
    );
    let of = |args: &str| json(&d, &format!("plan {args} --json"));
    assert_eq!(of("mlp_relu.ir --device h200")["device"], "h200");
    let slow = of("mlp_relu.ir --device slow.toml");
    let fast = of("mlp_relu.ir --device cpu");
    assert_eq!(slow["device"], "slow");
    assert!(slow["predicted_ms"].as_f64() > fast["predicted_ms"].as_f64());
    assert_eq!(of("mlp_relu.ir --effort quick")["effort"], "quick");
    let (found, begun) =
        (of("conv_as_slices.ir --grad --effort search"), of("conv_as_slices.ir --grad"));
    assert_eq!(found["effort"], "search");
    let launches = |json: &serde_json::Value| json["launches"].as_u64().expect("a number");
    assert!(launches(&found) < launches(&begun), "{found}");
    let some = of("mlp_relu.ir --grad --wrt w1");
    assert!(some["launches"].as_u64() < of("mlp_relu.ir --grad")["launches"].as_u64());
    assert!(some["launches"].as_u64() > fast["launches"].as_u64());
    // Strict keeps the naive form, the other modes do not.
    let rules = |fp: &str| of(&format!("naive_softmax.ir --fp {fp}"))["recognised"].to_string();
    assert_eq!(rules("strict"), "[]");
    // It says where that may give inf or nan, and what would not.
    let strict = of("naive_softmax.ir");
    let told = &strict["unstable"][0];
    assert_eq!((told["rule"].as_str(), told["at"].as_str()), (Some("softmax"), Some("%p")));
    assert_eq!(told["why"], "exp is inf above 88.72 in f32, and the result inf or nan then");
    assert!(of("naive_softmax.ir --fp fast")["unstable"].is_null());
    let text = d.good("plan naive_softmax.ir");
    assert!(text.contains("\n  softmax at %p: exp is inf above 88.72 in f32"), "{text}");
    for fp in ["reproducible", "fast"] {
        assert_eq!(rules(fp), "[{\"rule\":\"softmax\",\"at\":\"%p\"}]");
    }
    // What has no name has a line.
    d.file("line.ir", d.text("naive_softmax.ir").replace("%p", "%9"));
    assert!(d.good("plan line.ir --fp reproducible").contains("\nrecognised: softmax at line 6\n"));
    let text = d.good("plan naive_softmax.ir --fp reproducible");
    assert!(text.contains("\nrecognised: softmax at %p\n"), "{text}");
    let d = programs();
    assert!(d.good("plan two.ir --func second").starts_with("@second "));
    assert!(d.good("plan sym.ir --dim n=3").contains("[3, 2]"));
}

#[test]
fn a_plan_is_replayed_as_text_and_as_json() {
    // Several contractions in a group; gates that are packed.
    for (model, has) in [("attention", "; "), ("dropout_mlp", " as b1\n")] {
        let d = models(&[model]);
        let args = format!("{model}.ir --grad --fp strict --device h200");
        let text = d.good(&format!("emit {args} --stage plan"));
        assert!(text.starts_with(&format!("plan @{model}_grad {{\n  graph ")), "{text}");
        assert!(text.contains(has), "{text}");
        let shown = d.good(&format!("plan {args} --save a.plan"));
        assert_eq!(d.text("a.plan"), text);
        let value = d.good(&format!("emit {args} --stage plan --json"));
        d.file("a.json", &value);
        let program = d.good(&format!("emit {args} --stage program"));
        for file in ["a.plan", "a.json"] {
            // Machine and mode are the plan's.
            let replay = format!("{model}.ir --grad --plan {file}");
            assert_eq!(d.good(&format!("emit {replay} --stage plan")), text);
            assert_eq!(d.good(&format!("emit {replay} --stage plan --json")), value);
            assert_eq!(d.good(&format!("emit {replay} --stage program")), program);
            let again = d.good(&format!("plan {replay}"));
            assert_eq!(again.replace("effort replayed", "effort default"), shown);
        }
        // An unfused plan is one too.
        d.good(&format!("plan {model}.ir --effort off --save off.plan"));
        let off = json(&d, &format!("plan {model}.ir --plan off.plan --json"));
        assert_eq!(off["launches"], off["off"]["launches"]);
    }
}

#[test]
fn plans_that_do_not_fit_are_refused() {
    let d = models(&["softmax", "rms_norm"]);
    d.good("plan softmax.ir --save good.plan");
    let good = d.text("good.plan");
    let value = d.good("emit softmax.ir --stage plan --json");
    d.file("cut.plan", &good[..good.len() - 2]);
    d.file("name.plan", good.replace("%sum", "%summ"));
    d.file("twice.plan", good.replace("%sum,", "%sum, %sum,"));
    d.file("less.plan", good.replace(", %loss", ""));
    d.file("order.plan", good.replace("%0, %2", "%2, %0"));
    d.file("word.plan", good.replace("device cpu", "machine cpu"));
    d.file("device.plan", good.replace("device cpu", "device mine"));
    d.file("bad.json", &value[..value.len() / 2]);
    d.file("name.json", value.replace("%sum", "%summ"));
    d.file("graph.json", value.replace("\"graph\": \"", "\"graph\": \"0"));
    d.file("noise.plan", b"\xff\xfe");
    for (args, said) in [
        ("cut.plan", "the plan has no end"),
        ("name.plan", "`%summ` is no instruction"),
        ("twice.plan", "a group of the plan computes this twice"),
        ("less.plan", "no group of the plan computes this"),
        ("order.plan", "later group"),
        ("word.plan", "`machine` is not expected here"),
        ("device.plan", "give the file that describes it with --device"),
        ("bad.json", "`bad.json` is no plan"),
        ("name.json", "`%summ` is no instruction"),
        ("graph.json", "of another function"),
        ("noise.plan", "not UTF-8"),
        ("missing.plan", "cannot read `missing.plan`"),
        ("good.plan --grad", "of another function than this @softmax_grad"),
        ("good.plan --device h200", "the plan is for the device `cpu`, not `h200`"),
        ("good.plan --fp fast", "the plan is for --fp `strict`, not `fast`"),
        ("good.plan --effort off", "cannot be used with"),
    ] {
        for command in ["plan softmax.ir", "emit softmax.ir --stage program"] {
            fails(&d, &format!("{command} --plan {args}"), 2, said);
        }
    }
    let ran = fails(&d, "plan rms_norm.ir --plan good.plan", 2, "of another function");
    assert!(ran.err.contains("--dim, --grad, --wrt and --fp"), "{}", ran.err);
    // The place in the plan is shown.
    let ran = d.run("plan softmax.ir --plan name.plan");
    assert!(ran.err.contains("--> name.plan:"), "{}", ran.err);
}

#[test]
fn wrong_options_are_told_apart_from_wrong_programs() {
    let d = programs();
    d.file("bad.toml", "base = \"cpu\"\nmemory = 3\n").file("worse.toml", "base =");
    let junk = "[[products]]\nform = \"junk\"\nseconds = { library = 1.0 }\n";
    d.file("junk.toml", format!("base = \"cpu\"\n{junk}"));
    for (args, code, said) in [
        ("loss.ir --wrt w", 2, "--wrt needs --grad"),
        ("loss.ir --device gpu", 2, "no device `gpu`"),
        ("loss.ir --device h100", 2, "devices are cpu, cpu1, h200, and files that end in .toml"),
        ("loss.ir --device none.toml", 2, "cannot read `none.toml`"),
        ("loss.ir --device bad.toml", 2, "--> bad.toml:2:1"),
        ("loss.ir --device worse.toml", 2, "worse.toml"),
        ("loss.ir --device junk.toml", 2, "--> junk.toml:3:8"),
        ("loss.ir --compile-budget -1ms", 2, "or 800us, not below 0"),
        ("loss.ir --fp loose", 2, "--fp"),
        ("loss.ir --effort much", 2, "--effort"),
        ("loss.ir --explain-fusion %p", 2, "--explain-fusion"),
        ("loss.ir --explain-fusion %p %lost", 2, "did you mean `%loss`?"),
        ("loss.ir --explain %lost", 2, "did you mean `%loss`?"),
        ("loss.ir --explain-fusion %p %zebra", 2, "--stage ad"),
        ("loss.ir --explain-fusion %p %loss --candidates", 2, "cannot be used with"),
        ("sym.ir", 2, "add --dim n=4"),
        ("loss.ir --out no/such/folder", 2, "cannot write"),
    ] {
        fails(&d, &format!("plan {args}"), code, said);
    }
    // A plan that could not be shown is not written.
    d.run("plan sym.ir --save sym.plan");
    assert!(!d.names().contains(&"sym.plan".to_string()));
}

#[test]
fn every_stage_prints_what_reads_back() {
    let d = models(&["swiglu"]);
    let ad = d.good("emit swiglu.ir --grad --wrt x --stage ad");
    assert!(ad.starts_with("func @swiglu_grad(") && ad.contains("@p1"), "{ad}");
    d.file("ad.ir", &ad);
    assert_eq!(d.good("fmt ad.ir"), ad);
    // What is prepared is prepared: planning it again gives the same groups.
    let groups = |args: &str| -> Vec<String> {
        let text = d.good(&format!("emit {args} --stage plan"));
        text.lines().filter(|l| l.starts_with("  group")).map(String::from).collect()
    };
    assert_eq!(groups("ad.ir"), groups("swiglu.ir --grad --wrt x"));
    let kernels = d.good("emit swiglu.ir --stage kernels");
    let steps = json(&d, "plan swiglu.ir --json")["groups"].as_array().unwrap().len();
    assert_eq!(kernels.matches("\nprogram @").count(), steps);
    assert!(kernels.starts_with("// step 0: %0, %1, "), "{kernels}");
    // A step alone has just the buffers it reads and writes.
    let first = kernels.split("\n\n").next().unwrap();
    assert!(!first.contains("%wd") && first.contains("  input %wg: "), "{first}");
}

#[test]
fn explanations_say_how_or_why_not() {
    let d = models(&["softmax", "transformer_block"]);
    let together = d.good("plan softmax.ir --explain-fusion %e %p");
    assert_eq!(
        together,
        "%e and %p are computed together, in group 0, in different stages\n  \
         %e: at each element\n  %p: at each element\n"
    );
    let row = d.good("plan softmax.ir --explain-fusion sum p");
    assert!(row.contains("  %sum: folded along each row\n"), "{row}");
    let apart = d.good("plan transformer_block.ir --explain-fusion %scores %p");
    assert!(apart.starts_with("%scores and %p are computed apart\n"), "{apart}");
    let chain = "%p is not in group 3: %p needs %e, which is computed after that group; ";
    assert!(apart.contains(chain), "{apart}");
    assert!(
        apart.contains("%m folds whole rows of the contraction's result, which no tile"),
        "{apart}"
    );
    let given = d.good("plan softmax.ir --explain-fusion %x %p");
    assert!(given.contains("%x is given, not computed"), "{given}");
    let kind = json(&d, "plan transformer_block.ir --explain-fusion %y1 %qkv --json");
    assert_eq!(kind["together"], false);
    assert_eq!(kind["apart"][0]["obstacle"], "kind");
    assert_eq!(kind["apart"][0]["chain"], serde_json::json!(["%qkv0"]));
    // A reason, not the rule.
    let why = kind["text"].to_string();
    assert!(why.contains("layer norm needs the whole row of %"), "{why}");
    assert!(why.contains("before the first product can begin"), "{why}");
    let keys: Vec<&String> = kind.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["values", "together", "groups", "shared", "apart", "text"]);
    let off = d.good("plan softmax.ir --effort off --explain-fusion %2 %e");
    assert!(off.contains("no rule keeps %e out"), "{off}");
    // What has no name is told by what it is made of, and where.
    let line = d.text("softmax.ir").lines().position(|l| l.starts_with("  %2 = ")).unwrap() + 1;
    let told = off.lines().find(|l| l.starts_with("  %2 is ")).unwrap_or_else(|| panic!("{off}"));
    assert!(told.contains("(%x") && told.ends_with(&format!("f32[3,1030], line {line}")), "{told}");
    // Too few rows, each too long to be kept.
    d.file("long.ir", d.text("softmax.ir").replace("1030", "4000000").replace("f32[3", "f32[1"));
    let long = d.good("plan long.ir --explain-fusion %0 %e");
    assert!(long.contains("a row of 4000000 elements is too long to be kept"), "{long}");
}

#[test]
fn candidates_are_scored_and_say_what_the_plan_did() {
    let d = Folder::new();
    let norm = |x: &str| {
        format!(
            "  %0 = reduce_sum %{x} {{axes = [1]}} : f32[256]
  %mean = div %0, 512.0 : f32[256]
  %1 = broadcast_in_dim %mean {{dims = [0]}} : f32[256,512]
  %c = sub %{x}, %1 : f32[256,512]
  %2 = square %c : f32[256,512]
  %3 = reduce_sum %2 {{axes = [1]}} : f32[256]
  %var = div %3, 512.0 : f32[256]
  %4 = add %var, 1e-5 : f32[256]
  %rstd = rsqrt %4 : f32[256]
  %5 = broadcast_in_dim %rstd {{dims = [0]}} : f32[256,512]
  %n = mul %c, %5 : f32[256,512]\n"
        )
    };
    let gelu = "  %6 = mul %n, 0.70710677 : f32[256,512]
  %7 = erf %6 : f32[256,512]
  %8 = add %7, 1.0 : f32[256,512]
  %9 = mul %n, 0.5 : f32[256,512]
  %y = mul %9, %8 : f32[256,512]\n";
    d.file(
        "gelu.ir",
        format!(
            "func @f(%x: f32[256,512]) -> f32[256,512] {{\n{}{gelu}  return %y\n}}\n",
            norm("x")
        ),
    );
    d.file(
        "dot.ir",
        format!(
            "func @f(%a: f32[256,64], %b: f32[64,512]) -> f32[256,512] {{\n  \
             %x = dot_general %a, %b {{contract = [1] x [0]}} : f32[256,512]\n{}  return %n\n}}\n",
            norm("x")
        ),
    );
    let named = |file: &str, name: &str| -> Value {
        let all = json(&d, &format!("plan {file} --candidates --json"));
        let found = all.as_array().unwrap().iter().find(|c| c["name"] == name).cloned();
        found.unwrap_or_else(|| panic!("no {name}: {all:#}"))
    };
    let good = named("gelu.ir", "layer norm + gelu");
    assert!(good["score"].as_f64() > Some(0.7), "{good:#}");
    assert_eq!((&good["fused"], &good["refused"]), (&true.into(), &Value::Null));
    assert_eq!(good["patterns"], serde_json::json!(["layer norm", "gelu"]));
    assert!(good["saved_share"].as_f64() > Some(0.8) && good["registers"].as_u64() < Some(50));
    let bad = named("dot.ir", "dot_general + layer norm");
    assert!(bad["score"].as_f64() < Some(0.3), "{bad:#}");
    assert_eq!(bad["fused"], false);
    let why = bad["refused"].as_str().unwrap();
    assert!(why.contains("folds whole rows of the contraction's result, which no tile"), "{why}");
    let text = d.good("plan dot.ir --candidates");
    assert!(text.starts_with("score  fused  relation "), "{text}");
    assert!(text.contains("epilogue  dot_general + layer norm"), "{text}");
    // Of the unfused program, nothing is taken.
    let off = json(&d, "plan gelu.ir --candidates --json --effort off");
    assert!(off.as_array().unwrap().iter().all(|c| c["fused"] == false), "{off:#}");
}

#[test]
fn patterns_are_found_by_structure() {
    for (model, expected) in [
        ("layer_norm", &["layer norm"][..]),
        ("quantized_layer_norm", &["layer norm"]),
        ("residual_layer_norm_bf16", &["residual add", "layer norm"]),
        ("rms_norm", &["rms norm"]),
        ("softmax", &["softmax"]),
        ("cross_entropy", &["log-softmax", "cross entropy"]),
        ("cross_entropy_gather", &["cross entropy"]),
        ("gelu_bias", &["gelu"]),
        ("gelu_rowbias", &["gelu", "bias + activation"]),
        ("dropout_mlp", &["dropout", "bias + activation", "dropout"]),
        ("attention", &["q/k/v", "softmax", "attention"]),
        ("batch_norm", &["bias + activation"]),
        ("l2_norm", &[]),
        ("clipped_huber", &[]),
    ] {
        let d = models(&[model]);
        for args in ["--fp strict", "--fp strict --grad"] {
            // Names play no part.
            let text = d.text(&format!("{model}.ir"));
            d.file("renamed.ir", text.replace('%', "%v_"));
            let found = json(&d, &format!("plan renamed.ir {args} --json"));
            let found: Vec<&str> = found["patterns"]
                .as_array()
                .unwrap()
                .iter()
                .map(|p| p["name"].as_str().unwrap())
                .collect();
            assert_eq!(found, expected, "{model} {args}");
        }
    }
}
