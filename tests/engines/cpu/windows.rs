//! Convolutions and pooling with their gradients: windows as operands, short guarded lines, and elements that are
//! repeated or skipped along a line.

use super::agrees;
use super::dots::made;
use crate::common::random::inputs;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::StepReport;
use adfuse::fusion::Fp;
use adfuse::ir::Module;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

/// A function of these instructions, which end in `%r`, and its gradient give the bits of the evaluator.
fn holds(params: &str, body: &str, result: &str) {
    let text = function(params, body, result);
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function");
    let wrt = differentiable(f, None).expect("has floats");
    let g = forward_and_backward(&module, f, &wrt).unwrap_or_else(|d| panic!("{d}\n{text}"));
    if let Err(why) = agrees(&Module::single(g.clone()), &g, &inputs(&g, &[Domain::Normal])) {
        panic!("{text}: {}", &why[..why.len().min(3000)]);
    }
}

/// The sum of `%r`, each element times one of `%t`.
fn function(params: &str, body: &str, result: &str) -> String {
    format!(
        "func @f({params}, %t: {result}) -> {}[] {{
           {body}
           %w = mul %r, %t : {result}
           %s = reduce_sum %w {{axes = [{}]}} : {0}[]
           return %s
         }}",
        &result[..3],
        (0..result.matches(',').count() + 1).map(|k| k.to_string()).collect::<Vec<_>>().join(", "),
    )
}

/// Extents of a convolution along an axis.
fn places(n: i64, k: i64, [stride, dilation, low, high, holes]: [i64; 5]) -> i64 {
    let wide = (n - 1) * holes + 1 + low + high;
    (wide - dilation * (k - 1) - 1) / stride + 1
}

#[test]
fn convolutions() {
    // Images, features in and out, lines and columns, kernel, groups; stride, dilation, padding before and behind, and
    // dilation of the image.
    let cases: [([i64; 8], [i64; 5]); 16] = [
        ([3, 1, 6, 12, 12, 5, 5, 1], [1, 1, 0, 0, 1]),
        ([2, 6, 16, 12, 12, 5, 5, 1], [1, 1, 0, 0, 1]),
        ([2, 3, 4, 9, 17, 3, 3, 1], [1, 1, 1, 1, 1]),
        ([1, 2, 70, 7, 8, 3, 3, 1], [1, 1, 1, 1, 1]),
        ([1, 70, 3, 6, 5, 3, 3, 1], [1, 1, 1, 1, 1]),
        ([2, 2, 5, 11, 13, 3, 2, 1], [2, 1, 1, 0, 1]),
        ([1, 4, 2, 10, 20, 3, 3, 1], [1, 2, 2, 2, 1]),
        ([2, 4, 6, 8, 8, 3, 3, 2], [1, 1, 1, 1, 1]),
        ([1, 6, 6, 7, 9, 3, 3, 6], [1, 1, 1, 1, 1]),
        ([1, 2, 3, 5, 6, 2, 2, 1], [1, 1, 1, 1, 2]),
        ([2, 1, 1, 1, 40, 1, 7, 1], [1, 1, 0, 0, 1]),
        ([1, 1, 33, 20, 20, 4, 4, 1], [4, 1, 0, 0, 1]),
        // Kernels of one element, whose columns are those of each image.
        ([3, 20, 30, 9, 11, 1, 1, 1], [1, 1, 0, 0, 1]),
        ([3, 20, 6, 19, 11, 1, 1, 1], [2, 1, 0, 0, 1]),
        // Groups of many sums, which are a kernel because the sums are neighbours.
        ([4, 3, 3, 31, 33, 3, 3, 3], [1, 1, 1, 1, 1]),
        ([6, 2, 2, 52, 53, 3, 3, 2], [2, 1, 1, 1, 1]),
    ];
    for dtype in ["f32", "f64"] {
        for (sizes, along) in cases {
            let [params, body, result] = convolution(dtype, sizes, along);
            holds(&params, &format!("%r = {body}"), &result);
        }
    }
}

/// A convolution of images, features, results, extents of images and kernels, and groups, with its stride, dilation, padding and the holes of
/// its images: its operands, the instruction, and its type.
fn convolution(dtype: &str, sizes: [i64; 8], along: [i64; 5]) -> [String; 3] {
    let [images, features, out, high, wide, kh, kw, groups] = sizes;
    let [stride, dilation, low, behind, holes] = along;
    let (oh, ow) = (places(high, kh, along), places(wide, kw, along));
    let own = features / groups;
    let result = format!("{dtype}[{images},{out},{oh},{ow}]");
    let params = format!(
        "%x: {dtype}[{images},{features},{high},{wide}], %k: {dtype}[{out},{own},{kh},{kw}]"
    );
    let body = format!(
        "conv_general_dilated %x, %k {{strides = [{stride}, {stride}], \
         low = [{low}, {low}], high = [{behind}, {behind}], lhs_dilation = [{holes}, {holes}], \
         rhs_dilation = [{dilation}, {dilation}], feature_group_count = {groups}}} : {result}"
    );
    [params, body, result]
}

/// Windows of two, three and four, beside each other and overlapping, after a relu, so that there are ties.
#[test]
fn pools() {
    for kind in ["max", "sum"] {
        for (window, stride) in [(2, 2), (4, 4), (3, 2), (3, 3), (2, 1), (5, 4)] {
            for (high, wide) in [(8, 24), (12, 12), (4, 70), (9, 33)] {
                let count = |n: i64| (n - window) / stride + 1;
                if window > high {
                    continue;
                }
                let image = format!("f32[3,2,{high},{wide}]");
                let result = format!("f32[3,2,{},{}]", count(high), count(wide));
                let body = format!(
                    "%b = broadcast_in_dim %c {{dims = [1]}} : {image}
                     %a = add %x, %b : {image}
                     %h = relu %a : {image}
                     %r = reduce_window_{kind} %h {{window = [1, 1, {window}, {window}], \
                          strides = [1, 1, {stride}, {stride}]}} : {result}"
                );
                holds(&format!("%x: {image}, %c: f32[2]"), &body, &result);
            }
        }
    }
}

/// Windows that are put back in place, and folded along the axis of their places too.
#[test]
fn windows_are_folded_with_their_places() {
    let body = "%x = broadcast_in_dim %b {dims = [1]} : f32[6,64,3]
         %k = skew %x {axes = [0], along = [2], strides = [1], dilation = [1]} : f32[4,64,3]
         %r = tanh %k : f32[4,64,3]";
    holds("%b: f32[64]", body, "f32[4,64,3]");
    let body = "%a = tanh %x : f32[4,3,64]
         %u = unskew %a, 0.0 {axes = [0], along = [1], strides = [1], dilation = [1], extents = [6]} : f32[6,3,64]
         %r = reduce_sum %u {axes = [0, 1]} : f32[64]";
    holds("%x: f32[4,3,64]", body, "f32[64]");
}

/// Depthwise convolutions and such of few features a group: the gradients of their kernels are multiplied side by side.
#[test]
fn matrices_side_by_side() {
    let cases: [([i64; 8], [i64; 5]); 7] = [
        // More than one chunk of the depth, and a group of lanes that is not full.
        ([2, 9, 9, 22, 31, 3, 3, 9], [1, 1, 1, 1, 1]),
        ([1, 20, 20, 21, 19, 5, 2, 20], [2, 1, 2, 1, 1]),
        // Two rows, and windows that are not dense.
        ([2, 8, 16, 9, 12, 3, 3, 8], [1, 2, 2, 2, 1]),
        ([1, 17, 17, 12, 14, 7, 7, 17], [1, 1, 3, 3, 1]),
        ([1, 33, 33, 6, 20, 3, 3, 33], [1, 1, 1, 1, 2]),
        ([1, 16, 8, 10, 40, 1, 5, 8], [1, 1, 0, 0, 1]),
        // More than a task's groups of lanes.
        ([1, 150, 150, 9, 8, 3, 3, 150], [1, 1, 1, 1, 1]),
    ];
    for dtype in ["f32", "f64"] {
        for (sizes, along) in cases {
            let [params, body, result] = convolution(dtype, sizes, along);
            let body = format!("%c = {body} %r = tanh %c : {result}");
            holds(&params, &body, &result);
            let text = function(&params, &body, &result);
            let module = parse(&text).expect("a program");
            let f = module.funcs.values().next().expect("a function");
            let f = forward_and_backward(&module, f, &[1]).expect("a gradient");
            let steps = made(&f, Fp::Strict, 1).steps().to_vec();
            let lanes = |s: &StepReport| s.generator.contains("lanes");
            assert!(steps.iter().any(lanes), "{text}: {steps:?}");
        }
    }
}

/// Reads at quotients of coordinates: elements that are repeated or dilated, from odd places too, along axes that divisors divide and
/// others.
#[test]
fn quotients() {
    for (high, wide) in [(6, 40), (5, 33), (1, 17), (3, 4)] {
        for [each, low] in [[2, 0], [2, 1], [3, 1], [4, 0], [4, 3], [8, 7]] {
            let (tall, long) = ((high - 1) * each + 1, (wide - 1) * each + 1);
            let few = format!("f32[3,{high},{wide}]");
            let more = format!("f32[3,{high},{each},{wide},{each}]");
            let all = [high * each, wide * each];
            let image = format!("f32[3,{tall},{long}]");
            let body = format!(
                "%a = pad %x, 0.5 {{low = [0, {low}, {low}], high = [0, -{low}, -{low}], \
                      interior = [0, {}, {}]}} : {image}
                 %b = broadcast_in_dim %x {{dims = [0, 1, 3]}} : {more}
                 %c = reshape %b : f32[3,{},{}]
                 %d = slice %c {{start = [0, {from}, {from}], limit = [3, {}, {}], stride = [1, 1, 1]}} : {image}
                 %e = sub %a, %d : {image}
                 %r = mul %e, %y : {image}",
                each - 1,
                each - 1,
                all[0],
                all[1],
                tall + low,
                long + low,
                from = low,
            );
            holds(&format!("%x: {few}, %y: {image}"), &body, &image);
        }
    }
}

/// An element for each two or four of another, and every second one.
#[test]
fn repeated_and_left_out() {
    for dtype in ["f32", "f64"] {
        for n in [1, 3, 8, 17, 40, 300] {
            for each in [2, 3, 4] {
                let (all, few) = (format!("{dtype}[5,{}]", n * each), format!("{dtype}[5,{n}]"));
                let body = format!(
                    "%a = broadcast_in_dim %x {{dims = [0, 1]}} : {dtype}[5,{n},{each}]
                     %b = reshape %a : {all}
                     %d = mul %b, %y : {all}
                     %e = exp %d : {all}
                     %f = slice %e {{start = [0, 0], limit = [5, {}], stride = [1, {each}]}} : {few}
                     %g = broadcast_in_dim %f {{dims = [0, 1]}} : {dtype}[5,{n},{each}]
                     %h = reshape %g : {all}
                     %r = add %h, %b : {all}",
                    n * each
                );
                holds(&format!("%x: {few}, %y: {all}"), &body, &all);
            }
        }
    }
}

/// Innermost axes shorter than a vector, whose lines go over several of them: every second element of an image, padded
/// images, columns before rows, lines backwards, values of a row, a column or an image for all of its elements.
#[test]
fn short_axes() {
    for dtype in ["f32", "f64"] {
        for [n, c, h, w] in [
            [3, 5, 4, 4],
            [2, 6, 8, 8],
            [3, 7, 2, 8],
            [2, 3, 7, 4],
            [40, 3, 2, 2],
            [2, 17, 3, 2],
            [5, 4, 1, 8],
            [2, 2, 6, 6],
        ] {
            let image = format!("{dtype}[{n},{c},{h},{w}]");
            let body = format!(
                "%a = slice %big {{start = [0, 0, 1, 0], limit = [{n}, {c}, {}, {}], \
                      stride = [1, 1, 2, 2]}} : {image}
                 %p = pad %x, 0.0 {{low = [0, 0, 1, -1], high = [0, 0, -1, 1], \
                      interior = [0, 0, 0, 0]}} : {image}
                 %q = pad %x, 1.25 {{low = [0, 0, 0, 1], high = [0, 0, 0, -1], \
                      interior = [0, 0, 0, 0]}} : {image}
                 %m = transpose %turned {{perm = [1, 0, 3, 2]}} : {image}
                 %d = rev %x {{axes = [3]}} : {image}
                 %row = broadcast_in_dim %rows {{dims = [2]}} : {image}
                 %col = broadcast_in_dim %cols {{dims = [3]}} : {image}
                 %map = broadcast_in_dim %maps {{dims = [0, 1]}} : {image}
                 %s1 = mul %a, %p : {image}
                 %s2 = mul %q, %m : {image}
                 %s3 = add %s1, %s2 : {image}
                 %s4 = mul %d, %row : {image}
                 %s5 = mul %col, %map : {image}
                 %s6 = add %s4, %s5 : {image}
                 %s7 = add %s3, %s6 : {image}
                 %r = exp %s7 : {image}",
                2 * h + 1,
                2 * w
            );
            let params = format!(
                "%x: {image}, %big: {dtype}[{n},{c},{},{}], %turned: {dtype}[{c},{n},{w},{h}], \
                 %rows: {dtype}[{h}], %cols: {dtype}[{w}], %maps: {dtype}[{n},{c}]",
                2 * h + 1,
                2 * w
            );
            holds(&params, &body, &image);
        }
    }
}

/// Windows that overlap, over padded images whose rows fill no vector, and elements that are spread again after every second one was
/// taken: not every one of these is there.
#[test]
fn overlapping_windows() {
    for dtype in ["f32", "f64"] {
        for (n, size) in [5, 15, 16, 17].into_iter().flat_map(|n| [(n, 3), (n, 5)]) {
            let out = (n + 2 - size) / 2 + 1;
            let result = format!("{dtype}[2,3,{out},{out}]");
            let body = format!(
                "%r = reduce_window_sum %x {{window = [1, 1, {size}, {size}], strides = [1, 1, 2, 2], \
                      low = [0, 0, 1, 1], high = [0, 0, 1, 1]}} : {result}"
            );
            holds(&format!("%x: {dtype}[2,3,{n},{n}]"), &body, &result);
        }
        let body = format!(
            "%a = slice %x {{start = [0], limit = [4], stride = [2]}} : {dtype}[2]
             %b = pad %a, 0.0 {{low = [0], high = [1], interior = [0]}} : {dtype}[3]
             %r = pad %b, 0.0 {{low = [0], high = [0], interior = [1]}} : {dtype}[5]"
        );
        holds(&format!("%x: {dtype}[4]"), &body, &format!("{dtype}[5]"));
    }
}

/// More shifted neighbours than lines are cut for, with a value behind the edges that is not 0.
#[test]
fn many_guards() {
    for dtype in ["f32", "f64"] {
        for n in [5, 12, 40, 64, 200] {
            let image = format!("{dtype}[3,{n}]");
            let mut body = String::from("%s0 = mul %x, 0.5 : T\n");
            for k in 1..=12i64 {
                let shift = if k % 2 == 0 { k.min(n) } else { -k.min(n) };
                let edge = if k % 3 == 0 { "0.0" } else { "1.25" };
                body += &format!(
                    "%p{k} = pad %x, {edge} {{low = [0, {shift}], high = [0, {}], interior = [0, 0]}} : T
                     %s{k} = add %s{}, %p{k} : T\n",
                    -shift,
                    k - 1
                );
            }
            body += "%r = mul %s12, %x : T";
            holds(&format!("%x: {image}"), &body.replace(": T", &format!(": {image}")), &image);
        }
    }
}
