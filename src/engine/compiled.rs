//! Compiled functions: runs on arrays by position and by name.

use crate::backends::Array;
use crate::backends::backend::Executable;
use crate::fusion::Memory;
use crate::ir::diag::{instead, listed};
use crate::ir::kernel::{Program, Verified};
use crate::ir::{At, Diagnostic, Kind, TensorType};
use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

/// A compiled function with its program and its memory plan.
#[derive(Debug)]
pub struct Compiled<E: ?Sized = crate::backends::cpu::CpuExecutable> {
    /// Its kernels, before the engine rewrites them.
    pub program: Verified<Program>,
    /// Its memory, after the engine rewrites them. The peak is what the engine holds, each block to whole lines of the cache.
    pub memory: Memory,
    /// The executable; the engine caches it too.
    pub executable: Arc<E>,
    /// How long the engine took to make it, when program and memory were planned.
    pub code_time: Duration,
}

impl<E: Executable + ?Sized> Compiled<E> {
    /// Runs it on arrays, owned or borrowed, in the order of its parameters. The arrays are only lent: what the plan
    /// writes to is copied first.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the arguments do not have the parameters' types; [`Kind::Limit`] when memory is not enough.
    pub fn run(&self, args: &[impl Borrow<Array>]) -> Result<Vec<Array>, Diagnostic> {
        self.executable.run_donating(args.iter().map(|a| a.borrow().clone()).collect())
    }

    /// Runs it on arrays by the names of its parameters, in any order.
    ///
    /// # Errors
    /// Each names the parameter: [`Kind::UnknownName`] for a name that no parameter has, with the nearest as a hint;
    /// [`Kind::Redefinition`] for one that is given twice; [`Kind::Arity`] for parameters without an argument;
    /// [`Kind::DType`] and [`Kind::Shape`] for arrays of another type. Otherwise as [`Compiled::run`].
    pub fn run_named<'a>(
        &self,
        args: impl IntoIterator<Item = (&'a str, &'a Array)>,
    ) -> Result<Vec<Array>, Diagnostic> {
        let params = self.params();
        let names: Vec<&str> = params.iter().map(|(name, _)| *name).collect();
        let args = in_order(&self.program.name, &names, args)?;
        for ((name, ty), array) in params.iter().zip(&args) {
            if array.ty() != *ty {
                let kind = if array.dtype() == ty.dtype { Kind::Shape } else { Kind::DType };
                let m = format!("parameter `{name}` is {ty}, found {}", array.ty());
                return Err(wrong(&self.program.name, kind, m));
            }
        }
        self.executable.run_donating(args)
    }

    /// The names and types of its parameters, in their order.
    pub fn params(&self) -> Vec<(&str, TensorType)> {
        let buffers = self.program.inputs().map(|b| &self.program.buffers[b]);
        buffers.filter_map(|data| Some((data.name.as_str(), data.ty()?))).collect()
    }
}

/// Arrays that are given by name, in the order of the parameters.
///
/// # Errors
/// As [`Compiled::run_named`], but for those of types.
pub(super) fn in_order<'a>(
    func: &str,
    names: &[&str],
    args: impl IntoIterator<Item = (&'a str, &'a Array)>,
) -> Result<Vec<Array>, Diagnostic> {
    let mut given: Vec<Option<Array>> = vec![None; names.len()];
    for (name, array) in args {
        let Some(k) = names.iter().position(|&known| known == name) else {
            let mut d = wrong(func, Kind::UnknownName, format!("it has no parameter `{name}`"));
            d.hint = instead(name, names, "");
            return Err(d);
        };
        if given[k].replace(array.clone()).is_some() {
            return Err(wrong(func, Kind::Redefinition, format!("`{name}` is given twice")));
        }
    }
    let absent = || names.iter().zip(&given).filter(|(_, a)| a.is_none()).map(|(name, _)| *name);
    let absent: Vec<&str> = absent().collect();
    if !absent.is_empty() {
        let m = format!("there is no argument for {}", listed(&absent, ""));
        let all = format!("its parameters are {}", listed(names, ""));
        return Err(wrong(func, Kind::Arity, m).hint(all));
    }
    Ok(given.into_iter().flatten().collect())
}

fn wrong(func: &str, kind: Kind, m: String) -> Diagnostic {
    Diagnostic::new(At { func: Some(func.into()), ..At::default() }, kind, m)
}
