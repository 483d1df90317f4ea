//! Plans that users provide as files.

use super::device::device;
use super::failure::Failure;
use super::plan_json;
use super::source::{ProgramWeights, SourceText};
use adfuse::fusion::{
    Fp, MachineModel, Plan, graph_hash, loop_choices, planned_function, segmented_as,
};
use adfuse::ir::diag::Span;
use adfuse::ir::{Diagnostic, Function};
use std::path::Path;
use std::rc::Rc;

/// What to do about a plan for a machine that is not built in.
const DESCRIBED: &str = "give the file that describes it with --device";
const BELONGS: &str = "a plan belongs to one program, function, --dim, --grad, --wrt and --fp";

/// A plan as it is written in a file.
pub(super) struct PlanFile {
    /// The file, and the plan's text; for a plan in JSON, that text is made from it.
    source: SourceText,
    json: bool,
}

impl PlanFile {
    /// Reads the file.
    pub(super) fn read(path: &Path) -> Result<PlanFile, Failure> {
        let source = SourceText::read(path)?;
        if !source.text.trim_start().starts_with('{') {
            return Ok(PlanFile { source, json: false });
        }
        let text = plan_json::to_text(&source.text)
            .map_err(|why| Failure::usage(format!("`{}` is no plan: {why}", source.name)))?;
        let source = SourceText { text: text.into(), ..source };
        Ok(PlanFile { source, json: true })
    }

    /// A plan in a file that has more than it.
    pub(super) fn within(name: &str, plan: &str) -> PlanFile {
        let source = SourceText {
            name: name.into(),
            text: plan.into(),
            weights: ProgramWeights::None,
            bound: Rc::new([]),
        };
        // Places in the plan are none in the file.
        PlanFile { source, json: true }
    }

    /// The mode that it was made for, which is the one that is asked for, if one is.
    pub(super) fn fp(&self, asked: Option<Fp>) -> Result<Fp, Failure> {
        let planned = Fp::ALL.iter().find(|(_, name)| Some(*name) == self.says("fp"));
        let planned = planned.map(|(fp, _)| *fp).unwrap_or_default();
        match asked.filter(|fp| *fp != planned) {
            Some(asked) => Err(differs("--fp", planned.name(), asked.name())),
            None => Ok(planned),
        }
    }

    /// The machine that it was made for, which is the one that is asked for, if one is.
    pub(super) fn device(&self, asked: Option<&str>) -> Result<MachineModel, Failure> {
        // A plan that does not say is refused when it is read.
        let name = self.says("device").unwrap_or("cpu");
        let device = match asked {
            Some(asked) => device(asked)?,
            None => MachineModel::named(name).ok_or_else(|| {
                let m = format!("the plan is for the device `{name}`");
                Failure::usage(m).hint(Some(DESCRIBED.into()))
            })?,
        };
        let identity = device.identity();
        match identity == name {
            true => Ok(device),
            false if name.split(" #").next() == Some(device.name.as_str()) => {
                let m = format!(
                    "the plan is for other numbers of the device `{}`: it says `{name}`, and these \
                     are `{identity}`",
                    device.name
                );
                let hint = "give the file that it was made for, or make the plan again";
                Err(Failure::usage(m).hint(Some(hint.into())))
            }
            false => {
                let failure = differs("the device", name, &identity);
                match MachineModel::named(name) {
                    Some(_) => Err(failure),
                    None => Err(failure.hint(Some(DESCRIBED.into()))),
                }
            }
        }
    }

    /// The machine that it was made for, where an engine runs on that or on another one that is built in and of the same kind:
    /// what runs on the cores of `cpu` runs plans for one of them.
    pub(super) fn machine_of(&self, engine: &MachineModel) -> Result<MachineModel, Failure> {
        let named = self.says("device").and_then(MachineModel::named);
        let alike = named.filter(|named| named.is_gpu() == engine.is_gpu());
        self.device(Some(&alike.as_ref().unwrap_or(engine).name))
    }

    /// What the line of this word says.
    fn says(&self, word: &str) -> Option<&str> {
        let lines = self.source.text.lines().map(str::trim);
        lines.filter_map(|l| l.split_once(' ')).find(|(w, _)| *w == word).map(|(_, says)| says)
    }

    /// The plan, and the function that it is one of: this one, or this one keeping values with losses.
    pub(super) fn plan(self, f: &Function) -> Result<(Function, Plan), Failure> {
        let planned = planned_function(f, &self.source.text);
        let segments = planned.as_ref().err().and_then(|_| self.wrong_segments(f));
        if let Some(d) = segments.or_else(|| self.wrong_loops(f)) {
            return Err(self.told(f, d));
        }
        match planned {
            Ok(f) => self.of_function(&f).map(|plan| (f, plan)),
            Err(d) if self.is_of(f, d.at.span) => Err(self.told(f, d)),
            // Where the names are not those of this function, its own hash is what the plan's is not.
            Err(d) => match self.of_function(f) {
                Ok(_) => Err(Failure::Usage(d)),
                Err(failure) => Err(failure),
            },
        }
    }

    /// Whether it says that it is a plan of a function of this name.
    fn names(&self, f: &Function) -> bool {
        let first = self.source.text.trim_start().lines().next().unwrap_or("").trim_end();
        let name = first.strip_prefix("plan ").and_then(|rest| rest.strip_suffix('{'));
        name.map(str::trim).and_then(|name| name.strip_prefix('@')) == Some(f.name.as_str())
    }

    /// What is wrong with the checkpoint segments in a plan that says it is one of this function. Which function it is of shows only in the
    /// divided one.
    fn wrong_segments(&self, f: &Function) -> Option<Diagnostic> {
        let d =
            if self.names(f) { segmented_as(f, &self.source.text).err()? } else { return None };
        Some(d.hint(BELONGS))
    }

    /// What is wrong with the decisions about loops in a plan that says it is one of this function.
    fn wrong_loops(&self, f: &Function) -> Option<Diagnostic> {
        if self.names(f) { loop_choices(f, &self.source.text).err() } else { None }
    }

    /// Whether it says that it is a plan of this function, as it is or as it is but for the line at this place.
    fn is_of(&self, f: &Function, place: Option<Span>) -> bool {
        let says = |f: &Function| self.says("graph") == Some(&graph_hash(f));
        let Some(place) = place else { return false };
        let text = &self.source.text;
        let (before, after) = (text.get(..place.start as usize), text.get(place.end as usize..));
        let (Some(before), Some(after)) = (before, after) else { return false };
        says(f) || planned_function(f, &[before, after].concat()).is_ok_and(|f| says(&f))
    }

    fn of_function(self, f: &Function) -> Result<Plan, Failure> {
        // Of another function's plan, the names are unknown too: what matters comes first.
        let graph = graph_hash(f);
        if self.says("graph").is_some_and(|said| said != graph) {
            let m = format!(
                "the plan in `{}` is of another function than this @{}",
                self.source.name, f.name
            );
            return Err(Failure::usage(m).hint(Some(BELONGS.into())));
        }
        Plan::parse(&self.source.text, f).map_err(|d| self.told(f, d))
    }

    /// The failure that something in the plan's text is wrong, with the place in the file where there is one.
    fn told(self, f: &Function, d: Diagnostic) -> Failure {
        match self.json {
            // Places are those of the text made of it, which nobody has seen.
            true => Failure::usage(format!(
                "`{}` is no plan of @{}: {}",
                self.source.name, f.name, d.message
            )),
            false => Failure::File(self.source, vec![d]),
        }
    }
}

fn differs(what: &str, plan: &str, asked: &str) -> Failure {
    Failure::usage(format!("the plan is for {what} `{plan}`, not `{asked}`"))
}
