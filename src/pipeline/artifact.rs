//! Artifacts: the inputs and outputs of passes.

/// What compilation makes on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Artifact {
    /// A program as it is written.
    Text,
    /// Its functions.
    Module,
    /// The function that is compiled.
    Function,
    /// Which instructions share a kernel, and what is kept or computed again.
    Plan,
    /// A program of kernels.
    Program,
    /// Where the program's temporaries are.
    Layout,
    /// Functions for the processor.
    MachineCode,
    /// How a GPU runs each step.
    Schedule,
    /// PTX, and what is launched.
    Launches,
    /// What runs on a GPU.
    Loaded,
}

impl Artifact {
    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Artifact::Text => "text",
            Artifact::Module => "module",
            Artifact::Function => "function",
            Artifact::Plan => "plan",
            Artifact::Program => "program",
            Artifact::Layout => "layout",
            Artifact::MachineCode => "machine code",
            Artifact::Schedule => "schedule",
            Artifact::Launches => "launches",
            Artifact::Loaded => "loaded",
        }
    }
}
