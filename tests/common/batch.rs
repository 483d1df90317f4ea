//! A batched function against a loop over the function, to the bit.

use adfuse::autodiff::{Batching, Random, vmap};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::{DType, Diagnostic, Function, Literal, Module, TensorType, verify};

/// Where the batch is in a tensor of some rank.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Side {
    First,
    Last,
}

impl Side {
    pub(crate) fn axis(self, rank: usize) -> usize {
        match self {
            Side::First => 0,
            Side::Last => rank,
        }
    }
}

/// Arrays of one type as one, along a new axis.
pub(crate) fn stack(parts: &[Array], axis: usize) -> Array {
    let mut dims = parts[0].dims().to_vec();
    let inner: usize = dims[axis..].iter().product::<u64>() as usize;
    let outer: usize = dims[..axis].iter().product::<u64>() as usize;
    dims.insert(axis, parts.len() as u64);
    let bits: Vec<Vec<u64>> = parts.iter().map(Array::to_bits).collect();
    let all: Vec<u64> = (0..outer)
        .flat_map(|o| bits.iter().flat_map(move |b| b[o * inner..(o + 1) * inner].to_vec()))
        .collect();
    Array::from_bits(parts[0].dtype(), &dims, &all).expect("as many elements")
}

/// The elements as bits, all NaNs alike.
pub(crate) fn bits(a: &Array) -> Vec<u64> {
    let plain = |l: Literal| if l.to_f64().is_nan() { u64::MAX } else { l.bits() };
    a.iter().map(plain).collect()
}

/// Checks `f` over a batch against `f` on each element, to the bit, with the parameters for which
/// `mapped` holds mapped. `draw` makes the n-th value of a parameter.
pub(crate) fn agrees(
    module: &Module,
    f: &Function,
    size: u64,
    mapped: &dyn Fn(usize) -> bool,
    side: Side,
    draw: &mut dyn FnMut(usize, &TensorType) -> Array,
) -> Result<(), String> {
    let types = f.param_types();
    let axis = |t: &TensorType| side.axis(t.rank());
    let axes: Vec<Option<usize>> =
        types.iter().enumerate().map(|(k, t)| mapped(k).then(|| axis(t))).collect();
    let outputs: Vec<usize> = f.result_types().iter().map(&axis).collect();
    let batching = Batching::new(size, axes.iter().copied())
        .results(outputs.iter().map(|&a| Some(a)))
        .random(Random::Same);
    let fail = |d: Diagnostic| format!("{d}\n{f}");
    let batched = vmap(module, f, &batching).map_err(fail)?;
    let single = Module::single(batched.clone());
    verify(&single).map_err(|e| format!("{}\n{f}\n{batched}", e[0]))?;
    let mut elements: Vec<Vec<Array>> = vec![Vec::new(); size as usize];
    let mut whole = Vec::new();
    for (k, t) in types.iter().enumerate() {
        let parts: Vec<Array> = match axes[k] {
            Some(_) => (0..size).map(|_| draw(k, t)).collect(),
            None => vec![draw(k, t); size as usize],
        };
        elements.iter_mut().zip(&parts).for_each(|(e, p)| e.push(p.clone()));
        whole.push(match axes[k] {
            Some(a) => stack(&parts, a),
            None => parts[0].clone(),
        });
    }
    let got = run(&single, &batched, &whole, &mut Silent).map_err(fail)?;
    let each: Result<Vec<Vec<Array>>, Diagnostic> =
        elements.iter().map(|args| run(module, f, args, &mut Silent)).collect();
    let each = each.map_err(fail)?;
    for (r, found) in got.iter().enumerate() {
        let parts: Vec<Array> = each.iter().map(|e| e[r].clone()).collect();
        let due = stack(&parts, outputs[r]);
        if found.dims() != due.dims() || bits(found) != bits(&due) {
            return Err(format!(
                "result {r} of a batch of {size}, {side:?}, axes {axes:?}: {found:?} is not \
                 {due:?} for\n{f}over a batch\n{batched}"
            ));
        }
    }
    Ok(())
}

/// Whether a function has tokens, which have no batch.
pub(crate) fn has_tokens(f: &Function) -> bool {
    let token = |t: &TensorType| t.dtype == DType::Token;
    let mut found = f.param_types().iter().chain(&f.result_types()).any(token);
    f.walk(&mut |f, i| found |= f.op(i).is_effect());
    found
}
