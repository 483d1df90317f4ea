//! Trees to functions: names become values, types are inferred and compared with those written.
//!
//! A value whose definition is in error is poisoned: what uses it is not checked and not reported.

use super::ast::*;
use super::attrs::resolve_attrs;
use super::checkpoint::set_policy;
use super::errors::{Errors, mean, shown};
use super::op_names::OpNames;
use super::scope::{Binding, Scope};
use super::{hints, misfit};
use crate::attrs::{AttrKind, AttrSpec, Attrs};
use crate::builder::{Builder, Operand};
use crate::diag::{Kind, Span, did_you_mean};
use crate::dtype::DType;
use crate::entity::{Inst, Region, Value};
use crate::function::Function;
use crate::op::{Op, signature};
use crate::types::{Dim, Symbol, TensorType};
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

type Types = SmallVec<[TensorType; 1]>;

/// Makes one function of its tree.
pub(super) struct Resolver<'s, 'a> {
    source: &'s str,
    ops: &'a OpNames,
    errors: &'a mut Errors,
    builder: Builder,
    scope: Scope<'s>,
    symbols: HashMap<&'s str, Symbol>,
    /// Unknown names and symbols, each of which is reported once.
    reported: HashSet<&'s str>,
    /// Every value name the function defines anywhere; made when an unknown name is met.
    defined: Option<HashSet<&'s str>>,
    /// Something was left out, for an error that is reported.
    poisoned: bool,
}

impl<'s, 'a> Resolver<'s, 'a> {
    /// Starts a function of this name.
    pub(super) fn new(
        source: &'s str,
        name: &str,
        ops: &'a OpNames,
        errors: &'a mut Errors,
    ) -> Resolver<'s, 'a> {
        Resolver {
            source,
            ops,
            errors,
            builder: Builder::new(name),
            scope: Scope::default(),
            symbols: HashMap::new(),
            reported: HashSet::new(),
            defined: None,
            poisoned: false,
        }
    }

    /// The function, or nothing where there are errors.
    pub(super) fn function(mut self, ast: &FuncAst) -> Option<Function> {
        let before = self.errors.count();
        for &symbol in &ast.symbols {
            self.symbol(symbol);
        }
        self.params(&ast.params);
        let results: Option<Types> = self.types(&ast.results);
        let name = |span: Span| self.text(span)[1..].to_string();
        self.builder.func_mut().rule = ast.rule.as_ref().map(|rule| rule.named(name));
        let values = self.block(&ast.body, &ast.body, Slots::Checked(results.as_deref()));
        match values {
            Some(values) => {
                self.builder.set_results(&values);
                set_policy(ast.checkpoint.as_ref(), &mut self.builder, self.errors);
            }
            None => self.poisoned = true,
        }
        self.done(before)
    }

    /// The function of one instruction that returns its results.
    pub(super) fn example(mut self, params: &[ParamAst], inst: &InstAst) -> Option<Function> {
        let before = self.errors.count();
        self.params(params);
        match self.make(inst, &BlockAst::default()) {
            Some(made) => {
                let results = self.builder.func().inst_results(made).to_vec();
                self.builder.set_results(&results);
            }
            None => self.poisoned = true,
        }
        self.done(before)
    }

    fn done(self, errors_before: usize) -> Option<Function> {
        if self.errors.count() > errors_before || self.errors.full() {
            return None;
        }
        if self.poisoned && self.errors.count() == 0 {
            // Never a function with a gap: whatever is left out must have been reported.
            let m = "something was left out of the function without an error";
            self.errors.add(Span::default(), Kind::Internal, m);
            return None;
        }
        match self.builder.finish() {
            Ok(func) => Some(func),
            Err(e) => {
                self.errors.add(e.at.span.unwrap_or_default(), e.kind, e.message);
                None
            }
        }
    }

    fn text(&self, span: Span) -> &'s str {
        self.source.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    fn symbol(&mut self, span: Span) {
        let name = self.text(span);
        let Some(symbol) = Symbol::new(name) else {
            let m = format!("{} is no symbol: 1 to 15 letters, digits and `_`", shown(name));
            self.errors.add(span, Kind::Syntax, m);
            self.reported.insert(name);
            return;
        };
        if self.symbols.insert(name, symbol).is_some() {
            let m = format!("symbol `{name}` is declared twice");
            self.errors.add(span, Kind::Redefinition, m);
        } else {
            self.builder.func_mut().symbols.push(symbol);
        }
    }

    fn params(&mut self, params: &[ParamAst]) {
        for param in params {
            let name = self.text(param.name);
            let binding = match self.ty(&param.ty) {
                Some(ty) => Binding::Value(self.builder.param(ty, kept(name))),
                None => Binding::Poison,
            };
            self.define(name, param.name, binding);
        }
    }

    /// Defines a name, or reports that it is visible already.
    fn define(&mut self, name: &'s str, span: Span, binding: Binding) -> bool {
        let fresh = self.scope.define(name, binding);
        if !fresh {
            let m = format!("`{name}` is defined already");
            self.errors.add(span, Kind::Redefinition, m);
        }
        fresh
    }

    fn types<C: FromIterator<TensorType>>(&mut self, types: &[TypeAst]) -> Option<C> {
        // All of them, so that each error is reported.
        let all: SmallVec<[Option<TensorType>; 2]> = types.iter().map(|t| self.ty(t)).collect();
        all.into_iter().collect()
    }

    fn ty(&mut self, ast: &TypeAst) -> Option<TensorType> {
        let name = self.text(ast.dtype);
        let Ok(dtype) = name.parse::<DType>() else {
            let near = hints::foreign_type(name)
                .or_else(|| did_you_mean(name, DType::ALL.iter().map(|d| d.name())));
            let all = || DType::ALL.map(|d| d.name()).join(" ");
            let hint = mean(near).or_else(|| Some(format!("element types are {}", all())));
            let m = format!("no element type {}", shown(name));
            self.errors.add_hint(ast.dtype, Kind::DType, m, hint);
            return None;
        };
        let Some(dims) = &ast.dims else {
            if dtype == DType::Token {
                return Some(TensorType::token());
            }
            let hint = Some(format!("a scalar is `{dtype}[]`"));
            let m = format!("`{dtype}` without extents");
            self.errors.add_hint(ast.span, Kind::Syntax, m, hint);
            return None;
        };
        let mut out = TensorType::scalar(dtype);
        for &dim in dims {
            out.shape.push(match dim {
                DimAst::Const(n) => Dim::Const(n),
                DimAst::Sym(span) => Dim::Sym(self.known_symbol(span)?),
            });
        }
        match out.excess() {
            Some(why) => {
                let kind = if dtype == DType::Token { Kind::Shape } else { Kind::Limit };
                self.errors.add(ast.span, kind, why);
                None
            }
            None => Some(out),
        }
    }

    fn known_symbol(&mut self, span: Span) -> Option<Symbol> {
        let name = self.text(span);
        let known = self.symbols.get(name).copied();
        if known.is_none() && self.reported.insert(name) {
            let declared: Vec<&str> =
                self.builder.func().symbols.iter().map(Symbol::as_str).collect();
            let func = &self.builder.func().name;
            let hint = mean(did_you_mean(name, declared)).unwrap_or_else(|| {
                format!("symbols are declared after the function's name, as `@{func}<{name}>`")
            });
            let m = format!("symbol {} is not declared", shown(name));
            self.errors.add_hint(span, Kind::UnknownName, m, Some(hint));
        }
        known
    }

    /// The instructions of a block of `body`, then the values it ends with.
    fn block(&mut self, ast: &BlockAst, body: &BlockAst, slots: Slots<'_>) -> Option<Vec<Value>> {
        for inst in &ast.insts {
            if self.errors.full() {
                return None;
            }
            self.inst(inst, body);
        }
        self.end(ast.end.as_ref()?, body, slots)
    }

    fn end(&mut self, end: &EndAst, body: &BlockAst, slots: Slots<'_>) -> Option<Vec<Value>> {
        let (types, word) = match slots {
            Slots::Checked(types) => (types, "return"),
            Slots::Literals(types) => (types, "yield"),
        };
        if let (Some(types), Slots::Checked(_)) = (types, slots)
            && types.len() != end.values.len()
        {
            let (found, declared) = (end.values.len(), types.len());
            let m = format!("`return` has {found} values, the function declares {declared}");
            self.errors.add(end.span, Kind::Arity, m);
            return None;
        }
        let mut out = Vec::with_capacity(end.values.len());
        let mut complete = true;
        for (k, operand) in end.values.iter().enumerate() {
            let made = match self.operand(operand, body) {
                None => None,
                Some(Operand::Value(v)) => self.result(k, v, operand.span(), slots),
                Some(Operand::Number(n)) => match types.map(|t| t.get(k)) {
                    None => None,
                    Some(Some(ty)) => match n.typed(ty.dtype) {
                        Some(l) => Some(self.builder.literal(ty, l)),
                        None => {
                            let m = format!("result {k}: {n} is no {}", ty.dtype);
                            self.errors.add(operand.span(), Kind::Literal, m);
                            None
                        }
                    },
                    Some(None) => {
                        let m = format!("`{word}`: nothing gives value {k} a type");
                        self.errors.add(operand.span(), Kind::Literal, m);
                        None
                    }
                },
            };
            complete &= made.is_some();
            out.extend(made);
        }
        complete.then_some(out)
    }

    /// Result `k` of the function, if it has the declared type.
    fn result(&mut self, k: usize, v: Value, span: Span, slots: Slots<'_>) -> Option<Value> {
        let Slots::Checked(Some(types)) = slots else { return Some(v) };
        let (expected, found) = (types.get(k)?, self.builder.ty(v));
        if expected == found {
            return Some(v);
        }
        let kind = if expected.dtype == found.dtype { Kind::Shape } else { Kind::DType };
        let m = format!("result {k}: the function declares {expected}, found {found}");
        self.errors.add(span, kind, m);
        None
    }

    fn inst(&mut self, ast: &InstAst, body: &BlockAst) {
        // Pending while it is read, so that neither it nor its regions take or use its names.
        let mut fresh = SmallVec::<[bool; 4]>::new();
        for &span in &ast.results {
            fresh.push(self.define(self.text(span), span, Binding::Pending));
        }
        let made = if ast.broken { None } else { self.make(ast, body) };
        self.poisoned |= made.is_none();
        let values: SmallVec<[Value; 4]> = made
            .map(|i| self.builder.func().inst_results(i).iter().copied().collect())
            .unwrap_or_default();
        if made.is_some() && values.len() != ast.results.len() {
            let (op, n) = (self.text(ast.op), values.len());
            let m = format!("`{op}` has {n} results here, {} are named", ast.results.len());
            self.errors.add(ast.span, Kind::Arity, m);
        }
        for (k, &span) in ast.results.iter().enumerate().filter(|&(k, _)| fresh[k]) {
            let name = self.text(span);
            let binding = match values.get(k) {
                Some(&v) => {
                    self.builder.func_mut().set_name(v, kept(name));
                    Binding::Value(v)
                }
                None => Binding::Poison,
            };
            self.scope.set(name, binding);
        }
    }

    /// The instruction, unless something in it is wrong or poisoned.
    fn make(&mut self, ast: &InstAst, body: &BlockAst) -> Option<Inst> {
        let op = self.op(ast);
        let types: Option<Option<Types>> = match &ast.types {
            Some(written) => self.types(written).map(Some),
            None => Some(None),
        };
        let declared = types.as_ref().and_then(|t| t.as_deref());
        let operands: SmallVec<[Option<Operand>; 4]> =
            ast.operands.iter().map(|o| self.operand(o, body)).collect();
        let dtype = declared.and_then(|d| d.first()).map(|t| t.dtype);
        let (source, at) = (self.source, ast.span);
        let attrs =
            op.and_then(|op| resolve_attrs(source, op, at, &ast.attrs, dtype, self.errors).ok());
        let yields = self.yields((op, attrs.as_ref()), (&operands, declared), ast);
        let mut regions = SmallVec::<[Option<Region>; 2]>::new();
        for (k, r) in ast.regions.iter().enumerate() {
            let slots = yields.as_ref().and_then(|all| all.get(k));
            regions.push(self.region(r, body, slots.map(Vec::as_slice)));
        }
        yields?;
        let op = op?;
        let named = self.region_names(op, ast);
        let needs_type = op.def().declared || !op.def().regions.is_empty();
        let typed = |s: &AttrSpec| s.kind == AttrKind::Literals;
        let untyped = declared.is_some_and(<[_]>::is_empty) && op.def().attrs.iter().any(typed);
        if ast.types.is_none() && needs_type || untyped {
            let m = format!("`{op}` needs its result type written, as `: f32[2]`");
            self.errors.add(at, Kind::Arity, m);
            return None;
        }
        let operands: SmallVec<[Operand; 4]> = operands.into_iter().collect::<Option<_>>()?;
        let regions: SmallVec<[Region; 2]> = regions.into_iter().collect::<Option<_>>()?;
        let (types, attrs) = (types?, attrs.filter(|_| named)?);
        self.builder.set_span(Some(at));
        self.builder.set_phase(ast.phase);
        self.builder.set_path(ast.path.clone());
        match self.builder.try_inst(op, &operands, attrs, types.as_deref(), &regions) {
            Ok(inst) => Some(inst),
            Err(e) => {
                misfit::report(self.source, (op, e), ast, self.errors);
                None
            }
        }
    }

    /// The types that each region ends with, for the literals there; nothing where they are not known, and none where
    /// operands and result types do not fit, which is reported.
    fn yields(
        &mut self,
        (op, attrs): (Option<Op>, Option<&Attrs>),
        (operands, declared): (&[Option<Operand>], Option<&[TensorType]>),
        ast: &InstAst,
    ) -> Option<Vec<Vec<TensorType>>> {
        let unknown = Some(Vec::new());
        let (Some(op), Some(attrs), Some(results)) = (op, attrs, declared) else { return unknown };
        if ast.regions.is_empty() || op.def().regions.is_empty() {
            return unknown;
        }
        let Some(operands) = operands.iter().copied().collect::<Option<Vec<Operand>>>() else {
            return unknown;
        };
        let known = operands.iter().map(|o| match o {
            Operand::Value(v) if self.builder.func().literal(*v).is_none() => {
                Some(self.builder.ty(*v).clone())
            }
            _ => None,
        });
        match op.infer(known.collect(), attrs, Some(results)) {
            Ok((args, _)) => {
                let due = signature(op, attrs, (&args, results), ast.regions.len());
                Some(due.unwrap_or_default().into_iter().map(|s| s.yields).collect())
            }
            Err(e) => {
                misfit::report(self.source, (op, e), ast, self.errors);
                None
            }
        }
    }

    fn op(&mut self, ast: &InstAst) -> Option<Op> {
        let name = self.text(ast.op);
        let op = self.ops.get(name);
        if op.is_none() {
            let m = format!("no op {}", shown(name));
            self.errors.add_hint(ast.op, Kind::UnknownOp, m, hints::unknown_op(name));
        }
        op
    }

    fn operand(&mut self, ast: &OperandAst, body: &BlockAst) -> Option<Operand> {
        let span = match *ast {
            OperandAst::Number(n, _) => return Some(Operand::Number(n)),
            OperandAst::Value(span) => span,
        };
        let name = self.text(span);
        match self.scope.get(name) {
            Some(Binding::Value(v)) => return Some(Operand::Value(v)),
            Some(Binding::Poison) => {}
            Some(Binding::Pending) => {
                let m = format!("`{name}` is used in its own definition");
                self.errors.add(span, Kind::Dominance, m);
            }
            None => self.unknown(name, span, body),
        }
        None
    }

    fn unknown(&mut self, name: &'s str, span: Span, body: &BlockAst) {
        if !self.reported.insert(name) {
            return;
        }
        let source = self.source;
        let defined = self.defined.get_or_insert_with(|| {
            let mut names = HashSet::new();
            collect_names(source, body, &mut names);
            names
        });
        if defined.contains(name) {
            let m = format!("`{name}` is not defined here");
            let hint = "it is defined later, or inside a region".to_string();
            self.errors.add_hint(span, Kind::Dominance, m, Some(hint));
            return;
        }
        let near = did_you_mean(&name[1..], self.scope.near().map(|n| &n[1..]));
        let hint = near.map(|n| format!("did you mean `%{n}`?"));
        self.errors.add_hint(span, Kind::UnknownName, format!("no value `{name}`"), hint);
    }

    fn region(
        &mut self,
        ast: &RegionAst,
        body: &BlockAst,
        declared: Option<&[TensorType]>,
    ) -> Option<Region> {
        let mark = self.scope.mark();
        let before = self.errors.count();
        let region = self.builder.open_region();
        self.params(&ast.params);
        let results = self.block(&ast.block, body, Slots::Literals(declared));
        self.builder.close_region(results.as_deref().unwrap_or_default());
        self.scope.close(mark);
        (results.is_some() && self.errors.count() == before).then_some(region)
    }

    /// Whether the regions are those of the op's row, in order; reported where not.
    fn region_names(&mut self, op: Op, ast: &InstAst) -> bool {
        let found: SmallVec<[&str; 2]> = ast.regions.iter().map(|r| self.text(r.name)).collect();
        let named = op.region_names(found.len());
        if named.as_ref().is_some_and(|named| named[..] == found[..]) {
            return true;
        }
        let wanted = named.as_deref().unwrap_or(op.def().regions);
        let wrong = found.iter().enumerate().find(|&(k, f)| wanted.get(k) != Some(f));
        let span = wrong.map_or(ast.span, |(k, _)| ast.regions[k].name);
        let list = |names: &[&str]| match names.len() {
            0 => "no region".to_string(),
            1 => format!("region {}", shown(names[0])),
            _ => {
                format!("regions {}", names.iter().map(|n| shown(n)).collect::<Vec<_>>().join(", "))
            }
        };
        let m = format!("`{op}` has {}, found {}", list(wanted), list(&found));
        self.errors.add(span, Kind::Arity, m);
        false
    }
}

/// What the values that end a block must be.
#[derive(Clone, Copy)]
enum Slots<'t> {
    /// The declared results of the function, unless those are in error.
    Checked(Option<&'t [TensorType]>),
    /// Types for literals alone: the verifier compares the rest with the region's owner.
    Literals(Option<&'t [TensorType]>),
}

/// The name that a value keeps: numbers are given anew when printing.
fn kept(name: &str) -> Option<&str> {
    Some(&name[1..]).filter(|n| !n.starts_with(|c: char| c.is_ascii_digit()))
}

fn collect_names<'s>(source: &'s str, block: &BlockAst, names: &mut HashSet<&'s str>) {
    let text = |span: Span| source.get(span.start as usize..span.end as usize).unwrap_or_default();
    for inst in &block.insts {
        names.extend(inst.results.iter().map(|&r| text(r)));
        for region in &inst.regions {
            names.extend(region.params.iter().map(|p| text(p.name)));
            collect_names(source, &region.block, names);
        }
    }
}
