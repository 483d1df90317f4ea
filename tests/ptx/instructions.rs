//! Instructions of PTX, as far as modules have them: read from text, and what those that only compute do.

use crate::arithmetic::computes;
use adfuse::ir::DType;
use std::collections::HashMap;

/// What an instruction does.
pub(crate) enum Does {
    /// Computes a register of up to three others.
    Compute(fn([u64; 3]) -> u64),
    /// A register as two halves of this many bits, low first.
    Halves(u32),
    /// Two halves of this many bits as one register.
    Whole(u32),
    Load {
        space: Space,
        bytes: u32,
        signed: bool,
        offset: i64,
    },
    Store {
        space: Space,
        bytes: u32,
        offset: i64,
    },
    /// Copies this many bytes of global memory to shared memory, of which the first may be all that are there and
    /// zeros follow. It is done at once: who waits for it comes later.
    Copy {
        bytes: u32,
        to: i64,
        from: i64,
    },
    Nothing,
    /// The pointer of a parameter.
    Parameter(usize),
    Special(Special),
    Jump(usize),
    Return,
    /// Waits for all threads of the block.
    Barrier,
    /// Waits for the lanes of the warp.
    Together,
    /// The lanes for which a predicate holds.
    Vote,
    /// A register of another lane, and whether there is that lane.
    Shuffle(Way),
    /// Adds products of 16 rows and 8 columns to their sums: 8 deep of `f32`, of which the upper 19 bits count, or 16 deep of a type
    /// of 16 bits.
    Multiply(Option<DType>),
    /// Four matrices of 8 lines by 16 bytes of shared memory, each of whose addresses a lane has; turned, of 16 bits an element.
    Matrices {
        turned: bool,
        offset: i64,
    },
}

#[derive(Clone, Copy)]
pub(crate) enum Way {
    Butterfly,
    Up,
    Index,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    Global,
    Shared,
    Constant,
}

#[derive(Clone, Copy)]
pub(crate) enum Special {
    Block,
    Blocks,
    Thread,
    Lane,
    LanesBelow,
}

/// One instruction. Constants are registers too.
pub(crate) struct Inst {
    /// The predicate that must be so.
    pub(crate) when: Option<(usize, bool)>,
    pub(crate) does: Does,
    pub(crate) to: Vec<usize>,
    pub(crate) from: Vec<usize>,
    pub(crate) text: String,
}

/// An entry point, read.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) insts: Vec<Inst>,
    /// What registers begin with: constants are those that nothing writes.
    pub(crate) registers: Vec<u64>,
}

#[derive(Default)]
struct Reader {
    entry: Entry,
    names: HashMap<String, usize>,
    labels: HashMap<String, usize>,
}

/// The entry points of a module, by name.
pub(crate) fn entries(text: &str) -> HashMap<String, Entry> {
    let mut found = HashMap::new();
    for part in text.split(".visible .entry ").skip(1) {
        let (name, rest) = part.split_once('(').expect("a name");
        let body = rest.split_once("{\n").expect("a body").1;
        found.insert(name.to_owned(), Reader::default().read(body));
    }
    found
}

impl Reader {
    fn read(mut self, body: &str) -> Entry {
        let lines: Vec<&str> = body.lines().map(str::trim).take_while(|l| *l != "}").collect();
        let code = |l: &&&str| !l.is_empty() && !l.starts_with('.') && !l.starts_with("//");
        let mut count = 0;
        for line in lines.iter().filter(code) {
            match line.strip_suffix(':') {
                Some(label) => {
                    self.labels.insert(label.to_owned(), count);
                }
                None => count += 1,
            }
        }
        for line in lines.iter().filter(code).filter(|l| !l.ends_with(':')) {
            let inst = self.inst(line.strip_suffix(';').expect("an end"));
            self.entry.insts.push(inst);
        }
        self.entry
    }

    /// The number of a register, or of one that has a constant.
    fn register(&mut self, name: &str) -> usize {
        let next = self.entry.registers.len();
        let number = *self.names.entry(name.to_owned()).or_insert(next);
        if number == next {
            let value = match name {
                "dynamic" | "two_over_pi" => 0,
                n if n.starts_with('%') => 0,
                n => match (n.strip_prefix("0f"), n.strip_prefix("0d")) {
                    (Some(bits), _) | (_, Some(bits)) => {
                        u64::from_str_radix(bits, 16).expect("bits")
                    }
                    _ => n.parse::<i128>().unwrap_or_else(|_| panic!("{n}?")) as u64,
                },
            };
            self.entry.registers.push(value);
        }
        number
    }

    fn inst(&mut self, line: &str) -> Inst {
        let text = line.to_owned();
        let (guard, line) = match line.strip_prefix('@') {
            Some(rest) => {
                let (p, rest) = rest.split_once(' ').expect("an instruction");
                (Some(p), rest)
            }
            None => (None, line),
        };
        let when = guard.map(|p| match p.strip_prefix('!') {
            Some(p) => (self.register(p), false),
            None => (self.register(p), true),
        });
        let (op, operands) = line.split_once(' ').unwrap_or((line, ""));
        let operands = operands_of(operands);
        let parts: Vec<&str> = op.split('.').collect();
        let (does, to, from) = self.does(op, &parts, &operands);
        Inst { when, does, to, from, text }
    }

    fn list(&mut self, operand: &str) -> Vec<usize> {
        let inner = operand.trim_start_matches('{').trim_end_matches('}');
        inner.split([',', '|']).map(|name| self.register(name.trim())).collect()
    }

    /// A place in memory: its register, and what is added.
    fn place(&mut self, operand: &str) -> (usize, i64) {
        let inner = operand.trim_start_matches('[').trim_end_matches(']');
        let mut parts = inner.split('+');
        let base = self.register(parts.next().expect("a base"));
        (base, parts.map(|n| n.parse::<i64>().expect("an offset")).sum())
    }

    fn does(
        &mut self,
        op: &str,
        parts: &[&str],
        operands: &[&str],
    ) -> (Does, Vec<usize>, Vec<usize>) {
        let last = parts.last().expect("a name");
        match parts[0] {
            "ret" => (Does::Return, vec![], vec![]),
            "bra" => (Does::Jump(self.labels[operands[0]]), vec![], vec![]),
            "bar" if parts[1] == "sync" => (Does::Barrier, vec![], vec![]),
            "bar" => (Does::Together, vec![], vec![]),
            "vote" => {
                let from = vec![self.register(operands[1])];
                (Does::Vote, self.list(operands[0]), from)
            }
            "ldmatrix" if op.contains(".x4") => {
                let (base, offset) = self.place(operands[1]);
                let turned = op.contains(".trans");
                (Does::Matrices { turned, offset }, self.list(operands[0]), vec![base])
            }
            "mma" if operands.len() == 4 && op.contains(".aligned.m16n8k") => {
                let from = operands[1..].iter().flat_map(|o| self.list(o)).collect();
                let elements = match op.split_once(".row.col.") {
                    Some((_, "f32.tf32.tf32.f32")) => None,
                    Some((_, "f32.bf16.bf16.f32")) => Some(DType::BF16),
                    Some((_, "f32.f16.f16.f32")) => Some(DType::F16),
                    _ => panic!("{op}?"),
                };
                (Does::Multiply(elements), self.list(operands[0]), from)
            }
            "shfl" => {
                let way = match parts[2] {
                    "bfly" => Way::Butterfly,
                    "up" => Way::Up,
                    _ => Way::Index,
                };
                let from = operands[1..3].iter().map(|o| self.register(o)).collect();
                (Does::Shuffle(way), self.list(operands[0]), from)
            }
            "ld" if parts[1] == "param" => {
                let number = operands[1].trim_matches(['[', ']']).trim_start_matches("arg");
                let does = Does::Parameter(number.parse().expect("a number"));
                (does, self.list(operands[0]), vec![])
            }
            "ld" | "st" => {
                let space = match parts[1] {
                    "global" => Space::Global,
                    "shared" => Space::Shared,
                    _ => Space::Constant,
                };
                let bytes = bits(last) / 8;
                let (place, regs) = if parts[0] == "ld" { (1, 0) } else { (0, 1) };
                let (base, offset) = self.place(operands[place]);
                let regs = self.list(operands[regs]);
                match parts[0] {
                    "ld" => {
                        let signed = last.starts_with('s');
                        (Does::Load { space, bytes, signed, offset }, regs, vec![base])
                    }
                    _ => {
                        let from = std::iter::once(base).chain(regs).collect();
                        (Does::Store { space, bytes, offset }, vec![], from)
                    }
                }
            }
            "cp" if parts[2].ends_with("group") || parts[2] == "wait_all" => {
                (Does::Nothing, vec![], vec![])
            }
            "cp" => {
                let ((to, to_offset), (from, from_offset)) =
                    (self.place(operands[0]), self.place(operands[1]));
                let bytes = operands[2].parse().expect("a number of bytes");
                let mut regs = vec![to, from];
                regs.extend(operands.get(3).map(|o| self.register(o)));
                (Does::Copy { bytes, to: to_offset, from: from_offset }, vec![], regs)
            }
            "mov" if operands[1].starts_with("%nctaid") => {
                (Does::Special(Special::Blocks), self.list(operands[0]), vec![])
            }
            "mov" if operands[1].starts_with("%ctaid") => {
                (Does::Special(Special::Block), self.list(operands[0]), vec![])
            }
            "mov" if operands[1].starts_with("%tid") => {
                (Does::Special(Special::Thread), self.list(operands[0]), vec![])
            }
            "mov" if operands[1] == "%laneid" => {
                (Does::Special(Special::Lane), self.list(operands[0]), vec![])
            }
            "mov" if operands[1] == "%lanemask_lt" => {
                (Does::Special(Special::LanesBelow), self.list(operands[0]), vec![])
            }
            "mov" if operands[0].starts_with('{') => {
                let from = vec![self.register(operands[1])];
                (Does::Halves(bits(last) / 2), self.list(operands[0]), from)
            }
            "mov" if operands[1].starts_with('{') => {
                (Does::Whole(bits(last) / 2), self.list(operands[0]), self.list(operands[1]))
            }
            _ => {
                let from = operands[1..].iter().map(|o| self.register(o)).collect();
                (Does::Compute(computes(op, parts)), self.list(operands[0]), from)
            }
        }
    }
}

/// Operands at the top level of a list.
fn operands_of(text: &str) -> Vec<&str> {
    let (mut found, mut from, mut deep) = (Vec::new(), 0, 0);
    for (k, c) in text.char_indices() {
        match c {
            '{' => deep += 1,
            '}' => deep -= 1,
            ',' if deep == 0 => {
                found.push(text[from..k].trim());
                from = k + 1;
            }
            _ => {}
        }
    }
    if !text[from..].trim().is_empty() {
        found.push(text[from..].trim());
    }
    found
}

fn bits(kind: &str) -> u32 {
    kind.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap_or(1)
}
