//! Texts of the routing document that may hold variables and credentials.

use super::diagnostics::Diagnostics;
use super::expand::{self, ExpandError, Lookup, expand};
use super::read::Field;
use super::tree::{TreeEntry, TreeNode, TreeValue};
use rerouter_base::secret::{Secret, is_credential};
use rerouter_routing::Located;

/// Stands for the values of variables that are not read: a host that does not exist (RFC 2606).
pub(super) const PLACEHOLDER: &str = "unexpanded.invalid";

/// The same with the name of the variable, so that two are not mistaken for one credential.
pub(super) fn placeholder(name: &str) -> String {
    format!("{}.{PLACEHOLDER}", name.replace('_', "-"))
}

/// Reads texts that may hold variables.
pub(super) struct CredentialReader<'a> {
    pub(super) lookup: &'a Lookup<'a>,
    /// The document is from the API: it may hold credentials as `${…}` only.
    pub(super) from_api: bool,
    /// Variables have their values, not placeholders.
    pub(super) expanded: bool,
    /// Placeholders stand for variables without value and default.
    pub(super) no_env: bool,
}

impl CredentialReader<'_> {
    /// A credential: redacted from readers of the document.
    pub(super) fn credential(
        &self,
        field: &Field<'_>,
        faults: &mut Diagnostics,
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

    /// A text that may hold variables, and is secret once they are expanded.
    pub(super) fn secret(
        &self,
        field: &Field<'_>,
        faults: &mut Diagnostics,
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
}

/// Whether a text only names its credential: variables without defaults, perhaps after a scheme.
fn is_by_name(text: &str) -> bool {
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

/// Redacts every credential in plain text. Returns whether there was one.
pub(super) fn redact(root: &mut TreeNode) -> bool {
    let mut redacted = false;
    for provider in below(root, "providers").into_iter().flat_map(entries) {
        for entry in entries(&mut provider.node) {
            match entry.key.as_str() {
                "api_key" => redacted |= redact_value(&mut entry.node),
                "api_keys" => {
                    if let TreeValue::List(keys) = &mut entry.node.value {
                        redacted |= keys.iter_mut().fold(false, |any, key| redact_value(key) | any);
                    }
                }
                "headers" => {
                    let headers = entries(&mut entry.node)
                        .filter(|header| is_credential(&header.key.to_ascii_lowercase()));
                    redacted |=
                        headers.fold(false, |any, header| redact_value(&mut header.node) | any);
                }
                _ => {}
            }
        }
    }
    redacted
}

fn redact_value(node: &mut TreeNode) -> bool {
    let is_plain = !matches!(&node.value, TreeValue::Null)
        && !matches!(&node.value, TreeValue::Text { text, .. } if is_by_name(text));
    if is_plain {
        node.value = TreeValue::Text { text: "[redacted]".to_owned(), plain: false };
    }
    is_plain
}

fn entries(node: &mut TreeNode) -> impl Iterator<Item = &mut TreeEntry> {
    match &mut node.value {
        TreeValue::Map(entries) => entries.iter_mut(),
        _ => [].iter_mut(),
    }
}

fn below<'a>(node: &'a mut TreeNode, key: &str) -> Option<&'a mut TreeNode> {
    entries(node).find(|entry| entry.key == key).map(|entry| &mut entry.node)
}
