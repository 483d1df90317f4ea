//! Code generation before instruction selection: a sweep becomes a loop nest, and that a loop program.
//!
//! [`loop_nest`] builds the nest: axes that are merged, affine forms, the sources of each operand. [`access_ranges`] finds
//! how groups reach each of them. [`lower`] makes the loop program ([`loop_program`]), which emitters translate; what it
//! decides is in files of their names: [`split_at_guards`], [`predicate`], [`vectorize`], [`scalarize`], [`interleave`],
//! [`sink_folds`], [`nontemporal`], [`invariant_motion`], [`fission`]. [`machine_code`](super::machine_code) chooses the emitter.

pub(crate) mod access_ranges;
pub(crate) mod affine_form;
pub(crate) mod computed_places;
pub(crate) mod constants;
pub(crate) mod fission;
pub(crate) mod fold;
pub(crate) mod interleave;
pub(crate) mod invariant_motion;
pub(crate) mod listing;
pub(crate) mod loop_ir;
pub(crate) mod loop_nest;
pub(crate) mod loop_order;
pub(crate) mod loop_parser;
pub(crate) mod loop_printer;
pub(crate) mod loop_program;
pub(crate) mod loop_verify;
pub(crate) mod lower;
pub(crate) mod nontemporal;
pub(crate) mod predicate;
pub(crate) mod program_builder;
pub(crate) mod reciprocal;
pub(crate) mod scalar_form;
pub(crate) mod scalar_loop;
pub(crate) mod scalarize;
pub(crate) mod short_axes;
pub(crate) mod shuffle;
pub(crate) mod sink_folds;
pub(crate) mod split_at_guards;
pub(crate) mod split_at_quotients;
pub(crate) mod spread_sources;
pub(crate) mod supports;
pub(crate) mod sweep_form;
pub(crate) mod transposed_tiles;
pub(crate) mod unused;
pub(crate) mod vector_width;
pub(crate) mod vectorize;
