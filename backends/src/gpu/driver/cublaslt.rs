//! The library that multiplies matrices, cuBLASLt: found when the program runs, asked once a shape.
//!
//! It is found where libraries are, or in the folders in which its Python package and the toolkit have
//! it. Which algorithm multiplies is the library's choice, made when a program is compiled and kept
//! with it; only those are chosen from that add up in an order of their own every time.
#![allow(unsafe_code)]

use super::shared_library::{folders, open};
use super::workspace::{WORKSPACES, WayFacts, chosen, ideal_seconds};
use crate::gpu::schedule::library_product::{Matrix, Product};
use adfuse_ir::kernel::Buffer;
use adfuse_ir::{At, DType, Diagnostic, Fp, Kind};
use cranelift_entity::EntityRef;
use cudarc::cublaslt::sys::{self, cublasStatus_t, cudaDataType};
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The functions that are called.
const NEEDED: &[&str] = &[
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtGetVersion",
    "cublasLtMatmul",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatrixLayoutSetAttribute",
];

/// Names a folder in which the library is, or says `off`.
const FOLDER: &str = "ADFUSE_CUBLASLT";

/// Names of the library's file.
const NAMES: [&str; 2] = ["libcublasLt.so.13", "libcublasLt.so.12"];

/// Folders of Python packages that have it.
const PACKAGES: [&str; 2] = ["cu13/lib", "cublas/lib"];

/// What places in the arena are multiples of.
const ALIGN: u64 = 64;

/// Whether there is a library, and of which version; looked for once.
pub fn library() -> Option<usize> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let named = std::env::var_os(FOLDER).filter(|v| !v.is_empty());
        if named.as_ref().is_some_and(|v| v == "off") {
            return None;
        }
        if let Some(folder) = named {
            open(Path::new(&folder), &NAMES);
        }
        // SAFETY: opening the library runs what it does when it is loaded, as every program that uses
        // it has it.
        if !unsafe { sys::is_culib_present() }
            && !folders(&PACKAGES).iter().any(|f| open(f, &NAMES))
        {
            return None;
        }
        // SAFETY: as above. What was opened by its path is found by its name from then on.
        if !unsafe { sys::is_culib_present() } {
            return None;
        }
        // SAFETY: the library is there, and symbols are looked up and not called through this type.
        let has = |name: &&str| unsafe {
            sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()).is_ok()
        };
        // SAFETY: the function is there.
        NEEDED.iter().all(has).then(|| unsafe { sys::cublasLtGetVersion() })
    })
}

fn answered(call: &str, status: cublasStatus_t) -> Result<(), Diagnostic> {
    match status {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        status => {
            let m = format!("cuBLASLt refused {call}: {status:?}");
            Err(Diagnostic::new(At::default(), Kind::Internal, m))
        }
    }
}

/// The library, ready on a device that the thread has entered.
pub(crate) struct Handle(sys::cublasLtHandle_t);

// SAFETY: the library takes its handle from any thread, and from several at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// One, where there is a library.
    pub(crate) fn new() -> Option<Handle> {
        library()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is there, and writes a handle.
        let made = unsafe { sys::cublasLtCreate(&raw mut handle) };
        (made == cublasStatus_t::CUBLAS_STATUS_SUCCESS).then_some(Handle(handle))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it was made once, and products that use it are gone: they keep the device that has it.
        unsafe { sys::cublasLtDestroy(self.0) };
    }
}

/// The library as plans are counted with it.
#[derive(Clone, Copy)]
pub(crate) enum MatrixLibrary<'h> {
    /// It is there, and chooses the algorithms.
    Ready(&'h Handle),
    /// A device that is only described is taken to have it; nothing is chosen, and nothing can be launched.
    Assumed,
}

/// A product as the library takes it, with the algorithm it chose for each of its [parts](Product::parts).
pub(crate) struct Tuned {
    product: Product,
    parts: Vec<(Product, Arc<Tuning>)>,
    /// Bytes it takes beside the matrices.
    pub(crate) workspace: u64,
}

/// What a product has in common with those that differ in their buffers alone.
struct Tuning {
    how: Described,
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Bytes it takes beside the matrices.
    workspace: u64,
}

type KnownTunings = HashMap<(Product, Fp), Option<Arc<Tuning>>>;

/// What the library has chosen: equal products of layers, and of plans that are compared, are asked for once.
#[derive(Default)]
pub(crate) struct TuningCache {
    /// By the product without its buffers, and the mode; none where the library does not take it.
    known: Mutex<KnownTunings>,
}

impl TuningCache {
    /// A product as the library takes it; `None` where it does not. What is assumed has no workspace.
    pub(crate) fn tuned(
        &self,
        library: MatrixLibrary<'_>,
        product: &Product,
        fp: Fp,
    ) -> Result<Option<Tuned>, Diagnostic> {
        let mut parts = Vec::new();
        let MatrixLibrary::Ready(handle) = library else {
            return Ok(Some(Tuned { product: product.clone(), parts, workspace: 0 }));
        };
        for part in product.parts() {
            let Some(tuning) = self.tuning(handle, &part, fp)? else { return Ok(None) };
            parts.push((part, tuning));
        }
        let workspace = parts.iter().map(|(_, tuning)| tuning.workspace).max().unwrap_or(0);
        Ok(Some(Tuned { product: product.clone(), parts, workspace }))
    }

    /// How the library multiplies one of the parts.
    fn tuning(
        &self,
        handle: &Handle,
        product: &Product,
        fp: Fp,
    ) -> Result<Option<Arc<Tuning>>, Diagnostic> {
        let mut nameless = product.clone();
        for matrix in [&mut nameless.lhs, &mut nameless.rhs, &mut nameless.out] {
            matrix.buffer = Buffer::new(0);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match known.entry((nameless, fp)) {
            Entry::Occupied(there) => there.get().clone(),
            Entry::Vacant(none) => {
                none.insert(Tuning::new(handle, product, fp)?.map(Arc::new)).clone()
            }
        })
    }
}

/// Descriptions of a product and of its matrices, columns first as the library has it: what is handed
/// over is the transposed product.
struct Described {
    desc: sys::cublasLtMatmulDesc_t,
    /// Of the right operand, the left one and the result.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

// SAFETY: descriptions are data that nothing changes once they are made.
unsafe impl Send for Described {}
// SAFETY: as above.
unsafe impl Sync for Described {}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: each was made once, or is null, which the library takes.
        unsafe {
            for layout in self.layouts.into_iter().filter(|l| !l.is_null()) {
                sys::cublasLtMatrixLayoutDestroy(layout);
            }
            if !self.desc.is_null() {
                sys::cublasLtMatmulDescDestroy(self.desc);
            }
        }
    }
}

fn of(dtype: DType) -> cudaDataType {
    match dtype {
        DType::F64 => cudaDataType::CUDA_R_64F,
        DType::BF16 => cudaDataType::CUDA_R_16BF,
        DType::F16 => cudaDataType::CUDA_R_16F,
        _ => cudaDataType::CUDA_R_32F,
    }
}

/// The greatest power of two, up to what places in the arena have, that an element begins at.
fn alignment(m: &Matrix) -> u32 {
    let first = m.first.unsigned_abs().wrapping_mul(m.dtype.bytes());
    let lowest = if first == 0 { ALIGN } else { 1 << first.trailing_zeros().min(6) };
    lowest as u32
}

impl Tuning {
    /// Asks the library for the way to multiply; `None` where it has none.
    ///
    /// # Errors
    /// Where it refuses to describe it.
    fn new(handle: &Handle, product: &Product, fp: Fp) -> Result<Option<Tuning>, Diagnostic> {
        let how = Described::new(product, fp)?;
        let mut preference = std::ptr::null_mut();
        // SAFETY: the library is there, and writes a handle, which is destroyed below.
        let made = unsafe { sys::cublasLtMatmulPreferenceCreate(&raw mut preference) };
        answered("a preference", made)?;
        let found: Result<Vec<_>, Diagnostic> =
            WORKSPACES.iter().map(|&most| how.ask(handle, product, (preference, most))).collect();
        // SAFETY: it was made above.
        unsafe { sys::cublasLtMatmulPreferenceDestroy(preference) };
        let ways: Vec<_> = found?.into_iter().flatten().collect();
        let facts = |way: &sys::cublasLtMatmulHeuristicResult_t| WayFacts {
            workspace: way.workspaceSize as u64,
            waves: f64::from(way.wavesCount),
        };
        let facts: Vec<WayFacts> = ways.iter().map(facts).collect();
        let Some(k) = chosen(&facts, ideal_seconds(product, fp)) else { return Ok(None) };
        Ok(Some(Tuning { how, algorithm: ways[k].algo, workspace: facts[k].workspace }))
    }
}

impl Tuned {
    /// The buffers: left operand, right operand and result.
    pub(crate) fn matrices(&self) -> [Matrix; 3] {
        [self.product.lhs, self.product.rhs, self.product.out]
    }

    /// Has it multiplied in a stream. The matrices' buffers begin at `at`, and there are as many bytes
    /// as it takes at `workspace`.
    pub(crate) fn launch(
        &self,
        handle: &Handle,
        at: [CUdeviceptr; 3],
        workspace: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), Diagnostic> {
        let mut parts = self.parts.iter();
        parts.try_for_each(|(part, tuning)| tuning.launch(handle, part, (at, workspace), stream))
    }
}

impl Tuning {
    /// Has a product multiplied, as [`Tuned::launch`].
    fn launch(
        &self,
        handle: &Handle,
        product: &Product,
        (at, workspace): ([CUdeviceptr; 3], CUdeviceptr),
        stream: CUstream,
    ) -> Result<(), Diagnostic> {
        let mut pointers = [std::ptr::null_mut::<c_void>(); 3];
        let matrices = [product.lhs, product.rhs, product.out];
        for ((to, at), m) in pointers.iter_mut().zip(at).zip(matrices) {
            let first = m.first.unsigned_abs() * m.dtype.bytes();
            *to = std::ptr::without_provenance_mut((at + first) as usize);
        }
        let [lhs, rhs, out] = pointers;
        let (one, zero) = ([1f32, 0.0], [1f64, 0.0]);
        let factors: [*const c_void; 2] = match product.sum {
            DType::F64 => [(&raw const zero[0]).cast(), (&raw const zero[1]).cast()],
            _ => [(&raw const one[0]).cast(), (&raw const one[1]).cast()],
        };
        let [a, b, c] = self.how.layouts;
        let beside = std::ptr::without_provenance_mut(workspace as usize);
        // SAFETY: the matrices are what was described, inside of buffers whose bounds the verifier has
        // proven; factors are numbers of the host, read before the call returns.
        let asked = unsafe {
            let (size, stream) = (self.workspace as usize, stream.cast());
            sys::cublasLtMatmul(
                handle.0,
                self.how.desc,
                factors[0],
                rhs,
                a,
                lhs,
                b,
                factors[1],
                out,
                c,
                out,
                c,
                &raw const self.algorithm,
                beside,
                size,
                stream,
            )
        };
        answered("a product", asked)
    }
}

impl Described {
    fn new(product: &Product, fp: Fp) -> Result<Described, Diagnostic> {
        use sys::cublasComputeType_t as Compute;
        let compute = match (product.sum, product.lhs.dtype, fp) {
            (DType::F64, ..) => Compute::CUBLAS_COMPUTE_64F,
            // Operands of fewer bits are for the mode that says so alone.
            (_, DType::F32, Fp::Fast) => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => Compute::CUBLAS_COMPUTE_32F,
        };
        let nothing = std::ptr::null_mut();
        let mut made = Described { desc: nothing, layouts: [std::ptr::null_mut(); 3] };
        // SAFETY: the library is there, and writes a handle, which is destroyed with this.
        let desc =
            unsafe { sys::cublasLtMatmulDescCreate(&raw mut made.desc, compute, of(product.sum)) };
        answered("a description", desc)?;
        let [batch, rows, cols, depth] = product.size;
        // The transposed result is the right operand transposed times the left one transposed.
        let all = [(&product.rhs, cols, depth), (&product.lhs, rows, depth)];
        use sys::cublasLtMatmulDescAttributes_t as Of;
        let flags = [Of::CUBLASLT_MATMUL_DESC_TRANSA, Of::CUBLASLT_MATMUL_DESC_TRANSB];
        for (k, ((m, free, depth), flag)) in all.into_iter().zip(flags).enumerate() {
            let (first, step) = m.lines([free, depth]).unwrap_or((false, depth as i64));
            // Columns first: the left of the two has the free axis first, the right one the depth.
            let (is_turned, size) = match (k, first) {
                (0, true) => (false, [free, depth]),
                (0, false) => (true, [depth, free]),
                (_, true) => (true, [free, depth]),
                (_, false) => (false, [depth, free]),
            };
            made.layouts[k] = layout(m, size, step, batch)?;
            // CUBLAS_OP_N and CUBLAS_OP_T.
            let turned = i32::from(is_turned);
            // SAFETY: the attribute is of 32 bits, which are read before the call returns.
            let set = unsafe {
                let at = (&raw const turned).cast();
                sys::cublasLtMatmulDescSetAttribute(made.desc, flag, at, size_of::<i32>())
            };
            answered("an operand", set)?;
        }
        let (first, step) = product.out.lines([rows, cols]).unwrap_or((false, cols as i64));
        made.layouts[2] = layout(&product.out, [cols, rows], step, batch)?;
        if first {
            // Neighbours lie along the rows: what is columns first to others is rows first to this.
            let order = sys::cublasLtOrder_t::CUBLASLT_ORDER_ROW as i32;
            set(
                made.layouts[2],
                sys::cublasLtMatrixLayoutAttribute_t::CUBLASLT_MATRIX_LAYOUT_ORDER,
                order,
            )?;
        }
        Ok(made)
    }

    /// The library's first choice with at most this many bytes beside the matrices, if it has one.
    fn ask(
        &self,
        handle: &Handle,
        product: &Product,
        (preference, most): (sys::cublasLtMatmulPreference_t, usize),
    ) -> Result<Option<sys::cublasLtMatmulHeuristicResult_t>, Diagnostic> {
        use sys::{
            cublasLtMatmulPreferenceAttributes_t as Of, cublasLtReductionScheme_t as Scheme,
        };
        // Without sums that threads add to one place as they come.
        let schemes = Scheme::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32
            | Scheme::CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE as u32;
        let [a, b, c] = [&product.rhs, &product.lhs, &product.out].map(alignment);
        let numbers = [
            (Of::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes),
            (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
            (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
            (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
            (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c),
        ];
        for (what, value) in numbers {
            // SAFETY: these attributes are of 32 bits, which are read before the call returns.
            let set = unsafe {
                let at = (&raw const value).cast();
                sys::cublasLtMatmulPreferenceSetAttribute(preference, what, at, size_of::<u32>())
            };
            answered("a preference", set)?;
        }
        let what = Of::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: the attribute is as wide as an address, and read before the call returns.
        let set = unsafe {
            let at = (&raw const most).cast();
            sys::cublasLtMatmulPreferenceSetAttribute(preference, what, at, size_of::<usize>())
        };
        answered("a preference", set)?;
        // SAFETY: plain numbers, of which all zeros are valid.
        let mut found: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut count = 0;
        let [a, b, c] = self.layouts;
        // SAFETY: handles are those made above, and there is room for the one result asked for.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle.0,
                self.desc,
                a,
                b,
                c,
                c,
                preference,
                1,
                &raw mut found,
                &raw mut count,
            )
        };
        if status == cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED {
            return Ok(None);
        }
        answered("a choice", status)?;
        let well = found.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS;
        Ok((count > 0 && well).then_some(found))
    }
}

/// The description of a matrix whose neighbours lie along the first extent.
fn layout(
    m: &Matrix,
    [along, lines]: [u64; 2],
    step: i64,
    batch: u64,
) -> Result<sys::cublasLtMatrixLayout_t, Diagnostic> {
    use sys::cublasLtMatrixLayoutAttribute_t as Of;
    let mut made = std::ptr::null_mut();
    // SAFETY: the library is there, and writes a handle.
    let status =
        unsafe { sys::cublasLtMatrixLayoutCreate(&raw mut made, of(m.dtype), along, lines, step) };
    answered("a matrix", status)?;
    if batch > 1 {
        set(made, Of::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch as i32)?;
        set(made, Of::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.steps[0])?;
    }
    Ok(made)
}

/// Sets an attribute, whose width is that of the value.
fn set<T: Copy>(
    layout: sys::cublasLtMatrixLayout_t,
    what: sys::cublasLtMatrixLayoutAttribute_t,
    value: T,
) -> Result<(), Diagnostic> {
    // SAFETY: callers give each attribute a value of its width, which is read before the call returns.
    let status = unsafe {
        let at = (&raw const value).cast();
        sys::cublasLtMatrixLayoutSetAttribute(layout, what, at, size_of::<T>())
    };
    answered("a matrix", status)
}
