//! Effects, and functions of the engine's user.

use super::record::apply_all;
use super::{Tensor, Tracer};
use crate::ir::attrs::{Attr, Attrs};
use crate::ir::{Op, TensorType};

/// A function of the engine's user, and what a call of it costs beside operands and result.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpaqueFunction {
    /// Its name in the engine's registry.
    pub name: String,
    /// The name of the function over a batch; empty if there is none.
    pub batched: String,
    /// Operations of a call.
    pub operations: i64,
    /// Bytes that it reads and writes beside operands and result.
    pub bytes: i64,
    /// Bytes of scratch memory.
    pub scratch: i64,
}

impl OpaqueFunction {
    /// The function of this name, whose costs are not told.
    pub fn new(name: &str) -> OpaqueFunction {
        OpaqueFunction { name: name.into(), ..OpaqueFunction::default() }
    }
}

impl Tracer {
    /// Starts a chain of effects. Effects happen in the order of the trace, each once, whatever is computed again.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("f", |t| {
    ///     let x = t.input("x", f32s([2]));
    ///     let _ = x.debug_print(&t.create_token(), "x");
    ///     x.exp()
    /// })?;
    /// assert!(f.to_string().contains("debug_print"));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn create_token(&self) -> Tensor {
        self.apply(Op::CreateToken, &[], Attrs::none(), None)
    }

    /// The results of a function that the engine's user gives under a name. It is pure, unless its first operand is a
    /// token: then it may act, is called once and in the order of tokens, and its results are a token and a tensor.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::trace::OpaqueFunction;
    /// let f = trace("f", |t| {
    ///     let x = t.input("x", f32s([2]));
    ///     t.opaque(&OpaqueFunction::new("mine"), &[&x], &[x.ty()]).remove(0)
    /// })?;
    /// assert!(f.to_string().contains("opaque %x"));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn opaque(
        &self,
        function: &OpaqueFunction,
        args: &[&Tensor],
        results: &[TensorType],
    ) -> Vec<Tensor> {
        let attrs = Attrs::none()
            .with("name", Attr::Str(function.name.clone()))
            .with("batched", Attr::Str(function.batched.clone()))
            .with_int("operations", function.operations)
            .with_int("bytes", function.bytes)
            .with_int("scratch", function.scratch);
        apply_all(&self.state, Op::Opaque, args, attrs, Some(results))
    }
}

impl Tensor {
    /// Writes the tensor to the error stream, or to the sink of [`with_effects`](crate::backends::with_effects), after what
    /// gave the token; the next effect takes the token that this gives.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("f", |t| {
    ///     let (x, y) = (t.input("x", f32s([2])), t.input("y", f32s([2])));
    ///     let after_x = x.debug_print(&t.create_token(), "x");
    ///     let _ = y.debug_print(&after_x, "y");
    ///     x + y
    /// })?;
    /// # assert!(f.to_string().contains("label = \"y\""));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn debug_print(&self, token: &Tensor, label: &str) -> Tensor {
        let attrs = Attrs::none().with("label", Attr::Str(label.into()));
        self.tracer().apply(Op::DebugPrint, &[token, self], attrs, None)
    }
}
