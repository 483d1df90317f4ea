//! Argsort: elements become integers that compare in the same way, with the position in the low bits, and lines of
//! these are sorted. No two are equal, so the order is unique. Elements of 64 bits are sorted by their upper halves, then those
//! whose upper halves are equal by the lower ones, which are read again.
//!
//! Tasks are groups of lines; each task has memory for the integers of one line, or of neighbouring lines whose elements are not
//! neighbours: these are read and written side by side.
#![allow(unsafe_code)]

use super::kernel::compile::CompileContext;
use super::point_tasks::TaskCount;
use super::shape::checked_volume;
use super::sort_lines::{SortEntry, first_in_order, further_entries, in_order};
use super::workers::{Worker, WorkerSet};
use adfuse_ir::kernel::{Argsort, Storage};
use adfuse_ir::{At, DType, Diagnostic, Kind};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// How many times as long it takes to put an element in its place as to copy it.
const SORTED: i64 = 32;

/// Elements that a task goes through at least.
const PIECE: i64 = 4096;
/// Elements of the lines that are in work at once, where lines are short.
const TOGETHER: i64 = 1 << 18;
/// Lines that are in work at once: at least, where there are as many, and at most.
const AT_ONCE: (i64, i64) = (8, 256);
/// Lines that are read side by side: a line of the cache has an element of each.
const ABREAST: i64 = 16;

/// A compiled argsort.
pub(super) struct CompiledArgsort {
    from: usize,
    out: usize,
    dtype: DType,
    /// Bits of an element that is packed.
    packed: Option<u8>,
    descending: bool,
    lines: i64,
    long: i64,
    count: i64,
    /// Elements from one of a line to the next, read and written.
    step: [i64; 2],
    /// Extents of the other axes, with the elements from one place to the next.
    others: SmallVec<[(i64, [i64; 2]); 4]>,
    /// Of all workers: the numbers of the lines in work.
    numbers: u64,
    /// Of each worker: room for a line that is sorted.
    room: u64,
    tasks: i64,
    /// Lines that a task reads side by side.
    abreast: i64,
}

impl CompileContext<'_> {
    pub(super) fn argsort(&mut self, step: &Argsort) -> Result<CompiledArgsort, Diagnostic> {
        let [from, out] = [step.from, step.out].map(|b| &self.program.buffers[b]);
        let axis = usize::from(step.axis);
        let strides = |data: &adfuse_ir::kernel::BufferData| -> SmallVec<[i64; 4]> {
            let dense =
                || (0..data.dims.len()).map(|d| data.dims[d + 1..].iter().product()).collect();
            data.strides.clone().unwrap_or_else(dense)
        };
        let elements = checked_volume(&from.dims)?;
        let (from_steps, out_steps) = (strides(from), strides(out));
        let (Some(&long), Some(&count)) = (from.dims.get(axis), out.dims.get(axis)) else {
            return Err(Diagnostic::new(At::default(), Kind::Internal, "an order along no axis"));
        };
        let steps = |d: usize| [from_steps[d], out_steps[d]];
        let others = (0..from.dims.len()).filter(|&d| d != axis);
        let others: SmallVec<[(i64, [i64; 2]); 4]> =
            others.map(|d| (from.dims[d], steps(d))).collect();
        let lines = elements.checked_div(long).unwrap_or(0);
        let together = (TOGETHER / long.max(1)).clamp(AT_ONCE.0, AT_ONCE.1);
        let beside = others.last().is_some_and(|(_, steps)| *steps == [1, 1]);
        let abreast = if beside { (together / AT_ONCE.0).min(ABREAST) } else { 1 };
        let tasks = lines.min(together / abreast).min(elements / PIECE + 1);
        let further = further_entries(long, count);
        let bytes = size_of::<SortEntry>() as u64;
        Ok(CompiledArgsort {
            from: step.from.index(),
            out: step.out.index(),
            dtype: from.dtype,
            packed: match from.storage {
                Storage::Plain => None,
                Storage::Packed(bits) => Some(bits),
            },
            descending: step.descending,
            lines,
            long,
            count,
            step: steps(axis),
            others,
            numbers: self.shared.take(tasks.saturating_mul(abreast).saturating_mul(long), bytes)?,
            room: self.own.take(further, bytes)?,
            tasks,
            abreast,
        })
    }
}

impl CompiledArgsort {
    pub(super) fn run(&self, worker_set: &mut WorkerSet<'_>) {
        if self.count == 0 || self.tasks == 0 {
            return;
        }
        let (whole, rest) = (self.lines / self.tasks, self.lines % self.tasks);
        let each = (self.lines * self.long / self.tasks).saturating_mul(SORTED);
        worker_set.each(TaskCount::of(self.tasks, each), |_, worker, k| {
            let first = k * whole + k.min(rest);
            let last = first + whole + i64::from(k < rest);
            // Neighbours along the innermost of the other axes.
            let across = self.others.last().map_or(1, |(n, _)| *n).max(1);
            let mut line = first;
            while line < last {
                let count = self.abreast.min(last - line).min(across - line % across);
                self.lines(worker, k, line, count);
                line += count;
            }
        });
    }

    /// Puts lines side by side in order, in the room of a task.
    fn lines(&self, worker: &Worker, task: i64, line: i64, beside: i64) {
        let mut at = [0, 0];
        let mut left = line;
        for &(n, steps) in self.others.iter().rev() {
            let place = left % n;
            left /= n;
            at = [at[0] + place * steps[0], at[1] + place * steps[1]];
        }
        if let Some(bits) = self.packed {
            let bits = i64::from(bits);
            let mask = u8::MAX >> (8 - bits);
            return self.narrow(worker, (task, beside), at[1], |l, k| {
                let bit = (at[0] + k * self.step[0] + l) * bits;
                // SAFETY: the verifier has seen that the line is inside of the buffer, which is packed in
                // words of little-endian bytes; an element crosses none of those.
                let byte = unsafe { *worker.table[self.from].offset((bit / 8) as isize) };
                (byte >> (bit % 8) & mask).into()
            });
        }
        let from = worker.table[self.from];
        macro_rules! elements {
            ($source:ident, $t:ty, |$x:ident| $number:expr) => {{
                let first = from.cast::<$t>().wrapping_offset(at[0] as isize);
                self.$source(worker, (task, beside), at[1], |l, k| {
                    // SAFETY: the line is inside of the buffer, whose elements are of this type, and which
                    // nobody writes meanwhile; callers' slices have been aligned.
                    let $x = unsafe { *first.offset((k * self.step[0] + l) as isize) };
                    $number
                })
            }};
        }
        match self.dtype {
            DType::F64 => elements!(wide, u64, |x| float(x, 63, 0x7ff0 << 48)),
            DType::F32 => elements!(narrow, u32, |x| float(x.into(), 31, 0x7f80 << 16) as u32),
            DType::BF16 => elements!(narrow, u16, |x| float(x.into(), 15, 0x7f80) as u32),
            DType::F16 => elements!(narrow, u16, |x| float(x.into(), 15, 0x7c00) as u32),
            DType::I64 => elements!(wide, u64, |x| x ^ 1 << 63),
            DType::I32 => elements!(narrow, u32, |x| x ^ 1 << 31),
            DType::U32 => elements!(narrow, u32, |x| x),
            DType::I8 => elements!(narrow, u8, |x| (x ^ 1 << 7).into()),
            _ => elements!(narrow, u8, |x| x.into()),
        }
    }

    /// Lines of elements whose numbers have 32 bits at most: that of a line and a position.
    fn narrow(&self, worker: &Worker, of: (i64, i64), to: i64, number: impl Fn(i64, i64) -> u32) {
        let turned = if self.descending { u32::MAX } else { 0 };
        self.ordered(
            worker,
            of,
            to,
            |l, k| SortEntry::of(number(l, k) ^ turned, k),
            |_| None::<fn(i64) -> u32>,
        );
    }

    /// Lines of elements whose numbers have more bits.
    fn wide(&self, worker: &Worker, of: (i64, i64), to: i64, number: impl Fn(i64, i64) -> u64) {
        let turned = if self.descending { u64::MAX } else { 0 };
        let number = &|l, k| number(l, k) ^ turned;
        let upper = |l, k| SortEntry::of((number(l, k) >> 32) as u32, k);
        self.ordered(worker, of, to, upper, |l| Some(move |k| number(l, k) as u32));
    }

    /// Sorts the entries of a task's lines side by side and writes the places that are asked for. `lower` gives what decides
    /// between equal numbers of a line, where something does.
    fn ordered<L: Fn(i64) -> u32>(
        &self,
        worker: &Worker,
        (task, beside): (i64, i64),
        to: i64,
        entry: impl Fn(i64, i64) -> SortEntry,
        lower: impl Fn(i64) -> Option<L>,
    ) {
        let (long, count) = (self.long as usize, self.count as usize);
        let all = worker.all(self.numbers).cast::<SortEntry>();
        let all = all.wrapping_add((task * self.abreast) as usize * long);
        let out = worker.table[self.out].cast::<i32>().wrapping_offset(to as isize);
        let lines = beside as usize;
        // SAFETY: there is room for this many entries of each task, at a line of the cache, and for those of a line that is sorted; nobody else uses this task's and this worker's.
        let (entries, room) = unsafe {
            for k in 0..long {
                for l in 0..lines {
                    all.add(l * long + k).write(entry(l as i64, k as i64));
                }
            }
            let further = further_entries(self.long, self.count) as usize;
            let room = worker.at(self.room).cast::<SortEntry>();
            (
                std::slice::from_raw_parts_mut(all, lines * long),
                std::slice::from_raw_parts_mut(room, further),
            )
        };
        for (l, entries) in (0..).zip(entries.chunks_exact_mut(long)) {
            if count < long {
                first_in_order(entries, count, lower(l));
            } else {
                in_order(entries, room, lower(l));
            }
        }
        for k in 0..count {
            for l in 0..lines {
                // SAFETY: the lines are inside of the buffer of places, and this task's alone.
                unsafe {
                    let to = out.offset(k as isize * self.step[1] as isize + l as isize);
                    *to = entries[l * long + k].place() as i32;
                }
            }
        }
    }
}

/// The bits of a float, whose sign is this bit and whose infinity is this, as a number that compares as the
/// float does: both zeros are one, and NaN is the largest. Signs are unpredictable, so there is no branch on them.
#[inline(always)]
fn float(bits: u64, sign: u32, infinity: u64) -> u64 {
    let (top, is_negative) = (1u64 << sign, bits >> sign & 1);
    let magnitude = bits & (top - 1);
    let signed = (magnitude ^ is_negative.wrapping_neg()).wrapping_add(is_negative);
    let is_nan = u64::from(magnitude > infinity).wrapping_neg();
    top.wrapping_add(signed) | is_nan & (top | (top - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_compare_as_their_numbers() {
        let of = |x: f32| float(x.to_bits().into(), 31, 0x7f80 << 16);
        let tiny = f32::from_bits(1);
        let rising = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.5,
            -1.0,
            -tiny,
            0.0,
            tiny,
            f32::MIN_POSITIVE,
            1.0,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ];
        assert!(rising.windows(2).all(|w| of(w[0]) < of(w[1])), "{:?}", rising.map(of));
        assert_eq!(of(-0.0), of(0.0));
        assert_eq!(of(-f32::NAN), of(f32::NAN));
        assert!(of(f32::NAN) <= u32::MAX.into());
        // Half of the range of bf16, whose NaN begins elsewhere than that of f16.
        assert!(float(0x7c01, 15, 0x7f80) < float(0x7f80, 15, 0x7f80));
        assert_eq!(float(0x7c01, 15, 0x7c00), 0xffff);
        assert!(float((-1.0f64).to_bits(), 63, 0x7ff0 << 48) < float(0, 63, 0x7ff0 << 48));
    }
}
