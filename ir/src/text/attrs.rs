//! Attributes as written, against the schema of their op.

use super::ast::{AttrAst, AttrValue};
use super::errors::{Errors, Failed, mean, shown};
use super::parser::Parsed;
use crate::attrs::{Attr, AttrKind, AttrSpec, Attrs};
use crate::builder::Number;
use crate::diag::{Kind, Span, did_you_mean};
use crate::dtype::DType;
use crate::op::Op;

/// The attributes of an instruction of `op`; element values have type `dtype`.
pub(super) fn resolve_attrs(
    source: &str,
    op: Op,
    at: Span,
    written: &[AttrAst],
    dtype: Option<DType>,
    errors: &mut Errors,
) -> Parsed<Attrs> {
    let text = |span: Span| source.get(span.start as usize..span.end as usize).unwrap_or_default();
    let schema = op.def().attrs;
    let before = errors.count();
    let mut out = Attrs::none();
    for attr in written {
        let name = text(attr.name);
        let Some(spec) = schema.iter().find(|s| s.name == name) else {
            let near = did_you_mean(name, schema.iter().map(|s| s.name));
            let hint = mean(near).or_else(|| Some(known(schema)));
            let m = format!("`{op}` has no attribute {}", shown(name));
            errors.add_hint(attr.name, Kind::Attribute, m, hint);
            continue;
        };
        if out.get(spec.name).is_some() {
            let m = format!("attribute `{name}` is written twice");
            errors.add(attr.name, Kind::Attribute, m);
            continue;
        }
        let value = value(attr, spec, text(attr.span), dtype, errors);
        if let Ok(value) = value {
            out = out.with(spec.name, value);
        }
    }
    // What seems to be missing may be what is misspelled.
    let misspelled = written.iter().any(|a| schema.iter().all(|s| s.name != text(a.name)));
    let missing = |s: &&AttrSpec| {
        s.default.is_none() && !misspelled && written.iter().all(|a| text(a.name) != s.name)
    };
    for spec in schema.iter().filter(missing) {
        let m = format!("`{op}` needs attribute `{}`: {}", spec.name, spec.kind);
        errors.add(at, Kind::Attribute, m);
    }
    if errors.count() > before || errors.full() { Err(Failed) } else { Ok(out) }
}

fn value(
    attr: &AttrAst,
    spec: &AttrSpec,
    text: &str,
    dtype: Option<DType>,
    errors: &mut Errors,
) -> Parsed<Attr> {
    Ok(match (&attr.value, spec.kind) {
        (AttrValue::Int(n), AttrKind::Int) => Attr::Int(*n),
        (AttrValue::Int(n), AttrKind::Within(low, high)) if (low..=high).contains(n) => {
            Attr::Int(*n)
        }
        (AttrValue::Ints(list), AttrKind::Ints) => Attr::Ints(list.as_slice().into()),
        (AttrValue::Pair(a, b), AttrKind::Pair) => {
            Attr::Pair(a.as_slice().into(), b.as_slice().into())
        }
        (AttrValue::Word, AttrKind::Bool) if text == "true" || text == "false" => {
            Attr::Bool(text == "true")
        }
        (AttrValue::Str(s), AttrKind::Str) => Attr::Str(s.clone()),
        (AttrValue::Func, AttrKind::Func) => Attr::Func(text[1..].into()),
        (AttrValue::Word, AttrKind::Word(words)) if words.contains(&text) => {
            let word = words.iter().find(|w| **w == text);
            Attr::Word(word.copied().unwrap_or_default())
        }
        (AttrValue::Dense(list), AttrKind::Literals) => {
            let Some(dtype) = dtype else { return Err(Failed) };
            Attr::Literals(elements(list, dtype, errors)?.into())
        }
        (_, kind) => {
            let hint = match kind {
                AttrKind::Word(words) => mean(did_you_mean(text, words.iter().copied())),
                _ => None,
            };
            let m = format!("`{}` is {kind}, found {}", spec.name, shown(text));
            return Err(errors.add_hint(attr.span, Kind::Attribute, m, hint));
        }
    })
}

fn elements(
    list: &[(Number, Span)],
    dtype: DType,
    errors: &mut Errors,
) -> Parsed<Vec<crate::literal::Literal>> {
    let mut out = Vec::with_capacity(list.len());
    for &(number, span) in list {
        match number.typed(dtype) {
            Some(l) => out.push(l),
            None => {
                let m = format!("element {}: {number} is no {dtype}", out.len());
                return Err(errors.add(span, Kind::Literal, m));
            }
        }
    }
    Ok(out)
}

fn known(schema: &[AttrSpec]) -> String {
    if schema.is_empty() {
        return "it has none".into();
    }
    let names: Vec<String> = schema.iter().map(|s| format!("`{}`", s.name)).collect();
    format!("it has {}", names.join(", "))
}
