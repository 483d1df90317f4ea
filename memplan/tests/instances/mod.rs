//! Instances whose least peak is known: a rectangle of time and addresses, cut into buffers. At one
//! moment at least everything is full, so that no packing is below the rectangle's height, and the
//! cut itself is a packing of that height.

use adfuse_memplan::{BufferSpec, Problem};

/// How a rectangle is cut up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// Distinguishes instances of the same recipe.
    pub(crate) seed: u64,
    /// Buffers, before some are left out.
    pub(crate) count: usize,
    /// Time units.
    pub(crate) width: u64,
    /// Bytes; the least peak.
    pub(crate) height: u64,
    /// All sizes and offsets are multiples of this.
    pub(crate) grain: u64,
    /// Of 100 cuts this many are pinwheels: five pieces that no straight cut separates.
    pub(crate) pinwheels: u64,
    /// Of 100 buffers this many are left out, none of them live in the middle.
    pub(crate) holes: u64,
    /// Buffers are aligned to the grain; those not live in the middle shrink by less than a grain.
    pub(crate) aligned: bool,
}

impl Recipe {
    /// Straight cuts of any place, all kept.
    pub(crate) fn plain(seed: u64, count: usize) -> Self {
        Self {
            seed,
            count,
            width: 100_000,
            height: 1 << 20,
            grain: 1,
            pinwheels: 0,
            holes: 0,
            aligned: false,
        }
    }

    /// The instance.
    pub(crate) fn problem(&self) -> Problem {
        let mut random = Random(self.seed);
        let mut pieces = vec![Piece { x0: 0, x1: self.width, y0: 0, y1: self.height / self.grain }];
        let mut failures = 0;
        while pieces.len() < self.count && failures < 10_000 {
            let at = pick(&pieces, self.width * (self.height / self.grain), &mut random);
            let cut = if random.below(100) < self.pinwheels {
                pieces[at].pinwheel(&mut random)
            } else {
                pieces[at].split(&mut random)
            };
            match cut {
                Some(cut) => {
                    pieces.swap_remove(at);
                    pieces.extend(cut);
                }
                None => failures += 1,
            }
        }
        random.shuffle(&mut pieces);
        let middle = self.width / 2;
        let mut problem = Problem::new();
        for piece in pieces {
            let central = piece.x0 <= middle && middle < piece.x1;
            if !central && random.below(100) < self.holes {
                continue;
            }
            let mut size = (piece.y1 - piece.y0) * self.grain;
            if self.aligned && !central {
                size -= random.below(self.grain);
            }
            let align = if self.aligned { self.grain } else { 1 };
            problem.push(BufferSpec::new(piece.x0..piece.x1, size).with_align(align));
        }
        problem
    }
}

#[derive(Clone, Copy)]
struct Piece {
    x0: u64,
    x1: u64,
    y0: u64,
    y1: u64,
}

impl Piece {
    fn area(&self) -> u64 {
        (self.x1 - self.x0) * (self.y1 - self.y0)
    }

    fn split(&self, random: &mut Random) -> Option<Vec<Piece>> {
        if random.below(2) == 0 {
            let x = random.between(self.x0, self.x1)?;
            Some(vec![Piece { x1: x, ..*self }, Piece { x0: x, ..*self }])
        } else {
            let y = random.between(self.y0, self.y1)?;
            Some(vec![Piece { y1: y, ..*self }, Piece { y0: y, ..*self }])
        }
    }

    fn pinwheel(&self, random: &mut Random) -> Option<Vec<Piece>> {
        let Piece { x0, x1, y0, y1 } = *self;
        let (xa, ya) = (random.between(x0, x1)?, random.between(y0, y1)?);
        let (xb, yb) = (random.between(xa, x1)?, random.between(ya, y1)?);
        let mut pieces = vec![
            Piece { x0, x1: xb, y0, y1: ya },
            Piece { x0: xb, x1, y0, y1: yb },
            Piece { x0: xa, x1, y0: yb, y1 },
            Piece { x0, x1: xa, y0: ya, y1 },
            Piece { x0: xa, x1: xb, y0: ya, y1: yb },
        ];
        if random.below(2) == 0 {
            for piece in &mut pieces {
                (piece.y0, piece.y1) = (y0 + y1 - piece.y1, y0 + y1 - piece.y0);
            }
        }
        Some(pieces)
    }
}

/// A piece, the larger the likelier.
fn pick(pieces: &[Piece], total: u64, random: &mut Random) -> usize {
    let mut left = random.below(total);
    for (index, piece) in pieces.iter().enumerate() {
        match left.checked_sub(piece.area()) {
            Some(rest) => left = rest,
            None => return index,
        }
    }
    0
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Strictly between the two.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> Option<u64> {
        (high - low >= 2).then(|| low + 1 + self.below(high - low - 1))
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}
