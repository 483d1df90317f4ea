//! The verifier's rules: those that text cannot break, on programs built by hand, and that every message
//! of the verifier is expected by some file.

use crate::common::messages::{fits, messages};
use adfuse::ir::index::IndexExpr;
use adfuse::ir::kernel::text::parse;
use adfuse::ir::kernel::{
    Buffer, Extents, Operand, Param, Piece, Program, Row, Sink, Step, Storage, verify,
};
use adfuse::ir::{Diagnostic, Kind, Literal};
use std::path::Path;

const TEXT: &str = "program @f {
  input %x: f32[4, 6]
  input %m: bool[8] as b1
  output %y: f32[4, 6]
  temp %t: f32[6]
  output %z: f32[4]
  output %c: f32[4]
  output %l: f32[4, 6]
  kernel @k [4] {
    tile t0: f32[6]
    stage [6] {
      p0 = load %x[d0, d1]
      s0 = param.f32 0
      t0 = scan.sum s0 d1
      %y[d0, d1] = store s0
    }
  }
  %t = scatter f32(0.0) [6] {
    s0 = const.f32 1.0
    [d0] = add s0
  }
  %l = library @double(%y)
  contract @c {
    member batch [] rows [4] cols [] depth [6] sum f32 {
      lhs {
        p0 = load %x[d0, d1]
        s0 = param.f32 0
        out s0
      }
      rhs {
        p0 = load %t[d0]
        s0 = param.f32 0
        out s0
      }
      then {
        p0 = sum
        s0 = param.f32 0
        %z[d0] = store s0
        %c[d0] = store s0
      }
    }
  }
  return %y, %z, %c, %l
}
";

/// Every rule that text cannot break, since reading it reports the same before, or cannot say it.
fn by_hand() -> Vec<(&'static str, Kind, Vec<Diagnostic>)> {
    let sound = parse(TEXT).expect("reads");
    assert!(verify(sound.clone()).is_ok());
    let mut all = Vec::new();
    let mut add = |part, kind, change: &dyn Fn(&mut Program)| {
        let mut program = sound.clone();
        change(&mut program);
        all.push((part, kind, verify(program).expect_err(part)));
    };
    let b = Buffer::from_u32;
    add("not a name", Kind::Syntax, &|p| p.name = "a b".into());
    add("not a name", Kind::Syntax, &|p| p.buffers[b(0)].name = "0x".into());
    add("two buffers have this name", Kind::Redefinition, &|p| p.buffers[b(0)].name = "y".into());
    add("an output is not declared", Kind::UnknownName, &|p| p.outputs.push(b(99)));
    add("a buffer, row or tile is not declared", Kind::UnknownName, &|p| {
        p.steps.push(Step::Transfer(adfuse::ir::kernel::Transfer { from: b(0), to: b(99) }));
    });
    add("a buffer, row or tile is not declared", Kind::UnknownName, &|p| {
        stage(p).sinks[0] = Sink::Leave(Row::from_u32(3));
    });
    add("1, 2, 4 or 8 bits, not in 3", Kind::DType, &|p| {
        p.buffers[b(1)].storage = Storage::Packed(3);
    });
    add("value ", Kind::DType, &|p| {
        let mut data = p.buffers[b(0)].clone();
        data.name = "k".into();
        data.dims = Extents::from_slice(&[1]);
        data.role = adfuse::ir::kernel::Role::Constant(vec![Literal::one(adfuse::ir::DType::F64)]);
        p.buffers.push(data);
    });
    add("1 outputs for 2 sinks", Kind::Arity, &|p| {
        stage(p).program.outputs.pop();
    });
    add("0 parameters are read, the program has 1", Kind::Arity, &|p| stage(p).params.clear());
    add("f32 is read as f64", Kind::DType, &|p| {
        stage(p).program.params[0] = adfuse::ir::DType::F64;
    });
    add("a load has no pieces", Kind::Arity, &|p| {
        stage(p).params[0] = Param::Load(Default::default())
    });
    add("1 index expressions for 0 axes", Kind::Arity, &|p| {
        let from = Operand::Literal(Literal::one(adfuse::ir::DType::F32));
        let index = [IndexExpr::Const(0)].into_iter().collect();
        let piece = Piece { from, index, guards: Default::default() };
        stage(p).params[0] = Param::Load([piece].into_iter().collect());
    });
    add("the scan's axis is not the stage's", Kind::Shape, &|p| {
        if let Sink::Scan { axis, .. } = &mut stage(p).sinks[0] {
            *axis = 1;
        }
    });
    add("a scatter has one update", Kind::Arity, &|p| {
        if let Step::Scatter(s) = &mut p.steps[1] {
            s.program.outputs.clear();
        }
    });
    add("a function without results does nothing", Kind::Arity, &|p| {
        if let Step::Library(l) = &mut p.steps[2] {
            l.outputs.clear();
        }
    });
    add("what follows sums has no axes", Kind::Shape, &|p| {
        if let Step::Contract(c) = &mut p.steps[3] {
            c.members[0].then.axes.push(1);
        }
    });
    add("what follows sums has no axes", Kind::Shape, &|p| {
        if let Step::Contract(c) = &mut p.steps[3] {
            c.members[0].then.sinks[0] = Sink::Leave(Row::from_u32(u32::MAX - 1));
        }
    });
    all
}

/// The first step's stage.
fn stage(p: &mut Program) -> &mut adfuse::ir::kernel::Stage {
    match &mut p.steps[0] {
        Step::Kernel(k) => &mut k.stages[0],
        _ => panic!("a kernel"),
    }
}

#[test]
fn rules_that_text_cannot_break_are_checked() {
    for (part, kind, errors) in by_hand() {
        let found = |d: &Diagnostic| d.kind == kind && d.message.contains(part);
        assert!(errors.iter().any(found), "`{part}` is not among {errors:#?}");
        assert!(errors.iter().all(|d| d.at.inst.is_some()), "{errors:#?}");
    }
}

/// Texts in the verifier's sources that are no message.
const NOT_MESSAGES: &[&str] = &["well formed"];

#[test]
fn every_message_has_a_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| std::fs::read_to_string(path).expect("reads");
    let files = |folder: &str| {
        let entries = std::fs::read_dir(root.join(folder)).expect("a folder");
        let mut paths: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
        paths.sort();
        paths
    };
    let mut all: Vec<String> = Vec::new();
    for path in files("tests/filetests/kernels/errors") {
        let text = read(&path);
        all.extend(text.lines().filter_map(|l| l.strip_prefix("// error: ")).map(str::to_string));
    }
    for (_, _, errors) in by_hand() {
        all.extend(errors.iter().map(ToString::to_string));
    }
    let (mut missing, mut count) = (Vec::new(), 0);
    for path in files("ir/src/kernel/verify") {
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for message in messages(code) {
            count += 1;
            let known = NOT_MESSAGES.contains(&message.as_str());
            if !known && !all.iter().any(|e| fits(&message, e)) {
                missing.push(format!("{}: {message}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "no program gives\n{}", missing.join("\n"));
    assert!(count > 60, "{count} messages");
}
