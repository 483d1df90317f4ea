//! Which residuals are stacked.

use super::*;

#[test]
fn print() {
    let (m, f) = program(include_str!("../../filetests/grad/scan.ir"));
    let g = reversed(&m, &f);
    let s = stack_residuals(&g, &|_| true).unwrap();
    println!("{}", merge_loops(&s).unwrap());
    for r in loop_residuals(&g).unwrap() {
        println!("{r}");
    }
}
