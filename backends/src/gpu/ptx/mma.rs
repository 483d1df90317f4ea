//! One step of a product: operands from shared memory to registers, and their products.

use super::address::{Vars, resolved, value};
use super::asm::{Asm, Class, Reg};
use super::emit::Emit;
use super::operands::class;
use crate::gpu::schedule::mma_unit::Unit;
use crate::gpu::schedule::tiling::ProductTiling;
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;

/// What a thread needs to know to multiply.
pub(crate) struct Core {
    /// Where its operands are in the first stage.
    bases: [Reg; 2],
    sum: DType,
}

/// Bytes of the depth that tensor cores take at a time.
const TAKEN: i64 = 32;

/// The bit of a lane that says which lines of an operand it has the address of; the other one of bits 3
/// and 4 says where along the depth. Of the left operand tensor cores want 16 lines and then those again
/// further along the depth, of the right one both places of 8 lines and then those of 8 more.
const LINES: [u32; 2] = [3, 4];

/// A part of a number: this many bits of it from a bit on.
fn bits(e: &IndexExpr, from: u32, count: u32) -> IndexExpr {
    e.clone().floor_div(1 << from).modulo(1 << count)
}

/// The thread's row and column of threads, for fused multiply-adds. A warp has 4 x 8 of them; threads whose
/// numbers differ in one of the last two bits read the same of one operand, which is read once then.
fn in_square(thread: &IndexExpr) -> [IndexExpr; 2] {
    let down = bits(thread, 1, 1).sum(bits(thread, 3, 1).times(2));
    let across =
        bits(thread, 0, 1).sum(bits(thread, 2, 1).times(2)).sum(bits(thread, 4, 1).times(4));
    let warp = thread.clone().floor_div(32);
    let row = warp.clone().floor_div(2).times(4).sum(down);
    [row, warp.modulo(2).times(8).sum(across)]
}

/// The first line of a warp, of each operand.
fn of_warp(cut: &ProductTiling, thread: &IndexExpr) -> [IndexExpr; 2] {
    let warp = thread.clone().floor_div(32);
    let of = |e: IndexExpr, k: usize| e.times(cut.side[k] / cut.warps[k]);
    [of(warp.clone().floor_div(cut.warps[1]), 0), of(warp.modulo(cut.warps[1]), 1)]
}

/// Where a thread's sums are among those of the tile: each its row and column beyond those of the first,
/// with how many neighbours begin there; and the row and column of the first.
pub(crate) fn places(
    cut: &ProductTiling,
    thread: &IndexExpr,
) -> ([IndexExpr; 2], Vec<[i64; 2]>, usize) {
    let mut all = Vec::new();
    if cut.unit == Unit::Fma {
        for i in 0..cut.each(0) {
            for j in 0..cut.each(1) {
                all.push([cut.place(i), cut.place(j)]);
            }
        }
        return (in_square(thread).map(|e| e.times(cut.near())), all, cut.near() as usize);
    }
    for i in 0..cut.side[0] / cut.warps[0] / 16 {
        for j in 0..cut.side[1] / cut.warps[1] / 8 {
            for k in 0..4 {
                all.push([i * 16 + k / 2 * 8, j * 8 + k % 2]);
            }
        }
    }
    let lane = thread.clone().modulo(32);
    let [row, col] = of_warp(cut, thread);
    let first = [row.sum(lane.clone().floor_div(4)), col.sum(lane.modulo(4).times(2))];
    (first, all, 2)
}

impl Core {
    pub(crate) fn new(
        emit: &mut Emit<'_>,
        cut: &ProductTiling,
        sum: DType,
        thread: &IndexExpr,
        vars: &Vars,
    ) -> Core {
        let lane = thread.clone().modulo(32);
        let places = [0, 1].map(|k| {
            let operand = &cut.operands[k];
            let (size, pitch) = (cut.size, operand.pitch);
            let place = match (cut.unit, operand.along) {
                (Unit::Fma, _) => in_square(thread)[k].clone().times(cut.near() * size),
                // The rows of four matrices of 8 x 16 bytes, whose addresses eight threads each have.
                (_, true) => {
                    let line = bits(&lane, 0, 3).sum(bits(&lane, LINES[k], 1).times(8));
                    let line = of_warp(cut, thread)[k].clone().sum(line);
                    line.times(pitch).sum(bits(&lane, 7 - LINES[k], 1).times(TAKEN / 2))
                }
                (Unit::Half(_), false) => {
                    let deep = bits(&lane, 0, 3).sum(bits(&lane, 7 - LINES[k], 1).times(8));
                    let line = bits(&lane, LINES[k], 1).times(8);
                    let line = of_warp(cut, thread)[k].clone().sum(line);
                    deep.times(pitch).sum(line.times(size))
                }
                (Unit::Tf32, false) => {
                    let line = of_warp(cut, thread)[k].clone().sum(lane.clone().floor_div(4));
                    lane.clone().modulo(4).times(pitch).sum(line.times(size))
                }
            };
            place.plus(operand.offset)
        });
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let bases = places.map(|place| {
            let e = resolved(&place, &emit.same(vars), vars);
            let x = value(&mut emit.asm, &e, vars, &[]);
            emit.asm.pure(Class::Word, "add.s32", format_args!("{x}, {base}"))
        });
        Core { bases, sum }
    }

    /// Adds the products of one step, in the stage that is this many bytes in.
    pub(crate) fn step(&self, emit: &mut Emit<'_>, cut: &ProductTiling, stage: Reg, sums: &[Reg]) {
        let at = self.bases.map(|base| {
            let at = emit.asm.fresh(Class::Word);
            emit.asm.emit(format_args!("add.s32 {at}, {base}, {stage}"));
            at
        });
        if cut.unit == Unit::Fma {
            return self.chains(emit, cut, at, sums);
        }
        let tall = cut.side[0] / cut.warps[0] / 16;
        let wide = cut.side[1] / cut.warps[1] / 16;
        for k in 0..cut.deep * cut.size / TAKEN {
            let lhs: Vec<_> = (0..tall).map(|i| matrix(emit, cut, 0, at[0], i, k)).collect();
            let rhs: Vec<_> = (0..wide).map(|j| matrix(emit, cut, 1, at[1], j, k)).collect();
            for (i, a) in lhs.iter().enumerate() {
                for j in 0..2 * wide as usize {
                    let b = [rhs[j / 2][j % 2 * 2], rhs[j / 2][j % 2 * 2 + 1]];
                    let first = (i * 2 * wide as usize + j) * 4;
                    multiplied(&mut emit.asm, cut.unit, &sums[first..first + 4], a, b);
                }
            }
        }
    }

    /// Chains of fused multiply-adds, one after the other along the depth.
    fn chains(&self, emit: &mut Emit<'_>, cut: &ProductTiling, at: [Reg; 2], sums: &[Reg]) {
        let op = match self.sum {
            DType::F32 => "fma.rn.f32",
            DType::F64 => "fma.rn.f64",
            DType::I64 => "mad.lo.s64",
            _ => "mad.lo.s32",
        };
        for d in 0..cut.deep {
            let [x, y] = [0, 1].map(|k| self.read(emit, cut, at[k], d * cut.operands[k].pitch, k));
            for (i, &a) in x.iter().enumerate() {
                for (j, &b) in y.iter().enumerate() {
                    let sum = sums[i * y.len() + j];
                    emit.asm.emit(format_args!("{op} {sum}, {a}, {b}, {sum}"));
                }
            }
        }
    }

    /// A thread's elements of an operand at one place along the depth.
    fn read(
        &self,
        emit: &mut Emit<'_>,
        cut: &ProductTiling,
        base: Reg,
        offset: i64,
        side: usize,
    ) -> Vec<Reg> {
        let form = class(self.sum);
        let near = cut.near();
        let mut found = Vec::new();
        for i in (0..cut.each(side)).step_by(near as usize) {
            let regs: Vec<Reg> = (0..near).map(|_| emit.asm.fresh(form)).collect();
            let at = offset + cut.place(i) * cut.size;
            emit.shared_row("ld", &regs, base, at);
            found.extend(regs);
        }
        found
    }
}

/// 16 lines of an operand by 32 bytes of the depth, as tensor cores have them: four matrices of 8 lines by 16
/// bytes, in the order in which [`LINES`] counts them.
fn matrix(
    emit: &mut Emit<'_>,
    cut: &ProductTiling,
    side: usize,
    base: Reg,
    i: i64,
    k: i64,
) -> [Reg; 4] {
    let operand = &cut.operands[side];
    let pitch = operand.pitch;
    let regs = match (cut.unit, operand.along) {
        (_, true) => ldmatrix(&mut emit.asm, base, i * 16 * pitch + k * TAKEN, false),
        (Unit::Tf32, false) => {
            let regs = [0; 4].map(|_| emit.asm.fresh(Class::Word));
            for (n, r) in (0i64..).zip(regs) {
                let (low, high) = (n % 2, n / 2);
                let (line, deep) = if side == 0 { (low, high) } else { (high, low) };
                let line = (i * 16 + line * 8) * cut.size;
                let at = (k * (TAKEN / cut.size) + deep * 4) * pitch + line;
                emit.asm.emit(format_args!("ld.shared.b32 {r}, [{base}+{at}]"));
            }
            regs
        }
        (_, false) => {
            let at = k * (TAKEN / cut.size) * pitch + i * 16 * cut.size;
            ldmatrix(&mut emit.asm, base, at, true)
        }
    };
    match cut.unit {
        // What tensor cores read of an `f32` is cut off, not rounded.
        Unit::Tf32 => regs.map(|r| {
            let rounded = emit.asm.fresh(Class::Word);
            emit.asm.emit(format_args!("cvt.rna.tf32.f32 {rounded}, {r}"));
            rounded
        }),
        _ => regs,
    }
}

/// Four matrices of 8 lines by 16 bytes that a warp loads together, each lane giving the address of a line; turned, each
/// thread has neighbours of a column of 16-bit elements.
pub(crate) fn ldmatrix(asm: &mut Asm, base: Reg, offset: i64, turned: bool) -> [Reg; 4] {
    let regs = [0; 4].map(|_| asm.fresh(Class::Word));
    let list = regs.map(|r| r.to_string()).join(", ");
    let turned = if turned { ".trans" } else { "" };
    asm.emit(format_args!(
        "ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{{list}}}, [{base}+{offset}]"
    ));
    regs
}

/// Adds to 16 x 8 sums the products of 16 lines and 8.
pub(crate) fn multiplied(asm: &mut Asm, unit: Unit, sums: &[Reg], a: &[Reg; 4], b: [Reg; 2]) {
    let form = match unit {
        Unit::Half(DType::F16) => "m16n8k16.row.col.f32.f16.f16.f32",
        Unit::Half(_) => "m16n8k16.row.col.f32.bf16.bf16.f32",
        _ => "m16n8k8.row.col.f32.tf32.tf32.f32",
    };
    let listed = |regs: &[Reg]| regs.iter().map(Reg::to_string).collect::<Vec<_>>().join(", ");
    let (sums, a, b) = (listed(sums), listed(a), listed(&b));
    asm.emit(format_args!("mma.sync.aligned.{form} {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}}"));
}

impl Emit<'_> {
    /// Loads (`ld`) or stores (`st`) neighbours in shared memory.
    pub(crate) fn shared_row(&mut self, op: &str, regs: &[Reg], base: Reg, at: i64) {
        let Some(first) = regs.first() else { return };
        let moved = first.class.moved();
        let list: Vec<String> = regs.iter().map(Reg::to_string).collect();
        let (vector, list) = match list.as_slice() {
            [one] => (String::new(), one.clone()),
            all => (format!(".v{}", all.len()), format!("{{{}}}", all.join(", "))),
        };
        match op {
            "st" => self.asm.emit(format_args!("st.shared{vector}.{moved} [{base}+{at}], {list}")),
            _ => self.asm.emit(format_args!("ld.shared{vector}.{moved} {list}, [{base}+{at}]")),
        }
    }
}

/// The row and column in the tile of every sum of every thread.
#[cfg(test)]
pub(crate) fn each_sum(cut: &ProductTiling) -> Vec<[i64; 2]> {
    let (first, all, _) = places(cut, &IndexExpr::axis(0));
    let of = |thread: i64| first.clone().map(|e| e.eval(&[thread], &[]));
    let each = |thread: i64| all.iter().map(move |at| (of(thread), at));
    (0..cut.threads)
        .flat_map(|t| each(t).map(|(of, at)| [of[0] + at[0], of[1] + at[1]]).collect::<Vec<_>>())
        .collect()
}
