//! The elementwise program of a box: what is computed of each element of an array on its way to the tiles of a product.
//!
//! One parameter is the element. The others are elements of smaller arrays, at places that follow from the dimensions of the
//! box, such as the scale and the shift of a channel. A feed is zero where its guards do not hold: the program runs on
//! elements inside of the array alone.

use super::scalar_form::{instructions, written};
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Buffer, Feed, Operand, Param, Piece, Program, Storage};
use adfuse_ir::scalar::{Prim, SOp, SVal, ScalarProgram};
use adfuse_ir::{DType, Fp};

/// The most instructions of a program: each thread has them for each of its elements.
const MOST: i64 = 64;
/// Instructions of a load of another array, with its address.
const ADDRESS: i64 = 4;

/// An elementwise program of a box.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BoxProgram {
    /// What its parameters are; `None` for those that it does not read.
    pub(crate) params: Vec<Option<BoxParam>>,
    pub(crate) program: ScalarProgram,
}

/// A parameter of a program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum BoxParam {
    /// The element of the box.
    Element,
    /// An element of another array.
    Of { buffer: Buffer, places: Vec<LinePlace> },
}

/// A place along an axis of another array: as far along a dimension of the box as its element is, and so much further.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LinePlace {
    pub(crate) dim: Option<usize>,
    /// Places from one word to the next along that dimension, and from a word's first element to its second one.
    pub(crate) word: i64,
    pub(crate) half: i64,
    pub(crate) offset: i64,
}

/// The dimension of a box along which coordinates choose places by these factors, with the place of its first element.
pub(super) type DimOf<'a> = &'a dyn Fn(&[i128]) -> Option<LinePlace>;

/// A feed as the array whose elements a box has, and what is computed of them.
pub(super) struct BoxFeed<'f> {
    pub(super) piece: &'f Piece,
    /// What holds where elements are read. The feed is zero elsewhere.
    pub(super) guards: Vec<Guard>,
    /// The number of the parameter that reads the array, and the program; `None` where elements stay as they are.
    computes: Option<(usize, ScalarProgram)>,
}

/// The one piece of a load, whatever stands for it where its guards do not hold.
fn piece_of(param: &Param) -> Option<&Piece> {
    let Param::Load(pieces) = param else { return None };
    match pieces.as_slice() {
        [piece] => Some(piece),
        [piece, Piece { from: Operand::Literal(_), guards, .. }] if guards.is_empty() => {
            Some(piece)
        }
        _ => None,
    }
}

/// Whether a load is of one piece, with zero where its guards do not hold.
fn is_zero_outside(param: &Param) -> bool {
    let Param::Load(pieces) = param else { return false };
    let zero = |piece: &Piece| matches!(piece.from, Operand::Literal(l) if l.to_f64() == 0.0);
    match pieces.as_slice() {
        [piece] => piece.guards.is_empty(),
        [_, last] => zero(last),
        _ => false,
    }
}

impl<'f> BoxFeed<'f> {
    /// `None` for feeds of other forms.
    pub(super) fn of(program: &Program, feed: &'f Feed) -> Option<BoxFeed<'f>> {
        let &[out] = feed.program.outputs.as_slice() else { return None };
        if let SOp::Param(k) = feed.program.insts[out].op {
            let param = feed.params.get(k as usize)?;
            let piece = piece_of(param).filter(|_| is_zero_outside(param))?;
            return Some(BoxFeed { piece, guards: piece.guards.to_vec(), computes: None });
        }
        let (value, guards) = match zero_unless(feed, out) {
            Some(found) => found,
            None => (out, Vec::new()),
        };
        let mut computed = feed.program.clone();
        computed.outputs = [value].into_iter().collect();
        let element = largest_load(program, feed, &computed)?;
        let piece = piece_of(&feed.params[element])?;
        let read = computed.params_read();
        for (param, _) in feed.params.iter().zip(read).filter(|(_, read)| *read) {
            let inside = &piece_of(param)?.guards;
            if !inside.iter().all(|guard| is_implied(guard, &guards)) {
                return None;
            }
        }
        let computes = match computed.insts[value].op {
            SOp::Param(_) => None,
            _ => Some((element, computed)),
        };
        Some(BoxFeed { piece, guards, computes })
    }

    /// Whether something is computed of elements.
    pub(super) fn computes(&self) -> bool {
        self.computes.is_some()
    }

    /// What is computed of elements, of coordinates along this many axes; `None` where another array is read at places that no
    /// dimension has.
    pub(super) fn program(
        &self,
        (program, feed): (&Program, &Feed),
        rank: usize,
        dim_of: DimOf<'_>,
    ) -> Option<BoxProgram> {
        let (element, computed) = self.computes.as_ref()?;
        let read = computed.params_read();
        let mut params = Vec::new();
        for (k, (param, read)) in feed.params.iter().zip(read).enumerate() {
            params.push(match read {
                false => None,
                true if k == *element => Some(BoxParam::Element),
                true => Some(other(program, param, rank, dim_of)?),
            });
        }
        let made = BoxProgram { params, program: computed.clone() };
        (instructions(&made.program, Fp::Fast) <= MOST).then_some(made)
    }
}

/// What a value is where some guards hold, if it is zero elsewhere: `select(all guards hold, value, 0)`.
fn zero_unless(feed: &Feed, v: SVal) -> Option<(SVal, Vec<Guard>)> {
    let inst = &feed.program.insts[v];
    let (SOp::Prim(Prim::Select), &[when, value, zero]) = (inst.op, inst.args.as_slice()) else {
        return None;
    };
    if feed.program.constant(zero)?.to_f64() != 0.0 {
        return None;
    }
    let mut guards = Vec::new();
    conjunction(feed, when, &mut guards)?;
    Some((value, guards))
}

/// Adds the guards whose conjunction a truth value is; `None` where it is none.
fn conjunction(feed: &Feed, v: SVal, guards: &mut Vec<Guard>) -> Option<()> {
    let inst = &feed.program.insts[v];
    let (SOp::Prim(prim), &[a, b]) = (inst.op, inst.args.as_slice()) else { return None };
    if prim == Prim::And && inst.dtype == DType::Bool {
        conjunction(feed, a, guards)?;
        return conjunction(feed, b, guards);
    }
    let SOp::Param(k) = feed.program.insts[a].op else { return None };
    let Some(Param::Coord(expr)) = feed.params.get(k as usize) else { return None };
    let bound = feed.program.constant(b)?;
    let bound = (bound.dtype() == DType::I64).then(|| bound.bits() as i64)?;
    let range = match prim {
        Prim::Ge => bound..i64::MAX,
        Prim::Lt => i64::MIN..bound,
        _ => return None,
    };
    let same = guards.iter_mut().find(|guard| guard.expr == *expr);
    match same {
        Some(guard) => {
            guard.range = guard.range.start.max(range.start)..guard.range.end.min(range.end);
        }
        None => guards.push(Guard { expr: expr.clone(), range }),
    }
    Some(())
}

/// Whether a guard holds wherever these do.
fn is_implied(guard: &Guard, guards: &[Guard]) -> bool {
    let within = |other: &Guard| {
        other.expr == guard.expr
            && guard.range.start <= other.range.start
            && other.range.end <= guard.range.end
    };
    guards.iter().any(within)
}

/// The load of the largest array that a program reads, where there is one of all that it reads.
fn largest_load(program: &Program, feed: &Feed, computed: &ScalarProgram) -> Option<usize> {
    let mut found: Vec<(u64, usize)> = Vec::new();
    for (k, (param, read)) in feed.params.iter().zip(computed.params_read()).enumerate() {
        if read {
            let Operand::Buffer(b) = piece_of(param)?.from else { return None };
            found.push((program.buffers[b].bytes(), k));
        }
    }
    let &(most, element) = found.iter().max_by_key(|(bytes, _)| *bytes)?;
    let alone = found.iter().filter(|(bytes, _)| *bytes == most).count() == 1;
    alone.then_some(element)
}

/// An element of another array, at places of the box.
fn other(program: &Program, param: &Param, rank: usize, dim_of: DimOf<'_>) -> Option<BoxParam> {
    let piece = piece_of(param)?;
    let Operand::Buffer(buffer) = piece.from else { return None };
    let data = &program.buffers[buffer];
    let is_float = matches!(data.dtype, DType::F32 | DType::BF16 | DType::F16);
    if !is_float || data.storage != Storage::Plain {
        return None;
    }
    let zeros = vec![0; rank];
    let place = |e: &IndexExpr| {
        let factors = e.factors(rank)?;
        let at = e.eval(&zeros, &[]);
        if factors.iter().all(|&f| f == 0) {
            return Some(LinePlace { dim: None, word: 0, half: 0, offset: at });
        }
        let place = dim_of(&factors)?;
        Some(LinePlace { offset: at.checked_add(place.offset)?, ..place })
    };
    let places = piece.index.iter().map(place).collect::<Option<Vec<_>>>()?;
    Some(BoxParam::Of { buffer, places })
}

impl BoxProgram {
    /// The first dimension along which no other array is read: lines of elements that share what is read of others begin there.
    pub(crate) fn lines_from(&self) -> usize {
        self.dims().max().map_or(0, |dim| dim + 1)
    }

    /// The dimensions along which other arrays are read.
    pub(crate) fn dims(&self) -> impl Iterator<Item = usize> + '_ {
        let of = |param: &'_ Option<BoxParam>| match param {
            Some(BoxParam::Of { places, .. }) => places.iter().filter_map(|p| p.dim).collect(),
            _ => Vec::new(),
        };
        self.params.iter().flat_map(of)
    }

    /// About how many instructions compute what all elements of a line share, and what one of them has by itself.
    pub(crate) fn instructions(&self) -> [i64; 2] {
        let program = written(&self.program, Fp::Fast);
        let live = program.live();
        let mut own = vec![false; program.insts.len()];
        let mut each = 0;
        for (v, inst) in program.insts.iter() {
            let n = v.as_u32() as usize;
            own[n] = match inst.op {
                SOp::Param(k) => {
                    matches!(self.params.get(k as usize), Some(Some(BoxParam::Element)))
                }
                _ => inst.args.iter().any(|a| own[a.as_u32() as usize]),
            };
            let computes = !matches!(inst.op, SOp::Param(_) | SOp::Const(_));
            each += i64::from(own[n] && live[n] && computes);
        }
        let all = instructions(&self.program, Fp::Fast);
        let loads = self.params.iter().flatten().count() as i64 - 1;
        [(all - each).max(0) + ADDRESS * loads, each]
    }

    /// The same program of arrays that are not told apart.
    pub(crate) fn of_any_buffers(&mut self) {
        for param in self.params.iter_mut().flatten() {
            if let BoxParam::Of { buffer, .. } = param {
                *buffer = Buffer::from_u32(0);
            }
        }
    }
}
