//! The routes of the chat protocols that begin turns.

use serde_json::{Value, json};

/// The routes for the agent `fake`, each with a body that begins a turn. A body has at most 32 MiB.
pub(crate) fn chat_turns() -> [(&'static str, Value); 4] {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let ai_sdk = json!({ "id": "c1", "trigger": "submit-message", "messages": [
        { "id": "m1", "role": "user", "parts": [{ "type": "text", "text": "hello" }] }
    ] });
    let ag_ui = json!({ "threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{ "id": "m1", "role": "user", "content": "hello" }] });
    [
        (
            "/openai/v1/chat/completions",
            json!({ "model": "fake", "messages": messages }),
        ),
        (
            "/openai/v1/responses",
            json!({ "model": "fake", "input": "hello" }),
        ),
        ("/ai-sdk/fake", ai_sdk),
        ("/ag-ui/fake", ag_ui),
    ]
}
