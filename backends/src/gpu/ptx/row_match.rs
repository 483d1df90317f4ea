//! The test that stands for comparisons of all elements that threads compute together with a number of their row.

use super::address::{Vars, resolved, value, widened};
use super::asm::{Class, Reg};
use super::emit::{At, Emit};
use super::row_point::Point;
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Param, Stage};

/// Whether the number that parameter `param` loads is one of `count` places from `first` on.
pub(super) fn is_among(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    (stage, param): (&Stage, usize),
    vars: &Vars,
    (first, count): (&IndexExpr, i64),
) -> Reg {
    let Param::Load(pieces) = &stage.params[param] else { return emit.asm.truth(true) };
    let dtype = stage.program.params[param];
    let mut coords = p.domain.clone();
    coords.push(IndexExpr::Const(0));
    let number = emit.load(pieces, dtype, &At { vars, coords: &coords }, &[]);
    let first = resolved(first, &emit.same(vars), vars);
    let first = value(&mut emit.asm, &first, vars, &[]);
    let asm = &mut emit.asm;
    match dtype {
        DType::I64 => {
            let first = widened(asm, first);
            let from = asm.pure(Class::Long, "sub.s64", format_args!("{number}, {first}"));
            asm.pure(Class::Pred, "setp.lt.u64", format_args!("{from}, {count}"))
        }
        _ => {
            let first = asm.narrow(first);
            let from = asm.pure(Class::Word, "sub.s32", format_args!("{number}, {first}"));
            asm.pure(Class::Pred, "setp.lt.u32", format_args!("{from}, {count}"))
        }
    }
}
