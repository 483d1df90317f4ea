//! Loops that are one function since all that their blocks compute is scalars: which loops these are, and what they become.

use super::codegen::scalar_form::written;
use super::codegen::scalar_loop::{
    ScalarBlock, ScalarCarry, ScalarInput, ScalarLoop, ScalarStage, ScalarStart,
};
use super::legal::LegalBlock;
use super::machine_code::SweepId;
use adfuse_ir::kernel::{
    Block, BlockInput, Buffer, BufferData, Carry, Kernel, Loop, LoopTrips, Operand, Param, Program,
    Role, Row, Sink, Stage, Step, Storage,
};
use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::{DType, Literal};
use cranelift_entity::EntityRef;
use hashbrown::HashMap;

/// The most instructions of a loop's blocks.
const LONG: usize = 4096;

/// A loop over scalars, made.
pub(super) struct CompiledScalarLoop {
    pub(super) op: &'static str,
    pub(super) function: SweepId,
    pub(super) trips: ScalarTrips,
    /// The type of positions.
    pub(super) index: DType,
}

/// How many steps it has.
pub(super) enum ScalarTrips {
    Known(u64),
    Count(usize),
    Range(usize, usize),
    /// Until its test says no, this many at most; 0 where there is no bound.
    While(u64),
}

impl ScalarTrips {
    pub(super) fn of(trips: &LoopTrips) -> ScalarTrips {
        match trips {
            LoopTrips::Known(n) => ScalarTrips::Known(*n),
            LoopTrips::Count(n) => ScalarTrips::Count(n.index()),
            LoopTrips::Range(from, to) => ScalarTrips::Range(from.index(), to.index()),
            LoopTrips::While { most, .. } => ScalarTrips::While(*most),
        }
    }
}

/// The function of a loop; `None` where it is not a loop over scalars. `contract` says whether products may be joined with
/// sums.
pub(super) fn plan(
    program: &Program,
    step: &Loop,
    blocks: &[LegalBlock],
    contract: bool,
) -> Option<ScalarLoop> {
    let data = |b: Buffer| &program.buffers[b];
    let carry = |carry: &Carry| {
        let dtype = scalar(data(carry.to))?;
        let start = match carry.from {
            Operand::Buffer(b) => ScalarStart::At(scalar(data(b)).map(|_| b.as_u32())?),
            Operand::Literal(l) => ScalarStart::Literal(l),
        };
        Some(ScalarCarry { start, to: carry.to.as_u32(), dtype })
    };
    if step.back.is_some() {
        return None;
    }
    let mut blocks = blocks.iter();
    let mut block =
        |block: &Block| BlockPlanner::new(program, blocks.next()?, contract).planned(block);
    let (test, index) = match &step.trips {
        LoopTrips::While { test, .. } => (Some(block(test)?), DType::I64),
        LoopTrips::Range(from, _) => (None, data(*from).dtype),
        LoopTrips::Known(_) | LoopTrips::Count(_) => (None, DType::I64),
    };
    let made = ScalarLoop {
        carries: step.carries.iter().map(carry).collect::<Option<_>>()?,
        test,
        step: block(&step.step)?,
        stacks: step
            .stacks
            .iter()
            .map(|&b| element(data(b)).map(|_| b.as_u32()))
            .collect::<Option<_>>()?,
        reverse: step.reverse,
        index,
    };
    let size = |b: &ScalarBlock| b.stages.iter().map(|s| s.program.insts.len()).sum::<usize>();
    let all = size(&made.step) + made.test.as_ref().map_or(0, size);
    (all <= LONG).then_some(made)
}

/// The type of a buffer of one element that is stored as it is.
fn scalar(data: &BufferData) -> Option<DType> {
    let one = data.storage == Storage::Plain && data.dims.iter().all(|&n| n == 1);
    one.then_some(data.dtype)
}

/// The type of the elements of a buffer with one axis, which lie next to each other.
fn element(data: &BufferData) -> Option<DType> {
    let one = data.storage == Storage::Plain && data.strides.is_none();
    (one && data.dims.iter().skip(1).all(|&n| n == 1)).then_some(data.dtype)
}

struct BlockPlanner<'a> {
    /// Around the block.
    outer: &'a Program,
    program: &'a Program,
    contract: bool,
    made: ScalarBlock,
    /// The values that buffers have now.
    buffers: HashMap<Buffer, usize>,
    /// The values of a kernel's rows.
    rows: HashMap<Row, usize>,
}

impl<'a> BlockPlanner<'a> {
    fn new(outer: &'a Program, block: &'a LegalBlock, contract: bool) -> BlockPlanner<'a> {
        BlockPlanner {
            outer,
            program: &block.legal.low.program,
            contract,
            made: ScalarBlock::default(),
            buffers: HashMap::new(),
            rows: HashMap::new(),
        }
    }

    fn value(&mut self) -> usize {
        self.made.values += 1;
        self.made.values - 1
    }

    fn given(&mut self, input: ScalarInput) -> usize {
        let v = self.value();
        self.made.given.push((v, input));
        v
    }

    fn planned(mut self, block: &Block) -> Option<ScalarBlock> {
        for (b, input) in block.bindings() {
            scalar(&self.program.buffers[b])?;
            let from = |b: Buffer| &self.outer.buffers[b];
            let input = match input {
                BlockInput::Index => ScalarInput::Index,
                BlockInput::Carry(k) => ScalarInput::Carry(k),
                BlockInput::Returned(_) => return None,
                BlockInput::Element(b) => ScalarInput::Element(b.as_u32(), element(from(b))?),
                BlockInput::Whole(b) => ScalarInput::Whole(b.as_u32(), scalar(from(b))?),
            };
            let v = self.given(input);
            self.buffers.insert(b, v);
        }
        let program = self.program;
        for (b, data) in program.buffers.iter() {
            if let Role::Constant(values) = &data.role {
                scalar(data)?;
                let v = self.given(ScalarInput::Literal(*values.first()?));
                self.buffers.insert(b, v);
            }
        }
        for step in &program.steps {
            match step {
                Step::Kernel(kernel) => self.kernel(kernel)?,
                Step::Bundle(bundle) => bundle.kernels.iter().try_for_each(|k| self.kernel(k))?,
                _ => return None,
            }
        }
        for b in &program.outputs {
            let v = *self.buffers.get(b)?;
            self.made.outputs.push(v);
        }
        Some(self.made)
    }

    /// A kernel of one point.
    fn kernel(&mut self, kernel: &Kernel) -> Option<()> {
        let one = |extents: &[i64]| extents.iter().all(|&n| n == 1);
        self.rows.clear();
        if !one(&kernel.domain) {
            return None;
        }
        for stage in &kernel.stages {
            if !one(&stage.axes) {
                return None;
            }
            let rank = kernel.domain.len() + stage.axes.len();
            self.stage(stage, &vec![0; rank])?;
        }
        Some(())
    }

    fn stage(&mut self, stage: &Stage, zeros: &[i64]) -> Option<()> {
        let program = written(&stage.program, self.contract);
        let mut params = Vec::with_capacity(stage.params.len());
        for (param, &dtype) in stage.params.iter().zip(&program.params) {
            params.push(self.param(param, dtype, zeros)?);
        }
        let mut outputs = Vec::with_capacity(stage.sinks.len());
        for (sink, &v) in stage.sinks.iter().zip(&program.outputs) {
            let to = self.value();
            let dtype = program.insts[v].dtype;
            match sink {
                Sink::Store { buffer, .. } => {
                    let data = &self.program.buffers[*buffer];
                    (scalar(data)? == dtype).then_some(())?;
                    self.buffers.insert(*buffer, to);
                    outputs.push((to, true));
                }
                Sink::Leave(row) => {
                    self.rows.insert(*row, to);
                    outputs.push((to, false));
                }
                _ => return None,
            }
        }
        self.made.stages.push(ScalarStage { program: used(program)?, params, outputs });
        Some(())
    }

    fn param(&mut self, param: &Param, dtype: DType, zeros: &[i64]) -> Option<usize> {
        match param {
            Param::Load(pieces) => {
                let [piece] = pieces.as_slice() else { return None };
                match piece.from {
                    _ if !piece.guards.is_empty() => None,
                    Operand::Literal(l) => Some(self.given(ScalarInput::Literal(l))),
                    Operand::Buffer(b) => {
                        let same = self.program.buffers[b].dtype == dtype;
                        self.buffers.get(&b).copied().filter(|_| same)
                    }
                }
            }
            Param::Coord(e) => {
                let at = e.factors(zeros.len()).map(|_| e.eval(zeros, &[]))?;
                Some(self.given(ScalarInput::Literal(Literal::from_i64(DType::I64, at))))
            }
            Param::Row(row) => self.rows.get(row).copied(),
            Param::Tile(_) | Param::Sum => None,
        }
    }
}

/// A program that holds nothing but primitives.
fn used(program: ScalarProgram) -> Option<ScalarProgram> {
    let known = program.insts.values().all(|i| !matches!(i.op, adfuse_ir::scalar::SOp::Func(_)));
    known.then_some(program)
}
