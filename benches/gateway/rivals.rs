//! Other proxies and gateways in front of the same upstream. Each checks the caller's key, if it
//! can. `benches/run compare` installs them, the last three into `.test/rivals/`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::load::{connect, exchange};
use crate::process::{Process, free_address};

/// LiteLLM requires the prefix `sk-`.
const KEY: &str = "sk-bench-0123456789abcdef0123456789abcdef";

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Rival {
    Nginx,
    Haproxy,
    Envoy,
    Litellm,
    Portkey,
}

/// The settings of its configuration.
struct Place<'a> {
    address: SocketAddr,
    upstream: SocketAddr,
    threads: u16,
    dir: &'a Path,
}

impl Rival {
    pub fn name(self) -> &'static str {
        match self {
            Rival::Nginx => "nginx",
            Rival::Haproxy => "HAProxy",
            Rival::Envoy => "Envoy",
            Rival::Litellm => "LiteLLM",
            Rival::Portkey => "Portkey",
        }
    }

    fn program(self) -> PathBuf {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(".test/rivals");
        match self {
            // Debian installs these in directories that are only in root's PATH.
            Rival::Nginx => found("nginx"),
            Rival::Haproxy => found("haproxy"),
            Rival::Envoy => own.join("envoy/envoy/_bin/envoy"),
            Rival::Litellm => own.join("litellm/bin/litellm"),
            Rival::Portkey => {
                own.join("portkey/node_modules/@portkey-ai/gateway/build/start-server.js")
            }
        }
    }

    /// Starts it, and checks that it answers callers with the key only.
    pub fn start(self, upstream: SocketAddr, threads: u16) -> Result<Process> {
        let program = self.program();
        if !program.exists() {
            return Err(format!("not installed: no {}", program.display()).into());
        }
        let dir = tempfile::Builder::new().prefix("rerouter-rival-").tempdir()?;
        let address = free_address()?;
        let place = Place { address, upstream, threads, dir: dir.path() };
        let mut command = self.command(&program, &place)?;
        // Its messages are kept, as they explain why it does not serve.
        let said = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.log", self.name()));
        command.stderr(std::fs::File::create(&said)?);
        let mut process = Process::start(self.name(), &mut command, address, dir)?;
        process.credential = KEY.to_owned();
        if self == Rival::Portkey {
            process.headers = format!(
                "x-portkey-provider: openai\r\nx-portkey-custom-host: http://{upstream}/v1\r\n"
            );
        }
        let body = crate::load::chat_bodies(600).pop().unwrap_or_default();
        let status = |process: &Process, key: &str| {
            let answer = exchange(&mut connect(address)?, &process.request_by(key, &body))?;
            Ok::<u16, std::io::Error>(answer.status)
        };
        process
            .wait_until(|process| status(process, KEY).is_ok_and(|status| status == 200))
            .map_err(|why| format!("{why}; {} has what it said", said.display()))?;
        // Portkey's gateway does not check keys.
        if self != Rival::Portkey && status(&process, "sk-wrong")? == 200 {
            return Err(format!("{} answers whoever asks", self.name()).into());
        }
        Ok(process)
    }

    fn command(self, program: &Path, place: &Place<'_>) -> Result<Command> {
        let file = place.dir.join("configuration.yaml");
        let mut command = Command::new(program);
        let text = match self {
            Rival::Nginx => {
                command.arg("-p").arg(place.dir).arg("-e").arg("stderr").arg("-c").arg(&file);
                nginx(place)
            }
            Rival::Haproxy => {
                command.arg("-db").arg("-q").arg("-f").arg(&file);
                haproxy(place)
            }
            Rival::Envoy => {
                command.args(["--concurrency", &place.threads.to_string()]);
                command
                    .args(["--log-level", "error", "--disable-hot-restart"])
                    .arg("-c")
                    .arg(&file);
                envoy(place)
            }
            Rival::Litellm => {
                command.args(["--host", "127.0.0.1", "--port", &place.address.port().to_string()]);
                command.arg("--config").arg(&file);
                command.env("LITELLM_LOG", "ERROR").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
                litellm(place)
            }
            Rival::Portkey => {
                command = Command::new("node");
                command.env("NODE_ENV", "production").current_dir(place.dir).arg(program);
                command.args([&format!("--port={}", place.address.port()), "--headless"]);
                String::new()
            }
        };
        std::fs::write(file, text)?;
        Ok(command)
    }
}

/// Finds a program, also in directories that are only in root's PATH.
fn found(name: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/sbin";
    let places: Vec<PathBuf> = std::env::split_paths(&path).map(|dir| dir.join(name)).collect();
    places.into_iter().find(|place| place.exists()).unwrap_or_else(|| PathBuf::from(name))
}

fn nginx(place: &Place<'_>) -> String {
    let Place { address, upstream, threads, .. } = place;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("    {what}_temp_path {what};\n"))
        .concat();
    format!(
        r#"daemon off;
user root;
worker_processes {threads};
worker_rlimit_nofile 20000;
pid nginx.pid;
error_log stderr crit;
events {{ worker_connections 9000; }}
http {{
    access_log off;
{temporary}
    map_hash_bucket_size 128;
    map $http_authorization $known {{ default 0; "Bearer {KEY}" 1; }}
    upstream provider {{ server {upstream}; keepalive 512; keepalive_requests 1000000000; }}
    server {{
        listen {address};
        keepalive_requests 1000000000;
        client_max_body_size 64m;
        client_body_buffer_size 256k;
        location / {{
            if ($known = 0) {{ return 401; }}
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_pass http://provider;
        }}
    }}
}}
"#
    )
}

/// The configuration of HAProxy. Without `http-no-delay` an event of a stream waits for the next
/// one.
fn haproxy(place: &Place<'_>) -> String {
    let Place { address, upstream, threads, .. } = place;
    format!(
        "global
    nbthread {threads}
    maxconn 9000
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend clients
    bind {address}
    acl known req.hdr(authorization) -m str \"Bearer {KEY}\"
    http-request deny deny_status 401 unless known
    default_backend provider
backend provider
    server provider {upstream}
"
    )
}

fn envoy(place: &Place<'_>) -> String {
    const TYPE: &str = "type.googleapis.com/envoy.extensions.filters";
    let (host, port) = (place.upstream.ip(), place.upstream.port());
    let listen = place.address.port();
    format!(
        r#"static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {listen} }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": {TYPE}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          generate_request_id: false
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [ {{ match: {{ prefix: / }}, route: {{ cluster: provider, timeout: 0s }} }} ]
          http_filters:
          - name: envoy.filters.http.api_key_auth
            typed_config:
              "@type": {TYPE}.http.api_key_auth.v3.ApiKeyAuth
              credentials: [ {{ key: {KEY}, client: bench }} ]
              key_sources: [ {{ header: Authorization }} ]
          - name: envoy.filters.http.router
            typed_config: {{ "@type": {TYPE}.http.router.v3.Router }}
  clusters:
  - name: provider
    type: STATIC
    connect_timeout: 5s
    circuit_breakers:
      thresholds: [ {{ max_connections: 9000, max_pending_requests: 9000, max_requests: 9000 }} ]
    load_assignment:
      cluster_name: provider
      endpoints:
      - lb_endpoints:
        - endpoint:
            address: {{ socket_address: {{ address: {host}, port_value: {port} }} }}
"#
    )
}

/// The configuration of LiteLLM, for one worker. Several workers would be separate processes
/// without a common key table.
fn litellm(place: &Place<'_>) -> String {
    let upstream = place.upstream;
    format!(
        "model_list:
- model_name: auto
  litellm_params: {{ model: openai/fixed, api_base: \"http://{upstream}/v1\", api_key: sk-bench }}
general_settings: {{ master_key: {KEY} }}
litellm_settings: {{ set_verbose: false, telemetry: false }}
"
    )
}
