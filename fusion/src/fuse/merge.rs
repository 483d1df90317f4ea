//! Horizontal fusion: contractions that share an operand run as one.

use super::groups::Groups;
use super::inline::bytes;
use super::part::PartId;
use crate::analysis::class::PartKind;
use crate::analysis::facts::Facts;
use crate::analysis::leaves::{leaves, order};
use crate::plan::machine_model::MachineModel;
use adfuse_ir::Value;
use adfuse_ir::attrs::Ints;
use cranelift_entity::{EntityRef, SecondaryMap};
use hashbrown::HashMap;

/// What contractions share: an operand, which one, and the roles of its axes.
type SharedOperand = (Value, usize, Ints, Ints);

/// Results that are written in less time than this many launches take are too small to be products of their own: a launch
/// more costs time, and they take little memory.
const LAUNCHES: f64 = 8.0;

/// The most contractions of one step.
const MOST: usize = 8;

/// The parts in the order in which they run, those that run as one together.
pub(crate) fn merged(
    facts: &Facts<'_>,
    groups: &Groups,
    device: &MachineModel,
) -> Vec<Vec<PartId>> {
    let large = LAUNCHES * device.launch_s * device.memory_bytes_per_s;
    let mut position: SecondaryMap<PartId, usize> = SecondaryMap::new();
    let mut bundle: Vec<Vec<PartId>> = Vec::new();
    let mut bundle_of: SecondaryMap<PartId, usize> = SecondaryMap::new();
    let mut first: HashMap<SharedOperand, usize> = HashMap::new();
    for (p, part) in groups.parts.iter() {
        position[p] = p.index();
        let PartKind::Contract(i) = part.shape else {
            bundle_of[p] = bundle.len();
            bundle.push(vec![p]);
            continue;
        };
        let attrs = facts.f.attrs(i);
        let (batch, contract) = (attrs.pair("batch"), attrs.pair("contract"));
        let key = |k: usize| -> SharedOperand {
            let pick = |pair: (&[i64], &[i64])| Ints::from_slice([pair.0, pair.1][k]);
            (facts.f.args(i)[k], k, pick(batch), pick(contract))
        };
        let keys = [key(0), key(1)];
        let joined = keys.iter().find_map(|key| {
            let b = *first.get(key)?;
            // What computes something again does not run before it is wanted.
            let late = bundle[b].iter().all(|&q| groups.last[q] >= groups.since[p]);
            let fits = late && bundle[b].len() < MOST && shares(facts, groups, &bundle[b], key);
            let to = fits.then(|| together(facts, groups, &bundle[b], p, &position)).flatten()?;
            let ended = |&q: &PartId| {
                ends_before(facts, groups, (q, p), bytes(facts, key.0).max(large), &position)
            };
            (to != position[bundle[b][0]] || !bundle[b].iter().any(ended)).then_some((b, to))
        });
        match joined {
            Some((b, to)) => {
                bundle[b].push(p);
                bundle_of[p] = b;
                for &q in &bundle[b] {
                    position[q] = to;
                }
            }
            None => {
                bundle_of[p] = bundle.len();
                bundle.push(vec![p]);
            }
        }
        for key in keys {
            first.entry(key).or_insert(bundle_of[p]);
        }
    }
    bundle.sort_by_key(|b| (position[b[0]], b[0]));
    bundle
}

/// Whether all contractions of a bundle have what a key names.
fn shares(facts: &Facts<'_>, groups: &Groups, bundle: &[PartId], key: &SharedOperand) -> bool {
    bundle.iter().all(|&q| match groups.parts[q].shape {
        PartKind::Contract(j) => {
            let attrs = facts.f.attrs(j);
            let pick = |pair: (&[i64], &[i64])| Ints::from_slice([pair.0, pair.1][key.1]);
            let roles = (pick(attrs.pair("batch")), pick(attrs.pair("contract")));
            facts.f.args(j)[key.1] == key.0 && roles == (key.2.clone(), key.3.clone())
        }
        _ => false,
    })
}

/// Whether a part's result is read for the last time before another part runs, and takes more bytes than what running both
/// at once saves: the second result would not have the place of the first.
fn ends_before(
    facts: &Facts<'_>,
    groups: &Groups,
    (q, p): (PartId, PartId),
    saved: f64,
    position: &SecondaryMap<PartId, usize>,
) -> bool {
    let left = |v: Value| {
        let readers = groups.readers(v);
        let ended = !readers.is_empty() && readers.iter().all(|&r| position[r] < position[p]);
        ended && !facts.f.results().contains(&v) && bytes(facts, v) > saved
    };
    let mut made = groups.parts[q].members.iter().flat_map(|&i| facts.f.inst_results(i));
    made.any(|&v| left(v))
}

/// The position at which a part can run together with a bundle: that of the bundle, when the part
/// needs nothing later; the part's own, when nothing needs the bundle before.
fn together(
    facts: &Facts<'_>,
    groups: &Groups,
    bundle: &[PartId],
    p: PartId,
    position: &SecondaryMap<PartId, usize>,
) -> Option<usize> {
    let at = position[bundle[0]];
    let needs = |q: PartId| {
        let members = groups.parts[q].members.iter();
        members
            .flat_map(|&i| leaves(facts, i).into_iter().chain(order(facts, i)))
            .filter_map(|v| groups.home[v])
            .filter(move |&h| h != q)
    };
    // A bundle moved later runs at the position of its last, so what is before it is strictly so.
    if needs(p).all(|h| position[h] < at) {
        return Some(at);
    }
    let to = position[p];
    let early = |&q: &PartId| {
        let made = groups.parts[q].members.iter().map(|&i| facts.f.inst_results(i)[0]);
        let waits = |v| groups.readers(v).iter().chain(&groups.waiting[v]);
        made.into_iter().all(|v| waits(v).all(|&r| r == q || position[r] > to))
    };
    (bundle.iter().all(early) && needs(p).all(|h| !bundle.contains(&h))).then_some(to)
}
