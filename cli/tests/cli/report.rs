//! `report`: what a person reads off the page, and that the page is sound. Elements are found by their text; the script runs
//! in `scripts/report-browser`.

use super::folder::Folder;
use adfuse::report::sizes;
use serde_json::Value;

/// Three equal layers with a gate each, whose truth values are kept at one bit.
const LAYERS: &str =
    "func @net(%x: f32[64,16], %w0: f32[16,16], %w1: f32[16,16], %w2: f32[16,16]) -> f32[] {
  %h0 = dot_general %x, %w0 {contract = [1] x [0]} : f32[64,16]
  %a0 = relu %h0 : f32[64,16]
  %s0 = tanh %a0 : f32[64,16]
  %h1 = dot_general %s0, %w1 {contract = [1] x [0]} : f32[64,16]
  %a1 = relu %h1 : f32[64,16]
  %s1 = tanh %a1 : f32[64,16]
  %h2 = dot_general %s1, %w2 {contract = [1] x [0]} : f32[64,16]
  %a2 = relu %h2 : f32[64,16]
  %s2 = tanh %a2 : f32[64,16]
  %loss = reduce_sum %s2 {axes = [0, 1]} : f32[]
  return %loss
}
";

/// A page and its data.
struct MadePage {
    html: String,
    data: Value,
}

impl MadePage {
    fn of(args: &str) -> MadePage {
        let folder = Folder::new();
        folder.file("p.ir", LAYERS);
        let printed = folder.good(&format!("report p.ir --json --page p.html {args}"));
        MadePage { html: folder.text("p.html"), data: serde_json::from_str(&printed).unwrap() }
    }

    /// The text of an answer, as the page has it and as the data have it.
    fn answer(&self, key: &str) -> String {
        let answers = self.data["answers"].as_array().unwrap();
        let told = answers.iter().find(|a| a["key"] == key).expect(key);
        let told = told["answer"].as_str().unwrap();
        let element = self.element(&format!("<div data-answer=\"{key}\">"), "</div>");
        assert_eq!(plain(element.split_once("<dd>").unwrap().1), told, "{key}");
        told.to_string()
    }

    /// What is between two pieces of markup.
    fn element(&self, from: &str, to: &str) -> &str {
        let (_, rest) = self.html.split_once(from).unwrap_or_else(|| panic!("no {from}"));
        rest.split_once(to).unwrap_or_else(|| panic!("no {to} after {from}")).0
    }

    fn panel(&self, id: &str) -> &str {
        self.element(&format!("<section id=\"{id}\""), "</section>")
    }

    fn figure(&self, key: &str) -> (f64, f64) {
        let all = self.data["figures"].as_array().unwrap();
        let f = all.iter().find(|f| f["key"] == key).expect(key);
        (f["fused"].as_f64().unwrap(), f["unfused"].as_f64().unwrap())
    }

    fn list(&self, key: &str) -> &[Value] {
        self.data[key].as_array().unwrap()
    }
}

/// Markup without its elements.
fn plain(markup: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in markup.chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            c if !inside => text.push(c),
            _ => {}
        }
    }
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

#[test]
fn a_page_answers_ten_questions() {
    let p = MadePage::of("--grad --wrt w0,w1,w2");
    let steps = p.list("steps");
    // What makes the peak: the step and the largest value, which is the first row of the table.
    let values = p.data["memory"]["values"].as_array().unwrap();
    let at = p.data["memory"]["peak_step"].as_u64().unwrap();
    let live = |v: &&Value| v["from"].as_u64().unwrap() <= at && at <= v["to"].as_u64().unwrap();
    let largest = values.iter().filter(live).max_by_key(|v| v["bytes"].as_u64()).unwrap();
    let bytes = |v: &Value| v["bytes"].as_u64().unwrap();
    let first = p.element("<table id=\"peak-values\"", "</tr></tbody>");
    let (_, row) = first.split_once("<tbody><tr data-value=\"").unwrap();
    let named = values.iter().find(|v| v["name"] == row.split_once('"').unwrap().0).unwrap();
    assert_eq!(bytes(named), bytes(largest));
    let told = p.answer("peak");
    assert!(told.contains(&format!("step {at} ")), "{told}");
    assert!(told.contains(named["name"].as_str().unwrap()), "{told}");
    // Which residual is worth most: no other that is kept costs more time to compute again.
    let kept = |r: &&Value| matches!(r["decision"].as_str(), Some("save" | "compress"));
    let cost = |r: &Value| r["instead"]["seconds"].as_f64().unwrap_or(f64::MIN);
    let most = p.list("residuals").iter().filter(kept).map(cost).fold(f64::MIN, f64::max);
    let told = p.answer("residual");
    let value = told.split([':', ' ']).next().unwrap();
    let row = p.list("residuals").iter().find(|r| r["value"] == value).expect(value);
    assert_eq!(cost(row), most);
    assert!(p.panel("residuals").contains(&format!("data-worth=\"most\" data-value=\"{value}\"")));
    // How many launches without fusion, and what is kept at one bit.
    let (fused, unfused) = p.figure("launches");
    assert!(fused < unfused);
    assert!(p.answer("unfused").starts_with(&format!("{unfused}; with fusion {fused}, ")));
    let bits: Vec<&str> = (p.list("residuals").iter())
        .filter(|r| r["bits"] == 1)
        .map(|r| r["value"].as_str().unwrap())
        .collect();
    assert!(bits.len() >= 2, "{bits:?}");
    let told = p.answer("bits");
    assert!(told.starts_with(&format!("{} values: {} (", bits.len(), bits[0])), "{told}");
    assert_eq!(p.panel("residuals").matches("data-bits=\"1\"").count(), bits.len());
    // Which layer repeats: as often as said, with the same work.
    let told = p.answer("layer");
    let layers = p.list("layers");
    assert!(!layers.is_empty() && told.contains("in a row"), "{told}");
    for l in layers {
        let number = |key: &str| l[key].as_u64().unwrap() as usize;
        let (first, period, count) = (number("first"), number("period"), number("count"));
        for k in first..first + period * (count - 1) {
            assert_eq!(steps[k]["ops"], steps[k + period]["ops"]);
            assert_eq!(steps[k]["name"], steps[k + period]["name"]);
        }
    }
    // Where the time of the backward pass goes: the parts are those of its steps.
    let of = |s: &&Value| s["phase"].as_u64().unwrap() > 0;
    let seconds = |s: &Value| s["seconds"].as_f64().unwrap();
    let backward: f64 = steps.iter().filter(of).map(seconds).sum();
    let all: f64 = steps.iter().map(seconds).sum();
    let told = p.answer("backward");
    assert!(told.contains(&format!("({:.0} %)", 100.0 * backward / all)), "{told}");
    assert!(p.panel("strip").contains("<caption>backward: "));
    // Which kernel is furthest from its limit: nothing that takes as long is further.
    let told = p.answer("furthest");
    let n: usize = told.split([' ', '(']).nth(1).unwrap().parse().unwrap();
    let far = |s: &Value| seconds(s) / s["limit"].as_f64().unwrap().max(1e-30);
    let long = |s: &&Value| seconds(s) >= all / 200.0 && s["limit"].as_f64() != Some(0.0);
    let most = steps.iter().filter(long).map(far).fold(0.0, f64::max);
    assert_eq!(far(&steps[n]), most, "{told}");
    assert!(p.panel("roofline").contains("(furthest from its limit)"));
    // Why two named values are not fused: the first row that is not fused has both names and the reason.
    let apart = p.list("candidates").iter().find(|c| c["fused"] == false).unwrap();
    let told = p.answer("apart");
    assert!(told.ends_with(apart["reason"].as_str().unwrap()), "{told}");
    let rows = p.panel("candidates").matches("<tr data-fused=").count();
    assert_eq!(rows, p.list("candidates").len());
    // What less memory costs, and what is computed again: of this plan nothing is.
    assert!(
        p.answer("less").contains("of time: ") || p.answer("less").starts_with("No plan takes")
    );
    let again: Vec<&str> = (p.list("residuals").iter())
        .filter(|r| r["decision"] == "remat")
        .map(|r| r["value"].as_str().unwrap())
        .collect();
    let told = p.answer("recomputed");
    match again.first() {
        Some(first) => assert!(told.contains(first), "{told}"),
        None => assert_eq!(told, "Nothing."),
    }
}

#[test]
fn a_budget_shows_in_the_page() {
    let free = MadePage::of("--grad");
    let least = free.list("budget").iter().map(|p| p["peak"].as_u64().unwrap()).min().unwrap();
    let tight = MadePage::of(&format!("--grad --mem-budget {least}"));
    assert!(tight.data["memory"]["held"].as_u64().unwrap() <= least);
    assert_eq!(tight.data["memory"]["budget"].as_u64(), Some(least));
    assert!(tight.panel("memory").contains("class=\"budget\""));
    let again = tight.list("recomputed");
    assert!(!again.is_empty());
    let told = tight.answer("recomputed");
    assert!(told.contains(again[0]["value"].as_str().unwrap()), "{told}");
    let chosen: Vec<&Value> = tight.list("budget").iter().filter(|p| p["chosen"] == true).collect();
    assert_eq!(chosen.len(), 1);
    assert_eq!(chosen[0]["peak"], tight.data["memory"]["held"]);
    // What is live never takes more than what the plan holds.
    for p in [&free, &tight] {
        let memory = &p.data["memory"];
        assert!(memory["peak_live"].as_u64() <= memory["held"].as_u64(), "{memory}");
    }
}

#[test]
fn pages_and_frontiers_tell_the_layout() {
    let folder = Folder::new();
    let rows = "func @rows(%a: f32[100,3]) -> (f32[100], f32[3]) {
  %e = exp %a : f32[100,3]
  %r = reduce_sum %e {axes = [1]} : f32[100]
  %c = cumsum %e {axis = 0} : f32[100,3]
  %s = reduce_max %c {axes = [0]} : f32[3]
  return %r, %s
}
";
    folder.file("rows.ir", rows);
    let told = folder.good("plan rows.ir --frontier --json");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(told["points"].as_array().unwrap().iter().all(|p| p["layout"] == "row-major"));
    assert!(!folder.good("plan rows.ir --frontier").contains("layout"));
    let plan = folder.good("emit rows.ir --stage plan");
    folder.file(
        "rows.plan",
        &plan.replace("fp strict\n", "fp strict\n  layout structure-of-arrays\n"),
    );
    for (args, layout) in [("", "row-major"), ("--plan rows.plan", "structure-of-arrays")] {
        let data =
            folder.good(&format!("report rows.ir --no-frontier --json --page p.html {args}"));
        let data: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(data["layout"], layout);
        let head = format!(", layout {layout}</p>");
        assert!(folder.text("p.html").contains(&head), "{head}");
    }
}

#[test]
fn a_page_is_closed_and_shows_all_data() {
    let p = MadePage::of("--grad");
    for from_elsewhere in ["http://", "https://", "src=", "@import", "url("] {
        let page = p.html.replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    let steps = p.list("steps").len();
    // A region of each step in the memory picture, a row of each kernel, a box of each step that no layer hides.
    assert_eq!(p.panel("memory").matches("class=\"hit\"").count(), steps);
    assert_eq!(
        p.element("<table id=\"kernels\"", "</table>").matches("<tr data-step").count(),
        steps
    );
    let hidden: u64 = (p.list("layers").iter())
        .map(|l| l["period"].as_u64().unwrap() * (l["count"].as_u64().unwrap() - 1))
        .sum();
    assert_eq!(p.panel("strip").matches("class=\"step\"").count() as u64, steps as u64 - hidden);
    let points = p.panel("budget").matches("class=\"budget-point ").count();
    assert_eq!(points, p.list("budget").len());
    assert_eq!(p.html.matches("<div data-answer=").count(), 10);
    assert_eq!(p.element("<dl class=\"numbers\"", "</dl>").matches("data-key=").count(), 5);
    // Every figure says where it comes from.
    let figures = p.element("<table id=\"figures\">", "</table>");
    let marked = figures.matches("class=\"basis ").count();
    assert_eq!(marked, p.list("figures").len());
}

/// The script has no form of its own for sizes: it is given the texts that the command line would print.
#[test]
fn sizes_that_the_script_shows_are_texts_already() {
    let p = MadePage::of("--grad");
    let script: Value =
        serde_json::from_str(p.element("id=\"report-data\">", "</script>")).unwrap();
    let texts = |list: &str, key: &str| -> Vec<String> {
        let rows = script["texts"][list].as_array().unwrap();
        rows.iter().map(|row| row[key].as_str().unwrap_or("").to_string()).collect()
    };
    for (list, text, key, form) in [
        ("steps", "read", "read_bytes", sizes::bytes as fn(u64) -> String),
        ("steps", "written", "written_bytes", sizes::bytes),
        ("residuals", "bytes", "bytes", sizes::bytes),
        ("budget", "peak", "peak", sizes::limit),
        ("budget", "saved", "saved", sizes::bytes),
    ] {
        let due: Vec<String> =
            p.list(list).iter().map(|row| form(row[key].as_u64().unwrap())).collect();
        assert!(!due.is_empty());
        assert_eq!(texts(list, text), due, "{list}, {text}");
    }
    for (row, text) in p.list("residuals").iter().zip(texts("residuals", "peak")) {
        let peak = row["instead"]["peak"].as_i64();
        let size = peak.map_or_else(String::new, |n| sizes::bytes(n.unsigned_abs()));
        assert_eq!(text.trim_start_matches(['+', '\u{2212}']), size);
        assert_eq!(text.starts_with('+'), peak.is_some_and(|n| n > 0), "{text}");
    }
    assert!(!p.html.contains("\"KiB\""), "the script has units of its own");
}

#[test]
fn texts_of_a_program_stay_texts() {
    let folder = Folder::new();
    folder.file("<script>alert(1)<&'.ir", LAYERS);
    let said = folder.good("report <script>alert(1)<&'.ir -o p.html");
    assert!(said.starts_with("@net on cpu is "), "{said}");
    let html = folder.text("p.html");
    assert!(!html.contains("<script>alert"), "a name became markup");
    assert!(html.contains("&lt;script&gt;alert(1)&lt;&amp;&#39;.ir"));
    // A program without a derivative has a page too.
    assert!(html.contains("There is no backward pass."));
}

#[test]
fn pictures_and_measurements_are_written() {
    let p = MadePage::of("--grad --bench --no-frontier");
    let measured = p.data["measured"]["seconds"][1].as_f64().unwrap();
    assert!(measured > 0.0);
    assert!(p.list("steps").iter().all(|s| s["measured"]["seconds"].as_f64().is_some()));
    assert!(p.panel("compared").contains("class=\"basis measured\""));
    assert!(p.panel("roofline").contains("class=\"measured\""));
    // The head has what was measured, where something was.
    let head = p.element("id=\"numbers\">", "</dl>");
    let of =
        |key: &str| head.split("<div data-key=").find(|d| d.starts_with(&format!("\"{key}\"")));
    assert!(of("seconds").is_some_and(|d| d.contains("basis measured")), "{head}");
    assert!(of("launches").is_some_and(|d| d.contains("basis predicted")), "{head}");
    assert!(p.data["sentence"].as_str().unwrap().contains(" time as measured"));
    // Counters of the processor are there, or the page says why not.
    let counters = !p.data["measured"]["counters"].as_array().unwrap().is_empty();
    assert_ne!(counters, p.panel("compared").contains("Hardware counters are not read: "));
    let folder = Folder::new();
    let ran = folder.pipe("report - --grad --svg new/pictures", LAYERS.as_bytes());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for name in ["memory", "step", "roofline", "budget"] {
        let text = folder.text(&format!("new/pictures/{name}.svg"));
        assert!(text.starts_with("<?xml") && text.trim_end().ends_with("</svg>"), "{name}");
    }
}

#[test]
fn what_is_no_measurement_of_the_plan_is_refused() {
    let folder = Folder::new();
    folder.file("p.ir", LAYERS);
    for (text, said) in [
        ("{", "it is no JSON"),
        ("{}", "there is no valid `name`"),
        ("{\"name\": \"f\", \"device\": \"cpu\", \"steps\": 1}", "it is of @f"),
        ("{\"name\": \"net\", \"device\": \"h200\", \"steps\": 1}", "its plan is for h200"),
        ("{\"name\": \"net\", \"device\": \"cpu\", \"steps\": 99}", "its plan has 99 steps"),
    ] {
        folder.file("bench.json", text);
        let ran = folder.run("report p.ir --bench-file bench.json -o p.html");
        assert_eq!(ran.code, 2, "{text}");
        assert!(ran.err.contains(said), "{text}: {}", ran.err);
    }
    assert!(
        !folder.names().contains(&"p.html".into()),
        "nothing is written where something is wrong"
    );
    for (args, said) in [
        ("report p.ir", "--output"),
        ("report p.ir -o p.ir", "would replace"),
        ("report p.ir --bench --device h200 -o p.html", "--engine gpu"),
    ] {
        let ran = folder.run(args);
        assert_eq!(ran.code, 2, "{args}");
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
    }
}

/// The page of a measurement is of the plan that was measured, unless another is asked for.
#[test]
fn a_measurement_has_its_plan() {
    let folder = Folder::new();
    folder.file("p.ir", LAYERS);
    let off = "bench p.ir --grad --effort off --mem-budget 1MiB --min-seconds 0 --kernels --json";
    let measured = folder.good(&off.replace("--effort off ", ""));
    let budget: Value = serde_json::from_str(&measured).unwrap();
    assert_eq!(budget["mem_budget"], 1 << 20);
    folder.file("budget.json", &measured);
    folder.file("off.json", &folder.good(&off.replace("--mem-budget 1MiB ", "")));
    let report = |args: &str| -> Value {
        let printed = folder.good(&format!("report p.ir --grad --json --no-frontier {args}"));
        serde_json::from_str(&printed).unwrap()
    };
    let (free, off) = (report(""), report("--bench-file off.json"));
    assert!(free["steps"].as_array().unwrap().len() < off["steps"].as_array().unwrap().len());
    assert_eq!(off["effort"], "replayed");
    assert!(off["steps"][0]["measured"]["seconds"].as_f64().is_some());
    assert_eq!(report("--bench-file budget.json")["memory"]["budget"], 1 << 20);
    for (args, said) in [
        ("--grad --effort default", "its plan has"),
        ("", "is of another function"),
        ("--grad --device h200", "not `h200`"),
    ] {
        let ran = folder.run(&format!("report p.ir {args} --bench-file off.json -o p.html"));
        assert_eq!(ran.code, 2, "{args}");
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
    }
}

/// Of equal layers one is priced; what is told of the others is what pricing each gives.
#[test]
fn equal_layers_are_priced_as_one_and_told_alike() {
    let (mut params, mut body) = (String::new(), String::new());
    for k in 0..9 {
        let before = if k == 0 { "x".to_string() } else { format!("s{}", k - 1) };
        params += &format!(", %w{k}: f32[32,32]");
        body += &format!(
            "  %h{k} = dot_general %{before}, %w{k} {{contract = [1] x [0]}} : f32[64,32]\n  %e{k} = exp %h{k} : f32[64,32]\n  %s{k} = tanh %e{k} : f32[64,32]\n"
        );
    }
    let text = format!(
        "func @net(%x: f32[64,32]{params}) -> f32[] {{\n{body}  %loss = reduce_sum %s8 {{axes = [0, 1]}} : f32[]\n  return %loss\n}}\n"
    );
    let folder = Folder::new();
    folder.file("p.ir", &text);
    let read = |args: &str| -> Value { serde_json::from_str(&folder.good(args)).unwrap() };
    let report = read("report p.ir --grad --json --no-frontier");
    let each = read("plan p.ir --grad --decisions --json");
    let of = |name: &Value| each.as_array().unwrap().iter().find(|d| d["value"] == *name).unwrap();
    let mut shared = 0;
    for row in report["residuals"].as_array().unwrap() {
        let (told, own) = (&row["instead"], &of(&row["value"])["instead"]);
        if told.is_null() {
            assert!(own["impossible"].is_string(), "{row} {own}");
            continue;
        }
        shared += usize::from(told["priced_for"].is_string());
        let ms = told["seconds"].as_f64().unwrap() * 1e3;
        assert!((ms - own["ms"].as_f64().unwrap()).abs() < 1e-8, "{row} {own}");
        assert_eq!(told["peak"], own["peak_bytes"], "{row} {own}");
        assert_eq!(told["saved"], own["saved_bytes"], "{row} {own}");
        assert_eq!(told["decision"], own["decision"]);
    }
    assert!(shared >= 5, "{shared} of {}", report["residuals"]);
}

#[test]
fn a_function_that_computes_nothing_has_a_page() {
    let folder = Folder::new();
    folder.file("p.ir", "func @same(%x: f32[3]) -> f32[3] {\n  return %x\n}\n");
    for args in ["", "--grad"] {
        let said = folder.good(&format!("report p.ir {args} -o p.html"));
        assert!(said.contains("computes nothing"), "{said}");
        let html = folder.text("p.html");
        assert_eq!(html.matches("<div data-answer=").count(), 10);
        assert!(!html.contains("d=\"Z\""), "a path without a beginning");
    }
    let empty = folder.run("report none.ir -o p.html");
    assert!(empty.code == 2 && empty.err.contains("cannot read"), "{}", empty.err);
    let nowhere = folder.run("report p.ir -o none/p.html");
    assert!(nowhere.code == 2 && nowhere.err.contains("cannot write"), "{}", nowhere.err);
    let file = folder.run("report p.ir --svg p.ir");
    assert!(file.code == 2 && file.err.contains("cannot make"), "{}", file.err);
}

#[test]
fn a_run_writes_its_trace() {
    let folder = Folder::new();
    folder.file("p.ir", LAYERS);
    let traced = folder.good("run p.ir --grad --digest --trace t.json");
    assert_eq!(traced, folder.good("run p.ir --grad --digest"), "a trace changes no result");
    let events: Value = serde_json::from_str(&folder.text("t.json")).unwrap();
    let steps = events["traceEvents"].as_array().unwrap();
    assert!(steps.iter().filter(|e| e["cat"] == "step").count() > 3);
    let ran = folder.run("run p.ir --engine reference --trace t.json");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("--trace is for engines that plan"), "{}", ran.err);
    let ran = folder.run("run p.ir --trace p.ir");
    assert!(ran.code == 2 && ran.err.contains("would replace"), "{}", ran.err);
}

/// Names and lines are the user's where the text of JAX has them.
#[test]
fn a_page_of_a_jax_function_has_lines_of_python() {
    let folder = Folder::new();
    folder.file(
        "f.mlir",
        "module @jit_loss {
  func.func public @main(%arg0: tensor<8x4xf32> loc(\"params['w'][0]\")) -> tensor<8x4xf32> {
    %0 = stablehlo.tanh %arg0 : tensor<8x4xf32> loc(#loc2)
    %1 = stablehlo.foo %0 : tensor<8x4xf32> loc(#loc2)
    return %0 : tensor<8x4xf32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc1 = loc(\"/home/ada/net/src/model.py\":7:12 to :20)
#loc2 = loc(\"jit(loss)/tanh\"(#loc1))
",
    );
    // What cannot be imported is told with both lines.
    let ran = folder.run("check f.mlir");
    assert_eq!(ran.code, 1);
    for part in ["f.mlir:4:5", "= from net/src/model.py:7:12", "`stablehlo.foo` cannot"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    let ran = folder.run("check f.mlir --json");
    let errors: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(errors["errors"][0]["from"], "net/src/model.py:7:12");
    let text = folder.text("f.mlir");
    let good: String =
        text.lines().filter(|l| !l.contains("foo")).map(|l| format!("{l}\n")).collect();
    folder.file("f.mlir", &good);
    let printed = folder.good("report f.mlir --json --no-frontier --page p.html");
    let data: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(data["steps"][0]["lines"][0], "net/src/model.py:7:12");
    assert!(data["steps"][0]["reads"][0] == "%params.w.0", "{}", data["steps"][0]);
    assert!(folder.text("p.html").contains("net/src/model.py:7:12"));
}
