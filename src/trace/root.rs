//! Roots in traces: closures become a function with a `custom_root` and its residual.
//!
//! ```
//! use adfuse::autodiff::vjp;
//! use adfuse::prelude::*;
//!
//! // A layer whose output is its own input: z = tanh(W z + x).
//! let f = trace("equilibrium", |t| {
//!     let w = t.input("w", f64s([3, 3]));
//!     let x = t.input("x", f64s([3]));
//!     let layer = |z: &Tensor| (w.dot(z) + &x).tanh();
//!     let start = t.full(f64s([3]), 0.0);
//!     t.custom_root(
//!         start,
//!         |z| t.fori(0..50, z, |_, z| layer(&z)),
//!         |z| &z - layer(&z),
//!     )
//! })?;
//! let module = Module::single(f.clone());
//! assert_eq!(vjp(&module, &f, &[0, 1])?.results().len(), 3);
//! # Ok::<(), adfuse::ir::Diagnostic>(())
//! ```

use super::callee::named;
use super::closure::{ClosedRegion, ParamSlot};
use super::{Tensor, TraceState, Tracer, own_all, record_all};
use crate::ir::control::outline;
use crate::ir::{CustomRule, Kind, Op, Region, TensorType, Value};
use crate::tree::{Params, leaves, rebuild};
use std::panic::Location;

impl Tracer {
    /// A root that one closure finds from a guess: where the residual, another closure, is zero. Both are traced and
    /// may use tensors around them. Derivatives are those of the root by the implicit function theorem: they solve a
    /// linear system with the residual's Jacobian, do not go through what `solve` does, and are none by the guess.
    ///
    /// For a fixed point `x = g(x)` the residual is `x - g(x)`. Guess, root and residual are of the same float types.
    /// Where the residual depends on its unknown elementwise the system is a division; other Jacobians are dense, of
    /// as many rows as the unknowns have elements. A singular one gives infinities or NaN.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("root", |t| {
    ///     let a = t.input("a", f64s([]));
    ///     let newton = |x: Tensor| t.fori(0..20, x, |_, x| (&a / &x + x) * 0.5);
    ///     t.custom_root(t.full(f64s([]), 1.0), newton, |x| x.square() - &a)
    /// })?;
    /// assert_eq!(f.callees().len(), 2);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn custom_root<X: Params<Tensor>>(
        &self,
        guess: X,
        solve: impl FnOnce(X) -> X,
        residual: impl FnOnce(X) -> X,
    ) -> X {
        let place = Location::caller();
        let given = leaves(&guess);
        let types: Vec<TensorType> = given.iter().map(|t| t.ty.clone()).collect();
        if types.is_empty() || !types.iter().all(|t| t.dtype.is_float()) {
            let m = format!("a root is of float types, found {types:?}");
            self.fail(place, Kind::Usage, m);
        }
        let (solve, own) = self.unknowns(place, &guess, "the root", solve);
        let (residual, also) = self.unknowns(place, &guess, "the residual", residual);
        let own = own
            && also
            && own_all(&self.state, &given.iter().collect::<Vec<_>>(), place, "a guess");
        let mut out = record_all(&self.state, &types, |s| {
            if !own || s.error.is_some() {
                return None;
            }
            let guess: Vec<Value> = given.iter().map(|t| t.value).collect();
            s.b.set_phase(s.phase(&given.iter().collect::<Vec<_>>()));
            Some(s.root(&guess, &types, solve?, residual?))
        })
        .into_iter();
        rebuild(&guess, &mut out)
    }

    /// The region of a closure that is entered with and gives values of these types, and whether they are its own.
    fn unknowns<X: Params<Tensor>>(
        &self,
        place: &Location<'_>,
        guess: &X,
        what: &str,
        body: impl FnOnce(X) -> X,
    ) -> (Option<Region>, bool) {
        let types: Vec<TensorType> = leaves(guess).iter().map(|t| t.ty.clone()).collect();
        let (region, mut params) = self.opened(&types);
        let ends = leaves(&body(rebuild(guess, &mut params)));
        let found: Vec<TensorType> = ends.iter().map(|t| t.ty.clone()).collect();
        if found != types {
            let m = format!("a guess of types {types:?} has {what} of the same, found {found:?}");
            self.fail(place, Kind::Shape, m);
        }
        let own = own_all(&self.state, &ends.iter().collect::<Vec<_>>(), place, what);
        self.closed(region, &ends);
        (region, own)
    }
}

impl TraceState {
    /// A call of the function that finds the root, which comes along with its residual.
    fn root(
        &mut self,
        guess: &[Value],
        types: &[TensorType],
        solve: Region,
        residual: Region,
    ) -> Vec<Value> {
        let [solve, residual] =
            [solve, residual].map(|r| ClosedRegion { outlined: outline(self.b.func(), r) });
        let mut around = solve.outlined.captures.clone();
        let more = residual.outlined.captures.iter().filter(|v| !around.contains(v));
        let more: Vec<Value> = more.copied().collect();
        around.extend(more);
        let name = self.fresh(&format!("{}.root", self.b.func().name));
        let told = format!("{name}.residual");
        let f = self.b.func();
        let function = |name: &str, region: &ClosedRegion, unread: &[TensorType]| {
            let unread = unread.iter().map(|ty| ParamSlot::unread(ty.clone()));
            let captured = around.iter().map(|&v| region.captured(f, v));
            let slots: Vec<_> =
                region.entered().into_iter().chain(unread).chain(captured).collect();
            region.function(name, &slots, |_| Vec::new())
        };
        let mut root = function(&name, &solve, &[]);
        root.rule = Some(CustomRule::Root(told.clone()));
        // The residual takes the unknowns, then what the function takes.
        let residual = function(&told, &residual, types);
        let args = [guess, &around].concat();
        let attrs = named(&root);
        self.callees.extend([root, residual]);
        self.b.inst(Op::Call, &args, attrs, Some(types)).to_vec()
    }

    /// A name that no function of the trace has.
    pub(super) fn fresh(&self, wanted: &str) -> String {
        let taken = |name: &str| self.callees.iter().any(|f| f.name == name);
        let mut k = 0;
        loop {
            let name = format!("{wanted}{k}");
            if !taken(&name) && !taken(&format!("{name}.residual")) {
                return name;
            }
            k += 1;
        }
    }
}
