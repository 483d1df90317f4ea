//! Users' kernels for GPUs with the same functions in Rust, and programs that call them.

use adfuse::functions::{Opaque, PtxKernel, PtxSource, Registry};
use adfuse::ir::{DType, TensorType};

const HEAD: &str = ".version 7.8\n.target sm_80\n.address_size 64\n\n";

/// 3 x + y, by blocks of 128 threads, each of which has one element. The entry points of this and of `select` have one name.
const AXPY: &str = ".visible .entry kernel(
  .param .u64 arg0,
  .param .u64 arg1,
  .param .u64 arg2,
  .param .u32 arg3
)
{
  .reg .pred %p;
  .reg .b32 %n, %b, %t, %i;
  .reg .b64 %x, %y, %z;
  .reg .f32 %u, %v;
  ld.param.u64 %x, [arg0];
  ld.param.u64 %y, [arg1];
  ld.param.u64 %z, [arg2];
  ld.param.u32 %n, [arg3];
  mov.u32 %b, %ctaid.x;
  mov.u32 %t, %tid.x;
  mad.lo.s32 %i, %b, 128, %t;
  setp.ge.s32 %p, %i, %n;
  @%p ret;
  mad.wide.s32 %x, %i, 4, %x;
  mad.wide.s32 %y, %i, 4, %y;
  mad.wide.s32 %z, %i, 4, %z;
  ld.global.f32 %u, [%x];
  ld.global.f32 %v, [%y];
  fma.rn.f32 %v, %u, 0f40400000, %v;
  st.global.f32 [%z], %v;
  ret;
}
";

/// x where the truth value holds, and 0 elsewhere.
const SELECT: &str = ".visible .entry kernel(
  .param .u64 arg0,
  .param .u64 arg1,
  .param .u64 arg2,
  .param .u64 arg3
)
{
  .reg .pred %p;
  .reg .b32 %b, %t, %i, %w, %n;
  .reg .b64 %c, %x, %z, %l, %m;
  .reg .f32 %u;
  ld.param.u64 %c, [arg0];
  ld.param.u64 %x, [arg1];
  ld.param.u64 %z, [arg2];
  ld.param.u64 %m, [arg3];
  mov.u32 %b, %ctaid.x;
  mov.u32 %t, %tid.x;
  mad.lo.s32 %i, %b, 64, %t;
  cvt.u32.u64 %n, %m;
  setp.ge.s32 %p, %i, %n;
  @%p ret;
  mad.wide.s32 %c, %i, 1, %c;
  mad.wide.s32 %x, %i, 4, %x;
  mad.wide.s32 %z, %i, 4, %z;
  ld.global.u8 %w, [%c];
  ld.global.f32 %u, [%x];
  setp.ne.s32 %p, %w, 0;
  selp.f32 %u, %u, 0f00000000, %p;
  st.global.f32 [%z], %u;
  ret;
}
";

/// The sums of rows of 32 from the last element to the first: a block a row, through shared and scratch memory.
const SUMS: &str = ".extern .shared .align 16 .b8 dynamic[];

.visible .entry reversed_sums(
  .param .u64 arg0,
  .param .u64 arg1,
  .param .u64 arg2
)
{
  .reg .pred %p;
  .reg .b32 %b, %t, %i, %at, %k;
  .reg .b64 %x, %z, %s;
  .reg .f32 %u, %sum;
  ld.param.u64 %x, [arg0];
  ld.param.u64 %z, [arg1];
  ld.param.u64 %s, [arg2];
  mov.u32 %b, %ctaid.x;
  mov.u32 %t, %tid.x;
  mad.lo.s32 %i, %b, 32, %t;
  mad.wide.s32 %x, %i, 4, %x;
  mad.wide.s32 %s, %b, 4, %s;
  mad.wide.s32 %z, %b, 4, %z;
  ld.global.f32 %u, [%x];
  mov.u32 %at, dynamic;
  mad.lo.s32 %at, %t, 4, %at;
  st.shared.f32 [%at], %u;
  bar.sync 0;
  setp.ne.s32 %p, %t, 0;
  @%p ret;
  mov.f32 %sum, 0f00000000;
  mov.u32 %k, 128;
$next:
  sub.s32 %k, %k, 4;
  mov.u32 %at, dynamic;
  add.s32 %at, %at, %k;
  ld.shared.f32 %u, [%at];
  add.rn.f32 %sum, %sum, %u;
  setp.gt.s32 %p, %k, 0;
  @%p bra $next;
  st.global.f32 [%s], %sum;
  ld.global.f32 %u, [%s];
  st.global.f32 [%z], %u;
  ret;
}
";

/// The transposed matrix, by blocks of 16 x 16 threads in a grid of two axes.
const TRANSPOSE: &str = ".visible .entry transposed(
  .param .u64 x,
  .param .u64 y,
  .param .u32 rows,
  .param .u32 cols
)
{
  .reg .pred %p, %q;
  .reg .b32 %n, %m, %i, %j, %a, %b, %at;
  .reg .b64 %x, %y;
  .reg .f32 %u;
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  ld.param.u32 %n, [rows];
  ld.param.u32 %m, [cols];
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %tid.x;
  mad.lo.s32 %j, %a, 16, %b;
  mov.u32 %a, %ctaid.y;
  mov.u32 %b, %tid.y;
  mad.lo.s32 %i, %a, 16, %b;
  setp.ge.s32 %p, %i, %n;
  setp.ge.s32 %q, %j, %m;
  or.pred %p, %p, %q;
  @%p ret;
  mad.lo.s32 %at, %i, %m, %j;
  mad.wide.s32 %x, %at, 4, %x;
  ld.global.f32 %u, [%x];
  mad.lo.s32 %at, %j, %n, %i;
  mad.wide.s32 %y, %at, 4, %y;
  st.global.f32 [%y], %u;
  ret;
}
";

/// The sources, by the names of their functions. The last takes threads along two axes.
pub(crate) const SOURCES: [(&str, PtxSource<'static>); 4] = [
    (
        "axpy",
        PtxSource {
            text: AXPY,
            entry: "kernel",
            signature: "(f32[n], f32[n]) -> f32[n]",
            grid: ["ceil_div(n, 128)", "1", "1"],
            block: ["128", "1", "1"],
            numbers: &["n"],
            operations: "2 * n",
            ..PtxSource::EMPTY
        },
    ),
    (
        "select",
        PtxSource {
            text: SELECT,
            entry: "kernel",
            signature: "(bool[a, b], f32[a, b]) -> f32[a, b]",
            grid: ["ceil_div(a * b, 64)", "1", "1"],
            block: ["64", "1", "1"],
            numbers: &["a * b"],
            ..PtxSource::EMPTY
        },
    ),
    (
        "reversed_sums",
        PtxSource {
            text: SUMS,
            entry: "reversed_sums",
            signature: "(f32[r, 32]) -> f32[r]",
            grid: ["r", "1", "1"],
            block: ["32", "1", "1"],
            shared: "4 * 32",
            scratch: "4 * r",
            operations: "32 * r",
            bytes: "8 * r",
            ..PtxSource::EMPTY
        },
    ),
    (
        "transposed",
        PtxSource {
            text: TRANSPOSE,
            entry: "transposed",
            signature: "(f32[n, m]) -> f32[m, n]",
            grid: ["ceil_div(m, 16)", "ceil_div(n, 16)", "1"],
            block: ["16", "16", "1"],
            numbers: &["n", "m"],
            ..PtxSource::EMPTY
        },
    ),
];

/// The kernel of a source, whose text gets its head.
pub(crate) fn kernel(source: PtxSource<'_>) -> PtxKernel {
    let text = format!("{HEAD}{}", source.text);
    PtxKernel::new(PtxSource { text: &text, ..source }).unwrap_or_else(|d| panic!("{d}"))
}

/// The functions of the sources, in PTX and in Rust.
pub(crate) fn functions() -> Registry {
    let kernels = SOURCES.map(|(_, source)| kernel(source));
    let [axpy, select, sums, transpose] = kernels;
    let axpy = Opaque::new(
        |types| Ok(types[0].clone()),
        |call| {
            let (x, y) = (call.args[0].elements::<f32>()?, call.args[1].elements::<f32>()?);
            let to = call.result.elements::<f32>()?;
            to.iter_mut().zip(x.iter().zip(y)).for_each(|(z, (x, &y))| *z = x.mul_add(3.0, y));
            Ok(())
        },
    )
    .with_kernel(axpy);
    let select = Opaque::new(
        |types| Ok(types[1].clone()),
        |call| {
            let (c, x) = (call.args[0].elements::<bool>()?, call.args[1].elements::<f32>()?);
            let to = call.result.elements::<f32>()?;
            to.iter_mut()
                .zip(c.iter().zip(x))
                .for_each(|(z, (&c, &x))| *z = if c { x } else { 0.0 });
            Ok(())
        },
    )
    .with_kernel(select);
    let sums = Opaque::new(
        |types| match types[0].dims().as_deref() {
            Some([rows, _]) => Ok(TensorType::of(DType::F32, &[*rows])),
            _ => Err("it takes a matrix".into()),
        },
        |call| {
            let rows = call.args[0].elements::<f32>()?.chunks(32);
            let to = call.result.elements::<f32>()?;
            to.iter_mut().zip(rows).for_each(|(z, row)| *z = row.iter().rev().sum());
            Ok(())
        },
    )
    .with_kernel(sums);
    let transpose = Opaque::new(
        |types| match types[0].dims().as_deref() {
            Some([n, m]) => Ok(TensorType::of(DType::F32, &[*m, *n])),
            _ => Err("it takes a matrix".into()),
        },
        |call| {
            let [n, m] = [0, 1].map(|k| call.args[0].dims()[k] as usize);
            let (x, to) = (call.args[0].elements::<f32>()?, call.result.elements::<f32>()?);
            (0..n * m).for_each(|at| to[at % m * n + at / m] = x[at]);
            Ok(())
        },
    )
    .with_kernel(transpose);
    let names = SOURCES.map(|(name, _)| name);
    let all = [axpy, select, sums, transpose];
    names.into_iter().zip(all).fold(Registry::new(), |r, (name, f)| r.with(name, f))
}

/// Calls among other kernels, with a gradient by a rule, in a loop whose elements are stacked, and of a function that the
/// program calls twice.
pub(crate) const PROGRAM: &str = "func @f(%x: f32[300], %y: f32[300], %r: f32[40,32], %v: f32[5,300]) -> (f32[300], f32[], f32[40], f32[5,300]) {
  %e = exp %x : f32[300]
  %0 = opaque %e, %y {name = \"axpy\"} : f32[300]
  %1 = opaque %0, %x {name = \"axpy\"} : f32[300]
  %s = reduce_sum %1 {axes = [0]} : f32[]
  %t = sin %r : f32[40,32]
  %q = opaque %t {name = \"reversed_sums\"} : f32[40]
  %c, %all = scan %y, %v {carry = 1} : f32[300], f32[5,300] body(%d: f32[300], %w: f32[300]) {
    %h = mul %d, 0.5 : f32[300]
    %n = opaque %h, %w {name = \"axpy\"} : f32[300]
    yield %n, %n
  }
  return %1, %s, %q, %all
}";

/// A packed operand, a strided one and a strided result, which kernels are given as dense tensors.
pub(crate) const LAYOUTS: &str = "program @layouts {
  input %c: bool[7, 33] as b1
  input %x: f32[7, 33] strides [1, 7]
  temp %t: f32[7, 33]
  output %y: f32[7, 33] strides [1, 7]
  %t = library @select(%c, %x)
  %y = library @select(%c, %t)
  return %y
}";
