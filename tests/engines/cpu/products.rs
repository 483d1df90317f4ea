//! Products divided among threads: rows, columns, and the chunks of the depth where both are few. No bit depends on it.

use super::agrees;
use super::dots::made;
use crate::common::random::inputs;
use adfuse::autodiff::value_and_grad;
use adfuse::fusion::Fp;
use adfuse::ir::Module;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

/// Programs with `T` for the type of elements: few sums of a great depth, with epilogues and without, of matrices and of windows of
/// images; and more sums than tasks.
const PROGRAMS: [&str; 6] = [
    "func @deep(%x: T[64,2100], %y: T[2100,64]) -> T[64,64] {
       %z = dot_general %x, %y {contract = [1] x [0]} : T[64,64]
       return %z
     }",
    "func @turned(%x: T[9000,20], %y: T[9000,30]) -> T[20,30] {
       %z = dot_general %x, %y {contract = [0] x [0]} : T[20,30]
       %r = mul %z, %z : T[20,30]
       return %r
     }",
    "func @batched(%x: T[2,33,2500], %y: T[2,2500,40]) -> T[2,33,40] {
       %z = dot_general %x, %y {batch = [0] x [0], contract = [2] x [1]} : T[2,33,40]
       %r = sub %z, 1.0 : T[2,33,40]
       return %r
     }",
    "func @rows(%x: T[70,5000], %y: T[5000,13]) -> T[70] {
       %z = dot_general %x, %y {contract = [1] x [0]} : T[70,13]
       %r = reduce_sum %z {axes = [1]} : T[70]
       return %r
     }",
    "func @columns(%x: T[65,4200], %y: T[4200,24]) -> T[24] {
       %z = dot_general %x, %y {contract = [1] x [0]} : T[65,24]
       %r = reduce_sum %z {axes = [0]} : T[24]
       return %r
     }",
    "func @wide(%x: T[300,200], %y: T[200,400]) -> T[300,400] {
       %z = dot_general %x, %y {contract = [1] x [0]} : T[300,400]
       %r = add %z, 0.5 : T[300,400]
       return %r
     }",
];

/// The gradient of the kernels of a convolution: windows, 128 x 256 of them for 6 x 25 sums.
const CONVOLUTION: &str = "func @kernels(%x: f32[128,1,20,20], %k: f32[6,1,5,5]) -> f32[] {
  %z = conv_general_dilated %x, %k : f32[128,6,16,16]
  %s = mul %z, %z : f32[128,6,16,16]
  %r = reduce_sum %s {axes = [0, 1, 2, 3]} : f32[]
  return %r
}";

/// Sums with an element added to each, which products do as they store them: matrices, and lines that are the same for all rows or columns; of
/// one chunk of the depth and of several, of a few sums whose depth is divided, and transposed as they are stored.
const ADDED: [&str; 8] = [
    "func @matrix(%x: T[37,130], %y: T[130,70], %b: T[37,70]) -> T[37,70] {
       %z = dot_general %x, %y {contract = [1] x [0]} : T[37,70]
       %r = add %z, %b : T[37,70]
       return %r
     }",
    "func @bias(%x: T[100,1100], %y: T[90,1100], %b: T[90]) -> T[100,90] {
       %z = dot_general %x, %y {contract = [1] x [1]} : T[100,90]
       %c = broadcast_in_dim %b {dims = [1]} : T[100,90]
       %r = add %c, %z : T[100,90]
       return %r
     }",
    "func @of_rows(%x: T[40,64], %y: T[64,50], %b: T[40]) -> T[40,50] {
       %z = dot_general %x, %y {contract = [1] x [0]} : T[40,50]
       %c = broadcast_in_dim %b {dims = [0]} : T[40,50]
       %r = add %c, %z : T[40,50]
       return %r
     }",
    "func @transposed(%x: T[33,100], %y: T[100,65], %b: T[33]) -> T[65,33] {
       %z = dot_general %x, %y {contract = [1] x [0]} : T[33,65]
       %c = broadcast_in_dim %b {dims = [0]} : T[33,65]
       %r = add %c, %z : T[33,65]
       %t = transpose %r {perm = [1, 0]} : T[65,33]
       return %t
     }",
    "func @batches(%x: T[3,31,80], %y: T[3,80,45], %b: T[3,45]) -> T[3,31,45] {
       %z = dot_general %x, %y {batch = [0] x [0], contract = [2] x [1]} : T[3,31,45]
       %c = broadcast_in_dim %b {dims = [0, 2]} : T[3,31,45]
       %r = add %z, %c : T[3,31,45]
       return %r
     }",
    "func @deep(%x: T[64,2100], %y: T[2100,64], %b: T[64,64]) -> T[64,64] {
       %z = dot_general %x, %y {contract = [1] x [0]} : T[64,64]
       %r = add %b, %z : T[64,64]
       return %r
     }",
    "func @column(%x: T[70,300], %y: T[300,1], %b: T[70,1]) -> T[70,1] {
       %z = dot_general %x, %y {contract = [1] x [0]} : T[70,1]
       %r = add %b, %z : T[70,1]
       return %r
     }",
    // The result is in the memory of what is added, and sums have three chunks.
    "func @in_place(%x: T[70,1300], %y: T[1300,65], %a: T[70,65]) -> T[70,65] {
       %b = cumsum %a {axis = 1} : T[70,65]
       %z = dot_general %x, %y {contract = [1] x [0]} : T[70,65]
       %r = add %z, %b : T[70,65]
       %s = cumsum %r {axis = 1} : T[70,65]
       return %s
     }",
];

#[test]
fn what_is_added_to_sums_is_added_last() {
    for text in ADDED {
        for of in ["f32", "f64"] {
            let module = parse(&text.replace("T[", &format!("{of}["))).expect("a program");
            let f = module.funcs.values().next().expect("a function").clone();
            for domain in [Domain::Normal, Domain::SignedUniform(1e-23, 2e-23)] {
                let args = inputs(&f, &[domain]);
                agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{why}\n{text}"));
            }
        }
    }
}

#[test]
fn windows_are_divided_along_the_depth() {
    let module = parse(CONVOLUTION).expect("a program");
    let f = module.funcs.values().next().expect("a function");
    let f = value_and_grad(&module, f, &[1]).expect("a gradient");
    let module = Module::single(f.clone());
    agrees(&module, &f, &inputs(&f, &[Domain::Normal])).expect("the evaluator's bits");
}

#[test]
fn no_bit_depends_on_how_products_are_divided() {
    for (text, of) in PROGRAMS.iter().flat_map(|p| ["f32", "f64"].map(|of| (p, of))) {
        let module: Module = parse(&text.replace("T[", &format!("{of}["))).expect("a program");
        let f = module.funcs.values().next().expect("a function").clone();
        let args = inputs(&f, &[Domain::Normal]);
        agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{}: {why}", f.name));
        let alone = made(&f, Fp::Strict, 1).run(&args).expect("runs");
        for threads in [2, 3, 5, 16] {
            let found = made(&f, Fp::Strict, threads).run(&args).expect("runs");
            assert!(found == alone, "{} of {of} on {threads} threads", f.name);
        }
    }
}
