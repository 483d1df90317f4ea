//! The pieces of a view where it is read: what each reads, at which index, and under which guards.

use super::coordinates::Coordinates;
use super::guarded_values::exact;
use crate::analysis::facts::Facts;
use crate::analysis::index_columns::Index;
use adfuse_ir::affine::simplified;
use adfuse_ir::index::{Guard, IndexExpr, ViewMap};
use adfuse_ir::{Inst, Value, ValueDef};
use smallvec::SmallVec;

/// A value, the index at which it is read, and when.
pub(super) type ViewPiece = (Value, Index, SmallVec<[Guard; 2]>);

/// What a view is read with.
pub(super) struct ViewReader<'a> {
    pub(super) facts: &'a Facts<'a>,
    /// Whether an instruction's value is computed where it is asked for.
    pub(super) listed: &'a dyn Fn(Inst) -> bool,
    pub(super) numbers: &'a Coordinates,
}

impl ViewReader<'_> {
    /// The pieces of an instruction's view at an index that is asked for under outer guards.
    pub(super) fn pieces(
        &self,
        i: Inst,
        map: &ViewMap,
        (index, outer): (&Index, &[Guard]),
    ) -> Vec<ViewPiece> {
        let facts = self.facts;
        // Guards speak of expressions as they are written; one that has nothing in common with them may be a
        // simpler one.
        let mut guarded: Vec<IndexExpr> = outer.iter().map(|g| g.expr.clone()).collect();
        let inner = map.pieces.iter().flat_map(|p| &p.guards);
        guarded.extend(inner.map(|g| g.expr.compose(index)));
        let simple = |e: IndexExpr| match guarded.iter().any(|g| e.shares(g)) {
            false => simplified(&e, &self.numbers.extents),
            true => e,
        };
        let mut pieces = Vec::new();
        for p in &map.pieces {
            let mut v = facts.f.args(i)[p.operand as usize];
            let mut at: Index = p.index.iter().map(|e| simple(e.compose(index))).collect();
            // A view of what is in memory is another place in it.
            while let ValueDef::Inst(j, _) = facts.f.def(v)
                && (self.listed)(j)
                && let Some(under) = facts.view(j)
                && let [whole] = under.pieces.as_slice()
                && whole.guards.is_empty()
            {
                at = whole.index.iter().map(|e| simple(e.compose(&at))).collect();
                v = facts.f.args(j)[whole.operand as usize];
            }
            let guard = |g: &Guard| Guard { expr: g.expr.compose(index), range: g.range.clone() };
            let guards: SmallVec<[Guard; 2]> = p.guards.iter().map(guard).collect();
            let at = {
                let all: SmallVec<[&Guard; 4]> = outer.iter().chain(&guards).collect();
                self.under(at, &all, &facts.dims[v])
            };
            pieces.push((v, at, guards));
        }
        pieces
    }

    /// An index under guards: the place itself where it is that. Other forms stay as they are, since their bounds are those of
    /// their quotients.
    fn under(&self, index: Index, guards: &[&Guard], dims: &[i64]) -> Index {
        if guards.is_empty() {
            return index;
        }
        let exact: Index = index.iter().map(|e| exact(e, guards.iter().copied())).collect();
        if exact == index {
            return index;
        }
        let simple: Index = exact.iter().map(|e| simplified(e, &self.numbers.extents)).collect();
        if self.numbers.place(&simple, dims).is_some() { simple } else { index }
    }
}
