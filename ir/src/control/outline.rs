//! A region as a function: what it reads from outside becomes parameters.

use crate::builder::Builder;
use crate::captures::captures;
use crate::entity::{Region, Value};
use crate::function::Function;
use crate::rewrite::Copier;

/// A region as a function of its own.
pub struct Outlined {
    /// Parameters are the captured values, then the region's parameters; results are what the region ends with.
    pub func: Function,
    /// The values around the region that it reads, in the order of their first use.
    pub captures: Vec<Value>,
}

/// The function of a region.
pub fn outline(f: &Function, region: Region) -> Outlined {
    let captures = captures(f, region);
    let mut b = Builder::new(format!("{}_region", f.name));
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    let data = f.region(region);
    for &v in captures.iter().chain(&data.params) {
        let new = b.param(f.ty(v).clone(), f.name_of(v));
        copier.set(v, new);
    }
    for &i in &data.insts {
        copier.inst(&mut b, i);
    }
    let results: Vec<Value> = data.results.iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    let func = b.finish().expect("a copy of verified instructions fits");
    Outlined { func, captures }
}
