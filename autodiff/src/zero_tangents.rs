//! Symbolic zeros in custom rules: what a rule makes of tangents that are zero alone is zero.
//!
//! A rule is linear in its tangents. So a value that depends on zero tangents alone is zero. If it were computed, it
//! could be NaN (zero times infinity). Transposition would refuse it, too: it is added to linear values and is not
//! linear itself.

use adfuse_ir::control::{Follow, reach};
use adfuse_ir::rewrite::{Copier, dce, inline_keeping_rules};
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Literal, Module, Value};
use cranelift_entity::EntitySet;

/// The forward rule `(x.., t..)` without what depends on no tangent but those at places of `t..` where `moves` is
/// false. Calls of functions without a rule are inlined.
///
/// # Errors
/// If inlining gives too many instructions.
pub(crate) fn without_zero_tangents(
    module: &Module,
    rule: &Function,
    moves: &[bool],
) -> Result<Function, Diagnostic> {
    let rule = inline_keeping_rules(module, rule, &|callee| callee.rule.is_none())?;
    if moves.iter().all(|&m| m) {
        return Ok(rule);
    }
    let tangents = &rule.params()[rule.params().len() - moves.len()..];
    let (mut moving, mut still) = (EntitySet::new(), EntitySet::new());
    for (&t, &moves) in tangents.iter().zip(moves) {
        if moves {
            moving.insert(t)
        } else {
            still.insert(t)
        };
    }
    // Truth values that a rule makes of a zero tangent are no zeros, nor is what they select.
    let zero = reach(&rule, still, Follow::Tangents);
    let moving = reach(&rule, moving, Follow::Uses);
    let zero = |v: Value| zero.contains(v) && !moving.contains(v);
    let mut b = Builder::new(rule.name.clone());
    b.func_mut().symbols = rule.symbols.clone();
    let mut pass = Dropping { rule: &rule, zero: &zero };
    let mut copier = Copier::new(&rule);
    copier.params(&mut b);
    for &i in rule.body_insts() {
        pass.inst(&mut copier, &mut b, i)?;
    }
    pass.clear(&mut copier, &mut b, rule.results());
    let results: Vec<Value> = rule.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    let mut out = b.finish()?;
    dce(&mut out);
    Ok(out)
}

struct Dropping<'f> {
    rule: &'f Function,
    zero: &'f dyn Fn(Value) -> bool,
}

impl Dropping<'_> {
    /// Has the values that are zero stand for literals.
    fn clear(&mut self, copier: &mut Copier<'_>, b: &mut Builder, values: &[Value]) {
        for &v in values.iter().filter(|v| (self.zero)(**v)) {
            let ty = self.rule.ty(v);
            let literal = b.literal(ty, Literal::zero(ty.dtype));
            copier.set(v, literal);
        }
    }

    /// Copies an instruction, and those in its regions, which may read parameters that are zero.
    fn inst(
        &mut self,
        copier: &mut Copier<'_>,
        b: &mut Builder,
        i: Inst,
    ) -> Result<(), Diagnostic> {
        self.clear(copier, b, self.rule.args(i));
        copier.inst_with(b, i, &mut |copier, b, j| self.inst(copier, b, j))?;
        Ok(())
    }
}
