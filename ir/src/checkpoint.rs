//! Checkpoint regions: what of a part of a program is kept for the backward pass, as a policy of the user.
//!
//! A call of a function with a policy is a region; calls inside of it are regions inside of the region. Inlining makes
//! instructions of a call, and each keeps the [`CheckpointPath`] of the regions that it is in.

use std::fmt;
use std::sync::Arc;

/// What of the values that a region computes is kept for the backward pass.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CheckpointPolicy {
    /// `checkpoint(save)`: what the backward pass reads is kept, and computed once.
    Save,
    /// `checkpoint(remat)`: nothing is kept; the backward pass computes it again from what the region is given.
    Remat,
    /// `checkpoint(names = ["h"])`: the values of these names, without `%`, are kept; the others are computed again.
    Names(Vec<String>),
}

impl fmt::Display for CheckpointPolicy {
    /// As in text, `checkpoint(remat)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointPolicy::Save => f.write_str("checkpoint(save)"),
            CheckpointPolicy::Remat => f.write_str("checkpoint(remat)"),
            CheckpointPolicy::Names(names) => {
                f.write_str("checkpoint(names = [")?;
                for (k, name) in names.iter().enumerate() {
                    write!(f, "{}\"{name}\"", if k > 0 { ", " } else { "" })?;
                }
                f.write_str("])")
            }
        }
    }
}

/// What a scope says of the instructions in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ScopeKind {
    /// A region whose values are computed again.
    Remat,
    /// A region whose values are kept.
    Save,
    /// A value that its region keeps by name, or that is kept now that regions are decided.
    Named,
    /// An instruction that computes again what an earlier phase computed: it runs no sooner than it is read.
    Again,
}

impl ScopeKind {
    /// All of them.
    pub const ALL: [ScopeKind; 4] =
        [ScopeKind::Remat, ScopeKind::Save, ScopeKind::Named, ScopeKind::Again];

    /// Its word in text.
    pub fn word(self) -> &'static str {
        match self {
            ScopeKind::Remat => "remat",
            ScopeKind::Save => "save",
            ScopeKind::Named => "named",
            ScopeKind::Again => "again",
        }
    }
}

/// One region around an instruction. Equal numbers in equal places are one region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CheckpointScope {
    /// What it says.
    pub kind: ScopeKind,
    /// Its number.
    pub number: u32,
}

/// The regions around an instruction, the outermost first; none for most instructions.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CheckpointPath(Option<Arc<[CheckpointScope]>>);

impl CheckpointPath {
    /// A path of these scopes, the outermost first.
    pub fn of(scopes: &[CheckpointScope]) -> CheckpointPath {
        CheckpointPath((!scopes.is_empty()).then(|| scopes.into()))
    }

    /// The path of one scope.
    pub fn alone(kind: ScopeKind) -> CheckpointPath {
        CheckpointPath::of(&[CheckpointScope { kind, number: 0 }])
    }

    /// The scopes, the outermost first.
    pub fn scopes(&self) -> &[CheckpointScope] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether there is no region.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// What the innermost region says.
    pub fn innermost(&self) -> Option<ScopeKind> {
        self.scopes().last().map(|s| s.kind)
    }

    /// Whether the instruction computes again what an earlier phase has computed.
    pub fn is_again(&self) -> bool {
        self.innermost() == Some(ScopeKind::Again)
    }

    /// Whether some region around the instruction is of a kind.
    pub fn has(&self, kind: ScopeKind) -> bool {
        self.scopes().iter().any(|s| s.kind == kind)
    }

    /// The path of what is computed beside a value that is kept by name.
    pub fn without_name(&self) -> CheckpointPath {
        match self.scopes() {
            [around @ .., last] if last.kind == ScopeKind::Named => CheckpointPath::of(around),
            _ => self.clone(),
        }
    }

    /// The path with further scopes inside.
    pub fn then(&self, inner: &[CheckpointScope]) -> CheckpointPath {
        match inner {
            [] => self.clone(),
            _ => CheckpointPath::of(&[self.scopes(), inner].concat()),
        }
    }

    /// The regions around both.
    pub fn common(&self, other: &CheckpointPath) -> CheckpointPath {
        if self == other {
            return self.clone();
        }
        let both = self.scopes().iter().zip(other.scopes());
        let n = both.take_while(|(a, b)| a == b).count();
        CheckpointPath::of(&self.scopes()[..n])
    }

    /// Whether the other is this region or is inside of it.
    pub fn contains(&self, other: &CheckpointPath) -> bool {
        other.scopes().starts_with(self.scopes())
    }
}

impl fmt::Display for CheckpointPath {
    /// As after the type of an instruction, ` in remat(0) save(1)`; nothing where there is no region.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, s) in self.scopes().iter().enumerate() {
            write!(f, "{} {}({})", if k == 0 { " in" } else { "" }, s.kind.word(), s.number)?;
        }
        Ok(())
    }
}

impl fmt::Debug for CheckpointPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
