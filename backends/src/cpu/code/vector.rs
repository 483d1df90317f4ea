//! Vectors of 128 bits along the innermost axis, several at a time.
//!
//! Lanes are four of 32 bits (`bf16` is widened, truth values are masks) or two of 64. What is read in
//! equal steps along the axis is read as vectors. What has no instruction for vectors, has a type of
//! another width, or is read through guards, is done lane by lane; a sweep of which that is the larger
//! part has no vectors at all.

use super::Unit;
use super::access::{Here, flags};
use super::form::mentions;
use super::plan::{Access, Planned, Read, Source, Way};
use super::scalar::register;
use super::sweep::Line;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::scalar::{SInst, SOp, SVal};
use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};
use cranelift_entity::EntityRef;

/// So many lanes, and so many vectors interleaved.
#[derive(Clone, Copy)]
pub(super) struct Many {
    pub(super) lanes: u32,
    pub(super) copies: u32,
}

/// The type of a vector of elements; truth values are masks of the lanes' width.
pub(super) fn vector(d: DType, lanes: u32) -> Option<Type> {
    Some(match (d, lanes) {
        (DType::F32, 4) => types::F32X4,
        (DType::I32 | DType::U32 | DType::BF16 | DType::Bool, 4) => types::I32X4,
        (DType::F64, 2) => types::F64X2,
        (DType::I64 | DType::Bool, 2) => types::I64X2,
        _ => return None,
    })
}

/// A value in all lanes of one copy.
#[derive(Clone)]
enum Held {
    Vector(Value),
    /// A register for each lane: of types that the vectors do not have.
    Single(Vec<Value>),
}

impl Unit<'_, '_> {
    /// How vectors of a sweep are; `None` where it has none.
    pub(super) fn lanes(&self, p: &Planned) -> Option<Many> {
        let known = |v: &SVal| p.body.insts[*v].dtype;
        let moving = || p.body.insts.iter().filter(|(v, _)| p.moves[v.index()]);
        // The width of most of what is computed.
        let count = |bytes: u64| {
            let prims = moving().filter(|(_, i)| matches!(i.op, SOp::Prim(_)));
            prims.filter(|(_, i)| i.dtype.bytes() == bytes && i.dtype.is_float()).count()
        };
        let stored =
            |bytes: u64| p.body.outputs.iter().filter(|v| known(v).bytes() == bytes).count();
        let lanes = if count(8) + stored(8) > count(4) + stored(4) { 2 } else { 4 };
        let fits = |v: &SVal| vector(known(v), lanes).is_some();
        let by_data = |(e, _): &(IndexExpr, i64)| mentions(e, &|_| false, &|k| p.data(k));
        let ok = p.target.is_none()
            && p.writes.iter().all(|a| even(p, a))
            && !p.forms.iter().flat_map(|f| &f.rest).any(by_data)
            && p.body.outputs.iter().all(fits);
        if !ok {
            return None;
        }
        // What is done lane by lane must be the lesser part.
        let (mut whole, mut single) = (p.writes.len(), 0);
        for (v, inst) in moving() {
            let vectors = match inst.op {
                SOp::Param(k) => p.reads.get(k as usize).and_then(|r| array(p, r)).is_some(),
                _ => inst.args.iter().all(fits),
            };
            let part = if vectors && fits(&v) { &mut whole } else { &mut single };
            *part += 1;
        }
        let copies = match single {
            0 => 4,
            n if n < whole => 1,
            _ => return None,
        };
        Some(Many { lanes, copies })
    }

    /// The elements from coordinate `d` on.
    pub(super) fn vectors(&mut self, p: &Planned, line: &Line, d: Value, m: Many) -> Option<()> {
        let mut at = line.outer.clone();
        at.push(d);
        let mut values: Vec<Vec<Held>> = vec![Vec::new(); p.body.insts.len()];
        for (v, inst) in p.body.insts.iter() {
            if !p.moves[v.index()] {
                continue;
            }
            if let SOp::Param(k) = inst.op {
                values[v.index()] = self.param(p, line, k as usize, &at, m)?;
                continue;
            }
            let mut args: Vec<Vec<Held>> = Vec::new();
            for &a in &inst.args {
                args.push(self.operand(p, line, a, &values, m)?);
            }
            let from = inst.args.first().map_or(inst.dtype, |&a| p.body.insts[a].dtype);
            let known: Vec<Option<Literal>> = inst.args.iter().map(|&a| constant(p, a)).collect();
            let types: Vec<DType> = inst.args.iter().map(|&a| p.body.insts[a].dtype).collect();
            for copy in 0..m.copies as usize {
                let args: Vec<Held> =
                    args.iter().map(|a| a.get(copy).cloned()).collect::<Option<_>>()?;
                let vectors: Option<Vec<Value>> = args.iter().map(Held::vector).collect();
                let value =
                    vectors.and_then(|args| self.prim_vector(inst, from, &args, &known, m.lanes));
                let value = match value {
                    Some(value) => Held::Vector(value),
                    None => self.lane_by_lane(inst, from, &args, &types, m.lanes)?,
                };
                values[v.index()].push(value);
            }
        }
        let here = Here { at: &at, params: &line.fixed.params };
        for (a, &v) in p.writes.iter().zip(&p.body.outputs) {
            let value = self.operand(p, line, v, &values, m)?;
            let address = self.address(p, a, &line.fixed, &here);
            for copy in 0..m.copies {
                let Held::Vector(value) = *value.get(copy as usize)? else { return None };
                let value =
                    if a.buffer { self.canonical_vector(a.dtype, value, m.lanes)? } else { value };
                self.store_vector(a.dtype, value, address, p.step(a.form), copy, m.lanes)?;
            }
        }
        Some(())
    }

    /// A parameter that changes along the line, in each copy.
    fn param(
        &mut self,
        p: &Planned,
        line: &Line,
        k: usize,
        at: &[Value],
        m: Many,
    ) -> Option<Vec<Held>> {
        let (read, dtype) = (p.reads.get(k)?, *p.types.get(k)?);
        let ty = vector(dtype, m.lanes);
        if let Some(a) = array(p, read).filter(|_| ty.is_some()) {
            let here = Here { at, params: &line.fixed.params };
            let address = self.address(p, a, &line.fixed, &here);
            let step = p.step(a.form);
            let load =
                |copy| Some(Held::Vector(self.load_vector(a.dtype, address, step, copy, m.lanes)?));
            return (0..m.copies).map(load).collect();
        }
        let (d, outer) = at.split_last()?;
        let mut found = Vec::new();
        for copy in 0..m.copies {
            let mut singles = Vec::new();
            for lane in 0..m.lanes {
                let by = self.long((copy * m.lanes + lane).into());
                let mut at = outer.to_vec();
                at.push(self.b.ins().iadd(*d, by));
                let here = Here { at: &at, params: &line.fixed.params };
                singles.push(self.read(p, read, dtype, &line.fixed, &here));
            }
            found.push(match ty {
                Some(ty) => Held::Vector(self.gathered(dtype, ty, &singles)?),
                None => Held::Single(singles),
            });
        }
        Some(found)
    }

    /// A vector of what registers hold.
    fn gathered(&mut self, d: DType, ty: Type, singles: &[Value]) -> Option<Value> {
        let mut result: Option<Value> = None;
        for (lane, &x) in singles.iter().enumerate() {
            let x = self.lane_of(d, x, ty.lane_type());
            result = Some(match result {
                None => self.b.ins().splat(ty, x),
                Some(r) => self.b.ins().insertlane(r, x, lane as u8),
            });
        }
        result
    }

    /// An operand in each copy; what does not change is spread over the lanes.
    fn operand(
        &mut self,
        p: &Planned,
        line: &Line,
        v: SVal,
        values: &[Vec<Held>],
        m: Many,
    ) -> Option<Vec<Held>> {
        let found = values.get(v.index())?;
        if !found.is_empty() {
            return Some(found.clone());
        }
        let dtype = p.body.insts[v].dtype;
        let one = match line.values.get(v.index()).copied().flatten() {
            Some(value) => value,
            None => {
                let l = constant(p, v)?;
                self.literal(l)
            }
        };
        let held = match vector(dtype, m.lanes) {
            Some(_) => Held::Vector(self.spread(dtype, one, m.lanes)?),
            None => Held::Single(vec![one; m.lanes as usize]),
        };
        Some(vec![held; m.copies as usize])
    }

    fn spread(&mut self, d: DType, one: Value, lanes: u32) -> Option<Value> {
        let ty = vector(d, lanes)?;
        let lane = self.lane_of(d, one, ty.lane_type());
        Some(self.b.ins().splat(ty, lane))
    }

    /// A register's value as what a lane holds.
    fn lane_of(&mut self, d: DType, x: Value, lane: Type) -> Value {
        match d {
            DType::Bool => {
                let wide = self.b.ins().uextend(lane, x);
                self.b.ins().ineg(wide)
            }
            DType::BF16 => self.b.ins().uextend(lane, x),
            _ => x,
        }
    }

    fn element_of(&mut self, d: DType, x: Value) -> Value {
        match d {
            DType::Bool => {
                let narrow = self.b.ins().ireduce(types::I8, x);
                let one = self.int(types::I8, 1);
                self.b.ins().band(narrow, one)
            }
            DType::BF16 => self.b.ins().ireduce(types::I16, x),
            _ => x,
        }
    }

    fn lane_by_lane(
        &mut self,
        inst: &SInst,
        from: DType,
        args: &[Held],
        given: &[DType],
        lanes: u32,
    ) -> Option<Held> {
        let mut results = Vec::new();
        for lane in 0..lanes {
            let mut singles = Vec::new();
            for (a, &d) in args.iter().zip(given) {
                singles.push(match a {
                    Held::Single(all) => *all.get(lane as usize)?,
                    Held::Vector(a) => {
                        let x = self.b.ins().extractlane(*a, lane as u8);
                        self.element_of(d, x)
                    }
                });
            }
            results.push(self.scalar(inst, from, &singles)?);
        }
        Some(match vector(inst.dtype, lanes) {
            Some(ty) => Held::Vector(self.gathered(inst.dtype, ty, &results)?),
            None => Held::Single(results),
        })
    }

    fn load_vector(
        &mut self,
        d: DType,
        address: Value,
        step: i64,
        copy: u32,
        lanes: u32,
    ) -> Option<Value> {
        let ty = vector(d, lanes)?;
        let bytes = (d.bytes() as i64).checked_mul(step)?;
        let offset =
            |lane: u32| i32::try_from(bytes.checked_mul((copy * lanes + lane).into())?).ok();
        if step == 1 {
            match d {
                DType::BF16 => {
                    return Some(self.b.ins().uload16x4(flags(), address, offset(0)?));
                }
                DType::Bool if lanes == 4 => {
                    let four = self.b.ins().load(types::I32, flags(), address, offset(0)?);
                    let x = self.b.ins().scalar_to_vector(types::I32X4, four);
                    let x = self.bitcast(x, types::I8X16);
                    let x = self.b.ins().uwiden_low(x);
                    let x = self.b.ins().uwiden_low(x);
                    let one = self.int(types::I32X4, 1);
                    let x = self.b.ins().band(x, one);
                    return Some(self.b.ins().icmp(IntCC::Equal, x, one));
                }
                DType::Bool => {}
                _ => return Some(self.b.ins().load(ty, flags(), address, offset(0)?)),
            }
        }
        let mut singles = Vec::new();
        for lane in 0..lanes {
            let (place, near) = self.near(address, offset(lane), bytes, copy * lanes + lane);
            let mut x = self.b.ins().load(register(d), flags(), place, near);
            if d == DType::Bool {
                let one = self.int(types::I8, 1);
                x = self.b.ins().band(x, one);
            }
            singles.push(x);
        }
        self.gathered(d, ty, &singles)
    }

    /// An address and an offset from it that an instruction can hold.
    fn near(&mut self, address: Value, offset: Option<i32>, bytes: i64, k: u32) -> (Value, i32) {
        match offset {
            Some(offset) => (address, offset),
            None => {
                let far = self.long(bytes.wrapping_mul(k.into()));
                (self.b.ins().iadd(address, far), 0)
            }
        }
    }

    /// The value with every NaN as the canonical one.
    fn canonical_vector(&mut self, d: DType, value: Value, lanes: u32) -> Option<Value> {
        if !matches!(d, DType::F32 | DType::F64) {
            return Some(value);
        }
        let nan = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let quiet = self.spread_literal(Literal::from_f64(d, f64::NAN), lanes)?;
        Some(self.pick(nan, quiet, value))
    }

    fn spread_literal(&mut self, l: Literal, lanes: u32) -> Option<Value> {
        let one = self.literal(l);
        self.spread(l.dtype(), one, lanes)
    }

    fn store_vector(
        &mut self,
        d: DType,
        value: Value,
        address: Value,
        step: i64,
        copy: u32,
        lanes: u32,
    ) -> Option<()> {
        let bytes = (d.bytes() as i64).checked_mul(step)?;
        let offset =
            |lane: u32| i32::try_from(bytes.checked_mul((copy * lanes + lane).into())?).ok();
        if step == 1 {
            match d {
                DType::BF16 => {
                    let narrow = self.b.ins().unarrow(value, value);
                    let two = self.bitcast(narrow, types::I64X2);
                    let low = self.b.ins().extractlane(two, 0);
                    self.b.ins().store(flags(), low, address, offset(0)?);
                    return Some(());
                }
                DType::Bool if lanes == 4 => {
                    let one = self.int(types::I32X4, 1);
                    let x = self.b.ins().band(value, one);
                    let x = self.b.ins().snarrow(x, x);
                    let x = self.b.ins().snarrow(x, x);
                    let x = self.bitcast(x, types::I32X4);
                    let low = self.b.ins().extractlane(x, 0);
                    self.b.ins().store(flags(), low, address, offset(0)?);
                    return Some(());
                }
                DType::Bool => {}
                _ => {
                    self.b.ins().store(flags(), value, address, offset(0)?);
                    return Some(());
                }
            }
        }
        for lane in 0..lanes {
            let x = self.b.ins().extractlane(value, lane as u8);
            let x = self.element_of(d, x);
            let (place, near) = self.near(address, offset(lane), bytes, copy * lanes + lane);
            self.b.ins().store(flags(), x, place, near);
        }
        Some(())
    }
}

impl Held {
    fn vector(&self) -> Option<Value> {
        match self {
            Held::Vector(v) => Some(*v),
            Held::Single(_) => None,
        }
    }
}

/// Whether an array is walked in equal steps along a line.
fn even(p: &Planned, a: &Access) -> bool {
    a.packed.is_none() && p.affine(a.form)
}

/// The array that a parameter is read from in equal steps.
fn array<'p>(p: &Planned, read: &'p Read) -> Option<&'p Access> {
    let Read::Ways(ways) = read else { return None };
    let [Way { from: Source::Array(a), .. }] = ways.as_slice() else { return None };
    even(p, a).then_some(a)
}

fn constant(p: &Planned, v: SVal) -> Option<Literal> {
    match p.body.insts[v].op {
        SOp::Const(l) => Some(l),
        _ => None,
    }
}
