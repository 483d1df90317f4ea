//! `emit`: programs of kernels.

use super::programs;
use adfuse::pipeline::{PASSES, stages};

const INTS: &str = "program @main {
  input %x: i32[3]
  temp %sq: i32[3]
  output %y: i32[3]
  output %s: i32[]
  kernel @mul [3] {
    stage [] {
      p0 = load %x[d0]
      s0 = param.i32 0
      s1 = mul.i32 s0 s0
      %sq[d0] = store s1
    }
  }
  kernel @add [3] {
    stage [] {
      p0 = load %sq[d0]
      s0 = param.i32 0
      s1 = const.i32 1
      s2 = add.i32 s0 s1
      %y[d0] = store s2
    }
  }
  kernel @reduce_sum [3] {
    stage [] {
      p0 = load %y[d0]
      s0 = param.i32 0
      %s[] = fold.sum s0 lane(d0)
    }
  }
  return %y, %s
}
";

#[test]
fn programs_are_printed() {
    let d = programs();
    assert_eq!(d.good("emit ints.ir --stage program --effort off"), INTS);
    let fused = d.good("emit ints.ir --stage program");
    assert!(fused.contains("kernel @mul_add_reduce_sum [3]"), "{fused}");
    let gradient = d.good("emit loss.ir --stage program --grad --wrt w");
    assert!(gradient.starts_with("program @loss"), "{gradient}");
    assert!(gradient.contains("kernel @mul_reduce_sum"), "{gradient}");
    let double = d.good("emit sym.ir --stage program --dim n=3");
    assert!(double.contains("kernel @add [3, 2]"), "{double}");
    assert!(d.good("emit two.ir --func second --stage program").contains("kernel @mul []"));
}

#[test]
fn rules_are_listed() {
    let d = programs();
    let listed = d.good("emit --rules");
    for table in adfuse::pipeline::rules::tables() {
        assert!(listed.contains(&format!("{}: {}", table.name, table.doc)), "{listed}");
        for rule in table.rules {
            let line = format!("  {} ({}): {}\n", rule.name, rule.exactness, rule.doc);
            assert!(listed.contains(&line), "{listed}");
        }
    }
    for args in ["emit --rules ints.ir", "emit --rules --stage plan", "emit ints.ir"] {
        assert_eq!(d.run(args).code, 2, "{args}");
    }
}

#[test]
fn what_cannot_be_lowered_is_named() {
    let d = programs();
    for (args, code, said) in
        [("sym.ir", 2, "add --dim n=4"), ("loss.ir --wrt w", 2, "--wrt needs --grad")]
    {
        let ran = d.run(&format!("emit {args} --stage program"));
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}");
        assert!(ran.err.contains(said), "{}", ran.err);
    }
}

/// The list has a line for each pass, and every stage that it names prints.
#[test]
fn passes_are_listed_and_stages_print() {
    let d = programs();
    let list = d.good("emit --stages");
    for (pass, line) in PASSES.iter().zip(list.lines()) {
        let way = format!("{} -> {}", pass.takes.name(), pass.gives.name());
        assert!(line.starts_with(pass.name) && line.contains(&way), "{line}");
        assert!(line.contains(pass.verifier.name()) && line.contains(pass.about), "{line}");
    }
    assert_eq!(list.lines().count(), PASSES.len());
    for stage in stages() {
        let text = d.good(&format!("emit loss.ir --stage {stage} --grad --wrt w"));
        assert!(!text.is_empty(), "{stage}");
    }
    // What is planned is what the passes before leave.
    let of = |stage: &str| d.good(&format!("emit loss.ir --stage {stage} --grad --wrt w"));
    assert_eq!(of("dce"), of("ad"));
    assert_ne!(of("differentiate"), of("specialize"));
    assert_eq!(of("lower"), of("program"));
    assert_eq!(of("machine_code"), of("asm"));
    for (args, said) in [
        ("loss.ir --stage nowhere", "possible values: parse, specialize"),
        ("loss.ir", "--stage <STAGE>"),
        ("loss.ir --stages", "cannot be used with"),
        ("loss.ir --stage cse --mem-budget 1MiB", "--stage cse comes before plans and budgets"),
    ] {
        let ran = d.run(&format!("emit {args}"));
        assert_eq!(ran.code, 2, "{args}");
        assert!(ran.err.contains(said), "{}", ran.err);
    }
}

/// Passes before plans are those for the device that is named, though no stage of its engine is asked for.
#[test]
fn passes_are_those_of_the_device() {
    let d = programs();
    let text = "func @c(%x: f32[2,16,10,10], %k: f32[16,16,3,3]) -> f32[2,16,10,10] {
  %y = conv_general_dilated %x, %k {low = [1, 1], high = [1, 1]} : f32[2,16,10,10]
  return %y
}";
    d.file("c.ir", text);
    let emitted = |rest: &str| d.good(&format!("emit c.ir --grad --fp fast --stage {rest}"));
    assert_eq!(emitted("convolve"), emitted("inline"));
    let given = emitted("inline --device h200");
    let convolved = emitted("convolve --device h200");
    assert!(given.contains(" = unskew ") && !given.contains(" = rev "), "{given}");
    // What is left without use is removed later.
    assert!(convolved.contains(" = rev "), "{convolved}");
    assert!(!emitted("dce --device h200").contains(" = unskew "));
}
