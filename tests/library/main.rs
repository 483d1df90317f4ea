//! The library as people use it: trees of parameters, layers, optimizers, training, transformations of functions.

mod checkpoint;
mod optim;
mod readme;
mod train;
mod transforms;
mod tree;
