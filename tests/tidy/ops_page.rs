//! `docs/ops.md`, made from the op table.

use adfuse::ir::infer::{Class, Sig};
use adfuse::ir::op::{Accuracy, Arity, Body, Deriv, Domain, Infer, LinearSlots, Recovery};
use adfuse::ir::scalar::{Prim, SOp, ScalarProgram};
use adfuse::ir::{Attrs, DType, DTypeSet, Op};
use std::fmt::Write;

const HEAD: &str = "\
# Ops

After this page you know what every op computes, its attributes and its derivatives.

Made from the op table by `ADFUSE_BLESS=1 cargo test --test tidy`; a test compares the two.

`T` is the type variable of an elementwise op: its operands and its result share one shape, and no
type converts by itself. In derivatives `y` is the result and `x0, x1, ..` are the operands (`x` where
there is one). A derivative that is a truth value lets the tangent pass where it is true.
An inverse gives an operand from the answer and the other operands; what
follows a semicolon must be known of the operands' ranges (`ir/tests/inverses.rs`).
\"Sampled\" says where tests draw the operands. An op runs on every engine unless its entry says otherwise
(`tests/engines/kernels/`, `tests/engines/cpu/`: every row on every type).
";

/// A section of the page: its title, and whether an op belongs there.
type Section = (&'static str, fn(&Body) -> bool);

const SECTIONS: &[Section] = &[
    ("Elementwise", |b| matches!(b, Body::Map(_))),
    ("Views: changes of index", |b| matches!(b, Body::View(_))),
    ("Reductions", |b| matches!(b, Body::Reduce(_))),
    ("Scans", |b| matches!(b, Body::Scan(_))),
    ("Contractions", |b| matches!(b, Body::Contract)),
    ("Attention", |b| matches!(b, Body::Step(_))),
    ("Indirect access", |b| matches!(b, Body::Indirect(_))),
    ("Sources", |b| matches!(b, Body::Constant | Body::Source(_))),
    ("Composed of others", |b| matches!(b, Body::Composed(_))),
    ("Regions and calls", |b| matches!(b, Body::Region(_) | Body::Opaque)),
    ("Collectives", |b| matches!(b, Body::Collective(_))),
    ("Effects", |b| matches!(b, Body::Effect(_))),
];

/// The whole page.
pub(crate) fn page() -> String {
    let mut out = HEAD.to_string();
    let mut listed = 0;
    for (title, belongs) in SECTIONS {
        let _ = write!(out, "\n## {title}\n");
        for &op in Op::ALL.iter().filter(|op| belongs(&op.def().body)) {
            entry(&mut out, op);
            listed += 1;
        }
    }
    assert_eq!(listed, Op::ALL.len(), "every op belongs to one section");
    out
}

fn entry(out: &mut String, op: Op) {
    let def = op.def();
    let _ = write!(out, "\n### `{op}`\n\n{}\n\n", def.doc.trim());
    match def.infer {
        Infer::Map(sig) => {
            let _ = writeln!(out, "- type: {}", signature(&sig));
        }
        Infer::Rule(_) | Infer::Composed(_) => {
            let operands = match def.arity {
                Arity::Exactly(n) => format!("{n}"),
                Arity::AtLeast(n) => format!("{n} or more"),
            };
            let _ = writeln!(out, "- operands: {operands}");
        }
    }
    if def.declared {
        out.push_str("- the result type is written\n");
    }
    for spec in def.attrs {
        let default =
            spec.default.map_or(String::new(), |d| format!("; {} when left out", d.value()));
        let _ = writeln!(out, "- attribute `{}`: {}{default}", spec.name, spec.kind);
    }
    if !def.regions.is_empty() {
        let _ = writeln!(out, "- regions: {}", def.regions.join(", "));
    }
    if let Some(text) = meaning(op) {
        let _ = writeln!(out, "- value: `{text}`{}", shown_with(op));
    }
    derivative(out, op);
    inverses(out, op);
    engines(out, op);
    if !matches!(def.deriv, Deriv::Structural) && !def.arity.eq(&Arity::Exactly(0)) {
        let domains: Vec<String> = def.domain.iter().map(|d| domain(*d)).collect();
        let _ = writeln!(out, "- sampled: {}", domains.join("; "));
    }
    if !def.examples.is_empty() {
        out.push('\n');
        for example in def.examples {
            let _ = writeln!(out, "    {example}");
        }
    }
}

fn signature(sig: &Sig) -> String {
    let class = |c: &Class| match c {
        Class::T => "T".to_string(),
        Class::Bool => "bool".into(),
        Class::Declared(set) => set.to_string(),
        Class::SameWidth => "such a type of the same width".into(),
    };
    let args: Vec<String> = sig.args.iter().map(class).collect();
    format!("({}) -> {}, T is {}", args.join(", "), class(&sig.result), sig.t)
}

/// Types to record an elementwise op with: the first that its signature takes.
fn types(op: Op) -> Option<(Vec<DType>, DType)> {
    let Infer::Map(sig) = op.def().infer else { return None };
    let t = [DType::F32, DType::I32, DType::Bool].into_iter().find(|&d| sig.t.contains(d))?;
    let of = |c: &Class| if *c == Class::Bool { DType::Bool } else { t };
    Some((sig.args.iter().map(of).collect(), of(&sig.result)))
}

/// The attributes that a row's programs are shown with.
fn attributes(op: Op) -> Attrs {
    op.def().attrs.iter().fold(Attrs::none(), |a, spec| a.with_int(spec.name, 3))
}

fn shown_with(op: Op) -> String {
    let names = op.def().attrs.iter().map(|a| format!("{} = 3", a.name));
    let list = names.collect::<Vec<_>>().join(", ");
    if list.is_empty() { list } else { format!(" (at {list})") }
}

fn meaning(op: Op) -> Option<String> {
    let (args, result) = types(op)?;
    if op.def().declared {
        return None;
    }
    let program = op.scalar_program(&args, result, &attributes(op))?;
    let text = expression(&program, &operand_names(args.len()));
    // A function of the op's own name says nothing.
    (!text.starts_with(&format!("{op}("))).then_some(text)
}

fn operand_names(n: usize) -> Vec<String> {
    if n == 1 { vec!["x".into()] } else { (0..n).map(|k| format!("x{k}")).collect() }
}

fn derivative(out: &mut String, op: Op) {
    match op.def().deriv {
        Deriv::Partials(_) => {
            let Some((args, result)) = types(op) else { return };
            let names = operand_names(args.len());
            let all: Vec<String> = std::iter::once("y".to_string()).chain(names.clone()).collect();
            for (k, name) in names.iter().enumerate() {
                if let Some(program) = op.partial(k, &args, result, &attributes(op)) {
                    let text = expression(&program, &all);
                    let _ = writeln!(out, "- derivative in {name}: `{text}`{}", shown_with(op));
                }
            }
        }
        Deriv::Linear(LinearSlots::All, _) => {
            out.push_str("- derivative: linear in all operands together\n")
        }
        Deriv::Linear(LinearSlots::Only(slots), _) => {
            let list: Vec<String> = slots.iter().map(ToString::to_string).collect();
            let _ =
                writeln!(out, "- derivative: linear in operands {} together", list.join(" and "));
        }
        Deriv::Bilinear(_) => out.push_str("- derivative: linear in each operand by itself\n"),
        Deriv::Jvp(_) => out.push_str("- derivative: by a rule of its own\n"),
        Deriv::Rules(..) => {
            out.push_str("- derivative: by rules of its own, one forward and one in reverse\n")
        }
        Deriv::Zero => out.push_str("- derivative: zero\n"),
        Deriv::Structural if matches!(op.def().body, Body::Composed(_) | Body::Step(_)) => {
            out.push_str("- derivative: that of what it is composed of\n")
        }
        Deriv::Structural => out.push_str("- derivative: that of its regions or callee\n"),
    }
}

/// How operands follow from the answer.
fn inverses(out: &mut String, op: Op) {
    for inverse in op.inverses() {
        let arity = match op.def().arity {
            Arity::Exactly(n) => n,
            Arity::AtLeast(n) => n,
        };
        let names = operand_names(arity);
        let takes = |&d: &DType| inverse.types.contains(d) && inverse.accepts(d, d);
        let dtype = [DType::F32, DType::I32, DType::Bool].into_iter().find(takes);
        let how = match inverse.recovery {
            Recovery::Transposed => "the elements moved back".into(),
            Recovery::ConvertedBack => "the answer converted back".into(),
            Recovery::Elementwise(_) => {
                let dtype = dtype.unwrap_or(DType::F32);
                let all: Vec<String> = std::iter::once("y".into()).chain(names.clone()).collect();
                let program = inverse.program(&vec![dtype; arity], dtype);
                program.map_or_else(String::new, |p| format!("`{}`", expression(&p, &all)))
            }
        };
        let bound = match inverse.accuracy {
            Accuracy::Exact if inverse.types == DTypeSet::Any => "exact".into(),
            Accuracy::Exact => format!("exact, for {}", inverse.types),
            Accuracy::Approximate(e) => {
                let tiny = if e.tiny { ", or by the least normal number" } else { "" };
                let singular = if e.singular {
                    "; NaN where the other operand is 0, infinite or NaN"
                } else {
                    ""
                };
                format!("off by at most {} ulps in f32, {} in f64{tiny}{singular}", e.f32, e.f64)
            }
        };
        let singular = matches!(inverse.accuracy, Accuracy::Approximate(e) if e.singular);
        let asks = match (inverse.asks, singular) {
            ("", _) => String::new(),
            (asks, false) => format!("; {asks}"),
            (asks, true) => format!("; elsewhere {asks}"),
        };
        let what = if inverse.partial { "inverse for the derivative in" } else { "inverse for" };
        let _ = writeln!(out, "- {what} {}: {how} ({bound}{asks})", names[inverse.operand]);
    }
}

/// What lowering to kernels does not take, which `tests/engines/kernels/` holds it to.
fn engines(out: &mut String, op: Op) {
    match op.def().body {
        Body::Region(_) if op == Op::Call => {
            out.push_str("- engines: written out before it is lowered\n")
        }
        _ if op == Op::Opaque => {
            let _ = writeln!(
                out,
                "- engines: all but the GPU's, which says that there is no PTX for it"
            );
        }
        _ => {}
    }
}

fn domain(d: Domain) -> String {
    match d {
        Domain::Normal => "3·N(0,1)".into(),
        Domain::Small => "0.001·N(0,1)".into(),
        Domain::NormalFar => "3·N(0,1), pushed away from 0 by 10".into(),
        Domain::Uniform(lo, hi) => format!("U[{lo}, {hi})"),
        Domain::SignedUniform(lo, hi) => format!("±U[{lo}, {hi})"),
        Domain::Ints(lo, hi) => format!("integers {lo} to {}", hi - 1),
        Domain::Definite => "symmetric, positive definite matrices".into(),
    }
}

/// The program's only output as an expression of its parameters.
fn expression(p: &ScalarProgram, params: &[String]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for (_, inst) in p.insts.iter() {
        let arg = |k: usize| texts[inst.args[k].as_u32() as usize].clone();
        // Operands of an infix operator stand in parentheses unless they are one word.
        let part = |k: usize| {
            let a = arg(k);
            let single =
                !a.contains(' ') || a.ends_with(')') && !a.starts_with('(') && balanced(&a);
            if single && !a.starts_with('-') { a } else { format!("({a})") }
        };
        let call = |name: &str| {
            let args: Vec<String> = (0..inst.args.len()).map(arg).collect();
            format!("{name}({})", args.join(", "))
        };
        let infix = |sign: &str| format!("{} {sign} {}", part(0), part(1));
        texts.push(match inst.op {
            SOp::Param(k) => params[k as usize].clone(),
            SOp::Const(c) => c.to_string(),
            SOp::Func(f) => call(f.name()),
            SOp::Prim(prim) => match prim {
                Prim::Add => infix("+"),
                Prim::Sub => infix("-"),
                Prim::Mul => infix("*"),
                Prim::Div => infix("/"),
                Prim::Rem => infix("%"),
                Prim::Neg => format!("-{}", part(0)),
                Prim::And => infix("&"),
                Prim::Or => infix("|"),
                Prim::Xor => infix("^"),
                Prim::Not => format!("!{}", part(0)),
                Prim::Eq => infix("=="),
                Prim::Ne => infix("!="),
                Prim::Lt => infix("<"),
                Prim::Le => infix("<="),
                Prim::Gt => infix(">"),
                Prim::Ge => infix(">="),
                Prim::Shl => infix("<<"),
                Prim::ShrL => infix(">>"),
                Prim::ShrA => infix(">>>"),
                Prim::Select => format!("if {} then {} else {}", part(0), part(1), part(2)),
                Prim::Convert => format!("{}({})", inst.dtype, arg(0)),
                other => call(other.name()),
            },
        });
    }
    p.outputs.first().map_or(String::new(), |o| texts[o.as_u32() as usize].clone())
}

/// Whether the text is one call: its first parenthesis closes at its end.
fn balanced(text: &str) -> bool {
    let mut depth = 0i32;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 => return false,
            _ => {}
        }
        if depth == 0 && c == ')' && i + 1 < text.len() {
            return false;
        }
    }
    true
}
