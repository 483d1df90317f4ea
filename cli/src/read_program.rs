//! Programs of commands that plan: read, rewritten in a mode, differentiated and prepared.

use super::clock::Clock;
use super::derivative::Wrt;
use super::failure::Failure;
use super::losses::Donated;
use super::params::params;
use super::program::LoadedProgram;
use super::stable_forms::in_mode;
use super::target::{FunctionArgs, all_bound, specialized};
use adfuse::autodiff::forward_and_backward;
use adfuse::fusion::Fp;
use adfuse::ir::rewrite::AttentionSteps;
use adfuse::ir::{Function, Module};
use adfuse::pipeline::{Selection, prepared_with};

/// A function that is read, rewritten, differentiated and prepared.
pub(super) struct ReadProgram {
    pub(super) source: LoadedProgram,
    pub(super) selection: Selection,
    pub(super) function: Function,
    pub(super) recognised: Vec<(&'static str, String)>,
    pub(super) arguments: usize,
    pub(super) donated: Vec<usize>,
}

/// The arguments that say what is read.
pub(super) struct ProgramArgs<'a> {
    pub(super) target: &'a FunctionArgs,
    /// What it is differentiated with respect to, where it is.
    pub(super) wrt: Option<&'a Wrt>,
    pub(super) donated: &'a Donated,
}

impl ProgramArgs<'_> {
    /// Reads, rewrites, differentiates and prepares the function, with the phases `parse` and `ad` timed.
    pub(super) fn read(
        &self,
        mode: (AttentionSteps, Fp),
        clock: &mut Clock,
    ) -> Result<ReadProgram, Failure> {
        let text = self.target.source()?;
        clock.begin();
        let source = LoadedProgram::of(text)?;
        clock.end("parse");
        let f = self.target.choose(&source)?;
        let extents = self.target.extents(&source, f)?;
        all_bound(f, &extents)?;
        let f = specialized(&source, f, &extents)?;
        let arguments = params(&f).len();
        let mut recognised = Vec::new();
        let (module, f) = in_mode(&source, &f, mode, &mut recognised)?;
        let mut selection = Selection { func: Some(f.name.clone()), extents, wrt: None };
        let (module, f) = match self.wrt {
            None => (module, f),
            Some(wrt) => {
                let wrt = wrt.positions(&source, &f)?;
                selection.wrt = Some(wrt.clone());
                let made = forward_and_backward(&module, &f, &wrt).map_err(|d| source.wrong(d))?;
                (Module::single(made.clone()), made)
            }
        };
        let function = prepared_with(&module, &f, mode).map_err(|d| source.wrong(d))?;
        let donated = self.donated.positions(&function)?;
        clock.end("ad");
        Ok(ReadProgram { source, selection, function, recognised, arguments, donated })
    }
}
