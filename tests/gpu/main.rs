//! The GPU engine gives the bits of the kernel evaluator in strict mode, and comes near them in the others:
//! the programs of the filetests, the models with their gradients, every row of the op table, and random
//! programs. `ADFUSE_PROGRAMS` sets how many of those (1000 by default). Where there is no GPU every test
//! but one is ignored, with that reason.

mod attention;
mod branches;
#[path = "../common/mod.rs"]
mod common;
mod convolution;
mod device;
mod large;
mod loops;
mod near;
mod product;
mod strict;
mod symbols;
#[path = "../common/trials.rs"]
mod trials;
mod ulps;
mod user_kernels;

use adfuse::backends::Array;
use adfuse::backends::gpu::GpuDevice;
use adfuse::engine::Gpu;
use adfuse::ir::{Diagnostic, Kind};
use std::io::Write;
use std::ops::Deref;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use trials::{Skipped, run, trials};

/// Held by tests that measure what others change, such as the memory that is taken; all others share it.
static DEVICE: RwLock<()> = RwLock::new(());

/// The engine, as long as a test may use it.
struct Opened<G> {
    gpu: Gpu,
    _held: G,
}

impl<G> Deref for Opened<G> {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.gpu
    }
}

/// The engine on the first GPU. One at a time is open in a test.
fn gpu() -> Result<Opened<RwLockReadGuard<'static, ()>>, Skipped> {
    let held = DEVICE.read().unwrap_or_else(PoisonError::into_inner);
    opened().map(|gpu| Opened { gpu, _held: held })
}

/// The same while no other test uses it.
fn alone() -> Result<Opened<RwLockWriteGuard<'static, ()>>, Skipped> {
    let held = DEVICE.write().unwrap_or_else(PoisonError::into_inner);
    opened().map(|gpu| Opened { gpu, _held: held })
}

fn opened() -> Result<Gpu, Skipped> {
    match Gpu::open(0) {
        Ok(gpu) => Ok(gpu),
        Err(d) if d.kind == Kind::NoDevice => Err(Skipped(d.message)),
        Err(d) => panic!("{d}"),
    }
}

/// Tells whoever runs the tests, who sees nothing that passing tests print.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What became of a case.
enum Outcome {
    Same,
    /// The engine does not run it, and why.
    Refused(Diagnostic),
    Wrong(String),
}

/// What the engine may refuse: beginnings of messages, each said once with how often it was.
const REFUSED: &[&str] = &[
    "there is no library function",
    "the engine has no step for `attention",
    // Programs of kernels are not composed anew.
    "`attention` of f32[1,",
];

/// Runs all cases, on several threads: most of the time goes to the driver's assembler. At least `most` in a
/// hundred must run.
fn all<C: Sync>(test: &str, cases: &[C], run: impl Fn(&C) -> Outcome + Sync) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::<(usize, String)>::new()));
    let refused = Mutex::new(Vec::<String>::new());
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get()).min(16);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let few = failed.lock().expect("no panic").len() < 8;
                    let Some(case) = cases.get(n).filter(|_| few) else { break };
                    match run(case) {
                        Outcome::Same => {}
                        Outcome::Refused(d) => {
                            refused.lock().expect("no panic").push(d.message);
                        }
                        Outcome::Wrong(why) => failed.lock().expect("no panic").push((n, why)),
                    }
                }
            });
        }
    });
    let mut refused = refused.into_inner().expect("no panic");
    refused.sort();
    let count = refused.len();
    let mut failed = failed.into_inner().expect("no panic");
    failed.sort();
    let mut line = format!("{test}: {} of {} cases ran", cases.len() - count, cases.len());
    refused.dedup();
    for message in &refused {
        line += &format!("\n  refused: {message}");
    }
    say(&line);
    let unknown = |m: &&String| !REFUSED.iter().any(|known| m.starts_with(known));
    if let Some(message) = refused.iter().find(unknown) {
        panic!("refused, and not known to be: {message}");
    }
    for (n, why) in &failed {
        let line: String = why.lines().next().unwrap_or_default().chars().take(200).collect();
        say(&format!("  wrong, case {n}: {line}"));
    }
    if let Some((n, why)) = failed.first() {
        let why: String = why.chars().take(6000).collect();
        panic!("{} cases are wrong; the first is number {n}: {why}", failed.len());
    }
}

/// Results of a run; an engine's refusal is none.
fn ran(result: Result<Vec<Array>, Diagnostic>) -> Result<Vec<Array>, Outcome> {
    result.map_err(|d| match d.kind {
        Kind::Unsupported => Outcome::Refused(d),
        _ => Outcome::Wrong(d.to_string()),
    })
}

fn a_machine_has_as_many_devices_as_can_be_opened() {
    let count = GpuDevice::count();
    let absent = GpuDevice::open(count).expect_err("one more than there are");
    assert_eq!(absent.kind, Kind::NoDevice);
    assert!(absent.message.starts_with("no GPU"), "{absent}");
    assert!((0..count).all(|n| GpuDevice::open(n).is_ok()));
}

fn main() -> ExitCode {
    run(trials![
        a_machine_has_as_many_devices_as_can_be_opened,
        device::arrays_stay_on_the_device,
        device::memory_that_is_given_up_is_used,
        device::training_steps_stay_on_the_device,
        device::times_are_the_devices,
        device::too_much_memory_is_an_error_with_numbers,
        device::code_is_kept_and_damage_does_no_harm,
        device::as_much_memory_is_taken_as_planned,
        device::results_that_are_one_value_share_their_memory,
        device::a_gpu_that_is_not_there_has_the_plans_of_one_that_is,
        branches::bits_do_not_depend_on_what_runs_at_the_same_time,
        large::rows_that_fill_a_chip,
        near::models_in_free_modes,
        near::products,
        near::vocabularies_of_odd_size,
        attention::attention_on_matrix_units,
        attention::strict_attention_has_the_bits_of_its_definition,
        convolution::convolutions_on_matrix_units,
        product::products_without_a_library,
        product::products_of_heads,
        product::products_that_share_an_operand,
        product::sums_of_products,
        product::depths_in_runs,
        product::zeros_below_zero_stay,
        strict::programs_of_the_filetests,
        strict::models_and_their_gradients,
        strict::every_row,
        strict::random_programs,
        strict::unusual_values,
        strict::orders,
        strict::scatters,
        strict::transposes,
        strict::scans,
        symbols::batches_of_any_extent,
        user_kernels::calls_have_the_bits_of_their_functions_in_rust,
        user_kernels::memory_of_calls_is_what_was_planned,
        user_kernels::what_a_device_does_not_take_is_told_with_its_step,
        loops::blocks_by_hand,
        loops::functions_with_loops,
        loops::random_programs_with_loops,
        loops::budgets_are_kept,
        loops::limits_are_errors,
        loops::as_much_memory_is_taken_as_planned,
        loops::times_of_a_turn,
        ulps::functions_are_as_near_as_they_say,
        ulps::the_measure_is_right,
    ])
}
