//! Reports of executables: names and texts of functions, memory, and traces of runs.

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::StepReport;
use adfuse::backends::cpu::{CpuExecutable, Emitter, Trace};
use adfuse::engine::{Compiled, Cpu};
use adfuse::fusion::{self, Effort, Fp, MachineModel};
use adfuse::ir::Module;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::sample::{rng, sample};
use std::path::Path;

/// The gradient of every model, with inputs.
fn models(effort: Effort, threads: usize, mut each: impl FnMut(&str, &Compiled, &[Array])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("models")
        .map(|e| e.expect("a file").path())
        .filter(|p| p.extension().is_some_and(|e| e == "ir"))
        .collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    let plan = fusion::PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
    let cpu = Cpu { plan, threads, ..Cpu::default() };
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
        let f = module.funcs.values().next().expect("a function");
        let Ok(wrt) = differentiable(f, None) else { continue };
        let g = forward_and_backward(&module, f, &wrt).expect("differentiates");
        let made = cpu.compile(&Module::single(g.clone()), &g).expect("compiles");
        let mut rng = rng(1, 0);
        let args: Vec<Array> = g
            .param_types()
            .iter()
            .map(|t| sample(t, Domain::Normal, &mut rng).expect("small"))
            .collect();
        each(&file.display().to_string(), &made, &args);
    }
}

#[test]
fn functions_have_names_of_their_own_and_texts_only_when_asked() {
    for effort in [Effort::Off, Effort::Default] {
        models(effort, 1, |name, made, _| {
            // Places and modes decide how long the code is.
            let plan = fusion::PlanOptions { effort, ..Cpu::default().plan };
            let cpu = Cpu { plan, ..Cpu::default() };
            let (_, layout) = cpu.layout(&made.program).expect("fits");
            let listed = CpuExecutable::compile_listed(&made.program, &layout, cpu.options());
            let listed = listed.expect("compiles");
            let plain = &made.executable;
            assert_eq!(plain.steps(), listed.steps(), "{name}");
            assert_eq!(plain.sweeps().len(), listed.sweeps().len(), "{name}");
            let mut code = 0;
            let mut names: Vec<(usize, String)> = Vec::new();
            for (a, b) in plain.sweeps().zip(listed.sweeps()) {
                assert_eq!((a.step, a.name), (b.step, b.name), "{name}");
                // Equal sweeps share a function, unless each is listed.
                let shared = a.code.is_empty() && !b.code.is_empty();
                assert!(shared || a.code.len() == b.code.len(), "{name}: {}", a.name);
                assert!(a.texts.is_none(), "{name}");
                assert!(shared || !a.code.is_empty() && !a.took.is_zero(), "{name}");
                let texts = b.texts.expect("texts");
                match b.emitter {
                    Emitter::Cranelift(_) => assert!(texts.clif.starts_with("function ")),
                    Emitter::Wide(_) => assert!(texts.clif.is_empty(), "{name}: {}", texts.clif),
                }
                assert!(texts.asm.contains("ret"), "{name}: {}", texts.asm);
                assert!(texts.accesses.starts_with("over ["), "{name}: {}", texts.accesses);
                let step = &plain.steps()[a.step];
                assert!(a.name.starts_with(&format!("{}.", step.name)), "{name}: {}", a.name);
                assert!(made.program.steps.get(step.origin).is_some(), "{name}");
                names.push((a.step, a.name.into()));
                code += a.code.len() as u64;
            }
            assert_eq!(plain.memory().code, code, "{name}");
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{name}: a name twice");
        });
    }
}

#[test]
fn memory_is_what_the_plan_says_and_what_is_beside_it() {
    for effort in [Effort::Off, Effort::Default] {
        models(effort, 1, |name, made, args| {
            let (report, plan) = (made.executable.memory(), &made.memory);
            let results = made.executable.run(args).expect("runs");
            let bytes = |all: &[Array]| all.iter().map(|a| a.bytes().len() as u64).sum::<u64>();
            assert_eq!((report.inputs, report.outputs), (bytes(args), bytes(&results)), "{name}");
            // Nothing is beside what was planned, to lines of the cache.
            let arena = plan.arena.next_multiple_of(64);
            assert_eq!(report.arena + report.outside_arena, arena, "{name}");
            // Each constant begins at a line of the cache.
            let constants = made.program.buffers.len() as u64 * 64 + plan.constants;
            assert!((plan.constants..=constants).contains(&report.constants), "{name}");
            let all = [
                report.inputs,
                report.outputs,
                report.constants,
                report.arena,
                report.outside_arena,
            ];
            assert_eq!(report.peak(), all.iter().sum::<u64>(), "{name}");
        });
    }
}

#[test]
fn a_run_that_is_recorded_gives_the_same_bits_and_spans_inside_of_each_other() {
    for threads in [1, 3] {
        models(Effort::Default, threads, |name, made, args| {
            let expected = made.executable.run(args).expect("runs");
            let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
            let mut results: Vec<Vec<u8>> =
                expected.iter().map(|a| vec![1; a.bytes().len()]).collect();
            let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
            let mut trace = Trace::default();
            made.executable.run_into_traced(&inputs, &mut outputs, &mut trace).expect("runs");
            assert!(expected.iter().zip(&results).all(|(a, b)| a.bytes() == b), "{name}");
            let steps: Vec<_> = trace.spans.iter().filter(|s| s.task.is_none()).collect();
            let numbers: Vec<usize> = steps.iter().map(|s| s.step).collect();
            assert_eq!(numbers, Vec::from_iter(0..made.executable.steps().len()), "{name}");
            assert!(steps.windows(2).all(|w| w[0].end <= w[1].begin), "{name}");
            for span in &trace.spans {
                let step = steps[span.step];
                assert!(step.begin <= span.begin && span.begin <= span.end, "{name}: {span:?}");
                assert!(span.end <= step.end && span.thread < threads, "{name}: {span:?}");
            }
            assert!(trace.spans.iter().any(|s| s.task.is_some()), "{name}");
        });
    }
}

#[test]
fn what_happens_beside_the_functions_is_said() {
    // Short lines fold in Rust, longer ones in code, block by block.
    for (n, said) in [
        (8, Some("what norm.0 leaves is folded by sum over lane(d1) to r0")),
        (1000, None),
        (3000, Some("parts that norm.0 leaves are joined by sum over lane(d1) to r0")),
    ] {
        let text = format!(
            "program @p {{
  input %x: f32[4, {n}]
  output %s: f32[4]
  kernel @norm [4] {{
    row r0: f32
    stage [{n}] {{
      p0 = load %x[d0, d1]
      s0 = param.f32 0
      s1 = mul.f32 s0 s0
      r0 = reduce.sum s1 lane(d1)
    }}
    stage [] {{
      p0 = r0
      s0 = param.f32 0
      s1 = sqrt.f32 s0
      %s[d0] = store s1
    }}
  }}
  return %s
}}
"
        );
        let program = verify(read(&text).unwrap_or_else(|e| panic!("{e:?}")));
        let program = program.unwrap_or_else(|e| panic!("{e:?}"));
        let made = Cpu::default().of_program(program).expect("compiles").executable;
        let mut by: Vec<&str> = made.sweeps().map(|s| s.emitter.name()).collect();
        by.dedup();
        by.extend(said.map(|_| "rust"));
        let expected = StepReport {
            origin: 0,
            name: "norm".into(),
            generator: by.join(" + "),
            notes: said.map(String::from).into_iter().collect(),
            ..StepReport::default()
        };
        assert_eq!(made.steps(), [expected]);
        let names: Vec<&str> = made.sweeps().map(|s| s.name).collect();
        assert_eq!(names, ["norm.0", "norm.1"]);
    }
}
