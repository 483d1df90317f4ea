//! Nontemporal stores, for outputs of light sweeps that exceed the last-level cache.
//!
//! A line that is stored whole need not be read first, and evicts nothing from the cache. That pays only where memory
//! is the limit. Such stores are aligned whole vectors, so a line begins with a partial group up to the first aligned
//! vector. If several outputs are not aligned together, stores are plain. A fence before the return orders them.

use super::inst::{AllocatedOperand, Label, Mem};
use super::scalar_asm::CodeSink;
use super::state::{ALONG, PointerHome, SweepEmitter};
use crate::cpu::codegen::loop_ir::{Access, LoadSource, LoopNest, ParamRead, VectorAccess};
use iced_x86::{Code, Register};
use std::sync::OnceLock;

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;

/// Bytes of a last level of cache, where the system does not tell.
const USUAL: u64 = 32 << 20;

/// Groups of a line at least: its first elements and its last are stored as ever.
const LEAST_GROUPS: i64 = 16;

/// Bytes of the host's last level of cache, as the system tells it (`32768K`).
pub(crate) fn last_level() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let told = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size");
        told.ok().and_then(|text| bytes(text.trim())).unwrap_or(USUAL)
    })
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|&n| n > 0)
}

/// The outputs of a sweep that go past the caches.
pub(crate) fn outputs(p: &LoopNest, light: bool, lanes: u32) -> Vec<bool> {
    let places = p.walk.extents.iter().fold(1u64, |n, &e| n.saturating_mul(e.max(0) as u64));
    let line = p.walk.extents.last().copied().unwrap_or(1);
    let able = light && line >= LEAST_GROUPS * i64::from(lanes);
    // What reads rows, tiles or sums is called for a batch at a time, and would wait for each.
    let batch = |read: &ParamRead| match read {
        ParamRead::Guarded(sources) => {
            sources.iter().any(|w| matches!(&w.from, LoadSource::Array(a) if !a.buffer))
        }
        ParamRead::Coord(_) => false,
    };
    let able = able && !p.packed() && p.folds.iter().all(Option::is_none);
    let able = able && !p.reads.iter().any(batch);
    let nontemporal = |(a, reach): (&Access, &VectorAccess)| {
        let dense = a.buffer && *reach == VectorAccess::Even && p.step(a.form) == 1;
        let bytes = a.dtype.bytes();
        able && dense && bytes >= 4 && places.saturating_mul(bytes) > last_level()
    };
    p.writes.iter().zip(&p.stores).map(nontemporal).collect()
}

impl SweepEmitter<'_> {
    fn nontemporal(&self) -> Vec<(PointerHome, u32)> {
        let writes = self.p.writes.iter().zip(&self.pointers.writes).zip(&self.beyond);
        let nontemporal = writes.filter(|(_, nontemporal)| **nontemporal);
        nontemporal
            .filter_map(|((a, at), _)| at.map(|at| (at.loc, a.dtype.bytes() as u32)))
            .collect()
    }

    /// How many bytes past a multiple of a vector the element that is next has, in `rax`.
    fn past(&mut self, (loc, bytes): (PointerHome, u32)) {
        match loc {
            PointerHome::In(r) => self.mov(RAX, r),
            PointerHome::At(slot) => self.load(RAX, Mem::Frame(slot)),
        }
        let at = Mem::At { base: RAX, index: Some((ALONG, bytes)), offset: 0 };
        self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Mem(at)]);
        let last = AllocatedOperand::Short(self.lanes() as i32 * 4 - 1);
        self.ins(Code::And_rm64_imm32, &[AllocatedOperand::Reg(RAX), last]);
    }

    /// Puts in `rcx` how many elements there are up to a multiple of a vector, of the first output that goes
    /// past the caches, if there is one; goes on at a label where it is there already.
    pub(crate) fn short_of(&mut self, there: Label) -> bool {
        let Some(&(loc, bytes)) = self.nontemporal().first() else { return false };
        self.past((loc, bytes));
        self.set(RCX, i64::from(self.lanes()) * 4);
        self.sub(RCX, RAX);
        self.ins(Code::Test_rm64_r64, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RAX)]);
        self.jump(Code::Je_rel32_64, there);
        let shift = AllocatedOperand::Byte(bytes.trailing_zeros() as u8);
        self.ins(Code::Shr_rm64_imm8, &[AllocatedOperand::Reg(RCX), shift]);
        self.mov(RAX, super::state::HIGH);
        self.sub(RAX, ALONG);
        self.compare(RAX, RCX);
        self.ins(Code::Cmovl_r64_rm64, &[AllocatedOperand::Reg(RCX), AllocatedOperand::Reg(RAX)]);
        true
    }

    /// Goes on at a label unless all outputs that go past the caches are at multiples of a vector.
    pub(crate) fn unless_there(&mut self, otherwise: Label) {
        for one in self.nontemporal() {
            self.past(one);
            self.ins(
                Code::Test_rm64_r64,
                &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RAX)],
            );
            self.jump(Code::Jne_rel32_64, otherwise);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_the_system_tells_them() {
        assert_eq!(bytes("32768K"), Some(32 << 20));
        assert_eq!(bytes("8M"), Some(8 << 20));
        assert_eq!(bytes("512"), Some(512));
        for odd in ["", "K", "0K", "12Q", "-3K", "99999999999999999999K"] {
            assert_eq!(bytes(odd), None, "{odd}");
        }
        assert!(last_level() > 0);
    }
}
