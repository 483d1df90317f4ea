//! The one type of a rewrite rule: name, exactness, pattern, condition, build.
//!
//! Rules stand in tables, and [`rewrite`] is the one driver that applies a table to a function. A pattern is a tree of
//! ops with variables. The condition sees what the pattern bound and gives what the build needs of it, or nothing where
//! the rule does not apply; what the build writes stands for the results of the matched instruction.

use super::Copier;
use super::pattern::{Bound, Match, Pattern, Root};
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use smallvec::SmallVec;
use std::fmt;

/// What a rule keeps, from all to least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exactness {
    /// Every bit of every result: what strict mode allows.
    Exact,
    /// Every bit but where zeros are negative or operands are not finite.
    Finite,
    /// The number that the formula has over the reals; its rounding differs.
    Real,
}

impl fmt::Display for Exactness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exactness::Exact => "exact",
            Exactness::Finite => "finite",
            Exactness::Real => "real",
        })
    }
}

/// A rule: instructions that it recognises, and what stands for them.
pub struct Rule {
    /// For people, plans and tests; no two rules share one.
    pub name: &'static str,
    /// One sentence: what becomes what.
    pub doc: &'static str,
    /// What it keeps.
    pub exactness: Exactness,
    /// What it looks for.
    pub pattern: Pattern,
    /// When it applies, and what it builds.
    pub then: &'static dyn Then,
}

/// The condition of a rule and its build, which share what the condition finds.
pub struct When<T, R> {
    /// What the build needs of a match; nothing where the rule does not apply.
    pub condition: fn(&Match<'_>) -> Option<T>,
    /// Writes what stands for the results of the matched instruction.
    pub build: fn(&mut Site<'_, '_>, T) -> R,
}

/// A [`When`] of any type.
pub trait Then: Sync {
    /// Whether the rule applies to a match.
    fn holds(&self, m: &Match<'_>) -> bool;
    /// What stands for the results of the root, if the rule applies there.
    fn apply(&self, pattern: &Pattern, site: &mut Site<'_, '_>) -> Option<Replacement>;
}

impl<T, R: Into<Replacement>> Then for When<T, R> {
    fn holds(&self, m: &Match<'_>) -> bool {
        (self.condition)(m).is_some()
    }

    fn apply(&self, pattern: &Pattern, site: &mut Site<'_, '_>) -> Option<Replacement> {
        let m = pattern.find(site.matched_in(), site.root)?;
        let found = (self.condition)(&m)?;
        site.bound = m.into_bound();
        Some((self.build)(site, found).into())
    }
}

/// The condition of rules that apply wherever their pattern matches.
pub fn always(_: &Match<'_>) -> Option<()> {
    Some(())
}

/// The values that stand for the results of an instruction, in order.
pub struct Replacement(SmallVec<[Value; 1]>);

impl From<Value> for Replacement {
    fn from(v: Value) -> Replacement {
        Replacement(SmallVec::from_iter([v]))
    }
}

impl From<Vec<Value>> for Replacement {
    fn from(values: Vec<Value>) -> Replacement {
        Replacement(values.into())
    }
}

/// What the patterns of a table are matched against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// The function as it stands: no rule sees what another wrote.
    Source,
    /// What was written so far: a rule sees what others wrote, and the last instruction that a rule wrote is tried again.
    Written,
}

/// Rules that are applied in one walk of a function.
pub struct RuleTable {
    /// For people.
    pub name: &'static str,
    /// What it is for, and who applies it.
    pub doc: &'static str,
    /// What patterns are matched against.
    pub reads: Reads,
    /// Whether instructions of nested regions are rewritten too.
    pub regions: bool,
    /// The rules, in the order they are tried; the first that applies is used.
    pub rules: &'static [Rule],
}

/// Where a rule writes.
pub struct Site<'s, 'c> {
    /// The function that is rewritten.
    pub f: &'s Function,
    /// What is written.
    pub b: &'s mut Builder,
    /// The matched instruction.
    pub root: Root<'s>,
    reads: Reads,
    copier: &'s mut Copier<'c>,
    bound: Bound,
}

impl Site<'_, '_> {
    fn matched_in(&self) -> &Function {
        match self.reads {
            Reads::Source => self.f,
            Reads::Written => self.b.func(),
        }
    }

    /// The written value for a matched one.
    pub fn get(&mut self, v: Value) -> Value {
        match self.reads {
            Reads::Source => self.copier.get(self.b, v),
            Reads::Written => v,
        }
    }

    /// The written value for a variable of the pattern.
    pub fn var(&mut self, name: char) -> Value {
        let v = self.bound.value(name);
        self.get(v)
    }
}

/// A rule that fired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// The rule's name.
    pub rule: &'static str,
    /// The instruction of the new function that gives the first result.
    pub at: Inst,
}

/// The function with the rules of a table that keep what is asked for applied once, in program order, and which of them
/// fired. What nothing reads any more stays.
///
/// # Errors
/// Only if a rule builds an instruction that does not fit, which is a defect of the rule.
pub fn rewrite(
    f: &Function,
    table: &'static RuleTable,
    allowed: Exactness,
) -> Result<(Function, Vec<Recognised>), Diagnostic> {
    rewrite_where(f, table, allowed, &|_| true)
}

/// As [`rewrite`], at the instructions of the function for which `chosen` holds.
///
/// # Errors
/// As there.
pub(super) fn rewrite_where(
    f: &Function,
    table: &'static RuleTable,
    allowed: Exactness,
    chosen: &dyn Fn(Inst) -> bool,
) -> Result<(Function, Vec<Recognised>), Diagnostic> {
    let mut driver = Driver { f, table, allowed, chosen, fired: Vec::new() };
    if table.reads == Reads::Source && !driver.applies_somewhere() {
        return Ok((f.clone(), Vec::new()));
    }
    let new = Copier::new(f).rebuild(&mut |copier, b, i| driver.place(copier, b, i))?;
    Ok((new, driver.fired))
}

/// How often what a rule wrote is tried again: a bound, since none is known to need more.
const AGAIN: usize = 4;

struct Driver<'f> {
    f: &'f Function,
    table: &'static RuleTable,
    allowed: Exactness,
    chosen: &'f dyn Fn(Inst) -> bool,
    fired: Vec<Recognised>,
}

impl Driver<'_> {
    fn rules(&self) -> impl Iterator<Item = &'static Rule> {
        let allowed = self.allowed;
        self.table.rules.iter().filter(move |r| r.exactness <= allowed)
    }

    /// Whether a rule that reads the source applies to some instruction of it.
    fn applies_somewhere(&self) -> bool {
        let f = self.f;
        let applies = |i: Inst| {
            let root = Root::of(f, i);
            let fits = |r: &Rule, root| r.pattern.find(f, root).is_some_and(|m| r.then.holds(&m));
            let chosen = root.filter(|_| (self.chosen)(i));
            chosen.is_some_and(|root| self.rules().any(|r| fits(r, root)))
        };
        if !self.table.regions {
            return f.body_insts().iter().any(|&i| applies(i));
        }
        let mut some = false;
        f.walk(&mut |_, i| some = some || applies(i));
        some
    }

    fn place(
        &mut self,
        copier: &mut Copier<'_>,
        b: &mut Builder,
        i: Inst,
    ) -> Result<(), Diagnostic> {
        let made = match self.table.reads {
            _ if !(self.chosen)(i) => None,
            Reads::Source => self.of_source(copier, b, i),
            Reads::Written => self.of_written(copier, b, i),
        };
        if let Some((rule, made)) = made {
            for (&old, &new) in self.f.inst_results(i).iter().zip(&made.0) {
                copier.set(old, new);
            }
            if let ValueDef::Inst(at, _) = b.func().def(made.0[0]) {
                self.fired.push(Recognised { rule, at });
            }
        } else if self.table.regions {
            copier.inst_with(b, i, &mut |copier, b, i| self.place(copier, b, i))?;
        } else {
            copier.inst(b, i);
        }
        Ok(())
    }

    /// What the first rule that applies makes of an instruction as it stands; its results keep their names.
    fn of_source(
        &self,
        copier: &mut Copier<'_>,
        b: &mut Builder,
        i: Inst,
    ) -> Option<(&'static str, Replacement)> {
        let f = self.f;
        let (rule, made) = self.apply(copier, b, Root::of(f, i)?)?;
        for (&old, &new) in f.inst_results(i).iter().zip(&made.0) {
            if b.func().literal(new).is_none() && b.func().name_of(new).is_none() {
                b.func_mut().set_name(new, f.name_of(old));
            }
        }
        Some((rule, made))
    }

    /// What rules make of an instruction whose operands were rewritten, one after another.
    fn of_written(
        &self,
        copier: &mut Copier<'_>,
        b: &mut Builder,
        i: Inst,
    ) -> Option<(&'static str, Replacement)> {
        let f = self.f;
        let root = Root::of(f, i)?;
        if f.inst_results(i).len() > 1 || !f.inst(i).regions.is_empty() || root.op.is_effect() {
            return None;
        }
        let args: Vec<Value> = root.args.iter().map(|&a| copier.get(b, a)).collect();
        let mut best = self.apply(copier, b, Root { args: &args, ..root });
        for _ in 0..AGAIN {
            let last = best.as_ref().map(|(_, made)| b.func().def(made.0[0]));
            let Some(ValueDef::Inst(new, 0)) = last else { break };
            if b.func().region(b.region()).insts.last() != Some(&new) {
                break;
            }
            let (op, args) = (b.func().op(new), b.func().args(new).to_vec());
            let attrs = b.func().attrs(new).clone();
            match self.apply(copier, b, Root { op, args: &args, attrs: &attrs, ..root }) {
                Some(made) => best = Some(made),
                None => break,
            }
        }
        best
    }

    /// What the first rule that applies makes of a root.
    fn apply(
        &self,
        copier: &mut Copier<'_>,
        b: &mut Builder,
        root: Root<'_>,
    ) -> Option<(&'static str, Replacement)> {
        let f = self.f;
        b.set_phase(f.inst(root.inst).phase);
        b.follow(f, root.inst);
        let reads = self.table.reads;
        let mut site = Site { f, b: &mut *b, root, reads, copier, bound: Bound::default() };
        let (name, made) =
            self.rules().find_map(|r| Some((r.name, r.then.apply(&r.pattern, &mut site)?)))?;
        let fits = |(&old, &new): (&Value, &Value)| f.ty(old) == b.ty(new);
        let results = f.inst_results(root.inst);
        let fits = made.0.len() == results.len() && results.iter().zip(&made.0).all(fits);
        fits.then_some((name, made))
    }
}
