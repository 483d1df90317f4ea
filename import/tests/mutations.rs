//! Mutated programs: whatever a text holds, importing it ends with a module or with typed errors. `ADFUSE_FUZZ_CASES`
//! sets how many are tried.

use adfuse_import::{ImportError, ImportOptions, stablehlo};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A generator of Marsaglia's xorshift family: the same mutations each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// Texts of ops that no program of the folder has.
const OTHERS: &str = r#"module @m {
  func.func public @main(%arg0: tensor<4x3xui16>, %arg1: tensor<4xi64>, %p: tensor<i1>) -> (tensor<4x3xui16>, tensor<f32>) {
    %c = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]]> : tensor<4x3xui16>
    %h = stablehlo.constant dense<"0x0000803F000000C0"> : tensor<2xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.divide %arg0, %c : tensor<4x3xui16>
    %1 = "stablehlo.if"(%p) ({
      stablehlo.return %0 : tensor<4x3xui16>
    }, {
      stablehlo.return %c : tensor<4x3xui16>
    }) : (tensor<i1>) -> tensor<4x3xui16>
    %2 = stablehlo.reduce(%h init: %z) across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
     reducer(%a: tensor<f32>, %b: tensor<f32>)  {
      %3 = stablehlo.subtract %a, %b : tensor<f32>
      %4 = stablehlo.abs %3 : tensor<f32>
      stablehlo.return %4 : tensor<f32>
    }
    %5 = stablehlo.slice %1 [0:4, 0:3:2] : (tensor<4x3xui16>) -> tensor<4x2xui16>
    %6 = sdy.sharding_constraint %1 <@mesh, [{"x"}, {}]> : tensor<4x3xui16>
    return %6, %2 : tensor<4x3xui16>, tensor<f32> loc("f.py":1:2)
  }
}
"#;

/// A program with locations of every form.
const LOCATED: &str = r#"#loc = loc(unknown)
#loc1 = loc("params['w'][0]")
#loc2 = loc("/home/ada/net/src/model.py":7:12 to :20)
#loc3 = loc("jit(loss)/mul"(#loc2))
#loc4 = loc(callsite(#loc3 at "main.py":3:1))
#loc5 = loc(fused<"a\5Cb">[#loc4, #loc2])
module @jit_loss {
  func.func public @main(%arg0: tensor<4xf32> loc(#loc1), %arg1: tensor<4xf32> loc("x")) -> tensor<4xf32> {
    %0 = stablehlo.multiply %arg0, %arg1 : tensor<4xf32> loc(#loc5)
    %1 = stablehlo.tanh %0 : tensor<4xf32> loc(callsite(#loc4 at #loc6))
    return %1 : tensor<4xf32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc6 = loc(#loc6)
"#;

fn programs() -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/jax");
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    paths.sort();
    paths.retain(|p| p.extension().is_some_and(|e| e == "mlir"));
    let texts = paths.iter().map(|p| std::fs::read_to_string(p).expect("a program"));
    texts.chain([OTHERS.to_string(), LOCATED.to_string()]).collect()
}

/// What mutations put into a text.
const PIECES: &[&str] = &[
    "%",
    "@",
    "(",
    ")",
    "{",
    "}",
    "<",
    ">",
    "[",
    "]",
    "dense<",
    "tensor<9999999999x9xf64>",
    "tensor<?xf32>",
    ":",
    ",",
    "=",
    "->",
    "-1",
    "0x",
    "18446744073709551616",
    "\"",
    "x",
    "#stablehlo<",
    "^bb0:",
    "stablehlo.while",
    "!",
    "\u{e9}",
    "loc(",
    "#loc5",
    "callsite(",
    "fused<",
    "applies",
];

/// A text with some bytes, words or lines changed.
fn mutated(text: &str, other: &str, r: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + r.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = r.below(bytes.len());
        let end = (at + 1 + r.below(30)).min(bytes.len());
        match r.below(6) {
            0 => {
                bytes.drain(at..end);
            }
            1 => {
                let piece = PIECES[r.below(PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
            2 => bytes[at] = b"09axX%{}<>()-\"#."[r.below(16)],
            3 => {
                let from = r.below(other.len());
                let part = &other.as_bytes()[from..(from + r.below(200)).min(other.len())];
                bytes.splice(at..end, part.iter().copied());
            }
            4 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn mutated_programs_end_with_a_module_or_typed_errors() {
    let cases =
        std::env::var("ADFUSE_FUZZ_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(4_000);
    let (texts, mut r) = (programs(), Random(0x9e37_79b9_7f4a_7c15));
    let (mut syntax, mut unsupported, mut modules) = (0, 0, 0);
    for _ in 0..cases {
        let (k, other) = (r.below(texts.len()), r.below(texts.len()));
        let text = mutated(&texts[k], &texts[other], &mut r);
        match stablehlo(&text, &ImportOptions::default()) {
            Ok(_) => modules += 1,
            Err(ImportError::Syntax(error)) => {
                assert!(error.at.span.is_some(), "{error}");
                syntax += 1;
            }
            Err(ImportError::Unsupported(coverage)) => {
                assert!(!coverage.issues.is_empty());
                unsupported += 1;
            }
            Err(ImportError::Invalid(errors)) => assert!(!errors.is_empty()),
            Err(e @ ImportError::Internal(_)) => panic!("{e}\n{text}"),
        }
    }
    // Every outcome occurs: what is tried is neither nothing but noise nor what was written.
    assert!(
        syntax > cases / 10 && unsupported > 0 && modules > 0,
        "{syntax} {unsupported} {modules}"
    );
}

#[test]
fn deep_texts_are_refused() {
    for (open, close) in [
        ("module { ", "}"),
        ("func.func @f() { ", "}"),
        ("func.func @f() { %0 = a.b (", ")"),
        ("func.func @f() { a.b [", "]"),
    ] {
        let text = open.repeat(100_000) + &close.repeat(100_000);
        assert!(matches!(stablehlo(&text, &ImportOptions::default()), Err(ImportError::Syntax(_))));
    }
    let mut nested = "func.func @f() { a.b ".to_string();
    (0..100_000).for_each(|_| nested.push_str("{a = ["));
    assert!(matches!(stablehlo(&nested, &ImportOptions::default()), Err(ImportError::Syntax(_))));
}

#[test]
fn calls_that_double_at_every_level_are_refused() {
    let mut text = String::from(
        "func.func public @main(%x: tensor<4xf32>, %i: tensor<f32>) -> tensor<f32> {
          %0 = stablehlo.reduce(%x init: %i) across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
          reducer(%a: tensor<f32>, %b: tensor<f32>) { %1 = func.call @f0(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
            stablehlo.return %1 : tensor<f32> }
          return %0 : tensor<f32>
        }\n",
    );
    for k in 0..60 {
        let next = k + 1;
        let _ = write!(
            text,
            "func.func private @f{k}(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {{
              %0 = func.call @f{next}(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
              %1 = func.call @f{next}(%0, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
              return %1 : tensor<f32>
            }}\n"
        );
    }
    text.push_str("func.func private @f60(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }");
    assert!(matches!(
        stablehlo(&text, &ImportOptions::default()),
        Err(ImportError::Unsupported(_))
    ));
}

/// 50 MB of text, nearly all of it weights: read in time that grows with the text alone.
#[test]
fn a_large_module_is_read_in_time() {
    let (tensors, elements) = (16, 390_000);
    let mut text = String::from("func.func public @main(%x: tensor<f32>) -> tensor<f32> {\n");
    for k in 0..tensors {
        let _ = write!(text, "  %w{k} = stablehlo.constant dense<\"0x");
        (0..elements).for_each(|i| {
            let _ = write!(text, "{:08X}", 0x3f00_0000u32 + i);
        });
        let _ = writeln!(text, "\"> : tensor<{elements}xf32>");
    }
    text.push_str("  return %x : tensor<f32>\n}\n");
    assert!(text.len() > 49_000_000);
    let start = Instant::now();
    let imported = stablehlo(&text, &ImportOptions::default()).expect("imports");
    let took = start.elapsed();
    assert_eq!(imported.module.find("main").expect("main").inst_count(), tensors);
    // Ten times what a quiet machine takes.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
