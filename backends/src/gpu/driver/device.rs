//! A device: what is known of it, its stream of work, and its memory.
//!
//! What is known of it is asked of the driver when it is opened; its [context](Context) is opened meanwhile, and awaited by the first that works on
//! it.
//! All work of a process on a device goes through one stream, so that memory is taken and given back in the
//! order of that work. Graphs are drawn in a stream of their own, which nothing runs in.
#![allow(unsafe_code)]

use super::context::{Context, Drawing, Opening};
use super::cublaslt::{Handle, MatrixLibrary, TuningCache};
use super::cuda::{Refused, absent, answered, there};
use super::nccl::GpuLink;
use super::staging::Staging;
use super::tensor_map::has_maps;
use crate::gpu::compile::target;
use crate::gpu::target::GpuTarget;
use crate::runtime::ranks::RankGroup;
use adfuse_ir::Diagnostic;
use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute, CUmemPool_attribute, CUstream};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A GPU that programs run on.
pub struct GpuDevice {
    facts: Facts,
    context: Opening<Context>,
    pub(crate) staging: Mutex<Staging>,
    /// What is planned for where there is no device: everything that works on it is refused.
    described: Option<GpuTarget>,
    multiplies: OnceLock<Option<Handle>>,
    /// What that has chosen for products.
    pub(crate) tunings: TuningCache,
    /// The connection with the GPUs of other ranks.
    link: OnceLock<Arc<GpuLink>>,
}

/// What is known of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its number among those that the driver shows.
    pub number: u32,
    /// What its maker calls it.
    pub name: String,
    /// The version of its instruction set: 9 and 0 for `sm_90`.
    pub compute: (u32, u32),
    /// How many multiprocessors it has.
    pub processors: u32,
    /// Bytes of shared memory that a block may ask for.
    pub shared: u32,
    /// Bytes of its memory.
    pub memory: u64,
    /// The version of CUDA that the driver knows: 13000 for 13.0.
    pub driver: u32,
}

impl GpuDevice {
    /// Has the driver begin, which opening a device waits for. It may be called on another thread before.
    pub fn begin_driver() {
        // What is wrong is told where a device is opened.
        let _ = there();
    }

    /// The device of a number, counted from 0. Its context is opened on another thread; what the driver has against that is told by the first that
    /// works on the device.
    ///
    /// # Errors
    /// [`Kind::NoDevice`](adfuse_ir::Kind::NoDevice) where there is no driver, or not as many devices.
    pub fn open(number: u32) -> Result<Arc<GpuDevice>, Diagnostic> {
        there()?;
        let mut count = 0;
        // SAFETY: the driver writes one number.
        answered("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        let Some(wanted) = i32::try_from(number).ok().filter(|&n| n < count) else {
            return Err(absent(match count {
                0 => "no GPU: the driver shows none".to_string(),
                1 => format!("no GPU gpu:{number}: there is gpu:0 alone"),
                n => format!("no GPU gpu:{number}: there are gpu:0 to gpu:{}", n - 1),
            }));
        };
        let mut raw = 0;
        // SAFETY: there is a device of this number, and the driver writes its handle.
        answered("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut raw, wanted) })?;
        let facts = Facts::of(number, raw)?;
        Ok(Arc::new(GpuDevice::of(facts, Context::begin(raw), None)))
    }

    /// A device that is not there, as the newest target describes it: plans are priced and counted for it, with a library of matrices whose workspaces
    /// are not known. Whatever works on it is refused as [`Kind::NoDevice`](adfuse_ir::Kind::NoDevice).
    pub fn described() -> Arc<GpuDevice> {
        let [.., newest] = GpuTarget::ALL;
        Arc::new(GpuDevice::of(Facts::described(&newest), Context::none(), Some(newest)))
    }

    fn of(facts: Facts, context: Opening<Context>, described: Option<GpuTarget>) -> GpuDevice {
        GpuDevice {
            facts,
            described,
            context,
            staging: Mutex::default(),
            multiplies: OnceLock::new(),
            tunings: TuningCache::default(),
            link: OnceLock::new(),
        }
    }

    /// How many devices there are; none where there is no driver.
    pub fn count() -> u32 {
        let mut count = 0;
        match there() {
            // SAFETY: the driver is there and writes one number.
            Ok(()) => match unsafe { sys::cuDeviceGetCount(&raw mut count) } {
                sys::CUresult::CUDA_SUCCESS => count.unsigned_abs(),
                _ => 0,
            },
            Err(_) => 0,
        }
    }

    /// What is known of it.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether it is not there.
    pub(crate) fn is_described(&self) -> bool {
        self.described.is_some()
    }

    /// What code is made for: with tensor maps only where the driver makes them.
    ///
    /// # Errors
    /// [`Kind::Unsupported`](adfuse_ir::Kind::Unsupported) where it is older than every target.
    pub(crate) fn target(&self) -> Result<GpuTarget, Diagnostic> {
        if let Some(target) = self.described {
            return Ok(target);
        }
        let found = target(self.facts.compute)?;
        Ok(if found.warpgroups && !has_maps() { GpuTarget::SM90 } else { found })
    }

    /// Bytes of its memory that nobody has, what this process keeps at hand among them.
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn free(&self) -> Result<u64, Diagnostic> {
        self.enter()?;
        let (mut free, mut all) = (0, 0);
        // SAFETY: the driver writes two numbers.
        let code = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut all) };
        answered("cuMemGetInfo_v2", code)?;
        let reserved =
            self.context()?.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = self.context()?.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok((free as u64).saturating_add(reserved.saturating_sub(used)))
    }

    /// Bytes that this process has taken of its memory and not given back.
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn used(&self) -> Result<u64, Diagnostic> {
        Ok(self.context()?.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?)
    }

    /// The most that [`GpuDevice::used`] has been since [`GpuDevice::forget_most`].
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn most_used(&self) -> Result<u64, Diagnostic> {
        Ok(self.context()?.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?)
    }

    /// Begins to look for the most that is used anew.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn forget_most(&self) -> Result<(), Diagnostic> {
        Ok(self.context()?.set(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?)
    }

    /// Waits until all that was asked of it is done.
    ///
    /// # Errors
    /// What went wrong in any of that.
    pub fn finish(&self) -> Result<(), Diagnostic> {
        self.enter()?;
        // SAFETY: the stream lives as long as the device.
        let done = unsafe { sys::cuStreamSynchronize(self.stream()) };
        answered("cuStreamSynchronize", done)?;
        self.check_link()
    }

    /// Connects it with the GPUs of other ranks, once. All ranks call this.
    ///
    /// # Errors
    /// [`Kind::NoDevice`](adfuse_ir::Kind::NoDevice) where there is no NCCL, or the device is one of other ranks already;
    /// [`Kind::LostRank`](adfuse_ir::Kind::LostRank) when a rank is gone.
    pub(crate) fn connect(&self, group: &RankGroup) -> Result<(), Diagnostic> {
        if self.link.get().is_none() {
            self.enter()?;
            let link = GpuLink::connect(group)?;
            let _ = self.link.set(link);
        }
        match self.link.get().is_some_and(|link| link.group.is(group)) {
            true => Ok(()),
            false => Err(absent("the GPU is connected with other ranks")),
        }
    }

    /// The connection with the GPUs of other ranks.
    pub(crate) fn link(&self) -> Option<&Arc<GpuLink>> {
        self.link.get()
    }

    /// Errs when another rank was lost: what was computed since is worth nothing.
    pub(crate) fn check_link(&self) -> Result<(), Diagnostic> {
        self.link.get().map_or(Ok(()), |link| link.check())
    }

    /// Its context, once it is open.
    fn context(&self) -> Result<&Context, Refused> {
        self.context.as_ref().map_err(|&refused| refused)
    }

    /// Has the calling thread work on this device.
    pub(crate) fn enter(&self) -> Result<(), Refused> {
        self.context()?.enter()
    }

    /// Its stream of work, for who has entered it.
    pub(crate) fn stream(&self) -> CUstream {
        // Without a context nobody has entered it.
        self.context().map_or(std::ptr::null_mut(), |context| context.stream)
    }

    /// The library of matrices, if there is one.
    pub(crate) fn multiplies(&self) -> Result<Option<&Handle>, Refused> {
        self.enter()?;
        Ok(self.multiplies.get_or_init(Handle::new).as_ref())
    }

    /// The library of matrices as plans are counted with it.
    pub(crate) fn library(&self) -> Result<Option<MatrixLibrary<'_>>, Refused> {
        match self.described {
            Some(_) => Ok(Some(MatrixLibrary::Assumed)),
            None => Ok(self.multiplies()?.map(MatrixLibrary::Ready)),
        }
    }

    /// The stream to draw graphs in, for one at a time.
    pub(crate) fn drawing(&self) -> Result<MutexGuard<'_, Drawing>, Refused> {
        Ok(self.context()?.drawing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives back to the driver what is kept at hand.
    pub(crate) fn trim(&self) {
        if let Ok(context) = self.context() {
            context.trim();
        }
    }
}

impl Facts {
    /// Of a device that is not there.
    fn described(target: &GpuTarget) -> Facts {
        let GpuTarget { capability: compute, multiprocessors: processors, shared, .. } = *target;
        let name = format!("{} that is not there", target.name);
        Facts { number: 0, name, compute, processors, shared, memory: 0, driver: 0 }
    }

    fn of(number: u32, raw: CUdevice) -> Result<Facts, Refused> {
        use CUdevice_attribute as Of;
        let ask = |of| {
            let mut value = 0;
            // SAFETY: the device is there, and the driver writes one number.
            let code = unsafe { sys::cuDeviceGetAttribute(&raw mut value, of, raw) };
            answered("cuDeviceGetAttribute", code).map(|()| value.unsigned_abs())
        };
        let mut name = [0u8; 256];
        // SAFETY: the driver writes at most this many bytes, the last of them 0.
        let code = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 255, raw) };
        answered("cuDeviceGetName", code)?;
        let text = name.split(|&b| b == 0).next().unwrap_or_default();
        let mut memory = 0;
        // SAFETY: the driver writes one number.
        let code = unsafe { sys::cuDeviceTotalMem_v2(&raw mut memory, raw) };
        answered("cuDeviceTotalMem_v2", code)?;
        let mut driver = 0;
        // SAFETY: the driver writes one number.
        let code = unsafe { sys::cuDriverGetVersion(&raw mut driver) };
        answered("cuDriverGetVersion", code)?;
        Ok(Facts {
            number,
            name: String::from_utf8_lossy(text).into_owned(),
            compute: (
                ask(Of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                ask(Of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            processors: ask(Of::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared: ask(Of::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            memory: memory as u64,
            driver: driver.unsigned_abs(),
        })
    }
}

impl Drop for GpuDevice {
    fn drop(&mut self) {
        // What is being opened is awaited: it is closed below.
        if self.enter().is_err() {
            return;
        }
        // The context goes after what is in it.
        self.staging.get_mut().unwrap_or_else(PoisonError::into_inner).free();
        drop(self.multiplies.take());
        drop(self.link.take());
    }
}

impl fmt::Debug for GpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuDevice").field("facts", &self.facts).finish_non_exhaustive()
    }
}
