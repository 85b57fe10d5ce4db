//! The JSON Schemas of both documents, which editors use: they have the keys, types, words and
//! ranges of the readers, and the texts of the references.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use rerouter::internals::config::{Problem, read_routing, read_server};
use serde_json::{Map, Value, json};

use crate::house::docs;
use crate::support::client::Tls;
use crate::support::command::run;
use crate::support::schema::{as_json, assert_valid, schema, schema_file, validate};

/// The problems of a document, where variables have this value.
type Reader = dyn Fn(&Value, &str) -> Vec<Problem>;

/// A document that a reader takes, with every key that its schema has.
struct Whole {
    name: &'static str,
    schema: Value,
    document: Value,
    read: Box<Reader>,
}

fn server(pem: &str) -> Whole {
    let document = json!({
        "listeners": [{
            "address": "127.0.0.1:8080", "tls": { "cert": "c.pem", "key": "k.pem" },
            "interfaces": ["pin", "agent", "router"],
        }],
        "public_url": "https://gw.example.com", "hosts": ["gw.example.com"],
        "trusted_proxies": ["10.0.0.0/8"], "threads": 2, "data_dir": "./data",
        "metrics": { "address": "127.0.0.1:9090", "hosts": ["metrics.example.com"] },
        "store": {
            "url": "postgres://u:p@db.example.com/d?sslmode=verify-full",
            "direct_url": "postgres://u:p@db.example.com/d", "lease": "10s",
            "on_lease_lost": "refuse",
        },
        "routing": {
            "file": "routing.yaml", "store": false, "env_allow": ["*_API_KEY"],
            "signal_headers": ["x-tier"],
        },
        "capture": {
            "enabled": true, "bodies": true, "encrypt": true, "client_opt_out": true,
            "max_body": "8MiB", "redact": ["secret"], "objects": "s3://bucket/folder",
            "retention": { "age": "7d", "size": "10GiB" },
        },
        "pin": { "registration": "open" }, "agent": { "call_untrusted": false }, "console": true,
        "session": { "idle": "30m", "absolute": "12h" },
        "limits": {
            "header_timeout": "10s", "body_min_rate": "1KiB/s", "request_body": "32MiB",
            "body_memory": "512MiB", "connections": 20_000, "connections_per_address": 5_000,
        },
        "nodes": { "ca": pem }, "egress": { "deny": ["0.0.0.0/8"] },
        "audit": { "retention": { "age": "400d", "rows": 1_000_000 } },
        "log": { "format": "auto" }, "access_log": { "format": "auto" },
        "telemetry": { "otlp": {
            "endpoint": "http://127.0.0.1:4318", "headers": { "x-token": "t" }, "sample": 0.5,
        } },
    });
    let read = |document: &Value, variable: &str| {
        let env = |_: &str| Some(variable.to_owned());
        read_server("s.yaml", &document.to_string(), &env).err().unwrap_or_default()
    };
    Whole { name: "server", schema: schema("server"), document, read: Box::new(read) }
}

fn routing(pem: &str) -> Whole {
    let document = json!({
        "timezone": "UTC", "prices": "shipped",
        "providers": {
            "far": {
                "protocol": "openai", "base_url": "https://far.example.com/v1",
                "api_key": "${FAR_API_KEY}", "headers": { "x-team": "blue" }, "ca": pem,
                "timeouts":
                    { "connect": "5s", "first_byte": "120s", "idle": "60s", "total": "600s" },
                "max_concurrency": 200, "health": { "path": "/v1/models", "interval": "30s" },
                "breaker": {
                    "consecutive": 5, "error_rate": "50%", "min_requests": 20, "window": "30s",
                    "open": "10s",
                },
                "endpoints": ["chat.completions"], "stream_usage": "auto", "http2": false,
            },
            "known": { "preset": "groq", "api_keys": ["${ONE_API_KEY}"] },
            "demo": { "protocol": "mock", "latency": "20ms" },
        },
        "models": { "demo/small": {
            "input_per_mtok": 0.25, "output_per_mtok": 2.5, "cached_input_per_mtok": 0.025,
            "context": 128_000, "capabilities": ["tools", "json"],
        } },
        "keywords": { "code": ["refactor"] },
        "recipes": {
            "balanced": {
                "rules": [
                    {
                        "name": "same", "when": "messages > 9", "strategy": "sticky",
                        "key": "user.id", "targets": [{ "target": "demo/large" }],
                    },
                    {
                        "name": "default", "strategy": "weighted",
                        "targets": [{ "target": "demo/small", "weight": 9 }],
                    },
                ],
                "retry":
                    { "attempts": 3, "on": ["connect", "timeout", 429, "5xx"], "budget": "20%" },
                "shadow": { "target": "demo/echo", "percent": 1 },
            },
        },
        "aliases": { "auto": "balanced" },
    });
    let settings = read_server("s.yaml", "", &|_| None).unwrap();
    let read = move |document: &Value, variable: &str| {
        // Two providers never have the same key.
        let env = |name: &str| Some(format!("{variable}-{name}"));
        let read = read_routing("r.yaml", &document.to_string(), &settings, &env, None);
        read.err().unwrap_or_default()
    };
    Whole { name: "routing", schema: schema("routing"), document, read: Box::new(read) }
}

/// A place of a document: its JSON pointer, and the pointer of its schema.
struct Place {
    value: String,
    schema: String,
}

/// Every place of a document, from the top down.
fn places(schema: &Value, at: Place, document: &Value, found: &mut Vec<Place>) {
    let below = |found: &mut Vec<Place>, key: &str, part: String, value: &Value| {
        let key = key.replace('~', "~0").replace('/', "~1");
        let place =
            Place { value: format!("{}/{key}", at.value), schema: at.schema.clone() + &part };
        places(schema, place, value, found);
    };
    let here = schema.pointer(&at.schema).unwrap();
    match document {
        Value::Object(members) => {
            for (key, value) in members {
                let own = here["properties"].get(key).is_some();
                let part =
                    if own { format!("/properties/{key}") } else { "/additionalProperties".into() };
                below(found, key, part, value);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                below(found, &index.to_string(), "/items".to_owned(), item);
            }
        }
        _ => {}
    }
    found.push(at);
}

/// The pointers of all places that a schema describes.
fn described(schema: &Value, pointer: &str, found: &mut BTreeSet<String>) {
    let here = schema.pointer(pointer).unwrap();
    found.insert(pointer.to_owned());
    for key in here["properties"].as_object().into_iter().flat_map(Map::keys) {
        described(schema, &format!("{pointer}/properties/{key}"), found);
    }
    for part in ["additionalProperties", "items"] {
        if here[part].is_object() {
            described(schema, &format!("{pointer}/{part}"), found);
        }
    }
}

/// The words of an enumeration.
fn words(schema: &Value) -> BTreeSet<String> {
    let list = schema["enum"].as_array().or_else(|| schema["anyOf"][0]["enum"].as_array());
    let word = |word: &Value| word.as_str().map_or_else(|| word.to_string(), str::to_owned);
    list.into_iter().flatten().filter(|word| !word.is_null()).map(word).collect()
}

/// What stands between backquotes, or after `known: `.
fn listed(text: &str) -> BTreeSet<String> {
    let list = text.strip_prefix("must be one of ").or_else(|| text.strip_prefix("known: "));
    let list = list.unwrap_or_else(|| panic!("no list: {text}"));
    list.split(", ").map(|word| word.trim_matches('`').to_owned()).collect()
}

/// Values of every kind, and those at the bounds of a range.
fn probes(schema: &Value) -> Vec<Value> {
    let mut probes = vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(7),
        json!(0.5),
        json!(-0.5),
        json!("no such word"),
        json!(""),
        json!("7"),
        json!("0s"),
        json!("30s"),
        json!("500 ms"),
        json!("30"),
        json!("8KiB"),
        json!("2 GiB"),
        json!("8KB"),
        json!("1KiB/s"),
        json!("1/s"),
        json!("0%"),
        json!("20%"),
        json!("100%"),
        json!("101%"),
        json!("1000%"),
        json!("1001%"),
        json!("%"),
        json!("5x"),
        json!("demo/m"),
        json!("demo"),
        json!("/health"),
        json!("127.0.0.1"),
        json!("127.0.0.1:1"),
        json!("[::1]:2"),
        json!("localhost:3"),
        json!("https://other.example.com"),
        json!("HTTP://other.example.com"),
        json!("ftp://other.example.com"),
        json!("sqlite"),
        json!("sqlite:x"),
        json!("postgresql://u@h/d"),
        json!("gs://bucket"),
        json!("az://container/folder"),
        json!("file:///folder"),
        json!("x-header"),
        json!([]),
        json!(["word"]),
        json!([7]),
        json!([null]),
        json!({}),
        json!({ "word": 7 }),
        json!({ "word": "text" }),
        json!({ "word": null }),
    ];
    probes.extend(words(schema).into_iter().map(Value::from));
    for bound in ["minimum", "maximum"].map(|bound| schema[bound].as_i64()).into_iter().flatten() {
        probes.extend([bound - 1, bound, bound + 1].map(Value::from));
    }
    probes
}

/// A document with a change, and what its reader says.
struct Case {
    document: Value,
    what: String,
    problems: Vec<Problem>,
    /// The reader may refuse what only it can see: the value of a variable.
    unseen: bool,
}

/// Whether a schema can find this, too.
fn is_of_shape(problem: &Problem) -> bool {
    let message = Regex::new(
        r"(?x) ^must\ be\ (.*,\ not\ | one\ of | from\ -?\d+\ to\ -?\d+$
           | a\ duration$ | a\ size$ | a\ rate$ | a\ share\ | an\ address\ and\ a\ port$)
        | ^must\ be\ positive$ | ^unknown\ key$ | is\ missing\ or\ empty$ | ^not\ supported",
    );
    let missing = Regex::new(
        "^`(rules|name|targets|target|percent|path|address|cert|key|protocol)` is missing$",
    );
    [message, missing].iter().any(|shape| shape.as_ref().unwrap().is_match(&problem.message))
}

impl Whole {
    fn places(&self) -> Vec<Place> {
        let mut found = Vec::new();
        let top = Place { value: String::new(), schema: String::new() };
        places(&self.schema, top, &self.document, &mut found);
        found
    }

    fn case(&self, what: String, variable: &str, change: impl FnOnce(&mut Value)) -> Case {
        let mut document = self.document.clone();
        change(&mut document);
        let problems = (self.read)(&document, variable);
        Case { document, what, problems, unseen: false }
    }

    /// Other values at each place, and keys too many or too few.
    fn cases(&self) -> Vec<Case> {
        let mut cases = vec![self.case("as it is".to_owned(), "v", |_| {})];
        assert_eq!(cases[0].problems, [], "{}", self.name);
        for Place { value, schema } in self.places() {
            let here = self.schema.pointer(&schema).unwrap();
            for probe in probes(here) {
                let what = format!("{value} is {probe}");
                cases.push(self.case(what, "v", |d| *d.pointer_mut(&value).unwrap() = probe));
            }
            let original = self.document.pointer(&value).unwrap();
            if self.name == "server" && !original.is_array() && !original.is_object() {
                let variable = original.as_str().map_or(original.to_string(), str::to_owned);
                for (variable, is_same) in [(variable.as_str(), true), ("v", false)] {
                    let probe = json!("${PROBE}");
                    let what = format!("{value} is {variable:?} of the environment");
                    let change = |d: &mut Value| *d.pointer_mut(&value).unwrap() = probe;
                    let case = self.case(what, variable, change);
                    let taken = is_same && !original.is_null();
                    assert!(!taken || case.problems.is_empty(), "{value}: {:?}", case.problems);
                    cases.push(Case { unseen: true, ..case });
                }
            }
            let members = original.as_object().into_iter().flat_map(Map::keys);
            for key in members {
                let change = |d: &mut Value| {
                    d.pointer_mut(&value).unwrap().as_object_mut().unwrap().remove(key).unwrap();
                };
                cases.push(self.case(format!("{value} without {key}"), "v", change));
            }
            if here["properties"].is_object() {
                cases.push(self.with_unknown_key(&value, here));
            }
        }
        cases
    }

    /// The reader lists the keys that it knows: those of the schema.
    fn with_unknown_key(&self, value: &str, schema: &Value) -> Case {
        let case = self.case(format!("{value} with an unknown key"), "v", |document| {
            document.pointer_mut(value).unwrap()["zzzzzzzz"] = json!(1);
        });
        let unknown = case.problems.iter().find(|problem| problem.message == "unknown key");
        let hint = unknown.and_then(|problem| problem.hint.clone());
        let known = listed(&hint.unwrap_or_else(|| panic!("{value}: {:?}", case.problems)));
        let own = schema["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(known, own, "{}: keys of {value}", self.name);
        case
    }
}

#[test]
fn schemas_and_readers_take_the_same_keys_types_words_and_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let _trust = Tls::make(dir.path());
    let pem = dir.path().join("ca.pem").to_str().unwrap().to_owned();
    for whole in [server(&pem), routing(&pem)] {
        let mut all = BTreeSet::new();
        described(&whole.schema, "", &mut all);
        let covered = whole.places().into_iter().map(|place| place.schema).collect();
        assert_eq!(all, covered, "{}: a key without an example here", whole.name);

        let cases = whole.cases();
        let judged = validate(&whole.schema, cases.iter().map(|case| &case.document));
        let (mut taken, mut refused) = (0, 0);
        for (Case { what, problems, unseen, .. }, wrong) in cases.iter().zip(judged) {
            let name = whole.name;
            if problems.is_empty() {
                taken += 1;
                assert!(wrong.is_empty(), "{name}: {what}: the reader takes it: {wrong:?}");
            } else if problems.iter().any(is_of_shape) && !unseen {
                refused += 1;
                assert!(!wrong.is_empty(), "{name}: {what}: the schema takes it: {problems:?}");
            }
        }
        assert!(taken > 300 && refused > 2_000, "{}: {taken} {refused}", whole.name);
        hold_words(&whole, &cases);
    }
}

/// Where the reader has a list of words, the schema has the same, and nowhere else.
fn hold_words(whole: &Whole, cases: &[Case]) {
    let word = json!("no such word");
    let by_what: BTreeMap<&str, &Case> =
        cases.iter().map(|case| (case.what.as_str(), case)).collect();
    let mut lists = 0;
    for Place { value, schema } in whole.places() {
        let case = by_what[format!("{value} is {word}").as_str()];
        let said = case.problems.iter().find(|found| found.message.starts_with("must be one of "));
        let read = said.map(|said| listed(&said.message)).unwrap_or_default();
        let own = words(whole.schema.pointer(&schema).unwrap());
        assert_eq!(own, read, "{}: words of {value}", whole.name);
        lists += usize::from(!own.is_empty());
    }
    assert!(lists >= 5, "{}: {lists} lists of words", whole.name);
}

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
        assert_eq!(printed, std::fs::read_to_string(schema_file(document)).unwrap());
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

/// A row of a reference: what a key is, and its default.
struct Row {
    default: String,
    text: String,
}

/// The rows of a reference by key. A heading that is a path stands before the keys of its table.
fn rows(page: &str) -> BTreeMap<String, Row> {
    let (link, word) =
        (Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap(), Regex::new("`([^`]+)`").unwrap());
    let (mut rows, mut section) = (BTreeMap::new(), String::new());
    for line in docs::read(page).lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = word.captures(heading).map_or(String::new(), |path| format!("{}.", &path[1]));
        }
        let Some(row) = line.strip_prefix("| `") else { continue };
        let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
        let text = link.replace_all(cells[cells.len() - 1], "$1").into_owned();
        let key_cell = format!("`{}", cells[0]);
        let keys: Vec<_> = word.captures_iter(&key_cell).map(|key| key[1].to_owned()).collect();
        let default = if cells.len() > 2 { cells[1] } else { "" };
        let each: Vec<&str> = default.split(", ").collect();
        for (at, key) in keys.iter().enumerate() {
            let default = if each.len() == keys.len() { each[at] } else { default };
            let row = Row { default: default.to_owned(), text: text.clone() };
            assert!(rows.insert(format!("{section}{key}"), row).is_none(), "{page}: {key} twice");
        }
    }
    rows
}

/// The path of a place in a reference, from the pointer of its schema.
fn path_of(pointer: &str, rows: &BTreeMap<String, Row>) -> String {
    let name = |path: &str| if path == "models" { "\"provider/model\"" } else { "NAME" };
    let mut path = String::new();
    for part in pointer.split('/').skip(1).filter(|part| *part != "properties") {
        match part {
            "items" => path.push_str("[]"),
            "additionalProperties" => path = format!("{path}.{}", name(&path)),
            key if path.is_empty() => path = key.to_owned(),
            key => path = format!("{path}.{key}"),
        }
    }
    // Of a list of values and of a map of texts, the row is that of the whole.
    let list = path.trim_end_matches("[]");
    let map = list.trim_end_matches(".NAME");
    let known = [&path, list, map].into_iter().find(|path| rows.contains_key(*path));
    known.unwrap_or(&path).to_owned()
}

#[test]
fn schemas_say_what_the_references_say() {
    for name in ["server", "routing"] {
        let (schema, rows) = (schema(name), rows(&format!("docs/reference/{name}-document.md")));
        let mut pointers = BTreeSet::new();
        described(&schema, "", &mut pointers);
        let mut used = BTreeSet::new();
        for pointer in pointers.iter().filter(|pointer| !pointer.is_empty()) {
            let here = schema.pointer(pointer).unwrap();
            let path = path_of(pointer, &rows);
            let Some(Row { default, text }) = rows.get(&path) else {
                let is_section = [here, &here["items"], &here["additionalProperties"]]
                    .iter()
                    .any(|section| section["properties"].is_object())
                    || here["additionalProperties"].is_object();
                assert!(is_section, "{name}: {path} is in no row");
                continue;
            };
            used.insert(path.clone());
            if !here["description"].is_string() {
                // The items of a list, whose description is that of the list.
                assert!(pointer.ends_with("/items") || pointer.ends_with("/additionalProperties"));
                continue;
            }
            let value = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
            let value = value.filter(|value| !value.contains('`'));
            let is_said =
                default.is_empty() || value.is_some() || ["–", "required"].contains(&&**default);
            let wanted = if is_said { text.clone() } else { format!("{text}; default: {default}") };
            assert_eq!(here["description"], json!(wanted), "{path}");
            let value = value.map(|value| as_json(&format!("value: {value}"))["value"].clone());
            assert_eq!(here.get("default"), value.as_ref(), "{path}");
        }
        let unused: Vec<_> = rows.keys().filter(|key| !used.contains(*key)).collect();
        assert_eq!(unused, Vec::<&String>::new(), "{name}: rows without a key");
    }
}

#[test]
fn every_section_and_value_is_described() {
    for name in ["server", "routing"] {
        let schema = schema(name);
        let mut pointers = BTreeSet::new();
        described(&schema, "", &mut pointers);
        for pointer in pointers
            .iter()
            .filter(|pointer| pointer.rsplit('/').nth(1).is_some_and(|part| part == "properties"))
        {
            let text = schema.pointer(pointer).unwrap()["description"].as_str();
            assert!(text.is_some_and(|text| !text.is_empty()), "{name}: {pointer}");
        }
    }
}

/// Where an editor finds the schema of a document that names one.
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
