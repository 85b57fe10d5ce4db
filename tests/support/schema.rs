//! The JSON Schemas of both documents, and a validator that is not of this repository.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rerouter::internals::config::{DocumentSource, read_foreign};
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The schema of the `server` or the `routing` document.
pub fn schema(document: &str) -> Value {
    let path = schema_file(document);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub fn schema_file(document: &str) -> PathBuf {
    root().join(format!("conf/schema/{document}.schema.json"))
}

/// YAML as the readers understand it.
pub fn as_json(text: &str) -> Value {
    let source = DocumentSource { file: "test".to_owned(), text: text.to_owned() };
    read_foreign(&source).unwrap()
}

/// What the schema finds wrong, for each document.
pub fn validate<'a>(
    schema: &'a Value,
    documents: impl IntoIterator<Item = &'a Value>,
) -> Vec<Vec<String>> {
    let python = root().join(".test/venv/bin/python");
    assert!(python.exists(), "./test installs the validator");
    let lines: String =
        std::iter::once(schema).chain(documents).map(|line| format!("{line}\n")).collect();
    let mut child = Command::new(python)
        .arg(root().join("tests/tools/schema_validator.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let count = lines.lines().count() - 1;
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let found: Vec<Vec<String>> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(found.len(), count, "an answer a document");
    found
}

/// Fails if the schema refuses a document that `check` takes.
pub fn assert_valid(document: &str, place: &str, text: &str) {
    let found = validate(&schema(document), [&as_json(text)]);
    assert_eq!(found, [Vec::<String>::new()], "{place}\n{text}");
}
