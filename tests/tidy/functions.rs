//! How long functions are, and how many parameters they have.
//!
//! Counting rule. The lines of a function are those from `fn` to its closing brace, comments and blank lines
//! included. `self` is no parameter. Tests, benchmarks and examples do not count.

use crate::{none, parsed_sources};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The most lines of a function, and the most parameters.
const MOST_LINES: usize = 80;
const MOST_PARAMS: usize = 6;

/// Places whose functions may be longer, with what will replace them.
const LONGER: &[(&str, &str)] = &[
    ("backends/src/cpu/x86/isel.rs", "rows of a table of instructions"),
    ("backends/src/cpu/x86/convert.rs", "rows of a table of instructions"),
    ("backends/src/gpu/ptx/", "printing of decisions that are data"),
    ("backends/src/gpu/schedule/", "decisions that are data"),
    ("fusion/src/remat/schedule/", "exact least budgets"),
    (
        "ir/src/op/rows.rs",
        "nothing: each field of a row is a parameter, so that a row with a gap does not compile",
    ),
];

/// A function, as it is counted.
struct Counted {
    place: String,
    name: String,
    lines: usize,
    params: usize,
}

struct Functions<'f> {
    file: &'f str,
    found: Vec<Counted>,
}

impl Functions<'_> {
    fn count(&mut self, sig: &syn::Signature, end: proc_macro2::Span) {
        let begin = sig.fn_token.span.start().line;
        let params = sig.inputs.iter().filter(|a| matches!(a, syn::FnArg::Typed(_))).count();
        self.found.push(Counted {
            place: format!("{}:{begin}", self.file),
            name: sig.ident.to_string(),
            lines: end.end().line + 1 - begin,
            params,
        });
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, m: &'ast syn::ItemMod) {
        if m.ident != "tests" {
            visit::visit_item_mod(self, m);
        }
    }

    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.count(&f.sig, f.block.span());
        visit::visit_item_fn(self, f);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.count(&f.sig, f.block.span());
        visit::visit_impl_item_fn(self, f);
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        self.count(&f.sig, f.span());
        visit::visit_trait_item_fn(self, f);
    }
}

fn functions() -> Vec<Counted> {
    let mut all = Vec::new();
    for (file, parsed) in parsed_sources() {
        let mut functions = Functions { file: &file, found: Vec::new() };
        functions.visit_file(&parsed);
        all.extend(functions.found);
    }
    assert!(all.len() > 1000, "{} functions", all.len());
    all
}

#[test]
fn functions_are_short() {
    let mut all = functions();
    all.sort_by_key(|f| (std::cmp::Reverse(f.lines), f.place.clone()));
    let over = |f: &&Counted| f.lines > MOST_LINES || f.params > MOST_PARAMS;
    let long = all.iter().filter(|f| f.lines > MOST_LINES).count();
    let wide = all.iter().filter(|f| f.params > MOST_PARAMS).count();
    println!(
        "{} functions: {long} over {MOST_LINES} lines, {wide} over {MOST_PARAMS} parameters",
        all.len()
    );
    for f in all.iter().filter(over).take(40) {
        println!("{:4} lines, {} parameters: {} {}", f.lines, f.params, f.place, f.name);
    }
    let wrong = all.iter().filter(over);
    let wrong = wrong.filter(|f| !LONGER.iter().any(|(place, _)| f.place.starts_with(place)));
    let line = |f: &Counted| {
        format!("{} `{}` has {} lines and {} parameters", f.place, f.name, f.lines, f.params)
    };
    none(wrong.map(line).collect(), "functions");
}
