//! Tensors where an engine keeps them: in host memory, or in the memory of a device.
//!
//! A [`Resident`] is a handle. Clones share the tensor and take constant time, and no clone sees what a run writes: a run
//! takes its arguments by value, writes to a tensor in place only where the handle is the only one, and copies the tensor
//! first otherwise. So a clone lends a tensor and a move donates it.

use super::array::Array;
use adfuse_ir::{Diagnostic, TensorType};
use std::any::Any;
use std::fmt;

/// A tensor in the memory of a device.
pub trait DeviceTensor: Any + fmt::Debug + Send {
    /// Element type and extents.
    fn ty(&self) -> TensorType;

    /// Another handle of the same memory.
    fn share(&self) -> Box<dyn DeviceTensor>;

    /// A copy in host memory, once all work that makes the tensor is done.
    ///
    /// # Errors
    /// What went wrong in that work; [`Kind::Limit`](adfuse_ir::Kind::Limit) when there is no memory for the copy.
    fn download(&self) -> Result<Array, Diagnostic>;

    /// Itself, for the engine that knows its type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// A tensor where an engine keeps it.
pub struct Resident(ResidentMemory);

/// Which memory that is.
enum ResidentMemory {
    Host(Array),
    Device(Box<dyn DeviceTensor>),
}

impl Resident {
    /// A tensor in the memory of a device.
    pub fn on_device(tensor: impl DeviceTensor) -> Resident {
        Resident(ResidentMemory::Device(Box::new(tensor)))
    }

    /// Element type and extents, known without a copy from the device.
    pub fn ty(&self) -> TensorType {
        match &self.0 {
            ResidentMemory::Host(array) => array.ty(),
            ResidentMemory::Device(tensor) => tensor.ty(),
        }
    }

    /// Whether it is in the memory of a device.
    pub fn is_on_device(&self) -> bool {
        matches!(self.0, ResidentMemory::Device(_))
    }

    /// The tensor as an array. One in host memory is shared, not copied; one on a device is copied once all work that
    /// makes it is done.
    ///
    /// # Errors
    /// What went wrong in that work; [`Kind::Limit`](adfuse_ir::Kind::Limit) when there is no memory for a copy.
    pub fn fetch(&self) -> Result<Array, Diagnostic> {
        match &self.0 {
            ResidentMemory::Host(array) => Ok(array.clone()),
            ResidentMemory::Device(tensor) => tensor.download(),
        }
    }

    /// As [`Resident::fetch`], and gives the handle up: if it is the only one of a tensor in host memory, the array has
    /// that memory alone.
    ///
    /// # Errors
    /// As there.
    pub fn into_array(self) -> Result<Array, Diagnostic> {
        match self.0 {
            ResidentMemory::Host(array) => Ok(array),
            ResidentMemory::Device(tensor) => tensor.download(),
        }
    }

    /// The tensor of an engine's own type, or the handle where it is of another.
    ///
    /// # Errors
    /// The handle, where the tensor is in host memory or on a device of another engine.
    pub fn into_device<T: DeviceTensor>(self) -> Result<T, Resident> {
        match self.0 {
            ResidentMemory::Device(tensor) if (&*tensor as &dyn Any).is::<T>() => {
                match tensor.into_any().downcast::<T>() {
                    Ok(tensor) => Ok(*tensor),
                    Err(_) => unreachable!("its type has been looked at"),
                }
            }
            other => Err(Resident(other)),
        }
    }
}

impl Clone for Resident {
    fn clone(&self) -> Resident {
        Resident(match &self.0 {
            ResidentMemory::Host(array) => ResidentMemory::Host(array.clone()),
            ResidentMemory::Device(tensor) => ResidentMemory::Device(tensor.share()),
        })
    }
}

impl From<Array> for Resident {
    fn from(array: Array) -> Resident {
        Resident(ResidentMemory::Host(array))
    }
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ResidentMemory::Host(array) => write!(f, "{} in host memory", array.ty()),
            ResidentMemory::Device(tensor) => tensor.fmt(f),
        }
    }
}
