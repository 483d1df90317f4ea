//! Products of operands with large strides, and of subnormal operands, compared with the defined order to the bit.

use super::packed::{PackedGemm, all};
use super::subnormal::{FloatBits, MagnitudeRange, factors, matters};
use super::*;
use crate::reference::order::CONTRACT_CHUNK;
use adfuse_ir::DType;

/// Draws bits; the same ones each time.
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A float that is made from drawn numbers, and a definition of its sums.
trait Tested: FloatBits + Default + PartialEq + std::fmt::Debug {
    const DTYPE: DType;
    fn made(x: f64) -> Self;
    /// A subnormal, some of whose digits are these.
    fn subnormal(digits: u64) -> Self;
    fn fused(self, b: Self, sum: Self) -> Self;
    fn plus(self, b: Self) -> Self;
    /// The bits, of one NaN.
    fn same(self) -> u64;
}

macro_rules! tested {
    ($t:ty, $dtype:expr, $digits:literal) => {
        impl Tested for $t {
            const DTYPE: DType = $dtype;
            fn made(x: f64) -> $t {
                x as $t
            }
            fn subnormal(digits: u64) -> $t {
                <$t>::from_bits((digits % (1 << $digits)) as _)
            }
            fn fused(self, b: $t, sum: $t) -> $t {
                self.mul_add(b, sum)
            }
            fn plus(self, b: $t) -> $t {
                self + b
            }
            fn same(self) -> u64 {
                if self.is_nan() { u64::MAX } else { self.to_bits().into() }
            }
        }
    };
}

tested!(f32, DType::F32, 23);
tested!(f64, DType::F64, 52);

/// A matrix in memory: its extents, and its steps.
struct Laid<T> {
    all: Vec<T>,
    row: usize,
    column: usize,
}

impl<T: Tested> Laid<T> {
    fn new(rows: usize, cols: usize, [row, column]: [usize; 2], mut of: impl FnMut() -> T) -> Self {
        let n = (rows - 1) * row + (cols - 1) * column + 1;
        Laid { all: (0..n).map(|_| of()).collect(), row, column }
    }

    fn at(&self, i: usize, j: usize) -> T {
        self.all[i * self.row + j * self.column]
    }

    fn matrix(&mut self) -> MatrixView {
        let at = self.all.as_mut_ptr().cast();
        MatrixView { at, row: self.row as isize, column: self.column as isize }
    }
}

/// The product by an instance, with nothing beyond its room written.
fn product<T: Tested>(
    gemm: &PackedGemm,
    size: Size,
    (x, y): (&mut Laid<T>, &mut Laid<T>),
    out: [usize; 2],
    met: &SubnormalState,
) -> Vec<u64> {
    let [rows, cols, _] = size;
    let mut out = Laid::<T>::new(rows, cols, out, T::default);
    let words = gemm.room(T::DTYPE, size).div_ceil(8) as usize;
    let mut room = vec![u64::MAX; words + 1];
    let aid = GemmArgs::new(room.as_mut_ptr().cast(), met);
    // SAFETY: the vectors have these sizes.
    unsafe { gemm.product(T::DTYPE, size, x.matrix(), y.matrix(), out.matrix(), aid) };
    assert_eq!(room.last(), Some(&u64::MAX), "{size:?}");
    (0..rows * cols).map(|n| out.at(n / cols, n % cols).same()).collect()
}

fn defined<T: Tested>([rows, cols, depth]: Size, x: &Laid<T>, y: &Laid<T>) -> Vec<u64> {
    let sum = |i: usize, j: usize| {
        let mut total = T::default();
        for from in (0..depth).step_by(CONTRACT_CHUNK) {
            let chunk = from..depth.min(from + CONTRACT_CHUNK);
            let sum = chunk.fold(T::default(), |s, k| x.at(i, k).fused(y.at(k, j), s));
            total = if from == 0 { sum } else { total.plus(sum) };
        }
        total.same()
    };
    (0..rows * cols).map(|n| sum(n / cols, n % cols)).collect()
}

/// Sizes around those of what is copied at a time, in depths of up to three chunks.
const SIZES: [Size; 8] = [
    [131, 40, 520],
    [64, 201, 513],
    [17, 33, 1030],
    [9, 35, 512],
    [130, 34, 7],
    [1, 1, 1],
    // Several blocks of rows, and of columns.
    [290, 5, 515],
    [3, 530, 514],
];

/// Steps of operands: rows dense, columns dense and lines a page apart, and gaps everywhere.
fn steps(rows: usize, cols: usize) -> [[usize; 2]; 3] {
    [[cols, 1], [1, rows.max(1024)], [3, 3 * rows + 5]]
}

fn agrees<T: Tested>(mut of: impl FnMut(&mut Draw, usize) -> T, met_some: bool) {
    let sets: Vec<[PackedGemm; 2]> = all(false).zip(all(true)).map(Into::into).collect();
    let mut draw = Draw(0x9E37_79B9_7F4A_7C15);
    for size in SIZES {
        let [rows, cols, depth] = size;
        for case in 0..18 {
            let mut x = Laid::new(rows, depth, steps(rows, depth)[case % 3], || of(&mut draw, 0));
            let mut y =
                Laid::new(depth, cols, steps(depth, cols)[case / 3 % 3], || of(&mut draw, 1));
            let out = if case < 9 { [cols + 1, 1] } else { [1, rows + 2] };
            let wanted = defined(size, &x, &y);
            for [plain, wary] in &sets {
                let met = SubnormalState::default();
                // The second time is after what the first one has met.
                for (name, gemm) in [("plain", plain), ("wary", wary), ("looked at", wary)] {
                    if name == "looked at" {
                        // Short sums may have none.
                        assert!(!met_some || depth < 100 || met.expects(), "{size:?}, {case}");
                        met.note(true);
                    }
                    let found = product(gemm, size, (&mut x, &mut y), out, &met);
                    assert!(found == wanted, "{name}: {size:?}, case {case}");
                }
            }
        }
    }
}

fn normal<T: Tested>(draw: &mut Draw) -> T {
    T::made((draw.bits() % 2001) as f64 * 0.01 - 10.0)
}

#[test]
fn rows_that_lie_across_pages_keep_the_order() {
    agrees::<f32>(|draw, _| normal(draw), false);
    agrees::<f64>(|draw, _| normal(draw), false);
}

/// Some elements in a hundred: of the left operand, of the right one, of both; beside numbers of all magnitudes, and ones that
/// are none.
#[test]
fn subnormal_operands_keep_every_bit() {
    fn one<T: Tested>() {
        for side in [0, 1, 2] {
            for wild in [false, true] {
                let of = |draw: &mut Draw, operand: usize| match draw.bits() % 64 {
                    0 if side == 2 || side == operand => T::subnormal(draw.bits()),
                    1 => T::default(),
                    2 if wild => T::made(
                        [1e38, -1e30, 1e-36, 1e-31, f64::INFINITY, f64::NAN]
                            [draw.bits() as usize % 6],
                    ),
                    _ => normal(draw),
                };
                agrees::<T>(of, true);
            }
        }
    }
    one::<f32>();
    one::<f64>();
}

/// The flag alone has few products looked at, subnormals many; then the flag is watched again.
#[test]
fn steps_without_subnormals_are_looked_at_no_longer() {
    let met = SubnormalState::default();
    let looked_at = |met: &SubnormalState| {
        let until = (0..1000).position(|_| {
            let more = met.expects();
            more.then(|| met.note(false));
            !more
        });
        until.expect("an end")
    };
    let raise = || {
        let tiny = std::hint::black_box(f32::from_bits(3));
        std::hint::black_box(tiny * 1.5);
    };
    assert!(!met.expects());
    met.watch(|| ());
    assert!(!met.expects());
    met.watch(raise);
    assert_eq!(looked_at(&met), 8);
    (0..32).for_each(|_| met.watch(raise));
    assert!(!met.expects(), "it rests");
    met.watch(raise);
    assert!(met.expects());
    met.note(true);
    assert_eq!(looked_at(&met), 256);
}

/// The operand with subnormals is scaled up if the other one can be scaled down, and nothing else is scaled.
#[test]
fn only_what_stays_exact_is_scaled() {
    if all(false).next().is_none() {
        return;
    }
    // SAFETY: all instances need AVX2.
    let span = |all: &[f32]| unsafe { f32::span(all, MagnitudeRange::NONE) };
    // SAFETY: the same.
    let scale = |all: &mut [f32], by| unsafe { f32::scale(all, by) };
    let [down, up] = f32::SCALES;
    let small = f32::from_bits(3);
    /// Both operands, and by what each is scaled.
    type Case<'a> = (&'a [f32], &'a [f32], Option<[f32; 2]>);
    let cases: [Case<'_>; 9] = [
        (&[1.0, 0.0], &[2.0], None),
        (&[1.0, -0.0], &[2.0, -small], Some([down, up])),
        (&[small, 1.0], &[2.0, 0.0], Some([up, down])),
        (&[small], &[small], None),
        (&[1e-36], &[small], None),
        (&[2f32.powi(-94)], &[small], Some([down, up])),
        (&[1.0], &[small, 2f32.powi(96)], None),
        (&[f32::INFINITY, f32::NAN], &[small], Some([down, up])),
        (&[1.0], &[small, f32::INFINITY], None),
    ];
    for (left, right, wanted) in cases {
        assert_eq!(factors::<f32>(span(left), span(right)), wanted, "{left:?} by {right:?}");
    }
    // One vector in a hundred, or a broadcast element in a hundred.
    let some = |n| {
        let mut all = span(&[1.0]);
        all.subnormals = n;
        all
    };
    let size = [64, 256, 512];
    for (left, right, wanted) in
        [(0, 0, false), (0, 5, false), (0, 80, true), (300, 0, true), (20, 0, false)]
    {
        assert_eq!(matters::<f32>(size, some(left), some(right)), wanted, "{left}, {right}");
    }
    for by in [down, up] {
        let all = [1.5, -2.0, 0.0, -0.0, 1e20, -1e-20, f32::INFINITY, f32::NEG_INFINITY];
        let mut scaled = all;
        scale(&mut scaled, by);
        assert_eq!(scaled.map(f32::to_bits), all.map(|x| (x * by).to_bits()));
    }
    let mut all = [small, -small, f32::from_bits(0x007F_FFFF), f32::from_bits(0x8000_0001)];
    let wanted = all.map(|x| (f64::from(x) * f64::from(up)) as f32);
    scale(&mut all, up);
    assert_eq!(all.map(f32::to_bits), wanted.map(f32::to_bits));
}
