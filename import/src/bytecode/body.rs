//! The instructions of a file as StableHLO text: functions, and the generic form of everything inside of them.

use super::container::{Container, OpName, entry, ir_section, since};
use super::decode::{DecodedAttribute, Decoder};
use super::ops;
use super::reader::{ByteReader, ByteResult, wrong_at};
use std::fmt::Write;
use std::mem::take;

/// Levels of regions inside of each other: as many as the text may have.
const MOST_NESTED: usize = 64;

/// What stands between instructions of VHLO and those of other dialects.
const CAST: (&str, &str) = ("builtin", "unrealized_conversion_cast");

/// Flags of an encoded instruction.
mod flag {
    pub(super) const ATTRIBUTES: u8 = 0x01;
    pub(super) const RESULTS: u8 = 0x02;
    pub(super) const OPERANDS: u8 = 0x04;
    pub(super) const SUCCESSORS: u8 = 0x08;
    pub(super) const REGIONS: u8 = 0x10;
    pub(super) const USE_ORDERS: u8 = 0x20;
    pub(super) const PROPERTIES: u8 = 0x40;
}

/// A value: its name, and the number of its type.
#[derive(Clone, Copy)]
struct NamedValue {
    name: ValueName,
    ty: u64,
}

#[derive(Clone, Copy)]
enum ValueName {
    Parameter(usize),
    /// Of an instruction, and which of its results if there are several.
    Result(usize, Option<usize>),
}

/// An instruction without its regions.
struct EncodedInstruction<'a> {
    dialect: &'a str,
    op: &'a str,
    attributes: Vec<(&'a str, u64)>,
    results: Vec<u64>,
    operands: Vec<NamedValue>,
    regions: usize,
    isolated: bool,
    /// Its own number.
    number: usize,
}

/// What prints.
pub(super) struct BodyPrinter<'a> {
    pub(super) decoder: Decoder<'a>,
    pub(super) out: String,
    most: usize,
    /// Values that can be seen, by number; the numbers of a region follow those around it.
    values: Vec<Option<NamedValue>>,
    /// The number of the next value of each region that is open.
    next: Vec<usize>,
    /// Values that all open regions announce.
    announced: usize,
    parameters: usize,
    instructions: usize,
    /// Regions that are open, and those whose lines are indented.
    levels: usize,
    depth: usize,
}

/// The text of the module.
pub(super) fn print(decoder: Decoder<'_>, most: usize) -> ByteResult<String> {
    let mut r = decoder.container.ir;
    let mut p = BodyPrinter {
        decoder,
        out: String::new(),
        most,
        values: Vec::new(),
        next: Vec::new(),
        announced: 0,
        parameters: 0,
        instructions: 0,
        levels: 0,
        depth: 0,
    };
    let count = p.block_header(&mut r)?.0;
    for _ in 0..count {
        p.instruction(&mut r, false)?;
    }
    p.out.push('\n');
    Ok(p.out)
}

impl std::fmt::Display for NamedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name {
            ValueName::Parameter(k) => write!(f, "%arg{k}"),
            ValueName::Result(k, None) => write!(f, "%{k}"),
            ValueName::Result(k, Some(which)) => write!(f, "%{k}#{which}"),
        }
    }
}

impl<'a> BodyPrinter<'a> {
    fn container(&self) -> &Container<'a> {
        &self.decoder.container
    }

    /// Begins a line, the first one where the text begins.
    fn line(&mut self) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        (0..self.depth).for_each(|_| self.out.push_str("  "));
    }

    /// Appends text.
    pub(super) fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to memory does not fail.
        let _ = self.out.write_fmt(text);
    }

    /// Errs where there is more text than there may be.
    pub(super) fn bounded(&self) -> ByteResult<()> {
        match self.out.len() > self.most {
            true => wrong_at(self.decoder.at, "a module whose text is too long"),
            false => Ok(()),
        }
    }

    /// The number of instructions of a block, and its parameters.
    fn block_header(&mut self, r: &mut ByteReader<'a>) -> ByteResult<(u64, Vec<NamedValue>)> {
        let (count, has_parameters) = r.flagged()?;
        let mut parameters = Vec::new();
        if !has_parameters {
            return Ok((count, parameters));
        }
        let version = self.container().version;
        for _ in 0..r.count()? {
            let (ty, located) = match version < since::ELIDED_LOCATIONS {
                true => (r.number()?, true),
                false => r.flagged()?,
            };
            if located {
                r.number()?;
            }
            let name = ValueName::Parameter(self.parameters);
            self.parameters += 1;
            parameters.push(NamedValue { name, ty });
            self.define(r, NamedValue { name, ty })?;
        }
        if version >= since::USE_ORDERS && r.byte()? != 0 {
            use_orders(r, parameters.len())?;
        }
        Ok((count, parameters))
    }

    fn define(&mut self, r: &ByteReader<'_>, value: NamedValue) -> ByteResult<()> {
        let next = self.next.last_mut();
        match next.and_then(|k| self.values.get_mut(std::mem::replace(k, *k + 1))) {
            Some(free) => {
                *free = Some(value);
                Ok(())
            }
            None => r.wrong("more values than the region announces"),
        }
    }

    fn encoded(&mut self, r: &mut ByteReader<'a>) -> ByteResult<EncodedInstruction<'a>> {
        let op = r.number()?;
        let name = *entry(r, &self.container().ops, op, "op")?;
        let flags = r.byte()?;
        r.number()?;
        let has = |flag: u8| flags & flag != 0;
        let mut attributes = Vec::new();
        if has(flag::ATTRIBUTES) {
            let dictionary = r.number()?;
            attributes = self.dictionary(r, dictionary)?;
        }
        if has(flag::PROPERTIES) {
            let properties = r.number()?;
            attributes.extend(self.properties(r, properties, name)?);
        }
        let results = if has(flag::RESULTS) { r.list(ByteReader::number)? } else { Vec::new() };
        let mut operands = Vec::new();
        if has(flag::OPERANDS) {
            for k in r.list(ByteReader::number)? {
                match entry(r, &self.values, k, "value")? {
                    Some(value) => operands.push(*value),
                    None => return r.wrong(format_args!("value {k}, which is defined later")),
                }
            }
        }
        if has(flag::SUCCESSORS) && !r.list(ByteReader::number)?.is_empty() {
            return r.wrong(format_args!(
                "`{}.{}`, which goes to other blocks",
                name.dialect, name.name
            ));
        }
        if has(flag::USE_ORDERS) && self.container().version >= since::USE_ORDERS {
            use_orders(r, results.len())?;
        }
        let (regions, isolated) = if has(flag::REGIONS) { r.flagged()? } else { (0, false) };
        let number = self.instructions;
        // A cast between VHLO and other dialects: the same value.
        let is_cast = (name.dialect, name.name) == CAST && operands.len() == results.len();
        self.instructions += usize::from(!results.is_empty() && !is_cast);
        for (k, &ty) in results.iter().enumerate() {
            let which = (results.len() > 1).then_some(k);
            let own = ValueName::Result(number, which);
            let name = if is_cast { operands[k].name } else { own };
            self.define(r, NamedValue { name, ty })?;
        }
        let (dialect, op) = (name.dialect, name.name);
        let regions = r.fits(regions)?;
        Ok(EncodedInstruction {
            dialect,
            op,
            attributes,
            results,
            operands,
            regions,
            isolated,
            number,
        })
    }

    /// Attributes with their names.
    fn dictionary(&mut self, r: &ByteReader<'_>, number: u64) -> ByteResult<Vec<(&'a str, u64)>> {
        let DecodedAttribute::Dictionary(entries) = self.decoder.attribute(number)? else {
            return r.wrong("attributes that are no dictionary");
        };
        entries.into_iter().map(|(name, value)| Ok((self.decoder.string(name)?, value))).collect()
    }

    /// Attributes in the order that the op has; they are those that the table has.
    fn properties(
        &mut self,
        r: &ByteReader<'_>,
        number: u64,
        of: OpName<'a>,
    ) -> ByteResult<Vec<(&'a str, u64)>> {
        if !of.registered {
            return self.dictionary(r, number);
        }
        let (dialect, op) = (of.dialect, of.name);
        let mut values = *entry(r, &self.container().properties, number, "properties")?;
        match (dialect, ops::attributes(op)) {
            // The name of the module; shardings.
            ("builtin" | "sdy", _) => Ok(Vec::new()),
            ("vhlo", Some(names)) => {
                let named: ByteResult<_> =
                    names.iter().map(|&name| Ok((name, values.number()?))).collect();
                match values.is_empty() {
                    true => named,
                    false => values.wrong(format_args!("more attributes than `vhlo.{op}` has")),
                }
            }
            _ => r.wrong(format_args!("`{dialect}.{op}`, which is no op of VHLO")),
        }
    }

    /// An instruction; `nested` ones are inside of a region that is not a function's body.
    fn instruction(&mut self, r: &mut ByteReader<'a>, nested: bool) -> ByteResult<()> {
        self.decoder.at = r.place();
        let inst = self.encoded(r)?;
        self.bounded()?;
        match (inst.dialect, inst.op) {
            ("builtin", "module") => {
                self.line();
                self.out.push_str("module");
                self.regions(r, &inst, |p, r| p.braced(r, false))
            }
            ("vhlo", "func_v1") => self.function(r, &inst),
            ("vhlo", op) => {
                let op = op.trim_end_matches(|c: char| c.is_ascii_digit());
                let op = match op.strip_suffix("_v").unwrap_or(op) {
                    "call" => "func.call".to_string(),
                    "return" if !nested => "func.return".to_string(),
                    op => format!("stablehlo.{op}"),
                };
                self.generic(r, &inst, &op)
            }
            op if op == CAST && inst.operands.len() == inst.results.len() => Ok(()),
            // It names the devices of shardings, which are left out.
            ("sdy", "mesh") => Ok(()),
            ("sdy", op) => self.generic(r, &inst, &format!("sdy.{op}")),
            (dialect, op) => r.wrong(format_args!("`{dialect}.{op}`, which is no op of VHLO")),
        }
    }

    /// Reads regions; what of a function's body is a section of its own.
    fn regions(
        &mut self,
        r: &mut ByteReader<'a>,
        inst: &EncodedInstruction<'a>,
        mut each: impl FnMut(&mut Self, &mut ByteReader<'a>) -> ByteResult<()>,
    ) -> ByteResult<()> {
        let mut section = None;
        if inst.isolated && inst.regions > 0 && self.container().version >= since::LAZY_REGIONS {
            section = Some(ir_section(r)?);
        }
        self.levels += 1;
        if self.levels > MOST_NESTED {
            return r.wrong(format_args!("regions nested deeper than {MOST_NESTED}"));
        }
        let outer = inst.isolated.then(|| (take(&mut self.values), take(&mut self.next)));
        for _ in 0..inst.regions {
            each(self, section.as_mut().unwrap_or(r))?;
        }
        if let Some(outer) = outer {
            (self.values, self.next) = outer;
        }
        self.levels -= 1;
        Ok(())
    }

    /// A region in braces, with its parameters in front of its instructions.
    fn braced(&mut self, r: &mut ByteReader<'a>, nested: bool) -> ByteResult<()> {
        self.region(r, nested, |p, parameters| {
            p.out.push_str(" {");
            if !parameters.is_empty() {
                p.line();
                p.out.push_str("^bb0");
                p.parameters(parameters, &[])?;
                p.out.push(':');
            }
            Ok(())
        })
    }

    /// A region; `open` prints what stands before its instructions.
    fn region(
        &mut self,
        r: &mut ByteReader<'a>,
        nested: bool,
        open: impl FnOnce(&mut Self, &[NamedValue]) -> ByteResult<()>,
    ) -> ByteResult<()> {
        let blocks = r.number()?;
        let first = self.values.len();
        let (mut values, mut count, mut parameters) = (0, 0, Vec::new());
        if blocks > 1 {
            return r.wrong("a region of several blocks");
        }
        if blocks == 1 {
            values = r.count()?;
            self.announced += values;
            // The definition of a value takes a byte at least.
            if self.announced > self.container().ir.left() {
                return r.wrong("regions that announce more values than they can define");
            }
            self.values.resize(first + values, None);
            self.next.push(first);
            (count, parameters) = self.block_header(r)?;
        }
        open(self, &parameters)?;
        self.depth += 1;
        for _ in 0..count {
            self.instruction(r, nested)?;
        }
        self.depth -= 1;
        self.line();
        self.out.push('}');
        if blocks == 1 {
            self.values.truncate(first);
            self.next.pop();
            self.announced -= values;
        }
        Ok(())
    }

    /// Parameters with their types, and with the names of the extents that they are.
    fn parameters(
        &mut self,
        parameters: &[NamedValue],
        extents: &[Option<&str>],
    ) -> ByteResult<()> {
        for (k, value) in parameters.iter().enumerate() {
            let ty = self.decoder.ty(value.ty, 0)?;
            self.put(format_args!("{}{value}: {}", if k > 0 { ", " } else { "(" }, ty.text));
            if let Some(Some(name)) = extents.get(k) {
                self.out.push_str(" {jax.global_constant = ");
                self.quoted(name);
                self.out.push('}');
            }
            self.bounded()?;
        }
        self.out.push_str(if parameters.is_empty() { "()" } else { ")" });
        Ok(())
    }

    fn function(
        &mut self,
        r: &mut ByteReader<'a>,
        inst: &EncodedInstruction<'a>,
    ) -> ByteResult<()> {
        let all = &inst.attributes;
        let (Some(name), Some(ty)) = (find(all, "sym_name"), find(all, "function_type")) else {
            return r.wrong("a function without its name or its type");
        };
        let name = self.decoder.string(name)?;
        let DecodedAttribute::Type(ty) = self.decoder.attribute(ty)? else {
            return r.wrong("a function's type that is no type");
        };
        let ty = self.decoder.ty(ty, 0)?;
        let Some(results) = &ty.results else {
            return r.wrong("a function's type that is another");
        };
        let visibility = match find(all, "sym_visibility") {
            Some(word) => self.decoder.string(word)?,
            None => "",
        };
        let extents = match find(all, "arg_attrs") {
            Some(attributes) => self.extent_names(attributes)?,
            None => Vec::new(),
        };
        (self.parameters, self.instructions) = (0, 0);
        self.line();
        self.out.push_str("func.func ");
        if !visibility.is_empty() {
            self.put(format_args!("{visibility} "));
        }
        self.symbol(name);
        self.regions(r, inst, |p, r| {
            p.region(r, false, |p, parameters| {
                p.parameters(parameters, &extents)?;
                p.out.push_str(" -> ");
                p.types(results)?;
                p.out.push_str(" {");
                Ok(())
            })
        })
    }

    /// Types in parentheses.
    fn types(&mut self, types: &[u64]) -> ByteResult<()> {
        self.out.push('(');
        for (k, &ty) in types.iter().enumerate() {
            if k > 0 {
                self.out.push_str(", ");
            }
            let ty = self.decoder.ty(ty, 0)?;
            self.out.push_str(&ty.text);
            self.bounded()?;
        }
        self.out.push(')');
        Ok(())
    }

    /// `%0 = "op"(%a) <{attributes}> ({regions}) : (types) -> (types)`.
    fn generic(
        &mut self,
        r: &mut ByteReader<'a>,
        inst: &EncodedInstruction<'a>,
        op: &str,
    ) -> ByteResult<()> {
        self.line();
        match inst.results.len() {
            0 => {}
            1 => self.put(format_args!("%{} = ", inst.number)),
            n => self.put(format_args!("%{}:{n} = ", inst.number)),
        }
        self.put(format_args!("\"{op}\"("));
        for (k, operand) in inst.operands.iter().enumerate() {
            self.put(format_args!("{}{operand}", if k > 0 { ", " } else { "" }));
        }
        self.out.push(')');
        self.attributes(r, op.strip_prefix("stablehlo.").unwrap_or(op), &inst.attributes)?;
        if inst.regions > 0 {
            self.out.push_str(" (");
            let mut first = true;
            self.regions(r, inst, |p, r| {
                if !std::mem::replace(&mut first, false) {
                    p.out.push(',');
                }
                p.braced(r, true)
            })?;
            self.out.push(')');
        }
        self.out.push_str(" : ");
        let operands: Vec<u64> = inst.operands.iter().map(|o| o.ty).collect();
        self.types(&operands)?;
        self.out.push_str(" -> ");
        self.types(&inst.results)
    }
}

/// The number of the attribute of this name.
pub(super) fn find(all: &[(&str, u64)], name: &str) -> Option<u64> {
    all.iter().find(|(n, _)| *n == name).map(|a| a.1)
}

/// Skips the order of the uses of `count` values.
fn use_orders(r: &mut ByteReader<'_>, count: usize) -> ByteResult<()> {
    let values = if count > 1 { r.count()? } else { 1 };
    for _ in 0..values {
        if count > 1 {
            r.number()?;
        }
        let (uses, _) = r.flagged()?;
        for _ in 0..r.fits(uses)? {
            r.number()?;
        }
    }
    Ok(())
}
