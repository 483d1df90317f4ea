//! Recurrent layers: a scan over the steps of a sequence, with the products of its elements before it.

use super::control::scanned;
use super::elementwise::{softplus_of, softsign_of};
use super::{Cx, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val, Vals, refuse};
use adfuse_ir::{Dim, Literal, Op};

/// Which layer it is: how many gates it has, and what its steps compute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    Plain,
    Gru,
    Lstm,
}

impl Cell {
    fn gates(self) -> u64 {
        match self {
            Cell::Plain => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    /// The functions of gates, where none are named.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Cell::Plain => &["Tanh"],
            Cell::Gru => &["Sigmoid", "Tanh"],
            Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// One direction of a layer: its weights, and what its steps need.
struct RecurrentLayer<'m> {
    cell: Cell,
    functions: Vec<&'m str>,
    hidden: u64,
    /// The transposed weights of the state, `[hidden, gates hidden]`.
    state: Val,
    /// Both halves of the bias, each of all gates.
    bias: Option<(Val, Val)>,
    peephole: Option<Val>,
    clip: f64,
    linear_before_reset: bool,
    input_forget: bool,
}

fn function(cx: Cx<'_, '_>, name: &str, x: Val) -> LoweredValue {
    match name {
        "Sigmoid" => cx.unary(Op::Logistic, x),
        "Tanh" => cx.unary(Op::Tanh, x),
        "Relu" => cx.unary(Op::Relu, x),
        "Softplus" => softplus_of(cx, x),
        "Softsign" => softsign_of(cx, x),
        other => refuse(format!("the activation `{other}`")),
    }
}

impl RecurrentLayer<'_> {
    fn gate(&self, cx: Cx<'_, '_>, all: Val, k: u64) -> LoweredValue {
        let axis = cx.rank(all) - 1;
        cx.slice(all, axis, k * self.hidden, (k + 1) * self.hidden)
    }

    fn apply(&self, cx: Cx<'_, '_>, k: usize, x: Val) -> LoweredValue {
        let x = if self.clip > 0.0 {
            let x = cx.with(Op::Max, x, -self.clip)?;
            cx.with(Op::Min, x, self.clip)?
        } else {
            x
        };
        function(cx, self.functions.get(k).copied().unwrap_or(""), x)
    }

    /// The next states, of the products of an element of the sequence.
    fn step(&self, cx: Cx<'_, '_>, x: Val, states: &[Val]) -> Result<Vec<Val>, Unlowered> {
        let h = states[0];
        match self.cell {
            Cell::Plain => {
                let from = cx.matmul(h, self.state)?;
                let sum = cx.add(x, from)?;
                Ok(vec![self.apply(cx, 0, sum)?])
            }
            Cell::Gru => Ok(vec![self.gru(cx, x, h)?]),
            Cell::Lstm => self.lstm(cx, x, h, states[1]),
        }
    }

    fn gru(&self, cx: Cx<'_, '_>, x: Val, h: Val) -> LoweredValue {
        let mut from = cx.matmul(h, self.state)?;
        if let Some((_, bias)) = self.bias {
            from = cx.add(from, bias)?;
        }
        let gate = |cx: Cx<'_, '_>, k: u64| {
            let (a, b) = (self.gate(cx, x, k)?, self.gate(cx, from, k)?);
            let sum = cx.add(a, b)?;
            self.apply(cx, 0, sum)
        };
        let (z, r) = (gate(cx, 0)?, gate(cx, 1)?);
        let of_x = self.gate(cx, x, 2)?;
        let of_h = if self.linear_before_reset {
            let part = self.gate(cx, from, 2)?;
            cx.mul(r, part)?
        } else {
            let (reset, weights) = (cx.mul(r, h)?, self.gate(cx, self.state, 2)?);
            let product = cx.matmul(reset, weights)?;
            match self.bias {
                None => product,
                Some((_, bias)) => {
                    let bias = self.gate(cx, bias, 2)?;
                    cx.add(product, bias)?
                }
            }
        };
        let sum = cx.add(of_x, of_h)?;
        let new = self.apply(cx, 1, sum)?;
        // (1 - z) new + z h
        let away = cx.sub(h, new)?;
        let moved = cx.mul(z, away)?;
        cx.add(new, moved)
    }

    fn lstm(&self, cx: Cx<'_, '_>, x: Val, h: Val, c: Val) -> Result<Vec<Val>, Unlowered> {
        let from = cx.matmul(h, self.state)?;
        let all = cx.add(x, from)?;
        let gate = |cx: Cx<'_, '_>, k: u64, peeks: Option<(u64, Val)>| {
            let mut sum = self.gate(cx, all, k)?;
            if let (Some(weights), Some((of, state))) = (self.peephole, peeks) {
                let weights = cx.slice(weights, 0, of * self.hidden, (of + 1) * self.hidden)?;
                let more = cx.mul(weights, state)?;
                sum = cx.add(sum, more)?;
            }
            self.apply(cx, if k == 3 { 1 } else { 0 }, sum)
        };
        let i = gate(cx, 0, Some((0, c)))?;
        let f = match self.input_forget {
            true => {
                let one = cx.number(i, 1.0);
                cx.sub(one, i)?
            }
            false => gate(cx, 2, Some((2, c)))?,
        };
        let new = gate(cx, 3, None)?;
        let (kept, added) = (cx.mul(f, c)?, cx.mul(i, new)?);
        let next = cx.add(kept, added)?;
        let o = gate(cx, 1, Some((1, next)))?;
        let shown = function(cx, self.functions.get(2).copied().unwrap_or(""), next)?;
        Ok(vec![cx.mul(o, shown)?, next])
    }
}

/// The first axis, which counts directions, at one of them.
fn of_direction(cx: Cx<'_, '_>, v: Val, k: u64) -> LoweredValue {
    cx.index_axis(v, 0, k)
}

/// Errs unless all sequences are as long as the longest.
fn whole_sequences(cx: Cx<'_, '_>, n: &OnnxOperation<'_>, steps: Dim) -> Result<(), Unlowered> {
    let Some(lengths) = n.optional(4) else { return Ok(()) };
    let steps = cx.extent(steps)?;
    match cx.ints(lengths)?.iter().all(|&l| u64::try_from(l) == Ok(steps)) {
        true => Ok(()),
        false => refuse("sequences of several lengths"),
    }
}

/// What a layer reads, sequences first.
struct Sequence {
    x: Val,
    states: Vec<Val>,
}

fn sequence(
    cx: Cx<'_, '_>,
    n: &OnnxOperation<'_>,
    cell: Cell,
    (dirs, hidden): (u64, u64),
) -> Result<Sequence, Unlowered> {
    let layout = n.int("layout", 0);
    let mut x = n.input(0)?;
    if cx.rank(x) != 3 {
        return refuse("a sequence of other than three axes");
    }
    if layout == 1 {
        x = cx.transpose(x, &[1, 0, 2])?;
    }
    let shape = [Dim::Const(dirs), cx.shape(x)[1], Dim::Const(hidden)];
    let mut states = Vec::new();
    for k in 0..if cell == Cell::Lstm { 2 } else { 1 } {
        states.push(match n.optional(5 + k) {
            Some(v) if layout == 1 => cx.transpose(v, &[1, 0, 2])?,
            Some(v) => v,
            None => cx.filled(x.element, &shape, Literal::zero(x.element.storage())),
        });
    }
    Ok(Sequence { x, states })
}

pub(crate) fn recurrent<'m>(cx: Cx<'_, 'm>, cell: Cell, n: &OnnxOperation<'m>) -> LoweredValues {
    n.ignore(&["hidden_size", "output_sequence"]);
    let (w, r) = (n.input(1)?, n.input(2)?);
    let of_r = cx.extents(r)?;
    let [dirs, _, hidden] = of_r[..] else { return refuse("weights of other than three axes") };
    let reverses: &[bool] = match n.text("direction", "forward") {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return refuse(format!("the direction `{other}`")),
    };
    if dirs != reverses.len() as u64 {
        return refuse(format!("weights of {dirs} directions"));
    }
    if n.has("activation_alpha") || n.has("activation_beta") {
        return refuse("activations with numbers of their own");
    }
    let Sequence { x, states } = sequence(cx, n, cell, (dirs, hidden))?;
    let steps = cx.shape(x)[0];
    whole_sequences(cx, n, steps)?;
    let per = cell.functions().len();
    let named = n.texts("activations").unwrap_or_default();
    let mut results: Vec<Vec<Val>> = Vec::new();
    for (k, &reverse) in reverses.iter().enumerate() {
        let at = k as u64;
        let functions = match named.get(k * per..(k + 1) * per) {
            Some(all) => all.to_vec(),
            None => cell.functions().to_vec(),
        };
        let weights = of_direction(cx, r, at)?;
        let bias = match n.optional(3) {
            None => None,
            Some(b) => {
                let b = of_direction(cx, b, at)?;
                let half = cell.gates() * hidden;
                Some((cx.slice(b, 0, 0, half)?, cx.slice(b, 0, half, 2 * half)?))
            }
        };
        let layer = RecurrentLayer {
            cell,
            functions,
            hidden,
            state: cx.transpose(weights, &[1, 0])?,
            bias,
            peephole: n.optional(7).map(|p| of_direction(cx, p, at)).transpose()?,
            clip: n.float("clip", 0.0),
            linear_before_reset: n.flag("linear_before_reset", false),
            input_forget: n.flag("input_forget", false),
        };
        let first: Vec<Val> =
            states.iter().map(|&s| of_direction(cx, s, at)).collect::<Result<_, _>>()?;
        let weights = of_direction(cx, w, at)?;
        let weights = cx.transpose(weights, &[1, 0])?;
        let mut products = cx.matmul(x, weights)?;
        if let Some((of_x, of_h)) = layer.bias {
            products = cx.add(products, of_x)?;
            // The part of the state is added before the loop too, where its gate does not scale it.
            products = if cell == Cell::Gru { products } else { cx.add(products, of_h)? };
        }
        let over = if reverse { cx.reverse(products, [0])? } else { products };
        let run = scanned(cx, &first, &[over], steps, |cx, inner, elements| {
            let mut next = layer.step(cx, elements[0], inner)?;
            next.push(next[0]);
            Ok(next)
        })?;
        let mut run = run.into_vec();
        let last = run.len() - 1;
        run[last] = if reverse { cx.reverse(run[last], [0])? } else { run[last] };
        results.push(run);
    }
    joined(cx, &results, n.int("layout", 0))
}

/// The results of both directions: all states, then the last ones.
fn joined(cx: Cx<'_, '_>, results: &[Vec<Val>], layout: i64) -> LoweredValues {
    let mut stack = |axis: usize, k: usize, from_end: bool| {
        let mut parts = Vec::new();
        for run in results {
            let at = if from_end { run.len() - 1 } else { k };
            parts.push(cx.unsqueeze(run[at], axis)?);
        }
        let all = cx.concat(&parts, axis)?;
        match (layout, from_end) {
            (1, true) => cx.transpose(all, &[2, 0, 1, 3]),
            (1, false) => cx.transpose(all, &[1, 0, 2]),
            _ => Ok(all),
        }
    };
    let mut all = Vals::new();
    all.push(stack(1, 0, true)?);
    for k in 0..results[0].len() - 1 {
        all.push(stack(0, k, false)?);
    }
    Ok(all)
}
