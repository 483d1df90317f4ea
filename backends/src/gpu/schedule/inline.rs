//! Stages of a kernel as one: what a stage reads of earlier ones, computed where it is read.

use super::index::data_of;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Kernel, Operand, Param, Piece, Row, Sink, Stage, Tile};
use adfuse_ir::scalar::{SInst, SOp, SVal, ScalarProgram};
use cranelift_entity::SecondaryMap;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// How a row or tile is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Source {
    /// Computed again.
    #[default]
    Inline,
    /// As the kernel itself has it.
    Kept,
    /// From a buffer over the domain, and the stage's axes where it is a tile.
    Buffer(Buffer),
}

/// The stage and the output that leaves something.
pub(crate) type Def = Option<(usize, usize)>;

/// Where the rows and tiles of a kernel come from.
pub(crate) struct Defs {
    pub(crate) rows: SecondaryMap<Row, Def>,
    pub(crate) tiles: SecondaryMap<Tile, Def>,
}

pub(crate) fn defs(kernel: &Kernel) -> Defs {
    let mut defs = Defs { rows: SecondaryMap::new(), tiles: SecondaryMap::new() };
    for (s, stage) in kernel.stages.iter().enumerate() {
        for (k, sink) in stage.sinks.iter().enumerate() {
            match sink {
                Sink::Reduce { into, .. } | Sink::Leave(into) => defs.rows[*into] = Some((s, k)),
                Sink::Scan { into, .. } | Sink::Keep(into) => defs.tiles[*into] = Some((s, k)),
                Sink::Store { .. } | Sink::Fold { .. } => {}
            }
        }
    }
    defs
}

/// The rows and tiles by whose values places are chosen: those have to be read, not computed.
pub(crate) fn data_sources(kernel: &Kernel) -> (Vec<Row>, Vec<Tile>) {
    let (mut rows, mut tiles) = (Vec::new(), Vec::new());
    for stage in &kernel.stages {
        let mut found = |p: usize| match stage.params.get(p) {
            Some(Param::Row(r)) => rows.push(*r),
            Some(Param::Tile(t)) => tiles.push(*t),
            _ => {}
        };
        for param in &stage.params {
            param.expressions().for_each(|e| data_of(e, &mut found));
        }
    }
    (rows, tiles)
}

/// Makes stages of a kernel that read nothing but buffers, and what is kept.
pub(crate) struct Inliner<'k> {
    pub(crate) kernel: &'k Kernel,
    pub(crate) defs: &'k Defs,
    pub(crate) rows: &'k SecondaryMap<Row, Source>,
    pub(crate) tiles: &'k SecondaryMap<Tile, Source>,
}

#[derive(Default)]
struct Merged {
    params: Vec<Param>,
    program: ScalarProgram,
    values: HashMap<(usize, SVal), SVal>,
}

impl Inliner<'_> {
    /// A stage, without sinks, that computes these outputs of stages over the same axes, each said by the
    /// numbers of stage and output; `None` where data that chooses places would be computed.
    pub(crate) fn stage(&self, outputs: &[(usize, usize)]) -> Option<Stage> {
        let mut merged = Merged::default();
        for &(s, k) in outputs {
            let value = self.kernel.stages[s].program.outputs[k];
            let found = self.values(&mut merged, s, &[value])?;
            merged.program.outputs.extend(found);
        }
        Some(Stage { params: merged.params, program: merged.program, ..Stage::default() })
    }

    /// Values of a stage's program, in the merged one.
    fn values(&self, merged: &mut Merged, s: usize, wanted: &[SVal]) -> Option<Vec<SVal>> {
        let stage = &self.kernel.stages[s];
        let only =
            ScalarProgram { outputs: wanted.iter().copied().collect(), ..stage.program.clone() };
        let live = only.live();
        for (v, inst) in stage.program.insts.iter() {
            if !live[v.as_u32() as usize] || merged.values.contains_key(&(s, v)) {
                continue;
            }
            let value = match inst.op {
                SOp::Param(k) => self.param(merged, s, k as usize)?,
                op => {
                    let of = |a: &SVal| merged.values.get(&(s, *a)).copied();
                    let args: SmallVec<[SVal; 3]> =
                        inst.args.iter().map(of).collect::<Option<_>>()?;
                    merged.program.insts.push(SInst { op, args, dtype: inst.dtype })
                }
            };
            merged.values.insert((s, v), value);
        }
        wanted.iter().map(|v| merged.values.get(&(s, *v)).copied()).collect()
    }

    /// The value of a parameter.
    fn param(&self, merged: &mut Merged, s: usize, k: usize) -> Option<SVal> {
        let def = match self.kernel.stages[s].params[k] {
            Param::Row(r) if self.rows[r] == Source::Inline => self.defs.rows[r],
            Param::Tile(t) if self.tiles[t] == Source::Inline => self.defs.tiles[t],
            _ => {
                let number = self.read(merged, s, k)?;
                let dtype = self.kernel.stages[s].program.params[k];
                let op = SOp::Param(number);
                let inst = SInst { op, args: SmallVec::new(), dtype };
                return Some(merged.program.insts.push(inst));
            }
        };
        let (from, output) = def?;
        let value = self.kernel.stages[from].program.outputs[output];
        self.values(merged, from, &[value])?.pop()
    }

    /// The number of a parameter that is read, in the merged stage.
    fn read(&self, merged: &mut Merged, s: usize, k: usize) -> Option<u32> {
        let stage = &self.kernel.stages[s];
        let rank = self.kernel.domain.len();
        let load = |b: Buffer, axes: usize| {
            let index = (0..axes).map(IndexExpr::axis).collect();
            let piece = Piece { from: Operand::Buffer(b), index, guards: SmallVec::new() };
            Param::Load(SmallVec::from_iter([piece]))
        };
        let param = match &stage.params[k] {
            Param::Row(r) => match self.rows[*r] {
                Source::Buffer(b) => load(b, rank),
                Source::Kept => Param::Row(*r),
                Source::Inline => return None,
            },
            Param::Tile(t) => match self.tiles[*t] {
                Source::Buffer(b) => load(b, rank + stage.axes.len()),
                Source::Kept => Param::Tile(*t),
                Source::Inline => return None,
            },
            param => {
                let mut param = param.clone();
                let mut failed = false;
                let mut renamed = |p: u32| {
                    let number = self.read(merged, s, p as usize);
                    failed |= number.is_none();
                    number.unwrap_or(p)
                };
                param.expressions_mut().for_each(|e| rename(e, &mut renamed));
                if failed {
                    return None;
                }
                param
            }
        };
        let dtype = stage.program.params[k];
        let known = merged.params.iter().zip(&merged.program.params);
        let found = known.into_iter().position(|(p, d)| *p == param && *d == dtype);
        let number = found.unwrap_or_else(|| {
            merged.params.push(param);
            merged.program.params.push(dtype);
            merged.params.len() - 1
        });
        u32::try_from(number).ok()
    }
}

fn rename(e: &mut IndexExpr, name: &mut dyn FnMut(u32) -> u32) {
    match e {
        IndexExpr::Axis(_) | IndexExpr::Const(_) => {}
        IndexExpr::Data { param, .. } => *param = name(*param),
        IndexExpr::Add(a, b) => {
            rename(a, name);
            rename(b, name);
        }
        IndexExpr::Mul(a, _) | IndexExpr::FloorDiv(a, _) | IndexExpr::Mod(a, _) => rename(a, name),
    }
}
