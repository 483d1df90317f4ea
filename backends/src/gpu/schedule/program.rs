//! The schedule of a program on a GPU: for each step its pieces of work, each with the decisions made for it.

use super::attention::{AttentionForm, ScheduledAttention};
use super::binding::{BlockBinding, BoundBlock, ElementCopy, bound};
use super::bundle::SharedLaunches;
use super::column_folds::ColumnFold;
use super::concurrency::{ConcurrentSteps, concurrent_steps};
use super::context::ScheduleContext;
use super::convolution::{WindowForm, WindowTile};
use super::elementwise::{Elementwise, FlatGrid};
use super::fold::{self, FoldDecision, FoldLoop};
use super::given::{Given, GivenProgram};
use super::grid::Grid;
use super::product;
use super::row_decision::RowDecision;
use super::rows::RowKernel;
use super::scalar_form::written;
use super::scatter::{self, ScatterDecision};
use super::scheduled::Scheduled;
use super::shape::internal;
use super::sort::{self, SortDecision};
use super::text::{DecisionLine, wrong};
use super::tiling::TileDecision;
use super::transpose_tile::{ScheduledTranspose, TransposeTile};
use super::tree_fold::{self, Tree};
use super::user_call::{CallWork, UserLaunch};
use super::warpgroup;
use super::warpgroup_form::WarpgroupWork;
use super::warpgroup_tile::WarpgroupTile;
use super::work::{Flat, Home, Join, Lowering, Sort, Work};
use crate::gpu::target::GpuTarget;
use adfuse_ir::kernel::{
    Buffer, Kernel, Member, Program, Scatter, Step, Storage, Verified, volume,
};
use adfuse_ir::{At, Diagnostic, Fp, Kind, Span};
use cranelift_entity::SecondaryMap;

/// A program as a GPU runs it, decided.
pub struct GpuSchedule {
    /// The name of the program.
    pub(crate) name: String,
    pub(crate) target: GpuTarget,
    pub(crate) fp: Fp,
    /// The given program with the buffers that were added, and where those are.
    pub(crate) program: Program,
    pub(crate) homes: SecondaryMap<Buffer, Home>,
    /// What comes before the first step, and after the last.
    pub(crate) enter: StepSchedule,
    pub(crate) leave: StepSchedule,
    pub(crate) steps: Vec<StepSchedule>,
    /// Which of them run side by side, in their order; none of a block.
    pub(crate) concurrent: Vec<ConcurrentSteps>,
    /// Where the inputs and outputs of a block are.
    pub(crate) bindings: SecondaryMap<Buffer, BlockBinding>,
    /// What is copied at each turn before the first step of a block, and after its last.
    pub(crate) copies: [Vec<ElementCopy>; 2],
}

/// The schedule of a program that a step runs.
pub(crate) struct BlockSchedule {
    /// What it is to the step.
    pub(crate) role: String,
    pub(crate) schedule: GpuSchedule,
}

/// The work of a step, decided.
#[derive(Default)]
pub(crate) struct StepSchedule {
    pub(crate) works: Vec<Scheduled>,
    /// Bytes beside the buffers.
    pub(crate) scratch: u64,
    /// The programs that the step runs.
    pub(crate) blocks: Vec<BlockSchedule>,
}

/// Makes the schedule of a program: the engine's own decisions.
///
/// # Errors
/// Where a step has no lowering ([`adfuse_ir::Kind::Unsupported`]) or outgrows what a launch can have; the error names
/// the step.
pub fn schedule(
    program: &Verified<Program>,
    target: GpuTarget,
    fp: Fp,
) -> Result<GpuSchedule, Diagnostic> {
    schedule_but(program, ScheduleContext::new(target, fp), &[])
}

/// The same without the steps for which `done` says that something else does them: they have no work.
///
/// # Errors
/// As [`schedule`].
pub fn schedule_but(
    program: &Program,
    context: ScheduleContext<'_>,
    done: &[bool],
) -> Result<GpuSchedule, Diagnostic> {
    made(program, context, done, None, None)
}

/// A schedule by decisions that are given, or by the engine's own.
pub(crate) fn scheduled(
    program: &Verified<Program>,
    context: ScheduleContext<'_>,
    done: &[bool],
    given: Option<GivenProgram<'_>>,
) -> Result<GpuSchedule, Diagnostic> {
    made(program, context, done, given, None)
}

/// The schedule of a program, or of one that a step runs.
fn made(
    program: &Program,
    context: ScheduleContext<'_>,
    done: &[bool],
    given: Option<GivenProgram<'_>>,
    block: Option<BoundBlock<'_>>,
) -> Result<GpuSchedule, Diagnostic> {
    let mut low = Lowering::new(program, context);
    low.in_block = block.is_some();
    let within = |d: Diagnostic, step: Option<usize>| {
        let inst =
            step.and_then(|n| Some(format!("step {n}: {}", program.steps.get(n)?.title()).into()));
        let at = At { func: Some(program.name.clone()), inst: inst.or(d.at.inst), ..d.at };
        Diagnostic { at, ..d }
    };
    let concurrent = match &given {
        _ if block.is_some() => Vec::new(),
        Some(given) => given.concurrent.clone(),
        None => concurrent_steps(program, (&context.target, context.fp)),
    };
    let (sections, mut inner) =
        given.map_or((None, None), |given| (Some(given.sections), Some(given.blocks.into_iter())));
    let mut sections = sections.map(Vec::into_iter);
    // An error in a block says where it is.
    let around = |d: Diagnostic, n: usize| match d.at.func {
        Some(_) => d,
        None => within(d, Some(n)),
    };
    let mut next = || sections.as_mut().map(|all| all.next().unwrap_or_default());
    // What a block is given and gives has the layout of what is around it.
    let works = if block.is_none() { low.copies(true) } else { Ok(Vec::new()) };
    let enter = works.and_then(|works| decided(&mut low, next(), works, false));
    let enter = enter.map_err(|d| within(d, None))?;
    let mut steps = Vec::new();
    for (n, step) in program.steps.iter().enumerate() {
        let given = next();
        let works = match done.get(n) {
            Some(true) => Ok(Vec::new()),
            _ => low.step(step),
        };
        let shares = matches!(step, Step::Bundle(_));
        let made = works.and_then(|works| decided(&mut low, given, works, shares));
        let mut made = made.map_err(|d| within(d, Some(n)))?;
        let given = inner.as_mut().map(|all| all.next().unwrap_or_default());
        made.blocks = block_schedules(step, context, given).map_err(|d| around(d, n))?;
        steps.push(made);
    }
    let works = if block.is_none() { low.copies(false) } else { Ok(Vec::new()) };
    let leave = works.and_then(|works| decided(&mut low, next(), works, false));
    let leave = leave.map_err(|d| within(d, None))?;
    let name = program.name.clone();
    let Lowering { program, homes, target, fp, .. } = low;
    let (bindings, copies) =
        block.map_or_else(Default::default, |block| (block.bindings, [block.before, block.after]));
    Ok(GpuSchedule {
        name,
        target,
        fp,
        program,
        homes,
        enter,
        leave,
        steps,
        concurrent,
        bindings,
        copies,
    })
}

/// The schedules of the programs that a step runs.
fn block_schedules(
    step: &Step,
    context: ScheduleContext<'_>,
    given: Option<Vec<(&str, GivenProgram<'_>)>>,
) -> Result<Vec<BlockSchedule>, Diagnostic> {
    let mut given = given.map(Vec::into_iter);
    let mut all = Vec::new();
    for block in bound(step) {
        let role = block.role.clone();
        let own = match given.as_mut().map(Iterator::next) {
            None => None,
            Some(Some((found, own))) if found == role => Some(own),
            Some(_) => {
                let m = format!("the decisions of the program `{role}` are missing");
                return Err(Diagnostic::new(At::default(), Kind::Syntax, m));
            }
        };
        let schedule = made(block.program, context, &[], own, Some(block))?;
        all.push(BlockSchedule { role, schedule });
    }
    match given.and_then(|mut given| given.next()) {
        Some((role, _)) => {
            let m = format!("the step has no program `{role}`");
            Err(Diagnostic::new(At::default(), Kind::Usage, m))
        }
        None => Ok(all),
    }
}

/// The work of one step, decided; `shares` says whether pieces may share a launch.
fn decided(
    low: &mut Lowering,
    given: Option<Given<'_>>,
    works: Vec<Work>,
    shares: bool,
) -> Result<StepSchedule, Diagnostic> {
    let mut decider = Scheduler { low, given, works: Vec::new() };
    works.into_iter().try_for_each(|work| decider.work(work))?;
    if shares && !decider.works.is_empty() {
        decider.bundle()?;
    }
    let Scheduler { low, given, works } = decider;
    if let Some((name, reader)) = given.and_then(|mut given| given.pop_front()) {
        return Err(wrong(reader.head, format!("there is no such work `{name}`")));
    }
    Ok(StepSchedule { works, scratch: low.ended()?, blocks: Vec::new() })
}

/// Pieces of work, of those that are elementwise.
fn elementwise(works: &[Scheduled]) -> Vec<Option<&Elementwise>> {
    let found = works.iter().map(|work| match work {
        Scheduled::Elementwise(e) => Some(e),
        _ => None,
    });
    found.collect()
}

/// Decides the work of one step, a piece after the other.
struct Scheduler<'l, 't> {
    low: &'l mut Lowering,
    given: Option<Given<'t>>,
    works: Vec<Scheduled>,
}

/// A decision, and where it was read.
type Placed<D> = (D, Option<Span>);

/// What a decision gives; where it does not fit, an error at its place.
fn fits<T>(found: Result<T, String>, span: Option<Span>) -> Result<T, Diagnostic> {
    found.map_err(|why| match span {
        Some(span) => Diagnostic::new(At::span(span), Kind::Usage, why),
        None => internal(&why),
    })
}

impl Scheduler<'_, '_> {
    /// The decision of the next piece of work, which has this name: the one that is given, or the engine's own.
    fn decision<D: DecisionLine>(
        &mut self,
        name: &str,
        own: impl FnOnce(&Lowering) -> Result<D, Diagnostic>,
    ) -> Result<Placed<D>, Diagnostic> {
        let Some(given) = &mut self.given else { return Ok((own(self.low)?, None)) };
        let Some((found, mut reader)) = given.pop_front() else {
            let m = format!("the decisions of a `{name}` are missing");
            return Err(Diagnostic::new(At::default(), Kind::Syntax, m));
        };
        if found != name {
            let m = format!("this work is `{name}`, not `{found}`");
            return Err(Diagnostic::new(At::span(reader.head), Kind::Usage, m));
        }
        let decision = D::read(&mut reader)?;
        reader.end()?;
        Ok((decision, Some(reader.head)))
    }

    /// Errs where a decision that was read does not fit. The engine's own do.
    fn check(
        &self,
        span: Option<Span>,
        check: impl FnOnce(&Lowering) -> Result<(), String>,
    ) -> Result<(), Diagnostic> {
        match span {
            None => Ok(()),
            span => fits(check(self.low), span),
        }
    }

    fn work(&mut self, work: Work) -> Result<(), Diagnostic> {
        match work {
            Work::Flat(flat) => self.flat(&flat),
            Work::Rows(kernel) => self.rows(&kernel),
            Work::Join(join) => self.join(&join),
            Work::Scan(scan) if scan.extents.contains(&0) => Ok(()),
            Work::Scan(scan) => {
                let grid = self.grid("scan")?;
                self.works.push(Scheduled::Scan { scan, grid });
                Ok(())
            }
            Work::Pack { from, to } => self.pack(from, to),
            Work::Product(member) => self.product(member),
            Work::Warpgroup(work) => self.warpgroup(*work),
            Work::Convolution(work) => self.convolution(*work),
            Work::Scatter(scatter) => self.scatter(scatter),
            Work::Sort(sort) => self.sort(&sort),
            Work::Attention(form) => self.attention(form),
            Work::Call(call) => self.call(*call),
        }
    }

    fn bundle(&mut self) -> Result<(), Diagnostic> {
        let best = SharedLaunches::of(&elementwise(&self.works), &self.low.homes);
        let (launches, span) = self.decision("bundle", |_| Ok(best))?;
        self.check(span, |low| launches.check(&elementwise(&self.works), &low.homes))?;
        self.works.push(Scheduled::Bundle(launches));
        Ok(())
    }

    /// The grid of work that has no other decision.
    fn grid(&mut self, name: &str) -> Result<Grid, Diagnostic> {
        let (grid, span) = self.decision(name, |_| Ok(Grid::default()))?;
        self.check(span, |low| grid.check(&low.target))?;
        Ok(grid)
    }

    fn flat(&mut self, flat: &Flat) -> Result<(), Diagnostic> {
        let (stores, folds) = fold::divided(&self.low.program, flat, self.low.fp);
        stores.into_iter().try_for_each(|flat| self.stores(flat))?;
        folds.into_iter().try_for_each(|fold| self.fold(fold))
    }

    fn stores(&mut self, flat: Flat) -> Result<(), Diagnostic> {
        let low = &*self.low;
        let instructions = written(&flat.stage.program, low.fp).insts.len();
        let mut transpose = ScheduledTranspose::of(&low.program, &flat, instructions);
        let front = self.given.as_ref().and_then(|given| given.front());
        if front.is_some_and(|(name, _)| *name == "elementwise") {
            transpose = None;
        }
        if let Some(best) = transpose {
            let own = |_: &Lowering| Ok(best.tile.clone());
            let (tile, span) = self.decision::<TransposeTile>("transpose", own)?;
            self.check(span, |low| tile.check(&best, &low.target))?;
            self.works.push(Scheduled::Transpose(ScheduledTranspose { tile, ..best }));
            return Ok(());
        }
        let own = |low: &Lowering| Ok(FlatGrid::of(&low.program, &flat, low.fp));
        let (vectors, span) = self.decision("elementwise", own)?;
        self.check(span, |low| vectors.check(&low.program, &flat, &low.target))?;
        self.works.push(Scheduled::Elementwise(Elementwise { flat, vectors }));
        Ok(())
    }

    fn fold(&mut self, fold: FoldLoop) -> Result<(), Diagnostic> {
        let own = |low: &Lowering| Ok(fold.decide(&low.program, low.fp));
        let (decision, span) = self.decision::<FoldDecision>("fold", own)?;
        self.check(span, |low| fold.check(&decision, &low.target))?;
        let made = fold.scheduled(self.low, decision);
        self.works.push(Scheduled::Fold(Box::new(made)));
        Ok(())
    }

    fn rows(&mut self, kernel: &Kernel) -> Result<(), Diagnostic> {
        let (target, fp) = (self.low.target, self.low.fp);
        let columns = ColumnFold::of(kernel, fp, &target);
        let rows = RowKernel { kernel, columns, target, fp };
        let own = |low: &Lowering| {
            RowDecision::of(&low.program, kernel, rows.columns.as_ref(), (&target, fp))
        };
        let (decision, span) = self.decision("rows", own)?;
        self.check(span, |low| rows.check(&low.program, &decision))?;
        let layout = fits(rows.laid_out(&self.low.program, &decision)?, span)?;
        self.check(span, |_| rows.check_layout(&layout))?;
        let made = rows.scheduled(self.low, decision, layout);
        self.works.push(Scheduled::Rows(Box::new(made)));
        Ok(())
    }

    fn join(&mut self, join: &Join) -> Result<(), Diagnostic> {
        let (tree, span) = self.decision("join", |_| Ok(Tree::default()))?;
        self.check(span, |low| tree.check(&low.target))?;
        let fold = Box::new(tree_fold::of_join(self.low, join, tree));
        self.works.push(Scheduled::Join { fold, tree });
        Ok(())
    }

    fn pack(&mut self, from: Buffer, to: Buffer) -> Result<(), Diagnostic> {
        let data = &self.low.program.buffers[to];
        let none = volume(&self.low.program.buffers[from].dims) == 0 || data.dims.contains(&0);
        if none || data.storage == Storage::Plain {
            return Ok(());
        }
        let grid = self.grid("pack")?;
        self.works.push(Scheduled::Pack { from, to, grid });
        Ok(())
    }

    fn warpgroup(&mut self, work: WarpgroupWork) -> Result<(), Diagnostic> {
        let own = |low: &Lowering| {
            let how = (low.fp, &low.target);
            let best = || WarpgroupTile::of(&low.program, &work.products(), how);
            // Products that share a grid share its runs.
            let together = |tile: WarpgroupTile| match tile.runs {
                1 => tile,
                _ => tile.in_runs(&work.products(), &low.target),
            };
            let measured = work.measured.map(together);
            let measured = measured.filter(|tile| tile.check(&work, &low.target).is_ok());
            Ok(measured.unwrap_or_else(best))
        };
        let (tile, span) = self.decision("warpgroup", own)?;
        self.check(span, |low| tile.check(&work, &low.target))?;
        let (made, follow) = warpgroup::scheduled(self.low, work, tile);
        self.works.push(Scheduled::Warpgroup(Box::new(made)));
        self.followed(follow)
    }

    fn convolution(&mut self, (member, form): (Member, WindowForm)) -> Result<(), Diagnostic> {
        let own = |low: &Lowering| {
            WindowTile::of(&form, &member, &low.target)
                .ok_or_else(|| internal("there are no tiles"))
        };
        let (tile, span) = self.decision("convolution", own)?;
        let tiling = fits(tile.fits(&form, &member, &self.low.target), span)?;
        let (made, folds) = product::scheduled_windows(self.low, (member, form), (tile, tiling));
        self.works.push(Scheduled::Convolution(Box::new(made)));
        self.followed(folds)
    }

    /// Loops that follow a product.
    fn followed(&mut self, loops: Vec<product::FoldStage>) -> Result<(), Diagnostic> {
        loops.into_iter().for_each(|(extents, stage)| self.low.flat(extents, stage));
        self.low.taken()?.into_iter().try_for_each(|work| self.work(work))
    }

    fn product(&mut self, member: Member) -> Result<(), Diagnostic> {
        if [&member.batch, &member.rows, &member.cols].into_iter().any(|n| volume(n) == 0) {
            return Ok(());
        }
        let best = TileDecision::of(&self.low.program, &member, self.low.fp, &self.low.target);
        let (decision, span) = self.decision("product", |_| Ok(best))?;
        self.check(span, |low| {
            decision.check(&best, (&low.program, &member), (low.fp, &low.target))
        })?;
        let made = product::scheduled(self.low, member, decision)?;
        self.works.push(Scheduled::Product(Box::new(made)));
        Ok(())
    }

    fn scatter(&mut self, scatter: Scatter) -> Result<(), Diagnostic> {
        if volume(&scatter.domain) == 0 {
            return Ok(());
        }
        let own = |low: &Lowering| Ok(ScatterDecision::of(low, &scatter));
        let (decision, span) = self.decision("scatter", own)?;
        let target = self.low.target;
        let made = fits(scatter::scheduled(self.low, scatter, decision, &target)?, span)?;
        self.works.push(Scheduled::Scatter(Box::new(made)));
        Ok(())
    }

    fn sort(&mut self, sort: &Sort) -> Result<(), Diagnostic> {
        if sort.lines == 0 || sort.count == 0 {
            return Ok(());
        }
        let (decision, span) = self.decision("sort", |_| Ok(SortDecision::of(sort)))?;
        let target = self.low.target;
        let made = fits(sort::scheduled(self.low, sort, decision, &target), span)?;
        self.works.push(Scheduled::Sort(made));
        Ok(())
    }

    fn attention(&mut self, form: AttentionForm) -> Result<(), Diagnostic> {
        let (decision, span) = self.decision("attention", |low| form.decide(&low.target))?;
        self.check(span, |low| decision.check(&form, &low.target))?;
        self.works.push(Scheduled::Attention(Box::new(ScheduledAttention { form, decision })));
        Ok(())
    }

    fn call(&mut self, call: CallWork) -> Result<(), Diagnostic> {
        let own = call.launch.clone();
        let (launch, span) = self.decision::<UserLaunch>("call", |_| Ok(own))?;
        self.check(span, |_| launch.check(&call.launch))?;
        self.works.push(Scheduled::Call(Box::new(call)));
        Ok(())
    }
}
