//! Small pieces of HTML that pages share.

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;

use rerouter_records::Time;

pub(super) fn breaker_hint() -> Markup {
    html! {
        p.hint {
            "A breaker opens after failures. Then the target gets no requests, \
             but for a try from time to time."
        }
    }
}

/// A coloured word. `kind` is `ok`, `warn`, `bad`, `info`, or empty.
pub(super) fn badge(kind: &str, text: &str) -> Markup {
    let class = if kind.is_empty() { "badge".to_owned() } else { format!("badge badge-{kind}") };
    html! { span class=(class) { (text) } }
}

/// A time in RFC 3339; the browser shows it in its own time zone.
pub(super) fn time(at: &str) -> Markup {
    let shown = at.parse::<Timestamp>().map_or_else(
        |_| at.to_owned(),
        |parsed| parsed.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    );
    html! { time datetime=(at) { (shown) } }
}

pub(super) fn when(at: Option<Time>) -> Markup {
    html! { @if let Some(at) = at { (time(&at.to_string())) } }
}

/// The times of a record that are set, as entries of its list of facts.
pub(super) fn times(facts: &[(&str, Option<Time>)]) -> Markup {
    html! { @for (label, at) in facts { @if at.is_some() { dt { (label) } dd { (when(*at)) } } } }
}

/// An amount in US dollars, with enough digits to show that it is not zero.
pub(super) fn money(usd: f64) -> String {
    match usd.abs() {
        small if small == 0.0 || small >= 100.0 => format!("${usd:.2}"),
        small if small >= 0.0001 => format!("${usd:.4}"),
        _ => format!("${usd:.8}"),
    }
}

/// A number with its digits in groups of three.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push('\u{2009}');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with its noun: `1 request`, `2 requests`.
pub(super) fn some(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A time span: `340 ms`, `1.2 s`, `3.4 min`, `5.6 h`.
pub(super) fn duration_ms(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 120_000.0 => format!("{:.1} s", ms / 1_000.0),
        ms if ms < 7_200_000.0 => format!("{:.1} min", ms / 60_000.0),
        ms => format!("{:.1} h", ms / 3_600_000.0),
    }
}

/// A link with a shortened id. Ids differ mostly at their end.
pub(super) fn id_link(href: &str, id: &str) -> Markup {
    html! { a.mono href=(href) title=(id) { (short_id(id)) } }
}

/// A shortened id, with the whole id as its tooltip.
pub(super) fn id(id: &str) -> Markup {
    html! { span.mono title=(id) { (short_id(id)) } }
}

/// Names, separated by commas.
pub(super) fn names<'a>(names: impl IntoIterator<Item = &'a String>) -> Markup {
    html! {
        @for (at, name) in names.into_iter().enumerate() {
            @if at > 0 { ", " }
            span.mono { (name) }
        }
    }
}

/// A shortened id: its beginning and its end.
pub(super) fn short_id(id: &str) -> String {
    let chars: Vec<char> = id.chars().collect();
    match (chars.get(..6), chars.len().checked_sub(8).and_then(|at| chars.get(at..))) {
        (Some(first), Some(last)) if chars.len() > 16 => {
            first.iter().chain(&['…']).chain(last).collect()
        }
        _ => id.to_owned(),
    }
}

pub(super) fn copy(text: &str) -> Markup {
    html! { button.quiet.copy type="button" data-copy=(text) hidden { "Copy" } }
}

pub(super) fn secret_once(secret: &str) -> Markup {
    html! {
        div.secret {
            code.mono { (secret) }
            (copy(secret))
            p.hint { "It is shown this once: keep it now." }
        }
    }
}

/// A column of a table: the heading, the class of its cells (`mono`, `num`, `row` for the heading
/// of the row, or empty), and the content of a cell.
pub(super) struct Column<T>(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) fn(&T) -> Markup,
);

/// Headings of columns with text, and then of columns with numbers.
pub(super) fn headings(texts: &[&str], numbers: &[&str]) -> Markup {
    html! {
        @for heading in texts { th scope="col" { (heading) } }
        @for heading in numbers { th.num scope="col" { (heading) } }
    }
}

pub(super) fn table_of<'a, T: 'a>(
    label: &str,
    columns: impl IntoIterator<Item = &'a Column<T>>,
    rows: impl IntoIterator<Item = &'a T>,
) -> Markup {
    let columns: Vec<_> = columns.into_iter().collect();
    let headings = html! { @for Column(heading, class, _) in &columns {
        th scope="col" class=[(*class == "num").then_some("num")] { (heading) }
    } };
    let cells = |row: &T| {
        html! { @for Column(_, class, cell) in &columns { @match *class {
            "" => td { (cell(row)) },
            "row" => th scope="row" { (cell(row)) },
            class => td class=(class) { (cell(row)) },
        } } }
    };
    table(label, "", &headings, &html! { @for row in rows { tr { (cells(row)) } } })
}

/// As [`table_of`], or a text and a hint if there are no rows.
pub(super) fn list<'a, T>(
    label: &str,
    (nothing, hint): (&str, &str),
    columns: impl IntoIterator<Item = &'a Column<T>>,
    rows: &'a [T],
) -> Markup {
    match rows.is_empty() {
        true => empty(nothing, hint),
        false => table_of(label, columns, rows),
    }
}

/// A table in its own region, which scrolls sideways if the table is wide. `class` is a further
/// class of it, or empty.
pub(super) fn table(label: &str, class: &str, headings: &Markup, rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table class={ "table" @if !class.is_empty() { " " (class) } } {
                thead { tr { (headings) } }
                tbody { (rows) }
            }
        }
    }
}

/// A part of a page that is loaded again every few seconds.
pub(super) fn refreshed(id: &str, here: &str, every: &str, part: &Markup) -> Markup {
    html! { div id=(id) hx-get=(here) hx-trigger=(every) data-quiet="" { (part) } }
}

pub(super) fn pager(next: Option<&str>) -> Markup {
    html! {
        @if let Some(next) = next {
            nav.pager aria-label="More of the list" { a.button href=(next) rel="next" { "Next" } }
        }
    }
}

pub(super) fn empty(text: &str, hint: &str) -> Markup {
    html! {
        div.empty {
            p { (text) }
            @if !hint.is_empty() { p.muted { (hint) } }
        }
    }
}

/// A message; `kind` is `ok`, `warn`, `bad` or `info`.
pub(super) fn notice(kind: &str, message: &Markup) -> Markup {
    let role = if kind == "bad" { "alert" } else { "status" };
    html! { div class=(format!("notice {kind}")) role=(role) { (message) } }
}

/// A text with its `names` in fixed width.
pub(super) fn prose(text: &str) -> Markup {
    let is_paired = text.matches('`').count().is_multiple_of(2);
    html! {
        @if is_paired {
            @for (at, part) in text.split('`').enumerate() {
                @if at % 2 == 0 { (part) } @else { code { (part) } }
            }
        } @else { (text) }
    }
}

/// A text as it is, in fixed width.
pub(super) fn code(text: &str) -> Markup {
    html! { pre.code tabindex="0" { code { (text) } } }
}

/// A button that asks before it acts. It needs no script.
pub(super) fn confirm_form(action: &str, label: &str, question: &str) -> Markup {
    html! {
        details.confirm {
            summary.button {
                span.confirm-ask { (label) }
                span.confirm-cancel { "Cancel" }
            }
            form method="post" action=(action) {
                p { (question) }
                button.bad { (label) }
            }
        }
    }
}

/// An input with its label; `name` is the id of the input.
pub(super) fn field(label: &str, name: &str, input: &Markup, hint: &str) -> Markup {
    html! {
        div.field {
            label for=(name) { (label) }
            (input)
            @if !hint.is_empty() { p.hint id=(format!("{name}-hint")) { (hint) } }
        }
    }
}

#[derive(Serialize)]
pub(super) struct Chart {
    pub(super) title: String,
    /// Seconds since 1970.
    pub(super) x: Vec<i64>,
    pub(super) series: Vec<ChartSeries>,
    /// `count`, `usd`, `ms`, `share`: how values are written.
    pub(super) unit: &'static str,
}

/// One line of a chart, with as many values as there are times.
#[derive(Serialize)]
pub(super) struct ChartSeries {
    pub(super) label: String,
    pub(super) values: Vec<Option<f64>>,
}

impl Chart {
    fn shown(&self, value: f64) -> String {
        match self.unit {
            "usd" => money(value),
            "ms" => duration_ms(value),
            "share" => format!("{:.1} %", value * 100.0),
            _ if value >= 0.0 && value.fract() == 0.0 && value < 1e15 => count(value as u64),
            _ => format!("{value:.2}"),
        }
    }
}

/// A chart, drawn by `charts.js` from its data, and the same as a table.
pub(super) fn chart(chart: &Chart) -> Markup {
    figure(chart, false)
}

/// A chart with bars. The bars of all series stand on each other.
pub(super) fn bar_chart(chart: &Chart) -> Markup {
    figure(chart, true)
}

fn figure(chart: &Chart, bars: bool) -> Markup {
    let data = serde_json::to_string(chart).unwrap_or_default();
    let at = |seconds: i64| {
        Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |at| at.to_string())
    };
    html! {
        figure.chart {
            figcaption { (chart.title) }
            div.plot data-chart=(data) data-bars[bars] aria-hidden="true" {}
            details {
                summary { "As a table" }
                div.scroll tabindex="0" {
                    table.table {
                        thead {
                            tr {
                                th scope="col" { "Time" }
                                @for series in &chart.series {
                                    th.num scope="col" { (series.label) }
                                }
                            }
                        }
                        tbody {
                            @for (row, seconds) in chart.x.iter().enumerate() {
                                tr {
                                    th scope="row" { (time(&at(*seconds))) }
                                    @for series in &chart.series {
                                        td.num {
                                            @if let Some(Some(value)) = series.values.get(row) {
                                                (chart.shown(*value))
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        for (usd, text) in
            [(0.0, "$0.00"), (0.0123, "$0.0123"), (1.5, "$1.5000"), (123.456, "$123.46")]
        {
            assert_eq!(money(usd), text);
        }
        assert_eq!(money(0.000_012), "$0.00001200");
        for (number, text) in [(0, "0"), (999, "999"), (1_234_567, "1\u{2009}234\u{2009}567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!([some(1, "request"), some(0, "request")], ["1 request", "0 requests"]);
        for (ms, text) in [(0.4, "0.4 ms"), (340.0, "340 ms"), (1_240.0, "1.2 s")] {
            assert_eq!(duration_ms(ms), text);
        }
    }

    #[test]
    fn ids_keep_their_ends() {
        assert_eq!(short_id("req_0123456789abcdefghij"), "req_01…cdefghij");
        assert_eq!(short_id("short"), "short");
        assert_eq!(short_id("ä".repeat(20).as_str()).chars().count(), 15);
    }

    #[test]
    fn names_in_backticks_are_code() {
        for (text, shown) in [
            ("plain", "plain"),
            ("`a` and `<b>`.", "<code>a</code> and <code>&lt;b&gt;</code>."),
            ("a lone ` stays", "a lone ` stays"),
        ] {
            assert_eq!(prose(text).into_string(), shown);
        }
    }

    #[test]
    fn what_comes_from_outside_is_text() {
        let evil = "</title><script>x</script>\" onload=\"x";
        for piece in [
            badge("ok", evil),
            time(evil),
            id_link("/console/", evil),
            copy(evil),
            secret_once(evil),
            empty(evil, evil),
            code(evil),
            prose(evil),
            prose(&format!("`{evil}`")),
            confirm_form("/console/", evil, evil),
            field(evil, "name", &html! {}, evil),
        ] {
            let html = piece.into_string();
            assert!(!html.contains("<script") && !html.contains("\" onload"), "{html}");
        }
    }
}
