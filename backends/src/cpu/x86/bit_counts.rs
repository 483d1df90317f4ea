//! Bit counts by a table of four bits: the required instruction sets have no instruction for them.

use super::inst::{Mem, VirtualOperand};
use super::isel::{AND, OR, OR_LONG, SHR, SHR_LONG, SUB_INT, SUB_LONG, pair};
use super::state::{BodyLowering, OpcodePair, ReadOperand};
use adfuse_ir::DType;
use iced_x86::Code;

/// How many bits are set in each number of four bits.
const SET: [u8; 16] = [0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4];

impl BodyLowering<'_> {
    /// How many bits of a number are set.
    pub(crate) fn ones(&mut self, d: DType, x: ReadOperand) -> ReadOperand {
        let x = if d == DType::I8 { self.wrapped_small_int(DType::U8, x) } else { x };
        let x = ReadOperand::Reg(self.reg(x));
        let offset = self.pool.place(&SET.repeat(if self.wide { 4 } else { 2 }));
        let m = VirtualOperand::Mem(Mem::Const { offset, every: false });
        let load = pair!(EVEX_Vmovups_zmm_k1z_zmmm512, VEX_Vmovups_ymm_ymmm256);
        let table = ReadOperand::Reg(self.make(self.code(load), self.full(), &[m]));
        let four = ReadOperand::Const(0x0f0f_0f0f, 4);
        let upper = self.by(SHR, x, 4);
        let find = pair!(EVEX_Vpshufb_zmm_k1z_zmm_zmmm512, VEX_Vpshufb_ymm_ymm_ymmm256);
        let [low, high] = [x, upper].map(|x| {
            let at = self.op(AND, &[x, four]);
            self.op(find, &[table, at])
        });
        let add = pair!(EVEX_Vpaddb_zmm_k1z_zmm_zmmm512, VEX_Vpaddb_ymm_ymm_ymmm256);
        let bytes = self.op(add, &[low, high]);
        // Bytes are summed to lanes. These instructions read no element for all lanes.
        let mut sum = |pair: OpcodePair, x: ReadOperand, by: u64| {
            let by = ReadOperand::Reg(self.reg(ReadOperand::Const(by, 4)));
            self.op(pair, &[x, by])
        };
        if d.bytes() == 8 {
            return sum(pair!(EVEX_Vpsadbw_zmm_zmm_zmmm512, VEX_Vpsadbw_ymm_ymm_ymmm256), bytes, 0);
        }
        let words = pair!(EVEX_Vpmaddubsw_zmm_k1z_zmm_zmmm512, VEX_Vpmaddubsw_ymm_ymm_ymmm256);
        let words = sum(words, bytes, 0x0101_0101);
        let lanes = pair!(EVEX_Vpmaddwd_zmm_k1z_zmm_zmmm512, VEX_Vpmaddwd_ymm_ymm_ymmm256);
        sum(lanes, words, 0x0001_0001)
    }

    /// How many bits of a number are above the highest that is set: those that stay clear when it is
    /// copied to all below it.
    pub(crate) fn zeros(&mut self, d: DType, x: ReadOperand) -> ReadOperand {
        let eight = d.bytes() == 8;
        let (shift, or, sub) = match eight {
            true => (SHR_LONG, OR_LONG, SUB_LONG),
            false => (SHR, OR, SUB_INT),
        };
        let x = if d == DType::I8 { self.wrapped_small_int(DType::U8, x) } else { x };
        let mut x = ReadOperand::Reg(self.reg(x));
        for by in
            [1u8, 2, 4, 8, 16, 32].into_iter().filter(|&by| u64::from(by) < u64::from(d.bits()))
        {
            let moved = self.by(shift, x, by);
            x = self.op(or, &[x, moved]);
        }
        let set = self.ones(d, x);
        let bits = ReadOperand::Const(d.bits().into(), if eight { 8 } else { 4 });
        self.op(sub, &[bits, set])
    }
}
