//! The architectures that PTX is written for, and what is known of each.

/// The instruction set that text is written for. A driver takes it on chips of that capability and later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Target {
    /// Compute capability 8.0: Ampere.
    #[default]
    Sm80,
    /// Compute capability 9.0: Hopper.
    Sm90,
}

impl Target {
    /// Every target.
    pub const ALL: [Target; 2] = [Target::Sm80, Target::Sm90];

    /// The name that assemblers know it by.
    pub fn name(self) -> &'static str {
        match self {
            Target::Sm80 => "sm_80",
            Target::Sm90 => "sm_90",
        }
    }

    /// The newest target that a chip of this compute capability runs; none where it is older than all.
    pub fn of_capability(major: u32, minor: u32) -> Option<Target> {
        match (major, minor) {
            (9.., _) => Some(Target::Sm90),
            (8, _) => Some(Target::Sm80),
            _ => None,
        }
    }

    /// Bytes of shared memory that one block may have, its dynamic part raised by the driver's attribute.
    pub fn shared(self) -> u32 {
        match self {
            // 164 and 228 KiB a multiprocessor, of which the driver has one.
            Target::Sm80 => 163 << 10,
            Target::Sm90 => 227 << 10,
        }
    }
}

/// Threads of a block where nothing speaks for another number.
pub(crate) const THREADS: u32 = 256;
