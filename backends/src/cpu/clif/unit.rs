//! The function that is being emitted through Cranelift.

use super::calls::RuntimeFunctions;
use super::state::{FoldLanes, TargetFeatures};
use crate::cpu::codegen::constants::Constants;
use cranelift_codegen::ir::{Value, types};
use cranelift_frontend::FunctionBuilder;
use cranelift_jit::JITModule;

/// What emits the instructions of one function.
pub(crate) struct FunctionEmitter<'m, 'f> {
    pub(crate) b: FunctionBuilder<'f>,
    pub(crate) module: &'m mut JITModule,
    pub(crate) calls: &'m RuntimeFunctions,
    pub(crate) constants: &'m mut Constants,
    /// Where the constants begin.
    pub(crate) constant_base: Value,
    /// Constants that are in registers all along a line, by their bits.
    pub(crate) held: Vec<(u128, Value)>,
    /// Those of the instruction that is being copied.
    pub(crate) recent: Vec<(u128, Value)>,
    /// Lanes of a block that are in registers.
    pub(crate) lanes: FoldLanes,
    pub(crate) target: TargetFeatures,
}

impl FunctionEmitter<'_, '_> {
    pub(crate) fn long(&mut self, x: i64) -> Value {
        self.int(types::I64, x)
    }
}
