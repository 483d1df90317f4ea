//! The verifier of programs: what it accepts runs without any further check.
//!
//! Every load and store stays inside of its buffer, every buffer that a program computes is written
//! exactly once and before it is read, in the memory where it is, and every value has the type its use
//! asks for. All of that follows from the maps; nothing is left to the engines.

mod block;
mod bounds;
mod bundle;
mod contract;
mod disjoint;
mod kernel;
mod layout;
mod params;
mod schedule;
mod steps;
mod wrong;

use super::buffer::{Buffer, BufferData, Role, Space};
use super::program::{Program, Step};
use super::stage::{Kernel, Param, Sink};
use super::verified::Verified;
use crate::diag::{At, Diagnostic, Kind};
use crate::types::MAX_RANK;
use crate::verify::MAX_ERRORS;
use crate::words::is_word;
use cranelift_entity::SecondaryMap;
use hashbrown::HashSet;
use std::fmt;
pub(super) use wrong::Wrong;

pub(super) use schedule::scheduled;

/// Checks a whole program.
///
/// # Errors
/// Every broken rule, with the step, stage and place; at most [`MAX_ERRORS`].
pub fn verify(program: Program) -> Result<Verified<Program>, Vec<Diagnostic>> {
    let mut check =
        ProgramVerifier { program: &program, written: SecondaryMap::new(), errors: Vec::new() };
    check.buffers();
    check.nested();
    // What follows multiplies extents and looks buffers up: only when those are sound.
    if check.errors.is_empty() && check.references() {
        check.steps();
        check.completeness();
    }
    let mut errors = check.errors;
    errors.truncate(MAX_ERRORS);
    if errors.is_empty() { Ok(Verified::accepted(program)) } else { Err(errors) }
}

/// Checks the steps of a part of a program: what they read and do not write is taken to be written before them. Buffers
/// need no names, and none is returned.
///
/// # Errors
/// As [`verify`].
pub fn verify_steps(part: &Program) -> Result<(), Vec<Diagnostic>> {
    let mut check =
        ProgramVerifier { program: part, written: SecondaryMap::new(), errors: Vec::new() };
    if check.references() {
        let reads = part.steps.iter().flat_map(Step::reads);
        let mut given: SecondaryMap<Buffer, bool> = SecondaryMap::new();
        reads.for_each(|b| given[b] = true);
        part.steps.iter().flat_map(Step::writes).for_each(|b| given[b] = false);
        check.written = given;
        check.steps();
    }
    if check.errors.is_empty() { Ok(()) } else { Err(check.errors) }
}

struct ProgramVerifier<'p> {
    program: &'p Program,
    /// The buffers that the steps so far have written.
    written: SecondaryMap<Buffer, bool>,
    errors: Vec<Diagnostic>,
}

impl ProgramVerifier<'_> {
    fn report(&mut self, place: impl fmt::Display, wrong: Wrong) {
        let at = At {
            func: Some(self.program.name.clone()),
            inst: Some(place.to_string().into()),
            ..At::default()
        };
        self.errors.push(Diagnostic::new(at, wrong.kind, wrong.message));
    }

    fn data(&self, b: Buffer) -> &BufferData {
        &self.program.buffers[b]
    }

    /// Buffers: names, types, sizes, constants.
    fn buffers(&mut self) {
        let mut names: HashSet<&str> = HashSet::new();
        let within = self.program.steps.iter().flat_map(|s| match s {
            Step::Bundle(bundle) => bundle.kernels.as_slice(),
            _ => &[],
        });
        let steps = self.program.steps.iter().filter_map(|s| match s {
            Step::Kernel(kernel) => Some(&kernel.name),
            Step::Bundle(bundle) => Some(&bundle.name),
            Step::Contract(contract) => Some(&contract.name),
            Step::Library(library) => Some(&library.function),
            Step::Loop(step) => Some(&step.name),
            Step::Branch(step) => Some(&step.name),
            Step::Attend(_)
            | Step::Scatter(_)
            | Step::Argsort(_)
            | Step::Transfer(_)
            | Step::Print(_) => None,
            Step::Exchange(step) => Some(&step.over),
        });
        let steps = steps.chain(within.map(|kernel| &kernel.name));
        for name in std::iter::once(&self.program.name).chain(steps).filter(|n| !is_word(n)) {
            self.report(format_args!("@{name}"), Wrong::new(Kind::Syntax, "not a name"));
        }
        for (_, data) in self.program.buffers.iter() {
            if !names.insert(&data.name) {
                let wrong = Wrong::new(Kind::Redefinition, "two buffers have this name");
                self.report(format_args!("%{}", data.name), wrong);
            }
            let digits = data.name.bytes().all(|b| b.is_ascii_digit()) && !data.name.is_empty();
            if !is_word(&data.name) && (!digits || data.name.len() > 20) {
                self.report(format_args!("%{}", data.name), Wrong::new(Kind::Syntax, "not a name"));
            }
            if let Err(wrong) = layout::sound(data) {
                self.report(format_args!("%{}", data.name), wrong);
            }
        }
        for &b in &self.program.outputs {
            let role = self.program.buffers.get(b).map(|d| &d.role);
            let message = match role {
                None => "an output is not declared",
                Some(Role::Temp) => "a buffer that is returned is no temporary",
                Some(_) => continue,
            };
            self.report("return", Wrong::new(Kind::UnknownName, message));
        }
    }

    /// Whether every buffer, row and tile that a step names exists.
    fn references(&mut self) -> bool {
        let buffers = &self.program.buffers;
        // Contractions keep no rows and tiles; that is checked where they are.
        let kept = |k: &Kernel| {
            let sink = |s: &Sink| match s {
                Sink::Store { .. } | Sink::Fold { .. } => true,
                Sink::Reduce { into, .. } | Sink::Leave(into) => k.rows.is_valid(*into),
                Sink::Scan { into, .. } | Sink::Keep(into) => k.tiles.is_valid(*into),
            };
            let param = |p: &Param| match p {
                Param::Row(r) => k.rows.is_valid(*r),
                Param::Tile(t) => k.tiles.is_valid(*t),
                Param::Load(_) | Param::Coord(_) | Param::Sum => true,
            };
            k.stages.iter().all(|s| s.params.iter().all(param) && s.sinks.iter().all(sink))
        };
        let known = |step: &Step| {
            step.reads().chain(step.writes()).all(|b| buffers.is_valid(b))
                && match step {
                    Step::Kernel(kernel) => kept(kernel),
                    Step::Bundle(bundle) => bundle.kernels.iter().all(kept),
                    _ => true,
                }
        };
        let unknown: Vec<usize> =
            (0..self.program.steps.len()).filter(|&n| !known(&self.program.steps[n])).collect();
        for &n in &unknown {
            let m = "a buffer, row or tile is not declared";
            self.report(format_args!("step {n}"), Wrong::new(Kind::UnknownName, m));
        }
        unknown.is_empty()
    }

    fn steps(&mut self) {
        let program = self.program;
        for (n, step) in program.steps.iter().enumerate() {
            let place = format!("step {n}: {}", step.title());
            match step {
                Step::Kernel(kernel) => self.kernel(&place, kernel),
                Step::Contract(step) => self.contract(&place, step),
                Step::Attend(step) => self.attend(&place, step),
                Step::Scatter(step) => self.scatter(&place, step),
                Step::Argsort(step) => self.argsort(&place, step),
                Step::Library(step) => self.library(&place, step),
                Step::Transfer(step) => self.transfer(&place, step),
                Step::Exchange(step) => self.exchange(&place, step),
                Step::Print(step) => self.print(&place, step),
                Step::Loop(step) => self.repeated(&place, step),
                Step::Branch(step) => self.branched(&place, step),
                Step::Bundle(step) => self.bundle(&place, step),
            }
            // What is wrong is reported once, not by what comes after too.
            for b in step.writes() {
                self.written[b] = true;
            }
            if self.errors.len() >= MAX_ERRORS {
                return;
            }
        }
    }

    /// What is computed is computed somewhere, and outputs are handed out.
    fn completeness(&mut self) {
        for (b, data) in self.program.buffers.iter() {
            let computed = matches!(data.role, Role::Temp | Role::Output);
            let message = if computed && !self.written[b] {
                "no step writes this buffer"
            } else if data.role == Role::Output && !self.program.outputs.contains(&b) {
                "an output is not returned"
            } else {
                continue;
            };
            let place = format!("%{}", data.name);
            self.report(place, Wrong::new(Kind::Dominance, message));
        }
    }

    /// Checks that a buffer may be read here.
    fn readable(&self, b: Buffer) -> Result<(), Wrong> {
        self.near(b)?;
        self.has_values(b)
    }

    /// Checks that a buffer may be written here.
    fn writable(&self, b: Buffer) -> Result<(), Wrong> {
        self.near(b)?;
        self.is_free(b)
    }

    /// Checks that a buffer is in the engine's own memory.
    fn near(&self, b: Buffer) -> Result<(), Wrong> {
        match self.data(b).space {
            Space::Device => Ok(()),
            Space::Host => {
                let m =
                    format!("%{} is in host memory: only transfers touch it", self.data(b).name);
                Err(Wrong::new(Kind::Bounds, m))
            }
        }
    }

    /// Checks that a buffer has its values.
    fn has_values(&self, b: Buffer) -> Result<(), Wrong> {
        let data = self.data(b);
        if self.written[b] || matches!(data.role, Role::Input | Role::Constant(_)) {
            return Ok(());
        }
        let m = format!("%{} is read before a step has written it", data.name);
        Err(Wrong::new(Kind::Dominance, m))
    }

    /// Checks that a buffer is still to be written.
    fn is_free(&self, b: Buffer) -> Result<(), Wrong> {
        let data = self.data(b);
        let m = match data.role {
            Role::Input => format!("%{} is an input: it is not written", data.name),
            Role::Constant(_) => format!("%{} is a constant", data.name),
            _ if self.written[b] => format!("%{} is written already", data.name),
            _ => return Ok(()),
        };
        Err(Wrong::new(Kind::Overlap, m))
    }
}

/// Checks extents of axes that are iterated over: how many, and how many points.
fn iterable(extents: &[i64]) -> Result<(), Wrong> {
    if extents.len() > 2 * MAX_RANK {
        let m = format!("{} axes, the limit is {}", extents.len(), 2 * MAX_RANK);
        return Err(Wrong::new(Kind::Limit, m));
    }
    if extents.iter().any(|&n| n < 0) {
        return Err(Wrong::new(Kind::Shape, "an extent is negative"));
    }
    let points = extents.iter().filter(|&&n| n > 0).try_fold(1i64, |p, &n| p.checked_mul(n));
    match points {
        Some(p) if p <= 1 << 46 => Ok(()),
        _ => Err(Wrong::new(Kind::Limit, "more than 2^46 points")),
    }
}
