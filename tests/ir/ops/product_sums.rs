//! Sums of products become one product: the forms that the rule knows, and similar ones that it leaves alone.

use crate::common::random::inputs;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::Op;
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::{dce, with_product_sums};
use adfuse::ir::text::parse;
use adfuse::ir::verify::verify_function;

/// Three products of computed operands with parameters, and what follows.
fn text(dtype: &str, weight: &str, [rows, columns, depth]: [u64; 3], then: &str) -> String {
    let y = format!("{dtype}[{rows},{columns}]");
    let (x, w) = (format!("{dtype}[{rows},{depth}]"), format!("{dtype}[{columns},{depth}]"));
    let mut text = format!("func @f(%x: {x}, %w0: {w}, %w1: {w}, %w2: {w}, %r: {y}) -> {y} {{\n");
    for k in 0..3 {
        text += &format!("  %x{k} = mul %x, {k}.5 : {x}\n  %v{k} = {weight} %w{k} : {w}\n");
        text += &format!("  %y{k} = dot_general %x{k}, %v{k} {{contract = [1] x [1]}} : {y}\n");
    }
    text + &then.replace("TYPE", &y) + "}"
}

const SUM: &str = "  %s = add %y0, %y1 : TYPE\n  %t = add %y2, %s : TYPE\n  return %t\n";

#[test]
fn sums_of_products_are_one_product() {
    let shared = "  %s = add %y0, %y1 : TYPE\n  %t = add %y2, %s : TYPE\n  %u = mul %t, %s : TYPE\n  return %u\n";
    let scaled = "  %m = mul %y1, 2.0 : TYPE\n  %s = add %y0, %m : TYPE\n  %t = add %s, %y2 : TYPE\n  return %t\n";
    // One value that is no product, and two of them; one that is a part of the sum and read by something else.
    let residual = "  %s = add %r, %y0 : TYPE\n  %t = add %s, %y1 : TYPE\n  %u = add %t, %y2 : TYPE\n  return %u\n";
    let residuals = "  %s = add %r, %y0 : TYPE\n  %t = add %y2, %y1 : TYPE\n  %u = add %s, %t : TYPE\n  %v = add %u, %r : TYPE\n  return %v\n";
    let handed = "  %s = add %r, %y0 : TYPE\n  %t = add %y2, %y1 : TYPE\n  %u = add %t, %s : TYPE\n  %v = mul %u, %s : TYPE\n  return %v\n";
    let plain = "reshape";
    for (dtype, weight, size, then, products) in [
        ("bf16", plain, [128, 72, 64], SUM, 1),
        ("f16", plain, [64, 64, 128], SUM, 1),
        // The weights are computed: nothing says that they are there until the last term.
        ("bf16", "tanh", [128, 72, 64], SUM, 3),
        // Extents that tiles of matrix units do not have.
        ("bf16", plain, [128, 72, 60], SUM, 3),
        ("bf16", plain, [128, 70, 64], SUM, 3),
        ("bf16", plain, [32, 72, 64], SUM, 3),
        ("f32", plain, [128, 72, 64], SUM, 3),
        // Something else reads a part of the sum: that part is one product.
        ("bf16", plain, [128, 72, 64], shared, 2),
        ("bf16", plain, [128, 72, 64], scaled, 2),
        ("bf16", plain, [128, 72, 64], residual, 1),
        ("bf16", plain, [128, 72, 64], residuals, 1),
        ("bf16", plain, [128, 72, 64], handed, 2),
    ] {
        let text = text(dtype, weight, size, then);
        let module = parse(&text).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let f = module.funcs.values().next().expect("one");
        let mut new = with_product_sums(f).unwrap_or_else(|d| panic!("{d}"));
        verify_function(&new).unwrap_or_else(|e| panic!("{}\n{new}", e[0]));
        dce(&mut new);
        let found = new.body_insts().iter().filter(|&&i| new.op(i) == Op::DotGeneral).count();
        assert_eq!(found, products, "{text}\n{new}");
        let args = inputs(f, &[Domain::Small]);
        let [old, new] = [f, &new].map(|f| run(&module, f, &args, &mut Silent).expect("runs"));
        // Terms are not rounded on their way to the sum, which is rounded to 8 bits.
        let [old, new] = [&old[0], &new[0]].map(|all| all.to_f64s());
        let norm = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>().sqrt();
        let apart = norm(&mut old.iter().zip(&new).map(|(x, y)| x - y));
        assert!(apart <= norm(&mut old.iter().copied()) / 128.0, "{apart}\n{text}");
    }
}
