//! Which values of a step are stacked for the way back, and which are computed again: a minimum cut.
//!
//! Vertices are instructions of the fixed part of a step and their results. An instruction on the side of the sink is
//! computed again on the way back, which needs its operands there; a result on that side whose instruction is on the
//! other is stacked. Captures, what follows from them alone, scanned elements, the position and literals are there
//! anyway. Carries can only be stacked.
//!
//! The price of a stack is that of writing and reading its bits, the price of computing again is the number of
//! operations; a machine does [`OPERATIONS_A_BYTE`] operations in the time in which it writes and reads a byte.

use super::adjoint_body::AdjointBody;
use super::scan_body::reads;
use super::trips::known_trips;
use crate::analysis::min_cut::{Network, UNBOUNDED};
use crate::analysis::weight::weight;
use adfuse_ir::control::{Follow, reach};
use adfuse_ir::op::{Body, Control};
use adfuse_ir::{DType, Function, Inst, Region, TensorType, Value};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Operations that take as long as writing and reading a byte: 10 to 20 for processors and GPUs alike, where loops do
/// not fit their caches.
const OPERATIONS_A_BYTE: u128 = 16;
/// Operations that take as long as reading a byte of a stack that is there anyway.
const OPERATIONS_A_BYTE_READ: u128 = 6;
/// More operations than any step is worth: what this is the price of is never computed again.
const NEVER: u128 = 1 << 96;

/// What is known of the values of a step.
pub(super) struct ResidualCut {
    /// Values that depend on what is handed back.
    pub(super) way_back: EntitySet<Value>,
    /// Values that may change from step to step.
    pub(super) varying: EntitySet<Value>,
    /// What the way back reads of the fixed part, in the order of their definition, parameters first.
    pub(super) read: Vec<Value>,
    /// What is stacked, in the same order.
    pub(super) stacked: Vec<Value>,
}

impl ResidualCut {
    pub(super) fn of(adjoint: &AdjointBody) -> ResidualCut {
        let f = &adjoint.body;
        let way_back = adjoint.way_back();
        let mut varying: EntitySet<Value> = EntitySet::new();
        varying.insert(adjoint.position());
        varying.extend(adjoint.carried().iter().chain(adjoint.elements()).copied());
        let varying = reach(f, varying, Follow::Uses);
        let mut wanted: EntitySet<Value> = EntitySet::new();
        let fixed = |v: &Value| !way_back.contains(*v) && f.literal(*v).is_none();
        for &i in f.body_insts() {
            if f.inst_results(i).iter().any(|&v| way_back.contains(v)) {
                wanted.extend(reads(f, i).into_iter().filter(|v| fixed(v)));
            }
        }
        wanted.extend(adjoint.handed_on().iter().copied().filter(|v| fixed(v)));
        let defined = f.body_insts().iter().flat_map(|&i| f.inst_results(i));
        let all: Vec<Value> = f.params().iter().chain(defined).copied().collect();
        let read: Vec<Value> = all.iter().copied().filter(|&v| wanted.contains(v)).collect();
        let stacked = cheapest(adjoint, &way_back, &varying, &read);
        let stacked = all.into_iter().filter(|&v| stacked.contains(v)).collect();
        ResidualCut { way_back, varying, read, stacked }
    }
}

/// The cheapest set of values to stack.
fn cheapest(
    adjoint: &AdjointBody,
    way_back: &EntitySet<Value>,
    varying: &EntitySet<Value>,
    read: &[Value],
) -> EntitySet<Value> {
    let f = &adjoint.body;
    let mut there: EntitySet<Value> = EntitySet::new();
    let ends = adjoint.step_ends()[adjoint.counts.carry..].iter();
    there.extend(ends.chain(adjoint.back_stacks()).copied().filter(|&v| !way_back.contains(v)));
    let price = |v: Value| {
        let a_byte = if there.contains(v) { OPERATIONS_A_BYTE_READ } else { OPERATIONS_A_BYTE };
        bits(f.ty(v)) * a_byte / 8 + 1
    };
    let mut network = Network::default();
    let (source, sink) = (network.vertex(), network.vertex());
    let mut vertices: SecondaryMap<Value, Option<u32>> = SecondaryMap::new();
    let mut ways: Vec<(Value, u32)> = Vec::new();
    for &c in adjoint.carried() {
        let v = network.vertex();
        vertices[c] = Some(v);
        network.arc(source, v, price(c));
        ways.push((c, source));
    }
    for &i in f.body_insts() {
        let results = f.inst_results(i);
        let varies = results.iter().any(|&v| varying.contains(v));
        if results.iter().any(|&v| way_back.contains(v)) || !varies {
            continue;
        }
        let again = network.vertex();
        network.arc(source, again, operations(f, i));
        for a in reads(f, i) {
            if let Some(from) = vertices[a] {
                network.arc(from, again, UNBOUNDED);
            }
        }
        for &v in results {
            let at = network.vertex();
            vertices[v] = Some(at);
            network.arc(again, at, price(v));
            ways.push((v, again));
        }
    }
    for &v in read {
        if let Some(from) = vertices[v] {
            network.arc(from, sink, UNBOUNDED);
        }
    }
    let before = network.cut(source, sink);
    let is_stacked = |&&(v, from): &&(Value, u32)| {
        before[from as usize] && vertices[v].is_some_and(|at| !before[at as usize])
    };
    let mut stacked = EntitySet::new();
    stacked.extend(ways.iter().filter(is_stacked).map(|&(v, _)| v));
    stacked
}

/// Bits of a value as it is stacked: truth values are packed.
pub(super) fn bits(ty: &TensorType) -> u128 {
    let each = if ty.dtype == DType::Bool { 1 } else { 8 * ty.dtype.bytes() };
    u128::from(ty.elements().unwrap_or(0)) * u128::from(each)
}

fn elements(f: &Function, v: Value) -> u128 {
    f.ty(v).elements().unwrap_or(0).into()
}

/// Operations that computing an instruction again takes.
fn operations(f: &Function, i: Inst) -> u128 {
    let (args, results) = (f.args(i), f.inst_results(i));
    let made: u128 = results.iter().map(|&v| elements(f, v)).sum();
    let taken: u128 = args.iter().map(|&v| elements(f, v)).sum();
    let all = made + taken;
    match f.op(i).def().body {
        Body::Map(_) | Body::Source(_) => {
            let dtypes: SmallVec<[DType; 4]> = args.iter().map(|&v| f.ty(v).dtype).collect();
            let result = f.ty(results[0]).dtype;
            let program = f.op(i).scalar_program(&dtypes, result, f.attrs(i));
            let program = program.or_else(|| f.op(i).source_program(&dtypes, result));
            made * program.map_or(NEVER, |p| weight(&p).into())
        }
        Body::View(_) | Body::Constant => 0,
        Body::Reduce(_) | Body::Scan(_) => taken,
        Body::Contract => {
            let (contracted, _) = f.attrs(i).pair("contract");
            let shape = &f.ty(args[0]).shape;
            let depth = contracted.iter().filter_map(|&d| shape.get(d as usize)?.known());
            made * depth.map(u128::from).product::<u128>()
        }
        // Each element is found by an index, or put in order.
        Body::Indirect(_) => 8 * all,
        Body::Composed(_) => 8 * all,
        Body::Effect(_) | Body::Opaque => NEVER,
        Body::Region(control) => match (control, known_trips(f, i)) {
            (Control::Branch, _) => each_region(f, i).max().unwrap_or(0),
            (Control::Loop(_), Some(trips)) => {
                each_region(f, i).sum::<u128>().saturating_mul(trips.into()).min(NEVER)
            }
            (Control::Loop(_) | Control::While | Control::Call, _) => NEVER,
        },
    }
}

fn each_region(f: &Function, i: Inst) -> impl Iterator<Item = u128> + '_ {
    let of = |r: &Region| -> u128 {
        let all = f.region(*r).insts.iter().map(|&i| operations(f, i));
        all.fold(0, |sum: u128, n| sum.saturating_add(n)).min(NEVER)
    };
    f.inst(i).regions.iter().map(of)
}
