//! Fast products of subnormal operands.
//!
//! Some processors execute every multiply-add with a subnormal operand in microcode: if one element in a hundred is
//! subnormal, a product takes forty times as long. The bits are defined, so nothing may be flushed. But `a * b` equals
//! `(a / 2^n) * (b * 2^n)`, and a fused multiply-add rounds after the sum. So with one operand scaled up and the other
//! one down, every sum keeps its bits if no element overflows or loses digits. The smallest and the largest magnitudes
//! of both operands tell whether that holds.
//!
//! The processor's flag for subnormal operands tells for free whether a product had any. If so, the next products of
//! the step inspect their operands, and copy and scale them if that helps.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::__cpuid;
use std::sync::atomic::{AtomicI32, Ordering};

/// Whether the host hands subnormal operands to microcode: processors of Intel do.
pub(super) fn slow_on_host() -> bool {
    // SAFETY: every processor of this architecture has the instruction.
    #[allow(unused_unsafe)]
    let id = unsafe { __cpuid(0) };
    (id.ebx, id.edx, id.ecx) == (0x756E_6547, 0x4965_6E69, 0x6C65_746E)
}

/// What to do about subnormals in the next products of a step. A positive count: inspect the operands of that many products
/// before they are multiplied. 0: watch the hardware's flag during the next product. A negative count: do neither for that
/// many products. It changes the speed of the step, and no bit.
#[derive(Default)]
pub(in super::super) struct SubnormalState(AtomicI32);

/// Products that are looked at after one that had subnormals.
const LOOK: i32 = 256;

/// The same after the flag was raised alone: the next products may have no subnormals.
const ALARM: i32 = 8;

/// Products that are neither looked at nor watched once none had any.
const REST: i32 = 32;

impl SubnormalState {
    /// Whether the next product is to be looked at.
    pub(super) fn expects(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// A product that was looked at had some, or had none.
    pub(super) fn note(&self, some: bool) {
        // Threads may come between the two, which changes a count and no more.
        let next = match (some, self.0.load(Ordering::Relaxed)) {
            (true, _) => LOOK,
            (false, ..=1) => -REST,
            (false, left) => left - 1,
        };
        self.0.store(next, Ordering::Relaxed);
    }

    /// Runs a product, and has the next ones looked at if the processor met a subnormal operand.
    pub(super) fn watch(&self, product: impl FnOnce()) {
        const FLAG: u32 = 1 << 1;
        let left = self.0.load(Ordering::Relaxed);
        if left < 0 {
            self.0.store(left + 1, Ordering::Relaxed);
            return product();
        }
        let mut state = 0u32;
        // SAFETY: only flags of what happened change, which no code relies on; the block may change them, as it
        // does not claim to keep flags.
        unsafe {
            asm!("stmxcsr [{0}]", "and dword ptr [{0}], {1}", "ldmxcsr [{0}]",
                in(reg) &mut state, const !FLAG as i32, options(nostack));
        }
        product();
        // SAFETY: it is written to.
        unsafe { asm!("stmxcsr [{0}]", in(reg) &mut state, options(nostack)) };
        if state & FLAG != 0 {
            self.0.store(ALARM, Ordering::Relaxed);
        }
    }
}

/// A float by its bits.
pub(super) trait FloatBits: Copy {
    /// Powers of two of the scale: more than the digits of the least subnormal.
    const SHIFT: u32;

    /// The factors 2^-SHIFT and 2^SHIFT.
    const SCALES: [Self; 2];

    /// The magnitude of 2^n; of the least normal number for the least n.
    fn power(n: i32) -> u64;

    /// The exponent of the least normal number, and one more than that of the greatest.
    const RANGE: [i32; 2];

    /// The magnitudes of these and of what has been looked at before.
    ///
    /// # Safety
    /// The host has AVX2.
    unsafe fn span(all: &[Self], span: MagnitudeRange) -> MagnitudeRange;

    /// Multiplies by a power of two, without a subnormal operand.
    ///
    /// # Safety
    /// The host has AVX2.
    unsafe fn scale(all: &mut [Self], by: Self);
}

/// Magnitudes of elements: the least above 0, less one, the greatest, and how many are subnormal.
#[derive(Clone, Copy)]
pub(super) struct MagnitudeRange {
    least: u64,
    most: u64,
    pub(super) subnormals: u64,
}

impl MagnitudeRange {
    /// Of nothing.
    pub(super) const NONE: MagnitudeRange =
        MagnitudeRange { least: u64::MAX, most: 0, subnormals: 0 };
}

macro_rules! float {
    ($t:ty, $bits:ty, $digits:literal, $bias:literal, $shift:literal) => {
        impl FloatBits for $t {
            const SHIFT: u32 = $shift;
            const SCALES: [$t; 2] = [
                <$t>::from_bits(($bias - $shift) << $digits),
                <$t>::from_bits(($bias + $shift) << $digits),
            ];
            const RANGE: [i32; 2] = [1 - $bias, $bias + 1];

            fn power(n: i32) -> u64 {
                ((n + $bias) as u64) << $digits
            }

            #[target_feature(enable = "avx2")]
            unsafe fn span(all: &[$t], span: MagnitudeRange) -> MagnitudeRange {
                let (mut least, mut most, mut subnormals): ($bits, $bits, $bits) =
                    (<$bits>::MAX, 0, 0);
                for x in all {
                    let x = x.to_bits() & (<$bits>::MAX >> 1);
                    // 0 becomes the greatest.
                    let less = x.wrapping_sub(1);
                    least = least.min(less);
                    most = most.max(x);
                    subnormals += <$bits>::from(less < (1 << $digits) - 1);
                }
                let least = if least == <$bits>::MAX { u64::MAX } else { u64::from(least) };
                MagnitudeRange {
                    least: span.least.min(least),
                    most: span.most.max(u64::from(most)),
                    subnormals: span.subnormals + u64::from(subnormals),
                }
            }

            #[target_feature(enable = "avx2")]
            unsafe fn scale(all: &mut [$t], by: $t) {
                const SIGN: $bits = !(<$bits>::MAX >> 1);
                const DIGITS: $bits = (1 << $digits) - 1;
                const ONE: $bits = $bias << $digits;
                // The least normal number, scaled: normal as long as the scale is above 1.
                let unit = <$t>::from_bits(1 << $digits) * by;
                for x in all {
                    let bits = x.to_bits();
                    let small = bits & !SIGN <= DIGITS;
                    // Digits behind the point of 1, which is then taken away: a subnormal over the least normal.
                    let digits = <$t>::from_bits(bits & DIGITS | ONE) - 1.0;
                    let subnormal = (digits * unit).to_bits() | bits & SIGN;
                    let normal = (<$t>::from_bits(if small { 0 } else { bits }) * by).to_bits();
                    *x = <$t>::from_bits(if small { subnormal } else { normal });
                }
            }
        }
    };
}

float!(f32, u32, 23, 127, 32);
float!(f64, u64, 52, 1023, 64);

/// Factors of two operands of these spans that leave every product what it is, and no element subnormal; `None` where
/// there are none, or none are needed.
pub(super) fn factors<T: FloatBits>(left: MagnitudeRange, right: MagnitudeRange) -> Option<[T; 2]> {
    let [low, high] = T::RANGE;
    let [down, up] = T::SCALES;
    let shift = T::SHIFT as i32;
    let fits = |small: MagnitudeRange, other: MagnitudeRange| {
        // Spans have one less than the least.
        let reaches = other.least == u64::MAX || other.least + 1 >= T::power(low + shift);
        reaches && small.most < T::power(high - shift - 1)
    };
    match (left.subnormals, right.subnormals) {
        (0, 1..) if fits(right, left) => Some([down, up]),
        (1.., 0) if fits(left, right) => Some([up, down]),
        _ => None,
    }
}

/// Inspecting and scaling the operands pays where more than one multiply-add in this many goes to microcode.
const RARE: u64 = 1200;

/// Whether subnormals slow a product of this size down: those of the right operand are in vectors, which go by every row,
/// and those of the left one are broadcast to all vectors of a row.
pub(super) fn matters<T>(
    [rows, cols, depth]: [usize; 3],
    left: MagnitudeRange,
    right: MagnitudeRange,
) -> bool {
    let lanes = (64 / size_of::<T>()) as u64;
    let [rows, cols, depth] = [rows, cols, depth].map(|n| n as u64);
    let vectors = cols.div_ceil(lanes);
    (right.subnormals * rows + left.subnormals * vectors) * RARE > rows * vectors * depth
}
