//! What the verifier accepts, every later stage accepts: mutated programs that still verify are
//! differentiated, stabilized, lowered and run. `ADFUSE_FUZZ_CASES` sets how many mutations (20,000 by default).

use crate::common::count_from_env;
use adfuse::autodiff::{
    Batching, Random, differentiable, hessian, hvp, jacfwd, jvp, linear_transpose, vjp, vmap,
};
use adfuse::backends::Array;
use adfuse::backends::functions::Registry;
use adfuse::backends::limits::RunLimits;
use adfuse::backends::reference::{Silent, run_within};
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile};
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::stabilize;
use adfuse::ir::{DType, Diagnostic, Dim, Function, Kind, Module, Symbol, kernel, text, verify};
use adfuse::sample::{rng, sample};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("a folder of programs");
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "ir") {
            found.push(path);
        }
    }
}

/// A mutated loop may not end.
const FEW: RunLimits = RunLimits { max_trips: 1000 };

/// Words and punctuation: what a mutation moves about.
fn tokens(source: &str) -> Vec<String> {
    let code = source.lines().map(|l| l.split("//").next().unwrap_or_default());
    let mut out: Vec<String> = Vec::new();
    for line in code {
        let mut word = String::new();
        for c in line.chars().chain(['\n']) {
            if c.is_alphanumeric() || matches!(c, '_' | '%' | '@' | '.' | '-') {
                word.push(c);
            } else {
                out.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                out.push(c.to_string());
            }
        }
    }
    out
}

fn mutate(tokens: &mut Vec<String>, rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(1..4) {
        let i = rng.random_range(0..tokens.len());
        let j = rng.random_range(0..tokens.len());
        let other = tokens[j].clone();
        match rng.random_range(0..6) {
            0 | 1 => tokens[i] = other,
            2 => tokens.swap(i, j),
            3 if tokens[i].parse::<i64>().is_ok() => {
                tokens[i] = ["0", "1", "2", "3", "-1"][rng.random_range(0..5)].into();
            }
            4 if tokens.len() > 1 => drop(tokens.remove(i)),
            _ => tokens.insert(i, other),
        }
    }
}

/// Refusals are fine; a broken invariant is not.
fn allowed<T>(what: &str, source: &str, result: Result<T, Diagnostic>) -> Option<T> {
    match result {
        Ok(t) => Some(t),
        Err(d) => {
            assert_ne!(d.kind, Kind::Internal, "{what}: {d}\n{source}");
            None
        }
    }
}

/// Arguments, when the parameters are small and of known extents.
fn arguments(f: &Function) -> Option<Vec<Array>> {
    let mut rng = rng(1, 0);
    let types = f.param_types();
    let given = types.iter().filter(|t| t.dtype != DType::Token);
    given
        .map(|t| {
            t.elements().filter(|&n| n <= 5_000)?;
            sample(t, Domain::Uniform(-0.9, 0.9), &mut rng).ok()
        })
        .collect()
}

fn small(f: &Function) -> bool {
    let mut small = f.inst_count() < 200;
    f.walk(&mut |f, i| {
        let fits = |&v: &_| f.ty(v).elements().is_none_or(|n| n <= 5_000);
        small &= f.inst_results(i).iter().all(fits);
    });
    small
}

/// What is made of a program is one itself.
fn stands(what: &str, source: &str, made: Result<Function, Diagnostic>) {
    if let Some(g) = allowed(what, source, made) {
        let single = Module::single(g.clone());
        assert!(verify(&single).is_ok(), "{what}: {:?}\n{source}\n{g}", verify(&single));
    }
}

fn exercise(module: &Module, f: &Function, source: &str) {
    let mut derived = vec![f.clone()];
    if let Ok(wrt) = differentiable(f, None) {
        derived.extend(allowed("jvp", source, jvp(module, f, &wrt)));
        derived.extend(allowed("vjp", source, vjp(module, f, &wrt)));
        let composed = [
            ("hvp", hvp(module, f, &wrt)),
            ("jacfwd", jacfwd(module, f, &wrt)),
            ("hessian", hessian(module, f, &wrt[..1])),
            ("linear_transpose", linear_transpose(module, f, &wrt[..1])),
        ];
        composed.into_iter().for_each(|(what, made)| stands(what, source, made));
    }
    let batch = Dim::Sym(Symbol::new("batch").expect("a name"));
    for (size, every) in [(Dim::Const(2), 1), (Dim::Const(2), 2), (Dim::Const(0), 1), (batch, 1)] {
        let axis = |(k, &p)| (f.ty(p).dtype != DType::Token && k % every == 0).then_some(0);
        let batching = Batching::new(size, f.params().iter().enumerate().map(axis));
        stands("vmap", source, vmap(module, f, &batching.random(Random::Same)));
    }
    for (k, g) in derived.iter().enumerate() {
        if k > 0 {
            let single = Module::single(g.clone());
            assert!(verify(&single).is_ok(), "{:?}\n{source}\n{g}", verify(&single));
        }
        if let Some((mut stable, _)) = allowed("stabilize", source, stabilize(g)) {
            // Beside the other functions, which it may call.
            let mut module = module.clone();
            stable.name = "stabilized".into();
            module.funcs.push(stable);
            assert!(verify(&module).is_ok(), "{:?}\n{source}\n{g}", verify(&module));
        }
        let Some(args) = arguments(g).filter(|_| small(g)) else { continue };
        allowed("run", source, run_within(module, g, &args, &mut Silent, (&Registry::new(), FEW)));
        if let Some(compiled) = allowed("compile", source, compile(module, g, &options())) {
            let program = compiled.program;
            let verified = kernel::verify(program);
            assert!(verified.is_ok(), "{:?}\n{source}\n{g}", verified.err());
        }
    }
}

#[test]
fn what_the_verifier_accepts_goes_through() {
    let mut paths = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests"), &mut paths);
    let corpus: Vec<Vec<String>> =
        paths.iter().map(|p| tokens(&fs::read_to_string(p).expect("text"))).collect();
    let mut rng = rng(11, 0);
    let mut accepted = 0;
    for _ in 0..count_from_env("ADFUSE_FUZZ_CASES", 20_000) {
        let mut tokens = corpus[rng.random_range(0..corpus.len())].clone();
        mutate(&mut tokens, &mut rng);
        let source = tokens.concat();
        let Ok(module) = text::parse(&source) else { continue };
        if verify(&module).is_err() {
            continue;
        }
        accepted += 1;
        for f in module.funcs.values() {
            exercise(&module, f, &source);
        }
    }
    assert!(accepted > 100, "{accepted} mutations were accepted: too few to say anything");
}

fn options() -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict }
}
