//! `launch`: starts the processes of a program that exchange with each other.

use super::failure::Failure;
use super::streams::Streams;
use clap::Args;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The most processes that are started.
const MOST_RANKS: u32 = 256;

/// How often is asked who has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// How long others may go on when one has failed: they notice by themselves.
const GRACE: Duration = Duration::from_secs(30);

/// Starts processes that exchange with each other, one for each rank
///
/// Each runs COMMAND with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment. When
/// one fails, the others are ended within 30 seconds, and the exit status is that of the first that failed.
#[derive(Args)]
pub(super) struct LaunchCommand {
    /// How many processes
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    ranks: u32,
    /// The port at which they find each other; without this, one that is free
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// The program and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Processes that are ended with this one, whatever happens here.
struct Running(Vec<(u32, Child)>);

impl Drop for Running {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // One that has ended already is not there to be ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl LaunchCommand {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let port = match self.port {
            Some(port) => port,
            None => {
                free_port().map_err(|e| Failure::usage(format!("there is no free port: {e}")))?
            }
        };
        let Some((program, args)) = self.command.split_first() else {
            return Err(Failure::usage("there is no command to run"));
        };
        let mut running = Running(Vec::new());
        for rank in 0..self.ranks {
            let mut command = Command::new(program);
            command.args(args);
            let (own, all) = (rank.to_string(), self.ranks.to_string());
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
            let child = command.spawn().map_err(|e| {
                Failure::usage(format!("cannot run `{}`: {e}", program.to_string_lossy()))
            })?;
            running.0.push((rank, child));
        }
        wait(running, streams)
    }
}

/// Waits for all; when one fails, for the others as long as they may go on.
fn wait(mut running: Running, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
    let (mut failed, mut until) = (None, None);
    while !running.0.is_empty() {
        let mut ended = Vec::new();
        for (k, (rank, child)) in running.0.iter_mut().enumerate() {
            let status = child
                .try_wait()
                .map_err(|e| Failure::usage(format!("cannot wait for rank {rank}: {e}")))?;
            if let Some(status) = status {
                ended.push((k, *rank, status));
            }
        }
        for &(k, rank, status) in ended.iter().rev() {
            running.0.remove(k);
            if !status.success() {
                streams.note(format!("rank {rank} ended: {status}"));
            }
        }
        if failed.is_none() {
            failed = ended.iter().find(|(.., status)| !status.success()).map(|(.., s)| code(*s));
            until = failed.map(|_| Instant::now() + GRACE);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            for (rank, _) in &running.0 {
                streams.note(format!("rank {rank} is ended: it did not notice"));
            }
            break;
        }
        sleep(PAUSE);
    }
    Ok(ExitCode::from(failed.unwrap_or(0)))
}

/// The exit status that stands for a process's; 1 for one that a signal ended.
fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code > 0).unwrap_or(1)
}

/// A port that nobody listens at just now.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
