//! Removes the thinking of answers that the gateway translated from requests that are not
//! translated. Providers accept their own signatures only.

use crate::neutral::seal;
use crate::wire::json::{self, Cursor, Edit, JsonError, JsonKind, removals};

/// The edits that remove such thinking: blocks of messages, or items of a response's `input`. A
/// message that has nothing else keeps its blocks, because a message cannot be empty. Anthropic's
/// `thinking` with a budget is disabled if the request answers tool calls and the model's words
/// since the user last asked lose theirs, as it is refused then.
pub fn without_foreign_thinking(body: &[u8]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let (mut is_lost, mut budget) = (false, None);
    // The body was read before, so this cannot fail.
    let _read = json::read_object(body, |cursor, name| match cursor.kind()? {
        JsonKind::Array if name.is("input") => parts(cursor, &mut edits).map(|_| ()),
        JsonKind::Array if name.is("messages") => cursor.elements(|cursor| {
            if cursor.kind()? != JsonKind::Object {
                return cursor.pass();
            }
            let (before, mut is_user, mut answers) = (edits.len(), false, false);
            cursor.members(|cursor, name| match cursor.kind()? {
                JsonKind::Array if name.is("content") => {
                    answers = parts(cursor, &mut edits)?;
                    Ok(())
                }
                _ => {
                    let span = cursor.skip()?;
                    is_user |= name.is("role") && cursor.raw(&span) == b"\"user\"";
                    Ok(())
                }
            })?;
            is_lost = (is_lost && (!is_user || answers)) || edits.len() > before;
            Ok(())
        }),
        JsonKind::Object if name.is("thinking") => {
            let span = cursor.skip()?;
            let is_budget = memchr::memmem::find(cursor.raw(&span), b"\"enabled\"").is_some();
            budget = Some(span).filter(|_| is_budget);
            Ok(())
        }
        _ => cursor.pass(),
    });
    let span = budget.filter(|_| is_lost);
    edits.extend(span.map(|span| Edit::new(span, &br#"{"type":"disabled"}"#[..])));
    edits
}

/// Removes such parts of a list. Returns whether there are results of tools in it.
fn parts(cursor: &mut Cursor<'_>, edits: &mut Vec<Edit>) -> Result<bool, JsonError> {
    let (mut parts, mut has_results) = (Vec::new(), false);
    cursor.elements(|cursor| {
        let mut is_foreign = false;
        let is_object = cursor.kind()? == JsonKind::Object;
        let start = cursor.position();
        if is_object {
            cursor.members(|cursor, name| {
                let span = cursor.skip()?;
                let text = || json::text(cursor.raw(&span)).unwrap_or_default();
                if name.is("type") {
                    has_results |= text() == "tool_result";
                } else if name.is("signature") || name.is("encrypted_content") {
                    is_foreign |= seal::is_foreign(&text());
                }
                Ok(())
            })?;
        } else {
            cursor.pass()?;
        }
        parts.push((start..cursor.position(), is_foreign));
        Ok(())
    })?;
    if parts.iter().any(|(_, is_foreign)| !is_foreign) {
        edits.extend(removals(&parts));
    }
    Ok(has_results)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::{read_request, rename_model};
    use super::*;
    use crate::endpoint::Endpoint;

    /// The body that a provider of the endpoint's dialect gets.
    fn sent(endpoint: Endpoint, body: &str) -> String {
        let request = read_request(body.as_bytes(), endpoint).unwrap();
        let edits = without_foreign_thinking(body.as_bytes());
        assert_eq!(request.has_foreign_thinking, body.contains("rerouter."), "{body}");
        let body = Bytes::copy_from_slice(body.as_bytes());
        let sent = rename_model(&body, &request.model_span, "m", &edits);
        String::from_utf8(sent.to_vec()).unwrap()
    }

    #[test]
    fn thinking_of_other_dialects_leaves_and_every_other_byte_stays() {
        let messages = r#"{"model": "auto", "messages": [ {"role":"user","content":"hi"},
            {"role":"assistant", "content": [ {"type":"thinking","thinking":"a","signature":"own"},
             {"type":"thinking","thinking":"b","signature":"rerouter.gemini.e30"} ,
             {"type":"text","text":"rerouter.gemini.e30"}]}, {"role":"assistant","content":[
             {"type":"thinking","thinking":"c","signature":"rerouter.none"}, {"type":"text",
              "text":"yes"}]}, {"role":"assistant","content":[
             {"type":"thinking","thinking":"alone","signature":"rerouter.none"}]}]}"#;
        let left = messages
            .replace("\"auto\"", "\"m\"")
            .replace(
                ",\n             {\"type\":\"thinking\",\"thinking\":\"b\",\
                 \"signature\":\"rerouter.gemini.e30\"}",
                "",
            )
            .replace(
                "{\"type\":\"thinking\",\"thinking\":\"c\",\"signature\":\"rerouter.none\"}, ",
                "",
            );
        assert_eq!(sent(Endpoint::Messages, messages), left);
        let input = r#"{"model":"m","input":[{"type":"reasoning","id":"rs_1","summary":[],
            "encrypted_content":"rerouter.messages.e30"},{"type":"reasoning","id":"rs_2",
            "summary":[],"encrypted_content":"own"},{"role":"user","content":"hi"}]}"#;
        let first = input.find("{\"type\":\"reasoning\"").unwrap();
        let second = input.find("{\"type\":\"reasoning\",\"id\":\"rs_2").unwrap();
        assert_eq!(
            sent(Endpoint::Responses, input),
            format!("{}{}", &input[..first], &input[second..])
        );
        let looped = r#"{"model":"m","thinking":{"type":"enabled","budget_tokens":2048},"messages":[
            {"role":"assistant","content":[{"type":"thinking","signature":"rerouter.none"},
            {"type":"tool_use","id":"a"}]},{"role":"user","content":[{"type":"tool_result"}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"b"}]},
            {"role":"user","content":[{"type":"tool_result"}]}]}"#;
        assert!(sent(Endpoint::Messages, looped).contains(r#""thinking":{"type":"disabled"},"#));
        let asked = looped.replace("]}]}", "]},{\"role\":\"user\",\"content\":\"go on\"}]}");
        assert!(sent(Endpoint::Messages, &asked).contains("budget_tokens"), "a turn of its own");
        let own = input.replace("rerouter.messages.e30", "own");
        assert_eq!(sent(Endpoint::Responses, &own), own);
    }
}
