//! Resources of the API, and the pages that all of them have: the list, the form for a new record,
//! and the page of one record with the form that changes it.

use http::header::{ETAG, HeaderName, IF_MATCH};
use http::{HeaderValue, Method, StatusCode};
use maud::{Markup, html};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::call::{PageCall, request};
use super::form::Form;
use super::form_fields::{FormGroup, body, changes};
use super::form_state::{FormState, is_of_form, unconfirmed, with_status};
use super::layout::Tab;
use super::links::with_query;
use super::pieces::{self, Column};
use rerouter_base::error::{Error, Result};
use rerouter_base::url::encode;
use rerouter_core::api::{ApiRequest, ApiResult};

/// A record of the API that has pages.
pub(super) trait Resource: DeserializeOwned + Send + Sync + 'static {
    const TAB: Tab;
    /// Title of the list, and its text and hint if it is empty.
    const TITLE: &'static str;
    const EMPTY: (&'static str, &'static str);
    const COLUMNS: &'static [Column<Self>];
    /// Path of the list in the console and in the API.
    const PAGE: &'static str;
    const API: &'static str;
    /// Element id and htmx trigger of a list that the browser reloads.
    const REFRESHED: Option<(&'static str, &'static str)> = None;
    /// Title of the form for a new record, and its button.
    const NEW: (&'static str, &'static str) = ("", "");
    const NEW_FIELDS: &'static [FormGroup] = &[];
    /// Fields of a record that can be changed.
    const FIELDS: &'static [FormGroup] = &[];
    /// Whether a form without changes is sent too.
    const SENDS_NOTHING: bool = false;

    /// The title of a record's page.
    fn name(&self) -> &str;

    fn api(_call: &PageCall<'_>) -> &'static str {
        Self::API
    }

    /// The query of all its pages.
    fn query(_call: &PageCall<'_>) -> String {
        String::new()
    }

    /// The path of a record's page by its id, or of an action below it.
    fn link(call: &PageCall<'_>, id: &str, action: &str) -> String {
        format!("{}/{}{action}{}", Self::PAGE, encode(id), Self::query(call))
    }

    /// The part of the page below the list.
    fn below(_rows: &[Self]) -> Markup {
        html! {}
    }

    /// Suggestions for its inputs.
    async fn words(_call: &PageCall<'_>) -> Vec<String> {
        Vec::new()
    }

    /// The inputs of the form for a new record.
    fn inputs(_call: &PageCall<'_>, state: &FormState<'_>) -> Markup {
        state.groups(Self::NEW_FIELDS)
    }

    /// The request that creates the record of a form.
    fn creation(call: &PageCall<'_>, sent: &Form) -> Result<ApiRequest> {
        request(Method::POST, Self::api(call), Some(&body(Self::NEW_FIELDS, sent)?.into()))
    }

    /// The answer to a creation. A secret in it is only in this answer: no address shows it again.
    async fn made(call: &PageCall<'_>, made: Value) -> ApiResult {
        again::<Self>(call, &made)
    }

    /// The page of a record, below its title.
    fn shown(&self, _call: &PageCall<'_>, _state: &FormState<'_>) -> Markup {
        html! {}
    }
}

/// The page of a list, from the query's `after` on.
pub(super) async fn list<T: Resource>(call: PageCall<'_>) -> ApiResult {
    list_page::<T>(&call, FormState::default()).await
}

pub(super) async fn list_page<T: Resource>(call: &PageCall<'_>, state: FormState<'_>) -> ApiResult {
    let (rows, next) = call.list::<T>(T::API, T::PAGE, &[]).await?;
    let table = pieces::list(T::TITLE, T::EMPTY, T::COLUMNS, &rows);
    if T::REFRESHED.is_some() && call.is_fragment() {
        return call.fragment(StatusCode::OK, table);
    }
    let (new, _) = T::NEW;
    let here = with_query(T::PAGE, &[("after", &call.query("after").unwrap_or_default())]);
    let main = html! {
        (state.notice())
        @if !new.is_empty() { p { a .button href={ (T::PAGE) "/new" } { (new) } } }
        @match T::REFRESHED {
            Some((id, every)) => (pieces::refreshed(id, &here, every, &table)),
            None => (table),
        }
        (pieces::pager(next.as_deref()))
        (T::below(&rows))
    };
    call.page(T::TITLE, T::TAB, main)
}

/// The page with the form for a new record.
pub(super) async fn blank<T: Resource>(call: PageCall<'_>) -> ApiResult {
    // A refusal, or the request for an AGENT key, comes before the user fills in the form.
    call.get(&with_query(T::api(&call), &[("limit", "1")])).await?;
    form_page::<T>(&call, FormState::default()).await
}

async fn form_page<T: Resource>(call: &PageCall<'_>, state: FormState<'_>) -> ApiResult {
    let ((title, button), words) = (T::NEW, T::words(call).await);
    let main = html! {
        (state.notice())
        form .form method="post" action={ (T::PAGE) (T::query(call)) } {
            (T::inputs(call, &FormState { words: &words, ..state }))
            button .primary type="submit" { (button) }
        }
    };
    call.page(title, T::TAB, main)
}

pub(super) async fn create<T: Resource>(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let made = async { call.json(T::creation(&call, &sent)?).await };
    match made.await {
        Ok(made) => T::made(&call, made).await,
        Err(error) if is_of_form(&error) => {
            let state = FormState { refused: Some(&error), ..FormState::sent(&sent) };
            with_status(error.status(), form_page::<T>(&call, state).await)
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn show<T: Resource>(call: PageCall<'_>) -> ApiResult {
    page::<T>(&call, FormState::default()).await
}

async fn page<T: Resource>(call: &PageCall<'_>, state: FormState<'_>) -> ApiResult {
    let response = call.send(request(Method::GET, &path::<T>(call, ""), None)?).await?;
    let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
    let value: Value = serde_json::from_slice(response.body()).map_err(Error::internal)?;
    let record = T::deserialize(&value).map_err(Error::internal)?;
    let (etag, words) = (etag.unwrap_or_default(), T::words(call).await);
    let state = FormState { record: Some(&value), etag, words: &words, ..state };
    call.page(record.name(), T::TAB, record.shown(call, &state))
}

/// Sends the difference between the form and the record. 412 if the record has changed since a form
/// with its entity tag was loaded.
pub(super) async fn change<T: Resource>(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let before = call.get(&path::<T>(&call, "")).await?;
    let changed = async {
        let patch = match changes(T::FIELDS, &before, &sent)? {
            None if !T::SENDS_NOTHING => return Ok(before.clone()),
            patch => patch.unwrap_or_else(|| json!({})),
        };
        let mut request = request(Method::PATCH, &path::<T>(&call, ""), Some(&patch))?;
        set_header(&mut request, &sent, "etag", IF_MATCH)?;
        call.json(request).await
    };
    let changed = changed.await;
    after::<T>(&call, changed, FormState::sent(&sent)).await
}

/// The page of a record after a change, or with the refusal.
pub(super) async fn after<T: Resource>(
    call: &PageCall<'_>,
    answer: Result<Value>,
    state: FormState<'_>,
) -> ApiResult {
    match answer {
        Ok(changed) if changed.get("unconfirmed").is_some() => {
            page::<T>(call, FormState { done: Some(&changed), ..FormState::default() }).await
        }
        Ok(changed) => again::<T>(call, &changed),
        Err(error) if is_of_form(&error) => {
            let state = FormState { refused: Some(&error), ..state };
            with_status(error.status(), page::<T>(call, state).await)
        }
        Err(error) => Err(error),
    }
}

/// Redirects to the page of the record in the answer, or of the record in the path.
fn again<T: Resource>(call: &PageCall<'_>, answer: &Value) -> ApiResult {
    let id = answer.get("id").and_then(Value::as_str);
    call.redirect(&T::link(call, &id.map_or_else(|| call.param(0), str::to_owned), ""))
}

pub(super) async fn delete<T: Resource>(call: PageCall<'_>) -> ApiResult {
    match call.call(Method::DELETE, &path::<T>(&call, ""), None).await {
        Ok(answer) if answer.get("unconfirmed").is_some() => {
            let word = T::TITLE.trim_end_matches('s');
            let done = format!("The {} is deleted.", word.to_lowercase());
            let main = html! {
                (pieces::notice("ok", &html! { (done) })) (unconfirmed(&answer))
                p { a href=(T::PAGE) { (T::TITLE) } }
            };
            call.page(&format!("{word} deleted"), T::TAB, main)
        }
        Ok(_) => call.redirect(T::PAGE),
        refused => after::<T>(&call, refused, FormState::default()).await,
    }
}

/// The path of a record in the API, with `end` appended.
pub(super) fn path<T: Resource>(call: &PageCall<'_>, end: &str) -> String {
    format!("{}/{}{end}", T::api(call), encode(&call.param(0)))
}

/// Sets a header to the value of a hidden input.
pub(super) fn set_header(
    request: &mut ApiRequest,
    sent: &Form,
    input: &str,
    header: HeaderName,
) -> Result<()> {
    if let Some(text) = sent.get(input).filter(|text| !text.is_empty()) {
        let value = HeaderValue::from_str(text)
            .map_err(|_| Error::invalid(input, "The form was changed. Load it again."))?;
        request.headers_mut().insert(header, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::form_fields::FieldKind;
    use super::*;
    use rerouter_base::url::encode;
    use rerouter_records::agent::{AgentRecord, NewAgent};
    use rerouter_records::key::{KeyPatch, KeyRecord, NewKey};
    use rerouter_records::node::{NewNode, NodeRecord};
    use rerouter_records::patch::MergePatch;
    use rerouter_records::read::read;
    use rerouter_records::user::{NewUser, UserPatch, UserRecord};
    use serde_json::Map;

    /// The body of a form in which every field has a value.
    fn filled(form: &[FormGroup]) -> Map<String, Value> {
        let fields = form.iter().flat_map(|group| group.columns.iter().chain(group.fields));
        let pairs = fields.map(|field| {
            let text = match field.kind {
                FieldKind::Number => "1",
                FieldKind::Time => "2026-11-21T10:00",
                FieldKind::Choice(words) | FieldKind::Beside(words) => {
                    words.iter().map(|(word, _)| *word).find(|word| !word.is_empty()).unwrap()
                }
                FieldKind::Others(..) => "{\"seed\": 1}",
                FieldKind::List(_) => "[{\"type\": \"function\"}]",
                _ => "a",
            };
            format!("{}={}", field.name, encode(text))
        });
        let sent = Form::read(pairs.collect::<Vec<_>>().join("&").as_bytes()).unwrap();
        body(form, &sent).unwrap()
    }

    #[test]
    fn every_field_is_one_of_the_api() {
        read::<NewUser>(filled(UserRecord::NEW_FIELDS)).unwrap();
        read::<UserPatch>(filled(UserRecord::FIELDS)).unwrap();
        read::<NewKey>(filled(KeyRecord::NEW_FIELDS)).unwrap();
        read::<KeyPatch>(filled(KeyRecord::FIELDS)).unwrap();
        read::<NewNode>(filled(NodeRecord::NEW_FIELDS)).unwrap();
        read::<NewAgent>(filled(AgentRecord::NEW_FIELDS)).unwrap();
        read::<MergePatch<NewAgent>>(filled(AgentRecord::FIELDS)).unwrap();
    }
}
