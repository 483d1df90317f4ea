//! Places that the body computes: where groups read or add at data or at quotients, the offset of each element is a value of the
//! scalar program.
//!
//! Such a read is an instruction with operands: how many elements it is behind the one that its index names, and whether it is made at all;
//! elsewhere a literal is read. So a group gathers at its lanes' places, which vectors compute like everything else, once a line
//! where they do not change along it. The places of a scatter's updates are one more output. Offsets are numbers of 32 bits.

use super::affine_form::{AffineForm, mentions};
use super::loop_ir::{Sweep, SweepOutput};
use super::scalar_form::written;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{BufferData, Operand, Param, Piece, Storage, volume};
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal, ScalarProgram};
use adfuse_ir::{DType, Literal};
use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};

/// Coordinates, quotients, remainders, divisors and data that places are computed of are less than this.
const MOST: i64 = 1 << 28;

/// Sums of their multiples are less than this: what has 32 bits. A number that wrapped could pass a guard.
const WORD: i64 = 1 << 30;

/// Lines of fewer elements are computed one element at a time.
const SHORT: i64 = 8;

/// The parameters and the scalar program of a sweep whose places are values, and where its outputs go.
pub(crate) struct ComputedPlaces<'a> {
    pub(crate) params: Vec<Param>,
    pub(crate) body: ScalarProgram,
    pub(crate) puts: Vec<SweepOutput<'a>>,
}

/// Builds them.
struct PlaceBuilder<'s, 'a> {
    sweep: &'s Sweep<'a>,
    /// The innermost axis.
    inner: usize,
    /// Which of the sweep's parameters change along it.
    varies: Vec<bool>,
    params: Vec<Param>,
    body: ScalarProgram,
    /// Of each of the sweep's parameters that has been read, its value.
    read: Vec<Option<SVal>>,
}

/// The sweep with its places in the body; `None` where no place changes along lines but in equal steps, or one cannot be computed so.
/// `contract` says whether products may be joined with sums.
pub(crate) fn computed_places<'a>(sweep: &Sweep<'a>, contract: bool) -> Option<ComputedPlaces<'a>> {
    let inner = sweep.extents.iter().rposition(|&n| n > 1)?;
    if sweep.extents[inner] < SHORT || sweep.extents.iter().any(|&n| n >= MOST) {
        return None;
    }
    let old = written(sweep.body, contract);
    let mut b = PlaceBuilder {
        sweep,
        inner,
        varies: Vec::new(),
        params: sweep.params.to_vec(),
        body: ScalarProgram { params: old.params.clone(), ..ScalarProgram::default() },
        read: vec![None; sweep.params.len()],
    };
    for param in sweep.params {
        let varies = b.param_changes(param);
        b.varies.push(varies);
    }
    let mut new: SecondaryMap<SVal, Option<SVal>> = SecondaryMap::new();
    for (v, inst) in old.insts.iter() {
        new[v] = Some(match inst.op {
            SOp::Param(k) => b.param(k)?,
            _ => {
                let args = inst.args.iter().map(|&a| new[a]).collect::<Option<_>>()?;
                b.body.insts.push(SInst { args, ..inst.clone() })
            }
        });
    }
    b.body.outputs = old.outputs.iter().map(|&v| new[v]).collect::<Option<_>>()?;
    let mut puts = sweep.puts.clone();
    if let Some((to, index, guards, slot)) = sweep.target {
        let form = AffineForm::element(index, b.data(to)?, sweep.extents.len());
        let at = b.form(&form)?;
        let at = match b.holds(guards)? {
            None => at,
            Some(holds) => {
                let none = b.int(DType::I32, -1);
                b.prim(Prim::Select, &[holds, at, none], DType::I32)
            }
        };
        let place = b.prim(Prim::Convert, &[at], DType::I64);
        b.body.outputs.push(place);
        puts.push(SweepOutput::Place(slot));
    } else if b.body.insts.values().all(|i| !is_placed(i)) {
        return None;
    }
    Some(ComputedPlaces { params: b.params, body: b.body, puts })
}

/// Whether an instruction reads at a place that the body computes.
pub(crate) fn is_placed(inst: &SInst) -> bool {
    matches!(inst.op, SOp::Param(_)) && !inst.args.is_empty()
}

impl PlaceBuilder<'_, '_> {
    /// Whether an expression changes along lines.
    fn changes(&self, e: &IndexExpr) -> bool {
        let data = |k: u32| self.varies.get(k as usize).copied().unwrap_or(true);
        mentions(e, &|axis| axis == self.inner, &data)
    }

    fn param_changes(&self, param: &Param) -> bool {
        match param {
            Param::Load(_) | Param::Coord(_) => param.expressions().any(|e| self.changes(e)),
            Param::Row(_) => self.inner < self.sweep.domain,
            Param::Tile(_) | Param::Sum => true,
        }
    }

    /// Whether an expression changes along lines, but not in equal steps.
    fn jumps(&self, e: &IndexExpr) -> bool {
        let form = AffineForm::of(e, self.sweep.extents.len());
        form.rest.iter().any(|(e, _)| self.changes(e))
    }

    /// A buffer whose elements 32 bits number.
    fn data(&self, b: adfuse_ir::kernel::Buffer) -> Option<&BufferData> {
        let data = &self.sweep.program.buffers[b];
        (data.storage == Storage::Plain && volume(&data.dims) < MOST).then_some(data)
    }

    /// The value of a parameter, read where it is first asked for.
    fn param(&mut self, k: u32) -> Option<SVal> {
        if let Some(known) = self.read.get(k as usize).copied().flatten() {
            return Some(known);
        }
        let args = match self.sweep.params.get(k as usize)? {
            Param::Load(pieces) => self.place(k, pieces)?,
            Param::Coord(e) if self.jumps(e) => return None,
            _ => SmallVec::new(),
        };
        let dtype = *self.body.params.get(k as usize)?;
        let made = self.body.insts.push(SInst { op: SOp::Param(k), args, dtype });
        self.read[k as usize] = Some(made);
        Some(made)
    }

    /// The operands of a read: none where it is in equal steps.
    fn place(&mut self, k: u32, pieces: &[Piece]) -> Option<SmallVec<[SVal; 3]>> {
        let jumps = |piece: &Piece| piece.expressions().any(|e| self.jumps(e));
        if !pieces.iter().any(jumps) {
            return Some(SmallVec::new());
        }
        let ([piece] | [piece, Piece { from: Operand::Literal(_), .. }]) = pieces else {
            return None;
        };
        let Operand::Buffer(from) = piece.from else { return Some(SmallVec::new()) };
        let data = self.data(from)?.clone();
        let zero = || IndexExpr::Const(0);
        let part = |moved: bool| {
            let only = |e: &IndexExpr| if self.changes(e) == moved { e.clone() } else { zero() };
            piece.index.iter().map(only).collect::<SmallVec<[IndexExpr; 4]>>()
        };
        let (moved, fixed) = (part(true), part(false));
        let form = AffineForm::element(&moved, &data, self.sweep.extents.len());
        let mut args: SmallVec<[SVal; 3]> = smallvec![self.form(&form)?];
        args.extend(self.holds(&piece.guards)?);
        let own = Piece { from: piece.from, index: fixed, guards: smallvec![] };
        let mut sources: SmallVec<_> = smallvec![own];
        sources.extend(pieces.get(1).cloned());
        self.params[k as usize] = Param::Load(sources);
        Some(args)
    }

    /// Whether all guards hold; `None` where there are none.
    fn holds(&mut self, guards: &[Guard]) -> Option<Option<SVal>> {
        let mut all: Option<SVal> = None;
        for guard in guards {
            // No value reaches the ends of words.
            let [low, end] = [guard.range.start, guard.range.end].map(|n| n.clamp(-WORD, WORD));
            let value = self.value(&guard.expr)?;
            let [low, end] = [low, end].map(|n| self.int(DType::I32, n));
            let from = self.prim(Prim::Ge, &[value, low], DType::Bool);
            let to = self.prim(Prim::Lt, &[value, end], DType::Bool);
            let both = self.prim(Prim::And, &[from, to], DType::Bool);
            all = Some(match all {
                None => both,
                Some(all) => self.prim(Prim::And, &[all, both], DType::Bool),
            });
        }
        Some(all)
    }

    fn prim(&mut self, p: Prim, args: &[SVal], dtype: DType) -> SVal {
        self.body.insts.push(SInst { op: SOp::Prim(p), args: args.into(), dtype })
    }

    fn int(&mut self, dtype: DType, n: i64) -> SVal {
        let op = SOp::Const(Literal::from_i64(dtype, n));
        self.body.insts.push(SInst { op, args: smallvec![], dtype })
    }

    /// The value of an expression, in 32 bits.
    fn value(&mut self, e: &IndexExpr) -> Option<SVal> {
        self.form(&AffineForm::of(e, self.sweep.extents.len()))
    }

    /// The value of a form, in 32 bits; `None` where it, or a part of it, may have more.
    fn form(&mut self, form: &AffineForm) -> Option<SVal> {
        let mut affine = IndexExpr::Const(form.constant);
        for (axis, &step) in form.steps.iter().enumerate().filter(|(_, step)| **step != 0) {
            affine = affine.sum(IndexExpr::axis(axis).times(step));
        }
        let mut range = self.range(&affine)?;
        let mut sum = match affine {
            IndexExpr::Const(0) if !form.rest.is_empty() => None,
            IndexExpr::Const(n) => Some(self.int(DType::I32, n)),
            affine => {
                self.params.push(Param::Coord(affine));
                self.body.params.push(DType::I64);
                let op = SOp::Param(self.params.len() as u32 - 1);
                let inst = SInst { op, args: smallvec![], dtype: DType::I64 };
                let at = self.body.insts.push(inst);
                Some(self.prim(Prim::Convert, &[at], DType::I32))
            }
        };
        for (e, factor) in &form.rest {
            let ends = self.range(e)?.map(|n| n.saturating_mul(*factor));
            range = [
                range[0].saturating_add(ends[0].min(ends[1])),
                range[1].saturating_add(ends[0].max(ends[1])),
            ];
            // Where the sums before and after a term have 32 bits, the term has, and its factor, unless the term is 0.
            if range.iter().any(|n| n.unsigned_abs() >= WORD.unsigned_abs()) {
                return None;
            }
            let mut term = self.term(e)?;
            if *factor != 1 {
                let factor = self.int(DType::I32, *factor);
                term = self.prim(Prim::Mul, &[term, factor], DType::I32);
            }
            sum = Some(match sum {
                None => term,
                Some(sum) => self.prim(Prim::Add, &[sum, term], DType::I32),
            });
        }
        sum
    }

    /// The value of what is not affine, and has a range: [`PlaceBuilder::range`] has found those of all its parts then, and that its
    /// divisors and data are small.
    fn term(&mut self, e: &IndexExpr) -> Option<SVal> {
        match e {
            IndexExpr::Data { param, lo, hi } => self.clamped(*param, [*lo, *hi]),
            IndexExpr::FloorDiv(a, by) => self.quotient(a, *by),
            IndexExpr::Mod(a, by) => {
                let value = self.value(a)?;
                if by.count_ones() == 1 {
                    let low = self.int(DType::I32, by - 1);
                    return Some(self.prim(Prim::And, &[value, low], DType::I32));
                }
                let (quotient, by) = (self.quotient(a, *by)?, self.int(DType::I32, *by));
                let whole = self.prim(Prim::Mul, &[quotient, by], DType::I32);
                Some(self.prim(Prim::Sub, &[value, whole], DType::I32))
            }
            // A form has these in itself, not among its terms.
            IndexExpr::Axis(_) | IndexExpr::Const(_) | IndexExpr::Add(..) | IndexExpr::Mul(..) => {
                None
            }
        }
    }

    /// A quotient, rounded down, of parts of a term.
    fn quotient(&mut self, a: &IndexExpr, by: i64) -> Option<SVal> {
        if by.count_ones() == 1 {
            let (value, by) = (self.value(a)?, self.int(DType::I32, by.trailing_zeros().into()));
            return Some(self.prim(Prim::ShrA, &[value, by], DType::I32));
        }
        // Primitives round toward zero: what is divided is not below it.
        let [low, _] = self.range(a)?;
        let up = low.min(0).div_euclid(by);
        let value = self.value(&a.clone().plus(-up * by))?;
        let (by, up) = (self.int(DType::I32, by), self.int(DType::I32, up));
        let quotient = self.prim(Prim::Div, &[value, by], DType::I32);
        Some(self.prim(Prim::Add, &[quotient, up], DType::I32))
    }

    /// The integer value of a parameter, clamped between numbers of less than 32 bits.
    fn clamped(&mut self, k: u32, [low, high]: [i64; 2]) -> Option<SVal> {
        let mut value = self.param(k)?;
        let dtype = match *self.body.params.get(k as usize)? {
            DType::I64 => DType::I64,
            DType::I32 => DType::I32,
            DType::I8 | DType::U8 => {
                value = self.prim(Prim::Convert, &[value], DType::I32);
                DType::I32
            }
            _ => return None,
        };
        let [low, high] = [low, high].map(|n| self.int(dtype, n));
        let value = self.prim(Prim::Max, &[value, low], dtype);
        let value = self.prim(Prim::Min, &[value, high], dtype);
        Some(match dtype {
            DType::I64 => self.prim(Prim::Convert, &[value], DType::I32),
            _ => value,
        })
    }

    /// The least and the greatest value of an expression; `None` where they need not have 32 bits.
    fn range(&self, e: &IndexExpr) -> Option<[i64; 2]> {
        let [low, high] = match e {
            IndexExpr::Axis(a) => {
                [0, self.sweep.extents.get(usize::from(*a))?.saturating_sub(1).max(0)]
            }
            IndexExpr::Const(n) => [*n, *n],
            IndexExpr::Add(a, b) => {
                let (a, b) = (self.range(a)?, self.range(b)?);
                [a[0] + b[0], a[1] + b[1]]
            }
            IndexExpr::Mul(a, by) => {
                let ends = self.range(a)?.map(|n| n.saturating_mul(*by));
                [ends[0].min(ends[1]), ends[0].max(ends[1])]
            }
            IndexExpr::FloorDiv(_, by) | IndexExpr::Mod(_, by) if !(1..MOST).contains(by) => {
                return None;
            }
            IndexExpr::FloorDiv(a, by) => self.range(a)?.map(|n| n.div_euclid(*by)),
            IndexExpr::Mod(a, by) => {
                self.range(a)?;
                [0, by - 1]
            }
            IndexExpr::Data { lo, hi, .. } => [*lo, *hi],
        };
        (-MOST < low && low <= high && high < MOST).then_some([low, high])
    }
}
