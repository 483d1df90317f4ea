//! Machine code: one function for each sweep, over a range of points.
//!
//! Everything that is computed element by element - a stage of a kernel, an operand of a contraction, its epilogue, the
//! updates of a scatter - is a [`Sweep`]: parameters, a scalar program, and a destination for each output, at each
//! coordinate of some axes. Its function takes a table of pointers and a range of row-major points, `fn(table, begin,
//! end)`. The x86 emitter compiles it, or Cranelift if that emitter does not support the sweep. The function stores
//! outputs, or folds them block by block and leaves the parts ([`FoldOutput`]).

mod emission;
mod loop_function;

use super::clif::unit::FunctionEmitter;
pub(super) use super::codegen::listing::{Listing, ListingEntry, OpenEntry};
pub(super) use super::codegen::loop_ir::{FoldOutput, Sweep};
pub(crate) use super::codegen::vector_width::{Emitter, Vectors};

use super::clif::calls::RuntimeFunctions;
use super::clif::state::{FoldLanes, TargetFeatures};
use super::codegen::constants::Constants;
use super::codegen::loop_ir::LoopNest;
use super::codegen::loop_nest::LineForm;
use super::codegen::loop_program::LoopProgram;
use super::codegen::lower::{GroupTarget, lower};
use super::codegen::supports::partial_nest;
use super::codegen::sweep_form::{MOST_MOVED, MovedPointers, SweepBuffers, SweepForm, moved};
use super::codegen::{interleave, loop_parser, loop_verify};
use super::x86::code_pages::CodePages;
use adfuse_ir::scalar::SInst;
use adfuse_ir::{At, Diagnostic, Fp, Kind, Literal};
use cranelift_codegen::ir::{AbiParam, Signature, UserFuncName, Value, types};
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, ir};
use cranelift_entity::packed_option::ReservedValue;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};
use emission::EmissionQueue;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::str::FromStr;
use target_lexicon::Triple;

/// A sweep's machine code: the table of pointers, the first place, and one past the last.
pub(super) type SweepFn = unsafe extern "C" fn(*const *mut u8, i64, i64);

/// A sweep that has been submitted; its function exists when all have been.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SweepId(pub(super) usize);

/// Compiles sweeps to functions.
pub(super) struct SweepCompiler {
    isa: OwnedTargetIsa,
    /// There when a sweep has asked for it: a program whose sweeps are all wide has no use for it.
    narrow: Option<CraneliftModule>,
    context: FunctionBuilderContext,
    /// The largest vector width.
    vectors: Vectors,
    made: Vec<EmittedBy>,
    /// The sweeps that were compiled, by what their code depends on: the first of each form, and its buffers.
    forms: HashMap<SweepForm, (usize, SweepBuffers)>,
    /// For each sweep, which pointers it moves while it runs: those of sweeps that share a function.
    moves: Vec<MovedPointers>,
    /// The work of the x86 emitter, and the number of each of its functions in the listing.
    emission: EmissionQueue,
    submitted: Vec<usize>,
    /// The functions that the x86 emitter compiled.
    wide: Vec<super::x86::SweepCode>,
    sizes: Vec<i64>,
    constants: Constants,
    bytes: usize,
    target: TargetFeatures,
    /// What is known of the functions.
    pub(super) listing: Listing,
    contract: bool,
    fp: Fp,
    /// Whether the functions are made to be read alone: addresses in them are nominal, so that they are the
    /// same every time.
    is_listed: bool,
}

/// Where Cranelift puts functions.
struct CraneliftModule {
    module: JITModule,
    calls: RuntimeFunctions,
}

impl CraneliftModule {
    fn new(isa: OwnedTargetIsa) -> Result<CraneliftModule, Diagnostic> {
        let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
        super::clif::calls::provide(&mut builder);
        let mut module = JITModule::new(builder);
        let calls = RuntimeFunctions::declare(&mut module).map_err(failed)?;
        Ok(CraneliftModule { module, calls })
    }

    /// Declares a function of a table and two numbers, which gives a number or nothing.
    fn declared(&mut self, name: &str, gives: bool) -> Result<(FuncId, Context), Diagnostic> {
        let mut signature = Signature::new(self.module.target_config().default_call_conv);
        signature.params = vec![AbiParam::new(types::I64); 3];
        signature.returns = vec![AbiParam::new(types::I64); gives.into()];
        let id = self.module.declare_function(name, Linkage::Local, &signature).map_err(failed)?;
        let mut context = Context::new();
        context.func = ir::Function::with_name_signature(UserFuncName::default(), signature);
        Ok((id, context))
    }

    /// What writes the instructions of a declared function.
    fn emitter<'a>(
        &'a mut self,
        (context, builder): (&'a mut Context, &'a mut FunctionBuilderContext),
        constants: &'a mut Constants,
        target: TargetFeatures,
    ) -> FunctionEmitter<'a, 'a> {
        FunctionEmitter {
            b: FunctionBuilder::new(&mut context.func, builder),
            module: &mut self.module,
            calls: &self.calls,
            constants,
            constant_base: Value::reserved_value(),
            held: Vec::new(),
            recent: Vec::new(),
            lanes: FoldLanes::default(),
            target,
        }
    }

    /// Makes code of the instructions of a function; gives its bytes.
    fn defined(&mut self, id: FuncId, context: &mut Context) -> Result<usize, Diagnostic> {
        self.module.define_function(id, context).map_err(|e| failed(format!("{e:?}")))?;
        Ok(context.compiled_code().map_or(0, |c| c.code_buffer().len()))
    }
}

/// Where the constants of functions are that are made to be read alone: as long as addresses are.
const NOMINAL: i64 = 0x1000_0000_0000;

/// What made a function, and its number there.
#[derive(Clone, Copy)]
enum EmittedBy {
    Cranelift(FuncId),
    Wide(usize),
}

/// The functions of a program, in executable memory.
pub(super) struct Code {
    /// Taken when dropped; there is none where no function is Cranelift's.
    module: Option<JITModule>,
    // What of the functions is not the module's.
    #[allow(dead_code)]
    wide: CodePages,
    functions: Vec<SweepFn>,
    moves: Vec<MovedPointers>,
    noted: Vec<ListingEntry>,
    // What the functions read.
    #[allow(dead_code)]
    constants: Constants,
}

fn failed(what: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Internal, format!("machine code was not made: {what}"))
}

fn unsupported(m: String) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Unsupported, m)
}

/// Checks a loop program, in builds with debug assertions and where its text is asked for: it must read back.
fn verified(program: &LoopProgram, has_text: bool) -> Result<(), Diagnostic> {
    let wrong = |m: String| failed(format!("the loop program: {m}"));
    if has_text && loop_parser::parse(&program.to_string()).map_err(wrong)? != *program {
        return Err(wrong("its text reads back as another".into()));
    }
    if cfg!(debug_assertions) || has_text {
        loop_verify::verify(program).map_err(wrong)?;
    }
    Ok(())
}

impl SweepCompiler {
    /// For the host, with vectors of at most this width. In other modes than the strict one, products are
    /// joined with sums where the host has an instruction for that.
    pub(super) fn new(fp: Fp, vectors: Vectors) -> Result<SweepCompiler, Diagnostic> {
        let vectors = vectors.checked()?;
        let host = cranelift_native::builder();
        let host = host.map_err(|m| unsupported(format!("no machine code for this host: {m}")))?;
        Ok(SweepCompiler { vectors, ..SweepCompiler::of(host, fp)? })
    }

    /// For a target, by its name, which need not be the host, with vectors of at most this width; what it makes
    /// is not to be run.
    pub(super) fn for_target(
        target: &str,
        vectors: Vectors,
        fp: Fp,
    ) -> Result<SweepCompiler, Diagnostic> {
        let none = |m: String| unsupported(format!("no machine code for {target}: {m}"));
        let triple = Triple::from_str(target).map_err(|m| none(m.to_string()))?;
        let mut isa = isa::lookup(triple).map_err(|m| none(m.to_string()))?;
        for feature in vectors.features() {
            isa.enable(feature).map_err(|m| none(m.to_string()))?;
        }
        Ok(SweepCompiler { vectors, is_listed: true, ..SweepCompiler::of(isa, fp)? })
    }

    fn of(isa: isa::Builder, fp: Fp) -> Result<SweepCompiler, Diagnostic> {
        let mut flags = settings::builder();
        let checked = if cfg!(debug_assertions) { "true" } else { "false" };
        let set = [
            // Interleaved copies of a body stay interleaved only so.
            ("opt_level", "none"),
            ("enable_verifier", checked),
            ("enable_probestack", "false"),
            ("unwind_info", "false"),
            ("is_pic", "false"),
            ("use_colocated_libcalls", "false"),
        ];
        for (name, value) in set {
            flags.set(name, value).map_err(failed)?;
        }
        let isa = isa.finish(settings::Flags::new(flags)).map_err(failed)?;
        let wide = isa.pointer_type() == types::I64;
        if !wide || isa.endianness() != ir::Endianness::Little {
            let m = "machine code is made for 64-bit little-endian hosts only";
            return Err(unsupported(m.into()));
        }
        let has = |name: &str| {
            isa.isa_flags().iter().any(|f| f.name == name && f.as_bool() == Some(true))
        };
        let x86 = isa.name() == "x64";
        let target = TargetFeatures { x86, fma: !x86 || has("has_fma") && has("has_avx") };
        Ok(SweepCompiler {
            isa,
            narrow: None,
            context: FunctionBuilderContext::new(),
            vectors: Vectors::Narrow,
            made: Vec::new(),
            forms: HashMap::new(),
            moves: Vec::new(),
            emission: EmissionQueue::default(),
            submitted: Vec::new(),
            wide: Vec::new(),
            sizes: Vec::new(),
            constants: Constants::default(),
            bytes: 0,
            target,
            listing: Listing::default(),
            contract: fp != Fp::Strict && target.fma,
            fp,
            is_listed: false,
        })
    }

    /// Whether sums of products must be in the strict order; `None` where what is made is not to be run, so that it does not
    /// depend on what multiplies on this host.
    pub(super) fn dot_order(&self) -> Option<bool> {
        (!self.is_listed).then_some(self.fp == Fp::Strict)
    }

    /// Compiles a sweep, unless one of its form has been: then it shares that one's function. Listings have texts of all.
    pub(super) fn sweep(&mut self, sweep: &Sweep<'_>) -> Result<SweepId, Diagnostic> {
        let form = SweepForm::of(sweep).filter(|_| !self.listing.texts);
        let Some((form, buffers)) = form else { return self.compiled(sweep) };
        if let Some((first, of_first)) = self.forms.get(&form) {
            self.moves.push(moved(of_first, &buffers));
            self.made.push(self.made[*first]);
            self.sizes.push(self.sizes[*first]);
            self.listing.shared(*first, sweep);
            return Ok(SweepId(self.made.len() - 1));
        }
        let made = self.compiled(sweep)?;
        self.forms.insert(form, (made.0, buffers));
        Ok(made)
    }

    /// Compiles a sweep.
    fn compiled(&mut self, sweep: &Sweep<'_>) -> Result<SweepId, Diagnostic> {
        let mut begun = self.listing.clock();
        let mut why = None;
        if self.vectors != Vectors::Narrow {
            match self.submit(sweep, &mut begun) {
                Ok((number, planned)) => {
                    self.submitted.push(self.listing.noted.len());
                    let emitter = Emitter::Wide(self.vectors);
                    self.listing.noted(begun, sweep, emitter, 0, Default::default);
                    return Ok(self.known(EmittedBy::Wide(number), &planned));
                }
                Err(super::x86::NoCode::Taken(not)) => why = Some(not),
                Err(super::x86::NoCode::Failed(d)) => return Err(d),
            }
        }
        // Cranelift's vectors have no masks.
        let planned = LoopNest::new(sweep, self.contract, LineForm::Plain);
        let narrow = match &mut self.narrow {
            Some(there) => there,
            none => none.insert(CraneliftModule::new(self.isa.clone())?),
        };
        let (id, mut context) = narrow.declared(&format!("sweep{}", self.made.len()), false)?;
        let constants = match self.constants.begin() {
            _ if self.is_listed => NOMINAL,
            there => there as i64,
        };
        let target = self.target;
        let function = (&mut context, &mut self.context);
        let unit = narrow.emitter(function, &mut self.constants, target);
        let has_vectors = |i: &SInst, d, known: &[Option<Literal>]| unit.has_vectors(i, d, known);
        let groups = interleave::narrow(&planned, &has_vectors, target.vector_registers());
        let program = lower(&planned, GroupTarget::Whole(groups));
        verified(&program, self.listing.texts)?;
        self.listing.lowered(&mut begun, &program);
        unit.build(&program, constants)
            .ok_or_else(|| failed("a program is not made of primitives"))?;
        self.listing.emitted(&mut begun, &mut context);
        self.bytes += narrow.defined(id, &mut context)?;
        self.listing.made(begun, sweep, why, &context);
        Ok(self.known(EmittedBy::Cranelift(id), &planned))
    }

    /// Leaves a sweep to the x86 emitter; gives the number of its function there, and the sweep's nest.
    fn submit(
        &mut self,
        sweep: &Sweep<'_>,
        begun: &mut OpenEntry,
    ) -> Result<(usize, LoopNest), super::x86::NoCode> {
        let lanes = self.vectors.bits() / 32;
        let (planned, fits) = partial_nest(sweep, self.contract, lanes);
        fits.map_err(super::x86::NoCode::Taken)?;
        let program = lower(&planned, GroupTarget::Partial { lanes });
        verified(&program, self.listing.texts).map_err(super::x86::NoCode::Failed)?;
        self.listing.lowered(begun, &program);
        Ok((self.emission.submit(program, self.vectors)?, planned))
    }

    /// Waits for the code of all sweeps. Where the x86 emitter does not support one of them, everything is forgotten but its answers,
    /// and the steps have to be compiled once more.
    pub(super) fn settled(&mut self) -> Result<bool, Diagnostic> {
        let emitted = self.emission.settled()?;
        if emitted.iter().any(|e| e.code.is_err()) {
            self.forget();
            self.emission = EmissionQueue::again(emitted);
            return Ok(false);
        }
        for (done, &entry) in emitted.into_iter().zip(&self.submitted) {
            let Ok(code) = done.code else { continue };
            self.bytes += code.code().len();
            self.listing.finished(entry, code.code().len(), done.took, || code.text());
            self.wide.push(code);
        }
        Ok(true)
    }

    /// Forgets all functions.
    fn forget(&mut self) {
        self.free_narrow();
        self.context = FunctionBuilderContext::new();
        self.made.clear();
        self.forms.clear();
        self.moves.clear();
        self.submitted.clear();
        self.sizes.clear();
        self.constants = Constants::default();
        self.bytes = 0;
        self.listing.noted.clear();
    }

    #[allow(unsafe_code)]
    fn free_narrow(&mut self) {
        if let Some(narrow) = self.narrow.take() {
            // SAFETY: nobody has been handed a function.
            unsafe { narrow.module.free_memory() };
        }
    }

    fn known(&mut self, made: EmittedBy, planned: &LoopNest) -> SweepId {
        self.made.push(made);
        self.moves.push(MovedPointers::new());
        self.sizes.push(planned.body.insts.len() as i64);
        SweepId(self.made.len() - 1)
    }

    /// How many primitives a sweep has, about what an element takes.
    pub(super) fn size(&self, id: SweepId) -> i64 {
        self.sizes.get(id.0).copied().unwrap_or(0)
    }

    /// Drops all functions; gives the bytes of their code.
    pub(super) fn discard(mut self) -> usize {
        self.free_narrow();
        self.bytes
    }

    /// The functions of all sweeps.
    pub(super) fn finish(self) -> Result<Code, Diagnostic> {
        let mut module = self.narrow.map(|n| n.module);
        if let Some(module) = &mut module {
            module.finalize_definitions().map_err(failed)?;
        }
        let wide = CodePages::new(&self.wide)?;
        let place = |made: &EmittedBy| match made {
            EmittedBy::Cranelift(id) => module.as_ref().map(|m| m.get_finalized_function(*id)),
            EmittedBy::Wide(k) => wide.entry(*k),
        };
        let places: Option<Vec<*const u8>> = self.made.iter().map(place).collect();
        let places = places.ok_or_else(|| failed("a function is nowhere"))?;
        #[allow(unsafe_code)]
        let function = |p: *const u8| {
            // SAFETY: the signature is the one that `sweep` declared, which both emitters keep to. The memory is
            // the module's or the pages', which `Code` keeps as long as the functions.
            unsafe { std::mem::transmute::<*const u8, SweepFn>(p) }
        };
        let functions = places.into_iter().map(function).collect();
        let (moves, noted, constants) = (self.moves, self.listing.noted, self.constants);
        Ok(Code { module, wide, functions, moves, noted, constants })
    }
}

impl Code {
    /// The functions in the order in which they were made: what is known of each, and its bytes.
    pub(super) fn listed(&self) -> impl ExactSizeIterator<Item = (&ListingEntry, &[u8])> {
        // SAFETY: this many bytes were written there, may be read, and stay as they are as long as this
        // does.
        #[allow(unsafe_code)]
        let code = |f: SweepFn, n: &ListingEntry| unsafe {
            std::slice::from_raw_parts(f as *const u8, n.bytes)
        };
        self.functions.iter().zip(&self.noted).map(move |(f, noted)| (noted, code(*f, noted)))
    }

    /// The function of a sweep.
    pub(super) fn function(&self, id: SweepId) -> SweepFn {
        self.functions[id.0]
    }

    /// The entries of the table that are others while the function of a sweep runs: where each is, and which one is put there.
    pub(super) fn moves(&self, id: SweepId) -> &[(u32, u32)] {
        self.moves.get(id.0).map_or(&[], |moves| moves.as_slice())
    }

    /// Runs a sweep over places `begin..end`. Pointers of buffers may move in the table meanwhile, and are where they were
    /// afterwards.
    ///
    /// # Safety
    /// The table must hold, at the number of each buffer and slot that the sweep names, a pointer to
    /// memory of the size and type that it was declared with; what is written must be nobody else's
    /// meanwhile. Places must be within the sweep's extents. That the accesses then stay inside is what
    /// the verifier has proven.
    #[allow(unsafe_code)]
    pub(super) unsafe fn run(&self, id: SweepId, table: &mut [*mut u8], begin: i64, end: i64) {
        let Some(f) = self.functions.get(id.0).filter(|_| begin < end) else { return };
        let moves = self.moves(id);
        if moves.is_empty() {
            // SAFETY: as the caller promises.
            return unsafe { f(table.as_ptr(), begin, end) };
        }
        let own: SmallVec<[*mut u8; MOST_MOVED]> =
            moves.iter().map(|&(_, own)| table[own as usize]).collect();
        let kept: SmallVec<[*mut u8; MOST_MOVED]> =
            moves.iter().map(|&(at, _)| table[at as usize]).collect();
        moves.iter().zip(own).for_each(|(&(at, _), pointer)| table[at as usize] = pointer);
        // SAFETY: as the caller promises; where the function is another sweep's, the buffers of this one, which have the
        // same sizes and types, are in their places.
        unsafe { f(table.as_ptr(), begin, end) }
        moves.iter().zip(kept).for_each(|(&(at, _), pointer)| table[at as usize] = pointer);
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: no function of it runs any more, since calls borrow this, and none is called again.
            #[allow(unsafe_code)]
            unsafe {
                module.free_memory();
            }
        }
    }
}

// SAFETY: the memory of the code is written before this is made and never after; functions in it touch only
// what their table points to, and the module is used again by `drop` alone, which has it to itself.
#[allow(unsafe_code)]
unsafe impl Send for Code {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Code {}
