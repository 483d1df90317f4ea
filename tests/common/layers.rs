//! A model of equal layers.

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::prepare;
use adfuse::ir::Function;
use adfuse::ir::text::parse;
use std::fmt::Write;

/// A network of this many equal layers with its gradients, prepared.
pub(crate) fn gradients(count: usize) -> Function {
    let mut text = String::from("func @layers(%x: f32[64,32]");
    for k in 0..count {
        let _ = write!(text, ", %w{k}: f32[32,32], %b{k}: f32[32]");
    }
    text += ") -> f32[] {\n";
    let mut h = "x".to_string();
    for k in 0..count {
        let _ = write!(
            text,
            "  %s{k} = reduce_sum %{h} {{axes = [1]}} : f32[64]
  %m{k} = div %s{k}, 32.0 : f32[64]
  %n{k} = broadcast_in_dim %m{k} {{dims = [0]}} : f32[64,32]
  %c{k} = sub %{h}, %n{k} : f32[64,32]
  %d{k} = dot_general %c{k}, %w{k} {{contract = [1] x [0]}} : f32[64,32]
  %e{k} = broadcast_in_dim %b{k} {{dims = [1]}} : f32[64,32]
  %a{k} = add %d{k}, %e{k} : f32[64,32]
  %h{k} = tanh %a{k} : f32[64,32]
"
        );
        h = format!("h{k}");
    }
    let _ = write!(text, "  %l = reduce_sum %{h} {{axes = [0, 1]}} : f32[]\n  return %l\n}}\n");
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.find("layers").expect("is there").clone();
    let wrt = differentiable(&f, None).expect("has parameters");
    let g = forward_and_backward(&module, &f, &wrt).expect("differentiates");
    prepare(&module, &g).expect("is prepared")
}
