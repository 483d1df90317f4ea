//! The multiplications of one step: descriptors of operands in shared memory, and `wgmma` over the depth.
//!
//! Formats: PTX ISA, "Asynchronous warpgroup level matrix instructions", matrix descriptors and the 128-byte swizzle.

use super::WarpgroupKernel;
use super::ring::Ring;
use super::sums::Sums;
use crate::gpu::ptx::asm::{Asm, Class, Reg, made};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::ptx::mbarrier::RingPlace;
use crate::gpu::schedule::mapped_operand::LINE;
use crate::gpu::schedule::warpgroup_tile::TALL;
use adfuse_ir::DType;

/// Bytes of the depth that one instruction takes.
const TAKEN: i64 = 32;
/// Bytes of the square of 8 lines by 128 bytes after which the pattern of banks repeats.
const SQUARE: i64 = 8 * LINE;
/// The 128-byte swizzle in a descriptor.
const SWIZZLE_128: i64 = 1 << 62;

impl WarpgroupKernel<'_> {
    /// The descriptors of the operands of a warpgroup in the first stage.
    pub(super) fn descriptors(&self, emit: &mut Emit<'_>, ring: &Ring) -> [Reg; 2] {
        let asm = &mut emit.asm;
        let [rows, _] = self.tile.side;
        let group = self.group(asm);
        // Where warpgroups share a tile, each has its own rows.
        let own = (self.tile.sharers() - 1) * self.tile.tall() * TALL * LINE;
        let lhs =
            asm.pure(Class::Word, "mad.lo.u32", format_args!("{group}, {own}, {}", ring.base));
        let rhs = asm.pure(Class::Word, "add.u32", format_args!("{}, {}", ring.base, rows * LINE));
        [(lhs, 0), (rhs, 1)].map(|(place, side)| {
            // Bytes from one square to the next: along the depth where neighbours lie along lines, and otherwise along lines;
            // and from 64 neighbours along a line to the next.
            let apart = if self.form.operands[side].along { 16 } else { TALL * LINE };
            let fixed = SWIZZLE_128 | (SQUARE >> 4) << 32 | (apart >> 4) << 16;
            let place = made(asm, Class::Word, "and.b32", format_args!("{place}, 262143"));
            let place = made(asm, Class::Word, "shr.u32", format_args!("{place}, 4"));
            let place = made(asm, Class::Long, "cvt.u64.u32", place);
            made(asm, Class::Long, "or.b64", format_args!("{place}, {fixed}"))
        })
    }

    /// Adds the products of a stage to the sums; where `later` does not hold, the sums begin with them.
    pub(super) fn multiply(
        &self,
        asm: &mut Asm,
        sums: &Sums,
        operands: [Reg; 2],
        at: &RingPlace,
        later: Reg,
    ) {
        let bytes = self.tile.stage() >> 4;
        let [lhs, rhs] = operands.map(|first| {
            made(asm, Class::Long, "mad.wide.u32", format_args!("{}, {bytes}, {first}", at.stage))
        });
        let dtype = self.form.dtype;
        let deep = TAKEN / dtype.bytes() as i64;
        let form = match dtype {
            DType::F16 => "f32.f16.f16",
            DType::F32 => "f32.tf32.tf32",
            _ => "f32.bf16.bf16",
        };
        let cols = self.tile.side[1];
        let turned = [0, 1].map(|side| i64::from(!self.form.operands[side].along));
        // Operands of 32 bits are never turned, and the instruction does not say so.
        let layout = match dtype {
            DType::F32 => String::new(),
            _ => format!(", {}, {}", turned[0], turned[1]),
        };
        let always = asm.truth(true);
        // Bytes of one instruction's elements of the depth, from one to the next.
        let apart = turned.map(|turned| if turned == 1 { deep * LINE } else { TAKEN });
        for k in 0..LINE / TAKEN {
            let moved = |asm: &mut Asm, from: Reg, by: i64| match by {
                0 => from,
                by => made(asm, Class::Long, "add.s64", format_args!("{from}, {}", by >> 4)),
            };
            let right = moved(asm, rhs, k * apart[1]);
            for (i, regs) in (0i64..).zip(&sums.regs) {
                let left = moved(asm, lhs, i * TALL * LINE + k * apart[0]);
                let regs: Vec<String> = regs.iter().map(Reg::to_string).collect();
                let adds = if k == 0 { later } else { always };
                asm.emit(format_args!(
                    "wgmma.mma_async.sync.aligned.m64n{cols}k{deep}.{form} {{{}}}, {left}, {right}, {adds}, 1, 1{layout}",
                    regs.join(", ")
                ));
            }
        }
    }
}
