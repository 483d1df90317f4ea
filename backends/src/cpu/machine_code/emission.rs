//! The x86 emitter's work, on a thread of its own: loop programs are submitted while steps are compiled, and are emitted meanwhile.
//!
//! Most of what compiling takes is emission, and a loop program is all that it needs. The emitter finds out only while it works that
//! it does not support a sweep, when the sweep is gone. So what it answered is kept, and all steps are compiled once more: what was
//! emitted is reused, and the refused sweeps go to Cranelift at once. The order of the functions is that of their submission, whichever thread
//! emitted them.

use crate::cpu::codegen::loop_program::LoopProgram;
use crate::cpu::codegen::vector_width::{Unsupported, Vectors};
use crate::cpu::x86::{NoCode, SweepCode, make};
use adfuse_ir::Diagnostic;
use std::collections::VecDeque;
use std::mem::take;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Programs that wait before a thread is begun: one takes as long to emit as a thread to begin.
const WORTH_A_THREAD: usize = 3;

/// A loop program, and what the emitter made of it.
pub(super) struct Emitted {
    program: LoopProgram,
    pub(super) code: Result<SweepCode, Unsupported>,
    pub(super) took: Duration,
}

/// What has been submitted, and what has been emitted of it.
#[derive(Default)]
pub(super) struct EmissionQueue {
    shared: Arc<Shared>,
    helper: Option<JoinHandle<()>>,
    /// How many programs were submitted, refused ones among them.
    submitted: usize,
    /// What was answered when the steps were compiled before, if they were.
    known: Option<Vec<Option<Emitted>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<EmissionState>,
    changed: Condvar,
}

#[derive(Default)]
struct EmissionState {
    waiting: VecDeque<(usize, LoopProgram, Vectors)>,
    /// With their numbers, in any order.
    done: Vec<(usize, Result<Emitted, Diagnostic>)>,
    is_closed: bool,
}

fn emitted(program: LoopProgram, vectors: Vectors) -> Result<Emitted, Diagnostic> {
    let begun = Instant::now();
    let code = match make(&program, vectors) {
        Ok(code) => Ok(code),
        Err(NoCode::Taken(why)) => Err(why),
        Err(NoCode::Failed(d)) => return Err(d),
    };
    Ok(Emitted { program, code, took: begun.elapsed() })
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, EmissionState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Emits what waits, and with `stay` what is submitted later, until nothing more will be.
    fn work(&self, stay: bool) {
        let mut queue = self.queue();
        loop {
            if let Some((number, program, vectors)) = queue.waiting.pop_front() {
                drop(queue);
                let done = emitted(program, vectors);
                queue = self.queue();
                queue.done.push((number, done));
            } else if !stay || queue.is_closed {
                return;
            } else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl EmissionQueue {
    /// Submits a program; gives the number of its function among those of the emitter.
    ///
    /// # Errors
    /// Where the emitter has been found not to support it, or something is wrong.
    pub(super) fn submit(
        &mut self,
        program: LoopProgram,
        vectors: Vectors,
    ) -> Result<usize, NoCode> {
        let number = self.submitted;
        self.submitted += 1;
        let Some(known) = &mut self.known else {
            let mut queue = self.shared.queue();
            queue.waiting.push_back((number, program, vectors));
            let waiting = queue.waiting.len();
            drop(queue);
            match self.helper {
                Some(_) => self.shared.changed.notify_one(),
                None if waiting >= WORTH_A_THREAD => {
                    let shared = Arc::clone(&self.shared);
                    // Where there is no thread to be had, this one emits everything in the end.
                    self.helper = Builder::new().spawn(move || shared.work(true)).ok();
                }
                None => {}
            }
            return Ok(number);
        };
        let known = known.get_mut(number).and_then(|k| k.take_if(|k| k.program == program));
        let done = known.map_or_else(|| emitted(program, vectors), Ok).map_err(NoCode::Failed)?;
        if let Err(why) = done.code {
            return Err(NoCode::Taken(why));
        }
        let mut queue = self.shared.queue();
        let number = queue.done.len();
        queue.done.push((number, Ok(done)));
        Ok(number)
    }

    /// Waits for everything; gives it in the order of its submission.
    ///
    /// # Errors
    /// That of the first program with which something is wrong.
    pub(super) fn settled(&mut self) -> Result<Vec<Emitted>, Diagnostic> {
        self.shared.work(false);
        self.close();
        let mut done = take(&mut self.shared.queue().done);
        done.sort_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, done)| done).collect()
    }

    /// For steps that are compiled once more, after these answers.
    pub(super) fn again(known: Vec<Emitted>) -> EmissionQueue {
        let mut again = EmissionQueue::default();
        again.known = Some(known.into_iter().map(Some).collect());
        again
    }

    fn close(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.changed.notify_one();
        if let Some(Err(panic)) = self.helper.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for EmissionQueue {
    fn drop(&mut self) {
        self.shared.queue().waiting.clear();
        self.close();
    }
}
