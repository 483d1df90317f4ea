//! A folder for one test, and the built program run in it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// How a run ended, and what it wrote.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// What went to standard output, and then what went to standard error.
    pub(crate) fn text(&self) -> String {
        [self.out.as_str(), &self.err].concat()
    }
}

/// A folder for one test, removed at its end, and beside it one for plans that are kept.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// An empty folder.
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cli-{}-{n}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Writes a file.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Folder {
        fs::write(self.0.join(name), bytes).unwrap();
        self
    }

    /// The text of a file.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    /// The names of what is here, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs `adfuse` here with arguments split at blanks, and `stdin` on standard input.
    pub(crate) fn pipe(&self, args: &str, stdin: &[u8]) -> Ran {
        self.spawned(
            Command::new(env!("CARGO_BIN_EXE_adfuse")).args(args.split_whitespace()),
            stdin,
        )
    }

    /// Runs `adfuse` here with a variable of the environment.
    pub(crate) fn with(&self, name: &str, value: &str, args: &str) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_adfuse"));
        self.spawned(command.args(args.split_whitespace()).env(name, value), b"")
    }

    /// Runs a line of a shell here, for which the built program is `adfuse`.
    #[cfg(unix)]
    pub(crate) fn shell(&self, line: &str) -> Ran {
        let folder = Path::new(env!("CARGO_BIN_EXE_adfuse")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", folder.display());
        self.spawned(Command::new("sh").args(["-c", line]).env("PATH", path), b"")
    }

    /// Where the command line keeps plans, unless it is told otherwise.
    pub(crate) fn kept(&self) -> PathBuf {
        self.0.with_extension("kept")
    }

    fn spawned(&self, command: &mut Command, stdin: &[u8]) -> Ran {
        // Nothing of the user's, and nothing for the user.
        if command.get_envs().all(|(name, _)| name != "ADFUSE_CACHE") {
            command.env("ADFUSE_CACHE", self.kept());
        }
        let mut child = command
            .current_dir(&self.0)
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read may be gone.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        Ran { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs `adfuse` here with nothing on standard input.
    pub(crate) fn run(&self, args: &str) -> Ran {
        self.pipe(args, b"")
    }

    /// The output of a run that ends well and says nothing else.
    pub(crate) fn good(&self, args: &str) -> String {
        let ran = self.run(args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args}");
        ran.out
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_dir_all(self.kept());
    }
}

/// A `.npy` file.
pub(crate) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}
