//! What tests of several kinds make problems with.

use adfuse_memplan::{BufferId, Problem};

/// Adds the in-place pairs that `picks` selects of the buffers that meet.
pub(crate) fn pair_up(problem: &mut Problem, picks: u64) {
    let ids: Vec<BufferId> = problem.buffers.keys().collect();
    for (i, &child) in ids.iter().enumerate() {
        for (j, &parent) in ids.iter().enumerate() {
            let (c, p) = (&problem.buffers[child].live, &problem.buffers[parent].live);
            let meet = p.start < c.start && p.end == c.start + 1;
            if meet && picks >> ((i * 7 + j) % 64) & 1 == 1 {
                problem.may_share(child, parent);
            }
        }
    }
}
