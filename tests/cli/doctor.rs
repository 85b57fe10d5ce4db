//! `rerouter doctor` reports what a deployment lacks, with remedies and an exit code.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::support::client::Tls;
use crate::support::command::{Ran, run};
use crate::support::documents::provider;
use crate::support::fleet::MASTER_KEY;
use crate::support::free_port;
use crate::support::gateway::Setup;
use crate::support::postgres::{self, Cluster};
use crate::support::provider::{self as scripted, Provider};

/// The lines of a report by check: state, detail, remedy.
fn lines(printed: &str) -> BTreeMap<String, Vec<(String, String, String)>> {
    let mut found: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for line in printed.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        found.entry(text("check")).or_default().push((
            text("state"),
            text("detail"),
            text("remedy"),
        ));
    }
    found
}

/// Runs `doctor` with a server document in `dir`.
async fn doctor(dir: &Path, server: &str, routing: &str, environment: &[(&str, &str)]) -> Ran {
    let free = format!(
        "metrics: {{ address: 127.0.0.1:{} }}\nrouting: {{ file: routing.yaml }}\n",
        free_port()
    );
    std::fs::write(dir.join("s.yaml"), format!("{free}{server}")).unwrap();
    std::fs::write(dir.join("routing.yaml"), routing).unwrap();
    run(dir, &["doctor", "--config", "s.yaml", "--json"], environment).await
}

fn recipe(providers: &str, target: &str) -> String {
    format!(
        "providers:\n{providers}models:\n  \
         {target}: {{ input_per_mtok: 0, output_per_mtok: 0 }}\nrecipes:\n  main:\n    \
         rules: [ {{ name: default, targets: [ {{ target: {target} }} ] }} ]\n\
         aliases: {{ auto: main }}\n"
    )
}

#[tokio::test]
async fn a_deployment_that_runs_is_well() {
    let upstream =
        Provider::always(scripted::answer(200, &[("date", &now())], b"{\"data\":[]}")).await;
    let routing = recipe(&provider("p", &upstream.url(), "${P_API_KEY}"), "p/m");
    let gateway = Setup::new(&routing).env("P_API_KEY", "right").start().await;
    let environment = [("P_API_KEY", "right"), ("ADMIN_API_KEY", gateway.admin_key.as_str())];
    let arguments = ["doctor", "--config", "rerouter.yaml", "--json"];
    let found = lines(&run(gateway.dir(), &arguments, &environment).await.well());
    for check in [
        "documents",
        "store",
        "schema",
        "disk",
        "tls",
        "gateway",
        "lease",
        "objects",
        "provider",
        "clock",
    ] {
        let states: Vec<&str> = found[check].iter().map(|(state, ..)| state.as_str()).collect();
        assert!(!states.is_empty() && !states.contains(&"fail"), "{check}: {found:?}");
    }
    assert_eq!(found["gateway"].len(), 1);
    assert_eq!(found["gateway"][0].1, "runs here, and is ready");
    assert!(found["provider"][0].1.contains("takes the key"), "{found:?}");
    assert!(found["clock"][0].1.contains("off that of p"), "{found:?}");
    assert_eq!(upstream.last().target, "/v1/models");
    assert_eq!(upstream.last().header("authorization").as_deref(), Some("Bearer right"));
    // Text for people, and `--offline`, which asks nobody.
    let count = upstream.count();
    let offline = ["doctor", "--config", "rerouter.yaml", "--offline"];
    let text = run(gateway.dir(), &offline, &environment).await.well();
    assert!(text.contains("ok    store") && text.contains("not asked"), "{text}");
    assert_eq!(upstream.count(), count);
    assert!(!text.contains("right"), "{text}");
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[tokio::test]
async fn each_fault_has_its_remedy() {
    let refuses = Provider::always(scripted::failure(401, "who are you?")).await;
    let late = (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5))
        .strftime("%a, %d %b %Y %H:%M:%S GMT")
        .to_string();
    let wrong = Provider::always(scripted::answer(200, &[("date", &late)], b"{}")).await;
    let providers = [
        provider("refuses", &refuses.url(), "${ANY_API_KEY}"),
        provider("wrong", &wrong.url(), "${ANY_API_KEY}"),
        provider("gone", "http://127.0.0.1:1/v1", "${ANY_API_KEY}"),
        "  demo: { protocol: mock }\n".to_owned(),
    ];
    let dir = tempfile::tempdir().unwrap();
    let environment = [("ANY_API_KEY", "key-canary")];
    let routing = recipe(&providers.concat(), "refuses/m");
    let listener = format!("listeners: [ {{ address: 127.0.0.1:{} }} ]\n", free_port());
    let told = doctor(dir.path(), &listener, &routing, &environment).await.partly(1, "");
    assert!(!told.contains("key-canary"), "{told}");
    let found = lines(&told);
    let provider = |name: &str| {
        let line = found["provider"].iter().find(|(_, detail, _)| detail.starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {found:?}")).clone()
    };
    let (state, _, remedy) = provider("refuses");
    assert!(state == "fail" && remedy.contains("api_key"), "{found:?}");
    assert_eq!(provider("wrong").0, "ok");
    let (state, _, remedy) = provider("gone");
    assert!(state == "fail" && remedy.contains("base_url"), "{found:?}");
    assert_eq!(provider("demo").0, "ok");
    let (state, detail, remedy) = &found["clock"][0];
    assert!(state == "fail" && detail.contains("wrong") && remedy.contains("NTP"), "{found:?}");
    assert!(found["gateway"][0].1.contains("does not run here"), "{found:?}");
    assert!(!dir.path().join("data").exists(), "nothing is made");

    let server = format!("{listener}data_dir: /proc/none\ntreads: 2\n");
    let found = lines(&doctor(dir.path(), &server, &routing, &environment).await.partly(1, ""));
    assert!(found["documents"].iter().any(|(state, detail, _)| {
        state == "fail" && detail.contains("did you mean `threads`")
    }));
    assert_eq!(found["store"][0].0, "fail");
}

#[tokio::test]
async fn a_database_without_tables_is_told_from_one_where_none_can_be_made() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, routing) = (Cluster::shared(), recipe("  demo: { protocol: mock }\n", "demo/m"));
    let url = cluster.database().await;
    let listener = format!("listeners: [ {{ address: 127.0.0.1:{} }} ]\n", free_port());
    let environment = [("REROUTER_MASTER_KEY", MASTER_KEY)];
    let server = format!("{listener}store: {{ url: '{url}' }}\n");
    let found = lines(&doctor(dir.path(), &server, &routing, &environment).await.well());
    let (state, detail, _) = &found["store"][0];
    assert!(state == "ok" && detail.contains("has no tables yet"), "{found:?}");
    // A database user that may only log in. It belongs to the whole cluster.
    let user = format!("reader_{}", std::process::id());
    postgres::run(&url, &format!("CREATE ROLE {user} LOGIN")).await;
    let server = server.replace("//postgres:", &format!("//{user}:"));
    let told = doctor(dir.path(), &server, &routing, &environment).await.partly(1, "");
    let (state, detail, remedy) = &lines(&told)["store"][0];
    assert!(state == "fail" && detail.contains("may not make them"), "{told}");
    assert!(remedy.contains("may write to"), "{told}");
}

#[tokio::test]
async fn certificates_and_master_keys_are_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let _tls = Tls::make(dir.path());
    let routing = recipe("  demo: { protocol: mock }\n", "demo/m");
    let with_tls = |cert: &str| {
        format!(
            "listeners: [ {{ address: 127.0.0.1:{}, tls: {{ cert: {cert}, key: key.pem }} }} ]\n",
            free_port()
        )
    };
    let told = doctor(dir.path(), &with_tls("cert.pem"), &routing, &[]).await;
    let found = lines(&told.well());
    assert!(found["tls"][0].1.contains("cert.pem: valid until 20"), "{found:?}");
    let told = doctor(dir.path(), &with_tls("none.pem"), &routing, &[]).await.partly(1, "");
    assert_eq!(lines(&told)["tls"][0].0, "fail");
    // A store that was made with another master key.
    let mut gateway = Setup::new(&routing).start().await;
    gateway.stop().await;
    let other = ("REROUTER_MASTER_KEY", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=");
    let arguments = ["doctor", "--config", "rerouter.yaml", "--json", "--offline"];
    let told = run(gateway.dir(), &arguments, &[other]).await.partly(1, "");
    let (state, _, remedy) = &lines(&told)["store"][0];
    assert!(state == "fail" && remedy.contains("master key"), "{told}");
}

#[tokio::test]
async fn a_gateway_is_recognised_by_its_data_directory() {
    let routing = recipe("  demo: { protocol: mock }\n", "demo/m");
    let gateway = Setup::new(&routing).start().await;
    let (data, listen) = (gateway.dir().join("data"), gateway.address().to_string());
    let metrics = gateway.metrics_address().to_string();
    let free = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let elsewhere = tempfile::tempdir().unwrap();
    let environment =
        [("ADMIN_API_KEY", gateway.admin_key.as_str()), ("OLLAMA_HOST", "127.0.0.1:1")];
    let told = async |listen: &str, metrics: &str, dir: &Path| {
        let dir = dir.to_str().unwrap();
        let arguments =
            ["doctor", "--json", "--listen", listen, "--metrics", metrics, "--data-dir", dir];
        let ran = run(elsewhere.path(), &arguments, &environment).await;
        lines(&ran.well())["gateway"][0].clone()
    };
    let (state, detail, _) = told(&listen, &metrics, &data).await;
    assert_eq!((state.as_str(), detail.as_str()), ("ok", "runs here, and is ready"));
    // These options do not name the gateway's documents.
    let other = ["doctor", "--listen", &listen, "--metrics", &metrics, "--data-dir"];
    let other = [&other[..], &[data.to_str().unwrap()]].concat();
    let text = run(elsewhere.path(), &other, &environment).await.well();
    let why = "is examined here";
    assert!(text.contains(why) && text.contains("the environment of `serve`"), "{text}");
    for listen in [&listen, &free[0]] {
        let (state, detail, remedy) = told(listen, &free[1], &data).await;
        assert!(state == "warn" && detail.contains("listens elsewhere"), "{detail}");
        assert!(remedy.contains("--listen"), "{remedy}");
    }
    let (state, detail, _) = told(&listen, &metrics, &elsewhere.path().join("data")).await;
    assert!(state == "warn" && detail.contains("none runs on"), "{detail}");
}

#[tokio::test]
async fn a_provider_that_speaks_http_is_told_from_one_that_is_away() {
    let upstream = Setup::new(&recipe("  demo: { protocol: mock }\n", "demo/m")).start().await;
    let url = format!("https://{}/v1", upstream.host());
    let routing = recipe(&provider("p", &url, "${P_API_KEY}"), "p/m");
    let dir = tempfile::tempdir().unwrap();
    let listener = format!("listeners: [ {{ address: 127.0.0.1:{} }} ]\n", free_port());
    let told = doctor(dir.path(), &listener, &routing, &[("P_API_KEY", "k")]).await.partly(1, "");
    let (_, detail, _) = &lines(&told)["provider"][0];
    assert!(detail.contains("try http:// instead of https://"), "{detail}");
}
