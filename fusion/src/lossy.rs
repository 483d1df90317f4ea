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

mod worth;

use crate::explain::value_named;
use crate::saved::served;
use adfuse_ir::attrs::Attrs;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::text::Names;
use adfuse_ir::{
    At, Builder, DType, Diagnostic, Function, Inst, Kind, Literal, Op, Phase, Value, ValueDef,
};
use cranelift_entity::SecondaryMap;
use hashbrown::HashSet;
pub use worth::{AsItIs, Left, Narrowed, keep_lossy};

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
