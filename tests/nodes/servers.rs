//! `rerouter node` with each kind of server: its API, changes of its models, silence and recovery.
//! Also nodes with wrong clocks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::nodes::enrolment::start;
use crate::support::documents::chat_body;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key};
use crate::support::moved_clock::{MovedClock, WALL};
use crate::support::node::Node;
use crate::support::node_process::{Process, reported};
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::{free_port, until};

/// A short drain, so that tests do not wait.
const DRAIN: [&str; 2] = ["--drain", "1"];

/// Answers by `METHOD /path`, which a test may change. Other paths are 404.
#[derive(Clone, Default)]
pub struct Pages(Arc<Mutex<HashMap<String, String>>>);

impl Pages {
    fn of<const N: usize>(pages: [(&str, Value); N]) -> Pages {
        let text =
            |value: Value| if let Value::String(text) = value { text } else { value.to_string() };
        Pages(Arc::new(Mutex::new(
            pages.into_iter().map(|(page, value)| (page.to_owned(), text(value))).collect(),
        )))
    }

    fn put(&self, page: &str, value: &Value) {
        self.0.lock().unwrap().insert(page.to_owned(), value.to_string());
    }

    fn answer(&self, request: &Received) -> Vec<Step> {
        if request.target == "/v1/chat/completions" {
            return scripted::completion("well");
        }
        let mut page = format!("{} {}", request.method, request.target);
        if request.method == "POST" {
            page = format!("{page} {}", request.json()["model"].as_str().unwrap());
        }
        match self.0.lock().unwrap().get(&page) {
            Some(text) => {
                scripted::answer(200, &[("content-type", "application/json")], text.as_bytes())
            }
            None => scripted::answer(404, &[("content-type", "text/plain")], b"404 page not found"),
        }
    }

    pub async fn serve(&self) -> Provider {
        let pages = self.clone();
        Provider::start(move |request, _| pages.answer(request)).await
    }
}

pub fn vllm() -> Pages {
    let model = |id: &str| {
        json!({"id": id, "object": "model", "created": 1_762_726_772, "owned_by": "vllm",
                "root": "Qwen/Qwen3-32B", "parent": null,
            "max_model_len": 32_768,
            "permission": [{"id": "modelperm-1", "object": "model_permission",
                    "allow_sampling": true}]})
    };
    Pages::of([
        ("GET /v1/models", json!({"object": "list", "data": [model("qwen"), model("qwen-lora")]})),
        (
            "GET /metrics",
            json!(
                "# HELP vllm:num_requests_running Number of requests in model execution batches.\n\
                 # TYPE vllm:num_requests_running gauge\n\
                 vllm:num_requests_running{engine=\"0\",model_name=\"qwen\"} 3.0\n\
                 vllm:num_requests_waiting{engine=\"0\",model_name=\"qwen\"} 2.0\n"
            ),
        ),
    ])
}

fn sglang() -> Pages {
    let model = json!({
        "id": "qwen", "object": "model", "created": 1, "owned_by": "sglang", "root": "qwen",
        "parent": null, "max_model_len": 40_960
    });
    Pages::of([
        ("GET /v1/models", json!({"object": "list", "data": [model]})),
        (
            "GET /metrics",
            json!(
                "sglang:num_running_reqs{model_name=\"qwen\"} 4.0\n\
                 sglang:num_queue_reqs{model_name=\"qwen\"} 0.0\n"
            ),
        ),
    ])
}

/// llama.cpp, which also answers some paths of Ollama. Without `--metrics`, only its slots show how
/// busy it is.
fn llama_cpp() -> Pages {
    let meta = json!({
        "vocab_type": 2, "n_vocab": 128_256, "n_ctx_train": 131_072, "n_embd": 4096,
        "n_params": 8_030_261_312_u64
    });
    let slot = |id: u64, taken: bool| {
        json!({
            "id": id, "id_task": 135, "n_ctx": 16_384, "speculative": false, "is_processing": taken
        })
    };
    let model = json!({
        "id": "qwen", "object": "model", "created": 1_735_142_223, "owned_by": "llamacpp",
        "meta": meta
    });
    Pages::of([
        (
            "GET /v1/models",
            json!({
                "models": [{"name": "qwen", "model": "qwen", "digest": ""}], "object": "list",
                "data": [model]
            }),
        ),
        (
            "GET /api/tags",
            json!({
                "models": [{
                    "name": "qwen", "model": "qwen", "modified_at": "", "size": "", "digest": "",
                    "type": "model"
                }]
            }),
        ),
        (
            "GET /props",
            json!({"default_generation_settings": {"id": 0, "n_ctx": 16_384, "is_processing": false,
                        "params": {}}, "total_slots": 4,
                "model_path": "/models/qwen.gguf", "chat_template": "...",
                "chat_template_caps": {"supports_tools": true, "supports_tool_calls": true},
                "modalities": {"vision": true, "audio": false}, "build_info": "b8681",
                "is_sleeping": false}),
        ),
        ("GET /slots", json!([slot(0, true), slot(1, true), slot(2, false), slot(3, false)])),
    ])
}

fn ollama() -> Pages {
    let listed = |id: &str| {
        json!({
            "id": id, "object": "model", "created": 1_753_000_000, "owned_by": "library"
        })
    };
    let tag = |name: &str| {
        json!({
            "name": name, "model": name, "size": 5_225_388_164_u64, "digest": format!("sha-{name}"),
            "details": {"family": "qwen3"}
        })
    };
    let info = json!({
        "general.architecture": "qwen3", "qwen3.context_length": 40_960, "qwen3.block_count": 36
    });
    let show = json!({"modelfile": "FROM x", "parameters": "temperature                    0.6",
            "template": "{{ .Prompt }}",
        "details": {"family": "qwen3"}, "model_info": info,
        "capabilities": ["completion", "tools", "thinking"]});
    let mut embed = show.clone();
    embed["parameters"] = json!("num_ctx                        2048");
    embed["capabilities"] = json!(["embedding"]);
    Pages::of([
        (
            "GET /v1/models",
            json!({"object": "list", "data": [listed("qwen"), listed("embed:latest")]}),
        ),
        ("GET /api/tags", json!({"models": [tag("qwen"), tag("embed:latest")]})),
        ("GET /api/ps", json!({"models": []})),
        ("POST /api/show qwen", show),
        ("POST /api/show embed:latest", embed),
    ])
}

async fn shown_models(gateway: &Gateway, node: &Node, running: u64) -> Option<Value> {
    Some(reported(gateway, node, running).await?["registered"]["models"].clone())
}

#[tokio::test]
async fn each_server_is_told_of_in_what_it_tells_and_as_it_changes() {
    let (gateway, _other) = start().await;
    let model = |id: &str, context: u64, capabilities: Value| {
        json!({
            "id": id, "context": context, "capabilities": capabilities,
        })
    };
    let kinds = [vllm(), sglang(), llama_cpp(), ollama()];
    let (mut servers, mut nodes, mut processes) = (Vec::new(), Vec::new(), Vec::new());
    for (number, pages) in kinds.iter().enumerate() {
        servers.push(pages.serve().await);
        nodes.push(Node::enrol(&gateway, &number.to_string(), json!({})).await);
        processes.push(Process::start(&gateway, &nodes[number], &servers[number], &DRAIN));
    }
    let told = async |kind: usize, running: u64, expected: Value| {
        until(&format!("kind {kind} to tell {expected}"), async || {
            shown_models(&gateway, &nodes[kind], running).await.filter(|told| *told == expected)
        })
        .await;
    };
    told(
        0,
        3,
        json!([model("qwen", 32_768, Value::Null), model("qwen-lora", 32_768, Value::Null)]),
    )
    .await;
    assert_eq!(nodes[0].shown(&gateway).await["queued"], 2);
    told(1, 4, json!([model("qwen", 40_960, Value::Null)])).await;
    told(2, 2, json!([model("qwen", 16_384, json!(["tools", "vision", "json"]))])).await;
    told(
        3,
        0,
        json!([
            model("qwen", 40_960, json!(["tools", "json"])),
            model("embed:latest", 2048, json!([]))
        ]),
    )
    .await;
    let asked = |server: &Provider, target: &str| {
        (0..server.count()).filter(|number| server.request(*number).target == target).count()
    };
    until("it to report, too", async || (asked(&servers[3], "/api/ps") >= 2).then_some(())).await;
    assert_eq!(asked(&servers[3], "/api/show"), 2, "once for each model, as long as it is that");

    // Another list, a sleeping model, a model loaded with a smaller context, and a model that was
    // pulled again.
    kinds[0].put(
        "GET /v1/models",
        &json!({"object": "list", "data": [{"id": "qwen-new", "max_model_len": 1024}]}),
    );
    kinds[2].put(
        "GET /props",
        &json!({
            "default_generation_settings": {"n_ctx": 8192}, "total_slots": 4, "is_sleeping": true
        }),
    );
    let slots = asked(&servers[2], "/slots");
    kinds[3].put(
        "GET /api/ps",
        &json!({
            "models": [{
                "name": "qwen", "model": "qwen", "size": 1, "digest": "sha-qwen",
                "context_length": 4096
            }]
        }),
    );
    kinds[3].put(
        "GET /api/tags",
        &json!({
            "models": [
                {"name": "qwen", "digest": "sha-qwen"},
                {"name": "embed:latest", "digest": "sha-other"}
            ]
        }),
    );
    kinds[3].put(
        "POST /api/show embed:latest",
        &json!({"model_info": {"general.architecture": "bert", "bert.context_length": 512}}),
    );
    told(0, 3, json!([model("qwen-new", 1024, Value::Null)])).await;
    told(2, 0, json!([model("qwen", 8192, Value::Null)])).await;
    told(
        3,
        0,
        json!([
            model("qwen", 4096, json!(["tools", "json"])),
            model("embed:latest", 512, Value::Null)
        ]),
    )
    .await;
    assert!(asked(&servers[2], "/slots") <= slots + 1, "one who sleeps is not woken");
    // An unloaded model will be loaded with the same context again.
    kinds[3].put("GET /api/ps", &json!({"models": []}));
    let before = asked(&servers[3], "/api/ps");
    until("another look", async || (asked(&servers[3], "/api/ps") > before + 1).then_some(()))
        .await;
    told(
        3,
        0,
        json!([
            model("qwen", 4096, json!(["tools", "json"])),
            model("embed:latest", 512, Value::Null)
        ]),
    )
    .await;
}

/// The status of a chat for a model that only nodes serve.
async fn ask(gateway: &Gateway, key: &Key) -> u16 {
    gateway.chat(key, chat_body("local", false).as_bytes()).await.status
}

#[tokio::test]
async fn a_server_that_is_gone_gets_no_traffic_and_is_back_when_it_answers() {
    let (gateway, _other) = start().await;
    let key = gateway.create_key().await;
    let late = Arc::new(AtomicUsize::new(0));
    let hangs = Arc::new(AtomicBool::new(false));
    let (pages, hung, hang) = (vllm(), late.clone(), hangs.clone());
    let script = move |request: &Received, _: usize| {
        if request.target == "/v1/models" && hang.load(Ordering::SeqCst) {
            hung.fetch_add(1, Ordering::SeqCst);
            return vec![Step::Hang];
        }
        pages.answer(request)
    };
    let server = Provider::start_at(([127, 0, 0, 1], free_port()).into(), script.clone()).await;
    let node = Node::enrol(&gateway, "a", json!({})).await;
    let mut process = Process::start(&gateway, &node, &server, &DRAIN);
    until("it to report", async || reported(&gateway, &node, 3).await).await;
    assert_eq!(ask(&gateway, &key).await, 200);

    // A single late answer may come from a busy server.
    hangs.store(true, Ordering::SeqCst);
    let lease = node.shown(&gateway).await["lease_expires_at"].clone();
    until("an answer to be late", async || (late.load(Ordering::SeqCst) > 0).then_some(())).await;
    let shown = until("the report of that", async || {
        Some(node.shown(&gateway).await).filter(|shown| shown["lease_expires_at"] != lease)
    })
    .await;
    assert_eq!((&shown["state"], &shown["running"]), (&json!("ready"), &json!(3)), "as it was");
    hangs.store(false, Ordering::SeqCst);

    let address = server.address();
    server.kill().await;
    until("it to say so", async || {
        Some(node.shown(&gateway).await).filter(|shown| shown["state"] == "draining")
    })
    .await;
    let answer = gateway.chat(&key, chat_body("local", false).as_bytes()).await;
    envelope::openai(&answer, 503, "server_error", Some("no_target"));
    let server = Provider::start_at(address, script).await;
    until("it to be back", async || (ask(&gateway, &key).await == 200).then_some(())).await;
    assert!(server.count() > 0);
    assert_eq!(process.end().await, Some(0));
}

#[tokio::test]
async fn a_clock_that_is_wrong_or_is_set_keeps_no_node_away() {
    let (gateway, _other) = start().await;
    let server = vllm().serve().await;
    let dir = tempfile::tempdir().unwrap();
    let (mut nodes, mut processes, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
    for (number, ahead) in [600, -600, 86_400, -86_400].into_iter().enumerate() {
        let clock = MovedClock::new(dir.path(), &number.to_string(), WALL, ahead);
        let node = Node::enrol(&gateway, &number.to_string(), json!({})).await;
        let environment = clock.environment();
        processes.push(Process::start_in(&gateway, &node, &server, &DRAIN, &environment));
        nodes.push(node);
        clocks.push(clock);
    }
    for node in &nodes {
        until("it to report", async || reported(&gateway, node, 3).await).await;
    }
    let refused = async || {
        gateway
            .metric("rerouter_auth_failures_total", &["interface=\"pin\"", "reason=\"skew\""])
            .await
    };
    assert_eq!(refused().await, 4.0, "the first callback of each; from then on they know");
    // While the nodes run, their clocks are set to another wrong time and to the right time.
    for (clock, ahead) in clocks.iter().zip([-86_400, 0, 600, 0]) {
        clock.set(ahead);
    }
    let leases = async || {
        let mut leases = Vec::new();
        for node in &nodes {
            let shown = node.shown(&gateway).await;
            assert_eq!(shown["state"], "ready");
            leases.push(shown["lease_expires_at"].clone());
        }
        leases
    };
    let before = leases().await;
    until("each to report again", async || {
        let now = leases().await;
        now.iter().zip(&before).all(|(now, before)| now != before).then_some(())
    })
    .await;
    assert_eq!(refused().await, 8.0);
    for process in &mut processes {
        assert_eq!(process.end().await, Some(0));
    }
}
