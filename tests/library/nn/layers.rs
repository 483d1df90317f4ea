//! Outputs and gradients of layers against PyTorch's, with weights by PyTorch's names.

use super::{Gradients, fixture, largest, near, near_in, path, within};
use adfuse::nn::{
    self, BatchNorm, Conv1d, Conv2d, Embedding, GroupNorm, Gru, LayerNorm, Linear, Lstm,
    MultiHeadAttention, Param, ParamRole, RmsNorm, TransformerBlock,
};
use adfuse::optim::Sgd;
use adfuse::prelude::*;
use adfuse::transform::value_and_grad_aux;
use adfuse::tree;
use adfuse::{eval_step, train_step};
use std::collections::BTreeMap;

/// What outputs and gradients may differ by, as a share of the largest element.
const SHARE: f64 = 1e-5;

/// A case of the file `layers.safetensors`.
struct Case {
    name: &'static str,
    arrays: BTreeMap<String, Array>,
}

impl Case {
    fn new(name: &'static str) -> Case {
        Case { name, arrays: within(&fixture("layers.safetensors"), &format!("{name}/")) }
    }

    fn array(&self, name: &str) -> Array {
        self.arrays.get(name).unwrap_or_else(|| panic!("{}: no {name}", self.name)).clone()
    }

    fn state<M: Params<Param>>(&self, layer: &M) -> M::With<Array> {
        let state: Vec<(String, Array)> = within(&self.arrays, "state/").into_iter().collect();
        // The parameters of a recurrent layer have its number.
        let suffix = if state.iter().any(|(name, _)| name.ends_with("_l0")) { "_l0" } else { "" };
        let values = nn::named_by(layer, &state, |path| format!("{path}{suffix}"));
        values.expect("PyTorch's names and extents")
    }

    /// Arguments as parameters; gradients are taken by those of floats.
    fn args(&self, names: &[&str]) -> Vec<Param> {
        let arg = |name: &&str| {
            let ty = self.array(name).ty();
            let role = if ty.dtype.is_float() { ParamRole::Trained } else { ParamRole::Frozen };
            Param { ty, init: nn::Init::Zeros, role }
        };
        names.iter().map(arg).collect()
    }

    fn compare<M: Params<Array>>(&self, layer: &M, args: &[(&str, Array)], y: &Array) {
        near(&format!("{}: y", self.name), y, &self.array("y"), SHARE);
        let mut compared = 0;
        let slopes = within(&self.arrays, "grad/");
        // Of a gradient that is 0 but for rounding, such as that of the keys' bias, the largest element says nothing.
        let least = 0.01 * slopes.values().map(largest).fold(0.0, f64::max);
        let own = tree::named_leaves(layer).into_iter();
        for (path, found) in own.chain(args.iter().map(|(n, a)| ((*n).to_string(), a.clone()))) {
            let due = slopes.get(&path).or_else(|| slopes.get(&format!("{path}_l0")));
            let Some(due) = due else { continue };
            let most = SHARE * largest(due).max(least);
            near_in(&format!("{}: gradient by {path}", self.name), &found, due, most);
            compared += 1;
        }
        assert_eq!(compared, slopes.len(), "{}", self.name);
    }
}

/// The outputs of a layer in training, and the gradients of their weighted sum, are PyTorch's. Gives the layer after the step: gradients, and
/// running statistics.
fn trained<M: Params<Param>>(
    case: &Case,
    layer: M,
    values: M::With<Array>,
    names: &[&str],
    apply: impl Fn(&M::With<Tensor>, &[Tensor]) -> Tensor + Send + Sync + 'static,
) -> M::With<Array> {
    let args: Vec<Array> = names.iter().map(|n| case.array(n)).collect();
    let values = (values, args);
    let step = train_step(
        Gradients,
        (layer, case.args(names)),
        move |(layer, args): &(M::With<Tensor>, Vec<Tensor>), k: Tensor| {
            let y = apply(layer, args);
            ((&y * k).sum(..), y)
        },
    );
    let mut state = step.with(Device::cpu().threads(1), &values, 0).expect("types fit");
    let (_, y) = state.step(&case.array("k")).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let (layer, args) = state.params().expect("there");
    let args: Vec<(&str, Array)> = names.iter().copied().zip(args).collect();
    case.compare(&layer, &args, &y);
    layer
}

/// A layer of one argument with the weights of its case.
fn compare<M: Params<Param>>(
    name: &'static str,
    layer: M,
    apply: impl Fn(&M::With<Tensor>, &Tensor) -> Tensor + Send + Sync + 'static,
) {
    let case = Case::new(name);
    let values = case.state(&layer);
    trained(&case, layer, values, &["x"], move |layer, args| apply(layer, &args[0]));
}

#[test]
fn linear_maps() {
    compare("linear", Linear::new(5, 3), |l: &Linear, x| l.apply(x));
    compare("linear_no_bias", Linear::new(5, 3).no_bias(), |l: &Linear, x| l.apply(x));
    compare("embedding", Embedding::new(7, 3), |l: &Embedding, x| l.apply(x));
}

#[test]
fn convolutions() {
    compare("conv1d", Conv1d::new(4, 6, 3), |l: &Conv1d, x| l.apply(x));
    let strided = Conv1d::with(4, 6, 5, Conv::padded(2).stride(2).groups(2));
    compare("conv1d_strided", strided, |l: &Conv1d, x| l.apply(x));
    let images: [(_, Conv2d<Param>); 5] = [
        ("conv2d", Conv2d::new(3, 4, 3)),
        ("conv2d_same", Conv2d::same(3, 4, 3).no_bias()),
        (
            "conv2d_strided",
            Conv2d::with(4, 6, 3, Conv::valid().groups(2))
                .stride([2, 3])
                .padding(Padding::Explicit(vec![(1, 1), (2, 2)])),
        ),
        ("conv2d_dilated", Conv2d::with(2, 3, 3, Conv::padded(2).dilation(2))),
        ("conv2d_depthwise", Conv2d::with(4, 4, 3, Conv::same().groups(4))),
    ];
    for (name, layer) in images {
        compare(name, layer, |l: &Conv2d, x| l.apply(x));
    }
}

#[test]
fn norms() {
    compare("layer_norm", LayerNorm::new(6), |l: &LayerNorm, x| l.apply(x));
    let other = LayerNorm::new(6).no_bias().eps(1e-3);
    compare("layer_norm_no_bias", other, |l: &LayerNorm, x| l.apply(x));
    compare("rms_norm", RmsNorm::new(6), |l: &RmsNorm, x| l.apply(x));
    compare("group_norm", GroupNorm::new(3, 6), |l: &GroupNorm, x| l.apply(x));
}

/// Three batches in training, each with the running statistics that the one before left; then as outside of training.
fn batch_norm(cases: [&'static str; 4], layer: &BatchNorm<Param>) {
    let [first, second, third, after] = cases.map(Case::new);
    let mut values = first.state(layer);
    for case in [first, second, third] {
        let (weight, bias) = (values.weight.clone(), values.bias.clone());
        let next = trained(&case, layer.clone(), values, &["x"], |l: &BatchNorm, a| l.apply(&a[0]));
        values = BatchNorm { weight, bias, ..next };
    }
    let due = after.state(layer);
    near("the running mean", &values.running_mean, &due.running_mean, SHARE);
    near("the running variance", &values.running_var, &due.running_var, SHARE);
    let step = eval_step(|at: &(BatchNorm, Vec<Tensor>), k: Tensor| {
        let sum = value_and_grad_aux(|(l, args): &(BatchNorm, Vec<Tensor>)| {
            let y = l.apply(&args[0]);
            ((&y * &k).sum(..), y)
        });
        let ((_, y), gradient) = sum(at);
        (y, gradient)
    });
    let (y, (layer, args)) =
        step.run(&Device::cpu(), &(due, vec![after.array("x")]), &after.array("k")).expect("runs");
    after.compare(&layer, &[("x", args[0].clone())], &y);
}

#[test]
fn batch_norms_keep_their_statistics() {
    let cases = ["batch_norm/0", "batch_norm/1", "batch_norm/2", "batch_norm/after"];
    batch_norm(cases, &BatchNorm::new(3));
    let cases =
        ["batch_norm_flat/0", "batch_norm_flat/1", "batch_norm_flat/2", "batch_norm_flat/after"];
    batch_norm(cases, &BatchNorm::new(5).eps(1e-3).momentum(0.3));
}

#[test]
fn recurrent_layers() {
    // Outputs, then the last states, along time.
    compare("lstm", Lstm::new(4, 3), |l: &Lstm, x| {
        let (y, (h, c)) = l.apply(x);
        Tensor::concat(&[&y, &h.expand_dims(1), &c.expand_dims(1)], 1)
    });
    compare("gru", Gru::new(4, 3), |l: &Gru, x| {
        let (y, h) = l.apply(x);
        Tensor::concat(&[&y, &h.expand_dims(1)], 1)
    });
}

#[test]
fn attention() {
    let layers: [(_, MultiHeadAttention<Param>); 4] = [
        ("attention", MultiHeadAttention::new(8, 2)),
        ("attention_causal", MultiHeadAttention::new(8, 2).causal()),
        ("attention_grouped", MultiHeadAttention::new(16, 4).groups(2).causal()),
        ("attention_rope", MultiHeadAttention::new(8, 2).groups(1).causal().rope()),
    ];
    for (name, layer) in layers {
        compare(name, layer, |l: &MultiHeadAttention, x| l.apply(x));
    }
    let (case, layer) = (Case::new("attention_across"), MultiHeadAttention::new(8, 2));
    let values = case.state(&layer);
    let across = |l: &MultiHeadAttention, a: &[Tensor]| l.attend(&a[0], &a[1], Some(&a[2]));
    trained(&case, layer, values, &["x", "memory", "mask"], across);
}

/// A window is what a mask of the same positions is: in attention that stores no scores, and in training with dropout, which writes
/// them out.
#[test]
fn windows() {
    let all: Vec<f64> = (0..144).map(|k| f64::from(k % 17) / 8.0 - 1.0).collect();
    let x = Array::from_f64s(DType::F32, &[2, 9, 8], &all).expect("fits");
    for causal in [false, true] {
        let plain = MultiHeadAttention::new(8, 2);
        let own = plain.clone().window(2);
        let own = if causal { own.causal() } else { own };
        let values = nn::init(&plain, 3).expect("is made");
        let masked = move |a: &MultiHeadAttention, x: Tensor| {
            let t = x.tracer();
            let place = |axis: i64| t.iota(TensorType::of(DType::I32, &[9, 9]), axis);
            let before = place(0) - place(1);
            let mask = before.abs().le(2);
            let mask = if causal { mask & before.ge(0) } else { mask };
            a.attend(&x, &x, Some(&mask))
        };
        let due = eval_step(masked).run(&Device::cpu(), &values, &x).expect("runs");
        let own_values = nn::init(&own, 3).expect("is made");
        let step = eval_step(|a: &MultiHeadAttention, x: Tensor| a.apply(x));
        assert_eq!(step.run(&Device::cpu(), &own_values, &x).expect("runs"), due);
        // The probability is so low that nothing is dropped.
        let step = train_step(Sgd::new(0.0), own.dropout(1e-9), |a: &MultiHeadAttention, x| {
            let y = a.apply(&x);
            (y.sum(..), y)
        });
        let (_, y) = step.init(Device::cpu(), 3).expect("is made").step(&x).expect("runs");
        let apart = y.to_f64s().into_iter().zip(due.to_f64s()).map(|(y, due)| (y - due).abs());
        assert!(apart.fold(0.0, f64::max) < 1e-5, "{causal}");
    }
}

#[test]
fn transformer_block() {
    let block = TransformerBlock::new(8, 2).causal();
    compare("block", block, |l: &TransformerBlock, x| l.apply(x));
}

#[derive(Params, Clone)]
struct Convnet<T = Tensor> {
    conv1: Conv2d<T>,
    norm1: BatchNorm<T>,
    conv2: Conv2d<T>,
    norm2: BatchNorm<T>,
    head: Linear<T>,
}

impl Convnet {
    fn apply(&self, x: Tensor) -> Tensor {
        let x = self.norm1.apply(self.conv1.apply(x)).relu().max_pool2d(2);
        let x = self.norm2.apply(self.conv2.apply(x)).relu();
        self.head.apply(x.mean(&[2, 3]))
    }
}

/// A model that PyTorch saved gives its outputs.
#[test]
fn a_saved_model() {
    let model = Convnet {
        conv1: Conv2d::same(1, 6, 3).no_bias(),
        norm1: BatchNorm::new(6),
        conv2: Conv2d::with(6, 8, 3, Conv::padded(1).stride(2)),
        norm2: BatchNorm::new(8),
        head: Linear::new(8, 5),
    };
    let values = nn::load(&model, path("convnet.safetensors")).expect("its names and extents");
    let io = fixture("convnet_io.safetensors");
    let step = eval_step(|net: &Convnet, x: Tensor| net.apply(x));
    for device in [Device::cpu().threads(1), Device::cpu().threads(2)] {
        let y = step.run(&device, &values, &io["x"]).expect("runs");
        near("y", &y, &io["y"], SHARE);
    }
}
