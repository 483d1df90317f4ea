//! The text of layouts.
//!
//! ```text
//! layout @loss {
//!   arena 512
//!   %h at 0, 512 bytes
//!   %t at 64 in %g, 128 bytes
//!   step 3 at 0, 64 bytes
//!   steps 3 to 9 apart 4
//! }
//! ```
//!
//! A buffer is in the arena, or in the array of the input or the result that is named behind `in`. `step` says where the
//! scratch memory of a step is, and `apart` for how many steps more what these steps use is used for nothing else. A text is read with the program that it is a layout of.

use super::arena_layout::ArenaLayout;
use adfuse_ir::kernel::{Buffer, DonorSlice, Program, SpacedSteps};
use adfuse_ir::{At, Diagnostic, Kind, Span};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Bytes of a text at most.
const MOST: usize = 1 << 26;

impl ArenaLayout {
    /// The layout as text, for the program that it belongs to.
    pub fn text(&self, program: &Program) -> String {
        let mut out = String::new();
        // Nothing is wrong with writing to a string.
        let _ = writeln!(out, "layout @{} {{\n  arena {}", program.name, self.bytes);
        for (b, data) in program.buffers.iter() {
            let (name, bytes) = (&data.name, data.bytes());
            if let Some(at) = self.offsets[b] {
                let _ = writeln!(out, "  %{name} at {at}, {bytes} bytes");
            }
            if let Some(DonorSlice { donor, at }) = self.in_donor[b] {
                let donor = &program.buffers[donor].name;
                let _ = writeln!(out, "  %{name} at {at} in %{donor}, {bytes} bytes");
            }
        }
        for (n, scratch) in self.scratch.iter().enumerate() {
            if let Some((at, bytes)) = scratch {
                let _ = writeln!(out, "  step {n} at {at}, {bytes} bytes");
            }
        }
        for SpacedSteps { steps, apart } in &self.apart {
            let last = steps.end.saturating_sub(1);
            let _ = writeln!(out, "  steps {} to {last} apart {apart}", steps.start);
        }
        out + "}\n"
    }

    /// Reads the text of a layout of a program. Whether values overlap is for [`check`](super::arena_layout::check) to say.
    ///
    /// # Errors
    /// [`Kind::Syntax`], and [`Kind::UnknownName`] for buffers that the program does not have, at their place in the text;
    /// [`Kind::Limit`] for too long a text.
    pub fn parse(text: &str, program: &Program) -> Result<ArenaLayout, Diagnostic> {
        if text.len() > MOST {
            let m = format!("the layout has {} bytes, the limit is {MOST}", text.len());
            return Err(Diagnostic::new(At::default(), Kind::Limit, m));
        }
        let names = program.buffers.iter().map(|(b, data)| (data.name.as_str(), b)).collect();
        let mut reader = LayoutReader { program, names, layout: ArenaLayout::default() };
        let (mut at, mut lines) = (0, Vec::new());
        for line in text.split_inclusive('\n') {
            let (code, begin) = (line.split("//").next().unwrap_or_default().trim_end(), at);
            at += line.len();
            if !code.trim().is_empty() {
                lines.push((
                    code.trim_start(),
                    Span::new(begin + code.len() - code.trim_start().len(), begin + code.len()),
                ));
            }
        }
        let whole = Span::new(0, text.len());
        let [(head, at), (arena, bytes_at), inner @ .., (end, end_at)] = &lines[..] else {
            return Err(wrong(whole, "a layout has a head, its arena and an end"));
        };
        if *head != format!("layout @{} {{", program.name) {
            return Err(wrong(*at, &format!("this is no head of a layout of @{}", program.name)));
        }
        let bytes = arena.strip_prefix("arena ").and_then(number);
        reader.layout.bytes =
            bytes.ok_or_else(|| wrong(*bytes_at, "expected `arena` and its bytes"))?;
        for (line, at) in inner {
            reader.line(line, *at)?;
        }
        if *end != "}" {
            return Err(wrong(*end_at, "expected `}`"));
        }
        Ok(reader.layout)
    }
}

struct LayoutReader<'a> {
    program: &'a Program,
    names: BTreeMap<&'a str, Buffer>,
    layout: ArenaLayout,
}

impl LayoutReader<'_> {
    fn line(&mut self, line: &str, span: Span) -> Result<(), Diagnostic> {
        if let Some(rest) = line.strip_prefix("steps ") {
            return self.spaced(rest, span);
        }
        let form =
            || wrong(span, "expected `%NAME at N[ in %NAME], N bytes` or `step N at N, N bytes`");
        let (what, rest) = line.split_once(" at ").ok_or_else(form)?;
        let (place, bytes) = rest.split_once(", ").ok_or_else(form)?;
        let bytes = bytes.strip_suffix(" bytes").and_then(number).ok_or_else(form)?;
        if let Some(step) = what.strip_prefix("step ") {
            let step = number(step).and_then(|n| usize::try_from(n).ok()).ok_or_else(form)?;
            let at = number(place).ok_or_else(form)?;
            if step >= self.program.steps.len() {
                return Err(wrong(span, &format!("the program has no step {step}")));
            }
            self.layout.scratch.resize(self.program.steps.len(), None);
            return match self.layout.scratch[step].replace((at, bytes)) {
                None => Ok(()),
                Some(_) => Err(wrong(span, &format!("step {step} has a place already"))),
            };
        }
        let b = self.buffer(what, span)?;
        let own = self.program.buffers[b].bytes();
        if own != bytes {
            return Err(wrong(span, &format!("{what} has {own} bytes")));
        }
        if self.layout.offsets[b].is_some() || self.layout.in_donor[b].is_some() {
            return Err(wrong(span, &format!("{what} has a place already")));
        }
        match place.split_once(" in ") {
            None => self.layout.offsets[b] = Some(number(place).ok_or_else(form)?),
            Some((at, donor)) => {
                let (at, donor) = (number(at).ok_or_else(form)?, self.buffer(donor, span)?);
                self.layout.in_donor[b] = Some(DonorSlice { donor, at });
            }
        }
        Ok(())
    }

    /// Steps that are apart: after those before them, and of the program.
    fn spaced(&mut self, rest: &str, span: Span) -> Result<(), Diagnostic> {
        let numbers = |text: &str| number(text).and_then(|n| usize::try_from(n).ok());
        let read = || {
            let (steps, apart) = rest.split_once(" apart ")?;
            let (first, last) = steps.split_once(" to ")?;
            Some((numbers(first)?, numbers(last)?, numbers(apart)?))
        };
        let form = || wrong(span, "expected `steps N to N apart N`");
        let (first, last, apart) = read().ok_or_else(form)?;
        let next = self.layout.apart.last().map_or(0, |range| range.steps.end);
        if first < next || last < first || last >= self.program.steps.len() {
            return Err(wrong(span, "these are no steps of the program after those before"));
        }
        self.layout.apart.push(SpacedSteps { steps: first..last + 1, apart });
        Ok(())
    }

    fn buffer(&self, name: &str, span: Span) -> Result<Buffer, Diagnostic> {
        let found = name.strip_prefix('%').and_then(|name| self.names.get(name));
        found.copied().ok_or_else(|| {
            let m = format!("the program has no buffer {name}");
            Diagnostic::new(At::span(span), Kind::UnknownName, m)
        })
    }
}

/// A number as it is printed.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n: &u64| n.to_string() == text)
}

fn wrong(span: Span, m: &str) -> Diagnostic {
    Diagnostic::new(At::span(span), Kind::Syntax, m)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::text::parse;

    const PROGRAM: &str = "program @f {
      input %x: f32[40] donated
      temp %t: f32[40]
      temp %u: f32[40]
      output %y: f32[40]
      kernel @a [40] { stage [] { p0 = load %x[d0] s0 = param.f32 0 %t[d0] = store s0 } }
      kernel @b [40] { stage [] { p0 = load %t[d0] s0 = param.f32 0 %u[d0] = store s0 } }
      kernel @c [40] { stage [] { p0 = load %u[d0] s0 = param.f32 0 %y[d0] = store s0 } }
      return %y
    }";

    const TEXT: &str = "layout @f {
  arena 256
  %t at 64, 160 bytes
  %u at 0 in %x, 160 bytes
  step 1 at 0, 64 bytes
}
";

    #[test]
    fn a_text_reads_back() {
        let program = parse(PROGRAM).expect("reads");
        let layout = ArenaLayout::parse(TEXT, &program).expect("reads");
        let [x, t, u, _] = [0, 1, 2, 3].map(Buffer::from_u32);
        assert_eq!((layout.bytes, layout.offsets[t]), (256, Some(64)));
        assert_eq!(layout.in_donor[u], Some(DonorSlice::start(x)));
        assert_eq!(layout.scratch, [None, Some((0, 64)), None]);
        assert_eq!(layout.text(&program), TEXT);
        let commented = TEXT.replace("  arena", "  // the peak is 576\n  arena");
        assert_eq!(ArenaLayout::parse(&commented, &program).expect("reads"), layout);
    }

    #[test]
    fn wrong_lines_are_refused_where_they_are() {
        let program = parse(PROGRAM).expect("reads");
        for (from, to, kind, names) in [
            ("@f", "@g", Kind::Syntax, "head"),
            ("arena 256", "arena -1", Kind::Syntax, "arena"),
            ("%t at", "%v at", Kind::UnknownName, "%v"),
            ("in %x", "in %v", Kind::UnknownName, "%v"),
            ("64, 160", "64, 164", Kind::Syntax, "%t has 160 bytes"),
            ("64, 160", "064, 160", Kind::Syntax, "expected"),
            ("%u at 0 in %x", "%t at 0", Kind::Syntax, "already"),
            ("step 1", "step 3", Kind::Syntax, "no step 3"),
            ("64 bytes\n}", "64 bytes\n", Kind::Syntax, "expected"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let d = ArenaLayout::parse(&TEXT.replace(from, to), &program).expect_err(to);
            assert!(d.kind == kind && d.message.contains(names) && d.at.span.is_some(), "{d:?}");
        }
        assert!(ArenaLayout::parse("", &program).is_err());
    }
}
