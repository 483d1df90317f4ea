//! Reading of inputs: what is not as it has to be is an error that names the field.

use serde_json::{Map, Value};

/// An object's fields.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    fields: &'a Map<String, Value>,
    of: &'a str,
}

/// Rows of equal lengths, one after the other.
#[derive(Debug)]
pub(super) struct Rows {
    /// How many rows.
    pub(super) rows: usize,
    /// How long each is.
    pub(super) width: usize,
    /// Their elements.
    pub(super) elements: Vec<f64>,
}

impl<'a> Fields<'a> {
    /// The fields of what errors call `of`.
    pub(super) fn of(value: &'a Value, of: &'a str) -> Result<Fields<'a>, String> {
        let fields = value.as_object().ok_or_else(|| format!("{of} is no object"))?;
        Ok(Fields { fields, of })
    }

    /// A field of any kind.
    pub(super) fn any(&self, name: &str) -> Result<&'a Value, String> {
        self.fields.get(name).ok_or_else(|| format!("{} has no `{name}`", self.of))
    }

    /// A string.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, String> {
        self.any(name)?.as_str().ok_or_else(|| format!("`{name}` is no string"))
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> Result<f64, String> {
        number(self.any(name)?, name)
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self, name: &str) -> Result<u64, String> {
        let value = self.any(name)?;
        value.as_u64().ok_or_else(|| format!("`{name}` is no whole number from 0 on"))
    }

    /// A number, or what it is where there is none of this name.
    pub(super) fn number_or(&self, name: &str, default: f64) -> Result<f64, String> {
        if self.fields.contains_key(name) { self.number(name) } else { Ok(default) }
    }

    /// A whole number that is not negative, or what it is where there is none of this name.
    pub(super) fn count_or(&self, name: &str, default: u64) -> Result<u64, String> {
        if self.fields.contains_key(name) { self.count(name) } else { Ok(default) }
    }

    /// Numbers.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<f64>, String> {
        let all = list(self.any(name)?, name)?;
        all.iter().map(|x| number(x, name)).collect()
    }

    /// Rows of numbers, which are all as long as the first.
    pub(super) fn rows(&self, name: &str) -> Result<Rows, String> {
        let all = list(self.any(name)?, name)?;
        let width = all.first().map_or(Ok(0), |row| Ok::<_, String>(list(row, name)?.len()))?;
        let mut elements = Vec::new();
        for (k, row) in all.iter().enumerate() {
            let row = list(row, name)?;
            if row.len() != width {
                let found = row.len();
                return Err(format!(
                    "row {k} of `{name}` has {found} numbers, the first has {width}"
                ));
            }
            for x in row {
                elements.push(number(x, name)?);
            }
        }
        Ok(Rows { rows: all.len(), width, elements })
    }

    /// Rows of numbers, this many and so long.
    pub(super) fn rows_of(&self, name: &str, rows: u64, width: u64) -> Result<Vec<f64>, String> {
        let found = self.rows(name)?;
        // Without rows there is no width.
        if found.rows as u64 != rows || (rows > 0 && found.width as u64 != width) {
            let (r, w) = (found.rows, found.width);
            return Err(format!("`{name}` has {r} rows of {w} numbers, not {rows} of {width}"));
        }
        Ok(found.elements)
    }
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("`{name}` is no list where one is due"))
}

/// A number.
pub(super) fn number(value: &Value, name: &str) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| format!("`{name}` is no number where one is due"))
}
