//! The kernel IR: a program as engines see it, a list of steps over buffers.
//!
//! A [`Kernel`] is a parallel domain and, inside it, stages: loads through quasi-affine index maps, a
//! scalar program, and stores, folds or scans. Beside kernels there are contractions, attention,
//! scatters, functions of libraries, copies between memories and effects. [`verify`] proves every access in
//! bounds and every write disjoint from the maps alone, so that what runs a [`Verified`] program needs
//! no check of its own. [`in_place`] says which buffers may be written over ones that die. [`EqualSteps`] says which steps
//! are equal but for the buffers that they name. [`text`] is its text form; [`interchange`], [`split`] and [`vectorize`] change
//! how a kernel is walked.

mod batch_columns;
mod block;
mod buffer;
mod checkpoints;
mod coordinates;
mod donor;
mod equal_steps;
pub mod facts;
mod in_place;
mod loops;
mod product_times;
mod program;
mod quotients;
mod schedule;
mod scratch;
mod spaced;
mod stage;
pub mod text;
mod unroll;
mod unroll_steps;
mod verified;
mod verify;
mod visit;

pub use block::{
    Back, Block, BlockInput, Branch, Carry, Loop, LoopTrips, MAX_NESTING, MAX_TRIPS, SLOT,
};
pub use buffer::{Buffer, BufferData, Extents, Role, Space, Storage, volume};
pub use checkpoints::{Reversal, ReversalAction, forward_steps};
pub use donor::{DonorSlice, SLICE_ALIGN, is_donor, misplaced};
pub use equal_steps::{EqualSteps, MentionedBuffers, StepForm};
pub use in_place::{InPlace, Lives, in_place, lives, lives_of};
pub use loops::loops;
pub use product_times::{
    ProductTimes, ProductWay, UnknownWay, WarpgroupWay, WayTimes, rows_of_form,
};
pub use program::{
    Argsort, Attend, Bundle, Contract, DebugPrint, Exchange, ExchangeKind, Feed, Library, Member,
    Program, Scatter, Step, Transfer,
};
pub use quotients::{Divisors, parts_at_quotients};
pub use schedule::{interchange, split, vectorize};
pub use spaced::{SpacedSteps, spaced_lives, spaced_until};
pub use stage::{
    Kernel, Operand, Order, Param, Piece, Row, Run, Schedule, Sink, Stage, Tile, TileData,
    strict_runs,
};
pub use unroll::{is_small_line, unrolled};
pub use unroll_steps::several_steps;
pub use verified::Verified;
pub use verify::{verify, verify_steps};
