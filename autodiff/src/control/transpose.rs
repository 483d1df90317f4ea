//! Branches and loops turned around.
//!
//! A linear loop `t' = D(c, x)[t, r]` beside a fixed one `c' = S(c, x)` becomes a loop that goes over `c` again and
//! then back: `ct = D(c, x)^T[ct']`, from the last step to the first. That is the op `adjoint`, which is closed
//! under transposition: what its way back does is linear in what it hands back, so the transposed of
//! `a = U(c, x)[a', t]` goes forward in the cotangent of `a` and back in that of `t`. No number of steps and no
//! schedule of what is kept has to be known here.

use crate::forward::zeros;
use crate::partial::accumulate;
use crate::transpose::{Transpose, transposed};
use adfuse_ir::control::{Entered, Liveness, Loop, LoopRoles, Outlined, branch, element, outline};
use adfuse_ir::op::Control;
use adfuse_ir::rewrite::{Copier, splice};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{
    Attr, Attrs, Builder, DType, Diagnostic, Function, Inst, Literal, Op, TensorType, Value,
};

/// What becomes of each parameter of an outlined region.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Fixed,
    Linear,
    /// Counts as zero.
    Zero,
}

/// The function of the parameters that are fixed, then those that are linear, with these results.
fn arranged(f: &Function, slots: &[Slot], keep: &[usize]) -> Result<Function, Diagnostic> {
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    for slot in [Slot::Fixed, Slot::Linear, Slot::Zero] {
        for (&p, _) in f.params().iter().zip(slots).filter(|(_, s)| **s == slot) {
            let new = match slot {
                Slot::Zero => zeros(&mut b, f.ty(p)),
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

impl Transpose<'_> {
    /// Adds to the cotangents of what an instruction with regions reads.
    pub(crate) fn control(
        &mut self,
        b: &mut Builder,
        i: Inst,
        control: Control,
        cts: &[Option<Value>],
    ) -> Result<(), Diagnostic> {
        match control {
            Control::Branch => self.branch(b, i, cts),
            Control::Loop(_) => self.steps(b, i, cts),
            Control::While | Control::Call => Err(self.not_linear(i)),
        }
    }

    /// The cotangents of the linear parameters from those of the results at `keep`.
    fn turned(&self, f: &Function, slots: &[Slot], keep: &[usize]) -> Result<Function, Diagnostic> {
        let fixed = slots.iter().filter(|s| **s == Slot::Fixed).count();
        let linear = arranged(f, slots, keep)?;
        transposed(self.module, &linear, fixed, self.phase)
    }

    fn splice(
        &self,
        b: &mut Builder,
        i: Inst,
        g: &Function,
        args: &[Value],
    ) -> Result<Vec<Value>, Diagnostic> {
        let at = || at_inst(self.f, i);
        let place: (&dyn Fn() -> _, _) = (&at, self.phase);
        let out = splice(self.module, g, args, &|callee| callee.rule.is_none(), place, b);
        b.set_phase(self.phase);
        b.set_span(self.f.span(i));
        out
    }

    fn is_linear(&self, v: Value) -> bool {
        self.linear.contains(v)
    }

    /// The same branch, with the cotangents of all that any of the regions reads.
    fn branch(
        &mut self,
        b: &mut Builder,
        i: Inst,
        cts: &[Option<Value>],
    ) -> Result<(), Diagnostic> {
        let f = self.f;
        let outlined: Vec<Outlined> = f.inst(i).regions.iter().map(|&r| outline(f, r)).collect();
        let mut read: Vec<Value> = Vec::new();
        for &v in outlined.iter().flat_map(|o| &o.captures) {
            if self.is_linear(v) && !read.contains(&v) {
                read.push(v);
            }
        }
        let given: Vec<usize> = (0..cts.len()).filter(|&k| cts[k].is_some()).collect();
        let selector = self.fixed.get(b, f.args(i)[0]);
        let mut regions = Vec::new();
        for o in &outlined {
            let slots = self.slots(&o.captures);
            let turned = self.turned(&o.func, &slots, &given)?;
            let mut args = self.fixed_of(b, &o.captures);
            args.extend(given.iter().filter_map(|&k| cts[k]));
            regions.push(b.open_region());
            let out = self.splice(b, i, &turned, &args)?;
            let own: Vec<Value> =
                o.captures.iter().copied().filter(|&v| self.is_linear(v)).collect();
            let mut ends = Vec::new();
            for &v in &read {
                ends.push(match own.iter().position(|&o| o == v) {
                    Some(k) => out[k],
                    None => zeros(b, f.ty(v)),
                });
            }
            b.close_region(&ends);
        }
        let types: Vec<TensorType> = read.iter().map(|&v| f.ty(v).clone()).collect();
        let new = branch(b, f.op(i), selector, &types, &regions);
        let out = b.func().inst_results(new).to_vec();
        for (&v, &ct) in read.iter().zip(&out) {
            self.add(b, v, Some(ct));
        }
        Ok(())
    }

    fn slots(&self, captures: &[Value]) -> Vec<Slot> {
        let slot = |&v: &Value| if self.is_linear(v) { Slot::Linear } else { Slot::Fixed };
        captures.iter().map(slot).collect()
    }

    /// The new values of those that are fixed.
    fn fixed_of(&mut self, b: &mut Builder, values: &[Value]) -> Vec<Value> {
        let fixed: Vec<Value> = values.iter().copied().filter(|&v| !self.is_linear(v)).collect();
        fixed.into_iter().map(|v| self.fixed.get(b, v)).collect()
    }

    fn steps(&mut self, b: &mut Builder, i: Inst, cts: &[Option<Value>]) -> Result<(), Diagnostic> {
        let turn = Turn::new(self, i, cts)?;
        let f = self.f;
        let (args, roles) = (f.args(i), turn.roles);
        let mut new = Loop::new(Op::Adjoint, turn.attrs(f, i), roles.extent(f, i));
        new.lead = self.trips(b, i, &roles);
        let lower = (roles.lead == 2).then(|| self.fixed.get(b, args[0]));
        let get = |pass: &mut Self, b: &mut Builder, from: usize, places: &[usize]| -> Vec<Value> {
            places.iter().map(|&k| pass.fixed.get(b, args[from + k])).collect()
        };
        let zero_or = |b: &mut Builder, k: usize| {
            cts[k].unwrap_or_else(|| zeros(b, f.ty(f.inst_results(i)[k])))
        };
        let mut carry = get(self, b, roles.carry_args().start, &turn.carry.fixed);
        for &k in &turn.up.linear {
            carry.push(zero_or(b, roles.up_results().start + k));
        }
        let mut up = get(self, b, roles.up_args().start, &turn.up.fixed);
        for &k in &turn.carry.linear {
            up.push(zero_or(b, k));
        }
        up.extend(turn.read.iter().map(|&v| zeros(b, f.ty(v))));
        let mut xs = get(self, b, roles.xs_args().start, &turn.xs.fixed);
        xs.extend(get(self, b, roles.ws_args().start, &turn.ws.fixed));
        xs.extend(turn.zs.iter().filter_map(|&k| cts[roles.zs_results().start + k]));
        let ws: Vec<Value> =
            turn.ys.iter().filter_map(|&k| cts[roles.ys_results().start + k]).collect();
        (new.carry, new.up, new.xs, new.ws) = (carry, up, xs, ws);

        let p = new.open_step(b);
        let e = turn.entered(b, (p.index, lower), [&p.carry, &[], &p.xs, &[]]);
        let args = e.step_args(&turn, self, b);
        let mut next = self.splice(b, i, &turn.step_fixed, &args)?;
        let mut ends = Vec::new();
        if let Some(back) = &turn.back {
            let mut args = e.back_args(&turn, self, b, true);
            args.extend(e.alpha.iter().chain(&e.z_cts));
            let out = self.splice(b, i, &back.by_up, &args)?;
            let (alpha, w) = out.split_at(turn.up.linear.len());
            next.extend(alpha);
            ends = w.to_vec();
        }
        new.close_step(b, &next, &ends);

        let p = new.open_back(b);
        let e = turn.entered(b, (p.index, lower), [&p.carry, &p.up, &p.xs, &p.ws]);
        let mut next = Vec::new();
        if let Some(back) = &turn.back {
            let args = e.back_args(&turn, self, b, false);
            next = self.splice(b, i, &back.fixed, &args)?;
        }
        let mut args = e.step_args(&turn, self, b);
        args.extend(e.gamma.iter().chain(&e.y_cts));
        let mut sums = Sums::new(&turn, &e.read);
        let out = self.splice(b, i, &turn.by_carry, &args)?;
        sums.add(b, &turn, &turn.step_captures, &out);
        if let Some(back) = &turn.back {
            let mut args = e.back_args(&turn, self, b, false);
            args.extend(e.alpha.iter().chain(&e.z_cts));
            let out = self.splice(b, i, &back.by_carry, &args)?;
            sums.add(b, &turn, &back.captures, &out);
        }
        for (&k, sum) in turn.carry.linear.iter().zip(&sums.carry) {
            next.push(sum.unwrap_or_else(|| zeros(b, f.ty(f.inst_results(i)[k]))));
        }
        next.extend(sums.read.iter().flatten());
        let mut ends = Vec::new();
        for (&k, sum) in turn.xs.linear.iter().zip(&sums.xs) {
            let ty = element(f.ty(f.args(i)[roles.xs_args().start + k]));
            ends.push(sum.unwrap_or_else(|| zeros(b, &ty)));
        }
        new.close_back(b, &next, &ends);
        let placed = new.place(b);
        let out = b.func().inst_results(placed).to_vec();
        self.hand_out(b, i, &turn, &out);
        Ok(())
    }

    /// Adds the results of a loop turned around to the cotangents that they are.
    fn hand_out(&mut self, b: &mut Builder, i: Inst, turn: &Turn, out: &[Value]) {
        let (args, roles) = (self.f.args(i), turn.roles);
        let mut rest = out.iter().copied().skip(turn.carry.fixed.len());
        let place = |from: usize, places: &[usize]| {
            places.iter().map(|k| args[from + k]).collect::<Vec<_>>()
        };
        let mut to = place(roles.up_args().start, &turn.up.linear);
        for v in std::mem::take(&mut to) {
            let ct = rest.next();
            self.add(b, v, ct);
        }
        let mut rest = rest.skip(turn.up.fixed.len());
        to.extend(place(roles.carry_args().start, &turn.carry.linear));
        to.extend(&turn.read);
        to.extend(place(roles.ws_args().start, &turn.ws.linear));
        to.extend(place(roles.xs_args().start, &turn.xs.linear));
        for v in to {
            let ct = rest.next();
            self.add(b, v, ct);
        }
    }

    /// The number of steps as an operand, where it is no extent.
    fn trips(&mut self, b: &mut Builder, i: Inst, roles: &LoopRoles) -> Vec<Value> {
        let args = &self.f.args(i)[..roles.lead];
        let lead: Vec<Value> = args.iter().map(|&v| self.fixed.get(b, v)).collect();
        match lead[..] {
            [from, to] => {
                let number = TensorType::scalar(DType::I64);
                let mut long = |v: Value| match b.ty(v).dtype {
                    DType::I64 => v,
                    _ => b.op_as(Op::ConvertElementType, &[v], Attrs::none(), &number),
                };
                let (from, to) = (long(from), long(to));
                vec![b.op_as(Op::Sub, &[to, from], Attrs::none(), &number)]
            }
            _ => lead,
        }
    }
}

/// Places by whether what is there is linear.
struct Split {
    fixed: Vec<usize>,
    linear: Vec<usize>,
}

impl Split {
    fn new(values: &[Value], linear: impl Fn(Value) -> bool) -> Split {
        let (linear, fixed) = (0..values.len()).partition(|&k| linear(values[k]));
        Split { fixed, linear }
    }
}

/// The second region, turned around.
struct Back {
    captures: Vec<Value>,
    /// What it does to values that are fixed.
    fixed: Function,
    /// The cotangents of what is handed back and of what is scanned on the way back.
    by_up: Function,
    /// The cotangents of captures, carries and what both regions scan.
    by_carry: Function,
}

/// A loop with linear parts, taken apart.
struct Turn {
    roles: LoopRoles,
    carry: Split,
    up: Split,
    xs: Split,
    ws: Split,
    /// Stacks that have a cotangent.
    ys: Vec<usize>,
    zs: Vec<usize>,
    /// Linear values around the loop that it reads.
    read: Vec<Value>,
    step_captures: Vec<Value>,
    step_fixed: Function,
    by_carry: Function,
    back: Option<Back>,
}

impl Turn {
    fn new(pass: &Transpose<'_>, i: Inst, cts: &[Option<Value>]) -> Result<Turn, Diagnostic> {
        let f = pass.f;
        let roles = LoopRoles::at(f, i);
        let lin = |v: Value| pass.is_linear(v);
        let step = f.inst(i).regions[0];
        let down = roles.step(f, step);
        let carry = Split::new(&down.carry, lin);
        let xs = Split::new(&down.xs, lin);
        let given = |places: std::ops::Range<usize>| -> Vec<usize> {
            let start = places.start;
            places.filter(|&k| cts[k].is_some()).map(|k| k - start).collect()
        };
        let (ys, zs) = (given(roles.ys_results()), given(roles.zs_results()));
        let outer = outline(f, step);
        let mut read: Vec<Value> = outer.captures.iter().copied().filter(|&v| lin(v)).collect();

        let slot = |linear: bool| if linear { Slot::Linear } else { Slot::Fixed };
        let slots = |values: &[Value]| values.iter().map(|&v| slot(lin(v))).collect::<Vec<_>>();
        let params = |e: &Entered| [e.carry.as_slice(), &e.xs].concat();
        let mut step_slots = slots(&outer.captures);
        step_slots.extend(down.index.map(|_| Slot::Fixed));
        step_slots.extend(slots(&params(&down)));
        let dropped: Vec<Slot> =
            step_slots.iter().map(|s| if *s == Slot::Linear { Slot::Zero } else { *s }).collect();
        let step_fixed = arranged(&outer.func, &dropped, &carry.fixed)?;
        let keep: Vec<usize> =
            carry.linear.iter().copied().chain(ys.iter().map(|k| roles.carry + k)).collect();
        let by_carry = pass.turned(&outer.func, &step_slots, &keep)?;

        let none = || Split { fixed: Vec::new(), linear: Vec::new() };
        let (mut up, mut ws, mut back) = (none(), none(), None);
        if let Some(&region) = f.inst(i).regions.get(1) {
            let e = roles.back(f, region);
            (up, ws) = (Split::new(&e.up, lin), Split::new(&e.ws, lin));
            let outer = outline(f, region);
            for &v in outer.captures.iter().filter(|v| lin(**v)) {
                if !read.contains(&v) {
                    read.push(v);
                }
            }
            // In the order of the parameters, with whether each is of the way back.
            let mut all: Vec<(Slot, bool)> = Vec::new();
            let mut push = |values: &[Value], own: bool| {
                all.extend(slots(values).into_iter().map(|s| (s, own)));
            };
            push(&outer.captures, false);
            push(&e.index.map_or(Vec::new(), |v| vec![v]), false);
            push(&e.carry, false);
            push(&e.up, true);
            push(&e.xs, false);
            push(&e.ws, true);
            let dropped: Vec<Slot> =
                all.iter().map(|(s, _)| if *s == Slot::Linear { Slot::Zero } else { *s }).collect();
            let keep: Vec<usize> =
                up.linear.iter().copied().chain(zs.iter().map(|k| roles.up + k)).collect();
            let slots: Vec<Slot> = all.iter().map(|(s, _)| *s).collect();
            let turned = pass.turned(&outer.func, &slots, &keep)?;
            let of_back: Vec<bool> =
                all.iter().filter(|(s, _)| *s == Slot::Linear).map(|(_, own)| *own).collect();
            let (own, others): (Vec<usize>, Vec<usize>) =
                (0..of_back.len()).partition(|&k| of_back[k]);
            let every = vec![Slot::Fixed; turned.params().len()];
            let by_up = arranged(&turned, &every, &own)?;
            // What is handed back is not there on the way forward.
            let mut live = Liveness::new(&by_up, false);
            by_up.results().iter().for_each(|&v| {
                live.need(v);
            });
            live.region(by_up.body());
            let lead = outer.captures.iter().filter(|v| !lin(**v)).count()
                + usize::from(e.index.is_some())
                + carry.fixed.len();
            let handed = &by_up.params()[lead..lead + up.fixed.len()];
            if handed.iter().any(|&p| live.contains(p)) {
                return Err(pass.not_linear(i));
            }
            back = Some(Back {
                fixed: arranged(&outer.func, &dropped, &up.fixed)?,
                by_carry: arranged(&turned, &every, &others)?,
                captures: outer.captures,
                by_up,
            });
        }
        let step_captures = outer.captures;
        Ok(Turn {
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

    fn attrs(&self, f: &Function, i: Inst) -> Attrs {
        Attrs::none().with("reverse", Attr::Bool(f.attrs(i).flag("reverse")))
    }

    /// The parameters of a region of the loop turned around, by what they are.
    fn entered(
        &self,
        b: &mut Builder,
        (index, lower): (Option<Value>, Option<Value>),
        [carry, up, xs, ws]: [&[Value]; 4],
    ) -> Here {
        let index = match (index, lower) {
            (Some(k), Some(lower)) => {
                let ty = b.ty(lower).clone();
                let k = match ty.dtype {
                    DType::I64 => k,
                    _ => b.op_as(Op::ConvertElementType, &[k], Attrs::none(), &ty),
                };
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
        Here {
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
struct Here {
    index: Option<Value>,
    /// Fixed carries.
    c: Vec<Value>,
    /// Cotangents of what is handed back, which go forward.
    alpha: Vec<Value>,
    /// Fixed values that are handed back.
    a: Vec<Value>,
    /// Cotangents of the carries.
    gamma: Vec<Value>,
    /// Cotangents of what the loop reads, summed so far.
    read: Vec<Value>,
    x: Vec<Value>,
    w: Vec<Value>,
    z_cts: Vec<Value>,
    y_cts: Vec<Value>,
}

impl Here {
    /// The fixed operands of the first region's functions.
    fn step_args(&self, turn: &Turn, pass: &mut Transpose<'_>, b: &mut Builder) -> Vec<Value> {
        let mut args = pass.fixed_of(b, &turn.step_captures);
        args.extend(self.index);
        args.extend(self.c.iter().chain(&self.x));
        args
    }

    /// The fixed operands of the second region's functions; on the way forward nothing is handed back yet.
    fn back_args(
        &self,
        turn: &Turn,
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

/// Sums of the cotangents that both regions give.
struct Sums {
    carry: Vec<Option<Value>>,
    xs: Vec<Option<Value>>,
    read: Vec<Option<Value>>,
}

impl Sums {
    fn new(turn: &Turn, read: &[Value]) -> Sums {
        Sums {
            carry: vec![None; turn.carry.linear.len()],
            xs: vec![None; turn.xs.linear.len()],
            read: read.iter().map(|&v| Some(v)).collect(),
        }
    }

    /// Adds what a region gives: cotangents of linear captures, carries and scanned elements.
    fn add(&mut self, b: &mut Builder, turn: &Turn, captures: &[Value], out: &[Value]) {
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
