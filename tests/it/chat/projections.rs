//! The frames of each protocol for every kind of update, and replays.
//!
//! `UPDATE=1 cargo test --test it chat::projections` writes the expected frames again.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::{AG_UI, AI_SDK, COMPLETIONS, RESPONSES, body, completion, post, run_input, ui_messages};
use crate::golden::examples::{UPDATES, V2_UPDATES};
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
    let lines: Vec<String> = UPDATES.iter().chain(V2_UPDATES).chain(ODD).map(line).collect();
    format!("raw {}", lines.join("\n"))
}

/// Replaces what differs between runs.
fn stable(frames: &str, session: &str) -> String {
    let stable = frames.replace(session, "SESSION");
    let lines = stable.lines().filter(|line| !line.is_empty() && *line != ":");
    let without = |line: String, member: &str| match line.split_once(member) {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}{member}0{rest}")
        }
        None => line,
    };
    let timeless = |line: &str| without(without(line.to_owned(), "\"created\":"), "\"created_at\":");
    lines.map(timeless).map(|line| line + "\n").collect()
}

#[expect(clippy::disallowed_methods, reason = "the flag is for developers")]
fn compare(name: &str, frames: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/chat/expected").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, frames).expect("the folder exists");
    }
    let expected = std::fs::read_to_string(&file).expect("the file exists");
    assert!(expected == frames, "{name} differs: UPDATE=1 cargo test --test it chat::projections\n{frames}");
}

async fn session_of(gateway: &Gateway) -> String {
    super::sessions(gateway).await.first().expect("a session").clone()
}

#[tokio::test]
async fn every_update_has_the_expected_frames() {
    let prompt = every_update();
    for (name, path, content) in [
        ("ai_sdk.txt", AI_SDK, ui_messages("c", &[&prompt])),
        ("ag_ui.txt", AG_UI, run_input("t", "r", &[&prompt])),
        ("openai_chat.txt", COMPLETIONS, completion(&[&prompt], true)),
        ("openai_responses.txt", RESPONSES, json!({ "model": "fake", "input": prompt, "stream": true })),
    ] {
        let gateway = Setup::fake(&[]).start();
        let frames = post(&gateway, path, &content).await;
        let session = session_of(&gateway).await;
        compare(name, &stable(&frames, &session).replace(&gateway.url, "ORIGIN"));
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
    let (chat, run) = (ui_messages("c", &[prompt]), run_input("t", "r", &[prompt]));
    let live = (post(&gateway, AI_SDK, &chat).await, post(&gateway, AG_UI, &run).await);
    for killed in [false, true] {
        if killed {
            gateway.kill();
            gateway.start();
        }
        let chat = body(gateway.request(Method::GET, &format!("{AI_SDK}/c/stream"))).await;
        let run = post(&gateway, AG_UI, &run).await;
        assert_eq!(without_comments(&chat), without_comments(&live.0), "killed: {killed}");
        assert_eq!(without_comments(&run), without_comments(&live.1), "killed: {killed}");
    }
    let nobody =
        gateway.request(Method::GET, &format!("{AI_SDK}/unknown/stream")).send().await.expect("an answer");
    assert_eq!(nobody.status(), reqwest::StatusCode::NO_CONTENT);
}

/// A kill during a turn: the client resumes, and sees how the turn ended.
#[tokio::test]
async fn killed_gateway_shows_the_end_of_the_turn_after_its_restart() {
    let mut gateway = Setup::fake(&[]).start();
    for prompt in ["slow chunks=1 ms=1; hang", "tool; hang", "permission"] {
        let chat = ui_messages(prompt, &[prompt]);
        let mut live = gateway.request(Method::POST, AI_SDK).json(&chat).send().await.expect("an answer");
        live.chunk().await.expect("a chunk");
        gateway.kill();
        drop(live);
        gateway.start();
        let path = format!("{AI_SDK}/{}/stream", prompt.replace(' ', "%20").replace(';', "%3B"));
        let resumed = super::frames(&body(gateway.request(Method::GET, &path)).await);
        let last = resumed.last().expect("a frame");
        assert_eq!(last["type"], "error", "the turn failed with the gateway: {resumed:?}");
        let open: Vec<&Value> = resumed.iter().filter(|frame| frame["type"] == "tool-input-start").collect();
        for call in open {
            let ended = resumed.iter().any(|frame| {
                frame["toolCallId"] == call["toolCallId"]
                    && (frame["type"] == "tool-output-error" || frame["type"] == "tool-output-available")
            });
            assert!(ended, "{resumed:?}");
        }
        // The conversation goes on.
        let next = super::frames(&post(&gateway, AI_SDK, &ui_messages(prompt, &[prompt, "echo on"])).await);
        assert_eq!(super::text(&next), "on");
    }
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"].as_array().map(Vec::len),
        Some(3),
        "{}",
        json!(null)
    );
}
