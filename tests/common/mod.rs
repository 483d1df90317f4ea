//! What several test programs share.
#![allow(dead_code)]

pub(crate) mod batch;
pub(crate) mod kernels;
pub(crate) mod models;
pub(crate) mod programs;
pub(crate) mod random;
pub(crate) mod schedules;

/// A number from the environment, for runs of other sizes than the default.
pub(crate) fn count_from_env(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}
