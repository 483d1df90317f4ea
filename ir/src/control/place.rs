//! Placing region ops in a function under construction.

use super::{Entered, element, stacked};
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

    fn params(&self, b: &mut Builder, back: bool) -> Entered {
        let index = self.index(b).map(|ty| b.param(ty, None));
        let mut whole = |values: &[Value]| -> Vec<Value> {
            values.iter().map(|&v| b.param(b.ty(v).clone(), None)).collect()
        };
        let carry = whole(&self.carry);
        let up = if back { whole(&self.up) } else { Vec::new() };
        let mut elements = |values: &[Value]| -> Vec<Value> {
            values.iter().map(|&v| b.param(element(b.ty(v)), None)).collect()
        };
        let xs = elements(&self.xs);
        let ws = if back { elements(&self.ws) } else { Vec::new() };
        Entered { index, carry, up, xs, ws }
    }

    /// Opens the first region.
    pub fn open_step(&self, b: &mut Builder) -> Entered {
        b.open_region();
        self.params(b, false)
    }

    /// Closes the first region with the carries' next values and what is stacked.
    pub fn close_step(&mut self, b: &mut Builder, carry: &[Value], ys: &[Value]) {
        self.step = Some(closed(b, carry, ys));
    }

    /// Opens the second region.
    pub fn open_back(&self, b: &mut Builder) -> Entered {
        b.open_region();
        self.params(b, true)
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
        // A length is written only where no operand and no result has it.
        let told = !self.xs.is_empty() || !self.ws.is_empty() || !ys.is_empty() || !zs.is_empty();
        let length = self.length.known().filter(|_| !told && self.lead.is_empty()).unwrap_or(0);
        let mut attrs = Attrs::none();
        for spec in self.op.def().attrs {
            let value = match spec.name {
                "carry" => Attr::Int(self.carry.len() as i64),
                "up" => Attr::Int(self.up.len() as i64),
                "xs" => Attr::Int(self.xs.len() as i64),
                "ys" => Attr::Int(ys.len() as i64),
                "counted" => Attr::Bool(!self.lead.is_empty()),
                "length" => Attr::Int(length as i64),
                name => match (self.attrs.get(name), spec.default) {
                    (Some(given), _) => given.clone(),
                    (None, Some(default)) => default.value(),
                    (None, None) => continue,
                },
            };
            attrs = attrs.with(spec.name, value);
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
