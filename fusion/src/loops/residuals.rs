//! What a loop leaves for its way back, as data and as text.

use super::adjoint_body::AdjointBody;
use super::numbering::reads;
use super::residual_cut::{ResidualCut, bits};
use adfuse_ir::op::Body;
use adfuse_ir::{DType, Function, Inst, TensorType, Value, ValueDef};
use std::fmt;

/// How the way back gets a value of a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ResidualClass {
    /// It is the same in every step: computed once, or there already.
    Invariant,
    /// An element of what the loop scans, or a view of one: read again.
    Forwarded,
    /// A function of the step's position alone: computed again.
    Index,
    /// A carry that the step was entered with: stacked.
    Carry,
    /// Stacked.
    Stacked,
    /// An element of a result of the loop, which is stacked whatever its way back reads: read again.
    Output,
    /// The next value of a carry that is stacked: handed back from the step after.
    Returned,
    /// Computed again from the others.
    Recomputed,
}

impl fmt::Display for ResidualClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResidualClass::Invariant => "invariant",
            ResidualClass::Forwarded => "forwarded",
            ResidualClass::Index => "index",
            ResidualClass::Carry => "carry",
            ResidualClass::Stacked => "stacked",
            ResidualClass::Output => "output",
            ResidualClass::Returned => "returned",
            ResidualClass::Recomputed => "recomputed",
        })
    }
}

/// A value of a step that the way back reads, or that is stacked for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopResidual {
    /// Its name, where it has one.
    pub name: Option<String>,
    /// What computes it: the name of an op; or `carry`, `element`, `position` or `capture`.
    pub source: &'static str,
    /// Its type in one step.
    pub ty: TensorType,
    /// How the way back gets it.
    pub class: ResidualClass,
}

impl LoopResidual {
    /// Bits that are stacked for each step. Truth values take one each where those of a step fill words of 32, and a
    /// byte otherwise.
    pub fn bits_per_step(&self) -> u64 {
        match self.class {
            ResidualClass::Carry | ResidualClass::Stacked => {
                let packed = u64::try_from(bits(&self.ty)).unwrap_or(u64::MAX);
                let fills_words = packed.is_multiple_of(32);
                match self.ty.dtype {
                    DType::Bool if !fills_words => packed.saturating_mul(8),
                    _ => packed,
                }
            }
            _ => 0,
        }
    }

    /// Bytes of its stack over this number of steps.
    pub fn bytes(&self, trips: u64) -> u64 {
        self.bits_per_step().saturating_mul(trips) / 8
    }
}

/// What a loop leaves for its way back.
///
/// Its text is a line for the loop and one for each residual:
///
/// ```text
/// adjoint: 3 steps, 8 bytes a step, 24 bytes
///   carry: f32[2], 24 bytes
///   invariant %w: f32[2]
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopResiduals {
    /// The `adjoint`, in the function that was asked about.
    pub inst: Inst,
    /// How many steps it takes each time it is entered.
    pub trips: u64,
    /// In the order of their definition in a step.
    pub residuals: Vec<LoopResidual>,
}

impl LoopResiduals {
    /// What `inst` leaves, by the cut that was made for it.
    pub(super) fn of(inst: Inst, adjoint: &AdjointBody, cut: &ResidualCut) -> LoopResiduals {
        let f = &adjoint.body;
        let mut values: Vec<Value> = cut.read.clone();
        values.extend(cut.stacked.iter().filter(|v| !cut.read.contains(v)));
        let residuals = values.into_iter().map(|v| LoopResidual {
            name: f.name_of(v).map(str::to_string),
            source: match f.def(v) {
                ValueDef::Inst(i, _) => f.op(i).name(),
                _ if adjoint.carried().contains(&v) => "carry",
                _ if adjoint.elements().contains(&v) => "element",
                _ if adjoint.position() == v => "position",
                _ => "capture",
            },
            ty: f.ty(v).clone(),
            class: class(adjoint, cut, v),
        });
        LoopResiduals { inst, trips: adjoint.trips, residuals: residuals.collect() }
    }

    /// Bytes that are stacked for each step, rounded up.
    pub fn bytes_per_step(&self) -> u64 {
        let bits = self.residuals.iter().map(LoopResidual::bits_per_step);
        bits.fold(0, u64::saturating_add).div_ceil(8)
    }

    /// Bytes of all stacks.
    pub fn bytes(&self) -> u64 {
        self.residuals.iter().map(|r| r.bytes(self.trips)).fold(0, u64::saturating_add)
    }
}

impl fmt::Display for LoopResiduals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (step, all) = (self.bytes_per_step(), self.bytes());
        writeln!(f, "adjoint: {} steps, {step} bytes a step, {all} bytes", self.trips)?;
        for r in &self.residuals {
            write!(f, "  {}", r.class)?;
            match &r.name {
                Some(name) => write!(f, " %{name}")?,
                None if r.source != r.class.to_string() => write!(f, " {}", r.source)?,
                None => {}
            }
            write!(f, ": {}", r.ty)?;
            match r.bytes(self.trips) {
                0 => writeln!(f)?,
                n => writeln!(f, ", {n} bytes")?,
            }
        }
        Ok(())
    }
}

fn class(adjoint: &AdjointBody, cut: &ResidualCut, v: Value) -> ResidualClass {
    if cut.stacked.contains(&v) {
        let carried = adjoint.carried().contains(&v);
        return match (cut.results.contains(v), carried) {
            (true, _) => ResidualClass::Output,
            (_, true) => ResidualClass::Carry,
            _ => ResidualClass::Stacked,
        };
    }
    if cut.returned.iter().any(|&k| adjoint.next()[k] == v) {
        return ResidualClass::Returned;
    }
    if !cut.varying.contains(v) {
        return ResidualClass::Invariant;
    }
    let mut of_index = true;
    let mut forwarded = true;
    leaves(adjoint, cut, v, &mut |leaf, only_views| {
        of_index &= leaf == adjoint.position();
        forwarded &= only_views && adjoint.elements().contains(&leaf);
    });
    match (of_index, forwarded) {
        (true, _) => ResidualClass::Index,
        (_, true) => ResidualClass::Forwarded,
        _ => ResidualClass::Recomputed,
    }
}

fn is_there(adjoint: &AdjointBody, cut: &ResidualCut, v: Value) -> bool {
    cut.stacked.contains(&v) || cut.returned.iter().any(|&k| adjoint.next()[k] == v)
}

/// Calls `visit` with each varying value that is there on the way back and that another is computed from, and whether
/// there are only views between the two.
fn leaves(adjoint: &AdjointBody, cut: &ResidualCut, v: Value, visit: &mut dyn FnMut(Value, bool)) {
    let f: &Function = &adjoint.body;
    let mut seen = cranelift_entity::EntitySet::new();
    let mut open = vec![(v, true)];
    while let Some((v, only_views)) = open.pop() {
        if !cut.varying.contains(v) || !seen.insert(v) {
            continue;
        }
        match f.def(v) {
            ValueDef::Inst(i, _) if !is_there(adjoint, cut, v) => {
                let view = only_views && matches!(f.op(i).def().body, Body::View(_));
                open.extend(reads(f, i).into_iter().map(|a| (a, view)));
            }
            _ => visit(v, only_views),
        }
    }
}
