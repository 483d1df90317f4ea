//! The survey of single ops, small: every program is compiled and runs, and every op is in one.

use adfuse::ir::Op;
use adfuse::ir::op::Body;
use adfuse_benches::ops::OP_FAMILIES;
use std::process::Command;

/// Ops that are not measured, each for the reason beside it.
const LEFT_OUT: [(&str, &str); 9] = [
    ("reshape", "no element moves: it is the copy"),
    ("split", "a slice for each result"),
    ("skew", "a part of `windows`"),
    ("unskew", "a part of `select_and_scatter_add`"),
    ("reduce_window_min", "as `reduce_window_max`"),
    ("irfft", "as `rfft`"),
    ("householder", "a step of `qr`"),
    ("householder_product", "a step of `qr`"),
    ("constant", "it is read where it is"),
];

/// Decompositions are measured as loops.
const DECOMPOSITIONS: [&str; 6] = ["triangular_solve", "cholesky", "lu", "qr", "eigh", "svd"];

#[test]
fn every_op_is_surveyed_or_left_out() {
    let surveyed = |name: &str| OP_FAMILIES.iter().any(|f| f.ops.split(' ').any(|op| op == name));
    let left =
        |name: &str| LEFT_OUT.iter().any(|(op, _)| *op == name) || DECOMPOSITIONS.contains(&name);
    for &op in Op::ALL {
        let moves_elements = matches!(
            op.def().body,
            Body::Map(_)
                | Body::View(_)
                | Body::Reduce(_)
                | Body::Scan(_)
                | Body::Contract
                | Body::Constant
                | Body::Source(_)
                | Body::Indirect(_)
                | Body::Composed(_)
        );
        assert_eq!(surveyed(op.name()) || left(op.name()), moves_elements, "`{}`", op.name());
        assert!(!(surveyed(op.name()) && left(op.name())), "`{}` is both", op.name());
    }
}

#[test]
fn every_program_runs() {
    let out = Command::new(env!("CARGO_BIN_EXE_ops")).arg("--quick").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    for op in OP_FAMILIES.iter().flat_map(|family| family.programs()) {
        assert!(text.contains(&format!("| {} ", op.name)), "{}: {text}", op.name);
    }
}
