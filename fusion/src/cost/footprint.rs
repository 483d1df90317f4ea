//! Footprints: how many elements a load touches, and which coordinates a value depends on.

use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Buffer, BufferData, Extents, Param, Piece, Program, Run, Storage};
use smallvec::SmallVec;

/// A set of coordinates, a bit each.
pub(super) type Mask = u64;

/// Sets of coordinates by parameter.
pub(super) type Masks = SmallVec<[Mask; 8]>;

/// The coordinates at which a stage runs.
pub(super) struct IterationSpace {
    extents: Extents,
    domain: Mask,
    all: Mask,
}

/// The coordinates below `n`.
fn below(n: usize) -> Mask {
    u32::try_from(n).ok().and_then(|n| 1u64.checked_shl(n)).map_or(u64::MAX, |bit| bit - 1)
}

/// An extent as a count; what the verifier refuses counts as nothing.
fn count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

impl IterationSpace {
    /// The coordinates with these extents, the domain's first.
    pub(super) fn new(extents: &[i64], domain: usize) -> IterationSpace {
        let all = below(extents.len());
        IterationSpace { extents: extents.into(), domain: below(domain) & all, all }
    }

    /// The extents, the domain's first.
    pub(super) fn extents(&self) -> &[i64] {
        &self.extents
    }

    /// The coordinates that remain after a fold.
    pub(super) fn after(&self, runs: &[Run]) -> IterationSpace {
        let mut extents = self.extents.clone();
        for &a in runs.iter().flat_map(|r| &r.axes) {
            if let Some(n) = extents.get_mut(usize::from(a)) {
                *n = 1;
            }
        }
        let all = extents.len();
        IterationSpace::new(&extents, all)
    }

    /// How many there are.
    pub(super) fn points(&self) -> u64 {
        self.product(self.all)
    }

    /// How many of the stage's own axes' coordinates a point of the domain has.
    pub(super) fn inner(&self) -> u64 {
        self.product(self.all & !self.domain)
    }

    /// How many values the coordinates of a set take together.
    pub(super) fn product(&self, mask: Mask) -> u64 {
        product(&self.extents, mask)
    }

    /// For each parameter, the coordinates that it depends on.
    pub(super) fn params(&self, params: &[Param]) -> Masks {
        let mut masks = Masks::new();
        for param in params {
            let mask = match param {
                Param::Load(_) | Param::Coord(_) => {
                    param.expressions().fold(0, |m, e| m | of(e, &masks))
                }
                Param::Row(_) => self.domain,
                Param::Tile(_) | Param::Sum => self.all,
            };
            masks.push(mask & self.all);
        }
        masks
    }

    /// Bytes that a piece of a load touches.
    pub(super) fn bytes(&self, data: &BufferData, piece: &Piece, masks: &[Mask]) -> u64 {
        let bits = match data.storage {
            Storage::Plain => data.dtype.bytes().saturating_mul(8),
            Storage::Packed(bits) => bits.into(),
        };
        self.elements(data, piece, masks).saturating_mul(bits).div_ceil(8)
    }

    /// Elements that a piece of a load touches, at most: no more than the coordinates in its
    /// expressions take values together, and along each axis of the buffer no more than its extent,
    /// than the coordinates there take values, and than the expression's range is wide.
    fn elements(&self, data: &BufferData, piece: &Piece, masks: &[Mask]) -> u64 {
        if self.points() == 0 {
            return 0;
        }
        let mut guarded = self.extents.clone();
        for guard in &piece.guards {
            // A guard of one coordinate leaves this many of its values.
            if let Some((axis, step)) = single(&guard.expr)
                && let Some(extent) = guarded.get_mut(axis)
            {
                let left = width(guard).div_ceil(step);
                *extent = (*extent).min(i64::try_from(left).unwrap_or(i64::MAX));
            }
        }
        let (mut any, mut along) = (0, 1u64);
        for (e, &n) in piece.index.iter().zip(&data.dims) {
            let mask = of(e, masks) & self.all;
            any |= mask;
            let (least, most) = range(e, &self.extents);
            let wide = most.saturating_sub(least).saturating_add(1);
            let within = piece.guards.iter().filter(|g| g.expr == *e).map(width);
            let own = product(&guarded, mask).min(count(wide)).min(count(n));
            along = along.saturating_mul(within.fold(own, u64::min));
        }
        product(&guarded, any).min(along)
    }
}

fn product(extents: &[i64], mask: Mask) -> u64 {
    let within = |a: &(usize, &i64)| mask.checked_shr(a.0 as u32).unwrap_or(0) & 1 == 1;
    extents.iter().enumerate().filter(within).map(|(_, &n)| count(n)).fold(1, u64::saturating_mul)
}

fn width(guard: &Guard) -> u64 {
    count(guard.range.end.saturating_sub(guard.range.start))
}

/// The coordinates that an expression depends on.
pub(super) fn of(e: &IndexExpr, params: &[Mask]) -> Mask {
    match e {
        IndexExpr::Axis(a) => 1u64.checked_shl((*a).into()).unwrap_or(0),
        IndexExpr::Const(_) | IndexExpr::Mul(_, 0) => 0,
        IndexExpr::Add(a, b) => of(a, params) | of(b, params),
        IndexExpr::Mul(a, _) | IndexExpr::FloorDiv(a, _) | IndexExpr::Mod(a, _) => of(a, params),
        IndexExpr::Data { param, .. } => params.get(*param as usize).copied().unwrap_or(0),
    }
}

/// The only coordinate of an expression that moves by a fixed step with it, and the step.
fn single(e: &IndexExpr) -> Option<(usize, u64)> {
    match e {
        IndexExpr::Axis(a) => Some((usize::from(*a), 1)),
        IndexExpr::Add(a, b) => match (&**a, &**b) {
            (a, IndexExpr::Const(_)) | (IndexExpr::Const(_), a) => single(a),
            _ => None,
        },
        IndexExpr::Mul(a, c) if *c != 0 => {
            let (axis, step) = single(a)?;
            Some((axis, step.checked_mul(c.unsigned_abs())?))
        }
        _ => None,
    }
}

/// The least and the greatest value of an expression.
fn range(e: &IndexExpr, extents: &[i64]) -> (i64, i64) {
    let anything = (i64::MIN, i64::MAX);
    match e {
        IndexExpr::Axis(a) => {
            let n = extents.get(usize::from(*a)).copied().unwrap_or(1);
            (0, n.saturating_sub(1).max(0))
        }
        IndexExpr::Const(c) => (*c, *c),
        IndexExpr::Add(a, b) => {
            let (a, b) = (range(a, extents), range(b, extents));
            (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
        }
        IndexExpr::Mul(a, c) => {
            let (least, most) = range(a, extents);
            let ends = (least.saturating_mul(*c), most.saturating_mul(*c));
            (ends.0.min(ends.1), ends.0.max(ends.1))
        }
        IndexExpr::FloorDiv(a, c) if *c > 0 => {
            let (least, most) = range(a, extents);
            (least.div_euclid(*c), most.div_euclid(*c))
        }
        IndexExpr::Mod(a, c) if *c > 0 => match range(a, extents) {
            (least, most) if least >= 0 && most < *c => (least, most),
            _ => (0, c - 1),
        },
        IndexExpr::FloorDiv(..) | IndexExpr::Mod(..) => anything,
        IndexExpr::Data { lo, hi, .. } => (*lo, *hi),
    }
}

/// Bytes of a buffer, 0 for one that is not there.
pub(super) fn full(program: &Program, b: Buffer) -> u64 {
    let Some(data) = program.buffers.get(b) else { return 0 };
    if data.dims.iter().any(|&n| n <= 0) {
        return 0;
    }
    // As `BufferData::bytes`, whatever the extents.
    let elements = match &data.strides {
        None => data.dims.iter().map(|&n| count(n)).fold(1, u64::saturating_mul),
        Some(strides) => {
            let reach = |(&n, s): (&i64, &i64)| (count(n) - 1).saturating_mul(s.unsigned_abs());
            data.dims.iter().zip(strides).map(reach).fold(1, u64::saturating_add)
        }
    };
    match data.storage {
        Storage::Plain => elements.saturating_mul(data.dtype.bytes()),
        Storage::Packed(bits) => {
            elements.saturating_mul(bits.into()).div_ceil(32).saturating_mul(4)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::text::parse;
    use adfuse_ir::kernel::{Operand, Step};

    /// Elements of `%x` that each piece of the loads touches.
    fn touched(dims: &str, domain: &str, loads: &str) -> Vec<u64> {
        let text = format!(
            "program @f {{ input %x: f32{dims} input %at: i32[8] kernel @k {domain} {{
               stage [] {{ {loads} }} }} return }}"
        );
        let program = parse(&text).expect("reads");
        let Step::Kernel(k) = &program.steps[0] else { panic!("a kernel") };
        let places = IterationSpace::new(&k.domain, k.domain.len());
        let params = &k.stages[0].params;
        let masks = places.params(params);
        let mut found = Vec::new();
        for param in params {
            let Param::Load(pieces) = param else { continue };
            for piece in pieces {
                let Operand::Buffer(b) = piece.from else { continue };
                if program.buffers[b].name == "x" {
                    found.push(places.elements(&program.buffers[b], piece, &masks));
                }
            }
        }
        found
    }

    #[test]
    fn a_load_touches_what_its_expressions_reach() {
        for (dims, domain, loads, due) in [
            ("[4, 6]", "[4, 6]", "p0 = load %x[d0, d1]", vec![24]),
            // Broadcasts: the other coordinate is not in the expressions.
            ("[6]", "[4, 6]", "p0 = load %x[d1]", vec![6]),
            ("[]", "[4, 6]", "p0 = load %x[]", vec![1]),
            // Slices, strided ones among them, and no more than the buffer has.
            ("[9, 6]", "[4, 6]", "p0 = load %x[d0 * 2 + 1, d1]", vec![24]),
            ("[4]", "[4, 6]", "p0 = load %x[d1 - 1]", vec![4]),
            // A diagonal, rows in twos, and a row again and again.
            ("[4, 4]", "[4]", "p0 = load %x[d0, d0]", vec![4]),
            ("[8]", "[8]", "p0 = load %x[d0 / 4]", vec![2]),
            ("[8]", "[8]", "p0 = load %x[d0 % 3]", vec![3]),
            ("[8]", "[0]", "p0 = load %x[d0]", vec![0]),
            // A reshape: 24 places however they are written.
            ("[4, 6]", "[24]", "p0 = load %x[d0 / 6, d0 % 6]", vec![24]),
            // The halves of a concatenation, and the middle of a padded axis.
            (
                "[10, 2]",
                "[8, 2]",
                "p0 = load %x[d0, d1] when d0 in [0, 3) else %x[d0 + 2, d1]",
                vec![6, 16],
            ),
            (
                "[10]",
                "[12]",
                "p0 = load %x[d0 / 2] when d0 * 2 in [0, 5) and d0 / 2 in [0, 9) else f32(0.0)",
                vec![3],
            ),
            // Rows selected by data: at most one for each point, and at most their range.
            (
                "[500, 2]",
                "[8, 2]",
                "p0 = load %at[d0] p1 = load %x[clamp(p0, 0, 499), d1]",
                vec![16],
            ),
            ("[500, 2]", "[8, 2]", "p0 = load %at[d0] p1 = load %x[clamp(p0, 0, 2), d1]", vec![6]),
        ] {
            assert_eq!(touched(dims, domain, loads), due, "{loads} over {domain}");
        }
    }
}
