//! What the regions of an instruction are entered with and end with.

use super::def::Control;
use super::loop_roles::LoopRoles;
use super::opcode::Op;
use crate::attrs::Attrs;
use crate::dtype::DType;
use crate::types::{Dim, TensorType};

/// The types at the ends of a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Of its parameters.
    pub params: Vec<TensorType>,
    /// Of the values that it ends with.
    pub yields: Vec<TensorType>,
}

/// The type of one element along the first axis.
pub fn element(ty: &TensorType) -> TensorType {
    TensorType { dtype: ty.dtype, shape: ty.shape.iter().skip(1).copied().collect() }
}

/// The type of a stack of such elements.
pub fn stacked(ty: &TensorType, length: Dim) -> TensorType {
    TensorType::new(ty.dtype, [length].into_iter().chain(ty.shape.iter().copied()))
}

/// What each region of an instruction is entered with and ends with, from the types of operands and results;
/// none where their numbers do not fit.
pub fn signature(
    op: Op,
    attrs: &Attrs,
    (args, results): (&[TensorType], &[TensorType]),
    regions: usize,
) -> Option<Vec<Signature>> {
    Some(match op.control()? {
        Control::Call => Vec::new(),
        Control::Branch => {
            let one = Signature { params: Vec::new(), yields: results.to_vec() };
            vec![one; regions]
        }
        Control::While => {
            let carry = args.to_vec();
            let test = vec![TensorType::scalar(DType::Bool)];
            vec![
                Signature { params: carry.clone(), yields: test },
                Signature { params: carry.clone(), yields: carry },
            ]
        }
        Control::Loop(_) => {
            let roles = LoopRoles::of(op, attrs, args.len(), results.len())?;
            let index = roles.index().then(|| match roles.lead {
                2 => args[0].clone(),
                _ => TensorType::scalar(DType::I64),
            });
            let args_in = |r: std::ops::Range<usize>| args[r].to_vec();
            let elements = |of: &[TensorType]| of.iter().map(element).collect::<Vec<_>>();
            let (carry, up) = (args_in(roles.carry_args()), args_in(roles.up_args()));
            let xs = elements(&args[roles.xs_args()]);
            let ws = elements(&args[roles.ws_args()]);
            let ys = elements(&results[roles.ys_results()]);
            let zs = elements(&results[roles.zs_results()]);
            let entered = |parts: &[&[TensorType]]| {
                index.iter().cloned().chain(parts.concat()).collect::<Vec<_>>()
            };
            let mut all = vec![Signature {
                params: entered(&[&carry, &xs]),
                yields: [carry.clone(), ys].concat(),
            }];
            if roles.returns() {
                all.push(Signature {
                    params: entered(&[&carry, &up, &xs, &ws]),
                    yields: [up.clone(), zs].concat(),
                });
            }
            all
        }
    })
}
