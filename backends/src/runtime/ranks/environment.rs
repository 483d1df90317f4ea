//! Who a process is among the ranks, by the variables that launchers set.

use adfuse_ir::{At, Diagnostic, Kind};
use std::env;
use std::path::PathBuf;
use std::time::Duration;

/// Which rank a process is, and where rank 0 waits for the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankEnvironment {
    /// The number of this rank, from 0.
    pub rank: u32,
    /// How many ranks there are.
    pub ranks: u32,
    /// The number of this rank among those of its host: that of its GPU.
    pub local_rank: u32,
    /// The host of rank 0.
    pub address: String,
    /// The port at which rank 0 waits.
    pub port: u16,
    /// How long ranks wait for each other to begin.
    pub wait: Duration,
    /// A folder in which the launcher makes a file for each rank that has ended, named by its number: such a rank is not waited
    /// for.
    pub ended: Option<PathBuf>,
}

/// How long ranks wait for each other to begin, where nothing is said: hosts do not start at the same time.
const WAIT: Duration = Duration::from_secs(300);

impl RankEnvironment {
    /// The variable that names the folder of [`RankEnvironment::ended`].
    pub const ENDED: &'static str = "ADFUSE_RANKS_ENDED";

    /// Whether the launcher says that a rank has ended.
    pub(super) fn has_ended(&self, rank: u32) -> bool {
        self.ended.as_ref().is_some_and(|folder| folder.join(rank.to_string()).exists())
    }

    /// What the environment says: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT`, as `torchrun` and `adfuse
    /// launch` set them, or Slurm's names for the first three. `None` where there is no number of ranks. Where `torchrun` keeps the
    /// port for itself, the next one is taken. `ADFUSE_RANKS_WAIT` is the seconds that ranks wait for each other to begin, 300
    /// without it; `ADFUSE_RANKS_ENDED` is the folder in which `adfuse launch` tells which ranks have ended.
    ///
    /// # Errors
    /// [`Kind::Usage`] if a variable is missing or is not a number, or if the rank is not below the number of ranks.
    pub fn read() -> Result<Option<RankEnvironment>, Diagnostic> {
        RankEnvironment::of(&|name| env::var(name).ok())
    }

    /// As [`RankEnvironment::read`], with these values of variables.
    ///
    /// # Errors
    /// As there.
    pub fn of(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<RankEnvironment>, Diagnostic> {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|&name| get(name).map(|value| (name, value)))
        };
        let Some((name, value)) = first(&["WORLD_SIZE", "SLURM_NTASKS"]) else { return Ok(None) };
        let ranks = number(name, &value)?;
        let needed = |names: &[&'static str]| {
            first(names)
                .ok_or_else(|| wrong(format!("{name} is {value}, and {} is not set", names[0])))
        };
        let (by, rank) = needed(&["RANK", "SLURM_PROCID"])?;
        let rank = number(by, &rank)?;
        if ranks == 0 || rank >= ranks {
            return Err(wrong(format!("{by} is {rank}, and {name} is {value}")));
        }
        let local_rank = match first(&["LOCAL_RANK", "SLURM_LOCALID"]) {
            Some((name, value)) => number(name, &value)?,
            None => rank,
        };
        let (address, port) = match ranks {
            1 => (String::new(), 0),
            _ => {
                let (_, address) = needed(&["MASTER_ADDR"])?;
                let (name, port) = needed(&["MASTER_PORT"])?;
                (address, number(name, &port)?)
            }
        };
        let taken =
            get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|v| v.eq_ignore_ascii_case("true"));
        let port = port + u32::from(taken);
        let port = u16::try_from(port).ok().filter(|&port| port > 0 || ranks == 1);
        let port = port.ok_or_else(|| wrong("MASTER_PORT: ports are 1 to 65535".into()))?;
        let wait = match get("ADFUSE_RANKS_WAIT") {
            Some(value) => Duration::from_secs(number("ADFUSE_RANKS_WAIT", &value)?.into()),
            None => WAIT,
        };
        let ended = get(RankEnvironment::ENDED).filter(|folder| !folder.is_empty());
        let ended = ended.map(PathBuf::from);
        Ok(Some(RankEnvironment { rank, ranks, local_rank, address, port, wait, ended }))
    }
}

fn number(name: &str, value: &str) -> Result<u32, Diagnostic> {
    let number = value.trim().parse().ok().filter(|&n| n < 1 << 16);
    number.ok_or_else(|| wrong(format!("{name} is {value:?}, which is no number below 65536")))
}

fn wrong(m: String) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Usage, m)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<RankEnvironment>, Diagnostic> {
        let find = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
        RankEnvironment::of(&find)
    }

    const TORCHRUN: &[(&str, &str)] = &[
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "host0"),
        ("MASTER_PORT", "29500"),
    ];

    #[test]
    fn launchers_say_who_a_process_is() {
        let found = read(TORCHRUN).unwrap().unwrap();
        assert_eq!((found.rank, found.ranks, found.local_rank), (3, 4, 1));
        assert_eq!((found.address.as_str(), found.port), ("host0", 29500));
        let kept = [TORCHRUN, &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(read(&kept).unwrap().unwrap().port, 29501);
        let slurm = [
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_LOCALID", "0"),
            ("MASTER_ADDR", "h"),
            ("MASTER_PORT", "1"),
        ];
        let found = read(&slurm).unwrap().unwrap();
        assert_eq!((found.rank, found.ranks, found.local_rank), (1, 2, 0));
        assert_eq!(read(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap().unwrap().ranks, 1);
        assert_eq!(read(&[("RANK", "1")]).unwrap(), None);
    }

    #[test]
    fn variables_that_make_no_sense_are_named() {
        for (name, value, said) in [
            ("RANK", "4", "RANK is 4, and WORLD_SIZE is 4"),
            ("RANK", "x", "RANK is \"x\""),
            ("WORLD_SIZE", "0", "WORLD_SIZE is 0"),
            ("MASTER_PORT", "70000", "MASTER_PORT is \"70000\""),
            ("MASTER_PORT", "0", "ports are 1 to 65535"),
            ("ADFUSE_RANKS_WAIT", "soon", "ADFUSE_RANKS_WAIT is \"soon\""),
        ] {
            let changed = [&[(name, value)], TORCHRUN].concat();
            let d = read(&changed).unwrap_err();
            assert!(d.kind == Kind::Usage && d.message.contains(said), "{d}");
        }
        let d = read(&[("RANK", "0"), ("WORLD_SIZE", "2")]).unwrap_err();
        assert!(d.message.contains("MASTER_ADDR is not set"), "{d}");
    }
}
