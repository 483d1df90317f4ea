//! What is known of the GPUs that code is made for: one row of facts for each architecture.
//!
//! Every decision of [`crate::gpu::schedule`] reads these facts. Printed code has the 32 lanes of a warp in its shuffles,
//! and the planner has a model of its own for the time of a program (`fusion::MachineModel`). Thresholds that were found by
//! measuring are no facts: they are constants beside the decision that they belong to.

/// Threads of a warp: the same on every architecture, and the number of lanes of the lane order (`docs/fp.md`).
pub(crate) const WARP: i64 = 32;

/// An architecture: the instruction set that PTX is written for, and the machine that schedules are made for. A
/// driver takes the text on chips of that compute capability and later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GpuTarget {
    /// The name that assemblers know it by.
    pub name: &'static str,
    /// The compute capability, major and minor.
    pub capability: (u32, u32),
    /// Multiprocessors of the chip that grids are made large enough for.
    pub multiprocessors: u32,
    /// Registers of 32 bits of a multiprocessor.
    pub registers: u32,
    /// Registers of 32 bits that one thread may have.
    pub thread_registers: u32,
    /// Registers of a thread are allocated in multiples of this many.
    pub register_unit: u32,
    /// Registers of a block are allocated to multiples of this many threads: a warp for each scheduler.
    pub register_threads: u32,
    /// Bytes of shared memory that one block may have, its dynamic part raised by the driver's attribute.
    pub shared: u32,
    /// Bytes of shared memory that the driver takes for each block, besides what the block has.
    pub reserved_shared: u32,
    /// Threads that one block may have.
    pub block_threads: u32,
    /// Threads that a multiprocessor has at a time.
    pub resident_threads: u32,
    /// Blocks that a multiprocessor has at a time.
    pub resident_blocks: u32,
    /// Bytes along the depth of one step of a product whose tile has a multiprocessor to itself.
    pub deep_line: i64,
    /// Whether pairs of 16-bit floats are added, subtracted and multiplied, each rounded once (`add.rn.bf16x2`).
    pub pairs: bool,
    /// The version of PTX that the text is written in.
    pub ptx: &'static str,
    /// Whether groups of four warps multiply operands in shared memory (`wgmma`), which tensor maps bring there. No other
    /// chip than this one runs such text.
    pub warpgroups: bool,
}

impl GpuTarget {
    /// Compute capability 8.0: Ampere. An A100 has 108 multiprocessors; but this text also runs on every later chip, so
    /// grids are made for as many as the largest of them has.
    pub const SM80: GpuTarget = GpuTarget {
        name: "sm_80",
        capability: (8, 0),
        multiprocessors: 132,
        registers: 1 << 16,
        thread_registers: 255,
        register_unit: 8,
        register_threads: 128,
        // 164 KiB a multiprocessor.
        shared: 163 << 10,
        reserved_shared: 1 << 10,
        block_threads: 1024,
        resident_threads: 2048,
        resident_blocks: 32,
        deep_line: 64,
        pairs: false,
        ptx: "7.8",
        warpgroups: false,
    };

    /// Compute capability 9.0: Hopper, as an H100 or H200 has it.
    pub const SM90: GpuTarget = GpuTarget {
        name: "sm_90",
        capability: (9, 0),
        // 228 KiB a multiprocessor.
        shared: 227 << 10,
        // Longer steps have fewer barriers, and three of them fit.
        deep_line: 128,
        pairs: true,
        ..GpuTarget::SM80
    };

    /// Hopper with the instructions that it alone has: drivers from CUDA 12.0 on take the text.
    pub const SM90A: GpuTarget =
        GpuTarget { name: "sm_90a", ptx: "8.0", warpgroups: true, ..GpuTarget::SM90 };

    /// Every target, the oldest first.
    pub const ALL: [GpuTarget; 3] = [GpuTarget::SM80, GpuTarget::SM90, GpuTarget::SM90A];

    /// The target of a name.
    pub fn named(name: &str) -> Option<GpuTarget> {
        GpuTarget::ALL.into_iter().find(|t| t.name == name)
    }

    /// The newest target that a chip of this compute capability runs; none where it is older than all.
    pub fn of_capability(major: u32, minor: u32) -> Option<GpuTarget> {
        let chip = (major, minor);
        let runs = |t: &GpuTarget| t.capability == chip || t.capability < chip && !t.warpgroups;
        GpuTarget::ALL.into_iter().rfind(runs)
    }

    /// Threads of a block as registers are allocated to them: whole groups of warps.
    pub(crate) fn allocated_threads(&self, threads: i64) -> i64 {
        let unit = i64::from(self.register_threads);
        (threads + unit - 1) / unit * unit
    }

    /// Registers of a thread, in whole units, where this many threads share a multiprocessor.
    pub(crate) fn registers_of(&self, threads: i64) -> i64 {
        let unit = i64::from(self.register_unit);
        i64::from(self.registers) / threads / unit * unit
    }
}
