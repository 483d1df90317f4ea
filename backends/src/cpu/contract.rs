//! Contractions: operands as matrices, products piece by piece, and the epilogue of each piece while it is in the
//! cache.

use super::codegen::loop_ir::{ArraySlots, Sweep, SweepOutput, SweepRole};
use super::gemm::dots::{self, DotKernel, Side, packed_bytes};
use super::gemm::subnormal::SubnormalState;
use super::gemm::tiles::{GemmSide, ProductKernel};
use super::gemm::{Gemm, GemmArgs, MatrixView, best, canonical, needs_copy, tiles};
use super::kernel::compile::CompileContext;
use super::kernel::{CompiledKernel, TaskGranularity};
use super::machine_code::Code;
use super::operand::{View, WindowOperand, elements, read, stored, windows};
use super::shape::{gcd, volume};
use super::tiled_operand::{ComputedOperand, TileSource, TiledOperand, dot_element, reserved};
use super::workers::{Worker, WorkerSet};
use crate::reference::order::CONTRACT_CHUNK;
use crate::runtime::host_memory::OffsetAllocator;
use adfuse_ir::kernel::facts::PassKind;
use adfuse_ir::kernel::{Extents, Feed, Kernel, Member};
use adfuse_ir::scalar::{Prim, SInst, SOp};
use adfuse_ir::{DType, Diagnostic};
use smallvec::SmallVec;

/// The most bytes of the sums of a piece: they fit L2 together with the operands.
const PIECE: i64 = 256 << 10;

/// Columns of a piece, unless there are few rows.
const COLUMNS: i64 = 256;

/// Bytes of the columns of a chunk, at most, where pieces have whole lines because what follows the sums
/// walks memory along them: packed for each piece, they fit L2 together with the sums.
const PACKED: i64 = 512 << 10;

/// What rows and columns of pieces are a multiple of.
const GRAIN: i64 = 64;

/// So few rows or columns are multiplied in the time that copying the other operand takes.
const FEW: i64 = 32;

/// Products of a task, about, where there are as many, and at least, where threads would have nothing to do.
const PRODUCTS: i64 = 1 << 24;
const FEWEST: i64 = 1 << 21;

/// Tasks that a contraction has, where it has work for them.
const TASKS: i64 = 4;

/// A contraction, made.
pub(super) struct CompiledMember {
    /// Batch, rows, columns, depth.
    size: [i64; 4],
    operands: Option<MemberOperands>,
    sum: DType,
    to: SumTarget,
    cut: TaskSplit,
    /// What multiplies, and what each worker has for it.
    by: Multiplier,
    room: u64,
    /// What the operands were like lately.
    met: SubnormalState,
}

/// How the result is cut. Rows are those of all batches, one after the other.
#[derive(Clone, Copy, Debug)]
struct TaskSplit {
    /// Rows and columns of a task.
    task: [i64; 2],
    /// Rows of a piece: what is multiplied at once, of one batch.
    rows: i64,
}

/// Both operands.
enum MemberOperands {
    Sources([OperandSource; 2]),
    /// Packed for a kernel of dot products.
    Tiles([TiledOperand; 2]),
}

/// Where the elements of an operand are.
enum OperandSource {
    Packed(ComputedOperand),
    View(View),
    Windows(Box<WindowOperand>),
}

impl OperandSource {
    /// Whether the stride along the depth is so large that pieces copy the operand.
    fn needs_copy(&self, depth: usize, bytes: u64) -> bool {
        matches!(self, OperandSource::View(v) if needs_copy(depth, v.steps[1], bytes))
    }
}

/// What multiplies.
#[derive(Clone, Copy)]
enum Multiplier {
    /// Matrices.
    Matrices(&'static dyn Gemm),
    /// What copies operands from where they are as it goes.
    Windows(&'static ProductKernel),
    /// Packed operands, by dot-product instructions.
    Dots(&'static DotKernel),
}

impl Multiplier {
    fn new(operands: Option<&MemberOperands>) -> Multiplier {
        match operands {
            Some(MemberOperands::Tiles([tiled, _])) => Multiplier::Dots(tiled.kernel),
            Some(MemberOperands::Sources(
                [OperandSource::Windows(_), _] | [_, OperandSource::Windows(_)],
            )) => Multiplier::Windows(tiles()),
            _ => Multiplier::Matrices(best()),
        }
    }

    fn name(self, sum: DType) -> &'static str {
        match self {
            Multiplier::Matrices(gemm) => gemm.name(sum),
            Multiplier::Windows(tiles) => tiles.name(sum),
            Multiplier::Dots(kernel) => kernel.name(),
        }
    }

    /// As [`Gemm::room`].
    fn room(self, sum: DType, size: [usize; 3], needs_copy: bool) -> u64 {
        match self {
            Multiplier::Matrices(gemm) => gemm.room(sum, size, needs_copy),
            Multiplier::Windows(tiles) => tiles.room(sum, size, needs_copy),
            Multiplier::Dots(_) => dots::ROOM,
        }
    }
}

/// Where the sums go.
enum SumTarget {
    /// Those of a piece into an array of the worker, from which what follows takes them.
    Sums(u64, CompiledKernel),
    /// To where they are stored.
    View(View),
}

impl CompileContext<'_> {
    pub(super) fn member(&mut self, m: &Member) -> Result<CompiledMember, Diagnostic> {
        let result = m.result();
        let results = volume(&result)?;
        // Extents of the operands of an empty result may be too large to walk.
        let mut size = [0; 4];
        let operands = match results {
            0 => None,
            _ => {
                for (n, extents) in size.iter_mut().zip([&m.batch, &m.rows, &m.cols, &m.depth]) {
                    *n = volume(extents)?;
                }
                Some(self.member_operands(m, size)?)
            }
        };
        let view = stored(self.program, &m.then, [&m.batch, &m.rows, &m.cols], m.sum);
        let (to, cuts) = match view {
            Some(view) => (SumTarget::View(view), TaskGranularity::default()),
            None => {
                let stages = vec![m.then.clone()];
                let then = self
                    .kernel(&Kernel { domain: result, stages, ..Kernel::default() }, Some(m.sum))?;
                let cuts = then.cuts;
                (SumTarget::Sums(0, then), cuts)
            }
        };
        let bytes = m.sum.bytes();
        let followed = matches!(to, SumTarget::Sums(..));
        let cut = TaskSplit::new(size, cuts, followed, bytes as i64);
        let to = match to {
            SumTarget::Sums(_, then) => {
                SumTarget::Sums(self.own.take(cut.rows.saturating_mul(cut.task[1]), bytes)?, then)
            }
            to => to,
        };
        let by = Multiplier::new(operands.as_ref());
        let most = [cut.rows, cut.task[1], size[3]].map(|n| usize::try_from(n).unwrap_or(0));
        let far = match &operands {
            Some(MemberOperands::Sources(all)) => all.iter().any(|s| s.needs_copy(most[2], bytes)),
            _ => false,
        };
        let room = i64::try_from(by.room(m.sum, most, far)).unwrap_or(i64::MAX);
        let room = self.own.take(room, 1)?;
        Ok(CompiledMember {
            size,
            operands,
            sum: m.sum,
            to,
            cut,
            by,
            room,
            met: SubnormalState::default(),
        })
    }

    /// The operands: packed for a kernel of dot products, if the host has one that keeps the mode's promise.
    fn member_operands(
        &mut self,
        m: &Member,
        size: [i64; 4],
    ) -> Result<MemberOperands, Diagnostic> {
        let Some(element) = dot_element(m, size) else { return self.plain_operands(m, size) };
        let bytes = reserved(element, m.sum, size).unwrap_or(i64::MAX);
        let at = self.shared.take(bytes, 1)?;
        // What is used lies in what is reserved.
        let all = *self.shared;
        *self.shared = OffsetAllocator::at(at).within(bytes as u64);
        let made = match self.dot_kernel(element) {
            Some(kernel) => self.tiled_operands(m, size, kernel),
            None => self.plain_operands(m, size),
        };
        *self.shared = all;
        made
    }

    /// The kernel for such elements, if what is made is to run on this host.
    fn dot_kernel(&self, element: DType) -> Option<&'static DotKernel> {
        dots::find(element, self.compiler.as_ref()?.dot_order()?)
    }

    fn tiled_operands(
        &mut self,
        m: &Member,
        [batch, rows, cols, depth]: [i64; 4],
        kernel: &'static DotKernel,
    ) -> Result<MemberOperands, Diagnostic> {
        let mut operand = |side, feed: &Feed, free: &Extents, lines| {
            let groups = [&m.batch, free, &m.depth];
            let source = match elements(self.program, feed, groups, kernel.element()) {
                Some(view) => TileSource::View(view),
                None => {
                    let extents = groups.into_iter().flatten().copied().collect();
                    TileSource::Array(self.operand(feed, extents, kernel.element())?)
                }
            };
            let size = [batch, lines, depth];
            let bytes = packed_bytes(kernel.element(), size).unwrap_or(i64::MAX);
            let at = self.shared.take(bytes, 1)?;
            Ok::<_, Diagnostic>(TiledOperand { kernel, side, source, size, at })
        };
        let left = operand(Side::Left, &m.lhs, &m.rows, rows)?;
        Ok(MemberOperands::Tiles([left, operand(Side::Right, &m.rhs, &m.cols, cols)?]))
    }

    fn plain_operands(&mut self, m: &Member, size: [i64; 4]) -> Result<MemberOperands, Diagnostic> {
        let operands = self.operands(m, size)?;
        self.note_copies(&operands, size);
        Ok(MemberOperands::Sources(operands))
    }

    /// Where the operands are. Windows that overlap are copied as tiles go, which reads no more than there
    /// is; so is what is no matrix where few rows or columns make a pass over it as long as the product.
    fn operands(&mut self, m: &Member, size: [i64; 4]) -> Result<[OperandSource; 2], Diagnostic> {
        let groups = |free| [&m.batch, free, &m.depth];
        let [lhs, rhs] = m.feeds();
        let sides = [(lhs, groups(&m.rows)), (rhs, groups(&m.cols))];
        let views = sides.each_ref().map(|(s, groups)| read(self.program, s.1, *groups, m.sum));
        let copied = sides.each_ref().map(|(s, groups)| windows(self.program, s.1, *groups, m.sum));
        let few = size[1].min(size[2]) <= FEW;
        let open = |(v, w): (&Option<View>, &Option<WindowOperand>)| {
            v.is_none() && w.as_ref().is_some_and(|w| few || w.overlaps)
        };
        let any = size[3] > 0 && views.iter().zip(&copied).any(open);
        let [(lhs, _), (rhs, _)] = sides;
        let [lhs_view, rhs_view] = views;
        let [lhs_copied, rhs_copied] = copied.map(|w| w.filter(|_| any));
        Ok([
            self.source(lhs.1, lhs.2, (lhs_view, lhs_copied), m.sum)?,
            self.source(rhs.1, rhs.2, (rhs_view, rhs_copied), m.sum)?,
        ])
    }

    /// Notes operands that are copied for few rows or columns: a pass over them takes as long as the product.
    fn note_copies(&mut self, operands: &[OperandSource; 2], [batch, rows, cols, depth]: [i64; 4]) {
        let wide = usize::from(cols > rows);
        if let OperandSource::View(view) = &operands[wide]
            && rows.min(cols) <= FEW
            && view.steps[0] != 1
        {
            let all = [batch, rows.max(cols), depth];
            self.note_pass(PassKind::Pack, all.into_iter().fold(1, i64::saturating_mul));
        }
    }

    fn source(
        &mut self,
        feed: &Feed,
        extents: Extents,
        there: (Option<View>, Option<WindowOperand>),
        to: DType,
    ) -> Result<OperandSource, Diagnostic> {
        Ok(match there {
            (Some(view), _) => OperandSource::View(view),
            (None, Some(windows)) => {
                self.note_pass(PassKind::Pack, volume(&extents)?);
                OperandSource::Windows(Box::new(windows))
            }
            (None, None) => OperandSource::Packed(self.operand(feed, extents, to)?),
        })
    }

    fn operand(
        &mut self,
        feed: &Feed,
        extents: Extents,
        to: DType,
    ) -> Result<ComputedOperand, Diagnostic> {
        let count = volume(&extents)?;
        let at = self.shared.take(count, to.bytes())?;
        let mut body = feed.program.clone();
        if let Some(out) = body.outputs.first_mut()
            && body.insts[*out].dtype != to
        {
            let args = SmallVec::from_iter([*out]);
            *out = body.insts.push(SInst { op: SOp::Prim(Prim::Convert), args, dtype: to });
        }
        self.slots = self.slots.max(1);
        let sweep = self.sweep(&Sweep {
            program: self.program,
            domain: extents.len(),
            extents,
            params: &feed.params,
            body: &body,
            puts: vec![SweepOutput::Place(0)],
            slots: ArraySlots::default(),
            target: None,
            part: SweepRole::Operand,
        })?;
        Ok(ComputedOperand { sweep, at, count })
    }
}

impl TaskSplit {
    /// Pieces that fit the cache, and tasks of as many as are worth waking a thread. They depend on the
    /// extents alone; since every result is a sum of its own, they change no bit.
    fn new(
        [batch, rows, cols, depth]: [i64; 4],
        cuts: TaskGranularity,
        followed: bool,
        bytes: i64,
    ) -> TaskSplit {
        let all = batch.saturating_mul(rows).max(1);
        let grained = |n: i64| (n / GRAIN * GRAIN).max(GRAIN);
        let cols = cols.max(1);
        // What follows sees lines of all columns, unless it may see parts of them.
        let words = cols % cuts.bits == 0 && GRAIN % cuts.bits == 0;
        let parts = words && cuts.lines.is_some_and(|l| l % cols == 0);
        let most = (PIECE / bytes.max(1)).max(1);
        let mut width = cols;
        let chunk = depth.clamp(1, CONTRACT_CHUNK as i64);
        let packed = cols.saturating_mul(chunk).saturating_mul(bytes);
        let whole = followed && packed <= PACKED && cols.saturating_mul(GRAIN) <= most;
        if parts && !whole && cols > 2 * COLUMNS {
            width = COLUMNS.max(grained(most / rows.max(1))).min(cols);
        }
        let mut height = grained(most / width).min(rows.max(1));
        let work = |a: i64, b: i64| a.saturating_mul(b).saturating_mul(depth.max(1));
        let products = (work(all, cols) / TASKS).clamp(FEWEST, PRODUCTS);
        while parts && width > GRAIN && work(width, height) > products {
            width = grained(width / 2);
        }
        while height > GRAIN && work(width, height) > products {
            height = grained(height / 2);
        }
        // Short batches go together.
        let together = (PRODUCTS / 16 / work(width, height).max(1)).max(1);
        let task = height.saturating_mul(together).min(all);
        let task = match cuts.grain {
            None => all,
            Some(grain) => {
                let rows = grain / gcd(grain, cols);
                (task.saturating_add(rows - 1) / rows).saturating_mul(rows)
            }
        };
        TaskSplit { task: [task.max(1), width], rows: height }
    }
}

/// A range of rows of one batch, and of columns.
struct TaskRange {
    batch: i64,
    rows: [i64; 2],
    cols: [i64; 2],
}

impl CompiledMember {
    /// What multiplies.
    pub(super) fn generator(&self) -> &'static str {
        self.by.name(self.sum)
    }

    pub(super) fn run(&self, worker_set: &mut WorkerSet<'_>) {
        if let Some(operands) = &self.operands {
            match operands {
                MemberOperands::Tiles(all) => all.iter().for_each(|o| o.pack(worker_set)),
                MemberOperands::Sources(all) => {
                    for operand in all {
                        let OperandSource::Packed(array) = operand else { continue };
                        array.compute(worker_set, self.sum.bytes());
                    }
                }
            }
            let [batch, rows, cols, _] = self.size;
            let (all, [height, width]) = (batch * rows, self.cut.task);
            let across = (cols + width - 1) / width;
            worker_set.each((all + height - 1) / height * across, |code, worker, k| {
                let (from, left) = (k / across * height, k % across * width);
                let cols = [left, (left + width).min(cols)];
                let mut row = from;
                while row < (from + height).min(all) {
                    let batch = row / rows;
                    let end = (row + self.cut.rows).min(from + height).min((batch + 1) * rows);
                    let rows = [row - batch * rows, end - batch * rows];
                    self.piece(code, worker, operands, TaskRange { batch, rows, cols });
                    row = end;
                }
            });
        }
        if let SumTarget::Sums(_, then) = &self.to {
            then.finish(worker_set);
        }
    }

    /// Multiplies a piece, and does what follows.
    fn piece(&self, code: &Code, worker: &mut Worker, operands: &MemberOperands, p: TaskRange) {
        let [_, rows, cols, _] = self.size;
        let bytes = self.sum.bytes();
        let [m, n] = [p.rows[1] - p.rows[0], p.cols[1] - p.cols[0]];
        let out = match &self.to {
            SumTarget::Sums(at, _) => MatrixView { at: worker.at(*at), row: n as isize, column: 1 },
            SumTarget::View(v) => {
                let first = p.rows[0] * v.steps[0] + p.cols[0] * v.steps[1];
                let at = v.start(worker, p.batch, bytes);
                let at = at.wrapping_offset((first * bytes as i64) as isize);
                MatrixView { at, row: v.steps[0] as isize, column: v.steps[1] as isize }
            }
        };
        match operands {
            MemberOperands::Sources(sources) => self.multiply(worker, sources, &p, out),
            MemberOperands::Tiles(tiles) => self.multiply_tiles(worker, tiles, &p, out),
        }
        let SumTarget::Sums(at, then) = &self.to else {
            let size = [m, n].map(|n| n as usize);
            // SAFETY: these sums are this task's alone.
            #[allow(unsafe_code)]
            return unsafe { canonical(self.sum, size, out) };
        };
        let at = worker.at(*at);
        let first = (p.batch * rows + p.rows[0]) * cols;
        if n == cols {
            then.sums(worker, at, first, bytes);
            return then.points(code, worker, first, first + m * n);
        }
        for i in 0..m {
            let first = first + i * cols + p.cols[0];
            let at = at.wrapping_add((i * n) as usize * bytes as usize);
            then.sums(worker, at, first, bytes);
            then.points(code, worker, first, first + n);
        }
    }

    /// The sums of a piece, of operands that are packed.
    fn multiply_tiles(
        &self,
        worker: &Worker,
        [left, right]: &[TiledOperand; 2],
        p: &TaskRange,
        out: MatrixView,
    ) {
        let range = [p.rows, p.cols].map(|r| r.map(|n| n as usize));
        let sides = [left, right].map(|o| o.start(worker, p.batch).cast_const());
        let (depth, room) = (self.size[3] as usize, worker.at(self.room));
        // SAFETY: both operands have been packed, by tasks that are done; the sums of these rows and columns are this task's
        // alone, and an array of the worker has the room that was asked for.
        #[allow(unsafe_code)]
        unsafe {
            left.kernel.product((range, depth), sides, (out, self.sum), room);
        }
    }

    /// The sums of a piece, of operands that are where a program has them, or have been computed.
    fn multiply<'a>(
        &self,
        worker: &Worker,
        [lhs, rhs]: &'a [OperandSource; 2],
        p: &TaskRange,
        out: MatrixView,
    ) {
        let [_, rows, cols, depth] = self.size;
        let bytes = self.sum.bytes();
        let matrix = |at, free: i64, deep: i64, left: bool| {
            let (free, deep) = (free as isize, deep as isize);
            let (row, column) = if left { (free, deep) } else { (deep, free) };
            GemmSide::Matrix(MatrixView { at, row, column })
        };
        let of = |source: &'a OperandSource, free: i64, skipped: i64, left: bool| match source {
            OperandSource::Packed(packed) => {
                let first = (p.batch * free + skipped) * depth;
                let at = worker.all(packed.at).wrapping_add((first as u64 * bytes) as usize);
                matrix(at, depth, 1, left)
            }
            OperandSource::View(v) => {
                let at = v.start(worker, p.batch, bytes);
                let skip = skipped.wrapping_mul(v.steps[0]).wrapping_mul(bytes as i64);
                matrix(at.wrapping_offset(skip as isize), v.steps[0], v.steps[1], left)
            }
            OperandSource::Windows(w) => {
                let at = worker.table[w.buffer].cast_const();
                GemmSide::Window(w.window.placed(at, p.batch as usize, skipped as usize))
            }
        };
        let sides = [of(lhs, rows, p.rows[0], true), of(rhs, cols, p.cols[0], false)];
        let [m, n] = [p.rows[1] - p.rows[0], p.cols[1] - p.cols[0]];
        let size = [m, n, depth].map(|n| n as usize);
        let room = worker.at(self.room);
        // SAFETY: operands are computed in full, or elements of buffers that the verifier has proven to
        // be there where guards hold; the sums of these rows and columns are this task's alone, and an
        // array of the worker has room for a piece, and another as much as was asked for.
        #[allow(unsafe_code)]
        unsafe {
            match (self.by, sides) {
                (Multiplier::Matrices(gemm), [GemmSide::Matrix(x), GemmSide::Matrix(y)]) => {
                    gemm.product(self.sum, size, x, y, out, GemmArgs { room, met: &self.met });
                }
                // Matrices are multiplied by what copies, too.
                _ => tiles().windows(self.sum, size, sides, out, room),
            }
        }
    }
}
