//! Descriptions of the machines that plans are made for.

mod bounds;
pub(crate) mod file;
mod product_rows;

use super::refusal::Refusal;
use adfuse_ir::kernel::ProductTimes;

/// What a plan must know of a machine. Numbers are data: those of the machines named here were
/// measured unless their constructor says otherwise; others come from a file
/// ([`MachineModel::from_toml`]).
///
/// A *core* is what one point of a kernel's domain runs on at a time; a *lane* is one of the elements
/// that a core computes side by side.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineModel {
    /// Its name.
    pub name: String,
    /// Bytes a second between the processor and its memory, reads and writes together.
    pub memory_bytes_per_s: f64,
    /// Bytes a second where a kernel's tensors stay in the last cache, reads and writes together.
    pub cache_bytes_per_s: f64,
    /// Bytes a second that one core alone moves.
    pub core_bytes_per_s: f64,
    /// Bytes a second between the caller's memory and the device's.
    pub host_bytes_per_s: f64,
    /// Bytes a second that a rank is sent by others.
    pub link_bytes_per_s: f64,
    /// Seconds to begin an exchange between ranks.
    pub link_s: f64,
    /// Bytes of the last cache.
    pub cache_bytes: u64,
    /// Primitive operations on `f32` a second, all cores and lanes together; 64-bit types take twice
    /// as long.
    pub ops_per_s: f64,
    /// Primitive operations that take as long as to read or store an element by itself, a fixed step from
    /// the one before.
    pub stride_ops: f64,
    /// The same, where each element is in a line of the cache of its own, and code goes from one to the next.
    pub far_ops: f64,
    /// The same, for a function that is called for an element.
    pub call_ops: f64,
    /// The same, for a call of a loop's code.
    pub run_ops: f64,
    /// The same, for beginning an innermost loop.
    pub line_ops: f64,
    /// The same, for an element whose place is computed from data, a quotient or a remainder.
    pub place_ops: f64,
    /// The same, for an element before which it has to be found out whether, or from where, it is read.
    pub branch_ops: f64,
    /// The same, for going on where a guard cuts a line of elements.
    pub cut_ops: f64,
    /// The same, for an element that is folded by itself: of a line or a column too short for vectors, or of a chain
    /// along a line.
    pub fold_ops: f64,
    /// The same, for an element whose place in an array changes before it is folded.
    pub interchange_ops: f64,
    /// The same, for an element of a line or a column that is folded by vectors from an array.
    pub line_fold_ops: f64,
    /// The same, for an element that is compared with the best so far, whose place is kept.
    pub extremum_ops: f64,
    /// The same, for an element of a running fold.
    pub scan_ops: f64,
    /// The same, for an element that is added where data says.
    pub update_ops: f64,
    /// The same, for an element that is copied to where a product reads it.
    pub pack_ops: f64,
    /// The same, for an element that is moved to its place by one digit of its key, in memory that threads share.
    pub digit_ops: f64,
    /// Multiply-adds of contractions in `f32` a second.
    pub contract_f32_per_s: f64,
    /// Multiply-adds of contractions of 16-bit floats a second.
    pub contract_f16_per_s: f64,
    /// Multiply-adds of contractions in `f64` a second.
    pub contract_f64_per_s: f64,
    /// Seconds to begin a kernel.
    pub launch_s: f64,
    /// Bytes a point of a domain may keep in tiles; a buffer of no more bytes than this stays close
    /// to the cores for as long as a kernel runs.
    pub tile_bytes: u64,
    /// Points of a domain below which cores are idle.
    pub parallel: i64,
    /// Elements of `f32` that a core computes side by side.
    pub lanes: u32,
    /// Elements of a line that a vector holds: in lines of fewer some lanes are idle. 1 where lanes have coordinates of
    /// their own.
    pub line: u32,
    /// Registers that a lane can name, in 32-bit words; more live values are spilled. 0 where that
    /// does not matter.
    pub registers: u32,
    /// Registers that the threads of a core share, in 32-bit words: a thread with more of them leaves
    /// room for fewer threads. 0 where each thread has its own.
    pub register_file: u32,
    /// Threads that a core holds at most, where they share registers.
    pub threads: u32,
    /// Seconds to lay out a step when a program is compiled.
    pub compile_step_s: f64,
    /// Seconds to compile a function, whatever its length.
    pub compile_function_s: f64,
    /// Seconds to compile an instruction of a scalar program.
    pub compile_instruction_s: f64,
    /// Bytes of a function's code, whatever its length.
    pub function_bytes: f64,
    /// Bytes of the code of an instruction of a scalar program.
    pub instruction_bytes: f64,
    /// Instructions of the code that a contraction has beside its operands and what follows; 0 where a library
    /// multiplies.
    pub product_instructions: u64,
    /// Whether results of a contraction can be changed before they are stored.
    pub contract_epilogue: bool,
    /// What ways to multiply products took when they were measured; engines choose by prices where a product is not among them.
    pub products: ProductTimes,
}

/// Elements that are not worth more than one core.
const SMALL: i64 = 1 << 12;

/// Rows of a tile of a contraction's result.
const TILE_ROWS: i64 = 64;

impl MachineModel {
    /// Bytes a second of work that touches this many bytes: the last cache's where they fit there, the memory's from twice
    /// as many on, and between these a share of each. A few bytes more than fit change little, so that no plan gains by
    /// dividing a kernel at that size.
    pub fn bytes_per_s(&self, footprint: u64) -> f64 {
        let outside = (footprint as f64 / self.cache_bytes as f64 - 1.0).clamp(0.0, 1.0);
        1.0 / ((1.0 - outside) / self.cache_bytes_per_s + outside / self.memory_bytes_per_s)
    }

    /// The part of a bandwidth that a number of busy cores reaches, at least one: one core does not reach what all of them
    /// reach together.
    pub(crate) fn reached(&self, cores: f64) -> f64 {
        (cores.max(1.0) * self.core_bytes_per_s / self.memory_bytes_per_s).min(1.0)
    }

    /// Whether it is a GPU, whose threads share a file of registers.
    pub fn is_gpu(&self) -> bool {
        self.register_file > 0
    }

    /// Two cores of a server processor with AVX-512.
    ///
    /// Measured there: copies move 26 to 34 GB/s from memory with two threads (19.5 with one), 150 to 167 where
    /// three arrays of 4 MiB stay in the caches; a step of a program takes 0.13 to 0.35 us beside its work; contractions of 128 x 784 x 1024 run at 190 GFLOP/s, two operations a
    /// multiply-add; a GELU (about 35 primitives) of 64 Ki elements takes 39 us on one core, which is
    /// 59e9 primitives a second. A sum of 64 Ki elements takes 7 us on one core with vectors of 512 bits;
    /// 37 where one operand is read backwards or at every other place, 46 where at places that are data,
    /// 70 to 97 where each has to be asked for, and 5 to 11 ns more for each line that a guard cuts. Folds of 64 Ki
    /// elements in lines of 8 or of 8 x 8 take 15 to 23 us, those of long lines 3.4. Of 1 Mi elements, with two threads, in
    /// nanoseconds an element: 0.82 transposed, 4.5 where a function is called, 0.2 for positions of maxima in rows, 0.6 for
    /// running sums along rows (both on a later machine), 3.0 added at computed positions, 0.5 copied for a product. Of seven models with gradients, machine
    /// code takes 11 to 90 ms and has 58 bytes, give or take 15, for each instruction of their different scalar programs.
    /// Derived: contractions in `f64` have half the lanes, those of 16-bit floats widen first. Not
    /// measured: the part of the
    /// third cache that a kernel may count on is a guess between 8 MB, which it serves, and 128 MB, which
    /// it does not.
    pub fn cpu() -> MachineModel {
        MachineModel {
            name: "cpu".into(),
            memory_bytes_per_s: 28e9,
            cache_bytes_per_s: 150e9,
            core_bytes_per_s: 19.5e9,
            // A copy within the same memory.
            host_bytes_per_s: 28e9,
            // Not measured: between processes of one host, by TCP.
            link_bytes_per_s: 2e9,
            link_s: 50e-6,
            cache_bytes: 24 << 20,
            ops_per_s: 110e9,
            stride_ops: 25.0,
            far_ops: 90.0,
            call_ops: 480.0,
            run_ops: 1400.0,
            line_ops: 150.0,
            place_ops: 32.0,
            branch_ops: 60.0,
            cut_ops: 400.0,
            fold_ops: 14.0,
            interchange_ops: 30.0,
            line_fold_ops: 6.0,
            extremum_ops: 25.0,
            scan_ops: 70.0,
            update_ops: 350.0,
            pack_ops: 55.0,
            // Lines are sorted by comparisons.
            digit_ops: 0.0,
            contract_f32_per_s: 95e9,
            contract_f16_per_s: 95e9,
            contract_f64_per_s: 47e9,
            launch_s: 0.3e-6,
            tile_bytes: 512 << 10,
            parallel: 2,
            lanes: 16,
            line: 16,
            // 32 vector registers, each a word of every lane.
            registers: 32,
            register_file: 0,
            threads: 1,
            compile_step_s: 100e-6,
            compile_function_s: 50e-6,
            compile_instruction_s: 10e-6,
            function_bytes: 50.0,
            instruction_bytes: 58.0,
            product_instructions: 0,
            contract_epilogue: true,
            products: ProductTimes::default(),
        }
    }

    /// One of the cores of [`MachineModel::cpu`]: for programs that run on one thread. Kernels of a single task keep it busy.
    ///
    /// Measured there: copies move 19.5 GB/s from memory. The other rates are the halves of those of both cores.
    pub fn cpu1() -> MachineModel {
        let both = MachineModel::cpu();
        MachineModel {
            name: "cpu1".into(),
            memory_bytes_per_s: both.core_bytes_per_s,
            cache_bytes_per_s: both.cache_bytes_per_s / 2.0,
            ops_per_s: both.ops_per_s / 2.0,
            contract_f32_per_s: both.contract_f32_per_s / 2.0,
            contract_f16_per_s: both.contract_f16_per_s / 2.0,
            contract_f64_per_s: both.contract_f64_per_s / 2.0,
            parallel: 1,
            ..both
        }
    }

    /// What plans say that they are made for: the name, and a hash of all numbers unless the machine is built in. Two
    /// machines with other numbers have other identities.
    pub fn identity(&self) -> String {
        match MachineModel::named(&self.name).is_some_and(|known| known == *self) {
            true => self.name.clone(),
            false => {
                let hash = super::short_hash(&self.to_toml());
                format!("{} #{}", self.name, hash.get(..12).unwrap_or(&hash))
            }
        }
    }

    /// Whether kernels may go through rows of this many elements, this many of them.
    pub(crate) fn rows(&self, rows: i64, row: i64) -> Result<(), Refusal> {
        let short = row.saturating_mul(4).unsigned_abs() <= self.tile_bytes;
        let small = rows.saturating_mul(row) <= SMALL;
        let many = rows >= self.parallel || rows == 0;
        match many || short && small {
            true => Ok(()),
            false => Err(Refusal::Row { row, rows }),
        }
    }

    /// Whether a tile of a contraction's result has whole rows of this many elements, of this many bytes each.
    pub(crate) fn tile_has_rows(&self, row: i64, bytes: u64) -> bool {
        let tile = row.saturating_mul(TILE_ROWS).unsigned_abs().saturating_mul(bytes);
        !self.is_gpu() && tile <= self.tile_bytes
    }

    /// An NVIDIA H200.
    ///
    /// Measured: a copy moves 4.28 TB/s, reads and writes together; contractions run at 801 TFLOP/s
    /// in `bf16`, 51 in `f32` and 60 in `f64`, two operations a multiply-add; sums of arrays that stay in the cache move
    /// 9.5 TB/s; a short kernel of a captured graph takes .9 us after another, and 1.7 alone, itself included. An element that a
    /// product computes on the way to shared memory takes about 60 operations, one that a block sorts about 118 for each digit. From its description: 132 multiprocessors of 65,536 registers, 2048
    /// threads and 128 lanes of 1.98 GHz (33e12 operations a second, of which 30e12 are counted on),
    /// 50 MB of cache; a PCIe 5 link of 16 lanes. Not measured: the time to compile and the
    /// bytes of code, which are guesses; how much of memory's bandwidth a multiprocessor reaches alone is taken to be its
    /// share of the copy.
    pub fn h200() -> MachineModel {
        MachineModel {
            name: "h200".into(),
            memory_bytes_per_s: 4.28e12,
            cache_bytes_per_s: 9.5e12,
            core_bytes_per_s: 32e9,
            host_bytes_per_s: 50e9,
            // Not measured: between GPUs of one host, by NVLink.
            link_bytes_per_s: 300e9,
            link_s: 20e-6,
            cache_bytes: 50 << 20,
            ops_per_s: 30e12,
            // Threads have places and guards of their own; what lines of memory are wasted is not known.
            stride_ops: 0.0,
            far_ops: 0.0,
            call_ops: 0.0,
            run_ops: 0.0,
            line_ops: 0.0,
            place_ops: 0.0,
            branch_ops: 0.0,
            cut_ops: 0.0,
            fold_ops: 0.0,
            interchange_ops: 0.0,
            line_fold_ops: 0.0,
            extremum_ops: 0.0,
            scan_ops: 0.0,
            update_ops: 0.0,
            pack_ops: 60.0,
            digit_ops: 118.0,
            contract_f32_per_s: 25e12,
            contract_f16_per_s: 400e12,
            contract_f64_per_s: 30e12,
            launch_s: 1.7e-6,
            // A cluster of blocks shares a row of 50,304 f32.
            tile_bytes: 1 << 20,
            // Two blocks a multiprocessor, a block of 256 threads a point.
            parallel: 264,
            lanes: 256,
            line: 1,
            registers: 255,
            register_file: 65_536,
            threads: 2048,
            compile_step_s: 50e-6,
            compile_function_s: 2e-3,
            compile_instruction_s: 40e-6,
            function_bytes: 3000.0,
            instruction_bytes: 60.0,
            product_instructions: 400,
            contract_epilogue: true,
            products: ProductTimes::default(),
        }
    }

    /// The machine of this name: `cpu`, `cpu1` or `h200`.
    pub fn named(name: &str) -> Option<MachineModel> {
        match name {
            "cpu" => Some(MachineModel::cpu()),
            "cpu1" => Some(MachineModel::cpu1()),
            "h200" => Some(MachineModel::h200()),
            _ => None,
        }
    }
}
