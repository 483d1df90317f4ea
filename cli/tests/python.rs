//! The tests of `python/adfuse`, run by the Python that `ADFUSE_PYTHON` names, which needs JAX. Without it the test is
//! ignored.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::path::Path;
use std::process::{Command, ExitCode};

const PYTHON: &str = "ADFUSE_PYTHON";

fn main() -> ExitCode {
    let trial = Trial::ignorable_test("the_package_gives_what_jax_gives", package);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn package() -> Result<Completion, Failed> {
    let Some(python) = std::env::var_os(PYTHON) else {
        return Ok(Completion::ignored_with(format!("{PYTHON} names no Python")));
    };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests/test_adfuse.py");
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-plans");
    let mut command = Command::new(python);
    command.arg(tests).env("ADFUSE", env!("CARGO_BIN_EXE_adfuse")).env("ADFUSE_CACHE", kept);
    let ran = command.output()?;
    match ran.status.success() {
        true => Ok(Completion::Completed),
        false => Err(String::from_utf8_lossy(&ran.stderr).into_owned().into()),
    }
}
