//! Arrays: whose memory they are in, what they may hold, and that typed access agrees with bits.

use adfuse_backends::{Array, Element};
use adfuse_ir::{DType, Kind, Literal};
use half::{bf16, f16};

/// Bits that look random, specials of every float type among them.
fn bits(n: u64) -> Vec<u64> {
    let special = [0, 1, 0x7f80_0001, 0xffc0_0001, 0x7fc1, 0xfe01, 0x7ff0_0000_0000_0001, u64::MAX];
    let mixed = (0..n).map(|k| (k ^ 0x9e37).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
    special.into_iter().chain(mixed).collect()
}

fn elements(dtype: DType) -> Array {
    let bits = bits(500);
    Array::from_bits(dtype, &[bits.len() as u64], &bits).expect("as many")
}

fn types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|&d| d != DType::Token)
}

#[test]
fn bits_and_numbers_are_those_of_literals() {
    for dtype in types() {
        let x = elements(dtype);
        let literals: Vec<Literal> =
            bits(500).iter().map(|&b| Literal::from_bits(dtype, b)).collect();
        assert!(x.iter().eq(literals.iter().copied()), "{dtype}");
        assert!(x.to_bits().into_iter().eq(literals.iter().map(|l| l.bits())), "{dtype}");
        let numbers = x.to_f64s();
        assert!(numbers.iter().zip(&literals).all(|(a, l)| a.to_bits() == l.to_f64().to_bits()));
        for to in types() {
            let due: Vec<u64> = literals.iter().map(|l| l.convert(to).bits()).collect();
            assert_eq!(x.convert(to).to_bits(), due, "{dtype} to {to}");
        }
        let bytes = x.bytes().to_vec();
        assert_eq!(Array::from_le_bytes(dtype, x.dims(), &bytes).expect("as many"), x);
    }
}

/// What holds of arrays of one type, made of a vector.
fn memory_is_taken<E: Element + std::fmt::Debug>(of: impl Fn(u64) -> E) {
    let values: Vec<E> = (0..24).map(of).collect();
    let (at, copy) = (values.as_ptr(), values.clone());
    let x = Array::from_vec(values, [2, 3, 4]).expect("24");
    assert_eq!((x.dtype(), x.dims()), (E::DTYPE, &[2, 3, 4][..]));
    assert_eq!(x.as_slice::<E>().expect("its type").as_ptr(), at, "{} in", E::DTYPE);
    assert_eq!(x.as_slice::<E>().expect("its type"), copy);
    assert_eq!(Array::from_slice(&copy, [2, 3, 4]).expect("24"), x);
    let flat = x.clone().reshape([24]).expect("24");
    assert_eq!(flat.as_slice::<E>().expect("its type").as_ptr(), at, "a reshape copies nothing");
    assert!(x.is_shared());
    // Shared memory is copied on the way out.
    let out = flat.into_vec::<E>().expect("its type");
    assert_ne!(out.as_ptr(), at);
    assert_eq!(out, copy);
    let out = x.into_vec::<E>().expect("its type");
    assert_eq!(out.as_ptr(), at, "{} out", E::DTYPE);
    assert_eq!(out, copy);
    // As results and results of operations are: in words of other sizes.
    let scalar = Array::scalar(Literal::one(E::DTYPE));
    assert_eq!(scalar.item::<E>().expect("one"), scalar.clone().into_vec::<E>().expect("one")[0]);
    assert_eq!(scalar, Array::from_slice(&[scalar.item::<E>().expect("one")], []).expect("one"));
    let none = Array::from_vec(Vec::<E>::new(), [0, 5]).expect("none");
    assert!(none.as_slice::<E>().expect("its type").is_empty());
    assert!(none.clone().into_vec::<E>().expect("its type").is_empty());
    assert!(none.into_vec::<E>().expect("its type").is_empty());
}

#[test]
fn vectors_come_in_and_out_without_a_copy() {
    memory_is_taken(|k| k as f64);
    memory_is_taken(|k| k as f32);
    memory_is_taken(|k| f16::from_f32(k as f32));
    memory_is_taken(|k| bf16::from_f32(k as f32));
    memory_is_taken(|k| k as i64);
    memory_is_taken(|k| k as i32);
    memory_is_taken(|k| k as u32);
    memory_is_taken(|k| k as i8);
    memory_is_taken(|k| k as u8);
    memory_is_taken(|k| k % 3 == 0);
}

#[test]
fn nans_that_enter_are_canonical() {
    let odd = [f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff), -f32::NAN, 1.0];
    let due = Array::from_f64s(DType::F32, &[4], &[f64::NAN, f64::NAN, f64::NAN, 1.0]);
    let due = due.expect("four");
    assert_eq!(Array::from_vec(odd.to_vec(), [4]).expect("four"), due);
    assert_eq!(Array::from_slice(&odd, [4]).expect("four"), due);
    assert_eq!(Array::from(odd), due);
    let bytes: Vec<u8> = odd.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(Array::from_le_bytes(DType::F32, &[4], &bytes).expect("four"), due);
    let mut written = Array::from([0.0f32; 4]);
    written.update::<f32>(|all| all.copy_from_slice(&odd)).expect("f32");
    assert_eq!(written, due);
    let mut halves = Array::from([f16::from_f32(1.0)]);
    halves.update::<f16>(|all| all[0] = f16::from_bits(0xfc01)).expect("f16");
    assert_eq!(halves.to_bits(), [0x7e00]);
    assert_eq!(Array::from(bf16::from_bits(0xff81)).to_bits(), [0x7fc0]);
    assert_eq!(Array::from(f64::from_bits(u64::MAX)).to_bits(), [0x7ff8 << 48]);
}

#[test]
fn clones_share_until_one_is_written() {
    let values = vec![1.0f32; 1 << 16];
    let mut x = Array::from(values);
    let at = x.bytes().as_ptr();
    x.update::<f32>(|all| all[0] = 2.0).expect("f32");
    assert_eq!(x.bytes().as_ptr(), at, "the only owner writes in place");
    let mut y = x.clone();
    assert_eq!(y.bytes().as_ptr(), at);
    y.update::<f32>(|all| all[1] = 3.0).expect("f32");
    assert_ne!(y.bytes().as_ptr(), at);
    assert_eq!((x.get(1).to_f64(), y.get(1).to_f64()), (1.0, 3.0));
    assert!(!x.is_shared() && !y.is_shared());
    let moved = std::thread::spawn(move || y.item::<f32>().is_err()).join();
    assert!(moved.expect("no panic"));
}

#[test]
fn rows_are_those_of_a_loop() {
    for dtype in types() {
        let x = elements(dtype).rows(0..504).expect("there").reshape([84, 2, 3]).expect("504");
        let row = |k: u64| (0..6).map(|i| x.get((k * 6 + i) as usize)).collect::<Vec<_>>();
        let part = x.rows(7..40).expect("there");
        assert_eq!(part.dims(), [33, 2, 3]);
        assert!(part.iter().eq((7..40).flat_map(row)), "{dtype}");
        let order = [83, 0, 5, 5, 17];
        let some = x.gather_rows(&order).expect("there");
        assert_eq!(some.dims(), [5, 2, 3]);
        assert!(some.iter().eq(order.into_iter().flat_map(row)), "{dtype}");
        assert_eq!(x.rows(84..84).expect("none").dims(), [0, 2, 3]);
        assert_eq!(x.gather_rows(&[]).expect("none").len(), 0);
    }
    let thin = Array::from_vec(Vec::<f32>::new(), [5, 0]).expect("none");
    assert_eq!(thin.rows(1..3).expect("there").dims(), [2, 0]);
    assert_eq!(thin.gather_rows(&[4, 4, 4]).expect("there").dims(), [3, 0]);
}

#[test]
fn what_does_not_fit_is_refused_with_its_kind() {
    let x = Array::from_vec(vec![1, 2, 3, 4, 5, 6], [2, 3]).expect("six");
    let (no_array, no_number) =
        (|r: Result<Array, _>| r.map(|_| ()), |r: Result<f32, _>| r.map(|_| ()));
    let long = vec![1; 17];
    #[rustfmt::skip]
    let cases = [
        (no_array(Array::from_vec(vec![1.0f32; 5], [2, 3])), Kind::Shape, "f32[2,3] has 6 elements, found 5"),
        (no_array(Array::from_slice(&[1u8; 7], [])), Kind::Shape, "u8[] has 1 elements, found 7"),
        (no_array(Array::from_vec(vec![0u8; 0], [u64::MAX, u64::MAX])), Kind::Shape, "u8["),
        (no_array(Array::from_vec(vec![true], &long)), Kind::Limit, "17 axes"),
        (no_array(Array::from_vec(Vec::<f32>::new(), [0, u64::MAX])), Kind::Limit, "larger than"),
        (no_array(Array::from_le_bytes(DType::F32, &[2], &[0; 7])), Kind::Shape, "7 bytes for f32[2]"),
        (no_array(Array::from_le_bytes(DType::Bool, &[3], &[0, 1, 2])), Kind::Literal, "byte 2"),
        (x.as_slice::<f32>().map(|_| ()), Kind::DType, "i32[2,3] are not of type f32"),
        (x.clone().into_vec::<u32>().map(|_| ()), Kind::DType, "not of type u32"),
        (x.clone().update::<bool>(|_| {}), Kind::DType, "not of type bool"),
        (no_number(x.item::<f32>()), Kind::DType, "not of type f32"),
        (x.item::<i32>().map(|_| ()), Kind::Shape, "6 elements, not one"),
        (no_array(x.clone().reshape([7])), Kind::Shape, "i32[7] has 7 elements, found 6"),
        (no_array(x.rows(1..3)), Kind::Shape, "rows 1 to 3 of i32[2,3]"),
        (no_array(x.rows(std::ops::Range { start: 2, end: 1 })), Kind::Shape, "rows 2 to 1"),
        (no_array(x.gather_rows(&[0, 2])), Kind::Shape, "row 2 of i32[2,3]"),
        (no_array(Array::from(1.0f32).rows(0..1)), Kind::Shape, "f32[] has no rows"),
    ];
    for (found, kind, message) in cases {
        let d = found.expect_err(message);
        assert_eq!(d.kind, kind, "{d}");
        assert!(d.to_string().contains(message), "{d}");
    }
}
