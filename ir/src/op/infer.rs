//! The one place where builder, parser and verifier check an instruction against the row of its op.

use super::composed::composed_types;
use super::def::{Arity, Infer};
use super::opcode::Op;
use crate::attrs::Attrs;
use crate::diag::Kind;
use crate::infer::{InferCx, InferError, Sig, Types};
use crate::types::TensorType;
use smallvec::SmallVec;

impl Op {
    /// Result types and operand types of an instruction.
    ///
    /// This is the one place where builder, parser and verifier check an instruction.
    ///
    /// # Errors
    /// [`Kind::Arity`] for a wrong number of operands or results, [`Kind::Attribute`] for attributes, and what the row's own
    /// inference refuses.
    pub fn infer(
        self,
        args: SmallVec<[Option<TensorType>; 4]>,
        attrs: &Attrs,
        declared: Option<&[TensorType]>,
    ) -> Result<(SmallVec<[TensorType; 4]>, Types), InferError> {
        let def = self.def();
        let fits = match def.arity {
            Arity::Exactly(n) => args.len() == n,
            Arity::AtLeast(n) => args.len() >= n,
        };
        if !fits {
            let wanted = match def.arity {
                Arity::Exactly(1) => "1 operand".into(),
                Arity::Exactly(n) => format!("{n} operands"),
                Arity::AtLeast(n) => format!("at least {n}"),
            };
            let m = format!("`{self}` takes {wanted}, found {}", args.len());
            return Err(InferError::new(Kind::Arity, m));
        }
        let mut cx = InferCx::new(args, attrs, declared);
        let results = match def.infer {
            Infer::Map(sig) => Sig::infer(&sig, &mut cx)?,
            Infer::Rule(rule) => rule(&mut cx)?,
            Infer::Composed(check) => {
                check(&mut cx)?;
                composed_types(self, &cx)?
            }
        };
        if let Some(why) = results.iter().find_map(TensorType::excess) {
            return Err(InferError::new(Kind::Limit, format!("result: {why}")));
        }
        if let Some(declared) = declared
            && declared != results.as_slice()
        {
            let show = |types: &[TensorType]| {
                types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            let (found, written) = (show(&results), show(declared));
            let same_dtypes = results.iter().map(|t| t.dtype).eq(declared.iter().map(|t| t.dtype));
            let kind = if results.len() != declared.len() {
                Kind::Arity
            } else if same_dtypes {
                Kind::Shape
            } else {
                Kind::DType
            };
            return Err(InferError::new(kind, format!("the result is {found}, not {written}")));
        }
        Ok((cx.into_args()?, results))
    }
}
