//! User functions: written in Rust, in PTX for GPUs, or in both, and called by name from programs (`opaque` in text).
//!
//! An engine knows the functions of the [`Registry`] that it is given:
//! [`Device::functions`](crate::Device::functions), [`Cpu::functions`](crate::engine::Cpu::functions),
//! [`reference::run_with`](crate::backends::reference::run_with). There is no global registry. The
//! derivative is that of a function with a rule (`custom_jvp`, `custom_vjp`) that calls the opaque one. GPUs run the kernel
//! that a function brings ([`PtxKernel`]).
//!
//! ```
//! use adfuse::autodiff::grad;
//! use adfuse::functions::{CallPrice, Opaque, Registry};
//! use adfuse::ir::text::parse;
//! use adfuse::prelude::*;
//!
//! // A polynomial at a point, by a loop that no op is.
//! let horner = Opaque::new(
//!     |types| match types {
//!         [c, x] if c.rank() == 1 && x.rank() == 0 && c.dtype == DType::F64 => Ok(x.clone()),
//!         _ => Err("it takes coefficients and a point".into()),
//!     },
//!     |call| {
//!         let (c, x) = (call.args[0].elements::<f64>()?, call.args[1].elements::<f64>()?);
//!         call.result.elements::<f64>()?[0] = c.iter().rev().fold(0.0, |y, c| y * x[0] + c);
//!         Ok(())
//!     },
//! )
//! .priced(|types| CallPrice {
//!     operations: 2 * types[0].elements().unwrap_or(0),
//!     ..CallPrice::default()
//! });
//! let functions = Registry::new().with("horner", horner);
//!
//! // Its derivative in x is written in terms of itself: the polynomial of k c[k].
//! let module = parse(
//!     "func @loss(%c: f64[4], %x: f64[]) -> f64[] {
//!        %0 = call %c, %x {func = @poly} : f64[]
//!        return %0
//!      }
//!      func @poly<n>(%c: f64[n], %x: f64[]) -> f64[] custom_jvp(@poly.jvp) {
//!        %0 = opaque %c, %x {name = \"horner\"} : f64[]
//!        return %0
//!      }
//!      func @poly.jvp<n>(%c: f64[n], %x: f64[], %dc: f64[n], %dx: f64[]) -> (f64[], f64[]) {
//!        %y = call %c, %x {func = @poly} : f64[]
//!        %k = iota {axis = 0} : f64[n]
//!        %kc = mul %k, %c : f64[n]
//!        %above = call %kc, %x {func = @poly} : f64[]
//!        %slope = div %above, %x : f64[]
//!        %dy = mul %slope, %dx : f64[]
//!        return %y, %dy
//!      }",
//! )
//! .map_err(|errors| errors[0].clone())?;
//! verify(&module).map_err(|errors| errors[0].clone())?;
//! let slope = grad(&module, &module.funcs.values().next().unwrap(), &[1])?;
//!
//! let engine = Cpu { functions, ..Cpu::default() };
//! let made = engine.compile(&Module::single(slope.clone()), &slope)?;
//! // 1 + 2 x + 3 x^2 + 4 x^3 at 2 has the slope 2 + 6 * 2 + 12 * 4.
//! let c = Array::from_f64s(DType::F64, &[4], &[1.0, 2.0, 3.0, 4.0])?;
//! let x = Array::from_f64s(DType::F64, &[], &[2.0])?;
//! assert_eq!(made.run(&[c, x])?[0].to_f64s(), [62.0]);
//! # Ok::<(), Diagnostic>(())
//! ```

pub use crate::backends::functions::{
    Call, CallPrice, CallSide, Element, Opaque, PtxKernel, PtxSource, Registry, TensorMut,
    TensorRef,
};
