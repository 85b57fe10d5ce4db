//! The documents of a first configuration, as texts.

use std::fmt::Write as _;

use super::providers::FoundProvider;

/// The routing document for these providers: `auto` tries them in order, and both the usual names
/// of their models and `provider/model` can be requested.
pub(crate) fn routing_document(found: &[FoundProvider]) -> String {
    let mut text = String::from(
        "# The routing document: which model answers which request. Read again when it changes.\n\
         # Its keys: docs/reference/routing-document.md\n\nproviders:\n",
    );
    // Writing to a text does not fail.
    let mut line = |line: String| _ = writeln!(text, "{line}");
    for FoundProvider { known, base_url, .. } in found {
        let base = base_url.as_ref().map(|url| format!(", base_url: {}", quoted(url)));
        let key = known.key_variable.map(|name| format!(", api_key: \"${{{name}}}\""));
        line(format!(
            "  {name}: {{ preset: {name}{}{} }}",
            base.unwrap_or_default(),
            key.unwrap_or_default(),
            name = known.name
        ));
    }
    line("\nmodels: # clients may ask for any model of these, as provider/model".to_owned());
    for FoundProvider { known, .. } in found {
        let prices = match known.key_variable {
            Some(_) => "{}",
            None => "{ input_per_mtok: 0, output_per_mtok: 0 }",
        };
        line(format!("  \"{}/*\": {prices}", known.name));
    }
    line(
        "\nrecipes:\n  auto: # in this order: where one cannot answer, the next one does"
            .to_owned(),
    );
    line("    rules:\n      - name: default\n        targets:".to_owned());
    for FoundProvider { known, model, .. } in found {
        let target = quoted(&format!("{}/{model}", known.name));
        line(format!("          - {{ target: {target} }}"));
    }
    let named = || found.iter().filter(|found| !found.known.names.is_empty());
    for FoundProvider { known, .. } in named() {
        line(format!(
            "  {name}: # the model that was asked for\n    rules: [{{ name: default, targets: \
             [{{ target: \"{name}/${{model}}\" }}] }}]",
            name = known.name
        ));
    }
    line("\naliases: # what clients put into \"model\"\n  auto: auto".to_owned());
    for FoundProvider { known, .. } in named() {
        for name in known.names {
            line(format!("  {}: {}", quoted(name), known.name));
        }
    }
    text
}

/// The default addresses for clients, and for metrics and probes.
pub(crate) const ADDRESSES: [&str; 2] = ["127.0.0.1:8080", "127.0.0.1:9090"];

/// A server document with these values; all other keys keep their defaults. `allowed` are the
/// variables that the routing document may use, if the default ones are not enough.
pub(crate) fn server_document(
    [listen, metrics]: [&str; 2],
    data_dir: &str,
    routing: &str,
    allowed: &[String],
) -> String {
    let allowed = match allowed.is_empty() {
        true => String::new(),
        false => format!(", env_allow: {}", serde_json::json!(allowed)),
    };
    let escaped = |text: &str| quoted(&text.replace("${", "$${"));
    let [listen, metrics, data_dir, routing] = [listen, metrics, data_dir, routing].map(escaped);
    format!(
        "# The server document, read at start. Its keys: docs/reference/server-document.md\n\n\
         listeners:\n  - address: {listen}\n\
         metrics: {{ address: {metrics} }} # metrics and probes, without a credential\n\
         data_dir: {data_dir} # accounts, keys, captures and the master key\n\
         routing: {{ file: {routing}{allowed} }}\n"
    )
}

/// A text in quotes. A JSON string is also a YAML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::providers::known;
    use super::*;
    use rerouter_core::config;

    #[test]
    fn each_set_of_providers_makes_a_document_without_problems() {
        let env = |name: &str| name.ends_with("_API_KEY").then(|| "key".to_owned());
        let server = config::read_server("test", "", &env).unwrap();
        assert_eq!(known().count(), 7);
        for set in 1_u32..1 << 7 {
            let chosen = known().enumerate().filter(|(at, _)| set & (1 << at) != 0);
            let found: Vec<FoundProvider> =
                chosen.map(|(_, known)| FoundProvider::wanted(known, &env, &[])).collect();
            let text = routing_document(&found);
            let read = config::read_routing("made", &text, &server, &env, None);
            read.unwrap_or_else(|problems| panic!("{text}\n{problems:?}"));
        }
        // A key with a budget may use every model that `auto` leads to, because each has a price.
        for known in known() {
            let found = FoundProvider::wanted(known, &env, &[]);
            let target = format!("{}/{}", known.name, found.model);
            let text = routing_document(&[found]);
            let routing = config::read_routing("made", &text, &server, &env, None).unwrap();
            let shipped = routing.shipped_prices().1.iter().any(|name| **name == *target);
            assert!(shipped || known.key_variable.is_none(), "{target} has no price");
        }
        let text = server_document(ADDRESSES, "/var/lib/a \"b\"", "conf/routing.yaml", &[]);
        let read = config::read_server("made", &text, &env).unwrap();
        assert_eq!(read.data_dir.to_str(), Some("/var/lib/a \"b\""));
    }
}
