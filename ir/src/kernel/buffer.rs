//! Buffers: the tensors in memory that the steps of a program read and write.

use crate::dtype::DType;
use crate::index::IndexExpr;
use crate::literal::Literal;
use crate::types::TensorType;
use cranelift_entity::entity_impl;
use smallvec::{SmallVec, smallvec};
use std::borrow::Borrow;

/// A buffer of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer(u32);
entity_impl!(Buffer, "b");

/// Known extents, outermost first.
pub type Extents = SmallVec<[i64; 4]>;

/// Points of a loop nest of these extents, or elements of an array; the greatest number where there are more.
pub fn volume(extents: impl IntoIterator<Item = impl Borrow<i64>>) -> i64 {
    extents.into_iter().fold(1, |all, n| all.saturating_mul(*n.borrow()))
}

/// What a buffer is to its program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Given by the caller; never written.
    Input,
    /// Written by one step and handed to the caller.
    Output,
    /// Written by one step, read by later ones.
    Temp,
    /// Values written in the program, row-major; never written again.
    Constant(Vec<Literal>),
}

/// How elements are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Storage {
    /// Each in whole bytes.
    #[default]
    Plain,
    /// In the low 1, 2, 4 or 8 bits, packed in row-major order into little-endian words of 32. A
    /// `bool` takes one bit; integers are read back without a sign.
    Packed(u8),
}

/// The memory a buffer is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Space {
    /// The engine's own.
    #[default]
    Device,
    /// The caller's; only transfers read and write it.
    Host,
}

/// A tensor in memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BufferData {
    /// Its name, without `%`; no other buffer has it.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub dims: Extents,
    /// What it is to the program.
    pub role: Role,
    /// How elements are kept.
    pub storage: Storage,
    /// Steps in elements along each axis; row-major without gaps where there are none.
    pub strides: Option<Extents>,
    /// The memory it is in.
    pub space: Space,
    /// Of an input: whether the caller gives it up, so that its memory may be written once nothing reads
    /// it any more.
    pub donated: bool,
}

impl BufferData {
    /// A dense row-major buffer in the engine's memory.
    pub fn new(name: impl Into<String>, dtype: DType, dims: Extents, role: Role) -> BufferData {
        BufferData {
            name: name.into(),
            dtype,
            dims,
            role,
            storage: Storage::Plain,
            strides: None,
            space: Space::Device,
            donated: false,
        }
    }

    /// Bytes it takes in memory. Of a verified program's buffer this does not overflow.
    pub fn bytes(&self) -> u64 {
        if self.dims.contains(&0) {
            return 0;
        }
        let count = |n: &i64| n.unsigned_abs();
        let elements = match &self.strides {
            None => self.dims.iter().map(count).product::<u64>(),
            Some(strides) => {
                let reach = |(n, s)| count(n).saturating_sub(1) * count(s);
                self.dims.iter().zip(strides).map(reach).sum::<u64>() + 1
            }
        };
        match self.storage {
            Storage::Plain => elements * self.dtype.bytes(),
            Storage::Packed(bits) => (elements * u64::from(bits)).div_ceil(32) * 4,
        }
    }

    /// How many elements of memory apart neighbours along each of this many axes are, at an index that is
    /// affine in their coordinates; `None` where it is not.
    pub fn steps(&self, index: &[IndexExpr], axes: usize) -> Option<SmallVec<[i64; 8]>> {
        let mut steps: SmallVec<[i64; 8]> = smallvec![0; axes];
        let mut dense = 1i64;
        for (k, e) in index.iter().enumerate().rev() {
            let stride = self.strides.as_ref().map_or(Some(dense), |s| s.get(k).copied())?;
            for (step, factor) in steps.iter_mut().zip(e.factors(axes)?) {
                let factor = i64::try_from(factor).ok()?;
                *step = step.checked_add(factor.checked_mul(stride)?)?;
            }
            dense = dense.checked_mul((*self.dims.get(k)?).max(1))?;
        }
        Some(steps)
    }

    /// The type of the tensor it holds; `None` when an extent is negative.
    pub fn ty(&self) -> Option<TensorType> {
        let dims: Option<SmallVec<[u64; 4]>> =
            self.dims.iter().map(|&n| u64::try_from(n).ok()).collect();
        Some(TensorType::of(self.dtype, &dims?))
    }

    /// Its name and type, where it has one.
    pub fn named_type(&self) -> Option<(String, TensorType)> {
        Some((self.name.clone(), self.ty()?))
    }
}

#[cfg(test)]
mod tests {
    use super::volume;

    #[test]
    fn volumes_saturate() {
        assert_eq!(volume([0i64; 0]), 1);
        assert_eq!(volume(&[2, 3, 4][1..]), 12);
        assert_eq!(volume([1i64 << 40, 1 << 40]), i64::MAX);
        assert_eq!(volume([1i64 << 40, 1 << 40, 0]), 0);
    }
}
