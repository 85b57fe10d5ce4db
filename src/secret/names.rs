//! Names by which a value is told to be a credential.

use std::borrow::Cow;

/// Whether a header of this name carries a credential, by its name (lower-case): the known ones, and every other that
/// ends as such names do, with hyphens or underscores. `idempotency-key` only sounds like one.
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
    // To some servers they are one.
    let name = if name.contains('_') { Cow::from(name.replace('_', "-")) } else { Cow::from(name) };
    name != "idempotency-key"
        && (KNOWN.contains(&&*name) || ENDS.iter().any(|end| name.ends_with(end)))
}
