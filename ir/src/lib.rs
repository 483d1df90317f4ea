//! The SSA tensor IR of adfuse: element types, shapes, the table of ops, functions with nested
//! regions, their text, their verifier and the rewrites that keep meaning.
//!
//! An op is defined once, as a row of [`op::Op`]'s table; builder, parser, verifier, derivative rules
//! and engines read what they need from it.

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
