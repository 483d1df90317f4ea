//! Rewriting by output: later phases recover an operand from the answer of an op, so that the operand need not be kept.
//!
//! It is a rewrite of the prepared function. Where `%y = log %b`, instructions that only later phases need read
//! `%b.inverse = exp %y`; instructions that results of `%b`'s own phase need still read `%b`, so these results keep their
//! bits. What is recovered is in the scope `again(0)`: it is computed no sooner than its first reader asks. After the
//! rewrite the function has one meaning, whatever is fused, saved or recomputed.
//!
//! Inverses are a column of the op table. Those that are exact keep every bit; the others have a stated bound, hold for
//! operands in stated ranges, and are for the modes `reproducible` and `fast` alone.

use crate::analysis::float_range::FloatRanges;
use crate::analysis::phases::served;
use crate::analysis::recomputation::is_kept;
use crate::plan::inverse::InverseChoice;
use crate::plan::text::plan_lines;
use crate::prepass::checkpoint::raise;
use crate::prepass::lossy::fresh;
use adfuse_ir::control::reads;
use adfuse_ir::op::{Accuracy, FloatRange, Inverse};
use adfuse_ir::rewrite::{Copier, dce};
use adfuse_ir::scalar::{Prim, SOp, SVal, ScalarProgram};
use adfuse_ir::text::Names;
use adfuse_ir::{
    At, Builder, CheckpointPath, DType, Diagnostic, Fp, Function, Inst, Kind, Op, Phase, ScopeKind,
    Value, ValueDef,
};
use cranelift_entity::{EntitySet, SecondaryMap};
use hashbrown::HashSet;

/// An operand that follows from the answer of an instruction that reads it.
#[derive(Clone, Copy)]
pub(crate) struct Recoverable {
    /// The operand.
    pub(crate) of: Value,
    /// The instruction.
    pub(crate) by: Inst,
    /// How.
    pub(crate) inverse: &'static Inverse,
}

impl Recoverable {
    /// The answer.
    pub(crate) fn from(&self, f: &Function) -> Value {
        f.inst_results(self.by)[0]
    }

    /// The values that it is recovered from beside the answer.
    fn others(&self, f: &Function) -> Vec<Value> {
        let args = f.args(self.by);
        self.inverse
            .reads(&dtypes(f, self.by), f.ty(self.from(f)).dtype)
            .into_iter()
            .map(|k| args[k])
            .collect()
    }

    /// The words for it in plans.
    pub(crate) fn choice(&self, f: &Function, names: &Names) -> InverseChoice {
        InverseChoice { of: names.get(self.of), from: names.get(self.from(f)) }
    }
}

fn dtypes(f: &Function, i: Inst) -> Vec<DType> {
    f.args(i).iter().map(|&a| f.ty(a).dtype).collect()
}

/// The first inverse by which an operand of an instruction follows in a mode, with what is known of its operands.
pub(crate) fn inverse_of(
    f: &Function,
    at: (Inst, usize),
    fp: Fp,
    ranges: &Option<FloatRanges<'_>>,
) -> Option<&'static Inverse> {
    stated(f, at, false, (fp, ranges))
}

/// As [`inverse_of`], for the operand or for the partial derivative in it.
fn stated(
    f: &Function,
    (i, operand): (Inst, usize),
    partial: bool,
    (fp, ranges): (Fp, &Option<FloatRanges<'_>>),
) -> Option<&'static Inverse> {
    let &[y] = f.inst_results(i) else { return None };
    let (ty, result) = (f.ty(f.args(i)[operand]).dtype, f.ty(y).dtype);
    f.op(i).inverses().iter().find(|inverse| {
        let known = |singular: bool| -> Vec<FloatRange> {
            let range = |(k, &v): (usize, &Value)| match ranges {
                Some(r) if singular && k != operand => r.regular(v),
                Some(r) => r.get(v),
                None => FloatRange::ALL,
            };
            f.args(i).iter().enumerate().map(range).collect()
        };
        let fits = inverse.operand == operand && inverse.partial == partial;
        fits && inverse.accepts(ty, result)
            && match inverse.accuracy {
                Accuracy::Exact => true,
                Accuracy::Approximate(error) => {
                    fp != Fp::Strict && (inverse.holds)(&known(error.singular))
                }
            }
    })
}

/// An operand that later phases can recover by an instruction in a mode, wherever the answer is; `None` where there is no inverse,
/// or where they need it before they have the answer.
pub(crate) fn recoverable_by(
    f: &Function,
    at: (Inst, usize),
    fp: Fp,
    ranges: &Option<FloatRanges<'_>>,
) -> Option<Recoverable> {
    Readers::of(f).recoverable(f, at, false, (fp, ranges))
}

/// What is known of floats, in modes that ask for it.
pub(crate) fn ranges_for(f: &Function, fp: Fp) -> Option<FloatRanges<'_>> {
    (fp != Fp::Strict).then(|| FloatRanges::of(f))
}

/// The operands that later phases can recover in a mode, the last in the function first, so that an answer that is
/// recovered itself comes before its operand. `there` says what is in memory for later phases anyway.
pub(crate) fn recoverable(f: &Function, fp: Fp, there: &dyn Fn(Value) -> bool) -> Vec<Recoverable> {
    let readers = Readers::of(f);
    let body = f.body_insts();
    let wanted = |i: Inst| {
        let stated = f.op(i).inverses();
        stated.iter().any(|inv| fp != Fp::Strict || inv.accuracy == Accuracy::Exact)
    };
    let asks = |i: &Inst| wanted(*i) && f.args(*i).iter().any(|&a| readers.later[a].is_some());
    if !body.iter().any(asks) {
        return Vec::new();
    }
    let ranges = ranges_for(f, fp);
    let mut found: Vec<Recoverable> = Vec::new();
    let mut recovered: EntitySet<Value> = EntitySet::new();
    for &by in body.iter().rev().filter(|i| wanted(**i)) {
        let &[y] = f.inst_results(by) else { continue };
        if !there(y) && !recovered.contains(y) {
            continue;
        }
        let each = (0..f.args(by).len()).flat_map(|k| [(k, false), (k, true)]);
        for (k, partial) in each {
            let one = readers.recoverable(f, (by, k), partial, (fp, &ranges));
            let Some(one) = one else { continue };
            // Two operands are not recovered from each other.
            let clear = |v: &Value| !recovered.contains(*v);
            if clear(&one.of) && one.others(f).iter().all(clear) {
                recovered.insert(one.of);
                found.push(one);
            }
        }
    }
    found
}

/// The value that is the partial derivative of an instruction in an operand, as it is written in the function.
fn partial_value(f: &Function, by: Inst, k: usize) -> Option<Value> {
    let y = *f.inst_results(by).first()?;
    let program = f.op(by).partial(k, &dtypes(f, by), f.ty(y).dtype, f.attrs(by))?;
    let root = *program.outputs.first()?;
    let (op, ..) = Op::of_scalar(program.insts[root].op)?;
    let params: Vec<Value> = std::iter::once(y).chain(f.args(by).iter().copied()).collect();
    let written = |&v: &Value| is_written(f, v, (&program, root), &params);
    let same = f.body_insts().iter().filter(|&&i| f.op(i) == op && f.inst_results(i).len() == 1);
    same.map(|&i| f.inst_results(i)[0]).find(written)
}

/// Whether a value is what a scalar program's instruction says of these parameters, once it is simplified.
fn is_written(
    f: &Function,
    v: Value,
    (program, at): (&ScalarProgram, SVal),
    params: &[Value],
) -> bool {
    let inst = &program.insts[at];
    let literal = |at: SVal| match program.insts[at].op {
        SOp::Const(c) => Some(c),
        SOp::Param(k) => f.literal(params[k as usize]),
        _ => None,
    };
    match inst.op {
        SOp::Param(k) if params[k as usize] == v => return true,
        SOp::Param(_) | SOp::Const(_) => {
            return literal(at).is_some() && literal(at) == f.literal(v);
        }
        // `x - 0` is written as `x`.
        SOp::Prim(Prim::Sub) if literal(inst.args[1]).is_some_and(|l| l.is_positive_zero()) => {
            return is_written(f, v, (program, inst.args[0]), params);
        }
        _ => {}
    }
    let (ValueDef::Inst(i, _), Some((op, order, _))) = (f.def(v), Op::of_scalar(inst.op)) else {
        return false;
    };
    let each = || f.args(i).iter().zip(order);
    let same = |(&a, &k): (&Value, &usize)| is_written(f, a, (program, inst.args[k]), params);
    f.op(i) == op && f.args(i).len() == order.len() && each().all(same)
}

/// Whether nothing is gained if later phases do not read a value.
fn there_anyway(f: &Function, v: Value) -> bool {
    match f.def(v) {
        ValueDef::Inst(i, _) => f.results().contains(&v) || is_kept(f, i),
        _ => true,
    }
}

/// Who reads values for later phases.
struct Readers {
    serves: SecondaryMap<Inst, Phase>,
    place: SecondaryMap<Inst, u32>,
    /// The place of the first reader of a value that serves a later phase alone.
    later: SecondaryMap<Value, Option<u32>>,
}

impl Readers {
    fn of(f: &Function) -> Readers {
        let (serves, mut place) = (served(f), SecondaryMap::new());
        let mut later: SecondaryMap<Value, Option<u32>> = SecondaryMap::new();
        for (&i, at) in f.body_insts().iter().zip(0..) {
            place[i] = at;
            for a in reads(f, i) {
                let ValueDef::Inst(made, _) = f.def(a) else { continue };
                if serves[i] > f.inst(made).phase && later[a].is_none() {
                    later[a] = Some(at);
                }
            }
        }
        Readers { serves, place, later }
    }

    /// An operand, or the partial derivative in it, that later phases can recover by an instruction, wherever the answer
    /// is.
    fn recoverable(
        &self,
        f: &Function,
        (by, k): (Inst, usize),
        partial: bool,
        (fp, ranges): (Fp, &Option<FloatRanges<'_>>),
    ) -> Option<Recoverable> {
        let inverse = stated(f, (by, k), partial, (fp, ranges))?;
        let of = if partial { partial_value(f, by, k)? } else { f.args(by)[k] };
        if there_anyway(f, of) || !self.after(f, of, by) {
            return None;
        }
        let one = Recoverable { of, by, inverse };
        (!one.others(f).contains(&of)).then_some(one)
    }

    /// Whether a value is read for later phases, after an instruction of its own phase, which this needs.
    fn after(&self, f: &Function, v: Value, by: Inst) -> bool {
        let ValueDef::Inst(made, _) = f.def(v) else { return false };
        let own = f.inst(made).phase;
        self.serves[by] == own && self.later[v].is_some_and(|at| at > self.place[by])
    }
}

/// The function in which later phases recover these values.
///
/// # Errors
/// Those of construction: none for what [`recoverable`] gives.
pub(crate) fn recovering(f: &Function, wanted: &[Recoverable]) -> Result<Function, Diagnostic> {
    if wanted.is_empty() {
        return Ok(f.clone());
    }
    let names = Names::of(f);
    let mut taken: HashSet<String> = f.params().iter().map(|&p| names.get(p)).collect();
    taken.extend(f.body_insts().iter().flat_map(|&i| f.inst_results(i)).map(|&v| names.get(v)));
    let mut copier = Copier::new(f);
    let mut b = copier.begin();
    let mut plain: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    f.params().iter().for_each(|&p| plain[p] = copier.find(p));
    let mut rewriter =
        OutputRewriter { f, wanted, names, taken, back: SecondaryMap::new(), serves: served(f) };
    for &i in f.body_insts() {
        let mut phase = f.inst(i).phase;
        for a in reads(f, i) {
            let Some(own) = plain[a] else { continue };
            let ValueDef::Inst(made, _) = f.def(a) else { continue };
            let late = rewriter.serves[i] > f.inst(made).phase;
            let read = match late.then(|| rewriter.one(a)).flatten() {
                Some(one) => rewriter.recovered(&mut b, one, &plain, later(f.inst(made).phase))?,
                None => own,
            };
            copier.set(a, read);
            if let ValueDef::Inst(read, _) = b.func().def(read) {
                phase = phase.max(b.func().inst(read).phase);
            }
        }
        let new = copier.inst(&mut b, i);
        raise(b.func_mut(), new, phase);
        for &v in f.inst_results(i) {
            plain[v] = copier.find(v);
        }
    }
    for &v in f.results() {
        if let Some(own) = plain[v] {
            copier.set(v, own);
        }
    }
    let mut g = copier.finish(b)?;
    dce(&mut g);
    Ok(g)
}

/// The phase after one.
fn later(phase: Phase) -> Phase {
    Phase(phase.0.saturating_add(1))
}

/// A function while its later phases are given what they recover.
struct OutputRewriter<'f> {
    f: &'f Function,
    wanted: &'f [Recoverable],
    names: Names,
    taken: HashSet<String>,
    /// What was recovered of a value.
    back: SecondaryMap<Value, Option<Value>>,
    serves: SecondaryMap<Inst, Phase>,
}

impl<'f> OutputRewriter<'f> {
    fn one(&self, v: Value) -> Option<&'f Recoverable> {
        self.wanted.iter().find(|one| one.of == v)
    }

    /// The recovered value, in a phase. Answers that are recovered themselves come first.
    fn recovered(
        &mut self,
        b: &mut Builder,
        one: &Recoverable,
        plain: &SecondaryMap<Value, Option<Value>>,
        phase: Phase,
    ) -> Result<Value, Diagnostic> {
        let f = self.f;
        // Chains of answers end at one that is not recovered.
        let mut chain = vec![*one];
        while let Some(next) = chain.last().and_then(|last| self.one(last.from(f))) {
            chain.push(*next);
        }
        for link in chain.into_iter().rev() {
            if self.back[link.of].is_some() {
                continue;
            }
            let given = |v: Value, b: &mut Builder| match f.def(v) {
                ValueDef::Literal(l) => Some(b.literal(&f.ty(v).clone(), l)),
                _ => plain[v],
            };
            let y = match self.back[link.from(f)] {
                Some(back) => Some(back),
                None => plain[link.from(f)],
            };
            let read = link.others(f);
            let args: Vec<Option<Value>> = f
                .args(link.by)
                .iter()
                .map(|&a| if read.contains(&a) { given(a, b) } else { None })
                .collect();
            let types: Vec<_> = f.args(link.by).iter().map(|&a| f.ty(a).clone()).collect();
            let before = b.func().body_insts().len();
            b.set_phase(phase);
            b.set_origin(f.origin(link.by).clone());
            b.set_path(CheckpointPath::alone(ScopeKind::Again));
            let of = (f.op(link.by), f.attrs(link.by));
            let back = y.and_then(|y| link.inverse.write(b, of, y, &args, &types));
            let Some(back) = back else {
                return Err(unknown(f, &link.choice(f, &self.names)));
            };
            b.set_path(CheckpointPath::default());
            // Numbers are given to what has no name: what was numbered before keeps its number.
            let name = self.names.get(link.of);
            let new: Vec<Inst> = b.func().body_insts()[before..].to_vec();
            let made: Vec<Value> =
                new.iter().flat_map(|&i| b.func().inst_results(i)).copied().collect();
            for v in made {
                let word = if v == back { "inverse" } else { "part" };
                let name = fresh(&mut self.taken, &name, word);
                b.func_mut().set_name(v, Some(&name));
            }
            self.back[link.of] = Some(back);
        }
        self.back[one.of].ok_or_else(|| unknown(f, &one.choice(f, &self.names)))
    }
}

fn unknown(f: &Function, choice: &InverseChoice) -> Diagnostic {
    let at = At { func: Some(f.name.clone()), ..At::default() };
    Diagnostic::new(
        at,
        Kind::Usage,
        format!("%{} does not follow from %{}", choice.of, choice.from),
    )
}

/// The function with the inverses that the text of a plan lists, and these.
///
/// # Errors
/// For a line that lists what there is not, or what does not follow in the plan's mode: the error has the place in the text.
pub(crate) fn inverted_as(
    f: &Function,
    text: &str,
) -> Result<(Function, Vec<InverseChoice>), Diagnostic> {
    let (mut choices, mut places) = (Vec::new(), Vec::new());
    let mut fp = Fp::Strict;
    for (place, word, said) in plan_lines(text) {
        match word {
            "fp" => {
                fp = Fp::ALL.iter().find(|(_, name)| *name == said).map_or(fp, |(fp, _)| *fp);
            }
            "inverse" => {
                let Some(choice) = InverseChoice::parse(said) else {
                    let m = "expected `inverse %value from %answer`";
                    return Err(Diagnostic::new(At::span(place), Kind::Syntax, m));
                };
                choices.push(choice);
                places.push(place);
            }
            _ => {}
        }
    }
    if choices.is_empty() {
        return Ok((f.clone(), choices));
    }
    let (names, readers, ranges) = (Names::of(f), Readers::of(f), ranges_for(f, fp));
    let mut wanted: Vec<Recoverable> = Vec::new();
    for (choice, place) in choices.iter().zip(places) {
        let named =
            |&&i: &&Inst| f.inst_results(i).first().is_some_and(|&y| names.get(y) == choice.from);
        let by = f.body_insts().iter().find(named).copied();
        let places = by.into_iter().flat_map(|i| (0..f.args(i).len()).map(move |k| (i, k)));
        let each = places.flat_map(|at| [(at, false), (at, true)]);
        let mut found =
            each.filter_map(|(at, part)| readers.recoverable(f, at, part, (fp, &ranges)));
        match found.find(|one| one.choice(f, &names) == *choice) {
            Some(one) if wanted.iter().all(|other| other.of != one.of) => wanted.push(one),
            _ => return Err(Diagnostic { at: At::span(place), ..unknown(f, choice) }),
        }
    }
    Ok((recovering(f, &wanted)?, choices))
}

/// How near what later phases of a function recover is to the value; `None` for what they do not recover.
pub fn inverse_accuracy(f: &Function, choice: &InverseChoice) -> Option<Accuracy> {
    let names = Names::of(f);
    let named =
        |&&i: &&Inst| f.inst_results(i).first().is_some_and(|&y| names.get(y) == choice.from);
    let by = *f.body_insts().iter().find(named)?;
    let operand = f.args(by).iter().position(|&a| names.get(a) == choice.of);
    let ranges = ranges_for(f, Fp::Reproducible);
    let loose = (Fp::Reproducible, &ranges);
    // What is no operand is a partial derivative, which is gone where it is recovered.
    let found = match operand {
        Some(k) => stated(f, (by, k), false, loose),
        None => (0..f.args(by).len()).find_map(|k| stated(f, (by, k), true, loose)),
    };
    Some(found?.accuracy)
}
