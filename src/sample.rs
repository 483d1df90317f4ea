//! Seeded random tensors: the same seed gives the same tensor on every host.

use crate::backends::Array;
use crate::ir::op::Domain;
use crate::ir::{At, DType, Diagnostic, Kind, TensorType};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// A generator for one stream of a seed; different streams are independent.
pub fn rng(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// A tensor with elements from `domain`. Integer and truth-value types take what conversion gives;
/// for those, a float domain is replaced by small integers.
///
/// # Errors
/// When the type has symbolic extents or is too large for memory.
pub fn sample(ty: &TensorType, domain: Domain, rng: &mut ChaCha8Rng) -> Result<Array, Diagnostic> {
    let fail = |m: String| Diagnostic::new(At::default(), Kind::Limit, m);
    let (Some(n), Some(dims)) = (ty.elements(), ty.dims()) else {
        return Err(fail(format!("{ty} has no known number of elements")));
    };
    if let Domain::Ints(lo, hi) = domain
        && i64::try_from(n).is_ok_and(|n| n <= hi - lo)
    {
        return Array::from_f64s(ty.dtype, &dims, &distinct(lo, hi, n as usize, rng));
    }
    if domain == Domain::Definite {
        return Array::from_f64s(ty.dtype, &dims, &definite(&dims, rng));
    }
    let domain = match domain {
        _ if ty.dtype == DType::Bool => Domain::Ints(0, 2),
        Domain::Ints(..) => domain,
        _ if ty.dtype.is_int() => Domain::Ints(0, 4),
        float => float,
    };
    Array::drawn(ty.dtype, &dims, || draw(domain, rng))
}

fn draw(domain: Domain, rng: &mut ChaCha8Rng) -> f64 {
    let normal = |rng: &mut ChaCha8Rng| rng.sample::<f64, _>(StandardNormal);
    match domain {
        Domain::Normal => 3.0 * normal(rng),
        Domain::Small => 1e-3 * normal(rng),
        Domain::NormalFar => {
            let x = 3.0 * normal(rng);
            x + 10f64.copysign(x)
        }
        Domain::Uniform(lo, hi) => rng.random_range(lo..hi),
        Domain::SignedUniform(lo, hi) => {
            let x = rng.random_range(lo..hi);
            if rng.random::<bool>() { x } else { -x }
        }
        Domain::Ints(lo, hi) => rng.random_range(lo..hi) as f64,
        Domain::Definite => 1.0,
    }
}

/// Matrices in the last two axes: uniform elements, symmetric, with diagonals that are larger than the rest of a row.
fn definite(dims: &[u64], rng: &mut ChaCha8Rng) -> Vec<f64> {
    let n = dims.last().map_or(1, |&n| n as usize).max(1);
    let count = dims.iter().product::<u64>() as usize;
    let mut all: Vec<f64> = (0..count).map(|_| rng.random_range(-1.0..1.0)).collect();
    for matrix in all.chunks_mut(n * n) {
        for row in 0..matrix.len() / n {
            matrix[row * n + row] += 1.0 + n as f64;
            for column in 0..row {
                matrix[row * n + column] = matrix[column * n + row];
            }
        }
    }
    all
}

/// `n` different integers of the range, in random order.
fn distinct(lo: i64, hi: i64, n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut all: Vec<i64> = (lo..hi).collect();
    for k in 0..n {
        let other = rng.random_range(k..all.len());
        all.swap(k, other);
    }
    all[..n].iter().map(|&i| i as f64).collect()
}
