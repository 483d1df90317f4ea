//! Ops with regions: one file for what each transformation does with branches and loops.
//!
//! Forward mode ([`jvp`]) adds a tangent for each active carry of a loop and each active result of a branch. [`partial`] splits a function into what
//! is known and what is tangent, region by region. [`transpose`] turns a loop around: the way back needs what each
//! step was entered with, which the op `adjoint` keeps or computes again. Batches are in `vmap`.

mod jvp;
mod partial;
mod transpose;
mod turned;

pub(crate) use partial::PartialEval;
