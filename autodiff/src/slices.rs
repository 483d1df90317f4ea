//! Cotangents of slices: what flows back from disjoint slices of a value is concatenated.
//!
//! The transposed of a slice is a pad with zeros. As many pads as there are slices, added up, would move the whole
//! value once a slice; pieces that do not overlap are put side by side instead, so that the work is linear in
//! them. Pieces that overlap form layers, each of which is a concatenation, and the layers are added.

use crate::forward::zeros;
use adfuse_ir::attrs::Attrs;
use adfuse_ir::{Builder, Dim, Literal, Op, TensorType, Value, ValueDef};
use std::collections::{BTreeMap, BTreeSet};

/// A piece of a larger value that is zero everywhere else.
struct SliceBlock {
    value: Value,
    /// Elements of the larger value before and after the piece, along each axis.
    low: Vec<i64>,
    high: Vec<i64>,
}

/// Whether a cotangent is a piece that is worth holding back: zeros around a value.
pub(crate) fn is_padded(b: &Builder, ct: Value) -> bool {
    block(b, ct).is_some()
}

fn block(b: &Builder, ct: Value) -> Option<SliceBlock> {
    let f = b.func();
    let ValueDef::Inst(i, _) = f.def(ct) else { return None };
    let [value, fill] = *f.args(i) else { return None };
    let attrs = f.attrs(i);
    let plain = f.op(i) == Op::Pad
        && f.literal(fill).is_some_and(Literal::is_zero)
        && attrs.ints("interior").iter().all(|&n| n == 0);
    let (low, high) = (attrs.ints("low"), attrs.ints("high"));
    (plain && low.iter().chain(high).all(|&n| n >= 0)).then(|| SliceBlock {
        value,
        low: low.to_vec(),
        high: high.to_vec(),
    })
}

/// Contributions to a cotangent of type `ty` whose sum is that of these pads, in a defined order.
pub(crate) fn side_by_side(b: &mut Builder, ty: &TensorType, pads: &[Value]) -> Vec<Value> {
    if pads.len() < 2 {
        return pads.to_vec();
    }
    let mut blocks: Vec<SliceBlock> = pads.iter().filter_map(|&ct| block(b, ct)).collect();
    for (axis, extent) in ty.shape.iter().enumerate() {
        if let Dim::Const(extent) = *extent {
            blocks = joined(b, blocks, axis, extent as i64);
        }
    }
    blocks.into_iter().map(|block| padded(b, ty, block)).collect()
}

/// Joins blocks that differ in their place along one axis only.
fn joined(b: &mut Builder, blocks: Vec<SliceBlock>, axis: usize, extent: i64) -> Vec<SliceBlock> {
    // Groups keep the order in which their first blocks came.
    let mut places: BTreeMap<(Vec<i64>, Vec<i64>), usize> = BTreeMap::new();
    let mut groups: Vec<Vec<SliceBlock>> = Vec::new();
    for block in blocks {
        let (mut low, mut high) = (block.low.clone(), block.high.clone());
        (low[axis], high[axis]) = (0, 0);
        let next = groups.len();
        let place = *places.entry((low, high)).or_insert(next);
        if place == next {
            groups.push(Vec::new());
        }
        groups[place].push(block);
    }
    groups.into_iter().flat_map(|group| layers(b, group, axis, extent)).collect()
}

/// The blocks of a group as few layers in which none overlap, each joined into one block.
fn layers(
    b: &mut Builder,
    mut group: Vec<SliceBlock>,
    axis: usize,
    extent: i64,
) -> Vec<SliceBlock> {
    group.sort_by_key(|block| block.low[axis]);
    // The first layer that ends before a block begins takes it: as few layers as blocks overlap at most. Ends are
    // ordered, with the layer, so that the search stays logarithmic.
    let mut ends: BTreeSet<(i64, usize)> = BTreeSet::new();
    let mut layers: Vec<Vec<SliceBlock>> = Vec::new();
    for block in group {
        let (begin, end) = (block.low[axis], extent - block.high[axis]);
        let free = ends.range(..=(begin, usize::MAX)).next_back().copied();
        let layer = match free {
            Some(key) => {
                ends.remove(&key);
                key.1
            }
            None => {
                layers.push(Vec::new());
                layers.len() - 1
            }
        };
        ends.insert((end, layer));
        layers[layer].push(block);
    }
    layers.into_iter().map(|layer| concatenated(b, layer, axis, extent)).collect()
}

/// Blocks in ascending order along an axis as one, with zeros between them.
fn concatenated(b: &mut Builder, layer: Vec<SliceBlock>, axis: usize, extent: i64) -> SliceBlock {
    let (mut low, mut high) = match layer.first() {
        Some(first) => (first.low.clone(), first.high.clone()),
        None => unreachable!("a layer is begun by a block"),
    };
    if let [only] = layer.as_slice() {
        return SliceBlock { value: only.value, low, high };
    }
    let (mut operands, mut end) = (Vec::new(), low[axis]);
    for block in &layer {
        if block.low[axis] > end {
            let mut gap = b.ty(block.value).clone();
            gap.shape[axis] = Dim::Const((block.low[axis] - end) as u64);
            operands.push(zeros(b, &gap));
        }
        operands.push(block.value);
        end = extent - block.high[axis];
        high[axis] = block.high[axis];
    }
    low[axis] = layer[0].low[axis];
    let attrs = Attrs::none().with_int("axis", axis as i64);
    SliceBlock { value: b.op_with(Op::Concatenate, &operands, attrs), low, high }
}

/// A block with zeros around it.
fn padded(b: &mut Builder, ty: &TensorType, block: SliceBlock) -> Value {
    if block.low.iter().chain(&block.high).all(|&n| n == 0) {
        return block.value;
    }
    let zero = zeros(b, &TensorType::scalar(ty.dtype));
    let attrs = Attrs::none()
        .with_ints("interior", block.low.iter().map(|_| 0))
        .with_ints("low", block.low)
        .with_ints("high", block.high);
    b.op_with(Op::Pad, &[block.value, zero], attrs)
}
