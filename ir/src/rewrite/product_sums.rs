//! Sums of products of matrices, as one product whose depth has an axis more, which counts the terms.
//!
//! The gradient of what several products read is a sum of products: that of queries, keys and values is three. One after the
//! other they write and read the sum as often; as one product they leave it once.

use super::pattern::{Match, Pattern};
use super::rule::{Exactness, Reads, Rule, RuleTable, Site, When, rewrite};
use crate::attrs::{Attr, Attrs, Ints};
use crate::diag::Diagnostic;
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::op::{Body, Op};
use crate::types::Dim;
use smallvec::SmallVec;

/// One product in place of a sum of products.
pub static PRODUCT_SUMS: RuleTable = RuleTable {
    name: "product sums",
    doc: "Sums of products, after differentiation; not in strict mode, on engines whose products read the operands of each term where they are.",
    reads: Reads::Source,
    regions: false,
    rules: &[Rule {
        name: "sum-of-products",
        doc: "A sum of two to four products of 16-bit floats with equal extents, of each of which one operand is a parameter, and of one other \
              value at most, becomes one product of stacked operands, to which the other value is added; products are rounded once.",
        exactness: Exactness::Real,
        pattern: Pattern::AnyOf(&[Op::Add]),
        then: &When { condition: found, build: ProductSum::joined },
    }],
};

/// The function with one product for sums of products.
///
/// # Errors
/// Only if a rule builds an instruction that does not fit, which is a defect of the rule.
pub fn with_product_sums(f: &Function) -> Result<Function, Diagnostic> {
    Ok(rewrite(f, &PRODUCT_SUMS, Exactness::Real)?.0)
}

/// Terms of a sum at most: what they read is in memory at one time.
const MOST_TERMS: usize = 4;
/// Extents that operands of matrix units have multiples of along the depth, and of an axis of lines that has another around it.
const DEEP: u64 = 64;
const LINES: u64 = 256;
/// Extents of a product below which it is not worth it.
const LEAST: u64 = 64;

/// A sum of products and of one other value at most, such as the gradient that a residual connection hands on.
#[derive(Default)]
struct ProductSum {
    /// The products, from the first to the last.
    terms: SmallVec<[Inst; MOST_TERMS]>,
    other: Option<Value>,
}

fn found(m: &Match<'_>) -> Option<ProductSum> {
    let f = m.f;
    if !m.root.ty.dtype.is_narrow_float() {
        return None;
    }
    let mut sum = ProductSum::default();
    for &v in m.root.args {
        sum.collect(f, v)?;
    }
    let terms = &sum.terms;
    let first = *terms.first()?;
    let alike = |&i: &Inst| {
        let of = |i: Inst| (f.attrs(i).pair("batch"), f.attrs(i).pair("contract"));
        let types = |i: Inst| f.args(i).iter().map(|&v| f.ty(v));
        of(i) == of(first) && types(i).eq(types(first))
    };
    let is_known = |&i: &Inst| f.args(i).iter().any(|&v| is_parameter(f, v));
    let fits = terms.len() >= 2 && terms.iter().all(|i| alike(i) && is_known(i));
    (fits && is_large(f, first)).then_some(sum)
}

/// How often instructions of a function read a value.
pub(super) fn uses(f: &Function, v: Value) -> usize {
    let mut n = f.results().iter().filter(|&&r| r == v).count();
    f.walk(&mut |f, i| n += f.args(i).iter().filter(|&&a| a == v).count());
    n
}

/// Whether a value is a parameter under views and conversions: it is in memory however long a sum waits for its last term.
pub(super) fn is_parameter(f: &Function, v: Value) -> bool {
    let mut v = v;
    loop {
        match f.def(v) {
            ValueDef::Param(..) => return true,
            ValueDef::Inst(i, _)
                if f.args(i).len() == 1
                    && (f.op(i) == Op::ConvertElementType
                        || matches!(f.op(i).def().body, Body::View(_))) =>
            {
                v = f.args(i)[0];
            }
            _ => return false,
        }
    }
}

/// Whether a product has the extents of one for matrix units, whose operands are copied as they lie.
fn is_large(f: &Function, i: Inst) -> bool {
    let (batch, contract) = (f.attrs(i).pair("batch"), f.attrs(i).pair("contract"));
    let side = |k: usize| -> Option<(Vec<u64>, Vec<u64>)> {
        let ty = f.ty(f.args(i)[k]);
        let dims = ty.dims()?;
        let (batch, deep) = [(batch.0, contract.0), (batch.1, contract.1)][k];
        let deep_dims = deep.iter().map(|&a| dims[a as usize]).collect();
        let own = (0..dims.len())
            .filter(|&a| !batch.contains(&(a as i64)) && !deep.contains(&(a as i64)));
        Some((own.map(|a| dims[a]).collect(), deep_dims))
    };
    let (Some((rows, depth)), Some((cols, _))) = (side(0), side(1)) else { return false };
    let narrow = f.args(i).iter().all(|&v| f.ty(v).dtype.is_narrow_float());
    let all = |dims: &[u64]| dims.iter().product::<u64>();
    // Axes inside of others are divided among tiles evenly.
    let inner = |dims: &[u64], by: u64| dims.iter().skip(1).all(|n| n.is_multiple_of(by));
    let large = [&rows, &cols, &depth].into_iter().all(|dims| all(dims) >= LEAST);
    let copied = inner(&depth, DEEP) && all(&depth).is_multiple_of(DEEP) && inner(&rows, LINES);
    narrow && large && copied && cols.len() == 1 && cols[0].is_multiple_of(8) && batch.0.is_empty()
}

impl ProductSum {
    /// Adds the products that a value is the sum of. What is no sum or product, or is read by something else too, is the other value; `None`
    /// where there is one already, or too many products.
    fn collect(&mut self, f: &Function, v: Value) -> Option<()> {
        let made_by = match f.def(v) {
            ValueDef::Inst(i, _) if uses(f, v) == 1 => Some(i),
            _ => None,
        };
        match made_by.map(|i| (i, f.op(i))) {
            Some((i, Op::Add)) => f.args(i).iter().try_for_each(|&v| self.collect(f, v)),
            Some((i, Op::DotGeneral)) => {
                (self.terms.len() < MOST_TERMS).then(|| self.terms.push(i))
            }
            _ => self.other.replace(v).is_none().then_some(()),
        }
    }

    /// The product of the stacked operands, and the other value.
    fn joined(site: &mut Site<'_, '_>, ProductSum { terms, other }: ProductSum) -> Value {
        let f = site.f;
        let stacked = [0, 1].map(|side| {
            let parts: Vec<Value> = terms
                .iter()
                .map(|&i| {
                    let v = site.get(f.args(i)[side]);
                    let mut ty = site.b.ty(v).clone();
                    ty.shape.insert(0, Dim::Const(1));
                    site.b.reshaped(v, &ty)
                })
                .collect();
            let attrs = Attrs::none().with("axis", Attr::Int(0));
            site.b.op_with(Op::Concatenate, &parts, attrs)
        });
        let contract = f.attrs(terms[0]).pair("contract");
        let further =
            |axes: &[i64]| -> Ints { [0].into_iter().chain(axes.iter().map(|a| a + 1)).collect() };
        let contract = Attr::Pair(further(contract.0), further(contract.1));
        let none = Attr::Pair(Ints::new(), Ints::new());
        let attrs = Attrs::none().with("batch", none).with("contract", contract);
        let product = site.b.op_with(Op::DotGeneral, &stacked, attrs);
        match other {
            Some(other) => {
                let other = site.get(other);
                site.b.op(Op::Add, &[other, product])
            }
            None => product,
        }
    }
}
