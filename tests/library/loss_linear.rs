//! The loss of a linear layer's scores in chunks of rows: values and gradients are those of the loss whose scores are whole, sums of chunks have the
//! order that is documented, and scores are never stored whole.

use super::nn::{largest, near_in};
use adfuse::fusion::Fp;
use adfuse::prelude::*;
use adfuse::trace::Traced;
use adfuse::transform::{jvp, value_and_grad};

/// What is computed: rows of features, by class, in chunks.
struct Case {
    name: &'static str,
    /// The extents of the features before the last axis.
    rows: &'static [u64],
    features: u64,
    classes: u64,
    /// Rows at a time.
    chunk: u64,
    labels: Labels,
}

/// The labels of rows.
#[derive(Clone, Copy)]
enum Labels {
    /// All are classes.
    Classes,
    /// Every third is a number that is no class: below all, and above all.
    Others,
    /// None is a class.
    NoClass,
}

const fn case(
    name: &'static str,
    rows: &'static [u64],
    [features, classes, chunk]: [u64; 3],
    labels: Labels,
) -> Case {
    Case { name, rows, features, classes, chunk, labels }
}

const CASES: [Case; 9] = [
    case("chunks that divide", &[12], [5, 7, 4], Labels::Classes),
    case("a short last chunk", &[11], [5, 7, 4], Labels::Classes),
    case("a last chunk of one row", &[9], [6, 33, 4], Labels::Classes),
    case("one chunk of all rows", &[6], [5, 7, 6], Labels::Classes),
    case("a chunk that is larger than all rows", &[6], [5, 7, 100], Labels::Classes),
    case("one row at a time", &[3], [4, 130, 1], Labels::Classes),
    case("chunks across the axes of rows", &[3, 5], [6, 17, 4], Labels::Classes),
    case("labels that are no class", &[11], [5, 7, 4], Labels::Others),
    case("no label is a class", &[5], [3, 4, 2], Labels::NoClass),
];

/// Features, weights and labels, and the rows of a chunk.
#[derive(Clone)]
struct Operands {
    x: Array,
    weight: Array,
    labels: Array,
    chunk: u64,
}

/// A loss, and its gradients by the features and by the weight.
type Found = [Array; 3];

fn drawn(dtype: DType, dims: &[u64], scale: f64, seed: f64) -> Array {
    let n = dims.iter().product::<u64>();
    let numbers: Vec<f64> =
        (0..n).map(|k| scale * ((k as f64 + 1.0) * (seed + 0.7)).sin()).collect();
    Array::from_f64s(dtype, dims, &numbers).expect("as many as the extents say")
}

impl Case {
    fn operands(&self, dtype: DType, label_type: DType) -> Operands {
        let dims = [self.rows, &[self.features]].concat();
        let count = self.rows.iter().product::<u64>() as i64;
        let classes = self.classes as i64;
        let label = |k: i64| match (self.labels, k % 3) {
            (Labels::Classes, _) | (Labels::Others, 2) => (5 * k + 1) % classes,
            (Labels::Others, 0) | (Labels::NoClass, 0) => -1 - k,
            _ => classes + k,
        };
        let labels: Vec<f64> = (0..count).map(|k| label(k) as f64).collect();
        Operands {
            x: drawn(dtype, &dims, 2.0, 0.3),
            weight: drawn(dtype, &[self.classes, self.features], 1.5, 1.1),
            labels: Array::from_f64s(label_type, self.rows, &labels).expect("as many as rows"),
            chunk: self.chunk,
        }
    }
}

impl Operands {
    fn traced(&self, loss: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor) -> Traced {
        let made = trace("loss", |t| {
            let inputs = (t.input("x", self.x.ty()), t.input("w", self.weight.ty()));
            let labels = t.input("labels", self.labels.ty());
            value_and_grad(|(x, w): &(Tensor, Tensor)| loss(x, w, &labels))(&inputs)
        });
        made.unwrap_or_else(|e| panic!("{e}"))
    }

    fn in_chunks(&self) -> Traced {
        self.traced(|x, w, labels| x.linear_cross_entropy(w, labels, self.chunk))
    }

    fn args(&self) -> [Array; 3] {
        [self.x.clone(), self.weight.clone(), self.labels.clone()]
    }

    /// By the reference engine.
    fn run(&self, f: &Traced) -> Found {
        let found = run(&Module::from(f.clone()), f, &self.args(), &mut Silent);
        found.unwrap_or_else(|e| panic!("{e}\n{f}")).try_into().expect("a loss and two gradients")
    }

    /// By the CPU engine, in strict mode.
    fn run_compiled(&self, f: &Traced) -> Found {
        let made = Device::cpu().fp(Fp::Strict).compile(f).unwrap_or_else(|e| panic!("{e}\n{f}"));
        let found = made.run(&self.args()).unwrap_or_else(|e| panic!("{e}\n{f}"));
        found.try_into().expect("a loss and two gradients")
    }

    /// The same numbers in `f64`.
    fn wide(&self) -> Operands {
        let [x, weight] = [&self.x, &self.weight].map(|a| a.convert(DType::F64));
        Operands { x, weight, ..self.clone() }
    }

    /// Some of the rows, which have one axis.
    fn rows(&self, first: usize, count: usize) -> Operands {
        let of = |a: &Array, width: usize, dims: &[u64]| {
            let own = &a.to_f64s()[first * width..(first + count) * width];
            Array::from_f64s(a.ty().dtype, dims, own).expect("as many as the extents say")
        };
        let features = self.x.dims()[1];
        let x = of(&self.x, features as usize, &[count as u64, features]);
        Operands { x, labels: of(&self.labels, 1, &[count as u64]), ..self.clone() }
    }

    /// The formula of the loss and of its gradients, with all scores, in Rust.
    fn by_formula(&self) -> Found {
        let features = *self.x.dims().last().expect("an axis") as usize;
        let classes = self.weight.dims()[0] as usize;
        let (x, w, labels) = (self.x.to_f64s(), self.weight.to_f64s(), self.labels.to_f64s());
        let rows = labels.len();
        let (mut loss, mut by_x, mut by_w) = (0.0, vec![0.0; x.len()], vec![0.0; w.len()]);
        for (row, &label) in labels.iter().enumerate() {
            if !(0.0..classes as f64).contains(&label) {
                continue;
            }
            let own = &x[row * features..][..features];
            let of_class = |c: usize| &w[c * features..][..features];
            let score = |c| own.iter().zip(of_class(c)).map(|(a, b)| a * b).sum::<f64>();
            let scores: Vec<f64> = (0..classes).map(score).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total = scores.iter().map(|s| (s - top).exp()).sum::<f64>();
            loss -= scores[label as usize] - top - total.ln();
            for (c, s) in scores.iter().enumerate() {
                let is_label = if c == label as usize { 1.0 } else { 0.0 };
                let by_score = ((s - top).exp() / total - is_label) / rows as f64;
                for k in 0..features {
                    by_x[row * features + k] += by_score * w[c * features + k];
                    by_w[c * features + k] += by_score * own[k];
                }
            }
        }
        let array = |dims: &[u64], of: &[f64]| Array::from_f64s(DType::F64, dims, of);
        let made = [
            array(&[], &[loss / rows as f64]),
            array(self.x.dims(), &by_x),
            array(self.weight.dims(), &by_w),
        ];
        made.map(|a| a.expect("as many as the extents say"))
    }
}

/// Fails where an element of the loss or of a gradient differs by more than a share of the largest element.
#[track_caller]
fn near(case: &str, found: &Found, due: &Found, share: f64) {
    for ((what, found), due) in ["loss", "by x", "by the weight"].iter().zip(found).zip(due) {
        near_in(&format!("{case}: {what}"), found, due, share * largest(due));
    }
}

fn bits(found: &Found) -> [Vec<u64>; 3] {
    found.each_ref().map(Array::to_bits)
}

#[test]
fn values_and_gradients_are_those_of_all_scores() {
    for case in &CASES {
        for (dtype, share) in [(DType::F64, 1e-14), (DType::F32, 3e-6), (DType::BF16, 0.02)] {
            let name = format!("{}, {dtype:?}", case.name);
            let operands = case.operands(dtype, DType::I32);
            let found = operands.run(&operands.in_chunks());
            let own = [dtype.compute(), dtype, dtype];
            assert_eq!(found.each_ref().map(|a| a.ty().dtype), own, "{name}");
            // Of the numbers that the operands are.
            let wide = operands.wide();
            let due = wide.by_formula();
            near(&name, &found, &due, share);
            let whole = wide.traced(|x, w, labels| {
                x.dot_general(w, ([].as_slice(), &[]), (&[-1], &[1])).cross_entropy(labels)
            });
            near(&name, &wide.run(&whole), &due, 1e-14);
            let compiled = operands.run_compiled(&operands.in_chunks());
            assert_eq!(bits(&compiled), bits(&found), "{name}: the engine on a CPU");
        }
    }
}

/// Where no label is a class, the loss and its gradients are zeros, not NaNs.
#[test]
fn labels_that_are_no_class_add_nothing() {
    let operands = CASES[8].operands(DType::F32, DType::I64);
    for found in operands.run(&operands.in_chunks()) {
        assert!(found.to_f64s().iter().all(|&x| x == 0.0), "{:?}", found.to_f64s());
    }
}

/// A narrow type of labels has fewer numbers than there are classes: those beyond are no label's.
#[test]
fn labels_of_narrow_types() {
    for (label_type, classes) in [(DType::U8, 300), (DType::I8, 200), (DType::U32, 9)] {
        let case = Case { classes, labels: Labels::Classes, ..CASES[1] };
        let operands = case.operands(DType::F64, label_type);
        let found = operands.run(&operands.in_chunks());
        near(&format!("{label_type:?}"), &found, &operands.by_formula(), 1e-14);
    }
}

/// What chunks add to the loss and to the weight's gradient is added up in at least `f32`, from the first rows to the last. Numbers of rows are powers of two, so that the
/// mean of a chunk becomes its part of the whole without rounding.
#[test]
fn chunks_are_added_from_the_first_rows_to_the_last() {
    let case = case("32 rows, 4 at a time", &[32], [6, 19, 4], Labels::Classes);
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let operands = case.operands(dtype, DType::I32);
        let part = |k: usize| {
            let part = operands.rows(4 * k, 4);
            part.run(&part.in_chunks())
        };
        let parts: Vec<Found> = (0..8).map(part).collect();
        let sum = |which: usize, order: &mut dyn Iterator<Item = usize>| {
            let wide = dtype.compute();
            let mut sum: Option<Vec<f64>> = None;
            for k in order {
                let own: Vec<f64> = parts[k][which].to_f64s().iter().map(|x| x / 8.0).collect();
                sum = Some(match sum {
                    None => own,
                    Some(before) => {
                        let both = before.iter().zip(&own).map(|(a, b)| a + b).collect::<Vec<_>>();
                        // A sum of two `f32` in `f64`, rounded to `f32`, is their sum in `f32`.
                        Array::from_f64s(wide, &[both.len() as u64], &both).expect("fits").to_f64s()
                    }
                });
            }
            let dims = parts[0][which].dims();
            let sum = Array::from_f64s(wide, dims, &sum.expect("some")).expect("fits");
            sum.convert(parts[0][which].ty().dtype).to_bits()
        };
        let found = operands.run(&operands.in_chunks());
        let compiled = operands.run_compiled(&operands.in_chunks());
        for which in [0, 2] {
            let due = sum(which, &mut (0..8));
            assert_eq!(found[which].to_bits(), due, "{dtype:?}, result {which}");
            assert_eq!(compiled[which].to_bits(), due, "{dtype:?}, result {which}, compiled");
        }
        // The order is seen in these numbers, or the comparison would say nothing.
        if dtype != DType::BF16 {
            assert_ne!(sum(2, &mut (0..8).rev()), sum(2, &mut (0..8)), "{dtype:?}");
        }
    }
}

/// Gradients are those of what the loss is a part of.
#[test]
fn a_cotangent_scales_the_gradients() {
    let operands = CASES[1].operands(DType::F32, DType::I32);
    let scaled = operands.traced(|x, w, labels| x.linear_cross_entropy(w, labels, 4) * -4.0);
    let (found, plain) = (operands.run(&scaled), operands.run(&operands.in_chunks()));
    for (found, plain) in found.iter().zip(&plain) {
        let due: Vec<f64> = plain.to_f64s().iter().map(|x| -4.0 * x).collect();
        assert_eq!(found.to_f64s(), due);
    }
}

/// No value has the scores of all rows, forward or backward, and the memory of a plan is that of a chunk.
#[test]
fn scores_are_never_stored_whole() {
    // A chunk's scores take more memory than the weight: chunks of fewer may be multiplied by it at once.
    let (rows, classes, chunk) = (2048, 1024, 256);
    let case = case("large", &[2048], [16, 1024, 256], Labels::Classes);
    let operands = case.operands(DType::F32, DType::I32);
    let made = operands.in_chunks();
    let most = chunk * classes;
    let mut largest = 0;
    made.walk(&mut |f, i| {
        let sizes = f.inst_results(i).iter().filter_map(|&v| f.ty(v).elements());
        largest = largest.max(sizes.max().unwrap_or_default());
    });
    assert_eq!(largest, most, "{}", made.function());
    let whole = operands.traced(|x, w, labels| {
        x.dot_general(w, ([].as_slice(), &[]), (&[-1], &[1])).cross_entropy(labels)
    });
    let peak = |f: &Traced| Device::cpu().compile(f).expect("compiles").executable.memory().peak();
    let (own, whole) = (peak(&made), peak(&whole));
    assert!(whole > 4 * rows * classes, "{whole} bytes");
    // The scores of a chunk with their gradient, twice at most, and what is neither.
    assert!(own < 4 * (2 * chunk + 256) * classes, "{own} and {whole} bytes");
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |x: TensorType, w: TensorType, labels: TensorType, chunk: u64, kind: Kind| {
        let made = trace("f", |t| {
            let (x, w, labels) = (t.input("x", x), t.input("w", w), t.input("labels", labels));
            x.linear_cross_entropy(&w, &labels, chunk)
        });
        let d = made.expect_err("is refused");
        assert_eq!(d.kind, kind, "{d}");
        assert!(d.message.contains("`linear_cross_entropy`"), "{d}");
    };
    let (x, w, labels) = (f32s([4, 3]), f32s([5, 3]), i32s([4]));
    refused(x.clone(), w.clone(), labels.clone(), 0, Kind::Shape);
    refused(x.clone(), f32s([3, 5]), labels.clone(), 2, Kind::Shape);
    refused(x.clone(), f64s([5, 3]), labels.clone(), 2, Kind::Shape);
    refused(x.clone(), f32s([5, 3, 1]), labels.clone(), 2, Kind::Shape);
    refused(x.clone(), w.clone(), i32s([5]), 2, Kind::Shape);
    refused(x.clone(), w.clone(), i32s([4, 1]), 2, Kind::Shape);
    refused(x, w.clone(), f32s([4]), 2, Kind::Shape);
    refused(i32s([4, 3]), w, labels, 2, Kind::DType);
    // It has a reverse rule alone.
    let forward = trace("f", |t| {
        let (w, labels) = (t.input("w", f32s([5, 3])), t.input("labels", i32s([4])));
        let x = t.input("x", f32s([4, 3]));
        jvp(|x: &Tensor| x.linear_cross_entropy(&w, &labels, 2))(&x, &x).1
    });
    let d = forward.expect_err("has no forward mode");
    assert_eq!(d.kind, Kind::Unsupported, "{d}");
    assert!(d.message.contains("forward mode"), "{d}");
}

/// The loss of whole scores has the same numbers of classes.
#[test]
fn whole_scores_and_labels_of_narrow_types() {
    for (label_type, classes) in [(DType::U8, 300), (DType::I8, 200)] {
        let case = Case { classes, labels: Labels::Classes, ..CASES[1] };
        let operands = case.operands(DType::F64, label_type);
        let whole = operands.traced(|x, w, labels| x.dot(&w.t()).cross_entropy(labels));
        let found = operands.run(&whole);
        near(&format!("{label_type:?}"), &found, &operands.by_formula(), 1e-14);
    }
}
