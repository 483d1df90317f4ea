//! The commands that `README.md` and the book show work as they stand there, and print what the pages say.
//!
//! Of a page, in order: a block whose first line is a comment with a file's name, or that says `file=NAME` after its
//! language, is written to that file; lines of `sh` blocks with a command of the program are run and must succeed; in `console` blocks a line `$ command` is run and what it
//! prints is compared with the lines below it, where a line `...` stands for any lines. A command that fails says so:
//! `$ adfuse check wrong.ir  # exits with 1`. With `ADFUSE_BLESS=1` the lines below commands are written anew, and so are the
//! pictures. Blocks `sh,gpu` need a GPU and are not run; neither is what other programs than `adfuse` do, except `cat`.

use crate::folder::Folder;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn is_blessing() -> bool {
    std::env::var_os("ADFUSE_BLESS").is_some_and(|v| v != "0")
}

/// A folder with what the commands read.
fn workplace() -> Folder {
    let d = Folder::new();
    for shared in ["examples", "tests", "benches"] {
        link(&root().join(shared), &d.0.join(shared));
    }
    d
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) {
    std::os::unix::fs::symlink(from, to).unwrap();
}

/// The pages: the README, and all of the book.
fn pages() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    for folder in ["docs", "docs/guide", "docs/how"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().path());
        found.extend(entries.filter(|p| p.extension().is_some_and(|e| e == "md")));
    }
    found.sort();
    found
}

/// Whether printed lines are as the page says, where `...` is any lines.
fn agrees(said: &[&str], printed: &[&str]) -> bool {
    match said.split_first() {
        None => printed.is_empty(),
        Some((&"...", rest)) => (0..=printed.len()).any(|n| agrees(rest, &printed[n..])),
        Some((first, rest)) => {
            printed.first().is_some_and(|p| p.trim_end() == first.trim_end())
                && agrees(rest, &printed[1..])
        }
    }
}

/// What a page will say: as many first and last lines as it does where it leaves lines out, and otherwise all.
fn shortened(said: &[&str], printed: &[&str]) -> Vec<String> {
    let keep = |lines: &[&str]| lines.iter().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    let Some(first) = said.iter().position(|l| *l == "...") else { return keep(printed) };
    let last = said.len() - 1 - said.iter().rposition(|l| *l == "...").unwrap_or(first);
    if first + last >= printed.len() {
        return keep(printed);
    }
    let end = &printed[printed.len() - last..];
    [keep(&printed[..first]), vec!["...".into()], keep(end)].concat()
}

/// The file that a block is, by its first line: `// step.ir`, `# laptop.toml`.
fn file_name(first: &str) -> Option<&str> {
    let name = first.strip_prefix("// ").or_else(|| first.strip_prefix("# "))?;
    let kinds = [".ir", ".mlir", ".toml", ".csv", ".plan"];
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    (plain && kinds.iter().any(|k| name.ends_with(k))).then_some(name)
}

/// What is wrong of a page, the number of commands that it has, and the page as it has to be.
fn checked(page: &Path) -> (Vec<String>, usize, String) {
    let text = fs::read_to_string(page).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let d = workplace();
    let (mut wrong, mut commands, mut due) = (Vec::new(), 0, Vec::<String>::new());
    let mut n = 0;
    while n < lines.len() {
        due.push(lines[n].to_owned());
        let Some(info) = lines[n].strip_prefix("```") else {
            n += 1;
            continue;
        };
        let end = (n + 1..lines.len()).find(|&k| lines[k] == "```").unwrap_or(lines.len());
        let body = &lines[n + 1..end];
        let place = |k: usize| format!("{}:{}", page.display(), n + 2 + k);
        match info {
            "console" => {
                let (w, c) = transcript(body, &d, &place, &mut due);
                wrong.extend(w);
                commands += c;
            }
            "sh" => {
                for (k, line) in body.iter().enumerate() {
                    if line.starts_with("adfuse ") || line.contains("| adfuse ") {
                        commands += 1;
                        let ran = d.shell(line);
                        if ran.code != 0 || ran.out.is_empty() || ran.err.contains("error") {
                            wrong.push(format!("{}: `{line}`: {}", place(k), ran.text()));
                        }
                    }
                }
                due.extend(body.iter().map(|l| (*l).to_owned()));
            }
            _ => {
                let named = info.split_once(",file=").map(|(_, name)| name);
                if let Some(name) = named.or_else(|| body.first().and_then(|l| file_name(l))) {
                    fs::write(d.0.join(name), body.join("\n") + "\n").unwrap();
                }
                due.extend(body.iter().map(|l| (*l).to_owned()));
            }
        }
        due.extend(lines.get(end).map(|l| (*l).to_owned()));
        n = end + 1;
    }
    (wrong, commands, due.join("\n") + "\n")
}

/// Runs the commands of a `console` block: what is wrong, and how many there are.
fn transcript(
    body: &[&str],
    d: &Folder,
    place: &dyn Fn(usize) -> String,
    due: &mut Vec<String>,
) -> (Vec<String>, usize) {
    let (mut wrong, mut commands, mut k) = (Vec::new(), 0, 0);
    while k < body.len() {
        let Some(command) = body[k].strip_prefix("$ ") else {
            wrong.push(format!("{}: no command prints this", place(k)));
            k += 1;
            continue;
        };
        let end = (k + 1..body.len()).find(|&e| body[e].starts_with("$ ")).unwrap_or(body.len());
        let said = &body[k + 1..end];
        let ran = d.shell(command);
        let text = ran.text();
        let printed: Vec<&str> = text.lines().collect();
        let wanted = command.split_once("# exits with ").map_or(0, |(_, n)| n.parse().unwrap());
        if ran.code != wanted {
            wrong.push(format!("{}: `{command}` exits with {}: {text}", place(k), ran.code));
        }
        due.push(body[k].to_owned());
        if agrees(said, &printed) {
            due.extend(said.iter().map(|l| (*l).to_owned()));
        } else {
            wrong.push(format!("{}: `{command}` prints\n{text}", place(k)));
            due.extend(shortened(said, &printed));
        }
        commands += 1;
        k = end;
    }
    (wrong, commands)
}

#[test]
#[cfg(unix)]
fn commands_of_the_book_work_and_print_what_it_says() {
    let pages = pages();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let k = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(page) = pages.get(k) else { return done };
            let (wrong, commands, due) = checked(page);
            if is_blessing() {
                fs::write(page, due).unwrap();
            }
            done.push((wrong, commands));
        }
    };
    let done: Vec<(Vec<String>, usize)> = std::thread::scope(|s| {
        let both = [s.spawn(work), s.spawn(work)];
        both.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    let commands: usize = done.iter().map(|(_, c)| c).sum();
    assert!(commands >= 60, "{commands} commands");
    let wrong: Vec<String> = done.into_iter().flat_map(|(w, _)| w).collect();
    let help = "what they print is written to the pages with ADFUSE_BLESS=1";
    assert!(wrong.is_empty() || is_blessing(), "{}\n{help}", wrong.join("\n"));
}

/// The pictures of plans, each with the command that makes it and its name among those that the command writes.
const PICTURES: &[(&str, &str, &str)] = &[
    ("memory.svg", "--no-frontier", "memory.svg"),
    ("half.svg", "--no-frontier --mem-budget 2400KiB", "memory.svg"),
    ("budgets.svg", "", "budget.svg"),
    ("step.svg", "--no-frontier", "step.svg"),
];

#[test]
#[cfg(unix)]
fn pictures_of_the_book_are_fresh() {
    let d = workplace();
    for (name, flags, from) in PICTURES {
        let ran = d.shell(&format!("adfuse report examples/deep.ir --grad {flags} --svg made"));
        assert_eq!(ran.code, 0, "{name}: {}", ran.text());
        let made = fs::read_to_string(d.0.join("made").join(from)).unwrap();
        let path = root().join("docs/pictures").join(name);
        if is_blessing() {
            fs::write(&path, &made).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == made, "docs/pictures/{name} is written by this test with ADFUSE_BLESS=1");
    }
}

#[test]
fn lines_that_are_left_out_are_any() {
    let printed = ["a", "b", "c", "d"];
    assert!(agrees(&["a", "...", "d"], &printed) && agrees(&["...", "c", "d"], &printed));
    assert!(agrees(&["a", "b", "c", "d"], &printed) && agrees(&["..."], &[]));
    assert!(!agrees(&["a", "...", "c"], &printed) && !agrees(&["a", "b", "c"], &printed));
    assert_eq!(shortened(&["x", "...", "y"], &printed), ["a", "...", "d"]);
    assert_eq!(shortened(&["x"], &printed), printed);
    assert_eq!(file_name("// step.ir"), Some("step.ir"));
    assert_eq!(file_name("// a function"), None);
}
