//! Minimum cuts by Dinic's algorithm, with adjacency in rows.

use std::collections::VecDeque;

/// A network as it is put together. Vertices are numbers from 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    vertices: u32,
    arcs: Vec<(u32, u32, u128)>,
}

/// More than all finite capacities of a network together.
pub(crate) const UNBOUNDED: u128 = u128::MAX >> 1;

impl Network {
    /// A new vertex.
    pub(crate) fn vertex(&mut self) -> u32 {
        self.vertices += 1;
        self.vertices - 1
    }

    /// An arc, which a cut pays for if it begins on the side of the source and ends on the other.
    pub(crate) fn arc(&mut self, from: u32, to: u32, capacity: u128) {
        self.arcs.push((from, to, capacity));
    }

    /// The smallest set of vertices with the source and without the sink that the cheapest cut
    /// leaves on the side of the source: for each vertex whether it is in it.
    pub(crate) fn cut(&self, source: u32, sink: u32) -> Vec<bool> {
        let mut rows = Rows::of(self);
        while rows.layer(source, sink) {
            rows.augment(source, sink);
        }
        rows.level.iter().map(|&l| l != NONE).collect()
    }

    /// What a cut pays that leaves these vertices on the side of the source.
    pub(crate) fn price(&self, side: &[bool]) -> u128 {
        let paid = self.arcs.iter().filter(|&&(a, b, _)| side[a as usize] && !side[b as usize]);
        paid.fold(0, |sum: u128, &(_, _, c)| sum.saturating_add(c))
    }
}

const NONE: u32 = u32::MAX;

/// Arcs and their opposites, those of a vertex side by side.
struct Rows {
    /// Where the arcs of each vertex begin; one more at the end.
    start: Vec<u32>,
    to: Vec<u32>,
    /// The arc that goes back.
    back: Vec<u32>,
    left: Vec<u128>,
    /// Arcs from the source with capacity left, to each vertex; [`NONE`] if there is no way.
    level: Vec<u32>,
    /// The first arc of each vertex that may still lead on.
    next: Vec<u32>,
}

impl Rows {
    fn of(network: &Network) -> Rows {
        let n = network.vertices as usize;
        let mut start = vec![0u32; n + 1];
        for &(a, b, _) in &network.arcs {
            start[a as usize + 1] += 1;
            start[b as usize + 1] += 1;
        }
        for v in 0..n {
            start[v + 1] += start[v];
        }
        let arcs = 2 * network.arcs.len();
        let (mut to, mut back, mut left) = (vec![0; arcs], vec![0; arcs], vec![0; arcs]);
        let mut free: Vec<u32> = start[..n].to_vec();
        let mut take = |v: u32| {
            free[v as usize] += 1;
            free[v as usize] - 1
        };
        for &(a, b, capacity) in &network.arcs {
            let (there, again) = (take(a), take(b));
            (to[there as usize], back[there as usize]) = (b, again);
            (to[again as usize], back[again as usize]) = (a, there);
            left[there as usize] = capacity;
        }
        Rows { start, to, back, left, level: vec![NONE; n], next: vec![0; n] }
    }

    fn arcs(&self, v: u32) -> std::ops::Range<usize> {
        self.start[v as usize] as usize..self.start[v as usize + 1] as usize
    }

    /// Numbers vertices by their distance from the source; says whether the sink has one.
    fn layer(&mut self, source: u32, sink: u32) -> bool {
        self.level.fill(NONE);
        self.level[source as usize] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(v) = queue.pop_front() {
            for arc in self.arcs(v) {
                let w = self.to[arc];
                if self.left[arc] > 0 && self.level[w as usize] == NONE {
                    self.level[w as usize] = self.level[v as usize] + 1;
                    queue.push_back(w);
                }
            }
        }
        self.level[sink as usize] != NONE
    }

    /// Sends what can be sent along shortest ways.
    fn augment(&mut self, source: u32, sink: u32) {
        self.next.copy_from_slice(&self.start[..self.level.len()]);
        let mut way: Vec<usize> = Vec::new();
        let mut v = source;
        loop {
            if v == sink {
                let least = way.iter().map(|&a| self.left[a]).min().unwrap_or(0);
                let mut full = 0;
                for (k, &arc) in way.iter().enumerate().rev() {
                    self.left[arc] -= least;
                    self.left[self.back[arc] as usize] += least;
                    if self.left[arc] == 0 {
                        full = k;
                    }
                }
                // Go on from before the first arc that is full now.
                v = self.to[self.back[way[full]] as usize];
                way.truncate(full);
                continue;
            }
            let end = self.start[v as usize + 1];
            let deeper = self.level[v as usize] + 1;
            let at = &mut self.next[v as usize];
            while *at < end
                && (self.left[*at as usize] == 0
                    || self.level[self.to[*at as usize] as usize] != deeper)
            {
                *at += 1;
            }
            if *at < end {
                way.push(*at as usize);
                v = self.to[*at as usize];
            } else if let Some(arc) = way.pop() {
                // Nothing leads on from here.
                v = self.to[self.back[arc] as usize];
                self.next[v as usize] += 1;
            } else {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_cut_is_found_on_all_small_networks() {
        let mut state = 7u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..2000 {
            let mut network = Network::default();
            let n = 2 + random(6) as u32;
            for _ in 0..n {
                network.vertex();
            }
            for _ in 0..random(16) {
                let (a, b) = (random(n.into()) as u32, random(n.into()) as u32);
                network.arc(a, b, if random(8) == 0 { 1 << 90 } else { random(9).into() });
            }
            let price = |side: &dyn Fn(u32) -> bool| -> u128 {
                let paid = network.arcs.iter().filter(|&&(a, b, _)| side(a) && !side(b));
                paid.map(|&(_, _, c)| c).sum()
            };
            let cut = network.cut(0, 1);
            assert!(cut[0] && !cut[1]);
            let sides = (0..1u32 << n).filter(|s| s & 3 == 1);
            let least = sides.clone().map(|s| price(&|v| s >> v & 1 == 1)).min();
            assert_eq!(Some(price(&|v| cut[v as usize])), least, "{network:?}");
            // It is the smallest of them: all of it is in each.
            for s in sides.filter(|&s| Some(price(&|v| s >> v & 1 == 1)) == least) {
                assert!((0..n).all(|v| !cut[v as usize] || s >> v & 1 == 1), "{network:?}");
            }
        }
    }
}
