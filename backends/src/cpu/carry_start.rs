//! What values that a loop carries begin with.
#![allow(unsafe_code)]

use adfuse_ir::DType;
use adfuse_ir::kernel::{Operand, Storage};
use cranelift_entity::EntityRef;

/// What a carry begins with.
pub(super) enum CarryStart {
    Buffer(usize),
    /// The bits of a value, again and again, each in this many bytes.
    Fill(u64, usize),
}

impl CarryStart {
    /// What elements of a type that are kept so begin with.
    pub(super) fn of(from: Operand, (dtype, storage): (DType, Storage)) -> CarryStart {
        match (from, storage) {
            (Operand::Buffer(b), _) => CarryStart::Buffer(b.index()),
            (Operand::Literal(l), Storage::Plain) => {
                CarryStart::Fill(l.bits(), dtype.bytes() as usize)
            }
            // The low bits of the value in all places of a word.
            (Operand::Literal(l), Storage::Packed(width)) => {
                let low = l.bits() & !(u64::MAX << width.min(63));
                let word = (0..32).step_by(usize::from(width.max(1))).fold(0, |w, k| w | low << k);
                CarryStart::Fill(word, 4)
            }
        }
    }
}

/// Fills bytes with a value, which has `width` bytes each time.
pub(super) fn fill(at: *mut u8, bytes: usize, bits: u64, width: usize) {
    /// # Safety
    /// There are this many values at `at`.
    unsafe fn all<T: Copy>(at: *mut u8, count: usize, value: T) {
        for k in 0..count {
            // SAFETY: as the caller promises.
            unsafe { at.cast::<T>().wrapping_add(k).write_unaligned(value) }
        }
    }
    // SAFETY: there are `bytes` bytes at `at`, a multiple of the width.
    unsafe {
        match width {
            8 => all(at, bytes / 8, bits),
            4 => all(at, bytes / 4, bits as u32),
            2 => all(at, bytes / 2, bits as u16),
            _ => all(at, bytes, bits as u8),
        }
    }
}
