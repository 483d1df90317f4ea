//! Tiles in shared memory, copies into them, and what matrix units multiply of them.

pub(super) use crate::gpu::ptx::asm::made;
use crate::gpu::ptx::asm::{Asm, Class, Reg, guard_prefix};
use crate::gpu::ptx::mma::{ldmatrix, multiplied};
use crate::gpu::schedule::attention::{AttentionForm, UNIT};
use crate::gpu::schedule::attention_tiles::FloatTile;
use crate::gpu::schedule::mma_unit::Unit;
use adfuse_ir::DType;

/// Bytes of an element that matrix units multiply.
const SIZE: i64 = 2;
/// Bytes that one copy has.
const COPY: i64 = 16;

/// Lines of 16-bit floats, or of `f32`, in shared memory.
#[derive(Clone, Copy)]
pub(super) struct SharedTile {
    /// Bytes before it.
    pub(super) at: i64,
    pub(super) lines: i64,
    /// Elements of a line in memory, and in the tile.
    pub(super) elements: i64,
    pub(super) padded: i64,
    /// Bytes from one line to the next, and of an element.
    pub(super) pitch: i64,
    size: i64,
}

impl SharedTile {
    pub(super) fn new(at: i64, lines: i64, elements: i64) -> SharedTile {
        let (padded, pitch) = (AttentionForm::padded(elements), AttentionForm::pitch(elements));
        SharedTile { at, lines, elements, padded, pitch, size: SIZE }
    }

    pub(super) fn floats(tile: &FloatTile) -> SharedTile {
        let &FloatTile { at, lines, elements } = tile;
        SharedTile { at, lines, elements, padded: elements, pitch: tile.pitch(), size: 4 }
    }

    /// The first byte after it.
    pub(super) fn end(&self) -> i64 {
        self.at + self.lines * self.pitch
    }

    /// Where it begins, as an address in shared memory.
    pub(super) fn address(&self, asm: &mut Asm) -> Reg {
        let base = asm.pure(Class::Word, "mov.u32", "dynamic");
        asm.pure(Class::Word, "add.s32", format_args!("{base}, {}", self.at))
    }

    /// Where the calling thread reads what a warp loads together: line `lane % 16` of `own` lines each warp, 16 bytes
    /// further for the upper lanes.
    pub(super) fn left(&self, asm: &mut Asm, own: Option<(Reg, i64)>) -> Reg {
        let lane = lane(asm);
        let line = asm.pure(Class::Word, "and.b32", format_args!("{lane}, 15"));
        let upper = asm.pure(Class::Word, "shr.u32", format_args!("{lane}, 4"));
        self.thread_place(asm, own, line, upper)
    }

    /// The same for operands whose lines are the columns of a product: the upper lanes have the next eight lines.
    pub(super) fn right(&self, asm: &mut Asm) -> Reg {
        let lane = lane(asm);
        let low = asm.pure(Class::Word, "and.b32", format_args!("{lane}, 7"));
        let upper = asm.pure(Class::Word, "shr.u32", format_args!("{lane}, 4"));
        let line = asm.pure(Class::Word, "mad.lo.s32", format_args!("{upper}, 8, {low}"));
        let further = asm.pure(Class::Word, "bfe.u32", format_args!("{lane}, 3, 1"));
        self.thread_place(asm, None, line, further)
    }

    /// 16 lines by 16 elements as the left operand of a product: the tile `i` of a warp's lines, `k` along the depth, where
    /// the calling thread reads at an address of [`SharedTile::left`].
    pub(super) fn fragment(&self, asm: &mut Asm, at: Reg, (i, k): (usize, usize)) -> [Reg; 4] {
        ldmatrix(asm, at, i as i64 * UNIT * self.pitch + k as i64 * UNIT * SIZE, false)
    }

    fn thread_place(&self, asm: &mut Asm, own: Option<(Reg, i64)>, line: Reg, further: Reg) -> Reg {
        let base = self.address(asm);
        let pitch = self.pitch;
        let at = asm.pure(Class::Word, "mad.lo.s32", format_args!("{line}, {pitch}, {base}"));
        let at = asm.pure(Class::Word, "mad.lo.s32", format_args!("{further}, 16, {at}"));
        match own {
            None => at,
            Some((warp, lines)) => {
                let each = lines * pitch;
                asm.pure(Class::Word, "mad.lo.s32", format_args!("{warp}, {each}, {at}"))
            }
        }
    }
}

/// The tile that a block is at.
#[derive(Clone, Copy)]
pub(super) struct TileTurn {
    /// The first line of the tile.
    pub(super) first: Reg,
    /// Bytes before the stage that has it.
    pub(super) stage: Reg,
    /// Where places may hide scores.
    pub(super) hidden: HiddenEnds,
}

/// At which ends places may hide scores of a tile: before the columns that a line sees, and after them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct HiddenEnds {
    pub(super) low: bool,
    pub(super) high: bool,
}

impl HiddenEnds {
    pub(super) fn any(self) -> bool {
        self.low || self.high
    }
}

impl TileTurn {
    /// An address of the first stage, in the stage of the tile.
    pub(super) fn at(self, asm: &mut Asm, address: Reg) -> Reg {
        made(asm, Class::Word, "add.s32", format_args!("{address}, {}", self.stage))
    }
}

/// The number of the calling thread in its warp.
pub(super) fn lane(asm: &mut Asm) -> Reg {
    let thread = asm.special("tid.x");
    asm.pure(Class::Word, "and.b32", format_args!("{thread}, 31"))
}

/// The number of the calling thread's warp.
pub(super) fn warp(asm: &mut Asm) -> Reg {
    let thread = asm.special("tid.x");
    asm.pure(Class::Word, "shr.u32", format_args!("{thread}, 5"))
}

/// Lines from one on, and up to another; all where there is none.
#[derive(Clone, Copy, Default)]
pub(super) struct LineBounds {
    pub(super) from: Option<Reg>,
    pub(super) to: Option<Reg>,
}

/// How the threads of a block copy lines of an operand into a tile: neighbours copy neighbouring pieces of a line.
pub(super) struct TileCopy {
    tile: SharedTile,
    /// Lines that there are in memory.
    lines: i64,
    /// The thread's piece of its first line: in memory, where that is line 0, and in the tile.
    from: Reg,
    to: Reg,
    /// The thread's first line in the tile.
    line: Reg,
    /// Lines that all threads copy in one turn, and turns.
    turn: i64,
    turns: i64,
    /// Whether the thread copies at all, and whether its piece is of the operand, where not all threads do.
    copies: Option<Reg>,
    inside: Option<Reg>,
}

impl TileCopy {
    /// `from` is where line 0 begins; there are `lines` of them.
    pub(super) fn new(
        asm: &mut Asm,
        tile: SharedTile,
        (from, lines): (Reg, i64),
        threads: i64,
    ) -> TileCopy {
        let thread = asm.special("tid.x");
        let pieces = tile.padded * tile.size / COPY;
        // A power of two divides the threads of a block.
        let columns = pieces.unsigned_abs().next_power_of_two() as i64;
        let turn = threads / columns;
        let column = asm.pure(Class::Word, "and.b32", format_args!("{thread}, {}", columns - 1));
        let shift = columns.trailing_zeros();
        let line = asm.pure(Class::Word, "shr.u32", format_args!("{thread}, {shift}"));
        let of = |asm: &mut Asm, x: Reg, most: i64| {
            asm.pure(Class::Pred, "setp.lt.s32", format_args!("{x}, {most}"))
        };
        let covers = (columns > pieces).then(|| of(asm, column, pieces));
        let exists = (turn > tile.lines).then(|| of(asm, line, tile.lines));
        let copies = match (covers, exists) {
            (Some(p), Some(q)) => Some(asm.pure(Class::Pred, "and.pred", format_args!("{p}, {q}"))),
            (p, q) => p.or(q),
        };
        let full = tile.elements * tile.size / COPY;
        let inside = (full < pieces).then(|| of(asm, column, full));
        let each = tile.elements * tile.size;
        let piece = asm.pure(Class::Word, "mul.lo.s32", format_args!("{column}, {COPY}"));
        let at = asm.pure(Class::Word, "mad.lo.s32", format_args!("{line}, {each}, {piece}"));
        let at = asm.pure(Class::Long, "cvt.u64.u32", at);
        let from = asm.pure(Class::Long, "add.s64", format_args!("{from}, {at}"));
        let base = tile.address(asm);
        let to = asm.pure(Class::Word, "add.s32", format_args!("{base}, {piece}"));
        let to = asm.pure(Class::Word, "mad.lo.s32", format_args!("{line}, {}, {to}", tile.pitch));
        let turns = (tile.lines + turn - 1) / turn;
        TileCopy { tile, lines, from, to, line, turn, turns, copies, inside }
    }

    /// Begins to copy lines from one on into a stage, which is this many bytes in. What is beyond the operand is 0.
    pub(super) fn copy(&self, asm: &mut Asm, first: Reg, stage: Option<Reg>) {
        self.copy_within(asm, (first, LineBounds::default()), stage);
    }

    /// The same, where lines that are not within bounds are 0 too. No bound is beyond the operand.
    pub(super) fn copy_within(
        &self,
        asm: &mut Asm,
        (first, bounds): (Reg, LineBounds),
        stage: Option<Reg>,
    ) {
        // Of no lines there may be no memory.
        if self.lines == 0 {
            return;
        }
        let each = self.tile.elements * self.tile.size;
        let from =
            made(asm, Class::Long, "mad.wide.s32", format_args!("{first}, {each}, {}", self.from));
        let to = match stage {
            None => self.to,
            Some(stage) => made(asm, Class::Word, "add.s32", format_args!("{}, {stage}", self.to)),
        };
        let ragged = self.lines % self.tile.lines != 0;
        let LineBounds { from: since, to: until } = bounds;
        let place = (ragged || since.is_some() || until.is_some())
            .then(|| made(asm, Class::Word, "add.s32", format_args!("{first}, {}", self.line)));
        let [before, after] = [since, until].map(|bound| {
            place.zip(bound).map(|(place, bound)| {
                made(asm, Class::Word, "sub.s32", format_args!("{bound}, {place}"))
            })
        });
        let when = guard_prefix(self.copies);
        for k in 0..self.turns {
            let line = k * self.turn;
            let valid = place.map(|place| {
                let (op, test) = match after {
                    None => ("setp.lt.s32", format!("{place}, {}", self.lines - line)),
                    Some(n) => ("setp.gt.s32", format!("{n}, {line}")),
                };
                made(asm, Class::Pred, op, test)
            });
            let valid = match (before, valid) {
                (Some(n), Some(p)) => {
                    let test = format!("{n}, {line}, {p}");
                    Some(made(asm, Class::Pred, "setp.le.and.s32", test))
                }
                (_, valid) => valid,
            };
            let valid = match (valid, self.inside) {
                (Some(p), Some(q)) => {
                    Some(made(asm, Class::Pred, "and.pred", format_args!("{p}, {q}")))
                }
                (p, q) => p.or(q),
            };
            let size = match valid {
                None => String::new(),
                Some(p) => {
                    let size = made(asm, Class::Word, "selp.b32", format_args!("{COPY}, 0, {p}"));
                    format!(", {size}")
                }
            };
            let (out, inn) = (line * self.tile.pitch, line * each);
            asm.emit(format_args!(
                "{when}cp.async.cg.shared.global [{to}+{out}], [{from}+{inn}], {COPY}{size}"
            ));
        }
    }
}

/// Sums of a warp, or scores: 16 x 8 of them in four registers of each thread, tile after tile.
pub(super) struct Accumulators {
    regs: Vec<Reg>,
    /// Tiles of 16 lines, and of 8 columns.
    pub(super) tall: usize,
    pub(super) wide: usize,
}

impl Accumulators {
    /// Zeros.
    pub(super) fn zeros(asm: &mut Asm, tall: i64, columns: i64) -> Accumulators {
        let sums = Accumulators::fresh(asm, tall, columns);
        for r in &sums.regs {
            asm.emit(format_args!("mov.b32 {r}, 0f00000000"));
        }
        sums
    }

    /// Registers that a product will have written.
    pub(super) fn fresh(asm: &mut Asm, tall: i64, columns: i64) -> Accumulators {
        let (tall, wide) = (tall as usize, (columns / 8) as usize);
        let regs = (0..tall * wide * 4).map(|_| asm.fresh(Class::Single)).collect();
        Accumulators { regs, tall, wide }
    }

    /// Registers for sums of 16 lines and this many columns, rounded, as the left operand of a product.
    pub(super) fn units(asm: &mut Asm, columns: i64) -> Vec<[Reg; 4]> {
        (0..columns / UNIT).map(|_| [0; 4].map(|_| asm.fresh(Class::Word))).collect()
    }

    /// All registers, tile after tile.
    pub(super) fn all(&self) -> &[Reg] {
        &self.regs
    }

    /// The four of a tile: two columns of a line, and those of the line 8 below.
    pub(super) fn tile(&self, i: usize, j: usize) -> [Reg; 4] {
        let at = (i * self.wide + j) * 4;
        [self.regs[at], self.regs[at + 1], self.regs[at + 2], self.regs[at + 3]]
    }

    /// The two of a tile in the upper line (0) or the lower one (1).
    pub(super) fn pair(&self, i: usize, j: usize, half: usize) -> [Reg; 2] {
        let all = self.tile(i, j);
        [all[2 * half], all[2 * half + 1]]
    }

    /// 16 x 16 of them as the left operand of a product, rounded.
    pub(super) fn rounded(&self, asm: &mut Asm, dtype: DType, i: usize, k: usize) -> [Reg; 4] {
        let [left, right] = [self.tile(i, 2 * k), self.tile(i, 2 * k + 1)];
        [[left[0], left[1]], [left[2], left[3]], [right[0], right[1]], [right[2], right[3]]]
            .map(|pair| packed(asm, dtype, pair))
    }

    /// Rounds all of them, of 16 lines, into registers for a left operand.
    pub(super) fn round_to(&self, asm: &mut Asm, dtype: DType, units: &[[Reg; 4]]) {
        for (k, unit) in units.iter().enumerate() {
            let rounded = self.rounded(asm, dtype, 0, k);
            unit.iter().zip(rounded).for_each(|(&to, from)| asm.set(to, from));
        }
    }

    /// Multiplies the lines by a number each.
    pub(super) fn scale(&self, asm: &mut Asm, scales: &[[Reg; 2]]) {
        for (i, pair) in scales.iter().enumerate() {
            for (half, scale) in pair.iter().enumerate() {
                for x in (0..self.wide).flat_map(|j| self.pair(i, j, half)) {
                    asm.emit(format_args!("mul.rn.f32 {x}, {x}, {scale}"));
                }
            }
        }
    }
}

/// Two numbers as 16-bit floats of one register, the first in the lower half.
pub(super) fn packed(asm: &mut Asm, dtype: DType, [low, high]: [Reg; 2]) -> Reg {
    let name = dtype.name();
    made(asm, Class::Word, &format!("cvt.rn.{name}x2.f32"), format_args!("{high}, {low}"))
}

/// The right operand of a product: where the calling thread reads it, the bytes from line to line, and whether its lines
/// are the columns of the product, or else places along the depth.
#[derive(Clone, Copy)]
pub(super) struct RightOperand {
    pub(super) at: Reg,
    pub(super) pitch: i64,
    pub(super) columns: bool,
}

/// Adds a product, whose depth has this many units of 16, to sums.
pub(super) fn multiply(
    asm: &mut Asm,
    unit: Unit,
    sums: &Accumulators,
    left: &mut dyn FnMut(&mut Asm, usize, usize) -> [Reg; 4],
    (right, depth): (RightOperand, i64),
) {
    for k in 0..depth {
        let a: Vec<[Reg; 4]> = (0..sums.tall).map(|i| left(asm, i, k as usize)).collect();
        for j in 0..sums.wide / 2 {
            let (line, along) = if right.columns { (j as i64, k) } else { (k, j as i64) };
            let offset = line * UNIT * right.pitch + along * UNIT * SIZE;
            let b = ldmatrix(asm, right.at, offset, !right.columns);
            for (i, a) in a.iter().enumerate() {
                for half in 0..2 {
                    let b = [b[2 * half], b[2 * half + 1]];
                    multiplied(asm, unit, &sums.tile(i, 2 * j + half), a, b);
                }
            }
        }
    }
}
