//! Contractions and attention: operands, epilogues, and what members share.

use super::kernel::{StageContext, StageOutputs};
use super::{ProgramVerifier, Wrong, iterable};
use crate::diag::Kind;
use crate::dtype::DType;
use crate::kernel::program::{Attend, Contract, Feed, Member};
use crate::kernel::stage::{Param, Sink, Stage};
use cranelift_entity::PrimaryMap;

impl ProgramVerifier<'_> {
    pub(super) fn contract(&mut self, place: &str, step: &Contract) {
        if let Err(wrong) = shared(&step.members) {
            self.report(place, wrong);
        }
        let mut left = StageOutputs::default();
        for (k, member) in step.members.iter().enumerate() {
            self.member(&format!("{place}, member {k}"), member, &mut left);
        }
    }

    fn member(&mut self, place: &str, member: &Member, left: &mut StageOutputs) {
        let feeds = member.feeds();
        let Some(types) = self.feeds(place, &feeds, &member.result(), None) else { return };
        if let Err(wrong) = products(&types, member.sum) {
            self.report(place, wrong);
        }
        self.then(place, &member.result(), &member.then, member.sum, left);
    }

    pub(super) fn attend(&mut self, place: &str, step: &Attend) {
        let feeds = step.feeds();
        let Some(types) = self.feeds(place, &feeds, &step.result(), Some(step.sum)) else { return };
        let checked = products(&types[..2], step.sum)
            .and_then(|()| attended(types[2], types[3], step.sum))
            .and_then(|()| self.log_sum(step));
        if let Err(wrong) = checked {
            self.report(place, wrong);
        }
        self.then(place, &step.result(), &step.then, step.sum, &mut StageOutputs::default());
    }

    /// Checks operands over their extents, and gives the types of their elements, where those of the
    /// result are sound too. A score, of this type, reads the sum.
    fn feeds(
        &mut self,
        place: &str,
        feeds: &[(&'static str, &Feed, super::super::Extents)],
        result: &[i64],
        score: Option<DType>,
    ) -> Option<Vec<DType>> {
        let walked = feeds.iter().map(|(_, _, extents)| extents.as_slice());
        if let Err(wrong) = walked.chain([result]).try_for_each(iterable) {
            self.report(place, wrong);
            return None;
        }
        let before = self.errors.len();
        let mut types = Vec::new();
        for (word, feed, extents) in feeds {
            let place = format!("{place}, {word}");
            let sum = score.filter(|_| *word == "score");
            self.params(&place, extents, &feed.params, &feed.program.params, |p| match (p, sum) {
                (Param::Sum, Some(dtype)) => Ok(dtype),
                _ => {
                    Err(Wrong::new(Kind::Dominance, "an operand is made of loads and coordinates"))
                }
            });
            match element(feed) {
                Ok(dtype) => types.push(dtype),
                Err(wrong) => self.report(place, wrong),
            }
        }
        (self.errors.len() == before).then_some(types)
    }

    /// Checks what becomes of sums.
    pub(super) fn then(
        &mut self,
        place: &str,
        domain: &[i64],
        then: &Stage,
        sum: DType,
        left: &mut StageOutputs,
    ) {
        let place = format!("{place}, then");
        let whole = |s: &Sink| matches!(s, Sink::Store { .. } | Sink::Fold { .. });
        let kept = |p: &Param| matches!(p, Param::Row(_) | Param::Tile(_));
        if !then.axes.is_empty() || !then.sinks.iter().all(whole) || then.params.iter().any(kept) {
            let m =
                "what follows sums has no axes, keeps nothing, and stores or folds into buffers";
            return self.report(place, Wrong::new(Kind::Shape, m));
        }
        let (rows, tiles) = (&PrimaryMap::new(), &PrimaryMap::new());
        self.stage(&place, &StageContext { domain, rows, tiles, sum: Some(sum) }, then, left);
    }

    /// Checks where the logarithms of the weights' sums go.
    fn log_sum(&self, step: &Attend) -> Result<(), Wrong> {
        let Some(b) = step.log_sum else { return Ok(()) };
        self.writable(b)?;
        let data = self.data(b);
        let into = |s: &Sink| match s {
            Sink::Store { buffer, .. } => *buffer == b,
            Sink::Fold { then, .. } => {
                then.sinks.iter().any(|s| matches!(s, Sink::Store { buffer, .. } if *buffer == b))
            }
            _ => false,
        };
        if step.then.sinks.iter().any(into) {
            let m = format!("%{} is written by what follows too", data.name);
            return Err(Wrong::new(Kind::Overlap, m));
        }
        let wanted = step.batch.iter().chain(&step.rows);
        match data.dims.iter().eq(wanted) && data.dtype == step.sum {
            true => Ok(()),
            false => {
                let m = format!("%{} does not hold a {} for each row", data.name, step.sum);
                Err(Wrong::new(Kind::Shape, m))
            }
        }
    }
}

/// The type of what an operand's program computes.
fn element(feed: &Feed) -> Result<DType, Wrong> {
    feed.program.check().map_err(|m| Wrong::new(Kind::DType, m))?;
    match feed.program.outputs.as_slice() {
        &[v] => Ok(feed.program.insts[v].dtype),
        outputs => {
            let m = format!("an operand has one output, found {}", outputs.len());
            Err(Wrong::new(Kind::Arity, m))
        }
    }
}

/// Checks that products of elements of these types add up in the type of the sums.
fn products(types: &[DType], sum: DType) -> Result<(), Wrong> {
    let &[x, y] = types else { return Ok(()) };
    if x != y {
        let m = format!("operands differ in type: {x} and {y}");
        return Err(Wrong::new(Kind::DType, m));
    }
    match widens(x, sum) {
        true => Ok(()),
        false => {
            let m = format!("{sum} does not sum products of {x}");
            Err(Wrong::new(Kind::DType, m))
        }
    }
}

/// Whether elements of a type may be summed in another: the one they compute in, or a wider one.
fn widens(x: DType, sum: DType) -> bool {
    let kind = |d: DType| (d.is_float(), d.is_int());
    let number = kind(x) != (false, false) && kind(x) == kind(sum) && sum.compute() == sum;
    number && (x == sum || sum.bytes() > x.bytes())
}

/// Checks the types of scores and values.
fn attended(score: DType, values: DType, sum: DType) -> Result<(), Wrong> {
    if !sum.is_float() || score != sum {
        let m = format!("scores of type {score}, weighed in {sum}");
        return Err(Wrong::new(Kind::DType, m));
    }
    match widens(values, sum) {
        true => Ok(()),
        false => {
            let m = format!("values of type {values} are not weighed in {sum}");
            Err(Wrong::new(Kind::DType, m))
        }
    }
}

/// Checks that members read the same left operand, or the same right one.
fn shared(members: &[Member]) -> Result<(), Wrong> {
    let Some(first) = members.first() else {
        return Err(Wrong::new(Kind::Arity, "a contraction has no members"));
    };
    let common = |m: &Member| m.batch == first.batch && m.depth == first.depth;
    let left = |m: &Member| common(m) && m.rows == first.rows && m.lhs == first.lhs;
    let right = |m: &Member| common(m) && m.cols == first.cols && m.rhs == first.rhs;
    match members.iter().all(left) || members.iter().all(right) {
        true => Ok(()),
        false => {
            let m = "members share neither the left operand nor the right one";
            Err(Wrong::new(Kind::Shape, m))
        }
    }
}
