//! The stages of the compiler that filetests look at: each makes text of a program. A new stage is
//! one more row here.

use crate::file::Directive;
use adfuse::autodiff;
use adfuse::ir::rewrite::{self, Exactness};
use adfuse::ir::text::{parse, print_function, print_module};
use adfuse::ir::verify::verify;
use adfuse::ir::{Diagnostic, Dim, Function, Module, Phase, Symbol};
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
    pub(crate) make: fn(&Module, &Function, &Directive) -> Made,
    /// Whether its text reads back as a module that verifies and prints the same.
    pub(crate) reads_back: bool,
}

const fn ir(
    name: &'static str,
    takes: &'static [&'static str],
    make: fn(&Module, &Function, &Directive) -> Made,
) -> Stage {
    Stage { name, takes, make, reads_back: true }
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
