//! Convolutional nets: ResNet (He et al. 2015) and U-Net (Ronneberger et al. 2015), with batch norm in training.

use super::Weights;
use adfuse::prelude::*;

/// The size of a ResNet.
#[derive(Clone, Copy, Debug)]
pub struct ResNet {
    /// Blocks of each of the four stages.
    pub blocks: [u64; 4],
    /// Whether a block is a bottleneck of three convolutions, not of two.
    pub bottleneck: bool,
    /// Whether it begins with a 7 x 7 convolution and a pool, each of stride 2, as for photographs, and not with one of 3 x 3.
    pub photographs: bool,
    /// Images at a time.
    pub batch: u64,
    /// Rows and columns of an image.
    pub size: u64,
    /// Channels of the first stage.
    pub width: u64,
    /// Classes.
    pub classes: u64,
    /// The type of images and weights; norms and the loss compute in `f32`.
    pub dtype: DType,
}

impl ResNet {
    /// ResNet-18, -34 or -50 for small images of ten classes.
    pub fn small_images(depth: u64, [batch, size, width]: [u64; 3]) -> ResNet {
        let blocks = if depth == 18 { [2, 2, 2, 2] } else { [3, 4, 6, 3] };
        let bottleneck = depth >= 50;
        let (photographs, classes, dtype) = (false, 10, DType::F32);
        ResNet { blocks, bottleneck, photographs, batch, size, width, classes, dtype }
    }

    /// The loss: cross entropy.
    ///
    /// # Errors
    /// As [`trace`].
    pub fn loss(&self) -> Result<Traced, Diagnostic> {
        trace("resnet", |t| {
            let w = Weights::new(t, self.dtype);
            let images = w.data("images", [self.batch, 3, self.size, self.size]);
            let labels = w.labels("labels", [self.batch]);
            let mut x = self.stem(&w, &images);
            let mut channels = self.width;
            for (stage, &count) in self.blocks.iter().enumerate() {
                let inner = self.width << stage;
                for block in 0..count {
                    let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                    (x, channels) = self.block(&w, &x, [channels, inner, stride]);
                }
            }
            let pooled = x.mean(&[2, 3]);
            single(&w.linear(&pooled, [channels, self.classes])).cross_entropy(&labels)
        })
    }

    fn stem(&self, w: &Weights<'_>, images: &Tensor) -> Tensor {
        match self.photographs {
            false => normalized(w, &conv(w, images, [3, self.width, 3, 1]), self.width).relu(),
            true => {
                let x = conv(w, images, [3, self.width, 7, 2]);
                normalized(w, &x, self.width).relu().max_pool2d(2)
            }
        }
    }

    /// A residual block, and the channels that it gives.
    fn block(
        &self,
        w: &Weights<'_>,
        x: &Tensor,
        [channels, inner, stride]: [u64; 3],
    ) -> (Tensor, u64) {
        let outputs = if self.bottleneck { 4 * inner } else { inner };
        let y = match self.bottleneck {
            true => {
                let y = normalized(w, &conv(w, x, [channels, inner, 1, 1]), inner).relu();
                let y = normalized(w, &conv(w, &y, [inner, inner, 3, stride]), inner).relu();
                normalized(w, &conv(w, &y, [inner, outputs, 1, 1]), outputs)
            }
            false => {
                let y = normalized(w, &conv(w, x, [channels, inner, 3, stride]), inner).relu();
                normalized(w, &conv(w, &y, [inner, inner, 3, 1]), inner)
            }
        };
        let shortcut = match stride == 1 && channels == outputs {
            true => x.clone(),
            false => normalized(w, &conv(w, x, [channels, outputs, 1, stride]), outputs),
        };
        ((y + shortcut).relu(), outputs)
    }
}

/// The loss of a U-Net of some levels, for `batch` square images of `size` and `width` channels at first: the sum of squared errors.
///
/// # Errors
/// As [`trace`].
pub fn unet([levels, batch, size, width]: [u64; 4]) -> Result<Traced, Diagnostic> {
    trace("unet", |t| {
        let w = Weights::new(t, DType::F32);
        let mut x = w.data("images", [batch, 3, size, size]);
        let target = w.data("target", [batch, 1, size, size]);
        let (mut before, mut channels, mut skips) = (3, width, Vec::new());
        for _ in 0..levels {
            x = twice(&w, &x, [before, channels]);
            skips.push(x.clone());
            x = x.max_pool2d(2);
            (before, channels) = (channels, 2 * channels);
        }
        x = twice(&w, &x, [before, channels]);
        for (level, skip) in skips.iter().enumerate().rev() {
            let half = channels / 2;
            let rows = size >> (level + 1);
            let larger = [batch, channels, rows, 2, rows, 2];
            let larger = larger.map(adfuse::ir::Dim::Const);
            let up = x.broadcast(&[0, 1, 2, 4], &larger);
            let up = up.reshape([batch, channels, 2 * rows, 2 * rows]);
            let up = conv(&w, &up, [channels, half, 1, 1]);
            x = twice(&w, &Tensor::concat(&[skip, &up], 1), [channels, half]);
            channels = half;
        }
        (conv(&w, &x, [channels, 1, 1, 1]) - target).square().sum(..)
    })
}

/// Two convolutions, each with batch norm and rectifier.
fn twice(w: &Weights<'_>, x: &Tensor, [inputs, outputs]: [u64; 2]) -> Tensor {
    let x = normalized(w, &conv(w, x, [inputs, outputs, 3, 1]), outputs).relu();
    normalized(w, &conv(w, &x, [outputs, outputs, 3, 1]), outputs).relu()
}

/// A convolution with a square window and a margin of half of it.
pub(crate) fn conv(
    w: &Weights<'_>,
    x: &Tensor,
    [inputs, outputs, window, stride]: [u64; 4],
) -> Tensor {
    let options = Conv::padded(window as i64 / 2).stride(stride);
    x.conv2d(&w.next([outputs, inputs, window, window]), &options)
}

/// Batch norm with the statistics of the batch, scaled and shifted, computed in `f32`.
pub(crate) fn normalized(w: &Weights<'_>, x: &Tensor, channels: u64) -> Tensor {
    let axes = [0, 2, 3];
    let given = single(x);
    let centred = &given - given.mean(keep(&axes));
    let deviation = (centred.square().mean(keep(&axes)) + 1e-5).rsqrt();
    let [scale, shift] = [0, 1].map(|_| single(&w.next([channels])).reshape([channels, 1, 1]));
    let made = centred * deviation * scale + shift;
    if x.dtype() == DType::F32 { made } else { made.convert(x.dtype()) }
}

/// A tensor in `f32`.
fn single(x: &Tensor) -> Tensor {
    if x.dtype() == DType::F32 { x.clone() } else { x.convert(DType::F32) }
}
