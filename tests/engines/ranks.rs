//! Ranks on engines: programs of several ranks that are connected by TCP have the bits of one program of all of them.

use crate::common::batch::bits;
use crate::common::ranks::{axis_of, of_all_ranks, on_ranks};
use adfuse::backends::ranks::AXIS;
use adfuse::backends::reference::{Silent, run};
use adfuse::backends::{Array, RankGroup};
use adfuse::engine::registry::{ENGINES, Request};
use adfuse::engine::{Cpu, Session, Settings};
use adfuse::fusion::PlanOptions;
use adfuse::ir::kernel::ExchangeKind;
use adfuse::ir::op::Domain;
use adfuse::ir::text::{parse, parse_example};
use adfuse::ir::{Fp, Function, Kind, Module, Op, verify};
use adfuse::sample::{rng, sample};
use std::time::{Duration, Instant};

fn first(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

fn arguments(f: &Function) -> Vec<Array> {
    let mut draws = rng(21, 0);
    let types = f.param_types();
    types.iter().map(|t| sample(t, Domain::Normal, &mut draws).expect("small")).collect()
}

/// A session of an engine that plans, as one of these ranks.
fn session(engine: &str, ranks: RankGroup) -> Session {
    let plan = Cpu::default().plan;
    let request = Request { ranks: ranks.clone(), ..Request::new(plan.clone()) };
    let row = ENGINES.iter().find(|row| row.name == engine).expect("a row");
    let backend = row.open.expect("it plans")(&request).expect("is on this host");
    Session { settings: Settings { ranks, ..Settings::new(plan) }, backend }
}

/// The elements of a rank.
fn own(x: &Array, rank: u32) -> Array {
    let rank = u64::from(rank);
    x.rows(rank..rank + 1).and_then(|row| row.reshape(&x.dims()[1..])).expect("a row")
}

/// Runs a program on connected ranks, on the engines that plan; each must have its part of what the program of all ranks
/// gives on the reference engine.
fn agrees(module: &Module) {
    let (axis, ranks) = axis_of(first(module)).expect("a collective");
    assert_eq!(axis, AXIS);
    let all = of_all_ranks(module);
    let args = arguments(first(&all));
    let due = run(&all, first(&all), &args, &mut Silent).unwrap_or_else(|d| panic!("{d}"));
    let found = on_ranks(ranks, |group| {
        let rank = group.rank();
        let given: Vec<Array> = args.iter().map(|x| own(x, rank)).collect();
        // Engines take turns on the same connections.
        ["cpu", "evaluator"].map(|engine| {
            let made = session(engine, group.clone()).compile(module, first(module));
            let made = made.unwrap_or_else(|d| panic!("{engine}: {d}\n{}", first(module)));
            made.executable.run(&given).unwrap_or_else(|d| panic!("{engine}: {d}"))
        })
    });
    for (rank, engines) in (0..).zip(&found) {
        for results in engines {
            for (found, due) in results.iter().zip(&due) {
                assert_eq!(bits(found), bits(&own(due, rank)), "rank {rank} of {}", first(module));
            }
        }
    }
}

#[test]
fn every_collective_is_what_it_is_over_a_batch() {
    let mut count = 0;
    for op in Op::ALL.iter().filter(|op| op.collective().is_some()) {
        for example in op.def().examples {
            let text = example.replace("\"r\"", "\"ranks\"");
            agrees(&parse_example(&text).unwrap_or_else(|e| panic!("{text}: {e:?}")));
            count += 1;
        }
    }
    assert!(count >= 10, "{count} programs");
}

/// Sums of more than is sent whole, with a number of elements that ranks do not divide; of 16-bit floats too; and exchanges that
/// follow one another, with work between.
#[test]
fn long_sums_are_divided_and_have_the_same_bits() {
    for (ranks, extent, dtype) in [(2, 20_001, "f32"), (4, 9_999, "f64"), (3, 40_000, "bf16")] {
        let text = format!(
            "func @f(%x: {dtype}[{extent}]) -> ({dtype}[{extent}], {dtype}[]) {{
              %sum = all_reduce %x {{over = \"ranks\", ranks = {ranks}}} : {dtype}[{extent}]
              %most = all_reduce_max %sum {{over = \"ranks\", ranks = {ranks}}} : {dtype}[{extent}]
              %both = mul %sum, %most : {dtype}[{extent}]
              %own = mul %both, %x : {dtype}[{extent}]
              %norm = reduce_sum %own {{axes = [0]}} : {dtype}[]
              %all = all_reduce %norm {{over = \"ranks\", ranks = {ranks}}} : {dtype}[]
              return %both, %all }}"
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
        verify(&module).unwrap_or_else(|e| panic!("{e:?}"));
        agrees(&module);
    }
}

const SUM: &str = "func @f(%x: f32[3]) -> f32[3] {
    %y = all_reduce %x {over = \"ranks\", ranks = 2} : f32[3]
    return %y }";

/// A group that does not fit a program is refused where it is compiled, with the place.
#[test]
fn groups_that_do_not_fit_are_refused() {
    let module = parse(SUM).expect("reads");
    for engine in ["cpu", "evaluator"] {
        let d = session(engine, RankGroup::alone())
            .compile(&module, first(&module))
            .expect_err("alone");
        assert!(d.kind == Kind::NoDevice && d.at.func.is_some() && d.hint.is_some(), "{d}");
        assert!(d.message.contains("this process is alone"), "{d}");
    }
    let other = parse(&SUM.replace("\"ranks\"", "\"model\"")).expect("reads");
    let four = parse(&SUM.replace("ranks = 2", "ranks = 4")).expect("reads");
    on_ranks(2, |group| {
        for (module, said) in [(&other, "`model`"), (&four, "the group has 2")] {
            let d = session("cpu", group.clone())
                .compile(module, first(module))
                .expect_err("does not fit");
            assert!(d.kind == Kind::NoDevice && d.message.contains(said), "{d}");
        }
    });
}

/// Ranks that run different programs are told, instead of waiting or taking one tensor for another.
#[test]
fn different_programs_are_told() {
    let texts =
        [SUM.to_string(), SUM.replace("all_reduce", "all_reduce_max").replace("f32[3]", "f32[4]")];
    let errors = on_ranks(2, |group| {
        let module = parse(&texts[group.rank() as usize]).expect("reads");
        let made =
            session("cpu", group.clone()).compile(&module, first(&module)).expect("compiles");
        let args = arguments(first(&module));
        made.executable.run(&args).expect_err("another program")
    });
    for d in errors {
        assert!(d.kind == Kind::Usage && d.message.contains("rank 1 runs another program"), "{d}");
        assert!(d.message.contains("the exchanges differ"), "{d}");
    }
}

/// Equal exchanges do not hide that something else is computed, or in another mode; all ranks are told the same, and who it is.
#[test]
fn different_programs_of_equal_exchanges_are_told() {
    let with = |op: &str| {
        format!(
            "func @f(%x: f32[3]) -> f32[3] {{
        %a = {op} %x : f32[3]
        %y = all_reduce %a {{over = \"ranks\", ranks = 3}} : f32[3]
        return %y }}"
        )
    };
    let (neg, abs) = (with("neg"), with("abs"));
    let strict = |rank: u32| (if rank == 1 { abs.clone() } else { neg.clone() }, Fp::Strict);
    let modes = |rank: u32| (neg.clone(), if rank == 0 { Fp::Fast } else { Fp::Strict });
    for (of, said) in [
        (
            &strict as &(dyn Fn(u32) -> (String, Fp) + Sync),
            "rank 1 runs another program `f` than rank 0: the exchanges are equal",
        ),
        (&modes, "ranks 1, 2 run another program `f` than rank 0: engine or floating-point mode"),
    ] {
        for d in on_ranks(3, |group| {
            let (text, fp) = of(group.rank());
            let module = parse(&text).expect("reads");
            let plan = PlanOptions { fp, ..Cpu::default().plan };
            let cpu = Cpu { plan, ranks: group.clone(), ..Cpu::default() };
            let made = cpu.session().compile(&module, first(&module)).expect("compiles");
            made.executable.run(&arguments(first(&module))).expect_err("another program")
        }) {
            assert!(d.kind == Kind::Usage && d.message.contains(said), "{d}");
        }
    }
}

/// A rank that is gone ends those that wait for it, at once where it has left or its connection ended.
#[test]
fn a_rank_that_is_gone_ends_the_others() {
    let module = parse(&SUM.replace("ranks = 2", "ranks = 3")).expect("reads");
    let outcomes = on_ranks(3, |group| {
        let made =
            session("cpu", group.clone()).compile(&module, first(&module)).expect("compiles");
        let args = arguments(first(&module));
        made.executable.run(&args).expect("all are there");
        if group.rank() == 1 {
            return None;
        }
        let begun = Instant::now();
        let d = made.executable.run(&args).expect_err("one is gone");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        Some(d)
    });
    for d in outcomes.into_iter().flatten() {
        assert!(d.kind == Kind::LostRank && d.message.contains("rank"), "{d}");
    }
}

/// Bytes go where they should, large parts in both directions at one time.
#[test]
fn bytes_arrive_in_order() {
    let n = 3 << 20;
    on_ranks(3, |group| {
        let communicator = group.communicator().expect("there are others");
        let rank = group.rank() as u8;
        for round in 0..3u8 {
            let from: Vec<u8> = (0..n).map(|k| rank * 50 + round + (k % 7) as u8).collect();
            let mut all = vec![0; 3 * n];
            communicator.exchange(ExchangeKind::AllGather, &from, &mut all).expect("all are there");
            for (other, part) in (0..).zip(all.chunks(n)) {
                assert!(
                    part.iter().enumerate().all(|(k, &b)| b == other * 50 + round + (k % 7) as u8)
                );
            }
            let mut turned = vec![0; n];
            communicator
                .exchange(ExchangeKind::AllToAll, &from, &mut turned)
                .expect("all are there");
            for (other, part) in (0..).zip(turned.chunks(n / 3)) {
                let first = usize::from(rank) * (n / 3);
                assert!(
                    part.iter()
                        .enumerate()
                        .all(|(k, &b)| b == other * 50 + round + ((first + k) % 7) as u8)
                );
            }
            let mut same = vec![0; n];
            let root = ExchangeKind::Broadcast { root: 2 };
            communicator.exchange(root, &from, &mut same).expect("all are there");
            assert!(same.iter().enumerate().all(|(k, &b)| b == 100 + round + (k % 7) as u8));
        }
    });
}
