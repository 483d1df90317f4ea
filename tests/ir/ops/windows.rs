//! Convolution, pooling and running folds compared with loops written from their definitions, on integers.

use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::{Attrs, Builder, DType, Module, Op, TensorType};
use adfuse::sample::rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

/// A tensor of whole numbers.
#[derive(Clone, Debug)]
struct Whole {
    dims: Vec<i64>,
    values: Vec<i64>,
}

impl Whole {
    fn draw(dims: &[i64], rng: &mut ChaCha8Rng) -> Whole {
        let n = dims.iter().product::<i64>();
        // Places make all of them distinct, so that extrema are.
        let value = |k: i64, r: &mut ChaCha8Rng| (below(r, 19) - 9) * 1024 + k;
        Whole { dims: dims.to_vec(), values: (0..n).map(|k| value(k, rng)).collect() }
    }

    fn zeros(dims: &[i64]) -> Whole {
        Whole { dims: dims.to_vec(), values: vec![0; dims.iter().product::<i64>() as usize] }
    }

    fn place(&self, at: &[i64]) -> Option<usize> {
        let inside = at.iter().zip(&self.dims).all(|(a, n)| (0..*n).contains(a));
        inside.then(|| at.iter().zip(&self.dims).fold(0, |o, (a, n)| o * n + a) as usize)
    }

    fn array(&self) -> Array {
        let dims: Vec<u64> = self.dims.iter().map(|&n| n as u64).collect();
        Array::from_i64s(DType::I64, &dims, &self.values).expect("fits")
    }
}

fn below(rng: &mut ChaCha8Rng, n: i64) -> i64 {
    i64::from(rng.next_u32()) % n
}

fn between(rng: &mut ChaCha8Rng, least: i64, most: i64) -> i64 {
    least + below(rng, most - least + 1)
}

/// Whether a number is chosen rather than another.
type Beats = fn(i64, i64) -> bool;
/// How two numbers become one.
type Join = fn(i64, i64) -> i64;

/// Every coordinate below `dims`, row-major.
fn places(dims: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for &n in dims {
        all = all.iter().flat_map(|p| (0..n).map(|k| [p.as_slice(), &[k]].concat())).collect();
    }
    all
}

/// The instruction's result; `None` where it does not fit.
fn result(op: Op, args: &[&Whole], attrs: Attrs) -> Option<(Vec<i64>, Vec<i64>)> {
    let mut b = Builder::new("f");
    let ty = |w: &Whole| {
        TensorType::of(DType::I64, &w.dims.iter().map(|&n| n as u64).collect::<Vec<_>>())
    };
    let params: Vec<_> =
        args.iter().map(|w| adfuse::ir::Operand::Value(b.param(ty(w), None))).collect();
    let inst = b.try_inst(op, &params, attrs, None, &[]).ok()?;
    let results = b.func().inst_results(inst).to_vec();
    b.set_results(&results);
    let module = Module::single(b.finish().expect("builds"));
    let f = module.funcs.values().next().expect("a function");
    let arrays: Vec<Array> = args.iter().map(|w| w.array()).collect();
    let out = run(&module, f, &arrays, &mut Silent).expect("runs").remove(0);
    let values = out.iter().map(|l| l.to_i64()).collect();
    Some((out.dims().iter().map(|&n| n as i64).collect(), values))
}

/// Where place `k` of an axis that is dilated and padded comes from.
fn source(k: i64, low: i64, dilation: i64, n: i64) -> Option<i64> {
    let k = k - low;
    (k >= 0 && k % dilation == 0 && k / dilation < n).then_some(k / dilation)
}

fn windows(n: i64, dilation: i64, low: i64, high: i64, span: i64, stride: i64) -> i64 {
    let whole = if n == 0 { 0 } else { (n - 1) * dilation + 1 } + low + high;
    if whole < span { 0 } else { (whole - span) / stride + 1 }
}

fn shuffled(n: i64, rng: &mut ChaCha8Rng) -> Vec<i64> {
    let mut all: Vec<i64> = (0..n).collect();
    for k in (1..n).rev() {
        all.swap(k as usize, below(rng, k + 1) as usize);
    }
    all
}

#[test]
fn convolutions_are_their_sums() {
    let (mut rng, mut done) = (rng(3, 0), 0);
    for case in 0..600 {
        let r = &mut rng;
        let space = between(r, 0, 2) as usize;
        let rank = space + 2;
        let (features, batches) = [(1, 1), (between(r, 1, 3), 1), (1, between(r, 1, 3))][case % 3];
        let list = |r: &mut ChaCha8Rng, least, most| -> Vec<i64> {
            (0..space).map(|_| between(r, least, most)).collect()
        };
        let (n, c, o) = (between(r, 0, 2) * batches, between(r, 0, 2), between(r, 0, 2));
        let o = o * features * batches;
        let (extents, kernel) = (list(r, 0, 6), list(r, 1, 3));
        let (strides, low, high) = (list(r, 1, 3), list(r, -1, 2), list(r, -1, 2));
        let (base, dilation) = (list(r, 1, 3), list(r, 1, 2));
        let specs: Vec<Vec<i64>> = (0..3).map(|_| shuffled(rank as i64, r)).collect();
        let laid = |spec: &[i64], dims: &[i64]| {
            let mut out = vec![0; rank];
            spec.iter().zip(dims).for_each(|(&d, &n)| out[d as usize] = n);
            out
        };
        let x = Whole::draw(&laid(&specs[0], &[&[n, c * features], &*extents].concat()), r);
        let w = Whole::draw(&laid(&specs[1], &[&[o, c], &*kernel].concat()), r);
        let attrs = Attrs::none()
            .with_ints("strides", strides.clone())
            .with_ints("low", low.clone())
            .with_ints("high", high.clone())
            .with_ints("lhs_dilation", base.clone())
            .with_ints("rhs_dilation", dilation.clone())
            .with_ints("lhs_spec", specs[0].clone())
            .with_ints("rhs_spec", specs[1].clone())
            .with_ints("out_spec", specs[2].clone())
            .with_int("feature_group_count", features)
            .with_int("batch_group_count", batches);
        let Some((dims, values)) = result(Op::ConvGeneralDilated, &[&x, &w], attrs) else {
            // Only what is cut away altogether does not fit.
            assert!((0..space).any(|s| windows(extents[s], base[s], low[s], high[s], 0, 1) < 1));
            continue;
        };
        let out: Vec<i64> = (0..space)
            .map(|s| {
                let span = (kernel[s] - 1) * dilation[s] + 1;
                windows(extents[s], base[s], low[s], high[s], span, strides[s])
            })
            .collect();
        let mut due = Whole::zeros(&laid(&specs[2], &[&[n / batches, o], &*out].concat()));
        for at in places(&[&[n / batches, o], &*out].concat()) {
            let mut sum = 0i64;
            let (per_feature, per_batch) = (o / features, o / batches);
            for step in places(&[&[c], &*kernel].concat()) {
                let from: Option<Vec<i64>> = (0..space)
                    .map(|s| {
                        let k = at[s + 2] * strides[s] + step[s + 1] * dilation[s];
                        source(k, low[s], base[s], extents[s])
                    })
                    .collect();
                let Some(from) = from else { continue };
                let batch = at[0] + if batches > 1 { at[1] / per_batch * (n / batches) } else { 0 };
                let feature = step[0] + if features > 1 { at[1] / per_feature * c } else { 0 };
                let of_x = laid(&specs[0], &[&[batch, feature], &*from].concat());
                let of_w = laid(&specs[1], &[&[at[1]], &*step].concat());
                let (Some(i), Some(j)) = (x.place(&of_x), w.place(&of_w)) else {
                    panic!("case {case}: {of_x:?} and {of_w:?}")
                };
                sum += x.values[i] * w.values[j];
            }
            let to = due.place(&laid(&specs[2], &at)).expect("is in the result");
            due.values[to] = sum;
        }
        assert_eq!((dims, values), (due.dims, due.values), "case {case}: {x:?} {w:?}");
        done += 1;
    }
    assert!(done > 400, "{done} convolutions");
}

/// The draw of one pool: its operand, window and everything else.
struct Pool {
    x: Whole,
    window: Vec<i64>,
    strides: Vec<i64>,
    low: Vec<i64>,
    high: Vec<i64>,
    base: Vec<i64>,
    dilation: Vec<i64>,
}

impl Pool {
    fn draw(r: &mut ChaCha8Rng, dilated: bool) -> Pool {
        let rank = between(r, 1, 3) as usize;
        let mut list = |least, most| -> Vec<i64> {
            (0..rank).map(|_| between(r, least, most)).collect::<Vec<_>>()
        };
        let dims = list(1, 5);
        let most = if dilated { 2 } else { 1 };
        let (window, strides, low, high) = (list(1, 3), list(1, 3), list(-1, 1), list(-1, 1));
        let (base, dilation) = (list(1, most), list(1, most));
        Pool { x: Whole::draw(&dims, r), window, strides, low, high, base, dilation }
    }

    fn attrs(&self) -> Attrs {
        Attrs::none()
            .with_ints("window", self.window.clone())
            .with_ints("strides", self.strides.clone())
            .with_ints("low", self.low.clone())
            .with_ints("high", self.high.clone())
    }

    fn out(&self) -> Vec<i64> {
        let one = |d: usize| {
            let span = (self.window[d] - 1) * self.dilation[d] + 1;
            windows(self.x.dims[d], self.base[d], self.low[d], self.high[d], span, self.strides[d])
        };
        (0..self.window.len()).map(one).collect()
    }

    /// The places that the window of a place has in the operand.
    fn inside(&self, at: &[i64]) -> Vec<usize> {
        let each = places(&self.window).into_iter().filter_map(|step| {
            let from: Option<Vec<i64>> = (0..at.len())
                .map(|d| {
                    let k = at[d] * self.strides[d] + step[d] * self.dilation[d];
                    source(k, self.low[d], self.base[d], self.x.dims[d])
                })
                .collect();
            self.x.place(&from?)
        });
        each.collect()
    }
}

#[test]
fn pools_are_their_folds() {
    let (mut rng, mut done) = (rng(4, 0), 0);
    for _ in 0..400 {
        let pool = Pool::draw(&mut rng, true);
        let attrs = pool
            .attrs()
            .with_ints("base_dilation", pool.base.clone())
            .with_ints("window_dilation", pool.dilation.clone());
        let folds: [(Op, i64, Join); 3] = [
            (Op::ReduceWindowSum, 0, |a, b| a + b),
            (Op::ReduceWindowMax, i64::MIN, i64::max),
            (Op::ReduceWindowMin, i64::MAX, i64::min),
        ];
        for (op, start, join) in folds {
            let Some((dims, values)) = result(op, &[&pool.x], attrs.clone()) else { continue };
            let fold = |at: Vec<i64>| {
                pool.inside(&at).into_iter().map(|p| pool.x.values[p]).fold(start, join)
            };
            let due: Vec<i64> = places(&pool.out()).into_iter().map(fold).collect();
            assert_eq!((dims, values), (pool.out(), due), "`{op}` {:?} {attrs:?}", pool.x);
            done += 1;
        }
    }
    assert!(done > 800, "{done} pools");
}

#[test]
fn selected_places_get_what_is_scattered() {
    let (mut rng, mut done) = (rng(5, 0), 0);
    for _ in 0..300 {
        let pool = Pool::draw(&mut rng, false);
        let source = Whole::draw(&pool.out(), &mut rng);
        let chosen: [(&'static str, Beats); 2] = [("ge", |a, b| a > b), ("le", |a, b| a < b)];
        for (word, beats) in chosen {
            let attrs = pool.attrs().with("select", adfuse::ir::Attr::Word(word));
            let args = [&source, &pool.x];
            let Some((dims, values)) = result(Op::SelectAndScatterAdd, &args, attrs) else {
                continue;
            };
            let mut due = Whole::zeros(&pool.x.dims);
            for (at, s) in places(&pool.out()).iter().zip(&source.values) {
                let better = |best: usize, p: usize| {
                    if beats(pool.x.values[p], pool.x.values[best]) { p } else { best }
                };
                // A window that is all padding gives what it has to nobody.
                if let Some(best) = pool.inside(at).into_iter().reduce(better) {
                    due.values[best] += s;
                }
            }
            assert_eq!((dims, values), (due.dims, due.values), "{word} {:?}", pool.x);
            done += 1;
        }
    }
    assert!(done > 300, "{done} cases");
}

#[test]
fn running_folds_join_what_came_before() {
    let mut rng = rng(6, 0);
    let folds: [(Op, Join); 3] =
        [(Op::Cumprod, i64::wrapping_mul), (Op::Cummax, i64::max), (Op::Cummin, i64::min)];
    for n in 0..9 {
        let x = Whole::draw(&[2, n, 3], &mut rng);
        for (op, join) in folds {
            for reverse in [false, true] {
                let attrs = Attrs::none().with_int("axis", 1);
                let attrs = attrs.with("reverse", adfuse::ir::Attr::Bool(reverse));
                let (dims, values) = result(op, &[&x], attrs).expect("fits");
                let mut due = x.clone();
                for at in places(&x.dims) {
                    let before: Vec<i64> =
                        if reverse { (at[1]..n).collect() } else { (0..=at[1]).collect() };
                    let all =
                        before.iter().map(|&k| x.values[x.place(&[at[0], k, at[2]]).unwrap()]);
                    let to = due.place(&at).expect("is there");
                    due.values[to] = all.reduce(join).expect("has itself");
                }
                assert_eq!((dims, values), (due.dims, due.values), "`{op}` of {n}");
            }
        }
    }
}
