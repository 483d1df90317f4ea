//! The picture of a step: its kernels by phase, with the values that go from one phase to a later one.

use super::markup::{Svg, cut, escaped};
use crate::data::{PlanStep, RepeatedLayer, Report, ResidualRow};
use crate::units::{bytes, seconds};
use std::collections::{BTreeMap, BTreeSet};

const WIDTH: f64 = 1080.0;
const LEFT: f64 = 92.0;
const BOX: f64 = 56.0;
/// Between the boxes of two rows: where values go through.
const GAP: f64 = 128.0;
const TOP: f64 = 44.0;
/// The narrowest box.
const LEAST: f64 = 2.5;
/// The most values that are drawn.
const MOST_ARROWS: usize = 70;

/// Where the box of a step is.
#[derive(Clone, Copy)]
struct BoxPlace {
    x: f64,
    w: f64,
    row: usize,
}

impl BoxPlace {
    fn y(&self) -> f64 {
        TOP + self.row as f64 * (BOX + GAP)
    }

    fn middle(&self) -> f64 {
        self.x + self.w / 2.0
    }
}

/// What is drawn: one occurrence of each layer, and the steps outside of layers.
struct Strip<'a> {
    r: &'a Report,
    /// Phases, a row each.
    phases: Vec<u16>,
    places: BTreeMap<usize, BoxPlace>,
    /// For each step the one that is drawn for it.
    drawn: Vec<usize>,
}

/// Rows of phases in which time goes to the right and to the left by turns, so that a value goes straight down from the
/// kernel that computes it to the one that reads it on the way back.
pub(super) fn picture(r: &Report) -> Svg {
    let strip = Strip::of(r);
    let rows = strip.phases.len().max(1) as f64;
    let height = TOP + rows * BOX + (rows - 1.0) * GAP + 52.0;
    let title =
        format!("The {} steps by phase, with the values that later phases need", r.steps.len());
    let mut svg = Svg::new(WIDTH, height, title);
    strip.names(&mut svg);
    strip.arrows(&mut svg);
    strip.boxes(&mut svg);
    strip.brackets(&mut svg);
    svg
}

impl<'a> Strip<'a> {
    fn of(r: &'a Report) -> Strip<'a> {
        let phases: BTreeSet<u16> = r.steps.iter().map(|s| s.phase).collect();
        let phases: Vec<u16> = phases.into_iter().collect();
        let mut drawn: Vec<usize> = (0..r.steps.len()).collect();
        for l in &r.layers {
            (0..l.period * l.count).for_each(|k| drawn[l.first + k] = l.first + k % l.period);
        }
        let mut strip = Strip { r, phases, places: BTreeMap::new(), drawn };
        strip.place();
        strip
    }

    fn visible(&self, phase: u16) -> impl Iterator<Item = (usize, &'a PlanStep)> + '_ {
        let r = self.r;
        r.steps.iter().enumerate().filter(move |(n, s)| s.phase == phase && self.drawn[*n] == *n)
    }

    /// Widths by time, as far as boxes have their least width.
    fn place(&mut self) {
        let room = WIDTH - LEFT - 4.0;
        let row = |phase: u16| {
            let all: Vec<f64> = self.visible(phase).map(|(_, s)| s.seconds).collect();
            all
        };
        let rows: Vec<Vec<f64>> = self.phases.iter().map(|&p| row(p)).collect();
        let fit = |times: &Vec<f64>| {
            let sum: f64 = times.iter().sum();
            let spare = room - LEAST * times.len() as f64;
            if sum > 0.0 { spare.max(room * 0.2) / sum } else { 0.0 }
        };
        let scale = rows.iter().map(fit).filter(|s| *s > 0.0).fold(f64::INFINITY, f64::min);
        let scale = if scale.is_finite() { scale } else { 1.0 };
        let mut places = BTreeMap::new();
        for (k, &phase) in self.phases.iter().enumerate() {
            let steps: Vec<(usize, &PlanStep)> = self.visible(phase).collect();
            let widths: Vec<f64> = steps.iter().map(|(_, s)| LEAST + s.seconds * scale).collect();
            let sum: f64 = widths.iter().sum();
            // Long rows of short steps are pressed together.
            let press = (room / sum.max(1.0)).min(1.0);
            let turned = k % 2 == 1;
            let mut x = if turned { WIDTH - 4.0 } else { WIDTH - 4.0 - sum * press };
            for ((n, _), w) in steps.iter().zip(widths) {
                let w = w * press;
                x -= if turned { w } else { 0.0 };
                places.insert(*n, BoxPlace { x, w, row: k });
                x += if turned { 0.0 } else { w };
            }
        }
        self.places = places;
    }

    fn names(&self, svg: &mut Svg) {
        for (k, &phase) in self.phases.iter().enumerate() {
            let y = TOP + k as f64 * (BOX + GAP) + BOX / 2.0;
            let time: f64 =
                self.r.steps.iter().filter(|s| s.phase == phase).map(|s| s.seconds).sum();
            let name = match phase {
                0 => "forward".to_string(),
                1 => "backward".to_string(),
                n => format!("phase {n}"),
            };
            let name =
                if k % 2 == 1 { format!("\u{2190} {name}") } else { format!("{name} \u{2192}") };
            svg.text("row-name", (0.0, y - 2.0), &name);
            svg.text("tick", (0.0, y + 14.0), &seconds(time));
        }
    }

    /// Boxes of steps, in the order of tabulation.
    fn boxes(&self, svg: &mut Svg) {
        let first = self.places.keys().next().copied();
        for (&n, place) in &self.places {
            let s = &self.r.steps[n];
            let BoxPlace { x, w, .. } = *place;
            let (y, tab) = (place.y(), if Some(n) == first { 0 } else { -1 });
            let shared = if s.shared { " shared" } else { "" };
            let title = format!(
                "step {n}, {} {}: {}, bound by {}",
                s.label,
                s.result,
                seconds(s.seconds),
                s.bound
            );
            svg.put(format_args!(
                "<g class=\"step\" role=\"button\" tabindex=\"{tab}\" data-step=\"{n}\" aria-label=\"{}\"><rect class=\"box {}{shared}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{BOX}\"/><title>{}</title>",
                escaped(&title),
                s.bound,
                (w - 0.8).max(1.0),
                escaped(&title),
            ));
            let room = (w - 8.0) / 6.1;
            if room >= 4.0 {
                svg.text("box-name", (x + 4.0, y + 16.0), &cut(&s.label, room as usize));
                svg.text("box-time", (x + 4.0, y + 31.0), &cut(&s.result, room as usize));
                svg.text("box-time", (x + 4.0, y + 46.0), &cut(&seconds(s.seconds), room as usize));
            }
            svg.put(format_args!("</g>"));
        }
    }

    /// Layers, with how often each occurs.
    fn brackets(&self, svg: &mut Svg) {
        // Where labels are: the row, the line of text and both ends.
        let mut labels: Vec<(usize, usize, f64, f64)> = Vec::new();
        for l in &self.r.layers {
            let all: Vec<&BoxPlace> =
                (l.first..l.first + l.period).filter_map(|n| self.places.get(&n)).collect();
            let from = all.iter().map(|p| p.x).fold(f64::INFINITY, f64::min);
            let to = all.iter().map(|p| p.x + p.w).fold(0.0, f64::max);
            let Some(place) = all.first() else { continue };
            let up = place.row == 0;
            let y = if up { place.y() - 6.0 } else { place.y() + BOX + 6.0 };
            let tip = if up { y + 4.0 } else { y - 4.0 };
            svg.put(format_args!(
                "<path class=\"bracket\" d=\"M{from:.1} {tip:.1}V{y:.1}H{to:.1}V{tip:.1}\"/>"
            ));
            let room = (((to - from).max(120.0)) / 6.4) as usize;
            let RepeatedLayer { name, count, .. } = l;
            let label = cut(&format!("{count}\u{d7} {name}"), room);
            let width = label.chars().count() as f64 * 6.6;
            let end = from + width > WIDTH;
            let (low, high) = if end { (to - width, to) } else { (from, from + width) };
            let free = |line: &usize| {
                let meets = |l: &&(usize, usize, f64, f64)| {
                    l.0 == place.row && l.1 == *line && l.2 < high && low < l.3
                };
                !labels.iter().any(|l| meets(&l))
            };
            let line = (0..3).find(free).unwrap_or(0);
            labels.push((place.row, line, low, high));
            let shift = 13.0 * line as f64;
            let text = if up { y - 5.0 - shift } else { y + 14.0 + shift };
            let (x, class) = if end { (to, "layer end") } else { (from, "layer") };
            svg.text(class, (x, text), &label);
        }
    }

    /// Values between phases, the largest ones; wider for more bytes.
    fn arrows(&self, svg: &mut Svg) {
        let mut found: BTreeMap<(usize, usize, &str), Vec<&ResidualRow>> = BTreeMap::new();
        for row in &self.r.residuals {
            if !matches!(row.decision, "save" | "compress" | "lossy" | "remat" | "output") {
                continue;
            }
            let Some(from) = row.from.map(|n| self.drawn[n]) else { continue };
            let to: BTreeSet<usize> = row.to.iter().map(|&n| self.drawn[n]).collect();
            for to in to {
                let all = found.entry((from, to, row.decision)).or_default();
                all.push(row);
            }
        }
        let size = |rows: &[&ResidualRow]| rows.iter().map(|r| r.bytes).max().unwrap_or(0);
        let mut sorted: Vec<_> = found.into_iter().collect();
        sorted.sort_by_key(|(_, rows)| std::cmp::Reverse(size(rows)));
        let most = sorted.first().map_or(1, |(_, rows)| size(rows)).max(1) as f64;
        for ((from, to, decision), rows) in sorted.into_iter().take(MOST_ARROWS) {
            let (Some(a), Some(b)) = (self.places.get(&from), self.places.get(&to)) else {
                continue;
            };
            if a.row == b.row {
                continue;
            }
            let (y0, y1) = (a.y() + BOX, b.y());
            let (x0, x1) = (a.middle(), b.middle());
            let bend = (y1 - y0) * 0.45;
            let width = 1.0 + 4.0 * (size(&rows) as f64 / most).sqrt();
            let names: Vec<&str> = rows.iter().take(4).map(|r| r.value.as_str()).collect();
            let bits = rows
                .iter()
                .find_map(|r| r.bits)
                .map_or_else(String::new, |n| format!(", {n} bits an element"));
            let title =
                format!("{}: {decision}{bits}, {}", names.join(", "), bytes(size(&rows) as f64));
            svg.put(format_args!(
                "<path class=\"arrow {decision}\" data-from=\"{from}\" data-to=\"{to}\" stroke-width=\"{width:.1}\" d=\"M{x0:.1} {y0:.1}C{x0:.1} {:.1} {x1:.1} {:.1} {x1:.1} {y1:.1}\"><title>{}</title></path>",
                y0 + bend,
                y1 - bend,
                escaped(&title)
            ));
            if let Some(bits) = rows.iter().find_map(|r| r.bits) {
                let unit = if bits == 1 { "1 bit".into() } else { format!("{bits} bits") };
                svg.text("bits", ((x0 + x1) / 2.0 + 3.0, (y0 + y1) / 2.0), &unit);
            }
        }
    }
}
