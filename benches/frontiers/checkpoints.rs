//! One checkpoint a block, as users write it: the instructions of a block of the net are a function with the policy
//! `remat`, which is called where the block was.
//!
//! Programs have no blocks, so they are looked for: a block has a number of products, and ends where few of its values
//! are read after it. All numbers of products are tried, so a table shows the best that such checkpoints can do.

use adfuse::ir::op::{Body, Op};
use adfuse::ir::text::{Names, parse, print_function};
use adfuse::ir::{Function, Module, Value, ValueDef};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

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
        parse(&text).map_err(|all| format!("with blocks that end at {ends:?}: {}", all[0]))
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
    let fixed = fixed(f);
    lives.retain(|v, _| !fixed.contains(v));
    lives
}

/// The values that depend on no parameter, as masks do: no block has them.
fn fixed(f: &Function) -> BTreeSet<Value> {
    let mut fixed = BTreeSet::new();
    for &i in f.body_insts() {
        let is_fixed = |v: &Value| fixed.contains(v) || is_literal(f, *v);
        if f.args(i).iter().all(is_fixed) {
            fixed.extend(f.inst_results(i).iter().copied());
        }
    }
    fixed
}

fn is_literal(f: &Function, v: Value) -> bool {
    !matches!(f.def(v), ValueDef::Inst(..) | ValueDef::Param(..))
}

/// The values of the instructions from one place to another that later ones read, or that are results.
fn left(f: &Function, lives: &BTreeMap<Value, usize>, begin: usize, end: usize) -> Vec<Value> {
    let made = f.body_insts()[begin..end].iter().flat_map(|&i| f.inst_results(i).iter().copied());
    made.filter(|v| lives.get(v).is_some_and(|&last| last > end)).collect()
}

/// The text of a module in which each block but the last, which has the loss, is a function.
fn with_regions(f: &Function, ends: &[usize]) -> String {
    let (names, insts, printed) = (Names::of(f), f.body_insts(), print_function(f));
    let (lives, fixed) = (lives(f), fixed(f));
    let lines: Vec<&str> = printed.lines().collect();
    let is_fixed = |at: usize| f.inst_results(insts[at]).iter().any(|v| fixed.contains(v));
    let body = |places: Range<usize>, of_fixed: bool| -> String {
        let places = places.filter(|&at| is_fixed(at) == of_fixed);
        places.map(|at| format!("{}\n", lines[1 + at])).collect()
    };
    let name = |v: &Value| format!("%{}", names.get(*v));
    let last = ends.last().copied().unwrap_or(0);
    let (mut main, mut blocks) = (format!("{}\n", lines[0]), String::new());
    main += &body(0..last, true);
    let mut begin = 0;
    for (k, &end) in ends.iter().enumerate() {
        let here = || (begin..end).filter(|&at| !is_fixed(at)).map(|at| insts[at]);
        let made: BTreeSet<Value> =
            here().flat_map(|i| f.inst_results(i).iter().copied()).collect();
        let read = here().flat_map(|i| f.args(i).iter().copied());
        let read: BTreeSet<Value> =
            read.filter(|v| !made.contains(v) && !is_literal(f, *v)).collect();
        let results = left(f, &lives, begin, end);
        let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(", ");
        let given = list(&mut read.iter().map(name));
        let typed = list(&mut read.iter().map(|v| format!("{}: {}", name(v), f.ty(*v))));
        let types = list(&mut results.iter().map(|v| f.ty(*v).to_string()));
        let handed = list(&mut results.iter().map(name));
        let body = body(begin..end, false);
        // Nothing is wrong with writing to a string.
        let _ = writeln!(main, "  {handed} = call {given} {{func = @block{k}}} : {types}");
        let types = if results.len() == 1 { types } else { format!("({types})") };
        let _ = write!(
            blocks,
            "\nfunc @block{k}({typed}) -> {types} checkpoint(remat) {{\n{body}  return {handed}\n}}\n"
        );
        begin = end;
    }
    main + &lines[1 + begin..].join("\n") + "\n" + &blocks
}
