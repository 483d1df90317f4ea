//! Transposes blocks of arrays into tiles of the frame, in registers: sixteen vectors are loaded, each of neighbours along the axis
//! around the lines, and sixteen are stored, each of neighbours along a line. No value of a body is in a vector register there, so registers are named as
//! they are. For AVX-512, whose masks suppress accesses of lines that are not there.

use super::inst::{AllocatedOperand, CodeItem, Mem, instruction};
use super::scalar_asm::CodeSink;
use super::state::SweepEmitter;
use crate::cpu::codegen::loop_program::{LoopVal, TransposedTile};
use crate::cpu::codegen::transposed_tiles::TILE_LINES;
use crate::cpu::codegen::vector_width::Unsupported;
use iced_x86::{Code, Register};

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;
const RDX: Register = Register::RDX;

/// 128-bit lanes 0 and 2 of two vectors, and lanes 1 and 3.
const EVEN: u8 = 0x88;
const ODD: u8 = 0xdd;

/// Instructions that load neighbours into lanes and store lanes as neighbours, and how many lanes a vector has.
struct TileMoves {
    load: Code,
    store: Code,
    lanes: i64,
}

impl TileMoves {
    fn of(bytes: i64) -> Option<TileMoves> {
        let (load, store) = match bytes {
            1 => (Code::EVEX_Vpmovzxbd_zmm_k1z_xmmm128, Code::EVEX_Vpmovdb_xmmm128_k1z_zmm),
            2 => (Code::EVEX_Vpmovzxwd_zmm_k1z_ymmm256, Code::EVEX_Vpmovdw_ymmm256_k1z_zmm),
            4 => (Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::EVEX_Vmovups_zmmm512_k1z_zmm),
            8 => (Code::EVEX_Vmovupd_zmm_k1z_zmmm512, Code::EVEX_Vmovupd_zmmm512_k1z_zmm),
            _ => return None,
        };
        Some(TileMoves { load, store, lanes: if bytes == 8 { 8 } else { 16 } })
    }
}

impl SweepEmitter<'_> {
    /// Fills a tile with this many lines that begin at an address.
    pub(crate) fn transpose(
        &mut self,
        number: usize,
        [from, lines]: [LoopVal; 2],
    ) -> Result<(), Unsupported> {
        let (Some(&slot), Some(tile)) = (self.tiles.get(number), self.p.tiles.get(number)) else {
            return Err(Unsupported::Order);
        };
        let bytes = tile.dtype.bytes() as i64;
        let moves = TileMoves::of(bytes).filter(|_| self.wide).ok_or(Unsupported::Order)?;
        self.fetch(RAX, from);
        self.fetch(RCX, lines);
        self.set(RDX, -1);
        let mask = AllocatedOperand::Reg(Register::EDX);
        self.ins(Code::VEX_Bzhi_r32_rm32_r32, &[mask, mask, AllocatedOperand::Reg(Register::ECX)]);
        self.ins(Code::VEX_Kmovw_kr_r32, &[AllocatedOperand::Reg(Register::K1), mask]);
        if moves.lanes < TILE_LINES {
            let (all, half) =
                (AllocatedOperand::Reg(Register::K1), AllocatedOperand::Reg(Register::K2));
            self.ins(Code::VEX_Kshiftrw_kr_kr_imm8, &[half, all, AllocatedOperand::Byte(8)]);
        }
        let m = AllocatedOperand::Mem(Mem::Frame(slot));
        self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(RDX), m]);
        let (whole, rest) = (tile.count / moves.lanes, tile.count % moves.lanes);
        if whole > 1 {
            let top = self.fresh();
            self.set(RCX, whole);
            self.bind(top);
            self.tile_block(tile, &moves, moves.lanes);
            self.next_block(tile, &moves);
            self.ins(Code::Dec_rm64, &[AllocatedOperand::Reg(RCX)]);
            self.jump(Code::Jne_rel32_64, top);
        } else if whole == 1 {
            self.tile_block(tile, &moves, moves.lanes);
            if rest > 0 {
                self.next_block(tile, &moves);
            }
        }
        if rest > 0 {
            self.tile_block(tile, &moves, rest);
        }
        Ok(())
    }

    /// Goes on by as many elements of the lines as a vector has lanes.
    fn next_block(&mut self, tile: &TransposedTile, moves: &TileMoves) {
        let bytes = tile.dtype.bytes() as i64;
        for (at, by) in [(RAX, tile.step * bytes * moves.lanes), (RDX, bytes * moves.lanes)] {
            // Tiles are of arrays whose steps are short enough.
            let m = Mem::At { base: at, index: None, offset: by as i32 };
            self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(at), AllocatedOperand::Mem(m)]);
        }
    }

    /// Vectors of the lines' elements from the one at `rax` on, of which `count` are there, to the tile's lines at `rdx`.
    fn tile_block(&mut self, tile: &TransposedTile, moves: &TileMoves, count: i64) {
        let bytes = tile.dtype.bytes() as i64;
        for half in 0..TILE_LINES / moves.lanes {
            let mask = if half == 0 { Register::K1 } else { Register::K2 };
            for row in 0..moves.lanes {
                // What is behind the last element is never read.
                let offset = row.min(count - 1) * tile.step * bytes + half * moves.lanes * bytes;
                let m = Mem::At { base: RAX, index: None, offset: offset as i32 };
                let ops = [AllocatedOperand::Reg(vector(row)), AllocatedOperand::Mem(m)];
                let mut load = instruction(moves.load, &ops);
                load.set_op_mask(mask);
                load.set_zeroing_masking(true);
                self.push(CodeItem::Ins(load));
            }
            let columns = match moves.lanes {
                16 => self.transpose_16(),
                _ => self.transpose_8(),
            };
            for (line, x) in (0..moves.lanes).zip(columns) {
                let offset = (half * moves.lanes + line) * tile.pitch();
                let m = Mem::At { base: RDX, index: None, offset: offset as i32 };
                self.ins(moves.store, &[AllocatedOperand::Mem(m), AllocatedOperand::Reg(x)]);
            }
        }
    }

    /// Rows of sixteen lanes in the first sixteen registers as columns; gives where those are.
    fn transpose_16(&mut self) -> Vec<Register> {
        let [low, high] = [
            Code::EVEX_Vunpcklps_zmm_k1z_zmm_zmmm512b32,
            Code::EVEX_Vunpckhps_zmm_k1z_zmm_zmmm512b32,
        ];
        let [low_pairs, high_pairs] = [
            Code::EVEX_Vunpcklpd_zmm_k1z_zmm_zmmm512b64,
            Code::EVEX_Vunpckhpd_zmm_k1z_zmm_zmmm512b64,
        ];
        let (rows, spare) = (0, 16);
        self.interleaved([low, high], [rows, spare], 8);
        // Columns 4 lane + c of rows 4 k to 4 k + 3, in register 4 k + c.
        for k in 0..4 {
            for half in 0..2 {
                let [a, b] = [spare + 4 * k + half, spare + 4 * k + 2 + half];
                self.shuffled(low_pairs, rows + 4 * k + 2 * half, [a, b], None);
                self.shuffled(high_pairs, rows + 4 * k + 2 * half + 1, [a, b], None);
            }
        }
        self.across_lanes(Code::EVEX_Vshuff32x4_zmm_k1z_zmm_zmmm512b32_imm8, [rows, spare], 4)
    }

    /// Rows of eight lanes in the first eight registers as columns; gives where those are.
    fn transpose_8(&mut self) -> Vec<Register> {
        let [low, high] = [
            Code::EVEX_Vunpcklpd_zmm_k1z_zmm_zmmm512b64,
            Code::EVEX_Vunpckhpd_zmm_k1z_zmm_zmmm512b64,
        ];
        let (rows, spare) = (0, 16);
        self.interleaved([low, high], [rows, spare], 4);
        self.across_lanes(Code::EVEX_Vshuff64x2_zmm_k1z_zmm_zmmm512b64_imm8, [spare, rows], 2)
    }

    /// The low and the high halves of this many pairs of neighbouring registers, interleaved.
    fn interleaved(&mut self, [low, high]: [Code; 2], [from, to]: [i64; 2], pairs: i64) {
        for k in (0..2 * pairs).step_by(2) {
            self.shuffled(low, to + k, [from + k, from + k + 1], None);
            self.shuffled(high, to + k + 1, [from + k, from + k + 1], None);
        }
    }

    /// Registers `k * each + c` have in 128-bit lane l what column `l * each + c` has in lane k, of four lanes. Gives columns in order,
    /// in the registers that these are in.
    fn across_lanes(&mut self, code: Code, [from, spare]: [i64; 2], each: i64) -> Vec<Register> {
        for c in 0..each {
            for k in 0..2 {
                let pair = [from + 2 * k * each + c, from + (2 * k + 1) * each + c];
                self.shuffled(code, spare + 4 * c + 2 * k, pair, Some(EVEN));
                self.shuffled(code, spare + 4 * c + 2 * k + 1, pair, Some(ODD));
            }
        }
        let mut columns = vec![Register::None; 4 * each as usize];
        for c in 0..each {
            for odd in 0..2 {
                let pair = [spare + 4 * c + odd, spare + 4 * c + 2 + odd];
                for (lane, choice) in [(odd, EVEN), (odd + 2, ODD)] {
                    let to = from + lane * each + c;
                    self.shuffled(code, to, pair, Some(choice));
                    columns[(lane * each + c) as usize] = vector(to);
                }
            }
        }
        columns
    }

    fn shuffled(&mut self, code: Code, to: i64, [a, b]: [i64; 2], choice: Option<u8>) {
        let mut ops = Vec::from([to, a, b].map(|r| AllocatedOperand::Reg(vector(r))));
        ops.extend(choice.map(AllocatedOperand::Byte));
        self.ins(code, &ops);
    }
}

fn vector(k: i64) -> Register {
    Register::ZMM0 + k as u32
}
