//! Entry points of loaded code, as launches need them.

use super::load::{Entry, Loaded};
use crate::gpu::launches::Launch;
use adfuse_ir::{At, Diagnostic, Kind};
use std::collections::BTreeMap;

/// The entry points of loaded code. Each is looked up once.
pub(crate) struct EntryPoints<'l> {
    pub(crate) loaded: &'l Loaded,
    /// By the user's module, name and bytes of shared memory.
    known: BTreeMap<(Option<usize>, String, u32), Entry>,
}

impl EntryPoints<'_> {
    pub(crate) fn new(loaded: &Loaded) -> EntryPoints<'_> {
        EntryPoints { loaded, known: BTreeMap::new() }
    }

    /// An entry point of the program's own text, whose blocks have this much dynamic shared memory.
    pub(crate) fn of(&mut self, name: &str, shared: u32) -> Result<Entry, Diagnostic> {
        self.of_module((None, name), shared)
    }

    /// The entry point of a launch.
    ///
    /// # Errors
    /// [`Kind::Limit`] where a user's has no room for the threads or the shared memory of its blocks.
    pub(crate) fn of_launch(&mut self, launch: &Launch) -> Result<Entry, Diagnostic> {
        let found = self.of_module((launch.user, &launch.entry), launch.shared);
        if launch.user.is_none() {
            return found;
        }
        let limit = |m: String| Diagnostic::new(At::default(), Kind::Limit, m);
        let entry = found.map_err(|d| {
            let (name, shared) = (&launch.entry, launch.shared);
            limit(format!(
                "`{name}` does not have {shared} bytes of dynamic shared memory: {}",
                d.message
            ))
        })?;
        let threads: u32 = launch.block.iter().product();
        if threads > entry.most_threads {
            return Err(limit(format!(
                "the launch of `{}` has blocks of {threads} threads: of {} registers each, there is room for {}",
                launch.entry, entry.registers, entry.most_threads
            )));
        }
        Ok(entry)
    }

    fn of_module(
        &mut self,
        (user, name): (Option<usize>, &str),
        shared: u32,
    ) -> Result<Entry, Diagnostic> {
        let key = (user, name.to_owned(), shared);
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let entry = self.loaded.entry((user, name), shared)?;
        self.known.insert(key, entry);
        Ok(entry)
    }
}
