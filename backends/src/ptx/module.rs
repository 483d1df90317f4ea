//! What a program becomes: one module of PTX text, and for each step the launches that do its work.
//!
//! Everything that a runtime needs is data: which entry points run in which order, over how many blocks
//! of how many threads, with how much shared memory, and which pointers they are given. A runtime that has
//! a place on the device for each buffer of the program, for the arrays that callers hand over where
//! those are laid out otherwise, and for [`Module::scratch`] bytes beside them, launches what stands here
//! in order, on one stream.
//!
//! A step may be several launches, of which a later one reads again what an earlier one has read: what a step
//! writes must be in no memory that the same step reads. Layouts that write results in the place of
//! operands that die at the step are for engines that read each operand once. NaNs in memory are those that the
//! chip makes: whoever hands an array over makes them canonical, as `Array` does.

use super::launch::Out;
use super::lower::{Lowering, Work};
use adfuse_ir::kernel::{Buffer, Program, Verified};
use adfuse_ir::{At, Diagnostic, Fp};

/// The instruction set that text is written for. A driver takes it on chips of that capability and later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Target {
    /// Compute capability 8.0: Ampere.
    #[default]
    Sm80,
    /// Compute capability 9.0: Hopper.
    Sm90,
}

impl Target {
    /// Every target.
    pub const ALL: [Target; 2] = [Target::Sm80, Target::Sm90];

    /// The name that assemblers know it by.
    pub fn name(self) -> &'static str {
        match self {
            Target::Sm80 => "sm_80",
            Target::Sm90 => "sm_90",
        }
    }

    /// The newest target that a chip of this compute capability runs; none where it is older than all.
    pub fn of_capability(major: u32, minor: u32) -> Option<Target> {
        match (major, minor) {
            (9.., _) => Some(Target::Sm90),
            (8, _) => Some(Target::Sm80),
            _ => None,
        }
    }

    /// Bytes of shared memory that one block may have, its dynamic part raised by the driver's attribute.
    pub fn shared(self) -> u32 {
        match self {
            // 164 and 228 KiB a multiprocessor, of which the driver has one.
            Target::Sm80 => 163 << 10,
            Target::Sm90 => 227 << 10,
        }
    }
}

/// A program as text for the driver, and what to launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// One PTX module with all entry points. The same program gives the same text.
    pub text: String,
    /// What comes before the first step: copies of inputs that the caller hands over row-major and whose
    /// buffers are packed or have strides.
    pub enter: StepCode,
    /// What each step of the program becomes, in their order. A transfer has no launches: a
    /// runtime copies.
    pub steps: Vec<StepCode>,
    /// What comes after the last step: copies of outputs that the caller is handed row-major.
    pub leave: StepCode,
}

impl Module {
    /// The most bytes beside the buffers that any step needs. Steps run one after the other, so that
    /// one block of memory does for all of them.
    pub fn scratch(&self) -> u64 {
        let all = self.steps.iter().chain([&self.enter, &self.leave]);
        all.map(|s| s.scratch).max().unwrap_or(0)
    }
}

/// What one step becomes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StepCode {
    /// In the order in which they run, each after the one before is done.
    pub launches: Vec<Launch>,
    /// Bytes beside the buffers that they need while they run. What is in them before is never read.
    pub scratch: u64,
}

/// One launch of an entry point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The entry point's name in the text.
    pub entry: String,
    /// Blocks along x, y and z; each at least 1.
    pub grid: [u32; 3],
    /// Threads of a block, along x.
    pub block: u32,
    /// Where it is given, blocks take turns: of the grid so many are launched for each multiprocessor, and they do
    /// the work of all.
    pub resident: Option<u32>,
    /// Bytes of dynamic shared memory of a block. Where they are more than 48 KiB the function's attribute
    /// for the most of it has to be raised before.
    pub shared: u32,
    /// The entry point's parameters: a device pointer of 64 bits each.
    pub args: Vec<Arg>,
}

/// A device pointer that a launch is given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arg {
    /// Where a buffer of the program is; 16-byte aligned at least.
    Buffer(Buffer),
    /// Where the caller's array of an input or output is, row-major without gaps, whose buffer is packed or
    /// has strides. Only [`Module::enter`] and [`Module::leave`] have these; of all other buffers
    /// [`Arg::Buffer`] is what the caller hands over and is handed.
    Caller(Buffer),
    /// So many bytes into the step's scratch, which is 256-byte aligned at least.
    Scratch {
        /// A multiple of 256.
        offset: u64,
    },
}

/// Makes PTX of a program.
///
/// # Errors
/// Where a step has no lowering to PTX ([`adfuse_ir::Kind::Unsupported`]) or outgrows what a launch can have; the error
/// names the step.
pub fn compile(program: &Verified<Program>, target: Target, fp: Fp) -> Result<Module, Diagnostic> {
    compile_but(program, target, fp, &[])
}

/// The same without the steps for which `done` says that something else does them: they have no launches.
///
/// # Errors
/// As [`compile`].
pub fn compile_but(
    program: &Verified<Program>,
    target: Target,
    fp: Fp,
    done: &[bool],
) -> Result<Module, Diagnostic> {
    let mut low = Lowering::new(program, fp);
    let mut out = Out::new(target, fp);
    let within = |mut d: Diagnostic, step: Option<usize>| {
        let inst = step.and_then(|n| Some(format!("step {n}: {}", program.steps.get(n)?.title())));
        d.at = At { func: Some(program.name.clone()), inst: inst.or(d.at.inst), ..At::default() };
        d
    };
    out.prefix = "enter".to_owned();
    let works = low.copies(true).and_then(|works| made(&mut low, &mut out, works));
    let enter = works.map_err(|d| within(d, None))?;
    let mut steps = Vec::new();
    for (n, step) in program.steps.iter().enumerate() {
        if done.get(n) == Some(&true) {
            steps.push(StepCode::default());
            continue;
        }
        out.prefix = format!("s{n}_{}", spelled(step.name()));
        let works = low.step(step).and_then(|works| made(&mut low, &mut out, works));
        steps.push(works.map_err(|d| within(d, Some(n)))?);
    }
    out.prefix = "leave".to_owned();
    let works = low.copies(false).and_then(|works| made(&mut low, &mut out, works));
    let leave = works.map_err(|d| within(d, None))?;
    Ok(Module { text: out.module(), enter, steps, leave })
}

/// Launches of the work of one step.
fn made(low: &mut Lowering, out: &mut Out, works: Vec<Work>) -> Result<StepCode, Diagnostic> {
    out.entries = 0;
    for work in works {
        match work {
            Work::Flat(flat) => super::fold::flat(low, out, &flat)?,
            Work::Rows(kernel) => super::rows::rows(low, out, &kernel)?,
            Work::Join(join) => super::tree::join(low, out, &join)?,
            Work::Scan(scan) => super::misc::scan(low, out, &scan)?,
            Work::Pack { from, to } => super::misc::pack(low, out, from, to)?,
            Work::Product(member) => super::product::product(low, out, &member)?,
            Work::Scatter(scatter) => super::scatter::scatter(low, out, &scatter)?,
            Work::Sort(sort) => super::sort::sort(low, out, &sort)?,
        }
    }
    Ok(StepCode { launches: std::mem::take(&mut out.launches), scratch: low.ended()? })
}

/// A name as entry points may have it.
fn spelled(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().take(40).map(plain).collect()
}
