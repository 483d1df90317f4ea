//! When ranks exchange: as soon as what is sent is there, so that other work can go on meanwhile.
//!
//! Sums of gradients are written behind the whole backward pass. Here each exchange moves to where its operand is computed,
//! with the views and elementwise operations between the two, and what reads it moves behind the next exchange: while a
//! rank adds the parts of one gradient, the next gradient is on its way. Behind the last of them nothing is sent that could hide
//! it, so that whatever does not wait for it comes first. All ranks have the same program, so that all of them exchange in
//! the same order.

use super::Copier;
use super::exchange_prefetch::{InstKinds, prefetched};
use crate::ValueDef;
use crate::diag::Diagnostic;
use crate::entity::{Inst, Value};
use crate::function::Function;
use crate::op::{Body, Collective};
use cranelift_entity::{EntitySet, SecondaryMap};

/// The function with its exchanges where their operands are computed.
///
/// # Errors
/// Those of construction.
pub fn exchanges_early(f: Function) -> Result<Function, Diagnostic> {
    let kinds = ExchangeOrder::of(&f);
    let order = prefetched(&f, &kinds, &kinds.order());
    if order == f.body_insts() || !is_order(&f, &order) {
        return Ok(f);
    }
    let mut copier = Copier::new(&f);
    let mut b = copier.begin();
    for &i in &order {
        copier.inst(&mut b, i);
    }
    copier.finish(b)
}

/// Whether each instruction comes after what it reads.
fn is_order(f: &Function, order: &[Inst]) -> bool {
    let mut done = EntitySet::<Inst>::new();
    order.len() == f.body_insts().len()
        && order.iter().all(|&i| {
            let ready = |v: Value| match f.def(v) {
                ValueDef::Inst(j, _) => done.contains(j),
                _ => true,
            };
            let is_ready = crate::control::reads(f, i).into_iter().all(ready);
            done.insert(i);
            is_ready
        })
}

/// An exchange, and what is between it and what it waits for.
struct MovedExchange {
    /// The instruction after which it can begin, by position.
    ready: usize,
    /// It and what it alone needs, by positions in rising order.
    with: Vec<usize>,
    /// The exchange whose result it needs, by position.
    source: Option<usize>,
}

struct ExchangeOrder<'f> {
    f: &'f Function,
    position: SecondaryMap<Inst, u32>,
}

impl InstKinds for ExchangeOrder<'_> {
    fn is_exchange(&self, i: Inst) -> bool {
        self.f.op(i).collective().is_some_and(|which| which != Collective::Index)
    }

    fn is_light(&self, i: Inst) -> bool {
        matches!(
            self.f.op(i).def().body,
            Body::Map(_) | Body::View(_) | Body::Constant | Body::Source(_)
        )
    }
}

impl<'f> ExchangeOrder<'f> {
    fn of(f: &'f Function) -> ExchangeOrder<'f> {
        let mut position = SecondaryMap::new();
        f.body_insts().iter().zip(0..).for_each(|(&i, n)| position[i] = n);
        ExchangeOrder { f, position }
    }

    /// What moves with an exchange; `None` for one that stays. Nothing moves that stands before `behind`, the last
    /// instruction before it that takes time.
    fn moved(&self, exchange: usize, behind: usize) -> Option<MovedExchange> {
        let insts = self.f.body_insts();
        let (mut with, mut ready, mut sources) = (vec![exchange], None, Vec::new());
        let mut seen = EntitySet::<Inst>::new();
        let mut stack = vec![insts[exchange]];
        while let Some(i) = stack.pop() {
            for v in crate::control::reads(self.f, i) {
                let ValueDef::Inst(j, _) = self.f.def(v) else { continue };
                if !seen.insert(j) {
                    continue;
                }
                let at = self.position[j] as usize;
                if self.is_exchange(j) {
                    sources.push(at);
                } else if at > behind && self.is_light(j) {
                    with.push(at);
                    stack.push(j);
                } else {
                    ready = ready.max(Some(at));
                }
            }
        }
        with.sort_unstable();
        match (sources.as_slice(), ready) {
            ([], Some(ready)) => Some(MovedExchange { ready, with, source: None }),
            ([source], ready) => {
                let source = Some(*source);
                Some(MovedExchange { ready: ready.unwrap_or(0), with, source })
            }
            _ => None,
        }
    }

    /// The exchanges that move, in their order.
    fn all_moved(&self) -> Vec<(usize, MovedExchange)> {
        let mut found = Vec::new();
        let mut behind = 0;
        for (n, &i) in self.f.body_insts().iter().enumerate() {
            if self.is_exchange(i) {
                found.extend(self.moved(n, behind).map(|moved| (n, moved)));
            } else if !self.is_light(i) {
                behind = n;
            }
        }
        found
    }

    fn order(&self) -> Vec<Inst> {
        let insts = self.f.body_insts();
        let all = self.all_moved();
        let firsts = all.iter().filter(|(_, moved)| moved.source.is_none());
        // Where an exchange can begin, and the exchange.
        let mut begins: Vec<(usize, usize)> = firsts.map(|(n, moved)| (moved.ready, *n)).collect();
        begins.sort_unstable();
        let firsts = begins.clone();
        let of = |n: usize| all.iter().find(|(at, _)| *at == n).map(|(_, moved)| moved);
        let mut seconds: SecondaryMap<Inst, Vec<usize>> = SecondaryMap::new();
        let mut moves = vec![false; insts.len()];
        for (n, moved) in &all {
            if let Some(source) = moved.source {
                // What else it needs has to be there where its source begins.
                let begin = of(source).filter(|of| of.source.is_none()).map(|of| of.ready);
                if begin.is_none_or(|begin| moved.ready > begin) {
                    continue;
                }
                seconds[insts[source]].push(*n);
            }
            moved.with.iter().for_each(|&k| moves[k] = true);
        }
        let with = |n: usize| of(n).map_or(&[][..], |moved| moved.with.as_slice());
        let mut placed = ReorderedBody { insts, order: Vec::new(), done: vec![false; insts.len()] };
        // Exchanges that wait until another one has begun, or until what reads them comes.
        let mut waiting: Vec<usize> = Vec::new();
        let mut begins = begins.into_iter().peekable();
        for (n, &is_moved) in moves.iter().enumerate() {
            if !is_moved {
                placed.put(&[n]);
            } else if waiting.iter().any(|&w| with(w).contains(&n)) {
                waiting.drain(..).for_each(|w| placed.put(with(w)));
            }
            while let Some((_, first)) = begins.next_if(|(ready, _)| *ready == n) {
                placed.put(with(first));
                waiting.drain(..).for_each(|w| placed.put(with(w)));
                waiting.extend(&seconds[insts[first]]);
            }
        }
        waiting.into_iter().for_each(|w| placed.put(with(w)));
        match firsts.last() {
            Some(&(_, last)) => self.last_readers_late(placed.order, insts[last]),
            None => placed.order,
        }
    }

    /// The order with what does not wait for an exchange before what does, from where that begins.
    fn last_readers_late(&self, order: Vec<Inst>, exchange: Inst) -> Vec<Inst> {
        let Some(begin) = order.iter().position(|&i| i == exchange) else { return order };
        let (mut early, tail) = (order[..=begin].to_vec(), &order[begin + 1..]);
        let mut waits = EntitySet::<Inst>::new();
        waits.insert(exchange);
        let mut late = Vec::new();
        for &i in tail {
            let read = crate::captures::reads(self.f, i);
            let is_late = read.into_iter().any(|v| match self.f.def(v) {
                ValueDef::Inst(j, _) => waits.contains(j),
                _ => false,
            });
            if is_late {
                waits.insert(i);
                late.push(i);
            } else {
                early.push(i);
            }
        }
        early.append(&mut late);
        early
    }
}

/// Instructions in their new order.
struct ReorderedBody<'f> {
    insts: &'f [Inst],
    order: Vec<Inst>,
    done: Vec<bool>,
}

impl ReorderedBody<'_> {
    /// Puts the instructions of some positions next, those that were not put before.
    fn put(&mut self, positions: &[usize]) {
        for &n in positions {
            if !std::mem::replace(&mut self.done[n], true) {
                self.order.push(self.insts[n]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{parse, print_function};

    fn moved(body: &str) -> Vec<String> {
        let m = parse(body).unwrap_or_else(|e| panic!("{e:?}"));
        let f = m.funcs.values().next().expect("a function").clone();
        let after = exchanges_early(f).expect("builds");
        let lines = print_function(&after);
        let names = lines.lines().filter_map(|l| l.trim().split_once(" = "));
        names.map(|(name, _)| name.trim_start_matches('%').to_string()).collect()
    }

    #[test]
    fn exchanges_begin_where_their_operand_is_and_readers_follow_the_next() {
        let found = moved(
            "func @f(%x: f32[4,4], %y: f32[4,4]) -> (f32[16], f32[16], f32[4,4]) {
               %a = dot_general %x, %y {contract = [1] x [0]} : f32[4,4]
               %b = dot_general %a, %y {contract = [1] x [0]} : f32[4,4]
               %c = dot_general %b, %y {contract = [1] x [0]} : f32[4,4]
               %ra = reshape %a : f32[2,8]
               %ta = all_to_all %ra {over = \"ranks\", ranks = 2, split = 0, concat = 0} : f32[2,8]
               %na = neg %ta : f32[2,8]
               %sa = slice %na {start = [0, 0], limit = [1, 8], stride = [1, 1]} : f32[1,8]
               %ga = all_gather %sa {over = \"ranks\", ranks = 2, axis = 0} : f32[2,8]
               %fa = reshape %ga : f32[16]
               %rb = reshape %b : f32[2,8]
               %tb = all_to_all %rb {over = \"ranks\", ranks = 2, split = 0, concat = 0} : f32[2,8]
               %sb = slice %tb {start = [0, 0], limit = [1, 8], stride = [1, 1]} : f32[1,8]
               %gb = all_gather %sb {over = \"ranks\", ranks = 2, axis = 0} : f32[2,8]
               %fb = reshape %gb : f32[16]
               return %fa, %fb, %c
             }",
        );
        let due = ["a", "ra", "ta", "b", "rb", "tb", "na", "sa", "ga", "c", "fa", "sb", "gb", "fb"];
        assert_eq!(found, due);
    }

    #[test]
    fn what_does_not_wait_for_the_last_exchange_comes_before_what_does() {
        let found = moved(
            "func @f(%x: f32[4,4], %y: f32[4,4]) -> (f32[], f32[], f32[]) {
               %a = dot_general %x, %y {contract = [1] x [0]} : f32[4,4]
               %b = dot_general %a, %y {contract = [1] x [0]} : f32[4,4]
               %ga = all_gather %a {over = \"ranks\", ranks = 2, axis = 0} : f32[8,4]
               %gb = all_gather %b {over = \"ranks\", ranks = 2, axis = 0} : f32[8,4]
               %sb = reduce_sum %gb {axes = [0, 1]} : f32[]
               %sa = reduce_sum %ga {axes = [0, 1]} : f32[]
               %s = add %sb, %sa : f32[]
               return %s, %sa, %sb
             }",
        );
        assert_eq!(found, ["a", "ga", "b", "gb", "sa", "sb", "s"]);
    }

    #[test]
    fn what_is_given_is_gathered_ahead_of_its_readers() {
        // Each gathers 8 MiB: two at a time, and two are ahead.
        let gather = |k: usize| {
            format!(
                "%n{k} = neg %p{k} : f32[1024,1024]
                 %g{k} = all_gather %n{k} {{over = \"ranks\", ranks = 2, axis = 0}} : f32[2048,1024]
                 %v{k} = transpose %g{k} {{perm = [1, 0]}} : f32[1024,2048]\n"
            )
        };
        let product = |k: usize, x: &str| {
            format!("%d{k} = dot_general {x}, %v{k} {{contract = [1] x [0]}} : f32[4,2048]
                     %s{k} = slice %d{k} {{start = [0, 0], limit = [4, 1024], stride = [1, 1]}} : f32[4,1024]\n")
        };
        let params: Vec<String> = (0..5).map(|k| format!("%p{k}: f32[1024,1024]")).collect();
        let gathers: String = (0..5).map(gather).collect();
        let products: String = (0..5)
            .map(|k| product(k, &if k == 0 { "%x".into() } else { format!("%s{}", k - 1) }))
            .collect();
        let found = moved(&format!(
            "func @f(%x: f32[4,1024], {}) -> f32[4,1024] {{ {gathers} {products} return %s4 }}",
            params.join(", ")
        ));
        let kept = |name: &&String| name.starts_with('g') || name.starts_with('d');
        let order: Vec<&String> = found.iter().filter(kept).collect();
        assert_eq!(order, ["g0", "g1", "g2", "g3", "d0", "d1", "g4", "d2", "d3", "d4"]);
    }

    #[test]
    fn an_exchange_of_what_is_given_stays() {
        let found = moved(
            "func @f(%x: f32[2]) -> f32[4] {
               %a = cumsum %x {axis = 0} : f32[2]
               %g = all_gather %x {over = \"ranks\", ranks = 2, axis = 0} : f32[4]
               %h = all_gather %a {over = \"ranks\", ranks = 2, axis = 0} : f32[4]
               %s = add %g, %h : f32[4]
               return %s
             }",
        );
        assert_eq!(found, ["a", "h", "g", "s"]);
    }
}
