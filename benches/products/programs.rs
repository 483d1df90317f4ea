//! Programs with products, at the extents of real ones.

use adfuse::autodiff::{differentiable, value_and_grad};
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile};
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::text::parse;
use adfuse::ir::{Diagnostic, Module};

/// A program: its text, and what it is measured with.
pub(crate) struct Given {
    pub(crate) name: &'static str,
    text: &'static str,
    /// Whether its gradients are computed too; false where it says them itself.
    gradients: bool,
    /// Extents of tests in its types, and those that they are replaced by.
    extents: &'static [(&'static str, &'static str)],
}

macro_rules! programs {
    ($($place:literal $name:literal, $gradients:literal, [$($from:literal => $to:literal),*];)*) => {
        /// All of them: benches first, then models of the tests.
        pub(crate) const PROGRAMS: &[Given] = &[$(Given {
            name: $name,
            text: include_str!(concat!("../../", $place, "/", $name, ".ir")),
            gradients: $gradients,
            extents: &[$(($from, $to)),*],
        }),*];
    };
}

programs! {
    "benches/programs" "transformer_block", true, [];
    "benches/programs" "mlp_step", false, [];
    "benches/programs" "mlp_small", true, [];
    "benches/programs" "lenet_loss", true, [];
    "benches/programs" "rms_norm_swiglu", true, [];
    "tests/models" "attention", true, ["2" => "8", "9" => "128", "6" => "64", "12" => "512"];
    "tests/models" "deep_mlp", true, ["256" => "1024", "16" => "256"];
    "tests/models" "dropout_mlp", true, ["10" => "256", "24" => "784", "70" => "1024", "5" => "10"];
    "tests/models" "mlp_relu", true,
        ["16" => "128", "33" => "784", "70" => "1024", "20" => "512", "7" => "10"];
    "tests/models" "mlp_tanh_mse", true, ["19" => "128", "6" => "64", "33" => "256", "3" => "10"];
    "tests/models" "linear_wide", true, ["3" => "256", "600" => "4096", "2" => "128"];
    "tests/models" "recurrent_call", true, ["5" => "128", "33" => "256", "14" => "512"];
    "tests/models" "swiglu", true, ["6" => "256", "20" => "512", "33" => "1376"];
}

/// The text with other extents in its types, which are all that has brackets right after a letter or digit.
fn widened(given: &Given) -> String {
    let mut out = String::new();
    let mut rest = given.text;
    while let Some(at) = rest.find('[') {
        let end = rest[at..].find(']').map_or(rest.len(), |n| at + n);
        let kind = rest[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        out += &rest[..=at];
        let inside = &rest[at + 1..end];
        if kind {
            let widen = |n: &str| {
                let to = given.extents.iter().find(|(from, _)| *from == n);
                to.map_or(n, |(_, to)| to).to_string()
            };
            out += &inside.split(',').map(widen).collect::<Vec<_>>().join(",");
        } else {
            out += inside;
        }
        rest = &rest[end..];
    }
    out + rest
}

/// The verified program, with gradients with respect to everything where they are asked for.
pub(crate) fn made(given: &Given) -> Result<Verified<Program>, String> {
    let wrong = |d: Diagnostic| d.message;
    let module = parse(&widened(given)).map_err(|e| format!("{e:?}"))?;
    let name = |m: &Module| m.funcs.values().next_back().cloned().ok_or("no function");
    let mut f = name(&module)?;
    let mut module = module;
    if given.gradients {
        let wrt = differentiable(&f, None).map_err(wrong)?;
        f = value_and_grad(&module, &f, &wrt).map_err(wrong)?;
        module = Module::single(f.clone());
    }
    let options =
        PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };
    verify(compile(&module, &f, &options).map_err(wrong)?.program).map_err(|e| format!("{}", e[0]))
}
