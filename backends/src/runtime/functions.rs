//! User functions that programs call by name.
//!
//! A function reads dense row-major tensors and writes one. Its result type and its price are evaluated when a program
//! is compiled, and are then part of the instruction, so planners need not know the function. It is written in Rust, for
//! engines of the host, in PTX, for GPUs, or in both.

use super::array::{Array, out_of_memory};
use super::bytes::Bytes;
pub use super::call_price::CallPrice;
pub use super::element::Element;
use super::element::canonical_nans;
use super::library_functions::LibraryFunctions;
use super::user_kernel::KernelCall;
pub use super::user_kernel::{PtxKernel, PtxSource};
use adfuse_ir::rewrite::Copier;
use adfuse_ir::types::MAX_BYTES;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{
    At, Attr, Attrs, Builder, DType, Diagnostic, Function, Inst, Kind, Op, TensorType, Value,
};
use bytemuck::checked::CheckedCastError;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The result type for given operand types, or an error.
type ResultTypeFn = dyn Fn(&[TensorType]) -> Result<TensorType, String> + Send + Sync;
/// The price of a call for given operand types.
type CallPriceFn = dyn Fn(&[TensorType]) -> CallPrice + Send + Sync;
/// A call.
type CallFn = dyn Fn(&mut Call<'_>) -> Result<(), String> + Send + Sync;

/// Which of a function's implementations an engine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallSide {
    /// The one in Rust.
    Host,
    /// A kernel for GPUs.
    Gpu,
}

/// A function that programs call by name.
pub struct Opaque {
    /// What is written in Rust, if anything is.
    host: Option<HostFunction>,
    /// For GPUs: the first that takes the operands is launched.
    kernels: Vec<PtxKernel>,
}

/// The part of a function that is written in Rust.
struct HostFunction {
    types: Box<ResultTypeFn>,
    prices: Box<CallPriceFn>,
    run: Box<CallFn>,
}

impl Opaque {
    /// A function with the type of its result for those of its operands, or what is wrong with them; `run` is a call. It
    /// must give the same result for the same operands: calls may be removed, shared and repeated, unless they are given
    /// a token. Those happen once each, in the order of their tokens, and may act: the function is not given the token.
    pub fn new(
        types: impl Fn(&[TensorType]) -> Result<TensorType, String> + Send + Sync + 'static,
        run: impl Fn(&mut Call<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Opaque {
        let host = HostFunction {
            types: Box::new(types),
            prices: Box::new(|_| CallPrice::default()),
            run: Box::new(run),
        };
        Opaque { host: Some(host), kernels: Vec::new() }
    }

    /// A function that GPUs alone run. Its types and prices are the kernel's.
    pub fn of_kernel(kernel: PtxKernel) -> Opaque {
        Opaque { host: None, kernels: vec![kernel] }
    }

    /// The function with a kernel for GPUs, which must compute the same. Of several kernels the first that takes the operands is
    /// launched. Plans for a GPU price a call by the kernel.
    #[must_use]
    pub fn with_kernel(mut self, kernel: PtxKernel) -> Opaque {
        self.kernels.push(kernel);
        self
    }

    /// The function with what a call in Rust takes, for the types of the operands.
    #[must_use]
    pub fn priced(
        mut self,
        prices: impl Fn(&[TensorType]) -> CallPrice + Send + Sync + 'static,
    ) -> Opaque {
        if let Some(host) = &mut self.host {
            host.prices = Box::new(prices);
        }
        self
    }

    /// What is written in Rust.
    fn host(&self, name: &str) -> Result<&HostFunction, Diagnostic> {
        self.host.as_ref().ok_or_else(|| {
            let m = format!(
                "`{name}` has a kernel for GPUs alone: this engine runs what is written in Rust"
            );
            Diagnostic::new(At::default(), Kind::Unsupported, m)
                .hint("make it by `Opaque::new`, and add the kernel by `with_kernel`")
        })
    }

    /// The kernel for operands of these types.
    fn kernel(&self, name: &str, types: &[TensorType]) -> Result<&PtxKernel, Diagnostic> {
        let refuse = |kind, m| Diagnostic::new(At::default(), kind, m);
        if self.kernels.is_empty() {
            let m = format!("`{name}` has no kernel for GPUs");
            return Err(refuse(Kind::Unsupported, m).hint("add one by `Opaque::with_kernel`"));
        }
        self.kernels.iter().find(|kernel| kernel.accepts(types)).ok_or_else(|| {
            let known: Vec<String> = self.kernels.iter().map(PtxKernel::signature).collect();
            refuse(
                Kind::Shape,
                misfit(name, types, &format!("its kernels take {}", known.join("; "))),
            )
        })
    }

    /// The type of the result of a call, and what it takes.
    fn typed(
        &self,
        name: &str,
        types: &[TensorType],
        side: CallSide,
    ) -> Result<(TensorType, CallPrice), Diagnostic> {
        let by_rust = |host: &HostFunction| {
            (host.types)(types)
                .map_err(|m| Diagnostic::new(At::default(), Kind::Shape, misfit(name, types, &m)))
        };
        if side == CallSide::Host {
            let host = self.host(name)?;
            return Ok((by_rust(host)?, (host.prices)(types)));
        }
        let kernel = self.kernel(name, types)?;
        let given = kernel.result(types)?;
        if let Some(due) = self.host.as_ref().map(by_rust).transpose()?
            && due != given
        {
            let m = format!("the kernel of `{name}` gives {given}, and the function {due}");
            return Err(Diagnostic::new(At::default(), Kind::Shape, m));
        }
        Ok((given, kernel.price(types)?))
    }

    /// Calls it, and leaves what buffers may hold: no NaN but the canonical one. The result has zeros.
    pub(crate) fn call(&self, name: &str, call: &mut Call<'_>) -> Result<(), Diagnostic> {
        let failed =
            |m: String| Diagnostic::new(At::default(), Kind::Usage, format!("@{name} failed: {m}"));
        (self.host(name)?.run)(call).map_err(failed)?;
        canonical_nans(call.result.dtype, call.result.bytes);
        Ok(())
    }
}

/// A call of a user function: operands, result and scratch memory.
pub struct Call<'a> {
    /// The operands.
    pub args: &'a [TensorRef<'a>],
    /// The result: zeros, before the function writes it.
    pub result: TensorMut<'a>,
    /// Scratch memory of the size in the price; its contents are undefined before and after.
    pub scratch: &'a mut [u8],
}

/// A dense row-major tensor that a function reads.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    pub(crate) dtype: DType,
    pub(crate) dims: &'a [u64],
    pub(crate) bytes: &'a [u8],
}

/// A dense row-major tensor that a function writes.
#[derive(Debug)]
pub struct TensorMut<'a> {
    pub(crate) dtype: DType,
    pub(crate) dims: &'a [u64],
    pub(crate) bytes: &'a mut [u8],
}

fn typed<T: Element>(dtype: DType) -> Result<(), String> {
    match T::DTYPE == dtype {
        true => Ok(()),
        false => Err(format!("a tensor of {dtype} is not one of {}", std::any::type_name::<T>())),
    }
}

fn misaligned(_: CheckedCastError) -> String {
    "a tensor begins in the middle of an element".into()
}

impl<'a> TensorRef<'a> {
    /// The extents.
    pub fn dims(&self) -> &'a [u64] {
        self.dims
    }

    /// Element type and extents, of which none is a symbol.
    pub fn ty(&self) -> TensorType {
        TensorType::of(self.dtype, self.dims)
    }

    /// The elements, row-major.
    ///
    /// # Errors
    /// When they are of another type, or bytes of truth values are neither 0 nor 1.
    pub fn elements<T: Element>(&self) -> Result<&'a [T], String> {
        typed::<T>(self.dtype)?;
        T::valid(self.bytes)?;
        match self.bytes {
            [] => Ok(&[]),
            bytes => bytemuck::checked::try_cast_slice(bytes).map_err(misaligned),
        }
    }
}

impl TensorMut<'_> {
    /// The extents.
    pub fn dims(&self) -> &[u64] {
        self.dims
    }

    /// Element type and extents, of which none is a symbol.
    pub fn ty(&self) -> TensorType {
        TensorType::of(self.dtype, self.dims)
    }

    /// The elements, row-major.
    ///
    /// # Errors
    /// When they are of another type.
    pub fn elements<T: Element>(&mut self) -> Result<&mut [T], String> {
        typed::<T>(self.dtype)?;
        T::valid(self.bytes)?;
        match &mut *self.bytes {
            [] => Ok(&mut []),
            bytes => bytemuck::checked::try_cast_slice_mut(bytes).map_err(misaligned),
        }
    }
}

/// Functions by name. Clones share them.
#[derive(Clone, Default)]
pub struct Registry(Arc<BTreeMap<String, Arc<Opaque>>>);

impl Registry {
    /// No functions.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// These functions and one more, which replaces a function of the same name.
    #[must_use]
    pub fn with(self, name: impl Into<String>, function: Opaque) -> Registry {
        let mut all = (*self.0).clone();
        all.insert(name.into(), Arc::new(function));
        Registry(Arc::new(all))
    }

    /// The function of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Opaque>> {
        self.0.get(name)
    }

    /// Whether two registries share their functions.
    pub fn is(&self, other: &Registry) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Checks the calls of a function against this registry, for engines that run this side of functions.
    ///
    /// # Errors
    /// [`Kind::UnknownName`] for what is not there, [`Kind::Unsupported`] for functions without that side, and errors of
    /// types; they name the instruction.
    pub fn check(&self, f: &Function, side: CallSide) -> Result<(), Diagnostic> {
        let mut found = Ok(());
        f.walk(&mut |f, i| {
            if found.is_ok() && f.op(i) == Op::Opaque {
                found = self.price(f, i, side).map(|_| ());
            }
        });
        found
    }

    /// The function with what its calls of these take written into them, so that it is planned by that. Calls inside
    /// of regions, which are not planned, are checked alone.
    ///
    /// # Errors
    /// As [`Registry::check`].
    pub fn priced(&self, f: &Function, side: CallSide) -> Result<Function, Diagnostic> {
        self.check(f, side)?;
        if f.body_insts().iter().all(|&i| f.op(i) != Op::Opaque) {
            return Ok(f.clone());
        }
        let mut b = Builder::new(f.name.clone());
        b.func_mut().symbols = f.symbols.clone();
        b.func_mut().rule = f.rule.clone();
        let mut copier = Copier::new(f);
        copier.params(&mut b);
        for &i in f.body_insts() {
            if f.op(i) != Op::Opaque {
                copier.inst(&mut b, i);
                continue;
            }
            let price = self.price(f, i, side)?;
            let fact = |n: u64| Attr::Int(i64::try_from(n).unwrap_or(i64::MAX));
            let mut attrs = Attrs::none();
            for (name, attr) in f.attrs(i).iter() {
                let new = match name {
                    "operations" => fact(price.operations),
                    "bytes" => fact(price.bytes),
                    "scratch" => fact(price.scratch),
                    _ => attr.clone(),
                };
                attrs = attrs.with(name, new);
            }
            b.set_phase(f.inst(i).phase);
            b.set_origin(f.origin(i).clone());
            let args: Vec<_> = f.args(i).iter().map(|&a| copier.get(&mut b, a)).collect();
            let olds = f.inst_results(i);
            let types: Vec<TensorType> = olds.iter().map(|&v| f.ty(v).clone()).collect();
            let news = b.inst(Op::Opaque, &args, attrs, Some(&types));
            for (&old, new) in olds.iter().zip(news) {
                b.func_mut().set_name(new, f.name_of(old));
                copier.set(old, new);
            }
        }
        let results: Vec<_> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
        b.set_results(&results);
        b.finish()
    }

    /// What a call takes; types with symbols wait until those are known.
    fn price(&self, f: &Function, i: Inst, side: CallSide) -> Result<CallPrice, Diagnostic> {
        let name = f.attrs(i).text("name");
        let wrong = |kind, m: String| Diagnostic::new(at_inst(f, i), kind, m);
        let function = self.get(name).ok_or_else(|| wrong(Kind::UnknownName, unknown(name)))?;
        let tensor = |&&v: &&Value| f.ty(v).dtype != DType::Token;
        let given = f.args(i).iter().filter(tensor);
        let types: Vec<TensorType> = given.map(|&a| f.ty(a).clone()).collect();
        let Some(&result) = f.inst_results(i).iter().find(tensor) else {
            return Err(wrong(Kind::Arity, format!("`{name}` has no result")));
        };
        let written = f.ty(result);
        if types.iter().chain([written]).any(|t| t.dims().is_none()) {
            return Ok(CallPrice::default());
        }
        let typed = function.typed(name, &types, side);
        let (given, price) = typed.map_err(|d| Diagnostic { at: at_inst(f, i), ..d })?;
        if given != *written {
            let kind = if given.dtype == written.dtype { Kind::Shape } else { Kind::DType };
            return Err(wrong(kind, format!("the result of `{name}` is {given}, not {written}")));
        }
        match price.scratch <= MAX_BYTES {
            true => Ok(price),
            false => {
                let m = format!("{} bytes of scratch, the limit is {MAX_BYTES}", price.scratch);
                Err(wrong(Kind::Limit, m))
            }
        }
    }

    /// What a GPU launches for a call with operands of these types.
    pub(crate) fn kernel_call(
        &self,
        name: &str,
        types: &[TensorType],
    ) -> Result<KernelCall, Diagnostic> {
        let wrong = || Diagnostic::new(At::default(), Kind::UnknownName, unknown(name));
        self.get(name).ok_or_else(wrong)?.kernel(name, types)?.call(types)
    }

    /// Calls a function on arrays.
    pub(crate) fn evaluate(&self, name: &str, args: &[Array]) -> Result<Array, Diagnostic> {
        let wrong = |kind, m| Diagnostic::new(At::default(), kind, m);
        let function = self.get(name).ok_or_else(|| wrong(Kind::UnknownName, unknown(name)))?;
        let types: Vec<TensorType> = args.iter().map(Array::ty).collect();
        let (ty, price) = function.typed(name, &types, CallSide::Host)?;
        let dims = ty.dims().unwrap_or_default();
        let tensors: Vec<TensorRef<'_>> = args
            .iter()
            .map(|a| TensorRef { dtype: a.dtype(), dims: a.dims(), bytes: a.bytes() })
            .collect();
        let size = ty.bytes().ok_or_else(|| out_of_memory(u64::MAX))?;
        let mut out = Bytes::zeroed(ty.dtype.bytes() as usize, size)?;
        let wanted = price.scratch;
        let mut scratch = Bytes::zeroed(8, wanted)?;
        let result = TensorMut { dtype: ty.dtype, dims: &dims, bytes: &mut out };
        let scratch = &mut scratch[..wanted as usize];
        function.call(name, &mut Call { args: &tensors, result, scratch })?;
        Ok(Array::from_bytes(ty.dtype, &dims, out))
    }
}

/// The error for operands that a function refuses.
fn misfit(name: &str, types: &[TensorType], why: &str) -> String {
    let types: Vec<String> = types.iter().map(ToString::to_string).collect();
    format!("`{name}` does not take ({}): {why}", types.join(", "))
}

/// The error for an unknown name.
pub(crate) fn unknown(name: &str) -> String {
    format!("there is no function `{name}` among those that the engine was given")
}

impl LibraryFunctions for Registry {
    fn call(&mut self, name: &str, inputs: &[Array]) -> Option<Result<Vec<Array>, Diagnostic>> {
        self.get(name)?;
        Some(self.evaluate(name, inputs).map(|array| vec![array]))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
