//! The library as people use it: trees of parameters, layers, optimizers, training, transformations of functions.

mod checkpoint;
mod nn;
mod optim;
mod parallel;
mod train;
mod transforms;
mod tree;
