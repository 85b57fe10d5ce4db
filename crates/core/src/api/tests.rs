//! The endpoints as plain calls, on a real store.

mod agent_lifecycle;
mod audit_of_documents;
mod creation;
mod grants;
mod identity;
mod key_lifecycle;
mod patch;
mod presets;
mod privilege_escalation;
mod privilege_escalation_agent;
mod users;
mod waiting;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::evaluate;
use super::operations::OPERATIONS;
use super::{ApiRequest, ApiResult, ClientOrigin, PathParams, ProgressStep, Responder};
use crate::app::{App, AppParts, EVALUATIONS};
use crate::config;
use rerouter_access::auth::{Auth, Principal};
use rerouter_access::nodes::Nodes;
use rerouter_base::clock::Clock;
use rerouter_base::clock::fixtures::at;
use rerouter_base::error::{Kind, Result};
use rerouter_base::id::{Random, UserId};
use rerouter_base::interface::Surface;
use rerouter_base::log::AccessLog;
use rerouter_base::metrics::Metrics;
use rerouter_base::secret::{Secret, SecretBytes};
use rerouter_captures::archive::Archive;
use rerouter_captures::capture::queue::CaptureQueue;
use rerouter_captures::telemetry::Telemetry;
use rerouter_store::{Faults, Store};

/// Handlers by the id of their operation, in which `{}` is the interface of the path.
macro_rules! handlers {
    ($($module:ident { $($name:ident $id:literal)* })*) => {
        $(pub(super) mod $module {
            use super::super::*;
            $(pub(in super::super) async fn $name(
                app: &App,
                who: &Principal,
                request: &ApiRequest,
            ) -> ApiResult {
                handle($id, app, who, request).await
            })*
        })*
    };
}
mod handlers {
    handlers! {
        keys {
            create "create{}Key" list "list{}Keys" get "get{}Key" patch "patch{}Key"
            revoke "revoke{}Key" rotate "rotate{}Key"
        }
        agents {
            create "createAgent" list "listAgents" get "getAgent" patch "changeAgent"
            delete "deleteAgent"
        }
        pin {
            register "register" login "login" me "me" logout "logout" password "changePassword"
        }
        users {
            create "createUser" update "updateUser"
        }
    }
}
use handlers::{agents, keys, pin};

async fn handle(id: &str, app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let interface = format!("{:?}", Surface::of(request.uri().path()).interface());
    let id = id.replace("{}", &interface);
    let mut all = OPERATIONS.iter().copied().flatten();
    let Responder::Direct(handler, _) =
        all.find(|operation| operation.id == id).unwrap().route.responder
    else {
        panic!("{id} has no handler")
    };
    handler(app, who, request).await
}

struct TestApi {
    app: App,
    faults: Faults,
    _dir: tempfile::TempDir,
}

async fn world() -> TestApi {
    world_with("").await
}

/// A gateway with this server document.
async fn world_with(server: &str) -> TestApi {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    let auth = Auth::new(
        &SecretBytes::new([1; 32]),
        Some(Secret::new("operator")),
        None,
        Duration::from_secs(1800),
    );
    let nodes = Nodes::new(&SecretBytes::new([1; 32]));
    store.follow(auth.follower(vec![Arc::new(nodes.clone())])).await.unwrap();
    let random = Random::seeded(11);
    let server = config::read_server("test", server, &|_| None).unwrap();
    let routing =
        config::read_routing("demo", config::demo_routing(), &server, &|_| None, None).unwrap();
    let metrics = Arc::new(Metrics::new().unwrap());
    let (captures, _) = CaptureQueue::new(metrics.clone());
    let app = App::new(AppParts {
        archive: Archive::new(store.clone(), &SecretBytes::new([1; 32]), random.clone(), true),
        server,
        store,
        auth,
        nodes,
        access_log: AccessLog::off(),
        telemetry: Telemetry::off(),
        metrics,
        clock: Clock::manual(at(0)),
        random,
        routing,
        captures,
        mock: None,
        variables: Arc::new(|_| None),
    });
    TestApi { app, faults, _dir: dir }
}

fn request(uri: &str, body: Option<Value>) -> Request<Bytes> {
    let mut request = Request::builder().uri(uri);
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request = request.extension(ClientOrigin {
        address: Some("192.0.2.1".parse().unwrap()),
        proven: true,
        secure: false,
        ..ClientOrigin::default()
    });
    if let Some(id) = uri.strip_prefix("/v1/router/keys/") {
        request = request.extension(PathParams(vec![id.split('?').next().unwrap().to_owned()]));
    }
    request.body(body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()))).unwrap()
}

fn read(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> (Kind, Option<String>) {
    let error = result.unwrap_err();
    (error.kind(), error.field().map(str::to_owned))
}

impl TestApi {
    fn bearer(&self, surface: Surface, secret: &str) -> Result<Principal, &'static str> {
        let headers = HeaderMap::from_iter([(
            AUTHORIZATION,
            HeaderValue::from_str(&format!("Bearer {secret}")).unwrap(),
        )]);
        self.app
            .auth
            .identify(&headers, surface, false, self.app.clock.now())
            .map_err(|refused| refused.reason)
    }

    /// Why a key is refused, or `good` if it is accepted.
    fn why(&self, secret: &Value) -> &'static str {
        self.bearer(Surface::DataPlane, text(secret)).err().unwrap_or("good")
    }

    /// Loads the tables as a start with this `AGENT_CLOUD_API_KEY` does.
    async fn start_again(&mut self, agent_key: Option<&str>) {
        let auth = Auth::new(
            &SecretBytes::new([1; 32]),
            None,
            agent_key.map(Secret::new),
            Duration::from_secs(1800),
        );
        auth.attach(&self.app.store).await.unwrap();
        self.app.auth = auth;
    }

    fn router(&self, secret: &str) -> Principal {
        self.bearer(Surface::RouterManagement, secret).unwrap()
    }

    /// Registers a user and logs in; returns the session's principal.
    async fn user(&self, email: &str) -> Principal {
        let body = json!({"email": email, "password": "correct horse"});
        pin::register(
            &self.app,
            &Principal::Anonymous,
            &request("/v1/auth/register", Some(body.clone())),
        )
        .await
        .unwrap();
        let answer =
            pin::login(&self.app, &Principal::Anonymous, &request("/v1/auth/login", Some(body)))
                .await
                .unwrap();
        self.router(read(&answer)["token"].as_str().unwrap())
    }

    async fn create(&self, who: &Principal, body: Value) -> Result<Value> {
        keys::create(&self.app, who, &request("/v1/router/keys", Some(body)))
            .await
            .map(|answer| read(&answer))
    }

    async fn list(&self, who: &Principal, query: &str) -> Result<Value> {
        keys::list(&self.app, who, &request(&format!("/v1/router/keys{query}"), None))
            .await
            .map(|answer| read(&answer))
    }

    /// A key's record as all answers have it, without what is left of its limits.
    async fn get(&self, who: &Principal, id: &str) -> Result<Value> {
        let answer =
            keys::get(&self.app, who, &request(&format!("/v1/router/keys/{id}"), None)).await?;
        let mut record = read(&answer);
        record.as_object_mut().unwrap().remove("usage").unwrap();
        Ok(record)
    }

    async fn revoke(&self, who: &Principal, id: &str) -> Result<StatusCode> {
        keys::revoke(&self.app, who, &request(&format!("/v1/router/keys/{id}"), None))
            .await
            .map(|answer| answer.status())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn rows_are_found_by_whole_segments() {
    match super::find(&http::Method::DELETE, "/v1/router/keys/key_1") {
        super::RouteMatch::Route(route, params) => {
            assert_eq!(route.path, "/v1/router/keys/{id}");
            assert_eq!(params.first(), "key_1");
        }
        _ => panic!("not found"),
    }
    for path in
        ["/v1/router/keys/", "/v1/router/keys/a/b", "/v1/router", "/v1/router/replay/x/rerout"]
    {
        assert!(
            matches!(super::find(&http::Method::GET, path), super::RouteMatch::Unknown),
            "{path}"
        );
    }
    match super::find(&http::Method::PUT, "/v1/router/keys") {
        super::RouteMatch::WrongMethod(error) => assert_eq!(error.allow(), Some("POST, GET")),
        _ => panic!("not refused"),
    }
}

#[test]
fn no_row_stands_twice() {
    for (at, row) in super::ROUTES.iter().enumerate() {
        assert!(
            !super::ROUTES
                .iter()
                .skip(at + 1)
                .any(|other| other.path == row.path && other.method == row.method),
            "{}",
            row.path
        );
    }
}

#[tokio::test]
async fn of_three_evaluations_at_once_the_third_waits_until_another_ends() {
    let world = world().await;
    let asked = request("/v1/router/replay/evaluate", None);
    let mut under_way = Vec::new();
    for caller in 0..EVALUATIONS {
        under_way.push(world.app.evaluations.take(&format!("caller {caller}")).await.unwrap());
    }
    let mut third = Box::pin(evaluate::post(&world.app, &Principal::Admin, &asked));
    assert!((&mut third).now_or_never().is_none(), "it waits for its turn");
    under_way.pop();
    let mut slow = third.await.unwrap();
    loop {
        match slow.steps.recv().await.unwrap() {
            ProgressStep::Line(_) => {}
            ProgressStep::Answer(answer) => {
                break assert_eq!(read(&answer.unwrap())["evaluated"], 0);
            }
        }
    }
}
