//! Predication: groups read a parameter in the lanes in which its guards hold, without splitting the line.
//!
//! A guard is affine along a line, so it holds between two coordinates, which are computed once a line. This is for
//! short lines, which would be split into segments of a few elements.

use super::loop_ir::FormRanges;
use super::loop_program::{LoopOp, LoopVal};
use super::program_builder::ProgramBuilder;
use std::ops::Range;

impl ProgramBuilder<'_> {
    /// The coordinates of the line between which all guards hold; `None` where there are none.
    pub(crate) fn between(&mut self, guards: &FormRanges) -> Option<(LoopVal, LoopVal)> {
        let mut found: Option<(LoopVal, LoopVal)> = None;
        for (form, range) in guards {
            let (low, high) = self.holds_between(*form, range);
            found = Some(match found {
                Some((l, h)) => (self.max(l, low), self.min(h, high)),
                None => (low, high),
            });
        }
        found
    }

    fn holds_between(&mut self, form: usize, range: &Range<i64>) -> (LoopVal, LoopVal) {
        let step = self.p.step(form);
        let n = self.p.line_length();
        let (none, all) = (self.int(0), self.int(n));
        if step == 0 {
            let params = self.line.params.clone();
            let value = self.form(form, None, &params);
            let length = range.end.saturating_sub(range.start).max(0);
            let holds = self.op(LoopOp::Within(value, range.start, length));
            return (none, self.op(LoopOp::And(holds, all)));
        }
        let [a, b] = self.bounds(form, range).map(|end| {
            let end = self.max(end, none);
            self.min(end, all)
        });
        if step > 0 { (a, b) } else { (b, a) }
    }
}
