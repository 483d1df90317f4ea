//! Raw bytes and offsets from callers are checked before machine code and user functions rely on them.

use adfuse::backends::Array;
use adfuse::backends::cpu::{ArenaLayout, CallInput, CpuExecutable, CpuOptions};
use adfuse::engine::Cpu;
use adfuse::functions::{CallPrice, Opaque, Registry};
use adfuse::fusion::memory_beside;
use adfuse::ir::kernel::{Buffer, DonorSlice, Program, Verified, text::parse, verify};
use adfuse::ir::{DType, Diagnostic, Kind, TensorType};

/// Counts the truth values that it is given; what is neither true nor false would be undefined behavior.
fn functions() -> Registry {
    let count = Opaque::new(
        |types| match types {
            [p] if p.dtype == DType::Bool => Ok(TensorType::of(DType::I32, &[])),
            _ => Err("it takes truth values".into()),
        },
        |call| {
            let all = call.args[0].elements::<bool>()?.iter().filter(|&&p| p).count();
            call.result.elements::<i32>()?[0] = all as i32;
            Ok(())
        },
    );
    let scale = Opaque::new(
        |types| types.first().cloned().ok_or_else(|| "it takes a tensor".into()),
        |call| {
            let x = call.args[0].elements::<f32>()?;
            for (y, x) in call.result.elements::<f32>()?.iter_mut().zip(x) {
                *y = 2.0 * x;
            }
            Ok(())
        },
    )
    .priced(|_| CallPrice { scratch: 64, ..CallPrice::default() });
    Registry::new().with("count", count).with("scale", scale)
}

fn program(text: &str) -> Verified<Program> {
    let program = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(program).unwrap_or_else(|e| panic!("{e:?}\n{text}"))
}

fn buffer(program: &Program, name: &str) -> Buffer {
    let found = program.buffers.iter().find(|(_, data)| data.name == name);
    found.unwrap_or_else(|| panic!("no %{name}")).0
}

#[test]
fn bytes_of_truth_values_are_0_or_1() {
    let called = "program @f {
      input %p: bool[4]
      output %n: i32[]
      %n = library @count(%p)
      return %n
    }";
    let kernel = "program @f {
      input %p: bool[4]
      output %q: bool[4]
      kernel @k [4] { stage [] { p0 = load %p[d0] s0 = param.bool 0 s1 = not.bool s0 %q[d0] = store s1 } }
      return %q
    }";
    for (text, bytes) in [(called, 4), (kernel, 4)] {
        let cpu = Cpu { functions: functions(), ..Cpu::default() };
        let made = cpu.of_program(program(text)).expect("compiles").executable;
        let mut out = vec![0; bytes];
        made.run_into(&[&[0, 1, 1, 0]], &mut [&mut out]).expect("truth values");
        for (wrong, at) in [([0, 1, 2, 255], 2), ([255, 0, 0, 0], 0), ([0, 0, 0, 128], 3)] {
            let mut given = wrong;
            let mut donated = [CallInput::Donated(&mut given)];
            let refused = [
                made.run_into(&[&wrong], &mut [&mut out]),
                made.run_into_donating(&mut [CallInput::Lent(&wrong)], &mut [&mut out]),
                made.run_into_donating(&mut donated, &mut [&mut out]),
            ];
            for found in refused {
                let d: Diagnostic = found.expect_err("neither true nor false");
                assert_eq!(d.kind, Kind::Usage, "{d:?}");
                let due = format!("byte {at} of input 0 of @f is {}", wrong[at]);
                assert!(d.message.contains(&due), "{d:?} has no {due:?}");
            }
        }
        // Large inputs are looked at as a whole.
        assert_eq!(
            made.run(&[Array::from_i64s(DType::Bool, &[4], &[0, 7, 1, 0]).expect("four")])
                .map(|out| out[0].get(0).to_f64()),
            Ok(if text == called { 2.0 } else { 1.0 })
        );
    }
}

#[test]
fn every_byte_of_a_large_input_is_looked_at() {
    let text = "program @f {
      input %p: bool[1000]
      output %n: i32[]
      %n = library @count(%p)
      return %n
    }";
    let cpu = Cpu { functions: functions(), ..Cpu::default() };
    let made = cpu.of_program(program(text)).expect("compiles").executable;
    let mut out = [0; 4];
    for at in [0, 7, 8, 500, 991, 992, 999] {
        let mut bytes = vec![1; 1001];
        bytes[1 + at] = 3;
        // Begun at an odd byte as well.
        let d = made.run_into(&[&bytes[1..]], &mut [&mut out]).expect_err("a 3");
        assert!(d.message.contains(&format!("byte {at} ")), "{d:?}");
        bytes[1 + at] = 1;
        made.run_into(&[&bytes[1..]], &mut [&mut out]).expect("truth values");
        assert_eq!(i32::from_le_bytes(out), 1000);
    }
}

/// A function that reads what nothing has written is told so, and sees no truth values that are none.
#[test]
fn a_function_gets_truth_values_only() {
    let text = "program @f {
      input %x: f32[64]
      temp %junk: f32[64]
      temp %p: bool[256]
      output %y: f32[64]
      output %n: i32[]
      kernel @a [64] { stage [] { p0 = load %x[d0] s0 = param.f32 0 %junk[d0] = store s0 } }
      kernel @b [64] { stage [] { p0 = load %junk[d0] s0 = param.f32 0 %y[d0] = store s0 } }
      kernel @c [1] { stage [] { p0 = load %x[d0] s0 = param.f32 0 s1 = ne.f32 s0 s0 %p[d0] = store s1 } }
      %n = library @count(%p)
      return %y, %n
    }";
    let Ok(parsed) = parse(text) else { panic!("reads") };
    // The verifier may refuse what is written in part; what it takes must be safe.
    let Ok(program) = verify(parsed) else { return };
    let cpu = Cpu { functions: functions(), ..Cpu::default() };
    let made = cpu.of_program(program).expect("compiles").executable;
    let x = Array::from_f32s(&[64], &[-3.7; 64]).expect("fits");
    match made.run(&[x]) {
        Err(d) => assert!(d.message.contains("neither 0 nor 1"), "{d:?}"),
        Ok(out) => assert!(out[1].get(0).to_f64() <= 256.0),
    }
}

const CHAIN: &str = "program @f {
  input %x: f32[40] donated
  temp %t: f32[40]
  temp %u: f32[40]
  output %y: f32[40]
  output %z: f32[40]
  kernel @a [40] { stage [] { p0 = load %x[d0] s0 = param.f32 0 s1 = add.f32 s0 s0 %t[d0] = store s1 } }
  %u = library @scale(%t) scratch 64
  kernel @b [40] {
    stage [] { p0 = load %u[d0] p1 = load %t[d0] s0 = param.f32 0 s1 = param.f32 1 s2 = sub.f32 s0 s1 %y[d0] = store s2 }
  }
  kernel @c [40] { stage [] { p0 = load %x[d0 * -1 + 39] s0 = param.f32 0 %z[d0] = store s0 } }
  return %y, %z
}";

fn compiled(
    program: &Verified<Program>,
    layout: &ArenaLayout,
) -> Result<CpuExecutable, Diagnostic> {
    CpuExecutable::compile_with(program, layout, CpuOptions::default(), &functions())
}

#[test]
fn what_is_live_at_one_time_is_not_in_one_place() {
    let program = program(CHAIN);
    let [x, t, u, y, z] = ["x", "t", "u", "y", "z"].map(|n| buffer(&program, n));
    let layout = |at: &[(Buffer, u64)], given: &[Buffer], scratch: Option<(u64, u64)>| {
        let mut layout = ArenaLayout { bytes: 1024, ..ArenaLayout::default() };
        at.iter().for_each(|&(b, at)| layout.offsets[b] = Some(at));
        given.iter().for_each(|&b| layout.in_donor[b] = Some(DonorSlice::start(x)));
        layout.scratch = vec![None, scratch, None, None];
        layout
    };
    let wrong = [
        ("%u and %t", layout(&[(t, 0), (u, 0)], &[], None)),
        ("%u and %t", layout(&[(t, 0), (u, 128)], &[], None)),
        ("scratch of step 1 and %t", layout(&[(t, 0), (u, 256)], &[], Some((0, 64)))),
        ("scratch of step 1 and %u", layout(&[(t, 0), (u, 256)], &[], Some((384, 64)))),
        ("%t and %x", layout(&[(u, 0)], &[t], None)),
        ("%y and %x", layout(&[(t, 0), (u, 256)], &[y], None)),
        // It is read in another order than it is written.
        ("%z and %x", layout(&[(t, 0), (u, 256)], &[z], None)),
        ("%x is no temporary", layout(&[(x, 0)], &[], None)),
    ];
    for (names, layout) in wrong {
        let d = compiled(&program, &layout).map(|_| ()).expect_err(names);
        assert_eq!(d.kind, Kind::Usage, "{names}: {d:?}");
        let named = names.split(" and ").all(|name| d.message.contains(name));
        assert!(named, "{names}: {d:?}");
    }
    let values: Vec<f32> = (0..40).map(|i| i as f32 - 7.5).collect();
    let args = [Array::from_f32s(&[40], &values).expect("fits")];
    let due: [Vec<f64>; 2] = [
        values.iter().map(|&x| f64::from(2.0 * x)).collect(),
        values.iter().rev().map(|&x| f64::from(x)).collect(),
    ];
    for layout in [
        layout(&[(t, 0), (u, 192)], &[], Some((384, 64))),
        // Without a place in the layout it has one beside the arena.
        layout(&[(t, 64)], &[], None),
        layout(&[(t, 0), (u, 192)], &[], Some((960, 64))),
    ] {
        let out = compiled(&program, &layout).expect("fits").run(&args).expect("runs");
        assert_eq!([out[0].to_f64s(), out[1].to_f64s()], due);
    }
}

/// The arrays of results hold temporaries until the results are written, and no longer.
#[test]
fn results_hold_temporaries_until_they_are_written() {
    let values: Vec<f32> = (0..40).map(|i| i as f32 - 7.5).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let args = [Array::from_f32s(&[40], &values).expect("fits")];
    let straight = program(CHAIN);
    let reversed = program(&CHAIN.replace("load %u[d0]", "load %u[d0 * -1 + 39]"));
    let twice = program(&CHAIN.replace("return %y, %z", "return %z, %y, %z, %x"));
    // The offset of each temporary and the array that it is in, and what is wrong.
    type DonorCase<'c> = (&'c [(&'c str, u64, &'c str)], &'c [&'c str]);
    let cases: [DonorCase<'_>; 10] = [
        (&[("t", 0, "z"), ("u", 0, "y")], &[]),
        (&[("t", 0, "y"), ("u", 0, "z")], &[]),
        (&[("u", 0, "z")], &[]),
        (&[("t", 0, "y"), ("u", 0, "y")], &["%t", "%u"]),
        (&[("t", 64, "z")], &["%t", "does not fit"]),
        (&[("t", u64::MAX - 63, "z")], &["%t", "does not fit"]),
        (&[("t", 8, "z")], &["%t", "is not aligned"]),
        (&[("t", 0, "u")], &["%t", "neither an input that is given up nor a result"]),
        (&[("z", 0, "y")], &["%z", "does not fit into the input"]),
        (&[("y", 0, "y")], &["%y", "does not fit into the input"]),
    ];
    for (k, program) in [&straight, &reversed, &twice].into_iter().enumerate() {
        let plain = compiled(program, &ArenaLayout::default()).expect("compiles");
        let due = plain.run(&args).expect("runs");
        for (places, wrong) in cases {
            let mut layout = ArenaLayout { bytes: 256, ..ArenaLayout::default() };
            layout.scratch = vec![None, Some((0, 64)), None, None];
            for &(name, at, donor) in places {
                let donor = buffer(program, donor);
                layout.in_donor[buffer(program, name)] = Some(DonorSlice { donor, at });
            }
            // What is read in another order cannot be written over.
            let late = k == 1 && wrong.is_empty() && places.contains(&("u", 0, "y"));
            let wrong = if late { &["%u", "%y"] } else { wrong };
            let made = match compiled(program, &layout) {
                Ok(made) => made,
                Err(d) => {
                    let named = wrong.iter().all(|part| d.message.contains(part));
                    assert!(
                        d.kind == Kind::Usage && named && !wrong.is_empty(),
                        "{places:?}: {d:?}"
                    );
                    continue;
                }
            };
            assert!(wrong.is_empty(), "{places:?} in\n{}", **program);
            assert!(made.memory().peak() <= plain.memory().peak());
            assert_eq!(made.run(&args).expect("runs"), due);
            // The caller's memory, at any address.
            for shift in [0, 4, 1] {
                let mut rooms = vec![vec![7u8; 160 + 16]; due.len()];
                let begin = |room: &Vec<u8>| room.as_ptr().align_offset(8) + shift;
                let mut slices: Vec<&mut [u8]> = Vec::new();
                for room in &mut rooms {
                    let at = begin(room);
                    slices.push(&mut room[at..at + 160]);
                }
                made.run_into(&[&bytes], &mut slices).expect("runs");
                for (slice, due) in slices.iter().zip(&due) {
                    assert_eq!(slice[..], *due.bytes(), "{places:?}, shifted by {shift}");
                }
            }
        }
    }
}

/// What is written over what it reads at the same place is in place, and may be.
#[test]
fn layouts_may_be_in_place() {
    let of = |read: &str| {
        program(&format!(
            "program @f {{
              input %x: f32[40]
              temp %t: f32[40]
              temp %u: f32[40]
              output %y: f32[40]
              kernel @a [40] {{ stage [] {{ p0 = load %x[d0] s0 = param.f32 0 %t[d0] = store s0 }} }}
              kernel @b [40] {{ stage [] {{ p0 = load %t[{read}] s0 = param.f32 0 %u[d0] = store s0 }} }}
              kernel @c [40] {{ stage [] {{ p0 = load %u[d0] s0 = param.f32 0 %y[d0] = store s0 }} }}
              return %y
            }}"
        ))
    };
    for (read, fits) in [("d0", true), ("d0 * -1 + 39", false)] {
        let program = of(read);
        let mut layout = ArenaLayout { bytes: 192, ..ArenaLayout::default() };
        for name in ["t", "u"] {
            layout.offsets[buffer(&program, name)] = Some(0);
        }
        assert_eq!(compiled(&program, &layout).is_ok(), fits, "{read}");
        // What the planner makes of it is taken.
        let planned = memory_beside(&program, adfuse::fusion::Effort::Default, &[]).expect("plans");
        let (bytes, offsets, in_donor) = (planned.arena, planned.offsets, planned.in_donor);
        let layout = ArenaLayout { bytes, offsets, in_donor, ..ArenaLayout::default() };
        compiled(&program, &layout).expect("fits");
    }
}
