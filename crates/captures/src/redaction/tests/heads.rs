//! Credentials and matches of expressions in headers, queries and the other texts of a head.

use super::*;

#[test]
fn no_header_is_kept_that_is_a_credential_by_name_or_value() {
    let names = ["x-api-key", "cf-access-jwt-assertion", "x-amzn-oidc-data", "AuthToken", "x-jwt"];
    let named = names.map(|name| (name, "canary".to_owned(), false));
    let basic = "Basic Y2FuYXJ5OmNhbmFyeQ==".to_owned();
    let values = ["Bearer sk-canary-1".to_owned(), JWT.to_owned(), format!("a={OURS};"), basic];
    let valued = values.map(|value| ("x-upstream", value, false));
    let kept = [("x-tier", "Basic plan"), ("x-tokens-left", "7"), ("x-plan", "Basic enterprise")];
    let kept = kept.map(|(name, value)| (name, value.to_owned(), true));
    for (name, value, stays) in named.into_iter().chain(valued).chain(kept) {
        let mut one = plain();
        let header = (name.to_owned(), value.clone());
        one.head.request_headers = vec![header.clone()];
        one.head.response_headers = vec![header.clone()];
        one.head.inputs.as_mut().unwrap().request.headers = [header].into();
        one.head.client_request_id = Some(value.clone());
        let head = redact(&one).head;
        let count = usize::from(stays);
        assert_eq!(
            [head.request_headers.len(), head.response_headers.len()],
            [count; 2],
            "{value}"
        );
        assert_eq!(head.client_request_id.is_none(), name == "x-upstream", "{value}");
        assert_eq!(
            (head.redacted, lost_signals(&head, head.inputs.as_ref().unwrap())),
            (false, !stays),
            "{value}"
        );
        let decided_on = &head.inputs.unwrap().request.headers[name];
        assert_eq!(*decided_on, if stays { value } else { "[redacted]".to_owned() });
    }
    let mut one = plain();
    let header = ("WWW-Authenticate".to_owned(), "Bearer sk-live-0123".to_owned());
    one.head.request_headers = vec![header.clone()];
    one.head.response_headers = vec![header];
    let head = redact(&one).head;
    assert_eq!((head.request_headers.len(), head.response_headers.len()), (0, 1), "a challenge");
}

#[test]
fn a_header_with_a_credential_does_not_even_join_the_capture() {
    let mut draft = RawCapture::from(plain());
    let mut sensitive = http::HeaderValue::from_static("canary");
    sensitive.set_sensitive(true);
    draft.request_headers.insert("x-note", sensitive);
    for name in ["authorization", "api-key", "cookie", "x_api_key", "access_token"] {
        draft.request_headers.insert(name, http::HeaderValue::from_static("canary"));
    }
    draft.request_headers.insert("user-agent", http::HeaderValue::from_bytes(b"\xff").unwrap());
    let packed = PackedCapture::new(draft).unwrap();
    let kept = redact(&packed.unpack().unwrap()).head.request_headers;
    assert!(!format!("{kept:?}").contains("canary") && kept.last().unwrap().0 == "user-agent");
}

#[test]
fn a_key_of_ours_in_the_place_of_a_name_is_hidden() {
    let environment = Secret::new("admin-key-0123456789abcdef");
    let redactor = Redactor::default().veiling(KeyRedactor::new([&environment]));
    for key in [OURS, environment.expose()] {
        let mut one = plain();
        one.head.inputs.as_mut().unwrap().request.name = key.into();
        let kept = redactor.redact(&one).unwrap();
        assert!(!text(&kept).contains(key));
    }
}

#[test]
fn no_text_of_a_head_holds_what_an_expression_matches() {
    let said = || MATCH.to_owned();
    type Put = Box<dyn Fn(&mut Head)>;
    fn inputs(put: impl Fn(&mut rerouter_routing::Inputs) + 'static) -> Put {
        Box::new(move |head| put(head.inputs.as_mut().unwrap()))
    }
    fn decision(put: impl Fn(&mut rerouter_routing::Decision) + 'static) -> Put {
        Box::new(move |head| put(Arc::make_mut(head.decision.as_mut().unwrap())))
    }
    let node = |node: NodeFacts| {
        inputs(move |inputs| {
            let health = TargetHealth { node: Some(node.clone()), ..TargetHealth::default() };
            _ = inputs.health.insert("n".into(), health);
        })
    };
    let agent = AgentRef { id: "agent_1".into(), name: said(), etag: "e".into() };
    let able = BTreeMap::from([(said().into(), Arc::new(Abilities::default()))]);
    let places: Vec<Put> = vec![
        inputs(move |inputs| inputs.request.model = said().into()),
        inputs(move |inputs| inputs.request.name = said().into()),
        inputs(move |inputs| inputs.request.agent = Some(agent.clone())),
        inputs(move |inputs| _ = inputs.request.headers.insert("x-a".into(), said())),
        inputs(move |inputs| _ = inputs.principal.labels.insert("team".into(), said())),
        inputs(move |inputs| _ = inputs.principal.labels.insert(said(), "core".into())),
        inputs(move |inputs| _ = inputs.principal.user_labels.insert("team".into(), said())),
        inputs(move |inputs| inputs.principal.models = Some(vec![said()])),
        inputs(move |inputs| _ = inputs.health.insert(said(), TargetHealth::default())),
        node(NodeFacts { models: vec![said().into()], ..NodeFacts::default() }),
        node(NodeFacts { abilities: able, ..NodeFacts::default() }),
        decision(move |decision| {
            (decision.model, decision.plan[0].model) = (said().into(), said().into())
        }),
        decision(move |decision| {
            decision.plan.push(PlanEntry { provider: "p".into(), model: said().into() })
        }),
        inputs(move |inputs| {
            let refused = RefusedFeature { member: said(), detail: said() };
            inputs.request.untranslatable = Some([("gemini".to_owned(), refused)].into());
        }),
        decision(move |decision| decision.candidates[0].model = said().into()),
        decision(move |decision| decision.alias = Some(said().into())),
        decision(move |decision| decision.recipe = said().into()),
        decision(move |decision| decision.rule = Some(said().into())),
        decision(move |decision| decision.trace.push(Trace { rule: "r".into(), error: said() })),
        Box::new(move |head| {
            head.served = Some(Served { provider: "p".into(), model: said().into(), node: None })
        }),
        Box::new(move |head| head.attempts[0].model = said().into()),
        Box::new(move |head| head.attempts[0].error = Some(said())),
        Box::new(move |head| head.error = Some(said())),
        Box::new(move |head| head.client_request_id = Some(said())),
        Box::new(move |head| head.query = Some(said())),
        Box::new(move |head| head.request_headers.push(("x-a".into(), said()))),
        Box::new(move |head| head.response_headers.push((said(), "a".into()))),
    ];
    let redactor = matching();
    for (number, put) in places.into_iter().enumerate() {
        let mut one = plain();
        put(&mut one.head);
        let before = one.head.decision.clone();
        let kept = redactor.redact(&one).unwrap();
        assert!(
            !text(&kept).contains("canary-0") && kept.head.redacted,
            "{number}: {}",
            text(&kept)
        );
        assert_eq!(one.head.decision, before, "what serves the request stays");
        assert!(!lost_names(&one.head));
    }
    assert_eq!(redactor.redact(&plain()).unwrap().head, plain().head, "and nothing else changes");
    let digits = Redactor::new(vec![Expression::new("[0-9a-z_]").unwrap()]);
    let head = digits.redact(&plain()).unwrap().head;
    assert_eq!((head.id, head.created_at), (plain().head.id, plain().head.created_at));
    assert_eq!(head.inputs.unwrap().at, plain().head.inputs.unwrap().at);
}

#[test]
fn what_a_head_lost_is_known() {
    let redactor = matching();
    let lost = |put: &dyn Fn(&mut Head)| {
        let mut one = plain();
        put(&mut one.head);
        let head = redactor.redact(&one).unwrap().head;
        (lost_names(&head), lost_signals(&head, head.inputs.as_ref().unwrap()))
    };
    let inputs = |head: &mut Head, at: &str| match at {
        "name" => head.inputs.as_mut().unwrap().request.name = MATCH.into(),
        "label" => {
            _ = head.inputs.as_mut().unwrap().principal.labels.insert("a".into(), MATCH.into())
        }
        _ => head.query = Some(MATCH.into()),
    };
    assert_eq!(lost(&|head| inputs(head, "name")), (true, false));
    assert_eq!(lost(&|head| inputs(head, "label")), (false, true));
    assert_eq!(lost(&|head| inputs(head, "query")), (false, false));
    let recipe = |head: &mut Head| {
        Arc::make_mut(head.decision.as_mut().unwrap()).recipe = MATCH.into();
    };
    assert_eq!(lost(&recipe), (true, false));
    assert!(lost_text(&json!({"a": ["it is [redacted]"]})) && !lost_text(&json!({"a": [1]})));
}

#[test]
fn credentials_leave_a_query_and_the_rest_stays_as_it_was() {
    for (query, kept) in [
        ("", None),
        ("beta=true", Some("beta=true")),
        ("b=%2f&&a=+&d;e=%zz", Some("b=%2f&&a=+&d;e=%zz")),
        ("key=1", None),
        ("a=1&API_KEY=2&b=3", Some("a=1&b=3")),
        ("%6B%65%79=1&b", Some("b")),
        ("a=1;token=2&b=3", Some("b=3")),
        ("keys=1&max_tokens=2&monkey=3", Some("keys=1&max_tokens=2&monkey=3")),
        ("a=Bearer+sk-12345&b=eyJ0.e30.c2ln&c=4", Some("c=4")),
    ] {
        assert_eq!(without_credentials(query).as_deref(), kept, "{query}");
        assert_eq!(is_in_query(query), kept.unwrap_or_default() != query, "{query}");
    }
    for query in
        [OURS.to_owned(), format!("a={OURS}"), format!("a=%zz{}", OURS.replace('_', "%5F"))]
    {
        assert_eq!(without_credentials(&format!("x=1&{query}&y")).as_deref(), Some("x=1&y"));
    }
}
