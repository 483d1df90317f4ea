//! A device's context, with its streams and its pool of memory: it is opened on a thread of its own, since that takes longer than planning most
//! programs, and awaited by the first that needs it.
#![allow(unsafe_code)]

use super::cuda::{Refused, answered, new_stream};
use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUmemPool_attribute, CUmemoryPool, CUresult, CUstream,
};
use std::sync::{LazyLock, Mutex};
use std::thread;

/// The stream in which graphs are drawn.
pub(crate) struct Drawing(pub(crate) CUstream);

/// A device's primary context, retained, and what is made in it once.
pub(crate) struct Context {
    raw: CUdevice,
    primary: CUcontext,
    pub(crate) stream: CUstream,
    pub(crate) drawing: Mutex<Drawing>,
    pool: CUmemoryPool,
}

// SAFETY: a context is handles that the driver takes from any thread, once the thread has entered it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What is being opened on another thread; what reads it waits.
pub(crate) type Opening<T> =
    LazyLock<Result<T, Refused>, Box<dyn FnOnce() -> Result<T, Refused> + Send>>;

fn begun<T: Send + 'static>(
    open: impl Fn() -> Result<T, Refused> + Copy + Send + 'static,
) -> Opening<T> {
    let opening = thread::Builder::new().name("gpu context".into()).spawn(open);
    LazyLock::new(match opening {
        Ok(opening) => Box::new(move || opening.join().unwrap_or(Err(LOST))),
        // A host without another thread waits for it where it is read.
        Err(_) => Box::new(open),
    })
}

impl Context {
    /// Begins to open the context of a device.
    pub(crate) fn begin(raw: CUdevice) -> Opening<Context> {
        begun(move || Context::open(raw))
    }

    /// Of a device that is only described.
    pub(crate) fn none() -> Opening<Context> {
        LazyLock::new(Box::new(|| Err(Refused::described())))
    }

    fn open(raw: CUdevice) -> Result<Context, Refused> {
        let mut primary = std::ptr::null_mut();
        // SAFETY: the device is there; what is retained is released when this is dropped.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut primary, raw) };
        answered("cuDevicePrimaryCtxRetain", retained)?;
        let mut made = Context {
            raw,
            primary,
            stream: std::ptr::null_mut(),
            drawing: Mutex::new(Drawing(std::ptr::null_mut())),
            pool: std::ptr::null_mut(),
        };
        made.enter()?;
        made.stream = new_stream(0)?;
        made.drawing = Mutex::new(Drawing(new_stream(0)?));
        // SAFETY: the device is there, and the driver writes a handle that it keeps.
        let pool = unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut made.pool, raw) };
        answered("cuDeviceGetDefaultMemPool", pool)?;
        // Memory that is given back stays at hand for the next that asks.
        made.set(CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
        Ok(made)
    }

    /// Has the calling thread work in it.
    pub(crate) fn enter(&self) -> Result<(), Refused> {
        // SAFETY: what was retained is not released before this is dropped.
        answered("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.primary) })
    }

    /// Gives back to the driver what is kept at hand.
    pub(crate) fn trim(&self) {
        // SAFETY: the pool is the device's own. What the driver says does not matter: it is asked again
        // for what is needed.
        unsafe { sys::cuMemPoolTrimTo(self.pool, 0) };
    }

    /// What the pool of memory says.
    pub(crate) fn get(&self, what: CUmemPool_attribute) -> Result<u64, Refused> {
        let mut value = 0u64;
        // SAFETY: the attributes asked for are of 64 bits.
        let code = unsafe { sys::cuMemPoolGetAttribute(self.pool, what, (&raw mut value).cast()) };
        answered("cuMemPoolGetAttribute", code)?;
        Ok(value)
    }

    /// Tells the pool of memory.
    pub(crate) fn set(&self, what: CUmemPool_attribute, mut value: u64) -> Result<(), Refused> {
        // SAFETY: the attributes set are of 64 bits.
        let code = unsafe { sys::cuMemPoolSetAttribute(self.pool, what, (&raw mut value).cast()) };
        answered("cuMemPoolSetAttribute", code)
    }
}

/// The thread that opens a context has ended without one.
const LOST: Refused = Refused::of("cuDevicePrimaryCtxRetain", CUresult::CUDA_ERROR_UNKNOWN);

impl Drop for Context {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            let drawing =
                self.drawing.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).0;
            for stream in [self.stream, drawing].into_iter().filter(|s| !s.is_null()) {
                // SAFETY: streams are destroyed once, here; work in them goes on to its end.
                unsafe { sys::cuStreamDestroy_v2(stream) };
            }
        }
        // SAFETY: it was retained once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Opening goes on while nobody waits, once, and what it gives is there for all.
    #[test]
    fn opening_goes_on_while_nobody_waits() {
        static OPENED: AtomicUsize = AtomicUsize::new(0);
        let opening = begun(|| {
            OPENED.fetch_add(1, Ordering::SeqCst);
            Ok(thread::current().id())
        });
        while OPENED.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        let ids = thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (*opening).unwrap_or_else(|_| unreachable!())))
                .collect();
            readers.into_iter().map(|r| r.join().expect("reads")).collect::<Vec<_>>()
        });
        assert!(ids.iter().all(|&id| id == ids[0] && id != thread::current().id()));
        assert_eq!(OPENED.load(Ordering::SeqCst), 1);
    }

    /// What the driver refuses is told to all that wait; so is a thread that is lost.
    #[test]
    fn refusals_are_told_to_all_that_wait() {
        const MEMORY: Refused =
            Refused::of("cuDevicePrimaryCtxRetain", CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let told = |opening: Opening<()>| [(); 2].map(|()| opening.as_ref().err().copied());
        assert_eq!(told(begun(|| Err(MEMORY))), [Some(MEMORY); 2]);
        assert_eq!(told(begun(|| -> Result<(), Refused> { panic!("lost") })), [Some(LOST); 2]);
    }
}
