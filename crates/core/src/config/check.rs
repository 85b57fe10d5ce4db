//! Checks both documents without starting a gateway.

use std::path::Path;

use super::source::{DocumentSource, load, load_routing, stored_routing};
use rerouter_document::VariableReader;

use super::{
    DocumentReading, Env, Problem, Server, allowed, examine_routing, examine_server, read_server,
    variables_of,
};

#[derive(Debug, Default)]
pub struct CheckReport {
    /// Problems that prevent a start.
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
    /// A line for each valid document.
    pub good: Vec<String>,
    /// Why the routing document was not checked, if it was not.
    pub unchecked: Option<String>,
    /// As much of the server document as could be read.
    pub server: Option<Server>,
    file: String,
    is_valid: bool,
}

/// Reads the routing document in the store, `None` if there is none.
pub(super) type Stored<'a> = dyn Fn(&Server) -> Result<Option<String>, String> + 'a;

impl CheckReport {
    /// Checks the server document. Without `env`, a variable without a default may have any value,
    /// and files that this machine lacks are only a warning.
    pub fn server(
        source: Result<DocumentSource, Vec<Problem>>,
        env: Option<&Env<'_>>,
    ) -> CheckReport {
        let (file, reading) = match source {
            Ok(source) => (source.file.clone(), examine_server(&source, env)),
            Err(problems) => (
                problems.first().map(|problem| problem.file.clone()).unwrap_or_default(),
                DocumentReading::refused(problems),
            ),
        };
        let DocumentReading { document, problems, warnings } = reading;
        let is_valid = problems.is_empty();
        CheckReport {
            problems,
            warnings,
            server: document,
            file,
            is_valid,
            ..CheckReport::default()
        }
    }

    /// Checks the routing document at `path`, else the one that the server document names, if the
    /// name is certain despite problems of the server document. `stored` reads it from the store.
    pub fn check_routing(
        &mut self,
        path: Option<&Path>,
        env: Option<&Env<'_>>,
        stored: &Stored<'_>,
    ) {
        let file = &self.file;
        if self.is_valid {
            self.good.push(format!("{file}: good"));
        }
        let source = match self.routing_source(path, stored) {
            Ok(source) => source,
            Err(why) => {
                self.unchecked = Some(why);
                return;
            }
        };
        let settings = self.server.clone().or_else(|| read_server("defaults", "", &|_| None).ok());
        match (source, settings) {
            (Ok(source), Some(server)) => {
                let lookup =
                    |name: &str| allowed(name, &server).map(|()| env.and_then(|env| env(name)));
                let variables = VariableReader { no_env: env.is_none(), ..variables_of(&lookup) };
                let reading =
                    examine_routing(&source.file, &source.text, &server, &variables, None);
                let valid = reading.document.filter(|_| reading.problems.is_empty());
                if let Some(routing) = valid {
                    let (file, revision) = (&source.file, routing.revision());
                    self.good.push(format!("{file}: good, revision {revision}"));
                    let (date, names) = routing.shipped_prices();
                    let names = names.join(", ");
                    let used = format!("{file}: shipped prices of {date} for {names}");
                    self.good.extend((!names.is_empty()).then_some(used));
                }
                self.problems.extend(reading.problems);
                self.warnings.extend(reading.warnings);
            }
            (Err(problems), _) => self.problems.extend(problems),
            _ => {}
        }
    }

    /// The routing document, or the reason why it cannot be checked.
    fn routing_source(
        &self,
        path: Option<&Path>,
        stored: &Stored<'_>,
    ) -> Result<Result<DocumentSource, Vec<Problem>>, String> {
        match (path, &self.server) {
            (Some(path), _) => Ok(load(path)),
            (None, Some(server)) if self.is_valid && server.knows("routing.file") => {
                if !server.routing.store {
                    return Ok(load_routing(server));
                }
                let kept = stored(server).map_err(|why| {
                    format!("it is in the store, which cannot be read here: {why}")
                })?;
                Ok(Ok(stored_routing(kept)))
            }
            (None, Some(server)) if server.names_its_routing() => Ok(load_routing(server)),
            _ => {
                let why = match self.is_valid {
                    true => "names it by a variable",
                    false => "has problems, so its name is uncertain",
                };
                Err(format!("{} {why}; check it with `--routing FILE`", self.file))
            }
        }
    }
}

impl Server {
    /// Whether the routing document's file, and the variables that it may use, are certain despite
    /// problems.
    fn names_its_routing(&self) -> bool {
        self.positions.has("routing.file") && self.positions.knows_all_of("routing")
    }
}
