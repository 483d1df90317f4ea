//! Flat loops that only store: a thread for some neighbours, with loads and stores of 16 bytes where
//! the index maps prove that they are aligned.

use super::address::Vars;
use super::asm::{Class, Reg, guard_prefix, listed};
use super::emit::{At, Emit, memory};
use super::entry::{Out, begun};
use super::operands;
use crate::gpu::schedule::elementwise::{Elementwise, FlatGrid};
use crate::gpu::schedule::index::whole;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::vectorize::{VectorLanes, neighbours};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Param, Sink, Stage, Storage, volume};
use adfuse_ir::{DType, Diagnostic};
use hashbrown::HashMap;

/// Where a thread's neighbours are: their coordinates, in terms of the number of the thread's group.
pub(crate) struct Neighbours {
    pub(crate) vars: Vars,
    pub(crate) coords: Vec<Vec<IndexExpr>>,
}

/// The `width` neighbours of group `group` of points of a domain; `None` where they do not divide it.
fn of_group(group: Reg, domain: &[i64], width: i64) -> Option<Neighbours> {
    let coords = neighbours(domain, width)?;
    let mut vars = Vars::default();
    vars.push(group, volume(domain) / width);
    Some(Neighbours { vars, coords })
}

impl Emit<'_> {
    /// The element that neighbours have in a row, aligned to their number: the first.
    pub(super) fn aligned(
        &self,
        b: Buffer,
        index: &[IndexExpr],
        n: &Neighbours,
    ) -> Option<IndexExpr> {
        let lanes = VectorLanes { coords: &n.coords, extents: &n.vars.extents };
        lanes.aligned(self.program, b, index)
    }

    /// Loads what neighbours have in a row, with as few instructions as do.
    pub(crate) fn loaded(&mut self, stage: &Stage, n: &Neighbours) -> HashMap<usize, Vec<Reg>> {
        self.loaded_where(stage, n, &|_| true)
    }

    /// As [`Emit::loaded`], of some parameters alone.
    pub(crate) fn loaded_where(
        &mut self,
        stage: &Stage,
        n: &Neighbours,
        wanted: &dyn Fn(usize) -> bool,
    ) -> HashMap<usize, Vec<Reg>> {
        let mut found = HashMap::new();
        for (k, param) in stage.params.iter().enumerate().filter(|(k, _)| wanted(*k)) {
            let Some((b, piece)) = whole(param) else {
                let (Param::Load(pieces), Some(&dtype)) = (param, stage.program.params.get(k))
                else {
                    continue;
                };
                let row = stage.program.reads_param(k).then(|| self.load_pieces(pieces, dtype, n));
                found.extend(row.flatten().map(|row| (k, row)));
                continue;
            };
            if !stage.program.reads_param(k) {
                continue;
            }
            let Some(first) = self.aligned(b, &piece.index, n) else { continue };
            let dtype = self.program.buffers[b].dtype;
            found.insert(k, self.load_row(b, &first, dtype, n, "ld.global.nc"));
        }
        found
    }

    /// The elements of a buffer that neighbours have, which their launch may write.
    pub(crate) fn read_row(&mut self, b: Buffer, n: &Neighbours) -> Vec<Reg> {
        let index: Vec<IndexExpr> =
            crate::gpu::schedule::shape::axes(self.program.buffers[b].dims.len()).to_vec();
        let dtype = self.program.buffers[b].dtype;
        match self.aligned(b, &index, n).filter(|_| dtype.bytes() >= 4) {
            Some(first) => self.load_row(b, &first, dtype, n, "ld.global"),
            None => {
                let mut of = |coords: &Vec<IndexExpr>| {
                    crate::gpu::ptx::scan::read(self, b, &At { vars: &n.vars, coords })
                };
                n.coords.iter().map(&mut of).collect()
            }
        }
    }

    fn load_row(
        &mut self,
        b: Buffer,
        first: &IndexExpr,
        dtype: DType,
        n: &Neighbours,
        load: &str,
    ) -> Vec<Reg> {
        let width = n.coords.len() as i64;
        let mut found = Vec::new();
        let step = step(dtype, width);
        for j in (0..width).step_by(step as usize) {
            let place = first.clone().plus(j);
            let address = self.address(b, &normal(&place), dtype.bytes(), &n.vars, &[]);
            let class = if dtype == DType::Bool { Class::Word } else { operands::class(dtype) };
            if dtype.bytes() == 2 && step == 8 {
                let words = self.asm.load_row(Class::Word, 4, &format!("{load}.v4.b32"), address);
                for word in words {
                    found.extend(self.asm.pure_row(class, 2, "mov.b32", word));
                }
                continue;
            }
            let vector = if step > 1 { format!(".v{step}") } else { String::new() };
            let op = format!("{load}{vector}.{}", memory(dtype));
            found.extend(self.asm.load_row(class, step as usize, &op, address));
        }
        if dtype == DType::Bool {
            let truth = |asm: &mut crate::gpu::ptx::asm::Asm, r: &Reg| {
                asm.pure(Class::Pred, "setp.ne.s32", format_args!("{r}, 0"))
            };
            return found.iter().map(|r| truth(&mut self.asm, r)).collect();
        }
        found
    }

    /// Stores values of neighbours, in a row where they are in one.
    pub(crate) fn store_row(
        &mut self,
        b: Buffer,
        index: &[IndexExpr],
        values: &[Reg],
        n: &Neighbours,
        when: Option<Reg>,
    ) {
        if !self.asm.writes {
            // However it is stored.
            self.pointer(b);
            return;
        }
        let Some(first) = self.aligned(b, index, n) else {
            for (&value, coords) in values.iter().zip(&n.coords) {
                self.store(b, index, value, &At { vars: &n.vars, coords }, when);
            }
            return;
        };
        let prefix = guard_prefix(when);
        let dtype = self.program.buffers[b].dtype;
        let step = step(dtype, values.len() as i64);
        for (part, j) in values.chunks(step as usize).zip((0i64..).step_by(step as usize)) {
            let place = first.clone().plus(j);
            let address = self.address(b, &normal(&place), dtype.bytes(), &n.vars, &[]);
            let regs: Vec<Reg> = part.iter().map(|&v| self.plain(v, dtype)).collect();
            if dtype.bytes() == 2 && step == 8 {
                let words: Vec<Reg> = regs
                    .chunks(2)
                    .map(|pair| {
                        let args = listed(pair);
                        self.asm.pure(Class::Word, "mov.b32", args)
                    })
                    .collect();
                let list = listed(&words);
                self.asm.emit(format_args!("{prefix}st.global.v4.b32 {address}, {list}"));
                continue;
            }
            let spelled = match dtype {
                DType::I8 | DType::U8 | DType::Bool => "b8",
                d => memory(d),
            };
            let list = listed(&regs);
            let vector = if regs.len() > 1 { format!(".v{}", regs.len()) } else { String::new() };
            self.asm.emit(format_args!("{prefix}st.global{vector}.{spelled} {address}, {list}"));
        }
    }
}

impl Emit<'_> {
    /// Stores neighbours into a packed buffer that is written in order: each thread makes a part of a word, and
    /// the threads of a word join theirs.
    pub(crate) fn store_words(
        &mut self,
        b: Buffer,
        bits: u8,
        values: &[Reg],
        group: Reg,
        live: Option<Reg>,
    ) {
        let dtype = self.program.buffers[b].dtype;
        let own = values.len() as i64 * i64::from(bits);
        let threads = (32 / own).max(1);
        let asm = &mut self.asm;
        let mut word = asm.word(0);
        for (j, &value) in (0i64..).zip(values) {
            let value = match dtype {
                DType::Bool => asm.pure(Class::Word, "selp.b32", format_args!("1, 0, {value}")),
                DType::I64 => asm.pure(Class::Word, "cvt.u32.u64", value),
                _ => value,
            };
            let low = asm.pure(Class::Word, "bfe.u32", format_args!("{value}, 0, {bits}"));
            let at = j * i64::from(bits);
            let moved = asm.pure(Class::Word, "shl.b32", format_args!("{low}, {at}"));
            word = asm.pure(Class::Word, "or.b32", format_args!("{word}, {moved}"));
        }
        if let Some(live) = live {
            let none = asm.word(0);
            word = operands::select(asm, live, word, none);
        }
        let thread = asm.special("tid.x");
        let number = asm.pure(Class::Word, "and.b32", format_args!("{thread}, {}", threads - 1));
        let at = asm.pure(Class::Word, "mul.lo.s32", format_args!("{number}, {own}"));
        word = asm.pure(Class::Word, "shl.b32", format_args!("{word}, {at}"));
        let mut distance = 1;
        while distance < threads {
            let other = self.exchanged(word, distance as u32);
            word = self.asm.pure(Class::Word, "or.b32", format_args!("{word}, {other}"));
            distance *= 2;
        }
        let leads = self.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{number}, 0"));
        let leads = self.all(Some(leads), live).unwrap_or(leads);
        let base = self.pointer(b);
        let group = crate::gpu::ptx::address::widened(&mut self.asm, group);
        let shift = threads.trailing_zeros();
        let place = self.asm.pure(Class::Long, "shr.u64", format_args!("{group}, {shift}"));
        let address = self.asm.pure(Class::Long, "mad.lo.s64", format_args!("{place}, 4, {base}"));
        self.asm.emit(format_args!("@{leads} st.global.b32 [{address}], {word}"));
    }
}

/// A sum with its constants joined.
pub(super) fn normal(e: &IndexExpr) -> IndexExpr {
    match e {
        IndexExpr::Add(a, b) => match (a.as_ref(), b.as_ref()) {
            (IndexExpr::Add(x, y), IndexExpr::Const(c)) => match y.as_ref() {
                IndexExpr::Const(k) => x.as_ref().clone().plus(k + c),
                _ => e.clone(),
            },
            _ => e.clone(),
        },
        _ => e.clone(),
    }
}

/// Elements of one access: 16 bytes at most, and four registers but for pairs of 16 bits.
pub(super) fn step(dtype: DType, width: i64) -> i64 {
    match dtype.bytes() {
        2 if width % 8 == 0 => 8,
        8 => width.min(2),
        _ => width.min(4),
    }
}

/// Launches a loop whose sinks all store.
pub(crate) fn stores(s: &GpuSchedule, out: &mut Out, e: &Elementwise) -> Result<(), Diagnostic> {
    let mut emit = begun(s, out);
    let blocks = body(&mut emit, e);
    out.launch(&s.homes, emit, blocks, e.vectors.grid, 0)
}

/// Writes what the threads of a loop whose sinks all store do: the number of its blocks.
pub(super) fn body(emit: &mut Emit<'_>, e: &Elementwise) -> i64 {
    let Elementwise { flat, vectors: FlatGrid { grid, width } } = e;
    let threads = volume(&flat.domain) / width;
    let blocks = grid.blocks(threads);
    let program = emit.written(&flat.stage.program);
    // Where threads make words together, those past the end take part, with nothing to add.
    let packs = |sink: &Sink| match sink {
        Sink::Store { buffer, .. } => emit.program.buffers[*buffer].storage != Storage::Plain,
        _ => false,
    };
    let together = flat.stage.sinks.iter().any(packs);
    let (group, live) = emit.thread(threads, grid.threads, together);
    if !together {
        emit.leave_unless(live);
    }
    let when = live.filter(|_| together);
    let Some(n) = of_group(group, &flat.domain, *width) else { return blocks };
    let loaded = emit.loaded(&flat.stage, &n);
    let mut values: Vec<Vec<Reg>> = vec![Vec::new(); flat.stage.sinks.len()];
    let mut together = emit.asm.paired(&program).map(|paired| (paired, Vec::new()));
    for (j, coords) in n.coords.iter().enumerate() {
        let at = At { vars: &n.vars, coords };
        let mut given = |_: &mut Emit<'_>, k: usize, _: &Param| {
            loaded.get(&k).and_then(|regs: &Vec<Reg>| regs.get(j)).copied()
        };
        if let Some((_, elements)) = &mut together {
            elements.push(emit.params(&flat.stage.params, &program, &at, &mut given).0);
            continue;
        }
        let found = emit.outputs(&flat.stage, &program, &at, &mut given);
        values.iter_mut().zip(found).for_each(|(list, value)| list.push(value));
    }
    if let Some((paired, elements)) = &together {
        for found in paired.outputs_of(&mut emit.asm, &elements.iter().collect::<Vec<_>>()) {
            values.iter_mut().zip(found).for_each(|(list, value)| list.push(value));
        }
    }
    for (sink, values) in flat.stage.sinks.iter().zip(values) {
        if let Sink::Store { buffer, index } = sink {
            match emit.program.buffers[*buffer].storage {
                Storage::Packed(bits) => emit.store_words(*buffer, bits, &values, group, when),
                Storage::Plain => emit.store_row(*buffer, index, &values, &n, when),
            }
        }
    }
    blocks
}
