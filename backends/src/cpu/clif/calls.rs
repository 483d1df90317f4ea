//! Helper functions that machine code calls for operations without an instruction.

use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::{AbiParam, FuncRef, Signature, Type, types};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::FunctionBuilder;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleResult};

/// A function that machine code may call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RuntimeFunction {
    Fmod64,
    Fma32,
    Fma64,
    /// From `f64`, rounded once.
    ToBf16,
    /// From `f64`, rounded once.
    ToF16,
}

const ALL: [(RuntimeFunction, &str); 5] = [
    (RuntimeFunction::Fmod64, "adfuse_fmod64"),
    (RuntimeFunction::Fma32, "adfuse_fma32"),
    (RuntimeFunction::Fma64, "adfuse_fma64"),
    (RuntimeFunction::ToBf16, "adfuse_to_bf16"),
    (RuntimeFunction::ToF16, "adfuse_to_f16"),
];

extern "C" fn fmod64(a: f64, b: f64) -> f64 {
    a % b
}

extern "C" fn fma32(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

extern "C" fn fma64(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}

extern "C" fn to_bf16(a: f64) -> i32 {
    Literal::from_f64(DType::BF16, a).bits() as i32
}

extern "C" fn to_f16(a: f64) -> i32 {
    Literal::from_f64(DType::F16, a).bits() as i32
}

macro_rules! rounding {
    ($($name:ident $t:ty, $op:ident;)*) => {
        $(extern "C" fn $name(a: $t) -> $t { a.$op() })*
    };
}

rounding! {
    floorf f32, floor; floor f64, floor; ceilf f32, ceil; ceil f64, ceil;
    truncf f32, trunc; trunc f64, trunc;
    nearbyintf f32, round_ties_even; nearbyint f64, round_ties_even;
}

/// Tells the linker of machine code where these functions are, and those that the code generator
/// itself calls where the host lacks an instruction.
pub(crate) fn provide(builder: &mut JITBuilder) {
    let places = [
        fmod64 as *const u8,
        fma32 as *const u8,
        fma64 as *const u8,
        to_bf16 as *const u8,
        to_f16 as *const u8,
    ];
    for ((_, name), place) in ALL.iter().zip(places) {
        builder.symbol(*name, place);
    }
    builder.symbol("floorf", floorf as *const u8);
    builder.symbol("floor", floor as *const u8);
    builder.symbol("ceilf", ceilf as *const u8);
    builder.symbol("ceil", ceil as *const u8);
    builder.symbol("truncf", truncf as *const u8);
    builder.symbol("trunc", trunc as *const u8);
    builder.symbol("nearbyintf", nearbyintf as *const u8);
    builder.symbol("nearbyint", nearbyint as *const u8);
    builder.symbol("fmaf", fma32 as *const u8);
    builder.symbol("fma", fma64 as *const u8);
}

/// The functions as a module of machine code knows them.
pub(crate) struct RuntimeFunctions {
    ids: Vec<(RuntimeFunction, FuncId)>,
}

impl RuntimeFunctions {
    // The error is the module's own, and made once at most.
    #[allow(clippy::result_large_err)]
    pub(crate) fn declare(module: &mut JITModule) -> ModuleResult<RuntimeFunctions> {
        let convention = module.target_config().default_call_conv;
        let declare = |&(call, name): &(RuntimeFunction, &str)| {
            let signature = signature(call, convention);
            Ok((call, module.declare_function(name, Linkage::Import, &signature)?))
        };
        Ok(RuntimeFunctions { ids: ALL.iter().map(declare).collect::<ModuleResult<_>>()? })
    }

    /// A reference to a function in the function that is built.
    pub(crate) fn get(
        &self,
        module: &mut JITModule,
        builder: &mut FunctionBuilder<'_>,
        call: RuntimeFunction,
    ) -> Option<FuncRef> {
        let (_, id) = self.ids.iter().find(|(c, _)| *c == call)?;
        Some(module.declare_func_in_func(*id, builder.func))
    }
}

fn signature(call: RuntimeFunction, convention: CallConv) -> Signature {
    let (arg, count, result): (Type, usize, Type) = match call {
        RuntimeFunction::Fmod64 => (types::F64, 2, types::F64),
        RuntimeFunction::Fma32 => (types::F32, 3, types::F32),
        RuntimeFunction::Fma64 => (types::F64, 3, types::F64),
        RuntimeFunction::ToBf16 | RuntimeFunction::ToF16 => (types::F64, 1, types::I32),
    };
    let mut signature = Signature::new(convention);
    signature.params = vec![AbiParam::new(arg); count];
    signature.returns = vec![AbiParam::new(result)];
    signature
}
