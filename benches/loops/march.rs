//! Sphere tracing: each pixel's ray goes on by the distance to what is nearest until it is there.

use super::scalar;
use adfuse::autodiff::{Batching, grad, vmap};
use adfuse::prelude::*;

/// The distance of a point, `[3]`, to a ball of this radius and centre, or to the ground.
fn distance() -> Result<Traced, Diagnostic> {
    trace("distance", |t| {
        let p = t.input("p", f64s([3]));
        let radius = t.input("radius", scalar());
        let centre = t.input("centre", f64s([3]));
        let ball = (&p - centre).square().sum(&[0]).sqrt() - radius;
        let ground = p.split(&[1; 3], 0)[1].reshape(()) + 1.0;
        ball.min(ground)
    })
}

/// The brightness of a pixel at `at`, `[2]`: by the slope of what its ray meets, less with distance, 0 where it meets
/// nothing.
fn pixel() -> Result<Traced, Diagnostic> {
    let distance = distance()?;
    let normal = grad(&Module::from(distance.clone()), &distance, &[0])?;
    trace("pixel", |t| {
        let radius = t.input("radius", scalar());
        let centre = t.input("centre", f64s([3]));
        let at = t.input("at", f64s([2]));
        let forward = t.full(f64s([1]), 1.5);
        let along = Attrs::none().with_int("axis", 0);
        let ray = t.apply(Op::Concatenate, &[&at, &forward], along, None);
        let ray = &ray / ray.square().sum(&[0]).sqrt().broadcast_like(&ray);
        let depth = t.iota(f64s([3]), 0).eq(2.0).select(&t.full(f64s([3]), -3.0), 0.0);
        let place = |far: &Tensor| &ray * far.broadcast_like(&ray) + &depth;
        let near = |far: &Tensor| t.call(&distance, &[&place(far), &radius, &centre]).remove(0);
        let start = t.full(scalar(), 0.0);
        let first = near(&start);
        let more = |(far, gap): (Tensor, Tensor)| {
            t.apply(Op::And, &[&gap.gt(1e-7), &far.lt(30.0)], Attrs::none(), None)
        };
        let (far, _) = t.while_loop((start, first), more, |(far, gap)| {
            let far = far + gap;
            let gap = near(&far);
            (far, gap)
        });
        let slope = t.call(&normal, &[&place(&far), &radius, &centre]).remove(0);
        let light = t.iota(f64s([3]), 0) * -0.4 + 0.4;
        let shade = (slope * light).sum(&[0]) * 0.5 + 0.5;
        let bright = shade * (&far * -0.1).exp();
        far.lt(30.0).select(&bright, 0.0)
    })
}

/// The image, `[rows * columns]` as `size` says, of a ball of a radius and a centre, `[3]`.
pub(crate) fn rendered(size: [u64; 2]) -> Result<Traced, Diagnostic> {
    let [rows, columns] = size;
    let one = pixel()?;
    let batch = Batching::new(Dim::Const(rows * columns), [None, None, Some(0)]);
    let pixels = vmap(&Module::from(one.clone()), &one, &batch)?;
    trace("rendered", |t| {
        let radius = t.input("radius", scalar());
        let centre = t.input("centre", f64s([3]));
        // From the left to the right, and from the top to the bottom.
        let grid = f64s([rows, columns, 1]);
        let right = t.iota(grid.clone(), 1) * (2.0 / columns as f64) - 0.9;
        let up = t.iota(grid, 0) * (-1.6 / rows as f64) + 0.7;
        let along = Attrs::none().with_int("axis", 2);
        let at = t.apply(Op::Concatenate, &[&right, &up], along, None);
        t.call(&pixels, &[&radius, &centre, &at.reshape([rows * columns, 2])])
    })
}

/// The mean square distance between [`rendered`] and the image `wanted`, `[rows * columns]`, its last parameter.
pub(crate) fn image(size: [u64; 2]) -> Result<Traced, Diagnostic> {
    let rendered = rendered(size)?;
    trace("image", |t| {
        let radius = t.input("radius", scalar());
        let centre = t.input("centre", f64s([3]));
        let wanted = t.input("wanted", f64s([size[0] * size[1]]));
        let found = t.call(&rendered, &[&radius, &centre]).remove(0);
        (found - wanted).square().mean(&[0])
    })
}
