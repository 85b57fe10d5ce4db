//! The JSON Schemas of both documents, which editors use. They and the readers of the documents
//! come from the same tables.

use regex::Regex;

use crate::house::docs;
use crate::support::command::run;
use crate::support::schema::{assert_valid, schema_file};

#[test]
fn documents_of_the_pages_and_packages_are_valid() {
    for (place, is_routing, text) in docs::documents() {
        assert_valid(if is_routing { "routing" } else { "server" }, &place, &text);
    }
    for (document, file) in [
        ("server", "conf/rerouter.yaml"),
        ("server", "conf/production/rerouter.yaml"),
        ("server", "packaging/deb/rerouter.yaml"),
        ("server", "packaging/container/rerouter.yaml"),
        ("routing", "conf/routing.yaml"),
        ("routing", "conf/production/routing.yaml"),
    ] {
        assert_valid(document, file, &docs::read(file));
    }
}

#[tokio::test]
async fn the_command_prints_them_and_init_writes_valid_documents() {
    let dir = tempfile::tempdir().unwrap();
    for document in ["server", "routing"] {
        let printed = run(dir.path(), &["config", "schema", document], &[]).await.well();
        let file = schema_file(document);
        let kept = std::fs::read_to_string(&file).unwrap();
        assert!(printed == kept, "{}: put there what the command prints", file.display());
    }
    let names = ["openai", "anthropic", "gemini", "mistral", "groq", "openrouter", "ollama"];
    let mut init = vec!["init", "--dir", "."];
    init.extend(names.iter().flat_map(|name| ["--provider", name]));
    run(dir.path(), &init, &[]).await.well();
    for (document, file) in [("server", "rerouter.yaml"), ("routing", "routing.yaml")] {
        let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
        assert_valid(document, file, &text);
    }
}

/// A comment in a document tells editors where its schema is.
#[test]
fn documents_name_schemas_that_are_there() {
    let line = Regex::new(r"(?m)^# yaml-language-server: \$schema=(\S+)$").unwrap();
    for (file, document) in [
        ("conf/rerouter.yaml", "server"),
        ("conf/production/rerouter.yaml", "server"),
        ("conf/routing.yaml", "routing"),
        ("conf/production/routing.yaml", "routing"),
    ] {
        let text = docs::read(file);
        let named = &line.captures(&text).unwrap_or_else(|| panic!("{file} names no schema"))[1];
        let path =
            schema_file(document).parent().unwrap().parent().unwrap().parent().unwrap().join(file);
        let there = path.parent().unwrap().join(named).canonicalize().unwrap();
        assert_eq!(there, schema_file(document), "{file}");
    }
}
