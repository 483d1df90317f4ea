//! Attributes of instructions as text.

use super::body::{BodyPrinter, find};
use super::decode::DecodedAttribute;
use super::elements::{TensorElements, number};
use super::reader::{ByteReader, ByteResult};
use super::vhlo::{IMPLEMENTATION, LAYOUTS, SYMBOLS, dimension_numbers};

/// Attributes inside of each other.
const MOST_NESTED: usize = 64;

type AttributeNumbers<'n> = [(&'n str, u64)];

impl<'a> BodyPrinter<'a> {
    /// `<{name = value, ..}>`, where there are any.
    pub(super) fn attributes(
        &mut self,
        r: &ByteReader<'_>,
        op: &str,
        all: &AttributeNumbers<'_>,
    ) -> ByteResult<()> {
        let begin = self.out.len();
        let mut taken: Vec<&str> = IMPLEMENTATION.to_vec();
        if matches!(op, "convolution" | "dynamic_conv") {
            self.layouts(r, all, &mut taken)?;
        }
        if let Some(numbers) = dimension_numbers(op) {
            self.named(begin, numbers.name);
            self.out.push_str(numbers.begins);
            self.out.push('<');
            let mut first = true;
            for &part in numbers.parts {
                let Some(value) = find(all, part) else { continue };
                taken.push(part);
                let list = self.integers(r, value)?;
                if list.is_empty() {
                    continue;
                }
                let comma = if std::mem::replace(&mut first, false) { "" } else { ", " };
                match (part, list.as_slice()) {
                    ("index_vector_dim", [n]) => self.put(format_args!("{comma}{part} = {n}")),
                    _ => self.put(format_args!("{comma}{part} = {list:?}")),
                }
            }
            self.out.push('>');
        }
        // Shardings are left out.
        let kept = |name: &str| !taken.contains(&name) && !name.starts_with("sdy.");
        for &(name, value) in all.iter().filter(|(name, _)| kept(name)) {
            self.named(begin, name);
            self.attribute(r, value, SYMBOLS.contains(&name), 0)?;
        }
        if self.out.len() > begin {
            self.out.push_str("}>");
        }
        Ok(())
    }

    /// The name of an attribute, with what stands before it.
    fn named(&mut self, begin: usize, name: &str) {
        self.out.push_str(if self.out.len() == begin { " <{" } else { ", " });
        self.key(name);
        self.out.push_str(" = ");
    }

    fn key(&mut self, name: &str) {
        match name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(is_word)
        {
            true => self.out.push_str(name),
            false => self.quoted(name),
        }
    }

    /// The layouts of a convolution: `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`.
    fn layouts<'n>(
        &mut self,
        r: &ByteReader<'_>,
        all: &AttributeNumbers<'n>,
        taken: &mut Vec<&'n str>,
    ) -> ByteResult<()> {
        let begin = self.out.len();
        self.named(begin, "dimension_numbers");
        self.out.push_str("#stablehlo.conv<");
        for (k, (letters, spatial)) in LAYOUTS.into_iter().enumerate() {
            let mut axes: Vec<(i64, String)> = Vec::new();
            for (name, letter) in letters {
                let axis = self.need(r, all, name)?;
                axes.extend(axis.first().map(|&axis| (axis, letter.to_string())));
                taken.push(name);
            }
            let places = self.need(r, all, spatial)?;
            taken.push(spatial);
            axes.extend(places.iter().enumerate().map(|(k, &axis)| (axis, k.to_string())));
            axes.sort();
            if axes.iter().enumerate().any(|(k, (axis, _))| k as i64 != *axis) {
                return r.wrong("a convolution whose axes are not each there once");
            }
            let letters: Vec<&str> = axes.iter().map(|(_, letter)| letter.as_str()).collect();
            self.put(format_args!("{}[{}]", ["", "x", "->"][k], letters.join(", ")));
        }
        self.out.push('>');
        Ok(())
    }

    fn need(
        &mut self,
        r: &ByteReader<'_>,
        all: &AttributeNumbers<'_>,
        name: &str,
    ) -> ByteResult<Vec<i64>> {
        match find(all, name) {
            Some(value) => self.integers(r, value),
            None => r.wrong(format_args!("an instruction without `{name}`")),
        }
    }

    /// An attribute that is an integer, or several.
    fn integers(&mut self, r: &ByteReader<'_>, number: u64) -> ByteResult<Vec<i64>> {
        let list = match self.decoder.attribute(number)? {
            DecodedAttribute::Integer(_, n) => Some(vec![n]),
            DecodedAttribute::Tensor(ty, bytes) => {
                let ty = self.decoder.ty(ty, 0)?;
                TensorElements::of(&ty, bytes).and_then(|t| t.integers())
            }
            _ => None,
        };
        list.map_or_else(|| r.wrong("an attribute that is no list of integers"), Ok)
    }

    /// The value of an attribute; strings may be names of functions.
    fn attribute(
        &mut self,
        r: &ByteReader<'_>,
        value: u64,
        symbols: bool,
        depth: usize,
    ) -> ByteResult<()> {
        self.bounded()?;
        if depth > MOST_NESTED {
            return r.wrong(format_args!("attributes nested deeper than {MOST_NESTED}"));
        }
        match self.decoder.attribute(value)? {
            DecodedAttribute::Array(items) => {
                self.out.push('[');
                for (k, item) in items.into_iter().enumerate() {
                    self.out.push_str(if k > 0 { ", " } else { "" });
                    self.attribute(r, item, symbols, depth + 1)?;
                }
                self.out.push(']');
            }
            DecodedAttribute::Dictionary(entries) => {
                self.out.push('{');
                for (k, (name, item)) in entries.into_iter().enumerate() {
                    self.out.push_str(if k > 0 { ", " } else { "" });
                    let name = self.decoder.string(name)?;
                    self.key(name);
                    self.out.push_str(" = ");
                    self.attribute(r, item, symbols, depth + 1)?;
                }
                self.out.push('}');
            }
            DecodedAttribute::Bool(b) => self.put(format_args!("{b}")),
            DecodedAttribute::Word(kind, word) => {
                self.put(format_args!("#stablehlo<{kind} {word}>"))
            }
            DecodedAttribute::Float(ty, bits) => {
                let ty = self.decoder.ty(ty, 0)?;
                self.put(format_args!("{} : {}", number(&ty.text, bits), ty.text));
            }
            DecodedAttribute::Integer(ty, n) => {
                let ty = self.decoder.ty(ty, 0)?;
                self.put(format_args!("{n} : {}", ty.text));
            }
            DecodedAttribute::Alias => self.out.push_str("#stablehlo.output_operand_alias<>"),
            DecodedAttribute::Str(s) if symbols => self.symbol(s),
            DecodedAttribute::Str(s) => self.quoted(s),
            DecodedAttribute::Symbol(name) => {
                let name = self.decoder.string(name)?;
                self.symbol(name);
            }
            DecodedAttribute::Tensor(ty, bytes) => {
                let ty = self.decoder.ty(ty, 0)?;
                let Some(elements) = TensorElements::of(&ty, bytes) else {
                    return r.wrong(format_args!("{} bytes for {}", bytes.len(), ty.text));
                };
                self.out.push_str("dense<");
                elements.write(&mut self.out);
                self.put(format_args!("> : {}", ty.text));
            }
            DecodedAttribute::DenseArray(ty, bytes) => self.array(r, ty, bytes)?,
            DecodedAttribute::Type(ty) => {
                let ty = self.decoder.ty(ty, 0)?;
                self.out.push_str(&ty.text);
            }
            DecodedAttribute::Unit => self.out.push_str("unit"),
            DecodedAttribute::Bounds(_) => self.out.push_str("#stablehlo.bounds<>"),
            DecodedAttribute::Accuracy(mode) => {
                self.out.push_str("#stablehlo.result_accuracy<mode = ");
                self.attribute(r, mode, false, depth + 1)?;
                self.out.push('>');
            }
            DecodedAttribute::Written(text) => self.out.push_str(text),
        }
        Ok(())
    }

    /// `array<i64: 1, 2>`.
    fn array(&mut self, r: &ByteReader<'_>, ty: u64, bytes: &[u8]) -> ByteResult<()> {
        let ty = self.decoder.ty(ty, 0)?;
        let Some(width) = super::vhlo::bits(&ty.text).map(|bits| bits.div_ceil(8) as usize) else {
            return r.wrong(format_args!("an array of {}", ty.text));
        };
        self.put(format_args!("array<{}", ty.text));
        for (k, element) in bytes.chunks(width).enumerate() {
            let mut wide = [0; 8];
            wide[..element.len()].copy_from_slice(element);
            let text = number(&ty.text, u64::from_le_bytes(wide));
            self.put(format_args!("{}{text}", if k > 0 { ", " } else { ": " }));
        }
        self.out.push('>');
        Ok(())
    }

    /// `@name`.
    pub(super) fn symbol(&mut self, name: &str) {
        self.out.push('@');
        match !name.is_empty() && name.bytes().all(is_word) {
            true => self.out.push_str(name),
            false => self.quoted(name),
        }
    }

    /// The names of the extents that parameters are, of the attributes of parameters.
    pub(super) fn extent_names(&mut self, attributes: u64) -> ByteResult<Vec<Option<&'a str>>> {
        let DecodedAttribute::Array(each) = self.decoder.attribute(attributes)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for of in each {
            let DecodedAttribute::Dictionary(entries) = self.decoder.attribute(of)? else {
                names.push(None);
                continue;
            };
            let mut name = None;
            for (key, value) in entries {
                if self.decoder.string(key)? == "jax.global_constant" {
                    name = Some(self.decoder.string(value)?);
                }
            }
            names.push(name);
            self.bounded()?;
        }
        Ok(names)
    }

    /// A string, with escapes for what would end it.
    pub(super) fn quoted(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => self.out.extend(['\\', c]),
                c if c.is_control() => c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| {
                    self.put(format_args!("\\{b:02X}"));
                }),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$')
}
