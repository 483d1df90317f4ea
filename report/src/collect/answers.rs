//! Answers, in a sentence each, to what people ask of a plan.

use super::context::{listed, size, times};
use crate::data::{Answer, LiveValue, PlanStep, Report, ResidualRow, ValueKind};
use crate::units::{count, limit, percent, seconds};
use std::collections::BTreeMap;

/// What the plan does against the unfused one.
pub(super) fn sentence(r: &Report) -> String {
    let pair = |key: &str| r.figure(key).and_then(|f| Some((f.fused, f.unfused?)));
    let predicted = r.figure("seconds").map_or(0.0, |f| f.fused);
    let measured = pair("measured_seconds");
    let base = format!(
        "@{} on {} is {} step{}",
        r.function,
        r.device,
        count(r.steps.len() as f64),
        if r.steps.len() == 1 { "" } else { "s" },
    );
    if r.steps.is_empty() {
        let held = limit(r.memory.held);
        return format!(
            "@{} on {} computes nothing: its results are what it is given, {held}.",
            r.function, r.device
        );
    }
    match (pair("launches"), pair("bytes"), pair("seconds"), pair("peak")) {
        (Some(launches), Some(bytes), Some(time), Some(peak)) => format!(
            "{base}. Compared with {}: {} instead of {}, {} bytes moved, {} time{}, {} memory.",
            r.compared_with(),
            launches_of(launches.0),
            count(launches.1),
            change(bytes, "fewer"),
            change(measured.unwrap_or(time), "less"),
            if measured.is_some() { " as measured" } else { "" },
            change(peak, "less"),
        ),
        _ => format!("{base}, which take {}.", seconds(predicted)),
    }
}

/// `1 launch`, `2 launches`.
fn launches_of(n: f64) -> String {
    format!("{} launch{}", count(n), if n == 1.0 { "" } else { "es" })
}

/// `2.0\u{d7} less` where the plan takes half, `2.0\u{d7} more` where it takes twice as much.
fn change((fused, unfused): (f64, f64), less: &str) -> String {
    if fused <= 0.0 || unfused <= 0.0 {
        return if fused == unfused {
            "the same".into()
        } else {
            format!("{} in place of {}", count(fused), count(unfused))
        };
    }
    let (low, high) = if fused > unfused { (unfused, fused) } else { (fused, unfused) };
    match times(low, high).as_str() {
        "1.0" => "the same".into(),
        ratio if fused > unfused => format!("{ratio}\u{d7} more"),
        ratio => format!("{ratio}\u{d7} {less}"),
    }
}

/// The answers, in the order in which people ask.
pub(super) fn answers(r: &Report) -> Vec<Answer> {
    let answer = |key, question, answer, panel| Answer { key, question, answer, panel };
    vec![
        answer("peak", "What makes the peak?", peak(r), "memory"),
        answer("residual", "Which residual is worth most?", residual(r), "residuals"),
        answer("less", "What does 20 % less memory cost?", less_memory(r), "budget"),
        answer(
            "apart",
            "Which neighbours are not fused, and why?",
            unfused_neighbours(r),
            "candidates",
        ),
        answer("furthest", "Which kernel is furthest from its limit?", furthest(r), "roofline"),
        answer("recomputed", "What is computed again?", recomputed(r), "residuals"),
        answer("bits", "What is kept at one bit?", one_bit(r), "residuals"),
        answer("unfused", "How many launches without fusion?", unfused(r), "compared"),
        answer("layer", "Which layer repeats?", layer(r), "strip"),
        answer("backward", "Where does the time of the backward pass go?", backward(r), "strip"),
    ]
}

/// The largest values at the peak.
fn peak(r: &Report) -> String {
    let m = &r.memory;
    let there = at_peak(r);
    let Some(step) = r.steps.get(m.peak_step) else { return "Nothing is computed.".into() };
    let largest: Vec<String> =
        there.iter().take(3).map(|v| format!("{} ({})", v.name, size(v.bytes))).collect();
    let residuals: u64 =
        there.iter().filter(|v| v.kind == ValueKind::Residual).map(|v| v.bytes).sum();
    let share = residuals as f64 / (m.peak_live.max(1)) as f64;
    format!(
        "{} are live at step {} ({} {}). The largest are {}; residuals are {} of it.",
        limit(m.peak_live),
        m.peak_step,
        step.label,
        step.result,
        listed(&largest, 3),
        percent(share)
    )
}

/// The values that are live at the peak, the largest first.
pub(crate) fn at_peak(r: &Report) -> Vec<&LiveValue> {
    let at = r.memory.peak_step;
    let live = |v: &&LiveValue| v.from <= at && at <= v.to && v.bytes > 0;
    let mut there: Vec<&LiveValue> = r.memory.values.iter().filter(live).collect();
    there.sort_by_key(|v| std::cmp::Reverse(v.bytes));
    there
}

/// The residual whose recomputation would cost the most time.
pub(crate) fn worth_most(r: &Report) -> Option<&ResidualRow> {
    let kept = |x: &&ResidualRow| matches!(x.decision, "save" | "compress" | "lossy");
    let cost = |x: &ResidualRow| x.instead.as_ref().map_or(f64::MIN, |i| i.seconds);
    // The first of equals.
    r.residuals.iter().filter(kept).fold(None, |best: Option<&ResidualRow>, x| match best {
        Some(b) if cost(b) >= cost(x) => Some(b),
        _ => Some(x),
    })
}

fn residual(r: &Report) -> String {
    let kept: Vec<&ResidualRow> = r
        .residuals
        .iter()
        .filter(|x| matches!(x.decision, "save" | "compress" | "lossy"))
        .collect();
    let Some(best) = worth_most(r) else {
        return "No value is kept for a later phase.".into();
    };
    let largest = kept.iter().max_by_key(|x| (x.saved, std::cmp::Reverse(&x.value)));
    let size_of = largest.filter(|l| l.value != best.value).map_or_else(String::new, |l| {
        format!(" The largest is {} with {}.", l.value, size(l.saved))
    });
    match &best.instead {
        Some(x) if x.seconds > 0.0 => format!(
            "{}: keeping its {} avoids the {} a step that computing it again would take.{size_of}",
            best.value,
            size(best.saved),
            seconds(x.seconds)
        ),
        Some(_) => format!(
            "{} with {}; computing it again costs no time.{size_of}",
            best.value,
            size(best.saved)
        ),
        None => format!(
            "{} with {}; there is no other plan for it.{size_of}",
            best.value,
            size(best.saved)
        ),
    }
}

/// The fastest plan with a fifth less memory.
fn less_memory(r: &Report) -> String {
    if r.budget.is_empty() {
        return "The frontier was not asked for.".into();
    }
    let (held, now) = (r.memory.held, r.figure("seconds").map_or(0.0, |f| f.fused));
    let wanted = held / 5 * 4 + held % 5 * 4 / 5;
    let fits = r.budget.iter().filter(|p| p.peak <= wanted);
    let best = fits.min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    match best {
        Some(p) => format!(
            "{}: {} instead of {} a step within {}, by a plan that takes {} and computes {}.",
            // A plan that was asked for may be slower than one that takes less memory.
            match (p.seconds - now) / now.max(f64::MIN_POSITIVE) {
                more if more < 0.0 => format!("It saves {} of time", percent(-more)),
                more => format!("{} of time", percent(more)),
            },
            seconds(p.seconds),
            seconds(now),
            limit(wanted),
            limit(p.peak),
            match p.recomputed.len() {
                0 => "nothing again, but shares kernels in another way".into(),
                1 => "one value again".into(),
                n => format!("{n} values again"),
            },
        ),
        None => {
            let least = r.budget.iter().map(|p| p.peak).min().unwrap_or(held);
            format!(
                "No plan takes {}: the least found takes {} of {}.",
                limit(wanted),
                limit(least),
                limit(held)
            )
        }
    }
}

fn unfused_neighbours(r: &Report) -> String {
    match r.candidates.iter().find(|x| !x.fused) {
        Some(x) => format!("{} ({}): {}", listed(&ends(&x.values), 2), x.name, x.reason),
        None if r.candidates.is_empty() => "There are no neighbours.".into(),
        None => "All listed neighbours share a kernel.".into(),
    }
}

/// The first and the last of a list.
fn ends(values: &[String]) -> Vec<String> {
    match values {
        [first, .., last] => vec![first.clone(), last.clone()],
        few => few.to_vec(),
    }
}

/// The steps that a limit is known for, with how many times the least time they take, measured where all are.
pub(crate) fn distances(r: &Report) -> Vec<(usize, f64, f64)> {
    let measured = r.steps.iter().all(|s| s.measured.is_some());
    let of = |(n, s): (usize, &PlanStep)| {
        let time = s.measured.as_ref().filter(|_| measured).map_or(s.seconds, |m| m.seconds);
        (s.limit > 0.0 && time > 0.0).then(|| (n, time / s.limit, time))
    };
    r.steps.iter().enumerate().filter_map(of).collect()
}

fn furthest(r: &Report) -> String {
    let all = distances(r);
    let total: f64 = all.iter().map(|x| x.2).sum();
    // What takes next to no time is of no interest.
    let long = |x: &&(usize, f64, f64)| x.2 >= total / 200.0;
    let most = all.iter().filter(long).max_by(|a, b| a.1.total_cmp(&b.1));
    let Some(&(n, ratio, time)) = most else { return "No step has a limit.".into() };
    let basis = if r.steps.iter().all(|s| s.measured.is_some()) { "measured" } else { "predicted" };
    let s = &r.steps[n];
    format!(
        "Step {n} ({} {}): {} {basis}, {:.1} times the {} that its bytes and operations need at the machine\u{2019}s limits; bound by {}.",
        s.label,
        s.result,
        seconds(time),
        ratio,
        seconds(s.limit),
        s.bound
    )
}

fn recomputed(r: &Report) -> String {
    let values = |names: &[String]| {
        let s = if names.len() == 1 { "" } else { "s" };
        format!("{} value{s}: {}", names.len(), listed(names, 6))
    };
    let times = |x: &crate::data::RecomputedValue| match x.times {
        1 => x.value.clone(),
        n => format!("{} ({n}\u{d7})", x.value),
    };
    let twice: Vec<String> = r.recomputed.iter().map(times).collect();
    // What a kernel computes again for itself alone is a part of its group.
    let is_inside = |x: &&ResidualRow| {
        x.decision == "remat" && r.recomputed.iter().all(|other| other.value != x.value)
    };
    let names = |rows: &mut dyn Iterator<Item = &ResidualRow>| -> Vec<String> {
        rows.map(|x| x.value.clone()).collect()
    };
    let inside = names(&mut r.residuals.iter().filter(is_inside));
    let inverse = names(&mut r.residuals.iter().filter(|x| x.decision == "inverse"));
    let mut told = Vec::new();
    for (names, how) in [
        (&twice, "By more than one kernel"),
        (&inside, "Inside the kernels that read them"),
        (&inverse, "From the results of the operations that read them"),
    ] {
        if !names.is_empty() {
            told.push(format!("{how}: {}.", values(names)));
        }
    }
    let loops: u64 = r.loops.iter().filter_map(|l| l.checkpoints.as_ref()?.forward_steps).sum();
    if loops > 0 {
        told.push(format!("Backward passes over loops run {} steps forward.", count(loops as f64)));
    }
    if told.is_empty() { "Nothing.".into() } else { told.join(" ") }
}

fn one_bit(r: &Report) -> String {
    let bits: Vec<&ResidualRow> = r.residuals.iter().filter(|x| x.bits == Some(1)).collect();
    if bits.is_empty() {
        return "Nothing.".into();
    }
    let names: Vec<String> =
        bits.iter().map(|x| format!("{} ({})", x.value, size(x.bytes))).collect();
    format!(
        "{} value{}: {}.",
        bits.len(),
        if bits.len() == 1 { "" } else { "s" },
        listed(&names, 6)
    )
}

fn unfused(r: &Report) -> String {
    if !r.is_compared_with_unfused() {
        return format!("This page compares with {}.", r.compared_with());
    }
    match r.figure("launches").and_then(|f| Some((f.fused, f.unfused?))) {
        Some((fused, unfused)) => format!(
            "{}; with fusion {}, {}.",
            count(unfused),
            count(fused),
            change((fused, unfused), "fewer")
        ),
        None => "There is no unfused plan to compare with.".into(),
    }
}

fn layer(r: &Report) -> String {
    let most = r.layers.iter().max_by_key(|l| (l.period * l.count, std::cmp::Reverse(l.first)));
    let Some(l) = most else {
        return "No sequence of steps repeats. Equal layers of a model may differ in their kernels."
            .into();
    };
    let time: f64 = r.steps[l.first..l.first + l.period * l.count].iter().map(|s| s.seconds).sum();
    let all: f64 = r.steps.iter().map(|s| s.seconds).sum();
    let others: Vec<String> = (r.layers.iter())
        .filter(|o| *o != l)
        .map(|o| format!("{} {}\u{d7} from step {}", o.name, o.count, o.first))
        .collect();
    let also = match others.as_slice() {
        [] => String::new(),
        some => format!(" Also {}.", listed(some, 3)),
    };
    format!(
        "{}: {} step{}, {}\u{d7} in a row from step {}, {} of the time.{also}",
        capitalized(&l.name),
        l.period,
        if l.period == 1 { "" } else { "s" },
        l.count,
        l.first,
        percent(time / all.max(f64::MIN_POSITIVE))
    )
}

/// A name at the beginning of a sentence.
fn capitalized(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The time of later phases by what steps are called, the most first.
pub(crate) fn backward_time(r: &Report) -> (f64, Vec<(String, f64)>) {
    let mut by_label: BTreeMap<&str, f64> = BTreeMap::new();
    let mut all = 0.0;
    for s in r.steps.iter().filter(|s| s.phase > 0) {
        *by_label.entry(s.label.as_str()).or_default() += s.seconds;
        all += s.seconds;
    }
    let mut sorted: Vec<(String, f64)> =
        by_label.into_iter().map(|(label, time)| (label.to_string(), time)).collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    (all, sorted)
}

fn backward(r: &Report) -> String {
    let (all, parts) = backward_time(r);
    let whole: f64 = r.steps.iter().map(|s| s.seconds).sum();
    if parts.is_empty() {
        return "There is no backward pass.".into();
    }
    let told: Vec<String> = (parts.iter().take(3))
        .map(|(label, time)| format!("{label} {}", percent(time / all.max(f64::MIN_POSITIVE))))
        .collect();
    format!(
        "{} of {} a step ({}): {}.",
        seconds(all),
        seconds(whole),
        percent(all / whole.max(f64::MIN_POSITIVE)),
        told.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_changes_are_words() {
        assert_eq!([launches_of(1.0), launches_of(1200.0)], ["1 launch", "1\u{202f}200 launches"]);
        for (fused, unfused, due) in [
            (2.0, 4.0, "2.0\u{d7} fewer"),
            (4.0, 2.0, "2.0\u{d7} more"),
            (3.0, 3.0, "the same"),
            (0.0, 0.0, "the same"),
            (0.0, 5.0, "0 in place of 5"),
        ] {
            assert_eq!(change((fused, unfused), "fewer"), due, "{fused} {unfused}");
        }
        assert_eq!([capitalized("steps 3-4"), capitalized("")], ["Steps 3-4", ""]);
    }
}
