use std::collections::BTreeSet;

use super::*;

fn pair(a: &str, b: &str) -> (String, String) {
    (a.into(), b.into())
}

#[test]
fn series_of_removed_targets_and_rules_are_removed() {
    let metrics = Metrics::new().unwrap();
    for model in ["old", "new"] {
        metrics.attempt("openai", model, "ok");
        metrics.decision("balanced", model, "openai", model);
        metrics.inflight("openai", model, 2);
        metrics.inflight("openai", model, -2);
        metrics.cost("openai", model, 0.25);
        metrics.breaker_open("openai", model, true);
        metrics.first_token("openai", model, Duration::from_millis(3));
    }
    metrics.decision("direct", "", "openai", "new");
    metrics.retain_targets(&[pair("openai", "new")]);
    let text = metrics.render();
    assert!(!text.contains("model=\"old\""), "{text}");
    assert!(
        text.contains("rerouter_cost_usd_total{model=\"new\",provider=\"openai\"} 0.25"),
        "{text}"
    );
    metrics.retain_rules(&[]);
    let text = metrics.render();
    assert!(
        text.contains(
            "rerouter_decisions_total\
        {model=\"new\",provider=\"openai\",recipe=\"direct\",rule=\"\"} 1"
        ),
        "{text}"
    );
    assert!(!text.contains("recipe=\"balanced\""), "{text}");
}

#[test]
fn an_attempt_under_way_keeps_its_series() {
    let metrics = Metrics::new().unwrap();
    metrics.inflight("openai", "old", 1);
    metrics.retain_targets(&[]);
    metrics.inflight("openai", "old", -1);
    assert!(metrics.render().contains("rerouter_inflight{model=\"old\",provider=\"openai\"} 0"));
    metrics.retain_targets(&[]);
    assert!(!metrics.render().contains("rerouter_inflight{"));
}

#[test]
fn series_for_alerts_exist_from_the_start() {
    let text = Metrics::new().unwrap().render();
    for series in [
        "reloads_total{result=\"failure\"}",
        "captures_total{outcome=\"dropped_full\"}",
        "captures_total{outcome=\"dropped_store\"}",
    ] {
        assert!(text.contains(&format!("rerouter_{series} 0")), "{series}");
    }
}

#[test]
fn only_the_live_revision_shows() {
    let metrics = Metrics::new().unwrap();
    metrics.live_revision("aaaaaaaaaaaa");
    metrics.live_revision("bbbbbbbbbbbb");
    let text = metrics.render();
    assert!(text.contains("rerouter_routing_info{revision=\"bbbbbbbbbbbb\"} 1"));
    assert!(!text.contains("aaaaaaaaaaaa"));
}

#[test]
fn exactly_one_revision_shows_at_any_time() {
    let metrics = Metrics::new().unwrap();
    metrics.live_revision("aaaaaaaaaaaa");
    std::thread::scope(|scope| {
        let changing = scope
            .spawn(|| (0..2_000).for_each(|n: u32| metrics.live_revision(&format!("{n:012}"))));
        while !changing.is_finished() {
            assert_eq!(metrics.render().matches("rerouter_routing_info{").count(), 1);
        }
    });
}

#[test]
fn the_reference_names_every_metric() {
    let metrics = Metrics::new().unwrap();
    metrics.request("router", "/v1/models", 200, Duration::from_millis(1));
    metrics.overhead(Duration::from_micros(80));
    metrics.first_token("p", "m", Duration::ZERO);
    metrics.attempt("p", "m", "ok");
    metrics.decision("r", "u", "p", "m");
    metrics.tokens("p", "m", "prompt", 3);
    metrics.cost("p", "m", 1.0);
    metrics.inflight("p", "m", 1);
    metrics.breaker_open("p", "m", true);
    metrics.auth_failure("router", "unknown");
    metrics.keys("router", "active", 1);
    metrics.unsaved_endings("keys", 1);
    metrics.nodes("ready", 1);
    metrics.agent_open(true);
    metrics.connection_refused("all");
    metrics.captures("stored", 2);
    metrics.capture_queue_bytes(10);
    metrics.body_memory(10);
    metrics.live_revision("r");
    metrics.reload("success");
    metrics.names_gone(1);
    metrics.log_line_dropped();
    metrics.panic();
    let text = metrics.render();
    let page = include_str!("../docs/reference/metrics.md");
    let named: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `rerouter_")?.split('`').next())
        .collect();
    let there: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE rerouter_")?.split(' ').next())
        .collect();
    assert_eq!(named, there);
}
