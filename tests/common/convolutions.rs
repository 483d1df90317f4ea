//! Convolutions of many forms with both of their gradients, on numbers whose products and sums are exact in every order and on
//! tensor cores.

use adfuse::autodiff::forward_and_backward;
use adfuse::backends::Array;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module};

/// A convolution: an operand, a kernel, attributes, and the result.
pub(crate) struct Convolution {
    pub(crate) name: &'static str,
    pub(crate) operand: &'static [u64],
    pub(crate) kernel: &'static [u64],
    pub(crate) attributes: &'static str,
    pub(crate) result: &'static [u64],
}

/// The forms: odd extents, strides, dilations, padding, groups, layouts, one to three dimensions.
#[rustfmt::skip]
pub(crate) const CONVOLUTIONS: &[Convolution] = &[
    Convolution { name: "3x3", operand: &[2, 16, 9, 8], kernel: &[24, 16, 3, 3],
        attributes: "{low = [1, 1], high = [1, 1]}", result: &[2, 24, 9, 8] },
    Convolution { name: "odd channels", operand: &[2, 5, 7, 11], kernel: &[19, 5, 3, 3],
        attributes: "{low = [1, 1], high = [1, 1]}", result: &[2, 19, 7, 11] },
    Convolution { name: "stride 2", operand: &[2, 8, 15, 13], kernel: &[16, 8, 3, 3],
        attributes: "{strides = [2, 2], low = [1, 1], high = [1, 1]}", result: &[2, 16, 8, 7] },
    Convolution { name: "stride 2, even", operand: &[2, 8, 14, 12], kernel: &[16, 8, 3, 3],
        attributes: "{strides = [2, 2], low = [1, 1], high = [1, 1]}", result: &[2, 16, 7, 6] },
    Convolution { name: "strides of one axis", operand: &[2, 8, 9, 16], kernel: &[16, 8, 3, 4],
        attributes: "{strides = [1, 2], low = [1, 1], high = [0, 1]}", result: &[2, 16, 8, 8] },
    Convolution { name: "7x7 of three channels", operand: &[1, 3, 20, 20], kernel: &[16, 3, 7, 7],
        attributes: "{strides = [2, 2], low = [3, 3], high = [3, 3]}", result: &[1, 16, 10, 10] },
    Convolution { name: "dilated", operand: &[2, 8, 12, 12], kernel: &[16, 8, 3, 3],
        attributes: "{low = [2, 2], high = [2, 2], rhs_dilation = [2, 2]}", result: &[2, 16, 12, 12] },
    Convolution { name: "1x1", operand: &[3, 16, 6, 6], kernel: &[20, 16, 1, 1],
        attributes: "", result: &[3, 20, 6, 6] },
    Convolution { name: "1x1, stride 2", operand: &[2, 16, 8, 8], kernel: &[16, 16, 1, 1],
        attributes: "{strides = [2, 2]}", result: &[2, 16, 4, 4] },
    Convolution { name: "groups", operand: &[2, 12, 8, 8], kernel: &[20, 6, 3, 3],
        attributes: "{low = [1, 1], high = [1, 1], feature_group_count = 2}", result: &[2, 20, 8, 8] },
    Convolution { name: "depthwise", operand: &[2, 6, 9, 9], kernel: &[6, 1, 3, 3],
        attributes: "{low = [1, 1], high = [1, 1], feature_group_count = 6}", result: &[2, 6, 9, 9] },
    Convolution { name: "depthwise, stride 2", operand: &[2, 5, 9, 12], kernel: &[5, 1, 3, 3],
        attributes: "{strides = [2, 2], low = [1, 1], high = [1, 1], feature_group_count = 5}", result: &[2, 5, 5, 6] },
    Convolution { name: "depthwise, channels last", operand: &[2, 7, 8, 6], kernel: &[5, 5, 1, 6],
        attributes: "{low = [2, 2], high = [2, 2], lhs_spec = [0, 3, 1, 2], rhs_spec = [3, 2, 0, 1], out_spec = [0, 3, 1, 2], feature_group_count = 6}",
        result: &[2, 7, 8, 6] },
    Convolution { name: "channels last", operand: &[2, 9, 9, 8], kernel: &[3, 3, 8, 16],
        attributes: "{low = [1, 1], high = [1, 1], lhs_spec = [0, 3, 1, 2], rhs_spec = [3, 2, 0, 1], out_spec = [0, 3, 1, 2]}",
        result: &[2, 9, 9, 16] },
    Convolution { name: "one dimension", operand: &[4, 8, 37], kernel: &[16, 8, 5],
        attributes: "{low = [4], high = [0]}", result: &[4, 16, 37] },
    Convolution { name: "three dimensions", operand: &[1, 4, 5, 6, 7], kernel: &[16, 4, 3, 3, 3],
        attributes: "{low = [1, 1, 1], high = [1, 1, 1]}", result: &[1, 16, 5, 6, 7] },
    Convolution { name: "uneven padding", operand: &[2, 8, 8, 9], kernel: &[16, 8, 2, 4],
        attributes: "{low = [0, 2], high = [1, 0]}", result: &[2, 16, 8, 8] },
    Convolution { name: "cut", operand: &[2, 8, 11, 10], kernel: &[16, 8, 3, 3],
        attributes: "{low = [-1, 1], high = [2, -2]}", result: &[2, 16, 10, 7] },
    Convolution { name: "zeros between", operand: &[2, 8, 6, 5], kernel: &[16, 8, 3, 3],
        attributes: "{low = [1, 1], high = [1, 1], lhs_dilation = [2, 2]}", result: &[2, 16, 11, 9] },
];

/// Forms whose tiles fill a chip, at sizes of residual nets but for the batch.
#[rustfmt::skip]
pub(crate) const LARGE: &[Convolution] = &[
    Convolution { name: "64 channels", operand: &[8, 64, 56, 56], kernel: &[64, 64, 3, 3],
        attributes: "{low = [1, 1], high = [1, 1]}", result: &[8, 64, 56, 56] },
    Convolution { name: "512 channels", operand: &[16, 512, 7, 7], kernel: &[512, 512, 3, 3],
        attributes: "{low = [1, 1], high = [1, 1]}", result: &[16, 512, 7, 7] },
    Convolution { name: "the first of a net", operand: &[4, 3, 224, 224], kernel: &[64, 3, 7, 7],
        attributes: "{strides = [2, 2], low = [3, 3], high = [3, 3]}", result: &[4, 64, 112, 112] },
    Convolution { name: "large, stride 2", operand: &[8, 128, 56, 56], kernel: &[256, 128, 3, 3],
        attributes: "{strides = [2, 2], low = [1, 1], high = [1, 1]}", result: &[8, 256, 28, 28] },
];

fn listed(dtype: DType, dims: &[u64]) -> String {
    let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
    format!("{dtype}[{}]", dims.join(","))
}

impl Convolution {
    /// Whether each channel has a kernel of its own: one row a group.
    pub(crate) fn is_depthwise(&self) -> bool {
        self.name.starts_with("depthwise")
    }

    /// The axis of output channels.
    fn channels(&self) -> usize {
        if self.attributes.contains("out_spec") { self.result.len() - 1 } else { 1 }
    }

    /// The function of operand and kernel of a type, and weights and weights of channels of `f32`: the result and the sums of its
    /// channels weighed and added up. Its derivatives by the weights are the result and those sums.
    pub(crate) fn text(&self, dtype: DType) -> String {
        let [x, k, z] = [self.operand, self.kernel, self.result].map(|dims| listed(dtype, dims));
        let y = listed(DType::F32, self.result);
        let q = listed(DType::F32, &self.result[self.channels()..=self.channels()]);
        let named = |keep: &dyn Fn(usize) -> bool| {
            let axes = (0..self.result.len()).filter(|&a| keep(a));
            axes.map(|a| a.to_string()).collect::<Vec<_>>().join(", ")
        };
        let (all, others) = (named(&|_| true), named(&|a| a != self.channels()));
        let (line, sums) = converted("y", "z", (dtype, DType::F32), self.result);
        format!(
            "func @f(%x: {x}, %k: {k}, %c: {y}, %q: {q}) -> f32[] {{
               %z = conv_general_dilated %x, %k {} : {z}
               {line}
               %w = mul %{sums}, %c : {y}
               %l = reduce_sum %w {{axes = [{all}]}} : f32[]
               %s = reduce_sum %{sums} {{axes = [{others}]}} : {q}
               %t = mul %s, %q : {q}
               %m = reduce_sum %t {{axes = [0]}} : f32[]
               %r = add %l, %m : f32[]
               return %r
             }}",
            self.attributes,
        )
    }

    /// The axis of the operand's channels.
    fn operand_channels(&self) -> usize {
        if self.attributes.contains("lhs_spec") { self.operand.len() - 1 } else { 1 }
    }

    /// The function of operand and kernel of a type, and of `f32` weights, and scales and shifts of the operand's channels, and
    /// scales of the result's: the sum of a weighed convolution of `relu(x scale + shift)`, as normalisation has it. What both of
    /// its gradients read is computed of cotangents, too.
    pub(crate) fn normalised_text(&self, dtype: DType) -> String {
        let [k, z] = [self.kernel, self.result].map(|dims| listed(dtype, dims));
        let [x, y] = [self.operand, self.result].map(|dims| listed(DType::F32, dims));
        let of = |dims: &[u64], axis: usize| listed(DType::F32, &dims[axis..=axis]);
        let (own, out) = (self.operand_channels(), self.channels());
        let (s, q) = (of(self.operand, own), of(self.result, out));
        let all = (0..self.result.len()).map(|a| a.to_string()).collect::<Vec<_>>().join(", ");
        let (of_operand, wide) = converted("x", "g", (dtype, DType::F32), self.operand);
        let (of_relu, given) = converted("n", "r", (DType::F32, dtype), self.operand);
        let (of_sums, sums) = converted("y", "o", (dtype, DType::F32), self.result);
        format!(
            "func @f(%g: {}, %k: {k}, %c: {y}, %s: {s}, %b: {s}, %q: {q}) -> f32[] {{
               {of_operand}
               %sx = broadcast_in_dim %s {{dims = [{own}]}} : {x}
               %bx = broadcast_in_dim %b {{dims = [{own}]}} : {x}
               %m = mul %{wide}, %sx : {x}
               %a = add %m, %bx : {x}
               %r = relu %a : {x}
               {of_relu}
               %o = conv_general_dilated %{given}, %k {} : {z}
               {of_sums}
               %qy = broadcast_in_dim %q {{dims = [{out}]}} : {y}
               %z = mul %{sums}, %qy : {y}
               %w = mul %z, %c : {y}
               %l = reduce_sum %w {{axes = [{all}]}} : f32[]
               return %l
             }}",
            listed(dtype, self.operand),
            self.attributes,
        )
    }

    /// The arguments of [`Convolution::normalised_text`].
    pub(crate) fn normalised_arguments(&self, dtype: DType) -> Vec<Array> {
        let own = [self.operand[self.operand_channels()]];
        let out = [self.result[self.channels()]];
        arrays(dtype, &[self.operand, self.kernel, self.result, &own, &own, &out])
    }

    /// A function of these with its gradients by all parameters.
    pub(crate) fn normalised(&self, dtype: DType) -> (Module, Function) {
        self.with_gradients(&self.normalised_text(dtype), &[0, 1, 2, 3, 4, 5])
    }

    /// The function, with its gradients by all parameters.
    pub(crate) fn differentiated(&self, dtype: DType) -> (Module, Function) {
        self.with_gradients(&self.text(dtype), &[0, 1, 2, 3])
    }

    fn with_gradients(&self, text: &str, wrt: &[usize]) -> (Module, Function) {
        let module = parse(text).unwrap_or_else(|e| panic!("{}: {e:?}\n{text}", self.name));
        let f = module.funcs.values().next().expect("a function").clone();
        let g = forward_and_backward(&module, &f, wrt);
        let g = g.unwrap_or_else(|d| panic!("{}: {d}", self.name));
        (Module::single(g.clone()), g)
    }

    /// Odd numbers, so that no product is 0.
    pub(crate) fn arguments(&self, dtype: DType) -> Vec<Array> {
        let channels = [self.result[self.channels()]];
        arrays(dtype, &[self.operand, self.kernel, self.result, &channels])
    }
}

/// The line that gives `%to` the elements of `%from` in another type, and the name that they have then: types that are the same need
/// no line.
fn converted<'n>(
    to: &'n str,
    from: &'n str,
    (given, wanted): (DType, DType),
    dims: &[u64],
) -> (String, &'n str) {
    match given == wanted {
        true => (String::new(), from),
        false => (format!("%{to} = convert_element_type %{from} : {}", listed(wanted, dims)), to),
    }
}

/// Arrays of odd numbers; the first two are of a type. Where it has few bits numbers are 1 and -1, so that sums of products that are
/// rounded to it are those of numbers that are not.
fn arrays(dtype: DType, all: &[&[u64]]) -> Vec<Array> {
    let mut state = 0x9e37_79b9u32;
    let most = if dtype == DType::F32 { 4 } else { 2 };
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from(state % most) * 2.0 - f64::from(most - 1)
    };
    let array = |(n, dims): (usize, &&[u64])| {
        let dtype = if n < 2 { dtype } else { DType::F32 };
        let values: Vec<f64> = (0..dims.iter().product::<u64>()).map(|_| next()).collect();
        Array::from_f64s(dtype, dims, &values).expect("fits")
    };
    all.iter().enumerate().map(array).collect()
}
