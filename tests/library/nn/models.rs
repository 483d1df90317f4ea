//! What is said of a model's parameters: loading, freezing, element types.

use adfuse::nn::{self, BatchNorm, Init, Linear, Param, ParamRole};
use adfuse::optim::{Adam, Sgd};
use adfuse::prelude::*;
use adfuse::{train_step, tree};

#[derive(Params, Clone)]
struct Net<T = Tensor> {
    body: Vec<Linear<T>>,
    norm: BatchNorm<T>,
    head: Linear<T>,
}

fn net() -> Net<Param> {
    let body = vec![Linear::new(3, 4), Linear::new(4, 4).no_bias()];
    Net { body, norm: BatchNorm::new(4), head: Linear::new(4, 2) }
}

impl Net {
    fn apply(&self, x: Tensor) -> Tensor {
        let x = self.body.iter().fold(x, |x, l| l.apply(x).tanh());
        self.head.apply(self.norm.apply(x))
    }
}

fn batch(dtype: DType) -> Array {
    let mut k = 0.0f64;
    let draw = || {
        k += 1.3;
        k.sin()
    };
    Array::drawn(dtype, &[5, 3], draw).expect("fits")
}

/// The paths of the parameters that three steps change, and those of tensors in which the optimizer would see them.
fn changed(model: Net<Param>, optimizer: impl adfuse::optim::Optimizer + 'static) -> Vec<String> {
    let dtype = model.head.weight.ty.dtype;
    let step = train_step(optimizer, model, |net: &Net, x: Tensor| {
        let y = net.apply(x).convert(DType::F32);
        (&y * &y).sum(..) + y.sum(..)
    });
    let mut state = step.init(Device::cpu().threads(1), 5).expect("is made");
    let before = tree::named_leaves(&state.params().expect("there"));
    (0..3).for_each(|_| {
        state.step(&batch(dtype)).expect("runs");
    });
    let after = tree::leaves(&state.params().expect("there"));
    let differ = before.iter().zip(after).filter(|((_, a), b)| a != b);
    differ.map(|((path, _), _)| path.clone()).collect()
}

#[test]
fn frozen_parameters_stay() {
    let all = [
        "body.0.weight",
        "body.0.bias",
        "body.1.weight",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
        "head.weight",
        "head.bias",
    ];
    assert_eq!(changed(net(), Adam::new(0.01)), all);
    let frozen = nn::frozen(&net(), |path| path.starts_with("body.") || path == "norm.bias");
    let due = ["norm.weight", "norm.running_mean", "norm.running_var", "head.weight", "head.bias"];
    assert_eq!(changed(frozen.clone(), Adam::new(0.01)), due);
    assert_eq!(changed(frozen.clone(), Sgd::nesterov(Sgd::new(0.1), 0.9)), due);
    assert_eq!(nn::trained_elements(&net()), 12 + 4 + 16 + 4 + 4 + 8 + 2);
    assert_eq!(nn::trained_elements(&frozen), 4 + 8 + 2);
    // Running statistics are the layer's, whoever freezes them.
    let running = nn::frozen(&net(), |path| path.contains("running"));
    assert_eq!(running.norm.running_mean.role, ParamRole::Running);
}

#[test]
fn element_types_of_parameters() {
    for dtype in [DType::F64, DType::BF16, DType::F16] {
        let model = nn::with_dtype(&net(), dtype);
        for (path, param) in tree::named_leaves(&model) {
            let running = path.contains("running");
            assert_eq!(param.ty.dtype, if running { dtype.compute() } else { dtype }, "{path}");
        }
        assert_eq!(model.body[0].weight.ty.shape, net().body[0].weight.ty.shape);
        let values = nn::init(&model, 3).expect("fits");
        assert_eq!(values.head.weight.dtype(), dtype);
        // The same draws, rounded.
        let own = nn::init(&net(), 3).expect("fits");
        if dtype != DType::F64 {
            assert_eq!(values.head.weight, own.head.weight.convert(dtype));
        }
        let changed = changed(model, Adam::new(0.01));
        assert!(changed.iter().any(|p| p == "norm.running_var"), "{dtype}: {changed:?}");
        assert!(changed.iter().any(|p| p == "body.0.weight"), "{dtype}: {changed:?}");
    }
}

fn arrays() -> Vec<(String, Array)> {
    tree::named_leaves(&nn::init(&net(), 1).expect("fits"))
}

#[test]
fn arrays_are_found_by_their_paths() {
    let mut given = arrays();
    given.reverse();
    let counted = Array::from_i64s(DType::I64, &[], &[3]).expect("fits");
    given.push(("norm.num_batches_tracked".into(), counted));
    let loaded = nn::named(&net(), &given).expect("all there");
    assert_eq!(tree::named_leaves(&loaded), arrays());
    let wide: Vec<_> = arrays().into_iter().map(|(n, a)| (n, a.convert(DType::F64))).collect();
    let loaded = nn::named(&net(), &wide).expect("floats are converted");
    assert_eq!(tree::named_leaves(&loaded), arrays());
    let renamed: Vec<_> = arrays().into_iter().map(|(n, a)| (format!("net.{n}"), a)).collect();
    let loaded = nn::named_by(&net(), &renamed, |path| format!("net.{path}")).expect("all there");
    assert_eq!(tree::named_leaves(&loaded), arrays());
}

#[test]
fn arrays_that_do_not_fit_are_named() {
    type Change = fn(&mut Vec<(String, Array)>);
    let mistakes: [(Change, &str); 5] = [
        (|a| drop(a.remove(0)), "there are no weights for `body.0.weight`"),
        (|a| a.truncate(1), "`norm.running_mean` and 3 more"),
        (|a| a.push(("wait".into(), a[0].1.clone())), "the model has no parameters `wait`"),
        (
            |a| a[0].1 = a[2].1.clone(),
            "the parameter `body.0.weight` is f32[4,3], its weights are f32[4,4]",
        ),
        (
            |a| a[0].1 = a[0].1.convert(DType::I32),
            "the parameter `body.0.weight` is f32[4,3], its weights are i32[4,3]",
        ),
    ];
    for (change, due) in mistakes {
        let mut given = arrays();
        change(&mut given);
        let told = nn::named(&net(), &given).err().map_or("nothing".into(), |e| e.to_string());
        assert!(told.contains(due), "{told}\n{due}");
    }
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let mut model = net();
    model.head.weight.init = Init::Values(Array::from_f32s(&[4, 2], &[0.0; 8]).expect("fits"));
    let told = nn::init(&model, 0).err().expect("another shape").to_string();
    assert!(
        told.contains("`head.weight`: a parameter of type f32[2,4] cannot begin as f32[4,2]"),
        "{told}"
    );
}
