//! Axes of a loop nest, and the mapping of tensor axes to them.
//!
//! A nest consists of *atoms*, axes that are not split further. An axis of a tensor is a run of atoms, slowest first.
//! So a reshape divides the same atoms into other runs, a transposition permutes runs, and a broadcast leaves atoms
//! out. Two tensors are computed at the same point of the nest if their axes are the same runs; [`LoopAxes::unify`]
//! finds such runs and splits atoms where it must. A trial that fails is rolled back.

use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::volume;
use cranelift_entity::entity_impl;
use smallvec::{SmallVec, smallvec};

/// An axis of a nest, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Atom(u32);
entity_impl!(Atom, "a");

/// The atoms of one axis of a tensor, slowest first; none for an axis of extent 1.
pub(crate) type AtomRun = SmallVec<[Atom; 2]>;

/// The atoms of each axis of a tensor.
pub(crate) type TensorAxes = SmallVec<[AtomRun; 4]>;

/// A copy of a place, run by run: `clone` goes over the atoms of each run one by one, and places are copied for every operand
/// of every group that is priced.
pub(crate) fn copied(place: &TensorAxes) -> TensorAxes {
    let mut copy = TensorAxes::new();
    place.iter().for_each(|run| copy.push(AtomRun::from_slice(run)));
    copy
}

/// The atoms that are not among others.
pub(crate) fn without(all: &AtomRun, others: &AtomRun) -> AtomRun {
    all.iter().filter(|a| !others.contains(a)).copied().collect()
}

/// Whether two runs have the same atoms.
pub(crate) fn same(a: &AtomRun, b: &AtomRun) -> bool {
    a.len() == b.len() && a.iter().all(|x| b.contains(x))
}

#[derive(Clone, Copy, Debug)]
enum AtomState {
    Whole,
    /// Divided, slowest first.
    Split(Atom, Atom),
    /// Another name of this one.
    Is(Atom),
}

#[derive(Clone, Debug)]
struct AtomData {
    extent: i64,
    state: AtomState,
    /// Not to be divided.
    solid: bool,
    /// The trial it was made in; a part is as old as what it is a part of.
    birth: u32,
}

/// The atoms of one nest.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopAxes {
    atoms: Vec<AtomData>,
    journal: Vec<(Atom, AtomState, bool)>,
    trial: u32,
}

/// A point that a trial can be taken back to.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    atoms: usize,
    journal: usize,
}

impl LoopAxes {
    /// Begins a trial: atoms made from now on may become names of others.
    pub(crate) fn begin(&mut self) -> Mark {
        self.journal.clear();
        self.trial += 1;
        self.mark()
    }

    /// A point inside of a trial.
    pub(crate) fn mark(&self) -> Mark {
        Mark { atoms: self.atoms.len(), journal: self.journal.len() }
    }

    /// Takes back all that happened since the mark; whether atoms had been divided or named.
    pub(crate) fn undo(&mut self, to: Mark) -> bool {
        let changed = self.journal.len() > to.journal;
        for (atom, state, solid) in self.journal.drain(to.journal..).rev() {
            let data = &mut self.atoms[atom.as_u32() as usize];
            (data.state, data.solid) = (state, solid);
        }
        // Nothing older names the younger ones any more.
        self.atoms.truncate(to.atoms);
        changed
    }

    /// New atoms for a tensor of these extents.
    pub(crate) fn place(&mut self, dims: &[i64]) -> TensorAxes {
        let run = |&n: &i64| if n == 1 { AtomRun::new() } else { smallvec![self.atom(n)] };
        dims.iter().map(run).collect()
    }

    fn atom(&mut self, extent: i64) -> Atom {
        self.born(extent, self.trial)
    }

    fn born(&mut self, extent: i64, birth: u32) -> Atom {
        self.atoms.push(AtomData { extent, state: AtomState::Whole, solid: false, birth });
        Atom::from_u32(self.atoms.len() as u32 - 1)
    }

    fn data(&self, a: Atom) -> &AtomData {
        &self.atoms[a.as_u32() as usize]
    }

    /// The extent of an atom.
    pub(crate) fn extent(&self, a: Atom) -> i64 {
        self.data(a).extent
    }

    /// Number of points of these atoms together.
    pub(crate) fn points(&self, atoms: &[Atom]) -> i64 {
        volume(atoms.iter().map(|&a| self.extent(a)))
    }

    /// Whether the atom was made in this trial and no older one is known to be it.
    pub(crate) fn is_fresh(&self, a: Atom) -> bool {
        self.data(a).birth == self.trial
    }

    /// Keeps these atoms from being divided.
    pub(crate) fn solidify(&mut self, atoms: &[Atom]) {
        for &a in atoms {
            let data = &mut self.atoms[a.as_u32() as usize];
            self.journal.push((a, data.state, data.solid));
            data.solid = true;
        }
    }

    /// The undivided atoms that these are.
    pub(crate) fn whole(&self, atoms: &[Atom]) -> AtomRun {
        // Most are.
        if atoms.iter().all(|&a| self.is_whole(a)) {
            return AtomRun::from_slice(atoms);
        }
        let mut out = AtomRun::new();
        for &a in atoms {
            self.push_whole(a, &mut out);
        }
        out
    }

    /// Whether an atom is undivided, and no other name of one.
    fn is_whole(&self, a: Atom) -> bool {
        matches!(self.data(a).state, AtomState::Whole)
    }

    fn push_whole(&self, a: Atom, out: &mut AtomRun) {
        match self.data(a).state {
            AtomState::Whole => out.push(a),
            AtomState::Is(b) => self.push_whole(b, out),
            AtomState::Split(slow, fast) => {
                self.push_whole(slow, out);
                self.push_whole(fast, out);
            }
        }
    }

    /// A place in undivided atoms.
    pub(crate) fn resolve(&self, place: &TensorAxes) -> TensorAxes {
        let mut resolved = TensorAxes::new();
        place.iter().for_each(|run| resolved.push(self.whole(run)));
        resolved
    }

    /// All undivided atoms of a place, axis by axis.
    pub(crate) fn all(&self, place: &TensorAxes) -> AtomRun {
        let mut out = AtomRun::new();
        place.iter().flatten().for_each(|&a| self.push_whole(a, &mut out));
        out
    }

    fn set(&mut self, a: Atom, state: AtomState) {
        let data = &mut self.atoms[a.as_u32() as usize];
        self.journal.push((a, std::mem::replace(&mut data.state, state), data.solid));
    }

    /// Makes two runs the same, dividing atoms and naming new ones; whether that is possible. What was
    /// begun is not taken back.
    pub(crate) fn unify(&mut self, a: &[Atom], b: &[Atom]) -> bool {
        if a == b {
            return true;
        }
        let (mut a, mut b) = (self.whole(a), self.whole(b));
        a.reverse();
        b.reverse();
        loop {
            match (a.pop(), b.pop()) {
                (None, None) => return true,
                (Some(x), Some(y)) => {
                    // An atom may have been divided or named since it was listed.
                    if !self.is_whole(x) || !self.is_whole(y) {
                        a.extend(self.whole(&[x]).into_iter().rev());
                        b.extend(self.whole(&[y]).into_iter().rev());
                        continue;
                    }
                    let (nx, ny) = (self.extent(x), self.extent(y));
                    if x == y {
                    } else if nx == ny {
                        match (self.is_fresh(x), self.is_fresh(y)) {
                            (true, _) => self.set(x, AtomState::Is(y)),
                            (false, true) => self.set(y, AtomState::Is(x)),
                            (false, false) => return false,
                        }
                    } else if nx > ny {
                        let Some(()) = self.split(x, ny) else { return false };
                        a.push(x);
                        b.push(y);
                    } else {
                        let Some(()) = self.split(y, nx) else { return false };
                        a.push(x);
                        b.push(y);
                    }
                }
                _ => return false,
            }
        }
    }

    /// Makes two places the same, axis by axis.
    pub(crate) fn unify_places(&mut self, a: &TensorAxes, b: &TensorAxes) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.unify(a, b))
    }

    /// Divides an atom so that its slower part has this extent.
    fn split(&mut self, a: Atom, slow: i64) -> Option<()> {
        let n = self.extent(a);
        if slow < 2 || n % slow != 0 || self.data(a).solid {
            return None;
        }
        let birth = self.data(a).birth;
        let parts = (self.born(slow, birth), self.born(n / slow, birth));
        self.set(a, AtomState::Split(parts.0, parts.1));
        Some(())
    }

    /// Cuts a flat run into axes of these extents; `None` where atoms do not divide so.
    pub(crate) fn split_flat(&mut self, flat: &[Atom], dims: &[i64]) -> Option<TensorAxes> {
        if dims.contains(&0) || flat.iter().any(|&a| self.extent(a) == 0) {
            return None;
        }
        let mut rest = self.whole(flat);
        rest.reverse();
        let mut place = TensorAxes::new();
        for &n in dims {
            let (mut run, mut have) = (AtomRun::new(), 1);
            while have < n {
                let a = rest.pop()?;
                let e = self.extent(a);
                let want = n / have;
                if n % have == 0 && e > want {
                    self.split(a, want)?;
                    rest.extend(self.whole(&[a]).into_iter().rev());
                    continue;
                }
                have *= e;
                run.push(a);
            }
            if have != n {
                return None;
            }
            place.push(run);
        }
        rest.is_empty().then_some(place)
    }

    /// The coordinate along an axis: its atoms by their numbers in `numbers`, row-major.
    pub(crate) fn coordinate(&self, run: &[Atom], number: impl Fn(Atom) -> usize) -> IndexExpr {
        let mut e = IndexExpr::Const(0);
        for a in self.whole(run) {
            e = e.times(self.extent(a)).sum(IndexExpr::axis(number(a)));
        }
        e
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reshape_divides_atoms() {
        let mut axes = LoopAxes::default();
        let x = axes.place(&[6, 4]);
        let flat = axes.all(&x);
        let cut = axes.split_flat(&flat, &[2, 12]).expect("12 is 3 times 4");
        assert_eq!(cut.iter().map(|r| r.len()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(axes.whole(&x[0]).len(), 2);
        assert!(axes.split_flat(&flat, &[5, 5]).is_none());
        assert_eq!(axes.split_flat(&flat, &[1, 24, 1]).expect("one run")[1].len(), 3);
    }

    #[test]
    fn a_trial_is_taken_back() {
        let mut axes = LoopAxes::default();
        let x = axes.place(&[6, 4]);
        let mark = axes.begin();
        let y = axes.place(&[2, 3, 4]);
        let flat: AtomRun = y[..2].iter().flatten().copied().collect();
        assert!(axes.unify(&flat, &x[0]) && axes.unify(&y[2], &x[1]));
        assert_eq!(axes.whole(&x[0]), axes.whole(&flat));
        axes.undo(mark);
        assert_eq!(axes.whole(&x[0]), x[0]);
        let t = axes.place(&[4, 6]);
        axes.begin();
        assert!(!axes.unify_places(&t, &x));
    }
}
