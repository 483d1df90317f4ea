//! Equal steps: those of a program, or of several, that differ in nothing but the buffers that they name.
//!
//! Layers of a model become steps that are equal in this sense. What is made of a step alone (its cost, its schedule,
//! its code) is made once for all of its equals. So there is one definition of "equal", which planner and engines
//! share: a step's form has no names, and numbers its buffers in the order in which the step mentions them.

use super::buffer::{Buffer, BufferData};
use super::program::{Program, Step};
use cranelift_entity::EntityRef;
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

/// A step without names, whose buffers are numbered in the order in which it mentions them.
///
/// Equal forms run the same code on buffers of the same types, layouts and roles. Which of the mentioned buffers are one
/// buffer is part of the form; where they are in memory is not.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StepForm {
    step: Step,
    buffers: Vec<BufferData>,
}

/// The buffers of a step in the order in which it mentions them first.
pub type MentionedBuffers = SmallVec<[Buffer; 8]>;

impl StepForm {
    /// The form of a step of a program, and its buffers in the order of their numbers. `None` for loops and branches,
    /// each of which is equal to itself alone, and for a step that mentions what is no buffer of the program.
    pub fn of(program: &Program, step: &Step) -> Option<(StepForm, MentionedBuffers)> {
        if matches!(step, Step::Loop(_) | Step::Branch(_)) {
            return None;
        }
        let mut step = step.clone();
        unname(&mut step);
        let mut mentioned = MentionedBuffers::new();
        let mut number: HashMap<Buffer, usize> = HashMap::new();
        step.buffers_mut(&mut |b| {
            let next = mentioned.len();
            let k = *number.entry(*b).or_insert(next);
            if k == next {
                mentioned.push(*b);
            }
            *b = Buffer::new(k);
        });
        let data = |&b: &Buffer| {
            let data = program.buffers.get(b)?.clone();
            // Who has the memory afterwards is of no matter to the step.
            Some(BufferData { name: String::new(), donated: false, ..data })
        };
        let buffers = mentioned.iter().map(data).collect::<Option<_>>()?;
        Some((StepForm { step, buffers }, mentioned))
    }

    /// The step, and the buffers that it mentions by their numbers.
    pub fn parts(self) -> (Step, Vec<BufferData>) {
        (self.step, self.buffers)
    }
}

/// Takes away the names that people know a step by.
fn unname(step: &mut Step) {
    match step {
        Step::Kernel(k) => k.name.clear(),
        Step::Contract(c) => c.name.clear(),
        Step::Loop(l) => l.name.clear(),
        Step::Branch(b) => b.name.clear(),
        Step::Bundle(b) => {
            b.name.clear();
            b.kernels.iter_mut().for_each(|k| k.name.clear());
        }
        // A library's function is what it does, and a print's label what it prints.
        Step::Library(_)
        | Step::Attend(_)
        | Step::Scatter(_)
        | Step::Argsort(_)
        | Step::Transfer(_)
        | Step::Exchange(_)
        | Step::Print(_) => {}
    }
}

/// For each step of a program the first one that it is equal to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EqualSteps {
    first: Vec<usize>,
    mentioned: Vec<MentionedBuffers>,
}

impl EqualSteps {
    /// Finds the equal steps of a program.
    pub fn of(program: &Program) -> EqualSteps {
        let mut known: HashMap<StepForm, usize> = HashMap::new();
        let mut found = EqualSteps::default();
        for (n, step) in program.steps.iter().enumerate() {
            let (first, mentioned) = match StepForm::of(program, step) {
                Some((form, mentioned)) => (*known.entry(form).or_insert(n), mentioned),
                None => (n, MentionedBuffers::new()),
            };
            found.first.push(first);
            found.mentioned.push(mentioned);
        }
        found
    }

    /// The first step that a step is equal to: itself, where none before it is. Beyond the program every step is
    /// equal to itself alone.
    pub fn first(&self, step: usize) -> usize {
        self.first.get(step).copied().unwrap_or(step)
    }

    /// How many different steps there are.
    pub fn count(&self) -> usize {
        self.first.iter().enumerate().filter(|&(n, &first)| n == first).count()
    }

    /// The buffer that a step has instead of one that the first of its equals has; `None` for one that this does
    /// not mention.
    pub fn counterpart(&self, step: usize, of_first: Buffer) -> Option<Buffer> {
        let (own, firsts) = (self.mentioned.get(step)?, self.mentioned.get(self.first(step))?);
        let k = firsts.iter().position(|&b| b == of_first)?;
        own.get(k).copied()
    }

    /// The steps that are equal to none before them, in their order.
    pub fn representatives(&self) -> impl Iterator<Item = usize> + '_ {
        let mut seen = HashSet::new();
        self.first.iter().copied().filter(move |&first| seen.insert(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::text::parse;

    /// A kernel that adds two buffers.
    fn sum(name: &str, [a, b, to]: [&str; 3]) -> String {
        format!(
            "kernel @{name} [8] {{ stage [] {{
               p0 = load %{a}[d0]
               p1 = load %{b}[d0]
               s0 = param.f32 0
               s1 = param.f32 1
               s2 = add.f32 s0 s1
               %{to}[d0] = store s2
             }} }}\n"
        )
    }

    fn layers() -> Program {
        let steps = [
            sum("first", ["x", "a", "t"]),
            sum("second", ["t", "b", "u"]),
            sum("third", ["u", "c", "v"]),
            sum("twice", ["v", "v", "w"]),
            sum("copied", ["w", "c", "s"]),
            sum("last", ["s", "a", "y"]),
        ];
        let inputs: String = ["x", "a", "b", "c"].map(|n| format!("input %{n}: f32[8]\n")).concat();
        let temps: String =
            ["t", "u", "v", "w", "s"].map(|n| format!("temp %{n}: f32[8]\n")).concat();
        let text = format!(
            "program @layers {{\n{inputs}{temps}output %y: f32[8]\n{}return %y\n}}",
            steps.concat()
        );
        parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"))
    }

    #[test]
    fn equal_layers_are_one_class() {
        let program = layers();
        let equal = EqualSteps::of(&program);
        let first: Vec<usize> = (0..6).map(|n| equal.first(n)).collect();
        // The first reads an input, the last writes an output, and one reads a buffer twice.
        assert_eq!(first, [0, 1, 1, 3, 1, 5]);
        assert_eq!(equal.count(), 4);
        assert_eq!(equal.representatives().collect::<Vec<_>>(), [0, 1, 3, 5]);
        let named = |name: &str| {
            let mut all = program.buffers.iter();
            all.find(|(_, data)| data.name == name).expect("is there").0
        };
        for (of, own) in [("t", "w"), ("b", "c"), ("u", "s")] {
            assert_eq!(equal.counterpart(4, named(of)), Some(named(own)));
        }
        assert_eq!(equal.counterpart(4, named("x")), None);
    }

    #[test]
    fn what_a_buffer_is_tells_steps_apart() {
        let count = |change: &dyn Fn(&mut BufferData)| {
            let mut program = layers();
            let of_third =
                program.buffers.iter().find(|(_, data)| data.name == "v").expect("is there").0;
            change(&mut program.buffers[of_third]);
            EqualSteps::of(&program).count()
        };
        assert_eq!(count(&|data| data.name = "other".into()), 4);
        assert_eq!(count(&|data| data.dims[0] = 9), 5);
        assert_eq!(count(&|data| data.donated = true), 4);
        assert_eq!(count(&|data| data.storage = crate::kernel::Storage::Packed(8)), 5);
    }
}
