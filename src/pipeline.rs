//! The pipeline from text to what an engine runs: a table of named passes.
//!
//! A row has a pass's input and output, the verifier of its output, and how the output is printed. The table drives
//! everything else: engines compile by it, `adfuse emit --stage` stops at a row and prints, `adfuse emit --stages`
//! lists it, and the filetests and the table in `docs/architecture.md` read it. A new pass is a new row.

mod artifact;
mod compiler;
mod passes;
pub mod rules;
pub mod text;
mod unit;
mod verifier;

pub use crate::engine::{ListingCompiler, Machine};
pub use artifact::Artifact;
pub use compiler::Compiler;
pub(crate) use unit::missing;
pub use unit::{CompileUnit, EngineArtifacts, Selection};
pub use verifier::Verifier;

use crate::fusion::{PREPASSES, Prepass};
use crate::ir::rewrite::AttentionSteps;
use crate::ir::{At, Diagnostic, Fp, Function, Kind, Module};
use std::fmt;
use std::sync::LazyLock;

/// A row of the table.
pub struct Pass {
    /// Its name.
    pub name: &'static str,
    /// The engine that has it; without one, all of them have.
    pub engine: Option<&'static str>,
    /// What it takes.
    pub takes: Artifact,
    /// What it gives.
    pub gives: Artifact,
    /// What checks that.
    pub verifier: Verifier,
    /// What it does, in a line.
    pub about: &'static str,
    /// What prints, by the names of the stages.
    pub texts: Vec<Printed>,
    run: PassBody,
}

/// A stage: the text of what a pass gave.
#[derive(Clone, Copy)]
pub struct Printed {
    /// Its name.
    pub name: &'static str,
    print: fn(&CompileUnit<'_>) -> Result<String, Diagnostic>,
}

/// What a pass does.
#[derive(Clone, Copy)]
enum PassBody {
    /// A pass of the planner's crate.
    Prepass(Prepass),
    /// A pass of [`passes`].
    Here(fn(&dyn Compiler, &mut CompileUnit<'_>) -> Result<(), Diagnostic>),
}

/// Which attention an engine has a step for, as far as the kind of its machine tells.
pub fn attention_steps(gpu: bool) -> AttentionSteps {
    if gpu { crate::backends::gpu::ATTENTION } else { AttentionSteps::Defined }
}

/// The pass after which attention is what the engine has a step for, or what it is composed of.
const COMPOSE_STEPS: &str = "compose_steps";

/// The pass after which sums of windows are convolutions, where the engine has kernels for these, and norms are in weights.
const CONVOLVE: &str = "convolve";

/// Every pass, in the order in which they run. Those of one engine follow those of all.
pub static PASSES: LazyLock<Vec<Pass>> = LazyLock::new(|| {
    use Artifact::*;
    let row = Pass::new;
    let prepass = |pass: &Prepass| {
        let row = row(pass.name, [Function, Function], Verifier::Ir, passes::nothing, pass.about);
        Pass { run: PassBody::Prepass(*pass), ..row.prints(pass.name, passes::function) }
    };
    #[rustfmt::skip]
    let front = [
        row("parse", [Text, Module], Verifier::Ir, passes::parse,
            "the text is read, names are resolved").prints("parse", passes::module),
        row("specialize", [Module, Function], Verifier::Ir, passes::specialize,
            "the function that is asked for, at known extents").prints("specialize", passes::function),
        row("stabilize", [Function, Function], Verifier::Ir, passes::stabilize,
            "stable forms for naive formulas, in modes that are not strict").prints("stabilize", passes::function),
        row("differentiate", [Function, Function], Verifier::Ir, passes::differentiate,
            "gradients beside the results, where they are asked for").prints("differentiate", passes::function),
    ];
    let composed = row(
        COMPOSE_STEPS,
        [Function, Function],
        Verifier::Ir,
        passes::compose_steps,
        "attention becomes what it is composed of, or works on f32, where the engine has no step for it as it is",
    )
    .prints("compose_steps", passes::function);
    let convolved = row(
        CONVOLVE,
        [Function, Function],
        Verifier::Ir,
        passes::convolve,
        "sums of overlapping windows become convolutions, and convolutions by channel elementwise products, in fast on a GPU, and sums of products one product outside of strict mode there; norms by known statistics become scaled weights outside of strict mode on a CPU",
    )
    .prints("convolve", passes::function);
    #[rustfmt::skip]
    let back = [
        row("price", [Function, Function], Verifier::Ir, passes::price,
            "the prices of the user's functions are written into their calls").prints("price", passes::function),
        row("segments", [Function, Function], Verifier::Ir, passes::segment,
            "later phases compute again what is inside of checkpoint segments, where a budget asks for that")
            .prints("segments", passes::function),
        row("recover_operands", [Function, Function], Verifier::Ir, passes::recover,
            "later phases recover operands from answers, by the inverses of ops")
            .prints("recover_operands", passes::function),
        row("narrow_storage", [Function, Function], Verifier::Ir, passes::narrow,
            "what later phases read is kept in fewer bits, where that is allowed")
            .prints("narrow_storage", passes::function).prints("ad", passes::function),
        row("loop_residuals", [Function, Function], Verifier::Ir, passes::loops,
            "ways back over loops read stacks of residuals, or keep checkpoints and compute steps again")
            .prints("loop_residuals", passes::function),
        row("plan", [Function, Plan], Verifier::ReadsBack, passes::plan,
            "which instructions share a kernel, what is kept, what is computed again").prints("plan", passes::plan_text),
        row("lower", [Plan, Program], Verifier::Kernels, passes::lower,
            "the plan becomes a program of kernels")
            .prints("program", passes::program_text).prints("kernels", passes::kernels_text),
        row("layout", [Program, Layout], Verifier::Layout, passes::layout,
            "every temporary gets a place in one arena").of("cpu").prints("layout", passes::layout_text),
        row("machine_code", [Layout, MachineCode], Verifier::Emitters, passes::machine_code,
            "a function of machine code for each sweep").of("cpu")
            .prints("asm", passes::asm_text).prints("loops", passes::loops_text)
            .prints("clif", passes::clif_text),
        row("schedule", [Program, Schedule], Verifier::ReadsBack, passes::schedule,
            "what threads share, keep, prefetch, tile and sort of each step is decided").of("gpu")
            .prints("schedule", passes::schedule_text),
        row("ptx", [Schedule, Launches], Verifier::Launches, passes::ptx,
            "the schedule is printed as PTX for each step, and what is launched").of("gpu")
            .prints("ptx", passes::ptx_text).prints("launches", passes::launches_text),
        row("device_layout", [Launches, Layout], Verifier::Layout, passes::layout,
            "every temporary of what is launched gets a place in one arena").of("gpu"),
        row("load", [Layout, Loaded], Verifier::Driver, passes::load,
            "the driver assembles the PTX, a graph of launches is made").of("gpu"),
    ];
    let mut planners = PREPASSES.iter().map(prepass);
    // What stands for attention has no calls, and takes the passes after inlining.
    let inlined = planners.next().into_iter().chain([composed, convolved]);
    front.into_iter().chain(inlined).chain(planners).chain(back).collect()
});

impl Pass {
    fn new(
        name: &'static str,
        [takes, gives]: [Artifact; 2],
        verifier: Verifier,
        run: fn(&dyn Compiler, &mut CompileUnit<'_>) -> Result<(), Diagnostic>,
        about: &'static str,
    ) -> Pass {
        let (engine, texts, run) = (None, Vec::new(), PassBody::Here(run));
        Pass { name, engine, takes, gives, verifier, about, texts, run }
    }

    /// As a pass of one engine alone.
    fn of(self, engine: &'static str) -> Pass {
        Pass { engine: Some(engine), ..self }
    }

    /// With a text.
    fn prints(
        mut self,
        name: &'static str,
        print: fn(&CompileUnit<'_>) -> Result<String, Diagnostic>,
    ) -> Pass {
        self.texts.push(Printed { name, print });
        self
    }

    /// Runs it.
    fn apply(&self, compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        self.checked(unit, |unit| match self.run {
            PassBody::Here(run) => run(compiler, unit),
            PassBody::Prepass(pass) => prepass(pass, unit),
        })
    }

    /// Runs it by `run`. In builds with debug assertions its verifier checks what it gives; what a verifier
    /// checks in every build is part of the pass.
    fn checked(
        &self,
        unit: &mut CompileUnit<'_>,
        run: impl FnOnce(&mut CompileUnit<'_>) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        if !unit.has(self.takes) {
            return Err(self.internal(unit, format!("there is no {}", self.takes.name())));
        }
        run(unit)?;
        if !cfg!(debug_assertions) {
            return Ok(());
        }
        self.verifier.check(unit, self.gives).map_err(|d| {
            self.internal(unit, format!("{} refuses what it gave: {d}", self.verifier.name()))
        })
    }

    fn internal(&self, unit: &CompileUnit<'_>, m: String) -> Diagnostic {
        let at = At { func: unit.name(), ..At::default() };
        Diagnostic::new(at, Kind::Internal, format!("pass `{}`: {m}", self.name))
    }
}

/// `name | takes -> gives | verifier | what it does`, as `adfuse emit --stages` prints it.
impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = format!("{} -> {}", self.takes.name(), self.gives.name());
        let verifier = self.verifier.name();
        write!(f, "{:18} {way:24} {verifier:16} {}", self.name, self.about)?;
        if let Some(engine) = self.engine {
            write!(f, "; engine {engine}")?;
        }
        match self.stages().get(1..) {
            None | Some([]) => Ok(()),
            Some(others) => write!(f, "; also --stage {}", others.join(", ")),
        }
    }
}

impl Pass {
    /// The stages that it prints: its own name, and others. None where it has no text.
    pub fn stages(&self) -> Vec<&'static str> {
        let others = self.texts.iter().map(|t| t.name).filter(|&name| name != self.name);
        match self.texts.is_empty() {
            true => Vec::new(),
            false => std::iter::once(self.name).chain(others).collect(),
        }
    }
}

/// A stage of this name, and the pass after which it is printed. What a pass prints under its own name is
/// the first of its texts.
pub fn stage(name: &str) -> Option<(&'static Pass, Printed)> {
    let of = |pass: &'static Pass| {
        let named = pass.texts.iter().find(|text| text.name == name);
        let own = || pass.texts.first().filter(|_| pass.name == name);
        Some((pass, *named.or_else(own)?))
    };
    PASSES.iter().find_map(of)
}

/// The names of all stages, in the order of the passes.
pub fn stages() -> Vec<&'static str> {
    PASSES.iter().flat_map(Pass::stages).collect()
}

/// The passes that one engine alone has, which come last.
pub(crate) fn own_passes(engine: &str) -> impl DoubleEndedIterator<Item = &'static Pass> {
    PASSES.iter().filter(move |pass| pass.engine == Some(engine))
}

/// Whether a pass comes before another.
pub fn is_before(pass: &str, other: &str) -> bool {
    let place = |name: &str| PASSES.iter().position(|p| p.name == name);
    place(pass) < place(other)
}

/// Runs the passes of an engine from one on, up to another.
///
/// # Errors
/// What a pass has against the program; [`Kind::Internal`] with the name of the pass where a verifier refuses
/// what it gave.
pub fn run(
    compiler: &dyn Compiler,
    unit: &mut CompileUnit<'_>,
    from: &str,
    to: &str,
) -> Result<(), Diagnostic> {
    let engine = compiler.engine();
    let mut passes = PASSES.iter().filter(|p| p.engine.is_none_or(|e| e == engine));
    let mut begun = false;
    for pass in passes.by_ref() {
        begun |= pass.name == from;
        if begun {
            pass.apply(compiler, unit)?;
        }
        if pass.name == to {
            break;
        }
    }
    match begun {
        true => Ok(()),
        false => {
            let m = format!("the engine {engine} has no passes from `{from}` to `{to}`");
            Err(Diagnostic::new(At::default(), Kind::Internal, m))
        }
    }
}

/// The function of a module as it is planned, before engines price and narrow it: what
/// [`prepare`](crate::fusion::prepare) gives, with every pass verified as a row of the table.
///
/// # Errors
/// As there, and as [`run`].
pub fn prepared(module: &Module, f: &Function) -> Result<Function, Diagnostic> {
    prepared_with(module, f, (AttentionSteps::Defined, Fp::Strict))
}

/// As [`prepared`], for an engine that has these steps for attention, in a mode.
///
/// # Errors
/// As there.
pub fn prepared_with(
    module: &Module,
    f: &Function,
    (steps, fp): (AttentionSteps, Fp),
) -> Result<Function, Diagnostic> {
    let mut unit = CompileUnit::of(module, f);
    for pass in PASSES.iter() {
        match pass.run {
            PassBody::Prepass(planners) => {
                pass.checked(&mut unit, |unit| prepass(planners, unit))?;
            }
            PassBody::Here(_) if pass.name == COMPOSE_STEPS => {
                pass.checked(&mut unit, |unit| passes::composed_steps(unit, steps, fp))?;
            }
            PassBody::Here(_) if pass.name == CONVOLVE => {
                pass.checked(&mut unit, |unit| passes::convolved(unit, steps, fp))?;
            }
            PassBody::Here(_) => {}
        }
    }
    unit.take_function()
}

fn prepass(pass: Prepass, unit: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
    let f = unit.take_function()?;
    unit.function = Some((pass.run)(&unit.module, f)?);
    Ok(())
}

/// The text of a stage, of a unit for which its pass has run.
///
/// # Errors
/// [`Kind::Internal`] where it does not read back, or the pass has not run.
pub fn print(stage: Printed, unit: &CompileUnit<'_>) -> Result<String, Diagnostic> {
    (stage.print)(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::ptx;
    use crate::engine::{Cpu, Gpu};
    use crate::fusion::PlanOptions;

    fn listed(machine: Machine) -> ListingCompiler {
        ListingCompiler { options: PlanOptions { ..Cpu::default().plan }, machine }
    }

    const TEXT: &str = "func @f(%x: f32[40]) -> f32[40] {
      %y = mul %x, %x : f32[40]
      return %y
    }";

    /// What a pass takes is what one before it gives, in the list of every engine; names are unique.
    #[test]
    fn passes_fit_together() {
        let mut names: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
        let mut all = stages();
        for engine in [Cpu::NAME, Gpu::NAME] {
            let mut there = vec![Artifact::Text];
            for pass in PASSES.iter().filter(|p| p.engine.is_none_or(|e| e == engine)) {
                assert!(there.contains(&pass.takes), "{} of {engine}", pass.name);
                there.push(pass.gives);
            }
        }
        for list in [&mut names, &mut all] {
            let n = list.len();
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), n);
        }
        for name in all {
            assert!(stage(name).is_some(), "{name}");
        }
    }

    /// What a pass gives is refused by its verifier, with the pass's name.
    #[test]
    #[cfg(debug_assertions)]
    fn a_broken_pass_is_named() {
        let compiler = listed(Machine::Gpu(9, 0));
        let refused = |row: Pass, unit: &mut CompileUnit<'_>| {
            let d = row.apply(&compiler, unit).expect_err("is refused");
            assert_eq!(d.kind, Kind::Internal, "{d}");
            assert!(d.message.starts_with("pass `broken`: "), "{d}");
            d.message
        };
        let mut unit = CompileUnit::of_text(TEXT, Selection::default());
        run(&compiler, &mut unit, "parse", "ptx").expect("compiles");
        let row = |gives, verifier, run| {
            Pass::new("broken", [Artifact::Function, gives], verifier, run, "breaks what there is")
        };
        // A call of what is not there.
        let call = row(Artifact::Function, Verifier::Ir, |_, unit| {
            let text = "func @f(%x: f32[40]) -> f32[40] {
              %z = call %x {func = @gone} : f32[40]
              return %z
            }";
            let module = crate::ir::text::parse(text).map_err(|e| e[0].clone())?;
            unit.function = module.funcs.values().next().cloned();
            Ok(())
        });
        let mut early = CompileUnit::of(&unit.module, unit.function.as_ref().expect("there"));
        assert!(refused(call, &mut early).contains("ir::verify"));
        // A launch of what the text does not have, one without blocks, one with too many threads.
        let breaks: [fn(&mut ptx::Launch); 3] =
            [|l| l.entry += "x", |l| l.grid[0] = 0, |l| l.block[0] = 2048];
        for (k, broken) in breaks.into_iter().enumerate() {
            let (program, module) = unit.launches().expect("there");
            let mut module = module.clone();
            broken(&mut module.steps[0].launches[0]);
            unit.launches = Some((program.clone(), module));
            let row = row(Artifact::Launches, Verifier::Launches, passes::nothing);
            let told = ["not one entry", "empty grid", "no such block"][k];
            assert!(refused(row, &mut unit).contains(told), "{told}");
            run(&compiler, &mut unit, "ptx", "ptx").expect("compiles");
        }
        // A layout with two values in the same bytes.
        let cpu = listed(Machine::Host(crate::backends::cpu::Vectors::Narrow));
        let text = TEXT.replace("return", "%z = reduce_sum %y {axes = [0]} : f32[]\n return");
        let mut unit = CompileUnit::of_text(&text, Selection::default());
        run(&cpu, &mut unit, "parse", "layout").expect("compiles");
        let row = row(Artifact::Layout, Verifier::Layout, |_, unit| {
            let program = unit.program()?.clone();
            if let Some((_, layout)) = &mut unit.memory {
                let output = program.outputs[0];
                layout.offsets[output] = Some(0);
            }
            Ok(())
        });
        assert!(refused(row, &mut unit).contains("check_layout"));
    }

    /// A pass whose operand is not there says so; engines have no passes of others.
    #[test]
    fn passes_come_in_their_order() {
        let compiler = listed(Machine::Gpu(9, 0));
        let mut unit = CompileUnit::of_text(TEXT, Selection::default());
        let d = run(&compiler, &mut unit, "plan", "plan").expect_err("has no function");
        assert_eq!(d.message, "pass `plan`: there is no function");
        let d = run(&compiler, &mut unit, "machine_code", "machine_code").expect_err("none");
        assert!(d.message.contains("engine gpu has no passes"), "{d}");
    }
}
