//! Which values cross from one phase to a later one under a plan, and how each gets there.

use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::analysis::phases::served;
use crate::lower::instances::{Instances, instances};
use crate::memory::residuals::{bytes, storage, stored};
use crate::plan::Plan;
use adfuse_ir::control::reads;
use adfuse_ir::{DType, Diagnostic, Function, Inst, Phase, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};

/// How a group gets a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueSource {
    /// It reads the first instance from memory.
    Memory,
    /// It reads an instance that a later group recomputed from memory.
    Again {
        /// That group.
        group: usize,
    },
    /// It computes it, and needed it for an earlier phase too: nothing crosses memory.
    Here,
    /// It recomputes the value.
    HereAgain,
    /// It inlines the value wherever it uses it.
    Written,
    /// It is a parameter or constant.
    Given,
}

/// A group that needs a value for a later phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The group.
    pub group: usize,
    /// How it gets the value.
    pub how: ValueSource,
}

/// What crosses phases.
pub(crate) struct Crossing {
    /// The values, parameters first, then in the order of the function.
    pub(crate) values: Vec<Value>,
    pub(crate) readings: SecondaryMap<Value, Vec<Reading>>,
    /// What those that are computed again are computed from.
    pub(crate) from: SecondaryMap<Value, Vec<Value>>,
    /// Bytes that are saved for later phases.
    pub(crate) saved: SecondaryMap<Value, u64>,
}

/// A plan as it is carried out: each instance of a value is one of the function `facts.f`.
pub(crate) struct ExecutedPlan<'a> {
    pub(crate) facts: Facts<'a>,
    pub(crate) plan: &'a Plan,
    x: Option<&'a Instances>,
    /// The group that computes an instance.
    home: SecondaryMap<Value, Option<usize>>,
    /// The instance of a value that is computed first.
    first: SecondaryMap<Value, Option<Value>>,
    /// The first phase that needs an instruction.
    serves: SecondaryMap<Inst, Phase>,
}

impl<'a> ExecutedPlan<'a> {
    /// Of a plan of a function, with what [`instances`] makes of it.
    pub(crate) fn of(
        f: &'a Function,
        plan: &'a Plan,
        x: Option<&'a Instances>,
    ) -> Result<ExecutedPlan<'a>, Diagnostic> {
        let (g, plan) = x.map_or((f, plan), |x| (&x.f, &x.plan));
        let mut facts = Facts::of(g, true)?;
        plan.inline.iter().for_each(|&i| facts.set_free(i));
        let (home, first) = (SecondaryMap::new(), SecondaryMap::new());
        let serves = served(g);
        let mut executed = ExecutedPlan { facts, plan, x, home, first, serves };
        for (at, group) in plan.groups.iter().enumerate() {
            for &i in group.parts.iter().flatten() {
                for &v in g.inst_results(i) {
                    executed.home[v] = Some(at);
                    if let Some(of) = executed.origin(v) {
                        executed.first[of].get_or_insert(v);
                    }
                }
            }
        }
        Ok(executed)
    }

    /// The value of which this is an instance.
    pub(crate) fn origin(&self, v: Value) -> Option<Value> {
        match self.x {
            None => Some(v),
            Some(x) => x.value[v],
        }
    }

    /// The instance that is computed first, by a group.
    pub(crate) fn first(&self, v: Value) -> Option<Value> {
        self.first[v]
    }

    /// The group that computes an instance.
    pub(crate) fn home(&self, v: Value) -> Option<usize> {
        self.home[v]
    }

    fn is_first(&self, v: Value) -> bool {
        self.origin(v).is_some_and(|of| self.first[of] == Some(v))
    }

    fn made_by(&self, v: Value) -> Option<Inst> {
        match self.facts.f.def(v) {
            ValueDef::Inst(i, _) => Some(i),
            _ => None,
        }
    }

    /// How a group gets an instance that one of its instructions reads.
    fn how(&self, group: usize, v: Value) -> ValueSource {
        match self.home[v] {
            _ if self.facts.free(v).is_some() => ValueSource::Written,
            None => ValueSource::Given,
            Some(home) => match (home == group, self.is_first(v)) {
                (true, true) => ValueSource::Here,
                (true, false) => ValueSource::HereAgain,
                (false, true) => ValueSource::Memory,
                (false, false) => ValueSource::Again { group: home },
            },
        }
    }

    /// What is read to compute an instance again in a group, into `found`.
    fn sources(&self, group: usize, v: Value, found: &mut Vec<Value>) {
        let (mut stack, mut seen) = (vec![v], EntitySet::<Value>::new());
        while let Some(v) = stack.pop() {
            let Some(i) = self.made_by(v) else { continue };
            for a in reads(self.facts.f, i) {
                if self.facts.f.literal(a).is_some() || !seen.insert(a) {
                    continue;
                }
                match self.how(group, a) {
                    ValueSource::Written | ValueSource::HereAgain => stack.push(a),
                    _ => found.extend(self.origin(a)),
                }
            }
        }
        found.sort_unstable();
        found.dedup();
    }
}

impl Crossing {
    /// What crosses under a plan of a function.
    ///
    /// A value crosses where a group needs it for an instruction of a later phase: that reads it, or
    /// reads what is written out in terms of it, or is computed again from it in the later phase. What an
    /// instruction reads from memory is needed for the first phase that needs the instruction.
    ///
    /// # Errors
    /// For what has no lowering.
    pub(crate) fn of(f: &Function, plan: &Plan) -> Result<Crossing, Diagnostic> {
        let x = instances(f, plan)?;
        let executed = ExecutedPlan::of(f, plan, x.as_ref())?;
        let mut found = Crossing {
            values: Vec::new(),
            readings: SecondaryMap::new(),
            from: SecondaryMap::new(),
            saved: SecondaryMap::new(),
        };
        for g in 0..executed.plan.groups.len() {
            found.group(f, &executed, g);
        }
        let body = f.body_insts().iter().flat_map(|&i| f.inst_results(i));
        let all = f.params().iter().chain(body).copied();
        found.values = all.filter(|&v| !found.readings[v].is_empty()).collect();
        let forms = storage(executed.plan);
        for kept in stored(&executed.facts, executed.plan).into_iter().filter(|s| s.later) {
            if let Some(v) = executed.origin(kept.value) {
                let size = bytes(&executed.facts, &forms, kept.value).unwrap_or(u64::MAX);
                found.saved[v] = found.saved[v].saturating_add(size);
            }
        }
        Ok(found)
    }

    /// Notes what a group needs for later phases.
    fn group(&mut self, f: &Function, executed: &ExecutedPlan<'_>, g: usize) {
        let (facts, h) = (&executed.facts, executed.facts.f);
        let members = || executed.plan.groups[g].parts.iter().flatten().copied();
        for m in members() {
            let own = h.inst(m).phase;
            let (mut stack, mut seen) = (vec![m], EntitySet::<Inst>::new());
            while let Some(i) = stack.pop() {
                for a in reads(h, i) {
                    // Tokens are no values that memory could hold.
                    let is_value = h.literal(a).is_none() && h.ty(a).dtype != DType::Token;
                    let Some(v) = executed.origin(a).filter(|_| is_value) else {
                        continue;
                    };
                    let how = executed.how(g, a);
                    let needed = match how {
                        ValueSource::Memory | ValueSource::Again { .. } => executed.serves[m],
                        _ => own,
                    };
                    if let Some(j) = facts.free(a)
                        && seen.insert(j)
                    {
                        stack.push(j);
                    }
                    if needed <= phase_of(f, v) {
                        continue;
                    }
                    let reading = Reading { group: g, how };
                    if !self.readings[v].contains(&reading) {
                        self.readings[v].push(reading);
                    }
                    match how {
                        ValueSource::Written | ValueSource::HereAgain => {
                            executed.sources(g, a, &mut self.from[v])
                        }
                        ValueSource::Again { group } => {
                            executed.sources(group, a, &mut self.from[v])
                        }
                        ValueSource::Memory | ValueSource::Here | ValueSource::Given => {}
                    }
                }
            }
        }
    }
}

/// The phase in which a value is computed; parameters are there from the first on.
pub(crate) fn phase_of(f: &Function, v: Value) -> Phase {
    match f.def(v) {
        ValueDef::Inst(i, _) => f.inst(i).phase,
        _ => Phase::default(),
    }
}

/// Whether a value is written in the program.
pub(crate) fn is_constant(facts: &Facts<'_>, v: Value) -> bool {
    matches!(facts.f.def(v), ValueDef::Inst(i, _) if facts.class[i] == InstClass::Constant)
}
