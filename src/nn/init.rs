//! Initializers by name: the distributions of first values.
//!
//! Fans are those of PyTorch's layouts: a weight `[out, in, window..]` has `fan_in = in * window` and `fan_out = out * window`.

use crate::backends::Array;
use crate::ir::{Diagnostic, TensorType};
use crate::sample::rng;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// The distribution of a parameter's first values.
///
/// ```
/// use adfuse::nn::{self, Init, Linear};
///
/// let layer = nn::init(&Linear::new(4, 2).init(Init::Orthogonal(1.0)), 0)?;
/// let w = layer.weight.to_f64s();
/// let product: f64 = w[..4].iter().zip(&w[4..]).map(|(a, b)| a * b).sum();
/// assert!(product.abs() < 1e-6);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// 0.
    Zeros,
    /// 1.
    Ones,
    /// A number.
    Constant(f64),
    /// Uniform between two numbers.
    Uniform(f64, f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// As [`Init::Normal`], drawn again beyond two standard deviations.
    TruncatedNormal(f64),
    /// Uniform in `±sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio 2010).
    XavierUniform,
    /// Normal with variance `2 / (fan_in + fan_out)`.
    XavierNormal,
    /// Uniform in `±sqrt(6 / fan_in)` (He et al. 2015), for relu.
    HeUniform,
    /// Normal with variance `2 / fan_in`.
    HeNormal,
    /// Normal with variance `1 / fan_in` (LeCun et al. 1998).
    LecunNormal,
    /// Uniform in `±1 / sqrt(fan_in)`: the default of PyTorch's linear and convolution layers.
    FanIn,
    /// Uniform in `±1 / sqrt(n)`, for biases of layers with a fan of `n`.
    OfFan(u64),
    /// A matrix with orthonormal rows or columns, whichever are fewer, times a gain (Saxe et al. 2014). The first axis are rows.
    Orthogonal(f64),
    /// These values.
    Values(Array),
}

impl Init {
    /// Values of a type for a seed and the path of a parameter.
    ///
    /// # Errors
    /// [`Kind::Limit`](crate::ir::Kind::Limit) when they are too large for memory; [`Kind::Shape`](crate::ir::Kind::Shape) when
    /// [`Init::Values`] have another type, or a type has symbolic extents.
    pub fn draw(&self, ty: &TensorType, seed: u64, path: &str) -> Result<Array, Diagnostic> {
        let Some(dims) = ty.dims() else {
            return Err(wrong(path, format!("a parameter of type {ty} has no known extents")));
        };
        let mut rng = rng(seed, stream(path));
        let [fan_in, fan_out] = fans(&dims);
        let mut fill = |draw: &mut dyn FnMut(&mut ChaCha8Rng) -> f64| {
            Array::drawn(ty.dtype, &dims, || draw(&mut rng))
        };
        let uniform = |bound: f64| move |rng: &mut ChaCha8Rng| between(rng, -bound, bound);
        let normal =
            |std: f64| move |rng: &mut ChaCha8Rng| std * rng.sample::<f64, _>(StandardNormal);
        match *self {
            Init::Zeros => fill(&mut |_| 0.0),
            Init::Ones => fill(&mut |_| 1.0),
            Init::Constant(x) => fill(&mut |_| x),
            Init::Uniform(low, high) => fill(&mut |rng| between(rng, low, high)),
            Init::Normal(std) => fill(&mut normal(std)),
            Init::TruncatedNormal(std) => fill(&mut |rng| {
                loop {
                    let x: f64 = rng.sample(StandardNormal);
                    if x.abs() <= 2.0 {
                        return std * x;
                    }
                }
            }),
            Init::XavierUniform => fill(&mut uniform((6.0 / (fan_in + fan_out)).sqrt())),
            Init::XavierNormal => fill(&mut normal((2.0 / (fan_in + fan_out)).sqrt())),
            Init::HeUniform => fill(&mut uniform((6.0 / fan_in).sqrt())),
            Init::HeNormal => fill(&mut normal((2.0 / fan_in).sqrt())),
            Init::LecunNormal => fill(&mut normal((1.0 / fan_in).sqrt())),
            Init::FanIn => fill(&mut uniform(1.0 / fan_in.sqrt())),
            Init::OfFan(n) => fill(&mut uniform(1.0 / (n.max(1) as f64).sqrt())),
            Init::Orthogonal(gain) => {
                let values = orthogonal(&dims, gain, &mut rng);
                Array::from_f64s(ty.dtype, &dims, &values)
            }
            Init::Values(ref values) if values.ty() == *ty => Ok(values.clone()),
            Init::Values(ref values) => Err(wrong(
                path,
                format!("a parameter of type {ty} cannot begin as {}", values.ty()),
            )),
        }
    }
}

fn wrong(path: &str, m: String) -> Diagnostic {
    use crate::ir::{At, Kind};
    Diagnostic::new(At::default(), Kind::Shape, format!("`{path}`: {m}"))
}

fn between(rng: &mut impl Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.random::<f64>()
}

/// A stream for a path: FNV-1a.
fn stream(path: &str) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `[fan_in, fan_out]`, at least 1 each.
fn fans(dims: &[u64]) -> [f64; 2] {
    let window: u64 = dims.iter().skip(2).product();
    let at = |k: usize| dims.get(k).or(dims.first()).copied().unwrap_or(1);
    [at(1), at(0)].map(|n| (n.saturating_mul(window)).max(1) as f64)
}

/// Gram and Schmidt's rows of normal numbers, orthonormalized twice.
fn orthogonal(dims: &[u64], gain: f64, rng: &mut impl Rng) -> Vec<f64> {
    let rows = dims.first().copied().unwrap_or(1) as usize;
    let columns = dims.iter().skip(1).product::<u64>() as usize;
    let (few, many) = (rows.min(columns), rows.max(columns));
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(few);
    for _ in 0..few {
        let mut row: Vec<f64> = (0..many).map(|_| rng.sample(StandardNormal)).collect();
        for _ in 0..2 {
            for other in &basis {
                let along: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
                row.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
            }
        }
        let norm = row.iter().map(|a| a * a).sum::<f64>().sqrt();
        row.iter_mut().for_each(|a| *a /= norm);
        basis.push(row);
    }
    let at = |r: usize, c: usize| gain * if rows <= columns { basis[r][c] } else { basis[c][r] };
    (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))).map(|(r, c)| at(r, c)).collect()
}
