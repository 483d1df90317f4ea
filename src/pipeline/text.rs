//! The printed forms of artifacts. A form that has a parser is parsed again: if it does not read back as it was
//! printed, that is an internal error.

use crate::backends::ArenaLayout;
use crate::backends::cpu::{ListedFunction, ListedStep};
use crate::backends::ptx::{Arg, GpuSchedule, Launch, PtxModule as Launches, StepCode, TensorMap};
use crate::fusion::{Plan, computed_by_steps};
use crate::ir::kernel::{Buffer, Program, Role, Step, Verified, text};
use crate::ir::text::{Names, parse, print_function};
use crate::ir::{At, Diagnostic, Function, Kind};
use std::fmt::Write as _;

/// The error that something of a function does not read back.
pub fn broken(func: &str, what: &str) -> Diagnostic {
    let at = At { func: Some(func.into()), ..At::default() };
    Diagnostic::new(at, Kind::Internal, format!("the {what} does not print as it parses"))
}

/// A function.
///
/// # Errors
/// [`Kind::Internal`] where it does not read back.
pub fn function(f: &Function) -> Result<String, Diagnostic> {
    let printed = print_function(f);
    match parse(&printed).is_ok_and(|again| again.to_string() == printed) {
        true => Ok(printed),
        false => Err(broken(&f.name, "function")),
    }
}

/// A plan of a prepared function.
///
/// # Errors
/// [`Kind::Internal`] where it does not read back.
pub fn plan(f: &Function, plan: &Plan) -> Result<String, Diagnostic> {
    let printed = plan.text(f);
    match Plan::parse(&printed, f).is_ok_and(|again| again == *plan) {
        true => Ok(printed),
        false => Err(broken(&f.name, "plan")),
    }
}

/// A program of kernels.
///
/// # Errors
/// [`Kind::Internal`] where it does not read back.
pub fn program(program: &Program) -> Result<String, Diagnostic> {
    let printed = program.to_string();
    match text::parse(&printed).is_ok_and(|again| again == *program) {
        true => Ok(printed),
        false => Err(broken(&program.name, "program")),
    }
}

/// How a GPU runs a program.
///
/// # Errors
/// [`Kind::Internal`] where it does not read back.
pub fn schedule(program: &Verified<Program>, schedule: &GpuSchedule) -> Result<String, Diagnostic> {
    let printed = schedule.to_string();
    match GpuSchedule::parse(&printed, program).is_ok_and(|again| again.to_string() == printed) {
        true => Ok(printed),
        false => Err(broken(&program.name, "schedule")),
    }
}

/// The steps of a plan's program, each a program of its own, under the names of what it computes.
///
/// # Errors
/// [`Kind::Internal`] where a step does not read back.
pub fn kernels(f: &Function, plan: &Plan, program: &Program) -> Result<String, Diagnostic> {
    let names = Names::of(f);
    let mut out = String::new();
    for (k, (step, insts)) in program.steps.iter().zip(computed_by_steps(plan, program)).enumerate()
    {
        let results = insts.iter().flat_map(|&i| f.inst_results(i));
        let computed: Vec<String> = results.map(|&v| format!("%{}", names.get(v))).collect();
        let computed = if computed.is_empty() { "a literal".into() } else { computed.join(", ") };
        begin(&mut out, k, &computed);
        let alone = alone(program, step);
        if text::parse(&alone).is_err() {
            return Err(broken(&f.name, "step"));
        }
        out += &alone;
    }
    Ok(out)
}

/// Where the temporaries of a program are.
///
/// # Errors
/// [`Kind::Internal`] where it does not read back.
pub fn layout(program: &Program, layout: &ArenaLayout, peak: u64) -> Result<String, Diagnostic> {
    let printed = layout.text(program);
    let reads_back = |again: ArenaLayout| again.text(program) == printed;
    match ArenaLayout::parse(&printed, program).is_ok_and(reads_back) {
        true => Ok(format!("// peak of {peak} bytes\n{printed}")),
        false => Err(broken(&program.name, "layout")),
    }
}

/// The functions of machine code of each step, by one of their texts, and what happens beside them.
pub fn machine_code(steps: &[ListedStep], text: fn(&ListedFunction) -> &str) -> String {
    let mut out = String::new();
    for (k, ListedStep { made, functions }) in steps.iter().enumerate() {
        begin(&mut out, k, &format!("{} ({})", made.name, made.generator));
        for line in &made.notes {
            out += &format!("// beside the functions: {line}\n");
        }
        for function in functions {
            let ListedFunction { name, emitter, bytes, accesses, .. } = function;
            out += &format!("\n// {name}, {bytes} bytes, {accesses}\n");
            let by = emitter.name();
            out += &match emitter.why() {
                Some(why) => format!("// by {by}: {why}\n"),
                None => format!("// by {by}\n"),
            };
            out += match text(function) {
                "" => "// Cranelift is given nothing\n",
                text => text,
            };
            if !out.ends_with('\n') {
                out.push('\n');
            }
        }
    }
    out
}

/// What the engine `gpu` launches for each step: the entry point, its blocks, the threads of a block, the
/// bytes of dynamic shared memory, and the pointers it is given; the same for the programs of loops and branches.
pub fn launches(program: &Program, module: &Launches) -> String {
    let mut out = String::new();
    if !module.enter.launches.is_empty() {
        launched(&mut out, "before the first step", &module.enter, [program; 2]);
    }
    launched_steps(&mut out, "", &module.steps, [program; 2]);
    if !module.leave.launches.is_empty() {
        launched(&mut out, "after the last step", &module.leave, [program; 2]);
    }
    out
}

/// The launches of the steps of a program, and those of the programs in them; the second program is the one around it.
fn launched_steps(out: &mut String, of: &str, codes: &[StepCode], [own, outer]: [&Program; 2]) {
    for (k, (step, code)) in own.steps.iter().zip(codes).enumerate() {
        launched(out, &format!("{of}step {k}: {}", step.name()), code, [own, outer]);
        for ((role, block), code) in step.blocks().into_iter().zip(&code.blocks) {
            let of = format!("{of}step {k} {role} ");
            let inner: [&Program; 2] = [&block.program, own];
            let copies = |launches: &Vec<Launch>| StepCode {
                launches: launches.clone(),
                ..StepCode::default()
            };
            if !code.before.is_empty() {
                launched(out, &format!("{of}before each turn"), &copies(&code.before), inner);
            }
            launched_steps(out, &of, &code.steps, inner);
            if !code.after.is_empty() {
                launched(out, &format!("{of}after each turn"), &copies(&code.after), inner);
            }
        }
    }
}

/// The launches of one step.
fn launched(out: &mut String, title: &str, code: &StepCode, [own, outer]: [&Program; 2]) {
    let named = |b: Buffer| format!("%{}", own.buffers[b].name);
    if !out.is_empty() {
        out.push('\n');
    }
    let scratch = match code.scratch {
        0 => String::new(),
        bytes => format!(", {bytes} bytes of scratch"),
    };
    // Nothing is wrong with writing to a string.
    let _ = writeln!(out, "// {title}{scratch}");
    for Launch { entry, user, grid, block, resident, cluster, shared, args, maps } in &code.launches
    {
        let arg = |arg: &Arg| match *arg {
            Arg::Buffer(b) => named(b),
            Arg::Caller(b) => format!("caller {}", named(b)),
            Arg::Scratch { offset } => format!("scratch + {offset}"),
            Arg::Position => "position".to_owned(),
            Arg::Outer(b) => format!("around %{}", outer.buffers[b].name),
            Arg::Result(k) => format!("result {k}"),
            Arg::Number(n) => n.to_string(),
        };
        let map = |map: &TensorMap| {
            let TensorMap { offset, extents, strides, tile, .. } = map;
            let from = arg(&map.arg);
            format!("map {from} + {offset} {extents:?} strides {strides:?} tiles {tile:?}")
        };
        let args: Vec<String> = args.iter().map(arg).chain(maps.iter().map(map)).collect();
        let resident = resident.map_or_else(String::new, |n| format!(" resident {n}"));
        let args = args.join(", ");
        let block = match block {
            [threads, 1, 1] => threads.to_string(),
            all => format!("{all:?}"),
        };
        let user = user.map_or_else(String::new, |k| format!(" of module {k}"));
        let cluster = if *cluster > 1 { format!(" cluster {cluster}") } else { String::new() };
        let _ = writeln!(
            out,
            "{entry}{user} grid {grid:?}{resident}{cluster} block {block} shared {shared} ({args})"
        );
    }
}

/// A line that begins what is told of a step.
fn begin(out: &mut String, k: usize, title: &str) {
    if k > 0 {
        out.push('\n');
    }
    *out += &format!("// step {k}: {title}\n");
}

/// A step as a program of its own, which reads back: what it reads is given, what it writes returned.
pub fn alone(program: &Program, step: &Step) -> String {
    let (reads, writes): (Vec<Buffer>, Vec<Buffer>) =
        (step.reads().collect(), step.writes().collect());
    let mut one = Program { steps: vec![step.clone()], outputs: writes.clone(), ..program.clone() };
    one.name = step.name().into();
    let mut absent = Vec::new();
    for (b, data) in one.buffers.iter_mut() {
        if writes.contains(&b) {
            data.role = Role::Output;
        } else if !reads.contains(&b) {
            data.role = Role::Input;
            absent.push(format!("  input %{}: ", data.name));
        } else if !matches!(data.role, Role::Constant(_)) {
            data.role = Role::Input;
        }
    }
    let text = one.to_string();
    let there = |line: &&str| !absent.iter().any(|a| line.starts_with(a.as_str()));
    text.lines().filter(there).map(|l| format!("{l}\n")).collect()
}
