//! Which file imports which, and which folder: no folder of a crate imports in a circle with its siblings, and
//! circles of files are few, small and named here.
//!
//! Counting rule. A file imports another where a `use` or a path beginning with `crate`, `super` or `self` names an
//! item of it. Re-exports (`pub use`) are not imports: whoever imports through one imports the file that defines
//! the item. Tests (`#[cfg(test)]`), paths inside macros and methods that are called on values do not count. A folder
//! is a module with a `mod.rs`; what lies in it directly belongs to it, and its folders are compared with each other.

use crate::graph::circles;
use crate::{none, package_sources};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use syn::visit::{self, Visit};

/// A module or an item, by its path in its crate.
type Path = Vec<String>;

/// Circles of files that may stay, by crate and by the last names of their files, each with its reason.
const CIRCLES: &[(&str, &[&str], &str)] = &[
    (
        "backends",
        &["driver::executable", "driver::graph", "driver::memory"],
        "a run is its graph's launches over its memory, and each frees what another records",
    ),
    (
        "backends",
        &["cpu::block", "cpu::steps"],
        "a loop is a step, and has steps, among them loops",
    ),
    ("ir", &["kernel::block", "kernel::program"], "a program has steps that run programs"),
    (
        "adfuse",
        &["trace", "trace::callee"],
        "a tracer calls traced functions, and what a callee is adds to the tracer's state",
    ),
];

/// The most circles of files in all crates, and the most files in one.
const MOST_CIRCLES: usize = 5;
const MOST_FILES: usize = 4;

/// Folders that may import others of their crate; a folder that is not here imports none.
const ARROWS: &[(&str, &str, &[&str])] = &[
    ("fusion", "analysis", &["plan"]),
    ("fusion", "prepass", &["plan", "analysis"]),
    ("fusion", "loops", &["plan", "analysis"]),
    ("fusion", "fuse", &["plan", "analysis"]),
    ("fusion", "lower", &["plan", "analysis", "fuse"]),
    ("fusion", "cost", &["plan"]),
    ("fusion", "memory", &["plan", "analysis", "lower", "cost"]),
    ("fusion", "search", &["plan", "analysis", "fuse", "lower", "cost", "memory"]),
    (
        "fusion",
        "remat",
        &["plan", "analysis", "prepass", "loops", "fuse", "lower", "cost", "memory", "search"],
    ),
    (
        "fusion",
        "explain",
        &["plan", "analysis", "prepass", "fuse", "lower", "cost", "memory", "search", "remat"],
    ),
    ("import", "lower", &["emit", "text"]),
    ("import", "onnx", &["emit"]),
    ("backends", "reference", &["runtime"]),
    ("backends", "cpu", &["runtime", "reference"]),
    ("backends", "gpu", &["runtime"]),
];

/// What a file names of its own crate.
#[derive(Default)]
struct File {
    /// Items by `use` and by path.
    names: Vec<Path>,
    /// Re-exports: the name that others know, and the item.
    exports: BTreeMap<String, Path>,
}

/// The files of a crate by module, and which modules are folders.
#[derive(Default)]
struct Crate {
    files: BTreeMap<Path, File>,
    folders: BTreeSet<Path>,
}

/// Collects what one file names.
struct Names<'m> {
    module: &'m Path,
    /// Inline modules around what is visited.
    inner: usize,
    children: BTreeSet<String>,
    file: File,
}

fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| {
        let list = a.path().is_ident("cfg").then(|| a.meta.require_list().ok()).flatten();
        list.is_some_and(|l| {
            l.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|w| w == "test")
        })
    })
}

impl Names<'_> {
    /// The path from the crate's root, where it is one of this crate.
    fn absolute(&self, path: &[String]) -> Option<Path> {
        let mut base: Path = self.module.clone();
        let mut up = 0;
        match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" => up = 1,
            "super" => {
                while path.get(up).is_some_and(|s| s == "super") {
                    if up >= self.inner {
                        base.pop();
                    }
                    up += 1;
                }
            }
            first if self.children.contains(first) => {}
            _ => return None,
        }
        base.extend_from_slice(&path[up..]);
        Some(base)
    }

    fn tree(&mut self, tree: &syn::UseTree, prefix: &mut Path, public: bool) {
        match tree {
            syn::UseTree::Path(p) => {
                prefix.push(p.ident.to_string());
                self.tree(&p.tree, prefix, public);
                prefix.pop();
            }
            syn::UseTree::Group(g) => {
                g.items.iter().for_each(|item| self.tree(item, prefix, public));
            }
            syn::UseTree::Name(n) => self.used(prefix, &n.ident.to_string(), None, public),
            syn::UseTree::Rename(r) => {
                self.used(prefix, &r.ident.to_string(), Some(r.rename.to_string()), public);
            }
            syn::UseTree::Glob(_) => self.used(prefix, "*", None, false),
        }
    }

    fn used(&mut self, prefix: &Path, name: &str, alias: Option<String>, public: bool) {
        let mut path = prefix.clone();
        if name != "self" {
            path.push(name.to_string());
        }
        let known = alias.or_else(|| path.last().cloned()).unwrap_or_default();
        let Some(path) = self.absolute(&path) else { return };
        if public {
            self.file.exports.insert(known, path);
        } else {
            self.file.names.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attrs: &[syn::Attribute] = match item {
            syn::Item::Mod(m) => &m.attrs,
            syn::Item::Fn(f) => &f.attrs,
            syn::Item::Impl(i) => &i.attrs,
            syn::Item::Use(u) => &u.attrs,
            syn::Item::Const(c) => &c.attrs,
            _ => &[],
        };
        if !is_test(attrs) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, m: &'ast syn::ItemMod) {
        self.inner += 1;
        visit::visit_item_mod(self, m);
        self.inner -= 1;
    }

    fn visit_item_use(&mut self, u: &'ast syn::ItemUse) {
        let public = !matches!(u.vis, syn::Visibility::Inherited);
        self.tree(&u.tree, &mut Path::new(), public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Path = path.segments.iter().map(|s| s.ident.to_string()).collect();
        // A single name is an item that is in scope, and what brought it there was counted.
        if names.len() > 1
            && let Some(path) = self.absolute(&names)
        {
            self.file.names.push(path);
        }
        visit::visit_path(self, path);
    }
}

impl Crate {
    /// Reads the sources of a package, by their path from its `src`.
    fn read(sources: &BTreeMap<String, String>) -> Crate {
        let mut modules: BTreeMap<Path, (&str, bool)> = BTreeMap::new();
        for (name, text) in sources {
            let mut path: Path =
                name.trim_end_matches(".rs").split('/').map(str::to_string).collect();
            let folder = path.last().is_some_and(|l| l == "mod");
            if folder || matches!(path.last().map(String::as_str), Some("lib" | "main")) {
                path.pop();
            }
            modules.insert(path, (text, folder));
        }
        let mut all = Crate::default();
        let mut tests: BTreeSet<Path> = BTreeSet::new();
        for (module, (text, folder)) in &modules {
            let parsed = syn::parse_file(text).unwrap_or_else(|e| panic!("{module:?}: {e}"));
            for item in &parsed.items {
                if let syn::Item::Mod(m) = item
                    && is_test(&m.attrs)
                {
                    let mut path = module.clone();
                    path.push(m.ident.to_string());
                    tests.insert(path);
                }
            }
            let below =
                modules.keys().filter(|m| m.len() == module.len() + 1 && m.starts_with(module));
            let children = below.filter_map(|m| m.last().cloned()).collect();
            let mut names = Names { module, inner: 0, children, file: File::default() };
            names.visit_file(&parsed);
            all.files.insert(module.clone(), names.file);
            if *folder {
                all.folders.insert(module.clone());
            }
        }
        all.files.retain(|m, _| !tests.iter().any(|t| m.starts_with(t)));
        all
    }

    /// The file that defines an item.
    fn home(&self, item: &[String]) -> Option<Path> {
        let mut item = item.to_vec();
        // As many steps as a chain of re-exports may have.
        for _ in 0..8 {
            let n = (0..=item.len()).rev().find(|&n| self.files.contains_key(&item[..n]))?;
            let exported = item.get(n).and_then(|name| self.files[&item[..n]].exports.get(name));
            match exported {
                Some(to) if *to != item => {
                    item = to.iter().chain(&item[n + 1..]).cloned().collect()
                }
                _ => return Some(item[..n].to_vec()),
            }
        }
        None
    }

    /// Which file imports which.
    fn arrows(&self) -> BTreeMap<Path, BTreeSet<Path>> {
        let to = |file: &File, from: &Path| {
            let homes = file.names.iter().filter_map(|n| self.home(n));
            homes.filter(|h| h != from).collect::<BTreeSet<Path>>()
        };
        self.files.iter().map(|(m, file)| (m.clone(), to(file, m))).collect()
    }

    /// The folder that a file lies in: itself, where it is one.
    fn folder<'p>(&self, file: &'p Path) -> &'p [String] {
        match self.folders.contains(file) {
            true => file,
            false => &file[..file.len().saturating_sub(1)],
        }
    }

    /// Which folder imports which of its siblings, with one file that does.
    fn folder_arrows(&self) -> BTreeMap<(Path, Path), [Path; 2]> {
        let mut found = BTreeMap::new();
        for (from, all) in self.arrows() {
            for to in all {
                let (a, b) = (self.folder(&from), self.folder(&to));
                let shared = a.iter().zip(b).take_while(|(x, y)| x == y).count();
                if a.len() > shared && b.len() > shared {
                    let ends = (a[..=shared].to_vec(), b[..=shared].to_vec());
                    found.entry(ends).or_insert([from.clone(), to]);
                }
            }
        }
        found
    }
}

fn crates() -> &'static BTreeMap<String, Crate> {
    static READ: OnceLock<BTreeMap<String, Crate>> = OnceLock::new();
    let read = |(name, files): (String, _)| (name, Crate::read(&files));
    READ.get_or_init(|| package_sources().into_iter().map(read).collect())
}

#[test]
fn folders_import_in_no_circle() {
    let mut wrong = Vec::new();
    for (name, all) in crates() {
        let arrows = all.folder_arrows();
        let mut graph: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
        for (from, to) in arrows.keys() {
            graph.entry(from.clone()).or_default().insert(to.clone());
            graph.entry(to.clone()).or_default();
        }
        for (from, to) in &graph {
            let to: Vec<String> = to.iter().map(|t| t.join("::")).collect();
            println!("{name}: {} -> {}", from.join("::"), to.join(" "));
        }
        for circle in circles(&graph) {
            let names: Vec<String> = circle.iter().map(|f| f.join("::")).collect();
            wrong.push(format!("{name}: {} import each other", names.join(", ")));
        }
        let tabled: BTreeSet<&str> = ARROWS.iter().map(|row| row.0).collect();
        for ((from, to), [file, of]) in &arrows {
            let row =
                ARROWS.iter().find(|(c, f, _)| *c == name.as_str() && [*f] == from.as_slice());
            let may =
                row.is_some_and(|(.., below)| to.len() == 1 && below.contains(&to[0].as_str()));
            if tabled.contains(name.as_str()) && from.len() == 1 && !may {
                let (file, of) = (file.join("::"), of.join("::"));
                wrong.push(format!("{name}: {} imports {}: {file} names {of}", from[0], to[0]));
            }
        }
    }
    none(wrong, "folders");
}

#[test]
fn circles_of_files_are_few_and_named() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, all) in crates() {
        let arrows = all.arrows();
        println!("{name}: {} files", arrows.len());
        for circle in circles(&arrows) {
            let files: Vec<String> = circle.iter().map(|f| f.join("::")).collect();
            println!("{name}: a circle of {}: {}", files.len(), files.join(", "));
            count += 1;
            let named = CIRCLES.iter().any(|(c, names, _)| {
                *c == name.as_str()
                    && names.len() == files.len()
                    && names.iter().zip(&files).all(|(n, f)| f.ends_with(n))
            });
            if !named || files.len() > MOST_FILES {
                wrong.push(format!("{name}: {} import each other", files.join(", ")));
            }
        }
    }
    if count > MOST_CIRCLES {
        wrong.push(format!("{count} circles, {MOST_CIRCLES} at most"));
    }
    none(wrong, "circles of files");
}

#[test]
fn imports_are_found_through_re_exports() {
    let text = |s: &str| s.to_string();
    let sources = BTreeMap::from([
        (text("lib.rs"), text("mod a; mod b; mod c; #[cfg(test)] mod t;")),
        (text("a/mod.rs"), text("pub use inner::Thing; mod inner;")),
        (text("a/inner.rs"), text("pub struct Thing; fn f() { super::super::b::g() }")),
        (
            text("b.rs"),
            text("use crate::a::Thing as T; pub fn g() {} #[cfg(test)] mod x { use crate::c; }"),
        ),
        (text("c.rs"), text("pub fn h() { crate::b::g() }")),
        (text("t.rs"), text("use crate::c::h;")),
    ]);
    let arrows = Crate::read(&sources).arrows();
    let path = |s: &str| s.split("::").map(str::to_string).collect::<Path>();
    assert_eq!(arrows[&path("b")], BTreeSet::from([path("a::inner")]));
    assert_eq!(arrows[&path("a::inner")], BTreeSet::from([path("b")]));
    assert_eq!(arrows[&path("c")], BTreeSet::from([path("b")]));
    assert!(!arrows.contains_key(&path("t")));
    assert_eq!(circles(&arrows), [[path("a::inner"), path("b")]]);
}
