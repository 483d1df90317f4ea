//! What lowering an instruction sees: the values so far, the function under construction, and what was refused.

use super::attributes::says_nothing;
use super::number::{ComplexPart, ImportedNumber, ImportedNumbers};
use crate::emit::element::{ElementType, complex_part};
use crate::emit::refusal::{Unlowered, refuse};
pub(crate) use crate::emit::{InstEmitter, LoweredValues, Val, Vals};
use crate::known::KnownValues;
use crate::report::{Issue, Usage};
use crate::text::tree::{FunctionTree, Instruction, OperandName, RegionTree, Type};
use adfuse_ir::{Attrs, Dim, Op, Provenance, Symbol, TensorType, Value};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};

pub(crate) type LoweredNumbers = Result<ImportedNumbers, Unlowered>;

/// How an op is lowered.
#[derive(Clone, Copy)]
pub(crate) enum LoweringRule {
    /// The op of the IR applied to each element.
    Map(Op),
    /// This function.
    By(for<'t> fn(&mut ModuleLowering<'t>, &'t Instruction<'t>) -> LoweredValues),
    /// This function, which treats complex numbers like others.
    Whole(for<'t> fn(&mut ModuleLowering<'t>, &'t Instruction<'t>) -> LoweredNumbers),
}

/// A row of the table of ops.
#[derive(Clone, Copy)]
pub(crate) struct OpRow {
    /// The op with its dialect.
    pub(crate) name: &'static str,
    /// Attributes that it reads; others are refused unless they mean nothing.
    pub(crate) attrs: &'static [&'static str],
    pub(crate) lower: LoweringRule,
}

/// What a function computes for a comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Compare {
    /// The same values.
    Equal,
    /// Values within the tolerance of their type.
    Close,
    /// Values within this absolute difference.
    Within(f64),
}

/// The results that a name is bound to.
type BoundResults = SmallVec<[Option<ImportedNumber>; 1]>;

/// Lowers an instruction that has complex operands or results.
pub(crate) type ComplexLowering<'t> =
    fn(&mut ModuleLowering<'t>, &'t Instruction<'t>, &OpRow) -> LoweredNumbers;

/// A module that is being lowered, function by function.
pub(crate) struct ModuleLowering<'t> {
    pub(crate) functions: &'t [FunctionTree<'t>],
    /// The number of a function, and its name in the IR.
    pub(crate) names: BTreeMap<&'t str, (usize, String)>,
    rows: fn(&str) -> Option<&'static OpRow>,
    map: for<'i> fn(&mut ModuleLowering<'t>, Op, &Instruction<'i>) -> LoweredValues,
    complex: ComplexLowering<'t>,
    pub(crate) emitter: InstEmitter,
    values: HashMap<&'t str, BoundResults>,
    /// What names stood for outside of the regions that are open.
    shadowed: Vec<(&'t str, Option<BoundResults>)>,
    /// The shape at which scalars of a region are computed: that of the tensors whose elements it combines.
    pub(crate) lift: Option<TensorType>,
    /// The part of complex numbers that is read; where there is none they are refused.
    pub(crate) part: Option<ComplexPart>,
    /// The parts of both operands that are read, where they differ.
    pub(crate) factors: Option<[ComplexPart; 2]>,
    /// Whether comparisons of tests are kept rather than refused.
    pub(crate) keeps_checks: bool,
    pub(crate) checks: Vec<(Compare, Val, Val)>,
    /// What is known of the values of the function under construction.
    pub(crate) known: KnownValues,
    /// Extents that are given for symbols.
    pub(crate) extents: BTreeMap<String, u64>,
    /// Those of them that were extents of some function.
    pub(crate) bound: BTreeSet<String>,
    /// The symbols of the function under construction.
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) issues: Vec<Issue>,
    pub(crate) usage: Usage,
    /// Calls that are lowered in place: those that are open, and all.
    depth: usize,
    calls: usize,
}

impl Deref for ModuleLowering<'_> {
    type Target = InstEmitter;

    fn deref(&self) -> &InstEmitter {
        &self.emitter
    }
}

impl DerefMut for ModuleLowering<'_> {
    fn deref_mut(&mut self) -> &mut InstEmitter {
        &mut self.emitter
    }
}

impl<'t> ModuleLowering<'t> {
    pub(crate) fn new(
        functions: &'t [FunctionTree<'t>],
        names: BTreeMap<&'t str, (usize, String)>,
        rows: fn(&str) -> Option<&'static OpRow>,
        map: for<'i> fn(&mut ModuleLowering<'t>, Op, &Instruction<'i>) -> LoweredValues,
        complex: ComplexLowering<'t>,
        keeps_checks: bool,
    ) -> ModuleLowering<'t> {
        ModuleLowering {
            functions,
            names,
            rows,
            map,
            complex,
            emitter: InstEmitter::new(""),
            values: HashMap::new(),
            shadowed: Vec::new(),
            lift: None,
            part: None,
            factors: None,
            keeps_checks,
            checks: Vec::new(),
            known: KnownValues::default(),
            extents: BTreeMap::new(),
            bound: BTreeSet::new(),
            symbols: Vec::new(),
            issues: Vec::new(),
            usage: Usage::default(),
            depth: 0,
            calls: 0,
        }
    }

    /// Forgets all values, for the next function.
    pub(crate) fn forget(&mut self) {
        self.values.clear();
        self.shadowed.clear();
        self.known = KnownValues::default();
        self.symbols.clear();
    }

    /// Notes something that cannot be imported.
    pub(crate) fn issue(&mut self, op: &str, what: String, at: impl Into<Provenance>) {
        let Provenance { span, line } = at.into();
        let span = span.unwrap_or_default();
        self.issues.push(Issue { op: op.to_string(), what, span, line, node: None });
    }

    /// The imported type.
    pub(crate) fn type_of(&self, ty: &Type<'_>) -> Result<(ElementType, TensorType), Unlowered> {
        let element = self.element_of(ty)?;
        let known: Option<Vec<u64>> = ty.extents().iter().copied().collect();
        let Some(dims) = known else { return refuse("an extent that is not known") };
        let ty = TensorType::of(element.storage(), &dims);
        match ty.excess() {
            Some(m) => refuse(m),
            None => Ok((element, ty)),
        }
    }

    /// The imported type of the elements.
    pub(crate) fn element_of(&self, ty: &Type<'_>) -> Result<ElementType, Unlowered> {
        let Type::Tensor(_, element) = ty else {
            let Type::Other(text) = ty else { return refuse("a type") };
            return refuse(format!("the type {text}"));
        };
        let named = match self.part {
            None => element,
            Some(_) => complex_part(element).unwrap_or(element),
        };
        match ElementType::named(named) {
            Some(element) => Ok(element),
            None => refuse(match complex_part(element) {
                Some(_) => "complex numbers".into(),
                None => format!("elements of type {}", element.split('<').next().unwrap_or("")),
            }),
        }
    }

    /// The extents of a value, none of which may be a symbol.
    pub(crate) fn dims(&self, v: Val) -> Result<SmallVec<[u64; 4]>, Unlowered> {
        match self.b.ty(v.value).dims() {
            Some(dims) => Ok(dims),
            None => refuse(format!("an extent that is a symbol: {}", self.b.ty(v.value))),
        }
    }

    /// Result number `k` as written; in a region that is computed at a shape, of that shape.
    pub(crate) fn result_type(
        &self,
        inst: &Instruction<'_>,
        k: usize,
    ) -> Result<(ElementType, TensorType), Unlowered> {
        let (element, ty) = self.type_of(written_type(inst, k)?)?;
        match &self.lift {
            None => Ok((element, ty)),
            Some(shape) if ty.rank() == 0 => Ok((element, shape.with_dtype(ty.dtype))),
            Some(_) => refuse("a tensor in a function of elements"),
        }
    }

    /// Appends an instruction with the result type that is written; with the one that its operands have where an extent is not.
    pub(crate) fn emit_written(
        &mut self,
        inst: &Instruction<'_>,
        op: Op,
        args: &[Value],
        attrs: Attrs,
    ) -> Result<Value, Unlowered> {
        if written_type(inst, 0)?.is_dynamic() {
            return self.emit(op, args, attrs);
        }
        let (_, ty) = self.result_type(inst, 0)?;
        self.emit_as(op, args, attrs, &ty)
    }

    /// Names results.
    pub(crate) fn bind(&mut self, name: &'t str, values: BoundResults) {
        let old = self.values.insert(name, values);
        self.shadowed.push((name, old));
    }

    /// The number of this name.
    pub(crate) fn number(&self, operand: OperandName<'_>) -> Result<ImportedNumber, Unlowered> {
        let Some(all) = self.values.get(operand.name) else {
            return refuse(format!("`%{}` is not defined", operand.name));
        };
        match all.get(operand.result as usize) {
            Some(Some(v)) => Ok(*v),
            Some(None) => Err(Unlowered::Poisoned),
            None => refuse(format!("`%{}` has {} results", operand.name, all.len())),
        }
    }

    /// All operands, complex numbers among them.
    pub(crate) fn numbers(&self, inst: &Instruction<'_>) -> Result<Vec<ImportedNumber>, Unlowered> {
        inst.all_operands().map(|operand| self.number(operand)).collect()
    }

    /// The value of this name, or the part of it that is read.
    fn find(&self, operand: OperandName<'_>) -> Result<Val, Unlowered> {
        let found = self.number(operand)?;
        match (found.im, self.part) {
            (Some(im), Some(ComplexPart::Imaginary)) => Ok(im),
            (Some(_), None) => refuse("complex numbers"),
            _ => Ok(found.re),
        }
    }

    /// An operand; in a region that is computed at a shape, of that shape.
    pub(crate) fn value(&mut self, operand: OperandName<'_>) -> Result<Val, Unlowered> {
        let found = self.find(operand)?;
        let Some(shape) = self.lift.clone() else { return Ok(found) };
        let ty = self.b.ty(found.value);
        if ty.shape == shape.shape {
            return Ok(found);
        }
        match ty.rank() {
            0 => self.splat(found, &shape),
            _ => refuse("a tensor in a function of elements"),
        }
    }

    /// Operand number `k`.
    pub(crate) fn operand(&mut self, inst: &Instruction<'_>, k: usize) -> Result<Val, Unlowered> {
        let Some(operand) = inst.all_operands().nth(k) else {
            return refuse(format!("operand {k} is missing"));
        };
        let factor = self.factors.as_ref().and_then(|parts| parts.get(k)).copied();
        self.reading(factor.or(self.part), |cx| cx.value(operand))
    }

    /// What `found` gives while this part of complex numbers is read.
    pub(crate) fn reading<T>(
        &mut self,
        part: Option<ComplexPart>,
        found: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let outer = std::mem::replace(&mut self.part, part);
        let found = found(self);
        self.part = outer;
        found
    }

    /// All operands.
    pub(crate) fn operands(&mut self, inst: &Instruction<'_>) -> Result<Vec<Val>, Unlowered> {
        let all: Vec<OperandName<'_>> = inst.all_operands().collect();
        all.into_iter().map(|o| self.value(o)).collect()
    }

    /// Lowers the instructions of a region; its results, or why there are none.
    pub(crate) fn block(
        &mut self,
        region: &'t RegionTree<'t>,
        params: &[Option<ImportedNumber>],
    ) -> LoweredNumbers {
        self.within(region, params, |cx, ret| cx.numbers(ret))
    }

    /// Lowers the instructions of a region; what `results` makes of the one that it ends with.
    fn within<T>(
        &mut self,
        region: &'t RegionTree<'t>,
        params: &[Option<ImportedNumber>],
        results: impl FnOnce(&mut Self, &'t Instruction<'t>) -> Result<T, Unlowered>,
    ) -> Result<T, Unlowered> {
        let mark = self.shadowed.len();
        for (param, &v) in region.params.iter().zip(params) {
            self.bind(param.name, SmallVec::from_iter([v]));
        }
        let end =
            region.insts.iter().position(|i| matches!(i.op, "stablehlo.return" | "func.return"));
        let (insts, last) = region.insts.split_at(end.unwrap_or(region.insts.len()));
        insts.iter().for_each(|inst| self.instruction(inst));
        let results = match last.first() {
            Some(ret) => results(self, ret),
            None => refuse("a region without results"),
        };
        while self.shadowed.len() > mark {
            if let Some((name, old)) = self.shadowed.pop() {
                match old {
                    Some(old) => self.values.insert(name, old),
                    None => self.values.remove(name),
                };
            }
        }
        results
    }

    /// Lowers one instruction and names its results; what cannot be lowered is noted, and its results are poisoned.
    pub(crate) fn instruction(&mut self, inst: &'t Instruction<'t>) {
        self.b.set_origin(inst.into());
        self.usage.count(inst.op, inst.symbol);
        let lowered = match (self.rows)(inst.op) {
            None => refuse("no such op here"),
            Some(row) => self.attributes(inst, row).and_then(|()| match row.lower {
                LoweringRule::Whole(lower) => lower(self, inst),
                _ if self.part.is_none() && self.is_complex(inst) => {
                    (self.complex)(self, inst, row)
                }
                _ => self
                    .row(inst, row)
                    .map(|all| all.into_iter().map(ImportedNumber::from).collect()),
            }),
        };
        let lowered = lowered.and_then(|values| self.agreed(inst, values));
        let mut values = match lowered {
            Ok(values) => values.into_iter().map(Some).collect::<Vec<_>>(),
            Err(why) => {
                if let Unlowered::Unsupported(what) = why {
                    let name = inst.symbol.filter(|_| inst.op.ends_with("custom_call"));
                    let op = name.map_or(inst.op.to_string(), |n| format!("{} @{n}", inst.op));
                    self.issue(&op, what, inst);
                }
                vec![None; inst.result_count()]
            }
        }
        .into_iter();
        for &(name, count) in &inst.results {
            let group: BoundResults = values.by_ref().take(count as usize).collect();
            if let [Some(number)] = group[..] {
                self.name(number, name);
            }
            self.bind(name, group);
        }
    }

    /// The results of an instruction of real numbers, or of one part of complex ones.
    pub(crate) fn row(&mut self, inst: &'t Instruction<'t>, row: &OpRow) -> LoweredValues {
        match row.lower {
            LoweringRule::Map(op) => (self.map)(self, op, inst),
            LoweringRule::By(lower) => lower(self, inst),
            LoweringRule::Whole(_) => refuse("control flow in a part of complex numbers"),
        }
    }

    /// Whether an instruction has complex operands or results.
    fn is_complex(&self, inst: &Instruction<'_>) -> bool {
        let of_operand = |o| self.number(o).is_ok_and(|n| n.im.is_some());
        inst.types.iter().any(Type::is_complex) || inst.all_operands().any(of_operand)
    }

    /// The results, where they have the number and the types that the text says.
    fn agreed(&mut self, inst: &Instruction<'_>, values: ImportedNumbers) -> LoweredNumbers {
        if values.len() != inst.result_count() {
            return refuse(format!("{} results, not {}", values.len(), inst.result_count()));
        }
        for (k, number) in values.iter().enumerate() {
            let written = self.part.is_none() && inst.result_type(k).is_some_and(Type::is_complex);
            if number.im.is_some() != written {
                return refuse("complex numbers, or none, where the text says otherwise");
            }
            let read = self.part.or(number.im.map(|_| ComplexPart::Real));
            self.reading(read, |cx| cx.has_written_type(inst, k, &number.parts()))?;
        }
        Ok(values)
    }

    /// Errs where values have another type than result number `k` has in the text. An extent that is not written may be any.
    fn has_written_type(
        &self,
        inst: &Instruction<'_>,
        k: usize,
        values: &[Val],
    ) -> Result<(), Unlowered> {
        let written = written_type(inst, k)?;
        let (element, ty) = match written.is_dynamic() {
            false => self.result_type(inst, k).map(|(element, ty)| (element, Some(ty)))?,
            true => (self.element_of(written)?, None),
        };
        for v in values {
            let found = self.b.ty(v.value);
            let open = |shape: &[Dim]| {
                let extents = written.extents();
                let fits = |(d, e): (&Dim, &Option<u64>)| e.is_none_or(|n| *d == Dim::Const(n));
                shape.len() == extents.len() && shape.iter().zip(extents).all(fits)
            };
            let same = ty.as_ref().map_or_else(|| open(&found.shape), |ty| found == ty);
            if v.element != element || !same {
                let wanted = ty.map_or_else(|| written.to_string(), |ty| ty.to_string());
                return refuse(format!("a result of type {found} where the text says {wanted}"));
            }
        }
        Ok(())
    }

    /// Gives a number its name in the source, unless it has one.
    fn name(&mut self, number: ImportedNumber, name: &str) {
        let f = self.b.func_mut();
        for (v, name) in number.parts().iter().zip(number.names(name)) {
            if f.literal(v.value).is_none() && f.name_of(v.value).is_none() {
                f.set_name(v.value, name.as_deref());
            }
        }
    }

    fn attributes(&self, inst: &Instruction<'_>, row: &OpRow) -> Result<(), Unlowered> {
        let known = |name: &str| row.attrs.contains(&name) || says_nothing(name);
        match inst.attrs.iter().find(|(name, _)| !known(name)) {
            Some((name, _)) => refuse(format!("the attribute `{name}`")),
            None => Ok(()),
        }
    }

    /// The function that is called, and its name in the IR.
    pub(crate) fn callee(&self, name: &str) -> Result<(&'t FunctionTree<'t>, String), Unlowered> {
        match self.names.get(name) {
            Some((k, name)) => Ok((&self.functions[*k], name.clone())),
            None => refuse(format!("the function @{name} is not there")),
        }
    }

    /// Lowers a function of elements at the shape of `args`: the region's instructions, applied to whole tensors.
    pub(crate) fn elements(&mut self, region: &'t RegionTree<'t>, args: &[Val]) -> LoweredValues {
        self.lifted(region, args, |cx, ret| cx.operands(ret).map(Vals::from_vec))
    }

    /// As [`ModuleLowering::elements`], for the value of this name in the region.
    pub(crate) fn element(
        &mut self,
        region: &'t RegionTree<'t>,
        args: &[Val],
        name: &str,
    ) -> Result<Val, Unlowered> {
        self.lifted(region, args, |cx, _| cx.value(OperandName { name, result: 0 }))
    }

    /// As [`ModuleLowering::within`], at the shape of `args`.
    fn lifted<T>(
        &mut self,
        region: &'t RegionTree<'t>,
        args: &[Val],
        results: impl FnOnce(&mut Self, &'t Instruction<'t>) -> Result<T, Unlowered>,
    ) -> Result<T, Unlowered> {
        let Some(first) = args.first() else { return refuse("a function of no elements") };
        let shape = self.b.ty(first.value).clone();
        let outer = self.lift.replace(shape);
        let params: Vec<Option<ImportedNumber>> = args.iter().map(|&v| Some(v.into())).collect();
        let found = self.within(region, &params, results);
        self.lift = outer;
        found
    }

    /// Enters the body of a callee in place of a call; errs where calls do not end, or double at every level.
    pub(crate) fn enter(&mut self) -> Result<(), Unlowered> {
        const MOST_DEPTH: usize = 64;
        const MOST_CALLS: usize = 100_000;
        self.depth += 1;
        self.calls += 1;
        let fits = self.depth <= MOST_DEPTH && self.calls <= MOST_CALLS;
        if fits {
            return Ok(());
        }
        self.depth -= 1;
        refuse("calls that do not end, or too many")
    }

    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }
}

/// The type of result number `k` as the text has it.
pub(crate) fn written_type<'i>(
    inst: &'i Instruction<'_>,
    k: usize,
) -> Result<&'i Type<'i>, Unlowered> {
    inst.result_type(k).map_or_else(|| refuse("an instruction without its types"), Ok)
}
