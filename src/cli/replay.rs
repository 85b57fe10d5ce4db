//! `rerouter replay`: the captures of a gateway from a shell, and what becomes of them under another document.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::client::{Answer, Client, Failure, Reach, refused};
use super::filters::Filters;
use super::output::say;
use super::table::{Table, clean};
use super::{corpus, evaluate, import};
use crate::bounds;
use crate::clock::Clock;
use crate::config::Env;
use crate::id::RequestId;

/// Where captures are.
pub(super) const CAPTURES: &str = "/v1/router/replay";

/// What is asked of which gateway.
#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List captures, newest first.
    List {
        #[command(flatten)]
        filters: Filters,
        /// How many at most.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
        /// One JSON object a line instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Show one capture, whole.
    Show {
        /// The capture.
        id: String,
        /// The JSON of the API.
        #[arg(long)]
        json: bool,
    },
    /// Run a capture again under the live document, and compare.
    Reroute {
        /// The capture.
        id: String,
        /// Only decide; no provider is asked.
        #[arg(long)]
        dry_run: bool,
        /// A name for this call: a repetition within ten minutes gives the same answer and is not paid twice.
        #[arg(long, value_name = "TEXT")]
        idempotency_key: Option<String>,
        /// The JSON of the API, with the comparison in `compare`.
        #[arg(long)]
        json: bool,
    },
    /// What a document would have done to captured traffic; with bounds, a gate.
    Evaluate(Box<evaluate::Arguments>),
    /// Write captures whole, one a line, newest first: a corpus that `evaluate --corpus` decides again without a gateway.
    Export {
        #[command(flatten)]
        filters: Filters,
        /// How many at most; all that match where nothing is said.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        /// The file to write, which others may not read; `-` is standard output.
        #[arg(long, value_name = "FILE", default_value = "-")]
        out: String,
    },
    /// Make the captures of a file, as `export` writes it, a gateway's; needs an admin. Those that it has are left as they are.
    Import {
        /// The file.
        file: PathBuf,
        /// Whose they are to be; else they stay their owners'.
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// The sums as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Runs it.
pub(super) fn run(arguments: Arguments, env: &Env<'_>) -> ExitCode {
    let now = Clock::System.now();
    let Arguments { reach, command } = arguments;
    let client = || Client::new(&reach, env);
    let done = match command {
        Command::List { filters, limit, json } => {
            client().and_then(|client| list(&client, &filters, now, limit, json))
        }
        Command::Show { id, json } => client().and_then(|client| show(&client, &id, json)),
        Command::Reroute { id, dry_run, idempotency_key, json } => client()
            .and_then(|client| reroute(&client, &id, dry_run, idempotency_key.as_deref(), json)),
        Command::Evaluate(asked) => evaluate::run(&asked, &client, env, now),
        Command::Export { filters, limit, out } => {
            client().and_then(|client| corpus::export(&client, &filters, now, limit, &out))
        }
        Command::Import { file, owner, json } => {
            client().and_then(|client| import::import(&client, &file, owner.as_deref(), json))
        }
    };
    let (code, why) = match done {
        Ok(()) | Err(Failure::Enough) => return ExitCode::SUCCESS,
        Err(Failure::Bounds) => return ExitCode::from(1),
        Err(Failure::Wrong(why)) => (2, why),
        Err(Failure::Gateway(why)) => (3, why),
    };
    // Nobody is left to tell when standard error is gone too.
    let _ = writeln!(std::io::stderr(), "{}", clean(&why));
    ExitCode::from(code)
}

/// The path of a capture.
pub(super) fn path(id: &str) -> Result<String, Failure> {
    match RequestId::parse(id) {
        Some(id) => Ok(format!("{CAPTURES}/{id}")),
        None => Err(Failure::Wrong("the id of a capture is `req_` and 26 characters".to_owned())),
    }
}

/// Summaries page by page, newest first, until there are no more, as many as are wanted, or `each` has enough. Gives how many
/// cannot be read.
pub(super) fn summaries(
    client: &Client,
    query: &[(&'static str, String)],
    limit: u64,
    mut each: impl FnMut(&Value) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (mut left, mut after, mut unreadable) = (limit, None::<String>, 0);
    while left > 0 {
        let mut query = query.to_vec();
        query.push(("limit", left.min(bounds::PAGE_MAX as u64).to_string()));
        query.extend(after.take().map(|after| ("after", after)));
        let page = client.get(CAPTURES, &query)?.good()?.json()?;
        for summary in page.get("data").and_then(Value::as_array).into_iter().flatten() {
            each(summary)?;
            left = left.saturating_sub(1);
        }
        unreadable += page.get("unreadable").and_then(Value::as_u64).unwrap_or(0);
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    Ok(unreadable)
}

fn list(
    client: &Client,
    filters: &Filters,
    now: Timestamp,
    limit: u64,
    json: bool,
) -> Result<(), Failure> {
    let query = filters.query(now)?;
    let tell_of = |unreadable: u64| {
        if unreadable > 0 {
            corpus::tell(&format!("{unreadable} captures cannot be read\n"));
        }
    };
    if json {
        return summaries(client, &query, limit, |summary| say(&format!("{summary}\n")))
            .map(tell_of);
    }
    let table = Table::new(&[
        "TIME",
        "ID",
        "STATE",
        "STATUS",
        "ASKED FOR",
        "SERVED BY",
        "RULE",
        "TOKENS",
        "COST",
        "MS",
    ]);
    // A narrow terminal has the id and the time of each, then what became of it.
    let mut table = table.worth(&[1, 0, 3, 5, 4, 2, 6, 8, 9, 7], 2);
    let unreadable = summaries(client, &query, limit, |summary| {
        table.row(row(summary));
        Ok(())
    })?;
    tell_of(unreadable);
    say(&if table.is_empty() { "no captures\n".to_owned() } else { table.text() })
}

fn row(summary: &Value) -> [String; 10] {
    let at = |pointer: &str| word(summary.pointer(pointer));
    let seconds = at("/created_at");
    [
        seconds.split('.').next().unwrap_or_default().to_owned(),
        at("/id"),
        at("/state"),
        at("/status"),
        at("/model"),
        target(summary.get("served")),
        rule(summary.get("decision")),
        at("/usage/total_tokens"),
        dollars(summary.get("cost_usd").and_then(Value::as_f64)),
        at("/latency/total_ms"),
    ]
}

/// A value in a word; `-` where there is none.
pub(super) fn word(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// An amount of money; `-` where it is not known.
pub(super) fn dollars(amount: Option<f64>) -> String {
    amount.map_or_else(|| "-".to_owned(), |amount| format!("${amount:.6}"))
}

fn target(of: Option<&Value>) -> String {
    match of.filter(|of| of.is_object()) {
        Some(of) => format!("{}/{}", word(of.get("provider")), word(of.get("model"))),
        None => "-".to_owned(),
    }
}

fn rule(decision: Option<&Value>) -> String {
    match decision.filter(|decision| decision.is_object()) {
        Some(decision) => {
            format!("{}.{}", word(decision.get("recipe")), word(decision.get("rule")))
        }
        None => "-".to_owned(),
    }
}

fn show(client: &Client, id: &str, json: bool) -> Result<(), Failure> {
    let answer = client.get(&path(id)?, &[])?.good()?;
    if json {
        return say(&format!("{}\n", answer.text));
    }
    let capture = answer.json()?;
    let at = |pointer: &str| word(capture.pointer(pointer));
    let mut facts = Table::new(&["FIELD", "VALUE"]);
    for name in [
        "id",
        "created_at",
        "state",
        "status",
        "error",
        "endpoint",
        "model",
        "user",
        "key",
        "stream",
        "replay_of",
        "shadow_of",
    ] {
        facts.row([name.to_owned(), word(capture.get(name))]);
    }
    facts.row(["rule".into(), rule(capture.get("decision"))]);
    facts.row(["strategy".into(), at("/decision/strategy")]);
    facts.row(["revision".into(), at("/decision/revision")]);
    facts.row(["served by".into(), target(capture.get("served"))]);
    facts.row([
        "tokens".into(),
        format!("{} + {}", at("/usage/prompt_tokens"), at("/usage/completion_tokens")),
    ]);
    facts.row(["cost".into(), dollars(capture.get("cost_usd").and_then(Value::as_f64))]);
    facts.row([
        "latency".into(),
        format!("{} ms, decided in {} us", at("/latency/total_ms"), at("/latency/routing_us")),
    ]);
    facts.row([
        "replayable".into(),
        if at("/not_replayable") == "-" {
            "yes".into()
        } else {
            format!("no: {}", at("/not_replayable"))
        },
    ]);
    say(&facts.text())?;
    let listed = |pointer: &str| {
        capture.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let mut candidates = Table::new(&["CANDIDATE", "ELIGIBLE"]);
    for candidate in listed("/decision/candidates") {
        let eligible = candidate
            .get("reason")
            .filter(|reason| !reason.is_null())
            .map_or("yes".to_owned(), |why| format!("no: {}", word(Some(why))));
        candidates.row([target(Some(&candidate)), eligible]);
    }
    let mut attempts = Table::new(&["ATTEMPT", "STATUS", "ERROR", "MS"]);
    for attempt in listed("/decision/attempts") {
        attempts.row([
            target(Some(&attempt)),
            word(attempt.get("status")),
            word(attempt.get("error")),
            word(attempt.get("duration_ms")),
        ]);
    }
    for table in [candidates, attempts].iter().filter(|table| !table.is_empty()) {
        say(&format!("\n{}", table.text()))?;
    }
    say(&format!("\nREQUEST\n{}\n", body(&capture, "request")))?;
    say(&format!("\nRESPONSE\n{}\n", body(&capture, "response")))
}

/// A body, for people: a stream as what it amounts to.
fn body(capture: &Value, side: &str) -> String {
    let at = |name: &str| {
        capture.get(side).and_then(|side| side.get(name)).filter(|value| !value.is_null())
    };
    let text = match (at("assembled"), at("body"), at("body_base64")) {
        (Some(assembled), ..) => assembled.to_string(),
        (None, Some(body), _) => word(Some(body)),
        (None, None, Some(_)) => "(bytes that are no text; --json has them)".to_owned(),
        _ => "(not captured)".to_owned(),
    };
    let cut = if at("truncated") == Some(&Value::Bool(true)) { "\n(truncated)" } else { "" };
    clean(&text) + cut
}

fn reroute(
    client: &Client,
    id: &str,
    dry_run: bool,
    idempotency_key: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let path = path(id)?;
    let query = if dry_run { vec![("dry_run", "true".to_owned())] } else { Vec::new() };
    let answer = client.post(&format!("{path}/reroute"), &query, idempotency_key)?;
    let Answer { status, text, .. } = &answer;
    let told = answer.json().unwrap_or_default();
    // A provider that failed has its replay, which is worth a look.
    if *status != 200 && told.get("new_id").is_none() {
        return Err(refused(*status, text));
    }
    let compared = match told.get("new_id").and_then(Value::as_str) {
        Some(new) => Some(client.get(&format!("{path}/compare/{new}"), &[])?)
            .filter(|answer| answer.status == 200),
        None => None,
    };
    let compared = match compared {
        Some(answer) => answer.json()?,
        None => decisions(&told),
    };
    let said = if json {
        let mut told = told;
        if let Some(fields) = told.as_object_mut() {
            fields.insert("compare".to_owned(), compared);
        }
        say(&format!("{told}\n"))
    } else {
        let of = told.get("new_id").and_then(Value::as_str).unwrap_or("a dry run");
        say(&format!("{of} of {id}\n\n{}", side_by_side(&compared)))
    };
    if *status == 200 { said } else { Err(refused(*status, text)) }
}

/// Both decisions, where there is no new capture to compare with.
fn decisions(told: &Value) -> Value {
    let rows = ["provider", "model", "recipe", "rule", "revision"].map(|name| {
        let part =
            |pointer: &str| told.pointer(&format!("{pointer}/{name}")).cloned().unwrap_or_default();
        let (a, b) = (part("/original/decision"), part("/decision"));
        json!({ "field": format!("decision.{name}"), "equal": a == b, "a": a, "b": b })
    });
    json!({ "fields": rows })
}

fn side_by_side(compared: &Value) -> String {
    let mut table = Table::new(&["FIELD", "ORIGINAL", "NEW", ""]);
    for field in compared.get("fields").and_then(Value::as_array).into_iter().flatten() {
        let mark = match field.get("equal").and_then(Value::as_bool) {
            Some(true) => "",
            Some(false) => "differs",
            None => "not known",
        };
        table.row([
            word(field.get("field")),
            word(field.get("a")),
            word(field.get("b")),
            mark.to_owned(),
        ]);
    }
    table.text()
}
