//! The cost and the contents of a plan, as data and as JSON.

use super::recomputed;
use super::times::{milliseconds, slower};
use crate::failure::Failure;
use crate::losses::fault;
use crate::planning::PlanRequest;
use crate::stable_forms::{UnstableFormula, unstable};
use crate::steps;
use adfuse::budget::BudgetChoice;
use adfuse::fusion::{
    Bottleneck, CheckpointEnds, Cost, Effort, EngineModel, Layout, LoopReport, LoopResiduals, Plan,
    PlanOptions, compile_cost, computed_by_steps, decide_loops, loop_reports, lossy_copies, lower,
    narrow_storage, patterns, plan_for, recomputed_values, saved_bytes,
};
use adfuse::ir::Function;
use adfuse::ir::kernel::{Extents, Program};
use adfuse::ir::text::Names;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// A plan beside the one of effort off.
pub(super) struct PlanReport {
    pub(super) function: String,
    pub(super) device: String,
    pub(super) fp: &'static str,
    pub(super) effort: &'static str,
    /// How temporaries lie in memory, where that is not row-major.
    pub(super) layout: Option<Layout>,
    /// The plan's hash, and that of the function it belongs to.
    pub(super) plan: String,
    pub(super) graph: String,
    pub(super) chosen: ProgramFigures,
    pub(super) off: ProgramFigures,
    /// What the budget did.
    pub(super) budget: Option<Within>,
    /// What the budget of the time to compile did.
    pub(super) compile_budget: Option<WithinCompile>,
    /// The plan that takes the least memory of those that were made, where it takes less than this one. A budget of its peak may
    /// find one that is better still, and none that is worse.
    pub(super) leanest: Option<Leanest>,
    /// The ends of checkpoint segments.
    pub(super) segments: Vec<CheckpointEnds>,
    /// What is computed again, and how often.
    pub(super) again: Vec<(String, u32)>,
    /// Values that are kept with losses, and the types of their copies.
    pub(super) lossy: Vec<(String, &'static str)>,
    /// Donated inputs.
    pub(super) donated: Vec<String>,
    /// Rules of stable forms, and what they rewrote.
    pub(super) recognised: Vec<(&'static str, String)>,
    /// Formulas that have stable forms, which strict mode does not use.
    pub(super) unstable: Vec<UnstableFormula>,
    /// Named patterns, and their results.
    pub(super) patterns: Vec<(&'static str, String)>,
    /// The loops.
    pub(super) loops: Vec<LoopReport>,
    /// What ways back read of the loops whose residuals are stacked.
    pub(super) residuals: Vec<LoopResiduals>,
    pub(super) groups: Vec<StepRow>,
}

/// A budget, and the plan beside the fastest.
pub(super) struct Within {
    pub(super) bytes: u64,
    pub(super) fastest_ms: f64,
    pub(super) fastest_peak: u64,
    pub(super) slower_percent: f64,
}

/// A budget of the time to compile, and the plan beside the fastest.
pub(super) struct WithinCompile {
    pub(super) budget_ms: f64,
    pub(super) fastest_ms: f64,
    pub(super) slower_percent: f64,
}

/// A plan that takes less memory than the fastest.
pub(super) struct Leanest {
    pub(super) effort: &'static str,
    pub(super) peak_bytes: u64,
    pub(super) predicted_ms: f64,
}

/// What a program costs.
pub(super) struct ProgramFigures {
    pub(super) launches: u64,
    pub(super) bytes_moved: u64,
    pub(super) least_bytes: u64,
    pub(super) arena_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) saved_bytes: u64,
    pub(super) predicted_ms: f64,
    pub(super) compile_ms: f64,
    pub(super) code_bytes: u64,
}

/// A step.
pub(super) struct StepRow {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) domains: Vec<Extents>,
    pub(super) reads: Vec<String>,
    pub(super) writes: Vec<String>,
    /// What it computes, whether stored or not.
    pub(super) computes: Vec<String>,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) ops: u64,
    pub(super) launches: u64,
    pub(super) predicted_ms: f64,
    pub(super) bound: &'static str,
}

impl Within {
    fn of((choice, bytes): (&BudgetChoice, u64)) -> Within {
        Within {
            bytes,
            fastest_ms: milliseconds(choice.fastest_seconds),
            fastest_peak: choice.fastest_peak,
            slower_percent: slower(choice.point.seconds, choice.fastest_seconds),
        }
    }
}

impl WithinCompile {
    fn of((choice, most): (&BudgetChoice, Duration)) -> WithinCompile {
        WithinCompile {
            budget_ms: milliseconds(most.as_secs_f64()),
            fastest_ms: milliseconds(choice.fastest_seconds),
            slower_percent: slower(choice.point.seconds, choice.fastest_seconds),
        }
    }
}

impl PlanReport {
    /// Weighs a plan and its program.
    pub(super) fn of(
        ready: &PlanRequest,
        plan: &Plan,
        program: &Program,
        choice: Option<&BudgetChoice>,
    ) -> Result<PlanReport, Failure> {
        let f = &ready.function;
        let device = &ready.options.device;
        let engine = ready.counting();
        let found = engine.cost(program, device);
        let names = Names::of(f);
        let name = |i: &adfuse::ir::Inst| {
            f.inst_results(*i).first().map_or_else(String::new, |&v| format!("%{}", names.get(v)))
        };
        let value = |v: adfuse::ir::Value| format!("%{}", names.get(v));
        let copies = lossy_copies(f);
        let computed = computed_by_steps(plan, program);
        let groups =
            program.steps.iter().zip(&found.steps).zip(&computed).map(|((s, c), insts)| StepRow {
                name: s.name().into(),
                kind: s.kind(),
                domains: steps::domains(program, s),
                reads: steps::names(program, s.reads()),
                writes: steps::names(program, s.writes()),
                computes: insts.iter().map(name).collect(),
                read_bytes: c.reads,
                written_bytes: c.writes,
                ops: operations(&c.ops),
                launches: c.launches.into(),
                predicted_ms: milliseconds(c.seconds),
                bound: match c.bound {
                    Bottleneck::Memory => "memory",
                    Bottleneck::Compute => "compute",
                    Bottleneck::Launch => "launch",
                },
            });
        let groups = groups.collect();
        let last = |insts: &[adfuse::ir::Inst]| insts.last().map_or_else(String::new, name);
        let effort = ready.options.effort;
        let chosen = ProgramFigures::of(ready, (f, plan), program, &found, effort)?;
        let leanest = ready.leanest_below(chosen.peak_bytes)?;
        Ok(PlanReport {
            function: f.name.clone(),
            device: device.name.clone(),
            fp: ready.options.fp.name(),
            effort: ready.effort(),
            layout: Some(plan.layout).filter(|&layout| layout != Layout::default()),
            plan: plan.hash(f),
            graph: plan.graph.clone(),
            chosen,
            leanest: leanest.map(|(effort, point)| Leanest {
                effort: effort.name(),
                peak_bytes: point.peak,
                predicted_ms: milliseconds(point.seconds),
            }),
            off: ProgramFigures::of_effort_off(ready)?,
            budget: choice.zip(ready.budget).map(Within::of),
            compile_budget: choice.zip(ready.compile_budget).map(WithinCompile::of),
            segments: plan.rewrites.segments.clone(),
            again: recomputed::named(f, &recomputed_values(f, plan)),
            lossy: copies.iter().map(|c| (value(c.of), c.narrow.name())).collect(),
            donated: plan
                .donated
                .iter()
                .filter_map(|&k| f.params().get(k))
                .map(|&p| value(p))
                .collect(),
            recognised: ready.recognised.clone(),
            unstable: unstable(&ready.source, &ready.selection, ready.options.fp)?,
            patterns: patterns(f).iter().map(|p| (p.name, last(&p.insts))).collect(),
            loops: loop_reports(program),
            residuals: ready.stacked().map_err(|d| ready.source.wrong(d))?,
            groups,
        })
    }

    /// An object whose keys keep their order.
    pub(super) fn json(&self) -> Value {
        let mut all = Map::new();
        let mut put = |key: &str, value: Value| all.insert(key.into(), value);
        put("function", json!(self.function));
        put("device", json!(self.device));
        put("fp", json!(self.fp));
        put("effort", json!(self.effort));
        if let Some(layout) = self.layout {
            put("layout", json!(layout.name()));
        }
        put("plan", json!(self.plan));
        put("graph", json!(self.graph));
        for (key, value) in self.chosen.entries() {
            put(key, value);
        }
        put("off", Value::Object(self.off.entries().map(|(k, v)| (k.to_string(), v)).collect()));
        if let Some(l) = &self.leanest {
            let (effort, peak, ms) = (l.effort, l.peak_bytes, l.predicted_ms);
            let leanest = json!({"effort": effort, "peak_bytes": peak, "predicted_ms": ms});
            put("leanest", leanest);
        }
        if let Some(b) = &self.budget {
            let within = json!({
                "mem_budget": b.bytes,
                "fastest_ms": b.fastest_ms,
                "fastest_peak_bytes": b.fastest_peak,
                "slower_percent": b.slower_percent,
            });
            put("budget", within);
        }
        if let Some(b) = &self.compile_budget {
            let within = json!({
                "compile_budget_ms": b.budget_ms,
                "fastest_ms": b.fastest_ms,
                "slower_percent": b.slower_percent,
            });
            put("compile_budget", within);
        }
        if !self.segments.is_empty() {
            put("segments", recomputed::segments_json(&self.segments));
        }
        if self.budget.is_some() || !self.again.is_empty() {
            put("again", recomputed::json(&self.again));
        }
        if !self.loops.is_empty() {
            put("loops", self.loops.iter().map(loop_json).collect());
        }
        if !self.residuals.is_empty() {
            put("residuals", self.residuals.iter().map(residuals_json).collect());
        }
        if !self.lossy.is_empty() {
            let copies = self.lossy.iter().map(|(of, form)| json!({"value": of, "as": form}));
            put("lossy", copies.collect());
        }
        if !self.donated.is_empty() {
            put("donated", json!(self.donated));
        }
        put("recognised", named(&self.recognised, "rule"));
        if !self.unstable.is_empty() {
            let one = |u: &UnstableFormula| json!({"rule": u.rule, "at": u.at, "why": u.why, "instead": u.instead});
            put("unstable", self.unstable.iter().map(one).collect());
        }
        put("patterns", named(&self.patterns, "name"));
        put("groups", self.groups.iter().map(StepRow::json).collect());
        Value::Object(all)
    }
}

fn named(list: &[(&str, String)], key: &str) -> Value {
    list.iter().map(|(name, at)| json!({key: name, "at": at})).collect()
}

/// Operations of every kind; a multiply-add is one.
fn operations(ops: &adfuse::fusion::Ops) -> u64 {
    let kinds = [
        ops.simple,
        ops.special,
        ops.contract_f32,
        ops.contract_f16,
        ops.contract_f64,
        ops.integer,
    ];
    kinds.into_iter().fold(0, u64::saturating_add)
}

impl ProgramFigures {
    /// Of effort off without a budget: nothing is recovered and no loop is decided for a budget, so that it is the same
    /// whatever the chosen plan does.
    fn of_effort_off(ready: &PlanRequest) -> Result<ProgramFigures, Failure> {
        let options = PlanOptions { effort: Effort::Off, ..ready.options.clone() };
        let (device, engine) = (&options.device, ready.counting());
        let lossy = ready.kept.as_ref().map(|(lossy, _)| lossy.clone()).unwrap_or_default();
        let kept = narrow_storage(&ready.prepared, &lossy, &options, engine);
        let kept = kept.map_err(|d| fault(&ready.source, d))?;
        let wrong = |d| ready.wrong(d);
        let f = decide_loops(&kept.function, &options, engine).map_err(wrong)?.function;
        let plan = plan_for(&f, &options, engine).map_err(wrong)?.donating(&ready.donated);
        let program = lower(&f, &plan, device).map_err(wrong)?;
        let cost = engine.cost(&program, device);
        ProgramFigures::of(ready, (&f, &plan), &program, &cost, Effort::Off)
    }

    fn of(
        ready: &PlanRequest,
        (f, plan): (&Function, &Plan),
        program: &Program,
        cost: &Cost,
        effort: Effort,
    ) -> Result<ProgramFigures, Failure> {
        let memory = ready.memory(program, effort)?;
        let compile = compile_cost(program, &ready.options.device);
        let saved = saved_bytes(f, plan).map_err(|d| ready.source.wrong(d))?;
        Ok(ProgramFigures {
            launches: cost.launches.into(),
            bytes_moved: cost.bytes_moved,
            least_bytes: cost.least_bytes,
            arena_bytes: memory.arena,
            peak_bytes: memory.peak,
            saved_bytes: saved,
            predicted_ms: milliseconds(cost.seconds),
            compile_ms: milliseconds(compile.seconds),
            code_bytes: compile.code_bytes,
        })
    }

    fn entries(&self) -> impl Iterator<Item = (&'static str, Value)> {
        [
            ("launches", json!(self.launches)),
            ("bytes_moved", json!(self.bytes_moved)),
            ("least_bytes", json!(self.least_bytes)),
            ("arena_bytes", json!(self.arena_bytes)),
            ("peak_bytes", json!(self.peak_bytes)),
            ("saved_bytes", json!(self.saved_bytes)),
            ("predicted_ms", json!(self.predicted_ms)),
            ("compile_ms", json!(self.compile_ms)),
            ("code_bytes", json!(self.code_bytes)),
        ]
        .into_iter()
    }
}

impl StepRow {
    fn json(&self) -> Value {
        let domains: Vec<&[i64]> = self.domains.iter().map(|d| d.as_slice()).collect();
        json!({
            "name": self.name,
            "kind": self.kind,
            "domains": domains,
            "reads": self.reads,
            "writes": self.writes,
            "computes": self.computes,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "ops": self.ops,
            "launches": self.launches,
            "predicted_ms": self.predicted_ms,
            "bound": self.bound,
        })
    }
}

fn loop_json(l: &LoopReport) -> Value {
    let stacks = l.stacks.iter().map(|(name, bytes)| json!({"value": name, "bytes": bytes}));
    let back = l.back.as_ref().map(|back| {
        json!({"checkpoints": back.checkpoints, "bytes": back.bytes, "forward_steps": back.forward})
    });
    json!({
        "name": l.name,
        "trips": l.trips,
        "counted_by": l.counted_by,
        "carried_bytes": l.carried_bytes,
        "stacks": stacks.collect::<Value>(),
        "back": back,
    })
}

fn residuals_json(of: &LoopResiduals) -> Value {
    let each = of.residuals.iter().map(|r| {
        json!({
            "value": r.name,
            "computed_by": r.source,
            "type": r.ty.to_string(),
            "class": r.class.to_string(),
            "bytes": r.bytes(of.trips),
        })
    });
    json!({"trips": of.trips, "bytes": of.bytes(), "values": each.collect::<Value>()})
}
