//! Engines: they turn a function into something that runs.

mod compiled;
mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
mod listed;
#[cfg(feature = "report")]
mod plan_report;
pub mod registry;
mod session;
mod symbolic;

pub use compiled::Compiled;
pub use cpu::{Cpu, SharedCpuEngine};
#[cfg(feature = "gpu")]
pub use gpu::{Gpu, OnGpu};
pub use listed::{ListingCompiler, Machine};
#[cfg(feature = "report")]
pub use plan_report::ReportRequest;
pub(crate) use session::PlannedFunction;
pub use session::{PlanDecision, PreparedPlan, Session, Settings, arena_layout, check_donations};
pub use symbolic::CompiledSymbolic;

use crate::backends::Array;
use crate::backends::ScopedEffects;
use crate::backends::functions::Registry;
use crate::backends::limits::RunLimits;
use crate::backends::reference::run_within;
use crate::ir::{Diagnostic, Function, Kind, Module};
use std::cell::RefCell;

/// A compiled function that takes arguments and returns results.
pub type ReadyFunction<'a> = Box<dyn Fn(&[Array]) -> Result<Vec<Array>, Diagnostic> + 'a>;

/// An engine that runs functions, with or without plans.
pub trait Engine {
    /// Makes a function of a verified module, or one made of it, ready. `of` is the function that the
    /// user knows it by.
    ///
    /// # Errors
    /// If the engine does not support it.
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        of: &str,
    ) -> Result<ReadyFunction<'a>, Diagnostic>;
}

/// The engine that defines the meaning of programs. Effects go to the sink of the scope
/// ([`with_effects`](crate::backends::with_effects)).
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference {
    /// How far programs may go.
    pub limits: RunLimits,
}

/// An engine that plans, with the reference engine as a fallback for functions that it does not support.
#[derive(Debug)]
pub struct WithFallback {
    /// The first choice.
    pub first: Session,
    fallbacks: RefCell<Vec<(String, Diagnostic)>>,
}

impl WithFallback {
    /// With this engine as the first choice.
    pub fn new(first: impl Into<Session>) -> WithFallback {
        WithFallback { first: first.into(), fallbacks: RefCell::default() }
    }

    fn fall_back(&self, of: &str, d: Diagnostic) {
        let mut fallbacks = self.fallbacks.borrow_mut();
        if fallbacks.iter().all(|(name, _)| name != of) {
            fallbacks.push((of.into(), d));
        }
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
        let limits = self.limits;
        Ok(Box::new(move |args| {
            run_within(module, f, args, &mut ScopedEffects, (&Registry::new(), limits))
        }))
    }
}

impl Engine for WithFallback {
    fn ready<'a>(
        &'a self,
        module: &'a Module,
        f: &'a Function,
        of: &str,
    ) -> Result<ReadyFunction<'a>, Diagnostic> {
        let Session { settings, .. } = &self.first;
        let given = (&settings.functions, settings.limits);
        let reference =
            move |args: &[Array]| run_within(module, f, args, &mut ScopedEffects, given);
        let first = self.first.ready(module, f, of);
        match first {
            Err(d) if d.kind == Kind::Unsupported => {
                self.fall_back(of, d);
                Ok(Box::new(reference))
            }
            // What is not supported shows when it is compiled.
            Ok(run) if !f.symbols.is_empty() => {
                let of = of.to_owned();
                Ok(Box::new(move |args| match run(args) {
                    Err(d) if d.kind == Kind::Unsupported => {
                        self.fall_back(&of, d);
                        reference(args)
                    }
                    other => other,
                }))
            }
            other => other,
        }
    }
}
