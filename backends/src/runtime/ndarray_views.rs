//! Arrays of the crate `ndarray`: views of an [`Array`] without a copy, and conversions that take memory over where the
//! layout is the standard one.

use super::array::Array;
use super::element::Element;
use adfuse_ir::{At, Diagnostic, Kind};
use ndarray::{ArrayD, ArrayViewD, Dimension, IxDyn};

impl Array {
    /// A view of the elements. Nothing is copied.
    ///
    /// # Errors
    /// [`Kind::DType`] when they are of another type; [`Kind::Limit`] for extents that `ndarray` does not take.
    ///
    /// ```
    /// use adfuse_backends::Array;
    /// let x = Array::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(x.ndarray::<f32>()?[[1, 0]], 3.0);
    /// # Ok::<(), adfuse_ir::Diagnostic>(())
    /// ```
    pub fn ndarray<E: Element>(&self) -> Result<ArrayViewD<'_, E>, Diagnostic> {
        ArrayViewD::from_shape(extents(self.dims()), self.as_slice()?).map_err(refused)
    }

    /// The elements as an array of `ndarray`, copied as by [`Array::into_vec`].
    ///
    /// # Errors
    /// As [`Array::ndarray`].
    pub fn into_ndarray<E: Element>(self) -> Result<ArrayD<E>, Diagnostic> {
        let shape = extents(self.dims());
        ArrayD::from_shape_vec(shape, self.into_vec()?).map_err(refused)
    }

    /// An array of the elements of one of `ndarray`. Its memory is taken where it has the standard layout, row-major
    /// and without gaps; otherwise the elements are copied.
    ///
    /// # Errors
    /// As [`Array::from_vec`].
    pub fn from_ndarray<E: Element, D: Dimension>(
        array: ndarray::Array<E, D>,
    ) -> Result<Array, Diagnostic> {
        let dims: Vec<u64> = array.shape().iter().map(|&n| n as u64).collect();
        if !array.is_standard_layout() {
            return Array::from_vec(array.iter().copied().collect(), dims);
        }
        let n = array.len();
        let (mut elements, offset) = array.into_raw_vec_and_offset();
        // Slices of an owned array leave elements before and after.
        elements.truncate(offset.unwrap_or_default() + n);
        elements.drain(..offset.unwrap_or_default());
        Array::from_vec(elements, dims)
    }
}

fn extents(dims: &[u64]) -> IxDyn {
    IxDyn(&dims.iter().map(|&n| n as usize).collect::<Vec<_>>())
}

fn refused(e: ndarray::ShapeError) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Limit, format!("an array of `ndarray`: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_layouts_are_not_copied() {
        let made =
            ndarray::Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (i * 12 + j * 4 + k) as f32);
        let at = made.as_ptr();
        let x = Array::from_ndarray(made.clone()).expect("fits");
        let same = Array::from_ndarray(made.clone().into_dyn()).expect("fits");
        assert_eq!(x, same);
        let x = Array::from_ndarray(made).expect("fits");
        assert_eq!(x.bytes().as_ptr(), at.cast());
        assert_eq!(x.dims(), [2, 3, 4]);
        assert_eq!(x.ndarray::<f32>().expect("f32").as_ptr(), at);
        let back = x.into_ndarray::<f32>().expect("f32");
        assert_eq!(back.as_ptr(), at);
        assert_eq!(back[[1, 2, 3]], 23.0);
    }

    #[test]
    fn other_layouts_have_their_elements_in_order() {
        let made = ndarray::Array2::from_shape_fn((3, 4), |(i, j)| (i * 4 + j) as i64);
        let turned = Array::from_ndarray(made.clone().reversed_axes()).expect("fits");
        assert_eq!(turned.as_slice::<i64>().expect("i64")[..4], [0, 4, 8, 1]);
        let part = made.clone().slice_move(ndarray::s![1..3, ..]);
        let part = Array::from_ndarray(part).expect("fits");
        assert_eq!(part.as_slice::<i64>().expect("i64"), [4, 5, 6, 7, 8, 9, 10, 11]);
        let upside = made.slice_move(ndarray::s![..;-1, ..]);
        let upside = Array::from_ndarray(upside).expect("fits");
        assert_eq!(upside.as_slice::<i64>().expect("i64")[..5], [8, 9, 10, 11, 4]);
        let scalar = Array::from_ndarray(ndarray::arr0(true)).expect("fits");
        assert!(scalar.item::<bool>().expect("one"));
        let empty = Array::from_ndarray(ndarray::Array2::<f32>::zeros((0, 3))).expect("fits");
        assert_eq!((empty.dims(), empty.len()), (&[0, 3][..], 0));
    }
}
