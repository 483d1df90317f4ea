//! Equal groups are lowered once: a memo of what groups become, by their canonical form.
//!
//! Plans that are compared have most groups in common, and equal layers of a model have equal groups. What a group
//! becomes depends on its instructions, on which of their values are in buffers, and on how these are stored. A key says
//! that without naming values: they are numbered in the order in which they are met. The memo has a program of the
//! group alone, whose buffers have the same numbers, and what is known of it: seconds, code. So each form of a group is
//! lowered once and priced once, whoever asks for it: greedy plans, single changes, decisions, searches.

use super::fill::fill;
use super::group_key::{FormNumbers, GroupKey};
use crate::plan::machine_model::MachineModel;
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::{Plan, graph_hash};
use adfuse_ir::kernel::{Buffer, BufferData, Extents, Program, Role, Step, Storage, Verified};
use adfuse_ir::{DType, Diagnostic, Fp, Function, Inst, Literal, Value};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use hashbrown::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What was lowered before on a machine. It changes no program and no cost. Threads that compare plans share it.
pub struct LoweringMemo {
    device: MachineModel,
    numbers: FormNumbers,
    groups: Mutex<HashMap<Vec<u32>, KnownGroup>>,
    blocks: Mutex<HashMap<BlockKey, Vec<LoweredBlock>>>,
    plans: Mutex<HashMap<BlockPlanKey, Plan>>,
    greedy: Mutex<Vec<KnownGreedy>>,
    /// That of plans of blocks, which are priced by their structure alone.
    of_blocks: OnceLock<Arc<LoweringMemo>>,
}

/// The hash of a block's function, and what its plan is made for.
type BlockPlanKey = (String, Effort, Fp);

/// The greedy plan of an effort, then those of lesser efforts.
pub(crate) type GreedyPlans = Vec<(Effort, Plan)>;

/// The greedy plans of a function. Equal texts may have other numbers of instructions and values, by which plans name them.
#[derive(Clone)]
struct KnownGreedy {
    made_for: (Effort, Fp, NamedNumbers),
    plans: GreedyPlans,
}

/// The instructions of a function's body and the values of the function, in the order of its text.
type NamedNumbers = (Vec<Inst>, Vec<Value>);

fn named_numbers(f: &Function) -> NamedNumbers {
    let results = f.body_insts().iter().flat_map(|&i| f.inst_results(i));
    (f.body_insts().to_vec(), f.params().iter().chain(results).copied().collect())
}

/// The most functions whose greedy plans are kept.
const MOST_GREEDY: usize = 16;

/// What a group of some form becomes; `None` where its members have no kernel in common.
pub(crate) type KnownGroup = Option<Arc<LoweredGroup>>;

/// The hash of a block's function, and how the stacks around it are stored.
type BlockKey = (String, Vec<Storage>);

/// A plan of a block, and what it was lowered to.
type LoweredBlock = (Plan, Arc<Verified<Program>>);

/// A group as a program of its own, in which buffers have the numbers of its key.
pub(crate) struct LoweredGroup {
    program: Program,
    price: OnceLock<GroupPrice>,
    code: OnceLock<Vec<CodeOfStep>>,
    uses: OnceLock<Vec<BufferUses>>,
    /// Bytes of scratch memory of each step; `None` where an engine does not size steps by themselves.
    scratch: OnceLock<Option<Vec<u64>>>,
    /// What an engine that divides steps runs for it; `None` where that depends on the program around it.
    divided: OnceLock<Option<Arc<DividedGroup>>>,
}

/// What an engine runs for some steps.
#[derive(Clone, Debug)]
pub struct DividedSteps {
    /// The steps. Buffers that only they have come after the given ones.
    pub program: Program,
    /// The scratch memory of each, in bytes.
    pub scratch: Vec<u64>,
    /// Whether each reads again what it has read when it has begun to write.
    pub reads_again: Vec<bool>,
}

/// What an engine runs for a lowered group.
pub(crate) struct DividedGroup {
    /// The steps. Buffers that only these have come after those of the group.
    pub(crate) group: Arc<LoweredGroup>,
    /// Bytes of scratch memory of each step.
    pub(crate) scratch: Vec<u64>,
    /// Whether each step reads again what it has read when it has begun to write.
    pub(crate) reads_again: Vec<bool>,
}

/// The buffers that a step reads and writes: of a lowered group, by their numbers in the group.
pub(crate) struct BufferUses {
    pub(crate) reads: Vec<Buffer>,
    pub(crate) writes: Vec<Buffer>,
}

impl BufferUses {
    /// Those of a step in its own program.
    pub(crate) fn of(step: &Step) -> BufferUses {
        BufferUses { reads: step.reads().collect(), writes: step.writes().collect() }
    }
}

/// The seconds of a group.
pub(crate) struct GroupPrice {
    /// Of each step.
    pub(crate) steps: Vec<f64>,
    /// Of all, were their loops ideal.
    pub(crate) ideal: f64,
    /// Whether the engine said what it makes of the group.
    pub(crate) stated: bool,
}

/// What tells the code of a step from that of others, and its functions and instructions.
type CodeOfStep = (Option<u64>, [u64; 2]);

impl LoweredGroup {
    fn of(program: Program) -> LoweredGroup {
        LoweredGroup {
            program,
            price: OnceLock::new(),
            code: OnceLock::new(),
            uses: OnceLock::new(),
            scratch: OnceLock::new(),
            divided: OnceLock::new(),
        }
    }

    /// Its program, in which buffers have the numbers of its key.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// What an engine runs for it, found once.
    pub(crate) fn divided(
        &self,
        divide: impl FnOnce(&Program) -> Option<DividedSteps>,
    ) -> Option<&Arc<DividedGroup>> {
        let found = || {
            let DividedSteps { program, scratch, reads_again } = divide(&self.program)?;
            let group = Arc::new(LoweredGroup::of(program));
            Some(Arc::new(DividedGroup { group, scratch, reads_again }))
        };
        self.divided.get_or_init(found).as_ref()
    }

    /// What an engine runs for it, where that was found.
    pub(crate) fn known_division(&self) -> Option<&DividedGroup> {
        self.divided.get()?.as_deref()
    }

    /// Whether its seconds have been counted.
    pub(crate) fn has_price(&self) -> bool {
        self.price.get().is_some()
    }

    /// The seconds of its steps, counted once.
    pub(crate) fn price(&self, count: impl FnOnce(&Program) -> GroupPrice) -> &GroupPrice {
        self.price.get_or_init(|| count(&self.program))
    }

    /// The scratch memory of its steps, counted once.
    pub(crate) fn scratch(
        &self,
        count: impl FnOnce(&Program) -> Option<Vec<u64>>,
    ) -> Option<&[u64]> {
        self.scratch.get_or_init(|| count(&self.program)).as_deref()
    }

    fn uses(&self) -> &[BufferUses] {
        self.uses.get_or_init(|| self.program.steps.iter().map(BufferUses::of).collect())
    }
}

/// A step of a program that is one of a lowered group.
#[derive(Clone)]
pub(crate) struct StepOfGroup {
    pub(crate) group: Arc<LoweredGroup>,
    pub(crate) step: usize,
}

impl StepOfGroup {
    /// The program of the group, and which of its steps it is.
    pub(crate) fn program(&self) -> (&Program, usize) {
        (&self.group.program, self.step)
    }

    /// The buffers of the group that it reads and writes.
    pub(crate) fn uses(&self) -> &BufferUses {
        &self.group.uses()[self.step]
    }

    /// The code of the step, counted once.
    pub(crate) fn code(&self, count: impl Fn(&Program, &Step) -> CodeOfStep) -> CodeOfStep {
        let program = &self.group.program;
        let all = || program.steps.iter().map(|step| count(program, step)).collect();
        self.group.code.get_or_init(all)[self.step]
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LoweringMemo {
    /// An empty memo for a machine.
    pub fn new(device: &MachineModel) -> LoweringMemo {
        LoweringMemo {
            device: device.clone(),
            numbers: FormNumbers::default(),
            groups: Mutex::default(),
            blocks: Mutex::default(),
            plans: Mutex::default(),
            greedy: Mutex::default(),
            of_blocks: OnceLock::new(),
        }
    }

    /// The memo for plans of blocks, and of the blocks in them.
    pub(crate) fn of_blocks(&self) -> &Arc<LoweringMemo> {
        self.of_blocks.get_or_init(|| Arc::new(LoweringMemo::new(&self.device)))
    }

    /// The plan of a block whose function has this hash: the one that is known, or else one that is made.
    ///
    /// # Errors
    /// Those of making it.
    pub(crate) fn block_plan(
        &self,
        (graph, options): (&str, &PlanOptions),
        make: impl FnOnce() -> Result<Plan, Diagnostic>,
    ) -> Result<Plan, Diagnostic> {
        let key = (graph.to_owned(), options.effort, options.fp);
        if let Some(known) = locked(&self.plans).get(&key) {
            return Ok(known.clone());
        }
        let made = make()?;
        locked(&self.plans).insert(key, made.clone());
        Ok(made)
    }

    /// The greedy plans of a function, where they are known. It is hashed where plans are known of a function with its numbers alone: hashing takes a
    /// quarter of the time that grouping takes.
    pub(crate) fn greedy(&self, f: &Function, options: &PlanOptions) -> Option<GreedyPlans> {
        let made_for = (options.effort, options.fp, named_numbers(f));
        let same = |known: &&KnownGreedy| known.made_for == made_for;
        let known: Vec<KnownGreedy> = locked(&self.greedy).iter().filter(same).cloned().collect();
        let graph = if known.is_empty() { return None } else { graph_hash(f) };
        known.into_iter().map(|known| known.plans).find(|plans| {
            let [(_, plan), ..] = plans.as_slice() else { return false };
            plan.graph == graph
        })
    }

    /// Keeps the greedy plans of a function, which have its hash.
    pub(crate) fn keep_greedy(&self, f: &Function, options: &PlanOptions, plans: &GreedyPlans) {
        let made_for = (options.effort, options.fp, named_numbers(f));
        let mut greedy = locked(&self.greedy);
        if greedy.len() >= MOST_GREEDY {
            greedy.clear();
        }
        greedy.push(KnownGreedy { made_for, plans: plans.clone() });
    }

    /// The numbers of the forms of its groups.
    pub(crate) fn numbers(&self) -> &FormNumbers {
        &self.numbers
    }

    /// Whether it is one for a machine.
    pub(crate) fn is_for(&self, device: &MachineModel) -> bool {
        self.device == *device
    }

    /// How many different groups it has that have kernels.
    pub fn groups(&self) -> usize {
        locked(&self.groups).values().flatten().count()
    }

    /// What a group of this form becomes, where that is known.
    pub(crate) fn find(&self, key: &GroupKey) -> Option<KnownGroup> {
        locked(&self.groups).get(&key.tokens).cloned()
    }

    /// Keeps that a group has no kernel.
    pub(crate) fn refuse(&self, key: GroupKey) {
        locked(&self.groups).insert(key.tokens, None);
    }

    /// Keeps the steps of a group, in the buffers of a program, in which these values are. `None` where a step has a
    /// buffer that holds none of the group's.
    pub(crate) fn keep(
        &self,
        key: GroupKey,
        (in_buffers, steps): (&PrimaryMap<Buffer, BufferData>, Vec<Step>),
        buffers: &SecondaryMap<Value, Option<Buffer>>,
    ) -> Option<Arc<LoweredGroup>> {
        let mut number: HashMap<Buffer, usize> = HashMap::with_capacity(key.values.len());
        let mut own = Program { steps: Vec::with_capacity(steps.len()), ..Program::default() };
        own.buffers.reserve(key.values.len());
        for (k, &v) in key.values.iter().enumerate() {
            // What has no buffer has a number all the same.
            let none = || BufferData::new(String::new(), DType::Bool, Extents::new(), Role::Temp);
            let data = buffers[v].map(|b| {
                number.insert(b, k);
                BufferData { name: String::new(), ..in_buffers[b].clone() }
            });
            own.buffers.push(data.unwrap_or_else(none));
        }
        for mut step in steps {
            let mut all = true;
            step.buffers_mut(&mut |b| match number.get(b) {
                Some(&k) => *b = Buffer::new(k),
                None => all = false,
            });
            if !all {
                return None;
            }
            own.steps.push(step);
        }
        let made = Arc::new(LoweredGroup::of(own));
        locked(&self.groups).insert(key.tokens, Some(Arc::clone(&made)));
        Some(made)
    }

    /// A group that fills a buffer of this form with a number.
    pub(crate) fn fill(&self, number: Literal, data: &BufferData) -> KnownGroup {
        let key = GroupKey::of_fill(&self.numbers, number, &data.dims, Value::new(0));
        self.find(&key).unwrap_or_else(|| {
            let mut program = Program::default();
            let b = program.buffers.push(data.clone());
            let step = Step::Kernel(fill(&program, b, number));
            let mut buffers = SecondaryMap::new();
            buffers[key.values[0]] = Some(b);
            self.keep(key, (&program.buffers, vec![step]), &buffers)
        })
    }

    /// What a block with this plan was lowered to, with these forms of the stacks around it.
    pub(crate) fn block(&self, plan: &Plan, forms: &[Storage]) -> Option<Arc<Verified<Program>>> {
        let blocks = locked(&self.blocks);
        let known = blocks.get(&(plan.graph.clone(), forms.to_vec()))?;
        known.iter().find(|(known, _)| known == plan).map(|(_, program)| Arc::clone(program))
    }

    /// Keeps what a block was lowered to.
    pub(crate) fn keep_block(&self, plan: &Plan, forms: &[Storage], program: Verified<Program>) {
        let key = (plan.graph.clone(), forms.to_vec());
        locked(&self.blocks).entry(key).or_default().push((plan.clone(), Arc::new(program)));
    }
}

impl fmt::Debug for LoweringMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoweringMemo").field("groups", &self.groups()).finish_non_exhaustive()
    }
}

impl LoweredGroup {
    /// The steps in a program in which these buffers hold the values of the group; `None` where one has none.
    pub(crate) fn instantiated(
        &self,
        key: &GroupKey,
        buffers: &SecondaryMap<Value, Option<Buffer>>,
    ) -> Option<Vec<Step>> {
        let mut all = true;
        let own = |step: &Step| {
            let mut step = step.clone();
            step.buffers_mut(&mut |b| match key.values.get(b.index()).and_then(|&v| buffers[v]) {
                Some(own) => *b = own,
                None => all = false,
            });
            step
        };
        let steps = self.program.steps.iter().map(own).collect();
        all.then_some(steps)
    }
}

/// The steps of a lowered group, one after the other.
pub(crate) fn steps_of_group(group: &Arc<LoweredGroup>) -> impl Iterator<Item = StepOfGroup> + '_ {
    (0..group.program.steps.len()).map(|step| StepOfGroup { group: Arc::clone(group), step })
}
