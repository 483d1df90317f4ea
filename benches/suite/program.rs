//! Programs of benches: a function, with the parameters in which it is differentiated.

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::Fp;
use adfuse::ir::rewrite::{in_stable_forms, specialize};
use adfuse::ir::{At, Diagnostic, Function, Kind, Module, Symbol, text};

use adfuse::pipeline::{attention_steps, prepared_with};
use adfuse::prelude::Traced;
use std::collections::BTreeMap;

/// A function that a bench runs.
#[derive(Clone, Debug)]
pub struct BenchProgram {
    /// Its name, by which the command line picks it.
    pub name: String,
    module: Module,
    function: Function,
    /// Whether it is differentiated in all parameters of a float type but those that are held.
    is_loss: bool,
}

/// The first word of the names of parameters in which nothing is differentiated: data, and weights of results.
const HELD: &str = "in.";

impl BenchProgram {
    /// A traced function as it is.
    pub fn forward(name: &str, traced: Traced) -> BenchProgram {
        let function = traced.function().clone();
        BenchProgram { name: name.into(), module: traced.into(), function, is_loss: false }
    }

    /// A traced function with one scalar result and its gradients in all parameters of a float type whose name does not begin with `in.`.
    pub fn gradient(name: &str, traced: Traced) -> BenchProgram {
        BenchProgram { is_loss: true, ..BenchProgram::forward(name, traced) }
    }

    /// The one function of a text, with the extents of its symbols; where it is `differentiated`, with its gradients in all parameters of a float type
    /// but `%w`.
    ///
    /// # Errors
    /// What the text has against it, and [`Kind::Usage`] where it has no function.
    pub fn of_text(
        name: &str,
        source: &str,
        extents: &[(&str, u64)],
        differentiated: bool,
    ) -> Result<BenchProgram, Diagnostic> {
        let module = text::parse(source).map_err(first)?;
        let none = || Diagnostic::new(At::default(), Kind::Usage, format!("{name}: no function"));
        let f = module.funcs.values().next().ok_or_else(none)?;
        let symbol = |&(name, n): &(&str, u64)| Some((Symbol::new(name)?, n));
        let extents: BTreeMap<Symbol, u64> = extents.iter().filter_map(symbol).collect();
        let function = specialize(f, &extents).map_err(first)?;
        Ok(BenchProgram { name: name.into(), module, function, is_loss: differentiated })
    }

    /// The program as text, before it is differentiated.
    pub fn text(&self) -> String {
        self.module.to_string()
    }

    /// The function as the planner of an engine sees it: stable forms and the engine's steps in modes that are not strict, gradients, calls written
    /// out, as the pipeline prepares what users give it.
    ///
    /// # Errors
    /// What differentiation and preparation have against it.
    pub fn prepared(&self, is_gpu: bool, fp: Fp) -> Result<Function, Diagnostic> {
        let how = (attention_steps(is_gpu), fp);
        let (mut module, mut f) =
            in_stable_forms(&self.module, &self.function, how, &mut |_, _| {})?;
        if self.is_loss {
            let held = |name: Option<&str>| name.is_some_and(|n| n == "w" || n.starts_with(HELD));
            let names: Vec<Option<&str>> = f.params().iter().map(|&v| f.name_of(v)).collect();
            let wrt: Vec<usize> =
                differentiable(&f, None)?.into_iter().filter(|&k| !held(names[k])).collect();
            f = forward_and_backward(&module, &f, &wrt)?;
            module = Module::single(f.clone());
        }
        prepared_with(&module, &f, how)
    }
}

/// The first of several errors.
fn first(mut errors: Vec<Diagnostic>) -> Diagnostic {
    errors.swap_remove(0)
}
