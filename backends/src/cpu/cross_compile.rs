//! Machine code for targets other than the host: whether it compiles, its size, and its text.

use super::codegen::listing::ListingEntry;
use super::codegen::vector_width::{Emitter, Vectors};
use super::executable::CpuExecutable;
use super::host_services::HostServices;
use super::machine_code::SweepCompiler;
use super::prepare::{prepared, side_by_side};
use super::scratch::ScratchLayout;
use super::steps::compile_program;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::errors::within;
use crate::runtime::functions::Registry;
use crate::runtime::host_memory::OffsetAllocator;
use crate::runtime::ranks::RankGroup;
use crate::runtime::report::StepReport;
use adfuse_ir::kernel::{Program, Verified};
use adfuse_ir::scalar::Table;
use adfuse_ir::{Diagnostic, Fp};

/// A step of a program, and its functions of machine code as text.
#[derive(Clone, Debug)]
pub struct ListedStep {
    /// The step, as it runs.
    pub made: StepReport,
    /// Its functions, in the order in which they were made.
    pub functions: Vec<ListedFunction>,
}

/// A function of machine code as text.
#[derive(Clone, Debug)]
pub struct ListedFunction {
    /// The step's name and the role of the function: `softmax.1` is stage 1.
    pub name: String,
    /// What made it.
    pub emitter: Emitter,
    /// Bytes of its code.
    pub bytes: usize,
    /// Where it walks, what it reads and what it writes.
    pub accesses: String,
    /// Its loop program, which the emitter translates.
    pub loops: String,
    /// What Cranelift is given; nothing where another emitter made it.
    pub clif: String,
    /// The instructions of the target.
    pub asm: String,
}

/// What is said to multiply matrices: which code does is the choice of the host that runs it.
const PRODUCTS: &str = "gemm";

/// Makes the machine code of a program for a target, such as `aarch64-unknown-linux-gnu`, and drops it;
/// gives its bytes.
///
/// # Errors
/// [`Kind::Unsupported`](adfuse_ir::Kind::Unsupported) for targets that the code generator was built
/// without, and for steps that call a library; else as
/// [`CpuExecutable::compile`](crate::cpu::executable::CpuExecutable::compile).
pub fn code_for(program: &Verified<Program>, target: &str, fp: Fp) -> Result<usize, Diagnostic> {
    let compiler = SweepCompiler::for_target(target, Vectors::Narrow, fp);
    let mut compiler = compiler.map_err(|d| within(d, program, None))?;
    made(program, &mut compiler)?;
    Ok(compiler.discard())
}

/// The machine code of a program for a target as text. It is the same on every host that has the emitter of
/// wide vectors, x86-64 with Linux: addresses in it are nominal, and features of the target are those that
/// the width of vectors asks for.
///
/// # Errors
/// As [`code_for`], and [`Kind::Unsupported`](adfuse_ir::Kind::Unsupported) for vectors that the target does
/// not have.
pub fn listing_for(
    program: &Verified<Program>,
    target: &str,
    vectors: Vectors,
    fp: Fp,
) -> Result<Vec<ListedStep>, Diagnostic> {
    let compiler = SweepCompiler::for_target(target, vectors, fp);
    let mut compiler = compiler.map_err(|d| within(d, program, None))?;
    compiler.listing.texts = true;
    let steps = made(program, &mut compiler)?;
    let mut noted = std::mem::take(&mut compiler.listing.noted).into_iter().peekable();
    compiler.discard();
    let mut all = Vec::new();
    for (n, made) in steps.into_iter().enumerate() {
        let mut functions = Vec::new();
        while let Some(noted) = noted.next_if(|noted| noted.step == n) {
            functions.extend(listed(noted).map(without_addresses));
        }
        all.push(ListedStep { made, functions });
    }
    Ok(all)
}

impl CpuExecutable {
    /// Its machine code as text, where it was [made to be read](CpuExecutable::compile_listed); steps without
    /// functions elsewhere.
    pub fn listing(&self) -> Vec<ListedStep> {
        let of = |n: usize| {
            let functions = self.code.listed().filter(move |(noted, _)| noted.step == n);
            functions.filter_map(|(noted, _)| listed(noted.clone())).collect()
        };
        let steps = self.made.iter().enumerate();
        steps.map(|(n, made)| ListedStep { made: made.clone(), functions: of(n) }).collect()
    }
}

fn listed(noted: ListingEntry) -> Option<ListedFunction> {
    let ListingEntry { name, emitter, bytes, texts, .. } = noted;
    let [accesses, loops, clif, asm] = texts?;
    Some(ListedFunction { name, emitter, bytes, accesses, loops, clif, asm })
}

/// The function with the names of constant tables for where they are in this process.
fn without_addresses(mut function: ListedFunction) -> ListedFunction {
    for table in Table::ALL {
        let address = format!("{:x}", table.entries().as_ptr().addr());
        let digits: Vec<&str> = address.split("").filter(|d| !d.is_empty()).collect();
        // CLIF has groups of four digits; the other texts have none.
        let groups: Vec<String> = digits.rchunks(4).rev().map(<[&str]>::concat).collect();
        let upper = address.to_uppercase();
        let spelled = [format!("0x{}", groups.join("_")), format!("0x{address}")];
        let spelled = spelled.into_iter().chain([format!("0{upper}h"), format!("{upper}h")]);
        for spelled in spelled {
            for text in [&mut function.clif, &mut function.asm] {
                *text = text.replace(&spelled, &format!("{table:?}"));
            }
        }
    }
    function
}

/// Has the functions of all steps made; tells of the steps. Where their memory is does not matter.
fn made(
    program: &Verified<Program>,
    compiler: &mut SweepCompiler,
) -> Result<Vec<StepReport>, Diagnostic> {
    let legal = prepared(program, &side_by_side)?;
    let rooms = ScratchLayout::new(program, (&legal.low, &legal.needed), &ArenaLayout::default())?;
    let (functions, ranks) = (Registry::new(), RankGroup::alone());
    let host = HostServices::listed(&functions, &ranks);
    let how = (host, Some(PRODUCTS));
    let none = OffsetAllocator::default();
    Ok(compile_program(compiler, how, (program, &legal), &rooms, none)?.0.made)
}
