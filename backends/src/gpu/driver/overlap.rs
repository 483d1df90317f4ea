//! Exchanges while other work goes on: which steps wait for which exchange.
//!
//! An exchange is asked for in a stream of its own. A later step waits for it where the memory of the two meets, and the end of a
//! run waits for all. The layout keeps the memory of an exchange until later ones have begun (`adfuse_ir::kernel::lives`), and
//! programs exchange as soon as what is sent is there (`adfuse_ir::rewrite::exchanges_early`), so that exchanges have time.

use super::cuda::Refused;
use super::device::GpuDevice;
use super::event::Event;
use super::memory_range::MemoryRange;
use super::place::{Place, Places, aligned};
use super::work::Work;
use adfuse_ir::kernel::{ExchangeKind, Program, Step};
use std::sync::Arc;

/// What a step reads and writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Touched {
    /// An exchange between ranks.
    Exchange(Vec<MemoryRange>),
    /// Launches and copies.
    Straight(Vec<MemoryRange>),
    /// Whatever it may be.
    All,
}

impl Touched {
    /// Of a step whose scratch is that many bytes.
    pub(crate) fn of(
        (program, places): (&Program, &Places),
        (n, step, work): (usize, &Step, &Work),
        scratch: u64,
    ) -> Touched {
        let buffers = step.reads().chain(step.writes());
        let mut ranges: Vec<MemoryRange> = buffers
            .map(|b| MemoryRange::new(places.of(b), program.buffers[b].bytes()))
            .filter(|range| !range.is_empty())
            .collect();
        match work {
            Work::Exchange(work) if work.kind != ExchangeKind::Index => Touched::Exchange(ranges),
            work if work.is_straight() => {
                let place = Place::DeviceBlock(aligned(places.scratch[n]));
                ranges.extend((scratch > 0).then(|| MemoryRange::new(place, scratch)));
                Touched::Straight(ranges)
            }
            _ => Touched::All,
        }
    }
}

/// For each step the exchange, by its position, that is over before the step begins; those before it are over then too. `None`
/// where nothing is waited for. The last step but exchanges waits for all.
pub(crate) fn waits(touched: &[Touched]) -> Vec<Option<usize>> {
    let last = touched.iter().rposition(|t| !matches!(t, Touched::Exchange(_)));
    let mut under_way: Vec<(usize, &[MemoryRange])> = Vec::new();
    let mut found = Vec::new();
    for (n, step) in touched.iter().enumerate() {
        let meets = |ranges: &[MemoryRange], exchanged: &[MemoryRange]| {
            ranges.iter().any(|a| exchanged.iter().any(|b| a.meets(b)))
        };
        let over = match step {
            Touched::Exchange(ranges) => {
                under_way.push((n, ranges));
                None
            }
            Touched::All => under_way.len().checked_sub(1),
            Touched::Straight(_) if Some(n) == last => under_way.len().checked_sub(1),
            Touched::Straight(ranges) => under_way.iter().rposition(|(_, of)| meets(ranges, of)),
        };
        found.push(over.map(|k| under_way[k].0));
        if let Some(k) = over {
            under_way.drain(..=k);
        }
    }
    found
}

/// The exchanges of a program that go on beside other work.
pub(crate) struct ExchangeOverlap {
    /// For each step the exchange that is over before it begins.
    pub(crate) waits: Vec<Option<usize>>,
    /// For each exchange, the moment at which it is over.
    pub(crate) over: Vec<Option<Event>>,
    /// The moment at which the exchange that is asked for may begin.
    pub(crate) ready: Event,
}

impl ExchangeOverlap {
    /// Of a program whose steps touch these; `None` where ranks exchange nothing.
    pub(crate) fn of(
        device: &Arc<GpuDevice>,
        touched: &[Touched],
    ) -> Result<Option<ExchangeOverlap>, Refused> {
        let is_exchange = |t: &Touched| matches!(t, Touched::Exchange(_));
        if !touched.iter().any(is_exchange) {
            return Ok(None);
        }
        let over = touched.iter().map(|t| is_exchange(t).then(|| Event::new(device)).transpose());
        let over = over.collect::<Result<Vec<_>, _>>()?;
        let ready = Event::new(device)?;
        Ok(Some(ExchangeOverlap { waits: waits(touched), over, ready }))
    }

    /// The moment that a step waits for.
    pub(crate) fn over_before(&self, step: usize) -> Option<&Event> {
        self.over[self.waits[step]?].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(from: u64, bytes: u64) -> Vec<MemoryRange> {
        vec![MemoryRange::new(Place::DeviceBlock(from), bytes)]
    }

    #[test]
    fn steps_wait_where_memory_meets() {
        use Touched::{All, Exchange, Straight};
        let elsewhere = vec![MemoryRange::new(Place::Input(0, 0), 64)];
        let steps = [
            Straight(at(0, 64)),
            Exchange(at(0, 64)),
            Straight(at(64, 64)),
            Exchange(at(64, 64)),
            // Another memory, and the bytes after.
            Straight([elsewhere, at(128, 8)].concat()),
            // The first exchange alone.
            Straight(at(60, 4)),
            Straight(at(0, 64)),
            // The second, and so all before it.
            Straight(at(120, 64)),
            Exchange(at(0, 64)),
            All,
            Exchange(at(0, 8)),
            Straight(at(512, 8)),
            Exchange(at(0, 8)),
        ];
        let (n, w) = (None, Some);
        assert_eq!(waits(&steps), [n, n, n, n, n, w(1), n, w(3), n, w(8), n, w(10), n]);
    }
}
