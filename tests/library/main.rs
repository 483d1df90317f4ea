//! The library as people use it: trees of parameters, layers, optimizers, training.

mod optim;
mod train;
mod tree;
