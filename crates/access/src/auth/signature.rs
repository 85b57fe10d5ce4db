//! Signatures of nodes: a strict profile of HTTP Message Signatures (RFC 9421) with `hmac-sha256`,
//! and the digest of the body (RFC 9530). One list of components, one label and five parameters,
//! each in one order: any other spelling is refused, so no two parsers can differ. Nothing here has
//! state: the caller has keys, time and nonces.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::AsHeaderName;
use http::{HeaderMap, Method};
use sha2::{Digest, Sha256};

use rerouter_base::bounds;
use rerouter_base::id::Random;
use rerouter_base::secret::{MacKey, constant_time_eq};

/// The digest of the body (RFC 9530 section 2).
pub(crate) const CONTENT_DIGEST: &str = "content-digest";
/// The covered components and the key (RFC 9421 section 4.1).
pub(crate) const SIGNATURE_INPUT: &str = "signature-input";
/// The signature (RFC 9421 section 4.2).
pub(crate) const SIGNATURE: &str = "signature";

const WITH_BODY: &str = r#"("@method" "@authority" "@path" "@query" "content-digest")"#;
const WITHOUT_BODY: &str = r#"("@method" "@authority" "@path" "@query")"#;
const TAIL: &str = r#";alg="hmac-sha256";tag="pin-node-agent""#;

/// The signed parts of a request beside its body.
#[derive(Clone, Copy, Debug)]
pub struct Covered<'a> {
    pub method: &'a Method,
    /// The gateway's authority, lower-case, without the scheme's default port.
    pub authority: &'a str,
    /// The path as sent.
    pub path: &'a str,
    /// The query as sent, without `?`.
    pub query: Option<&'a str>,
}

/// A well-formed signature, not yet verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Signed {
    /// The id of the node that it claims to be from.
    pub node: String,
    pub generation: u32,
    /// When it was made, in seconds since the epoch.
    pub created: i64,
    /// Sixteen bytes in base64url, unique among the node's signatures.
    pub nonce: String,
    /// SHA-256 of the body; none without a body.
    digest: Option<[u8; 32]>,
    base: String,
    mac: [u8; 32],
}

impl std::fmt::Debug for Signed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signed")
            .field("node", &self.node)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl Signed {
    /// Reads a request's signature. The error is `missing` or `profile` (malformed).
    pub fn read(request: &Covered<'_>, headers: &HeaderMap) -> Result<Signed, &'static str> {
        let (input, mac) = (one(headers, SIGNATURE_INPUT)?, one(headers, SIGNATURE)?);
        let (Some(input), Some(mac)) = (input, mac) else { return Err("missing") };
        let digest = one(headers, CONTENT_DIGEST)?;
        let parameters = input.strip_prefix("sig1=").ok_or("profile")?;
        let list = if digest.is_some() { WITH_BODY } else { WITHOUT_BODY };
        if digest.is_none() && *request.method == Method::POST {
            return Err("profile");
        }
        let rest = parameters
            .strip_prefix(list)
            .and_then(|rest| rest.strip_suffix(TAIL))
            .ok_or("profile")?;
        let (created, nonce, node, generation) = read_parameters(rest).ok_or("profile")?;
        let sha256 = match digest {
            None => None,
            Some(text) => Some(text.strip_prefix("sha-256=").and_then(bytes).ok_or("profile")?),
        };
        let mac = mac.strip_prefix("sig1=").and_then(bytes).ok_or("profile")?;
        let base = base(request, digest, parameters);
        Ok(Signed {
            node: node.to_owned(),
            generation,
            created,
            nonce: nonce.to_owned(),
            digest: sha256,
            base,
            mac,
        })
    }

    pub(crate) fn is_timely(&self, now_s: i64) -> bool {
        now_s.abs_diff(self.created) <= bounds::NODE_SKEW.as_secs()
    }

    /// Compares in constant time.
    pub(crate) fn is_made_with(&self, key: &[u8]) -> bool {
        constant_time_eq(&mac(key, &self.base), &self.mac)
    }

    pub fn covers(&self, body: &[u8]) -> bool {
        match &self.digest {
            Some(digest) => constant_time_eq(&Sha256::digest(body), digest),
            None => body.is_empty(),
        }
    }
}

/// The one value of a header; two lines are malformed.
pub(super) fn one(
    headers: &HeaderMap,
    name: impl AsHeaderName,
) -> Result<Option<&str>, &'static str> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => line.to_str().map(Some).map_err(|_| "profile"),
        (Some(_), Some(_)) => Err("profile"),
    }
}

/// Reads `;created=…;nonce="…";keyid="<node>.<generation>"`, and nothing else.
fn read_parameters(text: &str) -> Option<(i64, &str, &str, u32)> {
    let (created, rest) = text.strip_prefix(";created=")?.split_once(';')?;
    let (nonce, rest) = rest.strip_prefix("nonce=\"")?.split_once('"')?;
    let key = rest.strip_prefix(";keyid=\"")?.strip_suffix('"')?;
    let (node, generation) = key.rsplit_once('.')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let known_form = (1..=64).contains(&node.len()) && node.bytes().all(plain);
    let fresh = nonce.len() == 22 && URL_SAFE_NO_PAD.decode(nonce).is_ok();
    (known_form && fresh).then_some((
        i64::from(number(created, 10)?),
        nonce,
        node,
        number(generation, 9)?,
    ))
}

/// A positive integer in its only valid spelling.
fn number(text: &str, most: usize) -> Option<u32> {
    let spelt = !text.is_empty()
        && text.len() <= most
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.starts_with('0');
    if spelt { text.parse().ok() } else { None }
}

/// Thirty-two bytes as a byte sequence (RFC 8941 section 3.3.5), in its only valid spelling.
fn bytes(text: &str) -> Option<[u8; 32]> {
    let inner = text.strip_prefix(':')?.strip_suffix(':')?;
    STANDARD.decode(inner).ok()?.try_into().ok()
}

/// The signature base (RFC 9421 section 2.5).
fn base(request: &Covered<'_>, digest: Option<&str>, parameters: &str) -> String {
    let Covered { method, authority, path, query } = request;
    let query = query.unwrap_or_default();
    let digest =
        digest.map_or_else(String::new, |digest| format!("\"content-digest\": {digest}\n"));
    format!(
        "\"@method\": {method}\n\"@authority\": {authority}\n\"@path\": {path}\n\
         \"@query\": ?{query}\n{digest}\"@signature-params\": {parameters}"
    )
}

fn mac(key: &[u8], base: &str) -> [u8; 32] {
    MacKey::new(key).code(base.as_bytes())
}

pub struct Signer<'a> {
    /// The secret as issued.
    pub key: &'a [u8],
    pub node: &'a str,
    pub generation: u32,
}

impl Signer<'_> {
    /// The headers for a request with this body, signed at `created` (seconds since the epoch).
    pub fn sign(
        &self,
        request: &Covered<'_>,
        body: &[u8],
        created: i64,
        random: &Random,
    ) -> [(&'static str, String); 3] {
        let mut nonce = [0; 16];
        random.fill(&mut nonce);
        self.sign_with(request, body, created, &URL_SAFE_NO_PAD.encode(nonce))
    }

    fn sign_with(
        &self,
        request: &Covered<'_>,
        body: &[u8],
        created: i64,
        nonce: &str,
    ) -> [(&'static str, String); 3] {
        let digest = format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body)));
        let Signer { key, node, generation } = self;
        let parameters = format!(
            "{WITH_BODY};created={created};nonce=\"{nonce}\";keyid=\"{node}.{generation}\"{TAIL}"
        );
        let signature = STANDARD.encode(mac(key, &base(request, Some(&digest), &parameters)));
        [
            (CONTENT_DIGEST, digest),
            (SIGNATURE_INPUT, format!("sig1={parameters}")),
            (SIGNATURE, format!("sig1=:{signature}:")),
        ]
    }
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
