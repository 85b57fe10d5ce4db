//! The filters of the list of captures: their form, and the query of the API for them.

use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};

use crate::call::PageCall;
use crate::links::with_query;
use crate::pieces::field;
use rerouter_base::clock::rfc3339;
use rerouter_base::error::RefusalReason;
use rerouter_records::replay::ReplayQuery;
use rerouter_records::schema::names;

/// The page's parameter with the id of a capture to compare with another one from the list.
pub(super) const COMPARE: &str = "compare";
/// The page's parameter with the id of a request to open.
pub(super) const ID: &str = "id";
/// Spans of time: value of the parameter, label, seconds.
const SPANS: [(&str, &str, u64); 4] = [
    ("15m", "last 15 minutes", 15 * 60),
    ("1h", "last hour", 60 * 60),
    ("24h", "last 24 hours", 24 * 60 * 60),
    ("7d", "last 7 days", 7 * 24 * 60 * 60),
];
/// An option of the form: its value, its label, and the API's parameter and value for it.
type Choice = (&'static str, &'static str, &'static str, &'static str);
const OUTCOMES: [Choice; 9] = [
    ("errors", "errors (4xx, 5xx)", "status", "4xx,5xx"),
    ("completed", "completed", "state", "completed"),
    ("failed", "failed", "state", "failed"),
    ("aborted", "aborted by the client", "state", "aborted"),
    ("refused", "refused by the gateway", "state", "refused"),
    ("limit", "refused by a limit", "refused", "limit"),
    ("target", "refused: no target", "refused", "target"),
    ("model", "refused: unknown model", "refused", "model"),
    ("request", "refused for what it asks", "refused", "request"),
];
const KINDS: [Choice; 3] = [
    ("requests", "without replays", "replay", "false"),
    ("replays", "replays", "replay", "true"),
    ("shadows", "shadows", "shadow", "true"),
];
const STREAMS: [Choice; 2] =
    [("yes", "streamed", "stream", "true"), ("no", "not streamed", "stream", "false")];

/// Parameters of the API that the page takes under the same names.
fn shared() -> impl Iterator<Item = &'static str> {
    static PARAMETERS: LazyLock<Vec<String>> = LazyLock::new(names::<ReplayQuery>);
    let others = ["limit", "after", "since", "until"];
    PARAMETERS.iter().map(String::as_str).filter(move |name| !others.contains(name))
}

/// The filters in the page's query, not yet checked.
pub(super) struct ListFilters {
    /// The page's parameters with their values, without empty ones.
    given: Vec<(&'static str, String)>,
    /// The cursor in the list, as the API returned it.
    pub(super) after: Option<String>,
}

impl ListFilters {
    pub(super) fn read(call: &PageCall<'_>) -> Self {
        let own = ["span", "from", "to", "outcome", "kind", "streamed", COMPARE];
        let value = |name| call.query(name).map(|text: String| text.trim().to_owned());
        let given = own.into_iter().chain(shared());
        let given = given.filter_map(|name| Some((name, value(name)?)));
        let given = given.filter(|(_, value)| !value.is_empty()).collect();
        ListFilters { given, after: value("after").filter(|after| !after.is_empty()) }
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.given.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Whether the index of captures answers this query alone, which makes the query cheap.
    pub(super) fn asks_index(&self) -> bool {
        let searched = ["streamed", "stream", "replay", "refused"];
        searched.iter().all(|name| self.get(name).is_empty())
            && !matches!(self.get("kind"), "requests" | "replays")
            && RefusalReason::parse(self.get("outcome")).is_none()
    }

    /// The path and query of the API for these filters.
    pub(super) fn asked(&self, now: Timestamp, limit: usize) -> String {
        let mut asked: Vec<(&str, String)> = vec![("limit", limit.to_string())];
        let chosen = |name: &str, choices: &[Choice]| {
            let chosen = choices.iter().find(|(word, ..)| *word == self.get(name));
            chosen.map(|(_, _, name, value)| (*name, (*value).to_owned()))
        };
        let choices =
            [chosen("outcome", &OUTCOMES), chosen("kind", &KINDS), chosen("streamed", &STREAMS)];
        // A parameter of the API that the page's query has itself wins over a choice.
        let is_shared = |name: &str| shared().any(|own| own == name);
        let written = |name: &str| is_shared(name) && !self.get(name).is_empty();
        asked.extend(choices.into_iter().flatten().filter(|(name, _)| !written(name)));
        let shared = self.given.iter().filter(|(name, _)| is_shared(name));
        asked.extend(shared.cloned());
        let span = SPANS.iter().find(|(word, ..)| *word == self.get("span"));
        let since =
            span.and_then(|(.., seconds)| now.checked_sub(Duration::from_secs(*seconds)).ok());
        let since = since.map(rfc3339).or_else(|| in_utc(self.get("from")));
        asked.extend(since.map(|since| ("since", since)));
        asked.extend(in_utc(self.get("to")).map(|until| ("until", until)));
        asked.extend(self.after.clone().map(|after| ("after", after)));
        let asked: Vec<(&str, &str)> =
            asked.iter().map(|(name, value)| (*name, value.as_str())).collect();
        with_query("/v1/router/replay", &asked)
    }

    /// The address of the list with these filters, from the cursor `after` on.
    pub(super) fn address(&self, after: Option<&str>) -> String {
        let given = self.given.iter().map(|(name, value)| (*name, value.as_str()));
        let query: Vec<_> = given.chain(after.map(|after| ("after", after))).collect();
        with_query("/console/captures", &query)
    }

    /// It works without a script.
    pub(super) fn form(&self, is_admin: bool) -> Markup {
        let more = [
            "recipe",
            "model",
            "decided_provider",
            "decided_model",
            "status",
            "key",
            "owner",
            "streamed",
            "kind",
            "from",
            "to",
            "replay_of",
            "shadow_of",
        ];
        let open = more.iter().any(|name| !self.get(name).is_empty());
        let input = |label, name, hint| {
            let value = self.get(name);
            field(label, name, &html! { input #(name) name=(name) value=(value); }, hint)
        };
        let spans = SPANS.iter().map(|(word, label, _)| (*word, *label));
        html! {
            form.cap-filters.card method="get" action="/console/captures" role="search"
                aria-label="Filter requests" {
                @let compare = self.get(COMPARE);
                @if !compare.is_empty() { input type="hidden" name=(COMPARE) value=(compare); }
                div.cap-fields {
                    (self.select("Time", "span", spans))
                    (input("Alias", "alias", ""))
                    (input("Answered by provider", "provider", ""))
                    (input("Request id", ID, "Opens the request: req_…"))
                    (self.choose("Outcome", "outcome", &OUTCOMES))
                }
                details open[open] {
                    summary { "More filters" }
                    div.cap-fields {
                        (input("Answered by model", "model", ""))
                        (input("Recipe", "recipe", ""))
                        (input("First choice: provider", "decided_provider", ""))
                        (input("First choice: model", "decided_model", ""))
                        (input("Status", "status", "200, 4xx, or several: 429,5xx"))
                        (input("Key", "key", "key_…"))
                        @if is_admin { (input("User", "owner", "usr_…")) }
                        (self.choose("Streamed", "streamed", &STREAMS))
                        (self.choose("Kind", "kind", &KINDS))
                        (self.moment("From (UTC)", "from"))
                        (self.moment("To (UTC)", "to"))
                        (input("Replays of", "replay_of", "req_…"))
                        (input("Shadow of", "shadow_of", "req_…"))
                    }
                }
                div.row {
                    button.primary { "Filter" }
                    @if !self.is_empty() { a.button href="/console/captures" { "Clear" } }
                }
            }
        }
    }

    fn choose(&self, label: &str, name: &str, choices: &[Choice]) -> Markup {
        self.select(label, name, choices.iter().map(|(word, label, ..)| (*word, *label)))
    }

    fn select<'a>(
        &self,
        label: &str,
        name: &str,
        options: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Markup {
        let select = html! {
            select #(name) name=(name) {
                option value="" { "any" }
                @for (word, label) in options {
                    option value=(word) selected[self.get(name) == word] { (label) }
                }
            }
        };
        field(label, name, &select, "")
    }

    fn moment(&self, label: &str, name: &str) -> Markup {
        let value = self.get(name);
        let input = html! {
            input #(name) name=(name) type="datetime-local" step="1" value=(value);
        };
        field(label, name, &input, "")
    }
}

/// A time of a form as RFC 3339. Text that has a time zone, or is not a time, is returned
/// unchanged.
fn in_utc(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if text.parse::<Timestamp>().is_ok() {
        return Some(text.to_owned());
    }
    Some(text.parse::<jiff::civil::DateTime>().map_or(text.to_owned(), |at| format!("{at}Z")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_base::clock::fixtures::at;

    fn filters(given: &[(&'static str, &str)]) -> ListFilters {
        let given = given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        ListFilters { given, after: None }
    }

    #[test]
    fn filters_become_a_query_of_the_api() {
        for (given, asked) in [
            (&[][..], ""),
            (&[("alias", "a&b"), ("outcome", "errors")], "&status=4xx%2C5xx&alias=a%26b"),
            (&[("status", "429"), ("outcome", "errors")], "&status=429"),
            (&[("outcome", "failed"), ("kind", "replays")], "&state=failed&replay=true"),
            (&[("outcome", "model")], "&refused=model"),
            (&[("span", "1h")], "&since=2025-11-24T15%3A00%3A00.000000Z"),
            (&[("from", "2025-11-24T15:00")], "&since=2025-11-24T15%3A00%3A00Z"),
            (&[("to", "nonsense")], "&until=nonsense"),
        ] {
            let expected = format!("/v1/router/replay?limit=50{asked}");
            assert_eq!(filters(given).asked(at(0), 50), expected, "{given:?}");
        }
    }

    #[test]
    fn the_address_keeps_the_filters() {
        let filters = filters(&[("alias", "x y"), ("outcome", "errors")]);
        assert_eq!(
            filters.address(Some("req_1")),
            "/console/captures?alias=x%20y&outcome=errors&after=req_1"
        );
        assert!(filters.form(false).into_string().contains("value=\"x y\""));
    }
}
