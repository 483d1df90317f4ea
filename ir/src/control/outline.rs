//! A region as a function: what it reads from outside becomes parameters.

use crate::builder::Builder;
use crate::entity::{Region, Value};
use crate::function::Function;
use crate::rewrite::Copier;
use cranelift_entity::EntitySet;

/// A region as a function of its own.
pub struct Outlined {
    /// Parameters are the captured values, then the region's parameters; results are what the region ends with.
    pub func: Function,
    /// The values around the region that it reads, in the order of their first use.
    pub captures: Vec<Value>,
}

/// The values that a region reads and neither it nor a region in it defines, each once, in the order of their first
/// use. Literals are not among them.
pub fn captures(f: &Function, region: Region) -> Vec<Value> {
    let mut scan = Scan { f, inside: EntitySet::new(), seen: EntitySet::new(), found: Vec::new() };
    scan.region(region);
    scan.found
}

struct Scan<'f> {
    f: &'f Function,
    inside: EntitySet<Value>,
    seen: EntitySet<Value>,
    found: Vec<Value>,
}

impl Scan<'_> {
    fn region(&mut self, region: Region) {
        let f = self.f;
        let data = f.region(region);
        self.inside.extend(data.params.iter().copied());
        for &i in &data.insts {
            f.args(i).iter().for_each(|&v| self.read(v));
            for &r in &f.inst(i).regions {
                self.region(r);
            }
            self.inside.extend(f.inst_results(i).iter().copied());
        }
        data.results.iter().for_each(|&v| self.read(v));
    }

    fn read(&mut self, v: Value) {
        let outside = !self.inside.contains(v) && self.f.literal(v).is_none();
        if outside && self.seen.insert(v) {
            self.found.push(v);
        }
    }
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
