//! Sums of products in Einstein's notation, as contractions.

use super::{Tensor, Tracer, own_all};
use crate::ir::{DType, Dim, Kind, TensorType};
use std::collections::BTreeMap;
use std::panic::Location;

/// The letters of the axes of the operands, and of the result. Axes of `...` have letters of no alphabet.
struct Equation {
    operands: Vec<Vec<char>>,
    result: Vec<char>,
}

/// The letter of axis `k`, of `most`, of the longest ellipsis.
fn of_ellipsis(k: usize, most: usize) -> Vec<char> {
    (most - k..most).filter_map(|k| char::from_u32(0xE000 + k as u32)).collect()
}

/// The letters of one operand, with this many axes for `...`.
fn letters(text: &str, ellipsis: usize, most: usize) -> Result<Vec<char>, String> {
    let (before, after) = match text.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    };
    let mut out: Vec<char> = before.chars().collect();
    if let Some(after) = after {
        out.extend(of_ellipsis(ellipsis, most));
        out.extend(after.chars());
    }
    let wrong = |c: &&char| !c.is_alphabetic() && !('\u{E000}'..='\u{F8FF}').contains(*c);
    match out.iter().find(wrong) {
        Some(c) => Err(format!("{c:?} is no letter of an axis")),
        None => Ok(out),
    }
}

impl Equation {
    fn parse(text: &str, types: &[TensorType]) -> Result<Equation, String> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let parts: Vec<&str> = left.split(',').collect();
        if parts.len() != types.len() {
            return Err(format!(
                "the text has {} operands, there are {}",
                parts.len(),
                types.len()
            ));
        }
        let mut open = Vec::new();
        for (part, ty) in parts.iter().zip(types) {
            let named = part.replacen("...", "", 1).chars().count();
            match ty.rank().checked_sub(named) {
                Some(0) => open.push(0),
                Some(n) if part.contains("...") => open.push(n),
                _ => return Err(format!("{part:?} does not name the {} axes of {ty}", ty.rank())),
            }
        }
        let most = open.iter().copied().max().unwrap_or(0);
        let mut operands = Vec::new();
        for (part, &n) in parts.iter().zip(&open) {
            operands.push(letters(part, n, most)?);
        }
        let result = match right {
            Some(right) => letters(right, most, most)?,
            None => {
                // NumPy's rule: what an ellipsis stands for, then letters that stand once, in order.
                let mut seen: BTreeMap<char, usize> = BTreeMap::new();
                operands.iter().flatten().for_each(|&c| *seen.entry(c).or_default() += 1);
                let once =
                    seen.iter().filter(|&(c, &n)| n == 1 && *c < '\u{E000}').map(|(&c, _)| c);
                of_ellipsis(most, most).into_iter().chain(once).collect()
            }
        };
        for (k, c) in result.iter().enumerate() {
            if result[..k].contains(c) {
                return Err(format!("the result has {c:?} twice"));
            }
            if !operands.iter().any(|o| o.contains(c)) {
                return Err(format!("no operand has the axis {c:?} of the result"));
            }
        }
        Ok(Equation { operands, result })
    }

    /// A letter that stands for two extents.
    fn mismatch(&self, types: &[TensorType]) -> Option<String> {
        let mut extents: BTreeMap<char, Dim> = BTreeMap::new();
        for (letters, ty) in self.operands.iter().zip(types) {
            for (&c, &n) in letters.iter().zip(&ty.shape) {
                let known = *extents.entry(c).or_insert(n);
                if known != n {
                    let axis = if c < '\u{E000}' {
                        format!("axis {c:?}")
                    } else {
                        "an axis of `...`".into()
                    };
                    return Some(format!("{axis} has the extents {known} and {n}"));
                }
            }
        }
        None
    }
}

/// A tensor whose axes have letters.
struct Lettered {
    x: Tensor,
    axes: Vec<char>,
}

impl Lettered {
    fn place(&self, c: char) -> Option<usize> {
        self.axes.iter().position(|&a| a == c)
    }

    /// Axes of one letter become one: elements off the diagonal have no part in the sum.
    #[track_caller]
    fn diagonal(mut self) -> Lettered {
        let mut k = 0;
        while k < self.axes.len() {
            let Some(first) = self.place(self.axes[k]).filter(|&first| first < k) else {
                k += 1;
                continue;
            };
            let t = self.x.tracer();
            let places = self.x.ty.with_dtype(DType::I64);
            let on = t.iota(places.clone(), first).eq(t.iota(places, k));
            self.x = on.select(&self.x, self.x.zeros_like()).sum(k);
            self.axes.remove(k);
        }
        self
    }

    /// Sums over the axes that nothing else has.
    #[track_caller]
    fn reduced(mut self, wanted: impl Fn(char) -> bool) -> Lettered {
        let gone: Vec<usize> = (0..self.axes.len()).filter(|&k| !wanted(self.axes[k])).collect();
        if !gone.is_empty() {
            self.x = self.x.sum(&gone);
            self.axes.retain(|&c| wanted(c));
        }
        self
    }

    /// The product, summed over shared axes but those that are `wanted` later.
    #[track_caller]
    fn product(self, other: Lettered, wanted: impl Fn(char) -> bool) -> Lettered {
        let (mut batch, mut contract) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let (mut shared, mut free) = (Vec::new(), Vec::new());
        for (k, &c) in self.axes.iter().enumerate() {
            match other.place(c) {
                Some(at) => {
                    let pairs = if wanted(c) { &mut batch } else { &mut contract };
                    pairs.0.push(k as i64);
                    pairs.1.push(at as i64);
                    if wanted(c) {
                        shared.push(c);
                    }
                }
                None => free.push(c),
            }
        }
        free.extend(other.axes.iter().filter(|&&c| self.place(c).is_none()));
        let x = self.x.dot_general(&other.x, (&batch.0, &batch.1), (&contract.0, &contract.1));
        Lettered { x, axes: [shared, free].concat() }
    }
}

impl Tracer {
    /// The sum of products that a text in Einstein's notation says, as NumPy's `einsum`: a letter for each axis, `...`
    /// for axes without letters, a diagonal where an operand has a letter twice, and sums over the letters that the
    /// result does not have. Operands are combined from left to right.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let (a, b) = (t.constant([[1.0, 2.0], [3.0, 4.0]]), t.constant([1.0, 10.0]));
    ///     t.einsum("ij,j->i", &[&a, &b])
    /// })?;
    /// assert_eq!(y.to_f64s(), [21.0, 43.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn einsum(&self, equation: &str, operands: &[&Tensor]) -> Tensor {
        let place = Location::caller();
        let stand_in = |t: &Tracer| match operands.first() {
            Some(x) => (*x).clone(),
            None => t.zeros(TensorType::scalar(DType::F32)),
        };
        if !own_all(&self.state, operands, place, "`einsum`") {
            return stand_in(self);
        }
        let types: Vec<TensorType> = operands.iter().map(|x| x.ty()).collect();
        let parsed = Equation::parse(equation, &types)
            .and_then(|e| e.mismatch(&types).map_or(Ok(()), Err).map(|()| e));
        let e = match parsed {
            Ok(e) if !operands.is_empty() => e,
            Ok(_) => return stand_in(self),
            Err(m) => {
                self.fail(place, Kind::Shape, format!("`einsum` of {equation:?}: {m}"));
                return stand_in(self);
            }
        };
        let mut product: Option<Lettered> = None;
        for (k, axes) in e.operands.iter().enumerate() {
            let in_others =
                |c: char| e.operands.iter().enumerate().any(|(j, o)| j != k && o.contains(&c));
            let later = |c: char| {
                e.result.contains(&c) || e.operands[k + 1..].iter().any(|o| o.contains(&c))
            };
            let next = Lettered { x: operands[k].clone(), axes: axes.clone() }.diagonal();
            let next = next.reduced(|c| e.result.contains(&c) || in_others(c));
            product = Some(match product {
                Some(before) => before.product(next, later),
                None => next,
            });
        }
        let Some(product) = product else { return stand_in(self) };
        let perm: Vec<usize> = e.result.iter().filter_map(|&c| product.place(c)).collect();
        if perm.iter().copied().eq(0..perm.len()) { product.x } else { product.x.transpose(&perm) }
    }
}
