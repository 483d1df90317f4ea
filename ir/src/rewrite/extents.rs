//! The extents that arguments give a function's symbols, and the function at these extents.

use super::specialize;
use crate::arguments::{miscounted, misfit};
use crate::diag::{At, Diagnostic, Kind, instead};
use crate::dtype::DType;
use crate::entity::Value;
use crate::function::Function;
use crate::text::Names;
use crate::types::{Dim, Symbol, TensorType};
use std::collections::BTreeMap;

/// An extent for each symbol of a function, with what gave it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BoundExtents {
    extents: BTreeMap<Symbol, (u64, Origin)>,
}

/// What gave a symbol its extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// The caller, by the symbol's name.
    Name,
    /// The argument for a parameter.
    Argument(Value),
}

impl BoundExtents {
    /// The extents that a caller names, such as `[("B", 64)]`.
    ///
    /// # Errors
    /// [`Kind::UnknownName`] for a symbol that the function does not have, and [`Kind::Usage`] for one that is
    /// named twice.
    pub fn named(f: &Function, given: &[(&str, u64)]) -> Result<BoundExtents, Diagnostic> {
        let mut bound = BoundExtents::default();
        for &(name, extent) in given {
            let Some(&symbol) = f.symbols.iter().find(|s| s.as_str() == name) else {
                let known: Vec<&str> = f.symbols.iter().map(Symbol::as_str).collect();
                let d = fault(f, Kind::UnknownName, format!("it has no symbol `{name}`"));
                let hint = instead(name, &known, "").or(Some("it has no symbols".into()));
                return Err(Diagnostic { hint, ..d });
            };
            if bound.extents.insert(symbol, (extent, Origin::Name)).is_some() {
                let m = format!("the symbol `{name}` is given twice");
                return Err(fault(f, Kind::Usage, m));
            }
        }
        Ok(bound)
    }

    /// With the extents that arguments of these types give. Parameters that are tokens take no argument.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the arguments do not have the parameters' types, or two of them give a symbol
    /// different extents.
    pub fn with(mut self, f: &Function, args: &[TensorType]) -> Result<BoundExtents, Diagnostic> {
        let takes = |&&p: &&Value| f.ty(p).dtype != DType::Token;
        let params: Vec<Value> = f.params().iter().filter(takes).copied().collect();
        let signature = || signature(f, &params);
        if params.len() != args.len() {
            return Err(miscounted(&f.name, &signature(), args.len()));
        }
        let wrong = |p: Value, arg: &TensorType| {
            misfit(&f.name, (&Names::of(f).get(p), f.ty(p)), arg, &signature())
        };
        for (&p, arg) in params.iter().zip(args) {
            let ty = f.ty(p);
            if ty.dtype != arg.dtype || ty.rank() != arg.rank() {
                return Err(wrong(p, arg));
            }
            for (&due, &found) in ty.shape.iter().zip(&arg.shape) {
                let found = found.known().ok_or_else(|| wrong(p, arg))?;
                match due {
                    Dim::Const(n) if n == found => {}
                    Dim::Const(_) => return Err(wrong(p, arg)),
                    Dim::Sym(s) => {
                        let entry = self.extents.entry(s);
                        let &mut (before, origin) = entry.or_insert((found, Origin::Argument(p)));
                        if before != found {
                            let before = told(f, s, before, origin);
                            return Err(wrong(p, arg).hint(format!("{before}, and {found} here")));
                        }
                    }
                }
            }
        }
        Ok(self)
    }

    /// The extents of all symbols of the function, in their order.
    ///
    /// # Errors
    /// [`Kind::Usage`] when a symbol has none.
    pub fn all(&self, f: &Function) -> Result<Vec<u64>, Diagnostic> {
        let of = |s: &Symbol| match self.extents.get(s) {
            Some(&(extent, _)) => Ok(extent),
            None => {
                let m = format!("no parameter gives `{s:?}` an extent");
                Err(fault(f, Kind::Usage, m))
            }
        };
        f.symbols.iter().map(of).collect()
    }

    /// The function at these extents; symbols without one stay.
    ///
    /// # Errors
    /// As [`specialize`], with what gave the symbols their extents.
    pub fn specialize(&self, f: &Function) -> Result<Function, Diagnostic> {
        let extents = self.extents.iter().map(|(&s, &(extent, _))| (s, extent)).collect();
        specialize(f, &extents).map_err(|mut errors| self.blamed(f, errors.swap_remove(0)))
    }

    /// The error of a function at these extents, with what gave the symbols their extents.
    pub fn blamed(&self, f: &Function, d: Diagnostic) -> Diagnostic {
        let tell = |(&s, &(extent, origin)): (&Symbol, &(u64, Origin))| told(f, s, extent, origin);
        let by: Vec<String> = self.extents.iter().map(tell).collect();
        let hint = d.hint.iter().cloned().chain(by).collect::<Vec<_>>().join(", ");
        Diagnostic { hint: (!hint.is_empty()).then_some(hint), ..d }
    }
}

fn fault(f: &Function, kind: Kind, message: String) -> Diagnostic {
    Diagnostic::new(At { func: Some(f.name.clone()), ..At::default() }, kind, message)
}

/// `n is 3 by %x`.
fn told(f: &Function, s: Symbol, extent: u64, origin: Origin) -> String {
    match origin {
        Origin::Name => format!("{s:?} is {extent} as given"),
        Origin::Argument(p) => format!("{s:?} is {extent} by %{}", Names::of(f).get(p)),
    }
}

/// The names and types of parameters.
fn signature(f: &Function, params: &[Value]) -> Vec<(String, TensorType)> {
    let names = Names::of(f);
    params.iter().map(|&p| (names.get(p), f.ty(p).clone())).collect()
}
