//! Regions that only some elements of a batch take: the others have no part in derivatives, not in those by what all
//! share either, and no loop inside goes on for them.

use crate::common::batch::stack;
use crate::compose::{evaluate, first, numbers, program};
use adfuse::autodiff::{Batching, Derived, differentiable};
use adfuse::backends::Array;
use adfuse::ir::{DType, Function, TensorType};

/// A function with the parameters that are mapped, and what each is given: by element where it is mapped.
struct LaneCase {
    name: &'static str,
    text: &'static str,
    mapped: &'static [bool],
    given: &'static [&'static [&'static [f64]]],
}

/// A cube root by Newton steps, which do not end for what is no number.
const CUBE_ROOT: &str = "
func @cube_root(%a: f64[]) -> f64[] custom_root(@cube) {
  %x = while 1.0 {max_trips = 100} : f64[] cond(%c: f64[]) {
    %0 = call %c, %a {func = @cube} : f64[] %1 = abs %0 : f64[] %2 = le %1, 1e-13 : bool[] %3 = not %2 : bool[] yield %3
  } body(%c: f64[]) {
    %0 = call %c, %a {func = @cube} : f64[] %1 = square %c : f64[] %2 = mul %1, 3.0 : f64[]
    %3 = div %0, %2 : f64[] %4 = sub %c, %3 : f64[] yield %4
  }
  return %x }
func @cube(%x: f64[], %a: f64[]) -> f64[] {
  %0 = integer_pow %x {y = 3} : f64[] %1 = sub %0, %a : f64[] return %1 }";

const CASES: &[LaneCase] = &[
    LaneCase {
        name: "an infinite derivative of a map",
        text: "func @f(%x: f64[], %w: f64[]) -> f64[] {
          %p = gt %x, 0.0 : bool[]
          %r = cond %p : f64[] then { %0 = mul %x, %w : f64[] %1 = sqrt %0 : f64[] yield %1 } else { yield %w }
          return %r }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[4.0], &[1.0]], &[&[2.25]]],
    },
    LaneCase {
        name: "an infinite derivative that no element takes",
        text: "func @f(%x: f64[], %w: f64[]) -> f64[] {
          %p = gt %x, 0.0 : bool[]
          %r = cond %p : f64[] then { %0 = sqrt %w : f64[] yield %0 } else { yield %x }
          return %r }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[-4.0], &[-1.0]], &[&[0.0]]],
    },
    LaneCase {
        name: "an infinite derivative that one element takes",
        text: "func @f(%x: f64[], %w: f64[]) -> f64[] {
          %p = gt %x, 0.0 : bool[]
          %r = cond %p : f64[] then { %0 = sqrt %w : f64[] yield %0 } else { yield %x }
          return %r }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[4.0], &[-1.0]], &[&[0.0]]],
    },
    LaneCase {
        name: "a product with what is infinite, and its root",
        text: "func @f(%x: f64[2], %w: f64[2,2], %k: f64[]) -> f64[] {
          %p = gt %k, 0.0 : bool[]
          %r = cond %p : f64[] then {
            %0 = div 1.0, %x : f64[2] %1 = dot_general %w, %0 {contract = [1] x [0]} : f64[2]
            %2 = sqrt %1 : f64[2] %3 = reduce_sum %2 {axes = [0]} : f64[] yield %3
          } else { yield %k }
          return %r }",
        mapped: &[true, false, true],
        given: &[&[&[0.0, 0.0], &[1.0, 2.0], &[0.0, 3.0]], &[&[1.0, 2.0, 3.0, 4.0]], &[&[0.0], &[1.0], &[-2.0]]],
    },
    LaneCase {
        name: "a product that is zero under a root",
        text: "func @f(%x: f64[2], %w: f64[2], %k: f64[]) -> f64[] {
          %p = gt %k, 0.0 : bool[]
          %r = cond %p : f64[] then {
            %0 = dot_general %x, %w {contract = [0] x [0]} : f64[] %1 = sqrt %0 : f64[] yield %1
          } else { yield %k }
          return %r }",
        mapped: &[true, false, true],
        given: &[&[&[0.0, 0.0], &[1.0, 2.0], &[0.0, 3.0]], &[&[1.0, 2.0]], &[&[0.0], &[1.0], &[2.0]]],
    },
    LaneCase {
        name: "an element of a shared table",
        text: "func @f(%i: i32[], %w: f64[3]) -> f64[] {
          %p = gt %i, 0 : bool[]
          %r = cond %p : f64[] then {
            %0 = dynamic_slice %w, %i {sizes = [1]} : f64[1] %1 = sqrt %0 : f64[1] %2 = reshape %1 : f64[] yield %2
          } else { yield 1.0 }
          return %r }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[2.0], &[1.0]], &[&[0.0, 2.25, 4.0]]],
    },
    LaneCase {
        name: "a padding value that all share",
        text: "func @f(%x: f64[1], %w: f64[]) -> f64[] {
          %s = reshape %x : f64[] %p = gt %s, 0.0 : bool[]
          %r = cond %p : f64[] then {
            %0 = pad %x, %w {low = [1], high = [0], interior = [0]} : f64[2] %b = broadcast_in_dim %s {dims = []} : f64[2]
            %m = mul %0, %b : f64[2] %1 = sqrt %m : f64[2] %2 = reduce_sum %1 {axes = [0]} : f64[] yield %2
          } else { yield %s }
          return %r }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[2.0], &[4.0]], &[&[2.25]]],
    },
    LaneCase {
        name: "numbers of steps",
        text: "func @f(%n: i32[], %x: f64[], %w: f64[]) -> f64[] {
          %r = fori 0, %n, %w : f64[] body(%k: i32[], %c: f64[]) {
            %0 = mul %x, %w : f64[] %1 = sqrt %0 : f64[] %2 = add %c, %1 : f64[] yield %2
          }
          return %r }",
        mapped: &[true, true, false],
        given: &[&[&[0.0], &[2.0], &[1.0]], &[&[0.0], &[1.0], &[4.0]], &[&[2.25]]],
    },
    LaneCase {
        name: "branches in branches, by number",
        text: "func @f(%n: i32[], %x: f64[], %w: f64[]) -> f64[] {
          %r = switch %n : f64[] case { yield %w } case {
            %p = gt %x, 0.0 : bool[]
            %q = cond %p : f64[] then { %0 = mul %x, %w : f64[] %1 = sqrt %0 : f64[] yield %1 } else { yield %x }
            yield %q
          } case { %0 = div %w, %x : f64[] yield %0 }
          return %r }",
        mapped: &[true, true, false],
        given: &[&[&[0.0], &[1.0], &[1.0], &[2.0]], &[&[0.0], &[1.0], &[0.0], &[4.0]], &[&[2.25]]],
    },
    LaneCase {
        name: "a rule",
        text: "func @f(%x: f64[], %w: f64[]) -> f64[] {
          %p = gt %x, 0.0 : bool[]
          %r = cond %p : f64[] then { %0 = call %x, %w {func = @root} : f64[] yield %0 } else { yield %w }
          return %r }
        func @root(%x: f64[], %w: f64[]) -> f64[] custom_jvp(@root.jvp) {
          %0 = mul %x, %w : f64[] %1 = sqrt %0 : f64[] return %1 }
        func @root.jvp(%x: f64[], %w: f64[], %s: f64[], %t: f64[]) -> (f64[], f64[]) {
          %y = call %x, %w {func = @root} : f64[] %0 = mul %s, %w : f64[] %1 = mul %t, %x : f64[]
          %2 = add %0, %1 : f64[] %3 = div %2, %y : f64[] %4 = mul %3, 0.5 : f64[] return %y, %4 }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[4.0], &[1.0]], &[&[2.25]]],
    },
    LaneCase {
        name: "a while that does not end for an element that does not take its branch",
        text: "func @f(%x: f64[], %w: f64[]) -> f64[] {
          %p = gt %x, 0.0 : bool[]
          %r = cond %p : f64[] then {
            %u = while %x {max_trips = 50} : f64[] cond(%c: f64[]) { %q = lt %c, 100.0 : bool[] yield %q }
              body(%c: f64[]) { %0 = mul %c, %w : f64[] yield %0 }
            yield %u
          } else { yield %w }
          return %r }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[4.0], &[1.0]], &[&[2.25]]],
    },
    LaneCase {
        name: "a while that all share and none takes",
        text: "func @f(%x: f64[], %w: f64[]) -> f64[] {
          %p = gt %x, 0.0 : bool[]
          %r = cond %p : f64[] then {
            %u = while %w {max_trips = 50} : f64[] cond(%c: f64[]) { %q = lt %c, 100.0 : bool[] yield %q }
              body(%c: f64[]) { %0 = mul %c, %c : f64[] yield %0 }
            %0 = mul %u, %x : f64[] yield %0
          } else { yield %x }
          return %r }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[-4.0], &[-1.0]], &[&[0.5]]],
    },
    LaneCase {
        name: "loops in loops",
        text: "func @f(%n: i32[], %x: f64[], %w: f64[]) -> f64[] {
          %r = fori 0, %n, %x : f64[] body(%k: i32[], %a: f64[]) {
            %u = while %a {max_trips = 50} : f64[] cond(%c: f64[]) { %q = lt %c, 10.0 : bool[] yield %q }
              body(%c: f64[]) {
                %p = gt %c, 5.0 : bool[]
                %0 = cond %p : f64[] then { %1 = mul %c, 1.5 : f64[] yield %1 } else { %1 = mul %c, %w : f64[] yield %1 }
                yield %0
              }
            %v = div %u, 4.0 : f64[] yield %v
          }
          return %r }",
        mapped: &[true, true, false],
        given: &[&[&[0.0], &[2.0], &[1.0]], &[&[0.0], &[1.0], &[4.0]], &[&[2.25]]],
    },
    LaneCase {
        name: "a number of steps beyond the limit, in a branch",
        text: "func @f(%n: i64[], %x: f64[]) -> f64[] {
          %p = lt %n, 9 : bool[]
          %r = cond %p : f64[] then {
            %u = fori 0, %n, %x : f64[] body(%k: i64[], %c: f64[]) { %0 = mul %c, %c : f64[] yield %0 }
            yield %u
          } else { yield %x }
          return %r }",
        mapped: &[true, true],
        given: &[&[&[2e12], &[2.0], &[1.0]], &[&[0.5], &[1.5], &[4.0]]],
    },
    LaneCase {
        name: "a root that is not found for the others",
        text: "func @f(%x: f64[], %w: f64[]) -> f64[] {
          %p = gt %x, 0.0 : bool[]
          %r = cond %p : f64[] then {
            %0 = div %w, %x : f64[] %1 = log %x : f64[] %2 = add %0, %1 : f64[]
            %3 = call %2 {func = @cube_root} : f64[] yield %3
          } else { yield %w }
          return %r }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[4.0], &[-1.0], &[1.0]], &[&[2.25]]],
    },
    LaneCase {
        name: "a root of what all share, for none",
        text: "func @f(%x: f64[], %w: f64[]) -> f64[] {
          %p = gt %x, 0.0 : bool[]
          %r = cond %p : f64[] then {
            %0 = log %w : f64[] %1 = call %0 {func = @cube_root} : f64[] %2 = mul %1, %x : f64[]
            %3 = mul %x, %0 : f64[] %4 = call %3 {func = @cube_root} : f64[] %5 = add %2, %4 : f64[] yield %5
          } else { yield %x }
          return %r }",
        mapped: &[true, false],
        given: &[&[&[0.0], &[-4.0], &[-1.0]], &[&[-2.25]]],
    },
];

fn array(ty: &TensorType, x: &[f64]) -> Array {
    let dims = ty.dims().expect("known");
    match ty.dtype {
        DType::F64 => Array::from_f64s(DType::F64, &dims, x).expect("fits"),
        d => Array::from_i64s(d, &dims, &x.iter().map(|&x| x as i64).collect::<Vec<_>>())
            .expect("fits"),
    }
}

/// Equal to rounding; infinities and NaN are themselves.
fn same(what: &str, found: &[f64], due: &[f64]) {
    let near = |(a, b): (&f64, &f64)| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-12 * b.abs().max(1.0)
    };
    let fits = found.len() == due.len() && found.iter().zip(due).all(near);
    assert!(fits, "{what}: {found:?}, not {due:?}");
}

fn value(what: &str, f: &Function, parts: &[&[Array]]) -> Vec<Array> {
    evaluate(f, &parts.concat()).unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// Values, the gradient over a batch, the gradient of what is over a batch, and tangents are those of each element.
#[test]
fn elements_that_do_not_take_a_region_have_no_part_in_it() {
    for case in CASES {
        let name = case.name;
        let text = match case.text.contains("@cube_root") {
            true => format!("{}{CUBE_ROOT}", case.text),
            false => case.text.to_string(),
        };
        let module = program(&text);
        let f = first(&module);
        let types = f.param_types();
        let size = case.given.iter().map(|g| g.len()).max().expect("parameters");
        let element = |e: usize| -> Vec<Array> {
            let at = |k: usize| case.given[k][if case.mapped[k] { e } else { 0 }];
            (0..types.len()).map(|k| array(&types[k], at(k))).collect()
        };
        let elements: Vec<Vec<Array>> = (0..size).map(element).collect();
        let stacked = |k: usize, of: &[Vec<Array>]| {
            stack(&of.iter().map(|e| e[k].clone()).collect::<Vec<_>>(), 0)
        };
        let given: Vec<Array> = (0..types.len())
            .map(|k| if case.mapped[k] { stacked(k, &elements) } else { elements[0][k].clone() })
            .collect();
        let wrt = differentiable(f, None).expect("floats");
        let finish = |d: Result<Derived, _>| {
            d.and_then(Derived::finish)
                .unwrap_or_else(|d: adfuse::ir::Diagnostic| panic!("{name}: {d}"))
        };
        let alone = finish(Derived::new(&module, f).grad(&wrt));
        let each: Vec<Vec<Array>> = elements.iter().map(|x| value(name, &alone, &[x])).collect();

        let axes = || case.mapped.iter().map(|&m| m.then_some(0));
        let batching = Batching::new(size as u64, axes());
        let batched = finish(Derived::new(&module, f).vmap(&batching));
        let values: Vec<Vec<Array>> = elements
            .iter()
            .map(|x| value(name, &finish(Ok(Derived::new(&module, f))), &[x]))
            .collect();
        let found = value(name, &batched, &[&given]);
        same(name, &found[0].to_f64s(), &stacked(0, &values).to_f64s());

        // Mapped gradients of each element; those by what all share are summed.
        let inner = finish(Derived::new(&module, f).grad(&wrt).and_then(|g| g.vmap(&batching)));
        let found = value(name, &inner, &[&given]);
        for (k, found) in found.iter().enumerate() {
            same(
                &format!("{name}: gradient {k}, batched"),
                &found.to_f64s(),
                &stacked(k, &each).to_f64s(),
            );
        }
        let outer = finish(Derived::new(&module, f).vmap(&batching).and_then(|g| g.vjp(&wrt)));
        let ones = Array::from_f64s(DType::F64, &[size as u64], &vec![1.0; size]).expect("fits");
        let found = value(name, &outer, &[&given, &[ones]]);
        for (k, &p) in wrt.iter().enumerate() {
            let own: Vec<Vec<f64>> = each.iter().map(|e| e[k].to_f64s()).collect();
            let due: Vec<f64> = match case.mapped[p] {
                true => own.concat(),
                false => (0..own[0].len()).map(|j| own.iter().map(|e| e[j]).sum()).collect(),
            };
            same(
                &format!("{name}: gradient {k} of the batch"),
                &numbers(&found[1 + k..2 + k]),
                &due,
            );
        }
        // Forward mode, along ones.
        let tangents = |at: &[Array]| -> Vec<Array> {
            let one = |&p: &usize| {
                let x = &at[p];
                Array::from_f64s(x.dtype(), x.dims(), &vec![1.0; x.len()]).expect("fits")
            };
            wrt.iter().map(one).collect()
        };
        let pushed = finish(Derived::new(&module, f).jvp(&wrt));
        let due: Vec<f64> = elements
            .iter()
            .map(|x| numbers(&value(name, &pushed, &[x, &tangents(x)]))[1])
            .collect();
        let over = finish(Derived::new(&module, f).vmap(&batching).and_then(|g| g.jvp(&wrt)));
        let found = value(name, &over, &[&given, &tangents(&given)]);
        same(&format!("{name}: tangents"), &found[1].to_f64s(), &due);
    }
}
