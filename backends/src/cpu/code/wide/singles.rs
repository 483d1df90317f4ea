//! Elements whose places no vector steps along: by data, quotients or guards that change in no order.
//!
//! They are read one by one in general registers, for all groups of a body before it, into the function's
//! frame, where vectors reach them.

use super::access::ALONG;
use super::general::Emit;
use super::lines::{Lines, MOST_GROUPS, Partial};
use super::machine::{Mem, Op};
use crate::cpu::code::plan::Reach;
use iced_x86::{Code, Register};

const RAX: Register = Register::RAX;
const RDX: Register = Register::RDX;

impl Lines<'_> {
    /// Whether a parameter is read one by one.
    fn single(&self, k: usize) -> bool {
        self.p.varies[k] && self.p.loads[k] == Reach::Single && self.p.body.reads_param(k)
    }

    /// Finds room for as many elements as the largest body reads.
    pub(super) fn room_for_singles(&mut self) {
        for (k, d) in self.p.types.iter().enumerate() {
            // Both orders of lanes go through 32 in whole rounds, which is no more than this.
            let bytes = MOST_GROUPS * self.lanes() * d.bytes() as u32;
            let room = self.single(k).then(|| self.frame.room(bytes));
            self.singles.push(room);
        }
    }

    /// Reads so many elements from the coordinate on, or those of a partial group.
    pub(super) fn read_singles(&mut self, count: u32, partial: Option<&Partial>) {
        let p = self.p;
        // What is read to know where others are comes before them.
        let mut wanted: Vec<usize> = Vec::new();
        for k in (0..p.reads.len()).filter(|&k| self.single(k)) {
            let needed = p.needs[k].iter().copied().chain([k]);
            for k in needed {
                if !wanted.contains(&k) {
                    wanted.push(k);
                }
            }
        }
        if wanted.is_empty() {
            return;
        }
        let (number, coordinate) = (self.frame.long(), self.frame.long());
        match partial.and_then(|p| p.from) {
            Some(from) => self.load(RAX, Mem::Frame(from)),
            None => self.set(RAX, 0),
        }
        let top = self.fresh();
        self.bind(top);
        self.store(Mem::Frame(number), RAX);
        self.add(RAX, ALONG);
        self.store(Mem::Frame(coordinate), RAX);
        self.element = Some(coordinate);
        for k in wanted {
            self.once_read(k);
            let Some(first) = self.singles[k] else { continue };
            let bytes = p.types[k].bytes() as u32;
            self.load(RDX, Mem::Frame(number));
            let offset = first as i32;
            let to = Mem::At { base: Register::RSP, index: Some((RDX, bytes)), offset };
            let (code, from) = match bytes {
                8 => (Code::Mov_rm64_r64, RAX),
                4 => (Code::Mov_rm32_r32, Register::EAX),
                2 => (Code::Mov_rm16_r16, Register::AX),
                _ => (Code::Mov_rm8_r8, Register::AL),
            };
            self.ins(code, &[Op::Mem(to), Op::Reg(from)]);
        }
        self.element = None;
        self.load(RAX, Mem::Frame(number));
        self.ins(Code::Inc_rm64, &[Op::Reg(RAX)]);
        match partial {
            Some(p) => self.ins(Code::Cmp_r64_rm64, &[Op::Reg(RAX), Op::Mem(Mem::Frame(p.to))]),
            None => self.ins(Code::Cmp_rm64_imm32, &[Op::Reg(RAX), Op::Short(count as i32)]),
        }
        self.jump(Code::Jl_rel32_64, top);
    }
}
