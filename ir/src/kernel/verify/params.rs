//! Parameters of stages: sources, types, and bounds.

use super::bounds::BoundsScope;
use super::{ProgramVerifier, Wrong};
use crate::diag::Kind;
use crate::dtype::DType;
use crate::kernel::stage::{Operand, Param, Piece};

impl ProgramVerifier<'_> {
    /// Checks the parameters of a stage against those its program declares. `kept` checks those that
    /// read what was kept or summed, and gives their type.
    pub(super) fn params(
        &mut self,
        place: &str,
        extents: &[i64],
        params: &[Param],
        declared: &[DType],
        kept: impl Fn(&Param) -> Result<DType, Wrong>,
    ) {
        if params.len() != declared.len() {
            let m =
                format!("{} parameters are read, the program has {}", params.len(), declared.len());
            return self.report(place, Wrong::new(Kind::Arity, m));
        }
        for (k, param) in params.iter().enumerate() {
            let scope = BoundsScope::new(extents, &declared[..k]);
            let found = match param {
                Param::Load(pieces) => self.load(pieces, scope),
                Param::Coord(e) => scope.interval(e).map(|_| DType::I64),
                Param::Row(_) | Param::Tile(_) | Param::Sum => kept(param),
            };
            let wrong = match found {
                Ok(d) if d == declared[k] => continue,
                Ok(d) => Wrong::new(Kind::DType, format!("{d} is read as {}", declared[k])),
                Err(wrong) => wrong,
            };
            self.report(format_args!("{place}, p{k}"), wrong);
        }
    }

    /// Checks a load, and gives the type of what it reads.
    fn load<'s>(&self, pieces: &'s [Piece], mut scope: BoundsScope<'s>) -> Result<DType, Wrong> {
        let mut found: Option<DType> = None;
        for (k, piece) in pieces.iter().enumerate() {
            let last = k + 1 == pieces.len();
            if last != piece.guards.is_empty() {
                let m = "a load's last piece, and no other, has no guards";
                return Err(Wrong::new(Kind::Bounds, m));
            }
            let dtype = match piece.from {
                Operand::Buffer(b) => self.data(b).dtype,
                Operand::Literal(l) => l.dtype(),
            };
            if *found.get_or_insert(dtype) != dtype {
                return Err(Wrong::new(Kind::DType, "the pieces of a load differ in type"));
            }
            let mut here = scope.clone();
            here.assume(&piece.guards)?;
            match piece.from {
                Operand::Buffer(b) => {
                    self.readable(b)?;
                    here.inside(&piece.index, &self.data(b).dims).map_err(|mut wrong| {
                        wrong.message = format!("%{}: {}", self.data(b).name, wrong.message);
                        wrong
                    })?;
                }
                Operand::Literal(_) => here.inside(&piece.index, &[])?,
            }
            if !last {
                scope.assume_not(&piece.guards)?;
            }
        }
        found.ok_or_else(|| Wrong::new(Kind::Arity, "a load has no pieces"))
    }
}
