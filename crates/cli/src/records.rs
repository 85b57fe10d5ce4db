//! Reads records of the API page by page, and prints them.

use serde::Deserialize;
use serde_json::Value;

use super::client::ApiClient;
use super::failure::{CommandFailure, Result};
use super::output::print;
use super::table::TextTable;
use rerouter_records::page::PAGE_MAX;

#[derive(Deserialize)]
pub(super) struct ListedPage {
    pub(super) data: Vec<Value>,
    pub(super) next: Option<String>,
    #[serde(default)]
    unreadable: u64,
}

/// Calls `each` with the records of a list, newest first, `limit` at most. Returns how many the
/// gateway could not read.
pub(super) fn for_each_record(
    client: &ApiClient,
    path: &str,
    query: &[(&'static str, String)],
    limit: u64,
    mut each: impl FnMut(&Value) -> Result<()>,
) -> Result<u64> {
    let (mut left, mut after, mut unreadable) = (limit, None::<String>, 0);
    while left > 0 {
        let mut query = query.to_vec();
        query.push(("limit", left.min(PAGE_MAX as u64).to_string()));
        query.extend(after.take().map(|after| ("after", after)));
        let page: ListedPage = client.get(path, &query)?.ok()?.json()?;
        page.data.iter().try_for_each(&mut each)?;
        left = left.saturating_sub(page.data.len() as u64);
        unreadable += page.unreadable;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(unreadable)
}

/// The kind of record that a name or an id refers to.
pub(super) struct RecordName {
    /// The noun in singular and plural. The plural is also the command that lists the records.
    pub(super) what: [&'static str; 2],
    pub(super) is_id: fn(&str) -> bool,
    /// The field that has the name.
    pub(super) field: &'static str,
}

impl RecordName {
    /// The id of a record that is given by its id, or by a name that no other record in the list
    /// has.
    pub(super) fn id(&self, client: &ApiClient, path: &str, given: &str) -> Result<String> {
        if (self.is_id)(given) {
            return Ok(given.to_owned());
        }
        let mut found = Vec::new();
        for_each_record(client, path, &[], u64::MAX, |record| {
            let is_named = record.get(self.field).and_then(Value::as_str) == Some(given);
            found.extend(is_named.then(|| text(record.get("id"))));
            Ok(())
        })?;
        let many = found.len();
        let RecordName { what: [one, all], field, .. } = self;
        match (found.pop(), many) {
            (Some(id), 1) => Ok(id),
            // The given text is not quoted, because it may be a secret.
            (None, _) => Err(CommandFailure::Usage(format!(
                "no {one} has this id or {field}: `rerouter {all} list` has them"
            ))),
            _ => Err(CommandFailure::Usage(format!(
                "{many} {all} have the {field} `{given}`: give an id of `rerouter {all} list`"
            ))),
        }
    }
}

/// How a question names a record: as it was given, and by its id.
pub(super) fn named(given: &str, id: &str) -> String {
    if given == id { id.to_owned() } else { format!("{given} ({id})") }
}

pub(super) struct RecordTable {
    /// The kind of records, in the plural.
    pub(super) what: &'static str,
    pub(super) titles: &'static [&'static str],
    /// The JSON pointer to the value of each column.
    pub(super) pointers: &'static [&'static str],
    /// The order in which a narrow terminal keeps the columns. The first two are never cut.
    pub(super) order: &'static [usize],
}

impl RecordTable {
    /// Prints a list, or each record as a line of JSON.
    pub(super) fn list(
        &self,
        client: &ApiClient,
        path: &str,
        query: &[(&'static str, String)],
        limit: u64,
        json: bool,
    ) -> Result<()> {
        let mut records = Vec::new();
        for_each_record(client, path, query, limit, |record| {
            match json {
                true => print(&format!("{record}\n"))?,
                false => records.push(record.clone()),
            }
            Ok(())
        })?;
        if json { Ok(()) } else { self.print(&records) }
    }

    pub(super) fn print(&self, records: &[Value]) -> Result<()> {
        if records.is_empty() {
            return print(&format!("no {}\n", self.what));
        }
        let mut table = TextTable::new(self.titles).with_priority(self.order, 2);
        for record in records {
            table.row(self.pointers.iter().map(|pointer| short(record.pointer(pointer))));
        }
        print(&table.text())
    }
}

/// Prints one record: its fields, or its JSON.
pub(super) fn show(record: &Value, json: bool) -> Result<()> {
    if json {
        return print(&format!("{record}\n"));
    }
    let mut table = TextTable::new(&["FIELD", "VALUE"]);
    for (name, value) in record.as_object().into_iter().flatten() {
        if name != "object" {
            add_field(&mut table, name, value);
        }
    }
    print(&table.text())
}

/// Adds a field as a row. Members of an object get one row each, named below the field.
fn add_field(table: &mut TextTable, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(members) => match amount(value) {
            Some(amount) => table.row([name.to_owned(), amount]),
            None => members
                .iter()
                .for_each(|(member, value)| add_field(table, &format!("{name}.{member}"), value)),
        },
        value => table.row([name.to_owned(), short(Some(value))]),
    }
}

/// A budget, or the use of a limit, in words.
fn amount(value: &Value) -> Option<String> {
    let number = |name: &str| value.get(name).and_then(Value::as_u64);
    let usd = |name: &str| value.get(name).and_then(Value::as_f64).map(usd);
    let budget = |name: &str| Some(format!("{} a {}", usd(name)?, value.get("per")?.as_str()?));
    let used = || match usd("spent_usd") {
        Some(spent) => Some((spent, budget("limit_usd")?, usd("remaining_usd")?)),
        None => {
            let used = number("used").or_else(|| number("in_use"))?.to_string();
            Some((used, number("limit")?.to_string(), number("remaining")?.to_string()))
        }
    };
    let holder = match value.get("of").and_then(Value::as_str) {
        Some("user") => " (limit of the user)",
        Some("key_above") => " (limit of a key above)",
        _ => "",
    };
    budget("usd").or_else(|| {
        used().map(|(used, limit, left)| format!("{used} of {limit}, {left} left{holder}"))
    })
}

/// US dollars to the millionth, without zeros at the end.
fn usd(amount: f64) -> String {
    let text = format!("{amount:.6}");
    format!("${}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Prints a record with a secret that only this answer shows. `quiet`: prints only the secret, for
/// scripts.
pub(super) fn show_with_secret(record: &Value, field: &str, json: bool, quiet: bool) -> Result<()> {
    let secret = text(record.get(field));
    if quiet {
        return print(&format!("{secret}\n"));
    }
    if json {
        return show(record, true);
    }
    let mut rest = record.clone();
    if let Some(fields) = rest.as_object_mut() {
        fields.shift_remove(field);
    }
    show(&rest, false)?;
    print(&format!("\nThe secret, shown this once:\n{secret}\n"))
}

/// A JSON value as text; `-` for null and for a missing value.
pub(super) fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A value for a cell of a table: times in UTC without fractions, lists of texts with commas.
pub(super) fn short(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) if text.parse::<jiff::Timestamp>().is_ok() => {
            format!("{}Z", text.trim_end_matches('Z').split('.').next().unwrap_or_default())
        }
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(Value::Object(fields)) if fields.is_empty() => "-".to_owned(),
        value => text(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_and_what_is_used_of_them_are_told_in_words() {
        for (value, told) in [
            (json!({"usd": 2.5, "per": "day"}), "$2.5 a day"),
            (
                json!({"of": "key", "limit_usd": 1.0, "per": "month", "spent_usd": 0.1200004,
                    "reserved_usd": 0.0, "remaining_usd": 0.88}),
                "$0.12 of $1 a month, $0.88 left",
            ),
            (
                json!({"of": "user", "limit": 100, "used": 3, "remaining": 97}),
                "3 of 100, 97 left (limit of the user)",
            ),
            (
                json!({"of": "key_above", "limit": 5, "in_use": 5, "remaining": 0}),
                "5 of 5, 0 left (limit of a key above)",
            ),
        ] {
            assert_eq!(amount(&value).as_deref(), Some(told));
        }
        for other in [json!({}), json!({"team": "blue"}), json!({"limit": 5}), json!({"usd": 1})] {
            assert_eq!(amount(&other), None, "{other}");
        }
    }

    #[test]
    fn times_are_in_utc_and_without_fractions() {
        for (text, told) in [
            ("2026-11-22T00:00:00.123456Z", "2026-11-22T00:00:00Z"),
            ("2026-11-22T00:00:00Z", "2026-11-22T00:00:00Z"),
            ("1.5", "1.5"),
        ] {
            assert_eq!(short(Some(&text.into())), told);
        }
    }
}
