//! Recorded outputs: digests of what the compiler produces for every model and every program of the benches are in
//! `tests/recorded/*.txt`. A change that is meant to change nothing must keep them.
//!
//! The records are digests of values and gradients of the engine `cpu` with vectors of 256 bits, of its machine code
//! for x86-64, what the default plans for `cpu` and `h200` launch and move, and the hash of the PTX, each in every
//! mode. They do not depend on the host. `ADFUSE_BLESS=1` rewrites the files. Hosts with narrower vectors compute the
//! same values, in the strict mode and, where they have an instruction for `fma`, in the others; hosts without the x86
//! emitter compare values alone.

use crate::common::{models, root};
use crate::cpu::modes::joins;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::cpu::{ListedFunction, Vectors, listing_for};
use adfuse::backends::ptx::{self, GpuTarget};
use adfuse::engine::Cpu;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile, cost, memory};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::{specialize, stabilize};
use adfuse::ir::{DType, Function, Module};
use adfuse::pipeline::text::machine_code;
use adfuse::sample::{rng, sample};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const MODES: [Fp; 3] = [Fp::Strict, Fp::Reproducible, Fp::Fast];

/// Extents of a symbol: of a long vector, and of a number of rows.
type Extents = [u64; 2];
/// Where values are computed: no multiple of a vector.
const SMALL: Extents = [4133, 37];
/// Where programs are only planned: what the benches run.
const LARGE: Extents = [1 << 20, 8192];

/// What is recorded of one program in one mode: a line of each name.
type Facts = BTreeMap<String, String>;
/// By program and mode.
type Record = BTreeMap<(String, String), Facts>;

/// A program, by the name of its file.
#[derive(Clone)]
struct Subject {
    name: String,
    /// Whether its gradients are computed too.
    with_gradients: bool,
    module: Module,
    f: Function,
}

/// The models, the programs of the benches and the examples.
fn subjects() -> Vec<Subject> {
    let mut paths = models::paths();
    for folder in ["benches/programs", "examples"] {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
        let found = entries.map(|e| e.expect("an entry").path());
        paths.extend(found.filter(|p| p.extension().is_some_and(|e| e == "ir")));
    }
    paths.sort();
    let named = |path: &PathBuf| {
        let folder = path.parent().and_then(|p| p.file_name()).expect("a folder");
        let stem = path.file_stem().expect("a name");
        format!("{}/{}", folder.to_string_lossy(), stem.to_string_lossy())
    };
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("a program");
        let module = adfuse::ir::text::parse(&text);
        let module = module.unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name");
        let f = module.find(stem).or_else(|| module.find("main")).or(module.funcs.values().next());
        let f = f.expect("a function").clone();
        Subject { name: named(path), with_gradients: true, module, f }
    };
    let alone = |s: Subject| {
        let name = format!("{}:values", s.name);
        [Subject { name, with_gradients: false, ..s.clone() }, s]
    };
    assert!(paths.len() >= 50, "{} programs", paths.len());
    paths.iter().map(read).flat_map(alone).collect()
}

impl Subject {
    /// The results, and the gradients in all float parameters where they are wanted, as a mode has them: outside of the strict mode
    /// naive formulas are in their stable forms first.
    fn in_mode(&self, fp: Fp, extents: Extents) -> (Module, Function) {
        let fail = |d: adfuse::ir::Diagnostic| -> Function { panic!("{}: {d}", self.name) };
        let of = |f: &Function| match fp {
            Fp::Strict => f.clone(),
            _ => stabilize(f).map_or_else(fail, |(f, _)| f),
        };
        let mut module = Module::default();
        for f in self.module.funcs.values() {
            module.funcs.push(of(f));
        }
        let f = of(&self.f);
        let vector = f.param_types().iter().all(|t| t.rank() < 2);
        let extent = extents[usize::from(!vector)];
        let bound = f.symbols.iter().map(|&s| (s, extent)).collect();
        let f = specialize(&f, &bound).unwrap_or_else(|e| panic!("{}: {e:?}", self.name));
        if !self.with_gradients {
            return (module, f);
        }
        let wrt = differentiable(&f, None).expect("has floats");
        let g = forward_and_backward(&module, &f, &wrt).unwrap_or_else(fail);
        (Module::single(g.clone()), g)
    }
}

/// The first half of a hash, in hexadecimal.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).fold(String::new(), |mut s, b| {
        write!(s, "{b:02x}").expect("writes to a string");
        s
    })
}

/// What code is recorded for, whatever the host is.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Whether this host makes that code: it has the x86 emitter.
const MAKES_CODE: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

/// Values and gradients as machine code gives them, with vectors of 256 bits where the host has them, and the code for
/// these vectors: by Cranelift alone, and with the x86 emitter; and the functions of which vectors of 512 bits leave something to
/// scalar code.
fn values(subject: &Subject, fp: Fp) -> Facts {
    let (module, g) = subject.in_mode(fp, SMALL);
    let mut rng = rng(18, 0);
    let draw = |t| sample(t, Domain::Normal, &mut rng).expect("small");
    let args: Vec<Array> = g.param_types().iter().map(draw).collect();
    let plan = PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp };
    let vectors = Vectors::host().min(Vectors::Avx2);
    let engine = Cpu { plan, vectors, ..Cpu::default() };
    let made = engine.compile(&module, &g);
    let made = made.unwrap_or_else(|d| panic!("{}: {d}", subject.name));
    let results = made.executable.run(&args).unwrap_or_else(|d| panic!("{}: {d}", subject.name));
    let primal = subject.f.results().len();
    let named = |k: usize| match k < primal {
        true => format!("value {k}"),
        false => format!("gradient {}", k - primal),
    };
    let line = |(k, a): (usize, &Array)| (named(k), format!("{} {}", a.ty(), digest(a.bytes())));
    let mut facts: Facts = results.iter().enumerate().map(line).collect();
    let widths = [("code 128", Vectors::Narrow), ("code 256", Vectors::Avx2)];
    for (name, vectors) in widths.into_iter().filter(|_| MAKES_CODE) {
        let steps = listing_for(&made.program, TARGET, vectors, fp);
        let steps = steps.unwrap_or_else(|d| panic!("{}: {d}", subject.name));
        let text = [machine_code(&steps, |f| &f.clif), machine_code(&steps, |f| &f.asm)].concat();
        facts.insert(name.into(), digest(text.as_bytes()));
    }
    if MAKES_CODE {
        let steps = listing_for(&made.program, TARGET, Vectors::Avx512, fp);
        let steps = steps.unwrap_or_else(|d| panic!("{}: {d}", subject.name));
        for function in steps.iter().flat_map(|step| &step.functions) {
            if let Some(why) = scalar_code(function) {
                facts.insert(format!("scalar {}", function.name), why);
            }
        }
    }
    facts
}

/// What of a function with vectors of 512 bits is computed one element at a time, if anything is.
fn scalar_code(function: &ListedFunction) -> Option<String> {
    if let Some(why) = function.emitter.why() {
        return Some(why.to_string());
    }
    let scalar = |line: &&str| {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            // Narrow elements are stored in steps one by one.
            [name, "even", dtype, _, "step", step, ..] => {
                let narrow = dtype.parse().is_ok_and(|d: DType| d.bytes() < 4);
                name.starts_with('o') && narrow && *step != "1"
            }
            [name, _, "element" | "lanes", ..] => name.starts_with('p'),
            [name, "element"] => name.starts_with('o'),
            _ => false,
        }
    };
    let found: Vec<&str> = function.loops.lines().filter(scalar).collect();
    (!found.is_empty()).then(|| found.join("; "))
}

/// What the default plans launch and move, and the PTX.
fn plans(subject: &Subject, fp: Fp) -> Facts {
    let (module, g) = subject.in_mode(fp, LARGE);
    let mut facts = Facts::new();
    for (name, device) in [("cpu", MachineModel::cpu()), ("h200", MachineModel::h200())] {
        let options = PlanOptions { device, effort: Effort::Default, fp };
        let made = compile(&module, &g, &options);
        let program = made.unwrap_or_else(|d| panic!("{}: {d}", subject.name)).program;
        let cost = cost(&program, &options.device);
        let memory = memory(&program, options.effort).expect("small");
        facts.insert(format!("{name} steps"), program.steps.len().to_string());
        facts.insert(format!("{name} launches"), cost.launches.to_string());
        facts.insert(format!("{name} bytes"), cost.bytes_moved.to_string());
        facts.insert(format!("{name} peak"), memory.peak.to_string());
        facts.insert(format!("{name} program"), digest(program.to_string().as_bytes()));
        if name == "h200" {
            let program = verify(program).unwrap_or_else(|e| panic!("{}: {}", subject.name, e[0]));
            let made = ptx::compile(&program, GpuTarget::SM90, fp);
            let made = made.unwrap_or_else(|d| panic!("{}: {d}", subject.name));
            let launches: usize = made.steps.iter().map(|s| s.launches.len()).sum();
            facts.insert("ptx launches".into(), launches.to_string());
            facts.insert("ptx text".into(), sha256(made.text.as_bytes()));
        }
    }
    facts
}

/// A hash, in hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// What a function finds for every program in each of some modes, on both cores.
fn recorded(find: fn(&Subject, Fp) -> Facts, modes: &[Fp]) -> Record {
    let subjects = subjects();
    let (next, record) = (AtomicUsize::new(0), Mutex::new(Record::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(subject) = subjects.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for &fp in modes {
                        let found = find(subject, fp);
                        let key = (subject.name.clone(), fp.name().to_string());
                        record.lock().expect("no panic").insert(key, found);
                    }
                }
            });
        }
    });
    record.into_inner().expect("no panic")
}

/// The record as text: a line for program and mode, below it a line for each fact.
fn print(record: &Record) -> String {
    let mut out = String::new();
    for ((program, mode), facts) in record {
        writeln!(out, "{program} {mode}").expect("writes to a string");
        for (name, value) in facts {
            writeln!(out, "  {name} = {value}").expect("writes to a string");
        }
    }
    out
}

fn parse(text: &str) -> Record {
    let mut record = Record::new();
    let mut key = None;
    for line in text.lines() {
        match line.strip_prefix("  ").and_then(|l| l.split_once(" = ")) {
            Some((name, value)) => {
                let key = key.clone().expect("a program before its facts");
                let facts: &mut Facts = record.entry(key).or_default();
                facts.insert(name.into(), value.into());
            }
            None => {
                let (program, mode) = line.split_once(' ').expect("a program and a mode");
                key = Some((program.to_string(), mode.to_string()));
            }
        }
    }
    record
}

/// What differs, a line each: program, mode, and what it was and is.
fn differences(was: &Record, is: &Record) -> Vec<String> {
    let (none, mut found) = (Facts::new(), Vec::new());
    let keys: std::collections::BTreeSet<_> = was.keys().chain(is.keys()).collect();
    for key @ (program, mode) in keys {
        let (was, is) = (was.get(key).unwrap_or(&none), is.get(key).unwrap_or(&none));
        let names: std::collections::BTreeSet<_> = was.keys().chain(is.keys()).collect();
        for name in names {
            let (was, is) = (was.get(name), is.get(name));
            if was != is {
                let said = |v: Option<&String>| v.cloned().unwrap_or_else(|| "nothing".into());
                found.push(format!("{program} {mode}: {name}: {} -> {}", said(was), said(is)));
            }
        }
    }
    found
}

/// Whether records are to be rewritten.
fn blesses() -> bool {
    std::env::var_os("ADFUSE_BLESS").is_some_and(|v| v != "0")
}

/// Compares with what of the file of a name is to be found, or rewrites the file.
fn hold(file: &str, record: &Record, is_to_be_found: impl Fn(&str, &str) -> bool) {
    let path = root().join("tests/recorded").join(file);
    if blesses() {
        std::fs::write(&path, print(record)).expect("writes");
        return;
    }
    let text = std::fs::read_to_string(&path).expect("a record; ADFUSE_BLESS=1 writes it");
    let mut was = parse(&text);
    was.retain(|(_, mode), facts| {
        facts.retain(|name, _| is_to_be_found(mode, name));
        !facts.is_empty()
    });
    let found = differences(&was, record);
    assert!(
        found.is_empty(),
        "{} differences from {file} (recorded -> found); ADFUSE_BLESS=1 records what is found:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// Bits of values and gradients.
#[test]
fn values_and_gradients_are_those_recorded() {
    let strict = [Fp::Strict];
    let modes: &[Fp] = if joins() { &MODES } else { &strict };
    let is_whole = joins() && MAKES_CODE;
    assert!(is_whole || !blesses(), "this host cannot record values: it does not make all of them");
    hold("values.txt", &recorded(values, modes), |mode, name| {
        modes.iter().any(|fp| fp.name() == mode)
            && (MAKES_CODE || !["code ", "scalar "].iter().any(|of| name.starts_with(of)))
    });
}

/// Plans, launches, bytes, peaks and PTX.
#[test]
fn plans_and_ptx_are_those_recorded() {
    hold("plans.txt", &recorded(plans, &MODES), |_, _| true);
}

/// What vectors of 512 bits leave to scalar code is told, and nothing else is.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn scalar_code_is_told() {
    let code = |dtype: &str, index: &str| {
        let text = format!(
            "program @f {{
               input %x: {dtype}[40, 40]
               input %i: u32[40]
               output %y: {dtype}[40, 40]
               kernel @a [40, 40] {{ stage [] {{
                 p0 = load %i[d1]
                 p1 = load %x[{index}]
                 s0 = param.{dtype} 1
                 %y[d1, d0] = store s0
               }} }}
               return %y
             }}"
        );
        let program = adfuse::ir::kernel::text::parse(&text).expect("reads");
        let program = verify(program).expect("is valid");
        let steps = listing_for(&program, TARGET, Vectors::Avx512, Fp::Strict).expect("is made");
        steps.iter().flat_map(|step| &step.functions).find_map(scalar_code).unwrap_or_default()
    };
    assert_eq!(code("f32", "d0, d1"), "");
    assert_eq!(code("f32", "d1 / 3, d0"), "");
    assert!(code("i8", "d0, d1").contains("o0 even i8"), "{}", code("i8", "d0, d1"));
    assert_eq!(code("f32", "clamp(p0, 0, 39), d1"), "p1 is not read in equal steps");
}

/// A record reads back, and every kind of difference is told.
#[test]
fn differences_are_told() {
    let of = |facts: &[(&str, &str)]| -> Facts {
        facts.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    };
    let key = |p: &str| (p.to_string(), "fast".to_string());
    let was = Record::from([
        (key("a"), of(&[("cpu launches", "3"), ("value 0", "f32[] 12")])),
        (key("b"), of(&[("ptx text", "ab")])),
    ]);
    assert_eq!(parse(&print(&was)), was);
    assert!(differences(&was, &was).is_empty());
    let mut is = was.clone();
    is.remove(&key("b"));
    is.insert(key("c"), of(&[("h200 bytes", "7")]));
    is.get_mut(&key("a")).expect("there").insert("value 0".into(), "f32[] 13".into());
    let told = [
        "a fast: value 0: f32[] 12 -> f32[] 13",
        "b fast: ptx text: ab -> nothing",
        "c fast: h200 bytes: nothing -> 7",
    ];
    assert_eq!(differences(&was, &is), told);
}
