//! A machine that runs modules on the host, one thread after the other from barrier to barrier, so that what is
//! emitted is held to the kernel evaluator where there is no GPU. It sees every access: those outside
//! of a buffer stop it, and so do two writes to one place by threads that no barrier keeps apart. What is read of
//! a place that such a thread has written is nothing that a result may depend on. Forwards and backwards,
//! each of two threads comes first once.

use crate::instructions::{Does, Entry, Inst, Space, Special, entries};
use crate::lanes::{barrier, together};
use adfuse::backends::ptx::{Arg, Launch, PtxModule, StepCode};
use adfuse::backends::{Array, print_effect};
use adfuse::ir::Literal;
use adfuse::ir::kernel::{
    Buffer, BufferData, InPlace, Program, Role, Space as Memory, Step, Storage,
};
use adfuse::ir::scalar::Table;
use std::collections::HashMap;

/// Bits of a pointer that are the place within a piece of memory.
const PLACE: u32 = 40;
/// What memory has that nothing was written to.
const POISON: u8 = 0xa5;
pub(crate) const LANES: usize = 32;

/// A piece of memory, and who wrote each place last.
#[derive(Default)]
pub(crate) struct Piece {
    bytes: Vec<u8>,
    written: Vec<u64>,
}

/// Who is at a place. Threads of a block are kept apart by its barriers, lanes of a warp by the warp's own too.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    block: u64,
    thread: u64,
    pub(crate) barriers: u64,
    pub(crate) together: u64,
}

impl Who {
    /// In one number, never 0: block, thread, and how many barriers and meetings of the warp it has passed.
    fn stamp(self) -> u64 {
        1 << 63 | self.block << 40 | self.thread << 30 | self.barriers << 15 | self.together
    }

    /// Whether nothing keeps this one and an earlier one apart.
    fn races(self, other: u64) -> bool {
        let (own, same) = (self.stamp(), |shift: u32| other >> shift == self.stamp() >> shift);
        if other == 0 || same(30) {
            return false;
        }
        if !same(40) {
            return true;
        }
        let meetings = |n: u64| (n >> 15) & 0x7fff;
        let warp = |n: u64| (n >> 35) & 0x1f;
        let together = |n: u64| n & 0x7fff;
        meetings(own) == meetings(other)
            && !(warp(own) == warp(other) && together(own) != together(other))
    }
}

impl Piece {
    fn new(bytes: Vec<u8>) -> Piece {
        let n = bytes.len();
        Piece { bytes, written: vec![0; n] }
    }

    fn fresh(&mut self) {
        self.written.fill(0);
    }

    pub(crate) fn load(&mut self, at: usize, bytes: usize, who: Who) -> Option<u64> {
        let part = self.bytes.get(at..at.checked_add(bytes)?)?;
        let mut whole = [0; 8];
        whole[..bytes].copy_from_slice(part);
        if self.written[at..at + bytes].iter().any(|&w| who.races(w)) {
            whole[..bytes].fill(POISON);
        }
        Some(u64::from_le_bytes(whole))
    }

    fn store(&mut self, at: usize, bytes: usize, value: u64, who: Who) -> Option<()> {
        let part = self.bytes.get_mut(at..at.checked_add(bytes)?)?;
        part.copy_from_slice(&value.to_le_bytes()[..bytes]);
        for k in at..at + bytes {
            if who.races(self.written[k]) {
                return None;
            }
            self.written[k] = who.stamp();
        }
        Some(())
    }
}

/// Why a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Runs,
    /// At an instruction that lanes do together.
    Lanes,
    Block,
    Done,
}

pub(crate) struct Thread {
    pub(crate) at: usize,
    pub(crate) registers: Vec<u64>,
    pub(crate) state: State,
    pub(crate) who: Who,
}

/// Where everything of a program is, as launches are given it.
#[derive(Clone, Default)]
pub(crate) struct Frame {
    /// Its buffers.
    pub(crate) own: Vec<u64>,
    /// The caller's arrays.
    pub(crate) callers: Vec<u64>,
    /// For a program in a step: the buffers around it, where its outputs go, and the loop's position.
    pub(crate) outer: Vec<u64>,
    pub(crate) results: Vec<u64>,
    pub(crate) position: u64,
}

pub(crate) struct Machine {
    pieces: Vec<Piece>,
    entries: HashMap<String, Entry>,
    /// Whether blocks and threads take their turns from the last to the first.
    backwards: bool,
}

/// Runs a program's module: what the caller is handed.
pub(crate) fn run(
    module: &PtxModule,
    program: &Program,
    args: &[Array],
    backwards: bool,
) -> Vec<Array> {
    run_over(module, (program, &[]), args, backwards)
}

/// As [`run`], with some buffers in the memory of others.
pub(crate) fn run_over(
    module: &PtxModule,
    (program, pairs): (&Program, &[InPlace]),
    args: &[Array],
    backwards: bool,
) -> Vec<Array> {
    let parent = |b: usize| pairs.iter().find(|p| p.child.as_u32() as usize == b);
    let place = |b: usize| parent(b).map_or(b, |pair| pair.parent.as_u32() as usize);
    let buffers = program.buffers.len();
    let mut machine = Machine { pieces: Vec::new(), entries: entries(&module.text), backwards };
    for (number, text) in module.users.iter().enumerate() {
        let own = entries(text).into_iter();
        machine.entries.extend(own.map(|(name, entry)| (key(Some(number), &name), entry)));
    }
    let mut inputs = args.iter();
    let mut callers = Vec::new();
    for data in program.buffers.values() {
        let mut own = vec![POISON; data.bytes() as usize];
        let mut caller = Vec::new();
        match &data.role {
            Role::Input => {
                let given = inputs.next().expect("as many as inputs").bytes();
                let to = if is_plain(data) { &mut own } else { &mut caller };
                *to = given.to_vec();
            }
            Role::Constant(values) => {
                own = values.iter().flat_map(|v| bytes_of(*v)).collect();
            }
            _ if !is_plain(data) => {
                caller = vec![POISON; volume(data) * data.dtype.bytes() as usize]
            }
            _ => {}
        }
        machine.pieces.push(Piece::new(own));
        callers.push(Piece::new(caller));
    }
    machine.pieces.extend(callers);
    let number = |n: usize| (n as u64 + 1) << PLACE;
    let at = Frame {
        own: (0..buffers).map(|b| number(place(b))).collect(),
        callers: (0..buffers).map(|n| number(n + buffers)).collect(),
        ..Frame::default()
    };
    machine.code(&module.enter, &at);
    machine.steps(program, &module.steps, &at);
    machine.code(&module.leave, &at);
    let handed = |b: &Buffer| {
        let data = &program.buffers[*b];
        let own = b.as_u32() as usize;
        let piece = if is_plain(data) { place(own) } else { own + buffers };
        array_of(data, &machine.pieces[piece].bytes)
    };
    program.outputs.iter().map(handed).collect()
}

/// What an entry point is known by: those of users' modules have their number before them.
fn key(user: Option<usize>, entry: &str) -> String {
    user.map_or_else(|| entry.to_owned(), |number| format!("{number}:{entry}"))
}

/// A dense array of these bytes.
fn array_of(data: &BufferData, bytes: &[u8]) -> Array {
    let each = data.dtype.bytes() as usize;
    let bits = |part: &[u8]| {
        let mut whole = [0; 8];
        whole[..each].copy_from_slice(part);
        u64::from_le_bytes(whole)
    };
    let all: Vec<u64> = bytes.chunks(each).map(bits).collect();
    let dims: Vec<u64> = data.dims.iter().map(|&n| n as u64).collect();
    Array::from_bits(data.dtype, &dims, &all).expect("fits")
}

/// Whether the caller's array is the buffer itself.
pub(crate) fn is_plain(data: &BufferData) -> bool {
    let dense = data.storage == Storage::Plain && data.strides.is_none();
    dense || data.space != Memory::Device || matches!(data.role, Role::Constant(_))
}

fn volume(data: &BufferData) -> usize {
    data.dims.iter().map(|&n| n as usize).product()
}

pub(crate) fn bytes_of(v: Literal) -> Vec<u8> {
    v.bits().to_le_bytes()[..v.dtype().bytes() as usize].to_vec()
}

impl Machine {
    /// Runs the steps of a program.
    pub(crate) fn steps(&mut self, program: &Program, codes: &[StepCode], at: &Frame) {
        for (step, code) in program.steps.iter().zip(codes) {
            match step {
                Step::Transfer(t) => {
                    let [from, to] = [t.from, t.to].map(|b| at.own[b.as_u32() as usize]);
                    self.copy(from, to, program.buffers[t.from].bytes());
                }
                Step::Print(step) => {
                    let data = &program.buffers[step.from];
                    let from = self.bytes(at.own[step.from.as_u32() as usize], data.bytes());
                    print_effect(&step.label, &array_of(data, from));
                }
                Step::Loop(step) => self.repeat(program, step, code, at),
                Step::Branch(step) => self.branch(program, step, code, at),
                _ => self.code(code, at),
            }
        }
    }

    /// The launches of one step.
    fn code(&mut self, code: &StepCode, at: &Frame) {
        let before = self.pieces.len();
        let scratch = self.room(code.scratch);
        code.launches.iter().for_each(|l| self.one(l, at, scratch));
        self.pieces.truncate(before);
    }

    /// A launch whose scratch begins there.
    pub(crate) fn one(&mut self, launch: &Launch, at: &Frame, scratch: u64) {
        let pointer = |arg: &Arg| match *arg {
            Arg::Buffer(b) => at.own[b.as_u32() as usize],
            Arg::Caller(b) => at.callers[b.as_u32() as usize],
            Arg::Outer(b) => at.outer[b.as_u32() as usize],
            Arg::Result(k) => at.results[k],
            Arg::Position => at.position,
            Arg::Scratch { offset } => scratch + offset,
            Arg::Number(n) => n,
        };
        let pointers: Vec<u64> = launch.args.iter().map(pointer).collect();
        self.launch(launch, &pointers);
    }

    /// A launch of an entry point that is given pointers and numbers.
    pub(crate) fn shared(&mut self, entry: &str, blocks: u64, block: u32, args: &[u64]) {
        let l = Launch::new(entry, [blocks as u32, 1, 1], block);
        self.launch(&l, args);
    }

    /// Memory of this many bytes, to which nothing was written.
    pub(crate) fn room(&mut self, bytes: u64) -> u64 {
        self.hold(vec![POISON; bytes as usize])
    }

    /// Memory with these bytes.
    pub(crate) fn hold(&mut self, bytes: Vec<u8>) -> u64 {
        self.pieces.push(Piece::new(bytes));
        (self.pieces.len() as u64) << PLACE
    }

    /// How many pieces of memory there are; those that are made after are given back by [`Machine::give_back`].
    pub(crate) fn mark(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn give_back(&mut self, mark: usize) {
        self.pieces.truncate(mark);
    }

    /// The bytes at a place.
    pub(crate) fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        let place = (at & ((1 << PLACE) - 1)) as usize;
        &self.pieces[(at >> PLACE) as usize - 1].bytes[place..place + bytes as usize]
    }

    pub(crate) fn copy(&mut self, from: u64, to: u64, bytes: u64) {
        let found = self.bytes(from, bytes).to_vec();
        let place = (to & ((1 << PLACE) - 1)) as usize;
        self.pieces[(to >> PLACE) as usize - 1].bytes[place..place + found.len()]
            .copy_from_slice(&found);
    }

    fn launch(&mut self, launch: &Launch, pointers: &[u64]) {
        self.pieces.iter_mut().for_each(Piece::fresh);
        let name = key(launch.user, &launch.entry);
        let entry = self.entries.remove(&name).expect("an entry point");
        // Where blocks take turns, a chip of one multiprocessor.
        let most = launch.resident.map_or(u32::MAX, |n| n.max(2));
        let blocks = u64::from(launch.grid[0].min(most));
        let threads = u64::from(launch.block[0]);
        for number in 0..blocks {
            let block = if self.backwards { blocks - 1 - number } else { number };
            let mut shared = Piece::new(vec![POISON; launch.shared as usize]);
            let begun = |thread: u64| Thread {
                at: 0,
                registers: entry.registers.clone(),
                state: State::Runs,
                who: Who { block, thread, barriers: 0, together: 0 },
            };
            let mut all: Vec<Thread> = (0..threads).map(begun).collect();
            while all.iter().any(|t| t.state != State::Done) {
                for k in 0..all.len() {
                    let k = if self.backwards { all.len() - 1 - k } else { k };
                    while all[k].state == State::Runs {
                        self.step(&entry, &mut all[k], (pointers, blocks), &mut shared);
                    }
                }
                if !all
                    .chunks_mut(LANES)
                    .map(|warp| together(&entry, warp, &mut shared))
                    .fold(false, |a, b| a | b)
                {
                    barrier(&mut all, &launch.entry);
                }
            }
        }
        self.entries.insert(name, entry);
    }

    fn step(
        &mut self,
        entry: &Entry,
        t: &mut Thread,
        (pointers, blocks): (&[u64], u64),
        shared: &mut Piece,
    ) {
        let inst = &entry.insts[t.at];
        if inst.when.is_some_and(|(p, is)| (t.registers[p] != 0) != is) {
            t.at += 1;
            return;
        }
        let from = |k: usize| inst.from.get(k).map_or(0, |&r| t.registers[r]);
        match &inst.does {
            Does::Compute(f) => t.registers[inst.to[0]] = f([from(0), from(1), from(2)]),
            Does::Halves(bits) => {
                let x = from(0);
                t.registers[inst.to[0]] = x & ((1 << bits) - 1);
                t.registers[inst.to[1]] = x >> bits & ((1 << bits) - 1);
            }
            Does::Whole(bits) => {
                t.registers[inst.to[0]] = from(0) & ((1 << bits) - 1) | from(1) << bits;
            }
            Does::Parameter(k) => t.registers[inst.to[0]] = pointers[*k],
            Does::Special(special) => {
                let lane = t.who.thread % LANES as u64;
                t.registers[inst.to[0]] = match special {
                    Special::Block => t.who.block,
                    Special::Blocks => blocks,
                    Special::Thread => t.who.thread,
                    Special::Lane => lane,
                    Special::LanesBelow => (1 << lane) - 1,
                };
            }
            Does::Load { space, bytes, signed, offset } => {
                let at = from(0).wrapping_add(*offset as u64);
                let size = *bytes as usize;
                aligned(inst, at, size * inst.to.len());
                for (k, &to) in inst.to.iter().enumerate() {
                    let at = at + (k * size) as u64;
                    let x = self
                        .load(*space, at, size, t.who, shared)
                        .unwrap_or_else(|| stop(inst, at, t));
                    // Narrow ones are extended in registers of 32 bits.
                    t.registers[to] = match (signed, size) {
                        (true, 1) => u64::from(x as u8 as i8 as i32 as u32),
                        _ => x,
                    };
                }
            }
            Does::Store { space, bytes, offset } => {
                let at = from(0).wrapping_add(*offset as u64);
                let size = *bytes as usize;
                aligned(inst, at, size * (inst.from.len() - 1));
                for (k, &r) in inst.from[1..].iter().enumerate() {
                    let (at, x) = (at + (k * size) as u64, t.registers[r]);
                    let piece = match space {
                        Space::Shared => Some(&mut *shared),
                        _ => (at >> PLACE)
                            .checked_sub(1)
                            .and_then(|n| self.pieces.get_mut(n as usize)),
                    };
                    let place = (at & ((1 << PLACE) - 1)) as usize;
                    let done = piece.and_then(|p| p.store(place, size, x, t.who));
                    done.unwrap_or_else(|| stop(inst, at, t));
                }
            }
            Does::Nothing => {}
            Does::Copy { bytes, to, from: offset } => {
                let (to, at) =
                    (from(0).wrapping_add(*to as u64), from(1).wrapping_add(*offset as u64));
                let bytes = u64::from(*bytes);
                aligned(inst, to, bytes as usize);
                aligned(inst, at, bytes as usize);
                let there = if inst.from.len() > 2 { from(2).min(bytes) } else { bytes };
                for k in 0..bytes {
                    let found = match k < there {
                        true => self.load(Space::Global, at + k, 1, t.who, shared),
                        false => Some(0),
                    };
                    let found = found.unwrap_or_else(|| stop(inst, at, t));
                    let done = shared.store((to + k) as usize, 1, found, t.who);
                    done.unwrap_or_else(|| stop(inst, to, t));
                }
            }
            Does::Jump(to) => {
                t.at = *to;
                return;
            }
            Does::Return => {
                t.state = State::Done;
                return;
            }
            Does::Barrier => {
                t.state = State::Block;
                return;
            }
            Does::Together
            | Does::Vote
            | Does::Shuffle(_)
            | Does::Multiply(_)
            | Does::Matrices { .. } => {
                t.state = State::Lanes;
                return;
            }
        }
        t.at += 1;
    }

    fn load(
        &mut self,
        space: Space,
        at: u64,
        size: usize,
        who: Who,
        shared: &mut Piece,
    ) -> Option<u64> {
        let place = (at & ((1 << PLACE) - 1)) as usize;
        match space {
            Space::Constant => Table::TwoOverPi.entries().get(at as usize / 8).copied(),
            Space::Shared => shared.load(place, size, who),
            Space::Global => {
                self.pieces.get_mut((at >> PLACE).checked_sub(1)? as usize)?.load(place, size, who)
            }
        }
    }
}

pub(crate) fn aligned(inst: &Inst, at: u64, bytes: usize) {
    assert!(at.is_multiple_of(bytes as u64), "not aligned: {}", inst.text);
}

pub(crate) fn stop<T>(inst: &Inst, at: u64, t: &Thread) -> T {
    panic!(
        "`{}`, number {}, of thread {} of block {} is outside, or where another thread wrote: {at:x}",
        inst.text, t.at, t.who.thread, t.who.block
    )
}
