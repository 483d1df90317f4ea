//! What a program becomes: one module of PTX text, and for each step the launches that do its work.
//!
//! Everything that a runtime needs is data: which entry points run in which order, over how many blocks
//! of how many threads, with how much shared memory, and which pointers they are given. A runtime that has
//! a place on the device for each buffer of the program, for the arrays that callers hand over where
//! those are laid out otherwise, and for [`PtxModule::scratch`] bytes beside them, launches what stands here
//! in order, on one stream.
//!
//! A step may be several launches, of which a later one reads again what an earlier one has read: what a step
//! writes must be in no memory that the same step reads. Layouts that write results over
//! operands that die at the step are for engines that read each operand once. NaNs in memory are those that the
//! chip makes: whoever hands an array over makes them canonical, as `Array` does.

pub(crate) use super::schedule::BlockBinding;
use adfuse_ir::DType;
use adfuse_ir::kernel::Buffer;
use cranelift_entity::SecondaryMap;
use std::ops::Range;
use std::sync::Arc;

/// A program as text for the driver, and what to launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PtxModule {
    /// One PTX module with all entry points. The same program gives the same text.
    pub text: String,
    /// The modules of users' kernels, each by itself.
    pub users: Vec<Arc<str>>,
    /// Ranges of steps of which one may begin before those before it are done, where they touch no memory that one of them
    /// writes.
    pub concurrent: Vec<Range<usize>>,
    /// What comes before the first step: copies of inputs that the caller hands over row-major and whose
    /// buffers are packed or have strides.
    pub enter: StepCode,
    /// What each step of the program becomes, in their order. A transfer has no launches: a
    /// runtime copies.
    pub steps: Vec<StepCode>,
    /// What comes after the last step: copies of outputs that the caller is handed row-major.
    pub leave: StepCode,
}

impl PtxModule {
    /// The most bytes beside the buffers that any step needs. Steps run one after the other, so that
    /// one block of memory does for all of them.
    pub fn scratch(&self) -> u64 {
        let all = self.steps.iter().chain([&self.enter, &self.leave]);
        all.map(|s| s.scratch).max().unwrap_or(0)
    }
}

/// What one step becomes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StepCode {
    /// In the order in which they run, each after the one before is done.
    pub launches: Vec<Launch>,
    /// Pieces of work that the launches do; several of a bundle share a launch.
    pub pieces: usize,
    /// Bytes beside the buffers that they need while they run. What is in them before is never read.
    pub scratch: u64,
    /// Whether each element is read before the launches write there, and not again: results may be written over
    /// operands then.
    pub reads_first: bool,
    /// The programs that a loop or a branch runs, in the order of
    /// [`Step::blocks`](adfuse_ir::kernel::Step::blocks).
    pub blocks: Vec<BlockCode>,
}

impl StepCode {
    /// Whether it, or a program in it, launches an entry point of this module of a user's.
    #[cfg(feature = "gpu")]
    pub(crate) fn has_user(&self, number: usize) -> bool {
        let own = self.launches.iter().any(|launch| launch.user == Some(number));
        own || self.blocks.iter().flat_map(|block| &block.steps).any(|step| step.has_user(number))
    }
}

/// What a program that a step runs becomes. Where it has its own buffers, and where those are that it carries, is known
/// before the first turn; a turn is `before`, the steps and `after`, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockCode {
    /// What it is to the step.
    pub role: String,
    /// Where its buffers are. Those with [`BlockBinding::Element`] are given to launches as the beginning of the
    /// stack: entry points add the place of the element, by the position at [`Arg::Position`].
    pub bindings: SecondaryMap<Buffer, BlockBinding>,
    /// Copies of elements that are not used where they are.
    pub before: Vec<Launch>,
    /// What each of its steps becomes.
    pub steps: Vec<StepCode>,
    /// Copies of what is not written where it goes.
    pub after: Vec<Launch>,
}

/// The entry point that says where a loop is. It is given pointers and numbers of 64 bits: the memory of the loop's
/// position ([`POSITION_BYTES`]), the position, the index of the first turn, and what to add to that from turn to turn.
/// A block of [`TURNS`] threads writes the position at the beginning and the indices of the next turns from
/// [`INDICES_AT`] on, 8 bytes each.
pub const POSITION_ENTRY: &str = "loop_position";

/// The turns of a loop whose indices are in memory at a time: the most that one graph has.
pub const TURNS: u64 = 64;

/// Where the indices of turns begin in the memory of a loop's position.
pub const INDICES_AT: u64 = 64;

/// Bytes of the memory of a loop's position.
pub const POSITION_BYTES: u64 = INDICES_AT + 8 * TURNS;

/// The entry point that fills memory with values of this many bytes, 1, 2, 4 or 8. It is given a pointer, the bits of the
/// value and how many there are; blocks have [`FILL_THREADS`] threads, each of which fills one.
pub fn fill_entry(width: u64) -> String {
    format!("loop_fill_{width}")
}

/// Threads of a block that fills memory.
pub const FILL_THREADS: u32 = 256;

/// One launch of an entry point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The entry point's name in the text, or in the module of a user's.
    pub entry: String,
    /// The number of that module ([`PtxModule::users`]).
    pub user: Option<usize>,
    /// Blocks along x, y and z; each at least 1.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Where it is given, blocks take turns: of the grid this many are launched for each multiprocessor, and they do
    /// the work of all.
    pub resident: Option<u32>,
    /// Blocks that run at the same time and reach each other's shared memory: of the grid whole groups of this many along x
    /// are launched. 1 where there are none.
    pub cluster: u32,
    /// Bytes of dynamic shared memory of a block. Where they are more than 48 KiB the function's attribute
    /// for the most of it has to be raised before.
    pub shared: u32,
    /// The entry point's parameters: a device pointer of 64 bits each, or a number.
    pub args: Vec<Arg>,
    /// The parameters after those: tensor maps of [`TensorMap::BYTES`] bytes, by which the copy engine brings tiles.
    pub maps: Vec<TensorMap>,
}

impl Launch {
    /// A launch of blocks of this many threads along x that take no turns and form no clusters, with no shared memory and no parameters.
    pub fn new(entry: impl Into<String>, grid: [u32; 3], block: u32) -> Launch {
        let entry = entry.into();
        let (args, maps) = (Vec::new(), Vec::new());
        Launch {
            entry,
            user: None,
            grid,
            block: [block, 1, 1],
            resident: None,
            cluster: 1,
            shared: 0,
            args,
            maps,
        }
    }

    /// What it is given: pointers, and the arrays of its tensor maps.
    pub fn given(&self) -> impl Iterator<Item = Arg> + '_ {
        self.args.iter().copied().chain(self.maps.iter().map(|map| map.arg))
    }

    /// The same, to be changed.
    pub(crate) fn given_mut(&mut self) -> impl Iterator<Item = &mut Arg> {
        self.args.iter_mut().chain(self.maps.iter_mut().map(|map| &mut map.arg))
    }
}

/// An array as the copy engine sees it, with tiles in the pattern of banks that repeats every 1024 bytes of shared memory
/// (128-byte swizzle). Elements outside of the extents are 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// Where the array is.
    pub arg: Arg,
    /// Bytes before its first element; a multiple of 16.
    pub offset: u64,
    /// The type of its elements.
    pub dtype: DType,
    /// Elements along each axis, the neighbours first: one to five axes.
    pub extents: Vec<u64>,
    /// Bytes from one element to the next along each axis but the first; multiples of 16.
    pub strides: Vec<u64>,
    /// Elements of a tile along each axis.
    pub tile: Vec<u32>,
}

impl TensorMap {
    /// Whether its tile has a side for each axis, of 1 to 256 elements.
    pub fn has_tile(&self) -> bool {
        self.tile.len() == self.extents.len() && self.tile.iter().all(|n| (1..=256).contains(n))
    }

    /// Bytes of a map, as entry points are given it.
    pub const BYTES: usize = 128;
    /// Axes that a map has at most.
    pub const MOST_AXES: usize = 5;
}

/// What a launch is given: a device pointer, or a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arg {
    /// Where a buffer of the program is; 16-byte aligned at least.
    Buffer(Buffer),
    /// Where the caller's array of an input or output is, row-major without gaps, whose buffer is packed or
    /// has strides. Only [`PtxModule::enter`] and [`PtxModule::leave`] have these; of all other buffers
    /// [`Arg::Buffer`] is what the caller hands over and is handed.
    Caller(Buffer),
    /// This many bytes into the step's scratch, which is 256-byte aligned at least.
    Scratch {
        /// A multiple of 256.
        offset: u64,
    },
    /// Where the position of a loop's turn is: 8 bytes.
    Position,
    /// Where a buffer of the program around a block is. As with [`BlockBinding::Element`], the entry point adds the place of
    /// the element.
    Outer(Buffer),
    /// Where an output of the block goes, by its number.
    Result(usize),
    /// No pointer: a whole number, of which the parameter takes as many of the low bits as it has.
    Number(u64),
}
