//! A page that leads to several reports.

use super::markup::{escaped, unescaped};
use super::{SENTENCE, head};
use crate::data::Report;
use crate::units::figure;
use std::fmt::Write as _;

/// A report of a gallery.
pub struct GalleryEntry {
    /// Its name.
    pub name: String,
    /// The file of its page, beside the gallery's.
    pub file: String,
    /// What it is about, in a sentence.
    pub about: String,
    /// What the report says.
    pub shown: GallerySummary,
}

/// What the page of a gallery shows of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GallerySummary {
    /// The sentence.
    pub sentence: String,
    /// Names of figures, the plan's, and the unfused plan's.
    pub numbers: Vec<(String, String, Option<String>)>,
}

impl From<&Report> for GallerySummary {
    fn from(r: &Report) -> GallerySummary {
        let number = |key: &str| {
            let f = r.figure(key)?;
            let was = f.unfused.map(|x| figure(x, f.unit));
            Some((f.name.to_string(), figure(f.fused, f.unit), was))
        };
        let numbers = SHOWN.into_iter().filter_map(number).collect();
        GallerySummary { sentence: r.sentence.clone(), numbers }
    }
}

impl GallerySummary {
    /// The sentence and the figures of a report's page; `None` where it has no sentence.
    pub fn of_page(page: &str) -> Option<GallerySummary> {
        let sentence = unescaped(between(page, SENTENCE, "<")?);
        let number = |key: &str| {
            let shown = between(page, &format!("<div data-key=\"{key}\">"), "</div>")?;
            let was = between(shown, "<dd class=\"was\">", " unfused<").map(unescaped);
            let name = unescaped(between(shown, "<dt>", "<")?);
            Some((name, unescaped(between(shown, "<dd class=\"now\">", "<")?), was))
        };
        Some(GallerySummary { sentence, numbers: SHOWN.into_iter().filter_map(number).collect() })
    }
}

/// The figures that the page of a gallery shows of a report.
const SHOWN: [&str; 3] = ["launches", "seconds", "peak"];

/// What stands between two pieces of a page.
fn between<'a>(page: &'a str, from: &str, to: &str) -> Option<&'a str> {
    page.split_once(from)?.1.split_once(to).map(|(found, _)| found)
}

/// The page of a gallery: the name, the sentence and the figures of each report.
pub fn gallery(entries: &[GalleryEntry]) -> String {
    let mut out = head("Reports of adfuse");
    out += "<header><div class=\"title\"><h1>Reports of plans</h1><p>Each page shows one plan: its memory, its kernels, and what other plans would cost.</p></div></header><main class=\"gallery\">";
    for e in entries {
        let _ = write!(
            out,
            "<article class=\"panel\"><h2><a href=\"{}\">{}</a></h2><p class=\"lead\">{}</p><p>{}</p><dl class=\"numbers\">",
            escaped(&e.file),
            escaped(&e.name),
            escaped(&e.about),
            escaped(&e.shown.sentence)
        );
        for (name, now, was) in &e.shown.numbers {
            let was = was.as_ref().map_or_else(String::new, |was| {
                format!("<dd class=\"was\">{} unfused</dd>", escaped(was))
            });
            let _ = write!(
                out,
                "<div><dt>{}</dt><dd class=\"now\">{}</dd>{was}</div>",
                escaped(name),
                escaped(now)
            );
        }
        out += "</dl></article>";
    }
    out + "</main></body></html>\n"
}
