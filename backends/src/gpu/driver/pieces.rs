//! The text of a module in pieces that are assembled side by side. Entry points name nothing but what stands before the first
//! of them, so any of them may go together.

/// Bytes of text of a piece at most, where it has several entry points: the longest piece is what others wait for, and each takes a
/// few milliseconds more. An entry point is in one piece.
const PIECE: usize = 48 << 10;
/// What an entry point begins with, at the beginning of a line.
const ENTRY: &str = "\n.visible .entry ";

/// A piece of a module: a module by itself.
pub(crate) struct ModulePiece {
    pub(crate) text: String,
    /// The names of its entry points.
    pub(crate) entries: Vec<String>,
}

/// The pieces of a module, in its order. Entry points in which warps hand registers to others have pieces of their own, since another
/// assembler takes them. They do not depend on how many threads there are, so that code that was kept for
/// them is found again.
pub(crate) fn pieces(text: &str) -> Vec<ModulePiece> {
    let starts: Vec<usize> = text.match_indices(ENTRY).map(|(at, _)| at + 1).collect();
    let Some(&first) = starts.first() else {
        return vec![ModulePiece { text: text.to_string(), entries: Vec::new() }];
    };
    let head = &text[..first];
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let mut all: Vec<ModulePiece> = Vec::new();
    for entry in starts.iter().zip(ends).map(|(&start, end)| &text[start..end]) {
        let name = entry[ENTRY.len() - 1..].split(['(', '\n', ' ']).next().unwrap_or_default();
        let fits = |piece: &&mut ModulePiece| {
            piece.text.len() - head.len() + entry.len() <= PIECE
                && moves_registers(&piece.text) == moves_registers(entry)
        };
        match all.last_mut().filter(fits) {
            Some(piece) => {
                piece.text.push_str(entry);
                piece.entries.push(name.to_string());
            }
            None => {
                let text = format!("{head}{entry}");
                all.push(ModulePiece { text, entries: vec![name.to_string()] });
            }
        }
    }
    all
}

/// Whether warps of a text hand registers to others. The linker's assembler ignores that, since what it makes may be linked with
/// other code.
pub(crate) fn moves_registers(text: &str) -> bool {
    text.contains("setmaxnreg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_in_one_piece_with_what_stands_before_all() {
        let body =
            |n: usize| format!(".visible .entry e{n}(\n) {{\n{}}}\n\n", "  ret;\n".repeat(2000));
        let head = "//\n.version 8.0\n\n";
        let text = (0..12).fold(head.to_string(), |text, n| text + &body(n));
        let found = pieces(&text);
        assert!(found.len() > 2 && found.len() < 12, "{}", found.len());
        let names: Vec<String> = found.iter().flat_map(|p| p.entries.clone()).collect();
        assert_eq!(names, (0..12).map(|n| format!("e{n}")).collect::<Vec<_>>());
        let bodies: String =
            found.iter().map(|p| p.text.strip_prefix(head).expect("a head")).collect();
        assert_eq!(format!("{head}{bodies}"), text);
        assert_eq!(pieces(head).len(), 1);
    }

    #[test]
    fn a_piece_is_long_by_one_entry_alone_and_warps_that_hand_registers_over_are_apart() {
        let entry = |name: &str, line: &str, lines: usize| {
            format!(".visible .entry {name}(\n) {{\n{}}}\n\n", line.repeat(lines))
        };
        let of = |name: &str, bytes: usize| entry(name, "  ret;\n", bytes / 7);
        let moving = |name: &str| entry(name, "  setmaxnreg.inc.sync.aligned.u32 240;\n", 2);
        let head = ".version 8.0\n\n";
        let all = [
            of("short", 100),
            of("long", 3 * PIECE),
            of("next", PIECE / 2),
            of("more", PIECE / 4),
            of("other", PIECE / 2),
            moving("first"),
            moving("second"),
            of("last", 100),
        ];
        let found = pieces(&format!("{head}{}", all.concat()));
        let names: Vec<String> = found.iter().map(|p| p.entries.join(" ")).collect();
        assert_eq!(names, ["short", "long", "next more", "other", "first second", "last"]);
    }
}
