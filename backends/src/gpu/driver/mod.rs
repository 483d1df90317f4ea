//! The driver.

pub(crate) mod call;
pub(crate) mod copy;
pub(crate) mod cublaslt;
pub(crate) mod cuda;
pub(crate) mod device;
pub(crate) mod engine;
pub(crate) mod executable;
pub(crate) mod graph;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod place;
pub(crate) mod prepare;
pub(crate) mod staging;
#[cfg(test)]
pub(crate) mod tests;
