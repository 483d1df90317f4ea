//! A run as an event trace for browsers: `traceEvents`, times in microseconds.

use adfuse::backends::cpu::Trace;
use serde_json::{Value, json};

/// The text of the file, given the names of the steps: a span for each step, in the lane of the caller's thread, and one for each of
/// its tasks, in the lane of the thread that did it.
pub(crate) fn text(trace: &Trace, steps: &[&str]) -> String {
    let events: Vec<Value> = trace
        .spans
        .iter()
        .map(|span| {
            let step = steps.get(span.step).copied().unwrap_or_default();
            let (name, kind) = match span.task {
                None => (step.to_string(), "step"),
                Some(task) => (format!("{step} task {task}"), "task"),
            };
            let micros = |d: std::time::Duration| d.as_nanos() as f64 / 1e3;
            json!({
                "name": name,
                "cat": kind,
                "ph": "X",
                "ts": micros(span.begin),
                "dur": micros(span.end - span.begin),
                "pid": 0,
                "tid": span.thread,
                "args": {"step": span.step},
            })
        })
        .collect();
    format!("{}\n", json!({"traceEvents": events, "displayTimeUnit": "ns"}))
}
