//! What an engine needs in addition to the buffers of a program, and what plans that are compared have in common.

use super::{KnownPackings, Memory, scratch};
use crate::cost::cost_with;
use crate::cost::step_cost::Cost;
use crate::lower::group_memo::{DividedSteps, LoweringMemo};
use crate::plan::machine_model::MachineModel;
use crate::plan::options::Effort;
use adfuse_ir::kernel::Program;
use adfuse_ir::kernel::facts::KernelFacts;
use adfuse_ir::{Diagnostic, Fp};
use std::sync::Arc;

/// What plans need to know about an engine. Threads that compare plans share it.
pub trait EngineModel: Sync {
    /// A program as the engine would run it, before its memory is planned.
    ///
    /// # Errors
    /// For a program that the engine does not run.
    fn sized<'a>(&'a self, program: &'a Program) -> Result<Box<dyn SizedProgram + 'a>, Diagnostic> {
        Ok(Box::new(scratch(program, Effort::Quick)?))
    }

    /// The sizes of single steps, where what one needs, and what the engine divides it into, depends on it and its buffers
    /// alone: plans that are compared have most steps in common. `None` where programs are sized as wholes.
    fn step_sizes(&self) -> Option<Box<dyn StepSizes + '_>> {
        None
    }

    /// What the engine makes of each step of a program on a machine: which vectors its loops have, what it does one element
    /// at a time. `None` where it does not say, and the structure of the program says what a step costs.
    fn facts(&self, _program: &Program, _device: &MachineModel) -> Option<Vec<KernelFacts>> {
        None
    }

    /// Whether products of windows of `f32` have prologues: they read an array with zeros around it where it is, and compute
    /// elementwise functions of it on the way, so that no kernel need store either.
    fn window_prologues(&self, _fp: Fp) -> bool {
        false
    }

    /// What a program costs on a machine with this engine.
    fn cost(&self, program: &Program, device: &MachineModel) -> Cost {
        cost_with(program, device, &|program| self.facts(program, device))
    }

    /// The donated parameters, by position: plans reuse their memory.
    fn donated(&self) -> &[usize] {
        &[]
    }

    /// What was lowered before of the plans that are compared: it changes no plan.
    fn memo(&self) -> Option<&Arc<LoweringMemo>> {
        None
    }

    /// How memory of the plans that are compared was packed before: it changes no plan.
    fn packings(&self) -> Option<&Arc<KnownPackings>> {
        None
    }

    /// The scratch memory of each step of a program, in bytes.
    ///
    /// # Errors
    /// As [`EngineModel::sized`].
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        Ok(self.sized(program)?.scratch().to_vec())
    }
}

/// The sizes of steps, each by itself, whatever program it is in.
pub trait StepSizes {
    /// The scratch memory of each step of a program, in bytes. The verifier accepts the steps
    /// ([`verify_steps`](adfuse_ir::kernel::verify_steps)); the program need not be whole.
    ///
    /// # Errors
    /// As [`EngineModel::sized`].
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic>;

    /// Bytes at the peak of a program with these buffers and results where its memory is planned so: as
    /// [`SizedProgram::peak`]. The steps need not be there, and none runs other programs.
    ///
    /// # Errors
    /// As there.
    fn peak(&self, buffers: &Program, memory: &Memory) -> Result<u64, Diagnostic>;

    /// Whether the engine divides steps: then it plans the memory of [`StepSizes::divided`], with this effort whatever is
    /// asked for.
    fn divides(&self) -> Option<Effort> {
        None
    }

    /// The steps that the engine runs for those of a program, in their order, each divided by itself. `None` where it runs
    /// those that it is given.
    ///
    /// # Errors
    /// As [`EngineModel::sized`], and where what the steps are divided into depends on the program that they are in.
    fn divided(&self, _program: &Program) -> Result<Option<DividedSteps>, Diagnostic> {
        Ok(None)
    }
}

/// A program as an engine would run it.
pub trait SizedProgram {
    /// The scratch memory of each of its steps, in bytes.
    fn scratch(&self) -> &[u64];

    /// Bytes at the peak where its memory is planned so: what a budget is compared with. An engine may hold more than is
    /// planned, where it takes whole lines of a cache.
    ///
    /// # Errors
    /// For a program that the engine does not run.
    fn peak(&self, memory: &Memory) -> Result<u64, Diagnostic>;

    /// Bytes at the peak where the engine divides steps, so that it plans memory of its own whatever is planned for the
    /// steps that it is given.
    ///
    /// # Errors
    /// As [`SizedProgram::peak`].
    fn divided_peak(&self) -> Result<Option<u64>, Diagnostic> {
        Ok(None)
    }
}

/// A program that takes what is planned: its scratch memory by steps.
impl SizedProgram for Vec<u64> {
    fn scratch(&self) -> &[u64] {
        self
    }

    fn peak(&self, memory: &Memory) -> Result<u64, Diagnostic> {
        Ok(memory.peak)
    }
}

/// No particular engine: steps need the scratch that the program states.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyEngine;

impl EngineModel for AnyEngine {
    fn step_sizes(&self) -> Option<Box<dyn StepSizes + '_>> {
        Some(Box::new(AnyEngine))
    }
}

impl StepSizes for AnyEngine {
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        scratch(program, Effort::Quick)
    }

    fn peak(&self, _: &Program, memory: &Memory) -> Result<u64, Diagnostic> {
        Ok(memory.peak)
    }
}

/// An engine, with what was lowered and packed of the plans that are compared for it.
pub struct MemoEngine<'e> {
    engine: &'e dyn EngineModel,
    /// `None` where the engine has one.
    own: Option<Arc<LoweringMemo>>,
    packings: Arc<KnownPackings>,
}

impl<'e> MemoEngine<'e> {
    /// An engine with its memo; one that has none for this machine gets an empty one.
    pub fn new(engine: &'e dyn EngineModel, device: &MachineModel) -> MemoEngine<'e> {
        let known = engine.memo().is_some_and(|memo| memo.is_for(device));
        let own = (!known).then(|| Arc::new(LoweringMemo::new(device)));
        let packings = engine.packings().map_or_else(Arc::default, Arc::clone);
        MemoEngine { engine, own, packings }
    }

    /// What it knows of packings.
    pub(crate) fn own_packings(&self) -> Arc<KnownPackings> {
        Arc::clone(&self.packings)
    }

    /// What plans of blocks are made for: no particular engine, with what was lowered of the blocks of plans for this
    /// one.
    pub(crate) fn of_blocks(&self) -> MemoEngine<'static> {
        let memo = self.memo().map(|memo| Arc::clone(memo.of_blocks()));
        MemoEngine { engine: &AnyEngine, own: memo, packings: Arc::default() }
    }
}

impl EngineModel for MemoEngine<'_> {
    fn sized<'a>(&'a self, program: &'a Program) -> Result<Box<dyn SizedProgram + 'a>, Diagnostic> {
        self.engine.sized(program)
    }

    fn step_sizes(&self) -> Option<Box<dyn StepSizes + '_>> {
        self.engine.step_sizes()
    }

    fn facts(&self, program: &Program, device: &MachineModel) -> Option<Vec<KernelFacts>> {
        self.engine.facts(program, device)
    }

    fn window_prologues(&self, fp: Fp) -> bool {
        self.engine.window_prologues(fp)
    }

    fn donated(&self) -> &[usize] {
        self.engine.donated()
    }

    fn memo(&self) -> Option<&Arc<LoweringMemo>> {
        self.own.as_ref().or_else(|| self.engine.memo())
    }

    fn packings(&self) -> Option<&Arc<KnownPackings>> {
        Some(&self.packings)
    }
}
