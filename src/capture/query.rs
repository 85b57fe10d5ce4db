//! The query of a request: what of it a provider sees and a capture keeps.

use super::values;
use crate::protocol::query::decode_leniently;
use crate::secret::is_credential;

/// A query without the parameters that are a credential by their name or value; the others stay as
/// they were written. `None` where none is left.
pub fn without_credentials(query: &str) -> Option<String> {
    let kept: Vec<&str> = query.split('&').filter(|part| !is_or_holds_one(part)).collect();
    Some(kept.join("&")).filter(|kept| !kept.is_empty())
}

/// Whether a query has a parameter that is a credential by its name or value.
pub fn holds_credential(query: &str) -> bool {
    query.split('&').any(is_or_holds_one)
}

/// Some servers take `;` for `&`.
fn is_or_holds_one(part: &str) -> bool {
    part.split(';').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode_leniently(name), decode_leniently(value));
        is_credential(&name.to_ascii_lowercase())
            || [name, value].iter().any(|text| values::is_credential(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_leave_and_the_rest_stays_as_it_was() {
        let key = "rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe";
        for (query, kept) in [
            ("", None),
            ("beta=true", Some("beta=true")),
            ("b=%2f&&a=+&d;e=%zz", Some("b=%2f&&a=+&d;e=%zz")),
            ("key=1", None),
            ("a=1&API_KEY=2&b=3", Some("a=1&b=3")),
            ("%6B%65%79=1&b", Some("b")),
            ("a=1;token=2&b=3", Some("b=3")),
            ("keys=1&max_tokens=2&monkey=3", Some("keys=1&max_tokens=2&monkey=3")),
            ("a=Bearer+sk-1234&b=eyJ0.e30.c2ln&c=4", Some("c=4")),
        ] {
            assert_eq!(without_credentials(query).as_deref(), kept, "{query}");
        }
        for query in
            [key.to_owned(), format!("a={key}"), format!("a=%zz{}", key.replace('_', "%5F"))]
        {
            assert_eq!(without_credentials(&query), None, "{query}");
            assert_eq!(without_credentials(&format!("x=1&{query}&y")).as_deref(), Some("x=1&y"));
        }
    }
}
