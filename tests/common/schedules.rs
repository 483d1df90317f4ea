//! Random changes to how kernels are walked.

use adfuse::ir::kernel::{
    Kernel, Program, Schedule, Sink, Step, interchange, split, vectorize, verify,
};

/// A kernel after a few random changes; those that are refused are left out.
pub(crate) fn changed(kernel: &Kernel, random: &mut impl FnMut(usize) -> usize) -> Kernel {
    let folded = |s: &Sink| matches!(s, Sink::Fold { .. });
    let folded = kernel.stages.iter().flat_map(|s| &s.sinks).any(folded);
    let mut kernel = kernel.clone();
    for _ in 0..3 {
        let rank = kernel.domain.len();
        let divisors = |n: i64| (1..=n.max(3)).filter(|f| n % f == 0).collect::<Vec<_>>();
        let next = match random(5) {
            0 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                (1..rank).for_each(|k| perm.swap(k, random(k + 1)));
                Ok(interchange(&kernel, &perm).expect("a permutation"))
            }
            1 => vectorize(&kernel, random(rank + 2)),
            2 => {
                let tile = |&n: &i64| match folded {
                    true => {
                        let divisors = divisors(n);
                        divisors[random(divisors.len())].min(n.max(1))
                    }
                    false => 1 + random(n.max(1) as usize) as i64,
                };
                let tiles = kernel.domain.iter().map(tile).collect();
                let schedule = Schedule { tiles, ..kernel.schedule.clone() };
                Ok(Kernel { schedule, ..kernel.clone() })
            }
            3 => {
                let mut order: Vec<u8> = (0..rank as u8).collect();
                (1..rank).for_each(|k| order.swap(k, random(k + 1)));
                let schedule = Schedule { order: order.into(), ..kernel.schedule.clone() };
                Ok(Kernel { schedule, ..kernel.clone() })
            }
            _ if rank == 0 => continue,
            _ => {
                let axis = random(rank);
                let factors = divisors(kernel.domain[axis]);
                split(&kernel, axis, factors[random(factors.len())])
            }
        };
        kernel = next.unwrap_or(kernel);
    }
    kernel
}

/// A program with every kernel changed. A change that does not go with how a buffer is packed is left
/// out.
pub(crate) fn walked(program: &Program, random: &mut impl FnMut(usize) -> usize) -> Program {
    let mut other = program.clone();
    for n in 0..other.steps.len() {
        let Step::Kernel(kernel) = &other.steps[n] else { continue };
        let mut tried = other.clone();
        tried.steps[n] = Step::Kernel(changed(kernel, random));
        match verify(tried.clone()) {
            Ok(_) => other = tried,
            Err(e) => {
                assert!(e[0].to_string().contains("is packed, but not along"), "{}", e[0]);
            }
        }
    }
    other
}
