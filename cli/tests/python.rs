//! The tests of `python/adfuse`, and the book's Python, run by the Python that `ADFUSE_PYTHON` names, which needs JAX.
//! Without it the tests are ignored.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::path::Path;
use std::process::{Command, ExitCode};

const PYTHON: &str = "ADFUSE_PYTHON";

fn main() -> ExitCode {
    let trials = vec![
        Trial::ignorable_test("the_package_gives_what_jax_gives", package),
        Trial::ignorable_test("the_python_of_the_book_runs", book),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The Python blocks of the chapter about JAX, one after the other.
fn book() -> Result<Completion, Failed> {
    let Some(python) = std::env::var_os(PYTHON) else {
        return Ok(Completion::ignored_with(format!("{PYTHON} names no Python")));
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/guide/jax.md"))?;
    let blocks: Vec<&str> =
        page.split("```").filter_map(|block| block.strip_prefix("python\n")).collect();
    if blocks.len() < 2 {
        return Err("the chapter has no Python".into());
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-book");
    std::fs::create_dir_all(&folder)?;
    let mut command = Command::new(python);
    command.args(["-c", &blocks.concat()]).current_dir(&folder);
    command.env("PYTHONPATH", root.join("python").canonicalize()?);
    command.env("ADFUSE_CACHE", folder.join("plans"));
    ends_well(&mut command)
}

fn package() -> Result<Completion, Failed> {
    let Some(python) = std::env::var_os(PYTHON) else {
        return Ok(Completion::ignored_with(format!("{PYTHON} names no Python")));
    };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests/test_adfuse.py");
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-plans");
    let mut command = Command::new(python);
    command.arg(tests).env("ADFUSE_CACHE", kept);
    ends_well(&mut command)
}

/// Runs Python for the built program, to its end.
fn ends_well(command: &mut Command) -> Result<Completion, Failed> {
    let ran = command.env("ADFUSE", env!("CARGO_BIN_EXE_adfuse")).output()?;
    match ran.status.success() {
        true => Ok(Completion::Completed),
        false => Err(String::from_utf8_lossy(&ran.stderr).into_owned().into()),
    }
}
