//! Which values of a step are stacked for the way back, and which are computed again: a minimum cut.
//!
//! Vertices are instructions of the fixed part of a step and their results. An instruction on the side of the sink is
//! computed again on the way back, which needs its operands there; a result on that side whose instruction is on the
//! other is stacked. Captures, what follows from them alone, scanned elements, the position and literals are there
//! anyway. Carries can only be stacked. Where a carry is stacked, its next value may be handed back from the step after
//! instead of a stack of its own: the step after was entered with it.
//!
//! The price of a stack is that of writing and reading its bits, the price of computing again is the number of
//! operations. [`OPERATIONS_A_BYTE`] operations cost as much as a byte of a stack. So an elementwise value is computed
//! again where that saves a stack, a function such as `tanh` among them; a contraction over more than a few dozen
//! elements, or an op whose cost is not known, is not.
//!
//! A value that a checkpoint region of the step computes again is stacked only if it cannot be computed again, or leaves
//! the region. One that a region keeps is stacked if it is read, never computed again.

use super::adjoint_body::AdjointBody;
use super::numbering::reads;
use super::trips::known_trips;
use crate::analysis::min_cut::{Network, UNBOUNDED};
use crate::analysis::recomputation::scopes;
use crate::analysis::weight::weight;
use crate::plan::loop_choice::StackGoal;
use adfuse_ir::control::{Follow, reach};
use adfuse_ir::op::{Body, Control};
use adfuse_ir::{DType, Function, Inst, Region, ScopeKind, TensorType, Value};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Operations that cost as much as a byte that is written to a stack and read from it: what a processor or a GPU does
/// in the time that two bytes take to and from its memory, 20 to 40.
const OPERATIONS_A_BYTE: u128 = 32;
/// The same for a byte of a stack that is written anyway.
const OPERATIONS_A_BYTE_READ: u128 = 12;
/// Operations that take as long as handing a byte from one step to the one before, in the cache.
const OPERATIONS_A_BYTE_HANDED: u128 = 1;
/// Operations that cost as much as a byte of a stack where bytes matter most.
const OPERATIONS_A_BYTE_SAVED: u128 = 1 << 40;
/// More operations than any step is worth: what this is the price of is never computed again.
const NEVER: u128 = 1 << 96;

/// What is known of the values of a step.
pub(super) struct ResidualCut {
    goal: StackGoal,
    /// Values that depend on what is handed back.
    pub(super) way_back: EntitySet<Value>,
    /// Values that may change from step to step.
    pub(super) varying: EntitySet<Value>,
    /// Values of the fixed part that are stacked whatever the way back reads, since they are results.
    pub(super) results: EntitySet<Value>,
    /// What the way back reads of the fixed part, in the order of their definition, parameters first.
    pub(super) read: Vec<Value>,
    /// What is stacked, in the same order.
    pub(super) stacked: Vec<Value>,
    /// What checkpoint policies say of values that are not stacked, or are.
    policy: SecondaryMap<Value, Option<ScopeKind>>,
    /// Places of the carries whose next values are handed back from the step after; these carries are stacked.
    pub(super) returned: Vec<usize>,
}

impl ResidualCut {
    /// The cheapest cut, where some values of a step are stacked by another loop.
    pub(super) fn of(
        adjoint: &AdjointBody,
        elsewhere: &EntitySet<Value>,
        goal: StackGoal,
    ) -> ResidualCut {
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
        let mut results: EntitySet<Value> = elsewhere.clone();
        let ends = adjoint.step_ends()[adjoint.counts.carry..].iter();
        results.extend(ends.chain(adjoint.back_stacks()).copied().filter(|v| fixed(v)));
        let (stacked, returned) = (Vec::new(), Vec::new());
        let mut policy = SecondaryMap::new();
        let scopes = scopes(f);
        all.iter().for_each(|&v| policy[v] = scopes[v].innermost());
        let mut cut =
            ResidualCut { goal, way_back, varying, results, read, stacked, policy, returned };
        let (mut stacked, mut price) = cut.cheapest(adjoint);
        for (k, &next) in adjoint.next().iter().enumerate() {
            if !cut.may_return(adjoint, next) {
                continue;
            }
            cut.returned.push(k);
            let (with, less) = cut.cheapest(adjoint);
            if less < price {
                (stacked, price) = (with, less);
            } else {
                cut.returned.pop();
            }
        }
        cut.returned.retain(|&k| stacked.contains(adjoint.carried()[k]));
        cut.stacked = all.into_iter().filter(|&v| stacked.contains(v)).collect();
        cut
    }

    /// Whether the next value of a carry is one that could be computed again, and is not handed back yet.
    fn may_return(&self, adjoint: &AdjointBody, next: Value) -> bool {
        let computed = !adjoint.body.params().contains(&next) && self.varying.contains(next);
        let other = self.returned.iter().any(|&k| adjoint.next()[k] == next);
        computed && !other && !self.way_back.contains(next)
    }

    /// The cheapest set of values to stack, and its price.
    fn cheapest(&self, adjoint: &AdjointBody) -> (EntitySet<Value>, u128) {
        let f = &adjoint.body;
        let mut cut = CutNetwork::new();
        for &c in adjoint.carried() {
            cut.result(c, cut.source, self.price(f, c));
        }
        for &i in f.body_insts() {
            let results = f.inst_results(i);
            let varies = results.iter().any(|&v| self.varying.contains(v));
            if results.iter().any(|&v| self.way_back.contains(v)) || !varies {
                continue;
            }
            let again = cut.network.vertex();
            let saved =
                |v: &Value| matches!(self.policy[*v], Some(ScopeKind::Save | ScopeKind::Named));
            let times = if results.iter().any(saved) { NEVER } else { operations(f, i) };
            cut.network.arc(cut.source, again, times);
            reads(f, i).into_iter().for_each(|a| cut.needs(again, a));
            for &v in results {
                match self.returned.iter().find(|&&k| adjoint.next()[k] == v) {
                    Some(&k) => {
                        let handed = bits(f.ty(v)) * OPERATIONS_A_BYTE_HANDED / 8 + 1;
                        let at = cut.network.vertex();
                        cut.network.arc(cut.source, at, handed);
                        cut.vertices[v] = Some(at);
                        cut.needs(at, adjoint.carried()[k]);
                    }
                    None => cut.result(v, again, self.price(f, v)),
                }
            }
        }
        for &v in &self.read {
            cut.needs(cut.sink, v);
        }
        cut.stacked()
    }

    /// Operations that take as long as stacking a value and reading it.
    fn price(&self, f: &Function, v: Value) -> u128 {
        if self.policy[v] == Some(ScopeKind::Remat) {
            return NEVER / 2;
        }
        let results = self.results.contains(v);
        let a_byte = match self.goal {
            _ if results => OPERATIONS_A_BYTE_READ,
            StackGoal::Time => OPERATIONS_A_BYTE,
            StackGoal::Bytes => OPERATIONS_A_BYTE_SAVED,
        };
        bits(f.ty(v)) * a_byte / 8 + 1
    }
}

/// The network of a step: on the side of the sink is what there is on the way back.
struct CutNetwork {
    network: Network,
    source: u32,
    sink: u32,
    vertices: SecondaryMap<Value, Option<u32>>,
    /// Values that may be stacked, each with the vertex that computes it.
    stacks: Vec<(Value, u32)>,
}

impl CutNetwork {
    fn new() -> CutNetwork {
        let mut network = Network::default();
        let (source, sink) = (network.vertex(), network.vertex());
        CutNetwork { network, source, sink, vertices: SecondaryMap::new(), stacks: Vec::new() }
    }

    /// A value that is computed by a vertex, or stacked at a price.
    fn result(&mut self, v: Value, computed: u32, price: u128) {
        let at = self.network.vertex();
        self.vertices[v] = Some(at);
        self.network.arc(computed, at, price);
        self.stacks.push((v, computed));
    }

    /// Where a vertex is there on the way back, a value is too.
    fn needs(&mut self, vertex: u32, v: Value) {
        if let Some(from) = self.vertices[v] {
            self.network.arc(from, vertex, UNBOUNDED);
        }
    }

    /// What the cheapest cut stacks, and its price.
    fn stacked(&self) -> (EntitySet<Value>, u128) {
        let before = self.network.cut(self.source, self.sink);
        let mut stacked = EntitySet::new();
        for &(v, computed) in &self.stacks {
            let at = self.vertices[v].unwrap_or(self.sink);
            if before[computed as usize] && !before[at as usize] {
                stacked.insert(v);
            }
        }
        (stacked, self.network.price(&before))
    }
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
            2 * made * depth.map(u128::from).product::<u128>()
        }
        Body::Step(_) => NEVER,
        // Each element is found by an index, or put in order.
        Body::Indirect(_) | Body::Composed(_) => 8 * all,
        Body::Effect(_) | Body::Opaque | Body::Collective(_) => NEVER,
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
