//! General registers for the integers of a loop program: each value has one home, a register or the stack frame.
//!
//! A value is alive from its definition to its last use, and all along a loop that it is used in but not defined in. The
//! values that are used most, inner loops counting more, choose first among the registers that are free all that time. What is
//! dead where groups are may be in the registers that groups have.

use super::frame::StackFrame;
use crate::cpu::codegen::loop_program::{
    GroupRead, GroupWrite, LoopBlock, LoopCond, LoopOp, LoopProgram, LoopStmt, LoopVal,
};
use iced_x86::Register;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueHome {
    /// Nowhere: nobody names it.
    Unused,
    In(Register),
    /// This many bytes behind what is in a register.
    Near(Register, i32),
    /// In the frame.
    Slot(u32),
    /// A number, made where it is used.
    Number(i64),
    /// An entry of the table of pointers, read where it is used.
    Table(u32),
}

/// The coordinate of a group.
pub(crate) const ALONG: Register = Register::R9;

/// One past the last coordinate of a loop of groups.
pub(crate) const HIGH: Register = Register::R10;

/// Registers that groups have for themselves: for their coordinate, and for the end of their loop.
const OF_GROUPS: [Register; 2] = [ALONG, HIGH];

/// Registers that values may be in, those of groups first. Others are for the table, the stack, and three to compute
/// with.
const REGISTERS: [Register; 11] = [
    OF_GROUPS[0],
    OF_GROUPS[1],
    Register::RBX,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
    Register::R11,
    Register::RBP,
    Register::RSI,
    Register::R8,
];

/// A use in a loop counts as this many outside of it.
const LOOP_WEIGHT: u64 = 8;

/// From where to where a value is alive, and how much it is used.
#[derive(Clone, Copy, Default)]
struct LiveRange {
    begin: u32,
    end: u32,
    weight: u64,
    /// How many loops are around its definition.
    depth: u32,
    is_defined: bool,
}

struct RangeFinder<'a> {
    p: &'a LoopProgram,
    at: u32,
    /// The places where the loops around begin, outermost first.
    loops: Vec<u32>,
    ranges: Vec<LiveRange>,
    /// Values that are alive to the end of a loop around, by how many loops are around that.
    across: Vec<Vec<LoopVal>>,
    ops: Vec<Option<LoopOp>>,
    /// Where groups are.
    groups_at: Vec<u32>,
    /// Addresses that groups read in place, of the parameters that do not change along a line.
    fixed: Vec<LoopVal>,
    /// The parameters that are read so.
    repeated: &'a [bool],
    /// Whether a value is anything but an address.
    computed_with: Vec<bool>,
    wide: bool,
}

/// The homes of values by their numbers, and their operations.
pub(crate) struct Homes {
    pub(crate) of: Vec<ValueHome>,
    pub(crate) ops: Vec<Option<LoopOp>>,
}

/// The home of each value. Groups read `repeated` parameters in place.
pub(crate) fn homes(
    p: &LoopProgram,
    (repeated, wide): (&[bool], bool),
    frame: &mut StackFrame,
) -> Homes {
    let (loops, ranges, ops) = (Vec::new(), Vec::new(), Vec::new());
    let mut f = RangeFinder {
        p,
        at: 0,
        loops,
        ranges,
        across: Vec::new(),
        ops,
        groups_at: Vec::new(),
        fixed: Vec::new(),
        repeated,
        computed_with: Vec::new(),
        wide,
    };
    f.define(LoopVal::BEGIN, None);
    f.define(LoopVal::END, None);
    f.block(&p.code);
    let mut order: Vec<usize> = (0..f.ranges.len()).collect();
    order.sort_by_key(|&k| std::cmp::Reverse(f.ranges[k].weight));
    let mut homes = vec![ValueHome::Unused; f.ranges.len()];
    let mut taken: [Vec<(u32, u32)>; REGISTERS.len()] = Default::default();
    for taken in &mut taken[..OF_GROUPS.len()] {
        taken.extend(f.groups_at.iter().map(|&at| (at, at)));
    }
    for k in order {
        let range = f.ranges[k];
        if let Some(LoopOp::Int(x)) = f.ops[k] {
            homes[k] = ValueHome::Number(x);
            continue;
        }
        if range.weight == 0 {
            continue;
        }
        // What it is near is used more, and has chosen.
        if let Some((from, x)) = f.offset(LoopVal(k as u32)).filter(|_| !f.computed_with[k]) {
            let near = match homes[from.0 as usize] {
                ValueHome::In(r) => Some((r, x)),
                ValueHome::Near(r, y) => x.checked_add(y).map(|x| (r, x)),
                _ => None,
            };
            if let Some((r, x)) = near {
                homes[k] = ValueHome::Near(r, x);
                continue;
            }
        }
        let home = &mut homes[k];
        let apart = |&(begin, end): &(u32, u32)| range.end < begin || end < range.begin;
        let free = taken.iter().position(|all| all.iter().all(apart));
        // A pointer of the table is an operand as it is, where it is not used in a loop that it is not defined in.
        *home = match (free, f.ops[k]) {
            (_, Some(LoopOp::Pointer(at))) if range.weight <= 2 * LOOP_WEIGHT.pow(range.depth) => {
                ValueHome::Table(at)
            }
            (Some(n), _) => {
                taken[n].push((range.begin, range.end));
                ValueHome::In(REGISTERS[n])
            }
            (None, Some(LoopOp::Pointer(at))) => ValueHome::Table(at),
            (None, _) => ValueHome::Slot(frame.long()),
        };
    }
    Homes { of: homes, ops: f.ops }
}

impl RangeFinder<'_> {
    /// What a value is a number of bytes behind, and how many.
    fn offset(&self, v: LoopVal) -> Option<(LoopVal, i32)> {
        let Some(LoopOp::Add(a, b)) = self.op(v).filter(|_| self.wide) else { return None };
        let Some(LoopOp::Int(x)) = self.op(b) else { return None };
        Some((a, i32::try_from(x).ok()?))
    }

    fn op(&self, v: LoopVal) -> Option<LoopOp> {
        self.ops.get(v.0 as usize).copied().flatten()
    }

    /// A use as an address: of what it is near too.
    fn addresses(&mut self, v: LoopVal, more: u32) {
        self.counts(v, more);
        if let Some((from, _)) = self.offset(v) {
            self.addresses(from, more);
        }
    }

    /// What groups read and write, and what they read in place.
    fn group(&mut self, more: u32) {
        let p = self.p;
        let fixed = std::mem::take(&mut self.fixed);
        fixed.iter().for_each(|&v| self.addresses(v, more));
        self.fixed = fixed;
        let reads = p.reads.iter().filter_map(|read| match *read {
            GroupRead::Even { pointer, step: 1 } => Some(pointer),
            _ => None,
        });
        let writes = p.writes.iter().filter_map(|write| match *write {
            GroupWrite::Even { pointer, step: 1, .. } => Some(pointer),
            _ => None,
        });
        reads.chain(writes).for_each(|v| self.addresses(v, more));
        let reads = p.reads.iter().filter(|r| !matches!(r, GroupRead::Even { step: 1, .. }));
        let writes = p.writes.iter().filter(|w| !matches!(w, GroupWrite::Even { step: 1, .. }));
        let others = reads.flat_map(GroupRead::values).chain(writes.flat_map(GroupWrite::values));
        others.for_each(|v| self.uses(v, more));
    }

    fn define(&mut self, v: LoopVal, op: Option<LoopOp>) {
        let k = v.0 as usize;
        if self.ranges.len() <= k {
            self.ranges.resize(k + 1, LiveRange::default());
            self.ops.resize(k + 1, None);
            self.computed_with.resize(k + 1, false);
        }
        self.ops[k] = op;
        let depth = self.loops.len() as u32;
        let begin = self.at;
        self.ranges[k] = LiveRange { begin, end: begin, weight: 0, depth, is_defined: true };
    }

    /// A use in arithmetic, or where values are moved.
    fn uses(&mut self, v: LoopVal, more: u32) {
        self.counts(v, more);
        if let Some(with) = self.computed_with.get_mut(v.0 as usize) {
            *with = true;
        }
    }

    fn counts(&mut self, v: LoopVal, more: u32) {
        let depth = self.loops.len() as u32;
        let Some(range) = self.ranges.get_mut(v.0 as usize).filter(|r| r.is_defined) else {
            return;
        };
        range.end = range.end.max(self.at);
        range.weight = range.weight.saturating_add(LOOP_WEIGHT.saturating_pow(depth + more));
        if range.depth < depth {
            // It is needed again in the next turn of the outermost loop that it is not defined in.
            self.across[range.depth as usize].push(v);
        }
    }

    fn block(&mut self, block: &LoopBlock) {
        for s in block {
            self.stmt(s);
        }
    }

    fn turn<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let depth = self.loops.len();
        self.loops.push(self.at);
        if self.across.len() <= depth {
            self.across.push(Vec::new());
        }
        let given = body(self);
        self.loops.pop();
        self.at += 1;
        for v in std::mem::take(&mut self.across[depth]) {
            self.ranges[v.0 as usize].end = self.ranges[v.0 as usize].end.max(self.at);
        }
        given
    }

    fn defines(&mut self, v: LoopVal, op: &LoopOp) {
        match *op {
            LoopOp::Load(_, at) => self.addresses(at, 0),
            LoopOp::Add(a, b) if matches!(self.op(b), Some(LoopOp::Int(_))) => {
                self.addresses(a, 0);
                self.uses(b, 0);
            }
            _ => op.operands().into_iter().for_each(|a| self.uses(a, 0)),
        }
        self.at += 1;
        self.define(v, Some(*op));
    }

    fn invariants(&mut self, params: &[(usize, LoopVal)]) {
        self.fixed.clear();
        for &(k, v) in params {
            match self.op(v) {
                Some(LoopOp::Load(_, at)) if self.repeated[k] => {
                    self.addresses(at, 0);
                    self.fixed.push(at);
                }
                _ => self.uses(v, 0),
            }
        }
    }

    fn stmt(&mut self, s: &LoopStmt) {
        self.at += 1;
        match s {
            LoopStmt::Let(v, op) => self.defines(*v, op),
            LoopStmt::Invariants { params } => self.invariants(params),
            LoopStmt::If { all, then, otherwise, results } => {
                all.iter().flat_map(LoopCond::operands).for_each(|a| self.uses(a, 0));
                // A branch writes its results while the other's values are dead, and its own are not.
                self.at += 1;
                results.iter().for_each(|&(r, ..)| self.define(r, None));
                self.block(then);
                self.at += 1;
                results.iter().for_each(|&(_, a, _)| self.uses(a, 0));
                self.block(otherwise);
                self.at += 1;
                results.iter().for_each(|&(_, _, b)| self.uses(b, 0));
            }
            LoopStmt::While { carried, below, body, next } => {
                // What a loop begins with is moved one value after the other: none is where another goes.
                carried.iter().for_each(|&(_, begin)| self.uses(begin, 0));
                carried.iter().for_each(|&(now, _)| self.define(now, None));
                self.turn(|f| {
                    f.uses(*below, 0);
                    carried.iter().for_each(|&(now, _)| f.uses(now, 0));
                    f.block(body);
                    f.at += 1;
                    next.iter().for_each(|&n| f.uses(n, 0));
                });
            }
            s => {
                if let LoopStmt::Groups { .. }
                | LoopStmt::Line { .. }
                | LoopStmt::Partial { .. }
                | LoopStmt::FillColumns { .. } = s
                {
                    self.groups_at.push(self.at);
                }
                s.operands().into_iter().for_each(|a| self.uses(a, 0));
                match s {
                    LoopStmt::Groups { .. } | LoopStmt::Line { .. } | LoopStmt::Partial { .. } => {
                        let deep = u32::from(!matches!(s, LoopStmt::Partial { .. }));
                        self.group(deep);
                    }
                    LoopStmt::FillColumns { output, .. }
                    | LoopStmt::FillLanes { output }
                    | LoopStmt::JoinLanes { output, .. } => {
                        if let Some(w) = self.p.writes.get(*output) {
                            w.values().into_iter().for_each(|v| self.uses(v, 0));
                        }
                    }
                    _ => {}
                }
                if let LoopStmt::Groups { last, .. } = s {
                    self.at += 1;
                    self.define(*last, None);
                }
            }
        }
    }
}
