//! An engine: threads that its executables share, and the executables it has made.

use super::pool::Pool;
use super::run::{Executable, Options};
use crate::functions::Registry;
use crate::layout::ArenaLayout;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Program, Verified};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Executables that an engine keeps at most.
const KEPT: usize = 64;

/// Of a program, its layout and the options.
type Key = [u8; 32];

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

/// The executable of a key, which becomes the last one asked for.
pub(crate) fn take<K: PartialEq, E>(all: &mut Vec<(K, Arc<E>)>, key: &K) -> Option<Arc<E>> {
    let found = all.iter().position(|(k, _)| k == key)?;
    let entry = all.remove(found);
    let made = Arc::clone(&entry.1);
    all.push(entry);
    Some(made)
}

/// The hash of a program and its layout.
pub(crate) fn key(program: &Verified<Program>, arena: &ArenaLayout) -> Key {
    let mut hash = Sha256::new();
    // The text reads back as the same program.
    hash.update(program.to_string());
    hash.update(arena.bytes.to_le_bytes());
    let place = |hash: &mut Sha256, at: Option<u64>| {
        hash.update([u8::from(at.is_some())]);
        hash.update(at.unwrap_or(0).to_le_bytes());
    };
    for b in program.buffers.keys() {
        place(&mut hash, arena.offsets[b]);
        place(&mut hash, arena.donated[b].map(|input| u64::from(input.as_u32())));
    }
    for scratch in &arena.scratch {
        place(&mut hash, scratch.map(|(at, _)| at));
        place(&mut hash, scratch.map(|(_, bytes)| bytes));
    }
    hash.finalize().into()
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("options", &self.options).finish_non_exhaustive()
    }
}
