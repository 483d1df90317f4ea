//! The tables of a page: residuals, candidates, fused beside unfused, and where time goes.

use super::markup::escaped;
use crate::collect::answers::worth_most;
use crate::data::{Basis, PlanStep, Report, ResidualRow};
use crate::units::{bytes, figure, metric, percent, seconds};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The mark of a figure's origin.
pub(super) fn basis(of: Basis) -> &'static str {
    match of {
        Basis::Predicted => "<span class=\"basis predicted\">predicted</span>",
        Basis::Measured => "<span class=\"basis measured\">measured</span>",
    }
}

/// The plan beside the unfused plan.
pub(super) fn compared(r: &Report) -> String {
    let mut out = format!(
        "<table id=\"figures\"><thead><tr><th>figure</th><th class=\"n\">this plan</th><th class=\"n\">{}</th><th class=\"n\">times less</th><th>origin</th></tr></thead><tbody>",
        r.compared_label()
    );
    for f in &r.figures {
        let unfused = f.unfused.map_or_else(|| "\u{2013}".into(), |x| figure(x, f.unit));
        let ratio = match f.unfused {
            Some(x) if f.fused > 0.0 => format!("{:.2}", x / f.fused),
            _ => "\u{2013}".into(),
        };
        let _ = write!(
            out,
            "<tr data-key=\"{}\"><th scope=\"row\">{}</th><td class=\"n\" data-v=\"{}\">{}</td><td class=\"n\" data-v=\"{}\">{unfused}</td><td class=\"n\">{ratio}</td><td>{}</td></tr>",
            f.key,
            f.name,
            f.fused,
            figure(f.fused, f.unit),
            f.unfused.unwrap_or(0.0),
            basis(f.basis)
        );
    }
    out += "</tbody></table>";
    if let Some(m) = &r.measured {
        let copy = m.copy_bytes_per_s.map_or_else(String::new, |rate| {
            format!("; a copy measured in turns with it moved {}B/s", metric(rate))
        });
        let _ = write!(
            out,
            "<p>Measured on {} (engine {}): median {}, 10 % to 90 % of {} samples {} to {}{copy}.</p>",
            escaped(&m.machine),
            escaped(&m.engine),
            seconds(m.seconds[1]),
            m.samples,
            seconds(m.seconds[0]),
            seconds(m.seconds[2]),
        );
        if !m.counters.is_empty() {
            let all = m
                .counters
                .iter()
                .map(|(name, n)| format!("{} {}", escaped(name), metric(*n as f64)));
            let _ = write!(
                out,
                "<p>Counters of one run, of all threads of the process in user mode: {}.</p>",
                all.collect::<Vec<_>>().join(", ")
            );
        }
    }
    for why in &r.unmeasured {
        let _ = write!(out, "<p class=\"unmeasured\">{}</p>", escaped(why));
    }
    out + &kernels(r)
}

/// Registers and occupancy of each kernel, predicted and, where the driver has said them, measured.
fn kernels(r: &Report) -> String {
    let measured = r.steps.iter().any(|s| s.measured.is_some());
    let mut out = String::from(
        "<details><summary>Every kernel</summary><table id=\"kernels\" class=\"sortable\"><thead><tr><th class=\"n\">step</th><th>kernel</th><th class=\"n\">time, predicted</th>",
    );
    if measured {
        out += "<th class=\"n\">time, measured</th><th class=\"n\">registers, of the driver</th><th class=\"n\">local memory</th>";
    }
    out += "<th class=\"n\">at its limits</th><th class=\"n\">launches</th><th class=\"n\">bytes</th><th class=\"n\">operations</th><th class=\"n\">registers, predicted</th><th class=\"n\">occupancy, predicted</th></tr></thead><tbody>";
    for (n, s) in r.steps.iter().enumerate() {
        let _ = write!(
            out,
            "<tr data-step=\"{n}\"><td class=\"n\" data-v=\"{n}\">{n}</td><td>{}</td><td class=\"n\" data-v=\"{:.5e}\">{}</td>",
            escaped(&s.label),
            s.seconds,
            seconds(s.seconds)
        );
        if measured {
            out += &measured_cells(s);
        }
        let moved = s.read_bytes.saturating_add(s.written_bytes);
        let _ = write!(
            out,
            "<td class=\"n\" data-v=\"{:.5e}\">{}</td><td class=\"n\" data-v=\"{4}\">{4}</td><td class=\"n\" data-v=\"{moved}\">{}</td><td class=\"n\" data-v=\"{}\">{5}</td><td class=\"n\" data-v=\"{6}\">{6}</td><td class=\"n\" data-v=\"{7}\">{8}</td></tr>",
            s.limit,
            seconds(s.limit),
            bytes(moved as f64),
            s.ops,
            s.launches,
            metric(s.ops as f64),
            s.registers,
            s.occupancy,
            percent(s.occupancy)
        );
    }
    out + "</tbody></table></details>"
}

fn measured_cells(s: &PlanStep) -> String {
    let Some(m) = &s.measured else { return "<td></td><td></td><td></td>".into() };
    let number = |n: Option<u32>| n.map_or_else(|| "\u{2013}".into(), |n| n.to_string());
    format!(
        "<td class=\"n\" data-v=\"{:.5e}\">{}</td><td class=\"n\" data-v=\"{}\">{}</td><td class=\"n\" data-v=\"{}\">{}</td>",
        m.seconds,
        seconds(m.seconds),
        m.registers.unwrap_or(0),
        number(m.registers),
        m.local_bytes.unwrap_or(0),
        m.local_bytes.map_or_else(|| "\u{2013}".into(), |n| bytes(f64::from(n))),
    )
}

/// Where a value stands in the source, behind its name.
pub(super) fn line(of: Option<&str>) -> String {
    of.map_or_else(String::new, |line| format!(" <small class=\"line\">{}</small>", escaped(line)))
}

/// The most residuals that are listed.
const MOST_RESIDUALS: usize = 500;

/// What becomes of every value that a later phase needs.
pub(super) fn residuals(r: &Report) -> String {
    let shown: Vec<&ResidualRow> =
        r.residuals.iter().filter(|x| !matches!(x.decision, "parameter" | "constant")).collect();
    let given = r.residuals.len() - shown.len();
    if shown.is_empty() {
        return "<p>No value goes from one phase to a later one.</p>".into();
    }
    let worth = worth_most(r).map(|x| x.value.as_str());
    let mut out = String::from(
        "<table id=\"residual-values\" class=\"sortable\"><thead><tr><th>value</th><th>type</th><th>decision</th><th class=\"n\">bytes kept</th><th>the other way</th><th class=\"n\">changes time by</th><th class=\"n\">peak by</th><th>settled by</th></tr></thead><tbody>",
    );
    for x in shown.iter().take(MOST_RESIDUALS) {
        let bits = x.bits.map_or_else(String::new, |n| {
            format!(" <small>{n} bit{}</small>", if n == 1 { "" } else { "s" })
        });
        let line = line(x.line.as_deref());
        let best = if worth == Some(x.value.as_str()) {
            " class=\"chosen\" data-worth=\"most\""
        } else {
            ""
        };
        let sources = match x.sources.as_slice() {
            [] => String::new(),
            all => format!(
                " from {}",
                all.iter().map(|s| escaped(s).to_string()).collect::<Vec<_>>().join(", ")
            ),
        };
        let _ = write!(
            out,
            "<tr{best} data-value=\"{0}\" data-decision=\"{1}\"{4}><th scope=\"row\"><code>{0}</code>{line}</th><td><code>{2}</code></td><td><span class=\"decision {1}\">{3}</span>{bits}{sources}</td><td class=\"n\" data-v=\"{5}\">{6}</td>",
            escaped(&x.value),
            x.decision,
            escaped(&x.ty),
            decision(x.decision),
            x.bits.map_or_else(String::new, |n| format!(" data-bits=\"{n}\"")),
            x.saved,
            bytes(x.saved as f64),
        );
        let _ = match &x.instead {
            Some(i) => write!(
                out,
                "<td>{}{}</td><td class=\"n\" data-v=\"{:.5e}\">{}</td><td class=\"n\" data-v=\"{}\">{}</td>",
                if i.decision == "remat" { "compute again" } else { "keep" },
                i.priced_for.as_ref().map_or_else(String::new, |v| format!(
                    " <small>as <code>{}</code></small>",
                    escaped(v)
                )),
                i.seconds,
                signed_seconds(i.seconds),
                i.peak,
                signed_bytes(i.peak),
            ),
            None => write!(out, "<td>none</td><td class=\"n\"></td><td class=\"n\"></td>"),
        };
        let _ = write!(out, "<td>{}</td></tr>", escaped(&x.why));
    }
    out += "</tbody></table>";
    if shown.len() > MOST_RESIDUALS {
        let _ = write!(out, "<p class=\"more\">and {} more</p>", shown.len() - MOST_RESIDUALS);
    }
    if given > 0 {
        let _ = write!(
            out,
            "<p class=\"more\">{given} parameters and constants that later phases read are there anyway.</p>"
        );
    }
    out
}

/// A decision in a person's words.
fn decision(name: &str) -> &str {
    match name {
        "save" => "kept",
        "compress" => "kept in fewer bits",
        "lossy" => "kept with losses",
        "remat" => "computed again",
        "shared" => "never stored",
        "output" => "a result anyway",
        "inverse" => "recovered",
        other => other,
    }
}

fn signed_seconds(s: f64) -> String {
    if s > 0.0 { format!("+{}", seconds(s)) } else { seconds(s) }
}

/// Bytes with their sign.
pub(super) fn signed_bytes(n: i64) -> String {
    if n > 0 { format!("+{}", bytes(n as f64)) } else { bytes(n as f64) }
}

/// Fusion candidates.
pub(super) fn candidates(r: &Report) -> String {
    if r.candidates.is_empty() {
        return "<p>No two operations are neighbours.</p>".into();
    }
    let mut out = String::from(
        "<p class=\"tools\"><label>Find a value or a reason: <input id=\"candidate-filter\" type=\"search\" placeholder=\"%h\"></label> \
         <label><input id=\"candidate-apart\" type=\"checkbox\"> only those that are not fused</label> <output id=\"candidate-count\"></output></p>\
         <table id=\"candidate-rows\" class=\"sortable\"><thead><tr><th>values</th><th>neighbours by</th><th>operations</th><th class=\"n\">score</th><th class=\"n\">would save</th><th class=\"n\">of it launches</th><th class=\"n\">registers</th><th class=\"n\">op/byte</th><th>fused</th><th>why, or why not</th></tr></thead><tbody>",
    );
    for x in &r.candidates {
        let names: Vec<String> = x.values.iter().map(|v| escaped(v).to_string()).collect();
        let shown = match names.as_slice() {
            [first, _, _, .., last] => format!("{first} \u{2026} {last}"),
            all => all.join(" "),
        };
        let _ = write!(
            out,
            "<tr data-fused=\"{0}\" data-values=\"{1}\"><th scope=\"row\"><code title=\"{1}\">{shown}</code></th><td>{2}</td><td>{3}</td><td class=\"n\" data-v=\"{4:.6}\">{4:.2}</td><td class=\"n\" data-v=\"{5:.0}\">{6}</td><td class=\"n\" data-v=\"{7:.6}\">{8}</td><td class=\"n\" data-v=\"{9}\">{9}</td><td class=\"n\" data-v=\"{10:.4}\">{10:.1}</td><td>{11}</td><td class=\"why\">{12}</td></tr>",
            x.fused,
            names.join(" "),
            x.relation,
            escaped(&x.name),
            x.score,
            x.saved_bytes,
            bytes(x.saved_bytes),
            x.launch_share,
            percent(x.launch_share),
            x.registers,
            x.intensity,
            if x.fused { "yes" } else { "no" },
            escaped(&x.reason),
        );
    }
    out += "</tbody></table>";
    if r.candidate_count > r.candidates.len() {
        let _ = write!(
            out,
            "<p class=\"more\">{} of {} candidates, the best of those that are fused and of those that are not</p>",
            r.candidates.len(),
            r.candidate_count
        );
    }
    out
}

/// Time by what steps are called, for each phase, as bars.
pub(super) fn time_bars(r: &Report) -> String {
    let mut phases: BTreeMap<u16, BTreeMap<&str, (f64, usize)>> = BTreeMap::new();
    for s in &r.steps {
        let row = phases.entry(s.phase).or_default().entry(s.label.as_str()).or_default();
        row.0 += s.seconds;
        row.1 += 1;
    }
    let whole: f64 = r.steps.iter().map(|s| s.seconds).sum();
    let most = phases.values().flat_map(BTreeMap::values).map(|x| x.0).fold(0.0, f64::max);
    let mut out = String::from("<div class=\"bars\">");
    for (phase, labels) in phases {
        let mut rows: Vec<(&str, (f64, usize))> = labels.into_iter().collect();
        rows.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
        let all: f64 = rows.iter().map(|x| x.1.0).sum();
        let name = match phase {
            0 => "forward".to_string(),
            1 => "backward".to_string(),
            n => format!("phase {n}"),
        };
        let _ = write!(
            out,
            "<table class=\"time\" data-phase=\"{phase}\"><caption>{name}: {} ({} of the step)</caption><tbody>",
            seconds(all),
            percent(all / whole.max(f64::MIN_POSITIVE))
        );
        for (label, (time, count)) in rows.iter().take(7) {
            let _ = write!(
                out,
                "<tr data-label=\"{0}\"><th scope=\"row\">{0} <small>{count}\u{d7}</small></th><td class=\"n\" data-v=\"{time:.5e}\">{1}</td><td class=\"n\">{2}</td><td class=\"bar\"><span style=\"width:{3:.1}%\"></span></td></tr>",
                escaped(label),
                seconds(*time),
                percent(time / all.max(f64::MIN_POSITIVE)),
                100.0 * time / most.max(f64::MIN_POSITIVE),
            );
        }
        if rows.len() > 7 {
            let rest: f64 = rows[7..].iter().map(|x| x.1.0).sum();
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{} others</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td></td></tr>",
                rows.len() - 7,
                seconds(rest),
                percent(rest / all.max(f64::MIN_POSITIVE))
            );
        }
        out += "</tbody></table>";
    }
    out + "</div>"
}
