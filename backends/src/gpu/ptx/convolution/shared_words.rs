//! Words of boxes in registers. Windows of pieces that follow each other share words, such as those of the rows of an image under
//! the rows of a filter: each is read once where the piece before has it.

use super::WindowKernel;
use crate::gpu::ptx::asm::Reg;
use crate::gpu::schedule::convolution::place;
use crate::gpu::schedule::staged_box::{DEEP, OWN};
use adfuse_ir::kernel::volume;

/// A word of an operand.
struct SharedWord {
    /// Places after a lane's first word.
    at: i64,
    reg: Reg,
    /// The last piece that has read it.
    last: i64,
}

/// The words of an operand that pieces have read.
#[derive(Default)]
pub(super) struct SharedWords {
    all: Vec<SharedWord>,
    piece: i64,
}

impl SharedWords {
    /// Begins a piece: words that the piece before it has not read are forgotten, since each takes a register.
    pub(super) fn begin(&mut self, piece: i64) {
        self.piece = piece;
        self.all.retain(|word| word.last + 1 >= piece);
    }

    /// The word at a place, where it is known.
    pub(super) fn get(&mut self, at: i64) -> Option<Reg> {
        let found = self.all.iter_mut().find(|word| word.at == at)?;
        found.last = self.piece;
        Some(found.reg)
    }

    pub(super) fn put(&mut self, at: i64, reg: Reg) {
        self.all.push(SharedWord { at, reg, last: self.piece });
    }
}

impl WindowKernel<'_> {
    /// The groups of a step's depth, each piece with two, in the order in which pieces read the fewest words: one axis after the
    /// other, with one of them the fastest.
    pub(super) fn deep_order(&self) -> Vec<i64> {
        let groups = &self.product.tiling.groups[2];
        let orders = (0..groups.len()).rev().map(|fast| {
            let mut order: Vec<i64> = (0..volume(groups)).collect();
            order.sort_by_key(|&n| {
                let mut at = place(n, groups);
                let fastest = at.remove(fast);
                at.push(fastest);
                at
            });
            order
        });
        orders.min_by_key(|order| self.words_read(order)).unwrap_or_default()
    }

    /// The words that a lane reads of both operands where pieces have the groups of the depth in this order.
    fn words_read(&self, order: &[i64]) -> usize {
        let tiling = &self.product.tiling;
        let mut read = 0;
        for side in 0..2 {
            let [own, deep] = [OWN, DEEP].map(|part| self.steps(side, part));
            let before = |part: usize, n: i64, steps: &[i64]| self.group(side, part, n, steps);
            let lines: Vec<i64> = (0..tiling.each[side]).map(|n| before(OWN, n, &own)).collect();
            let mut known: Vec<i64> = Vec::new();
            for piece in order.chunks(2) {
                let deep: Vec<i64> = piece.iter().map(|&n| before(DEEP, n, &deep)).collect();
                let all = lines.iter().flat_map(|line| deep.iter().map(move |deep| line + deep));
                let mut words: Vec<i64> = all.collect();
                words.sort_unstable();
                words.dedup();
                read += words.iter().filter(|at| known.binary_search(at).is_err()).count();
                known = words;
            }
        }
        read
    }
}
