//! Signals that end this process, and groups of processes that end with it.

#[cfg(unix)]
pub(super) use unix::{Group, Signals};

#[cfg(not(unix))]
pub(super) use other::{Group, Signals};

#[cfg(unix)]
mod unix {
    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::flag::register_usize;
    use std::fs;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The signal that came last, of those that end a process.
    pub(crate) struct Signals(Arc<AtomicUsize>);

    impl Signals {
        /// Keeps signals from ending this process from now on.
        pub(crate) fn listen() -> Signals {
            let came = Arc::new(AtomicUsize::new(0));
            let ignored = ignored();
            for signal in [SIGHUP, SIGINT, SIGTERM] {
                // `nohup` has a hangup ignored.
                if ignored >> (signal - 1) & 1 == 0 {
                    // Where it cannot be caught, it ends this process alone.
                    let _ = register_usize(signal, Arc::clone(&came), signal as usize);
                }
            }
            Signals(came)
        }

        /// The number of the signal that came, if one did.
        pub(crate) fn came(&self) -> Option<i32> {
            i32::try_from(self.0.load(Ordering::SeqCst)).ok().filter(|&signal| signal > 0)
        }
    }

    /// A bit for each signal that this process was started to ignore; none where that is not told.
    fn ignored() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
    }

    /// A process, and all that it has started and that has not left its group.
    pub(crate) struct Group(Pid);

    impl Group {
        /// Starts a process in a group of its own.
        pub(crate) fn spawn(command: &mut Command) -> io::Result<(Child, Group)> {
            let child = command.process_group(0).spawn()?;
            let id = i32::try_from(child.id()).map_err(io::Error::other)?;
            Ok((child, Group(Pid::from_raw(id))))
        }

        /// Sends a signal to all of it.
        pub(crate) fn signal(&self, signal: i32) {
            // One that has ended is not told.
            let _ = Signal::try_from(signal).map(|signal| killpg(self.0, signal));
        }

        /// Ends all of it.
        pub(crate) fn kill(&self) {
            let _ = killpg(self.0, Signal::SIGKILL);
        }
    }
}

#[cfg(not(unix))]
mod other {
    use std::io;
    use std::process::{Child, Command};

    /// Signals, which are not caught here.
    pub(crate) struct Signals;

    impl Signals {
        /// There is nothing to listen to.
        pub(crate) fn listen() -> Signals {
            Signals
        }

        /// None came.
        pub(crate) fn came(&self) -> Option<i32> {
            None
        }
    }

    /// What a process has started is not known here.
    pub(crate) struct Group;

    impl Group {
        /// Starts a process.
        pub(crate) fn spawn(command: &mut Command) -> io::Result<(Child, Group)> {
            Ok((command.spawn()?, Group))
        }

        /// Processes are not told here.
        pub(crate) fn signal(&self, _: i32) {}

        /// The process itself is ended by who has started it.
        pub(crate) fn kill(&self) {}
    }
}
