//! Sorting against its definition: an element's place is the number of those before it in order.

use super::cases::arguments;
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Literal};
use adfuse::sample::rng;

/// Whether an element is before another of the same line.
fn before(a: Literal, b: Literal, descending: bool) -> bool {
    let less = |a: Literal, b: Literal| match a.dtype().is_float() {
        true => a.to_f64() < b.to_f64() || b.to_f64().is_nan() && !a.to_f64().is_nan(),
        false => a.to_i64() < b.to_i64(),
    };
    if descending { less(b, a) } else { less(a, b) }
}

/// What sorting along an axis gives, in numbers of elements: O(n^2).
fn defined(x: &Array, axis: usize, descending: bool) -> Vec<u64> {
    let n = x.dims()[axis] as usize;
    let inner: usize = x.dims()[axis + 1..].iter().product::<u64>() as usize;
    let mut places = vec![u64::MAX; x.len()];
    for at in 0..x.len() {
        let (line, mine) = (at - at / inner % n * inner, at / inner % n);
        let is_before = |&k: &usize| {
            let (other, this) = (x.get(line + k * inner), x.get(at));
            before(other, this, descending) || !before(this, other, descending) && k < mine
        };
        let place = (0..n).filter(is_before).count();
        places[line + place * inner] = mine as u64;
    }
    places
}

#[test]
fn orders_are_as_defined() {
    let mut checks = 0;
    for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Token) {
        for axis in 0..3 {
            for descending in [false, true] {
                let k = 2;
                let source = format!(
                    "func @f(%x: {dtype}[4,5,6]) -> (i32[4,5,6], {dtype}[4,5,6], {dtype}[4,5,6], i32[4,5,6], {dtype}[4,5,{k}], i32[4,5,{k}]) {{
                    %p = argsort %x {{axis = {axis}, descending = {descending}}} : i32[4,5,6]
                    %s = sort %x {{axis = {axis}, descending = {descending}}} : {dtype}[4,5,6]
                    %i = iota {{axis = {axis}}} : i32[4,5,6]
                    %k, %v = sort_key_val %x, %i {{axis = {axis}, descending = {descending}}} : {dtype}[4,5,6], i32[4,5,6]
                    %t, %u = top_k %x {{k = {k}}} : {dtype}[4,5,{k}], i32[4,5,{k}]
                    return %p, %s, %k, %v, %t, %u }}"
                );
                let module = parse(&source).unwrap_or_else(|e| panic!("{e:#?}"));
                let f = module.funcs.values().next().expect("a function");
                // Few numbers, so that many are equal.
                let x =
                    arguments(f, &[Domain::Ints(-2, 3)], &mut rng(axis as u64, 1)).swap_remove(0);
                let special = [f64::NAN, -0.0, 0.0, f64::NEG_INFINITY, f64::INFINITY, f64::NAN];
                let bits: Vec<u64> = (x.iter().enumerate())
                    .map(|(k, l)| match dtype.is_float() && k % 3 == 0 {
                        true => Literal::from_f64(dtype, special[k / 3 % 6]).bits(),
                        false => l.bits(),
                    })
                    .collect();
                let x = Array::from_bits(dtype, &[4, 5, 6], &bits).expect("small");
                let out = run(&module, f, std::slice::from_ref(&x), &mut Silent).expect("runs");
                let places = defined(&x, axis, descending);
                let inner: usize = [30, 6, 1][axis];
                let extent = [4, 5, 6][axis];
                for (at, &place) in places.iter().enumerate() {
                    let from = at - at / inner % extent * inner + place as usize * inner;
                    assert_eq!(out[0].get(at).bits(), place, "{source}\n{x:?}");
                    assert_eq!(out[1].get(at), x.get(from), "{source}\n{x:?}");
                    assert_eq!(out[2].get(at), x.get(from), "{source}\n{x:?}");
                    assert_eq!(out[3].get(at).bits(), place, "{source}\n{x:?}");
                    checks += 1;
                }
                let largest = defined(&x, 2, true);
                for at in 0..20 * k {
                    let place = largest[at / k * 6 + at % k];
                    assert_eq!(
                        out[4].get(at),
                        x.get(at / k * 6 + place as usize),
                        "{source}\n{x:?}"
                    );
                    assert_eq!(out[5].get(at).bits(), place, "{source}\n{x:?}");
                }
            }
        }
    }
    assert!(checks > 5000, "{checks} checks");
}
