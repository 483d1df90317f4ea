//! Random programs with loops and branches in each other: every list of small numbers decodes to a valid function.

use super::programs::Step;
use adfuse::backends::Array;
use adfuse::ir::control::{LoopBuilder, branch, while_loop};
use adfuse::ir::op::Domain;
use adfuse::ir::{
    Attr, Attrs, Builder, DType, Dim, Function, Literal, Op, Region, TensorType, Value,
};
use adfuse::sample::{rng, sample};

/// Elements of a vector, and rows of what is scanned.
const WIDTH: u64 = 3;
const ROWS: u64 = 4;
/// Regions in regions.
const DEPTH: usize = 3;

/// The function `@control(%x: T[3], %y: T[], %m: T[4,3], %k: i32[], %p: bool[])` that the steps describe. Its results
/// are a vector and a scalar.
pub(crate) fn decode(steps: &[Step], dtype: DType) -> Function {
    let mut b = Builder::new("control");
    let vector = TensorType::of(dtype, &[WIDTH]);
    let scalar = TensorType::scalar(dtype);
    let x = b.param(vector.clone(), Some("x"));
    let y = b.param(scalar.clone(), Some("y"));
    let m = b.param(TensorType::of(dtype, &[ROWS, WIDTH]), Some("m"));
    let k = b.param(TensorType::scalar(DType::I32), Some("k"));
    let p = b.param(TensorType::scalar(DType::Bool), Some("p"));
    let mut rest = steps.iter().copied();
    let mut g = Growing { b: &mut b, vector, scalar, m, k, p };
    let mut known = Known { vectors: vec![x], scalars: vec![y], depth: 0 };
    while rest.len() > 0 {
        g.step(&mut known, &mut rest);
    }
    let results = [known.vectors[known.vectors.len() - 1], known.scalars[known.scalars.len() - 1]];
    b.set_results(&results);
    b.finish().expect("every step decodes to instructions that fit")
}

/// A value for a parameter: floats are drawn, integers and truth values are `k`.
pub(crate) fn draw(ty: &TensorType, k: i64, seed: u64) -> Array {
    if ty.dtype.is_float() {
        return sample(ty, Domain::Uniform(-0.9, 0.9), &mut rng(seed, 0)).expect("small");
    }
    let n = ty.elements().expect("known extents") as usize;
    let k = if ty.dtype == DType::Bool { k & 1 } else { k };
    let bits = vec![Literal::from_i64(ty.dtype, k).bits(); n];
    Array::from_bits(ty.dtype, &ty.dims().expect("known extents"), &bits).expect("as many elements")
}

/// A value for each parameter, as [`draw`] has them.
pub(crate) fn inputs(f: &Function, k: i64) -> Vec<Array> {
    let types = f.param_types();
    types.iter().enumerate().map(|(n, ty)| draw(ty, k, n as u64)).collect()
}

/// What a region sees.
#[derive(Clone)]
struct Known {
    vectors: Vec<Value>,
    scalars: Vec<Value>,
    depth: usize,
}

impl Known {
    fn vector(&self, n: u8) -> Value {
        self.vectors[self.vectors.len() - 1 - n as usize % self.vectors.len()]
    }

    fn scalar(&self, n: u8) -> Value {
        self.scalars[self.scalars.len() - 1 - n as usize % self.scalars.len()]
    }
}

struct Growing<'b> {
    b: &'b mut Builder,
    vector: TensorType,
    scalar: TensorType,
    m: Value,
    k: Value,
    p: Value,
}

type Rest<'r> = dyn ExactSizeIterator<Item = Step> + 'r;

impl Growing<'_> {
    fn step(&mut self, known: &mut Known, rest: &mut Rest<'_>) {
        let Some((kind, a, c, d)) = rest.next() else { return };
        let nested = known.depth < DEPTH;
        match kind % 12 {
            0 | 1 => {
                let op = [Op::Sin, Op::Tanh, Op::Cos, Op::Logistic][c as usize % 4];
                let v = self.b.op(op, &[known.vector(a)]);
                known.vectors.push(v);
            }
            2 | 3 => {
                let op = [Op::Mul, Op::Add, Op::Sub][d as usize % 3];
                let v = self.b.op(op, &[known.vector(a), known.vector(c)]);
                // Products of products grow.
                let v = self.b.op(Op::Tanh, &[v]);
                known.vectors.push(v);
            }
            4 => {
                let axes = Attrs::none().with_ints("axes", [0]);
                let sum = self.b.op_with(Op::ReduceSum, &[known.vector(a)], axes);
                let v = self.b.op(Op::Sin, &[sum]);
                known.scalars.push(v);
            }
            5 => {
                let v = self.spread(known.scalar(a));
                let v = self.b.op(Op::Mul, &[v, known.vector(c)]);
                known.vectors.push(v);
            }
            6 if nested => self.scan(known, rest, c, d),
            7 if nested => self.fori(known, rest, c),
            8 if nested => self.while_loop(known, rest, c),
            9 if nested => self.cond(known, rest, a),
            10 if nested => self.switch(known, rest, a),
            11 => {
                let v = self.b.op(Op::Ceil, &[known.vector(a)]);
                known.vectors.push(v);
            }
            _ => {
                let v = self.b.op(Op::Mul, &[known.scalar(a), known.scalar(c)]);
                known.scalars.push(v);
            }
        }
    }

    fn spread(&mut self, v: Value) -> Value {
        let ty = self.vector.clone();
        self.b.op_as(Op::BroadcastInDim, &[v], Attrs::none().with_ints("dims", []), &ty)
    }

    fn count(&mut self, n: i64) -> Value {
        self.b.literal(&TensorType::scalar(DType::I32), Literal::from_i64(DType::I32, n))
    }

    /// A few steps with these values in sight; the last vector and scalar.
    fn body(
        &mut self,
        known: &Known,
        rest: &mut Rest<'_>,
        vectors: &[Value],
        scalars: &[Value],
        steps: u8,
    ) -> (Value, Value) {
        let mut inner = known.clone();
        inner.vectors.extend(vectors);
        inner.scalars.extend(scalars);
        inner.depth += 1;
        for _ in 0..=steps % 4 {
            self.step(&mut inner, rest);
        }
        (inner.vector(0), inner.scalar(0))
    }

    /// Carries a vector, and for some a scalar; scans rows; stacks a vector.
    fn scan(&mut self, known: &mut Known, rest: &mut Rest<'_>, c: u8, d: u8) {
        let attrs = Attrs::none()
            .with("reverse", Attr::Bool(d % 2 == 1))
            .with_int("unroll", i64::from(1 + d % 3));
        let mut new = LoopBuilder::new(Op::Scan, attrs, Dim::Const(ROWS));
        let both = c.is_multiple_of(2);
        new.carry = vec![known.vector(c)];
        if both {
            new.carry.push(known.scalar(d));
        }
        new.xs = vec![self.m];
        let p = new.open_step(self.b);
        let vectors = [p.xs[0], p.carry[0]];
        let m = self.m;
        let (v, s) = self.body(known, rest, &vectors, &p.carry[1..], c / 2);
        self.m = m;
        let next = if both { vec![v, s] } else { vec![v] };
        let y = self.b.op(Op::Mul, &[v, p.xs[0]]);
        new.close_step(self.b, &next, &[y]);
        let i = new.place(self.b);
        let out = self.b.func().inst_results(i).to_vec();
        known.vectors.push(out[0]);
        known.scalars.extend(both.then(|| out[1]));
        let axes = Attrs::none().with_ints("axes", [0]);
        let v = self.b.op_with(Op::ReduceSum, &[out[out.len() - 1]], axes);
        known.vectors.push(v);
        if d.is_multiple_of(4) {
            self.m = out[out.len() - 1];
        }
    }

    fn fori(&mut self, known: &mut Known, rest: &mut Rest<'_>, c: u8) {
        let mut new = LoopBuilder::new(Op::Fori, Attrs::none(), Dim::Const(0));
        let (from, to) = (self.count(i64::from(c % 2)), self.count(i64::from(c % 4)));
        new.lead = vec![from, if c % 8 < 5 { self.k } else { to }];
        new.carry = vec![known.vector(c), known.scalar(c / 2)];
        let p = new.open_step(self.b);
        let scalar = self.scalar.clone();
        let at = self.b.op_as(
            Op::ConvertElementType,
            &[p.index.expect("a fori has one")],
            Attrs::none(),
            &scalar,
        );
        let m = self.m;
        let (v, s) = self.body(known, rest, &p.carry[..1], &[at, p.carry[1]], c / 3);
        self.m = m;
        new.close_step(self.b, &[v, s], &[]);
        let i = new.place(self.b);
        let out = self.b.func().inst_results(i).to_vec();
        known.vectors.push(out[0]);
        known.scalars.push(out[1]);
    }

    /// Counts down from `k`, and to nowhere where that is large.
    fn while_loop(&mut self, known: &mut Known, rest: &mut Rest<'_>, c: u8) {
        let carry = [self.k, known.vector(c), known.scalar(c / 2)];
        let types: Vec<TensorType> = carry.iter().map(|&v| self.b.ty(v).clone()).collect();
        let mut regions: [Region; 2] = [self.b.region(); 2];
        for (n, region) in regions.iter_mut().enumerate() {
            *region = self.b.open_region();
            let p: Vec<Value> = types.iter().map(|ty| self.b.param(ty.clone(), None)).collect();
            if n == 0 {
                let zero = self.count(0);
                let more = self.b.op(Op::Gt, &[p[0], zero]);
                self.b.close_region(&[more]);
                continue;
            }
            let m = self.m;
            let (v, s) = self.body(known, rest, &p[1..2], &p[2..], c / 3);
            self.m = m;
            let one = self.count(1);
            let less = self.b.op(Op::Sub, &[p[0], one]);
            self.b.close_region(&[less, v, s]);
        }
        let i = while_loop(self.b, Attrs::none().with_int("max_trips", 0), &carry, regions);
        let out = self.b.func().inst_results(i).to_vec();
        known.vectors.push(out[1]);
        known.scalars.push(out[2]);
    }

    fn branches(
        &mut self,
        known: &mut Known,
        rest: &mut Rest<'_>,
        (op, selector): (Op, Value),
        steps: &[u8],
    ) {
        let mut regions = Vec::new();
        for &steps in steps {
            regions.push(self.b.open_region());
            let m = self.m;
            let (v, s) = self.body(known, rest, &[], &[], steps);
            self.m = m;
            self.b.close_region(&[v, s]);
        }
        let types = [self.vector.clone(), self.scalar.clone()];
        let i = branch(self.b, op, selector, &types, &regions);
        let out = self.b.func().inst_results(i).to_vec();
        known.vectors.push(out[0]);
        known.scalars.push(out[1]);
    }

    fn cond(&mut self, known: &mut Known, rest: &mut Rest<'_>, a: u8) {
        self.branches(known, rest, (Op::Cond, self.p), &[a, a / 2]);
    }

    fn switch(&mut self, known: &mut Known, rest: &mut Rest<'_>, a: u8) {
        self.branches(known, rest, (Op::Switch, self.k), &[a, 0, a / 2]);
    }
}
