//! Waits for a process without a turn, and sessions that no process holds.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::log::{all, one};
use crate::support::{Answer, Gateway, Setup, eventually};

async fn set_mode(gateway: &Gateway, session: &str) -> Answer {
    let request = gateway.request(Method::PUT, &format!("/v1/sessions/{session}/mode"));
    Answer::of(request.json(&json!({ "modeId": "code" }))).await
}

/// A detached session, and another one whose turn uses the only process.
async fn full(limits: &str) -> (Gateway, String, String) {
    let setup = Setup::fake_with(
        &["--state", "state"],
        "pool = { max_size = 1, min_idle = 0 }",
    );
    let gateway = setup.settings(limits).start();
    let idle = gateway.session("fake").await;
    let busy = gateway.session("fake").await;
    gateway.prompt(&busy, "stream n=1; hang").await;
    gateway
        .log_until(&busy, |event| event["type"] == "session.update")
        .await;
    (gateway, idle, busy)
}

#[tokio::test]
async fn setting_or_attach_on_a_full_pool_fails_fast() {
    let (gateway, idle, busy) = full("testing.settings_queue_timeout = \"300ms\"").await;
    let began = Instant::now();
    let refused = set_mode(&gateway, &idle).await;
    assert!(refused.header("retry-after").is_some());
    refused.problem(503, "pool_full");
    let attach = format!("/v1/sessions/{idle}/attach");
    let refused = gateway.call(Method::POST, &attach).await;
    assert!(refused.header("retry-after").is_some());
    refused.problem(503, "pool_full");
    assert!(began.elapsed() < Duration::from_secs(10));
    eventually(
        "the places are given back",
        Duration::from_secs(30),
        || async { (gateway.get("/v1/agents/fake").await["pool"]["waiting"] == 0).then_some(()) },
    )
    .await;
    // A turn may wait longer than a setting, and a setting that arrives during the wait runs with the turn.
    gateway.prompt(&idle, "echo at last").await;
    gateway
        .call(Method::POST, &format!("/v1/sessions/{busy}/cancel"))
        .await;
    gateway
        .log_until(&idle, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(set_mode(&gateway, &idle).await.status, StatusCode::OK);
    gateway.lawful(&idle).await;
}

#[tokio::test]
async fn new_session_on_a_full_pool_fails_fast() {
    let (gateway, _idle, busy) = full("testing.settings_queue_timeout = \"300ms\"").await;
    let body = json!({ "agent": "fake" });
    let refused = gateway
        .posted("/v1/sessions", &[("Idempotency-Key", "one")], &body)
        .await;
    assert!(refused.header("retry-after").is_some());
    refused.problem(503, "pool_full");
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(2),
        "nothing is left"
    );
    eventually(
        "its place is given back",
        Duration::from_secs(30),
        || async { (gateway.get("/v1/agents/fake").await["pool"]["waiting"] == 0).then_some(()) },
    )
    .await;
    gateway
        .call(Method::POST, &format!("/v1/sessions/{busy}/cancel"))
        .await;
    // The key of a request that failed may be used again. The place is free when the process of the turn has ended.
    let again = eventually("a place is free", Duration::from_secs(20), || async {
        let answer = gateway
            .posted("/v1/sessions", &[("Idempotency-Key", "one")], &body)
            .await;
        (answer.status != StatusCode::SERVICE_UNAVAILABLE).then_some(answer)
    })
    .await;
    assert_eq!(again.status, StatusCode::CREATED, "{again:?}");
}

#[tokio::test]
async fn a_new_session_waits_for_an_agent_that_starts() {
    let setup = Setup::fake_with(
        &["--slow-start", "1500"],
        "pool = { max_size = 1, min_idle = 0 }",
    );
    let gateway = setup
        .settings("testing.settings_queue_timeout = \"200ms\"")
        .start();
    gateway.session("fake").await;
}

#[tokio::test]
async fn a_process_that_starts_is_waited_for() {
    let setup = Setup::fake_with(
        &["--state", "state", "--slow-start", "1500"],
        "pool = { max_size = 2, min_idle = 0 }",
    );
    let gateway = setup
        .settings("testing.settings_queue_timeout = \"700ms\"\ntesting.min_backoff = \"10ms\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "crash").await;
    let set = set_mode(&gateway, &session).await;
    assert_eq!(set.status, StatusCode::OK, "{set:?}");
}

#[tokio::test]
async fn setting_survives_the_stop_of_a_process_that_ignored_a_cancel() {
    let setup = Setup::fake(&["--state", "state"]);
    let gateway = setup.settings("testing.cancel_timeout = \"200ms\"\ntesting.cancel_total_timeout = \"5s\"\ntesting.stop_stdin_timeout = \"1s\"\ntesting.session_close_timeout = \"1s\"").start();
    let session = gateway.session("fake").await;
    gateway
        .prompt(&session, "stream n=1; ignore-cancel ms=20")
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "prompt.failed")
        .await;
    let set = set_mode(&gateway, &session).await;
    assert_eq!(
        (set.status, &set.body["modes"]["currentModeId"]),
        (StatusCode::OK, &json!("code")),
        "{set:?}"
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(
        one(&events, "prompt.failed")["problem"]["code"],
        "cancel_timeout"
    );
    assert_eq!(all(&events, "session.attached").len(), 2);
}

#[tokio::test]
async fn a_session_without_a_process_is_deleted_at_the_agent_too() {
    let gateway = Setup::fake_with(
        &["--state", "state", "--delete", "--log", "received"],
        "pool = { max_size = 2, min_idle = 0, idle_timeout = \"100ms\" }",
    )
    .start();
    let session = gateway.session("fake").await;
    gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;
    gateway.none_alive().await;
    let began = Instant::now();
    let answer = gateway
        .call(Method::DELETE, &format!("/v1/sessions/{session}"))
        .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "no request waits for the agent"
    );
    gateway
        .call(Method::GET, &format!("/v1/sessions/{session}"))
        .await
        .problem(404, "not_found");
    eventually("the agent was asked", Duration::from_secs(10), || async {
        let lines =
            std::fs::read_to_string(gateway.path("data/homes/default/fake/received")).ok()?;
        lines.contains(r#""method":"session/delete""#).then_some(())
    })
    .await;
    gateway.none_alive().await;
}

#[tokio::test]
async fn resume_restores_a_session_after_idle_timeout_crash_and_restart() {
    let mut gateway = Setup::fake_with(
        &["--state", "state", "--resume", "--log", "received"],
        "pool = { max_size = 2, min_idle = 0, idle_timeout = \"150ms\" }",
    )
    .settings("testing.min_backoff = \"10ms\"")
    .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;
    assert_eq!(gateway.turn(&session, "echo two").await["text"], "two");
    gateway.turn(&session, "crash").await;
    assert_eq!(gateway.turn(&session, "echo three").await["text"], "three");
    gateway.kill();
    gateway.start();
    assert_eq!(gateway.turn(&session, "echo four").await["text"], "four");
    let events = gateway.lawful(&session).await;
    let by: Vec<_> = all(&events, "session.attached")
        .iter()
        .map(|event| event["by"].clone())
        .collect();
    assert!(
        by.len() >= 4 && by[0] == "new" && by[1..].iter().all(|by| by == "resume"),
        "{by:?}"
    );
}

#[tokio::test]
async fn failed_resume_falls_back_to_load_and_failed_load_to_a_new_session() {
    for (args, by, context) in [
        (&["--state", "state", "--fail-resume"][..], "load", "kept"),
        (
            &["--state", "state", "--fail-resume", "--fail-load"],
            "fresh",
            "lost",
        ),
        (&["--state", "state", "--fail-load"], "fresh", "lost"),
        (&["--no-load"], "fresh", "lost"),
    ] {
        let gateway = Setup::fake(args)
            .settings("testing.min_backoff = \"10ms\"")
            .start();
        let session = gateway.session("fake").await;
        gateway.turn(&session, "echo one").await;
        gateway.turn(&session, "crash").await;
        assert_eq!(
            gateway.turn(&session, "echo two").await["text"],
            "two",
            "{args:?}"
        );
        let events = gateway.lawful(&session).await;
        let attached = *all(&events, "session.attached")
            .last()
            .expect("it was attached");
        assert_eq!(
            (&attached["by"], &attached["context"]),
            (&json!(by), &json!(context)),
            "{args:?}"
        );
    }
}
