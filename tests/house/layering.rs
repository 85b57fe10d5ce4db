//! Structural rules that the compiler does not check: the dependencies among crates, the order of
//! rooms in a crate, no cycle among files, and where external crates may be used. Reads the source
//! with `syn`. Code under `#[cfg(test)]` is exempt.

use std::collections::{BTreeMap, BTreeSet};

use rerouter::internals::log::target;

use super::files::{crate_files, crates, module_of, place, production, production_of, room, root};
use super::imports::{Reader, cycles, graph};

/// Our crates from top to bottom, each with those of our crates that it may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("document", &["base"]),
    ("dialect", &["base"]),
    ("store", &["base", "document"]),
    ("routing", &["base", "document", "dialect"]),
    ("records", &["base", "dialect", "store", "routing"]),
    ("access", &["base", "dialect", "store", "routing", "records"]),
    ("captures", &["base", "dialect", "store", "routing", "records"]),
    ("core", &["base", "document", "dialect", "store", "routing", "records", "access", "captures"]),
    ("console", &["base", "dialect", "store", "routing", "records", "access", "captures", "core"]),
    (
        "gateway",
        &[
            "base", "dialect", "store", "routing", "records", "access", "captures", "core",
            "console",
        ],
    ),
    ("importer", &["base", "routing"]),
    (
        "cli",
        &[
            "base", "dialect", "store", "routing", "records", "access", "captures", "core",
            "console", "gateway", "importer",
        ],
    ),
];

/// External crates, each with the only crates of ours that may depend on it.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("pingora", &["gateway"]),
    ("pingora-proxy", &["gateway"]),
    ("rusqlite", &["store"]),
    ("tokio-postgres", &["store"]),
    ("object_store", &["captures"]),
    ("cel", &["routing"]),
    ("maud", &["console"]),
    ("clap", &["cli"]),
    ("prometheus", &["base"]),
    ("saphyr-parser", &["document"]),
    ("ring", &["base"]),
    ("argon2", &["access"]),
];

/// The rooms from top to bottom. A room uses only rooms of its crate in rows above its own.
pub(crate) const ROWS: &[&[&str]] = &[
    &["bounds", "words"],
    &["clock", "error", "id", "interface", "money", "url", "usage_kind"],
    &[
        "atomic_file",
        "blocking",
        "count_guard",
        "turns",
        "repeats",
        "body_memory",
        "unread",
        "trace_context",
    ],
    &["secret"],
    &["log"],
    &["metrics"],
    &["document"],
    &["store"],
    &["wire"],
    &["dialect"],
    &["mock"],
    &["auth"],
    &["limits"],
    &["routing"],
    &["records"],
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
    &["importer"],
    &["cli"],
    &["internals"],
];

/// External names that only certain rooms or files may use.
const DOORS: &[(&str, &[&str])] = &[
    ("rusqlite", &["store/sqlite"]),
    ("tokio_postgres", &["store/postgres"]),
    ("prometheus", &["metrics"]),
    ("ring", &["secret"]),
    ("argon2", &["auth/password"]),
    ("object_store", &["archive/objects"]),
    ("cel", &["routing/condition"]),
    ("hyper", &["mock"]),
    ("h2", &["gateway/http2", "gateway/http2_stream"]),
    ("ureq", &["archive/objects/client", "cli/client", "cli/node", "config/egress", "telemetry"]),
    ("std::env", &["config", "cli"]),
    // Other callers would put the text of a panic into the error that tokio returns.
    ("tokio::task::spawn_blocking", &["blocking"]),
];

pub(crate) fn row(room: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&room))
}

/// Uses of rooms of crate `name` that are not in a row above, and rooms without a row.
fn wrong_arrows(name: &str, sources: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (file, others) in graph(sources, true) {
        let from = room(name, &file);
        let Some(below) = row(&from).or_else(|| (file == "lib.rs").then_some(usize::MAX)) else {
            found.insert(format!("{file}: room `{from}` is not in the table"));
            continue;
        };
        for other in others {
            let to = room(name, &other);
            if to != from && row(&to).is_none_or(|above| above >= below) {
                found.insert(format!("{name}: {file} names {other}, which does not stand above"));
            }
        }
    }
    found
}

/// External names in a file of crate `name` that are allowed only elsewhere.
fn wrong_doors(name: &str, path: &str, source: &str) -> BTreeSet<String> {
    let place = place(name, path).unwrap_or_default();
    let file = place.trim_end_matches(".rs");
    let none = BTreeSet::new();
    let others = Reader::read(path, source, &none).others;
    let known = dependencies(name);
    let shut = DOORS.iter().filter(|(door, places)| {
        let outer = door.split("::").next().unwrap().replace('_', "-");
        (outer == "std" || known.contains(&outer) || known.contains(*door))
            && !places.iter().any(|open| file == *open || file.starts_with(&format!("{open}/")))
    });
    let through = |door: &str| {
        let wanted: Vec<&str> = door.split("::").collect();
        others.iter().any(|path| {
            path.iter().map(String::as_str).take(wanted.len()).eq(wanted.iter().copied())
        })
    };
    shut.filter(|(door, _)| through(door))
        .map(|(door, places)| format!("{place}: `{door}` enters by {} only", places.join(", ")))
        .collect()
}

/// Names in `[dependencies]` of a crate's manifest.
fn dependencies(name: &str) -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml"));
    let manifest = manifest.unwrap();
    assert!(manifest.contains("[lints]\nworkspace = true"), "{name} has lints of its own");
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let names = lines.take_while(|line| !line.starts_with('['));
    names
        .filter_map(|line| line.split_once(['.', ' ', '=']))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn crates_depend_on_crates_above() {
    let named: BTreeSet<String> = CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(named, crates());
    for (name, may) in CRATES {
        let all = dependencies(name);
        let own: Vec<&str> = all.iter().filter_map(|on| on.strip_prefix("rerouter-")).collect();
        assert!(own.iter().all(|on| may.contains(on)), "{name} depends on {own:?}");
        for (other, only) in ONLY_IN {
            assert!(!all.contains(*other) || only.contains(name), "{name} depends on {other}");
        }
    }
    for (other, only) in ONLY_IN {
        assert!(
            only.iter().all(|name| dependencies(name).contains(*other)),
            "{other} left {only:?}"
        );
    }
    let manifest = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    assert!(manifest("Cargo.toml").contains("unsafe_code = \"deny\""));
    for path in ["Cargo.toml", "benches/bare/Cargo.toml"] {
        assert!(manifest(path).contains("[lints]\nworkspace = true"), "{path}");
    }
}

#[test]
fn one_expression_is_unsafe() {
    let sources = production();
    let unsafe_in = |text: &str| text.matches("unsafe {").count();
    let found: Vec<(&str, usize)> = sources
        .iter()
        .filter(|(_, text)| text.contains("(unsafe_code") || unsafe_in(text) > 0)
        .map(|(path, text)| (path.as_str(), unsafe_in(text)))
        .collect();
    assert_eq!(found, [("gateway/cork.rs", 1)]);
}

#[test]
fn rooms_of_a_crate_use_only_rooms_above() {
    for name in crates() {
        let found = wrong_arrows(&name, &production_of(&name));
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn what_has_a_door_enters_by_it() {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for name in crates() {
        for (path, source) in production_of(&name) {
            let found = wrong_doors(&name, &path, &source);
            assert!(found.is_empty(), "{found:#?}");
            let doors = DOORS.iter().filter(|(door, _)| source.contains(door));
            used.extend(doors.map(|(door, _)| *door));
        }
    }
    assert_eq!(used.len(), DOORS.len(), "only these are used: {used:?}");
}

/// A room's `mod.rs` counts like any file. Its re-exports count for the files that define the
/// items.
#[test]
fn the_files_of_a_crate_form_no_cycle() {
    let mut found = BTreeMap::new();
    for name in crates() {
        found.insert(name.clone(), cycles(&graph(&production_of(&name), false)));
    }
    found.retain(|_, cycles| !cycles.is_empty());
    assert!(found.is_empty(), "{found:#?}");
}

/// Users filter their logs by these names.
#[test]
fn a_module_logs_under_the_name_of_its_room() {
    for name in crates() {
        for path in crate_files(&name).into_keys().filter(|path| !path.contains("test")) {
            let Some(place) = place(&name, &path) else { continue };
            let module = [vec![format!("rerouter_{name}")], module_of(&path)].concat().join("::");
            let shown = [vec!["rerouter".to_owned()], module_of(&place)].concat().join("::");
            assert_eq!(target(&module), shown, "{place}");
        }
    }
}

/// Includes unit tests: the store's guarantees are tested through its public API, on every
/// database.
#[test]
fn only_one_folder_names_sqlite() {
    for (path, file) in crate_files("store") {
        let source = std::fs::read_to_string(file).unwrap();
        assert!(path.starts_with("sqlite/") || !source.contains("rusqlite"), "{path}");
    }
}

/// The console shows nobody more than the API does, and writes the same audit, because it has no
/// other access.
#[test]
fn the_console_asks_the_api_only() {
    for (path, source) in production_of("console") {
        for way in ["::store", ".store", "::archive", ".archive", "::capture", ".captures"] {
            let named = source.match_indices(way).any(|(at, _)| {
                !source[at + way.len()..].starts_with(|next: char| next.is_alphanumeric())
            });
            assert!(!named, "{path} names {way}");
        }
    }
}

#[test]
fn public_type_names_are_unique_among_crates() {
    let mut defined: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in crates() {
        for (path, source) in production_of(&name) {
            for named in Reader::read(&path, &source, &BTreeSet::new()).public_types {
                defined.entry(named).or_default().insert(name.clone());
            }
        }
    }
    defined.retain(|_, crates| crates.len() > 1);
    assert!(defined.is_empty(), "defined more than once: {defined:?}");
}

fn planted(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn cycles_are_found_through_names_that_are_handed_on() {
    let found = cycles(&graph(
        &planted(&[
            ("room/mod.rs", "mod a; mod b; mod c; mod d; pub use b::Thing; pub(crate) use d::*;"),
            ("room/a.rs", "use super::Thing;"),
            ("room/b.rs", "pub struct Thing; fn f() { crate::room::c::go(); }"),
            ("room/c.rs", "pub fn go() {} mod inner { use super::super::a; fn f() { a::g(); } }"),
            (
                "room/d.rs",
                "pub struct Other; use super::{Thing, Other}; \
                 #[cfg(test)] mod tests { use super::super::a::f; }",
            ),
            ("other/mod.rs", "mod a; mod b;"),
            ("other/a.rs", "use super::b; use crate::room::Thing; use super::*;"),
            ("other/b.rs", "use crate::room::{self, d}; fn f() { room::c::go() }"),
        ]),
        false,
    ));
    let expected: Vec<_> = ["room/a.rs", "room/b.rs", "room/c.rs"].map(str::to_owned).into();
    assert_eq!(found, BTreeSet::from([expected]));
}

#[test]
fn a_cycle_through_the_root_of_a_room_is_found() {
    for (above, below) in [
        ("mod a; pub struct Row; fn f() { a::g(); }", "use super::Row; pub fn g() {}"),
        (
            "mod a; pub use a::g; pub struct Row; fn f() { g(); }",
            "use crate::room::Row; pub fn g() {}",
        ),
        ("mod a; pub struct Row; const T: Row = m!(a::g);", "use super::Row; pub fn g() {}"),
        ("mod a; #[at(a::g)] pub struct Row;", "fn g(row: super::Row) {}"),
    ] {
        let files = planted(&[("room/mod.rs", above), ("room/a.rs", below)]);
        assert_eq!(cycles(&graph(&files, false)).len(), 1, "{above}");
    }
    let files = planted(&[
        ("room/mod.rs", "mod a; mod row; pub use row::Row; fn f() { a::g(); }"),
        ("room/a.rs", "use super::Row; pub fn g() {}"),
        ("room/row.rs", "pub struct Row;"),
    ]);
    assert!(cycles(&graph(&files, false)).is_empty());
}

#[test]
fn planted_violations_are_found() {
    let below = "use crate::metrics::Metrics;";
    for (path, source) in [
        ("clock.rs", below),
        ("secret/mod.rs", "pub use crate::metrics::Metrics;"),
        ("secret/mod.rs", "use crate::metrics; fn f(of: metrics::Metrics) {}"),
        ("secret/mod.rs", "struct S { of: Vec<crate::metrics::Metrics> }"),
        ("secret/mod.rs", "fn f() { println!(\"{}\", crate::metrics::COUNT); }"),
        ("secret/mod.rs", "#[derive(crate::metrics::Count)] struct S;"),
        ("secret/mod.rs", "use crate::*;"),
        ("secret/mask.rs", "mod inner { use super::super::super::metrics::Metrics; }"),
        ("newroom.rs", ""),
    ] {
        let metrics = ("metrics.rs", "pub struct Metrics;");
        let files = planted(&[("lib.rs", "pub mod metrics;"), metrics, (path, source)]);
        assert!(!wrong_arrows("base", &files).is_empty(), "{path}: {source}");
    }
    let files = planted(&[("metrics.rs", "use crate::clock::Clock;"), ("clock.rs", "")]);
    assert!(wrong_arrows("base", &files).is_empty());
    for source in [
        "use {bytes::Bytes, rusqlite as sql};",
        "fn key(row: &rusqlite::Row<'_>) {}",
        "fn f() { let _ = ::rusqlite::x(); }",
        "extern crate rusqlite as r;",
        "#[derive(rusqlite::Parser)] struct S;",
        "fn f() { assert!(rusqlite::x().is_ok()); }",
        "use std::{env, fmt};",
        "async fn f() { tokio::task::spawn_blocking(|| 1).await.ok(); }",
    ] {
        assert_eq!(wrong_doors("store", "keys.rs", source).len(), 1, "{source}");
    }
    for source in [
        "#[cfg(test)]\nmod tests { use rusqlite::Row; }",
        "fn f() { panic!(\"rusqlite::y\"); }",
        "mod env {} fn f(ring: u8) -> u8 { ring }",
    ] {
        assert!(wrong_doors("store", "keys.rs", source).is_empty(), "{source}");
    }
    assert!(wrong_doors("store", "sqlite/rows.rs", "use rusqlite::Row;").is_empty());
}
