//! Runs every example, small, and reads what it prints.

use std::path::PathBuf;
use std::process::Command;

/// The programs lie beside the folder of this test's own.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let built = own.parent().and_then(|deps| deps.parent()).expect("a folder of builds");
    built.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// What an example prints.
fn printed(name: &str, args: &[&str]) -> String {
    let out = Command::new(program(name))
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{name}: {e}: `cargo test -p adfuse-examples` builds it"));
    let (text, errors) = [&out.stdout, &out.stderr].map(|t| String::from_utf8_lossy(t)).into();
    assert!(out.status.success(), "{name}: {text}{errors}");
    text.into_owned()
}

/// The number that follows a text, each time.
fn numbers(text: &str, before: &str) -> Vec<f64> {
    let of = |rest: &str| {
        let rest = rest.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c)));
        rest[..end.unwrap_or(rest.len())].parse().ok()
    };
    text.split(before).skip(1).filter_map(of).collect()
}

#[track_caller]
fn number(text: &str, before: &str) -> f64 {
    *numbers(text, before).first().unwrap_or_else(|| panic!("no {before:?} in\n{text}"))
}

/// The last loss is less than a share of the first.
#[track_caller]
fn falls(text: &str, before: &str, share: f64) {
    let all = numbers(text, before);
    let (first, last) = (all[0], all[all.len() - 1]);
    assert!(last < share * first, "{before} from {first} to {last}:\n{text}");
}

#[test]
fn digits_are_told_apart() {
    let text = printed("digits", &["--small"]);
    assert!(number(&text, "test accuracy:") > 90.0, "{text}");
    // A row of the table for each digit, with all held images together.
    let table = text.split_once("(read as)").expect("a table").1;
    let counts: Vec<Vec<u32>> = table
        .lines()
        .filter(|l| !l.is_empty())
        .map(|l| l.split_whitespace().map(|n| n.parse().expect("a number")).collect())
        .collect();
    assert_eq!(counts.len(), 10, "{text}");
    assert_eq!(counts.iter().flat_map(|row| &row[1..]).sum::<u32>(), 297, "{text}");
}

#[test]
fn gpt_learns_and_writes() {
    let text = printed("gpt", &["--small", "--length", "20"]);
    falls(&text, "loss", 0.85);
    let written = text.split_once("---\n").expect("a sample").1;
    assert_eq!(written.chars().count(), 20 + 1, "{text}");
    // Within a budget it does the same, in less memory.
    let peak = number(&text, "a step takes");
    let budget = (peak * 0.8) as u64;
    let within =
        printed("gpt", &["--small", "--length", "20", "--mem-budget", &format!("{budget}KiB")]);
    assert!(number(&within, "a step takes") <= budget as f64, "{within}");
    assert_eq!(numbers(&within, "loss"), numbers(&text, "loss"));
    assert!(within.ends_with(written), "{within}\n{text}");
}

#[test]
fn gpt2_trains_in_16_bits() {
    let text = printed("gpt2", &["--small"]);
    falls(&text, "loss", 0.95);
    assert!(numbers(&text, "loss").len() == 11 && text.contains("tokens/s"), "{text}");
    // Within a budget, in parts and with a scaled loss it does much the same.
    let peak = number(&text, "a step takes");
    let budget = format!("{}KiB", (peak * 0.9) as u64);
    let within = printed("gpt2", &["--small", "--mem-budget", &budget]);
    assert!(number(&within, "a step takes") <= peak * 0.9, "{within}");
    assert_eq!(numbers(&within, "loss"), numbers(&text, "loss"));
    let parts = printed("gpt2", &["--small", "--micro-batches", "2", "--precision", "f16"]);
    let apart = numbers(&parts, "loss")
        .iter()
        .zip(numbers(&text, "loss"))
        .map(|(a, b)| a - b)
        .fold(0.0, |most: f64, x| most.max(x.abs()));
    assert!(apart < 0.05, "{parts}\n{text}");
}

/// It learns, in 16 bits or 32, and a step within a budget computes the same.
#[track_caller]
fn trains(name: &str, what: &str, narrow: &str, share: f64) {
    let text = printed(name, &["--small"]);
    falls(&text, "loss", share);
    assert!(numbers(&text, "loss").len() == 11 && text.contains(what), "{text}");
    let budget = number(&text, "a step takes") * 0.9;
    let within = printed(name, &["--small", "--mem-budget", &format!("{}KiB", budget as u64)]);
    assert!(number(&within, "a step takes") <= budget, "{within}");
    assert_eq!(numbers(&within, "loss"), numbers(&text, "loss"));
    let other = printed(name, &["--small", narrow]);
    falls(&other, "loss", share);
    assert_ne!(numbers(&other, "loss"), numbers(&text, "loss"));
    let step = printed(name, &["--small", "--print-step"]);
    assert!(step.starts_with("func @step("), "{step}");
}

#[test]
fn bert_finds_masked_tokens() {
    trains("bert", "sequences/s", "--full-precision", 0.7);
}

#[test]
fn resnet_tells_digits_apart() {
    trains("resnet", "images/s", "--bf16", 0.9);
}

/// Tokens of a byte-level BPE: words are not crossed, pairs of lower ranks are merged first.
#[test]
fn gpt2_reads_tokenizers() {
    let folder = std::env::temp_dir().join(format!("adfuse-gpt2-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("is made");
    let (text, tokenizer) = (folder.join("text"), folder.join("tokenizer.json"));
    // Of the merges "a b" and "ab a", in both spellings; a space before a word is the letter U+0120.
    let vocab = r#"{"a": 0, "b": 1, "ab": 2, "aba": 3, "\u0120": 4, "\u010a": 5}"#;
    for merges in [r#"["a b", "ab a"]"#, r#"[["a", "b"], ["ab", "a"]]"#] {
        let file =
            format!(r#"{{"model": {{"type": "BPE", "vocab": {vocab}, "merges": {merges}}}}}"#);
        std::fs::write(&tokenizer, file).expect("is written");
        // "aba" is a token, " ba" three, and the ends of lines one each.
        std::fs::write(&text, "aba ba\n".repeat(40)).expect("is written");
        let args =
            [text.to_str(), Some("--tokenizer"), tokenizer.to_str()].map(|a| a.expect("a name"));
        let small = ["--small", "--steps", "1"];
        let told = printed("gpt2", &[&args[..], &small[..]].concat());
        assert!(told.starts_with("200 tokens"), "{told}");
    }
    std::fs::remove_dir_all(&folder).expect("is there");
}

#[test]
fn lstm_adds() {
    let text = printed("lstm", &["--small"]);
    falls(&text, "loss", 0.2);
    assert_eq!(numbers(&text, "answered").len(), 4, "{text}");
}

#[test]
fn pinn_obeys_the_equation() {
    let text = printed("pinn", &["--small"]);
    falls(&text, "loss", 0.2);
    assert!(number(&text, "largest of all:") < 0.3, "{text}");
}

#[test]
fn bundle_finds_the_scene() {
    let text = printed("bundle", &["--small"]);
    falls(&text, "error", 0.01);
    assert!(numbers(&text, "error").pop().expect("a step") < 1e-4, "{text}");
}

#[test]
fn implicit_gradients_are_differences() {
    let text = printed("implicit", &["--small"]);
    assert!(number(&text, "differ by") < 1e-7, "{text}");
    falls(&text, "error on other data:", 0.95);
    assert!(number(&text, "that matter:") < number(&text, "of others:"), "{text}");
}

#[test]
fn budgets_change_no_bit() {
    let text = printed("budget", &["--small"]);
    assert!(text.matches("the same bits").count() >= 3, "{text}");
    assert!(!text.contains("DIFFERENT"), "{text}");
    for line in text.lines().filter(|l| l.ends_with("the same bits")) {
        let row: Vec<f64> =
            line.split_whitespace().take(2).map(|n| n.parse().expect("a number")).collect();
        assert!(row[1] <= row[0], "{line}");
    }
}

#[test]
fn orbit_finds_the_shape() {
    let text = printed("orbit", &[]);
    assert!((numbers(&text, "e =").pop().expect("a step") - 0.2056).abs() < 1e-9, "{text}");
}

#[test]
fn a_gallery_leads_to_its_reports() {
    let folder = std::env::temp_dir().join(format!("adfuse-gallery-{}", std::process::id()));
    let path = folder.to_str().expect("a path");
    printed("gallery", &[path, "--small", "--also", "Digits again", "digits.html"]);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
    let index = read("index.html");
    let articles: Vec<&str> = index.split("<h2><a href=\"").skip(1).collect();
    assert_eq!(articles.len(), 9, "{index}");
    for article in &articles {
        let page = read(article.split_once('"').expect("a file").0);
        assert_eq!(page.matches("<div data-answer=").count(), 10);
    }
    // What is read off a page that was there is what its report says.
    let figures = |article: &str| article.split_once("<dl").expect("figures").1.to_string();
    let (first, last) = (figures(articles[0]), figures(articles[8]));
    assert_eq!(first.matches("<dd class=\"now\">").count(), 3, "{first}");
    assert_eq!(last.split_once("</dl>").map(|(l, _)| l), first.split_once("</dl>").map(|(f, _)| f));
    // Lines are those of the programs that were traced.
    assert!(read("digits.html").contains("examples/gallery.rs:"));
    assert!(read("jax-import.html").contains("python/examples/gpt.py:"));
    std::fs::remove_dir_all(&folder).expect("a folder of its own");
}
