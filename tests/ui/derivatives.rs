//! Mistakes in what is differentiated and batched.

use super::{Mistake, Outcome, named};
use adfuse::autodiff::{Batching, differentiable, grad, value_and_grad, vmap};
use adfuse::prelude::*;
use adfuse::trace::Traced;

pub(crate) const MISTAKES: &[Mistake] = named! {
    gradient_of_a_vector
    gradient_by_an_unknown_name
    gradient_by_integers
    position_that_is_no_parameter
    gradient_of_an_integer
    batch_of_another_axis
    batch_without_a_batched_parameter
    axes_of_another_number
};

/// A loss of weights and labels.
fn loss() -> Result<Traced, Diagnostic> {
    trace("loss", |t| {
        let w = t.input("weights", f32s([4]));
        let labels = t.input("labels", i32s([4]));
        (w * labels.convert(DType::F32)).sum(&[0])
    })
}

fn gradient_of_a_vector() -> Outcome {
    let f = trace("f", |t| t.input("x", f32s([4])).sin())?;
    value_and_grad(&Module::single(f.clone()), &f, &[0])?;
    Ok(())
}

fn gradient_by_an_unknown_name() -> Outcome {
    differentiable(&*loss()?, Some(&["weight".into()]))?;
    Ok(())
}

fn gradient_by_integers() -> Outcome {
    differentiable(&*loss()?, Some(&["labels".into()]))?;
    Ok(())
}

fn position_that_is_no_parameter() -> Outcome {
    let f = loss()?;
    grad(&Module::single(f.clone()), &f, &[2])?;
    Ok(())
}

fn gradient_of_an_integer() -> Outcome {
    let f = trace("f", |t| t.input("x", f32s([4])).convert(DType::I32).sum(&[0]))?;
    grad(&Module::single(f.clone()), &f, &[0])?;
    Ok(())
}

fn batch_of_another_axis() -> Outcome {
    let f = loss()?;
    vmap(&Module::single(f.clone()), &f, &Batching::new(8, [Some(2), None]))?;
    Ok(())
}

fn batch_without_a_batched_parameter() -> Outcome {
    let f = loss()?;
    let batching = Batching::new(8, [None, Some(0)]).results([None]);
    vmap(&Module::single(f.clone()), &f, &batching)?;
    Ok(())
}

fn axes_of_another_number() -> Outcome {
    let f = loss()?;
    vmap(&Module::single(f.clone()), &f, &Batching::new(8, [Some(0)]))?;
    Ok(())
}
