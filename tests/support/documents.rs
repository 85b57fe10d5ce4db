//! Routing documents for the tests.

/// One provider line under `providers:`, with short deadlines that a test can wait for.
pub fn provider(name: &str, url: &str, api_key: &str) -> String {
    format!(
        "  {name}:\n    protocol: openai\n    base_url: {url}\n    api_key: \"{api_key}\"\n    \
         timeouts: {{ connect: 2s, first_byte: 20s, idle: 20s, total: 60s }}\n"
    )
}

/// Providers in the order given, one recipe `main` that tries `model` on each in that order, and
/// the alias `auto`.
pub fn in_order(providers: &[(&str, &str)], extra: &str) -> String {
    let lines: String = providers
        .iter()
        .map(|(name, url)| provider(name, url, "${UPSTREAM_API_KEY:-sk-upstream}"))
        .collect();
    let targets: Vec<String> =
        providers.iter().map(|(name, _)| format!("{{ target: {name}/model }}")).collect();
    format!(
        "providers:\n{lines}recipes:\n  main:\n    rules:\n      - name: default\n        \
         strategy: priority\n        targets: [ {} ]\n    \
         retry: {{ attempts: {}, on: [connect, timeout, 429, 5xx] }}\naliases: {{ auto: main }}\n\
         {extra}",
        targets.join(", "),
        providers.len(),
    )
}

/// A chat request in one line.
pub fn chat_body(model: &str, stream: bool) -> String {
    format!(
        "{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Say a \
         word.\"}}],\"stream\":{stream}}}"
    )
}
