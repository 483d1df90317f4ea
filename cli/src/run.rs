//! `run`: runs a function, or its gradient function, at given or random inputs.

use super::bench::events;
use super::derivative::Wrt;
use super::engine::{EngineArgs, ResolvedFreedom, exchanges};
use super::failure::Failure;
use super::freedom::{Freedom, PlanArg};
use super::inputs::{self, GivenValue, InputArgs, Inputs, arguments};
use super::json::ElementForm;
use super::losses::{Donated, Losses};
use super::machine::SeedArg;
use super::outputs::OutputFile;
use super::params;
use super::program::LoadedProgram;
use super::serve::serve;
use super::source::is_stdin;
use super::stable_forms::in_mode;
use super::streams::{Streams, VisibleWriter};
use super::target::{FunctionArgs, all_bound, specialized};
use super::weights::Weights;
use super::{json, npz, show, whole};
use adfuse::autodiff::forward_and_backward;
use adfuse::backends::functions::Registry;
use adfuse::backends::ranks::RankEnvironment;
use adfuse::backends::{Array, ScopedEffects, Silent, WrittenEffects, reference, with_effects};
use adfuse::fusion::Fp;
use adfuse::ir::diag::listed;
use adfuse::ir::{DType, Function, Module};
use clap::Args;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

/// Runs a function and prints its results
///
/// Results have the names they are returned by, or out0, out1, ..; the gradient of %x is grad_x.
/// Inputs that are not given are random: normal for floats, 0 to 3 for integers. They depend on
/// --seed and their position alone. What the program prints goes to standard error.
#[derive(Args)]
pub(super) struct RunCommand {
    #[command(flatten)]
    target: FunctionArgs,
    #[command(flatten)]
    inputs: InputArgs,
    /// Values for inputs that are not given, by their names, from a .safetensors file
    ///
    /// Default: the model's own weights; for NAME.ir, those in NAME.safetensors beside it.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    #[command(flatten)]
    seed: SeedArg,
    /// Compute the gradient too
    ///
    /// If the function has one float result and that is a scalar, the gradient is that of this scalar. Otherwise
    /// each float result takes one more input, its cotangent: `<result>_ct`, or ct0, ct1, .. where the result has
    /// no name, with a suffix where a parameter has that name. Cotangents that are not given are ones.
    #[arg(long)]
    grad: bool,
    #[command(flatten)]
    wrt: Wrt,
    #[command(flatten)]
    engine: EngineArgs,
    /// The machine that is planned for: cpu, cpu1, h200, or a file that describes one; without this, the plan's, or the
    /// engine's
    #[arg(long, value_name = "NAME|FILE.toml")]
    device: Option<String>,
    #[command(flatten)]
    freedom: Freedom,
    #[command(flatten)]
    followed: PlanArg,
    #[command(flatten)]
    losses: Losses,
    #[command(flatten)]
    donated: Donated,
    /// Print a SHA-256 of each result's little-endian bytes
    #[arg(long)]
    digest: bool,
    /// Also write the results, then the gradients, to a .npz file; a single one may go to a .npy file. bf16 is
    /// written as float32
    #[arg(long, value_name = "OUT.npz|OUT.npy", value_parser = OutputFile::of_arrays())]
    save: Option<OutputFile>,
    /// Also run once more, and write when its steps and tasks ran to a file for the trace viewers of browsers
    #[arg(long, value_name = "OUT.json", value_parser = OutputFile::named(), conflicts_with_all = ["serve", "donate"])]
    trace: Option<OutputFile>,
    /// Compile once, then run for each line `IN.npz<tab>OUT.npz` of standard input
    ///
    /// IN.npz has an array for each input that is not among the weights; OUT.npz gets the results, then the gradients. Each line is answered by
    /// `ok`, or by `error` and a message as a JSON string. The end of standard input ends the program.
    #[arg(long, conflicts_with_all = ["inputs", "json", "digest", "save", "output"])]
    serve: bool,
}

impl RunCommand {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        self.check_options()?;
        let (lossy, plan) = (self.losses.allowed()?, self.followed.read()?);
        let plan = (plan, self.device.as_deref());
        let settled = ResolvedFreedom::of(&self.freedom, lossy, plan, &self.engine)?;
        let program = self.target.read()?;
        let _start = self.engine.begin();
        let f = self.target.choose(&program)?;
        let weights = Weights::of(self.weights.as_deref(), &program.source)?;
        weights.some_known(&params::params(f), &f.name)?;
        let weights = Rc::new(weights);
        let inputs =
            Inputs::new(self.inputs.inputs.clone(), self.seed.seed)?.with_weights(weights.clone());
        let (f, given) = self.at_extents(&program, f, &inputs)?;
        let (module, running, wrt) = self.derived(&program, &f, settled.fp)?;
        let names = names(&f, &wrt);
        self.check_save(&names)?;
        if exchanges(&module, &running) {
            let ranks = RankEnvironment::read().map_err(Failure::Usage)?.map_or(1, |e| e.ranks);
            let written = self.save.iter().chain(&self.trace).chain(&streams.output);
            written.into_iter().try_for_each(|file| file.is_of_one_rank(ranks))?;
        }
        // The requests to a server bring their own.
        let args = match self.serve {
            true => Vec::new(),
            false => arguments(&program.source, &running, &inputs, given)?,
        };
        renamed(&f, &running, streams);
        let what = (&module, &running, f.name.as_str());
        let donated = self.donated.positions(&running)?;
        let made = self.engine.compile(&program, what, (settled, donated), streams)?;
        let run = |args: Vec<Array>, err: &mut dyn Write| {
            let values =
                with_effects(&mut WrittenEffects(&mut VisibleWriter(err)), || match &made {
                    Some(made) if self.donated.is_empty() => made.executable.run(&args),
                    Some(made) => made.executable.run_donating(args),
                    None => {
                        let given = (&Registry::new(), self.engine.limits());
                        reference::run_within(&module, &running, &args, &mut ScopedEffects, given)
                    }
                });
            let named = |values: Vec<Array>| names.iter().cloned().zip(values).collect();
            values.map(named).map_err(|d| program.wrong(d))
        };
        if self.serve {
            return serve(io::stdin().lock(), streams.out, |request| {
                let given =
                    Inputs::of_archive(&params::params(&running), &request.given, &weights)?;
                let args = arguments(&program.source, &running, &given, Vec::new())?;
                let named: Vec<(String, Array)> = run(args, &mut *streams.err)?;
                npz::save(&request.made, &named)
            });
        }
        if let Some(path) = &self.trace {
            let made = made.as_ref().ok_or_else(|| {
                Failure::usage(
                    "--trace is for engines that plan, and the reference engine runs this",
                )
            })?;
            let trace = with_effects(&mut Silent, || made.executable.trace(&args));
            let trace = trace.map_err(|d| program.wrong(d))?;
            let names: Vec<&str> =
                made.executable.steps().iter().map(|s| s.name.as_str()).collect();
            let text = events::text(&trace, &names);
            whole::write(&path.path, |file| file.write_all(text.as_bytes()))?;
        }
        let named: Vec<(String, Array)> = run(args, &mut *streams.err)?;
        if let Some(OutputFile { path, .. }) = &self.save {
            match named.as_slice() {
                [(_, only)] if npz::holds_one(path) => npz::save_npy(path, only)?,
                all => npz::save(path, all)?,
            }
        }
        let (outputs, gradients) = named.split_at(named.len() - wrt.len());
        self.print(streams, &f.name, outputs, gradients)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Errs where options contradict each other.
    fn check_options(&self) -> Result<(), Failure> {
        if self.wrt.is_given() && !self.grad {
            return Err(Failure::usage("--wrt is for --grad"));
        }
        if self.serve && self.target.path().is_none_or(is_stdin) {
            return Err(Failure::usage(
                "--serve reads requests from standard input: name the program's file",
            ));
        }
        Ok(())
    }

    /// Errs where the results are to be saved in a file that holds one array, and there are others.
    fn check_save(&self, names: &[String]) -> Result<(), Failure> {
        let path = self.save.as_ref().map(|file| file.path.as_path());
        let Some(path) = path.filter(|p| npz::holds_one(p) && names.len() != 1) else {
            return Ok(());
        };
        let m = format!(
            "`{}` would hold one array, the results are {}",
            path.display(),
            listed(names, "")
        );
        Err(Failure::usage(m).hint(Some("name a .npz file, which holds several".into())))
    }

    /// The function to run with the module that it calls, and which parameters it is differentiated with respect to.
    fn derived(
        &self,
        program: &LoadedProgram,
        f: &Function,
        fp: Fp,
    ) -> Result<(Module, Function, Vec<usize>), Failure> {
        let mode = (self.engine.attention(), fp);
        let (module, formed) = in_mode(program, f, mode, &mut Vec::new())?;
        if !self.grad {
            return Ok((module, formed, Vec::new()));
        }
        let wrt = self.wrt.positions(program, f)?;
        let g = forward_and_backward(&module, &formed, &wrt).map_err(|d| program.wrong(d))?;
        Ok((module, g, wrt))
    }

    /// The function with all symbols bound, and what is given for its parameters.
    fn at_extents(
        &self,
        program: &LoadedProgram,
        f: &Function,
        inputs: &Inputs,
    ) -> Result<(Function, Vec<Option<GivenValue>>), Failure> {
        let params = params::params(f);
        if !self.grad {
            inputs.all_known(&params, &f.name)?;
        }
        let given = params.iter().map(|p| inputs.read(p)).collect::<Result<Vec<_>, _>>()?;
        let extents = inputs::bind(&params, &given, self.target.extents(program, f)?)?;
        all_bound(f, &extents)?;
        Ok((specialized(program, f, &extents)?, given))
    }

    fn print(
        &self,
        streams: &mut Streams<'_>,
        func: &str,
        outputs: &[(String, Array)],
        gradients: &[(String, Array)],
    ) -> io::Result<()> {
        let out = &mut *streams.out;
        if streams.json {
            let form = if self.digest { ElementForm::Digest } else { ElementForm::Data };
            write!(out, "{{\"func\": {}, \"outputs\": ", json::quoted(func))?;
            json::write_arrays(out, outputs, form)?;
            if self.grad {
                write!(out, ", \"gradients\": ")?;
                json::write_arrays(out, gradients, form)?;
            }
            return writeln!(out, "}}");
        }
        for (name, a) in outputs.iter().chain(gradients) {
            if self.digest {
                show::write_digest(out, name, a)?;
            } else {
                show::write_array(out, name, a)?;
            }
        }
        Ok(())
    }
}

/// Tells which cotangents have other names than --help says, since parameters have those.
fn renamed(f: &Function, running: &Function, streams: &mut Streams<'_>) {
    let own = params::params(f).len();
    let taking = running.params().iter().filter(|&&p| running.ty(p).dtype != DType::Token);
    for (param, &p) in params::params(running).iter().zip(taking).skip(own) {
        if let Some(name) = running.name_of(p).filter(|n| *n != param.name) {
            let m = format!("%{name} is a parameter; the cotangent's input is {}", param.name);
            streams.note(m);
        }
    }
}

/// A name for each result that is no token, then for each gradient; all different.
fn names(f: &Function, wrt: &[usize]) -> Vec<String> {
    let results = f.results().iter().filter(|r| f.ty(**r).dtype != DType::Token);
    let outputs = results
        .enumerate()
        .map(|(k, &r)| f.name_of(r).map_or_else(|| format!("out{k}"), str::to_string));
    let of = |k: usize| f.name_of(f.params()[k]).map_or_else(|| k.to_string(), str::to_string);
    let gradients = wrt.iter().map(|&k| format!("grad_{}", of(k)));
    let mut taken = BTreeSet::new();
    outputs.chain(gradients).map(|name| params::unique(name, &mut taken)).collect()
}
