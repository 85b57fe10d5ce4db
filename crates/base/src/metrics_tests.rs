use super::*;
use crate::usage_kind::UsageCounts;

fn pair(a: &str, b: &str) -> (String, String) {
    (a.into(), b.into())
}

#[test]
fn series_of_removed_targets_and_rules_are_removed() {
    let metrics = Metrics::new().unwrap();
    for model in ["old", "new"] {
        metrics.attempt("openai", model, "ok");
        metrics.decision("balanced", model, "openai", model);
        let meters = metrics.of_target("openai", model);
        meters.inflight(2);
        meters.inflight(-2);
        let counts = UsageCounts { cached_tokens: Some(1), ..UsageCounts::default() };
        meters.used(7, 3, &counts, true);
        meters.answered(Duration::from_millis(500), Some(3));
        meters.first_token(Duration::from_millis(3));
        metrics.cost("openai", model, 0.25);
        metrics.target.breaker_open.with_label_values(&["openai", model]).set(1);
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
fn a_gateway_alone_has_no_lease_that_could_be_lost() {
    let metrics = Metrics::new().unwrap();
    assert!(!metrics.render().contains("rerouter_lease_seconds"));
    metrics.lease(Duration::ZERO, -2_500_000);
    assert!(metrics.render().contains("\nrerouter_lease_seconds 0\n"));
}

#[test]
fn an_attempt_under_way_keeps_its_series() {
    let metrics = Metrics::new().unwrap();
    let meters = metrics.of_target("openai", "old");
    meters.inflight(1);
    metrics.retain_targets(&[]);
    meters.inflight(-1);
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
fn a_label_has_a_hundred_values_at_most() {
    let metrics = Metrics::new().unwrap();
    assert!(!metrics.render().contains("rerouter_label_"));
    for number in 0..150 {
        metrics.label_used(&format!("team {number}"), 1, 10, 0.5);
        // The first values keep their series.
        metrics.label_used("team 0", 1, 0, 0.0);
        metrics.label_used("", 1, 0, 0.0);
    }
    let text = metrics.render();
    let of = |name: &str, value: &str| {
        let series = format!("rerouter_label_{name}_total{{label=\"{value}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("none").to_owned()
    };
    assert_eq!(text.matches("rerouter_label_requests_total{").count(), 102);
    let requests = ["team 0", "team 99", "team 100", "other", ""].map(|v| of("requests", v));
    assert_eq!(requests, ["151", "1", "none", "50", "150"]);
    assert_eq!([of("tokens", "other"), of("cost_usd", "other")], ["500", "25"]);
}

#[test]
fn what_is_absurd_is_no_rate() {
    let metrics = Metrics::new().unwrap();
    let meters = metrics.of_target("p", "m");
    meters.answered(Duration::from_millis(500), Some(3));
    meters.answered(Duration::ZERO, Some(3));
    meters.answered(Duration::from_millis(1), Some(0));
    meters.answered(Duration::from_millis(1), None);
    let text = metrics.render();
    let of = |name: &str| {
        let series = format!("rerouter_{name}{{model=\"m\",provider=\"p\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("none").to_owned()
    };
    assert_eq!(of("provider_duration_seconds_count"), "4");
    assert_eq!(
        (of("tokens_per_second_count"), of("tokens_per_second_sum")),
        ("1".into(), "6".into())
    );
}

#[test]
fn every_metric_is_described() {
    let metrics = Metrics::new().unwrap();
    let rows = metrics.rows();
    assert!(rows.len() > 25, "{}", rows.len());
    for MetricRow { name, kind, help, .. } in rows {
        assert!(name.starts_with("rerouter_") && help.ends_with('.'), "{name}: {help}");
        let is_total = name.ends_with("_total");
        assert_eq!(*kind == "counter", is_total, "{name} is a {kind}");
    }
}
