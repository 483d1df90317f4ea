//! A loop with linear parts, taken apart: which of its values are fixed, and its regions turned around.

use crate::forward::zeros;
use crate::partial::accumulate;
use crate::transpose::Transpose;
use adfuse_ir::control::{Entered, Liveness, LoopRoles, outline};
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{
    Attr, Attrs, Builder, Diagnostic, Function, Inst, Literal, Op, Region, TensorType, Value,
};

/// What becomes of each parameter of an outlined region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnedRole {
    Fixed,
    Linear,
    /// Counts as zero.
    Zero,
}

/// The function of the parameters that are fixed, then those that are linear, with these results.
pub(super) fn arranged(
    f: &Function,
    slots: &[TurnedRole],
    keep: &[usize],
) -> Result<Function, Diagnostic> {
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    for slot in [TurnedRole::Fixed, TurnedRole::Linear, TurnedRole::Zero] {
        for (&p, _) in f.params().iter().zip(slots).filter(|(_, s)| **s == slot) {
            let new = match slot {
                TurnedRole::Zero => zeros(&mut b, f.ty(p)),
                _ => b.param(f.ty(p).clone(), f.name_of(p)),
            };
            copier.set(p, new);
        }
    }
    let mut live = Liveness::new(f, false);
    for &k in keep {
        live.need(f.results()[k]);
    }
    live.region(f.body());
    for &i in f.body_insts() {
        live.copy(&mut copier, &mut b, i);
    }
    let results: Vec<Value> = keep.iter().map(|&k| copier.get(&mut b, f.results()[k])).collect();
    b.set_results(&results);
    b.finish()
}

/// Places by whether what is there is linear.
pub(super) struct LinearSplit {
    pub(super) fixed: Vec<usize>,
    pub(super) linear: Vec<usize>,
}

impl LinearSplit {
    fn new(values: &[Value], linear: impl Fn(Value) -> bool) -> LinearSplit {
        let (linear, fixed) = (0..values.len()).partition(|&k| linear(values[k]));
        LinearSplit { fixed, linear }
    }
}

/// The second region, turned around.
pub(super) struct TurnedBack {
    pub(super) captures: Vec<Value>,
    /// What it does to values that are fixed.
    pub(super) fixed: Function,
    /// The cotangents of what is handed back and of what is scanned on the way back.
    pub(super) by_up: Function,
    /// The cotangents of captures, carries and what both regions scan.
    pub(super) by_carry: Function,
}

impl TurnedBack {
    /// Turns the second region around, of whose results those at `keep` have cotangents; `fixed` are the places of
    /// what it hands back that is not linear.
    fn new(
        pass: &Transpose<'_>,
        (i, region): (Inst, Region),
        e: &Entered,
        fixed: &[usize],
        keep: &[usize],
    ) -> Result<TurnedBack, Diagnostic> {
        let outer = outline(pass.f, region);
        // In the order of the parameters, with whether each is of the way back.
        let mut all: Vec<(TurnedRole, bool)> = Vec::new();
        let mut push = |values: &[Value], own: bool| {
            all.extend(values.iter().map(|&v| (pass.role(v), own)));
        };
        push(&outer.captures, false);
        push(&e.index.map_or(Vec::new(), |v| vec![v]), false);
        push(&e.carry, false);
        push(&e.up, true);
        push(&e.xs, false);
        push(&e.ws, true);
        let slots: Vec<TurnedRole> = all.iter().map(|(role, _)| *role).collect();
        let turned = pass.turned(&outer.func, &slots, keep)?;
        let of_back: Vec<bool> =
            all.iter().filter(|(r, _)| *r == TurnedRole::Linear).map(|(_, own)| *own).collect();
        let (own, others): (Vec<usize>, Vec<usize>) = (0..of_back.len()).partition(|&k| of_back[k]);
        let every = vec![TurnedRole::Fixed; turned.params().len()];
        let by_up = arranged(&turned, &every, &own)?;
        // What is handed back is not there on the way forward.
        let mut live = Liveness::new(&by_up, false);
        by_up.results().iter().for_each(|&v| {
            live.need(v);
        });
        live.region(by_up.body());
        let before = |values: &[Value]| values.iter().filter(|&&v| !pass.is_linear(v)).count();
        let lead = before(&outer.captures) + usize::from(e.index.is_some()) + before(&e.carry);
        let handed = &by_up.params()[lead..lead + fixed.len()];
        if handed.iter().any(|&p| live.contains(p)) {
            return Err(pass.not_linear(i));
        }
        Ok(TurnedBack {
            fixed: arranged(&outer.func, &without_linear(&slots), fixed)?,
            by_carry: arranged(&turned, &every, &others)?,
            captures: outer.captures,
            by_up,
        })
    }
}

/// The roles where what is linear counts as zero.
fn without_linear(slots: &[TurnedRole]) -> Vec<TurnedRole> {
    let role = |&s: &TurnedRole| if s == TurnedRole::Linear { TurnedRole::Zero } else { s };
    slots.iter().map(role).collect()
}

/// A loop with linear parts, taken apart.
pub(super) struct TurnedLoop {
    pub(super) roles: LoopRoles,
    pub(super) carry: LinearSplit,
    pub(super) up: LinearSplit,
    pub(super) xs: LinearSplit,
    pub(super) ws: LinearSplit,
    /// Stacks that have a cotangent.
    pub(super) ys: Vec<usize>,
    pub(super) zs: Vec<usize>,
    /// Linear values around the loop that it reads.
    pub(super) read: Vec<Value>,
    pub(super) step_captures: Vec<Value>,
    pub(super) step_fixed: Function,
    pub(super) by_carry: Function,
    pub(super) back: Option<TurnedBack>,
}

impl TurnedLoop {
    pub(super) fn new(
        pass: &Transpose<'_>,
        i: Inst,
        cts: &[Option<Value>],
    ) -> Result<TurnedLoop, Diagnostic> {
        let f = pass.f;
        let roles = LoopRoles::at(f, i);
        let lin = |v: Value| pass.is_linear(v);
        let step = f.inst(i).regions[0];
        let down = roles.step(f, step);
        let carry = LinearSplit::new(&down.carry, lin);
        let xs = LinearSplit::new(&down.xs, lin);
        let given = |places: std::ops::Range<usize>| -> Vec<usize> {
            let start = places.start;
            places.filter(|&k| cts[k].is_some()).map(|k| k - start).collect()
        };
        let (ys, zs) = (given(roles.ys_results()), given(roles.zs_results()));
        let outer = outline(f, step);
        let mut read: Vec<Value> = outer.captures.iter().copied().filter(|&v| lin(v)).collect();

        let slots = |values: &[Value]| values.iter().map(|&v| pass.role(v)).collect::<Vec<_>>();
        let mut step_slots = slots(&outer.captures);
        step_slots.extend(down.index.map(|_| TurnedRole::Fixed));
        step_slots.extend(slots(&down.carry));
        step_slots.extend(slots(&down.xs));
        let step_fixed = arranged(&outer.func, &without_linear(&step_slots), &carry.fixed)?;
        let keep: Vec<usize> =
            carry.linear.iter().copied().chain(ys.iter().map(|k| roles.carry + k)).collect();
        let by_carry = pass.turned(&outer.func, &step_slots, &keep)?;

        let none = || LinearSplit { fixed: Vec::new(), linear: Vec::new() };
        let (mut up, mut ws, mut back) = (none(), none(), None);
        if let Some(&region) = f.inst(i).regions.get(1) {
            let e = roles.back(f, region);
            (up, ws) = (LinearSplit::new(&e.up, lin), LinearSplit::new(&e.ws, lin));
            let keep: Vec<usize> =
                up.linear.iter().copied().chain(zs.iter().map(|k| roles.up + k)).collect();
            let turned = TurnedBack::new(pass, (i, region), &e, &up.fixed, &keep)?;
            for &v in turned.captures.iter().filter(|v| lin(**v)) {
                if !read.contains(&v) {
                    read.push(v);
                }
            }
            back = Some(turned);
        }
        let step_captures = outer.captures;
        Ok(TurnedLoop {
            roles,
            carry,
            up,
            xs,
            ws,
            ys,
            zs,
            read,
            step_captures,
            step_fixed,
            by_carry,
            back,
        })
    }

    pub(super) fn attrs(&self, f: &Function, i: Inst) -> Attrs {
        Attrs::none().with("reverse", Attr::Bool(f.attrs(i).flag("reverse")))
    }

    /// The parameters of a region of the loop turned around, by what they are.
    pub(super) fn entered(
        &self,
        b: &mut Builder,
        (index, lower): (Option<Value>, Option<Value>),
        [carry, up, xs, ws]: [&[Value]; 4],
    ) -> TurnedParams {
        let index = match (index, lower) {
            (Some(k), Some(lower)) => {
                let ty = b.ty(lower).clone();
                let k = b.converted(k, ty.dtype);
                Some(b.op_as(Op::Add, &[lower, k], Attrs::none(), &ty))
            }
            (k, _) => k,
        };
        let (c, alpha) = carry.split_at(self.carry.fixed.len());
        let (a, rest) = up.split_at(self.up.fixed.len().min(up.len()));
        let (gamma, read) = rest.split_at(self.carry.linear.len().min(rest.len()));
        let (x, rest) = xs.split_at(self.xs.fixed.len());
        let (w, z_cts) = rest.split_at(self.ws.fixed.len());
        let list = <[Value]>::to_vec;
        TurnedParams {
            // The index is entered where the loop itself has one.
            index: index.filter(|_| self.roles.index()),
            c: list(c),
            alpha: list(alpha),
            a: list(a),
            gamma: list(gamma),
            read: list(read),
            x: list(x),
            w: list(w),
            z_cts: list(z_cts),
            y_cts: list(ws),
        }
    }
}

/// What a region of a loop turned around is entered with.
pub(super) struct TurnedParams {
    pub(super) index: Option<Value>,
    /// Fixed carries.
    pub(super) c: Vec<Value>,
    /// Cotangents of what is handed back, which go forward.
    pub(super) alpha: Vec<Value>,
    /// Fixed values that are handed back.
    pub(super) a: Vec<Value>,
    /// Cotangents of the carries.
    pub(super) gamma: Vec<Value>,
    /// Cotangents of what the loop reads, summed so far.
    pub(super) read: Vec<Value>,
    pub(super) x: Vec<Value>,
    pub(super) w: Vec<Value>,
    pub(super) z_cts: Vec<Value>,
    pub(super) y_cts: Vec<Value>,
}

impl TurnedParams {
    /// The fixed operands of the first region's functions.
    pub(super) fn step_args(
        &self,
        turn: &TurnedLoop,
        pass: &mut Transpose<'_>,
        b: &mut Builder,
    ) -> Vec<Value> {
        let mut args = pass.fixed_of(b, &turn.step_captures);
        args.extend(self.index);
        args.extend(self.c.iter().chain(&self.x));
        args
    }

    /// The fixed operands of the second region's functions; on the way forward nothing is handed back yet.
    pub(super) fn back_args(
        &self,
        turn: &TurnedLoop,
        pass: &mut Transpose<'_>,
        b: &mut Builder,
        forward: bool,
    ) -> Vec<Value> {
        let Some(back) = &turn.back else { return Vec::new() };
        let mut args = pass.fixed_of(b, &back.captures);
        args.extend(self.index);
        args.extend(&self.c);
        if forward {
            let at = args.len();
            let params = &back.by_up.params()[at..at + turn.up.fixed.len()];
            let types: Vec<TensorType> = params.iter().map(|&p| back.by_up.ty(p).clone()).collect();
            args.extend(types.iter().map(|ty| zeros(b, ty)));
        } else {
            args.extend(&self.a);
        }
        args.extend(self.x.iter().chain(&self.w));
        args
    }
}

/// CotangentSums of the cotangents that both regions give.
pub(super) struct CotangentSums {
    pub(super) carry: Vec<Option<Value>>,
    pub(super) xs: Vec<Option<Value>>,
    pub(super) read: Vec<Option<Value>>,
}

impl CotangentSums {
    pub(super) fn new(turn: &TurnedLoop, read: &[Value]) -> CotangentSums {
        CotangentSums {
            carry: vec![None; turn.carry.linear.len()],
            xs: vec![None; turn.xs.linear.len()],
            read: read.iter().map(|&v| Some(v)).collect(),
        }
    }

    /// Adds what a region gives: cotangents of linear captures, carries and scanned elements.
    pub(super) fn add(
        &mut self,
        b: &mut Builder,
        turn: &TurnedLoop,
        captures: &[Value],
        out: &[Value],
    ) {
        let linear: Vec<usize> =
            captures.iter().filter_map(|v| turn.read.iter().position(|r| r == v)).collect();
        let (read, rest) = out.split_at(linear.len());
        let (carry, xs) = rest.split_at(turn.carry.linear.len());
        let mut into = |slot: &mut Option<Value>, v: Value| {
            let zero = b.func().literal(v).is_some_and(Literal::is_zero);
            *slot = accumulate(b, *slot, (!zero).then_some(v));
        };
        for (&k, &v) in linear.iter().zip(read) {
            into(&mut self.read[k], v);
        }
        for (slot, &v) in self.carry.iter_mut().zip(carry) {
            into(slot, v);
        }
        for (slot, &v) in self.xs.iter_mut().zip(xs) {
            into(slot, v);
        }
    }
}
