//! Plans: which instructions share a kernel, in which order, and in which form their results are stored.
//!
//! A plan is data. It belongs to one prepared function, which it identifies by a hash of its text, and is applied by
//! [`lower`](crate::lower()).

pub(crate) mod blocks;
pub(crate) mod inverse;
pub(crate) mod layout;
pub(crate) mod loop_choice;
pub(crate) mod lossy;
pub(crate) mod machine_model;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod refusal;
pub(crate) mod rewrites;
pub(crate) mod segments;
pub(crate) mod text;

use adfuse_ir::kernel::Storage;
use adfuse_ir::text::print_function;
use adfuse_ir::{Fp, Function, Inst, Value};
use layout::Layout;
use rewrites::Rewrites;
use sha2::{Digest, Sha256};

/// Instructions of one loop nest, in the order of the function; the first decides the nest.
pub type Members = Vec<Inst>;

/// What runs at once: the members of a kernel, of several contractions that share an operand, or of several kernels of
/// which none reads what another one computes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    /// The parts: one, or all contractions, or all kernels.
    pub parts: Vec<Members>,
}

/// Which instructions share a kernel, and how what they leave is stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The function's name.
    pub name: String,
    /// A hash of the prepared function's text.
    pub graph: String,
    /// The machine it is made for.
    pub device: String,
    /// The floating-point mode.
    pub fp: Fp,
    /// How the elements of temporaries lie in memory.
    pub layout: Layout,
    /// Donated parameters by position, ascending: their memory may be reused.
    pub donated: Vec<usize>,
    /// Instructions that are inlined in every group that uses them.
    pub inline: Vec<Inst>,
    /// The groups, in the order in which they run.
    pub groups: Vec<Group>,
    /// Values that are not stored as they are.
    pub storage: Vec<(Value, Storage)>,
    /// What was decided about the function before, which made it from the prepared one.
    pub rewrites: Rewrites,
    /// Plans of the blocks of loops and branches ([`block_function`](crate::block_function)), equal ones once, in the
    /// order of the function. A block's plan is the one with the hash of its function.
    pub blocks: Vec<Plan>,
}

/// A hash of a function's text: what a plan belongs to.
pub fn graph_hash(f: &Function) -> String {
    short_hash(&print_function(f))
}

fn short_hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(16).map(|b| format!("{b:02x}")).collect()
}

impl Plan {
    /// The plan for a caller that donates these parameters, by position.
    pub fn donating(self, positions: &[usize]) -> Plan {
        let mut donated = positions.to_vec();
        donated.sort_unstable();
        donated.dedup();
        Plan { donated, ..self }
    }
}
