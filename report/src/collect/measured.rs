//! What `adfuse bench --json` has written, read for one plan.

use super::context::Collected;
use super::measurement_error::MeasurementError;
use crate::data::{MeasuredKernel, Measurement};
use serde_json::{Map, Value};

/// The measurement, and that of each step where the file has them.
///
/// # Errors
/// If the text is no JSON, has not the keys of a bench file, or is of another plan.
pub(super) fn read(
    c: &Collected<'_>,
    text: &str,
) -> Result<(Measurement, Vec<MeasuredKernel>), MeasurementError> {
    let all: Value =
        serde_json::from_str(text).map_err(|e| MeasurementError::Json(e.to_string()))?;
    let all = all.as_object().ok_or(MeasurementError::Key("name"))?;
    let name = word(all, "name").ok_or(MeasurementError::Key("name"))?;
    let f = c.source.function;
    if name != f.name {
        let m = format!("it is of @{name}, the report of @{}", f.name);
        return Err(MeasurementError::Other(m));
    }
    let device = word(all, "device").ok_or(MeasurementError::Key("device"))?;
    if device != c.device().name {
        let m = format!("its plan is for {device}, that of the report for {}", c.device().name);
        return Err(MeasurementError::Other(m));
    }
    let steps = whole(all, "steps").ok_or(MeasurementError::Key("steps"))?;
    if steps != c.laid.program.steps.len() as u64 {
        let m = format!(
            "its plan has {steps} steps, that of the report {}",
            c.laid.program.steps.len()
        );
        return Err(MeasurementError::Other(m));
    }
    let ms =
        |key: &'static str| number(all, key).map(|ms| ms / 1e3).ok_or(MeasurementError::Key(key));
    let engine = word(all, "engine").unwrap_or("cpu").to_string();
    let machine = match (word(all, "gpu"), whole(all, "threads")) {
        (Some(gpu), _) => gpu.to_string(),
        (None, Some(threads)) => format!("{threads} threads of the host"),
        (None, None) => "the host".into(),
    };
    let unfused = all
        .get("compare")
        .and_then(Value::as_object)
        .and_then(|other| Some((number(other, "median_ms")? / 1e3, whole(other, "peak_bytes"))));
    let counters = all.get("counters").and_then(Value::as_object);
    let counter = |(name, n): (&String, &Value)| Some((name.clone(), n.as_u64()?));
    let measurement = Measurement {
        engine,
        machine,
        seconds: [ms("p10_ms")?, ms("median_ms")?, ms("p90_ms")?],
        peak: whole(all, "peak_bytes"),
        // The host's are those of the cost model.
        launches: whole(all, "launches").filter(|_| all.contains_key("gpu")),
        copy_bytes_per_s: number(all, "copy_gbs").map(|gbs| gbs * 1e9),
        samples: whole(all, "samples").unwrap_or(0),
        unfused,
        counters: counters.into_iter().flatten().filter_map(counter).collect(),
    };
    Ok((measurement, kernels(c, all)?))
}

/// The steps of the file: all of them, in order, or none.
fn kernels(
    c: &Collected<'_>,
    all: &Map<String, Value>,
) -> Result<Vec<MeasuredKernel>, MeasurementError> {
    let Some(rows) = all.get("kernels").and_then(Value::as_array) else { return Ok(Vec::new()) };
    let steps = &c.laid.program.steps;
    let named = |row: &Value| row.get("name").and_then(Value::as_str).map(str::to_string);
    let other = rows.iter().zip(steps).position(|(r, s)| named(r).as_deref() != Some(s.name()));
    if rows.len() != steps.len() || other.is_some() {
        let at = other.unwrap_or(rows.len().min(steps.len()));
        let m = format!("its plan is another one: step {at} is not the same");
        return Err(MeasurementError::Other(m));
    }
    let kernel = |row: &Value| {
        let row = row.as_object().ok_or(MeasurementError::Key("kernels"))?;
        let narrow = |key| whole(row, key).and_then(|n| u32::try_from(n).ok());
        Ok(MeasuredKernel {
            seconds: number(row, "median_ms").ok_or(MeasurementError::Key("median_ms"))? / 1e3,
            registers: narrow("registers"),
            local_bytes: narrow("local_bytes"),
            generator: word(row, "generator").unwrap_or_default().to_string(),
        })
    };
    rows.iter().map(kernel).collect()
}

fn word<'a>(of: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    of.get(key)?.as_str()
}

fn number(of: &Map<String, Value>, key: &str) -> Option<f64> {
    of.get(key)?.as_f64().filter(|x| x.is_finite() && *x >= 0.0)
}

fn whole(of: &Map<String, Value>, key: &str) -> Option<u64> {
    of.get(key)?.as_u64()
}
