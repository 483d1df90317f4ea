//! The form of a sweep: what its code depends on. Sweeps of one form share a function, which is compiled once.
//!
//! A form numbers buffers in the order in which the sweep mentions them, as [`StepForm`](adfuse_ir::kernel::StepForm) does.
//! The function reads the table of pointers where the first sweep of the form has its buffers; another sweep of the form
//! puts its own pointers there while it runs ([`MovedPointers`]).

use super::loop_ir::{FoldOutput, Sweep, SweepOutput};
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, BufferData, Extents, Operand, Param, Program};
use adfuse_ir::scalar::ScalarProgram;
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// What the code of a sweep depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct SweepForm {
    extents: Extents,
    domain: usize,
    params: Vec<Param>,
    body: ScalarProgram,
    puts: Vec<FormOutput>,
    slots: (Vec<u32>, Vec<u32>, Option<(u32, DType)>),
    buffers: Vec<BufferData>,
    /// Where the program is: tables of pointers differ from program to program.
    program: usize,
}

/// Where an output goes.
#[derive(Clone, PartialEq, Eq, Hash)]
enum FormOutput {
    Store(Buffer, SmallVec<[IndexExpr; 4]>),
    Point(u32),
    Place(u32),
    Fold(FoldOutput),
}

/// The buffers of a sweep in the order in which it mentions them first.
pub(crate) type SweepBuffers = SmallVec<[Buffer; MOST_MOVED]>;

/// Sweeps of more buffers share no function.
pub(crate) const MOST_MOVED: usize = 16;

/// Entries of the table of pointers that a function reads, and those that a sweep has its pointers at.
pub(crate) type MovedPointers = SmallVec<[(u32, u32); MOST_MOVED]>;

/// Numbers buffers as they are met.
struct BufferNumbers<'a> {
    program: &'a Program,
    met: SweepBuffers,
}

impl BufferNumbers<'_> {
    fn number(&mut self, b: Buffer) -> Buffer {
        let known = self.met.iter().position(|&m| m == b);
        Buffer::new(known.unwrap_or_else(|| {
            self.met.push(b);
            self.met.len() - 1
        }))
    }

    fn data(&self) -> Option<Vec<BufferData>> {
        let of = |&b: &Buffer| {
            let data = self.program.buffers.get(b)?.clone();
            Some(BufferData { name: String::new(), donated: false, ..data })
        };
        self.met.iter().map(of).collect()
    }
}

impl SweepForm {
    /// The form of a sweep, and its buffers in the order of their numbers; `None` where it shares no function.
    pub(crate) fn of(sweep: &Sweep<'_>) -> Option<(SweepForm, SweepBuffers)> {
        // The updates of a scatter are of a program that lives as long as they are compiled: where it is says nothing.
        if sweep.target.is_some() {
            return None;
        }
        let mut numbers = BufferNumbers { program: sweep.program, met: SweepBuffers::new() };
        let mut params = sweep.params.to_vec();
        for param in &mut params {
            if let Param::Load(pieces) = param {
                for piece in pieces {
                    if let Operand::Buffer(b) = &mut piece.from {
                        *b = numbers.number(*b);
                    }
                }
            }
        }
        let put = |put: &SweepOutput<'_>| match *put {
            SweepOutput::Store(b, index) => FormOutput::Store(numbers.number(b), index.into()),
            SweepOutput::Point(slot) => FormOutput::Point(slot),
            SweepOutput::Place(slot) => FormOutput::Place(slot),
            SweepOutput::Fold(fold) => FormOutput::Fold(fold),
        };
        let puts = sweep.puts.iter().map(put).collect();
        let form = SweepForm {
            extents: sweep.extents.clone(),
            domain: sweep.domain,
            params,
            body: sweep.body.clone(),
            puts,
            slots: (sweep.slots.rows.clone(), sweep.slots.tiles.clone(), sweep.slots.sums),
            buffers: numbers.data()?,
            program: std::ptr::from_ref(sweep.program).addr(),
        };
        // No step of a run takes memory.
        (numbers.met.len() <= MOST_MOVED).then_some((form, numbers.met))
    }
}

/// Where a function that was made for `first` finds the pointers of a sweep that has `own` in their places; nothing
/// where they are the same.
pub(crate) fn moved(first: &SweepBuffers, own: &SweepBuffers) -> MovedPointers {
    let pairs = first.iter().zip(own).map(|(a, b)| (a.as_u32(), b.as_u32()));
    if first == own { MovedPointers::new() } else { pairs.collect() }
}
