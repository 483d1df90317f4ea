//! What models are made of: gradients by structs, gradients of each example, derivatives in losses, blocks of Jacobians.

use super::*;
use adfuse::transform::{grad, hvp, jacrev, value_and_grad, vmap, vmap_axes};

#[derive(Params, Clone)]
struct Dense<T = Tensor> {
    weight: T,
    bias: Option<T>,
    slope: f64,
}

#[derive(Params, Clone)]
struct Perceptron<T = Tensor> {
    layers: Vec<Dense<T>>,
    scale: T,
}

impl Perceptron {
    fn apply(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for layer in &self.layers {
            x = x.dot(&layer.weight);
            if let Some(bias) = &layer.bias {
                x += bias;
            }
            x = x.tanh() * layer.slope;
        }
        x.sum(&[0]) * &self.scale
    }
}

fn model() -> Perceptron<Array> {
    Perceptron {
        layers: vec![
            Dense { weight: array(&[3, 4], 0.1), bias: Some(array(&[4], 0.2)), slope: 1.5 },
            Dense { weight: array(&[4, 2], 0.4), bias: None, slope: 0.5 },
        ],
        scale: scalar(0.8),
    }
}

/// A traced function of the model and further inputs.
fn of_model<R: Params<Tensor>>(
    further: &[Array],
    f: impl FnOnce(&Perceptron, &[Tensor]) -> R,
) -> Traced {
    let traced = trace("f", |t| {
        let net = adfuse::tree::map(&model(), |path, a: &Array| t.input(path.as_str(), a.ty()));
        let inputs: Vec<Tensor> =
            further.iter().enumerate().map(|(k, a)| t.input(&format!("in{k}"), a.ty())).collect();
        f(&net, &inputs)
    });
    traced.unwrap_or_else(|e| panic!("{e:?}"))
}

fn args(further: &[Array]) -> Vec<Array> {
    [arrays(&model()), further.to_vec()].concat()
}

#[test]
fn a_gradient_has_the_structure_of_the_model() {
    let x = [array(&[3], 0.5)];
    let f = of_model(&x, |net, x| {
        let (y, slopes) = value_and_grad(|net: &Perceptron| net.apply(&x[0]).square())(net);
        assert_eq!(slopes.layers[0].slope, 1.5);
        assert!(slopes.layers[1].bias.is_none());
        (y, slopes)
    });
    let plain = of_model(&x, |net, x| net.apply(&x[0]).square());
    let expected = chained(&plain, &args(&x), |d| d.value_and_grad(&[0, 1, 2, 3]));
    assert_eq!(run_traced(&f, &args(&x)), expected);
}

#[test]
fn gradients_of_each_example() {
    let data = [array(&[5, 3], 0.5), array(&[5], 0.9)];
    let loss = |net: &Perceptron, x: &Tensor, y: &Tensor| (net.apply(x) - y).square();
    let each = of_model(&data, |net, data| {
        let slopes = |(x, y): &(Tensor, Tensor)| grad(|net: &Perceptron| loss(net, x, y))(net);
        vmap(slopes)(&(data[0].clone(), data[1].clone()))
    });
    let mapped = of_model(&data, |net, data| {
        let slopes = |(net, (x, y)): &(Perceptron, (Tensor, Tensor))| {
            grad(|net: &Perceptron| loss(net, x, y))(net)
        };
        let all = (net.clone(), (data[0].clone(), data[1].clone()));
        vmap_axes((None, (Some(0), Some(0))), slopes)(&all)
    });
    let found = run_traced(&each, &args(&data));
    assert_eq!(run_traced(&mapped, &args(&data)), found);
    for k in 0..5 {
        let row = Array::from_f64s(DType::F64, &[3], &data[0].to_f64s()[3 * k..3 * k + 3]).unwrap();
        let one = [row, scalar(data[1].to_f64s()[k])];
        let alone = of_model(&one, |net, d| grad(|net: &Perceptron| loss(net, &d[0], &d[1]))(net));
        for (all, alone) in found.iter().zip(run_traced(&alone, &args(&one))) {
            let n = alone.len();
            near(&all.to_f64s()[n * k..n * k + n], &alone.to_f64s(), 1e-14);
        }
    }
}

/// `u_xx + u_yy` inside of a loss, differentiated by the parameters: three derivatives, the last in reverse mode.
#[test]
fn derivatives_in_a_loss() {
    let points = [array(&[4, 3], 0.5)];
    let laplacian = |net: &Perceptron, x: &Tensor| {
        let t = x.tracer();
        let mut sum = t.full(f64s([]), 0.0);
        for axis in 0..2 {
            let direction = t.iota(f64s([3]), 0).eq(axis as f64).convert(DType::F64);
            let product = hvp(|x: &Tensor| net.apply(x))(x, &direction);
            sum += product.dot(&direction);
        }
        sum
    };
    let loss = |net: &Perceptron, points: &Tensor| {
        vmap(|x: &Tensor| (laplacian(net, x) + net.apply(x)).square())(points).mean(&[0])
    };
    let value = of_model(&points, |net, p| loss(net, &p[0]));
    let slopes = of_model(&points, |net, p| grad(|net: &Perceptron| loss(net, &p[0]))(net));
    let found = run_traced(&slopes, &args(&points));
    near(&found[0].to_f64s(), &differences(&value, &args(&points)), 1e-6);
    // The engine that compiles agrees.
    let module = Module::single(slopes.clone());
    let made = Cpu::default().compile(&module, &slopes).expect("it compiles").executable;
    near(&flat(&made.run(&args(&points)).expect("it runs")), &flat(&found), 1e-10);
}

/// A camera sees a point: two numbers. The blocks of each observation's Jacobian by its camera and its point.
#[test]
fn blocks_of_a_bundle_adjustment() {
    let seen = |camera: &Tensor, point: &Tensor| {
        let parts = camera.split(&[3, 1], 0);
        let moved = point + &parts[0];
        let split = moved.split(&[2, 1], 0);
        let depth = (split[1].clone() + 4.0).broadcast(&[0], &[Dim::Const(1)]).reshape(());
        let focal = parts[1].reshape(()) / depth;
        &split[0] * focal.broadcast(&[], &[Dim::Const(2)])
    };
    let cameras = array(&[6, 4], 0.3);
    let points = array(&[6, 3], 0.9);
    let f = trace("f", |t| {
        let (cameras, points) = (t.input("cameras", f64s([6, 4])), t.input("points", f64s([6, 3])));
        let blocks = vmap(|(c, p): &(Tensor, Tensor)| {
            let (by_camera, by_point) =
                jacrev(|(c, p): &(Tensor, Tensor)| seen(c, p))(&(c.clone(), p.clone()));
            // A block of the normal equations too.
            let normal = by_camera.transpose(&[1, 0]).dot(&by_point);
            (by_camera, by_point, normal)
        });
        blocks(&(cameras, points))
    })
    .unwrap();
    let out = run_traced(&f, &[cameras.clone(), points.clone()]);
    assert_eq!(f.result_types(), [f64s([6, 2, 4]), f64s([6, 2, 3]), f64s([6, 4, 3])]);
    let one = trace("f", |t| seen(&t.input("c", f64s([4])), &t.input("p", f64s([3])))).unwrap();
    let turned = trace("f", |t| {
        let p = t.input("p", f64s([3]));
        seen(&t.input("c", f64s([4])), &p)
    });
    let turned = turned.unwrap();
    for k in 0..6 {
        let c = Array::from_f64s(DType::F64, &[4], &cameras.to_f64s()[4 * k..4 * k + 4]).unwrap();
        let p = Array::from_f64s(DType::F64, &[3], &points.to_f64s()[3 * k..3 * k + 3]).unwrap();
        let by_camera = differences(&one, &[c.clone(), p.clone()]);
        near(&out[0].to_f64s()[8 * k..8 * k + 8], &by_camera, 1e-8);
        let by_point = differences(&turned, &[p, c]);
        near(&out[1].to_f64s()[6 * k..6 * k + 6], &by_point, 1e-8);
    }
}
