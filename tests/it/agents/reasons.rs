//! The reason in an agent's error: shown without secrets, and marked if a retry may help.

use serde_json::{Value, json};

use crate::support::places::fake_agent;
use crate::support::{Gateway, Setup};

const SECRET: &str = "sk-test-4f1c9a77e0";

/// Runs a turn in which the agent answers the prompt with this error, and returns the problem of the turn.
async fn problem_of(gateway: &Gateway, session: &str, error: Value) -> Value {
    let turn = gateway.turn(session, &format!("raw fail {error}")).await;
    assert_eq!(turn["status"], "failed", "{turn}");
    turn["error"].clone()
}

fn with_secret() -> Gateway {
    let more = "env = { MODEL_KEY = { from_env = \"TEST_MODEL_KEY\" } }";
    let setup = Setup::default().agent("fake", fake_agent(), &[], more);
    setup.start_with(|_| vec![("TEST_MODEL_KEY", SECRET.into())])
}

#[tokio::test]
async fn detail_and_log_show_the_reason_from_the_errors_data() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let problem_with = async |data: Value| {
        let error = json!({ "code": -32603, "message": "Internal error", "data": data });
        problem_of(&gateway, &session, error).await
    };
    for data in [
        json!({ "details": "Please install ripgrep." }),
        json!({ "message": "Please install ripgrep." }),
        json!({ "error": { "message": "Please install ripgrep." } }),
        json!("Please install ripgrep."),
    ] {
        let problem = problem_with(data.clone()).await;
        let detail =
            "the agent answered with an error: Internal error (-32603): Please install ripgrep.";
        assert_eq!(
            (&problem["detail"], &problem["retryable"]),
            (&json!(detail), &json!(false))
        );
        assert_eq!(
            problem["acp"]["data"], data,
            "the error is there as it came"
        );
    }
    let repeated = problem_with(json!({ "details": "Internal error" })).await;
    assert_eq!(
        repeated["detail"],
        "the agent answered with an error: Internal error (-32603)"
    );
    let log = gateway.log();
    assert!(
        log.contains("a turn failed") && log.contains("Please install ripgrep."),
        "{log}"
    );
}

#[tokio::test]
async fn a_reason_is_one_bounded_line_without_control_characters() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let details = format!(
        "first\n\u{1b}[31msecond\u{202e}\u{7} {}",
        "x".repeat(10_000)
    );
    let error =
        json!({ "code": -32603, "message": "Internal error", "data": { "details": details } });
    let problem = problem_of(&gateway, &session, error).await;
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("(-32603): first second xxx"), "{detail}");
    assert!(
        detail.len() < 2200 && !detail.contains(char::is_control),
        "{}",
        detail.len()
    );
}

#[tokio::test]
async fn errors_never_show_the_secrets_of_the_agents_entry() {
    let gateway = with_secret();
    let session = gateway.session("fake").await;
    let error = json!({
        "code": -32603,
        "message": format!("Incorrect key {SECRET}"),
        "data": { "details": format!("the provider refused {SECRET}"), "request": [{ "key": SECRET }] },
    });
    let problem = problem_of(&gateway, &session, error).await;
    let detail = "the agent answered with an error: Incorrect key [secret] (-32603): the provider refused [secret]";
    assert_eq!(problem["detail"], detail);
    assert_eq!(
        problem["acp"]["data"]["request"],
        json!([{ "key": "[secret]" }])
    );
    assert!(!problem.to_string().contains(SECRET), "{problem}");
    let events = gateway.all_events(&session).await;
    let failed = events
        .iter()
        .find(|event| event["type"] == "prompt.failed")
        .expect("the turn failed");
    assert!(!failed.to_string().contains(SECRET), "{failed}");
    assert!(!gateway.log().contains(SECRET), "{}", gateway.log());
}

#[tokio::test]
async fn failures_that_pass_are_retryable() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    for (error, retryable) in [
        (
            json!({ "code": 429, "message": "Rate limit exceeded. Try again later." }),
            true,
        ),
        (
            json!({ "code": 503, "message": "The model is experiencing high demand." }),
            true,
        ),
        (
            json!({ "code": -32603, "message": "Internal error", "data": { "errorKind": "overloaded" } }),
            true,
        ),
        (
            json!({ "code": -32603, "message": "Internal error: API Error: 529 Overloaded" }),
            true,
        ),
        (
            json!({ "code": -32603, "message": "Internal error", "data": { "details": "Request timed out." } }),
            true,
        ),
        (
            json!({ "code": 400, "message": "the prompt is too long" }),
            false,
        ),
        (
            json!({ "code": -32602, "message": "Invalid params", "data": "try again later" }),
            false,
        ),
    ] {
        let problem = problem_of(&gateway, &session, error.clone()).await;
        assert_eq!(problem["retryable"], retryable, "{error}: {problem}");
    }
}

/// A launcher that asks a question, without a line break, and never starts the agent.
#[tokio::test]
async fn output_of_an_agent_that_never_answers_is_in_the_error_the_log_and_the_list() {
    let script =
        "echo first; echo careful >&2; printf \"Trust $MODEL_KEY? [y/N] \"; exec sleep 600";
    let more = "start_timeout = \"6s\"\nenv = { MODEL_KEY = { from_env = \"TEST_MODEL_KEY\" } }";
    let setup = Setup::default().agent("silent", "sh", &["-c", script], more);
    let gateway = setup.start_with(|_| vec![("TEST_MODEL_KEY", SECRET.into())]);
    let created = gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "silent" }))
        .await;
    assert_eq!(created.status, 504, "{created:?}");
    let reason = "the agent did not answer initialize within 6s (agents.silent.start_timeout); the last text on its stdout, \
                  which is not JSON-RPC: Trust [secret]? [y/N]";
    assert_eq!(created.body["detail"], reason);
    let listed = gateway.get("/v1/agents/silent").await;
    let shown = format!("{reason}; the end of its output to stderr: careful");
    assert_eq!(listed["status"]["detail"], shown, "{listed}");
    let log = gateway.log();
    assert!(log.contains(&shown), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[tokio::test]
async fn text_in_place_of_an_answer_is_in_the_error() {
    let script = r#"read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'; read -r line
        echo "The licence has expired."; exec sleep 600"#;
    let gateway = Setup::default()
        .settings("timeouts.session_new_timeout = \"6s\"")
        .agent("silent", "sh", &["-c", script], "")
        .start();
    let created = gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "silent" }))
        .await;
    assert_eq!(created.status, 504, "{created:?}");
    let detail = created.body["detail"].as_str().expect("a text");
    assert!(detail.contains("The licence has expired."), "{detail}");
}
