//! How a product is cut: what multiplies, tiles of sums, steps and parts of the depth, and where all of it
//! lies in shared memory.

use super::mma_unit::Unit;
use super::operand_path::{Way, way};
use super::shape::volume;
use crate::gpu::target::Target;
use adfuse_ir::kernel::{Member, Program};
use adfuse_ir::{DType, Fp};

/// Products in a chunk.
pub(crate) const CHUNK: i64 = 512;
/// Threads along each side of a tile of sums that fused multiply-adds make.
pub(crate) const SIDE: i64 = 16;
/// Blocks that leave no more than a few multiprocessors without one.
const FILLS: i64 = 100;
/// Multiprocessors of the chips that programs are planned for.
const CHIP: i64 = 132;
/// Bytes of the sums of parts, at most.
const MOST_BESIDE: i64 = 64 << 20;

/// An operand of a product.
pub(crate) struct Operand {
    pub(crate) way: Way,
    /// Whether neighbours in shared memory are along the depth, not across it.
    pub(crate) along: bool,
    /// Bytes from one line of neighbours to the next.
    pub(crate) pitch: i64,
    /// Bytes before it in a stage.
    pub(crate) offset: i64,
}

/// The sizes of a product.
pub(crate) struct Cut {
    pub(crate) unit: Unit,
    /// Rows and columns of a tile.
    pub(crate) side: [i64; 2],
    /// Warps along each side.
    pub(crate) warps: [i64; 2],
    pub(crate) threads: i64,
    /// Blocks that shall fit a multiprocessor.
    pub(crate) resident: u32,
    /// Depth of a step.
    pub(crate) deep: i64,
    /// Steps in shared memory at a time, and the bytes of one.
    pub(crate) stages: i64,
    pub(crate) stage: i64,
    /// The type of operands in shared memory, and their bytes there.
    pub(crate) held: DType,
    pub(crate) size: i64,
    pub(crate) operands: [Operand; 2],
    /// Steps of the whole depth.
    pub(crate) steps: i64,
    /// Parts of the depth, each by blocks of its own, and the steps of a part.
    pub(crate) parts: i64,
    pub(crate) per: i64,
}

/// A size of tiles to choose: sides, warps along them, and blocks on a multiprocessor.
type Choice = ([i64; 2], [i64; 2], u32);

impl Cut {
    /// Tiles as large as leaves every multiprocessor some. Where results are few and the depth is long, blocks
    /// share the depth: in strict mode by its chunks, whose sums the order names.
    pub(crate) fn of(program: &Program, m: &Member, fp: Fp, target: Target) -> Cut {
        let unit = Unit::of(m, fp);
        let held = unit.held(m.sum);
        let size = match unit {
            Unit::Half(_) => 2,
            _ => held.bytes().max(4) as i64,
        };
        let ways = [way(program, m, 0, unit, held), way(program, m, 1, unit, held)];
        let [rows, cols, depth] = [volume(&m.rows), volume(&m.cols), volume(&m.depth)];
        let lines = volume(&m.batch);
        let sum_size = m.sum.bytes().max(4) as i64;
        let result = lines.saturating_mul(rows).saturating_mul(cols).saturating_mul(sum_size);
        let computed = ways.iter().any(|w| matches!(w, Way::Computed { .. }));
        let choices: &[Choice] = match unit {
            Unit::Fma if size == 8 => &[([64, 64], [4, 2], 2), ([32, 32], [4, 2], 2)],
            // What feeds compute needs registers beside the sums.
            Unit::Fma if computed => {
                &[([128, 128], [4, 2], 1), ([64, 64], [4, 2], 2), ([32, 32], [4, 2], 2)]
            }
            Unit::Fma => &[([128, 128], [4, 2], 2), ([64, 64], [4, 2], 2), ([32, 32], [4, 2], 2)],
            _ if computed => {
                &[([128, 128], [2, 4], 1), ([64, 64], [2, 2], 2), ([32, 32], [2, 2], 2)]
            }
            _ => &[
                ([256, 128], [4, 2], 1),
                ([128, 128], [2, 2], 2),
                ([64, 64], [2, 2], 4),
                ([32, 32], [2, 2], 4),
            ],
        };
        let chunks = (depth + CHUNK - 1) / CHUNK;
        let fits = MOST_BESIDE / result.max(1);
        let most = match fp {
            _ if !matches!(m.sum, DType::F32 | DType::F64) => 1,
            Fp::Strict if chunks > fits => 1,
            _ => chunks.min(fits).max(1),
        };
        let blocks = |side: [i64; 2]| {
            let along = |n: i64, k: usize| (n + side[k] - 1) / side[k];
            lines.saturating_mul(along(rows, 0)).saturating_mul(along(cols, 1))
        };
        let chosen = choices.iter().enumerate().find(|&(k, &(side, ..))| {
            let wide = rows.min(cols) > side[0].min(side[1]) / 2;
            // The largest tiles are alone on a multiprocessor, and have to be enough by themselves.
            let alone = side[0] > side[1];
            let enough = match alone {
                true => rows > side[0] / 2 && blocks(side) >= CHIP,
                false => blocks(side).saturating_mul(most) >= FILLS,
            };
            k + 1 == choices.len() || wide && enough
        });
        let (side, warps, resident) = chosen.map_or(([32, 32], [4, 2], 2), |(_, &choice)| choice);
        let few = blocks(side) < FILLS && most > 1;
        let parts = match fp {
            _ if !few => 1,
            Fp::Strict => chunks,
            _ => most.min((2 * CHIP + blocks(side) - 1) / blocks(side).max(1)).max(1),
        };
        // Where there is one block, and shared memory for it, longer steps have fewer barriers.
        let alone = side[0] > side[1];
        let line = if alone && target >= Target::Sm90 { 128 } else { 64 };
        let (deep, stages) = match unit {
            Unit::Fma => (16, if side[0] == 128 { 2 } else { 4 }),
            _ => (line / size, if line == 128 { 3 } else { 4 }),
        };
        let of_part = (chunks + parts - 1) / parts.max(1);
        let (per, parts) = match parts {
            1 => ((depth + deep - 1) / deep, 1),
            _ => (of_part * CHUNK / deep, (chunks + of_part - 1) / of_part.max(1)),
        };
        let mut offset = 0;
        let operands = [0, 1].map(|k| {
            let way = ways[k];
            let (along, pad) = match unit {
                Unit::Fma => (false, 16),
                _ if way.along() => (true, 16),
                Unit::Half(_) => (false, 16),
                // Eight words from line to line: threads read single words here.
                Unit::Tf32 => (false, 32),
            };
            let (near, far) = if along { (deep, side[k]) } else { (side[k], deep) };
            let operand = Operand { way, along, pitch: near * size + pad, offset };
            offset += far * operand.pitch;
            operand
        });
        Cut {
            unit,
            side,
            warps,
            threads: warps[0] * warps[1] * 32,
            resident,
            deep,
            stages,
            stage: offset,
            held,
            size,
            operands,
            steps: (depth + deep - 1) / deep,
            parts,
            per,
        }
    }

    /// Sums of a thread along each side, where fused multiply-adds make them.
    pub(crate) fn each(&self, k: usize) -> i64 {
        self.side[k] / SIDE
    }

    /// Neighbours among them: what one load from shared memory has.
    pub(crate) fn near(&self) -> i64 {
        self.each(0).min(16 / self.size)
    }

    /// Where, along a side, is sum `i` of a thread: the part that is a constant.
    pub(crate) fn place(&self, i: i64) -> i64 {
        i / self.near() * (SIDE * self.near()) + i % self.near()
    }

    /// Whether sums of chunks are added up beside the sum of the chunk at hand.
    pub(crate) fn has_totals(&self, sum: DType) -> bool {
        self.unit == Unit::Fma && sum.is_float() && self.per > CHUNK / self.deep
    }

    /// Bytes from row to row where finished sums are in shared memory.
    pub(crate) fn finished(&self, sum: i64) -> i64 {
        self.side[1] * sum + if self.unit == Unit::Fma { 16 } else { 32 }
    }

    /// Bytes of shared memory.
    pub(crate) fn shared(&self, sum: DType) -> i64 {
        let size = sum.bytes().max(4) as i64;
        let totals = if self.has_totals(sum) { self.side[0] * self.side[1] * size } else { 0 };
        let stages = self.stages * self.stage + totals;
        stages.max(self.side[0] * self.finished(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::ptx::mma::each_sum;
    use crate::gpu::ptx::operand_staging::each_element;
    use adfuse_ir::kernel::text::parse;
    use adfuse_ir::kernel::{Step, verify};

    fn cut(text: &str, fp: Fp, check: impl Fn(&Cut, &Member, Target)) {
        let program = verify(parse(text).expect("reads")).expect("verifies");
        let Some(Step::Contract(c)) = program.steps.first() else { panic!("a contraction") };
        for target in Target::ALL {
            check(&Cut::of(&program, &c.members[0], fp, target), &c.members[0], target);
        }
    }

    fn text(t: &str, [batch, rows, cols, depth]: [i64; 4], turned: bool) -> String {
        let sum = if t.ends_with("16") { "f32" } else { t };
        let (dims, at) = match turned {
            false => (format!("{batch}, {cols}, {depth}"), "d0, d1, d2"),
            true => (format!("{batch}, {depth}, {cols}"), "d0, d2, d1"),
        };
        format!(
            "program @f {{
               input %x: {t}[{batch}, {rows}, {depth}]
               input %w: {t}[{dims}]
               output %y: {sum}[{batch}, {rows}, {cols}]
               contract @f {{
                 member batch [{batch}] rows [{rows}] cols [{cols}] depth [{depth}] sum {sum} {{
                   lhs {{ p0 = load %x[d0, d1, d2] s0 = param.{t} 0 out s0 }}
                   rhs {{ p0 = load %w[{at}] s0 = param.{t} 0 out s0 }}
                   then {{ p0 = sum s0 = param.{sum} 0 %y[d0, d1, d2] = store s0 }}
                 }}
               }}
               return %y
             }}"
        )
    }

    /// Every form at some sizes: what is cut is all there is, once, and fits shared memory.
    #[test]
    fn every_element_and_sum_has_one_place() {
        let sizes = [
            [1, 33, 65, 37],
            [1, 128, 128, 9000],
            [110, 80, 96, 64],
            [110, 128, 128, 1100],
            [1, 2048, 4096, 512],
        ];
        for t in ["f32", "bf16", "f64"] {
            for size in sizes {
                for (fp, turned) in [Fp::Strict, Fp::Reproducible, Fp::Fast]
                    .into_iter()
                    .flat_map(|fp| [(fp, false), (fp, true)])
                {
                    cut(&text(t, size, turned), fp, |cut, m, target| {
                        let what = format!("{t} {size:?} {fp:?} {turned} {}", target.name());
                        let most = i64::from(target.shared());
                        assert!(cut.shared(m.sum) <= most, "{what}");
                        assert_eq!(cut.steps, (size[3] + cut.deep - 1) / cut.deep, "{what}");
                        assert!(cut.per * cut.parts >= cut.steps, "{what}");
                        assert!(cut.per * (cut.parts - 1) < cut.steps, "{what}");
                        if cut.parts > 1 {
                            assert_eq!(cut.per * cut.deep % CHUNK, 0, "{what}");
                            // The parts are what the strict order names.
                            assert!(fp != Fp::Strict || cut.per * cut.deep == CHUNK, "{what}");
                        }
                        for side in 0..2 {
                            let places = each_element(cut, side);
                            let wanted = (cut.side[side] * cut.deep) as usize;
                            assert_eq!(places.len(), wanted, "{what}");
                            let operand = &cut.operands[side];
                            let end = [cut.operands[1].offset, cut.stage][side];
                            let inside = |at: &i64| operand.offset <= *at && at + cut.size <= end;
                            assert!(places.values().all(inside), "{what}");
                            let mut distinct: Vec<i64> = places.into_values().collect();
                            distinct.sort_unstable();
                            let apart = |w: &[i64]| w[0] + cut.size <= w[1];
                            assert!(distinct.windows(2).all(apart), "{what}");
                        }
                        let mut sums = each_sum(cut);
                        sums.sort_unstable();
                        let all =
                            (0..cut.side[0]).flat_map(|i| (0..cut.side[1]).map(move |j| [i, j]));
                        assert!(sums.into_iter().eq(all), "{what}");
                    });
                }
            }
        }
    }
}
