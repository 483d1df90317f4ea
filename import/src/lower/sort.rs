//! Sorting: the comparator is read as an order by keys, each a function of an element of one operand.

use super::attributes::{find, need_number, number};
use super::bits::total_order;
use super::context::{LoweredValues, ModuleLowering, Val, Vals, written_type};
use super::elementwise::direction;
use crate::emit::element::ElementType;
use crate::emit::integers::ordered;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction, RegionTree};
use adfuse_ir::{Attr as IrAttr, Attrs, Op};
use smallvec::smallvec;
use std::cell::Cell;
use std::collections::BTreeMap;

/// One key of a lexicographic order.
struct SortKey<'t> {
    /// The value in the comparator that is the key of the first element.
    name: &'t str,
    descending: bool,
    /// Whether zeros differ by sign.
    total: bool,
}

/// A comparator: its instructions by the names of their results, and its parameters by name.
struct Comparator<'t> {
    defs: BTreeMap<&'t str, &'t Instruction<'t>>,
    params: BTreeMap<&'t str, usize>,
    /// Comparisons that are left: what is shared in a comparator is compared each time that it is met.
    steps: Cell<usize>,
}

/// Most keys, and most levels of what is compared.
const MOST_KEYS: usize = 16;
const MOST_LEVELS: usize = 32;
const MOST_STEPS: usize = 10_000;

impl<'t> Comparator<'t> {
    fn of(region: &'t RegionTree<'t>) -> Comparator<'t> {
        let defs =
            region.insts.iter().filter_map(|i| i.results.first().map(|r| (r.0, i))).collect();
        let params = region.params.iter().enumerate().map(|(k, p)| (p.name, k)).collect();
        Comparator { defs, params, steps: Cell::new(MOST_STEPS) }
    }

    fn inst(&self, name: &str, op: &str) -> Option<&'t Instruction<'t>> {
        self.defs.get(name).copied().filter(|i| i.op == op)
    }

    fn args(inst: &Instruction<'t>) -> Vec<&'t str> {
        inst.operands.iter().map(|o| o.name).collect()
    }

    /// Takes one of the steps that are left.
    fn step(&self) -> bool {
        let left = self.steps.get();
        self.steps.set(left.saturating_sub(1));
        left > 0
    }

    /// Whether `b` is `a` with the parameters of the two elements exchanged.
    fn mirrored(&self, a: &str, b: &str, levels: usize) -> bool {
        if let (Some(i), Some(j)) = (self.params.get(a), self.params.get(b)) {
            return i ^ 1 == *j;
        }
        let (Some(x), Some(y)) = (self.defs.get(a), self.defs.get(b)) else {
            return a == b && !self.params.contains_key(a) && !self.defs.contains_key(a);
        };
        let (xs, ys) = (Comparator::args(x), Comparator::args(y));
        levels > 0
            && self.step()
            && x.op == y.op
            && x.words == y.words
            && x.attrs == y.attrs
            && x.types == y.types
            && x.symbol == y.symbol
            && x.regions.is_empty()
            && xs.len() == ys.len()
            && xs.iter().zip(&ys).all(|(a, b)| self.mirrored(a, b, levels - 1))
    }

    /// Whether a value reads parameters of the first element (0) or of the second (1) alone.
    fn side(&self, name: &str, levels: usize) -> Option<usize> {
        if let Some(k) = self.params.get(name) {
            return Some(k % 2);
        }
        let inst = self.defs.get(name).filter(|_| levels > 0 && self.step())?;
        let mut sides = Comparator::args(inst).into_iter().filter_map(|a| self.side(a, levels - 1));
        let first = sides.next()?;
        sides.all(|s| s == first).then_some(first)
    }

    /// The key that `lt` compares.
    fn key(&self, compare: &Instruction<'t>) -> Option<SortKey<'t>> {
        let (op, total) = direction(compare).ok()?;
        let args: [&'t str; 2] = Comparator::args(compare).try_into().ok()?;
        if !self.mirrored(args[0], args[1], MOST_LEVELS) {
            return None;
        }
        let side = self.side(args[0], MOST_LEVELS)?;
        let descending = match op {
            Op::Lt => side == 1,
            Op::Gt => side == 0,
            _ => return None,
        };
        let name = args[side];
        let plain = self.canonical(name);
        Some(SortKey { name: plain.unwrap_or(name), descending, total: total && plain.is_none() })
    }

    /// The parameter behind `x != x ? NaN : x == 0 ? 0 : x`, which is what the order of the IR makes of it.
    fn canonical(&self, name: &str) -> Option<&'t str> {
        let outer = self.inst(name, "stablehlo.select")?;
        let [test, _, rest] = Comparator::args(outer)[..] else { return None };
        let inner = self.inst(rest, "stablehlo.select")?;
        let [zero, _, x] = Comparator::args(inner)[..] else { return None };
        let (test, zero) =
            (self.inst(test, "stablehlo.compare")?, self.inst(zero, "stablehlo.compare")?);
        let is_nan = Comparator::args(test) == [x, x] && direction(test).ok()?.0 == Op::Ne;
        let is_zero =
            Comparator::args(zero).first() == Some(&x) && direction(zero).ok()?.0 == Op::Eq;
        let values = [Comparator::args(outer)[1], Comparator::args(inner)[1]];
        let constant = values.iter().all(|v| self.inst(v, "stablehlo.constant").is_some());
        (is_nan && is_zero && constant && self.params.contains_key(x)).then_some(x)
    }

    /// The keys of `lt`, or of `lt(a) | (eq(a) & rest)`.
    fn keys(&self, name: &str) -> Option<Vec<SortKey<'t>>> {
        let (mut name, mut keys) = (name.to_string(), Vec::new());
        while keys.len() < MOST_KEYS {
            if let Some(compare) = self.inst(&name, "stablehlo.compare") {
                keys.push(self.key(compare)?);
                return Some(keys);
            }
            let either = self.inst(&name, "stablehlo.or")?;
            let [first, both] = Comparator::args(either)[..] else { return None };
            let both = self.inst(both, "stablehlo.and")?;
            let [same, rest] = Comparator::args(both)[..] else { return None };
            let (less, same) =
                (self.inst(first, "stablehlo.compare")?, self.inst(same, "stablehlo.compare")?);
            if direction(same).ok()?.0 != Op::Eq || Comparator::args(same) != Comparator::args(less)
            {
                return None;
            }
            keys.push(self.key(less)?);
            name = rest.to_string();
        }
        None
    }
}

pub(crate) fn sort<'t>(cx: &mut ModuleLowering<'t>, inst: &'t Instruction<'t>) -> LoweredValues {
    let xs = cx.operands(inst)?;
    let ([region], Some(&x)) = (&inst.regions[..], xs.first()) else {
        return refuse("no operands, or no comparator");
    };
    let rank = cx.b.ty(x.value).rank() as i64;
    let axis = find(inst, &["dimension"]).map_or(Ok(-1), number)?;
    let axis = if axis < 0 { axis + rank } else { axis };
    if region.params.len() != 2 * xs.len() {
        return refuse("a comparator of other than two elements of each operand");
    }
    let comparator = Comparator::of(region);
    let returned = region.insts.last().and_then(|r| r.operands.first());
    let Some(keys) = returned.and_then(|r| comparator.keys(r.name)) else {
        return refuse("a comparator that is no order by keys");
    };
    let mut values: Vec<Val> = Vec::new();
    for key in &keys {
        let v = match comparator.params.get(key.name) {
            Some(k) => xs[k / 2],
            None => computed(cx, region, &xs, key.name)?,
        };
        let v = if key.total && v.element.is_float() { total_order(cx, v)? } else { v };
        let value = cx.b.materialize(v.value);
        values.push(Val { value: ordered(cx, v.element, value)?, ..v });
    }
    if let ([key], [value], [only]) = (&keys[..], &values[..], &xs[..])
        && value.value == only.value
    {
        let value = cx.emit(Op::Sort, &[value.value], order(axis, key))?;
        return Ok(smallvec![Val { value, ..*only }]);
    }
    let mut moved: Vec<Val> = xs.clone();
    // Sorting keeps the order of equal elements: so the last key goes first.
    while let (Some(key), Some(by)) = (keys.get(values.len().wrapping_sub(1)), values.pop()) {
        for v in moved.iter_mut().chain(&mut values) {
            let full = cx.b.materialize(v.value);
            v.value =
                cx.emit_all(Op::SortKeyVal, &[by.value, full], order(axis, key), None, &[])?[1];
        }
    }
    Ok(moved.into_iter().collect())
}

fn order(axis: i64, key: &SortKey<'_>) -> Attrs {
    Attrs::none().with_int("axis", axis).with("descending", IrAttr::Bool(key.descending))
}

/// A key that the comparator computes, of all elements.
fn computed<'t>(
    cx: &mut ModuleLowering<'t>,
    region: &'t RegionTree<'t>,
    xs: &[Val],
    name: &str,
) -> Result<Val, Unlowered> {
    let pairs: Vec<Val> = xs.iter().flat_map(|&x| [x, x]).collect();
    cx.element(region, &pairs, name)
}

/// The largest elements along the last axis, and their places.
pub(crate) fn top_k(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let k = need_number(inst, &["k"])?;
    if inst.attr("largest").and_then(Attribute::word) == Some("false") {
        return refuse("the smallest elements");
    }
    let x = cx.operand(inst, 0)?;
    let full = cx.b.materialize(x.value);
    let full = ordered(cx, x.element, full)?;
    let found = cx.emit_all(Op::TopK, &[full], Attrs::none().with_int("k", k), None, &[])?;
    let value = ordered(cx, x.element, found[0])?;
    let element = cx.element_of(written_type(inst, 1)?)?;
    let places = Val { element: ElementType::I32, value: found[1] };
    let places = super::elementwise::convert_to(cx, places, element)?;
    Ok(Vals::from_iter([Val { value, ..x }, places]))
}
