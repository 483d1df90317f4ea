//! The verifiers of the passes' outputs.

use super::artifact::Artifact;
use super::text;
use super::unit::CompileUnit;
use crate::backends::{check_layout, ptx};
use crate::ir::{At, Diagnostic, Function, Kind, Module, verify as ir};

/// A verifier. All of them run in builds with debug assertions; which run in every build is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verifier {
    /// The IR's: types, dominance, effects, calls.
    Ir,
    /// A plan or a schedule reads back from its text as the same one.
    ReadsBack,
    /// The verifier of kernels: accesses in bounds, writes disjoint. It runs in every build.
    Kernels,
    /// No two values have the same bytes at one time. Executables check their layout in every build.
    Layout,
    /// Those of the emitters, inside of the pass: instructions decode as what was meant, CLIF verifies.
    Emitters,
    /// Every launch is of an entry point of the text, with a grid, a block and shared memory that a GPU takes.
    Launches,
    /// The driver's assembler, in every build.
    Driver,
}

impl Verifier {
    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Verifier::Ir => "ir::verify",
            Verifier::ReadsBack => "reads back",
            Verifier::Kernels => "kernel::verify",
            Verifier::Layout => "check_layout",
            Verifier::Emitters => "the emitters'",
            Verifier::Launches => "launches",
            Verifier::Driver => "the driver's",
        }
    }

    /// Checks what a pass gave.
    pub(super) fn check(self, unit: &CompileUnit<'_>, gives: Artifact) -> Result<(), Diagnostic> {
        let first = |errors: Vec<Diagnostic>| match errors.into_iter().next() {
            Some(d) => Err(d),
            None => Ok(()),
        };
        match self {
            Verifier::Ir if gives == Artifact::Module => ir::verify(&unit.module).or_else(first),
            Verifier::Ir => ir::verify(&alone(&unit.module, unit.function()?)).or_else(first),
            Verifier::ReadsBack if gives == Artifact::Schedule => match &unit.schedule {
                Some((program, schedule)) => text::schedule(program, schedule).map(|_| ()),
                // A device that is there has made its launches of it already.
                None => Ok(()),
            },
            Verifier::ReadsBack => text::plan(unit.function()?, unit.plan()?).map(|_| ()),
            Verifier::Layout => match &unit.backend.prepared {
                Some((program, again)) => check_layout(program, unit.layout()?, again),
                None => check_layout(unit.program()?, unit.layout()?, &[]),
            },
            // A device that is there has its driver check them.
            Verifier::Launches if unit.launches.is_none() => Ok(()),
            Verifier::Launches => unit.launches().and_then(|(_, module)| launches(module)),
            // They have run inside of the pass: a `Verified<Program>` comes from its verifier alone.
            Verifier::Kernels | Verifier::Emitters | Verifier::Driver => Ok(()),
        }
    }
}

/// A module with the function and those that it may call. Its rule is for callers, of whom it has none.
fn alone(module: &Module, f: &Function) -> Module {
    let mut f = f.clone();
    f.rule = None;
    let mut calls = false;
    f.walk(&mut |f, i| calls |= f.op(i) == crate::ir::Op::Call);
    if !calls {
        return Module::single(f);
    }
    let mut all = module.clone();
    // Others may have rules that name the function as it was.
    f.name += ".checked";
    all.funcs.push(f);
    all
}

/// All launches of steps, those of the programs in them too.
fn collect<'m>(steps: &'m [ptx::StepCode], all: &mut Vec<&'m ptx::Launch>) {
    for code in steps {
        all.extend(&code.launches);
        for block in &code.blocks {
            all.extend(block.before.iter().chain(&block.after));
            collect(&block.steps, all);
        }
    }
}

fn launches(module: &ptx::PtxModule) -> Result<(), Diagnostic> {
    let mut all: Vec<&ptx::Launch> = Vec::new();
    [&module.enter, &module.leave].iter().for_each(|code| all.extend(&code.launches));
    collect(&module.steps, &mut all);
    let targets = || ptx::GpuTarget::ALL.into_iter();
    let threads = targets().map(|t| t.block_threads).max().unwrap_or(0);
    let most = targets().map(|t| t.shared).max().unwrap_or(0);
    for launch in all {
        let ptx::Launch { entry, user, grid, block, shared, .. } = launch;
        let begin = format!(".entry {entry}(");
        let block: u32 = block.iter().product();
        let is_there = match user {
            // What a user's text has was looked up when the kernel was made.
            Some(number) => *number < module.users.len(),
            None => module.text.matches(&begin).count() == 1,
        };
        let wrong = match () {
            () if !is_there => "is not one entry point of the text",
            () if grid.contains(&0) => "has an empty grid",
            () if !(1..=threads).contains(&block) => "has no such block",
            () if *shared > most => "has too much shared memory",
            () => continue,
        };
        let m = format!("the launch of `{entry}` {wrong}");
        return Err(Diagnostic::new(At::default(), Kind::Internal, m));
    }
    Ok(())
}
