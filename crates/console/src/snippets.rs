//! Client set-up, taken from docs/clients.md, so that the docs and the console say the same, and
//! the tests of that page also test what the console shows. `/console/clients` shows it without a
//! key, and the page of a new key with that key.

use std::sync::LazyLock;

use http::header::HOST;
use maud::{Markup, html};

use super::call::PageCall;
use super::layout::Tab;
use super::{pieces, playground};
use rerouter_base::interface::Interface;
use rerouter_core::api::ApiResult;

const PAGE: &str = include_str!("../../../docs/clients.md");
/// The heading after the last client.
const END: &str = "What the gateway changes";
/// Addresses in the docs, which the gateway's own replaces.
const ORIGINS: [&str; 2] = ["http://127.0.0.1:8080", "https://gw.example.com"];

struct Snippet {
    title: &'static str,
    parts: Vec<SnippetPart>,
}

enum SnippetPart {
    Words(String),
    Code(String),
}

struct Filling<'a> {
    origin: String,
    /// If `None`, the variable `KEY` stays.
    key: Option<&'a str>,
    model: String,
}

static SNIPPETS: LazyLock<Vec<Snippet>> = LazyLock::new(|| {
    let sections = PAGE.split("\n## ").skip(1).take_while(|section| !section.starts_with(END));
    sections.filter_map(Snippet::read).collect()
});

impl Snippet {
    /// Reads a section of the docs: its text and code, up to an example of a routing document.
    fn read(section: &'static str) -> Option<Snippet> {
        let (title, rest) = section.split_once('\n')?;
        let rest = rest.split("<!-- routing document -->").next().unwrap_or_default();
        let (mut parts, mut code) = (Vec::new(), false);
        for block in rest.split("```") {
            if code {
                let text = block.split_once('\n').map_or("", |(_, text)| text);
                parts.push(SnippetPart::Code(text.trim_end().to_owned()));
            } else {
                let lines = block.lines().filter(|line| !line.starts_with("<!--"));
                let text = lines.collect::<Vec<_>>().join("\n");
                let paragraphs = text.split("\n\n").map(str::trim).filter(|text| !text.is_empty());
                parts.extend(paragraphs.map(|text| SnippetPart::Words(text.to_owned())));
            }
            code = !code;
        }
        // The sentence that announces the routing document is dropped, too.
        parts.pop_if(|part| matches!(part, SnippetPart::Words(text) if text.ends_with(':')));
        (!parts.is_empty()).then_some(Snippet { title, parts })
    }
}

impl Filling<'_> {
    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for origin in ORIGINS {
            text = text.replace(origin, &self.origin);
        }
        text = text.replace("\"auto\"", &format!("\"{}\"", self.model));
        text = text.replace("openai/auto", &format!("openai/{}", self.model));
        let Some(key) = self.key else { return text };
        text.replace("import os\n", "")
            .replace("os.environ[\"KEY\"]", &format!("\"{key}\""))
            .replace("process.env.KEY", &format!("\"{key}\""))
            .replace("$KEY", key)
            .replace("rtr_…", key)
    }
}

/// `GET /console/clients`
pub(super) async fn show(call: PageCall<'_>) -> ApiResult {
    let filling = Filling { origin: origin(&call), key: None, model: model(&call).await };
    let main = html! {
        p {
            "A client needs the address below and a ROUTER key. "
            a href="/console/keys/new?interface=router" { "A new key's page" }
            " shows this with the key filled in."
        }
        (snippets(&filling))
    };
    call.page("Set up a client", Tab::Keys, main)
}

/// The set-up of clients with a key that was just made.
pub(super) async fn filled_page(call: &PageCall<'_>, key: &str) -> Markup {
    let filling = Filling { origin: origin(call), key: Some(key), model: model(call).await };
    html! {
        h2 { "Set up a client" }
        (snippets(&filling))
    }
}

/// A first call with a key of PIN or AGENT.
pub(super) fn first_call(call: &PageCall<'_>, interface: Interface, key: &str) -> Markup {
    let path = match interface {
        Interface::Agent => "/v1/agents",
        Interface::Pin | Interface::Router => "/v1/auth/me",
    };
    let line = format!("curl -sS {}{path} -H \"Authorization: Bearer {key}\"", origin(call));
    html! {
        h2 { "Try it" }
        (block(&line))
    }
}

fn snippets(filling: &Filling<'_>) -> Markup {
    html! {
        dl .access-facts .card {
            dt { "Base URL of OpenAI's API" }
            dd .mono { (filling.origin) "/v1" (pieces::copy(&format!("{}/v1", filling.origin))) }
            dt { "Base URL of Anthropic's API" }
            dd .mono { (filling.origin) (pieces::copy(&filling.origin)) }
        }
        @for (at, snippet) in SNIPPETS.iter().enumerate() {
            details .card .snippet open[at == 0] {
                summary { (snippet.title) }
                @for part in &snippet.parts {
                    @match part {
                        SnippetPart::Words(text) => p { (inline(&filling.fill(text))) },
                        SnippetPart::Code(text) => (block(&filling.fill(text))),
                    }
                }
            }
        }
    }
}

/// Code with a button that copies it.
pub(super) fn block(text: &str) -> Markup {
    html! {
        div .snippet-code { (pieces::copy(text)) (pieces::code(text)) }
    }
}

/// Renders the inline markup of the docs: code, and the text of links.
fn inline(text: &str) -> Markup {
    html! {
        @for (at, piece) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (piece) } } @else { (without_links(piece)) }
        }
    }
}

fn without_links(text: &str) -> String {
    let mut pieces = text.split("](");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out.push_str(piece.split_once(')').map_or(piece, |(_, rest)| rest));
    }
    out.replace(['[', '*'], "")
}

/// The address at which clients reach the gateway: its public URL, else the one of this request.
pub(super) fn origin(call: &PageCall<'_>) -> String {
    if let Some(public) = &call.app.server.public_url {
        return public.trim_end_matches('/').to_owned();
    }
    let host = call.request.uri().authority().map(|authority| authority.as_str());
    let host =
        host.or_else(|| call.request.headers().get(HOST).and_then(|host| host.to_str().ok()));
    // A shell may read the address.
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-._:[]".contains(letter);
    let host: String = host.unwrap_or("127.0.0.1:8080").chars().filter(|c| allowed(*c)).collect();
    let scheme = if call.client().secure { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// A model to ask for: `auto` if it is served, else the first name that needs no quotes anywhere.
async fn model(call: &PageCall<'_>) -> String {
    let mut names = playground::models(call).await.unwrap_or_default();
    names.retain(|name| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte))
    });
    let first = names.first().filter(|_| !names.iter().any(|name| name == "auto"));
    first.map_or_else(|| "auto".to_owned(), String::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_of_the_docs_is_there_with_the_key_filled_in() {
        let titles: Vec<&str> = SNIPPETS.iter().map(|snippet| snippet.title).collect();
        for title in [
            "curl",
            "OpenAI SDK, Python",
            "OpenAI SDK, Node",
            "Anthropic SDK",
            "Claude Code",
            "Codex",
            "LiteLLM",
        ] {
            assert!(titles.contains(&title), "{title} is not in {titles:?}");
        }
        let filling = Filling {
            origin: "https://own.test".to_owned(),
            key: Some("rtr_secret"),
            model: "fast".to_owned(),
        };
        for Snippet { title, parts } in SNIPPETS.iter() {
            let code = parts.iter().filter_map(|part| match part {
                SnippetPart::Code(text) => Some(filling.fill(text)),
                SnippetPart::Words(_) => None,
            });
            let code: String = code.collect();
            for left in
                ["127.0.0.1", "gw.example.com", "environ", "process.env", "$KEY", "…", "\"auto\""]
            {
                assert!(!code.contains(left), "{title} still has {left}:\n{code}");
            }
            assert!(code.is_empty() || code.contains("rtr_secret"), "{title}:\n{code}");
        }
    }

    #[test]
    fn words_are_shown_without_their_markup() {
        let shown = inline("In `a`, see [the *page*](b.md#c) and `<d>`.").into_string();
        assert_eq!(shown, "In <code>a</code>, see the page and <code>&lt;d&gt;</code>.");
    }
}
