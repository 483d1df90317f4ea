//! Steps that were asked for, of which the caller has not seen the loss yet.

use super::objective::{AuxArrays, Objective};
use crate::backends::{Array, Resident};
use crate::ir::{At, Diagnostic, Kind};
use crate::tree;
use std::sync::Arc;

/// A step that [`TrainState::queue`](super::TrainState::queue) asked for: its loss and the other values are on the device, in memory that no
/// budget counts until they are taken or dropped.
#[must_use = "only its report says whether the step ran"]
pub struct QueuedStep<R: Objective> {
    /// The loss, then the other values.
    pub(super) values: Vec<Resident>,
    /// The other values, with arrays in place of those.
    pub(super) aux: Arc<AuxArrays<R>>,
}

impl<R: Objective> QueuedStep<R> {
    /// Waits for the step: the loss before the update, and the other values that the closure returns.
    ///
    /// # Errors
    /// Where the program failed while it ran: the state is lost then, as all later steps report. Of several ranks, [`Kind::LostRank`] when one is gone.
    pub fn report(self) -> Result<R::Report, Diagnostic> {
        let mut values = self.values.into_iter();
        let missing =
            || Diagnostic::new(At::default(), Kind::Internal, "a step gave too few results");
        let loss = values.next().ok_or_else(missing)?.into_array()?;
        let aux: Vec<Array> = values.map(Resident::into_array).collect::<Result<_, _>>()?;
        Ok(R::report(loss.get(0).to_f64(), tree::rebuild(&*self.aux, aux)))
    }
}
