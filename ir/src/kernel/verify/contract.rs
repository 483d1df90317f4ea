//! Contractions: operands, epilogues, and what members share.

use super::kernel::{StageContext, StageOutputs};
use super::{ProgramVerifier, Wrong, iterable};
use crate::diag::Kind;
use crate::dtype::DType;
use crate::kernel::program::{Contract, Feed, Member};
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
        let Some(types) = self.feeds(place, &feeds, &member.result()) else { return };
        if let Err(wrong) = products(&types, member.sum) {
            self.report(place, wrong);
        }
        self.then(place, &member.result(), &member.then, member.sum, left);
    }

    /// Checks operands over their extents, and gives the types of their elements, where those of the
    /// result are sound too.
    fn feeds(
        &mut self,
        place: &str,
        feeds: &[(&'static str, &Feed, super::super::Extents)],
        result: &[i64],
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
            self.params(&place, extents, &feed.params, &feed.program.params, |_| {
                Err(Wrong::new(Kind::Dominance, "an operand is made of loads and coordinates"))
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
