//! The decision: which tensors are divided among which ranks, and its text.

use crate::function::Function;
use crate::words::is_word;
use std::fmt;
use std::str::FromStr;

/// Parts are multiples of this number of elements: the blocks of a sum over all elements, so that no block is divided.
pub(super) const BLOCK: u64 = 1024;

/// A parameter that a step keeps, and the result that is its next value, by position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatePair {
    /// The parameter.
    pub param: usize,
    /// The result, of the same type.
    pub result: usize,
}

/// Which tensors are divided among which ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateSharding {
    /// The axis of the ranks.
    pub over: String,
    /// How many ranks there are.
    pub ranks: u32,
    /// What sums over all elements of divided tensors are.
    pub sums: ShardedSums,
    /// The tensors, in the order of their parameters.
    pub tensors: Vec<ShardedTensor>,
}

/// How all elements of a tensor are summed that is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShardedSums {
    /// In the order of the sum of the whole tensor: its bits do not change.
    InOrder,
    /// Each rank sums its part, and ranks sum those: less is exchanged.
    ByRank,
}

/// A tensor that is divided: a parameter of a function, and the result that is its next value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardedTensor {
    /// The parameter, by position.
    pub param: usize,
    /// The result, by position.
    pub result: usize,
    /// The elements of the whole tensor.
    pub elements: u64,
}

impl ShardedTensor {
    /// The elements that each rank has. The last ranks may have fewer of the tensor's; what is left is padding.
    pub fn part(self, ranks: u32) -> u64 {
        part(self.elements, ranks)
    }
}

/// The elements of a part of `elements`.
pub(super) fn part(elements: u64, ranks: u32) -> u64 {
    elements.div_ceil(ranks.max(1).into()).next_multiple_of(BLOCK)
}

impl StateSharding {
    /// Whether nothing is divided.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The tensor that a parameter is, if it is divided.
    pub fn of_param(&self, param: usize) -> Option<ShardedTensor> {
        self.tensors.iter().copied().find(|t| t.param == param)
    }

    /// The bytes that a rank need not keep, where parameters have the types of a function's.
    pub fn saved_bytes(&self, f: &Function) -> u64 {
        let types = f.param_types();
        let saved = |t: &ShardedTensor| {
            let bytes = types.get(t.param).map_or(0, |ty| ty.dtype.bytes());
            t.elements.saturating_sub(t.part(self.ranks)).saturating_mul(bytes)
        };
        self.tensors.iter().map(saved).sum()
    }
}

/// As it is read: `shard over ranks by 2, sums in order: 3 -> 7 of 300000, 4 -> 8 of 300000`.
impl fmt::Display for StateSharding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = match self.sums {
            ShardedSums::InOrder => "in order",
            ShardedSums::ByRank => "by rank",
        };
        write!(out, "shard over {} by {}, sums {sums}:", self.over, self.ranks)?;
        for (k, t) in self.tensors.iter().enumerate() {
            let comma = if k == 0 { "" } else { "," };
            write!(out, "{comma} {} -> {} of {}", t.param, t.result, t.elements)?;
        }
        Ok(())
    }
}

impl FromStr for StateSharding {
    type Err = String;

    fn from_str(text: &str) -> Result<StateSharding, String> {
        let (head, list) = text.split_once(':').ok_or("a colon is missing")?;
        let rest = head.strip_prefix("shard over ").ok_or("it begins with `shard over`")?;
        let (over, rest) = rest.split_once(" by ").ok_or("`by` is missing")?;
        let (ranks, sums) = rest.split_once(", sums ").ok_or("`, sums` is missing")?;
        let sums = match sums {
            "in order" => ShardedSums::InOrder,
            "by rank" => ShardedSums::ByRank,
            other => return Err(format!("sums are `in order` or `by rank`, found `{other}`")),
        };
        if !is_word(over) {
            return Err(format!("`{over}` is no name"));
        }
        let ranks: u32 = number(ranks)?;
        if ranks == 0 {
            return Err("there is at least one rank".into());
        }
        let tensor = |item: &str| {
            let (param, rest) = item.trim().split_once(" -> ").ok_or("`->` is missing")?;
            let (result, elements) = rest.split_once(" of ").ok_or("`of` is missing")?;
            let (param, result) = (number(param)?, number(result)?);
            Ok::<_, String>(ShardedTensor { param, result, elements: number(elements)? })
        };
        let items = list.split(',').filter(|item| !item.trim().is_empty());
        let tensors = items.map(tensor).collect::<Result<Vec<_>, _>>()?;
        Ok(StateSharding { over: over.into(), ranks, sums, tensors })
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is no number"))
}
