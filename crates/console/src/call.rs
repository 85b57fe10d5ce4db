//! What a page's handler works with: its caller and request, calls of the API as that caller, and
//! answers.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use maud::Markup;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer;
use super::form::Form;
use super::layout::{self, TABS, Tab, TabRow};
use super::links::with_query;
use super::refusal::{self, AGENT_KEY, PageAsk};
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::RequestId;
use rerouter_base::interface::Surface;
use rerouter_base::secret::Secret;
use rerouter_base::url::decode;
use rerouter_core::api::{
    self, ApiRequest, ApiResult, ClientOrigin, PathParams, ProgressStep, ProgressStream, Responder,
    Route, RouteMatch,
};
use rerouter_core::app::App;
use rerouter_records::error::ManagementError;
use rerouter_records::page::Page;

#[derive(Clone, Copy)]
pub(super) struct PageCall<'a> {
    pub(super) app: &'a App,
    pub(super) who: &'a Principal,
    pub(super) request: &'a ApiRequest,
}

impl PageCall<'_> {
    /// The JSON of `GET path?query` of the API, as this caller gets it.
    pub(super) async fn get(&self, path_and_query: &str) -> Result<Value> {
        self.call(Method::GET, path_and_query, None).await
    }

    /// The record of `GET path?query` of the API, as this caller gets it.
    pub(super) async fn read<T: DeserializeOwned>(&self, path_and_query: &str) -> Result<T> {
        serde_json::from_value(self.get(path_and_query).await?).map_err(Error::internal)
    }

    /// Reads a page of a list of the API with these filters, from the `after` of this request on.
    /// Also returns the path of the next page of the console's list at `here`.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        api: &str,
        here: &str,
        filters: &[(&str, &str)],
    ) -> Result<(Vec<T>, Option<String>)> {
        let after = self.query("after").unwrap_or_default();
        let asked = [filters, &[("after", after.as_str())]].concat();
        let found: Page<T> = self.read(&with_query(api, &asked)).await?;
        let more =
            |next: String| with_query(here, &[filters, &[("after", next.as_str())]].concat());
        let next = found.next.map(more);
        Ok((found.data, next))
    }

    /// A call of the API with a JSON body. `Ok` is the JSON of any 2xx, null if it has none.
    pub(super) async fn call(
        &self,
        method: Method,
        path_and_query: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        self.json(request(method, path_and_query, body)?).await
    }

    /// As [`call`](Self::call), with any request.
    pub(super) async fn json(&self, request: ApiRequest) -> Result<Value> {
        let response = self.send(request).await?;
        if response.status().is_success() {
            return Ok(serde_json::from_slice(response.body()).unwrap_or_default());
        }
        let kind = match response.status() {
            StatusCode::CONFLICT => Kind::Conflict,
            StatusCode::SERVICE_UNAVAILABLE => Kind::Unavailable,
            _ => Kind::Internal,
        };
        Err(Error::new(kind, record::<ManagementError>(&response)?.detail))
    }

    /// Any call of the API, with the whole answer.
    pub(super) async fn send(&self, mut request: ApiRequest) -> ApiResult {
        let (route, who) = self.admit(&mut request)?;
        match route.responder {
            Responder::Direct(handler, _) => handler(self.app, &who, &request).await,
            Responder::Progress(handler, _) => {
                let mut steps = handler(self.app, &who, &request).await?.steps;
                while let Some(step) = steps.recv().await {
                    if let ProgressStep::Answer(answer) = step {
                        return answer;
                    }
                }
                Err(Error::panicked("a slow answer never came"))
            }
            Responder::Inference(_) | Responder::Reroute => Err(not_for_pages(route)),
        }
    }

    pub(super) async fn progress(&self, mut request: ApiRequest) -> Result<ProgressStream> {
        let (route, who) = self.admit(&mut request)?;
        match route.responder {
            Responder::Progress(handler, _) => handler(self.app, &who, &request).await,
            _ => Err(not_for_pages(route)),
        }
    }

    /// Finds the route of a call and its caller. Completes the request as the gateway does.
    fn admit(&self, request: &mut ApiRequest) -> Result<(&'static Route, Principal)> {
        let (route, params) = match api::find(request.method(), request.uri().path()) {
            RouteMatch::Route(route, params) => (route, params),
            RouteMatch::WrongMethod(error) => return Err(error),
            RouteMatch::Unknown => return Err(Error::not_found("path")),
        };
        if !self.serves(request.uri().path()) {
            return Err(Error::not_found("path"));
        }
        let who = match Surface::of(route.path) {
            Surface::Agent => self.agent_tenant(None)?,
            _ => self.who.clone(),
        };
        api::may_call(route, &who)?;
        request.extensions_mut().insert(params);
        self.complete(request);
        Ok((route, who))
    }

    /// Adds the client and the id of this request to a request to a handler.
    pub(super) fn complete(&self, request: &mut ApiRequest) {
        let (own, extensions) = (self.request.extensions(), request.extensions_mut());
        extensions.insert(self.client());
        own.get::<RequestId>().cloned().map(|id| extensions.insert(id));
    }

    /// The caller on AGENT, which has its own keys. If AGENT is enforced, the session must have a
    /// key, or `key` becomes its key.
    pub(super) fn agent_tenant(&self, key: Option<&Secret>) -> Result<Principal> {
        let found = self.app.auth.agent_tenant(self.who, key, self.app.clock.now());
        let missing = || Error::new(Kind::Unauthorized, "A valid AGENT key is needed for this.");
        found.ok_or_else(|| missing().at(AGENT_KEY))
    }

    /// Whether the listener of this request serves a path of the API, or a page.
    pub(super) fn serves(&self, path: &str) -> bool {
        let interface = Surface::of(path).interface();
        self.app.server.serves(self.client().listener, interface, path)
    }

    pub(super) fn client(&self) -> ClientOrigin {
        self.request.extensions().get::<ClientOrigin>().cloned().unwrap_or_default()
    }

    /// The first value of a parameter of the query.
    pub(super) fn query(&self, name: &str) -> Option<String> {
        api::query_parameter(self.request.uri().query(), name)
    }

    /// The query, as the form that asks for it sends it.
    pub(super) fn asked(&self) -> Result<Form> {
        Form::read(self.request.uri().query().unwrap_or_default().as_bytes())
    }

    pub(super) fn form(&self) -> Result<Form> {
        Form::read(self.request.body())
    }

    /// A variable segment of the path, decoded.
    pub(super) fn param(&self, at: usize) -> String {
        let text = self.request.extensions().get::<PathParams>().map_or("", |found| found.get(at));
        decode(&text.replace('+', "%2B")).unwrap_or_default()
    }

    /// Whether htmx asks for a part of a page.
    pub(super) fn is_fragment(&self) -> bool {
        refusal::is_fragment(self.request.headers())
    }

    pub(super) fn is_admin(&self) -> bool {
        self.who.is_admin()
    }

    /// The tabs that this caller may use here.
    fn tabs(&self) -> Vec<TabRow> {
        let shown = |tab: &TabRow| (!tab.3 || self.is_admin()) && self.serves(tab.1);
        TABS.into_iter().filter(shown).collect()
    }

    /// A whole page with `main` below its title; for htmx only `main`.
    pub(super) fn page(&self, title: &str, tab: Tab, main: Markup) -> ApiResult {
        if self.is_fragment() {
            return self.fragment(StatusCode::OK, main);
        }
        Ok(layout::page(StatusCode::OK, self.who, &self.tabs(), Some(tab), title, &main))
    }

    /// A whole page with this status, under no tab.
    pub(super) fn plain_page(&self, status: StatusCode, title: &str, main: &Markup) -> ApiResult {
        Ok(layout::page(status, self.who, &self.tabs(), None, title, main))
    }

    /// The same with the error that it tells.
    pub(super) fn plain_refusal(&self, error: Error, title: &str, main: &Markup) -> ApiResult {
        Ok(refusal::told(self.plain_page(error.status(), title, main)?, error))
    }

    pub(super) fn fragment(&self, status: StatusCode, html: Markup) -> ApiResult {
        Ok(answer::html(status, html))
    }

    /// Redirects the browser to another page, which it gets with GET.
    pub(super) fn redirect(&self, to: &str) -> ApiResult {
        let place = HeaderValue::from_str(to).map_err(Error::internal)?;
        Ok(answer::redirect(self.is_fragment(), place))
    }

    pub(super) fn refusal(&self, error: Error) -> ApiResult {
        let path = self.request.uri().path_and_query().map_or("/", |asked| asked.as_str());
        let mut ask = PageAsk::new(self.request.method(), path, self.request.headers());
        ask.tabs = self.tabs();
        Ok(refusal::page(&ask, self.who, error))
    }
}

/// A request to the API, for [`PageCall::send`].
pub(super) fn request(
    method: Method,
    path_and_query: &str,
    body: Option<&Value>,
) -> Result<ApiRequest> {
    let mut request = Request::builder().method(method).uri(path_and_query);
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    // A path that HTTP does not allow names nothing.
    request.body(body).map_err(|_| Error::not_found("path"))
}

pub(super) fn record<T: DeserializeOwned>(answer: &Response<Bytes>) -> Result<T> {
    serde_json::from_slice(answer.body()).map_err(Error::internal)
}

fn not_for_pages(route: &Route) -> Error {
    Error::internal(format!("a page cannot call {} {}", route.method, route.path))
}
