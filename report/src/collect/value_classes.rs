//! Classes of values that are the same work of equal layers: what is found out about one holds for the others.

use super::context::Collected;
use super::step_classes::{ClassNumbers, step_classes};
use super::steps::homes;
use crate::data::PlanStep;
use adfuse_fusion::{Decider, ValueSource, computed_by_steps, steps_of};
use adfuse_ir::{Attrs, Function, Inst, Literal, Op, TensorType, Value};
use cranelift_entity::SecondaryMap;
use std::collections::BTreeMap;

/// What makes a value what it is.
#[derive(PartialEq, Eq, Hash)]
enum ValueWork<'a> {
    /// It is stored, or given: no two such values are equal but in equal steps.
    Alone(Value),
    /// Given by the caller, of a type.
    Given(&'a TensorType),
    /// Written in the program.
    Literal(Literal),
    /// A result of an instruction of a step: the step's class, the instruction's place in it, and the result's.
    Stored { step: usize, at: usize, op: Op, result: usize },
    /// Written out in the steps that use it: the instruction, and the classes of its operands.
    Inlined { op: Op, attrs: &'a Attrs, result: usize, args: Vec<usize> },
}

/// A class for each value that crosses phases, in the order of [`Decider::values`]: what computes it, and which steps need
/// it and how.
pub(super) fn value_classes(
    c: &Collected<'_>,
    decider: &Decider<'_>,
    steps: &[PlanStep],
) -> Vec<usize> {
    let f = c.source.function;
    let step_classes = step_classes(steps);
    let values = ValueNumbers::of(c, &step_classes);
    let groups = steps_of(c.laid.plan, &c.laid.program);
    let mut classes = ClassNumbers::new();
    let mut class = |&v: &Value| {
        let step = |g: usize| groups.get(g).and_then(|s| step_classes.get(s.start)).copied();
        let how = |how: ValueSource| match how {
            ValueSource::Again { group } => (5, step(group)),
            ValueSource::Memory => (0, None),
            ValueSource::Given => (1, None),
            ValueSource::Here => (2, None),
            ValueSource::HereAgain => (3, None),
            ValueSource::Written => (4, None),
        };
        let readings = decider.readings(v).iter();
        let needed: Vec<_> = readings.map(|r| (step(r.group), how(r.how))).collect();
        classes.of((values.of[v], f.type_id(v), needed))
    };
    decider.values().iter().map(&mut class).collect()
}

/// A number for each value of a function.
struct ValueNumbers {
    of: SecondaryMap<Value, usize>,
}

impl ValueNumbers {
    fn of(c: &Collected<'_>, step_classes: &[usize]) -> ValueNumbers {
        let f = c.source.function;
        let computed = computed_by_steps(c.laid.plan, &c.laid.program);
        let mut places: BTreeMap<Inst, (usize, usize)> = BTreeMap::new();
        for (i, n) in homes(c) {
            if let Some(at) = computed[n].iter().position(|&j| j == i) {
                places.insert(i, (step_classes[n], at));
            }
        }
        let mut keys = ClassNumbers::new();
        let mut of = SecondaryMap::new();
        for &p in f.params() {
            of[p] = keys.of(ValueWork::Given(f.ty(p)));
        }
        for &i in f.body_insts() {
            let args: Vec<usize> = f
                .args(i)
                .iter()
                .map(|&a| match f.literal(a) {
                    Some(l) => keys.of(ValueWork::Literal(l)),
                    None => of[a],
                })
                .collect();
            for (result, &v) in f.inst_results(i).iter().enumerate() {
                of[v] = keys.of(key(f, (i, result), places.get(&i).copied(), args.clone()));
            }
        }
        ValueNumbers { of }
    }
}

fn key<'a>(
    f: &'a Function,
    (i, result): (Inst, usize),
    place: Option<(usize, usize)>,
    args: Vec<usize>,
) -> ValueWork<'a> {
    let op = f.op(i);
    match place {
        Some((step, at)) => ValueWork::Stored { step, at, op, result },
        // What regions compute is not compared.
        None if !f.inst(i).regions.is_empty() => ValueWork::Alone(f.inst_results(i)[result]),
        None => ValueWork::Inlined { op, attrs: f.attrs(i), result, args },
    }
}
