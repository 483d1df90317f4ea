//! Whether all ranks run the same program, which is asked when it runs first.
//!
//! Ranks whose exchanges differ would wait for each other without an end, or take one tensor for another; those that compute
//! other things between equal exchanges would leave numbers that nobody can explain.

use super::RankGroup;
use adfuse_ir::kernel::{Exchange, Program, Step};
use adfuse_ir::{At, Diagnostic, Kind};
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicBool, Ordering};

/// The bytes of a digest.
const DIGEST: usize = 32;

/// What ranks must have in common of a program, and what is said where they do not.
const COMPARED: [&str; 3] = [
    "the exchanges differ",
    "engine or floating-point mode differ",
    "the exchanges are equal, and what is computed is not",
];

/// A program as ranks compare it: before an engine rewrites it for its device, since devices of one run may differ.
#[derive(Clone, Debug)]
pub(crate) struct RankProgram {
    name: String,
    /// Of what is [compared](COMPARED); `None` where nothing is exchanged.
    digests: Option<[[u8; DIGEST]; COMPARED.len()]>,
}

impl RankProgram {
    /// A program, and the words for the engine and the mode that it runs in.
    pub(crate) fn of(program: &Program, settings: &str) -> RankProgram {
        let exchanges = exchanges(program);
        let digests = (!exchanges.is_empty()).then(|| {
            [exchanges, settings.to_string(), program.to_string()]
                .map(|text| Sha256::digest(text).into())
        });
        RankProgram { name: program.name.clone(), digests }
    }
}

/// Whether all ranks of a group run a program.
#[derive(Debug)]
pub(crate) struct Agreement {
    group: RankGroup,
    program: RankProgram,
    reached: AtomicBool,
}

impl Agreement {
    pub(crate) fn about(group: &RankGroup, program: RankProgram) -> Agreement {
        Agreement { group: group.clone(), program, reached: AtomicBool::new(false) }
    }

    /// Asks the other ranks, the first time.
    ///
    /// # Errors
    /// [`Kind::Usage`] where they do not agree, with the ranks that differ; [`Kind::LostRank`] when one is gone.
    pub(crate) fn reach(&self) -> Result<(), Diagnostic> {
        let Some(own) = self.program.digests else { return Ok(()) };
        if self.group.ranks() < 2 || self.reached.load(Ordering::Relaxed) {
            return Ok(());
        }
        let of_ranks = self.group.of_all(&own.concat())?;
        for (k, why) in COMPARED.into_iter().enumerate() {
            let part = |of: &Vec<u8>| of[k * DIGEST..(k + 1) * DIGEST].to_vec();
            let parts: Vec<Vec<u8>> = of_ranks.iter().map(part).collect();
            if let Some(who) = ranks_that_differ(&parts, ["runs", "run"]) {
                let m = format!("{who} another program `{}` than rank 0: {why}", self.program.name);
                let hint = "give all ranks the same program, options and budget";
                return Err(Diagnostic::new(At::default(), Kind::Usage, m).hint(hint));
            }
        }
        self.reached.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The ranks, by number, that have something else than rank 0, before a verb for one and for several; `None` where none has.
pub fn ranks_that_differ(all: &[Vec<u8>], [one, several]: [&str; 2]) -> Option<String> {
    let others = (0..all.len()).filter(|&rank| all[rank] != all[0]);
    let names: Vec<String> = others.map(|rank| rank.to_string()).collect();
    match names.as_slice() {
        [] => None,
        [name] => Some(format!("rank {name} {one}")),
        names => Some(format!("ranks {} {several}", names.join(", "))),
    }
}

/// Kinds, types and the order of exchanges, as text.
fn exchanges(program: &Program) -> String {
    let of = |step: &Step| match step {
        Step::Exchange(exchange) => Some(exchange_line(program, exchange)),
        _ => None,
    };
    program.steps.iter().filter_map(of).collect()
}

fn exchange_line(program: &Program, exchange: &Exchange) -> String {
    let ty = |b| program.buffers.get(b).and_then(|data| data.ty());
    let from = exchange.from.and_then(ty);
    format!("{:?} {} {from:?} {:?}\n", exchange.kind, exchange.ranks, ty(exchange.to))
}
