//! Programs of kernels as text: what is well formed prints as it was read and is accepted. Programs that
//! break the verifier's rules are in `tests/filetests/kernels/errors`.

use adfuse_ir::Kind;
use adfuse_ir::kernel::text::parse;
use adfuse_ir::kernel::{Program, verify};

const COPY: &str = "s0 = param.f32 0 %y[d0, d1] = store s0";

/// A program of one kernel with one stage.
fn stage(lines: &str) -> String {
    format!(
        "program @f {{
           input %x: f32[4, 6] output %y: f32[4, 6]
           kernel @k [4, 6] {{ stage [] {{ {lines} }} }}
           return %y
         }}"
    )
}

/// Rows of a softmax: maximum, exponentials kept, their sum, quotients.
const SOFTMAX: &str = "program @softmax {
  input %x: f32[8, 32]
  output %y: f32[8, 32]
  kernel @softmax [8] {
    row r0: f32
    row r1: f32
    tile t0: f32[32]
    stage [32] {
      p0 = load %x[d0, d1]
      s0 = param.f32 0
      r0 = reduce.max s0 lane(d1)
    }
    stage [32] {
      p0 = load %x[d0, d1]
      p1 = r0
      s0 = param.f32 0
      s1 = param.f32 1
      s2 = sub.f32 s0 s1
      s3 = exp.f32 s2
      t0 = keep s3
      r1 = reduce.sum s3 lane(d1)
    }
    stage [32] {
      p0 = t0
      p1 = r1
      s0 = param.f32 0
      s1 = param.f32 1
      s2 = div.f32 s0 s1
      %y[d0, d1] = store s2
    }
  }
  return %y
}
";

/// Everything else that text can say.
const REST: &str = "program @rest {
  input %x: bf16[4, 6]
  input %at: i32[3, 1]
  input %w: f32[6, 2]
  constant %k: i64[2] = [-3, 9223372036854775807]
  temp %0: f32[4, 6]
  temp %1: f32[4, 2]
  output %s: f32[4, 2]
  output %c: bf16[6, 4]
  output %p: f32[4, 2]
  kernel @widen [4, 6] {
    stage [] {
      p0 = load %x[d0, (d1 * -1 + 5) / 1 % 6] when d1 - 1 in [0, 4) and d0 in [0, 2) else bf16(0.5)
      p1 = coord (d0 + d1) * 3
      s0 = param.bf16 0
      s1 = param.i64 1
      s2 = convert.f32 s0
      s3 = convert.f32 s1
      s4 = add.f32 s2 s3
      %0[d0, d1] = store s4
    }
  }
  contract @dense {
    member batch [] rows [4] cols [2] depth [6] sum f32 {
      lhs {
        p0 = load %0[d0, d1]
        s0 = param.f32 0
        out s0
      }
      rhs {
        p0 = load %w[d1, d0]
        s0 = param.f32 0
        out s0
      }
      then {
        p0 = sum
        s0 = param.f32 0
        %1[d0, d1] = store s0
      }
    }
  }
  %s = scatter %1 [3, 2] {
    p0 = load %at[d0, 0]
    s0 = param.i32 0
    s1 = const.f32 -inf
    [clamp(p0, 0, 3), d1] = add s1 when clamp(p0, -1, 4) in [0, 4)
  }
  %p = scatter f32(0.0) [3, 2] {
    p0 = load %at[d0, 0]
    s0 = param.i32 0
    s1 = const.f32 1.0
    [clamp(p0, 0, 3), d1] = add s1
  }
  kernel @cumsum [4] {
    tile t0: f32[6]
    stage [6] {
      p0 = load %0[d0, d1]
      s0 = param.f32 0
      t0 = scan.sum s0 d1 reverse
    }
    stage [6] {
      p0 = t0
      s0 = param.f32 0
      s1 = convert.bf16 s0
      %c[d1, d0] = store s1
    }
  }
  return %s, %c, %x, %s, %k, %p
}
";

/// The well-formed programs of the filetests, without the comments above them.
fn files() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/filetests/kernels/ok");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    let program = |path| {
        let text = std::fs::read_to_string(path).expect("reads");
        text[text.find("program @").expect("a program")..].to_string()
    };
    paths.into_iter().map(program).collect()
}

fn read(text: &str) -> Program {
    parse(text).unwrap_or_else(|d| {
        let at = d.at.span.map_or(0, |s| s.start as usize);
        panic!("{d}: {}", text[at..].lines().next().unwrap_or_default())
    })
}

#[test]
fn well_formed_programs_print_as_they_are_read() {
    for text in [SOFTMAX.to_string(), REST.to_string()].into_iter().chain(files()) {
        let program = read(&text);
        assert_eq!(program.to_string(), text);
        if let Err(errors) = verify(program) {
            panic!("{errors:#?}");
        }
    }
}

#[test]
fn errors_name_step_stage_and_parameter() {
    let text = stage(&format!("p0 = load %x[d0, d1 + 1] {COPY}"));
    let errors = verify(read(&text)).expect_err("out of bounds");
    let shown = errors[0].to_string();
    assert_eq!(
        shown,
        "in @f: %x: axis 1 has extent 6, but `d1 + 1` may be 1 to 6, at `step 0: kernel @k, stage 0, p0`"
    );
}

#[test]
fn malformed_text_is_an_error_with_a_place() {
    for (text, part) in [
        ("", "expected `program`, found the end"),
        ("program @f { return %x }", "no buffer `%x`"),
        ("program @f { input %x: f32[2] input %x: f32[2] return }", "declared twice"),
        ("program @f { input %x: f33[2] return }", "an element type"),
        ("program @f { kernel @k [2] { stage [] { s1 = const.f32 0.0 } } return }", "`s0`"),
        (
            "program @f { kernel @k [2] { stage [] { s0 = frob.f32 } } return }",
            "no scalar operation",
        ),
        ("program @f { kernel @k [2] { stage [] { s0 = add.f32 s0 s0 } } return }", "not defined"),
        ("program @f { kernel @k [2] { stage [] { r0 = keep s0 } } return }", "no `r0`"),
        ("program @f { constant %x: i8[1] = [300] return }", "a constant of type i8"),
        ("program @f { kernel @k [99999999999999999999] { } return }", "64 bits"),
        ("program @f { return } x", "the end"),
        ("program @f { input %x: i32[2] as u3 return }", "`b1`, `u2`, `u4` or `u8`"),
        ("program @f { input %x: i32[2] in place return }", "`host`"),
        (
            "program @f { input %x: i32[2] %x = copy %x return }",
            "`library`, `transfer` or an exchange",
        ),
        ("program @f { input %x: i32[2] %x = library @f(%x) scratch -1 return }", "of bytes"),
        ("program @f { kernel @k [2] { schedule vector 1 } return }", "`d` with a number"),
        ("program @f { kernel @k [2] { schedule vector d256 } return }", "an axis"),
        ("program @f { contract @c { member batch [2] cols [3] } return }", "`rows`"),
        ("program @f { input %x: f32[2] kernel @k [2] { stage [] { %x[d0] = fold.mean", "a monoid"),
        ("program @f { kernel @k [2] { row r0: f32 stage [] { r0 = keep s0", "`leave` or"),
    ] {
        let d = parse(text).expect_err(text);
        assert!(d.message.contains(part), "{text}: {d}");
        assert!(d.at.span.is_some());
    }
    let deep = format!("p0 = coord {}d0", "(".repeat(100_000));
    assert_eq!(parse(&stage(&deep)).map_err(|d| d.kind), Err(Kind::Limit));
    let long = format!("p0 = coord d0{}", " + d0".repeat(100_000));
    assert_eq!(parse(&stage(&long)).map_err(|d| d.kind), Err(Kind::Limit));
}

/// Bytes dropped, doubled and changed: nothing panics, and what reads prints as it reads.
#[test]
fn mutated_text_never_panics() {
    let mut state = 7u64;
    let mut random = move |n: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n.max(1)
    };
    let mut parsed = 0;
    let mut texts = vec![SOFTMAX.to_string(), REST.to_string()];
    texts.extend(files());
    for n in 0..20_000 {
        let mut bytes = texts[n % texts.len()].as_bytes().to_vec();
        for _ in 0..1 + random(3) {
            let at = random(bytes.len());
            match random(4) {
                0 => {
                    bytes.remove(at);
                }
                1 => bytes.insert(at, bytes[at]),
                2 => bytes[at] = b"0123456789dprst %[](){},:=+-*/.@xi\n\"\\\xff"[random(38)],
                _ => {
                    let other = random(bytes.len());
                    bytes.swap(at, other);
                }
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(program) = parse(&text) {
            parsed += 1;
            let printed = program.to_string();
            assert_eq!(parse(&printed).as_ref(), Ok(&program), "{printed}");
            let _ = verify(program);
        }
    }
    assert!(parsed > 100, "{parsed}");
}
