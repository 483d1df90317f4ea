//! `launch`: starts the processes of a program that exchange with each other.

use super::failure::Failure;
use super::signals::{EndSignals, ProcessGroup};
use super::streams::Streams;
use super::values::whole;
use adfuse::backends::ranks::RankEnvironment;
use clap::Args;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most processes that are started.
const MOST_RANKS: u64 = 256;

/// How often is asked who has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// How long others may go on when one has failed, since they notice by themselves, and all when they are asked to end, since
/// they may write a checkpoint.
const GRACE: Duration = Duration::from_secs(30);

/// Starts processes that exchange with each other, one for each rank
///
/// Each runs COMMAND with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment. When
/// one fails, the others are ended within 30 seconds, and the exit status is that of the first that failed. When `launch`
/// itself is interrupted or terminated, it passes that on to the ranks and what they have started, and ends what is left
/// after 30 seconds, or at once when it is interrupted or terminated again.
#[derive(Args)]
pub(super) struct LaunchCommand {
    /// How many processes
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u32>(1..=MOST_RANKS))]
    ranks: u32,
    /// The port at which they find each other; without this, one that is free
    #[arg(long, value_name = "PORT", value_parser = whole::<u16>(1..=65535))]
    port: Option<u16>,
    /// The program and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A process with what it starts.
struct Rank {
    number: u32,
    child: Child,
    group: ProcessGroup,
}

/// Processes that are ended with this one, whatever happens here.
struct Running {
    ranks: Vec<Rank>,
    ended: EndedRanks,
}

/// The folder in which ranks that wait for others see which of them have ended.
struct EndedRanks(PathBuf);

impl EndedRanks {
    fn new() -> io::Result<EndedRanks> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let folder =
            std::env::temp_dir().join(format!("adfuse-launch-{}-{now}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(EndedRanks(folder))
    }

    /// Says that a rank has ended. Where that cannot be written, others wait for it as long as they wait for any.
    fn add(&self, rank: u32) {
        let _ = File::create(self.0.join(rank.to_string()));
    }
}

impl Drop for EndedRanks {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            // One that has ended already is not there to be ended.
            rank.group.kill();
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}

impl LaunchCommand {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        if streams.output.is_some() {
            let m = "launch has no result of its own to write";
            let hint = "give --output to the command that it starts, after `--`";
            return Err(Failure::usage(m).hint(Some(hint.into())));
        }
        let port = match self.port {
            Some(port) => port,
            None => {
                free_port().map_err(|e| Failure::usage(format!("there is no free port: {e}")))?
            }
        };
        // What comes from here on ends the ranks too.
        let signals = EndSignals::listen();
        let ended = EndedRanks::new()
            .map_err(|e| Failure::usage(format!("cannot make a temporary folder: {e}")))?;
        let mut running = Running { ranks: Vec::new(), ended };
        for number in 0..self.ranks {
            let rank = self.start(number, port, &running.ended)?;
            running.ranks.push(rank);
        }
        wait(running, &signals, streams)
    }

    fn start(&self, number: u32, port: u16, ended: &EndedRanks) -> Result<Rank, Failure> {
        let Some((program, args)) = self.command.split_first() else {
            return Err(Failure::usage("there is no command to run"));
        };
        let mut command = Command::new(program);
        command.args(args).env(RankEnvironment::ENDED, &ended.0);
        let (own, all) = (number.to_string(), self.ranks.to_string());
        for (name, value) in [
            ("RANK", &own),
            ("LOCAL_RANK", &own),
            ("WORLD_SIZE", &all),
            ("LOCAL_WORLD_SIZE", &all),
            ("MASTER_ADDR", &Ipv4Addr::LOCALHOST.to_string()),
            ("MASTER_PORT", &port.to_string()),
        ] {
            command.env(name, value);
        }
        // Of several groups of processes one alone may read from a terminal.
        if io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        let (child, group) = ProcessGroup::spawn(&mut command).map_err(|e| {
            Failure::usage(format!("cannot run `{}`: {e}", program.to_string_lossy()))
        })?;
        Ok(Rank { number, child, group })
    }
}

/// Waits for all. When one fails, or this process is to end, the others may go on for a while.
fn wait(
    mut running: Running,
    signals: &EndSignals,
    streams: &mut Streams<'_>,
) -> Result<ExitCode, Failure> {
    // The exit status, and when the others are ended.
    let mut ending: Option<(u8, Instant)> = None;
    let mut signalled = false;
    while !running.ranks.is_empty() {
        for (rank, status) in running.reap()? {
            if status.success() {
                continue;
            }
            streams.note(format!("rank {rank} ended: {status}"));
            ending = ending.or_else(|| Some((code(status), Instant::now() + GRACE)));
        }
        if let Some(signal) = signals.take() {
            if signalled {
                break;
            }
            signalled = true;
            streams.note(format!("the ranks are ended: launch was ended by signal {signal}"));
            running.ranks.iter().for_each(|rank| rank.group.signal(signal));
            let status = u8::try_from(128 + signal).unwrap_or(1);
            ending = Some((status, Instant::now() + GRACE));
        }
        if ending.is_some_and(|(_, until)| Instant::now() >= until) {
            for rank in &running.ranks {
                streams.note(format!("rank {} is ended: it did not notice", rank.number));
            }
            break;
        }
        sleep(PAUSE);
    }
    Ok(ExitCode::from(ending.map_or(0, |(status, _)| status)))
}

impl Running {
    /// The ranks that have ended since, with what they left ended too where they failed.
    fn reap(&mut self) -> Result<Vec<(u32, ExitStatus)>, Failure> {
        let mut ended = Vec::new();
        for rank in &mut self.ranks {
            let status = rank.child.try_wait().map_err(|e| {
                Failure::usage(format!("cannot wait for rank {}: {e}", rank.number))
            })?;
            let Some(status) = status else { continue };
            if !status.success() {
                rank.group.kill();
            }
            self.ended.add(rank.number);
            ended.push((rank.number, status));
        }
        self.ranks.retain(|rank| ended.iter().all(|(number, _)| *number != rank.number));
        Ok(ended)
    }
}

/// The exit status that stands for a process's; 1 for one that a signal ended.
fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code > 0).unwrap_or(1)
}

/// A port that nobody listens at just now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
