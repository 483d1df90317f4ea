//! Changed schedules and domains of kernels change no bit.

use super::{arguments, cases, files, inputs, numbers, programs};
use crate::common::programs::decode;
use crate::common::schedules::changed;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, kernel, order, run};
use adfuse::fusion::compile;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{
    BufferData, Extents, Kernel, Order, Param, Program, Role, Run, Sink, Stage, Step, interchange,
    split, strict_runs, vectorize, verify,
};
use adfuse::ir::op::{Domain, Monoid};
use adfuse::ir::rewrite::specialize;
use adfuse::ir::scalar::Recorder;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Kind, Module, Op};

/// Changes every kernel of a program; what comes of it must be accepted and give the same bits.
fn keeps_bits(program: &Program, seed: u64, args: &[Array]) -> Result<(), String> {
    let mut random = numbers(seed);
    let run = |program: &Program| -> Result<Vec<Array>, String> {
        let verified = verify(program.clone()).map_err(|e| format!("{}\n{program}", e[0]))?;
        kernel::run_with(&verified, args, &mut Copies).map_err(|d| d.to_string())
    };
    let expected = run(program)?;
    for _ in 0..3 {
        let mut other = program.clone();
        for step in &mut other.steps {
            if let Step::Kernel(kernel) = step {
                *kernel = changed(kernel, &mut random);
            }
        }
        let printed = other.to_string();
        if read(&printed).as_ref() != Ok(&other) {
            return Err(format!("does not read back:\n{printed}"));
        }
        if run(&other)? != expected {
            return Err(format!("{program}\nhas other bits than\n{other}"));
        }
    }
    Ok(())
}

/// A library whose functions give what they are given.
pub(crate) struct Copies;

impl kernel::LibraryFunctions for Copies {
    fn call(
        &mut self,
        _: &str,
        inputs: &[Array],
    ) -> Option<Result<Vec<Array>, adfuse::ir::Diagnostic>> {
        Some(Ok(inputs.to_vec()))
    }
}

#[test]
fn changes_to_random_programs_keep_their_bits() {
    for dtype in [DType::F32, DType::BF16] {
        programs(|steps| {
            let f = decode(steps, dtype);
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let g = forward_and_backward(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            let module = Module::single(g.clone());
            let compiled = compile(&module, &g, &super::off()).map_err(|d| d.to_string())?;
            let program = compiled.program;
            keeps_bits(&program, steps.len() as u64, &inputs(&g, &[Domain::Normal]))
        });
    }
}

#[test]
fn changes_to_every_row_and_written_program_keep_their_bits() {
    for &op in Op::ALL {
        for module in cases(op).into_iter().take(2) {
            let f = module.funcs.values().next().expect("a function");
            let extents = f.symbols.iter().map(|&s| (s, 6)).collect();
            let f = specialize(f, &extents).expect("six of each");
            let Ok(compiled) = compile(&module, &f, &super::off()) else { continue };
            let program = compiled.program;
            if let Err(why) = keeps_bits(&program, 5, &arguments(&program)) {
                panic!("`{op}`: {why}");
            }
        }
    }
    for (name, text) in files() {
        let program = read(&text).expect("reads");
        for seed in 0..20 {
            if let Err(why) = keeps_bits(&program, seed, &arguments(&program))
                && !why.contains("is packed, but not along")
            {
                panic!("{name}: {why}");
            }
        }
    }
}

/// A kernel over all axes of a tensor that folds the marked ones in the strict order.
fn folding(dims: &[i64], marks: &[bool], dtype: DType) -> Program {
    let mut program = Program { name: "f".into(), ..Program::default() };
    let extents: Extents = dims.into();
    let of = |mark: bool| (0..dims.len()).filter(move |&a| marks[a] == mark);
    let kept: Extents = of(false).map(|a| dims[a]).collect();
    let x = program.buffers.push(BufferData::new("x", dtype, extents.clone(), Role::Input));
    let y = program.buffers.push(BufferData::new("y", dtype, kept, Role::Output));
    let marked: Vec<u8> = of(true).map(|a| a as u8).collect();
    let number =
        |run: Run| Run { axes: run.axes.iter().map(|&a| marked[a as usize]).collect(), ..run };
    let axes = |all: &mut dyn Iterator<Item = usize>| {
        all.map(adfuse::ir::index::IndexExpr::axis).collect()
    };
    let piece = adfuse::ir::kernel::Piece {
        from: adfuse::ir::kernel::Operand::Buffer(x),
        index: axes(&mut (0..dims.len())),
        guards: Default::default(),
    };
    let sink = Sink::Fold {
        monoid: Monoid::Sum,
        runs: strict_runs(dims, marks).into_iter().map(number).collect(),
        then: Box::new(Stage::storing(dtype.compute(), y, dtype, axes(&mut of(false)))),
    };
    let stage = Stage {
        axes: Extents::new(),
        params: vec![Param::Load([piece].into_iter().collect())],
        program: Recorder::record_any(&[dtype], |x| x[0].convert(dtype.compute())),
        sinks: vec![sink],
    };
    let (name, stages) = ("fold".into(), vec![stage]);
    program.steps.push(Step::Kernel(Kernel { name, domain: extents, stages, ..Kernel::default() }));
    program.outputs.push(y);
    program
}

/// Folds over the domain, however it is walked, have the bits of the reduction.
#[test]
fn folds_have_the_bits_of_reductions() {
    let cases: [(&[i64], &[usize]); 7] = [
        (&[150, 7], &[0]),
        (&[3, 70, 5, 40], &[0, 1, 3]),
        (&[2, 6, 1, 130], &[1, 3]),
        (&[2200], &[0]),
        (&[0, 4], &[0]),
        (&[4, 0], &[0]),
        (&[1, 3, 1], &[0, 2]),
    ];
    for (dims, folded) in cases {
        for dtype in [DType::F32, DType::BF16] {
            let marks: Vec<bool> = (0..dims.len()).map(|a| folded.contains(&a)).collect();
            let program = folding(dims, &marks, dtype);
            let of = |n: &mut dyn Iterator<Item = &i64>| {
                n.map(i64::to_string).collect::<Vec<_>>().join(",")
            };
            let kept = of(&mut dims.iter().zip(&marks).filter(|m| !m.1).map(|m| m.0));
            let text = format!(
                "func @f(%x: {dtype}[{}]) -> {dtype}[{kept}] {{
                   %r = reduce_sum %x {{axes = {folded:?}}} : {dtype}[{kept}]
                   return %r
                 }}",
                of(&mut dims.iter())
            );
            let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
            let f = module.funcs.values().next().expect("a function");
            let args = inputs(f, &[Domain::Normal]);
            let expected = run(&module, f, &args, &mut Silent).expect("runs");
            let verified = verify(program.clone()).unwrap_or_else(|e| panic!("{e:?}"));
            assert_eq!(kernel::run(&verified, &args).expect("runs"), expected, "{program}");
            if let Err(why) = keeps_bits(&program, 3, &args) {
                panic!("{why}");
            }
        }
    }
}

#[test]
fn changes_that_make_no_sense_are_refused() {
    let text = "program @f {
      input %x: f32[4, 6] output %y: f32[4, 6]
      kernel @k [4, 6] {
        schedule tiles(4, 3)
        stage [] { p0 = load %x[d0, d1] s0 = param.f32 0 %y[d0, d1] = store s0 }
      }
      return %y
    }";
    let program = read(text).expect("reads");
    let [Step::Kernel(kernel)] = program.steps.as_slice() else { panic!("a kernel") };
    let kind = |made: Result<Kernel, adfuse::ir::Diagnostic>| made.map_err(|d| d.kind).err();
    for perm in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 2]] {
        assert_eq!(kind(interchange(kernel, perm)), Some(Kind::Usage), "{perm:?}");
    }
    for (axis, factor) in [(2, 1), (0, 3), (0, 0), (0, -2), (1, 2)] {
        assert_eq!(kind(split(kernel, axis, factor)), Some(Kind::Usage), "{axis} {factor}");
    }
    assert_eq!(kind(vectorize(kernel, 2)), Some(Kind::Shape));
    assert_eq!(kind(vectorize(kernel, 300)), Some(Kind::Usage));
    let tiled = split(kernel, 0, 2).expect("splits");
    assert_eq!(tiled.schedule.tiles.as_slice(), [2, 2, 3]);
    let mut many = kernel.clone();
    many.schedule.tiles.clear();
    for _ in 0..30 {
        many = split(&many, 0, 1).expect("splits");
    }
    assert_eq!(kind(split(&many, 0, 1)), Some(Kind::Limit));
}

/// Memory is counted in the blocks that the strict order defines.
#[test]
fn blocks_are_those_of_the_orders() {
    assert_eq!(Order::Lane.block(), order::LANE_BLOCK as u64);
    assert_eq!(Order::Chain.block(), order::CHAIN_BLOCK as u64);
}
