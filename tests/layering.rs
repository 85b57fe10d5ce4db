//! The house rules that the compiler does not hold: arrows between rooms go up only, each external crate has its door,
//! every file says what it is for and stays short. Reads the source with `syn`; code under `#[cfg(test)]` is free.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The rooms from top to bottom. A room uses itself and rooms above its row, never one in its row or below.
/// `lib` only declares the rooms; `main` is the last.
const ROWS: &[&[&str]] = &[
    &["bounds"],
    &["clock", "error", "id", "interface"],
    &["atomic_file", "blocking", "turns", "body_memory"],
    &["secret"],
    &["log"],
    &["metrics"],
    &["store"],
    &["protocol"],
    &["auth"],
    &["limits"],
    &["repeats"],
    &["routing"],
    &["nodes"],
    &["capture"],
    &["redaction"],
    &["replay"],
    &["config"],
    &["app"],
    &["prompt"],
    &["evaluation"],
    &["reload"],
    &["api"],
    &["gateway"],
    &["server"],
    &["cli"],
    &["lib"],
    &["main"],
];

/// External crates (and `std::env`) that enter by certain files only: a room, or one file of it.
const DOORS: &[(&str, &[&str])] = &[
    ("pingora", &["gateway", "server"]),
    ("pingora_proxy", &["gateway", "server"]),
    ("rusqlite", &["store"]),
    ("prometheus", &["metrics"]),
    ("clap", &["cli"]),
    ("h2", &["gateway/http2", "gateway/http2_stream"]),
    ("comfy_table", &["cli/table"]),
    ("indicatif", &["cli/progress"]),
    ("ipnet", &["config/net"]),
    ("rustix", &["cli/table", "server/descriptors"]),
    ("ureq", &["cli/client", "cli/node"]),
    ("saphyr_parser", &["config"]),
    ("flate2", &["protocol/coding", "protocol/coding_tests"]),
    ("zstd", &["capture/segment", "protocol/coding", "protocol/coding_tests"]),
    ("brotli_decompressor", &["protocol/coding"]),
    ("hyper", &["protocol/mock"]),
    ("hyper_util", &["protocol/mock"]),
    ("http_body_util", &["protocol/mock"]),
    ("rustls", &["server/tls", "config/authorities"]),
    ("x509_parser", &["config/authorities"]),
    ("argon2", &["auth/password"]),
    ("ring", &["secret"]),
    ("cel", &["routing/condition"]),
    ("regex", &["capture/redaction", "routing/condition"]),
    ("aho_corasick", &["capture/redaction", "routing/keywords", "secret/mask"]),
    ("whatlang", &["routing/language"]),
    ("env_logger", &["log"]),
    ("mimalloc", &["main"]),
    ("std::env", &["config", "cli"]),
    // What a panic there says would be told by tokio's error.
    ("tokio::task::spawn_blocking", &["blocking"]),
];

/// Lines of a source file above its tests.
const LINES: usize = 700;
/// A flat list of constants: longer than other files, and still read at a glance.
const LIST: &str = "bounds.rs";

fn row(room: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&room))
}

/// Every violation in one file; `path` is below `src/`, `crates` are the names of the dependencies.
fn violations(path: &str, source: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let mut module: Vec<String> =
        path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let file = module.join("/");
    let room = module[0].clone();
    if module.last().is_some_and(|name| name == "mod") || room == "lib" || room == "main" {
        module.pop();
    }
    let mut found = Vec::new();
    if row(&room).is_none() {
        found.push(format!("{path}: room `{room}` is not in the table"));
    }
    if !source.starts_with("//! ") {
        found.push(format!("{path}: does not begin with a line of `//!`"));
    }
    let lines = lines_without_tests(source);
    if lines > LINES && path != LIST {
        found.push(format!("{path}: {lines} lines, more than {LINES}"));
    }
    match syn::parse_file(source) {
        Err(error) => found.push(format!("{path}: {error}")),
        Ok(_) if is_test_file(path) => {}
        Ok(tree) => {
            let mut reader =
                Reader { file: &file, room: &room, module, crates, found: BTreeSet::new() };
            reader.visit_file(&tree);
            found.extend(reader.found.into_iter().map(|what| format!("{path}: {what}")));
        }
    }
    found
}

/// Tests that outgrew their room: `tests.rs` beside `mod.rs`, which declares it under `#[cfg(test)]` (held below).
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs")
}

/// Inline test modules stand at the left margin and end with a brace there.
fn lines_without_tests(source: &str) -> usize {
    let (mut count, mut inside, mut before) = (0, false, "");
    for line in source.lines() {
        inside |= before == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{');
        count += usize::from(!inside);
        inside &= line != "}";
        before = line;
    }
    count
}

struct Reader<'a> {
    file: &'a str,
    room: &'a str,
    module: Vec<String>,
    crates: &'a BTreeSet<String>,
    found: BTreeSet<String>,
}

impl Reader<'_> {
    /// Judges one path: absolute in the crate, relative, or of another crate. `whole` when it names all of what it ends in.
    fn judge(&mut self, segments: &[String], whole: bool) {
        let Some(first) = segments.first() else { return };
        let mut at = self.module.clone();
        let mut rest = segments;
        match first.as_str() {
            "crate" | "rerouter" => (at, rest) = (Vec::new(), &segments[1..]),
            "self" | "super" => {
                while let Some(word @ ("self" | "super")) = rest.first().map(String::as_str) {
                    if word == "super" && at.pop().is_none() {
                        self.found.insert(format!("{} leaves the crate", segments.join("::")));
                        return;
                    }
                    rest = &rest[1..];
                }
            }
            _ => return self.judge_door(segments),
        }
        at.extend(rest.iter().cloned());
        match at.first() {
            Some(room) => self.judge_arrow(&room.clone(), &segments.join("::")),
            None if whole => {
                _ = self.found.insert(format!("{} opens every room at once", segments.join("::")))
            }
            None => {}
        }
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
            syn::UseTree::Glob(_) => self.judge(before, true),
            syn::UseTree::Name(name) => self.read_name(name.ident.to_string(), before),
            syn::UseTree::Rename(rename) => self.read_name(rename.ident.to_string(), before),
        }
    }

    fn read_name(&mut self, name: String, before: &mut Vec<String>) {
        // `use a::b::{self}` names a::b; a leading `self` or `super` is part of the path.
        if name == "self" && !before.is_empty() {
            return self.judge(before, true);
        }
        before.push(name);
        self.judge(before, true);
        before.pop();
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

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
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

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn crates() -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let names = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    names
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim().replace('-', "_"))
        .collect()
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn every_source_file_keeps_the_house_rules() {
    let (src, crates) = (root().join("src"), crates());
    let mut files = Vec::new();
    sources(&src, &mut files);
    files.sort();
    assert!(files.len() > 5);
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let path = file.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
            if is_test_file(&path) {
                let room = std::fs::read_to_string(file.with_file_name("mod.rs")).unwrap();
                assert!(
                    room.contains("#[cfg(test)]\nmod tests;\n"),
                    "{path} is not declared under #[cfg(test)]"
                );
            }
            violations(&path, &std::fs::read_to_string(file).unwrap(), &crates)
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
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
        ("auth/token.rs", "use crate::routing::decide::decide;", "does not go up"),
        (
            "auth/token.rs",
            "async fn f() { tokio::task::spawn_blocking(|| 1).await.ok(); }",
            "enters by blocking only",
        ),
        ("clock.rs", "use crate::id::Random;", "does not go up"),
        ("store/sqlite.rs", "use super::super::gateway::Edge;", "does not go up"),
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
    let long = format!("//! Planted.\n{}", "const _: () = ();\n".repeat(LINES));
    assert!(violations("auth/token.rs", &long, &crates)[0].contains("lines"));
    let hidden = long.replacen('\n', "\n#[cfg(test)]\nmod tests;\n", 1);
    assert!(violations("auth/token.rs", &hidden, &crates)[0].contains("lines"));
    assert!(violations("auth/token.rs", "// Planted.\n", &crates)[0].contains("`//!`"));
}

#[test]
fn what_is_allowed_is_not_found() {
    let crates = crates();
    let fine = [
        (
            "gateway/mod.rs",
            "use crate::{app::App, auth::Principal}; use super::routing::decide; use pingora::proxy::Session;",
        ),
        (
            "store/sqlite.rs",
            "use super::Change; use rusqlite::Connection; mod deep { use super::super::Store; }",
        ),
        (
            "auth/mod.rs",
            "pub(crate) mod token; pub(in crate::auth) use token::mint; use self::token::digest;",
        ),
        (
            "auth/mod.rs",
            "#[cfg(test)]\nmod tests { use super::*; use crate::server::Server; use clap::Parser; }",
        ),
        ("auth/mod.rs", "fn f() { panic!(\"crate::api::x and rusqlite::y\"); }"),
        ("auth/mod.rs", "mod env {} fn f(ring: u8) -> u8 { ring }"),
        ("main.rs", "fn main() { rerouter::cli::run(); }"),
    ];
    for (path, code) in fine {
        let found = violations(path, &format!("//! Fine.\n{code}\n"), &crates);
        assert!(found.is_empty(), "{path}: {code}: {found:?}");
    }
    let tests = format!(
        "//! Fine.\n#[cfg(test)]\nmod tests {{\n{}}}\n",
        "    const _: () = ();\n".repeat(LINES)
    );
    assert!(violations("auth/token.rs", &tests, &crates).is_empty());
}
