//! Loops and branches in sessions: planned memory, budgets, listings, traces and user functions.

use super::blocks::{agrees, arguments, laid_out, options, program, scan, table, way_back};
use crate::common::kernels::{block_files, files};
use adfuse::backends::cpu::{CpuExecutable, ListedStep, Vectors, code_for, listing_for};
use adfuse::backends::functions::{Opaque, Registry};
use adfuse::backends::reference::Evaluator;
use adfuse::backends::reference::kernel;
use adfuse::backends::reference::kernel::NoFunctions;
use adfuse::backends::{Array, backend};
use adfuse::engine::{Cpu, Session, Settings};
use adfuse::fusion::{Fp, PlanOptions};
use adfuse::ir::kernel::text::parse;
use adfuse::ir::kernel::{
    Block, BlockInput, Branch, Buffer, BufferData, Carry, Loop, LoopTrips, Operand, Program, Role,
    Space, Step, Verified, verify,
};
use adfuse::ir::{DType, Kind, Literal, TensorType};
use std::sync::Arc;

/// A session plans the memory of blocks, and what it says of it holds.
#[test]
fn sessions_plan_the_memory_of_blocks() {
    let large = scan(3, 400_000, "", &way_back(400_000, 2));
    let mut table = table();
    table.push(("tasks of several threads", large));
    for (name, text) in table {
        let program = program(&text);
        let args = arguments(&program);
        let expected = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{name}: {d}"));
        for threads in [1, 3] {
            let plan = PlanOptions { fp: Fp::Strict, ..Cpu::default().plan };
            let cpu = Cpu { plan, threads, ..Cpu::default() };
            let made = cpu.of_program(program.clone()).unwrap_or_else(|d| panic!("{name}: {d}"));
            assert_eq!(made.executable.run(&args).expect("runs"), expected, "{name}");
            let report = made.executable.memory();
            let planned = made.memory.arena.next_multiple_of(64);
            assert_eq!(report.arena + report.outside_arena, planned, "{name}");
            let budget = Cpu { mem_budget: Some(report.peak()), ..cpu.clone() };
            assert!(budget.of_program(program.clone()).is_ok(), "{name}");
            let less = Cpu { mem_budget: Some(report.peak() - 1), ..cpu.clone() };
            let refused = less.of_program(program.clone()).expect_err("a byte less");
            assert_eq!(refused.kind, Kind::Limit, "{name}: {refused}");
            let trace = backend::Executable::trace(&*made.executable, &args).expect("runs");
            let steps = trace.spans.iter().filter(|span| span.task.is_none()).count();
            assert_eq!(steps, program.steps.len(), "{name}");
        }
        let settings = Settings::new(PlanOptions { fp: Fp::Strict, ..Cpu::default().plan });
        let session = Session { settings, backend: Arc::new(Evaluator::default()) };
        let made = session.of_program(program.clone()).unwrap_or_else(|d| panic!("{name}: {d}"));
        assert_eq!(
            backend::Executable::run(&*made.executable, &args).expect("runs"),
            expected,
            "{name}"
        );
        let (_, peak) = kernel::run_measured(&program, &args, &mut NoFunctions).expect("runs");
        let report = backend::Executable::memory(&*made.executable);
        assert!(peak <= report.peak(), "{name}: {peak} bytes of {}", report.peak());
    }
}

/// A loop is one step; the functions of its programs are listed under it, and so is what else they do.
#[test]
fn loops_are_listed_with_what_is_in_them() {
    let table = table();
    let listed = |name: &str| {
        let (_, text) = table.iter().find(|(n, _)| *n == name).expect("a name");
        let program = program(text);
        let made = CpuExecutable::compile_listed(&program, &laid_out(&program), options(1));
        let made = made.expect("compiles");
        assert_eq!(made.steps().len(), program.steps.len());
        let other = listing_for(&program, "x86_64-unknown-linux-gnu", Vectors::Narrow, Fp::Strict);
        let names = |steps: &[ListedStep]| -> Vec<String> {
            let functions = steps.iter().flat_map(|s| &s.functions);
            assert!(functions.clone().all(|f| f.asm.contains("ret")));
            functions.map(|f| f.name.clone()).collect()
        };
        assert_eq!(names(&made.listing()), names(&other.expect("is made")));
        assert!(code_for(&program, "aarch64-unknown-linux-gnu", Fp::Strict).expect("is made") > 0);
        (names(&made.listing()), made.steps().to_vec())
    };
    let (names, steps) = listed("loops are in loops and branches");
    let inner = "outer.step.choice.case0.inner";
    // The innermost loop computes scalars alone: it is one function.
    assert_eq!(names, [inner]);
    assert_eq!(
        steps[0].notes,
        [
            "3 steps",
            "step.choice: one of 2 programs runs, as %c selects",
            "step.choice: case0.inner: 4 steps, from the last position to the first",
            "step.choice: case0.inner: all steps are in one function, values in registers",
        ]
    );
    let (names, steps) = listed("products, folds and places are in blocks");
    assert!(names.contains(&"rnn.step.dense.0".to_string()), "{names:?}");
    assert!(steps[0].notes.iter().any(|n| n.starts_with("step.dense: 1 x products of 3 x 5")));
    assert!(steps[0].generator.contains("rust"), "{}", steps[0].generator);
    let (_, steps) = listed("ranges, counts, and what they are when there are none");
    assert_eq!(steps[2].notes, ["as many steps as %n says, and back with 2 checkpoints"]);
}

/// The program as a case of a branch, and as a step of a loop that carries all of its outputs.
fn wrapped(inner: &Verified<Program>) -> [Program; 2] {
    let mut outer = Program { name: "outer".into(), ..Program::default() };
    let mut inputs = Vec::new();
    for b in inner.inputs() {
        let data = inner.buffers[b].clone();
        inputs.push(BlockInput::Whole(outer.buffers.push(data)));
    }
    let flag = Role::Constant(vec![Literal::from_i64(DType::Bool, 0)]);
    let selector = BufferData::new("selector", DType::Bool, Default::default(), flag);
    let selector = outer.buffers.push(selector);
    for (k, &b) in inner.outputs.iter().enumerate() {
        let name = format!("result{k}");
        let data =
            BufferData { name, role: Role::Output, donated: false, ..inner.buffers[b].clone() };
        let to = outer.buffers.push(data);
        outer.outputs.push(to);
    }
    let block = Block { program: inner.clone(), inputs };
    let branch = Branch {
        name: "choice".into(),
        selector,
        blocks: vec![block.clone(), block.clone()],
        outputs: outer.outputs.clone(),
    };
    let carry = |&to: &Buffer| {
        let from = Operand::Literal(Literal::zero(outer.buffers[to].dtype));
        Carry { from, to }
    };
    let repeated = Loop {
        name: "twice".into(),
        trips: LoopTrips::Known(2),
        reverse: false,
        carries: outer.outputs.iter().map(carry).collect(),
        step: block,
        stacks: Vec::new(),
        back: None,
    };
    let steps = [Step::Branch(branch), Step::Loop(Box::new(repeated))];
    steps.map(|step| Program { steps: vec![step], ..outer.clone() })
}

/// Any program gives in a block what it gives by itself: packed, strided, scheduled, with attention and folds.
#[test]
fn programs_in_blocks_give_what_they_give_by_themselves() {
    let mut seen = 0;
    for (name, text) in files().into_iter().chain(block_files()) {
        let mut inner = parse(&text).expect("reads");
        inner.buffers.values_mut().for_each(|data| data.donated = false);
        let calls = inner.steps.iter().any(|step| matches!(step, Step::Library(_)));
        let host = |b: &Buffer| inner.buffers[*b].space == Space::Host;
        if calls || inner.inputs().any(|b| host(&b)) || inner.outputs.iter().any(host) {
            continue;
        }
        let inner = verify(inner).expect("verifies");
        let args = arguments(&inner);
        let expected = kernel::run(&inner, &args).unwrap_or_else(|d| panic!("{name}: {d}"));
        for outer in wrapped(&inner) {
            let outer = program(&outer.to_string());
            assert_eq!(agrees(&name, &outer, &args), expected, "{name}");
        }
        seen += 1;
    }
    assert!(seen > 15, "{seen} programs");
}

/// User functions are called in blocks; what they say is wrong has the step of the block.
#[test]
fn functions_are_called_in_blocks() {
    let text = "program @f { input %x: f32[3] output %y: f32[3]
      loop @twice { trips 4 carry %y = %x step (carry 0) program @step {
        input %x: f32[3] output %y: f32[3] temp %t: f32[3] strides [2]
        kernel @in [3] { stage [] { p0 = load %x[d0] s0 = param.f32 0 %t[d0] = store s0 } }
        %y = library @scale(%t) scratch 64 return %y } }
      return %y }";
    let program = program(text);
    let x = Array::from_f32s(&[3], &[1.0, -2.0, 3.5]).expect("three");
    let scale = |limit: f32| {
        let ty = |types: &[TensorType]| Ok(types[0].clone());
        let function = Opaque::new(ty, move |call| {
            let x = call.args[0].elements::<f32>()?;
            if x[0] > limit {
                return Err("it is too large".into());
            }
            for (y, x) in call.result.elements::<f32>()?.iter_mut().zip(x) {
                *y = 2.0 * x;
            }
            Ok(())
        });
        let layout = laid_out(&program);
        let functions = Registry::new().with("scale", function);
        CpuExecutable::compile_with(&program, &layout, options(2), &functions).expect("compiles")
    };
    let found = scale(100.0).run(std::slice::from_ref(&x)).expect("runs");
    assert_eq!(found, [Array::from_f32s(&[3], &[16.0, -32.0, 56.0]).expect("three")]);
    let limited = scale(3.0);
    for _ in 0..2 {
        let d = limited.run(std::slice::from_ref(&x)).expect_err("is too large at the third step");
        let place = (d.at.func.as_deref(), d.at.inst.as_deref());
        assert_eq!(place, (Some("step"), Some("step 1: library @scale")), "{d}");
    }
    let refused = CpuExecutable::compile(&program, &laid_out(&program), options(1));
    let refused = refused.expect_err("no such function");
    assert_eq!((refused.kind, refused.at.func.as_deref()), (Kind::Unsupported, Some("step")));
}
