//! Scripts and styles inside the binary. Their URL contains a hash of their bytes, so browsers may
//! keep them forever.

use std::sync::OnceLock;

use super::answer::protect;
use rerouter_base::error::Error;
use rerouter_core::api::{ApiRequest, ApiResult, StaticFile};

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name and media type of each file, and the sources that it consists of.
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

struct Asset {
    name: &'static str,
    href: String,
    file: StaticFile,
}

/// All files, made at their first use.
fn assets() -> &'static [Asset] {
    static ASSETS: OnceLock<Vec<Asset>> = OnceLock::new();
    ASSETS
        .get_or_init(|| FILES.iter().map(|(name, kind, parts)| asset(name, kind, parts)).collect())
}

fn asset(name: &'static str, kind: &'static str, parts: &[&str]) -> Asset {
    let file = StaticFile::new(kind, parts.join("\n"));
    Asset { name, href: format!("/console/assets/{}/{name}", file.digest), file }
}

pub(super) fn href(name: &str) -> &'static str {
    assets().iter().find(|asset| asset.name == name).map_or("", |asset| &asset.href)
}

pub(super) fn answer(request: &ApiRequest, digest: &str, name: &str) -> ApiResult {
    let asset = assets().iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| Error::not_found("file"))?;
    // During an upgrade a page of another version may ask for another hash. It gets the present
    // file, but does not keep it.
    let cache = match digest == asset.file.digest {
        true => "public, max-age=31536000, immutable",
        false => "no-store",
    };
    let mut response = asset.file.answer(request.headers(), cache)?;
    protect(response.headers_mut());
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page has 150 KB in all; the rest is for its HTML.
    #[test]
    fn all_files_are_small() {
        let all: usize = assets().iter().map(|asset| asset.file.gzip.len()).sum();
        assert!(all < 100 << 10, "{all} bytes");
        assert!(assets().iter().all(|asset| asset.file.gzip.len() > 100));
    }
}
