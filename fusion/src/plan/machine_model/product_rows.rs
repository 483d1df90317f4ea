//! Measured times of products in the files of machine models.

use super::bounds::{place, within};
use adfuse_ir::kernel::{ProductTimes, ProductWay, WayTimes, rows_of_form};
use adfuse_ir::{Diagnostic, Kind};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::RangeInclusive;
use toml::{Spanned, Value};

/// Bytes of the name of a form at most.
const MOST_FORM: usize = 256;

/// Seconds of a product.
const SECONDS: RangeInclusive<f64> = 1e-9..=1e4;

/// A table `[[products]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProductRow {
    form: Spanned<String>,
    /// By the ways in which it was multiplied.
    seconds: Spanned<BTreeMap<String, Spanned<f64>>>,
}

/// The times of all rows.
///
/// # Errors
/// For what is no form, if a form occurs twice, if a way is unknown or does not fit the extents of its form, or if a time is not a positive number of seconds. The error gives the place in the text.
pub(super) fn products(rows: &[ProductRow]) -> Result<ProductTimes, Diagnostic> {
    let mut forms = BTreeMap::new();
    for ProductRow { form, seconds } in rows {
        let name = form.get_ref();
        let wrong = |kind: Kind, m: String| Err(Diagnostic::new(place(form), kind, m));
        if name.is_empty() || name.len() > MOST_FORM || name.chars().any(char::is_control) {
            let m = format!("a form has 1 to {MOST_FORM} bytes and no control characters");
            return wrong(Kind::Usage, m);
        }
        let Some(rows) = rows_of_form(name) else {
            let d = Diagnostic::new(
                place(form),
                Kind::Syntax,
                format!("`{name}` is no form of a product"),
            );
            return Err(d.hint("a form is such as `fast bf16 1x16384x3072x768 ad4902d30d14`"));
        };
        let mut ways = WayTimes::new();
        for (way, time) in seconds.get_ref() {
            let Ok(known) = way.parse::<ProductWay>() else {
                let m = format!("there is no way `{}` to multiply", way.escape_debug());
                let d = Diagnostic::new(place(time), Kind::UnknownName, m);
                return Err(d.hint("`library`, or tiles such as `128x256 cooperative cluster 2`"));
            };
            if let ProductWay::Warpgroups(tiles) = known
                && !tiles.fits(rows)
            {
                let m = format!("`{way}` does not fit a product of {rows} rows");
                let d = Diagnostic::new(place(time), Kind::Usage, m);
                return Err(d.hint("the blocks of a cluster have tiles below each other"));
            }
            ways.insert(known, within(way, time, SECONDS)?);
        }
        if ways.is_empty() {
            let m = format!("there is no time of `{name}`");
            return Err(Diagnostic::new(place(seconds), Kind::Usage, m));
        }
        if forms.insert(name.clone(), ways).is_some() {
            return wrong(Kind::Redefinition, format!("the product `{name}` is there twice"));
        }
    }
    Ok(ProductTimes::new(forms))
}

/// The tables as [`products`] reads them.
pub(super) fn written_products(times: &ProductTimes, text: &mut String) {
    for (form, ways) in times.forms() {
        let time = |(way, &seconds): (&ProductWay, &f64)| {
            format!("{} = {}", Value::from(way.to_string()), Value::from(seconds))
        };
        let ways: Vec<String> = ways.iter().map(time).collect();
        let (form, ways) = (Value::from(form), ways.join(", "));
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n[[products]]\nform = {form}\nseconds = {{ {ways} }}");
    }
}
