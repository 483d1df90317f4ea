//! How a product is tiled: what multiplies, tiles of sums, steps and parts of the depth, and where all of it lies in
//! shared memory.

use super::grid::{Grid, resident_fits};
use super::mma_unit::Unit;
use super::operand_path::{OperandPath, operand_path};
use super::scalar_form::written;
use super::text::{DecisionLine, Line, Reader, Writer, listed, pair, wrong};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Member, Program, volume};
use adfuse_ir::{DType, Diagnostic, Fp};

/// Products in a chunk of the strict order.
pub(crate) const CHUNK: i64 = 512;
/// Threads along each side of a tile of sums that fused multiply-adds make.
pub(crate) const SIDE: i64 = 16;
/// Multiprocessors that tiles may leave without a block: smaller tiles, which keep them busy, read more.
const MOST_IDLE: i64 = 32;
/// Bytes of the sums of parts, at most.
const MOST_PARTIAL_BYTES: i64 = 64 << 20;
/// Instructions after the sums beyond which rows of a tile are finished one at a time.
const HEAVY_EPILOGUE: usize = 40;

/// An operand of a product.
pub(crate) struct StagedOperand {
    pub(crate) path: OperandPath,
    /// Whether neighbours in shared memory are along the depth, not across it.
    pub(crate) along: bool,
    /// Bytes from one line of neighbours to the next.
    pub(crate) pitch: i64,
    /// Bytes before it in a stage.
    pub(crate) offset: i64,
}

/// The sizes of a product.
pub(crate) struct ProductTiling {
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
    pub(crate) operands: [StagedOperand; 2],
    /// Steps of the whole depth.
    pub(crate) steps: i64,
    /// Parts of the depth, each by blocks of its own, and the steps of a part.
    pub(crate) parts: i64,
    pub(crate) per: i64,
    /// Rows of a tile that are finished together.
    pub(crate) epilogue: i64,
    pub(crate) combine: Combine,
}

/// A size of tiles to choose: sides, warps along them, and blocks on a multiprocessor.
type TileSize = ([i64; 2], [i64; 2], u32);

/// How the sums of parts of the depth are added up: by the threads of a grid, this many parts under way at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Combine {
    pub(crate) grid: Grid,
    pub(crate) inflight: i64,
}

impl Default for Combine {
    fn default() -> Combine {
        Combine { grid: Grid::of(128), inflight: 16 }
    }
}

impl Combine {
    /// The lines of a product whose depth is in this many parts; what combines them is said where there are several.
    pub(super) fn write(&self, parts: i64, to: &mut Writer) {
        to.line("split", &[("parts", &parts)]);
        let Combine { grid, inflight } = self;
        if parts > 1 {
            to.line(
                "combine",
                &[("threads", &grid.threads), ("resident", &grid.resident), ("inflight", inflight)],
            );
        }
    }

    /// The number of parts that such lines say, and what combines them.
    pub(super) fn read(from: &mut Reader<'_>) -> Result<(i64, Combine), Diagnostic> {
        let parts = from.line("split", &["parts"])?.int("parts")?;
        let mut combine = Combine::default();
        if parts > 1 {
            let line = from.line("combine", &["threads", "resident", "inflight"])?;
            combine = Combine { grid: Grid::of_line(&line)?, inflight: line.int("inflight")? };
        }
        Ok((parts, combine))
    }
}

/// The choices of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TileDecision {
    pub(crate) unit: Unit,
    /// Whether elements of each operand are copied to shared memory as they are, this many bytes at a time; otherwise
    /// they are computed, and go through registers.
    pub(crate) copied: [Option<i64>; 2],
    /// Rows and columns of a tile, and warps along each.
    pub(crate) side: [i64; 2],
    pub(crate) warps: [i64; 2],
    /// Blocks that a multiprocessor shall have at a time.
    pub(crate) resident: u32,
    /// Depth of a step, and steps in shared memory at a time.
    pub(crate) deep: i64,
    pub(crate) stages: i64,
    /// Parts of the depth, each by blocks of its own (split-k).
    pub(crate) parts: i64,
    /// Rows of a tile that are finished together.
    pub(crate) epilogue: i64,
    pub(crate) combine: Combine,
}

/// The sizes of tiles that a unit has, the largest first.
fn sizes(unit: Unit, size: i64, computed: bool) -> &'static [TileSize] {
    match unit {
        Unit::Fma if size == 8 => &[([64, 64], [4, 2], 2), ([32, 32], [4, 2], 2)],
        // What feeds compute needs registers beside the sums.
        Unit::Fma if computed => {
            &[([128, 128], [4, 2], 1), ([64, 64], [4, 2], 2), ([32, 32], [4, 2], 2)]
        }
        Unit::Fma => &[([128, 128], [4, 2], 2), ([64, 64], [4, 2], 2), ([32, 32], [4, 2], 2)],
        _ if computed => &[([128, 128], [2, 4], 1), ([64, 64], [2, 2], 2), ([32, 32], [2, 2], 2)],
        _ => &[
            ([256, 128], [4, 2], 1),
            ([128, 128], [2, 2], 2),
            ([64, 64], [2, 2], 4),
            ([32, 32], [2, 2], 4),
        ],
    }
}

/// The type of a unit's operands in shared memory, and the bytes of each.
fn staged_type(unit: Unit, sum: DType) -> (DType, i64) {
    let held = unit.held(sum);
    match unit {
        Unit::Half(_) => (held, 2),
        _ => (held, held.bytes().max(4) as i64),
    }
}

/// Chunks of the strict order that the depth has.
fn chunks(m: &Member) -> i64 {
    (volume(&m.depth) + CHUNK - 1) / CHUNK
}

/// Rows of a tile that all threads finish one after the other.
fn epilogue_turns(side: [i64; 2], warps: [i64; 2]) -> i64 {
    side[0] * side[1] / (warps[0] * warps[1] * WARP)
}

impl TileDecision {
    /// Tiles as large as leaves every multiprocessor some. Where results are few and the depth is long, blocks
    /// share the depth: in strict mode by its chunks, whose sums the order names.
    pub(crate) fn of(program: &Program, m: &Member, fp: Fp, target: &GpuTarget) -> TileDecision {
        let unit = Unit::of(m, fp);
        let (held, size) = staged_type(unit, m.sum);
        let paths = [0, 1].map(|k| operand_path(program, m, k, unit, held));
        let [rows, cols] = [volume(&m.rows), volume(&m.cols)];
        let lines = volume(&m.batch);
        let sum_size = m.sum.bytes().max(4) as i64;
        let result = lines.saturating_mul(rows).saturating_mul(cols).saturating_mul(sum_size);
        let computed = paths.iter().any(|w| matches!(w, OperandPath::Computed { .. }));
        let sizes = sizes(unit, size, computed);
        let chunks = chunks(m);
        let fits = MOST_PARTIAL_BYTES / result.max(1);
        let most = match fp {
            _ if !matches!(m.sum, DType::F32 | DType::F64) => 1,
            Fp::Strict if chunks > fits => 1,
            _ => chunks.min(fits).max(1),
        };
        let blocks = |side: [i64; 2]| {
            let along = |n: i64, k: usize| (n + side[k] - 1) / side[k];
            lines.saturating_mul(along(rows, 0)).saturating_mul(along(cols, 1))
        };
        let chip = i64::from(target.multiprocessors);
        let fills = chip - MOST_IDLE;
        let chosen = sizes.iter().enumerate().find(|&(k, &(side, ..))| {
            let wide = rows.min(cols) > side[0].min(side[1]) / 2;
            // The largest tiles are alone on a multiprocessor, and have to be enough by themselves.
            let alone = side[0] > side[1];
            let enough = match alone {
                true => rows > side[0] / 2 && blocks(side) >= chip,
                false => blocks(side).saturating_mul(most) >= fills,
            };
            k + 1 == sizes.len() || wide && enough
        });
        let (side, warps, resident) = chosen.map_or(([32, 32], [4, 2], 2), |(_, &choice)| choice);
        let few = blocks(side) < fills && most > 1;
        let parts = match fp {
            _ if !few => 1,
            Fp::Strict => chunks,
            _ => most.min((2 * chip + blocks(side) - 1) / blocks(side).max(1)).max(1),
        };
        let of_part = (chunks + parts - 1) / parts.max(1);
        let parts = if parts == 1 { 1 } else { (chunks + of_part - 1) / of_part.max(1) };
        // Where there is one block, and shared memory for it, longer steps have fewer barriers.
        let line = if side[0] > side[1] { target.deep_line } else { 64 };
        let (deep, stages) = match unit {
            Unit::Fma => (16, if side[0] == 128 { 2 } else { 4 }),
            _ => (line / size, if line == 128 { 3 } else { 4 }),
        };
        let heavy = written(&m.then.program, fp).insts.len() > HEAVY_EPILOGUE && parts == 1;
        let epilogue = if heavy { 1 } else { epilogue_turns(side, warps).min(4) };
        let combine = Combine::default();
        let copied = paths.map(|p| p.copied());
        TileDecision { unit, copied, side, warps, resident, deep, stages, parts, epilogue, combine }
    }

    /// Errs where the product, whose best choices are known, cannot be made so.
    pub(crate) fn check(
        &self,
        best: &TileDecision,
        (program, m): (&Program, &Member),
        (fp, target): (Fp, &GpuTarget),
    ) -> Result<(), String> {
        let TileDecision { side, warps, deep, stages, parts, epilogue, .. } = *self;
        if self.unit != best.unit {
            return Err(format!("`{}` multiplies these operands, not `{}`", best.unit, self.unit));
        }
        if self.copied != best.copied {
            return Err("operands come to shared memory in another way".to_owned());
        }
        let (_, size) = staged_type(self.unit, m.sum);
        let all = || [true, false].into_iter().flat_map(|c| sizes(self.unit, size, c));
        if !all().any(|&(s, w, _)| (s, w) == (side, warps)) {
            let known = listed(all().map(|&(s, w, _)| format!("{} by {}", pair(s), pair(w))));
            let tile = format!("tiles of {} sums by {} warps", pair(side), pair(warps));
            return Err(format!("there are no {tile}, but {known}"));
        }
        let deeps: &[i64] = if self.unit == Unit::Fma { &[16] } else { &[64 / size, 128 / size] };
        if !deeps.contains(&deep) || !(2..=8).contains(&stages) {
            let all = listed(deeps);
            return Err(format!("steps are {all} deep, 2 to 8 at a time, not {deep} and {stages}"));
        }
        let chunks = chunks(m);
        let split = match fp {
            _ if parts == 1 => true,
            _ if !matches!(m.sum, DType::F32 | DType::F64) || !(1..=chunks).contains(&parts) => {
                false
            }
            Fp::Strict => parts == chunks,
            _ => {
                let of_part = (chunks + parts - 1) / parts;
                (chunks + of_part - 1) / of_part == parts
            }
        };
        if !split {
            return Err(format!("{chunks} chunks of the depth are not split into {parts} parts"));
        }
        let turns = epilogue_turns(side, warps);
        if epilogue < 1 || turns % epilogue != 0 {
            return Err(format!("{turns} rows are not finished {epilogue} at a time"));
        }
        if !(1..=64).contains(&self.combine.inflight) {
            return Err(format!("{} parts are not under way at a time", self.combine.inflight));
        }
        self.combine.grid.check(target)?;
        let tiling = ProductTiling::new(program, m, self);
        let (bytes, most) = (tiling.shared(m.sum), i64::from(target.shared));
        if bytes > most {
            return Err(format!("{bytes} bytes of shared memory are more than {most}"));
        }
        resident_fits(self.resident, tiling.threads, target)
    }
}

impl DecisionLine for TileDecision {
    fn write(&self, to: &mut Writer) {
        let path = |bytes: Option<i64>| bytes.map_or("computed".into(), |n| format!("copy{n}"));
        let [lhs, rhs] = self.copied.map(path);
        to.line("operands", &[("unit", &self.unit), ("lhs", &lhs), ("rhs", &rhs)]);
        let (side, warps) = (pair(self.side), pair(self.warps));
        to.line("tile", &[("sums", &side), ("warps", &warps), ("resident", &self.resident)]);
        to.line("pipeline", &[("depth", &self.deep), ("stages", &self.stages)]);
        to.line("epilogue", &[("unroll", &self.epilogue)]);
        self.combine.write(self.parts, to);
    }

    fn read(from: &mut Reader<'_>) -> Result<TileDecision, Diagnostic> {
        let line = from.line("operands", &["unit", "lhs", "rhs"])?;
        let (name, span) = line.word("unit")?;
        let unit = Unit::named(name);
        let unit = unit.ok_or_else(|| wrong(span, format!("nothing multiplies by `{name}`")))?;
        let path = |line: &Line<'_>, side: &str| match line.word(side)? {
            ("computed", _) => Ok(None),
            ("copy4", _) => Ok(Some(4)),
            ("copy8", _) => Ok(Some(8)),
            ("copy16", _) => Ok(Some(16)),
            (other, span) => Err(wrong(
                span,
                format!(
                    "an operand is read by `computed`, `copy4`, `copy8` or `copy16`, not by `{other}`"
                ),
            )),
        };
        let copied = [path(&line, "lhs")?, path(&line, "rhs")?];
        let line = from.line("tile", &["sums", "warps", "resident"])?;
        let (side, warps) = (line.pair("sums")?, line.pair("warps")?);
        let resident = u32::try_from(line.int("resident")?).unwrap_or(u32::MAX);
        let line = from.line("pipeline", &["depth", "stages"])?;
        let (deep, stages) = (line.int("depth")?, line.int("stages")?);
        let epilogue = from.line("epilogue", &["unroll"])?.int("unroll")?;
        let (parts, combine) = Combine::read(from)?;
        Ok(TileDecision {
            unit,
            copied,
            side,
            warps,
            resident,
            deep,
            stages,
            parts,
            epilogue,
            combine,
        })
    }
}

impl ProductTiling {
    /// Where everything lies that a decision tiles.
    pub(crate) fn new(program: &Program, m: &Member, decision: &TileDecision) -> ProductTiling {
        let TileDecision { unit, side, warps, resident, deep, stages, parts, .. } = *decision;
        let (held, size) = staged_type(unit, m.sum);
        let paths = [0, 1].map(|k| operand_path(program, m, k, unit, held));
        let (depth, chunks) = (volume(&m.depth), chunks(m));
        let per = match parts {
            1 => (depth + deep - 1) / deep,
            _ => (chunks + parts - 1) / parts.max(1) * CHUNK / deep,
        };
        let mut offset = 0;
        let operands = [0, 1].map(|k| {
            let path = paths[k];
            let (along, pad) = match unit {
                Unit::Fma => (false, 16),
                _ if path.along() => (true, 16),
                Unit::Half(_) => (false, 16),
                // Eight words from line to line: threads read single words here.
                Unit::Tf32 => (false, 32),
            };
            let (near, far) = if along { (deep, side[k]) } else { (side[k], deep) };
            let operand = StagedOperand { path, along, pitch: near * size + pad, offset };
            offset += far * operand.pitch;
            operand
        });
        ProductTiling {
            unit,
            side,
            warps,
            threads: warps[0] * warps[1] * WARP,
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
            epilogue: decision.epilogue,
            combine: decision.combine,
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

    fn cut(text: &str, fp: Fp, check: impl Fn(&ProductTiling, &Member, GpuTarget)) {
        let program = verify(parse(text).expect("reads")).expect("verifies");
        let Some(Step::Contract(c)) = program.steps.first() else { panic!("a contraction") };
        for target in GpuTarget::ALL {
            let m = &c.members[0];
            let decision = TileDecision::of(&program, m, fp, &target);
            decision.check(&decision, (&program, m), (fp, &target)).expect("fits");
            check(&ProductTiling::new(&program, m, &decision), m, target);
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
                        let what = format!("{t} {size:?} {fp:?} {turned} {}", target.name);
                        let most = i64::from(target.shared);
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
