//! The routing document's file while somebody writes into it: what is live is always a whole
//! document.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rerouter::internals::config;
use rerouter::internals::id::Random;

use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{count, full, until};

/// Names that every version of the document has; those of the last lines go first when it is cut.
const NAMES: [&str; 5] = ["auto", "first", "second", "third", "a/model"];

/// A version of the document: two recipes, then an alias a line.
fn version(url: &str, number: u64) -> String {
    let text = in_order(&[("a", url)], "").replace("idle: 20s", &format!("idle: {}s", 20 + number));
    let more = "  other:\n    rules:\n      - name: default\n        targets:\n          \
        - target: a/model\n          - target: a/next\naliases:\n  auto: main\n  first: main\n  \
        second: other\n  third: other\n";
    text.replace("aliases: { auto: main }\n", more)
}

fn revision(text: &str) -> String {
    let server = config::read_server("server", "", &|_| None).unwrap();
    config::read_routing("routing", text, &server, &|_| None, None).unwrap().revision().to_owned()
}

/// Writes into the file, where it is, piece by piece.
async fn write_in_place(gateway: &Gateway, text: &str, pauses: &[(usize, Duration)]) {
    let mut file = std::fs::File::create(gateway.dir().join("routing.yaml")).unwrap();
    let mut from = 0;
    for (to, pause) in pauses {
        file.write_all(&text.as_bytes()[from..*to]).unwrap();
        tokio::time::sleep(*pause).await;
        from = *to;
    }
    file.write_all(&text.as_bytes()[from..]).unwrap();
}

/// Where the writer of this round pauses, and for how long: between lines as somebody types them,
/// then anywhere.
fn pauses(text: &str, round: u64, draw: &Random) -> Vec<(usize, Duration)> {
    let below = |bound: u64| draw.next_u64() % bound;
    let long = Duration::from_millis(700);
    let lines: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let mut pauses: Vec<(usize, Duration)> = match round {
        // Each of these beginnings is a document by itself, but for names that are still to come.
        0 => lines.iter().rev().skip(1).take(3).map(|at| (*at, long)).collect(),
        1 => lines.iter().rev().skip(1).map(|at| (*at, Duration::from_millis(100))).collect(),
        2 => vec![(0, long), (lines[lines.len() - 2] + 3, long), (text.len() - 1, long)],
        _ => (0..3)
            .map(|_| (below(text.len() as u64) as usize, Duration::from_millis(100 + below(601))))
            .collect(),
    };
    pauses.sort_unstable();
    pauses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_sees_half_a_document() {
    let rounds = count("REROUTER_ROUNDS", if full() { 100 } else { 6 });
    let provider = Provider::always(scripted::completion("well")).await;
    let gateway = Setup::new(&version(&provider.url(), 0)).threads(2).start().await;
    let key = gateway.create_key().await;
    let (done, written) =
        (AtomicBool::new(false), Mutex::new(vec![revision(&version(&provider.url(), 0))]));
    let asking = async |from: usize| {
        let mut answered = 0_u64;
        for name in NAMES.iter().cycle().skip(from) {
            if done.load(Ordering::Acquire) {
                break;
            }
            let answer = gateway.chat(&key, chat_body(name, false).as_bytes()).await;
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
            let seen = answer.header("x-rerouter-revision").unwrap().to_owned();
            assert!(
                written.lock().unwrap().contains(&seen),
                "{name} was decided by {seen}, which is no whole document"
            );
            answered += 1;
        }
        answered
    };
    let writing = async {
        let draw = Random::seeded(count("REROUTER_SEED", 1));
        for round in 0..rounds {
            let text = version(&provider.url(), round + 1);
            let next = revision(&text);
            written.lock().unwrap().push(next.clone());
            write_in_place(&gateway, &text, &pauses(&text, round, &draw)).await;
            until("the whole document", async || (gateway.revision().await == next).then_some(()))
                .await;
        }
        done.store(true, Ordering::Release);
    };
    let (one, two, three, ()) = tokio::join!(asking(0), asking(1), asking(2), writing);
    eprintln!("{} requests while {rounds} documents were written", one + two + three);
    assert!(one.min(two).min(three) > rounds, "{one}, {two} and {three} requests");
    let reloads = async |result: &str| {
        gateway.metric("rerouter_reloads_total", &[&format!("result=\"{result}\"")]).await
    };
    assert_eq!(
        (reloads("success").await, reloads("failure").await),
        (rounds as f64, 0.0),
        "no beginning of one was read"
    );
    assert_eq!(gateway.metric("rerouter_names_gone_total", &[]).await, 0.0);
}

#[tokio::test]
async fn a_document_without_aliases_or_recipes_is_refused_unless_it_says_so() {
    let provider = Provider::always(scripted::completion("well")).await;
    let text = in_order(&[("a", &provider.url())], "models: { a/model: {} }\n");
    let gateway = Setup::new(&text).start().await;
    let before = gateway.revision().await;
    let named = |text: &str, found: &str| text.contains(&format!("`{found}` is missing or empty"));
    let (recipes, aliases) =
        (text.split("recipes:").next().unwrap(), text.split("aliases:").next().unwrap());
    for (half, missing) in [
        (recipes.to_owned(), "recipes"),
        (format!("{recipes}recipes:\naliases: {{}}\n"), "recipes"),
        (aliases.to_owned(), "aliases"),
        (format!("{aliases}aliases:\n"), "aliases"),
    ] {
        let half = half.replace("${UPSTREAM_API_KEY:-sk-upstream}", "${UPSTREAM_API_KEY}");
        let (bearer, yaml) =
            (format!("Bearer {}", gateway.admin_key), ("content-type", "application/yaml"));
        let headers = [("authorization", bearer.as_str()), yaml];
        let looked = gateway
            .send("POST", "/v1/router/config/validate", &headers, Some(half.as_bytes()))
            .await;
        assert!(
            looked.json()["valid"] == false && named(&looked.text(), missing),
            "{}",
            looked.text()
        );
        let put = gateway.send("PUT", "/v1/router/config", &headers, Some(half.as_bytes())).await;
        assert!(put.status == 400 && named(&put.text(), missing), "{}", put.text());
        gateway.replace_routing(&half);
        until("the refusal to be logged", async || named(&gateway.log(), missing).then_some(()))
            .await;
        let checked = std::process::Command::new(env!("CARGO_BIN_EXE_rerouter"))
            .args(["check", "--routing"])
            .arg(gateway.dir().join("routing.yaml"))
            .output()
            .unwrap();
        let said = [checked.stdout, checked.stderr].concat();
        assert!(
            checked.status.code() == Some(1) && named(&String::from_utf8_lossy(&said), missing),
            "{said:?}"
        );
    }
    assert_eq!(gateway.revision().await, before);
    let mut gateway = gateway;
    gateway.kill_9();
    let told = gateway.try_start_again().await.unwrap_err();
    assert!(named(&told, "aliases"), "{told}");
    // Written out empty they are meant so.
    gateway.replace_routing(&format!(
        "{recipes}recipes: {{}}\naliases: {{}}\nmodels: {{ a/model: {{}} }}\n"
    ));
    gateway.start_again().await;
    let key = gateway.create_key().await;
    assert_eq!(gateway.chat(&key, chat_body("a/model", false).as_bytes()).await.status, 200);
}

#[tokio::test]
async fn names_that_a_reload_takes_away_are_logged_and_counted() {
    let provider = Provider::always(scripted::completion("well")).await;
    let named = in_order(&[("a", &provider.url())], "")
        .replace("${UPSTREAM_API_KEY:-sk-upstream}", "${UPSTREAM_API_KEY}");
    let text = |aliases: &str| named.replace("{ auto: main }", aliases);
    let all = text("{ auto: main, first: main, second: main }");
    let gateway = Setup::new(&all).env("UPSTREAM_API_KEY", "sk-upstream").start().await;
    let gone = async || gateway.metric("rerouter_names_gone_total", &[]).await;
    assert!(gateway.metrics().await.contains("rerouter_names_gone_total 0"));
    gateway.write_routing(&text("{ auto: main }")).await;
    assert_eq!(gone().await, 2.0);
    for name in ["first", "second"] {
        let told = format!("the alias `{name}` is gone: requests for it get 404");
        assert_eq!(gateway.log().matches(&told).count(), 1, "{told}");
    }
    gateway.write_routing(&all).await;
    assert_eq!(gone().await, 2.0);
    let bearer = format!("Bearer {}", gateway.admin_key);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
    let fewer = text("{ auto: main, second: main }");
    let put = gateway.send("PUT", "/v1/router/config", &headers, Some(fewer.as_bytes())).await;
    let told = "the alias `first` is gone: requests for it get 404";
    let warnings = put.json()["warnings"].clone();
    let warnings = warnings.as_array().unwrap();
    let gone_of_it =
        warnings.iter().filter(|warning| warning.as_str().unwrap().contains(" is gone"));
    assert_eq!(gone_of_it.collect::<Vec<_>>(), [told], "{}", put.text());
    assert_eq!((gone().await, gateway.log().matches(told).count()), (3.0, 2));
}
