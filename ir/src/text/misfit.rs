//! Misfits: why an instruction was not made, at its place in the text.

use super::ast::InstAst;
use super::errors::Errors;
use super::hints::fitting;
use crate::diag::Span;
use crate::infer::InferError;
use crate::op::Op;

/// Reports why an instruction was not made, with what would make its operand fit.
pub(super) fn report(source: &str, (op, e): (Op, InferError), ast: &InstAst, errors: &mut Errors) {
    let name = |span: Span| source.get(span.start as usize..span.end as usize).unwrap_or_default();
    let operands: Vec<&str> = ast.operands.iter().map(|o| name(o.span())).collect();
    let hint = e.mismatch.as_ref().and_then(|m| fitting(op, m, &operands));
    errors.add_hint(place_of(&e, ast), e.kind, e.message, hint);
}

/// The operand or the written types that the error speaks of, or the whole instruction.
fn place_of(e: &InferError, ast: &InstAst) -> Span {
    let operand = e.message.strip_prefix("operand ").and_then(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        ast.operands.get(digits.parse::<usize>().ok()?)
    });
    if let Some(operand) = operand {
        return operand.span();
    }
    let of_result = e.message.starts_with("the result ") || e.message.starts_with("result");
    match ast.types.as_deref() {
        Some([first, .., last]) if of_result => first.span.to(last.span),
        Some([only]) if of_result => only.span,
        _ => ast.span,
    }
}
