//! Mistakes in closures that are traced.

use super::{Mistake, Outcome, named};
use adfuse::prelude::*;

pub(crate) const MISTAKES: &[Mistake] = named! {
    sum_of_different_shapes
    product_of_different_extents
    f32_times_f64
    axis_out_of_range
    tensor_of_another_trace
    tensor_of_an_ended_trace
    two_inputs_of_one_name
    name_with_a_blank
    reshape_to_another_number
    broadcast_to_another_extent
    fraction_for_an_integer
    number_that_does_not_fit
    condition_that_is_no_bool
    carry_that_changes_its_type
    branches_of_different_types
    call_with_wrong_types
    parts_of_different_shapes
    split_that_does_not_add_up
    symbol_with_a_blank
    different_symbols
};

fn sum_of_different_shapes() -> Outcome {
    trace("f", |t| {
        let x = t.input("x", f32s([128, 64]));
        let b = t.input("b", f32s([60]));
        (x + b).relu()
    })?;
    Ok(())
}

fn product_of_different_extents() -> Outcome {
    trace("f", |t| {
        let x = t.input("x", f32s([128, 64]));
        let w = t.input("w", f32s([60, 10]));
        x.dot(&w)
    })?;
    Ok(())
}

fn f32_times_f64() -> Outcome {
    trace("f", |t| {
        let x = t.input("x", f32s([4]));
        let scale = t.input("scale", f64s([4]));
        x * scale
    })?;
    Ok(())
}

fn axis_out_of_range() -> Outcome {
    trace("f", |t| t.input("x", f32s([4, 3])).sum(&[2]))?;
    Ok(())
}

fn tensor_of_another_trace() -> Outcome {
    trace("outer", |t| {
        let x = t.input("x", f32s([4]));
        let inner = trace("inner", |t| t.input("y", f32s([4])) * &x);
        assert!(inner.is_err(), "both are told");
        x
    })?;
    Ok(())
}

fn tensor_of_an_ended_trace() -> Outcome {
    let mut kept = None;
    trace("first", |t| {
        let x = t.input("x", f32s([4]));
        kept = Some(x.clone());
        x
    })?;
    trace("second", |t| t.input("y", f32s([4])) * kept.unwrap())?;
    Ok(())
}

fn two_inputs_of_one_name() -> Outcome {
    trace("f", |t| {
        let w = t.input("w", f32s([4]));
        w + t.input("w", f32s([4]))
    })?;
    Ok(())
}

fn name_with_a_blank() -> Outcome {
    trace("f", |t| t.input("first weight", f32s([4])))?;
    Ok(())
}

fn reshape_to_another_number() -> Outcome {
    trace("f", |t| t.input("x", f32s([4, 3])).reshape([2, 5]))?;
    Ok(())
}

fn broadcast_to_another_extent() -> Outcome {
    trace("f", |t| {
        let x = t.input("x", f32s([8, 3]));
        let b = t.input("b", f32s([8]));
        x + b.broadcast(&[1], &[8.into(), 3.into()])
    })?;
    Ok(())
}

fn fraction_for_an_integer() -> Outcome {
    trace("f", |t| t.input("n", i32s([4])) * 0.5)?;
    Ok(())
}

fn number_that_does_not_fit() -> Outcome {
    trace("f", |t| t.input("n", i32s([4])) + 3e9)?;
    Ok(())
}

fn condition_that_is_no_bool() -> Outcome {
    trace("f", |t| {
        let x = t.input("x", f32s([]));
        t.cond(&x, || x.sin(), || x.cos())
    })?;
    Ok(())
}

fn carry_that_changes_its_type() -> Outcome {
    trace("f", |t| {
        let h = t.input("h", f32s([3]));
        let xs = t.input("xs", f32s([10, 3]));
        t.scan(h, xs, |h, x| ((h * x).sum(&[0]), ())).0
    })?;
    Ok(())
}

fn branches_of_different_types() -> Outcome {
    trace("f", |t| {
        let x = t.input("x", f32s([3]));
        t.cond(&x.sum(&[0]).gt(0.0), || x.clone(), || x.sum(&[0]))
    })?;
    Ok(())
}

fn call_with_wrong_types() -> Outcome {
    let layer = trace("layer", |t| {
        let (x, w) = (t.input("x", f32s([8, 4])), t.input("w", f32s([4, 2])));
        x.dot(&w)
    })?;
    trace("f", |t| {
        let (x, w) = (t.input("x", f32s([8, 4])), t.input("w", f32s([4, 3])));
        t.call(&layer, &[&x, &w]).remove(0)
    })?;
    Ok(())
}

fn parts_of_different_shapes() -> Outcome {
    trace("f", |t| {
        let (x, y) = (t.input("x", f32s([8, 4])), t.input("y", f32s([8, 3])));
        t.apply(Op::Concatenate, &[&x, &y], Attrs::none().with_int("axis", 0), None)
    })?;
    Ok(())
}

fn split_that_does_not_add_up() -> Outcome {
    trace("f", |t| t.input("x", f32s([10])).split(&[4, 4], 0))?;
    Ok(())
}

fn symbol_with_a_blank() -> Outcome {
    trace("f", |t| {
        let batch = t.symbol("batch size");
        t.input("x", f32s((batch, 3)))
    })?;
    Ok(())
}

fn different_symbols() -> Outcome {
    trace("f", |t| {
        let x = t.input("x", f32s((t.symbol("B"), 3)));
        let y = t.input("y", f32s((t.symbol("N"), 3)));
        x + y
    })?;
    Ok(())
}
