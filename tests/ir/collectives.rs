//! Collectives: what they mean over a batch of ranks, their order, and that derivatives and batches commute with it.

use crate::common::batch::bits;
use crate::common::ranks::{axis_of, of_all_ranks};
use adfuse::autodiff::{Batching, Derived, Random, jvp, vjp, vmap};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::widen;
use adfuse::ir::text::{parse, parse_example};
use adfuse::ir::{DType, Diagnostic, Function, Kind, Module, Op, verify};
use adfuse::sample::{rng, sample};

fn evaluate(f: &Function, args: &[Array]) -> Vec<Array> {
    let module = Module::single(f.clone());
    verify(&module).unwrap_or_else(|e| panic!("{}\n{f}", e[0]));
    run(&module, f, args, &mut Silent).unwrap_or_else(|d| panic!("{d}\n{f}"))
}

fn first(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

fn arguments(f: &Function, seed: u64) -> Vec<Array> {
    let mut draws = rng(seed, 0);
    let types = f.param_types();
    types.iter().map(|t| sample(t, Domain::Normal, &mut draws).expect("small")).collect()
}

/// The examples of all collectives that take a tensor, in `f64`.
fn programs() -> Vec<Module> {
    let ops = Op::ALL.iter().filter(|op| op.collective().is_some());
    let read = |text: &&str| widen(&parse_example(text).expect("reads")).expect("widens");
    let all: Vec<Module> = ops.flat_map(|op| op.def().examples).map(read).collect();
    assert!(all.len() >= 10, "{} programs", all.len());
    all.into_iter().filter(|m| !first(m).params().is_empty()).collect()
}

fn near(a: &[Array], b: &[Array], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (x, y) in a.iter().zip(b) {
        assert_eq!(x.ty(), y.ty(), "{what}");
        let close = |(x, y): (f64, f64)| (x - y).abs() <= 1e-12 * (1.0 + y.abs());
        assert!(x.to_f64s().into_iter().zip(y.to_f64s()).all(close), "{what}: {x:?} is not {y:?}");
    }
}

/// A function over a batch that is mapped everywhere, by name or without.
fn over(m: &Module, size: u64, name: Option<&str>) -> Function {
    let f = first(m);
    let batching = Batching::new(size, f.params().iter().map(|_| Some(0))).random(Random::Same);
    let batching = match name {
        Some(name) => batching.named(name),
        None => batching,
    };
    vmap(m, f, &batching).unwrap_or_else(|d| panic!("{d}\n{f}"))
}

/// The derivative of a program of one rank, over all ranks, is the derivative of the program of all ranks: in both modes, and
/// at the second order.
#[test]
fn derivatives_of_a_rank_are_those_of_all_ranks() {
    for program in programs() {
        let f = first(&program);
        let (name, ranks) = axis_of(f).expect("a collective");
        let all = of_all_ranks(&program);
        type Transformation = fn(&Module, &Function) -> Result<Function, Diagnostic>;
        let transformations: [(&str, Transformation); 4] = [
            ("jvp", |m, f| jvp(m, f, &[0])),
            ("vjp", |m, f| vjp(m, f, &[0])),
            ("jvp of vjp", |m, f| Derived::new(m, f).vjp(&[0])?.jvp(&[0])?.finish()),
            ("vjp of vjp", |m, f| Derived::new(m, f).vjp(&[0])?.vjp(&[0])?.finish()),
        ];
        for (what, transform) in transformations {
            let of = |m: &Module| {
                transform(m, first(m)).unwrap_or_else(|d| panic!("{what}: {d}\n{}", first(m)))
            };
            let rank_first = over(&Module::single(of(&program)), ranks.into(), Some(&name));
            let batch_first = of(&all);
            let args = arguments(&rank_first, 5);
            let what = format!("{what} of\n{f}{rank_first}{batch_first}");
            near(&evaluate(&rank_first, &args), &evaluate(&batch_first, &args), &what);
        }
    }
}

/// A batch of another axis goes through a collective, whichever is mapped first.
#[test]
fn other_batches_go_through() {
    for program in programs() {
        let (name, ranks) = axis_of(first(&program)).expect("a collective");
        // Ranks, then examples on the first axis; and the other way round.
        let ranks_first = over(&of_all_ranks(&program), 3, None);
        let examples_first =
            over(&Module::single(over(&program, 3, None)), ranks.into(), Some(&name));
        let args = arguments(&ranks_first, 9);
        let swapped: Vec<Array> = args.iter().map(swap).collect();
        let a = evaluate(&ranks_first, &args);
        let b: Vec<Array> = evaluate(&examples_first, &swapped).iter().map(swap).collect();
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(bits(a), bits(b), "{}", first(&program));
        }
    }
}

/// The array with its first two axes exchanged.
fn swap(x: &Array) -> Array {
    let dims = x.dims();
    let (n, m) = (dims[0] as usize, dims[1] as usize);
    let bits = x.to_bits();
    let row = bits.len() / (n * m);
    let mut out = Vec::new();
    for j in 0..m {
        (0..n).for_each(|i| out.extend_from_slice(&bits[(i * m + j) * row..][..row]));
    }
    let mut swapped = dims.to_vec();
    swapped.swap(0, 1);
    Array::from_bits(x.dtype(), &swapped, &out).expect("as many")
}

fn collective(line: &str, ranks: u32) -> Module {
    parse_example(&line.replace("RANKS", &ranks.to_string()))
        .unwrap_or_else(|e| panic!("{line}: {e:?}"))
}

/// The sum over ranks adds neighbours, then their sums, whatever their number.
#[test]
fn sums_are_in_the_order_of_pairs() {
    for ranks in [1u32, 2, 3, 4, 5, 7, 8, 16] {
        let all = of_all_ranks(&collective(
            "%x: f32[5] | all_reduce %x {over = \"r\", ranks = RANKS} : f32[5]",
            ranks,
        ));
        let args = arguments(first(&all), 3);
        let given = args[0].to_vec::<f32>().expect("f32");
        let mut rows: Vec<Vec<f32>> = given.chunks(5).map(<[f32]>::to_vec).collect();
        while rows.len() > 1 {
            let pair = |pair: &[Vec<f32>]| match pair {
                [a, b] => a.iter().zip(b).map(|(a, b)| a + b).collect(),
                rest => rest.concat(),
            };
            rows = rows.chunks(2).map(pair).collect();
        }
        let found = evaluate(first(&all), &args)[0].to_vec::<f32>().expect("f32");
        let due: Vec<f32> = (0..ranks).flat_map(|_| rows[0].clone()).collect();
        let same = found.iter().zip(&due).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same && found.len() == due.len(), "{ranks} ranks: {found:?}, not {due:?}");
    }
}

/// 16-bit floats are rounded once, not after each addition.
#[test]
fn narrow_floats_are_summed_in_wide_ones() {
    let all = of_all_ranks(&collective(
        "%x: bf16[1] | all_reduce %x {over = \"r\", ranks = RANKS} : bf16[1]",
        4,
    ));
    let args = [Array::from_f64s(DType::BF16, &[4, 1], &[256.0, 1.0, 1.0, 1.0]).expect("fits")];
    // 257 and 258 are not bf16; 259 rounds to 260.
    assert_eq!(evaluate(first(&all), &args)[0].to_f64s(), [260.0; 4]);
}

/// What collectives move, on small numbers.
#[test]
fn parts_go_where_they_should() {
    let matrix = |n: u64, m: u64| {
        let values: Vec<f64> = (0..2 * n * m).map(|k| k as f64).collect();
        Array::from_f64s(DType::F32, &[2, n, m], &values).expect("fits")
    };
    let run = |line: &str, args: &[Array]| {
        evaluate(first(&of_all_ranks(&collective(line, 2))), args)[0].to_f64s()
    };
    let line = "%x: f32[2,1] | all_gather %x {over = \"r\", ranks = RANKS, axis = 1} : f32[2,2]";
    assert_eq!(run(line, &[matrix(2, 1)]), [0., 2., 1., 3., 0., 2., 1., 3.]);
    let line =
        "%x: f32[2,1] | reduce_scatter %x {over = \"r\", ranks = RANKS, axis = 0} : f32[1,1]";
    assert_eq!(run(line, &[matrix(2, 1)]), [2., 4.]);
    let line = "%x: f32[2,2] | all_to_all %x {over = \"r\", ranks = RANKS, split = 0, concat = 1} : f32[1,4]";
    assert_eq!(run(line, &[matrix(2, 2)]), [0., 1., 4., 5., 2., 3., 6., 7.]);
    let line = "%x: f32[2,1] | broadcast %x {over = \"r\", ranks = RANKS, root = 1} : f32[2,1]";
    assert_eq!(run(line, &[matrix(2, 1)]), [2., 3., 2., 3.]);
    let line = "%x: f32[2,1] | all_reduce_max %x {over = \"r\", ranks = RANKS} : f32[2,1]";
    assert_eq!(run(line, &[matrix(2, 1)]), [2., 3., 2., 3.]);
    let line = "%x: f32[2,1] | all_reduce_min %x {over = \"r\", ranks = RANKS} : f32[2,1]";
    assert_eq!(run(line, &[matrix(2, 1)]), [0., 1., 0., 1.]);
    assert_eq!(run("| axis_index {over = \"r\", ranks = RANKS} : i32[]", &[]), [0., 1.]);
}

/// What is the same on all ranks needs no axis, and what follows from it neither; the rest does.
#[test]
fn what_all_ranks_have_is_there_once() {
    let text = "func @f(%x: f32[4], %w: f32[4]) -> (f32[4], f32[2]) {
        %sum = all_reduce %x {over = \"r\", ranks = 2} : f32[4]
        %scaled = mul %sum, %w : f32[4]
        %part = reduce_scatter %x {over = \"r\", ranks = 2, axis = 0} : f32[2]
        return %scaled, %part }";
    let module = parse(text).expect("reads");
    let f = first(&module);
    let batching = |last| Batching::new(2, [Some(0), None]).named("r").results([None, last]);
    let made = vmap(&module, f, &batching(Some(0))).expect("is made");
    assert_eq!(made.result_types()[0].dims().as_deref(), Some(&[4][..]));
    let d = vmap(&module, f, &batching(None)).expect_err("a part for each rank");
    assert!(d.kind == Kind::Usage && d.message.contains("result 1"), "{d}");
}

#[test]
fn what_is_no_batch_of_ranks_is_told() {
    let module = collective("%x: f32[2] | all_reduce %x {over = \"r\", ranks = RANKS} : f32[2]", 4);
    let f = first(&module);
    // Another number of ranks.
    let d = vmap(&module, f, &Batching::new(3, [Some(0)]).named("r")).expect_err("three of four");
    assert!(d.kind == Kind::Shape && d.message.contains("4 ranks"), "{d}");
    // Not mapped at all.
    let args = [Array::from_f32s(&[2], &[1.0, 2.0]).expect("fits")];
    let d = run(&module, f, &args, &mut Silent).expect_err("one rank alone");
    assert!(d.kind == Kind::NoDevice && d.at.inst.is_some() && d.hint.is_some(), "{d}");
    // In a function with a rule, which is called for all elements at once.
    let text = "func @f(%x: f32[]) -> f32[] {
        %y = call %x {func = @g} : f32[]
        return %y
      }
      func @g(%x: f32[]) -> f32[] custom_jvp(@g.jvp) {
        %y = all_reduce %x {over = \"r\", ranks = 2} : f32[]
        return %y
      }
      func @g.jvp(%x: f32[], %t: f32[]) -> (f32[], f32[]) {
        %y = all_reduce %x {over = \"r\", ranks = 2} : f32[]
        %u = all_reduce %t {over = \"r\", ranks = 2} : f32[]
        return %y, %u
      }";
    let module = parse(text).expect("reads");
    verify(&module).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.find("f").expect("is there");
    let d = vmap(&module, f, &Batching::new(2, [Some(0)]).named("r")).expect_err("a rule");
    assert!(d.kind == Kind::Unsupported && d.message.contains("@g"), "{d}");
}
