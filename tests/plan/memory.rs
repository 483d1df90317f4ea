//! Memory of planned programs: runs take what was planned, no two live buffers share bytes, and what is written in
//! place has been read before. `ADFUSE_PROGRAMS` sets how many random programs (200 by default).

use crate::common::programs::{Step, decode};
use crate::common::{count_from_env, models};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::kernel::{NoFunctions, run_measured};
use adfuse::fusion::{
    ALIGN, Effort, Fp, InPlace, LoweredFunction, MachineModel, Memory, PlanOptions, block_memory,
    compile, memory, saved_bytes,
};
use adfuse::ir::index::IndexExpr;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{
    Buffer, Operand, Param, Program, Role, Sink, Space, Stage, Step as KernelStep, is_donor, verify,
};
use adfuse::ir::op::Domain;
use adfuse::ir::{DType, Diagnostic, Function, Kind, Module};
use adfuse::sample::{rng, sample};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;

const EFFORTS: [Effort; 3] = [Effort::Off, Effort::Quick, Effort::Default];

fn plans(module: &Module, f: &Function) -> Vec<(Effort, LoweredFunction)> {
    let mut found = Vec::new();
    for effort in EFFORTS {
        for device in [MachineModel::cpu(), MachineModel::h200()] {
            let options = PlanOptions { device, effort, fp: Fp::Strict };
            found.push((effort, compile(module, f, &options).expect("has a lowering")));
        }
    }
    found
}

fn gradients(module: &Module, f: &Function) -> Function {
    let wrt = differentiable(f, None).expect("has floats");
    forward_and_backward(module, f, &wrt).unwrap_or_else(|d| panic!("{d}\n{f}"))
}

fn inputs(f: &Function) -> Vec<Array> {
    let mut rng = rng(5, 0);
    let draw = |t| sample(t, Domain::Normal, &mut rng).expect("small");
    f.param_types().iter().map(draw).collect()
}

/// Everything that must hold of a program's memory.
fn sound(program: &Program, memory: &Memory) -> Result<(), String> {
    apart(program, memory)?;
    for &pair in &memory.in_place {
        read_first(program, pair)?;
    }
    Ok(())
}

/// Bytes that are in use for some time.
struct Block {
    name: String,
    buffer: Option<Buffer>,
    /// The caller's array that it is in, by the buffer that has it; `None` in the arena.
    array: Option<Buffer>,
    /// Bytes of that array, or of the arena.
    room: u64,
    /// The first and the last step.
    life: (usize, usize),
    /// The first byte and the end.
    bytes: (u64, u64),
}

impl Block {
    fn meets(&self, other: &Block) -> bool {
        let (x, y) = (self, other);
        let at_once = x.life.0 <= y.life.1 && y.life.0 <= x.life.1;
        x.array == y.array && at_once && x.bytes.0 < y.bytes.1 && y.bytes.0 < x.bytes.1
    }
}

/// Whether a result is in the memory of an input.
fn in_input(program: &Program, memory: &Memory, b: Buffer) -> bool {
    memory.in_donor[b].is_some_and(|slice| program.buffers[slice.donor].role == Role::Input)
}

/// Offsets are aligned and inside of the arena or of an array that may be written to; what is there at the same step
/// does not overlap, but for the pairs in place, where the one starts where the other does.
pub(super) fn apart(program: &Program, memory: &Memory) -> Result<(), String> {
    // What callers hand over is there before the first step, which is step 1 here.
    let mut lives: BTreeMap<Buffer, (usize, usize)> = BTreeMap::new();
    for (n, step) in program.steps.iter().enumerate() {
        for b in step.writes().chain(step.reads()) {
            lives.entry(b).or_insert((n + 1, n + 1)).1 = n + 1;
        }
    }
    let end = program.steps.len() + 1;
    let mut blocks: Vec<Block> = Vec::new();
    let (mut inputs, mut outputs, mut constants) = (0, 0, 0);
    for (b, data) in program.buffers.iter() {
        let size = if data.space == Space::Device { data.bytes() } else { 0 };
        match data.role {
            Role::Input => inputs += size,
            Role::Output => {}
            Role::Constant(_) => constants += size,
            Role::Temp if memory.in_donor[b].is_none() && memory.offsets[b].is_none() => {
                return Err(format!("%{} is nowhere", data.name));
            }
            Role::Temp => {}
        }
        if data.role != Role::Temp && memory.offsets[b].is_some() {
            return Err(format!("%{} is no temporary", data.name));
        }
        let (from, last) = lives.get(&b).copied().unwrap_or((end, end));
        let (from, last) = match data.role {
            Role::Input | Role::Constant(_) => (0, if data.donated { last } else { end }),
            Role::Output => (from, end),
            Role::Temp => (from, last),
        };
        let (array, at) = match (memory.in_donor[b], memory.offsets[b]) {
            (Some(slice), None) => (Some(slice.donor), slice.at),
            (None, Some(at)) => (None, at),
            (None, None) => (Some(b), 0),
            (Some(_), Some(_)) => return Err(format!("%{} is twice", data.name)),
        };
        let room = array.map_or(memory.arena, |array| program.buffers[array].bytes());
        if array.is_some_and(|a| a != b && !is_donor(program, a)) {
            return Err(format!("%{} is in what is lent", data.name));
        }
        let name = data.name.clone();
        blocks.push(Block {
            name,
            buffer: Some(b),
            array,
            room,
            life: (from, last),
            bytes: (at, at + size),
        });
    }
    for &b in program.outputs.iter().filter(|&&b| !in_input(program, memory, b)) {
        let data = &program.buffers[b];
        outputs += if data.space == Space::Device { data.bytes() } else { 0 };
    }
    for (n, step) in program.steps.iter().enumerate() {
        let Some((at, bytes)) = memory.scratch[n] else { continue };
        if bytes != program.scratch(step) {
            return Err(format!("step {n} has {bytes} bytes of scratch"));
        }
        let name = format!("scratch of step {n}");
        let (life, room) = ((n + 1, n + 1), memory.arena);
        blocks.push(Block { name, buffer: None, array: None, room, life, bytes: (at, at + bytes) });
    }
    for (k, x) in blocks.iter().enumerate() {
        let (at, end) = x.bytes;
        if at % ALIGN != 0 || at < end && end > x.room {
            return Err(format!("{} at {at} to {end}", x.name));
        }
        for y in &blocks[..k] {
            let pair = memory.in_place.iter().any(|p| {
                let of = [Some(p.child), Some(p.parent)];
                of == [x.buffer, y.buffer] || of == [y.buffer, x.buffer]
            });
            if x.meets(y) && !(pair && at == y.bytes.0) {
                return Err(format!("{} and {} overlap", x.name, y.name));
            }
        }
    }
    let totals = (memory.inputs, memory.outputs, memory.constants, memory.peak);
    let wanted = (inputs, outputs, constants, inputs + outputs + constants + memory.arena);
    if totals != wanted { Err(format!("{totals:?} is not {wanted:?}")) } else { Ok(()) }
}

/// All coordinates below these extents, in row-major order.
fn coordinates(extents: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for &n in extents {
        let longer = |at: Vec<i64>| (0..n).map(move |k| [&at[..], &[k]].concat());
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

/// What is done at an element: the point of the domain, the stage, and all coordinates.
type Moment = (Vec<i64>, usize, Vec<i64>);

/// Goes through every coordinate of the step: each element of the parent must be read at the point at
/// which that of the child is stored, and there in an earlier stage or at the same coordinates.
fn read_first(program: &Program, pair: InPlace) -> Result<(), String> {
    let step = &program.steps[pair.step];
    let name = |b: Buffer| &program.buffers[b].name;
    let place = format!("%{} in place of %{}", name(pair.child), name(pair.parent));
    let mut stages: Vec<(&[i64], &Stage)> = Vec::new();
    let results: Vec<_>;
    match step {
        KernelStep::Kernel(k) => stages.extend(k.stages.iter().map(|s| (&k.domain[..], s))),
        KernelStep::Bundle(b) => {
            let (writes, others): (Vec<_>, Vec<_>) =
                b.kernels.iter().partition(|k| k.writes().any(|b| b == pair.child));
            if others.iter().any(|k| k.reads().any(|b| b == pair.parent)) {
                return Err(format!("{place}: another kernel reads it"));
            }
            for k in writes {
                stages.extend(k.stages.iter().map(|s| (&k.domain[..], s)));
            }
        }
        KernelStep::Contract(c) => {
            results = c.members.iter().map(|m| m.result()).collect();
            stages.extend(c.members.iter().zip(&results).map(|(m, r)| (&r[..], &m.then)));
            let feeds = c.members.iter().flat_map(|m| m.feeds());
            let loads = feeds.flat_map(|(_, feed, _)| &feed.params);
            if loads.into_iter().any(|p| loads_from(p, pair.parent)) {
                return Err(format!("{place}: an operand reads it"));
            }
        }
        _ => return Err(format!("{place}, in {}", step.title())),
    }
    let one_stage_only = matches!(step, KernelStep::Contract(_));
    let mut stored: BTreeMap<Vec<i64>, Moment> = BTreeMap::new();
    let mut loaded: Vec<(Vec<i64>, Moment)> = Vec::new();
    for (s, (domain, stage)) in stages.into_iter().enumerate() {
        let extents = [domain, &stage.axes[..]].concat();
        for at in coordinates(&extents) {
            let eval = |index: &[IndexExpr]| index.iter().map(|e| e.eval(&at, &[])).collect();
            let moment = (at[..domain.len()].to_vec(), s, at.clone());
            for sink in &stage.sinks {
                if let Sink::Store { buffer, index } = sink
                    && *buffer == pair.child
                {
                    stored.insert(eval(index), moment.clone());
                }
            }
            for param in &stage.params {
                let Param::Load(pieces) = param else { continue };
                if !loads_from(param, pair.parent) {
                    continue;
                }
                let data = |e: &IndexExpr| e.to_string().contains("clamp");
                if pieces.iter().any(|p| p.index.iter().any(data)) {
                    return Err(format!("{place}: read where data says"));
                }
                let holds = |e: &IndexExpr, r: &std::ops::Range<i64>| r.contains(&e.eval(&at, &[]));
                let piece = pieces
                    .iter()
                    .find(|p| p.guards.iter().all(|g| holds(&g.expr, &g.range)))
                    .ok_or("no piece applies")?;
                if piece.from == Operand::Buffer(pair.parent) {
                    loaded.push((eval(&piece.index), moment.clone()));
                }
            }
        }
    }
    for (element, (point, stage, at)) in loaded {
        let Some((p, s, a)) = stored.get(&element) else {
            return Err(format!("{place}: element {element:?} is not stored"));
        };
        let before = stage < *s && point == *p && !one_stage_only;
        if !before && (stage, &at) != (*s, a) {
            return Err(format!("{place}: {element:?} is read at {at:?}, stored at {a:?}"));
        }
    }
    Ok(())
}

fn loads_from(param: &Param, b: Buffer) -> bool {
    let from = |p: &adfuse::ir::kernel::Piece| p.from == Operand::Buffer(b);
    matches!(param, Param::Load(pieces) if pieces.iter().any(from))
}

/// Bytes of what is written in place of something else, at the step where that is most: there the
/// evaluator, where nothing is in place, has both.
fn most_shared(program: &Program, memory: &Memory) -> u64 {
    let mut shared = vec![0; program.steps.len()];
    for pair in &memory.in_place {
        shared[pair.step] += program.buffers[pair.child].bytes();
    }
    shared.into_iter().max().unwrap_or(0)
}

/// Checks the memory of every plan against a run of it; gives the arenas and the pairs in place by
/// effort.
fn holds(module: &Module, f: &Function) -> Result<[(u64, usize); 3], String> {
    let args = inputs(f);
    let mut found = [(0, 0); 3];
    for (effort, compiled) in plans(module, f) {
        let text = compiled.program.to_string();
        let place = |why: String| format!("{effort:?}: {why}\n{text}");
        let memory = memory(&compiled.program, effort).map_err(|d| d.to_string())?;
        sound(&compiled.program, &memory).map_err(place)?;
        let temps = compiled.program.buffers.values().filter(|b| b.role == Role::Temp);
        let temps: u64 = temps.map(|b| b.bytes()).sum();
        let saved = saved_bytes(&compiled.function, &compiled.plan).map_err(|d| d.to_string())?;
        if saved > temps {
            return Err(place(format!("saves {saved} of {temps} bytes")));
        }
        let shared = most_shared(&compiled.program, &memory);
        let program = verify(compiled.program).map_err(|e| place(e[0].to_string()))?;
        let (_, peak) =
            run_measured(&program, &args, &mut NoFunctions).map_err(|d| d.to_string())?;
        if peak > memory.peak + shared {
            return Err(place(format!("takes {peak} bytes, not {} + {shared}", memory.peak)));
        }
        let k = EFFORTS.iter().position(|&e| e == effort).expect("one of them");
        found[k].0 += memory.arena;
        found[k].1 += memory.in_place.len();
    }
    Ok(found)
}

#[test]
fn gradients_of_random_programs_take_what_is_planned() {
    let cases = count_from_env("ADFUSE_PROGRAMS", 200);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    // One seed, so that a failure in one place is a failure everywhere.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[17; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let steps = prop::collection::vec(any::<Step>(), 1..24);
    let outcome = runner.run(&steps, |steps| {
        let f = decode(&steps, DType::F32);
        let g = gradients(&Module::single(f.clone()), &f);
        let held = holds(&Module::single(g.clone()), &g);
        held.map(|_| ()).map_err(|why| TestCaseError::fail(format!("{why}\n{g}")))
    });
    if let Err(e) = outcome {
        panic!("{e}");
    }
}

// What `docs/performance/planning.md` cites.
#[allow(clippy::print_stdout)]
#[test]
fn gradients_of_models_take_what_is_planned_and_effort_saves_memory() {
    let files = models::all();
    assert!(files.len() >= 20, "{} models", files.len());
    let mut sums = [(0, 0); 3];
    for (stem, module, f) in files {
        let g = gradients(&module, &f);
        let found =
            holds(&Module::single(g.clone()), &g).unwrap_or_else(|why| panic!("{stem}: {why}"));
        println!("{stem:28} {found:?}");
        for (sum, found) in sums.iter_mut().zip(found) {
            (sum.0, sum.1) = (sum.0 + found.0, sum.1 + found.1);
        }
    }
    println!("{:28} {sums:?}", "");
    let [(off, none), (quick, _), (default, pairs)] = sums;
    assert!(default <= quick && quick <= off, "{default} {quick} {off}");
    assert!(none == 0 && pairs > 0, "{pairs} in place, {none} where none may be");
}

/// The memory of a program whose temporaries are all in the arena.
fn beside_results(program: &Program, effort: Effort) -> Result<Memory, Diagnostic> {
    block_memory(program, effort, &[], &[])
}

/// A program whose temporary `%p` is made by a first step, and `%c` by a second one, which is given.
fn second_step(step: &str, p: &str, c: &str) -> Program {
    let read_as = &c[..3];
    let text = format!(
        "program @f {{
           input %x: f32[4, 4]
           temp %p: {p}
           temp %c: {c}
           output %y: f32[4, 4]
           output %z: f32[4, 4]
           kernel @make [4, 4] {{
             stage [] {{ p0 = load %x[d0, d1] s0 = param.f32 0 %p[d0, d1] = store s0 }}
           }}
           {step}
           kernel @last [4, 4] {{
             stage [] {{ p0 = load %c[d0, d1] s0 = param.{read_as} 0 s1 = convert.f64 s0
               s2 = convert.f32 s1 %y[d0, d1] = store s2 }}
           }}
           return %y, %z
         }}"
    );
    let program = read(&text).unwrap_or_else(|d| panic!("{d}: {:?}\n{text}", d.at.span));
    let checked = verify(program.clone());
    assert!(checked.is_ok(), "{:?}\n{text}", checked.err());
    program
}

/// The second step, which writes `%c` and `%z` and may read `%p`.
fn kernel(domain: &str, stages: &str) -> String {
    format!("kernel @use {domain} {{ {stages} }}")
}

fn contract(lhs: &str, then: &str) -> String {
    format!(
        "contract @use {{
           member batch [] rows [4] cols [4] depth [4] sum f32 {{
             lhs {{ p0 = load %{lhs}[d0, d1] s0 = param.f32 0 out s0 }}
             rhs {{ p0 = load %x[d1, d0] s0 = param.f32 0 out s0 }}
             then {{ p0 = sum p1 = load {then} s0 = param.f32 0 s1 = param.f32 1
               s2 = add.f32 s0 s1 %c[d0, d1] = store s2 %z[d0, d1] = store s0 }}
           }}
         }}"
    )
}

#[test]
fn only_what_is_read_before_it_is_overwritten_is_written_in_place() {
    let f32s = "f32[4, 4]";
    // Two contractions that share an operand, each followed by a read of `%p`.
    let member = |to: &str, load: &str| {
        let one = contract("x", load).replace("%z[d0, d1] = store s0", "");
        let (_, member) = one.split_once('{').expect("a body");
        member.trim_end().trim_end_matches('}').replace("%c[d0", &format!("%{to}[d0"))
    };
    let two = |a: (&str, &str), b: (&str, &str)| {
        format!("contract @use {{ {} {} }}", member(a.0, a.1), member(b.0, b.1))
    };
    let load = |p: &str| {
        kernel(
            "[4, 4]",
            &format!(
                "stage [] {{ p0 = load {p} s0 = param.f32 0
                   %c[d0, d1] = store s0 %z[d0, d1] = store s0 }}"
            ),
        )
    };
    let reduce = "stage [4] { p0 = load %p[d0, d1] s0 = param.f32 0 r0 = reduce.max s0 lane(d1) }";
    let store = |load: &str, to: &str| {
        format!("stage [4] {{ p0 = load {load} s0 = param.f32 0 %{to}[d0, d1] = store s0 }}")
    };
    let rows = |stages: &[&str]| kernel("[4]", &format!("row r0: f32 {}", stages.concat()));
    let allowed = [
        load("%p[d0, d1]"),
        rows(&[reduce, &store("%p[d0, d1]", "c"), &store("%x[d0, d1]", "z")]),
        rows(&[reduce, &store("%p[d0, d1]", "z"), &store("%p[d0, d1]", "c")]),
        contract("x", "%p[d0, d1]"),
        two(("c", "%p[d0, d1]"), ("z", "%x[d0, d1]")),
    ];
    for step in &allowed {
        let program = second_step(step, f32s, f32s);
        for effort in [Effort::Quick, Effort::Default] {
            let found = beside_results(&program, effort).expect("small");
            sound(&program, &found).unwrap_or_else(|why| panic!("{why}\n{step}"));
            assert_eq!((found.in_place.len(), found.arena), (1, 64), "{effort:?}\n{step}");
        }
        let found = beside_results(&program, Effort::Off).expect("small");
        assert_eq!((found.in_place.len(), found.arena), (0, 128), "{step}");
    }
    let refused = [
        load("%p[d1, d0]"),
        load("%p[d0 * -1 + 3, d1]"),
        load("%p[d0 - 1, d1] when d0 - 1 in [0, 4) else f32(0.0)"),
        load("%p[0, d1]"),
        rows(&[reduce, &store("%x[d0, d1]", "c"), &store("%p[d0, d1]", "z")]),
        rows(&[reduce, &store("%p[d1, d0]", "z"), &store("%p[d0, d1]", "c")]),
        contract("p", "%x[d0, d1]"),
        contract("p", "%p[d0, d1]"),
        contract("x", "%p[d1, d0]"),
        two(("c", "%x[d0, d1]"), ("z", "%p[d0, d1]")),
        two(("z", "%p[d0, d1]"), ("c", "%x[d0, d1]")),
        two(("c", "%p[d0, d1]"), ("z", "%p[d0, d1]")),
    ];
    for step in &refused {
        let program = second_step(step, f32s, f32s);
        let found = beside_results(&program, Effort::Default).expect("small");
        assert!(found.in_place.is_empty(), "{step}");
        sound(&program, &found).unwrap_or_else(|why| panic!("{why}\n{step}"));
        // Were it in place all the same, going through the coordinates would show it.
        let named = |name: &str| program.buffers.iter().find(|(_, b)| b.name == name).unwrap().0;
        let wrong = InPlace { step: 1, child: named("c"), parent: named("p") };
        assert!(read_first(&program, wrong).is_err(), "{step}");
        let mut shared = found.clone();
        shared.offsets[wrong.child] = shared.offsets[wrong.parent];
        assert!(apart(&program, &shared).is_err(), "{step}");
    }
    // A parent that is read again, and elements of another size.
    let program = second_step(&load("%p[d0, d1]"), f32s, f32s);
    let text = program.to_string();
    let again = text.replacen("load %c", "load %p", 1);
    let narrow = second_step(
        &kernel(
            "[4, 4]",
            "stage [] { p0 = load %p[d0, d1] s0 = param.f32 0 s1 = convert.f16 s0
               %c[d0, d1] = store s1 %z[d0, d1] = store s0 }",
        ),
        f32s,
        "f16[4, 4]",
    );
    let narrow = narrow.to_string();
    for changed in [again, narrow] {
        assert_ne!(changed, text);
        let program = read(&changed).unwrap_or_else(|d| panic!("{d}\n{changed}"));
        let found = beside_results(&program, Effort::Default).expect("small");
        assert!(found.in_place.is_empty(), "{changed}");
    }
}

#[test]
fn sizes_beyond_all_memory_are_refused() {
    let huge = "f32[1048576, 1048576, 65536]";
    let text = |role: &str, count: usize| {
        let buffers: String = (0..count).map(|k| format!("{role} %b{k}: {huge}\n")).collect();
        format!("program @f {{ input %x: f32[2] {buffers} return %x }}")
    };
    for (role, count) in [("input", 15), ("input", 16), ("input", 300), ("output", 16)] {
        let program = read(&text(role, count)).expect("reads");
        match memory(&program, Effort::Default) {
            Ok(found) => assert_eq!((found.inputs, count), ((15 << 58) + 8, 15)),
            Err(d) => assert!(count > 15 && d.kind == Kind::Limit, "{d}"),
        }
    }
    // Extents whose product is more than 64 bits, which the verifier would refuse.
    let huge = text("temp", 1).replace("65536]", "16777216, 16777216]").replace(
        "return %x",
        "kernel @f [] { stage [] { s0 = const.f32 1.0 %b0[0, 0, 0, 0] = store s0 } } return %x",
    );
    let d = memory(&read(&huge).expect("reads"), Effort::Default).expect_err("2^92 bytes");
    assert_eq!(d.kind, Kind::Limit);
}
