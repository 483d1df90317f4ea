//! Machine models as TOML files: a base machine, and the numbers that differ from it.

use super::MachineModel;
use super::bounds::{TomlNumber, place, within};
use super::product_rows::{ProductRow, products, written_products};
use adfuse_ir::diag::Span;
use adfuse_ir::{At, Diagnostic, Kind};
use serde::Deserialize;
use std::fmt::Write;
use toml::{Spanned, Value};

/// Bytes of a file at most.
const MOST_BYTES: usize = 1 << 20;

/// Bytes of a name at most.
const MOST_NAME: usize = 64;

/// The numbers of a device: their type, and between which bounds they make sense. The bounds keep
/// every time that is computed from them finite and above 0.
macro_rules! numbers {
    ($($key:ident: $ty:ty = $bounds:expr;)*) => {
        /// What a file may say.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            base: Spanned<String>,
            name: Option<Spanned<String>>,
            contract_epilogue: Option<bool>,
            $($key: Option<Spanned<$ty>>,)*
            #[serde(default)]
            products: Vec<ProductRow>,
        }

        fn numbers(file: &File, device: &mut MachineModel) -> Result<(), Diagnostic> {
            $(if let Some(number) = &file.$key {
                device.$key = within(stringify!($key), number, $bounds)?;
            })*
            Ok(())
        }

        fn written(device: &MachineModel) -> Vec<(&'static str, Value)> {
            vec![$((stringify!($key), device.$key.value()),)*]
        }
    };
}

numbers! {
    memory_bytes_per_s: f64 = 1e6..=1e16;
    cache_bytes_per_s: f64 = 1e6..=1e17;
    core_bytes_per_s: f64 = 1e6..=1e16;
    host_bytes_per_s: f64 = 1e6..=1e16;
    link_bytes_per_s: f64 = 1e3..=1e16;
    link_s: f64 = 0.0..=1.0;
    cache_bytes: u64 = 1..=1 << 44;
    ops_per_s: f64 = 1e6..=1e18;
    stride_ops: f64 = 0.0..=1e6;
    far_ops: f64 = 0.0..=1e6;
    call_ops: f64 = 0.0..=1e6;
    run_ops: f64 = 0.0..=1e6;
    line_ops: f64 = 0.0..=1e6;
    place_ops: f64 = 0.0..=1e6;
    branch_ops: f64 = 0.0..=1e6;
    cut_ops: f64 = 0.0..=1e6;
    fold_ops: f64 = 0.0..=1e6;
    interchange_ops: f64 = 0.0..=1e6;
    line_fold_ops: f64 = 0.0..=1e6;
    extremum_ops: f64 = 0.0..=1e6;
    scan_ops: f64 = 0.0..=1e6;
    update_ops: f64 = 0.0..=1e6;
    pack_ops: f64 = 0.0..=1e6;
    digit_ops: f64 = 0.0..=1e6;
    contract_f32_per_s: f64 = 1e6..=1e18;
    contract_f16_per_s: f64 = 1e6..=1e18;
    contract_f64_per_s: f64 = 1e6..=1e18;
    launch_s: f64 = 1e-9..=1.0;
    tile_bytes: u64 = 1..=1 << 40;
    parallel: i64 = 1..=1 << 20;
    lanes: u32 = 1..=1 << 16;
    line: u32 = 1..=1 << 16;
    registers: u32 = 0..=1 << 16;
    register_file: u32 = 0..=1 << 24;
    threads: u32 = 1..=1 << 16;
    compile_step_s: f64 = 0.0..=10.0;
    compile_function_s: f64 = 0.0..=10.0;
    compile_instruction_s: f64 = 0.0..=1.0;
    function_bytes: f64 = 0.0..=1e6;
    instruction_bytes: f64 = 0.0..=1e4;
    product_instructions: u64 = 0..=1 << 20;
}

impl MachineModel {
    /// Reads a description: TOML with `base = "cpu"`, `"cpu1"` or `"h200"`, and keys named like the
    /// fields of [`MachineModel`] that replace the base's. Each table `[[products]]` has the `form` of a product, and its
    /// `seconds` by the ways in which it was multiplied. Without a name, one that differs from its base
    /// is `custom`.
    ///
    /// # Errors
    /// For text that is not TOML, unknown keys, and numbers that are not finite or make no
    /// sense; the error has the place in the text.
    pub fn from_toml(text: &str) -> Result<MachineModel, Diagnostic> {
        if text.len() > MOST_BYTES {
            let m = format!("the file has {} bytes, the limit is {MOST_BYTES}", text.len());
            return Err(Diagnostic::new(At::default(), Kind::Limit, m));
        }
        let file: File = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(At::default(), |s| At::span(Span::new(s.start, s.end)));
            Diagnostic::new(at, Kind::Syntax, in_words(&e.message().replace('\n', " ")))
        })?;
        let base = file.base.get_ref();
        let Some(mut device) = MachineModel::named(base) else {
            let m = format!("no device `{}`", base.escape_debug());
            let d = Diagnostic::new(place(&file.base), Kind::UnknownName, m);
            return Err(d.hint("`base` is \"cpu\", \"cpu1\" or \"h200\""));
        };
        if let Some(name) = &file.name {
            let word = name.get_ref();
            if word.is_empty() || word.len() > MOST_NAME || word.chars().any(char::is_control) {
                let m = format!("a name has 1 to {MOST_NAME} bytes and no control characters");
                return Err(Diagnostic::new(place(name), Kind::Usage, m));
            }
            device.name.clone_from(word);
        }
        device.contract_epilogue = file.contract_epilogue.unwrap_or(device.contract_epilogue);
        numbers(&file, &mut device)?;
        device.products = products(&file.products)?;
        // A plan names the machine it is made for: no two have one name.
        if MachineModel::named(&device.name).is_some_and(|known| known != device) {
            if let Some(name) = &file.name {
                let m = format!("`{}` is built in, with other numbers", device.name);
                return Err(Diagnostic::new(place(name), Kind::Redefinition, m));
            }
            device.name = "custom".into();
        }
        Ok(device)
    }

    /// The description as [`MachineModel::from_toml`] reads it, every key in it.
    pub fn to_toml(&self) -> String {
        let base = if self.name == "h200" { "h200" } else { "cpu" };
        let mut text = format!("base = \"{base}\"\n");
        let first = ("name", Value::from(self.name.as_str()));
        let last = ("contract_epilogue", Value::from(self.contract_epilogue));
        for (key, value) in [first].into_iter().chain(written(self)).chain([last]) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{key} = {value}");
        }
        written_products(&self.products, &mut text);
        text
    }
}

/// The message with types named as people name them who do not write Rust.
fn in_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "u32" => "an integer from 0 to 4294967295",
        "u64" => "an integer from 0 to 2^64 - 1",
        "i64" => "an integer from -2^63 to 2^63 - 1",
        "f64" => "a number",
        other => other,
    };
    let found = found.trim_end_matches(" as i128").trim_end_matches(" as u128");
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::{ProductTimes, ProductWay, WayTimes};

    #[test]
    fn what_is_written_reads_back() {
        let mut odd = MachineModel::h200();
        odd.name = "two \"quoted\" words".into();
        odd.launch_s = 1.0 / 3.0;
        odd.contract_epilogue = false;
        let own = "128x192 cooperative cluster 1".parse().expect("a way");
        let ways = WayTimes::from([(ProductWay::Library, 1.0 / 3e4), (own, 4e-5)]);
        let forms = ["fast bf16 1x256x64x64 0f", "reproducible f32 2*3x256x64x8*8 a0"]
            .map(|form| (form.to_owned(), ways.clone()));
        odd.products = ProductTimes::new(forms.into_iter().collect());
        for device in [MachineModel::cpu(), MachineModel::cpu1(), MachineModel::h200(), odd] {
            let text = device.to_toml();
            assert_eq!(MachineModel::from_toml(&text), Ok(device), "{text}");
        }
    }

    #[test]
    fn other_numbers_are_another_identity() {
        let cpu = MachineModel::cpu();
        assert_eq!(cpu.identity(), "cpu");
        let tuned = MachineModel { name: "tuned".into(), ..cpu.clone() };
        let other = MachineModel { scan_ops: cpu.scan_ops + 1.0, ..tuned.clone() };
        assert!(tuned.identity().starts_with("tuned #"), "{}", tuned.identity());
        assert_ne!(tuned.identity(), other.identity());
        let read = MachineModel::from_toml(&tuned.to_toml());
        assert_eq!(read.map(|d| d.identity()), Ok(tuned.identity()));
    }

    #[test]
    fn keys_replace_the_base() {
        let text = "base = \"h200\"\nname = \"half\"\nmemory_bytes_per_s = 2e12\nparallel = 132\n";
        let half = MachineModel {
            name: "half".into(),
            memory_bytes_per_s: 2e12,
            parallel: 132,
            ..MachineModel::h200()
        };
        assert_eq!(MachineModel::from_toml(text), Ok(half));
        // A whole number is a number of any kind.
        let whole = MachineModel::from_toml("base = \"cpu\"\nops_per_s = 1_000_000\n");
        assert_eq!(whole.map(|d| d.ops_per_s), Ok(1e6));
    }

    #[test]
    fn each_mistake_has_its_place() {
        for (line, kind, part) in [
            ("memory = 3.0", Kind::Syntax, "unknown field `memory`"),
            (
                "cache_bytes = -1",
                Kind::Syntax,
                "integer `-1`, expected an integer from 0 to 2^64 - 1",
            ),
            ("cache_bytes = 1.5", Kind::Syntax, "`1.5`, expected an integer from 0"),
            ("cache_bytes = 0", Kind::Usage, "`cache_bytes` is from 1 to"),
            ("launch_s = nan", Kind::Usage, "found nan"),
            ("launch_s = -1e-6", Kind::Usage, "`launch_s`"),
            ("ops_per_s = inf", Kind::Usage, "found inf"),
            ("parallel = 0", Kind::Usage, "from 1 to 1048576, found 0"),
            ("lanes = 99999999999", Kind::Syntax, "an integer from 0 to 4294967295"),
            ("name = \"\"", Kind::Usage, "a name has"),
            ("launch_s = \"soon\"", Kind::Syntax, "string \"soon\", expected a number"),
            ("launch_s = \"a, expected f64\"", Kind::Syntax, "f64\", expected a number"),
            ("launch_s = 99999999999999999999999", Kind::Syntax, "9`, expected a number"),
            ("parallel = 9223372036854775808", Kind::Syntax, "expected an integer from -2^63 to"),
            ("launch_s = 1e-300", Kind::Usage, "`launch_s` is from 1e-9 to 1, found 1e-300"),
            ("ops_per_s = 1e300", Kind::Usage, "from 1000000 to 1e18, found 1e300"),
            ("launch_s = 1e-6\nlaunch_s = 1e-6", Kind::Syntax, "duplicate key"),
            ("[launch_s", Kind::Syntax, ""),
            (
                "[[products]]\nform = \"strict f32 1x8x8x8 0\"",
                Kind::Syntax,
                "missing field `seconds`",
            ),
            ("[[products]]\nform = \"strict f32 1x8x8x8 0\"\nseconds = {}", Kind::Usage, "no time"),
            ("[[products]]\nform = \"junk\"\nseconds = { library = 1.0 }", Kind::Syntax, "no form"),
            ("[[products]]\nform = \"\"\nseconds = { library = 1.0 }", Kind::Usage, "a form has"),
            (
                "[[products]]\nform = \"strict f32 1x8x8x8 0\"\nseconds = { cublas = 1.0 }",
                Kind::UnknownName,
                "`cublas`",
            ),
            (
                "[[products]]\nform = \"strict f32 1x8x8x8 0\"\nseconds = { library = 0.0 }",
                Kind::Usage,
                "found 0",
            ),
            (
                "[[products]]\nform = \"strict f32 1x8x8x8 0\"\nseconds = { library = nan }",
                Kind::Usage,
                "found nan",
            ),
            (
                "[[products]]\nform = \"strict f32 1x8x8x8 0\"\nseconds = { library = \"1\" }",
                Kind::Syntax,
                "expected a number",
            ),
            (
                "[[products]]\nform = \"fast bf16 1x8*16x64x64 0\"\nseconds = { \"128x256 cooperative cluster 2\" = 1.0 }",
                Kind::Usage,
                "does not fit a product of 128 rows",
            ),
            (
                "[[products]]\nform = \"strict f32 1x8x8x8 0\"\nms = 1",
                Kind::Syntax,
                "unknown field `ms`",
            ),
            (
                "[[products]]\nform = \"strict f32 1x8x8x8 0\"\nseconds = { library = 1.0 }\n[[products]]\nform = \"strict f32 1x8x8x8 0\"\nseconds = { library = 1.0 }",
                Kind::Redefinition,
                "`strict f32 1x8x8x8 0` is there twice",
            ),
        ] {
            let text = format!("base = \"cpu\"\n{line}\n");
            let d = MachineModel::from_toml(&text).expect_err(line);
            assert_eq!(d.kind, kind, "{line}: {d}");
            assert!(d.message.contains(part), "{line}: {d}");
            let span = d.at.span.expect("a place");
            assert!(span.start as usize >= "base = \"cpu\"\n".len(), "{line}: {span:?}");
        }
        let d = MachineModel::from_toml("base = \"tpu\"\n").expect_err("not there");
        assert_eq!((d.kind, d.message.as_str()), (Kind::UnknownName, "no device `tpu`"));
        assert!(MachineModel::from_toml("launch_s = 1e-6").is_err(), "no base");
        let long = format!("base = \"cpu\" #{}", " ".repeat(MOST_BYTES));
        assert_eq!(MachineModel::from_toml(&long).map_err(|d| d.kind), Err(Kind::Limit));
    }
}
