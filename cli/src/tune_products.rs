//! `tune` of products: times of each way in which a GPU can multiply them, for the file of a machine.

use super::clock::Clock;
use super::failure::Failure;
use super::machine::gpu;
use super::planning::PlanningArgs;
use super::streams::Streams;
use adfuse::backends::gpu::product_trials;
use adfuse::engine::Gpu;
use adfuse::engine::registry::NamedEngine;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions};
use adfuse::ir::Diagnostic;
use adfuse::ir::kernel::{ProductTimes, Program, Verified, WayTimes};
use adfuse::tune::{PlannedProgram, product_ladder, time_product};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Measures the products of a program's plan, and writes the machine that it was planned for with their times.
pub(super) fn execute(
    (planning, named): (PlanningArgs, NamedEngine),
    (name, least): (String, Duration),
    streams: &mut Streams<'_>,
) -> Result<ExitCode, Failure> {
    if named.row.name != Gpu::NAME {
        let m = format!("the engine `{}` multiplies each product in one way", named.row.name);
        return Err(
            Failure::usage(m).hint(Some("`--engine gpu` has several to choose from".into()))
        );
    }
    let ready = planning.ready_on(named, &mut Clock::new())?;
    if ready.options.fp == Fp::Strict {
        let m = "in strict mode all products are summed in the defined order, by the engine's own kernels";
        return Err(Failure::usage(m).hint(Some(
            "`--fp reproducible` and `--fp fast` have several ways to choose from".into(),
        )));
    }
    let program = ready.program(&ready.decide(streams)?.plan)?;
    let engine = gpu(named.number_of_rank())?;
    let engine = Gpu { plan: ready.options.clone(), ..engine };
    let base = &ready.options.device;
    let measured = measured(&engine, &program, (&base.products, least), streams)?;
    // A machine that is built in has another name with other numbers.
    let is_known = MachineModel::named(&base.name).is_some();
    let name = if is_known { name } else { base.name.clone() };
    let products = base.products.and(&measured);
    let text = MachineModel { name, products, ..base.clone() }.to_toml();
    MachineModel::from_toml(&text)
        .map_err(|d| Failure::usage(format!("the machine cannot be described: {d}")))?;
    let printed = match streams.json {
        false => text,
        true => format!("{:#}\n", json!({ "description": text, "products": listed(&measured) })),
    };
    streams.out.write_all(printed.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What part of the time of a program each way of a product of the list is measured for: there are some two hundred.
const LADDER_PART: u32 = 4;

/// Times of a list of plain products.
pub(super) fn of_ladder(
    engine: &Gpu,
    least: Duration,
    streams: &mut Streams<'_>,
) -> Result<ProductTimes, Failure> {
    let plan = PlanOptions { fp: Fp::Fast, effort: Effort::Default, ..engine.plan.clone() };
    let engine = Gpu { plan, ..engine.clone() };
    let session = engine.session();
    let mut all = ProductTimes::default();
    for one in product_ladder() {
        let wrong = |d: Diagnostic| Failure::usage(format!("cannot run `{}`: {d}", one.name));
        let planned = PlannedProgram::new(&one, &engine.plan, &session).map_err(wrong)?;
        all = all.and(&measured(&engine, &planned.program, (&all, least / LADDER_PART), streams)?);
    }
    Ok(all)
}

/// Times of those products of a program that are not known yet, with a line for each.
fn measured(
    engine: &Gpu,
    program: &Verified<Program>,
    (known, least): (&ProductTimes, Duration),
    streams: &mut Streams<'_>,
) -> Result<ProductTimes, Failure> {
    let wrong = |d: Diagnostic| Failure::usage(format!("products cannot be measured: {d}"));
    let compute = engine.device().facts().compute;
    let trials = product_trials(program, compute, engine.plan.fp).map_err(wrong)?;
    let mut found: BTreeMap<String, WayTimes> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| known.of(&trial.form).is_none()) {
        let times = time_product(engine, trial, least).map_err(wrong)?;
        let each = times.iter().map(|(way, seconds)| format!("{way} {:.4}", seconds * 1e3));
        writeln!(streams.err, "{} ms: {}", trial.form, each.collect::<Vec<_>>().join(", "))?;
        found.insert(trial.form.clone(), times);
    }
    Ok(ProductTimes::new(found))
}

/// Milliseconds of each way, by the forms of products.
fn listed(products: &ProductTimes) -> Value {
    let ways = |ways: &WayTimes| -> Value {
        let of = |(way, seconds): (_, &f64)| (format!("{way}"), json!(seconds * 1e3));
        ways.iter().map(of).collect::<Map<String, Value>>().into()
    };
    products
        .forms()
        .map(|(form, times)| (form.to_owned(), ways(times)))
        .collect::<Map<_, _>>()
        .into()
}
