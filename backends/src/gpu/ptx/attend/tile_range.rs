//! Which tiles a block goes over, and which of them hide scores by their places.

use super::tile::{HiddenEnds, made};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::schedule::attention::{AttentionForm, AttentionTile, ColumnSpan};
use smallvec::SmallVec;

/// The tiles that a block goes over, by number: from `begin` to `end`, in up to three parts.
pub(super) struct TileRange {
    pub(super) begin: Reg,
    pub(super) end: Reg,
    parts: SmallVec<[TilePart; 3]>,
}

/// Some of the tiles that a block goes over.
#[derive(Clone, Copy)]
pub(super) struct TilePart {
    /// Where it begins and ends. It is empty where it begins after its end.
    pub(super) from: Reg,
    pub(super) to: Reg,
    /// Where places may hide scores of a tile.
    pub(super) hidden: HiddenEnds,
}

impl TileRange {
    /// The same with one tile at least, which may be hidden whole.
    pub(super) fn some(mut self, asm: &mut Asm) -> TileRange {
        let next = made(asm, Class::Word, "add.s32", format_args!("{}, 1", self.begin));
        self.end = made(asm, Class::Word, "max.s32", format_args!("{}, {next}", self.end));
        if let Some(last) = self.parts.last_mut() {
            last.to = self.end;
        }
        self
    }

    /// Where places may hide scores of any tile.
    pub(super) fn hidden(&self) -> HiddenEnds {
        let low = self.parts.iter().any(|part| part.hidden.low);
        HiddenEnds { low, high: self.parts.iter().any(|part| part.hidden.high) }
    }

    pub(super) fn parts(&self) -> impl DoubleEndedIterator<Item = TilePart> {
        self.parts.iter().copied()
    }
}

/// The tiles that the lines of a block see, of which `first` is the first; all of them where `whole`, of which any may be hidden where a
/// line's reach has an end. They are computed here, once: all threads of a block have the same, which takes none of their registers.
pub(super) fn tiles(
    asm: &mut Asm,
    (form, tile): (&AttentionForm, &AttentionTile),
    first: Reg,
    whole: bool,
) -> TileRange {
    let step = tile.step;
    let owns_keys = tile.pass.owns_keys();
    let (columns, lines) = match owns_keys {
        true => (form.rows, form.stream),
        false => (form.stream, form.rows),
    };
    // Rows that do not exist move nothing, but where a bias does not know of them.
    let is_ragged = columns % step != 0 && (!owns_keys || form.extra.is_some());
    let all = (columns + step - 1) / step;
    let part = |from: Reg, to: Reg, [low, high]: [bool; 2]| TilePart {
        from,
        to,
        hidden: HiddenEnds { low, high },
    };
    let takes_hidden = whole && form.is_limited();
    let ColumnSpan { low, high } = match takes_hidden {
        true => ColumnSpan { low: None, high: None },
        false => form.span(owns_keys),
    };
    let last = tile.own - 1;
    // The tile of the line that is this far from the first one; rounded up where lines are left over.
    let mut tile_of = |far: i64, up: bool| {
        let n = made(asm, Class::Word, "add.s32", format_args!("{first}, {far}"));
        let n = made(asm, Class::Word, "max.s32", format_args!("{n}, 0"));
        let n = made(asm, Class::Word, "min.s32", format_args!("{n}, {columns}"));
        let n = match up {
            false => n,
            true => made(asm, Class::Word, "add.s32", format_args!("{n}, {}", step - 1)),
        };
        made(asm, Class::Word, "div.s32", format_args!("{n}, {step}"))
    };
    let begin = low.map(|low| tile_of(low, false));
    let end = high.map(|high| tile_of(last + high + 1, true));
    // All lines see all of these columns, if there are any.
    let common = low.zip(high).map(|(low, high)| high - (last + low) + 1);
    let is_one = takes_hidden || common.is_some_and(|common| common < step);
    let low_seen = low.filter(|_| !is_one).map(|low| tile_of(last + low, true));
    let high_seen = high.filter(|_| !is_one).map(|high| tile_of(high + 1, false));
    let begin = begin.unwrap_or_else(|| asm.word(0));
    let end = end.unwrap_or_else(|| asm.word(all));
    if is_one {
        let parts = [part(begin, end, [true; 2])].into_iter().collect();
        return TileRange { begin, end, parts };
    }
    // The last line does not see all of the first tiles, and the first line not all of the last ones.
    let from = low_seen.unwrap_or(begin);
    let to = match high_seen {
        Some(to) => to,
        None if is_ragged => asm.word(columns / step),
        None => end,
    };
    let is_last = is_ragged && high.is_none_or(|high| lines - 1 + high >= columns);
    let mut parts = SmallVec::new();
    parts.extend(low.map(|_| part(begin, from, [true, is_last])));
    parts.push(part(from, to, [false; 2]));
    parts.extend((is_ragged || high.is_some()).then(|| part(to, end, [false, true])));
    TileRange { begin, end, parts }
}
