//! Loops and branches on the [machine](crate::machine): turns in the order of the engine, several drawn for one position.

use crate::machine::{Frame, Machine, bytes_of};
use adfuse::backends::ptx::{
    BlockBinding, BlockCode, CarryPlace, FILL_THREADS, INDICES_AT, LoopAction, LoopPlan,
    POSITION_BYTES, POSITION_ENTRY, StepCode, TURNS, fill_entry,
};
use adfuse::ir::kernel::{
    Block, Branch, Buffer, BufferData, Carry, Loop, LoopTrips, Operand, Program, Role, Storage,
};
use adfuse::ir::{DType, Literal};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Turns for one position.
const DRAWN: u64 = 3;

/// A loop that runs.
struct Turns<'l> {
    program: &'l Program,
    step: &'l Loop,
    codes: BTreeMap<&'l str, &'l BlockCode>,
    at: &'l Frame,
    trips: u64,
    first: i64,
    position: u64,
    /// What is carried, and what is handed back, by its places.
    places: [BTreeMap<CarryPlace, Vec<u64>>; 2],
}

/// What one turn reads and writes.
struct TurnPlaces {
    now: Vec<u64>,
    returned: Vec<u64>,
    results: Vec<u64>,
}

impl Machine {
    fn scalar(&self, program: &Program, b: Buffer, at: &Frame) -> i64 {
        let dtype = program.buffers[b].dtype;
        let mut bits = [0; 8];
        let found = self.bytes(at.own[b.as_u32() as usize], dtype.bytes());
        bits[..found.len()].copy_from_slice(found);
        Literal::from_bits(dtype, u64::from_le_bytes(bits)).to_i64()
    }

    pub(crate) fn branch(&mut self, program: &Program, step: &Branch, code: &StepCode, at: &Frame) {
        let is_bool = program.buffers[step.selector].dtype == DType::Bool;
        let selector = self.scalar(program, step.selector, at);
        let taken = Branch::taken(step.blocks.len(), is_bool, selector);
        let results = step.outputs.iter().map(|b| at.own[b.as_u32() as usize]).collect();
        let places = TurnPlaces { now: Vec::new(), returned: Vec::new(), results };
        let (block, code) = (&step.blocks[taken], &code.blocks[taken]);
        self.block(block, code, (at, program), (0, 0, 0), &places);
    }

    pub(crate) fn repeat(&mut self, program: &Program, step: &Loop, code: &StepCode, at: &Frame) {
        let mark = self.mark();
        let (first, trips) = match &step.trips {
            LoopTrips::Known(n) => (0, *n),
            LoopTrips::Count(n) => (0, self.scalar(program, *n, at).max(0) as u64),
            LoopTrips::Range(from, to) => {
                let [from, to] = [from, to].map(|b| self.scalar(program, *b, at));
                (from, to.saturating_sub(from).max(0) as u64)
            }
            LoopTrips::While { .. } => (0, 0),
        };
        let codes = code.blocks.iter().map(|code| (code.role.as_str(), code)).collect();
        let position = self.room(POSITION_BYTES);
        let places = [BTreeMap::new(), BTreeMap::new()];
        let mut turns = Turns { program, step, codes, at, trips, first, position, places };
        match &step.trips {
            LoopTrips::While { test, .. } => self.while_true(&mut turns, test),
            _ => {
                let checkpoints = step.back.as_ref().map(|back| step.checkpoints(back));
                let plan = LoopPlan { trips, checkpoints, alternate: true, alternate_back: true };
                let done: Result<(), Infallible> = plan.each(&mut |action| {
                    self.act(&mut turns, action);
                    Ok(())
                });
                assert!(done.is_ok());
            }
        }
        self.give_back(mark);
    }

    fn while_true(&mut self, turns: &mut Turns<'_>, test: &Block) {
        self.act(turns, LoopAction::Copy(CarryPlace::Start, CarryPlace::First));
        let answer = self.room(1);
        let (mut t, mut from) = (0, CarryPlace::First);
        loop {
            let now = self.places(turns, false, from);
            let places = TurnPlaces { now, returned: Vec::new(), results: vec![answer] };
            let at = (turns.at, turns.program);
            self.block(test, turns.codes["test"], at, (0, 0, 0), &places);
            if self.bytes(answer, 1)[0] & 1 == 0 {
                break;
            }
            self.act(turns, LoopAction::Forward { t, count: 1, from });
            (t, from) = (t + 1, from.other());
        }
        if from != CarryPlace::First {
            self.act(turns, LoopAction::Copy(from, CarryPlace::First));
        }
    }

    /// Where all that is carried is, or all that is handed back.
    fn places(&mut self, turns: &mut Turns<'_>, returned: bool, place: CarryPlace) -> Vec<u64> {
        let back = turns.step.back.as_ref();
        let carries = match returned {
            false => &turns.step.carries,
            true => back.map_or(&turns.step.carries, |back| &back.carries),
        };
        let known = &mut turns.places[usize::from(returned)];
        let ends =
            place == CarryPlace::End || place == CarryPlace::First && (returned || back.is_none());
        let find = |carry: &Carry| match ends {
            true => turns.at.own[carry.to.as_u32() as usize],
            false => self.room(turns.program.buffers[carry.to].bytes()),
        };
        known.entry(place).or_insert_with(|| carries.iter().map(find).collect()).clone()
    }

    fn act(&mut self, turns: &mut Turns<'_>, action: LoopAction) {
        let step = turns.step;
        let back = step.back.as_ref();
        match action {
            LoopAction::Copy(from, to) => self.move_all(turns, (false, &step.carries), from, to),
            LoopAction::CopyReturned(from, to) => {
                self.move_all(turns, (true, &back.expect("a way back").carries), from, to);
            }
            LoopAction::Forward { t, count, from } => {
                let mut from = from;
                for k in 0..count {
                    let drawn = k % DRAWN;
                    if drawn == 0 {
                        self.set_position(turns, t + k);
                    }
                    let now = self.places(turns, false, from);
                    let results = self.places(turns, false, from.other());
                    let places = TurnPlaces { now, returned: Vec::new(), results };
                    self.turn(turns, (&step.step, "step"), drawn, &places);
                    from = from.other();
                }
            }
            LoopAction::Back { t, from } => {
                self.set_position(turns, t);
                let now = self.places(turns, false, CarryPlace::First);
                let returned = self.places(turns, true, from);
                let results = self.places(turns, true, from.other());
                let places = TurnPlaces { now, returned, results };
                self.turn(turns, (&back.expect("a way back").step, "back"), 0, &places);
            }
        }
    }

    fn turn(
        &mut self,
        turns: &Turns<'_>,
        (block, role): (&Block, &str),
        drawn: u64,
        places: &TurnPlaces,
    ) {
        let on = if turns.step.reverse { -(drawn as i64) } else { drawn as i64 };
        let index = turns.position + INDICES_AT + 8 * drawn;
        let at = (turns.at, turns.program);
        self.block(block, turns.codes[role], at, (turns.position, index, on), places);
    }

    fn set_position(&mut self, turns: &Turns<'_>, t: u64) {
        let at = if turns.step.reverse { turns.trips - 1 - t } else { t };
        let by = if turns.step.reverse { -1i64 } else { 1 };
        let index = turns.first.wrapping_add(at as i64);
        let args = [turns.position, at, index as u64, by as u64];
        self.shared(POSITION_ENTRY, 1, TURNS as u32, &args);
    }

    /// Runs a block, `on` elements after the position in memory.
    fn block(
        &mut self,
        block: &Block,
        code: &BlockCode,
        (around, program_around): (&Frame, &Program),
        (position, index, on): (u64, u64, i64),
        places: &TurnPlaces,
    ) {
        let mark = self.mark();
        let program = &block.program;
        let moved = |at: u64, each: u64| at.wrapping_add((on * each as i64) as u64);
        let mut own = Vec::new();
        for (b, data) in program.buffers.iter() {
            let outer = |b: Buffer| around.own[b.as_u32() as usize];
            own.push(match code.bindings[b] {
                BlockBinding::Own => match &data.role {
                    Role::Constant(values) => {
                        self.hold(values.iter().flat_map(|v| bytes_of(*v)).collect())
                    }
                    _ => self.room(data.bytes()),
                },
                BlockBinding::Index => index,
                BlockBinding::Carry(k) => places.now[k],
                BlockBinding::Returned(k) => places.returned[k],
                BlockBinding::Whole(b) => outer(b),
                BlockBinding::Element(b) => moved(outer(b), data.bytes()),
                BlockBinding::Result(k) => places.results[k],
            });
        }
        let each =
            |data: &BufferData| data.bytes() / data.dims.first().map_or(1, |&n| n.max(1) as u64);
        let outer = around.own.iter().zip(program_around.buffers.values());
        let outer = outer.map(|(&at, data)| moved(at, each(data))).collect();
        let results = places.results.clone();
        let at = Frame { own, outer, results, position, ..Frame::default() };
        code.before.iter().for_each(|l| self.one(l, &at, 0));
        self.steps(program, &code.steps, &at);
        code.after.iter().for_each(|l| self.one(l, &at, 0));
        self.give_back(mark);
    }

    fn move_all(
        &mut self,
        turns: &mut Turns<'_>,
        (returned, carries): (bool, &[Carry]),
        from: CarryPlace,
        to: CarryPlace,
    ) {
        let to = self.places(turns, returned, to);
        if from != CarryPlace::Start {
            let from = self.places(turns, returned, from);
            for ((carry, from), to) in carries.iter().zip(from).zip(to) {
                self.copy(from, to, turns.program.buffers[carry.to].bytes());
            }
            return;
        }
        for (carry, to) in carries.iter().zip(to) {
            let data = &turns.program.buffers[carry.to];
            match carry.from {
                Operand::Buffer(b) => {
                    self.copy(turns.at.own[b.as_u32() as usize], to, data.bytes());
                }
                Operand::Literal(l) => {
                    let (bits, width) = match data.storage {
                        Storage::Plain => (l.bits(), data.dtype.bytes()),
                        Storage::Packed(bits) => {
                            let low = l.bits() & ((1 << bits) - 1);
                            ((0..32).step_by(bits.into()).map(|at| low << at).sum(), 4)
                        }
                    };
                    let count = data.bytes() / width;
                    let blocks = count.div_ceil(FILL_THREADS.into());
                    if blocks > 0 {
                        let args = [to, bits, count];
                        self.shared(&fill_entry(width), blocks, FILL_THREADS, &args);
                    }
                }
            }
        }
    }
}
