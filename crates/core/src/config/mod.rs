//! Reads and checks the server document and the routing document, and reports every problem with
//! its place. The environment is read through a function.

mod authorities;
mod check;
mod credentials;
mod egress;
mod hosts;
mod net;
mod positions;
#[warn(missing_docs)]
mod problem;
mod settings;
mod source;
mod telemetry;
mod values;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use authorities::{expiry, expiry_of};
pub use check::CheckReport;
pub use egress::{Egress, EgressPeer, EgressRefusal};
pub use net::Net;
pub use problem::Problem;
pub use settings::Server;
pub use settings::{CaptureSettings, Listener, TlsFiles};
pub use source::{
    DEMO, NO_FILE, OPTIONS, demo_routing, load_routing, routing_path, server_source, stored_routing,
};
pub use source::{DocumentSource, load};

use positions::Positions;
use problem::problems;
use rerouter_captures::redaction::is_in_query;
use rerouter_document::{
    Diagnostics, Field, Finding, KeyEntry, Lookup, Parsed, TreeValue, VariableReader, canonical,
    expand_tree, keys, matches_pattern, parse, placeholder, schema, schema_text, whole,
};
use rerouter_routing::{BuildContext, ModelSpec, ProviderSpec, RecipeSpec, Routing, RoutingSpec};

/// The JSON Schema of the server document, for editors.
pub fn server_schema() -> String {
    schema_text(&schema::<Server>(
        "The server document of rerouter",
        "Read at start; every key is optional. `${NAME}` and `${NAME:-default}` come from the \
         environment.",
        true,
    ))
}

/// The JSON Schema of the routing document, for editors.
pub fn routing_schema() -> String {
    schema_text(&schema::<RoutingSpec>(
        "The routing document of rerouter",
        "Read at start, when the file changes, and on SIGHUP. A credential is written `${NAME}`.",
        false,
    ))
}

pub fn server_keys() -> Vec<KeyEntry> {
    keys::<Server>()
}

/// The keys of the routing document, by section.
pub fn routing_keys() -> [(&'static str, Vec<KeyEntry>); 4] {
    [
        ("keys", keys::<RoutingSpec>()),
        ("keys of a provider", keys::<ProviderSpec>()),
        ("keys of a model", keys::<ModelSpec>()),
        ("keys of a recipe", keys::<RecipeSpec>()),
    ]
}

pub type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;
/// A shared lookup of variables: documents are read again on each reload.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Reads the server document at `path`, else `conf/rerouter.yaml` if it exists, else the defaults.
pub fn load_server(path: Option<&Path>, env: &Env<'_>) -> Result<Server, Vec<Problem>> {
    let source = server_source(path)?;
    read_server(&source.file, &source.text, env)
}

/// Reads a server document without an environment: a variable without a default may have any value.
pub fn load_server_without_env(path: &Path) -> Result<Server, Vec<Problem>> {
    examine_server(&server_source(Some(path))?, None).into_result()
}

struct DocumentReading<T> {
    /// As much of the document as could be read.
    document: Option<T>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl<T> DocumentReading<T> {
    fn refused(problems: Vec<Problem>) -> Self {
        DocumentReading { document: None, problems, warnings: Vec::new() }
    }

    fn into_result(self) -> Result<T, Vec<Problem>> {
        self.document.filter(|_| self.problems.is_empty()).ok_or(self.problems)
    }
}

pub fn read_server(file: &str, text: &str, env: &Env<'_>) -> Result<Server, Vec<Problem>> {
    examine_server(&DocumentSource { file: file.to_owned(), text: text.to_owned() }, Some(env))
        .into_result()
}

/// Whether a document is valid YAML without duplicate keys.
pub fn parses(source: &DocumentSource) -> Result<(), Vec<Problem>> {
    let faults = parse(&source.text).map_or_else(|faults| faults, |parsed| parsed.duplicates);
    if faults.is_empty() { Ok(()) } else { Err(problems(&source.file, faults)) }
}

/// Without an environment, a variable without a default may have any value.
fn examine_server(source: &DocumentSource, env: Option<&Env<'_>>) -> DocumentReading<Server> {
    let file = &source.file;
    let parsed = match parse(&source.text) {
        Ok(parsed) => parsed,
        Err(faults) => return DocumentReading::refused(problems(file, faults)),
    };
    let mut faults = Diagnostics::new(env.is_none());
    faults.extend(parsed.duplicates);
    let lookup = |name: &str| Ok(env.and_then(|env| env(name)));
    let expanded = expand_tree(&parsed.root, "", &lookup, &mut faults);
    let section = Field::root(&expanded).section(&mut faults);
    let document = section.and_then(|section| whole::<Server>(section, &mut faults));
    let document = document
        .map(|server| Server { positions: Positions::new(file, &parsed.root, &faults), ..server });
    let warnings = problem::warnings(file, std::mem::take(&mut faults.warnings));
    DocumentReading { document, problems: problems(file, faults), warnings }
}

/// `mock` is the address of the in-process mock provider, if it runs.
pub fn read_routing(
    file: &str,
    text: &str,
    server: &Server,
    env: &Env<'_>,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    let lookup = |name: &str| allowed(name, server).map(|()| env(name));
    examine_routing(file, text, server, &variables_of(&lookup), mock).into_result()
}

/// Probable mistakes in a valid routing document.
pub fn warnings(file: &str, routing: &Routing) -> Vec<Problem> {
    problem::warnings(file, routing.warnings.to_vec())
}

/// Reads a routing document from the API that is to run. It may hold credentials only as `${…}`.
pub(crate) fn read_given(
    text: &str,
    server: &Server,
    env: &Env<'_>,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    let lookup = |name: &str| allowed(name, server).map(|()| env(name));
    let variables = VariableReader { from_api: true, ..variables_of(&lookup) };
    examine_routing(NO_FILE, text, server, &variables, mock).into_result()
}

/// Reads a routing document from the API that is only checked. No variable is read, so that nobody
/// can probe the environment. The result must not be run.
pub fn read_unexpanded(
    text: &str,
    server: &Server,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    examine_unexpanded(text, server, mock).into_result()
}

fn examine_unexpanded(
    text: &str,
    server: &Server,
    mock: Option<SocketAddr>,
) -> DocumentReading<Routing> {
    // Each variable becomes its own placeholder, so that two variables do not count as one
    // credential.
    let lookup = |name: &str| allowed(name, server).map(|()| Some(placeholder(name)));
    let variables = VariableReader { from_api: true, expanded: false, ..variables_of(&lookup) };
    examine_routing(NO_FILE, text, server, &variables, mock)
}

/// The problems and the warnings of a routing document from the API. No variable is read.
pub fn validate(
    text: &str,
    server: &Server,
    mock: Option<SocketAddr>,
) -> (Vec<Problem>, Vec<Problem>) {
    let reading = examine_unexpanded(text, server, mock);
    (reading.problems, reading.warnings)
}

/// Reads an earlier live document, to compare with it. No variable is read. The result must not be
/// run.
pub fn read_remembered(
    text: &str,
    server: &Server,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    let lookup = |name: &str| Ok(Some(placeholder(name)));
    let variables = VariableReader { expanded: false, ..variables_of(&lookup) };
    examine_routing(NO_FILE, text, server, &variables, mock).into_result()
}

/// Reads another program's YAML as a JSON value. Problems do not quote values.
pub fn read_foreign(source: &DocumentSource) -> Result<serde_json::Value, Vec<Problem>> {
    let parsed = parse(&source.text).map_err(|faults| problems(&source.file, faults))?;
    if !parsed.duplicates.is_empty() {
        return Err(problems(&source.file, parsed.duplicates));
    }
    Ok(serde_json::from_str(&canonical(&parsed.root)).unwrap_or_default())
}

/// The document without credentials: as written if it holds none, else as JSON with all of them
/// redacted.
pub fn shown(text: &str) -> String {
    let Ok(Parsed { mut root, duplicates }) = parse(text) else {
        return String::new();
    };
    if !duplicates.is_empty() {
        // Of two duplicate keys only one is in the tree: the other may hold a credential.
        return String::new();
    }
    if !credentials::redact(&mut root) {
        return text.to_owned();
    }
    let canonical =
        serde_json::from_str::<serde_json::Value>(&canonical(&root)).unwrap_or_default();
    serde_json::to_string_pretty(&canonical).unwrap_or_default()
}

fn examine_routing(
    file: &str,
    text: &str,
    server: &Server,
    variables: &VariableReader<'_>,
    mock: Option<SocketAddr>,
) -> DocumentReading<Routing> {
    let parsed = match parse(text) {
        Ok(parsed) => parsed,
        Err(faults) => return DocumentReading::refused(problems(file, faults)),
    };
    let root = &parsed.root;
    if matches!(&root.value, TreeValue::Null)
        || matches!(&root.value, TreeValue::Map(entries) if entries.is_empty())
    {
        // The file is probably still being written. The live document stays.
        let hint = Some("it needs `providers`, `recipes` and `aliases`".to_owned());
        let fault = Finding {
            path: String::new(),
            at: root.at,
            message: "the document is empty".to_owned(),
            hint,
        };
        return DocumentReading::refused(problems(file, vec![fault]));
    }
    let mut faults = Diagnostics::new(variables.no_env);
    faults.variables = Some(*variables);
    faults.extend(parsed.duplicates.iter().cloned());
    let section = Field::root(root).section(&mut faults);
    let Some(spec) = section.and_then(|section| whole::<RoutingSpec>(section, &mut faults)) else {
        return DocumentReading::refused(problems(file, faults));
    };
    let read_warnings = std::mem::take(&mut faults.warnings);
    let revision = revision(&canonical(root));
    let origin = BuildContext {
        revision: &revision,
        text,
        mock,
        signal_headers: &server.routing.signal_headers,
    };
    match Routing::build(spec, read_warnings, &origin) {
        Ok(routing) => {
            let warnings = warnings(file, &routing);
            DocumentReading { document: Some(routing), problems: problems(file, faults), warnings }
        }
        Err(found) => {
            faults.extend(found.faults);
            DocumentReading {
                document: None,
                problems: problems(file, faults),
                warnings: problem::warnings(file, found.warnings),
            }
        }
    }
}

/// A reader of the variables in a document that the operator wrote.
fn variables_of<'a>(lookup: &'a Lookup<'a>) -> VariableReader<'a> {
    VariableReader {
        lookup,
        from_api: false,
        expanded: true,
        no_env: false,
        has_credential: is_in_query,
        load_authorities: authorities::load,
    }
}

/// The gateway's own credentials are always refused.
fn allowed(name: &str, server: &Server) -> Result<(), String> {
    let ours =
        matches!(name, "ADMIN_API_KEY" | "AGENT_CLOUD_API_KEY") || name.starts_with("REROUTER_");
    if ours {
        return Err(format!("a routing document must not use the variable `{name}`"));
    }
    if !server.routing.env_allow.iter().any(|pattern| matches_pattern(pattern, name)) {
        return Err(format!(
            "the variable `{name}` matches no pattern of `routing.env_allow` in the server document"
        ));
    }
    Ok(())
}

/// The first 12 hex digits of the SHA-256 of a canonical document.
fn revision(canonical: &str) -> String {
    Sha256::digest(canonical.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
