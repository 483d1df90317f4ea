//! Vector accesses to memory: memory operands and nontemporal stores.

use super::widths::{made, wide};
use super::{layout, strict};
use adfuse::backends::cpu::{CpuExecutable, CpuOptions};
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::Module;
use adfuse::ir::kernel::verify;
use adfuse::ir::text::parse;

/// More than any last level of cache, and more than most; both are only sizes until something runs.
const HUGE: u64 = 1 << 28;
const LARGE: u64 = 1 << 24;

fn one(body: &str, n: u64) -> String {
    format!("func @f(%x: f32[{n}], %y: f32[{n}]) -> f32[{n}] {{\n  {body}\n  return %r\n}}")
        .replace("[N]", &format!("[{n}]"))
}

/// What is used once is an operand where it is in memory.
#[test]
fn loads_are_operands() {
    let text = one("%s = mul %x, %x : f32[N]\n  %r = sub %s, %y : f32[N]", 4096);
    for vectors in wide() {
        for (_, asm) in made(&text, vectors) {
            let of_memory = |name: &str| asm.lines().any(|l| l.contains(name) && l.contains("[r"));
            assert!(of_memory("vsubps"), "{asm}");
            // This one is used twice.
            assert!(!of_memory("vmulps"), "{asm}");
        }
    }
}

/// Light sweeps of more than the caches hold store past them, with a fence after it; others do not.
#[test]
fn stores_past_the_caches() {
    let light = one("%r = add %x, %y : f32[N]", HUGE);
    let rows = format!(
        "func @f(%x: f32[{n},1024]) -> f32[{n},1024] {{
           %q = mul %x, %x : f32[{n},1024]
           %s = reduce_sum %q {{axes = [1]}} : f32[{n}]
           %b = broadcast_in_dim %s {{dims = [0]}} : f32[{n},1024]
           %y = mul %x, %b : f32[{n},1024]
           return %y
         }}",
        n = HUGE / 1024
    );
    let others = [
        one("%r = add %x, %y : f32[N]", 4096),
        one("%e = exp %x : f32[N]\n  %r = mul %e, %y : f32[N]", HUGE),
        rows,
    ];
    for vectors in wide() {
        for (_, asm) in made(&light, vectors) {
            let lines: Vec<&str> = asm.lines().collect();
            let last = |what: &str| lines.iter().rposition(|l| l.contains(what));
            let (store, fence) = (last("vmovntps").expect("far"), last("sfence").expect("fence"));
            assert!(store < fence && fence < last("ret").expect("returns"), "{asm}");
        }
        for text in &others {
            for (_, asm) in made(text, vectors) {
                assert!(!asm.contains("vmovnt") && !asm.contains("sfence"), "{text}\n{asm}");
            }
        }
    }
}

/// Results that begin anywhere among vectors, together and apart from each other, and ranges of two threads.
#[test]
fn results_that_begin_anywhere() {
    let n = LARGE + 37;
    let text = format!(
        "func @f(%x: f32[{n}]) -> (f32[{n}], f32[{n}]) {{
           %r = add %x, 1.5 : f32[{n}]
           %s = mul %x, 0.5 : f32[{n}]
           return %r, %s
         }}"
    );
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let options = fusion::PlanOptions {
        device: MachineModel::cpu(),
        effort: Effort::Default,
        fp: Fp::Strict,
    };
    let program = compile(&Module::single(f.clone()), f, &options).expect("compiles").program;
    let program = verify(program).unwrap_or_else(|e| panic!("{}", e[0]));
    let layout = layout(&program, Effort::Default).expect("fits");
    let x: Vec<u8> = (0..n).flat_map(|i| ((i % 1013) as f32).to_le_bytes()).collect();
    let mut memory = vec![0u8; 2 * (4 * n as usize + 256)];
    for vectors in wide() {
        for (threads, begins) in [(1, [0, 0]), (1, [8, 8]), (2, [56, 56]), (2, [16, 40])] {
            let options = CpuOptions { vectors, threads, ..strict() };
            let made = CpuExecutable::compile(&program, &layout, options).expect("compiles");
            memory.fill(0xab);
            let (one, other) = memory.split_at_mut(4 * n as usize + 256);
            let [a, b] = [(one, begins[0]), (other, begins[1])].map(|(m, begin)| {
                let first = m.as_ptr().align_offset(64) + begin;
                &mut m[first..first + 4 * n as usize]
            });
            made.run_into(&[&x], &mut [&mut *a, &mut *b]).expect("runs");
            for i in 0..n as usize {
                let at = |m: &[u8]| f32::from_le_bytes(m[4 * i..4 * i + 4].try_into().expect("4"));
                let x = (i % 1013) as f32;
                assert_eq!((at(a), at(b)), (x + 1.5, x * 0.5), "{i} from {begins:?}");
            }
        }
    }
}
