//! Loops that count are raised: a `while` whose condition compares a counter becomes a `fori`, and one that reads
//! slices of tensors, and writes slices of others, at the place of its counter becomes a `scan`.

use crate::counted::{CountedLoop, LoopSlices};
use adfuse_ir::rewrite::{Copier, dce};
use adfuse_ir::{
    Attr, Attrs, Builder, DType, Diagnostic, Function, Inst, Literal, Op, Region, TensorType, Value,
};

type RaiseResult = Result<(), Diagnostic>;

/// The function with its counting loops raised, and what they no longer need removed.
pub(crate) fn raise(f: &Function) -> Result<Function, Diagnostic> {
    let mut found = false;
    f.walk(&mut |f, i| found |= f.op(i) == Op::While);
    if !found {
        return Ok(f.clone());
    }
    let mut raised = Copier::new(f).rebuild(&mut each)?;
    dce(&mut raised);
    Ok(raised)
}

fn each(copier: &mut Copier<'_>, b: &mut Builder, i: Inst) -> RaiseResult {
    let f = copier.from();
    if f.op(i) == Op::While
        && let Some(counted) = CountedLoop::of(f, i)
    {
        b.follow(f, i);
        return match counted.slices(f) {
            Some(slices) => scan(copier, b, i, (&counted, &slices)),
            None => fori(copier, b, i, &counted),
        };
    }
    copier.inst_with(b, i, &mut each).map(|_| ())
}

/// Copies what a loop's body computes.
fn body(
    copier: &mut Copier<'_>,
    b: &mut Builder,
    region: Region,
    skip: &dyn Fn(Inst) -> bool,
) -> RaiseResult {
    for &i in &copier.from().region(region).insts {
        if !skip(i) {
            each(copier, b, i)?;
        }
    }
    Ok(())
}

fn fori(copier: &mut Copier<'_>, b: &mut Builder, i: Inst, counted: &CountedLoop) -> RaiseResult {
    let f = copier.from();
    let region = f.inst(i).regions[1];
    let old_args: Vec<Value> = f.args(i).to_vec();
    let args: Vec<Value> = old_args.iter().map(|&v| copier.get(b, v)).collect();
    let lower = args[counted.counter];
    let upper = match counted.bound_carry {
        Some(k) => args[k],
        None => copier.get(b, counted.bound),
    };
    let carried: Vec<usize> = (0..args.len()).filter(|&k| counted.carries(k)).collect();
    let params = f.region(region).params.clone();
    let made = b.open_region();
    let place = b.param(b.ty(lower).clone(), f.name_of(params[counted.counter]));
    for k in 0..args.len() {
        if counted.is_counter(k) {
            copier.set(params[k], place);
        } else if counted.invariant[k] {
            copier.set(params[k], args[k]);
        }
    }
    carried.iter().for_each(|&k| copier.param(b, params[k]));
    body(copier, b, region, &|_| false)?;
    let ends = f.region(region).results.clone();
    let next: Vec<Value> = carried.iter().map(|&k| copier.get(b, ends[k])).collect();
    b.close_region(&next);
    let types: Vec<TensorType> = carried.iter().map(|&k| b.ty(args[k]).clone()).collect();
    let mut operands = vec![lower, upper];
    operands.extend(carried.iter().map(|&k| args[k]));
    b.follow(f, i);
    let inst = b.place(Op::Fori, &operands, Attrs::none(), &types, &[made]);
    let values = b.func().inst_results(inst).to_vec();
    // A loop without steps leaves the counter where it began.
    let last = match (b.func().literal(lower), b.func().literal(upper)) {
        (Some(from), Some(to)) => {
            let ty = b.ty(lower).clone();
            b.literal(&ty, Literal::from_i64(ty.dtype, from.to_i64().max(to.to_i64())))
        }
        _ => b.op(Op::Max, &[lower, upper]),
    };
    let result = |k: usize| match carried.iter().position(|&c| c == k) {
        Some(at) => values[at],
        None if counted.is_counter(k) => last,
        None => args[k],
    };
    let results: Vec<Value> = (0..args.len()).map(result).collect();
    copier.stand_for(b, f.inst_results(i), &results);
    Ok(())
}

/// The operands that a scan reads elements of: whole tensors, and the places, where its steps read those.
fn scanned(
    copier: &mut Copier<'_>,
    b: &mut Builder,
    (counted, slices): (&CountedLoop, &LoopSlices),
    counter: DType,
) -> Vec<Value> {
    let f = copier.from();
    let reversed =
        |b: &mut Builder, v: Value| b.op_with(Op::Rev, &[v], Attrs::none().with_ints("axes", [0]));
    let mut operands = Vec::new();
    for read in &slices.reads {
        let whole = copier.get(b, f.args(read.inst)[0]);
        let mut whole = b.materialize(whole);
        if read.direction.is_backward() != slices.reverse() {
            whole = reversed(b, whole);
        }
        operands.push(whole);
    }
    if slices.reads_counter {
        let ty = TensorType::of(counter, &[counted.trips]);
        let places = b.op_as(Op::Iota, &[], Attrs::none().with_int("axis", 0), &ty);
        // The counter goes up, whichever way elements are read.
        operands.push(if slices.reverse() { reversed(b, places) } else { places });
    }
    operands
}

/// The body of a scan, which is entered with carries, then elements.
fn scan_body(
    copier: &mut Copier<'_>,
    b: &mut Builder,
    region: Region,
    (counted, slices): (&CountedLoop, &LoopSlices),
    (carried, counter): (&[usize], DType),
) -> Result<Region, Diagnostic> {
    let f = copier.from();
    let params = f.region(region).params.clone();
    let made = b.open_region();
    carried.iter().for_each(|&k| copier.param(b, params[k]));
    for read in &slices.reads {
        let slice = f.inst_results(read.inst)[0];
        let ty = f.ty(slice).clone();
        let element = b.param(TensorType::new(ty.dtype, ty.shape[1..].iter().copied()), None);
        let value = b.op_as(Op::Reshape, &[element], Attrs::none(), &ty);
        copier.set(slice, value);
    }
    let place = match slices.reads_counter {
        true => b.param(TensorType::scalar(counter), f.name_of(params[counted.counter])),
        // Dead instructions alone read it.
        false => b.literal(&TensorType::scalar(counter), Literal::zero(counter)),
    };
    for k in (0..params.len()).filter(|&k| counted.is_counter(k)) {
        copier.set(params[k], place);
    }
    body(copier, b, region, &|i| slices.replaces(i) || !slices.live(i))?;
    let ends = f.region(region).results.clone();
    let mut next: Vec<Value> = carried.iter().map(|&k| copier.get(b, ends[k])).collect();
    for write in &slices.writes {
        let update = copier.get(b, f.args(write.inst)[1]);
        let ty = b.ty(update).clone();
        let element = TensorType::new(ty.dtype, ty.shape[1..].iter().copied());
        let update = b.materialize(update);
        next.push(b.op_as(Op::Reshape, &[update], Attrs::none(), &element));
    }
    b.close_region(&next);
    Ok(made)
}

fn scan(
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
    (counted, slices): (&CountedLoop, &LoopSlices),
) -> RaiseResult {
    let f = copier.from();
    let region = f.inst(i).regions[1];
    let args: Vec<Value> = f.args(i).iter().map(|&v| copier.get(b, v)).collect();
    let params = f.region(region).params.clone();
    let carried: Vec<usize> =
        (0..args.len()).filter(|&k| counted.carries(k) && slices.stack_of(k).is_none()).collect();
    for k in (0..args.len()).filter(|&k| counted.invariant[k]) {
        copier.set(params[k], args[k]);
    }
    let counter = b.ty(args[counted.counter]).dtype;
    let mut operands: Vec<Value> = carried.iter().map(|&k| args[k]).collect();
    operands.extend(scanned(copier, b, (counted, slices), counter));
    let made = scan_body(copier, b, region, (counted, slices), (&carried, counter))?;
    let mut types: Vec<TensorType> = carried.iter().map(|&k| b.ty(args[k]).clone()).collect();
    types.extend(slices.writes.iter().map(|w| f.ty(params[w.carry]).clone()));
    let attrs = Attrs::none()
        .with_int("carry", carried.len() as i64)
        .with_int("length", 0)
        .with("reverse", Attr::Bool(slices.reverse()))
        .with_int("unroll", 1);
    b.follow(f, i);
    let inst = b.place(Op::Scan, &operands, attrs, &types, &[made]);
    let mut values = b.func().inst_results(inst).to_vec();
    for (write, value) in slices.writes.iter().zip(&mut values[carried.len()..]) {
        if write.direction.is_backward() != slices.reverse() {
            *value = b.op_with(Op::Rev, &[*value], Attrs::none().with_ints("axes", [0]));
        }
    }
    let last = Literal::from_i64(counter, counted.trips as i64);
    let end = b.literal(&TensorType::scalar(counter), last);
    let result = |k: usize| match (carried.iter().position(|&c| c == k), slices.stack_of(k)) {
        (Some(at), _) => values[at],
        (_, Some(at)) => values[carried.len() + at],
        _ if counted.is_counter(k) => end,
        _ => args[k],
    };
    let results: Vec<Value> = (0..args.len()).map(result).collect();
    copier.stand_for(b, f.inst_results(i), &results);
    Ok(())
}
