//! Updates that only v2 has: raw in the log, folded in snapshot and transcript.

use serde_json::{Value, json};

use super::fake;

async fn items(script: &str) -> Vec<Value> {
    let (gateway, session) = fake().await;
    gateway.turn(&session, script).await;
    let transcript = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await;
    // The agent repeats the prompt, and the transcript shows it once.
    let turn = &transcript["turns"][0];
    assert_eq!(turn["prompt"][0]["text"], script);
    turn["items"].as_array().expect("items").clone()
}

#[tokio::test]
async fn messages_are_upserts() {
    let (gateway, session) = fake().await;
    let turn = gateway.turn(&session, "upserts").await;
    assert_eq!(turn["text"], "Hello you");
    assert_eq!(
        items("upserts").await,
        [
            json!({ "type": "message", "role": "thought", "messageId": "t", "content": [{ "type": "text", "text": "Hm" }] }),
            json!({ "type": "message", "role": "agent", "messageId": "m", "content": [{ "type": "text", "text": "Hello you" }] }),
        ]
    );
}

#[tokio::test]
async fn tool_calls_grow_by_chunks_and_null_clears() {
    assert_eq!(
        items("tools").await,
        [json!({ "type": "tool_call", "toolCall": {
            "toolCallId": "c", "title": "Build", "kind": "execute", "status": "completed", "locations": [{ "path": "/w/a" }],
            "content": [
                { "type": "content", "content": { "type": "text", "text": "one" } },
                { "type": "diff", "changes": [{ "operation": "modify", "path": "/w/a" }], "patch": { "format": "git_patch", "text": "-a\n+b\n" } },
            ],
        } })]
    );
}

#[tokio::test]
async fn terminals_of_the_agent_have_their_output() {
    assert_eq!(
        items("terminal").await,
        [json!({ "type": "agent_terminal", "terminal": {
            "terminalId": "t", "command": "make", "cwd": "/w", "exitStatus": { "exitCode": 0 },
            "output": { "data": "b25lCnR3bwo=" },
        } })]
    );
}

#[tokio::test]
async fn plan_commands_and_title_are_in_the_snapshot() {
    let (gateway, session) = fake().await;
    gateway.turn(&session, "state-of-things").await;
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["plan"]["planId"], &shown["title"]),
        (&json!("p"), &json!("Fake"))
    );
    assert_eq!(shown["availableCommands"][0]["name"], "test");
}
