//! Every row over a batch gives the bits that a loop over the row gives.

use super::cases::runnable;
use crate::common::batch::{Side, agrees, has_tokens};
use adfuse::autodiff::{Batching, vmap};
use adfuse::ir::rewrite::specialize;
use adfuse::ir::{Kind, Op};
use adfuse::sample::{rng, sample};

#[test]
fn every_row_over_a_batch_is_a_loop_over_it() {
    let (mut checks, mut refused) = (0, 0);
    for &op in Op::ALL {
        for case in runnable(op) {
            let (f, domains) = (case.f(), case.domains());
            if has_tokens(f) {
                let axes = f.params().iter().map(|_| None);
                let d = vmap(&case.module, f, &Batching::new(3, axes)).expect_err("an effect");
                assert_eq!(d.kind, Kind::Effect, "{d}");
                refused += 1;
                continue;
            }
            let extents = f.symbols.iter().copied().zip(3..).collect();
            let f = &specialize(f, &extents).expect("specializes");
            for set in 0..1usize << f.params().len() {
                for side in [Side::First, Side::Last] {
                    for size in [3, 1] {
                        let mut rng = rng(11, set as u64);
                        let mapped = |k: usize| set >> k & 1 == 1;
                        let mut draw =
                            |k: usize, t: &_| sample(t, domains[k], &mut rng).expect("samples");
                        agrees(&case.module, f, size, &mapped, side, &mut draw)
                            .unwrap_or_else(|e| panic!("`{op}`: {e}"));
                        checks += 1;
                    }
                }
            }
        }
    }
    assert!(checks > 5000 && refused >= 2, "{checks} checks, {refused} refused");
}
