//! A member that nobody knows is never lost without a word, wherever it stands in a request.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Dialect;
use super::feature::Feature;
use super::fixtures::{plain, samples};
use super::request_translation::{read_request, write_request};
use super::request_translation_tests::{others, recorded};

const FOREIGN: &str = "zz_foreign";

/// Recorded requests, and a sample for each feature.
fn bodies() -> Vec<(Dialect, Value)> {
    let all = recorded()
        .into_iter()
        .map(|(source, exchange)| (source, serde_json::from_str(exchange.request.get()).unwrap()));
    let samples = Feature::ALL.iter().flat_map(|feature| {
        samples(*feature).into_iter().map(|(source, members)| {
            let mut body = plain(source);
            body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            (source, body)
        })
    });
    all.chain(samples).collect()
}

/// Collects the JSON pointers of all objects.
fn objects(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                objects(value, format!("{path}/{name}"), found);
            }
            found.push(path);
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                objects(value, format!("{path}/{at}"), found);
            }
        }
        _ => {}
    }
}

/// The names and the types of the objects that the pointer goes through.
fn around(body: &Value, pointer: &str) -> Vec<String> {
    let ends = pointer.match_indices('/').map(|(at, _)| at).skip(1).chain([pointer.len()]);
    let ancestors = ends.map(|end| &pointer[..end]);
    let types = ancestors.filter_map(|path| body.pointer(path)?["type"].as_str());
    types.chain(pointer.split('/')).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Puts the member into an object, and fails if a target gets the body without it and without a
/// word of it.
fn check(source: Dialect, body: &Value, pointer: &str, value: &Value) {
    let mut body = body.clone();
    body.pointer_mut(pointer).unwrap()[FOREIGN] = value.clone();
    // In a map of objects the value has the wrong shape, and the body is refused.
    let Ok(request) = read_request(source, body.to_string().as_bytes()) else { return };
    let around = around(&body, pointer);
    let is_told = |name: &String| {
        let last = name.rsplit('.').next().unwrap_or_default();
        last == FOREIGN || around.iter().any(|name| name == last)
    };
    for target in others(source) {
        let Ok(written) = write_request(&request, target) else { continue };
        let is_sent = String::from_utf8_lossy(&written.body).contains(FOREIGN);
        let is_told = written.dropped.iter().any(is_told);
        assert!(
            is_sent || is_told,
            "{pointer} to {}: {:?}, {body}",
            target.name(),
            written.dropped
        );
    }
}

/// All objects of the bodies, but for tools that may not be called, which are left out on purpose.
/// An MCP server has a map of them.
fn places() -> Vec<(Dialect, Value, String)> {
    let mut all = Vec::new();
    for (source, body) in bodies() {
        let mut found = Vec::new();
        objects(&body, String::new(), &mut found);
        let leaves_out = body["tool_choice"]["type"] == "allowed_tools";
        found.retain(|place| {
            !(place.ends_with("/configs") || leaves_out && place.starts_with("/tools/"))
        });
        all.extend(found.into_iter().map(|place| (source, body.clone(), place)));
    }
    all
}

#[test]
fn no_object_loses_a_member_without_a_word() {
    let places = places();
    assert!(places.len() > 2_000, "{}", places.len());
    places.iter().for_each(|(source, body, place)| check(*source, body, place, &json!(7)));
}

proptest! {
    #[test]
    fn no_value_is_lost_without_a_word(
        at in any::<prop::sample::Index>(),
        value in prop::sample::select(vec![
            json!(true), json!(-1.5), json!("x"), json!([0]), json!({"type": "text"}),
        ]),
    ) {
        thread_local!(static PLACES: Vec<(Dialect, Value, String)> = places());
        PLACES.with(|places| {
            let (source, body, place) = at.get(places);
            check(*source, body, place, &value);
        });
    }
}
