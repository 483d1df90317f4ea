//! Launches that several pieces of elementwise work of a bundle share: each piece has a range of the blocks.

use super::elementwise::Elementwise;
use super::grid::Grid;
use super::text::{DecisionLine, Reader, Writer, listed, number};
use super::work::Home;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Buffer, Operand, Param, Sink};
use cranelift_entity::SecondaryMap;

/// Buffers that one entry point is given at most: the driver passes 4096 bytes of parameters.
const MOST_POINTERS: usize = 480;

/// Instructions of one entry point at most, about: assemblers take longer than linear time.
const MOST_INSTRUCTIONS: usize = 24_000;

/// Which pieces of work share a launch, by their numbers in the step. Pieces that are in no list have launches of
/// their own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SharedLaunches {
    pub(crate) launches: Vec<Vec<usize>>,
}

/// What a piece of work adds to an entry point.
struct PieceSize {
    grid: Grid,
    pointers: usize,
    instructions: usize,
}

impl PieceSize {
    /// `None` for work that shares no launch: it waits for other work of its kernel, which hands values over in scratch
    /// memory.
    fn of(e: &Elementwise, homes: &SecondaryMap<Buffer, Home>) -> Option<PieceSize> {
        let stage = &e.flat.stage;
        let loads = stage.params.iter().filter_map(|param| match param {
            Param::Load(pieces) => Some(pieces),
            _ => None,
        });
        let loads = loads.flatten().filter_map(|piece| match piece.from {
            Operand::Buffer(b) => Some(b),
            Operand::Literal(_) => None,
        });
        let stores = stage.sinks.iter().filter_map(|sink| match sink {
            Sink::Store { buffer, .. } => Some(*buffer),
            _ => None,
        });
        let buffers: Vec<Buffer> = loads.chain(stores).collect();
        if buffers.iter().any(|&b| homes[b] != Home::Given) {
            return None;
        }
        let pointers = buffers.len();
        let width = usize::try_from(e.vectors.width).unwrap_or(1);
        let instructions = (stage.program.insts.len() + 8 * pointers) * width;
        Some(PieceSize { grid: e.vectors.grid, pointers, instructions })
    }
}

impl SharedLaunches {
    /// As few launches as take all pieces with blocks of the same threads. Of work that is not elementwise there is none.
    pub(crate) fn of(
        works: &[Option<&Elementwise>],
        homes: &SecondaryMap<Buffer, Home>,
    ) -> SharedLaunches {
        let mut launches: Vec<(PieceSize, Vec<usize>)> = Vec::new();
        for (k, work) in works.iter().enumerate() {
            let Some(size) = work.and_then(|e| PieceSize::of(e, homes)) else { continue };
            let fits = |(all, _): &&mut (PieceSize, Vec<usize>)| {
                all.grid == size.grid
                    && all.pointers + size.pointers <= MOST_POINTERS
                    && all.instructions + size.instructions <= MOST_INSTRUCTIONS
            };
            match launches.iter_mut().find(fits) {
                Some((all, pieces)) => {
                    all.pointers += size.pointers;
                    all.instructions += size.instructions;
                    pieces.push(k);
                }
                None => launches.push((size, vec![k])),
            }
        }
        let several = launches.into_iter().filter(|(_, pieces)| pieces.len() > 1);
        SharedLaunches { launches: several.map(|(_, pieces)| pieces).collect() }
    }

    /// Errs where pieces cannot share a launch.
    pub(crate) fn check(
        &self,
        works: &[Option<&Elementwise>],
        homes: &SecondaryMap<Buffer, Home>,
    ) -> Result<(), String> {
        let mut known = vec![false; works.len()];
        for pieces in &self.launches {
            let mut pointers = 0;
            let mut first: Option<Grid> = None;
            for &k in pieces {
                let Some(size) =
                    works.get(k).copied().flatten().and_then(|e| PieceSize::of(e, homes))
                else {
                    return Err(format!("work {k} is no elementwise work of this step"));
                };
                if std::mem::replace(&mut known[k], true) {
                    return Err(format!("work {k} is in two launches"));
                }
                if *first.get_or_insert(size.grid) != size.grid {
                    return Err(format!("work {k} has blocks of other threads than the first"));
                }
                pointers += size.pointers;
            }
            if pieces.len() < 2 || pointers > MOST_POINTERS {
                let n = pieces.len();
                return Err(format!("{n} pieces with {pointers} pointers share no launch"));
            }
        }
        Ok(())
    }

    /// The launch that begins with a piece of work: all of its pieces; `None` where it is in one that began before.
    pub(crate) fn at(&self, k: usize) -> Option<Vec<usize>> {
        match self.launches.iter().find(|pieces| pieces.contains(&k)) {
            Some(pieces) => (pieces.first() == Some(&k)).then(|| pieces.clone()),
            None => Some(vec![k]),
        }
    }
}

impl DecisionLine for SharedLaunches {
    fn write(&self, to: &mut Writer) {
        for pieces in &self.launches {
            to.line("launch", &[("works", &listed(pieces))]);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<SharedLaunches, Diagnostic> {
        let mut launches = Vec::new();
        while from.next().is_some() {
            let line = from.line("launch", &["works"])?;
            let pieces = line.list("works")?.into_iter();
            let place =
                |(word, span)| number(word, span).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
            launches.push(pieces.map(place).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(SharedLaunches { launches })
    }
}
