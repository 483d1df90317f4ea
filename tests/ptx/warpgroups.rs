//! Products by warpgroups as text: which products have them, that every tile reads back and is assembled without spills, and
//! that what does not fit is refused.

use crate::assembler::Assembly;
use crate::common::products::{
    Feed, GRADIENTS, HeadForm, Product, STACKED, WHOLE_GRADIENTS, head_products, shared_operand,
    stacked_heads, stacked_terms, weight_gradients,
};
use crate::products::{program, read_program};
use crate::trials::Skipped;
use adfuse::backends::ptx::{self, GpuSchedule, GpuTarget};
use adfuse::fusion::Fp;
use adfuse::ir::{DType, Kind};

/// A product of plain operands that is large enough.
const LARGE: Product = Product {
    dtype: DType::BF16,
    size: [1, 512, 512, 256],
    turned: [false, true],
    feed: Feed::Plain,
    then: false,
};

/// Layouts in which neighbours of both operands are along the depth.
const ALONG: [bool; 2] = [false, false];

/// The decisions of the tile as they are made for [`LARGE`], and those of other tiles.
const MADE: &str =
    "tile sums=128x128 order=pingpong cluster=1 band=8\n    pipeline stages=7\n    split runs=1";
const TILES: [&str; 8] = [
    "tile sums=128x256 order=cooperative cluster=2 band=8\n    pipeline stages=4\n    split runs=1",
    "tile sums=256x128 order=cooperative cluster=1 band=1\n    pipeline stages=4\n    split runs=1",
    "tile sums=128x192 order=cooperative cluster=1 band=8\n    pipeline stages=5\n    split runs=1",
    "tile sums=128x128 order=cooperative cluster=2 band=3\n    pipeline stages=2\n    split runs=1",
    "tile sums=128x256 order=cooperative cluster=1 band=8\n    pipeline stages=4\n    split runs=13
  step 0 work 1 elementwise\n    grid threads=256 resident=2\n    vector width=4",
    "tile sums=128x128 order=pingpong cluster=2 band=8\n    pipeline stages=6\n    split runs=1",
    "tile sums=256x128 order=cooperative cluster=1 band=2\n    pipeline stages=4\n    split runs=30
  step 0 work 1 elementwise\n    grid threads=256 resident=2\n    vector width=4",
    MADE,
];

fn scheduled(product: &Product, target: GpuTarget, fp: Fp) -> String {
    ptx::schedule(&program(product), target, fp).unwrap_or_else(|d| panic!("{d}")).to_string()
}

pub(crate) fn large_products_of_16_bit_floats_have_them() {
    let of = |product: &Product, target, fp| {
        let text = scheduled(product, target, fp);
        text.contains("work 0 warpgroup")
    };
    for dtype in [DType::BF16, DType::F16] {
        for turned in [[false, true], [false, false], [true, true], [true, false]] {
            for fp in [Fp::Reproducible, Fp::Fast] {
                let product = Product { dtype, turned, ..LARGE };
                assert!(of(&product, GpuTarget::SM90A, fp), "{product:?} {fp:?}");
            }
        }
    }
    // Elements of 32 bits are multiplied as they lie: along the depth, and in `fast` alone, which rounds them.
    for turned in [[false, true], [false, false], [true, true], [true, false]] {
        let product = Product { dtype: DType::F32, turned, ..LARGE };
        for fp in [Fp::Strict, Fp::Reproducible, Fp::Fast] {
            let due = turned == ALONG && fp == Fp::Fast;
            assert_eq!(of(&product, GpuTarget::SM90A, fp), due, "{product:?} {fp:?}");
        }
    }
    // The order of the sums is no chain; older chips have no warpgroups.
    assert!(!of(&LARGE, GpuTarget::SM90A, Fp::Strict));
    assert!(!of(&LARGE, GpuTarget::SM90, Fp::Fast) && !of(&LARGE, GpuTarget::SM80, Fp::Fast));
    for product in [
        Product { feed: Feed::Computed, ..LARGE },
        Product { feed: Feed::Backward, ..LARGE },
        Product { size: [1, 512, 512, 40], ..LARGE },
        Product { size: [1, 512, 510, 256], ..LARGE },
    ] {
        assert!(!of(&product, GpuTarget::SM90A, Fp::Fast), "{product:?}");
    }
}

/// Tiles that lie within a head are copied from where attention has its operands; others are multiplied otherwise.
pub(crate) fn operands_with_heads_are_read_in_place() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    for product in head_products() {
        let program = read_program(&product.text());
        let schedule = ptx::schedule(&program, GpuTarget::SM90A, Fp::Fast);
        let schedule = schedule.unwrap_or_else(|d| panic!("{d}"));
        let [_, _, time, elements, _] = product.size;
        let lines = match product.form {
            HeadForm::Depth => time % 256 == 0,
            HeadForm::Rows | HeadForm::Columns => time % 64 == 0,
        };
        let due = lines && elements % 64 == 0;
        assert_eq!(schedule.to_string().contains("work 0 warpgroup"), due, "{product:?}");
        if due {
            let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}"));
            let maps = module.steps.iter().flat_map(|s| &s.launches).flat_map(|l| &l.maps);
            let axes: Vec<usize> = maps.map(|map| map.extents.len()).collect();
            assert_eq!(axes.iter().max(), Some(&4), "{product:?}");
            all.add(&format!("{product:?}"), &module, &product.text());
        }
    }
    for r in all.assembled()? {
        assert_eq!(r.spilled, 0, "{}", r.entry);
    }
    Ok(())
}

pub(crate) fn every_tile_is_assembled_without_spills() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    let layouts = [[false, true], [false, false], [true, true], [true, false]];
    let cases = TILES.into_iter().enumerate().flat_map(|(n, tile)| {
        let turned = layouts[n % layouts.len()];
        let product = Product { turned, then: n % 2 == 1, ..LARGE };
        [(tile, product), (tile, Product { dtype: DType::F32, turned: ALONG, ..product })]
    });
    for (tile, product) in cases {
        let text = scheduled(&product, GpuTarget::SM90A, Fp::Fast);
        let (head, rest) = text.split_once("    tile ").expect("a tile");
        let (_, rest) = rest.split_once("split ").expect("a split");
        let rest = rest.split_once('\n').expect("a line").1;
        let edited = format!("{head}    {tile}\n{rest}");
        let schedule = GpuSchedule::parse(&edited, &program(&product));
        let schedule = schedule.unwrap_or_else(|d| panic!("{d}\n{edited}"));
        assert_eq!(schedule.to_string(), edited);
        let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}"));
        let has = |what: &str| module.text.contains(what);
        assert!(has("wgmma.mma_async.sync.aligned.m64") && has("cp.async.bulk.tensor"), "{tile}");
        assert_eq!(has("k8.f32.tf32.tf32"), product.dtype == DType::F32, "{tile}");
        assert_eq!(has(".multicast::cluster"), tile.contains("cluster=2"), "{tile}");
        all.add(&format!("{tile} {:?}", product.dtype), &module, &product.text());
    }
    for r in all.assembled()? {
        assert_eq!(r.spilled, 0, "{}", r.entry);
    }
    Ok(())
}

/// Members of a contraction that are alike share a grid, and one tile says for all; others are multiplied one after the other.
pub(crate) fn products_that_are_alike_share_a_grid() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    // Each product has a tensor map for its columns; the rows' operand is that of all.
    for (columns, due) in [
        (&[256, 256, 256][..], &[4][..]),
        (&[256, 128, 128], &[2, 3]),
        (&[128, 128, 256], &[3, 2]),
        (&[192, 192, 192, 192, 192], &[5, 2]),
    ] {
        let text = shared_operand(columns);
        let program = read_program(&text);
        let schedule = ptx::schedule(&program, GpuTarget::SM90A, Fp::Fast);
        let schedule = schedule.unwrap_or_else(|d| panic!("{d}"));
        let again = GpuSchedule::parse(&schedule.to_string(), &program);
        assert_eq!(again.map(|s| s.to_string()), Ok(schedule.to_string()));
        let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}"));
        let launches = module.steps.iter().flat_map(|s| &s.launches);
        let maps: Vec<usize> = launches.map(|launch| launch.maps.len()).collect();
        assert_eq!(maps, due, "{columns:?}\n{schedule}");
        all.add(&format!("{columns:?}"), &module, &text);
    }
    for r in all.assembled()? {
        // Each product finishes its sums in a text of its own, and rows end within a tile.
        assert!(r.spilled <= 32, "{}: {} bytes", r.entry, r.spilled);
    }
    Ok(())
}

/// The terms of a sum of products are multiplied one after the other by one launch, with tensor maps of their own.
pub(crate) fn terms_are_read_where_they_are() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    let stacked = STACKED.map(|(terms, size)| (terms, stacked_terms(terms, size)));
    // What heads have is read where it is too.
    let heads = [(2, [2, 4, 256, 256]), (3, [1, 2, 320, 64])];
    let heads = heads.map(|(terms, size)| (terms, stacked_heads(terms, size)));
    for (terms, text) in stacked.into_iter().chain(heads) {
        let program = read_program(&text);
        let schedule = ptx::schedule(&program, GpuTarget::SM90A, Fp::Fast);
        let schedule = schedule.unwrap_or_else(|d| panic!("{d}"));
        let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}"));
        let launches = module.steps.iter().flat_map(|s| &s.launches);
        let maps: Vec<usize> = launches.map(|launch| launch.maps.len()).collect();
        // Where the depth is cut into runs a launch follows that adds up their parts.
        let maps: Vec<usize> = maps.into_iter().filter(|&n| n > 0).collect();
        assert_eq!(maps, [2 * terms], "{text}\n{schedule}");
        all.add(&text, &module, &text);
        // In strict mode the order of the depth is that of the terms, by the evaluator's bits elsewhere.
        let strict = ptx::schedule(&program, GpuTarget::SM90A, Fp::Strict);
        assert!(strict.is_ok_and(|s| !s.to_string().contains("warpgroup")));
    }
    for r in all.assembled()? {
        assert_eq!(r.spilled, 0, "{}", r.entry);
    }
    Ok(())
}

/// Gradients of weights have few tiles over a long depth, which blocks share in equal runs. Those that are alike share a grid,
/// though each adds up its squares, and so do the loops that add up their parts, as far as a thread has registers.
pub(crate) fn long_depths_are_cut_into_runs() -> Result<(), Skipped> {
    let (mut all, mut whole) = (Assembly::default(), Assembly::default());
    for (products, size) in WHOLE_GRADIENTS {
        let text = weight_gradients(products, size);
        let schedule = ptx::schedule(&read_program(&text), GpuTarget::SM90A, Fp::Fast);
        let schedule = schedule.unwrap_or_else(|d| panic!("{d}"));
        let printed = schedule.to_string();
        assert_eq!(printed.matches("warpgroup").count(), 1, "{printed}");
        assert!(printed.contains("split runs=1\n"), "{printed}");
        let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}"));
        whole.add(&text, &module, &text);
    }
    // Loops that read parts: one for sums of columns, and those that store results, which share one where parts are few.
    let loops = [2, 4, 3, 2, 2];
    for ((products, size), due) in GRADIENTS.into_iter().zip(loops) {
        let text = weight_gradients(products, size);
        let program = read_program(&text);
        let schedule = ptx::schedule(&program, GpuTarget::SM90A, Fp::Fast);
        let schedule = schedule.unwrap_or_else(|d| panic!("{d}"));
        let printed = schedule.to_string();
        assert_eq!(printed.matches("warpgroup").count(), 1, "{printed}");
        assert!(printed.contains("split runs=") && !printed.contains("runs=1\n"), "{printed}");
        let again = GpuSchedule::parse(&printed, &program);
        assert_eq!(again.map(|s| s.to_string()), Ok(printed.clone()));
        let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}"));
        let launches: Vec<_> = module.steps.iter().flat_map(|s| &s.launches).collect();
        let [first, rest @ ..] = launches.as_slice() else { panic!("{printed}") };
        assert_eq!(first.maps.len(), 1 + products, "{printed}");
        assert!((90..=132).contains(&first.grid[0]), "{printed}");
        assert!(rest.iter().all(|launch| launch.maps.is_empty()), "{printed}");
        let reads = |launch: &&&ptx::Launch| launch.args.first() == rest[0].args.first();
        assert_eq!(rest.iter().filter(reads).count(), due, "{printed}");
        all.add(&text, &module, &text);
    }
    for r in whole.assembled()? {
        // Each product finishes its sums in a text of its own, and rows end within a tile.
        assert!(r.spilled <= 32, "{}: {} bytes", r.entry, r.spilled);
    }
    for r in all.assembled()? {
        assert_eq!(r.spilled, 0, "{}", r.entry);
    }
    Ok(())
}

/// Tiles of [`LARGE`] whose steps are cut into runs.
const COOPERATIVE: &str =
    "tile sums=128x128 order=cooperative cluster=1 band=8\n    pipeline stages=7\n    split runs=8
  step 0 work 1 elementwise\n    grid threads=256 resident=2\n    vector width=4";

pub(crate) fn tiles_that_do_not_fit_are_refused() {
    let (program, text) = (program(&LARGE), scheduled(&LARGE, GpuTarget::SM90A, Fp::Fast));
    assert!(text.contains(MADE), "{text}");
    assert!(GpuSchedule::parse(&text.replace(MADE, COOPERATIVE), &program).is_ok());
    for (from, to, kind) in [
        ("sums=128x128", "sums=64x64", Kind::Usage),
        ("sums=128x128", "sums=128", Kind::Syntax),
        ("order=pingpong", "order=sideways", Kind::Syntax),
        ("cluster=1", "cluster=3", Kind::Usage),
        ("runs=1", "runs=0", Kind::Usage),
        ("runs=1", "runs=many", Kind::Syntax),
        // Warpgroups that take turns, more runs than steps, and bands that divide the tiles.
        ("runs=1", "runs=8", Kind::Usage),
        (MADE, &COOPERATIVE.replace("runs=8", "runs=1000"), Kind::Usage),
        (MADE, &COOPERATIVE.replace("band=8", "band=3"), Kind::Usage),
        (MADE, &COOPERATIVE.replace("cluster=1", "cluster=2"), Kind::Usage),
        ("band=8", "band=0", Kind::Usage),
        ("stages=7", "stages=1", Kind::Usage),
        ("stages=7", "stages=9", Kind::Usage),
        ("target sm_90a", "target sm_90", Kind::Usage),
    ] {
        let edited = text.replace(from, to);
        let refused = GpuSchedule::parse(&edited, &program).expect_err(to);
        assert_eq!(refused.kind, kind, "{to}: {refused}");
        assert!(refused.at.span.is_some(), "{to}: {refused}");
    }
}
