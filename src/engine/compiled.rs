//! Compiled functions: runs on arrays by position and by name.

use crate::backends::Array;
use crate::backends::backend::Executable;
use crate::fusion::Memory;
use crate::ir::diag::{instead, listed};
use crate::ir::kernel::{Program, Verified};
use crate::ir::{At, Diagnostic, Kind, TensorType};
use std::borrow::Borrow;
use std::sync::Arc;

/// A compiled function with its program and its memory plan.
#[derive(Debug)]
pub struct Compiled<E: ?Sized = crate::backends::cpu::CpuExecutable> {
    /// Its kernels, before the engine rewrites them.
    pub program: Verified<Program>,
    /// Its memory, after the engine rewrites them.
    pub memory: Memory,
    /// The executable; the engine caches it too.
    pub executable: Arc<E>,
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
        let mut given: Vec<Option<Array>> = vec![None; params.len()];
        for (name, array) in args {
            let Some(k) = names.iter().position(|&known| known == name) else {
                let mut d = self.wrong(Kind::UnknownName, format!("it has no parameter `{name}`"));
                d.hint = instead(name, &names, "");
                return Err(d);
            };
            let (dtype, ty) = (array.dtype(), &params[k].1);
            if array.ty() != *ty {
                let kind = if dtype == ty.dtype { Kind::Shape } else { Kind::DType };
                let m = format!("parameter `{name}` is {ty}, found {}", array.ty());
                return Err(self.wrong(kind, m));
            }
            if given[k].replace(array.clone()).is_some() {
                return Err(self.wrong(Kind::Redefinition, format!("`{name}` is given twice")));
            }
        }
        let absent =
            || names.iter().zip(&given).filter(|(_, a)| a.is_none()).map(|(name, _)| *name);
        let absent: Vec<&str> = absent().collect();
        if !absent.is_empty() {
            let m = format!("there is no argument for {}", listed(&absent, ""));
            let all = format!("its parameters are {}", listed(&names, ""));
            return Err(self.wrong(Kind::Arity, m).hint(all));
        }
        self.executable.run_donating(given.into_iter().flatten().collect())
    }

    /// The names and types of its parameters, in their order.
    pub fn params(&self) -> Vec<(&str, TensorType)> {
        let buffers = self.program.inputs().map(|b| &self.program.buffers[b]);
        buffers.filter_map(|data| Some((data.name.as_str(), data.ty()?))).collect()
    }

    fn wrong(&self, kind: Kind, m: String) -> Diagnostic {
        let at = At { func: Some(self.program.name.clone()), ..At::default() };
        Diagnostic::new(at, kind, m)
    }
}
