//! The overview: what needs attention, the traffic, and the state of targets.

mod attention;
mod concerns;
mod lost_holds;
mod present;
mod traffic;
mod traffic_page;
mod view;

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use maud::{Markup, html};

use self::concerns::Concerns;
use self::present::Present;
use self::traffic::Traffic;
use self::view::{Dimension, View};
use super::call::PageCall;
use super::form_fields::body;
use super::form_state::{FormState, is_of_form, with_status};
use super::layout::Tab;
use rerouter_core::api::ApiResult;

/// `GET /console/`. With `part=now`, only the part that htmx renews.
pub(super) async fn show(call: PageCall<'_>) -> ApiResult {
    if call.is_fragment() && call.query("part").as_deref() == Some("now") {
        return call.fragment(StatusCode::OK, now(&call).await);
    }
    page(&call, FormState::default()).await
}

/// The whole page. `state` is that of a form on it.
async fn page(call: &PageCall<'_>, state: FormState<'_>) -> ApiResult {
    let mut view = View::read(call)?;
    let labels = match view.by {
        Dimension::Label => traffic::labels(call).await,
        _ => BTreeSet::new(),
    };
    if view.label.is_empty() {
        view.label = traffic::usual_label(&labels);
    }
    let (now, lost, traffic) =
        futures::join!(now(call), lost_holds::section(call), Traffic::read(call, &view));
    let traffic = match call.serves("/v1/router/usage") {
        true => traffic_page::show(&traffic?, &view, &labels, call.is_admin()),
        false => html! {},
    };
    let main = html! {
        (state.notice())
        div #now hx-get="/console/?part=now" hx-trigger="every 15s" data-quiet { (now) }
        (lost)
        (traffic)
    };
    call.page("Overview", Tab::Overview, main)
}

/// `POST /console/lost-holds`
pub(super) async fn settle(call: PageCall<'_>) -> ApiResult {
    let settled = body(&lost_holds::FORM, &call.form()?)?.into();
    match call.call(Method::PATCH, "/v1/router/usage", Some(&settled)).await {
        Ok(_) => call.redirect("/console/"),
        Err(error) if is_of_form(&error) => {
            let state = FormState { refused: Some(&error), ..FormState::default() };
            with_status(error.status(), page(&call, state).await)
        }
        Err(error) => Err(error),
    }
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
