//! Implicit differentiation: a function whose results are a root of a residual gets a `custom_jvp`.
//!
//! Where `F(x(a), a) = 0`, the implicit function theorem says `x' = -(dF/dx)^-1 (dF/da) a'`. The rule that
//! is written here calls the function for `x`, so the derivative does not go through what it computes `x` by, and
//! a later derivative finds the rule again. The inverse is a function with a rule too,
//! `(J^-1)' = -J^-1 J' J^-1`; for the rest the rule is made of instructions that have derivatives and
//! transposes. So every order and mode follows from what there is for `custom_jvp`, and a batch has a Jacobian
//! for each of its elements.

use crate::forward::unwritten;
use crate::vmap::Callees;
use crate::{jacobian, jvp};
use adfuse_ir::control::{Follow, reach};
use adfuse_ir::op::Body;
use adfuse_ir::rewrite::{dce, inline_keeping_rules, splice};
use adfuse_ir::text::parse;
use adfuse_ir::{
    At, Attr, Attrs, Builder, CustomRule, DType, Diagnostic, Dim, Function, Kind, Literal, Module,
    Op, Phase, TensorType, Value,
};
use cranelift_entity::EntitySet;

/// The module with a `custom_jvp` for every `custom_root`. A rule that cannot be written stays as it is: the
/// derivative that needs it says why ([`explained`]), and others do not care.
pub(crate) fn with_root_rules(module: Module) -> Module {
    let mut roots: Vec<(usize, String)> = Vec::new();
    for f in module.funcs.values() {
        if let Some(residual) = residual_of(&module, f) {
            let needed = module.reached(residual);
            roots.push((needed.funcs.values().filter(|g| is_root(g)).count(), f.name.clone()));
        }
    }
    // What a residual needs comes first: it needs fewer roots than what needs it, since there are no circles.
    roots.sort();
    roots.into_iter().fold(module, |module, (_, name)| {
        let written = module.find(&name).map(|f| rule(&module, f));
        let Some(Ok((rule, others))) = written else { return module };
        let mut out = Module::default();
        for f in module.funcs.values() {
            let mut f = f.clone();
            if f.name == name {
                f.rule = Some(CustomRule::Jvp(rule.name.clone()));
            }
            out.funcs.push(f);
        }
        for f in std::iter::once(rule).chain(others) {
            out.funcs.push(f);
        }
        out
    })
}

/// The error of a transformation, with why a rule that it needs could not be written.
pub(crate) fn explained(module: &Module, d: Diagnostic) -> Diagnostic {
    let needed =
        |f: &&Function| is_root(f) && unwritten(&f.name, At::default()).message == d.message;
    let why = module.funcs.values().find(needed).and_then(|f| rule(module, f).err());
    match why {
        Some(why) => {
            Diagnostic { message: format!("{}: {}", d.message, why.message), at: d.at, ..why }
        }
        None => d,
    }
}

fn is_root(f: &Function) -> bool {
    matches!(f.rule, Some(CustomRule::Root(_)))
}

fn residual_of<'m>(module: &'m Module, f: &Function) -> Option<&'m Function> {
    match &f.rule {
        Some(CustomRule::Root(name)) => module.find(name),
        _ => None,
    }
}

/// The types of the values at which a function is differentiated.
fn floats(types: Vec<TensorType>) -> Vec<TensorType> {
    types.into_iter().filter(|t| t.dtype.is_float()).collect()
}

/// A rule `(a.., a'..) -> (x.., x'..)`, and the functions that it calls and the module does not have.
fn rule(module: &Module, f: &Function) -> Result<(Function, Vec<Function>), Diagnostic> {
    let residual = prepared_residual(module, f)?;
    let unknowns = floats(f.result_types());
    let mut others = Callees::default();
    let mut b = Builder::new(fresh(module, &format!("{}.jvp", f.name)));
    b.func_mut().symbols = f.symbols.clone();
    let args: Vec<Value> =
        f.params().iter().map(|&p| b.param(f.ty(p).clone(), f.name_of(p))).collect();
    let moving: Vec<usize> = (0..args.len()).filter(|&k| b.ty(args[k]).dtype.is_float()).collect();
    let mut tangents = Vec::new();
    for &k in &moving {
        let name = f.name_of(f.params()[k]).map(|n| format!("{n}_t"));
        tangents.push(b.param(b.ty(args[k]).clone(), name.as_deref()));
    }
    let named = Attrs::none().with("func", Attr::Func(f.name.clone()));
    let results = b.inst(Op::Call, &args, named, Some(&f.result_types())).to_vec();
    let x: Vec<Value> = results.iter().copied().filter(|&v| b.ty(v).dtype.is_float()).collect();
    let point = [x.as_slice(), &args].concat();

    // F' = (dF/da) a', which x' has to make up for.
    let by_params: Vec<usize> = moving.iter().map(|k| x.len() + k).collect();
    let pushed = tangents_of(module, &residual, &by_params)?;
    let moved = place(module, &pushed, &[point.as_slice(), &tangents].concat(), &mut b)?;
    let solved = if is_diagonal(&residual, &unknowns) {
        let slope = tangents_of(module, &residual, &[0])?;
        let one = b.literal(&unknowns[0], Literal::one(unknowns[0].dtype));
        let slope = place(module, &slope, &[point.as_slice(), &[one]].concat(), &mut b)?;
        let negated = b.op_as(Op::Neg, &moved, Attrs::none(), &unknowns[0]);
        vec![b.op_as(Op::Div, &[negated, slope[0]], Attrs::none(), &unknowns[0])]
    } else {
        let wrt: Vec<usize> = (0..x.len()).collect();
        let jacobian = jacobian::forward(module, &residual, &wrt, &mut others)?;
        let blocks = place(module, &jacobian, &point, &mut b)?;
        dense(module, f, &mut b, (&blocks, &moved), &mut others)?
    };
    b.set_results(&[results, solved].concat());
    let mut rule = b.finish()?;
    dce(&mut rule);
    Ok((rule, others.made))
}

/// The residual in the symbols of the function whose root it tells: the types of `x..`, then of its parameters.
fn prepared_residual(module: &Module, f: &Function) -> Result<Function, Diagnostic> {
    let residual = residual_of(module, f).ok_or_else(|| {
        Diagnostic::new(whole(f), Kind::CustomRule, format!("@{} has no residual", f.name))
    })?;
    let mut b = Builder::new(residual.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let types = [floats(f.result_types()), f.param_types()].concat();
    let args: Vec<Value> = types.into_iter().map(|ty| b.param(ty, None)).collect();
    let results = if residual.rule.is_some() {
        let named = Attrs::none().with("func", Attr::Func(residual.name.clone()));
        b.inst(Op::Call, &args, named, Some(&floats(f.result_types()))).to_vec()
    } else {
        place(module, residual, &args, &mut b)?
    };
    b.set_results(&results);
    let mut residual = inline_keeping_rules(module, &b.finish()?, &|callee| callee.rule.is_none())?;
    // A residual that is a gradient has a backward pass. The rule has none: it reads all of the residual in one phase.
    let mut all = Vec::new();
    residual.walk(&mut |_, i| all.push(i));
    all.into_iter().for_each(|i| residual.set_phase(i, Phase::PRIMAL));
    Ok(residual)
}

/// The tangents of a function's results for tangents of the parameters at `wrt`, without its results.
fn tangents_of(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    let mut pushed = jvp::open(module, f, wrt)?;
    let tangents = pushed.results()[f.results().len()..].to_vec();
    jacobian::set_results(&mut pushed, tangents);
    Ok(pushed)
}

/// The results of a function, its instructions in place. None is a literal.
fn place(
    module: &Module,
    f: &Function,
    args: &[Value],
    b: &mut Builder,
) -> Result<Vec<Value>, Diagnostic> {
    let at = || whole(f);
    let out = splice(module, f, args, &|c| c.rule.is_none(), (&at, Phase::PRIMAL), b)?;
    Ok(out.into_iter().map(|v| b.materialize(v)).collect())
}

fn whole(f: &Function) -> At {
    At { func: Some(f.name.clone()), ..At::default() }
}

/// Whether every element of the residual depends on the unknown of its place alone, so that the slope along a
/// tangent of ones is the whole Jacobian: there is one number, or what depends on the unknown is elementwise.
fn is_diagonal(residual: &Function, unknowns: &[TensorType]) -> bool {
    let [unknown] = unknowns else { return false };
    if matches!(unknown.elements(), Some(0 | 1)) {
        return true;
    }
    let mut seeds = EntitySet::new();
    seeds.insert(residual.params()[0]);
    let moving = reach(residual, seeds, Follow::Uses);
    residual.body_insts().iter().all(|&i| {
        let same =
            || residual.inst_results(i).iter().all(|&v| residual.ty(v).shape == unknown.shape);
        !residual.reads(i, &|v| moving.contains(v))
            || matches!(residual.op(i).def().body, Body::Map(_)) && same()
    })
}

/// The solution `x'` of `J x' = -F'` by the inverse of the Jacobian, whose blocks are by residual, then by unknown.
fn dense(
    module: &Module,
    f: &Function,
    b: &mut Builder,
    (blocks, moved): (&[Value], &[Value]),
    others: &mut Callees,
) -> Result<Vec<Value>, Diagnostic> {
    let unknowns = floats(f.result_types());
    let first = unknowns[0].dtype;
    let same = unknowns.iter().all(|t| t.dtype == first);
    let dtype = if same { first.compute() } else { DType::F64 };
    let mut sizes = Vec::new();
    for ty in &unknowns {
        sizes.push(match ty.shape.as_slice() {
            [one] if unknowns.len() == 1 => *one,
            _ => ty.elements().map(Dim::Const).ok_or_else(|| unknown_extent(f, ty))?,
        });
    }
    let mut rows = Vec::new();
    for (line, &height) in blocks.chunks(unknowns.len()).zip(&sizes) {
        let mut row = Vec::new();
        for (&block, &width) in line.iter().zip(&sizes) {
            row.push(shaped(b, block, &TensorType::new(dtype, [height, width])));
        }
        rows.push(joined(b, &row, 1));
    }
    let jacobian = joined(b, &rows, 0);
    let mut sides = Vec::new();
    for (&v, &size) in moved.iter().zip(&sizes) {
        sides.push(shaped(b, v, &TensorType::new(dtype, [size])));
    }
    let side = joined(b, &sides, 0);
    let side = b.op(Op::Neg, &[side]);

    let square = b.ty(jacobian).clone();
    let inverse = inverse(module, f, &square)?;
    let named = Attrs::none().with("func", Attr::Func(inverse[0].name.clone()));
    others.made.extend(inverse);
    let inverse = b.inst(Op::Call, &[jacobian], named, Some(&[square]))[0];
    let product = Attrs::none()
        .with("contract", Attr::Pair([1].into_iter().collect(), [0].into_iter().collect()));
    let all = b.op_with(Op::DotGeneral, &[inverse, side], product);
    let parts = match sizes.as_slice() {
        [_] => vec![all],
        _ => {
            let known = sizes.iter().map(|d| d.known().unwrap_or(0) as i64);
            let attrs = Attrs::none().with_ints("sizes", known).with_int("axis", 0);
            b.inst(Op::Split, &[all], attrs, None).to_vec()
        }
    };
    Ok(parts.iter().zip(&unknowns).map(|(&v, ty)| shaped(b, v, ty)).collect())
}

fn unknown_extent(f: &Function, ty: &TensorType) -> Diagnostic {
    let m = format!("the Jacobian by a result of type {ty} needs constant extents");
    Diagnostic::new(whole(f), Kind::Unsupported, m)
}

/// The value in a shape with as many elements, and in an element type.
fn shaped(b: &mut Builder, v: Value, ty: &TensorType) -> Value {
    let own = b.ty(v).with_dtype(ty.dtype);
    let v = match b.ty(v) == &own {
        true => v,
        false => b.op_as(Op::ConvertElementType, &[v], Attrs::none(), &own),
    };
    if &own == ty { v } else { b.op_as(Op::Reshape, &[v], Attrs::none(), ty) }
}

fn joined(b: &mut Builder, parts: &[Value], axis: i64) -> Value {
    match parts {
        [one] => *one,
        parts => b.op_with(Op::Concatenate, parts, Attrs::none().with_int("axis", axis)),
    }
}

/// A name that no function of the module has.
fn fresh(module: &Module, wanted: &str) -> String {
    let mut name = wanted.to_string();
    let mut k = 1;
    while module.find(&name).is_some() {
        k += 1;
        name = format!("{wanted}{k}");
    }
    name
}

/// The inverse of a matrix by Gauss-Jordan elimination with partial pivoting, and its derivative. Rows and columns are
/// picked by masks, since the extent may be a symbol. A singular matrix has an inverse of infinities and NaN.
const INVERSE: &str = "
func @INVERSE SYMBOLS(%a: T[N,N]) -> T[N,N] custom_jvp(@INVERSE.jvp) {
  %row = iota {axis = 0} : i32[N,N]
  %column = iota {axis = 1} : i32[N,N]
  %number = iota {axis = 0} : i32[N]
  %diagonal = eq %row, %column : bool[N,N]
  %one = convert_element_type %diagonal : T[N,N]
  %left, %right = scan %a, %one, %number {carry = 2} : T[N,N], T[N,N] body(%u: T[N,N], %v: T[N,N], %k: i32[]) {
    %k.line = broadcast_in_dim %k {dims = []} : i32[N]
    %k.square = broadcast_in_dim %k {dims = []} : i32[N,N]
    %is.column = eq %column, %k.square : bool[N,N]
    %of.column = select_n %is.column, 0.0, %u : T[N,N]
    %pivots = reduce_sum %of.column {axes = [1]} : T[N]
    %sizes = abs %pivots : T[N]
    %left.over = ge %number, %k.line : bool[N]
    %candidates = select_n %left.over, -1.0, %sizes : T[N]
    %p = argmax %candidates {axis = 0} : i32[]
    %p.line = broadcast_in_dim %p {dims = []} : i32[N]
    %p.square = broadcast_in_dim %p {dims = []} : i32[N,N]
    %is.k = eq %row, %k.square : bool[N,N]
    %is.p = eq %row, %p.square : bool[N,N]
    %at.k = eq %number, %k.line : bool[N]
    %at.p = eq %number, %p.line : bool[N]
    %u.p.row = select_n %is.p, 0.0, %u : T[N,N]
    %u.p = reduce_sum %u.p.row {axes = [0]} : T[N]
    %u.k.row = select_n %is.k, 0.0, %u : T[N,N]
    %u.k = reduce_sum %u.k.row {axes = [0]} : T[N]
    %v.p.row = select_n %is.p, 0.0, %v : T[N,N]
    %v.p = reduce_sum %v.p.row {axes = [0]} : T[N]
    %v.k.row = select_n %is.k, 0.0, %v : T[N,N]
    %v.k = reduce_sum %v.k.row {axes = [0]} : T[N]
    %pivot.line = select_n %at.p, 0.0, %pivots : T[N]
    %pivot = reduce_sum %pivot.line {axes = [0]} : T[]
    %old.line = select_n %at.k, 0.0, %pivots : T[N]
    %old = reduce_sum %old.line {axes = [0]} : T[]
    %pivot.all = broadcast_in_dim %pivot {dims = []} : T[N]
    %old.all = broadcast_in_dim %old {dims = []} : T[N]
    %u.scaled = div %u.p, %pivot.all : T[N]
    %v.scaled = div %v.p, %pivot.all : T[N]
    %swapped = select_n %at.p, %pivots, %old.all : T[N]
    %factors = select_n %at.k, %swapped, 0.0 : T[N]
    %factor = broadcast_in_dim %factors {dims = [0]} : T[N,N]
    %u.k.all = broadcast_in_dim %u.k {dims = [1]} : T[N,N]
    %v.k.all = broadcast_in_dim %v.k {dims = [1]} : T[N,N]
    %u.scaled.all = broadcast_in_dim %u.scaled {dims = [1]} : T[N,N]
    %v.scaled.all = broadcast_in_dim %v.scaled {dims = [1]} : T[N,N]
    %u.swapped = select_n %is.p, %u, %u.k.all : T[N,N]
    %v.swapped = select_n %is.p, %v, %v.k.all : T[N,N]
    %u.less = mul %factor, %u.scaled.all : T[N,N]
    %v.less = mul %factor, %v.scaled.all : T[N,N]
    %u.cleared = sub %u.swapped, %u.less : T[N,N]
    %v.cleared = sub %v.swapped, %v.less : T[N,N]
    %u.next = select_n %is.k, %u.cleared, %u.scaled.all : T[N,N]
    %v.next = select_n %is.k, %v.cleared, %v.scaled.all : T[N,N]
    yield %u.next, %v.next
  }
  return %right
}

func @INVERSE.jvp SYMBOLS(%a: T[N,N], %a_t: T[N,N]) -> (T[N,N], T[N,N]) {
  %m = call %a {func = @INVERSE} : T[N,N]
  %0 = dot_general %m, %a_t {contract = [1] x [0]} : T[N,N]
  %1 = dot_general %0, %m {contract = [1] x [0]} : T[N,N]
  %2 = neg %1 : T[N,N]
  return %m, %2
}
";

/// The inverse of matrices of this type, as a function with its rule.
fn inverse(module: &Module, f: &Function, ty: &TensorType) -> Result<Vec<Function>, Diagnostic> {
    let extent = ty.shape[0].to_string();
    let symbols = match ty.shape[0] {
        Dim::Const(_) => String::new(),
        Dim::Sym(_) => format!("<{extent}>"),
    };
    let name = fresh(module, &format!("{}.inverse", f.name));
    let text = INVERSE
        .replace("@INVERSE", &format!("@{name}"))
        .replace(" SYMBOLS", &symbols)
        .replace("[N", &format!("[{extent}"))
        .replace(",N]", &format!(",{extent}]"))
        .replace("T[", &format!("{}[", ty.dtype));
    let made = parse(&text).map_err(|mut errors| {
        let why = errors.pop().map_or(String::new(), |d| d.to_string());
        Diagnostic::new(whole(f), Kind::Internal, format!("the inverse of {ty}: {why}"))
    })?;
    Ok(made.funcs.values().cloned().collect())
}
