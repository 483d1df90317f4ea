//! Mistakes in what layers and optimizers are applied to.

use super::{Mistake, Outcome, named};
use adfuse::nn::{
    self, BatchNorm, Conv2d, Dropout, Embedding, GroupNorm, Gru, LayerNorm, Linear, Lstm,
    MultiHeadAttention, Param, RmsNorm,
};
use adfuse::prelude::*;

pub(crate) const MISTAKES: &[Mistake] = named! {
    linear_of_another_extent
    embedding_of_floats
    convolution_of_other_channels
    convolution_without_a_batch
    layer_norm_of_another_extent
    rms_norm_of_another_extent
    group_norm_of_other_channels
    group_norm_of_groups_that_do_not_divide
    batch_norm_of_other_channels
    attention_of_another_extent
    attention_without_a_batch
    attention_of_heads_that_do_not_divide
    attention_to_another_batch
    attention_with_a_mask_of_floats
    rope_of_an_odd_extent
    lstm_of_another_extent
    gru_without_a_batch
    dropout_of_integers
    layer_of_another_element_type
    weights_of_another_model
};

/// Applies a layer to a tensor `f32[dims]`.
fn applied<M: Params<Param>>(
    layer: &M,
    ty: TensorType,
    apply: impl Fn(&M::With<Tensor>, &Tensor) -> Tensor,
) -> Outcome {
    trace("f", |t| {
        let layer = adfuse::tree::map(layer, |path, p| t.input(path.as_str(), p.ty.clone()));
        apply(&layer, &t.input("x", ty))
    })?;
    Ok(())
}

fn linear_of_another_extent() -> Outcome {
    applied(&Linear::new(64, 10), f32s([8, 32]), |l: &Linear, x| l.apply(x))
}

fn embedding_of_floats() -> Outcome {
    applied(&Embedding::new(100, 16), f32s([8, 32]), |l: &Embedding, x| l.apply(x))
}

fn convolution_of_other_channels() -> Outcome {
    applied(&Conv2d::same(3, 16, 3), f32s([8, 1, 28, 28]), |l: &Conv2d, x| l.apply(x))
}

fn convolution_without_a_batch() -> Outcome {
    applied(&Conv2d::same(3, 16, 3), f32s([3, 28, 28]), |l: &Conv2d, x| l.apply(x))
}

fn layer_norm_of_another_extent() -> Outcome {
    applied(&LayerNorm::new(64), f32s([8, 32]), |l: &LayerNorm, x| l.apply(x))
}

fn rms_norm_of_another_extent() -> Outcome {
    applied(&RmsNorm::new(64), f32s([8, 32]), |l: &RmsNorm, x| l.apply(x))
}

fn group_norm_of_other_channels() -> Outcome {
    applied(&GroupNorm::new(2, 16), f32s([8, 12, 5]), |l: &GroupNorm, x| l.apply(x))
}

fn group_norm_of_groups_that_do_not_divide() -> Outcome {
    applied(&GroupNorm::new(5, 16), f32s([8, 16, 5]), |l: &GroupNorm, x| l.apply(x))
}

fn batch_norm_of_other_channels() -> Outcome {
    applied(&BatchNorm::new(16), f32s([8, 12, 5]), |l: &BatchNorm, x| l.apply(x))
}

fn attention_of_another_extent() -> Outcome {
    let layer = MultiHeadAttention::new(64, 4);
    applied(&layer, f32s([8, 16, 32]), |l: &MultiHeadAttention, x| l.apply(x))
}

fn attention_without_a_batch() -> Outcome {
    let layer = MultiHeadAttention::new(64, 4);
    applied(&layer, f32s([16, 64]), |l: &MultiHeadAttention, x| l.apply(x))
}

fn attention_of_heads_that_do_not_divide() -> Outcome {
    let layer = MultiHeadAttention::new(64, 5);
    applied(&layer, f32s([8, 16, 64]), |l: &MultiHeadAttention, x| l.apply(x))
}

fn attention_to_another_batch() -> Outcome {
    let layer = MultiHeadAttention::new(64, 4);
    applied(&layer, f32s([8, 16, 64]), |l: &MultiHeadAttention, x| {
        l.attend(x, &x.slice((0..4, .., ..)), None)
    })
}

fn attention_with_a_mask_of_floats() -> Outcome {
    let layer = MultiHeadAttention::new(64, 4);
    applied(&layer, f32s([8, 16, 64]), |l: &MultiHeadAttention, x| {
        l.attend(x, x, Some(&x.tracer().ones(f32s([16, 16]))))
    })
}

fn rope_of_an_odd_extent() -> Outcome {
    let layer = MultiHeadAttention::new(12, 4).rope();
    applied(&layer, f32s([8, 16, 12]), |l: &MultiHeadAttention, x| l.apply(x))
}

fn lstm_of_another_extent() -> Outcome {
    applied(&Lstm::new(64, 10), f32s([8, 16, 32]), |l: &Lstm, x| l.apply(x).0)
}

fn gru_without_a_batch() -> Outcome {
    applied(&Gru::new(64, 10), f32s([16, 64]), |l: &Gru, x| l.apply(x).0)
}

fn dropout_of_integers() -> Outcome {
    let step = adfuse::train_step(
        adfuse::optim::Sgd::new(0.1),
        Linear::new(2, 2),
        |l: &Linear, ids: Tensor| {
            let x = Dropout::new(0.5).apply(ids).convert(DType::F32);
            l.apply(x).sum(..)
        },
    );
    step.init(Device::cpu(), 0)?.step(&Array::from_vec(vec![1i32, 2], [1, 2])?)?;
    Ok(())
}

fn layer_of_another_element_type() -> Outcome {
    applied(&Linear::new(64, 10), f64s([8, 64]), |l: &Linear, x| l.apply(x))
}

fn weights_of_another_model() -> Outcome {
    let values = nn::init(&(Linear::new(4, 3), Linear::new(3, 2)), 0)?;
    let arrays = adfuse::tree::named_leaves(&values);
    nn::named(&vec![Linear::new(4, 3), Linear::new(3, 2), Linear::new(2, 2)], &arrays)?;
    Ok(())
}
