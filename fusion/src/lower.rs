//! Lowering: the function inlined, its values given buffers, its instructions turned into steps.

use crate::step;
use adfuse_ir::kernel::{Buffer, BufferData, Extents, Operand, Program, Role, Step};
use adfuse_ir::op::Body;
use adfuse_ir::rewrite::inline;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{At, DType, Diagnostic, Function, Inst, Kind, Literal, Module, Value, ValueDef};
use cranelift_entity::SecondaryMap;
use hashbrown::HashSet;

/// The program of a function of a verified module: every instruction is a step of its own. Calls are
/// inlined. Literals stay values in the kernels that read them.
///
/// # Errors
/// For symbolic extents, tokens, effects and `cond`: the error names the symbol or the instruction.
pub fn lower(module: &Module, f: &Function) -> Result<Program, Diagnostic> {
    let inlined = inline(module, f, &|_| true)?;
    let mut lower = Lower::new(&inlined);
    lower.params()?;
    for &i in inlined.body_insts() {
        lower.inst(i)?;
    }
    lower.results()?;
    Ok(lower.program)
}

/// One function on its way.
pub(crate) struct Lower<'f> {
    /// The function, without calls.
    pub(crate) f: &'f Function,
    /// What has been made so far.
    pub(crate) program: Program,
    buffers: SecondaryMap<Value, Option<Buffer>>,
    outputs: SecondaryMap<Value, bool>,
    names: HashSet<String>,
    numbered: usize,
}

impl<'f> Lower<'f> {
    fn new(f: &'f Function) -> Lower<'f> {
        let mut outputs = SecondaryMap::new();
        for &v in f.results() {
            outputs[v] = true;
        }
        Lower {
            f,
            program: Program { name: f.name.clone(), ..Program::default() },
            buffers: SecondaryMap::new(),
            outputs,
            names: HashSet::new(),
            numbered: 0,
        }
    }

    fn params(&mut self) -> Result<(), Diagnostic> {
        for &v in self.f.params() {
            let dims = self.dims(v).map_err(|d| self.in_function(d))?;
            self.declare(v, dims, Role::Input);
        }
        Ok(())
    }

    fn inst(&mut self, i: Inst) -> Result<(), Diagnostic> {
        let (f, at) = (self.f, |mut d: Diagnostic, f| {
            d.at = at_inst(f, i);
            d
        });
        let op = f.op(i);
        let unsupported = || {
            let m = format!("`{op}` has no lowering to kernels");
            Diagnostic::new(at_inst(f, i), Kind::Unsupported, m)
        };
        let body = op.def().body;
        if matches!(body, Body::Region(_) | Body::Effect(_)) {
            return Err(unsupported());
        }
        for &v in f.args(i) {
            self.dims(v).map_err(|d| at(d, f))?;
        }
        for &v in f.inst_results(i) {
            let dims = self.dims(v).map_err(|d| at(d, f))?;
            let role = match body {
                Body::Constant => Role::Constant(f.attrs(i).literals("values").to_vec()),
                _ if self.outputs[v] => Role::Output,
                _ => Role::Temp,
            };
            self.declare(v, dims, role);
        }
        let steps = match body {
            Body::Map(_) => step::map(self, i),
            Body::Source(_) => step::source(self, i),
            Body::View(index) => Some(step::view(self, i, index)),
            Body::Reduce(monoid) => Some(crate::reduce::reduce(self, i, monoid)),
            Body::Scan(monoid) => Some(crate::reduce::scan(self, i, monoid)),
            Body::Contract => step::contract(self, i),
            Body::Indirect(which) => crate::indirect::indirect(self, i, which),
            Body::Constant => Some(Vec::new()),
            Body::Region(_) | Body::Effect(_) => None,
        };
        self.program.steps.extend(steps.ok_or_else(unsupported)?);
        Ok(())
    }

    fn results(&mut self) -> Result<(), Diagnostic> {
        for &v in self.f.results() {
            let b = match (self.buffers[v], self.f.literal(v)) {
                (None, Some(l)) => {
                    let dims = self.dims(v).map_err(|d| self.in_function(d))?;
                    let b = self.declare(v, dims, Role::Output);
                    let fill = step::fill(self, b, l);
                    self.program.steps.push(Step::Kernel(fill));
                    b
                }
                (b, _) => b.ok_or_else(|| {
                    let m = "a result has no definition";
                    self.in_function(Diagnostic::new(At::default(), Kind::Internal, m))
                })?,
            };
            self.program.outputs.push(b);
        }
        Ok(())
    }

    /// The buffer or the literal that a value is.
    pub(crate) fn operand(&self, v: Value) -> Operand {
        match (self.buffers[v], self.f.def(v)) {
            (None, ValueDef::Literal(l)) => Operand::Literal(l),
            (Some(b), _) => Operand::Buffer(b),
            // Definitions come before uses in verified functions.
            (None, _) => Operand::Literal(Literal::zero(self.f.ty(v).dtype)),
        }
    }

    /// The buffer that a value is, unless it is a literal.
    pub(crate) fn buffer(&self, v: Value) -> Option<Buffer> {
        self.buffers[v]
    }

    /// The result buffers of an instruction.
    pub(crate) fn results_of(&self, i: Inst) -> impl Iterator<Item = Buffer> + '_ {
        self.f.inst_results(i).iter().filter_map(|&v| self.buffers[v])
    }

    /// The extents of a buffer.
    pub(crate) fn extents(&self, b: Buffer) -> &Extents {
        &self.program.buffers[b].dims
    }

    /// The known extents of a value.
    pub(crate) fn dims(&self, v: Value) -> Result<Extents, Diagnostic> {
        let ty = self.f.ty(v);
        let fail = |kind, m: String| Err(Diagnostic::new(At::default(), kind, m));
        if ty.dtype == DType::Token {
            return fail(Kind::Unsupported, "tokens have no lowering to kernels".into());
        }
        let mut dims = Extents::new();
        for d in &ty.shape {
            match d.known().and_then(|n| i64::try_from(n).ok()) {
                Some(n) => dims.push(n),
                None => {
                    let m = format!("the extent `{d}` of {ty} must be known before lowering");
                    return fail(Kind::Unsupported, m);
                }
            }
        }
        Ok(dims)
    }

    fn declare(&mut self, v: Value, dims: Extents, role: Role) -> Buffer {
        let name = self.fresh_name(v);
        let dtype = self.f.ty(v).dtype;
        let b = self.program.buffers.push(BufferData { name, dtype, dims, role });
        self.buffers[v] = Some(b);
        b
    }

    /// The value's own name where it is free and a word; otherwise a number.
    fn fresh_name(&mut self, v: Value) -> String {
        let word = |n: &&str| {
            n.len() < 250
                && n.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
                && n.chars().all(|c| c == '_' || c == '.' || c.is_ascii_alphanumeric())
        };
        if let Some(name) = self.f.name_of(v).filter(word)
            && self.names.insert(name.to_string())
        {
            return name.to_string();
        }
        let name = self.numbered.to_string();
        self.numbered += 1;
        name
    }

    fn in_function(&self, mut d: Diagnostic) -> Diagnostic {
        d.at.func = Some(self.f.name.clone());
        d
    }
}
