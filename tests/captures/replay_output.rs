//! Output of `rerouter replay` that cannot be written, that nobody reads any more, or that is too
//! wide for a terminal.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::captures::replay_cli::{run, scene};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

/// A shell that runs `rerouter replay`, so that its output can be redirected.
fn shell(dir: &Path, url: &str, key: &str, rest: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{} replay {rest}", env!("CARGO_BIN_EXE_rerouter"))])
        .current_dir(dir)
        .env_clear();
    command
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("REROUTER_URL", url)
        .env("REROUTER_API_KEY", key);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test]
async fn what_cannot_be_written_is_told() {
    let scene = scene().await;
    let id = scene.ask("Say a word.").await;
    scene.write("good.yaml", &scene.text);
    let url = format!("http://{}", scene.gateway.host());
    for rest in [
        "list --json >/dev/full",
        "list >/dev/full",
        &format!("show {id} >/dev/full"),
        &format!("show {id} --json >/dev/full"),
        &format!("reroute --dry-run {id} >/dev/full"),
        "export >/dev/full",
        "evaluate --document good.yaml --junit out.xml >/dev/full",
    ] {
        let mut command = shell(scene.gateway.dir(), &url, &scene.gateway.admin_key, rest);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{rest}: {error}");
        assert!(error.lines().any(|line| line.starts_with("standard output: ")), "{rest}: {error}");
    }
    assert!(
        scene.gateway.dir().join("out.xml").exists(),
        "the other files are written all the same"
    );
    // A broken bound has its exit code, even if the report cannot be written.
    let rest = "evaluate --document good.yaml --until 1h --max-changed 2% >/dev/full";
    let mut command = shell(scene.gateway.dir(), &url, &scene.gateway.admin_key, rest);
    assert_eq!(
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap().status.code(),
        Some(1)
    );
}

/// A gateway with an endless list of captures.
#[tokio::test]
async fn who_reads_the_beginning_only_ends_it_without_a_word() {
    let page = json!({
        "data": [{ "id": "req_00000000000000000000000000" }],
        "next": "req_00000000000000000000000000"
    });
    let gateway = Provider::start(move |_, _| scripted::json_answer(200, &page)).await;
    let (dir, url) = (tempfile::tempdir().unwrap(), format!("http://{}", gateway.address()));
    let mut child = shell(dir.path(), &url, "k", "list --json --limit 1000000000").spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let first = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line
    });
    let first = first.await.unwrap();
    assert!(first.starts_with("{\"id\":"), "{first}");
    let status =
        until("the command to end", || std::future::ready(child.try_wait().unwrap())).await;
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!((status.code(), error.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn an_export_that_breaks_off_leaves_the_corpus_before_as_it_was() {
    let scene = scene().await;
    for n in 0..3 {
        scene.ask(&format!("Say {n}.")).await;
    }
    let dir = scene.gateway.dir();
    let path = dir.join("corpus.jsonl");
    std::fs::write(&path, "before").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let export = ["export", "--out", "corpus.jsonl"];
    // A refused export leaves the old file as it is.
    scene
        .replay(&[&export[..], &["--key", "rtr_not-a-key"]].concat())
        .await
        .partly(3, "0 captures, then the export failed\n");
    let parts = || -> Vec<_> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "part")).collect()
    };
    assert_eq!((read(&path).as_deref(), parts().len()), (Some("before"), 0));
    let lines: Vec<String> =
        scene.replay(&["export"]).await.well().lines().map(str::to_owned).collect();
    // A gateway that disconnects after two captures.
    let (left, kept) = (Arc::new(AtomicBool::new(true)), lines.clone());
    let ids: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone())
        .collect();
    let leaves = Arc::clone(&left);
    let gateway = Provider::start(move |request, _| {
        let named = |id: &Value| request.target.ends_with(id.as_str().unwrap());
        match ids.iter().position(named) {
            None => {
                let data: Vec<Value> = ids.iter().map(|id| json!({ "id": id })).collect();
                scripted::json_answer(200, &json!({ "data": data, "next": null }))
            }
            Some(2) if leaves.load(Ordering::Acquire) => {
                scripted::json_answer(503, &json!({ "error": "unavailable" }))
            }
            Some(at) => {
                scripted::answer(200, &[("content-type", "application/json")], kept[at].as_bytes())
            }
        }
    })
    .await;
    let url = format!("http://{}", gateway.address());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", "k")];
    let broken = run(dir, &export, &environment).await;
    broken.partly(3, "2 captures, then the export failed; they are in ");
    let both = format!("{}\n{}\n", lines[0], lines[1]);
    let [part] = &parts()[..] else { panic!("not one draft: {:?}", parts()) };
    assert_eq!((read(&path).as_deref(), read(part)), (Some("before"), Some(both)));
    left.store(false, Ordering::Release);
    run(dir, &export, &environment).await.well();
    assert_eq!(read(&path), Some(lines.iter().map(|line| format!("{line}\n")).collect()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Runs it on a terminal with this many columns, which `script` makes.
async fn on_a_terminal(dir: &Path, url: &str, key: &str, columns: usize, rest: &str) -> String {
    let told = format!("stty cols {columns} && {} {rest}", env!("CARGO_BIN_EXE_rerouter"));
    let mut command = Command::new("script");
    command.args(["-qec", &told, "/dev/null"]).current_dir(dir).stdin(Stdio::null());
    // No colour codes, which would count as text.
    command.env("REROUTER_URL", url).env("REROUTER_API_KEY", key).env("NO_COLOR", "1");
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .expect("the command `script` (of bsdutils)");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}");
    shown
}

#[tokio::test]
async fn a_table_is_as_wide_as_its_terminal_and_an_export_says_how_far_it_is() {
    let scene = scene().await;
    let id = scene.ask("Say a word.").await;
    scene.ask("Say two.").await;
    let url = format!("http://{}", scene.gateway.host());
    let shown = async |columns, rest| {
        let rest = format!("replay {rest}");
        on_a_terminal(scene.gateway.dir(), &url, &scene.gateway.admin_key, columns, &rest).await
    };
    for columns in [60, 80, 120] {
        let (dir, key) = (scene.gateway.dir(), &scene.gateway.admin_key);
        let logs = on_a_terminal(dir, &url, key, columns, "logs").await;
        let mut lines = logs.lines().filter(|line| !line.starts_with("(no room for"));
        assert!(lines.all(|line| line.trim_end().chars().count() <= columns), "{logs}");
        assert!(logs.contains("no room for") && logs.contains(&id), "{logs}");
        assert_eq!(logs.contains("$0."), columns >= 80, "{logs}");
        assert_eq!(logs.contains("  main.default  "), columns == 120, "{logs}");
    }
    let narrow = shown(80, "list").await;
    assert!(narrow.lines().all(|line| line.trim_end().chars().count() <= 80), "{narrow}");
    for word in ["TIME (UTC)", &id, "STATUS", "SERVED BY", "COST", "$0.", "no room for", "RULE"] {
        assert!(narrow.contains(word), "no {word} in {narrow}");
    }
    scene.write(
        "candidate.yaml",
        &scene
            .text
            .replace("name: default", "name: a-rule-with-a-name-that-takes-some-room")
            .replace("{ target: p/small }, ", ""),
    );
    let why = "rule main.a-rule-with-a-name-that-takes-some-room instead of \
        main.default: main.default is gone";
    let wide = shown(140, "evaluate --document candidate.yaml").await;
    assert!(wide.contains(why), "a reason is cut although there is room: {wide}");
    let narrow = shown(80, "evaluate --document candidate.yaml").await;
    assert!(
        !narrow.contains(why)
            && narrow.lines().filter(|line| line.contains("p/large")).all(|line| line
                .trim_end()
                .chars()
                .count()
                <= 80),
        "{narrow}"
    );
    let wide = shown(200, "list").await;
    assert!(wide.contains("main.default") && !wide.contains("no room for"), "{wide}");
    // The number of captures is unknown, so there is no percentage.
    for export in [
        "export --out a.jsonl",
        "export --since 24h --out a.jsonl",
        "export --limit 1000 --out a.jsonl",
    ] {
        let told = shown(100, export).await;
        assert!(
            !told.contains(" %")
                && told.contains("2 captures, ")
                && told.contains("/s, back to 20"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn usage_keeps_what_it_is_of_and_its_cost_on_a_narrow_terminal() {
    let scene = scene().await;
    scene.ask("Say a word.").await;
    let url = format!("http://{}", scene.gateway.host());
    // The widths that a table needs for the columns that are never cut.
    for (by, least) in [("model", 28), ("key", 51), ("key,model,day", 72)] {
        for columns in [40, 60, 80, 120] {
            let (dir, key) = (scene.gateway.dir(), &scene.gateway.admin_key);
            let rest = format!("usage --by {by}");
            let told = on_a_terminal(dir, &url, key, columns, &rest).await;
            let (rows, no_room): (Vec<&str>, Vec<&str>) =
                told.lines().partition(|line| !line.starts_with("(no room for"));
            let [titles, row] = rows[..] else { panic!("{columns}: {told}") };
            for (by, value) in [("key", scene.key.id.as_str()), ("model", "p/small")] {
                assert!(!told.contains(&by.to_uppercase()) || row.contains(value), "{told}");
            }
            assert!(titles.contains("REQUESTS") && titles.contains("COST"), "{told}");
            let cost = row.split_whitespace().find(|word| word.starts_with("$0.")).unwrap();
            assert!(cost.len() == "$0.000000".len() && !row.contains('…'), "{told}");
            let is_fitted = rows.iter().all(|line| line.trim_end().chars().count() <= columns);
            assert_eq!(is_fitted, columns >= least, "{columns}: {told}");
            assert_eq!(no_room.is_empty(), titles.contains("REPLAYS"), "{columns}: {told}");
            let whole = if by == "model" { 80 } else { 120 };
            let has_room = columns >= whole && by != "key,model,day";
            assert_eq!(no_room.is_empty(), has_room, "{columns}: {told}");
        }
    }
    let (dir, key) = (scene.gateway.dir(), &scene.gateway.admin_key);
    let told = on_a_terminal(dir, &url, key, 60, "usage --by key").await;
    assert!(told.contains("(no room for FAILED, REFUSED, PROMPT, COMPLETION, REPLAYS"), "{told}");
}
