//! Which kernels are run as rows, and how threads share their points.

use super::row_vectors::takes_short_groups;
use super::scalar_form::instructions;
use super::shape::{free, output_type};
use adfuse_ir::Fp;
use adfuse_ir::kernel::{Kernel, Order, Program, Sink, Stage, volume};

/// Elements of a block of the lane order.
pub(crate) const BLOCK: i64 = 1024;
/// Elements of the longest rows.
const LONGEST: i64 = 128 * BLOCK;
/// Threads of a block of short rows.
const SHORT: i64 = 128;
/// Threads of a block of which few fit a multiprocessor.
pub(crate) const LARGE: i64 = 512;
/// Instructions of a thread's elements of a row, where columns fold: from twice as many on, text comes from the
/// instruction cache more slowly than it is computed, and more warps share the row.
const TEXT: i64 = 2048;
/// Warps that share a row of one block at most.
const MOST_WARPS: i64 = 8;

/// Whether a kernel can be run so: its folds are of whole stages, in the lane order where order matters, or of
/// columns.
pub(crate) fn takes(kernel: &Kernel) -> bool {
    let mut reduces = false;
    for stage in &kernel.stages {
        let n = volume(&stage.axes);
        let long: Vec<u8> =
            (0u8..).zip(&stage.axes).filter(|(_, n)| **n != 1).map(|(a, _)| a).collect();
        if !(1..=LONGEST).contains(&n) {
            return false;
        }
        for (k, sink) in stage.sinks.iter().enumerate() {
            match sink {
                Sink::Reduce { monoid, runs, .. } => {
                    reduces = true;
                    let ordered = match runs.as_slice() {
                        [] => n == 1,
                        [run] => run.order == Order::Lane && run.axes.as_slice() == long,
                        _ => false,
                    };
                    let any = free(*monoid, output_type(stage, k));
                    if monoid.is_arg() || !(ordered || any) {
                        return false;
                    }
                }
                Sink::Scan { .. } => return false,
                _ => {}
            }
        }
    }
    reduces && volume(&kernel.domain) > 0
}

/// A block of the lane order for each warp, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// The number of the first warp's block.
    pub(crate) block: i64,
    /// How often a lane takes neighbours, at most.
    pub(crate) turns: i64,
    pub(crate) has: Has,
}

/// Which warps have a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Has {
    /// All, each a whole one.
    All,
    /// Those with numbers below `full` have whole blocks, the next has `rest` elements, and others none.
    Some { full: i64, rest: i64 },
}

/// How threads share the points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Team {
    /// Threads of a team.
    pub(crate) threads: i64,
    /// Teams of a block.
    pub(crate) teams: i64,
    /// Elements of a row that a warp folds into one part, where a team has several.
    pub(crate) piece: i64,
    /// Neighbouring elements that a thread has, and loads and stores together.
    pub(crate) width: i64,
}

impl Team {
    /// For the rows of a kernel.
    pub(crate) fn of(program: &Program, kernel: &Kernel, fp: Fp) -> Team {
        Team::taking(kernel, fp, &|width| takes_short_groups(program, kernel, width))
    }

    /// For the rows of a kernel that folds columns: all groups of neighbours are whole.
    pub(crate) fn of_columns(kernel: &Kernel, fp: Fp) -> Team {
        Team::taking(kernel, fp, &|_| false)
    }

    fn taking(kernel: &Kernel, fp: Fp, takes_short: &dyn Fn(i64) -> bool) -> Team {
        let sizes = kernel.stages.iter().filter(|s| !s.axes.is_empty()).map(|s| volume(&s.axes));
        let team = Team::of_rows(&sizes.collect::<Vec<_>>(), fp, takes_short);
        let folds = |s: &&Stage| s.sinks.iter().any(|k| matches!(k, Sink::Fold { .. }));
        let text = kernel.stages.iter().filter(folds).map(|s| {
            let n = volume(&s.axes);
            (n, instructions(&s.program, fp))
        });
        team.shared_by_warps(&text.collect::<Vec<_>>())
    }

    /// A row of one warp as one of several, where stages of this many elements and instructions have a long text.
    fn shared_by_warps(self, stages: &[(i64, i64)]) -> Team {
        let longest = stages.iter().map(|&(n, _)| n).max().unwrap_or(0);
        let unit = 32 * self.width;
        let long = |team: &Team| stages.iter().any(|&(n, size)| team.cells(n) * size > TEXT);
        let mut team = self;
        while self.threads == 32 && team.warps() < MOST_WARPS && long(&team) {
            let warps = 2 * team.warps();
            if warps * unit > longest {
                break;
            }
            let piece = (longest + warps * unit - 1) / (warps * unit) * unit;
            team = Team { threads: 32 * warps, teams: 1, piece, ..team };
        }
        team
    }

    /// Whether the lane order of a row is that of several warps: each has neighbours of one block.
    pub(crate) fn splits_block(self, fp: Fp) -> bool {
        fp == Fp::Strict && self.warps() > 1 && self.piece < BLOCK
    }

    /// For rows of this many elements, whose last group of neighbours may be short where a kernel takes that.
    fn of_rows(sizes: &[i64], fp: Fp, takes_short: &dyn Fn(i64) -> bool) -> Team {
        let longest = sizes.iter().copied().max().unwrap_or(1);
        // In the lane order a lane's elements are 32 apart.
        let fits =
            |w: &i64| longest >= 32 * w && (sizes.iter().all(|n| n % w == 0) || takes_short(*w));
        let width = if fp == Fp::Strict { 1 } else { [4, 2].into_iter().find(fits).unwrap_or(1) };
        // The lane order has its blocks; where the order is free more warps have smaller ones.
        let piece = if fp == Fp::Strict { BLOCK } else { BLOCK / 2 };
        if longest <= BLOCK {
            let threads = (longest.min(32) as u64).next_power_of_two() as i64;
            return Team { threads, teams: SHORT / threads, piece, width };
        }
        // Warps take as many pieces each as the fullest of 32.
        let blocks = (longest + piece - 1) / piece;
        let each = (blocks + 31) / 32;
        Team { threads: (blocks + each - 1) / each * 32, teams: 1, piece, width }
    }

    pub(crate) fn warps(self) -> i64 {
        (self.threads / 32).max(1)
    }

    /// Threads of a block.
    pub(crate) fn block(self) -> i64 {
        self.threads * self.teams
    }

    /// Elements of a thread, of a row of this many: those that it may have, where it has fewer than others.
    pub(crate) fn cells(self, n: i64) -> i64 {
        self.pieces(n).iter().map(|p| p.turns * self.width).sum()
    }

    /// The number of vectors each lane has of this many elements.
    pub(crate) fn turns(self, elements: i64) -> i64 {
        (elements + 32 * self.width - 1) / (32 * self.width)
    }

    /// The pieces of a row of `n` elements that a warp takes, one after the other; of a row of fewer than 32 threads
    /// what the team takes.
    pub(crate) fn pieces(self, n: i64) -> Vec<Piece> {
        if self.warps() == 1 {
            let each = self.threads * self.width;
            let turns = (n + each - 1) / each;
            return vec![Piece { block: 0, turns, has: Has::All }];
        }
        let (full, rest) = (n / self.piece, n % self.piece);
        let blocks = full + i64::from(rest > 0);
        let mut pieces = Vec::new();
        for block in (0..blocks).step_by(self.warps() as usize) {
            let end = block + self.warps();
            let has = match end <= full {
                true => Has::All,
                false => Has::Some { full, rest },
            };
            // Where only the short block is left, fewer turns do.
            let elements = if block < full { self.piece } else { rest };
            let turns = self.turns(elements);
            pieces.push(Piece { block, turns, has });
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_have_the_lanes_of_the_order() {
        let shape = |n| {
            let team = Team::of_rows(&[n], Fp::Strict, &|_| true);
            (team.threads, team.teams)
        };
        assert_eq!(shape(1), (1, 128));
        assert_eq!(shape(5), (8, 16));
        assert_eq!(shape(32), (32, 4));
        assert_eq!(shape(1024), (32, 4));
        assert_eq!(shape(1025), (64, 1));
        assert_eq!(shape(4096), (128, 1));
        // 50 blocks of the lane order: two for each of 25 warps.
        assert_eq!(shape(50304), (800, 1));
    }

    #[test]
    fn pieces_have_every_element_once() {
        let lengths = [1, 5, 31, 32, 33, 1000, 1024, 1025, 1500, 4096, 5000, 50304, 131072];
        for (seed, n) in (0..).zip(lengths.into_iter().flat_map(|n| [n, n])) {
            let fp = if seed % 2 == 0 { Fp::Strict } else { Fp::Fast };
            let team = Team::of_rows(&[n], fp, &|_| true);
            let mut seen = vec![0; n as usize];
            for piece in team.pieces(n) {
                for warp in 0..team.warps() {
                    let block = piece.block + warp;
                    let has = match piece.has {
                        Has::All => n,
                        Has::Some { full, .. } if block < full => n,
                        Has::Some { full, rest } if block == full => full * team.piece + rest,
                        Has::Some { .. } => 0,
                    };
                    let lanes = team.threads.min(32);
                    for place in 0..piece.turns * lanes * team.width {
                        let place = block * team.piece + place;
                        if place < has {
                            seen[place as usize] += 1;
                        }
                    }
                }
            }
            assert!(seen.iter().all(|&n| n == 1), "{n}");
        }
    }

    #[test]
    fn warps_share_rows_with_a_long_text() {
        let shape = |n, size, fp| {
            let team = Team::of_rows(&[n], fp, &|_| false).shared_by_warps(&[(n, size)]);
            (team.threads, team.teams, team.piece)
        };
        assert_eq!(shape(1024, 50, Fp::Strict), (32, 4, 1024));
        assert_eq!(shape(1024, 100, Fp::Strict), (64, 1, 512));
        assert_eq!(shape(1024, 5000, Fp::Strict), (256, 1, 128));
        assert_eq!(shape(1024, 5000, Fp::Fast), (256, 1, 128));
        assert_eq!(shape(100, 5000, Fp::Strict), (64, 1, 64));
        assert_eq!(shape(40, 5000, Fp::Strict), (32, 4, 1024));
        // Longer rows have several warps.
        assert_eq!(shape(4096, 5000, Fp::Strict), (128, 1, 1024));
    }

    #[test]
    fn half_rows_are_in_order() {
        // A warp's shuffles by 16, 8, .. join lane l with lane l + h, and absent ones change nothing.
        let n = 1000i64;
        let mut lanes = vec![-0.0f32; 32];
        let x = |i: i64| (i as f32 * 0.37).sin();
        for turn in 0..(n + 31) / 32 {
            for (l, lane) in (0i64..).zip(lanes.iter_mut()) {
                let i = turn * 32 + l;
                *lane += if i < n { x(i) } else { -0.0 };
            }
        }
        for half in [16, 8, 4, 2, 1] {
            lanes = (0..32).map(|l| lanes[l] + lanes[l ^ half]).collect();
        }
        let all: Vec<f32> = (0..n).map(x).collect();
        let expected = crate::reference::order::reduce_lane_blocked(&all, |a, b| a + b, 0.0);
        assert!(lanes.iter().all(|l| l.to_bits() == expected.to_bits()));
    }
}
