//! The commands that are clients of a gateway, against a real one: what they print, ask, refuse and
//! never show.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::replay_cli::scene;
use crate::support::command::{Ran, run, run_with};
use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::{PATIENCE, until};

const ROUTING: &str = "providers:\n  demo: { protocol: mock }\nmodels:\n  \
    demo/echo: { input_per_mtok: 0, output_per_mtok: 0 }\nrecipes:\n  \
    main:\n    rules: [ { name: default, targets: [ { target: demo/echo } ] } ]\n\
    aliases: { auto: main }\n";

/// A command with the admin's key.
async fn admin(gateway: &Gateway, arguments: &[&str]) -> Ran {
    let url = format!("http://{}", gateway.host());
    let environment =
        [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", gateway.admin_key.as_str())];
    run(gateway.dir(), arguments, &environment).await
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line.trim()).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[tokio::test]
async fn a_key_is_made_limited_rotated_and_ended() {
    let gateway = Gateway::start(ROUTING).await;
    let made = [
        "keys",
        "create",
        "ci",
        "--json",
        "--rpm",
        "9",
        "--budget",
        "2.5/day",
        "--model",
        "auto",
        "--label",
        "team=blue",
        "--expires",
        "30d",
        "--scope",
        "inference",
    ];
    let key = parse(&admin(&gateway, &made).await.well());
    let secret = key["key"].as_str().unwrap().to_owned();
    let id = key["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&key["name"], &key["limits"]["rpm"], &key["limits"]["budget"], &key["labels"]["team"]),
        (&json!("ci"), &json!(9), &json!({"usd": 2.5, "per": "day"}), &json!("blue"))
    );
    assert!(key["expires_at"].is_string() && key["scopes"] == json!(["inference"]), "{key}");
    let with = |secret: &str| Key { id: id.clone(), secret: secret.to_owned() };
    let body = chat_body("auto", false);
    assert_eq!(gateway.chat(&with(&secret), body.as_bytes()).await.status, 200);
    // A table, a record, one JSON object a line; none shows the secret.
    let table = admin(&gateway, &["keys", "list"]).await.well();
    assert!(table.starts_with("ID ") && table.contains(&id) && table.contains(" ci "), "{table}");
    let shown = admin(&gateway, &["keys", "show", &id]).await.well();
    assert!(shown.contains("limits") && shown.contains("2.5"), "{shown}");
    let listed = admin(&gateway, &["keys", "list", "--json", "--status", "active"]).await.well();
    assert_eq!(parse(&listed)["id"], json!(id));
    for text in [&table, &shown, &listed] {
        assert!(!text.contains(&secret), "{text}");
    }
    let patch = [
        "keys",
        "patch",
        &id,
        "--json",
        "--name",
        "ci2",
        "--patch",
        "{\"limits\": {\"rpm\": null}}",
    ];
    let patched = parse(&admin(&gateway, &patch).await.well());
    assert_eq!((&patched["name"], patched["limits"].get("rpm")), (&json!("ci2"), None));
    admin(&gateway, &["keys", "patch", &id]).await.failed(2, "nothing to change");
    let rotated = admin(&gateway, &["keys", "rotate", &id, "--quiet"]).await.well();
    let next = rotated.trim();
    assert_eq!(gateway.chat(&with(&secret), body.as_bytes()).await.status, 401);
    assert_eq!(gateway.chat(&with(next), body.as_bytes()).await.status, 200);
    let told = admin(&gateway, &["keys", "rotate", &id, "--grace", "10m"]).await.well();
    assert!(told.contains("The secret, shown this once:\nrtr_"), "{told}");
    assert_eq!(gateway.chat(&with(next), body.as_bytes()).await.status, 200, "within the grace");
    let ended = admin(&gateway, &["keys", "revoke", &id, "--descendants"]).await.well();
    assert_eq!(ended, format!("{id} is revoked\n"));
    assert_eq!(gateway.chat(&with(next), body.as_bytes()).await.status, 401);
    assert_eq!(admin(&gateway, &["keys", "list"]).await.well(), "no keys\n");
    admin(&gateway, &["keys", "show", "key_no/such"]).await.failed(3, "404 not_found");
    admin(&gateway, &["keys", "create", "--budget", "5"]).await.failed(2, "5/day");
}

#[tokio::test]
async fn each_interface_has_its_keys_and_its_credential() {
    let gateway = Setup::new(ROUTING).env("AGENT_CLOUD_API_KEY", "cloud-canary").start().await;
    let pin = ["keys", "create", "--interface", "pin", "--quiet"];
    assert!(admin(&gateway, &pin).await.well().starts_with("pin_"));
    let agent = ["keys", "create", "--interface", "agent", "--quiet"];
    admin(&gateway, &agent).await.failed(3, "401");
    let url = format!("http://{}", gateway.host());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_AGENT_API_KEY", "cloud-canary")];
    let agents = async |arguments: &[&str]| run(gateway.dir(), arguments, &environment).await;
    assert!(agents(&agent).await.well().starts_with("agt_"));
    std::fs::write(gateway.dir().join("say.txt"), "Be brief.").unwrap();
    let create = [
        "agents",
        "create",
        "reviewer",
        "--model",
        "auto",
        "--instructions",
        "say.txt",
        "--patch",
        "{\"defaults\": {\"temperature\": 0.2}}",
        "--json",
    ];
    let made = parse(&agents(&create).await.well());
    assert_eq!(
        (&made["name"], &made["instructions"], &made["defaults"]["temperature"]),
        (&json!("reviewer"), &json!("Be brief."), &json!(0.2))
    );
    let change = ["agents", "patch", "reviewer", "--description", "reads code"];
    assert!(agents(&change).await.well().contains("reads code"));
    assert!(agents(&["agents", "list"]).await.well().contains("reviewer"));
    agents(&["agents", "show", "nobody"]).await.failed(3, "404");
    agents(&["agents", "delete", "reviewer"]).await.well();
    assert_eq!(agents(&["agents", "list"]).await.well(), "no agents\n");
}

#[tokio::test]
async fn users_and_nodes_are_seen_to() {
    let gateway = Gateway::start(ROUTING).await;
    let url = format!("http://{}", gateway.host());
    let environment =
        [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", gateway.admin_key.as_str())];
    let create = ["users", "create", "ann@example.com", "--name", "Ann", "--rpm", "5", "--json"];
    let password = "a long enough password";
    let made = run_with(gateway.dir(), &create, &environment, &format!("{password}\n")).await;
    let user = parse(&made.well());
    let id = user["id"].as_str().unwrap();
    assert_eq!((&user["role"], &user["limits"]["rpm"]), (&json!("user"), &json!(5)));
    assert!(gateway.session("ann@example.com").await.starts_with("ses_"));
    let promoted = admin(&gateway, &["users", "patch", id, "--role", "admin", "--json"]).await;
    assert_eq!(parse(&promoted.well())["role"], "admin");
    let disabled = admin(&gateway, &["users", "disable", id, "--json"]).await.well();
    assert_eq!(parse(&disabled)["disabled"], true);
    let enabled = admin(&gateway, &["users", "enable", id, "--json"]).await.well();
    assert_eq!(parse(&enabled)["disabled"], false);
    assert!(admin(&gateway, &["users", "list"]).await.well().contains("ann@example.com"));
    assert!(admin(&gateway, &["users", "show", id]).await.well().contains("Ann"));

    let create = ["nodes", "create", "desk", "--model", "qwen*", "--json"];
    let node = parse(&admin(&gateway, &create).await.well());
    let (id, secret) = (node["id"].as_str().unwrap(), node["secret"].as_str().unwrap());
    assert!(secret.starts_with("nod_") && node["models"] == json!(["qwen*"]), "{node}");
    let listed = admin(&gateway, &["nodes", "list"]).await.well();
    assert!(listed.contains("desk") && listed.contains("pending") && !listed.contains(secret));
    let rotated = admin(&gateway, &["nodes", "rotate", id, "-q"]).await.well();
    assert!(rotated.starts_with("nod_") && rotated.trim() != secret);
    assert!(admin(&gateway, &["nodes", "show", id]).await.well().contains("generation"));
    assert!(admin(&gateway, &["nodes", "delete", id]).await.well().contains("is deleted"));
    assert_eq!(admin(&gateway, &["nodes", "list"]).await.well(), "no nodes\n");
}

#[tokio::test]
async fn a_document_is_compared_put_and_rolled_back() {
    let scene = scene().await;
    let gateway = &scene.gateway;
    let shown = admin(gateway, &["config", "get"]).await.well();
    assert_eq!(shown.trim(), scene.text.trim());
    let live = parse(&admin(gateway, &["config", "get", "--json"]).await.well());
    let before = live["revision"].as_str().unwrap();
    scene.write("same.yaml", &scene.text);
    assert_eq!(admin(gateway, &["config", "diff", "same.yaml"]).await.well(), "");
    scene.write("new.yaml", &scene.text.replace("{ target: p/small }, ", ""));
    let diff = admin(gateway, &["config", "diff", "new.yaml"]).await.partly(1, "");
    assert!(diff.contains("\n-") && diff.contains("\n+") && diff.contains(before), "{diff}");
    scene.write("bad.yaml", &scene.text.replace("p/small", "q/small"));
    let put = admin(gateway, &["config", "put", "bad.yaml"]).await;
    put.failed(2, "bad.yaml:");
    scene.ask("Say a word.").await;
    let gated = ["config", "put", "new.yaml", "--max-changed", "2%"];
    admin(gateway, &gated).await.failed(3, "409 gate_refused");
    let put = admin(gateway, &["config", "put", "new.yaml", "--json"]).await.well();
    let put = parse(put.lines().last().unwrap());
    assert_eq!(put["previous"], before);
    assert_eq!(gateway.revision().await, put["revision"].as_str().unwrap());
    let back = admin(gateway, &["config", "rollback", before]).await.well();
    assert!(back.starts_with(&format!("revision {before} is live")), "{back}");
    let revisions = admin(gateway, &["config", "revisions"]).await.well();
    assert_eq!(revisions.lines().count(), 3, "{revisions}");
    admin(gateway, &["config", "rollback", "000000000000"]).await.failed(3, "404");
}

#[tokio::test]
async fn usage_is_summed_as_asked() {
    let scene = scene().await;
    scene.ask("Say a word.").await;
    scene.ask("Please refactor.").await;
    let usage =
        async |arguments: &[&str]| admin(&scene.gateway, &[&["usage"], arguments].concat()).await;
    let table = usage(&[]).await.well();
    assert!(table.starts_with("MODEL ") && table.contains("p/small"), "{table}");
    assert!(table.lines().count() == 3 && table.contains("p/large"), "{table}");
    let days = usage(&["--by", "day,recipe", "--since", "1d"]).await.well();
    assert!(days.lines().nth(1).unwrap().contains("main") && days.starts_with("DAY"), "{days}");
    let answer = parse(&usage(&["--json", "--by", "key"]).await.well());
    assert_eq!(answer["data"][0]["requests"], 2);
    assert_eq!(usage(&["--until", "2020-01-01"]).await.well(), "no usage\n");
    usage(&["--since", "yesterday"]).await.failed(2, "--since has to be a day");
    usage(&["--by", "nonsense"]).await.failed(3, "group_by");
}

#[tokio::test]
async fn logs_show_requests_as_they_end_and_by_filter() {
    let scene = scene().await;
    let gateway = &scene.gateway;
    let first = scene.ask("Say a word.").await;
    let lines = admin(gateway, &["logs"]).await.well();
    assert!(lines.starts_with("TIME ") && lines.contains(&first), "{lines}");
    assert!(lines.contains("p/small") && lines.contains("main.default"), "{lines}");
    assert_eq!(admin(gateway, &["logs", "-n", "0"]).await.well().lines().count(), 1);
    let missed = admin(gateway, &["logs", "--status", "5xx", "--json"]).await.well();
    assert_eq!(missed, "");
    let mut following = Command::new(env!("CARGO_BIN_EXE_rerouter"));
    let file = gateway.dir().join("followed");
    let mut following = following
        .args(["logs", "--follow", "--json", "--alias", "auto", "--by-key", &scene.key.id])
        .env_clear()
        .env("REROUTER_URL", format!("http://{}", gateway.host()))
        .env("REROUTER_API_KEY", &gateway.admin_key)
        .stdout(std::fs::File::create(&file).unwrap())
        .spawn()
        .unwrap();
    let followed = || std::fs::read_to_string(&file).unwrap();
    until("the past", async || followed().contains(&first).then_some(())).await;
    let second = scene.ask("Say two.").await;
    let other = gateway.create_key().await;
    let unseen = gateway.chat(&other, chat_body("auto", false).as_bytes()).await.request_id();
    let third = scene.ask("Say three.").await;
    until("what came", async || followed().contains(&third).then_some(())).await;
    let ids: Vec<String> =
        followed().lines().map(|line| parse(line)["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, [first, second, third], "each once, without {unseen}");
    following.kill().unwrap();
    following.wait().unwrap();
}

/// A command on a terminal that `script` makes, with an answer to its question.
fn on_a_terminal(gateway: &Gateway, arguments: &str, answer: &str, no_color: bool) -> String {
    let program = env!("CARGO_BIN_EXE_rerouter");
    let line = format!("printf '{answer}\\n' | script -qec '{program} {arguments}' /dev/null");
    let mut command = Command::new("timeout");
    command
        .args([&PATIENCE.as_secs().to_string(), "sh", "-c", &line])
        .current_dir(gateway.dir())
        .env("REROUTER_URL", format!("http://{}", gateway.host()))
        .env("REROUTER_API_KEY", &gateway.admin_key)
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    match no_color {
        true => command.env("NO_COLOR", "1"),
        false => command.env_remove("NO_COLOR"),
    };
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}

#[tokio::test]
async fn on_a_terminal_what_cannot_be_undone_is_asked_for() {
    let gateway = Gateway::start(ROUTING).await;
    let key = gateway.create_key().await;
    let revoke = format!("keys revoke {}", key.id);
    let said = on_a_terminal(&gateway, &revoke, "n", false);
    assert!(said.contains("This cannot be undone. [y/N]") && said.contains("nothing was done"));
    assert!(admin(&gateway, &["keys", "list"]).await.well().contains(&key.id));
    // Colour on a terminal only, and not with NO_COLOR.
    let bold = "\u{1b}[1m";
    assert!(on_a_terminal(&gateway, "keys list", "", false).contains(bold));
    assert!(!on_a_terminal(&gateway, "keys list", "", true).contains('\u{1b}'));
    assert!(!admin(&gateway, &["keys", "list"]).await.well().contains('\u{1b}'));
    let said = on_a_terminal(&gateway, &revoke, "y", false);
    assert!(said.contains("is revoked"), "{said}");
    assert_eq!(admin(&gateway, &["keys", "list"]).await.well(), "no keys\n");
    let key = gateway.create_key().await;
    let said = on_a_terminal(&gateway, &format!("keys revoke --yes {}", key.id), "", false);
    assert!(!said.contains("[y/N]") && said.contains("is revoked"), "{said}");
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777
}

#[tokio::test]
async fn profiles_keep_gateways_apart() {
    let (one, two) = (Gateway::start(ROUTING).await, Gateway::start(ROUTING).await);
    let home = tempfile::tempdir().unwrap();
    let config = home.path().to_str().unwrap();
    let environment = [("XDG_CONFIG_HOME", config)];
    let rerouter = async |arguments: &[&str], input: &str| {
        run_with(home.path(), arguments, &environment, input).await
    };
    rerouter(&["keys", "list"], "").await.failed(2, "no key");
    for (name, gateway) in [("one", &one), ("two", &two)] {
        let url = format!("http://{}", gateway.host());
        let key = format!("{}\n", gateway.admin_key);
        rerouter(&["profile", "set", name, "--url", &url], &key).await.well();
    }
    let file = home.path().join("rerouter/profiles.json");
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let listed = rerouter(&["profile", "list"], "").await.well();
    assert!(listed.contains("one") && listed.contains("two") && !listed.contains(&one.admin_key));
    rerouter(&["keys", "create", "of-one"], "").await.well();
    rerouter(&["keys", "create", "of-two", "--profile", "two"], "").await.well();
    rerouter(&["profile", "use", "two"], "").await.well();
    let current = rerouter(&["keys", "list"], "").await.well();
    assert!(current.contains("of-two") && !current.contains("of-one"), "{current}");
    rerouter(&["keys", "list", "--profile", "three"], "").await.failed(2, "known: one, two");
    rerouter(&["profile", "remove", "two"], "").await.well();
    rerouter(&["keys", "list"], "").await.failed(2, "no key");
    // Keys that others can read are not used.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&file, open).unwrap();
    rerouter(&["keys", "list"], "").await.failed(2, "chmod 600");
}

#[tokio::test]
async fn completions_and_manual_pages_name_every_command() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(dir.path(), &["completions", shell], &[]).await.well();
        for word in ["keys", "rollback", "litellm", "descendants"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
    let bash = run(dir.path(), &["completions", "bash"], &[]).await.well();
    std::fs::write(dir.path().join("rerouter.bash"), bash).unwrap();
    let syntax =
        Command::new("bash").args(["-n", "rerouter.bash"]).current_dir(dir.path()).status();
    assert!(syntax.unwrap().success());
    let page = run(dir.path(), &["man"], &[]).await.well();
    assert!(page.starts_with(".ie") || page.contains(".TH rerouter 1"), "{page}");
    run(dir.path(), &["man", "--dir", "pages"], &[]).await.well();
    for page in ["rerouter.1", "rerouter-keys-create.1", "rerouter-replay-evaluate.1"] {
        let text = std::fs::read_to_string(dir.path().join("pages").join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
}
