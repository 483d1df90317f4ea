//! What a thread keeps of its elements from stage to stage, in registers and in shared memory.

use super::address::Vars;
use super::asm::{Asm, Class, Reg, guard_prefix, listed};
use super::emit::{Emit, memory};
use super::entry::Below;
use super::operands::class;
use super::row_point::{Held, Point};
use crate::gpu::schedule::cooperative_row::{Has, Piece};
use crate::gpu::schedule::row_residency::Residency;
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Operand, Param, Sink, Stage, Tile};

impl Held {
    /// The one element of a tile without axes.
    pub(crate) fn of(value: Reg) -> Held {
        Held { regs: vec![Some(value)], half: None, named: false }
    }

    pub(crate) fn one(&self) -> Option<Reg> {
        self.regs.first().copied().flatten()
    }
}

/// Names the registers of tiles that this stage keeps, where not all threads have every element.
pub(crate) fn name_registers(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    stage: &Stage,
    pieces: &[Piece],
) {
    let named = pieces.iter().any(|p| p.has != Has::All);
    let cells: i64 = pieces.iter().map(|own| own.turns * p.layout.team.width).sum();
    for sink in &stage.sinks {
        let Sink::Keep(t) = sink else { continue };
        if p.layout.residency[*t] != Some(Residency::Registers) {
            continue;
        }
        let dtype = p.layout.kernel.tiles[*t].dtype;
        let (each, form) = match dtype {
            DType::Bool => (32, Class::Word),
            d if d.bytes() == 2 => (2, Class::Word),
            d => (1, class(d)),
        };
        let words = (cells + each - 1) / each;
        let regs = (0..words).map(|_| match (dtype, named) {
            (DType::Bool, _) => {
                let zero = emit.asm.word(0);
                Some(emit.asm.copied(zero))
            }
            (_, true) => Some(emit.asm.fresh(form)),
            _ => None,
        });
        p.held[*t] = Held { regs: regs.collect(), half: None, named };
    }
}

/// Keeps neighbours of a tile, the first of which is number `cell` of the thread's elements; `end` is one past the number of the last element that is kept with them.
pub(crate) fn keep(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    t: Tile,
    values: &[Reg],
    (here, vars): (&Below, &Vars),
    [cell, end]: [usize; 2],
) {
    let dtype = p.layout.kernel.tiles[t].dtype;
    match p.layout.residency[t] {
        Some(Residency::Registers) => {
            for (cell, &value) in (cell..).zip(values) {
                hold(&mut emit.asm, &mut p.held[t], dtype, value, cell, cell + 1 == end);
            }
        }
        Some(Residency::Shared(offset)) => {
            let Some(base) = p.memory else { return };
            let first = here.place.clone().times(p.layout.team.width);
            let at = (&first, base, offset);
            emit.store_shared(dtype, values, at, vars, here.valid);
        }
        // It is there already, or nobody reads it.
        Some(Residency::Prefetched(_)) | None => {}
    }
}

fn hold(asm: &mut Asm, held: &mut Held, dtype: DType, value: Reg, cell: usize, last: bool) {
    let mut set = |asm: &mut Asm, place: usize, value: Reg| match held.regs[place] {
        Some(reg) if held.named => asm.set(reg, value),
        _ => held.regs[place] = Some(value),
    };
    match dtype {
        DType::Bool => {
            let bit = asm.pure(
                Class::Word,
                "selp.b32",
                format_args!("{}, 0, {value}", 1u32 << (cell % 32)),
            );
            if let Some(word) = held.regs[cell / 32] {
                asm.emit(format_args!("or.b32 {word}, {word}, {bit}"));
            }
        }
        d if d.bytes() == 2 => match (held.half.take(), last) {
            (None, false) => held.half = Some(value),
            (low, _) => {
                let low = low.unwrap_or(value);
                let pair = asm.fresh(Class::Word);
                asm.emit(format_args!("mov.b32 {pair}, {{{low}, {value}}}"));
                set(asm, cell / 2, pair);
            }
        },
        _ => set(asm, cell, value),
    }
}

/// An element of a tile that is in registers.
pub(crate) fn held(emit: &mut Emit<'_>, p: &Point<'_>, t: Tile, cell: usize) -> Option<Reg> {
    let asm = &mut emit.asm;
    match p.layout.kernel.tiles[t].dtype {
        DType::Bool => {
            let word = (*p.held[t].regs.get(cell / 32)?)?;
            let bit = 1u32 << (cell % 32);
            let bit = asm.pure(Class::Word, "and.b32", format_args!("{word}, {bit}"));
            Some(asm.pure(Class::Pred, "setp.ne.s32", format_args!("{bit}, 0")))
        }
        d if d.bytes() == 2 => {
            let pair = (*p.held[t].regs.get(cell / 2)?)?;
            let word = match cell % 2 {
                0 => pair,
                _ => asm.pure(Class::Word, "shr.u32", format_args!("{pair}, 16")),
            };
            Some(asm.pure(Class::Half, "cvt.u16.u32", word))
        }
        _ => *p.held[t].regs.get(cell)?,
    }
}

/// Neighbours of what is in shared memory: of a tile, or of an array that was copied ahead.
pub(crate) fn shared_row(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    array: Option<usize>,
    param: &Param,
    here: &Below,
    vars: &Vars,
) -> Option<Vec<Reg>> {
    let copied = |a: usize| {
        let array = &p.layout.arrays[a];
        Some((p.slot?, array.offset))
    };
    let (dtype, (base, offset)) = match param {
        Param::Load(pieces) => {
            let Operand::Buffer(b) = pieces.first()?.from else { return None };
            (emit.program.buffers[b].dtype, copied(array?)?)
        }
        Param::Tile(t) => {
            let place = match p.layout.residency[*t]? {
                Residency::Registers => return None,
                Residency::Shared(offset) => (p.memory?, offset),
                Residency::Prefetched(a) => copied(a)?,
            };
            (p.layout.kernel.tiles[*t].dtype, place)
        }
        _ => return None,
    };
    let width = p.layout.team.width;
    let first = here.place.clone().times(width);
    Some(emit.load_shared(dtype, width, (&first, base, offset), vars, here.valid))
}

/// Elements of one access to shared memory: 16 bytes at most.
fn step(dtype: DType, width: i64) -> i64 {
    width.min(16 / dtype.bytes() as i64).min(4)
}

impl Emit<'_> {
    /// Neighbours in shared memory; anything where a condition does not hold, since another thread may write there.
    /// What is there changes: each load is its own.
    fn load_shared(
        &mut self,
        dtype: DType,
        width: i64,
        (first, base, offset): (&IndexExpr, Reg, i64),
        vars: &Vars,
        when: Option<Reg>,
    ) -> Vec<Reg> {
        let prefix = guard_prefix(when);
        let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
        let size = dtype.bytes() as i64;
        let mut found = Vec::new();
        let step = step(dtype, width);
        for j in (0..width).step_by(step as usize) {
            let at = self.shared_address(&first.clone().plus(j), size, base, offset, vars);
            let halves = size == 2 && step > 1;
            let (form, count) = if halves { (Class::Word, step / 2) } else { (form, step) };
            let regs: Vec<Reg> = (0..count).map(|_| self.asm.fresh(form)).collect();
            let spelled = if halves { "b32" } else { memory(dtype) };
            let vector = if count > 1 { format!(".v{count}") } else { String::new() };
            let list = listed(&regs);
            self.asm.emit(format_args!("{prefix}ld.shared{vector}.{spelled} {list}, {at}"));
            for reg in regs {
                match dtype {
                    _ if halves => found.extend(self.asm.pure_row(Class::Half, 2, "mov.b32", reg)),
                    DType::Bool => {
                        let args = format_args!("{reg}, 0");
                        found.push(self.asm.pure(Class::Pred, "setp.ne.s32", args));
                    }
                    _ => found.push(reg),
                }
            }
        }
        found
    }

    /// Stores neighbours into shared memory.
    fn store_shared(
        &mut self,
        dtype: DType,
        values: &[Reg],
        (first, base, offset): (&IndexExpr, Reg, i64),
        vars: &Vars,
        when: Option<Reg>,
    ) {
        let prefix = guard_prefix(when);
        let size = dtype.bytes() as i64;
        let step = step(dtype, values.len() as i64) as usize;
        for (part, j) in values.chunks(step).zip((0i64..).step_by(step)) {
            let at = self.shared_address(&first.clone().plus(j), size, base, offset, vars);
            let regs: Vec<Reg> = part.iter().map(|&v| self.plain(v, dtype)).collect();
            let halves = size == 2 && step > 1;
            let regs = match halves {
                true => {
                    let pair = |p: &[Reg]| self.asm.pure(Class::Word, "mov.b32", listed(p));
                    regs.chunks(2).map(pair).collect()
                }
                false => regs,
            };
            let spelled = match dtype {
                _ if halves => "b32",
                DType::I8 | DType::U8 | DType::Bool => "b8",
                d => memory(d),
            };
            let vector = if regs.len() > 1 { format!(".v{}", regs.len()) } else { String::new() };
            let list = listed(&regs);
            self.asm.emit(format_args!("{prefix}st.shared{vector}.{spelled} {at}, {list}"));
        }
    }
}
