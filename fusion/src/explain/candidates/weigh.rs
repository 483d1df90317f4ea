//! The criteria that weigh candidates.

use super::candidate::{Candidate, Search};
use crate::analysis::class::InstClass;
use crate::cost::operations::registers;
use crate::fuse::inline::bytes;
use crate::plan::machine_model::MachineModel;
use adfuse_ir::{Inst, Value, ValueDef};
use hashbrown::{HashMap, HashSet};

impl Search<'_> {
    /// Bytes that one kernel of these instructions reads and writes.
    pub(crate) fn bytes(&self, insts: &[Inst]) -> f64 {
        let f = self.facts.f;
        let inside = |v: Value| matches!(f.def(v), ValueDef::Inst(i, _) if insts.contains(&i));
        let mut read: HashSet<Value> = HashSet::new();
        let mut total = 0.0;
        for &i in insts {
            for &v in f.args(i) {
                if f.literal(v).is_none() && !inside(v) && read.insert(v) {
                    total += bytes(self.facts, v);
                }
            }
            let v = self.result(i);
            let out = self.facts.users[v].iter().any(|u| !insts.contains(u));
            if out || f.results().contains(&v) {
                total += bytes(self.facts, v);
            }
        }
        total
    }

    /// Elements that an instruction goes through.
    pub(crate) fn points(&self, i: Inst) -> f64 {
        let f = self.facts.f;
        let out = self.facts.elements[self.result(i)] as f64;
        match self.facts.class[i] {
            InstClass::Contract => {
                let x = f.args(i)[0];
                let contracted = f.attrs(i).pair("contract").0.iter();
                out * contracted.map(|&d| self.facts.dims[x][d as usize] as f64).product::<f64>()
            }
            InstClass::Reduce(_)
            | InstClass::Scan(_)
            | InstClass::Scatter
            | InstClass::Argsort
            | InstClass::Attention
            | InstClass::Opaque
            | InstClass::Exchange
            | InstClass::Control => {
                f.args(i).iter().map(|&v| self.facts.elements[v] as f64).fold(out, f64::max)
            }
            _ => out,
        }
    }

    pub(crate) fn operations(&self, i: Inst) -> f64 {
        let each = match self.facts.class[i] {
            InstClass::Contract => 2,
            InstClass::Reduce(_) | InstClass::Scan(_) | InstClass::Scatter => 1,
            InstClass::Attention | InstClass::Opaque | InstClass::Exchange | InstClass::Control => {
                0
            }
            // Levels of a sort.
            InstClass::Argsort => u64::BITS - (self.points(i) as u64).leading_zeros(),
            _ => self.facts.weight[i],
        };
        self.points(i) * f64::from(each)
    }

    /// Seconds of arithmetic.
    pub(crate) fn seconds(&self, i: Inst) -> f64 {
        let f = self.facts.f;
        match self.facts.class[i] {
            InstClass::Contract if f.ty(f.args(i)[0]).dtype.bytes() == 2 => {
                self.points(i) / self.device.contract_f16_per_s
            }
            InstClass::Contract => self.points(i) / self.device.contract_f32_per_s,
            _ => self.operations(i) / self.device.ops_per_s,
        }
    }

    /// The most 32-bit words of an element's values that are needed at one time.
    pub(crate) fn registers(&self, insts: &[Inst]) -> u32 {
        let f = self.facts.f;
        let mut last: HashMap<Value, usize> = HashMap::new();
        for (k, &i) in insts.iter().enumerate() {
            for &v in f.args(i) {
                last.insert(v, k + 1);
            }
        }
        let words = |v: Value| if f.ty(v).dtype.bytes() > 4 { 2u32 } else { 1 };
        let mut live: Vec<Value> = Vec::new();
        let (mut now, mut most) = (0u32, 0u32);
        for (k, &i) in insts.iter().enumerate() {
            let v = self.result(i);
            let used = f.args(i).iter().copied().filter(|&a| f.literal(a).is_none());
            for a in used.chain([v]) {
                if !live.contains(&a) {
                    live.push(a);
                    now += words(a);
                }
            }
            // While it is computed, what its program holds is there beside the values that wait.
            let own = self.facts.program(i).map_or(0, |(program, _)| registers(program));
            let waiting = live.iter().filter(|&&w| w != v && !f.args(i).contains(&w));
            most = most.max(now).max(waiting.map(|&w| words(w)).sum::<u32>() + own);
            live.retain(|w| last.get(w).is_some_and(|&end| end > k + 1));
            now = live.iter().map(|&w| words(w)).sum();
        }
        // Addresses and bounds.
        most + 12
    }
}

/// The score of a candidate. The weights: bytes saved 0.4 (all of it from 60 percent on), launches
/// saved 0.2 (all from 20 percent of the time on), registers 0.2 (all below 50), the size of the code
/// and its stages 0.1 each.
pub(crate) fn score(c: &Candidate, device: &MachineModel) -> f64 {
    let bytes = (c.saved_share() / 0.6).clamp(0.0, 1.0);
    let launches = (c.launch_share / 0.2).clamp(0.0, 1.0);
    let least = 50.0;
    let most = f64::from(device.registers.max(64));
    let registers = match device.registers {
        0 => 1.0,
        _ => 1.0 - ((f64::from(c.registers) - least) / (most - least)).clamp(0.0, 1.0),
    };
    let size = 1.0 - ((f64::from(c.primitives) - 200.0) / 2800.0).clamp(0.0, 1.0);
    let stages = 1.0 - (f64::from(c.folds) / 8.0).clamp(0.0, 1.0);
    let sum = 0.4 * bytes + 0.2 * launches + 0.2 * registers + 0.1 * size + 0.1 * stages;
    if c.refused.is_some() { sum / 4.0 } else { sum }
}
