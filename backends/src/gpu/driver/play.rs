//! Runs of a program: graphs of the steps that are launches alone, and loops, branches and effects between them, which
//! the host drives.
//!
//! The turns of a loop are graphs of up to 64 turns, drawn once for each place that carried values are in. What
//! differs from turn to turn is in the device's memory: the position, and what is carried. How many turns there are, the
//! answers of tests and the selectors of branches are read back.
#![allow(unsafe_code)]

use super::branches::GraphBranches;
use super::call_sink::{CallSink, launch_with};
use super::cuda::{absent, copy};
use super::device::GpuDevice;
use super::device_frame::DeviceFrame;
use super::drawn::{DrawnPart, DrawnParts, DrawnTurns, parts};
use super::event::Event;
use super::graph::{Draw, Graph};
use super::memory::{Pinned, canonical};
use super::overlap::ExchangeOverlap;
use super::step_order::StepOrder;
use super::turn_frame::{TurnKey, TurnPlaces, TurnRole, Turns, frame};
use super::work::{
    BlockWork, BranchWork, CarryWork, DeviceLaunch, ExchangeWork, LoopWork, PrintWork, StartWork,
    TripsWork, Work, internal,
};
use crate::gpu::launches::{BlockBinding, FILL_THREADS, TURNS};
use crate::gpu::turns::{CarryPlace, LoopAction, LoopPlan};
use crate::runtime::array::Array;
use crate::runtime::bytes::Bytes;
use crate::runtime::effects::print_effect;
use crate::runtime::limits::{RunLimits, loop_too_long};
use adfuse_ir::kernel::Branch;
use adfuse_ir::{At, DType, Diagnostic, Literal};
use cudarc::driver::sys::CUdeviceptr;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

/// The events that a trace records: one before the first step and one after each. Empty where nothing is traced.
pub(crate) type Marks<'m> = &'m [Event];

/// Moments of a run.
#[derive(Clone, Copy, Default)]
pub(crate) struct StepEvents<'m> {
    pub(crate) marks: Marks<'m>,
    /// Those of exchanges that go on beside other work; without them, exchanges are asked for in the order of the other work.
    pub(crate) overlap: Option<&'m ExchangeOverlap>,
    /// Which steps follow which; without it each follows the one before. Steps that are traced do too.
    pub(crate) order: Option<&'m StepOrder>,
}

/// Runs programs on a device.
pub(crate) struct Player<'d> {
    pub(crate) device: &'d Arc<GpuDevice>,
    pub(crate) limits: RunLimits,
    /// Where a scalar is read back.
    pub(crate) readback: &'d Pinned,
}

impl Player<'_> {
    /// Asks for all steps of a program, one after the other. What was drawn before for these places is taken. `last` is
    /// asked for with the last steps.
    pub(crate) fn steps(
        &self,
        works: &[Work],
        at: &DeviceFrame,
        drawn: &mut DrawnParts,
        (events, last): (StepEvents<'_>, &mut Draw<'_>),
    ) -> Result<(), Diagnostic> {
        let StepEvents { marks, overlap, order } = events;
        let ranges = parts(works, overlap);
        if ranges.first().is_none_or(|first| !works[first.start].is_straight())
            && let Some(mark) = marks.first()
        {
            mark.mark(self.device.stream())?;
        }
        for (k, range) in ranges.iter().enumerate() {
            if drawn.len() <= k {
                drawn.push(match &works[range.start] {
                    Work::Loop(_) => DrawnPart::Loop(BTreeMap::new()),
                    Work::Branch(_) => DrawnPart::Branch(BTreeMap::new()),
                    _ => DrawnPart::Straight(None, false),
                });
            }
            if let Some(over) = overlap.and_then(|overlap| overlap.over_before(range.start)) {
                over.hold(self.device.stream())?;
            }
            match (&works[range.start], &mut drawn[k]) {
                (Work::Loop(work), DrawnPart::Loop(known)) => self.repeat(work, at, known)?,
                (Work::Branch(work), DrawnPart::Branch(known)) => self.branch(work, at, known)?,
                (Work::Print(work), _) => self.print(work, at)?,
                (Work::Exchange(work), _) => self.exchange(work, at, (range.start, overlap))?,
                (_, DrawnPart::Straight(known, is_fresh)) => {
                    let is_last = k + 1 == ranges.len();
                    if !*is_fresh {
                        let mut draw = |sink: &mut CallSink<'_>| {
                            self.straight(works, range, (at, marks, order), sink)?;
                            if is_last { last(sink) } else { Ok(()) }
                        };
                        *known = Some(Graph::drawn(self.device, known.take(), &mut draw)?);
                        *is_fresh = true;
                    }
                    known.iter().try_for_each(Graph::launch)?;
                    if is_last {
                        return Ok(());
                    }
                    continue;
                }
                _ => return Err(internal("a step was drawn as another")),
            }
            if let Some(mark) = marks.get(range.end) {
                mark.mark(self.device.stream())?;
            }
        }
        last(&mut CallSink::Stream(self.device.stream()))
    }

    /// Asks for neighbouring steps, which are drawn in one graph.
    pub(crate) fn straight(
        &self,
        works: &[Work],
        range: &Range<usize>,
        (at, marks, order): (&DeviceFrame, Marks<'_>, Option<&StepOrder>),
        sink: &mut CallSink<'_>,
    ) -> Result<(), Diagnostic> {
        let mark = |n: usize, sink: &mut CallSink<'_>| match marks.get(n) {
            Some(mark) => sink.mark(mark),
            None => Ok(()),
        };
        if range.start == 0 {
            mark(0, sink)?;
        }
        let mut branches = GraphBranches::of(order, range, sink);
        for n in range.clone() {
            branches.iter().try_for_each(|branches| branches.begin(n))?;
            sink.step(self.device, &works[n], at)?;
            branches.iter_mut().try_for_each(GraphBranches::end)?;
            mark(n + 1, sink)?;
        }
        Ok(branches.iter().try_for_each(GraphBranches::join)?)
    }

    /// The scalar at a place, once all is done that was asked for.
    fn scalar(&self, at: CUdeviceptr, dtype: DType) -> Result<i64, Diagnostic> {
        let place = self.readback.start();
        copy(at, place.addr() as u64, dtype.bytes(), self.device.stream())?;
        self.device.finish()?;
        Ok(self.answer(dtype))
    }

    /// The scalar that was read back.
    fn answer(&self, dtype: DType) -> i64 {
        let mut bits = [0; 8];
        // SAFETY: the memory has 8 bytes, and the device is done with them.
        unsafe {
            let from = self.readback.start();
            std::ptr::copy_nonoverlapping(from, bits.as_mut_ptr(), dtype.bytes() as usize);
        }
        Literal::from_bits(dtype, u64::from_le_bytes(bits)).to_i64()
    }

    /// Has the host write out what is in a buffer, once all is done that was asked for.
    fn print(&self, work: &PrintWork, at: &DeviceFrame) -> Result<(), Diagnostic> {
        let mut bytes = Bytes::zeroed(work.dtype.bytes() as usize, work.bytes)?;
        {
            let staging = self.device.staging.lock();
            let mut staging = staging.unwrap_or_else(PoisonError::into_inner);
            staging.download(at.all[work.from], &mut bytes, self.device.stream())?;
        }
        canonical(work.dtype, &mut bytes);
        print_effect(&work.label, &Array::from_bytes(work.dtype, &work.dims, bytes));
        Ok(())
    }

    /// Asks for an exchange with the GPUs of other ranks, after all that was asked for before.
    fn exchange(
        &self,
        work: &ExchangeWork,
        at: &DeviceFrame,
        (n, overlap): (usize, Option<&ExchangeOverlap>),
    ) -> Result<(), Diagnostic> {
        let link =
            self.device.link().ok_or_else(|| absent("the GPU is connected with no other"))?;
        let places = (work.from.map(|b| at.all[b]), at.all[work.to]);
        let begun = overlap.and_then(|overlap| Some((&overlap.ready, overlap.over[n].as_ref()?)));
        let Some((ready, over)) = begun else {
            return link.exchange(work.kind, places, work.bytes, self.device.stream());
        };
        ready.mark(self.device.stream())?;
        ready.hold(link.stream())?;
        link.exchange(work.kind, places, work.bytes, link.stream())?;
        Ok(over.mark(link.stream())?)
    }

    fn branch(
        &self,
        work: &BranchWork,
        at: &DeviceFrame,
        drawn: &mut BTreeMap<usize, DrawnParts>,
    ) -> Result<(), Diagnostic> {
        let (selector, dtype) = work.selector;
        let selector = self.scalar(at.all[selector], dtype)?;
        let taken = Branch::taken(work.blocks.len(), dtype == DType::Bool, selector);
        let block = &work.blocks[taken];
        let results = work.outputs.iter().map(|&b| at.all[b]).collect();
        let places = TurnPlaces { now: Vec::new(), returned: Vec::new(), results };
        let frame = frame(block, at, (0, 0), &places);
        self.block(block, &frame, drawn.entry(taken).or_default())
    }

    /// Runs a block that is not drawn as one graph.
    fn block(
        &self,
        block: &BlockWork,
        at: &DeviceFrame,
        drawn: &mut DrawnParts,
    ) -> Result<(), Diagnostic> {
        let mut sink = CallSink::Stream(self.device.stream());
        block.before.iter().try_for_each(|l| sink.launch(l, at))?;
        let mut after = |sink: &mut CallSink<'_>| -> Result<(), Diagnostic> {
            Ok(block.after.iter().try_for_each(|l| sink.launch(l, at))?)
        };
        self.steps(&block.steps, at, drawn, (StepEvents::default(), &mut after))
    }

    fn repeat(
        &self,
        work: &LoopWork,
        at: &DeviceFrame,
        drawn: &mut BTreeMap<TurnKey, DrawnTurns>,
    ) -> Result<(), Diagnostic> {
        let located = |mut d: Diagnostic| {
            if d.at.func.is_none() {
                d.at = At { span: d.at.span, ..work.at.clone() };
            }
            d
        };
        self.all_turns(work, at, drawn).map_err(located)
    }

    fn all_turns(
        &self,
        work: &LoopWork,
        at: &DeviceFrame,
        drawn: &mut BTreeMap<TurnKey, DrawnTurns>,
    ) -> Result<(), Diagnostic> {
        let (first, trips) = match work.trips {
            TripsWork::Known(n) => (0, n),
            TripsWork::Count(n) => (0, self.scalar(at.all[n], DType::I64)?.max(0) as u64),
            TripsWork::Range(from, to, dtype) => {
                let from = self.scalar(at.all[from], dtype)?;
                let to = self.scalar(at.all[to], dtype)?;
                (from, to.saturating_sub(from).max(0) as u64)
            }
            TripsWork::While(..) => (0, 0),
        };
        self.limits.check(work.op, trips)?;
        let turns = Turns { work, at, trips, first };
        if let TripsWork::While(test, most) = &work.trips {
            return self.while_true(&turns, test, *most, drawn);
        }
        let plan = LoopPlan {
            trips,
            checkpoints: work.back.as_ref().map(|back| back.0),
            alternate: work.step.is_plain,
            alternate_back: work.back.as_ref().is_none_or(|back| back.2.is_plain),
        };
        plan.each(&mut |action| self.act(&turns, action, drawn))
    }

    fn act(
        &self,
        turns: &Turns<'_>,
        action: LoopAction,
        drawn: &mut BTreeMap<TurnKey, DrawnTurns>,
    ) -> Result<(), Diagnostic> {
        let work = turns.work;
        match action {
            LoopAction::Copy(from, to) => self.copy_all(turns, &work.carries, from, to),
            LoopAction::CopyReturned(from, to) => match &work.back {
                Some((_, carries, _)) => self.copy_all(turns, carries, from, to),
                None => Ok(()),
            },
            LoopAction::Forward { t, count, from } => self.forward(turns, (t, count), from, drawn),
            LoopAction::Back { t, from } => {
                let (from, returned) = (CarryPlace::First, from);
                let key = TurnKey { role: TurnRole::Back, from, returned, count: 1 };
                self.turn(turns, key, t, drawn)
            }
        }
    }

    /// Turns forward, as many at a time as are drawn in one graph.
    fn forward(
        &self,
        turns: &Turns<'_>,
        (mut t, mut left): (u64, u64),
        mut from: CarryPlace,
        drawn: &mut BTreeMap<TurnKey, DrawnTurns>,
    ) -> Result<(), Diagnostic> {
        let most = if turns.work.step.is_plain { turns.work.turns() } else { 1 };
        while left > 0 {
            let count = most.min(1 << left.ilog2());
            let key = TurnKey { role: TurnRole::Step, from, returned: CarryPlace::First, count };
            self.turn(turns, key, t, drawn)?;
            (t, left) = (t + count, left - count);
            if count % 2 == 1 {
                from = from.other();
            }
        }
        Ok(())
    }

    fn while_true(
        &self,
        turns: &Turns<'_>,
        test: &BlockWork,
        most: u64,
        drawn: &mut BTreeMap<TurnKey, DrawnTurns>,
    ) -> Result<(), Diagnostic> {
        let work = turns.work;
        let most = if most == 0 { u64::MAX } else { most }.min(self.limits.max_trips);
        let (mut t, mut from) = (0, CarryPlace::First);
        let (returned, count) = (CarryPlace::First, 1);
        // Where both programs are plain, a step and the test after it are one graph.
        let is_one = work.step.is_plain && test.is_plain;
        self.copy_all(turns, &work.carries, CarryPlace::Start, from)?;
        self.turn(turns, TurnKey { role: TurnRole::Test, from, returned, count }, t, drawn)?;
        loop {
            self.device.finish()?;
            if self.answer(DType::Bool) & 1 == 0 {
                break;
            }
            if t == most {
                return Err(loop_too_long(most));
            }
            let role = if is_one { TurnRole::StepAndTest } else { TurnRole::Step };
            self.turn(turns, TurnKey { role, from, returned, count }, t, drawn)?;
            t += 1;
            if work.step.is_plain {
                from = from.other();
            } else {
                self.copy_all(turns, &work.carries, CarryPlace::Second, from)?;
            }
            if !is_one {
                self.turn(
                    turns,
                    TurnKey { role: TurnRole::Test, from, returned, count },
                    t,
                    drawn,
                )?;
            }
        }
        match from {
            CarryPlace::First => Ok(()),
            at => self.copy_all(turns, &work.carries, at, CarryPlace::First),
        }
    }

    /// Launches the captured graph of some turns. The first of them is turn `t`.
    fn turn(
        &self,
        turns: &Turns<'_>,
        key: TurnKey,
        t: u64,
        drawn: &mut BTreeMap<TurnKey, DrawnTurns>,
    ) -> Result<(), Diagnostic> {
        let block = turns.block(key.role)?;
        if block.is_placed {
            self.place(turns, t)?;
        }
        if !block.is_plain {
            let known = drawn.entry(key).or_insert_with(|| DrawnTurns::Parts(Vec::new()));
            let DrawnTurns::Parts(known) = known else {
                return Err(internal("a turn was drawn as another"));
            };
            let at =
                frame(block, turns.at, (0, turns.work.position.0), &turns.places(key.role, key));
            self.block(block, &at, known)?;
            return match key.role {
                TurnRole::Test => self.answered(turns, &mut CallSink::Stream(self.device.stream())),
                _ => Ok(()),
            };
        }
        let known = drawn.entry(key).or_insert(DrawnTurns::Graph(None, false));
        let DrawnTurns::Graph(graph, is_fresh) = known else {
            return Err(internal("a turn was drawn as another"));
        };
        if !*is_fresh {
            let mut draw = |sink: &mut CallSink<'_>| self.draw(turns, key, sink);
            *graph = Some(Graph::drawn(self.device, graph.take(), &mut draw)?);
            *is_fresh = true;
        }
        Ok(graph.iter().try_for_each(Graph::launch)?)
    }

    /// Draws turns of plain programs.
    fn draw(
        &self,
        turns: &Turns<'_>,
        key: TurnKey,
        sink: &mut CallSink<'_>,
    ) -> Result<(), Diagnostic> {
        let block = turns.block(key.role)?;
        let mut from = key.from;
        for drawn in 0..key.count {
            let on = if turns.work.reverse { -(drawn as i64) } else { drawn as i64 };
            let key = TurnKey { from, ..key };
            let places = turns.places(key.role, key);
            let mut at = frame(block, turns.at, (on, turns.work.position.0), &places);
            if let Some(indices) = block.buffers.iter().position(|b| b.0 == BlockBinding::Index) {
                at.all[indices] += 8 * drawn;
            }
            self.plain(block, &at, sink)?;
            from = from.other();
        }
        if key.role == TurnRole::StepAndTest
            && let TripsWork::While(test, _) = &turns.work.trips
        {
            let places = turns.places(TurnRole::Test, TurnKey { from, ..key });
            let at = frame(test, turns.at, (0, turns.work.position.0), &places);
            self.plain(test, &at, sink)?;
        }
        match key.role {
            TurnRole::Test | TurnRole::StepAndTest => self.answered(turns, sink),
            TurnRole::Step | TurnRole::Back => Ok(()),
        }
    }

    /// Asks for a program of launches alone.
    fn plain(
        &self,
        block: &BlockWork,
        at: &DeviceFrame,
        sink: &mut CallSink<'_>,
    ) -> Result<(), Diagnostic> {
        block.before.iter().try_for_each(|l| sink.launch(l, at))?;
        block.steps.iter().try_for_each(|work| sink.step(self.device, work, at))?;
        Ok(block.after.iter().try_for_each(|l| sink.launch(l, at))?)
    }

    /// Asks for the test's answer.
    fn answered(&self, turns: &Turns<'_>, sink: &mut CallSink<'_>) -> Result<(), Diagnostic> {
        let from = turns.at.block + turns.work.answer;
        let to = self.readback.start().addr() as u64;
        Ok(sink.copy(from, to, DType::Bool.bytes())?)
    }

    /// Says where the loop is.
    fn place(&self, turns: &Turns<'_>, t: u64) -> Result<(), Diagnostic> {
        let (place, entry) = turns.work.position;
        // A loop with a test does not know how many turns there are, and does not go back.
        let at = if turns.work.reverse { turns.trips - 1 - t } else { t };
        let by = if turns.work.reverse { -1i64 } else { 1 };
        let index = turns.first.wrapping_add(at as i64);
        let values = vec![turns.at.block + place, at, index as u64, by as u64];
        let args = Vec::new();
        let l = DeviceLaunch {
            entry,
            grid: [1; 3],
            block: [TURNS as u32, 1, 1],
            shared: 0,
            args,
            maps: Vec::new(),
        };
        Ok(launch_with(&l, &values, self.device.stream())?)
    }

    /// Copies all carried values from one place to another.
    fn copy_all(
        &self,
        turns: &Turns<'_>,
        carries: &[CarryWork],
        from: CarryPlace,
        to: CarryPlace,
    ) -> Result<(), Diagnostic> {
        let stream = self.device.stream();
        for carry in carries {
            let to = carry.at(turns.at, to);
            match (from, &carry.start) {
                (CarryPlace::Start, StartWork::Fill(entry, bits, count)) => {
                    let blocks = CarryWork::fill_blocks(*count) as u32;
                    if blocks == 0 {
                        continue;
                    }
                    let (entry, grid, args) = (*entry, [blocks, 1, 1], Vec::new());
                    let l = DeviceLaunch {
                        entry,
                        grid,
                        block: [FILL_THREADS, 1, 1],
                        shared: 0,
                        args,
                        maps: Vec::new(),
                    };
                    launch_with(&l, &[to, *bits, *count], stream)?;
                }
                _ => copy(carry.at(turns.at, from), to, carry.bytes, stream)?,
            }
        }
        Ok(())
    }
}
