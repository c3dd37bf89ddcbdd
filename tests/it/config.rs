//! The configuration: its sources, their order, and the error for each mistake.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod modes;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use acp_gateway::config::{
    self, Config, ConfigError, Environment, Flags, Home, Launch, McpServer, Shown,
};
use events::api::OnTimeout;

const DATA: (&str, &str) = ("ACP_GATEWAY_DATA", "/data");

fn load_with(file: &str, variables: &[(&str, &str)], flags: Flags) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    fs::write(&path, file).unwrap();
    let environment = [DATA].iter().chain(variables).copied().collect();
    config::load(
        &Flags {
            config: Some(path),
            ..flags
        },
        &environment,
        &|_| false,
    )
}

fn load(file: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    load_with(file, variables, Flags::default())
}

/// The error for a mistake, without the folder of the test.
fn mistake(file: &str, variables: &[(&str, &str)]) -> String {
    let message = match load(file, variables) {
        Ok(config) => config.errors.join("\n"),
        Err(error) => error.to_string(),
    };
    assert_ne!(message, "", "{file}");
    match message.split_once("gateway.toml:") {
        Some((_, rest)) => format!("gateway.toml:{rest}"),
        None => message,
    }
}

fn mistakes(files: &[&str]) -> String {
    files.iter().fold(String::new(), |mut text, file| {
        writeln!(text, "{}", mistake(file, &[])).unwrap();
        text
    })
}

#[test]
fn nothing_is_needed() {
    let environment: Environment = [("HOME", "/home/alice"), ("PATH", "/usr/bin")]
        .into_iter()
        .collect();
    let config = config::load(&Flags::default(), &environment, &|_| false).unwrap();
    assert_eq!(config.listen.address.to_string(), "127.0.0.1:8080");
    assert!(!config.listen.explicit);
    assert_eq!(
        config.data.path(),
        Path::new("/home/alice/.local/share/acp-gateway")
    );
    assert_eq!(
        config.workspaces.root,
        Path::new("/home/alice/.local/share/acp-gateway/workspaces")
    );
    assert_eq!(
        config
            .agents
            .keys()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["demo"]
    );
    assert_eq!(config.warnings, Vec::<String>::new());
    let none = config::load(&Flags::default(), &Environment::default(), &|_| false).unwrap_err();
    insta::assert_snapshot!(none, @"no home directory for the data; set the data directory with --data DIR or ACP_GATEWAY_DATA");
}

#[test]
fn the_whole_file_of_the_documentation_is_read() {
    let secrets = tempfile::tempdir().unwrap();
    let token = secrets.path().join("token");
    fs::write(&token, "t0ken-from-a-file\n").unwrap();
    let file = format!(
        r#"
        [server]
        listen = "127.0.0.1:9000"
        public_url = "https://gateway.example"
        trusted_proxies = ["10.0.0.1", "10.1.0.0/16"]
        max_body_bytes = "2MiB"

        [auth]
        allowed_origins = ["https://app.example"]

        [workspaces]
        root = "/workspaces"
        allow = ["/"]

        [mcp.docs]
        url = "https://mcp.example/docs"
        headers = {{ Authorization = {{ from_file = "{}" }} }}

        [mcp.local]
        command = "mcp-files"
        args = ["--ro"]

        [agents.claude]
        command = "npx"
        args = ["-y", "@agentclientprotocol/claude-agent-acp@0.49.0"]
        env = {{ ANTHROPIC_API_KEY = {{ from_env = "ANTHROPIC_API_KEY" }}, LEVEL = "high" }}
        home = "user"
        files = "off"
        terminals = "off"
        permissions = {{ on_timeout = "wait", timeout = "1h30m", allow = ["read", "search"] }}
        meta = []
        pool = {{ max_size = 4, min_idle = 0, idle_timeout = "5m" }}
        start_timeout = "90s"
        max_line_bytes = "32MiB"
        turn_idle_timeout = "1h"

        [agents.demo]
        builtin = "demo"

        [timeouts]
        keep_alive_interval = "500ms"

        [limits.per_session]
        max_queued_prompts = 0
        "#,
        token.display()
    );
    let config = load(&file, &[("ANTHROPIC_API_KEY", "sk-from-the-environment")]).unwrap();
    assert!(
        config
            .public_url
            .as_ref()
            .is_some_and(|url| url.to_string() == "https://gateway.example")
    );
    assert!(config.trusted_proxies[1].contains("10.1.2.3".parse().unwrap()));
    let docs = &config.mcp["docs"];
    let McpServer::Remote {
        sse: false,
        headers,
        ..
    } = docs
    else {
        panic!("{docs:?}")
    };
    assert_eq!(headers["Authorization"].expose(), "t0ken-from-a-file");
    let claude = &config.agents[&"claude".parse().unwrap()];
    assert_eq!(
        claude.env["ANTHROPIC_API_KEY"].expose(),
        "sk-from-the-environment"
    );
    let settings = &claude.settings;
    assert_eq!(
        (claude.home, settings.permissions.on_timeout),
        (Home::User, OnTimeout::Wait)
    );
    assert_eq!(settings.permissions.timeout, Duration::from_mins(90));
    assert_eq!(
        (
            settings.pool.max_size,
            settings.pool.min_idle,
            settings.max_line_bytes
        ),
        (4, 0, 32 << 20)
    );
    assert_eq!(config.agents[&"demo".parse().unwrap()].launch, Launch::Demo);
    assert_eq!(
        (
            config.limits.http.max_body_bytes,
            config.limits.sessions.max_session_queued_prompts
        ),
        (2 << 20, 0)
    );
    assert_eq!(
        config.limits.stream.keep_alive_interval,
        Duration::from_millis(500)
    );

    // Neither `check` nor debug output contains a secret.
    let shown = config::show(&config, Shown::Set).to_string();
    for text in [&shown, &format!("{config:?}")] {
        assert!(
            !text.contains("sk-from") && !text.contains("t0ken"),
            "{text}"
        );
    }
    let env = r#"{ ANTHROPIC_API_KEY = { from_env = "ANTHROPIC_API_KEY" }, LEVEL = "high" }"#;
    assert!(shown.contains(env), "{shown}");
    // The output can be loaded again and produces the same output.
    let again = load(&shown, &[("ANTHROPIC_API_KEY", "sk-from-the-environment")]).unwrap();
    let without_origins = |text: &str| {
        text.lines()
            .skip_while(|line| line.starts_with("# Configuration file: "))
            .map(|line| line.split("  # ").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        without_origins(&config::show(&again, Shown::Set).to_string()),
        without_origins(&shown)
    );
}

#[test]
fn every_mistake_in_a_file_names_its_key_and_line() {
    insta::assert_snapshot!(mistakes(&[
        "[server]\nlisen = \"127.0.0.1:1\"",
        "\n\n[server]\nmax_body_byte = 1",
        "[agents.claude]\ncomand = \"npx\"",
        "[agents.claude]\nargs = []",
        "[agents.claude]\ncommand = \"npx\"\npool = { maximum = 3 }",
        "[agents.\"Claude Code\"]\ncommand = \"npx\"",
        "zzz = 1",
        "public_url = \"https://a.example\"",
        "[limits]\nmax_streams = 1",
        "[timeouts]\nmax_age = \"1d\"",
        "[server]\nlisten = 8080",
        "[server]\nlisten = \"gateway.example:80\"",
        "[server]\nlisten = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"",
        "[server]\nlisten = ",
        "[auth]\nallowed_origins = \"https://app.example\"",
        "[auth]\nallowed_origins = [\"https://app.example\", \"*\"]",
        "[auth]\nallowed_origins = [\"https://App.example/\"]",
        "[auth]\nallowed_origins = [\"null\"]",
        "[server]\npublic_url = \"https://gateway.example/../acp\"",
        "[server]\ntrusted_proxies = [\"proxy\"]",
        "[server]\ninsecure_http = \"yes\"",
        "[workspaces]\nroot = \"code\"",
        "[workspaces]\nallow = [\"/does/not/exist\"]",
        "agents = 1",
        "[telemetry]\nlog_filter = 1.5",
        "[telemetry]\notlp_endpoint = \"localhost:4318\"",
        "[telemetry]\notlp_endpoint = \"https://user:word@collector.example\"",
        "[telemetry]\notlp_headers = { Host = \"a\" }",
    ]), @r#"
    gateway.toml:2: unknown key `server.lisen`; did you mean `listen`?
    gateway.toml:4: unknown key `server.max_body_byte`; did you mean `max_body_bytes`?
    gateway.toml:2: unknown key `agents.claude.comand`; did you mean `command`?
    gateway.toml:1: `agents.claude` needs `command` or `url`
    gateway.toml:3: unknown key `agents.claude.pool.maximum`
    gateway.toml:1: `agents.Claude Code`: an agent's name has 1 to 64 characters of a-z, 0-9, '_' and '-', and begins with a letter or a digit
    gateway.toml:1: unknown key `zzz`
    gateway.toml:1: unknown key `public_url`; did you mean `server.public_url`?
    gateway.toml:2: unknown key `limits.max_streams`; did you mean `limits.per_key.max_streams`?
    gateway.toml:2: unknown key `timeouts.max_age`; did you mean `retention.max_age`?
    gateway.toml:2: `server.listen` must be a string, not a number
    gateway.toml:2: `server.listen`: "gateway.example:80" is not an address and a port such as "127.0.0.1:8080"
    gateway.toml:3: duplicate key
    gateway.toml:2: string values must be quoted, expected literal string
    gateway.toml:2: `auth.allowed_origins` must be a list such as ["a", "b"], not a string
    gateway.toml:2: `auth.allowed_origins[1]`: not an origin such as "https://app.example"; wildcards and null are not supported
    gateway.toml:2: `auth.allowed_origins[0]`: must have the form of a browser: "https://app.example"
    gateway.toml:2: `auth.allowed_origins[0]`: not an origin such as "https://app.example"; wildcards and null are not supported
    gateway.toml:2: `server.public_url`: not a URL such as "https://gateway.example" or "https://example.org/gateway" (scheme, host, port, and a path of letters, digits and -._~)
    gateway.toml:2: `server.trusted_proxies[0]`: "proxy": not an IP address or a range such as 10.0.0.0/8
    gateway.toml:2: `server.insecure_http` must be true or false, not a string
    gateway.toml:2: `workspaces.root`: must be an absolute path
    gateway.toml:2: `workspaces.allow[0]`: /does/not/exist is not a directory
    gateway.toml:1: `agents` must be a table, not a number
    gateway.toml:2: `telemetry.log_filter` must be a string, not a fraction
    gateway.toml:2: `telemetry.otlp_endpoint`: not a URL such as "http://127.0.0.1:4318", without a query
    gateway.toml:2: `telemetry.otlp_endpoint`: must not contain credentials: use telemetry.otlp_headers
    gateway.toml:2: `telemetry.otlp_headers.Host`: not a valid name in this table
    "#);
}

#[test]
fn every_mistake_in_an_agent_entry_is_reported() {
    let agent = |rest: &str| format!("[agents.a]\n{rest}");
    let files: Vec<_> = [
        "command = \"./run\"",
        "command = \"\"",
        "command = \"npx\"\nbuiltin = \"demo\"",
        "builtin = \"other\"",
        "command = \"npx\"\nhome = \"users\"",
        "command = \"npx\"\nfiles = \"clients\"",
        "command = \"npx\"\nterminals = \"on\"",
        "command = \"npx\"\nmeta = \"claudeCode\"",
        "command = \"npx\"\nrpc = [\"session/prompt\"]",
        "command = \"npx\"\nrpc = [\"_vendor/*\", \"*\"]",
        "command = \"npx\"\nterminal_auth = \"on\"",
        "command = \"npx\"\nargs = \"-y\"",
        "command = \"npx\"\nargs = [1]",
        "command = \"npx\"\nenv = { \"A=B\" = \"c\" }",
        "command = \"npx\"\nenv = { KEY = 1 }",
        "command = \"npx\"\nenv = { KEY = { from_env = \"UNSET\" } }",
        "command = \"npx\"\nenv = { KEY = { from_file = \"/does/not/exist\" } }",
        "command = \"npx\"\nenv = { KEY = { from_file = \"relative\" } }",
        "command = \"npx\"\nenv = { KEY = { from_fil = \"/x\" } }",
        "command = \"npx\"\nenv = { KEY = {} }",
        "command = \"npx\"\npermissions = { on_timeout = \"allow\" }",
        "command = \"npx\"\npermissions = { allow = [\"reed\"] }",
        "command = \"npx\"\npermissions = { timeout = \"10\" }",
        "command = \"npx\"\npool = { max_size = 0 }",
        "command = \"npx\"\npool = { max_size = 2, min_idle = 3 }",
        "command = \"npx\"\npool = { max_size = -1 }",
        "command = \"npx\"\nmax_line_bytes = \"16 cats\"",
        "command = \"npx\"\nmax_line_bytes = 16",
        "command = \"npx\"\nstart_timeout = 60",
        "command = \"npx\"\ndialect = \"stream\"",
        "command = \"npx\"\ndialect = \"stream-json\"\nprotocol = 2",
        "command = \"n\\u0000px\"",
    ]
    .iter()
    .map(|rest| agent(rest))
    .collect();
    insta::assert_snapshot!(mistakes(&files.iter().map(String::as_str).collect::<Vec<_>>()), @r#"
    gateway.toml:2: `agents.a.command`: must be the name of a program on PATH, or an absolute path
    gateway.toml:2: `agents.a.command`: must be the name of a program on PATH, or an absolute path
    gateway.toml:1: `agents.a`: builtin cannot be combined with command or args
    gateway.toml:2: `agents.a.builtin`: must be "demo", not "other"
    gateway.toml:3: `agents.a.home`: must be "own" or "user", not "users"
    gateway.toml:3: `agents.a.files`: must be "off", "client" or "gateway", not "clients"
    gateway.toml:3: `agents.a.terminals`: must be "off", "client" or "gateway", not "on"
    gateway.toml:3: `agents.a.meta` must be a list such as ["a", "b"], not a string
    gateway.toml:3: `agents.a.rpc[0]`: "session/prompt" cannot be called by name: POST /v1/sessions/{session}/prompts
    gateway.toml:3: `agents.a.rpc[1]`: must be a method, or a prefix of methods followed by *
    gateway.toml:3: `agents.a.terminal_auth` must be true or false, not a string
    gateway.toml:3: `agents.a.args` must be a list such as ["a", "b"], not a string
    gateway.toml:3: `agents.a.args[0]` must be a string, not a number
    gateway.toml:3: `agents.a.env.A=B`: not a valid name in this table
    gateway.toml:3: `agents.a.env.KEY` must be a string, { from_env = "NAME" } or { from_file = "/path" }, not a number
    gateway.toml:3: `agents.a.env.KEY.from_env`: the environment variable UNSET is empty or not set
    gateway.toml:3: `agents.a.env.KEY.from_file`: /does/not/exist: cannot be read: No such file or directory (os error 2)
    gateway.toml:3: `agents.a.env.KEY.from_file`: relative: not an absolute path
    gateway.toml:3: unknown key `agents.a.env.KEY.from_fil`; did you mean `from_file`?
    gateway.toml:3: `agents.a.env.KEY`: needs either from_env or from_file
    gateway.toml:3: `agents.a.permissions.on_timeout`: must be "reject" or "wait", not "allow"
    gateway.toml:3: `agents.a.permissions.allow[0]`: must be "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode" or "other", not "reed"
    gateway.toml:3: `agents.a.permissions.timeout`: not a time such as "500ms", "10m" or "1h30m", at most 3650d
    gateway.toml:3: `agents.a.pool.max_size`: must be more than 0
    gateway.toml:3: `agents.a.pool.min_idle`: must be at most `max_size`, which is 2
    gateway.toml:3: `agents.a.pool.max_size`: must be a whole number, at least 0
    gateway.toml:3: `agents.a.max_line_bytes`: not a size such as "16MiB"
    gateway.toml:3: `agents.a.max_line_bytes`: must be at least 1KiB
    gateway.toml:3: `agents.a.start_timeout` must be a time such as "10m", not a number
    gateway.toml:3: `agents.a.dialect`: must be "acp", "stream-json" or "early-acp", not "stream"
    gateway.toml:1: `agents.a`: protocol = 2 requires dialect = "acp"
    gateway.toml:2: `agents.a.command`: a NUL byte is not allowed
    "#);
}

#[test]
fn every_mistake_in_limits_and_servers_is_reported() {
    insta::assert_snapshot!(mistakes(&[
        "[server]\nmax_body_bytes = 0",
        "[server]\nmax_body_bytes = \"1 MiBs\"",
        "[server]\nmax_body_bytes = true",
        "[timeouts]\nkeep_alive_interval = \"0s\"",
        "[timeouts]\nkeep_alive_interval = 15",
        "[retention]\nmax_age = \"4000d\"",
        "[testing]\nmax_queue_places = 0",
        "[limits.per_key]\nmax_streams = \"many\"",
        "[limits.per_key]\nmax_streams = -1",
        "[testing]\nmax_breaker_crashes = 5000000000",
        "[retention]\nmin_free_disk_percent = 101",
        "[limits.per_key]\nmax_streams = 99999999999999999999",
        "[mcp.docs]\nurl = \"file:///etc/passwd\"",
        "[mcp.docs]\nurl = \"https://a\"\ncommand = \"b\"",
        "[mcp.docs]\nargs = []",
        "[mcp.docs]\nulr = \"https://a\"",
        "[mcp.docs]\nurl = \"https://a\"\ntype = \"ws\"",
        "[mcp.docs]\nurl = \"https://a\"\nheaders = { \"a b\" = \"c\" }",
        "[mcp.docs]\ncommand = \"b\"\nheaders = {}",
        "[mcp.\"a b\"]\ncommand = \"b\"",
    ]), @r#"
    gateway.toml:2: `server.max_body_bytes`: must be more than 0
    gateway.toml:2: `server.max_body_bytes`: not a size such as "16MiB"
    gateway.toml:2: `server.max_body_bytes` must be a size such as "16MiB", not a boolean
    gateway.toml:2: `timeouts.keep_alive_interval`: must be more than 0
    gateway.toml:2: `timeouts.keep_alive_interval` must be a time such as "10m", not a number
    gateway.toml:2: `retention.max_age`: not a time such as "500ms", "10m" or "1h30m", at most 3650d
    gateway.toml:2: `testing.max_queue_places`: must be more than 0
    gateway.toml:2: `limits.per_key.max_streams` must be a whole number, not a string
    gateway.toml:2: `limits.per_key.max_streams`: must be a whole number, at least 0
    gateway.toml:2: `testing.max_breaker_crashes`: the number is too large
    gateway.toml:2: `retention.min_free_disk_percent`: must be at most 100
    gateway.toml:2: `limits.per_key.max_streams` must be a whole number, not a number with more than 64 bits
    gateway.toml:2: `mcp.docs.url`: not a URL that begins with https:// or http://
    gateway.toml:1: `mcp.docs`: has both url and command; remove one of them
    gateway.toml:1: `mcp.docs` needs `url` or `command`
    gateway.toml:2: unknown key `mcp.docs.ulr`; did you mean `url`?
    gateway.toml:3: `mcp.docs.type`: must be "http" or "sse", not "ws"
    gateway.toml:3: `mcp.docs.headers.a b`: not a valid name in this table
    gateway.toml:3: unknown key `mcp.docs.headers`
    gateway.toml:1: `mcp.a b`: a server's name has 1 to 64 characters of a-z, 0-9, '_' and '-', and begins with a letter or a digit
    "#);
}

#[test]
fn every_mistake_in_the_environment_is_reported() {
    let messages = [
        ("ACP_GATEWAY__SERVER__MAX_BODY_BYTE", "1"),
        ("ACP_GATEWAY__SERVER__MAX_BODY_BYTES", "lots"),
        ("ACP_GATEWAY__LIMITS", "1"),
        ("ACP_GATEWAY__", "1"),
        ("ACP_GATEWAY__SERVER____MAX_BODY", "1"),
        ("ACP_GATEWAY_LISTN", "127.0.0.1:1"),
        ("ACP_GATEWAY_ADMIN_KEY", "secret-value"),
        ("ACP_GATEWAY_LISTEN", "127.0.0.1"),
        ("ACP_GATEWAY__AUTH__ALLOWED_ORIGINS", "https://app.example"),
        ("ACP_GATEWAY__SERVER__INSECURE_HTTP", "1"),
        ("ACP_GATEWAY_DATA", ""),
        ("ACP_GATEWAY__SERVER__LISTEN__PORT", "1"),
        ("ACP_GATEWAY__AGENTS__A__ENV__KEY", "secret-value"),
        ("ACP_GATEWAY_ADMIN_KEY_HASH", "secret-value"),
        ("ACP_GATEWAY_ADMIN_KEY_FILE", "/does/not/exist"),
        ("ACP_GATEWAY_ADMIN_KEY_FILE", "/dev/null"),
    ]
    .iter()
    .fold(String::new(), |mut text, variable| {
        // One of them needs another beside it.
        let beside = variable
            .0
            .contains("LISTEN__")
            .then_some(("ACP_GATEWAY__SERVER__LISTEN", ""));
        let variables: Vec<_> = [*variable].into_iter().chain(beside).collect();
        writeln!(text, "{}", mistake("", &variables)).unwrap();
        text
    });
    assert!(!messages.contains("secret-value"), "{messages}");
    insta::assert_snapshot!(messages, @r#"
    ACP_GATEWAY__SERVER__MAX_BODY_BYTE: unknown key `server.max_body_byte`; did you mean `max_body_bytes`?
    ACP_GATEWAY__SERVER__MAX_BODY_BYTES: `server.max_body_bytes`: not a size such as "16MiB"
    ACP_GATEWAY__LIMITS: `limits` must be a table, not a string
    ACP_GATEWAY__: unknown variable
    ACP_GATEWAY__SERVER____MAX_BODY: unknown variable
    ACP_GATEWAY_LISTN: unknown variable; did you mean `ACP_GATEWAY_LISTEN`?
    ACP_GATEWAY_ADMIN_KEY: unknown variable; did you mean `ACP_GATEWAY_ADMIN_KEY_HASH`?
    ACP_GATEWAY_LISTEN: `server.listen`: "127.0.0.1" is not an address and a port such as "127.0.0.1:8080"
    ACP_GATEWAY__AUTH__ALLOWED_ORIGINS: `auth.allowed_origins` must be a list such as ["a", "b"], not a string
    ACP_GATEWAY__SERVER__INSECURE_HTTP: `server.insecure_http` must be true or false, not a string
    ACP_GATEWAY_DATA: `server.data_dir`: must be an absolute path
    ACP_GATEWAY__SERVER__LISTEN__PORT: `server.listen.port`: ACP_GATEWAY__SERVER__LISTEN is not a table
    ACP_GATEWAY__AGENTS__A__ENV__KEY: `agents.a` needs `command` or `url`
    ACP_GATEWAY_ADMIN_KEY_HASH: not a SHA-256 hash of 64 hex digits
    ACP_GATEWAY_ADMIN_KEY_FILE: cannot be read: No such file or directory (os error 2)
    ACP_GATEWAY_ADMIN_KEY_FILE: empty
    "#);
}

#[test]
fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\nmax_body_bytes = 1\n[limits.per_key]\nmax_streams = 1\n[agents.a]\ncommand = \"x\"\npool = { max_size = 5, min_idle = 2 }";
    let variables = [
        ("ACP_GATEWAY_LISTEN", "127.0.0.1:2"),
        ("ACP_GATEWAY__LIMITS__PER_KEY__MAX_STREAMS", "2"),
        ("ACP_GATEWAY__AGENTS__A__POOL__MAX_SIZE", "6"),
        ("ACP_GATEWAY__AGENTS__A__ARGS", "[\"--fast\", \"-v\"]"),
        ("ACP_GATEWAY__AGENTS__A__ENV__Mixed__Case", "kept as it is"),
        ("ACP_GATEWAY__AGENTS__B", "{ command = \"y\" }"),
        ("ACP_GATEWAY__AGENTS__B__HOME", "user"),
        (
            "ACP_GATEWAY__AUTH__ALLOWED_ORIGINS",
            "[\"https://app.example\"]",
        ),
        // Kubernetes sets these for a service of this name.
        ("ACP_GATEWAY_SERVICE_HOST", "10.0.0.1"),
        ("ACP_GATEWAY_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ];
    let config = load(file, &variables).unwrap();
    assert_eq!(config.listen.address.port(), 2);
    assert_eq!(
        (
            config.limits.per_key.max_streams,
            config.limits.http.max_body_bytes
        ),
        (2, 1)
    );
    let a = &config.agents[&"a".parse().unwrap()];
    assert_eq!((a.settings.pool.max_size, a.settings.pool.min_idle), (6, 2));
    assert_eq!(
        a.launch,
        Launch::Command {
            command: "x".into(),
            args: vec!["--fast".into(), "-v".into()]
        }
    );
    assert_eq!(a.env["Mixed__Case"].expose(), "kept as it is");
    assert_eq!(config.agents[&"b".parse().unwrap()].home, Home::User);
    assert_eq!(config.allowed_origins, ["https://app.example"]);
    let shown = config::show(&config, Shown::Set).to_string();
    assert!(!shown.contains("kept as it is"), "{shown}");
    assert!(
        shown.contains("max_streams = 2  # ACP_GATEWAY__LIMITS__PER_KEY__MAX_STREAMS\n"),
        "{shown}"
    );

    let flags = Flags {
        listen: Some("localhost:3".into()),
        data: Some("/elsewhere".into()),
        ..Flags::default()
    };
    let config = load_with(file, &variables, flags).unwrap();
    assert_eq!(config.listen.address.to_string(), "127.0.0.1:3");
    assert_eq!(config.data.path(), Path::new("/elsewhere"));
    let shown = config::show(&config, Shown::Set).to_string();
    assert!(shown.contains("data_dir = \"/elsewhere\"  # --data\n"));
}

#[test]
fn public_address_requires_a_proxy_or_insecure_http() {
    let mut messages = mistakes(&[
        "server.listen = \"0.0.0.0:8080\"",
        "\nserver.listen = \"[::]:8080\"",
        "server.listen = \"192.168.1.5:80\"",
    ]);
    messages.push_str(&mistake("", &[("ACP_GATEWAY_LISTEN", "0.0.0.0:80")]));
    insta::assert_snapshot!(messages, @r#"
    gateway.toml:1: `server.listen`: 0.0.0.0:8080 is reachable from other machines, and the gateway itself has no TLS: configure the TLS proxy with server.trusted_proxies = ["10.0.0.1"], or use --insecure-http to send keys unencrypted
    gateway.toml:2: `server.listen`: [::]:8080 is reachable from other machines, and the gateway itself has no TLS: configure the TLS proxy with server.trusted_proxies = ["10.0.0.1"], or use --insecure-http to send keys unencrypted
    gateway.toml:1: `server.listen`: 192.168.1.5:80 is reachable from other machines, and the gateway itself has no TLS: configure the TLS proxy with server.trusted_proxies = ["10.0.0.1"], or use --insecure-http to send keys unencrypted
    ACP_GATEWAY_LISTEN: `server.listen`: 0.0.0.0:80 is reachable from other machines, and the gateway itself has no TLS: configure the TLS proxy with server.trusted_proxies = ["10.0.0.1"], or use --insecure-http to send keys unencrypted
    "#);
    for fine in [
        "127.0.0.1:1",
        "127.9.9.9:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
        "localhost:1",
    ] {
        assert!(
            load(&format!("server.listen = \"{fine}\""), &[]).is_ok(),
            "{fine}"
        );
    }
    let proxied = load(
        "server.listen = \"0.0.0.0:8080\"\nserver.trusted_proxies = [\"10.0.0.1\"]",
        &[],
    )
    .unwrap();
    assert_eq!(proxied.warnings, Vec::<String>::new());
    let flags = Flags {
        insecure_http: true,
        ..Flags::default()
    };
    let both = "server.listen = \"0.0.0.0:8080\"\nserver.trusted_proxies = [\"10.0.0.1\"]";
    assert_eq!(
        load_with(both, &[], flags.clone()).unwrap().warnings.len(),
        1,
        "then the proxy guards nothing"
    );
    let insecure = load_with("server.listen = \"0.0.0.0:8080\"", &[], flags).unwrap();
    insta::assert_snapshot!(insecure.warnings.join("\n"), @"0.0.0.0:8080 is reachable from other machines without TLS: anyone on the network path can read and use the keys");
}

#[test]
fn known_agents_are_offered_only_without_configured_agents_on_loopback() {
    let offered = |flags: &Flags, found: &[&str]| {
        let environment = [DATA].into_iter().collect();
        let config =
            config::load(flags, &environment, &|program| found.contains(&program)).unwrap();
        config
            .agents
            .keys()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let here = Flags::default();
    assert_eq!(
        offered(
            &here,
            &["claude-agent-acp", "claude-code-acp", "gemini", "sh"]
        ),
        "claude demo gemini"
    );
    let public = Flags {
        listen: Some("0.0.0.0:1".into()),
        insecure_http: true,
        ..Flags::default()
    };
    assert_eq!(offered(&public, &["gemini"]), "demo");

    let environment = [DATA].into_iter().collect();
    let config = config::load(&here, &environment, &|program| program == "gemini").unwrap();
    let gemini = &config.agents[&"gemini".parse().unwrap()];
    assert_eq!(
        (gemini.home, gemini.settings.pool.min_idle),
        (Home::User, 0)
    );

    let named = load("[agents.mine]\ncommand = \"x\"", &[]).unwrap();
    assert_eq!(named.agents.len(), 1);
}

#[test]
fn workspaces_of_the_command_line_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let flags = Flags {
        workspaces: vec![folder.path().to_owned()],
        ..Flags::default()
    };
    let config = load_with("[workspaces]\nallow = [\"/\"]", &[], flags).unwrap();
    assert_eq!(config.workspaces.allow, [Path::new("/"), folder.path()]);
    let missing = Flags {
        workspaces: vec!["/does/not/exist".into()],
        ..Flags::default()
    };
    insta::assert_snapshot!(load_with("", &[], missing).unwrap_err(), @"--workspace: `workspaces.allow`: /does/not/exist is not a directory");
}

#[test]
fn an_admin_key_is_kept_as_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let key = "0123456789abcdef0123456789abcdef";
    fs::write(&file, format!("{key}\n")).unwrap();
    let by_file = load(
        "",
        &[("ACP_GATEWAY_ADMIN_KEY_FILE", file.to_str().unwrap())],
    )
    .unwrap();
    let hash = "3eb36bdb9cd90db97b0e2b5f2b47a9dbc4cc1b3b5b3a2b35fe5e0fdb1fc5bb6b";
    let by_hash = load("", &[("ACP_GATEWAY_ADMIN_KEY_HASH", hash)]).unwrap();
    assert!(by_file.admin_key.is_some() && by_hash.admin_key.is_some());
    assert!(!format!("{by_file:?}").contains(key));
    fs::write(&file, "short").unwrap();
    let short = load(
        "",
        &[("ACP_GATEWAY_ADMIN_KEY_FILE", file.to_str().unwrap())],
    )
    .unwrap_err();
    insta::assert_snapshot!(short, @"ACP_GATEWAY_ADMIN_KEY_FILE: the file must contain one key of at least 32 characters");
    let both = [
        ("ACP_GATEWAY_ADMIN_KEY_FILE", "/x"),
        ("ACP_GATEWAY_ADMIN_KEY_HASH", hash),
    ];
    insta::assert_snapshot!(load("", &both).unwrap_err(), @"ACP_GATEWAY_ADMIN_KEY_HASH: cannot be combined with ACP_GATEWAY_ADMIN_KEY_FILE");
}

#[test]
fn missing_file_is_reported() {
    let flags = Flags {
        config: Some("/does/not/exist.toml".into()),
        ..Flags::default()
    };
    let missing = config::load(&flags, &Environment::default(), &|_| false).unwrap_err();
    insta::assert_snapshot!(missing, @"/does/not/exist.toml: cannot be read: No such file or directory (os error 2)");
}
