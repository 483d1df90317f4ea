//! Ops with regions: branches, loops, and loops that go back over their steps.

use super::eval::Eval;
use super::tensor::EvalTensor;
use crate::runtime::limits::{loop_too_long, too_many_steps};
use adfuse_ir::control::{Entered, LoopRoles, Trips};
use adfuse_ir::{At, DType, Diagnostic, Inst, Kind, Literal, TensorType, Value};
use std::ops::Range;
use std::rc::Rc;

type EvalTensors = Vec<Rc<EvalTensor>>;

impl Eval<'_> {
    /// The results of the region that the operand selects.
    pub(super) fn branch(
        &mut self,
        i: Inst,
        selector: &EvalTensor,
    ) -> Result<EvalTensors, Diagnostic> {
        let regions = &self.f.inst(i).regions;
        let index = Literal::from_bits(selector.dtype, selector.bits[0]).to_i64();
        let taken = match selector.dtype {
            DType::Bool => usize::from(index == 0),
            _ => index.clamp(0, regions.len() as i64 - 1) as usize,
        };
        self.region(regions[taken])
    }

    /// Repeats the second region while the first gives true.
    pub(super) fn while_loop(
        &mut self,
        i: Inst,
        args: EvalTensors,
    ) -> Result<EvalTensors, Diagnostic> {
        let f = self.f;
        let [test, body] = f.inst(i).regions[..] else { return Err(broken()) };
        let most = match f.attrs(i).int("max_trips") {
            0 => self.max_trips,
            n => self.max_trips.min(n as u64),
        };
        let mut carry = args;
        let mut trips = 0;
        loop {
            self.enter(&f.region(test).params, carry.iter());
            if self.region(test)?[0].bits[0] & 1 == 0 {
                return Ok(carry);
            }
            if trips == most {
                return Err(loop_too_long(most));
            }
            trips += 1;
            self.enter(&f.region(body).params, carry.iter());
            carry = self.region(body)?;
        }
    }

    /// Runs a loop of a known number of steps, and its way back.
    pub(super) fn steps(
        &mut self,
        i: Inst,
        args: &EvalTensors,
        types: &[TensorType],
    ) -> Result<EvalTensors, Diagnostic> {
        let f = self.f;
        let roles = LoopRoles::at(f, i);
        let (first, trips) = match roles.trips(f, i) {
            Trips::Length(n) => (0, n.known().unwrap_or(0) as i64),
            Trips::Count(_) => (0, whole(&args[0])),
            Trips::Range(..) => {
                let (from, to) = (whole(&args[0]), whole(&args[1]));
                (from, to.saturating_sub(from))
            }
        };
        let trips = trips.max(0);
        if trips as u64 > self.max_trips {
            return Err(too_many_steps(&f.op(i).to_string(), trips as u64, self.max_trips));
        }
        let index = match roles.lead {
            2 => f.ty(f.args(i)[0]).dtype,
            _ => DType::I64,
        };
        let mut stacks: Vec<Stack> = Vec::new();
        for k in roles.ys_results().chain(roles.zs_results()) {
            stacks.push(Stack::new(&types[k])?);
        }
        let order = |t: i64| if roles.reverse { trips - 1 - t } else { t };
        let step = f.inst(i).regions[0];
        let down = roles.step(f, step);
        let mut states: Vec<EvalTensors> = Vec::new();
        let mut carry = args[roles.carry_args()].to_vec();
        for t in 0..trips {
            let p = order(t);
            if roles.returns() {
                states.push(carry.clone());
            }
            self.enter_step(&down, (first + p, index), &carry);
            self.enter_elements(&down.xs, &args[roles.xs_args()], p)?;
            let mut ends = self.region(step)?;
            for (stack, y) in stacks.iter_mut().zip(ends.split_off(roles.carry)) {
                stack.set(p, &y);
            }
            carry = ends;
        }
        let mut up = args[roles.up_args()].to_vec();
        if let Some(&back) = f.inst(i).regions.get(1) {
            let entered = roles.back(f, back);
            for t in (0..trips).rev() {
                let p = order(t);
                let state = states.pop().ok_or_else(broken)?;
                self.enter_step(&entered, (first + p, index), &state);
                self.enter(&entered.up, up.iter());
                self.enter_elements(&entered.xs, &args[roles.xs_args()], p)?;
                self.enter_elements(&entered.ws, &args[roles.ws_args()], p)?;
                let mut ends = self.region(back)?;
                let zs = ends.split_off(roles.up);
                for (stack, z) in stacks[roles.ys..].iter_mut().zip(zs) {
                    stack.set(p, &z);
                }
                up = ends;
            }
        }
        let stacks = stacks.into_iter().map(|s| Rc::new(s.whole));
        Ok(carry.into_iter().chain(up).chain(stacks).collect())
    }

    fn enter<'t>(&mut self, params: &[Value], with: impl Iterator<Item = &'t Rc<EvalTensor>>) {
        for (&p, t) in params.iter().zip(with) {
            self.values[p] = Some(t.clone());
        }
    }

    fn enter_step(&mut self, entered: &Entered, (at, dtype): (i64, DType), carry: &EvalTensors) {
        if let Some(p) = entered.index {
            let bits = vec![Literal::from_i64(dtype, at).bits()];
            self.values[p] = Some(Rc::new(EvalTensor { dtype, dims: Default::default(), bits }));
        }
        self.enter(&entered.carry, carry.iter());
    }

    fn enter_elements(
        &mut self,
        params: &[Value],
        of: &[Rc<EvalTensor>],
        p: i64,
    ) -> Result<(), Diagnostic> {
        for (&param, whole) in params.iter().zip(of) {
            let range = part(p, whole.bits.len(), whole.dims[0]);
            let element = EvalTensor::build(self.f.ty(param), |bits| {
                bits.extend_from_slice(&whole.bits[range]);
                Ok(())
            })?;
            self.values[param] = Some(Rc::new(element));
        }
        Ok(())
    }
}

/// A result that is filled an element at a time.
struct Stack {
    whole: EvalTensor,
}

impl Stack {
    fn new(ty: &TensorType) -> Result<Stack, Diagnostic> {
        let whole = EvalTensor::build(ty, |bits| {
            bits.resize(bits.capacity(), 0);
            Ok(())
        })?;
        Ok(Stack { whole })
    }

    fn set(&mut self, p: i64, element: &EvalTensor) {
        let range = part(p, self.whole.bits.len(), self.whole.dims[0]);
        self.whole.bits[range].copy_from_slice(&element.bits);
    }
}

/// The words of element `p` of `n`.
fn part(p: i64, words: usize, n: i64) -> Range<usize> {
    let each = words / n.max(1) as usize;
    let start = p as usize * each;
    start..start + each
}

fn whole(t: &EvalTensor) -> i64 {
    Literal::from_bits(t.dtype, t.bits[0]).to_i64()
}

fn broken() -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Internal, "a loop has not the regions of its row")
}
