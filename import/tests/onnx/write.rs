//! Models in memory, written message by message.

/// A message under construction.
#[derive(Clone, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

fn varint(mut v: u64, to: &mut Vec<u8>) {
    while v >= 0x80 {
        to.push(v as u8 | 0x80);
        v >>= 7;
    }
    to.push(v as u8);
}

impl Message {
    pub(crate) fn int(mut self, field: u64, v: i64) -> Message {
        varint(field << 3, &mut self.0);
        varint(v as u64, &mut self.0);
        self
    }

    pub(crate) fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        varint(field << 3 | 2, &mut self.0);
        varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn text(self, field: u64, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    pub(crate) fn message(self, field: u64, m: &Message) -> Message {
        self.bytes(field, &m.0)
    }

    pub(crate) fn all(self, field: u64, all: &[Message]) -> Message {
        all.iter().fold(self, |m, one| m.message(field, one))
    }
}

pub(crate) const F32: i64 = 1;
pub(crate) const I64: i64 = 7;
pub(crate) const BOOL: i64 = 9;
pub(crate) const U64: i64 = 13;

/// An extent: a number, or a name.
pub(crate) type Extent<'a> = Result<i64, &'a str>;

/// An input or an output.
pub(crate) fn value(name: &str, element: i64, shape: &[Extent<'_>]) -> Message {
    let dim = |e: &Extent<'_>| match *e {
        Ok(n) => Message::default().int(1, n),
        Err(name) => Message::default().text(2, name),
    };
    let dims: Vec<Message> = shape.iter().map(dim).collect();
    let tensor = Message::default().int(1, element).message(2, &Message::default().all(1, &dims));
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// A tensor of floats.
pub(crate) fn floats(name: &str, dims: &[i64], all: &[f32]) -> Message {
    let raw: Vec<u8> = all.iter().flat_map(|x| x.to_le_bytes()).collect();
    dims.iter()
        .fold(Message::default(), |m, &d| m.int(1, d))
        .int(2, F32)
        .text(8, name)
        .bytes(9, &raw)
}

/// A tensor of integers.
pub(crate) fn ints(name: &str, dims: &[i64], all: &[i64]) -> Message {
    let m = dims.iter().fold(Message::default(), |m, &d| m.int(1, d)).int(2, I64).text(8, name);
    all.iter().fold(m, |m, &v| m.int(7, v))
}

/// A node, whose name is that of its first output.
pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Message]) -> Message {
    let m = inputs.iter().fold(Message::default(), |m, i| m.text(1, i));
    let m = outputs.iter().fold(m, |m, o| m.text(2, o));
    m.text(3, &format!("node_{}", outputs[0])).text(4, op).all(5, attributes)
}

/// An attribute that is an integer.
pub(crate) fn int(name: &str, v: i64) -> Message {
    Message::default().text(1, name).int(3, v).int(20, 2)
}

/// An attribute that is a list of integers.
pub(crate) fn int_list(name: &str, all: &[i64]) -> Message {
    all.iter().fold(Message::default().text(1, name), |m, &v| m.int(8, v)).int(20, 7)
}

/// An attribute that is a graph.
pub(crate) fn graph_attribute(name: &str, graph: &Message) -> Message {
    Message::default().text(1, name).message(6, graph).int(20, 5)
}

/// A graph: nodes, initializers, inputs, outputs.
pub(crate) fn graph(parts: [&[Message]; 4]) -> Message {
    let [nodes, initializers, inputs, outputs] = parts;
    Message::default()
        .all(1, nodes)
        .text(2, "main")
        .all(5, initializers)
        .all(11, inputs)
        .all(12, outputs)
}

/// A model of version 18.
pub(crate) fn model(graph: &Message) -> Message {
    model_of_version(18, graph)
}

/// A model of this version of the operator set.
pub(crate) fn model_of_version(version: i64, graph: &Message) -> Message {
    let opset = Message::default().text(1, "").int(2, version);
    Message::default().int(1, 8).message(7, graph).message(8, &opset)
}
