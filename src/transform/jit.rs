//! Functions on arrays: a Rust function of tensors, traced and compiled when arguments of new types arrive.

use crate::backends::Array;
use crate::backends::backend::Executable;
use crate::device::{ArgumentKey, Device, ProgramCache};
use crate::ir::{At, Diagnostic, Kind, TensorType};
use crate::trace::closure::input_name;
use crate::trace::{Tensor, Traced, trace_like};
use crate::tree::{Leaf, Params, count, leaves, map, rebuild};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock};

/// The device of functions that are not told another: the CPU with all its threads, one for the whole process.
static DEVICE: LazyLock<Device> = LazyLock::new(Device::cpu);

/// A function of tensors as a function of arrays. See [`Jit::call`].
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
///
/// let f = adfuse::jit(|(x, y): (Tensor, Tensor)| (&x + &y, x.dot(&y)));
/// let x = Array::from_f32s(&[2], &[1.0, 2.0])?;
/// let y = Array::from_f32s(&[2], &[3.0, 4.0])?;
/// let (sum, product) = f.call(&(x, y))?;
/// assert_eq!(sum.to_f64s(), [4.0, 6.0]);
/// assert_eq!(product.to_f64s(), [11.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
pub fn jit<A, R, F>(f: F) -> Jit<F, A, R>
where
    A: Params<Tensor>,
    R: Params<Tensor>,
    F: Fn(A) -> R,
{
    Jit { f, name: "jit".into(), device: None, kept: ProgramCache::new(), signature: PhantomData }
}

/// A Rust function with the programs that are compiled of it, one for each tuple of argument types. It may be called
/// from several threads; where two first calls have the same types, one of them compiles.
pub struct Jit<F, A, R: Params<Tensor>> {
    f: F,
    name: String,
    device: Option<Device>,
    kept: ProgramCache<ArgumentKey, JitProgram<R::With<Array>>>,
    signature: PhantomData<fn(A) -> R>,
}

struct JitProgram<P> {
    executable: Arc<dyn Executable>,
    /// A tree like the results.
    like: P,
}

impl<F, A, R: Params<Tensor>> Jit<F, A, R> {
    /// The name of the traced function, which messages and plans show; an identifier.
    pub fn named(mut self, name: impl Into<String>) -> Jit<F, A, R> {
        self.name = name.into();
        self
    }

    /// The function on another device, or with other settings. Programs so far are forgotten.
    pub fn on(self, device: Device) -> Jit<F, A, R> {
        Jit { device: Some(device), kept: ProgramCache::new(), ..self }
    }

    /// How many programs there are.
    pub fn programs(&self) -> usize {
        self.kept.len()
    }
}

impl<F, A, R> Jit<F, A, R>
where
    A: Params<Tensor>,
    R: Params<Tensor>,
    F: Fn(A) -> R,
{
    /// The results of the function for these arguments. Where their types are new the function is traced, planned and
    /// compiled, and the program is kept. Two trees of arguments are alike where they have leaves of the same types and
    /// equal [structures](crate::tree::structure): what else a tree has, such as settings beside parameters, is that of the first of them.
    ///
    /// # Errors
    /// The first operation whose operands do not fit, with its place in the Rust source; then as [`Device::compile`] and
    /// [`Executable::run`].
    pub fn call(&self, args: &A::With<Array>) -> Result<R::With<Array>, Diagnostic> {
        let given: Vec<Array> = leaves(args);
        let key = ArgumentKey::of(args, &given);
        let program = self.kept.get_or_make(key, || self.compiled(args))?;
        let results = program.executable.run(&given)?;
        if results.len() != count(&program.like) {
            let m = format!("{} results of {}", results.len(), count(&program.like));
            return Err(Diagnostic::new(At::default(), Kind::Internal, m));
        }
        Ok(rebuild(&program.like, results))
    }

    /// The function traced with arguments of these types, whose names are the paths of the leaves.
    ///
    /// # Errors
    /// The first operation whose operands do not fit, with its place in the Rust source.
    pub fn traced(&self, types: &A::With<TensorType>) -> Result<Traced, Diagnostic> {
        Ok(self.trace_with(types, TensorType::clone)?.0)
    }

    /// The report of the plan for arguments of these types: what [`page`](crate::report::page) draws.
    ///
    /// # Errors
    /// As [`Jit::call`] has them of the trace and of the plan.
    #[cfg(feature = "report")]
    pub fn report(&self, types: &A::With<TensorType>) -> Result<crate::report::Report, Diagnostic> {
        let device = self.device.as_ref().unwrap_or_else(|| &DEVICE);
        let origin = "a function traced from Rust".into();
        let request = crate::engine::ReportRequest { origin, ..Default::default() };
        device.report(&self.traced(types)?, &[], &request)
    }

    fn compiled(&self, args: &A::With<Array>) -> Result<JitProgram<R::With<Array>>, Diagnostic> {
        let (traced, like) = self.trace_with(args, Array::ty)?;
        let device = self.device.as_ref().unwrap_or_else(|| &DEVICE);
        let executable = device.compile(&traced)?.executable;
        Ok(JitProgram { executable, like })
    }

    /// The trace, and a tree like its results.
    fn trace_with<T: Leaf, P: Params<T, With<Tensor> = A>>(
        &self,
        args: &P,
        ty: impl Fn(&T) -> TensorType,
    ) -> Result<(Traced, R::With<Array>), Diagnostic> {
        trace_like(&self.name, |t| {
            (self.f)(map(args, |path, leaf| t.input(&input_name(path.as_str()), ty(leaf))))
        })
    }
}

impl<F, A, R: Params<Tensor>> fmt::Debug for Jit<F, A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit").field("name", &self.name).field("programs", &self.programs()).finish()
    }
}
