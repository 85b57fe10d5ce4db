//! Pages of agents. If the AGENT interface requires keys, these pages ask for one.

use maud::{Markup, html};

use super::call::PageCall;
use super::form_fields::FieldKind::{Line, List, Number, Others, Pairs, Suggested, Text};
use super::form_fields::{FormField, FormGroup, field, plain};
use super::form_state::FormState;
use super::layout::Tab;
use super::pieces::{self, Column};
use super::playground;
use super::resource::Resource;
use rerouter_base::error::Kind;
use rerouter_records::agent::AgentRecord;
use rerouter_records::model::{ModelList, ModelRecord};

/// Defaults that have an input.
const NUMBERS: &[FormField] = &[
    field("Temperature", "defaults.temperature", Number).hint("0 to 2"),
    field("Top p", "defaults.top_p", Number).hint("0 to 1"),
    field("Most tokens of an answer", "defaults.max_tokens", Number),
];

impl Resource for AgentRecord {
    const TAB: Tab = Tab::Agents;
    const TITLE: &'static str = "Agents";
    const EMPTY: (&'static str, &'static str) = (
        "No agents.",
        "An agent is a preset with a name: an alias, instructions, defaults, tools. “New agent” \
         makes one.",
    );
    const COLUMNS: &'static [Column<Self>] = &[
        Column("Name", "", |agent| {
            html! { a href={ "/console/agents/" (agent.id) } { (agent.name) } }
        }),
        Column("Model", "mono", |agent| html! { (agent.model) }),
        Column("Description", "", |agent| {
            html! { (agent.description.as_deref().unwrap_or_default()) }
        }),
        Column("Trusted", "", trusted),
        Column("Changed", "", |agent| pieces::when(Some(agent.updated_at))),
    ];
    const PAGE: &'static str = "/console/agents";
    const API: &'static str = "/v1/agents";
    const NEW: (&'static str, &'static str) = ("New agent", "Create agent");
    const NEW_FIELDS: &'static [FormGroup] = Self::FIELDS;
    const FIELDS: &'static [FormGroup] = &[
        plain(&[
            field("Name", "name", Line("text"))
                .needed()
                .hint("a-z, 0-9 and -. Clients ask for agent/NAME."),
            field("Description", "description", Line("text")),
            field("Model", "model", Suggested).needed().hint("An alias of the routing document."),
            field("Instructions", "instructions", Text(8))
                .hint("A system message before the client's own."),
        ]),
        FormGroup {
            legend: "Defaults",
            hint: "They hold where the client sends none.",
            columns: NUMBERS,
            fields: &[field("Others, as JSON", "defaults", Others(2, NUMBERS)).hint(
                "min_p, top_k, seed, stop, frequency_penalty, presence_penalty, \
                 max_completion_tokens",
            )],
        },
        plain(&[
            field("Tools, as JSON", "tools", List(4))
                .hint("A list of functions, as in chat completions."),
            field("Metadata", "metadata", Pairs(2)).hint("name=value, one a line."),
        ]),
    ];
    /// With a credential that makes the agent trusted.
    const SENDS_NOTHING: bool = true;

    fn name(&self) -> &str {
        &self.name
    }

    /// The aliases of the live document, which an agent may use as its model.
    async fn words(call: &PageCall<'_>) -> Vec<String> {
        let Ok(ModelList::OpenAi { data, .. }) = call.read("/v1/models").await else {
            return Vec::new();
        };
        let alias = |model| match model {
            ModelRecord::OpenAi { id, owned_by, .. } if owned_by == "rerouter" => Some(id),
            _ => None,
        };
        data.into_iter().filter_map(alias).filter(|id| !id.starts_with("agent/")).collect()
    }

    fn shown(&self, call: &PageCall<'_>, state: &FormState<'_>) -> Markup {
        let (page, model) =
            (format!("/console/agents/{}", self.id), format!("agent/{}", self.name));
        // Who was told of another change may save over it.
        let has_changed =
            state.refused.is_some_and(|error| error.kind() == Kind::PreconditionFailed);
        let etag =
            if has_changed { state.etag.to_owned() } else { state.value("etag", state.etag) };
        html! {
            p { a href="/console/agents" { "Agents" } }
            (state.notice())
            dl .access-facts .card {
                dt { "Asked for as" } dd .mono { (model) }
                dt { "Model" } dd .mono { (self.model) }
                dt { "Trusted" } dd { (trusted(self)) }
                dt { "Id" } dd .mono { (self.id) }
                (pieces::times(&[
                    ("Created", Some(self.created_at)),
                    ("Changed", Some(self.updated_at)),
                ]))
            }
            @if call.serves("/v1/chat/completions") {
                section .card {
                    h2 { "Try it" }
                    (playground::chat(std::slice::from_ref(&model), &model))
                }
            }
            section .card {
                h2 { "Change" }
                form .form method="post" action=(page) {
                    input type="hidden" name="etag" value=(etag);
                    (state.groups(Self::FIELDS))
                    button .primary type="submit" { "Save" }
                }
            }
            section .card {
                h2 { "End" }
                (pieces::confirm_form(
                    &format!("{page}/delete"), "Delete this agent",
                    "Requests for it are refused from then on.",
                ))
            }
        }
    }
}

/// Whether the agent is trusted: then clients can request it as a model on every listener.
fn trusted(agent: &AgentRecord) -> Markup {
    match agent.trusted {
        true => pieces::badge("ok", "trusted"),
        false => pieces::badge("warn", "written while AGENT was open"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::form::Form;
    use super::super::form_fields::{body, changes};
    use super::*;

    #[test]
    fn a_form_is_read_as_the_agent_that_it_shows() {
        let sent = "name=+reviewer+&description=&model=auto&instructions=Be+brief.%0A&\
                    defaults.temperature=0.5&defaults.max_tokens=64&defaults=%7B%22seed%22%3A1%7D&\
                    tools=&metadata=team%3Dx";
        let sent = Form::read(sent.as_bytes()).unwrap();
        let agent = Value::Object(body(AgentRecord::FIELDS, &sent).unwrap());
        assert_eq!(
            agent,
            json!({
                "name": "reviewer", "model": "auto", "instructions": "Be brief.\n",
                "defaults": {"temperature": 0.5, "max_tokens": 64, "seed": 1},
                "metadata": {"team": "x"},
            })
        );
        let others = &AgentRecord::FIELDS[1].fields[0];
        assert_eq!(others.shown(&agent), "{\n  \"seed\": 1\n}");
        assert_eq!(changes(AgentRecord::FIELDS, &agent, &sent).unwrap(), None);
        let emptied = Form::read(b"instructions=&defaults=&defaults.temperature=").unwrap();
        assert_eq!(
            changes(AgentRecord::FIELDS, &agent, &emptied).unwrap(),
            Some(json!({"instructions": null, "defaults": {"temperature": null, "seed": null}}))
        );
    }

    #[test]
    fn what_is_no_json_is_refused_at_its_field() {
        for (sent, field) in [("defaults=%7B", "defaults"), ("tools=%7B%7D", "tools")] {
            let sent = Form::read(sent.as_bytes()).unwrap();
            let error = body(AgentRecord::FIELDS, &sent).unwrap_err();
            assert_eq!(error.field(), Some(field));
        }
    }
}
