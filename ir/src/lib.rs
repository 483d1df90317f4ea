//! The SSA tensor IR of adfuse: its types, the table of ops, functions, text, verifier and rewrites.
#![doc = ""]
#![doc = include_str!("../README.md")]
//!
//! ## Where to begin
//!
//! - [`Module`], [`Function`] and [`Builder`]: programs, and how they are built;
//! - [`text`]: reading and printing them; [`verify()`]: what holds of every program that is run;
//! - [`op`]: the table of ops, whose rows have meaning, types and derivatives; [`scalar`]: the programs of elements in them;
//! - [`rewrite`]: simplification, inlining, common subexpressions, stable forms;
//! - [`kernel`]: programs of kernels, which the planner makes and engines run;
//! - [`Diagnostic`]: every error, with a class, a place and often a hint.

pub mod affine;
mod arguments;
pub mod attrs;
pub mod builder;
mod captures;
pub mod checkpoint;
pub mod control;
pub mod diag;
pub mod dtype;
pub mod elements;
pub mod entity;
pub mod fp;
pub mod function;
pub mod index;
pub mod infer;
pub mod kernel;
pub mod literal;
pub mod module;
pub mod op;
pub mod rewrite;
pub mod scalar;
mod source_line;
pub mod text;
pub mod types;
pub mod verify;
mod words;

pub use arguments::check_arguments;
pub use attrs::{Attr, Attrs};
pub use builder::{Builder, Number, Operand};
pub use checkpoint::{CheckpointPath, CheckpointPolicy, CheckpointScope, ScopeKind};
pub use diag::{At, Diagnostic, Kind, Provenance, Span};
pub use dtype::{DType, DTypeSet};
pub use elements::Elements;
pub use entity::{Func, Inst, Phase, Region, Value};
pub use fp::Fp;
pub use function::{CustomRule, Function, NewInst, ValueDef};
pub use literal::Literal;
pub use module::Module;
pub use op::Op;
pub use source_line::SourceLine;
pub use types::{Dim, Shape, Symbol, TensorType};
pub use verify::verify;
