//! What an engine makes of a step, as numbers: the vector width of each loop, scalarized and gathered accesses, arrays
//! that are gone through once more, operands that are copied. Engines fill this, and cost models price it.

/// What an engine makes of one step of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelFacts {
    /// Tasks that threads share.
    pub tasks: u64,
    /// The loops over scalar programs.
    pub sweeps: Vec<SweepFacts>,
    /// Whether the products of a contraction are part of those loops.
    pub swept_products: bool,
    /// What is done beside those, to arrays.
    pub passes: Vec<ArrayPass>,
    /// Its launches, on an engine that launches kernels.
    pub launches: Option<LaunchFacts>,
}

/// The launches that a step becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaunchFacts {
    /// How many there are.
    pub count: u64,
    /// Bytes of memory traffic beyond reading the step's inputs and writing its outputs once: partial results, keys of
    /// sorts, and buffers that a later launch reads again.
    pub beyond_bytes: u64,
    /// Those bytes of the step's traffic, inputs and outputs among them, that move while nothing is multiplied: by launches before
    /// and after a product, and while a product's tiles are finished. 0 where there is no product.
    pub serial_bytes: u64,
    /// Instructions of the kernels that move them, which take their time beside that: the longer of both counts.
    pub serial_ops: u64,
    /// Instructions of a step's loops, where the engine writes functions in fewer than the primitives of their definition: in place of those.
    pub loop_ops: Option<u64>,
    /// Multiply-adds of contractions with those that fill tiles up; 0 where a library multiplies.
    pub multiply_adds: u64,
    /// Multiply-adds that units of a model's rate would do in the time of those contractions whose time an engine knows, in
    /// place of their own.
    pub timed_multiply_adds: u64,
    /// Whether that time has in it what products compute of their operands.
    pub timed_feeds: bool,
    /// Whether what follows the sums of products takes no time but that of multiply-adds and of serial instructions.
    pub timed_sums: bool,
}

/// A loop nest over a scalar program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SweepFacts {
    /// Elements that are computed.
    pub elements: u64,
    /// Elements of the innermost loop.
    pub line: u64,
    /// Calls of its code, each for a batch of the elements.
    pub runs: u64,
    /// Elements of 32 bits that an instruction computes: 1 in scalar code.
    pub lanes: u32,
    /// Instructions that compute, for each group of that many elements; one of 64 bits counts twice, and a quotient or a root
    /// as many times as its [weight](crate::scalar::PrimDef::weight) says. Invariants of the innermost loop do not count.
    pub slots: u32,
    /// Instructions for each group that load, store, or make a NaN the canonical one, counted alike.
    pub moves: u32,
    /// The same for the invariants of the innermost loop, which each line computes.
    pub line_slots: u32,
    /// Accesses, of each element, that are made one element at a time within the cache line of the element before.
    pub near: u32,
    /// The same, each in a cache line of its own.
    pub far: u32,
    /// Accesses, of each element, whose place is computed for each element.
    pub placed: u32,
    /// Functions that are called for each element.
    pub calls: u32,
    /// Boundaries of guards at which each innermost loop is interrupted.
    pub cuts: u32,
}

/// Elements of an array that are gone through beside the loops of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayPass {
    /// What is done to each.
    pub kind: PassKind,
    /// How many there are.
    pub elements: u64,
}

/// What a pass over an array does to each element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PassKind {
    /// Folds it, with vectors.
    Line,
    /// Folds it by itself: in a short line or column, or in a chain.
    Fold,
    /// Compares it with the best so far, and keeps its position.
    Extremum,
    /// Moves it, since axes are interchanged.
    Interchange,
    /// Adds it to a running fold.
    Scan,
    /// Adds it to a result at a computed position.
    Update,
    /// Copies it to where a product reads it.
    Pack,
    /// Moves it to its place by one digit of its key, in memory that threads share.
    Digit,
}

impl KernelFacts {
    /// Adds a pass, unless it is over nothing.
    pub fn pass(&mut self, kind: PassKind, elements: i64) {
        if let Ok(elements) = u64::try_from(elements)
            && elements > 0
        {
            self.passes.push(ArrayPass { kind, elements });
        }
    }

    /// Adds what another step does, which the same step was divided into.
    pub fn join(&mut self, other: KernelFacts) {
        self.tasks = self.tasks.max(other.tasks);
        self.swept_products |= other.swept_products;
        self.sweeps.extend(other.sweeps);
        self.passes.extend(other.passes);
        if let Some(other) = other.launches {
            let own = self.launches.get_or_insert_default();
            own.count = own.count.saturating_add(other.count);
            own.beyond_bytes = own.beyond_bytes.saturating_add(other.beyond_bytes);
            own.serial_bytes = own.serial_bytes.saturating_add(other.serial_bytes);
            own.multiply_adds = own.multiply_adds.saturating_add(other.multiply_adds);
            own.timed_multiply_adds =
                own.timed_multiply_adds.saturating_add(other.timed_multiply_adds);
            own.serial_ops = own.serial_ops.saturating_add(other.serial_ops);
            own.loop_ops = own.loop_ops.or(other.loop_ops);
            own.timed_feeds |= other.timed_feeds;
            own.timed_sums |= other.timed_sums;
        }
    }
}
