//! Loads of neighbours from one of several pieces: by vectors where all are in one piece, from an address that is chosen where several
//! pieces are in memory.

use crate::common::random;
use crate::lowered;
use crate::machine::run;
use adfuse::backends::ptx::{self, GpuTarget};
use adfuse::backends::reference::kernel;
use adfuse::fusion::{Effort, Fp};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

/// Neighbours that are all in one piece of a concatenation, or of an array with rows of numbers around it, are read by vectors of
/// that piece; pieces that end amid neighbours are read one by one.
pub(crate) fn pieces_are_read_by_vectors() {
    for (dtype, cols, vector) in
        [("f32", 64, "v4.f32"), ("bf16", 64, "v4.b32"), ("i32", 12, "v4.b32"), ("f32", 5, "")]
    {
        let ty = |rows: u32| format!("{dtype}[{rows},{cols}]");
        let (a, b, all, padded) = (ty(3), ty(6), ty(9), ty(12));
        let text = format!(
            "func @f(%a: {a}, %b: {b}) -> ({all}, {padded}) {{
              %c = concatenate %a, %b {{axis = 0}} : {all}
              %d = add %c, 3 : {all}
              %p = pad %d, 7 {{low = [1, 0], high = [2, 0], interior = [0, 0]}} : {padded}
              %q = mul %p, %p : {padded}
              return %d, %q
            }}"
        );
        let text = if dtype == "i32" {
            text
        } else {
            text.replace(" 3 :", " 3.0 :").replace(" 7 ", " 7.0 ")
        };
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
        let f = module.funcs.values().next().expect("a function");
        for effort in [Effort::Off, Effort::Default] {
            let program = lowered(&module, f, effort, Fp::Strict);
            let args = random::inputs(f, &[Domain::Normal, Domain::Ints(-9, 9)]);
            let expected = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{d}"));
            let module = ptx::compile(&program, GpuTarget::SM80, Fp::Strict).expect("compiles");
            let guarded = |line: &str| {
                line.trim_start().starts_with('@')
                    && line.contains(&format!("ld.global.nc.{vector} "))
            };
            let found = module.text.lines().any(guarded);
            assert_eq!(found, !vector.is_empty(), "{dtype} {cols} {effort:?}\n{}", module.text);
            let found = run(&module, &program, &args, false);
            assert_eq!(found, expected, "{dtype} {cols} {effort:?}\n{}", *program);
        }
    }
}

/// Where several arrays are read, an address is chosen and one load follows, once for all neighbours of a thread and all its rows of
/// neighbours.
pub(crate) fn an_address_of_pieces_is_chosen() {
    let text = "func @f(%a: i32[3,512], %b: i32[6,512], %c: i32[2,512], %w: i32[512]) -> (i32[11], i32[11,512]) {
      %d = concatenate %a, %b, %c {axis = 0} : i32[11,512]
      %v = broadcast_in_dim %w {dims = [1]} : i32[11,512]
      %e = mul %d, %v : i32[11,512]
      %s = reduce_sum %e {axes = [1]} : i32[11]
      return %s, %e
    }";
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let program = lowered(&module, f, Effort::Default, Fp::Fast);
    let args = random::inputs(f, &[Domain::Ints(-9, 9)]);
    let expected = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{d}"));
    let module = ptx::compile(&program, GpuTarget::SM80, Fp::Fast).expect("compiles");
    let lines = |found: &dyn Fn(&str) -> bool| {
        module.text.lines().filter(|line| found(line.trim_start())).count()
    };
    // Two of three addresses are passed over.
    assert_eq!(lines(&|line| line.starts_with("selp.b64")), 2, "{}", module.text);
    let guarded = |line: &str| line.starts_with('@') && line.contains("ld.global");
    assert_eq!(lines(&guarded), 0, "{}", module.text);
    assert!(lines(&|line| line.starts_with("ld.global.nc.v4")) > 1, "{}", module.text);
    assert_eq!(run(&module, &program, &args, false), expected, "{}", *program);
}
