//! What a kernel for each instruction takes at the least. All plans are compared with that one, and few programs are fastest so: where it is
//! certain to be slower it is not made.

use super::point::group_price;
use crate::analysis::class::InstClass;
use crate::analysis::contraction_operands::depth;
use crate::analysis::facts::Facts;
use crate::fuse::greedy::plan_at;
use crate::lower::group_key::{BufferForm, KeyBuilder};
use crate::lower::group_memo::LoweringMemo;
use crate::lower::single_group::GroupLowering;
use crate::memory::engine::EngineModel;
use crate::plan::layout::Layout;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::{Group, Plan};
use adfuse_ir::kernel::{Role, Storage, volume};
use adfuse_ir::op::Body;
use adfuse_ir::{DType, Diagnostic, Fp, Function, Inst, Op, Value, ValueDef};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// A kernel for each instruction: what all plans are compared with. It is row-major.
///
/// # Errors
/// As [`plan`](crate::plan()).
pub(super) fn unfused_plan(
    f: &Function,
    options: &PlanOptions,
    blocks: &[Plan],
) -> Result<Plan, Diagnostic> {
    plan_at(f, &PlanOptions { effort: Effort::Off, ..options.clone() }, 0.0, blocks)
}

/// Seconds that a kernel for each instruction takes at the least: to be begun, and to write its result. The facts are of
/// instructions apart.
pub(super) fn least_unfused(facts: &Facts<'_>, device: &MachineModel) -> f64 {
    let bandwidth = most_bytes_per_s(device);
    let kernel = |&i: &Inst| device.launch_s + bytes_written(facts, i) / bandwidth;
    computed(facts).map(|i| kernel(&i)).sum()
}

/// Whether a kernel for each instruction is certain to take longer than this, even if all that may share launches did.
pub(super) fn is_slower_unfused(
    facts: &Facts<'_>,
    options: &PlanOptions,
    engine: &dyn EngineModel,
    limit: f64,
) -> bool {
    let mut bound = UnfusedBound::new(facts, options);
    let Some(memo) = engine.memo().filter(|memo| memo.is_for(&options.device)) else {
        return bound.seconds > limit;
    };
    bound.seconds > limit || bound.rises_above(limit, engine, memo)
}

/// Instructions that have kernels.
fn computed<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = Inst> + 'a {
    let all = facts.f.body_insts().iter().copied();
    all.filter(|&i| facts.class[i] != InstClass::Constant)
}

fn most_bytes_per_s(device: &MachineModel) -> f64 {
    device.memory_bytes_per_s.max(device.cache_bytes_per_s)
}

fn bytes(facts: &Facts<'_>, v: Value, elements: i64) -> f64 {
    elements.saturating_mul(facts.f.ty(v).dtype.bits() as i64) as f64 / 8.0
}

fn bytes_written(facts: &Facts<'_>, i: Inst) -> f64 {
    let v = facts.f.inst_results(i)[0];
    bytes(facts, v, facts.elements[v])
}

/// Bytes that the kernel of an instruction reads; none where that is not known at once.
fn bytes_read(facts: &Facts<'_>, i: Inst) -> f64 {
    let f = facts.f;
    let whole = match (f.op(i), f.op(i).def().body) {
        (Op::Slice, _) => {
            let [x, v] = [f.args(i)[0], f.inst_results(i)[0]];
            return bytes(facts, x, facts.elements[v]);
        }
        (Op::Transpose | Op::Reshape | Op::BroadcastInDim | Op::DotGeneral, _) => true,
        (_, Body::Map(_) | Body::Reduce(_)) => true,
        _ => false,
    };
    let mut read: SmallVec<[Value; 4]> = SmallVec::new();
    for &a in f.args(i).iter().filter(|_| whole) {
        if !matches!(f.def(a), ValueDef::Literal(_)) && !read.contains(&a) {
            read.push(a);
        }
    }
    read.into_iter().map(|v| bytes(facts, v, facts.elements[v])).sum()
}

/// Seconds of the multiply-adds of an instruction; none where an engine may have its own way to multiply.
fn multiplied(facts: &Facts<'_>, i: Inst, device: &MachineModel) -> f64 {
    let v = facts.f.inst_results(i)[0];
    if device.is_gpu() || facts.f.op(i) != Op::DotGeneral || facts.f.ty(v).dtype != DType::F32 {
        return 0.0;
    }
    let deep = volume(depth(facts, i));
    // Few of them may be part of a loop.
    let rate = device.contract_f32_per_s.max(device.ops_per_s);
    facts.elements[v].saturating_mul(deep) as f64 / rate
}

/// Bounds of the seconds of all kernels.
struct UnfusedBound<'a, 'f> {
    facts: &'a Facts<'f>,
    device: &'a MachineModel,
    fp: Fp,
    /// Of all kernels, less the launches that may be saved.
    seconds: f64,
}

/// Kernels of equal forms.
struct AlikeKernels {
    first: Inst,
    count: f64,
    /// Seconds of one at the least.
    least: f64,
    /// What they compute, from which it is guessed where a price says more than the bound.
    weight: f64,
}

impl<'a, 'f> UnfusedBound<'a, 'f> {
    fn new(facts: &'a Facts<'f>, options: &'a PlanOptions) -> UnfusedBound<'a, 'f> {
        let device = &options.device;
        let mut bound = UnfusedBound { facts, device, fp: options.fp, seconds: 0.0 };
        let may_share = |i: Inst| {
            let body = facts.f.op(i).def().body;
            matches!(body, Body::Map(_) | Body::View(_) | Body::Source(_) | Body::Indirect(_))
        };
        let of = |i| bound.least(i) - if may_share(i) { device.launch_s } else { 0.0 };
        bound.seconds = computed(facts).map(of).sum();
        bound
    }

    fn least(&self, i: Inst) -> f64 {
        let moved = bytes_written(self.facts, i) + bytes_read(self.facts, i);
        let moves = moved / most_bytes_per_s(self.device);
        self.device.launch_s + moves.max(multiplied(self.facts, i, self.device))
    }

    /// Whether the kernels take longer than this. They are priced, each form once, until that is certain: those first whose
    /// prices may say the most.
    fn rises_above(&mut self, limit: f64, engine: &dyn EngineModel, memo: &LoweringMemo) -> bool {
        let (facts, f) = (self.facts, self.facts.f);
        let mut keys = KeyBuilder::new(memo.numbers(), self.fp == Fp::Strict);
        let form = BufferForm::of(&Role::Temp, Storage::Plain, false);
        let mut number: HashMap<Vec<u32>, usize> = HashMap::new();
        let mut alike: Vec<AlikeKernels> = Vec::new();
        for i in computed(facts) {
            let group = Group { parts: vec![vec![i]] };
            let Some(key) = keys.key(facts, &group, |_| form) else { continue };
            let n = *number.entry(key.tokens).or_insert(alike.len());
            if n == alike.len() {
                let elements = facts.elements[f.inst_results(i)[0]] as f64;
                let weight = match facts.class[i] {
                    InstClass::Contract => self.least(i) * self.device.ops_per_s,
                    _ => elements * f64::from(facts.weight[i].max(VIEW_WEIGHT)),
                };
                alike.push(AlikeKernels { first: i, count: 0.0, least: self.least(i), weight });
            }
            alike[n].count += 1.0;
        }
        alike.sort_by(|a, b| (b.count * b.weight).total_cmp(&(a.count * a.weight)));
        let mut lowering = GroupLowering::new(self.fp, Layout::RowMajor);
        for kernels in alike.iter().take(MOST_PRICED) {
            let group = Group { parts: vec![vec![kernels.first]] };
            let Some(key) = keys.key(facts, &group, |_| form) else { continue };
            let buffer = |_| Some((Role::Temp, Storage::Plain));
            let known = lowering.lowered(facts, (&group, key), buffer, (self.device, memo));
            let Some(known) = known else { continue };
            let seconds: f64 = group_price(&known, engine, self.device).steps.iter().sum();
            self.seconds += kernels.count * (seconds - kernels.least).max(0.0);
            if self.seconds > limit {
                return true;
            }
        }
        false
    }
}

/// Operations as which an element counts that is moved and not computed.
const VIEW_WEIGHT: u32 = 4;

/// The most forms that are priced for a bound: those that are left are many small ones.
const MOST_PRICED: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::engine::{AnyEngine, MemoEngine};
    use crate::search::point::plan_seconds;
    use adfuse_ir::text::parse;

    /// A layer with its norm, functions that take long, products, views and folds.
    const LAYER: &str =
        "func @f(%x: f32[64,96], %w: f32[96,96], %b: f32[96]) -> (f32[64,96], f32[64], f32[96,48]) {
  %p = dot_general %x, %w {contract = [1] x [0]} : f32[64,96]
  %c = broadcast_in_dim %b {dims = [1]} : f32[64,96]
  %a = add %p, %c : f32[64,96]
  %t = tanh %a : f32[64,96]
  %e = exp %t : f32[64,96]
  %s = reduce_sum %e {axes = [1]} : f32[64]
  %d = mul %e, %e : f32[64,96]
  %h = slice %d {start = [0, 0], limit = [48, 96], stride = [1, 1]} : f32[48,96]
  %r = transpose %h {perm = [1, 0]} : f32[96,48]
  %l = log %s : f32[64]
  return %t, %l, %r
}";

    /// Many equal steps of few elements.
    const STEPS: &str = "func @f(%x: f32[4]) -> f32[4] {
  %a = sin %x : f32[4]
  %b = sin %a : f32[4]
  %c = sin %b : f32[4]
  %d = mul %c, %c : f32[4]
  %e = mul %d, %d : f32[4]
  return %e
}";

    #[test]
    fn a_bound_is_no_more_than_the_plan_takes() {
        for text in [LAYER, STEPS] {
            let module = parse(text).expect("parses");
            let f = module.find("f").expect("it");
            let facts = Facts::of(f, true).expect("has facts");
            for device in [MachineModel::cpu(), MachineModel::h200()] {
                let options = PlanOptions { device, effort: Effort::Quick, fp: Fp::Strict };
                let plan = unfused_plan(f, &options, &[]).expect("has a plan");
                let seconds = plan_seconds(f, &plan, &options.device, &AnyEngine);
                let seconds = seconds.expect("has a time");
                let engine = &MemoEngine::new(&AnyEngine, &options.device);
                assert!(!is_slower_unfused(&facts, &options, engine, seconds), "{text}");
                // It is near what the plan takes, but for its launches.
                let launches = plan.groups.len() as f64 * options.device.launch_s;
                let near = (seconds - launches) * 0.9;
                assert!(is_slower_unfused(&facts, &options, engine, near), "{text}");
            }
        }
    }
}
