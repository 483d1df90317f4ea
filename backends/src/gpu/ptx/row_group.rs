//! Groups of neighbours of a row. Where its length is no multiple of a group, some elements of the last one are past the end.

use super::address::Vars;
use super::asm::{Class, Reg};
use super::elementwise::Neighbours;
use super::emit::{At, Emit};
use super::entry::Below;
use super::operands::{constant, select};
use super::partial_fold::neutral;
use super::row_point::Point;
use crate::gpu::schedule::index::{coordinates, range};
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Stage, volume};
use adfuse_ir::op::Monoid;

/// The neighbours of a group among those of a stage's row, where the group is, and which of them may be past the end.
pub(super) fn group(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    stage: &Stage,
    mut vars: Vars,
    place: &IndexExpr,
) -> (Below, Neighbours, Option<ShortGroup>) {
    let (width, n) = (p.layout.team.width, volume(&stage.axes));
    let here = emit.below(&mut vars, place, (n + width - 1) / width);
    let coords = |u: i64| {
        let mut at = p.domain.clone();
        at.extend(coordinates(&here.place.clone().times(width).plus(u), &stage.axes));
        at
    };
    let near = Neighbours { coords: (0..width).map(coords).collect(), vars };
    let short = ShortGroup::of(emit, (&here, &near), n, width);
    (here, near, short)
}

/// A group that may be the last one.
#[derive(Clone, Copy)]
pub(super) struct ShortGroup {
    /// Whether it is another one, with all of its elements.
    whole: Reg,
    /// Elements that the last one has.
    rest: usize,
}

impl ShortGroup {
    /// Of a row of `n` elements in groups of `width`; `None` where the group has all of its elements in any case.
    fn of(
        emit: &mut Emit<'_>,
        (here, near): (&Below, &Neighbours),
        n: i64,
        width: i64,
    ) -> Option<ShortGroup> {
        let (groups, rest) = (n / width, (n % width) as usize);
        let (_, most) = range(&here.place, &near.vars.extents);
        if rest == 0 || most < i128::from(groups) {
            return None;
        }
        let number = emit.asm.narrow(here.number);
        let test = format_args!("{number}, {groups}");
        Some(ShortGroup { whole: emit.asm.pure(Class::Pred, "setp.lt.s32", test), rest })
    }

    /// Where its elements are read: for those past the end the last element of the row.
    pub(super) fn read_at(
        &self,
        emit: &mut Emit<'_>,
        p: &Point<'_>,
        (here, near): (&Below, &mut Neighbours),
        axes: &[i64],
    ) -> Vec<Vec<IndexExpr>> {
        let (width, n) = (near.coords.len(), volume(axes));
        let number = emit.asm.narrow(here.number);
        let mut found = near.coords[..self.rest].to_vec();
        for u in self.rest..width {
            let place = format_args!("{number}, {width}, {u}").to_string();
            let place = emit.asm.pure(Class::Word, "mad.lo.s32", place);
            let last = format_args!("{place}, {}", n - 1).to_string();
            let place = emit.asm.pure(Class::Word, "min.s32", last);
            let mut at = p.domain.clone();
            at.extend(coordinates(&near.vars.push(place, n), axes));
            found.push(at);
        }
        found
    }

    /// Values of its elements; those past the end change nothing that they are folded with.
    pub(super) fn within(
        &self,
        emit: &mut Emit<'_>,
        (monoid, dtype): (Monoid, DType),
        values: &[Reg],
    ) -> Vec<Reg> {
        let empty = constant(&mut emit.asm, neutral(monoid, dtype));
        let of = |(u, &value): (usize, &Reg)| match u < self.rest {
            true => value,
            false => select(&mut emit.asm, self.whole, value, empty),
        };
        values.iter().enumerate().map(of).collect()
    }

    /// Stores its elements one by one: a vector would go beyond the row.
    pub(super) fn store(
        &self,
        emit: &mut Emit<'_>,
        (buffer, index): (Buffer, &[IndexExpr]),
        values: &[Reg],
        (near, when): (&Neighbours, Option<Reg>),
    ) {
        let whole = emit.all(when, Some(self.whole));
        for (u, (&value, coords)) in values.iter().zip(&near.coords).enumerate() {
            let when = if u < self.rest { when } else { whole };
            emit.store(buffer, index, value, &At { vars: &near.vars, coords }, when);
        }
    }
}
