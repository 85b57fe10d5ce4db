//! Fields of JSON bodies that hold credentials: those of tools and MCP servers.

use std::ops::Range;

use super::credentials::is_in_address;
use super::rules::Secrets;
use crate::protocol::json::{self, Cursor, Edit, JsonError, JsonKind, MemberName};
use crate::secret::is_credential;

/// Fields that lead to credentials: the role of the object, the field's name in letters of any
/// case, and the role of its value. Beside these, a field of a tool is a credential if its name is
/// that of one ([`is_credential`]: `authorization`, `authorization_token`, `api_key`, `token`, …).
const FIELDS: [(FieldRole, &str, FieldRole); 5] = [
    (FieldRole::Body, "tools", FieldRole::Tools),
    (FieldRole::Body, "mcp_servers", FieldRole::Servers),
    (FieldRole::Tool, "headers", FieldRole::Credential),
    (FieldRole::Tool, "url", FieldRole::Address),
    (FieldRole::Tool, "server_url", FieldRole::Address),
];

/// What a value is, as its field tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldRole {
    Body,
    /// A list of tools.
    Tools,
    /// A list of MCP servers, or an object of them by name.
    Servers,
    /// A tool or an MCP server.
    Tool,
    /// An address, of which a credential may be a part.
    Address,
    Credential,
    /// The name of a field.
    Name,
}

impl FieldRole {
    fn element(self) -> FieldRole {
        if matches!(self, FieldRole::Tools | FieldRole::Servers) {
            FieldRole::Tool
        } else {
            FieldRole::Body
        }
    }

    fn field(self, name: MemberName<'_>) -> FieldRole {
        if self == FieldRole::Servers {
            return FieldRole::Tool;
        }
        // Tools may offer tools.
        let mut fields = FIELDS.iter().filter(|(of, ..)| *of == self || *of == FieldRole::Body);
        match fields.find(|(_, field, _)| name.resembles(field)) {
            Some((.., role)) => *role,
            None if self == FieldRole::Tool && is_credential(&name.text().to_ascii_lowercase()) => {
                FieldRole::Credential
            }
            None => FieldRole::Body,
        }
    }
}

/// Gives `each` the names, strings and credentials of the value ahead.
pub(super) fn walk(
    cursor: &mut Cursor<'_>,
    role: FieldRole,
    each: &mut dyn FnMut(FieldRole, Range<usize>),
) -> Result<(), JsonError> {
    match cursor.kind()? {
        JsonKind::Object if role != FieldRole::Credential => cursor.members(|cursor, name| {
            each(FieldRole::Name, name.span());
            walk(cursor, role.field(name), each)
        }),
        JsonKind::Array if role != FieldRole::Credential => {
            cursor.elements(|cursor| walk(cursor, role.element(), each))
        }
        shape => {
            let start = cursor.position();
            let skipped = cursor.skip();
            if shape == JsonKind::String
                || (role == FieldRole::Credential && shape != JsonKind::Null)
            {
                each(role, start..skipped.as_ref().map_or(usize::MAX, |span| span.end));
            }
            skipped.map(|_| ())
        }
    }
}

/// Finds the credentials of a JSON body, adds them to `secrets`, and returns what replaces them.
pub(super) fn find(body: &[u8], secrets: &mut Secrets) -> Vec<Edit> {
    const REDACTED_JSON: &[u8] = b"\"[redacted]\"";
    let mut edits = Vec::new();
    json::read_part(body, |cursor| {
        walk(cursor, FieldRole::Body, &mut |role, span| {
            let span = span.start..span.end.min(body.len());
            let raw = body.get(span.clone()).unwrap_or_default();
            let is_secret = match role {
                FieldRole::Credential => raw != REDACTED_JSON,
                // One without a text is cut off.
                FieldRole::Address => json::text(raw).is_none_or(|address| is_in_address(&address)),
                _ => false,
            };
            if is_secret {
                secrets.add_json(raw);
                edits.push(Edit::new(span, REDACTED_JSON));
            }
        })
    });
    edits
}
