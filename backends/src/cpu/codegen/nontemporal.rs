//! Nontemporal stores, for outputs of light sweeps that exceed the last-level cache.
//!
//! A line that is stored whole need not be read first, and evicts nothing from the cache. That pays only where memory
//! is the limit. Such stores are aligned whole vectors, so a line begins with a partial group up to the first aligned
//! vector. If several outputs are not aligned together, stores are plain. A fence before the return orders them.

use super::interleave::LIGHT;
use super::loop_ir::{Access, GuardedSource, LoopNest, ParamRead, VectorAccess};
use super::loop_program::{GroupWrite, LoopVal};
use super::program_builder::ProgramBuilder;
use adfuse_ir::kernel::volume;
use std::sync::OnceLock;

/// Bytes of a last level of cache, where the system does not tell.
const USUAL: u64 = 32 << 20;

/// Groups of a line at least: its first elements and its last are stored as ever.
const LEAST_GROUPS: i64 = 16;

/// Elements of the narrowest groups that stores past the caches are for.
const LEAST_LANES: u32 = 8;

/// Bytes of the host's last level of cache, as the system tells it (`32768K`).
pub(crate) fn last_level() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let told = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size");
        told.ok().and_then(|text| bytes(text.trim())).unwrap_or(USUAL)
    })
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|&n| n > 0)
}

/// The outputs of a sweep that go past the caches.
pub(crate) fn outputs(p: &LoopNest, lanes: u32) -> Vec<bool> {
    let places = volume(&p.walk.extents).unsigned_abs();
    let line = p.line_length();
    let able = p.order.len() < LIGHT && lanes >= LEAST_LANES;
    let able = able && line >= LEAST_GROUPS * i64::from(lanes);
    // What reads rows, tiles or sums is called for a batch at a time, and would wait for each.
    let batch = |w: &GuardedSource| w.from.array().is_some_and(|a| !a.buffer);
    // Groups that are aligned to something else are not aligned to vectors of the outputs.
    let able = able && !p.packed() && p.grid().is_none() && p.folds.iter().all(Option::is_none);
    let able = able && !p.reads.iter().flat_map(ParamRead::sources).any(batch);
    let nontemporal = |(a, reach): (&Access, &VectorAccess)| {
        let dense = a.buffer && *reach == VectorAccess::Even && p.step(a.form) == 1;
        let bytes = a.dtype.bytes();
        able && dense && bytes >= 4 && places.saturating_mul(bytes) > last_level()
    };
    p.writes.iter().zip(&p.stores).map(nontemporal).collect()
}

impl ProgramBuilder<'_> {
    /// The outputs that go past the caches: where the element of coordinate 0 is, and its bytes.
    pub(crate) fn nontemporal_outputs(&self) -> Vec<(LoopVal, i64)> {
        let far = self.writes.iter().filter_map(|w| match *w {
            GroupWrite::Even { dtype, pointer, nontemporal: true, .. } => {
                Some((pointer, dtype.bytes() as i64))
            }
            _ => None,
        });
        far.collect()
    }

    /// How many bytes past a multiple of a vector the element of a coordinate is.
    pub(crate) fn past_vector(&mut self, (pointer, bytes): (LoopVal, i64), at: LoopVal) -> LoopVal {
        let offset = self.mul(at, bytes);
        let address = self.add(pointer, offset);
        self.rem(address, i64::from(self.lanes) * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_the_system_tells_them() {
        assert_eq!(bytes("32768K"), Some(32 << 20));
        assert_eq!(bytes("8M"), Some(8 << 20));
        assert_eq!(bytes("512"), Some(512));
        for odd in ["", "K", "0K", "12Q", "-3K", "99999999999999999999K"] {
            assert_eq!(bytes(odd), None, "{odd}");
        }
        assert!(last_level() > 0);
    }
}
