//! Coding agents as they are installed, with the settings that docs/clients.md gives: one turn,
//! with a call of a tool and the answer, at a provider of each dialect. `./test` runs Codex and
//! Claude Code, `./test --full` the others too. The table in docs/clients.md has what came of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use regex::Regex;
use rerouter::internals::dialect::endpoint::Endpoint;
use serde_json::{Value, json};

use crate::house::docs::{blocks, read};
use crate::requests::endpoints::post;
use crate::requests::sdk::{check_types, installed};
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{Provider, Received, Step};
use crate::support::{full, until};
use crate::translation::dialects::{
    TEXT, answer, dialect, document, events, gateway, named, respond,
};
use crate::translation::sdk::{ADVICE, advice};

const PAGE: &str = "docs/clients.md";
/// What is in the file that the agent is asked about. Its tool tells the provider of it.
const WEATHER: &str = "It rains in Paris.";
/// How an agent without tools is told to write a file.
const EDIT: &str = "Take an umbrella.\n\nadvice.txt\n```\nTake an umbrella.\n```\n";

/// A tool that fails is not called for ever.
const MOST_CALLS: usize = 6;

/// Where `./test` and `./test --full` install them.
const PROGRAMS: [&str; 3] =
    ["tests/sdk/node_modules/.bin", ".test/agents/node_modules/.bin", ".test/agents/venv/bin"];

/// Protocols of providers, the one endpoint that each has, and its dialect.
const PROVIDERS: [(&str, &str, &str); 4] = [
    ("openai", "chat.completions", "chat"),
    ("openai", "responses", "responses"),
    ("anthropic", "messages", "messages"),
    ("gemini", "gemini", "gemini"),
];

struct Agent {
    name: &'static str,
    package: &'static str,
    /// The note of its blocks in the page.
    note: &'static str,
    /// Where its settings go, below the home directory.
    settings: &'static str,
    /// What the test adds to the page's command, which may be one for a terminal.
    more: &'static str,
    speaks: Endpoint,
    /// What is called. Without a tool, the agent edits by text.
    tool: Option<Tool>,
}

#[derive(Clone, Copy)]
struct Tool {
    name: &'static str,
    arguments: &'static str,
    /// What its result says.
    result: &'static str,
}

impl Tool {
    /// Its name in a request, which may begin with that of a namespace.
    fn known(self, request: &str) -> Option<String> {
        let name = Regex::new(&format!(r#""name":"((?:\w+_|){})""#, self.name)).unwrap();
        Some(name.captures(request)?[1].to_owned())
    }
}

impl Agent {
    /// The version that the requirement files ask for.
    fn version(&self) -> String {
        for file in ["package.json", "agents/package.json"] {
            let wanted: Value = serde_json::from_str(&read(&format!("tests/sdk/{file}"))).unwrap();
            if let Some(version) = wanted["dependencies"][self.package].as_str() {
                return version.to_owned();
            }
        }
        let (wanted, name) = (read("tests/sdk/agents/requirements.txt"), self.package);
        let line = wanted.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("=="));
        line.unwrap_or_else(|| panic!("no version of {name}")).to_owned()
    }

    /// The provider calls the tool until it has the result, and then gives advice.
    fn answered(&self, protocol: &'static str, received: &Received, number: usize) -> Vec<Step> {
        let dialect = dialect(protocol, received);
        let text = String::from_utf8_lossy(&received.body);
        if let Some(tool) = self.tool
            && let Some(name) = tool.known(&text)
            && !text.contains(tool.result)
            && number < MOST_CALLS
        {
            let called = |text: String| calling(text, &name, tool.arguments);
            let whole = serde_json::from_str(&called(answer(dialect).to_string())).unwrap();
            let stream: Vec<String> = events(dialect).into_iter().map(called).collect();
            return respond(protocol, received, &whole, &stream);
        }
        let told = |text: String| text.replace(&inner(ADVICE), &inner(EDIT));
        let whole = serde_json::from_str(&told(advice(dialect).to_string())).unwrap();
        let stream: Vec<String> = last_events(dialect).into_iter().map(told).collect();
        respond(protocol, received, &whole, &stream)
    }

    /// The commands of the page's blocks, settings first; its settings file is written.
    fn script(&self, gateway: &Gateway, home: &Path) -> String {
        let (mut before, mut commands) = (String::new(), String::new());
        for block in blocks(PAGE).into_iter().filter(|block| block.note == self.note) {
            let text = block.text.replace("127.0.0.1:8080", &gateway.host());
            if block.language != "sh" {
                let file = home.join(self.settings);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
                continue;
            }
            for line in text.lines().filter(|line| !line.starts_with("export KEY=")) {
                let sets = line.starts_with("export ") || line.starts_with("unset ");
                let of = if sets { &mut before } else { &mut commands };
                of.extend([line, "\n"]);
            }
        }
        assert!(!commands.is_empty(), "{PAGE} has no block with {:?}", self.note);
        format!("git init --quiet\n{before}{} {}", commands.trim_end(), self.more)
    }

    /// Runs the blocks of the page, in a directory and a home of their own.
    async fn run(&self, gateway: &Gateway, key: &Key, home: &Path) -> Output {
        let script = self.script(gateway, home);
        for name in ["work", "tmp"] {
            std::fs::create_dir(home.join(name)).unwrap();
        }
        std::fs::write(home.join("work/weather.txt"), format!("{WEATHER}\n")).unwrap();
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut programs: Vec<PathBuf> = PROGRAMS.iter().map(|path| root.join(path)).collect();
        programs.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", "180", "sh", "-euc", &script])
            .env_clear()
            .env("HOME", home)
            .env("TMPDIR", home.join("tmp"))
            .env("PATH", std::env::join_paths(programs).unwrap())
            .env("KEY", &key.secret)
            // The test's own settings: what they would tell or fetch elsewhere fails at once.
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("HTTP_PROXY", "http://127.0.0.1:9")
            .env("NO_PROXY", "127.0.0.1")
            .current_dir(home.join("work"))
            .stdin(Stdio::null());
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
    }

    /// A turn at a provider; the members that the translation left out.
    async fn tried(&'static self, at: (&'static str, &str, &'static str)) -> Vec<String> {
        let (protocol, endpoint, dialect) = at;
        let upstream =
            Provider::start(move |received, number| self.answered(protocol, received, number))
                .await;
        let has = format!("    protocol: openai\n    endpoints: [{endpoint}]\n");
        let text = document(&[("a", protocol, &upstream.url())]);
        let (gateway, key) = gateway(&text.replace("    protocol: openai\n", &has)).await;
        let scratch = tempfile::tempdir().unwrap();
        let output = self.run(&gateway, &key, scratch.path()).await;
        let what = format!("{} through {dialect}", self.name);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains(ADVICE),
            "{what}: {}\n{said}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let received: Vec<_> = (0..upstream.count()).map(|at| upstream.request(at)).collect();
        let path = match dialect {
            "chat" => "/v1/chat/completions",
            "gemini" => "/v1/models/model:",
            _ => &format!("/v1/{dialect}"),
        };
        assert!(received.iter().all(|one| one.target.starts_with(path)), "{what}");
        let texts = || received.iter().map(|one| String::from_utf8_lossy(&one.body));
        let done = match self.tool {
            Some(tool) => texts().any(|text| text.contains(tool.result)),
            None => scratch.path().join("work/advice.txt").exists(),
        };
        assert!(done, "{what}: {said}");
        if self.speaks.as_str() != endpoint {
            let bodies = received.iter().map(|one| (what.clone(), dialect, one.body.clone()));
            check_types(bodies.collect()).await;
        }
        self.left_out(&gateway, &key, received.len()).await
    }

    /// The members that are left out of any of its requests: they are sent again, as only the
    /// agent saw the headers of the answers.
    async fn left_out(&self, gateway: &Gateway, key: &Key, requests: usize) -> Vec<String> {
        let captures = until("its captures", async || {
            let path = "/v1/router/replay?limit=100";
            let listed = gateway.manage("GET", path, &gateway.admin_key, None).await.json();
            let all = listed["data"].as_array().unwrap().clone();
            (all.len() >= requests).then_some(all)
        })
        .await;
        let mut names = Vec::new();
        for capture in captures.iter().rev() {
            let capture = gateway.capture(capture["id"].as_str().unwrap()).await;
            let body = capture["request"]["body"].as_str().unwrap();
            let path = format!("/v1{}", self.speaks.path());
            let again = post(gateway, key, &path, &[], body).await;
            assert_eq!(again.status, 200, "{}", again.text());
            for name in again.header("x-rerouter-dropped").unwrap_or_default().split(", ") {
                if !name.is_empty() && !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
        }
        names
    }

    /// That the page's table has what a run tells. The smaller tier looks for the version alone
    /// where it does not run the agent.
    async fn checked(&'static self, runs: bool) {
        let mut row = format!(
            "| {} {} | {} |",
            self.name,
            self.version(),
            self.speaks.as_str().replace('.', " ")
        );
        if runs {
            installed();
            agents_installed();
            for at in PROVIDERS {
                let names = self.tried(at).await;
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                row += &match names.as_slice() {
                    [] => " works |".to_owned(),
                    names => format!(" works, without {} |", names.join(", ")),
                };
            }
            row.push('\n');
        }
        assert!(read(PAGE).contains(&row), "{PAGE} needs the row\n{row}");
    }
}

/// That `./test --full` has installed what the requirement files ask for now.
fn agents_installed() {
    let texts = ["requirements.txt", "package.json", "package-lock.json"]
        .map(|name| read(&format!("tests/sdk/agents/{name}")));
    let stamp = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".test/agents/stamp");
    let installed = std::fs::read_to_string(stamp).unwrap_or_default();
    assert!(
        !full() || installed.ends_with(&texts.concat()),
        "the agents of tests/sdk/agents are not installed, or not these: run ./test --full"
    );
}

/// The text as it stands within a string of JSON.
fn inner(text: &str) -> String {
    json!(text).to_string().trim_matches('"').to_owned()
}

/// The scripted call with another name and other arguments, also where these are a string.
fn calling(text: String, tool: &str, arguments: &str) -> String {
    const SCRIPTED: &str = r#"{"city":"Paris"}"#;
    text.replace("\"look\"", &json!(tool).to_string())
        .replace(SCRIPTED, arguments)
        .replace(&inner(SCRIPTED), &inner(arguments))
}

/// [`advice`] as events: the scripted stream without its call.
fn last_events(dialect: &str) -> Vec<String> {
    const CALL: [&str; 4] =
        ["\"tool_calls\":[", "\"index\":1", "\"output_index\":1", "response.completed"];
    let whole = advice(dialect);
    if dialect == "gemini" {
        return vec![format!("data: {whole}\n\n")];
    }
    let kept =
        events(dialect).into_iter().filter(|event| !CALL.iter().any(|is| event.contains(is)));
    let ended = |event: String| {
        event
            .replace(TEXT, ADVICE)
            .replace("\"tool_calls\"", "\"stop\"")
            .replace("\"tool_use\"", "\"end_turn\"")
    };
    let completed = json!({"type": "response.completed", "sequence_number": 11, "response": whole});
    let more = (dialect == "responses").then(|| named(completed));
    kept.map(ended).chain(more).collect()
}

const CODEX: Agent = Agent {
    name: "Codex",
    package: "@openai/codex",
    note: "run by codex_works_with_every_provider",
    settings: ".codex/config.toml",
    more: "",
    speaks: Endpoint::Responses,
    tool: Some(Tool {
        name: "exec_command",
        arguments: r#"{"cmd":"cat weather.txt"}"#,
        result: WEATHER,
    }),
};

static CLAUDE_CODE: Agent = Agent {
    name: "Claude Code",
    package: "@anthropic-ai/claude-code",
    note: "run by claude_code_works_with_every_provider",
    settings: "",
    more: "--print 'What does weather.txt say?'",
    speaks: Endpoint::Messages,
    tool: Some(Tool {
        name: "Bash",
        arguments: r#"{"command":"cat weather.txt","description":"Read the weather"}"#,
        result: WEATHER,
    }),
};

static OPENCODE: Agent = Agent {
    name: "opencode",
    package: "opencode-ai",
    note: "run by opencode_works_with_every_provider",
    settings: ".config/opencode/opencode.json",
    more: "",
    speaks: Endpoint::ChatCompletions,
    tool: Some(Tool {
        name: "bash",
        arguments: r#"{"command":"cat weather.txt","description":"Read the weather"}"#,
        result: WEATHER,
    }),
};

static CONTINUE: Agent = Agent {
    name: "Continue",
    package: "@continuedev/cli",
    note: "run by continue_works_with_every_provider",
    settings: ".continue/config.yaml",
    more: "",
    speaks: Endpoint::ChatCompletions,
    tool: Some(Tool {
        name: "Bash",
        arguments: r#"{"command":"cat weather.txt"}"#,
        result: WEATHER,
    }),
};

static AIDER: Agent = Agent {
    name: "aider",
    package: "aider-chat",
    note: "run by aider_works_with_every_provider",
    settings: "",
    more: "--yes-always --message 'Write advice.txt.'",
    speaks: Endpoint::ChatCompletions,
    tool: None,
};

#[tokio::test]
async fn codex_works_with_every_provider() {
    static AGENT: Agent = CODEX;
    AGENT.checked(true).await;
}

/// The provider reads the namespace in the tool's name. Codex takes the call only by both names.
#[tokio::test]
async fn codex_calls_tools_of_a_namespace_through_every_provider() {
    static NAMESPACED: Agent = Agent {
        tool: Some(Tool {
            name: "close_agent",
            arguments: r#"{"target":"nobody"}"#,
            result: "invalid agent id nobody",
        }),
        ..CODEX
    };
    for at in PROVIDERS.into_iter().filter(|(_, endpoint, _)| *endpoint != "responses") {
        NAMESPACED.tried(at).await;
    }
}

#[tokio::test]
async fn claude_code_works_with_every_provider() {
    CLAUDE_CODE.checked(true).await;
}

#[tokio::test]
async fn opencode_works_with_every_provider() {
    OPENCODE.checked(full()).await;
}

#[tokio::test]
async fn continue_works_with_every_provider() {
    CONTINUE.checked(full()).await;
}

#[tokio::test]
async fn aider_works_with_every_provider() {
    AIDER.checked(full()).await;
}
