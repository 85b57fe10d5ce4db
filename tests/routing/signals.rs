//! Signals that cost something: they are computed where a condition names them, kept with the
//! capture, and found out again only as far as another document asks for what the capture does not
//! hold.

use serde_json::{Value, json};

use crate::support::documents;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider};

/// Rules for what `when` says, and one for all else.
fn document(keywords: &str, when: &str) -> String {
    format!(
        "providers:\n  demo: {{ protocol: mock }}\nkeywords: {{ {keywords} }}\nrecipes:\n  \
         main:\n    rules:\n      \
         - {{ name: special, when: \"{when}\", targets: [ {{ target: demo/special }} ] }}\n      \
         - {{ name: default, targets: [ {{ target: demo/usual }} ] }}\naliases: {{ auto: main }}\n"
    )
}

async fn ask(gateway: &Gateway, key: &Key, words: &str) -> Value {
    let body = json!({"model": "auto", "messages": [
        {"role": "user", "content": "An earlier question about contracts and their law."},
        {"role": "assistant", "content": "An answer that says refactor."},
        {"role": "user", "content": [{"type": "text", "text": words}]}]});
    let answer = gateway.chat(key, body.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.capture(&answer.request_id()).await
}

async fn rerouted(gateway: &Gateway, key: &Key, capture: &Value) -> String {
    let path = format!(
        "/v1/router/replay/{}/reroute?dry_run=true",
        capture["id"].as_str().expect("an id")
    );
    let answer = gateway.answers(200, "POST", &path, &key.secret, None).await;
    answer.json()["decision"]["rule"].as_str().expect("a rule").to_owned()
}

#[tokio::test]
async fn keywords_and_language_decide_live_and_again() {
    let mut gateway = Gateway::start(&document(
        "code: [Refactor, \"stack trace\"], law: [contract]",
        "'code' in keywords",
    ))
    .await;
    let key = gateway.create_key().await;
    let hit = ask(
        &gateway,
        &key,
        "Please REFACTOR the following function, so that its name tells what it does.",
    )
    .await;
    let german = ask(
        &gateway,
        &key,
        "Bitte fasse den folgenden Text in drei Sätzen zusammen und nenne die wichtigsten Fristen.",
    )
    .await;
    assert_eq!(
        (&hit["decision"]["rule"], &german["decision"]["rule"]),
        (&json!("special"), &json!("default"))
    );
    assert_eq!(hit["inputs"]["keywords"]["code"]["hit"], true);
    assert_eq!(hit["inputs"]["keywords"]["law"]["hit"], false);
    assert_eq!(hit["inputs"]["request"]["language"], Value::Null, "nobody asked for it");

    // The same words in a set of another name: the stored hit. Others: by the captured text.
    gateway.write_routing(&document("work: ['STACK TRACE', refactor]", "'work' in keywords")).await;
    assert_eq!(
        (rerouted(&gateway, &key, &hit).await, rerouted(&gateway, &key, &german).await),
        ("special".into(), "default".into())
    );
    gateway.write_routing(&document("terms: [frist, function]", "'terms' in keywords")).await;
    assert_eq!(
        (rerouted(&gateway, &key, &hit).await, rerouted(&gateway, &key, &german).await),
        ("special".into(), "special".into())
    );
    gateway.write_routing(&document("terms: [frist]", "language == 'de' && agent == ''")).await;
    assert_eq!(
        (rerouted(&gateway, &key, &hit).await, rerouted(&gateway, &key, &german).await),
        ("default".into(), "special".into())
    );
    let english = ask(
        &gateway,
        &key,
        "Please summarise the following text in three sentences and name the key deadlines.",
    )
    .await;
    assert_eq!(
        (&english["inputs"]["request"]["language"], &english["inputs"]["keywords"]),
        (&json!("en"), &json!({}))
    );
    gateway.restart().await;
    assert_eq!(rerouted(&gateway, &key, &english).await, "default");
}

#[tokio::test]
async fn estimates_follow_what_the_provider_counts() {
    // Seven tokens, it says of anything.
    let provider = Provider::always(scripted::completion("well")).await;
    let gateway = Gateway::start(&documents::in_order(&[("p", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let words = "word ".repeat(2000);
    let estimated = async || {
        let capture = ask(&gateway, &key, &words).await;
        assert_eq!(capture["usage"]["prompt_tokens"], 7);
        capture["inputs"]["request"]["prompt_tokens"].as_u64().expect("an estimate")
    };
    let first = estimated().await;
    assert!((2000..2300).contains(&first), "{first}");
    let mut last = first;
    for _ in 0..6 {
        let now = estimated().await;
        assert!(now <= last);
        last = now;
    }
    // As low as a correction goes.
    assert_eq!(last, first.div_ceil(2));
}
