//! The frames of each protocol for every kind of update, and replays.
//!
//! `UPDATE=1 cargo test --test it chat::projections` writes the expected frames again.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    AG_UI, AI_SDK, COMPLETIONS, RESPONSES, body, completion, post, run_input, ui_messages,
};
use crate::golden::examples::{UPDATES, V2_UPDATES};
use crate::support::places::project;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Gateway, Setup};

/// Updates with members that are null, or of a type that no specification has.
const ODD: &[&str] = &[
    r#"{"sessionUpdate":"tool_call","toolCallId":"n","title":null,"kind":null,"status":null,"content":null,"locations":null,"rawInput":null}"#,
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"n","title":null,"status":"in_progress","content":[]}"#,
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"n","rawOutput":{"n":1.10},"status":"failed"}"#,
    r#"{"sessionUpdate":"tool_call","toolCallId":7,"title":"no id"}"#,
    r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ud83d"}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ude00 \"quoted\" \u2028"}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","content":null}"#,
    r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":7}}"#,
    r#"{"sessionUpdate":"usage_update","used":null}"#,
    r#"{"sessionUpdate":"unknown_update","x":1}"#,
    r#"{"sessionUpdate":"tool_call","toolCallId":"open","title":"Never ends","kind":"execute"}"#,
];

/// A prompt for which the scripted agent sends every kind of update.
fn every_update() -> String {
    let line = |update: &&str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"$SESSION","update":{update}}}}}"#
        )
    };
    let lines: Vec<String> = UPDATES
        .iter()
        .chain(V2_UPDATES)
        .chain(ODD)
        .map(line)
        .collect();
    format!("raw {}", lines.join("\n"))
}

/// Replaces what differs between runs.
fn stable(frames: &str, session: &str) -> String {
    let stable = frames.replace(session, "SESSION");
    let lines = stable
        .lines()
        .filter(|line| !line.is_empty() && *line != ":");
    let without = |line: String, member: &str| match line.split_once(member) {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}{member}0{rest}")
        }
        None => line,
    };
    let timeless =
        |line: &str| without(without(line.to_owned(), "\"created\":"), "\"created_at\":");
    lines.map(timeless).map(|line| line + "\n").collect()
}

#[expect(clippy::disallowed_methods, reason = "the flag is for developers")]
fn compare(name: &str, frames: &str) {
    let file = project().join("tests/it/chat/expected").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, frames).expect("the folder exists");
    }
    let expected = std::fs::read_to_string(&file).expect("the file exists");
    assert!(
        expected == frames,
        "{name} differs: UPDATE=1 cargo test --test it chat::projections\n{frames}"
    );
}

async fn session_of(gateway: &Gateway) -> String {
    super::sessions(gateway)
        .await
        .first()
        .expect("a session")
        .clone()
}

#[tokio::test]
async fn every_update_has_the_expected_frames() {
    let prompt = every_update();
    for (name, path, content) in [
        ("ai_sdk.txt", AI_SDK, ui_messages("c", &[&prompt])),
        ("ag_ui.txt", AG_UI, run_input("t", "r", &[&prompt])),
        ("openai_chat.txt", COMPLETIONS, completion(&[&prompt], true)),
        (
            "openai_responses.txt",
            RESPONSES,
            json!({ "model": "fake", "input": prompt, "stream": true }),
        ),
    ] {
        let gateway = Setup::fake(&[]).start();
        let frames = post(&gateway, path, &content).await;
        let session = session_of(&gateway).await;
        compare(
            name,
            &stable(&frames, &session).replace(&gateway.url, "ORIGIN"),
        );
    }
}

/// The frames without keep-alives.
fn without_comments(frames: &str) -> String {
    frames.replace(":\n", "")
}

#[tokio::test]
async fn replay_equals_the_live_stream_also_after_a_kill() {
    let mut gateway = Setup::fake(&[]).start();
    let prompt = "thought; slow chunks=1 ms=1; tool; plan; slow chunks=2 ms=1; usage";
    let chat = ui_messages("c", &[prompt]);
    let run = run_input("t", "r", &[prompt]);
    let live = (
        post(&gateway, AI_SDK, &chat).await,
        post(&gateway, AG_UI, &run).await,
    );
    for killed in [false, true] {
        if killed {
            gateway.kill();
            gateway.start();
        }
        let chat = body(gateway.request(Method::GET, &format!("{AI_SDK}/c/stream"))).await;
        let run = post(&gateway, AG_UI, &run).await;
        assert_eq!(
            without_comments(&chat),
            without_comments(&live.0),
            "killed: {killed}"
        );
        assert_eq!(
            without_comments(&run),
            without_comments(&live.1),
            "killed: {killed}"
        );
    }
    let nobody = gateway
        .request(Method::GET, &format!("{AI_SDK}/unknown/stream"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(nobody.status(), reqwest::StatusCode::NO_CONTENT);
}

/// How the client of a protocol sends a prompt, and how it continues after its connection is lost.
struct Client {
    path: &'static str,
    send: fn(&str, &[&str]) -> Value,
    /// `None` if the client sends its request again.
    resume: Option<fn(&str, &str) -> String>,
}

const CLIENTS: [Client; 4] = [
    Client {
        path: AI_SDK,
        send: ui_messages,
        resume: Some(|chat, _| format!("{AI_SDK}/{chat}/stream")),
    },
    Client {
        path: AG_UI,
        send: |thread, texts| run_input(thread, &texts.len().to_string(), texts),
        resume: None,
    },
    Client {
        path: COMPLETIONS,
        send: |_, texts| completion(texts, true),
        resume: None,
    },
    Client {
        path: RESPONSES,
        send: |_, texts| {
            let item = |text: &&str| json!({ "role": "user", "content": text });
            let input: Vec<Value> = texts.iter().map(item).collect();
            json!({ "model": "fake", "input": input, "stream": true })
        },
        resume: Some(|_, session| format!("{RESPONSES}/resp_{session}_p1?stream=true")),
    },
];

/// The last frame of a turn that failed with its gateway.
fn is_failure(last: &Value) -> bool {
    matches!(
        last["type"].as_str(),
        Some("error" | "RUN_ERROR" | "response.failed")
    ) || last["error"].is_object()
}

/// A kill during text, a tool and an open permission: each client resumes, sees what a client sees that was never
/// connected, and the conversation goes on.
#[tokio::test]
async fn killed_gateway_shows_the_end_of_the_turn_to_each_client() {
    let mut gateway = Setup::fake(&[]).start();
    let states = [
        ("slow chunks=3 ms=1; hang", "agent_message_chunk"),
        ("running-tool; hang", "tool_call"),
        ("permission", "request.created"),
    ];
    for (number, (prompt, reached)) in states.into_iter().enumerate() {
        for client in &CLIENTS {
            let name = format!("chat{number}");
            let first = (client.send)(&name, &[prompt]);
            // The gateway starts again in between.
            let request = |gateway: &Gateway, retries: &str, content: &Value| {
                let request = gateway.request(Method::POST, client.path);
                request
                    .header("x-conversation-id", &name)
                    .header("x-stainless-retry-count", retries)
                    .json(content)
            };
            let mut live = request(&gateway, "0", &first)
                .send()
                .await
                .expect("an answer");
            let session = live.headers()["x-acp-session-id"]
                .to_str()
                .expect("an id")
                .to_owned();
            live.chunk().await.expect("a chunk");
            eventually("the state for the kill", LONGEST, || async {
                let events = gateway.all_events(&session).await;
                let is = |event: &Value| {
                    event["type"] == reached || event["update"]["sessionUpdate"] == reached
                };
                events.iter().any(is).then_some(())
            })
            .await;
            gateway.kill();
            drop(live);
            gateway.start();
            let resumed = match client.resume {
                Some(path) => body(gateway.request(Method::GET, &path(&name, &session))).await,
                None => body(request(&gateway, "1", &first)).await,
            };
            let shown = super::frames(&resumed);
            let asked = shown.last().is_some_and(|last| {
                last["response"]["output"].as_array().is_some_and(|items| {
                    items
                        .iter()
                        .any(|item| item["type"] == "mcp_approval_request")
                })
            });
            assert!(
                asked || shown.last().is_some_and(is_failure),
                "{}: {resumed}",
                client.path
            );
            let calls = |kind: &str| shown.iter().filter(|frame| frame["type"] == kind).count();
            assert_eq!(
                calls("tool-input-start"),
                calls("tool-output-error"),
                "{resumed}"
            );
            assert_eq!(
                calls("TOOL_CALL_START"),
                calls("TOOL_CALL_RESULT"),
                "{resumed}"
            );
            // A client that was not connected during the turn sees the same.
            let again = match client.resume {
                Some(path) => body(gateway.request(Method::GET, &path(&name, &session))).await,
                None => body(request(&gateway, "1", &first)).await,
            };
            assert_eq!(
                without_comments(&again),
                without_comments(&resumed),
                "{}",
                client.path
            );
            assert_eq!(
                super::turns(&gateway, &session).await,
                1,
                "{}: one prompt",
                client.path
            );
            let next = (client.send)(&name, &[prompt, "echo on"]);
            let next = super::frames(&body(request(&gateway, "0", &next)).await);
            assert_eq!(super::text(&next), "on", "{}", client.path);
            assert_eq!(
                super::turns(&gateway, &session).await,
                2,
                "{}: the same session",
                client.path
            );
        }
    }
}

/// Requests of the agent: the response up to the request, and the one after the answer.
#[tokio::test]
async fn requests_have_the_expected_frames() {
    for (name, path, first, answer) in [
        (
            "ai_sdk_requests.txt",
            AI_SDK,
            ui_messages("c", &["permission"]),
            json!({ "id": "c", "messages": [{ "id": "SESSION_p1", "role": "assistant", "parts": [{
                "type": "dynamic-tool", "toolCallId": "x", "state": "approval-responded",
                "approval": { "id": "SESSION_p1_r1", "approved": false } }] }] }),
        ),
        (
            "ag_ui_requests.txt",
            AG_UI,
            run_input("t", "r", &["permission"]),
            json!({ "threadId": "t", "runId": "r2", "protocolVersion": "1.0", "messages": [], "tools": [], "context": [],
                "resume": [{ "interruptId": "SESSION_p1_r1", "status": "resolved", "payload": { "approved": false } }] }),
        ),
        (
            "openai_responses_requests.txt",
            RESPONSES,
            json!({ "model": "fake", "input": "permission", "stream": true }),
            json!({ "model": "fake", "previous_response_id": "resp_SESSION_p1", "stream": true, "input": [{
                "type": "mcp_approval_response", "approval_request_id": "mcpr_SESSION_p1_r1", "approve": false }] }),
        ),
    ] {
        let gateway = Setup::fake(&[]).start();
        let asked = post(&gateway, path, &first).await;
        let session = session_of(&gateway).await;
        let answer: Value =
            serde_json::from_str(&answer.to_string().replace("SESSION", &session)).expect("JSON");
        let answered = post(&gateway, path, &answer).await;
        let deadlines = without_times(&format!("{asked}\n{answered}"));
        compare(name, &stable(&deadlines, &session));
    }
}

/// Replaces times.
fn without_times(frames: &str) -> String {
    let is_time = |text: &str| text.len() == 24 && text.starts_with("20") && text.ends_with('Z');
    frames
        .split('"')
        .map(|part| if is_time(part) { "TIME" } else { part })
        .collect::<Vec<_>>()
        .join("\"")
}
