//! Legalization: rewrites a program for an engine's capabilities. Buffers of callers become dense, and kernels get the
//! loops of their schedules.

use super::backend::Capabilities;
use super::errors::within;
use super::strides::dense;
use adfuse_ir::kernel::{
    Buffer, BufferData, Bundle, Kernel, Library, Program, Role, Step, Storage, loops,
    parts_at_quotients,
};
use adfuse_ir::{At, Diagnostic, Kind};
use cranelift_entity::SecondaryMap;

/// A program that an engine runs, and which buffers the caller's arrays are.
pub(crate) struct Legalized {
    pub(crate) program: Program,
    /// For each step, the number of the one it was made of.
    pub(crate) origin: Vec<usize>,
    /// Temporaries that the given program does not have, with the step for which they are there; those
    /// without one are there for the whole run.
    pub(crate) temps: Vec<(Buffer, Option<usize>)>,
    /// The buffers that the caller gives.
    pub(crate) inputs: Vec<Buffer>,
    /// The buffers that it is handed: one that occurs again is copied.
    pub(crate) outputs: Vec<Buffer>,
}

/// Rewrites a verified program for an engine that can do so much.
///
/// # Errors
/// Where a kernel cannot be walked as its schedule says; the error names the step.
pub(crate) fn legalize(given: &Program, can: &Capabilities) -> Result<Legalized, Diagnostic> {
    legalized(given, can, can.any_layout)
}

/// As [`legalize`], for a program that a step runs: its inputs and outputs are buffers of the program around it,
/// whatever their layouts are.
///
/// # Errors
/// As there.
pub(crate) fn legalize_block(given: &Program, can: &Capabilities) -> Result<Legalized, Diagnostic> {
    legalized(given, can, true)
}

fn legalized(
    given: &Program,
    can: &Capabilities,
    any_layout: bool,
) -> Result<Legalized, Diagnostic> {
    // Steps are cloned where they stay, one by one: planners legalize each kernel that they price.
    let Program { name, buffers, outputs, steps: _ } = given;
    let (name, buffers, outputs) = (name.clone(), buffers.clone(), outputs.clone());
    let mut program = Program { name, buffers, outputs, steps: Vec::new() };
    let mut steps: Vec<(usize, Step)> = Vec::with_capacity(given.steps.len());
    let (mut inputs, mut temps) = (Vec::new(), Vec::new());
    for b in given.inputs() {
        let data = &given.buffers[b];
        if any_layout || dense(data) {
            inputs.push(b);
            continue;
        }
        let from = program.buffers.push(plain(data, Role::Input));
        program.buffers[b].role = Role::Temp;
        temps.push((b, None));
        steps.push((0, Step::Kernel(copy(from, b, data))));
        inputs.push(from);
    }
    for (n, step) in given.steps.iter().enumerate() {
        let before = program.buffers.len();
        let expanded = expand(&mut program, step, can).map_err(|d| within(d, given, Some(n)))?;
        match expanded {
            Some(all) => steps.extend(all.into_iter().map(|step| (n, step))),
            None => steps.push((n, step.clone())),
        }
        temps.extend(program.buffers.keys().skip(before).map(|b| (b, Some(n))));
    }
    let mut outputs = Vec::new();
    for &b in &given.outputs {
        let data = &given.buffers[b];
        if any_layout || dense(data) {
            outputs.push(b);
        } else {
            let to = program.buffers.push(plain(data, Role::Output));
            steps.push((given.steps.len().saturating_sub(1), Step::Kernel(copy(b, to, data))));
            outputs.push(to);
            program.buffers[b].role = Role::Temp;
            temps.push((b, None));
        }
    }
    if !any_layout {
        own_what_is_not_handed(&mut program, &outputs, &mut temps);
    }
    let (origin, steps) = steps.into_iter().unzip();
    program.steps = steps;
    Ok(Legalized { program, origin, temps, inputs, outputs })
}

/// What nobody is handed is kept like a temporary.
fn own_what_is_not_handed(
    program: &mut Program,
    outputs: &[Buffer],
    temps: &mut Vec<(Buffer, Option<usize>)>,
) {
    let mut handed: SecondaryMap<Buffer, bool> = SecondaryMap::new();
    outputs.iter().for_each(|&b| handed[b] = true);
    for (b, data) in program.buffers.iter_mut() {
        if data.role == Role::Output && !handed[b] {
            data.role = Role::Temp;
            temps.push((b, None));
        }
    }
}

/// The steps that an engine does instead of one that it does not do itself; `None` where it does. Buffers that
/// these need are added to the program.
///
/// # Errors
/// Where a kernel cannot be walked as its schedule says.
fn expand(
    program: &mut Program,
    step: &Step,
    can: &Capabilities,
) -> Result<Option<Vec<Step>>, Diagnostic> {
    let mut steps = Vec::new();
    match step {
        // A GPU tells in which modes it has a step when it schedules.
        Step::Attend(a) if !can.attention.has_type(program.buffers[a.inputs[0]].dtype) => {
            let m = format!("the engine has no step for `{}`: it is composed of others", a.op());
            return Err(Diagnostic::new(At::default(), Kind::Unsupported, m));
        }
        Step::Kernel(kernel) if !can.schedules => {
            steps.extend(walked(kernel)?.into_iter().map(Step::Kernel));
        }
        Step::Bundle(bundle) if !can.schedules => {
            let mut kernels = Vec::with_capacity(bundle.kernels.len());
            for kernel in &bundle.kernels {
                kernels.extend(walked(kernel)?);
            }
            steps.push(Step::Bundle(Bundle { name: bundle.name.clone(), kernels }));
        }
        Step::Library(library) if !can.any_layout => {
            plainly(program, library, &mut |step| steps.push(step));
        }
        _ => return Ok(None),
    }
    Ok(Some(steps))
}

/// The kernels of a kernel's loops. What reads at quotients is in parts that the quotients divide.
fn walked(kernel: &Kernel) -> Result<Vec<Kernel>, Diagnostic> {
    let parts = |part: Kernel| parts_at_quotients(&part).unwrap_or_else(|| vec![part]);
    Ok(loops(kernel)?.into_iter().flat_map(parts).collect())
}

/// A call on dense tensors: what is packed or strided is copied before it or after it.
fn plainly(program: &mut Program, library: &Library, step: &mut dyn FnMut(Step)) {
    let mut call = library.clone();
    for b in &mut call.inputs {
        let data = program.buffers[*b].clone();
        if !dense(&data) {
            let to = program.buffers.push(plain(&data, Role::Temp));
            step(Step::Kernel(copy(*b, to, &data)));
            *b = to;
        }
    }
    let mut after = Vec::new();
    for b in &mut call.outputs {
        let data = program.buffers[*b].clone();
        if !dense(&data) {
            let from = program.buffers.push(plain(&data, Role::Temp));
            after.push(Step::Kernel(copy(from, *b, &data)));
            *b = from;
        }
    }
    step(Step::Library(call));
    after.into_iter().for_each(step);
}

/// A buffer of the same elements, row-major without gaps.
pub(crate) fn plain(data: &BufferData, role: Role) -> BufferData {
    BufferData { role, storage: Storage::Plain, strides: None, ..data.clone() }
}

/// A kernel that moves the elements of one buffer to another.
pub(crate) fn copy(from: Buffer, to: Buffer, data: &BufferData) -> Kernel {
    Kernel::copying(format!("copy of %{}", data.name), from, to, (data.dtype, &data.dims))
}
