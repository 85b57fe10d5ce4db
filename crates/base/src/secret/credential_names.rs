//! Names of headers and fields that carry credentials.

use std::borrow::Cow;

/// Whether a header or field with this lower-case name carries a credential. Known names do, and
/// names with a typical ending, with hyphens or underscores. `idempotency-key` does not.
pub fn is_credential(name: &str) -> bool {
    const KNOWN: &[&str] = &[
        "cookie",
        "set-cookie",
        "x-auth",
        "auth",
        "key",
        "secret",
        "password",
        "signature",
        "credential",
        "credentials",
    ];
    const ENDS: &[&str] = &[
        "-key",
        "token",
        "-secret",
        "-password",
        "-signature",
        "apikey",
        "authorization",
        "authentication",
        "-auth",
        "assertion",
        "jwt",
        "oidc-data",
    ];
    // Some servers treat hyphens and underscores alike.
    let name = if name.contains('_') { Cow::from(name.replace('_', "-")) } else { Cow::from(name) };
    name != "idempotency-key"
        && (KNOWN.contains(&&*name) || ENDS.iter().any(|end| name.ends_with(end)))
}
