//! Counters of the processor, read through perf events, where the host lets this process read them.

#![allow(unsafe_code)]

use std::fmt;

/// Why there are no counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CounterError {
    /// The operating system has no perf events.
    NoPerfEvents,
    /// The host refuses them: what it answered, and how strict it is where that can be read.
    Refused {
        /// The counter.
        counter: &'static str,
        /// The system's error.
        error: String,
        /// The contents of `perf_event_paranoid`.
        paranoid: Option<String>,
    },
}

impl fmt::Display for CounterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CounterError::NoPerfEvents => write!(f, "this operating system has no perf events"),
            CounterError::Refused { counter, error, paranoid } => {
                write!(f, "the host refuses the counter of {counter} ({error}")?;
                match paranoid {
                    Some(level) => write!(f, "; kernel.perf_event_paranoid is {level})"),
                    None => write!(f, ")"),
                }
            }
        }
    }
}

impl std::error::Error for CounterError {}

/// What is counted: the name, and the number of the event.
#[cfg(target_os = "linux")]
const EVENTS: [(&str, u64); 4] =
    [("cycles", 0), ("instructions", 1), ("cache references", 2), ("cache misses", 3)];

/// Counters of all threads that the process has, in user mode.
#[derive(Debug)]
pub struct HardwareCounters {
    #[cfg(target_os = "linux")]
    /// An event of each thread.
    files: Vec<(&'static str, std::os::fd::OwnedFd)>,
    #[cfg(target_os = "linux")]
    threads: usize,
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{CounterError, EVENTS, HardwareCounters};
    use std::fs::File;
    use std::io::{Error, Read};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::path::Path;

    /// The first version of the kernel's `perf_event_attr`.
    #[repr(C)]
    #[derive(Default)]
    struct EventAttributes {
        kind: u32,
        size: u32,
        config: u64,
        sample_period: u64,
        sample_type: u64,
        read_format: u64,
        flags: u64,
        wakeup_events: u32,
        breakpoint_kind: u32,
        config1: u64,
    }

    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    /// Reads give the time enabled and the time running after the count.
    const TIMES: u64 = 1 | 2;
    const ENABLE: libc::c_ulong = 0x2400;
    const DISABLE: libc::c_ulong = 0x2401;

    fn opened(
        thread: libc::pid_t,
        (counter, config): (&'static str, u64),
    ) -> Result<OwnedFd, CounterError> {
        let attributes = EventAttributes {
            size: size_of::<EventAttributes>() as u32,
            config,
            read_format: TIMES,
            flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
            ..EventAttributes::default()
        };
        let (any_cpu, no_group, no_flags) = (-1, -1, 0);
        // SAFETY: the kernel reads `size` bytes of the attributes, which outlive the call, and writes nothing.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                any_cpu,
                no_group,
                no_flags,
            )
        };
        match i32::try_from(fd) {
            // SAFETY: the call has just given this descriptor, and nobody else has it.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => {
                let error = Error::last_os_error().to_string();
                let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
                let paranoid = level.ok().map(|text| text.trim().to_string());
                Err(CounterError::Refused { counter, error, paranoid })
            }
        }
    }

    impl HardwareCounters {
        /// Opens the counters for each thread that there is now, those of pools among them.
        ///
        /// # Errors
        /// If the host refuses one, or does not say which threads there are.
        pub fn open() -> Result<HardwareCounters, CounterError> {
            let listed =
                std::fs::read_dir("/proc/self/task").map_err(|e| refused("threads", &e))?;
            let number = |entry: std::io::Result<std::fs::DirEntry>| {
                entry.ok()?.file_name().to_str()?.parse::<libc::pid_t>().ok()
            };
            let (mut files, mut threads) = (Vec::new(), 0);
            for thread in listed.filter_map(number) {
                for event in EVENTS {
                    match opened(thread, event) {
                        Ok(file) => files.push((event.0, file)),
                        // A thread may have ended since it was listed.
                        Err(e)
                            if !Path::new("/proc/self/task").join(thread.to_string()).exists() =>
                        {
                            drop(e);
                            break;
                        }
                        Err(e) => return Err(e),
                    }
                }
                threads += 1;
            }
            Ok(HardwareCounters { files, threads })
        }

        /// How many threads are counted.
        pub fn threads(&self) -> usize {
            self.threads
        }

        /// Counts while `work` runs, in all threads together. What the processor had too few counters for is not in the
        /// answer.
        ///
        /// # Errors
        /// If a counter cannot be read.
        pub fn count(self, work: impl FnOnce()) -> Result<Vec<(&'static str, u64)>, CounterError> {
            self.all(ENABLE)?;
            work();
            self.all(DISABLE)?;
            let mut found = EVENTS.map(|(name, _)| (name, Some(0u64)));
            for (name, fd) in self.files {
                let mut bytes = [0; 24];
                File::from(fd).read_exact(&mut bytes).map_err(|e| refused(name, &e))?;
                let word = |k: usize| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&bytes[8 * k..8 * k + 8]);
                    u64::from_ne_bytes(word)
                };
                let (count, enabled, running) = (word(0), word(1), word(2));
                // A thread that did not run has counted nothing in no time.
                let whole = (running == enabled).then_some(count);
                for (_, sum) in found.iter_mut().filter(|(of, _)| *of == name) {
                    *sum = sum.zip(whole).map(|(a, b)| a.saturating_add(b));
                }
            }
            Ok(found.into_iter().filter_map(|(name, sum)| Some((name, sum?))).collect())
        }

        fn all(&self, request: libc::c_ulong) -> Result<(), CounterError> {
            for (name, fd) in &self.files {
                // SAFETY: the descriptor is open, and the request takes no argument.
                let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, 0) };
                if answer < 0 {
                    return Err(refused(name, &Error::last_os_error()));
                }
            }
            Ok(())
        }
    }

    fn refused(counter: &'static str, error: &Error) -> CounterError {
        CounterError::Refused { counter, error: error.to_string(), paranoid: None }
    }
}

#[cfg(not(target_os = "linux"))]
impl HardwareCounters {
    /// There are none.
    ///
    /// # Errors
    /// Always.
    pub fn open() -> Result<HardwareCounters, CounterError> {
        Err(CounterError::NoPerfEvents)
    }

    /// None.
    pub fn threads(&self) -> usize {
        0
    }

    /// There are none.
    ///
    /// # Errors
    /// Always.
    pub fn count(self, _: impl FnOnce()) -> Result<Vec<(&'static str, u64)>, CounterError> {
        Err(CounterError::NoPerfEvents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions of a turn of the loop, at the least.
    const LEAST: u64 = 2;

    /// A host counts, or says why it does not.
    #[test]
    fn counters_count_what_runs_or_say_why_not() {
        fn sum(n: u64) -> u64 {
            (0..n).fold(0u64, |a, k| std::hint::black_box(a ^ k))
        }
        // Half of the work is another thread's, which is there before counting begins.
        let counted = |n: u64| {
            let (ask, asked) = std::sync::mpsc::channel::<u64>();
            let (tell, told) = std::sync::mpsc::channel::<u64>();
            let worker = std::thread::spawn(move || {
                tell.send(0).expect("is heard");
                asked.iter().for_each(|n| tell.send(sum(n)).expect("is heard"));
            });
            told.recv().expect("it runs");
            let all = HardwareCounters::open().and_then(|counters| {
                assert!(counters.threads() >= 2);
                counters.count(|| {
                    ask.send(n).expect("is heard");
                    std::hint::black_box(sum(n) ^ told.recv().expect("it answers"));
                })
            });
            drop(ask);
            worker.join().expect("ends");
            all
        };
        match (counted(1_000), counted(1_000_000)) {
            (Ok(few), Ok(many)) => {
                let of = |all: &[(&str, u64)]| {
                    all.iter().find(|(name, _)| *name == "instructions").map(|&(_, n)| n)
                };
                if let (Some(few), Some(many)) = (of(&few), of(&many)) {
                    assert!(many > few + 1_900_000 * LEAST, "{few} {many}");
                }
            }
            (Err(e), _) | (_, Err(e)) => assert!(e.to_string().len() > 20, "{e}"),
        }
    }
}
