//! Budgets of the engine `cpu`: no executable holds more than its budget, whatever it is, and all give
//! the same bits. `ADFUSE_PROGRAMS` sets how many random programs (40 by default).

use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{models, parallel, thorough};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::reference::{Silent, run};
use adfuse::budget::choose;
use adfuse::engine::Cpu;
use adfuse::fusion::{self, Effort, Fp, MachineModel, prepare};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Module};
use adfuse::plan_cache::PlanCache;
use std::path::{Path, PathBuf};

fn cpu(effort: Effort) -> Cpu {
    let plan = fusion::PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
    Cpu { plan, threads: 2, ..Cpu::default() }
}

fn gradient(module: &Module, f: &Function) -> Result<Function, String> {
    let wrt = differentiable(f, None).map_err(|d| d.to_string())?;
    forward_and_backward(module, f, &wrt).map_err(|d| d.to_string())
}

/// Instructions from which on the whole path, which makes the frontier again, is not asked.
const LONG: usize = 80;

/// Twenty budgets from below the least peak to above the highest keep their promise; how many different
/// peaks there were.
fn kept(g: &Function, effort: Effort, seed: u64) -> Result<usize, String> {
    let module = Module::single(g.clone());
    let f = prepare(&module, g).map_err(|d| d.to_string())?;
    let args = inputs(&f, &[Domain::Normal]);
    let expected = run(&Module::single(f.clone()), &f, &args, &mut Silent);
    let expected = expected.map_err(|d| d.to_string())?;
    let free = cpu(effort);
    let frontier = models::frontier(&f, &free.plan, Some(&free)).map_err(|d| d.to_string())?;
    let points = frontier.points();
    let (least, most) = (points[0].peak, points[points.len() - 1].peak);
    let (low, span) = (least - least / 4, (most - least) + least / 2 + 2);
    let mut random = seed | 1;
    let (mut peaks, mut refused) = (Vec::new(), f.inst_count() > LONG && !thorough());
    for _ in 0..20 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let budget = low + (random >> 33) % span;
        let decided = match frontier.at(budget) {
            Ok(point) => point,
            // The whole path is asked once.
            Err(_) if std::mem::replace(&mut refused, true) => continue,
            Err(d) => {
                let engine = Cpu { mem_budget: Some(budget), ..free.clone() };
                let found = engine.decide(&f).expect_err("less than the least");
                if (found.kind, budget < least) != (Kind::Limit, true) || found != d {
                    return Err(format!("{found} at {budget} of {least}"));
                }
                continue;
            }
        };
        // One plan is made into code once.
        if !peaks.iter().any(|&(peak, _)| peak == decided.peak) {
            let engine = Cpu { mem_budget: Some(budget), ..free.clone() };
            let made = engine.follow(&f, &decided.plan).map_err(|d| d.to_string())?;
            if made.executable.run(&args).map_err(|d| d.to_string())? != expected {
                return Err(format!("other bits at {budget}\n{}\n{f}", decided.plan.text(&f)));
            }
            peaks.push((decided.peak, made.executable.memory().peak()));
        }
        let held = peaks.iter().filter(|(peak, _)| *peak == decided.peak).map(|(_, held)| *held);
        if let Some(held) = held.max().filter(|&held| held > budget || held > decided.peak) {
            return Err(format!(
                "{held} bytes, {} said, the budget is {budget}\n{f}",
                decided.peak
            ));
        }
    }
    // What the whole path makes is that, too.
    if f.inst_count() <= LONG || thorough() {
        let engine = Cpu { mem_budget: Some(least), ..free.clone() };
        let made = engine.compile(&module, g).map_err(|d| d.to_string())?;
        if made.executable.memory().peak() > least {
            return Err(format!("{} bytes of {least}", made.executable.memory().peak()));
        }
    }
    // A plan that takes more than the budget is not followed.
    let tight = Cpu { mem_budget: Some(least - 1), ..free };
    let refused = tight.follow(&f, &points[0].plan);
    if !matches!(&refused, Err(d) if d.kind == Kind::Limit) {
        return Err(format!("{least} bytes within one less"));
    }
    Ok(peaks.len())
}

#[test]
fn no_random_program_holds_more_than_its_budget() {
    for dtype in [DType::F32, DType::BF16] {
        random::programs(31, 40, |steps| {
            let f = decode(steps, dtype);
            let g = gradient(&Module::single(f.clone()), &f)?;
            for (k, effort) in [Effort::Off, Effort::Default].into_iter().enumerate() {
                kept(&g, effort, (steps.len() + k) as u64)?;
            }
            Ok(())
        });
    }
}

/// The gradient of a model.
fn model(path: &Path) -> Function {
    let text = std::fs::read_to_string(path).expect("a model");
    let module = parse(&text).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
    let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name");
    let f = module.find(stem).or_else(|| module.find("main")).expect("the model's function");
    gradient(&module, f).expect("differentiates")
}

#[test]
fn no_model_holds_more_than_its_budget() {
    let paths: Vec<(usize, PathBuf)> = models::paths().into_iter().enumerate().collect();
    let peaks = parallel::each(&paths, |(k, path)| {
        let peaks = kept(&model(path), Effort::Default, 7 * *k as u64);
        peaks.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    });
    let several = peaks.iter().filter(|&&n| n > 1).count();
    assert!(several > 5, "{several} models differ by their budget");
}

#[test]
fn a_kept_plan_is_the_one_that_is_made() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kept-{}", std::process::id()));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/deep_mlp.ir");
    let g = model(&path);
    let f = prepare(&Module::single(g.clone()), &g).expect("prepared");
    let engine = cpu(Effort::Default);
    let cache = PlanCache::new(&folder);
    let of = |budget: u64, cache: Option<&PlanCache>| {
        choose(&f, &engine.plan, budget, (&engine, Cpu::NAME), cache).expect("fits")
    };
    for budget in [100_000, 150_000, u64::MAX] {
        let made = of(budget, None);
        for found in [of(budget, Some(&cache)), of(budget, Some(&cache))] {
            assert_eq!(found.point.plan, made.point.plan);
            assert_eq!((found.point.peak, found.point.saved), (made.point.peak, made.point.saved));
            assert_eq!(found.fastest_seconds.to_bits(), made.fastest_seconds.to_bits());
            assert_eq!((found.fastest_peak, found.notes.len()), (made.fastest_peak, 0));
        }
    }
    assert_eq!(cache.list().expect("a folder").len(), 3);
    // Effort off has one plan, which is not worth keeping.
    let off = cpu(Effort::Off);
    choose(&f, &off.plan, u64::MAX, (&off, Cpu::NAME), Some(&cache)).expect("fits");
    assert_eq!(cache.clear().expect("a folder"), 3);
    std::fs::remove_dir_all(&folder).expect("a folder");
}
