//! The text of schedules.
//!
//! ```text
//! schedule @loss {
//!   target sm_90
//!   fp strict
//!   concurrent first=0 last=1
//!   step 0 work 0 rows
//!     team threads=32 rows=4 block=1024 vector=1 resident=12
//!     walk by=one
//!     residency registers=[t0,t1] recompute=[]
//!     prefetch rows=0 hoist=[]
//!     stage number=0 unroll=2 inflight=16
//!   step 1 work 0 elementwise
//!     grid threads=256 resident=2
//!     vector width=4
//! }
//! ```
//!
//! `concurrent` names steps that run side by side. A head names a step and the number of a piece of its work, or what comes before the first step (`enter`) or after the
//! last (`leave`); the lines below it are its decisions, one each. What the work is follows from the program, so that a
//! text is read with the program that it schedules. `step 1 program back {` begins the sections of a program that the step runs,
//! which end with `}`. Lines that are not there are no defaults: a text says everything.

use super::concurrency::ConcurrentSteps;
use super::context::ScheduleContext;
use super::given::{Given, GivenProgram};
use super::program::{GpuSchedule, StepSchedule, scheduled};
use super::scheduled::Scheduled;
use super::text::{DecisionLine, Line, Reader, Writer, number, words, wrong};
use crate::gpu::target::GpuTarget;
use crate::runtime::functions::Registry;
use adfuse_ir::kernel::{Program, Verified};
use adfuse_ir::{At, Diagnostic, Fp, Kind, Span};
use std::fmt;

/// Bytes of a text at most.
const MOST: usize = 1 << 26;

impl fmt::Display for GpuSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "schedule @{} {{", self.name)?;
        writeln!(f, "  target {}", self.target.name)?;
        writeln!(f, "  fp {}", self.fp.name())?;
        let mut lines = Writer::default();
        self.concurrent.iter().for_each(|range| range.write(&mut lines));
        lines.text.lines().try_for_each(|line| writeln!(f, "{}", &line[2..]))?;
        let mut text = String::new();
        all_sections(self, "  ", &mut text);
        f.write_str(&text)?;
        writeln!(f, "}}")
    }
}

/// The sections of a schedule, those of the programs in its steps too, behind this much space.
fn all_sections(schedule: &GpuSchedule, space: &str, out: &mut String) {
    let section = |head: String, step: &StepSchedule, out: &mut String| {
        let works = step.works.iter().enumerate();
        works.for_each(|(k, work)| written(out, (space, &head), k, work));
    };
    section("enter".to_owned(), &schedule.enter, out);
    for (n, step) in schedule.steps.iter().enumerate() {
        section(format!("step {n}"), step, out);
        for block in &step.blocks {
            *out += &format!("{space}step {n} program {} {{\n", block.role);
            all_sections(&block.schedule, &format!("{space}  "), out);
            *out += &format!("{space}}}\n");
        }
    }
    section("leave".to_owned(), &schedule.leave, out);
}

fn written(out: &mut String, (space, head): (&str, &str), number: usize, work: &Scheduled) {
    let mut lines = Writer::default();
    work.write(&mut lines);
    *out += &format!("{space}{head} work {number} {}\n", work.name());
    for line in lines.text.lines() {
        // Lines are written for the outermost program, whose heads have two spaces before them.
        *out += &format!("{}{line}\n", &space[2..]);
    }
}

impl fmt::Debug for GpuSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl GpuSchedule {
    /// Reads the text of a schedule of a program.
    ///
    /// # Errors
    /// [`Kind::Syntax`] for what is no text of decisions, [`Kind::Usage`] for decisions that do not fit the program, each
    /// with its place; and as [`schedule`](super::program::schedule).
    pub fn parse(text: &str, program: &Verified<Program>) -> Result<GpuSchedule, Diagnostic> {
        GpuSchedule::parse_with(text, program, None)
    }

    /// The same for a program that calls these functions.
    ///
    /// # Errors
    /// As [`GpuSchedule::parse`].
    pub fn parse_with(
        text: &str,
        program: &Verified<Program>,
        functions: Option<&Registry>,
    ) -> Result<GpuSchedule, Diagnostic> {
        if text.len() > MOST {
            let m = format!("a schedule has at most {MOST} bytes");
            return Err(Diagnostic::new(At::default(), Kind::Limit, m));
        }
        let mut parser = ScheduleParser::new(text);
        let (name, span) = parser.head("schedule", 3)?;
        if name != format!("@{}", program.name) {
            let m = format!("the schedule is of {name}, not of @{}", program.name);
            return Err(Diagnostic::new(At::span(span), Kind::Usage, m));
        }
        let (name, span) = parser.head("target", 2)?;
        let none = || wrong(span, format!("there is no target `{name}`"));
        let target = GpuTarget::named(name).ok_or_else(none)?;
        let (name, span) = parser.head("fp", 2)?;
        let none = || wrong(span, format!("there is no mode `{name}`"));
        let fp = Fp::ALL.iter().find(|(_, known)| *known == name).ok_or_else(none)?.0;
        let concurrent = parser.concurrent(program)?;
        let given = GivenProgram { concurrent, ..parser.sections(program)? };
        parser.ended()?;
        scheduled(
            program,
            ScheduleContext { functions, ..ScheduleContext::new(target, fp) },
            &[],
            Some(given),
        )
    }
}

/// The lines of a text that are not empty, with the place of each.
struct ScheduleParser<'t> {
    lines: Vec<(usize, &'t str)>,
    at: usize,
    end: Span,
}

impl<'t> ScheduleParser<'t> {
    fn new(text: &'t str) -> ScheduleParser<'t> {
        let place = |line: &'t str| (line.as_ptr() as usize - text.as_ptr() as usize, line);
        let is_full = |line: &&str| !line.split("//").next().unwrap_or_default().trim().is_empty();
        let lines = text.lines().filter(is_full).map(place).collect();
        ScheduleParser { lines, at: 0, end: Span::new(text.len(), text.len()) }
    }

    /// The words of the next line.
    fn next(&mut self) -> Option<Vec<(&'t str, Span)>> {
        let &(at, line) = self.lines.get(self.at)?;
        self.at += 1;
        let line = line.split("//").next().unwrap_or_default();
        Some(words(line, at).collect())
    }

    /// The second word of the next line, which begins with this one and has this many.
    fn head(&mut self, first: &str, count: usize) -> Result<(&'t str, Span), Diagnostic> {
        let end = self.end;
        let line = self.next().unwrap_or_default();
        match line.as_slice() {
            [(word, _), found, rest @ ..] if *word == first && line.len() == count => {
                match rest.first() {
                    None | Some(("{", _)) => Ok(*found),
                    Some((_, span)) => Err(wrong(*span, "expected `{`")),
                }
            }
            line => {
                let span = line.first().map_or(end, |(_, span)| *span);
                Err(wrong(span, format!("expected `{first}`")))
            }
        }
    }

    /// The steps that run side by side: the lines before the first section.
    fn concurrent(&mut self, program: &Program) -> Result<Vec<ConcurrentSteps>, Diagnostic> {
        let mut found: Vec<ConcurrentSteps> = Vec::new();
        while let Some(&(at, text)) = self.lines.get(self.at) {
            if text.split_whitespace().next() != Some("concurrent") {
                break;
            }
            let Some(line) = Line::of(text, at)? else { break };
            self.at += 1;
            let (span, mut reader) = (line.span, Reader::new(line.span));
            reader.push(line);
            let range = ConcurrentSteps::read(&mut reader)?;
            let before = found.last().map_or(0, |last| last.0.end);
            let fits = range.check(program, before);
            fits.map_err(|why| Diagnostic::new(At::span(span), Kind::Usage, why))?;
            found.push(range);
        }
        Ok(found)
    }

    /// The decisions of all sections of a program, to the closing brace.
    fn sections(&mut self, program: &Program) -> Result<GivenProgram<'t>, Diagnostic> {
        let steps = program.steps.len();
        let mut all: Vec<Given<'t>> = (0..steps + 2).map(|_| Given::new()).collect();
        let mut blocks: Vec<Vec<_>> = (0..steps).map(|_| Vec::new()).collect();
        let mut last = 0;
        loop {
            let Some(words) = self.next() else { return Err(wrong(self.end, "expected `}`")) };
            let (section, rest) = match words.as_slice() {
                [("}", _)] => break,
                [("enter", _), rest @ ..] => (0, rest),
                [("leave", _), rest @ ..] => (steps + 1, rest),
                [("step", _), (n, span), rest @ ..] => {
                    let n = number(n, *span)?;
                    let step = usize::try_from(n).ok().filter(|&n| n < steps);
                    let none = || wrong(*span, format!("the program has {steps} steps"));
                    (step.ok_or_else(none)? + 1, rest)
                }
                words => {
                    let span = words.first().map_or(self.end, |(_, span)| *span);
                    return Err(wrong(span, "expected `enter`, `step`, `leave` or `}`"));
                }
            };
            if let &[("program", span), (role, at), ("{", _)] = rest {
                let step = section.checked_sub(1).filter(|&n| n < steps && section >= last);
                let found = step.and_then(|n| {
                    let mut all = program.steps[n].blocks().into_iter();
                    let (_, block) = all.find(|(own, _)| own == role)?;
                    Some((n, block))
                });
                let Some((n, block)) = found else {
                    return Err(wrong(span.to(at), format!("there is no program `{role}` here")));
                };
                if blocks[n].iter().any(|(known, _)| *known == role) {
                    return Err(wrong(
                        span.to(at),
                        format!("the program `{role}` was there before"),
                    ));
                }
                let given = self.sections(&block.program)?;
                blocks[n].push((role, given));
                last = section;
                continue;
            }
            let [("work", head), (k, span), (kind, end)] = rest else {
                let span = words.first().map_or(self.end, |(_, span)| *span);
                return Err(wrong(span, "expected `work`, its number and its kind"));
            };
            let expected = all[section].len();
            if section < last || number(k, *span)? != expected as i64 {
                let m =
                    format!("the next work of this section is {expected}, in the program's order");
                return Err(wrong(*span, m));
            }
            last = section;
            let mut reader = Reader::new(head.to(*end));
            self.decisions(&mut reader)?;
            all[section].push_back((kind, reader));
        }
        Ok(GivenProgram { sections: all, blocks, concurrent: Vec::new() })
    }

    /// Errs unless that was all.
    fn ended(&mut self) -> Result<(), Diagnostic> {
        match self.next().as_deref() {
            Some([(_, span), ..]) => Err(wrong(*span, "the schedule has ended")),
            Some([]) | None => Ok(()),
        }
    }

    /// The lines up to the next head.
    fn decisions(&mut self, reader: &mut Reader<'t>) -> Result<(), Diagnostic> {
        while let Some(&(at, line)) = self.lines.get(self.at) {
            let first = line.split_whitespace().next().unwrap_or_default();
            if matches!(first, "enter" | "step" | "leave" | "}") {
                break;
            }
            self.at += 1;
            if let Some(line) = Line::of(line, at)? {
                reader.push(line);
            }
        }
        Ok(())
    }
}
