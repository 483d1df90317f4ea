//! Ranks: processes that run the same program and exchange tensors at its collectives.
//!
//! [`Communicator`] is what moves bytes between them. [`TcpMesh`] does over TCP, for engines whose tensors are in host
//! memory, and is what other communicators begin with: it tells them who is there, and when somebody is gone.
//!
//! ```no_run
//! use adfuse_backends::ranks::RankGroup;
//!
//! // RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who this process is, and where rank 0 waits.
//! let group = RankGroup::from_env()?;
//! println!("rank {} of {}", group.rank(), group.ranks());
//! # Ok::<(), adfuse_ir::Diagnostic>(())
//! ```

mod agreement;
mod environment;
mod frame;
mod mesh;
mod rendezvous;

pub use agreement::ranks_that_differ;
pub(crate) use agreement::{Agreement, RankProgram};
pub use environment::RankEnvironment;
pub use mesh::TcpMesh;

use adfuse_ir::kernel::ExchangeKind;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{At, Diagnostic, Function, Kind};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// The name of the axis that the processes of a group are the ranks of.
pub const AXIS: &str = "ranks";

/// How long a rank may be silent before it counts as lost.
pub const SILENCE: Duration = Duration::from_secs(20);

/// Moves bytes between the ranks of a group. All of them call the same methods in the same order.
pub trait Communicator: Debug + Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn ranks(&self) -> u32;

    /// Does an exchange; `to` is written whole. What is sent and what is received have the sizes that the kind says.
    ///
    /// # Errors
    /// [`Kind::LostRank`] when another rank is gone; [`Kind::Usage`] where it is at another exchange.
    fn exchange(&self, kind: ExchangeKind, from: &[u8], to: &mut [u8]) -> Result<(), Diagnostic>;

    /// Whether all ranks are there.
    ///
    /// # Errors
    /// [`Kind::LostRank`] with the one that is gone.
    fn check(&self) -> Result<(), Diagnostic>;
}

/// The ranks that this process is one of; by default it is alone. Clones share the connections.
#[derive(Clone, Debug, Default)]
pub struct RankGroup(Option<Arc<dyn Communicator>>);

impl RankGroup {
    /// This process alone.
    pub fn alone() -> RankGroup {
        RankGroup::default()
    }

    /// The ranks of a communicator.
    pub fn new(communicator: Arc<dyn Communicator>) -> RankGroup {
        RankGroup(Some(communicator))
    }

    /// The group that the environment describes ([`RankEnvironment::read`]), connected: this waits until all ranks are
    /// there. Without the variables the process is alone.
    ///
    /// # Errors
    /// [`Kind::Usage`] for variables that make no sense, and ranks of other versions; [`Kind::LostRank`] where the ranks do not
    /// come together in time.
    pub fn from_env() -> Result<RankGroup, Diagnostic> {
        match RankEnvironment::read()? {
            Some(environment) => RankGroup::connect(&environment),
            None => Ok(RankGroup::alone()),
        }
    }

    /// As [`RankGroup::from_env`], of what is given.
    ///
    /// # Errors
    /// As there.
    pub fn connect(environment: &RankEnvironment) -> Result<RankGroup, Diagnostic> {
        if environment.ranks < 2 {
            return Ok(RankGroup::alone());
        }
        Ok(RankGroup::new(Arc::new(TcpMesh::connect(environment)?)))
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> u32 {
        self.0.as_ref().map_or(0, |c| c.rank())
    }

    /// How many ranks there are, at least one.
    pub fn ranks(&self) -> u32 {
        self.0.as_ref().map_or(1, |c| c.ranks())
    }

    /// What moves bytes between them; `None` where the process is alone.
    pub fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        self.0.as_ref()
    }

    /// Whether two groups share their connections.
    pub fn is(&self, other: &RankGroup) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether all ranks are there.
    ///
    /// # Errors
    /// [`Kind::LostRank`] with the one that is gone.
    pub fn check(&self) -> Result<(), Diagnostic> {
        self.0.as_ref().map_or(Ok(()), |c| c.check())
    }

    /// The number that rank 0 has, for what all ranks must do equally. All of them ask.
    ///
    /// # Errors
    /// [`Kind::LostRank`] when another rank is gone.
    pub fn of_first(&self, own: u64) -> Result<u64, Diagnostic> {
        let Some(communicator) = &self.0 else { return Ok(own) };
        let mut first = [0; 8];
        let kind = ExchangeKind::Broadcast { root: 0 };
        communicator.exchange(kind, &own.to_le_bytes(), &mut first)?;
        Ok(u64::from_le_bytes(first))
    }

    /// Whether it is so on any rank. All of them ask.
    ///
    /// # Errors
    /// [`Kind::LostRank`] when another rank is gone.
    pub fn on_any(&self, own: bool) -> Result<bool, Diagnostic> {
        Ok(self.of_all(&[own.into()])?.contains(&vec![1]))
    }

    /// What each rank has, in their order; as many bytes on all of them. All of them ask.
    ///
    /// # Errors
    /// [`Kind::LostRank`] when another rank is gone.
    pub fn of_all(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, Diagnostic> {
        let Some(communicator) = &self.0 else { return Ok(vec![own.to_vec()]) };
        let mut all = vec![0; own.len() * communicator.ranks() as usize];
        communicator.exchange(ExchangeKind::AllGather, own, &mut all)?;
        Ok(all.chunks(own.len().max(1)).map(<[u8]>::to_vec).collect())
    }

    /// Checks that this group can run the collectives of a function.
    ///
    /// # Errors
    /// [`Kind::NoDevice`] for a collective over another axis, or over another number of ranks, with its place.
    pub fn admit(&self, f: &Function) -> Result<(), Diagnostic> {
        for &i in f.body_insts() {
            if f.op(i).collective().is_none() {
                continue;
            }
            let (over, ranks) = (f.attrs(i).text("over"), f.attrs(i).int("ranks"));
            if over == AXIS && ranks == i64::from(self.ranks()) || ranks == 1 {
                continue;
            }
            let m = match (over == AXIS, &self.0) {
                (false, _) => {
                    format!("ranks of `{over}` exchange here, and processes are ranks of `{AXIS}`")
                }
                (true, None) => format!("{ranks} ranks exchange here, and this process is alone"),
                (true, Some(_)) => {
                    format!("{ranks} ranks exchange here, and the group has {}", self.ranks())
                }
            };
            let hint =
                "`adfuse launch` starts processes; `adfuse vmap --axis-name` runs all ranks in one";
            return Err(Diagnostic::new(at_inst(f, i), Kind::NoDevice, m).hint(hint));
        }
        Ok(())
    }
}

/// The error of a rank that is gone.
pub(crate) fn lost(m: impl Into<String>) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::LostRank, m)
}
