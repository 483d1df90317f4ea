//! Checkpoint regions in traces: what of a closure is kept for the backward pass.
//!
//! ```
//! use adfuse::prelude::*;
//! use adfuse::ir::CheckpointPolicy;
//!
//! let f = trace("loss", |t| {
//!     let x = t.input("x", f32s([128, 64]));
//!     let w = t.input("w", f32s([64, 64]));
//!     let h = t.checkpoint(CheckpointPolicy::Remat, || x.dot(&w).sin().tanh());
//!     h.sum(&[0, 1])
//! })?;
//! assert!(f.to_string().contains("in remat(0)"));
//! # Ok::<(), adfuse::ir::Diagnostic>(())
//! ```

use super::{TraceState, Tracer};
use crate::ir::{CheckpointPath, CheckpointPolicy, CheckpointScope, Inst, Kind, ScopeKind, Value};
use std::panic::Location;

impl Tracer {
    /// What the closure gives, as a checkpoint region: the policy says which of the values that the closure computes are
    /// kept for the backward pass. Those that it gives, or that are used outside of it, may be kept under any policy.
    /// Regions nest; the innermost decides. Names are those of [`Tensor::named`](super::Tensor::named).
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::ir::CheckpointPolicy;
    /// let f = trace("f", |t| {
    ///     let x = t.input("x", f32s([4]));
    ///     t.checkpoint(CheckpointPolicy::Remat, || x.exp().sin())
    /// })?;
    /// assert!(f.to_string().contains("in remat(0)"));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn checkpoint<R>(&self, policy: CheckpointPolicy, body: impl FnOnce() -> R) -> R {
        self.checkpoint_at(Location::caller(), policy, body)
    }

    /// As [`Tracer::checkpoint`], asked for at this place.
    pub(crate) fn checkpoint_at<R>(
        &self,
        place: &Location<'_>,
        policy: CheckpointPolicy,
        body: impl FnOnce() -> R,
    ) -> R {
        let kind = match policy {
            CheckpointPolicy::Save => ScopeKind::Save,
            CheckpointPolicy::Remat | CheckpointPolicy::Names(_) => ScopeKind::Remat,
        };
        let around = self.state.borrow_mut().as_mut().map(|s| s.enter(kind));
        let out = body();
        if let (Some(s), Some((around, first))) = (self.state.borrow_mut().as_mut(), around) {
            if let CheckpointPolicy::Names(names) = &policy {
                s.keep(place, names, first);
            }
            s.b.set_path(around);
        }
        out
    }
}

impl TraceState {
    /// Opens a region. The regions around it, and the number of instructions before it.
    fn enter(&mut self, kind: ScopeKind) -> (CheckpointPath, usize) {
        let around = self.b.path().clone();
        let scope = CheckpointScope { kind, number: self.regions };
        self.regions += 1;
        self.b.set_path(around.then(&[scope]));
        (around, self.b.func().inst_count())
    }

    /// Marks the values of these names that the region under construction computes itself; names without one are errors.
    fn keep(&mut self, place: &Location<'_>, names: &[String], first: usize) {
        let region = self.b.path().clone();
        let mut found = vec![false; names.len()];
        for k in first..self.b.func().inst_count() {
            let i = Inst::from_u32(k as u32);
            let f = self.b.func();
            let own = f.path(i) == &region;
            let named = |v: &Value| names.iter().position(|n| f.name_of(*v) == Some(n));
            let Some(k) = f.inst_results(i).iter().find_map(named).filter(|_| own) else {
                continue;
            };
            found[k] = true;
            let scope = CheckpointScope { kind: ScopeKind::Named, number: self.regions };
            self.regions += 1;
            self.b.func_mut().set_path(i, region.then(&[scope]));
        }
        for (name, _) in names.iter().zip(found).filter(|(_, found)| !found) {
            let m = format!("the checkpoint region computes no value `%{name}`");
            self.fail(place, Kind::UnknownName, m);
        }
    }

    /// Puts a copied instruction, and those in it, into the region under construction.
    pub(super) fn enclose(&mut self, i: Inst) {
        let path = self.b.path().clone();
        let mut open = vec![i];
        while let Some(i) = open.pop() {
            let f = self.b.func_mut();
            f.set_path(i, path.clone());
            for r in f.inst(i).regions.clone() {
                open.extend(f.region(r).insts.iter().copied());
            }
        }
    }
}
