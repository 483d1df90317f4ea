//! Placing region ops in a function under construction.

use super::{element, stacked};
use crate::attrs::{Attr, Attrs};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::{Inst, Region, Value};
use crate::op::{Bounds, Control, Op};
use crate::types::{Dim, TensorType};

/// A loop to be placed: its operands by role. Carries and scanned values have the types of their operands.
#[derive(Clone, Debug)]
pub struct LoopBuilder {
    /// The op.
    pub op: Op,
    /// Its attributes; those that count operands and results are written anew.
    pub attrs: Attrs,
    /// Bounds or trips.
    pub lead: Vec<Value>,
    /// The carries' initial values.
    pub carry: Vec<Value>,
    /// The returning carries' initial values.
    pub up: Vec<Value>,
    /// What both regions scan.
    pub xs: Vec<Value>,
    /// What the second region scans alone.
    pub ws: Vec<Value>,
    /// How many steps there are, where that is an extent.
    pub length: Dim,
    step: Option<(Region, Vec<TensorType>)>,
    back: Option<(Region, Vec<TensorType>)>,
}

/// The parameters of a region under construction.
#[derive(Clone, Debug, Default)]
pub struct LoopParams {
    /// The position of the step.
    pub index: Option<Value>,
    /// The carries.
    pub carry: Vec<Value>,
    /// The returning carries.
    pub up: Vec<Value>,
    /// Elements of what both regions scan.
    pub xs: Vec<Value>,
    /// Elements of what the second region scans alone.
    pub ws: Vec<Value>,
}

impl LoopBuilder {
    /// A loop without operands.
    pub fn new(op: Op, attrs: Attrs, length: Dim) -> LoopBuilder {
        let none = Vec::new;
        let (lead, carry, up, xs, ws) = (none(), none(), none(), none(), none());
        LoopBuilder { op, attrs, lead, carry, up, xs, ws, length, step: None, back: None }
    }

    fn index(&self, b: &Builder) -> Option<TensorType> {
        let Some(Control::Loop(row)) = self.op.control() else { return None };
        match row.bounds {
            Bounds::Length => None,
            Bounds::Range => self.lead.first().map(|&v| b.ty(v).clone()),
            Bounds::Either => Some(TensorType::scalar(DType::I64)),
        }
    }

    fn params(
        &self,
        b: &mut Builder,
        back: bool,
        names: &dyn Fn(Value) -> Option<String>,
    ) -> LoopParams {
        let like = |b: &mut Builder, v: &Value, whole: bool| {
            let ty = if whole { b.ty(*v).clone() } else { element(b.ty(*v)) };
            b.param(ty, names(*v).as_deref())
        };
        let mut made = LoopParams::default();
        if let Some(ty) = self.index(b) {
            made.index = Some(b.param(ty, None));
        }
        made.carry = self.carry.iter().map(|v| like(b, v, true)).collect();
        if back {
            made.up = self.up.iter().map(|v| like(b, v, true)).collect();
        }
        made.xs = self.xs.iter().map(|v| like(b, v, false)).collect();
        if back {
            made.ws = self.ws.iter().map(|v| like(b, v, false)).collect();
        }
        made
    }

    /// Opens the first region.
    pub fn open_step(&self, b: &mut Builder) -> LoopParams {
        b.open_region();
        self.params(b, false, &|_| None)
    }

    /// Closes the first region with the carries' next values and what is stacked.
    pub fn close_step(&mut self, b: &mut Builder, carry: &[Value], ys: &[Value]) {
        self.step = Some(closed(b, carry, ys));
    }

    /// Opens the second region.
    pub fn open_back(&self, b: &mut Builder) -> LoopParams {
        b.open_region();
        self.params(b, true, &|_| None)
    }

    /// Closes the second region with the returning carries' next values and what is stacked.
    pub fn close_back(&mut self, b: &mut Builder, up: &[Value], zs: &[Value]) {
        self.back = Some(closed(b, up, zs));
    }

    /// Appends the instruction: carries, returning carries, stacks of the first region, those of the second.
    pub fn place(self, b: &mut Builder) -> Inst {
        let (step, ys) = self.step.expect("the first region is closed");
        let (back, zs) = self.back.map_or((None, Vec::new()), |(r, zs)| (Some(r), zs));
        let types = |values: &[Value]| values.iter().map(|&v| b.ty(v).clone()).collect::<Vec<_>>();
        let mut results = [types(&self.carry), types(&self.up)].concat();
        results.extend(ys.iter().chain(&zs).map(|ty| stacked(ty, self.length)));
        let mut attrs = Attrs::none();
        for spec in self.op.def().attrs {
            let value = match spec.name {
                "carry" => Attr::Int(self.carry.len() as i64),
                "up" => Attr::Int(self.up.len() as i64),
                "xs" => Attr::Int(self.xs.len() as i64),
                "ys" => Attr::Int(ys.len() as i64),
                "counted" => Attr::Bool(!self.lead.is_empty()),
                "length" if self.lead.is_empty() => {
                    Attr::Int(self.length.known().map_or(0, |n| n as i64))
                }
                name => match (self.attrs.get(name), spec.default) {
                    (Some(given), _) => given.clone(),
                    (None, Some(default)) => default.value(),
                    (None, None) => continue,
                },
            };
            attrs = attrs.with(spec.name, value);
        }
        // A length is written only where no operand and no result has it.
        let told = !self.xs.is_empty() || !self.ws.is_empty() || !ys.is_empty() || !zs.is_empty();
        if told {
            attrs = attrs.replaced("length", Attr::Int(0));
        }
        let args = [self.lead, self.carry, self.up, self.xs, self.ws].concat();
        let regions: Vec<Region> = [step].into_iter().chain(back).collect();
        b.place(self.op, &args, attrs, &results, &regions)
    }
}

fn closed(b: &mut Builder, next: &[Value], stacks: &[Value]) -> (Region, Vec<TensorType>) {
    let region = b.region();
    let types = stacks.iter().map(|&v| b.ty(v).clone()).collect();
    b.close_region(&[next, stacks].concat());
    (region, types)
}

/// Appends a branch; each region has been closed with values of the types of `results`.
pub fn branch(
    b: &mut Builder,
    op: Op,
    selector: Value,
    results: &[TensorType],
    regions: &[Region],
) -> Inst {
    b.place(op, &[selector], Attrs::none(), results, regions)
}

/// Appends a `while` of these carries and regions.
pub fn while_loop(b: &mut Builder, attrs: Attrs, carry: &[Value], regions: [Region; 2]) -> Inst {
    let types: Vec<TensorType> = carry.iter().map(|&v| b.ty(v).clone()).collect();
    b.place(Op::While, carry, attrs, &types, &regions)
}
