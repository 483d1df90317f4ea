//! Products by dot-product instructions, compared with their definitions, in all layouts.

use super::*;
use half::bf16;

/// Where a test has the elements of an operand: lines, then the depth.
#[derive(Clone, Copy, Debug)]
struct Laid {
    row: usize,
    column: usize,
}

/// Dense along the depth, dense across it, and neither.
fn layouts(lines: usize, depth: usize) -> [Laid; 4] {
    [(depth, 1), (1, lines), (depth + 5, 1), (3, 3 * lines + 7)]
        .map(|(row, column)| Laid { row, column })
}

/// Words that look random.
fn noise(n: usize, seed: u32) -> impl Iterator<Item = u32> {
    (0..n as u32).map(move |i| {
        let x = (i ^ seed.wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B);
        (x ^ x >> 13).wrapping_mul(0xC2B2_AE35) ^ x >> 7
    })
}

/// Bits of a `bf16`: most between 2^-4 and 2^4, some zeros, subnormals, and numbers whose products underflow.
fn brain(word: u32) -> u16 {
    let (sign, fraction) = (word >> 31 << 15, word & 0x7F);
    let exponent = match word >> 8 & 63 {
        0 => return sign as u16,
        1 => 0,
        2 => 62 + (word >> 16 & 3),
        _ => 123 + (word >> 16 & 7),
    };
    (sign | exponent << 7 | fraction) as u16
}

/// Subnormal numbers are 0, of the same sign.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

fn fused(a: f32, b: f32, sum: f32) -> f32 {
    flushed(flushed(a).mul_add(flushed(b), flushed(sum)))
}

/// AMX: of each 32 products the even and the odd ones are chains of their own, from +0; their sum is added to the result.
fn in_tiles(pairs: &[(f32, f32)]) -> f32 {
    pairs.chunks(32).fold(0.0, |total, chunk| {
        let mut chains = [0.0; 2];
        for k in 0..32 {
            let (a, b) = chunk.get(k).copied().unwrap_or_default();
            chains[k % 2] = fused(a, b, chains[k % 2]);
        }
        flushed(total + flushed(chains[0] + chains[1]))
    })
}

/// `AVX512_BF16`: a chain, of each pair the second product first.
fn in_vectors(pairs: &[(f32, f32)]) -> f32 {
    pairs.chunks(32).fold(0.0, |mut total, chunk| {
        for k in (0..32).map(|k| k ^ 1) {
            let (a, b) = chunk.get(k).copied().unwrap_or_default();
            total = fused(a, b, total);
        }
        total
    })
}

/// What a kernel must give for these pairs of elements, as bits.
fn defined(kernel: &DotKernel, pairs: impl Iterator<Item = (u16, u16)>) -> u32 {
    let signed = |x: u16| u32::from_ne_bytes(i32::from(x as u8 as i8).to_ne_bytes());
    let wrapped = |sum: u32, (a, b): (u32, u32)| sum.wrapping_add(a.wrapping_mul(b));
    match kernel.element {
        DType::I8 => pairs.map(|(a, b)| (signed(a), signed(b))).fold(0, wrapped),
        DType::U8 => pairs.map(|(a, b)| (a.into(), b.into())).fold(0, wrapped),
        _ => {
            let number = |x: u16| bf16::from_bits(x).to_f32();
            let all: Vec<(f32, f32)> = pairs.map(|(a, b)| (number(a), number(b))).collect();
            let sum =
                if kernel.name.starts_with("amx") { in_tiles(&all) } else { in_vectors(&all) };
            sum.to_bits()
        }
    }
}

/// Elements of an operand in memory, and as bits at `line * depth + k`.
fn operand(
    kernel: &DotKernel,
    at: Laid,
    [lines, depth]: [usize; 2],
    seed: u32,
) -> (Vec<u8>, Vec<u16>) {
    let bytes = kernel.element.bytes() as usize;
    let mut memory = vec![0xAAu8; ((lines - 1) * at.row + (depth - 1) * at.column + 1) * bytes];
    let bits: Vec<u16> = noise(lines * depth, seed)
        .map(|word| if bytes == 2 { brain(word) } else { u16::from(word as u8) })
        .collect();
    for (n, x) in bits.iter().enumerate() {
        let place = (n / depth * at.row + n % depth * at.column) * bytes;
        memory[place..place + bytes].copy_from_slice(&x.to_le_bytes()[..bytes]);
    }
    (memory, bits)
}

/// Memory with room for these bytes from its first line of the cache on.
fn aligned(bytes: usize) -> Vec<[u64; 8]> {
    vec![[u64::MAX; 8]; bytes.div_ceil(64) + 1]
}

/// Where the first line of the cache begins.
fn first(memory: &mut [[u64; 8]]) -> *mut u8 {
    let at = memory.as_mut_ptr().cast::<u8>();
    at.wrapping_add(at.align_offset(64))
}

fn packed(
    kernel: &DotKernel,
    side: OperandSide,
    at: Laid,
    size: [usize; 2],
    memory: &[u8],
) -> Vec<[u64; 8]> {
    let [lines, depth] = size;
    let step = kernel.panel(depth);
    let mut all = aligned(lines.div_ceil(LINES) * step);
    let to = first(&mut all);
    for (n, line) in (0..lines).step_by(STRIPE).enumerate() {
        let at = MatrixView {
            at: memory.as_ptr().cast_mut(),
            row: at.row as isize,
            column: at.column as isize,
        };
        let count = STRIPE.min(lines - line);
        // SAFETY: the memory has these elements, and there is room for each panel.
        unsafe {
            let from = match kernel.element.bytes() {
                2 => at.from::<u16>(line, 0),
                _ => at.from::<u8>(line, 0),
            };
            kernel.pack(side, from, [count, depth], to.add(n * STRIPE / LINES * step));
        }
    }
    all
}

/// Rows and columns that are asked for: all, and a part that begins within a panel.
fn ranges([rows, cols]: [usize; 2]) -> [BlockRange; 2] {
    [[[0, rows], [0, cols]], [[rows / 3, rows], [cols / 2, cols - cols / 8]]]
}

#[test]
fn kernels_follow_their_definitions() {
    const SIZES: [[usize; 3]; 10] = [
        [1, 1, 1],
        [16, 16, 64],
        [32, 32, 128],
        [8, 40, 33],
        [37, 9, 100],
        [64, 33, 31],
        [17, 70, 512],
        [33, 64, 515],
        [5, 100, 1030],
        [48, 40, 1088],
    ];
    for kernel in all() {
        for (n, [rows, cols, depth]) in SIZES.into_iter().enumerate() {
            for (x, y) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 3), (3, 2)] {
                let (x, y) = (layouts(rows, depth)[x], layouts(cols, depth)[y]);
                let (lines, a) = operand(kernel, x, [rows, depth], n as u32);
                let (right, b) = operand(kernel, y, [cols, depth], 77 + n as u32);
                let mut left = packed(kernel, OperandSide::Left, x, [rows, depth], &lines);
                let mut right = packed(kernel, OperandSide::Right, y, [cols, depth], &right);
                let at = |all: &mut [[u64; 8]]| kernel.packed(first(all), depth);
                let sides = [at(&mut left), at(&mut right)];
                let apart = x.row * kernel.element.bytes() as usize;
                let open = x.column == 1 && kernel.reads_in_place([rows, depth], apart);
                let in_place = OperandTiles::in_place(lines.as_ptr(), apart);
                for range in ranges([rows, cols]) {
                    agrees(kernel, (range, [cols, depth]), sides, [&a, &b]);
                    if open {
                        agrees(kernel, (range, [cols, depth]), [in_place, sides[1]], [&a, &b]);
                    }
                }
            }
        }
    }
}

/// Sums of 32 and of 8 bits, by rows, by columns and with gaps.
fn agrees(
    kernel: &DotKernel,
    (range, [cols, depth]): (BlockRange, [usize; 2]),
    sides: [OperandTiles; 2],
    [a, b]: [&[u16]; 2],
) {
    let [down, across] = range.map(|[from, end]| end - from);
    let narrow = if kernel.element == DType::BF16 { DType::F32 } else { DType::I8 };
    let wide = if kernel.element == DType::BF16 { DType::F32 } else { DType::I32 };
    for (sum, row, column) in [(wide, across, 1), (wide, 1, down), (narrow, across + 3, 1)] {
        let bytes = sum.bytes() as usize;
        let mut out = vec![0u32; (down * row).max(across * column) + 8];
        let mut room = aligned(ROOM as usize);
        let to =
            MatrixView { at: out.as_mut_ptr().cast(), row: row as isize, column: column as isize };
        // SAFETY: the operands are packed, and there is room.
        unsafe { kernel.product((range, depth), sides, (to, sum), first(&mut room)) };
        let found: &[u8] = bytemuck::cast_slice(&out);
        for i in 0..down {
            for j in 0..across {
                let (y, x) = (range[0][0] + i, range[1][0] + j);
                let pairs = (0..depth).map(|k| (a[y * depth + k], b[x * depth + k]));
                let (want, at) = (defined(kernel, pairs), (i * row + j * column) * bytes);
                let found = &found[at..at + bytes];
                assert_eq!(
                    found,
                    &want.to_le_bytes()[..bytes],
                    "{} {}: {i}, {j} of {range:?}, {cols} x {depth}, sums in {sum}: {:?} is not {:?}",
                    kernel.name,
                    kernel.element,
                    f32::from_le_bytes(found.try_into().unwrap_or_default()),
                    f32::from_bits(want),
                );
            }
        }
    }
}
