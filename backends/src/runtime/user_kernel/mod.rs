//! Kernels of users for GPUs: PTX with a signature, a launch shape and a price, all as expressions of extents.
//!
//! What depends on the text and the expressions alone is checked when a kernel is made, what depends on extents when a
//! program that calls it is compiled, and what depends on the chip when its launch is scheduled.

mod entry_text;
mod extent_expr;
mod signature;

use entry_text::{EntryText, entries};
use extent_expr::{ExtentExpr, NamedExtents};
use signature::KernelSignature;

use super::functions::CallPrice;
use adfuse_ir::types::MAX_BYTES;
use adfuse_ir::{At, DType, Diagnostic, Kind, Span, TensorType};
use std::fmt;
use std::sync::Arc;

/// What a kernel for GPUs is made of. Expressions are of the extents that the signature names: numbers, names, `+ - * / %`
/// (division rounds down), parentheses, `ceil_div(a, b)`, `min(a, b)`, `max(a, b)`.
#[derive(Clone, Copy, Debug)]
pub struct PtxSource<'t> {
    /// A whole module of PTX: `.version`, `.target`, `.address_size 64`, and the entry point.
    pub text: &'t str,
    /// The name of the entry point. Its parameters are, in this order: a pointer to each operand; a pointer to the result; a
    /// pointer to scratch memory, where there is any; the [`numbers`](PtxSource::numbers). Pointers are of the device's global memory,
    /// 64 bits each; tensors are dense and row-major.
    pub entry: &'t str,
    /// What it takes and gives: `(f32[n, m], f32[m]) -> f32[n]`. Extents of operands are names or numbers, those of the result
    /// expressions.
    pub signature: &'t str,
    /// Blocks along x, y and z.
    pub grid: [&'t str; 3],
    /// Threads of a block along x, y and z.
    pub block: [&'t str; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared: &'t str,
    /// Bytes of scratch memory, which is planned as buffers are; `0` for none. It begins at a multiple of 256 bytes, and holds anything.
    pub scratch: &'t str,
    /// Whole numbers that the entry point is given after the pointers, as its parameters of 32 or 64 bits.
    pub numbers: &'t [&'t str],
    /// Operations of a call, as plans price it.
    pub operations: &'t str,
    /// Bytes that a call moves in addition to operands and result.
    pub bytes: &'t str,
}

impl PtxSource<'static> {
    /// No text; one block of one thread, without shared or scratch memory, numbers or a price.
    pub const EMPTY: PtxSource<'static> = PtxSource {
        text: "",
        entry: "",
        signature: "",
        grid: ["1"; 3],
        block: ["1"; 3],
        shared: "0",
        scratch: "0",
        numbers: &[],
        operations: "0",
        bytes: "0",
    };
}

impl Default for PtxSource<'_> {
    fn default() -> Self {
        PtxSource::EMPTY
    }
}

/// A kernel of a user's function, for GPUs.
///
/// What it reads and writes outside of its operands, its result and its scratch memory is not checked: it is the device's memory, where
/// other values of the program are. It must give the same result for the same operands, and write the whole result.
///
/// ```
/// use adfuse_backends::functions::{PtxKernel, PtxSource};
///
/// let wrong = PtxKernel::new(PtxSource {
///     text: ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry fill(.param .u64 y) { ret; }",
///     entry: "fil",
///     signature: "() -> f32[4]",
///     ..PtxSource::default()
/// });
/// assert!(wrong.unwrap_err().message.contains("no entry point `fil`"));
/// ```
#[derive(Clone)]
pub struct PtxKernel {
    text: Arc<str>,
    entry: EntryText,
    signature: KernelSignature,
    grid: [ExtentExpr; 3],
    block: [ExtentExpr; 3],
    shared: ExtentExpr,
    scratch: Option<ExtentExpr>,
    numbers: Vec<ExtentExpr>,
    operations: ExtentExpr,
    bytes: ExtentExpr,
}

/// A call of a kernel, at extents that are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KernelCall {
    pub(crate) text: Arc<str>,
    pub(crate) entry: String,
    pub(crate) grid: [u64; 3],
    pub(crate) block: [u64; 3],
    pub(crate) shared: u64,
    /// Bytes of scratch, where the entry point is given a pointer to it.
    pub(crate) scratch: Option<u64>,
    pub(crate) numbers: Vec<u64>,
}

impl PtxKernel {
    /// The kernel of a source.
    ///
    /// # Errors
    /// [`Kind::Syntax`] for a signature or an expression that does not read, with its place in it; [`Kind::UnknownName`] for an entry point
    /// that the text does not have, and extents that the signature does not name; [`Kind::Arity`] where the entry point has
    /// another number of parameters; [`Kind::DType`] for parameters that are no pointers or whole numbers, and for a result of
    /// `bool`. Errors about the text have their place in it.
    pub fn new(source: PtxSource<'_>) -> Result<PtxKernel, Diagnostic> {
        let signature = KernelSignature::parse(source.signature);
        let signature = signature
            .map_err(|(at, m)| wrong_field("signature", (source.signature, at), Kind::Syntax, m))?;
        if signature.result.dtype() == DType::Bool {
            // Whatever reads a truth value takes it to be 0 or 1.
            let m = "the result is bool, whose bytes are 0 or 1 alone";
            let d = wrong_field("signature", (source.signature, 0), Kind::DType, m.into());
            return Err(d.hint("give u8, and compare it with 0"));
        }
        let names = signature.names();
        let read = |field: &str, text: &str| expression(field, text, &names);
        let three = |field: &str, texts: [&str; 3]| -> Result<[ExtentExpr; 3], Diagnostic> {
            let [x, y, z] = texts.map(|text| read(field, text));
            Ok([x?, y?, z?])
        };
        let scratch = read("scratch", source.scratch)?;
        let all = entries(source.text);
        let found = all.iter().find(|entry| entry.name == source.entry).cloned();
        let kernel = PtxKernel {
            entry: found.ok_or_else(|| no_entry(source.entry, &all))?,
            grid: three("grid", source.grid)?,
            block: three("block", source.block)?,
            shared: read("shared", source.shared)?,
            scratch: (scratch != ExtentExpr::Number(0)).then_some(scratch),
            numbers: source
                .numbers
                .iter()
                .map(|text| read("numbers", text))
                .collect::<Result<_, _>>()?,
            operations: read("operations", source.operations)?,
            bytes: read("bytes", source.bytes)?,
            text: source.text.into(),
            signature,
        };
        kernel.check_parameters()?;
        Ok(kernel)
    }

    /// Pointers that the entry point is given.
    fn pointers(&self) -> usize {
        self.signature.operands.len() + 1 + usize::from(self.scratch.is_some())
    }

    fn check_parameters(&self) -> Result<(), Diagnostic> {
        let EntryText { name, span, params } = &self.entry;
        let at = || At { inst: Some(format!(".entry {name}").into()), ..At::span(*span) };
        let (pointers, numbers) = (self.pointers(), self.numbers.len());
        if params.len() != pointers + numbers {
            let scratch = if self.scratch.is_some() { ", the scratch memory" } else { "" };
            let m = format!(
                "`{name}` has {} parameters, and is given {}: pointers to {} operands, the result{scratch}, and {numbers} numbers",
                params.len(),
                pointers + numbers,
                self.signature.operands.len(),
            );
            return Err(Diagnostic::new(at(), Kind::Arity, m));
        }
        for (k, ty) in params.iter().enumerate() {
            let (what, fits) = match k < pointers {
                true => ("pointer", matches!(&**ty, "u64" | "s64" | "b64")),
                false => ("whole number", bits_of(ty).is_some()),
            };
            if !fits {
                let m = format!("parameter {k} of `{name}` is .{ty}, and is given a {what}");
                return Err(Diagnostic::new(at(), Kind::DType, m));
            }
        }
        Ok(())
    }

    /// Whether it takes operands of these types.
    pub(crate) fn accepts(&self, types: &[TensorType]) -> bool {
        self.signature.extents(types).is_some()
    }

    /// The type of the result for operands of these types.
    pub(crate) fn result(&self, types: &[TensorType]) -> Result<TensorType, Diagnostic> {
        let result = self.signature.result(&self.extents(types)?);
        result.map_err(|m| self.wrong(Kind::Shape, m))
    }

    /// What a call takes.
    pub(crate) fn price(&self, types: &[TensorType]) -> Result<CallPrice, Diagnostic> {
        let of = self.extents(types)?;
        let value = |e: &ExtentExpr| e.value(&of).map_err(|m| self.wrong(Kind::Shape, m));
        let scratch = self.scratch.as_ref().map_or(Ok(0), value)?;
        if scratch > MAX_BYTES {
            let m = format!("{scratch} bytes of scratch, the limit is {MAX_BYTES}");
            return Err(self.wrong(Kind::Limit, m));
        }
        Ok(CallPrice { operations: value(&self.operations)?, bytes: value(&self.bytes)?, scratch })
    }

    /// A call with operands of these types.
    pub(crate) fn call(&self, types: &[TensorType]) -> Result<KernelCall, Diagnostic> {
        let of = self.extents(types)?;
        let value = |e: &ExtentExpr| e.value(&of).map_err(|m| self.wrong(Kind::Shape, m));
        let three = |e: &[ExtentExpr; 3]| -> Result<[u64; 3], Diagnostic> {
            Ok([value(&e[0])?, value(&e[1])?, value(&e[2])?])
        };
        let mut numbers = Vec::new();
        for (expr, ty) in self.numbers.iter().zip(&self.entry.params[self.pointers()..]) {
            let number = value(expr)?;
            if bits_of(ty).is_some_and(|bits| bits < 64 && number >> bits > 0) {
                let m = format!("`{expr}` is {number}, which a parameter of .{ty} does not hold");
                return Err(self.wrong(Kind::Limit, m));
            }
            numbers.push(number);
        }
        Ok(KernelCall {
            text: Arc::clone(&self.text),
            entry: self.entry.name.clone(),
            grid: three(&self.grid)?,
            block: three(&self.block)?,
            shared: value(&self.shared)?,
            scratch: self.scratch.as_ref().map(value).transpose()?,
            numbers,
        })
    }

    fn extents(&self, types: &[TensorType]) -> Result<NamedExtents, Diagnostic> {
        let types_of = |types: &[TensorType]| {
            types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        self.signature.extents(types).ok_or_else(|| {
            let m = format!("it takes {}, not ({})", self.signature, types_of(types));
            self.wrong(Kind::Shape, m)
        })
    }

    fn wrong(&self, kind: Kind, m: String) -> Diagnostic {
        Diagnostic::new(At::default(), kind, format!("kernel `{}`: {m}", self.entry.name))
    }

    /// What it takes and gives, for errors.
    pub(crate) fn signature(&self) -> String {
        self.signature.to_string()
    }
}

impl fmt::Debug for PtxKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.entry.name, self.signature)
    }
}

/// Bits that a whole number may have in a parameter of a type; `None` where it takes none.
fn bits_of(ty: &str) -> Option<u32> {
    match ty {
        "u32" | "b32" => Some(32),
        "s32" => Some(31),
        "u64" | "b64" => Some(64),
        "s64" => Some(63),
        _ => None,
    }
}

/// An expression of a field, whose names are known.
fn expression(field: &str, text: &str, names: &[String]) -> Result<ExtentExpr, Diagnostic> {
    let found = ExtentExpr::parse(text);
    let found = found.map_err(|e| wrong_field(field, (text, e.at), Kind::Syntax, e.message))?;
    let mut unknown = None;
    found.names(&mut |name| {
        if !names.iter().any(|known| known == name) {
            unknown = Some(name.to_owned());
        }
    });
    match unknown {
        None => Ok(found),
        Some(name) => {
            let at = text.find(&name).unwrap_or(0);
            let m = format!("the signature names no extent `{name}`");
            Err(wrong_field(field, (text, at), Kind::UnknownName, m))
        }
    }
}

/// An error at a byte of a field's text.
fn wrong_field(field: &str, (text, at): (&str, usize), kind: Kind, m: String) -> Diagnostic {
    let at = At {
        inst: Some(format!("{field}: {text}").into()),
        span: Some(Span::new(at, (at + 1).min(text.len().max(at)))),
        ..At::default()
    };
    Diagnostic::new(at, kind, format!("`{field}`: {m}"))
}

fn no_entry(name: &str, all: &[EntryText]) -> Diagnostic {
    let m = format!("the text has no entry point `{name}`");
    let known: Vec<String> = all.iter().map(|entry| format!("`{}`", entry.name)).collect();
    let hint = match known.is_empty() {
        true => "it has none: an entry point begins with `.visible .entry NAME(`".to_owned(),
        false => format!("it has {}", known.join(", ")),
    };
    let inst = Some(format!("entry: {name}").into());
    Diagnostic::new(At { inst, ..At::default() }, Kind::UnknownName, m).hint(hint)
}
