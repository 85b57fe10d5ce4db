//! Fields of JSON bodies that hold credentials: those of tools and MCP servers.

use std::ops::Range;

use rerouter_base::secret::is_credential;
use rerouter_dialect::wire::json::{Cursor, JsonError, JsonKind, MemberName};

/// Fields that lead to credentials: the role of the object, the field's name in letters of any
/// case, and the role of its value. Beside these, a field of a tool is a credential if its name is
/// that of one ([`is_credential`]: `authorization`, `authorization_token`, `api_key`, `token`, …).
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

/// What a value is, as its field tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldRole {
    Request,
    /// Anything within it that has no other role.
    Body,
    /// A list of data sources, as Azure's API has them.
    Sources,
    /// A data source, and anything within it.
    Source,
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
        // Tools may offer tools.
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
