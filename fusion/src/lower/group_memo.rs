//! Equal groups are lowered once: a memo of what groups become, by their canonical form.
//!
//! Plans that are compared have most groups in common, and equal layers of a model have equal groups. What a group
//! becomes depends on its instructions, on which of their values are in buffers, and on how these are stored. A key says
//! that without naming values: they are numbered in the order in which they are met. The memo has a program of the
//! group alone, whose buffers have the same numbers, and what is known of it: seconds, code. So each form of a group is
//! lowered once and priced once, whoever asks for it: greedy plans, single changes, decisions, searches.

use super::fill::fill;
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::{Group, Plan};
use adfuse_ir::attrs::{Attr, Attrs};
use adfuse_ir::kernel::{Buffer, BufferData, Extents, Program, Role, Step, Storage, Verified};
use adfuse_ir::op::{Body, Indirect};
use adfuse_ir::{DType, Diagnostic, Fp, Function, Inst, Literal, Op, TensorType, Value, ValueDef};
use cranelift_entity::{EntityRef, SecondaryMap};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What was lowered before on a machine. It changes no program and no cost. Threads that compare plans share it.
pub struct LoweringMemo {
    device: MachineModel,
    shapes: Mutex<HashMap<InstShape, u32>>,
    literals: Mutex<HashMap<Literal, u32>>,
    groups: Mutex<HashMap<Vec<u32>, KnownGroup>>,
    blocks: Mutex<HashMap<BlockKey, Vec<LoweredBlock>>>,
    plans: Mutex<HashMap<BlockPlanKey, Plan>>,
    /// That of plans of blocks, which are priced by their structure alone.
    of_blocks: OnceLock<Arc<LoweringMemo>>,
}

/// The hash of a block's function, and what its plan is made for.
type BlockPlanKey = (String, Effort, Fp);

/// What a group of some form becomes; `None` where its members have no kernel in common.
pub(crate) type KnownGroup = Option<Arc<LoweredGroup>>;

/// What is lowered of an instruction, but for its operands: its op, its attributes and all types.
#[derive(PartialEq, Eq, Hash)]
struct InstShape {
    op: Op,
    attrs: Attrs,
    types: SmallVec<[TensorType; 4]>,
}

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
}

/// The buffers that a step reads and writes, by their numbers in the group.
pub(crate) struct BufferUses {
    pub(crate) reads: Vec<Buffer>,
    pub(crate) writes: Vec<Buffer>,
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
        let of = |step: &Step| BufferUses {
            reads: step.reads().collect(),
            writes: step.writes().collect(),
        };
        self.uses.get_or_init(|| self.program.steps.iter().map(of).collect())
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

/// The canonical form of a group.
pub(crate) struct GroupKey {
    pub(crate) tokens: Vec<u32>,
    /// As the tokens, but for where slices of what is stored begin: groups with equal ones take the same time.
    pub(crate) alike: Vec<u32>,
    /// The values by their numbers.
    pub(crate) values: Vec<Value>,
}

impl LoweringMemo {
    /// An empty memo for a machine.
    pub fn new(device: &MachineModel) -> LoweringMemo {
        LoweringMemo {
            device: device.clone(),
            shapes: Mutex::default(),
            literals: Mutex::default(),
            groups: Mutex::default(),
            blocks: Mutex::default(),
            plans: Mutex::default(),
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

    /// Keeps the steps of a group of a program, in whose buffers these values are. `None` where a step has a buffer that
    /// holds none of the group's.
    pub(crate) fn keep(
        &self,
        key: GroupKey,
        (program, steps): (&Program, &[Step]),
        buffers: &SecondaryMap<Value, Option<Buffer>>,
    ) -> Option<Arc<LoweredGroup>> {
        let mut number: HashMap<Buffer, usize> = HashMap::new();
        let mut own = Program::default();
        for (k, &v) in key.values.iter().enumerate() {
            // What has no buffer has a number all the same.
            let none = || BufferData::new(String::new(), DType::Bool, Extents::new(), Role::Temp);
            let data = buffers[v].map(|b| {
                number.insert(b, k);
                BufferData { name: String::new(), ..program.buffers[b].clone() }
            });
            own.buffers.push(data.unwrap_or_else(none));
        }
        for step in steps {
            let (mut step, mut all) = (step.clone(), true);
            step.buffers_mut(&mut |b| match number.get(b) {
                Some(&k) => *b = Buffer::new(k),
                None => all = false,
            });
            if !all {
                return None;
            }
            own.steps.push(step);
        }
        let made = Arc::new(LoweredGroup {
            program: own,
            price: OnceLock::new(),
            code: OnceLock::new(),
            uses: OnceLock::new(),
            scratch: OnceLock::new(),
        });
        locked(&self.groups).insert(key.tokens, Some(Arc::clone(&made)));
        Some(made)
    }

    /// A group that fills a buffer of this form with a number.
    pub(crate) fn fill(&self, number: Literal, data: &BufferData) -> KnownGroup {
        let mut tokens = vec![FILL, self.literal(number)];
        for extent in &data.dims {
            tokens.extend([*extent as u32, (*extent >> 32) as u32]);
        }
        let key = GroupKey { alike: tokens.clone(), tokens, values: vec![Value::new(0)] };
        self.find(&key).unwrap_or_else(|| {
            let mut program = Program::default();
            let b = program.buffers.push(data.clone());
            let step = Step::Kernel(fill(&program, b, number));
            let mut buffers = SecondaryMap::new();
            buffers[key.values[0]] = Some(b);
            self.keep(key, (&program, &[step]), &buffers)
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

    fn literal(&self, l: Literal) -> u32 {
        let mut literals = locked(&self.literals);
        let next = literals.len() as u32;
        *literals.entry(l).or_insert(next)
    }

    fn shape(&self, shape: InstShape) -> u32 {
        let mut shapes = locked(&self.shapes);
        let next = shapes.len() as u32;
        *shapes.entry(shape).or_insert(next)
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

/// An instruction's shape where it is known by addresses: interned attributes and types have one each.
type ShapeAddress = (Op, usize, SmallVec<[usize; 6]>);

/// Makes the keys of a function's groups.
pub(crate) struct KeyBuilder<'a> {
    memo: &'a LoweringMemo,
    strict: bool,
    shapes: HashMap<ShapeAddress, u32>,
    /// Of slices, by their shapes.
    from_start: HashMap<u32, u32>,
    /// The number of a value in the key that is made, with the number of that key.
    number: SecondaryMap<Value, (u32, u32)>,
    keys: u32,
    tokens: Vec<u32>,
    /// Tokens of slices that are other ones in [`GroupKey::alike`], by their places.
    moved: Vec<(usize, u32)>,
    values: Vec<Value>,
}

/// Whether a value is written out where it is read.
fn is_inlined(facts: &Facts<'_>, v: Value) -> bool {
    matches!(facts.f.def(v), ValueDef::Inst(i, _) if facts.class[i] == InstClass::Free)
}

/// The first token: the mode of a group, or that it fills a buffer.
const RELAXED: u32 = 0;
const STRICT: u32 = 1;
const FILL: u32 = 2;

/// Tokens: what an operand is. Numbers of values follow.
const LITERAL: u32 = 0;
const FREE: u32 = 1;
const LEAF: u32 = 2;
const PART: u32 = 3;
const MEMBER: u32 = 4;
const NUMBERS: u32 = 5;

impl<'a> KeyBuilder<'a> {
    pub(crate) fn new(memo: &'a LoweringMemo, strict: bool) -> KeyBuilder<'a> {
        KeyBuilder {
            memo,
            strict,
            shapes: HashMap::new(),
            from_start: HashMap::new(),
            number: SecondaryMap::new(),
            keys: 0,
            tokens: Vec::new(),
            moved: Vec::new(),
            values: Vec::new(),
        }
    }

    /// One that has made no key.
    pub(crate) fn another(&self) -> KeyBuilder<'a> {
        KeyBuilder::new(self.memo, self.strict)
    }

    /// The key of a group, where `form` says what the buffer of a value is to steps ([`BufferForm`]). `None` for groups
    /// that are not looked up: what they become depends on more than their instructions and the types of what these
    /// read.
    pub(crate) fn key(
        &mut self,
        facts: &Facts<'_>,
        group: &Group,
        form: impl Fn(Value) -> Option<BufferForm>,
    ) -> Option<GroupKey> {
        self.keys += 1;
        self.tokens.clear();
        self.moved.clear();
        self.values.clear();
        self.tokens.push(if self.strict { STRICT } else { RELAXED });
        for members in &group.parts {
            self.tokens.push(PART);
            for &i in members {
                self.tokens.push(MEMBER);
                self.inst(facts, i)?;
            }
        }
        for &v in &self.values {
            self.tokens.push(form(v)?.0);
        }
        let tokens = self.tokens.clone();
        let mut alike = tokens.clone();
        self.moved.iter().for_each(|&(at, shape)| alike[at] = shape);
        Some(GroupKey { tokens, alike, values: self.values.clone() })
    }

    /// Adds an instruction, with what is written out where it reads it.
    fn inst(&mut self, facts: &Facts<'_>, i: Inst) -> Option<()> {
        let f = facts.f;
        match f.op(i).def().body {
            Body::Map(_)
            | Body::View(_)
            | Body::Reduce(_)
            | Body::Scan(_)
            | Body::Contract
            | Body::Source(_) => {}
            Body::Indirect(how) => self.indirect(facts, i, how),
            _ => return None,
        }
        let shape = self.shape(f, i);
        if f.op(i) == Op::Slice && !f.args(i).iter().any(|&x| is_inlined(facts, x)) {
            let from_start = self.from_start(f, i, shape);
            self.moved.push((self.tokens.len(), from_start));
        }
        self.tokens.push(shape);
        for &a in f.args(i) {
            if let Some(l) = f.literal(a) {
                self.tokens.push(LITERAL);
                self.tokens.push(self.memo.literal(l));
                continue;
            }
            if let Some(k) = self.numbered(a) {
                self.tokens.push(NUMBERS + k);
                continue;
            }
            match f.def(a) {
                ValueDef::Inst(j, _) if facts.class[j] == InstClass::Free => {
                    self.tokens.push(FREE);
                    self.inst(facts, j)?;
                    // A result other than the first is not told apart.
                    self.numbered(a).filter(|_| f.inst_results(j).len() == 1)?;
                }
                _ => {
                    self.tokens.push(LEAF);
                    self.meet(a);
                }
            }
        }
        f.inst_results(i).iter().for_each(|&v| self.meet(v));
        Some(())
    }

    /// Adds what the form of an indirect access depends on beside its operands: whether indices are read from a buffer or
    /// seen through, and the one value that a scatter begins with.
    fn indirect(&mut self, facts: &Facts<'_>, i: Inst, how: Indirect) {
        let args = facts.f.args(i);
        let forced = args.iter().map(|&v| u32::from(facts.forced[v]));
        self.tokens.extend(forced);
        if let Indirect::Scatter(_) = how {
            let begin = args.first().and_then(|&x| facts.splat(x));
            self.tokens.push(begin.map_or(0, |l| 1 + self.memo.literal(l)));
        }
    }

    fn numbered(&self, v: Value) -> Option<u32> {
        let (key, k) = self.number[v];
        (key == self.keys).then_some(k)
    }

    fn meet(&mut self, v: Value) {
        self.number[v] = (self.keys, self.values.len() as u32);
        self.values.push(v);
    }

    fn shape(&mut self, f: &Function, i: Inst) -> u32 {
        let all = || f.args(i).iter().chain(f.inst_results(i)).map(|&v| f.ty(v));
        let address = |ty: &TensorType| std::ptr::from_ref(ty).addr();
        let key = (f.op(i), std::ptr::from_ref(f.attrs(i)).addr(), all().map(address).collect());
        let memo = self.memo;
        *self.shapes.entry(key).or_insert_with(|| {
            let types = all().cloned().collect();
            memo.shape(InstShape { op: f.op(i), attrs: f.attrs(i).clone(), types })
        })
    }

    /// The shape of a slice of this shape, were it one from the start.
    fn from_start(&mut self, f: &Function, i: Inst, shape: u32) -> u32 {
        let memo = self.memo;
        *self.from_start.entry(shape).or_insert_with(|| {
            let attrs = f.attrs(i);
            let (start, limit) = (attrs.ints("start"), attrs.ints("limit"));
            let length = limit.iter().zip(start).map(|(limit, start)| limit - start);
            let ints = |list: &mut dyn Iterator<Item = i64>| Attr::Ints(list.collect());
            let moved = attrs.clone().setting("limit", ints(&mut { length }));
            let attrs = moved.setting("start", ints(&mut start.iter().map(|_| 0)));
            let types = f.args(i).iter().chain(f.inst_results(i)).map(|&v| f.ty(v).clone());
            memo.shape(InstShape { op: f.op(i), attrs, types: types.collect() })
        })
    }
}

/// What the buffer of a value is to a step, as far as its lowering, its cost and its code depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferForm(u32);

impl BufferForm {
    /// That of a value without a buffer.
    pub(crate) const NONE: BufferForm = BufferForm(0);

    /// That of a buffer of a program, or of a value without one; `None` for constants.
    pub(crate) fn at(program: &Program, b: Option<Buffer>) -> Option<BufferForm> {
        let Some(b) = b else { return Some(BufferForm::NONE) };
        let data = &program.buffers[b];
        BufferForm::of(&data.role, data.storage, data.strides.is_some())
    }

    /// That of a buffer, which is row-major or has the one other layout that its plan gives to its type; `None` for
    /// constants, whose elements are not part of keys.
    pub(crate) fn of(role: &Role, storage: Storage, strided: bool) -> Option<BufferForm> {
        let role = match role {
            Role::Input => 1,
            Role::Output => 2,
            Role::Temp => 3,
            Role::Constant(_) => return None,
        };
        let bits = match storage {
            Storage::Plain => 0,
            Storage::Packed(bits) => u32::from(bits),
        };
        Some(BufferForm(u32::from(strided) * 64 + role * 16 + bits))
    }
}
