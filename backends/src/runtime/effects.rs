//! Where the effects of programs go: to a sink that the caller gives for a time, or to the error stream.
#![allow(unsafe_code)]

use super::array::Array;
use super::array_text::write_array;
use std::cell::Cell;
use std::io::{self, Write};
use std::ptr::NonNull;

/// Where effects go.
pub trait Effects {
    /// A `debug_print` with its label.
    fn print(&mut self, label: &str, value: &Array);
}

/// A sink that discards effects.
pub struct Silent;

impl Effects for Silent {
    fn print(&mut self, _: &str, _: &Array) {}
}

/// A sink that writes effects to a stream, as [`write_array`] does. A stream that is closed stops nothing.
pub struct WrittenEffects<'a>(pub &'a mut dyn Write);

impl Effects for WrittenEffects<'_> {
    fn print(&mut self, label: &str, value: &Array) {
        // One write: what others write at the time is before or after it.
        let mut text = Vec::new();
        let _ = write_array(&mut text, &label.escape_debug().to_string(), value);
        let _ = self.0.write_all(&text);
    }
}

/// The sink of the scope that the calling thread is in ([`with_effects`]).
pub struct ScopedEffects;

impl Effects for ScopedEffects {
    fn print(&mut self, label: &str, value: &Array) {
        print_effect(label, value);
    }
}

/// A sink of a scope, whose lifetime is the scope's.
type ScopedSink = NonNull<dyn Effects>;

thread_local! {
    static SINK: Cell<Option<ScopedSink>> = const { Cell::new(None) };
}

/// Puts the sink back that there was before, whatever becomes of the scope.
struct Restored(Option<ScopedSink>);

impl Drop for Restored {
    fn drop(&mut self) {
        SINK.set(self.0);
    }
}

/// What `run` gives. The effects of the programs that it runs on this thread go to `effects`; otherwise those of compiled
/// programs go to the error stream. The innermost of several scopes has them.
///
/// ```
/// use adfuse_backends::{Array, Effects, print_effect, with_effects};
///
/// struct Labels(Vec<String>);
///
/// impl Effects for Labels {
///     fn print(&mut self, label: &str, _: &Array) {
///         self.0.push(label.into());
///     }
/// }
///
/// let mut labels = Labels(Vec::new());
/// with_effects(&mut labels, || print_effect("x", &Array::from_f32s(&[1], &[0.5]).expect("fits")));
/// assert_eq!(labels.0, ["x"]);
/// ```
pub fn with_effects<T>(effects: &mut dyn Effects, run: impl FnOnce() -> T) -> T {
    let sink: NonNull<dyn Effects + '_> = NonNull::from(effects);
    // SAFETY: the lifetime alone changes. The pointer is in `SINK` as long as `_restored` lives, which ends before
    // the borrow of `effects` does; it is for this thread alone, and `print_effect` takes it out while it is used, so
    // that no two references to the sink live at a time.
    let sink = unsafe { std::mem::transmute::<NonNull<dyn Effects + '_>, ScopedSink>(sink) };
    let _restored = Restored(SINK.replace(Some(sink)));
    run()
}

/// A `debug_print` of a program that runs on this thread.
pub fn print_effect(label: &str, value: &Array) {
    let sink = SINK.take();
    let _restored = Restored(sink);
    match sink {
        // SAFETY: the scope that put it there has not ended, and borrows the sink for nobody else.
        Some(mut sink) => unsafe { sink.as_mut() }.print(label, value),
        None => WrittenEffects(&mut io::stderr()).print(label, value),
    }
}
