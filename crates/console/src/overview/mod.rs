//! The overview: what needs attention, the traffic, and the state of targets.

mod attention;
mod concerns;
mod present;
mod traffic;
mod traffic_page;
mod view;

use http::StatusCode;
use maud::{Markup, html};

use self::concerns::Concerns;
use self::present::Present;
use self::traffic::Traffic;
use self::view::View;
use super::call::PageCall;
use super::layout::Tab;
use rerouter_core::api::ApiResult;

/// `GET /console/`. With `part=now`, only the part that htmx renews.
pub(super) async fn show(call: PageCall<'_>) -> ApiResult {
    let view = View::read(&call)?;
    if call.is_fragment() && call.query("part").as_deref() == Some("now") {
        return call.fragment(StatusCode::OK, now(&call).await);
    }
    let (now, traffic) = futures::join!(now(&call), Traffic::read(&call, &view));
    let traffic = match call.serves("/v1/router/usage") {
        true => traffic_page::show(&traffic?, &view, call.is_admin()),
        false => html! {},
    };
    let main = html! {
        div #now hx-get="/console/?part=now" hx-trigger="every 15s" data-quiet { (now) }
        (traffic)
    };
    call.page("Overview", Tab::Overview, main)
}

/// What needs attention, and the state of this gateway for those who may see it.
async fn now(call: &PageCall<'_>) -> Markup {
    let (present, concerns) = futures::join!(Present::read(call), Concerns::read(call));
    let findings = attention::findings(&present, &concerns, call.app.clock.now());
    html! {
        (attention::show(&findings))
        (present::show(&present))
    }
}
