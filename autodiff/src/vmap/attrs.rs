//! What the attributes of views, reductions, scans and orders become when their operands gain a first axis.
//!
//! An attribute means the same in every row that has one of its name, so this is a table of names and
//! not of ops.

use adfuse_ir::{Attr, Attrs, Dim, Op};

/// What an attribute says about axes.
#[derive(Clone, Copy)]
enum Role {
    /// Axes by number: each is one further.
    Axes,
    /// For each axis the number of another: the first keeps its place, the others are one further.
    Places,
    /// An entry for each axis: this one for the first.
    Each(i64),
    /// An entry for each axis: its extent for the first.
    Extent,
    /// Nothing.
    Kept,
}

const ROLES: &[(&str, Role)] = &[
    ("axis", Role::Axes),
    ("axes", Role::Axes),
    ("along", Role::Axes),
    ("split", Role::Axes),
    ("concat", Role::Axes),
    ("dims", Role::Places),
    ("perm", Role::Places),
    ("start", Role::Each(0)),
    ("limit", Role::Extent),
    ("stride", Role::Each(1)),
    ("low", Role::Each(0)),
    ("high", Role::Each(0)),
    ("interior", Role::Each(0)),
    ("sizes", Role::Kept),
    ("strides", Role::Kept),
    ("dilation", Role::Kept),
    ("extents", Role::Kept),
    ("reverse", Role::Kept),
    ("descending", Role::Kept),
    ("count", Role::Kept),
    ("over", Role::Kept),
    ("ranks", Role::Kept),
    ("root", Role::Kept),
];

/// The attributes of `op` over operands with a first axis of this extent more.
pub(super) fn shifted(op: Op, attrs: &Attrs, size: Dim) -> Result<Attrs, String> {
    let mut out = Attrs::none();
    for (name, attr) in attrs.iter() {
        let role = ROLES.iter().find(|(n, _)| *n == name).map(|&(_, role)| role);
        let new = match (role, attr) {
            (Some(Role::Axes), Attr::Int(axis)) => Attr::Int(axis + 1),
            (Some(Role::Axes), Attr::Ints(axes)) => {
                Attr::Ints(axes.iter().map(|a| a + 1).collect())
            }
            (Some(Role::Places), Attr::Ints(axes)) => {
                Attr::Ints(std::iter::once(0).chain(axes.iter().map(|a| a + 1)).collect())
            }
            (Some(Role::Each(first)), Attr::Ints(entries)) => {
                Attr::Ints(std::iter::once(first).chain(entries.iter().copied()).collect())
            }
            (Some(Role::Extent), Attr::Ints(entries)) => {
                let n = size.known().and_then(|n| i64::try_from(n).ok());
                let n = n.ok_or_else(|| format!("`{op}` needs a batch of known extent"))?;
                Attr::Ints(std::iter::once(n).chain(entries.iter().copied()).collect())
            }
            (Some(Role::Kept), _) => attr.clone(),
            _ => return Err(format!("nothing says what a batch makes of `{name}` of `{op}`")),
        };
        out = out.with(name, new);
    }
    Ok(out)
}
