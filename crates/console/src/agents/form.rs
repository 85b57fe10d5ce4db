//! The form of an agent, and how it is read.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::super::call::PageCall;
use super::super::form::Form;
use super::super::form_state::{FormState, Input, pairs_of, pairs_text};
use rerouter_base::error::{Error, Result};

/// Default fields with their own input; the other fields are written as JSON.
const NUMBERS: [(&str, &str, &str); 3] = [
    ("temperature", "Temperature", "0 to 2"),
    ("top_p", "Top p", "0 to 1"),
    ("max_tokens", "Most tokens of an answer", ""),
];

/// The aliases of the live document, which an agent may ask for.
pub(super) async fn aliases(call: &PageCall<'_>) -> Vec<String> {
    let listed = call.get("/v1/models").await.unwrap_or_default();
    let models = listed.get("data").and_then(Value::as_array).into_iter().flatten();
    let ours = models.filter(|model| model.get("owned_by") == Some(&json!("rerouter")));
    let names = ours.filter_map(|model| model.get("id")?.as_str());
    names.filter(|name| !name.starts_with("agent/")).map(str::to_owned).collect()
}

/// The inputs. `agent` is null for a new agent.
pub(super) fn inputs(state: &FormState<'_>, agent: &Value, aliases: &[String]) -> Markup {
    let text = |name: &str| agent.get(name).and_then(Value::as_str).unwrap_or_default();
    let default = |name: &str| match agent.pointer(&format!("/defaults/{name}")) {
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    html! {
        (state.line(&Input {
            label: "Name", name: "name", before: text("name"),
            hint: "a-z, 0-9 and -. Clients ask for agent/NAME.",
        }))
        (state.line(&Input {
            label: "Description", name: "description", before: text("description"), hint: "",
        }))
        (state.suggested(&Input {
            label: "Model", name: "model", before: text("model"),
            hint: "An alias of the routing document.",
        }, aliases))
        (state.lines(&Input {
            label: "Instructions", name: "instructions", before: text("instructions"),
            hint: "A system message before the client's own.",
        }, 8))
        fieldset .form {
            legend { "Defaults" }
            p .hint { "They hold where the client sends none." }
            div .access-columns {
                @for (name, label, hint) in NUMBERS {
                    (state.number(&Input {
                        label, name: &format!("defaults.{name}"), before: &default(name), hint,
                    }))
                }
            }
            (state.lines(&Input {
                label: "Others, as JSON", name: "defaults", before: &others(agent),
                hint: "min_p, top_k, seed, stop, frequency_penalty, presence_penalty, \
                       max_completion_tokens",
            }, 2))
        }
        (state.lines(&Input {
            label: "Tools, as JSON", name: "tools", before: &tools(agent),
            hint: "A list of functions, as in chat completions.",
        }, 4))
        (state.lines(&Input {
            label: "Metadata", name: "metadata",
            before: &metadata(agent),
            hint: "name=value, one a line.",
        }, 2))
    }
}

/// The metadata as lines of text.
fn metadata(agent: &Value) -> String {
    let pairs = agent.get("metadata").map(BTreeMap::deserialize).and_then(Result::ok);
    pairs_text(&pairs.unwrap_or_default())
}

/// The default fields without their own input.
fn others(agent: &Value) -> String {
    let mut defaults =
        agent.get("defaults").and_then(Value::as_object).cloned().unwrap_or_default();
    defaults
        .retain(|name, value| !(NUMBERS.iter().any(|(own, ..)| own == name) && value.is_number()));
    if defaults.is_empty() { String::new() } else { pretty(&Value::Object(defaults)) }
}

fn tools(agent: &Value) -> String {
    let tools = agent.get("tools").filter(|tools| tools.as_array().is_some_and(|t| !t.is_empty()));
    tools.map(pretty).unwrap_or_default()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// The agent that a form describes, with all fields.
pub(super) fn read(form: &Form) -> Result<Map<String, Value>> {
    let text = |name: &str| form.get(name).map(str::trim).filter(|text| !text.is_empty());
    let mut agent = Map::new();
    for name in ["name", "model"] {
        agent.insert(name.to_owned(), json!(text(name).unwrap_or_default()));
    }
    for name in ["description", "instructions"] {
        // The text is not trimmed, but blank text is null.
        let written = form.get(name).filter(|text| !text.trim().is_empty());
        agent.insert(name.to_owned(), json!(written));
    }
    let mut defaults = match text("defaults") {
        None => Map::new(),
        Some(text) => json_of::<Map<String, Value>>("defaults", text, "an object")?,
    };
    for (name, ..) in NUMBERS {
        let value = text(&format!("defaults.{name}")).map(number);
        defaults.extend(value.map(|value| (name.to_owned(), value)));
    }
    agent.insert("defaults".to_owned(), Value::Object(defaults));
    let tools = match text("tools") {
        None => Vec::new(),
        Some(text) => json_of::<Vec<Value>>("tools", text, "a list")?,
    };
    agent.insert("tools".to_owned(), Value::Array(tools));
    agent.insert("metadata".to_owned(), Value::Object(pairs_of(form.text("metadata"))));
    Ok(agent)
}

/// A number. Other text is passed on, so that the API refuses it and names the field.
fn number(text: &str) -> Value {
    let whole = text.parse::<i64>().map(Value::from);
    whole.or_else(|_| text.parse::<f64>().map(Value::from)).unwrap_or_else(|_| json!(text))
}

fn json_of<T: serde::de::DeserializeOwned>(field: &str, text: &str, what: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|wrong| Error::invalid(field, format!("{field} must be {what} in JSON: {wrong}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_the_agent_that_it_shows() {
        let sent = "name=+reviewer+&description=&model=auto&instructions=Be+brief.%0A&\
                    defaults.temperature=0.5&defaults.max_tokens=64&defaults=%7B%22seed%22%3A1%7D&\
                    tools=&metadata=team%3Dx";
        let agent = read(&Form::read(sent.as_bytes()).unwrap()).unwrap();
        assert_eq!(
            Value::Object(agent.clone()),
            json!({
                "name": "reviewer", "description": null, "model": "auto",
                "instructions": "Be brief.\n", "tools": [], "metadata": {"team": "x"},
                "defaults": {"temperature": 0.5, "max_tokens": 64, "seed": 1},
            })
        );
        assert_eq!(others(&Value::Object(agent)), "{\n  \"seed\": 1\n}");
    }

    #[test]
    fn what_is_no_json_is_refused_at_its_field() {
        for (sent, field) in [("defaults=%7B", "defaults"), ("tools=%7B%7D", "tools")] {
            let error = read(&Form::read(sent.as_bytes()).unwrap()).unwrap_err();
            assert_eq!(error.field(), Some(field), "{sent}");
        }
    }
}
