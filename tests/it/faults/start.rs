//! Agents that do not start: the creation fails with a reason and has no other effect.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::places::fake_agent;
use crate::support::{Answer, Gateway, Setup, eventually};

async fn create(gateway: &Gateway, agent: &str) -> Answer {
    gateway
        .posted("/v1/sessions", &[], &json!({ "agent": agent }))
        .await
}

#[tokio::test]
async fn missing_initialize_response_is_a_timeout_without_effect() {
    let more = "start_timeout = \"300ms\"";
    let gateway = Setup::fake_with(&["--hang-initialize"], more).start();
    create(&gateway, "fake").await.problem(504, "agent_timeout");
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn missing_session_new_response_is_a_timeout_without_effect() {
    let gateway = Setup::fake(&["--hang-new"])
        .settings("timeouts.session_new_timeout = \"300ms\"")
        .start();
    create(&gateway, "fake").await.problem(504, "agent_timeout");
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn disconnect_during_a_failing_creation_has_no_effect() {
    let gateway = Setup::fake(&["--hang-new", "--log", "received"])
        .settings("timeouts.session_new_timeout = \"6s\"")
        .start();
    let received = gateway.path("data/homes/default/fake/received");
    let root = gateway.path("data/workspaces");
    let folders = || {
        std::fs::read_dir(&root)
            .expect("the root of workspaces")
            .count()
    };
    let request = gateway
        .request(Method::POST, "/v1/sessions")
        .json(&json!({ "agent": "fake" }));
    let asked = || async {
        let received = std::fs::read_to_string(&received).unwrap_or_default();
        received.contains("session/new").then_some(())
    };
    tokio::select! {
        biased;
        () = eventually("the agent is asked", Duration::from_mins(1), asked) => {}
        answer = request.send() => panic!("the agent never answers: {answer:?}"),
    }
    assert_eq!(folders(), 1, "it is being made");
    let gone = || async { (folders() == 0).then_some(()) };
    eventually("its folder is gone", Duration::from_mins(1), gone).await;
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn agent_exit_at_start_is_reported_and_has_no_effect() {
    let gateway = Setup::fake(&["--exit-at-start", "3"]).start();
    let problem = create(&gateway, "fake").await.problem(502, "agent_exited");
    assert_eq!(
        (&problem["exitCode"], &problem["signal"]),
        (&json!(3), &Value::Null)
    );
    assert_eq!(problem["stderrTail"], "cannot start\n");
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn program_that_a_shell_does_not_find_is_not_retryable() {
    for (code, retryable) in [(3, true), (126, false), (127, false)] {
        let script = format!("exit {code}");
        let gateway = Setup::default()
            .agent("script", "sh", &["-c", &script], "pool = { min_idle = 0 }")
            .start();
        let problem = create(&gateway, "script")
            .await
            .problem(502, "agent_exited");
        assert_eq!(
            (&problem["exitCode"], &problem["retryable"]),
            (&json!(code), &json!(retryable))
        );
    }
}

/// An agent that fails at each start, with the number of its starts as the lines of a file.
fn failing(code: i32) -> (Gateway, std::path::PathBuf) {
    let script = format!("echo x >> \"$HOME/starts\"; echo 'no license found' >&2; exit {code}");
    let gateway = Setup::default()
        .agent("fails", "sh", &["-c", &script], "pool = { min_idle = 1 }")
        .settings("testing.min_backoff = \"10ms\"\ntesting.max_backoff = \"20ms\"")
        .start();
    let starts = gateway.path("data/homes/default/fails/starts");
    (gateway, starts)
}

fn lines_of(file: &std::path::Path) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

async fn detail_of_failing(gateway: &Gateway) -> String {
    eventually("the start failed", Duration::from_secs(30), || async {
        let agent = gateway.get("/v1/agents/fails").await;
        agent["status"]["detail"].as_str().map(str::to_owned)
    })
    .await
}

#[tokio::test]
async fn failed_background_starts_show_the_output_and_are_reported_once() {
    let (gateway, starts) = failing(3);
    eventually("several starts failed", Duration::from_secs(30), || async {
        (lines_of(&starts) >= 3).then_some(())
    })
    .await;
    let detail = detail_of_failing(&gateway).await;
    assert!(
        detail.contains("exited with code 3") && detail.contains("no license found"),
        "{detail}"
    );
    let log = gateway.log();
    let reports: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("could not start the agent") && line.contains("WARN"))
        .collect();
    assert_eq!(reports.len(), 1, "{log}");
    assert!(reports[0].contains("no license found"), "{reports:?}");
}

#[tokio::test]
async fn start_that_always_fails_is_not_repeated_without_a_request() {
    let (gateway, starts) = failing(127);
    detail_of_failing(&gateway).await;
    assert_eq!(lines_of(&starts), 1);
    // Each request asks the pool for its next step.
    for requests in 1..=3 {
        create(&gateway, "fails").await.problem(502, "agent_exited");
        assert_eq!(
            lines_of(&starts),
            1 + requests,
            "one start for each request"
        );
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_fails_its_own_agent_only() {
    let gateway = Setup::fake(&[])
        .agent("missing", "/nonexistent/agent", &[], "")
        .start();
    let problem = create(&gateway, "missing")
        .await
        .problem(502, "agent_start_failed");
    assert_eq!(problem["retryable"], false);
    gateway.assert_nothing_left().await;
    let session = gateway.session("fake").await;
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
}

#[tokio::test]
async fn an_agent_that_speaks_another_version_of_the_protocol_does_not_start() {
    let gateway = Setup::fake(&["--protocol", "7"]).start();
    let problem = create(&gateway, "fake")
        .await
        .problem(502, "agent_start_failed");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("version 7")),
        "{problem}"
    );
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agent_without_capabilities_is_a_plain_agent() {
    let gateway = Setup::fake(&["--no-capabilities"]).start();
    let session = gateway.session("fake").await;
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
    assert_eq!(
        gateway.get_session(&session).await["promptCapabilities"],
        Value::Null
    );
}

#[tokio::test]
async fn agent_that_requires_a_sign_in_reports_its_methods_without_effect() {
    let gateway = Setup::fake(&["--auth-required"]).start();
    let problem = create(&gateway, "fake")
        .await
        .problem(424, "agent_auth_required");
    let methods = problem["authMethods"].as_array().expect("a list");
    let ids: Vec<&Value> = methods.iter().map(|method| &method["id"]).collect();
    assert_eq!(ids, ["login", "shell"]);
    assert_eq!(problem["acp"]["code"], -32000);
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agent_that_crashes_five_times_is_not_started_for_a_while() {
    let setup = Setup::default()
        .agent("fake", fake_agent(), &["--exit-at-start", "1"], "")
        .agent("sound", fake_agent(), &[], "")
        .settings("testing.min_backoff = \"400ms\"");
    let gateway = setup.start();
    for _ in 0..5 {
        create(&gateway, "fake").await.problem(502, "agent_exited");
    }
    let began = Instant::now();
    let answer = create(&gateway, "fake").await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "it does not wait for the back-off"
    );
    let wait: u64 = answer
        .header("retry-after")
        .expect("Retry-After")
        .parse()
        .expect("seconds");
    assert!((1..=7).contains(&wait), "{wait}");
    let problem = answer.problem(503, "pool_full");
    assert_eq!(
        (&problem["retryAfterSeconds"], &problem["retryable"]),
        (&json!(wait), &json!(true))
    );
    gateway.assert_nothing_left().await;
    gateway.session("sound").await;
}

#[tokio::test]
async fn expired_start_is_reported_at_once_and_its_process_counts_until_its_end() {
    let args = ["--hang-initialize", "--ignore-eof", "--ignore-term"];
    let more = "start_timeout = \"300ms\"\npool = { max_size = 1, min_idle = 0 }";
    let gateway = Setup::fake_with(&args, more)
        .settings("limits.per_key.max_requests_per_minute = 60000\ntesting.stop_stdin_timeout = \"5s\"\ntesting.stop_term_timeout = \"5s\"")
        .start();
    let began = Instant::now();
    let problem = create(&gateway, "fake").await.problem(504, "agent_timeout");
    // A stop needs ten seconds: five for stdin, five for TERM.
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "it waited for the stop: {:?}",
        began.elapsed()
    );
    let pool = gateway.get("/v1/agents/fake").await["pool"].clone();
    assert_eq!(
        (&pool["processes"], &pool["starting"]),
        (&json!(1), &json!(0)),
        "it is being stopped: {pool}"
    );
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("agents.fake.start_timeout") && detail.contains("300ms"),
        "{detail}"
    );
    eventually("it is stopped", Duration::from_mins(1), || async {
        (gateway.get("/v1/agents/fake").await["pool"]["processes"] == 0).then_some(())
    })
    .await;
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn thousands_of_plain_lines_at_start_do_not_end_the_agent() {
    let gateway = Setup::fake(&["--plain-lines", "5000"]).start();
    let session = gateway.session("fake").await;
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
}

#[tokio::test]
async fn an_agent_that_writes_without_end_before_initialize_is_ended() {
    let setup = Setup::fake(&["--plain-lines", "5000"])
        .settings("testing.max_start_output_bytes = \"64KiB\"");
    let gateway = setup.start();
    let problem = create(&gateway, "fake").await.problem(502, "agent_exited");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(
        detail.ends_with("it wrote more than 65536 bytes before it answered initialize"),
        "{detail}"
    );
    gateway.assert_nothing_left().await;
}
