//! One-instruction programs of every row: from its examples, or from its signature.

use crate::common::ranks::of_all_ranks;
use adfuse::backends::Array;
use adfuse::ir::attrs::AttrKind;
use adfuse::ir::infer::{Class, Sig};
use adfuse::ir::op::{Arity, Body, Domain, Infer};
use adfuse::ir::text::parse_example;
use adfuse::ir::{
    Attrs, Builder, DType, Dim, Function, Module, Op, Operand, TensorType, ValueDef, verify,
};
use adfuse::sample::sample;
use rand_chacha::ChaCha8Rng;

/// A program that returns the results of one instruction.
pub(crate) struct OneOp {
    pub(crate) op: Op,
    pub(crate) module: Module,
}

impl OneOp {
    pub(crate) fn f(&self) -> &Function {
        self.module.funcs.values().next().expect("a function")
    }

    /// Where each parameter is sampled: as the row says for the operand that it is.
    pub(crate) fn domains(&self) -> Vec<Domain> {
        domains(self.op, self.f())
    }

    /// Text for messages.
    pub(crate) fn text(&self) -> String {
        self.f().to_string()
    }
}

/// Domains by parameter: that of the operand it is first used as.
fn domains(op: Op, f: &Function) -> Vec<Domain> {
    let inst = f.body_insts()[0];
    let row = op.def().domain;
    let domain = |p| {
        let k = f.args(inst).iter().position(|&a| a == p).unwrap_or(0);
        row[k.min(row.len() - 1)]
    };
    f.params().iter().map(|&p| domain(p)).collect()
}

/// Whether the row's programs follow from its signature alone.
pub(crate) fn is_plain_map(op: Op) -> bool {
    let def = op.def();
    matches!(def.body, Body::Map(_)) && def.attrs.is_empty() && !def.declared
}

/// The signature of an elementwise row.
pub(crate) fn signature(op: Op) -> Option<Sig> {
    match op.def().infer {
        Infer::Map(sig) => Some(sig),
        Infer::Rule(_) | Infer::Composed(_) => None,
    }
}

/// The element types that the row's type variable takes.
pub(crate) fn dtypes(sig: &Sig) -> Vec<DType> {
    DType::ALL.into_iter().filter(|&d| sig.t.contains(d)).collect()
}

/// The program of an elementwise row at an element type and shape.
pub(crate) fn map_case(op: Op, dtype: DType, dims: &[u64]) -> OneOp {
    let sig = signature(op).expect("an elementwise row");
    let of = |class: Class| match class {
        Class::Bool => DType::Bool,
        _ => dtype,
    };
    let mut b = Builder::new("example");
    let args: Vec<Operand> = sig
        .args
        .iter()
        .zip(["x", "y", "z"])
        .map(|(&c, name)| Operand::Value(b.param(TensorType::of(of(c), dims), Some(name))))
        .collect();
    let result = TensorType::of(of(sig.result), dims);
    let attrs = op.def().attrs.iter().fold(Attrs::none(), |a, spec| match spec.kind {
        AttrKind::Int | AttrKind::Within(..) => a.with_int(spec.name, 3),
        kind => panic!("`{op}`: an attribute that is {kind}"),
    });
    let inst = b.try_inst(op, &args, attrs, Some(&[result]), &[]).expect("fits its signature");
    let results = b.func().inst_results(inst).to_vec();
    b.set_results(&results);
    let module = Module::single(b.finish().expect("built"));
    verify(&module).expect("verifies");
    OneOp { op, module }
}

/// The programs of the row's examples.
pub(crate) fn examples(op: Op) -> Vec<OneOp> {
    let read = |text: &&str| {
        let module = parse_example(text).unwrap_or_else(|e| panic!("{text}: {e:#?}"));
        verify(&module).unwrap_or_else(|e| panic!("{text}: {e:#?}"));
        OneOp { op, module }
    };
    op.def().examples.iter().map(read).collect()
}

/// Examples, and for elementwise rows programs of several types and shapes.
pub(crate) fn all(op: Op) -> Vec<OneOp> {
    let mut cases = examples(op);
    if let (Some(sig), true) = (signature(op), !op.def().declared) {
        for dtype in dtypes(&sig) {
            for dims in [&[3][..], &[3, 4], &[], &[0, 2]] {
                cases.push(map_case(op, dtype, dims));
            }
        }
    }
    cases
}

/// As [`all`], in a form that one process can run: a collective over all of its ranks, which lie side by side.
pub(crate) fn runnable(op: Op) -> Vec<OneOp> {
    let over_ranks = |case: OneOp| OneOp { op, module: of_all_ranks(&case.module) };
    all(op).into_iter().map(over_ranks).collect()
}

/// Sampled arguments; tokens take none.
pub(crate) fn arguments(f: &Function, domains: &[Domain], rng: &mut ChaCha8Rng) -> Vec<Array> {
    let types = f.param_types();
    let tensors = types.iter().zip(domains).filter(|(t, _)| t.dtype != DType::Token);
    tensors.map(|(t, &d)| sample(t, d, rng).expect("samples")).collect()
}

/// Whether the operands of the program's instruction are its parameters, none twice.
pub(crate) fn reads_parameters(f: &Function) -> bool {
    let inst = f.body_insts()[0];
    f.args(inst).iter().all(|&a| !matches!(f.def(a), ValueDef::Inst(..)))
}

/// The number of operands that every program of the row may have.
pub(crate) fn least_operands(op: Op) -> usize {
    match op.def().arity {
        Arity::Exactly(n) | Arity::AtLeast(n) => n,
    }
}

/// Another extent for each axis, so that the shape differs.
pub(crate) fn reshaped(ty: &TensorType) -> TensorType {
    let mut other = ty.clone();
    other.shape.push(Dim::Const(2));
    other
}
