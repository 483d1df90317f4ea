//! The ops by name: what instructions hold. What an op is, its row of the table says.

use super::table::for_each_op;

macro_rules! names {
    ($($(#[doc = $doc:literal])+ $variant:ident = $row:expr;)*) => {
        /// An op: an index into the table.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Op { $($(#[doc = $doc])+ $variant,)* }

        impl Op {
            /// Every op, in the order of the table.
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];
        }
    };
}

for_each_op!(names);
