//! Recognizes texts that are credentials, whatever the name of their field, header or parameter.

use rerouter_base::secret;
use rerouter_base::secret::token;
use rerouter_base::url::decode_leniently;

/// Authentication schemes (RFC 9110 section 11.1) that are followed by a credential.
const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "apikey"];

/// Whether a text is or contains a credential: one after its scheme, a signed token (RFC 7519), or
/// a key of this gateway.
pub(super) fn is_credential(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '=');
    // A signed token begins with `{"` in base64 and has two more parts.
    let is_signed =
        |word: &str| word.split_once("eyJ").is_some_and(|(_, rest)| rest.matches('.').count() >= 2);
    let mut words = text.split([' ', '\t', '"', ',']).filter(|word| !word.is_empty());
    let scheme = words.next().unwrap_or_default();
    (SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))
        && words.next().is_some_and(is_random))
        || (text.contains("eyJ") && text.split(|c| !is_part(c)).any(is_signed))
        || token::is_in(text.as_bytes())
}

/// Whether a word looks like a secret and not like an ordinary word.
pub(super) fn is_random(word: &str) -> bool {
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    let has_capital = word.bytes().skip(1).any(|byte| byte.is_ascii_uppercase());
    word.len() >= 8 && (has_digit || has_capital || (word.len() >= 20 && !word.contains('.')))
}

/// Whether a URL has a password, or a parameter that is a credential.
pub(super) fn is_in_address(address: &str) -> bool {
    let address = address.split_once("://").map_or(address, |(_, rest)| rest);
    let mut parts = address.splitn(2, ['?', '#']);
    let authority = parts.next().and_then(|path| path.split('/').next()).unwrap_or_default();
    authority.contains('@') || parts.next().is_some_and(is_in_query)
}

/// Whether a query has a parameter that is a credential by its name or value.
pub fn is_in_query(query: &str) -> bool {
    query.split('&').any(is_in_parameter)
}

/// Removes the parameters that are a credential by their name or value from a query. The others
/// stay as they were written. `None` if none is left.
pub fn without_credentials(query: &str) -> Option<String> {
    let kept: Vec<&str> = query.split('&').filter(|part| !is_in_parameter(part)).collect();
    Some(kept.join("&")).filter(|kept| !kept.is_empty())
}

fn is_in_parameter(part: &str) -> bool {
    // Some servers also separate parameters by `;`.
    part.split(';').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode_leniently(name), decode_leniently(value));
        secret::is_credential(&name.to_ascii_lowercase())
            || is_credential(&name)
            || is_credential(&value)
    })
}
