//! The content of a diagnostics log line.

use serde::Serialize;

/// The fields of a diagnostic with their descriptions, in order.
pub const DIAGNOSTIC_FIELDS: &[(&str, &str)] = &[
    ("at", "When it was written, RFC 3339 in UTC."),
    ("level", "`ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`."),
    ("target", "The part of the program that says it."),
    ("message", "What it says, for people."),
];

#[derive(Serialize)]
pub(super) struct Diagnostic<'a> {
    pub(super) at: String,
    pub(super) level: &'a str,
    pub(super) target: &'a str,
    pub(super) message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_each_field_in_its_place() {
        let line = Diagnostic { at: String::new(), level: "", target: "", message: String::new() };
        let line = serde_json::to_value(line).unwrap();
        let names: Vec<&String> = line.as_object().unwrap().keys().collect();
        let listed: Vec<&str> = DIAGNOSTIC_FIELDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, listed);
    }
}
