//! The commands that `README.md` shows work as they stand there.

use crate::folder::Folder;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
#[cfg(unix)]
fn every_command_of_the_readme_works() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let d = Folder::new();
    std::os::unix::fs::symlink(root.join("examples"), d.0.join("examples")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_adfuse"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    // Lines of shell blocks with a command of the program; what `cargo` does is not tried here.
    let commands: Vec<&str> = readme
        .split("```")
        .filter_map(|block| block.strip_prefix("sh\n"))
        .flat_map(str::lines)
        .filter(|l| l.starts_with("adfuse ") || l.contains("| adfuse "))
        .collect();
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        let shell = Command::new("sh")
            .args(["-c", command])
            .current_dir(&d.0)
            .env("PATH", &path)
            .env("ADFUSE_CACHE", d.kept())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&shell.stderr);
        assert!(shell.status.success(), "{command}: {err}");
        assert!(!shell.stdout.is_empty() && !err.contains("error"), "{command}: {err}");
    }
}
