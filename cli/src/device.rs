//! The machine that is planned for: a known one, or one that a TOML file describes.

use super::failure::Failure;
use super::source::SourceText;
use adfuse::fusion::MachineModel;
use std::path::Path;

/// The machine of this name, or the one that a file describes.
pub(super) fn device(name: &str) -> Result<MachineModel, Failure> {
    if let Some(known) = MachineModel::named(name) {
        return Ok(known);
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|e| e != "toml") {
        // A name near to one that is known may still be another machine's, so that none is offered alone.
        let gpu = ["gpu", "cuda", "nvidia"].iter().any(|engine| name.starts_with(engine));
        let all = "devices are cpu, cpu1, h200, and files that end in .toml: `adfuse tune -o mine.toml` measures the machine \
                   that it runs on, and a file can be written by hand for another";
        let hint = match gpu {
            true => {
                "`--device h200` plans for a GPU, and `--engine gpu` runs or counts on the one of this machine"
            }
            false => all,
        };
        return Err(Failure::usage(format!("no device `{name}`")).hint(Some(hint.into())));
    }
    let source = SourceText::read(path)?;
    MachineModel::from_toml(&source.text).map_err(|d| Failure::File(source, vec![d]))
}
