//! `Derived`: transformations one after the other, of any order.
//!
//! A transformation applies the custom rules of the calls that it pushes a tangent through; other
//! calls of functions with a rule stay, since a later one may need the rule. So a function on its way
//! is held together with what it calls, and calls are replaced when the last transformation is done.

use crate::closed::closed;
use crate::forward::Pushing;
use crate::reverse::{BACKWARD, FORWARD_AND_BACKWARD, GRAD, HAS_AUX, VALUE_AND_GRAD, VJP};
use crate::root::{explained, with_root_rules};
use crate::vmap::{Batching, Callees};
use crate::{jacobian, jvp, linear_transpose, linearize, reverse, vmap};
use adfuse_ir::{Diagnostic, Function, Module};

/// A function and what it calls, for one transformation after another:
/// `Derived::new(&module, f).grad(&[0])?.jvp(&[0])?.finish()?`.
///
/// Each gives what the function of the same name in this crate gives. A chain keeps the meaning of
/// custom rules at every order; calling those functions on each other's results keeps it only for
/// programs without rules inside of rules, since what they give calls nothing.
#[derive(Clone, Debug)]
pub struct Derived {
    callees: Module,
    f: Function,
}

impl Derived {
    /// A verified module's function, not transformed yet.
    pub fn new(module: &Module, f: &Function) -> Derived {
        Derived { callees: with_root_rules(module.reached(f)), f: f.clone() }
    }

    /// The function so far. It may call functions that have a custom rule.
    pub fn function(&self) -> &Function {
        &self.f
    }

    /// The functions that the function so far may call, with their rules and what those need; others may be among them.
    pub fn callees(&self) -> &Module {
        &self.callees
    }

    /// The function without calls.
    ///
    /// # Errors
    /// If inlining gives too many instructions.
    pub fn finish(self) -> Result<Function, Diagnostic> {
        closed(&self.callees, self.f)
    }

    /// As [`jvp`](fn@crate::jvp), of the function so far.
    ///
    /// # Errors
    /// As [`jvp`](fn@crate::jvp).
    pub fn jvp(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        self.then(|module, f| jvp::open(module, f, wrt))
    }

    /// As [`vjp`](crate::vjp), of the function so far.
    ///
    /// # Errors
    /// As [`vjp`](crate::vjp).
    pub fn vjp(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        self.then(|module, f| reverse::open(module, f, wrt, VJP))
    }

    /// As [`grad`](crate::grad), of the function so far.
    ///
    /// # Errors
    /// As [`grad`](crate::grad).
    pub fn grad(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        self.then(|module, f| reverse::open(module, f, wrt, GRAD))
    }

    /// As [`value_and_grad`](crate::value_and_grad), of the function so far.
    ///
    /// # Errors
    /// As [`value_and_grad`](crate::value_and_grad).
    pub fn value_and_grad(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        self.then(|module, f| reverse::open(module, f, wrt, VALUE_AND_GRAD))
    }

    /// As [`value_and_grad_has_aux`](crate::value_and_grad_has_aux), of the function so far.
    ///
    /// # Errors
    /// As [`value_and_grad_has_aux`](crate::value_and_grad_has_aux).
    pub fn value_and_grad_has_aux(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        self.then(|module, f| reverse::open(module, f, wrt, HAS_AUX))
    }

    /// As [`forward_and_backward`](crate::forward_and_backward), of the function so far.
    ///
    /// # Errors
    /// As [`vjp`](crate::vjp).
    pub fn forward_and_backward(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        self.then(|module, f| reverse::open(module, f, wrt, FORWARD_AND_BACKWARD))
    }

    /// As [`backward`](crate::backward), of the function so far.
    ///
    /// # Errors
    /// As [`vjp`](crate::vjp).
    pub fn backward(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        self.then(|module, f| reverse::open(module, f, wrt, BACKWARD))
    }

    /// As [`linearize`](fn@crate::linearize), of the function so far: `x.. -> (y.., residuals..)`, and
    /// `(residuals.., t..) -> ty..`, which is linear in the tangents.
    ///
    /// # Errors
    /// As [`jvp`](fn@crate::jvp).
    pub fn linearize(self, wrt: &[usize]) -> Result<[Derived; 2], Diagnostic> {
        let split = linearize::open(&self.callees, &self.f, wrt, Pushing::Linear, usize::MAX);
        self.halves(split.map(|split| [split.primal, split.linear]))
    }

    /// The two parts of [`vjp`](crate::vjp), of the function so far: `x.. -> (y.., residuals..)`, and
    /// `(residuals.., ct..) -> x_ct..`, which is linear in the cotangents.
    ///
    /// # Errors
    /// As [`vjp`](crate::vjp).
    pub fn pullback(self, wrt: &[usize]) -> Result<[Derived; 2], Diagnostic> {
        let split = reverse::halves(&self.callees, &self.f, wrt);
        self.halves(split)
    }

    /// As [`vmap`](fn@crate::vmap), of the function so far.
    ///
    /// # Errors
    /// As [`vmap`](fn@crate::vmap).
    pub fn vmap(self, batching: &Batching) -> Result<Derived, Diagnostic> {
        let mut callees = Callees::default();
        let f = vmap::open(&self.callees, &self.f, batching, &mut callees);
        self.with(f, callees)
    }

    /// As [`linear_transpose`](fn@crate::linear_transpose), of the function so far.
    ///
    /// # Errors
    /// As [`linear_transpose`](fn@crate::linear_transpose).
    pub fn linear_transpose(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        self.then(|module, f| linear_transpose::open(module, f, wrt))
    }

    /// As [`hvp`](crate::hvp), of the function so far.
    ///
    /// # Errors
    /// As [`hvp`](crate::hvp).
    pub fn hvp(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        let name = format!("{}_hvp", self.f.name);
        let mut pushed = self.backward(wrt)?.jvp(wrt)?;
        // The gradients come first; the products are their tangents.
        let products = pushed.f.results()[wrt.len()..].to_vec();
        jacobian::set_results(&mut pushed.f, products);
        pushed.f.name = name;
        Ok(pushed)
    }

    /// As [`jacfwd`](crate::jacfwd), of the function so far.
    ///
    /// # Errors
    /// As [`jacfwd`](crate::jacfwd).
    pub fn jacfwd(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        let mut callees = Callees::default();
        let f = jacobian::forward(&self.callees, &self.f, wrt, &mut callees);
        self.with(f, callees)
    }

    /// As [`jacrev`](crate::jacrev), of the function so far.
    ///
    /// # Errors
    /// As [`jacrev`](crate::jacrev).
    pub fn jacrev(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        let mut callees = Callees::default();
        let f = jacobian::reverse(&self.callees, &self.f, wrt, &mut callees);
        self.with(f, callees)
    }

    /// As [`hessian`](crate::hessian), of the function so far.
    ///
    /// # Errors
    /// As [`hessian`](crate::hessian).
    pub fn hessian(self, wrt: &[usize]) -> Result<Derived, Diagnostic> {
        jacobian::blocks_fit(&self.f, wrt, 2)?;
        let name = format!("{}_hessian", self.f.name);
        let mut blocks = self.jacrev(wrt)?.jacfwd(wrt)?;
        blocks.f.name = name;
        Ok(blocks)
    }

    fn then(
        self,
        transform: impl FnOnce(&Module, &Function) -> Result<Function, Diagnostic>,
    ) -> Result<Derived, Diagnostic> {
        let f = transform(&self.callees, &self.f).map_err(|d| explained(&self.callees, d))?;
        Ok(Derived { callees: self.callees, f })
    }

    fn halves(self, split: Result<[Function; 2], Diagnostic>) -> Result<[Derived; 2], Diagnostic> {
        let halves = split.map_err(|d| explained(&self.callees, d))?;
        Ok(halves.map(|f| Derived { callees: self.callees.clone(), f }))
    }

    fn with(
        mut self,
        f: Result<Function, Diagnostic>,
        made: Callees,
    ) -> Result<Derived, Diagnostic> {
        let f = f.map_err(|d| explained(&self.callees, d))?;
        for callee in made.made {
            self.callees.funcs.push(callee);
        }
        Ok(Derived { callees: self.callees, f })
    }
}
