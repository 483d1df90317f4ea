//! The programs that the cost model is compared with: one or more for each family of ops.

/// A program whose time is predicted and measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunedProgram {
    /// The family that it stands for.
    pub family: String,
    /// Its name, unique in its list.
    pub name: String,
    /// The text of a module with one function.
    pub text: String,
}

impl TunedProgram {
    /// A program of a family, from a module's text.
    pub fn new(family: &str, name: &str, text: &str) -> TunedProgram {
        TunedProgram { family: family.into(), name: name.into(), text: text.into() }
    }
}

/// What the programs of a calibration are to keep busy: one core, or a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramSize {
    /// Runs take from some microseconds to some tens of milliseconds on one core.
    Small,
    /// Runs fill a GPU.
    Large,
}

/// Extents in the texts of programs, small and large.
const EXTENTS: &[(&str, [i64; 2])] = &[
    ("{m}", [1 << 20, 32 << 20]),
    ("{d}", [2 << 20, 64 << 20]),
    ("{q}", [256 << 10, 8 << 20]),
    ("{s}", [64 << 10, 2 << 20]),
    ("{r}", [1024, 32 << 10]),
    ("{h}", [512, 16 << 10]),
    ("{w}", [4096, 128 << 10]),
    ("{p}", [8192, 256 << 10]),
    ("{o}", [256, 8192]),
    ("{v}", [2048, 32 << 10]),
    ("{l}", [64, 2048]),
    ("{b}", [8, 256]),
    ("{c}", [16, 256]),
    ("{n}", [512, 4096]),
    ("{i}", [128, 4096]),
    ("{t}", [256, 2048]),
    ("{u}", [256, 8192]),
];

/// Family, name, parameters, instructions (the last one is `%r`), and the type of the result. Extents in braces are those
/// of [`EXTENTS`].
type ProgramRow = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// One row for each program.
const ROWS: &[ProgramRow] = &[
    ("chain", "add 1M", "%x: f32[1048576], %y: f32[1048576]", "%r = add %x, %y", "f32[1048576]"),
    ("chain", "add 4K", "%x: f32[4096], %y: f32[4096]", "%r = add %x, %y", "f32[4096]"),
    (
        "chain",
        "add 16M",
        "%x: f32[16777216], %y: f32[16777216]",
        "%r = add %x, %y",
        "f32[16777216]",
    ),
    ("chain", "exp", "%x: f32[{m}]", "%r = exp %x", "f32[{m}]"),
    ("chain", "log", "%x: f32[{m}]", "%r = log %x", "f32[{m}]"),
    ("chain", "tanh", "%x: f32[{m}]", "%r = tanh %x", "f32[{m}]"),
    ("chain", "five functions", "%x: f32[{q}]", FIVE_FUNCTIONS, "f32[{q}]"),
    ("chain", "exp f64", "%x: f64[{q}]", "%r = exp %x", "f64[{q}]"),
    (
        "chain",
        "division and root",
        "%x: f32[{m}], %y: f32[{m}]",
        "%0 = div %x, %y : f32[{m}]\n%r = sqrt %0",
        "f32[{m}]",
    ),
    ("chain", "sin", "%x: f32[{s}]", "%r = sin %x", "f32[{s}]"),
    ("convert", "to bf16", "%x: f32[{m}]", "%r = convert_element_type %x", "bf16[{m}]"),
    ("convert", "i32 to f32", "%x: i32[{m}]", "%r = convert_element_type %x", "f32[{m}]"),
    ("random", "random bits", "%s: i64[], %o: i64[]", "%r = rng_bits %s, %o", "u32[{m}]"),
    ("mask", "mask", "%x: f32[{m}]", "%r = gt %x, 0.0", "bool[{m}]"),
    ("mask", "select", "%p: bool[{m}], %x: f32[{m}]", "%r = select_n %p, 0.0, %x", "f32[{m}]"),
    ("mask", "any", "%p: bool[{r},1024]", "%r = reduce_or %p {axes = [1]}", "bool[{r}]"),
    ("rem", "rem f32", "%x: f32[{q}], %y: f32[{q}]", "%r = rem %x, %y", "f32[{q}]"),
    ("rem", "rem i32", "%x: i32[{q}], %y: i32[{q}]", "%r = rem %x, %y", "i32[{q}]"),
    ("argmax", "argmax rows", "%x: f32[{r},1024]", "%r = argmax %x {axis = 1}", "i32[{r}]"),
    ("argmax", "argmax columns", "%x: f32[{r},1024]", "%r = argmax %x {axis = 0}", "i32[1024]"),
    (
        "convolution",
        "depthwise",
        "%x: f32[{b},32,56,56], %k: f32[32,1,3,3]",
        "%r = conv_general_dilated %x, %k {feature_group_count = 32}",
        "f32[{b},32,54,54]",
    ),
    (
        "convolution",
        "3x3",
        "%x: f32[{b},16,32,32], %k: f32[32,16,3,3]",
        "%r = conv_general_dilated %x, %k",
        "f32[{b},32,30,30]",
    ),
    (
        "convolution",
        "1x1",
        "%x: f32[{b},64,28,28], %k: f32[64,64,1,1]",
        "%r = conv_general_dilated %x, %k",
        "f32[{b},64,28,28]",
    ),
    (
        "transpose",
        "transpose",
        "%x: f32[{r},1024]",
        "%r = transpose %x {perm = [1, 0]}",
        "f32[1024,{r}]",
    ),
    (
        "transpose",
        "inner transpose",
        "%x: f32[{l},64,256]",
        "%r = transpose %x {perm = [0, 2, 1]}",
        "f32[{l},256,64]",
    ),
    (
        "transpose",
        "transpose and add",
        "%x: f32[{r},1024], %y: f32[1024,{r}]",
        "%t = transpose %x {perm = [1, 0]} : f32[1024,{r}]\n%r = add %t, %y",
        "f32[1024,{r}]",
    ),
    ("scan", "cumsum rows", "%x: f32[{r},1024]", "%r = cumsum %x {axis = 1}", "f32[{r},1024]"),
    ("scan", "cumsum columns", "%x: f32[{r},1024]", "%r = cumsum %x {axis = 0}", "f32[{r},1024]"),
    ("sort", "sort", "%x: f32[{o},1024]", "%r = sort %x {axis = 1}", "f32[{o},1024]"),
    ("sort", "argsort", "%x: f32[{s}]", "%r = argsort %x {axis = 0}", "i32[{s}]"),
    (
        "gather",
        "rows",
        "%t: f32[32768,64], %i: i32[{p},1]",
        "%r = gather %t, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 64], mode = clip}",
        "f32[{p},64]",
    ),
    (
        "gather",
        "elements",
        "%t: f32[32768], %i: i32[{q},1]",
        "%r = gather %t, %i {offset_dims = [], collapsed = [0], start_map = [0], sizes = [1], mode = clip}",
        "f32[{q}]",
    ),
    (
        "scatter",
        "rows",
        "%t: f32[32768,64], %i: i32[{p},1], %u: f32[{p},64]",
        "%r = scatter_add %t, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = clip}",
        "f32[32768,64]",
    ),
    (
        "scatter",
        "elements",
        "%t: f32[32768], %i: i32[{s},1], %u: f32[{s}]",
        "%r = scatter_add %t, %i, %u {window_dims = [], inserted = [0], start_map = [0], mode = clip}",
        "f32[32768]",
    ),
    (
        "pool",
        "max 2x2",
        "%x: f32[{c},16,64,64]",
        "%r = reduce_window_max %x {window = [1, 1, 2, 2], strides = [1, 1, 2, 2]}",
        "f32[{c},16,32,32]",
    ),
    (
        "pool",
        "sum 3x3",
        "%x: f32[{c},16,66,66]",
        "%r = reduce_window_sum %x {window = [1, 1, 3, 3]}",
        "f32[{c},16,64,64]",
    ),
    (
        "concat",
        "rows",
        "%x: f32[{h},1024], %y: f32[{h},1024]",
        "%r = concatenate %x, %y {axis = 0}",
        "f32[{r},1024]",
    ),
    (
        "concat",
        "columns",
        "%x: f32[{r},500], %y: f32[{r},524]",
        "%r = concatenate %x, %y {axis = 1}",
        "f32[{r},1024]",
    ),
    (
        "concat",
        "pad",
        "%x: f32[{r},1000]",
        "%r = pad %x, 0.0 {low = [0, 12], high = [0, 12], interior = [0, 0]}",
        "f32[{r},1024]",
    ),
    (
        "slice",
        "every other",
        "%x: f32[{d}]",
        "%r = slice %x {start = [0], limit = [{d}], stride = [2]}",
        "f32[{m}]",
    ),
    (
        "slice",
        "middle",
        "%x: f32[{r},1024]",
        "%r = slice %x {start = [0, 100], limit = [{r}, 900], stride = [1, 1]}",
        "f32[{r},800]",
    ),
    ("slice", "reverse", "%x: f32[{r},1024]", "%r = rev %x {axes = [1]}", "f32[{r},1024]"),
    (
        "broadcast",
        "bias",
        "%x: f32[{r},1024], %b: f32[1024]",
        "%0 = broadcast_in_dim %b {dims = [1]} : f32[{r},1024]\n%r = add %x, %0",
        "f32[{r},1024]",
    ),
    (
        "broadcast",
        "outer",
        "%x: f32[{r}], %y: f32[1024]",
        "%0 = broadcast_in_dim %x {dims = [0]} : f32[{r},1024]\n%1 = broadcast_in_dim %y {dims = [1]} : f32[{r},1024]\n%r = mul %0, %1",
        "f32[{r},1024]",
    ),
    ("reduce", "all", "%x: f32[{m}]", "%r = reduce_sum %x {axes = [0]}", "f32[]"),
    ("reduce", "rows", "%x: f32[{r},1024]", "%r = reduce_sum %x {axes = [1]}", "f32[{r}]"),
    ("reduce", "columns", "%x: f32[{r},1024]", "%r = reduce_sum %x {axes = [0]}", "f32[1024]"),
    ("reduce", "middle", "%x: f32[{l},256,64]", "%r = reduce_max %x {axes = [1]}", "f32[{l},64]"),
    ("reduce", "rows of 8", "%x: f32[{s},8]", "%r = reduce_sum %x {axes = [1]}", "f32[{s}]"),
    (
        "product",
        "square",
        "%x: f32[{n},{n}], %y: f32[{n},{n}]",
        "%r = dot_general %x, %y {contract = [1] x [0]}",
        "f32[{n},{n}]",
    ),
    (
        "product",
        "784 deep",
        "%x: f32[{i},784], %y: f32[784,1024]",
        "%r = dot_general %x, %y {contract = [1] x [0]}",
        "f32[{i},1024]",
    ),
    (
        "product",
        "matrix and vector",
        "%x: f32[{v},2048], %y: f32[2048]",
        "%r = dot_general %x, %y {contract = [1] x [0]}",
        "f32[{v}]",
    ),
    (
        "product",
        "batched 64^3",
        "%x: f32[{l},64,64], %y: f32[{l},64,64]",
        "%r = dot_general %x, %y {batch = [0] x [0], contract = [2] x [1]}",
        "f32[{l},64,64]",
    ),
    (
        "product",
        "f64",
        "%x: f64[{t},{t}], %y: f64[{t},{t}]",
        "%r = dot_general %x, %y {contract = [1] x [0]}",
        "f64[{t},{t}]",
    ),
    (
        "product",
        "bf16",
        "%x: bf16[{u},{u}], %y: bf16[{u},{u}]",
        "%r = dot_general %x, %y {contract = [1] x [0]}",
        "bf16[{u},{u}]",
    ),
    ("softmax", "rows of 1024", "%x: f32[{r},1024]", SOFTMAX_1024, "f32[{r},1024]"),
    ("softmax", "rows of 64", "%x: f32[{p},64]", SOFTMAX_64, "f32[{p},64]"),
    ("norm", "layer norm", "%x: f32[{r},1024]", LAYER_NORM, "f32[{r},1024]"),
    ("norm", "l2 norm", "%x: f32[{r},1024]", L2_NORM, "f32[{r},1024]"),
    ("norm", "batch norm", "%x: f32[{w},256]", BATCH_NORM, "f32[{w},256]"),
    ("norm", "four sums", "%x: f32[4,48]", FOUR_SUMS, "f32[4,48]"),
];

/// Of so few elements that calls of its loops take most of the time.
const FOUR_SUMS: &str = "%s0 = reduce_sum %x {axes = [1]} : f32[4]
%b0 = broadcast_in_dim %s0 {dims = [0]} : f32[4,48]
%c0 = sub %x, %b0 : f32[4,48]
%s1 = reduce_sum %c0 {axes = [1]} : f32[4]
%b1 = broadcast_in_dim %s1 {dims = [0]} : f32[4,48]
%c1 = sub %c0, %b1 : f32[4,48]
%s2 = reduce_sum %c1 {axes = [1]} : f32[4]
%b2 = broadcast_in_dim %s2 {dims = [0]} : f32[4,48]
%c2 = sub %c1, %b2 : f32[4,48]
%s3 = reduce_sum %c2 {axes = [1]} : f32[4]
%b3 = broadcast_in_dim %s3 {dims = [0]} : f32[4,48]
%r = sub %c2, %b3";

const FIVE_FUNCTIONS: &str = "%0 = tanh %x : f32[{q}]
%1 = sin %0 : f32[{q}]
%2 = exp %1 : f32[{q}]
%3 = erf %2 : f32[{q}]
%r = log1p %3";

const SOFTMAX_1024: &str = "%m = reduce_max %x {axes = [1]} : f32[{r}]
%b = broadcast_in_dim %m {dims = [0]} : f32[{r},1024]
%d = sub %x, %b : f32[{r},1024]
%e = exp %d : f32[{r},1024]
%s = reduce_sum %e {axes = [1]} : f32[{r}]
%c = broadcast_in_dim %s {dims = [0]} : f32[{r},1024]
%r = div %e, %c";

const SOFTMAX_64: &str = "%m = reduce_max %x {axes = [1]} : f32[{p}]
%b = broadcast_in_dim %m {dims = [0]} : f32[{p},64]
%d = sub %x, %b : f32[{p},64]
%e = exp %d : f32[{p},64]
%s = reduce_sum %e {axes = [1]} : f32[{p}]
%c = broadcast_in_dim %s {dims = [0]} : f32[{p},64]
%r = div %e, %c";

const LAYER_NORM: &str = "%s = reduce_sum %x {axes = [1]} : f32[{r}]
%m = mul %s, 0.0009765625 : f32[{r}]
%b = broadcast_in_dim %m {dims = [0]} : f32[{r},1024]
%d = sub %x, %b : f32[{r},1024]
%q = mul %d, %d : f32[{r},1024]
%v = reduce_sum %q {axes = [1]} : f32[{r}]
%w = mul %v, 0.0009765625 : f32[{r}]
%u = add %w, 0.00001 : f32[{r}]
%i = rsqrt %u : f32[{r}]
%c = broadcast_in_dim %i {dims = [0]} : f32[{r},1024]
%r = mul %d, %c";

const L2_NORM: &str = "%q = mul %x, %x : f32[{r},1024]
%s = reduce_sum %q {axes = [1]} : f32[{r}]
%n = sqrt %s : f32[{r}]
%b = broadcast_in_dim %n {dims = [0]} : f32[{r},1024]
%r = div %x, %b";

const BATCH_NORM: &str = "%s = reduce_sum %x {axes = [0]} : f32[256]
%m = mul %s, 0.000244140625 : f32[256]
%b = broadcast_in_dim %m {dims = [1]} : f32[{w},256]
%d = sub %x, %b : f32[{w},256]
%q = mul %d, %d : f32[{w},256]
%v = reduce_sum %q {axes = [0]} : f32[256]
%w = mul %v, 0.000244140625 : f32[256]
%u = add %w, 0.00001 : f32[256]
%i = rsqrt %u : f32[256]
%c = broadcast_in_dim %i {dims = [1]} : f32[{w},256]
%r = mul %d, %c";

/// The programs, one or more for each family of ops, of a size.
pub fn programs(size: ProgramSize) -> Vec<TunedProgram> {
    let program = |&(family, name, params, body, result): &ProgramRow| {
        let text = format!("func @f({params}) -> {result} {{\n{body} : {result}\nreturn %r\n}}\n");
        let sized = |text: String, (key, [small, large]): &(&str, [i64; 2])| {
            let extent = if size == ProgramSize::Small { small } else { large };
            text.replace(key, &extent.to_string())
        };
        TunedProgram::new(family, name, &EXTENTS.iter().fold(text, sized))
    };
    ROWS.iter().map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::{AnyEngine, Effort, Fp, MachineModel, PlanOptions};
    use crate::tune::PlannedProgram;

    #[test]
    fn every_program_of_every_size_has_a_plan_and_a_name_of_its_own() {
        for (size, device) in
            [(ProgramSize::Small, MachineModel::cpu()), (ProgramSize::Large, MachineModel::h200())]
        {
            let options = PlanOptions { device, effort: Effort::Quick, fp: Fp::Strict };
            let mut names = Vec::new();
            for one in programs(size) {
                let planned = PlannedProgram::new(&one, &options, &AnyEngine);
                assert!(
                    planned.is_ok(),
                    "{size:?} {}: {:?}\n{}",
                    one.name,
                    planned.err(),
                    one.text
                );
                names.push((one.family, one.name));
            }
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "two programs share a name");
        }
    }
}
