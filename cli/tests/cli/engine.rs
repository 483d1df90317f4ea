//! The engines: the same bits, what each cannot run, and how free they are.

use crate::folder::Folder;
use crate::plan::models;
use adfuse::engine::registry::ENGINES;

const EFFECT: &str = "func @f(%x: f32[2]) -> f32[2] {
  %t = create_token : token
  %u = debug_print %t, %x {label = \"seen\"} : token
  return %x
}
";

/// A sum of squares, and a function that chooses.
const CHOICE: &str = "func @plain(%x: f32[3]) -> f32[] {
  %0 = mul %x, %x : f32[3]
  %1 = reduce_sum %0 {axes = [0]} : f32[]
  return %1
}

func @choice(%x: f32[], %p: bool[]) -> f32[] {
  %y = cond %p : f32[] then {
    %0 = sin %x : f32[]
    yield %0
  } else {
    %1 = mul %x, %x : f32[]
    yield %1
  }
  return %y
}
";

/// A function that chooses, and tells where it does.
const TOLD: &str = "func @told(%x: f32[], %p: bool[]) -> f32[] {
  %y = cond %p : f32[] then {
    %t = create_token : token
    %u = debug_print %t, %x {label = \"seen\"} : token
    yield %x
  } else {
    %1 = mul %x, %x : f32[]
    yield %1
  }
  return %y
}
";

#[test]
fn engines_give_the_same_bits() {
    let names = ["transformer_block", "layer_norm", "dropout_mlp", "swiglu", "embedding"];
    let d = models(&names);
    for name in names {
        let run = format!("run {name}.ir --grad --digest --seed 3");
        let expected = d.good(&format!("{run} --engine reference"));
        for more in [
            "",
            "--engine cpu",
            "--engine evaluator",
            "--threads 1",
            "--fp strict",
            "--effort off",
            "--effort quick",
        ] {
            assert_eq!(d.good(&format!("{run} {more}")), expected, "{name} {more}");
        }
    }
}

#[test]
fn free_modes_take_stable_forms() {
    let d = Folder::new();
    // The sum of exponentials overflows as it is written.
    d.file(
        "lse.ir",
        "func @f(%x: f32[2]) -> f32[] {\n  %0 = exp %x : f32[2]\n  \
         %1 = reduce_sum %0 {axes = [0]} : f32[]\n  %y = log %1 : f32[]\n  return %y\n}\n",
    );
    let run = "run lse.ir --grad --input x=[1000,0]";
    let naive = "y: f32[] = inf\ngrad_x: f32[2]\n[nan, 0.0]\n";
    let stable = "y: f32[] = 1000.0\ngrad_x: f32[2]\n[1.0, 0.0]\n";
    for (more, expected) in [
        ("", naive),
        ("--fp strict", naive),
        ("--fp reproducible", stable),
        ("--fp fast", stable),
        ("--fp fast --effort off", stable),
    ] {
        assert_eq!(d.good(&format!("{run} {more}")), expected, "{more}");
    }
}

/// What asks for nothing that an engine lacks is not refused.
#[test]
fn what_is_so_anyway_may_be_asked_for() {
    let d = models(&["layer_norm"]);
    d.file("effect.ir", EFFECT).file("choice.ir", CHOICE);
    for (args, same) in [
        (
            "run layer_norm.ir --engine reference --fp strict",
            "run layer_norm.ir --engine reference",
        ),
        (
            "check layer_norm.ir --engine reference --fp strict",
            "check layer_norm.ir --engine reference",
        ),
        ("run choice.ir --func choice --fp strict", "run choice.ir --func choice"),
        ("run effect.ir --fp strict", "run effect.ir"),
        ("run layer_norm.ir --no-cache", "run layer_norm.ir"),
        ("run layer_norm.ir --cache here", "run layer_norm.ir"),
        ("run layer_norm.ir --engine reference --no-cache", "run layer_norm.ir"),
        ("check layer_norm.ir --no-cache", "check layer_norm.ir"),
        ("plan layer_norm.ir --no-cache", "plan layer_norm.ir"),
        ("plan layer_norm.ir --cache here", "plan layer_norm.ir"),
        ("plan layer_norm.ir --frontier 3 --cache here", "plan layer_norm.ir --frontier 3"),
        ("plan layer_norm.ir --frontier 3 --no-cache", "plan layer_norm.ir --frontier 3"),
    ] {
        let [found, due] = [args, same].map(|args| d.run(args));
        assert_eq!((found.code, found.out, found.err), (0, due.out, due.err), "{args}");
    }
}

#[test]
fn what_an_engine_cannot_run_is_said() {
    let d = models(&["layer_norm"]);
    for (args, code, said) in [
        ("run layer_norm.ir --engine reference --threads 2", 2, "--threads is for --engine cpu"),
        ("check layer_norm.ir --engine reference --threads 2", 2, "--threads is for --engine cpu"),
        ("run layer_norm.ir --engine reference --vectors 128", 2, "--vectors is for --engine cpu"),
        (
            "run layer_norm.ir --engine cpu --vectors 64",
            2,
            "--vectors is 128, 256 or 512, found 64",
        ),
        ("check layer_norm.ir --vectors 1", 2, "--vectors is 128, 256 or 512, found 1"),
        ("emit layer_norm.ir --stage asm --vectors 0", 2, "--vectors is 128, 256 or 512, found 0"),
        (
            "run layer_norm.ir --engine reference --fp fast",
            2,
            "--lossy and --donate are for --engine evaluator, cpu",
        ),
        ("run layer_norm.ir --engine reference --effort off", 2, "--lossy and --donate are for"),
        ("run layer_norm.ir --engine cpu --threads 0", 2, "a whole number from 1 to 256"),
        ("check layer_norm.ir --threads 257", 2, "a whole number from 1 to 256"),
        ("run layer_norm.ir --threads many", 2, "invalid value 'many'"),
        (
            "run layer_norm.ir --engine gpus",
            2,
            "engines are reference, evaluator, cpu, gpu and gpu:N",
        ),
        ("run layer_norm.ir --engine gpu:one", 2, "`one` is no number of a GPU"),
        // No machine has this many, and on most there is no driver.
        ("run layer_norm.ir --engine gpu:999", 2, "no GPU"),
        ("check layer_norm.ir --engine gpu:999", 2, "no GPU"),
        ("bench layer_norm.ir --engine gpu:999", 2, "no GPU"),
        ("bench layer_norm.ir --engine reference", 2, "bench measures the engines cpu and gpu"),
        ("run layer_norm.ir --engine evaluator --threads 2", 2, "--threads is for --engine cpu"),
        ("run layer_norm.ir --engine evaluator --mem-budget 16", 1, "no plan within 16 bytes"),
        ("bench layer_norm.ir --engine evaluator", 2, "bench measures the engines cpu and gpu"),
        ("run layer_norm.ir --engine reference --lossy bf16", 2, "--engine evaluator, cpu, gpu"),
        ("emit layer_norm.ir --stage asm --sm 90", 2, "--sm is for the stages of the engine gpu"),
        ("emit layer_norm.ir --stage ptx --sm 70", 2, "compute capability 7.0"),
        ("run layer_norm.ir --fp exact", 2, "invalid value 'exact'"),
        ("run layer_norm.ir --effort most", 2, "invalid value 'most'"),
        ("check layer_norm.ir --mem-budget 16", 1, "no plan within 16 bytes was found"),
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
    }
}

/// Plans need no device: the engine prices and counts them for a description of it, and that is told.
#[test]
fn plans_for_a_gpu_need_none() {
    let d = models(&["layer_norm"]);
    let ran = d.run("plan layer_norm.ir --engine gpu:999");
    assert_eq!(ran.code, 0, "{}", ran.err);
    // The engine joins the parts of a fold over points in a launch of its own; the machine alone says nothing of that.
    let launches = |out: &str| {
        let row = out.lines().find(|line| line.starts_with("launches")).map(str::to_owned);
        row.and_then(|row| row.split_whitespace().nth(1).map(str::to_owned))
    };
    assert_eq!(launches(&ran.out).as_deref(), Some("2"), "{}", ran.out);
    let machine = d.good("plan layer_norm.ir --device h200");
    assert_eq!(launches(&machine).as_deref(), Some("1"), "{machine}");
    assert!(ran.err.starts_with("note: ") && ran.err.contains("the machine h200"), "{}", ran.err);
    let emit = |sm: u32| d.run(&format!("emit layer_norm.ir --stage ptx --sm {sm}"));
    assert_eq!((emit(90).err.as_str(), emit(80).err.as_str()), ("", ""));
    assert!(emit(100).err.contains("for sm_90, which sm_100 runs too"), "{}", emit(100).err);
    assert!(emit(100).out.contains(".target sm_90\n"), "{}", emit(100).out);
}

/// An engine begins while a program is read, and what is wrong is told in the same order: first that the device is not there, where the command measures
/// it; the program's fault alone, where that is found before a device is asked for.
#[test]
fn a_device_that_is_not_there_is_told_before_a_program_that_is_wrong() {
    let d = Folder::new();
    d.file("wrong.ir", "func @f(%x: f32[4]) -> f32[4] {\n  %y = nothing %x\n  return %y\n}\n");
    let unknown = "no op `nothing`";
    for (args, code, said, unsaid) in [
        ("bench wrong.ir --engine gpu:999", 2, vec!["no GPU"], unknown),
        ("plan wrong.ir --engine gpu:999", 1, vec!["no GPU", "the machine h200", unknown], "panic"),
        ("plan wrong.ir", 1, vec![unknown], "no GPU"),
        ("run wrong.ir --engine gpu:999", 1, vec![unknown], "no GPU"),
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}: {}", ran.err);
        assert!(said.iter().all(|said| ran.err.contains(said)), "{args}: {}", ran.err);
        assert!(!ran.err.contains(unsaid), "{args}: {}", ran.err);
    }
}

/// What is printed is the same on every engine, at every effort and within every budget; commands that run functions
/// many times print nothing.
#[test]
fn effects_are_printed_once_whatever_runs_them() {
    let d = Folder::new();
    d.file("effect.ir", EFFECT).file("told.ir", TOLD);
    for (run, due) in [
        ("run effect.ir --input x=[1,2]", "seen: f32[2]\n[1.0, 2.0]\n"),
        ("run told.ir --input x=3 --input p=true", "seen: f32[] = 3.0\n"),
        ("run told.ir --input x=3 --input p=true --grad", "seen: f32[] = 3.0\n"),
        ("run told.ir --input x=3 --input p=false", ""),
    ] {
        let expected = d.run(&format!("{run} --engine reference"));
        assert_eq!((expected.code, expected.err.as_str()), (0, due), "{run}");
        for more in [
            "",
            "--engine cpu",
            "--engine evaluator",
            "--effort off",
            "--effort search",
            "--fp fast",
            "--mem-budget 1KiB --no-cache",
        ] {
            let found = d.run(&format!("{run} {more}"));
            assert_eq!(
                (found.code, &found.out, found.err.as_str()),
                (0, &expected.out, due),
                "{run} {more}"
            );
        }
    }
    for quiet in ["check told.ir --engine reference", "bench effect.ir --min-seconds 0"] {
        let ran = d.run(quiet);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{quiet}");
    }
    // Of a branch that only prints, a derivative leaves one without results: the reference engine runs that, and this
    // is said once a function, however many are made of it.
    let ran = d.run("check told.ir");
    assert!(ran.code == 0 && ran.out.ends_with("2 checks, none failed\n"), "{}", ran.out);
    let note = "note: @told runs on the reference engine: `cond` has no lowering to kernels";
    assert!(ran.err.starts_with(note) && ran.err.lines().count() == 1, "{}", ran.err);
}

#[test]
fn derivatives_are_checked_on_every_engine() {
    let d = models(&["layer_norm"]);
    let expected = d.good("check layer_norm.ir --engine reference");
    for more in
        ["", "--engine cpu", "--engine cpu --threads 1", "--threads 2", "--fp strict --effort off"]
    {
        assert_eq!(d.good(&format!("check layer_norm.ir {more}")), expected, "{more}");
    }
}

#[test]
#[cfg(unix)]
fn profilers_are_told_the_names_of_functions() {
    let d = Folder::new();
    d.file("choice.ir", CHOICE);
    let run = "run choice.ir --func plain --input x=[1,2,3]";
    let ran = d.with("ADFUSE_PERF_MAP", "1", run);
    let path = ran.err.strip_prefix("note: functions are named in ").map(str::trim);
    let path = path.unwrap_or_else(|| panic!("{}", ran.err));
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::remove_file(path).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split(' ').collect()).collect();
    let names: Vec<&str> = lines.iter().map(|l| l[2]).collect();
    assert_eq!(names, ["mul_reduce_sum.folded", "mul_reduce_sum.0"]);
    for line in &lines {
        let size = u64::from_str_radix(line[1], 16).unwrap();
        assert!(u64::from_str_radix(line[0], 16).unwrap() > 0 && size > 0, "{line:?}");
    }
    // Zero and nothing ask for none.
    for off in ["0", ""] {
        assert_eq!(d.with("ADFUSE_PERF_MAP", off, run).err, "");
    }
}

/// What is in the table of engines is what is offered, and what is planned takes whatever plans take.
#[test]
fn engines_are_rows_of_one_table() {
    let d = models(&["layer_norm"]);
    let help = d.good("run --help").split_whitespace().collect::<Vec<_>>().join(" ");
    for row in ENGINES {
        let spelled = format!("{} ({})", row.numbered.map_or("", |_| "gpu or gpu:N"), row.about);
        let spelled =
            if row.numbered.is_none() { format!("{}{spelled}", row.name) } else { spelled };
        assert!(help.contains(&spelled), "{spelled}: {help}");
    }
    let run = "run layer_norm.ir --grad --digest --seed 5";
    // Machine code holds whole lines of a cache, the evaluator bytes.
    let least = d.run(&format!("{run} --engine cpu --mem-budget 1")).err;
    let numbers = least.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse::<u64>().ok());
    let least = numbers.max();
    let least = least.unwrap_or_else(|| panic!("no number of bytes"));
    for more in [
        "--effort off",
        "--effort quick",
        "--fp reproducible",
        "--fp fast --effort off",
        "--lossy bf16",
        "--donate x",
        &format!("--mem-budget {least}"),
    ] {
        let [evaluated, made] = ["evaluator", "cpu"]
            .map(|engine| d.run(&format!("{run} --no-cache --engine {engine} {more}")));
        assert_eq!((evaluated.code, made.code), (0, 0), "{more}: {}{}", evaluated.err, made.err);
        let (evaluated, made) = (evaluated.out, made.out);
        assert!(evaluated.lines().count() > 1, "{evaluated}");
        // Modes other than strict let machine code round otherwise.
        assert!(more.contains("--fp") || evaluated == made, "{more}: {evaluated}{made}");
    }
    let checked = d.good("check layer_norm.ir --engine evaluator");
    assert_eq!(checked, d.good("check layer_norm.ir --engine reference"));
    assert!(d.good("plan layer_norm.ir --engine evaluator").contains("layer_norm"));
}

/// Concatenations of many operands are made in steps, and so are their gradients; no bit shows it.
#[test]
fn wide_concatenations_have_the_same_bits_on_every_engine() {
    let d = Folder::new();
    for n in [17, 40, 300] {
        let params: Vec<String> = (0..n).map(|k| format!("%x{k}: f32[2,{}]", 1 + k % 3)).collect();
        let total: usize = (0..n).map(|k| 1 + k % 3).sum();
        let names: Vec<String> = (0..n).map(|k| format!("%x{k}")).collect();
        let (params, names) = (params.join(", "), names.join(", "));
        let text = format!(
            "func @f({params}) -> f32[2,{total}] {{\n  %y = concatenate {names} {{axis = 1}}\n  \
             %z = sin %y\n  return %z\n}}\n"
        );
        d.file("wide.ir", text);
        let expected = d.good("run wide.ir --grad --digest --engine reference");
        assert_eq!(d.good("run wide.ir --grad --digest --engine cpu"), expected, "{n}");
    }
}

#[test]
fn a_loop_that_takes_too_many_steps_is_an_error() {
    let d = Folder::new();
    d.file(
        "endless.ir",
        "func @f(%x: f32[]) -> f32[] {\n  %0 = while %x : f32[] cond(%a: f32[]) {\n    yield true\n  } \
         body(%b: f32[]) {\n    yield %b\n  }\n  return %0\n}\n",
    );
    for (args, steps) in
        [("run endless.ir --max-trips 1000", 1000), ("check endless.ir --max-trips 9", 9)]
    {
        let ran = d.run(args);
        let due = format!("`while` takes more than {steps} steps");
        assert!(ran.code != 0 && ran.err.contains(&due), "{args}: {}", ran.err);
        assert!(ran.err.contains("at `step 0: loop @while`"), "{args}: {}", ran.err);
        let ran = d.run(&format!("{args} --engine reference"));
        assert!(ran.code != 0 && ran.err.contains(&due), "{args}: {}", ran.err);
        assert!(ran.err.contains("endless.ir:2:"), "{args}: {}", ran.err);
    }
}
