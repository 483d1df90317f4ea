//! Cached plans: `--cache`, `ADFUSE_CACHE`, `--no-cache` and `cache`.

use crate::folder::Folder;
use crate::plan::models;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const PLAN: &str = "plan deep_mlp.ir --grad --mem-budget 120kB";

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_kept_plan_is_found_listed_and_removed() {
    let d = models(&["deep_mlp"]);
    let made = d.good(&format!("{PLAN} --no-cache"));
    assert_eq!(names(&d.kept()), Vec::<String>::new());
    // What needs no budget keeps nothing: `plan` shows what a plan was chosen from, and short functions are planned at once.
    d.good("plan deep_mlp.ir --grad");
    d.good("run deep_mlp.ir --digest");
    assert_eq!(names(&d.kept()), Vec::<String>::new());
    for args in [PLAN.to_string(), format!("{PLAN} --cache here"), PLAN.to_string()] {
        assert_eq!(d.good(&args), made, "{args}");
    }
    assert_eq!((names(&d.kept()).len(), names(&d.0.join("here")).len()), (1, 1));
    assert_eq!(names(&d.kept()), names(&d.0.join("here")));
    // Another machine of the same program, another budget.
    d.good(&format!("{PLAN} --fp reproducible"));
    d.good("emit deep_mlp.ir --stage plan --grad --mem-budget 130kB");
    d.good("run deep_mlp.ir --grad --mem-budget 120kB --digest");
    let list = d.good("cache list");
    let rows: Vec<&str> = list.lines().collect();
    // Every command is strict where nothing else is said: `run` found what was planned.
    assert_eq!(rows.len(), 5, "{list}");
    assert!(rows[0].starts_with("function ") && rows[4].starts_with("3 plans, "), "{list}");
    assert_eq!(list.matches("\n@deep_mlp_grad  ").count(), 3, "{list}");
    assert_eq!(list.matches("  120000  default  ").count(), 2, "{list}");
    let here = d.good("cache list --cache here");
    assert!(here.ends_with(" in here\n") && here.contains("1 plan, "), "{here}");
    assert!(d.good("cache clear").starts_with("3 plans removed from "));
    assert!(d.good("cache list").starts_with("0 plans, 0 B in "));
    assert_eq!(d.good("cache clear --cache here"), "1 plan removed from here\n");
    assert_eq!(d.good("cache clear --cache nowhere"), "0 plans removed from nowhere\n");
}

#[test]
fn entries_that_cannot_be_used_are_told_and_made_anew() {
    let d = models(&["deep_mlp"]);
    let made = d.good(PLAN);
    let name = names(&d.kept()).remove(0);
    let path = d.kept().join(&name);
    let good = fs::read(&path).unwrap();
    d.good(&PLAN.replace("120kB", "130kB"));
    let other = names(&d.kept()).into_iter().find(|n| *n != name).unwrap();
    let other = fs::read(d.kept().join(other)).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for (bytes, said) in [
        (&good[..good.len() / 2], "it is cut off"),
        (&flipped, "its checksum is wrong"),
        (&other, "it is for something else"),
        (b"", "it is cut off"),
    ] {
        fs::write(&path, bytes).unwrap();
        let ran = d.run(PLAN);
        assert_eq!((ran.code, &ran.out), (0, &made));
        assert_eq!(ran.err, format!("note: a kept plan is made anew: {name}: {said}\n"));
        assert_eq!(fs::read(&path).unwrap(), good);
        assert_eq!(d.good(PLAN), made);
    }
    fs::write(&path, "what").unwrap();
    assert!(d.good("cache list").contains(&format!("{name}: not used, it is cut off\n")));
}

/// Commands that compile a function of some length keep its plan though there is no budget.
#[test]
fn a_plan_without_a_budget_is_found_again() {
    let d = models(&["transformer_block"]);
    let run = "run transformer_block.ir --grad --digest";
    let made = d.good(&format!("{run} --no-cache"));
    assert_eq!(names(&d.kept()), Vec::<String>::new());
    assert_eq!(d.good(run), made);
    let [name] = &names(&d.kept())[..] else { panic!("one plan is kept") };
    let path = d.kept().join(name);
    let good = fs::read_to_string(&path).unwrap();
    assert!(good.contains("\nbudget any\n"), "{good}");
    // What is found is not written again.
    assert_eq!(d.good(run), made);
    assert_eq!(fs::read_to_string(&path).unwrap(), good);
    fs::write(&path, &good[..good.len() / 2]).unwrap();
    let ran = d.run(run);
    assert_eq!((ran.code, &ran.out), (0, &made));
    assert_eq!(ran.err, format!("note: a kept plan is made anew: {name}: it is cut off\n"));
    assert_eq!(fs::read_to_string(&path).unwrap(), good);
}

#[test]
fn a_folder_that_cannot_be_written_is_a_note() {
    let d = models(&["deep_mlp"]);
    d.file("file", "");
    let made = d.good(&format!("{PLAN} --no-cache"));
    for ran in [d.run(&format!("{PLAN} --cache file/in")), d.with("ADFUSE_CACHE", "file", PLAN)] {
        assert_eq!((ran.code, &ran.out), (0, &made));
        assert!(ran.err.contains("note: the plan is not kept in `file"), "{}", ran.err);
    }
    let ran = d.run("cache list --cache file");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert!(ran.err.contains("cannot use `file`"), "{}", ran.err);
    // Without a name there is the user's own folder.
    let home = d.0.join("home");
    let mut command = Command::new(env!("CARGO_BIN_EXE_adfuse"));
    let command = command.args(PLAN.split(' ')).current_dir(&d.0).env("ADFUSE_CACHE", "");
    let ran = command.env("HOME", &home).env("XDG_CACHE_HOME", home.join("x")).output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), made);
    if cfg!(target_os = "linux") {
        assert_eq!(names(&home.join("x/adfuse")).len(), 1);
    }
}

#[test]
fn two_processes_at_once_keep_one_whole_plan() {
    let d = models(&["deep_mlp"]);
    let start = |d: &Folder| {
        Command::new(env!("CARGO_BIN_EXE_adfuse"))
            .args(PLAN.split(' '))
            .current_dir(&d.0)
            .env("ADFUSE_CACHE", d.kept())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let both = [start(&d), start(&d)].map(|child| child.wait_with_output().unwrap());
    for ran in &both {
        assert_eq!((ran.status.code(), ran.stderr.as_slice()), (Some(0), &b""[..]));
        assert_eq!(ran.stdout, both[0].stdout);
    }
    assert_eq!(names(&d.kept()).len(), 1);
    assert_eq!(d.good(PLAN).as_bytes(), both[0].stdout);
}
