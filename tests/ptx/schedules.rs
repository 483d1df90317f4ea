//! Schedules as text: they read back, an edited decision changes the PTX and no bit of what it gives, and one that does not
//! fit is refused with its place.

use crate::bits::agrees_as;
use crate::common::count_from_env;
use crate::common::kernels::{arguments, block_files, files, numbers};
use crate::common::orders::{self, Case};
use crate::{differentiated, lowered};
use adfuse::backends::Array;
use adfuse::backends::ptx::{self, GpuSchedule, GpuTarget};
use adfuse::fusion::{Effort, Fp};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Step, Verified, verify};
use adfuse::ir::text::parse;
use adfuse::ir::{Diagnostic, Kind, Module};

fn verified(text: &str) -> Verified<Program> {
    verify(read(text).expect("reads")).expect("verifies")
}

/// Programs with their names: those of the filetests, sorts and scatters, and the models with their gradients.
fn programs() -> Vec<(String, Verified<Program>)> {
    let all = files().into_iter().chain(block_files());
    let mut all: Vec<_> = all.map(|(name, text)| (name, verified(&text))).collect();
    let cases = orders::orders(40).into_iter().chain(orders::orders(12_000));
    let cases = cases.chain(orders::scatters(9000)).chain(orders::transposes());
    all.extend(cases.map(|case| (case.name, case.program)));
    for (name, g) in differentiated() {
        let program = lowered(&Module::single(g.clone()), &g, Effort::Default, Fp::Strict);
        all.push((name, program));
    }
    all.retain(|(_, program)| {
        !program.steps.iter().any(|s| matches!(s, Step::Library(_) | Step::Attend(_)))
    });
    all
}

/// The text of a schedule is the schedule: it reads back, for every target and mode.
pub(crate) fn texts_read_back() {
    let all = programs();
    assert!(all.len() > 50, "{} programs", all.len());
    for (name, program) in &all {
        for target in GpuTarget::ALL {
            for (fp, _) in Fp::ALL {
                let made = ptx::schedule(program, target, fp);
                let made = made.unwrap_or_else(|d| panic!("{name}: {d}"));
                let text = made.to_string();
                let again = GpuSchedule::parse(&text, program);
                let again = again.unwrap_or_else(|d| panic!("{name}: {d}\n{text}"));
                assert_eq!(again.to_string(), text, "{name}");
                assert_eq!(ptx::print(&again), ptx::print(&made), "{name}");
            }
        }
    }
}

/// A function's program, and arguments for it.
fn program(text: &str) -> (Verified<Program>, Vec<Array>) {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let program = lowered(&module, f, Effort::Default, Fp::Strict);
    let args = arguments(&program);
    (program, args)
}

const DENSE: &str = "func @dense(%x: f32[70,600], %w: f32[600,40]) -> f32[70,40] {
  %y = dot_general %x, %w {contract = [1] x [0]} : f32[70,40]
  return %y
}";
const CHAIN: &str = "func @chain(%x: f32[100], %y: f32[100]) -> f32[100] {
  %a = mul %x, %y : f32[100]
  return %a
}";
const TURNED: &str = "func @turned(%x: f32[48,40]) -> f32[40,48] {
  %y = transpose %x {perm = [1, 0]} : f32[40,48]
  %z = mul %y, %y : f32[40,48]
  return %z
}";
const ROWS: &str = "func @rows(%x: f32[9,200]) -> f32[9,200] {
  %m = reduce_max %x {axes = [1]} : f32[9]
  %b = broadcast_in_dim %m {dims = [0]} : f32[9,200]
  %d = sub %x, %b : f32[9,200]
  %e = exp %d : f32[9,200]
  %s = reduce_sum %e {axes = [1]} : f32[9]
  %t = broadcast_in_dim %s {dims = [0]} : f32[9,200]
  %p = div %e, %t : f32[9,200]
  return %p
}";
const SUMS: &str = "func @sums(%x: f32[5000,8]) -> f32[8] {
  %s = reduce_sum %x {axes = [0]} : f32[8]
  return %s
}";

const LOOPED: &str = "func @looped(%h: f32[8], %w: f32[8], %xs: f32[5,8]) -> f32[8] {
  %c = scan %h, %xs {carry = 1} : f32[8] body(%s: f32[8], %x: f32[8]) {
    %a = mul %s, %w : f32[8]
    %n = add %a, %x : f32[8]
    yield %n
  }
  return %c
}";

/// Decisions that can be other ones: what is edited, and what it becomes.
const EDITS: [(&str, &str, &str); 15] = [
    (LOOPED, "width=4", "width=2"),
    (DENSE, "sums=32x32", "sums=64x64"),
    (DENSE, "stages=4", "stages=3"),
    (DENSE, "combine threads=128", "combine threads=64"),
    (CHAIN, "width=4", "width=2"),
    (CHAIN, "grid threads=256", "grid threads=64"),
    (TURNED, "side=32 lines=8", "side=16 lines=4"),
    (
        TURNED,
        "transpose\n    tile side=32 lines=8 resident=2\n    staged params=[0]",
        "elementwise\n    grid threads=128 resident=4\n    vector width=1",
    ),
    (ROWS, "threads=32 rows=4", "threads=32 rows=2"),
    (ROWS, "threads=32 rows=4 block=1024", "threads=128 rows=1 block=64"),
    (ROWS, "registers=[t0,t1]", "registers=[]"),
    (ROWS, "number=0 unroll=7 inflight=13", "number=0 unroll=7 inflight=3"),
    (SUMS, "tree parts=32", "tree parts=8"),
    (SUMS, "unroll=8", "unroll=4"),
    (SUMS, "tree parts=32 threads=256", "tree parts=4 threads=32"),
];

/// An edited decision is another launch with the same bits.
pub(crate) fn edited_texts_are_refused_or_run() {
    for (source, from, to) in EDITS {
        let (program, args) = program(source);
        let made = ptx::schedule(&program, GpuTarget::SM80, Fp::Strict).expect("is scheduled");
        let text = made.to_string();
        assert!(text.contains(from), "no `{from}` in\n{text}");
        let edited = text.replacen(from, to, 1);
        let other = GpuSchedule::parse(&edited, &program);
        let other = other.unwrap_or_else(|d| panic!("{to}: {d}\n{edited}"));
        assert_eq!(other.to_string(), edited);
        let module = ptx::print(&other).expect("prints");
        assert_ne!(module, ptx::print(&made).expect("prints"), "`{to}` changes nothing");
        agrees_as(to, &module, &program, &args);
    }
    sorts_of_other_digits();
    radix_blocks_have_a_thread_a_digit();
    for (source, from, to, kind) in REFUSED {
        let (program, _) = program(source);
        let made = ptx::schedule(&program, GpuTarget::SM90, Fp::Strict).expect("is scheduled");
        let text = made.to_string();
        assert!(text.contains(from), "no `{from}` in\n{text}");
        let edited = text.replacen(from, to, 1);
        let refused = GpuSchedule::parse(&edited, &program).expect_err(to);
        assert_eq!(refused.kind, kind, "{to}: {refused}");
        assert!(refused.at.span.is_some(), "{to}: {refused}");
    }
}

/// A sort by digits of fewer bits has more passes and the same order.
fn sorts_of_other_digits() {
    for Case { name, program, args } in orders::orders(300).into_iter().take(4) {
        let made = ptx::schedule(&program, GpuTarget::SM90, Fp::Strict).expect("is scheduled");
        let text = made.to_string();
        if text.contains("digit=8") {
            let other = GpuSchedule::parse(&text.replace("digit=8", "digit=5"), &program);
            let other = other.unwrap_or_else(|d| panic!("{name}: {d}\n{text}"));
            let module = ptx::print(&other).expect("prints");
            agrees_as(&name, &module, &program, &args);
        }
    }
}

/// A thread of a radix pass counts one digit: blocks of other numbers of threads are refused.
fn radix_blocks_have_a_thread_a_digit() {
    let mut seen = 0;
    for Case { name, program, .. } in orders::orders(12_000).into_iter().take(4) {
        let made = ptx::schedule(&program, GpuTarget::SM80, Fp::Strict).expect("is scheduled");
        let text = made.to_string();
        for line in text.lines().filter(|line| line.trim_start().starts_with("radix ")) {
            let edited = text.replace(line, &line.replace("threads=256", "threads=512"));
            assert_ne!(edited, text);
            let refused = GpuSchedule::parse(&edited, &program).expect_err(&name);
            assert_eq!(refused.kind, Kind::Usage, "{refused}");
            seen += 1;
        }
    }
    assert!(seen > 0, "no order is by radix passes");
}

/// Texts that are none, and decisions that do not fit.
const REFUSED: [(&str, &str, &str, Kind); 17] = [
    (DENSE, "sums=32x32", "sums=48x48", Kind::Usage),
    (DENSE, "depth=16", "depth=0", Kind::Usage),
    (DENSE, "unit=fma", "unit=mma.tf32", Kind::Usage),
    (DENSE, "split parts=2", "split parts=3", Kind::Usage),
    (DENSE, "stages=4", "stages=x", Kind::Syntax),
    (CHAIN, "width=4", "width=3", Kind::Usage),
    (CHAIN, "threads=256", "threads=100", Kind::Usage),
    (CHAIN, "elementwise", "sort", Kind::Usage),
    (CHAIN, "step 0", "step 7", Kind::Syntax),
    (ROWS, "vector=1", "vector=2", Kind::Usage),
    (ROWS, "threads=32 rows=4 block=1024", "threads=64 rows=1 block=64", Kind::Usage),
    (ROWS, "vector=1", "vector=0", Kind::Usage),
    (ROWS, "inflight=13", "inflight=13 match=0", Kind::Usage),
    (ROWS, "registers=[t0,t1]", "registers=[t9]", Kind::Usage),
    (ROWS, "registers=[t0,t1]", "registers=[t4294967295]", Kind::Syntax),
    (ROWS, "by=one", "by=stride", Kind::Usage),
    (SUMS, "by=chain", "by=lane", Kind::Usage),
];

/// Texts with bytes, words and lines changed, taken away and doubled are refused in words or run as they say.
pub(crate) fn mutated_texts_do_not_panic() {
    let sources = [DENSE, CHAIN, TURNED, ROWS, SUMS];
    let mut all: Vec<_> = sources.iter().map(|source| program(source)).collect();
    let blocks = block_files().into_iter().map(|(_, text)| verified(&text));
    let sources = sources.len() + blocks.len();
    all.extend(blocks.map(|program| {
        let args = arguments(&program);
        (program, args)
    }));
    all.extend(orders::scatters(9000).into_iter().take(2).map(|case| (case.program, case.args)));
    all.extend(orders::orders(12_000).into_iter().take(2).map(|case| (case.program, case.args)));
    let texts: Vec<String> = all
        .iter()
        .map(|(p, _)| {
            ptx::schedule(p, GpuTarget::SM90, Fp::Strict).expect("is scheduled").to_string()
        })
        .collect();
    let mut refused = 0;
    for k in 0..count_from_env("ADFUSE_FUZZ_CASES", 2000) as usize {
        let mut rng = numbers(k as u64);
        let which = rng(all.len());
        let text = mutated(&texts[which], &mut rng);
        let (program, args) = &all[which];
        match GpuSchedule::parse(&text, program) {
            Ok(schedule) => {
                let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}\n{text}"));
                // One in eight runs: the simulated machine takes longest.
                let runs = adfuse::backends::reference::kernel::run(program, args).is_ok();
                if k % 8 == 0 && which < sources && runs {
                    agrees_as(&text, &module, program, args);
                }
            }
            Err(d) => {
                refused += 1;
                located(&d, &text);
            }
        }
    }
    assert!(refused > 100, "{refused} texts");
}

/// What is refused is refused in words, at a place of the text unless something is missing from it.
fn located(d: &Diagnostic, text: &str) {
    assert!(matches!(d.kind, Kind::Syntax | Kind::Usage), "{d}\n{text}");
    match d.at.span {
        Some(span) => {
            assert!(span.start <= span.end && span.end as usize <= text.len(), "{d}\n{text}");
        }
        None => assert!(d.message.contains("missing"), "{d}\n{text}"),
    }
}

/// A text with a change: of a number, a word, a line or a byte.
fn mutated(text: &str, rng: &mut impl FnMut(usize) -> usize) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let k = rng(lines.len());
    match rng(5) {
        0 => {
            lines.remove(k);
        }
        1 => {
            let line = lines[k].clone();
            let to = rng(lines.len());
            lines.insert(to, line);
        }
        2 => {
            let words: Vec<&str> = lines[k].split_whitespace().collect();
            let gone = if words.is_empty() { 0 } else { rng(words.len()) };
            let left = words.iter().enumerate().filter(|(n, _)| *n != gone).map(|(_, w)| *w);
            lines[k] = left.collect::<Vec<_>>().join(" ");
        }
        3 => {
            let other = ["0", "1", "2", "3", "7", "16", "32", "64", "100", "1024", "9999999999"];
            let other = other[rng(other.len())];
            let digits: Vec<usize> = lines[k]
                .char_indices()
                .filter(|(_, c)| c.is_ascii_digit())
                .map(|(n, _)| n)
                .collect();
            if !digits.is_empty() {
                let at = digits[rng(digits.len())];
                lines[k].replace_range(at..at + 1, other);
            }
        }
        _ => {
            let n = lines[k].len();
            if n > 0 {
                let at = rng(n);
                let byte = (32 + rng(95)) as u8 as char;
                if lines[k].is_char_boundary(at) && lines[k].is_char_boundary(at + 1) {
                    lines[k].replace_range(at..at + 1, &byte.to_string());
                }
            }
        }
    }
    lines.join("\n")
}
