//! The library as people use it: trees of parameters, layers, optimizers, training, transformations of functions.

mod checkpoint;
mod loss_linear;
// What connects ranks is shared with the tests of engines.
mod nn;
mod optim;
mod parallel;
mod precision;
#[path = "../common/ranks.rs"]
mod ranks;
mod sharding;
mod small_net;
mod train;
mod transforms;
mod tree;
