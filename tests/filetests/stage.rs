//! The compiler stages of filetests: each prints a program. Stages that are not transformations of their own are those
//! of the pipeline.

use crate::file::Directive;
use adfuse::autodiff;
use adfuse::backends::cpu::Vectors;
use adfuse::engine::Gpu;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions};
use adfuse::ir::rewrite::{self, Exactness};
use adfuse::ir::text::{parse, print_function, print_module};
use adfuse::ir::verify::verify;
use adfuse::ir::{At, Diagnostic, Dim, Function, Kind, Module, Phase, Symbol};
use adfuse::pipeline::{
    self, Artifact, CompileUnit, ListingCompiler, Machine, PASSES, Pass, Printed, Selection,
};
use std::collections::BTreeMap;

/// A text, or the errors that the stage gives instead.
pub(crate) type Made = Result<String, Vec<Diagnostic>>;

/// A stage by its name in directives.
#[derive(Clone, Copy)]
pub(crate) struct Stage {
    /// As in `test: ..`.
    pub(crate) name: &'static str,
    /// The words and options it takes, besides `func`.
    pub(crate) takes: &'static [&'static str],
    /// What it makes of a function of a verified module.
    pub(crate) make: Make,
    /// Whether its text reads back as a module that verifies and prints the same.
    pub(crate) reads_back: bool,
}

/// How a stage makes its text.
#[derive(Clone, Copy)]
pub(crate) enum Make {
    /// Of the program.
    Ir(fn(&Module, &Function, &Directive) -> Made),
    /// By the passes of the pipeline up to one, as it prints.
    Pass(&'static Pass, Printed),
}

impl Stage {
    /// Its text.
    pub(crate) fn run(&self, module: &Module, f: &Function, d: &Directive) -> Made {
        match self.make {
            Make::Ir(make) => make(module, f, d),
            Make::Pass(pass, stage) => passed(module, f, d, (pass, stage)),
        }
    }
}

const fn ir(
    name: &'static str,
    takes: &'static [&'static str],
    make: fn(&Module, &Function, &Directive) -> Made,
) -> Stage {
    Stage { name, takes, make: Make::Ir(make), reads_back: true }
}

/// The stage of a name: of this table, or of the pipeline.
pub(crate) fn find(name: &str) -> Option<Stage> {
    const TAKES: &[&str] = &["grad", "wrt", "device", "fp", "effort", "vectors"];
    if let Some(stage) = STAGES.iter().find(|s| s.name == name) {
        return Some(*stage);
    }
    let (pass, stage) = pipeline::stage(name)?;
    // Other texts are parsed again where they are printed, if they have a parser.
    let reads_back = matches!(pass.gives, Artifact::Module | Artifact::Function);
    Some(Stage { name: stage.name, takes: TAKES, make: Make::Pass(pass, stage), reads_back })
}

/// The transformations, each of the program as it stands.
const STAGES: &[Stage] = &[
    ir("format", &[], |m, _, _| Ok(print_module(m))),
    ir("jvp", &["wrt"], |m, f, d| differentiated(m, f, d, autodiff::jvp)),
    ir("vjp", &["wrt"], |m, f, d| differentiated(m, f, d, autodiff::vjp)),
    ir("grad", &["wrt"], |m, f, d| differentiated(m, f, d, autodiff::backward)),
    ir("value_and_grad", &["wrt"], |m, f, d| {
        differentiated(m, f, d, autodiff::forward_and_backward)
    }),
    ir("hvp", &["wrt"], |m, f, d| differentiated(m, f, d, autodiff::hvp)),
    ir("jacfwd", &["wrt"], |m, f, d| differentiated(m, f, d, autodiff::jacfwd)),
    ir("jacrev", &["wrt"], |m, f, d| differentiated(m, f, d, autodiff::jacrev)),
    ir("hessian", &["wrt"], |m, f, d| differentiated(m, f, d, autodiff::hessian)),
    ir("linear_transpose", &["wrt"], |m, f, d| differentiated(m, f, d, autodiff::linear_transpose)),
    // Every other option is the axis of a parameter; those without one are shared.
    ir("vmap", &["*"], |m, f, d| printed(autodiff::vmap(m, f, &batching(f, d)))),
    ir("vmap_grad", &["*"], |m, f, d| {
        let wrt = autodiff::differentiable(f, None).map_err(one)?;
        let batched = autodiff::Derived::new(m, f).vmap(&batching(f, d)).map_err(one)?;
        printed(batched.vjp(&wrt).and_then(autodiff::Derived::finish))
    }),
    ir("linearize", &["wrt"], |m, f, d| {
        let wrt = wrt(f, d)?;
        let split = autodiff::linearize(m, f, &wrt).map_err(one)?;
        Ok(format!("{}\n{}", print_function(&split.primal), print_function(&split.linear)))
    }),
    ir("transpose", &["fixed"], |_, f, d| {
        let fixed = d.options.get("fixed").and_then(|n| n.parse().ok()).unwrap_or(0);
        printed(autodiff::transpose(f, fixed, Phase(1)))
    }),
    ir("dce", &[], |_, f, _| Ok(print_function(&edited(f, rewrite::dce)))),
    ir("cse", &[], |_, f, _| Ok(print_function(&edited(f, rewrite::cse)))),
    ir("simplify", &["finite"], |_, f, d| {
        let allowed = if d.has("finite") { Exactness::Finite } else { Exactness::Exact };
        printed(rewrite::simplify(f, allowed))
    }),
    ir("stabilize", &[], |_, f, _| printed(rewrite::stabilize(f).map(|(f, _)| f))),
    ir("inline", &["only"], |m, f, d| {
        let only = d.list("only");
        let wanted = |g: &Function| only.as_ref().is_none_or(|names| names.contains(&g.name));
        printed(rewrite::inline(m, f, &wanted))
    }),
    // Every other option is an extent.
    ir("specialize", &["*"], |_, f, d| {
        let mut extents = BTreeMap::new();
        for (name, n) in d.options.iter().filter(|(name, _)| *name != "func") {
            extents.extend(Symbol::new(name).zip(n.parse().ok()));
        }
        Ok(print_function(&rewrite::specialize(f, &extents)?))
    }),
];

/// `size=3`, or a symbol; `ranks=r` where the elements are the ranks of an axis; `same` for shared random bits; then axes by parameter.
fn batching(f: &Function, d: &Directive) -> autodiff::Batching {
    let size = d.options.get("size").map_or("0", String::as_str);
    let size = match (size.parse(), Symbol::new(size)) {
        (Ok(n), _) => Dim::Const(n),
        (Err(_), symbol) => Dim::Sym(symbol.expect("an extent or a symbol")),
    };
    let name = d.options.get("ranks");
    let axis = |&p| f.name_of(p).and_then(|n| d.options.get(n)).and_then(|a| a.parse().ok());
    let random = if d.has("same") { autodiff::Random::Same } else { autodiff::Random::Refused };
    let batching = autodiff::Batching::new(size, f.params().iter().map(axis)).random(random);
    match name {
        Some(name) => batching.named(name),
        None => batching,
    }
}

/// Whether this host makes the text of a stage.
pub(crate) fn is_here(stage: &str) -> bool {
    !matches!(stage, "clif" | "asm" | "loops" | "machine_code")
        || cfg!(all(target_arch = "x86_64", target_os = "linux"))
}

/// The target of machine code in expected texts, whatever the host is.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the passes up to one, of the function or, with `grad`, of it and its gradients.
fn passed(module: &Module, f: &Function, d: &Directive, (to, stage): (&Pass, Printed)) -> Made {
    let usage = |m: String| one(Diagnostic::new(At::default(), Kind::Usage, m));
    let option = |name: &str, default: &'static str| -> String {
        d.options.get(name).cloned().unwrap_or_else(|| default.into())
    };
    // What a GPU is given follows from a plan for one.
    let on_gpu = to.engine == Some(Gpu::NAME);
    let device = option("device", if on_gpu { "h200" } else { "cpu" });
    let device =
        MachineModel::named(&device).ok_or_else(|| usage(format!("no device {device}")))?;
    let (fp, effort) = (option("fp", "strict"), option("effort", "default"));
    let fp = Fp::ALL.iter().find(|(_, name)| *name == fp).map(|m| m.0);
    let fp = fp.ok_or_else(|| usage("no such mode".into()))?;
    let efforts = [("off", Effort::Off), ("quick", Effort::Quick), ("default", Effort::Default)];
    let effort = efforts.iter().find(|(name, _)| *name == effort).map(|e| e.1);
    let effort = effort.ok_or_else(|| usage("no such effort".into()))?;
    let vectors = option("vectors", "256").parse().ok().and_then(Vectors::of_bits);
    let vectors = vectors.ok_or_else(|| usage("no such vectors".into()))?;
    // Some passes of all engines do what the engine asks for.
    let for_gpu = on_gpu || device.is_gpu() && to.engine.is_none();
    let machine = if for_gpu { Machine::Gpu(9, 0) } else { Machine::Target(TARGET, vectors) };
    let compiler = ListingCompiler { options: PlanOptions { device, effort, fp }, machine };
    let wrt = if d.has("grad") { Some(wrt(f, d)?) } else { None };
    let selection = Selection { func: Some(f.name.clone()), wrt, ..Selection::default() };
    let text = print_module(module);
    let mut unit = CompileUnit::of_text(&text, selection);
    pipeline::run(&compiler, &mut unit, PASSES[0].name, to.name).map_err(one)?;
    pipeline::print(stage, &unit).map_err(one)
}

type Transform = fn(&Module, &Function, &[usize]) -> Result<Function, Diagnostic>;

fn one(d: Diagnostic) -> Vec<Diagnostic> {
    vec![d]
}

fn printed(f: Result<Function, Diagnostic>) -> Made {
    f.map(|f| print_function(&f)).map_err(one)
}

fn wrt(f: &Function, d: &Directive) -> Result<Vec<usize>, Vec<Diagnostic>> {
    autodiff::differentiable(f, d.list("wrt").as_deref()).map_err(one)
}

fn differentiated(m: &Module, f: &Function, d: &Directive, transform: Transform) -> Made {
    let wrt = wrt(f, d)?;
    printed(transform(m, f, &wrt))
}

fn edited(f: &Function, edit: fn(&mut Function)) -> Function {
    let mut f = f.clone();
    edit(&mut f);
    f
}

/// Checks that a stage's text reads back, as every stage's must. Calls that are left in it are
/// resolved by the functions of the module it came from.
pub(crate) fn reads_back(text: &str, from: &Module) -> Result<(), String> {
    let errors = |what: &str, list: Vec<Diagnostic>| {
        let lines: Vec<String> = list.iter().map(|d| format!("  {d}")).collect();
        format!("the text does not {what}:\n{text}\n{}", lines.join("\n"))
    };
    let mut module = parse(text).map_err(|e| errors("parse", e))?;
    let again = print_module(&module);
    if again != text {
        return Err(format!("the text is not canonical:\n{text}\nprints as\n{again}"));
    }
    for f in from.funcs.values() {
        if module.find(&f.name).is_none() {
            module.funcs.push(f.clone());
        }
    }
    verify(&module).map_err(|e| errors("verify", e))
}
