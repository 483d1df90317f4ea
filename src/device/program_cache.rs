//! Programs that are made when they are asked for first, and kept.

use crate::backends::{Array, ExecutableCache};
use crate::ir::{Diagnostic, TensorType};
use crate::tree::{Params, structure};
use std::sync::{Arc, Mutex, PoisonError};

/// What a program is made for: the structure of its arguments, and the types of their arrays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ArgumentKey {
    structure: String,
    types: Vec<TensorType>,
}

impl ArgumentKey {
    /// Of a tree, whose leaves are these arrays.
    pub(crate) fn of(tree: &impl Params<Array>, arrays: &[Array]) -> ArgumentKey {
        let types = arrays.iter().map(Array::ty).collect();
        ArgumentKey { structure: structure(tree), types }
    }
}

/// The programs of a function by what they are made for. Threads that ask for the same one wait for it: it is made once.
pub(crate) struct ProgramCache<K, P> {
    kept: ExecutableCache<P, K>,
    making: Mutex<()>,
}

impl<K: PartialEq, P> ProgramCache<K, P> {
    /// Without programs. It keeps all that are made.
    pub(crate) fn new() -> ProgramCache<K, P> {
        ProgramCache { kept: ExecutableCache::new(usize::MAX), making: Mutex::default() }
    }

    /// The program of a key.
    ///
    /// # Errors
    /// Those of `make`; nothing is kept then.
    pub(crate) fn get_or_make(
        &self,
        key: K,
        make: impl Fn() -> Result<P, Diagnostic>,
    ) -> Result<Arc<P>, Diagnostic> {
        if let Some(found) = self.kept.find(&key) {
            return Ok(found);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.kept.get_or_make(key, make)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }
}
