//! The spread of samples.

/// How samples are spread.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TimeSpread {
    /// The least.
    pub least: f64,
    /// A tenth is below.
    pub p10: f64,
    /// Half is below.
    pub median: f64,
    /// A tenth is above.
    pub p90: f64,
}

impl TimeSpread {
    /// Of samples; zeros where there are none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> TimeSpread {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let last = samples.len().saturating_sub(1) as f64;
        let at = |share: f64| {
            let of = |k: f64| samples.get(k as usize).copied().unwrap_or(0.0);
            let (below, above) = (of((share * last).floor()), of((share * last).ceil()));
            below + (above - below) * (share * last).fract()
        };
        TimeSpread { least: at(0.0), p10: at(0.1), median: at(0.5), p90: at(0.9) }
    }
}

#[cfg(test)]
mod tests {
    use super::TimeSpread;

    #[test]
    fn quantiles_are_between_their_neighbours() {
        let of = TimeSpread::of([4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!(of, TimeSpread { least: 1.0, p10: 1.4, median: 3.0, p90: 4.6 });
        assert_eq!(TimeSpread::of([]), TimeSpread::default());
    }
}
