//! Rules of structure that the compiler does not check. A room uses only rooms above it. The files
//! of a room form no import cycle. Each external crate enters through its own files. Type names are
//! unique. Reads the source with `syn`. Code under `#[cfg(test)]` is exempt.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::{Captures, Regex};
use rerouter::internals::log::target;
use syn::visit::{self, Visit};

/// The rooms from top to bottom. A room uses itself and rooms above its row, never one in its row
/// or below. `lib` only declares the rooms; `main` is the last.
const ROWS: &[&[&str]] = &[
    &["bounds"],
    &["clock", "error", "id", "interface", "money", "url"],
    &["atomic_file", "blocking", "turns", "body_memory", "unread", "trace_context"],
    &["secret"],
    &["log"],
    &["metrics"],
    &["store"],
    &["wire"],
    &["dialect"],
    &["mock"],
    &["auth"],
    &["limits"],
    &["routing"],
    &["nodes"],
    &["capture"],
    &["redaction"],
    &["archive"],
    &["telemetry"],
    &["config"],
    &["app"],
    &["prompt"],
    &["evaluate"],
    &["reload"],
    &["api"],
    &["console"],
    &["gateway"],
    &["server"],
    &["cli"],
    &["internals"],
    &["lib"],
    &["main"],
];

/// External crates (and `std::env`) that enter by certain files only: a room, or one file of it.
const DOORS: &[(&str, &[&str])] = &[
    ("pingora", &["gateway", "server"]),
    ("pingora_proxy", &["gateway", "server"]),
    ("rusqlite", &["store/sqlite"]),
    ("prometheus", &["metrics"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli/reference"]),
    ("clap_mangen", &["cli/reference"]),
    ("anstream", &["cli/terminal"]),
    ("similar", &["cli/configuration", "console"]),
    ("h2", &["gateway/http2", "gateway/http2_stream"]),
    ("comfy_table", &["cli/table"]),
    ("indicatif", &["cli/progress"]),
    ("ipnet", &["config/net"]),
    (
        "rustix",
        &[
            "cli/terminal",
            "clock",
            "server/boot",
            "server/descriptors",
            "server/listeners",
            "server/upgrade",
            "store/data_dir",
        ],
    ),
    ("object_store", &["archive/objects"]),
    ("url", &["archive/objects"]),
    (
        "ureq",
        &[
            "archive/objects/client",
            "cli/client",
            "cli/node",
            "config/egress",
            "config/egress_tests",
            "telemetry/exporter",
            "telemetry/exporter_tests",
            "telemetry/mod",
        ],
    ),
    ("saphyr_parser", &["config"]),
    ("flate2", &["api/static_file", "wire/coding", "wire/coding_tests"]),
    ("maud", &["console"]),
    ("zstd", &["archive/capture_codec", "wire/coding", "wire/coding_tests"]),
    ("brotli_decompressor", &["wire/coding"]),
    ("hyper", &["mock"]),
    ("hyper_util", &["mock"]),
    ("http_body_util", &["archive/objects/client", "mock"]),
    ("tokio_postgres", &["store/postgres"]),
    ("tokio_postgres_rustls", &["store/postgres"]),
    ("percent_encoding", &["store/postgres/target"]),
    ("rustls_native_certs", &["archive/objects/client", "store/postgres/tls"]),
    ("rustls", &["server/tls", "config/authorities", "store/postgres/tls"]),
    ("x509_parser", &["config/authorities"]),
    ("argon2", &["auth/password"]),
    ("ring", &["secret"]),
    ("cel", &["routing/condition"]),
    ("regex", &["redaction", "routing/condition"]),
    ("aho_corasick", &["redaction", "routing/keywords", "secret/mask"]),
    ("whatlang", &["routing/language"]),
    ("env_logger", &["log"]),
    ("mimalloc", &["main"]),
    ("std::env", &["config", "cli"]),
    // Elsewhere the text of a panic would end up in the error that tokio returns.
    ("tokio::task::spawn_blocking", &["blocking"]),
];

pub(crate) fn row(room: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&room))
}

/// Every violation in one file; `path` is below `src/`, `crates` are the names of the dependencies.
fn violations(path: &str, source: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let room = path.trim_end_matches(".rs").split('/').next().unwrap();
    let mut found = Vec::new();
    if row(room).is_none() {
        found.push(format!("{path}: room `{room}` is not in the table"));
    }
    if !source.starts_with("//! ") {
        found.push(format!("{path}: does not begin with a line of `//!`"));
    }
    match syn::parse_file(source) {
        Err(error) => found.push(format!("{path}: {error}")),
        Ok(tree) => {
            let files = BTreeSet::new();
            let reader = Reader::read(path, &tree, crates, &files);
            found.extend(reader.found.into_iter().map(|what| format!("{path}: {what}")));
        }
    }
    found
}

/// The module of a file, as path segments; `path` is below `src/`. Empty for the crate's root.
fn module_of(path: &str) -> Vec<String> {
    let mut module: Vec<String> =
        path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

struct Reader<'a> {
    file: &'a str,
    room: &'a str,
    module: Vec<String>,
    crates: &'a BTreeSet<String>,
    /// The modules of the crate that have a file.
    files: &'a BTreeSet<Vec<String>>,
    found: BTreeSet<String>,
    /// Absolute paths in the crate that this file names.
    named: BTreeSet<Vec<String>>,
    /// What `use` brings into this file, by its name there: other files may import it from here.
    imported: BTreeMap<String, Vec<String>>,
    types: Vec<String>,
}

impl<'a> Reader<'a> {
    fn read(
        path: &'a str,
        tree: &syn::File,
        crates: &'a BTreeSet<String>,
        files: &'a BTreeSet<Vec<String>>,
    ) -> Self {
        let file = path.trim_end_matches(".rs");
        let mut reader = Self {
            file,
            room: file.split('/').next().unwrap(),
            module: module_of(path),
            crates,
            files,
            found: BTreeSet::new(),
            named: BTreeSet::new(),
            imported: BTreeMap::new(),
            types: Vec::new(),
        };
        reader.visit_file(tree);
        reader
    }
}

impl Reader<'_> {
    /// Judges one path: absolute in the crate, relative, or of another crate. `whole` is set when
    /// the path names everything in the module it ends in. Returns the absolute path within the
    /// crate.
    fn judge(&mut self, segments: &[String], whole: bool) -> Option<Vec<String>> {
        let first = segments.first()?;
        let mut at = self.module.clone();
        let mut rest = segments;
        match first.as_str() {
            "crate" | "rerouter" => (at, rest) = (Vec::new(), &segments[1..]),
            "self" | "super" => {
                while let Some(word @ ("self" | "super")) = rest.first().map(String::as_str) {
                    if word == "super" && at.pop().is_none() {
                        self.found.insert(format!("{} leaves the crate", segments.join("::")));
                        return None;
                    }
                    rest = &rest[1..];
                }
            }
            // A child module needs no `self`.
            _ if self.files.contains(&[&at[..], &segments[..1]].concat()) => {}
            _ => {
                self.judge_door(segments);
                return None;
            }
        }
        at.extend(rest.iter().cloned());
        self.named.insert(at.clone());
        match at.first() {
            Some(room) => self.judge_arrow(&room.clone(), &segments.join("::")),
            None if whole => {
                _ = self.found.insert(format!("{} opens every room at once", segments.join("::")))
            }
            None => {}
        }
        Some(at)
    }

    fn judge_arrow(&mut self, to: &str, text: &str) {
        if to == self.room {
            return;
        }
        match (row(self.room), row(to)) {
            (Some(from), Some(above)) if above < from => {}
            (_, None) => {
                _ = self.found.insert(format!("{text}: `{to}` is not a room of the table"))
            }
            _ => {
                _ = self.found.insert(format!(
                    "{text}: an arrow from `{}` to `{to}` does not go up",
                    self.room
                ))
            }
        }
    }

    fn judge_door(&mut self, segments: &[String]) {
        for (name, places) in DOORS {
            let wanted: Vec<&str> = name.split("::").collect();
            let through =
                segments.len() >= wanted.len() && segments.iter().zip(&wanted).all(|(a, b)| a == b);
            let open = places
                .iter()
                .any(|place| self.file == *place || self.file.starts_with(&format!("{place}/")));
            if through && !open && (wanted[0] == "std" || self.crates.contains(wanted[0])) {
                self.found.insert(format!(
                    "{}: `{name}` enters by {} only",
                    segments.join("::"),
                    places.join(", ")
                ));
            }
        }
    }

    fn read_use(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.read_use(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.read_use(item, before))
            }
            syn::UseTree::Glob(_) => {
                self.judge(before, true);
            }
            syn::UseTree::Name(name) => self.read_name(&name.ident, &name.ident, before),
            syn::UseTree::Rename(rename) => self.read_name(&rename.ident, &rename.rename, before),
        }
    }

    fn read_name(&mut self, name: &syn::Ident, known_as: &syn::Ident, before: &[String]) {
        // `use a::b::{self}` names a::b; a leading `self` or `super` is part of the path.
        let own = (name != "self" || before.is_empty()).then(|| name.to_string());
        let path = [before, own.as_slice()].concat();
        if let Some(absolute) = self.judge(&path, true) {
            let known_as = if name == known_as { path.last().cloned() } else { None }
                .unwrap_or_else(|| known_as.to_string());
            self.imported.insert(known_as, absolute);
        }
    }

    /// Paths within the tokens of a macro or an attribute, which `syn` does not parse.
    fn read_tokens(&mut self, tokens: &str) {
        let mut words: Vec<String> = vec![String::new()];
        let mut characters =
            without_strings(tokens).chars().collect::<Vec<_>>().into_iter().peekable();
        while let Some(c) = characters.next() {
            if c.is_alphanumeric() || c == '_' {
                words.last_mut().unwrap().push(c);
            } else if c == ':' && characters.peek() == Some(&':') {
                characters.next();
                words.extend(["::".to_owned(), String::new()]);
            } else if c.is_whitespace() {
                words.push(String::new());
            } else {
                words.extend([c.to_string(), String::new()]);
            }
        }
        words.retain(|word| !word.is_empty());
        let is_name = |word: &String| word.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let mut at = 0;
        while at < words.len() {
            let mut path = Vec::new();
            while words.get(at).is_some_and(is_name) {
                path.push(words[at].clone());
                let goes_on = words.get(at + 1).is_some_and(|word| word == "::")
                    && words.get(at + 2).is_some_and(is_name);
                at += if goes_on { 2 } else { 1 };
                if !goes_on {
                    break;
                }
            }
            at += usize::from(path.is_empty());
            if path.len() > 1 {
                self.judge(&path, false);
            }
        }
    }
}

fn without_strings(tokens: &str) -> String {
    let mut out = String::new();
    let mut characters = tokens.chars();
    while let Some(c) = characters.next() {
        if c != '"' {
            out.push(c);
            continue;
        }
        while let Some(inner) = characters.next().filter(|inner| *inner != '"') {
            if inner == '\\' {
                characters.next();
            }
        }
        out.push(' ');
    }
    out
}

/// `#[cfg(test)]`, or the same with the feature `testing`.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if attribute.path().is_ident("cfg") => {
            let condition = list.tokens.to_string().replace([' ', '(', ')'], "");
            ["test", "anytest,feature=\"testing\""].contains(&&*condition)
        }
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.types.push(item.ident.to_string());
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.types.push(item.ident.to_string());
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.types.push(item.ident.to_string());
        visit::visit_item_type(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.read_use(&item.tree, &mut Vec::new());
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        self.judge_door(&[item.ident.to_string()]);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 || path.leading_colon.is_some() {
            self.judge(&segments, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.read_tokens(&item.tokens.to_string());
        visit::visit_macro(self, item);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.read_tokens(&list.tokens.to_string());
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.found.insert("an unsafe block".to_owned());
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if signature.unsafety.is_some() {
            self.found.insert(format!("unsafe fn {}", signature.ident));
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.unsafety.is_some() {
            self.found.insert("an unsafe impl".to_owned());
        }
        visit::visit_item_impl(self, item);
    }
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn crates() -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let names = manifest
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    names
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim().replace('-', "_"))
        .collect()
}

/// The sources without test files, as if all rooms were one crate: place in the house, and text.
pub(crate) fn production() -> BTreeMap<String, String> {
    let all: BTreeMap<String, String> = files()
        .into_iter()
        .map(|(place, file)| {
            let text = in_one_crate(&place, &std::fs::read_to_string(file).unwrap());
            (place, text)
        })
        .collect();
    let tests: BTreeSet<Vec<String>> =
        all.iter().flat_map(|(path, source)| test_modules(path, source)).collect();
    let is_test = |path: &str| tests.iter().any(|test| module_of(path).starts_with(test));
    all.into_iter().filter(|(path, _)| !is_test(path)).collect()
}

/// The modules with a file of their own that `source` declares under `#[cfg(test)]`.
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

/// The file of `#[path = "file"]`.
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

/// The crates whose root is a room. The rooms of the others are modules of theirs.
const ROOTED: [&str; 6] = ["cli", "console", "dialect", "gateway", "routing", "store"];
/// Rooms that are modules of a crate whose root is another room.
const INNER: [&str; 3] = ["mock", "server", "wire"];

/// Every Rust file of the crates, by its place in the house: its room, and the path in there.
pub(crate) fn files() -> BTreeMap<String, PathBuf> {
    let src = root().join("src");
    let mut found: BTreeMap<String, PathBuf> = rust_files(&src)
        .into_iter()
        .map(|file| (file.strip_prefix(&src).unwrap().to_str().unwrap().to_owned(), file))
        .collect();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let (name, src) = (folder.file_name().unwrap().to_str().unwrap(), folder.join("src"));
        for file in rust_files(&src) {
            let path = file.strip_prefix(&src).unwrap().to_str().unwrap();
            let room = path.trim_end_matches(".rs").trim_end_matches("_tests");
            let room = room.split('/').next().unwrap();
            let place = match (path, ROOTED.contains(&name)) {
                ("lib.rs", true) => format!("{name}/mod.rs"),
                // It declares the rooms, as the root of one crate would.
                ("lib.rs", false) => continue,
                (_, true) if !INNER.contains(&room) => format!("{name}/{path}"),
                _ => path.to_owned(),
            };
            assert!(found.insert(place, file.clone()).is_none(), "{}", file.display());
        }
    }
    found
}

/// A source as it would stand in a crate of all rooms.
fn in_one_crate(place: &str, source: &str) -> String {
    let room = place.split('/').next().unwrap();
    let inner = |name: &str| INNER.contains(&name);
    let home = match room {
        _ if ROOTED.contains(&room) => Some(room),
        "mock" | "server" => Some("gateway"),
        "wire" => Some("dialect"),
        _ => None,
    };
    let own = Regex::new(r"\bcrate::(\w+|\{)").unwrap();
    let source = own.replace_all(source, |found: &Captures<'_>| match home {
        Some(home) if !inner(&found[1]) => format!("crate::{home}::{}", &found[1]),
        _ => found[0].to_owned(),
    });
    let other = Regex::new(r"\brerouter_(\w+)(?: as \w+;|::\{self as \w+|::(\w+)|)").unwrap();
    let source = other.replace_all(&source, |found: &Captures<'_>| {
        let (name, next) = (&found[1], found.get(2).map_or("", |next| next.as_str()));
        let room = if ROOTED.contains(&name) { format!("crate::{name}") } else { "crate".into() };
        match (&found[0], next) {
            (text, _) if text.ends_with(';') => format!("{room};"),
            (text, _) if text.contains("{self") => format!("{room}::{{self"),
            (_, "") => room,
            (_, next) if inner(next) => format!("crate::{next}"),
            (_, next) => format!("{room}::{next}"),
        }
    });
    source.into_owned()
}

/// All Rust files below a folder, build output aside.
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

/// Which files of a room import which, `mod.rs` aside: a room's `mod.rs` declares its files and
/// hands on what they define. An import from there counts as one from the file that defines the
/// name.
fn imports(sources: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let crates = crates();
    let files: BTreeMap<Vec<String>, &str> =
        sources.keys().map(|path| (module_of(path), path.as_str())).collect();
    let modules: BTreeSet<Vec<String>> = files.keys().cloned().collect();
    let read: BTreeMap<&str, Reader<'_>> = sources
        .iter()
        .map(|(path, source)| {
            let tree = syn::parse_file(source).unwrap_or_else(|error| panic!("{path}: {error}"));
            (path.as_str(), Reader::read(path, &tree, &crates, &modules))
        })
        .collect();
    let defined_in = |path: &[String]| {
        let mut path = path.to_vec();
        // A name can be handed on a few times; a name that is handed on in a circle does not
        // compile.
        for _ in 0..8 {
            let length =
                (1..=path.len()).rev().find(|length| modules.contains(&path[..*length]))?;
            let file = files[&path[..length]];
            let onward = path.get(length).and_then(|name| read[file].imported.get(name));
            match onward {
                Some(to) => path = [&to[..], &path[length + 1..]].concat(),
                None => return Some(file),
            }
        }
        None
    };
    let is_face = |file: &str| file.ends_with("/mod.rs");
    read.iter()
        .filter(|(path, reader)| !is_face(path) && !reader.module.is_empty())
        .map(|(path, reader)| {
            let used = reader.named.iter().filter_map(|named| defined_in(named));
            let in_room = used.filter(|file| {
                file != path && !is_face(file) && module_of(file).first() == reader.module.first()
            });
            ((*path).to_owned(), in_room.map(str::to_owned).collect())
        })
        .collect()
}

/// The groups of nodes that reach each other, each sorted.
fn cycles(graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<Vec<String>> {
    let reach = |from: &str| {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(node) = todo.pop() {
            for next in graph.get(&node).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    todo.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<String>> =
        graph.keys().map(|node| (node.as_str(), reach(node))).collect();
    let group = |node: &str| {
        let back = reached[node].iter().filter(|to| reached[to.as_str()].contains(node));
        back.cloned().collect::<Vec<_>>()
    };
    graph.keys().map(|node| group(node)).filter(|group| !group.is_empty()).collect()
}

#[test]
fn rooms_use_only_rooms_above_and_crates_enter_by_their_doors() {
    let crates = crates();
    let sources = production();
    assert!(sources.len() > 5);
    let found: Vec<String> =
        sources.iter().flat_map(|(path, source)| violations(path, source, &crates)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What users filter their logs by.
#[test]
fn a_module_logs_under_the_name_of_its_room() {
    for (place, file) in
        files().into_iter().filter(|(_, file)| !file.starts_with(root().join("src")))
    {
        let inner = file.strip_prefix(root().join("crates")).unwrap().to_str().unwrap();
        let (name, path) = inner.split_once("/src/").unwrap();
        let module = [vec![format!("rerouter_{name}")], module_of(path)].concat().join("::");
        let shown = [vec!["rerouter".to_owned()], module_of(&place)].concat().join("::");
        if !place.contains("test") {
            assert_eq!(target(&module), shown, "{place}");
        }
    }
}

/// Unit tests too: what the store promises is tested through its door, on every database.
#[test]
fn only_one_folder_names_sqlite() {
    let named: Vec<PathBuf> = files()
        .into_iter()
        .filter(|(place, _)| !place.starts_with("store/sqlite/"))
        .map(|(_, file)| file)
        .filter(|file| std::fs::read_to_string(file).unwrap().contains("rusqlite"))
        .collect();
    assert!(named.is_empty(), "{named:?}");
}

/// It shows nobody more than the API does, and audits the same, because it has no other way.
#[test]
fn the_console_asks_the_api_only() {
    for (path, source) in production().into_iter().filter(|(path, _)| path.starts_with("console/"))
    {
        for way in ["::store", ".store", "::archive", ".archive", "::capture", ".captures"] {
            let named = source.match_indices(way).any(|(at, _)| {
                !source[at + way.len()..].starts_with(|next: char| next.is_alphanumeric())
            });
            assert!(!named, "{path} names {way}");
        }
    }
}

#[test]
fn the_files_of_a_room_form_no_cycle() {
    let found = cycles(&imports(&production()));
    assert!(found.is_empty(), "import each other: {found:?}");
}

#[test]
fn cycles_are_found_through_names_that_are_handed_on() {
    let sources = |files: &[(&str, &str)]| {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    };
    let found = cycles(&imports(&sources(&[
        ("room/mod.rs", "mod a; mod b; mod c; mod d; pub use b::Thing; use d::Other;"),
        ("room/a.rs", "use super::Thing;"),
        ("room/b.rs", "fn f() { crate::room::c::go(); }"),
        ("room/c.rs", "mod inner { use super::super::a; }"),
        ("room/d.rs", "use super::{Thing, Other}; #[cfg(test)] mod tests { use super::super::a; }"),
        ("other/mod.rs", "mod a; mod b;"),
        ("other/a.rs", "use super::b; use crate::room::Thing;"),
        ("other/b.rs", "use super::*;"),
    ])));
    let expected: Vec<_> = ["room/a.rs", "room/b.rs", "room/c.rs"].map(str::to_owned).into();
    assert_eq!(found, BTreeSet::from([expected]));
    let child = cycles(&imports(&sources(&[
        ("room/mod.rs", "mod a;"),
        ("room/a.rs", "mod b; fn f() { b::go(); }"),
        ("room/a/b.rs", "use super::Thing;"),
    ])));
    assert_eq!(child.len(), 1, "{child:?}");
}

#[test]
fn type_names_are_unique() {
    let crates = crates();
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, source) in production() {
        let tree = syn::parse_file(&source).unwrap();
        for name in Reader::read(&path, &tree, &crates, &BTreeSet::new()).types {
            defined.entry(name).or_default().push(path.clone());
        }
    }
    defined.retain(|_, files| files.len() > 1);
    assert!(defined.is_empty(), "defined more than once: {defined:?}");
}

#[test]
fn every_door_is_of_a_crate_that_is_used_and_every_place_is_a_room() {
    let crates = crates();
    for (name, places) in DOORS {
        assert!(
            name.starts_with("std::") || crates.contains(name.split("::").next().unwrap()),
            "{name} is no dependency"
        );
        for place in *places {
            assert!(row(place.split('/').next().unwrap()).is_some(), "{place}");
        }
    }
    assert!(
        std::fs::read_to_string(root().join("Cargo.toml"))
            .unwrap()
            .contains("unsafe_code = \"forbid\"")
    );
}

#[test]
fn planted_violations_are_found() {
    let crates = crates();
    let planted = [
        ("auth/token.rs", "use crate::routing::decide;", "does not go up"),
        (
            "auth/token.rs",
            "async fn f() { tokio::task::spawn_blocking(|| 1).await.ok(); }",
            "enters by blocking only",
        ),
        ("clock.rs", "use crate::id::Random;", "does not go up"),
        ("store/columns.rs", "use super::super::gateway::Edge;", "does not go up"),
        ("store/mod.rs", "mod inner { use super::super::api::Route; }", "does not go up"),
        (
            "auth/mod.rs",
            "use crate::{clock::Clock, id::{KeyId, UserId}, server};",
            "does not go up",
        ),
        ("auth/mod.rs", "fn f() { crate::gateway::go(); }", "does not go up"),
        ("auth/mod.rs", "struct S { of: Vec<crate::config::Server> }", "does not go up"),
        ("auth/mod.rs", "fn f() { println!(\"{}\", crate::api::ROUTES.len()); }", "does not go up"),
        ("auth/mod.rs", "#[derive(crate::api::Plan)] struct S;", "does not go up"),
        ("auth/mod.rs", "use crate as all;", "opens every room"),
        ("auth/mod.rs", "use super::*;", "opens every room"),
        ("auth/mod.rs", "use crate::{self as all};", "opens every room"),
        ("auth/mod.rs", "use super::super::super::x;", "leaves the crate"),
        ("auth/mod.rs", "use crate::unheard_of::x;", "not a room"),
        ("newroom/mod.rs", "", "not in the table"),
        ("api/mod.rs", "use pingora::proxy::Session;", "`pingora` enters"),
        ("api/mod.rs", "use {bytes::Bytes, rusqlite as sql};", "`rusqlite` enters"),
        ("store/keys.rs", "fn key(row: &rusqlite::Row<'_>) {}", "`rusqlite` enters"),
        ("auth/token.rs", "fn f() { let _ = argon2::Argon2::default(); }", "`argon2` enters"),
        ("auth/token.rs", "fn f() { let _ = ::ring::rand::SystemRandom::new(); }", "`ring` enters"),
        ("auth/token.rs", "extern crate clap as c;", "`clap` enters"),
        ("auth/token.rs", "#[derive(clap::Parser)] struct S;", "`clap` enters"),
        (
            "routing/decide.rs",
            "fn f() { assert!(cel::Program::compile(\"x\").is_ok()); }",
            "`cel` enters",
        ),
        ("auth/token.rs", "fn f() { let _ = std::env::var(\"X\"); }", "`std::env` enters"),
        ("auth/token.rs", "use std::{env, fmt};", "`std::env` enters"),
        ("auth/token.rs", "fn f() { unsafe { g() } }", "unsafe block"),
        ("auth/token.rs", "unsafe fn f() {}", "unsafe fn"),
    ];
    for (path, code, expected) in planted {
        let found = violations(path, &format!("//! Planted.\n{code}\n"), &crates);
        assert!(found.iter().any(|what| what.contains(expected)), "{path}: {code}: {found:?}");
    }
    assert!(violations("auth/token.rs", "// Planted.\n", &crates)[0].contains("`//!`"));
}

#[test]
fn what_is_allowed_is_not_found() {
    let crates = crates();
    let fine = [
        (
            "gateway/mod.rs",
            "use crate::{app::App, auth::Principal}; use super::routing::decide; \
             use pingora::proxy::Session;",
        ),
        (
            "store/sqlite/schema.rs",
            "use super::super::Change; use rusqlite::Row; mod deep { use super::super::Store; }",
        ),
        (
            "auth/mod.rs",
            "pub(crate) mod token; pub(in crate::auth) use token::mint; use self::token::digest;",
        ),
        (
            "auth/mod.rs",
            "#[cfg(test)]\n\
             mod tests { use super::*; use crate::server::Server; use clap::Parser; }",
        ),
        ("auth/mod.rs", "fn f() { panic!(\"crate::api::x and rusqlite::y\"); }"),
        ("auth/mod.rs", "mod env {} fn f(ring: u8) -> u8 { ring }"),
        ("main.rs", "fn main() { rerouter::cli::run(); }"),
    ];
    for (path, code) in fine {
        let found = violations(path, &format!("//! Fine.\n{code}\n"), &crates);
        assert!(found.is_empty(), "{path}: {code}: {found:?}");
    }
}
