//! Functions that are known by name alone: what they compute is for the engine's user to say.

use crate::Kind;
use crate::attrs::{Attr0, AttrKind, AttrSpec, Attrs, maybe, need};
use crate::dtype::{DType, DTypeSet};
use crate::infer::{InferCx, InferError, Types};
use crate::types::{MAX_BYTES, TensorType};
use crate::words::is_word;
use smallvec::smallvec;

/// Schema of `opaque`.
pub(super) const OPAQUE: &[AttrSpec] = &[
    need("name", AttrKind::Str),
    maybe("batched", AttrKind::Str, Attr0::NoText),
    maybe("operations", AttrKind::Within(0, i64::MAX), Attr0::Nought),
    maybe("bytes", AttrKind::Within(0, i64::MAX), Attr0::Nought),
    maybe("scratch", AttrKind::Within(0, MAX_BYTES as i64), Attr0::Nought),
];

pub(super) fn infer_opaque(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    // With a token it acts, in the order of tokens, and hands one on beside its result.
    let acts = cx.arity() > 0 && cx.known(0).is_some_and(|ty| ty.dtype == DType::Token);
    for k in usize::from(acts)..cx.arity() {
        cx.require(k, DTypeSet::Any)?;
    }
    for (name, needed) in [("name", true), ("batched", false)] {
        let text = cx.attrs.text(name);
        if !is_word(text) && (needed || !text.is_empty()) {
            return Err(InferError::attr(format!("`{name}`: `{text}` is no name")));
        }
    }
    let is_token = |ty: &TensorType| ty.dtype == DType::Token;
    match (acts, cx.declared_all()) {
        (true, Some([token, ty])) if is_token(token) && !is_token(ty) => {
            Ok(smallvec![token.clone(), ty.clone()])
        }
        (true, _) => {
            let m = "a function that is given a token has two results, a token and a tensor";
            Err(InferError::new(Kind::Arity, m))
        }
        (false, _) => match cx.declared()? {
            ty if is_token(ty) => {
                let m = "an opaque function that is given no token orders no effects";
                Err(InferError::new(Kind::DType, m))
            }
            ty => Ok(smallvec![ty.clone()]),
        },
    }
}

/// The attributes of a call over a batch, of the function that takes one along first axes; `None` where none is
/// named. A function that is named for itself takes any number of such axes.
pub fn batched_opaque(attrs: &Attrs) -> Option<Attrs> {
    let (name, over) = (attrs.text("name"), attrs.text("batched"));
    let text = |text: &str| crate::attrs::Attr::Str(text.into());
    let again = if name == over { over } else { "" };
    let nought = |attrs: Attrs, name| attrs.with_int(name, 0);
    // What one call took says nothing of what a batch takes.
    let attrs = Attrs::none().with("name", text(over)).with("batched", text(again));
    (!over.is_empty()).then(|| ["operations", "bytes", "scratch"].into_iter().fold(attrs, nought))
}
