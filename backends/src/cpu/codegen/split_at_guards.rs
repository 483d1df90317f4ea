//! Splits lines into segments in which guards are constant.
//!
//! A guard is affine along a line, so it holds between two coordinates. In a segment between neighbouring bounds every
//! parameter is read from one source, chosen once: a pointer that advances with the coordinate, or a pointer to a
//! literal that does not.

use super::loop_ir::{LoadSource, ParamRead, VectorAccess};
use super::loop_program::{LoopOp, LoopVal};
use super::program_builder::ProgramBuilder;
use std::ops::Range;

impl ProgramBuilder<'_> {
    /// Whether a parameter is read from the source of a segment.
    pub(crate) fn is_chosen(&self, k: usize) -> bool {
        self.p.varies[k] && self.p.loads[k] == VectorAccess::Guarded
    }

    /// The coordinates between which a form is in a range.
    pub(crate) fn bounds(&mut self, form: usize, range: &Range<i64>) -> [LoopVal; 2] {
        let step = self.p.step(form);
        let by = step.checked_abs().unwrap_or(i64::MAX);
        [range.start, range.end].map(|end| {
            let part = self.fixed_form(form);
            if step > 0 {
                // The quotient of what is left to the end, rounded up.
                let end = self.int(end.wrapping_add(by - 1));
                let left = self.sub(end, part);
                self.floor_div(left, by)
            } else {
                // Of what is beyond the end, rounded down, and one more.
                let beyond = self.plus(part, end.wrapping_neg());
                let quotient = self.floor_div(beyond, by);
                self.plus(quotient, 1)
            }
        })
    }

    /// Where segments end.
    pub(crate) fn breaks(&mut self) -> Vec<LoopVal> {
        let mut all = Vec::new();
        for (form, range) in &self.p.breaks {
            for at in self.bounds(*form, range) {
                if !all.contains(&at) {
                    all.push(at);
                }
            }
        }
        all
    }

    /// Chooses the source of each parameter that is read through guards, as it is at a coordinate.
    pub(crate) fn choose_sources(&mut self, from: LoopVal) {
        let p = self.p;
        let mut chosen = vec![None; p.reads.len()];
        for (k, chosen) in chosen.iter_mut().enumerate() {
            if let (ParamRead::Guarded(sources), true) = (&p.reads[k], self.is_chosen(k)) {
                let [pointer, along] = self.chosen_source(sources, from);
                *chosen = Some((pointer, along));
            }
        }
        self.line.chosen = chosen;
    }

    fn chosen_source(
        &mut self,
        sources: &[super::loop_ir::GuardedSource],
        from: LoopVal,
    ) -> [LoopVal; 2] {
        let Some((first, others)) = sources.split_first() else { return [self.int(0); 2] };
        let here = |b: &mut Self| match &first.from {
            LoadSource::Array(a) => {
                let pointer = b.pointer(a.at, a.form, a.dtype.bytes() as i64);
                [pointer, b.int(-1)]
            }
            LoadSource::Literal(l) => [b.op(LoopOp::Repeated(*l)), b.int(0)],
        };
        // The last source is read wherever no other is.
        if first.guards.is_empty() || others.is_empty() {
            return here(self);
        }
        let params = self.line.params.clone();
        let all = self.guards(&first.guards, Some(from), &params);
        self.choose(all, here, |b| b.chosen_source(others, from))
    }
}
