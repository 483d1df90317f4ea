//! Optimizers against loops over numbers.
