//! The Rust files of the workspace, the room of each, and its module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates whose root module is a room. In other crates, rooms are submodules.
const ROOTED: [&str; 9] =
    ["cli", "console", "dialect", "document", "gateway", "importer", "records", "routing", "store"];
/// Rooms that are submodules of a crate whose root is another room.
const INNER: [&str; 3] = ["mock", "server", "wire"];

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder, without build output.
pub(crate) fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("node_modules") {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

/// The names of the crates in `crates/`, without `rerouter-`.
pub(crate) fn crates() -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join("crates")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Every Rust file of the crates, by its room and the path in that room.
pub(crate) fn files() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for name in crates() {
        for (path, file) in crate_files(&name) {
            if let Some(place) = place(&name, &path) {
                assert!(found.insert(place, file.clone()).is_none(), "{}", file.display());
            }
        }
    }
    let src = root().join("src");
    let own = rust_files(&src).into_iter();
    found.extend(own.map(|file| (below(&file, &src), file)));
    found
}

/// The files of one crate, by their paths below its `src`.
pub(crate) fn crate_files(name: &str) -> BTreeMap<String, PathBuf> {
    let src = root().join("crates").join(name).join("src");
    rust_files(&src).into_iter().map(|file| (below(&file, &src), file)).collect()
}

fn below(file: &Path, folder: &Path) -> String {
    file.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()
}

/// The room and the path in it of a file in crate `name`. `path` is below the crate's `src`. None
/// for a root that only declares rooms.
pub(crate) fn place(name: &str, path: &str) -> Option<String> {
    match (path, room(name, path) == name) {
        ("lib.rs", true) => Some(format!("{name}/lib.rs")),
        ("lib.rs", false) => None,
        (_, true) => Some(format!("{name}/{path}")),
        (_, false) => Some(path.to_owned()),
    }
}

/// The room of a file in crate `name`. `path` is below the crate's `src`.
pub(crate) fn room(name: &str, path: &str) -> String {
    let first = path.trim_end_matches(".rs").trim_end_matches("_tests");
    let first = first.split('/').next().unwrap();
    if ROOTED.contains(&name) && !INNER.contains(&first) { name } else { first }.to_owned()
}

/// The sources of one crate without test files, by their paths below its `src`.
pub(crate) fn production_of(name: &str) -> BTreeMap<String, String> {
    without_tests(crate_files(name))
}

/// The sources without test files, by room and path in that room.
pub(crate) fn production() -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for name in crates() {
        let sources = production_of(&name).into_iter();
        found.extend(sources.filter_map(|(path, text)| Some((place(&name, &path)?, text))));
    }
    let src = root().join("src");
    let read = |file: &PathBuf| std::fs::read_to_string(file).unwrap();
    found.extend(rust_files(&src).iter().map(|file| (below(file, &src), read(file))));
    found
}

fn without_tests(files: BTreeMap<String, PathBuf>) -> BTreeMap<String, String> {
    let all: BTreeMap<String, String> = files
        .into_iter()
        .map(|(path, file)| (path, std::fs::read_to_string(file).unwrap()))
        .collect();
    let tests: BTreeSet<Vec<String>> =
        all.iter().flat_map(|(path, source)| test_modules(path, source)).collect();
    let is_test = |path: &str| tests.iter().any(|test| module_of(path).starts_with(test));
    all.into_iter().filter(|(path, _)| !is_test(path)).collect()
}

/// Modules under `#[cfg(test)]` in `source` that have their own file.
fn test_modules(path: &str, source: &str) -> Vec<Vec<String>> {
    let tree = syn::parse_file(source).unwrap_or_else(|error| panic!("{path}: {error}"));
    let declared = tree.items.into_iter().filter_map(|item| match item {
        syn::Item::Mod(item) if item.content.is_none() && is_for_tests(&item.attrs) => Some(item),
        _ => None,
    });
    declared
        .map(|item| match item.attrs.iter().find_map(path_attribute) {
            Some(file) => module_of(Path::new(path).with_file_name(file).to_str().unwrap()),
            None => [module_of(path), vec![item.ident.to_string()]].concat(),
        })
        .collect()
}

/// The file in an attribute `#[path = "file"]`.
fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. })
            if pair.path.is_ident("path") =>
        {
            Some(file.value())
        }
        _ => None,
    }
}

/// Whether there is a `#[cfg(test)]`, alone or with the feature `testing`.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if attribute.path().is_ident("cfg") => {
            let condition = list.tokens.to_string().replace([' ', '(', ')'], "");
            ["test", "anytest,feature=\"testing\""].contains(&&*condition)
        }
        _ => false,
    })
}

/// The module path of a file, as segments. `path` is below `src/`. Empty for the crate's root.
pub(crate) fn module_of(path: &str) -> Vec<String> {
    let mut module: Vec<String> =
        path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}
