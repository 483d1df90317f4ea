//! Functions with symbolic extents: plans and code for each tuple of extents, made when it comes first and kept.

use super::compiled::in_order;
use super::{Compiled, Session};
use crate::backends::backend::{AnyBackend, Backend, Executable};
use crate::backends::{Array, ExecutableCache, Resident};
use crate::ir::rewrite::BoundExtents;
use crate::ir::text::Names;
use crate::ir::{At, DType, Diagnostic, Function, Kind, Module, TensorType, Value};
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Tuples of extents whose executables are kept at most, unless [`CompiledSymbolic::keeping`] says how many.
const KEPT: usize = 16;

/// A function with symbolic extents (`func @f<B>(%x: f32[B,64])`) that runs arguments of any extents.
///
/// The first run at a tuple of extents plans and compiles the function with these constants in place of the symbols, so
/// that results have the bits of that function. What was compiled is kept: the tuple that was asked for longest ago goes
/// first. A memory budget holds for each tuple by itself; executables that are kept hold their memory beside
/// each other, and those that nobody else has release it when memory is not enough for another.
pub struct CompiledSymbolic<B: Backend + ?Sized = AnyBackend> {
    session: Session<B>,
    /// What the function calls.
    module: Module,
    function: Function,
    /// By the extents of the function's symbols, in their order.
    kept: ExecutableCache<Compiled<B::Executable>, Vec<u64>>,
}

impl<B: Backend + ?Sized> Session<B> {
    /// A function of a verified module that is compiled for the extents of its arguments as they come. Without
    /// symbols it is compiled when it first runs.
    ///
    /// # Errors
    /// [`Kind::UnknownName`] for a call of a function that is not there. All else is found when extents are known.
    pub fn compile_symbolic(
        &self,
        module: &Module,
        f: &Function,
    ) -> Result<CompiledSymbolic<B>, Diagnostic> {
        let module = module.reached(f);
        for caller in module.funcs.values().chain([f]) {
            let unknown = caller.callees().into_iter().find(|name| module.find(name).is_none());
            if let Some(name) = unknown {
                let at = At { func: Some(caller.name.clone()), ..At::default() };
                let m = format!("it calls @{name}, which is not there");
                return Err(Diagnostic::new(at, Kind::UnknownName, m));
            }
        }
        Ok(CompiledSymbolic {
            session: self.clone(),
            module,
            function: f.clone(),
            kept: ExecutableCache::new(KEPT),
        })
    }
}

impl<B: Backend + ?Sized> CompiledSymbolic<B> {
    /// The same function, keeping executables of this many tuples of extents, at least one. None is kept yet.
    pub fn keeping(self, tuples: usize) -> CompiledSymbolic<B> {
        CompiledSymbolic { kept: ExecutableCache::new(tuples), ..self }
    }

    /// The function, with its symbols.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Of how many tuples of extents the executables are kept.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Drops all executables that are kept; they live on while they have other owners.
    pub fn clear(&self) {
        self.kept.clear();
    }

    /// What runs arguments of these extents, made ahead or found: `made.specialized(&[("B", 64)])`.
    ///
    /// # Errors
    /// [`Kind::UnknownName`] for a symbol that the function does not have; [`Kind::Usage`] for one that is
    /// given twice or not at all; the error of an instruction that these extents do not fit; and as [`Session::compile`].
    pub fn specialized(
        &self,
        extents: &[(&str, u64)],
    ) -> Result<Arc<Compiled<B::Executable>>, Diagnostic> {
        self.at(&BoundExtents::named(&self.function, extents)?)
    }

    /// What runs arguments of these types.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the arguments do not have the parameters' types, or two of them give a symbol
    /// different extents: the error names the symbol and the arguments. As [`CompiledSymbolic::specialized`] else.
    pub fn for_types(
        &self,
        types: &[TensorType],
    ) -> Result<Arc<Compiled<B::Executable>>, Diagnostic> {
        self.at(&BoundExtents::default().with(&self.function, types)?)
    }

    /// Runs the function on arrays, owned or borrowed, whose extents its symbols take. The arrays are only lent: what
    /// the plan writes to is copied first.
    ///
    /// # Errors
    /// As [`CompiledSymbolic::for_types`] and [`Compiled::run`].
    pub fn run(&self, args: &[impl Borrow<Array>]) -> Result<Vec<Array>, Diagnostic> {
        self.run_at(&[], args)
    }

    /// As [`CompiledSymbolic::run`], where extents are given that no argument has, or should have.
    ///
    /// # Errors
    /// As there and [`CompiledSymbolic::specialized`].
    pub fn run_at(
        &self,
        extents: &[(&str, u64)],
        args: &[impl Borrow<Array>],
    ) -> Result<Vec<Array>, Diagnostic> {
        let f = &self.function;
        let types: Vec<TensorType> = args.iter().map(|a| a.borrow().ty()).collect();
        self.at(&BoundExtents::named(f, extents)?.with(f, &types)?)?.run(args)
    }

    /// As [`CompiledSymbolic::run`], with the names of the parameters, in any order.
    ///
    /// # Errors
    /// As there; and as [`Compiled::run_named`] for names that are unknown, missing or given twice.
    pub fn run_named<'a>(
        &self,
        args: impl IntoIterator<Item = (&'a str, &'a Array)>,
    ) -> Result<Vec<Array>, Diagnostic> {
        let (f, names) = (&self.function, Names::of(&self.function));
        let takes = |&&p: &&Value| f.ty(p).dtype != DType::Token;
        let names: Vec<String> = f.params().iter().filter(takes).map(|&p| names.get(p)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.run_donating(in_order(&f.name, &names, args)?)
    }

    /// As [`CompiledSymbolic::run`], on donated arrays: results may be in their memory, unless clones share it.
    ///
    /// # Errors
    /// As there.
    pub fn run_donating(&self, args: Vec<Array>) -> Result<Vec<Array>, Diagnostic> {
        let types: Vec<TensorType> = args.iter().map(Array::ty).collect();
        self.for_types(&types)?.executable.run_donating(args)
    }

    /// Runs it on tensors where the engine keeps them, and leaves the results there
    /// ([`Executable::run_resident`]).
    ///
    /// # Errors
    /// As there and [`CompiledSymbolic::for_types`].
    pub fn run_resident(&self, args: Vec<Resident>) -> Result<Vec<Resident>, Diagnostic> {
        let types: Vec<TensorType> = args.iter().map(Resident::ty).collect();
        self.for_types(&types)?.executable.run_resident(args)
    }

    fn at(&self, bound: &BoundExtents) -> Result<Arc<Compiled<B::Executable>>, Diagnostic> {
        let by_name = |d: Diagnostic| d.hint("`specialized` and `run_at` take extents by name");
        let key = bound.all(&self.function).map_err(by_name)?;
        if let Some(found) = self.kept.find(&key) {
            return Ok(found);
        }
        // What is wrong with the plan, a budget that is too small among it, makes no room: only what takes memory
        // is tried a second time.
        let f = bound.specialize(&self.function)?;
        let blamed = |d| bound.blamed(&self.function, d);
        let (function, plan) = self.session.planned(&self.module, &f).map_err(blamed)?;
        self.kept.get_or_make(key, || self.session.follow(&function, &plan))
    }
}

impl<B: Backend + ?Sized> fmt::Debug for CompiledSymbolic<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept.len();
        f.debug_struct("CompiledSymbolic")
            .field("function", &self.function.name)
            .field("kept", &kept)
            .finish()
    }
}
