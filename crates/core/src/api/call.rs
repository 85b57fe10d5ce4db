//! A call of a handler with typed records, and its answer.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, LOCATION};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::route::{ApiRequest, ApiResult, ClientOrigin, PathParams};
use super::{body, page};
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Result};
use rerouter_base::id::RequestId;
use rerouter_records::page::NoQuery;
use rerouter_records::read::read;
use rerouter_store::{Action, Committed, Event, Store};

#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) app: &'a App,
    pub(super) who: &'a Principal,
    pub(super) request: &'a ApiRequest,
}

impl<'a> Call<'a> {
    /// 400 if a parameter is unknown.
    pub(super) fn query<T: DeserializeOwned + JsonSchema + 'static>(&self) -> Result<T> {
        page::read(self.request.uri().query())
    }

    /// Refuses a query: 400 for any parameter.
    pub(super) fn no_query(&self) -> Result<()> {
        self.query::<NoQuery>().map(|_| ())
    }

    /// Reads the body, which is required.
    pub(super) fn body<T: DeserializeOwned + JsonSchema + 'static>(&self) -> Result<T> {
        read(body::object(self.request)?)
    }

    /// Reads the body; an empty one counts as `{}`.
    pub(super) fn optional<T: DeserializeOwned + JsonSchema + 'static>(&self) -> Result<T> {
        read(body::object_if_any(self.request)?)
    }

    /// The first variable part of the path.
    pub(super) fn id(&self) -> &'a str {
        self.request.extensions().get::<PathParams>().map_or("", PathParams::first)
    }

    pub(super) fn client(&self) -> ClientOrigin {
        self.request.extensions().get::<ClientOrigin>().cloned().unwrap_or_default()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.app.clock.now()
    }

    pub(super) fn event(&self, action: Action, kind: &str, id: &str) -> Event {
        event(self.app, self.who, self.request, action, kind, id)
    }

    /// The store, with this event for the audit of its next mutation.
    pub(super) fn noting(&self, action: Action, kind: &str, id: &str) -> Store {
        self.app.store.noting(self.event(action, kind, id))
    }

    /// Ends a mutation: answers once every gateway knows of it.
    pub(super) async fn commit<T>(&self, committed: &Committed, body: T) -> Result<Answer<T>> {
        let unconfirmed = self.app.store.acknowledge(committed.rev).await?;
        Ok(Answer { unconfirmed, ..Answer::from(body) })
    }
}

pub(super) fn event(
    app: &App,
    who: &Principal,
    request: &ApiRequest,
    action: Action,
    kind: &str,
    id: &str,
) -> Event {
    let address = request.extensions().get::<ClientOrigin>().and_then(|client| client.address);
    Event::new(app.clock.now(), who.actor(), action, kind, id)
        .by(request.extensions().get::<RequestId>().cloned(), address)
}

/// The answer of a handler; `Answer<()>` has no body.
#[derive(Debug)]
pub(super) struct Answer<T> {
    body: T,
    /// Replaces the status of the operation.
    status: Option<StatusCode>,
    headers: HeaderMap,
    /// The names of the gateways that may not know of the change.
    unconfirmed: Vec<String>,
}

impl<T> From<T> for Answer<T> {
    fn from(body: T) -> Self {
        Answer { body, status: None, headers: HeaderMap::new(), unconfirmed: Vec::new() }
    }
}

impl<T: Serialize> Answer<T> {
    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value).map_err(Error::internal)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Adds the path of the created object as `Location`.
    pub(super) fn at(self, path: &str) -> Result<Self> {
        self.with(LOCATION, path)
    }

    /// Marks the answer as containing a secret, so that no cache keeps it.
    pub(super) fn secret(mut self) -> Self {
        self.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self
    }

    pub(super) fn not_modified(mut self) -> Self {
        self.status = Some(StatusCode::NOT_MODIFIED);
        self
    }

    /// Renders the answer with this status, or with 202 and the names of gateways that may not know
    /// of the change.
    pub(super) fn respond(self, status: u16) -> ApiResult {
        let Answer { body, status: exception, headers, unconfirmed } = self;
        let status = exception.map_or_else(|| StatusCode::from_u16(status), Ok);
        let mut status = status.map_err(Error::internal)?;
        let has_body =
            |status| !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let mut text = String::new();
        if has_body(status) {
            text = serde_json::to_string(&body).map_err(Error::internal)?;
        }
        if !unconfirmed.is_empty() {
            let mut members: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
            members.insert("unconfirmed".to_owned(), unconfirmed.into());
            (status, text) = (StatusCode::ACCEPTED, Value::Object(members).to_string());
        }
        let mut response = Response::new(Bytes::from(text));
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        if has_body(status) {
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
        }
        Ok(response)
    }
}
