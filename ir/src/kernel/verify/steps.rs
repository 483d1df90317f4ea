//! Contractions and scatters.

use super::bounds::Scope;
use super::kernel::fits;
use super::{Check, Wrong, iterable};
use crate::attrs::Ints;
use crate::diag::Kind;
use crate::kernel::program::{Contract, Extents, Scatter};
use crate::kernel::stage::{Operand, Param};

impl Check<'_> {
    pub(super) fn contract(&mut self, place: &str, step: &Contract) {
        if let Err(wrong) = self.contracted(step) {
            self.report(place, wrong);
        }
        self.written[step.out] = true;
    }

    fn contracted(&self, step: &Contract) -> Result<(), Wrong> {
        self.readable(step.lhs)?;
        self.readable(step.rhs)?;
        self.writable(step.out)?;
        let (x, y, out) = (self.data(step.lhs), self.data(step.rhs), self.data(step.out));
        if x.dtype != y.dtype {
            let m = format!("operands differ in type: {} and {}", x.dtype, y.dtype);
            return Err(Wrong::new(Kind::DType, m));
        }
        let kind = |d: crate::DType| (d.is_float(), d.is_int());
        let wider = out.dtype.bytes() > x.dtype.bytes() && kind(out.dtype) == kind(x.dtype);
        if kind(x.dtype) == (false, false) || out.dtype != x.dtype && !wider {
            let m = format!("{} does not sum products of {}", out.dtype, x.dtype);
            return Err(Wrong::new(Kind::DType, m));
        }
        for (name, (a, b)) in [("batch", &step.batch), ("contract", &step.contract)] {
            if a.len() != b.len() {
                let m = format!("`{name}` pairs {} axes with {}", a.len(), b.len());
                return Err(Wrong::new(Kind::Arity, m));
            }
        }
        let free = |dims: &Extents, batch: &Ints, contract: &Ints| -> Result<Ints, Wrong> {
            let mut seen = vec![false; dims.len()];
            for &a in batch.iter().chain(contract) {
                match usize::try_from(a).ok().and_then(|a| seen.get_mut(a)) {
                    Some(seen) if !*seen => *seen = true,
                    _ => {
                        return Err(Wrong::new(
                            Kind::Shape,
                            format!("axis {a} is missing or named twice"),
                        ));
                    }
                }
            }
            Ok(dims.iter().zip(seen).filter(|(_, s)| !s).map(|(&n, _)| n).collect())
        };
        let of_x = free(&x.dims, &step.batch.0, &step.contract.0)?;
        let of_y = free(&y.dims, &step.batch.1, &step.contract.1)?;
        let pairs = |(a, b): &(Ints, Ints)| {
            a.iter().zip(b).all(|(&a, &b)| x.dims[a as usize] == y.dims[b as usize])
        };
        let batch = step.batch.0.iter().map(|&a| x.dims[a as usize]);
        let result: Extents = batch.chain(of_x).chain(of_y).collect();
        if !pairs(&step.batch) || !pairs(&step.contract) || result != out.dims {
            let m =
                format!("extents {:?} and {:?} do not contract to {:?}", x.dims, y.dims, out.dims);
            return Err(Wrong::new(Kind::Shape, m));
        }
        Ok(())
    }

    pub(super) fn scatter(&mut self, place: &str, step: &Scatter) {
        let before = self.errors.len();
        if let Err(wrong) = iterable(&step.domain) {
            self.report(place, wrong);
        }
        if self.errors.len() == before {
            self.params(place, &step.domain, &step.params, &step.program.params, |p| {
                let name = if matches!(p, Param::Row(_)) { "row" } else { "tile" };
                Err(Wrong::new(Kind::Dominance, format!("a scatter keeps no {name}")))
            });
        }
        if self.errors.len() == before
            && let Err(wrong) = self.scattered(step)
        {
            self.report(place, wrong);
        }
        self.written[step.out] = true;
    }

    fn scattered(&self, step: &Scatter) -> Result<(), Wrong> {
        self.writable(step.out)?;
        let out = self.data(step.out);
        let name = format!("%{}", out.name);
        match step.from {
            Operand::Literal(l) => fits(Some(l.dtype()), l.dtype(), out.dtype, &name)?,
            Operand::Buffer(b) => {
                self.readable(b)?;
                let from = self.data(b);
                fits(Some(from.dtype), from.dtype, out.dtype, &name)?;
                if from.dims != out.dims {
                    let m = format!("%{} and {name} differ in extents", from.name);
                    return Err(Wrong::new(Kind::Shape, m));
                }
            }
        }
        step.program.check().map_err(|m| Wrong::new(Kind::DType, m))?;
        let &[update] = step.program.outputs.as_slice() else {
            return Err(Wrong::new(Kind::Arity, "a scatter has one update"));
        };
        let dtype = step.program.insts[update].dtype;
        let wide = out.dtype.compute();
        fits(crate::op::Monoid::Sum.result(dtype), dtype, wide, &name)?;
        let mut scope = Scope::new(&step.domain, &step.program.params);
        scope.assume(&step.guards)?;
        scope.inside(&step.index, &out.dims)
    }
}
