//! Time to plan, to place in one order and to check, for 100 and for 1,000 buffers.

#[path = "../memplan/tests/instances/mod.rs"]
mod instances;

use adfuse_memplan::{PackOptions, PlacementOrder, check, plan, plan_in_order};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use instances::Recipe;

fn pack(c: &mut Criterion) {
    let mut group = c.benchmark_group("pack");
    group.sample_size(10);
    for count in [100, 1000] {
        let plain = Recipe::plain(1, count);
        let kinds = [
            ("straight", plain),
            ("pinwheels", Recipe { pinwheels: 30, ..plain }),
            ("holes", Recipe { holes: 30, ..plain }),
            ("aligned", Recipe { grain: 256, aligned: true, ..plain }),
        ];
        for (kind, recipe) in kinds {
            let problem = recipe.problem();
            let options = PackOptions::default();
            group.bench_with_input(BenchmarkId::new(kind, count), &problem, |b, problem| {
                b.iter(|| plan(problem, &options))
            });
        }
        let problem = plain.problem();
        group.bench_with_input(BenchmarkId::new("one order", count), &problem, |b, problem| {
            b.iter(|| plan_in_order(problem, PlacementOrder::Size))
        });
        let packing = plan(&problem, &PackOptions { effort: 0, ..PackOptions::default() }).unwrap();
        group.bench_with_input(BenchmarkId::new("check", count), &problem, |b, problem| {
            b.iter(|| check(problem, &packing))
        });
    }
    group.finish();
}

criterion_group!(benches, pack);
criterion_main!(benches);
