//! The vector loops have the bits of the reference.
use adfuse_backends::reference::order::{reduce_axes, reduce_lane_blocked, scan};

#[path = "../../benches/order/vector.rs"]
#[allow(dead_code)]
mod vector;

use vector::Float;

fn values<T: Float>(n: usize) -> Vec<T> {
    let mut s = 0x9E37_79B9_7F4A_7C15_u64;
    (0..n)
        .map(|_| {
            s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let e = (s >> 20 & 7) as i32;
            T::from_f64(((s >> 33) as f64 / f64::from(1 << 30) - 1.0) * f64::powi(4.0, e))
        })
        .collect()
}

fn bits<T: Float>(x: T) -> u64 {
    x.to_f64().to_bits()
}

fn check<T: Float>() {
    let add = |a: T, b: T| a + b;
    for n in [0, 1, 2, 10, 31, 32, 33, 64, 1000, 1023, 1024, 1025, 4096, 5000, 50304, 300_001] {
        let xs = values::<T>(n);
        let want = bits(reduce_lane_blocked(&xs, add, T::default()));
        assert_eq!(bits(vector::sum::<T, 32, 1024, 1>(&xs)), want, "{n}");
        assert_eq!(bits(vector::sum::<T, 32, 1024, 2>(&xs)), want, "{n}");
        assert_eq!(bits(vector::sum::<T, 32, 1024, 4>(&xs)), want, "{n}");
        let mut want = xs.clone();
        scan(&mut want, add);
        let mut got = vec![T::default(); n];
        vector::cumsum(&xs, &mut got);
        assert!(got.iter().zip(&want).all(|(&a, &b)| bits(a) == bits(b)), "{n}");
        vector::cumsum_blocked(&xs, &mut got);
        assert!(got.iter().zip(&want).all(|(&a, &b)| bits(a) == bits(b)), "blocked {n}");
    }
    for (rows, columns) in
        [(1, 3), (63, 5), (64, 64), (65, 100), (128, 64), (1000, 33), (5000, 7), (129, 257)]
    {
        let xs = values::<T>(rows * columns);
        let want = reduce_axes(&xs, &[rows, columns], &[true, false], add, T::default());
        let (mut got, mut scratch) = (vec![T::default(); columns], Vec::new());
        vector::sum_columns::<T, 64>(&xs, columns, &mut got, &mut scratch);
        assert!(got.iter().zip(&want).all(|(&a, &b)| bits(a) == bits(b)), "{rows}x{columns}");
    }
}

#[test]
fn vector_loops_have_the_reference_bits() {
    check::<f32>();
    check::<f64>();
}
