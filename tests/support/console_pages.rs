//! The pages of the console, each with something to show.

use rerouter::internals::console::PAGES;
use serde_json::{Value, json};

use super::gateway::Gateway;

/// A page that can be looked at.
pub struct Page {
    /// As the table of pages has it.
    pub path: &'static str,
    pub address: String,
    /// Whether it needs no session.
    pub is_open: bool,
}

impl Page {
    /// All of them: nothing is left out but files of the binary and what only leads elsewhere.
    /// Makes a key, a node and an agent to show beside these two captures, which have bodies.
    pub async fn all(gateway: &Gateway, capture: &str, other: &str) -> Vec<Page> {
        let make = async |path: &str, body: Value| {
            let made = gateway.manage("POST", path, &gateway.admin_key, Some(&body)).await;
            assert_eq!(made.status, 201, "{path}: {}", made.text());
            made.json()["id"].as_str().unwrap().to_owned()
        };
        let node = make("/v1/nodes", json!({"name": "shown"})).await;
        let agent = make("/v1/agents", json!({"name": "shown", "model": "auto"})).await;
        let users = gateway.manage("GET", "/v1/users", &gateway.admin_key, None).await.json();
        let key = gateway.create_key().await;
        let revision = gateway.revision().await;
        let filled = |path: &str| {
            let id = match path.split('/').nth(2) {
                Some("captures") => capture,
                Some("nodes") => &node,
                Some("agents") => &agent,
                Some("users") => users["data"][0]["id"].as_str().unwrap(),
                Some("keys") => &key.id,
                _ => "",
            };
            let part = if path.ends_with("/text") { "?part=request" } else { "" };
            let address = [
                ("{id}", id),
                ("{other}", other),
                ("{side}", "request"),
                ("{a}", &revision),
                ("{b}", &revision),
            ]
            .into_iter()
            .fold(path.to_owned(), |path, (name, value)| path.replace(name, value));
            assert!(!address.contains('{'), "the page {path} needs something to show");
            address + part
        };
        let pages = PAGES.iter().filter(|page| {
            let elsewhere = ["/", "/console"].contains(&page.path);
            page.method == "GET" && !elsewhere && !page.path.starts_with("/console/assets/")
        });
        pages
            .map(|page| Page {
                path: page.path,
                address: filled(page.path),
                is_open: page.policy.is_open(),
            })
            .collect()
    }
}
