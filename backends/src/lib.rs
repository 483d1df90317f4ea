//! Engines. `reference` is plain, slow and obviously right: it defines what every other engine must
//! give, to the bit, in strict mode.

pub mod array;
mod bytes;
pub mod cpu;
pub mod functions;
pub mod gpu;
mod layout;
pub mod ptx;
pub mod reference;
mod truth;

pub use array::Array;
