//! The coordinates of a step, and the atoms of its nest that they stand for.

use crate::analysis::axes::{Atom, AtomRun, LoopAxes, TensorAxes};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::Extents;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// Which coordinates of a step the atoms of its nest are, and how far those reach.
#[derive(Default)]
pub(crate) struct Coordinates {
    numbers: HashMap<Atom, usize>,
    atoms: SmallVec<[Atom; 8]>,
    /// How far each coordinate reaches.
    pub(crate) extents: Extents,
}

impl Coordinates {
    /// Coordinates in this order.
    pub(crate) fn new(axes: &LoopAxes, atoms: impl Iterator<Item = Atom>) -> Coordinates {
        let mut new = Coordinates::default();
        for (k, a) in atoms.enumerate() {
            new.numbers.insert(a, k);
            new.atoms.push(a);
            new.extents.push(axes.extent(a));
        }
        new
    }

    /// The number of an atom's coordinate.
    pub(crate) fn get(&self, a: &Atom) -> Option<&usize> {
        self.numbers.get(a)
    }

    /// The axes of the nest that an index is, where each of its expressions is the whole of one.
    pub(crate) fn place(&self, index: &[IndexExpr], dims: &[i64]) -> Option<TensorAxes> {
        let run = |(e, &n): (&IndexExpr, &i64)| match e {
            IndexExpr::Axis(k) if self.extents.get(usize::from(*k)) == Some(&n) => {
                Some(AtomRun::from_iter([*self.atoms.get(usize::from(*k))?]))
            }
            IndexExpr::Const(0) if n == 1 => Some(AtomRun::new()),
            _ => None,
        };
        index.iter().zip(dims).map(run).collect()
    }
}
