//! Interrupts: Ctrl-C ends training after the present step.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How many loops are running.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// While there is one, Ctrl-C sets a flag; a second one, or one at any other time, ends the program at once.
pub(super) struct InterruptWatch(());

impl Drop for InterruptWatch {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Watches for Ctrl-C.
pub(super) fn watch() -> InterruptWatch {
    if RUNNING.fetch_add(1, Ordering::Relaxed) == 0 {
        INTERRUPTED.store(false, Ordering::Relaxed);
    }
    static WATCHED: OnceLock<()> = OnceLock::new();
    WATCHED.get_or_init(|| {
        // Where another part of the program handles interrupts, it keeps doing so.
        let _ = ctrlc::set_handler(|| {
            let idle = RUNNING.load(Ordering::Relaxed) == 0;
            if INTERRUPTED.swap(true, Ordering::Relaxed) || idle {
                std::process::exit(130);
            }
        });
    });
    InterruptWatch(())
}

/// Whether there was an interrupt, which this takes note of.
pub(super) fn taken() -> bool {
    INTERRUPTED.swap(false, Ordering::Relaxed)
}
