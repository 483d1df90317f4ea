//! Arguments of a bench: the same in every run, of a size at which no value overflows or underflows.

use adfuse::backends::Array;
use adfuse::ir::op::Domain;
use adfuse::ir::{Diagnostic, Function, TensorType};
use adfuse::sample::{rng, sample};

/// An argument for each parameter. Floats are drawn from `[-s, s]`, where `s` keeps the variance through a product with a matrix of that type, and is 1
/// for vectors; integers are from 0 to 3.
pub(crate) fn arguments(f: &Function) -> Result<Vec<Array>, Diagnostic> {
    let types = f.param_types();
    types.iter().zip(0..).map(|(ty, stream)| argument(ty, stream)).collect()
}

fn argument(ty: &TensorType, stream: u64) -> Result<Array, Diagnostic> {
    let fan = match ty.dims().as_deref() {
        Some([inputs, _]) => *inputs,
        Some([_, inner @ ..]) if inner.len() >= 3 => inner.iter().product(),
        _ => 3,
    };
    let s = (3.0 / fan.max(1) as f64).sqrt();
    sample(ty, Domain::Uniform(-s, s), &mut rng(0, stream))
}
