//! Collectives: what a trace of one rank exchanges with the others.

use super::axes::AxisIndex;
use super::{Tensor, Tracer};
use crate::backends::RankGroup;
use crate::backends::ranks::AXIS;
use crate::ir::Op;
use crate::ir::attrs::{Attr, Attrs};

/// An axis whose ranks run the same program, each on tensors of its own.
///
/// Over a batch that is mapped with the axis's name ([`vmap_ranks`](crate::transform::vmap_ranks)) a collective is ordinary
/// ops. Otherwise the ranks are processes, and the device is told of them ([`Device::ranks`](crate::Device::ranks)).
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::{RankAxis, Tensor};
/// use adfuse::transform::{jit, vmap_ranks};
///
/// let over = RankAxis::new("ranks", 4);
/// // What one rank does: its share of the whole sum.
/// let share = move |x: &Tensor| x / x.all_reduce(&over);
/// let f = jit(move |xs: Tensor| vmap_ranks(&RankAxis::new("ranks", 4), &share)(&xs));
/// let shares = f.call(&Array::from_f32s(&[4], &[1.0, 2.0, 3.0, 4.0])?)?;
/// assert_eq!(shares.to_vec::<f32>()?, [0.1, 0.2, 0.3, 0.4]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankAxis {
    name: String,
    ranks: u32,
}

impl RankAxis {
    /// The axis of this name with this number of ranks. That of processes is called `ranks`.
    pub fn new(name: &str, ranks: u32) -> RankAxis {
        RankAxis { name: name.into(), ranks }
    }

    /// The axis of the processes of a group.
    pub fn of(group: &RankGroup) -> RankAxis {
        RankAxis::new(AXIS, group.ranks())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    fn attrs(&self) -> Attrs {
        let over = Attrs::none().with("over", Attr::Str(self.name.clone()));
        over.with_int("ranks", self.ranks.into())
    }
}

impl Tracer {
    /// The number of the rank, from 0, an `i32`.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::trace::RankAxis;
    /// let f = trace("f", |t| t.axis_index(&RankAxis::new("ranks", 4)))?;
    /// assert!(f.to_string().contains("axis_index"));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn axis_index(&self, over: &RankAxis) -> Tensor {
        self.apply(Op::AxisIndex, &[], over.attrs(), None)
    }
}

impl Tensor {
    #[track_caller]
    fn exchanged(&self, op: Op, attrs: Attrs) -> Tensor {
        self.tracer().apply(op, &[self], attrs, None)
    }

    #[track_caller]
    fn along(&self, op: Op, over: &RankAxis, axis: impl AxisIndex) -> Tensor {
        match self.axis_of(axis, op.name()) {
            Some(axis) => self.exchanged(op, over.attrs().with_int("axis", axis as i64)),
            None => self.clone(),
        }
    }

    /// The sum of what the ranks have, on all of them: neighbours in pairs, then their sums in pairs.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::trace::RankAxis;
    /// let f = trace("f", |t| t.input("x", f32s([3])).all_reduce(&RankAxis::new("ranks", 4)))?;
    /// assert_eq!(f.result_types()[0], f32s([3]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn all_reduce(&self, over: &RankAxis) -> Tensor {
        self.exchanged(Op::AllReduce, over.attrs())
    }

    /// The maximum of what the ranks have, on all of them.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::trace::RankAxis;
    /// let f = trace("f", |t| t.input("x", f32s([3])).all_reduce_max(&RankAxis::new("ranks", 4)))?;
    /// assert_eq!(f.result_types()[0], f32s([3]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn all_reduce_max(&self, over: &RankAxis) -> Tensor {
        self.exchanged(Op::AllReduceMax, over.attrs())
    }

    /// The minimum of what the ranks have, on all of them.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::trace::RankAxis;
    /// let f = trace("f", |t| t.input("x", f32s([3])).all_reduce_min(&RankAxis::new("ranks", 4)))?;
    /// assert_eq!(f.result_types()[0], f32s([3]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn all_reduce_min(&self, over: &RankAxis) -> Tensor {
        self.exchanged(Op::AllReduceMin, over.attrs())
    }

    /// What the ranks have, one after the other along an axis, on all of them.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::trace::RankAxis;
    /// let f = trace("f", |t| t.input("x", f32s([3])).all_gather(&RankAxis::new("ranks", 4), 0))?;
    /// assert_eq!(f.result_types()[0], f32s([12]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn all_gather(&self, over: &RankAxis, axis: impl AxisIndex) -> Tensor {
        self.along(Op::AllGather, over, axis)
    }

    /// The rank's part, along an axis that the number of ranks divides, of the sum of what the ranks have.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::trace::RankAxis;
    /// let f = trace("f", |t| t.input("x", f32s([12])).reduce_scatter(&RankAxis::new("ranks", 4), 0))?;
    /// assert_eq!(f.result_types()[0], f32s([3]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_scatter(&self, over: &RankAxis, axis: impl AxisIndex) -> Tensor {
        self.along(Op::ReduceScatter, over, axis)
    }

    /// Parts along the axis `split`, one to each rank; what comes is joined along the axis `concat` in the order of ranks.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::trace::RankAxis;
    /// let over = RankAxis::new("ranks", 4);
    /// let f = trace("f", |t| t.input("x", f32s([8, 3])).all_to_all(&over, 0, 1))?;
    /// assert_eq!(f.result_types()[0], f32s([2, 12]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn all_to_all(
        &self,
        over: &RankAxis,
        split: impl AxisIndex,
        concat: impl AxisIndex,
    ) -> Tensor {
        let what = Op::AllToAll.name();
        let (Some(split), Some(concat)) = (self.axis_of(split, what), self.axis_of(concat, what))
        else {
            return self.clone();
        };
        let attrs = over.attrs().with_int("split", split as i64);
        self.exchanged(Op::AllToAll, attrs.with_int("concat", concat as i64))
    }

    /// What the rank of this number has, on all of them.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// # use adfuse::trace::RankAxis;
    /// let f = trace("f", |t| t.input("x", f32s([3])).from_rank(&RankAxis::new("ranks", 4), 0))?;
    /// assert_eq!(f.result_types()[0], f32s([3]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn from_rank(&self, over: &RankAxis, root: u32) -> Tensor {
        self.exchanged(Op::Broadcast, over.attrs().with_int("root", root.into()))
    }
}
