//! Loops and branches: that their programs fit what is around them.
//!
//! The programs are verified by themselves. So what is left is that each input is bound to something of its type and
//! layout, that the outputs are what the step carries, stacks or writes, and that elements of buffers are whole words.

use super::{ProgramVerifier, Wrong};
use crate::diag::Kind;
use crate::dtype::DType;
use crate::kernel::block::{
    Back, Block, BlockInput, Branch, Carry, Loop, LoopTrips, MAX_NESTING, MAX_TRIPS,
};
use crate::kernel::buffer::{Buffer, BufferData, Space, Storage};
use crate::kernel::program::Step;
use crate::kernel::stage::Operand;
use crate::types::MAX_BYTES;

/// What the blocks of a loop may be bound to, where they may be bound to more than whole buffers.
#[derive(Clone, Copy, Default)]
struct BoundTo<'a> {
    /// The type of positions.
    index: Option<DType>,
    carries: &'a [Carry],
    returned: &'a [Carry],
    /// How many elements there are of what is read an element at a time.
    elements: Option<u64>,
}

impl ProgramVerifier<'_> {
    pub(super) fn repeated(&mut self, place: &str, step: &Loop) {
        if let Err(wrong) = self.fits_loop(step) {
            self.report(place, wrong);
        }
    }

    pub(super) fn branched(&mut self, place: &str, step: &Branch) {
        if let Err(wrong) = self.fits_branch(step) {
            self.report(place, wrong);
        }
    }

    /// Programs are in programs, but not too deep.
    pub(super) fn nested(&mut self) {
        // What is in the program is accepted already, so that counting ends soon.
        if self.program.nesting() > MAX_NESTING {
            let m = format!("programs nest deeper than {MAX_NESTING}");
            self.report(format_args!("@{}", self.program.name), Wrong::new(Kind::Limit, m));
        }
    }

    /// Ranks exchange where all of them do, as often.
    fn exchanges_nothing(&self, block: &Block) -> Result<(), Wrong> {
        match block.program.steps.iter().any(|step| matches!(step, Step::Exchange(_))) {
            false => Ok(()),
            true => {
                let m = "ranks exchange in a program of a loop or a branch";
                Err(Wrong::new(Kind::Unsupported, m))
            }
        }
    }

    fn fits_loop(&self, step: &Loop) -> Result<(), Wrong> {
        let index = self.trips(step)?;
        let elements = step.trips.known();
        let Loop { carries, stacks, back, .. } = step;
        let bound = BoundTo { index: Some(index), carries, elements, returned: &[] };
        self.carried(carries)?;
        self.bound("the step", &step.step, bound)?;
        self.turned("the step", &step.step, (carries, stacks), elements)?;
        if let Some(back) = back {
            self.fits_back(back, bound)?;
        }
        let written: Vec<Buffer> =
            step.all_carries().map(|c| c.to).chain(step.all_stacks()).collect();
        self.distinct(&written)?;
        let bytes = step.slots(&self.program.buffers);
        match bytes <= MAX_BYTES {
            true => Ok(()),
            false => {
                let m = format!("what is carried and kept takes more than {MAX_BYTES} bytes");
                Err(Wrong::new(Kind::Limit, m))
            }
        }
    }

    fn fits_back(&self, back: &Back, bound: BoundTo<'_>) -> Result<(), Wrong> {
        let Back { checkpoints, carries, step, stacks } = back;
        if *checkpoints == 0 {
            return Err(Wrong::new(Kind::Shape, "a way back has at least one checkpoint"));
        }
        self.carried(carries)?;
        let what = "the step back";
        self.bound(what, step, BoundTo { returned: carries, ..bound })?;
        self.turned(what, step, (carries, stacks), bound.elements)
    }

    /// Checks what says how many steps there are; gives the type of positions.
    fn trips(&self, step: &Loop) -> Result<DType, Wrong> {
        match &step.trips {
            LoopTrips::Known(n) if *n > MAX_TRIPS => {
                let m = format!("{n} steps, the limit is {MAX_TRIPS}");
                Err(Wrong::new(Kind::Limit, m))
            }
            LoopTrips::Known(_) => Ok(DType::I64),
            LoopTrips::Count(n) => {
                self.readable(*n)?;
                match is_scalar(self.data(*n), |d| d == DType::I64) {
                    true => Ok(DType::I64),
                    false => {
                        let m =
                            format!("%{} counts steps and is no i64 scalar", self.data(*n).name);
                        Err(Wrong::new(Kind::DType, m))
                    }
                }
            }
            LoopTrips::Range(from, to) => {
                self.readable(*from)?;
                self.readable(*to)?;
                let [from, to] = [from, to].map(|&b| self.data(b));
                let integers = is_scalar(from, DType::is_int) && is_scalar(to, DType::is_int);
                match integers && from.dtype == to.dtype {
                    true => Ok(from.dtype),
                    false => {
                        let names = format!("%{} and %{}", from.name, to.name);
                        let m =
                            format!("{names} bound steps and are no integer scalars of one type");
                        Err(Wrong::new(Kind::DType, m))
                    }
                }
            }
            LoopTrips::While { test, .. } => {
                let carries = &step.carries;
                self.bound("the test", test, BoundTo { carries, ..BoundTo::default() })?;
                let &[answer] = test.program.outputs.as_slice() else {
                    let m = format!("the test has {} outputs, not 1", test.program.outputs.len());
                    return Err(Wrong::new(Kind::Arity, m));
                };
                if !is_scalar(&test.program.buffers[answer], |d| d == DType::Bool) {
                    return Err(Wrong::new(Kind::DType, "the test does not give one truth value"));
                }
                if step.reverse || step.back.is_some() {
                    let m =
                        "a loop with a test does not go back: how many steps it has is not known";
                    return Err(Wrong::new(Kind::Unsupported, m));
                }
                Ok(DType::I64)
            }
        }
    }

    /// Checks what values begin with and where they end.
    fn carried(&self, carries: &[Carry]) -> Result<(), Wrong> {
        for carry in carries {
            self.writable(carry.to)?;
            let to = self.data(carry.to);
            let alike = match carry.from {
                Operand::Literal(l) => l.dtype() == to.dtype,
                Operand::Buffer(b) => {
                    self.readable(b)?;
                    alike(self.data(b), to)
                }
            };
            if !alike {
                let m = format!("%{} begins as what differs in type or layout", to.name);
                return Err(Wrong::new(Kind::Shape, m));
            }
        }
        Ok(())
    }

    /// Checks the inputs of a block.
    fn bound(&self, what: &str, block: &Block, to: BoundTo<'_>) -> Result<(), Wrong> {
        self.exchanges_nothing(block)?;
        let inputs = block.program.inputs().count();
        if inputs != block.inputs.len() {
            let m = format!("{what} takes {inputs} inputs and is given {}", block.inputs.len());
            return Err(Wrong::new(Kind::Arity, m));
        }
        for (b, input) in block.bindings() {
            let data = &block.program.buffers[b];
            let name = format!("input %{} of {what}", data.name);
            if data.donated {
                let m = format!("{name} is given up: what is outside of a block stays");
                return Err(Wrong::new(Kind::Unsupported, m));
            }
            let of = |carries: &[Carry], k: usize| match carries.get(k) {
                Some(carry) => Ok(alike(self.data(carry.to), data)),
                None => {
                    let m = format!("{name} is value {k} of {} that are carried", carries.len());
                    Err(Wrong::new(Kind::Arity, m))
                }
            };
            let fits = match input {
                BlockInput::Index => to.index.is_some_and(|d| is_scalar(data, |found| found == d)),
                BlockInput::Carry(k) => of(to.carries, k)?,
                BlockInput::Returned(k) => of(to.returned, k)?,
                BlockInput::Whole(b) => {
                    self.readable(b)?;
                    alike(self.data(b), data)
                }
                BlockInput::Element(b) => {
                    self.readable(b)?;
                    let Some(n) = to.elements else {
                        let m = format!("{name} is an element: there are none here");
                        return Err(Wrong::new(Kind::Unsupported, m));
                    };
                    stacks(self.data(b), data, n)
                }
            };
            if !fits {
                let m = format!("{name} is bound to what differs in type or layout");
                return Err(Wrong::new(Kind::Shape, m));
            }
        }
        Ok(())
    }

    /// Checks the outputs of a step of a loop: what is carried on, then the elements of what is stacked.
    fn turned(
        &self,
        what: &str,
        block: &Block,
        (carries, stacked): (&[Carry], &[Buffer]),
        elements: Option<u64>,
    ) -> Result<(), Wrong> {
        let outputs = &block.program.outputs;
        let wanted = carries.len() + stacked.len();
        if outputs.len() != wanted {
            let m = format!("{what} has {} outputs, not {wanted}", outputs.len());
            return Err(Wrong::new(Kind::Arity, m));
        }
        let (next, last) = outputs.split_at(carries.len());
        for (&b, carry) in next.iter().zip(carries) {
            self.given(what, (&block.program.buffers[b], carry.to), alike)?;
        }
        for (&b, &stack) in last.iter().zip(stacked) {
            self.writable(stack)?;
            let Some(n) = elements else {
                let m = format!(
                    "%{} is stacked: how many steps there are is not known",
                    self.data(stack).name
                );
                return Err(Wrong::new(Kind::Unsupported, m));
            };
            self.given(what, (&block.program.buffers[b], stack), |to, data| stacks(to, data, n))?;
        }
        Ok(())
    }

    /// Checks an output of a block against the buffer that it is for.
    fn given(
        &self,
        what: &str,
        (data, to): (&BufferData, Buffer),
        fits: impl Fn(&BufferData, &BufferData) -> bool,
    ) -> Result<(), Wrong> {
        let to = self.data(to);
        match fits(to, data) {
            true => Ok(()),
            false => {
                let m = format!("output %{} of {what} does not fit %{}", data.name, to.name);
                Err(Wrong::new(Kind::Shape, m))
            }
        }
    }

    fn distinct(&self, written: &[Buffer]) -> Result<(), Wrong> {
        for (k, &b) in written.iter().enumerate() {
            if written[..k].contains(&b) {
                let m = format!("%{} is written twice by one step", self.data(b).name);
                return Err(Wrong::new(Kind::Overlap, m));
            }
        }
        Ok(())
    }

    fn fits_branch(&self, step: &Branch) -> Result<(), Wrong> {
        self.readable(step.selector)?;
        let selector = self.data(step.selector);
        if !is_scalar(selector, |d| d == DType::Bool || d.is_int()) {
            let m = format!("%{} selects and is no truth value and no integer", selector.name);
            return Err(Wrong::new(Kind::DType, m));
        }
        let count = step.blocks.len();
        if count == 0 || selector.dtype == DType::Bool && count != 2 {
            let m = format!("{count} cases: a truth value has two, an integer at least one");
            return Err(Wrong::new(Kind::Arity, m));
        }
        step.outputs.iter().try_for_each(|&b| self.writable(b))?;
        self.distinct(&step.outputs)?;
        for (k, block) in step.blocks.iter().enumerate() {
            let what = format!("case {k}");
            self.bound(&what, block, BoundTo::default())?;
            let outputs = &block.program.outputs;
            if outputs.len() != step.outputs.len() {
                let m = format!("{what} has {} outputs, not {}", outputs.len(), step.outputs.len());
                return Err(Wrong::new(Kind::Arity, m));
            }
            for (&b, &to) in outputs.iter().zip(&step.outputs) {
                self.given(&what, (&block.program.buffers[b], to), alike)?;
            }
        }
        Ok(())
    }
}

/// Whether one may be where the other is.
fn alike(outer: &BufferData, inner: &BufferData) -> bool {
    outer.dtype == inner.dtype
        && outer.dims == inner.dims
        && outer.storage == inner.storage
        && outer.strides == inner.strides
        && outer.space == Space::Device
        && inner.space == Space::Device
}

/// Whether a buffer is this many elements of a type and layout, each of whole words.
fn stacks(whole: &BufferData, element: &BufferData, n: u64) -> bool {
    let Some((first, rest)) = whole.dims.split_first() else { return false };
    let each = BufferData { dims: rest.into(), ..whole.clone() };
    let words = match whole.storage {
        Storage::Plain => true,
        Storage::Packed(bits) => {
            rest.contains(&0) || rest.iter().product::<i64>() * i64::from(bits) % 32 == 0
        }
    };
    i64::try_from(n) == Ok(*first) && whole.strides.is_none() && words && alike(&each, element)
}

fn is_scalar(data: &BufferData, of: impl Fn(DType) -> bool) -> bool {
    of(data.dtype)
        && data.dims.is_empty()
        && data.storage == Storage::Plain
        && data.space == Space::Device
}
