//! Loops and branches: their regions become programs of their own. Tokens are no buffers of these: steps of a program run
//! in order, and so do the programs of a loop.

use super::Lower;
use super::{LowerWith, is_stored, placed};
use crate::plan::blocks::block_function;
use crate::plan::graph_hash;
use crate::plan::loop_choice::plenty_of_checkpoints;
use adfuse_ir::control::{Entered, LoopRoles, Trips};
use adfuse_ir::kernel::{
    Back, Block, BlockInput, Branch, Buffer, BufferData, Carry, Kernel, Loop, LoopTrips, Operand,
    Program, Role, Step, Storage, verify,
};
use adfuse_ir::op::Control;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{Diagnostic, Inst, Kind, Literal, TensorType, Value};
use std::ops::Range;

impl Lower<'_> {
    /// The step of a loop or a branch. What it reads and writes is in buffers.
    pub(super) fn control(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let internal = || Diagnostic::new(at_inst(f, i), Kind::Internal, "no loop and no branch");
        match f.op(i).control().ok_or_else(internal)? {
            Control::Branch => self.branch(i),
            Control::While => self.while_loop(i),
            Control::Loop(_) => self.counted_loop(i),
            Control::Call => Err(internal()),
        }
    }

    fn branch(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let selector = self.scalar(i, f.args(i)[0])?;
        let blocks = (0..f.inst(i).regions.len()).map(|r| self.block(i, r, &[], &[]));
        let blocks = blocks.collect::<Result<_, _>>()?;
        let outputs = self.results_of(i, 0..f.inst_results(i).len())?;
        Ok(Step::Branch(Branch { name: self.step_name(i), selector, blocks, outputs }))
    }

    fn while_loop(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let count = f.args(i).len();
        let entered: Vec<BlockInput> =
            (0..self.tensors(&f.args(i)[..count]).count()).map(BlockInput::Carry).collect();
        let most = f.attrs(i).int("max_trips").unsigned_abs();
        let test = self.block(i, 0, &entered, &[])?;
        Ok(Step::Loop(Box::new(Loop {
            name: self.step_name(i),
            trips: LoopTrips::While { test, most },
            reverse: false,
            carries: self.carries(i, 0..count, 0..count)?,
            step: self.block(i, 1, &entered, &[])?,
            stacks: Vec::new(),
            back: None,
        })))
    }

    fn counted_loop(&mut self, i: Inst) -> Result<Step, Diagnostic> {
        let f = self.facts.f;
        let roles = LoopRoles::at(f, i);
        let regions = &f.inst(i).regions;
        let down = roles.step(f, regions[0]);
        let entered = self.entered(i, &roles, &down)?;
        let stacks = self.results_of(i, roles.ys_results())?;
        let step = self.block(i, 0, &entered, &stacks)?;
        let mut back = None;
        if let Some(&region) = regions.get(1) {
            let up = roles.back(f, region);
            let entered = self.entered(i, &roles, &up)?;
            let stacks = self.results_of(i, roles.zs_results())?;
            back = Some(Back {
                checkpoints: f.attrs(i).int("checkpoints").unsigned_abs(),
                carries: self.carries(i, roles.up_args(), roles.up_results())?,
                step: self.block(i, 1, &entered, &stacks)?,
                stacks,
            });
        }
        let mut made = Loop {
            name: self.step_name(i),
            trips: self.trips(i, &roles)?,
            reverse: roles.reverse,
            carries: self.carries(i, roles.carry_args(), roles.carry_results())?,
            step,
            stacks,
            back,
        };
        if let Some(back) = made.back.as_mut().filter(|back| back.checkpoints == 0) {
            let bytes = made.carries.iter().map(|c| self.program.buffers[c.to].bytes());
            let state = bytes.fold(0, u64::saturating_add);
            back.checkpoints = plenty_of_checkpoints(state, made.trips.known());
        }
        Ok(Step::Loop(Box::new(made)))
    }

    fn trips(&mut self, i: Inst, roles: &LoopRoles) -> Result<LoopTrips, Diagnostic> {
        let f = self.facts.f;
        let known = |n: i64| LoopTrips::Known(n.max(0).unsigned_abs());
        let number = |v: Value| f.literal(v).map(Literal::to_i64);
        Ok(match roles.trips(f, i) {
            Trips::Length(n) => match n.known() {
                Some(n) => LoopTrips::Known(n),
                None => return Err(self.broken(i)),
            },
            Trips::Count(n) => match number(n) {
                Some(n) => known(n),
                None => LoopTrips::Count(self.scalar(i, n)?),
            },
            Trips::Range(from, to) => match (number(from), number(to)) {
                (Some(0), Some(to)) => known(to),
                _ => LoopTrips::Range(self.scalar(i, from)?, self.scalar(i, to)?),
            },
        })
    }

    /// What the parameters of a region of a loop are, captured values apart.
    fn entered(
        &mut self,
        i: Inst,
        roles: &LoopRoles,
        at: &Entered,
    ) -> Result<Vec<BlockInput>, Diagnostic> {
        let mut inputs: Vec<BlockInput> = Vec::new();
        inputs.extend(at.index.map(|_| BlockInput::Index));
        inputs.extend((0..self.tensors(&at.carry).count()).map(BlockInput::Carry));
        inputs.extend((0..self.tensors(&at.up).count()).map(BlockInput::Returned));
        let scanned = roles.xs_args().take(at.xs.len());
        for k in scanned.chain(roles.ws_args().take(at.ws.len())) {
            inputs.push(self.scanned(i, self.facts.f.args(i)[k])?);
        }
        Ok(inputs)
    }

    /// What a step sees of an operand that is scanned: of one value everywhere, an element that is the same for all.
    fn scanned(&mut self, i: Inst, v: Value) -> Result<BlockInput, Diagnostic> {
        let f = self.facts.f;
        match f.literal(v) {
            Some(l) => {
                let element = adfuse_ir::control::element(f.ty(v));
                Ok(BlockInput::Whole(self.constant(i, &element, l)?))
            }
            None => Ok(BlockInput::Element(self.buffer(i, v)?)),
        }
    }

    /// The program of a region, with its captured values and its other inputs. Its last outputs are elements of these
    /// stacks.
    fn block(
        &mut self,
        i: Inst,
        region: usize,
        inner: &[BlockInput],
        stacks: &[Buffer],
    ) -> Result<Block, Diagnostic> {
        let f = self.facts.f;
        let block = block_function(f, i, region);
        let graph = graph_hash(&block.func);
        let Some(plan) = self.plan.blocks.iter().find(|plan| plan.graph == graph) else {
            let m = format!("the plan has no plan for the block @{}", block.func.name);
            return Err(Diagnostic::new(at_inst(f, i), Kind::Usage, m));
        };
        let located = |d: Diagnostic| Diagnostic { at: at_inst(f, i), ..d };
        let mut inputs = Vec::new();
        for v in self.tensors(&block.captures) {
            inputs.push(BlockInput::Whole(self.buffer(i, v)?));
        }
        inputs.extend_from_slice(inner);
        let element = |input: &BlockInput| match *input {
            BlockInput::Element(stack) => Some(stack),
            _ => None,
        };
        let around = inputs.iter().filter_map(element).chain(stacks.iter().copied());
        let forms: Vec<Storage> = around.map(|b| self.program.buffers[b].storage).collect();
        // Blocks of the memo have no names.
        let memo = self.memo.filter(|_| !self.is_named);
        if let Some(known) = memo.and_then(|memo| memo.block(plan, &forms)) {
            return Ok(Block { program: (*known).clone(), inputs });
        }
        let with = LowerWith { device: self.device, memo, is_named: self.is_named };
        let mut program = placed(&block.func, plan, with).map_err(located)?.program;
        let params: Vec<Buffer> = program.inputs().collect();
        for (&b, input) in params.iter().zip(&inputs) {
            if let BlockInput::Element(stack) = *input {
                program.buffers[b].storage = self.program.buffers[stack].storage;
            }
        }
        for (k, &stack) in stacks.iter().enumerate() {
            let k = program.outputs.len() - stacks.len() + k;
            let storage = self.program.buffers[stack].storage;
            if storage != Storage::Plain {
                program = packed(program, k, storage);
            }
        }
        let program = verify(program).map_err(|mut all| located(all.swap_remove(0)))?;
        if let Some(memo) = memo {
            memo.keep_block(plan, &forms, program.clone());
        }
        Ok(Block { program, inputs })
    }

    fn carries(
        &self,
        i: Inst,
        from: Range<usize>,
        to: Range<usize>,
    ) -> Result<Vec<Carry>, Diagnostic> {
        let f = self.facts.f;
        let results = self.results_of(i, to)?;
        let carry = |(v, to)| {
            let from = match f.literal(v) {
                Some(l) => Operand::Literal(l),
                None => Operand::Buffer(self.buffer(i, v)?),
            };
            Ok(Carry { from, to })
        };
        self.tensors(&f.args(i)[from]).zip(results).map(carry).collect()
    }

    pub(super) fn results_of(
        &self,
        i: Inst,
        these: Range<usize>,
    ) -> Result<Vec<Buffer>, Diagnostic> {
        let results = self.facts.f.inst_results(i);
        self.tensors(&results[these]).map(|v| self.buffer(i, v)).collect()
    }

    /// Those of some values that are in buffers: all but tokens.
    pub(super) fn tensors<'v>(&'v self, values: &'v [Value]) -> impl Iterator<Item = Value> + 'v {
        values.iter().copied().filter(|&v| is_stored(self.facts.f, v))
    }

    pub(super) fn buffer(&self, i: Inst, v: Value) -> Result<Buffer, Diagnostic> {
        self.buffers[v].ok_or_else(|| self.broken(i))
    }

    /// The buffer of a value, which may be a literal.
    pub(super) fn scalar(&mut self, i: Inst, v: Value) -> Result<Buffer, Diagnostic> {
        let f = self.facts.f;
        match f.literal(v) {
            Some(l) => self.constant(i, &f.ty(v).clone(), l),
            None => self.buffer(i, v),
        }
    }

    /// A constant with one value everywhere.
    fn constant(&mut self, i: Inst, ty: &TensorType, l: Literal) -> Result<Buffer, Diagnostic> {
        let count = ty.elements().and_then(|n| usize::try_from(n).ok());
        let (Some(count), Some(dims)) = (count, ty.dims()) else { return Err(self.broken(i)) };
        let dims = dims.iter().map(|&n| n as i64).collect();
        let name = self.number();
        let data = BufferData::new(name, ty.dtype, dims, Role::Constant(vec![l; count]));
        Ok(self.program.buffers.push(data))
    }

    fn step_name(&self, i: Inst) -> String {
        self.facts.f.op(i).name().into()
    }

    fn broken(&self, i: Inst) -> Diagnostic {
        let m = "a loop or a branch reads or leaves what is in no buffer";
        Diagnostic::new(at_inst(self.facts.f, i), Kind::Internal, m)
    }
}

/// The program with an output packed: where it is computed, if that may be, and by a copy otherwise.
fn packed(mut program: Program, k: usize, storage: Storage) -> Program {
    let b = program.outputs[k];
    let once = program.outputs.iter().filter(|&&o| o == b).count() == 1;
    if once && program.buffers[b].role == Role::Output {
        let mut direct = program.clone();
        direct.buffers[b].storage = storage;
        if verify(direct.clone()).is_ok() {
            return direct;
        }
        program.buffers[b].role = Role::Temp;
    }
    let BufferData { dtype, dims, .. } = program.buffers[b].clone();
    let name = (0..).map(|n| format!("packed{n}"));
    let free = |name: &String| program.buffers.values().all(|data| data.name != *name);
    let name = name.into_iter().find(free).unwrap_or_default();
    let to = program
        .buffers
        .push(BufferData { storage, ..BufferData::new(name, dtype, dims.clone(), Role::Output) });
    program.outputs[k] = to;
    let kernel = Kernel::copying("pack".into(), b, to, (dtype, &dims));
    program.steps.push(Step::Kernel(kernel));
    program
}
