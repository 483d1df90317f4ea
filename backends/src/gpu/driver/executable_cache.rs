//! Executables that an engine keeps.

use super::executable::Executable;
use super::load::{KeptCode, key as code_key};
use super::prepare::Prepared;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::executable_cache::{key, take};
use adfuse_ir::{Diagnostic, Kind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Executables kept at most. Each has memory of the device.
const KEPT: usize = 16;

/// Of a program, its layout, and how it is made.
type Key = ([u8; 32], String);

/// Keeps the executables that were asked for last, so that none is made twice.
#[derive(Default)]
pub struct Kept {
    /// Those asked for last come last.
    made: Mutex<Vec<(Key, Arc<Executable>)>>,
}

impl Kept {
    /// The executable of a program, made when it is asked for first. Where the device has not enough memory,
    /// those that are kept give up theirs, if nobody else has them.
    ///
    /// # Errors
    /// As [`Prepared::finish`].
    pub fn executable(
        &self,
        prepared: &Prepared,
        arena: &ArenaLayout,
        cache: Option<&dyn KeptCode>,
    ) -> Result<Arc<Executable>, Diagnostic> {
        let code = code_key(prepared.text(), prepared.device.facts());
        let how = format!("{code} {}", prepared.how);
        let key = (key(prepared.program(), arena), how);
        if let Some(found) = take(&mut self.made(), &key) {
            return Ok(found);
        }
        let made = match prepared.finish(arena, cache) {
            Err(d) if d.kind == Kind::Limit && !self.made().is_empty() => {
                self.clear();
                prepared.finish(arena, cache)
            }
            made => made,
        };
        let made = Arc::new(made?);
        let mut all = self.made();
        if all.len() >= KEPT {
            all.remove(0);
        }
        all.push((key, Arc::clone(&made)));
        Ok(made)
    }

    /// Forgets all of them; they live as long as somebody else has them.
    pub fn clear(&self) {
        self.made().clear();
    }

    fn made(&self) -> MutexGuard<'_, Vec<(Key, Arc<Executable>)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("executables", &self.made().len()).finish()
    }
}
