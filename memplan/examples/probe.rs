#[path = "../tests/instances/mod.rs"]
mod instances;
use adfuse_memplan::*;
use instances::Recipe;
fn main() {
    let effort: u64 = std::env::var("EFFORT").ok().and_then(|s| s.parse().ok()).unwrap_or(500_000);
    let only = std::env::var("ONLY").ok();
    let kinds: Vec<(&str, fn(u64, usize) -> Recipe)> = vec![
        ("plain", Recipe::plain),
        ("coarse", |s, n| Recipe {
            width: n as u64 / 4 + 8,
            height: 1 << 16,
            grain: 64,
            ..Recipe::plain(s, n)
        }),
        ("coarsetime", |s, n| Recipe { width: n as u64, ..Recipe::plain(s, n) }),
        ("veryct", |s, n| Recipe { width: n as u64 / 8 + 8, ..Recipe::plain(s, n) }),
        ("pinwheel", |s, n| Recipe { pinwheels: 30, ..Recipe::plain(s, n) }),
        ("allpin", |s, n| Recipe { pinwheels: 100, ..Recipe::plain(s, n) }),
        ("pincoarse", |s, n| Recipe {
            width: n as u64,
            grain: 1024,
            pinwheels: 30,
            ..Recipe::plain(s, n)
        }),
        ("holes10", |s, n| Recipe { holes: 10, ..Recipe::plain(s, n) }),
        ("holes30", |s, n| Recipe { holes: 30, ..Recipe::plain(s, n) }),
        ("holes30pin", |s, n| Recipe { holes: 30, pinwheels: 30, ..Recipe::plain(s, n) }),
        ("aligned", |s, n| Recipe { grain: 256, aligned: true, ..Recipe::plain(s, n) }),
        ("alignedholes", |s, n| Recipe {
            grain: 256,
            holes: 20,
            aligned: true,
            ..Recipe::plain(s, n)
        }),
    ];
    for (name, make) in kinds {
        if only.as_deref().is_some_and(|o| !o.split(',').any(|o| o == name)) {
            continue;
        }
        let ns: Vec<usize> = std::env::var("NS")
            .map(|s| s.split(',').map(|x| x.parse().unwrap()).collect())
            .unwrap_or(vec![20, 50, 100, 200, 500, 1000]);
        for n in ns {
            let mut sum = 0.0;
            let (mut hit, mut worst, mut time, mut maxt, mut steps) = (0, 1.0f64, 0.0, 0.0f64, 0);
            let mut methods = std::collections::BTreeMap::new();
            let count = 10;
            for seed in 0..count {
                let recipe = make(seed * 77 + n as u64, n);
                let problem = recipe.problem();
                let t = std::time::Instant::now();
                let packing = plan(&problem, &Options { effort, ..Options::default() }).unwrap();
                let t = t.elapsed().as_secs_f64();
                time += t;
                maxt = maxt.max(t);
                check(&problem, &packing).unwrap();
                assert!(packing.lower_bound == recipe.height);
                sum += packing.peak as f64 / recipe.height as f64;
                hit += usize::from(packing.peak == recipe.height);
                worst = worst.max(packing.peak as f64 / recipe.height as f64);
                steps += packing.steps;
                *methods.entry(packing.method.to_string()).or_insert(0) += 1;
            }
            println!(
                "{name:12} n={n:5} hit {hit}/{count} worst {worst:.4} avg {:.4} mean {:.1} ms max {:.1} ms steps {} {methods:?}",
                sum / count as f64,
                time * 1e3 / count as f64,
                maxt * 1e3,
                steps / count
            );
        }
    }
}
