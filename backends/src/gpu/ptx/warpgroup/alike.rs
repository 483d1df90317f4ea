//! Products of one grid after whose sums the same is done with other arrays: one text does it, with pointers that are chosen for
//! each tile.

use crate::gpu::ptx::asm::{Class, Reg, made};
use crate::gpu::ptx::emit::{BufferChoice, Emit};
use crate::gpu::schedule::warpgroup::WarpgroupMember;
use adfuse_ir::kernel::{Buffer, Kernel, Program, Step};

/// Products that are finished alike.
pub(super) struct AlikeProducts<'p> {
    /// The first of them, by whose buffers the text is written.
    pub(super) first: &'p WarpgroupMember,
    /// Their numbers among the products of the grid.
    numbers: Vec<usize>,
    /// For each of the first one's buffers those of all of them.
    buffers: Vec<Vec<Buffer>>,
}

/// The products of a grid, those that are finished alike together.
pub(super) fn alike<'p>(
    program: &Program,
    members: &'p [WarpgroupMember],
) -> Vec<AlikeProducts<'p>> {
    let mut found: Vec<AlikeProducts<'p>> = Vec::new();
    for (number, one) in members.iter().enumerate() {
        let known = found.iter_mut().find_map(|group| {
            let pairs = paired(program, group.first, one)?;
            Some((group, pairs))
        });
        match known {
            Some((group, pairs)) => {
                group.numbers.push(number);
                group.buffers.iter_mut().zip(pairs).for_each(|(all, (_, own))| all.push(own));
            }
            None => {
                let own = mentions(one).0.into_iter();
                let mut distinct: Vec<Vec<Buffer>> = Vec::new();
                own.for_each(|b| {
                    if !distinct.iter().any(|all| all[0] == b) {
                        distinct.push(vec![b]);
                    }
                });
                found.push(AlikeProducts { first: one, numbers: vec![number], buffers: distinct });
            }
        }
    }
    found
}

impl AlikeProducts<'_> {
    /// Whether a tile is of one of these, where it may be of another one of `all`.
    pub(super) fn test(&self, emit: &mut Emit<'_>, number: Reg, all: usize) -> Option<Reg> {
        if self.numbers.len() == all {
            return None;
        }
        let tests = self.numbers.iter().map(|k| {
            let args = format!("{number}, {k}");
            made(&mut emit.asm, Class::Pred, "setp.eq.s32", args)
        });
        let tests: Vec<Reg> = tests.collect();
        tests
            .into_iter()
            .reduce(|p, q| made(&mut emit.asm, Class::Pred, "or.pred", format!("{p}, {q}")))
    }

    /// What the first one's buffers mean where the number of the product is `number`.
    pub(super) fn choices(&self, number: Reg) -> Vec<BufferChoice> {
        let of = |all: &Vec<Buffer>| {
            let others = self.numbers.iter().copied().zip(all.iter().copied()).skip(1);
            let others = others.filter(|(_, b)| *b != all[0]).collect();
            BufferChoice { first: all[0], others, number }
        };
        self.buffers.iter().map(of).collect()
    }
}

/// The buffers of one product's end, each once, with those of another that stand in their places; `None` where the ends differ in more
/// than that.
fn paired(
    program: &Program,
    one: &WarpgroupMember,
    other: &WarpgroupMember,
) -> Option<Vec<(Buffer, Buffer)>> {
    let ((own, form), (others, other_form)) = (mentions(one), mentions(other));
    if form != other_form || own.len() != others.len() {
        return None;
    }
    let mut pairs: Vec<(Buffer, Buffer)> = Vec::new();
    for (a, b) in own.into_iter().zip(others) {
        // What is one array here is one array there.
        match pairs.iter().find(|known| known.0 == a || known.1 == b) {
            Some(known) if *known != (a, b) => return None,
            Some(_) => {}
            None => pairs.push((a, b)),
        }
    }
    let equal = |&(a, b): &(Buffer, Buffer)| {
        let [a, b] = [a, b].map(|b| &program.buffers[b]);
        (a.dtype, &a.dims, &a.strides, a.storage) == (b.dtype, &b.dims, &b.strides, b.storage)
    };
    pairs.iter().all(equal).then_some(pairs)
}

/// The buffers that a product's end mentions, in order, and the end of any buffers.
fn mentions(one: &WarpgroupMember) -> (Vec<Buffer>, Step) {
    let stages = vec![one.member.then.clone()];
    let mut form = Step::Kernel(Kernel { stages, ..Kernel::default() });
    let mut found = Vec::new();
    form.buffers_mut(&mut |b| {
        found.push(*b);
        *b = Buffer::from_u32(0);
    });
    found.extend(one.parts.iter().flatten());
    (found, form)
}
