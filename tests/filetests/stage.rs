//! The stages of the compiler that filetests look at: each makes text of a program. A new stage is
//! one more row here.

use crate::file::Directive;
use adfuse::autodiff;
use adfuse::backends::cpu::{ListedFunction, Vectors, listing_for};
use adfuse::backends::ptx;
use adfuse::fusion::{Compiled, Device, Effort, Fp, Options, compile};
use adfuse::ir::kernel::{self, Program, Verified};
use adfuse::ir::rewrite::{self, Exactness};
use adfuse::ir::text::{parse, print_function, print_module};
use adfuse::ir::verify::verify;
use adfuse::ir::{At, Diagnostic, Dim, Function, Kind, Module, Phase, Symbol};
use adfuse::pipeline::text;
use std::collections::BTreeMap;

/// A text, or the errors that the stage gives instead.
pub(crate) type Made = Result<String, Vec<Diagnostic>>;

/// A stage by its name in directives.
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
pub(crate) enum Make {
    /// Of the program.
    Ir(fn(&Module, &Function, &Directive) -> Made),
    /// Of what the program is planned as.
    Planned(fn(&Planned) -> Result<String, Diagnostic>),
}

impl Stage {
    /// Its text.
    pub(crate) fn run(&self, module: &Module, f: &Function, d: &Directive) -> Made {
        match self.make {
            Make::Ir(make) => make(module, f, d),
            Make::Planned(print) => Planned::new(module, f, d).and_then(|p| print(&p).map_err(one)),
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

/// A stage from the plan on, of the function or, with `grad`, of it and its gradients. What it prints was
/// parsed again where there is a parser.
const fn planned(name: &'static str, print: fn(&Planned) -> Result<String, Diagnostic>) -> Stage {
    const TAKES: &[&str] = &["grad", "wrt", "device", "fp", "effort", "vectors"];
    Stage { name, takes: TAKES, make: Make::Planned(print), reads_back: false }
}

/// All stages.
pub(crate) const STAGES: &[Stage] = &[
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
    planned("plan", |made| text::plan(&made.compiled.function, &made.compiled.plan)),
    planned("kernels", |made| {
        text::kernels(&made.compiled.function, &made.compiled.plan, &made.program)
    }),
    planned("program", |made| text::program(&made.program)),
    planned("clif", |made| made.machine_code(|f| &f.clif)),
    planned("asm", |made| made.machine_code(|f| &f.asm)),
    planned("launches", |made| Ok(text::launches(&made.program, &made.ptx()?))),
    planned("ptx", |made| Ok(made.ptx()?.text)),
];

/// `size=3`, or a symbol; `same` for shared random bits; then axes by parameter.
fn batching(f: &Function, d: &Directive) -> autodiff::Batching {
    let size = d.options.get("size").map_or("0", String::as_str);
    let size = match (size.parse(), Symbol::new(size)) {
        (Ok(n), _) => Dim::Const(n),
        (Err(_), symbol) => Dim::Sym(symbol.expect("an extent or a symbol")),
    };
    let axis = |&p| f.name_of(p).and_then(|n| d.options.get(n)).and_then(|a| a.parse().ok());
    let random = if d.has("same") { autodiff::Random::Same } else { autodiff::Random::Refused };
    autodiff::Batching::new(size, f.params().iter().map(axis)).random(random)
}

/// A function, planned as a directive says, and its program.
pub(crate) struct Planned {
    compiled: Compiled,
    program: Verified<Program>,
    fp: Fp,
    vectors: Vectors,
}

/// Whether this host makes the text of a stage.
pub(crate) fn is_here(stage: &str) -> bool {
    !matches!(stage, "clif" | "asm") || cfg!(all(target_arch = "x86_64", target_os = "linux"))
}

/// The target of machine code in expected texts, whatever the host is.
const TARGET: &str = "x86_64-unknown-linux-gnu";

impl Planned {
    fn new(module: &Module, f: &Function, d: &Directive) -> Result<Planned, Vec<Diagnostic>> {
        let usage = |m: String| one(Diagnostic::new(At::default(), Kind::Usage, m));
        let option = |name: &str, default: &'static str| -> String {
            d.options.get(name).cloned().unwrap_or_else(|| default.into())
        };
        // What a GPU is given follows from a plan for one.
        let usual = if matches!(d.name.as_str(), "launches" | "ptx") { "h200" } else { "cpu" };
        let device = option("device", usual);
        let device = Device::named(&device).ok_or_else(|| usage(format!("no device {device}")))?;
        let (fp, effort) = (option("fp", "strict"), option("effort", "default"));
        let efforts =
            [("off", Effort::Off), ("quick", Effort::Quick), ("default", Effort::Default)];
        let fp = Fp::ALL.iter().find(|(_, name)| *name == fp).map(|m| m.0);
        let fp = fp.ok_or_else(|| usage("no such mode".into()))?;
        let effort = efforts.iter().find(|(name, _)| *name == effort).map(|e| e.1);
        let effort = effort.ok_or_else(|| usage("no such effort".into()))?;
        let vectors = option("vectors", "256").parse().ok().and_then(Vectors::of_bits);
        let vectors = vectors.ok_or_else(|| usage("no such vectors".into()))?;
        let compiled = |module: &Module, f: &Function| {
            compile(module, f, &Options { device: device.clone(), effort, fp }).map_err(one)
        };
        let compiled = match d.has("grad") {
            false => compiled(module, f)?,
            true => {
                let wrt = wrt(f, d)?;
                let f = autodiff::forward_and_backward(module, f, &wrt).map_err(one)?;
                compiled(&Module::single(f.clone()), &f)?
            }
        };
        let program = kernel::verify(compiled.program.clone())?;
        Ok(Planned { compiled, program, fp, vectors })
    }

    fn machine_code(&self, of: fn(&ListedFunction) -> &str) -> Result<String, Diagnostic> {
        let steps = listing_for(&self.program, TARGET, self.vectors, self.fp)?;
        Ok(text::machine_code(&steps, of))
    }

    fn ptx(&self) -> Result<ptx::Module, Diagnostic> {
        ptx::compile(&self.program, ptx::Target::Sm90, self.fp)
    }
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
