//! The options for lossy storage and donated inputs.

use super::failure::Failure;
use super::program::LoadedProgram;
use super::streams::Streams;
use adfuse::fusion::{Lossy, Narrow, Narrowed, lossy_copies};
use adfuse::ir::diag::instead;
use adfuse::ir::text::Names;
use adfuse::ir::{Diagnostic, Function, Kind};
use clap::Args;

/// What may be kept with losses.
#[derive(Args)]
pub(super) struct Losses {
    /// Keep floats for later passes in a narrower type where that takes less memory: bf16 or f16 for all,
    /// %v=bf16 for one value of the program that is planned
    ///
    /// What is read back differs from the value by half an ulp of the type at most; finite values beyond
    /// its greatest number are kept as that. Results of the forward pass keep their bits.
    #[arg(long, value_name = "[%V=]TYPE", value_parser = loss, conflicts_with = "plan")]
    lossy: Vec<Loss>,
}

/// What one argument allows.
#[derive(Clone, Debug)]
struct Loss {
    /// The value, or every value.
    of: Option<String>,
    narrow: Narrow,
}

fn loss(text: &str) -> Result<Loss, String> {
    let (of, form) = match text.split_once('=') {
        Some((of, form)) => (Some(of.to_owned()), form),
        None => (None, text),
    };
    let types = Narrow::ALL.map(Narrow::name).join(" and ");
    let narrow = Narrow::named(form).ok_or_else(|| format!("types are {types}"))?;
    Ok(Loss { of, narrow })
}

/// The failure of storing values with losses: names are those of the command line.
pub(super) fn fault(source: &LoadedProgram, d: Diagnostic) -> Failure {
    match d.kind {
        Kind::UnknownName | Kind::Usage => Failure::Usage(Diagnostic { kind: Kind::Usage, ..d }),
        _ => source.wrong(d),
    }
}

/// Donated inputs.
#[derive(Args)]
pub(super) struct Donated {
    /// Inputs whose memory may hold results and temporaries once they are read, such as parameters that a step
    /// updates
    #[arg(long, value_name = "%X,..", value_delimiter = ',')]
    donate: Vec<String>,
}

impl Donated {
    /// Their positions in a function, ascending.
    pub(super) fn positions(&self, f: &Function) -> Result<Vec<usize>, Failure> {
        let names = Names::of(f);
        let params: Vec<String> = f.params().iter().map(|&p| names.get(p)).collect();
        let find = |name: &String| {
            let wanted = name.trim().trim_start_matches('%');
            params.iter().position(|p| p == wanted).ok_or_else(|| {
                let known: Vec<&str> = params.iter().map(String::as_str).collect();
                let hint = instead(wanted, &known, "%");
                Failure::usage(format!("@{} has no parameter %{wanted}", f.name)).hint(hint)
            })
        };
        let mut all: Vec<usize> = self.donate.iter().map(find).collect::<Result<_, _>>()?;
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.donate.is_empty()
    }
}

impl Losses {
    /// What may be kept so.
    pub(super) fn allowed(&self) -> Result<Lossy, Failure> {
        let mut lossy = Lossy::default();
        for Loss { of, narrow } in &self.lossy {
            match of {
                Some(of) => lossy.named.push((of.clone(), *narrow)),
                None if lossy.every.replace(*narrow).is_some() => {
                    return Err(Failure::usage("--lossy names one type for all values"));
                }
                None => {}
            }
        }
        Ok(lossy)
    }
}

/// Tells which of the named values have no copy, and why no other has one where all might.
pub(super) fn tell(lossy: &Lossy, kept: &Narrowed, streams: &mut Streams<'_>) {
    for left in kept.left.iter().filter(|l| l.named) {
        streams.note(format!("%{} is kept without losses: {}", left.name, left.why));
    }
    let Some(narrow) = lossy.every else { return };
    let names = Names::of(&kept.function);
    let asked: Vec<&str> = lossy.named.iter().map(|(n, _)| n.trim_start_matches('%')).collect();
    let copies = lossy_copies(&kept.function);
    if copies.iter().any(|c| !asked.contains(&names.get(c.of).as_str())) {
        return;
    }
    let others = kept.left.iter().filter(|l| !l.named);
    let each: Vec<String> = others.map(|l| format!("%{}: {}", l.name, l.why)).collect();
    let why = match each.as_slice() {
        [] => "no value is kept for a later pass".to_owned(),
        each => each.join("; "),
    };
    streams.note(format!("nothing is kept as {}: {why}", narrow.name()));
}
