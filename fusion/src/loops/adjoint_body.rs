//! An `adjoint` taken out of its function: both of its regions as one straight-line body.
//!
//! The body computes what a step computes on the way forward and on the way back, from what the step is entered with.
//! What both regions compute is there once, so a residual is a value of this body that the way back reads and that does
//! not depend on what is handed back.

use super::merge::merge_loops;
use super::numbering::merge_equal;
use super::refine::partition;
use super::scan_body::{ScanBody, ScannedInput};
use super::slice::ProgramSlice;
use super::trips::known_trips;
use adfuse_ir::control::{LoopRoles, outline};
use adfuse_ir::op::Control;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, DType, Diagnostic, Function, Inst, Phase, TensorType, Value};
use cranelift_entity::EntitySet;
use std::ops::Range;

/// How many values there are of each kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdjointCounts {
    pub(super) carry: usize,
    pub(super) up: usize,
    pub(super) ys: usize,
    pub(super) zs: usize,
}

/// An `adjoint` with a known number of steps.
pub(super) struct AdjointBody {
    /// The values around it that its regions read.
    pub(super) captures: Vec<Value>,
    /// Initial values of the carries.
    pub(super) carry: Vec<Value>,
    /// Initial values of what is handed back.
    pub(super) up: Vec<Value>,
    /// What both regions scan.
    pub(super) xs: Vec<Value>,
    /// What the second region scans alone.
    pub(super) ws: Vec<Value>,
    /// Parameters: captures, position, carries, elements of `xs`, then what is handed back and elements of `ws`. Results:
    /// next carries, stacks of the first region, what is handed on, stacks of the second.
    pub(super) body: Function,
    pub(super) counts: AdjointCounts,
    pub(super) trips: u64,
    pub(super) reverse: bool,
    pub(super) phase: Phase,
}

impl AdjointBody {
    /// The regions of an `adjoint` as one body. None where the instruction is no `adjoint`, where its number of steps
    /// or an extent in it is unknown, and where it has effects.
    ///
    /// # Errors
    /// Those of construction, which a verified function does not have.
    pub(super) fn of(f: &Function, i: Inst) -> Result<Option<AdjointBody>, Diagnostic> {
        let Some(Control::Loop(row)) = f.op(i).control() else { return Ok(None) };
        let Some(trips) = known_trips(f, i) else { return Ok(None) };
        if !row.returns || f.has_effect(i) {
            return Ok(None);
        }
        let roles = LoopRoles::at(f, i);
        let args = f.args(i);
        let regions = [0, 1].map(|k| outline(f, f.inst(i).regions[k]));
        let mut captures = regions[0].captures.clone();
        captures.extend(regions[1].captures.iter().filter(|v| !regions[0].captures.contains(v)));
        let mut b = Builder::new(f.name.clone());
        b.func_mut().symbols = f.symbols.clone();
        let outside: Vec<Value> =
            captures.iter().map(|&v| b.param(f.ty(v).clone(), f.name_of(v))).collect();
        let position = b.param(TensorType::scalar(DType::I64), None);
        let mut copiers = [Copier::new(&regions[0].func), Copier::new(&regions[1].func)];
        let mut own: Vec<Vec<Value>> = Vec::new();
        for (copier, outlined) in copiers.iter_mut().zip(&regions) {
            let (around, entered) = outlined.func.params().split_at(outlined.captures.len());
            for (&p, v) in around.iter().zip(&outlined.captures) {
                let k = captures.iter().position(|c| c == v).unwrap_or_default();
                copier.set(p, outside[k]);
            }
            copier.set(entered[0], position);
            own.push(entered[1..].to_vec());
        }
        // The second region is entered with carries, what is handed back, elements of `xs`, elements of `ws`.
        let (carry, rest) = own[1].split_at(roles.carry);
        let (up, rest) = rest.split_at(roles.up);
        let (xs, ws) = rest.split_at(roles.xs);
        for (&first, &second) in own[0].iter().zip(carry.iter().chain(xs)) {
            copiers[0].param(&mut b, first);
            let shared = copiers[0].get(&mut b, first);
            copiers[1].set(second, shared);
        }
        up.iter().chain(ws).for_each(|&p| copiers[1].param(&mut b, p));
        let mut ends = Vec::new();
        for (copier, outlined) in copiers.iter_mut().zip(&regions) {
            for &i in outlined.func.body_insts() {
                copier.inst(&mut b, i);
            }
            for &v in outlined.func.results() {
                ends.push(copier.get(&mut b, v));
            }
        }
        b.set_results(&ends);
        let mut body = b.finish()?;
        merge_equal(&mut body);
        if !all_extents_known(&body) {
            return Ok(None);
        }
        let adjoint = AdjointBody {
            captures,
            carry: args[roles.carry_args()].to_vec(),
            up: args[roles.up_args()].to_vec(),
            xs: args[roles.xs_args()].to_vec(),
            ws: args[roles.ws_args()].to_vec(),
            body,
            counts: AdjointCounts { carry: roles.carry, up: roles.up, ys: roles.ys, zs: roles.zs },
            trips,
            reverse: roles.reverse,
            phase: f.inst(i).phase,
        };
        adjoint.settled(f).map(Some)
    }

    fn params(&self, from: usize, count: usize) -> &[Value] {
        &self.body.params()[from..from + count]
    }

    /// Parameters that stand for the captures.
    pub(super) fn outside(&self) -> &[Value] {
        self.params(0, self.captures.len())
    }

    /// The parameter that is the position of the step.
    pub(super) fn position(&self) -> Value {
        self.body.params()[self.captures.len()]
    }

    /// Parameters that are the carries.
    pub(super) fn carried(&self) -> &[Value] {
        self.params(self.captures.len() + 1, self.counts.carry)
    }

    /// Parameters that are elements of `xs`.
    pub(super) fn elements(&self) -> &[Value] {
        self.params(self.captures.len() + 1 + self.counts.carry, self.xs.len())
    }

    fn back_params(&self) -> usize {
        self.captures.len() + 1 + self.counts.carry + self.xs.len()
    }

    /// Parameters that are handed back.
    pub(super) fn handed(&self) -> &[Value] {
        self.params(self.back_params(), self.counts.up)
    }

    /// Parameters that are elements of `ws`.
    pub(super) fn back_elements(&self) -> &[Value] {
        self.params(self.back_params() + self.counts.up, self.ws.len())
    }

    fn results(&self, range: Range<usize>) -> &[Value] {
        &self.body.results()[range]
    }

    /// What the first region ends with: next carries and stacks.
    pub(super) fn step_ends(&self) -> &[Value] {
        self.results(0..self.counts.carry + self.counts.ys)
    }

    /// The next carries.
    pub(super) fn next(&self) -> &[Value] {
        self.results(0..self.counts.carry)
    }

    /// What is handed on, on the way back.
    pub(super) fn handed_on(&self) -> &[Value] {
        let start = self.counts.carry + self.counts.ys;
        self.results(start..start + self.counts.up)
    }

    /// What the second region stacks.
    pub(super) fn back_stacks(&self) -> &[Value] {
        let start = self.counts.carry + self.counts.ys + self.counts.up;
        self.results(start..start + self.counts.zs)
    }

    /// The values that depend on what is handed back, or on what the second region scans alone. An instruction is
    /// on one side as a whole.
    pub(super) fn way_back(&self) -> EntitySet<Value> {
        let f = &self.body;
        let mut found: EntitySet<Value> = EntitySet::new();
        found.extend(self.handed().iter().chain(self.back_elements()).copied());
        for &i in f.body_insts() {
            if f.reads(i, &|v| found.contains(v)) {
                found.extend(f.inst_results(i).iter().copied());
            }
        }
        found
    }

    /// The loop that goes over the steps and ends each with these values, next carries first.
    pub(super) fn forward(&self, ends: &[Value]) -> Result<ScanBody, Diagnostic> {
        let xs = self.scanned();
        let body = self.part(&[], (self.carried(), &xs), ends)?;
        ScanBody {
            captures: self.captures.clone(),
            carry: self.carry.clone(),
            xs: xs.into_iter().map(|(_, x)| x).collect(),
            body,
            trips: self.trips,
            reverse: self.reverse,
            unroll: 1,
            phase: Phase::PRIMAL,
        }
        .tidied()
    }

    /// The part of a step that computes `ends` from captures, carries and scanned elements, `given` among these.
    pub(super) fn part(
        &self,
        given: &[Value],
        (carry, xs): (&[Value], &[(Value, ScannedInput)]),
        ends: &[Value],
    ) -> Result<Function, Diagnostic> {
        let f = &self.body;
        let mut b = Builder::new(f.name.clone());
        b.func_mut().symbols = f.symbols.clone();
        let mut copier = Copier::new(f);
        let elements = xs.iter().map(|(p, _)| p);
        for &p in self.outside().iter().chain(carry).chain(elements) {
            copier.param(&mut b, p);
        }
        ProgramSlice::new(f, ends, &|v| given.contains(&v)).copy(&mut copier, &mut b);
        let results: Vec<Value> = ends.iter().map(|&v| copier.get(&mut b, v)).collect();
        b.set_results(&results);
        b.finish()
    }

    /// The same loop, in whose body nothing reads a carry that never changes or that is equal to another: what that
    /// begins with, or the other, is read instead. `outer` is the function that the loop is in.
    fn settled(self, outer: &Function) -> Result<AdjointBody, Diagnostic> {
        let partition = partition(&self.forward(self.next())?);
        let f = &self.body;
        let mut b = Builder::new(f.name.clone());
        b.func_mut().symbols = f.symbols.clone();
        let mut copier = Copier::new(f);
        self.outside().iter().for_each(|&p| copier.param(&mut b, p));
        let mut captures = self.captures.clone();
        let mut settled: Vec<Option<Value>> = Vec::new();
        for (k, &p) in self.carried().iter().enumerate() {
            settled.push(match (partition.is_invariant(k), outer.literal(self.carry[k])) {
                (true, Some(l)) => Some(b.literal(f.ty(p), l)),
                (true, None) => {
                    captures.push(self.carry[k]);
                    Some(b.param(f.ty(p).clone(), f.name_of(p)))
                }
                _ => None,
            });
        }
        for &p in &f.params()[self.captures.len()..] {
            copier.param(&mut b, p);
        }
        for (k, &p) in self.carried().iter().enumerate() {
            let new = match settled[k] {
                Some(v) => v,
                None => copier.get(&mut b, self.carried()[partition.leader(k)]),
            };
            copier.set(p, new);
        }
        for &i in f.body_insts() {
            copier.inst(&mut b, i);
        }
        let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
        b.set_results(&results);
        // Loops that both regions have become one.
        let body = merge_loops(&b.finish()?)?;
        Ok(AdjointBody { captures, body, ..self })
    }

    /// What the operands of the loop that goes forward are, for each parameter that it may read.
    pub(super) fn scanned(&self) -> Vec<(Value, ScannedInput)> {
        let elements = self.elements().iter().zip(&self.xs);
        let elements = elements.map(|(&p, &v)| (p, ScannedInput::Elements(v)));
        [(self.position(), ScannedInput::Position)].into_iter().chain(elements).collect()
    }
}

fn all_extents_known(f: &Function) -> bool {
    let mut known = f.params().iter().all(|&v| f.ty(v).elements().is_some());
    f.walk(&mut |f, i| known &= f.inst_results(i).iter().all(|&v| f.ty(v).elements().is_some()));
    known
}
