//! Reports about plans: where memory and time go, as data, as JSON and as a page with pictures.
#![doc = ""]
#![doc = include_str!("../README.md")]
//!
//! ## Where to begin
//!
//! [`Report::of`] collects everything from a plan and what is known of it; [`page`](page()) and [`svgs`] draw it. Nothing is
//! drawn that is not in the data.

mod collect;
mod data;
mod page;
pub mod sizes;
mod units;

pub use collect::{MeasurementError, ReportError, ReportSource};
pub use data::{
    Answer, Basis, BudgetRow, CandidateRow, ComparedFigure, Counterfactual, FigureUnit, LiveValue,
    LoopCheckpoints, LoopResidualRow, LoopSummary, MeasuredKernel, Measurement, MemoryTimeline,
    PlanStep, RecomputedValue, RepeatedLayer, Report, ResidualRow, Roof, ScheduleAction, ValueKind,
};
pub use page::{GalleryEntry, GallerySummary, gallery, page, svgs};
