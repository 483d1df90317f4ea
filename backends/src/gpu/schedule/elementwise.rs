//! Flat loops that only store: neighbours that one thread computes, or tiles that are transposed.

use super::grid::Grid;
use super::index::whole;
use super::scalar_form::written;
use super::text::{DecisionLine, Reader, Writer};
use super::vectorize::{neighbours, single_loads, vectors};
use super::work::Flat;
use crate::gpu::target::GpuTarget;
use adfuse_ir::kernel::{Program, Sink, Storage, volume};
use adfuse_ir::{Diagnostic, Fp};

/// Instructions of a body beyond which neighbours are not computed together: the text grows with them.
const MOST_INSTRUCTIONS: usize = 1200;
/// Loads of single elements that a thread has registers for, with their addresses and guards.
const MOST_LOADS: i64 = 40;
/// Neighbours that a thread computes at most.
const WIDEST: i64 = 8;

/// How a flat loop is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlatGrid {
    pub(crate) grid: Grid,
    /// Neighbours that a thread computes, with loads and stores of up to 16 bytes.
    pub(crate) width: i64,
}

/// A flat loop whose sinks all store.
pub(crate) struct Elementwise {
    pub(crate) flat: Flat,
    pub(crate) vectors: FlatGrid,
}

impl Elementwise {
    /// Threads that make parts of packed words; none where no sink packs.
    pub(crate) fn packing_threads(&self, program: &Program) -> i64 {
        match packed_bits(program, &self.flat, 1) {
            0 => 0,
            _ => volume(&self.flat.domain) / self.vectors.width,
        }
    }
}

/// Bits that neighbours take of a packed word; 0 where no sink packs.
fn packed_bits(program: &Program, flat: &Flat, width: i64) -> i64 {
    let bits = |sink: &Sink| match sink {
        Sink::Store { buffer, .. } => match program.buffers[*buffer].storage {
            Storage::Packed(bits) => i64::from(bits) * width,
            Storage::Plain => 0,
        },
        _ => 0,
    };
    flat.stage.sinks.iter().map(bits).max().unwrap_or(0)
}

impl FlatGrid {
    /// As many neighbours as make some access a vector.
    pub(crate) fn of(program: &Program, flat: &Flat, fp: Fp) -> FlatGrid {
        let instructions = written(&flat.stage.program, fp).insts.len();
        let mut buffers = flat.stage.params.iter().filter_map(whole).map(|(b, _)| b);
        let small = buffers.all(|b| program.buffers[b].dtype.bytes() <= 2)
            && flat.stage.sinks.iter().all(|sink| match sink {
                Sink::Store { buffer, .. } => program.buffers[*buffer].dtype.bytes() <= 2,
                _ => true,
            });
        let fits = |&width: &i64| {
            // Parts of words are no more than words.
            packed_bits(program, flat, width) <= 32
                && (width < WIDEST || small)
                && instructions * width as usize <= MOST_INSTRUCTIONS
                && single_loads(program, &flat.stage, &flat.domain, width) <= MOST_LOADS
                // Neighbours make parts of words together, whether they read and write vectors or not.
                && vectors(program, &flat.stage, &flat.domain, width)
                    .is_some_and(|n| n > 0 || packed_bits(program, flat, width) > 0)
        };
        let width = [WIDEST, 4, 2].into_iter().find(fits).unwrap_or(1);
        FlatGrid { grid: Grid::default(), width }
    }

    /// Errs where the loop cannot be run so.
    pub(crate) fn check(
        &self,
        program: &Program,
        flat: &Flat,
        target: &GpuTarget,
    ) -> Result<(), String> {
        self.grid.check(target)?;
        let width = self.width;
        let power = (1..=WIDEST).contains(&width) && width.count_ones() == 1;
        if !power || neighbours(&flat.domain, width).is_none() {
            let n = volume(&flat.domain);
            return Err(format!("{n} points are not shared by threads of {width} neighbours"));
        }
        match packed_bits(program, flat, width) {
            ..=32 => Ok(()),
            bits => Err(format!("{width} neighbours have {bits} bits of a packed word of 32")),
        }
    }
}

impl DecisionLine for FlatGrid {
    fn write(&self, to: &mut Writer) {
        self.grid.write(to);
        to.line("vector", &[("width", &self.width)]);
    }

    fn read(from: &mut Reader<'_>) -> Result<FlatGrid, Diagnostic> {
        let grid = Grid::read(from)?;
        let width = from.line("vector", &["width"])?.int("width")?;
        Ok(FlatGrid { grid, width })
    }
}
