//! The axes of products.

use crate::entity::Inst;
use crate::function::Function;

/// The axes of a product's result, each as an axis of an operand; those of a batch are the left one's, and have no windows.
pub(super) fn axes_of_product(f: &Function, i: Inst) -> Vec<(usize, usize)> {
    let (batch, contracted) = (f.attrs(i).pair("batch"), f.attrs(i).pair("contract"));
    let has = |list: &[i64], a: usize| list.contains(&(a as i64));
    let free = |side: usize| {
        let (batch, contracted) =
            if side == 0 { (batch.0, contracted.0) } else { (batch.1, contracted.1) };
        let all = 0..f.ty(f.args(i)[side]).rank();
        all.filter(move |&a| !has(batch, a) && !has(contracted, a)).map(move |a| (side, a))
    };
    let batch = batch.0.iter().map(|&a| (0, a as usize));
    batch.chain(free(0)).chain(free(1)).collect()
}
