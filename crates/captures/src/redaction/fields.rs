//! The fields of JSON bodies that hold credentials: those of tools and MCP servers.

use std::ops::Range;

use rerouter_base::secret::is_credential;
use rerouter_dialect::wire::json::{Cursor, JsonError, JsonKind, MemberName};

/// Fields that lead to credentials: the role of the object, the field's name in any case, and the
/// role of the field's value. In addition, a field of a tool is a credential if its name says so
/// ([`is_credential`]: `authorization`, `authorization_token`, `api_key`, `token`, …).
const FIELDS: [(FieldRole, &str, FieldRole); 9] = [
    (FieldRole::Request, "api_key", FieldRole::Credential),
    (FieldRole::Request, "data_sources", FieldRole::Sources),
    (FieldRole::Source, "authentication", FieldRole::Credential),
    (FieldRole::Body, "domain_secrets", FieldRole::Credential),
    (FieldRole::Body, "tools", FieldRole::Tools),
    (FieldRole::Body, "mcp_servers", FieldRole::Servers),
    (FieldRole::Tool, "headers", FieldRole::Credential),
    (FieldRole::Tool, "url", FieldRole::Address),
    (FieldRole::Tool, "server_url", FieldRole::Address),
];

/// The role of a value, which its field decides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldRole {
    Request,
    /// Any value within the body that has no other role.
    Body,
    /// A list of data sources, as in Azure's API.
    Sources,
    /// A data source, or any value within one.
    Source,
    Tools,
    /// A list of MCP servers, or an object with servers by name.
    Servers,
    /// A tool or an MCP server.
    Tool,
    /// A URL, which may contain a credential.
    Address,
    Credential,
    Name,
}

impl FieldRole {
    fn element(self) -> FieldRole {
        match self {
            FieldRole::Tools | FieldRole::Servers => FieldRole::Tool,
            FieldRole::Sources | FieldRole::Source => FieldRole::Source,
            _ => FieldRole::Body,
        }
    }

    fn field(self, name: MemberName<'_>) -> FieldRole {
        if self == FieldRole::Servers {
            return FieldRole::Tool;
        }
        // A tool may itself list tools.
        let mut fields = FIELDS.iter().filter(|(of, ..)| *of == self || *of == FieldRole::Body);
        match fields.find(|(_, field, _)| name.resembles(field)) {
            Some((.., role)) => *role,
            None if self == FieldRole::Tool && is_credential(&name.text().to_ascii_lowercase()) => {
                FieldRole::Credential
            }
            None if self == FieldRole::Source => FieldRole::Source,
            None => FieldRole::Body,
        }
    }
}

/// Calls `each` with the names, strings and credentials of the next value.
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
