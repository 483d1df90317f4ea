//! Code of steps by their forms: equal steps, of one program or of several, are scheduled and printed once.
//!
//! Layers of a model become equal steps, and plans that are compared for a budget have most steps in common. What a
//! step becomes depends on its form alone ([`StepForm`]), the target and the mode, so it is kept under these.

use super::entry::Out;
use super::module::{entry_prefix, module, step_code, step_printed, with_buffers, within};
use crate::gpu::launches::{PtxModule, StepCode};
use crate::gpu::schedule::context::ScheduleContext;
use crate::gpu::schedule::program::{GpuSchedule, schedule_but};
use crate::gpu::target::GpuTarget;
use adfuse_ir::kernel::{
    Buffer, MentionedBuffers, ProductTimes, Program, Step, StepForm, Verified,
};
use adfuse_ir::{Diagnostic, Fp};
use cranelift_entity::EntityRef;
use hashbrown::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes PTX of a program. Equal steps are scheduled and printed once, and launch the same entry points.
///
/// # Errors
/// As [`schedule`](super::schedule()) and [`print()`](super::print()).
pub fn compile(
    program: &Verified<Program>,
    target: GpuTarget,
    fp: Fp,
) -> Result<PtxModule, Diagnostic> {
    compile_with(program, ScheduleContext::new(target, fp))
}

/// The same for a program that calls user functions, whose kernels are in modules of their own.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(
    program: &Verified<Program>,
    context: ScheduleContext<'_>,
) -> Result<PtxModule, Diagnostic> {
    CodeCache::default().compile(program, context, &[])
}

/// The code of steps that was made, by their forms. Any number of threads may share one.
#[derive(Default)]
pub struct CodeCache {
    made: Mutex<HashMap<CodeKey, Arc<FormCode>>>,
}

/// The most forms that are kept.
const MOST_FORMS: usize = 1 << 13;

#[derive(Clone, PartialEq, Eq, Hash)]
struct CodeKey {
    target: &'static str,
    fp: Fp,
    /// By which products are tiled.
    products: ProductTimes,
    form: StepForm,
}

/// What steps of a form become: text and launches with [`PREFIX`] for the prefix of the names of entry points, and the
/// numbers of the form for buffers.
struct FormCode {
    /// None where only launches were asked for so far.
    text: Option<String>,
    /// Whether it reads the table of the bits of 2/pi.
    table: bool,
    code: StepCode,
}

/// Stands for what the names of entry points begin with.
const PREFIX: &str = "\u{1}";

/// A step of the program that is compiled.
struct KeyedStep {
    key: CodeKey,
    mentioned: MentionedBuffers,
}

impl CodeCache {
    fn made(&self) -> MutexGuard<'_, HashMap<CodeKey, Arc<FormCode>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many forms have code.
    pub fn len(&self) -> usize {
        self.made().len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes PTX of a program without the steps for which `done` says that something else does them. Only forms that
    /// have no code yet are scheduled and printed; the text is the same whatever was there.
    ///
    /// # Errors
    /// As [`compile`](super::compile).
    pub fn compile(
        &self,
        program: &Verified<Program>,
        context: ScheduleContext<'_>,
        done: &[bool],
    ) -> Result<PtxModule, Diagnostic> {
        self.made_of(program, context, (done, true))
    }

    /// The same without the text, which takes most of the time: what is launched, and the memory that it needs.
    ///
    /// # Errors
    /// As [`CodeCache::compile`].
    pub fn launches(
        &self,
        program: &Program,
        context: ScheduleContext<'_>,
        done: &[bool],
    ) -> Result<PtxModule, Diagnostic> {
        self.made_of(program, context, (done, false))
    }

    fn made_of(
        &self,
        program: &Program,
        context: ScheduleContext<'_>,
        (done, writes): (&[bool], bool),
    ) -> Result<PtxModule, Diagnostic> {
        let ScheduleContext { target, fp, products, .. } = context;
        let products = products.cloned().unwrap_or_default();
        let is_done = |n: usize| done.get(n) == Some(&true);
        let keyed = |(n, step): (usize, &Step)| {
            // What a call becomes depends on the user's functions too, and takes no time.
            let is_call = matches!(step, Step::Library(_));
            let (form, mentioned) =
                StepForm::of(program, step).filter(|_| !is_done(n) && !is_call)?;
            let key = CodeKey { target: target.name, fp, products: products.clone(), form };
            Some(KeyedStep { key, mentioned })
        };
        let steps: Vec<Option<KeyedStep>> = program.steps.iter().enumerate().map(keyed).collect();
        // The code of each form of the program, as far as there is any.
        let mut known: HashMap<&CodeKey, Option<Arc<FormCode>>> = HashMap::new();
        let mut skipped: Vec<bool> = (0..steps.len()).map(is_done).collect();
        {
            let made = self.made();
            for (n, keyed) in steps.iter().enumerate() {
                let Some(KeyedStep { key, .. }) = keyed else { continue };
                skipped[n] = known.contains_key(key);
                let does = |code: &&Arc<FormCode>| code.text.is_some() || !writes;
                let found = known.entry(key).or_insert_with(|| made.get(key).filter(does).cloned());
                skipped[n] |= found.is_some();
            }
        }
        let schedule = schedule_but(program, context, &skipped)?;
        for (n, keyed) in steps.iter().enumerate().filter(|(n, _)| !skipped[*n]) {
            let Some(keyed) = keyed else { continue };
            let made = form_code(&schedule, (n, keyed), writes);
            let made = made.map_err(|d| within(&schedule, d, Some(n)))?;
            known.insert(&keyed.key, Some(Arc::new(made)));
        }
        self.keep(&known);
        assembled(&schedule, (&steps, writes), &known)
    }

    fn keep(&self, known: &HashMap<&CodeKey, Option<Arc<FormCode>>>) {
        let mut made = self.made();
        if made.len() + known.len() > MOST_FORMS {
            made.clear();
        }
        for (key, code) in known {
            let Some(code) = code else { continue };
            let there = made.entry_ref(*key).or_insert_with(|| Arc::clone(code));
            if there.text.is_none() {
                there.clone_from(code);
            }
        }
    }
}

impl From<&CodeKey> for CodeKey {
    fn from(key: &CodeKey) -> CodeKey {
        key.clone()
    }
}

impl fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeCache").field("forms", &self.len()).finish()
    }
}

/// Prints the code of a step's form, or finds its launches alone.
fn form_code(
    schedule: &GpuSchedule,
    (n, keyed): (usize, &KeyedStep),
    writes: bool,
) -> Result<FormCode, Diagnostic> {
    let mut out = Out::new(schedule.target, writes);
    PREFIX.clone_into(&mut out.prefix);
    let mut code = step_printed(schedule, &mut out, n)?;
    let number = |b: Buffer| keyed.mentioned.iter().position(|&known| known == b).map(Buffer::new);
    with_buffers(&mut code, &number)?;
    Ok(FormCode { text: writes.then_some(out.text), table: out.table, code })
}

/// The module of a program whose steps have code.
fn assembled(
    schedule: &GpuSchedule,
    (steps, writes): (&[Option<KeyedStep>], bool),
    known: &HashMap<&CodeKey, Option<Arc<FormCode>>>,
) -> Result<PtxModule, Diagnostic> {
    module(schedule, writes, |out| {
        let mut prefixes: HashMap<&CodeKey, String> = HashMap::new();
        let mut codes = Vec::with_capacity(steps.len());
        for (n, keyed) in steps.iter().enumerate() {
            let made =
                keyed.as_ref().and_then(|keyed| Some((keyed, known.get(&keyed.key)?.as_ref()?)));
            let Some((keyed, made)) = made else {
                codes.push(step_code(schedule, out, "", n)?);
                continue;
            };
            // The first of equal steps brings the text.
            let prefix = prefixes.entry(&keyed.key).or_insert_with(|| {
                let prefix = entry_prefix(schedule, "", n);
                if let Some(text) = made.text.as_ref().filter(|_| out.writes) {
                    out.text.push_str(&text.replace(PREFIX, &prefix));
                }
                out.table |= made.table;
                prefix
            });
            let mut code = made.code.clone();
            let own = |b: Buffer| keyed.mentioned.get(b.index()).copied();
            with_buffers(&mut code, &own).map_err(|d| within(schedule, d, Some(n)))?;
            for launch in &mut code.launches {
                launch.entry = launch.entry.replace(PREFIX, prefix);
            }
            codes.push(code);
        }
        Ok(codes)
    })
}
