//! Contraction: a product and the sum that it goes into, with one rounding.
//!
//! For the modes that allow it alone. What comes out has a defined result like any program: the same
//! values go in, the same bits come out.

use super::prim::Prim;
use super::program::{SInst, SOp, SVal, ScalarProgram};

/// The same program with each product that is used once, by a sum or a difference of floats, as the
/// `fma` of the two. Of two such products in one sum the left one is taken.
///
/// Functions are left as they are, so that their errors are the ones that are stated: contract first,
/// [`expand`](fn@super::expand) then.
pub fn contracted(program: &ScalarProgram) -> ScalarProgram {
    let live = program.live();
    let mut uses = vec![0usize; program.insts.len()];
    let live_insts = program.insts.iter().filter(|(v, _)| live[v.as_u32() as usize]);
    let operands = live_insts.flat_map(|(_, i)| &i.args);
    for v in operands.chain(&program.outputs) {
        uses[v.as_u32() as usize] += 1;
    }
    let product = |v: SVal| {
        let inst = &program.insts[v];
        let once = uses[v.as_u32() as usize] == 1;
        (once && inst.op == SOp::Prim(Prim::Mul)).then_some(inst)
    };
    let mut result = ScalarProgram { params: program.params.clone(), ..Default::default() };
    let mut map: Vec<SVal> = Vec::with_capacity(program.insts.len());
    for inst in program.insts.values() {
        let of = |map: &[SVal], v: SVal| map[v.as_u32() as usize];
        let push = |result: &mut ScalarProgram, p: Prim, args: &[SVal]| {
            let args = args.iter().copied().collect();
            result.insts.push(SInst { op: SOp::Prim(p), args, dtype: inst.dtype })
        };
        let v = match joined(inst, product) {
            None => {
                let args = inst.args.iter().map(|&a| of(&map, a)).collect();
                result.insts.push(SInst { args, ..inst.clone() })
            }
            Some(join) => {
                let [mut a, b, mut c] = [join.factors[0], join.factors[1], join.term];
                (a, c) = (of(&map, a), of(&map, c));
                match inst.op {
                    SOp::Prim(Prim::Sub) if join.left => c = push(&mut result, Prim::Neg, &[c]),
                    SOp::Prim(Prim::Sub) => a = push(&mut result, Prim::Neg, &[a]),
                    _ => {}
                }
                push(&mut result, Prim::Fma, &[a, of(&map, b), c])
            }
        };
        map.push(v);
    }
    result.outputs = program.outputs.iter().map(|o| map[o.as_u32() as usize]).collect();
    result.without_dead()
}

/// The product that a sum or a difference is joined with.
struct FmaCandidate {
    factors: [SVal; 2],
    term: SVal,
    /// Whether the product is the left operand.
    left: bool,
}

fn joined<'p>(inst: &SInst, product: impl Fn(SVal) -> Option<&'p SInst>) -> Option<FmaCandidate> {
    if !matches!(inst.op, SOp::Prim(Prim::Add | Prim::Sub)) || !inst.dtype.is_float() {
        return None;
    }
    let of = |k: usize| {
        let p = product(*inst.args.get(k)?)?;
        let factors = [*p.args.first()?, *p.args.get(1)?];
        Some(FmaCandidate { factors, term: *inst.args.get(1 - k)?, left: k == 0 })
    };
    of(0).or_else(|| of(1))
}

impl ScalarProgram {
    /// The program without what no output needs; parameters stay in its list.
    fn without_dead(&self) -> ScalarProgram {
        let live = self.live();
        let mut result = ScalarProgram { params: self.params.clone(), ..Default::default() };
        let mut map: Vec<SVal> = Vec::with_capacity(self.insts.len());
        for (v, inst) in self.insts.iter() {
            if !live[v.as_u32() as usize] {
                // Never read: what is not live has no live user.
                map.push(v);
                continue;
            }
            let args = inst.args.iter().map(|a| map[a.as_u32() as usize]).collect();
            map.push(result.insts.push(SInst { args, ..inst.clone() }));
        }
        result.outputs = self.outputs.iter().map(|o| map[o.as_u32() as usize]).collect();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::literal::Literal;
    use crate::scalar::{Func, Recorder, S, eval_one, expand};
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use smallvec::SmallVec;

    /// A program over three parameters: each step is an operation on two of the last values.
    fn recorded(steps: &[(u8, u8, u8)], dtype: DType) -> ScalarProgram {
        let params = ScalarProgram { params: SmallVec::from_elem(dtype, 3), ..Default::default() };
        Recorder::rerecord(&params, |_, x| {
            let mut values: Vec<S<'_>> = x.to_vec();
            for &(op, a, b) in steps {
                let at = |k: u8| values[values.len() - 1 - usize::from(k) % values.len().min(4)];
                let (a, b) = (at(a), at(b));
                values.push(match op % 5 {
                    0 | 1 => a * b,
                    2 => a + b,
                    3 => a - b,
                    _ => -a,
                });
            }
            values.into_iter().rev().take(2).collect()
        })
    }

    fn count(p: &ScalarProgram, prim: Prim) -> usize {
        p.insts.values().filter(|i| i.op == SOp::Prim(prim)).count()
    }

    /// The first output alone, which is what single values are evaluated of.
    fn first(p: &ScalarProgram) -> ScalarProgram {
        ScalarProgram { outputs: p.outputs[..1].iter().copied().collect(), ..p.clone() }
    }

    fn steps() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
        proptest::collection::vec((0u8..5, 0u8..4, 0u8..4), 1..7)
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(0), ..ProptestConfig::default() })]

        /// Where nothing is rounded, contraction changes no bit, signs of zeros among them.
        #[test]
        fn exact_numbers_stay(steps in steps(), x in proptest::array::uniform3(-3i64..4)) {
            let program = first(&recorded(&steps, DType::F64));
            let args = x.map(|x| Literal::from_i64(DType::F64, x));
            let exact = eval_one(&program, &args);
            // Integers within 53 bits have one result, however they are rounded.
            prop_assume!(largest(&program, &args) < 9e15);
            let found = eval_one(&contracted(&program), &args);
            prop_assert_eq!(found.bits(), exact.bits(), "{}\n{}", program, contracted(&program));
        }

        /// No product is left that could be joined, none is lost, and a second time changes nothing.
        #[test]
        fn every_single_product_is_joined(steps in steps()) {
            let program = recorded(&steps, DType::F32);
            let once = contracted(&program);
            prop_assert_eq!(once.check(), Ok(()));
            prop_assert_eq!(&contracted(&once), &once);
            let live = program.live();
            let muls = program.insts.iter().filter(|(v, i)| {
                live[v.as_u32() as usize] && i.op == SOp::Prim(Prim::Mul)
            });
            prop_assert_eq!(count(&once, Prim::Fma) + count(&once, Prim::Mul), muls.count());
        }
    }

    /// The largest magnitude of any value.
    fn largest(p: &ScalarProgram, args: &[Literal]) -> f64 {
        let one = |v| ScalarProgram { outputs: SmallVec::from_iter([v]), ..p.clone() };
        p.insts.keys().map(|v| eval_one(&one(v), args).to_f64().abs()).fold(0.0, f64::max)
    }

    #[test]
    fn what_is_joined() {
        let text = |body: &dyn for<'r> Fn(&[S<'r>]) -> S<'r>| {
            let p = Recorder::record_any(&[DType::F32; 3], body);
            contracted(&p).to_string()
        };
        let joined = [
            text(&|x| x[0] * x[1] + x[2]),
            text(&|x| x[2] + x[0] * x[1]),
            text(&|x| x[0] * x[1] - x[2]),
            text(&|x| x[2] - x[0] * x[1]),
            text(&|x| x[0] * x[1] + x[1] * x[2]),
        ];
        let ends = [
            "fma.f32 s0 s1 s2",
            "fma.f32 s0 s1 s2",
            "s3 = neg.f32 s2\ns4 = fma.f32 s0 s1 s3",
            "s3 = neg.f32 s0\ns4 = fma.f32 s3 s1 s2",
            "s3 = mul.f32 s1 s2\ns4 = fma.f32 s0 s1 s3",
        ];
        for (text, end) in joined.iter().zip(ends) {
            assert!(text.contains(end), "{text}\nhas no\n{end}");
        }
        // A product that is used again, or is an output, stays.
        let kept = text(&|x| (x[0] * x[1] + x[2]) * (x[0] * x[1]));
        assert!(!kept.contains("fma"), "{kept}");
        let ints = Recorder::record_any(&[DType::I32; 3], |x| x[0] * x[1] + x[2]);
        assert_eq!(contracted(&ints), ints);
    }

    /// Functions keep every instruction that their stated errors rest on.
    #[test]
    fn functions_stay() {
        for &f in Func::ALL {
            let params = ScalarProgram {
                params: SmallVec::from_elem(DType::F32, f.arity()),
                ..Default::default()
            };
            let p = Recorder::rerecord(&params, |r, x| {
                SmallVec::from_iter([r.push(SOp::Func(f), x, DType::F32)])
            });
            assert_eq!(expand(&contracted(&p)), expand(&p), "{}", f.name());
        }
    }
}
