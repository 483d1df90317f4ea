//! Why an instruction is not lowered.

/// Why an instruction is not lowered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unlowered {
    /// It reads what could not be imported, which has been told.
    Poisoned,
    /// This of it cannot be imported.
    Unsupported(String),
}

/// A refusal.
pub(crate) fn refuse<T>(what: impl Into<String>) -> Result<T, Unlowered> {
    Err(Unlowered::Unsupported(what.into()))
}
