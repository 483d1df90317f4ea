//! One checkpoint a block, as users write it: the instructions of a block of the net are a function with the policy
//! `remat`, which is called where the block was.
//!
//! Programs have no blocks, so they are looked for: a block has a number of products, and ends where few of its values
//! are read after it. All numbers of products are tried, so a table shows the best that such checkpoints can do.

use adfuse::ir::op::{Body, Op};
use adfuse::ir::text::{Names, parse, print_function};
use adfuse::ir::{Function, Module, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Products of a block, at least.
const PRODUCTS: [usize; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48];

/// Values of a block that are read after it, at most: the state of an LSTM is two.
const RESULTS: [usize; 2] = [1, 2];

/// A function with its blocks in regions, in every way that is different.
///
/// # Errors
/// Where the text of a way does not read, with what is wrong.
pub(crate) fn in_blocks(f: &Function) -> Result<Vec<Module>, String> {
    let mut seen: Vec<Vec<usize>> = Vec::new();
    for products in PRODUCTS {
        for results in RESULTS {
            let ends = ends(f, products, results);
            if ends.len() > 1 && !seen.contains(&ends) {
                seen.push(ends);
            }
        }
    }
    let read = |ends: &Vec<usize>| {
        let text = with_regions(f, ends);
        parse(&text).map_err(|all| format!("{}\n{text}", all[0]))
    };
    seen.iter().map(read).collect()
}

/// Where each block ends, by the number of instructions before.
fn ends(f: &Function, products: usize, results: usize) -> Vec<usize> {
    let (insts, lives) = (f.body_insts(), lives(f));
    let (mut ends, mut begin, mut met) = (Vec::new(), 0, 0);
    for (at, &i) in insts.iter().enumerate() {
        met += usize::from(is_product(f.op(i)));
        if met >= products && left(f, &lives, begin, at + 1).len() <= results {
            ends.push(at + 1);
            (begin, met) = (at + 1, 0);
        }
    }
    ends
}

fn is_product(op: Op) -> bool {
    matches!(op.def().body, Body::Contract)
}

/// For each value how many instructions come before the end of its life: those up to its last reader, or all.
fn lives(f: &Function) -> BTreeMap<Value, usize> {
    let insts = f.body_insts();
    let mut lives = BTreeMap::new();
    for (at, &i) in insts.iter().enumerate() {
        lives.extend(f.args(i).iter().map(|&v| (v, at + 1)));
    }
    lives.extend(f.results().iter().map(|&v| (v, usize::MAX)));
    lives
}

/// The values of the instructions from one place to another that later ones read, or that are results.
fn left(f: &Function, lives: &BTreeMap<Value, usize>, begin: usize, end: usize) -> Vec<Value> {
    let made = f.body_insts()[begin..end].iter().flat_map(|&i| f.inst_results(i).iter().copied());
    made.filter(|v| lives.get(v).is_some_and(|&last| last > end)).collect()
}

/// The text of a module in which each block but the last, which has the loss, is a function.
fn with_regions(f: &Function, ends: &[usize]) -> String {
    let (names, insts, printed) = (Names::of(f), f.body_insts(), print_function(f));
    let lives = lives(f);
    let lines: Vec<&str> = printed.lines().collect();
    let name = |v: &Value| format!("%{}", names.get(*v));
    let (mut main, mut blocks, mut begin) = (format!("{}\n", lines[0]), String::new(), 0);
    for (k, &end) in ends.iter().enumerate() {
        let made: BTreeSet<Value> =
            insts[begin..end].iter().flat_map(|&i| f.inst_results(i).iter().copied()).collect();
        let read = insts[begin..end].iter().flat_map(|&i| f.args(i).iter().copied());
        let read: BTreeSet<Value> = read.filter(|v| !made.contains(v)).collect();
        let results = left(f, &lives, begin, end);
        let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(", ");
        let given = list(&mut read.iter().map(name));
        let typed = list(&mut read.iter().map(|v| format!("{}: {}", name(v), f.ty(*v))));
        let types = list(&mut results.iter().map(|v| f.ty(*v).to_string()));
        let handed = list(&mut results.iter().map(name));
        let body = lines[1 + begin..1 + end].join("\n");
        // Nothing is wrong with writing to a string.
        let _ = writeln!(main, "  {handed} = call {given} {{func = @block{k}}} : {types}");
        let types = if results.len() == 1 { types } else { format!("({types})") };
        let _ = write!(
            blocks,
            "\nfunc @block{k}({typed}) -> {types} checkpoint(remat) {{\n{body}\n  return {handed}\n}}\n"
        );
        begin = end;
    }
    main + &lines[1 + begin..].join("\n") + "\n" + &blocks
}
