//! Removes what no statement needs: lowering computes pointers that every access may need.

use super::loop_program::{GroupRead, LoopBlock, LoopCond, LoopProgram, LoopStmt, LoopVal};

/// The program without operations whose values nobody names.
pub(crate) fn without_unused(mut program: LoopProgram) -> LoopProgram {
    let mut live = NeededValues::default();
    for v in program.group_values() {
        live.mark(v);
    }
    // Blocks of lanes are where groups are: what they name from outside is needed there.
    for read in &mut program.reads {
        if let GroupRead::Lanes { block, value, .. } = read {
            live.mark(*value);
            live.block(block);
        }
    }
    live.block(&mut program.code);
    program
}

#[derive(Default)]
struct NeededValues {
    needed: Vec<bool>,
}

impl NeededValues {
    fn mark(&mut self, v: LoopVal) {
        let k = v.0 as usize;
        if self.needed.len() <= k {
            self.needed.resize(k + 1, false);
        }
        self.needed[k] = true;
    }

    fn is_needed(&self, v: LoopVal) -> bool {
        self.needed.get(v.0 as usize).copied().unwrap_or(false)
    }

    fn all(&mut self, values: impl IntoIterator<Item = LoopVal>) {
        values.into_iter().for_each(|v| self.mark(v));
    }

    /// Backwards along a block: what is named has been seen by then.
    fn block(&mut self, block: &mut LoopBlock) {
        let mut kept = Vec::with_capacity(block.len());
        for mut s in std::mem::take(block).into_iter().rev() {
            match &mut s {
                LoopStmt::Let(v, op) => {
                    if !self.is_needed(*v) {
                        continue;
                    }
                    self.all(op.operands());
                }
                LoopStmt::If { all, then, otherwise, results } => {
                    results.retain(|(v, ..)| self.is_needed(*v));
                    self.all(results.iter().flat_map(|&(_, a, b)| [a, b]));
                    self.block(then);
                    self.block(otherwise);
                    if then.is_empty() && otherwise.is_empty() && results.is_empty() {
                        continue;
                    }
                    self.all(all.iter().flat_map(LoopCond::operands));
                }
                LoopStmt::While { carried, below, body, next } => {
                    self.all(next.iter().copied());
                    self.all(carried.iter().map(|&(_, begin)| begin));
                    self.mark(*below);
                    self.block(body);
                }
                s => self.all(s.operands()),
            }
            kept.push(s);
        }
        kept.reverse();
        *block = kept;
    }
}
