//! Methods that people write programs with have an example in their documentation, which runs as a test.

use crate::{none, parsed_sources};
use syn::visit::{self, Visit};

/// The types whose public methods are looked at. Those that the macro `example!` writes have examples by construction.
const TYPES: &[&str] = &["Tensor", "Tracer", "Key"];

#[derive(Default)]
struct Methods {
    /// Whether the block around is of one of the types.
    inside: bool,
    found: usize,
    without: Vec<(String, usize)>,
}

impl<'ast> Visit<'ast> for Methods {
    fn visit_item_impl(&mut self, i: &'ast syn::ItemImpl) {
        let of = match i.self_ty.as_ref() {
            syn::Type::Path(p) => p.path.get_ident().map(ToString::to_string),
            _ => None,
        };
        self.inside = i.trait_.is_none() && of.is_some_and(|name| TYPES.contains(&name.as_str()));
        visit::visit_item_impl(self, i);
        self.inside = false;
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        if !self.inside || !matches!(f.vis, syn::Visibility::Public(_)) {
            return;
        }
        self.found += 1;
        let is_example = |a: &syn::Attribute| match &a.meta {
            syn::Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(s), .. }) => {
                    s.value().contains("```")
                }
                _ => false,
            },
            _ => false,
        };
        if !f.attrs.iter().any(is_example) {
            self.without.push((f.sig.ident.to_string(), f.sig.ident.span().start().line));
        }
    }
}

#[test]
fn methods_of_traces_have_examples() {
    let (mut wrong, mut found) = (Vec::new(), 0);
    for (file, parsed) in parsed_sources().iter().filter(|(file, _)| file.starts_with("src/trace/"))
    {
        let mut methods = Methods::default();
        methods.visit_file(parsed);
        found += methods.found;
        let lines = methods.without.iter().map(|(name, line)| format!("{file}:{line}: `{name}`"));
        wrong.extend(lines);
    }
    assert!(found > 40, "{found} methods");
    none(wrong, "methods without an example");
}
