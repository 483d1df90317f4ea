//! What several test programs share.
#![allow(dead_code)]

pub(crate) mod attentions;
pub(crate) mod batch;
pub(crate) mod control;
pub(crate) mod convolutions;
pub(crate) mod effects;
pub(crate) mod kernels;
pub(crate) mod layers;
pub(crate) mod loops;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod orders;
pub(crate) mod parallel;
pub(crate) mod products;
pub(crate) mod programs;
pub(crate) mod random;
pub(crate) mod ranks;
pub(crate) mod schedules;
pub(crate) mod user_kernels;

/// The folder of the sources: where they were built, or where the tests run on another machine.
pub(crate) fn root() -> &'static std::path::Path {
    let built = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    if built.join("tests").is_dir() { built } else { std::path::Path::new(".") }
}

/// Whether near-duplicates run too, as `scripts/thorough` asks; else some of them do, always the same.
pub(crate) fn thorough() -> bool {
    std::env::var_os("ADFUSE_THOROUGH").is_some()
}

/// A number from the environment, for runs of other sizes than the default.
pub(crate) fn count_from_env(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}
