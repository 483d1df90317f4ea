//! First values of parameters: bounds and moments of the distributions, orthogonality, and what they depend on.

use adfuse::nn::{self, Conv2d, Init, Linear, Lstm, Param};
use adfuse::prelude::*;
use adfuse::tree;

/// Values of a matrix `[256, 384]`, or of other extents.
fn drawn(init: &Init, dims: &[u64], seed: u64) -> Vec<f64> {
    let param = Param::new(dims.iter().copied(), init.clone());
    nn::init(&param, seed).expect("fits").to_f64s()
}

const DIMS: [u64; 2] = [256, 384];

/// What a distribution is: its standard deviation, its bound, and its fourth moment in units of the squared variance.
struct Due {
    init: Init,
    dims: Vec<u64>,
    deviation: f64,
    bound: f64,
    kurtosis: f64,
}

fn uniform(init: Init, dims: &[u64], bound: f64) -> Due {
    Due { init, dims: dims.into(), deviation: bound / 3f64.sqrt(), bound, kurtosis: 1.8 }
}

fn normal(init: Init, dims: &[u64], deviation: f64) -> Due {
    Due { init, dims: dims.into(), deviation, bound: 7.0 * deviation, kurtosis: 3.0 }
}

/// Fans are those of `[out, in, window..]`: 384 in and 256 out, or 16 * 25 in and 64 * 25 out.
fn distributions() -> Vec<Due> {
    let (fan_in, fan_out) = (384f64, 256f64);
    let images: [u64; 4] = [64, 16, 5, 5];
    let (images_in, images_out) = (400f64, 1600f64);
    let truncated = Due {
        init: Init::TruncatedNormal(0.5),
        dims: DIMS.into(),
        // The variance of a normal number within two deviations is 1 - 4 phi(2) / (2 Phi(2) - 1).
        deviation: 0.5 * 0.773_741_3f64.sqrt(),
        bound: 1.0,
        kurtosis: 2.3656,
    };
    vec![
        uniform(Init::Uniform(-0.5, 0.5), &DIMS, 0.5),
        normal(Init::Normal(0.02), &DIMS, 0.02),
        truncated,
        uniform(Init::XavierUniform, &DIMS, (6.0 / (fan_in + fan_out)).sqrt()),
        normal(Init::XavierNormal, &DIMS, (2.0 / (fan_in + fan_out)).sqrt()),
        uniform(Init::HeUniform, &DIMS, (6.0 / fan_in).sqrt()),
        normal(Init::HeNormal, &DIMS, (2.0 / fan_in).sqrt()),
        normal(Init::LecunNormal, &DIMS, (1.0 / fan_in).sqrt()),
        uniform(Init::FanIn, &DIMS, 1.0 / fan_in.sqrt()),
        uniform(Init::OfFan(50), &DIMS, 1.0 / 50f64.sqrt()),
        uniform(Init::XavierUniform, &images, (6.0 / (images_in + images_out)).sqrt()),
        normal(Init::HeNormal, &images, (2.0 / images_in).sqrt()),
        uniform(Init::FanIn, &images, 1.0 / images_in.sqrt()),
    ]
}

#[test]
fn distributions_have_their_bounds_and_moments() {
    for Due { init, dims, deviation, bound, kurtosis } in distributions() {
        for seed in [1, 2] {
            let x = drawn(&init, &dims, seed);
            let n = x.len() as f64;
            let moment = |k: i32| x.iter().map(|v| v.powi(k)).sum::<f64>() / n;
            let (mean, variance) = (moment(1), moment(2));
            // Five deviations of what is measured; moments of fewer numbers scatter more.
            let wide = 5.0 / n.sqrt();
            assert!(mean.abs() < wide * deviation, "{init:?}: mean {mean}");
            let share = variance.sqrt() / deviation;
            assert!((share - 1.0).abs() < wide, "{init:?}: deviation {share} of the due one");
            let fourth = moment(4) / (variance * variance);
            assert!((fourth / kurtosis - 1.0).abs() < 4.0 * wide, "{init:?}: kurtosis {fourth}");
            // The nearest number of f32 may be beyond a bound by its rounding.
            let most = x.iter().fold(0.0f64, |m, v| m.max(v.abs())) / bound;
            let least = if kurtosis == 3.0 { 0.5 } else { 0.999 };
            assert!(most <= 1.000_000_1 && most > least, "{init:?}: {most} of the bound");
        }
    }
}

#[test]
fn constants_are_constant() {
    for (init, due) in [(Init::Zeros, 0.0), (Init::Ones, 1.0), (Init::Constant(-2.5), -2.5)] {
        assert!(drawn(&init, &DIMS, 1).iter().all(|&x| x == due), "{init:?}");
    }
}

/// The largest distance of `rows rows^T` from the unit matrix times a square.
fn skew(x: &[f64], (rows, columns): (usize, usize), square: f64) -> f64 {
    let mut far = 0.0f64;
    for a in 0..rows {
        for b in 0..=a {
            let dot: f64 = (0..columns).map(|k| x[a * columns + k] * x[b * columns + k]).sum();
            far = far.max((dot - if a == b { square } else { 0.0 }).abs());
        }
    }
    far
}

#[test]
fn orthogonal_matrices_are_orthogonal() {
    for (dims, gain) in [([48u64, 48], 1.0), ([32, 80], 2.0), ([80, 32], 0.5), ([1, 7], 1.0)] {
        let x = drawn(&Init::Orthogonal(gain), &dims, 4);
        let [rows, columns] = dims.map(|n| n as usize);
        // Rows, or columns where they are fewer.
        let transposed: Vec<f64> =
            (0..rows * columns).map(|k| x[(k % rows) * columns + k / rows]).collect();
        let far = match rows <= columns {
            true => skew(&x, (rows, columns), gain * gain),
            false => skew(&transposed, (columns, rows), gain * gain),
        };
        assert!(far < 1e-6, "{dims:?}: {far}");
        assert_ne!(x, drawn(&Init::Orthogonal(gain), &dims, 5));
    }
    // Windows count as columns.
    let x = drawn(&Init::Orthogonal(1.0), &[6, 4, 3, 3], 1);
    assert!(skew(&x, (6, 36), 1.0) < 1e-6);
    // One sign is as likely as the other.
    let first =
        (0..400).filter(|&seed| drawn(&Init::Orthogonal(1.0), &[3, 3], seed)[0] > 0.0).count();
    assert!((150..250).contains(&first), "{first} of 400");
}

#[test]
fn layers_begin_as_those_of_pytorch() {
    let bound = |x: &Array| x.to_f64s().iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let within = |x: &Array, due: f64, what: &str| {
        let share = bound(x) / due;
        assert!(share <= 1.000_000_1 && share > 0.9, "{what}: {share}");
    };
    let linear = nn::init(&Linear::new(400, 300), 0).expect("fits");
    within(&linear.weight, 0.05, "a weight");
    within(&linear.bias.expect("there"), 0.05, "a bias");
    let conv = nn::init(&Conv2d::with(32, 64, 5, Conv::same().groups(2)), 0).expect("fits");
    within(&conv.weight, 0.05, "a window");
    within(&conv.bias.expect("there"), 0.05, "its bias");
    let lstm = nn::init(&Lstm::new(30, 100), 0).expect("fits");
    [lstm.weight_ih, lstm.weight_hh, lstm.bias_ih].iter().for_each(|x| within(x, 0.1, "a cell"));
}

#[test]
fn values_depend_on_seed_and_path() {
    let layers = |n: u64| -> Vec<Linear<Param>> { (0..n).map(|_| Linear::new(4, 4)).collect() };
    let three = tree::named_leaves(&nn::init(&layers(3), 7).expect("fits"));
    let four = tree::named_leaves(&nn::init(&layers(4), 7).expect("fits"));
    assert_eq!(three[..], four[..6], "a layer more changes no other");
    for (k, (path, a)) in four.iter().enumerate() {
        assert!(four[..k].iter().all(|(_, b)| a != b), "{path} has another's values");
    }
    assert_ne!(three, tree::named_leaves(&nn::init(&layers(3), 8).expect("fits")));
    assert_eq!(three, tree::named_leaves(&nn::init(&layers(3), 7).expect("fits")));
}
