//! Storage that loses something: floats kept for a later phase in a narrower type, where the user asks
//! for that by name.
//!
//! It is a rewrite of the prepared function. A value `%h` that later phases read gets a copy `%h.bf16`,
//! which is converted once and must be in memory, and later phases read what that is converted back to.
//! What the results of its own phase are made of reads `%h` as ever, so these keep their bits; what only
//! later phases need, such as a partial derivative, reads the copy. From there on nothing
//! knows of losses: plans of the new function have one meaning, whatever is fused, kept or computed
//! again.
//!
//! **The bound.** What is read back differs from the value by at most half an ulp of the narrower type,
//! relative to the value, or by half of its smallest subnormal where that is more. Finite values beyond
//! its greatest number are kept as that number, infinities and NaN as themselves.

use crate::explain::value_named;
use crate::facts::Facts;
use crate::group::Effort;
use crate::joint::{Engine, PlanPoint, plan_point};
use crate::plan::{Options, Plan, plan_at};
use crate::saved::{served, stored};
use adfuse_ir::attrs::Attrs;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::text::Names;
use adfuse_ir::{
    At, Builder, DType, Diagnostic, Function, Inst, Kind, Literal, Op, Phase, Value, ValueDef,
};
use cranelift_entity::{EntitySet, SecondaryMap};
use hashbrown::HashSet;
use std::cmp::Reverse;

/// A float type that values of wider ones may be kept in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Narrow {
    /// 8 bits of precision over the range of `f32`.
    Bf16,
    /// 11 bits of precision up to 65504.
    F16,
}

/// How far what is read back may be from what was kept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The difference at most, relative to the value.
    pub relative: f64,
    /// The difference that may be at least, however small the value is.
    pub absolute: f64,
    /// The greatest number: finite values beyond are kept as this.
    pub most: f64,
}

impl Narrow {
    /// All of them.
    pub const ALL: [Narrow; 2] = [Narrow::Bf16, Narrow::F16];

    /// Its name.
    pub fn name(self) -> &'static str {
        self.dtype().name()
    }

    /// The type of this name.
    pub fn named(name: &str) -> Option<Narrow> {
        Narrow::ALL.into_iter().find(|n| n.name() == name)
    }

    /// As an element type.
    pub fn dtype(self) -> DType {
        match self {
            Narrow::Bf16 => DType::BF16,
            Narrow::F16 => DType::F16,
        }
    }

    fn of(dtype: DType) -> Option<Narrow> {
        Narrow::ALL.into_iter().find(|n| n.dtype() == dtype)
    }

    /// What it loses at most.
    pub fn bound(self) -> Bound {
        match self {
            Narrow::Bf16 => Bound {
                relative: 2f64.powi(-8),
                absolute: 2f64.powi(-134),
                most: 255.0 * 2f64.powi(120),
            },
            Narrow::F16 => {
                Bound { relative: 2f64.powi(-11), absolute: 2f64.powi(-25), most: 65504.0 }
            }
        }
    }

    /// Whether a type has more bits.
    fn narrows(self, dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F64)
    }
}

/// What may be kept with losses. By default nothing may.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Lossy {
    /// What everything may be kept in.
    pub every: Option<Narrow>,
    /// Values of the prepared function by name, and what each may be kept in.
    pub named: Vec<(String, Narrow)>,
}

impl Lossy {
    /// Whether nothing may be.
    pub fn is_nothing(&self) -> bool {
        self.every.is_none() && self.named.is_empty()
    }
}

/// A function in which values are kept with losses.
#[derive(Clone, Debug)]
pub struct Narrowed {
    /// The function. Plans are plans of this one.
    pub function: Function,
    /// Values that were named and are kept as they are, or not at all: names, in the order given.
    pub left: Vec<String>,
}

/// A value that is kept in a narrower type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossyCopy {
    /// The value.
    pub of: Value,
    /// The copy that later phases read.
    pub copy: Value,
    /// Its type.
    pub narrow: Narrow,
}

/// The copies of a function, in its order.
pub fn lossy_copies(f: &Function) -> Vec<LossyCopy> {
    f.body_insts().iter().filter_map(|&i| copied(f, i)).collect()
}

fn made_by(f: &Function, v: Value, op: Op) -> Option<Inst> {
    match f.def(v) {
        ValueDef::Inst(i, _) if f.op(i) == op => Some(i),
        _ => None,
    }
}

/// What an instruction is a copy of: it converts a value that has been brought into range.
pub(crate) fn copied(f: &Function, i: Inst) -> Option<LossyCopy> {
    if f.op(i) != Op::ConvertElementType {
        return None;
    }
    let copy = f.inst_results(i)[0];
    let narrow = Narrow::of(f.ty(copy).dtype)?;
    let select = made_by(f, f.args(i)[0], Op::SelectN)?;
    let &[finite, of, within] = f.args(select) else { return None };
    let (finite, clamp) = (made_by(f, finite, Op::IsFinite)?, made_by(f, within, Op::Clamp)?);
    let most = Literal::from_f64(f.ty(of).dtype, narrow.bound().most);
    let found = f.args(finite)[0] == of
        && f.args(clamp)[1] == of
        && f.literal(f.args(clamp)[2]) == Some(most)
        && narrow.narrows(f.ty(of).dtype);
    found.then_some(LossyCopy { of, copy, narrow })
}

/// The copy that an instruction reads back as it was.
pub(crate) fn read_back(f: &Function, i: Inst) -> Option<Value> {
    if f.op(i) != Op::ConvertElementType {
        return None;
    }
    let ValueDef::Inst(made, _) = f.def(f.args(i)[0]) else { return None };
    let copy = copied(f, made)?;
    (f.ty(f.inst_results(i)[0]) == f.ty(copy.of)).then_some(copy.copy)
}

/// The function with these values kept in narrower types for later phases.
///
/// # Errors
/// [`Kind::Usage`] for a value that is not computed, no wider float, or read by no later phase.
pub(crate) fn keeping(f: &Function, wanted: &[(Value, Narrow)]) -> Result<Function, Diagnostic> {
    if wanted.is_empty() {
        return Ok(f.clone());
    }
    let names = Names::of(f);
    let mut taken: HashSet<String> = f.params().iter().map(|&p| names.get(p)).collect();
    taken.extend(f.body_insts().iter().flat_map(|&i| f.inst_results(i)).map(|&v| names.get(v)));
    let mut form: SecondaryMap<Value, Option<Narrow>> = SecondaryMap::new();
    for &(v, narrow) in wanted {
        if let Some(why) = unfit(f, v, narrow) {
            let m = format!("%{} is not kept as {}: {why}", names.get(v), narrow.name());
            return Err(Diagnostic::new(in_function(f), Kind::Usage, m));
        }
        form[v] = Some(narrow);
    }
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    copier.params(&mut b);
    let serves = served(f);
    // What each phase reads: the value itself, its copy, and what that is read back to.
    let mut kept: SecondaryMap<Value, Option<Kept>> = SecondaryMap::new();
    for &i in f.body_insts() {
        let phase = f.inst(i).phase;
        for &a in f.args(i) {
            let Some(kept) = &mut kept[a] else { continue };
            let reads = match serves[i] > kept.phase || phase > kept.phase {
                false => kept.plain,
                true => *kept.back.get_or_insert_with(|| {
                    b.set_phase(phase);
                    b.set_span(f.span(i));
                    let ty = b.ty(kept.plain).clone();
                    let back = b.op_as(Op::ConvertElementType, &[kept.copy], Attrs::none(), &ty);
                    b.func_mut().set_name(back, Some(&fresh(&mut taken, &kept.name, "back")));
                    back
                }),
            };
            copier.set(a, reads);
        }
        copier.inst(&mut b, i);
        for &v in f.inst_results(i) {
            let Some(narrow) = form[v] else { continue };
            let Some(plain) = copier.find(v) else { continue };
            b.set_phase(phase);
            b.set_span(f.span(i));
            let name = names.get(v);
            let copy =
                narrowed_copy(&mut b, plain, narrow, &mut |word| fresh(&mut taken, &name, word));
            kept[v] = Some(Kept { plain, copy, back: None, phase, name });
        }
    }
    for &v in f.results() {
        if let Some(kept) = &kept[v] {
            copier.set(v, kept.plain);
        }
    }
    let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    b.finish()
}

/// A value with a copy, while the function is written anew.
#[derive(Clone)]
struct Kept {
    plain: Value,
    copy: Value,
    back: Option<Value>,
    phase: Phase,
    name: String,
}

/// The value in a narrower type. Where it is finite it is brought into range first.
fn narrowed_copy(
    b: &mut Builder,
    v: Value,
    narrow: Narrow,
    name: &mut dyn FnMut(&str) -> String,
) -> Value {
    let ty = b.ty(v).clone();
    let most = narrow.bound().most;
    let low = b.literal(&ty, Literal::from_f64(ty.dtype, -most));
    let high = b.literal(&ty, Literal::from_f64(ty.dtype, most));
    let finite = b.op(Op::IsFinite, &[v]);
    let within = b.op(Op::Clamp, &[low, v, high]);
    let ready = b.op(Op::SelectN, &[finite, v, within]);
    let mut to = ty;
    to.dtype = narrow.dtype();
    let copy = b.op_as(Op::ConvertElementType, &[ready], Attrs::none(), &to);
    // Numbers are given to what has no name: what was numbered before keeps its number.
    let words = ["finite", "within", "ready", narrow.name()];
    for (v, word) in [finite, within, ready, copy].into_iter().zip(words) {
        b.func_mut().set_name(v, Some(&name(word)));
    }
    copy
}

/// A name that no value has, for what belongs to a value of this name.
fn fresh(taken: &mut HashSet<String>, of: &str, word: &str) -> String {
    // Names begin with no digit.
    let of =
        if of.starts_with(|c: char| c.is_ascii_digit()) { format!("_{of}") } else { of.into() };
    let mut name = format!("{of}.{word}");
    for k in 1u32.. {
        if taken.insert(name.clone()) {
            break;
        }
        name = format!("{of}.{word}{k}");
    }
    name
}

/// Why a value cannot be kept in a narrower type.
fn unfit(f: &Function, v: Value, narrow: Narrow) -> Option<&'static str> {
    let ValueDef::Inst(i, _) = f.def(v) else { return Some("nothing computes it") };
    if !narrow.narrows(f.ty(v).dtype) {
        return Some("it is no wider float");
    }
    let phase = f.inst(i).phase;
    let serves = served(f);
    let later = f.body_insts().iter().any(|&u| serves[u] > phase && f.args(u).contains(&v));
    (!later).then_some("no later phase reads it")
}

fn in_function(f: &Function) -> At {
    At { func: Some(f.name.clone()), ..At::default() }
}

/// The most values that are tried one by one.
const MOST_TRIED: usize = 16;

/// Elements from which on a value is worth a copy, where nobody names it.
const WORTH: i64 = 64;

/// Has a [prepared](crate::prepare()) function keep values in narrower types for later phases, of those
/// that may be: where the plan of the function keeps a value, and that with copies keeps the copy. Of values
/// that are not named, plans with copies leave fewer bytes to later phases and take no more at their
/// peak. The function is as it was where nothing may be, or nothing pays.
///
/// # Errors
/// As [`plan`](crate::plan()) and those of the engine; [`Kind::UnknownName`] and [`Kind::Usage`] for
/// named values that there are not, or that have no copy of that type.
pub fn keep_lossy(
    f: &Function,
    lossy: &Lossy,
    options: &Options,
    engine: &dyn Engine,
) -> Result<Narrowed, Diagnostic> {
    let named = lossy.named.iter().map(|(name, narrow)| {
        let v = value_named(f, name)?;
        // Refused before anything is planned.
        keeping(f, &[(v, *narrow)]).map(|_| (v, *narrow))
    });
    let named: Vec<(Value, Narrow)> = named.collect::<Result<_, _>>()?;
    if lossy.is_nothing() {
        return Ok(Narrowed { function: f.clone(), left: Vec::new() });
    }
    // Search changes what is fused, and little of what crosses.
    let effort = options.effort.min(Effort::Default);
    let planner = Planner { options: Options { effort, ..options.clone() }, engine };
    let before = planner.point(f)?;
    let facts = Facts::of(f, true)?;
    let kept: Vec<Value> = planner.kept(f, &before.plan)?;
    let own = |v: Value| named.iter().rev().find(|(n, _)| *n == v).map(|(_, narrow)| *narrow);
    let every = |v: Value| lossy.every.filter(|_| own(v).is_none() && facts.elements[v] >= WORTH);
    let mine: Vec<(Value, Narrow)> = kept.iter().filter_map(|&v| Some((v, own(v)?))).collect();
    let others = kept.iter().filter_map(|&v| Some((v, every(v)?)));
    let mut others: Vec<(Value, Narrow)> =
        others.filter(|&(v, narrow)| unfit(f, v, narrow).is_none()).collect();
    others.sort_by_key(|&(v, _)| (Reverse(facts.elements[v]), v));
    let taken = planner.worthwhile(f, before, mine, others)?;
    let left = lossy.named.iter().zip(&named);
    let left = left.filter(|(_, (v, _))| taken.iter().all(|(t, _)| t != v));
    let left = left.map(|((name, _), _)| name.trim_start_matches('%').to_owned()).collect();
    Ok(Narrowed { function: keeping(f, &taken)?, left })
}

/// Values of which a plan keeps copies, and what that plan takes, if there are any.
type Stored = (Vec<(Value, Narrow)>, Option<PlanPoint>);

/// What plans are made by, to see what pays.
struct Planner<'a> {
    options: Options,
    engine: &'a dyn Engine,
}

impl Planner<'_> {
    fn point(&self, f: &Function) -> Result<PlanPoint, Diagnostic> {
        plan_point(f, plan_at(f, &self.options, 0.0)?, &self.options, self.engine)
    }

    /// What a plan keeps for later phases, results apart.
    fn kept(&self, f: &Function, plan: &Plan) -> Result<Vec<Value>, Diagnostic> {
        let mut facts = Facts::of(f, true)?;
        plan.inline.iter().for_each(|&i| facts.set_free(i));
        let all = stored(&facts, plan).into_iter().filter(|s| s.later);
        Ok(all.map(|s| s.value).collect())
    }

    /// The values of which copies pay: named ones where plans keep the copy, others where the peak is no
    /// higher for it, all together or those that are found one after the other.
    fn worthwhile(
        &self,
        f: &Function,
        before: PlanPoint,
        named: Vec<(Value, Narrow)>,
        others: Vec<(Value, Narrow)>,
    ) -> Result<Vec<(Value, Narrow)>, Diagnostic> {
        let (named, with_named) = self.stored(f, named)?;
        let before = with_named.filter(|_| !named.is_empty()).unwrap_or(before);
        let pays = |new: &PlanPoint, old: &PlanPoint| new.saved < old.saved && new.peak <= old.peak;
        let (all, together) = self.stored(f, named.iter().chain(&others).copied().collect())?;
        if together.is_some_and(|point| pays(&point, &before)) {
            return Ok(all);
        }
        let (mut taken, mut best) = (named, before);
        for &one in others.iter().filter(|one| all.contains(one)).take(MOST_TRIED) {
            taken.push(one);
            let point = self.point(&keeping(f, &taken)?)?;
            match pays(&point, &best) {
                true => best = point,
                false => {
                    taken.pop();
                }
            }
        }
        Ok(taken)
    }

    /// Those of the values whose copies the plan with copies of them all keeps for later phases, and that
    /// plan. What it keeps no copy of is left out, and without it others may be kept no more.
    fn stored(&self, f: &Function, mut wanted: Vec<(Value, Narrow)>) -> Result<Stored, Diagnostic> {
        let names = Names::of(f);
        while !wanted.is_empty() {
            let g = keeping(f, &wanted)?;
            let point = self.point(&g)?;
            let mut there = EntitySet::<Value>::new();
            there.extend(self.kept(&g, &point.plan)?);
            let names_of_g = Names::of(&g);
            let copies = lossy_copies(&g).into_iter().filter(|c| there.contains(c.copy));
            let kept: HashSet<String> = copies.map(|c| names_of_g.get(c.of)).collect();
            let count = wanted.len();
            wanted.retain(|&(v, _)| kept.contains(&names.get(v)));
            if wanted.len() == count {
                return Ok((wanted, Some(point)));
            }
        }
        Ok((wanted, None))
    }
}

/// The function that the text of a plan is one of: that with copies of the values that the text says are
/// kept with losses, in narrower types.
///
/// # Errors
/// For a line that says so of what there is not, or of what has no such copy.
pub fn planned_function(f: &Function, text: &str) -> Result<Function, Diagnostic> {
    let fail = |m: String| Err(Diagnostic::new(in_function(f), Kind::Syntax, m));
    let mut wanted: Vec<(Value, Narrow)> = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some(says) = line.strip_prefix("lossy ") else { continue };
        let Some((name, form)) = says.split_once(" as ") else {
            return fail("expected `lossy %value as type`".into());
        };
        let Some(narrow) = Narrow::named(form.trim()) else {
            return fail("values are kept with losses as bf16 or f16".into());
        };
        let v = value_named(f, name)?;
        if wanted.iter().any(|(w, _)| *w == v) {
            return fail(format!("%{} is kept twice", Names::of(f).get(v)));
        }
        wanted.push((v, narrow));
    }
    keeping(f, &wanted)
}
