//! Results that are numbers: kernels that fill them.

use adfuse_ir::Literal;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Kernel, Program, Sink, Stage};
use adfuse_ir::scalar::{SInst, SOp, ScalarProgram};
use smallvec::SmallVec;

/// A kernel that fills a buffer with one value.
pub(super) fn fill(program: &Program, out: Buffer, value: Literal) -> Kernel {
    let mut code = ScalarProgram::default();
    let (op, dtype) = (SOp::Const(value), value.dtype());
    let v = code.insts.push(SInst { op, args: SmallVec::new(), dtype });
    code.outputs.push(v);
    let domain = program.buffers[out].dims.clone();
    let index = (0..domain.len()).map(IndexExpr::axis).collect();
    let sinks = vec![Sink::Store { buffer: out, index }];
    let stage = Stage { program: code, sinks, ..Stage::default() };
    Kernel { name: "fill".into(), domain, stages: vec![stage], ..Kernel::default() }
}
