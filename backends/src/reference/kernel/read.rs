//! Reading the parameters of a stage at one coordinate.

use super::state::{KernelState, OUTSIDE, ProgramRun, internal, offset};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Operand, Param, Piece};
use adfuse_ir::{DType, Diagnostic, Literal};

/// Reads the parameters of one stage.
pub(super) struct ParamReader<'a> {
    run: &'a ProgramRun<'a>,
    params: &'a [Param],
    types: &'a [DType],
    kept: &'a KernelState,
    /// The bits of the parameters at the last coordinate that was read.
    pub(super) bits: Vec<u64>,
    /// The same as integers, for index expressions.
    data: Vec<i64>,
}

impl<'a> ParamReader<'a> {
    /// Reads these parameters, which have these types.
    pub(super) fn new(
        run: &'a ProgramRun<'a>,
        params: &'a [Param],
        types: &'a [DType],
        kept: &'a KernelState,
    ) -> ParamReader<'a> {
        ParamReader { run, params, types, kept, bits: Vec::new(), data: Vec::new() }
    }

    /// Reads all parameters at the coordinates `at`, which are those of number `point` of the domain
    /// and of number `place` of domain and axes together.
    pub(super) fn read(&mut self, at: &[i64], point: u64, place: u64) -> Result<(), Diagnostic> {
        self.bits.clear();
        self.data.clear();
        for (param, &dtype) in self.params.iter().zip(self.types) {
            let bits = match param {
                Param::Load(pieces) => self.load(pieces, at)?,
                Param::Coord(e) => self.eval(e, at) as u64,
                Param::Row(r) => element(&self.kept.rows[*r], point)?,
                Param::Tile(t) => element(&self.kept.tiles[*t], place)?,
                Param::Sum => element(&self.kept.sums, place)?,
            };
            self.bits.push(bits);
            let integer = dtype.is_int().then(|| Literal::from_bits(dtype, bits).to_i64());
            self.data.push(integer.unwrap_or_default());
        }
        Ok(())
    }

    /// The value of an expression where the parameters were read last.
    pub(super) fn eval(&self, e: &IndexExpr, at: &[i64]) -> i64 {
        e.eval(at, &self.data)
    }

    fn load(&self, pieces: &[Piece], at: &[i64]) -> Result<u64, Diagnostic> {
        let holds = |p: &&Piece| p.guards.iter().all(|g| g.range.contains(&self.eval(&g.expr, at)));
        let piece = pieces.iter().find(holds).ok_or_else(|| internal(OUTSIDE))?;
        match piece.from {
            Operand::Literal(l) => Ok(l.bits()),
            Operand::Buffer(b) => {
                let tensor = self.run.tensor(b)?;
                let index = piece.index.iter().map(|e| self.eval(e, at));
                element(&tensor.bits, offset(index, &tensor.dims)? as u64)
            }
        }
    }
}

fn element(bits: &[u64], place: u64) -> Result<u64, Diagnostic> {
    bits.get(place as usize).copied().ok_or_else(|| internal(OUTSIDE))
}
