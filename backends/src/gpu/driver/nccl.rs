//! NCCL, which moves tensors between the GPUs of ranks: found when a program runs, never needed to build.
//!
//! It moves bytes alone. Sums over ranks are kernels of the program, so that their order is that of the program and not of
//! the library. The ranks' processes know each other by TCP before ([`RankGroup`]), hand the identifier on that way, and see
//! that way when one of them is gone: then what waits for it on a GPU is aborted.
#![allow(unsafe_code)]

use super::cuda::{absent, answered, new_stream};
use super::shared_library::{FunctionAddress, folders, open, symbol};
use crate::runtime::ranks::{RankGroup, lost};
use adfuse_ir::kernel::ExchangeKind;
use adfuse_ir::{At, Diagnostic, Kind};
use cudarc::driver::sys::{CUdeviceptr, CUstream, cuMemsetD32Async, cuStreamDestroy_v2};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Names a folder in which the library is.
const FOLDER: &str = "ADFUSE_NCCL";

/// Names of the library's file.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// How often is asked whether all ranks are there.
const WATCH: Duration = Duration::from_millis(500);

/// How long a rank that has left may be waited for: what it has sent before is on its way.
const LEAVING: Duration = Duration::from_secs(5);

/// The library's handle of a communicator.
type Comm = *mut c_void;

/// What the library answers: 0 where all is well.
type NcclResult = c_int;

/// What all ranks are told so that they find each other.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// The number by which the library knows bytes.
const BYTES: c_int = 1;

/// Declares the functions that are called, which are looked up in the library by their names.
macro_rules! functions {
    ($($field:ident $name:literal ($($arg:ty),*);)*) => {
        /// The library.
        struct Nccl {
            $($field: unsafe extern "C" fn($($arg),*) -> NcclResult,)*
            text: unsafe extern "C" fn(NcclResult) -> *const c_char,
        }

        impl Nccl {
            /// Looks all functions up; `None` where the library lacks one.
            fn found() -> Option<Nccl> {
                Some(Nccl {
                    // SAFETY: the function of this name has these operands in every version of the library.
                    $($field: unsafe { std::mem::transmute::<FunctionAddress, unsafe extern "C" fn($($arg),*) -> NcclResult>(
                        symbol(&NAMES, $name)?,
                    ) },)*
                    // SAFETY: as above.
                    text: unsafe {
                        std::mem::transmute::<FunctionAddress, unsafe extern "C" fn(NcclResult) -> *const c_char>(
                            symbol(&NAMES, c"ncclGetErrorString")?,
                        )
                    },
                })
            }
        }
    };
}

functions! {
    unique_id c"ncclGetUniqueId" (*mut UniqueId);
    init c"ncclCommInitRank" (*mut Comm, c_int, UniqueId, c_int);
    abort c"ncclCommAbort" (Comm);
    group_start c"ncclGroupStart" ();
    group_end c"ncclGroupEnd" ();
    send c"ncclSend" (*const c_void, usize, c_int, c_int, Comm, CUstream);
    receive c"ncclRecv" (*mut c_void, usize, c_int, c_int, Comm, CUstream);
    all_gather c"ncclAllGather" (*const c_void, *mut c_void, usize, c_int, Comm, CUstream);
    broadcast c"ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, CUstream);
}

/// The library, looked for once.
fn library() -> Option<&'static Nccl> {
    static FOUND: OnceLock<Option<Nccl>> = OnceLock::new();
    let look = || {
        let named = std::env::var_os(FOLDER).filter(|v| !v.is_empty()).map(PathBuf::from);
        // An empty folder has it found where libraries are.
        let usual = [PathBuf::new()].into_iter().chain(folders(&["nccl/lib", "cu13/lib"]));
        named.into_iter().chain(usual).any(|folder| open(&folder, &NAMES)).then(Nccl::found)?
    };
    FOUND.get_or_init(look).as_ref()
}

impl Nccl {
    fn done(&self, call: &str, answer: NcclResult) -> Result<(), Diagnostic> {
        if answer == 0 {
            return Ok(());
        }
        // SAFETY: the library has a text that ends with 0 for every answer, and never frees it.
        let text = unsafe { CStr::from_ptr((self.text)(answer)) };
        let m = format!("NCCL refused {call}: {}", text.to_string_lossy());
        Err(Diagnostic::new(At::default(), Kind::Internal, m))
    }
}

/// Exchanges are placed before other work that waits: they take few blocks, and ranks wait for each other.
const PRIORITY: i32 = -8;

/// The communicator of a GPU; none once it was aborted.
struct RawComm(Option<Comm>);

/// A stream of the device.
struct RawStream(CUstream);

// SAFETY: the driver takes the handle from any thread.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}

// SAFETY: the library takes the handle from any thread; it is used by one at a time.
unsafe impl Send for RawComm {}

/// The connection of a GPU with those of the other ranks.
pub(crate) struct GpuLink {
    pub(crate) group: RankGroup,
    nccl: &'static Nccl,
    comm: Mutex<RawComm>,
    stream: RawStream,
    /// Why it was aborted.
    aborted: OnceLock<Diagnostic>,
}

impl GpuLink {
    /// Connects the GPU that the thread has entered with those of all ranks. All of them call this.
    ///
    /// # Errors
    /// [`Kind::NoDevice`] where there is no NCCL; [`Kind::LostRank`] when a rank is gone; what NCCL refuses.
    pub(crate) fn connect(group: &RankGroup) -> Result<Arc<GpuLink>, Diagnostic> {
        let communicator =
            group.communicator().ok_or_else(|| absent("there are no other ranks"))?;
        let Some(nccl) = library() else {
            let m = "GPUs of several ranks exchange by NCCL, and there is none";
            let hint = format!("install `nvidia-nccl-cu13`, or name its folder by {FOLDER}");
            return Err(absent(m).hint(hint));
        };
        let mut id = UniqueId([0; 128]);
        if communicator.rank() == 0 {
            // SAFETY: the library writes the identifier.
            nccl.done("ncclGetUniqueId", unsafe { (nccl.unique_id)(&raw mut id) })?;
        }
        let own = id.0;
        communicator.exchange(ExchangeKind::Broadcast { root: 0 }, &own, &mut id.0)?;
        let mut comm: Comm = std::ptr::null_mut();
        let (ranks, rank) = (communicator.ranks() as c_int, communicator.rank() as c_int);
        // SAFETY: the thread has entered its device, all ranks have the same identifier, and the library writes a handle.
        let made = unsafe { (nccl.init)(&raw mut comm, ranks, id, rank) };
        nccl.done("ncclCommInitRank", made)?;
        let comm = Mutex::new(RawComm(Some(comm)));
        let stream = RawStream(new_stream(PRIORITY)?);
        let (group, aborted) = (group.clone(), OnceLock::new());
        let link = Arc::new(GpuLink { group, nccl, comm, stream, aborted });
        let watched = Arc::downgrade(&link);
        thread::Builder::new()
            .name("nccl-watch".into())
            .spawn(move || watch(&watched))
            .map_err(|e| lost(format!("cannot start a thread: {e}")))?;
        Ok(link)
    }

    /// The stream of exchanges that go on beside other work.
    pub(crate) fn stream(&self) -> CUstream {
        self.stream.0
    }

    /// Errs when a rank was lost, and what was asked for since is worth nothing.
    pub(crate) fn check(&self) -> Result<(), Diagnostic> {
        self.aborted.get().map_or(Ok(()), |d| Err(d.clone()))
    }

    /// Asks for an exchange in a stream: of `bytes` from each rank to each, or of as many in all where one sends.
    pub(crate) fn exchange(
        &self,
        kind: ExchangeKind,
        (from, to): (Option<CUdeviceptr>, CUdeviceptr),
        bytes: u64,
        stream: CUstream,
    ) -> Result<(), Diagnostic> {
        let rank = self.group.rank();
        if kind == ExchangeKind::Index {
            // SAFETY: the place has the four bytes of an `i32`.
            let set = unsafe { cuMemsetD32Async(to, rank, 1, stream) };
            return Ok(answered("cuMemsetD32Async", set)?);
        }
        // Not locked for the call: the first exchange waits in it for all ranks, and one that waits is ended by an abort.
        let comm = self.comm.lock().unwrap_or_else(PoisonError::into_inner).0;
        let Some(comm) = comm else { return self.check() };
        let Some(from) = from.filter(|_| bytes > 0) else { return Ok(()) };
        let asked = self.ask(kind, (comm, stream), (from, to), bytes);
        // What an abort ends is not NCCL's fault.
        asked.or_else(|d| self.check().and(Err(d)))
    }

    fn ask(
        &self,
        kind: ExchangeKind,
        (comm, stream): (Comm, CUstream),
        (from, to): (CUdeviceptr, CUdeviceptr),
        bytes: u64,
    ) -> Result<(), Diagnostic> {
        let (nccl, count) = (self.nccl, bytes as usize);
        let at = |base: CUdeviceptr, other: u64| (base + other * bytes) as usize as *mut c_void;
        match kind {
            ExchangeKind::Index => Ok(()),
            // SAFETY: the buffers have this many bytes, and as many for each rank, as the verifier has seen; the communicator and
            // the stream live.
            ExchangeKind::AllGather => nccl.done("ncclAllGather", unsafe {
                (nccl.all_gather)(at(from, 0), at(to, 0), count, BYTES, comm, stream)
            }),
            // SAFETY: as above.
            ExchangeKind::Broadcast { root } => nccl.done("ncclBroadcast", unsafe {
                (nccl.broadcast)(at(from, 0), at(to, 0), count, BYTES, root as c_int, comm, stream)
            }),
            ExchangeKind::AllToAll => {
                // SAFETY: a group is ended whatever becomes of it.
                nccl.done("ncclGroupStart", unsafe { (nccl.group_start)() })?;
                let mut asked = Ok(());
                for other in 0..u64::from(self.group.ranks()) {
                    let (own, theirs, peer) = (at(to, other), at(from, other), other as c_int);
                    // SAFETY: as above; what is received lies apart from what is sent.
                    let both = || unsafe {
                        let sent = (nccl.send)(theirs, count, BYTES, peer, comm, stream);
                        nccl.done("ncclSend", sent)?;
                        nccl.done("ncclRecv", (nccl.receive)(own, count, BYTES, peer, comm, stream))
                    };
                    asked = asked.and_then(|()| both());
                }
                // SAFETY: a group was begun.
                let ended = nccl.done("ncclGroupEnd", unsafe { (nccl.group_end)() });
                asked.and(ended)
            }
        }
    }

    /// Has all end that waits for other ranks.
    fn abort(&self, why: Diagnostic) {
        let _ = self.aborted.set(why);
        let mut comm = self.comm.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(comm) = comm.0.take() {
            // SAFETY: the handle is taken away, so that nobody uses it any more. What the library says does not matter: it has
            // no more to do.
            unsafe { (self.nccl.abort)(comm) };
        }
    }
}

impl Drop for GpuLink {
    fn drop(&mut self) {
        let comm = self.comm.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(comm) = comm.0.take() {
            // SAFETY: as above; whoever drops this has waited for its work.
            unsafe { (self.nccl.abort)(comm) };
        }
        // SAFETY: it was made once; work in it goes on to its end.
        unsafe { cuStreamDestroy_v2(self.stream.0) };
    }
}

/// Aborts a link when a rank is gone; ends with the link.
fn watch(link: &Weak<GpuLink>) {
    loop {
        thread::sleep(WATCH);
        let Some(found) = link.upgrade() else { return };
        if let Err(why) = found.group.check() {
            drop(found);
            thread::sleep(LEAVING);
            if let Some(found) = link.upgrade() {
                found.abort(why);
            }
            return;
        }
    }
}
