//! Windows with their gradients: the rules before planning keep the bits of the reference engine.

use super::{agrees, inputs};
use adfuse::autodiff::forward_and_backward;
use adfuse::ir::Module;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

/// Pools of padded arrays: of the gradients of windows what lies in the padding is cut off.
#[test]
fn padded_pools() {
    for (window, stride, low, high) in
        [(3, 2, [1, 1], [1, 1]), (3, 1, [2, 0], [0, 1]), (5, 3, [1, 2], [2, 0])]
    {
        for extents in [[8, 24], [9, 33]] {
            let count = |a: usize| (extents[a] + low[a] + high[a] - window) / stride + 1;
            let image = format!("f32[3,{},{}]", extents[0], extents[1]);
            let result = format!("f32[3,{},{}]", count(0), count(1));
            let text = format!(
                "func @f(%x: {image}, %t: {result}) -> f32[] {{
                   %h = relu %x : {image}
                   %r = reduce_window_max %h {{window = [1, {window}, {window}], strides = [1, {stride}, {stride}], \
                     low = [0, {}, {}], high = [0, {}, {}]}} : {result}
                   %w = mul %r, %t : {result}
                   %s = reduce_sum %w {{axes = [0, 1, 2]}} : f32[]
                   return %s
                 }}",
                low[0], low[1], high[0], high[1]
            );
            let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
            let f = module.funcs.values().next().expect("a function");
            let g = forward_and_backward(&module, f, &[0, 1]).expect("differentiates");
            let args = inputs(&g, &[Domain::Normal]);
            if let Err(why) = agrees(&Module::single(g.clone()), &g, &args) {
                panic!("{text}: {}", &why[..why.len().min(3000)]);
            }
        }
    }
}
