//! Tensors that ranks divide: what the whole function gives, to the bit, and what cannot be divided.

use crate::common::batch::bits;
use adfuse::autodiff::{Batching, Random, vmap};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::{
    ExchangeBuckets, ShardedSums, StatePair, StateSharding, joined_exchanges, sharded,
};
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Module, TensorType, verify};
use adfuse::sample::{rng, sample};

const RANKS: u32 = 4;

/// `%m` is kept, `%g` differs from rank to rank, `%x` is whole everywhere. N and PART are replaced.
const STEP: &str =
    "func @f(%m: f32[N], %x: f32[N], %g: f32[N]) -> (f32[N], f32[N], f32[], f32[], f32[], bool[]) {
  %n = convert_element_type %g : bf16[N]
  %w = convert_element_type %n : f32[N]
  %s = all_reduce %w {over = \"ranks\", ranks = 4} : f32[N]
  %square = mul %s, %s : f32[N]
  %norm = reduce_sum %square {axes = [0]} : f32[]
  %most = reduce_max %s {axes = [0]} : f32[]
  %least = reduce_min %square {axes = [0]} : f32[]
  %finite = is_finite %s : bool[N]
  %all = reduce_and %finite {axes = [0]} : bool[]
  %by = broadcast_in_dim %norm {dims = []} : f32[N]
  %c = div %s, %by : f32[N]
  %old = mul %m, 0.9 : f32[N]
  %new = add %old, %c : f32[N]
  %next = sub %x, %new : f32[N]
  return %new, %next, %norm, %most, %least, %all
}
";

fn of(n: u64) -> Function {
    let module = parse(&STEP.replace('N', &n.to_string())).expect("reads");
    module.funcs.values().next().expect("a function").clone()
}

fn divided(f: &Function, sums: ShardedSums) -> StateSharding {
    StateSharding::of(f, ("ranks", RANKS), sums, &[StatePair { param: 0, result: 0 }])
}

/// What all ranks give together; `kept` says that the first parameter and the first result are parts.
fn together(f: &Function, kept: bool, args: &[Array]) -> Vec<Array> {
    let first = kept.then_some(0);
    let results = [first].into_iter().chain(f.results().iter().skip(1).map(|_| None));
    let batching = Batching::new(u64::from(RANKS), [first, None, Some(0)]).named("ranks");
    let batching = batching.random(Random::Same).results(results);
    let all = vmap(&Module::single(f.clone()), f, &batching).unwrap_or_else(|d| panic!("{d}\n{f}"));
    let module = Module::single(all.clone());
    verify(&module).unwrap_or_else(|e| panic!("{}\n{all}", e[0]));
    run(&module, &all, args, &mut Silent).unwrap_or_else(|d| panic!("{d}\n{all}"))
}

fn parts(whole: &Array, part: u64) -> Array {
    let mut bytes = whole.bytes().to_vec();
    bytes.resize((part * u64::from(RANKS) * 4) as usize, 0);
    Array::from_le_bytes(DType::F32, &[RANKS.into(), part], &bytes).expect("fits")
}

#[test]
fn divided_tensors_have_the_bits_of_whole_ones() {
    // Fewer than the ranks have, as many, one block more, a last rank without any, and numbers that are none.
    for (n, special) in
        [(1030, None), (4096, None), (4097, Some(f64::NAN)), (9000, Some(-0.0)), (70_001, None)]
    {
        let f = of(n);
        let mut draws = rng(7, n);
        let mut draw = |dims: &[u64]| {
            sample(&TensorType::of(DType::F32, dims), Domain::Normal, &mut draws).expect("small")
        };
        let mut args = [draw(&[n]), draw(&[n]), draw(&[RANKS.into(), n])];
        if let Some(special) = special {
            let mut values = args[2].to_f64s();
            values[n as usize - 1] = special;
            args[2] = Array::from_f64s(DType::F32, &[RANKS.into(), n], &values).expect("fits");
        }
        let due = together(&f, false, &args);
        let sharding = divided(&f, ShardedSums::InOrder);
        let [tensor] = sharding.tensors[..] else { panic!("{sharding}") };
        let part = tensor.part(RANKS);
        assert!(part < n && part * u64::from(RANKS) >= n, "{part} of {n}");
        args[0] = parts(&args[0], part);
        let small = ExchangeBuckets { alone: 1 << 16, dense: 1 << 16, full: 1 << 18 };
        let by_parts = sharded(&f, &sharding).unwrap_or_else(|d| panic!("{d}"));
        for f in [joined_exchanges(&by_parts, small).expect("joins"), by_parts] {
            let found = together(&f, true, &args);
            let kept = Array::from_le_bytes(DType::F32, &[n], &found[0].bytes()[..n as usize * 4]);
            assert_eq!(bits(&kept.expect("fits")), bits(&due[0]), "{n} elements\n{f}");
            for (k, (found, due)) in found.iter().zip(&due).enumerate().skip(1) {
                assert_eq!(bits(found), bits(due), "result {k} of {n} elements\n{f}");
            }
            // The gradient is sent in the type that it was widened from, and nobody is sent the whole of it.
            let text = f.to_string();
            assert!(text.contains("reduce_scatter") && !text.contains("all_reduce %w"), "{text}");
        }
    }
}

/// Sums of parts by rank are near the ordered ones, and exchange a number in place of blocks.
#[test]
fn sums_by_rank_are_nearly_those_in_order() {
    let f = of(9000);
    let mut draws = rng(8, 0);
    let mut draw = |dims: &[u64]| {
        sample(&TensorType::of(DType::F32, dims), Domain::Normal, &mut draws).expect("small")
    };
    let mut args = [draw(&[9000]), draw(&[9000]), draw(&[RANKS.into(), 9000])];
    let due = together(&f, false, &args);
    let sharding = divided(&f, ShardedSums::ByRank);
    args[0] = parts(&args[0], sharding.tensors[0].part(RANKS));
    let by_rank = sharded(&f, &sharding).expect("divides");
    let (found, due) = (together(&by_rank, true, &args)[2].to_f64s(), due[2].to_f64s());
    assert!((found[0] - due[0]).abs() < 1e-5 * due[0].abs(), "{found:?} {due:?}");
    assert_eq!(by_rank.to_string().matches("all_gather").count(), 1, "{by_rank}");
}

#[test]
fn what_is_read_whole_is_not_divided() {
    for (why, from, to) in [
        (
            "another sum",
            "%old = mul %m, 0.9",
            "%odd = cumsum %m {axis = 0} : f32[N]\n  %old = mul %odd, 0.9",
        ),
        (
            "a product",
            "%next = sub %x, %new",
            "%d = dot_general %m, %x {contract = [0] x [0]} : f32[]\n  %next = sub %x, %new",
        ),
        (
            "a product of elements",
            "%next = sub %x, %new",
            "%d = reduce_prod %new {axes = [0]} : f32[]\n  %next = sub %x, %new",
        ),
    ] {
        let text = STEP.replace(from, to).replace('N', "9000");
        let module = parse(&text).unwrap_or_else(|e| panic!("{}", e[0]));
        let f = module.funcs.values().next().expect("a function");
        assert!(divided(f, ShardedSums::InOrder).is_empty(), "{why}");
        let asked = divided(&of(9000), ShardedSums::InOrder);
        let d = sharded(f, &asked).expect_err(why);
        assert!(d.kind == Kind::Usage && d.message.contains("cannot be divided"), "{d}");
    }
    // A copy in 16 bits is gathered.
    let text = STEP.replace("%next = sub", "%copy = convert_element_type %m : bf16[N]\n  %q = dot_general %copy, %copy {contract = [0] x [0]} : bf16[]\n  %next = sub");
    let module = parse(&text.replace('N', "9000")).unwrap_or_else(|e| panic!("{}", e[0]));
    assert_eq!(
        divided(module.funcs.values().next().expect("a function"), ShardedSums::InOrder)
            .tensors
            .len(),
        1
    );
    // Too few elements are not worth it, and nothing is divided for one rank.
    assert!(divided(&of(1000), ShardedSums::InOrder).is_empty());
    let pair = [StatePair { param: 0, result: 0 }];
    assert!(StateSharding::of(&of(9000), ("ranks", 1), ShardedSums::InOrder, &pair).is_empty());
}

#[test]
fn decisions_read_back() {
    let text = "shard over ranks by 2, sums in order: 3 -> 7 of 300000, 4 -> 8 of 25800";
    let read: StateSharding = text.parse().expect("reads");
    assert_eq!((read.tensors.len(), read.to_string().as_str()), (2, text));
    assert_eq!(read.tensors[1].part(read.ranks), 13 * 1024);
    assert_eq!(read.of_param(4).map(|t| t.result), Some(8));
    for (wrong, said) in [
        ("shard over ranks by 2, sums in order", "a colon"),
        ("shard over ranks by x, sums in order:", "`x` is no number"),
        ("shard over ranks by 0, sums in order:", "at least one rank"),
        ("shard over 1 by 2, sums in order:", "`1` is no name"),
        ("shard over ranks by 2, sums somehow:", "in order"),
        ("shard over ranks by 2, sums by rank: 3 of 4", "`->` is missing"),
    ] {
        let e = wrong.parse::<StateSharding>().expect_err(wrong);
        assert!(e.contains(said), "{wrong}: {e}");
    }
}

/// Exchanges of one kind that follow each other are one; what reads a result ends it, and others are left alone.
#[test]
fn small_exchanges_are_joined() {
    let module = parse("func @f(%a: f32[2,3], %b: bf16[5], %c: f32[7], %d: f32[4]) -> (f32[2,3], f32[5], f32[7], f32[8], f32[7]) {
      %w = convert_element_type %b : f32[5]
      %sa = all_reduce %a {over = \"ranks\", ranks = 2} : f32[2,3]
      %sw = all_reduce %w {over = \"ranks\", ranks = 2} : f32[5]
      %sc = all_reduce %c {over = \"ranks\", ranks = 2} : f32[7]
      %ga = all_gather %d {over = \"ranks\", ranks = 2, axis = 0} : f32[8]
      %n = neg %sc : f32[7]
      %late = all_reduce %n {over = \"ranks\", ranks = 2} : f32[7]
      return %sa, %sw, %sc, %ga, %late
    }").unwrap_or_else(|e| panic!("{}", e[0]));
    let f = module.funcs.values().next().expect("a function");
    let joined =
        joined_exchanges(f, ExchangeBuckets { alone: 1 << 10, dense: 1 << 10, full: 1 << 20 })
            .expect("joins");
    let text = joined.to_string();
    // Of %a and %c; %w is sent in another type, %late reads what they gave.
    assert_eq!(text.matches("all_reduce").count(), 3, "{text}");
    assert_eq!(text.matches("concatenate").count(), 1, "{text}");
    let apart =
        joined_exchanges(f, ExchangeBuckets { alone: 4, dense: 4, full: 1 << 20 }).expect("joins");
    assert_eq!(apart.to_string(), f.to_string());
}
