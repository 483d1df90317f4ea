//! What lowering an instruction sees: the values so far, the function under construction, and what was refused.

use super::attributes::says_nothing;
use crate::emit::element::ElementType;
use crate::emit::refusal::{Unlowered, refuse};
pub(crate) use crate::emit::{Emitter, Val};
use crate::report::{Issue, Usage};
use crate::text::tree::{FunctionTree, Instruction, OperandName, RegionTree, Type};
use adfuse_ir::{Op, Span, TensorType};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};

pub(crate) type Vals = SmallVec<[Val; 2]>;
pub(crate) type LoweredValues = Result<Vals, Unlowered>;

/// How an op is lowered.
#[derive(Clone, Copy)]
pub(crate) enum LoweringRule {
    /// The op of the IR applied to each element.
    Map(Op),
    /// This function.
    By(for<'t> fn(&mut ModuleLowering<'t>, &'t Instruction<'t>) -> LoweredValues),
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
type BoundResults = SmallVec<[Option<Val>; 1]>;

/// A module that is being lowered, function by function.
pub(crate) struct ModuleLowering<'t> {
    pub(crate) functions: &'t [FunctionTree<'t>],
    /// The number of a function, and its name in the IR.
    pub(crate) names: BTreeMap<&'t str, (usize, String)>,
    rows: fn(&str) -> Option<&'static OpRow>,
    map: for<'i> fn(&mut ModuleLowering<'t>, Op, &Instruction<'i>) -> LoweredValues,
    pub(crate) emitter: Emitter,
    values: HashMap<&'t str, BoundResults>,
    /// What names stood for outside of the regions that are open.
    shadowed: Vec<(&'t str, Option<BoundResults>)>,
    /// The shape at which scalars of a region are computed: that of the tensors whose elements it combines.
    pub(crate) lift: Option<TensorType>,
    /// Whether comparisons of tests are kept rather than refused.
    pub(crate) keeps_checks: bool,
    pub(crate) checks: Vec<(Compare, Val, Val)>,
    pub(crate) issues: Vec<Issue>,
    pub(crate) usage: Usage,
    /// Calls that are lowered in place: those that are open, and all.
    depth: usize,
    calls: usize,
}

impl Deref for ModuleLowering<'_> {
    type Target = Emitter;

    fn deref(&self) -> &Emitter {
        &self.emitter
    }
}

impl DerefMut for ModuleLowering<'_> {
    fn deref_mut(&mut self) -> &mut Emitter {
        &mut self.emitter
    }
}

impl<'t> ModuleLowering<'t> {
    pub(crate) fn new(
        functions: &'t [FunctionTree<'t>],
        names: BTreeMap<&'t str, (usize, String)>,
        rows: fn(&str) -> Option<&'static OpRow>,
        map: for<'i> fn(&mut ModuleLowering<'t>, Op, &Instruction<'i>) -> LoweredValues,
        keeps_checks: bool,
    ) -> ModuleLowering<'t> {
        ModuleLowering {
            functions,
            names,
            rows,
            map,
            emitter: Emitter::new(""),
            values: HashMap::new(),
            shadowed: Vec::new(),
            lift: None,
            keeps_checks,
            checks: Vec::new(),
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
    }

    /// Notes something that cannot be imported.
    pub(crate) fn issue(&mut self, op: &str, what: String, span: Span) {
        self.issues.push(Issue { op: op.to_string(), what, span, node: None });
    }

    /// The imported type.
    pub(crate) fn type_of(&self, ty: &Type<'_>) -> Result<(ElementType, TensorType), Unlowered> {
        let Type::Tensor(extents, element) = ty else {
            let Type::Other(text) = ty else { return refuse("a type") };
            return refuse(format!("the type {text}"));
        };
        let Some(element) = ElementType::named(element) else {
            return refuse(format!("elements of type {}", element.split('<').next().unwrap_or("")));
        };
        let known: Option<Vec<u64>> = extents.iter().copied().collect();
        let Some(dims) = known else { return refuse("an extent that is not known") };
        let ty = TensorType::of(element.storage(), &dims);
        match ty.excess() {
            Some(m) => refuse(m),
            None => Ok((element, ty)),
        }
    }

    /// Result number `k` as written; in a region that is computed at a shape, of that shape.
    pub(crate) fn result_type(
        &self,
        inst: &Instruction<'_>,
        k: usize,
    ) -> Result<(ElementType, TensorType), Unlowered> {
        let written = match inst.operand_types.is_none() && inst.result_count() == 1 {
            true => inst.types.last(),
            false => inst.types.get(k),
        };
        let Some(written) = written else { return refuse("an instruction without its types") };
        let (element, ty) = self.type_of(written)?;
        match &self.lift {
            None => Ok((element, ty)),
            Some(shape) if ty.rank() == 0 => Ok((element, shape.with_dtype(ty.dtype))),
            Some(_) => refuse("a tensor in a function of elements"),
        }
    }

    /// Names results.
    pub(crate) fn bind(&mut self, name: &'t str, values: BoundResults) {
        let old = self.values.insert(name, values);
        self.shadowed.push((name, old));
    }

    /// The value of this name.
    pub(crate) fn find(&self, operand: OperandName<'_>) -> Result<Val, Unlowered> {
        let Some(all) = self.values.get(operand.name) else {
            return refuse(format!("`%{}` is not defined", operand.name));
        };
        match all.get(operand.result as usize) {
            Some(Some(v)) => Ok(*v),
            Some(None) => Err(Unlowered::Poisoned),
            None => refuse(format!("`%{}` has {} results", operand.name, all.len())),
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
        match inst.all_operands().nth(k) {
            Some(operand) => self.value(operand),
            None => refuse(format!("operand {k} is missing")),
        }
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
        params: &[Option<Val>],
    ) -> LoweredValues {
        self.within(region, params, |cx, ret| cx.operands(ret).map(Vals::from_vec))
    }

    /// Lowers the instructions of a region; what `results` makes of the one that it ends with.
    fn within<T>(
        &mut self,
        region: &'t RegionTree<'t>,
        params: &[Option<Val>],
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
        self.b.set_span(Some(inst.span));
        self.usage.count(inst.op, inst.symbol);
        let lowered = match (self.rows)(inst.op) {
            None => refuse("no such op here"),
            Some(row) => self.attributes(inst, row).and_then(|()| match row.lower {
                LoweringRule::Map(op) => (self.map)(self, op, inst),
                LoweringRule::By(lower) => lower(self, inst),
            }),
        };
        let lowered = lowered.and_then(|values| self.agreed(inst, values));
        let mut values = match lowered {
            Ok(values) => values.into_iter().map(Some).collect::<Vec<_>>(),
            Err(why) => {
                if let Unlowered::Unsupported(what) = why {
                    let name = inst.symbol.filter(|_| inst.op.ends_with("custom_call"));
                    let op = name.map_or(inst.op.to_string(), |n| format!("{} @{n}", inst.op));
                    self.issue(&op, what, inst.span);
                }
                vec![None; inst.result_count()]
            }
        }
        .into_iter();
        for &(name, count) in &inst.results {
            let group: BoundResults = values.by_ref().take(count as usize).collect();
            if let [Some(v)] = group[..] {
                self.name(v, name);
            }
            self.bind(name, group);
        }
    }

    /// The results, where they have the number and the types that the text says.
    fn agreed(&self, inst: &Instruction<'_>, values: Vals) -> LoweredValues {
        if values.len() != inst.result_count() {
            return refuse(format!("{} results, not {}", values.len(), inst.result_count()));
        }
        for (k, v) in values.iter().enumerate() {
            let (element, ty) = self.result_type(inst, k)?;
            if v.element != element || self.b.ty(v.value) != &ty {
                let found = self.b.ty(v.value);
                return refuse(format!("a result of type {found} where the text says {ty}"));
            }
        }
        Ok(values)
    }

    /// Gives a value its name in the source, unless it has one.
    pub(crate) fn name(&mut self, v: Val, name: &str) {
        let f = self.b.func_mut();
        if f.literal(v.value).is_none() && f.name_of(v.value).is_none() {
            f.set_name(v.value, word_name(name));
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
        let shape = self.b.ty(args[0].value).clone();
        let outer = self.lift.replace(shape);
        let params: Vec<Option<Val>> = args.iter().copied().map(Some).collect();
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

/// The name of a value as the IR has it: none where it is a number, or too long.
pub(crate) fn word_name(name: &str) -> Option<&str> {
    const MOST: usize = 200;
    let number = name.bytes().all(|b| b.is_ascii_digit());
    (!number && name.len() <= MOST).then_some(name)
}
