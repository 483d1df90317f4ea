//! Splits lines into segments in which guards are constant and packed elements begin at bytes.
//!
//! A guard is affine along a line, so it holds between two coordinates. In a segment between neighbouring bounds, every
//! parameter is read from one source, chosen once: a pointer that advances with the coordinate, or a pointer to
//! constants that does not.

use super::state::{
    ChosenPointer, Interleaving, LANES, LineValues, PointValues, accesses, register,
};
use super::unit::FunctionEmitter;
use crate::cpu::codegen::loop_ir::{Access, LoadSource, LoopNest, ParamRead, VectorAccess};
use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use std::ops::Range;

/// Packed elements of vectors begin where a multiple of this many does, which is a byte for any width.
const GRAIN: i64 = 8;

impl FunctionEmitter<'_, '_> {
    /// The loops along a line, from coordinate `low` to `high`, stretch by stretch.
    pub(crate) fn segments(
        &mut self,
        p: &LoopNest,
        line: &mut LineValues,
        low: Value,
        high: Value,
        copies: Option<Interleaving>,
    ) -> Option<()> {
        // Single elements find their ways by branches.
        let (mut breaks, mut phases, mut literals) = (Vec::new(), Vec::new(), None);
        if let Some(copies) = copies {
            for (form, range) in &p.breaks {
                let part = self.line_part(p, line, *form);
                breaks.extend(self.bounds(part, p.step(*form), range));
            }
            phases = self.phases(p, line);
            literals = Some(self.literals(p, copies)?);
        }

        let (head, body, exit) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let from = self.b.append_block_param(head, types::I64);
        self.b.ins().jump(head, &[low.into()]);
        self.b.switch_to_block(head);
        let more = self.b.ins().icmp(IntCC::SignedLessThan, from, high);
        self.b.ins().brif(more, body, &[], exit, &[]);
        self.b.seal_block(body);
        self.b.switch_to_block(body);
        let mut to = high;
        for at in breaks {
            to = self.sooner(from, at, to);
        }
        let blocks = self.begin_segment(p, line, [from, to], copies)?;
        to = blocks.map_or(to, |s| s.to);
        let mut vectors_to = to;
        if let Some((first, others)) = phases.split_first() {
            // A stretch that begins inside of a byte ends with it.
            let element = self.b.ins().iadd(*first, from);
            let back = self.b.ins().ineg(element);
            let grain = self.long(GRAIN - 1);
            let short = self.b.ins().band(back, grain);
            let aligned = self.b.ins().iadd(from, short);
            to = self.sooner(from, aligned, to);
            // No vectors where arrays do not begin bytes together.
            vectors_to = to;
            for other in others {
                let apart = self.b.ins().isub(*other, *first);
                let apart = self.b.ins().band(apart, grain);
                let zero = self.long(0);
                let together = self.b.ins().icmp(IntCC::Equal, apart, zero);
                vectors_to = self.b.ins().select(together, vectors_to, from);
            }
        }
        if let Some(blocks) = &blocks {
            vectors_to = self.b.ins().select(blocks.aligned, vectors_to, from);
        }
        if let Some(literals) = literals {
            self.choose(p, line, from, &literals)?;
        }
        self.segment(p, line, [from, vectors_to, to], copies)?;
        if let Some(blocks) = blocks {
            self.end_segment(p, line, &blocks, [from, to])?;
        }
        self.b.ins().jump(head, &[to.into()]);
        self.b.seal_block(head);
        self.b.seal_block(exit);
        self.b.switch_to_block(exit);
        line.sources = Vec::new();
        Some(())
    }

    /// What a form is at the innermost coordinate 0.
    fn line_part(&mut self, p: &LoopNest, line: &LineValues, form: usize) -> Value {
        match line.fixed.forms.get(form).copied().flatten() {
            Some(v) => v,
            None => {
                let here = PointValues { at: &line.outer, params: &line.fixed.params };
                self.fixed_part(p, form, &here)
            }
        }
    }

    /// `at` where it lies between `from` and `to`, else `to`.
    pub(crate) fn sooner(&mut self, from: Value, at: Value, to: Value) -> Value {
        let after = self.b.ins().icmp(IntCC::SignedGreaterThan, at, from);
        let before = self.b.ins().icmp(IntCC::SignedLessThan, at, to);
        let between = self.b.ins().band(after, before);
        self.b.ins().select(between, at, to)
    }

    /// The coordinates between which `part + step * d` is in a range.
    fn bounds(&mut self, part: Value, step: i64, range: &Range<i64>) -> [Value; 2] {
        // With a step above 0: from the quotients of `end - part`, rounded up; below 0, of `part - end`
        // rounded down, and one more.
        let by = step.checked_abs().unwrap_or(i64::MAX);
        [range.start, range.end].map(|end| {
            let end = self.long(end);
            if step > 0 {
                let up = self.long(by - 1);
                let distance = self.b.ins().isub(end, part);
                let distance = self.b.ins().iadd(distance, up);
                self.floor_div(distance, by).0
            } else {
                let one = self.long(1);
                let distance = self.b.ins().isub(part, end);
                let quotient = self.floor_div(distance, by).0;
                self.b.ins().iadd(quotient, one)
            }
        })
    }

    /// Of each packed array that vectors read or write, the element of the innermost coordinate 0.
    fn phases(&mut self, p: &LoopNest, line: &LineValues) -> Vec<Value> {
        let packed = accesses(p).filter(|a| p.byte_aligned(a));
        packed.map(|a| self.line_part(p, line, a.form)).collect()
    }

    /// Of each way that is a literal, where vectors of it are.
    fn literals(&mut self, p: &LoopNest, copies: Interleaving) -> Option<Vec<Vec<Value>>> {
        let mut found = Vec::new();
        for (read, reach) in p.reads.iter().zip(&p.loads) {
            let mut places = Vec::new();
            if let (ParamRead::Guarded(sources), VectorAccess::Guarded) = (read, reach) {
                for source in sources {
                    if let LoadSource::Literal(l) = source.from {
                        let bytes = u64::from(copies.most * LANES) * l.dtype().bytes();
                        let times = bytes.div_ceil(16).max(1);
                        let offset = self.constants.place(in_memory(l), times as usize)?;
                        let offset = self.long(offset.into());
                        places.push(self.b.ins().iadd(self.constant_base, offset));
                    }
                }
            }
            found.push(places);
        }
        Some(found)
    }

    /// Chooses the way of each parameter that is read through guards, as it is at a coordinate.
    fn choose(
        &mut self,
        p: &LoopNest,
        line: &mut LineValues,
        from: Value,
        literals: &[Vec<Value>],
    ) -> Option<()> {
        let mut at = line.outer.clone();
        at.push(from);
        let mut all: Vec<Option<ChosenPointer>> = Vec::new();
        for ((read, reach), literals) in p.reads.iter().zip(&p.loads).zip(literals) {
            let (ParamRead::Guarded(sources), VectorAccess::Guarded) = (read, reach) else {
                all.push(None);
                continue;
            };
            let mut literals = literals.iter().rev();
            let mut found: Option<ChosenPointer> = None;
            // The last way holds wherever no other does.
            for source in sources.iter().rev() {
                let here = ChosenPointer {
                    pointer: match &source.from {
                        LoadSource::Literal(_) => *literals.next()?,
                        LoadSource::Array(a) => self.start(line, a)?,
                    },
                    along: self.long(if matches!(source.from, LoadSource::Literal(_)) {
                        0
                    } else {
                        -1
                    }),
                };
                let here_at = PointValues { at: &at, params: &line.fixed.params };
                let holds = self.guards(p, &source.guards, &line.fixed, &here_at);
                found = Some(match (holds, found) {
                    (Some(holds), Some(other)) => ChosenPointer {
                        pointer: self.b.ins().select(holds, here.pointer, other.pointer),
                        along: self.b.ins().select(holds, here.along, other.along),
                    },
                    _ => here,
                });
            }
            all.push(found);
        }
        line.sources = all;
        Some(())
    }

    pub(crate) fn start(&mut self, line: &LineValues, a: &Access) -> Option<Value> {
        line.fixed.starts.iter().find(|(f, _)| *f == a.form).map(|(_, v)| *v)
    }

    /// Where the element of a chosen way is.
    pub(crate) fn chosen_address(
        &mut self,
        chosen: &ChosenPointer,
        d: Value,
        dtype: DType,
    ) -> Value {
        let along = self.b.ins().band(d, chosen.along);
        let offset = self.times(along, dtype.bytes() as i64);
        self.b.ins().iadd(chosen.pointer, offset)
    }

    /// An element through the chosen way.
    pub(crate) fn chosen_element(
        &mut self,
        chosen: &ChosenPointer,
        d: Value,
        dtype: DType,
    ) -> Value {
        let address = self.chosen_address(chosen, d, dtype);
        let value =
            self.b.ins().load(register(dtype), crate::cpu::clif::state::flags(), address, 0);
        match dtype {
            DType::Bool => {
                let one = self.int(types::I8, 1);
                self.b.ins().band(value, one)
            }
            _ => value,
        }
    }
}

/// A literal as memory holds it, as often as it fits.
fn in_memory(l: Literal) -> u128 {
    let bits = 8 * l.dtype().bytes() as u32;
    let one = u128::from(l.bits()) & ((1u128 << bits) - 1);
    (0..128 / bits).fold(0, |all, k| all | one << (k * bits))
}
