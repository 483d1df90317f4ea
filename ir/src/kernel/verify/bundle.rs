//! Bundles: kernels of one launch, which share nothing that one of them writes.

use super::{ProgramVerifier, Wrong};
use crate::diag::Kind;
use crate::kernel::buffer::Buffer;
use crate::kernel::program::Bundle;
use crate::kernel::stage::Sink;
use cranelift_entity::SecondaryMap;

impl ProgramVerifier<'_> {
    pub(super) fn bundle(&mut self, place: &str, bundle: &Bundle) {
        if let Err(wrong) = self.independent(bundle) {
            return self.report(place, wrong);
        }
        for kernel in &bundle.kernels {
            self.kernel(&format!("{place}, kernel @{}", kernel.name), kernel);
        }
    }

    /// Checks that the kernels may run in any order, and that they are done when their points are.
    fn independent(&self, bundle: &Bundle) -> Result<(), Wrong> {
        if bundle.kernels.len() < 2 {
            return Err(Wrong::new(Kind::Arity, "a bundle has at least two kernels"));
        }
        let mut writer: SecondaryMap<Buffer, Option<usize>> = SecondaryMap::new();
        for (k, kernel) in bundle.kernels.iter().enumerate() {
            for b in kernel.writes() {
                if writer[b].replace(k).is_some() {
                    let m = format!("two kernels of a bundle write %{}", self.data(b).name);
                    return Err(Wrong::new(Kind::Overlap, m));
                }
            }
        }
        for (k, kernel) in bundle.kernels.iter().enumerate() {
            let shared = |&b: &Buffer| writer[b].is_some_and(|other| other != k);
            if let Some(b) = kernel.reads().find(shared) {
                let name = &self.data(b).name;
                let m = format!("a kernel of a bundle reads %{name}, which another one writes");
                return Err(Wrong::new(Kind::Dominance, m));
            }
        }
        let folds = |sink: &Sink| matches!(sink, Sink::Fold { .. });
        let mut stages = bundle.kernels.iter().flat_map(|k| &k.stages);
        match stages.any(|stage| stage.sinks.iter().any(folds)) {
            true => Err(Wrong::new(
                Kind::Unsupported,
                "a kernel of a bundle does not fold over its domain",
            )),
            false => Ok(()),
        }
    }
}
