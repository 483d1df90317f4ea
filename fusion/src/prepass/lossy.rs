//! Lossy storage: floats that are kept for a later phase in a narrower type, if the user asks for it.
//!
//! It is a rewrite of the prepared function. A value `%h` that later phases read gets a copy `%h.bf16`, which is
//! converted once and must be in memory; later phases read the copy converted back. Instructions that results of `%h`'s
//! own phase need still read `%h`, so these results keep their bits. Instructions that only later phases need, such as
//! partial derivatives, read the copy. After the rewrite nothing is lossy: plans of the new function have one meaning,
//! whatever they fuse, save or recompute.
//!
//! **Error bound.** The value that is read back differs by at most half an ulp of the narrower type, relative to the
//! value, or by half of its smallest subnormal if that is more. Finite values beyond the largest finite number saturate
//! to it. Infinities and NaN are unchanged.

use crate::analysis::phases::served;
use crate::plan::lossy::Narrow;
use crate::plan::names::value_named;
use adfuse_ir::attrs::Attrs;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::text::Names;
use adfuse_ir::{At, Builder, Diagnostic, Function, Kind, Literal, Op, Phase, Value, ValueDef};
use cranelift_entity::SecondaryMap;
use hashbrown::HashSet;

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
    let mut kept: SecondaryMap<Value, Option<CopiedValue>> = SecondaryMap::new();
    for &i in f.body_insts() {
        let phase = f.inst(i).phase;
        for &a in f.args(i) {
            let Some(kept) = &mut kept[a] else { continue };
            let reads = match serves[i] > kept.phase || phase > kept.phase {
                false => kept.plain,
                true => *kept.back.get_or_insert_with(|| {
                    b.set_phase(phase);
                    b.set_origin(f.origin(i).clone());
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
            b.set_origin(f.origin(i).clone());
            let name = names.get(v);
            let copy =
                narrowed_copy(&mut b, plain, narrow, &mut |word| fresh(&mut taken, &name, word));
            kept[v] = Some(CopiedValue { plain, copy, back: None, phase, name });
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
struct CopiedValue {
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
pub(crate) fn fresh(taken: &mut HashSet<String>, of: &str, word: &str) -> String {
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
pub(crate) fn unfit(f: &Function, v: Value, narrow: Narrow) -> Option<&'static str> {
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

/// The function with copies of the values that the text of a plan says are kept with losses, in narrower types.
///
/// # Errors
/// For a line that says so of what there is not, or of what has no such copy.
pub(crate) fn copied_as(f: &Function, text: &str) -> Result<Function, Diagnostic> {
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
