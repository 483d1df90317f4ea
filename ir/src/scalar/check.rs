//! What a scalar program must satisfy before anything runs it.

use super::program::{SInst, SOp, SVal, ScalarProgram};
use crate::dtype::DType;

impl ScalarProgram {
    /// Checks that values are defined before they are used and that every operation has operands of
    /// the types it is defined on.
    ///
    /// # Errors
    /// The first thing that is wrong, as a sentence with the value's name.
    pub fn check(&self) -> Result<(), String> {
        for (v, inst) in self.insts.iter() {
            if inst.args.iter().any(|&a| a >= v) {
                return Err(format!("{v} uses a value that is not defined before it"));
            }
            self.inst(inst).map_err(|why| format!("{v} = {inst}: {why}"))?;
        }
        match self.outputs.iter().find(|&&o| !self.insts.is_valid(o)) {
            Some(o) => Err(format!("{o} is not defined")),
            None => Ok(()),
        }
    }

    fn inst(&self, inst: &SInst) -> Result<(), String> {
        let arity = match inst.op {
            SOp::Param(_) | SOp::Const(_) => 0,
            SOp::Prim(p) => p.arity(),
            SOp::Func(f) => f.arity(),
        };
        if inst.args.len() != arity {
            return Err(format!("takes {arity} operands, found {}", inst.args.len()));
        }
        let ty = |v: &SVal| self.insts[*v].dtype;
        let fits = match inst.op {
            SOp::Param(k) => match self.params.get(k as usize) {
                None => return Err(format!("there are {} parameters", self.params.len())),
                Some(&d) => d == inst.dtype,
            },
            SOp::Const(c) => c.dtype() == inst.dtype,
            SOp::Func(_) => float(inst.dtype) && inst.args.iter().all(|a| ty(a) == inst.dtype),
            SOp::Prim(p) => {
                let args: Vec<DType> = inst.args.iter().map(ty).collect();
                p.def().typing.allows(&args, inst.dtype)
            }
        };
        if fits && inst.dtype != DType::Token {
            return Ok(());
        }
        let found: Vec<&str> = inst.args.iter().map(|a| ty(a).name()).collect();
        Err(format!("not defined on ({})", found.join(", ")))
    }
}

fn float(d: DType) -> bool {
    matches!(d, DType::F32 | DType::F64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::literal::Literal;
    use crate::scalar::{Func, Prim, Recorder, expand};
    use smallvec::SmallVec;

    fn inst(op: SOp, args: &[u32], dtype: DType) -> SInst {
        SInst { op, args: args.iter().map(|&a| SVal::from_u32(a)).collect(), dtype }
    }

    fn why(insts: &[SInst], outputs: &[u32]) -> String {
        let mut p = ScalarProgram::default();
        p.params.push(DType::F32);
        for i in insts {
            p.insts.push(i.clone());
        }
        p.outputs = outputs.iter().map(|&o| SVal::from_u32(o)).collect();
        p.check().expect_err("wrong on purpose")
    }

    #[test]
    fn what_is_recorded_passes_expanded_or_not() {
        for &f in Func::ALL {
            for dtype in [DType::F32, DType::F64] {
                let params = vec![dtype; f.arity()];
                let program = Recorder::rerecord(
                    &ScalarProgram {
                        params: params.iter().copied().collect(),
                        ..Default::default()
                    },
                    |r, x| SmallVec::from_iter([r.push(SOp::Func(f), x, dtype)]),
                );
                assert_eq!(program.check(), Ok(()));
                assert_eq!(expand(&program).check(), Ok(()), "{}", f.name());
            }
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let x = inst(SOp::Param(0), &[], DType::F32);
        let add = |args: &[u32]| inst(SOp::Prim(Prim::Add), args, DType::F32);
        let half = inst(SOp::Const(Literal::one(DType::BF16)), &[], DType::BF16);
        assert!(why(&[add(&[0, 0])], &[0]).contains("not defined before"));
        assert!(why(&[x.clone(), add(&[0])], &[1]).contains("takes 2 operands, found 1"));
        assert!(why(&[x.clone(), half, add(&[0, 1])], &[2]).contains("(f32, bf16)"));
        assert!(why(&[inst(SOp::Param(3), &[], DType::F32)], &[0]).contains("1 parameters"));
        assert!(why(&[inst(SOp::Param(0), &[], DType::F64)], &[0]).contains("not defined on"));
        assert!(why(&[x], &[4]).contains("s4 is not defined"));
    }

    #[test]
    fn all_lists_every_primitive() {
        // One entry each; the names are what text is read by.
        let mut names: Vec<&str> = Prim::ALL.iter().map(|p| p.name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Prim::ALL.len());
    }
}
