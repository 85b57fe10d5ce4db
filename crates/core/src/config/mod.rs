//! The server and the routing document: read and checked, with every problem and its place.
//! The only user of the YAML parser; the environment is looked up through a function.

mod authorities;
mod check;
mod credentials;
mod diagnostics;
mod egress;
mod expand;
mod hosts;
mod limits;
mod listeners;
mod net;
mod positions;
#[warn(missing_docs)]
mod problem;
mod provider;
mod read;
mod routing;
mod server;
mod settings;
mod source;
mod telemetry;
mod tree;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use authorities::{expiry, expiry_of};
pub use check::CheckReport;
pub use egress::{Denied, Egress, EgressPeer};
pub use net::Net;
pub(crate) use problem::DOCUMENT_PROBLEMS;
pub use problem::Problem;
pub use provider::{PROVIDER_CONCURRENCY, is_own_header};
pub use routing::{ATTEMPTS_MAX, RULES};
pub use settings::Server;
pub use settings::{CaptureSettings, Listener, TlsFiles};
pub use source::{
    DEMO, NO_FILE, OPTIONS, demo_routing, load_routing, routing_path, server_source, stored_routing,
};
pub use source::{DocumentSource, load};

use credentials::{CredentialReader, placeholder};
use diagnostics::Diagnostics;
use positions::Positions;
use problem::problems;
use read::Field;
use rerouter_routing::{BuildContext, Finding, Routing};

/// The JSON Schemas of both documents, draft 7, for editors. `tests/house/schemas.rs` holds them
/// to the readers.
pub const SERVER_SCHEMA: &str = include_str!("../../../../conf/schema/server.schema.json");
pub const ROUTING_SCHEMA: &str = include_str!("../../../../conf/schema/routing.schema.json");

/// Looks up a variable of the environment.
pub type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;
/// The same, shared: documents are read again on each reload.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Reads the server document at `path`, else `conf/rerouter.yaml` if it exists, else the defaults.
pub fn load_server(path: Option<&Path>, env: &Env<'_>) -> Result<Server, Vec<Problem>> {
    let source = server_source(path)?;
    read_server(&source.file, &source.text, env)
}

/// The result of reading a document.
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

    /// The document if it has no problem.
    fn into_result(self) -> Result<T, Vec<Problem>> {
        self.document.filter(|_| self.problems.is_empty()).ok_or(self.problems)
    }
}

/// The path of every key of the server document: `listeners[].address`, `session.idle`, …
pub fn server_keys() -> Vec<String> {
    // The reader knows these only if they are written: items of the list, and the mapping in them.
    let Ok(document) = tree::parse("listeners: [{ tls: {} }]") else { return Vec::new() };
    let mut faults = Diagnostics::default();
    // The values and what is missing do not matter here.
    let _server = server::read(&Field::root(&document.root), &mut faults);
    faults.value_keys()
}

/// Reads a server document.
pub fn read_server(file: &str, text: &str, env: &Env<'_>) -> Result<Server, Vec<Problem>> {
    examine_server(&DocumentSource { file: file.to_owned(), text: text.to_owned() }, Some(env))
        .into_result()
}

/// Whether a document is YAML, with no key twice.
pub fn parses(source: &DocumentSource) -> Result<(), Vec<Problem>> {
    let faults = tree::parse(&source.text).map_or_else(|faults| faults, |parsed| parsed.duplicates);
    if faults.is_empty() { Ok(()) } else { Err(problems(&source.file, faults)) }
}

/// Without an environment, a variable without a default may have any value.
fn examine_server(source: &DocumentSource, env: Option<&Env<'_>>) -> DocumentReading<Server> {
    let file = &source.file;
    let parsed = match tree::parse(&source.text) {
        Ok(parsed) => parsed,
        Err(faults) => return DocumentReading::refused(problems(file, faults)),
    };
    let mut faults = Diagnostics::new(env.is_none());
    faults.extend(parsed.duplicates);
    let lookup = |name: &str| Ok(env.and_then(|env| env(name)));
    let expanded = expand::expand_tree(&parsed.root, "", &lookup, &mut faults);
    let document = server::read(&Field::root(&expanded), &mut faults);
    let document = document
        .map(|server| Server { positions: Positions::new(file, &parsed.root, &faults), ..server });
    let warnings = problem::warnings(file, std::mem::take(&mut faults.warnings));
    DocumentReading { document, problems: problems(file, faults), warnings }
}

/// Reads a routing document. `mock` is the address of the in-process mock provider, if it runs.
pub fn read_routing(
    file: &str,
    text: &str,
    server: &Server,
    env: &Env<'_>,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    let lookup = |name: &str| allowed(name, server).map(|()| env(name));
    let credentials =
        CredentialReader { lookup: &lookup, from_api: false, expanded: true, no_env: false };
    examine_routing(file, text, server, &credentials, mock).into_result()
}

/// Probable mistakes in a valid routing document.
pub fn warnings(file: &str, routing: &Routing) -> Vec<Problem> {
    problem::warnings(file, routing.warnings().to_vec())
}

/// Reads a routing document from the API, to run it. It may hold credentials as `${…}` only.
pub(crate) fn read_given(
    text: &str,
    server: &Server,
    env: &Env<'_>,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    let lookup = |name: &str| allowed(name, server).map(|()| env(name));
    let credentials =
        CredentialReader { lookup: &lookup, from_api: true, expanded: true, no_env: false };
    examine_routing(NO_FILE, text, server, &credentials, mock).into_result()
}

/// Reads a routing document from the API, to check it. No variable is read, so that nobody can
/// probe the environment. The result must not be run.
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
    // By name, so that two variables are not mistaken for one credential.
    let lookup = |name: &str| allowed(name, server).map(|()| Some(placeholder(name)));
    let credentials =
        CredentialReader { lookup: &lookup, from_api: true, expanded: false, no_env: false };
    examine_routing(NO_FILE, text, server, &credentials, mock)
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

/// Reads a routing document that was live once, to compare with it. No variable is read. The result
/// must not be run.
pub fn read_remembered(
    text: &str,
    server: &Server,
    mock: Option<SocketAddr>,
) -> Result<Routing, Vec<Problem>> {
    let lookup = |name: &str| Ok(Some(placeholder(name)));
    let credentials =
        CredentialReader { lookup: &lookup, from_api: false, expanded: false, no_env: false };
    examine_routing(NO_FILE, text, server, &credentials, mock).into_result()
}

/// The YAML of another program as a JSON value. Problems quote no value.
pub fn read_foreign(source: &DocumentSource) -> Result<serde_json::Value, Vec<Problem>> {
    let parsed = tree::parse(&source.text).map_err(|faults| problems(&source.file, faults))?;
    if !parsed.duplicates.is_empty() {
        return Err(problems(&source.file, parsed.duplicates));
    }
    Ok(serde_json::from_str(&tree::canonical(&parsed.root)).unwrap_or_default())
}

/// The document without credentials: as written if it holds none, else as JSON with each redacted.
pub fn shown(text: &str) -> String {
    let Ok(tree::Parsed { mut root, duplicates }) = tree::parse(text) else {
        return String::new();
    };
    if !duplicates.is_empty() {
        // Only one of two duplicate keys is in the tree: the other may hold a credential.
        return String::new();
    }
    if !credentials::redact(&mut root) {
        return text.to_owned();
    }
    let canonical =
        serde_json::from_str::<serde_json::Value>(&tree::canonical(&root)).unwrap_or_default();
    serde_json::to_string_pretty(&canonical).unwrap_or_default()
}

fn examine_routing(
    file: &str,
    text: &str,
    server: &Server,
    credentials: &CredentialReader<'_>,
    mock: Option<SocketAddr>,
) -> DocumentReading<Routing> {
    let parsed = match tree::parse(text) {
        Ok(parsed) => parsed,
        Err(faults) => return DocumentReading::refused(problems(file, faults)),
    };
    let root = &parsed.root;
    if matches!(&root.value, tree::TreeValue::Null)
        || matches!(&root.value, tree::TreeValue::Map(entries) if entries.is_empty())
    {
        // Probably a file that is being written. The live document stays.
        let hint = Some("it needs `providers`, `recipes` and `aliases`".to_owned());
        let fault = Finding {
            path: String::new(),
            at: root.at,
            message: "the document is empty".to_owned(),
            hint,
        };
        return DocumentReading::refused(problems(file, vec![fault]));
    }
    let mut faults = Diagnostics::new(credentials.no_env);
    faults.extend(parsed.duplicates.iter().cloned());
    let Some(spec) = routing::read(&Field::root(root), credentials, &mut faults) else {
        return DocumentReading::refused(problems(file, faults));
    };
    let revision = revision(&tree::canonical(root));
    let origin = BuildContext {
        revision: &revision,
        text,
        mock,
        signal_headers: &server.routing.signal_headers,
    };
    match Routing::build(spec, &origin) {
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

/// Whether a routing document may use a variable. Credentials of the gateway are always refused.
fn allowed(name: &str, server: &Server) -> Result<(), String> {
    let ours =
        matches!(name, "ADMIN_API_KEY" | "AGENT_CLOUD_API_KEY") || name.starts_with("REROUTER_");
    if ours {
        return Err(format!("a routing document must not use the variable `{name}`"));
    }
    if !server.routing.env_allow.iter().any(|pattern| expand::matches_pattern(pattern, name)) {
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
