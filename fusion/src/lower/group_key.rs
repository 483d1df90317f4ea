//! The canonical forms of groups, by which equal ones are found: instructions, which of their values are in buffers, and how
//! these are stored, without names of values.

use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::plan::Group;
use crate::plan::layout::Layout;
use adfuse_ir::attrs::{Attr, Attrs};
use adfuse_ir::kernel::{Buffer, Program, Role, Storage};
use adfuse_ir::op::{Body, Indirect};
use adfuse_ir::{Function, Inst, Literal, Op, TensorType, Value, ValueDef};
use cranelift_entity::SecondaryMap;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers of shapes of instructions and of literals, equal ones once. Threads share them.
pub(crate) struct FormNumbers {
    /// Tells them from others.
    id: u64,
    shapes: Mutex<HashMap<InstShape, u32>>,
    literals: Mutex<HashMap<Literal, u32>>,
}

fn numbered<T: Eq + Hash>(of: &Mutex<HashMap<T, u32>>, what: T) -> u32 {
    let mut known = of.lock().unwrap_or_else(PoisonError::into_inner);
    let next = known.len() as u32;
    *known.entry(what).or_insert(next)
}

impl Default for FormNumbers {
    fn default() -> FormNumbers {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        FormNumbers { id, shapes: Mutex::default(), literals: Mutex::default() }
    }
}

impl FormNumbers {
    fn literal(&self, l: Literal) -> u32 {
        numbered(&self.literals, l)
    }

    fn shape(&self, shape: InstShape) -> u32 {
        numbered(&self.shapes, shape)
    }
}

/// What is lowered of an instruction, but for its operands: its op, its attributes and all types.
#[derive(PartialEq, Eq, Hash)]
struct InstShape {
    op: Op,
    attrs: Attrs,
    types: SmallVec<[TensorType; 4]>,
}

/// The canonical form of a group.
pub(crate) struct GroupKey {
    pub(crate) tokens: Vec<u32>,
    /// The values by their numbers.
    pub(crate) values: Vec<Value>,
}

impl GroupKey {
    /// That of a group that fills a buffer of these extents with a number.
    pub(super) fn of_fill(
        numbers: &FormNumbers,
        number: Literal,
        dims: &[i64],
        v: Value,
    ) -> GroupKey {
        let mut tokens = vec![FILL, numbers.literal(number)];
        for extent in dims {
            tokens.extend([*extent as u32, (*extent >> 32) as u32]);
        }
        GroupKey { tokens, values: vec![v] }
    }
}

/// An instruction's shape where it is known by addresses: interned attributes and types have one each.
type ShapeAddress = (Op, usize, SmallVec<[usize; 6]>);

/// Makes the keys of the groups of one function.
pub(crate) struct KeyBuilder<'a> {
    numbers: &'a FormNumbers,
    strict: bool,
    tables: KeyTables,
}

/// What keys of one function are made with, whatever plans its groups are of.
#[derive(Default)]
pub(crate) struct KeyTables {
    /// Which [`FormNumbers`] have the numbers in these tables.
    of: u64,
    /// The number of an instruction's shape and 1; 0 where it has not been asked for.
    shape_of: SecondaryMap<Inst, u32>,
    shapes: HashMap<ShapeAddress, u32>,
    /// The number of a literal's value and 1; 0 where it has not been asked for.
    literal_of: SecondaryMap<Value, u32>,
    /// Of slices, by their shapes.
    at_start: HashMap<u32, u32>,
    /// The number of a value in the key that is made, with the number of that key.
    number: SecondaryMap<Value, (u32, u32)>,
    keys: u32,
    tokens: Vec<u32>,
    /// Tokens of slices of what is stored, by their places, as they would be from the start.
    moved: SmallVec<[(usize, u32); 2]>,
    /// What [`KeyBuilder::alike`] gives.
    alike: Vec<u32>,
    values: Vec<Value>,
}

impl KeyTables {
    fn of(numbers: &FormNumbers) -> KeyTables {
        KeyTables { of: numbers.id, ..KeyTables::default() }
    }
}

/// The tables of a function that are not in use: threads that link its plans take one, and put it back.
#[derive(Default)]
pub(crate) struct SpareTables(Mutex<Vec<KeyTables>>);

impl SpareTables {
    fn all(&self) -> MutexGuard<'_, Vec<KeyTables>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A builder of keys with tables of the function, which may be new.
    pub(crate) fn builder<'a>(&self, numbers: &'a FormNumbers, strict: bool) -> KeyBuilder<'a> {
        let mut all = self.all();
        let known = all.iter().position(|tables| tables.of == numbers.id);
        let tables = known.map(|at| all.swap_remove(at));
        let tables = tables.unwrap_or_else(|| KeyTables::of(numbers));
        KeyBuilder { numbers, strict, tables }
    }

    /// Puts the tables of a builder back.
    pub(crate) fn put_back(&self, builder: KeyBuilder<'_>) {
        self.all().push(builder.tables);
    }
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
    pub(crate) fn new(numbers: &'a FormNumbers, strict: bool) -> KeyBuilder<'a> {
        KeyBuilder { numbers, strict, tables: KeyTables::of(numbers) }
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
        self.build(facts, group, form)?;
        Some(self.built())
    }

    /// The key that was built last.
    pub(crate) fn built(&self) -> GroupKey {
        GroupKey { tokens: self.tables.tokens.clone(), values: self.tables.values.clone() }
    }

    /// The tokens of the key that was built last, but for where slices of what is stored begin: groups with equal ones take
    /// the same time.
    pub(crate) fn alike(&mut self) -> &[u32] {
        let KeyTables { tokens, moved, alike, .. } = &mut self.tables;
        if moved.is_empty() {
            return tokens;
        }
        alike.clone_from(tokens);
        moved.iter().for_each(|&(at, shape)| alike[at] = shape);
        alike
    }

    /// As [`KeyBuilder::key`], which [`KeyBuilder::built`] gives then: most keys are looked up and not kept.
    pub(crate) fn build(
        &mut self,
        facts: &Facts<'_>,
        group: &Group,
        form: impl Fn(Value) -> Option<BufferForm>,
    ) -> Option<()> {
        self.tables.keys += 1;
        self.tables.tokens.clear();
        self.tables.moved.clear();
        self.tables.values.clear();
        self.tables.tokens.push(if self.strict { STRICT } else { RELAXED });
        for members in &group.parts {
            self.tables.tokens.push(PART);
            for &i in members {
                self.tables.tokens.push(MEMBER);
                self.inst(facts, i)?;
            }
        }
        for &v in &self.tables.values {
            self.tables.tokens.push(form(v)?.0);
        }
        Some(())
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
            | Body::Source(_)
            | Body::Step(_) => {}
            Body::Indirect(how) => self.indirect(facts, i, how),
            _ => return None,
        }
        let shape = self.shape(f, i);
        if f.op(i) == Op::Slice && !f.args(i).iter().any(|&x| is_inlined(facts, x)) {
            let at_start = self.at_start(f, i, shape);
            self.tables.moved.push((self.tables.tokens.len(), at_start));
        }
        self.tables.tokens.push(shape);
        for &a in f.args(i) {
            if let Some(l) = f.literal(a) {
                let number = self.literal(a, l);
                self.tables.tokens.extend([LITERAL, number]);
                continue;
            }
            if let Some(k) = self.numbered(a) {
                self.tables.tokens.push(NUMBERS + k);
                continue;
            }
            match f.def(a) {
                ValueDef::Inst(j, _) if facts.class[j] == InstClass::Free => {
                    self.tables.tokens.push(FREE);
                    self.inst(facts, j)?;
                    // A result other than the first is not told apart.
                    self.numbered(a).filter(|_| f.inst_results(j).len() == 1)?;
                }
                _ => {
                    self.tables.tokens.push(LEAF);
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
        self.tables.tokens.extend(forced);
        if let Indirect::Scatter(_) = how {
            let begin = args.first().and_then(|&x| facts.splat(x));
            self.tables.tokens.push(begin.map_or(0, |l| 1 + self.numbers.literal(l)));
        }
    }

    fn numbered(&self, v: Value) -> Option<u32> {
        let (key, k) = self.tables.number[v];
        (key == self.tables.keys).then_some(k)
    }

    fn meet(&mut self, v: Value) {
        self.tables.number[v] = (self.tables.keys, self.tables.values.len() as u32);
        self.tables.values.push(v);
    }

    fn literal(&mut self, v: Value, l: Literal) -> u32 {
        if let Some(known) = self.tables.literal_of[v].checked_sub(1) {
            return known;
        }
        let number = self.numbers.literal(l);
        self.tables.literal_of[v] = number + 1;
        number
    }

    fn shape(&mut self, f: &Function, i: Inst) -> u32 {
        if let Some(known) = self.tables.shape_of[i].checked_sub(1) {
            return known;
        }
        let shape = self.shape_by_address(f, i);
        self.tables.shape_of[i] = shape + 1;
        shape
    }

    fn shape_by_address(&mut self, f: &Function, i: Inst) -> u32 {
        let all = || f.args(i).iter().chain(f.inst_results(i)).map(|&v| f.ty(v));
        let address = |ty: &TensorType| std::ptr::from_ref(ty).addr();
        let key = (f.op(i), std::ptr::from_ref(f.attrs(i)).addr(), all().map(address).collect());
        let numbers = self.numbers;
        *self.tables.shapes.entry(key).or_insert_with(|| {
            let types = all().cloned().collect();
            numbers.shape(InstShape { op: f.op(i), attrs: f.attrs(i).clone(), types })
        })
    }

    /// The shape of a slice of this shape, were it one from the start.
    fn at_start(&mut self, f: &Function, i: Inst, shape: u32) -> u32 {
        let numbers = self.numbers;
        *self.tables.at_start.entry(shape).or_insert_with(|| {
            let attrs = f.attrs(i);
            let (start, limit) = (attrs.ints("start"), attrs.ints("limit"));
            let length = limit.iter().zip(start).map(|(limit, start)| limit - start);
            let ints = |list: &mut dyn Iterator<Item = i64>| Attr::Ints(list.collect());
            let moved = attrs.clone().setting("limit", ints(&mut { length }));
            let attrs = moved.setting("start", ints(&mut start.iter().map(|_| 0)));
            let types = f.args(i).iter().chain(f.inst_results(i)).map(|&v| f.ty(v).clone());
            numbers.shape(InstShape { op: f.op(i), attrs, types: types.collect() })
        })
    }
}

/// What the buffer of a value is to a step, as far as its lowering, its cost and its code depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferForm(u32);

/// Numbers of roles, and what they are multiplied by in a form.
const INPUT: u32 = 1;
const OUTPUT: u32 = 2;
const TEMPORARY: u32 = 3;
const ROLE: u32 = 16;

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
            Role::Input => INPUT,
            Role::Output => OUTPUT,
            Role::Temp => TEMPORARY,
            Role::Constant(_) => return None,
        };
        Some(BufferForm::with(role, storage, strided))
    }

    /// That of a value's buffer in a plan of this layout, or of a value without one; `None` for constants.
    pub(crate) fn in_layout(
        buffer: Option<(Role, Storage)>,
        ty: &TensorType,
        layout: Layout,
    ) -> Option<BufferForm> {
        let Some((role, storage)) = buffer else { return Some(BufferForm::NONE) };
        BufferForm::of(&role, storage, layout.concerns(&role, storage) && layout.moves(ty))
    }

    fn with(role: u32, storage: Storage, strided: bool) -> BufferForm {
        let bits = match storage {
            Storage::Plain => 0,
            Storage::Packed(bits) => u32::from(bits),
        };
        BufferForm(u32::from(strided) * 4 * ROLE + role * ROLE + bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::DType;
    use adfuse_ir::text::parse;

    /// Tables that are put back serve the numbers that they were made with, and no others.
    #[test]
    fn tables_are_of_one_set_of_numbers() {
        let module = parse(
            "func @f(%x: f32[8]) -> f32[8] {
  %a = mul %x, 2.0 : f32[8]
  %b = add %a, 3.0 : f32[8]
  return %b
}",
        )
        .expect("parses");
        let f = module.find("f").expect("it");
        let facts = Facts::of(f, true).expect("has facts");
        let group = Group { parts: vec![f.body_insts().to_vec()] };
        let of = |keys: &mut KeyBuilder<'_>| {
            let key = keys.key(&facts, &group, |_| Some(BufferForm::NONE));
            key.expect("has a key").tokens
        };
        let (first, second) = (FormNumbers::default(), FormNumbers::default());
        // The second has numbers for others already.
        (0..9).for_each(|n| {
            second.literal(Literal::from_f64(DType::F64, f64::from(n)));
        });
        let spare = SpareTables::default();
        let made = |numbers: &FormNumbers| {
            let mut keys = spare.builder(numbers, true);
            let tokens = of(&mut keys);
            spare.put_back(keys);
            tokens
        };
        for numbers in [&first, &second, &first, &second] {
            assert_eq!(made(numbers), of(&mut KeyBuilder::new(numbers, true)));
        }
        assert_ne!(made(&first), made(&second));
        assert_eq!(spare.all().len(), 2, "tables are used again");
    }
}
