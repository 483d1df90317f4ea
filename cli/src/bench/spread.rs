//! The spread of samples: minimum, median and the tenth and ninetieth percentile.

/// How samples are spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct SampleStats {
    pub(super) min: f64,
    /// A tenth of the samples is below.
    pub(super) p10: f64,
    pub(super) median: f64,
    /// A tenth of the samples is above.
    pub(super) p90: f64,
}

impl SampleStats {
    /// Of samples; zeros where there are none.
    pub(super) fn of(mut samples: Vec<f64>) -> SampleStats {
        samples.sort_by(f64::total_cmp);
        let last = samples.len().saturating_sub(1) as f64;
        let at = |share: f64| {
            let place = share * last;
            let of = |k: f64| samples.get(k as usize).copied().unwrap_or(0.0);
            let (below, above) = (of(place.floor()), of(place.ceil()));
            below + (above - below) * place.fract()
        };
        SampleStats { min: at(0.0), p10: at(0.1), median: at(0.5), p90: at(0.9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_between_their_neighbours() {
        let of = SampleStats::of(vec![4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!(of, SampleStats { min: 1.0, p10: 1.4, median: 3.0, p90: 4.6 });
        assert_eq!(SampleStats::of(vec![2.0, 4.0]).median, 3.0);
        assert_eq!(SampleStats::of(vec![7.0]).p90, 7.0);
        assert_eq!(SampleStats::of(Vec::new()).median, 0.0);
    }
}
