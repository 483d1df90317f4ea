//! Steps of a program as work of few forms: flat loops, rows, products, and what joins them through
//! memory beside the buffers.
//!
//! A kernel whose points fold rows in the lane order stays whole ([`Work::Rows`]). What folds over points
//! is taken out of it, as a flat loop that reads what the rows left; any other kernel is taken apart
//! into flat loops. A fold of several runs is one for each run.

use super::attention::AttentionForm;
use super::context::ScheduleContext;
use super::convolution::{WindowForm, WindowTile, is_row_sum};
use super::index::in_order;
use super::measured_product::fastest_tile;
use super::shape::{axes, free, identity, load};
use super::user_call::{CallWork, UserLaunch};
use super::warpgroup_form::{WarpgroupForm, WarpgroupWork, joint_runs};
use super::work::{Flat, Home, Lowered, Lowering, Sort, Work};
use crate::runtime::legalize::{copy, plain};
use crate::runtime::strides::dense;
use crate::runtime::user_kernel::KernelCall;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Buffer, BufferData, Contract, Extents, Library, Member, Operand, Order, Param, Piece, Program,
    Role, Run, Scatter, Sink, Space, Stage, Step, Storage, volume,
};
use adfuse_ir::scalar::Recorder;
use adfuse_ir::{At, DType, Diagnostic, Dim, Kind, TensorType};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

impl Lowering {
    pub(crate) fn new(program: &Program, context: ScheduleContext<'_>) -> Lowering {
        let ScheduleContext { target, fp, functions, products } = context;
        Lowering {
            program: program.clone(),
            fp,
            target,
            functions: functions.cloned(),
            products: products.cloned().unwrap_or_default(),
            homes: SecondaryMap::new(),
            in_block: false,
            step: Lowered::default(),
            problem: None,
        }
    }

    /// A buffer in the scratch of the step.
    pub(crate) fn temp(&mut self, dtype: DType, dims: Extents) -> Buffer {
        let name = format!("beside.{}", self.program.buffers.len());
        let data = BufferData::new(name, dtype, dims, Role::Temp);
        let bytes = volume(&data.dims).saturating_mul(dtype.bytes() as i64) as u64;
        let b = self.program.buffers.push(data);
        self.homes[b] = Home::Scratch(self.step.scratch);
        let end =
            self.step.scratch.checked_add(bytes).and_then(|n| n.checked_next_multiple_of(256));
        match end.filter(|&n| n < 1 << 62) {
            Some(end) => self.step.scratch = end,
            None => {
                let m = "memory beside the buffers outgrows what can be addressed".to_owned();
                self.problem = Some(Diagnostic::new(At::default(), Kind::Limit, m));
            }
        }
        b
    }

    /// The same memory as a buffer of the scratch, with other extents.
    pub(crate) fn alias(&mut self, b: Buffer, dims: Extents) -> Buffer {
        let name = format!("beside.{}", self.program.buffers.len());
        let dtype = self.program.buffers[b].dtype;
        let other = self.program.buffers.push(BufferData::new(name, dtype, dims, Role::Temp));
        self.homes[other] = self.homes[b];
        other
    }

    pub(crate) fn push(&mut self, work: Work) {
        self.step.works.push(work);
    }

    /// The work that was added since this was asked last.
    pub(crate) fn taken(&mut self) -> Result<Vec<Work>, Diagnostic> {
        let works = std::mem::take(&mut self.step.works);
        self.problem.take().map_or(Ok(works), Err)
    }

    /// Ends a step: the bytes of its scratch.
    pub(crate) fn ended(&mut self) -> Result<u64, Diagnostic> {
        let step = std::mem::take(&mut self.step);
        self.problem.take().map_or(Ok(step.scratch), Err)
    }

    /// What a step is made of; nothing for a transfer, which copies, and an effect, which the host has.
    pub(crate) fn step(&mut self, step: &Step) -> Result<Vec<Work>, Diagnostic> {
        self.one(step)?;
        self.taken()
    }

    fn one(&mut self, step: &Step) -> Result<(), Diagnostic> {
        match step {
            Step::Kernel(kernel) => self.kernel(kernel),
            Step::Bundle(bundle) => bundle.kernels.iter().for_each(|k| self.kernel(k)),
            Step::Contract(contract) => self.contract(contract),
            Step::Attend(attend) => {
                let form = AttentionForm::of(&self.program, attend, (self.fp, self.in_block))?;
                if form.has_work() {
                    self.push(Work::Attention(form));
                }
            }
            Step::Scatter(scatter) => self.scatter(scatter),
            Step::Library(library) => self.user_call(library)?,
            Step::Argsort(step) => self.push(Work::Sort(Sort::of(self, step))),
            // The programs of a loop and a branch have schedules of their own.
            Step::Transfer(_)
            | Step::Exchange(_)
            | Step::Print(_)
            | Step::Loop(_)
            | Step::Branch(_) => {}
        }
        Ok(())
    }

    /// A call of a user function. Its kernel takes dense tensors: what is packed or strided is copied before it or after it.
    pub(crate) fn user_call(&mut self, library: &Library) -> Result<(), Diagnostic> {
        let name = &library.function;
        let refuse = |kind, m: String| Diagnostic::new(At::default(), kind, m);
        let functions = self.functions.clone();
        let Some(functions) = functions.filter(|all| all.get(name).is_some()) else {
            return Err(refuse(
                Kind::Unsupported,
                format!("there is no library function @{name} for PTX"),
            ));
        };
        let &[result] = library.outputs.as_slice() else {
            let m = format!("@{name} has one result, not {}", library.outputs.len());
            return Err(refuse(Kind::Arity, m));
        };
        let data = |low: &Lowering, b: Buffer| low.program.buffers[b].clone();
        let types: Vec<TensorType> =
            library.inputs.iter().map(|&b| type_of(&self.program.buffers[b])).collect();
        let call = functions.kernel_call(name, &types)?;
        if volume(&data(self, result).dims) == 0 {
            return Ok(());
        }
        let launch = UserLaunch::of(&call, &self.target)?;
        let mut buffers = Vec::new();
        for &b in &library.inputs {
            let own = data(self, b);
            buffers.push(match dense(&own) {
                true => b,
                false => {
                    let to = self.temp(own.dtype, own.dims.clone());
                    self.copied(b, to, &own);
                    to
                }
            });
        }
        let own = data(self, result);
        let to = if dense(&own) { result } else { self.temp(own.dtype, own.dims.clone()) };
        buffers.push(to);
        if let Some(bytes) = call.scratch {
            let most = i64::try_from(bytes).unwrap_or(i64::MAX);
            buffers.push(self.temp(DType::U8, Extents::from_slice(&[most])));
        }
        let KernelCall { text, entry, .. } = call;
        self.push(Work::Call(Box::new(CallWork { text, entry, buffers, launch })));
        if to != result {
            self.copied(to, result, &own);
        }
        Ok(())
    }

    /// Moves the elements of a buffer to another.
    fn copied(&mut self, from: Buffer, to: Buffer, data: &BufferData) {
        let copy = copy(from, to, data);
        copy.stages.into_iter().for_each(|stage| self.flat(copy.domain.clone(), stage));
    }

    /// Copies of what callers hand over (`enter`) or are handed, where buffers are packed or have strides.
    pub(crate) fn copies(&mut self, enter: bool) -> Result<Vec<Work>, Diagnostic> {
        let inputs: Vec<Buffer> = self.program.inputs().collect();
        let mut wanted = if enter { inputs } else { self.program.outputs.clone() };
        wanted.sort();
        wanted.dedup();
        for b in wanted {
            let data = self.program.buffers[b].clone();
            let dense = data.storage == Storage::Plain && data.strides.is_none();
            let device = data.space == Space::Device;
            if dense || !device || matches!(data.role, Role::Constant(_)) {
                continue;
            }
            let name = format!("copy of %{}", data.name);
            let dense = BufferData { name, ..plain(&data, data.role.clone()) };
            let caller = self.program.buffers.push(dense);
            self.homes[caller] = Home::Caller(b);
            let (from, to) = if enter { (caller, b) } else { (b, caller) };
            let copy = copy(from, to, &data);
            copy.stages.into_iter().for_each(|stage| self.flat(copy.domain.clone(), stage));
        }
        self.taken()
    }

    /// Adds a flat loop: stores into packed buffers and folds of several runs become loops of their own.
    pub(crate) fn flat(&mut self, domain: Extents, mut stage: Stage) {
        let mut after = Vec::new();
        let mut before = Vec::new();
        let folds = stage.sinks.iter().any(|s| matches!(s, Sink::Fold { .. }));
        for (k, sink) in stage.sinks.iter_mut().enumerate() {
            let dtype = stage.program.insts[stage.program.outputs[k]].dtype;
            match sink {
                // Threads next to each other make words of neighbours.
                Sink::Store { buffer, index }
                    if !folds && in_order(&self.program, *buffer, index, &domain) => {}
                Sink::Store { buffer, index } => {
                    if let Some((temp, place)) = self.unpacked(*buffer, index) {
                        after.push(Work::Pack { from: temp, to: *buffer });
                        (*buffer, *index) = (temp, place);
                    }
                }
                Sink::Fold { monoid, runs, then } => {
                    if free(*monoid, dtype) {
                        merge(runs);
                    }
                    if runs.len() > 1 {
                        // The first run into memory, and what is left of it as a loop of its own.
                        let mut left = domain.clone();
                        runs[0].axes.iter().for_each(|&a| left[usize::from(a)] = 1);
                        let temp = self.temp(dtype, left.clone());
                        let rest: SmallVec<[Run; 2]> = runs.drain(1..).collect();
                        let whole = axes(left.len());
                        // What is folded away has no coordinate.
                        let folded = |a: usize| runs[0].axes.iter().any(|&b| usize::from(b) == a);
                        let of = |a: usize| match folded(a) {
                            true => IndexExpr::Const(0),
                            false => IndexExpr::axis(a),
                        };
                        let place = (0..left.len()).map(of).collect();
                        let own = Stage::storing(dtype, temp, dtype, place);
                        let then = std::mem::replace(then, Box::new(own));
                        let stage = Stage {
                            params: vec![load(temp, whole)],
                            program: identity(dtype),
                            sinks: vec![Sink::Fold { monoid: *monoid, runs: rest, then }],
                            ..Stage::default()
                        };
                        before.push((left, stage));
                    }
                }
                _ => {}
            }
        }
        // What follows a fold may pack too.
        for sink in &mut stage.sinks {
            if let Sink::Fold { then, .. } = sink {
                for sink in &mut then.sinks {
                    if let Sink::Store { buffer, index } = sink
                        && let Some((temp, place)) = self.unpacked(*buffer, index)
                    {
                        after.push(Work::Pack { from: temp, to: *buffer });
                        (*buffer, *index) = (temp, place);
                    }
                }
            }
        }
        self.push(Work::Flat(Flat { domain, stage }));
        before.into_iter().for_each(|(domain, stage)| self.flat(domain, stage));
        after.into_iter().for_each(|work| self.push(work));
    }

    /// For a packed buffer, where its elements are put first: in a buffer of one axis, by their places.
    pub(crate) fn unpacked(
        &mut self,
        b: Buffer,
        index: &[IndexExpr],
    ) -> Option<(Buffer, SmallVec<[IndexExpr; 4]>)> {
        let data = self.program.buffers[b].clone();
        let Storage::Packed(_) = data.storage else { return None };
        let (mut dense, mut reach) = (1i64, 1i64);
        let mut place = IndexExpr::Const(0);
        for (k, e) in index.iter().enumerate().rev() {
            let stride = data.strides.as_ref().map_or(dense, |s| s[k]);
            place = e.clone().times(stride).sum(place);
            reach = reach.saturating_add((data.dims[k] - 1).max(0).saturating_mul(stride));
            dense = dense.saturating_mul(data.dims[k].max(1));
        }
        let temp = self.temp(data.dtype, Extents::from_iter([reach]));
        Some((temp, SmallVec::from_iter([place])))
    }

    /// How warpgroups multiply a member, where they do. Operands in loops move from turn to turn, which tensor maps do not.
    pub(crate) fn by_warpgroups(&self, m: &Member) -> Option<WarpgroupForm> {
        let form = WarpgroupForm::of(&self.program, m, (self.fp, &self.target));
        form.filter(|_| !self.in_block)
    }

    /// The form of a member whose operands are windows, where there are tiles for it and for what becomes of its sums.
    fn as_windows(&self, m: &Member) -> Option<WindowForm> {
        let form = WindowForm::of(&self.program, m, self.fp)?;
        let finishes = |sink: &Sink| match sink {
            Sink::Store { buffer, .. } => self.program.buffers[*buffer].storage == Storage::Plain,
            sink => is_row_sum(m, sink),
        };
        if !m.then.sinks.iter().all(finishes) {
            return None;
        }
        WindowTile::of(&form, m, &self.target).is_some().then_some(form)
    }

    /// A product with windows, after the kernel that lays out its operand where one does.
    fn windows(&mut self, member: Member, mut form: WindowForm) {
        if let Some(layout) = form.laid_out {
            let dtype = form.unit.held(member.sum);
            let dims = layout.dims(&member);
            let to = self.temp(dtype, dims.clone());
            self.flat(dims, layout.stage(&member, to, dtype));
            form.operands[layout.side].buffer = to;
        }
        self.push(Work::Convolution(Box::new((member, form))));
    }

    /// Members that warpgroups multiply in one launch.
    fn warpgroups(&mut self, members: Vec<(Member, WarpgroupForm)>) {
        let how = (self.fp, &self.target);
        let tile = |m: &Member| fastest_tile(&self.products, (&self.program, m), how);
        let measured = members.first().and_then(|(m, _)| tile(m));
        let measured =
            measured.filter(|found| members.iter().all(|(m, _)| tile(m) == Some(*found)));
        self.push(Work::Warpgroup(Box::new(WarpgroupWork { members, measured })));
    }

    /// Members one after the other, but for those that share a grid.
    fn contract(&mut self, contract: &Contract) {
        for run in joint_runs(contract.members.iter(), |m| self.by_warpgroups(m)) {
            let all: Option<Vec<(Member, WarpgroupForm)>> =
                run.iter().map(|(m, form)| Some(((*m).clone(), form.clone()?))).collect();
            match all {
                Some(products) => self.warpgroups(products),
                None => run.iter().for_each(|(member, _)| self.product(member)),
            }
        }
    }

    /// A member that warpgroups do not multiply as it is. What is folded or packed of its results goes through memory.
    fn product(&mut self, member: &Member) {
        let result = member.result();
        let mut own = member.clone();
        let mut after: Vec<(Buffer, DType, Sink)> = Vec::new();
        let mut packs = Vec::new();
        if let Some(form) = self.as_windows(member) {
            self.windows(member.clone(), form);
            return;
        }
        for (k, sink) in own.then.sinks.iter_mut().enumerate() {
            let dtype = own.then.program.insts[own.then.program.outputs[k]].dtype;
            match sink {
                Sink::Store { buffer, index } => {
                    if let Some((temp, place)) = self.unpacked(*buffer, index) {
                        packs.push(Work::Pack { from: temp, to: *buffer });
                        (*buffer, *index) = (temp, place);
                    }
                }
                sink => {
                    let temp = self.temp(dtype, result.clone());
                    let store = Sink::Store { buffer: temp, index: axes(result.len()) };
                    after.push((temp, dtype, std::mem::replace(sink, store)));
                }
            }
        }
        // Without its folds it may be one that they multiply.
        match self.by_warpgroups(&own) {
            Some(form) => self.warpgroups(vec![(own, form)]),
            None => match self.as_windows(&own) {
                Some(form) => self.windows(own, form),
                None => self.push(Work::Product(own)),
            },
        }
        packs.into_iter().for_each(|work| self.push(work));
        for (temp, dtype, fold) in after {
            let stage = Stage {
                params: vec![load(temp, axes(result.len()))],
                program: identity(dtype),
                sinks: vec![fold],
                ..Stage::default()
            };
            self.flat(result.clone(), stage);
        }
    }

    /// What the elements begin with, then the updates, then the type of the buffer where sums have
    /// another.
    fn scatter(&mut self, scatter: &Scatter) {
        let data = self.program.buffers[scatter.out].clone();
        let wide = data.dtype.compute();
        let rank = data.dims.len();
        let direct = wide == data.dtype && data.storage == Storage::Plain && data.strides.is_none();
        let sums = match direct {
            true => scatter.out,
            false => self.temp(wide, data.dims.clone()),
        };
        let piece = Piece {
            from: scatter.from,
            index: match scatter.from {
                Operand::Buffer(_) => axes(rank),
                Operand::Literal(_) => SmallVec::new(),
            },
            guards: SmallVec::new(),
        };
        let begin = Stage {
            params: vec![Param::Load(SmallVec::from_iter([piece]))],
            program: Recorder::record_any(&[data.dtype], |x| x[0].convert(wide)),
            sinks: vec![Sink::Store { buffer: sums, index: axes(rank) }],
            ..Stage::default()
        };
        self.flat(data.dims.clone(), begin);
        self.push(Work::Scatter(Scatter { out: sums, ..scatter.clone() }));
        if !direct {
            let end = Stage {
                params: vec![load(sums, axes(rank))],
                program: Recorder::record_any(&[wide], |x| x[0].convert(data.dtype)),
                sinks: vec![Sink::Store { buffer: scatter.out, index: axes(rank) }],
                ..Stage::default()
            };
            self.flat(data.dims.clone(), end);
        }
    }
}

/// Several runs as one, in the row-major order in which they count places: the last is the outermost.
fn merge(runs: &mut SmallVec<[Run; 2]>) {
    if runs.len() > 1 {
        let axes = runs.iter().rev().flat_map(|r| r.axes.iter().copied()).collect();
        let order =
            if runs.iter().all(|r| r.order == Order::Lane) { Order::Lane } else { Order::Chain };
        *runs = SmallVec::from_iter([Run { axes, order }]);
    }
}

/// The type of a buffer's tensor.
fn type_of(data: &BufferData) -> TensorType {
    let dims = data.dims.iter().map(|n| Dim::Const(n.unsigned_abs()));
    TensorType::new(data.dtype, dims)
}
