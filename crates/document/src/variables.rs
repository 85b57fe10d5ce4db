//! Reads texts of a document that may contain variables and credentials.

use crate::diagnostics::{Diagnostics, VariableReader};
use crate::expand::{self, ExpandError, expand};
use crate::field::Field;
use crate::place::Located;
use rerouter_base::secret::Secret;

/// The placeholder for variables that are not looked up. This host does not exist (RFC 2606).
const PLACEHOLDER: &str = "unexpanded.invalid";

/// The placeholder of one variable. It contains the variable's name, so that different variables
/// are not taken for the same credential.
pub fn placeholder(name: &str) -> String {
    format!("{}.{PLACEHOLDER}", name.replace('_', "-"))
}

impl VariableReader<'_> {
    /// Reads a credential. It is redacted when the document is shown.
    pub fn credential(
        &self,
        field: &Field<'_>,
        faults: &mut Diagnostics<'_>,
    ) -> Option<Located<Secret>> {
        let by_name = is_by_name(field.text(faults)?);
        if self.from_api && !by_name {
            field.reject(
                faults,
                "a document from the API may hold a credential as `${…}` only",
                "set a variable in the environment of the gateway and name it: ${OPENAI_API_KEY}",
            );
            return None;
        }
        if !by_name {
            let warning = field.fault("the document holds a credential in plain text");
            let hint = "set a variable in the environment of the gateway and name it, for example \
                        `${OPENAI_API_KEY}`";
            faults.warnings.push(warning.hint(Some(hint)));
        }
        self.secret(field, faults)
    }

    /// Reads a text that may contain variables. It is secret once these are expanded.
    pub fn secret(
        &self,
        field: &Field<'_>,
        faults: &mut Diagnostics<'_>,
    ) -> Option<Located<Secret>> {
        let text = field.text(faults)?;
        let expanded = match expand(text, self.lookup) {
            Err(ExpandError::Unset(_)) if self.no_env => {
                expand(text, &|name| (self.lookup)(name).map(|_| Some(placeholder(name))))
            }
            expanded => expanded,
        };
        match expanded {
            Ok(text) => Some(field.located(Secret::new(text))),
            Err(error) => {
                field.reject(faults, error.message(), expand::HINT);
                None
            }
        }
    }

    /// Whether an expanded text contains the real values of all its variables.
    pub fn knows(&self, text: &Secret) -> bool {
        self.expanded && !text.expose().contains(PLACEHOLDER)
    }
}

/// Whether a text only refers to its credential: variables without defaults, optionally after a
/// scheme.
pub fn is_by_name(text: &str) -> bool {
    let text = ["Bearer ", "Basic ", "Token "]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .unwrap_or(text);
    let mut rest = text;
    while let Some((name, after)) =
        rest.strip_prefix("${").and_then(|inside| inside.split_once('}'))
    {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return false;
        }
        rest = after;
    }
    rest.is_empty() && !text.is_empty()
}
