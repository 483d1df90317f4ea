//! Reports of executables about their steps and their memory.

/// A step as it runs. One step of a program may be several of these, such as attention.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StepReport {
    /// The number of the step of the program that it was made of.
    pub origin: usize,
    /// Its name.
    pub name: String,
    /// What makes its code, or does its work: `wide512`, `wide256` or `cranelift` and what else there is,
    /// `ptx`, `cublaslt`, `evaluator`, `copy`.
    pub generator: String,
    /// The work that is not in its machine code functions, one line each.
    pub notes: Vec<String>,
    /// Kernels launched on a device, calls of its library and copies; 0 on the host.
    pub launches: u32,
    /// Registers of a thread of the device, the most of its kernels.
    pub registers: u32,
    /// Bytes of memory of a device's thread's own outside of registers, the most of its kernels.
    pub local: u32,
}

/// Bytes that an executable holds, and those that a caller must hand it. On a device they are the device's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryReport {
    /// Of the arena, as the layout has it.
    pub arena: u64,
    /// Of what there is no room for in the arena, that of all threads.
    pub outside_arena: u64,
    /// Of the constants.
    pub constants: u64,
    /// Of what each thread has for itself.
    pub per_thread: u64,
    /// Of the inputs.
    pub inputs: u64,
    /// Of the outputs.
    pub outputs: u64,
    /// Of results that callers have dropped, kept for the next run: never more than `outputs`. A run on
    /// arrays takes them for its results, and one that brings memory for those frees them.
    pub spare: u64,
    /// Of the code.
    pub code: u64,
    /// How many functions the code is. 0 where an engine has no functions of its own.
    pub functions: u64,
    /// How many loops of the program run them: equal loops share a function.
    pub function_uses: u64,
}

impl MemoryReport {
    /// What a run takes: inputs, outputs, constants, the arena and what is outside of it. Each thread's own
    /// memory and the code are not in it.
    pub fn peak(&self) -> u64 {
        [self.inputs, self.outputs, self.constants, self.arena, self.outside_arena]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}
