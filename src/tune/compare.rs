//! Predicted and measured times side by side: ratios, and the correlation of their ranks.

use super::timing::{PlannedProgram, ProgramTimer};
use crate::fusion::{EngineModel, MachineModel};
use crate::ir::Diagnostic;
use std::fmt::Write;

/// A program, predicted and measured.
#[derive(Clone, PartialEq, Debug)]
pub struct ComparedProgram {
    /// Its family.
    pub family: String,
    /// Its name.
    pub name: String,
    /// Seconds by the cost model.
    pub predicted: f64,
    /// Seconds of a run.
    pub measured: f64,
}

impl ComparedProgram {
    /// Measured over predicted.
    pub fn ratio(&self) -> f64 {
        self.measured / self.predicted.max(1e-12)
    }

    /// How far the two are apart, whichever is larger: at least 1.
    pub fn error(&self) -> f64 {
        self.ratio().max(1.0 / self.ratio().max(1e-12))
    }
}

/// Programs, predicted and measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Comparison {
    /// One row for each.
    pub rows: Vec<ComparedProgram>,
}

/// Predicts and measures programs on a machine.
///
/// # Errors
/// As [`ProgramTimer::seconds`].
pub fn compare(
    programs: &[PlannedProgram],
    device: &MachineModel,
    engine: &dyn EngineModel,
    timer: &mut dyn ProgramTimer,
) -> Result<Comparison, Diagnostic> {
    let row = |p: &PlannedProgram| {
        let predicted = engine.cost(&p.program, device).seconds;
        let measured = timer.seconds(p)?;
        Ok(ComparedProgram { family: p.family.clone(), name: p.name.clone(), predicted, measured })
    };
    Ok(Comparison { rows: programs.iter().map(row).collect::<Result<_, Diagnostic>>()? })
}

impl Comparison {
    /// The correlation of the ranks of predicted and measured times.
    pub fn spearman(&self) -> f64 {
        let column = |of: fn(&ComparedProgram) -> f64| self.rows.iter().map(of).collect::<Vec<_>>();
        spearman(&column(|r| r.predicted), &column(|r| r.measured))
    }

    /// The families in their order, each with the geometric mean of its ratios and its largest error.
    pub fn families(&self) -> Vec<(String, f64, f64)> {
        let mut found: Vec<(String, f64, f64)> = Vec::new();
        for row in &self.rows {
            if found.iter().any(|f| f.0 == row.family) {
                continue;
            }
            let all = || self.rows.iter().filter(|r| r.family == row.family);
            let sum: f64 = all().map(|r| r.ratio().max(1e-12).ln()).sum();
            let mean = (sum / all().count() as f64).exp();
            let worst = all().map(ComparedProgram::error).fold(1.0, f64::max);
            found.push((row.family.clone(), mean, worst));
        }
        found
    }

    /// A line for each program, then what they say together.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{:14}{:24}{:>14}{:>14}{:>20}",
            "family", "program", "predicted us", "measured us", "measured/predicted"
        );
        for row in &self.rows {
            let (predicted, measured) = (row.predicted * 1e6, row.measured * 1e6);
            let (family, name, ratio) = (&row.family, &row.name, row.ratio());
            let _ =
                writeln!(out, "{family:14}{name:24}{predicted:>14.1}{measured:>14.1}{ratio:>20.2}");
        }
        let _ = writeln!(out, "{}", self.summary());
        out
    }

    /// One line: the correlation of ranks, how many are off by more than a factor of 2, and the worst.
    pub fn summary(&self) -> String {
        let off = self.rows.iter().filter(|r| r.error() > 2.0).count();
        let worst = self.rows.iter().max_by(|a, b| a.error().total_cmp(&b.error()));
        let worst = worst.map_or(String::new(), |r| {
            format!(", worst {} {} ({:.2})", r.family, r.name, r.ratio())
        });
        let (count, rank) = (self.rows.len(), self.spearman());
        format!("{count} programs: Spearman {rank:.3}, {off} off by more than 2{worst}")
    }
}

/// The rank correlation of two lists of equal length: 1 where they have one order, -1 where one has the other's
/// reversed. Equal numbers share the mean of their ranks. Lists of fewer than two numbers agree.
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len().max(1) as f64;
    let (ma, mb) = (mean(&a), mean(&b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(&b).map(|(&x, &y)| f(x, y)).sum::<f64>();
    let (ab, aa, bb) = (
        sum(&|x, y| (x - ma) * (y - mb)),
        sum(&|x, _| (x - ma) * (x - ma)),
        sum(&|_, y| (y - mb) * (y - mb)),
    );
    if aa * bb > 0.0 { ab / (aa * bb).sqrt() } else { 1.0 }
}

fn ranks(of: &[f64]) -> Vec<f64> {
    let rank = |x: &f64| {
        let below = of.iter().filter(|y| y.total_cmp(x).is_lt()).count();
        let equal = of.iter().filter(|y| y.total_cmp(x).is_eq()).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    of.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_correlate() {
        for (b, due) in [
            (&[1.0, 2.0, 3.0, 4.0][..], 1.0),
            (&[10.0, 200.0, 3e3, 4e4], 1.0),
            (&[4.0, 3.0, 2.0, 1.0], -1.0),
            // One pair of neighbours in the other order: 1 - 6 * 2 / (4 * 15).
            (&[2.0, 1.0, 3.0, 4.0], 0.8),
        ] {
            assert!((spearman(&[1.0, 2.0, 3.0, 4.0], b) - due).abs() < 1e-12, "{b:?}");
        }
        assert_eq!(spearman(&[1.0], &[7.0]), 1.0);
    }

    #[test]
    fn families_have_the_mean_of_their_ratios() {
        let row = |family: &str, predicted, measured| ComparedProgram {
            family: family.into(),
            name: String::new(),
            predicted,
            measured,
        };
        let rows = vec![row("a", 1.0, 4.0), row("b", 1.0, 0.5), row("a", 2.0, 2.0)];
        let found = Comparison { rows };
        assert_eq!(found.families(), [("a".into(), 2.0, 4.0), ("b".into(), 0.5, 2.0)]);
        assert!(found.summary().contains("1 off by more than 2, worst a"), "{}", found.summary());
    }
}
