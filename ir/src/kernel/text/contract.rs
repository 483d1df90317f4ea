//! Contractions.

use super::cursor::ParseResult;
use super::parser::{ParseContext, ProgramParser};
use crate::dtype::DType;
use crate::kernel::buffer::Extents;
use crate::kernel::program::{Contract, Feed, Member};
use crate::kernel::stage::{Param, Stage};
use cranelift_entity::PrimaryMap;

impl ProgramParser<'_> {
    pub(super) fn contract(&mut self) -> ParseResult<Contract> {
        let name = self.name()?.to_string();
        self.cursor.expect("{")?;
        let mut contract = Contract { name, members: Default::default() };
        while self.cursor.accept("member") {
            let member = self.member()?;
            contract.members.push(member);
        }
        self.cursor.expect("}")?;
        Ok(contract)
    }

    fn member(&mut self) -> ParseResult<Member> {
        let [batch, rows, cols, depth] = self.headed(["batch", "rows", "cols", "depth"])?;
        let sum = self.sum()?;
        self.cursor.expect("{")?;
        let lhs = self.feed("lhs", sum)?;
        let rhs = self.feed("rhs", sum)?;
        let then = self.then(batch.len() + rows.len() + cols.len(), sum)?;
        self.cursor.expect("}")?;
        Ok(Member { batch, rows, cols, depth, lhs, rhs, sum, then })
    }

    /// `batch [2] rows [3] ..`
    fn headed<const N: usize>(&mut self, words: [&str; N]) -> ParseResult<[Extents; N]> {
        let mut found: [Extents; N] = std::array::from_fn(|_| Extents::new());
        for (word, extents) in words.into_iter().zip(&mut found) {
            self.cursor.expect(word)?;
            *extents = self.cursor.extents()?;
        }
        Ok(found)
    }

    /// `sum f32`
    fn sum(&mut self) -> ParseResult<DType> {
        self.cursor.expect("sum")?;
        self.cursor.dtype()
    }

    /// `lhs { .. out s0 }`
    fn feed(&mut self, word: &str, sum: DType) -> ParseResult<Feed> {
        self.cursor.expect(word)?;
        self.cursor.expect("{")?;
        let mut params = self.params()?;
        for (param, dtype) in &mut params {
            if matches!(param, Param::Sum) {
                *dtype = sum;
            }
        }
        let mut program = self.scalars(&params)?;
        while self.cursor.accept("out") {
            let v = self.scalar(&program.insts)?;
            program.outputs.push(v);
        }
        self.cursor.expect("}")?;
        Ok(Feed { params: params.into_iter().map(|p| p.0).collect(), program })
    }

    /// `then { .. }`
    fn then(&mut self, domain: usize, sum: DType) -> ParseResult<Stage> {
        self.cursor.expect("then")?;
        let (rows, tiles) = (&PrimaryMap::new(), &PrimaryMap::new());
        self.stage(&ParseContext { domain, rows, tiles, sum: Some(sum) }, Extents::new())
    }
}
