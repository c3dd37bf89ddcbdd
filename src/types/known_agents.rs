//! Agents that the gateway knows: their commands, the environment variables in which their users keep credentials, and
//! how each one takes an API key.
//!
//! An agent that is found on PATH receives the variables of its row. A configured agent receives only the variables of
//! its entry; for this agent the table describes the sign-in.

/// One known agent.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownAgent {
    /// The name under which it is offered when it is found on PATH.
    pub name: &'static str,
    /// The display name.
    pub title: &'static str,
    /// A program on PATH.
    pub command: &'static str,
    /// The arguments that make it speak ACP.
    pub args: &'static [&'static str],
    /// Packages that have the command, for entries that run it with npx or uvx, or from a folder of packages.
    pub packages: &'static [&'static str],
    /// Variables that hold a key or a token. Their values are masked in all output.
    pub secrets: &'static [&'static str],
    /// Variables that say where and how the agent reaches its provider. Their values are not masked.
    pub settings: &'static [&'static str],
    /// The variables of `secrets` that an error asks a person to set.
    pub named: &'static [&'static str],
    /// The variables of `settings` without which the agent does not use a key of `named`.
    pub needed: &'static [&'static str],
    /// Methods of `authenticate` that read a key from a variable. Some agents refuse sessions without the call, although
    /// the variable is set.
    pub from_variable: &'static [(&'static str, &'static str)],
    /// The same for an agent that opens sessions with the variable alone and loads none until a sign-in is selected. The
    /// call selects this sign-in in the settings of the agent.
    pub from_variable_at_load: Option<(&'static str, &'static str)>,
    /// The command with which a person signs in at a terminal.
    pub login: Option<&'static str>,
}

/// Where `authenticate` takes an API key in its `_meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    /// `{"api-key": "KEY"}`
    Text,
    /// `{"api-key": {"apiKey": "KEY"}}`
    Object,
}

/// Methods of `authenticate` that take an API key, by their id. Each id belongs to one agent.
const KEY_METHODS: [(&str, KeyPlace); 2] =
    [("gemini-api-key", KeyPlace::Text), ("api-key", KeyPlace::Object)];

/// Keys of the providers that agents for many providers use.
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
/// Where those providers are, if not at their usual place, and which of them an agent takes.
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
    named: &["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"],
    needed: &[],
    from_variable: &[],
    from_variable_at_load: None,
    login: Some("claude /login"),
};

/// Every known agent. Of several commands with one name, the first that is found is offered.
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
        named: &["CODEX_API_KEY", "OPENAI_API_KEY"],
        needed: &[],
        from_variable: &[
            ("api-key", "CODEX_API_KEY"),
            ("api-key", "OPENAI_API_KEY"),
            ("codex-api-key", "CODEX_API_KEY"),
            ("openai-api-key", "OPENAI_API_KEY"),
        ],
        from_variable_at_load: None,
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
        named: &["GEMINI_API_KEY"],
        needed: &[],
        from_variable: &[],
        from_variable_at_load: Some(("gemini-api-key", "GEMINI_API_KEY")),
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
        named: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY"],
        needed: &[],
        from_variable: &[],
        from_variable_at_load: None,
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
        named: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"],
        needed: &[],
        from_variable: &[],
        from_variable_at_load: None,
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
        named: &["MISTRAL_API_KEY"],
        needed: &[],
        from_variable: &[],
        from_variable_at_load: None,
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
        named: &["OPENAI_API_KEY"],
        needed: &[],
        from_variable: &[("openai", "OPENAI_API_KEY")],
        from_variable_at_load: None,
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
        named: &["KIMI_MODEL_API_KEY"],
        needed: &["KIMI_MODEL_NAME"],
        from_variable: &[],
        from_variable_at_load: None,
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
        named: &["COPILOT_GITHUB_TOKEN"],
        needed: &[],
        from_variable: &[],
        from_variable_at_load: None,
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
        named: &["CURSOR_API_KEY"],
        needed: &[],
        from_variable: &[],
        from_variable_at_load: None,
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
        named: &["AUGMENT_SESSION_AUTH"],
        needed: &[],
        from_variable: &[],
        from_variable_at_load: None,
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
        named: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
        needed: &[],
        from_variable: &[],
        from_variable_at_load: None,
        login: None,
    },
];

impl KnownAgent {
    /// The known agent that this command runs: by the name of the program, or by a package among the arguments.
    pub fn of(command: &str, args: &[String]) -> Option<&'static Self> {
        let program = command.rsplit('/').next().unwrap_or(command);
        let by_program = KNOWN.iter().find(|known| known.command == program);
        by_program.or_else(|| KNOWN.iter().find(|known| args.iter().any(|arg| known.has_package(arg))))
    }

    /// True if the argument is a package of this agent with or without a version, or a path into it.
    fn has_package(&self, arg: &str) -> bool {
        self.packages.iter().any(|package| {
            let versioned =
                arg.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('@'));
            versioned || arg.contains(&format!("/{package}/"))
        })
    }
}

/// Where the method of this id takes an API key; `None` if it takes none, or if the method is not known.
pub fn key_place(method_id: &str) -> Option<KeyPlace> {
    KEY_METHODS.iter().find(|(id, _)| *id == method_id).map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str, args: &[&str]) -> Option<&'static str> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        KnownAgent::of(command, &args).map(|known| known.name)
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
            assert!(known.named.iter().all(|name| known.secrets.contains(name)), "{}", known.name);
            assert!(known.needed.iter().all(|name| known.settings.contains(name)), "{}", known.name);
            let mut methods = known.from_variable.iter().chain(&known.from_variable_at_load);
            assert!(methods.all(|(_, name)| known.secrets.contains(name)), "{}", known.name);
        }
    }
}
