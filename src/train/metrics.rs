//! Metrics: means over the steps of an epoch, and what an epoch ends with.

use std::fmt;

/// Numbers by name, in the order in which they came first.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    entries: Vec<MetricEntry>,
}

#[derive(Clone, Debug)]
struct MetricEntry {
    name: String,
    sum: f64,
    weight: f64,
}

impl Metrics {
    /// Adds to the mean of a name.
    pub fn mean(&mut self, name: &str, value: f64) {
        self.weighted(name, value, 1.0);
    }

    /// Adds to the mean of a name, as often as the weight says: a batch's mean weighs as many examples as it has.
    pub fn weighted(&mut self, name: &str, value: f64, weight: f64) {
        let entry = self.entry(name);
        entry.sum += value * weight;
        entry.weight += weight;
    }

    /// Sets the number of a name.
    pub fn set(&mut self, name: &str, value: f64) {
        let entry = self.entry(name);
        (entry.sum, entry.weight) = (value, 1.0);
    }

    /// The number of a name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// All numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.entries.iter().map(|e| (e.name.as_str(), e.sum / e.weight))
    }

    fn entry(&mut self, name: &str) -> &mut MetricEntry {
        let at = self.entries.iter().position(|e| e.name == name);
        let at = at.unwrap_or_else(|| {
            self.entries.push(MetricEntry { name: name.into(), sum: 0.0, weight: 0.0 });
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }
}

/// `loss 0.1234, accuracy 0.9712`.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, (name, value)) in self.iter().enumerate() {
            write!(f, "{}{name} {value:.4}", if k > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
