//! A schema accepts and refuses the same documents as the reader of the same table.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::diagnostics::Diagnostics;
use crate::expand::expand_tree;
use crate::field::Field;
use crate::kinds::*;
use crate::place::Located;
use crate::section;
use crate::table::{as_json, whole as whole_section};
use crate::tree::parse;

section! {
    struct Inner {
        /// A [link](page.md) and more.
        name: Located<String> = quotable(), required;
        /// A flag.
        on: bool = flag(), or true;
    }
}

section! {
    struct Sample: Default {
        /// A flag.
        flag: Option<bool> = flag();
        /// A whole number.
        whole: u32 = whole(1, 20), or 7;
        /// A number.
        number: Option<f64> = number();
        /// A share.
        share: f64 = number_in(0, 1, "for example `0.1`"), or 1.0;
        /// A part of a hundred.
        percent: Option<u16> = percent(1, 1000);
        /// A text.
        text: Option<String> = text();
        /// A path.
        path: PathBuf = path(), or PathBuf::from("./data");
        /// A word.
        word: u8 = words([("one", 1), ("two", 2)]), or 2;
        /// Any duration.
        any: Option<Duration> = duration();
        /// A duration.
        positive: Duration = positive_duration(), or Duration::from_secs(90);
        /// A size.
        size: usize = size(0, u64::MAX), or 8 << 20;
        /// A rate.
        rate: u64 = rate(), or 1 << 10;
        /// A list.
        list: Vec<String> = each(text(), 3), or vec!["a b".to_owned()];
        /// A list with something in it.
        some: Option<Vec<u8>> = some(words([("one", 1)]), 3, "is empty", "add one");
        /// A section.
        inner: Option<Inner> = inside();
        /// Sections by name.
        named: Vec<Inner> = entries(inside()), or Vec::new();
        /// Texts by name.
        pairs: Vec<(Located<String>, String)> = entries(keyed(text())), explicit;
    }
}

const PROBES: [&str; 46] = [
    "null",
    "true",
    "0",
    "1",
    "-1",
    "7",
    "20",
    "21",
    "0.5",
    "-0.5",
    "1.5",
    "x",
    "\"\"",
    "\"7\"",
    "\"0s\"",
    "30s",
    "500 ms",
    "\"30\"",
    "8KiB",
    "2 GiB",
    "8KB",
    "1KiB/s",
    "1/s",
    "0%",
    "20%",
    "1000%",
    "\"%\"",
    "5x",
    "one",
    "two",
    "\"one \"",
    "[]",
    "[word]",
    "[one]",
    "[7]",
    "[\"7\"]",
    "{}",
    "{ a: 7 }",
    "{ a: text }",
    "{ name: n }",
    "{ name: n, on: 3 }",
    "{ on: true }",
    "{ name: n, other: 1 }",
    "{ a: { name: n } }",
    "{ a: { on: true } }",
    "{ a: {} }",
];

/// The problems of a document, whose variables are expanded first.
fn problems(text: &str) -> Vec<crate::place::Finding> {
    let mut faults = Diagnostics::default();
    let lookup = |_: &str| Ok(Some("7".to_owned()));
    let tree = expand_tree(&parse(text).ok().unwrap().root, "", &lookup, &mut faults);
    let section = Field::root(&tree).section(&mut faults).unwrap();
    whole_section::<Sample>(section, &mut faults);
    faults.into()
}

#[test]
fn readers_and_schemas_agree() {
    let schema = schema::<Sample>("A sample", "For a test.", true);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let (mut taken, mut refused) = (0, 0);
    for row in Sample::rows() {
        for probe in PROBES {
            let pairs = if row.key == "pairs" { "" } else { "pairs: { a: b }\n" };
            let text = format!("{pairs}{}: {probe}\n", row.key);
            let found = problems(&text);
            // Schemas accept any text with variables, but some readers have narrower bounds.
            let beyond = |message: &str| message.starts_with("must be a share");
            let is_valid = validator.is_valid(&as_json(&text));
            if found.is_empty() || !found.iter().all(|found| beyond(&found.message)) {
                assert_eq!(is_valid, found.is_empty(), "{text}: {found:?}");
            }
            *(if is_valid { &mut taken } else { &mut refused }) += 1;
        }
    }
    assert!(taken > 100 && refused > 500, "{taken} {refused}");
    for (text, wanted) in [
        ("whole: \"${X}\"\npairs: { a: b }", true),
        ("flag: \"${X:-true}\"\npairs: { a: b }", true),
        ("word: \"${X}\"\npairs: { a: b }", true),
        ("rate: \"${X}/s\"\npairs: { a: b }", true),
        ("inner: \"${X}\"\npairs: { a: b }", false),
        ("whole: 1\npairs: { a: b }\nwhola: 1", false),
        ("whole: 1", false),
    ] {
        assert_eq!(validator.is_valid(&as_json(text)), wanted, "{text}");
    }
}

#[test]
fn rows_have_defaults_and_places() {
    let rows: Vec<String> = keys::<Sample>().iter().map(KeyEntry::row).collect();
    for row in [
        "| `whole` | `7` | A whole number. |",
        "| `positive` | `90s` | A duration. |",
        "| `size` | `8MiB` | A size. |",
        "| `rate` | `1KiB/s` | A rate. |",
        "| `path` | `./data` | A path. |",
        "| `list` | `[\"a b\"]` | A list. |",
        "| `inner.name` | required | A [link](page.md) and more. |",
        "| `named.NAME` | – | Sections by name. |",
        "| `pairs.NAME` | required | Texts by name. |",
    ] {
        assert!(rows.contains(&row.to_owned()), "{row}: {rows:#?}");
    }
    let text = schema_text(&schema::<Sample>("A sample", "For a test.", false));
    assert!(text.contains("\"A link and more.\""), "{text}");
    let Sample { flag, whole, number, share, percent, text, path, word, any, positive, .. } =
        Sample::default();
    assert_eq!((flag, whole, number, share), (None, 7, None, 1.0));
    assert_eq!((percent, text, path, word), (None, None, PathBuf::from("./data"), 2));
    assert_eq!((any, positive), (None, Duration::from_secs(90)));
    let Sample { size, rate, list, some, inner, named, pairs, .. } = Sample::default();
    assert_eq!((size, rate, list, some), (8 << 20, 1 << 10, vec!["a b".to_owned()], None));
    assert!(inner.is_none() && named.is_empty() && pairs.is_empty());
}

#[test]
fn sections_and_names_are_read_with_their_places() {
    let text = "inner: { name: n, on: false }\nnamed: { a: { name: b } }\npairs: { c: d }";
    let tree = parse(text).ok().unwrap().root;
    let mut faults = Diagnostics::default();
    let section = Field::root(&tree).section(&mut faults).unwrap();
    let sample: Sample = whole_section(section, &mut faults).unwrap();
    let Inner { name, on } = sample.inner.unwrap();
    assert_eq!((name.value.as_str(), name.path.as_str(), on), ("n", "inner.name", false));
    let Inner { name, on } = &sample.named[0];
    assert_eq!((name.value.as_str(), name.at.line, on), ("b", 2, &true));
    let (key, value) = &sample.pairs[0];
    assert_eq!((key.value.as_str(), key.path.as_str(), value.as_str()), ("c", "pairs.c", "d"));
    assert_eq!(faults.iter().count(), 0);
}
