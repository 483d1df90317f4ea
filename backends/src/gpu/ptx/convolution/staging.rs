//! Elements in shared memory become what is multiplied: each thread computes those that it has copied, rounds them or joins them to
//! words, and stores them in their places. Zeros around an array stay as they are.

use super::WindowKernel;
use super::copies::{BoxUnit, BoxWalk};
use super::words::{elements_of, joined};
use crate::gpu::ptx::address::{Truth, Vars, holds, resolved, value};
use crate::gpu::ptx::asm::{Class, Reg, guard_prefix, listed};
use crate::gpu::ptx::emit::{At, Emit};
use crate::gpu::ptx::isel;
use crate::gpu::schedule::box_program::{BoxParam, BoxProgram, LinePlace};
use crate::gpu::schedule::box_word::BoxWord;
use crate::gpu::schedule::convolution::BoxPath;
use crate::gpu::schedule::index::range;
use crate::gpu::schedule::staged_box::DEEP;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Operand, Piece};
use adfuse_ir::scalar::ScalarProgram;

/// Units that a thread loads before it stores the first: loads wait for stores that may go to the same place.
const BATCH: usize = 4;

/// An operand's box, and what is computed of its elements.
type StagedProgram<'p> = (BoxWalk<'p>, Option<(&'p BoxProgram, ScalarProgram)>);

/// What a program reads of other arrays, for each element of a word; `None` for what it does not read, and for the element.
type LineParams = [Vec<Option<Reg>>; 2];

/// A turn for a unit.
pub(super) struct StagedTurn {
    /// The number of its box.
    number: usize,
    turn: [i64; 2],
    params: LineParams,
}

/// What a thread computes of a step.
#[derive(Default)]
pub(super) struct StagedStep<'p> {
    stage: Option<Reg>,
    vars: Vars,
    /// Whether there is that step.
    there: Option<Reg>,
    boxes: Vec<StagedProgram<'p>>,
    turns: Vec<StagedTurn>,
}

/// A unit in registers.
pub(super) struct LoadedUnit {
    /// The number of its box.
    number: usize,
    unit: BoxUnit,
    words: Vec<Reg>,
    when: Option<Reg>,
    params: LineParams,
}

impl WindowKernel<'_> {
    /// Whether an operand is computed or rounded in shared memory.
    pub(super) fn is_staged(&self, side: usize) -> bool {
        self.product.tile.paths[side] == BoxPath::Staged
    }

    /// What a thread computes of the step that is `ahead` steps on, where that is one, in the stage that is this many bytes in.
    pub(super) fn staged_step(
        &self,
        emit: &mut Emit<'_>,
        (step, ahead, end): (Reg, i64, Reg),
        stage: Reg,
    ) -> StagedStep<'_> {
        let sides: Vec<usize> = (0..2).filter(|&side| self.is_staged(side)).collect();
        if sides.is_empty() {
            return StagedStep::default();
        }
        let (mut on, mut there) = (step, None);
        if ahead > 0 {
            on = emit.asm.fresh(Class::Word);
            let (last, more) = (emit.asm.fresh(Class::Word), emit.asm.fresh(Class::Pred));
            emit.asm.emit(format_args!("add.s32 {on}, {step}, {ahead}"));
            emit.asm.emit(format_args!("setp.lt.s32 {more}, {on}, {end}"));
            // What is past the last step is not stored; what is read for it is there.
            emit.asm.emit(format_args!("min.s32 {last}, {on}, {}", self.product.tiling.steps - 1));
            (on, there) = (last, Some(more));
        }
        let (deep, vars) = self.deep(emit, on);
        let mut made = StagedStep { stage: Some(stage), vars, there, ..StagedStep::default() };
        for side in sides {
            let walk = self.box_walk(side, &deep);
            let program = walk.operand.computed.as_ref();
            let program = program.map(|found| (found, emit.written(&found.program)));
            let number = made.boxes.len();
            for turn in self.turns(&walk) {
                // Early: what is read comes while copies are waited for.
                let params = program.as_ref().map_or_else(LineParams::default, |(from, _)| {
                    self.line_params(emit, (&walk, from), &made.vars, turn)
                });
                made.turns.push(StagedTurn { number, turn, params });
            }
            made.boxes.push((walk, program));
        }
        made
    }

    /// Reads what programs read of other arrays that is the same in each step: the text of a step finds it in registers.
    pub(super) fn read_once(&self, emit: &mut Emit<'_>) {
        let first: Vec<IndexExpr> =
            self.product.tiling.tiles[2].iter().map(|_| IndexExpr::Const(0)).collect();
        for side in (0..2).filter(|&side| self.is_staged(side)) {
            let walk = self.box_walk(side, &first);
            let Some(from) = walk.operand.computed.as_ref() else { continue };
            let moves = |dim: usize| walk.operand.dims[dim].factors[DEEP].iter().any(|&f| f != 0);
            if !from.dims().any(moves) {
                for turn in self.turns(&walk) {
                    self.line_params(emit, (&walk, from), &self.vars, turn);
                }
            }
        }
    }

    /// What a program reads of other arrays in a turn. Turns of lines that share it read it once.
    fn line_params(
        &self,
        emit: &mut Emit<'_>,
        (walk, from): (&BoxWalk<'_>, &BoxProgram),
        vars: &Vars,
        [turn, _]: [i64; 2],
    ) -> LineParams {
        let mut vars = vars.clone();
        let (at, _) = self.line_of(emit, walk.staged, turn, &mut vars);
        let mut found = LineParams::default();
        let elements = if walk.operand.word == BoxWord::Single { 1 } else { 2 };
        for (half, params) in (0..elements).zip(&mut found) {
            let all = from.params.iter().map(|param| match param {
                Some(BoxParam::Of { buffer, places }) => {
                    Some(walk.element_of(emit, (*buffer, places), half, (&at, &vars)))
                }
                _ => None,
            });
            *params = all.collect();
        }
        found
    }

    /// No step.
    pub(super) fn no_step(&self) -> StagedStep<'_> {
        StagedStep::default()
    }

    /// Computes all of a step.
    pub(super) fn compute_all(&self, emit: &mut Emit<'_>, step: &StagedStep<'_>) {
        for turns in step.turns.chunks(BATCH) {
            let loaded = self.load_units(emit, step, turns);
            step.store_units(emit, loaded);
        }
    }

    /// Loads what a thread has in some turns.
    pub(super) fn load_units(
        &self,
        emit: &mut Emit<'_>,
        step: &StagedStep<'_>,
        turns: &[StagedTurn],
    ) -> Vec<LoadedUnit> {
        let Some(stage) = step.stage else { return Vec::new() };
        let mut loaded = Vec::new();
        for StagedTurn { number, turn, params } in turns {
            let walk = &step.boxes[*number].0;
            let unit = self.unit(emit, (walk, &step.vars), stage, *turn);
            let same = emit.same(&unit.vars);
            let reads = holds(&mut emit.asm, &unit.guards, &same, &unit.vars, &[]);
            let there = emit.all(step.there, unit.when);
            let when = match reads {
                Truth::Never => continue,
                Truth::Always => there,
                Truth::When(p) => emit.all(there, Some(p)),
            };
            let words = walk.load(emit, &unit, when);
            loaded.push(LoadedUnit { number: *number, unit, words, when, params: params.clone() });
        }
        loaded
    }
}

impl StagedStep<'_> {
    /// The turns of one of this many parts.
    pub(super) fn part(&self, n: i64, parts: i64) -> &[StagedTurn] {
        let all = self.turns.len() as i64;
        let [from, to] = [n, n + 1].map(|n| (all * n / parts.max(1)) as usize);
        &self.turns[from..to]
    }

    /// Computes and stores what is loaded.
    pub(super) fn store_units(&self, emit: &mut Emit<'_>, loaded: Vec<LoadedUnit>) {
        for found in loaded {
            let (walk, program) = &self.boxes[found.number];
            walk.store(emit, found, program.as_ref());
        }
    }
}

/// How registers of an access are spelled: one by itself, several as a vector.
fn vector(regs: &[Reg]) -> (String, String) {
    match regs {
        [one] => (String::new(), one.to_string()),
        all => (format!(".v{}", all.len()), listed(all)),
    }
}

impl BoxWalk<'_> {
    fn load(&self, emit: &mut Emit<'_>, unit: &BoxUnit, when: Option<Reg>) -> Vec<Reg> {
        let class = if self.operand.word == BoxWord::Single { Class::Single } else { Class::Word };
        let words = self.staged.unit / self.operand.word.places();
        let words: Vec<Reg> = (0..words).map(|_| emit.asm.fresh(class)).collect();
        let (prefix, BoxUnit { to, offset, .. }) = (guard_prefix(when), unit);
        let ((wide, all), kind) = (vector(&words), class.moved());
        emit.asm.emit(format_args!("{prefix}ld.shared{wide}.{kind} {all}, [{to}+{offset}]"));
        words
    }

    /// Stores what is computed of a unit's elements.
    fn store(
        &self,
        emit: &mut Emit<'_>,
        found: LoadedUnit,
        program: Option<&(&BoxProgram, ScalarProgram)>,
    ) {
        let LoadedUnit { unit, words, when, params, .. } = found;
        let computed = |emit: &mut Emit<'_>, element: Reg, params: &[Option<Reg>]| {
            let Some((from, program)) = program else { return element };
            let given = from.params.iter().zip(params).map(|(param, &found)| match param {
                Some(BoxParam::Element) => Some(element),
                _ => found,
            });
            let given: Vec<Option<Reg>> = given.collect();
            isel::outputs(&mut emit.asm, program, &given).first().copied().unwrap_or(element)
        };
        let made: Vec<Reg> = match self.operand.word {
            BoxWord::Single => {
                let rounded = words.iter().map(|&word| {
                    let x = computed(emit, word, &params[0]);
                    let rounded = emit.asm.fresh(Class::Word);
                    emit.asm.emit(format_args!("cvt.rna.tf32.f32 {rounded}, {x}"));
                    rounded
                });
                rounded.collect()
            }
            word => {
                let all = elements_of(&mut emit.asm, word, &words);
                let all = all.into_iter().map(|[low, high]| {
                    let low = computed(emit, low, &params[0]);
                    let high = computed(emit, high, &params[1]);
                    joined(&mut emit.asm, [low, high])
                });
                all.collect()
            }
        };
        let (wide, all) = vector(&made);
        let (prefix, BoxUnit { to, offset, .. }) = (guard_prefix(when), &unit);
        emit.asm.emit(format_args!("{prefix}st.shared{wide}.b32 [{to}+{offset}], {all}"));
    }

    /// The element of another array for an element of words of a line at these coordinates.
    fn element_of(
        &self,
        emit: &mut Emit<'_>,
        (buffer, places): (Buffer, &[LinePlace]),
        half: i64,
        (at, vars): (&[IndexExpr], &Vars),
    ) -> Reg {
        let mut vars = vars.clone();
        let extents = emit.program.buffers[buffer].dims.clone();
        let index = places.iter().zip(&extents).map(|(place, &extent)| {
            let along = place.dim.map(|k| self.starts[k].0.clone().sum(at[k].clone()));
            let along = along.unwrap_or(IndexExpr::Const(0)).times(place.word);
            let along = along.plus(place.offset + half * place.half);
            within(emit, &mut vars, &along, extent)
        });
        let index = index.collect();
        let piece = Piece { from: Operand::Buffer(buffer), index, guards: Default::default() };
        let same = emit.same(&vars);
        let dtype = emit.program.buffers[buffer].dtype;
        emit.load(&[piece], dtype, &At { vars: &vars, coords: &same }, &[])
    }
}

/// A place in an array along an axis of this extent: lines that are not there, or are not read, have places outside.
fn within(emit: &mut Emit<'_>, vars: &mut Vars, place: &IndexExpr, extent: i64) -> IndexExpr {
    let e = resolved(place, &emit.same(vars), vars);
    let (least, most) = range(&e, &vars.extents);
    if least >= 0 && most < i128::from(extent) {
        return e;
    }
    let number = value(&mut emit.asm, &e, vars, &[]);
    let number = emit.asm.narrow(number);
    let number = emit.asm.pure(Class::Word, "max.s32", format_args!("{number}, 0"));
    let last = format!("{number}, {}", extent - 1);
    let number = emit.asm.pure(Class::Word, "min.s32", last);
    vars.push(number, extent)
}
