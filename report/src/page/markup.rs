//! Text and pictures as markup. Every text of a program goes through [`escaped`].

use std::fmt::{self, Display, Write as _};

/// A text as it is written in HTML and SVG, in elements and in attributes.
pub(super) struct Escaped<'a>(&'a str);

/// Escapes a text.
pub(super) fn escaped(text: &str) -> Escaped<'_> {
    Escaped(text)
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Characters that no document may have.
                c if c.is_control() && c != '\n' && c != '\t' => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// The text that was [`escaped`].
pub(super) fn unescaped(markup: &str) -> String {
    // What is replaced last makes no new reference.
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(markup.to_string(), |text, (from, to)| text.replace(from, to))
}

/// JSON as the text of a script element: it has no `<`, so that it ends no element.
pub(super) fn script_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// The first characters of a text, with a mark where it is cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}\u{2026}")
}

/// Where the axes of a picture are: what is around them holds their texts.
#[derive(Clone, Copy)]
pub(super) struct PlotArea {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl PlotArea {
    /// Where a part of the width is, from the left.
    pub(super) fn x(&self, part: f64) -> f64 {
        self.left + (self.width - self.left - self.right) * part
    }

    /// Where a part of the height is, from the bottom.
    pub(super) fn y(&self, part: f64) -> f64 {
        self.height - self.bottom - (self.height - self.bottom - self.top) * part
    }

    /// An empty picture with the names of its axes.
    pub(super) fn picture(&self, title: &str, (x, y): (&str, &str)) -> Svg {
        let mut svg = Svg::new(self.width, self.height, title);
        let middle = (self.left + self.width - self.right) / 2.0;
        svg.text("axis middle", (middle, self.height - 8.0), x);
        svg.text("axis", (0.0, 12.0), y);
        svg
    }

    /// A mark of the axis to the right, with its line.
    pub(super) fn mark_x(&self, svg: &mut Svg, x: f64, text: &str) {
        let bottom = self.height - self.bottom;
        svg.line("grid", (x, self.top), (x, bottom));
        svg.text("tick middle", (x, bottom + 17.0), text);
    }

    /// A mark of the axis upwards, with its line.
    pub(super) fn mark_y(&self, svg: &mut Svg, y: f64, text: &str) {
        svg.line("grid", (self.left, y), (self.width - self.right, y));
        svg.text("tick end", (self.left - 8.0, y + 4.0), text);
    }
}

/// A picture that grows.
pub(super) struct Svg {
    width: f64,
    height: f64,
    title: String,
    body: String,
}

impl Svg {
    /// An empty picture with its title, which screen readers read.
    pub(super) fn new(width: f64, height: f64, title: impl Into<String>) -> Svg {
        Svg { width, height, title: title.into(), body: String::new() }
    }

    /// Adds markup.
    pub(super) fn put(&mut self, markup: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.body.write_fmt(markup);
        self.body.push('\n');
    }

    /// A line.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((a, b), (c, d)) = (from, to);
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{a:.1}\" y1=\"{b:.1}\" x2=\"{c:.1}\" y2=\"{d:.1}\"/>"
        ));
    }

    /// A text at a place.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escaped(text);
        self.put(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
    }

    /// The picture as an element of a page.
    pub(super) fn element(&self, id: &str) -> String {
        let Svg { width, height, title, body } = self;
        format!(
            "<svg id=\"{id}\" class=\"figure\" role=\"group\" aria-labelledby=\"{id}-title\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             xmlns=\"http://www.w3.org/2000/svg\"><title id=\"{id}-title\">{}</title>\n{body}</svg>",
            escaped(title)
        )
    }

    /// The picture as a file of its own.
    pub(super) fn file(&self, id: &str, style: &str) -> String {
        let Svg { width, height, .. } = self;
        let element = self.element(id);
        let (open, rest) = element.split_once('>').unwrap_or((&element, ""));
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{open} width=\"{width:.0}\" height=\"{height:.0}\"><style>{style}</style>\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>{rest}\n"
        )
    }
}

/// Round marks of an axis from 0 to a number, about this many.
pub(super) fn marks(most: f64, wanted: usize, binary: bool) -> Vec<f64> {
    marks_between((0.0, most), wanted, binary)
}

/// Round marks of an axis between two numbers, about this many.
pub(super) fn marks_between((low, high): (f64, f64), wanted: usize, binary: bool) -> Vec<f64> {
    if high.is_nan() || low.is_nan() || high <= low {
        return vec![low];
    }
    let rough = (high - low) / wanted.max(1) as f64;
    // Bytes are told in powers of 1024, so that their round numbers are powers of two.
    let step = match binary {
        true => rough.max(1.0).log2().ceil().exp2(),
        false => {
            let scale = 10f64.powf(rough.log10().floor());
            let round = [1.0, 2.0, 5.0, 10.0].into_iter().map(|k| k * scale).find(|s| *s >= rough);
            round.unwrap_or(rough)
        }
    };
    let first = (low / step).ceil();
    let count = ((high / step).floor() - first).max(0.0) as usize;
    (0..=count.min(50)).map(|k| (first + k as f64) * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_element() {
        let text = "</script><img src=x onerror='a'>&\"\u{1}";
        assert_eq!(
            escaped(text).to_string(),
            "&lt;/script&gt;&lt;img src=x onerror=&#39;a&#39;&gt;&amp;&quot;\u{fffd}"
        );
        for text in ["a < b & c > 'd' \"", "&lt;", "&amp;lt;"] {
            assert_eq!(unescaped(&escaped(text).to_string()), text);
        }
        assert_eq!(script_json("\"</script>\u{2028}\""), "\"\\u003c/script>\\u2028\"");
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".to_string(), "ab\u{2026}".to_string()));
    }

    #[test]
    fn marks_are_round_and_within() {
        assert_eq!(marks(10.0, 5, false), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(marks(3.0 * 1024.0, 3, true), [0.0, 1024.0, 2048.0, 3072.0]);
        let mib = 1048576.0;
        assert_eq!(marks(2.4 * mib, 6, true), [0.0, 0.5 * mib, mib, 1.5 * mib, 2.0 * mib]);
        assert_eq!(marks(0.0, 5, true), [0.0]);
        assert!(marks(f64::MAX, 5, false).len() <= 51);
    }
}
