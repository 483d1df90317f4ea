//! The pages of the book, whose examples are run with those of the documentation. They are here, and not in the library, since its package ships no pages.
#![cfg(doctest)]

#[doc = include_str!("../README.md")]
struct ReadmePage;

#[doc = include_str!("../docs/README.md")]
struct FrontPage;

#[doc = include_str!("../docs/guide/first-gradient.md")]
struct FirstGradientPage;

#[doc = include_str!("../docs/guide/train.md")]
struct TrainPage;

#[doc = include_str!("../docs/guide/memory.md")]
struct MemoryPage;

#[doc = include_str!("../docs/guide/bits.md")]
struct BitsPage;

#[doc = include_str!("../docs/guide/loops.md")]
struct LoopsPage;

#[doc = include_str!("../docs/guide/jax.md")]
struct JaxPage;

#[doc = include_str!("../docs/guide/gpu.md")]
struct GpuPage;

#[doc = include_str!("../docs/guide/ranks.md")]
struct RanksPage;

#[doc = include_str!("../docs/guide/rule.md")]
struct RulePage;

#[doc = include_str!("../docs/guide/op.md")]
struct OpPage;

#[doc = include_str!("../docs/guide/coming-from.md")]
struct ComingFromPage;

#[doc = include_str!("../docs/library.md")]
struct LibraryPage;

#[doc = include_str!("../docs/import.md")]
struct ImportPage;

#[doc = include_str!("../derive/README.md")]
struct DerivePage;
