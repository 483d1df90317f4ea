//! Whether all ranks begin a training with the same state and the same first batch. Ranks that do not would train on without an
//! error, towards nothing.

use crate::backends::ranks::ranks_that_differ;
use crate::backends::{Array, RankGroup};
use crate::ir::{At, Diagnostic, Kind};
use sha2::{Digest, Sha256};

/// Bytes at either end of a tensor that are looked at: states that differ, differ there.
const ENDS: usize = 16 << 10;

/// The digest of arrays: of their types, and of the first and the last bytes of each.
pub(super) fn digest(arrays: &[Array]) -> [u8; 32] {
    let mut sum = Sha256::new();
    for array in arrays {
        let bytes = array.bytes();
        sum.update(array.ty().to_string());
        sum.update(&bytes[..bytes.len().min(ENDS)]);
        sum.update(&bytes[bytes.len().saturating_sub(ENDS)..]);
    }
    sum.finalize().into()
}

/// Asks the other ranks whether they have the same `what`, by what tells one from others.
///
/// # Errors
/// [`Kind::Usage`] where they do not, with the ranks that differ from the first; [`Kind::LostRank`] when one is gone.
pub(super) fn same_on_all(group: &RankGroup, what: &str, own: &[u8]) -> Result<(), Diagnostic> {
    let begin = ["begins", "begin"];
    let Some(who) = ranks_that_differ(&group.of_all(own)?, begin) else { return Ok(()) };
    let m = format!("{who} with another {what} than rank 0");
    let hint = "give all ranks the same seed, checkpoint and batches: each takes its rows of a batch by itself";
    Err(Diagnostic::new(At::default(), Kind::Usage, m).hint(hint))
}
