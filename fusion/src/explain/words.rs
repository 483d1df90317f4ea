//! Explanations as sentences.

use super::patterns::{PatternMatch, patterns};
use super::value_words::ValueWords;
use super::{Explanation, NotShared, Obstacle};
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use crate::plan::refusal::Refusal;
use adfuse_ir::op::{Body, Indirect};
use adfuse_ir::{Function, Inst, Value, ValueDef};
use std::cell::OnceCell;

impl Explanation {
    /// The answer in plain words, a sentence a line; then what the values without names are. `source` is the text that the
    /// function was read from, of which lines are told; it may be empty.
    pub fn lines(
        &self,
        f: &Function,
        plan: &Plan,
        device: &MachineModel,
        source: &str,
    ) -> Vec<String> {
        let words = SentenceWriter::new(f, plan, device, source);
        let mut out = self.sentences(&words);
        out.extend(words.values.legend().into_iter().map(|line| format!("  {line}")));
        out
    }

    fn sentences(&self, words: &SentenceWriter<'_>) -> Vec<String> {
        let [a, b] = self.values.map(|v| words.name(v));
        let mut out = Vec::new();
        if self.values[0] == self.values[1] {
            return self.of_one_value(words);
        }
        for t in &self.together {
            let stage = if t.one_stage() { "in one stage" } else { "in different stages" };
            out.push(format!("{a} and {b} are computed together, in group {}, {stage}", t.group));
            for (name, role) in [(&a, t.roles[0]), (&b, t.roles[1])] {
                out.push(format!("  {name}: {}", role.words()));
            }
        }
        if !self.together.is_empty() {
            return out;
        }
        out.push(format!("{a} and {b} are computed apart"));
        out.extend([0, 1].map(|k| self.where_computed(k, words)));
        out.extend(self.apart.iter().map(|apart| words.not_shared(apart)));
        out
    }

    /// In which groups one of the values is computed.
    fn where_computed(&self, k: usize, words: &SentenceWriter<'_>) -> String {
        let name = words.name(self.values[k]);
        match self.groups[k].as_slice() {
            [] => format!("  {name}: in no group"),
            [g] => format!("  {name}: in group {g}"),
            several => {
                let list: Vec<String> = several.iter().map(usize::to_string).collect();
                let how = if words.is_written(self.values[k]) { "written out" } else { "computed" };
                format!("  {name}: {how} in groups {}", list.join(", "))
            }
        }
    }

    /// The answer where a value is asked about beside itself.
    fn of_one_value(&self, words: &SentenceWriter<'_>) -> Vec<String> {
        let name = words.name(self.values[0]);
        let mut out = vec![format!("both are {name}")];
        match self.together.is_empty() {
            true => {
                out.push(self.where_computed(0, words));
                out.extend(self.apart.first().map(|apart| words.not_shared(apart)));
            }
            false => out.extend(
                self.together
                    .iter()
                    .map(|t| format!("  {name}: {}, in group {}", t.roles[0].words(), t.group)),
            ),
        }
        out
    }
}

/// The longest chain of operands that is told whole.
const MOST_LINKS: usize = 3;

/// What turns answers into sentences.
pub(crate) struct SentenceWriter<'a> {
    f: &'a Function,
    plan: &'a Plan,
    device: &'a MachineModel,
    pub(crate) values: ValueWords<'a>,
    patterns: OnceCell<Vec<PatternMatch>>,
}

impl<'a> SentenceWriter<'a> {
    pub(crate) fn new(
        f: &'a Function,
        plan: &'a Plan,
        device: &'a MachineModel,
        source: &'a str,
    ) -> SentenceWriter<'a> {
        let values = ValueWords::new(f, source);
        SentenceWriter { f, plan, device, values, patterns: OnceCell::new() }
    }

    pub(crate) fn name(&self, v: Value) -> String {
        self.values.name(v)
    }

    fn is_written(&self, v: Value) -> bool {
        matches!(self.f.def(v), ValueDef::Inst(i, _) if self.plan.inline.contains(&i))
    }

    pub(crate) fn not_shared(&self, apart: &NotShared) -> String {
        let name = self.name(apart.value);
        let mut out = match apart.group {
            Some(g) => format!("{name} is not in group {g}: "),
            None => format!("{name}: "),
        };
        let (mut subject, mut about) = (name, apart.value);
        let links = apart.chain.len();
        for (k, &v) in apart.chain.iter().enumerate() {
            let next = self.name(v);
            // Of a long chain the first link and the last are told.
            match links > MOST_LINKS && k > 0 && k + 1 < links {
                true if k == 1 => out += &format!("so on through {} more; ", links - 2),
                true => {}
                false => {
                    out += &format!("{subject} needs {next}, which is computed after that group; ");
                }
            }
            (subject, about) = (next, v);
        }
        out += &match apart.obstacle {
            Obstacle::Refused(why) => self.refusal(about, self.contracts(apart.group), why),
            Obstacle::Needed(v) => {
                format!("{subject} is needed before that group runs, by {}", self.name(v))
            }
            Obstacle::Unused => {
                format!("{subject} is written out where it is used, and nothing there uses it")
            }
            Obstacle::Given => format!("{subject} is given, not computed"),
            Obstacle::Nothing => format!(
                "no rule keeps {subject} out; the plan has it in a group that it fits as well, \
                 or keeps instructions apart"
            ),
        };
        out
    }

    /// Whether a group of the plan begins with a contraction.
    fn contracts(&self, group: Option<usize>) -> bool {
        let first = group.and_then(|g| self.plan.groups.get(g)?.parts.first()?.first());
        matches!(first.map(|&i| self.f.op(i).def().body), Some(Body::Contract))
    }

    fn body(&self, v: Value) -> Option<Body> {
        match self.f.def(v) {
            ValueDef::Inst(i, _) => Some(self.f.op(i).def().body),
            _ => None,
        }
    }

    /// The pattern that folds rows to compute a value, such as a layer norm, and the value whose rows it needs.
    fn row_pattern(&self, v: Value) -> Option<(&'static str, Value)> {
        let ValueDef::Inst(i, _) = self.f.def(v) else { return None };
        let folds = |i: Inst| matches!(self.f.op(i).def().body, Body::Reduce(_));
        let found = self.patterns.get_or_init(|| patterns(self.f)).iter();
        let mut found = found.filter(|p| p.insts.contains(&i));
        let (pattern, fold) =
            found.find_map(|p| Some((p, p.insts.iter().copied().find(|&i| folds(i))?)))?;
        // What is folded first is the row, or made of it.
        let mut row = self.f.args(fold)[0];
        while let ValueDef::Inst(i, _) = self.f.def(row)
            && pattern.insts.contains(&i)
            && let Some(&from) = self.f.args(i).first()
        {
            row = from;
        }
        Some((pattern.name, row))
    }

    /// Why a product begins a kernel of its own.
    fn product(&self, v: Value) -> String {
        let subject = self.name(v);
        let args = match self.f.def(v) {
            ValueDef::Inst(i, _) => self.f.args(i),
            _ => &[],
        };
        let computed = |a: &&Value| matches!(self.f.def(**a), ValueDef::Inst(..));
        let Some(&a) = args.iter().find(computed).or(args.first()) else {
            return format!("{subject} is a product, which begins a kernel of its own");
        };
        match self.row_pattern(a) {
            Some((pattern, row)) => format!(
                "{subject} is a product with {}, and {pattern} needs the whole row of {} before the first \
                 product can begin",
                self.name(a),
                self.name(row)
            ),
            None => format!(
                "{subject} is a product: it reads each element of {} many times, so all of it must be in \
                 memory before the first product can begin",
                self.name(a)
            ),
        }
    }

    /// Why what computes a value shares no kernel.
    fn alone(&self, v: Value) -> String {
        let subject = self.name(v);
        match self.body(v) {
            Some(Body::Contract) => self.product(v),
            Some(Body::Indirect(Indirect::Scatter(_))) => {
                format!(
                    "{subject} is a scatter: its updates meet at elements in an order that the points \
                         of a kernel do not keep"
                )
            }
            Some(Body::Indirect(Indirect::Argsort)) => {
                format!("{subject} is a sort: every place depends on all elements of its line")
            }
            Some(Body::Step(_)) => {
                format!(
                    "{subject} is computed by attention, which makes scores and weighs them tile by tile"
                )
            }
            Some(Body::Opaque) => {
                format!("{subject} is computed by a user function, whose code cannot be fused")
            }
            Some(Body::Collective(_)) => {
                format!("{subject} is an exchange between ranks, which has dense arrays")
            }
            Some(Body::Region(_)) => {
                format!(
                    "{subject} is computed by a loop or a branch, which runs a program of its own"
                )
            }
            Some(Body::Effect(_)) => {
                format!("{subject} is an effect, which the host performs between kernels")
            }
            _ => {
                format!(
                    "a scatter, a sort, a function, a loop, an exchange or an effect shares no kernel, so {subject} cannot join"
                )
            }
        }
    }

    /// A refusal of `subject` by a group, which begins with a contraction or not.
    pub(crate) fn refusal(&self, v: Value, contracts: bool, why: Refusal) -> String {
        let subject = self.name(v);
        match why {
            Refusal::Order(v) => {
                format!("{subject} needs {}, which is computed later", self.name(v))
            }
            Refusal::Axes(v) => format!(
                "{subject} reads {0} along other axes than the group computes it along, or shifted: an \
                 element of {subject} needs elements of {0} that other points of the kernel compute, \
                 perhaps later",
                self.name(v)
            ),
            Refusal::Barrier(v) if contracts => format!(
                "{subject} needs {}, a fold over whole rows of the contraction's result, which no \
                 tile of it holds: all of it must be done first",
                self.name(v)
            ),
            Refusal::Barrier(v) => format!(
                "{subject} reads {}, a fold over points of the group's kernel, all of which must be \
                 done first",
                self.name(v)
            ),
            Refusal::Nest => {
                format!(
                    "{subject} runs along other axes than the group, or only some of them: in its kernel \
                     it would be computed again at every point of the others"
                )
            }
            Refusal::Row { row, rows } => format!(
                "a row of {row} elements is too long to be kept (a tile has {} bytes), and {rows} \
                 rows are too few to go through each more than once (at least {})",
                self.device.tile_bytes, self.device.parallel
            ),
            Refusal::Rows => {
                let needs = self.row_pattern(v).map_or_else(String::new, |(pattern, row)| {
                    format!(": {pattern} needs the whole row of {} first", self.name(row))
                });
                format!(
                    "{subject} folds whole rows of the contraction's result, which no tile of it \
                     holds{needs}"
                )
            }
            Refusal::Interleaved => format!(
                "{subject} folds axes of the contraction's result that are not neighbours in the order \
                 of its batches, rows and columns"
            ),
            Refusal::Kind => self.alone(v),
            Refusal::Size => {
                format!("with {subject} the kernel would compute or read too much")
            }
            Refusal::Apart => format!(
                "{subject} reads nothing that the group computes or reads: together they would move as many \
                 bytes"
            ),
        }
    }
}
