//! The engines: the same bits, and what each cannot run.

use crate::plan::models;

#[test]
fn engines_give_the_same_bits() {
    let names = ["transformer_block", "layer_norm", "dropout_mlp", "swiglu", "embedding"];
    let d = models(&names);
    for name in names {
        let run = format!("run {name}.ir --grad --digest --seed 3");
        let expected = d.good(&run);
        for more in ["--engine reference", "--engine cpu", "--engine cpu --threads 1"] {
            assert_eq!(d.good(&format!("{run} {more}")), expected, "{name} {more}");
        }
    }
}

#[test]
fn what_an_engine_cannot_run_is_said() {
    let d = models(&["layer_norm"]);
    d.file(
        "effect.ir",
        "func @f(%x: f32[2]) -> f32[2] {
  %t = create_token : token
  %u = debug_print %t, %x {label = \"seen\"} : token
  return %x
}
",
    );
    for (args, code, said) in [
        ("run effect.ir --engine cpu", 1, "tokens have no lowering to kernels"),
        ("run layer_norm.ir --threads 2", 2, "--threads is for --engine cpu"),
        ("run layer_norm.ir --engine cpu --threads 0", 2, "--threads is from 1 to 256, found 0"),
        ("run layer_norm.ir --engine gpu", 2, "invalid value 'gpu'"),
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains(said), "{args}: {}", ran.err);
    }
    let ran = d.run("run effect.ir --engine reference");
    assert!(ran.code == 0 && ran.err.starts_with("seen: f32[2]"), "{}", ran.err);
}
