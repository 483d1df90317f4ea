//! What every row must have: name, documentation, examples, a signature that is kept.

use super::cases::{all, dtypes, is_plain_map, least_operands, map_case, reshaped, signature};
use adfuse::ir::infer::Class;
use adfuse::ir::op::{Arity, Body, Deriv, scalar_ops};
use adfuse::ir::scalar::{Prim, SOp};
use adfuse::ir::text::{parse, print_module};
use adfuse::ir::{Attrs, Builder, DType, Kind, Op, Operand, TensorType, verify};
use std::collections::BTreeSet;

#[test]
fn names_are_words_of_their_own() {
    let mut seen = BTreeSet::new();
    for &op in Op::ALL {
        let name = op.name();
        assert!(seen.insert(name), "`{name}` names two rows");
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(
            name.chars().all(allowed) && name.starts_with(|c: char| c.is_ascii_lowercase()),
            "`{name}`"
        );
        assert_eq!(Op::from_name(name), Some(op));
    }
}

#[test]
fn every_row_is_documented() {
    for &op in Op::ALL {
        let doc = op.def().doc.trim();
        assert!(doc.len() > 2 && doc.ends_with('.'), "`{op}`: {doc:?}");
    }
}

#[test]
fn every_row_has_what_its_kind_needs() {
    for &op in Op::ALL {
        let def = op.def();
        // What these do is said by others: the module, and whoever runs it.
        let exempt = is_plain_map(op) || matches!(op, Op::Call | Op::Opaque);
        assert!(exempt || !def.examples.is_empty(), "`{op}` has no example");
        assert!(!def.domain.is_empty(), "`{op}` has no domain");
        let structural = match def.body {
            Body::Region(_) | Body::Opaque => true,
            // What it is composed of has derivatives, where it has no rules.
            Body::Composed(_) | Body::Step(_) => !matches!(def.deriv, Deriv::Rules(..)),
            _ => false,
        };
        assert_eq!(structural, matches!(def.deriv, Deriv::Structural), "`{op}`");
        let names: BTreeSet<&str> = def.attrs.iter().map(|a| a.name).collect();
        assert_eq!(names.len(), def.attrs.len(), "`{op}` has two attributes of one name");
    }
}

#[test]
fn programs_of_every_row_verify_and_round_trip() {
    let mut count = 0;
    for &op in Op::ALL {
        for case in all(op) {
            let text = print_module(&case.module);
            let again = parse(&text).unwrap_or_else(|e| panic!("{text}{e:#?}"));
            verify(&again).unwrap_or_else(|e| panic!("{text}{e:#?}"));
            assert_eq!(print_module(&again), text);
            assert_eq!(case.f().op(case.f().body_insts()[0]), op);
            count += 1;
        }
    }
    assert!(count > 1000, "{count} programs");
}

/// The class of the error that an instruction on parameters of these types gives.
fn refusal(op: Op, types: &[TensorType]) -> Option<Kind> {
    let mut b = Builder::new("f");
    let args: Vec<Operand> =
        types.iter().map(|t| Operand::Value(b.param(t.clone(), None))).collect();
    let attrs = op.def().attrs.iter().fold(Attrs::none(), |a, spec| a.with_int(spec.name, 2));
    let declared = op.def().declared.then(|| [TensorType::of(DType::F64, &[3])]);
    let made = b.try_inst(op, &args, attrs, declared.as_ref().map(|d| &d[..]), &[]);
    made.err().map(|e| e.kind)
}

#[test]
fn elementwise_rows_refuse_what_their_signature_does_not_allow() {
    for &op in Op::ALL {
        let Some(sig) = signature(op) else { continue };
        let all = dtypes(&sig);
        let of = |class: Class, d: DType| if class == Class::Bool { DType::Bool } else { d };
        let types = |d: DType| -> Vec<TensorType> {
            sig.args.iter().map(|&c| TensorType::of(of(c, d), &[3])).collect()
        };
        let good = types(all[0]);
        assert_eq!(refusal(op, &good), None, "`{op}`");
        assert_eq!(refusal(op, &good[1..]), Some(Kind::Arity), "`{op}`");
        let more: Vec<TensorType> = good.iter().chain(&good[..1]).cloned().collect();
        assert_eq!(refusal(op, &more), Some(Kind::Arity), "`{op}`");
        for k in 0..good.len() {
            let mut mixed = good.clone();
            if good.len() > 1 {
                mixed[k] = reshaped(&good[k]);
                assert_eq!(refusal(op, &mixed), Some(Kind::Shape), "`{op}`, operand {k}");
            }
            if sig.args.iter().filter(|&&c| c == Class::T).count() > 1 || sig.args[k] == Class::Bool
            {
                let other = if sig.args[k] == Class::Bool { DType::F32 } else { all[1] };
                mixed[k] = TensorType::of(other, &[3]);
                assert_eq!(refusal(op, &mixed), Some(Kind::DType), "`{op}`, operand {k}");
            }
            let mut token = good.clone();
            token[k] = TensorType::token();
            let refused = matches!(refusal(op, &token), Some(Kind::DType | Kind::Shape));
            assert!(refused, "`{op}` takes a token");
        }
        for d in DType::ALL.into_iter().filter(|d| !all.contains(d) && *d != DType::Token) {
            assert_eq!(refusal(op, &types(d)), Some(Kind::DType), "`{op}` on {d}");
        }
    }
}

#[test]
fn every_row_refuses_too_few_and_too_many_operands() {
    for &op in Op::ALL.iter().filter(|op| signature(**op).is_none()) {
        for case in all(op) {
            let f = case.f();
            let inst = f.body_insts()[0];
            let known: Vec<_> = f.args(inst).iter().map(|&a| Some(f.ty(a).clone())).collect();
            let written: Vec<_> = f.inst_results(inst).iter().map(|&v| f.ty(v).clone()).collect();
            let kind = |n: usize| {
                let first = known.first().cloned().unwrap_or(Some(TensorType::scalar(DType::F32)));
                let args = (0..n).map(|k| known.get(k).cloned().unwrap_or(first.clone())).collect();
                op.infer(args, f.attrs(inst), Some(&written)).err().map(|e| e.kind)
            };
            assert_eq!(kind(known.len()), None, "{}", case.text());
            if let Some(fewer) = least_operands(op).checked_sub(1) {
                assert_eq!(kind(fewer), Some(Kind::Arity), "{}", case.text());
            }
            if let Arity::Exactly(n) = op.def().arity {
                assert_eq!(kind(n + 1), Some(Kind::Arity), "{}", case.text());
            }
        }
    }
}

#[test]
fn scalar_functions_are_ops() {
    for op in scalar_ops() {
        assert!(Op::of_scalar(op).is_some(), "{op:?} is no op");
    }
}

#[test]
fn partials_use_what_is_an_op() {
    for &op in Op::ALL {
        if !matches!(op.def().deriv, Deriv::Partials(_)) {
            continue;
        }
        for dtype in [DType::F64, DType::F32, DType::BF16] {
            let case = map_case(op, dtype, &[3]);
            let f = case.f();
            let inst = f.body_insts()[0];
            let args: Vec<DType> = f.args(inst).iter().map(|&a| f.ty(a).dtype).collect();
            let result = f.ty(f.inst_results(inst)[0]).dtype;
            for k in 0..args.len() {
                let program = op.partial(k, &args, result, f.attrs(inst)).expect("a partial");
                let live = program.live();
                for (v, i) in program.insts.iter().filter(|(v, _)| live[v.as_u32() as usize]) {
                    let known = match i.op {
                        SOp::Param(_) | SOp::Const(_) | SOp::Prim(Prim::Convert) => true,
                        other => Op::of_scalar(other).is_some(),
                    };
                    assert!(known, "`{op}`, partial {k}: {v} is no op in\n{program}");
                }
                let out = program.insts[program.outputs[0]].dtype;
                assert!(
                    out == DType::Bool || out == result.compute(),
                    "`{op}`, partial {k}: {out}"
                );
            }
        }
    }
}
