//! Which contractions share a step.

use crate::groups::compiled;
use adfuse::fusion::{
    Effort, EngineModel, Fp, MachineModel, PlanOptions, lower, plan_for, prepare,
};
use adfuse::ir::Op;
use adfuse::ir::kernel::Step;
use adfuse::ir::text::parse;

#[test]
fn queries_keys_and_values_are_one_contraction() {
    let text = "func @qkv(%x: f32[64,32], %q: f32[32,32], %k: f32[32,32], %v: f32[32,16], %c: f32[64,16]) -> f32[] {
  %a = dot_general %x, %q {contract = [1] x [0]} : f32[64,32]
  %b = dot_general %x, %k {contract = [1] x [0]} : f32[64,32]
  %d = dot_general %x, %v {contract = [1] x [0]} : f32[64,16]
  %s = dot_general %a, %b {contract = [1] x [1]} : f32[64,64]
  %t = tanh %s : f32[64,64]
  %o = dot_general %t, %d {contract = [1] x [0]} : f32[64,16]
  %w = mul %o, %c : f32[64,16]
  %y = reduce_sum %w {axes = [0, 1]} : f32[]
  return %y
}
";
    for (_, compiled) in compiled(text, true) {
        let members: Vec<usize> = compiled
            .program
            .steps
            .iter()
            .filter_map(|s| if let Step::Contract(c) = s { Some(c.members.len()) } else { None })
            .collect();
        // Forward, and the gradients of the three weights, share x.
        assert_eq!(members.iter().filter(|&&n| n == 3).count(), 2, "{}", compiled.program);
    }
}

/// Two products share an operand. They run as one where both results are needed at once or are smaller than what they share,
/// and where results are so small that a launch counts; otherwise the first would not be gone before the second.
#[test]
fn chunks_of_a_large_result_are_products_of_their_own() {
    for (rows, depth, cols, members) in [(8192, 16, 4096, 1), (64, 160, 8, 2), (64, 16, 64, 2)] {
        let text = format!(
            "func @chunks(%x: f32[{rows},{depth}], %y: f32[{rows},{depth}], %w: f32[{depth},{cols}], %u: f32[{cols},4], %v: f32[{cols},4]) -> f32[{rows},4] {{
  %a = dot_general %x, %w {{contract = [1] x [0]}} : f32[{rows},{cols}]
  %c = dot_general %a, %u {{contract = [1] x [0]}} : f32[{rows},4]
  %b = dot_general %y, %w {{contract = [1] x [0]}} : f32[{rows},{cols}]
  %d = dot_general %b, %v {{contract = [1] x [0]}} : f32[{rows},4]
  %z = add %c, %d : f32[{rows},4]
  return %z
}}
"
        );
        for (_, compiled) in compiled(&text, false) {
            let most = compiled.program.steps.iter().map(|s| match s {
                Step::Contract(c) => c.members.len(),
                _ => 0,
            });
            assert_eq!(most.max(), Some(members), "{}", compiled.program);
        }
    }
}

/// An engine, of which it is known whether products of windows read arrays with zeros around them.
struct Windows(bool);

impl EngineModel for Windows {
    fn window_prologues(&self, _: Fp) -> bool {
        self.0
    }
}

/// What is padded and how, and whether the padded array is stored for an engine that reads it with zeros around it. It is for others.
const PADDED: &[(&str, &str, bool)] = &[
    ("a parameter", "%p = pad %x, 0.0 AROUND", false),
    ("what is computed", "%a = relu %x : f32[8,16,28,28]\n %p = pad %a, 0.0 AROUND", false),
    ("with ones", "%p = pad %x, 1.0 AROUND", true),
    (
        "with zeros between",
        "%h = slice %x {start = [0, 0, 0, 0], limit = [8, 16, 15, 15], stride = [1, 1, 1, 1]} : f32[8,16,15,15]
         %p = pad %h, 0.0 {low = [0, 0, 0, 0], high = [0, 0, 1, 1], interior = [0, 0, 1, 1]} : f32[8,16,30,30]",
        true,
    ),
];

#[test]
fn padded_operands_are_stored_but_for_engines_that_read_windows() {
    let around =
        "{low = [0, 0, 1, 1], high = [0, 0, 1, 1], interior = [0, 0, 0, 0]} : f32[8,16,30,30]";
    for (name, padded, stored) in PADDED {
        let text = format!(
            "func @f(%x: f32[8,16,28,28], %k: f32[24,16,3,3]) -> f32[8,24,28,28] {{
  {}
  %y = conv_general_dilated %p, %k : f32[8,24,28,28]
  return %y
}}
",
            padded.replace("AROUND", around)
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let f = module.funcs.values().next().expect("a function");
        let f = prepare(&module, f).unwrap_or_else(|d| panic!("{name}: {d}"));
        let options =
            PlanOptions { device: MachineModel::h200(), effort: Effort::Default, fp: Fp::Fast };
        for (reads, due) in [(false, true), (true, *stored)] {
            let plan = plan_for(&f, &options, &Windows(reads));
            let plan = plan.unwrap_or_else(|d| panic!("{name}: {d}"));
            let mut members = plan.groups.iter().flat_map(|g| &g.parts).flatten();
            assert_eq!(members.any(|&i| f.op(i) == Op::Pad), due, "{name}, {reads}: {plan:?}");
            lower(&f, &plan, &options.device).unwrap_or_else(|d| panic!("{name}: {d}"));
        }
    }
}
