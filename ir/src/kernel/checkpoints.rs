//! Reversal schedules: which states of a chain of steps are kept, and from where they are computed again, while the
//! steps are turned from the last to the first.
//!
//! The schedule is the binomial one (revolve: Griewank and Walther, 2000). State `t` is what step `t` is entered with.
//! A slot holds one state, state 0 among them; turning step `t` needs state `t`, and gives no state. What is counted is
//! advances: forward steps from one state to the next. With `c` slots and `n` steps there are
//! `r n - C(c + r, r - 1)` of them, the fewest that there can be, where `r` is the least number with
//! `n <= C(c + r, c)`: no step is advanced over more than `r` times.

/// What is done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReversalAction {
    /// The current state is kept in this slot.
    Keep(usize),
    /// The steps from the first number to before the second are done, from the current state on.
    Advance(u64, u64),
    /// The state of this slot becomes the current one.
    Restore(usize),
    /// This step is turned; the current state is what it was entered with.
    Turn(u64),
}

/// The actions that reverse a chain of steps, one after the other. State 0 is the current one when it begins.
#[derive(Debug)]
pub struct Reversal<'a> {
    /// For each slot in use the number of the state in it, ascending.
    slots: &'a mut [u64],
    used: usize,
    /// The number of the current state, if it is of use.
    at: Option<u64>,
    /// Steps that are not turned yet.
    left: u64,
}

impl<'a> Reversal<'a> {
    /// Reverses this many steps with as many slots as there is room for their numbers; with none only one step can
    /// be reversed, and the schedule of more is empty.
    pub fn new(steps: u64, slots: &'a mut [u64]) -> Reversal<'a> {
        let left = if slots.is_empty() { steps.min(1) } else { steps };
        Reversal { slots, used: 0, at: Some(0), left }
    }
}

impl Iterator for Reversal<'_> {
    type Item = ReversalAction;

    fn next(&mut self) -> Option<ReversalAction> {
        let last = self.left.checked_sub(1)?;
        while self.used > 0 && self.slots[self.used - 1] > last {
            self.used -= 1;
        }
        let Some(at) = self.at else {
            self.at = self.slots[..self.used].last().copied();
            return Some(ReversalAction::Restore(self.used.saturating_sub(1)));
        };
        if at == last {
            self.left = last;
            self.at = None;
            return Some(ReversalAction::Turn(last));
        }
        let kept = self.slots[..self.used].last() == Some(&at);
        if !kept && let Some(slot) = self.slots.get_mut(self.used) {
            *slot = at;
            self.used += 1;
            return Some(ReversalAction::Keep(self.used - 1));
        }
        // The state here is in the last slot that is used, which counts among those that are there for what is left.
        let free = self.slots.len() - self.used + 1;
        let to = at + split(self.left - at, free as u64);
        self.at = Some(to);
        Some(ReversalAction::Advance(at, to))
    }
}

/// How far to advance before the next state is kept, where this many steps are left from a state that is in one of
/// this many slots. At least 1, and fewer than the steps, of which there are at least 2.
fn split(steps: u64, slots: u64) -> u64 {
    if slots <= 1 {
        return steps - 1;
    }
    // `reach` is C(slots + r, slots), and `less` the same for r - 1.
    let (mut r, mut less, mut reach) = (0, 0, 1u64);
    while reach < steps {
        r += 1;
        less = reach;
        reach = scaled(reach, slots + r, r);
    }
    // What comes after is reversed with one slot less. It has at least the steps that r - 1 repetitions are enough for:
    // C(slots - 1 + r - 1, slots - 1) = C(slots + r - 1, slots) * slots / (slots + r - 1)
    let after = scaled(less, slots, slots + r - 1);
    less.min(steps - after).clamp(1, steps - 1)
}

/// `n * by / over`, which is a whole number, or the largest number where that is too large.
fn scaled(n: u64, by: u64, over: u64) -> u64 {
    let product = u128::from(n) * u128::from(by) / u128::from(over.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows a schedule; gives the number of advances.
    fn followed(steps: u64, slots: usize) -> u64 {
        let mut numbers = vec![0; slots];
        let mut states: Vec<Option<u64>> = vec![None; slots];
        let (mut at, mut turned, mut advances) = (Some(0), steps, 0);
        for action in Reversal::new(steps, &mut numbers) {
            match action {
                ReversalAction::Keep(k) => states[k] = at,
                ReversalAction::Advance(from, to) => {
                    assert!(at == Some(from) && to > from && to < turned, "{from} to {to}");
                    advances += to - from;
                    at = Some(to);
                }
                ReversalAction::Restore(k) => at = Some(states[k].expect("a state was kept")),
                ReversalAction::Turn(t) => {
                    assert_eq!((at, t + 1), (Some(t), turned));
                    turned = t;
                    // A step that is turned leaves nothing behind.
                    at = None;
                }
            }
        }
        assert_eq!(turned, 0, "{steps} steps, {slots} slots");
        advances
    }

    #[test]
    fn no_schedule_has_fewer_advances() {
        const STEPS: usize = 200;
        // fewest[c][n]: state 0 is in one of the c slots.
        let mut fewest: Vec<Vec<u64>> = vec![Vec::new()];
        for slots in 1..=12 {
            let mut of: Vec<u64> = vec![0, 0];
            for n in 2..=STEPS {
                let whole = (n * (n - 1) / 2) as u64;
                let split = (1..n).map(|k| match slots {
                    1 => whole,
                    _ => k as u64 + of[k] + fewest[slots - 1][n - k],
                });
                of.push(split.min().unwrap_or(0));
            }
            for (n, &least) in of.iter().enumerate() {
                assert_eq!(followed(n as u64, slots), least, "{n} steps, {slots} slots");
            }
            fewest.push(of);
        }
    }

    #[test]
    fn long_chains_are_reversed_as_the_formula_says() {
        let advances = followed(100_000, 32) as f64 / 100_000.0;
        assert!((advances / 4.34 - 1.0).abs() < 0.01, "{advances}");
        assert_eq!(followed(1000, 1000), 999);
        assert_eq!(followed(1000, 5000), 999);
        assert_eq!(followed(100_000, 99_998), 100_000);
        let mut none: [u64; 0] = [];
        let one: Vec<ReversalAction> = Reversal::new(1, &mut none).collect();
        assert_eq!(one, [ReversalAction::Turn(0)]);
        assert!((1..1 << 62).contains(&split(1 << 62, 3)));
    }
}
