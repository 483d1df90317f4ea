//! The fit of a machine's numbers: each key has a program whose time it decides, and takes the value at which the cost model
//! predicts what was measured.
//!
//! The result depends on the measurements alone.

use super::timing::PlannedProgram;
use crate::fusion::{KernelFacts, MachineModel, cost_with};

/// A number of a machine, and the program that decides it.
struct FittedKey {
    name: &'static str,
    /// Family and name of the program.
    program: [&'static str; 2],
    /// The number, to be read and written.
    of: fn(&mut MachineModel) -> &mut f64,
}

/// The keys that are fitted, in this order: what comes first is part of the time of what comes later.
const KEYS: &[FittedKey] = &[
    FittedKey { name: "launch_s", program: ["chain", "add 4K"], of: |m| &mut m.launch_s },
    FittedKey {
        name: "cache_bytes_per_s",
        program: ["chain", "add 1M"],
        of: |m| &mut m.cache_bytes_per_s,
    },
    FittedKey {
        name: "memory_bytes_per_s",
        program: ["chain", "add 16M"],
        of: |m| &mut m.memory_bytes_per_s,
    },
    FittedKey { name: "ops_per_s", program: ["chain", "five functions"], of: |m| &mut m.ops_per_s },
    FittedKey { name: "stride_ops", program: ["slice", "reverse"], of: |m| &mut m.stride_ops },
    FittedKey { name: "far_ops", program: ["transpose", "transpose"], of: |m| &mut m.far_ops },
    FittedKey { name: "place_ops", program: ["gather", "elements"], of: |m| &mut m.place_ops },
    FittedKey { name: "call_ops", program: ["rem", "rem f32"], of: |m| &mut m.call_ops },
    FittedKey { name: "cut_ops", program: ["concat", "pad"], of: |m| &mut m.cut_ops },
    FittedKey { name: "line_ops", program: ["softmax", "rows of 64"], of: |m| &mut m.line_ops },
    FittedKey { name: "fold_ops", program: ["reduce", "rows of 8"], of: |m| &mut m.fold_ops },
    FittedKey { name: "line_fold_ops", program: ["mask", "any"], of: |m| &mut m.line_fold_ops },
    FittedKey { name: "run_ops", program: ["norm", "four sums"], of: |m| &mut m.run_ops },
    FittedKey {
        name: "extremum_ops",
        program: ["argmax", "argmax rows"],
        of: |m| &mut m.extremum_ops,
    },
    FittedKey { name: "scan_ops", program: ["scan", "cumsum rows"], of: |m| &mut m.scan_ops },
    FittedKey {
        name: "interchange_ops",
        program: ["scan", "cumsum columns"],
        of: |m| &mut m.interchange_ops,
    },
    FittedKey { name: "update_ops", program: ["scatter", "rows"], of: |m| &mut m.update_ops },
    FittedKey { name: "pack_ops", program: ["convolution", "depthwise"], of: |m| &mut m.pack_ops },
    FittedKey { name: "digit_ops", program: ["sort", "sort"], of: |m| &mut m.digit_ops },
    FittedKey {
        name: "contract_f32_per_s",
        program: ["product", "square"],
        of: |m| &mut m.contract_f32_per_s,
    },
    FittedKey {
        name: "contract_f64_per_s",
        program: ["product", "f64"],
        of: |m| &mut m.contract_f64_per_s,
    },
    FittedKey {
        name: "contract_f16_per_s",
        program: ["product", "bf16"],
        of: |m| &mut m.contract_f16_per_s,
    },
];

/// A number is within this factor of the one that the fit begins with.
const RANGE: f64 = 100.0;

/// Times that differ by no more than this part are the same.
const TOLERANCE: f64 = 0.01;

/// Halvings of the interval of a number's logarithm.
const HALVINGS: u32 = 40;

/// A program that was measured, with what the engine makes of its steps.
#[derive(Clone, Debug)]
pub struct MeasuredProgram {
    /// The program.
    pub program: PlannedProgram,
    /// As [`EngineModel::facts`](crate::fusion::EngineModel::facts).
    pub facts: Option<Vec<KernelFacts>>,
    /// Seconds of a run.
    pub seconds: f64,
}

impl MeasuredProgram {
    /// Seconds by the cost model.
    pub fn predicted(&self, device: &MachineModel) -> f64 {
        cost_with(&self.program.program, device, &|_| self.facts.clone()).seconds
    }
}

/// The names of the numbers that [`fit`] fits for a machine, in its order: those for which it has a price.
pub fn fitted_keys(base: &MachineModel) -> Vec<&'static str> {
    let priced = |key: &&FittedKey| *(key.of)(&mut base.clone()) > 0.0;
    KEYS.iter().filter(priced).map(|key| key.name).collect()
}

/// The machine with which the cost model predicts what was measured, as nearly as one number for each program can; `base` has
/// the numbers that no program decides. Keys whose program was not measured stay.
pub fn fit(base: &MachineModel, measured: &[MeasuredProgram]) -> MachineModel {
    let mut device = base.clone();
    // A number is part of the time of programs that others decide: two rounds settle that.
    for _ in 0..2 {
        for key in KEYS {
            let [family, name] = key.program;
            let decides = |m: &&MeasuredProgram| {
                m.program.family == family && m.program.name == name && m.seconds > 0.0
            };
            let Some(program) = measured.iter().find(decides) else { continue };
            let first = *(key.of)(&mut base.clone());
            // What a machine has no price for costs nothing there: lanes of a GPU have places of their own.
            if first <= 0.0 {
                continue;
            }
            *(key.of)(&mut device) = fitted(key, first, &device, program);
        }
        // One core reaches the same part of the memory's bandwidth; so do copies from the caller's memory, where it is the
        // same memory.
        let part = device.memory_bytes_per_s / base.memory_bytes_per_s;
        device.core_bytes_per_s = base.core_bytes_per_s * part;
        if base.host_bytes_per_s == base.memory_bytes_per_s {
            device.host_bytes_per_s = device.memory_bytes_per_s;
        }
    }
    device
}

/// The value of a key at which the prediction is nearest to what was measured: predictions do not turn back as it grows. Of
/// all values that predict the same time it is the one nearest to `first`, since a number that a program does not depend on is
/// not to be read from its time.
fn fitted(key: &FittedKey, first: f64, device: &MachineModel, of: &MeasuredProgram) -> f64 {
    let mut device = device.clone();
    let mut at = |x: f64| {
        *(key.of)(&mut device) = x.exp();
        of.predicted(&device)
    };
    let start = first.ln();
    let [low, high] = [start - RANGE.ln(), start + RANGE.ln()];
    // Rates make times shorter as they grow, prices longer.
    let (least, most) = (at(low).min(at(high)), at(low).max(at(high)));
    let due = of.seconds.clamp(least, most);
    let grows = at(high) > at(low);
    let near = |seconds: f64| (seconds / due - 1.0).abs() <= TOLERANCE;
    if near(at(start)) {
        return first;
    }
    let found = halved(low, high, |x| (at(x) < due) == grows);
    let value = halved(start, found, |x| !near(at(x))).exp();
    // Three digits are more than measurements have.
    let unit = 10f64.powi(value.log10().floor() as i32 - 2);
    (value / unit).round() * unit
}

/// Where a condition that holds at `from` ceases to hold on the way to `to`.
fn halved(mut from: f64, mut to: f64, mut holds: impl FnMut(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(from, to);
        match holds(middle) {
            true => from = middle,
            false => to = middle,
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Cpu;
    use crate::fusion::EngineModel;
    use crate::tune::spearman;
    use crate::tune::{ProgramSize, programs};

    /// The programs that decide keys, as a machine would take them.
    fn measured(truth: &MachineModel) -> Vec<MeasuredProgram> {
        let engine = Cpu::default();
        let wanted = |p: &crate::tune::TunedProgram| {
            KEYS.iter().any(|k| k.program == [p.family.as_str(), p.name.as_str()])
        };
        let all = programs(ProgramSize::Small).into_iter().filter(wanted).map(|p| {
            let program = PlannedProgram::new(&p, &engine.plan, &engine).expect("plans");
            let facts = engine.facts(&program.program, &engine.plan.device);
            let mut one = MeasuredProgram { program, facts, seconds: 0.0 };
            one.seconds = one.predicted(truth);
            one
        });
        all.collect()
    }

    #[test]
    fn a_machine_is_found_again_from_its_times() {
        let base = MachineModel { name: "tuned".into(), ..MachineModel::cpu() };
        let mut truth = base.clone();
        for (k, key) in KEYS.iter().enumerate() {
            *(key.of)(&mut truth) *= [1.5, 0.7, 1.2][k % 3];
        }
        let measured = measured(&truth);
        assert_eq!(measured.len(), KEYS.len(), "each key has a program");
        let found = fit(&base, &measured);
        let times =
            |of: &MachineModel| -> Vec<f64> { measured.iter().map(|m| m.predicted(of)).collect() };
        let (due, before, after) = (times(&truth), times(&base), times(&found));
        let worst =
            |all: &[f64]| all.iter().zip(&due).map(|(a, b)| (a / b).max(b / a)).fold(1.0, f64::max);
        assert!(worst(&after) < 1.05, "{after:?} {due:?}");
        assert!(worst(&before) > 1.3, "the base is another machine");
        assert!(spearman(&after, &due) > 0.99);
        assert_eq!(fit(&base, &measured), found, "the same measurements give the same machine");
        let text = found.to_toml();
        assert_eq!(MachineModel::from_toml(&text), Ok(found.clone()), "{text}");
        // A rate of operations is read from a program that memory does not hold up.
        let ratio = found.ops_per_s / truth.ops_per_s;
        assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    }

    #[test]
    fn a_number_that_no_time_depends_on_stays() {
        let base = MachineModel { name: "tuned".into(), ..MachineModel::cpu() };
        // Times are as predicted where nothing takes longer than memory.
        let slow = MachineModel { memory_bytes_per_s: 1e9, cache_bytes_per_s: 1e9, ..base.clone() };
        let measured = measured(&slow);
        let copy = measured.iter().find(|m| m.program.name == "add 1M").expect("is there");
        for key in KEYS.iter().filter(|key| key.name.ends_with("_ops")) {
            let first = *(key.of)(&mut slow.clone());
            assert_eq!(fitted(key, first, &slow, copy), first, "{}", key.name);
        }
    }

    #[test]
    fn what_was_not_measured_stays() {
        assert_eq!(fit(&MachineModel::cpu(), &[]), MachineModel::cpu());
    }
}
