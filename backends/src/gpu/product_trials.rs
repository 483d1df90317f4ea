//! The products of a program, each by itself with the ways in which a GPU can multiply it: what is measured for a table of
//! times.

use super::compile::target;
use super::schedule::capabilities::CAPABILITIES;
use super::schedule::library_split::{DivisionContext, split};
use super::schedule::measured_product::{alone, form_name, ways};
use super::target::GpuTarget;
use crate::runtime::legalize::legalize;
use adfuse_ir::kernel::{
    Member, ProductTimes, ProductWay, Program, Step, Verified, WayTimes, verify,
};
use adfuse_ir::{At, Diagnostic, Fp, Kind};
use std::collections::BTreeMap;

/// A product of a program, alone.
#[derive(Clone, Debug)]
pub struct ProductTrial {
    /// What it is called in a table of times.
    pub form: String,
    /// What it reads is given, what it writes is handed over.
    pub program: Verified<Program>,
    /// The ways in which it can be multiplied, at least two.
    pub ways: Vec<ProductWay>,
}

impl ProductTrial {
    /// A table by which the product is multiplied in this way, whatever it takes.
    pub fn only(&self, way: ProductWay) -> ProductTimes {
        let ways = WayTimes::from([(way, 1.0)]);
        ProductTimes::new(BTreeMap::from([(self.form.clone(), ways)]))
    }
}

/// The products of a program that can be multiplied in several ways on a device of this compute capability, equal ones
/// once. Those in loops and branches, whose operands move, are in one way alone.
///
/// # Errors
/// [`Kind::Unsupported`] for what has no lowering, and for devices older than every target.
pub fn product_trials(
    program: &Verified<Program>,
    compute: (u32, u32),
    fp: Fp,
) -> Result<Vec<ProductTrial>, Diagnostic> {
    let target = target(compute)?;
    let legal = legalize(program, &CAPABILITIES)?.program;
    let mut found: BTreeMap<String, ProductTrial> = BTreeMap::new();
    let contracts = legal.steps.iter().filter_map(|step| match step {
        Step::Contract(contract) if fp != Fp::Strict => Some(contract),
        _ => None,
    });
    for m in contracts.flat_map(|contract| &contract.members) {
        let Some(form) = form_name(&legal, m, fp).filter(|form| !found.contains_key(form)) else {
            continue;
        };
        if let Some(trial) = trial(&legal, m, form, (fp, &target))? {
            found.insert(trial.form.clone(), trial);
        }
    }
    Ok(found.into_values().collect())
}

fn trial(
    program: &Program,
    m: &Member,
    form: String,
    (fp, target): (Fp, &GpuTarget),
) -> Result<Option<ProductTrial>, Diagnostic> {
    let Some(alone) = alone(program, m) else { return Ok(None) };
    let program = verify(alone).map_err(|errors| {
        let why = errors.first().map_or(String::new(), ToString::to_string);
        let m = format!("a product does not stand alone: {why}");
        Diagnostic::new(At::default(), Kind::Internal, m)
    })?;
    let mut trial = ProductTrial { form, program, ways: Vec::new() };
    let products = trial.only(ProductWay::Library);
    let context = DivisionContext { fp, target, library: true, products: &products };
    let by_library =
        split(&trial.program, context)?.multiplied(fp, true).iter().any(Option::is_some);
    if let Some(Step::Contract(contract)) = trial.program.steps.first()
        && let Some(m) = contract.members.first()
    {
        trial.ways = ways(&trial.program, m, (fp, target), by_library);
    }
    Ok((trial.ways.len() > 1).then_some(trial))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::facts::{FactsCache, FactsOptions};
    use crate::gpu::schedule::library_split::divided;
    use crate::gpu::schedule::{ScheduleContext, schedule_but};
    use adfuse_ir::kernel::text::parse;

    /// A product whose sums end in a relu, which a library does not do, and a second one of other extents.
    const PROGRAM: &str = "program @f {
      input %x: bf16[1024, 256] input %w: bf16[512, 256] temp %h: bf16[1024, 512]
      input %v: bf16[256, 512] output %y: bf16[1024, 256]
      contract @up { member batch [] rows [1024] cols [512] depth [256] sum f32 {
        lhs { p0 = load %x[d0, d1] s0 = param.bf16 0 out s0 }
        rhs { p0 = load %w[d0, d1] s0 = param.bf16 0 out s0 }
        then { p0 = sum s0 = param.f32 0 s1 = const.f32 0.0 s2 = max.f32 s0 s1
          s3 = convert.bf16 s2 %h[d0, d1] = store s3 } } }
      contract @down { member batch [] rows [1024] cols [256] depth [512] sum f32 {
        lhs { p0 = load %h[d0, d1] s0 = param.bf16 0 out s0 }
        rhs { p0 = load %v[d0, d1] s0 = param.bf16 0 out s0 }
        then { p0 = sum s0 = param.f32 0 s1 = convert.bf16 s0 %y[d0, d1] = store s1 } } }
      return %y }";

    /// A gradient of weights: few results over a long depth.
    const DEEP: &str = "program @g {
      input %x: bf16[8192, 256] input %w: bf16[8192, 256] output %y: f32[256, 256]
      contract @g { member batch [] rows [256] cols [256] depth [8192] sum f32 {
        lhs { p0 = load %x[d1, d0] s0 = param.bf16 0 out s0 }
        rhs { p0 = load %w[d1, d0] s0 = param.bf16 0 out s0 }
        then { p0 = sum s0 = param.f32 0 s1 = const.f32 0.0 s2 = max.f32 s0 s1
          %y[d0, d1] = store s2 } } }
      return %y }";

    fn read(text: &str) -> Verified<Program> {
        verify(parse(text).expect("reads")).expect("is verified")
    }

    fn program() -> Verified<Program> {
        read(PROGRAM)
    }

    fn trials() -> Vec<ProductTrial> {
        product_trials(&program(), (9, 0), Fp::Fast).expect("are found")
    }

    fn scheduled(products: &ProductTimes, library: bool) -> (Vec<bool>, String) {
        scheduled_of(&program(), products, library)
    }

    /// The text of a program's schedule by a table of times.
    fn scheduled_of(
        program: &Verified<Program>,
        products: &ProductTimes,
        library: bool,
    ) -> (Vec<bool>, String) {
        let (fp, target) = (Fp::Fast, GpuTarget::SM90A);
        let context = DivisionContext { fp, target: &target, library, products };
        let made = divided(program, context).expect("is divided");
        let done: Vec<bool> = made.products.iter().map(Option::is_some).collect();
        let context =
            ScheduleContext { products: Some(products), ..ScheduleContext::new(target, fp) };
        let schedule = schedule_but(&made.program, context, &done).expect("is scheduled");
        (done, schedule.to_string())
    }

    #[test]
    fn products_are_found_with_their_ways() {
        let trials = trials();
        assert_eq!(trials.len(), 2);
        for trial in &trials {
            assert!(trial.form.starts_with("fast bf16 1x1024x"), "{}", trial.form);
            assert!(trial.ways.contains(&ProductWay::Library), "{:?}", trial.ways);
            assert_eq!(trial.ways.len(), 10, "{:?}", trial.ways);
            // Alone it has the name that it has in the program.
            let again = product_trials(&trial.program, (9, 0), Fp::Fast).expect("are found");
            assert_eq!(again.len(), 1);
            assert_eq!(again[0].form, trial.form);
        }
        assert!(product_trials(&program(), (9, 0), Fp::Strict).expect("are found").is_empty());
        // A chip without warpgroups has one way.
        assert!(product_trials(&program(), (8, 0), Fp::Fast).expect("are found").is_empty());
    }

    #[test]
    fn every_way_that_is_asked_for_is_taken() {
        let deep = read(DEEP);
        let of_deep = product_trials(&deep, (9, 0), Fp::Fast).expect("are found");
        let splits = |way: &&ProductWay| way.to_string().ends_with("split");
        assert_eq!(of_deep[0].ways.iter().filter(splits).count(), 4, "{:?}", of_deep[0].ways);
        let all = trials().into_iter().map(|trial| (program(), trial));
        let all = all.chain(of_deep.into_iter().map(|trial| (deep.clone(), trial)));
        for (n, (program, trial)) in all.enumerate() {
            for &way in &trial.ways {
                let (done, text) = scheduled_of(&program, &trial.only(way), true);
                let is_library = way == ProductWay::Library;
                let ProductWay::Warpgroups(own) = way else {
                    assert!(done.iter().any(|&done| done), "{}: {text}", trial.form);
                    continue;
                };
                let [rows, cols] = own.side;
                let order = if own.pingpong { "pingpong" } else { "cooperative" };
                let due = format!("sums={rows}x{cols} order={order} cluster={} ", own.cluster);
                let (_, rest) =
                    text.split_once(&due).unwrap_or_else(|| panic!("{n} {way}: {text}"));
                let runs = rest.lines().find(|line| line.contains("split runs="));
                let whole = runs.is_some_and(|line| line.ends_with("runs=1"));
                assert!(!is_library && whole != own.split, "{n} {way}: {text}");
            }
        }
    }

    #[test]
    fn the_fastest_time_decides_and_prices_what_is_not_there() {
        let trials = trials();
        let trial = trials.iter().find(|t| t.form.contains("x512x256 ")).expect("is there");
        let table = |library: f64, own: f64| {
            let tile = trial.ways[1];
            let ways = WayTimes::from([(ProductWay::Library, library), (tile, own)]);
            ProductTimes::new(BTreeMap::from([(trial.form.clone(), ways)]))
        };
        // What was not measured is done as without a table.
        let none = scheduled(&ProductTimes::default(), true);
        let library = scheduled(&table(1e-5, 2e-5), true);
        let own = scheduled(&table(2e-5, 1e-5), true);
        assert!(own.1.contains("sums=128x256 order=cooperative cluster=2"), "{}", own.1);
        assert_eq!(
            (library.0.len(), own.0.len()),
            (3, 2),
            "a kernel follows the library's product"
        );
        let strange = BTreeMap::from([("x".to_owned(), WayTimes::from([(trial.ways[1], 1.0)]))]);
        assert_eq!(scheduled(&ProductTimes::new(strange), true), none);
        // Without a library the table says which tiles are the best.
        let alone = scheduled(&table(1e-5, 2e-5), false);
        let ProductWay::Warpgroups(tile) = trial.ways[1] else { panic!("{:?}", trial.ways) };
        assert!(
            alone.1.contains(&format!("sums={}x{} ", tile.side[0], tile.side[1])),
            "{}",
            alone.1
        );
    }

    #[test]
    fn what_was_measured_is_what_the_planner_is_told() {
        let trials = trials();
        let cache = FactsCache::default();
        let adds = |products: &ProductTimes| {
            let (fp, target) = (Fp::Fast, GpuTarget::SM90A);
            let options = FactsOptions { target, fp, library: true, products: products.clone() };
            let facts = cache.of(&program(), &options).expect("is examined");
            facts
                .iter()
                .map(|f| f.launches.expect("launches").timed_multiply_adds)
                .collect::<Vec<_>>()
        };
        assert_eq!(adds(&ProductTimes::default()), [0, 0]);
        let slow = |seconds: f64| {
            let forms = trials.iter().map(|trial| {
                (trial.form.clone(), WayTimes::from([(ProductWay::Library, seconds)]))
            });
            ProductTimes::new(forms.collect())
        };
        let (one, two) = (adds(&slow(1e-4)), adds(&slow(2e-4)));
        assert!(
            one.iter().zip(&two).all(|(one, two)| *one > 0 && *two == 2 * one),
            "{one:?} {two:?}"
        );
    }
}
