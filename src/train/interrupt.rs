//! Interrupts: Ctrl-C ends training after the present step.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Has Ctrl-C set a flag from now on; a second one ends the program at once.
pub(super) fn watch() {
    static WATCHED: OnceLock<()> = OnceLock::new();
    WATCHED.get_or_init(|| {
        // Where another part of the program handles interrupts, it keeps doing so.
        let _ = ctrlc::set_handler(|| {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        });
    });
}

/// Whether there was an interrupt, which this takes note of.
pub(super) fn taken() -> bool {
    INTERRUPTED.swap(false, Ordering::Relaxed)
}
