//! Buffers: types, sizes, constants, and layouts.

use super::Wrong;
use super::disjoint::reach;
use crate::diag::Kind;
use crate::dtype::DType;
use crate::kernel::buffer::{BufferData, Role, Space, Storage};

/// The most elements that a buffer with strides spans.
const MOST_SPAN: i128 = 1 << 46;

/// Checks a buffer's type, size, values and layout.
pub(super) fn sound(data: &BufferData) -> Result<(), Wrong> {
    let Some(ty) = data.ty() else {
        return Err(Wrong::new(Kind::Shape, "an extent is negative"));
    };
    if data.dtype == DType::Token {
        return Err(Wrong::new(Kind::DType, "a token has no buffer"));
    }
    let elements = ty.elements().filter(|_| ty.excess().is_none());
    let Some(elements) = elements else {
        return Err(Wrong::new(Kind::Limit, ty.excess().unwrap_or_default()));
    };
    stored(data)?;
    strided(data)?;
    if let Role::Constant(values) = &data.role {
        if values.len() as u64 != elements {
            return Err(Wrong::new(Kind::Shape, format!("{} values for {ty}", values.len())));
        }
        if let Some(v) = values.iter().find(|v| v.dtype() != data.dtype) {
            return Err(Wrong::new(Kind::DType, format!("value {v:?} in {ty}")));
        }
        if data.storage != Storage::Plain || data.strides.is_some() || data.space == Space::Host {
            let m = "a constant is neither packed, nor strided, nor in host memory";
            return Err(Wrong::new(Kind::Unsupported, m));
        }
    }
    Ok(())
}

/// Checks that the type can be kept so.
fn stored(data: &BufferData) -> Result<(), Wrong> {
    let fits = match data.storage {
        Storage::Plain => return Ok(()),
        Storage::Packed(1) => data.dtype == DType::Bool,
        Storage::Packed(2 | 4 | 8) => data.dtype.is_int(),
        Storage::Packed(bits) => {
            let m = format!("elements pack in 1, 2, 4 or 8 bits, not in {bits}");
            return Err(Wrong::new(Kind::DType, m));
        }
    };
    if !fits {
        let m = format!("{} does not pack so: one bit is for bool, more for integers", data.dtype);
        return Err(Wrong::new(Kind::DType, m));
    }
    match data.strides {
        None => Ok(()),
        Some(_) => Err(Wrong::new(Kind::Unsupported, "a packed buffer has no strides")),
    }
}

/// Checks that strides give every element a place of its own.
fn strided(data: &BufferData) -> Result<(), Wrong> {
    let Some(strides) = &data.strides else { return Ok(()) };
    if strides.len() != data.dims.len() {
        let m = format!("{} strides for {} axes", strides.len(), data.dims.len());
        return Err(Wrong::new(Kind::Arity, m));
    }
    if strides.iter().any(|&s| s <= 0) {
        return Err(Wrong::new(Kind::Shape, "a stride is not above 0"));
    }
    // Of an empty buffer too, so that whoever sizes it need not look.
    let axes = data.dims.iter().zip(strides).map(|(&n, &s)| (i128::from(s), i128::from(n)));
    let far = || axes.clone().map(|(s, n)| s * (n - 1).max(0)).sum::<i128>() >= MOST_SPAN;
    match reach(axes.clone()) {
        _ if far() => Err(Wrong::new(Kind::Limit, "the strides span more than 2^46 elements")),
        Some(_) => Ok(()),
        None => Err(Wrong::new(Kind::Overlap, "two elements may be in the same place")),
    }
}
