//! A report as one page without anything from elsewhere: pictures as inline SVG, the data as JSON, a style and a script.

mod budget;
mod gallery;
mod loops;
mod markup;
mod memory;
mod roofline;
mod script;
mod strip;
mod tables;

pub use gallery::{GalleryEntry, GallerySummary, gallery};

use crate::collect::residuals::MOST_PRICED;
use crate::data::{Basis, Report};
use crate::units::figure;
use markup::{Svg, escaped, script_json};
use script::ScriptData;
use std::fmt::Write as _;

/// The style of pictures, alone or in a page.
const FIGURE_STYLE: &str = concat!(
    include_str!("../../assets/light.css"),
    "@media (prefers-color-scheme: dark) { :root:not([data-theme=\"light\"]) {\n",
    include_str!("../../assets/dark.css"),
    "} }\n:root[data-theme=\"dark\"] {\n",
    include_str!("../../assets/dark.css"),
    "}\n",
    include_str!("../../assets/figure.css"),
);
/// The style of pages.
const PAGE_STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");

/// The panels of a page: the element, the name in the navigation.
const PANELS: [(&str, &str); 9] = [
    ("questions", "Questions"),
    ("memory", "Memory"),
    ("strip", "Steps"),
    ("residuals", "Residuals"),
    ("budget", "Budget"),
    ("roofline", "Roofline"),
    ("candidates", "Fusion"),
    ("compared", "Unfused"),
    ("loops", "Loops"),
];

/// What begins the sentence of a page.
const SENTENCE: &str = "<p class=\"sentence\" id=\"sentence\">";

/// The page of a report.
pub fn page(r: &Report) -> String {
    let mut out = head(&format!("@{} on {}", r.function, r.device));
    out += &top(r);
    out += "<main>";
    out += &questions(r);
    pictures(&mut out, r);
    lists(&mut out, r);
    out += "</main>";
    let _ = write!(
        out,
        "<footer><p>Made by adfuse {} from plan <code>{}</code> of function <code>{}</code>. Predicted figures are those of the cost model and follow from the structure of the program; measured ones come from runs.</p></footer>",
        env!("CARGO_PKG_VERSION"),
        r.plan,
        r.graph
    );
    // What is shown can always be written: there are no maps with other keys than strings.
    let json = serde_json::to_string(&ScriptData::of(r)).unwrap_or_else(|_| "{}".into());
    let _ = writeln!(
        out,
        "<script type=\"application/json\" id=\"report-data\">{}</script><script>{SCRIPT}</script></body></html>",
        script_json(&json)
    );
    out
}

/// The panels of memory, of the step and of its residuals.
fn pictures(out: &mut String, r: &Report) {
    let memory = format!(
        "{}{}<h3>What is there at the peak</h3>{}",
        memory::legend(r),
        scroll(&memory::picture(r), "memory-figure"),
        wide(&memory::table(r))
    );
    panel(out, ("memory", "Memory over time"), MEMORY_LEAD, &memory);
    let strip = format!(
        "{BOUND_LEGEND}{}<div id=\"step-detail\" class=\"detail\" aria-live=\"polite\"><p class=\"hint\">Choose a kernel to see what it computes, where that stands in the source, and why it is apart from the one before.</p></div><h3>Where the time goes</h3>{}",
        scroll(&strip::picture(r), "strip-figure"),
        tables::time_bars(r)
    );
    panel(out, ("strip", "The step"), STRIP_LEAD, &strip);
    let unpriced = r.residuals.iter().filter(|x| !x.priced).count();
    let limit = match unpriced {
        0 => String::new(),
        n => format!(
            " Plans were made for the {MOST_PRICED} values, or sets of equal values, of the most bytes; {n} others were not priced, and <code>adfuse plan --explain</code> prices any of them."
        ),
    };
    let lead = format!(
        "What the plan decided about each value, and what the other decision would change. A plan was made and priced for each value, or for the same value of an equal layer, which the table then names.{limit}"
    );
    let residuals = wide(&tables::residuals(r));
    panel(out, ("residuals", "Values that later phases need"), &lead, &residuals);
}

/// The panels of other plans, of the machine's limits, and of loops.
fn lists(out: &mut String, r: &Report) {
    let frontier = budget::picture(r).map(|svg| {
        format!(
            "{}<div id=\"point-detail\" class=\"detail\" aria-live=\"polite\"><p class=\"hint\">Choose a point to see its plan.</p></div>{}",
            scroll(&svg, "budget-figure"),
            wide(&budget::table(r))
        )
    });
    let frontier =
        frontier.unwrap_or_else(|| "<p>The plans for other budgets were not asked for.</p>".into());
    let lead = "The fastest plan that was found within each budget.";
    panel(out, ("budget", "Time for memory"), lead, &frontier);
    let roofline = format!("{BOUND_LEGEND}{}", scroll(&roofline::picture(r), "roofline-figure"));
    panel(out, ("roofline", "Roofline"), ROOFLINE_LEAD, &roofline);
    let lead = "Neighbours, scored by the bytes and launches that one kernel saves; why the plan has them together or apart.";
    let candidates = wide(&tables::candidates(r));
    panel(out, ("candidates", "What might share a kernel"), lead, &candidates);
    let lead = match r.is_compared_with_unfused() {
        true => "The same function with nothing fused.",
        false => "The same function, planned with another effort.",
    };
    let compared = wide(&tables::compared(r));
    let title = format!("Compared with {}", r.compared_with());
    panel(out, ("compared", &title), lead, &compared);
    if !r.loops.is_empty() {
        let drawn = loops::pictures(r);
        let drawn =
            drawn.iter().enumerate().map(|(k, svg)| scroll(svg, &format!("loop-figure-{k}")));
        let drawn = drawn.collect::<String>();
        let legend = if drawn.is_empty() { "" } else { SCHEDULE_LEGEND };
        let body = format!("{}{legend}{drawn}", wide(&loops::table(r)));
        let lead = "How many steps each takes, what it carries, and how the backward pass gets what it needs.";
        panel(out, ("loops", "Loops"), lead, &body);
    }
}

const MEMORY_LEAD: &str = "Bytes that are live while each step runs. What the caller holds is grey; what the plan decides about has colours. The dashed line is what the plan holds for the whole run. It is higher than the live bytes where the places of values leave gaps.";
const STRIP_LEAD: &str = "A box is a kernel, as wide as its time. Lines go from the kernel that computes a value to the one that reads it in a later phase: full for kept, dashed for computed again, dotted for kept in fewer bits. Of layers that repeat one is drawn. Click a box, or go through boxes by the arrow keys.";
const ROOFLINE_LEAD: &str = "Each disc is a kernel: to the right with operations for each byte that it moves, up with operations a second, and larger the more time it takes. The lines are the limits of the machine: a kernel under a slanting line waits for that memory, one under a level line for arithmetic, and the gap up to the line is what a better kernel could gain. Discs are predicted; a ring is the same kernel, measured.";

/// The pictures of a report as files of their own: names without an ending, and SVG.
pub fn svgs(r: &Report) -> Vec<(String, String)> {
    let mut all = vec![
        ("memory".to_string(), memory::picture(r)),
        ("step".to_string(), strip::picture(r)),
        ("roofline".to_string(), roofline::picture(r)),
    ];
    all.extend(budget::picture(r).map(|svg| ("budget".to_string(), svg)));
    let schedules = loops::pictures(r).into_iter().enumerate();
    all.extend(schedules.map(|(k, svg)| (format!("loop-{k}"), svg)));
    all.into_iter().map(|(name, svg)| (name.clone(), svg.file(&name, FIGURE_STYLE))).collect()
}

/// The beginning of a document.
fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\
         <link rel=\"icon\" href=\"data:,\"><title>{}</title><style>{FIGURE_STYLE}{PAGE_STYLE}</style></head><body>",
        escaped(title)
    )
}

const SCHEDULE_LEGEND: &str = "<p class=\"lead\">The picture shows a backward pass with checkpoints: blue lines are steps forward, orange lines are steps back, and a dotted line is a state that is kept until its step is done.</p>";
const BOUND_LEGEND: &str = "<ul class=\"legend\" aria-label=\"What bounds the time of a kernel\"><li><span class=\"swatch memory\"></span>bound by memory</li><li><span class=\"swatch compute\"></span>by arithmetic</li><li><span class=\"swatch launch\"></span>by launching</li></ul>";

/// What the plan does in one sentence and five numbers.
fn top(r: &Report) -> String {
    let budget = r
        .memory
        .budget
        .map_or_else(String::new, |b| format!(", budget {}", crate::units::limit(b)));
    let mut out = format!(
        "<header><div class=\"title\"><h1><code>@{}</code></h1><p>{}, planned for {}, floating point {}, effort {}, layout {}{budget}</p></div>\
         <button id=\"theme\" type=\"button\" aria-pressed=\"false\">Dark</button></header>\
         <nav aria-label=\"Panels\">",
        escaped(&r.function),
        escaped(&r.origin),
        escaped(&r.device),
        escaped(&r.fp),
        escaped(&r.effort),
        escaped(&r.layout),
    );
    for (id, name) in PANELS.iter().filter(|(id, _)| *id != "loops" || !r.loops.is_empty()) {
        let _ = write!(out, "<a href=\"#{id}\">{name}</a>");
    }
    let _ = write!(
        out,
        "</nav>{SENTENCE}{}</p><dl class=\"numbers\" id=\"numbers\">",
        escaped(&r.sentence)
    );
    for key in ["launches", "bytes", "seconds", "peak", "saved"] {
        let Some(f) = r.figure(&format!("measured_{key}")).or_else(|| r.figure(key)) else {
            continue;
        };
        let unfused = f.unfused.map_or_else(String::new, |x| {
            format!("<dd class=\"was\">{} {}</dd>", figure(x, f.unit), r.compared_label())
        });
        let _ = write!(
            out,
            "<div data-key=\"{key}\"><dt>{}</dt><dd class=\"now\">{}</dd>{unfused}<dd>{}</dd></div>",
            f.name,
            figure(f.fused, f.unit),
            tables::basis(f.basis)
        );
    }
    out + "</dl>"
}

/// Questions with their answers, each with the panel that shows more.
fn questions(r: &Report) -> String {
    let mut out = String::from(
        "<section id=\"questions\" class=\"panel\"><h2>Ten questions</h2><dl class=\"answers\">",
    );
    for a in &r.answers {
        let _ = write!(
            out,
            "<div data-answer=\"{}\"><dt><a href=\"#{}\">{}</a></dt><dd>{}</dd></div>",
            a.key,
            a.panel,
            escaped(a.question),
            escaped(&a.answer)
        );
    }
    out + "</dl></section>"
}

/// A panel with predicted figures; measured ones are marked where they stand.
fn panel(out: &mut String, (id, title): (&str, &str), lead: &str, body: &str) {
    let _ = write!(
        out,
        "<section id=\"{id}\" class=\"panel\"><h2>{title} {}</h2><p class=\"lead\">{lead}</p>{body}</section>",
        tables::basis(Basis::Predicted)
    );
}

/// A picture that scrolls where it would be too small to read.
fn scroll(svg: &Svg, id: &str) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Picture, scrolls sideways\">{}</div>",
        svg.element(id)
    )
}

/// A table that scrolls sideways where it is wider than the page.
fn wide(table: &str) -> String {
    format!("<div class=\"wide\">{table}</div>")
}
