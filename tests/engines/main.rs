//! What runs programs: the kernel evaluator, the CPU engine, and what is asked of every engine.

mod boundary;
#[path = "../common/mod.rs"]
mod common;
mod cpu;
mod equal_steps;
mod gradbench;
mod introspect;
mod kernels;
mod layouts;
mod loops;
mod opaque;
mod ranks;
mod recorded;
mod resident;
mod steps;
mod storage;
mod symbols;
