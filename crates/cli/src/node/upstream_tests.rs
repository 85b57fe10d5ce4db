//! Selection of the models to report.

use super::*;

fn server() -> Upstream {
    let patterns = Vec::new();
    Upstream::new(BaseUrl::parse("http://127.0.0.1:9").unwrap(), None, None, patterns).unwrap()
}

fn model(id: &str, context: Option<u64>) -> NodeModel {
    NodeModel { id: id.to_owned(), context, capabilities: None }
}

#[test]
fn each_model_is_reported_once_with_its_context_up_to_a_maximum() {
    let mut server = server();
    assert_eq!(
        server.describe(&[json!({"id": "q", "max_model_len": 4096})]),
        [model("q", Some(4096))]
    );
    let listed = [
        json!({"id": "q", "meta": {"n_ctx": 8192, "n_ctx_train": 131_072}}),
        json!({"id": "q"}),
        json!({"name": "r"}),
        json!({"id": "ü"}),
    ];
    assert_eq!(server.describe(&listed), [model("q", Some(8192))]);
    assert_eq!(server.unreportable, ["ü"]);
    let many: Vec<Value> = (0..=NODE_MODELS)
        .map(|number| json!({"id": format!("m{number}"), "max_model_len": null}))
        .collect();
    let told = server.describe(&many);
    assert_eq!(
        (told.len(), &told[0], server.unreportable.len()),
        (NODE_MODELS, &model("m0", None), 1)
    );
}

#[test]
fn patterns_select_the_models() {
    let mut server = server();
    server.patterns = vec!["qwen*".to_owned(), "llama".to_owned()];
    let mut told = |id: &str| !server.describe(&[json!({ "id": id })]).is_empty();
    assert_eq!(
        [told("qwen-large"), told("llama"), told("llama-2"), told("embed")],
        [true, true, false, false]
    );
}
