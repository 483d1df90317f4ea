//! Mistakes in what functions are run on.

use super::{Mistake, Outcome, named};
use adfuse::engine::Compiled;
use adfuse::prelude::*;

pub(crate) const MISTAKES: &[Mistake] = named! {
    missing_argument
    unknown_name
    missing_name
    name_given_twice
    array_of_another_type_by_name
    array_read_as_another_type
    arguments_in_another_order
    argument_of_another_element_type
    argument_of_another_extent
    array_of_another_number_of_elements
    argument_of_the_reference_engine
    batches_of_different_extents
    extent_of_an_unknown_symbol
    extent_that_is_not_known
    empty_batch
};

fn layer() -> Result<Compiled, Diagnostic> {
    let f = trace("layer", |t| {
        let (x, w) = (t.input("x", f32s([8, 4])), t.input("w", f32s([4, 2])));
        x.dot(&w).tanh()
    })?;
    Cpu::default().compile(&Module::single(f.clone()), &f)
}

/// The distances of rows to others, and the farthest, over a batch of any extent.
fn farthest() -> Result<adfuse::trace::Traced, Diagnostic> {
    trace("farthest", |t| {
        let batch = t.symbol("batch");
        let (x, y) = (t.input("x", f32s((batch, 3))), t.input("y", f32s((batch, 3))));
        let far = (x - y).square().sum(&[1]);
        t.apply(Op::Argmax, &[&far], Attrs::none().with_int("axis", 0), None)
    })
}

fn ones(dims: &[u64]) -> Result<Array, Diagnostic> {
    Array::from_f32s(dims, &vec![1.0; dims.iter().product::<u64>() as usize])
}

fn missing_argument() -> Outcome {
    layer()?.run(&[ones(&[8, 4])?])?;
    Ok(())
}

fn unknown_name() -> Outcome {
    let (x, w) = (ones(&[8, 4])?, ones(&[4, 2])?);
    layer()?.run_named([("input", &x), ("w", &w)])?;
    Ok(())
}

fn missing_name() -> Outcome {
    layer()?.run_named([("x", &ones(&[8, 4])?)])?;
    Ok(())
}

fn name_given_twice() -> Outcome {
    let x = ones(&[8, 4])?;
    layer()?.run_named([("x", &x), ("x", &x)])?;
    Ok(())
}

fn array_of_another_type_by_name() -> Outcome {
    let (x, w) = (ones(&[8, 4])?, ones(&[2, 4])?);
    layer()?.run_named([("x", &x), ("w", &w)])?;
    Ok(())
}

fn array_read_as_another_type() -> Outcome {
    ones(&[8, 4])?.as_slice::<f64>()?;
    Ok(())
}

fn arguments_in_another_order() -> Outcome {
    layer()?.run(&[ones(&[4, 2])?, ones(&[8, 4])?])?;
    Ok(())
}

fn argument_of_another_element_type() -> Outcome {
    let x = Array::from_f64s(DType::F64, &[8, 4], &[1.0; 32])?;
    layer()?.run(&[x, ones(&[4, 2])?])?;
    Ok(())
}

fn argument_of_another_extent() -> Outcome {
    layer()?.run(&[ones(&[7, 4])?, ones(&[4, 2])?])?;
    Ok(())
}

fn array_of_another_number_of_elements() -> Outcome {
    Array::from_f32s(&[8, 4], &[1.0; 31])?;
    Ok(())
}

fn argument_of_the_reference_engine() -> Outcome {
    let f = trace("f", |t| t.input("x", f32s([8, 4])).tanh())?;
    run(&Module::single(f.clone()), &f, &[ones(&[8, 4, 1])?], &mut Silent)?;
    Ok(())
}

fn batches_of_different_extents() -> Outcome {
    let f = farthest()?;
    let made = Cpu::default().compile_symbolic(&Module::single(f.clone()), &f)?;
    made.run(&[ones(&[16, 3])?, ones(&[15, 3])?])?;
    Ok(())
}

fn extent_of_an_unknown_symbol() -> Outcome {
    let f = farthest()?;
    let made = Cpu::default().compile_symbolic(&Module::single(f.clone()), &f)?;
    made.specialized(&[("batches", 16)])?;
    Ok(())
}

fn extent_that_is_not_known() -> Outcome {
    let f = farthest()?;
    Cpu::default().compile(&Module::single(f.clone()), &f)?;
    Ok(())
}

fn empty_batch() -> Outcome {
    let f = farthest()?;
    let made = Cpu::default().compile_symbolic(&Module::single(f.clone()), &f)?;
    made.run(&[ones(&[0, 3])?, ones(&[0, 3])?])?;
    Ok(())
}
