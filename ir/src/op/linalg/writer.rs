//! What decompositions are written with: matrices of one batch axis, their products and their triangles.

use crate::attrs::{Attr, Attrs};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::op::Op;
use crate::op::def::RuleCx;
use crate::op::tensor_writer::TensorWriter;

/// A composition, or a rule, under way. Its matrices are `[batch, rows, columns]`, where the batch is that of the operands in
/// one axis.
pub(super) struct MatrixWriter<'a> {
    b: &'a mut Builder,
    /// The type that everything is computed in.
    wide: DType,
    /// The type of the operands.
    narrow: DType,
    /// The batch axes of the operands.
    batch: Vec<u64>,
}

impl TensorWriter for MatrixWriter<'_> {
    fn b(&self) -> &Builder {
        self.b
    }

    fn b_mut(&mut self) -> &mut Builder {
        self.b
    }

    fn wide(&self) -> DType {
        self.wide
    }
}

impl<'a> MatrixWriter<'a> {
    /// `None` where extents are unknown, which is an error that the builder keeps.
    pub(super) fn new(b: &'a mut Builder, cx: &RuleCx<'_>) -> Option<MatrixWriter<'a>> {
        let Some(dims) = cx.types[0].dims() else {
            b.refuse("a decomposition is written out for constant extents alone");
            return None;
        };
        let narrow = cx.types[0].dtype;
        let batch = dims[..dims.len().saturating_sub(2)].to_vec();
        Some(MatrixWriter { b, wide: narrow.compute(), narrow, batch })
    }

    /// The matrices of an operand.
    pub(super) fn load(&mut self, x: Value) -> Value {
        let (dims, wide) = (self.dims(x), self.wide);
        let x = self.convert(x, wide);
        let own = dims.get(self.batch.len()..).unwrap_or_default();
        let whole = [&[self.count()], own].concat();
        self.reshape(x, &whole)
    }

    /// The vectors of an operand: `[batch, elements]`.
    pub(super) fn load_rows(&mut self, x: Value) -> Value {
        let (dims, wide) = (self.dims(x), self.wide);
        let x = self.convert(x, wide);
        let whole = [self.count(), dims.last().copied().unwrap_or(0)];
        self.reshape(x, &whole)
    }

    /// A result of matrices or vectors: with the batch axes and the type of the operands.
    pub(super) fn store(&mut self, x: Value) -> Value {
        let dims = self.batched(x);
        let (x, narrow) = (self.reshape(x, &dims), self.narrow);
        self.convert(x, narrow)
    }

    /// Extents with the batch axes of the operands for the first.
    pub(super) fn batched(&self, x: Value) -> Vec<u64> {
        [&self.batch, self.dims(x).get(1..).unwrap_or_default()].concat()
    }

    /// How many matrices there are.
    pub(super) fn count(&self) -> u64 {
        self.batch.iter().product()
    }

    /// Rows and columns of matrices.
    pub(super) fn shape(&self, x: Value) -> [u64; 2] {
        [self.extent(x, 1), self.extent(x, 2)]
    }

    /// The column of each matrix at a place: `[batch, rows]`.
    pub(super) fn column_at(&mut self, x: Value, place: Value) -> Value {
        let ([rows, _], count) = (self.shape(x), self.count());
        let column = self.slice_at(x, 2, place, &[count, rows, 1]);
        self.reshape(column, &[count, rows])
    }

    /// The matrices transposed.
    pub(super) fn flip(&mut self, x: Value) -> Value {
        self.transpose(x, &[0, 2, 1])
    }

    /// The order along axes reversed.
    pub(super) fn reversed(&mut self, x: Value, axes: &[i64]) -> Value {
        let attrs = Attrs::none().with_ints("axes", axes.iter().copied());
        self.b.op_with(Op::Rev, &[x], attrs)
    }

    /// Products of matrices.
    pub(super) fn product(&mut self, x: Value, y: Value) -> Value {
        self.dot([x, y], (&[0], &[0]), (2, 1))
    }

    /// Products of matrices with transposed matrices.
    pub(super) fn product_transposed(&mut self, x: Value, y: Value) -> Value {
        self.dot([x, y], (&[0], &[0]), (2, 2))
    }

    /// Products of transposed matrices with matrices.
    pub(super) fn transposed_product(&mut self, x: Value, y: Value) -> Value {
        self.dot([x, y], (&[0], &[0]), (1, 1))
    }

    pub(super) fn add(&mut self, x: Value, y: Value) -> Value {
        self.map(Op::Add, &[x, y])
    }

    pub(super) fn sub(&mut self, x: Value, y: Value) -> Value {
        self.map(Op::Sub, &[x, y])
    }

    pub(super) fn mul(&mut self, x: Value, y: Value) -> Value {
        self.map(Op::Mul, &[x, y])
    }

    pub(super) fn scaled(&mut self, x: Value, by: f64) -> Value {
        let by = self.splat(by, &self.dims(x));
        self.mul(x, by)
    }

    pub(super) fn neg(&mut self, x: Value) -> Value {
        self.map(Op::Neg, &[x])
    }

    /// `x` where the truth value holds, 0 elsewhere.
    pub(super) fn kept(&mut self, holds: Value, x: Value) -> Value {
        let zero = self.splat(0.0, &self.dims(x));
        self.select(holds, x, zero)
    }

    /// The elements whose row compares so with their column, 0 elsewhere.
    pub(super) fn part(&mut self, x: Value, row: Op) -> Value {
        let dims = self.dims(x);
        let (rows, columns) = (self.places(None, 1, &dims), self.places(None, 2, &dims));
        let holds = self.test(row, rows, columns);
        self.kept(holds, x)
    }

    /// The diagonals.
    pub(super) fn diagonal(&mut self, x: Value) -> Value {
        let only = self.part(x, Op::Eq);
        self.reduce(Op::ReduceSum, only, 2)
    }

    /// Matrices with ones on their diagonals.
    pub(super) fn identity(&mut self, count: u64, [rows, columns]: [u64; 2]) -> Value {
        let ones = self.splat(1.0, &[count, rows, columns]);
        self.part(ones, Op::Eq)
    }

    /// Symmetric matrices, of which this triangle is given.
    pub(super) fn symmetric(&mut self, x: Value, upper: bool) -> Value {
        let x = if upper { self.flip(x) } else { x };
        let (below, whole) = (self.part(x, Op::Gt), self.part(x, Op::Ge));
        let above = self.flip(below);
        self.add(whole, above)
    }

    /// The cotangents of a triangle that symmetric matrices were made of, from a matrix whose symmetric part is theirs.
    pub(super) fn cotangent_of_triangle(&mut self, x: Value, upper: bool) -> Value {
        let other = self.flip(x);
        let both = self.add(x, other);
        let (below, diagonal) = (self.part(both, Op::Gt), self.part(x, Op::Eq));
        let lower = self.add(below, diagonal);
        if upper { self.flip(lower) } else { lower }
    }

    /// The solution of triangular systems, as an instruction of its own.
    pub(super) fn solved(&mut self, a: Value, x: Value, form: TriangularForm) -> Value {
        self.b.op_with(Op::TriangularSolve, &[a, x], form.attrs())
    }

    /// Vectors times the transposed of vectors.
    pub(super) fn outer(&mut self, x: Value, y: Value) -> Value {
        let dims = [self.extent(x, 0), self.extent(x, 1), self.extent(y, 1)];
        let (x, y) = (self.spread(x, &[0, 1], &dims), self.spread(y, &[0, 2], &dims));
        self.mul(x, y)
    }
}

/// Which triangular systems are solved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TriangularForm {
    pub(super) upper: bool,
    pub(super) right: bool,
    pub(super) transpose: bool,
    pub(super) unit: bool,
}

impl TriangularForm {
    /// Lower triangles on the left.
    pub(super) const LOWER: TriangularForm =
        TriangularForm { upper: false, right: false, transpose: false, unit: false };
    /// Upper triangles on the left.
    pub(super) const UPPER: TriangularForm = TriangularForm { upper: true, ..Self::LOWER };

    pub(super) fn of(attrs: &Attrs) -> TriangularForm {
        TriangularForm {
            upper: attrs.flag("upper"),
            right: attrs.flag("right"),
            transpose: attrs.flag("transpose"),
            unit: attrs.flag("unit_diagonal"),
        }
    }

    /// With the matrices on the other side of the product.
    pub(super) fn on_right(self) -> TriangularForm {
        TriangularForm { right: true, ..self }
    }

    /// With the matrices transposed.
    pub(super) fn transposed(self) -> TriangularForm {
        TriangularForm { transpose: !self.transpose, ..self }
    }

    fn attrs(self) -> Attrs {
        Attrs::none()
            .with("upper", Attr::Bool(self.upper))
            .with("right", Attr::Bool(self.right))
            .with("transpose", Attr::Bool(self.transpose))
            .with("unit_diagonal", Attr::Bool(self.unit))
    }

    /// How rows of the triangle that is read compare with columns.
    pub(super) fn triangle(self) -> Op {
        match (self.upper, self.unit) {
            (false, false) => Op::Ge,
            (false, true) => Op::Gt,
            (true, false) => Op::Le,
            (true, true) => Op::Lt,
        }
    }
}
