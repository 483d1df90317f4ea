//! Products by warpgroups as they are run: with their tiles, and what follows their sums.

use super::depth_runs::{DepthRuns, part_extents, part_index};
use super::joint_stage::joint;
use super::product::FoldStage;
use super::shape::{axes, identity, load};
use super::warpgroup_form::{WarpgroupForm, WarpgroupWork, column_parts};
use super::warpgroup_tile::WarpgroupTile;
use super::work::Lowering;
use crate::gpu::target::GpuTarget;
use adfuse_ir::DType;
use adfuse_ir::kernel::{Buffer, Member, Sink, Stage};

/// A product of those that share a grid.
pub(crate) struct WarpgroupMember {
    pub(crate) member: Member,
    pub(crate) form: WarpgroupForm,
    /// For each sink that adds up columns, where its parts go.
    pub(crate) parts: Vec<Option<Buffer>>,
}

/// Products with their tiles.
pub(crate) struct WarpgroupProduct {
    /// With what the launch does with their sums.
    pub(crate) members: Vec<WarpgroupMember>,
    /// The same with what follows the sums at last.
    pub(crate) given: Vec<Member>,
    pub(crate) tile: WarpgroupTile,
    /// How the depth is cut, where it is.
    pub(crate) runs: Option<DepthRuns>,
}

impl WarpgroupProduct {
    /// The products as they were given.
    pub(crate) fn products(&self) -> Vec<&Member> {
        self.given.iter().collect()
    }
}

/// Products as they are run, and the loops that follow them: folds of the parts that sums of columns leave, or, where the depth is
/// cut into runs, one loop with the sums of the parts of tiles and what becomes of those.
pub(crate) fn scheduled(
    low: &mut Lowering,
    work: WarpgroupWork,
    tile: WarpgroupTile,
) -> (WarpgroupProduct, Vec<FoldStage>) {
    let given: Vec<Member> = work.members.iter().map(|(m, _)| m.clone()).collect();
    let runs = tile.depth_runs(&work.members);
    let (mut members, mut follow) = (Vec::new(), Vec::new());
    let mut combined = Vec::new();
    let parts = runs
        .zip(given.first())
        .map(|(runs, m)| low.temp(DType::F32, part_extents(m, given.len(), runs.parts().1)));
    for ((mut member, form), number) in work.members.into_iter().zip(0i64..) {
        let mut columns = Vec::new();
        if let Some((runs, parts)) = runs.zip(parts) {
            combined.push(runs.combined(&tile, (&member, number), parts));
            let index = part_index(&member);
            member.then = Stage::storing(DType::F32, parts, DType::F32, index);
            columns.push(None);
        } else {
            let extents = column_parts(&member);
            for sink in &member.then.sinks {
                let part = matches!(sink, Sink::Fold { .. }).then(|| {
                    let part = low.temp(DType::F32, extents.clone());
                    let stage = Stage {
                        params: vec![load(part, axes(extents.len()))],
                        program: identity(DType::F32),
                        sinks: vec![sink.clone()],
                        ..Stage::default()
                    };
                    follow.push((extents.clone(), stage));
                    part
                });
                columns.push(part);
            }
        }
        members.push(WarpgroupMember { member, form, parts: columns });
    }
    // Products that share a grid have equal extents.
    if let Some(m) = given.first() {
        follow.extend(joint(combined).into_iter().map(|stage| (m.result(), stage)));
    }
    (WarpgroupProduct { members, given, tile, runs }, follow)
}

impl WarpgroupTile {
    /// How the depth of products is cut; `None` where blocks have whole tiles.
    pub(crate) fn depth_runs(&self, members: &[(Member, WarpgroupForm)]) -> Option<DepthRuns> {
        let (_, form) = members.first().filter(|_| self.runs > 1)?;
        let products: Vec<&Member> = members.iter().map(|(m, _)| m).collect();
        let tiles = self.all_tiles(&products);
        Some(DepthRuns { tiles, steps: form.steps(), runs: self.runs })
    }

    /// An error for tiles that do not exist, or that the products cannot have.
    pub(crate) fn check(&self, work: &WarpgroupWork, target: &GpuTarget) -> Result<(), String> {
        self.check_shape(target)?;
        match self.depth_runs(&work.members) {
            Some(runs) => runs.check(self, &work.products()),
            None if self.runs == 1 => Ok(()),
            None => Err(format!("the depth is not cut into {} runs", self.runs)),
        }
    }
}
