//! Text through the assembler, many modules at a time, and what it says of registers.

use crate::trials::Skipped;
use adfuse::backends::ptx::{GpuTarget, PtxModule};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of text of one run of the assembler.
const BATCH: usize = 1 << 20;

/// Modules to assemble.
#[derive(Default)]
pub(crate) struct Assembly {
    modules: Vec<Named>,
}

struct Named {
    name: String,
    text: String,
    program: String,
    written_for: GpuTarget,
}

/// What the assembler says of an entry point.
pub(crate) struct Resources {
    /// The name that the module was added by.
    pub(crate) module: String,
    pub(crate) entry: String,
    pub(crate) registers: u32,
    pub(crate) spilled: u32,
}

fn found() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ptxas");
    let given = std::env::var_os("ADFUSE_PTXAS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|p| p.join("ptxas"));
    given.into_iter().chain([fetched]).chain(on_path).find(|p| p.is_file())
}

impl Assembly {
    /// Adds a module; `program` is shown where its text is refused.
    pub(crate) fn add(&mut self, name: &str, module: &PtxModule, program: &str) {
        self.add_text(name, &module.text, program);
    }

    /// Adds the text of a module.
    pub(crate) fn add_text(&mut self, name: &str, text: &str, program: &str) {
        let (name, text, program) = (name.to_owned(), text.to_owned(), program.to_owned());
        let written_for = GpuTarget::ALL
            .into_iter()
            .find(|t| text.contains(&format!(".target {}\n", t.name)))
            .unwrap_or_else(|| panic!("{name} names no target:\n{text}"));
        self.modules.push(Named { name, text, program, written_for });
    }

    /// Assembles all of them for every target; what it says of each entry point for the last.
    pub(crate) fn assembled(self) -> Result<Vec<Resources>, Skipped> {
        assert!(!self.modules.is_empty());
        let Some(ptxas) = found() else {
            return Err(Skipped(
                "no ptxas: emitted, but not assembled (ADFUSE_PTXAS names one)".into(),
            ));
        };
        let mut batches: Vec<(GpuTarget, Vec<&Named>)> = Vec::new();
        for written_for in GpuTarget::ALL {
            let mut size = BATCH;
            for module in self.modules.iter().filter(|m| m.written_for == written_for) {
                size += module.text.len();
                if size > BATCH {
                    batches.push((written_for, Vec::new()));
                    size = module.text.len();
                }
                batches.last_mut().expect("one").1.push(module);
            }
        }
        let mut resources = Vec::new();
        // Both targets have the same instructions: the older one is asked of every other batch.
        for (n, (written_for, batch)) in batches.iter().enumerate() {
            for target in targets(*written_for) {
                if target == GpuTarget::SM80 && n % 2 == 1 {
                    continue;
                }
                match assemble(&ptxas, target, &joined(batch, target)) {
                    Ok(log) if target != GpuTarget::SM80 => resources.extend(read(&log, batch)),
                    Ok(_) => {}
                    Err(why) => one_by_one(&ptxas, target, batch, &why),
                }
            }
        }
        Ok(resources)
    }
}

/// The targets that modules are assembled for: text for the oldest one is that of newer chips too.
fn targets(written_for: GpuTarget) -> Vec<GpuTarget> {
    match written_for {
        GpuTarget::SM80 => vec![GpuTarget::SM80, GpuTarget::SM90],
        own => vec![own],
    }
}

/// Finds the module that is refused.
fn one_by_one(ptxas: &Path, target: GpuTarget, batch: &[&Named], why: &str) {
    for &module in batch {
        let text = joined(&[module], target);
        if let Err(why) = assemble(ptxas, target, &text) {
            panic!("{} for {}: {why}\n{}\n{text}", module.name, target.name, module.program);
        }
    }
    panic!("{}: {why}", target.name);
}

/// One module of many: entry points have the number of their module before their names.
fn joined(batch: &[&Named], target: GpuTarget) -> String {
    let mut all = String::new();
    let mut table = false;
    for (n, module) in batch.iter().enumerate() {
        let (head, body) = module.text.split_once(".visible").unwrap_or((&module.text, ""));
        if n == 0 {
            let of = |t: GpuTarget| format!(".target {}\n", t.name);
            let head =
                GpuTarget::ALL.iter().fold(head.to_owned(), |h, &t| h.replace(&of(t), &of(target)));
            let head = head.split(".const").next().unwrap_or_default().to_owned();
            all.push_str(&head);
        }
        if let Some(constants) = head.split_once(".const").filter(|_| !table) {
            let _ = write!(all, ".const{}", constants.1);
            table = true;
        }
        if !body.is_empty() {
            let body = format!(".visible{body}");
            all.push_str(&body.replace(".visible .entry ", &format!(".visible .entry m{n}_")));
        }
    }
    all
}

fn assemble(ptxas: &Path, target: GpuTarget, text: &str) -> Result<String, String> {
    let folder = tempfile();
    let (from, to) = (folder.join("module.ptx"), folder.join("module.cubin"));
    std::fs::write(&from, text).map_err(|e| e.to_string())?;
    let mut command = Command::new(ptxas);
    command.args(["-v", "-arch", target.name]).arg("-o").arg(&to).arg(&from);
    let done = command.output().map_err(|e| e.to_string());
    let _ = std::fs::remove_dir_all(&folder);
    let done = done?;
    let log = String::from_utf8_lossy(&done.stderr).into_owned();
    // Multiplications in turn, and registers that stay as they are, are warnings to the assembler.
    let codes = ["C7504", "C7508", "C7511", "C7512", "C7514", "C7515", "C7520", "C7602"];
    let ignored = codes.into_iter().find(|code| log.contains(code));
    assert_eq!(ignored, None, "{log}");
    if done.status.success() { Ok(log) } else { Err(log[..log.len().min(4000)].to_owned()) }
}

/// A folder of this process's own.
fn tempfile() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("adfuse-ptx-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// What a log says of the entry points of a batch: their registers and spills.
fn read(log: &str, batch: &[&Named]) -> Vec<Resources> {
    let mut found: Vec<Resources> = Vec::new();
    let number = |line: &str, after: &str| -> u32 {
        let part = line.split(after).next().unwrap_or_default();
        part.split_whitespace().next_back().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let entry = rest.split('\'').next().unwrap_or_default().to_owned();
            let number = entry.trim_start_matches('m').split('_').next();
            let of = number.and_then(|n| batch.get(n.parse::<usize>().ok()?));
            let module = of.map_or_else(String::new, |named| named.name.clone());
            found.push(Resources { module, entry, registers: 0, spilled: 0 });
        } else if let Some(last) = found.last_mut() {
            if line.contains("bytes spill stores") {
                last.spilled = number(line, " bytes spill stores");
            }
            if line.contains(" registers") {
                last.registers = number(line, " registers");
            }
        }
    }
    found
}
