//! Prices of calls of user functions.

/// The price of a call of a user function.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallPrice {
    /// Operations.
    pub operations: u64,
    /// Bytes that it moves in addition to operands and result.
    pub bytes: u64,
    /// Bytes of memory that it needs beside operands and result ([`Call::scratch`](super::functions::Call::scratch)); they are planned as buffers are.
    pub scratch: u64,
}
