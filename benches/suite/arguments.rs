//! Arguments that the benches of this crate share on their command lines.

use crate::Host;
use adfuse::engine::registry::NamedEngine;
use adfuse::engine::{Cpu, Gpu};
use adfuse::ir::diag::did_you_mean;
use adfuse::ir::{At, Diagnostic, Fp, Kind};
use clap::Args;
use std::time::Duration;

/// What is measured, where, and for how long.
#[derive(Args, Clone, Debug)]
pub struct MeasureArgs {
    /// The engine: cpu, gpu or gpu:N
    #[arg(long, default_value = "cpu")]
    engine: NamedEngine,
    /// The mode: strict, reproducible or fast
    #[arg(long, default_value = "strict", value_parser = mode)]
    fp: Fp,
    /// Only the programs of these names; `NAME*` stands for all that begin so
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds of measuring a program
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The least number of rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

fn mode(text: &str) -> Result<Fp, String> {
    let found = Fp::ALL.iter().find(|(_, name)| *name == text);
    found.map(|(fp, _)| *fp).ok_or_else(|| "modes are strict, reproducible and fast".into())
}

/// Whether a program of this name is wanted by an argument of `--only`.
fn fits(wanted: &str, name: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == wanted,
    }
}

impl MeasureArgs {
    /// The engine, opened.
    ///
    /// # Errors
    /// [`Kind::NoDevice`] where there is no GPU, and [`Kind::Usage`] for engines that are not measured.
    pub fn host(&self, threads: usize) -> Result<Host, Diagnostic> {
        match self.engine.row.name {
            Cpu::NAME => Ok(Host::cpu(threads, self.fp)),
            Gpu::NAME => Host::gpu(self.engine.number_of_rank(), self.fp),
            other => {
                let m = format!("`{other}` is not measured: --engine is cpu or gpu");
                Err(Diagnostic::new(At::default(), Kind::Usage, m))
            }
        }
    }

    /// Whether the engine is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.engine.row.name == Gpu::NAME
    }

    /// Whether a program is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| fits(wanted, name))
    }

    /// Errs where a name is asked for that no program has; names what there is.
    ///
    /// # Errors
    /// With the message to print.
    pub fn all_known<'n>(
        &self,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<(), String> {
        let is_known = |wanted: &&String| names.clone().any(|name| fits(wanted, name));
        match self.only.iter().find(|wanted| !is_known(wanted)) {
            None => Ok(()),
            Some(wanted) => {
                let known: Vec<&str> = names.clone().collect();
                let near = did_you_mean(wanted, known.iter().copied());
                let near = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
                Err(format!(
                    "no program is called `{wanted}`{near}: there are {}",
                    known.join(", ")
                ))
            }
        }
    }

    /// The mode of floating point.
    pub fn fp(&self) -> Fp {
        self.fp
    }

    /// How long a program is measured, and the least number of rounds.
    pub fn length(&self) -> (Duration, usize) {
        (Duration::from_secs_f64(self.seconds.clamp(0.0, 3600.0)), self.rounds.max(1))
    }
}
