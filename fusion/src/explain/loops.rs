//! What a plan does with loops: how many steps each has, and how its way back gets what it needs of them.

use adfuse_ir::kernel::{Buffer, Loop, LoopTrips, Program, Step, forward_steps};
use std::fmt;

/// A loop of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopReport {
    /// Its name, after those of the loops and branches that it is in: `scan.step.while`.
    pub name: String,
    /// How many steps it has, where that is known before it runs.
    pub trips: Option<u64>,
    /// What says how many, where that is not known.
    pub counted_by: Option<String>,
    /// Bytes that a step hands to the next.
    pub carried_bytes: u64,
    /// Stacks of an element of each step, with their bytes.
    pub stacks: Vec<(String, u64)>,
    /// The way back, where it computes steps again.
    pub back: Option<WayBackReport>,
}

/// A way back over a loop that keeps carries at checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WayBackReport {
    /// Checkpoints.
    pub checkpoints: u64,
    /// Bytes of all of them, in whole lines, with their numbers.
    pub bytes: u64,
    /// Steps forward of this loop, its first way included; those of the optimal schedule. `None` where the number of steps
    /// is not known.
    pub forward: Option<u64>,
}

/// The loops of a program in their order, those inside of blocks after the loop or branch that they are in.
pub fn loop_reports(program: &Program) -> Vec<LoopReport> {
    let mut found = Vec::new();
    visit(program, "", &mut found);
    found
}

fn visit(program: &Program, within: &str, found: &mut Vec<LoopReport>) {
    for step in &program.steps {
        if step.blocks().is_empty() {
            continue;
        }
        let name = format!("{within}{}", step.name());
        if let Step::Loop(l) = step {
            found.push(report(program, &name, l));
        }
        for (role, block) in step.blocks() {
            visit(&block.program, &format!("{name}.{role}."), found);
        }
    }
}

fn report(program: &Program, name: &str, l: &Loop) -> LoopReport {
    let data = |b: Buffer| &program.buffers[b];
    let named = |b: Buffer| format!("%{}", data(b).name);
    let carried = l.carries.iter().map(|c| data(c.to).bytes()).fold(0, u64::saturating_add);
    let counted_by = match &l.trips {
        LoopTrips::Known(_) => None,
        LoopTrips::Count(n) => Some(named(*n)),
        LoopTrips::Range(from, to) => Some(format!("{} to {}", named(*from), named(*to))),
        LoopTrips::While { most: 0, .. } => Some("a test of each step".into()),
        LoopTrips::While { most, .. } => Some(format!("a test of each step, at most {most}")),
    };
    LoopReport {
        name: name.into(),
        trips: l.trips.known(),
        counted_by,
        carried_bytes: carried,
        stacks: l.all_stacks().map(|b| (named(b), data(b).bytes())).collect(),
        back: l.back.as_ref().map(|back| {
            let checkpoints = l.checkpoints(back);
            WayBackReport {
                checkpoints,
                bytes: l.checkpoint_bytes(back, &program.buffers),
                forward: l.trips.known().map(|n| forward_steps(n, checkpoints)),
            }
        }),
    }
}

/// A line, without an end.
impl fmt::Display for LoopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match (self.trips, &self.counted_by) {
            (Some(n), _) => write!(f, "{n} steps")?,
            (None, by) => write!(f, "as many steps as {}", by.as_deref().unwrap_or("it takes"))?,
        }
        write!(f, ", carries {} bytes", self.carried_bytes)?;
        if !self.stacks.is_empty() {
            let list: Vec<String> =
                self.stacks.iter().map(|(name, bytes)| format!("{name} ({bytes} bytes)")).collect();
            write!(f, ", stacks {}", list.join(", "))?;
        }
        let Some(back) = &self.back else { return Ok(()) };
        let plural = if back.checkpoints == 1 { "" } else { "s" };
        write!(f, ", {} checkpoint{plural} of {} bytes in all", back.checkpoints, back.bytes)?;
        match back.forward {
            Some(n) => write!(f, ", {n} steps forward"),
            None => Ok(()),
        }
    }
}
