//! An operand of a product as boxes of an array: what the lines and the depth of a tile read of it, each element once, however
//! many windows share it.
//!
//! The place along each dimension of the array is a sum of multiples of the product's coordinates, such as `y + r` for the rows
//! of an image under the rows of a kernel. So a tile reads a box, and in shared memory an element is at the sum of what
//! its line and its place along the depth add.

use super::box_program::{BoxFeed, BoxProgram, LinePlace};
use super::box_word::{BoxWord, PairedPlaces};
use super::mma_unit::Unit;
use super::operand_path::feed;
use adfuse_ir::index::Guard;
use adfuse_ir::kernel::{Buffer, Extents, Member, Operand, Program, Storage, volume};
use smallvec::SmallVec;
use std::ops::Range;

/// Factors of the axes of a product: of its batch, of an operand's own, of its depth.
pub(crate) type AxisFactors = [SmallVec<[i64; 4]>; 3];

/// The axes of an operand's own, and those of the depth, in [`AxisFactors`] and extents.
pub(crate) const OWN: usize = 1;
pub(crate) const DEEP: usize = 2;

/// Banks of shared memory, each a word of four bytes wide.
const BANKS: i64 = 32;
/// Words that an access of shared memory has at most.
const QUAD: i64 = 4;
/// Words of a line that is copied apart from others although it lies beside them.
const LEAST_LINE: i64 = 32;
/// A line of whole units may be at most this many times as long as its elements.
const MOST_WIDER: i64 = 2;

/// A dimension of the array.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BoxDim {
    /// Elements of memory from one place to the next; words where these are neighbours in memory.
    pub(crate) stride: i64,
    /// Places that the array has.
    pub(crate) extent: i64,
    /// The place at the first coordinates.
    pub(crate) base: i64,
    /// Places from one coordinate to the next.
    pub(crate) factors: AxisFactors,
    /// The places whose elements are read. Zeros stand for others.
    pub(crate) read: Range<i64>,
    /// Places that a word has: two where windows slide along it by single elements.
    pub(crate) span: i64,
}

/// An operand whose elements are those of an array, or zeros around it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BoxOperand {
    pub(crate) buffer: Buffer,
    /// The element of the array where all dimensions have their first place.
    pub(crate) origin: i64,
    /// The dimensions along which coordinates choose places, those that are farthest apart in memory first.
    pub(crate) dims: Vec<BoxDim>,
    /// Extents of the batch, of the operand's own axes and of the depth, which is counted in words.
    pub(crate) extents: [Extents; 3],
    pub(crate) word: BoxWord,
    /// What is computed of the elements that are read; `None` where they stay as they are.
    pub(crate) computed: Option<BoxProgram>,
}

impl BoxDim {
    /// The coordinates' part of the place, from the least to past the greatest, without the batch's.
    pub(crate) fn reach(&self, extents: &[Extents; 3]) -> Range<i64> {
        let steps = [OWN, DEEP].into_iter().flat_map(|part| {
            let all = self.factors[part].iter().zip(&extents[part]);
            all.map(|(f, n)| f * (n - 1).max(0))
        });
        let (mut low, mut high) = (0, 0);
        for step in steps {
            (low, high) = (low + step.min(0), high + step.max(0));
        }
        low..high + self.span
    }

    /// Whether no coordinate but those of one axis chooses places along it.
    pub(crate) fn is_of_axis(&self, part: usize, axis: usize) -> bool {
        let others = [OWN, DEEP].into_iter().flat_map(|p| {
            let all = self.factors[p].iter().enumerate();
            all.filter(move |&(a, _)| (p, a) != (part, axis)).map(|(_, f)| *f)
        });
        self.factors[part][axis] != 0 && others.into_iter().all(|f| f == 0)
    }

    /// Whether lines and depth choose places together: windows.
    fn is_window(&self, extents: &[Extents; 3]) -> bool {
        let moves = |part: usize| {
            self.factors[part].iter().zip(&extents[part]).any(|(f, n)| *f != 0 && *n > 1)
        };
        moves(OWN) && moves(DEEP)
    }
}

impl BoxOperand {
    /// An operand of a product; `None` where its elements are chosen otherwise, or computed of more than one element of an array.
    /// Of 16-bit floats words have two neighbours each along an axis of the depth.
    pub(crate) fn of(
        program: &Program,
        m: &Member,
        side: usize,
        (unit, paired): (Unit, Option<usize>),
    ) -> Option<BoxOperand> {
        let (feed, own) = feed(m, side);
        let found = BoxFeed::of(program, feed)?;
        let (piece, guards) = (found.piece, &found.guards);
        let Operand::Buffer(buffer) = piece.from else { return None };
        let data = &program.buffers[buffer];
        if data.dtype != unit.held(m.sum) || data.storage != Storage::Plain {
            return None;
        }
        let extents = [m.batch.clone(), own.clone(), m.depth.clone()];
        let rank = extents.iter().map(|part| part.len()).sum();
        let zeros = vec![0; rank];
        let mut dims = Vec::new();
        let (mut origin, mut dense) = (0i64, 1i64);
        for (k, e) in piece.index.iter().enumerate().rev() {
            let extent = *data.dims.get(k)?;
            let stride = data.strides.as_ref().map_or(Some(dense), |s| s.get(k).copied())?;
            dense = dense.checked_mul(extent.max(1))?;
            let factors: Vec<i64> = integers(&e.factors(rank)?)?;
            let base = e.eval(&zeros, &[]);
            let mut read = 0..extent;
            for guard in guards.iter().filter(|g| alike(&g.expr, &factors, rank)) {
                let apart = base - guard.expr.eval(&zeros, &[]);
                let Range { start, end } = guard.range;
                let (from, to) = (start.saturating_add(apart), end.saturating_add(apart));
                read = read.start.max(from)..read.end.min(to);
            }
            if factors.iter().all(|&f| f == 0) {
                if !read.contains(&base) {
                    return None;
                }
                origin = origin.checked_add(base.checked_mul(stride)?)?;
                continue;
            }
            let (batch, rest) = factors.split_at(extents[0].len());
            let (lines, deep) = rest.split_at(own.len());
            let factors = [batch, lines, deep].map(SmallVec::from_slice);
            dims.push(BoxDim { stride, extent, base, factors, read, span: 1 });
        }
        let guarded = |g: &Guard| {
            let factors = g.expr.factors(rank);
            let of = |e: &adfuse_ir::index::IndexExpr| e.factors(rank) == factors;
            piece.index.iter().any(of)
        };
        if !guards.iter().all(guarded) {
            return None;
        }
        if dims.is_empty() {
            return None;
        }
        dims.sort_by_key(|dim| std::cmp::Reverse(dim.stride));
        let given = dims.clone();
        let (word, computed) = (BoxWord::Single, None);
        let mut made = BoxOperand { buffer, origin, dims, extents, word, computed };
        let words = match paired {
            Some(axis) if made.slide(axis) => None,
            Some(axis) => Some(made.pair(axis)?),
            None => None,
        };
        let dim_of = |factors: &[i128]| {
            let same = |dim: &BoxDim| {
                dim.factors.iter().flatten().map(|&f| i128::from(f)).eq(factors.iter().copied())
            };
            let dim = given.iter().position(same)?;
            let plain = LinePlace { dim: Some(dim), word: 1, half: 0, offset: -given[dim].base };
            Some(match words.filter(|words| words.dim == dim) {
                Some(PairedPlaces { word, half, .. }) => {
                    LinePlace { word, half, offset: 0, ..plain }
                }
                None => plain,
            })
        };
        if found.computes() {
            made.computed = Some(found.program((program, feed), rank, &dim_of)?);
        }
        // Lines have something that all of their elements share. What is not there is not computed.
        let lines_from = made.computed.as_ref().map_or(0, BoxProgram::lines_from);
        let fits = lines_from < made.dims.len() && (made.computed.is_none() || made.has_all());
        fits.then_some(made)
    }

    /// Whether lines share elements.
    pub(crate) fn has_windows(&self) -> bool {
        self.dims.iter().any(|dim| dim.is_window(&self.extents))
    }

    /// Whether the depth lies in memory as several axes, which no other kernel copies as they lie.
    pub(crate) fn is_divided(&self) -> bool {
        let deep: Vec<&BoxDim> =
            self.dims.iter().filter(|dim| dim.factors[DEEP].iter().any(|f| *f != 0)).collect();
        deep.windows(2).any(|two| two[0].stride != two[1].stride * two[1].extent)
    }

    /// Whether zeros are read at places past the end of an axis of the depth.
    pub(crate) fn ends(&self, axis: usize) -> bool {
        self.dims.iter().any(|dim| dim.is_of_axis(DEEP, axis))
    }
}

/// Whether an expression has these factors.
fn alike(e: &adfuse_ir::index::IndexExpr, factors: &[i64], rank: usize) -> bool {
    e.factors(rank).and_then(|found| integers(&found)).is_some_and(|found| found == factors)
}

fn integers(factors: &[i128]) -> Option<Vec<i64>> {
    factors.iter().map(|&f| i64::try_from(f).ok().filter(|f| f.abs() < 1 << 31)).collect()
}

/// A box of an operand in shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StagedBox {
    /// Elements of a tile along the operand's own axes and along the depth.
    pub(crate) tile: [SmallVec<[i64; 4]>; 2],
    /// Of each dimension the places of a box, and how far the first of them is from the place at the tile's first
    /// coordinates, which is 0 or before it. Lines have whole units: some of their places may be those of no coordinates.
    pub(crate) places: Vec<(i64, i64)>,
    /// Dimensions from this one on lie in memory as one line.
    pub(crate) inner: usize,
    /// Words of a line, and from one line to the next. These and all other numbers of words count elements where windows slide by
    /// those ([`BoxWord::Sliding`]).
    pub(crate) line: i64,
    pub(crate) pitch: i64,
    /// Words left free after the lines along the dimension before them.
    pub(crate) room: i64,
    /// Words that one copy moves.
    pub(crate) unit: i64,
    /// Words that come from memory, where no edge of the array is near: zeros do not.
    pub(crate) fetched: i64,
    /// Of each dimension what is tested of places.
    pub(crate) tests: Vec<PlaceTests>,
    word: BoxWord,
}

/// What is tested of the places of boxes along a dimension. Zeros stand for those that fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlaceTests {
    /// Whether coordinates choose it: tiles may go past the end of an axis.
    pub(crate) reach: bool,
    /// Whether it is read.
    pub(crate) read: bool,
}

impl PlaceTests {
    /// Whether every place of every box is read.
    fn always_hold(self) -> bool {
        !self.reach && !self.read
    }
}

/// How threads share the lines of a box: teams of neighbouring lanes have one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopyTeams {
    /// Lanes of a team, and teams.
    pub(crate) lanes: i64,
    pub(crate) teams: i64,
    /// Turns for the units of a line.
    pub(crate) units: i64,
    /// The dimension along which teams have lines next to each other, so that each turn's places are constants apart; without
    /// one they have those next to each other in the box.
    pub(crate) along: Option<usize>,
    /// Turns for the lines.
    pub(crate) turns: i64,
}

impl StagedBox {
    /// The box that a tile of this many lines and so much depth reads, without room between its lines.
    pub(crate) fn new(operand: &BoxOperand, own: &[i64], deep: &[i64]) -> StagedBox {
        let tile = [own, deep].map(SmallVec::from_slice);
        let places = operand.dims.iter().map(|dim| {
            let steps = [OWN, DEEP].into_iter().flat_map(|part| {
                dim.factors[part].iter().zip(&tile[part - 1]).map(|(f, n)| f * (n - 1))
            });
            let none = (dim.span, 0);
            steps.fold(none, |(n, before), step: i64| (n + step.abs(), before + step.min(0)))
        });
        let places: Vec<(i64, i64)> = places.collect();
        let tests = Vec::new();
        let fetched = 0;
        let (inner, line, pitch, room, unit) = (0, 1, 1, 0, 1);
        let word = operand.word;
        let mut made =
            StagedBox { tile, places, inner, line, pitch, room, unit, fetched, tests, word };
        made.tests = (0..operand.dims.len()).map(|k| made.tests_of(operand, k)).collect();
        let mut inner = operand.dims.len().saturating_sub(1);
        let least = operand.computed.as_ref().map_or(0, BoxProgram::lines_from);
        while inner > least && made.is_whole(operand, inner) {
            inner -= 1;
        }
        made.lined(operand, inner)
    }

    /// The box with lines of the dimensions from this one on, in the units that take the fewest copies.
    fn lined(mut self, operand: &BoxOperand, inner: usize) -> StagedBox {
        self.inner = inner;
        self.unit = 1;
        self.line = volume(self.places[inner..].iter().map(|(n, _)| n));
        let [mut best, plain] = [self.clone(), self];
        let least = operand.word.least_unit();
        for unit in [2, QUAD, QUAD * operand.word.places()] {
            let wider = plain.in_units(operand, unit);
            let better = |w: &StagedBox| w.units() < best.units() || best.unit < least;
            best = wider.filter(better).unwrap_or(best);
        }
        best.pitch = best.line;
        let read = operand.dims.iter().map(|dim| dim.read.end - dim.read.start);
        best.fetched = volume(best.places.iter().zip(read).map(|((n, _), read)| (*n).min(read)));
        best
    }

    /// The box with lines of units of this many words, each of which is read as a whole or not at all. Lines of one dimension begin
    /// and end with whole units; what these have beside the line is copied with it.
    fn in_units(&self, operand: &BoxOperand, unit: i64) -> Option<StagedBox> {
        let aligned = |n: i64| n % unit == 0;
        let (outer, lines) = operand.dims.split_at(self.inner);
        let dim = &lines[0];
        let moves = dim.factors[0].iter().copied().chain(self.moving(operand, self.inner));
        let in_memory = lines.last()?.stride == 1
            && aligned(operand.origin)
            && outer.iter().all(|dim| aligned(dim.stride))
            && moves.map(|n| n * dim.stride).all(aligned);
        let (n, before) = self.places[self.inner];
        let tests = self.tests[self.inner];
        if !in_memory {
            return None;
        }
        if lines.len() > 1 || aligned(dim.base + before) && aligned(n) && tests.always_hold() {
            let whole = aligned(self.line) && aligned((dim.base + before) * dim.stride);
            return (whole && tests.always_hold()).then(|| StagedBox { unit, ..self.clone() });
        }
        let first = before - (dim.base + before).rem_euclid(unit);
        let wider = (before + n - first + unit - 1) / unit * unit;
        let reach = dim.reach(&operand.extents);
        let [reach, read] = [reach.start - first..reach.end - first, dim.read.clone()]
            .map(|ends| aligned(ends.start) && aligned(ends.end));
        if !read || tests.reach && !reach || wider > MOST_WIDER * n {
            return None;
        }
        let mut made = StagedBox { unit, line: wider, ..self.clone() };
        made.places[self.inner] = (wider, first);
        made.tests[self.inner].read = true;
        Some(made)
    }

    /// Copies of a line.
    fn units(&self) -> i64 {
        self.line / self.unit
    }

    /// Whether a box has all of a dimension wherever its tile is, and goes on where the dimension before has its next place.
    fn is_whole(&self, operand: &BoxOperand, k: usize) -> bool {
        let dim = &operand.dims[k];
        let (places, before) = self.places[k];
        self.tests[k].always_hold()
            && places == dim.extent
            && dim.base + before == 0
            && operand.dims[k - 1].stride == dim.stride * places
            && dim.factors[0].iter().all(|&f| f == 0)
            && self.moving(operand, k).all(|step| step == 0)
    }

    /// Places from one tile to the next along each axis, where there are several.
    fn moving<'b>(&'b self, operand: &'b BoxOperand, k: usize) -> impl Iterator<Item = i64> + 'b {
        [OWN, DEEP].into_iter().flat_map(move |part| {
            let all = operand.dims[k].factors[part].iter().zip(&self.tile[part - 1]);
            let all = all.zip(&operand.extents[part]);
            all.map(|((f, tile), n)| if n > tile { f * tile } else { 0 })
        })
    }

    /// What is tested of places along a dimension.
    fn tests_of(&self, operand: &BoxOperand, k: usize) -> PlaceTests {
        let dim = &operand.dims[k];
        let divides = [OWN, DEEP].into_iter().all(|part| {
            let all = dim.factors[part].iter().zip(&self.tile[part - 1]);
            all.zip(&operand.extents[part]).all(|((f, tile), n)| *f == 0 || n % tile == 0)
        });
        // Places by the least and by the greatest coordinates of the batch.
        let reach = dim.reach(&operand.extents);
        let batch = dim.factors[0].iter().zip(&operand.extents[0]);
        let (mut least, mut most) = (dim.base, dim.base);
        for (f, n) in batch {
            let step = f * (n - 1).max(0);
            (least, most) = (least + step.min(0), most + step.max(0));
        }
        let Range { start, end } = dim.read;
        // What no coordinates choose is not read either.
        let implied = most + reach.start <= start && end <= least + reach.end;
        let covered = start <= least + reach.start && most + reach.end <= end;
        PlaceTests { reach: !divides && !implied, read: !covered || !divides && implied }
    }

    /// Lines of a box.
    pub(crate) fn lines(&self) -> i64 {
        volume(self.places[..self.inner].iter().map(|(n, _)| n))
    }

    /// Runs of lines along the dimension before them.
    fn runs(&self) -> i64 {
        volume(self.places[..self.inner.saturating_sub(1)].iter().map(|(n, _)| n))
    }

    /// Words of a box, in whole units of 16 bytes: these are words of two elements where places are elements, too.
    pub(crate) fn words(&self) -> i64 {
        let rooms = self.runs().saturating_mul(self.room);
        let places = self.lines().saturating_mul(self.pitch).saturating_add(rooms);
        let words = places.saturating_add(self.word.places() - 1) / self.word.places();
        words.saturating_add(3) / 4 * 4
    }

    /// Words from one place to the next of a dimension.
    fn pitch_of(&self, k: usize) -> i64 {
        let places = |range: Range<usize>| volume(self.places[range].iter().map(|(n, _)| n));
        if k >= self.inner {
            return places(k + 1..self.places.len());
        }
        let rooms = if k + 1 < self.inner { places(k + 1..self.inner - 1) } else { 0 };
        let lines = self.pitch.saturating_mul(places(k + 1..self.inner));
        lines.saturating_add(self.room.saturating_mul(rooms))
    }

    /// Words from one coordinate to the next along an axis of the lines or the depth.
    pub(crate) fn step(&self, operand: &BoxOperand, part: usize, axis: usize) -> i64 {
        let each = operand.dims.iter().enumerate();
        each.map(|(k, dim)| dim.factors[part][axis] * self.pitch_of(k)).sum()
    }

    /// Words before the element at the first coordinates of the tile.
    pub(crate) fn first(&self) -> i64 {
        let each = self.places.iter().enumerate();
        each.map(|(k, (_, before))| -before * self.pitch_of(k)).sum()
    }

    /// Divides what is one line in memory, where that leaves long ones, and leaves words free between lines or runs of them with
    /// which a warp reads them in the fewest turns, where its lanes are 8 lines by 4 places of the depth along these axes.
    pub(crate) fn padded(self, operand: &BoxOperand, lanes: [usize; 2]) -> StagedBox {
        let least = self.inner;
        let mut best: Option<((i64, i64), StagedBox)> = None;
        for inner in least..operand.dims.len().max(least + 1) {
            let lined = self.clone().lined(operand, inner);
            let each = self.word.places();
            if inner > least && lined.line < LEAST_LINE * each {
                break;
            }
            // Room after several lines takes less than as much after each.
            let of_runs = inner > 1 && self.places[inner - 1].0 > 1;
            for after_runs in [true, false].into_iter().filter(|&runs| of_runs || !runs) {
                for free in (0..BANKS * each).filter(|free| free % lined.unit == 0) {
                    let (pitch, room) = if after_runs { (0, free) } else { (free, 0) };
                    let padded = StagedBox { pitch: lined.line + pitch, room, ..lined.clone() };
                    let turns = padded.turns(operand, lanes);
                    let price = (turns, padded.words());
                    if best.as_ref().is_none_or(|(least, _)| price < *least) {
                        best = Some((price, padded));
                    }
                    if turns == 1 {
                        break;
                    }
                }
            }
        }
        best.map_or(self, |(_, padded)| padded)
    }

    /// How this many threads share the lines.
    pub(crate) fn teams(&self, threads: i64) -> CopyTeams {
        let units = self.units();
        let lanes = (units as u64).next_power_of_two().min(BANKS as u64) as i64;
        let teams = threads / lanes;
        let through = |n: i64| (n + teams - 1) / teams;
        let lines = self.lines();
        let along = (0..self.inner).map(|k| {
            let n = self.places[k].0;
            (lines / n * through(n), k)
        });
        let plain = through(lines);
        let (turns, along) = match along.min() {
            // An address for each turn takes as long as a few more turns.
            Some((turns, k)) if turns <= 2 * plain => (turns, Some(k)),
            _ => (plain, None),
        };
        CopyTeams { lanes, teams, units: (units + lanes - 1) / lanes, along, turns }
    }

    /// Turns in which the lanes of a warp read 8 lines by 4 places of the depth.
    pub(crate) fn turns(&self, operand: &BoxOperand, [own, deep]: [usize; 2]) -> i64 {
        let [line, place] = [(OWN, own), (DEEP, deep)].map(|(part, a)| self.step(operand, part, a));
        let mut words = [0; BANKS as usize];
        for (n, word) in (0..BANKS).zip(&mut words) {
            *word = (n / 4 * line + n % 4 * place).div_euclid(self.word.places());
        }
        words.sort_unstable();
        let mut banks = [0; BANKS as usize];
        for (n, word) in words.iter().enumerate() {
            // A word that several lanes read is read once.
            if n == 0 || words[n - 1] != *word {
                banks[word.rem_euclid(BANKS) as usize] += 1;
            }
        }
        banks.into_iter().max().unwrap_or(1)
    }
}
