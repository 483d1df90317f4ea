//! Mutated programs of kernels: what the verifier still accepts must run, since no engine checks again.

use super::schedules::Copies;
use super::{arguments, cases, files, numbers};
use crate::common::count_from_env;
use crate::common::kernels::block_files;
use adfuse::backends::cpu::{ArenaLayout, CpuExecutable, CpuOptions};
use adfuse::backends::reference::kernel;
use adfuse::backends::{Array, RunLimits};
use adfuse::fusion::{Fp, compile};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Step as KernelStep, Verified, verify};
use adfuse::ir::rewrite::specialize;
use adfuse::ir::{Kind, Op};

/// Whether a program is small enough to run, whatever it says.
fn is_small(program: &Program) -> bool {
    let few = |dims: &mut dyn Iterator<Item = &i64>| dims.product::<i64>() <= 10_000;
    let small = |dims: &mut dyn Iterator<Item = &i64>| {
        let dims: Vec<i64> = dims.copied().collect();
        dims.iter().all(|&n| n <= 1000) && dims.len() < 8 && few(&mut dims.iter())
    };
    program.buffers.values().all(|b| small(&mut b.dims.iter()))
        && program.steps.iter().all(|step| match step {
            KernelStep::Kernel(k) => {
                k.stages.iter().all(|s| small(&mut k.domain.iter().chain(&s.axes)))
            }
            KernelStep::Bundle(b) => b
                .kernels
                .iter()
                .all(|k| k.stages.iter().all(|s| small(&mut k.domain.iter().chain(&s.axes)))),
            KernelStep::Scatter(s) => small(&mut s.domain.iter()),
            KernelStep::Contract(c) => c.members.iter().all(|m| {
                let of = [&m.batch, &m.rows, &m.cols, &m.depth];
                // Operands of no results are not read.
                m.result().contains(&0) || small(&mut of.into_iter().flatten())
            }),
            // Scores are as many as rows times keys.
            KernelStep::Attend(a) => a.inputs.iter().chain(&a.outputs).all(|&b| {
                let dims = &program.buffers[b].dims;
                small(&mut dims.iter().chain(dims))
            }),
            KernelStep::Argsort(_)
            | KernelStep::Library(_)
            | KernelStep::Transfer(_)
            | KernelStep::Exchange(_)
            | KernelStep::Print(_) => true,
            KernelStep::Loop(_) | KernelStep::Branch(_) => {
                let steps = match step {
                    KernelStep::Loop(step) => step.trips.known().unwrap_or(0),
                    _ => 0,
                };
                steps <= 100 && step.blocks().iter().all(|(_, block)| is_small(&block.program))
            }
        })
}

/// Loops of more steps than these are not waited for.
const FEW: RunLimits = RunLimits { max_trips: 100 };

/// Runs a program with loops as machine code: pointers into its memory follow from what the verifier accepts.
fn compiled(program: &Verified<Program>, args: &[Array], expected: &[Array]) {
    let options = CpuOptions { threads: 2, fp: Fp::Strict, ..CpuOptions::default() };
    let made = CpuExecutable::compile(program, &ArenaLayout::default(), options);
    let found =
        made.and_then(|made| made.run(args)).unwrap_or_else(|d| panic!("{d}\n{}", **program));
    assert_eq!(found, expected, "{}", **program);
}

/// Mutates a text, and runs what is accepted; counts what was refused and what ran.
fn run_mutated(text: &str, times: usize, random: &mut impl FnMut(usize) -> usize) -> [usize; 2] {
    let (mut refused, mut ran) = (0, 0);
    for _ in 0..times {
        let mutated = mutate(text, random);
        let Ok(program) = read(&mutated) else { continue };
        let printed = program.to_string();
        assert_eq!(read(&printed).as_ref(), Ok(&program), "{printed}");
        let Ok(program) = verify(program) else {
            refused += 1;
            continue;
        };
        if !is_small(&program) {
            continue;
        }
        let args = arguments(&program);
        match kernel::run_within(&program, &args, &mut Copies, FEW) {
            // What a library gives is nothing that the verifier could know.
            Err(d) if d.at.inst.as_ref().is_some_and(|i| i.contains("library")) => {}
            // How often a loop runs is nothing that it could know either.
            Err(d) if d.kind == Kind::Limit && d.message.contains("steps") => {}
            Err(d) => panic!("{d}\n{mutated}"),
            Ok(results) => {
                ran += 1;
                if program.steps.iter().any(|step| !step.blocks().is_empty()) {
                    compiled(&program, &args, &results);
                }
            }
        }
    }
    [refused, ran]
}

#[test]
fn what_the_verifier_accepts_runs() {
    let mut random = numbers(1);
    let mut counts = [0, 0];
    for &op in Op::ALL {
        for module in cases(op).into_iter().take(3) {
            let f = module.funcs.values().next().expect("a function");
            let extents = f.symbols.iter().map(|&s| (s, 3)).collect();
            let f = specialize(f, &extents).expect("three of each");
            let Ok(compiled) = compile(&module, &f, &super::off()) else { continue };
            let program = compiled.program;
            let found = run_mutated(&program.to_string(), 200, &mut random);
            counts = [counts[0] + found[0], counts[1] + found[1]];
        }
    }
    assert!(counts.iter().all(|&n| n > 500), "{counts:?} refused and run");
}

#[test]
fn what_the_verifier_accepts_of_written_programs_runs() {
    let mut random = numbers(2);
    let times = count_from_env("ADFUSE_FUZZ_CASES", 3000) as usize;
    let mut counts = [0, 0];
    for (name, text) in files().into_iter().chain(block_files()) {
        let found = run_mutated(&text, times, &mut random);
        assert!(found[0] > 5, "{name}: {found:?} refused and run");
        counts = [counts[0] + found[0], counts[1] + found[1]];
    }
    assert!(counts.iter().all(|&n| n > 500), "{counts:?} refused and run");
}

/// The text with one to three numbers, words or characters replaced.
fn mutate(text: &str, random: &mut impl FnMut(usize) -> usize) -> String {
    const WITH: [&str; 32] = [
        "0",
        "1",
        "2",
        "3",
        "4",
        "-1",
        "7",
        "d0",
        "d1",
        "d2",
        "p0",
        "p1",
        "s0",
        "s1",
        "%x",
        "%0",
        "f32",
        "i32",
        "i64",
        "bool",
        "lane",
        "chain",
        "d0 + d1",
        "d0 * 2",
        "sum",
        "u4",
        "b1",
        "host",
        "d1, d0",
        "r0",
        "8",
        "vector d1",
    ];
    let mut text = text.to_string();
    for _ in 0..1 + random(3) {
        let word = |c: char| c.is_ascii_alphanumeric();
        let places: Vec<(usize, usize)> = text
            .match_indices(word)
            .filter(|&(k, _)| k == 0 || !text[..k].ends_with(word))
            .map(|(k, _)| (k, text[k..].find(|c| !word(c)).map_or(text.len(), |n| k + n)))
            .collect();
        let (start, end) = places[random(places.len())];
        // Mostly by a word of the same kind, so that it still reads.
        let old = &text[start..end];
        let class = |w: &str| {
            let first = w.trim_start_matches('-').chars().next().unwrap_or_default();
            if first.is_ascii_digit() { '0' } else { first }
        };
        let alike: Vec<&str> =
            WITH.into_iter().filter(|w| class(w) == class(old) && *w != old).collect();
        let with = match alike.is_empty() || random(4) == 0 {
            true => WITH[random(WITH.len())],
            false => alike[random(alike.len())],
        };
        text.replace_range(start..end, with);
    }
    text
}
