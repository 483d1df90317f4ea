//! Launches of users' kernels, which bring their own text.

use super::entry::{Out, place};
use crate::gpu::launches::{Arg, Launch};
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::user_call::CallWork;

/// Adds the launch of a call, and the module that has its entry point.
pub(crate) fn call(s: &GpuSchedule, out: &mut Out, call: &CallWork) {
    let module = out.user_module(&call.text);
    let launch = &call.launch;
    let pointers = call.buffers.iter().map(|&b| place(&s.homes, b));
    let numbers = launch.numbers.iter().map(|&n| Arg::Number(n));
    out.launches.push(Launch {
        block: launch.block,
        shared: launch.shared,
        args: pointers.chain(numbers).collect(),
        user: Some(module),
        ..Launch::new(&*call.entry, launch.grid, 1)
    });
}
