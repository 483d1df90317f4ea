//! Modules: PTX to the device's own code, by the driver's assembler, or that code as it was kept before.
#![allow(unsafe_code)]

use super::cuda::{Refused, answered};
use super::device::{Facts, GpuDevice};
use super::pieces::{ModulePiece, moves_registers, pieces};
use super::ptxas::{self, AssembledText, Ptxas};
use adfuse_ir::{At, Diagnostic, Kind};
use cudarc::driver::sys::{
    self, CUfunction, CUfunction_attribute, CUjit_option, CUjitInputType, CUlinkState, CUmodule,
};
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Keeps code of devices from one run for the next.
pub trait KeptCode: Send + Sync {
    /// What is kept for a key, if that is there and whole.
    fn find(&self, key: &str) -> Option<Vec<u8>>;

    /// Keeps it. A failure to keep it is not an error for whoever asked: it is made again where it is missing.
    fn keep(&self, key: &str, code: &[u8]);
}

/// A module on a device, loaded in pieces.
pub(crate) struct Loaded {
    device: Arc<GpuDevice>,
    modules: Vec<CUmodule>,
    /// For each entry point the number of the piece that has it.
    entries: BTreeMap<String, usize>,
    /// The modules of users' kernels.
    users: Vec<UserModule>,
    /// What assemblers noted of the text.
    notes: Vec<String>,
    /// Whether all of it was kept from a run before.
    pub(crate) kept: bool,
    /// Bytes of its code.
    pub(crate) bytes: u64,
}

// SAFETY: a module is a handle that the driver takes from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// A module of a user's, loaded.
struct UserModule {
    module: CUmodule,
    /// What the assembler said of it.
    notes: Vec<String>,
}

/// A function of a module.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) raw: CUfunction,
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Bytes of a thread's own memory outside of registers.
    pub(crate) local: u32,
    /// Threads that a block may have with these registers.
    pub(crate) most_threads: u32,
}

// SAFETY: a function is a handle as a module is, and its executable keeps the module.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// Room for what the assembler has to say.
const LOG: usize = 16 << 10;

/// What the code of a text depends on, beside the text: the form, the driver and the chip.
pub(crate) fn key(text: &str, facts: &Facts) -> String {
    let Facts { driver, compute: (major, minor), name, .. } = facts;
    let mut hash = Sha256::new();
    hash.update(format!("adfuse cubin 1\ndriver {driver}\nchip sm_{major}{minor} {name}\n"));
    hash.update(text);
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

impl Loaded {
    /// How many multiprocessors its device has.
    pub(crate) fn processors(&self) -> u32 {
        self.device.facts().processors
    }

    /// Loads a text.
    ///
    /// # Errors
    /// [`Kind::Internal`] with what the driver's assembler says.
    pub(crate) fn new(
        device: &Arc<GpuDevice>,
        text: &str,
        cache: Option<&dyn KeptCode>,
    ) -> Result<Loaded, Diagnostic> {
        device.enter()?;
        let pieces = pieces(text);
        let next = AtomicUsize::new(0);
        let made: Vec<OnceLock<Result<LoadedPiece, Diagnostic>>> =
            pieces.iter().map(|_| OnceLock::new()).collect();
        // Long texts take longest: they are begun first, so that short ones fill the threads at the end.
        let mut longest: Vec<_> = pieces.iter().zip(&made).collect();
        longest.sort_by_key(|(piece, _)| Reverse(piece.text.len()));
        // The assembler takes most of the time: a piece for each thread that is free.
        let work = || {
            while let Some(&(piece, place)) = longest.get(next.fetch_add(1, Ordering::Relaxed)) {
                let loaded = device.enter().map_err(Diagnostic::from);
                let loaded = loaded.and_then(|()| LoadedPiece::of(piece, device.facts(), cache));
                place.set(loaded).unwrap_or_else(|_| unreachable!("each piece is taken once"));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 1..threads.min(pieces.len()) {
                scope.spawn(work);
            }
            work();
        });
        let mut loaded = Loaded {
            device: Arc::clone(device),
            modules: Vec::new(),
            entries: BTreeMap::new(),
            users: Vec::new(),
            notes: Vec::new(),
            kept: true,
            bytes: 0,
        };
        let mut failed = None;
        for (piece, made) in pieces.into_iter().zip(made) {
            match made.into_inner().unwrap_or_else(|| unreachable!("all are taken")) {
                Ok(LoadedPiece { module, notes, kept, bytes }) => {
                    loaded.notes.extend(notes);
                    let number = loaded.modules.len();
                    loaded.modules.push(module);
                    loaded.entries.extend(piece.entries.into_iter().map(|name| (name, number)));
                    loaded.kept &= kept;
                    loaded.bytes += bytes;
                }
                // Those that are loaded are to be unloaded all the same.
                Err(d) => failed = failed.or(Some(d)),
            }
        }
        failed.map_or(Ok(loaded), Err)
    }

    /// Loads the module of a user's kernel, after those that were loaded before. The driver keeps its code.
    ///
    /// # Errors
    /// [`Kind::Usage`] with what the driver's assembler says.
    pub(crate) fn add_user(&mut self, text: &str) -> Result<(), Diagnostic> {
        let loaded = load_text(text).map_err(|d| {
            let message = format!("the PTX does not assemble: {}", d.message);
            Diagnostic { kind: Kind::Usage, message, ..d }
        });
        let (module, notes) = loaded?;
        self.users.push(UserModule { module, notes });
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// What assemblers noted of an entry point.
    pub(crate) fn notes_of_entry(&self, entry: &str) -> impl Iterator<Item = &String> {
        let named = format!("'{entry}'");
        self.notes.iter().filter(move |note| note.contains(&named))
    }

    /// What the assembler said of a user's module.
    pub(crate) fn notes_of_user(&self, number: usize) -> &[String] {
        self.users.get(number).map_or(&[], |user| &user.notes)
    }

    /// A function of the text, or of a user's module, which may use this many bytes of shared memory.
    pub(crate) fn entry(
        &self,
        (user, name): (Option<usize>, &str),
        shared: u32,
    ) -> Result<Entry, Diagnostic> {
        let wrong = |m: String| Diagnostic::new(At::default(), Kind::Internal, m);
        let module = match user {
            Some(number) => self.users.get(number).map(|user| user.module),
            None => self.entries.get(name).and_then(|&k| self.modules.get(k)).copied(),
        };
        let module = module.ok_or_else(|| wrong(format!("there is no entry point `{name}`")))?;
        let name = CString::new(name).map_err(|_| wrong("an entry point has a 0".into()))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with 0, and the driver writes a handle.
        let code = unsafe { sys::cuModuleGetFunction(&raw mut raw, module, name.as_ptr()) };
        answered("cuModuleGetFunction", code)?;
        // A user's function may have shared memory of its own beside.
        if shared > PLAIN_SHARED || user.is_some() && shared > 0 {
            let what = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is there.
            let code = unsafe { sys::cuFuncSetAttribute(raw, what, shared as i32) };
            answered("cuFuncSetAttribute", code)?;
        }
        let ask = |what| {
            let mut value = 0;
            // SAFETY: the function is there, and the driver writes one number.
            let code = unsafe { sys::cuFuncGetAttribute(&raw mut value, what, raw) };
            answered("cuFuncGetAttribute", code).map(|()| value.unsigned_abs())
        };
        // To ask has the driver load the function now: while a graph is drawn it could not.
        let registers = ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?;
        let local = ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
        let most_threads = ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        Ok(Entry { raw, registers, local, most_threads })
    }
}

/// A piece on the device.
struct LoadedPiece {
    module: CUmodule,
    /// What assemblers noted.
    notes: Vec<String>,
    /// Whether its code was kept from a run before. What the driver keeps itself counts as that.
    kept: bool,
    /// Bytes of its code, or of its text where the driver does not hand the code out.
    bytes: u64,
}

// SAFETY: a module is a handle that the driver takes from any thread.
unsafe impl Send for LoadedPiece {}
// SAFETY: as above.
unsafe impl Sync for LoadedPiece {}

impl LoadedPiece {
    fn of(
        piece: &ModulePiece,
        facts: &Facts,
        cache: Option<&dyn KeptCode>,
    ) -> Result<LoadedPiece, Diagnostic> {
        match moves_registers(&piece.text) {
            true => LoadedPiece::of_moving(piece, facts, cache),
            false => LoadedPiece::by(Assembler::Linker, piece, facts, cache),
        }
    }

    /// A piece whose warps hand registers to others: by the toolkit's assembler where that is found and the driver takes what it makes,
    /// otherwise by the driver's, which keeps the code itself.
    fn of_moving(
        piece: &ModulePiece,
        facts: &Facts,
        cache: Option<&dyn KeptCode>,
    ) -> Result<LoadedPiece, Diagnostic> {
        let toolkit = ptxas::found().map(|found| found.map(Assembler::Toolkit));
        let made = match toolkit {
            Ok(Some(toolkit)) => {
                LoadedPiece::by(toolkit, piece, facts, cache).map_err(|d| d.message)
            }
            Ok(None) => Err(String::new()),
            Err(why) => Err(why),
        };
        let why = match made {
            Ok(made) => return Ok(made),
            Err(why) => why,
        };
        let note = |entry| format!("'{entry}' is assembled by the driver, not by ptxas: {why}");
        let told = piece.entries.iter().filter(|_| !why.is_empty()).map(note);
        let (module, said) = load_text(&piece.text)?;
        let notes = told.chain(said).collect();
        Ok(LoadedPiece { module, notes, kept: true, bytes: piece.text.len() as u64 })
    }

    /// The kept code of a piece where the driver takes it, or what an assembler makes of it, which is kept.
    fn by(
        assembler: Assembler,
        piece: &ModulePiece,
        facts: &Facts,
        cache: Option<&dyn KeptCode>,
    ) -> Result<LoadedPiece, Diagnostic> {
        let key = assembler.key(&piece.text, facts);
        if let Some(code) = cache.and_then(|cache| cache.find(&key))
            && let Ok(module) = load(&code)
        {
            let bytes = code.len() as u64;
            return Ok(LoadedPiece { module, notes: Vec::new(), kept: true, bytes });
        }
        let AssembledText { code, notes } = assembler.assembled(&piece.text)?;
        let module = load(&code)?;
        // What is noted is told in each run, so such code is made in each run.
        if let Some(cache) = cache.filter(|_| notes.is_empty()) {
            cache.keep(&key, &code);
        }
        Ok(LoadedPiece { module, notes, kept: false, bytes: code.len() as u64 })
    }
}

/// What makes code that can be kept.
#[derive(Clone, Copy)]
enum Assembler {
    /// The driver's linker.
    Linker,
    Toolkit(&'static Ptxas),
}

impl Assembler {
    /// What the code that it makes of a text is kept by.
    fn key(self, text: &str, facts: &Facts) -> String {
        match self {
            Assembler::Linker => key(text, facts),
            Assembler::Toolkit(ptxas) => key(&format!("{}\n{text}", ptxas.version), facts),
        }
    }

    fn assembled(self, text: &str) -> Result<AssembledText, Diagnostic> {
        let failed = |why| Diagnostic::new(At::default(), Kind::Internal, why);
        match self {
            Assembler::Linker => Ok(AssembledText { code: assembled(text)?, notes: Vec::new() }),
            Assembler::Toolkit(ptxas) => ptxas.assembled(text).map_err(failed),
        }
    }
}

/// Bytes of shared memory that every function may use.
const PLAIN_SHARED: u32 = 48 << 10;

impl Drop for Loaded {
    fn drop(&mut self) {
        // What runs must be done before its code goes.
        if self.device.finish().is_ok() {
            let users = self.users.iter().map(|user| user.module);
            for module in self.modules.iter().copied().chain(users) {
                // SAFETY: it was loaded once, and no work uses it.
                unsafe { sys::cuModuleUnload(module) };
            }
        }
    }
}

fn load(code: &[u8]) -> Result<CUmodule, Refused> {
    let mut module = std::ptr::null_mut();
    // SAFETY: the code is an image that an assembler of the device's maker made, whose checksum was compared where it was kept;
    // no options are given.
    let answer = unsafe {
        let none = std::ptr::null_mut();
        sys::cuModuleLoadDataEx(&raw mut module, code.as_ptr().cast(), 0, none, none.cast())
    };
    answered("cuModuleLoadDataEx", answer)?;
    Ok(module)
}

/// Assembles a text and loads it: the module, and what the assembler noted.
fn load_text(text: &str) -> Result<(CUmodule, Vec<String>), Diagnostic> {
    let mut image = Vec::from(text);
    // The driver wants the 0 that ends a text.
    image.push(0);
    let mut log = Log::new();
    let mut module = std::ptr::null_mut();
    // SAFETY: the text ends with 0; there are as many values as options, and the log is there for the time of the call.
    let answer = unsafe {
        let (mut options, mut values) = log.options();
        let count = options.len() as u32;
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        sys::cuModuleLoadDataEx(&raw mut module, image.as_ptr().cast(), count, options, values)
    };
    answered("cuModuleLoadDataEx", answer).map_err(|refused| log.with(refused))?;
    Ok((module, log.notes()))
}

/// What the assembler has to say.
struct Log {
    errors: Box<[u8; LOG]>,
    notes: Box<[u8; LOG]>,
}

impl Log {
    fn new() -> Log {
        Log { errors: Box::new([0u8; LOG]), notes: Box::new([0u8; LOG]) }
    }

    /// Options by which the driver writes here.
    fn options(&mut self) -> ([CUjit_option; 4], [*mut c_void; 4]) {
        let options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CUjit_option::CU_JIT_INFO_LOG_BUFFER,
            CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        ];
        // Numbers are passed as if they were pointers.
        let size = std::ptr::without_provenance_mut::<c_void>(LOG - 1);
        let (errors, notes) = (self.errors.as_mut_ptr(), self.notes.as_mut_ptr());
        (options, [errors.cast::<c_void>(), size, notes.cast::<c_void>(), size])
    }

    /// What was said of text that was taken, a line each.
    fn notes(&self) -> Vec<String> {
        let all = said(&self.notes);
        all.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect()
    }

    /// A refusal with what was said.
    fn with(&self, refused: Refused) -> Diagnostic {
        let d = Diagnostic::from(refused);
        let said = said(&self.errors);
        match said.is_empty() {
            true => d,
            false => Diagnostic { message: format!("{}; it says: {said}", d.message), ..d },
        }
    }
}

/// A text that ends with 0, or fills its room.
fn said(log: &[u8; LOG]) -> String {
    let text = log.split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_string()
}

/// A state of the driver's linker, with the log it writes to.
struct Linker {
    state: CUlinkState,
    // The driver has a pointer to it.
    log: Log,
}

impl Drop for Linker {
    fn drop(&mut self) {
        // SAFETY: it was made once.
        unsafe { sys::cuLinkDestroy(self.state) };
    }
}

impl Linker {
    fn new() -> Result<Linker, Refused> {
        let mut log = Log::new();
        let (mut options, mut values) = log.options();
        let mut state = std::ptr::null_mut();
        // SAFETY: there are as many values as options; the log lives as long as the state.
        let code = unsafe {
            sys::cuLinkCreate_v2(
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
                &raw mut state,
            )
        };
        answered("cuLinkCreate", code)?;
        Ok(Linker { state, log })
    }
}

/// The code of a text.
fn assembled(text: &str) -> Result<Vec<u8>, Diagnostic> {
    let linker = Linker::new()?;
    let wrong = |refused: Refused| linker.log.with(refused);
    // The driver wants the 0 that ends a text.
    let mut image = Vec::from(text);
    image.push(0);
    // SAFETY: the text is there for the time of the call and ends with 0.
    let added = unsafe {
        let (none, kind) = (std::ptr::null_mut(), CUjitInputType::CU_JIT_INPUT_PTX);
        let (at, name) = (image.as_mut_ptr().cast(), c"adfuse".as_ptr());
        sys::cuLinkAddData_v2(linker.state, kind, at, image.len(), name, 0, none, none.cast())
    };
    answered("cuLinkAddData", added).map_err(wrong)?;
    let (mut code, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the driver writes where the code is, which lives as long as the state.
    let done = unsafe { sys::cuLinkComplete(linker.state, &raw mut code, &raw mut bytes) };
    answered("cuLinkComplete", done).map_err(wrong)?;
    // SAFETY: the driver has written this many bytes there.
    Ok(unsafe { std::slice::from_raw_parts(code.cast::<u8>(), bytes) }.to_vec())
}
