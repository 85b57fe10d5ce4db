//! The commands that are clients of a gateway, against a real one: their output, requests and
//! refusals, and the secrets that they never print.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::captures::replay_cli::scene;
use crate::support::command::{Ran, run, run_with};
use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{PATIENCE, until};

const ROUTING: &str = "providers:\n  demo: { protocol: mock }\nmodels:\n  \
    demo/echo: { input_per_mtok: 0, output_per_mtok: 0 }\nrecipes:\n  \
    main:\n    rules: [ { name: default, targets: [ { target: demo/echo } ] } ]\n\
    aliases: { auto: main }\n";

/// Runs a command with the admin's key.
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
    // The output is a table, a record, or one JSON object per line. None has the secret.
    let table = admin(&gateway, &["keys", "list"]).await.well();
    assert!(table.starts_with("ID ") && table.contains(&id) && table.contains(" ci "), "{table}");
    let shown = admin(&gateway, &["keys", "show", &id]).await.well();
    for words in ["limits.budget", "$2.5 a day", "usage.budget", "$0 of $2.5 a day, $2.5 left"] {
        assert!(shown.contains(words), "no {words} in {shown}");
    }
    assert!(shown.contains("labels.team") && !shown.contains('{'), "{shown}");
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
    admin(&gateway, &["keys", "show", "key_01m84xgevxfn28f4mn000000aa"])
        .await
        .failed(3, "404 not_found");
    let tls =
        [("REROUTER_URL", &*format!("https://{}", gateway.host())), ("REROUTER_API_KEY", "k")];
    let told = "try http:// instead of https://";
    run(gateway.dir(), &["keys", "list"], &tls).await.failed(3, told);
    for budget in ["5", "-1/day"] {
        admin(&gateway, &["keys", "create", "--budget", budget]).await.failed(2, "5/day");
    }
    // Words that no gateway accepts are refused without a request.
    for (wrong, told) in [
        (["keys", "create", "--scope", "foo"], "possible values: inference, replay, keys"),
        (["keys", "list", "--status", "dead"], "possible values: active"),
        (["keys", "list", "--limit", "0"], "a number from 1"),
        (["replay", "list", "--state", "odd"], "possible values: completed"),
        (["replay", "evaluate", "--health", "healthy"], "<--document <FILE>|--live>"),
    ] {
        admin(&gateway, &wrong).await.failed(2, told);
    }
}

#[tokio::test]
async fn a_key_goes_by_its_name_if_no_other_has_it() {
    let gateway = Gateway::start(ROUTING).await;
    let create = ["keys", "create", "laptop", "--json"];
    let first = parse(&admin(&gateway, &create).await.well());
    let rotate = ["keys", "rotate", "laptop", "--json"];
    assert_eq!(parse(&admin(&gateway, &rotate).await.well())["id"], first["id"]);
    let second = parse(&admin(&gateway, &create).await.well());
    let revoke = ["keys", "revoke", "laptop"];
    admin(&gateway, &revoke).await.failed(2, "2 keys have the name `laptop`");
    admin(&gateway, &["keys", "revoke", first["id"].as_str().unwrap()]).await.well();
    let show = ["keys", "show", "laptop", "--json"];
    assert_eq!(parse(&admin(&gateway, &show).await.well())["id"], second["id"]);
    let patch = ["keys", "patch", "laptop", "--name", "desk", "--json"];
    assert_eq!(parse(&admin(&gateway, &patch).await.well())["id"], second["id"]);
    admin(&gateway, &show).await.failed(2, "no key has this id or name");
}

#[tokio::test]
async fn each_interface_has_its_keys_and_its_credential() {
    let gateway = Setup::new(ROUTING).env("AGENT_CLOUD_API_KEY", "cloud-canary").start().await;
    let pin = ["keys", "create", "--interface", "pin", "--quiet"];
    assert!(admin(&gateway, &pin).await.well().starts_with("pin_"));
    let agent = ["keys", "create", "--interface", "agent", "--quiet"];
    for refused in [&agent[..], &["agents", "list"], &["keys", "list", "--interface", "agent"]] {
        let told = "AGENT takes a key of its own: from REROUTER_AGENT_API_KEY";
        admin(&gateway, refused).await.failed(3, told);
    }
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
    // It makes an agent trusted.
    agents(&["agents", "patch", "reviewer", "--patch", "{}"]).await.well();
    agents(&["agents", "patch", "reviewer"]).await.failed(2, "nothing to change");
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
    let owned = ["keys", "create", "hers", "--owner", "ann@example.com", "--json"];
    assert_eq!(parse(&admin(&gateway, &owned).await.well())["owner"], id);
    for by_email in [
        ["users", "patch", "ann@example.com", "--name=Anne"],
        ["users", "disable", "ann@example.com", "--yes"],
        ["users", "enable", "ann@example.com", "--json"],
        ["users", "show", "Ann@Example.com", "--json"],
        ["keys", "list", "--owner", "ann@example.com"],
    ] {
        let told = admin(&gateway, &by_email).await.well();
        assert!(told.contains("Anne") || told.contains("hers"), "{told}");
    }
    let nobody = ["users", "show", "bob@example.com"];
    admin(&gateway, &nobody).await.failed(2, "no user has this id or email");
    let erase = ["replay", "delete", "--user", "ann@example.com", "--until", "1h", "--yes"];
    assert_eq!(admin(&gateway, &erase).await.well(), "0 captures are deleted\n");
    admin(&gateway, &["replay", "delete", "--yes"]).await.failed(2, "--user");
    let deleted = admin(&gateway, &["users", "delete", "ann@example.com", "--yes"]).await.well();
    assert_eq!(deleted, format!("{id} is deleted\n"));
    admin(&gateway, &["users", "show", "ann@example.com"]).await.failed(2, "no user has this id");
    // The id of a deleted user can still name captures to delete.
    let erase = ["replay", "delete", "--user", id, "--yes"];
    assert_eq!(admin(&gateway, &erase).await.well(), "0 captures are deleted\n");

    let create = ["nodes", "create", "desk", "--model", "qwen*", "--json"];
    let node = parse(&admin(&gateway, &create).await.well());
    let (id, secret) = (node["id"].as_str().unwrap(), node["secret"].as_str().unwrap());
    assert!(secret.starts_with("nod_") && node["models"] == json!(["qwen*"]), "{node}");
    let listed = admin(&gateway, &["nodes", "list"]).await.well();
    assert!(listed.contains("desk") && listed.contains("pending") && !listed.contains(secret));
    let rotated = admin(&gateway, &["nodes", "rotate", id, "-q"]).await.well();
    assert!(rotated.starts_with("nod_") && rotated.trim() != secret);
    assert!(admin(&gateway, &["nodes", "show", id]).await.well().contains("generation"));
    assert!(admin(&gateway, &["nodes", "show", "desk"]).await.well().contains(id));
    assert!(admin(&gateway, &["nodes", "rotate", "desk", "-q"]).await.well().starts_with("nod_"));
    admin(&gateway, &["nodes", "show", "dusk"]).await.failed(2, "no node has this id or name");
    assert!(admin(&gateway, &["nodes", "delete", "desk"]).await.well().contains("is deleted"));
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
    let same = admin(gateway, &["config", "put", "same.yaml"]).await.well();
    assert_eq!(same, format!("revision {before} was live already\n"));
    scene.write("new.yaml", &scene.text.replace("{ target: p/small }, ", ""));
    let diff = admin(gateway, &["config", "diff", "new.yaml"]).await.partly(1, "");
    assert!(diff.contains("\n-") && diff.contains("\n+") && diff.contains(before), "{diff}");
    scene.write("bad.yaml", &scene.text.replace("p/small", "q/small"));
    let put = admin(gateway, &["config", "put", "bad.yaml"]).await;
    put.failed(2, "bad.yaml:");
    // Invalid YAML is reported before any difference.
    scene.write("broken.yaml", "recipes: [\n");
    for command in ["put", "diff"] {
        let told = admin(gateway, &["config", command, "broken.yaml"]).await;
        assert_eq!(told.partly(2, "broken.yaml:"), "");
    }
    let share = ["config", "put", "new.yaml", "--max-changed", "10"];
    admin(gateway, &share).await.failed(2, "has to be a percentage");
    let asked = on_a_terminal(gateway, "config put same.yaml", "n", true);
    assert!(asked.contains("was live already") && !asked.contains("[y/N]"), "{asked}");
    scene.ask("Say a word.").await;
    let gated = ["config", "put", "new.yaml", "--max-changed", "2%"];
    admin(gateway, &gated).await.failed(1, "409 gate_refused");
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
    assert_eq!(usage(&["--by", "model,model"]).await.well(), table);
    usage(&["--by", "nonsense"]).await.failed(2, "has to be one of key, user");
    // Who spends most, by what the keys and users are called today.
    let path = format!("/v1/router/keys/{}", scene.key.id);
    let team = json!({"name": "Ann's laptop", "labels": {"team": "search"}});
    let changed = scene.gateway.manage("PATCH", &path, &scene.gateway.admin_key, Some(&team)).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let keys = usage(&["--by", "key,user"]).await.well();
    let row = keys.lines().nth(1).unwrap();
    assert!(row.starts_with(&scene.key.id) && row.contains("Ann's laptop"), "{keys}");
    let models = usage(&["--by", "model", "--limit", "1"]).await.well();
    assert!(models.contains("p/large") && models.contains("(there is more: "), "{models}");
    let teams = usage(&["--by", "label:team"]).await.well();
    assert!(teams.starts_with("LABEL:TEAM") && teams.contains("search"), "{teams}");
    usage(&["--by", "label:"]).await.failed(2, "label:NAME");
    // A key tells nobody the address of its owner.
    let path = "/v1/router/usage?group_by=user";
    for (by, is_told) in [(&scene.key.secret, false), (&scene.gateway.admin_key, true)] {
        let asked = scene.gateway.manage("GET", path, by, None).await.json();
        assert_eq!(asked["data"][0].get("user_email").is_some(), is_told, "{asked}");
    }
}

#[tokio::test]
async fn a_url_is_taken_as_sdks_have_it_and_a_wrong_one_is_told() {
    let gateway = Gateway::start(ROUTING).await;
    let keys = async |url: &str| {
        let environment = [("REROUTER_URL", url), ("REROUTER_API_KEY", gateway.admin_key.as_str())];
        run(gateway.dir(), &["keys", "list"], &environment).await
    };
    let root = format!("http://{}", gateway.host());
    for url in [format!("{root}/v1"), format!("{root}/v1/"), format!("{root}/")] {
        assert_eq!(keys(&url).await.well(), "no keys\n");
    }
    keys(&format!("{root}/console/")).await.failed(3, "404");
    let other = Provider::always(scripted::json_answer(404, &json!("nothing"))).await;
    keys(&format!("http://{}", other.address())).await.failed(3, "is its URL right?");
    let refused = json!({ "error": { "message": "no such key here" } });
    let other = Provider::always(scripted::json_answer(401, &refused)).await;
    keys(&format!("http://{}", other.address())).await.failed(3, "(401): no such key here");
}

#[tokio::test]
async fn failures_of_tls_are_told_in_words() {
    let gateway = Setup::new(ROUTING).tls().start().await;
    let url = format!("https://{}", gateway.tls().0);
    let keys = async |url: &str, more: &[&str]| {
        let environment = [("REROUTER_URL", url), ("REROUTER_API_KEY", gateway.admin_key.as_str())];
        run(gateway.dir(), &[&["keys", "list"], more].concat(), &environment).await
    };
    keys(&url, &[]).await.failed(3, "no trusted authority signed its certificate (`--ca` names");
    assert_eq!(keys(&url, &["--ca", "ca.pem"]).await.well(), "no keys\n");
    let plain = format!("https://{}", gateway.host());
    keys(&plain, &["--ca", "ca.pem"]).await.failed(3, "try http://");
    // `openssl req -x509` makes the certificate of an authority.
    for (from, to) in [("ca.pem", "cert.pem"), ("ca.key", "key.pem")] {
        std::fs::copy(gateway.dir().join(from), gateway.dir().join(to)).unwrap();
    }
    until("the authority's certificate", async || {
        let ran = keys(&url, &["--ca", "ca.pem"]).await;
        ran.error.contains("`basicConstraints=CA:FALSE`").then_some(())
    })
    .await;
}

/// A server with pages of old captures, newest first.
async fn long_ago(count: usize) -> Provider {
    Provider::start(move |request, _| {
        let first = request.target.split("after=").nth(1).map_or(0, |at| at.parse().unwrap());
        let page = (first..count.min(first + 100)).map(|at| {
            json!({ "id": format!("req_{at}"), "created_at": "2020-01-01T00:00:00Z",
                "status": 200, "state": "completed" })
        });
        let next = (first + 100 < count).then(|| (first + 100).to_string());
        let page = page.collect::<Vec<_>>();
        scripted::json_answer(200, &json!({ "object": "list", "data": page, "next": next }))
    })
    .await
}

#[tokio::test]
async fn logs_begin_with_as_many_requests_as_asked_for_however_old() {
    let server = long_ago(430).await;
    let url = format!("http://{}", server.address());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", "k")];
    let dir = tempfile::tempdir().unwrap();
    for (asked, count) in [("1000", 430), ("250", 250), ("20", 20)] {
        let lines = run(dir.path(), &["logs", "-n", asked, "--json"], &environment).await.well();
        assert_eq!(lines.lines().count(), count);
        assert_eq!(parse(lines.lines().last().unwrap())["id"], "req_0", "the newest is last");
    }
}

/// Such a key may go on working there.
#[tokio::test]
async fn a_revocation_that_a_gateway_has_not_confirmed_is_no_success() {
    let unconfirmed = json!({ "unconfirmed": ["gw-2"] });
    let server = Provider::always(scripted::json_answer(202, &unconfirmed)).await;
    let url = format!("http://{}", server.address());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", "k")];
    let dir = tempfile::tempdir().unwrap();
    let revoke = ["keys", "revoke", "key_01m8j57sy0ft4t0qnbpa4v5s40", "-y"];
    let ran = run(dir.path(), &revoke, &environment).await;
    assert_eq!(ran.partly(3, "not confirmed it yet: gw-2"), "");
    // What was done is printed, as a new secret is not shown again.
    for command in [
        &["keys", "rotate", "key_01m8j57sy0ft4t0qnbpa4v5s40", "-y", "--json"][..],
        &["keys", "patch", "key_01m8j57sy0ft4t0qnbpa4v5s40", "--status", "inactive", "--json"],
        &["users", "disable", "usr_01m8j57sy0ft4t0qnbpa4v5s40", "-y", "--json"],
    ] {
        let ran = run(dir.path(), command, &environment).await;
        assert_eq!(parse(&ran.partly(3, "not every gateway has confirmed it")), unconfirmed);
    }
}

/// A gateway that restarts is away for a moment, and a proxy in front of it answers with errors
/// meanwhile.
#[tokio::test]
async fn logs_follow_a_gateway_that_starts_again() {
    let server = Provider::start(|_, at| match at {
        1 | 2 => scripted::json_answer(503, &json!({})),
        4 => scripted::json_answer(401, &json!({ "error": "unauthorized" })),
        at => {
            let one = json!({ "id": format!("req_{at}"), "created_at": "2020-01-01T00:00:00Z",
                "status": 200, "state": "completed" });
            scripted::json_answer(200, &json!({ "object": "list", "data": [one], "next": null }))
        }
    })
    .await;
    let url = format!("http://{}", server.address());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", "k")];
    let dir = tempfile::tempdir().unwrap();
    let ran = run(dir.path(), &["logs", "--follow", "--json"], &environment).await;
    assert_eq!(ran.error.matches("trying again").count(), 1, "{}", ran.error);
    let lines = ran.partly(3, "401 unauthorized");
    let ids: Vec<Value> = lines.lines().map(|line| parse(line)["id"].clone()).collect();
    assert_eq!(ids, ["req_0", "req_3"]);
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

/// Runs a command on a terminal that `script` makes, and answers its question.
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
    // Output has colour only on a terminal, and not with NO_COLOR.
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
    // Options that are not given keep their values, and the URL must be valid.
    rerouter(&["profile", "set", "two", "--no-key"], "").await.well();
    rerouter(&["profile", "set", "three"], "").await.failed(2, "needs --url");
    rerouter(&["profile", "set", "two", "--url", "notaurl"], "").await.failed(2, "has to be like");
    assert_eq!(rerouter(&["keys", "list"], "").await.well(), current);
    rerouter(&["keys", "list", "--profile", "three"], "").await.failed(2, "known: one, two");
    let removed = rerouter(&["profile", "remove", "two"], "").await.well();
    assert_eq!(removed, format!("two is removed from {}\n", file.display()));
    rerouter(&["keys", "list"], "").await.failed(2, "no key");
    // A file that others can read is refused.
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
