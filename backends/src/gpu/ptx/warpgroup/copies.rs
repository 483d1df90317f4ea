//! The copies that fill stages with the operands of tiles.

use super::WarpgroupKernel;
use super::ring::Ring;
use super::tile_place::TilePlace;
use crate::gpu::launches::{Arg, TensorMap};
use crate::gpu::ptx::address::{Vars, resolved, value};
use crate::gpu::ptx::asm::{Asm, Class, Reg, made};
use crate::gpu::ptx::emit::{Emit, EmitMap};
use crate::gpu::ptx::mbarrier::RingPlace;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::mapped_operand::{AxisPlace, AxisRun, LINE, MappedAxis, MappedOperand};
use adfuse_ir::kernel::volume;

/// The copies of an operand's tiles.
pub(super) struct OperandCopies {
    /// Where its tensor map is, of each term.
    maps: Vec<Reg>,
    /// The first line.
    line: Reg,
    /// Its axes in memory, with the place of the tile along those of the batch.
    axes: Vec<(MappedAxis, Option<Reg>)>,
    /// Bytes before what is copied in a stage; copies, the lines and bytes from one to the next.
    begin: Reg,
    count: i64,
    lines: i64,
    apart: i64,
    /// Whether a copy goes to all blocks of the cluster.
    shared: bool,
}

impl WarpgroupKernel<'_> {
    /// Where the operands of a tile are.
    pub(super) fn coordinates(&self, emit: &mut Emit<'_>, place: TilePlace) -> [OperandCopies; 2] {
        let size = self.form.dtype.bytes() as i64;
        let deep = LINE / size;
        let mut vars = Vars::default();
        let of_batch = vars.push(place.batch, volume(&self.member.batch));
        let batch = coordinates(&of_batch, &self.member.batch);
        let mut offset = 0;
        [0, 1].map(|side| {
            let operand = &self.form.operands[side];
            let lines = self.tile.side[side];
            // The blocks of a cluster have the same columns, and bring a part of them each.
            let shared = side == 1 && self.tile.cluster > 1;
            let own = if shared { lines / self.tile.cluster } else { lines };
            let terms = 0..self.form.terms();
            let maps = terms.map(|t| self.map_of(emit, (side, own), (place.member, t))).collect();
            let mut line = place.first[side];
            let mut begin = emit.asm.word(offset);
            if shared {
                let asm = &mut emit.asm;
                let rank = asm.special("cluster_ctarank");
                line = made(asm, Class::Word, "mad.lo.s32", format_args!("{rank}, {own}, {line}"));
                let args = format!("{rank}, {}, {offset}", own * LINE);
                begin = made(asm, Class::Word, "mad.lo.u32", args);
            }
            let places = operand.axes.iter().map(|axis| match axis.place {
                AxisPlace::Run(_) => (*axis, None),
                AxisPlace::Batch(k) => {
                    let e = resolved(&batch[k], &emit.same(&vars), &vars);
                    (*axis, Some(value(&mut emit.asm, &e, &vars, &[])))
                }
            });
            let axes = places.collect();
            let count = if operand.along { 1 } else { own / deep };
            let copies = OperandCopies {
                maps,
                line,
                axes,
                begin,
                count,
                lines: deep,
                apart: deep * LINE,
                shared,
            };
            offset += lines * LINE;
            copies
        })
    }

    /// The tensor map of the operand on a side: of the product that the tile is of, where products have different ones.
    fn map_of(
        &self,
        emit: &mut Emit<'_>,
        (side, lines): (usize, i64),
        (member, term): (Option<Reg>, usize),
    ) -> Reg {
        let own = self.form.operand(term, side);
        let first = self.map(emit, own, lines);
        let Some(member) = member else { return first };
        let mut found = first;
        for (k, one) in self.members.iter().enumerate() {
            let operand = one.form.operand(term, side);
            if operand == own {
                continue;
            }
            let map = self.map(emit, operand, lines);
            let asm = &mut emit.asm;
            let here = made(asm, Class::Pred, "setp.eq.s32", format_args!("{member}, {k}"));
            found = made(asm, Class::Long, "selp.b64", format_args!("{map}, {found}, {here}"));
        }
        found
    }

    /// The tensor map of an operand.
    fn map(&self, emit: &mut Emit<'_>, operand: &MappedOperand, lines: i64) -> Reg {
        let dtype = self.form.dtype;
        let deep = LINE / dtype.bytes() as i64;
        let bytes = |n: i64| n.unsigned_abs() * dtype.bytes();
        let map = TensorMap {
            arg: Arg::Position,
            offset: bytes(operand.first),
            dtype,
            extents: operand.axes.iter().map(|axis| axis.extent.unsigned_abs()).collect(),
            strides: operand.axes.iter().skip(1).map(|axis| bytes(axis.step)).collect(),
            tile: operand.tile(lines, deep),
        };
        emit.maps.push(EmitMap { buffer: operand.buffer, map });
        emit.asm.tensor_map(emit.maps.len() - 1)
    }

    /// The term that a step is of, where there are several, and its number in the term.
    fn term_of(&self, asm: &mut Asm, step: Reg) -> (Option<Reg>, Reg) {
        if self.form.terms() == 1 {
            return (None, step);
        }
        let each = self.form.term_steps();
        let term = made(asm, Class::Word, "div.u32", format_args!("{step}, {each}"));
        let rest = made(asm, Class::Word, "rem.u32", format_args!("{step}, {each}"));
        (Some(term), rest)
    }

    /// Begins the copies of one step.
    pub(super) fn copy(
        &self,
        emit: &mut Emit<'_>,
        ring: &Ring,
        at: &RingPlace,
        operands: &[OperandCopies; 2],
        step: Reg,
    ) {
        let asm = &mut emit.asm;
        let deep = LINE / self.form.dtype.bytes() as i64;
        let stage = ring.start(asm, at);
        let barrier = ring.full(asm, at);
        let (term, step) = self.term_of(asm, step);
        let depth = made(asm, Class::Word, "mul.lo.s32", format_args!("{step}, {deep}"));
        for operand in operands {
            let map = chosen(asm, &operand.maps, term);
            for k in 0..operand.count {
                let line = operand.line;
                let line = made(
                    asm,
                    Class::Word,
                    "add.s32",
                    format_args!("{line}, {}", k * operand.lines),
                );
                let places = operand.axes.iter().map(|(axis, batch)| match (axis.place, batch) {
                    (AxisPlace::Run(run), _) => {
                        let number = if run.depth { depth } else { line };
                        along_axis(asm, number, run, axis.extent)
                    }
                    (AxisPlace::Batch(_), batch) => batch.unwrap_or(depth),
                });
                let places: Vec<String> = places.map(|reg| reg.to_string()).collect();
                let to = format!("{stage}, {}", operand.begin);
                let to = made(asm, Class::Word, "add.u32", to);
                let to =
                    made(asm, Class::Word, "add.u32", format_args!("{to}, {}", k * operand.apart));
                let (rank, places) = (places.len(), places.join(", "));
                let copy = format!(
                    "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                );
                let what = format!("[{to}], [{map}, {{{places}}}], [{barrier}]");
                match operand.shared {
                    false => asm.emit(format_args!("{copy} {what}")),
                    true => {
                        let all = (1 << self.tile.cluster) - 1;
                        asm.emit(format_args!("{copy}.multicast::cluster {what}, {all}"));
                    }
                }
            }
        }
    }
}

/// The tensor map of a term.
fn chosen(asm: &mut Asm, maps: &[Reg], term: Option<Reg>) -> Reg {
    let mut found = maps[0];
    for (k, map) in maps.iter().enumerate().skip(1) {
        if let Some(term) = term {
            let here = made(asm, Class::Pred, "setp.eq.s32", format_args!("{term}, {k}"));
            found = made(asm, Class::Long, "selp.b64", format_args!("{map}, {found}, {here}"));
        }
    }
    found
}

/// Where a number of lines, or of elements of the depth, is along one of the axes that it counts.
fn along_axis(asm: &mut Asm, number: Reg, run: AxisRun, extent: i64) -> Reg {
    let outer = match run.below {
        1 => number,
        below => made(asm, Class::Word, "div.u32", format_args!("{number}, {below}")),
    };
    match run.outermost {
        true => outer,
        false => made(asm, Class::Word, "rem.u32", format_args!("{outer}, {extent}")),
    }
}
