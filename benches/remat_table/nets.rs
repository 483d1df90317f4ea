//! The networks of Checkmate (Jain et al., MLSys 2020) as cost graphs: VGG16, VGG19, MobileNet, ResNet50 and U-Net.
//!
//! A layer, with its normalization and activation, is an operation whose time is its multiply-adds and whose value has
//! 4 bytes an element. The gradient of a layer's value takes twice the multiply-adds of the layer, has the bytes of the
//! value, and reads it and the values and gradients of the layers that read it.

use adfuse::fusion::remat::schedule::{CostGraph, GraphError, OpId, Operation};

/// A layer's value: its side, its channels and the layer.
#[derive(Clone, Copy)]
struct LayerValue {
    at: usize,
    height: u64,
    width: u64,
    channels: u64,
}

/// A layer as it is put together.
struct LayerWork {
    elements: u64,
    multiply_adds: u64,
    reads: Vec<usize>,
}

struct NetBuilder {
    layers: Vec<LayerWork>,
    parameters: u64,
}

impl NetBuilder {
    /// A net and its images.
    fn new(height: u64, width: u64) -> (NetBuilder, LayerValue) {
        let images =
            LayerWork { elements: height * width * 3, multiply_adds: 0, reads: Vec::new() };
        (
            NetBuilder { layers: vec![images], parameters: 0 },
            LayerValue { at: 0, height, width, channels: 3 },
        )
    }

    fn push(&mut self, like: LayerValue, multiply_adds: u64, reads: Vec<usize>) -> LayerValue {
        let elements = like.height * like.width * like.channels;
        self.layers.push(LayerWork { elements, multiply_adds, reads });
        LayerValue { at: self.layers.len() - 1, ..like }
    }

    /// A convolution with a square window; `groups` is the number of channels where each has its own window.
    fn conv(
        &mut self,
        x: LayerValue,
        channels: u64,
        side: u64,
        stride: u64,
        groups: u64,
    ) -> LayerValue {
        let (height, width) = (x.height / stride, x.width / stride);
        let weights = side * side * x.channels / groups * channels;
        self.parameters += weights + channels;
        self.push(LayerValue { height, width, channels, ..x }, height * width * weights, vec![x.at])
    }

    fn pool(&mut self, x: LayerValue, by: u64) -> LayerValue {
        let (height, width) = (x.height / by, x.width / by);
        self.push(LayerValue { height, width, ..x }, x.height * x.width * x.channels, vec![x.at])
    }

    fn dense(&mut self, x: LayerValue, channels: u64) -> LayerValue {
        let weights = x.height * x.width * x.channels * channels;
        self.parameters += weights + channels;
        self.push(LayerValue { height: 1, width: 1, channels, ..x }, weights, vec![x.at])
    }

    fn add(&mut self, x: LayerValue, y: LayerValue) -> LayerValue {
        self.push(x, x.height * x.width * x.channels, vec![x.at, y.at])
    }

    /// A transposed convolution to twice the side, and its channels beside those of another value.
    fn up(&mut self, x: LayerValue, beside: LayerValue) -> LayerValue {
        let up = LayerValue {
            height: beside.height,
            width: beside.width,
            channels: x.channels / 2,
            ..x
        };
        let weights = 4 * x.channels * up.channels;
        self.parameters += weights + up.channels;
        let up = self.push(up, x.height * x.width * weights, vec![x.at]);
        let both = LayerValue { channels: up.channels + beside.channels, ..up };
        self.push(both, both.height * both.width * both.channels, vec![up.at, beside.at])
    }

    /// The graph for a batch of images.
    fn graph(&self, batch: u64) -> Result<CostGraph, GraphError> {
        let mut g = CostGraph::new();
        g.push(Operation::source("parameters and their gradients", 8 * self.parameters))?;
        let bytes = |w: &LayerWork| 4 * w.elements * batch;
        let mut values: Vec<OpId> = Vec::new();
        for (k, work) in self.layers.iter().enumerate() {
            let reads: Vec<OpId> = work.reads.iter().map(|&r| values[r]).collect();
            let op = match k {
                0 => Operation::source("images", bytes(work)),
                _ => Operation::new(format!("layer{k}"), work.multiply_adds * batch, bytes(work)),
            };
            values.push(g.push(op.reads(&reads))?);
        }
        let last = self.layers.len() - 1;
        let loss = Operation::new("loss", 0, 4 * batch).reads(&[values[last]]).phase(1);
        let loss = g.push(loss)?;
        let mut gradients: Vec<Option<OpId>> = vec![None; self.layers.len()];
        for (k, work) in self.layers.iter().enumerate().skip(1).rev() {
            let mut reads = vec![values[k]];
            reads.extend((k == last).then_some(loss));
            for (u, _) in self.layers.iter().enumerate().filter(|(_, w)| w.reads.contains(&k)) {
                reads.push(values[u]);
                reads.extend(gradients[u]);
            }
            let op =
                Operation::new(format!("gradient{k}"), 2 * work.multiply_adds * batch, bytes(work));
            gradients[k] = Some(g.push(op.reads(&reads).phase(1))?);
        }
        Ok(g)
    }
}

fn vgg(convolutions: [u64; 5]) -> NetBuilder {
    let (mut net, mut x) = NetBuilder::new(224, 224);
    for (count, channels) in convolutions.into_iter().zip([64, 128, 256, 512, 512]) {
        for _ in 0..count {
            x = net.conv(x, channels, 3, 1, 1);
        }
        x = net.pool(x, 2);
    }
    for channels in [4096, 4096, 1000] {
        x = net.dense(x, channels);
    }
    net
}

fn mobile_net() -> NetBuilder {
    let (mut net, images) = NetBuilder::new(224, 224);
    let mut x = net.conv(images, 32, 3, 2, 1);
    let blocks =
        [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1)];
    for (channels, stride) in blocks.into_iter().chain([(512, 1), (512, 1), (1024, 2), (1024, 1)]) {
        x = net.conv(x, x.channels, 3, stride, x.channels);
        x = net.conv(x, channels, 1, 1, 1);
    }
    let x = net.pool(x, 7);
    net.dense(x, 1000);
    net
}

fn res_net_50() -> NetBuilder {
    let (mut net, images) = NetBuilder::new(224, 224);
    let x = net.conv(images, 64, 7, 2, 1);
    let mut x = net.pool(x, 2);
    for (blocks, inner, first) in [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)] {
        for block in 0..blocks {
            let stride = if block == 0 { first } else { 1 };
            let mut y = net.conv(x, inner, 1, 1, 1);
            y = net.conv(y, inner, 3, stride, 1);
            y = net.conv(y, 4 * inner, 1, 1, 1);
            let short = if block == 0 { net.conv(x, 4 * inner, 1, stride, 1) } else { x };
            x = net.add(y, short);
        }
    }
    let x = net.pool(x, 7);
    net.dense(x, 1000);
    net
}

fn u_net() -> NetBuilder {
    let (mut net, mut x) = NetBuilder::new(416, 608);
    let mut skips = Vec::new();
    for channels in [64, 128, 256, 512] {
        x = net.conv(x, channels, 3, 1, 1);
        x = net.conv(x, channels, 3, 1, 1);
        skips.push(x);
        x = net.pool(x, 2);
    }
    x = net.conv(x, 1024, 3, 1, 1);
    x = net.conv(x, 1024, 3, 1, 1);
    for skip in skips.into_iter().rev() {
        x = net.up(x, skip);
        x = net.conv(x, skip.channels, 3, 1, 1);
        x = net.conv(x, skip.channels, 3, 1, 1);
    }
    net.conv(x, 2, 1, 1, 1);
    net
}

/// The networks, with batches for which values outweigh parameters.
///
/// # Errors
/// If sizes add up to more than a graph counts.
pub(crate) fn all() -> Result<Vec<(&'static str, CostGraph)>, GraphError> {
    Ok(vec![
        ("VGG16, batch 256", vgg([2, 2, 3, 3, 3]).graph(256)?),
        ("VGG19, batch 256", vgg([2, 2, 4, 4, 4]).graph(256)?),
        ("MobileNet, batch 512", mobile_net().graph(512)?),
        ("ResNet50, batch 256", res_net_50().graph(256)?),
        ("U-Net, batch 32", u_net().graph(32)?),
    ])
}
