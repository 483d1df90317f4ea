//! The names of types and functions: distinct ones for the types of the workspace, and the field's terms.
//!
//! Types are structs, enums, unions, traits and aliases, private ones included. Those of tests do not count, and
//! associated types do not either.

use crate::{none, parsed_sources};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};

/// Names that several types share, with the reason. Each is given with the number of its types.
const SHARED: &[(&[(&str, usize)], &str)] = &[
    (
        &[("CodePages", 2), ("NoCode", 2), ("SubnormalState", 2), ("SweepCode", 2)],
        "one for x86-64 and a stand-in for other processors: only one of the two is compiled",
    ),
    (
        &[("Inferred", 6), ("Results", 4), ("Check", 2), ("Types", 2)],
        "private aliases of the op table, the text parser and the verifier",
    ),
    (
        &[("Piece", 4), ("Place", 3), ("Rule", 2)],
        "the op table, or rewrites, and the kernel IR: each is the term of its own module",
    ),
    (&[("Param", 2)], "a parameter of a stage, and one of a model: each is the term of its field"),
    (&[("At", 2), ("Class", 2)], GPU),
    (&[("Entry", 2), ("Facts", 2), ("Held", 3), ("Inliner", 2)], GPU),
    (&[("Operand", 2), ("Part", 3), ("Pass", 2)], GPU),
    (&[("Product", 2), ("Role", 2), ("Span", 2)], GPU),
    (&[("Tile", 2), ("Update", 2), ("Walk", 3), ("Work", 2)], GPU),
];
const GPU: &str = "types of the GPU engine or of autodiff, which are still to be renamed";

/// Names of types and functions for which the field has a term.
const OLD_NAMES: &[(&str, &str)] = &[
    ("Around", "..Context"),
    ("Crew", "WorkerSet"),
    ("Ground", "..Context"),
    ("Handed", "CallInput"),
    ("How", "what it says how: ValueSource, FoldKind"),
    ("Kept", "what is kept: KernelState, CopiedValue"),
    ("Left", "what is left: StageOutputs"),
    ("Lying", "AccessPattern"),
    ("Made", "Compiled.."),
    ("Met", "what was met: SeenBuffers"),
    ("Opnd", "..Operand"),
    ("Seat", "..Slot"),
    ("Stretch", "..Segment"),
    ("Taste", "..Order"),
    ("What", "what it is"),
    ("Why", "a reason: Unsupported, NoAlternative, ..ErrorKind"),
    ("Yard", "..Set"),
    ("Zeal", "..Effort"),
    ("apart", "fission, split, separate"),
    ("computed_again", "recomputed_values"),
    ("computing_again", "recomputing"),
    ("crew", "workers"),
    ("far", "nontemporal"),
    ("give_up", "donate"),
    ("given_up", "donated"),
    ("lying", "access pattern"),
    ("pick", "select"),
    ("stretch", "segment"),
    ("takes", "supports, accepts"),
    ("ways", "sources"),
];

/// Folders whose old names are still to be replaced.
const NOT_YET: &[&str] = &["backends/src/gpu/", "ir/src/text/"];

#[derive(Default)]
struct Names {
    types: Vec<(String, usize)>,
    functions: Vec<(String, usize)>,
}

impl Names {
    fn add_type(&mut self, name: &syn::Ident) {
        self.types.push((name.to_string(), name.span().start().line));
    }

    fn add_function(&mut self, name: &syn::Ident) {
        self.functions.push((name.to_string(), name.span().start().line));
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, m: &'ast syn::ItemMod) {
        if m.ident != "tests" {
            visit::visit_item_mod(self, m);
        }
    }

    fn visit_item_struct(&mut self, i: &'ast syn::ItemStruct) {
        self.add_type(&i.ident);
    }

    fn visit_item_enum(&mut self, i: &'ast syn::ItemEnum) {
        self.add_type(&i.ident);
    }

    fn visit_item_union(&mut self, i: &'ast syn::ItemUnion) {
        self.add_type(&i.ident);
    }

    fn visit_item_type(&mut self, i: &'ast syn::ItemType) {
        self.add_type(&i.ident);
    }

    fn visit_item_trait(&mut self, i: &'ast syn::ItemTrait) {
        self.add_type(&i.ident);
        visit::visit_item_trait(self, i);
    }

    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.add_function(&f.sig.ident);
        visit::visit_item_fn(self, f);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.add_function(&f.sig.ident);
        visit::visit_impl_item_fn(self, f);
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        self.add_function(&f.sig.ident);
        visit::visit_trait_item_fn(self, f);
    }
}

/// The names in each file that is not a file of tests.
fn names() -> BTreeMap<String, Names> {
    let mut all = BTreeMap::new();
    for (file, parsed) in parsed_sources() {
        let mut names = Names::default();
        names.visit_file(&parsed);
        all.insert(file, names);
    }
    all
}

#[test]
fn types_have_names_of_their_own() {
    let all = names();
    let mut types: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (file, found) in &all {
        for (name, line) in &found.types {
            types.entry(name).or_default().push(format!("{file}:{line}"));
        }
    }
    assert!(types.len() > 500, "{} types", types.len());
    let listed: BTreeMap<&str, usize> =
        SHARED.iter().flat_map(|(n, _)| n.iter().copied()).collect();
    let mut wrong = Vec::new();
    for (name, places) in &types {
        let most = listed.get(name).copied().unwrap_or(1);
        if places.len() > most {
            wrong.push(format!("`{name}`: {}", places.join(", ")));
        }
    }
    for (name, most) in listed {
        let found = types.get(name).map_or(0, Vec::len);
        if found < most {
            wrong.push(format!(
                "`{name}` is listed with {most} types, there are {found}: correct SHARED"
            ));
        }
    }
    none(wrong, "names that several types share");
}

#[test]
fn types_and_functions_have_the_names_of_the_field() {
    let mut wrong = Vec::new();
    for (file, found) in names() {
        if NOT_YET.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        for (name, line) in found.types.iter().chain(&found.functions) {
            if let Some((_, better)) = OLD_NAMES.iter().find(|(old, _)| old == name) {
                wrong.push(format!("{file}:{line}: `{name}`: the field says {better}"));
            }
        }
    }
    none(wrong, "names of types and functions");
}
