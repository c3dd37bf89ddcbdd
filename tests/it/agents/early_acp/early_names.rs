//! An agent with the early names of methods.

use std::time::Duration;

use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::Early;
use crate::support::eventually;
use crate::support::log::{agent_text, noise, one};

#[tokio::test]
async fn text_and_thoughts_are_shown_once() {
    let early = Early::start(&[]);
    let session = early.session().await;
    let (turn, updates) = early.turn(&session, "think Grüße").await;
    assert_eq!(
        (&turn["text"], &turn["stopReason"]),
        (&json!("Grüße"), &json!("end_turn")),
        "{turn}"
    );
    assert_eq!(
        updates[0]["sessionUpdate"], "agent_thought_chunk",
        "{updates:?}"
    );
    for text in ["hello world", "whole at the end"] {
        let (turn, _) = early.turn(&session, text).await;
        assert_eq!(turn["text"], text.trim_start_matches("whole "), "{turn}");
    }
    let shown = early.gateway.get("/v1/agents/early").await;
    assert_eq!(shown["agentInfo"]["name"], "early-agent", "{shown}");
    assert_eq!(
        early.methods()[..3],
        ["initialize", "agent/createSession", "agent/prompt"]
    );
}

#[tokio::test]
async fn tool_call_and_result_are_shown_once() {
    let early = Early::start(&[]);
    let session = early.session().await;
    let (turn, updates) = early.turn(&session, "tool a.txt").await;
    assert_eq!(turn["text"], "done", "{turn}");
    let kinds: Vec<_> = updates
        .iter()
        .map(|update| update["sessionUpdate"].as_str().unwrap_or(""))
        .collect();
    assert_eq!(
        kinds,
        ["tool_call", "tool_call_update", "agent_message_chunk"],
        "{updates:?}"
    );
    assert_eq!(
        (&updates[0]["title"], &updates[0]["rawInput"]["path"]),
        (&json!("read_file"), &json!("a.txt"))
    );
    assert_eq!(updates[1]["status"], "completed");
    assert_eq!(updates[1]["content"][0]["content"]["text"], "contents");
}

#[tokio::test]
async fn permission_is_allowed_and_rejected() {
    let early = Early::start(&[]);
    let session = early.session().await;
    for (turn, option, kind, request) in [
        ("p1", "go", "allow_once", "r1"),
        ("p2", "halt", "reject_once", "r2"),
    ] {
        early.gateway.prompt(&session, "ask rm -r build").await;
        let events = early
            .gateway
            .log_until(&session, |event| {
                event["type"] == "request.created" && event["requestId"] == request
            })
            .await;
        let params = &events.last().expect("the request")["params"];
        assert_eq!(params["toolCall"]["title"], "Run a command", "{params}");
        assert_eq!(
            params["toolCall"]["content"][0]["content"]["text"], "rm -r build",
            "{params}"
        );
        let options = params["options"].as_array().expect("options");
        let offered = options
            .iter()
            .find(|offered| offered["optionId"] == option)
            .expect("the option");
        assert_eq!(offered["kind"], kind, "{params}");
        let path = format!("/v1/sessions/{session}/permissions/{request}");
        let answer = early
            .gateway
            .posted(&path, &[], &json!({ "optionId": option }))
            .await;
        assert_eq!(answer.status.as_u16(), 204, "{answer:?}");
        let ended =
            |event: &Value| event["type"] == "prompt.completed" && event["promptId"] == turn;
        let events = early.gateway.log_until(&session, ended).await;
        let text = agent_text(&events);
        assert!(text.ends_with(&format!("permission: {option}")), "{text}");
    }
}

/// Begins a turn, and cancels it when the agent is in it. Returns the last event.
async fn cancelled(early: &Early, session: &str, text: &str) -> Value {
    early.gateway.prompt(session, text).await;
    early
        .gateway
        .log_until(session, |event| event["type"] == "session.update")
        .await;
    let answer = early
        .gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    assert_eq!(answer.status.as_u16(), 202, "{answer:?}");
    let ended =
        |event: &Value| event["type"] == "prompt.completed" || event["type"] == "prompt.failed";
    early
        .gateway
        .log_until(session, ended)
        .await
        .pop()
        .expect("the end")
}

#[tokio::test]
async fn cancel_ends_the_turn_and_the_process_continues() {
    let early = Early::start(&[]);
    let session = early.session().await;
    let end = cancelled(&early, &session, "wait").await;
    assert_eq!(end["stopReason"], "cancelled", "{end}");
    let (turn, _) = early.turn(&session, "hello").await;
    assert_eq!(turn["text"], "hello", "{turn}");
    let initialized = early
        .methods()
        .iter()
        .filter(|method| *method == "initialize")
        .count();
    assert_eq!(initialized, 1, "{:?}", early.methods());
    assert!(early.methods().contains(&"agent/cancelSession".to_owned()));
}

#[tokio::test]
async fn agent_that_does_not_read_the_cancel_is_stopped_after_the_deadline() {
    let limits = "testing.cancel_timeout = \"200ms\"\ntesting.cancel_total_timeout = \"10s\"\ntesting.stop_stdin_timeout = \"200ms\"\ntesting.session_close_timeout = \"200ms\"\ntesting.stop_term_timeout = \"200ms\"";
    let early = Early::start_with(&[], limits);
    let session = early.session().await;
    let end = cancelled(&early, &session, "deaf").await;
    assert_eq!(end["problem"]["code"], "cancel_timeout", "{end}");
    early.gateway.none_alive().await;
    let (turn, _) = early.turn(&session, "hello").await;
    assert_eq!(turn["text"], "hello", "the session continues: {turn}");
}

#[tokio::test]
async fn error_within_the_result_fails_the_turn() {
    let early = Early::start(&[]);
    let session = early.session().await;
    let (turn, _) = early.turn(&session, "fail the model is missing").await;
    assert_eq!(turn["status"], "failed", "{turn}");
    assert!(
        turn["error"]["detail"]
            .as_str()
            .expect("a text")
            .contains("the model is missing"),
        "{turn}"
    );
    assert_eq!(early.turn(&session, "hello").await.0["text"], "hello");
}

#[tokio::test]
async fn session_continues_in_a_new_process_after_a_kill() {
    let early = Early::start(&[]);
    let session = early.session().await;
    let (turn, _) = early.turn(&session, "pid").await;
    let pid = turn["text"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .and_then(Pid::from_raw);
    kill_process(pid.expect("a pid"), Signal::KILL).expect("it is the test's agent");
    eventually(
        "the gateway knows of it",
        Duration::from_secs(10),
        || async { (early.gateway.get_session(&session).await["attached"] == false).then_some(()) },
    )
    .await;
    let (turn, _) = early.turn(&session, "hello").await;
    assert_eq!(turn["text"], "hello", "{turn}");
    let events = early.gateway.lawful(&session).await;
    let attached = events
        .iter()
        .rev()
        .find(|event| event["type"] == "session.attached")
        .expect("attached");
    assert_eq!(
        (&attached["context"], &attached["reason"]),
        (&json!("lost"), &json!("unsupported")),
        "{attached}"
    );
    let turns = early
        .gateway
        .get(&format!("/v1/sessions/{session}/prompts"))
        .await;
    assert_eq!(
        turns["prompts"].as_array().map(Vec::len),
        Some(2),
        "the transcript is complete: {turns}"
    );
}

#[tokio::test]
async fn graceful_stop_sends_shutdown() {
    let early = Early::start(&[]);
    let session = early.session().await;
    early.turn(&session, "hello").await;
    let deleted = early
        .gateway
        .call(Method::DELETE, &format!("/v1/sessions/{session}"))
        .await;
    assert_eq!(deleted.status.as_u16(), 204, "{deleted:?}");
    early.gateway.none_alive().await;
    assert_eq!(
        early.methods().last().map(String::as_str),
        Some("shutdown"),
        "{:?}",
        early.methods()
    );
}

#[tokio::test]
async fn sessions_have_own_processes_in_their_folders() {
    let early = Early::start(&[]);
    let first = early.session().await;
    let second = early.session().await;
    for session in [&first, &second] {
        let (turn, _) = early.turn(session, "cwd").await;
        let cwd = early.gateway.get_session(session).await["cwd"].clone();
        assert_eq!(turn["text"], cwd, "{turn}");
    }
    let (one, _) = early.turn(&first, "pid").await;
    let (other, _) = early.turn(&second, "pid").await;
    assert_ne!(one["text"], other["text"]);
}

#[tokio::test]
async fn malformed_lines_are_counted_and_skipped() {
    let early = Early::start(&[]);
    let session = early.session().await;
    let (turn, _) = early.turn(&session, "garbage").await;
    assert_eq!(turn["text"], "after", "{turn}");
    let events = early.gateway.lawful(&session).await;
    assert_eq!(noise(&events), 2, "{events:?}");
    one(&events, "prompt.completed");
}

#[tokio::test]
async fn calls_that_the_protocol_lacks_are_clear_errors() {
    let early = Early::start(&[]);
    let session = early.session().await;
    let shown = early.gateway.get("/v1/agents/early").await;
    assert_eq!(shown["capabilities"]["loadSession"], Value::Null, "{shown}");
    let listed = early
        .gateway
        .call(Method::GET, "/v1/agents/early/sessions")
        .await;
    assert_eq!(listed.status.as_u16(), 501, "{listed:?}");
    let mode = json!({ "modeId": "plan" });
    let (status, answer) = early
        .gateway
        .send(Method::PUT, &format!("/v1/sessions/{session}/mode"), &mode)
        .await;
    assert!(
        status.is_client_error() || status.as_u16() == 501,
        "{status} {answer}"
    );
    let forked = early
        .gateway
        .posted(&format!("/v1/sessions/{session}/fork"), &[], &json!({}))
        .await;
    assert_eq!(forked.status.as_u16(), 501, "{forked:?}");
}
