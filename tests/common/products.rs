//! Products of every form as programs of kernels: sizes near those of tiles, all types, dense and strided operands,
//! computed operands, members with shared operands, and epilogues.

use adfuse::ir::DType;

/// What the left operand is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Feed {
    /// Elements of a buffer as they are.
    Plain,
    /// A function of them.
    Computed,
    /// Elements of a buffer, and others before the first.
    Guarded,
    /// Elements of a buffer from the last to the first.
    Backward,
}

/// One product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) dtype: DType,
    /// Batch, rows, columns, depth.
    pub(crate) size: [u64; 4],
    /// Whether the operands' own axes come after the depth.
    pub(crate) turned: [bool; 2],
    pub(crate) feed: Feed,
    /// Whether sums get a bias and are rectified and folded.
    pub(crate) then: bool,
}

impl Product {
    fn typed(dtype: DType, size: [u64; 4], turned: [bool; 2]) -> Product {
        Product { dtype, size, turned, feed: Feed::Plain, then: false }
    }

    /// The program of it.
    pub(crate) fn text(&self) -> String {
        let [batch, rows, cols, depth] = self.size;
        let t = self.dtype.name();
        let sum = self.dtype.compute().name();
        let input = |lines: u64, turned: bool| match turned {
            false => format!("{t}[{batch}, {lines}, {depth}]"),
            true => format!("{t}[{batch}, {depth}, {lines}]"),
        };
        let at = |deep: &str, turned: bool| match turned {
            false => format!("d0, d1, {deep}"),
            true => format!("d0, {deep}, d1"),
        };
        let [x, w] = [input(rows, self.turned[0]), input(cols, self.turned[1])];
        let plain = at("d2", self.turned[0]);
        let lhs = match self.feed {
            Feed::Plain => format!("p0 = load %x[{plain}] s0 = param.{t} 0 out s0"),
            // 16-bit floats are computed in the type of the sums.
            Feed::Computed if t != sum => format!(
                "p0 = load %x[{plain}] s0 = param.{t} 0 s1 = convert.{sum} s0
                 s2 = mul.{sum} s1 s1 s3 = convert.{t} s2 out s3"
            ),
            Feed::Computed => {
                format!("p0 = load %x[{plain}] s0 = param.{t} 0 s1 = mul.{t} s0 s0 out s1")
            }
            Feed::Guarded => format!(
                "p0 = load %x[{}] when d2 - 1 in [0, {}) else {t}({}) s0 = param.{t} 0 out s0",
                at("d2 - 1", self.turned[0]),
                depth.saturating_sub(1),
                if self.dtype.is_float() { "0.5" } else { "3" },
            ),
            Feed::Backward => format!(
                "p0 = load %x[{}] s0 = param.{t} 0 out s0",
                at(&format!("d2 * -1 + {}", depth.saturating_sub(1)), self.turned[0])
            ),
        };
        let rhs = at("d2", self.turned[1]);
        // Results of the type of the operands.
        let end = |last: u32| match t == sum {
            true => (String::new(), last),
            false => (format!("s{} = convert.{t} s{last}", last + 1), last + 1),
        };
        let (then, folds) = match self.then {
            false => {
                let (convert, last) = end(0);
                (
                    format!("p0 = sum s0 = param.{sum} 0 {convert} %y[d0, d1, d2] = store s{last}"),
                    false,
                )
            }
            true => {
                let (convert, last) = end(3);
                let then = format!(
                    "p0 = sum p1 = load %b[d2] s0 = param.{sum} 0 s1 = param.{sum} 1
                     s2 = add.{sum} s0 s1 s3 = max.{sum} s2 s1 {convert}
                     %y[d0, d1, d2] = store s{last} %z[d0, d2] = fold.max s3 chain(d1)"
                );
                (then, true)
            }
        };
        let fold = if folds { format!("output %z: {sum}[{batch}, {cols}]") } else { String::new() };
        let bias = if folds { format!("input %b: {sum}[{cols}]") } else { String::new() };
        let handed = if folds { "%y, %z" } else { "%y" };
        format!(
            "program @product {{
               input %x: {x}
               input %w: {w}
               {bias}
               output %y: {t}[{batch}, {rows}, {cols}]
               {fold}
               contract @product {{
                 member batch [{batch}] rows [{rows}] cols [{cols}] depth [{depth}] sum {sum} {{
                   lhs {{ {lhs} }}
                   rhs {{ p0 = load %w[{rhs}] s0 = param.{t} 0 out s0 }}
                   then {{ {then} }}
                 }}
               }}
               return {handed}
             }}"
        )
    }
}

/// Sizes: one of each, parts of tiles, depths that end within a step, within a chunk and after several, few
/// results over a long depth, many small matrices, and enough for the largest tiles.
const SIZES: [[u64; 4]; 11] = [
    [1, 1, 1, 1],
    [3, 5, 7, 0],
    [1, 33, 65, 37],
    [2, 40, 72, 48],
    [1, 129, 66, 513],
    [1, 130, 200, 1100],
    [1, 64, 64, 9000],
    [110, 80, 96, 70],
    [101, 128, 136, 72],
    [120, 72, 70, 1040],
    [1, 2824, 1680, 40],
];

/// The sizes at which only some types and operands are tried.
fn is_large(size: [u64; 4]) -> bool {
    size.iter().product::<u64>() > 1 << 22
}

/// All of them.
pub(crate) fn table() -> Vec<Product> {
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32] {
        let common = matches!(dtype, DType::F32 | DType::BF16);
        for size in SIZES {
            for (k, turned) in
                [[false, true], [false, false], [true, true], [true, false]].into_iter().enumerate()
            {
                if is_large(size) && !common && k > 0 {
                    continue;
                }
                let plain = Product::typed(dtype, size, turned);
                all.push(Product { then: k % 2 == 1 && size[1] > 1, ..plain });
                let feeds = [Feed::Computed, Feed::Guarded, Feed::Backward, Feed::Computed];
                if size[3] > 1 && !is_large(size) {
                    all.push(Product { feed: feeds[k], then: k == 2, ..plain });
                }
            }
        }
    }
    // Computed operands of the largest tiles that those have.
    for dtype in [DType::F32, DType::BF16] {
        let plain = Product::typed(dtype, [101, 128, 136, 72], [false, true]);
        all.push(Product { feed: Feed::Computed, ..plain });
    }
    all
}

/// Products of 16-bit floats whose operands have heads between lines and elements, `%x: [batch, heads, time, elements]`, where lines
/// or the depth are several axes: what a projection does before and after attention, and its gradients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadProduct {
    pub(crate) dtype: DType,
    /// Batch, heads, time, elements of a head; columns of the other operand.
    pub(crate) size: [u64; 5],
    pub(crate) form: HeadForm,
}

/// Where the operand with heads stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeadForm {
    /// Left: rows are batch and time, the depth heads and elements.
    Depth,
    /// Left: rows are heads and elements, the depth batch and time.
    Rows,
    /// Right: columns are heads and elements, the depth batch and time.
    Columns,
}

impl HeadProduct {
    /// The program of it.
    pub(crate) fn text(&self) -> String {
        let [b, h, t, d, n] = self.size;
        let name = self.dtype.name();
        let of_heads = |index: &str| format!("p0 = load %x[{index}] s0 = param.{name} 0 out s0");
        let of_other = |index: &str| format!("p0 = load %w[{index}] s0 = param.{name} 0 out s0");
        let (w, y, extents, lhs, rhs, to) = match self.form {
            HeadForm::Depth => (
                format!("[{n}, {}]", h * d),
                format!("[{b}, {t}, {n}]"),
                format!("rows [{b}, {t}] cols [{n}] depth [{h}, {d}]"),
                of_heads("d1, d3, d2, d4"),
                of_other(&format!("d1, d2 * {d} + d3")),
                "d1, d2, d3",
            ),
            HeadForm::Rows => (
                format!("[{b}, {t}, {n}]"),
                format!("[{h}, {d}, {n}]"),
                format!("rows [{h}, {d}] cols [{n}] depth [{b}, {t}]"),
                of_heads("d3, d1, d4, d2"),
                of_other("d2, d3, d1"),
                "d1, d2, d3",
            ),
            HeadForm::Columns => (
                format!("[{b}, {t}, {n}]"),
                format!("[{n}, {h}, {d}]"),
                format!("rows [{n}] cols [{h}, {d}] depth [{b}, {t}]"),
                of_other("d2, d3, d1"),
                of_heads("d3, d1, d4, d2"),
                "d1, d2, d3",
            ),
        };
        format!(
            "program @heads {{
               input %x: {name}[{b}, {h}, {t}, {d}]
               input %w: {name}{w}
               output %y: {name}{y}
               contract @heads {{
                 member batch [1] {extents} sum f32 {{
                   lhs {{ {lhs} }}
                   rhs {{ {rhs} }}
                   then {{ p0 = sum s0 = param.f32 0 s1 = convert.{name} s0 %y[{to}] = store s1 }}
                 }}
               }}
               return %y
             }}"
        )
    }
}

/// Sizes of which tiles lie within heads, and of which they do not.
pub(crate) fn head_products() -> Vec<HeadProduct> {
    let sizes =
        [[2, 3, 256, 64, 128], [3, 2, 512, 128, 192], [2, 3, 72, 64, 128], [2, 5, 256, 40, 64]];
    let forms = [HeadForm::Depth, HeadForm::Rows, HeadForm::Columns];
    let of = |dtype: DType| {
        sizes.into_iter().flat_map(move |size| forms.map(|form| HeadProduct { dtype, size, form }))
    };
    of(DType::BF16).chain(of(DType::F16)).collect()
}

/// Products that share their left operand, with these numbers of columns; every other one gets a bias.
pub(crate) fn shared_operand(columns: &[u64]) -> String {
    let (rows, depth) = (300, 256);
    let mut text = format!("program @shared {{\n  input %x: bf16[{rows}, {depth}]\n");
    let mut members = String::new();
    for (k, n) in columns.iter().enumerate() {
        text += &format!("  input %w{k}: bf16[{depth}, {n}]\n  input %b{k}: bf16[{n}]\n");
        let (then, result) = match k % 2 {
            0 => {
                let bias =
                    "s2 = convert.f32 s0\n        s3 = add.f32 s1 s2\n        s4 = convert.bf16 s3";
                (bias, "s4")
            }
            _ => ("s2 = convert.bf16 s1", "s2"),
        };
        members += &format!(
            "    member batch [] rows [{rows}] cols [{n}] depth [{depth}] sum f32 {{
      lhs {{
        p0 = load %x[d0, d1]
        s0 = param.bf16 0
        out s0
      }}
      rhs {{
        p0 = load %w{k}[d1, d0]
        s0 = param.bf16 0
        out s0
      }}
      then {{
        p0 = load %b{k}[d1]
        p1 = sum
        s0 = param.bf16 0
        s1 = param.f32 1
        {then}
        %y{k}[d0, d1] = store {result}
      }}
    }}\n"
        );
    }
    let outputs: Vec<String> = (0..columns.len()).map(|k| format!("%y{k}")).collect();
    for (name, n) in outputs.iter().zip(columns) {
        text += &format!("  output {name}: bf16[{rows}, {n}]\n");
    }
    text + &format!("  contract @products {{\n{members}  }}\n  return {}\n}}\n", outputs.join(", "))
}

/// A product whose operands are stacked along the first axis of the depth: a sum of this many terms.
pub(crate) fn stacked_terms(terms: usize, [rows, columns, depth]: [u64; 3]) -> String {
    let mut text = String::from("program @terms {\n");
    for k in 0..terms {
        text += &format!(
            "  input %x{k}: bf16[{rows}, {depth}]\n  input %w{k}: bf16[{columns}, {depth}]\n"
        );
    }
    let stacked = |name: &str| {
        let piece = |k: usize| {
            let when =
                if k + 1 < terms { format!(" when d1 in [{k}, {})", k + 1) } else { String::new() };
            format!("%{name}{k}[d0, d2]{when}")
        };
        (0..terms).map(piece).collect::<Vec<_>>().join(" else ")
    };
    text + &format!(
        "  input %b: bf16[{columns}]
  output %y: bf16[{rows}, {columns}]
  contract @terms {{
    member batch [] rows [{rows}] cols [{columns}] depth [{terms}, {depth}] sum f32 {{
      lhs {{
        p0 = load {}
        s0 = param.bf16 0
        out s0
      }}
      rhs {{
        p0 = load {}
        s0 = param.bf16 0
        out s0
      }}
      then {{
        p0 = load %b[d1]
        p1 = sum
        s0 = param.bf16 0
        s1 = param.f32 1
        s2 = convert.f32 s0
        s3 = add.f32 s1 s2
        s4 = convert.bf16 s3
        %y[d0, d1] = store s4
      }}
    }}
  }}
  return %y
}}
",
        stacked("x"),
        stacked("w")
    )
}

/// Terms, and rows, columns and depth of each: whole and ragged tiles, and depths that end within a step.
pub(crate) const STACKED: [(usize, [u64; 3]); 5] = [
    (2, [256, 256, 128]),
    (3, [300, 256, 192]),
    (3, [1000, 768, 768]),
    (4, [130, 200, 72]),
    (2, [512, 128, 64]),
];

/// A sum of products of what heads have: each term reads element `d % 64` of head `d / 64` for each row of a batch.
pub(crate) fn stacked_heads(terms: usize, [batch, heads, rows, columns]: [u64; 4]) -> String {
    let depth = 64 * heads;
    let mut text = String::from("program @heads {\n");
    for k in 0..terms {
        text += &format!("  input %x{k}: bf16[{batch}, {heads}, {rows}, 64]\n");
        text += &format!("  input %w{k}: bf16[{columns}, {depth}]\n");
    }
    let stacked = |name: &str, index: &str, axis: &str| {
        let when = |k: usize| match k + 1 < terms {
            true => format!(" when {axis} in [{k}, {})", k + 1),
            false => String::new(),
        };
        let piece = |k: usize| format!("%{name}{k}[{index}]{}", when(k));
        (0..terms).map(piece).collect::<Vec<_>>().join(" else ")
    };
    let lhs = stacked("x", "d0, d3 / 64, d1, d3 % 64", "d2");
    let rhs = stacked("w", "d0, d2", "d1");
    text + &format!(
        "  output %y: bf16[{batch}, {rows}, {columns}]
  contract @heads {{
    member batch [] rows [{batch}, {rows}] cols [{columns}] depth [{terms}, {depth}] sum f32 {{
      lhs {{
        p0 = load {lhs}
        s0 = param.bf16 0
        out s0
      }}
      rhs {{
        p0 = load {rhs}
        s0 = param.bf16 0
        out s0
      }}
      then {{
        p0 = sum
        s0 = param.f32 0
        s1 = convert.bf16 s0
        %y[d0, d1, d2] = store s1
      }}
    }}
  }}
  return %y
}}
"
    )
}

/// Gradients of weights: few results over a long depth, which is not where operands have neighbours. Each is stored, and its squares
/// are added up; the first has a column of sums too.
pub(crate) fn weight_gradients(products: usize, [rows, columns, depth]: [u64; 3]) -> String {
    let mut text = format!("program @gradients {{\n  input %x: bf16[{depth}, {columns}]\n");
    let (mut members, mut outputs, mut names) = (String::new(), String::new(), Vec::new());
    for k in 0..products {
        text += &format!("  input %g{k}: bf16[{depth}, {rows}]\n");
        outputs += &format!("  output %y{k}: bf16[{rows}, {columns}]\n  output %n{k}: f32[]\n");
        names.extend([format!("%y{k}"), format!("%n{k}")]);
        let mut sums = format!("%n{k}[] = fold.sum s2 lane(d0, d1)");
        if k == 0 {
            outputs += &format!("  output %c: f32[{columns}]\n");
            names.push("%c".to_owned());
            sums += "\n        %c[d1] = fold.sum s0 chain(d0)";
        }
        members += &format!(
            "    member batch [] rows [{rows}] cols [{columns}] depth [{depth}] sum f32 {{
      lhs {{
        p0 = load %g{k}[d1, d0]
        s0 = param.bf16 0
        out s0
      }}
      rhs {{
        p0 = load %x[d1, d0]
        s0 = param.bf16 0
        out s0
      }}
      then {{
        p0 = sum
        s0 = param.f32 0
        s1 = convert.bf16 s0
        s2 = mul.f32 s0 s0
        %y{k}[d0, d1] = store s1
        {sums}
      }}
    }}\n"
        );
    }
    let names = names.join(", ");
    format!("{text}{outputs}  contract @gradients {{\n{members}  }}\n  return {names}\n}}\n")
}

/// Gradients of weights: how many share a grid, and their rows, columns and depth.
pub(crate) const GRADIENTS: [(usize, [u64; 3]); 5] = [
    (1, [256, 512, 8192]),
    (3, [256, 256, 4096]),
    (2, [200, 264, 5000]),
    (1, [768, 768, 16384]),
    (3, [768, 768, 16384]),
];

/// The same of many results, whose tiles are whole.
pub(crate) const WHOLE_GRADIENTS: [(usize, [u64; 3]); 2] =
    [(2, [1024, 1536, 512]), (3, [1000, 1032, 320])];
