//! A real Prometheus scrapes a gateway under load: every panel of the dashboards shows something,
//! every rule can be evaluated, and the alerts fire where they have to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use regex::Regex;
use rerouter::internals::metrics::Metrics;
use serde_json::Value;

use crate::support::client::{Connection, request};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::postgres::Cluster;
use crate::support::provider::{self as scripted, Provider};
use crate::support::{PATIENCE, free_port, until};

const DASHBOARDS: [&str; 3] = ["overview", "providers", "captures"];
/// What Grafana puts in the place of its variables.
const VARIABLES: [(&str, &str); 3] =
    [("$__rate_interval", "10s"), ("$instance", ".*"), ("$provider", ".*")];

fn conf(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conf").join(path)
}

/// A program of Prometheus, as `./test` unpacks it, or as it is installed.
pub fn program(name: &str) -> Command {
    let unpacked =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(".test/prometheus/usr/bin").join(name);
    Command::new(if unpacked.exists() { unpacked } else { name.into() })
}

/// A query of a panel, with the panel's title.
struct PanelQuery {
    title: String,
    expression: String,
}

fn queries(dashboard: &str) -> Vec<PanelQuery> {
    let text = std::fs::read_to_string(conf(&format!("grafana/{dashboard}.json"))).unwrap();
    let read: Value = serde_json::from_str(&text).expect("a dashboard is JSON");
    let mut found = Vec::new();
    for panel in read["panels"].as_array().unwrap() {
        let title = format!("{dashboard}: {}", panel["title"].as_str().unwrap());
        let targets = panel["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert!(!targets.is_empty() || panel["type"] == "row", "{title} asks nothing");
        for target in targets {
            let mut expression = target["expr"].as_str().unwrap().to_owned();
            for (variable, value) in VARIABLES {
                expression = expression.replace(variable, value);
            }
            assert!(!expression.contains('$'), "{title}: {expression}");
            found.push(PanelQuery { title: title.clone(), expression });
        }
    }
    assert!(found.len() > 10, "{dashboard}");
    found
}

/// Names of our metrics in a text, without the endings of a histogram's series.
fn metrics_in(text: &str) -> BTreeSet<String> {
    // Names with a colon before them are of recording rules.
    let name = Regex::new(r"(^|[^:\w])(rerouter_[a-z_]+[a-z])(\b)").unwrap();
    let names = name.captures_iter(text).map(|found| found[2].to_owned());
    names
        .map(|name| {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            base.unwrap_or(&name).to_owned()
        })
        .collect()
}

#[test]
fn dashboards_and_rules_name_metrics_that_there_are_and_dashboards_name_all() {
    let metrics = Metrics::new().unwrap();
    let known: BTreeSet<String> = metrics.rows().iter().map(|row| row.name.clone()).collect();
    let rules = std::fs::read_to_string(conf("prometheus/rules.yml")).unwrap();
    let cases = std::fs::read_to_string(conf("prometheus/rules_test.yml")).unwrap();
    let shown: String = DASHBOARDS
        .iter()
        .flat_map(|dashboard| queries(dashboard))
        .map(|query| query.expression + "\n")
        .collect();
    for (place, text) in [("rules", &rules), ("their cases", &cases), ("dashboards", &shown)] {
        let unknown: Vec<_> = metrics_in(text).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{place} name {unknown:?}");
    }
    let missing: Vec<_> = known.difference(&metrics_in(&shown)).cloned().collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
    // Each alert has a case where it fires and one where it does not.
    let alert = Regex::new(r"(?m)^ +- alert: (\w+)$").unwrap();
    let alerts: Vec<&str> =
        alert.captures_iter(&rules).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(alerts.len() > 15, "{alerts:?}");
    for alert in alerts {
        for which in ["fires", "is quiet"] {
            assert!(cases.contains(&format!("- name: {alert} {which}\n")), "{alert} {which}");
        }
    }
}

#[test]
fn the_rules_are_valid_and_fire_where_they_have_to() {
    for arguments in [["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]] {
        let output =
            program("promtool").args(arguments).current_dir(conf("prometheus")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {arguments:?}: {said}");
    }
}

/// A running Prometheus; ends with the value.
struct Prometheus {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes this address twice a second.
    fn start(scraped: &str) -> Prometheus {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let document = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 1s }}\n\
             rule_files: [ {} ]\n\
             scrape_configs:\n  - job_name: rerouter\n    static_configs:\n      \
             - targets: [ \"{scraped}\" ]\n",
            serde_json::json!(conf("prometheus/rules.yml")),
        );
        std::fs::write(path("prometheus.yml"), document).unwrap();
        let port = free_port();
        let process = program("prometheus")
            .arg(format!("--config.file={}", path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("./test unpacks Prometheus");
        Prometheus { process, port, _dir: dir }
    }

    /// An answer of its API; `None` while it does not answer.
    async fn ask(&self, target: &str) -> Option<Value> {
        let mut connection = Connection::try_open(([127, 0, 0, 1], self.port).into()).await?;
        let request = request("GET", target, "127.0.0.1", &[], None);
        let answer = connection.try_exchange(&request).await?;
        (answer.status == 200).then(|| answer.json())
    }

    /// Whether a query has data: a series with a number.
    async fn has_data(&self, expression: &str) -> bool {
        let query: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let Some(answer) = self.ask(&format!("/api/v1/query?query={query}")).await else {
            return false;
        };
        answer["data"]["result"].as_array().is_some_and(|series| {
            let value = |one: &Value| one["value"][1].as_str()?.parse::<f64>().ok();
            series.iter().filter_map(value).any(|value| !value.is_nan())
        })
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A little of everything that a panel shows.
async fn load(gateway: &Gateway, key: &Key) {
    for body in [chat_body("auto", false), chat_body("auto", true)] {
        let answer = gateway.chat(key, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let answer = gateway.chat(key, chat_body("bad/model", false).as_bytes()).await;
    assert!(answer.status >= 500, "{}", answer.text());
    let refused =
        gateway.send("GET", "/v1/models", &[("authorization", "Bearer nobody")], None).await;
    assert_eq!(refused.status, 401, "{}", refused.text());
}

#[tokio::test]
async fn every_panel_shows_something_and_every_rule_is_evaluated() {
    let bad = Provider::always(scripted::failure(500, "broken")).await;
    let good = Provider::start(|request, _| match request.json()["stream"] == true {
        true => scripted::stream("well"),
        false => scripted::completion("well"),
    })
    .await;
    let prices = "models:\n  good/model: { input_per_mtok: 2.0, output_per_mtok: 10.0 }\n";
    let routing = in_order(&[("bad", &bad.url()), ("good", &good.url())], prices);
    // The panels of leases and of certificates are empty without these.
    let store = format!("store: {{ url: '{}' }}", Cluster::shared().database().await);
    let gateway = Setup::new(&routing).tls().server(&store).label("team").start().await;
    let key = gateway.create_key().await;
    let prometheus = Prometheus::start(&gateway.metrics_address().to_string());
    let mut left: Vec<PanelQuery> =
        DASHBOARDS.iter().flat_map(|dashboard| queries(dashboard)).collect();
    let start = Instant::now();
    while !left.is_empty() {
        load(&gateway, &key).await;
        let mut empty = Vec::new();
        for query in left {
            if !prometheus.has_data(&query.expression).await {
                empty.push(query);
            }
        }
        left = empty;
        let titles: Vec<&String> = left.iter().map(|query| &query.title).collect();
        assert!(start.elapsed() < PATIENCE, "no data in {titles:?}");
    }
    let rules = until("every rule to be evaluated", async || {
        let rules = prometheus.ask("/api/v1/rules").await?;
        let all = |rules: &Value| -> Option<Vec<Value>> {
            let groups = rules["data"]["groups"].as_array()?;
            Some(
                groups
                    .iter()
                    .flat_map(|group| group["rules"].as_array().cloned())
                    .flatten()
                    .collect(),
            )
        };
        let rules = all(&rules)?;
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    })
    .await;
    assert!(rules.len() > 20, "{rules:?}");
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    for record in ["job:rerouter_requests:rate5m", "job_target:rerouter_attempts:rate5m"] {
        until("a recorded series", async || prometheus.has_data(record).await.then_some(())).await;
    }
}
