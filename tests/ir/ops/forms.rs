//! Naive formulas that `stabilize` rewrites, and similar formulas that it leaves alone.

/// The rule that fires, the type of `%y`, and instructions from `%x` of type `T` to `%y`. `T` has the
/// extents 4 and 5, `R` the first of them, `C` the second, `K` is 4 by 1, `Q` 4 by 4 and `S` has no axes.
pub(crate) const FORMS: &[(&str, &str, &str)] = &[
    ("softplus", "T", "%e = exp %x : T %s = add %e, 1.0 : T %y = log %s : T"),
    (
        "softplus",
        "T",
        "%one = broadcast_in_dim 1.0 {dims = []} : T
        %a = mul %x, -0.5 : T %e = exp %a : T %s = add %one, %e : T %y = log %s : T",
    ),
    ("softplus", "T", "%e = exp %x : T %y = log1p %e : T"),
    (
        "softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [0]} : C
        %b = broadcast_in_dim %z {dims = [1]} : T %y = div %e, %b : T",
    ),
    (
        "softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [0, 1]} : S
        %b = broadcast_in_dim %z {dims = []} : T %y = div %e, %b : T",
    ),
    (
        "softmax",
        "T",
        "%a = mul %x, -0.5 : T %e = exp %a : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "softmax",
        "T",
        "%e = exp %x : T %e2 = exp %x : T %z = reduce_sum %e2 {axes = [1]} : R
        %k = reshape %z : K %b = broadcast_in_dim %k {dims = [0, 1]} : T %y = div %e, %b : T",
    ),
    (
        "softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %k = broadcast_in_dim %z {dims = [0]} : K %b = broadcast_in_dim %k {dims = [0, 1]} : T
        %y = div %e, %b : T",
    ),
    (
        "softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R %r = div 1.0, %z : R
        %b = broadcast_in_dim %r {dims = [0]} : T %y = mul %e, %b : T",
    ),
    (
        "softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %k = reshape %z : K %r = integer_pow %k {y = -1} : K
        %b = broadcast_in_dim %r {dims = [0, 1]} : T %y = mul %b, %e : T",
    ),
    (
        "softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %one = broadcast_in_dim 1.0 {dims = []} : T
        %r = div %one, %b : T %y = mul %e, %r : T",
    ),
    // Shifted, but by the maximum over another axis, or by a minimum.
    (
        "softmax",
        "T",
        "%m = reduce_max %x {axes = [0]} : C %mb = broadcast_in_dim %m {dims = [1]} : T
        %s = sub %x, %mb : T %e = exp %s : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "softmax",
        "T",
        "%m = reduce_min %x {axes = [1]} : R %mb = broadcast_in_dim %m {dims = [0]} : T
        %s = sub %x, %mb : T %e = exp %s : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "log-softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %p = div %e, %b : T %y = log %p : T",
    ),
    (
        "log-softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %r = div 1.0, %z : R %b = broadcast_in_dim %r {dims = [0]} : T %p = mul %e, %b : T
        %y = log %p : T",
    ),
    (
        "log-softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R %l = log %z : R
        %b = broadcast_in_dim %l {dims = [0]} : T %y = sub %x, %b : T",
    ),
    (
        "log-softmax",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [0]} : C
        %b = broadcast_in_dim %z {dims = [1]} : T %l = log %b : T %y = sub %x, %l : T",
    ),
    (
        "log-softmax",
        "T",
        "%m = reduce_max %x {axes = [1]} : R
        %mb = broadcast_in_dim %m {dims = [0]} : T %s = sub %x, %mb : T %e = exp %s : T
        %z = reduce_sum %e {axes = [1]} : R %b = broadcast_in_dim %z {dims = [0]} : T
        %p = div %e, %b : T %y = log %p : T",
    ),
    ("logsumexp", "R", "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R %y = log %z : R"),
    ("logsumexp", "S", "%e = exp %x : T %z = reduce_sum %e {axes = [0, 1]} : S %y = log %z : S"),
    (
        "logsumexp",
        "K",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R %r = rev %z {axes = [0]} : R
        %k = reshape %r : K %y = log %k : K",
    ),
    (
        "variance",
        "R",
        "%q = mul %x, %x : T %a = reduce_sum %q {axes = [1]} : R %b = mul %a, 0.2 : R
        %c = reduce_sum %x {axes = [1]} : R %m = mul %c, 0.2 : R %d = mul %m, %m : R
        %y = sub %b, %d : R",
    ),
    (
        "variance",
        "C",
        "%q = square %x : T %a = reduce_sum %q {axes = [0]} : C %b = div %a, 4.0 : C
        %c = reduce_sum %x {axes = [0]} : C %m = mul 0.25, %c : C %d = integer_pow %m {y = 2} : C
        %y = sub %b, %d : C",
    ),
    (
        "variance",
        "S",
        "%q = integer_pow %x {y = 2} : T %a = reduce_sum %q {axes = [0, 1]} : S
        %b = div %a, 20.0 : S %c = reduce_sum %x {axes = [0, 1]} : S %m = div %c, 20.0 : S
        %d = square %m : S %y = sub %b, %d : S",
    ),
    (
        "variance",
        "K",
        "%q = square %x : T %a = reduce_sum %q {axes = [1]} : R %b = div %a, 5.0 : R
        %bk = reshape %b : K %c = reduce_sum %x {axes = [1]} : R %ck = reshape %c : K
        %m = div %ck, 5.0 : K %d = square %m : K %y = sub %bk, %d : K",
    ),
];

/// Forms like those of rules that are none, or are stable already.
pub(crate) const BESIDE: &[(&str, &str, &str)] = &[
    (
        "another axis",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [0]} : C
        %s = slice %z {start = [0], limit = [4], stride = [1]} : R
        %b = broadcast_in_dim %s {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "other exponents",
        "T",
        "%e = exp %x : T %n = neg %x : T %g = exp %n : T
        %z = reduce_sum %g {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "a sum that is held fixed",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %f = stop_gradient %z : R %b = broadcast_in_dim %f {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "the sum above",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %y = div %b, %e : T",
    ),
    (
        "more than the sum",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %o = add %z, 1.0 : R %b = broadcast_in_dim %o {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "twice the reciprocal",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %r = div 2.0, %z : R %b = broadcast_in_dim %r {dims = [0]} : T %y = mul %e, %b : T",
    ),
    (
        "rows in another order",
        "T",
        "%e = exp %x : T %z = reduce_sum %e {axes = [1]} : R
        %v = rev %z {axes = [0]} : R %b = broadcast_in_dim %v {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "rows spread along columns",
        "Q",
        "%q = slice %x {start = [0, 0], limit = [4, 4], stride = [1, 1]} : Q %e = exp %q : Q
        %z = reduce_sum %e {axes = [1]} : R %b = broadcast_in_dim %z {dims = [1]} : Q
        %y = div %e, %b : Q",
    ),
    (
        "rows reshaped to a column",
        "Q",
        "%q = slice %x {start = [0, 0], limit = [4, 4], stride = [1, 1]} : Q %e = exp %q : Q
        %z = reduce_sum %e {axes = [0]} : R %k = reshape %z : K
        %b = broadcast_in_dim %k {dims = [0, 1]} : Q %y = div %e, %b : Q",
    ),
    (
        "a sum of squares",
        "T",
        "%e = square %x : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "shifted",
        "T",
        "%m = reduce_max %x {axes = [1]} : R %mb = broadcast_in_dim %m {dims = [0]} : T
        %s = sub %x, %mb : T %e = exp %s : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "shifted by a fixed maximum",
        "T",
        "%f = stop_gradient %x : T %m = reduce_max %f {axes = [1]} : R
        %g = stop_gradient %m : R %k = reshape %g : K %mb = broadcast_in_dim %k {dims = [0, 1]} : T
        %s = sub %x, %mb : T %e = exp %s : T %z = reduce_sum %e {axes = [1]} : R
        %b = broadcast_in_dim %z {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "shifted by a maximum with a bound and a view in between",
        "T",
        "%m = reduce_max %x {axes = [1]} : R %n = max -inf, %m : R %k = reshape %n : K %g = stop_gradient %k : K
        %b = broadcast_in_dim %g {dims = [0, 1]} : T %d = sub %x, %b : T %e = exp %d : T
        %z = reduce_sum %e {axes = [1]} : R %c = broadcast_in_dim %z {dims = [0]} : T %y = div %e, %c : T",
    ),
    (
        "shifted by a guarded maximum, then scaled",
        "R",
        "%m = reduce_max %x {axes = [1]} : R
        %c = max %m, -1e30 : R %n = neg %c : R %mb = broadcast_in_dim %n {dims = [0]} : T
        %s = add %mb, %x : T %h = mul %s, 0.5 : T %e = exp %h : T
        %z = reduce_sum %e {axes = [1]} : R %y = log %z : R",
    ),
    (
        "log-softmax, shifted",
        "T",
        "%m = reduce_max %x {axes = [1]} : R
        %f = stop_gradient %m : R %mb = broadcast_in_dim %f {dims = [0]} : T
        %s = sub %x, %mb : T %e = exp %s : T %z = reduce_sum %e {axes = [1]} : R %l = log %z : R
        %b = broadcast_in_dim %l {dims = [0]} : T %y = sub %s, %b : T",
    ),
    (
        "another number",
        "R",
        "%q = mul %x, %x : T %a = reduce_sum %q {axes = [1]} : R
        %b = mul %a, 0.25 : R %c = reduce_sum %x {axes = [1]} : R %m = mul %c, 0.2 : R
        %d = mul %m, %m : R %y = sub %b, %d : R",
    ),
    (
        "both of another number",
        "R",
        "%q = mul %x, %x : T %a = reduce_sum %q {axes = [1]} : R
        %b = div %a, 4.0 : R %c = reduce_sum %x {axes = [1]} : R %m = div %c, 4.0 : R
        %d = mul %m, %m : R %y = sub %b, %d : R",
    ),
    (
        "a reciprocal divided by",
        "R",
        "%q = mul %x, %x : T %a = reduce_sum %q {axes = [1]} : R
        %b = div %a, 0.2 : R %c = reduce_sum %x {axes = [1]} : R %m = div %c, 0.2 : R
        %d = mul %m, %m : R %y = sub %b, %d : R",
    ),
    (
        "means over other axes",
        "R",
        "%q = mul %x, %x : T %a = reduce_sum %q {axes = [1]} : R
        %b = mul %a, 0.2 : R %c = reduce_sum %x {axes = [0, 1]} : S %m = mul %c, 0.05 : S
        %d = mul %m, %m : S %s = broadcast_in_dim %d {dims = []} : R %y = sub %b, %s : R",
    ),
    (
        "not squared",
        "R",
        "%q = mul %x, %x : T %a = reduce_sum %q {axes = [1]} : R %b = mul %a, 0.2 : R
        %c = reduce_sum %x {axes = [1]} : R %m = mul %c, 0.2 : R %y = sub %b, %m : R",
    ),
    (
        "cubes",
        "R",
        "%q = integer_pow %x {y = 3} : T %a = reduce_sum %q {axes = [1]} : R
        %b = mul %a, 0.2 : R %c = reduce_sum %x {axes = [1]} : R %m = mul %c, 0.2 : R
        %d = integer_pow %m {y = 3} : R %y = sub %b, %d : R",
    ),
    (
        "squares of something else",
        "R",
        "%n = exp %x : T %q = mul %n, %n : T
        %a = reduce_sum %q {axes = [1]} : R %b = mul %a, 0.2 : R
        %c = reduce_sum %x {axes = [1]} : R %m = mul %c, 0.2 : R %d = mul %m, %m : R
        %y = sub %b, %d : R",
    ),
    (
        "the other way round",
        "R",
        "%q = mul %x, %x : T %a = reduce_sum %q {axes = [1]} : R
        %b = mul %a, 0.2 : R %c = reduce_sum %x {axes = [1]} : R %m = mul %c, 0.2 : R
        %d = mul %m, %m : R %y = sub %d, %b : R",
    ),
];
