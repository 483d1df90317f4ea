//! Products by measured times: what a product is called in a table of times, and the way that was the fastest.

use super::warpgroup_form::WarpgroupForm;
use super::warpgroup_tile::{TileOrder, WarpgroupTile};
use crate::gpu::target::GpuTarget;
use adfuse_ir::kernel::{
    Contract, Member, ProductTimes, ProductWay, Program, Role, Step, StepForm, WarpgroupWay, volume,
};
use adfuse_ir::{DType, Fp};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

/// A program of one product alone: what it reads is given, what it writes is handed over. `None` where the product
/// is no step that can stand alone.
pub(crate) fn alone(program: &Program, m: &Member) -> Option<Program> {
    let contract = Contract { name: "product".into(), members: SmallVec::from_iter([m.clone()]) };
    let (form, _) = StepForm::of(program, &Step::Contract(contract))?;
    let (mut step, mut buffers) = form.parts();
    if let Step::Contract(contract) = &mut step {
        contract.name = "product".into();
    }
    let written: Vec<_> = step.writes().collect();
    for (n, data) in buffers.iter_mut().enumerate() {
        data.name = format!("b{n}");
    }
    let buffers: cranelift_entity::PrimaryMap<_, _> = buffers.into_iter().collect();
    let mut alone =
        Program { name: "product".into(), buffers, outputs: written.clone(), steps: vec![step] };
    for (b, data) in alone.buffers.iter_mut() {
        // Which step of a program wrote a buffer is of no matter to its time.
        if !matches!(data.role, Role::Constant(_)) {
            data.role = if written.contains(&b) { Role::Output } else { Role::Input };
        }
    }
    Some(alone)
}

/// What a product is called in a table of times: the mode, types and extents, and a hash of all that is done.
pub(crate) fn form_name(program: &Program, m: &Member, fp: Fp) -> Option<String> {
    let alone = alone(program, m)?;
    let size = [&m.batch, &m.rows, &m.cols, &m.depth]
        .map(|extents| extents.iter().map(i64::to_string).collect::<Vec<_>>().join("*"));
    let [batch, rows, cols, depth] = size;
    let batch = if batch.is_empty() { "1" } else { batch.as_str() };
    let dtype = operand_type(m);
    let digest = Sha256::digest(alone.to_string().as_bytes());
    let hash: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    Some(format!("{} {dtype} {batch}x{rows}x{cols}x{depth} {hash}", fp.name()))
}

fn operand_type(m: &Member) -> DType {
    let program = &m.lhs.program;
    program.outputs.first().map_or(DType::F32, |&v| program.insts[v].dtype)
}

/// The ways in which this engine can multiply a product.
pub(crate) fn ways(
    program: &Program,
    m: &Member,
    (fp, target): (Fp, &GpuTarget),
    by_library: bool,
) -> Vec<ProductWay> {
    let own = WarpgroupForm::of(program, m, (fp, target)).is_some();
    let tiles = WarpgroupWay::SHAPES.into_iter().flat_map(|(side, pingpong)| {
        let all = [(1, false), (2, false), (1, true)];
        all.map(|(cluster, split)| WarpgroupWay { side, pingpong, cluster, split })
    });
    let tiles = tiles.filter(|way| own && way.is_known() && fits(*way, m, (fp, target)));
    let library = by_library.then_some(ProductWay::Library);
    tiles.map(ProductWay::Warpgroups).chain(library).collect()
}

/// The fastest way to multiply a product that was measured, with its seconds: by the library only where there is one, and by
/// tiles only that fit the product.
pub(crate) fn fastest(
    times: &ProductTimes,
    (program, m): (&Program, &Member),
    (fp, target): (Fp, &GpuTarget),
    library: bool,
) -> Option<(ProductWay, f64)> {
    if times.is_empty() {
        return None;
    }
    let form = form_name(program, m, fp)?;
    times.fastest(&form, |way| match way {
        ProductWay::Library => library,
        ProductWay::Warpgroups(tiles) => fits(tiles, m, (fp, target)),
    })
}

/// Whether a product can have these tiles.
fn fits(way: WarpgroupWay, m: &Member, (fp, target): (Fp, &GpuTarget)) -> bool {
    let tile = WarpgroupTile::by(way, m, target);
    let runs = tile.priced_runs(&[m], fp);
    // Of enough tiles there are no runs.
    let cut = runs.map_or(!way.split, |runs| runs.are_long() && runs.check(&tile, &[m]).is_ok());
    way.fits(volume(&m.rows)) && cut
}

/// The tiles of the fastest way by warpgroups that was measured.
pub(crate) fn fastest_tile(
    times: &ProductTimes,
    (program, m): (&Program, &Member),
    (fp, target): (Fp, &GpuTarget),
) -> Option<WarpgroupTile> {
    match fastest(times, (program, m), (fp, target), false)?.0 {
        ProductWay::Warpgroups(way) => Some(WarpgroupTile::by(way, m, target)),
        ProductWay::Library => None,
    }
}

impl WarpgroupTile {
    /// The tiles of a way of a product, with as many steps in shared memory as fit.
    pub(crate) fn by(way: WarpgroupWay, m: &Member, target: &GpuTarget) -> WarpgroupTile {
        let order = if way.pingpong { TileOrder::PingPong } else { TileOrder::Cooperative };
        let whole = WarpgroupTile::filling(way.side, order, way.cluster, target);
        if way.split { whole.in_runs(&[m], target) } else { whole }
    }
}
