//! Signatures of kernels: the types of operands with named extents, and the type of the result.

use super::extent_expr::{ExtentExpr, NamedExtents};
use adfuse_ir::{DType, Symbol, TensorType};
use std::fmt;

/// `(f32[n, m], f32[m]) -> f32[n]`: what a kernel takes and gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KernelSignature {
    pub(crate) operands: Vec<ExtentPattern>,
    pub(crate) result: ExtentPattern,
}

/// A type whose extents are numbers or names, or, for results, expressions of these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExtentPattern {
    dtype: DType,
    dims: Vec<ExtentExpr>,
}

impl KernelSignature {
    /// Reads a signature; what is wrong with it otherwise, and at which byte.
    pub(crate) fn parse(text: &str) -> Result<KernelSignature, (usize, String)> {
        let place = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
        let form = || (0, "expected a signature such as `(f32[n], f32[n]) -> f32[n]`".to_owned());
        let (left, right) = text.split_once("->").ok_or_else(form)?;
        let inner = left.trim().strip_prefix('(').and_then(|t| t.strip_suffix(')'));
        let inner = inner.ok_or_else(form)?;
        let mut operands = Vec::new();
        if !inner.trim().is_empty() {
            for part in at_top_level(inner) {
                operands.push(pattern(part, place(part))?);
            }
        }
        let result = pattern(right, place(right))?;
        let is_plain = |dim: &ExtentExpr| !matches!(dim, ExtentExpr::Binary(..));
        if let Some(dim) = operands.iter().flat_map(|p| &p.dims).find(|dim| !is_plain(dim)) {
            let m = format!("an operand's extent is a number or a name, not `{dim}`");
            return Err((place(inner), m));
        }
        let signature = KernelSignature { operands, result };
        let known = signature.names();
        let mut unknown = None;
        for dim in &signature.result.dims {
            dim.names(&mut |name| {
                if !known.iter().any(|k| k == name) {
                    unknown = Some(name.to_owned());
                }
            });
        }
        match unknown {
            Some(name) => Err((place(right), format!("no operand has an extent `{name}`"))),
            None => Ok(signature),
        }
    }

    /// The names of extents.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut all = Vec::new();
        for dim in self.operands.iter().flat_map(|p| &p.dims) {
            dim.names(&mut |name| all.push(name.to_owned()));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The extents by name, where operands have these types; `None` where they do not fit.
    pub(crate) fn extents(&self, types: &[TensorType]) -> Option<NamedExtents> {
        let mut found = NamedExtents::new();
        if types.len() != self.operands.len() {
            return None;
        }
        for (pattern, ty) in self.operands.iter().zip(types) {
            let dims = ty.dims()?;
            if ty.dtype != pattern.dtype || dims.len() != pattern.dims.len() {
                return None;
            }
            for (dim, &n) in pattern.dims.iter().zip(dims.iter()) {
                let fits = match dim {
                    ExtentExpr::Name(name) => *found.entry(name.clone()).or_insert(n) == n,
                    dim => dim.value(&found) == Ok(n),
                };
                if !fits {
                    return None;
                }
            }
        }
        Some(found)
    }

    /// The type of the result for these extents; what is wrong otherwise.
    pub(crate) fn result(&self, of: &NamedExtents) -> Result<TensorType, String> {
        let dims = self.result.dims.iter().map(|dim| dim.value(of));
        Ok(TensorType::of(self.result.dtype, &dims.collect::<Result<Vec<u64>, String>>()?))
    }
}

impl ExtentPattern {
    /// The type of the elements.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }
}

impl fmt::Display for KernelSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands: Vec<String> = self.operands.iter().map(ToString::to_string).collect();
        write!(f, "({}) -> {}", operands.join(", "), self.result)
    }
}

impl fmt::Display for ExtentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(ToString::to_string).collect();
        write!(f, "{}[{}]", self.dtype, dims.join(", "))
    }
}

/// Parts between commas that stand in no brackets.
fn at_top_level(text: &str) -> Vec<&str> {
    let (mut parts, mut deep, mut from) = (Vec::new(), 0i32, 0);
    for (k, c) in text.char_indices() {
        match c {
            '[' | '(' => deep += 1,
            ']' | ')' => deep -= 1,
            ',' if deep == 0 => {
                parts.push(&text[from..k]);
                from = k + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// A type that begins at this byte of the signature.
fn pattern(text: &str, at: usize) -> Result<ExtentPattern, (usize, String)> {
    let trimmed = text.trim();
    let at = at + (text.len() - text.trim_start().len());
    let form = || (at, format!("`{trimmed}` is no type such as `f32[n, 4]`"));
    let (dtype, rest) = trimmed.split_once('[').ok_or_else(form)?;
    let inner = rest.strip_suffix(']').ok_or_else(form)?;
    let dtype: DType = dtype.trim().parse().map_err(|_| form())?;
    if dtype == DType::Token {
        return Err((at, "a token is no tensor".into()));
    }
    let mut dims = Vec::new();
    if !inner.trim().is_empty() {
        for part in at_top_level(inner) {
            let place = at + (part.as_ptr() as usize - trimmed.as_ptr() as usize);
            let dim = ExtentExpr::parse(part).map_err(|e| (place + e.at, e.message))?;
            if let ExtentExpr::Name(name) = &dim
                && Symbol::new(name).is_none()
            {
                return Err((place, format!("`{name}` is longer than 15 letters")));
            }
            dims.push(dim);
        }
    }
    Ok(ExtentPattern { dtype, dims })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_bind_extents_to_the_types_of_operands() {
        let s = KernelSignature::parse("(f32[n, m], i32[m],f32[]) -> bf16[n + 1, 2*m]");
        let s = s.expect("reads");
        assert_eq!(s.to_string(), "(f32[n, m], i32[m], f32[]) -> bf16[n + 1, 2 * m]");
        assert_eq!(KernelSignature::parse(&s.to_string()), Ok(s.clone()));
        let types = |n: u64, m: u64, k: u64| {
            let of = TensorType::of;
            [of(DType::F32, &[n, m]), of(DType::I32, &[k]), of(DType::F32, &[])]
        };
        let extents = s.extents(&types(3, 5, 5)).expect("fits");
        assert_eq!(s.result(&extents), Ok(TensorType::of(DType::BF16, &[4, 10])));
        assert_eq!(s.extents(&types(3, 5, 6)), None);
        assert_eq!(s.extents(&types(3, 5, 5)[..2]), None);
        let fixed = KernelSignature::parse("(f32[128]) -> f32[]").expect("reads");
        assert!(fixed.extents(&[TensorType::of(DType::F32, &[128])]).is_some());
        assert!(fixed.extents(&[TensorType::of(DType::F32, &[64])]).is_none());
        assert!(KernelSignature::parse("() -> f32[8]").expect("reads").operands.is_empty());
    }

    #[test]
    fn what_is_no_signature_is_refused_at_its_place() {
        for (text, at, message) in [
            ("f32[n]", 0, "expected a signature"),
            ("f32[n] -> f32[n]", 0, "expected a signature"),
            ("(f32[n], f23[n]) -> f32[n]", 9, "`f23[n]` is no type"),
            ("(f32[n) -> f32[n]", 1, "is no type"),
            ("(f32[n + 1]) -> f32[n]", 1, "an operand's extent is a number or a name"),
            ("(f32[n]) -> f32[m]", 11, "no operand has an extent `m`"),
            ("(f32[n]) -> f32[n +]", 19, "expected a number"),
            ("(token[]) -> f32[]", 1, "a token is no tensor"),
        ] {
            let (found, told) = KernelSignature::parse(text).expect_err(text);
            assert!(found == at && told.contains(message), "{text}: {found}: {told}");
        }
    }
}
