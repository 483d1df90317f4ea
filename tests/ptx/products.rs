//! Products of every form as text: what multiplies in which mode, how operands come, and that no form of
//! them spills.

use crate::assembler::Assembly;
use crate::common::products::{Feed, Product, table};
use crate::trials::Skipped;
use crate::{emitted, read};
use adfuse::backends::ptx::{self, GpuTarget};
use adfuse::fusion::Fp;
use adfuse::ir::DType;
use adfuse::ir::kernel::{Program, Verified, verify};

const MODES: [Fp; 3] = [Fp::Strict, Fp::Reproducible, Fp::Fast];

pub(crate) fn program(product: &Product) -> Verified<Program> {
    read_program(&product.text())
}

pub(crate) fn read_program(text: &str) -> Verified<Program> {
    let program = read(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

pub(crate) fn all_of_them_assemble_without_spills() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    for (n, product) in table().iter().enumerate() {
        let program = program(product);
        for (k, fp) in MODES.into_iter().enumerate() {
            let module = emitted(&program, fp);
            for launch in module.steps.iter().flat_map(|s| &s.launches) {
                assert!(launch.shared <= GpuTarget::SM80.shared, "{product:?} {}", launch.entry);
            }
            // The assembler takes its time: types that differ in no more than a name share the rows.
            if product.dtype != DType::F16 && (n + k) % 3 == 0 {
                all.add(&format!("{product:?} {fp:?}"), &module, &product.text());
            }
        }
    }
    for r in all.assembled()? {
        // Where every extent ends within a tile, what only the end needs may wait in memory.
        assert!(r.spilled <= 8, "{}: {} bytes", r.entry, r.spilled);
        assert!(r.registers <= 232, "{}: {} registers", r.entry, r.registers);
    }
    Ok(())
}

/// The products that benches measure: two blocks fit a multiprocessor where sums are chains
/// of elements that are copied.
pub(crate) fn the_largest_tiles_leave_room() -> Result<(), Skipped> {
    let chains =
        [(DType::F32, Fp::Strict), (DType::F32, Fp::Reproducible), (DType::F64, Fp::Strict)];
    let others =
        [(DType::BF16, Fp::Strict), (DType::F32, Fp::Fast), (DType::BF16, Fp::Reproducible)];
    for (cases, most) in [(&chains[..], 128), (&others[..], 232)] {
        let mut all = Assembly::default();
        for &(dtype, fp) in cases {
            for turned in [[false, true], [false, false], [true, true], [true, false]] {
                let size = [1, 4096, 4096, 4096];
                let product = Product { dtype, size, turned, feed: Feed::Plain, then: false };
                let program = program(&product);
                all.add(&format!("{product:?} {fp:?}"), &emitted(&program, fp), &product.text());
                // With more shared memory steps are longer.
                let newer = ptx::compile(&program, GpuTarget::SM90, fp).expect("compiles");
                assert!(newer.steps[0].launches[0].shared <= GpuTarget::SM90.shared);
                all.add(&format!("{product:?} {fp:?}"), &newer, &product.text());
            }
        }
        for r in all.assembled()? {
            assert_eq!(r.spilled, 0, "{}", r.entry);
            assert!(r.registers <= most, "{}: {} registers", r.entry, r.registers);
        }
    }
    Ok(())
}

pub(crate) fn modes_choose_what_multiplies() {
    let plain = |dtype, turned| {
        let size = [1, 40, 72, 48];
        Product { dtype, size, turned, feed: Feed::Plain, then: false }
    };
    let text = |p: &Product, fp| {
        ptx::compile(&program(p), GpuTarget::SM80, fp).unwrap_or_else(|d| panic!("{d}")).text
    };
    for turned in [[false, false], [true, false]] {
        let single = plain(DType::F32, turned);
        for (product, fp, unit) in [
            (single, Fp::Strict, "fma.rn.f32"),
            (single, Fp::Reproducible, "fma.rn.f32"),
            (single, Fp::Fast, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
            (plain(DType::BF16, turned), Fp::Strict, "fma.rn.f32"),
            (
                plain(DType::BF16, turned),
                Fp::Reproducible,
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            ),
            (
                plain(DType::F16, turned),
                Fp::Fast,
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            ),
            (plain(DType::F64, turned), Fp::Fast, "fma.rn.f64"),
            (plain(DType::I32, turned), Fp::Fast, "mad.lo.s32"),
        ] {
            let text = text(&product, fp);
            assert!(text.contains(unit), "{product:?} {fp:?}\n{text}");
            assert_eq!(text.contains("mma.sync"), unit.starts_with("mma"), "{product:?} {fp:?}");
            // What lies as it is wanted is copied past the registers, 16 bytes at a time.
            let copied = product.dtype.bytes() > 2 || unit.starts_with("mma");
            assert_eq!(text.contains("cp.async"), copied, "{product:?} {fp:?}");
            let wide = copied && (unit.starts_with("mma") || turned[0]);
            assert_eq!(text.contains("cp.async.cg"), wide, "{product:?} {fp:?}");
        }
    }
    let computed = Product { feed: Feed::Computed, ..plain(DType::F32, [false, true]) };
    let text = text(&computed, Fp::Strict);
    // The other operand is copied still.
    assert!(text.contains("mul.rn.f32") && text.contains("cp.async"), "{text}");
}

pub(crate) fn blocks_share_a_long_depth() {
    let size = [1, 64, 64, 65536];
    let product =
        Product { dtype: DType::F32, size, turned: [true, true], feed: Feed::Plain, then: true };
    let launches = |fp| {
        let module = emitted(&program(&product), fp);
        module.steps[0].launches.iter().map(|l| l.grid[0]).take(2).collect::<Vec<_>>()
    };
    // In strict mode by chunks of 512, in the others by as many parts as fill a chip.
    assert_eq!(launches(Fp::Strict), [128, 32]);
    assert_eq!(launches(Fp::Reproducible), [128, 32]);
    let short = Product { size: [1, 2048, 2048, 1024], ..product };
    assert_eq!(
        emitted(&program(&Product { then: false, ..short }), Fp::Strict).steps[0].launches.len(),
        1
    );
}
