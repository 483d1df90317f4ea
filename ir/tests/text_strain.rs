//! The reader under strain: limits, depth, size, every float, and texts that are no programs.

use adfuse_ir::attrs::Attrs;
use adfuse_ir::text::{Limits, parse, parse_example, parse_with, print_function, print_module};
use adfuse_ir::{Attr, Builder, DType, Kind, Literal, Module, Op, TensorType};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::fmt::Write;
use std::time::{Duration, Instant};

const CANONICAL: &str = include_str!("data/canonical.ir");

fn reads(source: &str) -> Module {
    parse(source).unwrap_or_else(|e| panic!("{source}\n{e:#?}"))
}

#[test]
fn limits_are_errors() {
    let tight = Limits {
        source: 400,
        functions: 2,
        symbols: 1,
        params: 2,
        insts: 3,
        operands: 2,
        attrs: 1,
        list: 2,
        nesting: 2,
        diagnostics: 2,
    };
    let body = |b: &str| format!("func @f(%x: f32[2]) -> () {{\n{b}\nreturn\n}}");
    let func = "func @f() -> () { return }\n";
    for (source, message) in [
        (" ".repeat(401), "the text has 401 bytes"),
        (format!("{func}{}{}", func.replace("@f", "@g"), func.replace("@f", "@h")), "functions"),
        ("func @f<n, m>() -> () { return }".into(), "symbols"),
        ("func @f(%a: f32[], %b: f32[], %c: f32[]) -> () { return }".into(), "parameters"),
        ("func @f() -> (f32[], f32[], f32[]) { return 1, 2, 3 }".into(), "results"),
        (body("%0 = neg %x\n%1 = neg %x\n%2 = neg %x\n%3 = neg %x"), "instructions"),
        (body("%0 = concatenate %x, %x, %x {axis = 0}"), "operands"),
        (body("%0, %1, %2 = split %x {axis = 0}"), "results"),
        (body("%0 = split %x {axis = 0, sizes = [2]}"), "attributes"),
        (body("%0 = rev %x {axes = [0, 1, 2]}"), "integers in a list"),
        (body("%0 = constant {values = dense [0, 1, 2]} : f32[3]"), "element values"),
        (body("%0 = c then {\n%0 = c then {\n%0 = c then {\n}\n}\n}"), "nest deeper than 2"),
    ] {
        let found = parse_with(&source, &tight).expect_err(&source);
        let limit = found.iter().find(|d| d.kind == Kind::Limit);
        let limit = limit.unwrap_or_else(|| panic!("{source}\n{found:#?}"));
        assert!(limit.message.contains(message), "{source}\n{found:#?}");
    }
    let many = body(&"%0 = neg %a\n%0 = neg %b\n%0 = neg %c\n".repeat(3));
    let loose = Limits { insts: 100, ..tight };
    assert_eq!(parse_with(&many, &loose).map(|_| ()).expect_err("errors").len(), 2);
    let name = format!("func @f(%{}: f32[]) -> () {{ return }}", "x".repeat(255));
    assert_eq!(parse(&name).expect_err("a long name")[0].kind, Kind::Limit);
}

#[test]
fn deep_and_long_texts_are_read_without_trouble() {
    for depth in [64, 65, 100_000] {
        let open = "%0 = cond true : f32[] then {\n".repeat(depth);
        let close = "yield 1.0 } else { yield 2.0 }\n".repeat(depth);
        let source = format!("func @f() -> () {{\n{open}{close}return\n}}\n");
        let found = parse(&source).map(|_| ()).expect_err("the name is taken inside");
        let too_deep = found.iter().any(|d| d.kind == Kind::Limit);
        assert_eq!(too_deep, depth > 64, "{depth}");
    }
    for unit in
        ["%0 ", "%0, ", "@p1 ", "{", "}", "a {", "a(", "func @f", "[", "\"", "-", "%0 = a %0 "]
    {
        let source = format!("func @f() -> () {{\n{}", unit.repeat(200_000));
        let start = Instant::now();
        assert!(parse(&source).is_err());
        assert!(start.elapsed() < Duration::from_secs(5), "{unit:?} took {:?}", start.elapsed());
    }
}

#[test]
fn reading_takes_linear_time() {
    let program = |n: usize| {
        let mut s = "func @f(%v0: f32[8,16]) -> f32[8,16] {\n".to_string();
        for k in 0..n {
            let _ = writeln!(s, "  %v{} = add %v{k}, %v{} : f32[8,16]", k + 1, k / 2);
        }
        let _ = write!(s, "  return %v{n}\n}}\n");
        s
    };
    let time = |n: usize| {
        let source = program(n);
        let start = Instant::now();
        let m = reads(&source);
        let read = start.elapsed();
        assert_eq!(print_module(&m), source);
        (read, start.elapsed())
    };
    let _ = time(1000);
    let (small, big) = (time(10_000), time(100_000));
    // Quadratic time would be a factor of 100; noise of a busy machine is far below 4.
    assert!(big.1 < small.1 * 40 + Duration::from_millis(100), "{small:?} {big:?}");
}

#[test]
fn every_float_reads_back_to_its_bits() {
    let mut bits: Vec<(DType, u64)> = Vec::new();
    for b in 0..=u16::MAX {
        bits.extend([(DType::F16, b.into()), (DType::BF16, b.into())]);
    }
    // The shortest decimal of this one rounds to its neighbour on the way through f64.
    bits.push((DType::F32, 0x15ae_43fd));
    let mut x = 1u64;
    for _ in 0..20_000 {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bits.extend([(DType::F32, x >> 32), (DType::F64, x)]);
    }
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let of: Vec<Literal> = bits
            .iter()
            .filter(|(d, _)| *d == dtype)
            .map(|&(d, b)| Literal::from_bits(d, b))
            .collect();
        let mut b = Builder::new("f");
        let attrs = Attrs::none().with("values", Attr::Literals(of.clone().into()));
        let ty = TensorType::of(dtype, &[of.len() as u64]);
        let v = b.op_as(Op::Constant, &[], attrs, &ty);
        b.set_results(&[v]);
        let text = print_function(&b.finish().expect("well-formed"));
        let m = reads(&text);
        let f = m.find("f").expect("defined");
        let read = f.attrs(f.body_insts()[0]).literals("values");
        let wrong = of.iter().zip(read.iter()).find(|(a, b)| *a != b);
        assert_eq!((wrong, read.len()), (None, of.len()), "{dtype}");
    }
}

/// One random change of a text.
#[derive(Clone, Copy, Debug)]
struct Change {
    what: u8,
    a: prop::sample::Index,
    b: prop::sample::Index,
    len: u8,
}

fn change() -> impl Strategy<Value = Change> {
    (0u8..12, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1u8..8)
        .prop_map(|(what, a, b, len)| Change { what, a, b, len })
}

const SPLICES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ",",
    ":",
    "=",
    "->",
    "%",
    "@",
    "\"",
    "%0",
    "%x",
    "@f",
    "@p1",
    "func @q",
    "return",
    "yield",
    "cond %p : f32[] then {",
    "} else {",
    "1",
    "-1",
    "1e999",
    "18446744073709551616",
    "nan",
    "-inf",
    "true",
    "f32[2]",
    "token",
    "()",
    "dense [",
    "x",
    "§",
    "//",
    "\n",
    "\0",
    "| ",
    "9223372036854775807",
];

impl Change {
    fn apply(self, text: &mut Vec<u8>, corpus: &[String]) {
        match self.what {
            // Bytes.
            0..=2 => {
                let at = self.a.index(text.len() + 1);
                let end = (at + usize::from(self.len)).min(text.len());
                let cut: Vec<u8> = text.drain(at..end).collect();
                if self.what > 0 {
                    let to = if self.what == 1 { at } else { self.b.index(text.len() + 1) };
                    let twice = [cut.as_slice(), cut.as_slice()].concat();
                    text.splice(to..to, if self.what == 1 { twice } else { cut });
                }
            }
            // Lines, then words.
            3..=8 => {
                let separator = if self.what < 6 { b'\n' } else { b' ' };
                let mut parts: Vec<&[u8]> = text.split(|&b| b == separator).collect();
                let (i, j) = (self.a.index(parts.len()), self.b.index(parts.len()));
                match self.what % 3 {
                    0 => drop(parts.remove(i)),
                    1 => parts.insert(j, parts[i]),
                    _ => parts.swap(i, j),
                }
                *text = parts.join(&separator);
            }
            9 => {
                let at = self.a.index(text.len() + 1);
                let splice = SPLICES[self.b.index(SPLICES.len())];
                text.splice(at..at, splice.bytes());
            }
            // The rest of another program.
            10 => {
                let other = corpus[usize::from(self.len) % corpus.len()].as_bytes();
                text.truncate(self.a.index(text.len() + 1));
                text.extend(&other[self.b.index(other.len() + 1)..]);
            }
            _ => {
                let at = self.a.index(text.len() + 1).min(text.len().saturating_sub(1));
                if let Some(byte) = text.get_mut(at) {
                    *byte ^= 1 << (self.len % 7);
                }
            }
        }
    }
}

fn corpus() -> Vec<String> {
    let mut out: Vec<String> = CANONICAL.split("\n\n").map(|f| format!("{f}\n")).collect();
    let examples = Op::ALL.iter().flat_map(|op| op.def().examples);
    out.extend(examples.filter_map(|e| parse_example(e).ok()).map(|m| print_module(&m)));
    out.push(CANONICAL.into());
    out
}

#[test]
fn no_text_makes_the_reader_panic() {
    let cases = std::env::var("ADFUSE_FUZZ_CASES").ok().and_then(|s| s.parse().ok());
    let cases = cases.unwrap_or(3000);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0),
        ..ProptestConfig::default()
    };
    let corpus = corpus();
    let (read, tried) = (std::cell::Cell::new(0u32), std::cell::Cell::new(0u32));
    // Mostly one change: what is still a program afterwards exercises more than the first error.
    let changes = prop_oneof![
        3 => prop::collection::vec(change(), 1..2),
        1 => prop::collection::vec(change(), 2..4),
    ];
    let strategy = (any::<prop::sample::Index>(), changes);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&strategy, |(start, changes)| {
        let mut text = corpus[start.index(corpus.len())].clone().into_bytes();
        for change in changes {
            change.apply(&mut text, &corpus);
        }
        let text = String::from_utf8_lossy(&text);
        tried.set(tried.get() + 1);
        match parse(&text) {
            Ok(m) => {
                read.set(read.get() + 1);
                let once = print_module(&m);
                let again = parse(&once);
                prop_assert!(again.is_ok(), "{}\n{:#?}", once, again);
                prop_assert_eq!(&print_module(&again.unwrap_or_default()), &once);
                let _ = adfuse_ir::verify(&m);
            }
            Err(found) => {
                prop_assert!(!found.is_empty() && found.len() <= 50);
                prop_assert!(found.iter().all(|d| d.kind != Kind::Internal), "{:?}", found);
                for d in &found {
                    let span = d.at.span.unwrap_or_default();
                    let range = span.start as usize..span.end as usize;
                    prop_assert!(text.get(range).is_some(), "{:?}", d);
                }
            }
        }
        // The whole text as an example: its reader is another entrance.
        let _ = parse_example(&text);
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
    assert_eq!(tried.get(), cases);
    // Else the changes are so wild that only the error paths are tested.
    assert!(read.get() * 30 > cases, "only {} of {cases} are programs", read.get());
}
