//! Rewrites keep every bit, and a second time they change nothing. The programs are those of the op
//! table and of the filetests.

use super::cases::{arguments, runnable};
use crate::common::effects::Printed;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::run_with;
use adfuse::functions::{Opaque, Registry};
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::{Exactness, cse, dce, inline, simplify, specialize, stabilize};
use adfuse::ir::text::{parse, print_function};
use adfuse::ir::{DType, Function, Module, Op, TensorType, verify};
use adfuse::sample::rng;
use std::path::Path;
use std::sync::OnceLock;

/// A function of a module at a point, symbols bound, and what it gives there, once that is asked for.
struct Program {
    name: String,
    module: Module,
    f: Function,
    args: Vec<Array>,
    outcome: OnceLock<(Vec<Array>, Printed)>,
}

fn program(name: &str, module: &Module, f: &Function) -> Program {
    let extents = f.symbols.iter().copied().zip(3..).collect();
    let f = specialize(f, &extents).unwrap_or_else(|e| panic!("{name}: {e:#?}"));
    let domains = vec![Domain::Normal; f.params().len()];
    let args = arguments(&f, &domains, &mut rng(4, 0));
    Program { name: name.into(), module: module.clone(), f, args, outcome: OnceLock::new() }
}

fn files(folder: &Path, found: &mut Vec<(String, Module)>) {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "ir") {
            let text = std::fs::read_to_string(&path).expect("reads");
            let parsed = parse(&text).ok().filter(|m| verify(m).is_ok());
            found.extend(parsed.map(|m| (path.display().to_string(), m)));
        }
    }
}

/// All programs that can be run: those with extents that fit and symbols that parameters bind.
fn programs() -> &'static [Program] {
    static PROGRAMS: OnceLock<Vec<Program>> = OnceLock::new();
    PROGRAMS.get_or_init(all_programs)
}

fn all_programs() -> Vec<Program> {
    let mut out = Vec::new();
    for &op in Op::ALL {
        for case in runnable(op) {
            out.push(program(op.name(), &case.module, case.f()));
        }
    }
    let mut modules = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests"), &mut modules);
    for (name, module) in &modules {
        for f in module.funcs.values() {
            let bound =
                |s| f.param_types().iter().any(|t| t.shape.contains(&adfuse::ir::Dim::Sym(s)));
            if f.symbols.iter().all(|&s| bound(s)) {
                out.push(program(&format!("{name} @{}", f.name), module, f));
            }
        }
        for f in module.funcs.values().filter(|f| f.symbols.is_empty()) {
            let wrt = differentiable(f, None).ok();
            if let Some(g) = wrt.and_then(|wrt| forward_and_backward(module, f, &wrt).ok()) {
                out.push(program(&format!("{name} @{} differentiated", f.name), module, &g));
            }
        }
    }
    assert!(out.len() > 1000, "{} programs", out.len());
    out
}

/// The functions that the filetests' programs call.
fn functions() -> Registry {
    let rows = || {
        Opaque::new(
            |types| Ok(TensorType::new(types[0].dtype, types[0].shape[..1].iter().copied())),
            |call| {
                let (x, width) = (call.args[0].elements::<f32>()?, call.args[0].dims()[1]);
                let sums = x.chunks(width as usize).map(|row| row.iter().sum::<f32>());
                call.result.elements::<f32>()?.iter_mut().zip(sums).for_each(|(y, sum)| *y = sum);
                Ok(())
            },
        )
    };
    let seed = Opaque::new(
        |_| Ok(TensorType::of(DType::U32, &[4])),
        |call| {
            call.result.elements()?.copy_from_slice(&[3u32, 1, 4, 1]);
            Ok(())
        },
    );
    let stir = Opaque::new(
        |types| Ok(types[0].clone()),
        |call| {
            call.result.elements()?.copy_from_slice(call.args[0].elements::<f32>()?);
            Ok(())
        },
    );
    let functions = Registry::new().with("solve", rows()).with("solve.tangent", rows());
    functions.with("seed", seed).with("stir", stir)
}

/// Results and prints, as bits.
fn outcome(p: &Program, f: &Function) -> (Vec<Array>, Printed) {
    let mut printed = Printed::default();
    let results = run_with(&p.module, f, &p.args, &mut printed, &functions())
        .unwrap_or_else(|d| panic!("{}: {d}\n{f}", p.name));
    (results, printed)
}

fn keeps_bits(rewrite: impl Fn(&Module, &Function) -> Function, fixpoint: bool) {
    let mut changed = 0;
    for p in programs() {
        let once = rewrite(&p.module, &p.f);
        // Beside the other functions, under a name of its own: callers keep theirs.
        let mut module = p.module.clone();
        let mut renamed = once.clone();
        renamed.name = "rewritten".into();
        module.funcs.push(renamed);
        verify(&module).unwrap_or_else(|e| panic!("{}: {e:#?}\n{once}", p.name));
        // One that is left as it is gives what it gave.
        if print_function(&p.f) != print_function(&once) {
            let before = p.outcome.get_or_init(|| outcome(p, &p.f));
            assert_eq!(*before, outcome(p, &once), "{}:\n{}becomes\n{once}", p.name, p.f);
            changed += 1;
        }
        if fixpoint {
            let twice = rewrite(&p.module, &once);
            assert_eq!(print_function(&once), print_function(&twice), "{}: a second time", p.name);
        }
    }
    assert!(changed > 0, "no program is changed");
}

#[test]
fn dce_keeps_bits() {
    let rewrite = |_: &Module, f: &Function| {
        let mut f = f.clone();
        dce(&mut f);
        f
    };
    keeps_bits(rewrite, true);
}

#[test]
fn cse_keeps_bits() {
    let rewrite = |_: &Module, f: &Function| {
        let mut f = f.clone();
        cse(&mut f);
        f
    };
    keeps_bits(rewrite, true);
}

#[test]
fn simplify_keeps_bits() {
    keeps_bits(|_, f| simplify(f, Exactness::Exact).expect("simplifies"), true);
}

/// It changes bits where a rule fires; what it makes verifies and is left alone by a second time.
#[test]
fn stabilize_is_done_after_one_time() {
    let mut fired = 0;
    for p in programs() {
        let (once, first) = stabilize(&p.f).expect("stabilizes");
        let mut module = p.module.clone();
        let mut renamed = once.clone();
        renamed.name = "rewritten".into();
        module.funcs.push(renamed);
        verify(&module).unwrap_or_else(|e| panic!("{}: {e:#?}\n{once}", p.name));
        let (twice, second) = stabilize(&once).expect("stabilizes");
        assert_eq!(print_function(&once), print_function(&twice), "{}: a second time", p.name);
        assert_eq!(second, [], "{}: a second time", p.name);
        // One that is left as it is gives what it gave.
        if first.is_empty() && print_function(&p.f) != print_function(&once) {
            let before = p.outcome.get_or_init(|| outcome(p, &p.f));
            assert_eq!(*before, outcome(p, &once), "{}: nothing fired", p.name);
        }
        fired += first.len();
    }
    assert!(fired > 0, "no rule fires on any program");
}

#[test]
fn inline_keeps_bits() {
    keeps_bits(|m, f| inline(m, f, &|_| true).expect("inlines"), true);
}

#[test]
fn specialize_keeps_what_has_no_symbols() {
    for p in programs() {
        let same = specialize(&p.f, &Default::default()).expect("specializes");
        assert_eq!(print_function(&p.f), print_function(&same), "{}", p.name);
    }
}

/// Binding symbols before running, or while running, gives the same bits.
#[test]
fn specialize_keeps_bits() {
    let text = "func @f<n, m>(%x: f32[n,m], %y: f32[m]) -> (f32[n], f32[]) {
        %0 = broadcast_in_dim %y {dims = [1]} : f32[n,m]
        %1 = mul %x, %0 : f32[n,m]
        %2 = reduce_sum %1 {axes = [1]} : f32[n]
        %3 = call %y {func = @g} : f32[]
        return %2, %3 }
        func @g<k>(%v: f32[k]) -> f32[] { %0 = reduce_max %v {axes = [0]} : f32[] return %0 }";
    let module = parse(text).expect("parses");
    verify(&module).expect("verifies");
    let f = module.find("f").expect("a function");
    for (n, m) in [(3, 4), (1, 1), (0, 2), (2, 0), (40, 1100)] {
        let extents = f.symbols.iter().copied().zip([n, m]).collect();
        let fixed = specialize(f, &extents).expect("specializes");
        assert!(fixed.symbols.is_empty());
        let args = arguments(&fixed, &[Domain::Normal; 2], &mut rng(5, n));
        let (own, once) = (module.clone(), OnceLock::new());
        let p = Program { name: "f".into(), module: own, f: f.clone(), args, outcome: once };
        assert_eq!(outcome(&p, f), outcome(&p, &fixed));
        assert!(fixed.param_types().iter().all(|t| t.dims().is_some() && t.dtype == DType::F32));
    }
}
