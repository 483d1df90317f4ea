//! Arrays as numbers in Rust: from vectors and to vectors without a copy, slices, scalars, and rows.

use super::array::{Array, counted};
use super::bytes::Bytes;
use super::element::{Element, canonical_nans};
use adfuse_ir::{At, DType, Diagnostic, Kind, TensorType};
use std::ops::Range;
use std::sync::Arc;

impl Array {
    /// An array in the memory of a vector, which is not copied; NaNs in it become canonical.
    ///
    /// # Errors
    /// [`Kind::Shape`] when the number of elements is not that of the extents; [`Kind::Limit`] for extents that no
    /// tensor may have.
    ///
    /// ```
    /// use adfuse_backends::Array;
    /// let x = Array::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
    /// assert_eq!(x.dims(), [2, 3]);
    /// assert_eq!(x.as_slice::<f32>()?[4], 5.0);
    /// # Ok::<(), adfuse_ir::Diagnostic>(())
    /// ```
    pub fn from_vec<E: Element>(
        values: Vec<E>,
        dims: impl AsRef<[u64]>,
    ) -> Result<Array, Diagnostic> {
        let dims = dims.as_ref();
        fits::<E>(dims, values.len())?;
        Ok(made(values, dims))
    }

    /// An array of copied elements.
    ///
    /// # Errors
    /// As [`Array::from_vec`]; and [`Kind::Limit`] when there is no memory for the copy.
    pub fn from_slice<E: Element>(
        values: &[E],
        dims: impl AsRef<[u64]>,
    ) -> Result<Array, Diagnostic> {
        let dims = dims.as_ref();
        fits::<E>(dims, values.len())?;
        let mut bytes = Bytes::copied(size_of::<E>(), bytemuck::cast_slice(values))?;
        canonical_nans(E::DTYPE, &mut bytes);
        Ok(Array::from_bytes(E::DTYPE, dims, bytes))
    }

    /// The elements, row-major. Nothing is copied.
    ///
    /// # Errors
    /// [`Kind::DType`] when they are of another type.
    pub fn as_slice<E: Element>(&self) -> Result<&[E], Diagnostic> {
        self.holds::<E>()?;
        if self.is_empty() {
            return Ok(&[]);
        }
        let misfit = |e| self.wrong(Kind::Internal, format!("the memory of an array: {e}"));
        bytemuck::checked::try_cast_slice(self.bytes()).map_err(misfit)
    }

    /// A copy of the elements, row-major.
    ///
    /// # Errors
    /// As [`Array::as_slice`].
    pub fn to_vec<E: Element>(&self) -> Result<Vec<E>, Diagnostic> {
        Ok(self.as_slice()?.to_vec())
    }

    /// The elements, row-major, in the memory of the array. They are copied where clones share that memory, or where it
    /// belongs to the executable whose result the array is.
    ///
    /// # Errors
    /// As [`Array::as_slice`].
    pub fn into_vec<E: Element>(self) -> Result<Vec<E>, Diagnostic> {
        self.holds::<E>()?;
        match Arc::try_unwrap(self.into_shared()) {
            Ok(bytes) => Ok(E::unpack(bytes)),
            Err(shared) if shared.is_empty() => Ok(Vec::new()),
            Err(shared) => {
                let bytes = Bytes::copied(size_of::<E>(), &shared)?;
                Ok(E::unpack(bytes))
            }
        }
    }

    /// The only element.
    ///
    /// # Errors
    /// [`Kind::DType`] when it is of another type; [`Kind::Shape`] when there is not exactly one.
    ///
    /// ```
    /// use adfuse_backends::Array;
    /// assert_eq!(Array::from(2.5f32).item::<f32>()?, 2.5);
    /// # Ok::<(), adfuse_ir::Diagnostic>(())
    /// ```
    pub fn item<E: Element>(&self) -> Result<E, Diagnostic> {
        match self.as_slice()? {
            [one] => Ok(*one),
            all => {
                let m = format!("{} has {} elements, not one", self.ty(), all.len());
                Err(self.wrong(Kind::Shape, m))
            }
        }
    }

    /// Has the elements written. They are copied first if clones share them; NaNs become canonical afterwards.
    ///
    /// # Errors
    /// As [`Array::as_slice`]; and [`Kind::Limit`] when there is no memory for a copy.
    ///
    /// ```
    /// use adfuse_backends::Array;
    /// let old = Array::from([1.0f32, 2.0]);
    /// let mut new = old.clone();
    /// new.update::<f32>(|all| all[0] = 7.0)?;
    /// assert_eq!((old.to_f64s(), new.to_f64s()), (vec![1.0, 2.0], vec![7.0, 2.0]));
    /// # Ok::<(), adfuse_ir::Diagnostic>(())
    /// ```
    pub fn update<E: Element>(&mut self, write: impl FnOnce(&mut [E])) -> Result<(), Diagnostic> {
        self.holds::<E>()?;
        if self.is_empty() {
            write(&mut []);
            return Ok(());
        }
        let misfit = |e| {
            let m = format!("the memory of an array: {e}");
            Diagnostic::new(At::default(), Kind::Internal, m)
        };
        let bytes = self.bytes_mut()?;
        let written = CanonicalAfter { dtype: E::DTYPE, bytes };
        write(bytemuck::checked::try_cast_slice_mut(written.bytes).map_err(misfit)?);
        Ok(())
    }

    /// The same elements under other extents. Nothing is copied.
    ///
    /// # Errors
    /// [`Kind::Shape`] when these are not as many; [`Kind::Limit`] for extents that no tensor may have.
    pub fn reshape(self, dims: impl AsRef<[u64]>) -> Result<Array, Diagnostic> {
        let (dtype, dims) = (self.dtype(), dims.as_ref());
        counted(dtype, dims, self.len())?;
        limited(&TensorType::of(dtype, dims))?;
        Ok(Array::from_shared(dtype, dims, self.into_shared()))
    }

    /// A copy of these positions of the first axis.
    ///
    /// # Errors
    /// [`Kind::Shape`] for a scalar, and for positions that the axis does not have; [`Kind::Limit`] when there is no
    /// memory for the copy.
    pub fn rows(&self, range: Range<u64>) -> Result<Array, Diagnostic> {
        let (extent, row) = self.row_bytes()?;
        if range.start > range.end || range.end > extent {
            let m = format!("rows {} to {} of {}", range.start, range.end, self.ty());
            return Err(self.wrong(Kind::Shape, m));
        }
        let part = &self.bytes()[range.start as usize * row..range.end as usize * row];
        let bytes = Bytes::copied(self.dtype().bytes() as usize, part)?;
        Ok(Array::from_bytes(self.dtype(), &self.dims_of(range.end - range.start), bytes))
    }

    /// The rows at these positions of the first axis, in this order.
    ///
    /// # Errors
    /// As [`Array::rows`].
    ///
    /// ```
    /// use adfuse_backends::Array;
    /// let x = Array::from_vec(vec![1, 2, 3, 4, 5, 6], [3, 2])?;
    /// assert_eq!(x.gather_rows(&[2, 0])?.as_slice::<i32>()?, [5, 6, 1, 2]);
    /// # Ok::<(), adfuse_ir::Diagnostic>(())
    /// ```
    pub fn gather_rows(&self, positions: &[u64]) -> Result<Array, Diagnostic> {
        let (extent, row) = self.row_bytes()?;
        if let Some(at) = positions.iter().find(|&&at| at >= extent) {
            return Err(self.wrong(Kind::Shape, format!("row {at} of {}", self.ty())));
        }
        let size = (positions.len() as u64).saturating_mul(row as u64);
        let mut bytes = Bytes::zeroed(self.dtype().bytes() as usize, size)?;
        if row > 0 {
            let from = self.bytes();
            for (to, &at) in bytes.chunks_exact_mut(row).zip(positions) {
                to.copy_from_slice(&from[at as usize * row..][..row]);
            }
        }
        Ok(Array::from_bytes(self.dtype(), &self.dims_of(positions.len() as u64), bytes))
    }

    /// The extent of the first axis, and the bytes of a row.
    fn row_bytes(&self) -> Result<(u64, usize), Diagnostic> {
        let no_axis = || self.wrong(Kind::Shape, format!("{} has no rows", self.ty()));
        let extent = *self.dims().first().ok_or_else(no_axis)?;
        let row = self.bytes().len() as u64 / extent.max(1);
        Ok((extent, row as usize))
    }

    /// Its extents with another number of rows.
    fn dims_of(&self, rows: u64) -> Vec<u64> {
        std::iter::once(rows).chain(self.dims().iter().skip(1).copied()).collect()
    }

    fn holds<E: Element>(&self) -> Result<(), Diagnostic> {
        match self.dtype() == E::DTYPE {
            true => Ok(()),
            false => {
                let m = format!("the elements of {} are not of type {}", self.ty(), E::DTYPE);
                Err(self.wrong(Kind::DType, m))
            }
        }
    }

    fn wrong(&self, kind: Kind, m: String) -> Diagnostic {
        Diagnostic::new(At::default(), kind, m)
    }
}

/// Makes NaNs canonical when it is dropped, also where writing panics.
struct CanonicalAfter<'a> {
    dtype: DType,
    bytes: &'a mut [u8],
}

impl Drop for CanonicalAfter<'_> {
    fn drop(&mut self) {
        canonical_nans(self.dtype, self.bytes);
    }
}

/// Refuses another number of elements than the extents have, and extents that no tensor may have.
fn fits<E: Element>(dims: &[u64], n: usize) -> Result<(), Diagnostic> {
    counted(E::DTYPE, dims, n)?;
    limited(&TensorType::of(E::DTYPE, dims))
}

fn limited(ty: &TensorType) -> Result<(), Diagnostic> {
    match ty.excess() {
        None => Ok(()),
        Some(why) => Err(Diagnostic::new(At::default(), Kind::Limit, why)),
    }
}

/// An array of as many elements as its extents have.
fn made<E: Element>(values: Vec<E>, dims: &[u64]) -> Array {
    let mut bytes = E::pack(values);
    canonical_nans(E::DTYPE, &mut bytes);
    Array::from_bytes(E::DTYPE, dims, bytes)
}

macro_rules! conversions {
    ($($t:ty)*) => {$(
        impl From<$t> for Array {
            /// A scalar.
            fn from(value: $t) -> Array {
                made(vec![value], &[])
            }
        }

        impl From<Vec<$t>> for Array {
            /// An array of one axis, in the memory of the vector.
            fn from(values: Vec<$t>) -> Array {
                let n = values.len() as u64;
                made(values, &[n])
            }
        }

        impl From<&[$t]> for Array {
            /// An array of one axis.
            fn from(values: &[$t]) -> Array {
                Array::from(values.to_vec())
            }
        }

        impl<const N: usize> From<[$t; N]> for Array {
            /// An array of one axis.
            fn from(values: [$t; N]) -> Array {
                Array::from(values.to_vec())
            }
        }
    )*};
}

conversions!(f64 f32 half::bf16 half::f16 i64 i32 u32 i8 u8 bool);
