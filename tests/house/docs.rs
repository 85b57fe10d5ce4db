//! README and docs: each block of commands, code or configuration is run or checked unchanged, or a
//! comment before it says why not. The reference pages are complete.
//!
//! The line before a block may be a comment:
//!
//! | comment | meaning |
//! |---|---|
//! | `<!-- not run: REASON -->` | left out |
//! | `<!-- run by TEST -->` | a test of this file or of `translation/agents.rs` runs it |
//! | `<!-- run last -->` | run after the page's other blocks |
//! | `<!-- routing document -->`, `<!-- server document -->` | checked by `rerouter check` |
//! | `<!-- output -->` | lines that the block before prints, in order; numbers and ids may differ |

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use regex::Regex;
use rerouter::internals::config;
use serde_json::{Value, json};

use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

/// Languages whose blocks are run or checked.
const CHECKED: [&str; 7] = ["sh", "python", "js", "yaml", "json", "ini", "console"];

pub(crate) struct Block {
    line: usize,
    pub(crate) language: String,
    /// The comment before the block, without its marks.
    pub(crate) note: String,
    pub(crate) text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// README, SECURITY and every page below docs/.
fn pages() -> Vec<String> {
    let mut found = vec!["README.md".to_owned(), "SECURITY.md".to_owned()];
    let mut directories = vec!["docs".to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(root().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{directory}/{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => directories.push(path),
                false if path.ends_with(".md") => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let (mut found, mut open, mut before) = (Vec::new(), None::<Block>, String::new());
    for (at, line) in read(page).lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => block.text.extend([line, "\n"]),
            (None, Some(language)) => {
                let note = before.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
                open = Some(Block {
                    line: at + 1,
                    language: language.to_owned(),
                    note: note.unwrap_or("").to_owned(),
                    text: String::new(),
                });
            }
            (None, None) => {}
        }
        before = line.to_owned();
    }
    assert!(open.is_none(), "{page}: a block has no end");
    found
}

#[test]
fn every_block_is_run_or_checked_or_says_why_not() {
    let own = read("tests/house/docs.rs") + &read("tests/translation/agents.rs");
    for page in pages() {
        for Block { line, language, note, .. } in blocks(&page) {
            let place = format!("{page}:{line}");
            assert!(!language.is_empty(), "{place}: a block names its language");
            let left_out = note.strip_prefix("not run: ").is_some_and(|why| why.len() > 10);
            let by_test = note
                .strip_prefix("run by ")
                .is_some_and(|name| own.contains(&format!("async fn {name}(")));
            let fits = match language.as_str() {
                "sh" => RUN.contains(&page.as_str()) && ["", "run last"].contains(&note.as_str()),
                "python" | "js" => RUN.contains(&page.as_str()) && note.is_empty(),
                "yaml" => ["routing document", "server document"].contains(&note.as_str()),
                "json" => note.is_empty(),
                language => !CHECKED.contains(&language),
            };
            assert!(left_out || by_test || fits, "{place}: {language} with the comment {note:?}");
        }
    }
}

/// The documents in the pages: their place, whether they are routing documents, and their text. A
/// document that a page shows only in part is completed.
pub(crate) fn documents() -> Vec<(String, bool, String)> {
    let mut found = Vec::new();
    for page in pages() {
        for block in blocks(&page) {
            let is_routing = block.note == "routing document";
            if !is_routing && block.note != "server document" {
                continue;
            }
            let mut text = block.text;
            for part in ["recipes", "aliases"].into_iter().filter(|_| is_routing) {
                if !text.lines().any(|line| line.starts_with(&format!("{part}:"))) {
                    text.push_str(&format!("{part}: {{}}\n"));
                }
            }
            found.push((format!("{page}:{}", block.line), is_routing, text));
        }
    }
    found
}

#[test]
fn json_is_json_and_documents_are_good() {
    let scratch = tempfile::tempdir().unwrap();
    let (server, routing) = (scratch.path().join("s.yaml"), scratch.path().join("r.yaml"));
    for page in pages() {
        for block in blocks(&page).into_iter().filter(|block| block.language == "json") {
            let read = serde_json::from_str::<Value>(&block.text);
            read.unwrap_or_else(|error| panic!("{page}:{}: {error}", block.line));
        }
    }
    let documents = documents();
    assert!(documents.len() >= 8, "{}", documents.len());
    for (place, is_routing, text) in documents {
        std::fs::write(&server, if is_routing { "{}" } else { &text }).unwrap();
        let fallback = "recipes: {}\naliases: {}\n";
        std::fs::write(&routing, if is_routing { &text } else { fallback }).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_rerouter"))
            .args(["check", "--no-env", "--config"])
            .args([&server, Path::new("--routing"), &routing])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{place}: {told}");
    }
}

/// Declares a test for each page whose commands are run.
macro_rules! run {
    ($($name:ident $page:literal)*) => {
        const RUN: &[&str] = &[$($page),*, "docs/nodes.md"];
        $(#[tokio::test]
        async fn $name() {
            run_page($page).await;
        })*
    };
}

run! {
    the_readme_runs "README.md"
    getting_started_runs "docs/getting-started.md"
    clients_run "docs/clients.md"
    routing_runs "docs/routing.md"
    the_cookbook_runs "docs/cookbook.md"
    agents_run "docs/agents.md"
    coming_from_litellm_runs "docs/from-litellm.md"
    replay_runs "docs/replay.md"
    the_gate_runs "docs/ci-gate.md"
    access_runs "docs/access.md"
    limits_run "docs/limits.md"
    configuration_runs "docs/operate/configuration.md"
    backup_runs "docs/operate/backup.md"
    the_master_key_runs "docs/operate/master-key.md"
    metrics_run "docs/operate/metrics.md"
    the_audit_runs "docs/operate/audit.md"
}

/// Runs the blocks of a page in order, in one directory, with one gateway on conf/routing.yaml.
async fn run_page(page: &str) {
    let gateway = Setup::new(&read("conf/routing.yaml")).start().await;
    let key = gateway.create_key().await;
    let scratch = gateway.dir().join("page");
    std::fs::create_dir(&scratch).unwrap();
    std::os::unix::fs::symlink(root().join("tests/sdk/node_modules"), scratch.join("node_modules"))
        .unwrap();
    let mut blocks = blocks(page);
    let left_out = |note: &str| note.starts_with("not run") || note.starts_with("run by");
    blocks.retain(|block| !left_out(&block.note));
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|at| blocks[*at].note == "run last");
    let mut script = String::new();
    for at in order {
        let Block { language, text, .. } = &blocks[at];
        let text = here(text, &gateway);
        let file =
            scratch.join(format!("block-{at}.{}", if language == "js" { "mjs" } else { "py" }));
        let run = match language.as_str() {
            "sh" => text,
            "python" => python(&file, &text),
            "js" => {
                std::fs::write(&file, text).unwrap();
                format!("node {}\n", file.display())
            }
            _ => continue,
        };
        script.push_str(&format!("printf '\\n@@ {at}\\n'\n{run}"));
    }
    let mut shell = shell(&["timeout", "300", "bash"], &script, &gateway, &scratch);
    shell.env("KEY", &key.secret);
    let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{page}:\n{printed}\n{errors}");
    for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.note == "output") {
        let of = (0..at).rev().find(|at| blocks[*at].language == "sh").expect("commands before it");
        check_output(&format!("{page}:{}", block.line), &block.text, section(&printed, of));
    }
}

/// A page's text with its addresses and files replaced by the gateway's.
fn here(text: &str, gateway: &Gateway) -> String {
    let file = |name: &str| gateway.dir().join(name).display().to_string();
    text.replace("127.0.0.1:8080", &gateway.host())
        .replace("127.0.0.1:9090", &gateway.metrics_address().to_string())
        .replace("conf/routing.yaml", &file("routing.yaml"))
        .replace("conf/rerouter.yaml", &file("rerouter.yaml"))
}

fn python(file: &Path, text: &str) -> String {
    let program = root().join(".test/venv/bin/python");
    assert!(program.exists(), "./test installs the SDKs");
    std::fs::write(file, text).unwrap();
    format!("{} {}\n", program.display(), file.display())
}

fn shell(program: &[&str], script: &str, gateway: &Gateway, directory: &Path) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_rerouter")).parent().unwrap().display();
    let mut shell = Command::new(program[0]);
    shell
        .args(&program[1..])
        .args(["-euo", "pipefail", "-c", script])
        .env("ADMIN_API_KEY", &gateway.admin_key)
        .env("REROUTER_URL", format!("http://{}", gateway.host()))
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(directory)
        .stdin(Stdio::null());
    shell
}

/// The output of one block.
fn section(printed: &str, block: usize) -> &str {
    let rest = printed.split_once(&format!("\n@@ {block}\n")).expect("the block ran").1;
    rest.split_once("\n@@ ").map_or(rest, |(section, _)| section)
}

/// Asserts that `printed` has the lines of `expected` in this order, regardless of numbers and ids.
/// A line `…` matches any lines.
fn check_output(place: &str, expected: &str, printed: &str) {
    let mut lines = printed.lines();
    for line in expected.lines().filter(|line| *line != "…" && !line.trim().is_empty()) {
        let wanted = masked(line);
        assert!(
            lines.any(|line| masked(line) == wanted),
            "{place}: no line\n{line}\nin\n{printed}"
        );
    }
}

/// A line without parts that differ between runs: ids, revisions, numbers, widths of columns.
fn masked(line: &str) -> String {
    static VARYING: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[a-z]+_[0-9a-z]{26}|\b[0-9a-f]{12}\b|[0-9]+|\s+").unwrap());
    let masked = VARYING.replace_all(line.trim(), |found: &regex::Captures<'_>| {
        if found[0].trim().is_empty() { " " } else { "0" }.to_owned()
    });
    masked.into_owned()
}

/// A process that is killed when the value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn two_commands_make_a_node_of_a_server() {
    let server = Provider::start(|request, _| match request.target.as_str() {
        "/v1/models" => scripted::json_answer(
            200,
            &json!({"object": "list", "data": [{"id": "qwen3:8b", "object": "model"}]}),
        ),
        "/v1/chat/completions" => scripted::completion("from the desk"),
        _ => scripted::failure(404, "no such page"),
    })
    .await;
    let page = blocks("docs/nodes.md");
    let text = |language: &str| {
        let found: Vec<&Block> = page.iter().filter(|block| block.language == language).collect();
        let [block] = found[..] else { panic!("one block of {language}") };
        block.text.clone()
    };
    let gateway = Setup::new(&format!("providers: {{}}\n{}", text("yaml"))).start().await;
    let key = gateway.create_key().await;
    let script = here(&text("sh"), &gateway)
        .replace("127.0.0.1:11434", &server.address().to_string())
        // `exec` replaces the shell, so that killing the shell's process ends the node.
        .replace("\nrerouter node ", "\nexec rerouter node ");
    let scratch = tempfile::tempdir().unwrap();
    let mut shell = shell(&["bash"], &script, &gateway, scratch.path());
    let _running = Running(shell.stdout(Stdio::null()).spawn().unwrap());
    until("the node to serve", async || {
        let answer = gateway.chat(&key, chat_body("own", false).as_bytes()).await;
        (answer.status == 200 && answer.text().contains("from the desk")).then_some(())
    })
    .await;
}

#[test]
fn the_readme_is_of_one_sitting() {
    let text = read("README.md");
    let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    assert!(text.lines().count() <= 150, "{} lines", text.lines().count());
    assert!(words <= 1_000, "{words} words");
}

#[test]
fn lines_are_short_and_links_lead_somewhere() {
    let link = Regex::new(r"\]\(([^)#]*)(#[^)]*)?\)").unwrap();
    for page in pages() {
        let text = read(&page);
        for (at, line) in text.lines().enumerate() {
            // The page of examples is JSON, whose strings cannot be broken into lines.
            let is_table = line.starts_with('|') || page.ends_with("/api-examples.md");
            let width = line.chars().count();
            assert!(is_table || width <= 100, "{page}:{}: {width} columns", at + 1);
        }
        let directory = root().join(&page).parent().unwrap().to_owned();
        for found in link.captures_iter(&text) {
            let (target, anchor) = (&found[1], found.get(2).map_or("", |anchor| anchor.as_str()));
            if target.contains("://") {
                continue;
            }
            let path = if target.is_empty() { root().join(&page) } else { directory.join(target) };
            assert!(path.exists(), "{page}: {target} is not there");
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&path).unwrap();
                let is_there = text.lines().any(|line| anchor_of(line).as_deref() == Some(anchor));
                assert!(is_there, "{page}: {target}{anchor} is not there");
            }
        }
    }
}

/// The anchor of a heading.
fn anchor_of(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim().to_lowercase();
    let letters = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(format!("#{}", letters.collect::<String>().replace(' ', "-")))
}

#[test]
fn every_page_is_in_the_index() {
    let index = read("docs/index.md");
    for page in pages() {
        let Some(path) = page.strip_prefix("docs/").filter(|path| *path != "index.md") else {
            continue;
        };
        assert!(index.contains(&format!("({path})")), "{page} is not in docs/index.md");
    }
}

#[test]
fn the_debian_package_has_every_page() {
    let manifest = read("Cargo.toml");
    for page in pages().iter().filter(|page| page.starts_with("docs/")) {
        let folder = page.rsplit_once('/').unwrap().0;
        let asset = format!("[\"{folder}/*.md\", \"usr/share/doc/rerouter/{folder}/\", \"644\"]");
        assert!(manifest.contains(&asset), "Cargo.toml lacks the asset {asset}");
    }
}

/// Asserts that a page names exactly what exists.
fn same(page: &str, there: &BTreeSet<String>, named: &BTreeSet<String>) {
    let missing: Vec<_> = there.difference(named).collect();
    let unknown: Vec<_> = named.difference(there).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "{page} lacks {missing:?}, has {unknown:?}");
}

#[test]
fn the_references_of_documents_have_every_key() {
    let server = [("keys", config::server_keys())];
    let server = server.into_iter().map(|table| ("docs/reference/server-document.md", table));
    let routing = config::routing_keys().into_iter();
    let routing = routing.map(|table| ("docs/reference/routing-document.md", table));
    for (page, (what, keys)) in server.chain(routing) {
        let rows: Vec<String> = keys.iter().map(|key| key.row()).collect();
        hold_table(page, what, &rows);
    }
}

/// Asserts that the table between the comments `<!-- table of WHAT -->` and `<!-- end of the table
/// -->` has the rows of the code. Also prints the rows, for `--nocapture`.
#[allow(clippy::print_stderr)]
fn hold_table(page: &str, what: &str, rows: &[String]) {
    eprintln!("{}", rows.join("\n"));
    let text = read(page);
    let table = text.split(&format!("<!-- table of {what} -->")).nth(1).expect("a table");
    let table = table.split("<!-- end of the table -->").next().unwrap();
    let written: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert_eq!(written, rows, "{page}: put the printed table of {what} there");
}

#[test]
fn the_reference_of_metrics_has_every_metric() {
    let metrics = rerouter::internals::metrics::Metrics::new().unwrap();
    let row = |row: &rerouter::internals::metrics::MetricRow| {
        let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |", row.name, row.kind, labels.join(", "), row.help)
            .replace("|  |", "| |")
    };
    let rows: Vec<String> = metrics.rows().iter().map(row).collect();
    hold_table("docs/reference/metrics.md", "metrics", &rows);
}

#[test]
fn the_reference_of_logs_has_every_field() {
    use rerouter::internals::log::{ACCESS_FIELDS, DIAGNOSTIC_FIELDS};
    for (what, fields) in [("access lines", ACCESS_FIELDS), ("diagnostics", DIAGNOSTIC_FIELDS)] {
        let row = |(name, about): &(&str, &str)| format!("| `{name}` | {about} |");
        let rows: Vec<String> = fields.iter().map(row).collect();
        hold_table("docs/reference/log.md", what, &rows);
    }
}

#[test]
fn the_reference_of_translation_has_the_table_of_features() {
    use rerouter::internals::dialect::Dialect;
    use rerouter::internals::dialect::feature::Feature;
    use rerouter::internals::dialect::neutral::Lost;
    let row = |feature: &Feature| {
        let fates = Dialect::TRANSLATED.map(|dialect| feature.fate(dialect).as_str());
        format!("| {} | {} | {} |", feature.title(), fates.join(" | "), feature.remark())
            .replace("|  |", "| |")
    };
    let rows: Vec<String> = Feature::ALL.iter().map(row).collect();
    hold_table("docs/reference/translation.md", "features", &rows);
    let row = |lost: &Lost| format!("| `{}` | {} |", lost.word(), lost.about());
    let rows: Vec<String> = Lost::ALL.iter().map(row).collect();
    hold_table("docs/reference/translation.md", "lost parts", &rows);
}

#[test]
fn the_reference_of_errors_has_every_word() {
    let page = read("docs/reference/errors.md");
    let row = Regex::new(r#"=>\s+(?:same)?\(([0-9]{3}), "([a-z_]+)""#).unwrap();
    let source = read("crates/base/src/error.rs");
    let rows: Vec<_> = row.captures_iter(&source).collect();
    assert!(rows.len() > 25, "{}", rows.len());
    for found in rows {
        let (status, word) = (&found[1], &found[2]);
        let is_there = page.lines().any(|line| {
            line.starts_with(&format!("| {status} |")) && line.contains(&format!("`{word}`"))
        });
        assert!(is_there, "docs/reference/errors.md lacks {status} {word}");
    }
}

#[test]
fn the_reference_of_the_api_has_every_route() {
    let output = Command::new(env!("CARGO_BIN_EXE_rerouter")).arg("openapi").output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = read("docs/reference/api.md");
    // Joins the lines of a paragraph.
    let page: Vec<String> = page.replace("\n`", " `").lines().map(str::to_owned).collect();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|key| key.as_str() != "parameters")
        {
            let method = method.to_uppercase();
            let is_there = page.iter().any(|line| {
                line.contains(&format!("`{path}`")) && line.contains(&format!("`{method}`"))
            });
            assert!(is_there, "docs/reference/api.md lacks {method} {path}");
        }
    }
}

/// Every option in a command's `--help`.
fn options(command: &str) -> BTreeSet<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_rerouter"))
        .args(command.split(' '))
        .arg("--help")
        .output()
        .unwrap();
    options_in(&String::from_utf8(help.stdout).unwrap())
}

fn options_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
    let is_option = |word: &&str| word.starts_with("--") && word.len() > 3 && *word != "--help";
    words.filter(is_option).map(str::to_owned).collect()
}

/// `rerouter man --markdown` makes the page.
#[test]
fn the_reference_of_the_command_line_is_what_the_program_says() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_rerouter")).args(["man", "--markdown"]).output().unwrap();
    let made = String::from_utf8(output.stdout).unwrap();
    let page = read("docs/reference/cli.md");
    let (_, written) = page.split_once("<!-- commands: rerouter man --markdown -->\n").unwrap();
    assert_eq!(written, made, "docs/reference/cli.md: put what the command prints there");
    let node = read("docs/nodes.md");
    let table = node.split("\n## Options\n").nth(1).unwrap().split("\n## ").next().unwrap();
    same("docs/nodes.md", &options("node"), &options_in(table));
}
