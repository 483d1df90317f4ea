//! Gaps and times of packings: `packs [BUFFERS,..] [FAMILY,..]`. For each family and number of buffers the table has the peak above the least one, or
//! above its lower bound where the least is not known, greedy (effort 0) and at the default effort.

#[path = "../memplan/tests/instances/families.rs"]
mod families;
#[path = "../memplan/tests/instances/mod.rs"]
mod instances;

use adfuse_memplan::{PackOptions, check, plan};
use families::Family;
use std::time::Instant;

#[allow(clippy::print_stdout)]
fn main() {
    // Cargo gives `--bench` to every bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let counts = args.first().map_or("1000,5000,20000,100000", String::as_str).split(',');
    let counts: Vec<usize> = counts.filter_map(|n| n.parse().ok()).collect();
    println!("| family | buffers | greedy above, % | s | default effort above, % | s | by |");
    println!("|---|---|---|---|---|---|---|");
    for family in Family::ALL {
        let name = format!("{family:?}").to_lowercase();
        if args.get(1).is_some_and(|wanted| !wanted.split(',').any(|w| w == name)) {
            continue;
        }
        for &count in &counts {
            let (problem, least) = family.problem(1, count);
            let mut cells = vec![name.clone(), problem.buffers.len().to_string()];
            let mut by = String::new();
            for effort in [0, PackOptions::DEFAULT_EFFORT] {
                let begin = Instant::now();
                let packing =
                    plan(&problem, &PackOptions { effort, ..PackOptions::default() }).unwrap();
                let seconds = begin.elapsed().as_secs_f64();
                check(&problem, &packing).unwrap();
                let least = least.unwrap_or(packing.lower_bound);
                let above = 100.0 * (packing.peak as f64 / least.max(1) as f64 - 1.0);
                cells.extend([format!("{above:.2}"), format!("{seconds:.3}")]);
                by = packing.method.to_string();
            }
            cells.push(by);
            println!("| {} |", cells.join(" | "));
        }
    }
}
