//! `tune`, and plans for machines that files describe.

use crate::plan::models;

#[test]
fn what_cannot_be_tuned_is_refused_before_anything_runs() {
    let d = models(&[]);
    for (args, said) in [
        ("tune -o machine.txt", "does not end in .toml"),
        ("tune --threads 0 -o machine.toml", "a whole number from 1 to 256"),
        (
            "tune --engine evaluator -o machine.toml",
            "no machine is described for the engine `evaluator`",
        ),
        ("tune --engine tpu -o machine.toml", "tpu"),
        ("tune softmax.ir -o machine.toml", "the engine `cpu` multiplies each product in one way"),
        ("tune --grad -o machine.toml", "<FILE>"),
        ("tune --device cpu -o machine.toml", "<FILE>"),
        ("tune --name cpu -o machine.toml", "`cpu` is built in"),
        ("tune --name= -o machine.toml", "a name has 1 to 64 bytes"),
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}: {}", ran.err);
        assert!(!ran.err.contains("measured"), "{args}: {}", ran.err);
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
        assert!(!d.names().contains(&"machine.toml".to_string()), "{args}");
    }
}

#[test]
fn a_plan_for_other_numbers_of_a_machine_is_refused() {
    let d = models(&["softmax"]);
    d.file("mine.toml", "base = \"cpu\"\nname = \"mine\"\nscan_ops = 100\n");
    d.file("other.toml", "base = \"cpu\"\nname = \"mine\"\nscan_ops = 101\n");
    d.good("plan softmax.ir --device mine.toml --save mine.plan");
    let plan = d.text("mine.plan");
    assert!(plan.contains("\n  device mine #"), "{plan}");
    d.good("plan softmax.ir --device mine.toml --plan mine.plan");
    let ran = d.run("plan softmax.ir --device other.toml --plan mine.plan");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("other numbers of the device `mine`"), "{}", ran.err);
    // Without the file, the plan names a machine that is not known.
    let ran = d.run("plan softmax.ir --plan mine.plan");
    assert!(ran.code == 2 && ran.err.contains("--device"), "{}", ran.err);
}

#[test]
fn plans_for_machines_of_files_are_run() {
    let d = models(&["softmax"]);
    d.file("mine.toml", "base = \"cpu\"\nname = \"mine\"\nscan_ops = 100\n");
    d.file("other.toml", "base = \"cpu\"\nname = \"mine\"\nscan_ops = 101\n");
    d.good("plan softmax.ir --device mine.toml --save mine.plan");
    let due = d.good("run softmax.ir --digest");
    for args in ["--device mine.toml --plan mine.plan", "--device mine.toml", "--device cpu1"] {
        assert_eq!(d.good(&format!("run softmax.ir --digest {args}")), due, "{args}");
    }
    for (args, said) in [
        ("--plan mine.plan", "give the file that describes it with --device"),
        ("--plan mine.plan --device other.toml", "other numbers of the device `mine`"),
        ("--plan mine.plan --device cpu", "the plan is for the device `mine #"),
        ("--device none.toml", "cannot read `none.toml`"),
        ("--device mine.toml --engine reference", "--device"),
    ] {
        let ran = d.run(&format!("run softmax.ir {args}"));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
    }
}
