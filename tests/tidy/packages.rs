//! What packages ship: their sources, their page and their licences, and what registries are told of them.

use crate::{none, packages, read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Files that every package has besides its sources.
const ALWAYS: &[&str] = &[".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml", "Cargo.toml.orig"];
const PAGES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The folders of what is published, by the names of packages.
fn published() -> BTreeMap<String, std::path::PathBuf> {
    let mut found = BTreeMap::new();
    for folder in packages() {
        let manifest = read(&folder.join("Cargo.toml"));
        if !manifest.contains("\npublish = false") {
            let name = manifest.split_once("[package]\nname = \"").expect("a name").1;
            found.insert(name.split('"').next().unwrap_or_default().to_owned(), folder);
        }
    }
    assert!(found.len() > 8, "{} packages", found.len());
    found
}

/// What a folder holds that is a source or a page, as a package has it.
fn due(folder: &Path) -> BTreeSet<String> {
    fn under(folder: &Path, name: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder.join(name)).into_iter().flatten().flatten() {
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            match entry.path().is_dir() {
                true => under(folder, &name, found),
                false => drop(found.insert(name)),
            }
        }
    }
    let mut found: BTreeSet<String> = ALWAYS.iter().chain(PAGES).map(|f| (*f).into()).collect();
    // Without its build script a package builds no more.
    let some = ["CHANGELOG.md", "build.rs"].into_iter().filter(|f| folder.join(f).exists());
    found.extend(some.map(str::to_owned));
    under(folder, "src", &mut found);
    under(folder, "assets", &mut found);
    found
}

#[test]
fn packages_ship_their_sources_and_nothing_else() {
    let mut wrong = Vec::new();
    let mut files = 0;
    for (name, folder) in published() {
        let cargo = Command::new(env!("CARGO"))
            .args(["package", "--list", "--offline", "--allow-dirty", "-p", &name])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        let told = String::from_utf8_lossy(&cargo.stderr);
        assert!(cargo.status.success(), "{name}: {told}");
        let text = String::from_utf8_lossy(&cargo.stdout).replace('\\', "/");
        let shipped: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        files += shipped.len();
        let mut due = due(&folder);
        // There is no such file where the sources are in no repository.
        due.retain(|f| f != ".cargo_vcs_info.json" || shipped.contains(f));
        wrong.extend(shipped.symmetric_difference(&due).map(|f| format!("{name}: {f}")));
    }
    println!("{files} files in all packages");
    none(wrong, "files that are shipped and should not be, or the other way round");
}

#[test]
fn sources_include_only_what_their_package_ships() {
    let mut wrong = Vec::new();
    for (name, text) in crate::sources() {
        let Some(at) = name.find("src/").filter(|at| *at == 0 || name[..*at].ends_with('/')) else {
            continue;
        };
        let folder = root().join(&name);
        let folder = folder.parent().expect("a file is in a folder");
        let package = root().join(&name[..at]);
        for part in text.split("include_str!(\"").chain(text.split("include_bytes!(\"")).skip(1) {
            let file = part.split('"').next().unwrap_or_default();
            let Ok(file) = folder.join(file).canonicalize() else { continue };
            let inside = file.strip_prefix(&package).map(|f| f.to_string_lossy().into_owned());
            let ships =
                |f: &str| PAGES.contains(&f) || f.starts_with("src/") || f.starts_with("assets/");
            if !inside.as_ref().is_ok_and(|f| ships(f)) {
                wrong.push(format!("{name}: {}", file.display()));
            }
        }
    }
    none(wrong, "files that sources include and their package does not ship");
}

#[test]
fn registries_are_told_what_packages_are() {
    let mut wrong = Vec::new();
    for (name, folder) in published() {
        let manifest = read(&folder.join("Cargo.toml"));
        let table = manifest.split_once("[package]").expect("a package").1;
        let table = table.split("\n[").next().unwrap_or_default();
        for key in [
            "description = \"",
            "documentation = \"https://docs.rs/",
            "readme = \"README.md\"",
            "version.workspace",
            "rust-version.workspace",
            "license.workspace",
            "include.workspace",
            "keywords",
            "categories",
        ] {
            if !table.lines().any(|line| line.starts_with(key)) {
                wrong.push(format!("{name}: no line begins with `{key}`"));
            }
        }
        // A registry refuses more.
        for key in ["keywords = [", "categories = ["] {
            let list = table.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default();
            if list.split(',').count() > 5 {
                wrong.push(format!("{name}: more than five of `{key}`"));
            }
        }
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            if read(&folder.join(licence)) != read(&root().join(licence)) {
                wrong.push(format!("{name}: {licence} is not that of the repository"));
            }
        }
        let page = read(&folder.join("README.md"));
        if !page.starts_with(&format!("# {name}\n")) {
            wrong.push(format!("{name}: its README begins with another name"));
        }
    }
    none(wrong, "lines of manifests, licences or pages");
}

/// Registries resolve a dependency by its version. One that leads back to the package itself must have none.
#[test]
fn packages_can_be_published_in_some_order() {
    let published = published();
    let mut left: BTreeSet<&String> = published.keys().collect();
    let needs = |name: &str| -> Vec<&String> {
        let manifest = read(&published[name].join("Cargo.toml"));
        let versioned = |other: &&String| {
            let key = format!("\n{other}");
            manifest.contains(&format!("{key}.workspace = true"))
                || manifest.contains(&format!("{key} = {{ workspace = true"))
        };
        published.keys().filter(|other| other.as_str() != name).filter(versioned).collect()
    };
    while !left.is_empty() {
        let ready = left.iter().find(|name| needs(name).iter().all(|n| !left.contains(n)));
        let Some(&ready) = ready else { panic!("{left:?} need each other to be published") };
        left.remove(ready);
    }
}
