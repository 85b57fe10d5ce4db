//! The first page.

use maud::html;

use super::call::PageCall;
use super::layout::Tab;
use crate::api::ApiResult;

pub(super) async fn show(call: PageCall<'_>) -> ApiResult {
    let version = call.get("/version").await?;
    let version = version.get("version").and_then(|version| version.as_str()).unwrap_or_default();
    call.page("Overview", Tab::Overview, html! { p.muted { "rerouter " (version) } })
}
