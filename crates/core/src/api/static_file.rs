//! A text that is the same for every caller: it is rendered, compressed and hashed once.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha2::{Digest, Sha256};

use super::route::ApiResult;
use rerouter_base::error::Error;

pub struct StaticFile {
    kind: &'static str,
    pub digest: String,
    pub plain: Bytes,
    pub gzip: Bytes,
}

impl StaticFile {
    pub fn new(kind: &'static str, plain: String) -> Self {
        let digest = Sha256::digest(plain.as_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let mut coder = GzEncoder::new(Vec::new(), Compression::best());
        // A write into memory cannot fail.
        let gzip =
            coder.write_all(plain.as_bytes()).and_then(|()| coder.finish()).unwrap_or_default();
        StaticFile { kind, digest, plain: plain.into(), gzip: gzip.into() }
    }

    /// The answer to a request with these headers: the file, or 304.
    pub fn answer(&self, asked: &HeaderMap, cache: &'static str) -> ApiResult {
        let etag =
            HeaderValue::from_str(&format!("\"{}\"", self.digest)).map_err(Error::internal)?;
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        let fresh = asked.get(IF_NONE_MATCH) == Some(&etag);
        headers.insert(ETAG, etag);
        if fresh {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else if takes_gzip(asked) {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            *response.body_mut() = self.gzip.clone();
        } else {
            *response.body_mut() = self.plain.clone();
        }
        Ok(response)
    }
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
