//! The op table: one row an op. Everything else about an op is read off its row.
//!
//! The rows are written with the constructors of `rows.rs` and the signatures of `definitions.rs`. Those of linear algebra
//! are in `table_linalg.rs`.

/// Hands all rows to the macro of this name: the enum of the ops takes their names, the table their definitions.
macro_rules! for_each_op {
    ($use_rows:ident) => { $crate::op::table_linalg::for_each_op_and_decomposition! { $use_rows
    // Arithmetic.
    /// Sum.
    Add = map("add", NUMBER2, D, |x| x[0] + x[1], &[|_, x| x[0].lit(1.0), |_, x| x[0].lit(1.0)], ADD);
    /// Difference.
    Sub = map("sub", NUMBER2, D, |x| x[0] - x[1], &[|_, x| x[0].lit(1.0), |_, x| x[0].lit(-1.0)], SUB);
    /// Product.
    Mul = map("mul", NUMBER2, D, |x| x[0] * x[1], &[|_, x| x[1], |_, x| x[0]], MUL);
    /// Quotient; integers truncate, `x / 0` is -1.
    Div = map("div", NUMBER2, NS, |x| x[0] / x[1], &[|_, x| 1.0 / x[1], |y, x| -(y / x[1])], DIV);
    /// Exact remainder with the sign of the dividend; integers: `x % 0` is `x`.
    Rem = map("rem", NUMBER2, REM, |x| x[0] % x[1],
        &[|_, x| x[0].lit(1.0), |_, x| -(x[0] / x[1]).trunc()], LOST);
    /// Negation.
    Neg = map("neg", NUMBER, D, |x| -x[0], &[|_, x| x[0].lit(-1.0)], NEG);
    /// Absolute value; derivative 0 at 0.
    Abs = map("abs", NUMBER, P, |x| x[0].abs(), &[|_, x| direction(x[0])], LOST);
    /// -1, 0 or 1 by sign; keeps NaN and the sign of zero.
    Sign = map_zero("sign", NUMBER, D, |x| sign(x[0]), LOST);
    /// Square.
    Square = map("square", NUMBER, D, |x| x[0] * x[0], &[|_, x| 2.0 * x[0]], SQUARE);
    /// Integer power by repeated squaring; negative exponents take the reciprocal.
    IntegerPow = map_with("integer_pow", NUMBER, &[need("y", AttrKind::Int)], NS, |cx, x| integer_pow(x[0], cx.attrs.int("y")),
        &[|cx, y, x| match cx.attrs.int("y") {
            0 => x[0].lit(0.0),
            n if n < 0 => x[0].lit(n as f64) * (y / x[0]),
            n => x[0].lit(n as f64) * integer_pow(x[0], n.saturating_sub(1)),
        }],
        LOST, &["%x: f32[3] | integer_pow %x {y = 3} : f32[3]",
          "%x: f32[3] | integer_pow %x {y = -2} : f32[3]"]);
    /// Fused multiply-add: `x * y + z` with one rounding.
    Fma = map("fma", Sig::new(DTypeSet::Float, &[T, T, T], T), D, |x| x[0].fma(x[1], x[2]),
        &[|_, x| x[1], |_, x| x[0], |_, x| x[0].lit(1.0)], LOST);
    /// The larger; NaN if either is; ties split the derivative in halves; `max(-0, +0)` is `+0`.
    Max = map("max", ORDERED2, D, |x| x[0].max(x[1]),
        &[|_, x| larger(x[0], x[1]), |_, x| larger(x[1], x[0])], LOST);
    /// The smaller; NaN if either is; ties split the derivative in halves.
    Min = map("min", ORDERED2, D, |x| x[0].min(x[1]),
        &[|_, x| larger(x[1], x[0]), |_, x| larger(x[0], x[1])], LOST);
    /// `min(max(x, lo), hi)` for operands lo, x, hi; derivative of x is 1 strictly inside.
    Clamp = map("clamp", NUMBER3, &[Domain::Uniform(-3.0, -1.0), Domain::Normal, Domain::Uniform(1.0, 3.0)],
        |x| x[1].max(x[0]).min(x[2]),
        &[|_, x| x[0].gt(x[1]) & x[0].lt(x[2]),
          |_, x| x[1].gt(x[0]) & x[1].lt(x[2]),
          |_, x| x[2].lt(x[1]) | x[2].lt(x[0])], LOST);
    /// max(x, 0) with derivative 0 at 0: exactly one bit an element decides it; keeps NaN.
    Relu = map("relu", NUMBER, D, |x| x[0].max(x[0].lit(0.0)), &[|y, _| y.gt(0.0)], LOST);

    // Rounding.
    /// Largest integer not above.
    Floor = map_zero("floor", FLOAT, FRACTION, |x| x[0].floor(), LOST);
    /// Smallest integer not below.
    Ceil = map_zero("ceil", FLOAT, FRACTION, |x| x[0].ceil(), LOST);
    /// Nearest integer, halves away from zero.
    Round = map_zero("round", FLOAT, FRACTION, |x| {
        let whole = x[0].trunc();
        let half = (x[0] - whole).abs().ge(0.5);
        half.select(whole + x[0].lit(1.0).copysign(x[0]), whole).copysign(x[0])
    }, LOST);
    /// Nearest integer, halves to even.
    RoundNearestEven = map_zero("round_nearest_even", FLOAT, FRACTION, |x| x[0].round_even(), LOST);
    /// Integer part.
    Trunc = map_zero("trunc", FLOAT, FRACTION, |x| x[0].trunc(), LOST);

    // Exponentials, logarithms, powers.
    /// e^x.
    Exp = map("exp", FLOAT, D, |x| x[0].exp(), &[|y, _| y], EXP);
    /// 2^x.
    Exp2 = map("exp2", FLOAT, D, |x| x[0].exp2(), &[|y, _| y * std::f64::consts::LN_2], EXP2);
    /// e^x - 1.
    Expm1 = map("expm1", FLOAT, D, |x| x[0].expm1(), &[|y, _| y + 1.0], EXPM1);
    /// Natural logarithm; the derivative is 1/x also below 0, where the logarithm is NaN.
    Log = map("log", FLOAT, P, |x| x[0].log(), &[|_, x| 1.0 / x[0]], LOG);
    /// log(1 + x); the derivative is 1/(1 + x) also below -1, where the logarithm is NaN.
    Log1p = map("log1p", FLOAT, P, |x| x[0].log1p(), &[|_, x| 1.0 / (x[0] + 1.0)], LOG1P);
    /// Square root.
    Sqrt = map("sqrt", FLOAT, P, |x| x[0].sqrt(), &[|y, _| 0.5 / y], SQRT);
    /// 1 / sqrt(x).
    Rsqrt = map("rsqrt", FLOAT, P, |x| x[0].rsqrt(), &[|y, _| -0.5 * y * (y * y)], RSQRT);
    /// Cube root.
    Cbrt = map("cbrt", FLOAT, NS, |x| x[0].cbrt(), &[|y, _| vanishing(y, |y| 1.0 / (3.0 * (y * y)))], CBRT);
    /// log(e^x + e^y) without overflow.
    Logaddexp = map("logaddexp", FLOAT2, D,
        |x| x[0].eq(x[1]).select(x[0] + std::f64::consts::LN_2,
            x[0].max(x[1]) + (-(x[0] - x[1]).abs()).exp().log1p()),
        &[|_, x| share(x[0], x[1]), |_, x| share(x[1], x[0])], LOGADDEXP);
    /// x log(y), and 0 where x is 0, whatever y is; at x = y = 0 the derivative in y is 0.
    Xlogy = map("xlogy", FLOAT2, P,
        |x| x[0].eq(0.0).select(x[0].lit(0.0), x[0] * x[1].log()),
        &[|_, x| x[1].log(),
          |_, x| (x[0].eq(0.0) & x[1].eq(0.0)).select(x[0].lit(0.0), x[0] / x[1])], LOST);
    /// x^y; at x = 0 the derivative in y is 0 where y >= 0.
    Pow = map("pow", FLOAT2, P, |x| x[0].pow(x[1]),
        &[|_, x| {
            // 0^0 alone: elsewhere at y = 0 the product has derivatives of its own.
            let origin = x[0].eq(0.0) & x[1].eq(0.0);
            origin.select(x[1].lit(0.0), x[1] * x[0].pow(x[1] - 1.0))
        },
          |y, x| {
              y * x[0].eq(0.0).select(x[0].lit(1.0), x[0]).log()
          }], LOST);
    /// 1 / (1 + e^-x).
    Logistic = map("logistic", FLOAT, D, |x| x[0].logistic(), &[|y, _| y * (1.0 - y)], LOGISTIC);
    /// Error function.
    Erf = map("erf", FLOAT, D, |x| x[0].erf(),
        &[|_, x| std::f64::consts::FRAC_2_SQRT_PI * bell(x[0])], LOST);
    /// Complementary error function.
    Erfc = map("erfc", FLOAT, D, |x| x[0].erfc(),
        &[|_, x| -std::f64::consts::FRAC_2_SQRT_PI * bell(x[0])], LOST);
    /// Inverse of the error function; -1 and 1 give the infinities, beyond them it is NaN.
    ErfInv = map("erf_inv", FLOAT, UNIT, |x| x[0].erf_inv(),
        &[|y, _| (1.0 / std::f64::consts::FRAC_2_SQRT_PI) * (y * y).exp()], LOST);
    /// Logarithm of the gamma function's magnitude; +inf at its poles 0, -1, -2, ..
    Lgamma = map("lgamma", FLOAT, P, |x| x[0].lgamma(), &[|_, x| x[0].digamma()], LOST);
    /// Derivative of lgamma; NaN at the poles.
    Digamma = map("digamma", FLOAT, P, |x| x[0].digamma(), &[|_, x| x[0].polygamma(1)], LOST);
    /// Derivative of digamma of order n, digamma itself for 0; at the poles +inf for odd n, NaN for even n.
    Polygamma = map_with("polygamma", FLOAT, &[need("n", AttrKind::Within(0, Func::ORDERS as i64))],
        P, |cx, x| x[0].polygamma(cx.attrs.int("n")),
        &[|cx, _, x| x[0].polygamma(cx.attrs.int("n") + 1)],
        LOST, &["%x: f32[3] | polygamma %x {n = 1} : f32[3]",
          "%x: f32[3] | polygamma %x {n = 2} : f32[3]"]);

    // Trigonometric and hyperbolic.
    /// Sine (radians).
    Sin = map("sin", FLOAT, D, |x| x[0].sin(), &[|_, x| x[0].cos()], LOST);
    /// Cosine (radians).
    Cos = map("cos", FLOAT, D, |x| x[0].cos(), &[|_, x| -x[0].sin()], LOST);
    /// Tangent (radians).
    Tan = map("tan", FLOAT, WIDE, |x| x[0].tan(), &[|y, _| y * y + 1.0], LOST);
    /// Inverse sine.
    Asin = map("asin", FLOAT, UNIT, |x| x[0].asin(), &[|_, x| (1.0 - x[0] * x[0]).rsqrt()], LOST);
    /// Inverse cosine.
    Acos = map("acos", FLOAT, UNIT, |x| x[0].acos(), &[|_, x| -(1.0 - x[0] * x[0]).rsqrt()], LOST);
    /// Inverse tangent.
    Atan = map("atan", FLOAT, D, |x| x[0].atan(),
        &[|_, x| vanishing(x[0], |x| 1.0 / (x * x + 1.0))], LOST);
    /// Angle of the point (second operand, first operand).
    Atan2 = map("atan2", FLOAT2, D, |x| x[0].atan2(x[1]),
        &[|_, x| vanishing2(x, |y, x| x / (y * y + x * x)), |_, x| vanishing2(x, |y, x| -y / (y * y + x * x))], LOST);
    /// Hyperbolic sine.
    Sinh = map("sinh", FLOAT, D, |x| x[0].sinh(), &[|_, x| x[0].cosh()], LOST);
    /// Hyperbolic cosine.
    Cosh = map("cosh", FLOAT, D, |x| x[0].cosh(), &[|_, x| x[0].sinh()], LOST);
    /// Hyperbolic tangent.
    Tanh = map("tanh", FLOAT, D, |x| x[0].tanh(), &[|y, _| 1.0 - y * y], TANH);
    /// Inverse hyperbolic sine.
    Asinh = map("asinh", FLOAT, D, |x| x[0].asinh(),
        &[|_, x| vanishing(x[0], |x| (x * x + 1.0).rsqrt())], LOST);
    /// Inverse hyperbolic cosine.
    Acosh = map("acosh", FLOAT, ABOVE_ONE, |x| x[0].acosh(),
        &[|_, x| (x[0] - 1.0).rsqrt() * (x[0] + 1.0).rsqrt()], LOST);
    /// Inverse hyperbolic tangent; the derivative is 1/(1 - x^2) also beyond -1 and 1, where the function is NaN.
    Atanh = map("atanh", FLOAT, UNIT, |x| x[0].atanh(),
        &[|_, x| vanishing(x[0], |x| 1.0 / (1.0 - x * x))], LOST);

    // Comparison, choice, logic.
    /// Equal; false on NaN.
    Eq = map_zero("eq", TEST2, D, |x| x[0].eq(x[1]), LOST);
    /// Not equal; true on NaN.
    Ne = map_zero("ne", TEST2, D, |x| x[0].ne(x[1]), LOST);
    /// Less; false on NaN.
    Lt = map_zero("lt", TEST2, D, |x| x[0].lt(x[1]), LOST);
    /// Less or equal; false on NaN.
    Le = map_zero("le", TEST2, D, |x| x[0].le(x[1]), LOST);
    /// Greater; false on NaN.
    Gt = map_zero("gt", TEST2, D, |x| x[0].gt(x[1]), LOST);
    /// Greater or equal; false on NaN.
    Ge = map_zero("ge", TEST2, D, |x| x[0].ge(x[1]), LOST);
    /// Neither infinite nor NaN.
    IsFinite = map_zero("is_finite", FLAG, D, |x| x[0].abs().lt(f64::INFINITY), LOST);
    /// The second operand where the first is false, the third where it is true.
    SelectN = map("select_n", CHOICE, D, |x| x[0].select(x[2], x[1]),
        &[|_, x| x[0].bits(DType::Bool, 0), |_, x| !x[0], |_, x| x[0]], LOST);
    /// Bitwise (logical) and.
    And = map_zero("and", BITS2, INTS, |x| x[0] & x[1], LOST);
    /// Bitwise (logical) or.
    Or = map_zero("or", BITS2, INTS, |x| x[0] | x[1], LOST);
    /// Bitwise (logical) exclusive or.
    Xor = map_zero("xor", BITS2, INTS, |x| x[0] ^ x[1], XOR);
    /// Bitwise (logical) complement.
    Not = map_zero("not", BITS, INTS, |x| !x[0], NOT);
    /// Left shift; counts outside the width give 0.
    ShiftLeft = map_zero("shift_left", INT2, COUNTS, |x| x[0].shl(x[1]), LOST);
    /// Right shift with zeros; counts outside the width give 0.
    ShiftRightLogical = map_zero("shift_right_logical", INT2, COUNTS, |x| x[0].shr_l(x[1]), LOST);
    /// Right shift with the top bit; counts outside the width fill with it.
    ShiftRightArithmetic = map_zero("shift_right_arithmetic", INT2, COUNTS, |x| x[0].shr_a(x[1]), LOST);
    /// Number of set bits.
    PopulationCount = map_zero("population_count", INT, INTS, |x| x[0].popcount(), LOST);
    /// Number of leading zero bits.
    Clz = map_zero("clz", INT, INTS, |x| x[0].clz(), LOST);
    /// The operand, with zero derivative.
    StopGradient = map_zero("stop_gradient", ANY, D, |x| x[0], SAME);
    /// The same numbers in another element type: floats round to nearest even, saturate to integers
    /// (NaN to 0); integers wrap; to bool it is `x != 0`.
    ConvertElementType = retype("convert_element_type", CONVERT, |cx, x| x[0].convert(cx.result),
        Deriv::Linear(LinearSlots::All, view::transpose_convert), WIDENED,
        &["%x: f32[2,3] | convert_element_type %x : f64[2,3]", "%x: f32[3] | convert_element_type %x : i32[3]"]);
    /// The same bits as elements of another type of the same width.
    BitcastConvert = retype("bitcast_convert", RECAST, |cx, x| x[0].bitcast(cx.result), Deriv::Zero,
        LOST, &["%x: f32[2,3] | bitcast_convert %x : u32[2,3]", "%x: i64[3] | bitcast_convert %x : f64[3]"]);

    // Views: pure changes of index.
    /// Places operand axis i at result axis `dims[i]` and repeats along the others and along extents of 1.
    BroadcastInDim = view("broadcast_in_dim", Arity::Exactly(1), &[need("dims", AttrKind::Ints)],
        Written::Must, view::infer_broadcast, view::index_broadcast, view::transpose_broadcast,
        LOST, &["%x: f32[3] | broadcast_in_dim %x {dims = [1]} : f32[2,3]",
          "%x: f32[] | broadcast_in_dim %x {dims = []} : f32[2,3]", "%x: f32[2,1] | broadcast_in_dim %x {dims = [0, 2]} : f32[2,3,4]"]);
    /// The same elements in row-major order under another shape.
    Reshape = view("reshape", Arity::Exactly(1), &[], Written::Must,
        reshape::infer_reshape, reshape::index_reshape, reshape::transpose_reshape,
        PERMUTED, &["%x: f32[2,3] | reshape %x : f32[6]", "%x: f32[2,3,2] | reshape %x : f32[3,1,4]"]);
    /// Result axis i is operand axis `perm[i]`.
    Transpose = view("transpose", Arity::Exactly(1), &[need("perm", AttrKind::Ints)],
        Written::Inferred, view::infer_transpose, view::index_transpose, view::transpose_transpose,
        PERMUTED, &["%x: f32[2,3,4] | transpose %x {perm = [1, 2, 0]} : f32[3,4,2]"]);
    /// Elements start, start + stride, .. below limit of each axis.
    Slice = view("slice", Arity::Exactly(1),
        &[need("start", AttrKind::Ints), need("limit", AttrKind::Ints), need("stride", AttrKind::Ints)],
        Written::Inferred, view::infer_slice, view::index_slice, view::transpose_slice,
        LOST, &["%x: f32[5,4] | slice %x {start = [1, 0], limit = [5, 3], stride = [2, 1]} : f32[2,3]"]);
    /// Surrounds and interleaves with a scalar; negative low and high cut.
    Pad = view("pad", Arity::Exactly(2),
        &[need("low", AttrKind::Ints), need("high", AttrKind::Ints), need("interior", AttrKind::Ints)],
        Written::Inferred, pad::infer_pad, pad::index_pad, pad::transpose_pad,
        LOST, &["%x: f32[3], %p: f32[] | pad %x, %p {low = [1], high = [2], interior = [1]} : f32[8]",
          "%x: f32[5,2] | pad %x, 0.5 {low = [-1, 1], high = [-2, 0], interior = [0, 0]} : f32[2,3]"]);
    /// Operands one after the other along an axis.
    Concatenate = view("concatenate", Arity::AtLeast(1), &[need("axis", AttrKind::Int)],
        Written::Inferred, view::infer_concatenate, view::index_concatenate, view::transpose_concatenate,
        LOST, &["%x: f32[2,3], %y: f32[2,1] | concatenate %x, %y {axis = 1} : f32[2,4]"]);
    /// Cuts into pieces of the given sizes along an axis; one result a piece.
    Split = view("split", Arity::Exactly(1), &[need("sizes", AttrKind::Ints), need("axis", AttrKind::Int)],
        Written::Inferred, view::infer_split, view::index_split, view::transpose_split,
        LOST, &["%x: f32[2,5] | split %x {sizes = [2, 3], axis = 1} : f32[2,2], f32[2,3]"]);
    /// Reverses the order along the axes.
    Rev = view("rev", Arity::Exactly(1), &[need("axes", AttrKind::Ints)],
        Written::Inferred, view::infer_rev, view::index_rev, view::transpose_rev,
        PERMUTED, &["%x: f32[2,3] | rev %x {axes = [1]} : f32[2,3]"]);
    /// Reads place `o * stride + k * dilation` of each of `axes` at its place `o`, where `k` is the place on the
    /// axis of `along` beside it: what windows are made of.
    Skew = view("skew", Arity::Exactly(1), skew::SKEW, Written::Inferred,
        skew::infer_skew, skew::index_skew, skew::transpose_skew,
        LOST, &["%x: f32[2,6,3] | skew %x {axes = [1], along = [2], strides = [2], dilation = [1]} : f32[2,2,3]"]);
    /// The inverse of `skew`: every element goes back to where that read it, and the scalar to where it read nothing.
    Unskew = view("unskew", Arity::Exactly(2), skew::UNSKEW, Written::Inferred,
        skew::infer_unskew, skew::index_unskew, skew::transpose_unskew,
        LOST, &["%x: f32[2,2,3] | unskew %x, 0.0 {axes = [1], along = [2], strides = [2], dilation = [1], extents = [6]} : f32[2,6,3]",
          "%x: f32[2,3], %p: f32[] | unskew %x, %p {axes = [0], along = [1], strides = [1], dilation = [2], extents = [6]} : f32[6,3]"]);
    /// Repeats the whole this many times along each axis.
    Tile = composed("tile", Arity::Exactly(1), composed::TILE, composed::check_tile, composed::tile, D,
        &["%x: f32[2,3] | tile %x {counts = [2, 1]} : f32[4,3]", "%x: f32[2] | tile %x {counts = [0]} : f32[0]"]);

    // Windows.
    /// The windows along axes, each an axis of places with one of steps behind all other axes.
    Windows = composed("windows", Arity::Exactly(1), composed::WINDOWS, composed::check_windows, composed::windows, D,
        &["%x: f32[2,6] | windows %x {axes = [1], sizes = [3]} : f32[2,4,3]",
          "%x: f32[5,6] | windows %x {axes = [0, 1], sizes = [2, 2], strides = [2, 1], dilation = [1, 3]} : f32[2,3,2,2]"]);
    /// Sum over windows, an entry of each list for every axis; padding counts as 0.
    ReduceWindowSum = composed("reduce_window_sum", Arity::Exactly(1), composed::POOL, composed::check_pool,
        composed::pool_sum, D,
        &["%x: f32[2,5] | reduce_window_sum %x {window = [1, 3], strides = [1, 2]} : f32[2,2]",
          "%x: f32[4] | reduce_window_sum %x {window = [2], low = [1], high = [-1], base_dilation = [2], window_dilation = [3]} : f32[4]"]);
    /// Maximum over windows; padding counts as -inf; ties share the derivative equally.
    ReduceWindowMax = composed("reduce_window_max", Arity::Exactly(1), composed::POOL, composed::check_pool,
        composed::pool_max, D,
        &["%x: f32[4,5] | reduce_window_max %x {window = [2, 2], strides = [2, 1], low = [0, 1], high = [0, 0]} : f32[2,5]"]);
    /// Minimum over windows; padding counts as +inf; ties share the derivative equally.
    ReduceWindowMin = composed("reduce_window_min", Arity::Exactly(1), composed::POOL, composed::check_pool,
        composed::pool_min, D,
        &["%x: f32[4,5] | reduce_window_min %x {window = [2, 2], strides = [2, 2]} : f32[2,2]"]);
    /// Adds each element of the first operand to the place of the first maximum (`ge`) or minimum (`le`) of its
    /// window of the second, in zeros.
    SelectAndScatterAdd = composed("select_and_scatter_add", Arity::Exactly(2), composed::SELECT,
        composed::check_select, composed::select_and_scatter_add, D,
        &["%s: f32[2,4], %x: f32[4,5] | select_and_scatter_add %s, %x {window = [2, 2], strides = [2, 1], select = ge} : f32[4,5]",
          "%s: f32[3], %x: f32[4] | select_and_scatter_add %s, %x {window = [3], strides = [2], low = [1], high = [2], select = le} : f32[4]"]);
    /// Convolution (correlation) of a batch with a kernel; layouts by specs, groups of features or of batches (the
    /// group is the slower part of an axis).
    ConvGeneralDilated = composed("conv_general_dilated", Arity::Exactly(2), composed::CONVOLUTION,
        composed::check_convolution, composed::convolution, D,
        &["%x: f32[2,3,5,4], %w: f32[2,3,2,2] | conv_general_dilated %x, %w : f32[2,2,4,3]",
          "%x: f32[2,5,4,3], %w: f32[2,2,3,2] | conv_general_dilated %x, %w {strides = [2, 1], low = [1, 0], high = [0, 1], lhs_spec = [0, 3, 1, 2], rhs_spec = [3, 2, 0, 1], out_spec = [0, 3, 1, 2]} : f32[2,3,4,2]",
          "%x: f32[1,4,5], %w: f32[6,2,2] | conv_general_dilated %x, %w {low = [-1], high = [2], lhs_dilation = [2], rhs_dilation = [3], feature_group_count = 2} : f32[1,6,7]",
          "%x: f32[4,2,5], %w: f32[6,2,2] | conv_general_dilated %x, %w {batch_group_count = 2} : f32[2,6,4]"]);

    // Reductions and scans.
    /// Sum over axes.
    ReduceSum = reduce("reduce_sum", reduce::AXES, reduce::infer_number, Monoid::Sum, D,
        Deriv::Linear(LinearSlots::All, reduce::transpose_sum),
        &["%x: f32[2,3,4] | reduce_sum %x {axes = [0, 2]} : f32[3]",
          "%x: f32[0,3] | reduce_sum %x {axes = [0]} : f32[3]"]);
    /// Product over axes.
    ReduceProd = reduce("reduce_prod", reduce::AXES, reduce::infer_number, Monoid::Prod, D,
        Deriv::Jvp(reduce::jvp_prod), &["%x: f32[2,3] | reduce_prod %x {axes = [1]} : f32[2]"]);
    /// Maximum over axes; ties share the derivative equally.
    ReduceMax = reduce("reduce_max", reduce::AXES, reduce::infer_ordered, Monoid::Max, D,
        Deriv::Jvp(reduce::jvp_extremum), &["%x: f32[2,3] | reduce_max %x {axes = [1]} : f32[2]"]);
    /// Minimum over axes; ties share the derivative equally.
    ReduceMin = reduce("reduce_min", reduce::AXES, reduce::infer_ordered, Monoid::Min, D,
        Deriv::Jvp(reduce::jvp_extremum), &["%x: f32[2,3] | reduce_min %x {axes = [1]} : f32[2]"]);
    /// Conjunction (bitwise on integers) over axes.
    ReduceAnd = reduce("reduce_and", reduce::AXES, reduce::infer_bits, Monoid::And, INTS, Deriv::Zero,
        &["%x: bool[2,3] | reduce_and %x {axes = [1]} : bool[2]"]);
    /// Disjunction (bitwise on integers) over axes.
    ReduceOr = reduce("reduce_or", reduce::AXES, reduce::infer_bits, Monoid::Or, INTS, Deriv::Zero,
        &["%x: bool[2,3] | reduce_or %x {axes = [1]} : bool[2]"]);
    /// Index of the first maximum along an axis; NaN counts as the largest.
    Argmax = reduce("argmax", reduce::AXIS, reduce::infer_arg, Monoid::ArgMax, D, Deriv::Zero,
        &["%x: f32[2,3] | argmax %x {axis = 1} : i32[2]"]);
    /// Index of the first minimum along an axis; NaN counts as the smallest.
    Argmin = reduce("argmin", reduce::AXIS, reduce::infer_arg, Monoid::ArgMin, D, Deriv::Zero,
        &["%x: f32[2,3] | argmin %x {axis = 1} : i32[2]"]);
    /// Running sum along an axis.
    Cumsum = other("cumsum", Arity::Exactly(1),
        &[need("axis", AttrKind::Int), maybe("reverse", AttrKind::Bool, Attr0::False)], Written::Inferred,
        reduce::infer_scan, Body::Scan(Monoid::Sum), D,
        Deriv::Linear(LinearSlots::All, reduce::transpose_cumsum),
        &["%x: f32[2,3] | cumsum %x {axis = 1} : f32[2,3]",
          "%x: f32[2,3] | cumsum %x {axis = 0, reverse = true} : f32[2,3]"]);
    /// Running product along an axis.
    Cumprod = composed("cumprod", Arity::Exactly(1), composed::RUNNING, composed::check_running, composed::cumprod, D,
        &["%x: f32[2,3] | cumprod %x {axis = 1} : f32[2,3]",
          "%x: f32[5,3] | cumprod %x {axis = 0, reverse = true} : f32[5,3]"]);
    /// Running maximum along an axis.
    Cummax = composed("cummax", Arity::Exactly(1), composed::RUNNING, composed::check_running, composed::cummax, D,
        &["%x: f32[2,3] | cummax %x {axis = 1} : f32[2,3]"]);
    /// Running minimum along an axis.
    Cummin = composed("cummin", Arity::Exactly(1), composed::RUNNING, composed::check_running, composed::cummin, D,
        &["%x: f32[2,3] | cummin %x {axis = 1} : f32[2,3]"]);
    /// Running logarithm of the sum of exponentials along an axis.
    Cumlogsumexp = composed("cumlogsumexp", Arity::Exactly(1), composed::RUNNING, composed::check_float_running,
        composed::cumlogsumexp, D,
        &["%x: f32[2,3] | cumlogsumexp %x {axis = 1} : f32[2,3]"]);

    // Contraction.
    /// Sums of products over contracted axes; result axes: batch, then free ones of the first and of
    /// the second operand. A wider result type may be written.
    DotGeneral = other("dot_general", Arity::Exactly(2),
        &[maybe("batch", AttrKind::Pair, Attr0::EmptyPair), need("contract", AttrKind::Pair)],
        Written::Inferred, contract::infer_dot, Body::Contract, D,
        Deriv::Bilinear(contract::transpose_dot),
        &["%x: f32[2,3], %y: f32[3,4] | dot_general %x, %y {contract = [1] x [0]} : f32[2,4]",
          "%x: f32[2,3,4], %y: f32[4,2,5] | dot_general %x, %y {batch = [0] x [1], contract = [2] x [0]} : f32[2,3,5]",
          "%x: f32[3], %y: f32[3] | dot_general %x, %y {contract = [0] x [0]} : f32[]"]);
    /// Values weighed by the softmax of the scores of queries `[.., heads, rows, depth]` and keys
    /// `[.., groups, stream, depth]`, and the logarithm of each row's sum of exponentials; scores are never stored. Groups
    /// divide heads. A fourth operand, of the extents of scores or 1, is added to scores, or hides keys where it is false. With
    /// `causal`, row i sees keys up to its place, i + stream - rows; with `window = [before, after]` it sees `before` keys
    /// before its place and `after` keys after it, or all of them where that is -1. A row that sees no key is NaN, and so is one whose scores are -inf.
    Attention = other("attention", Arity::AtLeast(3), attention::ATTENTION, Written::Inferred,
        attention::infer_attention, Body::Step(attention::FORWARD), D,
        Deriv::Rules(attention::jvp, attention::vjp), attention::EXAMPLES);
    /// The cotangents of queries, keys and values of `attention`, from its first three operands, the logarithms of sums that
    /// it gave, the cotangent of its first result, the sum of the products of both along each row, and its mask or bias. With
    /// `bias_grad`, also that of scores.
    AttentionGrad = other("attention_grad", Arity::AtLeast(6), attention::ATTENTION_GRAD, Written::Inferred,
        attention::infer_attention_grad, Body::Step(attention::BACKWARD), D, Deriv::Structural,
        attention::GRAD_EXAMPLES);

    // Indirect access.
    /// Reads slices of the first operand at the start indices in the last axis of the second.
    Gather = other("gather", Arity::Exactly(2), indirect::GATHER_ATTRS, Written::Inferred,
        indirect::infer_gather, Body::Indirect(Indirect::Gather), &[Domain::Normal, Domain::Ints(0, 4)],
        Deriv::Linear(LinearSlots::Only(&[0]), indirect::transpose_gather),
        &["%x: f32[5,3], %i: i32[2,1] | gather %x, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 3], mode = clip} : f32[2,3]",
          "%x: f32[5,3], %i: i32[4,2] | gather %x, %i {offset_dims = [1, 2], collapsed = [], start_map = [0, 1], sizes = [2, 2], mode = fill} : f32[4,2,2]"]);
    /// Adds slices of the third operand to the first at the start indices in the second, in index order.
    ScatterAdd = other("scatter_add", Arity::Exactly(3), indirect::SCATTER_ATTRS, Written::Inferred,
        indirect::infer_scatter, Body::Indirect(Indirect::Scatter(Update::Add)),
        &[Domain::Normal, Domain::Ints(0, 4), Domain::Normal],
        Deriv::Linear(LinearSlots::Only(&[0, 2]), indirect::transpose_scatter_add),
        &["%x: f32[5,3], %i: i32[2,1], %u: f32[2,3] | scatter_add %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = clip} : f32[5,3]"]);
    /// Puts slices of the third operand into the first at the start indices in the second; of several at one place the
    /// last stays.
    Scatter = other("scatter", Arity::Exactly(3), indirect::SCATTER_ATTRS, Written::Inferred,
        indirect::infer_scatter, Body::Indirect(Indirect::Scatter(Update::Set)),
        &[Domain::Normal, Domain::Ints(0, 4), Domain::Normal],
        Deriv::Linear(LinearSlots::Only(&[0, 2]), indirect::transpose_scatter),
        &["%x: f32[5,3], %i: i32[2,1], %u: f32[2,3] | scatter %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = clip} : f32[5,3]",
          "%x: f32[4], %i: i32[9,1], %u: f32[9] | scatter %x, %i, %u {window_dims = [], inserted = [0], start_map = [0], mode = drop} : f32[4]"]);
    /// The larger of an element and the slices of the third operand at the start indices in the second; ties share the
    /// derivative equally.
    ScatterMax = other("scatter_max", Arity::Exactly(3), indirect::SCATTER_ATTRS, Written::Inferred,
        indirect::infer_scatter, Body::Indirect(Indirect::Scatter(Update::Max)),
        &[Domain::Normal, Domain::Ints(0, 4), Domain::Normal], Deriv::Jvp(indirect::jvp_scatter_extremum),
        &["%x: f32[5,3], %i: i32[2,1], %u: f32[2,3] | scatter_max %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = clip} : f32[5,3]"]);
    /// The smaller of an element and the slices of the third operand at the start indices in the second; ties share the
    /// derivative equally.
    ScatterMin = other("scatter_min", Arity::Exactly(3), indirect::SCATTER_ATTRS, Written::Inferred,
        indirect::infer_scatter, Body::Indirect(Indirect::Scatter(Update::Min)),
        &[Domain::Normal, Domain::Ints(0, 4), Domain::Normal], Deriv::Jvp(indirect::jvp_scatter_extremum),
        &["%x: f32[4,3], %i: i32[5,1], %u: f32[5,2] | scatter_min %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = drop} : f32[4,3]"]);
    /// The slice of the given sizes at scalar start indices, which are clamped to fit.
    DynamicSlice = other("dynamic_slice", Arity::AtLeast(1), &[need("sizes", AttrKind::Ints)],
        Written::Inferred, indirect::infer_dynamic_slice, Body::Indirect(Indirect::DynamicSlice),
        &[Domain::Normal, Domain::Ints(-1, 4)],
        Deriv::Linear(LinearSlots::Only(&[0]), indirect::transpose_dynamic_slice),
        &["%x: f32[5,3], %i: i32[], %j: i32[] | dynamic_slice %x, %i, %j {sizes = [2, 3]} : f32[2,3]"]);
    /// The first operand with the second written at scalar start indices, which are clamped to fit.
    DynamicUpdateSlice = other("dynamic_update_slice", Arity::AtLeast(2), &[], Written::Inferred,
        indirect::infer_dynamic_update_slice, Body::Indirect(Indirect::DynamicUpdateSlice),
        &[Domain::Normal, Domain::Normal, Domain::Ints(-1, 4)],
        Deriv::Linear(LinearSlots::Only(&[0, 1]), indirect::transpose_dynamic_update_slice),
        &["%x: f32[5,3], %u: f32[2,2], %i: i32[], %j: i32[] | dynamic_update_slice %x, %u, %i, %j : f32[5,3]"]);

    // Order.
    /// Places of the elements along an axis in ascending order: equal ones as they come, -0 and +0 among them, NaN
    /// after all numbers. `descending` has larger elements first, NaN before all, and equal ones as they come;
    /// `count` leaves the first this many.
    Argsort = other("argsort", Arity::Exactly(1), order::ARGSORT, Written::Inferred, order::infer_argsort,
        Body::Indirect(Indirect::Argsort), D, Deriv::Zero,
        &["%x: f32[2,3] | argsort %x {axis = 1} : i32[2,3]",
          "%x: f32[4,3] | argsort %x {axis = 0, descending = true, count = [2]} : i32[2,3]"]);
    /// Elements along an axis in the order of `argsort`.
    Sort = composed("sort", Arity::Exactly(1), composed::SORT, composed::check_sort, composed::sort, D,
        &["%x: f32[2,3] | sort %x {axis = 1} : f32[2,3]",
          "%x: f32[4,3] | sort %x {axis = 0, descending = true} : f32[4,3]",
          "%x: f32[0,3] | sort %x {axis = 0} : f32[0,3]"]);
    /// The first operand in the order of `argsort` along an axis, and the second in the same order.
    SortKeyVal = composed("sort_key_val", Arity::Exactly(2), composed::SORT, composed::check_sort_key_val,
        composed::sort_key_val, D,
        &["%k: f32[2,3], %v: f32[2,3] | sort_key_val %k, %v {axis = 1} : f32[2,3], f32[2,3]"]);
    /// The `k` largest elements along the last axis, largest first, and their places: of equal ones the first, NaN
    /// before all numbers.
    TopK = composed("top_k", Arity::Exactly(1), composed::TOP_K, composed::check_top_k, composed::top_k, D,
        &["%x: f32[2,4] | top_k %x {k = 1} : f32[2,1], i32[2,1]",
          "%x: f32[2,4] | top_k %x {k = 3} : f32[2,3], i32[2,3]"]);

    // Eight bits.
    /// `clamp(round(x / scale) + zero)` in `i8`, halves to even; the scale of the operand's type and the zero point of
    /// `i8` are scalars or lie along one axis; NaN gives the zero point.
    Quantize = composed("quantize", Arity::Exactly(3), composed::PER_AXIS, composed::check_quantize,
        composed::quantize, &[Domain::Normal, Domain::Uniform(0.1, 0.4), Domain::Ints(-10, 10)],
        &["%x: f32[2,3], %s: f32[] | quantize %x, %s, 3 : i8[2,3]",
          "%x: f32[2,3], %s: f32[3], %z: i8[3] | quantize %x, %s, %z {axis = [1]} : i8[2,3]"]);
    /// `(q - zero) * scale` in the scale's type.
    Dequantize = composed("dequantize", Arity::Exactly(3), composed::PER_AXIS, composed::check_dequantize,
        composed::dequantize, &[Domain::Ints(-100, 100), Domain::Uniform(0.1, 0.4), Domain::Ints(-10, 10)],
        &["%q: i8[2,3], %s: f32[] | dequantize %q, %s, -3 : f32[2,3]",
          "%q: i8[2,3], %s: f32[2], %z: i8[2] | dequantize %q, %s, %z {axis = [0]} : f32[2,3]"]);

    // Sources.
    /// Values written in the program, row-major.
    Constant = other("constant", Arity::Exactly(0), &[need("values", AttrKind::Literals)], Written::Must,
        source::infer_constant, Body::Constant, D, Deriv::Zero,
        &["| constant {values = dense [1.0, 2.5, -3.0]} : f32[3]"]);
    /// The coordinate along an axis.
    Iota = other("iota", Arity::Exactly(0), &[need("axis", AttrKind::Int)], Written::Must,
        source::infer_iota, Body::Source(source::iota), D, Deriv::Zero,
        &["| iota {axis = 1} : i32[2,3]"]);
    /// Random bits of the counter-based generator Philox-4x32-10: key from the seed, stream from the
    /// offset, block from the element's position. A pure function: recomputing gives the same bits.
    RngBits = other("rng_bits", Arity::Exactly(2), &[], Written::Must, source::infer_rng,
        Body::Source(source::philox), INTS, Deriv::Zero,
        &["%s: i64[], %o: i64[] | rng_bits %s, %o : u32[5]"]);

    // Control and effects.
    /// The results of one of two regions, by a scalar condition.
    Cond = region("cond", Arity::Exactly(1), &[], &["then", "else"], control::infer_cond, Control::Branch,
        &["%p: bool[], %x: f32[3] | cond %p : f32[3] then { yield %x } else { %y = neg %x : f32[3] yield %y }"]);
    /// The results of the region with a number, the first where it is negative, the last where it is too large.
    Switch = region("switch", Arity::Exactly(1), &[], &["case"], control::infer_switch, Control::Branch,
        &["%i: i32[], %x: f32[3] | switch %i : f32[3] case { yield %x } case { %y = neg %x : f32[3] yield %y } case { yield 0.0 }"]);
    /// A region repeated over the elements of its operands along their first axes. The first `carry` operands are
    /// handed from step to step; the region is entered with them and with an element of each other operand, and ends with
    /// their next values and with elements that are stacked. With `reverse` it goes from the last element to the first;
    /// `length` is needed where nothing is scanned or stacked. `unroll` says how many steps an engine had better write out at a
    /// time; it changes no value, and no engine follows it yet.
    Scan = region("scan", Arity::AtLeast(0), control::SCAN, &["body"], control::infer_scan_loop,
        Control::Loop(control::SCAN_ROW),
        &["%h: f32[3], %xs: f32[5,3] | scan %h, %xs {carry = 1} : f32[3], f32[5,3] body(%c: f32[3], %x: f32[3]) { %n = add %c, %x : f32[3] yield %n, %c }"]);
    /// A region repeated for each integer from the first operand to before the second. It is entered with the
    /// integer and the values that are handed from step to step, and ends with their next values.
    Fori = region("fori", Arity::AtLeast(2), &[], &["body"], control::infer_fori,
        Control::Loop(control::FORI_ROW),
        &["%n: i32[], %x: f32[3] | fori 0, %n, %x : f32[3] body(%i: i32[], %c: f32[3]) { %y = sin %c : f32[3] yield %y }"]);
    /// A region repeated while another, entered with the same values, gives true. Where there are more than
    /// `max_trips` steps, if that is not 0, running is an error.
    While = region("while", Arity::AtLeast(0), control::WHILE, &["cond", "body"], control::infer_while, Control::While,
        &["%x: f32[] | while %x : f32[] cond(%c: f32[]) { %p = lt %c, 10.0 : bool[] yield %p } body(%d: f32[]) { %y = add %d, 3.0 : f32[] yield %y }"]);
    /// A loop and its way back: `step` is repeated as in a scan, then `back` once for each step, from the last to
    /// the first, entered with the position, with what the step was entered with, with values that are handed from step
    /// to step on the way back, and with elements of further operands. It is what reverse mode makes of loops. Operands:
    /// the number of steps if `counted`, `carry` values, `up` values handed back, `xs` scanned by both regions, the others
    /// scanned on the way back. Results: carries, values handed back, `ys` stacks of `step`, stacks of `back`. What `back` is
    /// entered with is kept or computed again: at most `checkpoints` steps are kept at a time; where that is 0, engines
    /// that plan decide.
    Adjoint = region("adjoint", Arity::AtLeast(0), control::ADJOINT, &["step", "back"], control::infer_adjoint,
        Control::Loop(control::ADJOINT_ROW),
        &["%n: i64[], %x: f32[], %a: f32[] | adjoint %n, %x, %a {counted = true, carry = 1, up = 1} : f32[], f32[] step(%i: i64[], %c: f32[]) { %y = sin %c : f32[] yield %y } back(%j: i64[], %d: f32[], %b: f32[]) { %z = cos %d : f32[] %w = mul %b, %z : f32[] yield %w }"]);
    /// The results of a function of the module.
    Call = region("call", Arity::AtLeast(0), &[need("func", AttrKind::Func)], &[], control::infer_call,
        Control::Call, &[]);
    /// The result of a function that the engine's user gives under this name. It is pure: it may be left out, or called
    /// again. Its derivative is that of a function with a rule that calls it; `batched` names the function over a batch,
    /// and what a call costs is told by `operations`, `bytes` beside operands and result, and bytes of `scratch`. With a token
    /// for its first operand it may act, happens once in the order of tokens, and gives a token before its result.
    Opaque = other("opaque", Arity::AtLeast(0), opaque::OPAQUE, Written::Must, opaque::infer_opaque,
        Body::Opaque, D, Deriv::Structural, &[]);
    /// Starts a chain of effects.
    CreateToken = other("create_token", Arity::Exactly(0), &[], Written::Inferred, control::infer_start,
        Body::Effect(Effect::Start), D, Deriv::Zero, &["| create_token : token"]);
    /// Writes a tensor to the error stream, in the order of its token.
    DebugPrint = other("debug_print", Arity::Exactly(2), &[need("label", AttrKind::Str)], Written::Inferred,
        control::infer_print, Body::Effect(Effect::Print), D, Deriv::Zero,
        &["%t: token, %x: f32[3] | debug_print %t, %x {label = \"x\"} : token"]);
    } };
}
pub(super) use for_each_op;
