//! What may happen to a program's numbers.

/// How a program's numbers may differ from its text's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Fp {
    /// The same bits whatever the plan.
    #[default]
    Strict,
    /// The same bits for one plan on one device: 16-bit floats keep their `f32` inside of a kernel, and
    /// products may be joined with the sums that they go into.
    Reproducible,
    /// As `Reproducible`, with approximate functions where an engine has them.
    Fast,
}

impl Fp {
    /// Every mode, with its name.
    pub const ALL: [(Fp, &'static str); 3] =
        [(Fp::Strict, "strict"), (Fp::Reproducible, "reproducible"), (Fp::Fast, "fast")];

    /// The name in text.
    pub fn name(self) -> &'static str {
        Fp::ALL.iter().find(|(fp, _)| *fp == self).map_or("", |(_, name)| name)
    }
}
