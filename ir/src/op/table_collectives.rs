//! The op table's rows of collectives.

/// Hands the rows of the other tables and those of collectives after them to the macro of this name.
macro_rules! for_each_op_and_collective {
    ($use_rows:ident $($rows:tt)*) => { $use_rows! {
    $($rows)*

    // Collectives.
    /// The sum of what the ranks of the axis `over` have, on all of them. Neighbours are added in pairs, and their sums in
    /// pairs again, so that the order depends on nothing; 16-bit floats are summed in `f32` and rounded once. As all
    /// collectives: it is not inside of a region, and of the batch of that name under `vmap` it is ordinary ops.
    AllReduce = other("all_reduce", Arity::Exactly(1), collective::WHOLE, Written::Inferred, collective::infer_reduce,
        Body::Collective(Collective::AllReduce(Monoid::Sum)), D,
        Deriv::Linear(LinearSlots::All, collective::transpose_reduce),
        &["%x: f32[2,3] | all_reduce %x {over = \"r\", ranks = 4} : f32[2,3]"]);
    /// The maximum of what the ranks have, on all of them; ranks that have it share the derivative equally.
    AllReduceMax = other("all_reduce_max", Arity::Exactly(1), collective::WHOLE, Written::Inferred,
        collective::infer_reduce, Body::Collective(Collective::AllReduce(Monoid::Max)), D,
        Deriv::Jvp(collective::jvp_extremum),
        &["%x: f32[2,3] | all_reduce_max %x {over = \"r\", ranks = 4} : f32[2,3]"]);
    /// The minimum of what the ranks have, on all of them; ranks that have it share the derivative equally.
    AllReduceMin = other("all_reduce_min", Arity::Exactly(1), collective::WHOLE, Written::Inferred,
        collective::infer_reduce, Body::Collective(Collective::AllReduce(Monoid::Min)), D,
        Deriv::Jvp(collective::jvp_extremum),
        &["%x: f32[2,3] | all_reduce_min %x {over = \"r\", ranks = 3} : f32[2,3]"]);
    /// What the ranks have, one after the other along an axis, on all of them.
    AllGather = other("all_gather", Arity::Exactly(1), collective::ALONG, Written::Inferred, collective::infer_gather,
        Body::Collective(Collective::AllGather), D, Deriv::Linear(LinearSlots::All, collective::transpose_gather),
        &["%x: f32[2,3] | all_gather %x {over = \"r\", ranks = 4, axis = 1} : f32[2,12]",
          "%x: f32[2,3] | all_gather %x {over = \"r\", ranks = 4, axis = 0} : f32[8,3]"]);
    /// Each rank's part, along an axis, of the sum of what the ranks have, in the order of `all_reduce`.
    ReduceScatter = other("reduce_scatter", Arity::Exactly(1), collective::ALONG, Written::Inferred,
        collective::infer_scatter, Body::Collective(Collective::ReduceScatter), D,
        Deriv::Linear(LinearSlots::All, collective::transpose_scatter),
        &["%x: f32[2,12] | reduce_scatter %x {over = \"r\", ranks = 4, axis = 1} : f32[2,3]"]);
    /// Parts along the axis `split`, one to each rank; those that a rank is sent are joined along the axis `concat`, in the
    /// order of the ranks.
    AllToAll = other("all_to_all", Arity::Exactly(1), collective::TO_ALL, Written::Inferred, collective::infer_to_all,
        Body::Collective(Collective::AllToAll), D, Deriv::Linear(LinearSlots::All, collective::transpose_to_all),
        &["%x: f32[4,3] | all_to_all %x {over = \"r\", ranks = 2, split = 0, concat = 1} : f32[2,6]",
          "%x: f32[3,4] | all_to_all %x {over = \"r\", ranks = 4, split = 1, concat = 1} : f32[3,4]"]);
    /// What the rank `root` has, on all of them.
    Broadcast = other("broadcast", Arity::Exactly(1), collective::FROM_ROOT, Written::Inferred,
        collective::infer_broadcast, Body::Collective(Collective::Broadcast), D,
        Deriv::Linear(LinearSlots::All, collective::transpose_broadcast),
        &["%x: f32[2,3] | broadcast %x {over = \"r\", ranks = 4, root = 1} : f32[2,3]"]);
    /// The number of the rank, from 0.
    AxisIndex = other("axis_index", Arity::Exactly(0), collective::WHOLE, Written::Inferred, collective::infer_index,
        Body::Collective(Collective::Index), D, Deriv::Zero,
        &["| axis_index {over = \"r\", ranks = 4} : i32[]"]);
    } };
}
pub(super) use for_each_op_and_collective;
