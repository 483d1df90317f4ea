//! Extremes of 16-bit floats, two at a time: the greatest of numbers that are widened is the greatest of the numbers,
//! widened.

use super::asm::{Class, Reg, listed};
use super::convert::convert;
use super::emit::Emit;
use super::operands::{constant, select};
use super::partial_fold::{Part, neutral};
use crate::gpu::schedule::row_residency::Reduction;
use adfuse_ir::DType;
use adfuse_ir::kernel::{Sink, Stage};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::ScalarProgram;

/// The program of a stage with outputs that are folded in pairs as they are before they are widened.
pub(super) fn with_pairs(
    stage: &Stage,
    folds: &[Reduction],
    mut program: ScalarProgram,
) -> ScalarProgram {
    let reduced = stage.sinks.iter().enumerate().filter(|(_, k)| matches!(k, Sink::Reduce { .. }));
    for ((k, _), fold) in reduced.zip(folds) {
        let output = &program.insts[program.outputs[k]];
        if let (Some(_), Some(&narrow)) = (fold.pairs, output.args.first()) {
            program.outputs[k] = narrow;
        }
    }
    program
}

impl Emit<'_> {
    /// What a fold of a thread begins with.
    pub(super) fn empty_fold(&mut self, fold: &Reduction) -> Part {
        let Some(narrow) = fold.pairs else { return self.empty_part(fold.monoid, fold.dtype) };
        let half = constant(&mut self.asm, neutral(fold.monoid, narrow));
        Part { value: self.pair([half, half]), place: None }
    }

    fn pair(&mut self, halves: [Reg; 2]) -> Reg {
        self.asm.pure(Class::Word, "mov.b32", listed(&halves))
    }

    /// A fold with two neighbours more, where they are there.
    pub(super) fn with_pair(
        &mut self,
        (fold, narrow): (&Reduction, DType),
        before: Option<Part>,
        halves: [Reg; 2],
        valid: Option<Reg>,
    ) -> Part {
        let mut value = self.pair(halves);
        if let Some(valid) = valid {
            let empty = self.empty_fold(fold).value;
            value = select(&mut self.asm, valid, value, empty);
        }
        if let Some(before) = before {
            let way = if fold.monoid == Monoid::Max { "max" } else { "min" };
            let of = if narrow == DType::BF16 { "bf16x2" } else { "f16x2" };
            let args = format_args!("{}, {value}", before.value).to_string();
            value = self.asm.pure(Class::Word, &format!("{way}.NaN.{of}"), args);
        }
        Part { value, place: None }
    }

    /// What folds of a thread have come to, each as one number of the type that is folded.
    pub(super) fn unpaired(&mut self, folds: &[Reduction], parts: Vec<Part>) -> Vec<Part> {
        let of = |(fold, part): (&Reduction, Part)| {
            let Some(narrow) = fold.pairs else { return part };
            let halves = [(); 2].map(|()| self.asm.fresh(Class::Half));
            self.asm.emit(format_args!("mov.b32 {}, {}", listed(&halves), part.value));
            let [low, high] = halves.map(|half| convert(&mut self.asm, half, narrow, fold.dtype));
            let value = self.combine(fold.monoid, fold.dtype, low, high);
            Part { value, place: None }
        };
        folds.iter().zip(parts).map(of).collect()
    }
}
