//! What a verifier has accepted, as a type: whoever takes one need not check again.

use std::ops::Deref;
use std::sync::Arc;

/// Something that its verifier has accepted. Only a verifier makes one. It cannot be changed, so that its clones are one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Verified<T>(Arc<T>);

impl<T> Verified<T> {
    /// What a verifier has accepted; nothing else calls this.
    pub(super) fn accepted(what: T) -> Verified<T> {
        Verified(Arc::new(what))
    }

    /// What was accepted, to be changed; it must be verified again.
    pub fn into_inner(self) -> T
    where
        T: Clone,
    {
        Arc::unwrap_or_clone(self.0)
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
