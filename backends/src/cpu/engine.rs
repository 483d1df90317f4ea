//! An engine: threads that its executables share, and the executables it has made.

use super::executable::{Executable, Options};
use super::thread_pool::Pool;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::executable_cache::{Key, key, take};
use crate::runtime::functions::Registry;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Program, Verified};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Executables that an engine keeps at most.
const KEPT: usize = 64;

/// Makes executables that share its threads, and makes none twice: it keeps those that were asked for last,
/// by the hash of program and layout. Machine code and memory are freed with the last of an executable's
/// owners.
pub struct Engine {
    options: Options,
    functions: Registry,
    pool: Arc<Mutex<Pool>>,
    /// Those asked for last come last.
    made: Mutex<Vec<(Key, Arc<Executable>)>>,
}

impl Engine {
    /// With as many threads as the options say.
    pub fn new(options: Options) -> Engine {
        Engine::with_functions(options, Registry::new())
    }

    /// As [`Engine::new`], with functions for programs to call.
    pub fn with_functions(options: Options, functions: Registry) -> Engine {
        let pool = Pool::new(options.threads.max(1) - 1);
        Engine { options, functions, pool: Arc::new(Mutex::new(pool)), made: Mutex::default() }
    }

    /// The executable of a program, made when it is asked for first.
    ///
    /// # Errors
    /// As [`Executable::compile`].
    pub fn executable(
        &self,
        program: &Verified<Program>,
        arena: &ArenaLayout,
    ) -> Result<Arc<Executable>, Diagnostic> {
        let key = key(program, arena);
        if let Some(found) = take(&mut self.made(), &key) {
            return Ok(found);
        }
        // Others go on meanwhile; should one of them make the same, the first stays.
        let (pool, how) = (Arc::clone(&self.pool), (self.options, &self.functions));
        let made = Arc::new(Executable::with_pool(program, arena, how, pool)?);
        let mut all = self.made();
        if let Some(found) = take(&mut all, &key) {
            return Ok(found);
        }
        if all.len() >= KEPT {
            all.remove(0);
        }
        all.push((key, Arc::clone(&made)));
        Ok(made)
    }

    /// The functions that its programs may call.
    pub fn functions(&self) -> &Registry {
        &self.functions
    }

    /// How many executables it keeps.
    pub fn kept(&self) -> usize {
        self.made().len()
    }

    /// Forgets all executables; they live as long as somebody else has them.
    pub fn clear(&self) {
        self.made().clear();
    }

    fn made(&self) -> MutexGuard<'_, Vec<(Key, Arc<Executable>)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("options", &self.options).finish_non_exhaustive()
    }
}
