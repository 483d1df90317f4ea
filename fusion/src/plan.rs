//! Plans: which instructions share a kernel, in which order, and how what they leave is stored.
//!
//! A plan is data. It belongs to one prepared function, which it names by a hash of its text, and is
//! applied by the one lowering there is ([`lower`](crate::lower())).

use crate::device::Device;
use crate::facts::{Class, Facts};
use crate::fastest::fastest;
use crate::group::{Effort, Groups, group};
use crate::joint::AnyEngine;
use crate::merge;
use crate::range::Ranges;
use crate::search::searched;
use adfuse_ir::kernel::Storage;
use adfuse_ir::text::{Names, print_function};
use adfuse_ir::{Diagnostic, Fp, Function, Inst, Value};
use cranelift_entity::EntitySet;
use sha2::{Digest, Sha256};

/// What a plan is made for.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// The machine.
    pub device: Device,
    /// How hard to look.
    pub effort: Effort,
    /// What may happen to numbers.
    pub fp: Fp,
}

/// Instructions of one loop nest, in the order of the function; the first decides the nest.
pub type Members = Vec<Inst>;

/// What runs at once: the members of a kernel, or of several contractions that share an operand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The parts, one but for contractions.
    pub parts: Vec<Members>,
}

/// Which instructions share a kernel, and how what they leave is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The function's name.
    pub name: String,
    /// A hash of the prepared function's text.
    pub graph: String,
    /// The machine it is made for.
    pub device: String,
    /// What may happen to numbers.
    pub fp: Fp,
    /// Parameters that the caller gives up, by position, ascending: their memory may be used.
    pub donated: Vec<usize>,
    /// Instructions that are written out in every group that uses them.
    pub inline: Vec<Inst>,
    /// The groups, in the order in which they run.
    pub groups: Vec<Group>,
    /// Values that are not stored as they are.
    pub storage: Vec<(Value, Storage)>,
}

/// Elements from which on truth values and small numbers are packed.
const PACKED: i64 = 64;

/// Plans a [prepared](crate::prepare()) function: the fastest plan that is found, by the cost model. Of plans that are
/// equally fast it is the one of the lower peak.
///
/// # Errors
/// For what has no lowering: symbolic extents, tokens, effects and `cond`. The error names the symbol
/// or the instruction.
pub fn plan(f: &Function, options: &Options) -> Result<Plan, Diagnostic> {
    match options.effort {
        Effort::Search => searched(f, options, &AnyEngine),
        _ => fastest(f, options),
    }
}

/// As [`plan`], with a price on what is kept from one phase for a later one: it is worth so many times
/// what moving it takes, beside that.
pub(crate) fn plan_at(f: &Function, options: &Options, price: f64) -> Result<Plan, Diagnostic> {
    let (facts, groups) = group(f, options, price)?;
    Ok(Plan { graph: graph_hash(f), ..of_groups(&facts, &groups, options) })
}

/// The plan of what has been grouped, without the hash of the function's text.
pub(crate) fn of_groups(facts: &Facts<'_>, groups: &Groups, options: &Options) -> Plan {
    let f = facts.f;
    let apart = options.effort == Effort::Off;
    let order = match apart {
        true => groups.parts.keys().map(|p| vec![p]).collect(),
        false => merge::merged(facts, groups),
    };
    let group = |ids: Vec<_>| Group {
        parts: ids.into_iter().map(|p| groups.parts[p].members.clone()).collect(),
    };
    let mut results: EntitySet<Value> = EntitySet::new();
    results.extend(f.results().iter().copied());
    let ranges = Ranges::of(facts);
    let left = |v: &Value| !apart && !results.contains(*v) && !groups.readers(*v).is_empty();
    let stored = f.body_insts().iter().map(|&i| f.inst_results(i)[0]);
    Plan {
        name: f.name.clone(),
        graph: String::new(),
        device: options.device.name.clone(),
        fp: options.fp,
        donated: Vec::new(),
        inline: inline(facts, groups),
        groups: order.into_iter().map(group).collect(),
        storage: stored
            .filter(left)
            .filter_map(|v| Some((v, narrow(facts, &ranges, v)?)))
            .collect(),
    }
}

/// The narrower form in which a temporary is stored, where there is one that loses nothing.
pub(crate) fn narrow(facts: &Facts<'_>, ranges: &Ranges, v: Value) -> Option<Storage> {
    (facts.elements[v] >= PACKED).then(|| ranges.narrowest(facts, v)).flatten()
}

/// The free instructions that some group uses, in order.
fn inline(facts: &Facts<'_>, groups: &Groups) -> Vec<Inst> {
    let mut used = EntitySet::new();
    for part in groups.parts.values() {
        for &i in &part.members {
            mark(facts, i, &mut used);
        }
    }
    let free = |i: &Inst| facts.class[*i] == Class::Free && used.contains(*i);
    facts.f.body_insts().iter().copied().filter(free).collect()
}

fn mark(facts: &Facts<'_>, i: Inst, used: &mut EntitySet<Inst>) {
    let mut stack = vec![i];
    while let Some(i) = stack.pop() {
        for &a in facts.f.args(i) {
            if let Some(j) = facts.free(a)
                && used.insert(j)
            {
                stack.push(j);
            }
        }
    }
}

/// A hash of a function's text: what a plan belongs to.
pub fn graph_hash(f: &Function) -> String {
    short_hash(&print_function(f))
}

fn short_hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(16).map(|b| format!("{b:02x}")).collect()
}

impl Plan {
    /// A hash of the plan.
    pub fn hash(&self, f: &Function) -> String {
        short_hash(&self.text(f))
    }

    /// The plan for a caller who gives up these parameters, by position.
    pub fn donating(self, positions: &[usize]) -> Plan {
        let mut donated = positions.to_vec();
        donated.sort_unstable();
        donated.dedup();
        Plan { donated, ..self }
    }

    /// The plan's text, with the names that values have in the function's.
    pub fn text(&self, f: &Function) -> String {
        crate::plan_text::print(self, f, &Names::of(f))
    }

    /// Reads a plan of a function.
    ///
    /// # Errors
    /// If the text is no plan, or not one of this function: the error has the place in the text.
    pub fn parse(text: &str, f: &Function) -> Result<Plan, Diagnostic> {
        crate::plan_text::parse(text, f, &Names::of(f))
    }
}
