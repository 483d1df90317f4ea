//! A page that leads to several reports.

use super::head;
use super::markup::escaped;
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
    /// The report.
    pub report: Report,
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
            escaped(&e.report.sentence)
        );
        for key in ["launches", "seconds", "peak"] {
            let Some(f) = e.report.figure(key) else { continue };
            let was = f.unfused.map_or_else(String::new, |x| {
                format!("<dd class=\"was\">{} unfused</dd>", figure(x, f.unit))
            });
            let _ = write!(
                out,
                "<div><dt>{}</dt><dd class=\"now\">{}</dd>{was}</div>",
                f.name,
                figure(f.fused, f.unit)
            );
        }
        out += "</dl></article>";
    }
    out + "</main></body></html>\n"
}
