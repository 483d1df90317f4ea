//! Attributes and types, decoded where they are needed. They refer to each other by number.

use super::container::{Container, Encoded, entry};
use super::reader::{ByteReader, ByteResult, wrong_at};
use super::vhlo::{AttributeForm, TypeForm, attribute_form, bits, type_form};
use std::rc::Rc;

/// Attributes and types inside of each other.
const MOST_NESTED: usize = 64;

/// Axes of a tensor: more than the text may have.
const MOST_AXES: usize = 64;

/// A type.
#[derive(Debug)]
pub(super) struct DecodedType {
    /// As StableHLO text has it.
    pub(super) text: String,
    /// The extents and the name of the element type of a tensor.
    pub(super) tensor: Option<(Vec<i64>, String)>,
    /// The results of a function, by number.
    pub(super) results: Option<Vec<u64>>,
}

/// An attribute; others and types are given by number.
#[derive(Debug)]
pub(super) enum DecodedAttribute<'a> {
    Array(Vec<u64>),
    Bool(bool),
    Word(&'static str, &'static str),
    Dictionary(Vec<(u64, u64)>),
    Float(u64, u64),
    Integer(u64, i64),
    /// Which operand's memory a result takes.
    Alias,
    Str(&'a str),
    Symbol(u64),
    Tensor(u64, &'a [u8]),
    DenseArray(u64, &'a [u8]),
    Type(u64),
    Unit,
    Bounds(Vec<i64>),
    /// The mode of an accuracy.
    Accuracy(u64),
    /// In text.
    Written(&'a str),
}

/// Decodes attributes and types of a container; all texts of types together have a bound.
pub(super) struct Decoder<'a> {
    pub(super) container: Container<'a>,
    /// Where the instruction is that is being read.
    pub(super) at: usize,
    types: Vec<Option<Rc<DecodedType>>>,
    spent: usize,
    most: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(container: Container<'a>, most: usize) -> Decoder<'a> {
        let types = vec![None; container.types.len()];
        Decoder { container, at: 0, types, spent: 0, most }
    }

    /// The attribute of this number.
    pub(super) fn attribute(&mut self, number: u64) -> ByteResult<DecodedAttribute<'a>> {
        let place = ByteReader::new(&[], self.at);
        let encoded = *entry(&place, &self.container.attributes, number, "attribute")?;
        let mut r = encoded.bytes;
        if !encoded.custom {
            return written(&mut r).map(DecodedAttribute::Written);
        }
        let code = r.number()?;
        let Some(form) = attribute_form(encoded.dialect, code) else {
            return r.wrong(format_args!(
                "attribute {code} of `{}`, which is not known",
                encoded.dialect
            ));
        };
        self.attribute_of(form, &mut r, encoded)
    }

    fn attribute_of(
        &mut self,
        form: AttributeForm,
        r: &mut ByteReader<'a>,
        encoded: Encoded<'a>,
    ) -> ByteResult<DecodedAttribute<'a>> {
        Ok(match form {
            AttributeForm::Array => DecodedAttribute::Array(r.list(ByteReader::number)?),
            AttributeForm::Bool => DecodedAttribute::Bool(r.number()? != 0),
            AttributeForm::Enumeration(name, words) => {
                let word = r.number()?;
                DecodedAttribute::Word(name, entry(r, words, word, "word")?)
            }
            AttributeForm::Dictionary => {
                DecodedAttribute::Dictionary(r.list(|r| Ok((r.number()?, r.number()?)))?)
            }
            AttributeForm::Float | AttributeForm::Integer => {
                let ty = r.number()?;
                let text = &self.ty(ty, 0)?.text;
                let Some(width) = bits(text) else {
                    return r.wrong(format_args!("a number of type {text}"));
                };
                // Short numbers are a byte.
                let value = match width <= 8 {
                    true => i64::from(r.byte()? as i8),
                    false => r.signed()?,
                };
                match form {
                    AttributeForm::Float => DecodedAttribute::Float(ty, value as u64),
                    _ => DecodedAttribute::Integer(ty, value),
                }
            }
            AttributeForm::Alias => DecodedAttribute::Alias,
            AttributeForm::Str => {
                let k = r.number()?;
                DecodedAttribute::Str(entry(r, &self.container.strings, k, "string")?)
            }
            AttributeForm::Symbol => DecodedAttribute::Symbol(r.number()?),
            AttributeForm::Tensor => {
                let ty = r.number()?;
                DecodedAttribute::Tensor(ty, r.blob()?)
            }
            AttributeForm::DenseArray => {
                let ty = r.number()?;
                r.number()?;
                DecodedAttribute::DenseArray(ty, r.blob()?)
            }
            AttributeForm::Type => DecodedAttribute::Type(r.number()?),
            AttributeForm::Unit => DecodedAttribute::Unit,
            AttributeForm::Bounds => DecodedAttribute::Bounds(r.list(ByteReader::signed)?),
            AttributeForm::Accuracy => {
                debug_assert_eq!(encoded.dialect, "vhlo");
                r.signed()?;
                r.signed()?;
                r.signed()?;
                DecodedAttribute::Accuracy(r.number()?)
            }
        })
    }

    /// The string that an attribute is.
    pub(super) fn string(&mut self, number: u64) -> ByteResult<&'a str> {
        match self.attribute(number)? {
            DecodedAttribute::Str(s) => Ok(s),
            _ => wrong_at(self.at, format_args!("attribute {number} is no string")),
        }
    }

    /// The type of this number.
    pub(super) fn ty(&mut self, number: u64, depth: usize) -> ByteResult<Rc<DecodedType>> {
        let place = ByteReader::new(&[], self.at);
        let encoded = *entry(&place, &self.container.types, number, "type")?;
        let cached =
            usize::try_from(number).ok().and_then(|k| self.types.get(k).cloned().flatten());
        if let Some(found) = cached {
            return Ok(found);
        }
        let mut r = encoded.bytes;
        if depth > MOST_NESTED {
            return r.wrong(format_args!("types nested deeper than {MOST_NESTED}"));
        }
        let made = match encoded.custom {
            false => DecodedType::of(written(&mut r)?.to_string()),
            true => {
                let code = r.number()?;
                let Some(form) = type_form(encoded.dialect, code) else {
                    return r.wrong(format_args!(
                        "type {code} of `{}`, which is not known",
                        encoded.dialect
                    ));
                };
                self.type_of(form, &mut r, depth + 1)?
            }
        };
        self.spent += made.text.len();
        if self.spent > self.most {
            return r.wrong("types whose text is too long");
        }
        let made = Rc::new(made);
        self.types[number as usize] = Some(made.clone());
        Ok(made)
    }

    fn type_of(
        &mut self,
        form: TypeForm,
        r: &mut ByteReader<'a>,
        depth: usize,
    ) -> ByteResult<DecodedType> {
        Ok(DecodedType::of(match form {
            TypeForm::Named(name) => name.to_string(),
            TypeForm::Integer => {
                let n = r.number()?;
                let sign = entry(r, &["i", "si", "ui"], n & 3, "sign")?;
                format!("{sign}{}", n >> 2)
            }
            TypeForm::Complex => format!("complex<{}>", self.part(r, depth)?),
            TypeForm::Function => {
                let (operands, results) =
                    (r.list(ByteReader::number)?, r.list(ByteReader::number)?);
                let mut text = String::new();
                for (list, open) in [(&operands, "("), (&results, " -> (")] {
                    text.push_str(open);
                    self.joined(list, &mut text, depth)?;
                    text.push(')');
                }
                return Ok(DecodedType { text, tensor: None, results: Some(results) });
            }
            TypeForm::Tensor | TypeForm::TensorWithEncoding => {
                let encoding = match form {
                    TypeForm::TensorWithEncoding => self.encoding(r)?,
                    _ => String::new(),
                };
                let dims = r.list(ByteReader::signed)?;
                if dims.len() > MOST_AXES {
                    return r.wrong(format_args!("a tensor of {} axes", dims.len()));
                }
                let element = self.part(r, depth)?;
                let text = format!("tensor<{}{element}{encoding}>", extents(&dims));
                return Ok(DecodedType { text, tensor: Some((dims, element)), results: None });
            }
            TypeForm::Tuple => {
                let parts = r.list(ByteReader::number)?;
                let mut text = String::from("tuple<");
                self.joined(&parts, &mut text, depth)?;
                text.push('>');
                text
            }
            TypeForm::Quantized => {
                r.number()?;
                let (stored, expressed) = (self.part(r, depth)?, self.part(r, depth)?);
                let scale = f64::from_bits(r.signed()? as u64);
                format!("!quant.uniform<{stored}:{expressed}, {scale:?}:{}>", r.signed()?)
            }
            TypeForm::QuantizedPerAxis => {
                r.number()?;
                let (stored, expressed) = (self.part(r, depth)?, self.part(r, depth)?);
                let axis = r.number()?;
                r.signed()?;
                r.signed()?;
                let scales = r.list(|r| Ok(f64::from_bits(r.signed()? as u64)))?;
                let zeros = r.list(ByteReader::signed)?;
                let pairs = scales.iter().zip(&zeros).map(|(s, z)| format!("{s:?}:{z}"));
                let pairs: Vec<String> = pairs.collect();
                format!("!quant.uniform<{stored}:{expressed}:{axis}, {{{}}}>", pairs.join(", "))
            }
            TypeForm::Unranked => format!("tensor<*x{}>", self.part(r, depth)?),
            TypeForm::Buffer => {
                let dims = r.list(ByteReader::signed)?;
                format!("memref<{}{}>", extents(&dims), self.part(r, depth)?)
            }
        }))
    }

    /// The text of a type that the type before has a part of.
    fn part(&mut self, r: &mut ByteReader<'a>, depth: usize) -> ByteResult<String> {
        let number = r.number()?;
        self.ty(number, depth).map(|t| t.text.clone())
    }

    /// Types with commas between.
    fn joined(&mut self, list: &[u64], text: &mut String, depth: usize) -> ByteResult<()> {
        for (k, &number) in list.iter().enumerate() {
            if k > 0 {
                text.push_str(", ");
            }
            text.push_str(&self.ty(number, depth)?.text);
            if text.len() > self.most {
                return wrong_at(self.at, "a type whose text is too long");
            }
        }
        Ok(())
    }

    fn encoding(&mut self, r: &mut ByteReader<'a>) -> ByteResult<String> {
        let number = r.number()?;
        let DecodedAttribute::Bounds(bounds) = self.attribute(number)? else {
            return r.wrong("an encoding that is not known");
        };
        let bounds = bounds.iter().map(|&b| if b < 0 { "?".to_string() } else { b.to_string() });
        Ok(format!(", #stablehlo.bounds<{}>", bounds.collect::<Vec<_>>().join(", ")))
    }
}

impl DecodedType {
    fn of(text: String) -> DecodedType {
        DecodedType { text, tensor: None, results: None }
    }
}

/// Text with a zero at its end.
fn written<'a>(r: &mut ByteReader<'a>) -> ByteResult<&'a str> {
    let here = *r;
    std::str::from_utf8(r.terminated()?).or_else(|_| here.wrong("text that is no UTF-8"))
}

/// Extents, each with an `x` behind it; one that is not known is below 0.
fn extents(dims: &[i64]) -> String {
    dims.iter().map(|&d| if d < 0 { "?x".to_string() } else { format!("{d}x") }).collect()
}
