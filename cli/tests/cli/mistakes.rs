//! Mistakes on the command line, each with all that is said to it: `tests/ui/cli/NAME.txt`. `ADFUSE_BLESS=1` rewrites the files.
//!
//! The pages of the book have sixty more (`docs/mistakes.md`).

use crate::folder::Folder;
use crate::programs;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Names, and the arguments that are wrong.
const MISTAKES: &[(&str, &str)] = &[
    ("seed_below_zero", "run loss.ir --seed -1"),
    ("threads_beyond_the_most", "run loss.ir --threads 1000"),
    ("order_of_zero", "grad loss.ir --order 0"),
    ("frontier_of_nothing", "plan loss.ir --frontier 0"),
    ("mode_that_is_none", "jacobian loss.ir --mode sideways"),
    ("device_that_is_an_engine", "plan loss.ir --device gpu"),
    ("device_that_is_another", "plan loss.ir --device h100"),
    ("engine_that_is_none", "run loss.ir --engine cuda"),
    ("json_with_a_value", "run loss.ir --json=yes"),
    ("json_for_an_error", "run none.ir --json"),
    ("note_before_an_error", "plan loss.ir --grad --lossy bf16 --mem-budget 1 --no-cache --json"),
    ("two_results_in_one_file", "run loss.ir --save a.npz -o a.npz"),
    ("trace_and_result_in_one_file", "run loss.ir --trace sub/../a.json --output a.json"),
    ("picture_over_the_page", "report loss.ir --svg sub --no-frontier -o sub/memory.svg"),
    ("plan_to_standard_output", "plan loss.ir --save -"),
    ("save_to_an_unknown_form", "run loss.ir --save out.foo"),
    ("save_over_the_program", "plan loss.ir --save ./loss.ir"),
    ("output_of_launch", "launch -n 2 -o all.txt -- true"),
    ("ranks_beyond_the_most", "launch -n 1000 -- true"),
    ("buffers_that_are_no_numbers", "pack bad.csv"),
    ("buffer_that_dies_before_it_is_born", "pack late.csv"),
    ("function_to_check_that_is_not_there", "check two.ir --func thrid"),
    ("loop_without_an_end_in_bench", "bench endless.ir --min-seconds 0 --max-trips 1000"),
    ("loop_without_an_end_in_a_report", "report endless.ir --bench --max-trips 1000 -o page.html"),
    ("collective_that_is_checked", "check sum.ir"),
    ("text_for_import", "import loss.ir"),
    ("mlir_of_another_dialect", "run arith.mlir"),
    ("model_that_is_none", "run noise.onnx"),
    ("archive_for_a_program", "run weights.pt"),
    ("python_for_a_program", "run model.py"),
    ("text_of_sixteen_bits", "run wide.ir"),
    ("op_that_works_in_place", "fmt relu_.ir"),
    ("op_of_another_activation", "fmt selu.ir"),
    ("op_that_is_a_transformation", "fmt vmap.ir"),
    ("op_whose_extent_is_a_value", "fmt unique.ir"),
    ("op_that_copies", "fmt clone.ir"),
    ("op_that_skips_nans", "fmt nansum.ir"),
    ("op_with_swapped_letters", "fmt sqaure.ir"),
    ("op_that_is_like_no_other", "fmt igamma.ir"),
    ("engine_by_the_name_of_a_device", "check loss.ir --device cpu"),
    ("flag_of_other_commands", "grad loss.ir --fp fast"),
    ("command_of_other_programs", "compile loss.ir"),
    ("version_as_a_command", "version"),
    ("output_in_a_folder_that_is_not_there", "bench loss.ir -o none/result.txt"),
    ("files_written_twice_by_fmt", "fmt loss.ir --write -o other.ir"),
];

const ENDLESS: &str = "func @f(%x: f32[]) -> f32[] {
  %y = while %x : f32[] cond(%c: f32[]) {
    %p = eq %c, %c : bool[]
    yield %p
  } body(%c: f32[]) {
    %d = abs %c : f32[]
    yield %d
  }
  return %y
}
";

const SUM: &str = "func @f(%x: f32[4]) -> f32[4] {
  %s = all_reduce %x {over = \"ranks\", ranks = 2} : f32[4]
  return %s
}
";

const ARITH: &str = "module {
  func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
    %0 = arith.addf %a, %a : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
";

fn folder() -> Folder {
    let d = programs();
    d.file("endless.ir", ENDLESS).file("sum.ir", SUM).file("arith.mlir", ARITH);
    d.file("bad.csv", "id,lower,upper,size\na,0,x,4\n");
    d.file("late.csv", "id,lower,upper,size\na,5,3,4\n");
    d.file("noise.onnx", [0xc3, 0x28, 0x01]).file("weights.pt", b"PK\x03\x04\x00\xff\xfe");
    d.file("model.py", "import jax\n\ndef f(x):\n    return x\n");
    d.file("wide.ir", [0xff, 0xfe, b'f', 0, b'u', 0]);
    for op in ["relu_", "selu", "vmap", "unique", "clone", "nansum", "sqaure", "igamma"] {
        let text = format!("func @f(%x: f32[4]) -> f32[4] {{\n  %y = {op} %x\n  return %y\n}}\n");
        d.file(&format!("{op}.ir"), text);
    }
    fs::create_dir(d.0.join("sub")).unwrap();
    d
}

#[test]
fn mistakes_are_told_as_expected() {
    let bless = std::env::var_os("ADFUSE_BLESS").is_some_and(|v| v != "0");
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ui/cli");
    let d = folder();
    let before = d.names();
    let mut wrong = Vec::new();
    for (name, args) in MISTAKES {
        let ran = d.run(args);
        let told = format!("$ adfuse {args}\n{}exits with {}\n", ran.text(), ran.code);
        assert!(matches!(ran.code, 1 | 2) && ran.out.is_empty(), "{told}");
        assert!(
            !args.contains("--json") || serde_json::from_str::<serde_json::Value>(&ran.err).is_ok(),
            "{told}"
        );
        let file = place.join(format!("{name}.txt"));
        if bless {
            fs::create_dir_all(&place).unwrap();
            fs::write(&file, &told).unwrap();
            continue;
        }
        let due = fs::read_to_string(&file).unwrap_or_default();
        if told != due {
            wrong.push(format!("{name}\nexpected:\n{due}\nfound:\n{told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(d.names(), before, "a command that fails writes nothing");
    let names: BTreeSet<String> = MISTAKES.iter().map(|(name, _)| format!("{name}.txt")).collect();
    let files: BTreeSet<String> = (fs::read_dir(place).unwrap())
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, files);
}
