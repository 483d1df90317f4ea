//! The machine that is planned for: a known one, or one that a TOML file describes.

use super::failure::{Failure, mean};
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
        let hint = mean(name, ["cpu", "h200"], "");
        let all = "devices are cpu, h200, and files that end in .toml".to_string();
        return Err(Failure::usage(format!("no device `{name}`")).hint(hint.or(Some(all))));
    }
    let source = SourceText::read(path)?;
    MachineModel::from_toml(&source.text).map_err(|d| Failure::File(source, vec![d]))
}
