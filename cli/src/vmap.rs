//! `vmap`: turns a function of one element into a function of a batch.

use super::derivative::print;
use super::failure::Failure;
use super::streams::Streams;
use super::target::{FunctionArgs, specialized};
use adfuse::autodiff::{Batching, Random, vmap};
use adfuse::ir::diag::instead;
use adfuse::ir::{DType, Dim, Function, Kind, Symbol, Value};
use clap::Args;
use std::process::ExitCode;

/// Prints the function over a batch
///
/// The printed function does for each element of a batch what the given one does for one, with the same bits.
/// Its parameters have one more axis where --in-axes says so, and its results where --out-axes does.
#[derive(Args)]
pub(super) struct Vmap {
    #[command(flatten)]
    target: FunctionArgs,
    /// The extent of the batch: a number, or a name for a symbolic dimension
    #[arg(long, value_name = "N", value_parser = size)]
    size: Dim,
    /// The batch axis of each parameter, such as x=0,y=none. A parameter that is not named is shared by all elements.
    /// Without this flag it is the first axis of every parameter
    #[arg(long, value_name = "NAME=AXIS,..", value_delimiter = ',', value_parser = named)]
    in_axes: Vec<(String, AxisArg)>,
    /// The batch axis of each result, such as 0,none; without this, the first. A negative axis counts from the last
    #[arg(long, value_name = "AXIS,..", value_delimiter = ',', value_parser = axis, allow_hyphen_values = true)]
    out_axes: Vec<AxisArg>,
    /// The name of an axis whose ranks the elements are: collectives over it become ordinary ops, and results that
    /// are the same on all ranks need no axis
    #[arg(long, value_name = "NAME")]
    axis_name: Option<String>,
    /// Let all elements draw the same random bits where they share seed and offset
    #[arg(long)]
    same_bits: bool,
}

/// An axis as it is written.
#[derive(Clone, Copy, Debug)]
enum AxisArg {
    None,
    At(i64),
}

impl Vmap {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let program = self.target.read()?;
        let f = self.target.choose(&program)?;
        let f = &specialized(&program, f, &self.target.extents(&program, f)?)?;
        let batching = self.batching(f)?;
        let made = match vmap(&program.module, f, &batching) {
            Err(d) if d.kind == Kind::Usage => return Err(Failure::Usage(d)),
            made => made,
        };
        print(&program, made, streams)
    }

    fn batching(&self, f: &Function) -> Result<Batching, Failure> {
        let params = f.params();
        let mut axes = vec![None; params.len()];
        if self.in_axes.is_empty() {
            let batched = |&p: &Value| (f.ty(p).dtype != DType::Token).then_some(0);
            axes = params.iter().map(batched).collect();
        }
        let mut seen = Vec::new();
        for (name, axis) in &self.in_axes {
            let Some(k) = params.iter().position(|&p| f.name_of(p) == Some(name)) else {
                let known: Vec<&str> = params.iter().filter_map(|&p| f.name_of(p)).collect();
                return Err(Failure::usage(format!("@{} has no parameter %{name}", f.name))
                    .hint(instead(name, &known, "%")));
            };
            if seen.contains(&k) {
                return Err(Failure::usage(format!("--in-axes names %{name} twice")));
            }
            seen.push(k);
            axes[k] = axis.of(f, params[k], &format!("%{name}"))?;
        }
        let random = if self.same_bits { Random::Same } else { Random::Refused };
        let mut batching = Batching::new(self.size, axes).random(random);
        if let Some(name) = &self.axis_name {
            batching = batching.named(name);
        }
        if self.out_axes.is_empty() {
            return Ok(batching);
        }
        let results = f.results();
        if self.out_axes.len() != results.len() {
            let (n, due) = (self.out_axes.len(), results.len());
            let m = format!("--out-axes has {n} axes, @{} has {due} results", f.name);
            return Err(Failure::usage(m));
        }
        let mut out = Vec::new();
        for (k, (axis, &r)) in self.out_axes.iter().zip(results).enumerate() {
            out.push(axis.of(f, r, &format!("result {k}"))?);
        }
        Ok(batching.results(out))
    }
}

impl AxisArg {
    /// The axis of the batch in what `v` becomes.
    fn of(self, f: &Function, v: Value, what: &str) -> Result<Option<usize>, Failure> {
        let AxisArg::At(at) = self else { return Ok(None) };
        let ty = f.ty(v);
        let rank = ty.rank() as i64;
        let axis = if at < 0 { at.saturating_add(rank + 1) } else { at };
        match usize::try_from(axis) {
            Ok(axis) if axis <= ty.rank() => Ok(Some(axis)),
            _ => {
                let m = format!("{what} is {ty}: it cannot have the batch as axis {at}");
                Err(Failure::usage(m))
            }
        }
    }
}

fn size(text: &str) -> Result<Dim, String> {
    match (text.parse(), Symbol::new(text)) {
        (Ok(n), _) => Ok(Dim::Const(n)),
        (Err(_), Some(symbol)) => Ok(Dim::Sym(symbol)),
        (Err(_), None) => Err("expected an extent or a name".into()),
    }
}

fn axis(text: &str) -> Result<AxisArg, String> {
    match text.trim() {
        "none" => Ok(AxisArg::None),
        text => text.parse().map(AxisArg::At).map_err(|_| "expected an axis or `none`".to_string()),
    }
}

fn named(text: &str) -> Result<(String, AxisArg), String> {
    let (name, at) = text.split_once('=').ok_or("expected NAME=AXIS")?;
    Ok((name.trim().trim_start_matches('%').to_string(), axis(at)?))
}
