//! The agents that the gateway knows: their commands, the environment variables with their credentials, and
//! how each agent receives an API key. The table is in `known_agents.toml`.
//!
//! - An agent on PATH gets only the variables of its row. The whole environment would give every agent all secrets of
//!   the gateway. All variables that end in `_API_KEY` would give it the keys of other providers.
//! - An installed agent gets keys by its id in the registry, because the registry also selects the name of its program. It
//!   gets only the keys that the page names before the installation.
//! - Keys, tokens and URLs with a user are masked. Other settings are not masked, because ordinary output contains
//!   values such as `true` or `us-east1`.
//! - The gateway calls `authenticate` only after the agent has rejected a session. Codex writes the key into
//!   `auth.json` and replaces a working sign-in with an account. Gemini changes the settings of its user.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use base::types::AgentDialect;

/// Every known agent. If several commands of one agent are on PATH, the first is used.
pub static KNOWN: LazyLock<&'static [KnownAgent]> = LazyLock::new(|| &TABLE.agents);

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table: Table =
        toml::from_str(include_str!("known_agents.toml")).expect("the table of agents is valid");
    for agent in table.agents.iter_mut().filter(|agent| agent.any_provider) {
        agent.secrets.extend(&table.provider_secrets);
        agent.settings.extend(&table.provider_settings);
    }
    table
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Table {
    provider_secrets: Vec<&'static str>,
    provider_settings: Vec<&'static str>,
    privileged_modes: Vec<&'static str>,
    own_privileged_modes: BTreeMap<String, Vec<&'static str>>,
    sandbox_off: BTreeMap<String, Vec<(&'static str, &'static str)>>,
    mode_commands: Vec<&'static str>,
    dialects: BTreeMap<String, AgentDialect>,
    agents: Vec<KnownAgent>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KnownAgent {
    /// The name in the catalogue if the agent is found on PATH.
    pub name: &'static str,
    /// The id in the registry of the ACP project.
    registry_id: Option<&'static str>,
    /// Programs on PATH, the preferred one first.
    pub commands: Vec<&'static str>,
    /// The arguments that start the agent in ACP mode.
    pub args: Vec<&'static str>,
    /// Packages that provide the command, for entries that run it with npx or uvx, or from a package
    /// directory.
    pub packages: Vec<&'static str>,
    /// Whether the agent supports many providers, and reads their variables.
    any_provider: bool,
    /// Variables that hold a key or a token. Their values are masked in all output.
    pub secrets: Vec<&'static str>,
    /// Variables that configure how the agent reaches its provider. Their values are not masked.
    pub settings: Vec<&'static str>,
    /// The variables of `secrets` that an error message suggests to set.
    pub suggested_variables: Vec<&'static str>,
    /// The variables of `settings` without which the agent ignores a key of `suggested_variables`.
    pub required_settings: Vec<&'static str>,
    /// Methods of `authenticate` that read a key from a variable. Some agents reject sessions without this
    /// call, although the variable is set.
    pub env_key_methods: Vec<(&'static str, &'static str)>,
    /// The method of `authenticate` for an agent that creates sessions with the variable alone, but loads none until a
    /// sign-in is selected. The call selects this sign-in in the settings of the agent.
    pub load_key_method: Option<(&'static str, &'static str)>,
    /// The command for a sign-in at a terminal.
    pub login: Option<&'static str>,
}

/// The format of an API key in the `_meta` of `authenticate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiKeyFormat {
    /// `{"api-key": "KEY"}`
    String,
    /// `{"api-key": {"apiKey": "KEY"}}`
    Object,
}

impl KnownAgent {
    /// Finds the known agent that this command runs, by the name of the program or by a package among the
    /// arguments.
    pub fn find(command: &str, args: &[String]) -> Option<&'static Self> {
        let program = command.rsplit('/').next().unwrap_or(command);
        let by_program = KNOWN.iter().find(|known| known.commands.contains(&program));
        by_program.or_else(|| {
            KNOWN
                .iter()
                .find(|known| args.iter().any(|arg| known.has_package(arg)))
        })
    }

    /// Finds the known agent that has this id in the registry.
    pub fn of_registry(id: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.registry_id == Some(id))
    }

    pub fn dialect(&self) -> AgentDialect {
        TABLE.dialects.get(self.name).copied().unwrap_or_default()
    }

    /// Variables with values that switch off the agent's own sandbox, and change nothing else. With Landlock a sandbox that
    /// mounts file systems fails.
    pub fn sandbox_off(&self) -> &'static [(&'static str, &'static str)] {
        TABLE.sandbox_off.get(self.name).map_or(&[], Vec::as_slice)
    }

    /// Returns true if the argument is a package of this agent, with or without a version, or a path into the
    /// package.
    fn has_package(&self, arg: &str) -> bool {
        self.packages.iter().any(|package| {
            let versioned = arg.strip_prefix(package).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('@') || rest.starts_with("==")
            });
            versioned || arg.contains(&format!("/{package}/"))
        })
    }
}

/// The name of the built-in demo agent in a catalogue that finds no other agent.
pub const DEMO_NAME: &str = "demo";

/// Whether clients expect a known agent or the demo agent under this name: a name in the catalogue, or a command.
pub fn is_known_name(name: &str) -> bool {
    name == DEMO_NAME
        || KNOWN
            .iter()
            .any(|known| known.name == name || known.commands.contains(&name))
}

/// The modes in which an agent runs every tool without a question: the default of `modes.deny`. `None`: an agent that
/// is not in the table.
pub fn privileged_modes(known: Option<&KnownAgent>) -> Vec<String> {
    let own = known
        .and_then(|known| TABLE.own_privileged_modes.get(known.name))
        .into_iter()
        .flatten();
    TABLE
        .privileged_modes
        .iter()
        .chain(own)
        .map(|name| (*name).to_owned())
        .collect()
}

/// Whether agents change their mode or their permissions with the slash command of this name.
pub fn is_mode_command(name: &str) -> bool {
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    TABLE
        .mode_commands
        .iter()
        .any(|command| plain(command) == plain(name))
}

/// Returns the format of the API key for the method with this id, which belongs to one agent. `None` if the
/// method accepts no key or is not known.
pub fn api_key_format(method_id: &str) -> Option<ApiKeyFormat> {
    match method_id {
        "gemini-api-key" => Some(ApiKeyFormat::String),
        "api-key" => Some(ApiKeyFormat::Object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::DeniedModes;

    fn of(command: &str, args: &[&str]) -> Option<&'static str> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        KnownAgent::find(command, &args).map(|known| known.name)
    }

    #[test]
    fn entries_are_recognized_by_their_program_or_package() {
        assert_eq!(of("gemini", &["--acp"]), Some("gemini"));
        assert_eq!(of("/opt/bin/codex-acp", &[]), Some("codex"));
        assert_eq!(
            of("npx", &["-y", "@google/gemini-cli@0.61.0", "--acp"]),
            Some("gemini")
        );
        assert_eq!(
            of("uvx", &["--from", "mistral-vibe@1.2", "vibe-acp"]),
            Some("vibe")
        );
        assert_eq!(of("uvx", &["mistral-vibe==1.2"]), Some("vibe"));
        assert_eq!(
            of(
                "node",
                &["/x/node_modules/@google/gemini-cli/bundle/gemini.js"]
            ),
            Some("gemini")
        );
        assert_eq!(of("node", &["/x/@google/gemini-cli-other/index.js"]), None);
        assert_eq!(of("npx", &["-y", "opencode-ai-fork"]), None);
        assert_eq!(of("my-agent", &[]), None);
        assert_eq!(
            of("/opt/bin/claude", &["--model", "opus"]),
            Some("claude-code")
        );
    }

    #[test]
    fn only_claude_code_has_another_protocol() {
        for known in *KNOWN {
            let is_acp = known.dialect() == AgentDialect::Acp;
            assert_eq!(is_acp, known.name != "claude-code", "{}", known.name);
        }
        assert!(
            TABLE
                .dialects
                .keys()
                .all(|name| KNOWN.iter().any(|known| known.name == name))
        );
    }

    #[test]
    fn rows_are_consistent() {
        for known in *KNOWN {
            let is_variable = |name: &&str| {
                name.bytes()
                    .all(|byte| byte.is_ascii_uppercase() || b"_0123456789".contains(&byte))
            };
            assert!(
                known.secrets.iter().chain(&known.settings).all(is_variable),
                "{}",
                known.name
            );
            assert!(
                !known
                    .secrets
                    .iter()
                    .any(|name| known.settings.contains(name)),
                "{}",
                known.name
            );
            assert!(
                known
                    .suggested_variables
                    .iter()
                    .all(|name| known.secrets.contains(name)),
                "{}",
                known.name
            );
            assert!(
                known
                    .required_settings
                    .iter()
                    .all(|name| known.settings.contains(name)),
                "{}",
                known.name
            );
            let mut methods = known.env_key_methods.iter().chain(&known.load_key_method);
            assert!(
                methods.all(|(_, name)| known.secrets.contains(name)),
                "{}",
                known.name
            );
        }
    }

    #[test]
    fn privileged_modes_belong_to_their_agent() {
        let denies = |agent: Option<&str>, mode: &str| {
            let known = agent.map(|agent| KNOWN.iter().find(|known| known.name == agent).unwrap());
            DeniedModes::new(privileged_modes(known))
                .find(mode)
                .is_some()
        };
        // The ids are those that the agents report.
        for (agent, mode, privileged) in [
            ("claude", "bypassPermissions", true),
            ("claude", "acceptEdits", false),
            ("claude", "auto", false),
            ("claude", "dontAsk", false),
            ("claude-code", "bypassPermissions", true),
            ("claude-code", "acceptEdits", false),
            ("codex", "agent-full-access", true),
            ("codex", "full-access", true),
            ("codex", "agent", false),
            ("codex", "auto", false),
            ("codex", "read-only", false),
            ("gemini", "yolo", true),
            ("gemini", "autoEdit", false),
            ("kimi", "yolo", true),
            ("kimi", "auto", true),
            ("kimi", "default", false),
            ("qwen", "yolo", true),
            ("qwen", "auto-edit", false),
            ("goose", "auto", true),
            ("goose", "smart_approve", false),
            ("vibe", "auto-approve", true),
            (
                "copilot",
                "https://agentclientprotocol.com/protocol/session-modes#autopilot",
                true,
            ),
            (
                "copilot",
                "https://agentclientprotocol.com/protocol/session-modes#agent",
                false,
            ),
            ("opencode", "build", false),
        ] {
            assert_eq!(denies(Some(agent), mode), privileged, "{agent} {mode}");
        }
        assert!(
            denies(None, "yolo") && !denies(None, "auto"),
            "an agent that is not in the table"
        );
    }

    #[test]
    fn commands_that_change_a_mode_are_known() {
        for name in [
            "mode",
            "Mode",
            "permissions",
            "approvals",
            "approval-mode",
            "config",
        ] {
            assert!(is_mode_command(name), "{name}");
        }
        for name in ["", "plan", "review", "model", "compact"] {
            assert!(!is_mode_command(name), "{name}");
        }
    }
}
