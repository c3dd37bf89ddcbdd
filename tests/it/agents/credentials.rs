//! Credentials that people already have: variables of the gateway's environment, API keys, and the next step without a key.

use std::os::unix::fs::symlink;
use std::path::Path;

use acp_gateway::config::{self, Environment, Flags};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::places::fake_agent;
use crate::support::{Gateway, Setup};

const KEY: &str = "sk-test-2b7e151628aed2";
const AUTH: &str = "/v1/agents/fake/auth";
const METHODS: &str = r#"{"id":"gemini-api-key","name":"Key"},{"id":"api-key","name":"Key"},{"id":"login","name":"In"}"#;

/// The scripted agent under the name of a known program.
pub(super) fn program(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    symlink(fake_agent(), &path).expect("the folder is ours");
    path.to_str().expect("UTF-8").to_owned()
}

/// The environment of a process of the agent.
async fn environment(gateway: &Gateway, agent: &str) -> String {
    let session = gateway.session(agent).await;
    gateway.turn(&session, "env").await["text"]
        .as_str()
        .expect("a text")
        .to_owned()
}

/// PATH with this folder first.
#[expect(
    clippy::disallowed_methods,
    reason = "a test may look where the programs are"
)]
pub(crate) fn path_with(folder: &Path) -> std::ffi::OsString {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&rest));
    std::env::join_paths(folders).expect("folders without a colon")
}

#[tokio::test]
async fn agents_found_on_path_receive_the_variables_of_their_own_provider() {
    let gateway = Setup::default().start_with(|folder| {
        program(folder, "codex-acp");
        vec![
            ("PATH", path_with(folder)),
            ("OPENAI_API_KEY", KEY.into()),
            ("CODEX_HOME", "/codex-home".into()),
            ("ANTHROPIC_API_KEY", "of another agent".into()),
            ("UNRELATED_TOKEN", "of nobody".into()),
        ]
    });
    let shown = environment(&gateway, "codex").await;
    assert!(
        shown.contains(&format!("OPENAI_API_KEY={KEY}\n")),
        "{shown}"
    );
    assert!(shown.contains("CODEX_HOME=/codex-home\n"), "{shown}");
    assert!(
        !shown.contains("ANTHROPIC_API_KEY") && !shown.contains("UNRELATED_TOKEN"),
        "{shown}"
    );
    let log = gateway.log();
    assert!(
        log.contains("OPENAI_API_KEY, CODEX_HOME") && !log.contains(KEY),
        "names only: {log}"
    );

    let session = gateway.session("codex").await;
    let error = json!({ "code": -32603, "message": format!("no {KEY} for /codex-home") });
    let turn = gateway.turn(&session, &format!("raw fail {error}")).await;
    assert_eq!(
        turn["error"]["acp"]["message"], "no [secret] for /codex-home",
        "{turn}"
    );
}

#[tokio::test]
async fn configured_agents_receive_no_variables_of_the_gateways_environment() {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::default().agent("codex", &program(folder.path(), "codex-acp"), &[], "");
    let gateway = setup.start_with(|_| vec![("OPENAI_API_KEY", KEY.into())]);
    let shown = environment(&gateway, "codex").await;
    assert!(
        shown.contains("PATH=") && !shown.contains("OPENAI_API_KEY"),
        "{shown}"
    );
}

#[test]
fn check_shows_the_names_of_passed_variables_and_no_value() {
    let variables = [
        ("ACP_GATEWAY_DATA", "/data"),
        ("GEMINI_API_KEY", KEY),
        (
            "GOOGLE_GEMINI_BASE_URL",
            "https://user:password@proxy.example",
        ),
        ("OPENAI_API_KEY", "of another agent"),
    ];
    let environment: Environment = variables.into_iter().collect();
    let config = config::load(&Flags::default(), &environment, &|name| name == "gemini")
        .expect("it is valid");
    let shown = config::show(&config, config::Shown::Set).to_string();
    assert!(
        shown.contains("from the gateway's environment: GEMINI_API_KEY, GOOGLE_GEMINI_BASE_URL"),
        "{shown}"
    );
    assert!(
        !shown.contains(KEY) && !shown.contains("password") && !shown.contains("OPENAI"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_first_prompt_without_a_sign_in_is_auth_required_with_the_next_step() {
    let gateway = Setup::fake(&["--auth-at-prompt", "--auth-methods", METHODS]).start();
    let session = gateway.session("fake").await;
    let refused = async |session: &str, prompt: &str| {
        let turn = gateway.turn(session, prompt).await;
        let problem = turn["error"].clone();
        assert_eq!(
            (&problem["code"], &problem["status"]),
            (&json!("agent_auth_required"), &json!(424)),
            "{turn}"
        );
        assert_eq!(problem["authMethods"][0]["id"], "gemini-api-key");
        let detail = problem["detail"].as_str().expect("a text").to_owned();
        let call = r#"send POST /v1/agents/fake/auth with {"methodId": "gemini-api-key", "apiKey": "KEY"}."#;
        assert!(detail.ends_with(call), "{detail}");
        detail
    };
    let detail = refused(&session, "echo hi").await;
    assert!(detail.contains("in `env` of [agents.fake]"), "{detail}");
    assert_eq!(gateway.get(AUTH).await["state"], "unauthenticated");
    let other = gateway.session("fake").await;
    assert_eq!(
        gateway.get(AUTH).await["state"],
        "unauthenticated",
        "that sessions open proves nothing"
    );

    let body = json!({ "methodId": "login" });
    assert_eq!(
        gateway.posted(AUTH, &[], &body).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(gateway.turn(&session, "echo on").await["text"], "on");
    assert_eq!(gateway.turn(&other, "echo on").await["text"], "on");
    assert_eq!(gateway.get(AUTH).await["state"], "authenticated");

    let error = json!({ "code": -32603, "message": "Internal error", "data": "Missing API key for mistral" });
    let detail = refused(&session, &format!("raw fail {error}")).await;
    assert!(detail.contains("Missing API key for mistral"), "{detail}");
    assert_eq!(gateway.get(AUTH).await["state"], "unauthenticated");
    assert_eq!(gateway.turn(&session, "echo on").await["text"], "on");
    assert_eq!(
        gateway.get(AUTH).await["state"],
        "authenticated",
        "a prompt that works corrects it"
    );
}

#[tokio::test]
async fn api_key_is_sent_as_the_agent_expects_and_never_shown() {
    let received = tempfile::NamedTempFile::new().expect("a file");
    let log = received.path().to_str().expect("UTF-8");
    let gateway =
        Setup::fake(&["--auth-required", "--auth-methods", METHODS, "--log", log]).start();
    let sign_in = async |body: Value| gateway.posted(AUTH, &[], &body).await;
    let pointer = |problem: Value| problem["errors"][0]["pointer"].clone();
    for wrong in [
        json!({ "methodId": "login", "apiKey": KEY }),
        json!({ "methodId": "api-key", "apiKey": " " }),
        json!({ "methodId": "api-key", "apiKey": "two\nlines" }),
        json!({ "methodId": "api-key", "apiKey": "k".repeat(4097) }),
    ] {
        assert_eq!(
            pointer(sign_in(wrong).await.problem(422, "invalid")),
            "/apiKey"
        );
    }
    for (method, meta) in [
        ("gemini-api-key", json!({ "api-key": KEY })),
        ("api-key", json!({ "api-key": { "apiKey": KEY } })),
    ] {
        let body = json!({ "methodId": method, "apiKey": format!("  {KEY}\t") });
        assert_eq!(sign_in(body).await.status, StatusCode::NO_CONTENT);
        let lines = std::fs::read_to_string(received.path()).expect("it is ours");
        let last = lines
            .lines()
            .rfind(|line| line.contains("\"authenticate\""));
        let last: Value = serde_json::from_str(last.expect("it was asked")).expect("JSON");
        assert_eq!(last["params"], json!({ "methodId": method, "_meta": meta }));
    }
    let session = gateway.session("fake").await;
    let error = json!({ "code": -32603, "message": format!("the quota of {KEY} is used up") });
    let turn = gateway.turn(&session, &format!("raw fail {error}")).await;
    assert_eq!(
        turn["error"]["acp"]["message"],
        "the quota of [secret] is used up"
    );
    gateway
        .turn(&session, &format!("stderr text=using-{KEY}"))
        .await;
    let stderr = gateway
        .request(Method::GET, &format!("/v1/sessions/{session}/stderr"))
        .send()
        .await;
    assert_eq!(
        stderr.expect("an answer").text().await.expect("a text"),
        "using-[secret]\n"
    );
    let crashed = gateway.turn(&session, "crash").await;
    let tail = crashed["error"]["stderrTail"].as_str().expect("a text");
    assert!(
        tail.contains("using-[secret]") && !tail.contains(KEY),
        "{crashed}"
    );
    assert!(!gateway.log().contains(KEY), "{}", gateway.log());
}

#[tokio::test]
async fn an_agent_that_refuses_its_own_key_without_authenticate_gets_the_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let codex = program(folder.path(), "codex-acp");
    let log = folder.path().join("received");
    let methods = r#"{"id":"chatgpt","name":"ChatGPT"},{"id":"openai-api-key","name":"Key"}"#;
    let args = [
        "--auth-required",
        "--auth-methods",
        methods,
        "--log",
        log.to_str().expect("UTF-8"),
    ];
    let with_key = "env = { OPENAI_API_KEY = { from_env = \"OPENAI_API_KEY\" } }";
    let setup = Setup::default()
        .agent("codex", &codex, &args, with_key)
        .agent("bare", &codex, &args, "");
    let gateway = setup.start_with(|_| vec![("OPENAI_API_KEY", KEY.into())]);
    for _ in 0..2 {
        let session = gateway.session("codex").await;
        assert_eq!(gateway.turn(&session, "echo on").await["text"], "on");
    }
    let received = std::fs::read_to_string(&log).expect("it is ours");
    assert!(
        received.contains(r#""params":{"methodId":"openai-api-key"}"#),
        "{received}"
    );

    let body = json!({ "agent": "bare" });
    let problem = gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(424, "agent_auth_required");
    let detail = problem["detail"].as_str().expect("a text");
    let step = "Set CODEX_API_KEY or OPENAI_API_KEY in `env` of [agents.bare], or send POST /v1/agents/bare/auth with \
                {\"methodId\": \"chatgpt\"}.";
    assert_eq!(
        detail,
        format!("the agent needs a sign-in: Authentication required (-32000). {step}")
    );
}
