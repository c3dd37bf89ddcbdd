//! The agents that the gateway knows: their commands, the environment variables with their credentials, and
//! how each agent receives an API key.
//!
//! An agent that is found on PATH receives the variables of its row. A configured agent receives only the
//! variables of its entry; the table only describes its sign-in.

/// One known agent.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownAgent {
    /// The name in the catalogue if the agent is found on PATH.
    pub name: &'static str,
    /// The display name.
    pub title: &'static str,
    /// A program on PATH.
    pub command: &'static str,
    /// The arguments that start the agent in ACP mode.
    pub args: &'static [&'static str],
    /// Packages that provide the command, for entries that run it with npx or uvx, or from a package
    /// directory.
    pub packages: &'static [&'static str],
    /// Variables that hold a key or a token. Their values are masked in all output.
    pub secrets: &'static [&'static str],
    /// Variables that configure how the agent reaches its provider. Their values are not masked.
    pub settings: &'static [&'static str],
    /// The variables of `secrets` that an error message suggests to set.
    pub suggested_variables: &'static [&'static str],
    /// The variables of `settings` without which the agent ignores a key of `suggested_variables`.
    pub required_settings: &'static [&'static str],
    /// Methods of `authenticate` that read a key from a variable. Some agents reject sessions without this
    /// call, although the variable is set.
    pub env_key_methods: &'static [(&'static str, &'static str)],
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

/// Methods of `authenticate` that accept an API key, by their id. Each id belongs to one agent.
const API_KEY_METHODS: [(&str, ApiKeyFormat); 2] =
    [("gemini-api-key", ApiKeyFormat::String), ("api-key", ApiKeyFormat::Object)];

/// Key variables of the providers, for agents that support many providers.
const PROVIDER_KEYS: [&str; 20] = [
    "ANTHROPIC_API_KEY",
    "AZURE_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "CEREBRAS_API_KEY",
    "COHERE_API_KEY",
    "DATABRICKS_TOKEN",
    "DEEPSEEK_API_KEY",
    "FIREWORKS_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "GROQ_API_KEY",
    "HF_TOKEN",
    "MISTRAL_API_KEY",
    "MOONSHOT_API_KEY",
    "OPENAI_API_KEY",
    "OPENCODE_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHER_API_KEY",
    "XAI_API_KEY",
];
/// Variables that select a provider or set its address.
const PROVIDER_SETTINGS: [&str; 9] = [
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_HOST",
    "DATABRICKS_HOST",
    "GOOSE_MODEL",
    "GOOSE_PROVIDER",
    "OLLAMA_HOST",
    "OPENAI_BASE_PATH",
    "OPENAI_BASE_URL",
    "OPENAI_HOST",
];

const CLAUDE: KnownAgent = KnownAgent {
    name: "claude",
    title: "Claude",
    command: "claude-agent-acp",
    args: &[],
    packages: &["@agentclientprotocol/claude-agent-acp", "@zed-industries/claude-agent-acp"],
    secrets: &[
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
    ],
    settings: &[
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_BEDROCK_BASE_URL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_FOUNDRY_RESOURCE",
        "ANTHROPIC_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL",
        "ANTHROPIC_VERTEX_BASE_URL",
        "ANTHROPIC_VERTEX_PROJECT_ID",
        "AWS_PROFILE",
        "AWS_REGION",
        "CLAUDE_CODE_EXECUTABLE",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_FOUNDRY",
        "CLAUDE_CODE_USE_VERTEX",
        "CLAUDE_CONFIG_DIR",
        "CLOUD_ML_REGION",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ],
    suggested_variables: &["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"],
    required_settings: &[],
    env_key_methods: &[],
    load_key_method: None,
    login: Some("claude /login"),
};

/// Every known agent. If several commands with the same name are on PATH, the first row is used.
pub const KNOWN: [KnownAgent; 13] = [
    CLAUDE,
    KnownAgent { command: "claude-code-acp", packages: &["@zed-industries/claude-code-acp"], ..CLAUDE },
    KnownAgent {
        name: "codex",
        title: "Codex",
        command: "codex-acp",
        args: &[],
        packages: &["@agentclientprotocol/codex-acp", "@zed-industries/codex-acp"],
        secrets: &["CODEX_API_KEY", "OPENAI_API_KEY"],
        settings: &["CODEX_HOME", "CODEX_PATH", "MODEL_PROVIDER", "OPENAI_BASE_URL"],
        suggested_variables: &["CODEX_API_KEY", "OPENAI_API_KEY"],
        required_settings: &[],
        env_key_methods: &[
            ("api-key", "CODEX_API_KEY"),
            ("api-key", "OPENAI_API_KEY"),
            ("codex-api-key", "CODEX_API_KEY"),
            ("openai-api-key", "OPENAI_API_KEY"),
        ],
        load_key_method: None,
        login: Some("codex login"),
    },
    KnownAgent {
        name: "gemini",
        title: "Gemini",
        command: "gemini",
        args: &["--acp"],
        packages: &["@google/gemini-cli"],
        secrets: &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_ACCESS_TOKEN"],
        settings: &[
            "GEMINI_CLI_HOME",
            "GEMINI_CLI_SYSTEM_DEFAULTS_PATH",
            "GEMINI_CLI_SYSTEM_SETTINGS_PATH",
            "GEMINI_MODEL",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_CLOUD_PROJECT_ID",
            "GOOGLE_CLOUD_QUOTA_PROJECT",
            "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_GENAI_API_VERSION",
            "GOOGLE_GENAI_USE_GCA",
            "GOOGLE_GENAI_USE_VERTEXAI",
            "GOOGLE_VERTEX_BASE_URL",
        ],
        suggested_variables: &["GEMINI_API_KEY"],
        required_settings: &[],
        env_key_methods: &[],
        load_key_method: Some(("gemini-api-key", "GEMINI_API_KEY")),
        login: Some("gemini"),
    },
    KnownAgent {
        name: "opencode",
        title: "opencode",
        command: "opencode",
        args: &["acp"],
        packages: &["opencode-ai"],
        secrets: &PROVIDER_KEYS,
        settings: &PROVIDER_SETTINGS,
        suggested_variables: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY"],
        required_settings: &[],
        env_key_methods: &[],
        load_key_method: None,
        login: Some("opencode auth login"),
    },
    KnownAgent {
        name: "goose",
        title: "goose",
        command: "goose",
        args: &["acp"],
        packages: &[],
        secrets: &PROVIDER_KEYS,
        settings: &PROVIDER_SETTINGS,
        suggested_variables: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"],
        required_settings: &[],
        env_key_methods: &[],
        load_key_method: None,
        login: Some("goose configure"),
    },
    KnownAgent {
        name: "vibe",
        title: "Vibe",
        command: "vibe-acp",
        args: &[],
        packages: &["mistral-vibe"],
        secrets: &["MISTRAL_API_KEY"],
        settings: &["VIBE_HOME"],
        suggested_variables: &["MISTRAL_API_KEY"],
        required_settings: &[],
        env_key_methods: &[],
        load_key_method: None,
        login: Some("vibe --setup"),
    },
    KnownAgent {
        name: "qwen",
        title: "Qwen Code",
        command: "qwen",
        args: &["--acp"],
        packages: &["@qwen-code/qwen-code"],
        secrets: &[
            "ANTHROPIC_API_KEY",
            "BAILIAN_CODING_PLAN_API_KEY",
            "DASHSCOPE_API_KEY",
            "GEMINI_API_KEY",
            "OPENAI_API_KEY",
        ],
        settings: &["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OPENAI_MODEL"],
        suggested_variables: &["OPENAI_API_KEY"],
        required_settings: &[],
        env_key_methods: &[("openai", "OPENAI_API_KEY")],
        load_key_method: None,
        login: Some("qwen"),
    },
    KnownAgent {
        name: "kimi",
        title: "Kimi Code",
        command: "kimi",
        args: &["acp"],
        packages: &["@moonshot-ai/kimi-code"],
        secrets: &["KIMI_API_KEY", "KIMI_MODEL_API_KEY", "MOONSHOT_API_KEY"],
        settings: &[
            "KIMI_CODE_BASE_URL",
            "KIMI_CODE_HOME",
            "KIMI_MODEL_BASE_URL",
            "KIMI_MODEL_MAX_CONTEXT_SIZE",
            "KIMI_MODEL_NAME",
            "KIMI_MODEL_PROVIDER_TYPE",
        ],
        suggested_variables: &["KIMI_MODEL_API_KEY"],
        required_settings: &["KIMI_MODEL_NAME"],
        env_key_methods: &[],
        load_key_method: None,
        login: Some("kimi login"),
    },
    KnownAgent {
        name: "copilot",
        title: "GitHub Copilot",
        command: "copilot",
        args: &["--acp"],
        packages: &["@github/copilot"],
        secrets: &["COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"],
        settings: &["GH_HOST"],
        suggested_variables: &["COPILOT_GITHUB_TOKEN"],
        required_settings: &[],
        env_key_methods: &[],
        load_key_method: None,
        login: Some("copilot"),
    },
    KnownAgent {
        name: "cursor",
        title: "Cursor",
        command: "cursor-agent",
        args: &["acp"],
        packages: &[],
        secrets: &["CURSOR_API_KEY"],
        settings: &[],
        suggested_variables: &["CURSOR_API_KEY"],
        required_settings: &[],
        env_key_methods: &[],
        load_key_method: None,
        login: Some("cursor-agent login"),
    },
    KnownAgent {
        name: "auggie",
        title: "Auggie",
        command: "auggie",
        args: &["--acp"],
        packages: &["@augmentcode/auggie"],
        secrets: &["AUGMENT_API_TOKEN", "AUGMENT_SESSION_AUTH"],
        settings: &["AUGMENT_API_URL"],
        suggested_variables: &["AUGMENT_SESSION_AUTH"],
        required_settings: &[],
        env_key_methods: &[],
        load_key_method: None,
        login: Some("auggie login"),
    },
    KnownAgent {
        name: "fast-agent",
        title: "fast-agent",
        command: "fast-agent-acp",
        args: &[],
        packages: &["fast-agent-acp"],
        secrets: &PROVIDER_KEYS,
        settings: &PROVIDER_SETTINGS,
        suggested_variables: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
        required_settings: &[],
        env_key_methods: &[],
        load_key_method: None,
        login: None,
    },
];

impl KnownAgent {
    /// Finds the known agent that this command runs, by the name of the program or by a package among the
    /// arguments.
    pub fn find(command: &str, args: &[String]) -> Option<&'static Self> {
        let program = command.rsplit('/').next().unwrap_or(command);
        let by_program = KNOWN.iter().find(|known| known.command == program);
        by_program.or_else(|| KNOWN.iter().find(|known| args.iter().any(|arg| known.has_package(arg))))
    }

    /// Returns true if the argument is a package of this agent, with or without a version, or a path into the
    /// package.
    fn has_package(&self, arg: &str) -> bool {
        self.packages.iter().any(|package| {
            let versioned =
                arg.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('@'));
            versioned || arg.contains(&format!("/{package}/"))
        })
    }
}

/// Returns the format of the API key for the method with this id. `None` if the method accepts no key or is
/// not known.
pub fn api_key_format(method_id: &str) -> Option<ApiKeyFormat> {
    API_KEY_METHODS.iter().find(|(id, _)| *id == method_id).map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str, args: &[&str]) -> Option<&'static str> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        KnownAgent::find(command, &args).map(|known| known.name)
    }

    #[test]
    fn entries_are_recognized_by_their_program_or_package() {
        assert_eq!(of("gemini", &["--acp"]), Some("gemini"));
        assert_eq!(of("/opt/bin/codex-acp", &[]), Some("codex"));
        assert_eq!(of("npx", &["-y", "@google/gemini-cli@0.61.0", "--acp"]), Some("gemini"));
        assert_eq!(of("uvx", &["--from", "mistral-vibe@1.2", "vibe-acp"]), Some("vibe"));
        assert_eq!(of("node", &["/x/node_modules/@google/gemini-cli/bundle/gemini.js"]), Some("gemini"));
        assert_eq!(of("node", &["/x/@google/gemini-cli-other/index.js"]), None);
        assert_eq!(of("npx", &["-y", "opencode-ai-fork"]), None);
        assert_eq!(of("my-agent", &[]), None);
    }

    #[test]
    fn rows_are_consistent() {
        for known in &KNOWN {
            let is_variable = |name: &&str| {
                name.bytes().all(|byte| byte.is_ascii_uppercase() || b"_0123456789".contains(&byte))
            };
            assert!(known.secrets.iter().chain(known.settings).all(is_variable), "{}", known.name);
            assert!(!known.secrets.iter().any(|name| known.settings.contains(name)), "{}", known.name);
            assert!(
                known.suggested_variables.iter().all(|name| known.secrets.contains(name)),
                "{}",
                known.name
            );
            assert!(
                known.required_settings.iter().all(|name| known.settings.contains(name)),
                "{}",
                known.name
            );
            let mut methods = known.env_key_methods.iter().chain(&known.load_key_method);
            assert!(methods.all(|(_, name)| known.secrets.contains(name)), "{}", known.name);
        }
    }
}
