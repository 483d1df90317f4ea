//! Replacing instructions of a function by others.

use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Diagnostic, Function, Inst};

/// The function with instructions replaced: those that `wanted` finds something of, by what `make`
/// writes and sets instead of their results.
pub(crate) fn replaced<T>(
    f: &Function,
    wanted: impl Fn(Inst) -> Option<T>,
    mut make: impl FnMut(&mut Builder, &mut Copier<'_>, Inst, T),
) -> Result<Function, Diagnostic> {
    let found: Vec<Option<T>> = f.body_insts().iter().map(|&i| wanted(i)).collect();
    if found.iter().all(Option::is_none) {
        return Ok(f.clone());
    }
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    copier.params(&mut b);
    for (&i, found) in f.body_insts().iter().zip(found) {
        let Some(found) = found else {
            copier.inst(&mut b, i);
            continue;
        };
        b.set_phase(f.inst(i).phase);
        b.set_span(f.span(i));
        make(&mut b, &mut copier, i, found);
    }
    let results: Vec<_> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    b.finish()
}
