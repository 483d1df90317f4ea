//! Scores in the registers of threads, in the order that defines attention: which are hidden, and what is added to them.

use super::scores::{LEAST, ScoreLines, extra_at, joined};
use super::thread_tile::{COLUMNS, LINES, ThreadPlace, ThreadScores};
use super::tile::{LineBounds, made};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention::{AttentionForm, ColumnSpan};
use crate::gpu::schedule::attention_tiles::{BLOCK, THREADS_ACROSS};
use crate::gpu::schedule::score_operand::ScoreOperand;

/// What changes no sum: times 0 it is -0.
pub(super) const ABSENT: &str = "0f80000000";

const ZERO: &str = "0f00000000";

/// How the scores of a pass by threads lie: lines are those that the block owns.
#[derive(Clone)]
pub(super) struct ThreadGrid<'a> {
    form: &'a AttentionForm,
    lines: ScoreLines,
    pub(super) place: ThreadPlace,
    /// The thread's first line, as a row or a key.
    pub(super) line: Reg,
    /// The rows that reach the block of keys that the lines are of.
    reaching: LineBounds,
    /// The mask or bias, and where the head has it.
    extra: Option<(ScoreOperand, Reg)>,
}

impl<'a> ThreadGrid<'a> {
    /// `first` is the first line of the block.
    pub(super) fn new(
        asm: &mut Asm,
        (form, lines): (&'a AttentionForm, ScoreLines),
        first: Reg,
    ) -> ThreadGrid<'a> {
        let place = ThreadPlace::new(asm);
        let line = made(asm, Class::Word, "add.s32", format_args!("{first}, {}", place.line));
        let reaching = match lines {
            ScoreLines::Rows => LineBounds::default(),
            ScoreLines::Keys => {
                let span = form.span(true);
                let block = made(asm, Class::Word, "and.b32", format_args!("{first}, {}", -BLOCK));
                let mut row = |far: i64| {
                    let row = made(asm, Class::Word, "add.s32", format_args!("{block}, {far}"));
                    made(asm, Class::Word, "max.s32", format_args!("{row}, 0"))
                };
                let from = span.low.map(&mut row);
                let to = span.high.map(|high| row(high + BLOCK));
                let to = to.map(|to| {
                    made(asm, Class::Word, "min.s32", format_args!("{to}, {}", form.rows))
                });
                LineBounds { from, to }
            }
        };
        ThreadGrid { form, lines, place, line, reaching, extra: None }
    }

    /// The same for a head, of which it is known where its mask or bias begins.
    pub(super) fn at_head(&self, emit: &mut Emit<'_>, head: Reg) -> ThreadGrid<'a> {
        let extra = self.form.extra.clone().map(|extra| {
            let at = extra_at(emit, &extra, head);
            (extra, at)
        });
        ThreadGrid { extra, ..self.clone() }
    }

    /// The rows that take part in the sums of the block's keys.
    pub(super) fn reaching(&self) -> LineBounds {
        self.reaching
    }

    /// The tile whose first column is `first`.
    pub(super) fn tile(&self, asm: &mut Asm, first: Reg) -> ThreadTile<'_> {
        let form = self.form;
        let column =
            made(asm, Class::Word, "add.s32", format_args!("{first}, {}", self.place.across));
        let columns = match self.lines {
            ScoreLines::Rows => form.stream,
            ScoreLines::Keys => form.rows,
        };
        let less = |asm: &mut Asm, x: String| made(asm, Class::Word, "sub.s32", x);
        let LineBounds { from, to } = self.reaching;
        let end = match to {
            None => (columns % BLOCK != 0).then(|| asm.word(columns)),
            Some(to) => Some(to),
        };
        let end = end.map(|end| less(asm, format!("{end}, {column}")));
        let begin = from.map(|row| less(asm, format!("{row}, {column}")));
        let own = form.is_limited().then(|| {
            std::array::from_fn(|i| {
                let line = made(asm, Class::Word, "add.s32", format_args!("{}, {i}", self.line));
                less(asm, format!("{line}, {column}"))
            })
        });
        ThreadTile { grid: self, first, column, end, begin, own }
    }
}

/// The part of a tile that a thread has. Columns are counted from its first one.
pub(super) struct ThreadTile<'a> {
    grid: &'a ThreadGrid<'a>,
    first: Reg,
    column: Reg,
    /// The column after the last one that takes part, where not all do, and the first one.
    end: Option<Reg>,
    begin: Option<Reg>,
    /// Of each line the column of its number.
    own: Option<[Reg; LINES]>,
}

impl ThreadTile<'_> {
    fn offset(j: usize) -> i64 {
        j as i64 * THREADS_ACROSS
    }

    /// A column of the thread, as a row or a key.
    pub(super) fn column_of(&self, asm: &mut Asm, j: usize) -> Reg {
        let to = ThreadTile::offset(j);
        asm.pure(Class::Word, "add.s32", format_args!("{}, {to}", self.column))
    }

    /// Whether a line, which is a row, takes part in this tile: whether it reaches the block of keys.
    pub(super) fn reaches(&self, asm: &mut Asm) -> [Option<Reg>; LINES] {
        let span = self.grid.form.span(false);
        std::array::from_fn(|i| {
            let mut place = |far: i64| {
                let line = format!("{}, {}", self.grid.line, far + i as i64);
                made(asm, Class::Word, "add.s32", line)
            };
            let last = span.high.map(&mut place);
            let first = span.low.map(|low| place(low + 1 - BLOCK));
            both_hold(asm, (last, "setp.ge"), (first, "setp.le"), &self.first.to_string())
        })
    }

    /// Whether a score is within its row's reach; `None` where all are.
    fn shown(&self, asm: &mut Asm, (i, j): (usize, usize)) -> Option<Reg> {
        let own = self.own?[i];
        let ColumnSpan { low, high } = self.grid.form.span(self.grid.lines == ScoreLines::Keys);
        let at = ThreadTile::offset(j);
        let test = |asm: &mut Asm, op: &str, far: i64, and: String| {
            made(asm, Class::Pred, op, format_args!("{own}, {}{and}", at - far))
        };
        match (low, high) {
            (None, None) => None,
            (Some(low), None) => Some(test(asm, "setp.le.s32", low, String::new())),
            (None, Some(high)) => Some(test(asm, "setp.ge.s32", high, String::new())),
            (Some(low), Some(high)) => {
                let p = test(asm, "setp.le.s32", low, String::new());
                Some(test(asm, "setp.ge.and.s32", high, format!(", {p}")))
            }
        }
    }

    /// Whether a column is there for the sums; `None` where all are.
    fn counts(&self, asm: &mut Asm, j: usize) -> Option<Reg> {
        let at = ThreadTile::offset(j);
        let test = |asm: &mut Asm, op: &str, limit: Reg| {
            made(asm, Class::Pred, op, format_args!("{limit}, {at}"))
        };
        match (self.begin, self.end) {
            (None, None) => None,
            (Some(begin), None) => Some(test(asm, "setp.le.s32", begin)),
            (None, Some(end)) => {
                Some(made(asm, Class::Pred, "setp.ge.s32", format_args!("{end}, {}", at + 1)))
            }
            (Some(begin), Some(end)) => {
                let before = test(asm, "setp.le.s32", begin);
                let within = format!("{end}, {}, {before}", at + 1);
                Some(made(asm, Class::Pred, "setp.ge.and.s32", within))
            }
        }
    }

    /// Where a score has its mask or bias; what does not exist has that of the last place.
    fn extra_at(&self, asm: &mut Asm, (i, j): (usize, usize)) -> Option<(&ScoreOperand, Reg)> {
        let form = self.grid.form;
        let (extra, base) = self.grid.extra.as_ref()?;
        let (of_line, of_column) = match self.grid.lines {
            ScoreLines::Rows => ((extra.row, form.rows), (extra.key, form.stream)),
            ScoreLines::Keys => ((extra.key, form.stream), (extra.row, form.rows)),
        };
        let line = asm.pure(Class::Word, "add.s32", format_args!("{}, {i}", self.grid.line));
        let at = along(asm, (*base, extra.size), line, of_line);
        let column = self.column_of(asm, j);
        Some((extra, along(asm, (at, extra.size), column, of_column)))
    }

    /// Adds the bias of all scores, or hides what the mask and places hide, and what does not exist.
    pub(super) fn hide(&self, asm: &mut Asm, scores: &ThreadScores) {
        each(|i, j| {
            let s = scores[i][j];
            if let Some((extra, at)) = self.extra_at(asm, (i, j)) {
                joined(asm, (extra, self.grid.form.dtype), s, at);
            }
            let shown = self.shown(asm, (i, j));
            let counts = self.counts(asm, j);
            for p in [shown, counts].into_iter().flatten() {
                asm.emit(format_args!("selp.f32 {s}, {s}, {LEAST}, {p}"));
            }
        });
    }

    /// Adds the bias of all scores.
    pub(super) fn add_bias(&self, asm: &mut Asm, scores: &ThreadScores) {
        if self.grid.extra.as_ref().is_none_or(|(extra, _)| extra.mask) {
            return;
        }
        each(|i, j| {
            if let Some((extra, at)) = self.extra_at(asm, (i, j)) {
                joined(asm, (extra, self.grid.form.dtype), scores[i][j], at);
            }
        });
    }

    /// Weights or cotangents of scores: 0 where a score is hidden.
    pub(super) fn gate(&self, asm: &mut Asm, scores: &ThreadScores) {
        each(|i, j| {
            let s = scores[i][j];
            if let Some(p) = self.shown(asm, (i, j)) {
                asm.emit(format_args!("selp.f32 {s}, {s}, {ZERO}, {p}"));
            }
            if self.grid.extra.as_ref().is_some_and(|(extra, _)| extra.mask)
                && let Some((_, at)) = self.extra_at(asm, (i, j))
            {
                let x = made(asm, Class::Word, "ld.global.nc.u8", format_args!("[{at}]"));
                let p = made(asm, Class::Pred, "setp.ne.s32", format_args!("{x}, 0"));
                asm.emit(format_args!("selp.f32 {s}, {s}, {ZERO}, {p}"));
            }
        });
    }

    /// Takes weights or cotangents of columns that are not there out of the sums.
    pub(super) fn leave_out(&self, asm: &mut Asm, scores: &ThreadScores) {
        for j in 0..COLUMNS {
            if let Some(p) = self.counts(asm, j) {
                for s in scores.iter().map(|line| line[j]) {
                    asm.emit(format_args!("selp.f32 {s}, {s}, {ABSENT}, {p}"));
                }
            }
        }
    }
}

/// Whether up to two comparisons of registers with the same number hold; `None` where there is none.
fn both_hold(
    asm: &mut Asm,
    (x, op): (Option<Reg>, &str),
    (y, other): (Option<Reg>, &str),
    with: &str,
) -> Option<Reg> {
    let test = |asm: &mut Asm, x: Reg, op: &str| {
        made(asm, Class::Pred, &format!("{op}.s32"), format_args!("{x}, {with}"))
    };
    let p = x.map(|x| test(asm, x, op));
    match (p, y) {
        (Some(p), Some(y)) => {
            let both = format!("{y}, {with}, {p}");
            Some(made(asm, Class::Pred, &format!("{other}.and.s32"), both))
        }
        (p, y) => p.or_else(|| y.map(|y| test(asm, y, other))),
    }
}

/// An address moved on to a place along an axis, or to the last one.
fn along(asm: &mut Asm, (at, size): (Reg, i64), place: Reg, (stride, extent): (i64, i64)) -> Reg {
    if stride == 0 {
        return at;
    }
    let place = asm.pure(Class::Word, "min.s32", format_args!("{place}, {}", extent - 1));
    let wide = asm.pure(Class::Long, "cvt.s64.s32", place);
    asm.pure(Class::Long, "mad.lo.s64", format_args!("{wide}, {}, {at}", stride * size))
}

/// Goes over all scores of a thread.
pub(super) fn each(mut f: impl FnMut(usize, usize)) {
    for i in 0..LINES {
        (0..COLUMNS).for_each(|j| f(i, j));
    }
}
