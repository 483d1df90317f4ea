//! Instructions of PTX, as far as modules have them: read from text, and what those that only compute do.

use adfuse::ir::{DType, Literal};
use std::cmp::Ordering;
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

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn d(x: u64) -> f64 {
    f64::from_bits(x)
}

fn of_f(x: f32) -> u64 {
    x.to_bits().into()
}

fn w(x: u64) -> u32 {
    x as u32
}

fn s(x: u64) -> i32 {
    x as u32 as i32
}

fn l(x: u64) -> i64 {
    x as i64
}

fn of_s(x: i32) -> u64 {
    (x as u32).into()
}

fn rounded(kind: DType, x: f64) -> u64 {
    Literal::from_f64(kind, x).bits()
}

/// A float of the narrower type, towards zero.
fn cut(x: f64) -> f32 {
    let near = x as f32;
    match f64::from(near).abs() > x.abs() {
        true => f32::from_bits(near.to_bits() - 1),
        false => near,
    }
}

/// Comparisons: those of floats that hold where one is NaN end in `u`, but for `nan` itself.
fn compares(relation: &str, kind: &str) -> fn([u64; 3]) -> u64 {
    macro_rules! all {
        ($of:ident) => {
            match relation {
                "eq" => |[a, b, _]| ($of(a) == $of(b)).into(),
                "ne" => |[a, b, _]| ($of(a) != $of(b)).into(),
                "lt" => |[a, b, _]| ($of(a) < $of(b)).into(),
                "le" => |[a, b, _]| ($of(a) <= $of(b)).into(),
                "gt" => |[a, b, _]| ($of(a) > $of(b)).into(),
                "ge" => |[a, b, _]| ($of(a) >= $of(b)).into(),
                _ => panic!("setp.{relation}.{kind}"),
            }
        };
    }
    macro_rules! floats {
        ($of:ident) => {
            match relation {
                "nan" => |[a, b, _]| ($of(a).is_nan() || $of(b).is_nan()).into(),
                "neu" => |[a, b, _]| ($of(a) != $of(b)).into(),
                "ne" => |[a, b, _]| ($of(a) < $of(b) || $of(a) > $of(b)).into(),
                "ltu" => {
                    |[a, b, _]| ($of(a).partial_cmp(&$of(b)).is_none_or(Ordering::is_lt)).into()
                }
                "gtu" => {
                    |[a, b, _]| ($of(a).partial_cmp(&$of(b)).is_none_or(Ordering::is_gt)).into()
                }
                "equ" => {
                    |[a, b, _]| ($of(a).partial_cmp(&$of(b)).is_none_or(Ordering::is_eq)).into()
                }
                _ => all!($of),
            }
        };
    }
    match kind {
        "u32" => all!(w),
        "s32" => all!(s),
        "s64" => all!(l),
        "u64" => all!(u64),
        "f32" => floats!(f),
        _ => floats!(d),
    }
}

fn u64(x: u64) -> u64 {
    x
}

/// What an instruction without other effects gives.
fn computes(op: &str, parts: &[&str]) -> fn([u64; 3]) -> u64 {
    if parts[0] == "setp" && parts.len() == 3 {
        return compares(parts[1], parts[2]);
    }
    match op {
        "setp.ne.and.s32" => |[a, b, p]| u64::from(s(a) != s(b)) & p,
        "mov.b16" | "cvt.u32.u16" | "cvt.u16.u32" => |[a, _, _]| a & 0xffff,
        "mov.b32" | "mov.u32" | "mov.f32" | "cvt.u32.u64" | "cvt.u64.u32" => {
            |[a, _, _]| w(a).into()
        }
        "mov.b64" | "mov.u64" | "mov.f64" | "cvta.to.global.u64" => |[a, _, _]| a,
        _ if parts[0] == "selp" => |[a, b, p]| if p != 0 { a } else { b },
        "and.pred" | "and.b32" | "and.b64" => |[a, b, _]| a & b,
        "or.pred" | "or.b32" | "or.b64" => |[a, b, _]| a | b,
        "xor.pred" | "xor.b64" => |[a, b, _]| a ^ b,
        "xor.b32" => |[a, b, _]| w(a ^ b).into(),
        "not.pred" => |[a, _, _]| a ^ 1,
        "not.b32" => |[a, _, _]| w(!a).into(),
        "not.b64" => |[a, _, _]| !a,
        "add.s32" | "add.u32" => |[a, b, _]| w(a).wrapping_add(w(b)).into(),
        "add.s64" => |[a, b, _]| a.wrapping_add(b),
        "sub.s32" | "sub.u32" => |[a, b, _]| w(a).wrapping_sub(w(b)).into(),
        "sub.s64" => |[a, b, _]| a.wrapping_sub(b),
        "neg.s32" => |[a, _, _]| w(a).wrapping_neg().into(),
        "neg.s64" => |[a, _, _]| a.wrapping_neg(),
        "mul.lo.s32" | "mul.lo.u32" => |[a, b, _]| w(a).wrapping_mul(w(b)).into(),
        "mul.lo.s64" => |[a, b, _]| a.wrapping_mul(b),
        "mul.hi.u32" => |[a, b, _]| (u64::from(w(a)) * u64::from(w(b))) >> 32,
        "mul.hi.u64" => |[a, b, _]| ((u128::from(a) * u128::from(b)) >> 64) as u64,
        "mad.lo.s32" | "mad.lo.u32" => {
            |[a, b, c]| w(a).wrapping_mul(w(b)).wrapping_add(w(c)).into()
        }
        "mad.lo.s64" => |[a, b, c]| a.wrapping_mul(b).wrapping_add(c),
        "mad.wide.s32" => |[a, b, c]| (i64::from(s(a)) * i64::from(s(b)) + l(c)) as u64,
        "mad.wide.u32" => |[a, b, c]| u64::from(w(a)) * u64::from(w(b)) + c,
        "div.s32" => |[a, b, _]| of_s(s(a).wrapping_div(s(b))),
        "div.u32" => |[a, b, _]| (w(a) / w(b)).into(),
        "div.s64" => |[a, b, _]| l(a).wrapping_div(l(b)) as u64,
        "div.u64" => |[a, b, _]| a / b,
        "rem.s32" => |[a, b, _]| of_s(s(a).wrapping_rem(s(b))),
        "rem.u32" => |[a, b, _]| (w(a) % w(b)).into(),
        "rem.s64" => |[a, b, _]| l(a).wrapping_rem(l(b)) as u64,
        "rem.u64" => |[a, b, _]| a % b,
        "min.s32" => |[a, b, _]| of_s(s(a).min(s(b))),
        "max.s32" => |[a, b, _]| of_s(s(a).max(s(b))),
        "min.u32" => |[a, b, _]| w(a).min(w(b)).into(),
        "max.u32" => |[a, b, _]| w(a).max(w(b)).into(),
        "min.s64" => |[a, b, _]| l(a).min(l(b)) as u64,
        "max.s64" => |[a, b, _]| l(a).max(l(b)) as u64,
        "min.u64" => |[a, b, _]| a.min(b),
        // Shifts by the width and more leave nothing, or the sign.
        "shl.b32" => |[a, b, _]| w(a).checked_shl(w(b)).unwrap_or(0).into(),
        "shr.u32" => |[a, b, _]| w(a).checked_shr(w(b)).unwrap_or(0).into(),
        "shr.s32" => |[a, b, _]| of_s(s(a) >> w(b).min(31)),
        "shl.b64" => |[a, b, _]| a.checked_shl(w(b)).unwrap_or(0),
        "shr.u64" => |[a, b, _]| a.checked_shr(w(b)).unwrap_or(0),
        "shr.s64" => |[a, b, _]| (l(a) >> w(b).min(63)) as u64,
        "clz.b32" => |[a, _, _]| w(a).leading_zeros().into(),
        "clz.b64" => |[a, _, _]| a.leading_zeros().into(),
        "popc.b32" => |[a, _, _]| w(a).count_ones().into(),
        "popc.b64" => |[a, _, _]| a.count_ones().into(),
        "bfe.u32" => |[a, at, n]| (a & 0xffff_ffff) >> at & ((1 << n) - 1),
        "bfe.s32" => |[a, at, n]| of_s(((w(a) << (32 - at - n)) as i32) >> (32 - n)),
        "cvt.s64.s32" => |[a, _, _]| i64::from(s(a)) as u64,
        "cvt.f64.f32" => |[a, _, _]| f64::from(f(a)).to_bits(),
        "cvt.rn.f32.f64" => |[a, _, _]| of_f(d(a) as f32),
        "cvt.rz.f32.f64" => |[a, _, _]| of_f(cut(d(a))),
        "cvt.rn.bf16.f32" => |[a, _, _]| rounded(DType::BF16, f(a).into()),
        "cvt.rn.f16.f32" => |[a, _, _]| rounded(DType::F16, f(a).into()),
        "cvt.rn.f16.f64" => |[a, _, _]| rounded(DType::F16, d(a)),
        "cvt.f32.f16" => |[a, _, _]| of_f(Literal::from_bits(DType::F16, a).to_f64() as f32),
        "cvt.rn.f32.s32" => |[a, _, _]| of_f(s(a) as f32),
        "cvt.rn.f32.u32" => |[a, _, _]| of_f(w(a) as f32),
        "cvt.rn.f32.s64" => |[a, _, _]| of_f(l(a) as f32),
        "cvt.rn.f64.s32" => |[a, _, _]| f64::from(s(a)).to_bits(),
        "cvt.rn.f64.u32" => |[a, _, _]| f64::from(w(a)).to_bits(),
        "cvt.rn.f64.s64" => |[a, _, _]| (l(a) as f64).to_bits(),
        "cvt.rzi.s32.f32" => |[a, _, _]| of_s(f(a) as i32),
        "cvt.rzi.u32.f32" => |[a, _, _]| (f(a) as u32).into(),
        "cvt.rzi.s64.f32" => |[a, _, _]| (f(a) as i64) as u64,
        "cvt.rzi.s32.f64" => |[a, _, _]| of_s(d(a) as i32),
        "cvt.rzi.u32.f64" => |[a, _, _]| (d(a) as u32).into(),
        "cvt.rzi.s64.f64" => |[a, _, _]| (d(a) as i64) as u64,
        "cvt.rmi.f32.f32" => |[a, _, _]| of_f(f(a).floor()),
        "cvt.rpi.f32.f32" => |[a, _, _]| of_f(f(a).ceil()),
        "cvt.rni.f32.f32" => |[a, _, _]| of_f(f(a).round_ties_even()),
        "cvt.rzi.f32.f32" => |[a, _, _]| of_f(f(a).trunc()),
        "cvt.rmi.f64.f64" => |[a, _, _]| d(a).floor().to_bits(),
        "cvt.rpi.f64.f64" => |[a, _, _]| d(a).ceil().to_bits(),
        "cvt.rni.f64.f64" => |[a, _, _]| d(a).round_ties_even().to_bits(),
        "cvt.rzi.f64.f64" => |[a, _, _]| d(a).trunc().to_bits(),
        "add.rn.f32" => |[a, b, _]| of_f(f(a) + f(b)),
        "sub.rn.f32" => |[a, b, _]| of_f(f(a) - f(b)),
        "mul.rn.f32" => |[a, b, _]| of_f(f(a) * f(b)),
        "div.rn.f32" => |[a, b, _]| of_f(f(a) / f(b)),
        "fma.rn.f32" => |[a, b, c]| of_f(f(a).mul_add(f(b), f(c))),
        "sqrt.rn.f32" => |[a, _, _]| of_f(f(a).sqrt()),
        "add.rn.f64" => |[a, b, _]| (d(a) + d(b)).to_bits(),
        "sub.rn.f64" => |[a, b, _]| (d(a) - d(b)).to_bits(),
        "mul.rn.f64" => |[a, b, _]| (d(a) * d(b)).to_bits(),
        "div.rn.f64" => |[a, b, _]| (d(a) / d(b)).to_bits(),
        "fma.rn.f64" => |[a, b, c]| d(a).mul_add(d(b), d(c)).to_bits(),
        "sqrt.rn.f64" => |[a, _, _]| d(a).sqrt().to_bits(),
        "neg.f32" => |[a, _, _]| a ^ 1 << 31,
        "neg.f64" => |[a, _, _]| a ^ 1 << 63,
        "abs.f32" => |[a, _, _]| a & !(1 << 31),
        "abs.f64" => |[a, _, _]| a & !(1 << 63),
        "copysign.f32" => |[a, b, _]| (a & 1 << 31) | (b & !(1 << 31)),
        "copysign.f64" => |[a, b, _]| (a & 1 << 63) | (b & !(1 << 63)),
        "min.NaN.f32" => |[a, b, _]| of_f(least(f(a).into(), f(b).into()) as f32),
        "max.NaN.f32" => |[a, b, _]| of_f(-least(-f64::from(f(a)), -f64::from(f(b))) as f32),
        // Where one is NaN, the other: what comes after asks for it.
        "min.f64" => |[a, b, _]| least(d(a), d(b)).to_bits(),
        "max.f64" => |[a, b, _]| (-least(-d(a), -d(b))).to_bits(),
        _ => panic!("the machine does not know `{op}`"),
    }
}

/// The least, -0 below 0; NaN where one is.
fn least(a: f64, b: f64) -> f64 {
    match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        false => a.min(b),
    }
}
