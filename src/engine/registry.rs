//! The table of engines by name: their descriptions, the machines that plans for them are made for, and how they are
//! opened. A new engine is a folder in `backends/` and a row here.

use super::Cpu;
#[cfg(feature = "gpu")]
use super::Gpu;
use crate::backends::AnyBackend;
use crate::backends::backend::erased;
use crate::backends::cpu::Vectors;
use crate::backends::functions::Registry;
use crate::backends::limits::RunLimits;
use crate::backends::ranks::RankEnvironment;
use crate::backends::ranks::RankGroup;
use crate::backends::reference::Evaluator;
use crate::fusion::{self, MachineModel};
use crate::ir::Diagnostic;
use crate::ir::rewrite::AttentionSteps;
#[cfg(feature = "gpu")]
use crate::kernel_cache::KernelCache;
use crate::pipeline::attention_steps;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;

/// An engine by name: a row of [`ENGINES`].
#[derive(Debug)]
pub struct EngineRow {
    /// As in `--engine NAME`.
    pub name: &'static str,
    /// A short description.
    pub about: &'static str,
    /// Where there may be several, told apart by numbers from 0 on (`gpu:1`), what each of them is.
    pub numbered: Option<&'static str>,
    /// Whether it works on threads of the host, with vectors.
    pub threads: bool,
    /// The default machine of plans.
    pub machine: &'static str,
    /// Opens the engine; an engine without it runs functions without plans.
    pub open: Option<Open>,
    /// Opens what plans are priced and counted by where the engine's device is not there.
    pub described: Option<Open>,
    /// What opening it waits for, whatever is asked of it, where that takes long.
    pub begin: Option<fn()>,
}

/// Opens an engine.
///
/// # Errors
/// Where it is not on this host.
pub type Open = fn(&Request) -> Result<Arc<AnyBackend>, Diagnostic>;

/// Options for opening an engine; each engine ignores those that do not apply.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which one, where there are several.
    pub number: u32,
    /// What is planned for; engines take the mode from it.
    pub plan: fusion::PlanOptions,
    /// Threads of the host.
    pub threads: usize,
    /// The largest vector width.
    pub vectors: Vectors,
    /// The cache of GPU code.
    #[cfg(feature = "gpu")]
    pub code: Option<KernelCache>,
    /// The user functions.
    pub functions: Registry,
    /// The ranks that run the same program.
    pub ranks: RankGroup,
    /// How far programs may go.
    pub limits: RunLimits,
}

impl Request {
    /// A request with these planning options and defaults otherwise.
    pub fn new(plan: fusion::PlanOptions) -> Request {
        let (vectors, functions) = (Vectors::host(), Registry::new());
        Request {
            number: 0,
            plan,
            threads: 1,
            vectors,
            #[cfg(feature = "gpu")]
            code: None,
            functions,
            ranks: RankGroup::alone(),
            limits: RunLimits::default(),
        }
    }
}

/// All engines.
pub const ENGINES: &[EngineRow] = &[
    EngineRow {
        name: "reference",
        about: "instruction by instruction, without a plan; it defines the values",
        numbered: None,
        threads: false,
        machine: "cpu",
        open: None,
        described: None,
        begin: None,
    },
    EngineRow {
        name: Evaluator::NAME,
        about: "planned, and evaluated kernel by kernel",
        numbered: None,
        threads: false,
        machine: "cpu",
        open: Some(|request| {
            let evaluator = Evaluator::new(request.functions.clone())
                .within(request.limits)
                .among(request.ranks.clone());
            Ok(erased(Arc::new(evaluator)))
        }),
        described: None,
        begin: None,
    },
    EngineRow {
        name: Cpu::NAME,
        about: "planned, as machine code",
        numbered: None,
        threads: true,
        machine: "cpu",
        open: Some(|request| {
            let Request { plan, threads, vectors, functions, ranks, limits, .. } = request.clone();
            let cpu = Cpu { plan, threads, vectors, functions, ranks, limits, ..Cpu::default() };
            Ok(cpu.session().erased().backend)
        }),
        described: None,
        begin: None,
    },
    #[cfg(feature = "gpu")]
    EngineRow {
        name: Gpu::NAME,
        about: "planned, on an NVIDIA GPU",
        numbered: Some("GPU"),
        threads: false,
        machine: "h200",
        open: Some(|request| {
            let Request { plan, code, number, functions, limits, ranks, .. } = request.clone();
            let gpu = Gpu::open(number)?.among(ranks)?;
            let gpu = Gpu { plan, code, functions, limits, ..gpu };
            Ok(gpu.session().erased().backend)
        }),
        described: Some(|request| {
            let Request { plan, functions, limits, .. } = request.clone();
            let gpu = Gpu { plan, functions, limits, ..Gpu::described() };
            Ok(gpu.session().erased().backend)
        }),
        begin: Some(Gpu::begin_driver),
    },
];

/// An engine that was named, and its number.
#[derive(Clone, Copy, Debug)]
pub struct NamedEngine {
    /// Its row.
    pub row: &'static EngineRow,
    /// Which one, where there are several and one was named.
    pub number: Option<u32>,
}

impl NamedEngine {
    /// Which one it is for this process: the one that was named, or that of the process's number among the ranks of its host; the
    /// first where it is none.
    pub fn number_of_rank(&self) -> u32 {
        // What is wrong with the variables is told by what connects the ranks.
        let local = || RankEnvironment::read().ok().flatten().map_or(0, |found| found.local_rank);
        match self.row.numbered {
            Some(_) => self.number.unwrap_or_else(local),
            None => 0,
        }
    }

    /// The default machine of plans.
    pub fn device(&self) -> MachineModel {
        MachineModel::named(self.row.machine).unwrap_or_else(MachineModel::cpu)
    }

    /// Begins what opening it waits for on another thread, for as long as what is returned lives; opening it waits for the rest. What is wrong is told
    /// when it is opened.
    #[must_use]
    pub fn begin(&self) -> EngineStart {
        let thread = std::thread::Builder::new().name("engine start".into());
        EngineStart(self.row.begin.and_then(|begin| thread.spawn(begin).ok()))
    }

    /// Which attention it has a step for.
    pub fn attention(&self) -> AttentionSteps {
        attention_steps(self.device().is_gpu())
    }

    /// Whether it runs functions without plans.
    pub fn is_unplanned(&self) -> bool {
        self.row.open.is_none()
    }
}

/// The start of an engine. Dropping it waits until that is done: a process does not end inside of a driver's start.
#[derive(Debug)]
pub struct EngineStart(Option<JoinHandle<()>>);

impl Drop for EngineStart {
    fn drop(&mut self) {
        // Whatever became of it, opening the engine tells.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

impl FromStr for NamedEngine {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedEngine, String> {
        let (name, number) = match text.split_once(':') {
            None => (text, None),
            Some((name, number)) => (name, Some(number)),
        };
        let found = ENGINES.iter().find(|row| row.name == name);
        match (found, number, found.and_then(|row| row.numbered)) {
            (Some(row), None, _) => Ok(NamedEngine { row, number: None }),
            (Some(row), Some(number), Some(one)) => {
                let wrong = |_| format!("`{number}` is no number of a {one}");
                let number = number.parse().map_err(wrong)?;
                Ok(NamedEngine { row, number: Some(number) })
            }
            _ => Err(format!("no engine `{text}`: engines are {}", names(|_| true))),
        }
    }
}

/// The names of some engines, as a list in words.
pub fn names(wanted: fn(&EngineRow) -> bool) -> String {
    let all: Vec<String> = ENGINES.iter().filter(|row| wanted(row)).flat_map(spellings).collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => all.concat(),
    }
}

fn spellings(row: &EngineRow) -> Vec<String> {
    let numbered = row.numbered.map(|_| format!("{}:N", row.name));
    [row.name.to_owned()].into_iter().chain(numbered).collect()
}

/// Descriptions of the engines for a help text.
pub fn described() -> String {
    let one = |row: &EngineRow| format!("{} ({})", spellings(row).join(" or "), row.about);
    ENGINES.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The row of the default engine.
pub fn usual() -> NamedEngine {
    let row = ENGINES.iter().find(|row| row.name == Cpu::NAME).unwrap_or(&ENGINES[0]);
    NamedEngine { row, number: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn engines_are_read_by_name() {
        for (text, name, number) in [
            #[cfg(feature = "gpu")]
            ("gpu", "gpu", None),
            #[cfg(feature = "gpu")]
            ("gpu:3", "gpu", Some(3)),
            ("cpu", "cpu", None),
            ("reference", "reference", None),
            ("evaluator", "evaluator", None),
        ] {
            let found: NamedEngine = text.parse().expect(text);
            assert_eq!((found.row.name, found.number), (name, number));
        }
        for wrong in ["", "gp", "gpu:", "gpu:-1", "gpu:x", "cpu:0", "gpu:0:1", "gpu:4294967296"] {
            assert!(wrong.parse::<NamedEngine>().is_err(), "{wrong}");
        }
    }

    /// An engine that has begun opens as one that has not, and dropping its start waits for it.
    #[test]
    fn engines_begin_before_they_are_opened() {
        static BEGUN: AtomicBool = AtomicBool::new(false);
        const ROW: EngineRow = EngineRow {
            name: "late",
            about: "",
            numbered: None,
            threads: false,
            machine: "cpu",
            open: None,
            described: None,
            begin: Some(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                BEGUN.store(true, Ordering::SeqCst);
            }),
        };
        static LATE: EngineRow = ROW;
        drop(NamedEngine { row: &LATE, number: None }.begin());
        assert!(BEGUN.load(Ordering::SeqCst));
        for row in ENGINES {
            let told = || {
                let opened = row.open?(&Request::new(Cpu::default().plan));
                Some(opened.map(|b| b.name()).map_err(|d| d.to_string()))
            };
            let before = told();
            let named = NamedEngine { row, number: None };
            let start = named.begin();
            assert_eq!(told(), before, "{}", row.name);
            drop(start);
        }
    }

    /// Which attention an engine has a step for is known before it is opened.
    #[test]
    fn attention_is_known_before() {
        for row in ENGINES {
            let Some(open) = row.open else { continue };
            if let Ok(backend) = open(&Request::new(Cpu::default().plan)) {
                let named = NamedEngine { row, number: None };
                assert_eq!(named.attention(), backend.capabilities().attention, "{}", row.name);
            }
        }
    }

    /// A row has the name of the backend that it opens, which is what tells kept plans apart.
    #[test]
    fn rows_open_what_they_name() {
        for row in ENGINES {
            let Some(open) = row.open else { continue };
            assert!(MachineModel::named(row.machine).is_some(), "{}", row.name);
            match open(&Request::new(Cpu::default().plan)) {
                Ok(backend) => assert_eq!(backend.name(), row.name),
                Err(d) => assert_eq!((d.kind, row.name), (crate::ir::Kind::NoDevice, "gpu")),
            }
        }
    }
}
