//! Text of one entry point: registers, instructions, labels.

use crate::gpu::launches::TensorMap;
use hashbrown::HashMap;
use std::fmt;
use std::fmt::{Display, Write};

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Class {
    /// A truth value.
    Pred,
    /// 16 bits.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Long,
    /// An `f32`.
    Single,
    /// An `f64`.
    Double,
}

impl Class {
    const ALL: [Class; 6] =
        [Class::Pred, Class::Half, Class::Word, Class::Long, Class::Single, Class::Double];

    /// The name under which the result of an instruction is known: some, such as `mov.b32`, give results of several classes.
    fn result_of(self, op: &str, operands: impl Display) -> String {
        format!("{} {op} {operands}", self.spelled().0)
    }

    /// The letter of its registers, and their type.
    fn spelled(self) -> (&'static str, &'static str) {
        match self {
            Class::Pred => ("p", "pred"),
            Class::Half => ("h", "b16"),
            Class::Word => ("r", "b32"),
            Class::Long => ("d", "b64"),
            Class::Single => ("f", "f32"),
            Class::Double => ("e", "f64"),
        }
    }

    /// The type under which its bits are moved.
    pub(crate) fn moved(self) -> &'static str {
        self.spelled().1
    }
}

/// A register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Reg {
    pub(crate) class: Class,
    number: u32,
}

impl Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}{}", self.class.spelled().0, self.number)
    }
}

/// Registers as instructions name several.
pub(crate) fn listed(regs: &[Reg]) -> String {
    match regs {
        [one] => one.to_string(),
        _ => {
            let all: Vec<String> = regs.iter().map(Reg::to_string).collect();
            format!("{{{}}}", all.join(", "))
        }
    }
}

/// Writes the body of one entry point. An instruction that only computes is written once in the part of
/// the text where its result is known: asked for again, it gives the register of the first.
#[derive(Default)]
pub(crate) struct Asm {
    head: String,
    text: String,
    counts: [u32; Class::ALL.len()],
    labels: u32,
    params: u32,
    /// What is known: in the whole text, and in each open part of it.
    known: Vec<HashMap<String, Reg>>,
    /// The same of instructions with several results.
    rows: Vec<HashMap<String, Vec<Reg>>>,
    /// Whether a part of several is being written: what a launch is given is read in the part that uses it.
    in_part: bool,
    /// Whether it reads the table of the bits of 2/pi.
    pub(crate) table: bool,
    /// Whether quotients and roots of `f32` may be near what they round to.
    pub(crate) near: bool,
    /// Which outputs of the program that is being written are terms of the sum of a softmax.
    pub(crate) terms: Vec<bool>,
    /// Whether the chip adds, subtracts and multiplies pairs of 16-bit floats.
    pub(crate) pairs: bool,
    /// Blocks of a cluster; 0 and 1 say that there are none.
    pub(crate) cluster: i64,
    /// Whether text is written. Without it registers are numbered, and nothing is known of what they hold: what a launch is given
    /// is the same.
    pub(crate) writes: bool,
}

impl Asm {
    pub(crate) fn new() -> Asm {
        let (known, rows) = (vec![HashMap::new()], vec![HashMap::new()]);
        Asm { known, rows, writes: true, ..Asm::default() }
    }

    /// A register that nothing was written to.
    pub(crate) fn fresh(&mut self, class: Class) -> Reg {
        let count = &mut self.counts[class as usize];
        let number = *count;
        *count += 1;
        Reg { class, number }
    }

    /// Writes an instruction.
    pub(crate) fn emit(&mut self, line: impl Display) {
        if !self.writes {
            return;
        }
        let _ = writeln!(self.text, "  {line};");
    }

    /// The result of an instruction that only computes: `op result, operands`.
    pub(crate) fn pure(&mut self, class: Class, op: &str, operands: impl Display) -> Reg {
        if !self.writes {
            return self.fresh(class);
        }
        let key = class.result_of(op, &operands);
        if let Some(&found) = self.known.iter().rev().find_map(|known| known.get(&key)) {
            return found;
        }
        let result = self.fresh(class);
        let _ = writeln!(self.text, "  {op} {result}, {operands};");
        if let Some(known) = self.known.last_mut() {
            known.insert(key, result);
        }
        result
    }

    /// The results of an instruction that only computes several: `op {results}, operands`.
    pub(crate) fn pure_row(
        &mut self,
        class: Class,
        count: usize,
        op: &str,
        operands: impl Display,
    ) -> Vec<Reg> {
        if !self.writes {
            return (0..count).map(|_| self.fresh(class)).collect();
        }
        let key = class.result_of(op, &operands);
        if let Some(found) = self.rows.iter().rev().find_map(|known| known.get(&key)) {
            return found.clone();
        }
        let regs: Vec<Reg> = (0..count).map(|_| self.fresh(class)).collect();
        let _ = writeln!(self.text, "  {op} {}, {operands};", listed(&regs));
        if let Some(known) = self.rows.last_mut() {
            known.insert(key, regs.clone());
        }
        regs
    }

    /// What a load of several registers finds: once in each part of the text where memory stays as it is.
    pub(crate) fn load_row(
        &mut self,
        class: Class,
        count: usize,
        op: &str,
        address: impl Display,
    ) -> Vec<Reg> {
        if op.contains(".nc") {
            return self.pure_row(class, count, op, address);
        }
        let regs: Vec<Reg> = (0..count).map(|_| self.fresh(class)).collect();
        self.emit(format_args!("{op} {}, {address}", listed(&regs)));
        regs
    }

    /// Copies into a register that is written again.
    pub(crate) fn set(&mut self, to: Reg, from: Reg) {
        if to.class == Class::Pred {
            // Some assemblers know no move between predicates.
            self.emit(format_args!("or.pred {to}, {from}, {from}"));
        } else {
            self.emit(format_args!("mov.{} {to}, {from}", to.class.moved()));
        }
    }

    /// A copy that may be written again.
    pub(crate) fn copied(&mut self, from: Reg) -> Reg {
        let to = self.fresh(from.class);
        self.set(to, from);
        to
    }

    /// A constant of 32 bits.
    pub(crate) fn word(&mut self, value: i64) -> Reg {
        self.pure(Class::Word, "mov.b32", format_args!("{}", value as u32))
    }

    /// A constant of 64 bits.
    pub(crate) fn long(&mut self, value: i64) -> Reg {
        self.pure(Class::Long, "mov.b64", format_args!("{value}"))
    }

    /// A number as one of 32 bits.
    pub(crate) fn narrow(&mut self, x: Reg) -> Reg {
        match x.class {
            Class::Long => self.pure(Class::Word, "cvt.u32.u64", x),
            _ => x,
        }
    }

    /// A constant truth value.
    pub(crate) fn truth(&mut self, value: bool) -> Reg {
        let zero = self.word(0);
        let relation = if value { "setp.eq.u32" } else { "setp.ne.u32" };
        self.pure(Class::Pred, relation, format_args!("{zero}, 0"))
    }

    /// A label that is not yet placed.
    pub(crate) fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    /// Puts a label here. What was computed since a part began is known no further.
    pub(crate) fn place(&mut self, label: &str) {
        if !self.writes {
            return;
        }
        let _ = writeln!(self.text, "{label}:");
    }

    /// Puts a label here to which a loop comes back. What is to be written several times is: the assembler
    /// writes it no more often, and takes no registers for that.
    pub(crate) fn turn(&mut self, label: &str) {
        self.place(label);
        self.emit(".pragma \"nounroll\"");
    }

    /// Begins a part of the text that may be jumped over or back to: what it computes is known in it alone.
    pub(crate) fn open(&mut self) {
        self.known.push(HashMap::new());
        self.rows.push(HashMap::new());
    }

    /// Ends it.
    pub(crate) fn close(&mut self) {
        if self.known.len() > 1 {
            self.known.pop();
            self.rows.pop();
        }
    }

    /// Begins one of several parts, of which each block runs one. Its blocks are numbered from this one on.
    pub(crate) fn begin_part(&mut self, first: i64) {
        let block = self.special("ctaid.x");
        self.open();
        self.in_part = true;
        let own = self.pure(Class::Word, "sub.u32", format_args!("{block}, {first}"));
        self.know("special ctaid.x".to_owned(), own);
    }

    /// Ends it: the block is done.
    pub(crate) fn end_part(&mut self) {
        self.emit("ret");
        self.in_part = false;
        self.close();
    }

    /// Notes what is known from here on in this part of the text; from the beginning on, where there are no parts.
    fn know(&mut self, key: String, reg: Reg) {
        let scope = if self.in_part { self.known.last_mut() } else { self.known.first_mut() };
        if let Some(scope) = scope {
            scope.insert(key, reg);
        }
    }

    /// What is known of what a launch is given.
    fn given(&self, key: &str) -> Option<Reg> {
        self.known.iter().rev().find_map(|known| known.get(key)).copied()
    }

    /// Writes lines at the beginning, or here in a part.
    fn early(&mut self, lines: std::fmt::Arguments<'_>) {
        if !self.writes {
            return;
        }
        let text = if self.in_part { &mut self.text } else { &mut self.head };
        let _ = writeln!(text, "{lines}");
    }

    /// The parameter of this number, a pointer to global memory; it is read at the beginning.
    pub(crate) fn pointer(&mut self, number: u32) -> Reg {
        self.params = self.params.max(number + 1);
        if !self.writes {
            return self.fresh(Class::Long);
        }
        let key = format!("param {number}");
        if let Some(found) = self.given(&key) {
            return found;
        }
        let (raw, result) = (self.fresh(Class::Long), self.fresh(Class::Long));
        self.early(format_args!("  ld.param.u64 {raw}, [arg{number}];"));
        self.early(format_args!("  cvta.to.global.u64 {result}, {raw};"));
        self.know(key, result);
        result
    }

    /// The pointer of this number, moved on by `each` bytes for each position. The position is in the memory of another
    /// parameter; both are read at the beginning.
    pub(crate) fn pointer_at(&mut self, number: u32, position: u32, each: u64) -> Reg {
        let place = self.pointer(position);
        let key = format!("param {number}");
        if let Some(found) = self.given(&key) {
            return found;
        }
        self.params = self.params.max(number + 1);
        let at = self.given("position").unwrap_or_else(|| {
            let at = self.fresh(Class::Long);
            self.early(format_args!("  ld.global.nc.b64 {at}, [{place}];"));
            self.know("position".to_owned(), at);
            at
        });
        let [raw, moved, result] = [(); 3].map(|()| self.fresh(Class::Long));
        self.early(format_args!("  ld.param.u64 {raw}, [arg{number}];"));
        self.early(format_args!("  mad.lo.s64 {moved}, {at}, {each}, {raw};"));
        self.early(format_args!("  cvta.to.global.u64 {result}, {moved};"));
        self.know(key, result);
        result
    }

    /// Where the tensor map of this number is, as the copy engine is told it.
    pub(crate) fn tensor_map(&mut self, number: usize) -> Reg {
        let key = format!("map {number}");
        if let Some(found) = self.given(&key) {
            return found;
        }
        let [raw, result] = [(); 2].map(|()| self.fresh(Class::Long));
        self.early(format_args!("  mov.b64 {raw}, map{number};"));
        self.early(format_args!("  cvta.param.u64 {result}, {raw};"));
        self.know(key, result);
        result
    }

    /// A parameter that is a number of 64 bits.
    pub(crate) fn number(&mut self, number: u32) -> Reg {
        self.params = self.params.max(number + 1);
        let raw = self.fresh(Class::Long);
        self.early(format_args!("  ld.param.u64 {raw}, [arg{number}];"));
        raw
    }

    /// A special register of 32 bits, read at the beginning.
    pub(crate) fn special(&mut self, name: &str) -> Reg {
        if !self.writes {
            return self.fresh(Class::Word);
        }
        let key = format!("special {name}");
        if let Some(found) = self.given(&key) {
            return found;
        }
        let result = self.fresh(Class::Word);
        self.early(format_args!("  mov.u32 {result}, %{name};"));
        self.know(key, result);
        result
    }

    /// The entry point as text, for blocks of this many threads of which at least `blocks` shall fit a
    /// multiprocessor.
    pub(crate) fn finish(
        self,
        entry: &str,
        (args, maps): (usize, usize),
        threads: u32,
        blocks: u32,
    ) -> String {
        let mut out = String::new();
        let _ = writeln!(out, ".visible .entry {entry}(");
        let args = (0..args).map(|k| format!("  .param .u64 arg{k}"));
        let bytes = TensorMap::BYTES;
        let maps = (0..maps).map(|k| format!("  .param .align 64 .b8 map{k}[{bytes}]"));
        let params: Vec<String> = args.chain(maps).collect();
        if !params.is_empty() {
            let _ = writeln!(out, "{}", params.join(",\n"));
        }
        let _ = writeln!(out, ")\n.maxntid {threads}, 1, 1\n.minnctapersm {blocks}");
        if self.cluster > 1 {
            let _ = writeln!(out, ".explicitcluster\n.reqnctapercluster {}, 1, 1", self.cluster);
        }
        let _ = writeln!(out, "{{");
        for class in Class::ALL {
            let count = self.counts[class as usize];
            if count > 0 {
                let (letter, ty) = class.spelled();
                let _ = writeln!(out, "  .reg .{ty} %{letter}<{count}>;");
            }
        }
        out.push_str(&self.head);
        out.push_str(&self.text);
        out.push_str("  ret;\n}\n");
        out
    }
}

/// What is written before an instruction that only runs where a predicate holds.
pub(crate) fn guard_prefix(when: Option<Reg>) -> String {
    when.map_or(String::new(), |p| format!("@{p} "))
}

/// The result of an instruction that is written each time: some operand of it changes.
pub(crate) fn made(asm: &mut Asm, class: Class, op: &str, operands: impl Display) -> Reg {
    let to = asm.fresh(class);
    asm.emit(format_args!("{op} {to}, {operands}"));
    to
}
