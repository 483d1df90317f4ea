//! Coordinates that are divided: reads of strided windows and of what is repeated or dilated are at quotients of them.

use super::loops::parts;
use super::stage::{Kernel, Param, Schedule, Sink, Stage};
use crate::index::IndexExpr;
use smallvec::SmallVec;

/// The greatest divisor that counts: elements that are further apart share no vector worth the name.
const MOST: i64 = 8;

/// A part of a domain has at least this many multiples of a divisor.
const FEWEST: i64 = 2;

/// For each axis the number that it is divided by in quotients and remainders; 1 where it is in none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divisors(SmallVec<[i64; 8]>);

impl Divisors {
    /// Of no expressions, over this many axes.
    pub fn none(rank: usize) -> Divisors {
        Divisors(SmallVec::from_elem(1, rank))
    }

    /// One for each axis of these extents. What has one coordinate is not divided.
    pub fn of_axes(&self, extents: &[i64]) -> SmallVec<[i64; 8]> {
        self.0.iter().zip(extents).map(|(&by, &n)| if n == 1 { 1 } else { by }).collect()
    }

    /// Adds those of an expression. `None` where an axis would have several, or a large one, and where data or quotients are divided.
    #[must_use]
    pub fn add(&mut self, e: &IndexExpr) -> Option<()> {
        match e {
            IndexExpr::Axis(_) | IndexExpr::Const(_) => Some(()),
            IndexExpr::Data { .. } => None,
            IndexExpr::Mul(a, _) => self.add(a),
            IndexExpr::Add(a, b) => {
                self.add(a)?;
                self.add(b)
            }
            IndexExpr::FloorDiv(a, by) | IndexExpr::Mod(a, by) => {
                for (factor, there) in a.factors(self.0.len())?.iter().zip(&mut self.0) {
                    if factor % i128::from(*by) != 0 {
                        let fits = (*there == 1 || there == by) && *by <= MOST;
                        *there = fits.then_some(*by)?;
                    }
                }
                Some(())
            }
        }
    }

    /// Adds those of all expressions of a parameter.
    #[must_use]
    pub fn add_param(&mut self, param: &Param) -> Option<()> {
        param.expressions().try_for_each(|e| self.add(e))
    }

    fn of_stage(stage: &Stage, rank: usize) -> Option<Divisors> {
        let mut found = Divisors::none(rank);
        stage.params.iter().try_for_each(|param| found.add_param(param))?;
        for sink in &stage.sinks {
            let Sink::Store { index, .. } = sink else { return None };
            index.iter().try_for_each(|e| found.add(e))?;
        }
        Some(found)
    }
}

/// The parts of an elementwise kernel that reads at quotients along its innermost axis: the first has as many coordinates along each axis
/// as its divisor divides, the others the rest. They write what the kernel writes, each a part. `None` where one is all.
pub fn parts_at_quotients(kernel: &Kernel) -> Option<Vec<Kernel>> {
    let [stage] = kernel.stages.as_slice() else { return None };
    if !stage.axes.is_empty() || kernel.schedule != Schedule::default() {
        return None;
    }
    let divisors = Divisors::of_stage(stage, kernel.domain.len())?;
    let by = divisors.of_axes(&kernel.domain);
    let inner = kernel.domain.iter().rposition(|&n| n > 1)?;
    let long = by.iter().zip(&kernel.domain).all(|(&by, &n)| by == 1 || n >= FEWEST * by);
    let divides = by.iter().zip(&kernel.domain).all(|(&by, &n)| n % by == 0);
    if by[inner] == 1 || divides || !long {
        return None;
    }
    let schedule = Schedule { tiles: by.as_slice().into(), ..Schedule::default() };
    let mut parts = parts(&Kernel { schedule, ..kernel.clone() });
    parts.iter_mut().for_each(|part| part.schedule = Schedule::default());
    Some(parts)
}
