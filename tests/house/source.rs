//! Properties of the source that help its readers: limits on the length of files and lines, unit
//! tests in the expected places, and a map (`src/lib.rs`) with existing paths and the order of
//! rooms that `layering.rs` checks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::files::{files, production, root, rust_files};
use super::layering::row;

/// Most lines of a production file, without inline tests.
const LINES: usize = 500;
/// Most lines of a file of unit tests. It may be longer, because readers can skip scenarios.
const TEST_LINES: usize = 600;
/// Most columns of a line. `rustfmt` wraps code, but not comments, strings and tables.
const COLUMNS: usize = 100;

/// Most lines of an inline test module. A longer one must have its own file.
const INLINE_TESTS: usize = 100;

/// Numbers of lines of production code and of inline tests. An inline test module starts at the
/// left margin, and its closing brace is there too.
fn split_lines(source: &str) -> (usize, usize) {
    let (mut production, mut tests, mut inside, mut before) = (0, 0, false, "");
    for line in source.lines() {
        let first = before == "#[cfg(test)]" && line.contains("mod ") && line.ends_with('{');
        tests += usize::from(inside && line != "}");
        inside |= first;
        production += usize::from(!inside);
        inside &= line != "}";
        before = line;
    }
    (production, tests)
}

#[test]
fn production_files_are_short() {
    let mut long = production();
    long.retain(|_, source| split_lines(source).0 > LINES);
    assert!(long.is_empty(), "longer than {LINES} lines: {:?}", long.keys());
}

#[test]
fn production_files_say_what_they_are() {
    let mut silent = production();
    silent.retain(|_, source| !source.starts_with("//! "));
    assert!(silent.is_empty(), "no line of `//!` at first: {:?}", silent.keys());
}

#[test]
fn files_of_unit_tests_are_short() {
    let production = production();
    let lines = |file: &PathBuf| std::fs::read_to_string(file).unwrap().lines().count();
    let mut files = files();
    files.retain(|place, file| !production.contains_key(place) && lines(file) > TEST_LINES);
    assert!(files.is_empty(), "longer than {TEST_LINES} lines: {files:?}");
}

#[test]
fn inline_tests_are_counted_apart() {
    let inline = "//! A file.\n#[cfg(test)]\nmod tests {\n    f();\n}\nf();\n";
    assert_eq!(split_lines(inline), (3, 1));
    assert_eq!(split_lines("#[cfg(test)]\nmod tests;\nfn f() {\n    g();\n}\n"), (5, 0));
}

#[test]
fn unit_tests_are_where_readers_look_for_them() {
    let production = production();
    let long: Vec<_> = production
        .iter()
        .filter(|(_, source)| split_lines(source).1 > INLINE_TESTS)
        .map(|(path, _)| path)
        .collect();
    assert!(long.is_empty(), "inline tests over {INLINE_TESTS} lines: {long:?}");
    for (path, _) in files() {
        let name = path.rsplit('/').next().unwrap();
        let named = path.contains("/tests/")
            || ["tests.rs", "fixtures.rs"].contains(&name)
            || ["_tests.rs", "_fixtures.rs"].iter().any(|end| name.ends_with(end));
        let declared = !production.contains_key(&path);
        assert_eq!(
            named, declared,
            "{path}: the name says tests, or `#[cfg(test)]` does, not both"
        );
    }
}

/// Files with lines that are too wide, and the number of such lines.
fn wide(folder: &str) -> BTreeMap<PathBuf, usize> {
    let wide = |line: &&str| line.chars().count() > COLUMNS;
    let count =
        |file: &PathBuf| std::fs::read_to_string(file).unwrap().lines().filter(wide).count();
    rust_files(&root().join(folder))
        .into_iter()
        .map(|file| (count(&file), file))
        .filter_map(|(lines, file)| (lines > 0).then_some((file, lines)))
        .collect()
}

#[test]
fn no_line_is_wider_than_the_limit() {
    let files: BTreeMap<_, _> =
        ["src", "crates", "tests", "benches", "examples"].into_iter().flat_map(wide).collect();
    assert!(files.is_empty(), "lines over {COLUMNS} columns: {files:?}");
}

/// The doc comment of the crate, without the code below it.
fn map() -> String {
    let text = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let lines = text.lines().take_while(|line| line.starts_with("//!"));
    lines.map(|line| format!("{}\n", line.trim_start_matches("//!").trim_start())).collect()
}

/// Words of the map that look like paths of files or folders.
fn paths(map: &str) -> BTreeSet<&str> {
    // `agent/…` is the prefix of a model name, not a path.
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./…".contains(c);
    map.split(|c: char| !is_path(c))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| {
            let is_file = [".rs", ".json", ".md"].iter().any(|end| word.ends_with(end));
            is_file || (word.ends_with('/') && word.len() > 1 && !word.starts_with('/'))
        })
        .collect()
}

#[test]
fn every_path_on_the_map_exists() {
    let map = map();
    let (paths, files) = (paths(&map), files());
    // Assets count only next to a source file.
    let is_asset = |path: &str| {
        let (folder, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        files.iter().any(|(place, file)| {
            place.rsplit_once('/').is_some_and(|(at, _)| at == folder)
                && file.with_file_name(name).exists()
        })
    };
    assert!(paths.contains("metrics.rs") && paths.len() > 30, "{paths:?}");
    let missing: Vec<_> = paths
        .into_iter()
        .filter(|path| {
            // The section on one request names files of `gateway/` without the folder.
            let places = [(*path).to_owned(), format!("gateway/{path}")];
            let known = places.iter().any(|place| {
                let folder = |file: &String| place.ends_with('/') && file.starts_with(place);
                files.contains_key(place) || files.keys().any(folder)
            });
            !known && !root().join(path).exists() && !is_asset(path)
        })
        .collect();
    assert!(missing.is_empty(), "src/lib.rs names what does not exist: {missing:?}");
}

#[test]
fn the_map_names_every_room_in_the_order_of_the_layers() {
    let map = map();
    let list: String = map.lines().take_while(|line| !line.starts_with("Only [")).collect();
    let named: Vec<&str> = list
        .split("[`")
        .skip(1)
        .filter_map(|rest| rest.split_once("`]").map(|(room, _)| room))
        .collect();
    let files = files();
    let declared: BTreeSet<&str> = files
        .keys()
        .map(|place| place.trim_end_matches(".rs").split('/').next().unwrap())
        .filter(|room| !["lib", "main"].contains(room) && !room.ends_with("_tests"))
        .collect();
    assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), declared);
    for pair in named.windows(2) {
        let (above, below) = (row(pair[0]).unwrap(), row(pair[1]).unwrap());
        assert!(
            above <= below,
            "`{}` stands below `{}`, and the layers say otherwise",
            pair[1],
            pair[0]
        );
    }
}
