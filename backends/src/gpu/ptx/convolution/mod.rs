//! Products with windows: boxes of the operands come to shared memory some steps ahead, and warps multiply what windows of them
//! have by tensor cores.

mod copies;
mod finish;
mod multiply;
mod shared_words;
mod staging;
mod words;

use super::address::{Vars, resolved, value};
use super::asm::{Class, Reg};
use super::emit::Emit;
use super::entry::{Out, begun};
use super::matmul::{DepthParts, added};
use super::operands::constant;
use crate::gpu::schedule::convolution::NEAR;
use crate::gpu::schedule::grid::Grid;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::product::ScheduledWindows;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::shape::axes;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Stage, volume};
use adfuse_ir::{DType, Diagnostic, Literal};

/// What one launch knows.
struct WindowKernel<'p> {
    product: &'p ScheduledWindows,
    vars: Vars,
    thread: IndexExpr,
    /// The coordinates of the batch, and the numbers of the tile along rows and columns.
    batch: Vec<IndexExpr>,
    tile: [Vec<IndexExpr>; 2],
    /// The part of the depth.
    part: IndexExpr,
}

/// Launches a product with windows.
pub(crate) fn product(
    s: &GpuSchedule,
    out: &mut Out,
    product: &ScheduledWindows,
) -> Result<(), Diagnostic> {
    let ScheduledWindows { member: m, tile, tiling, parts, .. } = product;
    let mut emit = begun(s, out);
    let kernel = WindowKernel::begun(&mut emit, product);
    let sums = kernel.sums(&mut emit);
    match parts {
        None => kernel.finish(&mut emit, &sums, &m.then),
        Some(to) => {
            let then = Stage::storing(DType::F32, *to, DType::F32, axes(4));
            kernel.finish(&mut emit, &sums, &then);
        }
    }
    let blocks = tiling.blocks(m).saturating_mul(tile.parts);
    let grid = Grid { threads: tiling.threads, resident: tile.resident };
    let shared = u32::try_from(tile.stages * tiling.stage()).unwrap_or(u32::MAX);
    out.launch(&s.homes, emit, blocks, grid, shared)?;
    match *parts {
        None => Ok(()),
        Some(from) => {
            added(s, out, m, DepthParts { from, count: tile.parts, combine: tile.combine })
        }
    }
}

impl<'p> WindowKernel<'p> {
    fn begun(emit: &mut Emit<'_>, product: &'p ScheduledWindows) -> WindowKernel<'p> {
        let ScheduledWindows { member: m, tile, tiling, .. } = product;
        let mut vars = Vars::default();
        let blocks = tiling.blocks(m).saturating_mul(tile.parts);
        let block = emit.asm.special("ctaid.x");
        let block = vars.push(block, blocks);
        let thread = emit.asm.special("tid.x");
        let thread = vars.push(thread, tiling.threads);
        let mut extents = m.batch.to_vec();
        extents.push(tile.parts);
        extents.extend(tiling.tiles[0].iter().chain(&tiling.tiles[1]));
        // Each number in a register of its own, so that what is made of it stays short.
        let numbers: Vec<IndexExpr> = coordinates(&block, &extents)
            .iter()
            .zip(&extents)
            .map(|(e, &n)| {
                let e = resolved(e, &emit.same(&vars), &vars);
                let number = value(&mut emit.asm, &e, &vars, &[]);
                let number = emit.asm.narrow(number);
                vars.push(number, n)
            })
            .collect();
        let (batch, rest) = numbers.split_at(m.batch.len());
        let (part, rest) = rest.split_at(1);
        let (rows, cols) = rest.split_at(tiling.tiles[0].len());
        WindowKernel {
            product,
            thread,
            batch: batch.to_vec(),
            tile: [rows.to_vec(), cols.to_vec()],
            part: part[0].clone(),
            vars,
        }
    }

    /// An expression of the launch's variables in a register.
    fn number(&self, emit: &mut Emit<'_>, e: &IndexExpr, vars: &Vars) -> Reg {
        let e = resolved(e, &emit.same(vars), vars);
        value(&mut emit.asm, &e, vars, &[])
    }

    /// The sums of a thread: of each 16 rows and 8 columns, two neighbours of two rows.
    fn sums(&self, emit: &mut Emit<'_>) -> Vec<Reg> {
        let (tile, tiling) = (&self.product.tile, &self.product.tiling);
        let zero = constant(&mut emit.asm, Literal::zero(DType::F32));
        let sums: Vec<Reg> = (0..tiling.sums()).map(|_| emit.asm.copied(zero)).collect();
        let bases = [0, 1].map(|side| self.fragment_base(emit, side));
        let from = self.part.clone().times(tiling.per);
        let step = self.number(emit, &from, &self.vars);
        let step = emit.asm.copied(step);
        let end = emit.asm.fresh(Class::Word);
        emit.asm.emit(format_args!("add.s32 {end}, {step}, {}", tiling.per));
        emit.asm.emit(format_args!("min.s32 {end}, {end}, {}", tiling.steps));
        let bytes = tiling.stage();
        for k in 0..tile.stages - 1 {
            let stage = emit.asm.word(k * bytes);
            self.copy(emit, (step, k, end), stage);
        }
        // The stage that is read in this step, and the one that is free since the step before.
        let [read, free] = [0, (tile.stages - 1) * bytes].map(|at| {
            let at = emit.asm.word(at);
            emit.asm.copied(at)
        });
        let ahead = tile.ahead;
        self.read_once(emit);
        if ahead > 0 {
            emit.asm.emit(format_args!("cp.async.wait_group {}", tile.stages - 2));
            let now = self.staged_step(emit, (step, 0, end), read);
            self.compute_all(emit, &now);
        }
        let label = emit.asm.label();
        emit.asm.turn(&label);
        emit.asm.open();
        let now = match ahead {
            0 => self.staged_step(emit, (step, 0, end), read),
            _ => self.no_step(),
        };
        emit.asm.emit(format_args!("cp.async.wait_group {}", tile.stages - 2 - ahead));
        self.compute_all(emit, &now);
        emit.asm.emit("bar.sync 0");
        self.copy(emit, (step, tile.stages - 1, end), free);
        let next = match ahead {
            0 => self.no_step(),
            _ => {
                let stage = self.stage_after(emit, read);
                self.staged_step(emit, (step, 1, end), stage)
            }
        };
        self.multiply(emit, (bases, read), &sums, &next);
        emit.asm.set(free, read);
        let next = self.stage_after(emit, read);
        emit.asm.set(read, next);
        emit.asm.emit(format_args!("add.s32 {step}, {step}, 1"));
        emit.asm.close();
        let more = emit.asm.fresh(Class::Pred);
        emit.asm.emit(format_args!("setp.lt.s32 {more}, {step}, {end}"));
        emit.asm.emit(format_args!("@{more} bra {label}"));
        sums
    }

    /// The stage after another, in bytes.
    fn stage_after(&self, emit: &mut Emit<'_>, stage: Reg) -> Reg {
        let (bytes, stages) = (self.product.tiling.stage(), self.product.tile.stages);
        let [next, wrapped] = [0; 2].map(|_| emit.asm.fresh(Class::Word));
        emit.asm.emit(format_args!("add.s32 {next}, {stage}, {bytes}"));
        let wraps = emit.asm.fresh(Class::Pred);
        emit.asm.emit(format_args!("setp.eq.s32 {wraps}, {next}, {}", bytes * stages));
        emit.asm.emit(format_args!("selp.b32 {wrapped}, 0, {next}, {wraps}"));
        wrapped
    }

    /// Coordinates of the first group of a warp along each axis of rows or columns, in elements of the tile.
    fn of_warp(&self, side: usize) -> Vec<IndexExpr> {
        let (tile, tiling) = (&self.product.tile, &self.product.tiling);
        let warp = self.thread.clone().floor_div(32);
        let warp = match side {
            0 => warp.floor_div(tile.warps[1]),
            _ => warp.modulo(tile.warps[1]),
        };
        let first = warp.times(tiling.each[side]);
        debug_assert_eq!(volume(&tiling.groups[side]), tile.warps[side] * tiling.each[side]);
        let mut at = coordinates(&first, &tiling.groups[side]);
        let lane = tiling.lanes[side];
        at[lane] = at[lane].clone().times(NEAR);
        at
    }
}
