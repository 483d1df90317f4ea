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
    FittedKey { name: "ops_per_s", program: ["chain", "tanh 1M"], of: |m| &mut m.ops_per_s },
    FittedKey { name: "stride_ops", program: ["slice", "reverse"], of: |m| &mut m.stride_ops },
    FittedKey { name: "far_ops", program: ["transpose", "transpose"], of: |m| &mut m.far_ops },
    FittedKey { name: "place_ops", program: ["gather", "elements"], of: |m| &mut m.place_ops },
    FittedKey { name: "call_ops", program: ["rem", "rem f32"], of: |m| &mut m.call_ops },
    FittedKey { name: "cut_ops", program: ["concat", "pad"], of: |m| &mut m.cut_ops },
    FittedKey { name: "line_ops", program: ["softmax", "rows of 64"], of: |m| &mut m.line_ops },
    FittedKey { name: "fold_ops", program: ["reduce", "rows of 8"], of: |m| &mut m.fold_ops },
    FittedKey { name: "line_fold_ops", program: ["mask", "any"], of: |m| &mut m.line_fold_ops },
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
    FittedKey {
        name: "contract_f32_per_s",
        program: ["product", "512^3"],
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

/// The names of the numbers that [`fit`] fits, in its order.
pub fn fitted_keys() -> Vec<&'static str> {
    KEYS.iter().map(|key| key.name).collect()
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
            *(key.of)(&mut device) = fitted(key, first, &device, program);
        }
        // One core reaches the same part of the memory's bandwidth.
        device.core_bytes_per_s =
            base.core_bytes_per_s * device.memory_bytes_per_s / base.memory_bytes_per_s;
        device.host_bytes_per_s = device.memory_bytes_per_s;
    }
    device
}

/// Predictions that differ by less than this part are equal.
const EQUAL: f64 = 1e-9;

/// The value of a key at which the prediction is nearest: predictions do not turn back as it grows. Where several give the
/// same prediction, since something else bounds the time, it is the one nearest to `first`.
fn fitted(key: &FittedKey, first: f64, device: &MachineModel, of: &MeasuredProgram) -> f64 {
    let mut device = device.clone();
    let mut at = |x: f64| {
        *(key.of)(&mut device) = x.exp();
        of.predicted(&device)
    };
    let ends = ((first / RANGE).ln(), (first * RANGE).ln());
    // Rates make times shorter as they grow, prices longer.
    let grows = at(ends.1) > at(ends.0);
    // Where what is predicted begins to be what was measured, and where it ceases.
    let mut edge = |ceases: bool| {
        let (mut low, mut high) = ends;
        let part = if grows == ceases { 1.0 + EQUAL } else { 1.0 - EQUAL };
        let limit = part * of.seconds;
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            let before = if grows { at(middle) < limit } else { at(middle) > limit };
            match before {
                true => low = middle,
                false => high = middle,
            }
        }
        f64::midpoint(low, high)
    };
    let (begins, ceases) = (edge(false), edge(true));
    // Three digits are more than measurements have.
    let value = first.ln().clamp(begins, ceases.max(begins)).exp();
    let unit = 10f64.powi(value.log10().floor() as i32 - 2);
    (value / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Cpu;
    use crate::fusion::EngineModel;
    use crate::tune::programs;
    use crate::tune::spearman;

    /// The programs that decide keys, as a machine would take them.
    fn measured(truth: &MachineModel) -> Vec<MeasuredProgram> {
        let engine = Cpu::default();
        let wanted = |p: &crate::tune::TunedProgram| {
            KEYS.iter().any(|k| k.program == [p.family.as_str(), p.name.as_str()])
        };
        let all = programs().into_iter().filter(wanted).map(|p| {
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
        let base = MachineModel::cpu();
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
        assert!(MachineModel::from_toml(&text).is_ok(), "{text}");
    }

    #[test]
    fn what_was_not_measured_stays() {
        assert_eq!(fit(&MachineModel::cpu(), &[]), MachineModel::cpu());
    }
}
