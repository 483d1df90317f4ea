//! Machine code for other targets than the host: whether it can be made, and how much there is.

use super::code::Maker;
use super::kernel::Making;
use super::lower::lowered;
use super::memory::Room;
use super::run::{within, work};
use crate::functions::Registry;
use adfuse_ir::kernel::{Program, Verified};
use adfuse_ir::{Diagnostic, Fp};

/// Makes the machine code of a program for a target, such as `aarch64-unknown-linux-gnu`, and drops it;
/// gives its bytes.
///
/// # Errors
/// [`Kind::Unsupported`](adfuse_ir::Kind::Unsupported) for targets that the code generator was built
/// without, and for steps that call a library; else as
/// [`Executable::compile`](super::Executable::compile).
pub fn code_for(program: &Verified<Program>, target: &str, fp: Fp) -> Result<usize, Diagnostic> {
    let low = lowered(program)?;
    let mut maker = Maker::for_target(target, fp).map_err(|d| within(d, program, None))?;
    let (mut slots, functions) = (0, Registry::new());
    for (n, step) in low.program.steps.iter().enumerate() {
        let mut making = Making {
            maker: Some(&mut maker),
            program: &low.program,
            shared: &mut Room::default(),
            own: &mut Room::default(),
            slots,
            functions: Some(&functions),
        };
        let origin = low.origin.get(n).copied();
        work(&mut making, step).map_err(|d| within(d, program, origin))?;
        slots = making.slots;
    }
    Ok(maker.discard())
}
