//! Signals that end this process, and groups of processes that end with it.

use std::io;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The last signal that came and was not taken yet, of those that end a process. Where there are none of Unix, none comes.
pub(super) struct EndSignals(Arc<AtomicUsize>);

impl EndSignals {
    /// Keeps signals from ending this process from now on.
    pub(super) fn listen() -> EndSignals {
        let came = Arc::new(AtomicUsize::new(0));
        #[cfg(unix)]
        unix::listen(&came);
        EndSignals(came)
    }

    /// The number of the signal that came since this was asked last, if one did.
    pub(super) fn take(&self) -> Option<i32> {
        i32::try_from(self.0.swap(0, Ordering::SeqCst)).ok().filter(|&signal| signal > 0)
    }
}

/// A process, and on Unix all that it has started and that has not left its group.
pub(super) struct ProcessGroup {
    /// That of its first process.
    id: u32,
}

impl ProcessGroup {
    /// Starts a process in a group of its own.
    pub(super) fn spawn(command: &mut Command) -> io::Result<(Child, ProcessGroup)> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        let child = command.spawn()?;
        let id = child.id();
        Ok((child, ProcessGroup { id }))
    }

    /// Sends a signal to all of it. What has ended is not told.
    pub(super) fn signal(&self, signal: i32) {
        #[cfg(unix)]
        unix::signal(self.id, signal);
        #[cfg(not(unix))]
        let _ = (self.id, signal);
    }

    /// Ends all of it; elsewhere than on Unix, the process is ended by who has started it.
    pub(super) fn kill(&self) {
        #[cfg(unix)]
        self.signal(signal_hook::consts::SIGKILL);
    }
}

#[cfg(unix)]
mod unix {
    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::flag::register_usize;
    use std::fs;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    pub(super) fn listen(came: &Arc<AtomicUsize>) {
        let ignored = ignored();
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            // `nohup` has a hangup ignored, and shells an interrupt of what they put in the background.
            if ignored >> (signal - 1) & 1 == 0 {
                // Where it cannot be caught, it ends this process alone.
                let _ = register_usize(signal, Arc::clone(came), signal as usize);
            }
        }
    }

    /// A bit for each signal that this process was started to ignore; none where that is not told.
    fn ignored() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
    }

    pub(super) fn signal(id: u32, signal: i32) {
        if let (Ok(id), Ok(signal)) = (i32::try_from(id), Signal::try_from(signal)) {
            let _ = killpg(Pid::from_raw(id), signal);
        }
    }
}
