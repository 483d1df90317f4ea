//! Vector widths, the emitter of a sweep, and why it is not the x86 emitter.

use adfuse_ir::scalar::Prim;
use adfuse_ir::{At, DType, Diagnostic, Kind};
use smallvec::SmallVec;
use std::fmt;

/// How wide the vectors of machine code are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Vectors {
    /// 128 bits, on every host; all code is Cranelift's.
    Narrow,
    /// 256 bits, of hosts with AVX2, FMA, F16C and BMI2.
    Avx2,
    /// 512 bits, of hosts with the F, BW, DQ and VL parts of AVX-512 beside those.
    Avx512,
}

impl Vectors {
    /// All of them, the narrowest first.
    pub const ALL: [Vectors; 3] = [Vectors::Narrow, Vectors::Avx2, Vectors::Avx512];

    /// The widest that the host has code for.
    pub fn host() -> Vectors {
        match cfg!(target_os = "linux") {
            true => Vectors::of_processor(),
            false => Vectors::Narrow,
        }
    }

    /// The widest that the host's processor has, whatever its system.
    pub(crate) fn of_processor() -> Vectors {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let short = has!("avx2") && has!("fma") && has!("f16c") && has!("bmi2");
            let long = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            return match (short, long) {
                (true, true) => Vectors::Avx512,
                (true, false) => Vectors::Avx2,
                _ => Vectors::Narrow,
            };
        }
        #[allow(unreachable_code)]
        Vectors::Narrow
    }

    /// Of what was compiled for vectors of some widths, narrow ones first, what the host's processor can run, the widest first.
    pub(crate) fn runnable<T: Copy>(compiled: &[(Vectors, T)]) -> SmallVec<[T; 3]> {
        let most = Vectors::of_processor();
        let runs = compiled.iter().rev().filter(|(width, _)| *width <= most);
        runs.map(|&(_, made)| made).collect()
    }

    /// Bits of a vector.
    pub fn bits(self) -> u32 {
        match self {
            Vectors::Narrow => 128,
            Vectors::Avx2 => 256,
            Vectors::Avx512 => 512,
        }
    }

    /// Those of this many bits.
    pub fn of_bits(bits: u32) -> Option<Vectors> {
        Vectors::ALL.into_iter().find(|v| v.bits() == bits)
    }

    /// What Cranelift calls the features of x86-64 that code with these vectors may use.
    pub(crate) fn features(self) -> &'static [&'static str] {
        const ALL: [&str; 15] = [
            "has_sse3",
            "has_ssse3",
            "has_sse41",
            "has_sse42",
            "has_popcnt",
            "has_avx",
            "has_avx2",
            "has_fma",
            "has_bmi1",
            "has_bmi2",
            "has_lzcnt",
            "has_avx512f",
            "has_avx512bitalg",
            "has_avx512dq",
            "has_avx512vl",
        ];
        match self {
            Vectors::Narrow => &[],
            Vectors::Avx2 => &ALL[..11],
            Vectors::Avx512 => &ALL,
        }
    }

    /// Itself, where the host has it.
    ///
    /// # Errors
    /// [`Kind::Usage`] where it has not.
    pub fn checked(self) -> Result<Vectors, Diagnostic> {
        let host = Vectors::host();
        if self <= host {
            return Ok(self);
        }
        let m = format!(
            "vectors of {} bits were asked for, and code for this host has {} at most",
            self.bits(),
            host.bits()
        );
        Err(Diagnostic::new(At::default(), Kind::Usage, m))
    }
}

/// What made the code of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emitter {
    /// The x86 emitter, with vectors of this many bits.
    Wide(Vectors),
    /// Cranelift, with vectors of 128 bits at most; with the reason where wider ones were wanted.
    Cranelift(Option<Unsupported>),
}

impl Emitter {
    /// `wide512`, `wide256` or `cranelift`.
    pub fn name(&self) -> &'static str {
        match self {
            Emitter::Wide(Vectors::Avx512) => "wide512",
            Emitter::Wide(_) => "wide256",
            Emitter::Cranelift(_) => "cranelift",
        }
    }

    /// Why the x86 emitter does not support it, if it was asked.
    pub fn why(&self) -> Option<Unsupported> {
        match self {
            Emitter::Wide(_) => None,
            Emitter::Cranelift(why) => *why,
        }
    }
}

/// What the x86 emitter does not support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsupported {
    /// Places of updates are computed.
    Places,
    /// What a parameter reads is not at equal steps along the line.
    Read(usize),
    /// Where an output goes is not at equal steps along the line.
    Write(usize),
    /// Elements of this many bits are packed.
    Packed(u8),
    /// Packed arrays need not begin bytes together, or where blocks of a fold do.
    Apart,
    /// There is no instruction for this.
    Prim(Prim, DType),
    /// There is no instruction for this conversion.
    Convert(DType, DType),
    /// It would take too much of the stack.
    Frame,
    /// An array is walked in steps of 2 GiB or more.
    Steps,
    /// Values are named before they are computed.
    Order,
    /// There is no such emitter for the host.
    Host,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsupported::Places => f.write_str("it computes places of updates"),
            Unsupported::Read(k) => write!(f, "p{k} is not read in equal steps"),
            Unsupported::Write(k) => write!(f, "output {k} is not written in equal steps"),
            Unsupported::Packed(bits) => write!(f, "elements of {bits} bits are packed"),
            Unsupported::Apart => {
                f.write_str("packed arrays, or blocks of a fold, may not begin together")
            }
            Unsupported::Prim(p, d) => write!(f, "no vectors have {p:?} of {d}"),
            Unsupported::Convert(from, to) => write!(f, "no vectors convert {from} to {to}"),
            Unsupported::Frame => f.write_str("it has too many values"),
            Unsupported::Steps => f.write_str("it walks an array in steps of 2 GiB or more"),
            Unsupported::Host => f.write_str("there are no wider vectors on this host"),
            Unsupported::Order => f.write_str("values are named before they are computed"),
        }
    }
}
