//! Programs of several ranks: as a batch, and on threads that are connected as processes are.

// Not every test program uses all of it.
#![allow(dead_code)]

use adfuse::autodiff::{Batching, Random, vmap};
use adfuse::backends::RankGroup;
use adfuse::backends::ranks::RankEnvironment;
use adfuse::ir::{Function, Module};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

/// The axis and the number of ranks of the first collective of a function.
pub(crate) fn axis_of(f: &Function) -> Option<(String, u32)> {
    let i = f.body_insts().iter().copied().find(|&i| f.op(i).collective().is_some())?;
    Some((f.attrs(i).text("over").to_string(), f.attrs(i).int("ranks") as u32))
}

/// A program of one rank as a program of all of them, whose parameters and results have the ranks as their first axes; one
/// without collectives as it is.
pub(crate) fn of_all_ranks(module: &Module) -> Module {
    let f = module.funcs.values().next().expect("a function");
    let Some((name, ranks)) = axis_of(f) else { return module.clone() };
    let axes = f.params().iter().map(|_| Some(0));
    let batching = Batching::new(u64::from(ranks), axes).named(name).random(Random::Same);
    Module::single(vmap(module, f, &batching).unwrap_or_else(|d| panic!("{d}\n{f}")))
}

/// Runs a closure for each rank, on threads that are connected by TCP as processes are.
pub(crate) fn on_ranks<T: Send>(ranks: u32, run: impl Fn(RankGroup) -> T + Sync) -> Vec<T> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let one = |rank: u32| {
        let environment = RankEnvironment {
            rank,
            ranks,
            local_rank: rank,
            address: Ipv4Addr::LOCALHOST.to_string(),
            port,
            wait: Duration::from_secs(60),
            ended: None,
        };
        run(RankGroup::connect(&environment).unwrap_or_else(|d| panic!("rank {rank}: {d}")))
    };
    std::thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || one(rank))).collect();
        all.into_iter().map(|rank| rank.join().expect("a rank ends")).collect()
    })
}
