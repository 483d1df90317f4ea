//! Properties of random programs, and of every row of the op table.

use super::count_from_env;
use super::programs::Step;
use super::ranks::of_all_ranks;
use adfuse::backends::Array;
use adfuse::ir::infer::Class;
use adfuse::ir::op::{Domain, Infer};
use adfuse::ir::text::parse_example;
use adfuse::ir::{Builder, DType, Function, Module, Op, TensorType, Value};
use adfuse::sample::{rng, sample};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Checks a property of random programs: this many unless `ADFUSE_PROGRAMS` says how many.
pub(crate) fn programs(seed: u8, default: u32, property: impl Fn(&[Step]) -> Result<(), String>) {
    let cases = count_from_env("ADFUSE_PROGRAMS", default);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    // One seed, so that a failure in one place is a failure everywhere.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let steps = prop::collection::vec(any::<Step>(), 1..24);
    let outcome = runner.run(&steps, |steps| property(&steps).map_err(TestCaseError::fail));
    if let Err(e) = outcome {
        panic!("{e}");
    }
}

/// Values for a function's parameters, the last domain for all that follow.
pub(crate) fn inputs(f: &Function, domains: &[Domain]) -> Vec<Array> {
    let mut rng = rng(3, 0);
    let domain = |k: usize| domains[k.min(domains.len() - 1)];
    let types = f.param_types();
    let draw = |(k, t)| sample(t, domain(k), &mut rng).expect("small");
    types.iter().enumerate().map(draw).collect()
}

/// One-instruction functions of a row: its examples, with other float types in place of theirs, and
/// where it has a plain signature that at every type and some extents, one of them `long`. A collective is over all of its
/// ranks, which lie side by side.
pub(crate) fn cases(op: Op, long: u64) -> Vec<Module> {
    let mut cases = Vec::new();
    for example in op.def().examples {
        let read = parse_example(example).unwrap_or_else(|e| panic!("{example}: {e:?}"));
        cases.push(of_all_ranks(&read));
        for other in ["f64", "bf16", "f16"] {
            // Not every example makes sense in every type.
            let read = parse_example(&example.replace("f32", other));
            cases.extend(read.iter().map(of_all_ranks));
        }
    }
    if let Infer::Map(sig) = op.def().infer
        && op.def().attrs.is_empty()
        && !op.def().declared
    {
        for dtype in DType::ALL.into_iter().filter(|&d| sig.t.contains(d)) {
            for dims in [&[3, 4][..], &[], &[0, 2], &[long]] {
                let mut b = Builder::new("example");
                let of = |c| if c == Class::Bool { DType::Bool } else { dtype };
                let args: Vec<Value> =
                    sig.args.iter().map(|&c| b.param(TensorType::of(of(c), dims), None)).collect();
                let y = b.op(op, &args);
                b.set_results(&[y]);
                cases.push(Module::single(b.finish().expect("fits its signature")));
            }
        }
    }
    cases
}
