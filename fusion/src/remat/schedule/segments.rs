//! Schedules by segments: phase 0 as a chain of segments between narrow points.
//!
//! Apart from inputs and from what later phases read, some points in the order of phase 0 are crossed by a single
//! value, or by fewer bytes than their neighbours. They separate the segments. The sets that a segment may keep for its
//! backward part are the corners of its own minimum cut ([`residuals`]), found once for equal segments. A dynamic
//! program ([`Chain`]) decides where to save along the chain, for all amounts of memory at once. It rounds bytes and
//! leaves out what backward parts compute, so its schedules are measured like any other.

use super::chain_dp::{Chain, ChainStep, Keep, Link};
use super::cost_graph::{CostGraph, OpId, OpRole, Operation};
use super::local_search::ParetoArchive;
use super::residuals::residuals;
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use std::collections::BTreeMap;

/// Chains that are solved: the most blocks, the part of the memory that saving all takes (1 over the
/// number), and the units into which that is divided. Where there is little memory, blocks must be short
/// and units small.
const CHAINS: [(usize, u64, u32); 2] = [(40, 1, 400), (80, 8, 200)];
/// Cuts for the sets that a block may keep.
const CUTS: usize = 10;

/// Offers the schedules of chains for all amounts of memory.
pub(crate) fn offer(g: &CostGraph, archive: &mut ParetoArchive<'_>) {
    for (most, part, units) in CHAINS {
        if let Some(blocks) = SegmentPlan::of(g, most) {
            offer_chain(g, archive, &blocks, part, units);
        }
    }
}

fn offer_chain(
    g: &CostGraph,
    archive: &mut ParetoArchive<'_>,
    blocks: &SegmentPlan,
    part: u64,
    most: u32,
) {
    let all: u64 = blocks.all.iter().map(|b| b.needed.max(b.crossing_bytes)).sum();
    let unit = (all / part).div_ceil(u64::from(most)).max(1);
    // Rounded to the nearest, so that errors do not add up.
    let units = |bytes: u64| u32::try_from((bytes + unit / 2) / unit).unwrap_or(u32::MAX);
    let link = |b: &Segment| Link {
        time: b.ops.iter().map(|&o| g.ops()[o].time).sum(),
        end: b.ops.iter().filter(|o| b.crossing.contains(o)).map(|&o| g.ops()[o].time).sum(),
        crossing: units(b.crossing_bytes),
        needed: units(b.needed),
        keeps: b.sets.iter().map(|s| Keep { saved: units(s.saved), again: s.time }).collect(),
    };
    let links: Vec<Link> = blocks.all.iter().map(link).collect();
    let chain = Chain::solve(&links, most);
    let (mut last, mut all) = (None, Vec::new());
    for m in (0..=most).rev() {
        let time = chain.time(m);
        if time.is_none() {
            break;
        }
        // More memory for the same time lets go no more.
        if time != last {
            all.push(m);
        }
        last = time;
    }
    archive.offer_each(&all, |&m| Emission::of(g, blocks, &chain).emit(m));
}

/// Operations of phase 0 from one narrow place to the next, and what later phases do about them.
#[derive(Debug, Default)]
struct Segment {
    ops: Vec<OpId>,
    /// Values that cross its end.
    crossing: Vec<OpId>,
    crossing_bytes: u64,
    /// The operations of later phases that come when the block is there.
    backward: Vec<OpId>,
    /// Bytes of its values that they read.
    needed: u64,
    sets: Vec<RecomputeSet>,
}

/// What a block computes again, by the places of its operations.
#[derive(Clone, Debug)]
struct RecomputeSet {
    saved: u64,
    time: u64,
    again: Vec<usize>,
}

struct SegmentPlan {
    all: Vec<Segment>,
}

impl SegmentPlan {
    /// Divides a graph into at most this many; nothing if it has no narrow places or one phase alone.
    fn of(g: &CostGraph, most: usize) -> Option<SegmentPlan> {
        let forward: Vec<OpId> = g.runs().filter(|&o| g.ops()[o].phase.0 == 0).collect();
        let later: Vec<OpId> = g.runs().filter(|&o| g.ops()[o].phase.0 > 0).collect();
        let ends = ends(g, &forward, most);
        if ends.is_empty() || later.is_empty() {
            return None;
        }
        let mut all: Vec<Segment> = Vec::new();
        let mut begin = 0;
        for end in ends.into_iter().chain([forward.len()]) {
            all.push(Segment { ops: forward[begin..end].to_vec(), ..Segment::default() });
            begin = end;
        }
        let mut home: SecondaryMap<OpId, u32> = SecondaryMap::new();
        for (k, block) in all.iter().enumerate() {
            block.ops.iter().for_each(|&o| home[o] = k as u32);
        }
        let is_forward = |o: OpId| !g.is_source(o) && g.ops()[o].phase.0 == 0;
        for &op in &forward {
            let last = g.users(op).iter().filter(|&&u| is_forward(u)).map(|&u| home[u]).max();
            for block in all.iter_mut().take(last.unwrap_or(0) as usize).skip(home[op] as usize) {
                block.crossing.push(op);
                block.crossing_bytes += g.ops()[op].bytes;
            }
        }
        // Backward, each belongs to the latest block that it or a later one reads.
        let mut at = 0;
        for &op in later.iter().rev() {
            let reads = g.ops()[op].inputs.iter().filter(|&&p| is_forward(p));
            at = reads.map(|&p| home[p] as usize).fold(at, usize::max);
            all[at].backward.push(op);
        }
        all.iter_mut().for_each(|b| b.backward.reverse());
        let mut solved: BTreeMap<Vec<u64>, Vec<RecomputeSet>> = BTreeMap::new();
        for block in &mut all {
            block.solve(g, &mut solved);
        }
        Some(SegmentPlan { all })
    }
}

/// For each place between operations of phase 0, by the number of operations before it, how many values cross it, and
/// their bytes.
pub(super) fn crossings(g: &CostGraph, forward: &[OpId]) -> (Vec<i64>, Vec<i128>) {
    let n = forward.len();
    let mut place: SecondaryMap<OpId, u32> = SecondaryMap::new();
    forward.iter().enumerate().for_each(|(k, &o)| place[o] = k as u32);
    let (mut count, mut bytes) = (vec![0i64; n + 1], vec![0i128; n + 1]);
    for (k, &op) in forward.iter().enumerate() {
        let users = g.users(op).iter().filter(|&&u| g.ops()[u].phase.0 == 0);
        let last = users.map(|&u| place[u] as usize).max().unwrap_or(k);
        let size = i128::from(g.ops()[op].bytes);
        count[k + 1] += 1;
        bytes[k + 1] += size;
        count[last + 1] -= 1;
        bytes[last + 1] -= size;
    }
    for k in 1..=n {
        count[k] += count[k - 1];
        bytes[k] += bytes[k - 1];
    }
    (count, bytes)
}

/// Where blocks end, as numbers of operations before: the narrowest places, few enough.
fn ends(g: &CostGraph, forward: &[OpId], most: usize) -> Vec<usize> {
    let n = forward.len();
    let (count, bytes) = crossings(g, forward);
    let single: Vec<usize> = (1..n).filter(|&k| count[k] <= 1).collect();
    let narrow = |k: &usize| bytes[*k] <= bytes[*k - 1] && bytes[*k] <= bytes[*k + 1];
    let found: Vec<usize> = match single.len() {
        0..FEW => (1..n).filter(narrow).collect(),
        _ => single,
    };
    if found.len() < most {
        return found;
    }
    // The narrowest of each stretch of equal length.
    let slot = |k: usize| k * (most - 1) / n;
    let mut chosen: Vec<usize> = Vec::new();
    for k in found {
        match chosen.last_mut() {
            Some(last) if slot(*last) == slot(k) => {
                if bytes[k] < bytes[*last] {
                    *last = k;
                }
            }
            _ => chosen.push(k),
        }
    }
    chosen
}

/// Fewer places than this that one value alone crosses do not make a chain.
const FEW: usize = 4;

impl Segment {
    /// Finds what it may keep, or takes it from an equal block.
    fn solve(&mut self, g: &CostGraph, solved: &mut BTreeMap<Vec<u64>, Vec<RecomputeSet>>) {
        let mut place: BTreeMap<OpId, u64> = BTreeMap::new();
        let mut crosses = EntitySet::<OpId>::new();
        crosses.extend(self.crossing.iter().copied());
        let mut key = Vec::new();
        for (k, &id) in self.ops.iter().enumerate() {
            let op = &g.ops()[id];
            let read = g.users(id).iter().any(|&u| g.ops()[u].phase.0 > 0);
            if read {
                self.needed += op.bytes;
            }
            let flags = u64::from(read)
                | u64::from(op.role == OpRole::Once) << 1
                | u64::from(op.output || crosses.contains(id)) << 2;
            // What comes from outside is there, whatever it is.
            let inside = |p: &OpId| place.get(p).copied().unwrap_or(u64::MAX);
            key.extend([op.time, op.bytes, flags, op.alias.as_ref().map_or(u64::MAX, inside)]);
            let inputs: Vec<u64> = op.inputs.iter().map(inside).filter(|&p| p < u64::MAX).collect();
            key.push(inputs.len() as u64);
            key.extend(inputs);
            place.insert(id, k as u64);
        }
        self.sets = match solved.get(&key) {
            Some(sets) => sets.clone(),
            None => {
                let sets = self.sets(g, &crosses);
                solved.insert(key, sets.clone());
                sets
            }
        };
    }

    /// The corners of the block's own cut; what crosses its end is there anyway.
    fn sets(&self, g: &CostGraph, crosses: &EntitySet<OpId>) -> Vec<RecomputeSet> {
        let mut alone = CostGraph::new();
        let mut ids: BTreeMap<OpId, OpId> = BTreeMap::new();
        let mut read = Vec::new();
        for &id in &self.ops {
            let op = &g.ops()[id];
            let inside = |p: &OpId| ids.get(p).copied();
            let copy = Operation {
                name: String::new(),
                inputs: op.inputs.iter().filter_map(inside).collect(),
                alias: op.alias.as_ref().and_then(inside),
                result_of: op.result_of.as_ref().and_then(inside),
                output: op.output || crosses.contains(id),
                ..op.clone()
            };
            // The rules that the graph obeys hold for a part of it, too.
            let Ok(new) = alone.push(copy) else { return Vec::new() };
            ids.insert(id, new);
            if g.users(id).iter().any(|&u| g.ops()[u].phase.0 > 0) {
                read.push(new);
            }
        }
        let Ok(_) = alone.push(Operation::new("", 0, 0).reads(&read).phase(1)) else {
            return Vec::new();
        };
        let corners = residuals(&alone, CUTS).points;
        let set = |corner: crate::remat::schedule::residuals::Residuals| RecomputeSet {
            saved: corner.saved,
            time: corner.time,
            again: corner.recomputed.iter().map(EntityRef::index).collect(),
        };
        corners.into_iter().map(set).collect()
    }
}

/// A sequence on its way.
struct Emission<'a> {
    g: &'a CostGraph,
    blocks: &'a SegmentPlan,
    chain: &'a Chain<'a>,
    steps: Vec<OpId>,
    ran: EntitySet<OpId>,
    /// For each value how many stretches around keep it.
    held: SecondaryMap<OpId, u32>,
}

impl<'a> Emission<'a> {
    fn of(g: &'a CostGraph, blocks: &'a SegmentPlan, chain: &'a Chain<'a>) -> Emission<'a> {
        let (steps, ran, held) = (Vec::new(), EntitySet::new(), SecondaryMap::new());
        Emission { g, blocks, chain, steps, ran, held }
    }

    fn emit(mut self, m: u32) -> Vec<OpId> {
        self.segment(0, self.blocks.all.len(), m);
        self.steps
    }

    /// Blocks from one to before another. The depth of recursion is at most the number of blocks.
    fn segment(&mut self, from: usize, to: usize, m: u32) {
        match self.chain.choose(from, to, m) {
            ChainStep::Keep(k) => {
                self.forward(from);
                if from + 1 < to {
                    self.segment(from + 1, to, self.chain.left(from, m, k));
                }
                self.backward(from, k as usize);
            }
            ChainStep::Restart(at) => {
                let at = at as usize;
                (from..at).for_each(|b| self.forward(b));
                self.segment(at, to, self.chain.left_after(at, m));
                let crossing = &self.blocks.all[at - 1].crossing;
                crossing.iter().for_each(|&v| self.held[v] += 1);
                self.segment(from, at, m);
                crossing.iter().for_each(|&v| self.held[v] -= 1);
            }
        }
    }

    fn forward(&mut self, b: usize) {
        for &op in &self.blocks.all[b].ops {
            let stays = self.held[op] > 0 || self.g.ops()[op].role == OpRole::Once;
            if self.ran.insert(op) || !stays {
                self.steps.push(op);
            }
        }
    }

    /// The backward part, which computes a set again where it is read first.
    fn backward(&mut self, b: usize, set: usize) {
        let block = &self.blocks.all[b];
        let mut lacks = EntitySet::<OpId>::new();
        lacks.extend(block.sets[set].again.iter().map(|&k| block.ops[k]));
        for &op in &block.backward {
            let mut waiting = vec![op];
            while let Some(&v) = waiting.last() {
                match self.g.ops()[v].inputs.iter().find(|&&p| lacks.contains(p)) {
                    Some(&p) => waiting.push(p),
                    None => {
                        waiting.pop();
                        lacks.remove(v);
                        self.steps.push(v);
                    }
                }
            }
        }
    }
}
