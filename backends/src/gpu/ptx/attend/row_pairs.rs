//! Numbers of rows that warpgroups read from shared memory: logarithms of sums, and mean cotangents.

use crate::gpu::ptx::asm::{Asm, Class, Reg};

/// Numbers of rows in shared memory, two for every 8 columns of a thread's scores. The first ones are read ahead; there are no
/// registers for all.
pub(super) struct RowPairs {
    from: Reg,
    at: i64,
    ahead: Vec<[Reg; 2]>,
}

impl RowPairs {
    /// Reads the first ones, this many bytes from an address on.
    pub(super) fn new(asm: &mut Asm, (from, at): (Reg, i64), all: usize) -> RowPairs {
        let ahead = (0..AHEAD.min(all)).map(|j| pair(asm, from, at + j as i64 * 32)).collect();
        RowPairs { from, at, ahead }
    }

    pub(super) fn pair(&mut self, asm: &mut Asm, j: usize) -> [Reg; 2] {
        match self.ahead.get(j) {
            Some(&found) => found,
            None => pair(asm, self.from, self.at + j as i64 * 32),
        }
    }
}

/// Pairs of numbers that are read ahead.
const AHEAD: usize = 4;

/// Two neighbouring numbers in shared memory.
fn pair(asm: &mut Asm, from: Reg, at: i64) -> [Reg; 2] {
    let found = [0; 2].map(|_| asm.fresh(Class::Single));
    asm.emit(format_args!("ld.shared.v2.f32 {{{}, {}}}, [{from}+{at}]", found[0], found[1]));
    found
}
