//! The messages of a model that are read, as they stand in the file: names and elements are not copied.

use super::wire::{WireError, WireFields, WireValue};
use std::fmt;

/// Graphs may lie in each other this deep.
const MOST_LEVELS: usize = 24;

type WireResult<T> = Result<T, WireError>;

/// A model.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelProto<'a> {
    pub(crate) graph: Option<GraphProto<'a>>,
    pub(crate) opsets: Opsets<'a>,
    pub(crate) functions: Vec<FunctionProto<'a>>,
}

/// The version of each domain.
pub(crate) type Opsets<'a> = Vec<(&'a str, i64)>;

/// A graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct GraphProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) nodes: Vec<OperationProto<'a>>,
    pub(crate) initializers: Vec<TensorProto<'a>>,
    pub(crate) sparse_initializers: usize,
    pub(crate) inputs: Vec<ValueInfo<'a>>,
    pub(crate) outputs: Vec<ValueInfo<'a>>,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperationProto<'a> {
    pub(crate) inputs: Vec<&'a str>,
    pub(crate) outputs: Vec<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) op: &'a str,
    pub(crate) domain: &'a str,
    pub(crate) overload: &'a str,
    pub(crate) attributes: Vec<AttributeProto<'a>>,
}

/// An attribute: the fields that are there.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttributeProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) f: Option<f32>,
    pub(crate) i: Option<i64>,
    pub(crate) s: Option<&'a [u8]>,
    pub(crate) t: Option<Box<TensorProto<'a>>>,
    pub(crate) g: Option<Box<GraphProto<'a>>>,
    pub(crate) floats: Vec<u8>,
    pub(crate) ints: Vec<i64>,
    pub(crate) strings: Vec<&'a [u8]>,
    /// The attribute of the function around it whose value it has.
    pub(crate) refers: &'a str,
}

/// A tensor.
#[derive(Clone, Debug, Default)]
pub(crate) struct TensorProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) dims: Vec<i64>,
    pub(crate) data_type: i64,
    pub(crate) raw: Option<&'a [u8]>,
    /// `float_data` and `double_data`, little-endian.
    pub(crate) fixed: Vec<u8>,
    /// `int32_data`, `int64_data` and `uint64_data`.
    pub(crate) ints: Vec<i64>,
    /// Where elements in a file of their own lie: names and values.
    pub(crate) external: Vec<(&'a str, &'a str)>,
    pub(crate) is_external: bool,
}

/// The type of a tensor, as far as it is said.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueInfo<'a> {
    pub(crate) name: &'a str,
    /// `None` for what is no tensor.
    pub(crate) ty: Option<TensorInfo<'a>>,
}

/// The type of a tensor.
#[derive(Clone, Debug, Default)]
pub(crate) struct TensorInfo<'a> {
    pub(crate) data_type: i64,
    /// `None` where even the rank is not known.
    pub(crate) shape: Option<Vec<ExtentInfo<'a>>>,
}

/// The extent of an axis as a type says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExtentInfo<'a> {
    Known(i64),
    Named(&'a str),
    Unknown,
}

/// A function of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct FunctionProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) domain: &'a str,
    pub(crate) overload: &'a str,
    pub(crate) inputs: Vec<&'a str>,
    pub(crate) outputs: Vec<&'a str>,
    pub(crate) nodes: Vec<OperationProto<'a>>,
    pub(crate) opsets: Opsets<'a>,
    /// Attributes that have a value where a call gives none.
    pub(crate) defaults: Vec<AttributeProto<'a>>,
}

/// Calls `field` with each field of a message.
fn each<'a>(
    bytes: &'a [u8],
    mut field: impl FnMut(u32, WireValue<'a>) -> WireResult<()>,
) -> WireResult<()> {
    let mut fields = WireFields::of(bytes);
    while let Some((number, value)) = fields.next()? {
        field(number, value)?;
    }
    Ok(())
}

fn opset(bytes: &[u8]) -> WireResult<(&str, i64)> {
    let mut set = ("", 0);
    each(bytes, |number, value| {
        match number {
            1 => set.0 = value.text()?,
            2 => set.1 = value.int()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(set)
}

impl<'a> ModelProto<'a> {
    /// Reads a model.
    pub(crate) fn read(bytes: &'a [u8]) -> WireResult<ModelProto<'a>> {
        let mut model = ModelProto::default();
        each(bytes, |number, value| {
            match number {
                7 => model.graph = Some(GraphProto::read(value.bytes()?, 0)?),
                8 => model.opsets.push(opset(value.bytes()?)?),
                25 => model.functions.push(FunctionProto::read(value.bytes()?)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(model)
    }
}

/// Whether bytes look like a model: whether all of them are fields that a model has, a graph among them.
pub(crate) fn is_model(bytes: &[u8]) -> bool {
    let mut has_graph = false;
    let known = each(bytes, |number, value| {
        let fits = match number {
            1 | 5 => matches!(value, WireValue::Varint(_)),
            2..=4 | 6..=8 | 14 | 20 | 25 | 26 => matches!(value, WireValue::Bytes(_)),
            _ => false,
        };
        has_graph |= number == 7;
        if fits { Ok(()) } else { Err(WireError { what: "no field of a model", left: 0 }) }
    });
    known.is_ok() && has_graph
}

impl<'a> GraphProto<'a> {
    fn read(bytes: &'a [u8], level: usize) -> WireResult<GraphProto<'a>> {
        if level > MOST_LEVELS {
            return Err(WireError { what: "graphs in graphs, too deep", left: bytes.len() });
        }
        let mut graph = GraphProto::default();
        each(bytes, |number, value| {
            match number {
                1 => graph.nodes.push(OperationProto::read(value.bytes()?, level)?),
                2 => graph.name = value.text()?,
                5 => graph.initializers.push(TensorProto::read(value.bytes()?)?),
                11 => graph.inputs.push(ValueInfo::read(value.bytes()?)?),
                12 => graph.outputs.push(ValueInfo::read(value.bytes()?)?),
                15 => graph.sparse_initializers += 1,
                _ => {}
            }
            Ok(())
        })?;
        Ok(graph)
    }
}

impl<'a> OperationProto<'a> {
    fn read(bytes: &'a [u8], level: usize) -> WireResult<OperationProto<'a>> {
        let mut node = OperationProto::default();
        each(bytes, |number, value| {
            match number {
                1 => node.inputs.push(value.text()?),
                2 => node.outputs.push(value.text()?),
                3 => node.name = value.text()?,
                4 => node.op = value.text()?,
                5 => node.attributes.push(AttributeProto::read(value.bytes()?, level)?),
                7 => node.domain = value.text()?,
                8 => node.overload = value.text()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(node)
    }
}

impl<'a> AttributeProto<'a> {
    fn read(bytes: &'a [u8], level: usize) -> WireResult<AttributeProto<'a>> {
        let mut attribute = AttributeProto::default();
        each(bytes, |number, value| {
            match number {
                1 => attribute.name = value.text()?,
                2 => attribute.f = Some(value.float()?),
                3 => attribute.i = Some(value.int()?),
                4 => attribute.s = Some(value.bytes()?),
                5 => attribute.t = Some(Box::new(TensorProto::read(value.bytes()?)?)),
                6 => attribute.g = Some(Box::new(GraphProto::read(value.bytes()?, level + 1)?)),
                7 => value.fixed(4, &mut attribute.floats)?,
                8 => value.ints(&mut attribute.ints)?,
                9 => attribute.strings.push(value.bytes()?),
                21 => attribute.refers = value.text()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(attribute)
    }
}

impl<'a> TensorProto<'a> {
    /// Reads a tensor.
    pub(crate) fn read(bytes: &'a [u8]) -> WireResult<TensorProto<'a>> {
        let mut tensor = TensorProto::default();
        each(bytes, |number, value| {
            match number {
                1 => value.ints(&mut tensor.dims)?,
                2 => tensor.data_type = value.int()?,
                4 => value.fixed(4, &mut tensor.fixed)?,
                5 | 7 | 11 => value.ints(&mut tensor.ints)?,
                8 => tensor.name = value.text()?,
                9 => tensor.raw = Some(value.bytes()?),
                10 => value.fixed(8, &mut tensor.fixed)?,
                13 => {
                    let mut entry = ("", "");
                    each(value.bytes()?, |number, value| {
                        match number {
                            1 => entry.0 = value.text()?,
                            2 => entry.1 = value.text()?,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    tensor.external.push(entry);
                }
                14 => tensor.is_external = value.int()? == 1,
                _ => {}
            }
            Ok(())
        })?;
        Ok(tensor)
    }
}

impl<'a> ValueInfo<'a> {
    fn read(bytes: &'a [u8]) -> WireResult<ValueInfo<'a>> {
        let mut info = ValueInfo::default();
        each(bytes, |number, value| {
            match number {
                1 => info.name = value.text()?,
                2 => each(value.bytes()?, |number, value| {
                    if number == 1 {
                        info.ty = Some(TensorInfo::read(value.bytes()?)?);
                    }
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(info)
    }
}

impl<'a> TensorInfo<'a> {
    fn read(bytes: &'a [u8]) -> WireResult<TensorInfo<'a>> {
        let mut info = TensorInfo::default();
        each(bytes, |number, value| {
            match number {
                1 => info.data_type = value.int()?,
                2 => {
                    let mut shape = Vec::new();
                    each(value.bytes()?, |number, value| {
                        if number == 1 {
                            shape.push(ExtentInfo::read(value.bytes()?)?);
                        }
                        Ok(())
                    })?;
                    info.shape = Some(shape);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(info)
    }
}

impl fmt::Display for ExtentInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExtentInfo::Known(n) => write!(f, "{n}"),
            ExtentInfo::Named(name) => f.write_str(name),
            ExtentInfo::Unknown => f.write_str("?"),
        }
    }
}

impl<'a> ExtentInfo<'a> {
    fn read(bytes: &'a [u8]) -> WireResult<ExtentInfo<'a>> {
        let mut extent = ExtentInfo::Unknown;
        each(bytes, |number, value| {
            match number {
                1 => extent = ExtentInfo::Known(value.int()?),
                2 if !value.text()?.is_empty() => extent = ExtentInfo::Named(value.text()?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(extent)
    }
}

impl<'a> FunctionProto<'a> {
    fn read(bytes: &'a [u8]) -> WireResult<FunctionProto<'a>> {
        let mut function = FunctionProto::default();
        each(bytes, |number, value| {
            match number {
                1 => function.name = value.text()?,
                4 => function.inputs.push(value.text()?),
                5 => function.outputs.push(value.text()?),
                7 => function.nodes.push(OperationProto::read(value.bytes()?, 0)?),
                9 => function.opsets.push(opset(value.bytes()?)?),
                10 => function.domain = value.text()?,
                11 => function.defaults.push(AttributeProto::read(value.bytes()?, 0)?),
                13 => function.overload = value.text()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(function)
    }
}
