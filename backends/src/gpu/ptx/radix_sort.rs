//! Blocks of threads that put entries in order by a digit of their keys.
//!
//! An entry is a key and a number that goes with it. A block has this many a thread: the entries of a warp
//! are neighbours, and those that one turn of a warp has are too. The order is stable. An entry's
//! rank among those of its warp with the same digit is how many lanes before it vote for the digit,
//! beside what a counter of the warp has of the turns before; there are no atomics, and it takes
//! as long whatever the digits are. Counters of all warps are added up in the order of digits and, for each digit,
//! of warps.

use super::asm::{Asm, Class, Reg, guard_prefix};
use super::emit::Emit;
use crate::gpu::schedule::sort::{DIGITS, SortBlock};
use crate::gpu::target::WARP;
use adfuse_ir::index::IndexExpr;

/// A key and the number that goes with it.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) key: Reg,
    pub(crate) with: Reg,
}

impl SortBlock {
    /// The number of an entry of a thread among those of the block.
    pub(crate) fn number(&self, thread: &IndexExpr, e: i64) -> IndexExpr {
        let warp = thread.clone().floor_div(WARP).times(WARP * self.each);
        warp.plus(e * WARP).sum(thread.clone().modulo(WARP))
    }

    fn base(&self, asm: &mut Asm) -> Reg {
        asm.pure(Class::Word, "mov.u32", "dynamic")
    }

    /// Whether a thread has a digit, the one of its own number; none where all do.
    pub(crate) fn has_digit(&self, asm: &mut Asm) -> Option<Reg> {
        let thread = asm.special("tid.x");
        let test = format_args!("{thread}, {DIGITS}").to_string();
        (self.threads > DIGITS).then(|| asm.pure(Class::Pred, "setp.lt.u32", test))
    }

    /// Where the first number of a thread's digit is.
    fn of_thread(&self, asm: &mut Asm) -> Reg {
        let (thread, base) = (asm.special("tid.x"), self.base(asm));
        asm.pure(Class::Word, "mad.lo.u32", format_args!("{thread}, 4, {base}"))
    }

    /// Where the counters of a thread's warp are.
    fn of_warp(&self, asm: &mut Asm) -> Reg {
        let (thread, base) = (asm.special("tid.x"), self.base(asm));
        let warp = asm.pure(Class::Word, "shr.u32", format_args!("{thread}, 5"));
        asm.pure(Class::Word, "mad.lo.u32", format_args!("{warp}, {}, {base}", DIGITS * 4))
    }

    /// Ranks of a thread's entries among those of its warp with the same digit. Counters have how many
    /// entries of each digit the warp has, afterwards.
    fn ranks(&self, asm: &mut Asm, digits: &[Reg], bits: u32) -> Vec<Reg> {
        let (own, lane) = (self.of_warp(asm), asm.special("laneid"));
        let below = asm.special("lanemask_lt");
        let first = asm.pure(Class::Word, "mad.lo.u32", format_args!("{lane}, 16, {own}"));
        let zero = asm.word(0);
        for half in 0..2 {
            let at = half * DIGITS * 2;
            asm.emit(format_args!(
                "st.shared.v4.b32 [{first}+{at}], {{{zero}, {zero}, {zero}, {zero}}}"
            ));
        }
        asm.emit("bar.warp.sync 0xffffffff");
        let mut ranks = Vec::new();
        for digit in digits {
            // The lanes whose digits have the same bits.
            let mut same: Option<Reg> = None;
            for bit in 0..bits {
                let one = asm.pure(Class::Word, "and.b32", format_args!("{digit}, {}", 1 << bit));
                let set = asm.pure(Class::Pred, "setp.ne.u32", format_args!("{one}, 0"));
                let votes = asm.fresh(Class::Word);
                asm.emit(format_args!("vote.sync.ballot.b32 {votes}, {set}, 0xffffffff"));
                let not = asm.pure(Class::Word, "not.b32", votes);
                let alike = crate::gpu::ptx::operands::select(asm, set, votes, not);
                same = Some(match same {
                    Some(s) => asm.pure(Class::Word, "and.b32", format_args!("{s}, {alike}")),
                    None => alike,
                });
            }
            let Some(same) = same else { continue };
            let before = asm.pure(Class::Word, "and.b32", format_args!("{same}, {below}"));
            let before = asm.pure(Class::Word, "popc.b32", before);
            let count = asm.pure(Class::Word, "popc.b32", same);
            let at = asm.pure(Class::Word, "mad.lo.u32", format_args!("{digit}, 4, {own}"));
            let was = asm.fresh(Class::Word);
            asm.emit(format_args!("ld.shared.b32 {was}, [{at}]"));
            asm.emit("bar.warp.sync 0xffffffff");
            let leads = asm.pure(Class::Pred, "setp.eq.u32", format_args!("{before}, 0"));
            let now = asm.pure(Class::Word, "add.u32", format_args!("{was}, {count}"));
            asm.emit(format_args!("@{leads} st.shared.b32 [{at}], {now}"));
            asm.emit("bar.warp.sync 0xffffffff");
            ranks.push(asm.pure(Class::Word, "add.u32", format_args!("{was}, {before}")));
        }
        ranks
    }

    /// Of a thread's digit, how many entries each warp has, and all of them have.
    fn counted(&self, asm: &mut Asm) -> (Vec<Reg>, Reg) {
        let (at, has) = (self.of_thread(asm), self.has_digit(asm));
        asm.emit("bar.sync 0");
        let mut total = asm.word(0);
        let mut counts = Vec::new();
        for warp in 0..self.warps() {
            counts.push(self.read(asm, at, warp * DIGITS * 4, has));
        }
        for count in &counts {
            total = asm.pure(Class::Word, "add.u32", format_args!("{total}, {count}"));
        }
        (counts, total)
    }

    /// A number in shared memory; 0 where a condition does not hold.
    fn read(&self, asm: &mut Asm, at: Reg, offset: i64, when: Option<Reg>) -> Reg {
        let found = asm.fresh(Class::Word);
        match when {
            None => asm.emit(format_args!("ld.shared.b32 {found}, [{at}+{offset}]")),
            Some(p) => {
                asm.emit(format_args!("mov.b32 {found}, 0"));
                asm.emit(format_args!("@{p} ld.shared.b32 {found}, [{at}+{offset}]"));
            }
        }
        found
    }

    /// The sum of a number over all digits before that of the thread.
    pub(crate) fn before(&self, asm: &mut Asm, x: Reg, room: i64) -> Reg {
        let (base, has) = (self.base(asm), self.has_digit(asm));
        let (thread, lane) = (asm.special("tid.x"), asm.special("laneid"));
        let sum = warp_scan(asm, x);
        let warp = asm.pure(Class::Word, "shr.u32", format_args!("{thread}, 5"));
        let at = asm.pure(Class::Word, "mad.lo.u32", format_args!("{warp}, 4, {base}"));
        let ends = asm.pure(Class::Pred, "setp.eq.u32", format_args!("{lane}, {}", WARP - 1));
        let ends = match has {
            Some(has) => crate::gpu::ptx::operands::both(asm, ends, has),
            None => ends,
        };
        asm.emit(format_args!("@{ends} st.shared.b32 [{at}+{}], {sum}", self.sums(room)));
        asm.emit("bar.sync 0");
        let mut found = asm.pure(Class::Word, "sub.u32", format_args!("{sum}, {x}"));
        for other in 0..DIGITS / WARP - 1 {
            let part = self.read(asm, base, self.sums(room) + other * 4, None);
            let comes = asm.pure(Class::Pred, "setp.gt.u32", format_args!("{warp}, {other}"));
            let zero = asm.word(0);
            let part = crate::gpu::ptx::operands::select(asm, comes, part, zero);
            found = asm.pure(Class::Word, "add.u32", format_args!("{found}, {part}"));
        }
        found
    }

    /// How many entries of the block have the digit of a thread.
    pub(crate) fn histogram(&self, emit: &mut Emit<'_>, digits: &[Reg], bits: u32) -> Reg {
        self.ranks(&mut emit.asm, digits, bits);
        self.counted(&mut emit.asm).1
    }

    /// Where a thread's entries belong among all of the block, and, for the digit of the thread, the first
    /// place of those that have it.
    pub(crate) fn places(&self, emit: &mut Emit<'_>, digits: &[Reg], bits: u32) -> (Vec<Reg>, Reg) {
        let asm = &mut emit.asm;
        let ranks = self.ranks(asm, digits, bits);
        let (counts, total) = self.counted(asm);
        let first = self.before(asm, total, 0);
        let (at, has) = (self.of_thread(asm), self.has_digit(asm));
        let prefix = guard_prefix(has);
        let mut next = first;
        for (warp, count) in (0i64..).zip(counts) {
            asm.emit(format_args!("{prefix}st.shared.b32 [{at}+{}], {next}", warp * DIGITS * 4));
            next = asm.pure(Class::Word, "add.u32", format_args!("{next}, {count}"));
        }
        asm.emit("bar.sync 0");
        let own = self.of_warp(asm);
        let mut places = Vec::new();
        for (digit, rank) in digits.iter().zip(ranks) {
            let at = asm.pure(Class::Word, "mad.lo.u32", format_args!("{digit}, 4, {own}"));
            let from = self.read(asm, at, 0, None);
            places.push(asm.pure(Class::Word, "add.u32", format_args!("{from}, {rank}")));
        }
        (places, first)
    }

    /// Puts entries at their places in shared memory; after the barrier all are there.
    pub(crate) fn put(&self, emit: &mut Emit<'_>, entries: &[Entry], places: &[Reg]) {
        for (entry, place) in entries.iter().zip(places) {
            let (key, with) = self.addresses(&mut emit.asm, *place);
            let raw = entry.key.class.moved();
            emit.asm.emit(format_args!("st.shared.{raw} [{key}], {}", entry.key));
            emit.asm.emit(format_args!("st.shared.b32 [{with}], {}", entry.with));
        }
        emit.asm.emit("bar.sync 0");
    }

    fn addresses(&self, asm: &mut Asm, place: Reg) -> (String, String) {
        let base = self.base(asm);
        let size = self.key_bytes();
        let key = asm.pure(Class::Word, "mad.lo.u32", format_args!("{place}, {size}, {base}"));
        let with = asm.pure(Class::Word, "mad.lo.u32", format_args!("{place}, 4, {base}"));
        (format!("{key}+{}", self.keys()), format!("{with}+{}", self.withs()))
    }

    /// The entry at a place in shared memory.
    pub(crate) fn at(&self, emit: &mut Emit<'_>, place: Reg) -> Entry {
        let (key_at, with_at) = self.addresses(&mut emit.asm, place);
        let class = if self.wide { Class::Long } else { Class::Word };
        let (key, with) = (emit.asm.fresh(class), emit.asm.fresh(Class::Word));
        emit.asm.emit(format_args!("ld.shared.{} {key}, [{key_at}]", class.moved()));
        emit.asm.emit(format_args!("ld.shared.b32 {with}, [{with_at}]"));
        Entry { key, with }
    }

    /// Leaves a number for the digit of a thread; [`SortBlock::put`] has the barrier after it.
    pub(crate) fn leave_for_digit(&self, asm: &mut Asm, x: Reg) {
        let (at, has) = (self.of_thread(asm), self.has_digit(asm));
        let prefix = guard_prefix(has);
        asm.emit(format_args!("{prefix}st.shared.b32 [{at}+{}], {x}", self.each_digit()));
    }

    /// What was left for a digit.
    pub(crate) fn left_for_digit(&self, asm: &mut Asm, digit: Reg) -> Reg {
        let base = self.base(asm);
        let at = asm.pure(Class::Word, "mad.lo.u32", format_args!("{digit}, 4, {base}"));
        self.read(asm, at, self.each_digit(), None)
    }
}

/// The sum of a number of 32 bits over the lanes of a warp up to each lane.
pub(crate) fn warp_scan(asm: &mut Asm, x: Reg) -> Reg {
    let mut sum = x;
    for distance in [1, 2, 4, 8, 16] {
        let (other, has) = (asm.fresh(Class::Word), asm.fresh(Class::Pred));
        asm.emit(format_args!("shfl.sync.up.b32 {other}|{has}, {sum}, {distance}, 0, 0xffffffff"));
        let zero = asm.word(0);
        let other = crate::gpu::ptx::operands::select(asm, has, other, zero);
        sum = asm.pure(Class::Word, "add.u32", format_args!("{sum}, {other}"));
    }
    sum
}

/// This many bits of a key, from a bit on that is in a register or known.
pub(crate) fn digit(asm: &mut Asm, key: Reg, shift: impl std::fmt::Display, bits: u32) -> Reg {
    let (class, op) = match key.class {
        Class::Long => (Class::Long, "shr.u64"),
        _ => (Class::Word, "shr.u32"),
    };
    let moved = asm.pure(class, op, format_args!("{key}, {shift}"));
    let low = match class {
        Class::Long => asm.pure(Class::Word, "cvt.u32.u64", moved),
        _ => moved,
    };
    asm.pure(Class::Word, "and.b32", format_args!("{low}, {}", (1u32 << bits) - 1))
}
