//! The flags that the examples share.

// No example uses all of them.
#![allow(dead_code, unreachable_pub)]

use adfuse::backends::RankGroup;
use adfuse::backends::ranks::RankEnvironment;
use adfuse::device::{Device, bytes};
use adfuse::fusion::MachineModel;
use adfuse::ir::{Diagnostic, Fp};

#[derive(clap::Parser, Debug)]
pub struct ExampleFlags {
    /// Where it runs: `cpu`, `gpu` or `gpu:1`.
    #[arg(long, visible_alias = "device", default_value = "cpu")]
    engine: String,
    /// The most memory that a step may take, such as `2MiB`.
    #[arg(long, value_parser = bytes)]
    mem_budget: Option<u64>,
    /// The freedom of floating-point arithmetic: `strict`, `reproducible` or `fast`.
    #[arg(long, value_parser = fp, default_value = "strict")]
    fp: Fp,
    /// The file of the machine to plan for, such as `adfuse tune` writes.
    #[arg(long, value_name = "FILE.toml", value_parser = machine)]
    machine: Option<MachineModel>,
    /// How many steps it takes.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// The seed of first values and random numbers.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Does less, within a few seconds.
    #[arg(long)]
    pub small: bool,
}

impl ExampleFlags {
    pub fn device(&self) -> Result<Device, Diagnostic> {
        self.device_named(&self.engine)
    }

    /// The device of this process where it is one of several ranks: each has a GPU of its own.
    pub fn device_of_rank(&self) -> Result<Device, Diagnostic> {
        let device = match RankEnvironment::read()? {
            Some(of) if self.engine == "gpu" => {
                self.device_named(&format!("gpu:{}", of.local_rank))
            }
            _ => self.device(),
        };
        Ok(device?.ranks(RankGroup::from_env()?))
    }

    fn device_named(&self, engine: &str) -> Result<Device, Diagnostic> {
        let device = Device::named(engine)?.fp(self.fp);
        let device = match &self.machine {
            Some(machine) => device.machine(machine.clone()),
            None => device,
        };
        Ok(match self.mem_budget {
            Some(bytes) => device.mem_budget(bytes),
            None => device,
        })
    }

    /// The most bytes that a step may take.
    pub fn mem_budget(&self) -> Option<u64> {
        self.mem_budget
    }

    /// The number of steps: what was asked for, or one of these.
    pub fn steps(&self, usual: u64, small: u64) -> u64 {
        self.steps.unwrap_or(if self.small { small } else { usual })
    }
}

/// A learning rate: a number above 0.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("is no number above 0".into()) }
}

fn machine(path: &str) -> Result<MachineModel, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    MachineModel::from_toml(&text).map_err(|d| d.to_string())
}

fn fp(text: &str) -> Result<Fp, String> {
    let found = Fp::ALL.iter().find(|(_, name)| *name == text);
    found.map(|(fp, _)| *fp).ok_or_else(|| "modes are strict, reproducible and fast".into())
}
