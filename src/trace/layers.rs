//! What layers find in a trace beside their arguments: whether it is training, random keys, and updates of running statistics.
//!
//! Layers stay functions of `&self`. A running mean is an input of the trace, and its layer says by [`Tensor::update`] what the input is for the
//! next step; who traces the step asks for all updates at the end ([`Tracer::updated`]).

use super::{Key, Tensor, Tracer, own_all};
use crate::ir::Kind;
use std::collections::BTreeSet;
use std::panic::Location;

impl Tracer {
    /// Has layers behave as in training: dropout drops by draws from this seed, a scalar `i64`, and statistics of batches are used and kept.
    ///
    /// ```
    /// use adfuse::prelude::*;
    ///
    /// let step = trace("step", |t| {
    ///     t.train(&t.input("seed", TensorType::scalar(DType::I64)));
    ///     assert!(t.is_training());
    ///     let (mean, x) = (t.input("mean", f32s([3])), t.input("x", f32s([8, 3])));
    ///     mean.update(&(&mean * 0.9 + x.mean(0) * 0.1));
    ///     let next = t.updated(&mean).expect("has been updated");
    ///     let (seed, number) = x.next_draw().expect("is training");
    ///     assert_eq!((seed.rank(), number), (0, 0));
    ///     next
    /// })?;
    /// assert_eq!(step.result_types()[0], f32s([3]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn train(&self, seed: &Tensor) {
        let place = Location::caller();
        if own_all(&self.state, &[seed], place, "a seed")
            && let Some(s) = self.state.borrow_mut().as_mut()
        {
            s.layers.seed = Some(seed.value);
        }
    }

    /// Whether layers behave as in training.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("f", |t| {
    ///     let x = t.input("x", f32s([3]));
    ///     assert!(!t.is_training());
    ///     x
    /// })?;
    /// # Ok::<(), Diagnostic>(())
    /// ```
    pub fn is_training(&self) -> bool {
        self.state.borrow().as_ref().is_some_and(|s| s.layers.seed.is_some())
    }

    /// How many inputs have been updated.
    pub(crate) fn update_count(&self) -> usize {
        let state = self.state.borrow();
        let updates = state.as_ref().map(|s| s.layers.updates.iter().map(|(from, _)| *from));
        updates.map_or(0, |from| from.collect::<BTreeSet<_>>().len())
    }

    /// What an input is in the next step, where a layer has said so ([`Tensor::update`]).
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("f", |t| {
    ///     let x = t.input("x", f32s([3]));
    ///     assert!(t.updated(&x).is_none());
    ///     x
    /// })?;
    /// # Ok::<(), Diagnostic>(())
    /// ```
    pub fn updated(&self, input: &Tensor) -> Option<Tensor> {
        let state = self.state.borrow();
        let updates = &state.as_ref()?.layers.updates;
        let (_, to) = updates.iter().rev().find(|(from, _)| *from == input.value)?;
        Some(Tensor { value: *to, ..input.clone() })
    }
}

impl Tensor {
    /// The seed of this trace's random draws, and a number that no draw before had; `None` where the trace is not of training.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("f", |t| {
    ///     let x = t.input("x", f32s([3]));
    ///     assert!(x.next_draw().is_none());
    ///     x
    /// })?;
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn next_draw(&self) -> Option<(Tensor, i64)> {
        let place = Location::caller();
        let mut state = self.state.borrow_mut();
        let s = state.as_mut()?;
        let seed = s.layers.seed?;
        if s.layers.loops > 0 {
            let m = "a layer draws random numbers inside of a loop, where every step would draw the same: use a key that the loop carries";
            s.fail(place, Kind::Usage, m.into());
        }
        let number = s.layers.draws;
        s.layers.draws += 1;
        let ty = s.b.ty(seed).clone();
        Some((Tensor { state: self.state.clone(), value: seed, ty }, number))
    }

    /// Says what this input is in the next step, as running statistics are. It has the same type, and nothing happens where the trace is not
    /// of training.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("f", |t| {
    ///     let x = t.input("x", f32s([3]));
    ///     x.update(&x.exp());
    ///     x
    /// })?;
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn update(&self, next: &Tensor) {
        let place = Location::caller();
        if !own_all(&self.state, &[next], place, "an update") {
            return;
        }
        let mut state = self.state.borrow_mut();
        let Some(s) = state.as_mut().filter(|s| s.layers.seed.is_some() && s.error.is_none())
        else {
            return;
        };
        if self.ty != next.ty {
            let m = format!("an update of {} is {}", self.ty, next.ty);
            s.fail(place, Kind::Shape, m);
        } else if s.b.func().params().iter().all(|&p| p != self.value) {
            s.fail(place, Kind::Usage, "only inputs of a trace are updated".into());
        } else if s.b.is_nested() {
            let m = "an input is updated inside of a loop, a branch or a transformed function: return the value from there, and update outside";
            s.fail(place, Kind::Usage, m.into());
        } else {
            s.layers.updates.push((self.value, next.value));
        }
    }
}

impl Tensor {
    /// A key for random draws of this step of training, unlike all others: steps draw anew, and a step that is computed again, or resumed, draws
    /// the same. `None` where the trace is not of training.
    ///
    /// ```
    /// use adfuse::prelude::*;
    ///
    /// /// With noise in training.
    /// fn noisy(x: &Tensor) -> Tensor {
    ///     match x.next_key() {
    ///         Some(key) => x + key.normal(x.ty()) * 0.1,
    ///         None => x.clone(),
    ///     }
    /// }
    /// assert_eq!(evaluate(|t| noisy(&t.constant([1.0])))?.to_f64s(), [1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn next_key(&self) -> Option<Key> {
        self.next_draw().map(|(seed, number)| Key::numbered(&seed, number))
    }
}

impl Tracer {
    /// What the closure gives, as part of a loop: its instructions run many times.
    pub(super) fn in_loop<R>(&self, body: impl FnOnce() -> R) -> R {
        let count = |by: fn(u32) -> u32| {
            if let Some(s) = self.state.borrow_mut().as_mut() {
                s.layers.loops = by(s.layers.loops);
            }
        };
        count(|n| n + 1);
        let out = body();
        count(|n| n.saturating_sub(1));
        out
    }
}
