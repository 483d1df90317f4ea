//! Scores in the registers of a warp: which are hidden, and what is added to them.

use super::tile::{Accumulators, HiddenEnds, lane, made, warp};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::convert::convert;
use crate::gpu::ptx::emit::{Emit, memory};
use crate::gpu::ptx::operands::class;
use crate::gpu::schedule::attention::{AttentionForm, AttentionTile, UNIT};
use crate::gpu::schedule::score_operand::ScoreOperand;
use adfuse_ir::DType;

/// The number below all others.
pub(super) const LEAST: &str = "0fFF800000";

/// Whether lines of scores are rows, and columns keys, or the other way around.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ScoreLines {
    Rows,
    Keys,
}

/// How the scores of a pass lie: lines are those that the block owns.
#[derive(Clone)]
pub(super) struct ScorePlace<'a> {
    pub(super) form: &'a AttentionForm,
    pub(super) lines: ScoreLines,
    /// The thread's first line, as a row or a key.
    pub(super) line: Reg,
    /// The thread's first column in a tile.
    pub(super) column: Reg,
    /// The mask or bias, and where the head of the block has it.
    extra: Option<(ScoreOperand, Reg)>,
    /// Where the cotangents of the head's scores begin, where they are wanted.
    pub(super) score_cotangents: Option<Reg>,
}

impl<'a> ScorePlace<'a> {
    /// `first` is the first line of the block.
    pub(super) fn new(
        asm: &mut Asm,
        form: &'a AttentionForm,
        (lines, tile): (ScoreLines, &AttentionTile),
        first: Reg,
    ) -> ScorePlace<'a> {
        let (lane, warp) = (lane(asm), warp(asm));
        let own = asm.pure(
            Class::Word,
            "mad.lo.s32",
            format_args!("{warp}, {}, {first}", tile.tall() * UNIT),
        );
        let down = asm.pure(Class::Word, "shr.u32", format_args!("{lane}, 2"));
        let line = asm.pure(Class::Word, "add.s32", format_args!("{own}, {down}"));
        let across = asm.pure(Class::Word, "and.b32", format_args!("{lane}, 3"));
        let column = asm.pure(Class::Word, "shl.b32", format_args!("{across}, 1"));
        ScorePlace { form, lines, line, column, extra: None, score_cotangents: None }
    }

    /// The same for a head, of which it is known where its mask or bias begins, and the cotangents of its scores.
    pub(super) fn at_head(&self, emit: &mut Emit<'_>, head: Reg) -> ScorePlace<'a> {
        let score_cotangents = self.form.has_bias_grad().then(|| {
            let base = emit.pointer(self.form.step.outputs[3]);
            let bytes = self.form.rows * self.form.stream * 2;
            let wide = made(&mut emit.asm, Class::Long, "cvt.u64.u32", head);
            let at = format!("{wide}, {bytes}, {base}");
            made(&mut emit.asm, Class::Long, "mad.lo.s64", at)
        });
        let extra = self.form.extra.clone().map(|extra| {
            let at = extra_at(emit, &extra, head);
            (extra, at)
        });
        ScorePlace { extra, score_cotangents, ..*self }
    }

    /// Adds the bias of a tile, or hides what its mask does, and what places do at the ends where they may. Whether any may be
    /// hidden.
    pub(super) fn hide(
        &self,
        asm: &mut Asm,
        scores: &Accumulators,
        (first, hidden): (Reg, HiddenEnds),
    ) -> bool {
        self.add_extra(asm, scores, first);
        if hidden.any() {
            self.hide_places(asm, scores, (first, hidden));
        }
        hidden.any() || self.extra.is_some()
    }

    /// The thread's line of a tile, in its upper half (0) or its lower one (1).
    pub(super) fn line_of(&self, asm: &mut Asm, i: usize, half: usize) -> Reg {
        let down = i as i64 * UNIT + half as i64 * 8;
        made(asm, Class::Word, "add.s32", format_args!("{}, {down}", self.line))
    }

    /// Adds the bias of a tile whose first column is `first`, or hides what the mask does.
    fn add_extra(&self, asm: &mut Asm, scores: &Accumulators, first: Reg) {
        let Some((extra, base)) = &self.extra else { return };
        let (of_line, of_column) = match self.lines {
            ScoreLines::Rows => ((extra.row, self.form.rows), (extra.key, self.form.stream)),
            ScoreLines::Keys => ((extra.key, self.form.stream), (extra.row, self.form.rows)),
        };
        let column = made(asm, Class::Word, "add.s32", format_args!("{}, {first}", self.column));
        for i in 0..scores.tall {
            for half in 0..2 {
                let line = self.line_of(asm, i, half);
                let at = moved(asm, (*base, extra.size), line, of_line);
                for j in 0..scores.wide {
                    for (e, s) in scores.pair(i, j, half).into_iter().enumerate() {
                        let offset = j * 8 + e;
                        let place =
                            made(asm, Class::Word, "add.s32", format_args!("{column}, {offset}"));
                        let at = moved(asm, (at, extra.size), place, of_column);
                        joined(asm, (extra, self.form.dtype), s, at);
                    }
                }
            }
        }
    }

    /// Hides the scores of a tile whose first column is `first`, where a line's reach or the end of the columns does.
    fn hide_places(
        &self,
        asm: &mut Asm,
        scores: &Accumulators,
        (first, hidden): (Reg, HiddenEnds),
    ) {
        let column = made(asm, Class::Word, "add.s32", format_args!("{}, {first}", self.column));
        let span = self.form.span(self.lines == ScoreLines::Keys);
        let columns = match self.lines {
            ScoreLines::Rows => self.form.stream,
            ScoreLines::Keys => self.form.rows,
        };
        let end = made(asm, Class::Word, "sub.s32", format_args!("{}, {column}", columns - 1));
        for i in 0..scores.tall {
            for half in 0..2 {
                let line = self.line_of(asm, i, half);
                let along = made(asm, Class::Word, "sub.s32", format_args!("{line}, {column}"));
                let from = |asm: &mut Asm, far: i64| {
                    made(asm, Class::Word, "add.s32", format_args!("{along}, {far}"))
                };
                let pairs = || (0..scores.wide).map(|j| (j * 8, scores.pair(i, j, half)));
                // One end after the other: a thread has no registers for both.
                if hidden.high {
                    let high = span.high.map_or(end, |high| {
                        let last = from(asm, high);
                        made(asm, Class::Word, "min.s32", format_args!("{last}, {end}"))
                    });
                    for (at, pair) in pairs() {
                        keep_where(asm, "setp.ge.s32", (high, at), pair);
                    }
                }
                if let Some(low) = span.low.filter(|_| hidden.low) {
                    let low = from(asm, low);
                    for (at, pair) in pairs() {
                        keep_where(asm, "setp.le.s32", (low, at), pair);
                    }
                }
            }
        }
    }
}

/// Hides those of two neighbouring scores, in the columns `at` and the next, whose columns compare with a number in another way.
fn keep_where(asm: &mut Asm, op: &str, (number, at): (Reg, usize), pair: [Reg; 2]) {
    for (e, s) in pair.into_iter().enumerate() {
        let p = made(asm, Class::Pred, op, format_args!("{number}, {}", at + e));
        asm.emit(format_args!("selp.f32 {s}, {s}, {LEAST}, {p}"));
    }
}

/// Where the mask or bias of a head begins.
pub(super) fn extra_at(emit: &mut Emit<'_>, extra: &ScoreOperand, head: Reg) -> Reg {
    let mut at = emit.pointer(extra.buffer);
    let mut rest = head;
    for &(extent, stride) in extra.heads.iter().rev() {
        let (own, outer) = divided(&mut emit.asm, rest, extent);
        rest = outer;
        if stride != 0 {
            let bytes = stride * extra.size;
            let own = made(&mut emit.asm, Class::Long, "cvt.u64.u32", own);
            at = made(
                &mut emit.asm,
                Class::Long,
                "mad.lo.s64",
                format_args!("{own}, {bytes}, {at}"),
            );
        }
    }
    at
}

/// The remainder of a number by an extent, and the quotient.
pub(super) fn divided(asm: &mut Asm, x: Reg, by: i64) -> (Reg, Reg) {
    let quotient = made(asm, Class::Word, "div.u32", format_args!("{x}, {by}"));
    let whole = made(asm, Class::Word, "mul.lo.s32", format_args!("{quotient}, {by}"));
    (made(asm, Class::Word, "sub.s32", format_args!("{x}, {whole}")), quotient)
}

/// An address moved on to a place along an axis, or to the last one.
fn moved(asm: &mut Asm, (at, size): (Reg, i64), place: Reg, (stride, extent): (i64, i64)) -> Reg {
    if stride == 0 {
        return at;
    }
    let place = made(asm, Class::Word, "min.s32", format_args!("{place}, {}", extent - 1));
    let wide = made(asm, Class::Long, "cvt.s64.s32", place);
    made(asm, Class::Long, "mad.lo.s64", format_args!("{wide}, {}, {at}", stride * size))
}

/// A score with its bias, or hidden where its mask does not hold.
pub(super) fn joined(asm: &mut Asm, (extra, dtype): (&ScoreOperand, DType), s: Reg, at: Reg) {
    if extra.mask {
        let x = made(asm, Class::Word, "ld.global.nc.u8", format_args!("[{at}]"));
        let p = made(asm, Class::Pred, "setp.ne.s32", format_args!("{x}, 0"));
        asm.emit(format_args!("selp.f32 {s}, {s}, {LEAST}, {p}"));
        return;
    }
    let load = format!("ld.global.nc.{}", memory(dtype));
    let x = made(asm, class(dtype), &load, format_args!("[{at}]"));
    let wide = convert(asm, x, dtype, DType::F32);
    asm.emit(format_args!("add.rn.f32 {s}, {s}, {wide}"));
}

/// A number of the four threads that share a line, joined.
pub(super) fn across(emit: &mut Emit<'_>, op: &str, mut x: Reg) -> Reg {
    for bits in [1, 2] {
        let other = emit.exchanged(x, bits);
        x = made(&mut emit.asm, Class::Single, op, format_args!("{x}, {other}"));
    }
    x
}
