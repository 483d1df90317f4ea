//! Temporaries in arrays of the caller: no arena grows by them, no bit changes, in memory of the caller's at any address
//! too, and no layout is taken in which two values share bytes. `ADFUSE_PROGRAMS` sets how many random programs (60 by
//! default).

use super::gradients::prepared_gradient;
use super::memory::apart;
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{models, parallel};
use adfuse::backends::reference::{Silent, run};
use adfuse::backends::{ArenaLayout, check_layout};
use adfuse::engine::{Cpu, arena_layout};
use adfuse::fusion::{Memory, block_memory, memory_beside};
use adfuse::ir::kernel::{Buffer, DonorSlice, Program, Role, Verified, is_donor, lives};
use adfuse::ir::op::Domain;
use adfuse::ir::{DType, Function, Module};

/// A memory plan with a temporary somewhere else.
fn moved(memory: &Memory, b: Buffer, place: Option<DonorSlice>) -> Memory {
    let mut moved = memory.clone();
    moved.in_donor[b] = place;
    moved.offsets[b] = if place.is_some() { None } else { Some(0) };
    moved
}

/// Moves each temporary into every array that has room for it, and holds what the check says of the layout to what
/// going through all pairs of values says.
fn checked(program: &Verified<Program>, memory: &Memory) -> Result<(), String> {
    let temps = program.buffers.iter().filter(|(_, data)| data.role == Role::Temp);
    let temps: Vec<Buffer> = temps.map(|(b, _)| b).take(12).collect();
    let donors: Vec<Buffer> = program.buffers.keys().filter(|&b| is_donor(program, b)).collect();
    for &b in &temps {
        let starts = donors.iter().map(|&donor| Some(DonorSlice::start(donor)));
        let in_arena = (program.buffers[b].bytes() <= memory.arena).then_some(None);
        for place in starts.chain(in_arena) {
            let moved = moved(memory, b, place);
            let fits = apart(program, &moved).is_ok();
            let taken = check_layout(program, &arena_layout(&moved), &[]);
            // The pairs that may be in place are those of the given plan there, and all that there are here.
            if fits && taken.is_err() {
                return Err(format!("{} is refused: {taken:?}", program.buffers[b].name));
            }
            if !fits && taken.is_ok() && !in_place_of_another(program, &moved, b) {
                return Err(format!(
                    "{} is taken: {:?}",
                    program.buffers[b].name,
                    apart(program, &moved)
                ));
            }
        }
    }
    Ok(())
}

/// Whether a buffer begins where another does that is made as it dies, or dies as it is made.
fn in_place_of_another(program: &Program, memory: &Memory, b: Buffer) -> bool {
    let place = |b: Buffer| match (memory.in_donor[b], memory.offsets[b]) {
        (None, None) => Some((Some(b), 0)),
        (Some(slice), _) => Some((Some(slice.donor), slice.at)),
        (None, Some(at)) => Some((None, at)),
    };
    let lives = lives(program);
    program.buffers.keys().filter(|&other| other != b).any(|other| {
        let (Some(x), Some(y)) = (lives[b], lives[other]) else { return false };
        place(b) == place(other) && (x.1 == y.0 || y.1 == x.0)
    })
}

/// Runs a function as it is planned, in memory of its own and of the caller's; by how many bytes donors lower its arena.
fn holds(f: &Function) -> Result<u64, String> {
    let args = inputs(f, &[Domain::Normal]);
    let due = run(&Module::single(f.clone()), f, &args, &mut Silent).map_err(|d| d.to_string())?;
    let cpu = Cpu { threads: 2, ..Cpu::default() };
    let made = cpu.compile(&Module::single(f.clone()), f).map_err(|d| d.to_string())?;
    let (program, planned) = (&made.program, &made.memory);
    let why = |m: String| format!("{m}\n{}\n{}", arena_layout(planned).text(program), **program);
    let effort = cpu.plan.effort;
    let scratch: Vec<u64> = program.steps.iter().map(|step| program.scratch(step)).collect();
    let alone = block_memory(program, effort, &scratch, &[]);
    let with = memory_beside(program, effort, &scratch);
    let (alone, with) =
        (alone.map_err(|d| why(d.to_string()))?, with.map_err(|d| why(d.to_string()))?);
    if with.arena > alone.arena || with.peak > alone.peak {
        return Err(why(format!("{} bytes with donors, {} without", with.arena, alone.arena)));
    }
    let text = arena_layout(planned).text(program);
    let read = ArenaLayout::parse(&text, program).map_err(|d| why(d.to_string()))?;
    if read.text(program) != text {
        return Err(why("the layout does not read back".into()));
    }
    checked(program, &with).map_err(why)?;
    let bytes: Vec<&[u8]> = args.iter().map(|a| a.bytes()).collect();
    for shift in [0, 1, 8] {
        let mut rooms: Vec<Vec<u8>> =
            due.iter().map(|a| vec![0xA5; a.bytes().len() + 16]).collect();
        let mut slices: Vec<&mut [u8]> = Vec::new();
        for (room, a) in rooms.iter_mut().zip(&due) {
            let at = room.as_ptr().align_offset(8).min(7) + shift;
            slices.push(&mut room[at..at + a.bytes().len()]);
        }
        made.executable.run_into(&bytes, &mut slices).map_err(|d| why(d.to_string()))?;
        if slices.iter().zip(&due).any(|(found, due)| **found != *due.bytes()) {
            return Err(why(format!("other bits in memory shifted by {shift}")));
        }
    }
    for _ in 0..2 {
        if made.executable.run(&args).map_err(|d| why(d.to_string()))? != due {
            return Err(why("other bits".into()));
        }
    }
    Ok(alone.arena - with.arena)
}

#[test]
fn random_programs() {
    for dtype in [DType::F32, DType::BF16] {
        random::programs(47, 60, |steps| {
            let f = decode(steps, dtype);
            holds(&prepared_gradient(&Module::single(f.clone()), &f)?).map(|_| ())
        });
    }
}

#[test]
fn the_arenas_of_models_fall() {
    let fell = parallel::each(&models::all(), |(stem, module, f)| {
        let g = prepared_gradient(module, f).unwrap_or_else(|why| panic!("{stem}: {why}"));
        holds(&g).unwrap_or_else(|why| panic!("{stem}: {why}"))
    });
    let fell = fell.into_iter().filter(|&bytes| bytes > 0).count();
    assert!(fell > 10, "the arenas of {fell} models fall");
}
