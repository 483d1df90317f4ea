//! Engines: they turn a function into something that runs.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
mod listed;
pub mod registry;
mod session;

pub use cpu::{Cpu, SharedCpuEngine};
#[cfg(feature = "gpu")]
pub use gpu::{Gpu, OnGpu};
pub use listed::{ListingCompiler, Machine};
pub(crate) use session::layout_of;
pub use session::{Compiled, PlanDecision, Session, Settings};

use crate::backends::Array;
use crate::backends::reference::{Silent, run, run_with};
use crate::ir::{Diagnostic, Function, Kind, Module};
use std::cell::RefCell;

/// A function, ready to be run at arguments as often as one likes.
pub type ReadyFunction<'a> = Box<dyn Fn(&[Array]) -> Result<Vec<Array>, Diagnostic> + 'a>;

/// What runs functions, planned or not.
pub trait Engine {
    /// Makes a function of a verified module, or one made of it, ready. `of` is the function that the
    /// user knows it by.
    ///
    /// # Errors
    /// What the engine has against it.
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        of: &str,
    ) -> Result<ReadyFunction<'a>, Diagnostic>;
}

/// The engine that defines what programs mean. It keeps no print.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// An engine that plans where it runs a function, the reference engine elsewhere.
#[derive(Debug)]
pub struct WithFallback {
    /// The first choice.
    pub first: Session,
    fallbacks: RefCell<Vec<(String, Diagnostic)>>,
}

impl WithFallback {
    /// What this engine runs, by it.
    pub fn new(first: impl Into<Session>) -> WithFallback {
        WithFallback { first: first.into(), fallbacks: RefCell::default() }
    }

    /// The functions that the reference engine ran, each once by the name that the user knows, and
    /// why.
    pub fn fallbacks(self) -> Vec<(String, Diagnostic)> {
        self.fallbacks.into_inner()
    }
}

impl Engine for Reference {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        _: &str,
    ) -> Result<ReadyFunction<'a>, Diagnostic> {
        Ok(Box::new(move |args| run(module, f, args, &mut Silent)))
    }
}

impl Engine for WithFallback {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        of: &str,
    ) -> Result<ReadyFunction<'a>, Diagnostic> {
        match self.first.ready(module, f, of) {
            Err(d) if d.kind == Kind::Unsupported => {
                let mut fallbacks = self.fallbacks.borrow_mut();
                if fallbacks.iter().all(|(name, _)| name != of) {
                    fallbacks.push((of.into(), d));
                }
                let functions = &self.first.settings.functions;
                Ok(Box::new(move |args| run_with(module, f, args, &mut Silent, functions)))
            }
            other => other,
        }
    }
}
