//! Slices of callers: any alignment, and inputs that share memory.

use super::{arguments, read, strict};
use adfuse::backends::Array;
use adfuse::backends::cpu::{ArenaLayout, CpuExecutable, CpuOptions};
use adfuse::backends::reference::kernel;
use adfuse::fusion::Fp;
use adfuse::ir::kernel::verify;

/// Callers' bytes may begin anywhere, and packed buffers are written by several threads.
#[test]
fn slices_may_begin_anywhere() {
    let text = "program @f {
      input %x: f32[40, 50]
      input %y: f32[50, 7]
      temp %m: bool[40, 50] as b1
      output %z: f32[40, 7]
      output %n: f32[40, 50]
      contract @c {
        member batch [] rows [40] cols [7] depth [50] sum f32 {
          lhs { p0 = load %x[d0, d1] s0 = param.f32 0 out s0 }
          rhs { p0 = load %y[d1, d0] s0 = param.f32 0 out s0 }
          then { p0 = sum s0 = param.f32 0 %z[d0, d1] = store s0 }
        }
      }
      kernel @m [40, 50] {
        stage [] {
          p0 = load %x[d0, d1]
          s0 = param.f32 0 s1 = const.f32 0.0 s2 = gt.bool s0 s1
          %m[d0, d1] = store s2
        }
      }
      kernel @n [40, 50] {
        stage [] {
          p0 = load %m[d0, d1]
          s0 = param.bool 0 s1 = convert.f32 s0
          %n[d0, d1] = store s1
        }
      }
      return %z, %n
    }";
    let program = verify(read(text).expect("reads")).expect("verifies");
    let args = arguments(&program);
    let expected = kernel::run(&program, &args).expect("runs");
    let layout = ArenaLayout::default();
    let made = CpuExecutable::compile(
        &program,
        &layout,
        CpuOptions { threads: 2, fp: Fp::Strict, ..CpuOptions::default() },
    )
    .expect("compiles");
    for shift in [1, 2, 4, 7] {
        let shifted = |a: &Array| [&vec![0; shift], a.bytes()].concat();
        let inputs: Vec<Vec<u8>> = args.iter().map(shifted).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(|b| &b[shift..]).collect();
        let mut outputs: Vec<Vec<u8>> = expected.iter().map(shifted).collect();
        outputs.iter_mut().for_each(|o| o.fill(9));
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(|o| &mut o[shift..]).collect();
        made.run_into(&inputs, &mut slices).expect("runs");
        for (found, wanted) in slices.iter().zip(&expected) {
            assert_eq!(**found, *wanted.bytes(), "from byte {shift} on");
        }
    }
}

/// Two inputs may be one memory, as far as the shorter goes.
#[test]
fn slices_may_begin_together() {
    let text = "program @f {
      input %a: f32[3]
      input %b: f32[200]
      output %y: f32[3]
      output %z: f32[200]
      kernel @a [3] { stage [] { p0 = load %a[d0] s0 = param.f32 0 %y[d0] = store s0 } }
      kernel @b [200] { stage [] { p0 = load %b[d0] s0 = param.f32 0 %z[d0] = store s0 } }
      return %y, %z
    }";
    let program = verify(read(text).expect("reads")).expect("verifies");
    let made =
        CpuExecutable::compile(&program, &ArenaLayout::default(), strict()).expect("compiles");
    let bytes: Vec<u8> = (0..808u32).map(|k| (k * 37 % 113) as u8).collect();
    for shift in [0, 1, 4, 8] {
        let (short, long) = (&bytes[shift..shift + 12], &bytes[shift..shift + 800]);
        let (mut y, mut z) = (vec![0; 12], vec![0; 800]);
        made.run_into(&[short, long], &mut [&mut y, &mut z]).expect("runs");
        assert!(y == short && z == long, "from byte {shift} on");
    }
}
