//! Attention in forms that a GPU has steps for: depths, lengths, masks, heads that share keys.

use adfuse::ir::DType;
use adfuse::ir::op::AttentionReach;

/// What is added to scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extra {
    None,
    /// A mask of all heads, or a bias of each; with the cotangents of scores where they are wanted.
    Mask,
    Bias {
        grad: bool,
    },
}

/// An attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) dtype: DType,
    /// Batch, groups of heads, heads of a group.
    pub(crate) heads: [u64; 3],
    pub(crate) rows: u64,
    pub(crate) stream: u64,
    pub(crate) depth: u64,
    pub(crate) width: u64,
    /// Keys before and after a row's place that it sees, or -1.
    pub(crate) window: [i64; 2],
    pub(crate) extra: Extra,
}

impl Form {
    const fn new(heads: [u64; 3], [rows, stream]: [u64; 2], [depth, width]: [u64; 2]) -> Form {
        let (dtype, window, extra) = (DType::BF16, [-1; 2], Extra::None);
        Form { dtype, heads, rows, stream, depth, width, window, extra }
    }

    const fn causal(self) -> Form {
        self.window(-1, 0)
    }

    const fn window(self, before: i64, after: i64) -> Form {
        Form { window: [before, after], ..self }
    }

    const fn with(self, extra: Extra) -> Form {
        Form { extra, ..self }
    }

    /// The program of the step or of its way back.
    pub(crate) fn text(&self, backward: bool) -> String {
        let Form { heads: [batch, groups, shared], rows, stream, depth, width, .. } = *self;
        let (t, heads) = (self.dtype.name(), groups * shared);
        let of_heads = |n: u64, last: &str| format!("[{batch}, {n}, {last}]");
        let q = format!("{t}{}", of_heads(heads, &format!("{rows}, {depth}")));
        let k = format!("{t}{}", of_heads(groups, &format!("{stream}, {depth}")));
        let v = format!("{t}{}", of_heads(groups, &format!("{stream}, {width}")));
        let y = format!("{t}{}", of_heads(heads, &format!("{rows}, {width}")));
        // Logarithms of sums are of the type that is computed in.
        let of_rows = format!("{}{}", self.dtype.compute(), of_heads(heads, &rows.to_string()));
        let mut inputs = vec![("q", q.clone()), ("k", k.clone()), ("v", v.clone())];
        let mut outputs = vec![("y", y.clone()), ("l", of_rows.clone())];
        if backward {
            inputs.extend([("l", of_rows.clone()), ("dy", y), ("delta", of_rows)]);
            outputs = vec![("dq", q), ("dk", k), ("dv", v)];
        }
        match self.extra {
            Extra::None => {}
            Extra::Mask => inputs.push(("x", format!("bool[1, 1, {rows}, {stream}]"))),
            Extra::Bias { grad } => {
                inputs.push(("x", format!("{t}[1, {heads}, {rows}, {stream}]")));
                if backward && grad {
                    let all = of_heads(heads, &format!("{rows}, {stream}"));
                    outputs.push(("ds", format!("{t}{all}")));
                }
            }
        }
        let mut text = String::from("program @attention {\n");
        for (role, list) in [("input", &inputs), ("output", &outputs)] {
            list.iter().for_each(|(name, ty)| text += &format!("  {role} %{name}: {ty}\n"));
        }
        let listed = |list: &[(&str, String)]| {
            let names: Vec<String> = list.iter().map(|(name, _)| format!("%{name}")).collect();
            names.join(", ")
        };
        let op = if backward { "attention_grad" } else { "attention" };
        let reach = AttentionReach::of_window(&self.window).expect("is a window");
        let (outputs, inputs) = (listed(&outputs), listed(&inputs));
        text + &format!("  {outputs} = {op}({inputs}){reach}\n  return {outputs}\n}}\n")
    }
}

/// Forms that differ in what is printed: whole and ragged tiles, depths, what hides scores.
pub(crate) fn table() -> Vec<Form> {
    let grad = Extra::Bias { grad: true };
    let bias = Extra::Bias { grad: false };
    let mut all = vec![
        Form::new([1, 2, 1], [256, 256], [64, 64]),
        Form::new([1, 2, 1], [256, 256], [64, 64]).causal(),
        Form::new([1, 2, 1], [256, 256], [128, 128]).causal(),
        Form::new([2, 1, 1], [200, 300], [64, 64]),
        Form::new([2, 1, 1], [200, 300], [64, 64]).causal(),
        Form::new([1, 1, 2], [300, 200], [128, 128]).causal(),
        Form::new([2, 2, 3], [130, 130], [32, 64]).causal(),
        Form::new([1, 2, 2], [70, 90], [24, 8]),
        Form::new([1, 1, 1], [1, 1], [8, 8]),
        Form::new([1, 2, 1], [5, 400], [80, 96]).causal(),
        Form::new([1, 2, 1], [400, 5], [16, 16]),
        Form::new([2, 2, 1], [128, 192], [64, 64]).with(Extra::Mask),
        Form::new([2, 1, 2], [100, 150], [64, 64]).with(bias),
        Form::new([2, 1, 2], [100, 150], [64, 64]).with(grad),
        Form::new([1, 2, 1], [150, 100], [128, 128]).causal().with(grad),
        Form::new([1, 2, 1], [500, 700], [128, 128]),
        Form::new([1, 1, 2], [700, 500], [64, 64]).causal(),
        Form::new([1, 1, 1], [40, 0], [64, 64]),
        Form::new([1, 1, 1], [0, 40], [64, 64]),
        Form::new([1, 2, 1], [150, 200], [256, 256]).causal(),
        Form::new([1, 1, 2], [130, 90], [192, 256]).with(Extra::Mask),
        Form::new([1, 1, 1], [40, 100], [256, 136]).with(grad),
    ];
    // Windows: within a tile and over several, before, after and to both sides, more rows than keys and fewer, with what else hides.
    all.extend([
        Form::new([1, 2, 1], [300, 300], [64, 64]).window(50, 0),
        Form::new([1, 2, 1], [600, 600], [64, 64]).window(200, 0),
        Form::new([1, 1, 2], [400, 500], [128, 128]).window(150, 40),
        Form::new([1, 1, 1], [100, 900], [128, 128]).window(130, 0),
        Form::new([1, 1, 1], [500, 80], [64, 64]).window(20, 10),
        Form::new([1, 1, 1], [300, 300], [64, 64]).window(60, -1),
        Form::new([1, 1, 1], [300, 300], [128, 64]).window(-1, 70),
        Form::new([1, 2, 1], [260, 260], [128, 128]).window(100, 0).with(grad),
        Form::new([1, 1, 2], [200, 200], [64, 64]).window(90, 30).with(Extra::Mask),
        Form::new([1, 2, 1], [260, 260], [256, 256]).window(64, 0),
        Form::new([1, 1, 1], [40, 400], [32, 32]).window(8, 8),
        Form::new([1, 1, 1], [700, 700], [128, 128]).window(256, 256),
        Form::new([1, 1, 1], [300, 300], [192, 64]).causal(),
        Form::new([1, 1, 1], [40, 300], [136, 136]).window(63, -1).with(bias),
        Form::new([1, 1, 1], [400, 40], [32, 32]).window(0, 0).with(bias),
    ]);
    // Cotangents of scores that are kept in `f16` overflow early.
    let halves = [1, 2, 3, 6, 8].map(|k| Form { dtype: DType::F16, ..all[k] });
    all.extend(halves);
    all
}

/// Forms of `f32` in the defined order: lines within a block and over several, ragged ones, rows that see nothing, depths that are
/// divided in other ways.
pub(crate) fn defined() -> Vec<Form> {
    let grad = Extra::Bias { grad: true };
    let forms = [
        Form::new([1, 2, 1], [150, 140], [8, 4]).causal(),
        Form::new([1, 1, 1], [40, 300], [4, 12]).causal(),
        Form::new([1, 1, 2], [300, 40], [12, 8]).causal(),
        Form::new([2, 1, 2], [33, 129], [20, 68]),
        Form::new([1, 1, 1], [1, 1], [4, 4]),
        Form::new([1, 1, 3], [130, 130], [4, 4]).causal().with(grad),
        Form::new([1, 2, 1], [70, 200], [4, 8]).with(Extra::Mask),
        Form::new([2, 1, 2], [60, 150], [8, 4]).with(Extra::Bias { grad: false }),
        Form::new([1, 1, 1], [140, 260], [4, 4]).causal().with(Extra::Mask),
        Form::new([1, 1, 1], [20, 140], [128, 128]).causal(),
        Form::new([1, 1, 1], [40, 0], [8, 8]),
        Form::new([1, 1, 1], [0, 40], [8, 8]),
        Form::new([1, 2, 1], [300, 300], [8, 4]).window(20, 0),
        Form::new([1, 1, 2], [290, 310], [4, 8]).window(140, 0),
        Form::new([1, 1, 1], [270, 400], [4, 4]).window(30, 50),
        Form::new([1, 1, 2], [400, 130], [4, 4]).window(10, 3).with(grad),
        Form::new([1, 1, 1], [150, 290], [4, 4]).window(129, -1).with(Extra::Mask),
        Form::new([1, 1, 1], [290, 150], [8, 4]).window(-1, 129),
    ];
    forms.into_iter().map(|form| Form { dtype: DType::F32, ..form }).collect()
}

/// Sizes that are measured.
pub(crate) fn large() -> Vec<Form> {
    vec![
        Form::new([4, 16, 1], [4096, 4096], [128, 128]).causal(),
        Form::new([8, 12, 1], [1024, 1024], [64, 64]).causal(),
        Form::new([4, 8, 1], [4096, 4096], [256, 256]).causal(),
    ]
}
