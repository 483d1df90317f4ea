//! The operands, region parameters and results of a loop, by what they are.

use super::def::{Bounds, Control, LoopRow};
use super::opcode::Op;
use crate::attrs::Attrs;
use crate::entity::{Inst, Region, Value};
use crate::function::Function;
use crate::types::Dim;
use std::ops::Range;

/// How many steps a loop takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trips {
    /// The first extent of what it scans, or its attribute `length`.
    Length(Dim),
    /// An operand, `i64[]`; none where it is negative.
    Count(Value),
    /// From the first operand to before the second, both integers of one type.
    Range(Value, Value),
}

/// How many operands and results a loop has of each kind.
///
/// Operands are in this order: bounds or trips, carries, returning carries, what is scanned by both regions, what is
/// scanned on the way back. Results: carries, returning carries, stacks of the first region, stacks of the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopRoles {
    row: LoopRow,
    /// Operands before the carries.
    pub lead: usize,
    /// Values carried from step to step.
    pub carry: usize,
    /// Values carried from step to step on the way back.
    pub up: usize,
    /// Operands of which each step sees one element, in both regions.
    pub xs: usize,
    /// Operands of which each step back sees one element.
    pub ws: usize,
    /// Results that stack an element of each step.
    pub ys: usize,
    /// Results that stack an element of each step back.
    pub zs: usize,
    /// Whether the first region goes from the last element to the first.
    pub reverse: bool,
}

impl LoopRoles {
    /// The roles in an instruction of this op, attributes and counts; none where it is no loop or the counts do
    /// not fit.
    pub fn of(op: Op, attrs: &Attrs, operands: usize, results: usize) -> Option<LoopRoles> {
        let Control::Loop(row) = op.control()? else { return None };
        LoopRoles::by(row, attrs, operands, results)
    }

    /// As [`LoopRoles::of`], of a loop that is written like this.
    pub fn by(row: LoopRow, attrs: &Attrs, operands: usize, results: usize) -> Option<LoopRoles> {
        let count = |name: &str| usize::try_from(attrs.int(name)).ok();
        let lead = match row.bounds {
            Bounds::Length => 0,
            Bounds::Range => 2,
            Bounds::Either => usize::from(attrs.flag("counted")),
        };
        let rest = operands.checked_sub(lead)?;
        let (carry, up, xs, ys);
        if row.returns {
            (carry, up) = (count("carry")?, count("up")?);
            (xs, ys) = (count("xs")?, count("ys")?);
        } else if row.stacks {
            carry = count("carry")?;
            (up, xs) = (0, rest.checked_sub(carry)?);
            ys = results.checked_sub(carry)?;
        } else {
            (carry, up, xs, ys) = (rest, 0, 0, 0);
        }
        let ws = rest.checked_sub(carry.checked_add(up)?.checked_add(xs)?)?;
        let zs = results.checked_sub(carry.checked_add(up)?.checked_add(ys)?)?;
        let reverse = attrs.flag("reverse");
        Some(LoopRoles { row, lead, carry, up, xs, ws, ys, zs, reverse })
    }

    /// The roles in a verified instruction that is a loop.
    ///
    /// # Panics
    /// If it is none.
    pub fn at(f: &Function, i: Inst) -> LoopRoles {
        LoopRoles::of(f.op(i), f.attrs(i), f.args(i).len(), f.inst_results(i).len())
            .expect("a verified loop has its operands")
    }

    /// Whether regions are entered with the position of the step first.
    pub fn index(&self) -> bool {
        self.row.bounds != Bounds::Length
    }

    /// Whether there is a second region, which goes back over the steps.
    pub fn returns(&self) -> bool {
        self.row.returns
    }

    /// Places of the carries among the operands.
    pub fn carry_args(&self) -> Range<usize> {
        self.lead..self.lead + self.carry
    }

    /// Places of the returning carries among the operands.
    pub fn up_args(&self) -> Range<usize> {
        let start = self.lead + self.carry;
        start..start + self.up
    }

    /// Places among the operands of what both regions scan.
    pub fn xs_args(&self) -> Range<usize> {
        let start = self.lead + self.carry + self.up;
        start..start + self.xs
    }

    /// Places among the operands of what the second region scans alone.
    pub fn ws_args(&self) -> Range<usize> {
        let start = self.lead + self.carry + self.up + self.xs;
        start..start + self.ws
    }

    /// Places of the carries among the results.
    pub fn carry_results(&self) -> Range<usize> {
        0..self.carry
    }

    /// Places of the returning carries among the results.
    pub fn up_results(&self) -> Range<usize> {
        self.carry..self.carry + self.up
    }

    /// Places of the first region's stacks among the results.
    pub fn ys_results(&self) -> Range<usize> {
        let start = self.carry + self.up;
        start..start + self.ys
    }

    /// Places of the second region's stacks among the results.
    pub fn zs_results(&self) -> Range<usize> {
        let start = self.carry + self.up + self.ys;
        start..start + self.zs
    }

    /// How many steps an instruction of these roles takes.
    pub fn trips(&self, f: &Function, i: Inst) -> Trips {
        let args = f.args(i);
        match self.lead {
            0 => Trips::Length(self.extent(f, i)),
            1 => Trips::Count(args[0]),
            _ => Trips::Range(args[0], args[1]),
        }
    }

    /// The extent of what is scanned and stacked; the attribute `length` where nothing is.
    pub fn extent(&self, f: &Function, i: Inst) -> Dim {
        let scanned = self.xs_args().chain(self.ws_args()).map(|k| f.args(i)[k]);
        let stacks = self.ys_results().chain(self.zs_results()).map(|k| f.inst_results(i)[k]);
        let first = scanned.chain(stacks).next().and_then(|v| f.ty(v).shape.first().copied());
        first.unwrap_or(Dim::Const(f.attrs(i).int("length").max(0) as u64))
    }

    /// The parameters of the first region, by role.
    pub fn step(&self, f: &Function, region: Region) -> Entered {
        Entered::new(&f.region(region).params, self.index(), [self.carry, 0, self.xs, 0])
    }

    /// The parameters of the second region, by role.
    pub fn back(&self, f: &Function, region: Region) -> Entered {
        let counts = [self.carry, self.up, self.xs, self.ws];
        Entered::new(&f.region(region).params, self.index(), counts)
    }
}

/// The parameters that a region of a loop is entered with.
#[derive(Clone, Debug)]
pub struct Entered {
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

impl Entered {
    fn new(params: &[Value], index: bool, counts: [usize; 4]) -> Entered {
        let mut rest = params.iter().copied();
        let index = if index { rest.next() } else { None };
        let [carry, up, xs, ws] = counts.map(|n| rest.by_ref().take(n).collect());
        Entered { index, carry, up, xs, ws }
    }
}
