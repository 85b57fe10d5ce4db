//! Scripts and styles, inside the binary. Their address has the digest of their bytes, so browsers
//! keep them for ever.

use std::io::Write;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha2::{Digest, Sha256};

use super::answer::protect;
use crate::api::{ApiRequest, ApiResult};
use crate::error::Error;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name, media type, and the files that it consists of.
const FILES: [(&str, &str, &[&str]); 4] = [
    ("htmx.js", SCRIPT, &[include_str!("assets/vendor/htmx.min.js")]),
    ("uplot.js", SCRIPT, &[include_str!("assets/vendor/uplot.min.js")]),
    (
        "console.js",
        SCRIPT,
        &[
            include_str!("assets/console.js"),
            include_str!("assets/playground.js"),
            include_str!("assets/captures.js"),
            include_str!("assets/routing.js"),
            include_str!("assets/charts.js"),
        ],
    ),
    (
        "console.css",
        STYLE,
        &[
            include_str!("assets/vendor/uplot.min.css"),
            include_str!("assets/console.css"),
            include_str!("assets/access.css"),
            include_str!("assets/captures.css"),
            include_str!("assets/routing.css"),
            include_str!("assets/overview.css"),
        ],
    ),
];

/// A file as it is sent.
struct Asset {
    name: &'static str,
    kind: &'static str,
    digest: String,
    href: String,
    plain: Bytes,
    gzip: Bytes,
}

/// All files, made at their first use.
fn assets() -> &'static [Asset] {
    static ASSETS: OnceLock<Vec<Asset>> = OnceLock::new();
    ASSETS
        .get_or_init(|| FILES.iter().map(|(name, kind, parts)| asset(name, kind, parts)).collect())
}

fn asset(name: &'static str, kind: &'static str, parts: &[&str]) -> Asset {
    let plain = parts.join("\n");
    let digest = Sha256::digest(plain.as_bytes());
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let mut coder = GzEncoder::new(Vec::new(), Compression::best());
    // Memory takes all that is written.
    let gzip = coder.write_all(plain.as_bytes()).and_then(|()| coder.finish()).unwrap_or_default();
    let href = format!("/console/assets/{digest}/{name}");
    Asset { name, kind, digest, href, plain: plain.into(), gzip: gzip.into() }
}

/// The address of a file.
pub(super) fn href(name: &str) -> &'static str {
    assets().iter().find(|asset| asset.name == name).map_or("", |asset| &asset.href)
}

/// The answer to a request for a file.
pub(super) fn answer(request: &ApiRequest, digest: &str, name: &str) -> ApiResult {
    let asset = assets().iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| Error::not_found("file"))?;
    // A page of another version asks for another digest, as while gateways are upgraded: it gets
    // what there is, and does not keep it.
    let cache = match digest == asset.digest {
        true => "public, max-age=31536000, immutable",
        false => "no-store",
    };
    let etag = HeaderValue::from_str(&format!("\"{}\"", asset.digest)).map_err(Error::internal)?;
    let asked = request.headers();
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    protect(headers);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    let fresh = asked.get(IF_NONE_MATCH) == Some(&etag);
    headers.insert(ETAG, etag);
    if fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else if takes_gzip(asked) {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        *response.body_mut() = asset.gzip.clone();
    } else {
        *response.body_mut() = asset.plain.clone();
    }
    Ok(response)
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let refused = |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        parts.next() == Some("gzip") && !parts.any(refused)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 150 KB in all; the rest is for the HTML of a page.
    #[test]
    fn all_files_are_small() {
        let all: usize = assets().iter().map(|asset| asset.gzip.len()).sum();
        assert!(all < 100 << 10, "{all} bytes");
        assert!(assets().iter().all(|asset| asset.gzip.len() > 100));
    }

    #[test]
    fn gzip_is_sent_to_who_takes_it() {
        for (line, takes) in [
            ("gzip, deflate, br", true),
            ("br;q=1, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("identity", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, line.parse().unwrap())]);
            assert_eq!(takes_gzip(&headers), takes, "{line}");
        }
    }
}
