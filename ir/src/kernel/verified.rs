//! What a verifier has accepted, as a type: whoever takes one need not check again.

use std::ops::Deref;

/// Something that its verifier has accepted. Only a verifier makes one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// What a verifier has accepted; nothing else calls this.
    pub(super) fn accepted(what: T) -> Verified<T> {
        Verified(what)
    }

    /// What was accepted, to be changed; it must be verified again.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
