//! `run --save`: what is written where, and what is never overwritten.

use crate::folder::{Folder, npy};
use std::fs;

const PROGRAM: &str =
    "func @f(%x: f32[2]) -> f32[2] {\n  %y = add %x, %x : f32[2]\n  return %y\n}\n";

#[test]
fn what_a_run_reads_is_not_overwritten() {
    let d = Folder::new();
    let x = npy("<f4", "(2,)", &[0; 8]);
    d.file("r.ir", PROGRAM).file("x.npy", &x).file("d.toml", "base = \"cpu\"\n");
    d.good("run r.ir --input x=[1,2] --save y.npz");
    let archive = fs::read(d.0.join("y.npz")).unwrap();
    d.good("plan r.ir --save r.plan");
    let plan = d.text("r.plan");
    fs::create_dir(d.0.join("sub")).unwrap();
    let mut cases = vec![
        ("run r.ir -o r.ir", "r.ir"),
        ("run r.ir -o sub/../r.ir", "r.ir"),
        ("run r.ir --input x=x.npy --save x.npy", "x.npy"),
        ("run r.ir --input x=y.npz#y --save ./y.npz", "y.npz"),
        ("run r.ir --plan r.plan --trace r.plan", "r.plan"),
        ("plan r.ir --save r.ir", "r.ir"),
        ("plan r.ir --plan r.plan --save r.plan", "r.plan"),
        ("plan r.ir --device d.toml --save d.toml", "d.toml"),
        ("bench r.ir --trace r.ir", "r.ir"),
    ];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("r.ir", d.0.join("link.npz")).unwrap();
        cases.push(("run r.ir --save link.npz", "r.ir"));
    }
    for (args, read) in cases {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}: {}", ran.err);
        let says = format!("would replace `{read}`, which is read");
        assert!(ran.err.contains(&says), "{args}: {}", ran.err);
    }
    assert_eq!((d.text("r.ir"), d.text("r.plan")), (PROGRAM.to_string(), plan));
    assert_eq!(fs::read(d.0.join("x.npy")).unwrap(), x);
    assert_eq!(fs::read(d.0.join("y.npz")).unwrap(), archive);
}

#[test]
fn a_single_result_makes_a_npy_file_and_several_do_not() {
    let d = Folder::new();
    d.file("r.ir", PROGRAM);
    let out = d.good("run r.ir --input x=[1.5,-2] --save y.npy");
    assert!(fs::read(d.0.join("y.npy")).unwrap().starts_with(b"\x93NUMPY\x01\x00"));
    // It is an input like any other, and as long as its header says.
    assert_eq!(d.good("run r.ir --input x=[1.5,-2]"), out);
    let twice = d.good("run r.ir --input x=y.npy --json");
    assert!(twice.contains("[6.0, -8.0]") || twice.contains("[6,-8]"), "{twice}");
    let ran = d.run("run r.ir --grad --save several.npy");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert!(ran.err.contains("the results are y, grad_x"), "{}", ran.err);
    assert!(ran.err.contains("help: name a .npz file"), "{}", ran.err);
    assert!(!d.names().contains(&"several.npy".to_string()));
}

/// A run that is stopped while it writes leaves its temporary file; the next one to write there removes it.
#[test]
fn what_a_stopped_run_left_is_removed() {
    let d = Folder::new();
    d.file("r.ir", PROGRAM).file(".y.npz.4000000000-0.tmp", "half").file(".z.npz.1-0.tmp", "half");
    d.good("run r.ir --save y.npz");
    assert_eq!(d.names(), [".z.npz.1-0.tmp", "r.ir", "y.npz"]);
}

/// Of two flags that write one file, one would lose what it writes.
#[test]
fn no_two_flags_write_one_file() {
    let d = Folder::new();
    d.file("r.ir", PROGRAM);
    fs::create_dir(d.0.join("sub")).unwrap();
    for args in [
        "run r.ir --save y.npz -o y.npz",
        "run r.ir --save y.npz --output sub/../y.npz",
        "run r.ir --trace t.json -o ./t.json",
        "bench r.ir --min-seconds 0 --trace t.json -o t.json",
        "plan r.ir --save p -o p",
        "report r.ir --no-frontier --svg sub -o sub/step.svg",
        "man sub -o sub/adfuse.1",
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains("both write"), "{args}: {}", ran.err);
    }
    assert_eq!(d.names(), ["r.ir", "sub"]);
    d.good("report r.ir --no-frontier --svg sub -o sub/page.html");
    d.good("run r.ir --save y.{rank}.npz");
    assert!(d.names().contains(&"y.0.npz".to_string()));
}
