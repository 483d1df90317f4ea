//! Calls of users' kernels: the launch that a function asks for, held to the limits of the chip.

use super::text::{DecisionLine, Line, Reader, Writer, listed, number, wrong};
use crate::gpu::target::GpuTarget;
use crate::runtime::user_kernel::KernelCall;
use adfuse_ir::kernel::Buffer;
use adfuse_ir::{At, Diagnostic, Kind};
use std::sync::Arc;

/// Blocks of a grid along x, y and z, at most: the same for every chip.
const MOST_BLOCKS: [u64; 3] = [(1 << 31) - 1, 65_535, 65_535];
/// Threads of a block along x, y and z, at most; all together they have a limit of the chip's.
const MOST_THREADS: [u64; 3] = [1024, 1024, 64];

/// A call of a user's kernel.
pub(crate) struct CallWork {
    /// The module that has the entry point.
    pub(crate) text: Arc<str>,
    pub(crate) entry: String,
    /// What the entry point is given: operands, the result, and scratch memory where it takes any.
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) launch: UserLaunch,
}

/// The launch of a user's kernel. The function says all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UserLaunch {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    /// What the entry point is given after its pointers.
    pub(crate) numbers: Vec<u64>,
}

impl UserLaunch {
    /// The launch of a call on a chip, which has limits.
    pub(crate) fn of(call: &KernelCall, target: &GpuTarget) -> Result<UserLaunch, Diagnostic> {
        let over = |what: &str, found: &dyn std::fmt::Debug, most: &dyn std::fmt::Debug| {
            let m = format!(
                "the launch of `{}` has {what} {found:?}: at least 1 and at most {most:?} on {}",
                call.entry, target.name
            );
            Diagnostic::new(At::default(), Kind::Limit, m)
        };
        let within = |all: &[u64; 3], most: &[u64; 3]| {
            all.iter().zip(most).all(|(&n, &most)| (1..=most).contains(&n))
        };
        if !within(&call.grid, &MOST_BLOCKS) {
            return Err(over("a grid of", &call.grid, &MOST_BLOCKS));
        }
        if !within(&call.block, &MOST_THREADS) {
            return Err(over("blocks of", &call.block, &MOST_THREADS));
        }
        let threads: u64 = call.block.iter().product();
        if threads > target.block_threads.into() {
            return Err(over("threads of a block", &threads, &target.block_threads));
        }
        if call.shared > target.shared.into() {
            let m = format!(
                "the launch of `{}` has {} bytes of shared memory: at most {} on {}",
                call.entry, call.shared, target.shared, target.name
            );
            return Err(Diagnostic::new(At::default(), Kind::Limit, m));
        }
        // All of these are below 2^31.
        let three = |all: [u64; 3]| all.map(|n| n as u32);
        Ok(UserLaunch {
            grid: three(call.grid),
            block: three(call.block),
            shared: call.shared as u32,
            numbers: call.numbers.clone(),
        })
    }

    /// Errs for another launch than that of the function.
    pub(crate) fn check(&self, of: &UserLaunch) -> Result<(), String> {
        match self == of {
            true => Ok(()),
            false => {
                let mut due = Writer::default();
                of.write(&mut due);
                Err(format!("the function asks for another launch: {}", due.text.trim()))
            }
        }
    }
}

impl DecisionLine for UserLaunch {
    fn write(&self, to: &mut Writer) {
        let (grid, block) = (listed(self.grid), listed(self.block));
        let fields: [(&str, &dyn std::fmt::Display); 4] = [
            ("grid", &grid),
            ("block", &block),
            ("shared", &self.shared),
            ("numbers", &listed(&self.numbers)),
        ];
        to.line("launch", &fields);
    }

    fn read(from: &mut Reader<'_>) -> Result<UserLaunch, Diagnostic> {
        let line = from.line("launch", &["grid", "block", "shared", "numbers"])?;
        let small = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
        let three = |line: &Line<'_>, key: &str| -> Result<[u32; 3], Diagnostic> {
            let mut found = [0; 3];
            let all = line.list(key)?;
            if all.len() != 3 {
                return Err(wrong(line.span, format!("`{key}` has three numbers")));
            }
            for (to, (word, span)) in found.iter_mut().zip(all) {
                *to = small(number(word, span)?);
            }
            Ok(found)
        };
        let mut numbers = Vec::new();
        for (word, span) in line.list("numbers")? {
            let none = || wrong(span, format!("`{word}` is no number"));
            numbers.push(word.parse().map_err(|_| none())?);
        }
        Ok(UserLaunch {
            grid: three(&line, "grid")?,
            block: three(&line, "block")?,
            shared: small(line.int("shared")?),
            numbers,
        })
    }
}
