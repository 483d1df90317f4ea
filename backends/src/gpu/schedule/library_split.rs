//! A program as a device runs it: in the modes that let a library multiply, a product that it multiplies
//! stands alone, with what is done to its operands and its sums in kernels of their own.

use super::capabilities::CAPABILITIES;
use super::convolution::{WindowForm, WindowTile};
use super::library_product::{Product, UNEVEN, is_stored, lies, stored};
use super::measured_product::fastest;
use super::warpgroup_form::{JointRun, WarpgroupForm, joint_runs};
use super::warpgroup_price::{BANDWIDTH, LAUNCH, LIBRARY_DEEP_RATE, LIBRARY_FINISH, slower};
use super::warpgroup_tile::WarpgroupTile;
use crate::gpu::target::GpuTarget;
use crate::runtime::legalize::legalize;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Buffer, BufferData, Contract, Extents, Feed, Kernel, Member, Operand, Param, Piece,
    ProductTimes, ProductWay, Program, Role, Sink, Stage, Step, Verified, verify, volume,
};
use adfuse_ir::scalar::Recorder;
use adfuse_ir::types::MAX_RANK;
use adfuse_ir::{At, DType, Diagnostic, Fp, Kind};
use smallvec::SmallVec;

/// A program, divided.
// Without the driver nothing reads which products a library makes.
#[cfg_attr(not(feature = "gpu"), allow(dead_code))]
pub(crate) struct Divided {
    /// What runs.
    pub(crate) program: Verified<Program>,
    /// For each step, the number of the one it was made of.
    pub(crate) origin: Vec<usize>,
    /// For each step, the products that a library makes of it; none where kernels of the engine's own do.
    pub(crate) products: Vec<Option<Product>>,
}

/// What a division depends on.
#[derive(Clone, Copy)]
pub(crate) struct DivisionContext<'a> {
    /// What may happen to numbers.
    pub(crate) fp: Fp,
    pub(crate) target: &'a GpuTarget,
    /// Whether there is a library that multiplies.
    pub(crate) library: bool,
    /// Times of products that were measured.
    pub(crate) products: &'a ProductTimes,
}

/// Divides a program.
///
/// # Errors
/// [`Kind::Internal`] where what comes out breaks a rule of programs.
pub(crate) fn divided(
    given: &Verified<Program>,
    context: DivisionContext<'_>,
) -> Result<Divided, Diagnostic> {
    let parts = split(given, context)?;
    let products = parts.multiplied(context.fp, context.library);
    let SplitProgram { program, origin, .. } = parts;
    let at = At { func: Some(program.name.clone()), ..At::default() };
    let program = verify(program).map_err(|errors| {
        let why = errors.first().map_or(String::new(), ToString::to_string);
        Diagnostic::new(at, Kind::Internal, format!("a program was divided wrongly: {why}"))
    })?;
    Ok(Divided { origin, products, program })
}

/// A program that is divided, but not verified.
pub(crate) struct SplitProgram {
    pub(crate) program: Program,
    /// For each step, the number of the one it was made of.
    pub(crate) origin: Vec<usize>,
    /// For each step, whether it is no product for a library, since that was measured to take longer.
    own: Vec<bool>,
}

impl SplitProgram {
    /// The products of each step that a library makes.
    pub(crate) fn multiplied(&self, fp: Fp, library: bool) -> Vec<Option<Product>> {
        let of = |(step, &own): (&Step, &bool)| match step {
            Step::Contract(c) if library && !own && fp != Fp::Strict => {
                match c.members.as_slice() {
                    [m] => Product::of(&self.program, m).filter(Product::is_worth_a_call),
                    _ => None,
                }
            }
            _ => None,
        };
        self.program.steps.iter().zip(&self.own).map(of).collect()
    }
}

/// The steps of [`divided`].
///
/// # Errors
/// As there.
pub(crate) fn split(
    given: &Program,
    context: DivisionContext<'_>,
) -> Result<SplitProgram, Diagnostic> {
    let multiplies = context.library && context.fp != Fp::Strict;
    let legal = legalize(given, &CAPABILITIES)?;
    let mut making = Making { program: legal.program, steps: Vec::new(), own: Vec::new() };
    let steps = std::mem::take(&mut making.program.steps);
    for (n, step) in legal.origin.into_iter().zip(steps) {
        match step {
            Step::Contract(c) if multiplies => making.divide(n, &c, context),
            step => making.steps.push((n, step)),
        }
    }
    let Making { mut program, steps, own } = making;
    let own = (0..steps.len()).map(|n| own.contains(&n)).collect();
    let (origin, steps): (Vec<usize>, Vec<Step>) = steps.into_iter().unzip();
    program.steps = steps;
    Ok(SplitProgram { program, origin, own })
}

struct Making {
    program: Program,
    steps: Vec<(usize, Step)>,
    /// The steps that no library does, by number.
    own: Vec<usize>,
}

impl Making {
    /// A contraction: products that stand alone where a library multiplies all of its members, itself
    /// otherwise.
    fn contract(&mut self, n: usize, c: &Contract) {
        let (buffers, steps) = (self.program.buffers.len(), self.steps.len());
        for m in &c.members {
            if self.member(n, &c.name, m).is_none() {
                // What was made for members before is taken back.
                self.steps.truncate(steps);
                let kept = self.program.buffers.iter().take(buffers);
                self.program.buffers = kept.map(|(_, data)| data.clone()).collect();
                self.steps.push((n, Step::Contract(c.clone())));
                return;
            }
        }
    }

    /// A contraction: members that were measured go the way that was the fastest, the others the one that has the lower price.
    fn divide(&mut self, n: usize, c: &Contract, context: DivisionContext<'_>) {
        let DivisionContext { fp, target, products, .. } = context;
        let contract = |members: &[&Member]| Contract {
            name: c.name.clone(),
            members: members.iter().map(|&m| m.clone()).collect(),
        };
        let [mut own, mut library, mut priced] = [const { Vec::new() }; 3];
        for m in &c.members {
            match fastest(products, (&self.program, m), (fp, target), true) {
                Some((ProductWay::Library, _)) => library.push(m),
                Some(_) => own.push(m),
                None => priced.push(m),
            }
        }
        if !own.is_empty() {
            self.own.push(self.steps.len());
            self.steps.push((n, Step::Contract(contract(&own))));
        }
        if !library.is_empty() {
            self.contract(n, &contract(&library));
        }
        let of = |m: &Member| WarpgroupForm::of(&self.program, m, (fp, target));
        let runs = joint_runs(priced.iter().copied(), of);
        let is_better = |run: &JointRun<'_>| self.is_better_whole(run, (fp, target));
        if runs.iter().all(is_better) && !priced.is_empty() {
            self.steps.push((n, Step::Contract(contract(&priced))));
        } else if !priced.is_empty() {
            self.contract(n, &contract(&priced));
        }
    }

    /// Whether kernels of the engine's own, by warpgroups in one grid or of windows, have a lower price than the library and what
    /// it needs before and after them.
    fn is_better_whole(&self, run: &JointRun<'_>, (fp, target): (Fp, &GpuTarget)) -> bool {
        // Products whose operands lie as the library takes them were measured with the prices as they are.
        let idle = |m: &Member| match self.is_copied(m) {
            true => idle_seconds(m, fp, target),
            false => 0.0,
        };
        let by_library =
            run.iter().map(|(m, _)| self.library_seconds(m, fp) + idle(m)).sum::<f64>();
        let own = match run.as_slice() {
            [(m, None)] => self.window_seconds(m, (fp, target)),
            run => {
                let products: Vec<&Member> = run.iter().map(|(m, _)| *m).collect();
                let tile = WarpgroupTile::of(&self.program, &products, (fp, target));
                Some(tile.seconds(&self.program, &products, (fp, target)))
            }
        };
        own.is_some_and(|own| own < by_library)
    }

    /// Seconds of a product of windows that are not stored; `None` where it is none. What folds its sums reads them once more.
    fn window_seconds(&self, m: &Member, (fp, target): (Fp, &GpuTarget)) -> Option<f64> {
        let form = WindowForm::of(&self.program, m, fp)?;
        let tile = WindowTile::of(&form, m, target)?;
        let tiling = tile.fits(&form, m, target).ok()?;
        let folds = m.then.sinks.iter().filter(|sink| matches!(sink, Sink::Fold { .. })).count();
        let bytes = volume(&m.result()) as f64 * m.sum.bytes() as f64;
        let read = folds as f64 * (LAUNCH + bytes / BANDWIDTH);
        let laid_out = form.laid_out.map_or(0.0, |layout| LAUNCH + layout.bytes(m) / BANDWIDTH);
        Some(tile.seconds(&form, m, &tiling, target) + read + laid_out)
    }

    /// Seconds that the library takes for a product, with kernels for operands and sums that it does not take as they are.
    fn library_seconds(&self, m: &Member, fp: Fp) -> f64 {
        let all = |groups: [&Extents; 3]| {
            groups.iter().flat_map(|g| g.iter()).map(|&n| n as f64).product::<f64>()
        };
        let size = |d: DType| d.bytes() as f64;
        let mut seconds = product_seconds(m, fp);
        // Of wider elements that was not measured.
        if element(&m.lhs).bytes() == 2 && self.is_uneven(m) {
            seconds *= UNEVEN;
        }
        for (feed, free) in [(&m.lhs, &m.rows), (&m.rhs, &m.cols)] {
            let groups = [&m.batch, free, &m.depth];
            if lies(&self.program, feed, groups).is_none() {
                seconds += LAUNCH + 2.0 * size(element(feed)) * all(groups) / BANDWIDTH;
            }
        }
        if !is_stored(&self.program, m) {
            // Sums are written and read once more than they would be.
            let groups = [&m.batch, &m.rows, &m.cols];
            seconds += LAUNCH + 2.0 * size(m.sum) * all(groups) / BANDWIDTH;
            let folds = m.then.sinks.iter().filter(|sink| matches!(sink, Sink::Fold { .. }));
            seconds += folds.count() as f64 * (LAUNCH + size(m.sum) * all(groups) / BANDWIDTH);
        }
        seconds
    }

    /// Whether an operand is stored for the library.
    fn is_copied(&self, m: &Member) -> bool {
        let lies_so = |feed: &Feed, free: &Extents| {
            lies(&self.program, feed, [&m.batch, free, &m.depth]).is_some()
        };
        !(lies_so(&m.lhs, &m.rows) && lies_so(&m.rhs, &m.cols))
    }

    /// Whether the library multiplies at a part of its rate; operands and sums that are stored for it have the depth and the columns along their
    /// lines.
    fn is_uneven(&self, m: &Member) -> bool {
        let count = |extents: &Extents| volume(extents).unsigned_abs();
        let [rows, cols, depth] = [&m.rows, &m.cols, &m.depth].map(count);
        let even = |n: u64, dtype: DType| (n * dtype.bytes()).is_multiple_of(16);
        let operand = |feed: &Feed, free: &Extents| match lies(
            &self.program,
            feed,
            [&m.batch, free, &m.depth],
        ) {
            Some(matrix) => matrix.is_uneven([count(free), depth], true),
            None => !even(depth, element(feed)),
        };
        let sums = match stored(&self.program, &m.then, [&m.batch, &m.rows, &m.cols]) {
            Some(matrix) => matrix.is_uneven([rows, cols], false),
            None => !even(cols, m.sum),
        };
        sums || operand(&m.lhs, &m.rows) || operand(&m.rhs, &m.cols)
    }

    fn member(&mut self, n: usize, name: &str, m: &Member) -> Option<()> {
        let mut alone = m.clone();
        let result = m.result();
        if result.len() > MAX_RANK {
            return None;
        }
        let [(_, lhs, over), (_, rhs, under)] = m.feeds();
        let mut operands = Vec::new();
        for (feed, extents, free) in [(lhs, over, &m.rows), (rhs, under, &m.cols)] {
            if lies(&self.program, feed, [&m.batch, free, &m.depth]).is_some() {
                operands.push(feed.clone());
                continue;
            }
            if extents.len() > MAX_RANK {
                return None;
            }
            let to = self.temp(name, element(feed), extents.clone());
            let stage = Stage {
                axes: Extents::new(),
                params: feed.params.clone(),
                program: feed.program.clone(),
                sinks: vec![store(to, extents.len())],
            };
            self.kernel(n, format!("{name}.operand"), extents.clone(), stage);
            operands.push(plain(to, extents.len(), feed));
        }
        alone.rhs = operands.pop()?;
        alone.lhs = operands.pop()?;
        let product = Product::of(&self.program, &alone);
        let (product, then) = match product {
            Some(product) => (product, None),
            None => {
                let sums = self.temp(name, m.sum, result.clone());
                alone.then = Stage::storing(m.sum, sums, m.sum, axes(result.len()));
                (Product::of(&self.program, &alone)?, Some(sums))
            }
        };
        if !product.is_worth_a_call() {
            return None;
        }
        let contract = Contract { name: name.into(), members: SmallVec::from_iter([alone]) };
        self.steps.push((n, Step::Contract(contract)));
        if let Some(sums) = then {
            let mut stage = m.then.clone();
            let rank = result.len();
            for param in stage.params.iter_mut().filter(|p| **p == Param::Sum) {
                *param = load(sums, rank);
            }
            self.kernel(n, format!("{name}.then"), result, stage);
        }
        Some(())
    }

    fn temp(&mut self, name: &str, dtype: DType, dims: Extents) -> Buffer {
        let name = format!("{name}.{}", self.program.buffers.len());
        self.program.buffers.push(BufferData::new(name, dtype, dims, Role::Temp))
    }

    fn kernel(&mut self, n: usize, name: String, domain: Extents, stage: Stage) {
        let kernel = Kernel { name, domain, stages: vec![stage], ..Kernel::default() };
        self.steps.push((n, Step::Kernel(kernel)));
    }
}

/// Seconds in which the library multiplies operands that lie as it takes them, where its tiles fill the chip.
fn product_seconds(m: &Member, fp: Fp) -> f64 {
    let all = [&m.batch, &m.rows, &m.cols].into_iter().flatten();
    let sums: f64 = all.map(|&n| n as f64).product();
    let depth: f64 = m.depth.iter().map(|&n| n as f64).product();
    2.0 * sums * (depth + LIBRARY_FINISH) * slower(m, fp)[1] / LIBRARY_DEEP_RATE
}

/// Sums of a side of the library's tiles, and into how many parts it divides a long depth of few tiles: gradients of filters of 64 x
/// 256 and 128 x 512, whose depths are 100,352 and 25,088, are multiplied at 24 and 59 TFLOP/s on an H200, that of 128 x 1,152 at 74.
const LIBRARY_TILE: f64 = 128.0;
const LIBRARY_PARTS: f64 = 2.0;

/// Seconds more that the library takes where its tiles leave multiprocessors idle.
fn idle_seconds(m: &Member, fp: Fp, target: &GpuTarget) -> f64 {
    let tiles = [&m.rows, &m.cols].map(|n| (volume(n) as f64 / LIBRARY_TILE).ceil());
    let busy = volume(&m.batch) as f64 * tiles[0] * tiles[1] * LIBRARY_PARTS;
    let idle = f64::from(target.multiprocessors) / busy;
    (idle - 1.0).max(0.0) * product_seconds(m, fp)
}

fn axes(n: usize) -> SmallVec<[IndexExpr; 4]> {
    (0..n).map(IndexExpr::axis).collect()
}

fn load(b: Buffer, rank: usize) -> Param {
    let piece = Piece { from: Operand::Buffer(b), index: axes(rank), guards: SmallVec::new() };
    Param::Load(SmallVec::from_iter([piece]))
}

fn store(buffer: Buffer, rank: usize) -> Sink {
    Sink::Store { buffer, index: axes(rank) }
}

/// The feed that reads what another has computed.
fn plain(b: Buffer, rank: usize, of: &Feed) -> Feed {
    let program = Recorder::record_any(&[element(of)], |x| x[0]);
    Feed { params: vec![load(b, rank)], program }
}

/// The type of what a feed computes, of which there is one: the verifier has seen to it.
fn element(feed: &Feed) -> DType {
    feed.program.outputs.first().map_or(DType::F32, |&v| feed.program.insts[v].dtype)
}
