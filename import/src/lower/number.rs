//! Numbers of the source: a real one is a value of the IR, a complex one is two.

use crate::emit::Val;
use crate::emit::element::ElementType;
use adfuse_ir::{TensorType, Value};
use smallvec::SmallVec;

/// A part of complex numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ComplexPart {
    Real,
    Imaginary,
}

/// A tensor of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ImportedNumber {
    /// The value, or the real part of it.
    pub(crate) re: Val,
    /// The imaginary part of complex numbers, which has the type of the real one.
    pub(crate) im: Option<Val>,
}

pub(crate) type ImportedNumbers = Vec<ImportedNumber>;

impl From<Val> for ImportedNumber {
    fn from(re: Val) -> ImportedNumber {
        ImportedNumber { re, im: None }
    }
}

impl ImportedNumber {
    pub(crate) fn complex(re: Val, im: Val) -> ImportedNumber {
        ImportedNumber { re, im: Some(im) }
    }

    /// Its values in the IR.
    pub(crate) fn parts(self) -> SmallVec<[Val; 2]> {
        std::iter::once(self.re).chain(self.im).collect()
    }

    /// The names of its values, where it has this name: those of the parts of complex numbers end in `.re` and `.im`.
    pub(crate) fn names(self, name: &str) -> SmallVec<[Option<String>; 2]> {
        part_names(name, self.im.is_some())
    }
}

/// The names of a number's values.
pub(crate) fn part_names(name: &str, complex: bool) -> SmallVec<[Option<String>; 2]> {
    let name = word_name(name);
    let ends: &[&str] = if complex { &[".re", ".im"] } else { &[""] };
    ends.iter().map(|end| name.map(|n| format!("{n}{end}"))).collect()
}

/// The name of a value as the IR has it: none where it is a number, or too long.
fn word_name(name: &str) -> Option<&str> {
    const MOST: usize = 200;
    let number = name.bytes().all(|b| b.is_ascii_digit());
    (!number && name.len() <= MOST).then_some(name)
}

/// The type of a number: that of its parts, and whether there are two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NumberType {
    pub(crate) element: ElementType,
    pub(crate) ty: TensorType,
    pub(crate) complex: bool,
}

impl NumberType {
    /// How many values it has.
    pub(crate) fn values(&self) -> usize {
        1 + usize::from(self.complex)
    }

    /// The types of its values.
    pub(crate) fn types(&self) -> impl Iterator<Item = TensorType> + '_ {
        (0..self.values()).map(|_| self.ty.clone())
    }
}

/// The types of all values of numbers of these types.
pub(crate) fn value_types(types: &[NumberType]) -> Vec<TensorType> {
    types.iter().flat_map(NumberType::types).collect()
}

/// All values of numbers.
pub(crate) fn values_of(numbers: &[ImportedNumber]) -> Vec<Value> {
    numbers.iter().flat_map(|n| n.parts()).map(|v| v.value).collect()
}

/// The numbers that these values are.
pub(crate) fn numbers_of(
    types: &[NumberType],
    values: impl IntoIterator<Item = Value>,
) -> ImportedNumbers {
    let mut values = values.into_iter();
    let mut numbers = ImportedNumbers::new();
    for NumberType { element, complex, .. } in types {
        let mut next = || values.next().map(|value| Val { element: *element, value });
        let Some(re) = next() else { break };
        numbers.push(ImportedNumber { re, im: if *complex { next() } else { None } });
    }
    numbers
}
