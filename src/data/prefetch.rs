//! Items that a thread makes ahead of their use.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// Items that wait to be taken, at most; one more is being made.
const WAITING: usize = 2;

/// The items of an iterator, made by a thread. When it is dropped, the thread ends after the item that it is making. A
/// panic of the thread goes on in the thread that asks for the next item.
#[derive(Debug)]
pub struct Prefetched<T> {
    /// Absent when there is nothing more.
    items: Option<Receiver<T>>,
    /// How many are left, as far as the iterator knew.
    left: (usize, Option<usize>),
    worker: Option<JoinHandle<()>>,
}

/// Has a thread of its own make the items of an iterator, two ahead of their use.
///
/// ```
/// let squares = adfuse::data::prefetch((0..4).map(|k| k * k));
/// assert_eq!(squares.collect::<Vec<_>>(), [0, 1, 4, 9]);
/// ```
pub fn prefetch<I>(items: I) -> Prefetched<I::Item>
where
    I: IntoIterator,
    I::IntoIter: Send + 'static,
    I::Item: Send + 'static,
{
    let (to, from) = sync_channel(WAITING);
    let mut items = items.into_iter();
    let left = items.size_hint();
    let worker = thread::spawn(move || {
        // Nobody takes what is made when the other end is gone.
        while let Some(item) = items.next()
            && to.send(item).is_ok()
        {}
    });
    Prefetched { items: Some(from), left, worker: Some(worker) }
}

impl<T> Iterator for Prefetched<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if let Ok(item) = self.items.as_ref()?.recv() {
            let (least, most) = self.left;
            self.left = (least.saturating_sub(1), most.map(|n| n.saturating_sub(1)));
            return Some(item);
        }
        self.items = None;
        self.left = (0, Some(0));
        if let Some(Err(panic)) = self.worker.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left
    }
}

impl<T> Drop for Prefetched<T> {
    fn drop(&mut self) {
        // The thread waits for a place in the channel until this end is gone.
        self.items = None;
        if let Some(worker) = self.worker.take() {
            // A panic that nobody asked for has been printed.
            let _ = worker.join();
        }
    }
}
