//! Programs written as text, whose costs are counted by hand.

use adfuse_fusion::{Bottleneck, Cost, MachineModel, Ops, StepCost, cost, step_cost};
use adfuse_ir::kernel::text::parse;
use adfuse_ir::kernel::{Program, Role, Step, verify};

/// A verified program of these declarations and steps.
fn program(text: &str) -> Program {
    let text = format!("program @f {{ {text} return }}");
    let program = parse(&text).unwrap_or_else(|d| {
        let at = d.at.span.map_or(0, |s| s.start as usize);
        panic!("{d}: {}", &text[at..])
    });
    // Results that nobody returns are wrong, and do not matter here.
    let mut returned = program.clone();
    let outputs = program.buffers.iter().filter(|(_, data)| data.role == Role::Output);
    returned.outputs = outputs.map(|(b, _)| b).collect();
    match verify(returned) {
        Ok(_) => program,
        Err(errors) => panic!("{}\n{text}", errors[0]),
    }
}

fn on_cpu(text: &str) -> Cost {
    let program = program(text);
    let found = cost(&program, &MachineModel::cpu());
    for (step, cost) in program.steps.iter().zip(&found.steps) {
        assert_eq!(step_cost(&program, step, &MachineModel::cpu()), *cost);
    }
    found
}

fn step(text: &str) -> StepCost {
    let mut cost = on_cpu(text);
    assert_eq!(cost.steps.len(), 1);
    cost.steps.remove(0)
}

/// A kernel over a domain with one stage without axes.
fn map(domain: &str, lines: &str) -> String {
    format!("kernel @k {domain} {{ stage [] {{ {lines} }} }}")
}

fn simple(simple: u64) -> Ops {
    Ops { simple, ..Ops::default() }
}

/// Elements: 4 MiB of `f32`, more than stays close to a core.
const N: u64 = 1 << 20;

/// Primitives of a function in `f32`.
fn long(function: &str) -> u64 {
    let text = format!(
        "input %x: f32[1] output %y: f32[1] {}",
        map(
            "[1]",
            &format!("p0 = load %x[d0] s0 = param.f32 0 s1 = {function}.f32 s0 %y[d0] = store s1")
        )
    );
    step(&text).ops.special
}

#[test]
fn fusing_an_addition_into_gelu_saves_what_went_between() {
    let declared = format!("input %a: f32[{N}] input %b: f32[{N}] output %y: f32[{N}]");
    let domain = format!("[{N}]");
    let add = "p0 = load %a[d0] p1 = load %b[d0] s0 = param.f32 0 s1 = param.f32 1
               s2 = add.f32 s0 s1";
    let erf = "s3 = const.f32 0.70710677 s4 = mul.f32 s2 s3 s5 = erf.f32 s4";
    let gate = "s6 = const.f32 0.5 s7 = fma.f32 s5 s6 s6 s8 = mul.f32 s2 s7";
    let apart = format!(
        "{declared} temp %t: f32[{N}] temp %u: f32[{N}] {} {} {}",
        map(&domain, &format!("{add} %t[d0] = store s2")),
        map(
            &domain,
            "p0 = load %t[d0] s0 = param.f32 0 s1 = const.f32 0.70710677 s2 = mul.f32 s0 s1
             s3 = erf.f32 s2 %u[d0] = store s3"
        ),
        map(
            &domain,
            "p0 = load %t[d0] p1 = load %u[d0] s0 = param.f32 0 s1 = param.f32 1
             s2 = const.f32 0.5 s3 = fma.f32 s1 s2 s2 s4 = mul.f32 s0 s3 %y[d0] = store s4"
        ),
    );
    let fused =
        format!("{declared} {}", map(&domain, &format!("{add} {erf} {gate} %y[d0] = store s8")));
    let (apart, fused) = (on_cpu(&apart), on_cpu(&fused));
    assert_eq!((apart.bytes_moved, apart.launches), (8 * 4 * N, 3));
    assert_eq!((fused.bytes_moved, fused.launches), (3 * 4 * N, 1));
    assert_eq!((apart.least_bytes, fused.least_bytes), (3 * 4 * N, 3 * 4 * N));
    assert!(fused.seconds < apart.seconds);
    // An addition, two products, a fused multiply-add; and the error function written out.
    let ops = Ops { simple: 4 * N, special: long("erf") * N, ..Ops::default() };
    assert_eq!(fused.steps[0].ops, ops);
    assert_eq!(apart.steps.iter().map(|s| s.ops.simple).sum::<u64>(), ops.simple);
    assert_eq!(apart.steps.iter().map(|s| s.ops.special).sum::<u64>(), ops.special);
    assert!(fused.steps.iter().chain(&apart.steps).all(|s| s.recomputed == 0));
}

/// A softmax over rows of this width; `kept` is what the second stage does with the exponentials and `last` what
/// the third computes the quotient from.
fn softmax([rows, width]: [u64; 2], kept: &str, last: &str) -> String {
    format!(
        "input %x: f32[{rows}, {width}] output %y: f32[{rows}, {width}]
         kernel @softmax [{rows}] {{
           row r0: f32 row r1: f32 {kept}
           stage [{width}] {{
             p0 = load %x[d0, d1] s0 = param.f32 0 r0 = reduce.max s0 lane(d1)
           }}
           stage [{width}] {{
             p0 = load %x[d0, d1] p1 = r0
             s0 = param.f32 0 s1 = param.f32 1 s2 = sub.f32 s0 s1 s3 = exp.f32 s2
             {} r1 = reduce.sum s3 lane(d1)
           }}
           stage [{width}] {{ {last} }}
         }}",
        if kept.is_empty() { "" } else { "t1 = keep s3" }
    )
}

/// The last stage of a softmax that keeps nothing.
const LAST: &str = "p0 = load %x[d0, d1] p1 = r0 p2 = r1
    s0 = param.f32 0 s1 = param.f32 1 s2 = param.f32 2
    s3 = sub.f32 s0 s1 s4 = exp.f32 s3 s5 = div.f32 s4 s2 %y[d0, d1] = store s5";

/// What a row has read stays close until a later stage reads it again, if the row does: then tiles save operations, and otherwise passes
/// over memory.
#[test]
fn a_tile_saves_passes_over_long_rows() {
    let (short, long_rows) = ([1024, 1024], [4, 1 << 18]);
    let bytes = 4 * 1024 * 1024;
    let kept = "tile t0: f32[WIDTH] tile t1: f32[WIDTH]";
    let quotient = "p0 = t1 p1 = r1 s0 = param.f32 0 s1 = param.f32 1 s2 = div.f32 s0 s1
                    %y[d0, d1] = store s2";
    for (extents, passes) in [(short, [1, 1]), (long_rows, [3, 2])] {
        let three = step(&softmax(extents, "", LAST));
        assert_eq!((three.reads, three.writes), (passes[0] * bytes, bytes));
        let row = softmax(extents, &kept.replace("WIDTH", &extents[1].to_string()), quotient);
        // The exponentials are kept: two passes. The row itself is kept, too: one.
        let unused = format!("tile t0: f32[{}] ", extents[1]);
        let two = row.replacen(&unused, "", 1).replace("t1", "t0");
        assert_eq!(step(&two).reads, passes[1] * bytes);
        let first = "p0 = load %x[d0, d1] s0 = param.f32 0";
        let one = row
            .replacen(&format!("{first} r0"), &format!("{first} t0 = keep s0 r0"), 1)
            .replacen("p0 = load %x[d0, d1] p1 = r0", "p0 = t0 p1 = r0", 1);
        let one = step(&one);
        assert_eq!((one.reads, one.writes, one.launches), (bytes, bytes, 1));
        // Two folds, a difference and a quotient an element, and the exponential.
        let elements = extents[0] * extents[1];
        let ops = Ops { simple: 4 * elements, special: long("exp") * elements, ..Ops::default() };
        assert_eq!(one.ops, ops);
        assert_eq!(three.ops.special, 2 * ops.special);
        assert!(one.seconds < three.seconds);
    }
    // A buffer that stays close is read once however many passes there are: 2 rows are 512 KiB.
    assert_eq!(step(&softmax([2, 1 << 16], "", LAST)).reads, 2 << 18);
}

#[test]
fn a_fold_over_the_domain_has_a_second_pass() {
    let fold = |rows: u64| {
        step(&format!(
            "input %x: f32[{rows}, 512] output %y: f32[512] {}",
            map(
                &format!("[{rows}, 512]"),
                "p0 = load %x[d0, d1] s0 = param.f32 0 %y[d1] = fold.sum s0 chain(d0)"
            )
        ))
    };
    let long = fold(4096);
    assert_eq!((long.reads, long.writes, long.launches), (4 * 4096 * 512, 4 * 512, 2));
    assert_eq!(long.ops, simple(4096 * 512));
    // A single block has nothing to join.
    assert_eq!(fold(64).launches, 1);
}

#[test]
fn packed_masks_take_a_bit_an_element() {
    let mask = step(&format!(
        "input %x: f32[{N}] output %m: bool[{N}] as b1 {}",
        map(
            &format!("[{N}]"),
            "p0 = load %x[d0] s0 = param.f32 0 s1 = const.f32 0.0 s2 = gt.f32 s0 s1
             %m[d0] = store s2"
        )
        .replace("gt.f32", "gt.bool")
        .replacen("[1048576] {", "[1048576] { schedule vector d0", 1)
    ));
    assert_eq!((mask.reads, mask.writes), (4 * N, N / 8));
    let gate = step(&format!(
        "input %m: bool[{N}] as b1 input %x: f32[{N}] output %y: f32[{N}] {}",
        map(
            &format!("[{N}]"),
            "p0 = load %m[d0] p1 = load %x[d0] s0 = param.bool 0 s1 = param.f32 1
             s2 = const.f32 0.0 s3 = select.f32 s0 s1 s2 %y[d0] = store s3"
        )
    ));
    assert_eq!((gate.reads, gate.writes), (4 * N + N / 8, 4 * N));
    // A part of a mask takes its bits, too.
    let row = step(&format!(
        "input %m: bool[2, {N}] as b1 output %y: bool[{N}] {}",
        map(&format!("[{N}]"), "p0 = load %m[1, d0] s0 = param.bool 0 %y[d0] = store s0")
    ));
    assert_eq!((row.reads, row.writes), (N / 8, N));
}

#[test]
fn what_is_read_everywhere_counts_once() {
    let bias = step(
        "input %x: f32[2048, 512] input %b: f32[512] input %s: f32[] output %y: f32[2048, 512]
         kernel @bias [2048, 512] { stage [] {
           p0 = load %x[d0, d1] p1 = load %b[d1] p2 = load %s[] p3 = load %x[d0, d1]
           p4 = load f32(2.0)
           s0 = param.f32 0 s1 = param.f32 1 s2 = param.f32 2 s3 = param.f32 3 s4 = param.f32 4
           s5 = mul.f32 s1 s2 s6 = add.f32 s0 s5 s7 = add.f32 s6 s3 s8 = mul.f32 s7 s4
           %y[d0, d1] = store s8 } }",
    );
    // x is loaded twice in the same place; the literal is no memory.
    assert_eq!(bias.reads, 4 * (2048 * 512 + 512 + 1));
    // b * s depends on one coordinate alone, and is computed 2048 times.
    assert_eq!(bias.ops, simple(4 * 2048 * 512));
    assert_eq!(bias.recomputed, 2047 * 512);
}

#[test]
fn slices_of_a_buffer_are_no_more_than_the_buffer() {
    let sum = |places: &[&str]| {
        let (n, mut lines, mut sum) = (places.len(), String::new(), String::new());
        for (k, place) in places.iter().enumerate() {
            lines += &format!("p{k} = load %x{place} ");
            sum += &format!("s{k} = param.f32 {k} ");
        }
        sum += &format!("s{n} = neg.f32 s0 ");
        for k in 1..n {
            sum += &format!("s{} = add.f32 s{} s{k} ", n + k, n + k - 1);
        }
        let lines = format!("{lines} {sum} %y[d0] = store s{}", 2 * n - 1);
        let kernel = map(&format!("[{N}]"), &lines);
        step(&format!("input %x: f32[3, {N}] output %y: f32[{N}] {kernel}")).reads
    };
    assert_eq!(sum(&["[0, d0]", "[1, d0]", "[1, d0]"]), 2 * 4 * N);
    assert_eq!(sum(&["[0, d0]", "[1, d0]", "[2, d0]"]), 3 * 4 * N);
    // Four loads of a row's elements each, of three rows.
    let wide = format!("[d0 * 3 / {N}, d0]");
    assert_eq!(sum(&["[0, d0]", "[1, d0]", "[2, d0]", &wide]), 3 * 4 * N);
}

/// A contraction of `[m, k]` and `[k, n]` with these lines after it.
fn contract(dtype: &str, sum: &str, then: &str) -> String {
    format!(
        "input %a: {dtype}[256, 1024] input %b: {dtype}[1024, 512] input %c: {sum}[512]
         output %y: {sum}[256, 512]
         contract @dot {{
           member batch [] rows [256] cols [512] depth [1024] sum {sum} {{
             lhs {{ p0 = load %a[d0, d1] s0 = param.{dtype} 0 out s0 }}
             rhs {{ p0 = load %b[d1, d0] s0 = param.{dtype} 0 out s0 }}
             then {{ p0 = sum s0 = param.{sum} 0 {then} }}
           }}
         }}"
    )
}

#[test]
fn contractions_count_multiply_adds() {
    let macs = 256 * 512 * 1024;
    let store = "%y[d0, d1] = store s0";
    let plain = step(&contract("f32", "f32", store));
    assert_eq!(plain.ops, Ops { contract_f32: macs, ..Ops::default() });
    assert_eq!((plain.reads, plain.writes), (4 * (256 + 512) * 1024, 4 * 256 * 512));
    assert_eq!(plain.bound, Bottleneck::Compute);
    let due = MachineModel::cpu().launch_s + macs as f64 / MachineModel::cpu().contract_f32_per_s;
    assert!((plain.seconds - due).abs() < 1e-12, "{plain:?}");
    let narrow = step(&contract("bf16", "f32", store));
    assert_eq!(narrow.ops, Ops { contract_f16: macs, ..Ops::default() });
    assert_eq!(narrow.reads, 2 * (256 + 512) * 1024);
    let wide = step(&contract("f64", "f64", store));
    assert_eq!(wide.ops, Ops { contract_f64: macs, ..Ops::default() });
    let whole = step(&contract("i32", "i32", store));
    assert_eq!(whole.ops, Ops { integer: macs, ..Ops::default() });
    // A bias and a relu while the sums are at hand.
    let biased = step(
        &contract(
            "f32",
            "f32",
            "p1 = load %c[d1] s1 = param.f32 1 s2 = add.f32 s0 s1 s3 = const.f32 0.0
         s4 = max.f32 s2 s3 %y[d0, d1] = store s4",
        )
        .replace(
            "p0 = sum s0 = param.f32 0 p1 = load %c[d1]",
            "p0 = sum p1 = load %c[d1] s0 = param.f32 0",
        ),
    );
    assert_eq!(biased.reads, plain.reads + 4 * 512);
    assert_eq!(biased.ops, Ops { simple: 2 * 256 * 512, contract_f32: macs, ..Ops::default() });
}

#[test]
fn members_read_a_shared_operand_once() {
    let member = |rhs: &str, out: &str| {
        format!(
            "member batch [] rows [256] cols [512] depth [1024] sum f32 {{
               lhs {{ p0 = load %a[d0, d1] s0 = param.f32 0 s1 = neg.f32 s0 out s1 }}
               rhs {{ p0 = load {rhs}[d1, d0] s0 = param.f32 0 out s0 }}
               then {{ p0 = sum s0 = param.f32 0 {out}[d0, d1] = store s0 }}
             }}"
        )
    };
    let both = step(&format!(
        "input %a: f32[256, 1024] input %b: f32[1024, 512] input %c: f32[1024, 512]
         output %y: f32[256, 512] output %z: f32[256, 512]
         contract @two {{ {} {} }}",
        member("%b", "%y"),
        member("%c", "%z")
    ));
    assert_eq!(both.reads, 4 * (256 + 512 + 512) * 1024);
    assert_eq!(both.writes, 2 * 4 * 256 * 512);
    let ops = Ops { contract_f32: 2 * 256 * 512 * 1024, simple: 256 * 1024, ..Ops::default() };
    assert_eq!(both.ops, ops);
}

#[test]
fn other_steps_move_what_they_name() {
    let scatter = |from: &str| {
        step(&format!(
            "input %t: f32[5000, 64] input %at: i32[300] input %u: f32[300, 64]
             output %y: f32[5000, 64]
             %y = scatter {from} [300, 64] {{
               p0 = load %at[d0] p1 = load %u[d0, d1] s0 = param.i32 0 s1 = param.f32 1
               [clamp(p0, 0, 4999), d1] = add s1 }}"
        ))
    };
    let (table, updates) = (4 * 5000 * 64, 4 * 300 * 64 + 4 * 300);
    assert_eq!((scatter("%t").reads, scatter("%t").writes), (table + updates, table));
    assert_eq!((scatter("f32(0.0)").reads, scatter("f32(0.0)").ops), (updates, simple(300 * 64)));
    let library = step(
        "input %x: f32[10] input %y: f64[4] output %z: f32[6]
         %z = library @fft(%x, %y) scratch 4096",
    );
    assert_eq!((library.reads, library.writes, library.launches), (40 + 32, 24, 1));
    let h200 = MachineModel::h200();
    let copy = program("input %x: f32[1024] in host output %y: f32[1024] %y = transfer %x");
    let copy = cost(&copy, &h200).steps.remove(0);
    assert_eq!((copy.reads, copy.writes, copy.ops), (4096, 4096, Ops::default()));
    assert_eq!(copy.seconds, h200.launch_s + 4096.0 / h200.host_bytes_per_s);
}

#[test]
fn attention_never_stores_its_scores() {
    let (h, t, d) = (8, 256, 64);
    let attend = step(&format!(
        "input %q: f32[{h}, {t}, {d}] input %k: f32[{h}, {t}, {d}] input %v: f32[{h}, {t}, {d}]
         output %o: f32[{h}, {t}, {d}] output %l: f32[{h}, {t}]
         %o, %l = attention(%q, %k, %v)"
    ));
    let (scores, results) = (h * t * t, h * t * d);
    assert_eq!(attend.reads, 3 * 4 * results);
    assert_eq!(attend.writes, 4 * results + 4 * h * t);
    let ops = Ops {
        contract_f32: 2 * scores * d,
        special: long("exp") * scores,
        // Maximum, difference, sum.
        simple: 3 * scores,
        ..Ops::default()
    };
    assert_eq!(attend.ops, ops);
}

#[test]
fn the_least_is_what_no_grouping_saves() {
    let neg = |from: &str, to: &str| {
        map(
            &format!("[{N}]"),
            &format!("p0 = load {from} s0 = param.f32 0 s1 = neg.f32 s0 {to}[d0] = store s1"),
        )
    };
    let declared = format!(
        "input %x: f32[{N}] input %half: f32[2, {N}] input %unread: f32[{N}] temp %t: f32[{N}]
         output %y: f32[{N}] output %z: f32[{N}]"
    );
    let cost = on_cpu(&format!(
        "{declared} {} {} {}",
        neg("%x[d0]", "%t"),
        neg("%t[d0]", "%y"),
        neg("%half[1, d0]", "%z")
    ));
    // x once, the half of `half` that is read, y and z.
    assert_eq!((cost.bytes_moved, cost.least_bytes), (6 * 4 * N, 4 * 4 * N));
}

#[test]
fn time_is_that_of_memory_compute_or_launches() {
    let device = MachineModel::cpu();
    let copy = |n: u64| {
        step(&format!(
            "input %x: f32[{n}] output %y: f32[{n}] {}",
            map(&format!("[{n}]"), "p0 = load %x[d0] s0 = param.f32 0 %y[d0] = store s0")
        ))
    };
    let tiny = copy(16);
    assert_eq!((tiny.bound, tiny.resident), (Bottleneck::Launch, true));
    let near = copy(N);
    assert_eq!((near.bound, near.resident), (Bottleneck::Memory, true));
    assert_eq!(near.seconds, device.launch_s + 8.0 * N as f64 / device.cache_bytes_per_s);
    let far = copy(16 * N);
    assert_eq!((far.bound, far.resident), (Bottleneck::Memory, false));
    assert_eq!(far.seconds, device.launch_s + 128.0 * N as f64 / device.memory_bytes_per_s);
    // One point: one core, its lanes on the axes of the stage.
    let sum = step(&format!(
        "input %x: f32[{}] output %y: f32[]
         kernel @sum [] {{ row r0: f32
           stage [{}] {{ p0 = load %x[d0] s0 = param.f32 0 r0 = reduce.sum s0 lane(d0) }}
           stage [] {{ p0 = r0 s0 = param.f32 0 %y[] = store s0 }} }}",
        16 * N,
        16 * N
    ));
    let memory = (64 * N + 4) as f64 / device.core_bytes_per_s;
    assert!((sum.seconds - device.launch_s - memory).abs() < 1e-9, "{sum:?}");
}

#[test]
fn many_live_values_cost_threads_on_a_gpu_and_spills_on_a_cpu() {
    // Every parameter is needed twice, so all of them are live in the middle.
    let wide = |n: usize| {
        let mut loads = String::new();
        let mut lines = String::new();
        for k in 0..n {
            loads += &format!("p{k} = load %x[{k}, d0] ");
            lines += &format!("s{k} = param.f32 {k} ");
        }
        lines += &format!("s{n} = neg.f32 s0 ");
        for k in 1..2 * n {
            let (at, before, with) = (n + k, n + k - 1, k % n);
            lines += &format!("s{at} = add.f32 s{before} s{with} ");
        }
        let last = 3 * n - 1;
        let text = format!(
            "input %x: f32[{n}, {N}] output %y: f32[{N}] {}",
            map(&format!("[{N}]"), &format!("{loads} {lines} %y[d0] = store s{last}"))
        );
        program(&text)
    };
    let found = |n, device: &MachineModel| {
        let c = cost(&wide(n), device).steps.remove(0);
        (c.registers, c.occupancy)
    };
    // The sum so far, and every parameter.
    assert_eq!(found(16, &MachineModel::cpu()), (17, 1.0));
    assert_eq!(found(63, &MachineModel::cpu()), (64, 0.5));
    assert_eq!(found(16, &MachineModel::h200()), (17, 1.0));
    assert_eq!(found(63, &MachineModel::h200()), (64, 0.5));
    let (registers, occupancy) = found(509, &MachineModel::h200());
    assert_eq!(registers, 510);
    // 257 threads of 2048 have 255 registers each, which is half of what they need.
    assert_eq!(occupancy, 0.5 * 257.0 / 2048.0);
    let unlimited = MachineModel { registers: 0, ..MachineModel::h200() };
    assert_eq!(found(509, &unlimited).1, 1.0);
}

/// Programs that the verifier would refuse cost something, too.
#[test]
fn nothing_is_too_wrong_to_count() {
    let huge = i64::MAX;
    let kernel = format!(
        "input %x: f64[{huge}, {huge}] output %y: f32[-3] kernel @k [{huge}, {huge}] {{
           row r0: f64 stage [{huge}] {{
             p0 = load %x[d1 / {huge}, d0 * {huge} * {huge} + d2] when d0 * {huge} in [5, -{huge})
               else %x[d0 % {huge}]
             s0 = param.f64 0 r0 = reduce.argmax s0 lane(d2) }} }}"
    );
    let scatter = format!(
        "input %x: f32[4, 4] strides [{huge}, {huge}] output %y: f32[4]
         %y = scatter %x [-1, {huge}] {{
           p0 = load %x[d0] s0 = param.f32 0 [clamp(p7, 9, -9), d1] = add s0 }}"
    );
    for text in [kernel, scatter] {
        let program = parse(&format!("program @f {{ {text} return }}"));
        let program = program.unwrap_or_else(|d| panic!("{d}"));
        let found = cost(&program, &MachineModel::cpu());
        assert!(found.seconds > 0.0 && found.seconds.is_finite(), "{found:?}");
    }
    // Neither do buffers and values have to be there.
    let mut broken = program("input %x: f32[4] output %y: f32[4]
        kernel @k [4] { stage [] { p0 = load %x[d0] s0 = param.f32 0 s1 = neg.f32 s0 %y[d0] = store s1 } }");
    broken.buffers.clear();
    if let Step::Kernel(kernel) = &mut broken.steps[0] {
        kernel.stages[0].params.clear();
        kernel.stages[0].program.insts.clear();
    }
    assert_eq!(cost(&broken, &MachineModel::h200()).bytes_moved, 0);
}
