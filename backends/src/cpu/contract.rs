//! Contractions: operands as matrices, products piece by piece, and the epilogue of each piece while it is in the
//! cache.

use super::accumulated::{AccumulatedProduct, Accumulation};
use super::batch_lanes::LaneProduct;
use super::carry_start::CarryStart;
use super::computed_operand::{ComputedOperand, DenseAxes};
use super::gemm::dots::{self, DotKernel, OperandSide, packed_bytes};
use super::gemm::lanes::{self, LaneKernel};
use super::gemm::tiles::ProductKernel;
use super::gemm::{Gemm, GemmSide, MatrixView, SubnormalState, best, packed_windows, tiles};
use super::kernel::compile::CompileContext;
use super::kernel::{CompiledKernel, TaskGranularity};
use super::operand::{
    View, WindowOperand, elements, read, stored, sum_with, touched_next, windows,
};
use super::shape::checked_volume;
use super::task_split::{PiecePacking, ProductTasks, TaskSplit, chunk_sums};
use super::tiled_operand::{TileSource, TiledOperand, dot_element, reserved};
use crate::reference::order::CONTRACT_CHUNK;
use crate::runtime::host_memory::OffsetAllocator;
use adfuse_ir::kernel::facts::PassKind;
use adfuse_ir::kernel::{Extents, Feed, Kernel, Member, Storage, volume};
use adfuse_ir::{DType, Diagnostic};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// So few rows or columns are multiplied in the time that copying the other operand takes. Their own operand is small beside it.
const FEW: i64 = 32;

/// The fewest products of a matrix of a batch that columns are divided into.
const EACH: i64 = 1 << 15;

/// A contraction, made.
pub(super) struct CompiledMember {
    /// Batch, rows, columns, depth.
    pub(super) size: [i64; 4],
    pub(super) operands: Option<MemberOperands>,
    pub(super) sum: DType,
    pub(super) to: SumTarget,
    pub(super) tasks: ProductTasks,
    /// How they are divided among this number of threads, once that has been asked.
    pub(super) split: OnceLock<(i64, TaskSplit)>,
    /// Where the sums of chunks of the depth are, if tasks may be chunks.
    pub(super) chunks: Option<u64>,
    /// What multiplies, and what each worker has for it.
    pub(super) by: Multiplier,
    pub(super) room: u64,
    /// What the operands were like lately.
    pub(super) met: SubnormalState,
    /// What is touched at each sum once it is there.
    pub(super) touched_next: SmallVec<[View; 2]>,
    /// What the products of all batches are added to.
    pub(super) onto: Option<Accumulation>,
}

/// Both operands.
pub(super) enum MemberOperands {
    Sources([OperandSource; 2]),
    /// Packed for a kernel of dot products.
    Tiles([TiledOperand; 2]),
    /// Interleaved, matrices side by side.
    Lanes(Box<LaneProduct>),
}

/// Where the elements of an operand are.
pub(super) enum OperandSource {
    Packed(ComputedOperand),
    View(View),
    Windows(Box<WindowOperand>),
}

impl OperandSource {
    /// Whether pieces pack its rows: those whose depth is dense are often read in place.
    fn packs_rows(&self) -> bool {
        matches!(self, OperandSource::View(v) if v.steps[1] != 1)
    }

    /// It as a side of a product: a matrix whose first element is at `at`, or windows of a batch of an array that begins there.
    pub(super) fn side(&self, at: *mut u8, batch: i64, left: bool) -> GemmSide<'_> {
        let [free, deep] = match self {
            OperandSource::Packed(array) => array.steps,
            OperandSource::View(v) => v.steps,
            OperandSource::Windows(w) => {
                return GemmSide::Window(w.window.placed(at.cast_const(), batch as usize, 0));
            }
        };
        let (free, deep) = (free as isize, deep as isize);
        let (row, column) = if left { (free, deep) } else { (deep, free) };
        GemmSide::Matrix(MatrixView { at, row, column })
    }
}

/// What multiplies.
#[derive(Clone, Copy)]
pub(super) enum Multiplier {
    /// Matrices.
    Matrices(&'static dyn Gemm),
    /// What copies operands from where they are as it goes.
    Windows(&'static ProductKernel),
    /// Packed operands, by dot-product instructions.
    Dots(&'static DotKernel),
    /// Matrices side by side, one a lane.
    Lanes(&'static LaneKernel),
}

impl Multiplier {
    fn new(operands: Option<&MemberOperands>) -> Multiplier {
        match operands {
            Some(MemberOperands::Tiles([tiled, _])) => Multiplier::Dots(tiled.kernel),
            Some(MemberOperands::Lanes(_)) => Multiplier::Lanes(lanes::found()),
            Some(MemberOperands::Sources(
                [OperandSource::Windows(_), _] | [_, OperandSource::Windows(_)],
            )) => Multiplier::Windows(tiles()),
            _ => Multiplier::Matrices(best()),
        }
    }

    pub(super) fn name(self, sum: DType) -> &'static str {
        match self {
            Multiplier::Matrices(gemm) => gemm.name(sum),
            Multiplier::Windows(tiles) => tiles.name(sum),
            Multiplier::Dots(kernel) => kernel.name(),
            Multiplier::Lanes(kernel) => kernel.name,
        }
    }

    /// As [`Gemm::room`].
    fn room(self, sum: DType, size: [usize; 3]) -> u64 {
        match self {
            Multiplier::Matrices(gemm) => gemm.room(sum, size),
            Multiplier::Windows(tiles) => tiles.room(sum, size),
            Multiplier::Dots(_) => dots::ROOM,
            // The operands have their own.
            Multiplier::Lanes(_) => 0,
        }
    }
}

/// Where the sums go.
pub(super) enum SumTarget {
    /// Those of a piece into an array of the worker, from which what follows takes them.
    Sums(u64, CompiledKernel),
    /// To where they are stored, each with an element added to it if there is another view.
    View(View, Option<View>),
}

impl CompileContext<'_> {
    pub(super) fn member(&mut self, m: &Member) -> Result<CompiledMember, Diagnostic> {
        let batched = self.evenly_spaced(m);
        let m = batched.as_ref().unwrap_or(m);
        let result = m.result();
        let results = checked_volume(&result)?;
        // Extents of the operands of an empty result may be too large to walk.
        let mut size = [0; 4];
        let operands = match results {
            0 => None,
            _ => {
                for (n, extents) in size.iter_mut().zip([&m.batch, &m.rows, &m.cols, &m.depth]) {
                    *n = checked_volume(extents)?;
                }
                Some(self.member_operands(m, size)?)
            }
        };
        let by = Multiplier::new(operands.as_ref());
        let (to, cuts) = self.target(m, (result, results), by)?;
        let bytes = m.sum.bytes();
        let followed = matches!(to, SumTarget::Sums(..));
        // More threads have smaller pieces.
        let packing = match &operands {
            Some(MemberOperands::Tiles(_)) => PiecePacking::Nothing,
            Some(MemberOperands::Lanes(_)) => PiecePacking::Columns,
            Some(MemberOperands::Sources([lhs, _])) if lhs.packs_rows() => PiecePacking::Both,
            _ => PiecePacking::Columns,
        };
        let tasks = ProductTasks { size, cuts, followed, bytes: bytes as i64, packing };
        let cut = tasks.split(1);
        if let Some(MemberOperands::Sources(sources)) = &operands {
            self.note_windows(sources, (size, cut), m.sum, &to);
        }
        let to = match to {
            SumTarget::Sums(_, then) => {
                SumTarget::Sums(self.own.take(cut.rows.saturating_mul(cut.task[1]), bytes)?, then)
            }
            to => to,
        };
        let most = [cut.rows, cut.task[1], size[3]].map(|n| usize::try_from(n).unwrap_or(0));
        let room = i64::try_from(by.room(m.sum, most)).unwrap_or(i64::MAX);
        let room = self.own.take(room, 1)?;
        let whole = matches!(by, Multiplier::Dots(_) | Multiplier::Lanes(_));
        let chunks = chunk_sums(size, bytes as i64).filter(|_| !whole);
        let chunks = chunks.map(|count| self.shared.take(count, bytes)).transpose()?;
        let touched_next = match to {
            SumTarget::Sums(..) => {
                touched_next(self.program, &m.then, [&m.batch, &m.rows, &m.cols], m.sum)
            }
            SumTarget::View(..) => SmallVec::new(),
        };
        Ok(CompiledMember {
            size,
            operands,
            sum: m.sum,
            to,
            tasks,
            split: OnceLock::new(),
            chunks,
            by,
            room,
            met: SubnormalState::default(),
            touched_next,
            onto: None,
        })
    }

    /// Where sums go, and where what follows them may be cut.
    fn target(
        &mut self,
        m: &Member,
        (result, results): (Extents, i64),
        by: Multiplier,
    ) -> Result<(SumTarget, TaskGranularity), Diagnostic> {
        let groups = [&m.batch, &m.rows, &m.cols];
        if let Some(view) = stored(self.program, &m.then, groups, m.sum) {
            self.note_stored_sums(results, m.sum);
            return Ok((SumTarget::View(view, None), TaskGranularity::default()));
        }
        // Prices are those of a kernel, on every host.
        let adds =
            matches!(by, Multiplier::Matrices(gemm) if gemm.finishes()) && self.facts.is_none();
        // Sums of several chunks are stored before the last one is added, and the result may be in memory of what is added to them.
        let depth = volume(&m.depth);
        let adds = adds && (1..=CONTRACT_CHUNK as i64).contains(&depth);
        let with = adds.then(|| sum_with(self.program, &m.then, groups, m.sum)).flatten();
        if let Some((view, other)) = with {
            return Ok((SumTarget::View(view, Some(other)), TaskGranularity::default()));
        }
        let stages = vec![m.then.clone()];
        let kernel = Kernel { domain: result, stages, ..Kernel::default() };
        let then = self.kernel(&kernel, Some(m.sum))?;
        let cuts = then.cuts;
        Ok((SumTarget::Sums(0, then), cuts))
    }

    /// A contraction that was taken out of a loop.
    pub(super) fn accumulated(
        &mut self,
        m: &Member,
        product: Option<&AccumulatedProduct>,
    ) -> Result<CompiledMember, Diagnostic> {
        let member = self.member(m)?;
        let onto = product.map(|&AccumulatedProduct { start, reverse, .. }| Accumulation {
            start: CarryStart::of(start, (m.sum, Storage::Plain)),
            reverse,
        });
        Ok(CompiledMember { onto, ..member })
    }

    /// The same sums as a batch of matrices that are read in place. In a convolution by kernels of one element the columns of each
    /// image are evenly spaced, and those of all images are not. `None` where nothing is gained.
    fn evenly_spaced(&self, m: &Member) -> Option<Member> {
        let is_read = |m: &Member| {
            let groups = |free| [&m.batch, free, &m.depth];
            read(self.program, &m.lhs, groups(&m.rows), m.sum).is_some()
                && read(self.program, &m.rhs, groups(&m.cols), m.sum).is_some()
        };
        if is_read(m) {
            return None;
        }
        let mut found = m.with_columns_in_batch()?;
        while !is_read(&found) {
            found = found.with_columns_in_batch()?;
        }
        let products = volume([&found.rows, &found.cols, &found.depth].into_iter().flatten());
        (products >= EACH).then_some(found)
    }

    /// The operands: packed for a kernel of dot products, if the host has one that keeps the mode's promise.
    fn member_operands(
        &mut self,
        m: &Member,
        size: [i64; 4],
    ) -> Result<MemberOperands, Diagnostic> {
        if let Some(lanes) = self.lane_product(m, size)? {
            return Ok(MemberOperands::Lanes(Box::new(lanes)));
        }
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
                    let dense = DenseAxes::of(self.program, side, (feed, groups));
                    let as_array = (kernel.element(), dense);
                    TileSource::Array(self.computed_operand(feed, groups, as_array)?)
                }
            };
            let size = [batch, lines, depth];
            if side == OperandSide::Left && source.in_place(kernel, [lines, depth]) {
                return Ok(TiledOperand { kernel, side, source, size, at: None });
            }
            let bytes = packed_bytes(kernel.element(), size).unwrap_or(i64::MAX);
            let at = Some(self.shared.take(bytes, 1)?);
            Ok::<_, Diagnostic>(TiledOperand { kernel, side, source, size, at })
        };
        let left = operand(OperandSide::Left, &m.lhs, &m.rows, rows)?;
        Ok(MemberOperands::Tiles([left, operand(OperandSide::Right, &m.rhs, &m.cols, cols)?]))
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
        let sides = [(&m.lhs, groups(&m.rows)), (&m.rhs, groups(&m.cols))];
        let views = sides.map(|(feed, groups)| read(self.program, feed, groups, m.sum));
        let copied = sides.map(|(feed, groups)| windows(self.program, feed, groups, m.sum));
        let open = |k: usize| {
            let others = size[2 - k];
            views[k].is_none() && copied[k].as_ref().is_some_and(|w| others <= FEW || w.overlaps)
        };
        let any = size[3] > 0 && (open(0) || open(1));
        let [lhs, rhs] = sides;
        let [lhs_view, rhs_view] = views;
        let [lhs_copied, rhs_copied] = copied.map(|w| w.filter(|_| any));
        Ok([
            self.source((OperandSide::Left, lhs), (lhs_view, lhs_copied), m.sum)?,
            self.source((OperandSide::Right, rhs), (rhs_view, rhs_copied), m.sum)?,
        ])
    }

    /// Notes the elements of windows that are packed, for tiles of the vectors that are asked about.
    fn note_windows(
        &mut self,
        sources: &[OperandSource; 2],
        (size, cut): ([i64; 4], TaskSplit),
        sum: DType,
        to: &SumTarget,
    ) {
        let Some(lanes) = self.facts.as_ref().map(|f| f.lanes()) else { return };
        if !sources.iter().any(|s| matches!(s, OperandSource::Windows(_))) {
            return;
        }
        let [batch, rows, cols, depth] = size;
        let piece = [cut.rows.min(rows), cut.task[1].min(cols), depth];
        let none = std::ptr::null_mut();
        let [lhs, rhs] = [0, 1].map(|k| sources[k].side(none, 0, k == 0));
        let [row, column] = match to {
            SumTarget::Sums(..) => [piece[1], 1],
            SumTarget::View(v, _) => v.steps,
        };
        let out = MatrixView { at: none, row: row as isize, column: column as isize };
        let each = piece.map(|n| usize::try_from(n).unwrap_or(0));
        let packed = packed_windows(each, [&lhs, &rhs], out, (sum, lanes));
        // Pieces may pack a window more than once. It is priced once, at a price that is three times what packing takes where four
        // neighbours or more are copied together.
        for (packed, lines) in packed.into_iter().zip([rows, cols]) {
            if packed {
                self.note_pass(PassKind::Pack, volume([batch, lines, depth]));
            }
        }
    }

    /// Notes the pass over stored sums that makes their NaNs the canonical one. Kernels that follow sums do it themselves.
    fn note_stored_sums(&mut self, results: i64, sum: DType) {
        if let Some(facts) = &mut self.facts {
            facts.stored_sums(results, sum);
        }
    }

    /// Notes operands that are copied for few rows or columns: a pass over them takes as long as the product.
    fn note_copies(&mut self, operands: &[OperandSource; 2], [batch, rows, cols, depth]: [i64; 4]) {
        let wide = usize::from(cols > rows);
        if let OperandSource::View(view) = &operands[wide]
            && rows.min(cols) <= FEW
            && view.steps[0] != 1
        {
            let all = [batch, rows.max(cols), depth];
            self.note_pass(PassKind::Pack, volume(all));
        }
    }

    fn source(
        &mut self,
        (side, (feed, groups)): (OperandSide, (&Feed, [&Extents; 3])),
        there: (Option<View>, Option<WindowOperand>),
        sum: DType,
    ) -> Result<OperandSource, Diagnostic> {
        Ok(match there {
            (Some(view), _) => OperandSource::View(view),
            (None, Some(windows)) => OperandSource::Windows(Box::new(windows)),
            (None, None) => {
                let dense = DenseAxes::of(self.program, side, (feed, groups));
                OperandSource::Packed(self.computed_operand(feed, groups, (sum, dense))?)
            }
        })
    }
}
